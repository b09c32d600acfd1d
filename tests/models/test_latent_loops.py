"""The compiled loops of the latent positions against the same equations in plain Python, bit for bit."""

import math

import numpy as np
import pytest

from dissensus.models import latent
from dissensus.models.latent import LANES, SideLabels

F = np.float32


def exponential(x: np.ndarray) -> np.ndarray:
    """Return 2^n exp(r), in single precision."""
    x = np.clip(x, F(-40), F(80))
    shifted = x * F(1.44269504) + F(12582912)
    n = shifted - F(12582912)
    r = x - n * F(0.693359375) + n * F(2.12194440e-4)
    p = F(1.9875691500e-4) * r + F(1.3981999507e-3)
    for coefficient in (8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = p * r + F(coefficient)
    return (p * r * r + r + F(1)) * np.ldexp(F(1), n.astype(np.int32))


def class_weights(W: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return (n, I, P) W_0 + Σ_j W_j a_nj for W (J, I, P)."""
    terms = W.astype(F)
    weights = np.tile(terms[0], (len(positions), 1, 1))
    for j in range(positions.shape[1]):
        weights += terms[j + 1] * positions[:, j, None, None]
    return weights


def project(A: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return Σ_i A_i x_i over the rows of A (d, P)."""
    total = A[0] * x[0]
    for row, value in zip(A[1:], x[1:], strict=True):
        total = total + row * value
    return total


def others(logits: np.ndarray, y: int) -> np.ndarray:
    """Return differences from the logit of y: the last class takes the place of y."""
    differences = logits - logits[y]
    differences[y] = differences[-1]
    return differences[:-1]


def surprise(rows: list[list[np.ndarray]], angle: float) -> float:
    """Return −log Π P(y) at an angle."""
    cosine, sine = F(math.cos(angle)), F(math.sin(angle))
    product, total = 1.0, 0.0
    for base, along, across in rows:
        ratio = F(1)
        for e in exponential(base + along * cosine + across * sine):
            ratio = ratio + e
        product *= float(ratio)
        if product > 1e100:
            product, total = 1.0, total + math.log(product)
    return total + math.log(product)


def slice_positions(
    positions: np.ndarray, A: np.ndarray, data: SideLabels, directions: np.ndarray, u: np.ndarray
) -> np.ndarray:
    drawn, first = positions.copy(), 0
    for n, end in enumerate(data.ends):
        x, direction = positions[n], directions[n]
        rows = []
        for k in range(first, end):
            own, y = A[data.other[k]], int(data.label[k])
            terms = own[0], project(own[1:], x), project(own[1:], direction)
            rows.append([others(term, y) for term in terms])
        first = end
        level = surprise(rows, 0.0) - math.log(1 - u[n, 0])
        angle = u[n, 1] * 6.283185307179586
        low, high = angle - 6.283185307179586, angle
        for t in range(2, u.shape[1] + 1):
            if surprise(rows, angle) < level:
                drawn[n] = x * F(math.cos(angle)) + direction * F(math.sin(angle))
                break
            if t == u.shape[1]:
                break
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = low + u[n, t] * (high - low)
    return drawn


def sum_lanes(s: np.ndarray) -> np.ndarray:
    """Return sums over the last axis of eight, in pairs."""
    s = s[..., ::2] + s[..., 1::2]
    s = s[..., ::2] + s[..., 1::2]
    return np.asarray(s[..., 0] + s[..., 1])


def gradient_of(A: np.ndarray, x: np.ndarray, a: np.ndarray, data: SideLabels) -> tuple[float, np.ndarray]:
    """Return Σ_e log P(y_e) and its gradient (J, I, P)."""
    (_, n_rows, P), J = A.shape, 1 + a.shape[1]
    product, total, start = 1.0, 0.0, 0
    gradient = np.zeros((J, n_rows, P))
    for n, end in enumerate(data.ends):
        by_owner = np.zeros((n_rows, P, LANES), F)
        for first in range(start, end, LANES):
            group = range(first, min(first + LANES, end))
            ratios = np.zeros(LANES, F)
            for lane, k in enumerate(group):
                tilde, y = np.append(F(1), x[data.other[k]]), int(data.label[k])
                logits = project(A[n], tilde)
                e = exponential(logits - logits[y])
                for value in e:
                    ratios[lane] += value
                residual = e * (F(-1) / ratios[lane])
                residual[y] += F(1)
                by_owner[:, :, lane] += residual * tilde[:, None]
            for lane in range(len(group)):
                product *= float(ratios[lane])
            if product > 1e100:
                product, total = 1.0, total + math.log(product)
        if end > start:
            sums = sum_lanes(by_owner).astype(float)
            gradient[0] += sums
            gradient[1:] += sums * a[n].astype(float)[:, None, None]
        start = end
    return -(total + math.log(product)), gradient


def answers_of(x: np.ndarray, A: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return (R, M, P) Σ_n v_rn P(y | x_m, a_n), the annotators in groups of eight."""
    n, P = len(A), A.shape[2]
    answers = np.zeros((len(weights), len(x), P), F)
    for m, position in enumerate(x):
        sums = np.zeros((len(weights), P, LANES), F)
        for k in range(n):
            logits = A[k, 0].copy()
            for i, value in enumerate(position):
                logits += A[k, i + 1] * value
            e, total = exponential(logits - logits.max()), F(0)
            for probability in e:
                total = total + probability
            sums[:, :, k % LANES] += e * (weights[:, k].astype(F) / total)[:, None]
        answers[:, m] = sum_lanes(sums)
    totals = answers.astype(float)
    return np.asarray(totals / totals.sum(axis=2, keepdims=True))


def test_exponential_is_accurate() -> None:
    x = np.linspace(-40, 80, 100_001).astype(F)
    assert np.abs(exponential(x) / np.exp(x.astype(float)) - 1).max() < 1.5e-7


# ---- the compiled loops -------------------------------------------------------------------------------


@pytest.fixture(params=[(2, 2, 1), (3, 2, 4), (5, 4, 3), (7, 3, 2)], ids="{0[0]} classes".format)
def case(request: pytest.FixtureRequest) -> dict[str, np.ndarray]:
    P, d, b = request.param
    rng = np.random.default_rng(P)
    M, N, E = 12, 7, 60
    item, annotator = rng.integers(M, size=E), rng.integers(N - 1, size=E)  # one annotator has no labels
    return {
        "W": 2 * rng.standard_normal((P, 1 + d, 1 + b)), "item": item, "annotator": annotator,
        "label": rng.integers(P, size=E), "x": rng.standard_normal((M, d), dtype=F),
        "a": 3 * rng.standard_normal((N, b), dtype=F),
    }  # fmt: skip


def sides(case: dict[str, np.ndarray]) -> tuple[SideLabels, SideLabels]:
    item, annotator, label = case["item"], case["annotator"], case["label"]
    sizes = len(case["x"]), len(case["a"])
    return SideLabels.of(item, annotator, label, sizes[0]), SideLabels.of(annotator, item, label, sizes[1])


def test_class_weights(case: dict[str, np.ndarray]) -> None:
    W, x, a = case["W"], case["x"], case["a"]
    of_annotators, of_items = latent.class_weights(W, a, "annotators"), latent.class_weights(W, x, "items")
    np.testing.assert_array_equal(of_annotators, class_weights(W.transpose(2, 1, 0), a))
    np.testing.assert_array_equal(of_items, class_weights(W.transpose(1, 2, 0), x))


@pytest.mark.parametrize("n_uniforms", [2, 20])
def test_slices(case: dict[str, np.ndarray], n_uniforms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latent, "SLICE_UNIFORMS", n_uniforms)
    for data, own, other in zip(sides(case), "xa", "ax", strict=True):
        A = latent.class_weights(case["W"], case[other], "annotators" if other == "a" else "items")
        drawn = latent.slice_sample(case[own], A, data, np.random.default_rng(0))
        rng = np.random.default_rng(0)
        directions = rng.standard_normal(case[own].shape, dtype=F)
        expected = slice_positions(case[own], A, data, directions, rng.random((len(drawn), n_uniforms)))
        np.testing.assert_array_equal(drawn, expected)
        assert n_uniforms > 2 or (drawn == case[own]).all(axis=1).any()  # one that ran out of uniforms


def test_gradient(case: dict[str, np.ndarray]) -> None:
    people = sides(case)[1]
    for size in (1, 8):  # logarithms before the end, and only there
        A = latent.class_weights(size * case["W"], case["a"], "annotators")
        value, gradient = latent.log_likelihood(size * case["W"], case["x"], case["a"], people)
        expected = gradient_of(A, case["x"], case["a"], people)
        assert value == expected[0]
        np.testing.assert_array_equal(gradient.transpose(2, 1, 0), expected[1])


def test_answers(case: dict[str, np.ndarray]) -> None:
    rng = np.random.default_rng(1)
    a = 3 * rng.standard_normal((13, case["a"].shape[1]), dtype=F)
    A = latent.class_weights(case["W"], a, "annotators")
    weights = rng.dirichlet(np.ones(13), size=2)
    answers = latent.population_answers(case["x"], A, weights)
    np.testing.assert_array_equal(answers, answers_of(case["x"], A, weights))
