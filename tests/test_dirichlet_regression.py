"""DirichletRegression: chances against integration, regression against scikit-learn, what was planted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
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
from dissensus.models.dirichlet_regression import (
    Answers,
    best_concentration,
    cross_fitted,
    log_prior,
    posterior_mean,
)

pytestmark = pytest.mark.slow

Array = NDArray[np.float64]

M, N, P, J = 200, 60, 3, 4
WEIGHTS = np.random.default_rng(99).normal(size=(J, P)) * 1.2


def planted(
    per_item: int, S: float = 6.0, n_items: int = M, seed: int = 0
) -> tuple[Annotations, Array, Array]:
    """Labels born as equation (1) says: annotations, features, and each item's own distribution."""
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


# ---- equations (2) and (3) ------------------------------------------------------------------------------


def test_what_the_others_said_of_each_label() -> None:
    # Item a: x by u, x and y by v (one pair), x by w. Item b: y by u alone.
    known = Annotations.from_arrays(list("aaaab"), list("uvvwu"), list("xxyxy"))
    answers = Answers.of(known)
    assert answers.same.tolist() == [2, 2, 0, 2, 0]
    assert answers.others.tolist() == [3, 2, 2, 3, 0]
    counts = Annotations.from_counts([[3, 1], [0, 1]])
    assert sorted(Answers.of(counts).others.tolist()) == [0, 3, 3, 3, 3]


def test_the_chance_of_a_label_is_that_of_integrating_over_the_distribution() -> None:
    # P(y | others) = ∫ p^[y=0] (1−p)^[y=1] Beta(p; S h + others) dp, two classes, by quadrature
    known = Annotations.from_arrays(["m"] * 4, list("abcd"), ["x", "x", "y", "x"])
    S, h = 2.5, np.array([[0.3, 0.7]])

    def chance(label: int, others: tuple[int, int]) -> float:
        density = beta(S * h[0, 0] + others[0], S * h[0, 1] + others[1]).pdf
        return quad(lambda p: density(p) * (p if label == 0 else 1 - p), 0, 1)[0]

    expected = 3 * np.log(chance(0, (2, 1))) + np.log(chance(1, (3, 0)))
    np.testing.assert_allclose(Answers.of(known).log_chance(h, S), expected, rtol=1e-7)
    whole = beta(S * h[0, 0] + 3, S * h[0, 1] + 1).mean()
    np.testing.assert_allclose(posterior_mean(h, known.counts, S)[0], [whole, 1 - whole], rtol=1e-12)


def test_the_concentration_is_the_best_of_a_fine_grid() -> None:
    known, X, _ = planted(4)
    means = softmax(X @ WEIGHTS, axis=1)
    answers = Answers.of(known)
    grid = np.geomspace(0.5, 100, 2000)
    values = [answers.log_chance(means, s) + log_prior(s) for s in grid]
    S, value = best_concentration(answers, means)
    assert pytest.approx(grid[int(np.argmax(values))], rel=5e-3) == S
    assert value == pytest.approx(max(values), rel=1e-6)


def test_a_planted_concentration_is_recovered() -> None:
    found = []
    for S in (2.0, 20.0):
        known, X, _ = planted(8, S, n_items=800)
        found.append(best_concentration(Answers.of(known), softmax(X @ WEIGHTS, axis=1))[0])
    np.testing.assert_allclose(found, [2.0, 20.0], rtol=0.25)


def test_one_label_an_item_leaves_the_concentration_to_its_prior() -> None:
    known, X, _ = planted(1)
    model = ds.DirichletRegression().fit(known, X)
    assert float(model.concentration_) == pytest.approx(8.0, rel=1e-3)
    # Two labels by the same annotator say nothing of how annotators differ.
    double = Annotations.from_arrays(
        np.repeat(known.items, 2), np.repeat(known.annotators[known.annotator], 2), list(range(2)) * M
    )
    twice = ds.DirichletRegression().fit(double, X)
    assert float(twice.concentration_) == pytest.approx(8.0, rel=1e-3)


