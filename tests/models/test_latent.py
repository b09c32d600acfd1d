"""Latent positions: conditionals against quadrature, finite differences and Geweke's joint test."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax
from scipy.stats import norm

import dissensus as ds
from dissensus.models import latent
from dissensus.models.latent import INTERCEPT_VARIANCE, LoadingPosterior, Positions, SideLabels
from tests.helpers.sizes import usually


def drawn_state(rng: np.random.Generator, M: int, N: int, P: int, d: int, b: int) -> Positions:
    """Draw a state from the prior."""
    s2 = np.append(1.0, np.clip(np.abs(rng.standard_cauchy(d)) ** 2, 1e-6, 1e6))
    t2 = np.append(1.0, np.clip(np.abs(rng.standard_cauchy(b)) ** 2, 1e-6, 1e6))
    variance = np.outer(s2, t2)
    variance[0, 0] = INTERCEPT_VARIANCE
    W = rng.standard_normal((P, 1 + d, 1 + b)) * np.sqrt(variance)
    x, a = rng.standard_normal((M, d)), rng.standard_normal((N, b))
    return Positions(x.astype(np.float32), a.astype(np.float32), W, s2, t2, 0.4)


def logits_of(state: Positions, item: np.ndarray, annotator: np.ndarray) -> np.ndarray:
    x = np.concatenate([np.ones((len(state.x), 1)), state.x], axis=1)[item]
    a = np.concatenate([np.ones((len(state.a), 1)), state.a], axis=1)[annotator]
    return np.einsum("cij,ei,ej->ec", state.W, x, a)


def labels_of(
    state: Positions, item: np.ndarray, annotator: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Draw labels given the state, as the maximum of logits with Gumbel noise."""
    logits = logits_of(state, item, annotator)
    return np.asarray((logits + rng.gumbel(size=logits.shape)).argmax(axis=1))


def test_slice_sampling_matches_quadrature() -> None:
    rng = np.random.default_rng(0)
    state = drawn_state(rng, 1, 3, 3, 1, 2)
    state = Positions(state.x, state.a, 1.5 * rng.standard_normal(state.W.shape), state.s2, state.t2, 0.4)
    label = np.array([2, 0, 2])
    grid = np.linspace(-6, 6, 4001)
    on_grid = Positions(grid[:, None].astype(np.float32), state.a, state.W, state.s2, state.t2, 0.4)
    pairs = np.repeat(np.arange(len(grid)), 3), np.tile(np.arange(3), len(grid))
    cells = np.arange(3 * len(grid)), np.tile(label, len(grid))
    logs = log_softmax(logits_of(on_grid, *pairs), axis=1)[cells]
    density = np.exp(logs.reshape(-1, 3).sum(axis=1)) * norm.pdf(grid)
    density /= density.sum()
    mean = (density * grid).sum()
    spread = np.sqrt((density * (grid - mean) ** 2).sum())
    n = 3_000  # items with the same labels, as independent chains
    data = SideLabels.of(np.repeat(np.arange(n), 3), np.tile(np.arange(3), n), np.tile(label, n), n)
    weights = latent.class_weights(state.W, state.a, "annotators")
    x = rng.standard_normal((n, 1)).astype(np.float32)
    for _ in range(30):
        x = latent.slice_sample(x, weights, data, rng)
    assert x.mean() == pytest.approx(mean, abs=4 * spread / np.sqrt(n))
    assert x.std() == pytest.approx(spread, rel=0.06)
    below = np.interp(x[:, 0], grid, density.cumsum())
    assert np.abs(np.sort(below) - (np.arange(n) + 0.5) / n).max() < 1.63 / np.sqrt(n)  # Kolmogorov, 1 %


def test_loading_posterior_and_gradient() -> None:
    rng = np.random.default_rng(1)
    state = drawn_state(rng, 6, 4, 3, 2, 2)
    item, annotator = rng.integers(6, size=40), rng.integers(3, size=40)  # the fourth annotator has no label
    label = labels_of(state, item, annotator, rng)
    items, people = SideLabels.of(item, annotator, label, 6), SideLabels.of(annotator, item, label, 4)
    posterior = LoadingPosterior(state, items, people)

    def by_hand(W: np.ndarray) -> float:
        variance = np.outer(state.s2, state.t2)
        variance[0, 0] = INTERCEPT_VARIANCE
        moved = Positions(state.x, state.a, W, state.s2, state.t2, 0.4)
        logs = log_softmax(logits_of(moved, item, annotator), 1)
        return float(logs[np.arange(40), label].sum() - (W**2 / variance).sum() / 2)

    value, gradient = posterior.log_density(state.W)
    assert value == pytest.approx(by_hand(state.W), rel=1e-5)
    for index in [(0, 0, 0), (1, 2, 0), (2, 0, 1), (0, 1, 2)]:
        step = np.zeros_like(state.W)
        step[index] = 1e-4
        expected = (by_hand(state.W + step) - by_hand(state.W - step)) / 2e-4
        assert gradient[index] == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_a_step_that_is_too_long_is_rejected() -> None:
    rng = np.random.default_rng(4)
    state = drawn_state(rng, 6, 4, 3, 2, 2)
    item, annotator = rng.integers(6, size=40), rng.integers(4, size=40)
    label = labels_of(state, item, annotator, rng)
    sides = SideLabels.of(item, annotator, label, 6), SideLabels.of(annotator, item, label, 4)
    W, acceptance = LoadingPosterior(state, *sides).hamiltonian_step(state.W, 30.0, rng)
    assert acceptance < 1e-6
    np.testing.assert_array_equal(W, state.W)


