"""LogLinear: matrices by hand, steps against differences, the weights of votes and gold."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.optimize import approx_fprime
from scipy.special import gammaln

import dissensus as ds
from dissensus.models import log_linear as hll
from tests.helpers.small_graphs import crowd

Array = NDArray[np.float64]


def log_beta(a: Array) -> float:
    return float(gammaln(a).sum() - gammaln(a.sum()))


def some_answering(rng: np.random.Generator, N: int = 4, P: int = 3) -> hll.Logits:
    C = rng.normal(size=(P, P))
    return hll.Logits(
        C - C.mean(axis=1, keepdims=True),
        rng.normal(size=N) * 0.3,
        rng.normal(size=(N, P)),
        rng.normal(size=(N, P, P)) * 0.3,
        rng.gamma(2.0, 0.1, size=N),
        rng.gamma(2.0, 0.1, size=(N, P)),
        rng.gamma(2.0, 0.1, size=(N, P, P)),
        np.array([1.5, 2.0, 6.0]),
    )


def test_matrices_by_hand() -> None:
    own = some_answering(np.random.default_rng(0))
    for n, k in itertools.product(range(4), range(3)):
        logits = math.exp(own.u[n]) * own.C[k] + own.b[n] + own.e[n, k]
        weights = [math.exp(logit) for logit in logits]
        expected = [weight / sum(weights) for weight in weights]
        assert_allclose(np.exp(hll.log_matrices(own))[n, k], expected, rtol=1e-12)


def test_expected_logs_are_exact_to_second_order() -> None:
    """Compare with draws of the Gaussians, with small variances."""
    rng = np.random.default_rng(1)
    own = some_answering(rng, N=1)
    # (2) neglects that u moves the logits of a row together: it is exact to second order in b and e only
    own = hll.replace(own, v_u=0 * own.v_u, v_b=0.1 * own.v_b, v_e=0.1 * own.v_e)
    draws = []
    for _ in range(1000):
        steps = {x: rng.normal(size=getattr(own, x).shape) * np.sqrt(getattr(own, f"v_{x}")) for x in "ube"}
        for sign in (-1, 1):  # antithetic: linear terms cancel
            moved = {x: getattr(own, x) + sign * step for x, step in steps.items()}
            draws.append(hll.log_matrices(hll.replace(own, **moved)))
    gap = np.mean(draws, axis=0) - hll.log_matrices(own)
    predicted = hll.expected_logs(own) - hll.log_matrices(own)
    assert_allclose(gap, predicted, atol=0.0015)
    assert np.abs(predicted).max() > 0.009


@pytest.mark.parametrize("name", ["C", "u", "b", "e"])
def test_newton_step_is_gradient_over_curvature(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step times the curvature equals the gradient of F by finite differences."""
    rng = np.random.default_rng(2)
    own, anchor = some_answering(rng), rng.normal(size=(3, 3))
    anchor -= anchor.mean(axis=1, keepdims=True)
    counts = rng.gamma(1.0, 3.0, size=(4, 3, 3))
    seen: dict[str, Array] = {}

    def keep(_counts: Array, own: hll.Logits, _anchor: Array, steps: dict[str, Array]) -> hll.Logits:
        seen.update(steps)
        return own

    monkeypatch.setattr(hll, "_shortened_step", keep)
    hll.newton_step(counts, own, anchor)
    here = getattr(own, name)

    def objective(x: Array) -> float:
        return hll.objective(counts, hll.replace(own, **{name: x.reshape(here.shape)}), anchor)

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
    assert_allclose(seen[name] * curvatures[name], slopes, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("which", ["variances", "precisions"])
def test_variances_and_precisions_are_maxima(which: str) -> None:
    rng = np.random.default_rng(3)
    own, anchor = some_answering(rng), np.zeros((3, 3))
    counts = rng.gamma(1.0, 3.0, size=(4, 3, 3))
    best = hll.with_variances(counts, own) if which == "variances" else hll.with_precisions(own)
    names = ("v_u", "v_b", "v_e") if which == "variances" else ("precisions",)
    top = hll.objective(counts, best, anchor)
    for name, factor in itertools.product(names, (0.9, 1.1)):
        moved = hll.replace(best, **{name: getattr(best, name) * factor})
        assert hll.objective(counts, moved, anchor) < top


def test_design_effect_by_hand() -> None:
    """Three items of class 0 have 2, 2 and 4 labels; the only item of class 1 has no weight."""
    counts = np.array([[2.0, 0.0], [1.0, 1.0], [1.0, 3.0], [0.0, 5.0]])
    gold = np.eye(2, dtype=bool)[[0, 0, 0, 1]]
    # shares 1, ½ and ¼ around ½, for both answers
    apart = 2 * (2 * 0.5**2 + 2 * 0.0 + 4 * 0.25**2)
    # (I − 1) = 2, eight labels, ½ · ½ for each answer: 2 · 8/7 · ½ = 8/7
    assert hll.design_effect(counts, gold) == pytest.approx(apart / (8 / 7))
    copied = np.repeat([[4.0, 0.0], [0.0, 4.0]], 400, axis=0)  # four copies are worth one label
    gold = np.eye(2, dtype=bool)[np.zeros(800, int)]
    assert hll.design_effect(copied, gold) == pytest.approx(4.0, rel=0.01)
    assert hll.design_effect(copied[:1], gold[:1]) == 1.0  # one item: unknown


@pytest.mark.parametrize(("agrees", "trusted"), [(True, 1e4), (False, 30.0)])
def test_votes_have_weight_if_gold_agrees(agrees: bool, trusted: float) -> None:
    """The matrix is the gold labels plus the votes' matrix times the best strength."""
    rng = np.random.default_rng(1)
    gold = np.eye(2, dtype=bool)[rng.integers(2, size=300)]
    right = 0.9 if agrees else 0.6
    label = np.where(rng.random(300) < right, gold.argmax(axis=1), 1 - gold.argmax(axis=1))
    counts = np.eye(2)[label]
    votes = np.array([[900.0, 100.0], [100.0, 900.0]]) + gold.T @ counts
    found = hll.crowd_matrix(votes, counts, gold)
    said = gold.T @ counts / hll.design_effect(counts, gold)
    rest = found - said
    assert_allclose(rest, rest.sum(axis=1)[:, None] * [[0.9, 0.1], [0.1, 0.9]], rtol=1e-9)
    strength = rest[0].sum()
    assert strength > trusted if agrees else strength < trusted

    def likelihood(s: float) -> float:
        prior = s * np.array([[0.9, 0.1], [0.1, 0.9]])
        return sum(log_beta(a + g) - log_beta(a) for a, g in zip(prior, said, strict=True))

    assert all(likelihood(strength) >= likelihood(s) - 1e-9 for s in np.geomspace(1, 1e5, 61))


@pytest.mark.parametrize(
    ("on_gold", "classes", "many"),
    [
        ([8, 8], [8, 8], False),  # gold agrees with the votes
        ([8, 8], [15, 1], True),  # votes on gold items are like the others, and wrong
        ([15, 1], [15, 1], False),  # gold items are not a random sample
    ],
)
def test_weight_of_gold_items_in_the_class_shares(on_gold: list[int], classes: list[int], many: bool) -> None:
    """200 items without gold have equal votes for two classes; 16 have gold."""
    votes = np.repeat(np.eye(2)[[0, 1, 0, 1]], [100, 100, *on_gold], axis=0)
    gold = np.zeros((216, 2), dtype=bool)
    gold[np.arange(200, 216), np.repeat([0, 1], classes)] = True

    def strength(counts: list[int]) -> float:
        def likelihood(s: float) -> float:
            return log_beta(np.array([s / 2, s / 2]) + counts) - log_beta(np.array([s / 2, s / 2]))

        return max(np.geomspace(1, 1e5, 61), key=likelihood)

    found = hll.gold_item_weight(votes, gold)
    assert found == pytest.approx(max(1.0, min(strength(on_gold), 200) / strength(classes)))
    assert found > 30 if many else found == 1.0
    nothing = np.zeros((216, 2), dtype=bool)
    assert hll.gold_item_weight(votes, nothing) == 1.0


def test_gold_corrects_a_class_that_votes_miss() -> None:
    """Annotators mostly answer 1 for items of class 2; a tenth of the items have gold."""
    rng = np.random.default_rng(9)
    truth = rng.integers(3, size=600)
    rows = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.55, 0.35]])
    votes = [(m, (m + i) % 20, rng.choice(3, p=rows[t])) for m, t in enumerate(truth) for i in range(6)]
    annotations = crowd(votes, 600, 20, 3)
    prior = np.ones((600, 3))
    prior[:60] = np.eye(3)[truth[:60]]
    without = ds.LogLinear().fit(annotations)
    trained = ds.LogLinear().fit(annotations, prior=prior)
    accuracy = [(m.posterior_.argmax(axis=1) == truth)[60:].mean() for m in (without, trained)]
    assert accuracy[1] > accuracy[0] + 0.03
    # a uniform prior changes nothing
    nothing = ds.LogLinear().fit(annotations, prior=np.ones((600, 3)))
    assert_allclose(nothing.posterior_, without.posterior_, rtol=1e-8)


