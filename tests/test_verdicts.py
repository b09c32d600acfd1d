"""Verdicts on crowds in which it is known who spams, who sees otherwise, and who merely errs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dissensus as ds
from dissensus import Annotations, annotator_verdicts, simulate
from dissensus.annotators import verdicts
from dissensus.errors import DataError, ParameterError
from experiments.mixed_crowd import mixed_crowd

pytestmark = pytest.mark.slow

# 300 annotators, five classes, five labels an item. One annotator of ten answers by the class frequencies;
# 15 % see every third item as the next class. Whoever looks gives the class they see in 80 % of the cases,
# another class in the rest.
SETTINGS = {
    "n_annotators": 300,
    "labels_per_item": 5,
    "shares": (0.3, 0.25, 0.2, 0.15, 0.1),
    "accuracy": 0.8,
    "spammers": 0.1,
    "minority": 0.15,
    "contested": 1 / 3,
    "sees": "next",
}


def precision_and_recall(flagged, true):
    hits = (flagged & true).sum()
    return hits / max(flagged.sum(), 1), hits / true.sum()


def told_apart(crowd, **settings):
    """Precision and recall of spam, then of the minority view."""
    return measured(annotator_verdicts(crowd.annotations, **settings).verdict, crowd)


def measured(verdict, crowd):
    found = [precision_and_recall(verdict == what, crowd.kind == what) for what in ("spam", "minority view")]
    return np.array(found).ravel()


def relabelled(crowd, label):
    known = crowd.annotations
    changed = Annotations.from_arrays(known.item, known.annotator, label, classes=known.classes)
    return replace(crowd, annotations=changed)


# ---- what must be told apart --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def named():
    """Forty labels each, classes with names; and the verdicts."""
    crowd = mixed_crowd(labels_each=40, seed=0, **SETTINGS)
    known = crowd.annotations
    names = np.array(["ash", "birch", "cedar", "dogwood", "elm"])
    return crowd, annotator_verdicts(Annotations.from_arrays(known.item, known.annotator, names[known.label]))


def test_spam_and_minority_are_told_apart_at_forty_labels(named):
    crowd, found = named
    assert (measured(found.verdict, crowd) >= 0.9).all()


@pytest.mark.verify
@pytest.mark.parametrize("seed", range(1, 6))
def test_told_apart_whatever_the_seed(seed):
    assert (told_apart(mixed_crowd(labels_each=40, seed=seed, **SETTINGS)) >= 0.9).all()


@pytest.mark.verify
@pytest.mark.parametrize("seed", range(3, 8))
def test_told_apart_where_the_minority_sees_any_other_class(seed):
    # Nothing general to learn of the minority: each contested item has a second class of its own.
    crowd = mixed_crowd(labels_each=40, seed=seed, **(SETTINGS | {"sees": "any"}))
    assert (told_apart(crowd) >= 0.85).all()
    assert told_apart(mixed_crowd(labels_each=100, seed=seed, **(SETTINGS | {"sees": "any"}))).min() >= 0.95


@pytest.mark.verify
def test_more_labels_tell_more():
    curve = [
        np.mean([told_apart(mixed_crowd(labels_each=n, seed=s, **SETTINGS), min_labels=1) for s in (0, 1)], 0)
        for n in (5, 20, 100)
    ]
    spam_precision, spam_recall, precision, recall = np.array(curve).T
    assert (spam_precision >= [0.75, 0.95, 0.98]).all()
    assert (spam_recall >= [0.25, 0.85, 0.98]).all()
    assert recall[0] <= 0.2  # five labels say little of a view, and little is said
    assert (precision[1:] >= [0.85, 0.98]).all()
    assert (recall[1:] >= [0.7, 0.98]).all()


def test_the_group_is_described_in_the_users_words(named):
    _, verdicts = named
    (group,) = verdicts.groups
    assert abs(group.share_of_items - 1 / 3) < 0.07
    assert abs(group.share_of_labels - 0.15) < 0.02
    largest = {(d.crowd, d.group) for d in group.differences[:5]}
    assert largest == {
        ("ash", "birch"), ("birch", "cedar"), ("cedar", "dogwood"), ("dogwood", "elm"), ("elm", "ash")
    }  # fmt: skip
    member = group.members[0]
    assert "'birch' where the crowd sees 'ash'" in verdicts.evidence[member]
    assert verdicts.group[member] == 1
    assert "do not depend on the item" in verdicts.evidence[np.flatnonzero(verdicts.verdict == "spam")[0]]


def test_two_minorities_with_different_views():
    crowd = mixed_crowd(400, 60, spammers=0.05, minority=0.15, seed=2)
    known = crowd.annotations
    others = np.flatnonzero(crowd.kind == "typical")[:50]
    turns = np.isin(known.annotator, others) & np.isin(known.label, [0, 1])
    label = np.where(turns, 1 - known.label, known.label)
    verdicts = annotator_verdicts(relabelled(crowd, label).annotations)
    truth = np.where(np.isin(np.arange(400), others), "turned", crowd.kind)
    assert len(verdicts.groups) == 2
    sets = [set(group.members.tolist()) for group in verdicts.groups]
    known = [set(np.flatnonzero(truth == kind).tolist()) for kind in ("minority view", "turned")]
    for group in known:
        overlap = max(len(group & found) / len(group | found) for found in sets)
        assert overlap >= 0.9


# ---- what must not be accused -------------------------------------------------------------------------


def flagged(annotations):
    """Shares of annotators called spam and minority."""
    verdict = annotator_verdicts(annotations).verdict
    return (verdict == "spam").mean(), (verdict == "minority view").mean()


@pytest.mark.parametrize("spread", [0.0, 0.12])
def test_one_crowd_has_no_minority_and_no_spam(spread):
    crowd = mixed_crowd(200, 40, spammers=0, minority=0, accuracy_spread=spread, seed=1)
    spam, minority = flagged(crowd.annotations)
    assert spam <= 0.01
    assert minority == 0


@pytest.mark.parametrize(("n_classes", "alpha"), [(2, 0.5), (5, 0.3)])
def test_items_on_which_everybody_differs_make_no_groups(n_classes, alpha):
    # Every item has a distribution of its own, annotators are all alike.
    crowd = simulate(1600, 200, n_classes, n_item_clusters=200, n_annotator_clusters=1, alpha=alpha, seed=4)
    spam, minority = flagged(crowd.annotations)
    assert spam <= 0.02
    assert minority == 0


def test_hard_workers_with_low_accuracy_are_no_spammers():
    crowd = mixed_crowd(200, 60, spammers=0.1, minority=0, seed=6)
    known, rng = crowd.annotations, np.random.default_rng(6)
    poor = np.flatnonzero(crowd.kind == "typical")[:20]
    # Right in about half of the cases, where chance is one in five.
    guess = rng.integers(5, size=known.n_labels)
    lapse = np.isin(known.annotator, poor) & (rng.random(known.n_labels) < 0.45)
    verdict = annotator_verdicts(relabelled(crowd, np.where(lapse, guess, known.label)).annotations).verdict
    assert (verdict[poor] == "typical").mean() >= 0.9
    assert (verdict[crowd.kind == "spam"] == "spam").mean() >= 0.9


def test_leaning_to_a_class_is_no_spam():
    crowd = mixed_crowd(200, 60, spammers=0.1, minority=0, seed=7)
    known, rng = crowd.annotations, np.random.default_rng(7)
    leaning = np.flatnonzero(crowd.kind == "typical")[:20]
    leans = np.isin(known.annotator, leaning) & (rng.random(known.n_labels) < 0.4)
    verdict = annotator_verdicts(relabelled(crowd, np.where(leans, 0, known.label)).annotations).verdict
    assert (verdict[leaning] == "typical").mean() >= 0.9


def test_seeing_items_of_one_class_alone_is_no_spam_and_giving_one_class_to_all_is():
    crowd = mixed_crowd(200, 40, shares=(0.9, 0.1), accuracy=0.95, spammers=0, minority=0, seed=8)
    known = crowd.annotations
    lucky, constant = np.arange(10), np.arange(10, 20)
    keep = ~np.isin(known.annotator, lucky) | (crowd.truth[known.item] == 0)
    label = np.where(np.isin(known.annotator, [*lucky, *constant]), 0, known.label)
    shown = relabelled(crowd, label).annotations.take_rows(keep)
    verdicts = annotator_verdicts(shown)
    assert (verdicts.verdict[lucky] != "spam").all()
    # Four items of forty are of the other class, so constant answers are seen by a few slips only.
    assert (verdicts.spam_probability[constant].mean()) > 5 * verdicts.spam_probability[lucky].mean()


# ---- other ways of differing --------------------------------------------------------------------------


def test_one_class_for_everything_is_spam():
    crowd = mixed_crowd(labels_each=40, seed=9, **SETTINGS)
    known = crowd.annotations
    label = np.where((crowd.kind == "spam")[known.annotator], 0, known.label)
    assert (told_apart(relabelled(crowd, label)) >= 0.9).all()


def test_somebody_who_turns_the_classes_round_is_no_spammer():
    crowd = mixed_crowd(200, 60, spammers=0.1, minority=0, seed=10)
    known = crowd.annotations
    alone = np.flatnonzero(crowd.kind == "typical")[0]
    label = np.where(known.annotator == alone, (known.label + 2) % 5, known.label)
    verdicts = annotator_verdicts(relabelled(crowd, label).annotations)
    assert verdicts.verdict[alone] == "minority view"
    assert verdicts.group[alone] != 0
    assert verdicts.agreement[alone] < 0.2


def test_people_who_copy_one_another_are_spammers():
    crowd = mixed_crowd(100, 100, labels_per_item=10, spammers=0.1, minority=0, seed=11)
    known, rng = crowd.annotations, np.random.default_rng(11)
    pattern = rng.integers(5, size=known.n_items)
    copies = (crowd.kind == "spam")[known.annotator] & (rng.random(known.n_labels) < 0.9)
    verdicts = annotator_verdicts(
        relabelled(crowd, np.where(copies, pattern[known.item], known.label)).annotations
    )
    precision, recall = precision_and_recall(verdicts.verdict == "spam", crowd.kind == "spam")
    assert min(precision, recall) >= 0.9
    assert not verdicts.groups


# ---- real crowds --------------------------------------------------------------------------------------


@pytest.mark.data
def test_the_two_groups_of_hs_brexit_come_back(data_dir):
    # Ann1–3 belong to the group that the tweets are about, Ann4–6 to a control group (Akhtar et al. 2021).
    verdicts = annotator_verdicts(ds.read_annotations(data_dir / "hs_brexit" / "annotations.csv"))
    assert set(verdicts.group) == {0, 1}
    assert len(set(verdicts.group[:3])) == len(set(verdicts.group[3:])) == 1
    assert verdicts.counts() == {"typical": 3, "minority view": 3, "spam": 0, "too few labels": 0}


@pytest.mark.data
@pytest.mark.parametrize(
    "name", ["nli_variation", "rte", "product", "tweet_possent", "weather_sentiment_amt"]
)
def test_spammers_are_right_by_chance_alone(data_dir, name):
    # The gold labels have no part in the verdict. Balanced accuracy: guessing reaches one in P.
    folder = data_dir / name
    known = ds.read_annotations(folder / "annotations.csv", gold=folder / "gold.csv")
    verdict = annotator_verdicts(known).verdict
    assert known.gold is not None
    gold = known.gold[known.item]

    def balanced_accuracy(who):
        of = [(gold == c) & who[known.annotator] for c in range(known.n_classes)]
        return np.mean([(known.label[rows] == c).mean() for c, rows in enumerate(of) if rows.any()])

    chance = 1 / known.n_classes
    spam, typical = balanced_accuracy(verdict == "spam"), balanced_accuracy(verdict == "typical")
    assert (verdict == "spam").any()
    assert spam < chance + 0.25 * (typical - chance)


# ---- the interface ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    return mixed_crowd(80, 30, spammers=0.1, minority=0, seed=12)


@pytest.fixture(scope="module")
def of_small(small):
    return annotator_verdicts(small.annotations)


def test_columns_and_frame(small, of_small):
    frame = of_small.to_frame()
    known = ["annotator", "n_labels", "agreement", "information"]
    judged = ["spam_probability", "minority_probability", "group", "verdict", "evidence"]
    assert list(frame) == known + judged
    assert len(frame) == len(of_small) == 80
    assert frame.annotator.tolist() == small.annotations.annotators.tolist()
    assert (frame.n_labels == 30).all()
    assert sum(of_small.counts().values()) == 80
    assert repr(of_small).startswith("AnnotatorVerdicts(")
    total = of_small.spam_probability + of_small.minority_probability
    assert ((total >= 0) & (total <= 1 + 1e-9)).all()


def test_frame_of_the_kind_that_came(small):
    import polars

    known = small.annotations
    columns = {"item": known.item, "annotator": known.annotator, "label": known.label}
    assert isinstance(annotator_verdicts(polars.DataFrame(columns)).to_frame(), polars.DataFrame)


def test_clusters_of_a_model_come_along(small):
    known = small.annotations
    model = ds.PGM(3, 2, max_iter=5).fit(known.take_rows(known.annotator < 79))
    unknown = ds.PGM(3, 2, max_iter=5).fit(ds.Annotations.from_arrays([0, 0, 1], ["x", "y", "x"], [0, 1, 0]))
    verdicts = annotator_verdicts(known, model)
    np.testing.assert_array_equal(verdicts.cluster, model.annotator_clusters_.argmax(axis=1))
    assert (annotator_verdicts(known, unknown).cluster == -1).all()
    assert annotator_verdicts(known, ds.MajorityVote().fit(known)).cluster is None


def test_the_same_whatever_the_order_and_the_threads(small, of_small):
    known, rng = small.annotations, np.random.default_rng(0)
    order = rng.permutation(known.n_labels)
    again = Annotations.from_arrays(
        known.item[order], known.annotator[order], known.label[order], classes=known.classes
    )
    other = annotator_verdicts(again, n_jobs=2)
    np.testing.assert_array_equal(other.verdict, of_small.verdict)
    np.testing.assert_allclose(other.spam_probability, of_small.spam_probability, rtol=1e-9)


def test_few_labels_are_said_to_be_few(small):
    known = small.annotations
    order = np.argsort(known.annotator, kind="stable")
    first = np.cumsum(known.annotator_load) - known.annotator_load
    place = np.zeros(known.n_labels, dtype=int)
    place[order] = np.arange(known.n_labels) - first[known.annotator[order]]
    shown = known.take_rows((known.annotator > 4) | (place < 4))
    verdicts = annotator_verdicts(shown)
    assert (verdicts.verdict[:5] == "too few labels").all()
    assert (verdicts.group[:5] == -1).all()
    assert verdicts.evidence[0] == "4 labels on items that others labelled too"
    assert "too few labels" not in annotator_verdicts(shown, min_labels=1).verdict


def test_labels_that_nobody_shares_say_nothing():
    verdicts = annotator_verdicts(Annotations.from_arrays(range(40), [0, 1] * 20, [0, 1] * 20), min_labels=5)
    assert set(verdicts.verdict) == {"too few labels"}
    assert np.isnan(verdicts.agreement).all()


def test_one_class_alone_accuses_nobody():
    item, annotator = np.repeat(np.arange(30), 3), np.tile([0, 1, 2], 30)
    verdicts = annotator_verdicts(Annotations.from_arrays(item, annotator, np.zeros(90, dtype=int)))
    assert set(verdicts.verdict) == {"typical"}


def test_declared_classes_and_repeated_labels_do_no_harm(small, of_small):
    known = small.annotations
    twice = np.repeat(np.arange(known.n_labels), np.where(np.arange(known.n_labels) % 7, 1, 2))
    again = Annotations.from_arrays(
        known.item[twice], known.annotator[twice], known.label[twice], classes=range(6)
    )
    same = annotator_verdicts(again).verdict == of_small.verdict
    assert same.mean() >= 0.95


def test_a_part_of_many_labels_teaches_as_much(monkeypatch):
    crowd = mixed_crowd(labels_each=100, seed=13, **SETTINGS)
    monkeypatch.setattr(verdicts, "LEARN_FROM", 15_000)
    assert (told_apart(crowd) >= 0.95).all()


def test_refusals(small):
    with pytest.raises(DataError, match="name no annotators"):
        annotator_verdicts(Annotations.from_counts([[1, 2], [3, 0]]))
    with pytest.raises(
        ParameterError, match="'min_labels' parameter of annotator_verdicts must be an int >= 1"
    ):
        annotator_verdicts(small.annotations, min_labels=0)
    with pytest.raises(ParameterError, match="'max_groups'"):
        annotator_verdicts(small.annotations, max_groups=0)
