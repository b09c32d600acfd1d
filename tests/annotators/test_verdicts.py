"""Verdicts: evidence by enumeration, decisions by hand, and crowds with planted spammers."""

import itertools
from dataclasses import replace
from math import comb
from types import SimpleNamespace

import numpy as np
import pytest

import dissensus as ds
from dissensus.annotators import evidence, sentences, verdicts
from dissensus.annotators.evidence import (
    LabelSample,
    informative_clusters,
    log_item_free,
    mutual_information,
    predicted_share,
)
from dissensus.annotators.verdicts import decide_verdicts, rule_probability, zero_inflated_quantile
from dissensus.errors import DataError, ParameterError
from dissensus.evaluate.group_agreement import Votes, annotator_agreement
from experiments.verdicts import SPAM, planted_crowd
from tests.helpers.sizes import usually

pytestmark = pytest.mark.no_cover

QUICK = {"n_chains": 2, "n_sweeps": 60, "n_jobs": 1}


# ---- the evidence -------------------------------------------------------------------------------------


def urn_probability(labels, alpha):
    """Return the probability of a sequence of labels under Pólya's urn."""
    urn, probability = np.array(alpha, dtype=float), 1.0
    for label in labels:
        probability *= urn[label] / urn.sum()
        urn[label] += 1
    return probability


def sample_of(labels, P):
    """Return one annotator's labels, each of another item."""
    label = np.asarray(labels)
    return LabelSample(np.arange(len(label)), np.zeros(len(label), dtype=int), label, 1, P)


def exact_evidence(q, labels, theta, strengths):
    """Sum over all assignments of items to clusters of Π q Π_k urns, averaged over c."""
    total = 0.0
    for c, w in itertools.product(strengths, itertools.product(range(q.shape[1]), repeat=len(labels))):
        part = np.prod([q[e, k] for e, k in enumerate(w)])
        for k in range(q.shape[1]):
            subset = [label for label, cluster in zip(labels, w, strict=True) if cluster == k]
            part *= urn_probability(subset, c * theta[:, k])
        total += part / len(strengths)
    return np.log(total)


THETA = np.array([[0.8, 0.1], [0.1, 0.3], [0.1, 0.6]])  # (P, K)


def test_the_bound_is_exact_for_known_clusters_and_tight_for_others():
    labels, q, strengths = [0, 0, 2, 1, 0], np.eye(2)[[0, 0, 1, 1, 0]], (1.0, 10.0)
    bound = sample_of(labels, 3).bound(q, THETA, strengths)[0]
    assert bound == pytest.approx(exact_evidence(q, labels, THETA, strengths), rel=1e-9)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        q, labels = rng.dirichlet([1, 1], size=6), rng.integers(3, size=6).tolist()
        bound = sample_of(labels, 3).bound(q, THETA, (10.0,))[0]
        exact = exact_evidence(q, labels, THETA, (10.0,))
        assert exact - 0.5 < bound <= exact + 1e-9


def test_item_free_evidence_by_hand():
    nu, labels = np.array([0.5, 0.3, 0.2]), [0, 1, 1, 0, 0]
    learned = urn_probability(labels, 3 * nu), urn_probability(labels, nu)
    expected = np.log(np.mean([np.prod(nu[labels]), 3.0 ** -len(labels), *learned]))
    assert log_item_free(np.array([[3.0, 2.0, 0.0]]), nu)[0] == pytest.approx(expected, rel=1e-12)


def test_the_share_of_spammers_is_learned():
    # the same evidence is sufficient in a crowd of spammers, but not in a clean crowd
    log_spam = [np.array([[2.0] + [odds] * 49]) for odds in (-8.0, 8.0)]
    even = [evidence.spam_at_even_odds(np.zeros((1, 50)), log) for log in log_spam]
    few, many = map(evidence.spam_probability, even)
    assert few[0] < 0.5 < 0.9 < many[0]
    # 49 sure ones and one: (a + 49 + p) / (a + b + 50), p itself by Bayes' rule
    share = (evidence.SPAM_SHARE_PRIOR[0] + 49 + many[0]) / (sum(evidence.SPAM_SHARE_PRIOR) + 50)
    odds = np.exp(2.0) * share / (1 - share)
    assert many[0] == pytest.approx(odds / (1 + odds), abs=2e-3)


