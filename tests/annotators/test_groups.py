"""Groups of annotators: found where planted, and nowhere else; every number by hand or by enumeration."""

import numpy as np
import pytest
from scipy import optimize

import dissensus as ds
from dissensus.annotators import groups
from dissensus.annotators.groups import Rows, find_groups
from dissensus.annotators.verdicts import minority_probability, searched_groups
from dissensus.evaluate.group_agreement import Votes, annotator_agreement
from experiments.verdicts import planted_crowd
from tests.helpers.sizes import usually

pytestmark = pytest.mark.no_cover


def votes_of(crowd):
    return Votes.of(crowd.annotations)


def with_group(seed, share=0.3, labels_each=150):
    settings = {"labels_each": labels_each, "group": share, "contested": 0.2, "accuracy": 0.85, "spammers": 0}
    return planted_crowd(seed, **settings)


@pytest.mark.parametrize("seed", range(3))
def test_planted_groups_are_found(seed):
    crowd = with_group(seed)
    found = find_groups(votes_of(crowd))
    member = crowd.kind == "group"
    assert (found.group[member] == 1).mean() > 0.9
    assert (found.group[~member] == 0).mean() > 0.9
    assert min(found.within) > found.across
    assert found.gap.low > 0


def harsh_crowd(seed, n_classes):
    """Return the labels of 20 annotators with grades of their own levels, normally distributed."""
    rng = np.random.default_rng([3, seed])
    item, annotator = (codes.ravel() for codes in np.indices((300, 20)))
    shown = rng.random(item.size) < 0.3
    item, annotator = item[shown], annotator[shown]
    value = rng.normal(size=300)[item] + rng.normal(0, 0.6, 20)[annotator] + rng.normal(0, 0.6, item.size)
    grade = np.digitize(value, np.linspace(-1.5, 1.5, n_classes - 1)) if n_classes > 2 else value > 0
    return Votes.of(ds.Annotations.from_arrays(item, annotator, grade.astype(int), classes=range(n_classes)))


def test_crowds_without_groups_hardly_ever_have_some():
    claimed = []
    for seed in range(usually(6, verify=40)):
        alike = planted_crowd(seed, spammers=0, labels_each=100)
        unequal = planted_crowd(seed, spammers=0, labels_each=100, accuracy=0.75, spread=0.15)
        claimed += [find_groups(votes_of(crowd)) is not None for crowd in (alike, unequal)]
        claimed += [find_groups(harsh_crowd(seed, size)) is not None for size in (2, 5)]
        claimed.append(find_groups(harsh_crowd(seed, 5), is_scale=True) is not None)
    assert sum(claimed) <= max(1, 0.04 * len(claimed))


def test_groups_in_bias_alone_need_separation_and_no_scale():
    """Two halves of a crowd whose thresholds differ: groups of classes, but not of a scale."""
    rng = np.random.default_rng(0)
    item, annotator = (codes.ravel() for codes in np.indices((400, 8)))
    level = np.where(np.arange(8) < 4, -0.4, 0.4)
    label = (rng.normal(size=400)[item] + level[annotator] + rng.normal(0, 0.2, item.size) > 0).astype(int)
    votes = Votes.of(ds.Annotations.from_arrays(item, annotator, label))
    found = find_groups(votes)
    assert len(set(found.group[:4])) == len(set(found.group[4:])) == 1
    assert found.group[0] != found.group[4]
    assert find_groups(votes, is_scale=True) is None


@pytest.mark.parametrize("seed", range(3))
def test_copies_of_random_answers_are_not_related(seed):
    crowd = planted_crowd(seed, spammers=0.15, labels_each=100, strategy="copy-cats")
    found = find_groups(votes_of(crowd))
    assert ((found.group == 1) == (crowd.kind == "spam")).all()
    assert not found.is_related
    assert (minority_probability(found, np.full(60, 100)) == 0).all()
    opposed = planted_crowd(seed, spammers=0, group=0.3, contested=1.0, n_classes=2, labels_each=100)
    votes = votes_of(opposed)
    found = searched_groups(votes, annotator_agreement(votes), np.zeros(60, dtype=bool), False)
    assert found.is_related
    assert ((found.group == 1) == (opposed.kind == "group")).mean() > 0.95


def test_crowds_without_anything_to_compare():
    one_class = ds.Annotations.from_arrays(
        *np.indices((10, 6)).reshape(2, -1), np.zeros(60, int), classes=[0, 1]
    )
    alone = ds.Annotations.from_arrays(range(60), np.arange(60) % 6, np.arange(60) % 2)
    for labels in (one_class, alone):
        assert find_groups(Votes.of(labels)) is None


