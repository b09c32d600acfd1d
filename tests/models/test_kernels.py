"""Kernels of PGM: each fast step against a plain loop."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

import dissensus as ds
from dissensus.engine import cut_blocks
from dissensus.models.pgm import kernels
from dissensus.numerics import row_sums, safe_log
from tests.helpers.small_graphs import crowd, random_parameters

# Item 0: annotator 0 twice the same class, annotator 1 two classes, annotator 2 once; item 1: no labels;
# item 2: annotator 1 with the same two classes as on item 0, annotator 0 with three labels.
ROWS = [(0, 0, 1), (0, 0, 1), (0, 1, 0), (0, 1, 2), (0, 2, 2)]
ROWS += [(2, 1, 2), (2, 1, 0), (2, 0, 1), (2, 0, 1), (2, 0, 0)]
REPEATED = crowd(ROWS, 3, 4, 3)


def layout_of(annotations: ds.Annotations) -> kernels.PairLayout:
    (block,) = cut_blocks(annotations)
    return kernels.PairLayout.of(block.shard())


def block_of(annotations: ds.Annotations) -> kernels.PairBlock:
    (block,) = cut_blocks(annotations)
    return kernels.PairBlock.of(block)


def answer_of(layout: kernels.PairLayout) -> NDArray[np.intp]:
    """Return the number of every pair's answer."""
    return np.repeat(np.arange(len(layout.answers)), np.diff(layout.bounds))


def large_crowd(seed: int = 0) -> ds.Annotations:
    """Simulate 300 items; some pairs have up to four labels."""
    rng = np.random.default_rng(seed)
    rows = rng.integers([300, 20, 5], size=(4000, 3))
    return crowd([tuple(row) for row in rows.tolist()], 300, 20, 5)


def test_answers_and_batches_by_hand() -> None:
    layout = layout_of(REPEATED)
    # {0,2} (twice), {1,1} and {0,1,1}: frequent ones first, then in the order of their counts
    assert_array_equal(layout.answers, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 2, 0], [1, 2, 0]])
    assert_array_equal(np.diff(layout.bounds), [0, 0, 1, 2, 1, 1])
    # one pair of class 2; the two of {0,2}; {1,1} and {0,1,1} in one product, with a pair each
    answers_and_pairs = [((2, 3), (0, 1)), ((3, 4), (1, 3)), ((4, 6), (3, 5))]
    assert layout.batches == tuple((slice(*answers), slice(*pairs)) for answers, pairs in answers_and_pairs)


def test_a_shard_without_labels_has_no_pairs() -> None:
    layout = layout_of(crowd([], 3, 2, 2))
    assert len(layout.item) == 0
    assert layout.batches == ()
    assert_array_equal(layout.by_item.of_logs(np.zeros((0, 4)), 1.0), np.zeros((3, 4)))


def test_pair_sums_equal_loops() -> None:
    annotations = large_crowd()
    layout = layout_of(annotations)
    values = np.random.default_rng(1).random((len(layout.item), 3))
    by_item, by_annotator = np.zeros((300, 3)), np.zeros((20, 3))
    for e in range(len(layout.item)):
        by_item[layout.item[e]] += values[e]
        by_annotator[layout.annotator[e]] += values[e]
    assert_array_equal(layout.runs.by_item(300), annotations.counts)
    assert_allclose(layout.by_item.of_logs(np.exp(values), 1.0), by_item, rtol=1e-12)
    assert_allclose(layout.by_annotator.of_logs(np.exp(values), 1.0), by_annotator[layout.codes], rtol=1e-12)


MANY = np.repeat([0, 2], [2, 2 * kernels.PAIRS_PER_GROUP + 5])  # 2 pairs, none, 2 full groups and 5 more


@pytest.mark.parametrize("extreme", [-kernels.MAX_LOG_MESSAGE, kernels.MAX_LOG_MESSAGE, -1.0, 0.0])
def test_logs_of_extreme_messages_are_exact(extreme: float) -> None:
    sums, n = kernels.PairSums.of(MANY, 3), len(MANY)
    logs = sums.of_logs(np.full((n, 1), math.exp(extreme)), abs(extreme))
    assert_allclose(logs, [[2 * extreme], [0.0], [(n - 2) * extreme]], rtol=1e-13)
    single = sums.of_logs(np.full((n, 1), kernels.MIN_FACTOR_SINGLE, np.float32), 70.0)
    assert_allclose(single, [[-140.0], [0.0], [-70.0 * (n - 2)]], rtol=1e-7)


