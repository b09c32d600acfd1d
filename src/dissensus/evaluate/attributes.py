"""Shares of the disagreement about items that attributes of the annotators explain, from raw labels alone.

Annotators i and j have the same value v of the attribute, annotator k the value v′, and all three labelled
item m. The mean over such triples, and then over items, of

    [i and j agree] − [i and k agree]

is C_vv′. With q_v the share of annotators with value v, and D_vv′ the probability that annotators with these
values disagree about an item (their mean over pairs, and then over items),

    S = Σ_vv′ q_v q_v′ C_vv′ = mean over items of Σ_c Var_v P(answer c | value v),
    explained = S / Σ_vv′ q_v q_v′ D_vv′.

All items count alike. S has no bias if the items with such triples are like the others: it is negative about
as often as positive if the attribute has no effect. Intervals are those of a jackknife over annotators and
over items (Cameron, Gelbach and Miller 2011): V = V_annotators + V_items − V_labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dissensus.evaluate.group_agreement import Votes
from dissensus.labels import as_annotations
from dissensus.labels.attributes import attribute_codes, attributes_of
from dissensus.labels.display import TableResult
from dissensus.numerics import Array, Indices

CELLS_PER_CHUNK = 1 << 22  # pairs of values of the labels in a chunk
MAX_CELLS = 20_000_000  # pairs of values, and answers by value, of the items examined


@dataclass(frozen=True, repr=False)
class AttributeEffects(TableResult):
    """Shares of the disagreement about items that attributes of the annotators explain.

    Attributes
    ----------
    column
        Name of each attribute: a column of the annotator table.
    n_values
        Number of its values that at least ten annotators have, or of ranges of a number.
    n_annotators
        Number of annotators with one of these values.
    explained
        Share of the disagreement about an item that the attribute explains; about 0, and negative about as
        often as positive, if it has no effect. NaN if no item has labels by annotators with different values.
    low
        Lower end of its interval.
    high
        Upper end of its interval.
    frame_kind
        Kind of data frame returned.
    """

    column: NDArray[Any]
    n_values: Indices
    n_annotators: Indices
    explained: Array
    low: Array
    high: Array
    frame_kind: str = "pandas"

    def columns(self) -> dict[str, Any]:
        """Return the columns of the table."""
        names = ("column", "n_values", "n_annotators", "explained", "low", "high")
        return {name: getattr(self, name) for name in names}

    def __len__(self) -> int:
        return len(self.column)


def annotator_attributes(
    labels: Any, annotators: Any = None, *, columns: Sequence[str] | None = None, interval: float = 0.9
) -> AttributeEffects:
    """Measure how much of the disagreement about items each attribute of the annotators explains.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    annotators
        Data frame with one row per annotator: the id, and a column for each attribute. None: the annotator
        table of ``labels``.
    columns
        Columns of the annotator table; None: all.
    interval
        Level of the intervals.
    """
    annotations = as_annotations(labels)
    if annotators is not None:
        annotations = annotations.with_tables(annotators=annotators)
    attributes = attributes_of(annotations, columns)
    codes, votes = attribute_codes(annotations, attributes), Votes.of(annotations)
    sizes = [len(attribute.values) for attribute in attributes]
    rows = [explained_share(votes, code, size, interval) for code, size in zip(codes.T, sizes, strict=True)]
    explained, low, high = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    names = np.array([attribute.column for attribute in attributes], dtype=object)
    n_annotators, kind = (codes >= 0).sum(axis=0), annotations.frame_kind
    return AttributeEffects(names, np.array(sizes), n_annotators, explained, low, high, kind)


# ---- how much an attribute explains -------------------------------------------------------------------


def explained_share(
    votes: Votes, value: NDArray[np.intp], n_values: int, interval: float
) -> tuple[float, float, float]:
    """Return the share of the disagreement that ``value`` (annotators,) explains, with its interval.

    Of very many labels, a random part of the items is examined.
    """
    rows = np.flatnonzero(value[votes.annotator] >= 0)
    n_items = MAX_CELLS // (n_values * max(n_values, votes.sizes[2]) or 1)
    if n_items < votes.sizes[0]:
        chosen = np.random.default_rng(0).permutation(votes.sizes[0]) < n_items
        rows = rows[chosen[votes.item[rows]]]
    if n_values < 2 or not len(rows):
        return np.nan, np.nan, np.nan
    item = np.unique(votes.item[rows], return_inverse=True)[1]
    annotator = np.unique(votes.annotator[rows], return_inverse=True)[1]
    triples = Triples.of(item, votes.answer[rows].toarray(), value[votes.annotator[rows]], n_values)
    q = np.bincount(value[value >= 0], minlength=n_values) / (value >= 0).sum()
    total = triples.means.sum(axis=0)
    by_item, by_annotator = total - triples.means, np.tile(total, (int(annotator.max()) + 1, 1))
    without_label = []
    for labels, dropped in triples.without_each_label():
        without_label.append(share_of(total - dropped, q))
        np.subtract.at(by_annotator, annotator[labels], dropped)
    # V = V_annotators + V_items − V_labels
    parts = share_of(by_annotator, q), share_of(by_item, q), np.concatenate(without_label)
    variance = [(len(part) - 1) * float(part.var()) for part in parts]
    error = np.sqrt(variance[1] + max(variance[0] - variance[2], 0.0))
    share = float(share_of(total, q))
    reach = stdtrit(len(by_annotator) - 1, (1 + interval) / 2) * error
    return (share, share - reach, share + reach) if np.isfinite(reach) else (np.nan, np.nan, np.nan)


def share_of(sums: Array, q: Array) -> Array:
    """Return S / Σ q_v q_v′ D_vv′ from sums (…, 4 V²) of :class:`Triples`; NaN without triples."""
    contrast, n_contrast, disagreement, n_disagreement = np.split(sums, 4, axis=-1)
    qq = np.outer(q, q)

    def mean(total: Array, n: Array, weights: Array) -> Array:
        """Return Σ w C / Σ w over the pairs of values that meet."""
        weights = weights.ravel() * (n > 0.5)
        each = np.divide(total, n, out=np.zeros(total.shape), where=n > 0.5)
        return np.asarray((weights * each).sum(axis=-1) / weights.sum(axis=-1))

    with np.errstate(invalid="ignore", divide="ignore"):
        # Σ_{v ≠ v′} q_v q_v′ = 1 − Σ q²; pairs of values that do not meet are left out
        S = (1 - (q**2).sum()) * mean(contrast, n_contrast, qq * ~np.eye(len(q), dtype=bool))
        return np.asarray(S / mean(disagreement, n_disagreement, qq))


@dataclass(frozen=True)
class Triples:
    """Means over triples of annotators of an item: i and j with the same value, k with another.

    Columns of ``means`` (items, 4 V²), for every v and v′: the mean of [i and j agree] − [i and k agree], and
    1 if there are such triples; the mean disagreement of pairs, and 1 if there are such pairs. Means of an
    item without triples or pairs are 0.
    """

    item: Indices  # (labels,)
    answer: Array  # (labels, P)
    value: Indices  # (labels,)
    answers: Array  # (items, V, P): Σ of answers by value
    n: Array  # (items, V): annotators by value
    within: Array  # (items, V): agreement of ordered pairs with the same value
    cross: Array  # (items, V, V): agreement of pairs with values v and v′
    means: Array

    @classmethod
    def of(cls, item: Indices, answer: Array, value: Indices, V: int) -> Triples:
        """Sum over the labels of every item."""
        M, P = int(item.max()) + 1, answer.shape[1]
        answers, n, alone = np.zeros((M, V, P)), np.zeros((M, V)), np.zeros((M, V))
        np.add.at(answers, (item, value), answer)
        np.add.at(n, (item, value), 1.0)
        np.add.at(alone, (item, value), (answer**2).sum(axis=1))
        within = (answers**2).sum(axis=2) - alone
        cross = np.einsum("mvp,mup->mvu", answers, answers)
        return cls(item, answer, value, answers, n, within, cross, _means(n, within, cross))

    def without_each_label(self) -> Iterator[tuple[slice, Array]]:
        """Yield slices of the labels, and for each label what leaves ``means`` of its item without it."""
        V = self.n.shape[1]
        step = max(1, CELLS_PER_CHUNK // V**2)
        for start in range(0, len(self.item), step):
            labels = slice(start, start + step)
            m, v, s = self.item[labels], self.value[labels], self.answer[labels]
            rows, n, within, cross = np.arange(len(m)), self.n[m], self.within[m], self.cross[m]
            agree = np.einsum("ep,eup->eu", s, self.answers[m])  # with annotators of every value
            n[rows, v] -= 1
            within[rows, v] -= 2 * (agree[rows, v] - (s**2).sum(axis=1))  # pairs in both orders
            cross[rows, v] -= agree
            cross[rows, :, v] -= agree
            yield labels, self.means[m] - _means(n, within, cross)


def _means(n: Array, within: Array, cross: Array) -> Array:
    """Return the columns of ``Triples.means``."""
    V, same = n.shape[1], np.eye(n.shape[1], dtype=bool)
    pairs = n * (n - 1)
    # mean [i, j agree] = within_v / n_v (n_v − 1);  mean [i, k agree] = cross_vu / n_v n_u
    inside = np.divide(within, pairs, out=np.zeros(n.shape), where=pairs > 0.5)
    both = n[:, :, None] * n[:, None]
    across = np.divide(cross, both, out=np.zeros(cross.shape), where=both > 0.5)
    has_triples = (pairs > 0.5)[:, :, None] & (n > 0.5)[:, None] & ~same
    contrast = np.where(has_triples, inside[:, :, None] - across, 0.0)
    has_pairs = np.where(same, (pairs > 0.5)[:, :, None], both > 0.5)
    disagreement = np.where(has_pairs, 1 - np.where(same, inside[:, :, None], across), 0.0)
    parts = (contrast, has_triples, disagreement, has_pairs)
    return np.concatenate([part.reshape(len(n), V * V).astype(float) for part in parts], axis=1)
