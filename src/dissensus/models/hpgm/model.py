"""HPGM: the paper's graphical model made fully Bayesian, with the uncertainty of every answer.

How a label is born, and how the posterior is sampled, is told in sampler.py. In short: items and annotators
have clusters, as in PGM; each annotator has distributions of their own around those of their cluster, each
item its own distribution around that of its cluster; how much of either, and how many clusters there are, is
learned. FMM, smoothed counts, Dawid–Skene's matrices, CBCC and PGM are limits of it.

The answer about an item is the mean of the population's answer over the draws of several chains; its interval
is what the draws have between two quantiles. Numbers of clusters are upper bounds: clusters that are not
needed stay empty (with many kinds of items all are used), and nothing has to be searched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError
from dissensus.execution.memory import Needs
from dissensus.execution.run import Run
from dissensus.labels.annotations import Annotations
from dissensus.labels.copies import Voices
from dissensus.labels.features import features_of
from dissensus.labels.rows import joined, pairs_per_item, rows_of, several, with_values
from dissensus.labels.sources import as_annotations
from dissensus.models.base import UNKNOWN_WORTH
from dissensus.models.dirichlet_regression import DirichletRegression
from dissensus.models.hpgm.draws import (
    Draws,
    Extension,
    extended,
    spaced,
)
from dissensus.models.hpgm.posterior import Posterior
from dissensus.models.hpgm.sampler import (
    FEW_GROUPS,
    MANY_KINDS,
    PRIORS,
    TINY,
    Data,
    State,
    continued,
    draw_dirichlet,
    own_counts,
    start,
    sweep,
)
from dissensus.models.hpgm.view import QUANTITIES, View, annotator_weights, traced
from dissensus.models.softmax import predict
from dissensus.numerics import Array, row_shares
from dissensus.params import ANY, NONE, SEED, Rule, choice, integer

Floats = NDArray[np.float32]

LONG, SHORT, MANY_LABELS = 300, 150, 10_000  # sweeps of a chain on few labels, and on as many or more
ITEMS_A_CLUSTER = 25  # items for each cluster from which on these are points of a grid
THIN = 3  # sweeps from one draw that is kept to the next
MOST_SHARES = 8_000_000  # numbers of the population's answers that a fit keeps, over all draws
MOST_WHOLE = 12_000_000  # numbers that it keeps of whole draws, to foresee labels by
LEAST_WHOLE, WHOLE = 8, 48  # whole draws that are kept: at least, and usually
UPDATE, SHORTEST_UPDATE = 6, 20  # an update makes one sweep for so many of a fit; at least so many
MOST_REACHED = 100_000_000  # numbers that are kept of items that were not sampled
REACHED = 200_000  # labels at a time of items that were not sampled
REPRESENT = Rule(
    "a mapping of annotator columns to values", lambda v: isinstance(v, Mapping) and bool(v) and all(v)
)


@dataclass(frozen=True)
class Chain:
    """Where a chain is: the sampler's state, and what was gathered so far (written in place)."""

    state: State
    answers: Array  # (M, P): sum of the population's answers over the draws kept
    prior: Array  # (P,): the same about an item never seen
    shares: Floats  # (D, M, P): the population's answers, all their uncertainty drawn
    trace: Array  # (D, quantities)
    draws: Draws


