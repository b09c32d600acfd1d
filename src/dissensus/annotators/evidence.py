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


@dataclass(frozen=True)
class Accounts:
    """How well each kind of account explains every annotator's labels: logarithms of evidence, by draw."""

    looks: Array  # (T, N): a cluster of people who look, or ways of their own
    spam: Array  # (T, N)

    def even(self) -> Array:
        """(N,): P(spam | labels) if spam and looking were equally likely beforehand."""
        # of the draws, all but a quarter speak at least so much for spam
        odds = np.quantile(self.looks - self.spam, CAUTION, axis=0)
        return np.asarray(1 / (1 + np.exp(np.clip(odds, -700, 700))))

    def probability(self) -> Array:
        """(N,): P(spam | labels), the share of spammers learned from the whole crowd."""
        share = SPAM_PRIOR[0] / sum(SPAM_PRIOR)
        even = self.even()
        for _ in range(100):
            spam = share * even / (share * even + (1 - share) * (1 - even))
            # mean of a Beta(a, b) that has seen the expected counts: (a + Σ p) / (a + b + N)
            share = (SPAM_PRIOR[0] + spam.sum()) / (sum(SPAM_PRIOR) + len(spam))
        return np.asarray(share * even / (share * even + (1 - share) * (1 - even)))


def weigh(draws: Draws, labels: NDArray[np.int32], weights: Array, seed: int) -> Accounts:
    """The accounts of all annotators; ``labels`` (3, E) are codes of item, annotator and class."""
    N, P = draws.matrices.shape[1:3]
    # at most MOST_LABELS labels of each annotator, chosen by chance, sorted by annotator
    rng = np.random.default_rng([seed, 1 << 23])
    order = np.lexsort((rng.random(labels.shape[1]), labels[1]))
    who = labels[1][order]
    place = np.arange(len(who)) - np.searchsorted(who, who)
    item, annotator, label = labels[:, order[place < MOST_LABELS]].astype(np.intp)
    counts = np.bincount(labels[1].astype(np.intp) * P + labels[2], minlength=N * P).reshape(N, P)
    nu = (counts.sum(axis=0) + 1.0) / (counts.sum() + P)
    cells = max(len(item), N * draws.psi.shape[1], 1)
    n_draws = min(len(draws), int(np.clip(MOST_CELLS // cells, LEAST_DRAWS, MOST_DRAWS)))
    E = len(item)
    add = csr_array((np.ones(E), (annotator * P + label, np.arange(E))), shape=(N * P, E))
    looks, spam = [], []
    for t in np.unique(np.linspace(0, len(draws) - 1, n_draws).astype(int)):
        draw = _Draw.of(draws, int(t), item, annotator, label, weights, add)
        found = draw.evidence(nu)
        looks.append(found[0])
        spam.append(found[1])
    return Accounts(np.stack(looks), np.stack(spam))


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
class _Draw:
    """One draw, as the labels looked at see it; item clusters without items left out."""

    q: Array  # (E, K): the item's cluster as the others' labels have it
    cell: NDArray[np.intp]  # (E,): annotator P + label
    add: csr_array  # (N P, E): adds up the labels of each cell
    N: int
    answer: Array  # (K, P): 1 at the population's most common answer to the cluster
    prior: Array  # (L, P, K): Θ' of the clusters of annotators in use
    log_omega: Array  # (N, L): the cluster's share of the *other* annotators; −∞ where they are too few
    looks: NDArray[np.bool_]  # (L,): does the cluster tell anything of the items?

    @classmethod
    def of(
        cls,
        draws: Draws,
        t: int,
        item: NDArray[np.intp],
        annotator: NDArray[np.intp],
        label: NDArray[np.intp],
        weights: Array,
        add: csr_array,
    ) -> _Draw:
        """Divide every label out of what is believed of its item."""
        beliefs = draws.beliefs[t].astype(np.float64)
        used = np.flatnonzero(beliefs.sum(axis=0) >= 0.5)
        beliefs, lam = beliefs[:, used], draws.numbers[t, 2]
        N, P = draws.matrices.shape[1:3]
        cell = annotator * P + label
        b = beliefs[item]
        sizes = draws.sizes[t][:, used].astype(np.float64)[annotator]
        pi = draws.matrices[t][:, :, used].astype(np.float64).reshape(N * P, -1)[cell]
        without = np.maximum(pi * sizes - b, 0.01 * pi) / np.maximum(sizes - b, 0.01)
        own = draws.own[t][item, label].astype(np.float64)
        q = b / np.maximum((1 - lam) * without + lam * own[:, None], TINY) + TINY
        q /= q.sum(axis=1, keepdims=True)
        clusters = np.unique(draws.z[t])
        theta = draws.theta[t][np.ix_(used, clusters)].astype(np.float64)  # (K, L, P)
        phi = draws.phi[t][used].astype(np.float64)
        mixed = (1 - lam) * theta + lam * phi[:, None]
        mine = draws.z[t][:, None] == clusters  # (N, L)
        others = mine.sum(axis=0) - mine
        enough = max(min(FEWEST, N / 20), LEAST_SHARE * N)
        with np.errstate(divide="ignore"):
            log_omega = np.log(np.where(others >= enough, others, 0) / max(N - 1, 1))
        size = beliefs.mean(axis=0) / beliefs.mean(axis=0).sum()
        kind = kinds_of(mixed[:, mine.sum(axis=0) >= FEWEST], size)  # (K, kinds)
        q, size = q @ kind, size @ kind
        share = (kind * (beliefs.mean(axis=0)[:, None])) / np.maximum(beliefs.mean(axis=0) @ kind, TINY)
        mixed = np.einsum("kj,klp->jlp", share, mixed)
        top = (share.T @ draws.population[t][used]).argmax(axis=1)
        members = np.bincount(draws.z[t], weights, minlength=draws.omega.shape[1])[clusters]
        load = np.bincount(draws.z[t][annotator], minlength=draws.omega.shape[1])[clusters]
        looks = informative(mixed, size, members, load)
        prior = np.maximum(mixed.transpose(1, 2, 0), 1e-4)
        return cls(q, cell, add, N, np.eye(P)[top], prior, log_omega, looks)

    def evidence(self, nu: Array) -> tuple[Array, Array]:
        """(N,) each: log evidence of people who look, and of people who do not."""
        P = len(nu)
        labels = np.asarray(self.add.sum(axis=1), dtype=np.float64).reshape(self.N, P)
        own = self.bound(self.q @ self.answer, np.tile(nu[:, None], (1, P)), (P,))
        enough = np.flatnonzero(np.isfinite(self.log_omega).any(axis=0))  # members, for somebody
        bounds = {i: self.bound(self.q, self.prior[i]) for i in enough}
        kept = np.log(1 - OWN_WAYS)
        looks = [(np.full(self.N, np.log(OWN_WAYS)), own)]
        looks += [(kept + self.log_omega[:, i], one) for i, one in bounds.items() if self.looks[i]]
        blind = [(np.zeros(self.N), log_spam(labels, nu))]
        blind += [(self.log_omega[:, i], one) for i, one in bounds.items() if not self.looks[i]]
        sums = []
        for accounts in (looks, blind):  # (log w, log P) each: log Σ_a w_a P_a / Σ_a w_a
            weights, evidence = (np.stack(part) for part in zip(*accounts, strict=True))
            sums.append(np.asarray(logsumexp(weights + evidence, axis=0) - logsumexp(weights, axis=0)))
        return sums[0], sums[1]

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
        entropy = np.bincount(self.cell // P, spread, minlength=self.N)
        parts = [log_rising_ratio(counts, theta * c, axis=1).sum(axis=1) for c in loyal]
        return np.asarray(entropy + logsumexp(parts, axis=0) - np.log(len(parts)))


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
