"""How many votes is a panel of judges? Dependence among judges, given what humans say of the items.

Two judges may agree because both see what humans see, or because they err together; only the second makes
one vote out of two. Let u_m be the distribution of humans' answers about item m, x_im the answer of judge i
(a row with a single 1), and C(·, ·) covariances over items. What u explains of two judges' agreement is, at
best linearly, tr C(x_i, u) C(u, u)⁻¹ C(u, x_j); the rest,

    c_ij = tr [C(x_i, x_j) − C(x_i, u) C(u, u)⁻¹ C(u, x_j)],

is 0 for judges that are independent given the item, and c_ii for two copies of one judge. u_m is not seen,
but two humans of an item are two draws from it: C(u, u) is the covariance of different humans, C(x_i, u)
that of a judge and a human. So few or careless humans do not make judges look dependent. With the
correlations r_ij = c_ij / √(c_ii c_jj), the mean of k judges varies as much as that of

    k² / Σ_ij r_ij

independent ones (Kish's effective sample size). Its interval is the jackknife's, over groups of items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dissensus.annotators.sentences import listed, quoted
from dissensus.judges.answers import Answers
from dissensus.numerics import Array

N_PARTS = 20  # groups of items for the jackknife
TOGETHER = 0.5  # correlation from which judges are said to err together
LEAST_ITEMS = 50  # items that all judges of a panel answered
NOISE = 2.0  # times what chance makes of a covariance


@dataclass(frozen=True)
class Panel:
    """The dependence of judges."""

    judges: NDArray[np.intp]  # codes
    correlation: Array  # (k, k): r
    effective_votes: float
    low: float
    high: float
    groups: list[list[int]]  # places of judges that err together, largest groups first; singles too
    weights: Array  # (k,): what each judge should count, in sum 1
    n_items: int

    def in_words(self, names: Sequence[str]) -> str:
        """How many votes the panel is, and who errs together."""
        together = [group for group in self.groups if len(group) > 1]
        groups = "; ".join(listed([quoted(names[place]) for place in group]) for group in together)
        err = f" They err together: {groups}." if together else ""
        worth = f"Together the {len(names)} judges are worth {self.effective_votes:.1f} independent votes"
        if together or self.high < len(names):
            said = "given what humans say of an item, they still agree with each other"
            return f"{worth} (95\u00a0% interval {self.low:.1f} to {self.high:.1f}): {said}.{err}"
        said = "as far as these labels show, they err independently"
        return f"{worth} (at least {self.low:.1f}, at 95\u00a0%): {said}."


def panel_of(answers: Answers) -> Panel | None:
    """How judges depend on each other; None for fewer than two, or too few items.

    An item counts if all judges and at least two humans answered it.
    """
    judges = answers.judges
    given = np.column_stack([answers.answers_of(int(judge)) for judge in judges])
    known = (given >= 0).all(axis=1) & (answers.human_counts.sum(axis=1) >= 2)
    if len(judges) < 2 or known.sum() < LEAST_ITEMS:
        return None
    moments = Moments.of(answers.human_counts[known], given[known])
    correlation = moments.summed().correlations()
    k, estimate = len(judges), votes_of(correlation)
    left_out = np.array([votes_of(moments.summed(b).correlations()) for b in range(N_PARTS)])
    # jackknife: var = (B − 1)/B Σ_b (θ_b − mean)²
    error = np.sqrt((N_PARTS - 1) / N_PARTS * ((left_out - left_out.mean()) ** 2).sum())
    half = float(stdtrit(N_PARTS - 1, 0.975) * error)
    # only now between 1 and k: cut in every part, they would all be k, and the interval of no width
    votes, low, high = np.clip([estimate, estimate - half, estimate + half], 1.0, k).tolist()
    groups, weights = grouped(correlation), vote_weights(correlation)
    return Panel(judges, correlation, votes, low, high, groups, weights, int(known.sum()))


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over items, by part of the items where there are several."""

    n: Array  # items
    human: Array  # (P,): Σ_m share of each answer among the item's humans
    pairs: Array  # (P, P): Σ_m share of each two answers among two different humans of the item
    judge: Array  # (k, P): Σ_m x_im
    mixed: Array  # (k, P, P): Σ_m x_im times the shares of humans
    agree: Array  # (k, k): Σ_m 1[x_im = x_jm]

    @classmethod
    def of(cls, counts: NDArray[np.int64], given: NDArray[np.int32]) -> Moments:
        """Of items' counts of human answers and judges' answers, in parts drawn once for all."""
        part = np.random.default_rng(0).permutation(len(given)) % N_PARTS
        sums = []
        for c, g in ((counts[part == b], given[part == b]) for b in range(N_PARTS)):
            (M, P), k, n = c.shape, g.shape[1], c.sum(axis=1)
            shares, x = c / n[:, None], np.eye(P)[g]
            scaled = c / (n * (n - 1))[:, None]
            # Σ over different humans of one item: (c c' − diag c) / n (n − 1)
            pairs = scaled.T @ c - np.diag(scaled.sum(axis=0))
            mixed = (x.reshape(M, k * P).T @ shares).reshape(k, P, P)
            agree = (g[:, :, None] == g[:, None, :]).sum(axis=0).astype(np.float64)
            sums.append((np.array(float(M)), shares.sum(axis=0), pairs, x.sum(axis=0), mixed, agree))
        return cls(*map(np.stack, zip(*sums, strict=True)))

    def summed(self, left_out: int | None = None) -> Moments:
        """All parts together, or all but one."""
        parts = [getattr(self, name) for name in self.__dataclass_fields__]
        return Moments(*(part.sum(axis=0) - (0.0 if left_out is None else part[left_out]) for part in parts))

    def correlations(self) -> Array:
        """(k, k): r."""
        human, judge = self.human / self.n, self.judge / self.n
        spread = self.pairs / self.n - np.outer(human, human)  # C(u, u)
        shared = self.mixed / self.n - judge[:, :, None] * human  # (k, P, P): C(x_i, u)
        # C(u, u)⁻¹ in the directions in which humans tell items apart more than chance would have it: two
        # humans without anything in common have covariances of about √(p_a p_b / n) by chance
        values, vectors = np.linalg.eigh((spread + spread.T) / 2)
        kept = values > NOISE * np.sqrt((human * (1 - human)).max() * human.max() / self.n)
        inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
        seen = np.einsum("iap,pq,jaq->ij", shared, inverse, shared)
        c = self.agree / self.n - judge @ judge.T - seen
        own = np.maximum(np.diag(c), 1e-9)
        r = np.clip(c / np.sqrt(own[:, None] * own[None, :]), -1.0, 1.0)
        np.fill_diagonal(r, 1.0)
        return np.asarray(r)