def test_predicted_share_by_hand():
    # two kinds of items: the crowd distinguishes them, a small cluster splits them otherwise
    size = np.full(4, 0.25)
    crowd = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=float)
    repeat = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], dtype=float)
    theta = np.stack([crowd, repeat], axis=1)
    assert predicted_share(theta, size, np.array([0.8, 0.2])) == pytest.approx([np.inf, 0.0], abs=1e-9)
    both = informative_clusters(theta, size, np.array([0.8, 0.2]), np.array([1000, 1000]))
    assert both.tolist() == [True, False]
    turned = np.stack([crowd, crowd[:, ::-1]], axis=1)
    assert informative_clusters(turned, size, np.array([0.8, 0.2]), np.array([1000, 1000])).all()
    assert mutual_information(np.eye(2) / 2) == pytest.approx(np.log(2))


def test_single_labels_are_too_few():
    labels = ds.Annotations.from_arrays(["i", "i", "j"], ["a", "b", "a"], ["x", "y", "x"])
    result = ds.annotator_verdicts(labels, ds.HPGM(**QUICK).fit(labels))
    assert set(result.verdict) == {"cannot tell"}


# ---- decisions ----------------------------------------------------------------------------------------

TYPICAL, MINORITY, ERROR, SPAM_VERDICT, DIFFERS, UNDECIDED = verdicts.VERDICTS


@pytest.mark.parametrize(
    ("spam", "minority", "error", "depends", "differs", "verdict", "probability"),
    [
        (0.95, 0, 0, True, True, SPAM_VERDICT, 0.95),
        (0.85, 0, 0, True, True, UNDECIDED, np.nan),
        (0.05, 0, 0, False, False, UNDECIDED, np.nan),
        (0.05, 0, 0, False, True, UNDECIDED, np.nan),
        (0.01, 0.92, 0, True, True, MINORITY, 0.92),
        (0.01, 0.8, 0, True, False, UNDECIDED, np.nan),  # a minority view needs 0.9
        (0.01, 0.4, 0, True, False, TYPICAL, 0.59),
        (0.01, 0, 0.95, True, True, ERROR, 0.95),
        (0.01, 0, 0.95, False, True, ERROR, 0.95),  # exchanged classes agree less than by chance
        (0.01, 0, 0.7, True, True, DIFFERS, np.nan),  # a systematic error needs 0.9
        (0, 0, 0, True, False, TYPICAL, 1.0),
    ],
)
def test_verdicts_by_probability(spam, minority, error, depends, differs, verdict, probability):
    gap = np.array([-0.2 if differs else -0.01])
    opposes = np.array([False])
    agreement = SimpleNamespace(
        depends=np.array([depends]), differs=np.array([differs]), opposes=opposes, gap=gap
    )
    columns = [np.array([value], dtype=float) for value in (spam, minority, error)]
    decided, chance = decide_verdicts(*columns, agreement, np.array([3]))
    assert decided[0] == verdict
    np.testing.assert_allclose(chance, probability)


def test_spam_agrees_less_than_others_or_gives_one_answer() -> None:
    gap = np.array([-0.1, 0.02, 0.02, np.nan])
    no = np.zeros(4, bool)
    agreement = SimpleNamespace(depends=no, differs=no, opposes=no, gap=gap)
    decided, _ = decide_verdicts(
        np.full(4, 0.95), np.zeros(4), np.zeros(4), agreement, np.array([3, 3, 1, 3])
    )
    assert decided.tolist() == [SPAM_VERDICT, UNDECIDED, SPAM_VERDICT, SPAM_VERDICT]


