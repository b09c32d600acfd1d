"""The default for ordered scales: HPGM, which knows no order, pooled with graded response, which lives by it.

HPGM learns what labels are like in clusters of items, whatever the order of the classes. Graded response
places each item on one scale, with a clarity, or with a side about which annotators part. Which of the three
foresees labels better differs from data to data; a pool of them is about as good as the best, or better:

    P(y | item) = w₀ P_HPGM(y | item) + w₁ P_clarity(y | item) + w₂ P_sides(y | item),

and so, with weights of their own, for P(y | item, annotator). The weights are learned from hidden labels:
twice a tenth of the pairs is hidden from short fits, and w maximises Σ log P + h log w₀, where h is a
hundredth of the hidden labels. Short fits to fewer labels flatter the simpler models: without h their
weights would be too large.

Draws of the population's answer are HPGM's, each replaced with chance w₁ (or w₂) by what the population
answers at a place drawn from the item's posterior on the scale.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from dissensus.engine import Engine, current, using
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes
from dissensus.models import CLUSTER_SETTINGS
from dissensus.models.base import Model
from dissensus.models.files import VOCABULARIES
from dissensus.models.graded import GradedResponse
from dissensus.models.hpgm.adjustments import Aliases
from dissensus.models.hpgm.model import HPGM
from dissensus.numerics import Array
from dissensus.params import fitted
from dissensus.tables.arrays import Arrays, Header

HIDDEN, FEWEST_HIDDEN = 0.1, 20  # share of the pairs that the weights are learned from, and the fewest
FLATTERED = 0.01  # of the hidden labels, HPGM's beforehand
MOST_LABELS = 30_000  # labels that the weights are learned from
SHORT = 120  # sweeps of the fit that the weights are learned by
SHARED = ("n_labels_", "prior_worth_", "label_type_", "frame_kind_", "stopped_", "trace_")


class OrdinalHPGM(HPGM):
    """HPGM pooled with graded response, for classes with an order; hidden labels teach the weights."""

    _label_types = ("ordinal",)
    _graded_arrays = ("label_distributions_", "prior_distribution_", *GradedResponse._arrays)

    pool_: Array = fitted("(2, 3): weights of HPGM, graded response and the one with sides; items and pairs")
    graded_: tuple[GradedResponse, GradedResponse] = fitted("with clarity, and with sides", saved=False)

    def _graders(self) -> tuple[GradedResponse, GradedResponse]:
        clear, sides = (GradedResponse(sides=sides, weight_by=self.weight_by) for sides in (False, True))
        return clear, sides

    def _fit(self, annotations: Annotations, engine: Engine, last: Any = (), features: Any = None) -> None:
        super()._fit(annotations, engine, last, features)
        aliases = Aliases.of(annotations) if self.adjust else Aliases.none(annotations)
        with using(current().share(1)):
            self.pool_ = self._learned_pool(aliases.annotations)
            clear, sides = (grader.fit(aliases.annotations) for grader in self._graders())
        self.graded_ = clear, sides
        for grader in self.graded_:  # every alias as their annotator is; the population is that of HPGM
            grader.own_, grader.guesses_ = grader.own_[aliases.code], grader.guesses_[aliases.code]
            grader.annotator_vocabulary_ = annotations.annotator_vocabulary
            grader.weights_ = self.annotator_weights_
            grader._answer()
        self._pool_items(np.ones(annotations.n_items, dtype=bool))
        self._floor_unanimous(annotations.counts)
        graded = [grader.prior_distribution_ for grader in self.graded_]
        self.prior_distribution_ = self._pooled(0, self.prior_distribution_, *graded)

    def _learned_pool(self, annotations: Annotations) -> Array:
        """(2, 3): w of items and of pairs, from labels that no model has seen."""
        part = annotations
        if annotations.n_labels > MOST_LABELS:  # items drawn at random until they have as many labels
            order = np.random.default_rng([self.seed, 1 << 26]).permutation(annotations.n_items)
            within = np.cumsum(np.diff(annotations.item_pointers)[order]) <= MOST_LABELS
            part = annotations.take_items(np.sort(order[within]))
        if round(HIDDEN * part.n_pairs) < FEWEST_HIDDEN:
            return np.full((2, 3), 1 / 3)
        parts = [self._foreseen(*part.split_labels(HIDDEN, self.seed + i)) for i in range(2)]
        chances = np.concatenate(parts, axis=2)
        favoured = np.array([FLATTERED * chances.shape[2], 0.0, 0.0])
        return np.stack([best_weights(one, favoured) for one in chances])

    def _foreseen(self, kept: Annotations, hidden: Annotations) -> Array:
        """(2, 3, hidden): what short fits to the kept labels give the hidden ones, as items and as pairs."""
        names = (*CLUSTER_SETTINGS, "weight_by", "item_kinds", "adjust", "seed", "n_jobs")
        shared = {name: getattr(self, name) for name in names}
        n_chains, n_sweeps = min(self.n_chains, 2), min(self.n_sweeps or SHORT, SHORT)
        short = HPGM(n_chains=n_chains, n_sweeps=n_sweeps, **shared)
        models: list[Model] = [one.fit(kept) for one in (short, *self._graders())]
        logs = [[model.log_chances(hidden, annotators=pairs) for model in models] for pairs in (False, True)]
        return np.exp(logs)

    def _pooled(self, which: int, *tables: Array) -> Array:
        return np.asarray(np.tensordot(self.pool_[which], np.stack(tables), axes=1))

    def _pool_items(self, chosen: Any) -> None:
        """Answers and draws about some items, HPGM's until now, become the pool's (draws in place)."""
        graded = [one.label_distributions_ for one in self.graded_]
        answers = self._pooled(0, self.label_distributions_, *graded)
        self.label_distributions_ = np.where(chosen[:, None], answers, self.label_distributions_)
        self.share_draws_ = self.share_draws_.copy()
        populations = [one.population_.astype(np.float32) for one in self.graded_]
        up_to = [np.cumsum(one.places_, axis=1) for one in self.graded_]
        rng = np.random.default_rng([self.seed, 1 << 25])
        for share in self.share_draws_:
            whose = np.searchsorted(np.cumsum(self.pool_[0]), rng.random(len(share)))  # 0: HPGM's
            for which, (population, places) in enumerate(zip(populations, up_to, strict=True), 1):
                taken = chosen & (whose == which)
                at = (places[taken] < (rng.random(taken.sum()) * places[taken, -1])[:, None]).sum(axis=1)
                share[taken] = population[np.minimum(at, len(population) - 1)]

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        graded = [one._pair_distributions(item, annotator) for one in self.graded_]
        return self._pooled(1, super()._pair_distributions(item, annotator), *graded)

    def annotator_frame(self, interval: float = 0.9) -> dict[str, Any]:
        """HPGM's columns about annotators, and leniency, slope and guesses on the scale."""
        return super().annotator_frame(interval) | self.graded_[0].annotator_frame()

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        super()._apply(new, fitted, engine)
        clear, sides = (one.apply(new) for one in fitted.graded_)
        self.graded_ = clear, sides
        item = fitted.item_vocabulary_.codes(new.item_vocabulary)
        annotator = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        fresh = (item[new.item] < 0) | (annotator[new.annotator] < 0)
        told = np.bincount(new.item[fresh], minlength=new.n_items) > 0
        # an item of the fit of which nothing new is known keeps its answer
        self._pool_items((item < 0) | told)

    # ---- keeping it -----------------------------------------------------------------------------------

    def _state(self) -> tuple[Header, Arrays]:
        facts, arrays = super()._state()
        for number, one in enumerate(self.graded_):
            arrays |= {f"graded{number}.{name}": getattr(one, name) for name in self._graded_arrays}
        return facts, arrays

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        super()._restore(facts, arrays)
        self.graded_ = self._graders()
        for number, one in enumerate(self.graded_):
            for name in self._graded_arrays:
                setattr(one, name, arrays[f"graded{number}.{name}"])
            for name in (*(f"{what}_vocabulary_" for what in VOCABULARIES), *SHARED):
                setattr(one, name, getattr(self, name))


def best_weights(chances: Array, favoured: Array) -> Array:
    """(models,): the w that maximises Σ_e log Σ_j w_j P_je + Σ_j h_j log w_j, by EM; ``chances`` is P."""
    w = np.full(len(chances), 1 / len(chances))
    for _ in range(200):
        part = w[:, None] * chances
        part = part / np.maximum(part.sum(axis=0), 1e-300)
        w = (part.sum(axis=1) + favoured) / (chances.shape[1] + favoured.sum())
    return np.asarray(w)
