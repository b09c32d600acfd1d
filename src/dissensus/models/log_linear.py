"""Hierarchical log-linear Dawid–Skene: what a class is, is the crowd's; how an annotator answers, is its own.

How a label is born: item m has a true class t_m ~ Cat(ψ), ψ ~ Dir(1), and annotator n answers
y_mn ~ Cat(π_{n, t_m}) with

    π_nkp ∝ exp(e^{u_n} C_kp + b_np + e_nkp).                                                          (1)

C (P, P) is the crowd's matrix in logarithms, u_n how decided annotator n is, b_np its liking for answer p
whatever the class, e_nkp whatever else it does: u ~ N(0, 1/κ_u), b ~ N(0, 1/κ_b), e ~ N(0, 1/κ_e), with the
precisions κ learned. C ~ N(C0, 1/100), C0 being the row-centred logarithm of the crowd's matrix under the
majority vote: classes stay anchored to the votes, where a higher likelihood would let them drift.

Variational EM, q(t) q(ψ) and independent Gaussians q of u, b and e, with means (written u, b, e) and
variances v. The expectation of log π is taken to the second order, the logits of a row as if independent,

    E log π_nkp ≈ log π_nkp − ½ Σ_r π_nkr (1 − π_nkr) v_nkr,                                           (2)
    v_nkr = v^e_nkr + v^b_nr + (e^{u_n} C_kr)² v^u_n,

and with n_nkp = Σ_m q(t_m = k) [y_mn = p], t_nk = Σ_p n_nkp, s_k = Σ_m q(t_m = k) the objective is

    F = Σ_m H(q(t_m)) + ln B(1 + s)/B(1) + Σ_nkp n_nkp E log π_nkp − 50 Σ_kp (C_kp − C0_kp)²
        + Σ_x [½ Σ (log κ_x v − κ_x (x² + v) + 1) + log κ_x − τ_x² κ_x],   x ∈ {u, b, e}               (3)

(the last two terms: a Gamma prior on each κ around the first deviations τ). (2) being no bound, F is none on
the evidence; but no step lowers it: the items, the variances and the precisions are its exact maxima with the
rest held fixed, and C, u, b, e take a Newton step, shortened until F does not fall.

**Gold.** Where the classes of some items are known, the crowd's matrix need not be taken from votes alone.
With g_kp the labels p on gold items of class k, V the votes' matrix of the other items, rows of sum 1,

    C0 is that of  g_kp / d + s V_kp,     s = arg max Σ_k ln B(s V_k + g_k/d) / B(s V_k),              (4)

so that votes count for little where gold contradicts them, and gold for little where it does not. Labels of
one item go together: d is how much more they spread between the items of a class than independent ones would,

    d = Σ_m n_m Σ_p (y_mp/n_m − ḡ_kp)² / Σ_k (I_k − 1) N_k/(N_k − 1) Σ_p ḡ_kp (1 − ḡ_kp),                (5)

not below 1, over gold items, with y_mp of their n_m labels p, I_k of them of class k, N_k their labels and
ḡ_k the shares of these. For independent labels of shares θ_k both sums are expected to be
Σ_k (I_k − 1) Σ_p θ_kp (1 − θ_kp): above, ḡ takes one of I_k deviations away, and ḡ (1 − ḡ) is too small by
(N_k − 1)/N_k, the variance of ḡ.

A gold item's class is known, those of the others are guessed, all with the same error. In the class shares
a gold item counts as w of them: ψ ~ Dir(1 + (w − 1) I). As in (4), with v the shares of the votes on the M'
items without gold, I the gold items by class and J the votes on them,

    w = max(1, min(s_J, M') / s_I),     s_x = arg max ln B(s v + x) / B(s v).                          (6)

s_I says how many items the votes are worth beside gold. s_J says how many they are worth beside votes on the
gold items: few where gold items were not drawn like the others (as many of each class, say), and then their
class shares say nothing of the others'.

A class that nobody gave to item m is also damped: its ψ_k is multiplied by ``unseen`` to the power of the
item's labels. Where a class is rare, matrices alone would give it to items for which no annotator named it.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import ConvergenceMonitor, Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import UNSEEN, ConfusionModel, Expected, shares, votes
from dissensus.models.ibcc import expected_log, gain
from dissensus.numerics import Array, normalised
from dissensus.params import MAX_ITER, TOL, fitted, setting

ANCHOR = 100.0  # precision of C around C0
FIRST_DEVIATIONS = np.array([1.0, 1.0, 0.5])  # τ of u, b and e
LEARNED_FROM = 2  # iterations with the first precisions
STRENGTHS = np.geomspace(1.0, 1e5, 61)  # s (4, 6) that are tried, in labels and in items
STEPS_OF_NEW = 10  # towards an annotator's own answers, the crowd's held fixed
HALVINGS = 8  # of a step that would lower F, at most


@dataclass(frozen=True)
class Answering:
    """What is learned: means and variances of what makes up the logits (1), and the precisions."""

    C: Array  # (P, P)
    u: Array  # (N,)
    b: Array  # (N, P)
    e: Array  # (N, P, P)
    v_u: Array
    v_b: Array
    v_e: Array
    precisions: Array  # (3,): κ of u, b and e


@dataclass(frozen=True)
class State:
    """What is expected of the items' true classes, and what was learned from it."""

    expected: Expected
    answering: Answering


