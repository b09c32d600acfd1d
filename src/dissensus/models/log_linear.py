"""Hierarchical log-linear Dawid–Skene: annotators deviate from a common confusion matrix.

Generative model: item m has a true class t_m ~ Cat(ψ), ψ ~ Dir(1), and annotator n answers
y_mn ~ Cat(π_{n, t_m}) with

    π_nkp ∝ exp(e^{u_n} C_kp + b_np + e_nkp).                                                          (1)

C (P, P) is the crowd's matrix in logarithms, e^{u_n} the decisiveness of annotator n, b_np its bias towards
answer p, and e_nkp any other deviation: u ~ N(0, 1/κ_u), b ~ N(0, 1/κ_b), e ~ N(0, 1/κ_e), with learned
precisions κ. C ~ N(C0, 1/100), where C0 is the row-centred logarithm of the crowd's matrix under the majority
vote: it keeps the classes close to the votes, from which a higher likelihood would let them drift.

Variational EM, q(t) q(ψ) and independent Gaussians q of u, b and e, with means (written u, b, e) and
variances v. The expectation of log π is approximated to second order, with the logits of a row independent:

    E log π_nkp ≈ log π_nkp − ½ Σ_r π_nkr (1 − π_nkr) v_nkr,                                           (2)
    v_nkr = v^e_nkr + v^b_nr + (e^{u_n} C_kr)² v^u_n.

With n_nkp = Σ_m q(t_m = k) [y_mn = p], t_nk = Σ_p n_nkp and s_k = Σ_m q(t_m = k), the objective is

    F = Σ_m H(q(t_m)) + ln B(1 + s)/B(1) + Σ_nkp n_nkp E log π_nkp − 50 Σ_kp (C_kp − C0_kp)²
        + Σ_x [½ Σ (log κ_x v − κ_x (x² + v) + 1) + log κ_x − τ_x² κ_x],   x ∈ {u, b, e}               (3)

(the last two terms are a Gamma prior on each κ around the initial deviations τ). Because of (2), F is not a
bound on the evidence, but no step lowers it: items, variances and precisions are exact maximisers given the
rest, and C, u, b, e take a Newton step that is shortened until F does not fall.

**Gold.** If the classes of some items are known, the crowd's matrix does not rest on votes alone. With g_kp
the labels p on gold items of class k, and V the votes' matrix of the other items, with rows of sum 1,

    C0 is that of  g_kp / d + s V_kp,     s = arg max Σ_k ln B(s V_k + g_k/d) / B(s V_k),              (4)

so that votes have little weight where gold contradicts them, and gold has little where it does not. Labels of
one item are correlated: d is their variance between the items of a class, relative to independent labels,

    d = Σ_m n_m Σ_p (y_mp/n_m − ḡ_kp)² / Σ_k (I_k − 1) N_k/(N_k − 1) Σ_p ḡ_kp (1 − ḡ_kp),                (5)

and at least 1. Here y_mp of the n_m labels of gold item m are p, I_k gold items are of class k, N_k is the
number of their labels and ḡ_k the shares of these. For independent labels with shares θ_k, both sums have the
expectation Σ_k (I_k − 1) Σ_p θ_kp (1 − θ_kp): in the first, ḡ uses one of I_k degrees of freedom, and
ḡ (1 − ḡ) is too small by the factor (N_k − 1)/N_k.

The classes of gold items are known, those of the other items are estimated, all with the same error. In the
class shares a gold item therefore counts as w items: ψ ~ Dir(1 + (w − 1) I). As in (4), with v the shares of
the votes on the M' items without gold, I the gold items by class and J the votes on them,

    w = max(1, min(s_J, M') / s_I),     s_x = arg max ln B(s v + x) / B(s v).                          (6)

s_I is the number of items that the votes are worth compared with gold, s_J compared with the votes on gold
items. s_J is small if the gold items are not a random sample (with equally many per class, for instance), so
that their class shares carry no information about the others.

If the labels of gold items agree less than those of other items, by more than two standard errors of the
difference, then gold was collected for difficult items. They are not a sample of all items in (4) and (6)
either, and gold only fixes the classes of its items.

Classes that no label of item m names are damped: their ψ_k is multiplied by ``unseen`` to the power of the
number of labels. Otherwise a rare class could be assigned to items for which no annotator chose it.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import ConvergenceMonitor, Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import UNSEEN, ConfusionModel, ExpectedCounts, label_shares, majority_votes
from dissensus.models.ibcc import expected_log, log_marginal
from dissensus.numerics import Array, normalised
from dissensus.params import MAX_ITER, TOL, fitted, setting

C_PRECISION = 100.0  # prior precision of C around C0
INITIAL_DEVIATIONS = np.array([1.0, 1.0, 0.5])  # τ of u, b and e
FIXED_PRECISION_ITERATIONS = 2  # iterations before the precisions are learned
STRENGTH_GRID = np.geomspace(1.0, 1e5, 61)  # values tried for s in (4) and (6)
MIN_DIFFICULT_ITEMS = 5  # gold items from which it can be seen that they are difficult
NEW_ANNOTATOR_STEPS = 10  # Newton steps for an annotator who was not fitted
MAX_HALVINGS = 8  # of a Newton step that would lower F


@dataclass(frozen=True)
class Logits:
    """Means and variances of the parts of the logits (1), and the precisions."""

    C: Array  # (P, P)
    u: Array  # (N,)
    b: Array  # (N, P)
    e: Array  # (N, P, P)
    v_u: Array
    v_b: Array
    v_e: Array
    precisions: Array  # (3,): κ of u, b and e


@dataclass(frozen=True)
class LogLinearState:
    """Expected counts, and the parameters learned from them."""

    expected: ExpectedCounts
    parameters: Logits


# ---- updates -------------------------------------------------------------------------------------------


def scaled(params: Logits) -> Array:
    """Return (N, P, P): e^{u_n} C_kp."""
    return np.asarray(np.exp(params.u)[:, None, None] * params.C)


def log_matrices(params: Logits) -> Array:
    """Return (N, P, P): log π (1)."""
    logits = scaled(params) + params.b[:, None] + params.e
    logits -= logits.max(axis=-1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))


def logit_variances(params: Logits) -> Array:
    """Return (N, P, P): v (2)."""
    return np.asarray(params.v_e + params.v_b[:, None] + scaled(params) ** 2 * params.v_u[:, None, None])


def expected_logs(params: Logits) -> Array:
    """Return (N, P, P): E log π (2)."""
    log_pi = log_matrices(params)
    pi = np.exp(log_pi)
    return np.asarray(log_pi - 0.5 * (pi * (1 - pi) * logit_variances(params)).sum(axis=-1, keepdims=True))


def objective(counts: Array, params: Logits, anchor: Array) -> float:
    """Return the terms of F (3) that depend on u, b, e, C, their variances and precisions."""
    penalty = 0.5 * C_PRECISION * ((params.C - anchor) ** 2).sum()
    total = float((counts * expected_logs(params)).sum() - penalty)
    parts = ((params.u, params.v_u), (params.b, params.v_b), (params.e, params.v_e))
    for (x, v), k, tau in zip(parts, params.precisions, INITIAL_DEVIATIONS, strict=True):
        total += 0.5 * float((np.log(k * v) - k * (x**2 + v) + 1).sum()) + np.log(k) - tau**2 * k
    return total


def newton_step(counts: Array, params: Logits, anchor: Array, update_crowd: bool = True) -> Logits:
    """Take a diagonal Newton step in u, b, e and C, halved until F does not fall."""
    pi, slope = np.exp(log_matrices(params)), scaled(params)
    t = counts.sum(axis=-1, keepdims=True)
    curvature = t * pi * (1 - pi)
    # ∂F/∂logit = n − tπ − ½ t π (g − Σ_r π_r g_r),  g = (1 − 2π) v;  u and C also enter v in (2)
    g = (1 - 2 * pi) * logit_variances(params)
    gradient = counts - t * pi - 0.5 * t * pi * (g - (pi * g).sum(axis=-1, keepdims=True))
    by_u = gradient * slope - curvature * slope**2 * params.v_u[:, None, None]
    k_u, k_b, k_e = params.precisions
    scale = np.exp(params.u)[:, None, None]
    by_C = (gradient * scale - curvature * scale**2 * params.v_u[:, None, None] * params.C).sum(axis=0)
    steps = {
        "C": (by_C - C_PRECISION * (params.C - anchor)) / ((curvature * scale**2).sum(axis=0) + C_PRECISION),
        "u": (by_u.sum(axis=(1, 2)) - k_u * params.u) / ((curvature * slope**2).sum(axis=(1, 2)) + k_u),
        "b": (gradient.sum(axis=1) - k_b * params.b) / (curvature.sum(axis=1) + k_b),
        "e": (gradient - k_e * params.e) / (curvature + k_e),
    }
    if not update_crowd:
        del steps["C"]
    return _shortened_step(counts, params, anchor, steps)


def _shortened_step(counts: Array, params: Logits, anchor: Array, steps: dict[str, Array]) -> Logits:
    """Take the steps, halved until F does not fall; no step after ``MAX_HALVINGS``."""
    before = objective(counts, params, anchor)
    for halving in range(MAX_HALVINGS):
        values = {name: getattr(params, name) + step / 2**halving for name, step in steps.items()}
        moved = replace(params, **values)
        # (1) does not depend on the mean of a row of C, and C0 has none
        moved = replace(moved, C=moved.C - moved.C.mean(axis=1, keepdims=True))
        with np.errstate(over="ignore", invalid="ignore"):  # F is NaN after a step that is far too long
            if objective(counts, moved, anchor) >= before:
                return moved
    return params


def with_variances(counts: Array, params: Logits) -> Logits:
    """Return the parameters with the v that maximise F: v = 1 / (Σ t π (1 − π) (∂logit)² + κ)."""
    pi = np.exp(log_matrices(params))
    curvature = counts.sum(axis=-1, keepdims=True) * pi * (1 - pi)
    k_u, k_b, k_e = params.precisions
    v_u = 1 / ((curvature * scaled(params) ** 2).sum(axis=(1, 2)) + k_u)
    return replace(params, v_u=v_u, v_b=1 / (curvature.sum(axis=1) + k_b), v_e=1 / (curvature + k_e))


def with_precisions(params: Logits) -> Logits:
    """Return the parameters with the κ that maximise F: κ_x = (size + 2) / (Σ (x² + v) + 2 τ_x²)."""
    parts = ((params.u, params.v_u), (params.b, params.v_b), (params.e, params.v_e))
    sizes, squares = zip(*((x.size, float((x**2 + v).sum())) for x, v in parts), strict=True)
    return replace(params, precisions=(np.array(sizes) + 2) / (np.array(squares) + 2 * INITIAL_DEVIATIONS**2))


# ---- gold ----------------------------------------------------------------------------------------------


def design_effect(counts: Array, gold: NDArray[np.bool_]) -> float:
    """Return d (5) for labels (items, P) of gold items, whose class is one-hot in ``gold`` (items, P)."""
    n, by_class = counts.sum(axis=1, keepdims=True), gold.T @ counts
    means = normalised(by_class)
    between = float((n * (normalised(counts) - means[gold.argmax(axis=1)]) ** 2).sum())
    # (I_k − 1) N_k / (N_k − 1), or 0 for a class with fewer than two items
    N_k = by_class.sum(axis=1)
    freedom = np.maximum(gold.sum(axis=0) - 1, 0) * N_k / np.maximum(N_k - 1, 1)
    independent = float(freedom @ (means * (1 - means)).sum(axis=1))
    return max(1.0, between / independent) if independent > 0 else 1.0


def chosen_as_difficult(counts: NDArray[Any], has_gold: NDArray[np.bool_]) -> bool:
    """Return whether labels agree less on gold items than on others, by more than two standard errors.

    Such items are not a sample of all items: what annotators answer to them does not show how well annotators
    do elsewhere.
    """
    n = counts.sum(axis=1)
    agreement = ((counts**2).sum(axis=1) - n) / np.maximum(n * (n - 1), 1)
    with_gold, others = (agreement[(n > 1) & (has_gold == side)] for side in (True, False))
    if len(with_gold) < MIN_DIFFICULT_ITEMS or len(others) < 2:
        return False
    error = np.sqrt(with_gold.var(ddof=1) / len(with_gold) + others.var(ddof=1) / len(others))
    return bool(others.mean() - with_gold.mean() > 2 * error)


def crowd_matrix(votes: Array, counts: NDArray[Any], gold: NDArray[np.bool_]) -> Array:
    """Return (P, P): the crowd's matrix in labels, from votes and gold (4)."""
    labelled = gold.any(axis=1) & (counts.sum(axis=1) > 0)
    if not labelled.any():
        return votes
    counts, gold = counts[labelled].astype(np.float64), gold[labelled]
    by_class = gold.T @ counts
    others = normalised(votes - by_class)
    by_class /= design_effect(counts, gold)
    return np.asarray(by_class + best_strength(others, by_class) * others)


