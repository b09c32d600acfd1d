"""The array steps that cost time: messages between items and annotators.

An (item, annotator) pair e = (m, n) is one factor of the graph, however many labels it carries. What the
annotator answered there is its *answer* a: a class, or a multiset of classes where the pair is labelled more
than once. Given the clusters k of the item and l of the annotator its likelihood is

    F_akl = Π_p Θ_klp^{c_ap}        c_ap: how often class p stands in answer a.

Pairs are sorted by answer inside a shard, so that a message step is one matrix product per answer. Sums over
the pairs of an item or an annotator are products with a sparse matrix of ones.

Messages are kept in the linear domain, and their scale says nothing: it is left as it comes, and taken out
where it would go too far. So every message lies within exp(±FURTHEST) (in single precision, FURTHEST_SINGLE),
and the largest entry of a normalised belief is at least 1/K; a belief divided by one of its messages (the
cavity: what the others say) neither overflows nor loses anything that matters.

A logarithm costs more than all other steps of a message, so messages are multiplied, as many as surely stay
within double precision, before it is taken: at the floor four of them, usually all of an item's, which then
need none.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dissensus.engine import Block, Codes, Shard
from dissensus.numerics import Array, ones, row_sums, softmax_rows

# −log of the least likelihood of an answer relative to its most likely clusters, by precision.
FURTHEST, FURTHEST_SINGLE = 150.0, 70.0
FLOOR, FLOOR_SINGLE = np.exp(-FURTHEST), np.exp(-FURTHEST_SINGLE)
RANGE = 650.0  # products stay within exp(±RANGE), and so within double precision
GROUP = 16  # pairs whose messages are multiplied at most


# ---- the layout of a shard ----------------------------------------------------------------------------

Annotators = NDArray[np.int32] | slice  # codes of those who occur, or a slice of all


@dataclass(frozen=True, eq=False)
class PairSums:
    """Sums over the pairs of every target (an item, or an annotator), in groups of up to ``GROUP`` pairs.

    Groups stand by their size, large ones first: those with a second pair are the first so many.
    """

    members: tuple[NDArray[np.int32], ...]  # every group's first pair, the second of those that have one, …
    to_targets: Any  # (targets, groups) sparse ones
    only: NDArray[np.int32] | None  # each target's group, where each has exactly one

    @classmethod
    def of(cls, target: NDArray[Any], n: int) -> PairSums:
        """Group the pairs by their targets 0 … n−1."""
        order = np.argsort(target, kind="stable").astype(np.int32)
        n_pairs = np.bincount(target, minlength=n)
        n_groups = -(-n_pairs // GROUP)
        ends = np.cumsum(n_groups)
        within = np.arange(ends[-1] if n else 0) - np.repeat(ends - n_groups, n_groups)
        # where a group's pairs begin in the order by target, and how many of them there are
        begin = np.repeat(np.cumsum(n_pairs) - n_pairs, n_groups) + GROUP * within
        size = np.minimum(np.repeat(n_pairs, n_groups) - GROUP * within, GROUP)
        by_size = np.argsort(-size, kind="stable")
        place = np.empty(len(by_size), np.int32)
        place[by_size] = np.arange(len(by_size), dtype=np.int32)
        largest = size.max(initial=1)
        members = [order[begin[by_size[: np.count_nonzero(size > nth)]] + nth] for nth in range(largest)]
        starts = np.concatenate([[0], ends]).astype(np.int32)
        to_targets = sparse.csr_array((ones(len(place)), place, starts), shape=(n, len(place)))
        return cls(tuple(members), to_targets, place if (n_groups == 1).all() else None)

    def of_rows(self, rows: Array) -> Array:
        """(targets, columns): Σ_e rows_e."""
        added = rows.take(self.members[0], axis=0)
        for some in self.members[1:]:
            added[: len(some)] += rows.take(some, axis=0)
        return np.asarray(self.to_targets @ added)

    def of_logs(self, messages: Array, reach: float) -> Array:
        """(targets, columns): Σ_e log messages_e, where no message is beyond exp(±``reach``)."""
        logs = np.zeros((len(self.members[0]), messages.shape[1]))
        # as many factors within exp(±reach) at once as stay within double precision
        at_once = GROUP if GROUP * reach <= RANGE else max(int(RANGE / reach), 1)
        for first in range(0, len(self.members), at_once):
            product = _product(messages, self.members[first : first + at_once])
            logs[: len(product)] += np.log(product, out=product)
        return np.asarray(self.to_targets @ logs)

    def beliefs(self, messages: Array, log_prior: Array, reach: float) -> tuple[Array, Array]:
        """(targets, columns): the prior times Π_e messages_e, normalised, and the log of what it was before.

        ``log_prior`` is (columns,), or one for every target; no message is beyond exp(±``reach``).
        """
        top = log_prior.max(axis=-1, keepdims=True)
        prior = log_prior - top
        if self.only is None or len(self.members) * reach - prior.min(initial=0.0) > RANGE:
            return softmax_rows(self.of_logs(messages, reach) + log_prior)
        chances = _product(messages, self.members).take(self.only, axis=0)
        chances *= np.exp(prior)
        sums = row_sums(chances)
        chances /= sums[:, None]
        return chances, np.log(sums) + top[..., 0]


def _product(messages: Array, members: Sequence[NDArray[np.int32]]) -> Array:
    """Of every group, its members' messages multiplied; later members are those of the first groups."""
    product = messages.take(members[0], axis=0).astype(np.float64, copy=False)
    for some in members[1:]:
        product[: len(some)] *= messages.take(some, axis=0)
    return product


