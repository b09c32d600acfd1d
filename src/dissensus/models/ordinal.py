"""Default for ordered scales: HPGM, which ignores the order of the classes, pooled with graded response.

HPGM learns the label distributions of item clusters, whatever the order of the classes. Graded response puts
each item on one scale, with a clarity, or with a side about which annotators disagree. Which of the three
predicts labels best differs between datasets; a pool of them is about as good as the best, or better:

    P(y | item) = w₀ P_HPGM(y | item) + w₁ P_clarity(y | item) + w₂ P_sides(y | item),

and likewise, with separate weights, for P(y | item, annotator). The weights are learned from hidden labels:
twice, a tenth of the pairs is hidden from short fits, and w maximises Σ log P + h log w₀, where h is a
hundredth of the hidden labels. Short fits to fewer labels favour the simpler models: without h their weights
would be too large.

Draws of the population's answer are HPGM's, each replaced with probability w₁ (or w₂) by the population's
answer at a grid point drawn from the item's posterior in graded response.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from dissensus.engine import Engine, current, using
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes
from dissensus.models import CLUSTER_SETTINGS
from dissensus.models.base import VOCABULARIES, Model
from dissensus.models.graded import GradedResponse
from dissensus.models.hpgm.adjustments import Aliases
from dissensus.models.hpgm.model import HPGM
from dissensus.models.scoring import unfitted_rows
from dissensus.numerics import Array
from dissensus.params import fitted
from dissensus.tables.arrays import Arrays, Header

POOL_HIDDEN_SHARE, MIN_POOL_LABELS = 0.1, 20  # share of pairs hidden to learn the weights, and its minimum
HPGM_PRIOR_SHARE = 0.01  # prior count of w₀, as a share of the hidden labels
MAX_POOL_LABELS = 30_000  # labels used to learn the weights
MAX_POOL_SWEEPS = 120  # sweeps of the short HPGM fits
COPIED_ATTRIBUTES = ("n_labels_", "prior_strength_", "label_type_", "frame_kind_", "stopped_", "trace_")


class OrdinalHPGM(HPGM):
    """HPGM pooled with graded response, for ordered classes; weights are learned from hidden labels."""

    _label_types = ("ordinal",)
    _graded_arrays = ("label_distributions_", "prior_distribution_", *GradedResponse._arrays)

    pool_: Array = fitted("(2, 3): weights of HPGM, graded response, and that with sides; items, pairs")
    graded_: list[GradedResponse] = fitted("graded response with clarity, and with sides", saved=False)

    def _new_graded_models(self) -> list[GradedResponse]:
        return [GradedResponse(sides=sides, weight_by=self.weight_by) for sides in (False, True)]

    def _fit(self, annotations: Annotations, engine: Engine, last: Any = (), features: Any = None) -> None:
        super()._fit(annotations, engine, last, features)
        aliases = Aliases.of(annotations, self.adjust)
        with using(current().share(1)):
            self.pool_ = self._learn_pool(aliases.annotations)
            self.graded_ = [model.fit(aliases.annotations) for model in self._new_graded_models()]
        for model in self.graded_:  # copy annotators to their aliases; the population is that of HPGM
            model.thresholds_and_slopes_ = model.thresholds_and_slopes_[aliases.code]
            model.guess_rates_ = model.guess_rates_[aliases.code]
            model.annotator_vocabulary_ = annotations.annotator_vocabulary
            model.annotator_weights_ = self.annotator_weights_
            model._update_answers()
        self._pool_items(np.ones(annotations.n_items, dtype=bool))
        self._floor_unanimous(annotations.counts)
        graded = [model.prior_distribution_ for model in self.graded_]
        self.prior_distribution_ = self._pooled(0, self.prior_distribution_, *graded)

    def _learn_pool(self, annotations: Annotations) -> Array:
        """Return (2, 3) weights for items and for pairs, learned from hidden labels."""
        part = annotations
        if annotations.n_labels > MAX_POOL_LABELS:  # a random subset of the items
            order = np.random.default_rng([self.seed, 1 << 26]).permutation(annotations.n_items)
            within = np.cumsum(np.diff(annotations.item_pointers)[order]) <= MAX_POOL_LABELS
            part = annotations.take_items(np.sort(order[within]))
        if round(POOL_HIDDEN_SHARE * part.n_pairs) < MIN_POOL_LABELS:
            return np.full((2, 3), 1 / 3)
        splits = [part.split_labels(POOL_HIDDEN_SHARE, self.seed + i) for i in range(2)]
        probabilities = np.concatenate([self._hidden_probabilities(*split) for split in splits], axis=2)
        prior = np.array([HPGM_PRIOR_SHARE * probabilities.shape[2], 0.0, 0.0])
        return np.stack([best_weights(by_model, prior) for by_model in probabilities])

    def _hidden_probabilities(self, visible: Annotations, hidden: Annotations) -> Array:
        """Return (2, 3, hidden) P(hidden label) under short fits to the visible ones: by item, by pair."""
        names = (*CLUSTER_SETTINGS, "weight_by", "item_kinds", "adjust", "seed", "n_jobs")
        settings = {name: getattr(self, name) for name in names}
        n_chains, n_sweeps = min(self.n_chains, 2), min(self.n_sweeps or MAX_POOL_SWEEPS, MAX_POOL_SWEEPS)
        short = HPGM(n_chains=n_chains, n_sweeps=n_sweeps, **settings)
        models: list[Model] = [model.fit(visible) for model in (short, *self._new_graded_models())]
        logs = [[model.log_probabilities(hidden, pairs) for model in models] for pairs in (False, True)]
        return np.exp(logs)

    def _pooled(self, row: int, *tables: Array) -> Array:
        return np.asarray(np.tensordot(self.pool_[row], np.stack(tables), axes=1))

    def _pool_items(self, chosen: Any) -> None:
        """Replace HPGM's answers and draws for the chosen items by those of the pool."""
        graded = [model.label_distributions_ for model in self.graded_]
        answers = self._pooled(0, self.label_distributions_, *graded)
        self.label_distributions_ = np.where(chosen[:, None], answers, self.label_distributions_)
        self.share_draws_ = self.share_draws_.copy()
        populations = [model.population_.astype(np.float32) for model in self.graded_]
        cumulative = [np.cumsum(model.item_posterior_, axis=1) for model in self.graded_]
        rng = np.random.default_rng([self.seed, 1 << 25])
        for share in self.share_draws_:
            source = np.searchsorted(np.cumsum(self.pool_[0]), rng.random(len(share)))  # 0: HPGM
            for number, (population, posterior) in enumerate(zip(populations, cumulative, strict=True), 1):
                rows = chosen & (source == number)
                u = rng.random(rows.sum()) * posterior[rows, -1]
                point = (posterior[rows] < u[:, None]).sum(axis=1)
                share[rows] = population[np.minimum(point, len(population) - 1)]

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        graded = [model._pair_distributions(item, annotator) for model in self.graded_]
        return self._pooled(1, super()._pair_distributions(item, annotator), *graded)

    def annotator_frame(self, interval: float = 0.9) -> dict[str, Any]:
        """Return HPGM's columns about annotators, with leniency, slope and guess rate."""
        return super().annotator_frame(interval) | self.graded_[0].annotator_frame()

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        super()._apply(new, fitted, engine)
        self.graded_ = [model.apply(new) for model in fitted.graded_]
        part, item, _ = unfitted_rows(new, fitted)
        # items of the fit without new labels keep their answers
        self._pool_items((item < 0) | (np.bincount(part.item, minlength=new.n_items) > 0))

    # ---- saving and loading ---------------------------------------------------------------------------

    def _state(self) -> tuple[Header, Arrays]:
        facts, arrays = super()._state()
        for number, model in enumerate(self.graded_):
            arrays |= {f"graded{number}.{name}": getattr(model, name) for name in self._graded_arrays}
        return facts, arrays

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        super()._restore(facts, arrays)
        self.graded_ = self._new_graded_models()
        for number, model in enumerate(self.graded_):
            for name in self._graded_arrays:
                setattr(model, name, arrays[f"graded{number}.{name}"])
            for name in (*(f"{kind}_vocabulary_" for kind in VOCABULARIES), *COPIED_ATTRIBUTES):
                setattr(model, name, getattr(self, name))


def best_weights(probabilities: Array, prior: Array) -> Array:
    """Return (models,) the w that maximises Σ_e log Σ_j w_j P_je + Σ_j h_j log w_j, by EM; ``prior`` is h."""
    w = np.full(len(probabilities), 1 / len(probabilities))
    for _ in range(200):
        part = w[:, None] * probabilities
        part = part / np.maximum(part.sum(axis=0), 1e-300)
        w = (part.sum(axis=1) + prior) / (probabilities.shape[1] + prior.sum())
    return np.asarray(w)
