"""What an annotator's labels tell of the items, whether or not they agree with the others.

An annotator who calls every cat a dog and every dog a cat agrees with nobody and is perfectly informative;
one who draws labels from a hat agrees with many and tells nothing. Both questions are put to the same table:
for annotator a, J_a[c, t] is how often a said c where the consensus was t, a consensus of several classes
counting in parts.

The consensus is by default the other annotators' labels on the item. A given one, (items, classes), is taken
as it stands; where it was made with the annotator's own label in it, it flatters those with few co-workers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, diags_array
from scipy.special import expit, gammaincc, gammaln, logsumexp, rel_entr, xlogy

from dissensus.errors import DataError, bad_parameter
from dissensus.evaluation.agreement import LabelTable, Pairs, pairs_in_pieces, shares
from dissensus.numerics import Array

_LOYAL = (1.0, 3.0, 10.0, 30.0, 100.0)  # labels that the crowd's ways are worth against an annotator's own
_RARE = 0.02  # share of annotators who make sense in a way that is not the crowd's
_ROUNDS = 20


class Confusion(NamedTuple):
    """Labels against consensus, annotator by annotator."""

    joint: Array  # (annotators, classes, classes) J_a[label, consensus]
    squares: Array  # (annotators, classes) Σ over a's labels of q_t², q the consensus


def information_per_label(
    item: LabelTable | ArrayLike,
    annotator: ArrayLike | None = None,
    label: ArrayLike | None = None,
    *,
    consensus: ArrayLike | None = None,
) -> Array:
    """For each annotator, the mutual information of label and consensus, in nats per label.

    Few labels make any table look informative: n labels drawn from a hat show about
    (R − 1) Σ_t Var(q_t)/r_t / 2(n − 1) nats, R the classes used and r the mean of the consensus q. (With q
    one class an item this is the Miller–Madow term.) That is taken off, and what is left is shrunk towards
    zero the more, the less the labels fix it. NaN where no label can be compared.
    """
    return _information(_confusion(pairs_in_pieces(item, annotator, label), consensus))


def agreement_and_information(annotations: LabelTable) -> tuple[Array, Array]:
    """``agreement_with_others`` and ``information_per_label`` in one pass over the labels."""
    table = _confusion(pairs_in_pieces(annotations), None)
    # The others' shares of an item sum to one, so J_a sums to a's labels that can be compared.
    agreed = np.einsum("acc->a", table.joint)
    return shares(agreed, table.joint.sum(axis=(1, 2))), _information(table)


def _information(table: Confusion) -> Array:
    """Mutual information of every annotator's table, in nats a label, drawn to zero by its noise."""
    n = table.joint.sum(axis=(1, 2))
    seen = n > 0
    information = np.full(n.size, np.nan)
    if seen.any():
        found, bias, degrees = _mutual_information(Confusion(table.joint[seen], table.squares[seen]))
        information[seen] = _shrunk(found - bias, 2 * bias**2 / degrees, n[seen])
    return information


def _mutual_information(table: Confusion) -> tuple[Array, Array, Array]:
    """Plug-in mutual information of each annotator's table, and what labels from a hat would show.

    Those would show about ``bias`` · χ²/degrees, χ² with ``degrees`` degrees of freedom.
    """
    n = table.joint.sum(axis=(1, 2))
    p = table.joint.sum(axis=2) / n[:, None]  # annotators, labels
    r = table.joint.sum(axis=1) / n[:, None]  # annotators, consensus
    # I = Σ_ct J_ct log(J_ct / p_c r_t)
    found: Array = rel_entr(table.joint / n[:, None, None], p[:, :, None] * r[:, None, :]).sum(axis=(1, 2))
    # Over all ways of dealing the labels to the items Var(J_ct) = p_c (1 − p_c) Var(q_t) / (n − 1),
    # and to second order I = ½ Σ_ct (J_ct − p_c r_t)² / p_c r_t: E I = (R − 1) Σ_t Var(q_t)/r_t / 2(n − 1).
    spread = np.maximum(table.squares / n[:, None] - r**2, 0)
    uneven = np.divide(spread, r, out=np.zeros_like(r), where=r > 0).sum(axis=1)
    labels, classes = (p > 0).sum(axis=1) - 1, (r > 0).sum(axis=1) - 1
    bias = labels * uneven / (2 * np.maximum(n - 1, 1))
    return found, bias, np.maximum(labels * classes, 1).astype(np.float64)


def _shrunk(estimates: Array, variance: Array, n: Array) -> Array:
    """Estimates drawn to zero by their noise, against what is usual among this crowd's labels."""
    # τ² = mean over labels of (x² − v); x τ² / (τ² + v)
    usual = max(float(np.average(estimates**2 - variance, weights=n)), 0.0)
    factor = np.divide(usual, usual + variance, out=np.zeros_like(variance), where=usual + variance > 0)
    return np.maximum(estimates, 0) * factor