def test_labels_that_oppose_the_others_depend_on_the_items() -> None:
    """Agreement significantly below chance: the annotator differs, and is not 'cannot tell'."""
    item, annotator = (column.ravel() for column in np.indices((60, 5)))
    label = (item + (annotator == 4)) % 2
    agreement = annotator_agreement(Votes.of(ds.Annotations.from_arrays(item, annotator, label)))
    assert agreement.opposes.tolist() == [False] * 4 + [True]
    decided, _ = decide_verdicts(np.zeros(5), np.zeros(5), np.zeros(5), agreement, np.full(5, 2))
    assert decided.tolist() == [TYPICAL] * 4 + [DIFFERS]


def test_a_shared_bias_is_named_only_if_most_share_it() -> None:
    """Five flagged annotators: the sentence needs three who lean the same way, and four annotators."""
    item, annotator = (column.ravel() for column in np.indices((30, 5)))
    agreement = annotator_agreement(Votes.of(ds.Annotations.from_arrays(item, annotator, item % 2)))
    names, load = [*"abcde"], np.full(5, 30)

    def words(n: int, alike: int, more: bool = True) -> str:
        leaning = ("hate", more, alike)
        return str(sentences.check_sentence(np.arange(n), names, load, agreement, [""] * 5, leaning))

    assert "3 of them answer ‘hate’ more often than the others of the same items." in words(5, 3)
    assert "4 of them answer ‘hate’ less often" in words(4, 4, more=False)
    assert "of them answer" not in words(5, 2) + words(4, 2) + words(3, 3)


def test_most_disagreements_come_first() -> None:
    """Labels times the gap below the usual: 50 · 0.1, 20 · 0.4, none; all of 6 without comparison."""
    item, annotator = (column.ravel() for column in np.indices((4, 4)))
    votes = Votes.of(ds.Annotations.from_arrays(item, annotator, item % 2))
    agreement = replace(annotator_agreement(votes), gap=np.array([-0.1, -0.4, 0.3, np.nan]))
    order = agreement.most_disagreements(np.arange(4), np.array([50, 20, 90, 6]))
    assert order.tolist() == [1, 3, 0, 2]


def answers_of(*rules, n_items=80, P=4):
    """Return the votes of four right annotators, and of one for each rule, a function of the true class."""
    truth = np.arange(n_items) % P
    columns = [truth] * 4 + [np.array([rule(t) for t in truth]) for rule in rules]
    item, annotator = (codes.ravel() for codes in np.indices((n_items, len(columns))))
    labels = np.stack(columns, axis=1).ravel()
    return Votes.of(ds.Annotations.from_arrays(item, annotator, labels, classes=range(P)))


def test_rules_exchange_classes():
    swapped, turned, merged = {0: 1, 1: 0}, {0: 1, 1: 2, 2: 3, 3: 0}, {0: 1}
    votes = answers_of(*(lambda t, rule=rule: rule.get(t, t) for rule in (swapped, turned, merged)))
    chances = rule_probability(votes, is_scale=False)
    assert (chances[:4] == 0).all()
    assert (chances[4:6] > 0.9).all()
    assert chances[6] == 0  # one class for two is a bias
    # by hand: of the items that the others call 0 or 1, all 40 are exchanged: P(Beta(41, 1) > ½) = 1 − ½^41
    even = 1 - 0.5**41
    assert chances[4] == pytest.approx(0.02 * even / (0.02 * even + 0.98 * (1 - even)), rel=1e-12)
    # neighbouring grades are exchanged by harsh and lenient annotators; a reversed scale is an error
    votes = answers_of(lambda t: swapped.get(t, t), lambda t: 3 - t)
    scale = rule_probability(votes, is_scale=True)
    assert scale[4] == 0
    assert scale[5] > 0.9
    few = rule_probability(answers_of(lambda t: swapped.get(t, t), n_items=8), is_scale=False)
    assert few[4] < 0.9  # 4 items are not enough


