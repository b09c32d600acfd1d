"""What raw labels say of some annotators beside all others: whom they agree with, and what they answer.

No model is asked. Whoever labelled an item several times is there with each of those labels in equal parts.
Of item m, a_mc annotators inside gave class c, and o_mc outside; n_m = Σ_c a_mc, r_m = Σ_c o_mc. A pair of
annotators agrees on an item with the share of their answers that are equal, so that

    within  = Σ_m (Σ_c a_mc² − Σ_i Σ_c s_imc²) / Σ_m n_m (n_m − 1)         i: the annotators inside
    between = Σ_m Σ_c a_mc o_mc / Σ_m n_m r_m.

Some people are a group, for the labels, where they agree with one another more than with the others. Items
are what might have been others, so standard errors are taken over items.
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

from dissensus.evaluate.bootstrap import Interval
from dissensus.labels.agreement import gather_pairs
from dissensus.numerics import Array

Z = 1.96  # standard errors on both sides of a 95 % interval
TIE = 1e-9  # differences up to which two are the same
ERROR_ITEMS = 2_000  # that shared errors are looked for in
BLOCK = 1 << 21  # numbers worked on at a time


@dataclass(frozen=True)
class Votes:
    """Every annotator's answer to every item they labelled, repeated labels in equal parts."""

    item: NDArray[np.intp]  # (pairs,)
    annotator: NDArray[np.intp]
    answer: Any  # (pairs, classes) sparse: shares, each row in sum 1
    sizes: tuple[int, int, int]  # items, annotators, classes

    @classmethod
    def of(cls, annotations: Any) -> Votes:
        """The votes of labels by named annotators."""
        pairs = gather_pairs(annotations)
        total = np.asarray(pairs.counts.sum(axis=1)).ravel()
        answer = pairs.counts.multiply(1 / total[:, None]).tocsr()
        sizes = annotations.n_items, annotations.n_annotators, annotations.n_classes
        return cls(pairs.item, pairs.annotator, answer, sizes)

    @cached_property
    def table(self) -> Array:
        """(items, classes): annotators by answer."""
        return self.votes(np.ones(self.sizes[1], dtype=bool))

    def votes(self, inside: NDArray[np.bool_]) -> Array:
        """(items, classes): annotators of some by answer."""
        M, P = self.sizes[0], self.sizes[2]
        entries = self.answer.tocoo()
        mine = inside[self.annotator[entries.row]]
        cell = self.item[entries.row[mine]] * P + entries.col[mine]
        weights = entries.data[mine].astype(np.float64)
        return np.asarray(np.bincount(cell, weights, minlength=M * P), np.float64).reshape(M, P)

    def on(self, items: NDArray[np.bool_]) -> Votes:
        """The votes on some of the items."""
        rows = np.flatnonzero(items[self.item])
        return Votes(self.item[rows], self.annotator[rows], self.answer[rows], self.sizes)

    def alone(self, inside: NDArray[np.bool_]) -> Array:
        """(items,): Σ_i Σ_c s_imc², what an annotator agrees with themselves."""
        squares = np.asarray(self.answer.multiply(self.answer).sum(axis=1)).ravel()
        own = np.bincount(self.item, squares * inside[self.annotator], minlength=self.sizes[0])
        return np.asarray(own, np.float64)


@dataclass(frozen=True)
class Side:
    """Some annotators, by the labels alone."""

    n_annotators: int
    within: float  # chance that two of them agree on an item; NaN where no two share one
    between: float  # … that one of them and somebody else do
    gap: Interval  # within − between
    n_shared: int  # items that both they and others labelled
    own: Array  # (classes,): what they answer on the shared items
    usual: Array  # (classes,): what the others answer there, items weighing as they do for them
    error: Array  # (classes,): standard error of own − usual


def side_of(votes: Votes, inside: NDArray[np.bool_]) -> Side:
    """Some annotators beside all others."""
    own, alone = votes.votes(inside), votes.alone(inside)
    others = votes.table - own
    n, r = own.sum(axis=1), others.sum(axis=1)
    among = (own**2).sum(axis=1) - alone, n * (n - 1)
    gap, within, between = _gap(among, ((own * others).sum(axis=1), n * r))
    shared = (n > 0.5) & (r > 0.5)
    weight = n[shared, None]
    usual = others[shared] / r[shared, None] * weight
    total = max(float(weight.sum()), 1.0)
    change = (own[shared] - usual).sum(axis=0) / total
    # linearised: the share of item m in Σ_m (a_mc − n_m o_mc / r_m) / Σ_m n_m
    spread = own[shared] - usual - change * weight
    shares = own[shared].sum(axis=0) / total, usual.sum(axis=0) / total
    error = np.sqrt((spread**2).sum(axis=0)) / total
    return Side(int(inside.sum()), within, between, gap, int(shared.sum()), *shares, error)