@pytest.mark.parametrize("reach", [0.5, 9.0, 40.0, kernels.MAX_LOG_MESSAGE])
@pytest.mark.parametrize(
    "target", [np.arange(7) % 3, np.arange(60) % 4, MANY], ids=["few", "15 each", "many"]
)
@pytest.mark.parametrize("own_prior", [False, True])
def test_beliefs_are_the_prior_times_the_messages(
    reach: float, target: NDArray[np.int64], own_prior: bool
) -> None:
    """Products and sums of logarithms give the same beliefs."""
    rng, n = np.random.default_rng(8), int(target.max()) + 1
    logs = rng.uniform(-reach, reach, (len(target), 3))
    log_prior = rng.uniform(-300.0, 0.0, (n, 3)) if own_prior else np.log([0.2, 0.5, 0.3])
    scores = np.zeros((n, 3)) + log_prior
    np.add.at(scores, target, logs)
    top = scores.max(axis=1, keepdims=True)
    sums = np.exp(scores - top).sum(axis=1, keepdims=True)
    beliefs, terms = kernels.PairSums.of(target, n).beliefs(np.exp(logs), log_prior, reach)
    assert_allclose(beliefs, np.exp(scores - top) / sums, rtol=1e-9, atol=1e-300)
    assert_allclose(terms, (top + np.log(sums))[:, 0], rtol=1e-12)


def test_annotator_codes_of_a_block() -> None:
    assert_array_equal(layout_of(REPEATED).codes, [0, 1, 2])  # annotator 3 has no labels
    few = block_of(REPEATED)  # ten labels, four annotators
    assert few.codes == few.positions[0] == slice(None)
    assert few.n_codes == 4
    many = block_of(crowd([(0, 1, 0), (1, 5, 1), (1, 1, 1)], 2, 9, 2))
    assert_array_equal(many.codes, [1, 5])
    assert_array_equal(many.positions[0], [0, 1])
    assert many.n_codes == 2


def test_factors_are_products_over_labels() -> None:
    theta, _, _ = random_parameters(3, 2, 3, np.random.default_rng(2))
    layout = layout_of(REPEATED)
    factors, scale = layout.factors(np.log(theta))
    for counts, scaled, top in zip(layout.answers, factors, scale, strict=True):
        expected = [
            [math.prod(theta[k, l, p] ** counts[p] for p in range(3)) for l in range(2)]  # noqa: E741
            for k in range(3)
        ]
        assert_allclose(scaled * math.exp(top), expected, rtol=1e-12)
        assert scaled.max() == 1.0


def test_factors_have_a_minimum() -> None:
    theta = np.array([[[1.0, 0.0]], [[0.5, 0.5]]])  # K = 2, L = 1
    layout = layout_of(crowd([(0, 0, 1)] + [(1, 0, 0)] * 5000, 2, 1, 2))
    factors, scale = layout.factors(safe_log(theta))
    assert math.log(kernels.MIN_FACTOR) == -150
    # class 1: impossible in the first cluster; 5,000 × class 0: 5000 · log 2 less likely in the second
    assert_array_equal(factors[1], [[kernels.MIN_FACTOR], [1.0]])
    assert_array_equal(factors[2], [[1.0], [kernels.MIN_FACTOR]])
    assert_allclose(scale, [0.0, math.log(0.5), 0.0], rtol=1e-15)


@pytest.mark.parametrize("seed", range(3))
def test_messages_equal_a_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layout = layout_of(large_crowd(seed))
    to_items = rng.random((len(layout.answers), 4, 3))
    for factors in (to_items, to_items.transpose(0, 2, 1)):
        incoming = rng.random((len(layout.item), factors.shape[2]))
        expected = [factors[a] @ row for a, row in zip(answer_of(layout), incoming, strict=True)]
        assert_allclose(kernels.messages(layout, factors, incoming), expected, rtol=1e-12)


def test_cavity_by_hand() -> None:
    belief, message = np.array([[0.2, 0.8], [0.5, 0.5]]), np.array([[0.5, 0.25], [1.0, 0.1], [0.2, 0.2]])
    ratio = kernels.cavity(belief, np.array([0, 1, 0]), message)
    assert_allclose(ratio, [[0.4, 3.2], [0.5, 5.0], [1.0, 4.0]], rtol=1e-15)
    assert_allclose(row_sums(ratio), [3.6, 5.5, 5.0], rtol=1e-15)
    assert_array_equal(belief, [[0.2, 0.8], [0.5, 0.5]])  # unchanged


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
    counts = kernels.pair_counts(layout, left, right)
    assert_allclose(counts, by_answer, rtol=1e-12)
    assert_allclose(kernels.class_counts(layout, counts), by_class, rtol=1e-12)


@pytest.mark.parametrize("annotations", [REPEATED, large_crowd(), crowd([], 2, 1, 3)])
def test_run_counts_equal_a_loop(annotations: ds.Annotations) -> None:
    rng, P = np.random.default_rng(5), annotations.n_classes
    w, z = rng.random((annotations.n_items, 2)), rng.random((annotations.n_annotators, 4))
    expected = np.zeros((2, 4, P))
    for m, n, y in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        expected[:, :, y] += np.outer(w[m], z[n])
    assert_allclose(layout_of(annotations).runs.counts(w, z), expected, rtol=1e-12)