def votes_of(correlation: Array) -> float:
    """k² / Σ_ij r_ij; above k where judges differ more than independent ones would."""
    return float(len(correlation) ** 2 / max(correlation.sum(), 1e-9))


def grouped(correlation: Array) -> list[list[int]]:
    """Judges that err together: average linkage, joined while the mean correlation is at least 1/2."""
    groups = [[place] for place in range(len(correlation))]
    while len(groups) > 1:
        means = np.array([[correlation[np.ix_(g, h)].mean() for h in groups] for g in groups])
        np.fill_diagonal(means, -np.inf)
        first, second = sorted(np.unravel_index(int(means.argmax()), means.shape))
        if means[first, second] < TOGETHER:
            break
        groups[first] = sorted(groups[first] + groups.pop(second))
    return sorted(groups, key=lambda group: (-len(group), group[0]))


def vote_weights(correlation: Array) -> Array:
    """(k,): 1 / Σ_j max(r_ij, 0), in sum 1: copies share one vote, independent judges have one each."""
    weights = 1 / np.maximum(correlation, 0.0).sum(axis=1)
    return np.asarray(weights / weights.sum())


def panel_vote(answers: Answers, panel: Panel) -> Array:
    """(items, classes): the judges' vote in which a family of copies counts once; 0 where none answered."""
    votes = np.zeros((answers.annotations.n_items, answers.annotations.n_classes))
    for judge, weight in zip(panel.judges, panel.weights, strict=True):
        given = answers.answers_of(int(judge))
        known = np.flatnonzero(given >= 0)
        votes[known, given[known]] += weight
    sums = votes.sum(axis=1, keepdims=True)
    return np.asarray(votes / np.where(sums > 0, sums, 1.0))