def _gap(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Interval, float, float]:
    """The difference of two ratios of sums over items, with its interval; and the ratios."""
    (x, n), (y, r) = one, other
    X, Y = (float(a.sum() / b.sum()) if b.sum() > 0.5 else math.nan for a, b in (one, other))
    if math.isnan(X - Y):
        return Interval(math.nan, math.nan, math.nan), X, Y
    # linearised: d_m = (x_m − X n_m) / N of each ratio X = Σ x / N, and their difference
    moves = (x - X * n) / n.sum() - (y - Y * r) / r.sum()
    reach = Z * math.sqrt(float((moves**2).sum()))
    return Interval(X - Y, X - Y - reach, X - Y + reach), X, Y


def agreement_gap(votes: Votes, inside: NDArray[np.bool_]) -> Interval:
    """How much more the others agree with one another than with some annotators."""
    others = ~inside
    own, rest = votes.votes(inside), votes.votes(others)
    r, n = rest.sum(axis=1), own.sum(axis=1)
    among = (rest**2).sum(axis=1) - votes.alone(others), r * (r - 1)
    return _gap(among, ((own * rest).sum(axis=1), n * r))[0]


# ---- most frequent answers ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Clash:
    """Items that two sides labelled, by the single most frequent answer of each."""

    n_items: int  # on which both sides have one
    n_different: int
    largest: tuple[int, int, int]  # our class, theirs, and on how many items


def clash(ours: Array, theirs: Array) -> Clash | None:
    """How often two sides' most frequent answers differ, from (items, classes) tables; None: no such item."""
    first, second = most_frequent(ours), most_frequent(theirs)
    both = (first >= 0) & (second >= 0)
    if not both.any():
        return None
    P = ours.shape[1]
    table = np.bincount(first[both] * P + second[both], minlength=P * P).reshape(P, P)
    np.fill_diagonal(table, 0)
    a, b = divmod(int(table.argmax()), P)
    return Clash(int(both.sum()), int(table.sum()), (a, b, int(table[a, b])))


def shared_errors(annotations: Any) -> Interval:
    """How much more often two annotators give an item the same wrong answer than each one's errors explain.

    An answer is wrong where it is not the item's single most frequent one, c_m; items without one are left
    out, and so is what one annotator does usually: with π_nc their shares of answers on items of c,

        r_mnp = y_mnp − π_{n,c_m,p},     mean over two annotators n, n′ of an item:  Σ_{p≠c_m} r_mnp r_mn′p.

    Independent errors give 0 or, since the most frequent answer is right by definition, less. At most
    ``ERROR_ITEMS`` items are looked at.
    """
    M, P = annotations.n_items, annotations.n_classes
    each = max(annotations.n_labels / max(M, 1), 1.0)
    n_items = max(1, min(M, ERROR_ITEMS, int(BLOCK / (P * each))))
    votes = Votes.of(annotations[np.linspace(0, M - 1, n_items).astype(np.intp)])
    top = most_frequent(votes.table)[votes.item]
    rows = np.flatnonzero(top >= 0)
    item, answer = votes.item[rows], votes.answer[rows].toarray()
    _, habit = np.unique(votes.annotator[rows] * P + top[rows], return_inverse=True)
    usual = np.zeros((len(rows), P))
    np.add.at(usual, habit, answer)
    usual /= np.maximum(np.bincount(habit, minlength=len(rows)), 1)[:, None]
    apart = answer - usual[habit]
    apart[np.arange(len(rows)), top[rows]] = 0.0
    total, alone, n = np.zeros((n_items, P)), np.zeros(n_items), np.bincount(item, minlength=n_items)
    np.add.at(total, item, apart)
    np.add.at(alone, item, (apart**2).sum(axis=1))
    nothing = np.zeros(n_items), np.ones(n_items)
    return _gap(((total**2).sum(axis=1) - alone, n * (n - 1.0)), nothing)[0]


def most_frequent(table: NDArray[Any]) -> NDArray[np.intp]:
    """(items,): the single most frequent class, −1 where there is none."""
    top = table.max(axis=1, keepdims=True)
    single = (table > top - 1e-9).sum(axis=1) == 1
    return np.where(single & (top[:, 0] > 0), table.argmax(axis=1), -1)


# ---- one by one ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """Every annotator beside the others: one entry an annotator; NaN where nobody shares an item."""

    n: NDArray[np.intp]  # items shared with others
    agreement: Array  # chance that another's answer to the same item equals theirs
    error: Array  # its standard error, over items
    chance: Array  # what the same answers would reach if given to the items without looking
    excess_error: Array  # standard error of agreement − chance

    @cached_property
    def usual(self) -> float:
        """Median agreement; NaN where nobody shares an item."""
        return median(self.agreement)

    def interval(self, n: int) -> Interval:
        """Agreement with its 95 % interval."""
        value, reach = float(self.agreement[n]), Z * float(self.error[n])
        return Interval(value, max(value - reach, 0.0), min(value + reach, 1.0))


def median(values: Array) -> float:
    """Median of the numbers that are known; NaN where none is."""
    return float(np.nanmedian(values)) if np.isfinite(values).any() else math.nan


