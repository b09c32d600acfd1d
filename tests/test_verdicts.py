"""Verdicts: the evidence against enumeration, views by hand, and crowds in which it is known who spams."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import comb

import numpy as np
import pytest

import dissensus as ds
from dissensus.annotators import evidence, verdicts
from dissensus.annotators.evidence import LabelSample, informative, log_spam, mutual_information, shared
from dissensus.annotators.verdicts import decided, sides_of, spiked_quantile
from dissensus.errors import DataError, ParameterError
from dissensus.models.hpgm.posterior import Draws
from experiments.planted_crowds import SPAM, planted
from sizes import usually

pytestmark = pytest.mark.no_cover

QUICK = {"n_chains": 2, "n_sweeps": 60, "n_jobs": 1}


# ---- the evidence -------------------------------------------------------------------------------------


def chance_of_sequence(labels, alpha):
    """Polya's urn, label after label."""
    urn, chance = np.array(alpha, dtype=float), 1.0
    for label in labels:
        chance *= urn[label] / urn.sum()
        urn[label] += 1
    return chance


def sample_of(labels, P):
    """One annotator's labels, each of another item."""
    label = np.asarray(labels)
    return LabelSample(np.arange(len(label)), np.zeros(len(label), dtype=int), label, 1, P)


def exact_evidence(q, labels, theta, loyal):
    """Σ over all clusters of the items of Π q Π_k urns, mean over c."""
    total = 0.0
    for c, w in itertools.product(loyal, itertools.product(range(q.shape[1]), repeat=len(labels))):
        part = np.prod([q[e, k] for e, k in enumerate(w)])
        for k in range(q.shape[1]):
            mine = [label for label, here in zip(labels, w, strict=True) if here == k]
            part *= chance_of_sequence(mine, c * theta[:, k])
        total += part / len(loyal)
    return np.log(total)


THETA = np.array([[0.8, 0.1], [0.1, 0.3], [0.1, 0.6]])  # (P, K)


def test_the_evidence_is_exact_where_the_items_are_known():
    labels, q = [0, 0, 2, 1, 0], np.eye(2)[[0, 0, 1, 1, 0]]
    loyal = (1.0, 10.0)
    found = sample_of(labels, 3).bound(q, THETA, loyal)[0]
    assert found == pytest.approx(exact_evidence(q, labels, THETA, loyal), rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_evidence_is_a_close_bound_where_they_are_not(seed):
    rng = np.random.default_rng(seed)
    q, labels = rng.dirichlet([1, 1], size=6), rng.integers(3, size=6).tolist()
    found = sample_of(labels, 3).bound(q, THETA, (10.0,))[0]
    exact = exact_evidence(q, labels, THETA, (10.0,))
    assert exact - 0.5 < found <= exact + 1e-9


def test_spam_is_shares_whatever_the_item():
    nu, labels = np.array([0.5, 0.3, 0.2]), [0, 1, 1, 0, 0]
    chances = [
        np.prod(nu[labels]),
        3.0 ** -len(labels),
        chance_of_sequence(labels, 3 * nu),
        chance_of_sequence(labels, nu),
    ]
    assert log_spam(np.array([[3.0, 2.0, 0.0]]), nu)[0] == pytest.approx(np.log(np.mean(chances)), rel=1e-12)


def test_the_share_of_spammers_is_learned_from_the_crowd():
    # the same evidence convinces in a crowd of spammers and does not in a clean one
    looks = np.zeros((1, 50))
    clean, dirty = np.full(50, -8.0), np.full(50, 8.0)
    clean[0] = dirty[0] = 2.0
    few = evidence.spam_probability(evidence.at_even_odds(looks, clean[None]))
    many = evidence.spam_probability(evidence.at_even_odds(looks, dirty[None]))
    assert few[0] < 0.5 < 0.9 < many[0]
    # 49 sure ones and one: (a + 49 + p) / (a + b + 50), p itself by Bayes' rule
    share = (evidence.SPAM_PRIOR[0] + 49 + many[0]) / (sum(evidence.SPAM_PRIOR) + 50)
    odds = np.exp(2.0) * share / (1 - share)
    assert many[0] == pytest.approx(odds / (1 + odds), abs=2e-3)


def test_information_shared_with_the_others_by_hand():
    # Two kinds of items; the crowd tells them apart, a small cluster repeats itself on other lines.
    size = np.full(4, 0.25)
    crowd = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=float)
    repeat = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], dtype=float)
    theta = np.stack([crowd, repeat], axis=1)
    assert shared(theta, size, np.array([0.8, 0.2])) == pytest.approx([np.inf, 0.0], abs=1e-9)
    both = informative(theta, size, np.array([0.8, 0.2]), np.array([1000, 1000]))
    assert both.tolist() == [True, False]
    turned = np.stack([crowd, crowd[:, ::-1]], axis=1)
    assert informative(turned, size, np.array([0.8, 0.2]), np.array([1000, 1000])).all()
    assert mutual_information(np.eye(2) / 2) == pytest.approx(np.log(2))