@dataclass(frozen=True, eq=False)
class SameLabels:
    """The annotators who gave an item the same class, together: what they count for is added up first."""

    item: NDArray[np.int32]  # (runs,) item within the shard, sorted by class
    annotators: Any  # (runs, annotators up to the last in the shard) sparse ones
    bounds: tuple[slice, ...]  # the runs of each class

    @classmethod
    def of(cls, label: Codes, item: Codes, annotator: Codes, P: int) -> SameLabels:
        """The runs of labels that are sorted by class, and of one class by item."""
        new = (np.diff(label) != 0) | (np.diff(item) != 0)
        first = np.flatnonzero(np.concatenate([[True], new])) if len(item) else np.zeros(0, np.intp)
        starts = np.append(first, len(item)).astype(np.int32)
        shape = len(first), int(annotator.max(initial=-1)) + 1
        annotators = sparse.csr_array((ones(len(item)), annotator, starts), shape=shape)
        ends = np.searchsorted(label[first], np.arange(P + 1)).tolist()
        return cls(item[first], annotators, tuple(itertools.starmap(slice, itertools.pairwise(ends))))

    def counts(self, w: Array, z: Array) -> Array:
        """(K, L, P): Σ w_mk z_nl over the labels of each class."""
        left, right = w.take(self.item, axis=0), self.annotators @ z[: self.annotators.shape[1]]
        counts = np.empty((len(self.bounds), w.shape[1], z.shape[1]))
        for p, runs in enumerate(self.bounds):
            np.matmul(left[runs].T, right[runs], out=counts[p])
        # C order, as after pickling: the same bits on a worker
        return np.ascontiguousarray(counts.transpose(1, 2, 0))


