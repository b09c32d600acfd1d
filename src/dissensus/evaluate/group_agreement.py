"""Agreement of a group of annotators with one another and with all others, from raw labels alone.

An annotator who labelled an item several times contributes these labels in equal shares. For item m, a_mc is
the number of annotators in the group who gave class c and o_mc the number of others; n_m = Σ_c a_mc and
r_m = Σ_c o_mc. A pair of annotators agrees on an item with the probability that their answers are equal:

    within  = Σ_m (Σ_c a_mc² − Σ_i Σ_c s_imc²) / Σ_m n_m (n_m − 1)         i: annotators in the group
    between = Σ_m Σ_c a_mc o_mc / Σ_m n_m r_m.

Annotators form a group, as far as labels show, if they agree with one another more than with the others. The
items are regarded as a sample, so standard errors are taken over items.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import stdtr

from dissensus.evaluate.bootstrap import Interval
from dissensus.labels.agreement import gather_pairs
from dissensus.numerics import Array

MIN_GAP, MIN_GAP_ITEMS = 0.1, 20  # below the usual agreement, and items, of annotators who differ
GAP_FALSE_SHARE = 0.1  # of the annotators named, at most this share by chance
Z_ONE_SIDED = 1.645  # standard errors of a one-sided test of 5 %
Z_OPPOSED = 3.0  # standard errors below chance, of annotators who oppose the others
Z = 1.96  # standard errors on either side of a 95 % interval
TIE_TOLERANCE = 1e-9  # differences up to this size count as ties
MAX_ERROR_ITEMS = 2_000  # items searched for shared errors
VOTE_CELLS_PER_CHUNK = 1 << 21  # entries of a dense table of answers


@dataclass(frozen=True)
class Votes:
    """Answer of each annotator to each item they labelled; repeated labels count in equal shares."""

    item: NDArray[np.intp]  # (pairs,)
    annotator: NDArray[np.intp]
    answer: Any  # (pairs, classes) sparse: shares, each row sums to 1
    sizes: tuple[int, int, int]  # items, annotators, classes

    @classmethod
    def of(cls, annotations: Any) -> Votes:
        """Collect the votes of labels by named annotators."""
        pairs = gather_pairs(annotations)
        total = np.asarray(pairs.counts.sum(axis=1)).ravel()
        answer = pairs.counts.multiply(1 / total[:, None]).tocsr()
        sizes = annotations.n_items, annotations.n_annotators, annotations.n_classes
        return cls(pairs.item, pairs.annotator, answer, sizes)

    @cached_property
    def table(self) -> Array:
        """Number of annotators by item and answer, (items, classes)."""
        return self.votes(np.ones(self.sizes[1], dtype=bool))

    def votes(self, inside: NDArray[np.bool_]) -> Array:
        """Count the annotators of a group by item and answer, (items, classes)."""
        M, P = self.sizes[0], self.sizes[2]
        entries = self.answer.tocoo()
        in_group = inside[self.annotator[entries.row]]
        cell = self.item[entries.row[in_group]] * P + entries.col[in_group]
        weights = entries.data[in_group].astype(np.float64)
        return np.asarray(np.bincount(cell, weights, minlength=M * P), np.float64).reshape(M, P)

    def on(self, items: NDArray[np.bool_]) -> Votes:
        """Select the votes on the marked items."""
        rows = np.flatnonzero(items[self.item])
        return Votes(self.item[rows], self.annotator[rows], self.answer[rows], self.sizes)

    def self_agreement(self, inside: NDArray[np.bool_]) -> Array:
        """Return Σ_i Σ_c s_imc² by item: the agreement of each group member with themselves."""
        squares = np.asarray(self.answer.multiply(self.answer).sum(axis=1)).ravel()
        sums = np.bincount(self.item, squares * inside[self.annotator], minlength=self.sizes[0])
        return np.asarray(sums, np.float64)


@dataclass(frozen=True)
class GroupComparison:
    """A group of annotators compared with all others by raw labels."""

    n_annotators: int
    within: float  # probability that two members agree on an item; NaN if no two share an item
    between: float  # probability that a member and an annotator outside the group agree
    gap: Interval  # within − between
    n_shared: int  # items labelled both by members and by others
    answers: Array  # (classes,): shares of the members' answers on the shared items
    others_answers: Array  # (classes,): shares of the others' answers, items weighted as for the members
    error: Array  # (classes,): standard error of answers − others_answers


def compare_group(votes: Votes, inside: NDArray[np.bool_]) -> GroupComparison:
    """Compare the marked annotators with all others."""
    group = votes.votes(inside)
    others = votes.table - group
    n, r = group.sum(axis=1), others.sum(axis=1)
    among = (group**2).sum(axis=1) - votes.self_agreement(inside), n * (n - 1)
    gap, within, between = _gap(among, ((group * others).sum(axis=1), n * r))
    shared = (n > 0.5) & (r > 0.5)
    weight = n[shared, None]
    expected = others[shared] / r[shared, None] * weight
    total = max(float(weight.sum()), 1.0)
    change = (group[shared] - expected).sum(axis=0) / total
    # linearised: the contribution of item m to Σ_m (a_mc − n_m o_mc / r_m) / Σ_m n_m
    residual = group[shared] - expected - change * weight
    shares = group[shared].sum(axis=0) / total, expected.sum(axis=0) / total
    error = np.sqrt((residual**2).sum(axis=0)) / total
    return GroupComparison(int(inside.sum()), within, between, gap, int(shared.sum()), *shares, error)


def _gap(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Interval, float, float]:
    """Return the difference of two ratios of sums over items with its interval, and both ratios."""
    (x, n), (y, r) = first, second
    X, Y = (float(a.sum() / b.sum()) if b.sum() > 0.5 else math.nan for a, b in (first, second))
    if math.isnan(X - Y):
        return Interval(math.nan, math.nan, math.nan), X, Y
    # linearised: d_m = (x_m − X n_m) / N for each ratio X = Σ x / N, then their difference
    moves = (x - X * n) / n.sum() - (y - Y * r) / r.sum()
    half_width = Z * math.sqrt(float((moves**2).sum()))
    return Interval(X - Y, X - Y - half_width, X - Y + half_width), X, Y


# ---- most frequent answers ----------------------------------------------------------------------------


@dataclass(frozen=True)
class MajorityComparison:
    """Items labelled by two groups, compared by the unique most frequent answer of each group."""

    n_items: int  # items on which both groups have a unique most frequent answer
    n_different: int
    largest: tuple[int, int, int]  # first group's class, second group's class, number of such items


def compare_majorities(first: Array, second: Array) -> MajorityComparison | None:
    """Compare the most frequent answers of two (items, classes) tables; None if no item has both."""
    ours, theirs = most_frequent(first), most_frequent(second)
    both = (ours >= 0) & (theirs >= 0)
    if not both.any():
        return None
    P = first.shape[1]
    table = np.bincount(ours[both] * P + theirs[both], minlength=P * P).reshape(P, P)
    np.fill_diagonal(table, 0)
    a, b = divmod(int(table.argmax()), P)
    return MajorityComparison(int(both.sum()), int(table.sum()), (a, b, int(table[a, b])))


def shared_errors(annotations: Any) -> Interval:
    """Measure how much more often two annotators make the same error than their error rates explain.

    An answer is an error if it differs from the item's unique most frequent answer c_m; items without one
    are skipped. With π_nc the shares of annotator n's answers on items of class c,

        r_mnp = y_mnp − π_{n,c_m,p},     mean over two annotators n, n′ of an item:  Σ_{p≠c_m} r_mnp r_mn′p.

    Independent errors give 0 or, since the most frequent answer is right by definition, less. At most
    ``MAX_ERROR_ITEMS`` items are examined.
    """
    M, P = annotations.n_items, annotations.n_classes
    labels_per_item = max(annotations.n_labels / max(M, 1), 1.0)
    n_items = max(1, min(M, MAX_ERROR_ITEMS, int(VOTE_CELLS_PER_CHUNK / (P * labels_per_item))))
    votes = Votes.of(annotations[np.linspace(0, M - 1, n_items).astype(np.intp)])
    top = most_frequent(votes.table)[votes.item]
    rows = np.flatnonzero(top >= 0)
    item, answer = votes.item[rows], votes.answer[rows].toarray()
    _, stratum = np.unique(votes.annotator[rows] * P + top[rows], return_inverse=True)
    expected = np.zeros((len(rows), P))
    np.add.at(expected, stratum, answer)
    expected /= np.maximum(np.bincount(stratum, minlength=len(rows)), 1)[:, None]
    residual = answer - expected[stratum]
    residual[np.arange(len(rows)), top[rows]] = 0.0
    total, alone, n = np.zeros((n_items, P)), np.zeros(n_items), np.bincount(item, minlength=n_items)
    np.add.at(total, item, residual)
    np.add.at(alone, item, (residual**2).sum(axis=1))
    zero = np.zeros(n_items), np.ones(n_items)
    return _gap(((total**2).sum(axis=1) - alone, n * (n - 1.0)), zero)[0]


def most_frequent(table: NDArray[Any]) -> NDArray[np.intp]:
    """Return the unique most frequent class of each row, −1 if there is none."""
    top = table.max(axis=1, keepdims=True)
    single = (table > top - 1e-9).sum(axis=1) == 1
    return np.where(single & (top[:, 0] > 0), table.argmax(axis=1), -1)


# ---- annotators one by one ----------------------------------------------------------------------------


@dataclass(frozen=True)
class AnnotatorAgreement:
    """Agreement of each annotator with the others; NaN for an annotator who shares no item."""

    n: NDArray[np.intp]  # items shared with others
    agreement: Array  # probability that another annotator gives the same answer to an item
    error: Array  # standard error of agreement, over items
    chance: Array  # agreement expected if the same answers were assigned to items at random
    excess_error: Array  # standard error of agreement − chance
    n_usual: NDArray[np.intp]  # items that two others labelled
    usual: Array  # probability that two others agree on these items
    gap: Array  # agreement on these items − usual
    gap_error: Array  # standard error of gap, over items

    @cached_property
    def differs(self) -> NDArray[np.bool_]:
        """(annotators,): whether the annotator agrees clearly less with the others than they do.

        The gap is at least ``MIN_GAP``, and below 0 by a t-test over items, with at most ``GAP_FALSE_SHARE``
        of the annotators named wrongly (Benjamini and Hochberg): as many tests as annotators were made.
        """
        enough = (self.n_usual >= MIN_GAP_ITEMS) & np.isfinite(self.gap)
        sure = np.where(self.gap < 0, -np.inf, np.inf)  # t if all items are alike
        t = np.divide(self.gap, self.gap_error, out=sure, where=self.gap_error > 0)
        p = np.where(enough, stdtr(np.maximum(self.n_usual - 1, 1), np.nan_to_num(t)), np.nan)
        sorted_p = np.sort(p[enough])
        passed = sorted_p <= GAP_FALSE_SHARE * np.arange(1, len(sorted_p) + 1) / max(len(sorted_p), 1)
        limit = sorted_p[np.flatnonzero(passed)[-1]] if passed.any() else -1.0
        return np.asarray(enough & (np.nan_to_num(p, nan=2.0) <= limit) & (self.gap <= -MIN_GAP))

    @cached_property
    def depends(self) -> NDArray[np.bool_]:
        """(annotators,): whether agreement is significantly above chance, by a one-sided test of 5 %."""
        excess = np.nan_to_num(self.agreement - self.chance)
        return np.asarray((self.n > 2) & (excess > Z_ONE_SIDED * np.nan_to_num(self.excess_error)))

    @cached_property
    def opposes(self) -> NDArray[np.bool_]:
        """(annotators,): whether agreement is clearly below chance, by three standard errors."""
        excess = np.nan_to_num(self.agreement - self.chance)
        return np.asarray((self.n > 2) & (excess < -Z_OPPOSED * np.nan_to_num(self.excess_error)))

    @cached_property
    def outliers(self) -> NDArray[np.bool_]:
        """(annotators,): enough items, and agreement that is not significantly above chance."""
        return np.asarray((self.n >= MIN_GAP_ITEMS) & ~self.depends)

    def most_disagreements(self, annotators: NDArray[np.intp], load: NDArray[Any]) -> NDArray[np.intp]:
        """Sort annotators by their disagreements beyond the usual, labels · (usual − agreement)."""
        shares = np.clip(np.nan_to_num(-self.gap, nan=1.0), 0.0, 1.0)
        return annotators[np.argsort(-(load * shares)[annotators], kind="stable")]

    def interval(self, n: int) -> Interval:
        """Return the agreement of annotator ``n`` with its 95 % interval."""
        value, half_width = float(self.agreement[n]), Z * float(self.error[n])
        return Interval(value, max(value - half_width, 0.0), min(value + half_width, 1.0))


def median(values: Array) -> float:
    """Return the median of the finite values; NaN if there are none."""
    return float(np.nanmedian(values)) if np.isfinite(values).any() else math.nan


def annotator_agreement(votes: Votes) -> AnnotatorAgreement:
    """Measure each annotator's agreement with the others, and the agreement expected by chance."""
    N, P = votes.sizes[1:]
    n, matched = np.zeros(N, np.intp), np.zeros(N)
    answers, others_answers = np.zeros((N, P)), np.zeros((N, P))
    n_usual, usual, gap = np.zeros(N, np.intp), np.zeros(N), np.zeros(N)
    for annotator, answer, others, pairs in _answers_and_others(votes):
        agreed, paired = (answer * others).sum(axis=1), np.isfinite(pairs)
        n += np.bincount(annotator, minlength=N)
        matched += np.bincount(annotator, agreed, minlength=N)
        n_usual += np.bincount(annotator[paired], minlength=N)
        usual += np.bincount(annotator[paired], pairs[paired], minlength=N)
        gap += np.bincount(annotator[paired], (agreed - pairs)[paired], minlength=N)
        np.add.at(answers, annotator, answer)
        np.add.at(others_answers, annotator, others)
    size = np.maximum(n, 1)
    agreement = matched / size
    answers, others_answers = answers / size[:, None], others_answers / size[:, None]
    chance = (answers * others_answers).sum(axis=1)
    squares, excess, gap_squares = np.zeros(N), np.zeros(N), np.zeros(N)
    safe_usual = np.maximum(n_usual, 1)
    usual, gap = usual / safe_usual, gap / safe_usual
    for annotator, answer, others, pairs in _answers_and_others(votes):
        moves = (answer * others).sum(axis=1) - agreement[annotator]
        paired = np.isfinite(pairs)
        gaps = (moves + agreement[annotator] - pairs - gap[annotator])[paired]
        gap_squares += np.bincount(annotator[paired], gaps**2, minlength=N)
        squares += np.bincount(annotator, moves**2, minlength=N)
        # agreement − chance is the mean of Σ_c (y_c − ȳ_c)(o_c − ō_c)
        covariance = ((answer - answers[annotator]) * (others - others_answers[annotator])).sum(axis=1)
        moves = covariance - (agreement - chance)[annotator]
        excess += np.bincount(annotator, moves**2, minlength=N)
    scale = np.maximum(n - 1, 1) * size
    columns = (agreement, np.sqrt(squares / scale), chance, np.sqrt(excess / scale))
    gap_error = np.sqrt(gap_squares / (np.maximum(n_usual - 1, 1) * safe_usual))
    agreement, error, chance, excess_error = (np.where(n == 0, np.nan, column) for column in columns)
    gaps = [np.where(n_usual == 0, np.nan, column) for column in (usual, gap, gap_error)]
    return AnnotatorAgreement(n, agreement, error, chance, excess_error, n_usual, *gaps)


