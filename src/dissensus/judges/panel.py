"""Effective votes of a panel of judges: their dependence given the human answers.

Two judges may agree because both agree with humans, or because they err together; only the latter reduces two
votes to one. Let u_m be the distribution of human answers to item m, x_im the one-hot answer of judge i, and
C(·, ·) covariances over items. The part of two judges' agreement that is linearly explained by u is
tr C(x_i, u) C(u, u)⁻¹ C(u, x_j); the rest,

    c_ij = tr [C(x_i, x_j) − C(x_i, u) C(u, u)⁻¹ C(u, x_j)],

is 0 for judges that are independent given the item, and c_ii for two copies of one judge. u_m is unobserved,
but two humans of an item are two draws from it: C(u, u) is the covariance of different humans, C(x_i, u) that
of a judge and a human. Few or careless humans therefore do not make judges look dependent. With the
correlations r_ij = c_ij / √(c_ii c_jj), the mean of k judges has the variance of the mean of

    k² / Σ_ij r_ij

independent judges (Kish's effective sample size). Its interval is a jackknife over groups of items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dissensus.annotators.sentences import listed, quoted
from dissensus.judges.answers import JudgeAnswers
from dissensus.numerics import Array, Indices

JACKKNIFE_GROUPS = 20
MIN_CORRELATION = 0.5  # of judges that err together
MIN_PANEL_ITEMS = 50  # items answered by all judges
MIN_SIGNAL_TO_NOISE = 2.0  # of an eigenvalue of C(u, u), relative to its chance level


@dataclass(frozen=True)
class Panel:
    """Dependence of the judges."""

    judges: Indices  # codes
    correlation: Array  # (k, k): r
    effective_votes: float
    low: float
    high: float
    groups: list[list[int]]  # indices of judges that err together, largest group first; includes singletons
    weights: Array  # (k,): vote of each judge; sums to 1
    n_items: int

    def in_words(self, names: Sequence[str]) -> str:
        """Return the effective number of votes and the groups of judges that err together, as text."""
        families = [group for group in self.groups if len(group) > 1]
        votes = f"The {len(names)} judges are worth {self.effective_votes:.1f} independent votes"
        if not families and self.high >= len(names):
            dependence = "dependence of their errors is not shown, but cannot be excluded"
            return f"{votes} (95\u00a0% lower bound {self.low:.1f}): {dependence}."
        dependence = "they agree with each other more than the human labels explain"
        text = f"{votes} (95\u00a0% interval {self.low:.1f} to {self.high:.1f}): {dependence}."
        lists = "; ".join(listed([quoted(names[i]) for i in group]) for group in families)
        return f"{text} Judges that err together: {lists}." if families else text


def judge_panel(answers: JudgeAnswers) -> Panel | None:
    """Estimate the dependence of the judges; None for fewer than two judges or too few items.

    Only items answered by all judges and at least two humans count.
    """
    judges = answers.judges
    table = np.column_stack([answers.answers_of(int(judge)) for judge in judges])
    items = (table >= 0).all(axis=1) & (answers.human_counts.sum(axis=1) >= 2)
    if len(judges) < 2 or items.sum() < MIN_PANEL_ITEMS:
        return None
    moments = AnswerMoments.of(answers.human_counts[items], table[items])
    correlation = moments.summed().correlations()
    k, estimate = len(judges), effective_votes(correlation)
    left_out = np.array([effective_votes(moments.summed(b).correlations()) for b in range(JACKKNIFE_GROUPS)])
    # jackknife: var = (B − 1)/B Σ_b (θ_b − mean)²
    error = np.sqrt((JACKKNIFE_GROUPS - 1) / JACKKNIFE_GROUPS * ((left_out - left_out.mean()) ** 2).sum())
    half = float(stdtrit(JACKKNIFE_GROUPS - 1, 0.975) * error)
    # clipped last: clipped in every group, all estimates could be k, with an interval of width 0
    votes, low, high = np.clip([estimate, estimate - half, estimate + half], 1.0, k).tolist()
    groups, weights = group_judges(correlation), vote_weights(correlation)
    return Panel(judges, correlation, votes, low, high, groups, weights, int(items.sum()))


@dataclass(frozen=True, eq=False)
class AnswerMoments:
    """Sums over items, or over each of several groups of items."""

    n: Array  # items
    human: Array  # (P,): Σ_m share of each answer among the item's humans
    pairs: Array  # (P, P): Σ_m share of each two answers among two different humans of the item
    judge: Array  # (k, P): Σ_m x_im
    mixed: Array  # (k, P, P): Σ_m x_im times the shares of humans
    agree: Array  # (k, k): Σ_m 1[x_im = x_jm]

    @classmethod
    def of(cls, counts: NDArray[np.int64], table: NDArray[np.int32]) -> AnswerMoments:
        """Return sums of human counts (M, P) and judges' answers (M, k), by random groups of items."""
        part = np.random.default_rng(0).permutation(len(table)) % JACKKNIFE_GROUPS
        sums = []
        for c, g in ((counts[part == b], table[part == b]) for b in range(JACKKNIFE_GROUPS)):
            (M, P), k, n = c.shape, g.shape[1], c.sum(axis=1)
            shares, x = c / n[:, None], np.eye(P)[g]
            scaled = c / (n * (n - 1))[:, None]
            # Σ over different humans of one item: (c c' − diag c) / n (n − 1)
            pairs = scaled.T @ c - np.diag(scaled.sum(axis=0))
            mixed = (x.reshape(M, k * P).T @ shares).reshape(k, P, P)
            agree = (g[:, :, None] == g[:, None, :]).sum(axis=0).astype(np.float64)
            sums.append((np.array(float(M)), shares.sum(axis=0), pairs, x.sum(axis=0), mixed, agree))
        return cls(*map(np.stack, zip(*sums, strict=True)))

    def summed(self, left_out: int | None = None) -> AnswerMoments:
        """Return the sums over all groups of items, or over all but one."""
        parts = vars(self).values()
        sums = [part.sum(axis=0) - (0.0 if left_out is None else part[left_out]) for part in parts]
        return AnswerMoments(*sums)

    def correlations(self) -> Array:
        """Return (k, k): r."""
        human, judge = self.human / self.n, self.judge / self.n
        spread = self.pairs / self.n - np.outer(human, human)  # C(u, u)
        shared = self.mixed / self.n - judge[:, :, None] * human  # (k, P, P): C(x_i, u)
        # pseudo-inverse of C(u, u): eigenvalues near the chance level √(p_a p_b / n) are dropped
        values, vectors = np.linalg.eigh((spread + spread.T) / 2)
        signal = values > MIN_SIGNAL_TO_NOISE * np.sqrt((human * (1 - human)).max() * human.max() / self.n)
        inverse = (vectors[:, signal] / values[signal]) @ vectors[:, signal].T
        explained = np.einsum("iap,pq,jaq->ij", shared, inverse, shared)
        c = self.agree / self.n - judge @ judge.T - explained
        variance = np.maximum(np.diag(c), 1e-9)
        r = np.clip(c / np.sqrt(variance[:, None] * variance[None, :]), -1.0, 1.0)
        np.fill_diagonal(r, 1.0)
        return np.asarray(r)


def effective_votes(correlation: Array) -> float:
    """Return k² / Σ_ij r_ij; above k for negatively dependent judges."""
    return float(len(correlation) ** 2 / max(correlation.sum(), 1e-9))


def group_judges(correlation: Array) -> list[list[int]]:
    """Group judges that err together: average linkage while the mean correlation is at least 1/2."""
    groups = [[i] for i in range(len(correlation))]
    while len(groups) > 1:
        means = np.array([[correlation[np.ix_(g, h)].mean() for h in groups] for g in groups])
        np.fill_diagonal(means, -np.inf)
        first, second = sorted(np.unravel_index(int(means.argmax()), means.shape))
        if means[first, second] < MIN_CORRELATION:
            break
        groups[first] = sorted(groups[first] + groups.pop(second))
    return sorted(groups, key=lambda group: (-len(group), group[0]))


def vote_weights(correlation: Array) -> Array:
    """Return (k,): 1 / Σ_j max(r_ij, 0), normalised: copies of a judge share one vote."""
    weights = 1 / np.maximum(correlation, 0.0).sum(axis=1)
    return np.asarray(weights / weights.sum())
