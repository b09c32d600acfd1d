"""Share of the disagreement that an attribute explains: by hand, against enumeration, and its coverage."""

import itertools
from collections import defaultdict

import numpy as np
import pytest

import dissensus as ds
from dissensus.evaluate import attributes
from dissensus.evaluate.attributes import Triples, annotator_attributes, explained_share, share_of
from dissensus.evaluate.group_agreement import Votes
from experiments.attributes import SIZES, planted
from tests.helpers.sizes import usually

pytestmark = pytest.mark.no_cover


def enumerated(item, answer, value, V):  # type: ignore[no-untyped-def]
    """Return the columns of ``Triples.means`` of each item, triple by triple."""
    means = np.zeros((item.max() + 1, 4, V, V))
    for m in np.unique(item):
        contrast, disagreement = defaultdict[tuple[int, int], list[float]](list), defaultdict(list)
        for i, j in itertools.permutations(np.flatnonzero(item == m), 2):
            disagreement[value[i], value[j]].append(1 - answer[i] @ answer[j])
            for k in np.flatnonzero((item == m) & (value != value[i])) if value[i] == value[j] else ():
                contrast[value[i], value[k]].append(answer[i] @ answer[j] - answer[i] @ answer[k])
        for number, found in ((0, contrast), (2, disagreement)):
            for pair, terms in found.items():
                means[m, number][pair], means[m, number + 1][pair] = np.mean(terms), 1
    return means.reshape(len(means), -1)


def test_triples_equal_enumeration_with_and_without_each_label() -> None:
    rng = np.random.default_rng(0)
    item, value = np.repeat(np.arange(5), 6), rng.integers(3, size=30)
    answer = rng.dirichlet(np.ones(3), size=30)  # several labels of one annotator count in equal shares
    triples, means = Triples.of(item, answer, value, 3), enumerated(item, answer, value, 3)
    np.testing.assert_allclose(triples.means, means, atol=1e-12)
    ((_, without),) = triples.without_each_label()
    for e in range(30):
        rest = np.arange(30) != e
        expected = means - enumerated(item[rest], answer[rest], value[rest], 3)
        np.testing.assert_allclose(without[e], expected[item[e]], atol=1e-12)


def test_share_by_hand() -> None:
    """All of the disagreement is between the values, then none of it."""
    item, annotator = (column.ravel() for column in np.indices((30, 8)))
    value = np.arange(8) % 2
    apart = ds.Annotations.from_arrays(item, annotator, (item + value[annotator]) % 2)
    # S = 2 · ¼ · 1; annotators with one value agree, and those with different values never do
    share, low, high = explained_share(Votes.of(apart), value, 2, 0.9)
    assert share == pytest.approx(1)
    assert low <= share <= high
    # one annotator with each value always answers otherwise: triples (i, j; k) by hand
    odd = ds.Annotations.from_arrays(item, annotator, (item + (annotator < 2)) % 2)
    # with the same value: 3 of 6 pairs agree; with another: (1 · 1 + 3 · 3) / 16
    expected = 2 * 0.25 * (3 / 6 - 10 / 16) / (2 * 0.25 * 3 / 6 + 2 * 0.25 * 6 / 16)
    assert explained_share(Votes.of(odd), value, 2, 0.9)[0] == pytest.approx(expected)


def test_values_that_never_meet_explain_nothing_that_is_known() -> None:
    item, annotator = (column.ravel() for column in np.indices((20, 6)))
    meet = (item < 10) == (annotator < 3)
    labels = ds.Annotations.from_arrays(item[meet], annotator[meet], item[meet] % 2)
    assert np.isnan(explained_share(Votes.of(labels), np.arange(6) // 3, 2, 0.9)).all()
    assert np.isnan(explained_share(Votes.of(labels), np.full(6, -1), 2, 0.9)).all()
    assert np.isnan(share_of(np.zeros(16), np.array([0.5, 0.5])))


def test_labels_per_item_and_annotator_do_not_matter() -> None:
    """Items with an effect have more labels, or fewer, and half of the annotators label little."""
    rng, n = np.random.default_rng(3), 400
    value = np.arange(60) % 2
    shares, weights = [], np.where(np.arange(60) < 30, 1.0, 0.1)
    for per_item in ((10, 10), (20, 6), (6, 20)):
        who = [rng.choice(60, per_item[m % 2], replace=False, p=weights / weights.sum()) for m in range(n)]
        item, annotator = np.repeat(np.arange(n), list(map(len, who))), np.concatenate(who)
        # on every second item, value 1 answers 1 three times as often
        chance = np.where(item % 2 == 0, np.where(value[annotator] == 1, 0.75, 0.25), 0.5)
        labels = ds.Annotations.from_arrays(item, annotator, rng.random(len(item)) < chance)
        shares.append(explained_share(Votes.of(labels), value, 2, 0.9)[0])
    # S = ½ · 2 · ¼²,  1 − A = ½
    np.testing.assert_allclose(shares, 0.125, atol=0.04)


def test_intervals_cover_planted_shares() -> None:
    hits, n = [], usually(12, verify=60)
    for number, effect, size in itertools.product(range(n), (0.0, 0.6), range(2)):
        crowd = planted((5, size, int(10 * effect), number), effect, *SIZES[size], evenness=30.0)
        found = annotator_attributes(crowd.labels)
        assert found.column.tolist() == ["region", "hand"]
        hits.append((found.low <= [crowd.explained, 0]) & ([crowd.explained, 0] <= found.high))
    covered = np.mean(hits)
    assert abs(covered - 0.9) < 4 * np.sqrt(0.09 / len(hits))


def test_many_labels_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the items gives about the same share, in bounded memory."""
    crowd = planted((9, 0), 1.0, *SIZES[1], evenness=30.0)
    whole = annotator_attributes(crowd.labels)
    monkeypatch.setattr(attributes, "MAX_CELLS", 300 * 4 * 4)
    part = annotator_attributes(crowd.labels)
    assert part.explained[0] != whole.explained[0]
    assert part.low[0] < whole.explained[0] < part.high[0]
    assert part.high[0] - part.low[0] > whole.high[0] - whole.low[0]
