"""One true class: bounds and steps held against enumeration and slow twins, the choice, gold, ties."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy.optimize import approx_fprime
from scipy.special import gammaln

import dissensus as ds
from dissensus.engine import Engine
from dissensus.errors import ParameterError
from dissensus.evaluate.compare import choose_truth, reason
from dissensus.evaluate.gold import cross_fitted, gold_accuracy, judged_items
from dissensus.evaluate.sides import shared_errors
from dissensus.labels.simulation import simulate
from dissensus.models import MODELS, mace, model_class
from dissensus.models import log_linear as hll
from dissensus.models.confusion import ConfusionSteps, damping, gold_prior, shares
from dissensus.models.ibcc import fixed_prior
from dissensus.params import with_settings
from dissensus.workflow.refine import fit
from dissensus.workflow.runs import annotator_table, share_right, summary
from reproduction.datasets import read_dataset
from sizes import usually

Array = NDArray[np.float64]

TRUTH_MODELS = [name for name in MODELS if model_class(name).finds_truth]
CROWD = simulate(60, 9, 3, labels_per_item=5, seed=4).annotations


def crowd(rows: list[tuple[int, int, int]], P: int) -> ds.Annotations:
    m, n, y = np.array(rows).T
    return ds.Annotations.from_arrays(m, n, y, classes=list(range(P)))


def errors_together(seed: int = 0, M: int = 300, N: int = 12) -> tuple[ds.Annotations, NDArray[Any]]:
    """Two classes; on a third of the items of class 0, eight annotators of twelve share a false belief."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=M)
    trap = (truth == 0) & (rng.random(M) < 0.35)
    right = np.where(np.arange(N) < 8, 0.95, 0.9)
    said = np.where(rng.random((M, N)) < right, truth[:, None], 1 - truth[:, None])
    fooled = trap[:, None] & (np.arange(N) < 8) & (rng.random((M, N)) < 0.9)
    said = np.where(fooled, 1, said)
    m, n = np.indices(said.shape)
    return crowd(list(zip(m.ravel(), n.ravel(), said.ravel(), strict=True)), 2), truth


def errors_apart(M: int = 300, N: int = 12) -> ds.Annotations:
    """Two classes, every annotator right four times in five, whatever the others say."""
    rng = np.random.default_rng(1)
    truth = rng.integers(2, size=M)
    said = np.where(rng.random((M, N)) < 0.8, truth[:, None], 1 - truth[:, None])
    m, n = np.indices(said.shape)
    return crowd(list(zip(m.ravel(), n.ravel(), said.ravel(), strict=True)), 2)


# ---- bounds against enumeration ------------------------------------------------------------------------

ROWS = [(0, 0, 0), (0, 1, 0), (1, 0, 1), (1, 1, 0), (2, 0, 1), (2, 1, 1), (3, 1, 0)]


def log_beta(a: Array) -> float:
    return float(gammaln(a).sum() - gammaln(a.sum()))