def test_who_differs_is_tested_over_items_and_annotators():
    """One of twelve annotators is right on 60 % of the items, the others on 90 %; then all are alike."""
    rng = np.random.default_rng(1)
    named = np.zeros(12)
    for crowd, accuracy in enumerate([0.6] + 40 * [0.9]):
        right = rng.random((150, 12)) < np.where(np.arange(12) == 3, accuracy, 0.9)
        item, annotator = (codes.ravel() for codes in np.indices(right.shape))
        truth = item % 3
        labels = np.where(right.ravel(), truth, (truth + rng.integers(1, 3, truth.size)) % 3)
        agreement = annotator_agreement(Votes.of(ds.Annotations.from_arrays(item, annotator, labels)))
        if not crowd:
            assert np.flatnonzero(agreement.differs).tolist() == [3]
        else:
            named += agreement.differs
    assert named.sum() == 0


def test_zero_inflated_quantiles():
    values = np.linspace(1, 2, 101)[:, None]
    for zero, level, quantile in ((0.5, 0.4, 0.0), (0.5, 0.75, 1.5), (0.0, 0.05, 1.05)):
        assert zero_inflated_quantile(values, np.array([zero]), level)[0] == pytest.approx(quantile)


def test_planted_crowds_have_their_shares():
    crowd = planted_crowd(4, n_annotators=100, labels_each=100, spammers=0.2, adversaries=0.1, spread=0.0)
    assert [(crowd.kind == kind).sum() for kind in (SPAM, "adversary", "typical")] == [20, 10, 70]
    labels, kind = crowd.annotations, crowd.kind[crowd.annotations.annotator]
    votes = np.zeros((labels.n_items, 4))
    np.add.at(votes, (labels.item[kind == "typical"], labels.label[kind == "typical"]), 1)
    clear = (np.diff(np.sort(votes, axis=1), axis=1)[:, -1] >= 2)[labels.item]
    turn = (labels.label - votes.argmax(axis=1)[labels.item]) % 4  # 0: the majority's answer
    assert (turn == 0)[clear & (kind == SPAM)].mean() == pytest.approx(0.25, abs=0.03)
    assert (turn == 1)[clear & (kind == "adversary")].mean() == pytest.approx(0.8, abs=0.04)
    copies = planted_crowd(4, labels_each=40, spammers=0.3, strategy="copy-cats")
    rows = (copies.kind == SPAM)[copies.annotations.annotator]
    pairs = set(zip(copies.annotations.item[rows], copies.annotations.label[rows], strict=True))
    assert len(pairs) == len({item for item, _ in pairs})  # one label per item


# ---- whole crowds -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd():
    return planted_crowd(1, labels_each=60, spammers=0.1, adversaries=0.05, accuracy=0.9)


@pytest.fixture(scope="module")
def fitted(crowd):
    return ds.HPGM().fit(crowd.annotations)


@pytest.mark.slow
def test_spammers_and_adversaries_are_found(crowd, fitted):
    result = ds.annotator_verdicts(fitted.training_labels(), fitted)
    assert (result.verdict[crowd.kind == SPAM] == "spam").sum() >= 4  # of six
    assert not (result.verdict[crowd.kind != SPAM] == "spam").any()
    assert (result.verdict[crowd.kind == "adversary"] == "systematic error").all()
    assert (result.verdict[crowd.kind == "typical"] == "typical").mean() > 0.95
    assert result.probability[result.verdict == "spam"].min() >= 0.9
    assert result.groups is None
    assert result.in_words().startswith("Talk to")
    assert result.in_words().endswith("The labels show no groups of annotators who answer differently.")
    assert not result.differs[crowd.kind == "typical"].any()
    assert result.check[np.isin(result.verdict, ["spam", "systematic error"])].all()
    frame = result.to_frame()
    assert list(frame["annotator"]) == list(crowd.annotations.annotators)
    assert (frame["information_low"] <= frame["information_high"]).all()


@pytest.mark.slow
def test_shuffled_labels_are_spam_or_too_few(crowd):
    labels, rng = crowd.annotations, np.random.default_rng(5)
    label = labels.label.copy()
    for n in range(labels.n_annotators):
        rows = np.flatnonzero(labels.annotator == n)
        label[rows] = rng.permutation(label[rows])
    shuffled = ds.Annotations.from_arrays(labels.item, labels.annotator, label)
    result = ds.annotator_verdicts(shuffled, ds.HPGM().fit(shuffled))
    assert set(result.verdict) <= {"spam", "cannot tell"}
    assert result.groups is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(usually(1, verify=5)))