@dataclass(frozen=True, eq=False)
class PairLayout:
    """A shard's pairs, sorted by answer."""

    item: NDArray[np.int32]  # (pairs,) item within the shard
    annotator: NDArray[np.int32]  # (pairs,) code of the annotator
    who: Annotators
    answers: Array  # (answers, P): how often each class stands in each answer
    bounds: NDArray[np.intp]  # (answers + 1,): the pairs of answer a are bounds[a]:bounds[a + 1]
    batches: tuple[tuple[slice, slice], ...]  # runs of answers with equally many pairs, and their pairs
    by_item: PairSums
    by_annotator: PairSums  # of ``who``
    same: SameLabels

    @classmethod
    def of(cls, shard: Shard, everyone: int | None = None) -> PairLayout:
        """Group the label rows by pair, name the distinct answers, and sort by answer.

        ``everyone`` is the number of all annotators, where all of them are to be summed for.
        """
        first, answer, answers = _answers(shard)
        order, by_class = np.argsort(answer, kind="stable"), np.argsort(shard.label, kind="stable")
        item, annotator = shard.item[first][order], shard.annotator[first][order]
        who: Annotators = slice(None)
        place: NDArray[Any] = annotator
        n_who = everyone
        if n_who is None:
            who, place = np.unique(annotator, return_inverse=True)
            n_who = len(who)
        bounds = np.searchsorted(answer[order], np.arange(len(answers) + 1))
        # where no pair has two labels, the labels by class are the pairs by answer
        theirs = annotator if len(first) == len(by_class) else shard.annotator[by_class]
        sums = PairSums.of(item, shard.n_items), PairSums.of(place, n_who)
        same = SameLabels.of(shard.label[by_class], shard.item[by_class], theirs, shard.n_classes)
        return cls(item, annotator, who, answers, bounds, _batches(bounds), *sums, same)

    @cached_property
    def pairs_of_answers(self) -> Array:
        """(answers,): how many pairs have each."""
        return np.diff(self.bounds).astype(np.float64)

    def factors(self, log_theta: Array, dtype: Any = np.float64) -> tuple[Array, Array]:
        """F (answers, K, L), scaled so that each answer's largest entry is 1, and the log of the scale."""
        K, L, P = log_theta.shape
        # log F_akl = Σ_p c_ap log Θ_klp
        logs = self.answers @ log_theta.reshape(K * L, P).T
        scale = logs.max(axis=1)
        logs -= scale[:, None]
        factors = np.exp(logs, out=logs)
        np.maximum(factors, FLOOR_SINGLE if dtype == np.float32 else FLOOR, out=factors)
        return factors.astype(dtype, copy=False).reshape(-1, K, L), scale


@dataclass(frozen=True, eq=False)
class PairBlock:
    """The layouts of a block's shards; a table of its pairs or items holds theirs one after the other."""

    layouts: tuple[PairLayout, ...]
    item_slices: tuple[slice, ...]  # where each shard's items stand in a table of the block's
    pair_slices: tuple[slice, ...]
    n_pairs: int
    who: Annotators
    n_who: int
    places: tuple[Annotators, ...]  # where each layout's ``who`` stand in it

    @classmethod
    def of(cls, block: Block) -> PairBlock:
        """Lay out every shard."""
        n_shards, N = len(block.item_bounds) - 1, block.labels.n_annotators
        # Few annotators, all of them: that is faster than to look up those who occur.
        everyone = N if N * n_shards <= block.rows.stop - block.rows.start else None
        layouts, items, pairs, n_pairs = [], [], [], 0
        for n in range(n_shards):
            layout = PairLayout.of(block.shard(n, n + 1), everyone)
            layouts.append(layout)
            begin, end = block.item_bounds[n : n + 2]
            items.append(slice(begin - block.items.start, end - block.items.start))
            pairs.append(slice(n_pairs, n_pairs + len(layout.item)))
            n_pairs += len(layout.item)
        who: Annotators = slice(None)
        places: list[Any] = [layout.who for layout in layouts]
        n_who = N
        if everyone is None:
            who = np.unique(np.concatenate(places))
            n_who, places = len(who), [np.searchsorted(who, own).astype(np.int32) for own in places]
        return cls(tuple(layouts), tuple(items), tuple(pairs), n_pairs, who, n_who, tuple(places))

    def counts(self) -> Array:
        """(items, P): how often each class was given to each item."""
        answers = [np.repeat(layout.answers, np.diff(layout.bounds), axis=0) for layout in self.layouts]
        layouts = zip(self.layouts, answers, strict=True)
        return np.concatenate([layout.by_item.of_rows(rows) for layout, rows in layouts])