def log_evidence(rows: list[tuple[int, int, int]], M: int, N: int, P: int, G: int, s: float) -> float:
    """log P(labels), by summing over every assignment of the items to classes and subtypes.

    Given an assignment, matrices, subtypes and classes integrate out to Pólya terms.
    """
    prior, logs = fixed_prior(P), []
    for states in itertools.product(range(P * G), repeat=M):
        classes = np.bincount([state // G for state in states], minlength=P)
        total = log_beta(np.ones(P) + classes) - log_beta(np.ones(P))
        subtypes = np.bincount(states, minlength=P * G).reshape(P, G)
        total += sum(log_beta(s + row) - log_beta(np.full(G, s)) for row in subtypes)
        counts = np.zeros((N, P * G, P))
        for m, n, y in rows:
            counts[n, states[m], y] += 1
        for n, state in itertools.product(range(N), range(P * G)):
            a = prior[state // G]
            total += log_beta(a + counts[n, state]) - log_beta(a)
        logs.append(total)
    return float(np.logaddexp.reduce(logs))


@pytest.mark.parametrize("subtypes", [1, 2])
def test_bounds_are_below_the_evidence_and_near_it(subtypes: int) -> None:
    """A bound that lacked a normaliser, or had one twice, would be nats away."""
    exact = log_evidence(ROWS, 4, 2, 2, subtypes, 0.5)
    annotations = crowd(ROWS, 2)
    model = ds.EBCC(subtypes, subtype_prior=0.5, n_restarts=10, tol=0.0, max_iter=200).fit(annotations)
    assert exact - 1.2 * subtypes < model.trace_[-1] < exact
    if subtypes == 1:  # then it is IBCC with a fixed prior, which starts alike
        same = ds.IBCC(prior="fixed", tol=0.0, max_iter=200).fit(annotations)
        np.testing.assert_allclose(same.trace_, model.trace_, rtol=1e-9)
        np.testing.assert_allclose(same.posterior_, model.posterior_, rtol=1e-6)


def test_the_bound_of_a_sure_state_is_its_joint_probability() -> None:
    """Where gold fixes every class, nothing is left to approximate: the bound is log P(labels, classes)."""
    gold = np.array([0, 1, 1, 0])
    model = ds.IBCC(prior="fixed").fit(crowd(ROWS, 2), prior=np.eye(2)[gold])
    joint = log_beta(np.ones(2) + np.bincount(gold)) - log_beta(np.ones(2))
    for n, k in itertools.product(range(2), range(2)):
        counts = np.bincount([y for m, who, y in ROWS if who == n and gold[m] == k], minlength=2)
        joint += log_beta(fixed_prior(2)[k] + counts) - log_beta(fixed_prior(2)[k])
    np.testing.assert_allclose(model.trace_[-1], joint, rtol=1e-12)


def test_a_learned_prior_is_a_maximum_of_its_bound() -> None:
    model = ds.IBCC(tol=0.0, max_iter=600).fit(CROWD)
    counts = ConfusionSteps(CROWD, Engine()).expected_counts(model.posterior_).counts

    def bound(a: Array) -> float:
        a = a.reshape(3, 3)
        rows = sum(log_beta(a[k] + counts[n, k]) - log_beta(a[k]) for n in range(9) for k in range(3))
        return float(rows - a.sum() / 10.0)

    best = model.prior_parameters_
    slopes = approx_fprime(best.ravel(), bound, 1e-6).reshape(3, 3)
    inside = (best > 2e-3) & (best < 9e3)
    assert np.abs(slopes * best)[inside].max() < 0.05
    assert inside.any()


# ---- log-linear ----------------------------------------------------------------------------------------


def some_answering(rng: np.random.Generator, N: int = 4, P: int = 3) -> hll.Answering:
    C = rng.normal(size=(P, P))
    return hll.Answering(
        C - C.mean(axis=1, keepdims=True),
        rng.normal(size=N) * 0.3,
        rng.normal(size=(N, P)),
        rng.normal(size=(N, P, P)) * 0.3,
        rng.gamma(2.0, 0.1, size=N),
        rng.gamma(2.0, 0.1, size=(N, P)),
        rng.gamma(2.0, 0.1, size=(N, P, P)),
        np.array([1.5, 2.0, 6.0]),
    )


def test_log_linear_matrices_by_hand() -> None:
    own = some_answering(np.random.default_rng(0))
    for n, k in itertools.product(range(4), range(3)):
        weights = [
            math.exp(math.exp(own.u[n]) * own.C[k, p] + own.b[n, p] + own.e[n, k, p]) for p in range(3)
        ]
        expected = [weight / sum(weights) for weight in weights]
        np.testing.assert_allclose(np.exp(hll.log_matrices(own))[n, k], expected, rtol=1e-12)


def test_the_expectation_of_a_logarithm_is_right_to_the_second_order() -> None:
    """Against draws of the Gaussians, with variances small enough for two orders."""
    rng = np.random.default_rng(1)
    own = some_answering(rng, N=1)
    # u moves a row's logits together, which (2) leaves out: b and e alone are exact to this order
    own = hll.replace(own, v_u=0 * own.v_u, v_b=0.1 * own.v_b, v_e=0.1 * own.v_e)
    draws = []
    for _ in range(1000):
        steps = {x: rng.normal(size=getattr(own, x).shape) * np.sqrt(getattr(own, f"v_{x}")) for x in "ube"}
        for sign in (-1, 1):  # there and back, so that what is linear cancels
            moved = {x: getattr(own, x) + sign * step for x, step in steps.items()}
            draws.append(hll.log_matrices(hll.replace(own, **moved)))
    gap = np.mean(draws, axis=0) - hll.log_matrices(own)
    predicted = hll.expected_logs(own) - hll.log_matrices(own)
    np.testing.assert_allclose(gap, predicted, atol=0.0015)
    assert np.abs(predicted).max() > 0.009


@pytest.mark.parametrize("name", ["C", "u", "b", "e"])
def test_the_newton_step_goes_where_the_objective_rises(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step times its curvature is the slope of F, by differences."""
    rng = np.random.default_rng(2)
    own, anchor = some_answering(rng), rng.normal(size=(3, 3))
    anchor -= anchor.mean(axis=1, keepdims=True)
    counts = rng.gamma(1.0, 3.0, size=(4, 3, 3))
    seen: dict[str, Array] = {}

    def keep(_counts: Array, own: hll.Answering, _anchor: Array, steps: dict[str, Array]) -> hll.Answering:
        seen.update(steps)
        return own

    monkeypatch.setattr(hll, "_shortened", keep)
    hll.newton(counts, own, anchor)
    here = getattr(own, name)

    def objective(x: Array) -> float:
        return hll.score(counts, hll.replace(own, **{name: x.reshape(here.shape)}), anchor)

    slopes = approx_fprime(here.ravel(), objective, 1e-6).reshape(here.shape)
    pi = np.exp(hll.log_matrices(own))
    curvature = counts.sum(-1, keepdims=True) * pi * (1 - pi)
    scale = np.exp(own.u)[:, None, None]
    curvatures = {
        "C": (curvature * scale**2).sum(axis=0) + 100.0,
        "u": (curvature * (scale * own.C) ** 2).sum(axis=(1, 2)) + 1.5,
        "b": curvature.sum(axis=1) + 2.0,
        "e": curvature + 6.0,
    }
    np.testing.assert_allclose(seen[name] * curvatures[name], slopes, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("which", ["variances", "precisions"])
def test_variances_and_precisions_are_maxima(which: str) -> None:
    rng = np.random.default_rng(3)
    own, anchor = some_answering(rng), np.zeros((3, 3))
    counts = rng.gamma(1.0, 3.0, size=(4, 3, 3))
    best = hll.with_variances(counts, own) if which == "variances" else hll.with_precisions(own)
    names = ("v_u", "v_b", "v_e") if which == "variances" else ("precisions",)
    top = hll.score(counts, best, anchor)
    for name, factor in itertools.product(names, (0.9, 1.1)):
        moved = hll.replace(best, **{name: getattr(best, name) * factor})
        assert hll.score(counts, moved, anchor) < top


def test_the_design_effect_is_one_of_independent_labels_and_all_of_copied_ones() -> None:
    """Items of 4 labels: all four alike are worth one; independent ones are worth what they are."""
    rng = np.random.default_rng(0)
    gold = np.eye(2, dtype=bool)[np.repeat([0, 1], 400)]
    chance = np.where(gold[:, 0], 0.8, 0.3)
    copied = np.where((rng.random(800) < chance)[:, None], [4, 0], [0, 4]).astype(float)
    assert hll.design_effect(copied, gold) == pytest.approx(4.0, rel=0.01)
    first = rng.binomial(4, chance)
    apart = np.stack([first, 4 - first], axis=1).astype(float)
    assert hll.design_effect(apart, gold) == pytest.approx(1.0, abs=0.08)
    assert hll.design_effect(copied[:1], gold[:1]) == 1.0  # of one item nothing is known


def test_the_design_effect_by_hand() -> None:
    """Three items of class 0 with 2, 2 and 4 labels, one of class 1, which tells nothing."""
    counts = np.array([[2.0, 0.0], [1.0, 1.0], [1.0, 3.0], [0.0, 5.0]])
    gold = np.eye(2, dtype=bool)[[0, 0, 0, 1]]
    # shares 1, ½, ¼ around ½; both classes alike
    apart = 2 * (2 * 0.5**2 + 2 * 0.0 + 4 * 0.25**2)
    # (I − 1) = 2, eight labels, ½ · ½ for each class: 2 · 8/7 · ½ = 8/7
    assert hll.design_effect(counts, gold) == pytest.approx(apart / (8 / 7))


def test_both_sums_of_the_design_effect_have_the_same_mean() -> None:
    """Two items of 2 and 3 independent labels: all 32 outcomes, weighed by their chances, give a ratio of 1.

    The two sums are those of (15.7), worked out here with fractions; a design effect below 1 counts as 1, so
    only the sums themselves can be averaged.
    """
    chance, above, below = Fraction(1, 3), Fraction(0), Fraction(0)
    for answers in itertools.product((0, 1), repeat=5):
        weight = math.prod(chance if y else 1 - chance for y in answers)
        items = (answers[:2], answers[2:])
        mean = Fraction(sum(answers), 5)
        spread = sum(len(y) * (Fraction(sum(y), len(y)) - mean) ** 2 for y in items)
        expected = (2 - 1) * Fraction(5, 4) * mean * (1 - mean)
        above, below = above + weight * 2 * spread, below + weight * 2 * expected
        counts = np.array([[len(y) - sum(y), sum(y)] for y in items], dtype=float)
        found = hll.design_effect(counts, np.eye(2, dtype=bool)[[0, 0]])
        assert found == pytest.approx(max(1.0, float(spread / expected)) if expected else 1.0)
    assert above == below == 2 * chance * (1 - chance)


@pytest.mark.parametrize(("agrees", "trusted"), [(True, 1e4), (False, 30.0)])
def test_votes_count_for_much_where_gold_agrees_with_them(agrees: bool, trusted: float) -> None:
    """The strength of the votes' matrix, and that the answer is gold's labels and so much of it."""
    rng = np.random.default_rng(1)
    gold = np.eye(2, dtype=bool)[rng.integers(2, size=300)]
    right = 0.9 if agrees else 0.6
    label = np.where(rng.random(300) < right, gold.argmax(axis=1), 1 - gold.argmax(axis=1))
    counts = np.eye(2)[label]
    votes = np.array([[900.0, 100.0], [100.0, 900.0]]) + gold.T @ counts
    found = hll.with_gold(votes, counts, gold)
    said = gold.T @ counts / hll.design_effect(counts, gold)
    rest = found - said
    np.testing.assert_allclose(rest, rest.sum(axis=1)[:, None] * [[0.9, 0.1], [0.1, 0.9]], rtol=1e-9)
    strength = rest[0].sum()
    assert strength > trusted if agrees else strength < trusted

    def likelihood(s: float) -> float:
        prior = s * np.array([[0.9, 0.1], [0.1, 0.9]])
        return sum(log_beta(a + g) - log_beta(a) for a, g in zip(prior, said, strict=True))

    assert all(likelihood(strength) >= likelihood(s) - 1e-9 for s in np.geomspace(1, 1e5, 61))


@pytest.mark.parametrize(
    ("on_gold", "classes", "many"),
    [
        ([8, 8], [8, 8], False),  # gold says what the votes say
        ([8, 8], [15, 1], True),  # the votes on gold items are like the others', and wrong
        ([15, 1], [15, 1], False),  # gold items are others: nothing is said of those without gold
    ],
)
def test_what_a_gold_item_counts_in_the_class_shares(
    on_gold: list[int], classes: list[int], many: bool
) -> None:
    """200 items without gold have votes half and half; 16 with gold."""
    votes = np.repeat(np.eye(2)[[0, 1, 0, 1]], [100, 100, *on_gold], axis=0)
    gold = np.zeros((216, 2), dtype=bool)
    gold[np.arange(200, 216), np.repeat([0, 1], classes)] = True

    def strength(counts: list[int]) -> float:
        def likelihood(s: float) -> float:
            return log_beta(np.array([s / 2, s / 2]) + counts) - log_beta(np.array([s / 2, s / 2]))

        return max(np.geomspace(1, 1e5, 61), key=likelihood)

    found = hll.worth(votes, gold)
    assert found == pytest.approx(max(1.0, min(strength(on_gold), 200) / strength(classes)))
    assert found > 30 if many else found == 1.0
    nothing = np.zeros((216, 2), dtype=bool)
    assert hll.worth(votes, nothing) == 1.0


def test_gold_mends_a_class_that_votes_swallow() -> None:
    """A third of the items is of class 2, which annotators call 1 more often than not: gold for a tenth."""
    rng = np.random.default_rng(9)
    truth = rng.integers(3, size=600)
    rows = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.55, 0.35]])
    said = np.array([[rng.choice(3, p=rows[t]) for _ in range(6)] for t in truth])
    m, _ = np.indices(said.shape)
    n = (m + np.arange(6)) % 20
    annotations = crowd(list(zip(m.ravel(), n.ravel(), said.ravel(), strict=True)), 3)
    prior = np.ones((600, 3))
    prior[:60] = np.eye(3)[truth[:60]]
    without = ds.LogLinear().fit(annotations)
    trained = ds.LogLinear().fit(annotations, prior=prior)
    right = [(model.predict()[60:] == truth[60:]).mean() for model in (without, trained)]
    assert right[1] > right[0] + 0.03
    # equal numbers say nothing
    nothing = ds.LogLinear().fit(annotations, prior=np.ones((600, 3)))
    np.testing.assert_allclose(nothing.posterior_, without.posterior_, rtol=1e-8)


# ---- what holds for all --------------------------------------------------------------------------------

EXACT: dict[str, dict[str, Any]] = {
    "mace": {},
    "dawid-skene": {},
    "one-coin": {},
    "cbcc": {"n_annotator_clusters": 2},
    "ibcc": {},
    "ebcc": {},
    "log-linear": {},
}


@pytest.mark.no_cover
@pytest.mark.parametrize("gold_share", [0.0, 0.2])
@pytest.mark.parametrize("name", EXACT)
def test_the_objective_never_falls(name: str, gold_share: float) -> None:
    annotations = simulate(80, 12, 4, labels_per_item=4, seed=8).annotations
    rng = np.random.default_rng(0)
    prior = np.where(
        (rng.random(80) < gold_share)[:, None],
        np.eye(4)[rng.integers(4, size=80)],
        rng.dirichlet(np.ones(4), 80),
    )
    model = model_class(name)(**EXACT[name], tol=0.0, max_iter=60).fit(annotations, prior=prior)
    steps = np.diff(model.trace_)
    assert steps.min() >= -1e-9 * np.abs(model.trace_).max()
    assert len(steps) > 10


@pytest.mark.parametrize("name", TRUTH_MODELS)
def test_gold_decides_its_own_items_and_teaches_about_annotators(name: str) -> None:
    """Six of nine annotators swap two classes: gold for a third of the items turns the rest round.

    A vote cannot do that.
    """
    rng = np.random.default_rng(5)
    truth = rng.integers(2, size=150)
    swaps = np.arange(9) < 6
    said = np.where(rng.random((150, 9)) < 0.9, truth[:, None] ^ swaps, 1 - (truth[:, None] ^ swaps))
    m, n = np.indices(said.shape)
    annotations = crowd(list(zip(m.ravel(), n.ravel(), said.ravel(), strict=True)), 2)
    prior = np.ones((150, 2))
    prior[:50] = np.eye(2)[truth[:50]]
    model: Any = model_class(name)()
    found = model.fit(annotations, prior=prior).label_distributions_
    np.testing.assert_allclose(found[:50], prior[:50], atol=1e-12)
    right = (found[50:].argmax(axis=1) == truth[50:]).mean()
    if name == "majority":
        assert right < 0.9
    else:
        assert right > 0.9


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("name", TRUTH_MODELS)
def test_very_many_labels_of_one_item_are_no_trouble(name: str) -> None:
    rng = np.random.default_rng(6)
    who = 2000
    many = [(0, n, int(rng.random() < 0.3)) for n in range(who)] * (100_000 // who + 1)
    some = [(1, n, int(rng.random() < 0.6)) for n in range(1500)]
    rest = [(m, int(rng.integers(who)), m % 2) for m in range(2, 40) for _ in range(5)]
    annotations = crowd(many + some + rest, 2)
    assert annotations.n_labels > 100_000
    few: dict[str, Any] = {"max_iter": 3} if "max_iter" in model_class(name)().get_params() else {}
    settings = usually(few, verify={})
    model = model_class(name)(**settings).fit(annotations)
    assert np.isfinite(model.label_distributions_).all()
    np.testing.assert_allclose(model.label_distributions_.sum(axis=1), 1, rtol=1e-9)
    assert np.isfinite(model.trace_).all()


def test_a_class_that_nobody_gave_is_damped_label_by_label() -> None:
    damped = damping(np.array([[2, 0, 1], [1, 0, 0], [0, 0, 0], [20, 0, 0]]), 0.3)
    expected = [[1, 0.027, 1], [1, 0.3, 0.3], [1, 1, 1], [1, math.exp(-7), math.exp(-7)]]
    np.testing.assert_allclose(damped, expected, rtol=1e-12)


# ---- the classics against hand-worked cases and crowd-kit ----------------------------------------------


def frame(annotations: ds.Annotations) -> Any:
    import pandas as pd

    columns = {"task": annotations.item, "worker": annotations.annotator, "label": annotations.label}
    return pd.DataFrame(columns)


def test_mace_makes_crowd_kits_steps() -> None:
    """From crowd-kit's own random start, its chances after some iterations are ours.

    It numbers classes as they come and its counts of answers in sorted order, so that the strategies of one
    class go to another unless both orders are the same: here they are.
    """
    peers = pytest.importorskip("crowdkit.aggregation")
    annotations, _ = errors_together(M=40, N=6)
    columns = annotations.item, annotations.annotator, annotations.label != annotations.label[0]
    annotations = ds.Annotations.from_arrays(columns[0], columns[1], columns[2].astype(int))
    rows, rounds = frame(annotations), 4
    peer = peers.MACE(n_restarts=1, n_iter=rounds, random_state=5)
    peer._initialize(6, 2)
    knows, spams = peer.spamming_[:, 1:], peer.spamming_[:, :1] * peer.thetas_
    members, flat = ConfusionSteps(annotations, Engine()), np.log(np.full(2, 0.5))
    for _ in range(rounds):
        counts = members.e_step(np.log(mace.matrices(knows, spams)), flat, np.zeros_like(flat)).counts
        knows, spams = mace.parts(mace.learned(counts, knows, spams))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer.fit(rows)
    np.testing.assert_allclose(knows, peer.spamming_[:, 1:], rtol=1e-6)
    np.testing.assert_allclose(spams, peer.spamming_[:, :1] * peer.thetas_, rtol=1e-6)


def test_the_bound_of_mace_by_hand() -> None:
    """One annotator, one label, two classes: the marginal likelihood of a label is ½ exactly."""
    model = ds.MACE(max_iter=500, tol=0.0).fit(crowd([(0, 0, 0)], 2))
    assert math.log(0.5) - 0.5 < model.trace_[-1] < math.log(0.5)


# ---- the choice ----------------------------------------------------------------------------------------


def test_ebcc_is_chosen_where_annotators_err_together() -> None:
    annotations, _ = errors_together()
    choice = choose_truth(annotations)
    assert type(choice.model).__name__ == "EBCC"
    assert "err together" in choice.reason


def test_errors_are_said_to_be_shared_only_where_the_labels_show_it() -> None:
    together, _ = errors_together()
    assert shared_errors(together).low > 0
    for seed in range(5):  # the negative control: independent errors, in crowds of all shapes
        drawn = np.random.default_rng(seed)
        M, N, P = 200, int(drawn.integers(4, 12)), int(drawn.integers(2, 5))
        truth, skill = drawn.integers(P, size=M), drawn.uniform(0.5, 0.95, N)
        other = (truth[:, None] + drawn.integers(1, P, (M, N))) % P
        said = np.where(drawn.random((M, N)) < skill, truth[:, None], other)
        m, n = np.indices(said.shape)
        apart = crowd(list(zip(m.ravel(), n.ravel(), said.ravel(), strict=True)), P)
        assert not shared_errors(apart).low > 0
        assert reason(apart, -2.0).startswith("annotators err independently: the bound of ebcc is 2.0 nats")
        assert reason(apart, 0.5) == (
            "the bound of ebcc is 0.5 nats above that of ibcc, though the labels by themselves do not show "
            "that annotators err together"
        )
    assert reason(together, -2.0).endswith(
        "though the labels by themselves show that annotators err together"
    )


def test_shared_errors_by_hand() -> None:
    # Five annotators, three items of x, one of y; on the first item d and e both say y.
    said = ["xxxyy", "xxxxx", "xxxxx", "yyyyy"]
    rows = [(m, n, "xy".index(c)) for m, line in enumerate(said) for n, c in enumerate(line)]
    # d, e: r = ⅔ on the first item, −⅓ on the next two; of 20 ordered pairs an item they make two
    expected = 2 * ((2 / 3) ** 2 + 2 * (1 / 3) ** 2) / (4 * 20)
    assert shared_errors(crowd(rows, 2)).value == pytest.approx(expected)


def test_log_linear_is_chosen_where_annotators_err_independently() -> None:
    choice = choose_truth(errors_apart())
    assert type(choice.model).__name__ == "LogLinear"
    assert "independently" in choice.reason
    assert [row.as_row()["model"] for row in choice.table] == ["ibcc", "ebcc", "log-linear"]


def test_without_annotators_the_majority_answers() -> None:
    counts = ds.Annotations.from_counts([[3, 1], [0, 2]], items=["i", "j"], classes=["x", "y"])
    run = fit(counts, estimate="truth")
    assert run.model.predict().tolist() == ["x", "y"]
    assert "nobody knows who" in run.reason


def test_a_model_of_a_population_refuses_the_question() -> None:
    with pytest.raises(ParameterError, match=r"fmm knows no true class, .* take one of: majority, one-coin"):
        fit(CROWD, "fmm", estimate="truth")


def test_a_run_says_what_it_was_asked_and_why() -> None:
    run = fit(CROWD, estimate="truth", seed=3)
    found = summary(run, ds.describe(run.annotations))
    assert (found["estimate"], found["chosen_by"], found["gold"]) == ("truth", "bounds", None)
    assert found["candidates"][0].keys() == {"model", "bound", "seconds"}
    named = fit(CROWD, "dawid-skene", {"smoothing": 1.0}, estimate="truth")
    assert named.model.label_distributions_.tobytes() == named.model.posterior_.tobytes()  # type: ignore[attr-defined]
    asked = fit(CROWD, "dawid-skene", {"smoothing": 1.0}, test_size=0)
    assert asked.model.get_params()["estimate"] == "population"


# ---- gold ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False])
def test_gold_trains_the_model_that_labels_chose(together: bool) -> None:
    """Choice and bounds are those of the labels alone, whatever gold says; the fit is the one with gold."""
    annotations = errors_together(M=100)[0] if together else errors_apart(M=100)
    prior = np.ones((100, 2))
    prior[:50] = np.eye(2)[np.random.default_rng(0).integers(2, size=50)]
    alone, found = choose_truth(annotations), choose_truth(annotations, prior=prior)
    assert isinstance(found.model, ds.EBCC if together else ds.LogLinear)
    assert found.reason == alone.reason
    assert [row.bound for row in found.table[:2]] == [row.bound for row in alone.table[:2]]
    twin = with_settings(alone.model, {}).fit(annotations, prior=prior)
    np.testing.assert_array_equal(found.model.label_distributions_, twin.label_distributions_)
    assert (found.model.label_distributions_[:50].argmax(axis=1) == prior[:50].argmax(axis=1)).all()


def with_gold(annotations: ds.Annotations, gold: NDArray[Any]) -> ds.Annotations:
    return annotations.with_tables(gold=pa.table({"item": annotations.items, "label": gold}))


def test_all_right_on_few_items_is_not_sure() -> None:
    """Wilson's interval of 12 of 12 by hand: 1 / (1 + z²/12) = 0.757."""
    rows = [(m, n, m % 2) for m in range(12) for n in range(4)]
    annotations = replace(crowd(rows, 2), gold=np.arange(12, dtype=np.int32) % 2)
    found = gold_accuracy(annotations, ds.DawidSkene())
    assert found.plain == found.cross_fitted
    assert found.plain == pytest.approx((1.0, 12 / (12 + 1.96**2), 1.0))


def test_cross_fitted_accuracy_sees_no_item_it_scores() -> None:
    """Gold that is pure chance cannot be foreseen; a model that saw it would be right every time."""
    rng = np.random.default_rng(7)
    annotations = crowd([(m, int(rng.integers(20)), int(rng.integers(2))) for m in range(200)], 2)
    chance = with_gold(annotations, rng.integers(2, size=200))
    found = gold_accuracy(chance, ds.DawidSkene())
    assert found.n_items == 200
    assert abs(found.cross_fitted.value - 0.5) < 0.13
    seen = ds.DawidSkene().fit(chance, prior=gold_prior(chance))
    assert (seen.posterior_.argmax(axis=1) == chance.gold).all()


def test_each_gold_item_is_predicted_by_a_fit_on_the_others() -> None:
    annotations, truth = errors_together(M=40)
    known = with_gold(annotations, truth)
    found = cross_fitted(ds.OneCoin(), known, folds=4, seed=2)
    fold = np.random.default_rng(2).permutation(40) % 4
    for number in range(4):
        prior = np.eye(2)[truth]
        prior[fold == number] = 1.0
        twin = ds.OneCoin().fit(known, prior=prior)
        np.testing.assert_array_equal(found[fold == number], twin.posterior_[fold == number])


def test_gold_trains_and_its_accuracy_is_given_with_and_without() -> None:
    annotations, truth = errors_together()
    run = fit(with_gold(annotations, truth), "dawid-skene", estimate="truth")
    assert run.gold is not None
    assert run.gold.n_items == 300
    assert run.gold.cross_fitted.low <= run.gold.cross_fitted.value <= run.gold.cross_fitted.high
    assert share_right(run) == run.gold.cross_fitted.value
    assert (run.model.label_distributions_.argmax(axis=1) == truth).all()
    assert summary(run, ds.describe(run.annotations))["gold"]["plain"]["value"] == run.gold.plain.value


def test_items_without_labels_or_gold_are_not_judged() -> None:
    annotations = crowd([(0, 0, 1), (1, 0, 0)], 2)
    gold = annotations.with_tables(
        items=pa.table({"item": [0, 1, 2]}), gold=pa.table({"item": [0, 2], "label": [1, 1]})
    )
    assert judged_items(gold).tolist() == [0]
    assert not len(judged_items(annotations))


# ---- ties ----------------------------------------------------------------------------------------------


def test_a_tied_vote_counts_the_same_everywhere(tmp_path: Any) -> None:
    """Two items of four are tied, gold on the later class of one and the earlier of the other."""
    rows = [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 1), (2, 0, 1), (2, 1, 1), (3, 0, 0), (3, 1, 0)]
    known = with_gold(crowd(rows, 2), np.array([1, 0, 1, 1]))
    expected = (0.5 + 0.5 + 1 + 0) / 4
    assert ds.describe(known).majority_accuracy == expected
    assert share_right(fit(known, "majority", test_size=0)) == expected
    model = ds.MajorityVote().fit(known)
    model.to_frame().to_csv(tmp_path / "labels.csv", index=False)
    (tmp_path / "gold.csv").write_text("item,label\n0,1\n1,0\n2,1\n3,1\n")
    found = ds.score(tmp_path / "labels.csv", tmp_path / "gold.csv", metrics=["accuracy"], n_boot=0)
    assert found.values["accuracy"].value == expected


def test_shares_is_what_a_fit_starts_from() -> None:
    counts = np.array([[1.0, 3.0], [0.0, 0.0]])
    np.testing.assert_allclose(shares(counts, np.array([6.0, 2.0])), [[0.25, 0.75], [0.75, 0.25]])


def test_a_run_for_the_truth_tells_how_right_annotators_are() -> None:
    table = annotator_table(fit(errors_apart(), estimate="truth"))
    names = table.column_names
    assert {"accuracy", "accuracy_low", "accuracy_high", "skill", "skill_low", "skill_high"} <= set(names)
    assert {"bias_0", "bias_1", "systematic", "correction"} <= set(names)
    accuracy = table["accuracy"].to_numpy()
    np.testing.assert_allclose(accuracy, 0.8, atol=0.08)


# ---- real data, and the page -----------------------------------------------------------------------------

FEW_SETS = ("bluebirds", "snow_wsd", "anesthesia")


@pytest.mark.data
def test_no_objective_falls_on_real_data(data_dir: Path) -> None:
    every = tuple(sorted(folder.name for folder in data_dir.iterdir() if folder.is_dir()))
    for dataset, (name, settings) in itertools.product(usually(FEW_SETS, verify=every), EXACT.items()):
        annotations = read_dataset(data_dir / dataset)
        known = gold_prior(annotations)
        known[::3] = 1.0
        for prior in (None, known)[: 1 + (annotations.gold is not None)]:
            trace = model_class(name)(**settings, tol=0.0, max_iter=25).fit(annotations, prior=prior).trace_
            assert np.diff(trace).min() >= -1e-9 * np.abs(trace).max(), (dataset, name)


@pytest.mark.data
def test_on_zencrowd_annotators_err_together(data_dir: Path) -> None:
    annotations = read_dataset(data_dir / "zencrowd")
    choice = choose_truth(annotations)
    assert type(choice.model).__name__ == "EBCC"
    gold = np.asarray(annotations.gold)
    right = [
        float((model.label_distributions_.argmax(axis=1) == gold).mean())
        for model in (choice.model, ds.LogLinear().fit(annotations))
    ]
    assert right[0] > right[1] + 0.05


@pytest.mark.slow
def test_the_page_runs() -> None:
    page = (Path(__file__).resolve().parents[1] / "docs" / "truth.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S):
        exec(compile(block, "docs/truth.md", "exec"), names)
    assert names["run"].estimate == "truth"
    table = re.findall(r"^\| `([\w-]+)` \| `(\w+)` \|", page, re.M)
    assert {name for name, _ in table} == set(TRUTH_MODELS)
    assert all(model_class(name).__name__ == title for name, title in table)