def standing(votes: Votes) -> Standing:
    """Agreement with the others, and what it would be without looking."""
    N, P = votes.sizes[1:]
    n, matched = np.zeros(N, np.intp), np.zeros(N)
    given, heard = np.zeros((N, P)), np.zeros((N, P))
    for who, answer, others in _beside(votes):
        n += np.bincount(who, minlength=N)
        matched += np.bincount(who, (answer * others).sum(axis=1), minlength=N)
        np.add.at(given, who, answer)
        np.add.at(heard, who, others)
    size = np.maximum(n, 1)
    agreement, given, heard = matched / size, given / size[:, None], heard / size[:, None]
    chance = (given * heard).sum(axis=1)
    spread, excess = np.zeros(N), np.zeros(N)
    for who, answer, others in _beside(votes):
        moves = (answer * others).sum(axis=1) - agreement[who]
        spread += np.bincount(who, moves**2, minlength=N)
        # agreement − chance is the mean of Σ_c (y_c − ȳ_c)(o_c − ō_c)
        moves = ((answer - given[who]) * (others - heard[who])).sum(axis=1) - (agreement - chance)[who]
        excess += np.bincount(who, moves**2, minlength=N)
    free = np.maximum(n - 1, 1) * size
    parts = (agreement, np.sqrt(spread / free), chance, np.sqrt(excess / free))
    return Standing(n, *(np.where(n == 0, np.nan, part) for part in parts))


@dataclass(frozen=True)
class Leaning:
    """What every annotator answers more often, or how much higher, than the others on the same items."""

    of: NDArray[np.intp]  # (annotators,): the class whose share differs most; −1 where answers are numbers
    value: Array  # (annotators,): share of that class, or mean number, minus the others'; NaN: nobody shares
    error: Array  # (annotators,): half of its 95 % interval, over items


def leaning(annotations: Any, values: Array | None = None) -> Leaning:
    """Harsh or lenient: the bias of every annotator; ``values`` are the classes' numbers, where ordered.

    b_n = Σ_m (y_nm − o_nm) / n, with y the annotator's answer to item m and o the others' mean answer. Memory
    is that of some whole items at a time.
    """
    N, width = annotations.n_annotators, annotations.n_classes if values is None else 1
    n, total, squares = np.zeros(N), np.zeros((N, width)), np.zeros((N, width))
    for part in annotations.pieces():
        pairs = gather_pairs(annotations, part)
        heard = np.asarray(pairs.others.sum(axis=1)).ravel()
        rows = np.flatnonzero(heard > 0)
        own = pairs.counts[rows].multiply(1 / pairs.counts[rows].sum(axis=1)[:, None])
        apart = (own - pairs.others[rows].multiply(1 / heard[rows, None])).tocsr()
        moves = apart if values is None else csr_array((apart @ values)[:, None])
        by = csr_array((np.ones(len(rows)), (pairs.annotator[rows], np.arange(len(rows)))), (N, len(rows)))
        n += np.asarray(by.sum(axis=1)).ravel()
        total += (by @ moves).toarray()
        squares += (by @ moves.multiply(moves)).toarray()
    size = np.maximum(n, 1)[:, None]
    mean = total / size
    error = np.sqrt(np.maximum(squares / size - mean**2, 0.0) / np.maximum(size - 1, 1))
    most = largest_bias(mean)
    each, none = np.arange(N), n == 0
    return Leaning(
        np.where(none | (values is not None), -1, most),
        np.where(none, np.nan, mean[each, most]),
        np.where(n < 2, np.nan, Z * error[each, most]),
    )


def largest_bias(mean: Array) -> NDArray[np.intp]:
    """Where each row differs most from 0; of two classes, whose differences are the same, what is more."""
    return np.asarray((np.abs(mean) + TIE * (mean > 0)).argmax(axis=-1))


def _beside(votes: Votes) -> Iterator[tuple[NDArray[np.intp], Array, Array]]:
    """Some pairs at a time: who, their answer, and the shares of the others' answers to the same item."""
    step = max(1, BLOCK // votes.sizes[2])
    for start in range(0, len(votes.item), step):
        rows = slice(start, start + step)
        answer = votes.answer[rows].toarray()
        others = votes.table[votes.item[rows]] - answer
        r = others.sum(axis=1)
        shared = r > 0.5
        yield votes.annotator[rows][shared], answer[shared], others[shared] / r[shared, None]


def self_consistency(annotations: Any) -> tuple[NDArray[np.intp], Array]:
    """(annotators,) each: items they labelled more than once, and the chance that two such labels agree."""
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
    """Cramér's V: 0 where rows and columns are independent, 1 where one fixes the other."""
    table = counts[np.ix_(counts.sum(axis=1) > 0, counts.sum(axis=0) > 0)].astype(float)
    least = min(table.shape) - 1
    if least < 1:
        return 0.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    # V = √(χ² / (n · min(rows − 1, columns − 1)))
    return float(np.sqrt((((table - expected) ** 2) / expected).sum() / (table.sum() * least)))
