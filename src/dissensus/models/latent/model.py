"""Latent positions, the model: its chains, what it knows of pairs, and new items and annotators.

How a label is born, and how the posterior is sampled, is told in sampler.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.execution.memory import Needs
from dissensus.execution.run import Run
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes
from dissensus.models.hpgm.draws import spaced
from dissensus.models.latent.sampler import (
    Data,
    Floats,
    State,
    answers_of,
    heard,
    log_chances,
    seen_from,
    sliced,
    start,
    sweep,
    with_one,
)
from dissensus.models.sampled import TINY, Sampled
from dissensus.numerics import Array, row_shares
from dissensus.params import N_JOBS, NONE, SEED, fitted, integer, setting

THIN = 3  # sweeps from one draw that is kept to the next
MOST_DIMENSIONS = 6  # of items
MOST_SHARES = 8_000_000  # numbers of the population's answers that are kept
NEW_SLICES, FIRST_SLICES = 3, 20  # of a new item for each draw, and for the first


@dataclass(frozen=True)
class Chain:
    """A chain's state, and what was gathered so far (written in place)."""

    state: State
    answers: Array  # (M, P): sum of the population's answers over the draws kept
    shares: Floats  # (D, M, P)
    trace: Array  # (draws, quantities)
    x: Floats  # (D, M, d)
    a: Floats  # (D, N, b)
    W: Floats  # (D, P, 1 + d, 1 + b)