@pytest.mark.slow
@pytest.mark.no_cover
def test_geweke_joint_distribution() -> None:
    """Compare prior draws with a chain that alternates between labels and sweeps (Geweke 2004)."""
    M, N, P, d, b = 3, 3, 2, 1, 1
    item, annotator = np.repeat(np.arange(M), N), np.tile(np.arange(N), M)
    rng = np.random.default_rng(2)
    n_chains, n_sweeps = usually(400, verify=3_000), usually(8, verify=20)

    def statistics(state: Positions) -> list[float]:
        W = state.W
        angles = np.arctan(
            np.sqrt([state.s2[1], state.t2[1]])
        ).tolist()  # uniform in (0, π/2) under the prior
        return [
            *angles,
            *np.arctan([W[0, 0, 0], W[0, 1, 0], W[1, 0, 1], W[0, 1, 1]]).tolist(),
            float((state.x**2).mean()), float((state.a**2).mean()),
            float(np.tanh(W[0, 1, 0] * state.x[0, 0])), float(np.tanh(W[0, 0, 1] * state.a[0, 0])),
        ]  # fmt: skip

    prior, chain = [], []
    for _ in range(n_chains):
        state = drawn_state(rng, M, N, P, d, b)
        prior.append(statistics(state))
        state = drawn_state(rng, M, N, P, d, b)
        for _ in range(n_sweeps):
            label = labels_of(state, item, annotator, rng)
            items, people = SideLabels.of(item, annotator, label, M), SideLabels.of(annotator, item, label, N)
            state = latent.sweep(state, items, people, 0.0, rng)
        chain.append(statistics(state))
    first, second = np.array(prior), np.array(chain)
    for power in (1, 2):
        gap = (first**power).mean(axis=0) - (second**power).mean(axis=0)
        error = np.sqrt(((first**power).var(axis=0) + (second**power).var(axis=0)) / n_chains)
        assert (np.abs(gap) < 4.2 * error).all(), (power, (gap / error).round(1))


def test_answers_are_weighted_means_over_annotators() -> None:
    rng = np.random.default_rng(3)
    state = drawn_state(rng, 5, 4, 3, 2, 2)
    weights = np.array([0.5, 0.0, 0.2, 0.3])
    chosen, v = latent.sample_population(weights, rng)
    class_weights = latent.class_weights(state.W, state.a[chosen], "annotators")
    answers, equal = latent.population_answers(state.x, class_weights, np.stack([v, np.full(3, 1 / 3)]))
    pairs = np.repeat(np.arange(5), 4), np.tile(np.arange(4), 5)
    shares = np.exp(log_softmax(logits_of(state, *pairs), axis=1)).reshape(5, 4, 3)
    assert np.allclose(answers, np.einsum("n,mnc->mc", weights, shares), atol=1e-5)
    assert np.allclose(equal, shares[:, chosen].mean(axis=1), atol=1e-5)


def test_apply_to_new_items_and_annotators() -> None:
    crowd = ds.simulate(80, 20, 3, labels_per_item=8, seed=5)
    model = ds.LatentPositions(n_sweeps=60, n_chains=1).fit(crowd.annotations)
    label = crowd.annotations.classes[0]
    people = crowd.annotations.annotators[:8]
    new = ds.Annotations.from_arrays(["new"] * 8 + ["again"], [*people, "stranger"], [label] * 9)
    applied = model.apply(new)
    shares = dict(zip(applied.items_.tolist(), applied.label_distributions_[:, 0], strict=True))
    assert shares["new"] > shares["again"] > model.prior_distribution_[0]
    assert model.predict_proba(["never"], [people[0]])[0] == pytest.approx(model.prior_distribution_)


def test_it_can_be_a_candidate() -> None:
    labels = ds.simulate(60, 12, 3, labels_per_item=6, seed=7).annotations
    choice = ds.compare(labels, candidates=[("empirical", {}), ("latent", {})], n_jobs=1, progress=False)
    assert [row.as_row()["model"] for row in choice.table] == ["empirical", "latent"]


# ---- resuming, many labels, weights -------------------------------------------------------------------