def test_a_clean_crowd_has_no_spam(seed):
    labels = ds.simulate(seed=seed).annotations
    result = ds.annotator_verdicts(labels, ds.HPGM(**QUICK).fit(labels))
    assert not (result.verdict == "spam").any()


def test_gold_labels_reveal_errors(crowd):
    labels = crowd.annotations
    gold = labels.counts.argmax(axis=1).astype(np.int32)
    wrong = verdicts.gold_error_probability(replace(labels, gold=gold), labels.n_annotators)
    assert (wrong[crowd.kind == "adversary"] > 0.9).all()
    assert (wrong[crowd.kind == "typical"] < 0.1).all()
    # with a right answer, there are no minority views
    result = verdicts.compute_verdicts(ds.HPGM(**QUICK).fit(labels), replace(labels, gold=gold))
    assert (result.minority_probability == 0).all()
    # 3 of 10 right, usual 0.8: P(Beta(4, 8) < 0.4) = P(Binomial(11, 0.4) ≥ 4)
    terms = [comb(11, k) * 0.4**k * 0.6 ** (11 - k) for k in range(4, 12)]
    assert float(verdicts.betainc(4, 8, 0.4)) == pytest.approx(sum(terms), rel=1e-9)


def test_verdicts_need_posterior_draws(crowd):
    with pytest.raises(DataError, match="draws of HPGM, and MajorityVote has none"):
        ds.annotator_verdicts(crowd.annotations, ds.MajorityVote().fit(crowd.annotations))
    with pytest.raises(ParameterError, match="'interval' parameter of annotator_verdicts"):
        ds.annotator_verdicts(crowd.annotations, interval=0)


@pytest.mark.data
def test_two_groups_in_hs_brexit(data_dir):
    labels = ds.read_annotations(data_dir / "hs_brexit" / "annotations.csv")
    result = ds.annotator_verdicts(labels, ds.HPGM(n_chains=2, n_sweeps=150, n_jobs=1).fit(labels))
    assert set(result.verdict) == {"typical"}
    assert [np.flatnonzero(result.group == g).tolist() for g in range(2)] in (
        [[0, 1, 2], [3, 4, 5]],
        [[3, 4, 5], [0, 1, 2]],
    )
    assert "two groups that answer differently (3 and 3 annotators)" in result.in_words()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_single_random_annotator_is_spam(seed):
    """The random labels must not split the item clusters."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=120)
    honest = [np.where(rng.random(120) < 0.9, truth, rng.integers(2, size=120)) for _ in range(12)]
    answers = np.stack([*honest, rng.integers(2, size=120)])
    who, item = np.indices(answers.shape)
    labels = ds.Annotations.from_arrays(item.ravel(), who.ravel(), answers.ravel())
    result = ds.annotator_verdicts(labels, ds.HPGM(n_chains=2, n_sweeps=100, n_jobs=1).fit(labels))
    assert result.verdict[-1] == "spam"
    assert result.spam_probability[:-1].max() < 0.05


def test_item_clusters_with_the_same_answers_are_merged():
    answers = np.array([[[0.9, 0.1]], [[0.85, 0.15]], [[0.2, 0.8]]])
    kinds = evidence.merge_item_clusters(answers, np.array([0.5, 0.3, 0.2]))
    assert kinds.tolist() == [[1, 0], [1, 0], [0, 1]]
    # two camps with opposite answers keep the clusters apart, though the population's answers are equal
    camps = np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.1, 0.9], [0.9, 0.1]]])
    assert evidence.merge_item_clusters(camps, np.array([0.5, 0.5])).tolist() == [[1, 0], [0, 1]]
    # without annotator clusters nothing is merged
    kinds = evidence.merge_item_clusters(np.zeros((2, 0, 2)), np.array([0.5, 0.5]))
    assert kinds.tolist() == [[1, 0], [0, 1]]
