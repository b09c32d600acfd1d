"""Information and spam: against theory, permutations and crowds in which the spammers are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import gammaln, rel_entr
from sklearn.metrics import mutual_info_score

from dissensus import Annotations
from dissensus.annotators import informativeness
from dissensus.annotators.informativeness import information_per_label, spam_score
from dissensus.errors import DataError, ParameterError
from dissensus.evaluation.agreement import agreement_with_others

SENSIBLE, SPAMMER, MINORITY = 0, 1, 2


def crowd(seed, load=40, n_annotators=200, n_classes=5, accuracy=0.75, shares=(0.4, 0.25, 0.15, 0.12, 0.08)):
    """Five labels an item. A tenth answer by the class shares; 15 % see a third of the items differently.

    On those items the minority's class is the next one. All err alike, by the class shares.
    """
    rng = np.random.default_rng(seed)
    annotator = np.concatenate([rng.permutation(n_annotators) for _ in range(load)])
    item = np.arange(annotator.size) // 5
    kind = rng.permutation(np.repeat([SPAMMER, MINORITY, SENSIBLE], [20, 30, n_annotators - 50]))
    own = rng.choice(n_classes, size=item[-1] + 1, p=shares)
    contested = rng.random(own.size) < 1 / 3
    seen = (own[item] + (contested[item] & (kind[annotator] == MINORITY))) % n_classes
    erring = (rng.random(item.size) > accuracy) | (kind[annotator] == SPAMMER)
    label = np.where(erring, rng.choice(n_classes, size=item.size, p=shares), seen)
    return item, annotator, label, kind


def precision_and_recall(flagged, planted):
    hits = (flagged & planted).sum()
    return hits / max(flagged.sum(), 1), hits / planted.sum()


@pytest.mark.parametrize("seed", range(5))
def test_planted_spammers_are_found_at_forty_labels(seed):
    item, annotator, label, kind = crowd(seed)
    precision, recall = precision_and_recall(spam_score(item, annotator, label) > 0.5, kind == SPAMMER)
    assert precision >= 0.9
    assert recall >= 0.9


def test_more_labels_find_more_spammers():
    curve = []
    for load in (5, 10, 20, 40, 100):
        flagged, planted = [], []
        for seed in range(5):
            item, annotator, label, kind = crowd(seed, load=load)
            flagged.append(spam_score(item, annotator, label) > 0.5)
            planted.append(kind == SPAMMER)
        curve.append(precision_and_recall(np.concatenate(flagged), np.concatenate(planted)))
    precisions, recalls = np.array(curve).T
    assert (precisions >= 0.75).all()  # few labels accuse few, and those mostly rightly
    assert (recalls >= [0.1, 0.5, 0.85, 0.95, 0.95]).all()


def test_one_class_for_everything_is_spam():
    item, annotator, label, kind = crowd(1)
    label = np.where(kind[annotator] == SPAMMER, 0, label)
    precision, recall = precision_and_recall(spam_score(item, annotator, label) > 0.5, kind == SPAMMER)
    assert min(precision, recall) >= 0.9


def test_swapped_classes_are_informative_and_no_spam():
    item, annotator, label, kind = crowd(2)
    swapped = np.flatnonzero(kind == SENSIBLE)[:3]
    label = np.where(np.isin(annotator, swapped), (label + 2) % 5, label)
    assert (spam_score(item, annotator, label)[swapped] < 0.1).all()
    information = information_per_label(item, annotator, label)
    assert (information[swapped] > 5 * information[kind == SPAMMER].mean()).all()


def test_nobody_to_compare_with_keeps_the_prior():
    np.testing.assert_allclose(spam_score([0, 1, 2], [0, 1, 2], [0, 1, 0], prior=0.2), 0.2, rtol=1e-12)
    score = spam_score([0, 0, 1, 1, 2], [0, 1, 0, 1, 2], [0, 0, 1, 1, 1], prior=0.2)
    assert score[2] == pytest.approx(0.2, rel=1e-9)


@pytest.mark.parametrize("load", [2, 3, 5, 10, 40])
def test_spammers_carry_no_information_however_few_the_labels(load):
    found = []
    for seed in range(3):
        item, annotator, label, kind = crowd(seed, load=load)
        found.append(information_per_label(item, annotator, label)[kind == SPAMMER].mean())
    assert np.mean(found) < 0.05
    # What the bare tables show: more than twice as much, up to the log of the number of classes.
    joint, squares = informativeness._confusion(informativeness.pairs_in_pieces(item, annotator, label), None)
    of_spammers = informativeness.Confusion(joint[kind == SPAMMER], squares[kind == SPAMMER])
    assert informativeness._mutual_information(of_spammers)[0].mean() > 0.1


def test_information_of_many_labels_is_the_mutual_information():
    rng = np.random.default_rng(4)
    truth = rng.integers(3, size=30_000)
    annotator = np.tile([0, 1, 2], 10_000)
    kept, turned = truth, (truth + 1) % 3
    noisy = np.where(rng.random(truth.size) < 0.5, truth, rng.integers(3, size=truth.size))
    label = np.choose(annotator, [kept, turned, noisy])
    expected = [mutual_info_score(label[annotator == a], truth[annotator == a]) for a in range(3)]
    found = information_per_label(np.arange(truth.size), annotator, label, consensus=np.eye(3)[truth])
    np.testing.assert_allclose(found, expected, rtol=2e-3)
    np.testing.assert_allclose(found[:2], np.log(3), rtol=2e-3)


@pytest.mark.parametrize("soft", [False, True])
def test_bias_and_variance_are_those_of_labels_from_a_hat(soft):
    rng = np.random.default_rng(5)
    consensus = rng.dirichlet([1, 1, 1, 1], size=150) if soft else np.eye(4)[rng.integers(4, size=150)]
    label = np.eye(3)[rng.choice(3, size=150, p=[0.6, 0.3, 0.1])]
    joints = np.stack([label[rng.permutation(150)].T @ consensus for _ in range(4000)])
    independent = label.mean(axis=0)[:, None] * consensus.mean(axis=0)
    dealt = rel_entr(joints / 150, independent).sum(axis=(1, 2))
    table = informativeness.Confusion(joints[:1], (consensus**2).sum(axis=0)[None])
    found, bias, degrees = informativeness._mutual_information(table)
    assert found[0] == pytest.approx(dealt[0], rel=1e-9)
    assert bias[0] == pytest.approx(dealt.mean(), rel=0.05)
    assert bias[0] * np.sqrt(2 / degrees[0]) == pytest.approx(dealt.std(), rel=0.1)


def test_own_label_is_no_part_of_the_consensus():
    # Two annotators on each item, both from a hat: each agrees perfectly with the table that includes them.
    rng = np.random.default_rng(6)
    item, annotator = np.repeat(np.arange(500), 2), np.tile([0, 1], 500)
    label = rng.integers(2, size=1000)
    counts = Annotations.from_arrays(item, annotator, label).counts
    np.testing.assert_allclose(information_per_label(item, annotator, label), 0, atol=0.005)
    assert (information_per_label(item, annotator, label, consensus=counts / 2) > 0.1).all()


def test_joint_table_by_hand():
    # Item 0: annotator 0 says class 0, annotators 1 and 2 classes 0 and 1. Item 1: annotators 0 and 1 say 1.
    pairs = informativeness.pairs_in_pieces([0, 0, 0, 1, 1], [0, 1, 2, 0, 1], [0, 0, 1, 1, 1])
    table = informativeness._confusion(pairs, None)
    np.testing.assert_allclose(table.joint[0], [[0.5, 0.5], [0, 1]], rtol=1e-12)
    np.testing.assert_allclose(table.joint[2], [[0, 0], [1, 0]], rtol=1e-12)
    np.testing.assert_allclose(table.squares[0], [0.25, 0.25 + 1], rtol=1e-12)


def test_dirichlet_multinomial_is_the_integral_over_shares():
    # Two labels of class 0 and one of class 1 under a uniform share: ∫ p² (1 − p) dp = 1/12.
    found = informativeness._dirichlet_multinomial(np.array([2.0, 1.0]), np.array([1.0, 1.0]))
    assert found == pytest.approx(np.log(1 / 12), rel=1e-12)
    assert found == pytest.approx(gammaln(3) + gammaln(2) - gammaln(5), rel=1e-12)


def test_annotations_and_codes_give_the_same():
    item, annotator, label, _ = crowd(7, load=10)
    annotations = Annotations.from_arrays(item, annotator, label)
    for statistic in (information_per_label, spam_score):
        np.testing.assert_allclose(
            statistic(annotations), statistic(item, annotator, label), rtol=1e-9, atol=1e-12
        )


@pytest.mark.slow
def test_labels_are_gathered_some_items_at_a_time(monkeypatch):
    item, annotator, label, _ = crowd(7, load=10)
    whole = agreement_with_others(item, annotator, label), information_per_label(item, annotator, label)
    monkeypatch.setattr("dissensus.data.annotations.PIECE", 12)
    annotations = Annotations.from_arrays(item, annotator, label)
    assert len(list(annotations.pieces())) > 100
    in_one_pass = informativeness.agreement_and_information(annotations)
    one_by_one = agreement_with_others(annotations), information_per_label(annotations)
    for found in (in_one_pass, one_by_one):
        np.testing.assert_allclose(found[0], whole[0], rtol=1e-12)
        np.testing.assert_allclose(found[1], whole[1], rtol=1e-9, atol=1e-12)


def test_information_is_unknown_where_nothing_can_be_compared():
    assert np.isnan(information_per_label([0, 1], [0, 1], [0, 1])).all()


def test_bad_arguments_are_named():
    with pytest.raises(ParameterError, match="The 'prior' parameter of spam_score"):
        spam_score([0], [0], [0], prior=1)
    with pytest.raises(DataError, match=r"consensus: \(2, 2\) distributions are needed"):
        information_per_label([0, 1], [0, 1], [0, 1], consensus=[[1.0, 0.0]])