def test_few_annotators_and_set_aside_ones():
    crowd = with_group(0)
    member = crowd.kind == "group"
    assert find_groups(votes_of(crowd), member) is None  # the others are alike
    three = np.arange(60) >= 3
    assert find_groups(votes_of(crowd), three) is None
    found = find_groups(votes_of(crowd), np.arange(60) < 2)
    assert np.isnan(found.probability[:2]).all()
    assert (found.group[:2] == -1).all()


def test_the_order_of_rows_does_not_matter():
    labels = with_group(1).annotations
    order = np.random.default_rng(0).permutation(labels.n_labels)
    columns = labels.items[labels.item], labels.annotators[labels.annotator], labels.label
    again = ds.Annotations.from_arrays(*(column[order] for column in columns), classes=range(4))
    first, second = (find_groups(Votes.of(each)) for each in (labels, again))
    np.testing.assert_array_equal(first.probability, second.probability)
    assert first.gap == second.gap


# ---- the steps ----------------------------------------------------------------------------------------


def test_sharpness_and_bias_maximise_the_penalised_likelihood():
    """Compared with SciPy's optimiser, for each annotator by itself."""
    votes = votes_of(planted_crowd(0, n_annotators=6, labels_each=60, labels_per_item=3, n_classes=3))
    rows = Rows.of(votes, biases=True)
    for n in range(6):
        mine = rows.annotator == n
        logs, y = Rows.log_shares(rows.others[mine]), rows.answer[mine]

        def loss(x, logs=logs, y=y):
            logits = x[0] * logs + x[1:]
            chance = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
            ridge = groups.SHARPNESS_PRECISION * (x[0] - 1) ** 2 + groups.BIAS_PRECISION * (x[1:] ** 2).sum()
            return -(y * chance).sum() + ridge / 2

        best = optimize.minimize(loss, np.array([1.0, 0, 0, 0])).x
        np.testing.assert_allclose([rows.sharpness[n], *rows.bias[n]], best, atol=2e-3)


def test_pairs_by_enumeration():
    votes = votes_of(planted_crowd(2, n_annotators=8, labels_each=12, labels_per_item=4, n_classes=3))
    rows, members = Rows.of(votes, biases=True), np.array([0, 1, 0, 1, -1, 0, 1, 0])
    for name in ("answer", "residual"):
        values, sums, pairs = (
            getattr(rows, name),
            np.zeros((votes.sizes[0], 3)),
            np.zeros((votes.sizes[0], 3)),
        )
        for i in range(len(rows.item)):
            for j in range(len(rows.item)):
                a, b = members[rows.annotator[i]], members[rows.annotator[j]]
                if i == j or rows.item[i] != rows.item[j] or min(a, b) < 0:
                    continue
                kind = 2 if a != b else a
                sums[rows.item[i], kind] += values[i] @ values[j]
                pairs[rows.item[i], kind] += 1
        for result, expected in zip(rows.pair_sums(members, name), (sums, pairs), strict=True):
            np.testing.assert_allclose(result, expected, atol=1e-12)


def test_kappa_by_hand():
    first, second = np.array([0, 0, 1, 1, -1]), np.array([0, 1, 1, 1, 0])
    # three of four agree; chance: ½ · ¼ + ½ · ¾ = ½
    assert groups._kappa(first, second) == pytest.approx(0.5)
    assert groups._aligned(first, 1 - second).tolist() == [0, 1, 1, 1, 0]
    assert groups._kappa(np.array([-1, 0]), np.array([0, -1])) == 0


def test_numbers_come_from_the_other_half():
    crowd = with_group(2)
    votes = votes_of(crowd)
    found = find_groups(votes)
    tables = found.tables(votes)
    for m in range(0, votes.sizes[0], 97):
        members = found.by_half[found.half[m]]
        rows = np.flatnonzero(votes.item == m)
        for g in range(2):
            inside = rows[members[votes.annotator[rows]] == g]
            np.testing.assert_allclose(tables[g, m], votes.answer[inside].sum(axis=0))
    # the memberships of a half are those that a search of the other half finds
    for h in range(2):
        members = groups._clear(groups._search(Rows.of(votes.on(found.half != h), biases=True)))
        both = np.stack([members, np.where(members < 0, -1, 1 - members)])
        assert (both == found.by_half[h]).all(axis=1).any()