def test_one_label_says_nothing():
    # one item, one label: with or without the items, it is as likely
    labels = ds.Annotations.from_arrays(["i", "i", "j"], ["a", "b", "a"], ["x", "y", "x"])
    found = ds.annotator_verdicts(labels, ds.HPGM(**QUICK).fit(labels))
    assert set(found.verdict) == {"too few labels"}


# ---- views --------------------------------------------------------------------------------------------


def drawn(z, theta, M=12):
    """One draw: items alike in every cluster, annotators as told, (K, L, P) answers."""
    K, L, P = theta.shape
    N = len(z)
    beliefs = np.eye(K)[np.arange(M) % K][None].astype(np.float32)
    matrices = theta.transpose(1, 2, 0)[z][None].astype(np.float32)
    return Draws(
        beliefs, np.full((1, M, P), 1 / P, np.float32), matrices, np.full((1, N, K), 50.0, np.float32),
        theta.mean(axis=1)[None], theta.mean(axis=1)[None], theta[None], theta.mean(axis=1)[None],
        np.full((1, K), 1 / K), np.full((1, L), 1 / L), np.array([z], np.int32), np.array([[9.0, 9.0, 0.0]]),
    )  # fmt: skip


A, B, C = (0.9, 0.05, 0.05), (0.05, 0.9, 0.05), (0.05, 0.05, 0.9)
CROWD, OTHER, TURNED, SPAMMY = (A, B, C, C), (A, B, C, A), (B, C, A, A), ((0.34, 0.33, 0.33),) * 4


def sides(*groups):
    """The views of groups of (how many, their answers to four kinds of items)."""
    z = np.repeat(np.arange(len(groups)), [n for n, _ in groups])
    theta = np.array([answers for _, answers in groups]).transpose(1, 0, 2)
    N = len(z)
    return sides_of(drawn(z, theta), 0, np.full(N, 1 / N), np.full(N, 100))


def test_a_small_view_is_the_minority_and_a_large_one_is_not():
    small = sides((8, CROWD), (2, OTHER))
    assert small.minority().tolist() == [False] * 8 + [True] * 2
    assert small.differ == pytest.approx([0.0, 0.25])
    assert (~small.small).sum() == 1
    equal = sides((5, CROWD), (4, OTHER))
    assert not equal.minority().any()
    assert (~equal.small).sum() == 2


def test_one_person_alone_or_a_few_who_contradict_everything_err_by_rule():
    alone = sides((8, CROWD), (1, OTHER))
    assert alone.error().tolist() == [False] * 8 + [True]
    few = sides((20, CROWD), (2, TURNED))
    assert few.error()[-2:].all()
    assert not few.minority().any()
    many = sides((20, CROWD), (6, TURNED))
    assert many.minority()[-6:].all()


def test_clusters_that_differ_little_are_one_view_and_idle_ones_have_none():
    nearly = ((0.8, 0.15, 0.05), B, C, C)
    found = sides((6, CROWD), (4, nearly), (3, SPAMMY))
    assert found.view.tolist() == [0] * 10 + [-1] * 3
    assert len(found.weight) == 1