class LatentPositions(Sampled):
    """Items and annotators have places, and answers depend on both; sampled, often the best predictor."""

    n_item_dimensions: int | None = setting(
        None,
        integer(1) | NONE,
        "Dimensions of the items' places; None is one fewer than there are classes, from 2 to 6.",
    )
    n_annotator_dimensions: int = setting(
        8, integer(1), "Dimensions of the annotators' places. Those that are not needed shrink away."
    )
    _: KW_ONLY
    n_chains: int = setting(2, integer(1), "How many chains are sampled; ``rhat_`` says whether they agree.")
    n_sweeps: int = setting(
        200,
        integer(10),
        "Sweeps of each chain. The first two fifths are forgotten, and every third of the others is kept.",
    )
    seed: int = setting(0, *SEED)
    n_jobs: int = setting(-1, *N_JOBS)

    _drawn = ("share_draws_", "trace_draws_", "x_draws_", "a_draws_", "W_draws_", "learned_rows_")
    _needs_annotators = True
    quantities_ = ("log-likelihood", "entropy", "share of the first class")

    x_draws_: Floats = fitted("(D, M, d), chain after chain")
    a_draws_: Floats = fitted("(D, N, b)")
    W_draws_: Floats = fitted("(D, P, 1 + d, 1 + b)")
    learned_rows_: NDArray[np.int32] = fitted("(3, labels): codes of item, annotator, class")
    annotator_weights_: Array = fitted("(N,): what each annotator counts in the population")

    def _needs(self, annotations: Annotations, itemsize: int, **given: Any) -> Needs:
        del itemsize, given
        M, N, P, E = *_shape(annotations), annotations.n_labels
        d, b = self._dimensions(P)
        kept = 4 * self.n_chains * self._n_kept(M, P) * (M * (P + d) + N * b + P * (1 + d) * (1 + b))
        # of a label: what the other side is to it twice, slopes, logits
        working = 4 * E * (2 * P * (2 + max(d, b)) + 6 * P) + 8 * (N + M) * P * (1 + max(d, b))
        return Needs(48 * E + 2 * kept + 32 * M * P, 0, 0, working)

    def _dimensions(self, n_classes: int) -> tuple[int, int]:
        d = self.n_item_dimensions or min(max(n_classes - 1, 2), MOST_DIMENSIONS)
        return d, self.n_annotator_dimensions

    def _n_kept(self, n_items: int, n_classes: int) -> int:
        """Draws that a chain keeps."""
        n_kept = -(-(self.n_sweeps - 2 * self.n_sweeps // 5) // THIN)
        return min(n_kept, max(4, MOST_SHARES // (n_items * n_classes * self.n_chains)))

    def _fit(self, annotations: Annotations, run: Run) -> None:
        load = annotations.annotator_load
        self.annotator_weights_ = load / load.sum()
        chains: Sequence[Chain] = run.executor.map(
            partial(self._sample, annotations, run), range(self.n_chains)
        )
        n_draws = sum(len(chain.trace) for chain in chains)
        self.label_distributions_ = np.sum([chain.answers for chain in chains], axis=0) / n_draws
        self.share_draws_ = np.concatenate([chain.shares for chain in chains])
        self.x_draws_, self.a_draws_, self.W_draws_ = (
            np.concatenate([getattr(chain, name) for chain in chains]) for name in ("x", "a", "W")
        )
        labelled = annotations.counts.any(axis=1)
        self.prior_distribution_ = self.label_distributions_[labelled].mean(axis=0)
        self.label_distributions_[~labelled] = self.prior_distribution_
        self._heed_unanimous(annotations.counts)
        self._judge_chains(np.stack([chain.trace for chain in chains]))
        self.learned_rows_ = np.stack(annotations.columns).astype(np.int32)

    def _sample(self, annotations: Annotations, run: Run, number: int) -> Chain:
        """One chain from its start on; sweep i has a stream of its own."""
        M, N, P = _shape(annotations)
        d, b = self._dimensions(P)
        items = Data.of(annotations.item, annotations.annotator, annotations.label, M)
        people = Data.of(annotations.annotator, annotations.item, annotations.label, N)
        n_burn, size = 2 * self.n_sweeps // 5, self._n_kept(M, P)
        n_draws = -(-(self.n_sweeps - n_burn) // THIN)
        ascent = run.ascent(Chain, f"chain-{number}")
        chain = ascent.resumed
        if chain is None:
            shapes = [(size, M, P), (size, M, d), (size, N, b), (size, P, 1 + d, 1 + b)]
            shares, x, a, W = (np.zeros(shape, np.float32) for shape in shapes)
            first = start(annotations.counts, N, d, b, np.random.default_rng([self.seed, number]))
            trace = np.zeros((n_draws, len(self.quantities_)))
            chain = Chain(first, np.zeros((M, P)), shares, trace, x, a, W)
        for i in ascent.iterations(self.n_sweeps, tol=-1.0):
            rng = np.random.default_rng([self.seed, number, i])
            rate = 0.3 / (1 + i / 50) if i < n_burn else 0.0
            chain = replace(chain, state=sweep(chain.state, items, people, rate, rng))
            kept, rest = divmod(i - n_burn, THIN)
            if i >= n_burn and not rest:
                self._gather(chain, kept, people, rng)
            chain = ascent.advance(chain, 0.0, chain)
        return chain

    def _gather(self, chain: Chain, kept: int, people: Data, rng: np.random.Generator) -> None:
        """Add what the present state says to what the chain has gathered (in place)."""
        state = chain.state
        asked, weights = heard(self.annotator_weights_, rng)
        answers = answers_of(state.x, seen_from(state.W, state.a[asked], "annotators"), weights)
        chain.answers[...] += answers
        logs = np.log(np.maximum(answers, TINY))
        fit = log_chances(
            seen_from(state.W, state.x, "items")[people.other], state.a[people.owner], people.label
        )
        chain.trace[kept] = (
            fit.mean(dtype=np.float64),
            -(answers * logs).sum(axis=1).mean(),
            answers[:, 0].mean(),
        )
        place = spaced(kept, len(chain.trace), len(chain.shares))
        if place is not None:
            chain.shares[place], chain.x[place], chain.a[place] = answers, state.x, state.a
            chain.W[place] = state.W

    # ---- what it knows of pairs, and of new items and annotators ----------------------------------------

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Mean over draws of P(y | x_m, a_n); one that has no label is expected to be as the others are."""
        known = (np.append(self.n_labels_, 0)[item] > 0) & (
            np.append(self.annotator_weights_, 0)[annotator] > 0
        )
        total = self._item_distributions(item)
        if known.any():
            m, n = item[known], annotator[known]
            found = np.zeros((len(m), total.shape[1]))
            for x, a, W in zip(self.x_draws_, self.a_draws_, self.W_draws_, strict=True):
                logits = np.einsum("eci,ei->ec", seen_from(W, a, "annotators")[n], with_one(x)[m])
                logits -= logits.max(axis=1, keepdims=True)
                found += row_shares(np.exp(logits).astype(np.float64))
            total[known] = row_shares(found)
        return total

    def _transform(self, new: Annotations, fitted: Self, run: Run) -> None:
        """Items of the fit without new labels keep what is known of them; the others are drawn anew.

        Labels between an item and an annotator of the fit are taken to be those of the fit.
        """
        known = fitted.item_vocabulary_.codes(new.item_vocabulary)
        met = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        rows = (known[new.item] < 0) | (met[new.annotator] < 0)
        item, annotator, label = (np.asarray(column[rows], np.int64) for column in new.columns)
        N = len(fitted.annotator_weights_)
        person = np.where(met >= 0, met, N + np.arange(len(met)))[annotator]
        touched = np.zeros(new.n_items, dtype=bool)
        touched[item] = True
        # what an item had in the fit still counts when it is drawn anew
        back = np.full(len(fitted.n_labels_), -1)
        back[known[touched & (known >= 0)]] = np.flatnonzero(touched & (known >= 0))
        old = back[fitted.learned_rows_[0]] >= 0
        before = back[fitted.learned_rows_[0][old]], *fitted.learned_rows_[1:, old]
        item, person, label = (
            np.concatenate(pair) for pair in zip((item, person, label), before, strict=True)
        )
        self._draw_new(fitted, Data.of(item, person, label, new.n_items), touched, known, met)
        self.annotator_weights_ = np.append(fitted.annotator_weights_, 0.0)[met]
        self.learned_rows_ = np.stack(new.columns).astype(np.int32)
        self._heed_unanimous(new.counts)

    def _draw_new(
        self, fitted: Self, items: Data, touched: NDArray[np.bool_], known: Codes, met: Codes
    ) -> None:
        """Places of touched items and new annotators, given each draw of the fit; what they answer then."""
        D, N, b = fitted.a_draws_.shape
        people = Data.of(items.other, items.owner, items.label, N + len(met))
        rng = np.random.default_rng([fitted.seed, 1 << 20])
        x = rng.standard_normal((len(known), fitted.x_draws_.shape[2]), dtype=np.float32)
        fresh = rng.standard_normal((len(met), b), dtype=np.float32)
        self.x_draws_, self.a_draws_ = (
            np.zeros((D, *x.shape), np.float32),
            np.zeros((D, *fresh.shape), np.float32),
        )
        self.share_draws_ = np.append(
            fitted.share_draws_,
            np.broadcast_to(fitted.prior_distribution_, (D, 1, len(fitted.prior_distribution_))),
            1,
        )[:, known].astype(np.float32)
        answers = fitted._item_distributions(known)
        total = np.zeros_like(answers)
        for t in range(D):
            W, everyone = fitted.W_draws_[t].astype(np.float64), np.concatenate([fitted.a_draws_[t], fresh])
            if len(items.label):
                for _ in range(NEW_SLICES + FIRST_SLICES * (t == 0)):
                    x = sliced(x, seen_from(W, everyone, "annotators")[items.other], items, rng)
                    if (met < 0).any():
                        drawn = sliced(everyone, seen_from(W, x, "items")[people.other], people, rng)
                        everyone[N:] = drawn[N:]
            fresh = everyone[N:]
            old = (known >= 0) & ~touched
            x[old] = fitted.x_draws_[t][known[old]]
            self.x_draws_[t], self.a_draws_[t] = (
                x,
                np.where((met >= 0)[:, None], fitted.a_draws_[t][met], fresh),
            )
            if touched.any():
                asked, weights = heard(fitted.annotator_weights_, rng)
                found = answers_of(x[touched], seen_from(W, everyone[asked], "annotators"), weights)
                self.share_draws_[t, touched] = found
                total[touched] += found
        answers[touched] = row_shares(total[touched])
        self.label_distributions_ = answers


def _shape(annotations: Annotations) -> tuple[int, int, int]:
    return annotations.n_items, annotations.n_annotators, annotations.n_classes
