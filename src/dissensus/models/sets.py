"""Sets of classes: how much of the population puts each class into its answer, and which sets it gives.

Two accounts of the sets that annotators gave to item m are pooled:

* *class by class*: k_mc of the item's n_m answers have class c, each class apart, with a Beta prior of its
  own (mean p̄_c, worth s_c answers): P(c ∈ answer) = (k_mc + s_c p̄_c) / (n_m + s_c), and P(answer) is the
  product over classes;
* *whole sets*: items fall into clusters, and each cluster has a distribution over the sets that occur
  (``FMM``): classes that go together, or never do, are then known to.

    P(answer | item) = (1 − w) Π_c P(c in or out) + w P_sets(answer),

w learned from hidden answers. Where classes depend on each other w is large; w = 0 is independence.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from dissensus.models.ordinal import best_weights
from dissensus.models.results import PIECE
from dissensus.numerics import Array, batches, normalised, row_shares
from dissensus.params import N_JOBS, SEED, fitted, flag, integer, setting

WORTHS = np.geomspace(0.2, 100, 40)
HIDDEN, FEWEST_HIDDEN = 0.2, 20


def best_worth(inside: NDArray[np.int64], n: NDArray[np.int64], mean: float) -> float:
    """The s that makes counts inside out of n most likely under Beta(s p̄, s (1 − p̄))."""

    def fit(s: float) -> float:
        a, b = s * mean, s * (1 - mean)
        return float((betaln(a + inside, b + (n - inside)) - betaln(a, b)).sum())

    return float(max(WORTHS, key=fit))


class LabelSets(Model):
    """Answers that are sets: the share of the population whose answer has each class, and of each set."""

    n_item_clusters: int = setting(16, integer(1), "The most clusters of items of the model behind it.")
    _: KW_ONLY
    dependence: bool = flag(
        True, "False takes every class by itself; True also learns which classes go together."
    )
    seed: int = setting(0, *SEED)
    n_jobs: int = setting(-1, *N_JOBS)

    answers_are_classes = False
    _label_types = ("multi",)
    intervals_are = "none"

    class_shares_: Array = fitted("(M, C): P(class in the answer)")
    means_: Array = fitted("(C,): p̄")
    worths_: Array = fitted("(C,): s")
    pool_: Array = fitted("(1,): w")
    clusters_: Array = fitted("(M, sets): what FMM says")

    @property
    def members_(self) -> list[str]:
        """The classes that sets are made of."""
        return membership(self.class_vocabulary_)[1]

    def _fit(self, annotations: Annotations, engine: Engine) -> None:
        table, _ = membership(annotations.class_vocabulary)
        # each class's share in every item's answers, shrunk to the crowd's
        inside, n = annotations.counts @ table, annotations.counts.sum(axis=1)
        self.means_ = np.clip(inside.sum(axis=0) / n.sum(), 1e-6, 1 - 1e-6)
        self.worths_ = np.array([best_worth(inside[:, c], n, mean) for c, mean in enumerate(self.means_)])
        self.pool_, self.clusters_ = np.zeros(1), np.zeros((annotations.n_items, len(table)))
        if self.dependence:
            with using(current().share(1)):
                self.pool_ = np.array([self._learned_pool(annotations)])
                self.clusters_ = self._mixture().fit(annotations).label_distributions_
        self._answer(inside, n, table)

    def _mixture(self) -> FMM:
        return FMM(self.n_item_clusters, seed=self.seed, n_jobs=self.n_jobs)

    def _learned_pool(self, annotations: Annotations) -> float:
        """w, from answers that neither account has seen."""
        if round(HIDDEN * annotations.n_pairs) < FEWEST_HIDDEN:
            return 0.5
        kept, hidden = annotations.split_labels(HIDDEN, self.seed)
        apart = LabelSets(dependence=False).fit(kept)
        whole = self._mixture().fit(kept).label_distributions_[hidden.item, hidden.label]
        chances = np.stack([apart.label_distributions_[hidden.item, hidden.label], whole])
        return float(best_weights(chances, np.ones(2))[1])

    def _answer(self, inside: NDArray[np.int64], n: NDArray[np.int64], table: NDArray[np.bool_]) -> None:
        """P(answer | item) for the sets that occur; what other sets have is left out of it.

        ``inside`` (M, C) of the items' ``n`` (M,) answers have each class.
        """
        # P(c ∈ answer) = (k_mc + s_c p̄_c) / (n_m + s_c)
        apart = (inside + self.worths_ * self.means_) / (n[:, None] + self.worths_)
        shares = np.clip(apart, 1e-9, 1 - 1e-9)
        # log Π_c P(c in or out) = Σ_c∈A log p_c + Σ_c∉A log(1 − p_c)
        product = np.exp(np.log(shares) @ table.T + np.log1p(-shares) @ ~table.T)
        w = float(self.pool_[0])
        self.label_distributions_ = (1 - w) * product + w * self.clusters_
        self.class_shares_ = (1 - w) * apart + w * (self.clusters_ @ table)
        crowd = np.exp(np.log(self.means_) @ table.T + np.log1p(-self.means_) @ ~table.T)
        self.prior_distribution_ = normalised(crowd)

    def label_pieces(self, interval: float | None = None, size: int = PIECE) -> Iterator[dict[str, Any]]:
        """Item, label (a JSON list), p_<class> for every class, n_labels."""
        ids, names, labels = self.item_vocabulary_.arrow, self.members_, self.predict()
        for rows in batches(max(len(ids), 1), size):
            chances = {f"p_{name}": self.class_shares_[rows, c] for c, name in enumerate(names)}
            yield {"item": ids[rows], "label": labels[rows], **chances, "n_labels": self.n_labels_[rows]}

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Items are answered from their own sets, shrunk to what the crowd of the fit gives."""
        table, _ = membership(self.class_vocabulary_)
        self.pool_, self.clusters_ = np.zeros(1), np.zeros((new.n_items, len(table)))
        self._answer(new.counts @ table, new.counts.sum(axis=1), table)
        self.label_distributions_ = row_shares(self.label_distributions_)