def test_verdicts_in_order():
    spam = np.array([0.95, 0.3, 0.01, 0.01, 0.0])
    even = np.array([0.99, 0.6, 0.05, 0.05, 0.0])
    minority, error = np.array([0, 0.6, 0.8, 0, 0.1]), np.array([0, 0, 0, 0.9, 0])
    verdict, probability = decided(spam, even, minority, error)
    assert verdict.tolist() == ["spam", "too few labels", "minority view", "systematic error", "typical"]
    np.testing.assert_allclose(probability, [0.95, np.nan, 0.8, 0.9, 0.9])


def test_of_typical_and_minority_view_the_likelier_is_said():
    minority, error = np.array([0.58, 0.42, 0.3]), np.array([0.02, 0.0, 0.7])
    verdict, probability = decided(np.zeros(3), np.zeros(3), minority, error)
    # of a systematic error one must be sure: 0.7 is not enough
    assert verdict.tolist() == ["minority view", "typical", "minority view"]
    np.testing.assert_allclose(probability, [0.58, 0.58, 0.3])


def test_who_surely_errs_by_rule_has_labels_enough():
    spam, even, none = np.array([0.03, 0.03, 0.3]), np.array([0.3, 0.3, 0.8]), np.zeros(3)
    verdict, _ = decided(spam, even, none, np.array([0.95, 0.8, 0.95]))
    assert verdict.tolist() == ["systematic error", "too few labels", "too few labels"]


def test_quantiles_of_what_may_be_nothing():
    values = np.linspace(1, 2, 101)[:, None]
    assert spiked_quantile(values, np.array([0.5]), 0.4)[0] == 0
    assert spiked_quantile(values, np.array([0.5]), 0.75)[0] == pytest.approx(1.5)
    assert spiked_quantile(values, np.array([0.0]), 0.05)[0] == pytest.approx(1.05)


def test_planted_crowds_are_what_they_say():
    crowd = planted(4, n_annotators=100, labels_each=100, spammers=0.2, adversaries=0.1, spread=0.0)
    assert [(crowd.kind == kind).sum() for kind in (SPAM, "adversary", "typical")] == [20, 10, 70]
    known = crowd.annotations
    typical = (crowd.kind == "typical")[known.annotator]
    votes = np.zeros((known.n_items, 4))
    np.add.at(votes, (known.item[typical], known.label[typical]), 1)
    clear = np.sort(votes, axis=1)[:, -1] - np.sort(votes, axis=1)[:, -2] >= 2
    seen, kind = votes.argmax(axis=1)[known.item], crowd.kind[known.annotator]
    some = clear[known.item]
    shares = {one: (known.label == seen)[some & (kind == one)].mean() for one in np.unique(kind)}
    turned = (known.label == (seen + 1) % 4)[some & (kind == "adversary")].mean()
    assert shares[SPAM] == pytest.approx(0.25, abs=0.03)
    assert turned == pytest.approx(0.8, abs=0.04)
    copies = planted(4, labels_each=40, spammers=0.3, strategy="copy-cats").annotations
    cats = planted(4, labels_each=40, spammers=0.3, strategy="copy-cats").kind == SPAM
    by_item = {}
    for m, n, p in zip(copies.item, copies.annotator, copies.label, strict=True):
        if cats[n]:
            by_item.setdefault(int(m), set()).add(int(p))
    assert all(len(said) == 1 for said in by_item.values())


# ---- whole crowds -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd():
    return planted(1, labels_each=60, spammers=0.1, adversaries=0.05, accuracy=0.9)


@pytest.fixture(scope="module")
def fitted(crowd):
    return ds.HPGM(**QUICK).fit(crowd.annotations)


@pytest.mark.slow
def test_spammers_and_adversaries_are_told_apart(crowd, fitted):
    found = ds.annotator_verdicts(fitted.training_labels(), fitted)
    assert (found.verdict[crowd.kind == SPAM] == "spam").sum() >= 4  # of six
    assert not (found.verdict[crowd.kind != SPAM] == "spam").any()
    assert (found.verdict[crowd.kind == "adversary"] == "systematic error").all()
    assert (found.verdict[crowd.kind == "typical"] == "typical").mean() > 0.95
    assert found.probability[found.verdict == "spam"].min() >= 0.9
    assert found.in_words() == "one view is the largest by far"
    frame = found.to_frame()
    assert list(frame["annotator"]) == list(crowd.annotations.annotators)
    assert (frame["information_low"] <= frame["information_high"]).all()