def _answers(shard: Shard) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """First row of each pair, its answer's number, and the answers as class counts.

    Answers 0 … P−1 are the single classes; further ones are the multisets that occur in the shard, frequent
    ones first.
    """
    P = shard.n_classes
    new = (np.diff(shard.item) != 0) | (np.diff(shard.annotator) != 0)
    first = np.flatnonzero(np.concatenate([[True], new])) if len(shard.item) else np.zeros(0, np.intp)
    answer = shard.label[first].astype(np.intp)
    length = np.diff(np.append(first, len(shard.item)))
    several = np.flatnonzero(length > 1)
    if not len(several):
        return first, answer, np.eye(P)
    pair_of_row = np.repeat(np.arange(len(several)), length[several])
    starts = np.cumsum(length[several]) - length[several]
    rows = np.arange(len(pair_of_row)) + np.repeat(first[several] - starts, length[several])
    cells = pair_of_row * P + shard.label[rows]
    counts = np.bincount(cells, minlength=len(several) * P).reshape(-1, P)
    multisets, which, often = np.unique(counts, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(-often, kind="stable")
    answer[several] = P + np.argsort(order)[which.ravel()]
    return first, answer, np.vstack([np.eye(P), multisets[order]])


def _batches(bounds: NDArray[np.intp]) -> tuple[tuple[slice, slice], ...]:
    """Runs of answers with equally many pairs: one product of stacked matrices does for all of a run."""
    n_pairs = np.diff(bounds)
    ends = np.append(np.flatnonzero(np.diff(n_pairs)) + 1, len(n_pairs)).tolist()
    at, runs = bounds.tolist(), itertools.pairwise([0, *ends])
    return tuple([(slice(a, b), slice(at[a], at[b])) for a, b in runs if at[b] > at[a]])


# ---- message steps ------------------------------------------------------------------------------------


def cavity(belief: Array, place: NDArray[np.int32], message: Array) -> Array:
    """What a variable believes without one factor: belief / message, not normalised."""
    # ẑ_e(l) ∝ z_n(l) / ν_e(l)
    ratio = belief.take(place, axis=0)
    ratio /= message
    return ratio


def messages(layout: PairLayout, factors: Array, incoming: Array, out: Array | None = None) -> Array:
    """Factor-to-variable messages (pairs, I): Σ_j F_aij incoming_e(j), one product per answer."""
    outgoing = np.empty((len(layout.item), factors.shape[1]), factors.dtype) if out is None else out
    F = np.ascontiguousarray(factors.transpose(0, 2, 1))  # products are faster by it
    for answers, rows in layout.batches:
        n = answers.stop - answers.start
        if n == 1:
            np.matmul(incoming[rows], F[answers.start], out=outgoing[rows])
        else:
            np.matmul(_stacked(incoming[rows], n), F[answers], out=_stacked(outgoing[rows], n))
    return outgoing


def _stacked(rows: Array, n: int) -> Array:
    """(n, rows of each, columns): the rows of n answers that have equally many."""
    return rows.reshape(n, -1, rows.shape[1])


def pair_counts(layout: PairLayout, left: Array, right: Array) -> Array:
    """(answers, I, J): Σ_e left_e(i) right_e(j) over the pairs of each answer."""
    counts = np.zeros((len(layout.answers), left.shape[1], right.shape[1]), left.dtype)
    for answers, rows in layout.batches:
        n = answers.stop - answers.start
        if n == 1:
            np.matmul(left[rows].T, right[rows], out=counts[answers.start])
        else:
            mine, others = _stacked(left[rows], n), _stacked(right[rows], n)
            np.matmul(mine.transpose(0, 2, 1), others, out=counts[answers])
    return counts


def class_counts(layout: PairLayout, counts: Array) -> Array:
    """(I, J, P): label counts per class out of pair counts per answer."""
    n_answers, *clusters = counts.shape
    return np.asarray(counts.reshape(n_answers, -1).T @ layout.answers).reshape(*clusters, -1)