# ---- the regression -------------------------------------------------------------------------------------


def test_the_regression_is_scikit_learns(fitted: Any) -> None:
    _, known, X = fitted
    model = ds.DirichletRegression(l2=0.02).fit(known, X)
    shares = known.counts / known.counts.sum(axis=1, keepdims=True)
    x = X.astype(np.float32).astype(np.float64)
    # λ/2 ‖V‖² beside the mean loss is 1/(2C) ‖V‖² beside the sum of losses
    C = 1 / (0.02 * x.var(axis=0).sum() * M)
    other = LogisticRegression(C=C, tol=1e-10, max_iter=5000)
    other.fit(np.repeat(x, P, axis=0), np.tile(range(P), M), sample_weight=shares.ravel())
    new = np.random.default_rng(3).normal(size=(20, J)).astype(np.float32)
    np.testing.assert_allclose(model.label_distributions(new), other.predict_proba(new), rtol=1e-3)


def test_an_item_s_own_labels_are_not_in_what_its_features_say(fitted: Any) -> None:
    _, known, X = fitted
    shares = known.counts / known.counts.sum(axis=1, keepdims=True)
    changed = shares.copy()
    changed[7] = np.roll(changed[7], 1)
    before, after = (next(cross_fitted(X, s, 5, 0, np.array([0.01]))) for s in (shares, changed))
    same = (before == after).all(axis=1)
    assert same[7]
    assert same.sum() == M // 5  # its fold; every other item has seen the change


def test_strength_and_concentration_are_the_best_tried(fitted: Any) -> None:
    model, known, X = fitted
    assert len(model.trace_) == len(model.l2_tried_)
    assert model.stopped_ == "patience"
    best = int(model.trace_.argmax())
    assert float(model.l2_) == model.l2_tried_[best]
    S = float(model.concentration_)
    value = Answers.of(known).log_chance(model.item_means_, S) + log_prior(S)
    assert model.trace_[best] == pytest.approx(value, rel=1e-12)
    again = ds.DirichletRegression(S, l2=float(model.l2_)).fit(known, X)
    np.testing.assert_allclose(again.label_distributions_, model.label_distributions_, rtol=2e-2)


# ---- what was planted, and a control --------------------------------------------------------------------


@pytest.mark.parametrize("per_item", [1, 2, 3])
def test_features_bring_the_items_distributions_closer(per_item: int) -> None:
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


def test_a_learner_fitted_to_it_is_not_drawn_to_the_mean_as_without_features() -> None:
    known, X, _ = planted(1, n_items=600)
    new, x, truth = planted(1, n_items=400, seed=1)
    del new
    shares = known.counts / known.counts.sum(axis=1, keepdims=True)

    def reached(targets: Array) -> float:
        return kl(truth, ds.text.SoftmaxRegression(1e-3).fit(X, targets).label_distributions(x))

    raw = reached(shares)
    assert reached(ds.DirichletRegression().fit(known, X).label_distributions_) < 1.05 * raw
    assert reached(ds.FMM(6).fit(known).label_distributions_) > 1.3 * raw


# ---- the interface --------------------------------------------------------------------------------------