def test_a_fit_can_be_resumed_with_more_labels(tmp_path: Path) -> None:
    labels = ds.simulate(80, 20, 3, labels_per_item=8, seed=5).annotations
    few = labels.take_items(np.arange(60))
    model = ds.LatentPositions(n_sweeps=120, n_chains=2).fit(few)
    model.save(tmp_path / "model.npz")
    loaded = ds.load(tmp_path / "model.npz")
    states = loaded.extended_states(labels)
    code = labels.item_vocabulary.codes(few.item_vocabulary)
    person = labels.annotator_vocabulary.codes(few.annotator_vocabulary)
    for state, last in zip(states, model.last_states_, strict=True):
        np.testing.assert_array_equal(state.x[code], last.x)
        np.testing.assert_array_equal(state.a[person], last.a)
        np.testing.assert_array_equal(state.W, last.W)
        assert len(state.x) == 80
    model._run_fit(labels, last=states)
    assert model.trace_draws_.shape[:2] == (2, 5)  # 20 sweeps, 5 of them burn-in
    whole = ds.LatentPositions(n_sweeps=120, n_chains=2).fit(labels)
    distance = np.abs(model.label_distributions_ - whole.label_distributions_).sum(axis=1).mean() / 2
    raw = labels.counts / labels.counts.sum(axis=1, keepdims=True)
    assert distance < 0.5 * np.abs(raw - whole.label_distributions_).sum(axis=1).mean() / 2


def test_items_that_are_not_sampled_follow_from_the_draws() -> None:
    crowd = ds.simulate(300, 40, 3, labels_per_item=8, seed=1)
    shown, hidden = crowd.annotations.split_labels(0.2, 0)
    settings = {"n_sweeps": 100, "n_chains": 2}
    whole = ds.LatentPositions(**settings).fit(shown)
    part = ds.LatentPositions(max_sampled=1_000, **settings).fit(shown)
    assert part.share_draws_.shape[1:] == whole.label_distributions_.shape
    assert len(part.share_draws_) == min(latent.MAX_EXTENDED_DRAWS, len(whole.share_draws_))
    assert not part.last_states_
    for annotators in (True, False):
        scores = [model.log_probabilities(hidden, annotators).mean() for model in (part, whole)]
        uniform = -np.log(3)
        assert scores[0] - uniform > 0.8 * (scores[1] - uniform)
    again = ds.LatentPositions(max_sampled=1_000, n_jobs=2, **settings).fit(shown)
    np.testing.assert_array_equal(again.label_distributions_, part.label_distributions_)


def test_annotators_without_sampled_labels_get_positions() -> None:
    labels = ds.simulate(120, 60, 3, labels_per_item=3, seed=4).annotations
    model = ds.LatentPositions(max_sampled=60, n_sweeps=30, n_chains=1).fit(labels)
    assert np.isfinite(model.a_draws_).all()
    assert (model.a_draws_.std(axis=(0, 2)) > 0).all()


def test_weights_of_annotators() -> None:
    labels = ds.simulate(40, 10, 3, labels_per_item=6, seed=2).annotations
    settings = {"n_sweeps": 30, "n_chains": 1}
    equal = ds.LatentPositions(weight_by="annotators", **settings).fit(labels)
    assert equal.annotator_weights_ == pytest.approx(np.full(10, 0.1))
    weights = np.arange(10.0)
    given = ds.LatentPositions(**settings)._run_fit(labels, weights=weights)
    assert given.annotator_weights_ == pytest.approx(weights / 45)
    # the same states, other answers
    np.testing.assert_array_equal(given.x_draws_[0], equal.x_draws_[0])
    assert not np.allclose(given.label_distributions_, equal.label_distributions_)
    # an annotator outside of the population has a position nevertheless
    pairs = labels.items[:5], np.repeat(labels.annotators[:1], 5)
    np.testing.assert_array_equal(given.predict_proba(*pairs), equal.predict_proba(*pairs))


def test_drawn_weights_have_the_variance_of_all_annotators(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bootstrap over a sample of annotators spreads as much as over all: Σ v² of the whole population."""
    rng, drawn = np.random.default_rng(0), []
    model = ds.LatentPositions()
    model.annotator_weights_, model.crowd_weights_ = rng.dirichlet(np.ones(1_000)), np.zeros(0)
    monkeypatch.setattr(latent, "population_answers", lambda x, a, v: drawn.append(v) or v)
    x, a = np.zeros((1, 2), np.float32), np.zeros((1_000, 3), np.float32)
    for _ in range(300):
        model._answers(x, a, np.zeros((2, 3, 4)), rng)
    v = np.stack(drawn)
    assert np.allclose(v.sum(axis=2), 1)
    assert v[:, 1].var(axis=0).sum() == pytest.approx((model.annotator_weights_**2).sum(), rel=0.1)
