"""Evidence for and against spam: do an annotator's labels depend on the items, and how?

Each draw of a fitted :class:`~dissensus.HPGM` assigns items to clusters and says how each cluster of
annotators answers about them. For every annotator n and draw, three explanations of n's labels are compared:

* spam: the labels follow class shares that do not depend on the item (the crowd's shares, equal shares, or
  shares of the annotator);
* an annotator cluster l: π_nk ~ Dir(c Θ_kl) as in the model, for several values of c;
* an individual confusion matrix: π_nk ~ Dir(ν P), where ν are the class shares and k is the population's
  most common answer instead of the item cluster. (Item clusters may split by the answers of one annotator;
  the most common answers do not.)

The cluster of an item was learned from n's label too, which would make every annotator seem to follow the
items. That label is therefore divided out first: with b_mk = P(w_m = k | all labels),

    q_ek ∝ b_mk / [(1 − λ) π_nk(y_e) + λ ρ_m(y_e)]      P(item cluster | all *other* labels).

The evidence of an explanation with π_nk ~ Dir(α_k), w_e ~ q_e and y_e ~ π_{n, w_e} is bounded below by

    log P(y_n) ≥ Σ_e Σ_k c_ek log(q_ek / c_ek) + Σ_k log B(α_k + C_k) / B(α_k),   C_kp = Σ_{e: y_e = p} c_ek,

for any responsibilities c; here c_ek ∝ q_ek E π_nk(y_e), iterated a few times.

A cluster that answers alike whatever the item (or whose members copy one another, so that their labels do not
predict anyone else's) counts as spam.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp, xlogy

from dissensus.compiled import Loop
from dissensus.models.hpgm.posterior import Draws
from dissensus.numerics import Array, Indices, Mask

MIN_EVIDENCE_DRAWS, MAX_EVIDENCE_DRAWS = 12, 48  # posterior draws used
LABELS_PER_ANNOTATOR = 200  # labels examined per annotator; more change little
MAX_EVIDENCE_CELLS = 500_000  # labels, or annotators × item clusters, times draws
CLUSTER_PRIOR_STRENGTHS = (2.0, 10.0, 50.0)  # pseudo-labels c of a cluster's answers
EVIDENCE_QUANTILE = 0.75  # over draws, of the log evidence against spam
SAME_KIND_DISTANCE = 0.15  # total variation up to which two item clusters get the same answers
BOUND_ITERATIONS = 3  # updates of the responsibilities
MIN_RELATIVE_INFORMATION = 0.2  # of the crowd's median information; a cluster below it is uninformative
MIN_ENTROPY_SHARE = 0.02  # of the labels' entropy; a cluster below it is uninformative
MIN_PREDICTED_SHARE = 0.12  # of what the other clusters' labels tell about one another
MIN_CLUSTER_MEMBERS, MIN_CLUSTER_SHARE = 3, 0.02  # other members that an explaining cluster needs
INDIVIDUAL_WEIGHT = 0.02  # prior weight of an individual confusion matrix among the non-spam explanations
SPAM_SHARE_PRIOR = (1.0, 9.0)  # Beta prior of the share of spammers
MIN_MASS = 1e-12

evidence_bounds = Loop(
    "evidence_bounds", "N E P K S", ends="int64 N", label="int32 E", q="float64 E K", theta="float64 P K",
    sizes="float64 K", strengths="float64 S", base="float64 S P K", base_sizes="float64 S K",
    means="float64 P K", counts="float64 P K", totals="float64 K", bounds="float64 S N", strength="float",
    rounds="float",
)  # fmt: skip


def spam_at_even_odds(log_careful: Array, log_spam: Array) -> Array:
    """Return (N,): P(spam | labels) for prior odds of 1, from the log evidence (T, N) of both."""
    # conservative: a quantile over draws of the evidence against spam, instead of its mean
    odds = np.quantile(log_careful - log_spam, EVIDENCE_QUANTILE, axis=0)
    return np.asarray(1 / (1 + np.exp(np.clip(odds, -700, 700))))


def spam_probability(even: Array) -> Array:
    """Return (N,): P(spam | labels), with the share of spammers learned; ``even`` is for prior odds of 1."""
    share = SPAM_SHARE_PRIOR[0] / sum(SPAM_SHARE_PRIOR)
    for _ in range(101):
        spam = share * even / (share * even + (1 - share) * (1 - even))
        # posterior mean of the Beta given the expected counts: (a + Σ p) / (a + b + N)
        share = (SPAM_SHARE_PRIOR[0] + spam.sum()) / (sum(SPAM_SHARE_PRIOR) + len(spam))
    return np.asarray(spam)


def spam_evidence(draws: Draws, labels: NDArray[np.int32], weights: Array, seed: int) -> Array:
    """Return (N,): P(spam | labels) for prior odds of 1; ``labels`` (3, E): item, annotator, class."""
    N, P = draws.matrices.shape[1:3]
    # a random subset of each annotator's labels, sorted by annotator
    rng = np.random.default_rng([seed, 1 << 23])
    order = np.lexsort((rng.random(labels.shape[1]), labels[1]))
    sorted_annotators = labels[1][order]
    rank = np.arange(len(sorted_annotators)) - np.searchsorted(sorted_annotators, sorted_annotators)
    item, annotator, label = labels[:, order[rank < LABELS_PER_ANNOTATOR]].astype(np.intp)
    sample = LabelSample(item, annotator, label, N, P)
    counts = np.bincount(labels[1].astype(np.intp) * P + labels[2], minlength=N * P).reshape(N, P)
    nu = (counts.sum(axis=0) + 1.0) / (counts.sum() + P)
    cells = max(len(sample.item), N * draws.psi.shape[1], 1)
    n_draws = int(np.clip(MAX_EVIDENCE_CELLS // cells, MIN_EVIDENCE_DRAWS, MAX_EVIDENCE_DRAWS))
    chosen = np.unique(np.linspace(0, len(draws) - 1, min(len(draws), n_draws)).astype(int))
    careful, spam = zip(*(draw_evidence(draws, int(t), sample, weights, nu) for t in chosen), strict=True)
    return spam_at_even_odds(np.stack(careful), np.stack(spam))


def log_item_free(counts: Array, nu: Array) -> Array:
    """Return (N,): log of the mean of Π ν^n, Π P^−n, DM(n; P ν) and DM(n; ν): shares that ignore the item."""
    P = len(nu)
    fixed = [xlogy(counts, nu).sum(axis=1), -counts.sum(axis=1) * np.log(P)]
    learned = [log_beta_ratio(counts, P * nu), log_beta_ratio(counts, nu)]
    return np.asarray(logsumexp(fixed + learned, axis=0) - np.log(4))


def log_beta_ratio(counts: Array, alpha: Array) -> Array:
    """Return (N,): log B(α + n) / B(α), with B the multivariate beta function, for counts (N, P)."""
    total = alpha.sum()
    rising = gammaln(alpha + counts).sum(axis=1) - gammaln(alpha).sum()
    return np.asarray(rising + gammaln(total) - gammaln(total + counts.sum(axis=1)))


@dataclass(frozen=True)
class LabelSample:
    """Labels examined, as codes of item, annotator and class, (E,) each; sorted by annotator."""

    item: Indices
    annotator: Indices
    label: Indices
    N: int  # annotators
    P: int  # classes

    @cached_property
    def counts(self) -> Array:
        """(N, P): number of labels of each class by each annotator."""
        cell = self.annotator * self.P + self.label
        return np.bincount(cell, minlength=self.N * self.P).astype(np.float64).reshape(self.N, self.P)

    def bound(self, q: Array, theta: Array, strengths: tuple[float, ...] = CLUSTER_PRIOR_STRENGTHS) -> Array:
        """Return (N,): the bound on log P(labels) for item kinds ``q`` (E, K), averaged over ``strengths`` c.

        The answers have the prior π_nk ~ Dir(c Θ_k), with ``theta`` (P, K).
        """
        theta, values = np.ascontiguousarray(theta, np.float64), np.array(strengths, dtype=np.float64)
        sizes = theta.sum(axis=0)
        bounds = np.empty((len(values), self.N))
        evidence_bounds(
            ends=self.counts.sum(axis=1).astype(np.int64).cumsum(), label=self.label.astype(np.int32),
            q=np.ascontiguousarray(q, np.float64), theta=theta, sizes=sizes, strengths=values,
            base=gammaln(np.multiply.outer(values, theta)), base_sizes=gammaln(np.outer(values, sizes)),
            bounds=bounds, strength=float(np.median(values)), rounds=float(BOUND_ITERATIONS),
            means=np.empty_like(theta), counts=np.empty_like(theta), totals=np.empty_like(sizes),
        )  # fmt: skip
        return np.asarray(logsumexp(bounds, axis=0) - np.log(len(bounds)))


def draw_evidence(draws: Draws, t: int, sample: LabelSample, weights: Array, nu: Array) -> list[Array]:
    """Return the log evidence of careful annotators and of spam in draw ``t``, (N,) each."""
    beliefs = draws.beliefs[t].astype(np.float64)
    used = np.flatnonzero(beliefs.sum(axis=0) >= 0.5)  # item clusters that have items
    beliefs, lam, z, N, P = beliefs[:, used], draws.numbers[t, 2], draws.z[t], sample.N, sample.P
    q = _beliefs_without_label(draws, t, sample, beliefs, used)  # (E, K)
    clusters = np.unique(z)
    theta = draws.theta[t][np.ix_(used, clusters)].astype(np.float64)  # (K, L, P)
    mixed = (1 - lam) * theta + lam * draws.phi[t][used].astype(np.float64)[:, None]
    is_member = z[:, None] == clusters  # (N, L)
    others = is_member.sum(axis=0) - is_member
    min_others = max(min(MIN_CLUSTER_MEMBERS, N / 20), MIN_CLUSTER_SHARE * N)
    with np.errstate(divide="ignore"):
        # (N, L): log of each cluster's share of the other annotators; −∞ for clusters that are too small
        log_omega = np.log(np.where(others >= min_others, others, 0) / max(N - 1, 1))
    mean = beliefs.mean(axis=0)
    large = is_member.sum(axis=0) >= MIN_CLUSTER_MEMBERS
    kind = merge_item_clusters(mixed[:, large], mean / mean.sum())  # (K, kinds)
    q, size = q @ kind, mean / mean.sum() @ kind
    share = (kind * (mean[:, None])) / np.maximum(mean @ kind, MIN_MASS)
    mixed = np.einsum("kj,klp->jlp", share, mixed)
    # one-hot: the population's most common answer to each kind of item
    answer = np.eye(P)[(share.T @ draws.population[t][used]).argmax(axis=1)]
    members = np.bincount(z, weights, minlength=draws.omega.shape[1])[clusters]
    n_labels = np.bincount(z[sample.annotator], minlength=draws.omega.shape[1])[clusters]
    is_informative = informative_clusters(mixed, size, members, n_labels)
    prior = np.maximum(mixed.transpose(1, 2, 0), 1e-4)  # (L, P, kinds)
    # explanations as pairs (log w, log P): an individual matrix, informative clusters; and spam
    individual = sample.bound(q @ answer, np.tile(nu[:, None], (1, P)), (P,))
    careful = [(np.full(N, np.log(INDIVIDUAL_WEIGHT)), individual)]
    spam = [(np.zeros(N), log_item_free(sample.counts, nu))]
    for i in np.flatnonzero(np.isfinite(log_omega).any(axis=0)):
        log_weight = np.log(1 - INDIVIDUAL_WEIGHT) if is_informative[i] else 0.0
        explanation = log_weight + log_omega[:, i], sample.bound(q, prior[i])
        (careful if is_informative[i] else spam).append(explanation)
    sums = []
    for explanations in (careful, spam):  # log Σ_a w_a P_a / Σ_a w_a
        w, evidence = (np.stack(part) for part in zip(*explanations, strict=True))
        sums.append(np.asarray(logsumexp(w + evidence, axis=0) - logsumexp(w, axis=0)))
    return sums


def _beliefs_without_label(draws: Draws, t: int, sample: LabelSample, beliefs: Array, used: Indices) -> Array:
    """Return q (E, K): P(cluster of the label's item) with the label itself divided out."""
    b, lam = beliefs[sample.item], draws.numbers[t, 2]
    sizes = draws.sizes[t][:, used].astype(np.float64)[sample.annotator]
    pi = draws.matrices[t][sample.annotator, sample.label][:, used].astype(np.float64)
    without = np.maximum(pi * sizes - b, 0.01 * pi) / np.maximum(sizes - b, 0.01)
    item_shares = draws.rho[t][sample.item, sample.label].astype(np.float64)
    q = b / np.maximum((1 - lam) * without + lam * item_shares[:, None], MIN_MASS) + MIN_MASS
    return np.asarray(q / q.sum(axis=1, keepdims=True))


def merge_item_clusters(answers: Array, size: Array) -> Array:
    """Return a 0/1 matrix (K, kinds) that merges item clusters with like answers of all annotator clusters.

    ``answers`` (K, L, P), ``size`` (K,). Item clusters may split by the answers of a single annotator; such a
    split says nothing about the items.
    """
    representatives = list[int]()  # the largest cluster of each kind
    kind = np.zeros(len(size), dtype=np.intp)
    for k in np.argsort(-size, kind="stable"):
        # total variation distance, maximised over the annotator clusters
        gaps = [np.abs(answers[k] - answers[j]).sum(axis=1).max(initial=0.0) / 2 for j in representatives]
        if not answers.shape[1] or min(gaps, default=np.inf) > SAME_KIND_DISTANCE:
            representatives.append(int(k))
            gaps.append(-1.0)
        kind[k] = np.argmin(gaps)
    return np.eye(len(representatives))[kind]


def informative_clusters(theta: Array, size: Array, members: Array, n_labels: Indices) -> Mask:
    """Return (L,): annotator clusters, with answers ``theta`` (K, L, P), whose labels depend on the items.

    ``size`` (K,) are shares of the items, ``members`` (L,) cluster weights, ``n_labels`` (L,) their labels.
    """
    marginal = np.einsum("k,klp->lp", size, theta)
    ratio = np.log(np.maximum(theta, MIN_MASS) / np.maximum(marginal, MIN_MASS))
    information = np.einsum("k,klp,klp->l", size, theta, ratio)  # I(label; item cluster)
    # Θ estimated from n labels overstates it by (K − 1)(P − 1) / 2n, and drawing Θ by as much again
    kinds = 1 / max((size**2).sum(), MIN_MASS)  # effective number of item clusters
    information = np.maximum(information - (kinds - 1) * (theta.shape[2] - 1) / np.maximum(n_labels, 1), 0)
    order = np.argsort(information)
    share = np.cumsum(members[order])
    median = information[order][np.searchsorted(share, share[-1] / 2)]
    overall = members @ marginal / max(members.sum(), MIN_MASS)
    entropy = -(overall * np.log(np.maximum(overall, MIN_MASS))).sum()
    enough = information >= max(MIN_RELATIVE_INFORMATION * median, MIN_ENTROPY_SHARE * entropy)
    return np.asarray(enough & (predicted_share(theta, size, members) >= MIN_PREDICTED_SHARE))


def predicted_share(theta: Array, size: Array, members: Array) -> Array:
    """Return (L,): information of a cluster's label about another's, relative to that among the others.

    Infinite for a cluster of at least half the weight of the largest: it is one of the crowd's views.
    """
    ratios = np.full(len(members), np.inf)
    for i in np.flatnonzero(2 * members < members.max()):
        rest = np.where(np.arange(len(members)) == i, 0.0, members)
        others = np.einsum("l,klp->kp", rest / rest.sum(), theta)
        across = mutual_information(np.einsum("k,kp,kq->pq", size, theta[:, i], others))
        among_others = mutual_information(np.einsum("k,kp,kq->pq", size, others, others))
        ratios[i] = across / max(among_others, MIN_MASS)
    return ratios


def mutual_information(joint: Array) -> float:
    """Return Σ_pq J_pq log J_pq / (J_p J_q) of a joint distribution."""
    independent = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    return float((joint * np.log(np.maximum(joint, MIN_MASS) / np.maximum(independent, MIN_MASS))).sum())
