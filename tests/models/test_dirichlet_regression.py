"""DirichletRegression against integration, scikit-learn and planted effects."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import softmax
from scipy.stats import beta
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import dissensus as ds
from dissensus.errors import DataError, ParameterError
from dissensus.evaluate.recovery import additive
from dissensus.labels.annotations import Annotations
from dissensus.metrics import kl
from dissensus.models import dirichlet_regression
from dissensus.models.dirichlet_regression import (
    LeaveOneOutLabels,
    best_concentration,
    cross_fitted,
    fit_softmax,
    interpolated_maximum,
    log_gamma_prior,
    softmax_objective,
)

pytestmark = pytest.mark.slow

Array = NDArray[np.float64]

M, N, P, J = 200, 60, 3, 4
WEIGHTS = np.random.default_rng(99).normal(size=(J, P)) * 1.2


def posterior_mean(h: Array, counts: NDArray[np.int64], S: float) -> Array:
    return (S * h + counts) / (S + counts.sum(axis=1, keepdims=True))


def planted(per_item: int, S: float = 6, n_items: int = M, seed: int = 0) -> tuple[Annotations, Array, Array]:
    """Simulate (1): return annotations, features, and the items' distributions."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_items, J))
    means = softmax(X @ WEIGHTS, axis=1)
    truth = np.vstack([rng.dirichlet(S * row) for row in means])
    item = np.repeat(np.arange(n_items), per_item)
    annotator = np.concatenate([rng.choice(N, per_item, replace=False) for _ in range(n_items)])
    label = np.array([rng.choice(P, p=truth[m]) for m in item])
    return Annotations.from_arrays(item, annotator, label, classes=range(P)), X, truth


@pytest.fixture(scope="module")
def fitted() -> tuple[ds.DirichletRegression, Annotations, Array]:
    known, X, _ = planted(3)
    return ds.DirichletRegression().fit(known, X), known, X


def test_leave_one_out_counts() -> None:
    # item a: x by u, x and y by v (one pair), x by w; item b: y by u
    known = Annotations.from_arrays(list("aaaab"), list("uvvwu"), list("xxyxy"))
    answers = LeaveOneOutLabels.of(known)
    assert answers.same.tolist() == [2, 2, 0, 2, 0]
    assert answers.others.tolist() == [3, 2, 2, 3, 0]
    counts = Annotations.from_counts([[3, 1], [0, 1]])
    assert sorted(LeaveOneOutLabels.of(counts).others.tolist()) == [0, 3, 3, 3, 3]


def test_label_probability_equals_an_integral() -> None:
    # P(y | others) = ∫ p^[y=0] (1−p)^[y=1] Beta(p; S h + others) dp, two classes, by quadrature
    known = Annotations.from_arrays(["m"] * 4, list("abcd"), ["x", "x", "y", "x"])
    S, h = 2.5, np.array([[0.3, 0.7]])

    def chance(label: int, others: tuple[int, int]) -> float:
        density = beta(S * h[0, 0] + others[0], S * h[0, 1] + others[1]).pdf
        return quad(lambda p: density(p) * (p if label == 0 else 1 - p), 0, 1)[0]

    expected = 3 * np.log(chance(0, (2, 1))) + np.log(chance(1, (3, 0)))
    assert_allclose(LeaveOneOutLabels.of(known).log_likelihood(h, S), expected, rtol=1e-7)
    whole = beta(S * h[0, 0] + 3, S * h[0, 1] + 1).mean()
    assert_allclose(posterior_mean(h, known.counts, S)[0], [whole, 1 - whole], rtol=1e-12)


def test_concentration_equals_grid_search() -> None:
    known, X, _ = planted(4)
    means = softmax(X @ WEIGHTS, axis=1)
    answers = LeaveOneOutLabels.of(known)
    grid = np.geomspace(0.5, 100, 2000)
    values = [answers.log_likelihood(means, s) + log_gamma_prior(s) for s in grid]
    S, value = best_concentration(answers, means)
    assert pytest.approx(grid[int(np.argmax(values))], rel=5e-3) == S
    assert value == pytest.approx(max(values), rel=1e-6)


def test_concentration_of_single_labels_is_the_prior_mode() -> None:
    known, X, _ = planted(1)
    model = ds.DirichletRegression().fit(known, X)
    assert float(model.concentration_) == pytest.approx(8.0, rel=1e-3)


def test_regression_equals_scikit_learn(fitted: Any) -> None:
    _, known, X = fitted
    model = ds.DirichletRegression(l2=0.02).fit(known, X)
    shares = known.counts / known.counts.sum(axis=1, keepdims=True)
    x = X.astype(np.float32).astype(np.float64)
    # λ/2 ‖W‖² + mean loss is proportional to 1/(2C) ‖W‖² + sum of losses
    C = 1 / (0.02 * x.var(axis=0).sum() * M)
    other = LogisticRegression(C=C, tol=1e-10, max_iter=5000)
    other.fit(np.repeat(x, P, axis=0), np.tile(range(P), M), sample_weight=shares.ravel())
    new = np.random.default_rng(3).normal(size=(20, J)).astype(np.float32)
    assert_allclose(model.label_distributions(new), other.predict_proba(new), rtol=1e-3)


