"""Label sets: the share of the population whose answer contains each class, and the shares of whole sets.

Two models of the sets given to item m are pooled:

* *class by class*: k_mc of the item's n_m answers contain class c, independently of other classes, with a
  Beta prior for each class (mean p̄_c, size s_c): P(c ∈ answer) = (k_mc + s_c p̄_c) / (n_m + s_c), and
  P(answer) is the product over classes;
* *whole sets*: items fall into clusters, and each cluster has a distribution over the sets that occur
  (``FMM``), so that dependence between classes is learned.

    P(answer | item) = (1 − w) Π_c P(c in or out) + w P_sets(answer),

with w learned from hidden answers. Where classes depend on each other w is large; w = 0 is independence.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from dissensus.engine import Engine, current, using
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import membership
from dissensus.models.base import Model
from dissensus.models.fmm import FMM
from dissensus.models.results import ITEMS_PER_BATCH, ColumnBatches
from dissensus.numerics import Array, batches, normalised, row_shares
from dissensus.params import N_JOBS, SEED, fitted, flag, integer, setting

PRIOR_SIZES = np.geomspace(0.2, 100, 40)
SETS_HIDDEN_SHARE, MIN_HIDDEN_SETS = 0.2, 20  # share of the pairs hidden to learn w, and its minimum


def best_prior_size(inside: NDArray[np.int64], n: NDArray[np.int64], mean: float) -> float:
    """Return the s that makes ``inside`` out of ``n`` most likely under a Beta(s p̄, s (1 − p̄)) prior."""

    def log_likelihood(s: float) -> float:
        a, b = s * mean, s * (1 - mean)
        return float((betaln(a + inside, b + (n - inside)) - betaln(a, b)).sum())

    return float(max(PRIOR_SIZES, key=log_likelihood))


def best_weights(probabilities: Array, prior: Array) -> Array:
    """Return (models,) the w that maximises Σ_e log Σ_j w_j P_je + Σ_j h_j log w_j, by EM; ``prior`` is h."""
    w = np.full(len(probabilities), 1 / len(probabilities))
    for _ in range(200):
        part = w[:, None] * probabilities
        part = part / np.maximum(part.sum(axis=0), 1e-300)
        w = (part.sum(axis=1) + prior) / (probabilities.shape[1] + prior.sum())
    return np.asarray(w)


class LabelSets(Model):
    """Answers that are sets of classes: the population share of each class, and of each set."""

    n_item_clusters: int = setting(16, integer(1), "Number of item clusters of the model of whole sets.")
    _: KW_ONLY
    dependence: bool = flag(True, "Whether dependence between classes is learned; False ignores it.")
    seed: int = setting(0, *SEED)
    n_jobs: int = setting(-1, *N_JOBS)

    answers_are_classes = False
    _label_types = ("multi",)
    intervals_are = "none"

    class_shares_: Array = fitted("(M, C): P(class ∈ answer)")
    means_: Array = fitted("(C,): p̄")
    prior_sizes_: Array = fitted("(C,): s")
    pool_: Array = fitted("(1,): w")
    clusters_: Array = fitted("(M, sets): P_sets, by FMM")

    @property
    def members_(self) -> list[str]:
        """Classes that the sets consist of."""
        return membership(self.class_vocabulary_)[1]

    def _fit(self, annotations: Annotations, engine: Engine) -> None:
        table, _ = membership(annotations.class_vocabulary)
        inside, n = annotations.counts @ table, annotations.counts.sum(axis=1)
        self.means_ = np.clip(inside.sum(axis=0) / n.sum(), 1e-6, 1 - 1e-6)
        by_class = zip(inside.T, self.means_, strict=True)
        self.prior_sizes_ = np.array([best_prior_size(k, n, mean) for k, mean in by_class])
        self.pool_, self.clusters_ = np.zeros(1), np.zeros((annotations.n_items, len(table)))
        if self.dependence:
            with using(current().share(1)):
                self.pool_ = np.array([self._learn_pool(annotations)])
                self.clusters_ = self._mixture().fit(annotations).label_distributions_
        self._compute_answers(inside, n, table)

    def _mixture(self) -> FMM:
        return FMM(self.n_item_clusters, seed=self.seed, n_jobs=self.n_jobs)

    def _learn_pool(self, annotations: Annotations) -> float:
        """Return w, learned from hidden answers."""
        if round(SETS_HIDDEN_SHARE * annotations.n_pairs) < MIN_HIDDEN_SETS:
            return 0.5
        visible, hidden = annotations.split_labels(SETS_HIDDEN_SHARE, self.seed)
        models = LabelSets(dependence=False).fit(visible), self._mixture().fit(visible)
        probabilities = [model.label_distributions_[hidden.item, hidden.label] for model in models]
        return float(best_weights(np.stack(probabilities), np.ones(2))[1])

    def _compute_answers(self, inside: NDArray[Any], n: NDArray[Any], table: NDArray[np.bool_]) -> None:
        """Compute P(answer | item) over the sets that occur; other sets are left out.

        ``inside`` (M, C) of the ``n`` (M,) answers contain each class.
        """
        # P(c ∈ answer) = (k_mc + s_c p̄_c) / (n_m + s_c)
        separate = (inside + self.prior_sizes_ * self.means_) / (n[:, None] + self.prior_sizes_)
        shares = np.clip(separate, 1e-9, 1 - 1e-9)
        # log Π_c P(c in or out) = Σ_c∈A log p_c + Σ_c∉A log(1 − p_c)
        product = np.exp(np.log(shares) @ table.T + np.log1p(-shares) @ ~table.T)
        w = float(self.pool_[0])
        self.label_distributions_ = (1 - w) * product + w * self.clusters_
        self.class_shares_ = (1 - w) * separate + w * (self.clusters_ @ table)
        overall = np.exp(np.log(self.means_) @ table.T + np.log1p(-self.means_) @ ~table.T)
        self.prior_distribution_ = normalised(overall)

    def label_batches(self, interval: float | None = None, size: int = ITEMS_PER_BATCH) -> ColumnBatches:
        """Yield the columns item, label (a JSON list), p_<class> for every class, and n_labels."""
        ids, names, labels = self.item_vocabulary_.arrow, self.members_, self.predict()
        for rows in batches(max(len(ids), 1), size):
            shares = {f"p_{name}": self.class_shares_[rows, c] for c, name in enumerate(names)}
            yield {"item": ids[rows], "label": labels[rows], **shares, "n_labels": self.n_labels_[rows]}

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Answer items class by class from their sets, shrunk towards the means of the fit."""
        table, _ = membership(self.class_vocabulary_)
        self.pool_, self.clusters_ = np.zeros(1), np.zeros((new.n_items, len(table)))
        self._compute_answers(new.counts @ table, new.counts.sum(axis=1), table)
        self.label_distributions_ = row_shares(self.label_distributions_)
