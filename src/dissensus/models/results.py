"""What a fitted model says of its items: labels, distributions and intervals, as data frames of the kind that
came in, under the names of the user's own columns.

The functions whose first argument is ``self`` are methods of :class:`~dissensus.models.base.Model`.
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
from dissensus.tables.labels_file import label_columns, scale_columns

if TYPE_CHECKING:
    from dissensus.models.base import Model

PIECE = 1 << 16  # items whose refined labels are put together at a time,
PIECE_CELLS = 1 << 21  # and cells of theirs (one for each item and class)


# ---- intervals ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Intervals:
    """How sure a model is of its answers about the items."""

    low: Array  # (M, P): credible interval of each class's share
    high: Array
    sure: Array  # (M,): P(the label is the population's most common answer)
    worth: Array  # (M,): so many labels drawn from the whole population would tell as much about the item


def intervals(self: Model, interval: float = 0.9, items: slice = slice(None)) -> Intervals | None:
    """How sure it is of its answers about the items (or some of them); None where it makes no claim.

    A fitted distribution says nothing of its own error. Approximately, the population's answer about item
    m is a Dirichlet around it, worth the item's n_m labels and those that the crowd's shares are worth
    without them. A model with draws of its posterior reads its intervals off the draws instead.

    Parameters
    ----------
    interval
        Size of the credible interval, 0.9 for 90 %.
    items
        Which items, as a slice.
    """
    from scipy.special import betainc, betaincinv

    self._check_fitted()
    if self.intervals_are == "none":
        return None
    answers = self.label_distributions_[items]
    mean = np.clip(answers, 1e-9, 1 - 1e-9)
    worth = (self.n_labels_[items] + self.prior_worth_).astype(np.float64)
    # Y_m ~ Dir(worth_m mean_m), so Y_mp ~ Beta(worth mean, worth (1 − mean))
    above, below = worth[:, None] * mean, worth[:, None] * (1 - mean)
    low, high = (betaincinv(above, below, (1 + side * interval) / 2) for side in (-1, 1))
    # P(the first is larger than the second) in Dir(…): their share of each other is a Beta
    first, second = np.sort(mean, axis=1)[:, [-1, -2 if mean.shape[1] > 1 else -1]].T * worth
    sure = 1 - betainc(first, second, 0.5) if mean.shape[1] > 1 else np.ones(len(mean))
    return Intervals(np.minimum(low, answers), np.maximum(high, answers), sure, worth)


def most_probable(chances: Array, label_type: str) -> NDArray[np.intp]:
    """(items,): the class of the largest chance, the first of several.

    On an ordered scale, of several within rounding, the one nearest the median.
    """
    if label_type != "ordinal":
        return np.asarray(chances.argmax(axis=1))
    largest = chances >= chances.max(axis=1, keepdims=True) * (1 - 1e-9)
    median = (np.cumsum(chances, axis=1) < 0.5 - 1e-12).sum(axis=1, keepdims=True)
    off = np.abs(np.arange(chances.shape[1]) - median)
    return np.asarray(np.where(largest, off, chances.shape[1] + 1).argmin(axis=1))


# ---- clusters --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClusterView:
    """Clusters of a fitted model, as ``Model.cluster_view`` gives them.

    An item belongs to item cluster k with probability w_mk, an annotator to annotator cluster l with
    probability z_nl, and Θ_kl is how cluster l answers about cluster k. A mixture over items has one
    annotator cluster; where a model looks for true classes, they are the item clusters.
    """

    items: Array  # (M, K): w
    annotators: Array | None  # (N, L): z; None: annotators are not put into clusters
    theta: Array  # (K, L, P): Θ
    psi: Array  # (K,): shares of the item clusters
    omega: Array  # (L,): shares of the annotator clusters
    weights: Array  # (L,): π, what each annotator cluster counts in the population
    population: Array  # (K, P): Y', what the population answers about each item cluster
    true_classes: bool = False  # the item clusters are the model's true classes, in class order
    matrices: Array | None = None  # (N, K, P): how each annotator answers, where the model knows each
    annotator_weights: Array | None = None  # (N,): what each annotator counts in the population


# ---- frames ------------------------------------------------------------------------------------------


def to_frame(self: Model, interval: float | None = None) -> Any:
    """One row for each item: item, label, ``p_<class>`` for every class, entropy (nats), n_labels.

    Then ``low_<class>``, ``high_<class>`` (a credible interval of this size, 0.9 unless
    told otherwise, for each share), ``sure``
    (the probability that the label is the most common answer) and ``worth`` (so many labels of the
    population would tell as much); ``intervals_are`` says whether they are sampled or approximate.

    Parameters
    ----------
    interval
        Size of the credible intervals; None is 0.9.
    """
    self._check_fitted()
    rule = real(0.0, 1.0, open_low=True)
    if interval is not None and not rule.holds(interval):
        raise bad_parameter("to_frame", "interval", rule.words, interval)
    columns = next(self.label_pieces(interval, size=max(len(self.n_labels_), 1)))
    return make_frame(columns | {"item": self.items_}, self.frame_kind_)


def label_pieces(self: Model, interval: float | None = None, size: int = 0) -> Iterator[dict[str, Any]]:
    """The columns of refined labels, some items at a time; ids stay in Arrow's hands.

    Parameters
    ----------
    interval
        Size of the credible intervals; None is 0.9.
    size
        Items in a piece; 0: as many as keep a piece small.
    """
    ids = self.item_vocabulary_.arrow
    step = size or min(PIECE, max(PIECE_CELLS // len(self.class_vocabulary_), 1))
    for rows in batches(max(len(ids), 1), step):
        chances, classes = self.label_distributions_[rows], self.classes_
        labels = classes[most_probable(chances, self.label_type_)]
        known = self.intervals(interval or 0.9, rows)
        columns = label_columns(ids[rows], labels, classes, chances, self.n_labels_[rows], known)
        if self.label_type_ == "ordinal":
            numbers = numbers_of(self.class_vocabulary_.arrow)  # or their places, where they are no numbers
            values = np.arange(1.0, len(classes) + 1) if numbers is None else numbers
            columns |= scale_columns(classes, values, chances)
        yield columns


def by_id(ids: Mapping[str, Any], values: Any, name: str, read: Mapping[str, str], kind: str) -> Any:
    """One value for each id (by role): a pandas Series, or a frame with the id in a column."""
    table = table_by_id(ids, {name: values}, read, kind)
    return table[name] if kind == "pandas" else table


def table_by_id(
    ids: Mapping[str, Any], columns: Mapping[Any, Any], read: Mapping[str, str], kind: str
) -> Any:
    """Several columns for each id; where frames have no index, ids are columns and class names are text."""
    roles = [read.get(role, role) for role in ids]
    if kind == "pandas":
        pd = require("pandas", "pandas")
        if len(ids) == 1:
            index = pd.Index(*ids.values(), name=roles[0])
        else:
            index = pd.MultiIndex.from_arrays(list(ids.values()), names=roles)
        return pd.DataFrame(dict(columns), index=index).rename_axis(columns=read.get("label", "label"))
    named = dict(zip(roles, ids.values(), strict=True))
    return make_frame(named | {str(name): column for name, column in columns.items()}, kind)