@pytest.mark.slow
def test_labels_shuffled_among_items_tell_nothing(crowd):
    known, rng = crowd.annotations, np.random.default_rng(5)
    label = known.label.copy()
    for n in range(known.n_annotators):
        mine = np.flatnonzero(known.annotator == n)
        label[mine] = rng.permutation(label[mine])
    shuffled = ds.Annotations.from_arrays(known.item, known.annotator, label)
    found = ds.annotator_verdicts(shuffled, ds.HPGM(**QUICK).fit(shuffled))
    assert set(found.verdict) <= {"spam", "too few labels"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(usually(1, verify=5)))
def test_nobody_spams_in_a_clean_crowd(seed):
    labels = ds.simulate(seed=seed).annotations
    found = ds.annotator_verdicts(labels, ds.HPGM(**QUICK).fit(labels))
    assert not (found.verdict == "spam").any()


def test_gold_labels_show_who_errs(crowd):
    known = crowd.annotations
    gold = np.full(known.n_items, -1, np.int32)
    gold[:] = [np.bincount(known.label[known.item == m], minlength=4).argmax() for m in range(known.n_items)]
    wrong = verdicts.wrong_by_gold(replace(known, gold=gold), known.n_annotators)
    assert (wrong[crowd.kind == "adversary"] > 0.9).all()
    assert (wrong[crowd.kind == "typical"] < 0.1).all()
    # 3 of 10 right, usual 0.8: P(Beta(4, 8) < 0.4) = P(Binomial(11, 0.4) ≥ 4)
    terms = [comb(11, k) * 0.4**k * 0.6 ** (11 - k) for k in range(4, 12)]
    assert float(verdicts.betainc(4, 8, 0.4)) == pytest.approx(sum(terms), rel=1e-9)


def test_a_model_without_draws_cannot_judge(crowd):
    with pytest.raises(DataError, match="draws of HPGM, and MajorityVote has none"):
        ds.annotator_verdicts(crowd.annotations, ds.MajorityVote().fit(crowd.annotations))
    with pytest.raises(ParameterError, match="'interval' parameter of annotator_verdicts"):
        ds.annotator_verdicts(crowd.annotations, interval=0)


@pytest.mark.data
def test_two_views_on_brexit(data_dir):
    labels = ds.read_annotations(data_dir / "hs_brexit" / "annotations.csv")
    found = ds.annotator_verdicts(labels, ds.HPGM(n_chains=2, n_sweeps=150, n_jobs=1).fit(labels))
    assert set(found.verdict) == {"typical"}
    assert found.in_words().startswith("two views of about the same weight (3 and 3 annotators)")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_lone_coin_tosser_is_found(seed):
    """Though clusters of items may split by what the coin says of them."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=120)
    honest = [np.where(rng.random(120) < 0.9, truth, rng.integers(2, size=120)) for _ in range(12)]
    answers = np.stack([*honest, rng.integers(2, size=120)])
    who, item = np.indices(answers.shape)
    labels = ds.Annotations.from_arrays(item.ravel(), who.ravel(), answers.ravel())
    found = ds.annotator_verdicts(labels, ds.HPGM(n_chains=2, n_sweeps=100, n_jobs=1).fit(labels))
    assert found.verdict[-1] == "spam"
    assert found.spam_probability[:-1].max() < 0.05


def test_clusters_of_items_that_everybody_answers_alike_are_one_kind():
    answers = np.array([[[0.9, 0.1]], [[0.85, 0.15]], [[0.2, 0.8]]])
    kinds = evidence.kinds_of(answers, np.array([0.5, 0.3, 0.2]))
    assert kinds.tolist() == [[1, 0], [1, 0], [0, 1]]
    # two camps that differ on it keep two clusters apart though the population answers both alike
    camps = np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.1, 0.9], [0.9, 0.1]]])
    assert evidence.kinds_of(camps, np.array([0.5, 0.5])).tolist() == [[1, 0], [0, 1]]
    # nobody to ask: nothing is put together
    assert evidence.kinds_of(np.zeros((2, 0, 2)), np.array([0.5, 0.5])).tolist() == [[1, 0], [0, 1]]
