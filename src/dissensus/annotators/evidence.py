"""What an annotator's labels say of the annotator: do they depend on the items, and in whose way?

The draws of a fitted :class:`~dissensus.HPGM` know which cluster each item may be in, and how each cluster of
annotators answers about it. Of every annotator n three kinds of accounts are weighed, draw after draw:

* spam: the labels follow shares that do not depend on the item: the crowd's, all classes alike, or shares of
  their own;
* a cluster l of annotators: π_nk ~ Dir(c Θ_kl), as in the model, c being any of some numbers;
* ways of their own: π_nk ~ Dir(ν P), ν the shares of the classes, where k is no cluster of items but the
  population's most common answer to it. (Clusters may split by what one annotator says, answers do not.)

An item's cluster was learned from n's own label too, and by that everybody seems to follow the items. So the
label is divided out first: with b_mk = P(w_m = k | all labels),

    q_ek ∝ b_mk / [(1 − λ) π_nk(y_e) + λ ρ_m(y_e)]         what all *others* say of the item of label e.

The evidence of an account with ways π_nk ~ Dir(α_k), w_e ~ q_e and y_e ~ π_{n, w_e} is bounded below by

    log P(y_n) ≥ Σ_e Σ_k c_ek log(q_ek / c_ek) + Σ_k log B(α_k + C_k) / B(α_k),   C_kp = Σ_{e: y_e = p} c_ek,

c any responsibilities: here, after a few steps, c_ek ∝ q_ek E π_nk(y_e).

A cluster that answers alike whatever the item (or whose members repeat one another, and tell nothing of what
anybody else sees) is no account of somebody who looks: it counts as spam.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import gammaln, logsumexp, xlogy

from dissensus.models.hpgm.posterior import Draws
from dissensus.numerics import Array

LEAST_DRAWS, MOST_DRAWS = 6, 12  # whole draws that are asked
MOST_LABELS = 200  # labels of one annotator that are looked at: more say the same again
MOST_CELLS = 250_000  # labels, or annotators × clusters of items, times draws
LOYAL = (2.0, 10.0, 50.0)  # labels that the ways of one's cluster are worth against one's own
CAUTION = 0.75  # quantile, over the draws, of what speaks against spam
SAME_KIND = 0.15  # total variation up to which answers about two clusters of items are alike
STEPS = 3  # of the responsibilities
NO_INFORMATION = 0.2  # of the crowd's median information: less is none
LEAST_INFORMATION = 0.02  # of the entropy of the labels: a crowd that tells less tells nothing
SHARED = 0.12  # of what the others tell of one another: a cluster that tells less of them is idle
FEWEST, LEAST_SHARE = 3, 0.02  # others in a cluster, and their share, for it to be an account of one more
OWN_WAYS = 0.02  # weight of ways of one's own among the accounts of people who look
SPAM_PRIOR = (1.0, 9.0)  # Beta of the share of spammers
TINY = 1e-12


def at_even_odds(looks: Array, spam: Array) -> Array:
    """(N,): P(spam | labels) were both as likely beforehand, from log evidence (T, N) of both."""
    # of the draws, all but a quarter speak at least so much for spam
    odds = np.quantile(looks - spam, CAUTION, axis=0)
    return np.asarray(1 / (1 + np.exp(np.clip(odds, -700, 700))))


def spam_probability(even: Array) -> Array:
    """(N,): P(spam | labels), the share of spammers learned from the whole crowd; ``even``: at even odds."""
    share = SPAM_PRIOR[0] / sum(SPAM_PRIOR)
    for _ in range(100):
        spam = share * even / (share * even + (1 - share) * (1 - even))
        # mean of a Beta(a, b) that has seen the expected counts: (a + Σ p) / (a + b + N)
        share = (SPAM_PRIOR[0] + spam.sum()) / (sum(SPAM_PRIOR) + len(spam))
    return np.asarray(share * even / (share * even + (1 - share) * (1 - even)))


def weigh(draws: Draws, labels: NDArray[np.int32], weights: Array, seed: int) -> Array:
    """(N,): P(spam | labels) at even odds; ``labels`` (3, E) are codes of item, annotator and class."""
    N, P = draws.matrices.shape[1:3]
    # at most MOST_LABELS labels of each annotator, chosen by chance, sorted by annotator
    rng = np.random.default_rng([seed, 1 << 23])
    order = np.lexsort((rng.random(labels.shape[1]), labels[1]))
    who = labels[1][order]
    place = np.arange(len(who)) - np.searchsorted(who, who)
    item, annotator, label = labels[:, order[place < MOST_LABELS]].astype(np.intp)
    seen = LabelSample(item, annotator, label, N, P)
    counts = np.bincount(labels[1].astype(np.intp) * P + labels[2], minlength=N * P).reshape(N, P)
    nu = (counts.sum(axis=0) + 1.0) / (counts.sum() + P)
    cells = max(len(seen.item), N * draws.psi.shape[1], 1)
    n_draws = min(len(draws), int(np.clip(MOST_CELLS // cells, LEAST_DRAWS, MOST_DRAWS)))
    chosen = np.unique(np.linspace(0, len(draws) - 1, n_draws).astype(int))
    looks, spam = zip(*(draw_evidence(draws, int(t), seen, weights, nu) for t in chosen), strict=True)
    return at_even_odds(np.stack(looks), np.stack(spam))


def log_spam(counts: Array, nu: Array) -> Array:
    """(N,): log of the mean of Π ν^n, Π P^−n, DM(n; P ν) and DM(n; ν): shares whatever the item."""
    P = len(nu)
    fixed = [xlogy(counts, nu).sum(axis=1), -counts.sum(axis=1) * np.log(P)]
    own = [log_rising_ratio(counts, P * nu, axis=1), log_rising_ratio(counts, nu, axis=1)]
    return np.asarray(logsumexp(fixed + own, axis=0) - np.log(4))


def log_rising_ratio(counts: Array, alpha: Array, axis: int) -> Array:
    """log B(α + n) / B(α), B the multivariate beta function along ``axis``."""
    alpha = alpha.reshape((1,) * (counts.ndim - alpha.ndim) + alpha.shape)
    total, n = alpha.sum(axis=axis), counts.sum(axis=axis)
    rising = gammaln(alpha + counts).sum(axis=axis) - gammaln(alpha).sum(axis=axis)
    return np.asarray(rising + gammaln(total) - gammaln(total + n))


@dataclass(frozen=True)
class LabelSample:
    """The labels looked at, as codes of item, annotator and class, (E,) each."""

    item: NDArray[np.intp]
    annotator: NDArray[np.intp]
    label: NDArray[np.intp]
    N: int  # annotators
    P: int  # classes

    @cached_property
    def cell(self) -> NDArray[np.intp]:
        """(E,): annotator P + label."""
        return self.annotator * self.P + self.label

    @cached_property
    def add(self) -> csr_array:
        """(N P, E): adds up the labels of each cell."""
        E = len(self.cell)
        return csr_array((np.ones(E), (self.cell, np.arange(E))), shape=(self.N * self.P, E))

    def bound(self, q: Array, theta: Array, loyal: tuple[float, ...] = LOYAL) -> Array:
        """(N,): the bound on log P(labels), items being of kinds ``q``, π_nk ~ Dir(c Θ_k), c of ``loyal``."""
        P, K = theta.shape
        alpha = theta * np.median(loyal)
        counts = np.zeros((self.N, P, K))
        for _ in range(STEPS):
            means = alpha + counts
            means /= means.sum(axis=1, keepdims=True)
            c = q * means.reshape(-1, K)[self.cell]
            c /= np.maximum(c.sum(axis=1, keepdims=True), 1e-300)
            counts = np.asarray(self.add @ c).reshape(self.N, P, K)
        spread = (c * np.log(np.maximum(q, 1e-300) / np.maximum(c, 1e-300))).sum(axis=1)
        entropy = np.bincount(self.annotator, spread, minlength=self.N)
        parts = [log_rising_ratio(counts, theta * c, axis=1).sum(axis=1) for c in loyal]
        return np.asarray(entropy + logsumexp(parts, axis=0) - np.log(len(parts)))


def draw_evidence(draws: Draws, t: int, seen: LabelSample, weights: Array, nu: Array) -> tuple[Array, Array]:
    """(N,) each: log evidence, in draw ``t``, of people who look and of people who do not.

    Item clusters without items are left out, and every label is divided out of what is believed of its item.
    """
    beliefs = draws.beliefs[t].astype(np.float64)
    used = np.flatnonzero(beliefs.sum(axis=0) >= 0.5)
    beliefs, lam, z, N, P = beliefs[:, used], draws.numbers[t, 2], draws.z[t], seen.N, seen.P
    b = beliefs[seen.item]
    sizes = draws.sizes[t][:, used].astype(np.float64)[seen.annotator]
    pi = draws.matrices[t][:, :, used].astype(np.float64).reshape(N * P, -1)[seen.cell]
    without = np.maximum(pi * sizes - b, 0.01 * pi) / np.maximum(sizes - b, 0.01)
    own = draws.own[t][seen.item, seen.label].astype(np.float64)
    q = b / np.maximum((1 - lam) * without + lam * own[:, None], TINY) + TINY
    q /= q.sum(axis=1, keepdims=True)  # (E, K): the item's cluster as the others' labels have it
    clusters = np.unique(z)
    theta = draws.theta[t][np.ix_(used, clusters)].astype(np.float64)  # (K, L, P)
    phi = draws.phi[t][used].astype(np.float64)
    mixed = (1 - lam) * theta + lam * phi[:, None]
    mine = z[:, None] == clusters  # (N, L)
    others = mine.sum(axis=0) - mine
    enough = max(min(FEWEST, N / 20), LEAST_SHARE * N)
    with np.errstate(
        divide="ignore"
    ):  # (N, L): each cluster's share of the others; −∞ where they are too few
        log_omega = np.log(np.where(others >= enough, others, 0) / max(N - 1, 1))
    mean = beliefs.mean(axis=0)
    kind = kinds_of(mixed[:, mine.sum(axis=0) >= FEWEST], mean / mean.sum())  # (K, kinds)
    q, size = q @ kind, mean / mean.sum() @ kind
    share = (kind * (mean[:, None])) / np.maximum(mean @ kind, TINY)
    mixed = np.einsum("kj,klp->jlp", share, mixed)
    # 1 at the population's most common answer to each kind
    answer = np.eye(P)[(share.T @ draws.population[t][used]).argmax(axis=1)]
    members = np.bincount(z, weights, minlength=draws.omega.shape[1])[clusters]
    load = np.bincount(z[seen.annotator], minlength=draws.omega.shape[1])[clusters]
    tells = informative(mixed, size, members, load)
    prior = np.maximum(mixed.transpose(1, 2, 0), 1e-4)  # (L, P, kinds)
    labels = np.asarray(seen.add.sum(axis=1), dtype=np.float64).reshape(N, P)
    # accounts are (log w, log P); who looks has ways of their own, or those of an informative cluster
    looks = [(np.full(N, np.log(OWN_WAYS)), seen.bound(q @ answer, np.tile(nu[:, None], (1, P)), (P,)))]
    blind = [(np.zeros(N), log_spam(labels, nu))]
    for i in np.flatnonzero(np.isfinite(log_omega).any(axis=0)):  # clusters with members, for somebody
        kept = np.log(1 - OWN_WAYS) if tells[i] else 0.0
        (looks if tells[i] else blind).append((kept + log_omega[:, i], seen.bound(q, prior[i])))
    sums = []
    for accounts in (looks, blind):  # log Σ_a w_a P_a / Σ_a w_a
        w, evidence = (np.stack(part) for part in zip(*accounts, strict=True))
        sums.append(np.asarray(logsumexp(w + evidence, axis=0) - logsumexp(w, axis=0)))
    return sums[0], sums[1]


def kinds_of(answers: Array, size: Array) -> Array:
    """(K, kinds), 0 or 1: clusters of items about which larger clusters of annotators answer alike are one.

    ``answers`` (K, L, P), ``size`` (K,). Clusters of items may split by what a single annotator says of them;
    such a split says nothing of the items.
    """
    chosen = list[int]()  # the largest cluster of each kind
    kind = np.zeros(len(size), dtype=np.intp)
    for k in np.argsort(-size, kind="stable"):
        # total variation, at most over the clusters of annotators
        gaps = [np.abs(answers[k] - answers[j]).sum(axis=1).max(initial=0.0) / 2 for j in chosen]
        if not answers.shape[1] or not gaps or min(gaps) > SAME_KIND:
            chosen.append(int(k))
            gaps.append(-1.0)
        kind[k] = int(np.argmin(gaps)) if gaps else 0
    return np.eye(len(chosen))[kind]


def informative(theta: Array, size: Array, members: Array, load: NDArray[np.intp]) -> NDArray[np.bool_]:
    """(L,): which clusters of annotators, of answers ``theta`` (K, L, P), tell anything of the items.

    ``size`` (K,) are the items' shares, ``members`` (L,) how much each cluster counts, ``load`` its labels.
    """
    alone = np.einsum("k,klp->lp", size, theta)
    ratio = np.log(np.maximum(theta, TINY) / np.maximum(alone, TINY))
    told = np.einsum("k,klp,klp->l", size, theta, ratio)  # I(label; item cluster)
    # drawn from n labels, Θ seems to tell (K − 1)(P − 1) / 2n too much, and as much again by being drawn
    kinds = 1 / (size**2).sum()  # clusters of items, by their sizes
    told = np.maximum(told - (kinds - 1) * (theta.shape[2] - 1) / np.maximum(load, 1), 0)
    order = np.argsort(told)
    share = np.cumsum(members[order])
    median = told[order][np.searchsorted(share, share[-1] / 2)]
    everybody = members @ alone / max(members.sum(), TINY)
    entropy = -(everybody * np.log(np.maximum(everybody, TINY))).sum()
    enough = told >= max(NO_INFORMATION * median, LEAST_INFORMATION * entropy)
    return np.asarray(enough & (shared(theta, size, members) >= SHARED))


def shared(theta: Array, size: Array, members: Array) -> Array:
    """(L,): what a cluster's label tells of another's label, over what the others tell of one another.

    A cluster that has half the weight of the largest or more is one of the crowd's views: infinite.
    """
    found = np.full(len(members), np.inf)
    for i in np.flatnonzero(2 * members < members.max()):
        rest = np.where(np.arange(len(members)) == i, 0.0, members)
        others = np.einsum("l,klp->kp", rest / rest.sum(), theta)
        theirs = mutual_information(np.einsum("k,kp,kq->pq", size, theta[:, i], others))
        usual = mutual_information(np.einsum("k,kp,kq->pq", size, others, others))
        found[i] = theirs / max(usual, TINY)
    return found


def mutual_information(joint: Array) -> float:
    """Σ_pq J_pq log J_pq / (J_p J_q) of a table of chances."""
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    return float((joint * np.log(np.maximum(joint, TINY) / np.maximum(apart, TINY))).sum())