def test_cross_fitting_ignores_an_items_labels(fitted: Any) -> None:
    _, known, X = fitted
    shares = known.counts / known.counts.sum(axis=1, keepdims=True)
    changed = shares.copy()
    changed[7] = np.roll(changed[7], 1)
    tests = np.array_split(np.random.default_rng(0).permutation(M), 5)
    before, after = (next(cross_fitted(X, s, tests, np.array([0.01]))) for s in (shares, changed))
    same = (before == after).all(axis=1)
    assert same[7]
    assert same.sum() == M // 5  # the items of its fold
    (part,) = cross_fitted(X, shares, tests[:2], np.array([0.01]))
    rows = np.concatenate(tests[:2])
    assert_array_equal(part[rows], before[rows])
    assert_array_equal(np.delete(part, rows, axis=0), 1 / P)


def test_the_best_l2_and_concentration_are_chosen(fitted: Any) -> None:
    model, known, X = fitted
    assert len(model.trace_) == len(model.l2_tried_)
    assert float(model.l2_) == interpolated_maximum(model.l2_tried_, model.trace_)
    answers = LeaveOneOutLabels.of(known)  # fewer than VALIDATION_ITEMS items: all folds validate
    S, value = best_concentration(answers, model.item_means_)
    assert float(model.concentration_) == S
    assert value == pytest.approx(model.trace_.max(), abs=0.5)
    again = ds.DirichletRegression(S, l2=float(model.l2_)).fit(known, X)
    assert_allclose(again.label_distributions_, model.label_distributions_, rtol=2e-2)


def test_few_regressions_choose_the_l2(monkeypatch: pytest.MonkeyPatch) -> None:
    known, X, _ = planted(3, n_items=1000)
    rng, sizes = np.random.default_rng(5), list[int]()
    noisy = np.column_stack([X, rng.normal(size=(1000, 300))])

    def recorded(rows: Array, *rest: Any) -> Array:
        sizes.append(len(rows))
        return fit_softmax(rows, *rest)

    monkeypatch.setattr(dirichlet_regression, "fit_softmax", recorded)
    model = ds.DirichletRegression().fit(known, noisy)
    assert model.stopped_ == "patience"
    assert sizes == [900] * (4 * len(model.l2_tried_) + 10) + [1000]  # 400 items are four of ten folds
    best = int(model.trace_.argmax())
    assert 0 < best == len(model.trace_) - 2
    lower, upper = model.l2_tried_[best + 1], model.l2_tried_[best - 1]
    assert lower < float(model.l2_) < upper


def test_interpolated_maximum() -> None:
    penalties = np.array([1.0, 0.1, 0.003, 1e-4])
    values = -((np.log(penalties) - np.log(0.02)) ** 2)
    assert interpolated_maximum(penalties, values) == pytest.approx(0.02)
    assert interpolated_maximum(penalties, -values) == 1e-4  # at an end of the grid: no interpolation
    assert interpolated_maximum(penalties[:1], values[:1]) == 1.0


def test_scaled_weights_need_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features of very different scales, far from 0, with a rare class: the minimum is that of J."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 30)) * np.geomspace(0.01, 10, 30) + 5
    shares = rng.dirichlet([5, 3, 0.05], size=300)
    start, counted = np.zeros((31, 3)), list[float]()

    def recorded(*arguments: Any) -> Any:
        counted.append(0)
        return softmax_objective(*arguments)

    monkeypatch.setattr(dirichlet_regression, "softmax_objective", recorded)
    weights = fit_softmax(X, shares, 1e-3, start, 500, 1e-6)
    assert len(counted) < 40
    _, gradient = softmax_objective(weights, X, shares, 1e-3)
    assert np.abs(gradient).max() < 1e-5  # J is convex


@pytest.mark.parametrize("per_item", [1, 2, 3])
def test_features_improve_the_distributions(per_item: int) -> None:
    known, X, truth = planted(per_item)
    reached = kl(truth, ds.DirichletRegression().fit(known, X).label_distributions_)
    counts = min(kl(truth, additive(known.counts, s)) for s in np.geomspace(0.01, 100, 60))
    assert reached < 0.8 * counts
    assert reached < 0.8 * kl(truth, ds.FMM(6).fit(known).label_distributions_)


def test_shuffled_features_do_not_help() -> None:
    known, X, truth = planted(3)
    shuffled = ds.DirichletRegression().fit(known, np.random.default_rng(1).permutation(X))
    overall = known.counts.sum(axis=0) / known.n_labels
    without = min(kl(truth, posterior_mean(overall[None], known.counts, s)) for s in np.geomspace(0.1, 100))
    assert kl(truth, shuffled.label_distributions_) > 0.99 * without
    assert kl(truth, ds.DirichletRegression().fit(known, X).label_distributions_) < 0.8 * without


