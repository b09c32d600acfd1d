"""Results of a fitted model: labels, distributions, intervals and clusters, as arrays and data frames.

Data frames are of the kind that was read, with the names of the columns that were read. The functions whose
first argument is ``self`` are methods of :class:`~dissensus.models.base.Model`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import bad_parameter, require
from dissensus.labels.display import make_frame
from dissensus.labels.vocabulary import numbers_of
from dissensus.numerics import Array, batches
from dissensus.params import real
from dissensus.tables.results import label_columns, scale_columns

if TYPE_CHECKING:
    from dissensus.models.base import Model

ColumnBatches = Iterator[dict[str, Any]]  # columns of a data frame, by name, for some of the rows at a time
ITEMS_PER_BATCH = 1 << 16
CELLS_PER_BATCH = 1 << 21  # a cell is an item and a class


# ---- intervals ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Intervals:
    """Uncertainty of a model's estimates, per item."""

    low: Array  # (M, P): credible interval of each class's share
    high: Array
    p_top: Array  # (M,): P(the label is the population's most common answer)
    effective_labels: Array  # (M,): number of labels from the population with as much information


def intervals(self: Model, interval: float = 0.9, items: slice = slice(None)) -> Intervals | None:
    """Return credible intervals of the items' shares; None for a model without intervals.

    They are approximate: the population's distribution for item m is taken to be a Dirichlet around the
    estimate, with as many pseudo-counts as the item has labels plus ``prior_strength_``. Sampled models
    compute intervals from their draws instead.

    Parameters
    ----------
    interval
        Size of the credible interval, 0.9 for 90 %.
    items
        Slice of the items.
    """
    from scipy.special import betainc, betaincinv

    self._check_fitted()
    if self.intervals_are == "none":
        return None
    answers = self.label_distributions_[items]
    mean = np.clip(answers, 1e-9, 1 - 1e-9)
    n_effective = (self.n_labels_[items] + self.prior_strength_).astype(np.float64)
    # Y_m ~ Dir(n_m mean_m) with n_m effective labels, so Y_mp ~ Beta(n mean, n (1 − mean))
    above, below = n_effective[:, None] * mean, n_effective[:, None] * (1 - mean)
    low, high = (betaincinv(above, below, (1 + side * interval) / 2) for side in (-1, 1))
    # P(first > second) in a Dirichlet: first / (first + second) is a Beta
    first, second = np.sort(mean, axis=1)[:, [-1, -2 if mean.shape[1] > 1 else -1]].T * n_effective
    p_top = 1 - betainc(first, second, 0.5) if mean.shape[1] > 1 else np.ones(len(mean))
    return Intervals(np.minimum(low, answers), np.maximum(high, answers), p_top, n_effective)


def most_probable(distributions: Array, label_type: str) -> NDArray[np.intp]:
    """Return the most probable class of each row; of ties the first, or on a scale the most central."""
    if label_type != "ordinal":
        return np.asarray(distributions.argmax(axis=1))
    P = distributions.shape[1]
    tied = distributions >= distributions.max(axis=1, keepdims=True) * (1 - 1e-9)
    median = (np.cumsum(distributions, axis=1) < 0.5 - 1e-12).sum(axis=1, keepdims=True)
    return np.asarray(np.where(tied, np.abs(np.arange(P) - median), P + 1).argmin(axis=1))


# ---- clusters --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClusterView:
    """Clusters of a fitted model, as returned by ``Model.cluster_view``.

    An item belongs to item cluster k with probability w_mk, an annotator to annotator cluster l with
    probability z_nl, and Θ_kl is the distribution of labels by cluster l for cluster k. A mixture over items
    has a single annotator cluster; in models with a true class, the item clusters are the true classes.
    """

    items: Array  # (M, K): w
    annotators: Array | None  # (N, L): z; None: annotators are not clustered
    theta: Array  # (K, L, P): Θ
    psi: Array  # (K,): shares of the item clusters
    omega: Array  # (L,): shares of the annotator clusters
    weights: Array  # (L,): π, weights of the annotator clusters in the population
    population: Array  # (K, P): Y', the population's distribution for each item cluster
    true_classes: bool = False  # the item clusters are the true classes, in class order
    matrices: Array | None = None  # (N, K, P): confusion matrices of the annotators, if any
    annotator_weights: Array | None = None  # (N,): weights of the annotators in the population


# ---- frames ------------------------------------------------------------------------------------------


def to_frame(self: Model, interval: float | None = None) -> Any:
    """Return a data frame with a row per item: item, label, ``p_<class>``, entropy (nats), n_labels.

    Models with intervals add ``low_<class>`` and ``high_<class>`` (credible intervals of shares), ``p_top``
    (probability that the label is the most common answer) and ``effective_labels`` (number of labels drawn
    from the population that would carry as much information).

    Parameters
    ----------
    interval
        Size of the credible intervals; None is 0.9.
    """
    self._check_fitted()
    rule = real(0.0, 1.0, open_low=True)
    if interval is not None and not rule.holds(interval):
        raise bad_parameter("to_frame", "interval", rule.words, interval)
    columns = next(self.label_batches(interval, size=max(len(self.n_labels_), 1)))
    return make_frame(columns | {"item": self.items_}, self.frame_kind_)


def label_batches(self: Model, interval: float | None = None, size: int = 0) -> Iterator[dict[str, Any]]:
    """Yield the columns of refined labels, a batch of items at a time; ids are Arrow arrays.

    Parameters
    ----------
    interval
        Size of the credible intervals; None is 0.9.
    size
        Number of items per batch; 0 chooses one that limits memory.
    """
    ids = self.item_vocabulary_.arrow
    step = size or min(ITEMS_PER_BATCH, max(CELLS_PER_BATCH // len(self.class_vocabulary_), 1))
    for rows in batches(max(len(ids), 1), step):
        shares, classes = self.label_distributions_[rows], self.classes_
        labels = classes[most_probable(shares, self.label_type_)]
        bounds = self.intervals(interval or 0.9, rows)
        columns = label_columns(ids[rows], labels, classes, shares, self.n_labels_[rows], bounds)
        if self.label_type_ == "ordinal":
            numbers = numbers_of(self.class_vocabulary_.arrow)
            ranks = np.arange(1.0, len(classes) + 1)
            columns |= scale_columns(classes, ranks if numbers is None else numbers, shares)
        yield columns


def by_id(ids: dict[str, Any], values: Any, name: str, read: Mapping[str, str], kind: str) -> Any:
    """Return one value per id: a pandas Series, or another kind of data frame with an id column."""
    table = table_by_id(ids, {name: values}, read, kind)
    return table[name] if kind == "pandas" else table


def table_by_id(ids: dict[str, Any], columns: dict[Any, Any], read: Mapping[str, str], kind: str) -> Any:
    """Return columns indexed by id; data frames without an index get id columns and text as column names."""
    roles = [read.get(role, role) for role in ids]
    if kind == "pandas":
        pd = require("pandas", "pandas")
        if len(ids) == 1:
            index = pd.Index(*ids.values(), name=roles[0])
        else:
            index = pd.MultiIndex.from_arrays(list(ids.values()), names=roles)
        return pd.DataFrame(columns, index=index).rename_axis(columns=read.get("label", "label"))
    named = dict(zip(roles, ids.values(), strict=True))
    return make_frame(named | {str(name): column for name, column in columns.items()}, kind)
