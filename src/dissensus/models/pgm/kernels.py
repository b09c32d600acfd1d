"""Message steps between items and annotators, as array operations: the parts of a fit that cost time.

An (item, annotator) pair e = (m, n) is one factor of the graph, however many labels it has. The *answer* a of
a pair is a class, or a multiset of classes if the pair has several labels. Given the clusters k of the item
and l of the annotator, its likelihood is

    F_akl = Π_p Θ_klp^{c_ap}        c_ap: number of labels p in answer a.

The pairs of a shard are sorted by answer, so that a message step is one matrix product per answer. Sums over
the pairs of an item or an annotator are products with a sparse matrix of ones.

Messages are not logarithms, and their scale is arbitrary: they are rescaled only when they would leave
exp(±MAX_LOG_MESSAGE) (in single precision, exp(±MAX_LOG_MESSAGE_SINGLE)). The largest entry of a normalised
belief is at least 1/K, so a belief divided by one of its messages (the cavity) neither overflows nor loses
precision that matters.

Logarithms cost more than all other steps of a message. So messages are multiplied before taking the
logarithm, as many as certainly stay within double precision: at least four, usually all of an item.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dissensus.engine import Block, Codes, Shard
from dissensus.numerics import Array, ones, row_sums, softmax_rows

MAX_LOG_MESSAGE, MAX_LOG_MESSAGE_SINGLE = 150.0, 70.0  # by precision
MIN_FACTOR, MIN_FACTOR_SINGLE = np.exp(-MAX_LOG_MESSAGE), np.exp(-MAX_LOG_MESSAGE_SINGLE)
MAX_LOG_PRODUCT = 650.0  # double precision ends near exp(±700)
PAIRS_PER_GROUP = 16  # maximum number of messages multiplied before a logarithm


# ---- the layout of a shard ----------------------------------------------------------------------------

AnnotatorCodes = NDArray[np.int32] | slice  # codes of the annotators that occur, or a slice of all


@dataclass(frozen=True, eq=False)
class PairSums:
    """Sums over the pairs of every target (item or annotator), in groups of up to ``PAIRS_PER_GROUP`` pairs.

    Groups are sorted by size, largest first, so that the groups with an i-th pair come first.
    """

    members: tuple[NDArray[np.int32], ...]  # first pair of every group, second pair of the larger ones, …
    to_targets: Any  # (targets, groups) sparse ones
    only_group: NDArray[np.int32] | None  # group of each target, if each has exactly one

    @classmethod
    def of(cls, target: NDArray[Any], n: int) -> PairSums:
        """Group the pairs by their targets 0 … n−1."""
        order = np.argsort(target, kind="stable").astype(np.int32)
        n_pairs = np.bincount(target, minlength=n)
        n_groups = -(-n_pairs // PAIRS_PER_GROUP)
        ends = np.cumsum(n_groups)
        within = np.arange(ends[-1] if n else 0) - np.repeat(ends - n_groups, n_groups)
        # start of each group in the order by target, and its size
        begin = np.repeat(np.cumsum(n_pairs) - n_pairs, n_groups) + PAIRS_PER_GROUP * within
        size = np.minimum(np.repeat(n_pairs, n_groups) - PAIRS_PER_GROUP * within, PAIRS_PER_GROUP)
        by_size = np.argsort(-size, kind="stable")
        rank = np.empty(len(by_size), np.int32)
        rank[by_size] = np.arange(len(by_size), dtype=np.int32)
        max_size = size.max(initial=1)
        members = [order[begin[by_size[: np.count_nonzero(size > i)]] + i] for i in range(max_size)]
        starts = np.concatenate([[0], ends]).astype(np.int32)
        to_targets = sparse.csr_array((ones(len(rank)), rank, starts), shape=(n, len(rank)))
        return cls(tuple(members), to_targets, rank if (n_groups == 1).all() else None)

    def of_logs(self, messages: Array, max_log: float) -> Array:
        """Return (targets, columns): Σ_e log messages_e, for messages within exp(±``max_log``)."""
        logs = np.zeros((len(self.members[0]), messages.shape[1]))
        fits_whole_group = PAIRS_PER_GROUP * max_log <= MAX_LOG_PRODUCT
        step = PAIRS_PER_GROUP if fits_whole_group else max(int(MAX_LOG_PRODUCT / max_log), 1)
        for first in range(0, len(self.members), step):
            product = _product(messages, self.members[first : first + step])
            logs[: len(product)] += np.log(product, out=product)
        return np.asarray(self.to_targets @ logs)

    def beliefs(self, messages: Array, log_prior: Array, max_log: float) -> tuple[Array, Array]:
        """Return (targets, columns): prior · Π_e messages_e, normalised, and the log of the normaliser.

        ``log_prior`` is (columns,) or (targets, columns); messages are within exp(±``max_log``).
        """
        top = log_prior.max(axis=-1, keepdims=True)
        prior = log_prior - top
        if self.only_group is None or len(self.members) * max_log - prior.min(initial=0.0) > MAX_LOG_PRODUCT:
            return softmax_rows(self.of_logs(messages, max_log) + log_prior)
        beliefs = _product(messages, self.members).take(self.only_group, axis=0)
        beliefs *= np.exp(prior)
        sums = row_sums(beliefs)
        beliefs /= sums[:, None]
        return beliefs, np.log(sums) + top[..., 0]


def _product(messages: Array, members: Sequence[NDArray[np.int32]]) -> Array:
    """Return the product of the messages of each group."""
    product = messages.take(members[0], axis=0).astype(np.float64, copy=False)
    for pairs in members[1:]:
        product[: len(pairs)] *= messages.take(pairs, axis=0)
    return product


def _slices(bounds: Iterable[int]) -> tuple[slice, ...]:
    """Return the slices between consecutive bounds."""
    return tuple(itertools.starmap(slice, itertools.pairwise(bounds)))


@dataclass(frozen=True, eq=False)
class LabelRuns:
    """Runs of labels with the same class and item, whose annotators are added up first."""

    item: NDArray[np.int32]  # (runs,) item within the shard, sorted by class
    annotators: Any  # (runs, annotators up to the last in the shard) sparse ones
    bounds: tuple[slice, ...]  # runs of each class

    @classmethod
    def of(cls, label: Codes, item: Codes, annotator: Codes, P: int) -> LabelRuns:
        """Find the runs of labels sorted by class, then by item."""
        new = (np.diff(label) != 0) | (np.diff(item) != 0)
        first = np.flatnonzero(np.concatenate([[True], new])) if len(item) else np.zeros(0, np.intp)
        starts = np.append(first, len(item)).astype(np.int32)
        shape = len(first), int(annotator.max(initial=-1)) + 1
        annotators = sparse.csr_array((ones(len(item)), annotator, starts), shape=shape)
        ends = np.searchsorted(label[first], np.arange(P + 1)).tolist()
        return cls(item[first], annotators, _slices(ends))

    def by_item(self, n_items: int) -> Array:
        """Return (items, P): labels of each class per item."""
        sizes = np.diff(self.annotators.indptr)
        return np.stack([np.bincount(self.item[run], sizes[run], n_items) for run in self.bounds], axis=1)

    def counts(self, w: Array, z: Array) -> Array:
        """Return (K, L, P): Σ w_mk z_nl over the labels of each class."""
        left, right = w.take(self.item, axis=0), self.annotators @ z[: self.annotators.shape[1]]
        counts = np.empty((len(self.bounds), w.shape[1], z.shape[1]))
        for p, runs in enumerate(self.bounds):
            np.matmul(left[runs].T, right[runs], out=counts[p])
        # C order, as after unpickling: layout can change the last bits of a product
        return np.ascontiguousarray(counts.transpose(1, 2, 0))


@dataclass(frozen=True, eq=False)
class PairLayout:
    """Pairs of a shard, sorted by answer."""

    item: NDArray[np.int32]  # (pairs,) item within the shard
    annotator: NDArray[np.int32]  # (pairs,) code of the annotator
    codes: AnnotatorCodes  # annotators of the shard
    answers: Array  # (answers, P): label counts of each answer
    bounds: NDArray[np.intp]  # (answers + 1,): the pairs of answer a are bounds[a]:bounds[a + 1]
    batches: tuple[tuple[slice, slice], ...]  # answers with equally many pairs, and their pairs
    by_item: PairSums
    by_annotator: PairSums  # of ``codes``
    runs: LabelRuns

    @classmethod
    def of(cls, shard: Shard, n_annotators: int | None = None) -> PairLayout:
        """Group the labels by pair, number the distinct answers, and sort by answer.

        ``n_annotators`` sums over all annotators; None over those that occur.
        """
        first, answer, answers = _answers(shard)
        order, by_class = np.argsort(answer, kind="stable"), np.argsort(shard.label, kind="stable")
        item, annotator = shard.item[first][order], shard.annotator[first][order]
        codes: AnnotatorCodes = slice(None)
        position: NDArray[Any] = annotator
        if n_annotators is None:
            codes, position = np.unique(annotator, return_inverse=True)
            n_annotators = len(codes)
        bounds = np.searchsorted(answer[order], np.arange(len(answers) + 1))
        # if no pair has two labels, the labels by class are the pairs by answer
        run_annotator = annotator if len(first) == len(by_class) else shard.annotator[by_class]
        sums = PairSums.of(item, shard.n_items), PairSums.of(position, n_annotators)
        runs = LabelRuns.of(shard.label[by_class], shard.item[by_class], run_annotator, shard.n_classes)
        return cls(item, annotator, codes, answers, bounds, _batches(bounds), *sums, runs)

    def factors(self, log_theta: Array, dtype: Any = np.float64) -> tuple[Array, Array]:
        """Return F (answers, K, L), scaled to a maximum of 1 per answer, and the log of the scale."""
        K, L, P = log_theta.shape
        # log F_akl = Σ_p c_ap log Θ_klp
        logs = self.answers @ log_theta.reshape(K * L, P).T
        scale = logs.max(axis=1)
        logs -= scale[:, None]
        factors = np.exp(logs, out=logs)
        np.maximum(factors, MIN_FACTOR_SINGLE if dtype == np.float32 else MIN_FACTOR, out=factors)
        return factors.astype(dtype, copy=False).reshape(-1, K, L), scale


@dataclass(frozen=True, eq=False)
class PairBlock:
    """Layouts of a block's shards; tables of the block's pairs or items have those of the shards in order."""

    layouts: tuple[PairLayout, ...]
    item_slices: tuple[slice, ...]  # items of each shard within the block
    pair_slices: tuple[slice, ...]
    n_pairs: int
    codes: AnnotatorCodes  # annotators of the block
    n_codes: int
    positions: tuple[AnnotatorCodes, ...]  # positions of each layout's ``codes`` in those of the block

    @classmethod
    def of(cls, block: Block) -> PairBlock:
        """Build the layout of every shard."""
        n_shards, N = len(block.item_bounds) - 1, block.labels.n_annotators
        # with few annotators, sums over all are faster than finding those that occur
        n_annotators = N if N * n_shards <= block.rows.stop - block.rows.start else None
        layouts = [PairLayout.of(block.shard(n, n + 1), n_annotators) for n in range(n_shards)]
        items = _slices(bound - block.items.start for bound in block.item_bounds)
        pairs = _slices(itertools.accumulate((len(layout.item) for layout in layouts), initial=0))
        codes: AnnotatorCodes = slice(None)
        positions: list[Any] = [layout.codes for layout in layouts]
        if n_annotators is None:
            codes = np.unique(np.concatenate(positions))
            positions = [np.searchsorted(codes, of_layout).astype(np.int32) for of_layout in positions]
        n_codes = N if isinstance(codes, slice) else len(codes)
        return cls(tuple(layouts), items, pairs, pairs[-1].stop, codes, n_codes, tuple(positions))

    def counts(self) -> Array:
        """Return (items, P): labels of each class per item."""
        shards = zip(self.layouts, self.item_slices, strict=True)
        return np.concatenate([layout.runs.by_item(items.stop - items.start) for layout, items in shards])


def _answers(shard: Shard) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """Return the first row of each pair, the number of its answer, and the label counts of the answers.

    Answers 0 … P−1 are the single classes; the others are the multisets in the shard, most frequent first.
    """
    P = shard.n_classes
    new = (np.diff(shard.item) != 0) | (np.diff(shard.annotator) != 0)
    first = np.flatnonzero(np.concatenate([[True], new])) if len(shard.item) else np.zeros(0, np.intp)
    answer = shard.label[first].astype(np.intp)
    length = np.diff(np.append(first, len(shard.item)))
    repeated = np.flatnonzero(length > 1)
    if not len(repeated):
        return first, answer, np.eye(P)
    pair_of_row = np.repeat(np.arange(len(repeated)), length[repeated])
    starts = np.cumsum(length[repeated]) - length[repeated]
    rows = np.arange(len(pair_of_row)) + np.repeat(first[repeated] - starts, length[repeated])
    counts = np.bincount(pair_of_row * P + shard.label[rows], minlength=len(repeated) * P).reshape(-1, P)
    multisets, multiset, n_pairs = np.unique(counts, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(-n_pairs, kind="stable")
    answer[repeated] = P + np.argsort(order)[multiset.ravel()]
    return first, answer, np.vstack([np.eye(P), multisets[order]])


def _batches(bounds: NDArray[np.intp]) -> tuple[tuple[slice, slice], ...]:
    """Return runs of answers with equally many pairs, which need one stacked matrix product per run."""
    n_pairs = np.diff(bounds)
    ends = np.append(np.flatnonzero(np.diff(n_pairs)) + 1, len(n_pairs)).tolist()
    at, runs = bounds.tolist(), itertools.pairwise([0, *ends])
    return tuple([(slice(a, b), slice(at[a], at[b])) for a, b in runs if at[b] > at[a]])


# ---- message steps ------------------------------------------------------------------------------------


def cavity(belief: Array, index: NDArray[np.int32], message: Array) -> Array:
    """Return the beliefs of the variables without one factor each: belief / message, not normalised."""
    # ẑ_e(l) ∝ z_n(l) / ν_e(l)
    ratio = belief.take(index, axis=0)
    ratio /= message
    return ratio


def messages(layout: PairLayout, factors: Array, incoming: Array, out: Array | None = None) -> Array:
    """Return factor-to-variable messages (pairs, I): Σ_j F_aij incoming_e(j), one product per answer."""
    outgoing = np.empty((len(layout.item), factors.shape[1]), factors.dtype) if out is None else out
    F = np.ascontiguousarray(factors.transpose(0, 2, 1))  # makes the products faster
    for answers, rows in layout.batches:
        n = answers.stop - answers.start
        np.matmul(_stacked(incoming[rows], n), F[answers], out=_stacked(outgoing[rows], n))
    return outgoing


def _stacked(rows: Array, n: int) -> Array:
    """Return (n, rows per answer, columns), for n answers with equally many rows."""
    return rows.reshape(n, -1, rows.shape[1])


def pair_counts(layout: PairLayout, left: Array, right: Array) -> Array:
    """Return (answers, I, J): Σ_e left_e(i) right_e(j) over the pairs of each answer."""
    counts = np.zeros((len(layout.answers), left.shape[1], right.shape[1]), left.dtype)
    for answers, rows in layout.batches:
        n = answers.stop - answers.start
        stacked_left, stacked_right = _stacked(left[rows], n), _stacked(right[rows], n)
        np.matmul(stacked_left.transpose(0, 2, 1), stacked_right, out=counts[answers])
    return counts


def class_counts(layout: PairLayout, counts: Array) -> Array:
    """Return (I, J, P): label counts by class, from pair counts by answer."""
    n_answers, *clusters = counts.shape
    return np.asarray(counts.reshape(n_answers, -1).T @ layout.answers).reshape(*clusters, -1)