def test_rows_are_distributions_and_expectations_weighed_with_counts(fitted: Any) -> None:
    model, known, _ = fitted
    S = float(model.concentration_)
    by_hand = (S * model.item_means_[11] + known.counts[11]) / (S + 3)
    np.testing.assert_allclose(model.label_distributions_[11], by_hand, rtol=1e-12)
    np.testing.assert_allclose(model.label_distributions_.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(model.prior_distribution_.sum(), 1, rtol=1e-12)
    assert set(model.predict()) <= set(known.classes)
    assert model.score(known) == model.score_items(known)


def test_features_carried_or_given_and_any_order_of_rows_give_the_same_bits(fitted: Any) -> None:
    model, known, X = fitted
    order = np.random.default_rng(1).permutation(known.n_labels)
    shuffled = Annotations.from_arrays(
        known.items[known.item][order],
        known.annotators[known.annotator][order],
        known.classes[known.label][order],
        classes=range(P),
    )
    again = ds.DirichletRegression().fit(ds.text.with_features(shuffled, X))
    np.testing.assert_array_equal(again.label_distributions_, model.label_distributions_)
    np.testing.assert_array_equal(again.coef_, model.coef_)
    other = ds.DirichletRegression(seed=1, l2=float(model.l2_)).fit(known, X)
    assert not np.array_equal(other.item_means_, model.item_means_)


def test_saved_and_loaded_it_says_the_same(fitted: Any, tmp_path: Path) -> None:
    model, known, X = fitted
    model.save(tmp_path / "m.safetensors")
    loaded = ds.load(tmp_path / "m.safetensors")
    assert isinstance(loaded, ds.DirichletRegression)
    np.testing.assert_array_equal(loaded.label_distributions(X), model.label_distributions(X))
    np.testing.assert_array_equal(loaded.label_distributions_, model.label_distributions_)
    assert loaded.score(known) == model.score(known)
    assert loaded.get_params() == model.get_params() == clone(model).get_params()


def test_transform_gives_the_fit_back_and_asks_features_of_new_items(fitted: Any) -> None:
    model, known, _ = fitted
    np.testing.assert_array_equal(model.apply(known).label_distributions_, model.label_distributions_)
    new, x, _ = planted(2, n_items=5, seed=4)
    renamed = Annotations.from_arrays(
        [f"new {m}" for m in new.item], new.annotators[new.annotator], new.label, classes=range(P)
    )
    with pytest.raises(DataError, match="the items have neither features nor a column 'text'"):
        model.apply(renamed)
    moved = model.apply(ds.text.with_features(renamed, x))
    expected = posterior_mean(model.label_distributions(x), new.counts, float(model.concentration_))
    np.testing.assert_allclose(moved.label_distributions_, expected, rtol=1e-12)


def test_items_without_labels_are_what_their_features_say(fitted: Any) -> None:
    _, known, X = fitted
    gaps = known.take_rows(known.item > 9)
    model = ds.DirichletRegression().fit(gaps, X)
    assert model.label_distributions_.shape == (M, P)
    np.testing.assert_allclose(model.label_distributions_[:10], model.label_distributions(X[:10]), rtol=1e-12)


@pytest.mark.parametrize("n_items", [1, 2, 3])
def test_few_items_give_sound_results(n_items: int) -> None:
    known, X, _ = planted(2, n_items=n_items)
    model = ds.DirichletRegression().fit(known, X)
    assert np.isfinite(model.label_distributions_).all()
    np.testing.assert_allclose(model.label_distributions_.sum(axis=1), 1, rtol=1e-12)


def test_class_counts_do(fitted: Any) -> None:
    named, known, X = fitted
    anonymous = Annotations.from_counts(known.counts, items=known.items, classes=known.classes)
    unnamed = ds.DirichletRegression().fit(anonymous, X)
    np.testing.assert_allclose(named.label_distributions_, unnamed.label_distributions_, rtol=1e-9)


def test_what_is_refused(fitted: Any) -> None:
    model, known, X = fitted
    with pytest.raises(DataError, match="the items have neither features nor a column 'text'"):
        ds.DirichletRegression().fit(known)
    with pytest.raises(DataError, match="2 features were given and this was fitted on 4"):
        model.label_distributions(X[:, :2])
    for settings in ({"concentration": 0.0}, {"l2": -1.0}, {"folds": 1}, {"seed": -1}):
        name = next(iter(settings))
        with pytest.raises(ParameterError, match=f"The '{name}' parameter of DirichletRegression must be"):
            ds.DirichletRegression(**settings).fit(known, X)  # type: ignore[arg-type]


def test_it_is_the_guide_by_default_and_its_distributions_are_learned(fitted: Any) -> None:
    model, known, X = fitted
    guided = ds.GuidedClassifier(None, ds.text.SoftmaxRegression(0.01)).fit(X, known)
    np.testing.assert_array_equal(guided.refined_, model.label_distributions_)