def test_items_chosen_as_difficult_are_recognised() -> None:
    """Nearly tied items are no sample of all items; random items, and items of one class, are."""
    rng = np.random.default_rng(0)
    yes = rng.binomial(5, rng.choice([0.1, 0.9], 400))
    counts = np.column_stack([5 - yes, yes])
    tied = np.isin(yes, (2, 3))
    assert hll.chosen_as_difficult(counts, tied)
    assert not hll.chosen_as_difficult(counts, yes >= 4)
    assert not hll.chosen_as_difficult(counts, np.arange(400) == 7)  # one item
    assert not hll.chosen_as_difficult(counts, np.ones(400, dtype=bool))
    assert not hll.chosen_as_difficult(np.eye(2, dtype=int)[yes % 2], tied)  # one label an item
    alarms = [hll.chosen_as_difficult(counts, rng.permutation(400) < 40) for _ in range(400)]
    assert np.mean(alarms) < 0.06


def test_gold_of_difficult_items_does_no_harm_elsewhere() -> None:
    """Annotators guess on a fifth of the items, which get gold, and are right on most others."""
    change = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        truth, hard = rng.integers(5, size=300), rng.random(300) < 0.2
        right = rng.random((300, 5)) < np.where(hard, 0.2, 0.6)[:, None]
        label = np.where(right, truth[:, None], (truth[:, None] + rng.integers(1, 5, size=(300, 5))) % 5)
        item, annotator = np.indices(label.shape)
        labels = ds.Annotations.from_arrays(item.ravel(), annotator.ravel(), label.ravel(), classes=range(5))
        prior = np.ones((300, 5))
        prior[hard] = np.eye(5)[truth[hard]]
        without, trained = ds.LogLinear().fit(labels), ds.LogLinear().fit(labels, prior=prior)
        np.testing.assert_array_equal(trained.posterior_[hard].argmax(axis=1), truth[hard])
        answers = (model.posterior_[~hard].argmax(axis=1) == truth[~hard] for model in (without, trained))
        change.append(-np.subtract(*(right.mean() for right in answers)))
    assert np.mean(change) > -0.005