# ---- one step ------------------------------------------------------------------------------------------


def scaled(own: Answering) -> Array:
    """(N, P, P): e^{u_n} C_kp."""
    return np.asarray(np.exp(own.u)[:, None, None] * own.C)


def log_matrices(own: Answering) -> Array:
    """(N, P, P): log π (1)."""
    logits = scaled(own) + own.b[:, None] + own.e
    logits -= logits.max(axis=-1, keepdims=True)
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))


def logit_variances(own: Answering) -> Array:
    """(N, P, P): v (2)."""
    return np.asarray(own.v_e + own.v_b[:, None] + scaled(own) ** 2 * own.v_u[:, None, None])


def expected_logs(own: Answering) -> Array:
    """(N, P, P): E log π (2)."""
    log_pi = log_matrices(own)
    pi = np.exp(log_pi)
    blur = (pi * (1 - pi) * logit_variances(own)).sum(axis=-1, keepdims=True)
    return np.asarray(log_pi - 0.5 * blur)


def score(counts: Array, own: Answering, anchor: Array) -> float:
    """The terms of F (3) that u, b, e, C, their variances and precisions are in."""
    total = float((counts * expected_logs(own)).sum() - 0.5 * ANCHOR * ((own.C - anchor) ** 2).sum())
    parts = ((own.u, own.v_u), (own.b, own.v_b), (own.e, own.v_e))
    for (x, v), k, tau in zip(parts, own.precisions, FIRST_DEVIATIONS, strict=True):
        total += 0.5 * float((np.log(k * v) - k * (x**2 + v) + 1).sum()) + np.log(k) - tau**2 * k
    return total


def newton(counts: Array, own: Answering, anchor: Array, crowd_too: bool = True) -> Answering:
    """A diagonal Newton step of u, b and e, and of C, halved until F does not fall."""
    pi, slope = np.exp(log_matrices(own)), scaled(own)
    t = counts.sum(axis=-1, keepdims=True)
    curvature = t * pi * (1 - pi)
    # ∂F/∂logit = n − tπ − ½ t π (g − Σ_r π_r g_r),  g = (1 − 2π) v;  slopes enter (2) once more
    g = (1 - 2 * pi) * logit_variances(own)
    pull = counts - t * pi - 0.5 * t * pi * (g - (pi * g).sum(axis=-1, keepdims=True))
    through = pull * slope - curvature * slope**2 * own.v_u[:, None, None]
    k_u, k_b, k_e = own.precisions
    scale = np.exp(own.u)[:, None, None]
    by_c = (pull * scale - curvature * scale**2 * own.v_u[:, None, None] * own.C).sum(axis=0)
    steps = {
        "C": (by_c - ANCHOR * (own.C - anchor)) / ((curvature * scale**2).sum(axis=0) + ANCHOR),
        "u": (through.sum(axis=(1, 2)) - k_u * own.u) / ((curvature * slope**2).sum(axis=(1, 2)) + k_u),
        "b": (pull.sum(axis=1) - k_b * own.b) / (curvature.sum(axis=1) + k_b),
        "e": (pull - k_e * own.e) / (curvature + k_e),
    }
    if not crowd_too:
        del steps["C"]
    return _shortened(counts, own, anchor, steps)


