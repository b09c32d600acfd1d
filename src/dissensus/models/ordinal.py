"""The default for ordered scales: HPGM, which knows no order, pooled with graded response, which lives by it.

HPGM learns what labels are like in clusters of items, whatever the order of the classes; graded response
places each item on one scale. Which of them foresees labels better differs from data to data; a pool of both
is about as good as the better one, or better:

    P(y | item) = (1 − w) P_HPGM(y | item) + w P_graded(y | item),

and so, with a weight of its own, for P(y | item, annotator). Both weights are learned from hidden labels: a
tenth of the pairs is hidden from short fits of both, and w maximises Σ log P + log w + log(1 − w).

Draws of the population's answer are HPGM's, each replaced with chance w by what the population answers at a
place drawn from the item's posterior on the scale.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np

from dissensus.data.annotations import Annotations
from dissensus.data.vocabulary import Codes
from dissensus.execution.resources import current, using
from dissensus.execution.run import Run
from dissensus.io.arrays import Arrays, Header
from dissensus.models.base import VOCABULARIES
from dissensus.models.graded import GradedResponse
from dissensus.models.hpgm.model import HPGM
from dissensus.numerics import Array

HIDDEN, FEWEST_HIDDEN = 0.1, 20  # share of the pairs that the weights are learned from, and the fewest
MOST_LABELS = 30_000  # labels that the weights are learned from
STEPS = 200
SHORT = 120  # sweeps of the fit that the weights are learned by
SHARED = ("n_labels_", "prior_worth_", "label_type_", "frame_kind_", "stopped_", "trace_")


class OrdinalHPGM(HPGM):
    """HPGM pooled with graded response, for classes with an order; hidden labels teach the weights.

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
        Whose population it is, by columns of the annotator table: ``{"country": "DE"}``. The labels of
        others still inform about the items.
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
        Seed of all that is random. The same seed gives the same bits.
    n_jobs
        Threads; −1 takes all cores. The result does not depend on it.
    """

    _label_types = ("ordinal",)
    _arrays = (*HPGM._arrays, "pool_")
    _graded_arrays = ("label_distributions_", "prior_distribution_", *GradedResponse._arrays)

    pool_: Array  # (2,): graded response's weight for items, and for pairs of item and annotator
    graded_: GradedResponse

    def _fit(self, annotations: Annotations, run: Run, last: Any = (), features: Any = None) -> None:
        super()._fit(annotations, run, last, features)
        with using(replace(current(), checkpoint=None, progress=False)):
            self.pool_ = self._learned_pool(annotations)
            self.graded_ = GradedResponse(weight_by=self.weight_by).fit(annotations)
        self._pool_items(np.ones(annotations.n_items, dtype=bool))
        self._heed(annotations.counts)
        self.prior_distribution_ = self._pooled(self.prior_distribution_, self.graded_.prior_distribution_, 0)

    def _learned_pool(self, annotations: Annotations) -> Array:
        """w of items and of pairs, from labels that neither model has seen."""
        part = _sampled(annotations, self.seed)
        if round(HIDDEN * part.n_pairs) < FEWEST_HIDDEN:
            return np.array([0.5, 0.5])
        kept, hidden = part.split_labels(HIDDEN, self.seed)
        short = HPGM(
            self.n_item_clusters,
            self.n_annotator_clusters,
            n_chains=min(self.n_chains, 2),
            n_sweeps=min(self.n_sweeps or SHORT, SHORT),
            weight_by=self.weight_by,
            seed=self.seed,
            n_jobs=self.n_jobs,
        )
        rivals = short.fit(kept), GradedResponse(weight_by=self.weight_by).fit(kept)
        logs = np.array(
            [[model.log_chances(hidden, annotators=pairs) for model in rivals] for pairs in (False, True)]
        )
        return np.array([best_weight(*np.exp(one)) for one in logs])

    def _pooled(self, own: Array, graded: Array, which: int) -> Array:
        return np.asarray((1 - self.pool_[which]) * own + self.pool_[which] * graded)

    def _pool_items(self, chosen: Any) -> None:
        """Answers and draws about some items, HPGM's until now, become the pool's (draws in place)."""
        graded, weight = self.graded_, self.pool_[0]
        answers = self._pooled(self.label_distributions_, graded.label_distributions_, 0)
        self.label_distributions_ = np.where(chosen[:, None], answers, self.label_distributions_)
        self.share_draws_ = self.share_draws_.copy()
        population = graded.population_.astype(np.float32)
        up_to = np.cumsum(graded.places_, axis=1)
        rng = np.random.default_rng([self.seed, 1 << 25])
        for share in self.share_draws_:
            taken = chosen & (rng.random(len(share)) < weight)
            at = (up_to[taken] < (rng.random(taken.sum()) * up_to[taken, -1])[:, None]).sum(axis=1)
            share[taken] = population[np.minimum(at, len(population) - 1)]

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        own = super()._pair_distributions(item, annotator)
        return self._pooled(own, self.graded_._pair_distributions(item, annotator), 1)

    def annotator_frame(self, interval: float = 0.9) -> dict[str, Any]:
        """HPGM's columns about annotators, and leniency, slope and guesses on the scale."""
        return super().annotator_frame(interval) | self.graded_.annotator_frame()

    def _transform(self, new: Annotations, fitted: Self) -> None:
        super()._transform(new, fitted)
        self.graded_ = fitted.graded_.transform(new)
        item = fitted.item_vocabulary_.codes(new.item_vocabulary)
        annotator = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        fresh = (item[new.item] < 0) | (annotator[new.annotator] < 0)
        told = np.bincount(new.item[fresh], minlength=new.n_items) > 0
        # an item of the fit of which nothing new is known keeps its answer
        self._pool_items((item < 0) | told)

    # ---- keeping it -----------------------------------------------------------------------------------

    def _state(self) -> tuple[Header, Arrays]:
        facts, arrays = super()._state()
        own = {f"graded.{name}": getattr(self.graded_, name) for name in self._graded_arrays}
        return facts, arrays | own

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        super()._restore(facts, arrays)
        self.graded_ = GradedResponse(weight_by=self.weight_by)
        for name in self._graded_arrays:
            setattr(self.graded_, name, arrays[f"graded.{name}"])
        for name in (*(f"{what}_vocabulary_" for what in VOCABULARIES), *SHARED):
            setattr(self.graded_, name, getattr(self, name))


def best_weight(own: Array, graded: Array) -> float:
    """The w that maximises Σ log((1 − w) own + w graded) + log w + log(1 − w), by EM."""
    w = 0.5
    for _ in range(STEPS):
        part = w * graded / np.maximum((1 - w) * own + w * graded, 1e-300)
        w = (float(part.sum()) + 1) / (len(own) + 2)
    return w


def _sampled(annotations: Annotations, seed: int) -> Annotations:
    """Items drawn at random until they have as many labels as the weights are learned from."""
    if annotations.n_labels <= MOST_LABELS:
        return annotations
    order = np.random.default_rng([seed, 1 << 26]).permutation(annotations.n_items)
    within = np.cumsum(np.diff(annotations.item_pointers)[order]) <= MOST_LABELS
    return annotations.take_items(np.sort(order[within]))