def best_strength(shares: Array, counts: Array) -> float:
    """Return arg max_s Σ over rows of ln B(s shares + counts) / B(s shares)."""
    return float(max(STRENGTH_GRID, key=lambda s: log_marginal(s * shares, counts)))


def gold_item_weight(votes: Array, gold: NDArray[np.bool_]) -> float:
    """Return w (6): the weight of a gold item in the class shares, given the votes (M, P)."""
    has_gold = gold.any(axis=1)
    shares = normalised(votes[~has_gold].sum(axis=0, keepdims=True) + 1.0)
    s_votes = best_strength(shares, votes[has_gold].sum(axis=0, keepdims=True))
    s_gold = best_strength(shares, gold[has_gold].astype(float).sum(axis=0, keepdims=True))
    return max(1.0, min(s_votes, float((~has_gold).sum())) / s_gold)


# ---- the model -----------------------------------------------------------------------------------------


class LogLinear(ConfusionModel):
    """Confusion matrices that vary around the crowd's, by decisiveness, bias and other deviations."""

    _: KW_ONLY
    unseen: float = setting(0.3, *UNSEEN)
    max_iter: int = setting(100, *MAX_ITER)
    tol: float = setting(1e-5, *TOL)

    _memory_tables = {"MP": 4, "NPP": 20}

    crowd_logits_: Array = fitted("(P, P): C")
    decisiveness_: Array = fitted("(N,): u")
    biases_: Array = fitted("(N, P): b")
    precisions_: Array = fitted("(3,): κ")

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        steps, item_prior, log_item_prior = self._setup(annotations, engine, prior)
        class_prior = np.ones(annotations.n_classes)
        # the crowd's matrix, plus one label spread over each row
        matrix = steps.initial_counts(majority_votes, item_prior).counts.sum(axis=0) + 1.0 / len(class_prior)
        if prior is not None:
            gold = (item_prior > 0) & ((item_prior > 0).sum(axis=1, keepdims=True) == 1)
            if not chosen_as_difficult(annotations.counts, gold.any(axis=1)):
                matrix = crowd_matrix(matrix, annotations.counts, gold)
                weight = gold_item_weight(steps.initial_posterior(majority_votes), gold)
                class_prior += (weight - 1.0) * gold.sum(axis=0)
        # C0: row-centred logarithms
        anchor = np.log(normalised(matrix))
        anchor -= anchor.mean(axis=1, keepdims=True)
        monitor = ConvergenceMonitor(engine, self.max_iter, self.tol)
        state = monitor.resume(LogLinearState)
        if state is None:
            expected = steps.initial_counts(label_shares, item_prior)
            state = LogLinearState(expected, self._start(expected.counts, anchor))
        for iteration in monitor:
            expected, params = state.expected, state.parameters
            value = expected.entropy + log_marginal(class_prior, expected.item_mass)
            if monitor.report(value + objective(expected.counts, params, anchor), state):
                break
            # M: logits, their variances and the precisions
            params = with_variances(expected.counts, newton_step(expected.counts, params, anchor))
            params = with_precisions(params) if iteration >= FIXED_PRECISION_ITERATIONS else params
            # E: the items' classes
            log_psi = expected_log(class_prior + expected.item_mass)
            state = LogLinearState(steps.e_step(expected_logs(params), log_psi, log_item_prior), params)
        params, log_psi = state.parameters, expected_log(class_prior + state.expected.item_mass)
        self.posterior_ = steps.posterior(expected_logs(params), log_psi, log_item_prior)
        self.psi_, self.confusion_ = normalised(np.exp(log_psi)), np.exp(log_matrices(params))
        self.crowd_logits_, self.decisiveness_, self.biases_ = params.C, params.u, params.b
        self.precisions_ = params.precisions
        self._set_fitted(annotations, monitor)

    def _start(self, counts: Array, crowd: Array, precisions: Array = INITIAL_DEVIATIONS**-2.0) -> Logits:
        """Return parameters at which every annotator answers like the crowd."""
        N, P, _ = counts.shape
        u, b, e = np.zeros(N), np.zeros((N, P)), np.zeros((N, P, P))
        return with_variances(counts, Logits(crowd, u, b, e, u, b, e, precisions))

    def _new_matrices(self, counts: Array, fitted: Self) -> Array:
        params = self._start(counts, fitted.crowd_logits_, fitted.precisions_)
        for _ in range(NEW_ANNOTATOR_STEPS):
            params = with_variances(counts, newton_step(counts, params, params.C, update_crowd=False))
        return np.exp(log_matrices(params))
