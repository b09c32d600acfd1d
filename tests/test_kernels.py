"""Kernels: each fast step against its plain twin or a loop written out here."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray

import dissensus as ds
from dissensus.engine import cut_blocks
from dissensus.models.pgm.kernels import (
    FLOOR,
    FLOOR_SINGLE,
    FURTHEST,
    GROUP,
    RANGE,
    PairBlock,
    PairLayout,
    PairSums,
    cavity,
    class_counts,
    messages,
    pair_counts,
)
from dissensus.numerics import (
    normalised,
    one_hot_rows,
    row_sums,
    safe_log,
    softmax_columns,
    softmax_rows,
    sum_of_logs,
)
from small_graphs import crowd, random_parameters

Array = NDArray[np.float64]

# Item 0: annotator 0 twice the same, annotator 1 twice differently, annotator 2 once; item 1: nobody;
# item 2: annotator 1 with the same two labels as on item 0, annotator 0 three labels.
REPEATED = crowd(
    [
        *[(0, 0, 1), (0, 0, 1), (0, 1, 0), (0, 1, 2), (0, 2, 2)],
        *[(2, 1, 2), (2, 1, 0), (2, 0, 1), (2, 0, 1), (2, 0, 0)],
    ],
    *(3, 4, 3),
)


def messages_plain(layout: PairLayout, factors: Array, incoming: Array) -> Array:
    """Messages one pair at a time."""
    answer = np.repeat(np.arange(len(factors)), np.diff(layout.bounds))
    return np.array([factors[answer[e]] @ incoming[e] for e in range(len(layout.item))])


def layout_of(annotations: ds.Annotations) -> PairLayout:
    (block,) = cut_blocks(annotations)
    return PairLayout.of(block.shard())


def block_of(annotations: ds.Annotations) -> PairBlock:
    (block,) = cut_blocks(annotations)
    return PairBlock.of(block)


def answer_of(layout: PairLayout) -> NDArray[np.intp]:
    """The number of every pair's answer."""
    return np.repeat(np.arange(len(layout.answers)), np.diff(layout.bounds))


def multisets(annotations: ds.Annotations) -> dict[tuple[int, int], Counter[int]]:
    """What stands in each (item, annotator) pair, read row by row."""
    found: dict[tuple[int, int], Counter[int]] = {}
    for m, n, y in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        found.setdefault((int(m), int(n)), Counter())[int(y)] += 1
    return found


def large_crowd(seed: int = 0) -> ds.Annotations:
    """300 items, some pairs labelled up to four times."""
    rng = np.random.default_rng(seed)
    rows = rng.integers([300, 20, 5], size=(4000, 3))
    return crowd([tuple(row) for row in rows.tolist()], 300, 20, 5)


# ---- the layout ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("annotations", [REPEATED, large_crowd()], ids=["by hand", "random"])
def test_the_answer_of_a_pair_is_its_multiset_of_labels(annotations: ds.Annotations) -> None:
    layout = layout_of(annotations)
    expected = multisets(annotations)
    assert len(layout.item) == len(expected) == annotations.n_pairs
    answers = layout.answers[answer_of(layout)]
    for m, n, counts in zip(layout.item, layout.annotator, answers, strict=True):
        assert {p: int(c) for p, c in enumerate(counts) if c} == dict(expected.pop((int(m), int(n))))
    assert not expected


def test_single_labels_come_first_and_answers_that_repeat_are_one() -> None:
    layout = layout_of(REPEATED)
    # {0,2} (twice), {1,1} and {0,1,1}: frequent ones first, then in the order of their counts
    np.testing.assert_array_equal(
        layout.answers, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 2, 0], [1, 2, 0]]
    )
    np.testing.assert_array_equal(np.diff(layout.bounds), [0, 0, 1, 2, 1, 1])
    # one pair of class 2; the two of {0,2}; {1,1} and {0,1,1} in one product, with a pair each
    assert layout.batches == (
        (slice(2, 3), slice(0, 1)),
        (slice(3, 4), slice(1, 3)),
        (slice(4, 6), slice(3, 5)),
    )


