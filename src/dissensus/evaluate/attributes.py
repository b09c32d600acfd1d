"""Shares of the disagreement about items that attributes of the annotators explain, from raw labels alone.

Annotators i and j have the same value v of
the attribute, annotator k the value v′, and all three labelled item m. The mean over such triples of

    [i and j agree] − [i and k agree]

is C_vv′. With q_v the share of annotators with value v,

    S = Σ_vv′ q_v q_v′ C_vv′ = mean over items of Σ_c Var_v P(answer c | value v),
    explained = S / (1 − A),                        A: probability that two annotators agree on an item.

S has no bias: it is negative about as often as positive if the attribute has no effect. Intervals are those
of a jackknife over annotators and over items (Cameron, Gelbach and Miller 2011): V = V_annotators + V_items −
V_labels.
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

TRIPLES_PER_CHUNK = 1 << 24  # array elements of triples in a chunk of labels


@dataclass(frozen=True, repr=False)
class AttributeEffects(TableResult):
    """Shares of the disagreement about items that attributes of the annotators explain.

    Attributes
    ----------
    column
        Name of each attribute: a column of the annotator table.
    n_values
        Number of its values that at least ten annotators have.
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
    """Return the share of the disagreement that ``value`` (annotators,) explains, with its interval."""
    rows = np.flatnonzero(value[votes.annotator] >= 0)
    if n_values < 2 or not len(rows):
        return np.nan, np.nan, np.nan
    item, annotator = (
        np.unique(codes[rows], return_inverse=True)[1] for codes in (votes.item, votes.annotator)
    )
    triples = Triples.of(item, votes.answer[rows].toarray(), value[votes.annotator[rows]], n_values)
    q = np.bincount(value[value >= 0], minlength=n_values) / (value >= 0).sum()
    total = triples.sums.sum(axis=0)
    by_item, by_annotator = total - triples.sums, np.tile(total, (int(annotator.max()) + 1, 1))
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
    return share, share - reach, share + reach


def share_of(sums: Array, q: Array) -> Array:
    """Return S / (1 − A) from sums over items (…, 2 V² + 2) of :class:`Triples`; NaN without triples."""
    V = len(q)
    difference, triples = (sums[..., i * V * V : (i + 1) * V * V] for i in range(2))
    weights = np.outer(q, q).ravel() * (triples > 0.5)
    C = np.divide(difference, triples, out=np.zeros(difference.shape), where=triples > 0.5)
    # S = Σ q_v q_v′ C_vv′, where Σ_{v ≠ v′} q_v q_v′ = 1 − Σ q²; pairs of values without triples are left out
    with np.errstate(invalid="ignore", divide="ignore"):
        S = (1 - (q**2).sum()) * (weights * C).sum(axis=-1) / weights.sum(axis=-1)
        return np.asarray(S / (1 - sums[..., -2] / sums[..., -1]))


@dataclass(frozen=True)
class Triples:
    """Sums over triples of annotators of an item: i and j with the same value, k with another.

    Columns of ``sums`` (items, 2 V² + 2): for every v and v′ the sum of [i and j agree] − [i and k agree] and
    the number of triples; the sum of agreement over all ordered pairs, and the number of pairs.
    """

    item: Indices  # (labels,)
    answer: Array  # (labels, P)
    value: Indices  # (labels,)
    answers: Array  # (items, V, P): Σ of answers by value
    n: Array  # (items, V): annotators by value
    within: Array  # (items, V): agreement of ordered pairs with the same value
    cross: Array  # (items, V, V): agreement of pairs with values v and v′
    sums: Array

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
        # Σ [i, j agree] = n_u within_v;  Σ [i, k agree] = (n_v − 1) cross_vu
        difference = n[:, None] * within[:, :, None] - (n - 1)[:, :, None] * cross
        triples = (n * (n - 1))[:, :, None] * n[:, None]
        all_answers, all_n = answers.sum(axis=1), n.sum(axis=1)
        agreed = (all_answers**2).sum(axis=1) - alone.sum(axis=1)
        sums = _columns(difference, triples, agreed, all_n * (all_n - 1))
        return cls(item, answer, value, answers, n, within, cross, sums)

    def without_each_label(self) -> Iterator[tuple[slice, Array]]:
        """Yield slices of the labels, and for each label what leaves ``sums`` of its item without it."""
        V = self.n.shape[1]
        step = max(1, TRIPLES_PER_CHUNK // V**2)
        for start in range(0, len(self.item), step):
            labels = slice(start, start + step)
            m, v, s = self.item[labels], self.value[labels], self.answer[labels]
            rows, n, own_n = np.arange(len(m)), self.n[m], self.n[m, v][:, None]
            agree = np.einsum("ep,eup->eu", s, self.answers[m])  # with annotators of every value
            alone = (s**2).sum(axis=1)
            mine = (agree[rows, v] - alone)[:, None]  # with others of the same value
            difference, triples = np.zeros((2, len(m), V, V))
            # the label as j: another annotator with value v less; Δ within_v = 2 mine, Δ cross_vu = agree_u
            difference[rows, v] = 2 * n * mine - self.cross[m, v] - (own_n - 2) * agree
            triples[rows, v] = 2 * (own_n - 1) * n
            # the label as k
            difference[rows, :, v] += self.within[m] - (n - 1) * agree
            triples[rows, :, v] += n * (n - 1)
            agreed = 2 * (agree.sum(axis=1) - alone)
            yield labels, _columns(difference, triples, agreed, 2 * (n.sum(axis=1) - 1))


def _columns(difference: Array, triples: Array, agreed: Array, pairs: Array) -> Array:
    """Return the columns of ``Triples.sums``, without triples of one value."""
    size, V = len(agreed), difference.shape[1]
    other = ~np.eye(V, dtype=bool)
    parts = (difference * other).reshape(size, -1), (triples * other).reshape(size, -1)
    return np.concatenate([*parts, agreed[:, None], pairs[:, None]], axis=1)