def _shortened(counts: Array, own: Answering, anchor: Array, steps: dict[str, Array]) -> Answering:
    """So much of a step that F does not fall; where nothing helps, no step."""
    before = score(counts, own, anchor)
    for halving in range(HALVINGS):
        moved = replace(own, **{name: getattr(own, name) + step / 2**halving for name, step in steps.items()})
        # (1) does not see a constant in a row of C, and without one it is nearer to C0
        moved = replace(moved, C=moved.C - moved.C.mean(axis=1, keepdims=True))
        with np.errstate(over="ignore", invalid="ignore"):  # much too far: no number, and no better
            if score(counts, moved, anchor) >= before:
                return moved
    return own


def with_variances(counts: Array, own: Answering) -> Answering:
    """v = 1 / (Σ t π (1 − π) (∂logit)² + κ): the maximum of F, each of the three."""
    pi = np.exp(log_matrices(own))
    curvature = counts.sum(axis=-1, keepdims=True) * pi * (1 - pi)
    k_u, k_b, k_e = own.precisions
    v_u = 1 / ((curvature * scaled(own) ** 2).sum(axis=(1, 2)) + k_u)
    return replace(own, v_u=v_u, v_b=1 / (curvature.sum(axis=1) + k_b), v_e=1 / (curvature + k_e))


def with_precisions(own: Answering) -> Answering:
    """κ_x = (size + 2) / (Σ (x² + v) + 2 τ_x²): the maximum of F."""
    parts = ((own.u, own.v_u), (own.b, own.v_b), (own.e, own.v_e))
    sizes, squares = zip(*((x.size, float((x**2 + v).sum())) for x, v in parts), strict=True)
    return replace(own, precisions=(np.array(sizes) + 2) / (np.array(squares) + 2 * FIRST_DEVIATIONS**2))


# ---- gold ----------------------------------------------------------------------------------------------


def design_effect(counts: Array, gold: NDArray[np.bool_]) -> float:
    """d (5) of labels (items, P) on gold items, whose class is told by ``gold`` (items, P)."""
    n, said = counts.sum(axis=1, keepdims=True), gold.T @ counts
    means = normalised(said)
    apart = float((n * (normalised(counts) - means[gold.argmax(axis=1)]) ** 2).sum())
    # (I_k − 1) N_k / (N_k − 1); a class of one item, or of none, tells nothing
    N_k = said.sum(axis=1)
    freedom = np.maximum(gold.sum(axis=0) - 1, 0) * N_k / np.maximum(N_k - 1, 1)
    independent = float(freedom @ (means * (1 - means)).sum(axis=1))
    return max(1.0, apart / independent) if independent > 0 else 1.0


def with_gold(votes: Array, counts: NDArray[Any], gold: NDArray[np.bool_]) -> Array:
    """(P, P): the crowd's matrix by votes, in labels, and by gold where it contradicts them (4)."""
    labelled = gold.any(axis=1) & (counts.sum(axis=1) > 0)
    if not labelled.any():
        return votes
    counts, gold = counts[labelled].astype(np.float64), gold[labelled]
    said = gold.T @ counts
    others = normalised(votes - said)
    said /= design_effect(counts, gold)
    return np.asarray(said + strength(others, said) * others)


def strength(shares: Array, counts: Array) -> float:
    """arg max_s Σ over rows of ln B(s shares + counts) / B(s shares)."""
    return float(max(STRENGTHS, key=lambda s: gain(s * shares, counts)))