def test_no_two_answers_are_alike() -> None:
    layout = layout_of(large_crowd())
    assert len(np.unique(layout.answers, axis=0)) == len(layout.answers) > 5


def test_a_shard_without_labels_has_no_pairs() -> None:
    layout = layout_of(crowd([], 3, 2, 2))
    assert len(layout.item) == 0
    assert layout.batches == ()
    np.testing.assert_array_equal(layout.by_item.of_rows(np.zeros((0, 4))), np.zeros((3, 4)))
    np.testing.assert_array_equal(layout.by_item.of_logs(np.zeros((0, 4)), 1.0), np.zeros((3, 4)))


def test_sums_over_the_pairs_of_items_and_annotators() -> None:
    annotations = large_crowd()
    layout = layout_of(annotations)
    values = np.random.default_rng(1).random((len(layout.item), 3))
    by_item, by_annotator = np.zeros((300, 3)), np.zeros((20, 3))
    for e in range(len(layout.item)):
        by_item[layout.item[e]] += values[e]
        by_annotator[layout.annotator[e]] += values[e]
    np.testing.assert_allclose(layout.by_item.of_rows(values), by_item, rtol=1e-12)
    np.testing.assert_allclose(layout.by_annotator.of_rows(values), by_annotator[layout.who], rtol=1e-12)
    np.testing.assert_allclose(layout.by_item.of_logs(np.exp(values), 1.0), by_item, rtol=1e-12)
    np.testing.assert_allclose(
        layout.by_annotator.of_logs(np.exp(values), 1.0), by_annotator[layout.who], rtol=1e-12
    )


MANY = np.repeat([0, 2], [2, 2 * GROUP + 5])  # two pairs, none, and two full groups with five more


@pytest.mark.parametrize("extreme", [-FURTHEST, FURTHEST, -1.0, 0.0])
def test_logarithms_of_the_least_and_the_largest_messages_are_summed_without_loss(extreme: float) -> None:
    sums, n = PairSums.of(MANY, 3), len(MANY)
    logs = sums.of_logs(np.full((n, 1), math.exp(extreme)), abs(extreme))
    np.testing.assert_allclose(logs, [[2 * extreme], [0.0], [(n - 2) * extreme]], rtol=1e-13)
    single = sums.of_logs(np.full((n, 1), FLOOR_SINGLE, np.float32), 70.0)
    np.testing.assert_allclose(single, [[-140.0], [0.0], [-70.0 * (n - 2)]], rtol=1e-7)