def _answers_and_others(votes: Votes) -> Iterator[tuple[NDArray[np.intp], Array, Array, Array]]:
    """Yield annotators, their answers, and of the others of the same items, shares and agreement, by chunk.

    The agreement is that of two others, NaN if there is only one.
    """
    step = max(1, VOTE_CELLS_PER_CHUNK // votes.sizes[2])
    alone = votes.self_agreement(np.ones(votes.sizes[1], dtype=bool))
    for start in range(0, len(votes.item), step):
        rows = slice(start, start + step)
        answer = votes.answer[rows].toarray()
        others = votes.table[votes.item[rows]] - answer
        r = others.sum(axis=1)
        agreed = (others**2).sum(axis=1) - (alone[votes.item[rows]] - (answer**2).sum(axis=1))
        pairs = np.divide(agreed, r * (r - 1), out=np.full(len(r), np.nan), where=r > 1.5)
        shared = r > 0.5
        yield votes.annotator[rows][shared], answer[shared], others[shared] / r[shared, None], pairs[shared]


@dataclass(frozen=True)
class AnnotatorBias:
    """Difference between each annotator's answers and the others' answers to the same items."""

    class_code: NDArray[np.intp]  # (annotators,): class whose share differs most; −1 if answers are numbers
    value: Array  # (annotators,): share of that class, or mean number, minus the others'; NaN: no shared item
    error: Array  # (annotators,): half-width of its 95 % interval, over items


def annotator_bias(annotations: Any, values: Array | None = None) -> AnnotatorBias:
    """Measure the bias of each annotator, such as harshness; ``values`` are the numbers of ordered classes.

    b_n = Σ_m (y_nm − o_nm) / n, with y the annotator's answer to item m and o the mean answer of the others.
    Items are read in chunks, so memory does not grow with their number.
    """
    N, width = annotations.n_annotators, annotations.n_classes if values is None else 1
    n, total, squares = np.zeros(N), np.zeros((N, width)), np.zeros((N, width))
    for part in annotations.chunks():
        pairs = gather_pairs(annotations, part)
        n_others = np.asarray(pairs.others.sum(axis=1)).ravel()
        rows = np.flatnonzero(n_others > 0)
        answers = pairs.counts[rows].multiply(1 / pairs.counts[rows].sum(axis=1)[:, None])
        difference = (answers - pairs.others[rows].multiply(1 / n_others[rows, None])).tocsr()
        moves = difference if values is None else csr_array((difference @ values)[:, None])
        by = csr_array((np.ones(len(rows)), (pairs.annotator[rows], np.arange(len(rows)))), (N, len(rows)))
        n += np.asarray(by.sum(axis=1)).ravel()
        total += (by @ moves).toarray()
        squares += (by @ moves.multiply(moves)).toarray()
    size = np.maximum(n, 1)[:, None]
    mean = total / size
    error = np.sqrt(np.maximum(squares / size - mean**2, 0.0) / np.maximum(size - 1, 1))
    largest = largest_bias(mean)
    row, empty = np.arange(N), n == 0
    return AnnotatorBias(
        np.where(empty | (values is not None), -1, largest),
        np.where(empty, np.nan, mean[row, largest]),
        np.where(n < 2, np.nan, Z * error[row, largest]),
    )


def largest_bias(mean: Array) -> NDArray[np.intp]:
    """Return the column furthest from 0 in each row; a positive difference wins a tie."""
    return np.asarray((np.abs(mean) + TIE_TOLERANCE * (mean > 0)).argmax(axis=-1))


def self_consistency(annotations: Any) -> tuple[NDArray[np.intp], Array]:
    """Return, by annotator, the items labelled repeatedly and the probability that two such labels agree."""
    pairs = gather_pairs(annotations)
    total = np.asarray(pairs.counts.sum(axis=1)).ravel()
    again = total > 1
    # Σ_c n_c (n_c − 1) / n (n − 1) of each repeated pair
    same = np.asarray(pairs.counts.multiply(pairs.counts).sum(axis=1)).ravel() - total
    share = same[again] / (total * (total - 1))[again]
    N = annotations.n_annotators
    n = np.bincount(pairs.annotator[again], minlength=N)
    sums = np.bincount(pairs.annotator[again], share, minlength=N)
    return n, np.divide(sums, n, out=np.full(N, np.nan), where=n > 0)


def cramers_v(counts: NDArray[Any]) -> float:
    """Return Cramér's V: 0 if rows and columns are independent, 1 if one determines the other."""
    table = counts[np.ix_(counts.sum(axis=1) > 0, counts.sum(axis=0) > 0)].astype(float)
    degrees = min(table.shape) - 1
    if degrees < 1:
        return 0.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    # V = √(χ² / (n · min(rows − 1, columns − 1)))
    return float(np.sqrt((((table - expected) ** 2) / expected).sum() / (table.sum() * degrees)))