def test_distributions_by_hand(fitted: Any) -> None:
    model, known, _ = fitted
    S = float(model.concentration_)
    by_hand = (S * model.item_means_[11] + known.counts[11]) / (S + 3)
    assert_allclose(model.label_distributions_[11], by_hand, rtol=1e-12)
    assert_allclose(model.label_distributions_.sum(axis=1), 1, rtol=1e-12)
    assert_allclose(model.prior_distribution_.sum(), 1, rtol=1e-12)
    assert set(model.predict()) <= set(known.classes)
    assert model.score(known) == model.score_items(known)


def test_saving_and_loading(fitted: Any, tmp_path: Path) -> None:
    model, known, X = fitted
    model.save(tmp_path / "m.safetensors")
    loaded = ds.load(tmp_path / "m.safetensors")
    assert isinstance(loaded, ds.DirichletRegression)
    assert_array_equal(loaded.label_distributions(X), model.label_distributions(X))
    assert_array_equal(loaded.label_distributions_, model.label_distributions_)
    assert loaded.score(known) == model.score(known)
    assert loaded.get_params() == model.get_params() == clone(model).get_params()


def test_apply_uses_features_of_new_items(fitted: Any) -> None:
    model, known, _ = fitted
    assert_array_equal(model.apply(known).label_distributions_, model.label_distributions_)
    new, x, _ = planted(2, n_items=5, seed=4)
    columns = [f"new {m}" for m in new.item], new.annotators[new.annotator], new.label
    renamed = Annotations.from_arrays(*columns, classes=range(P))
    with pytest.raises(DataError, match="the items have neither features nor a column 'text'"):
        model.apply(renamed)
    moved = model.apply(ds.text.with_features(renamed, x))
    expected = posterior_mean(model.label_distributions(x), new.counts, float(model.concentration_))
    assert_allclose(moved.label_distributions_, expected, rtol=1e-12)


def test_items_without_labels_get_the_regression(fitted: Any) -> None:
    _, known, X = fitted
    gaps = known.take_rows(known.item > 9)
    model = ds.DirichletRegression().fit(gaps, X)
    assert model.label_distributions_.shape == (M, P)
    assert_allclose(model.label_distributions_[:10], model.label_distributions(X[:10]), rtol=1e-12)


def test_invalid_input_is_rejected(fitted: Any) -> None:
    model, known, X = fitted
    with pytest.raises(DataError, match="the items have neither features nor a column 'text'"):
        ds.DirichletRegression().fit(known)
    with pytest.raises(DataError, match="got 2 features, but the model was fitted on 4"):
        model.label_distributions(X[:, :2])
    for settings in ({"concentration": 0.0}, {"l2": -1.0}, {"folds": 1}, {"seed": -1}):
        name = next(iter(settings))
        with pytest.raises(ParameterError, match=f"The '{name}' parameter of DirichletRegression must be"):
            ds.DirichletRegression(**settings).fit(known, X)  # type: ignore[arg-type]


def test_it_is_the_default_of_guided_classifier(fitted: Any) -> None:
    model, known, X = fitted
    guided = ds.GuidedClassifier(None, ds.text.SoftmaxRegression(0.01)).fit(X, known)
    assert_array_equal(guided.refined_, model.label_distributions_)


@pytest.mark.parametrize("n_items", [1, 2, 3])
def test_few_items_give_valid_results(n_items: int) -> None:
    labels, X, _ = planted(2, n_items=n_items)
    model = ds.DirichletRegression().fit(labels, X)
    assert np.isfinite(model.label_distributions_).all()
    assert_allclose(model.label_distributions_.sum(axis=1), 1, rtol=1e-12)


def test_class_counts_suffice(fitted: Any) -> None:
    named, labels, X = fitted
    anonymous = Annotations.from_counts(labels.counts, items=labels.items, classes=labels.classes)
    unnamed = ds.DirichletRegression().fit(anonymous, X)
    assert_allclose(named.label_distributions_, unnamed.label_distributions_, rtol=1e-9)


def test_features_inform_about_ordered_labels() -> None:
    rng = np.random.default_rng(1)
    position = rng.normal(size=160)
    truth = softmax(-((position[:, None] - np.linspace(-1.5, 1.5, 4)) ** 2), axis=1)
    item = np.repeat(np.arange(160), 2)
    label = np.array([rng.choice(4, p=truth[m]) for m in item])
    columns = item, rng.integers(0, 12, len(item)), label
    labels = Annotations.from_arrays(*columns, classes=range(4), label_type="ordinal")
    X = np.column_stack([position, position**2, rng.normal(size=160)])
    short: dict[str, Any] = {"n_chains": 1, "n_sweeps": 60}
    plain = ds.Pool(**short).fit(labels)
    for model in (
        ds.Pool(use_features=True, **short).fit(labels, X),
        ds.Pool(use_features=True, **short).fit(ds.text.with_features(labels, X)),
    ):
        assert kl(truth, model.label_distributions_) < 0.9 * kl(truth, plain.label_distributions_)