@pytest.mark.parametrize("reach", [0.5, 9.0, 40.0, FURTHEST])
@pytest.mark.parametrize(
    "target", [np.arange(7) % 3, np.arange(60) % 4, MANY], ids=["few", "15 each", "many"]
)
@pytest.mark.parametrize("own_prior", [False, True])
def test_beliefs_are_the_prior_times_the_messages(
    reach: float, target: NDArray[np.int64], own_prior: bool
) -> None:
    """Whether products are normalised, or logarithms of them: the same as a sum of every logarithm."""
    rng, n = np.random.default_rng(8), int(target.max()) + 1
    logs = rng.uniform(-reach, reach, (len(target), 3))
    log_prior = rng.uniform(-300.0, 0.0, (n, 3)) if own_prior else np.log([0.2, 0.5, 0.3])
    scores = np.zeros((n, 3)) + log_prior
    np.add.at(scores, target, logs)
    top = scores.max(axis=1, keepdims=True)
    sums = np.exp(scores - top).sum(axis=1, keepdims=True)
    found, terms = PairSums.of(target, n).beliefs(np.exp(logs), log_prior, reach)
    np.testing.assert_allclose(found, np.exp(scores - top) / sums, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(terms, (top + np.log(sums))[:, 0], rtol=1e-12)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("reach", [1.0, RANGE / GROUP, 60.0, FURTHEST])
def test_as_many_messages_are_multiplied_as_stay_within_double_precision(reach: float, sign: int) -> None:
    sums = PairSums.of(np.zeros(GROUP, np.int64), 1)
    logs = sums.of_logs(np.full((GROUP, 1), math.exp(sign * reach)), reach)
    np.testing.assert_allclose(logs, [[GROUP * sign * reach]], rtol=1e-12)


@pytest.mark.parametrize("n", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("extreme", [math.log(FLOOR), -math.log(FLOOR)])
def test_logarithms_are_summed_in_any_number(n: int, extreme: float) -> None:
    exponents = extreme * np.random.default_rng(n).uniform(0.9, 1.0, n)
    np.testing.assert_allclose(sum_of_logs(np.exp(exponents)), exponents.sum(), rtol=1e-13)
    small = exponents * (70 / 150)  # what single precision holds
    np.testing.assert_allclose(sum_of_logs(np.exp(small).astype(np.float32)), small.sum(), rtol=1e-6)


def test_annotators_are_those_of_the_shard_or_where_they_are_few_everyone() -> None:
    np.testing.assert_array_equal(layout_of(REPEATED).who, [0, 1, 2])  # annotator 3 gave no label
    few = block_of(REPEATED)  # ten labels, four annotators
    assert few.who == few.places[0] == slice(None)
    assert few.n_who == 4
    many = block_of(crowd([(0, 1, 0), (1, 5, 1), (1, 1, 1)], 2, 9, 2))
    np.testing.assert_array_equal(many.who, [1, 5])
    np.testing.assert_array_equal(many.places[0], [0, 1])
    assert many.n_who == 2


# ---- factors -------------------------------------------------------------------------------------------


def test_the_factor_of_an_answer_is_the_product_of_its_labels() -> None:
    theta, _, _ = random_parameters(3, 2, 3, np.random.default_rng(2))
    layout = layout_of(REPEATED)
    factors, scale = layout.factors(np.log(theta))
    for counts, scaled, top in zip(layout.answers, factors, scale, strict=True):
        expected = [
            [math.prod(theta[k, l, p] ** counts[p] for p in range(3)) for l in range(2)]  # noqa: E741
            for k in range(3)
        ]
        np.testing.assert_allclose(scaled * math.exp(top), expected, rtol=1e-12)
        assert scaled.max() == 1.0


def test_a_factor_never_falls_below_the_floor() -> None:
    theta = np.array([[[1.0, 0.0]], [[0.5, 0.5]]])  # K = 2, L = 1
    layout = layout_of(crowd([(0, 0, 1)] + [(1, 0, 0)] * 5000, 2, 1, 2))
    factors, scale = layout.factors(safe_log(theta))
    assert math.log(FLOOR) == -150
    # class 1: impossible in the first cluster; 5,000 × class 0: 5000 · log 2 less likely in the second
    np.testing.assert_array_equal(factors[1], [[FLOOR], [1.0]])
    np.testing.assert_array_equal(factors[2], [[1.0], [FLOOR]])
    np.testing.assert_allclose(scale, [0.0, math.log(0.5), 0.0], rtol=1e-15)


# ---- messages ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_messages_equal_their_plain_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layout = layout_of(large_crowd(seed))
    factors = rng.random((len(layout.answers), 4, 3))
    incoming = rng.random((len(layout.item), 3))
    np.testing.assert_allclose(
        messages(layout, factors, incoming), messages_plain(layout, factors, incoming), rtol=1e-12
    )
    back, outgoing = factors.transpose(0, 2, 1), rng.random((len(layout.item), 4))
    np.testing.assert_allclose(
        messages(layout, back, outgoing), messages_plain(layout, back, outgoing), rtol=1e-12
    )


def test_a_message_by_hand() -> None:
    layout = layout_of(crowd([(0, 0, 0), (0, 0, 1)], 1, 1, 2))  # one pair, both classes
    theta = np.array([[[0.9, 0.1], [0.4, 0.6]], [[0.5, 0.5], [0.2, 0.8]]])
    factors, scale = layout.factors(np.log(theta))
    message = messages(layout, factors, np.array([[0.25, 0.75]])) * math.exp(scale[2])
    # F = [[.09, .24], [.25, .16]];  F · (1/4, 3/4)
    np.testing.assert_allclose(message, [[0.2025, 0.1825]], rtol=1e-12)


def test_a_cavity_is_the_belief_without_the_message() -> None:
    belief, message = np.array([[0.2, 0.8], [0.5, 0.5]]), np.array([[0.5, 0.25], [1.0, 0.1], [0.2, 0.2]])
    ratio = cavity(belief, np.array([0, 1, 0]), message)
    np.testing.assert_allclose(ratio, [[0.4, 3.2], [0.5, 5.0], [1.0, 4.0]], rtol=1e-15)
    np.testing.assert_allclose(row_sums(ratio), [3.6, 5.5, 5.0], rtol=1e-15)
    np.testing.assert_array_equal(belief, [[0.2, 0.8], [0.5, 0.5]])  # not written over


def test_pair_counts_and_class_counts_equal_loops() -> None:
    rng = np.random.default_rng(4)
    layout = layout_of(REPEATED)
    left, right = rng.random((len(layout.item), 2)), rng.random((len(layout.item), 3))
    by_answer = np.zeros((len(layout.answers), 2, 3))
    by_class = np.zeros((2, 3, 3))
    for e, a in enumerate(answer_of(layout)):
        by_answer[a] += np.outer(left[e], right[e])
        for p in range(3):
            by_class[:, :, p] += layout.answers[a, p] * np.outer(left[e], right[e])
    counts = pair_counts(layout, left, right)
    np.testing.assert_allclose(counts, by_answer, rtol=1e-12)
    np.testing.assert_allclose(class_counts(layout, counts), by_class, rtol=1e-12)


@pytest.mark.parametrize("annotations", [REPEATED, large_crowd(), crowd([], 2, 1, 3)])
def test_counts_of_products_equal_a_loop_over_the_labels(annotations: ds.Annotations) -> None:
    rng, P = np.random.default_rng(5), annotations.n_classes
    w, z = rng.random((annotations.n_items, 2)), rng.random((annotations.n_annotators, 4))
    expected = np.zeros((2, 4, P))
    for m, n, y in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        expected[:, :, y] += np.outer(w[m], z[n])
    np.testing.assert_allclose(layout_of(annotations).same.counts(w, z), expected, rtol=1e-12)


def test_class_counts_keep_every_label() -> None:
    layout = layout_of(REPEATED)
    ones = np.ones((len(layout.item), 1))
    counts = class_counts(layout, pair_counts(layout, ones, ones))
    np.testing.assert_array_equal(counts[0, 0], np.bincount(REPEATED.label, minlength=3))


# ---- rows of probabilities -----------------------------------------------------------------------------


def test_rows_are_normalised_and_rows_without_mass_become_uniform() -> None:
    np.testing.assert_allclose(
        normalised(np.array([[1.0, 3.0], [0.0, 0.0]])), [[0.25, 0.75], [0.5, 0.5]], rtol=1e-15
    )


def test_the_softmax_survives_any_size() -> None:
    logits = np.array([[1e5, 1e5 + math.log(3)], [-1e5, -1e5], [0.0, -2000.0]])
    by_column, sums_of_columns = softmax_columns(logits.T)
    for chances, sums in (softmax_rows(logits), (by_column.T, sums_of_columns)):
        np.testing.assert_allclose(chances, [[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]], rtol=1e-10)
        np.testing.assert_allclose(sums, [1e5 + math.log(4), -1e5 + math.log(2), 0.0], rtol=1e-15)


def test_the_logarithm_of_nothing_is_finite() -> None:
    np.testing.assert_allclose(safe_log(np.array([0.0, 1.0])), [math.log(2.2250738585072014e-308), 0.0])


def test_one_hot_takes_the_first_of_several() -> None:
    np.testing.assert_array_equal(
        one_hot_rows(np.array([[0.4, 0.4, 0.2], [0.1, 0.2, 0.7]])), [[1, 0, 0], [0, 0, 1]]
    )