def worth(votes: Array, gold: NDArray[np.bool_]) -> float:
    """w (6): how many items one with gold counts for in the class shares, by the votes on items (M, P)."""
    known = gold.any(axis=1)
    shares = normalised(votes[~known].sum(axis=0, keepdims=True) + 1.0)
    in_votes, in_gold = (
        strength(shares, table[known].sum(axis=0, keepdims=True)) for table in (votes, gold.astype(float))
    )
    return max(1.0, min(in_votes, float((~known).sum())) / in_gold)


# ---- the model -----------------------------------------------------------------------------------------


class LogLinear(ConfusionModel):
    """Annotators as variations of the crowd: each is more or less decided and has likings of its own."""

    _: KW_ONLY
    unseen: float = setting(0.3, *UNSEEN)
    max_iter: int = setting(100, *MAX_ITER)
    tol: float = setting(1e-5, *TOL)

    _memory_tables = {"MP": 4, "NPP": 20}

    crowd_logits_: Array = fitted("(P, P): C")
    decidedness_: Array = fitted("(N,): u")
    likings_: Array = fitted("(N, P): b")
    precisions_: Array = fitted("(3,): κ")

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        steps, given, log_given = self._begin(annotations, engine, prior)
        class_prior = np.ones(annotations.n_classes)
        # the crowd's matrix, one label spread over each row
        matrix = steps.initial_counts(votes, given).counts.sum(axis=0) + 1.0 / len(class_prior)
        if prior is not None:
            gold = (given > 0) & ((given > 0).sum(axis=1, keepdims=True) == 1)
            matrix = with_gold(matrix, annotations.counts, gold)
            class_prior += (worth(steps.initial_posterior(votes), gold) - 1.0) * gold.sum(axis=0)
        # C0: row-centred logarithms
        anchor = np.log(normalised(matrix))
        anchor -= anchor.mean(axis=1, keepdims=True)
        monitor = ConvergenceMonitor(engine, self.max_iter, self.tol)
        state = monitor.resume(State)
        if state is None:
            expected = steps.initial_counts(shares, given)
            state = State(expected, self._start(expected.counts, anchor))
        for iteration in monitor:
            expected, own = state.expected, state.answering
            classes = gain(class_prior, expected.item_mass)
            if monitor.report(expected.entropy + classes + score(expected.counts, own, anchor), state):
                break
            # M: logits, their variances, and how far annotators are from the crowd
            own = with_variances(expected.counts, newton(expected.counts, own, anchor))
            own = with_precisions(own) if iteration >= LEARNED_FROM else own
            # E: the items' classes
            log_psi = expected_log(class_prior + expected.item_mass)
            state = State(steps.e_step(expected_logs(own), log_psi, log_given), own)
        own, log_psi = state.answering, expected_log(class_prior + state.expected.item_mass)
        self.posterior_ = steps.posterior(expected_logs(own), log_psi, log_given)
        self.psi_, self.confusion_ = normalised(np.exp(log_psi)), np.exp(log_matrices(own))
        self.crowd_logits_, self.decidedness_, self.likings_ = own.C, own.u, own.b
        self.precisions_ = own.precisions
        self._finish(annotations.annotator_load, monitor)

    def _start(self, counts: Array, crowd: Array, precisions: Array = FIRST_DEVIATIONS**-2.0) -> Answering:
        """Every annotator is the crowd."""
        N, P, _ = counts.shape
        u, b, e = np.zeros(N), np.zeros((N, P)), np.zeros((N, P, P))
        return with_variances(counts, Answering(crowd, u, b, e, u, b, e, precisions))

    def _matrices_of_new(self, counts: Array, fitted: Self) -> Array:
        own = self._start(counts, fitted.crowd_logits_, fitted.precisions_)
        for _ in range(STEPS_OF_NEW):
            own = with_variances(counts, newton(counts, own, own.C, crowd_too=False))
        return np.exp(log_matrices(own))