class HPGM(Posterior):
    """The default: items and annotators in clusters, everyone with ways of their own, sampled by Gibbs.

    It says how sure it is: intervals are read off draws of the posterior. Annotators who
    are copies of one voice count once. ``rhat_`` and ``effective_draws_`` tell whether the chains agree;
    ``quantities_`` names what they are about. With ``use_features``, a regression of labels on features
    (DirichletRegression, every item's own labels left out) tells how many labels of each class above the
    usual the features are worth.

    Parameters
    ----------
    n_item_clusters
        The most clusters of items; those that are not needed stay empty.
    n_annotator_clusters
        The most clusters of annotators.
    n_chains
        How many chains are sampled from different starts; ``rhat_`` says whether they agree.
    n_sweeps
        Sweeps of each chain; None is 300, or 150 from 10,000 labels on. The first two fifths are
        forgotten, and every third of the others is kept.
    weight_by
        How annotators count in the population: by the number of their ``"labels"``, or all alike
        (``"annotators"``).
    represent
        Whose population is estimated, by columns of the annotator table: ``{"country": "DE"}``. The labels of
        others still inform about the items.
    item_kinds
        ``"few"``: items are of a few kinds, and clusters of items that are not needed stay empty: clusters to
        read. ``"many"``: items differ without steps; clusters are of about even weight beforehand, and
        intervals are wider. None is ``"many"`` from 25 items for each cluster on.
    max_sampled
        Of more labels than this, a random part of the items is sampled; the others get what its draws say
        of them.
    use_features
        Whether the features or texts of the items are taken as hints at their clusters. How far they are
        trusted is learned.
    embedding
        The sentence encoder for items that have a text and no features: a name or a path, as in
        :func:`dissensus.embed`; None takes the one that comes with the extra ``text``.
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    n_jobs
        Number of threads; −1 takes all cores, or one thread where there are fewer than 20,000 labels: two
        take no less time there, or hardly any less. The result does not depend on it.
    """

    _rules = {
        "n_item_clusters": integer(1),
        "n_annotator_clusters": integer(1),
        "n_chains": integer(1),
        "n_sweeps": integer(10) | NONE,
        "weight_by": choice("labels", "annotators"),
        "represent": REPRESENT | NONE,
        "item_kinds": choice("few", "many") | NONE,
        "max_sampled": integer(1),
        "use_features": choice(False, True),
        "embedding": ANY,
        "seed": SEED,
        "n_jobs": integer(-1),
    }
    _last_arrays = tuple(f"last_{name}_" for name in State.__dataclass_fields__)
    _drawn = ("share_draws_", "trace_draws_", *Posterior._draw_arrays, *_last_arrays, "learned_rows_")
    _judged = ("rhat_", "share_rhat_", "effective_draws_")
    _arrays = (*_drawn, *_judged, "annotator_weights_", "hint_weights_", "hint_usual_")
    _needs_annotators = True
    _sizes_are_bounds = True
    _threads_from = 20_000  # a sweep is many short steps, and threads wait for each other between them

    last_w_: NDArray[np.int64]  # (chains, M), and so on for everything else that a chain remembers
    learned_rows_: NDArray[np.int32]  # (3, labels): codes of item, annotator, class
    hint_weights_: Array  # (features + 1, P): of the regression that hints come from; empty without features
    hint_usual_: Array  # (P + 1,): what it says on average, and how many labels it is worth

    def __init__(
        self,
        n_item_clusters: int = 20,
        n_annotator_clusters: int = 20,
        *,
        n_chains: int = 4,
        n_sweeps: int | None = None,
        weight_by: str = "labels",
        represent: Mapping[str, Any] | None = None,
        item_kinds: str | None = None,
        max_sampled: int = 300_000,
        use_features: bool = False,
        embedding: str | None = None,
        seed: int = 0,
        n_jobs: int = -1,
    ) -> None:
        self.n_item_clusters = n_item_clusters
        self.n_annotator_clusters = n_annotator_clusters
        self.n_chains = n_chains
        self.n_sweeps = n_sweeps
        self.weight_by = weight_by
        self.represent = represent
        self.item_kinds = item_kinds
        self.max_sampled = max_sampled
        self.use_features = use_features
        self.embedding = embedding
        self.seed = seed
        self.n_jobs = n_jobs

    @property
    def uses_features(self) -> bool:  # type: ignore[override]
        """Whether it also learns from features of the items."""
        return self.use_features

    # ---- fitting --------------------------------------------------------------------------------------

    def _needs(self, annotations: Annotations, itemsize: int, **given: Any) -> Needs:
        del itemsize, given  # there are no messages
        (M, N, P), E = _shape(annotations), annotations.n_labels
        sampled = min(E, self.max_sampled)
        part = -(-M * sampled // max(E, 1))  # items that are sampled
        K, L = min(self.n_item_clusters, M), min(self.n_annotator_clusters, N)
        n_shares, n_whole = self._sizes(self._sweeps(sampled)[2], part, N, P, K, L)
        kept = 4 * self.n_chains * (n_shares * part * P + n_whole * _whole_numbers(part, N, P, K, L))
        reached = (
            0 if part == M else 4 * self._reaching(self.n_chains * n_whole, annotations) * M * (K + 2 * P)
        )
        # the sampled labels eight times, what is kept twice while it is put together; all labels as codes;
        # tables of items and of annotators
        tables = 8 * (6 * part * (K + P) + 6 * N * P * K)
        return Needs(96 * sampled + 24 * E + 2 * kept + reached, 0, 0, 60 * sampled + tables)

    def _sizes(self, n_kept: int, M: int, N: int, P: int, K: int, L: int) -> tuple[int, int]:
        """How many answers about the items, and how many whole draws, a chain of so many draws keeps."""
        n_shares = min(n_kept, max(-(-LEAST_WHOLE // self.n_chains), MOST_SHARES // (M * P * self.n_chains)))
        room = MOST_WHOLE // (_whole_numbers(M, N, P, K, L) * self.n_chains)
        least, usual = -(-LEAST_WHOLE // self.n_chains), -(-WHOLE // self.n_chains)
        return n_shares, min(n_kept, max(least, min(usual, room)))

    def _sweeps(self, n_labels: int) -> tuple[int, int, int]:
        """How many sweeps a chain makes, forgets, and keeps a draw of."""
        n_sweeps = self.n_sweeps or (LONG if n_labels < MANY_LABELS else SHORT)
        n_burn = 2 * n_sweeps // 5
        return n_sweeps, n_burn, -(-(n_sweeps - n_burn) // THIN)

    def fit(self, annotations: Any, features: Any = None) -> Self:
        """Learn from annotations, and with ``use_features`` from features of their items.

        ``features`` has one row per item, in the order of ``annotations.items``; without it, those that the
        annotations carry are taken, or the embeddings of their ``text`` column.
        """
        return self._run_fit(annotations, features=features)

    def _fit(
        self, annotations: Annotations, run: Run, last: Sequence[State] = (), features: Any = None
    ) -> None:
        voices = Voices.of(annotations)
        known, rows = voices.annotations, voices.rows
        hints = self._learn_hints(known, features)
        weights = annotator_weights(self._represented_load(known), self.weight_by)
        chosen = self._part(known)
        last = [replace(state, z=state.z[voices.speakers], own=state.own[rows]) for state in last]
        if chosen is None:
            self._fit_chains(known, weights, run, last, hints)
        else:
            some = None if hints is None else hints[chosen]
            self._fit_chains(known.take_items(chosen), weights, run, hints=some)
            self._reach_others(known, chosen, run, hints)
        if pairs_per_item(known).max() < 2:
            self._hedge(known.counts)
        self._heed(known.counts)
        if len(voices.rows) < annotations.n_labels:
            self._under_every_name(annotations, voices)

    def _represented_load(self, annotations: Annotations) -> NDArray[np.int64]:
        """(N,): labels of each annotator, 0 of those who are not represented."""
        if not self.represent:
            return annotations.annotator_load
        represented = with_values(annotations.annotator_table, self.represent, "annotator")
        load = annotations.annotator_load * represented
        if not load.any():
            raise DataError("none of the annotators to represent gave a label")
        return np.asarray(load)

    def _under_every_name(self, annotations: Annotations, voices: Voices) -> None:
        """What is known of a voice, said of all its names; they share what it counts in the population."""
        voice = voices.voice
        for name in ("matrices_draws_", "sizes_draws_", "z_draws_", "last_z_"):
            setattr(self, name, getattr(self, name)[:, voice])
        heard: NDArray[np.bool_] = vars(self)["last_own_"]
        self.last_own_ = np.zeros((len(heard), annotations.n_labels), np.bool_)
        if len(heard):  # none where a part of the items was sampled
            self.last_own_[:, voices.rows] = heard
        self.learned_rows_ = np.stack(annotations.columns).astype(np.int32)
        self.annotator_weights_ = (self.annotator_weights_ / np.bincount(voice))[voice]

    def _part(self, annotations: Annotations) -> NDArray[np.int64] | None:
        """The items that are sampled, drawn at random; None where all of them are."""
        if annotations.n_labels <= self.max_sampled:
            return None
        order = np.random.default_rng([self.seed, 1 << 24]).permutation(annotations.n_items)
        n_items = int((np.cumsum(np.diff(annotations.item_pointers)[order]) <= self.max_sampled).sum())
        return np.sort(order[: max(n_items, 1)])

    def _learn_hints(self, annotations: Annotations, features: Any) -> Array | None:
        """(items, classes): S (h_m − h̄), h_m what the features of item m say without its labels."""
        self.hint_weights_, self.hint_usual_ = np.zeros((0, 0)), np.zeros(0)
        if not self.use_features:
            return None
        told = DirichletRegression(embedding=self.embedding, seed=self.seed).fit(annotations, features)
        usual, worth = told.item_means_.mean(axis=0), float(told.concentration_)
        self.hint_weights_ = np.vstack([told.coef_, told.intercept_])
        self.hint_usual_ = np.append(usual, worth)
        return np.asarray(worth * (told.item_means_ - usual))

    def _hints_of(self, new: Annotations) -> Array | None:
        """The same of other items, from their features."""
        if not self.use_features:
            return None
        X = features_of(new, self.embedding).astype(np.float64)
        return np.asarray(self.hint_usual_[-1] * (predict(X, self.hint_weights_) - self.hint_usual_[:-1]))

    def _fit_chains(
        self,
        annotations: Annotations,
        weights: Array,
        run: Run,
        last: Sequence[State] = (),
        hints: Array | None = None,
    ) -> None:
        """Sample the posterior given these labels, and keep what the draws say."""
        data = Data.of(annotations.item, annotations.annotator, annotations.label, *_shape(annotations))
        data = replace(data, hints=hints)
        chains = run.executor.map(partial(self._sample, data, weights, run, last), range(self.n_chains))
        n_kept = sum(len(chain.trace) for chain in chains)
        self.label_distributions_ = np.sum([chain.answers for chain in chains], axis=0) / n_kept
        self.prior_distribution_ = np.sum([chain.prior for chain in chains], axis=0) / n_kept
        self.share_draws_ = np.concatenate([chain.shares for chain in chains])
        for name, attribute in zip(Draws.__dataclass_fields__, self._draw_arrays, strict=True):
            setattr(self, attribute, np.concatenate([getattr(chain.draws, name) for chain in chains]))
        for name, attribute in zip(State.__dataclass_fields__, self._last_arrays, strict=True):
            setattr(self, attribute, np.stack([getattr(chain.state, name) for chain in chains]))
        self.learned_rows_ = np.stack([data.item, data.annotator, data.label]).astype(np.int32)
        self.annotator_weights_ = weights
        self._judge_chains(np.stack([chain.trace for chain in chains]))

    def _reach_others(
        self, annotations: Annotations, chosen: NDArray[np.int64], run: Run, hints: Array | None
    ) -> None:
        """Answers about the items that were not sampled, some at a time, given the draws about the others."""
        kept = np.linspace(0, len(self.draws_) - 1, self._reaching(len(self.draws_), annotations)).astype(int)
        for attribute in self._draw_arrays:
            setattr(self, attribute, getattr(self, attribute)[kept])
        met = np.bincount(self.learned_rows_[1], minlength=annotations.n_annotators) > 0
        annotator = np.where(met, np.arange(annotations.n_annotators), -1)
        others = np.setdiff1d(np.arange(annotations.n_items), chosen)
        behind = np.cumsum(np.diff(annotations.item_pointers)[others])
        blocks = np.split(others, np.searchsorted(behind, np.arange(REACHED, behind[-1], REACHED)))

        def reach(number: int) -> Extension:
            part = annotations.take_items(blocks[number])
            some = None if hints is None else hints[blocks[number]]
            data = replace(Data.of(part.item, part.annotator, part.label, *_shape(part)), hints=some)
            unknown = np.full(part.n_items, -1)
            return extended(self.draws_, data, unknown, annotator, self.seed, number)

        M, T, before = annotations.n_items, len(self.draws_), self.share_draws_
        answers = np.zeros((M, annotations.n_classes))
        shares = np.zeros((T, M, annotations.n_classes), np.float32)
        beliefs, own = (np.zeros((T, M, table.shape[2]), np.float32) for table in self._item_draws())
        answers[chosen] = self.label_distributions_
        shares[:, chosen] = before[np.linspace(0, len(before) - 1, T).astype(int)]
        beliefs[:, chosen], own[:, chosen] = self._item_draws()
        for items, told in zip(blocks, run.executor.map(reach, range(len(blocks))), strict=True):
            answers[items] = row_shares(told.answers)
            shares[:, items] = told.shares
            beliefs[:, items], own[:, items] = told.draws.beliefs, told.draws.own
        self.label_distributions_, self.share_draws_ = answers, shares
        self.beliefs_draws_, self.own_draws_ = beliefs, own
        self.learned_rows_ = np.stack([annotations.item, annotations.annotator, annotations.label]).astype(
            np.int32
        )
        for name in self._last_arrays:  # the chains ended over a part of the items
            setattr(self, name, getattr(self, name)[:0])

    def _reaching(self, n_whole: int, annotations: Annotations) -> int:
        """How many of the whole draws are carried over to items that were not sampled."""
        M, _, P = _shape(annotations)
        return max(
            min(n_whole, LEAST_WHOLE), min(n_whole, MOST_REACHED // (M * (self.n_item_clusters + 2 * P)))
        )

    def _item_draws(self) -> tuple[Floats, Floats]:
        return self.draws_.beliefs, self.draws_.own

    def _hedge(self, counts: NDArray[np.int64]) -> None:
        """No item has two labels: go halfway to the counts, shrunk to the crowd's shares.

        Nothing then tells how far a label is its item's and how far its annotator's. The model and
        Y_m ~ Dir(c_m + 1.5 p̄) explain the labels equally well, so that every second draw is the latter's.
        """
        alpha = counts + UNKNOWN_WORTH * row_shares(counts.sum(axis=0, keepdims=True))
        self.label_distributions_ = (self.label_distributions_ + row_shares(alpha)) / 2
        rng = np.random.default_rng([self.seed, 1 << 23])
        for share in self.share_draws_[::2]:
            share[...] = draw_dirichlet(np.maximum(alpha, TINY), rng)

    def _heed(self, counts: NDArray[np.int64]) -> None:
        if not self.represent:  # others than those represented may be the ones who agree
            self._heed_unanimous(counts)

    def _has_many_kinds(self, n_items: int) -> bool:
        if self.item_kinds is not None:
            return self.item_kinds == "many"
        return n_items >= ITEMS_A_CLUSTER * self.n_item_clusters

    def _sample(self, data: Data, weights: Array, run: Run, last: Sequence[State], number: int) -> Chain:
        """One chain, from its start (or where it ended ``last``) on; sweep i has a stream of its own."""
        K, L = min(self.n_item_clusters, data.M), min(self.n_annotator_clusters, data.N)
        n_sweeps, n_burn, n_kept = self._sweeps(len(data.item))
        if last:
            (K, L), n_sweeps = (last[number].K, last[number].L), max(n_sweeps // UPDATE, SHORTEST_UPDATE)
            n_burn = n_sweeps // 4
            n_kept = -(-(n_sweeps - n_burn) // THIN)
        n_shares, n_whole = self._sizes(n_kept, data.M, data.N, data.P, K, L)
        priors = MANY_KINDS if self._has_many_kinds(data.M) else PRIORS
        ascent = run.ascent(Chain, f"chain-{number}")
        chain = ascent.resumed
        if chain is None:
            # Chains start from few groups of items or from all K in turn, with annotators alike or spread:
            # agreement of chains that began so differently means something.
            rng = np.random.default_rng([self.seed, number])
            groups, spread = K if number % 2 else FEW_GROUPS, number // 2 % 2 == 1
            chain = Chain(
                last[number] if last else start(data, K, L, rng, priors, n_groups=groups, spread=spread),
                np.zeros((data.M, data.P)),
                np.zeros(data.P),
                np.zeros((n_shares, data.M, data.P), np.float32),
                np.zeros((n_kept, len(QUANTITIES))),
                Draws.empty(n_whole, data, K, L),
            )
        for i in ascent.iterations(n_sweeps, tol=-1.0):
            rng = np.random.default_rng([self.seed, number, i])
            chain = replace(chain, state=sweep(chain.state, data, rng, priors))
            kept, rest = divmod(i - n_burn, THIN)
            if i >= n_burn and not rest:
                self._gather(chain, kept, n_kept, data, weights, rng)
            chain = ascent.advance(chain, 0.0, chain)
        return chain

    def _gather(
        self, chain: Chain, kept: int, n_kept: int, data: Data, weights: Array, rng: np.random.Generator
    ) -> None:
        """Add what the present state says to what the chain has gathered (in place)."""
        view = View.of(data, chain.state)
        population = view.population(weights)
        answers = view.items(population)
        chain.answers[...] += answers
        chain.prior[...] += view.unseen(population)
        chain.trace[kept] = traced(data, view, answers)
        drawn = view.drawn_population(weights, rng)
        share = spaced(kept, n_kept, len(chain.shares))
        if share is not None:
            chain.shares[share] = view.drawn_items(own_counts(data, chain.state.own), drawn, rng)
        whole = spaced(kept, n_kept, len(chain.draws.z))
        if whole is not None:
            chain.draws.put(whole, view, weights, drawn)

    # ---- labels that come later -------------------------------------------------------------------------

    def update(self, new: Any) -> Self:
        """Learn from more labels: the chains go on from where they ended, for a sixth of the sweeps of a fit.

        ``new`` holds the labels to add, of old and new items and annotators; its classes must be known.
        """
        self._check_fitted()
        if not len(self.last_w_):
            raise DataError(
                "there are no chains to go on with: transform gave this model, or it was fitted to more than "
                "max_sampled labels; fit all labels anew"
            )
        if self.use_features:
            raise DataError("a run keeps no features of its items, so this model cannot be updated; fit anew")
        merged, last = self._with(self._in_own_classes(as_annotations(new)))
        return self._run_fit(merged, last=last)

    def _with(self, new: Annotations) -> tuple[Annotations, list[State]]:
        """The labels learned from and ``new`` together, and every chain's last state over them."""
        old = self.training_labels()
        merged = self._with_represented(joined(old, new), new)
        item, annotator = (
            merged.item_vocabulary.codes(self.item_vocabulary_),
            merged.annotator_vocabulary.codes(self.annotator_vocabulary_),
        )
        before = item[old.item], annotator[old.annotator], old.label
        rows = rows_of(before, (merged.item, merged.annotator, merged.label))
        last = []
        for number in range(len(self.last_w_)):
            kept = (getattr(self, name)[number] for name in self._last_arrays)
            values: list[Any] = [part if part.ndim else float(part) for part in kept]
            state = State(*values)
            rng = np.random.default_rng([self.seed, number, 1 << 22])
            last.append(continued(state, item, annotator, rows, _shape(merged), merged.n_labels, rng))
        return merged, last

    def _with_represented(self, merged: Annotations, new: Annotations) -> Annotations:
        """With a table that says who is represented: those who were, and new ones by their own."""
        if not self.represent:
            return merged
        is_in = np.zeros(merged.n_annotators, dtype=bool)
        is_in[merged.annotator_vocabulary.codes(self.annotator_vocabulary_)] = self.annotator_weights_ > 0
        if new.annotator_table is not None:
            codes = merged.annotator_vocabulary.codes(new.annotator_vocabulary)
            is_in[codes] = with_values(new.annotator_table, self.represent, "annotator")
        first = {name: several(value)[0] for name, value in self.represent.items()}
        columns = {name: [value if one else None for one in is_in] for name, value in first.items()}
        return merged.with_tables(annotators={"annotator": merged.annotators, **columns})

    def training_labels(self) -> Annotations:
        """The labels that it was fitted to."""
        self._check_fitted()
        item, annotator, label = self.learned_rows_.copy()
        return Annotations(
            item,
            annotator,
            label,
            self.item_vocabulary_,
            self.annotator_vocabulary_,
            self.class_vocabulary_,
            frame_kind=self.frame_kind_,
            label_type=self.label_type_,
        )

    # ---- new items and annotators ---------------------------------------------------------------------

    def _transform(self, new: Annotations, fitted: Self, run: Run) -> None:
        """Items and annotators of the fit keep what is known of them; new ones are sampled given the draws.

        Labels between an item and an annotator of the fit are taken to be those of the fit.
        """
        item = fitted.item_vocabulary_.codes(new.item_vocabulary)
        annotator = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        fresh = (item[new.item] < 0) | (annotator[new.annotator] < 0)
        part = new.take_rows(fresh)
        data = Data.of(part.item, part.annotator, part.label, *_shape(part))
        data = replace(data, hints=fitted._hints_of(new))
        told = extended(fitted.draws_, data, item, annotator, fitted.seed)
        # an item of the fit of which nothing new is known keeps its answer to the last bit
        same = (item >= 0) & (np.bincount(part.item, minlength=new.n_items) == 0)
        rows = np.linspace(0, len(fitted.share_draws_) - 1, len(told.shares)).astype(int)
        before = fitted.share_draws_[rows][:, item]
        self.share_draws_ = np.where(same[None, :, None], before, told.shares).astype(np.float32)
        answers = row_shares(told.answers)
        self.label_distributions_ = np.where(same[:, None], fitted.label_distributions_[item], answers)
        for name, attribute in zip(Draws.__dataclass_fields__, self._draw_arrays, strict=True):
            setattr(self, attribute, getattr(told.draws, name))
        self._heed(new.counts)
        self.annotator_weights_ = np.append(fitted.annotator_weights_, 0.0)[annotator]
        self.learned_rows_ = np.stack([new.item, new.annotator, new.label]).astype(np.int32)
        for name in self._last_arrays:  # the chains ended over other items and annotators
            setattr(self, name, getattr(fitted, name)[:0])


def _shape(annotations: Annotations) -> tuple[int, int, int]:
    return annotations.n_items, annotations.n_annotators, annotations.n_classes


def _whole_numbers(M: int, N: int, P: int, K: int, L: int) -> int:
    """Numbers of one whole draw."""
    return M * (K + P) + N * (P * K + K + 1) + K * L * P + 3 * K * P
