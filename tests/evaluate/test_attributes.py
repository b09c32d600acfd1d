"""Share of the disagreement that an attribute explains: by hand, against enumeration, and its coverage."""

import itertools

import numpy as np
import pytest

import dissensus as ds
from dissensus.evaluate.attributes import Triples, annotator_attributes, explained_share, share_of
from dissensus.evaluate.group_agreement import Votes
from experiments.attributes import SIZES, planted
from tests.helpers.sizes import usually

pytestmark = pytest.mark.no_cover


def enumerated(item, answer, value, V):  # type: ignore[no-untyped-def]
    """Return the columns of ``Triples.sums``, triple by triple."""
    difference, triples, agreed, pairs = np.zeros((V, V)), np.zeros((V, V)), 0.0, 0
    for m in np.unique(item):
        for i, j in itertools.permutations(np.flatnonzero(item == m), 2):
            agreed, pairs = agreed + answer[i] @ answer[j], pairs + 1
            for k in np.flatnonzero((item == m) & (value != value[i])) if value[i] == value[j] else ():
                difference[value[i], value[k]] += answer[i] @ answer[j] - answer[i] @ answer[k]
                triples[value[i], value[k]] += 1
    return np.concatenate([difference.ravel(), triples.ravel(), [agreed, pairs]])


def test_triples_equal_enumeration_with_and_without_each_label() -> None:
    rng = np.random.default_rng(0)
    item, value = np.repeat(np.arange(5), 6), rng.integers(3, size=30)
    answer = rng.dirichlet(np.ones(3), size=30)  # several labels of one annotator count in equal shares
    triples, total = Triples.of(item, answer, value, 3), enumerated(item, answer, value, 3)
    np.testing.assert_allclose(triples.sums.sum(axis=0), total, atol=1e-12)
    ((_, without),) = triples.without_each_label()
    for e in range(30):
        rest = np.arange(30) != e
        expected = total - enumerated(item[rest], answer[rest], value[rest], 3)
        np.testing.assert_allclose(without[e], expected, atol=1e-12)


def test_share_by_hand() -> None:
    """All of the disagreement is between the values, then none of it."""
    item, annotator = (column.ravel() for column in np.indices((30, 8)))
    value = np.arange(8) % 2
    apart = ds.Annotations.from_arrays(item, annotator, (item + value[annotator]) % 2)
    # agreement: 1 with 3 of the 7 others. S = 2 · ¼ · 1, 1 − A = 4/7
    share, low, high = explained_share(Votes.of(apart), value, 2, 0.9)
    assert share == pytest.approx(0.5 / (4 / 7))
    assert low <= share <= high
    # one annotator with each value always answers otherwise: triples (i, j; k) by hand
    odd = ds.Annotations.from_arrays(item, annotator, (item + (annotator < 2)) % 2)
    # with the same value: 3 of 6 pairs agree; with another: (1 · 1 + 3 · 3) / 16
    expected = 2 * 0.25 * (3 / 6 - 10 / 16) / (12 / 28)
    assert explained_share(Votes.of(odd), value, 2, 0.9)[0] == pytest.approx(expected)


def test_values_that_never_meet_explain_nothing_that_is_known() -> None:
    item, annotator = (column.ravel() for column in np.indices((20, 6)))
    meet = (item < 10) == (annotator < 3)
    labels = ds.Annotations.from_arrays(item[meet], annotator[meet], item[meet] % 2)
    assert np.isnan(explained_share(Votes.of(labels), np.arange(6) // 3, 2, 0.9)).all()
    assert np.isnan(explained_share(Votes.of(labels), np.full(6, -1), 2, 0.9)).all()
    assert np.isnan(share_of(np.zeros(10), np.array([0.5, 0.5])))


def test_intervals_cover_planted_shares() -> None:
    hits, n = [], usually(12, verify=60)
    for number, effect, size in itertools.product(range(n), (0.0, 0.6), range(2)):
        crowd = planted((5, size, int(10 * effect), number), effect, *SIZES[size], evenness=30.0)
        found = annotator_attributes(crowd.labels)
        assert found.column.tolist() == ["region", "hand"]
        hits.append((found.low <= [crowd.explained, 0]) & ([crowd.explained, 0] <= found.high))
    covered = np.mean(hits)
    assert abs(covered - 0.9) < 4 * np.sqrt(0.09 / len(hits))