def spam_score(
    item: LabelTable | ArrayLike,
    annotator: ArrayLike | None = None,
    label: ArrayLike | None = None,
    *,
    consensus: ArrayLike | None = None,
    prior: float = 0.1,
) -> Array:
    """For each annotator, the probability that the labels have nothing to do with the items.

    Three accounts of an annotator's labels are weighed.
    Spam: labels follow the crowd's class shares, or shares of the annotator's own, whatever the item.
    Sense as the crowd makes it: given the consensus, labels follow a confusion matrix, Dirichlet around the
    crowd's; how closely is averaged over. The crowd's matrix leaves spammers out, by their score.
    Sense of another kind, in one annotator of fifty: label and consensus share more information than labels
    from a hat would, whatever is said of what; so a minority's view is no spam.
    ``prior`` is the share of spammers expected. An annotator with no label to compare keeps that score.
    """
    if not 0 < prior < 1:
        raise bad_parameter("spam_score", "prior", "a float between 0 and 1", prior)
    table = _confusion(pairs_in_pieces(item, annotator, label), consensus)
    joint = table.joint[:, table.joint.sum(axis=(0, 2)) > 0]  # annotators, labels in use, consensus
    labels, score = joint.sum(axis=2), np.full(len(joint), prior)
    if not labels.size:
        return score
    share = labels.sum(axis=0) / labels.sum()
    spam = _log_evidence_of_spam(labels, share)
    other_sense = np.log(_RARE) + spam + _log_odds_against_chance(table)
    for _ in range(_ROUNDS):
        crowd = np.tensordot(1 - score, joint, axes=1) + share[:, None]
        crowds_sense = np.log(1 - _RARE) + _log_evidence_of_crowd(joint, crowd / crowd.sum(axis=0))
        odds = spam - np.logaddexp(crowds_sense, other_sense) + np.log(prior / (1 - prior))
        previous, score = score, expit(odds)
        if np.abs(score - previous).max() < 1e-4:
            break
    return score


def _log_evidence_of_spam(labels: Array, share: Array) -> Array:
    """log ½[Π_c share_c^n_c + DM(n; P·share)] of each annotator's label counts n."""
    common = xlogy(labels, share).sum(axis=1)
    own = _dirichlet_multinomial(labels, share.size * share)
    evidence: Array = np.logaddexp(common, own) - np.log(2)
    return evidence


def _log_evidence_of_crowd(joint: Array, crowd: Array) -> Array:
    """log of the mean over loyalties s of Π_t DM(J_·t; s·crowd_·t)."""
    evidence = [_dirichlet_multinomial(joint.swapaxes(1, 2), s * crowd.T).sum(axis=1) for s in _LOYAL]
    mean: Array = logsumexp(evidence, axis=0) - np.log(len(_LOYAL))
    return mean


def _log_odds_against_chance(table: Confusion) -> Array:
    """log of the most that the mutual information can speak against chance: −log(−e p log p).

    p is the chance of as much information from a hat. Sellke, Bayarri & Berger (2001).
    """
    odds = np.zeros(len(table.joint))
    seen = table.joint.sum(axis=(1, 2)) > 0
    found, bias, degrees = _mutual_information(Confusion(table.joint[seen], table.squares[seen]))
    scaled = np.divide(found, bias, out=np.zeros_like(found), where=bias > 0)
    p = np.clip(gammaincc(degrees / 2, degrees * scaled / 2), np.finfo(float).tiny, np.exp(-1))
    odds[seen] = -np.log(-np.e * p * np.log(p))
    return odds


def _dirichlet_multinomial(counts: Array, alpha: Array) -> Array:
    """Log-probability of a sequence of labels with these counts (last axis), shares ~ Dirichlet(alpha)."""
    total = alpha.sum(axis=-1)
    # log Γ(A)/Γ(A + n) + Σ_c log Γ(α_c + n_c)/Γ(α_c)
    rising = (gammaln(alpha + counts) - gammaln(alpha)).sum(axis=-1)
    evidence: Array = rising + gammaln(total) - gammaln(total + counts.sum(axis=-1))
    return evidence


def _confusion(pieces: Iterable[Pairs], consensus: ArrayLike | None) -> Confusion:
    """J of every annotator, against the other annotators' labels or a given consensus."""
    whole: Confusion | None = None
    for pairs in pieces:
        N, P = pairs.n_annotators, pairs.counts.shape[1]
        whole = whole or Confusion(np.zeros((N, P, P)), np.zeros((N, P)))
        present = np.flatnonzero(np.bincount(pairs.annotator))
        local = np.zeros(N, np.intp)
        local[present] = np.arange(len(present))
        part = _confusion_of(pairs, local[pairs.annotator], _consensus_of(pairs, consensus))
        whole.joint[present] += part.joint
        whole.squares[present] += part.squares
    assert whole is not None
    return whole


def _confusion_of(pairs: Pairs, annotator: NDArray[np.intp], q: csr_array[Any]) -> Confusion:
    """J over the annotators of some pairs, as they are counted here."""
    n, P = int(annotator.max()) + 1, pairs.counts.shape[1]
    labels = pairs.counts.tocoo()
    row = annotator[labels.row] * P + labels.col
    given = csr_array((labels.data, (row, labels.row)), shape=(n * P, q.shape[0]))
    own = pairs.counts.sum(axis=1)
    by_annotator = csr_array((own, (annotator, np.arange(len(own)))), shape=(n, len(own)))
    return Confusion((given @ q).toarray().reshape(n, P, P), (by_annotator @ q.multiply(q)).toarray())


def _consensus_of(pairs: Pairs, consensus: ArrayLike | None) -> csr_array[Any]:
    """(pairs, classes): the others' shares, or the given consensus of the pair's item."""
    if consensus is None:
        return csr_array(diags_array(1 / np.maximum(pairs.others.sum(axis=1), 1)) @ pairs.others)
    return csr_array(
        _check_consensus(consensus, int(pairs.item.max()) + 1, pairs.counts.shape[1])[pairs.item]
    )


def _check_consensus(consensus: ArrayLike, n_items: int, n_classes: int) -> Any:
    q = np.asarray(consensus, dtype=np.float64)
    if q.ndim != 2 or len(q) < n_items or q.shape[1] != n_classes or not (q >= 0).all():
        raise DataError(
            f"consensus: ({n_items}, {n_classes}) distributions are needed, one per item, got {q.shape}"
        )
    return q
