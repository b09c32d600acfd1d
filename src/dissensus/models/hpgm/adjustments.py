"""Adjustments of HPGM's answers relative to the posterior mean; ``adjust=False`` turns them off.

**Floor for unanimous items.** A class given by all of five or more labels of an item gets a share of at least
0.6. Where the model gives less, it considers these labels uninformative, and may be wrong.

**Shrinkage of single labels.** Where no item has labels by two annotators, the effects of item and annotator
cannot be separated. The model and Y_m ~ Dir(c_m + 1.5 p̄), with counts c_m and overall shares p̄, explain the
labels equally well, so the answer is halfway between them.

**Aliases counted once.** A copy of a person, or of a model, under another name adds no information, and does
not make the crowd larger. Agreement alone is no evidence of this: careful annotators agree where the answer
is obvious. The evidence is agreement where two annotators differ from all others. Two are aliases if

1. they share at least 30 items and give the same label to 97 % of them;
2. their labels vary: each gives at least 10 of these items another label than their most common one;
3. and either, on at least 15 of them, one of the two differs from the majority of the other annotators, and
   they give the same label to 95 % of these; or the two label the same items and never differ, where at least
   15 differences would be expected from how often the others differ from them.

The others are the annotators who are not similar to them in the sense of 1., each group of aliases counted
once. They must be informative: where the two agree with their majority hardly more than by chance (Cohen's
κ below 0.2), nothing is concluded. Being an alias is transitive; but a group of more than 60 % of the
annotators is not taken for copies of each other. Up to that size, annotators who are hardly ever wrong among
many who often are cannot be distinguished from copies, and count once too.

Where no item has labels of two annotators (aliases aside), a label repeated by one annotator counts once:
agreement with oneself does not show how far others would agree.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes, arrow_indices
from dissensus.models.hpgm.sampler import MIN_SHARE, draw_dirichlet
from dissensus.models.sampled import SampledModel
from dissensus.numerics import row_shares

if TYPE_CHECKING:
    from dissensus.models.hpgm.model import HPGM

UNANIMOUS_LABELS, UNANIMOUS_SHARE = 5, 0.6  # minimum number of agreeing labels, and floor of their share
PRIOR_LABELS = 1.5  # weight of the overall shares, in labels, where no item has labels by two annotators

MIN_SHARED_ITEMS, MIN_VARIED_LABELS, MIN_TELLING_ITEMS = 30, 10, 15
MIN_AGREEMENT, MIN_TELLING_AGREEMENT = 0.97, 0.95
MIN_KAPPA = 0.2  # between an alias and the majority of the others
MAX_ALIAS_SHARE = 0.6  # largest share of the annotators in one group of aliases
MIN_ITEM_OVERLAP = 0.95  # share of the items of either that both labelled
MAX_LABEL_PAIRS = 100_000_000  # pairs of labels of one item, above which annotators are not compared

Ints = NDArray[np.int64]


# ---- answers ------------------------------------------------------------------------------------------


def floor_unanimous(model: SampledModel, counts: Ints) -> None:
    """Raise the share of a unanimous answer (five or more labels) to at least 0.6.

    The answer Y_m and its draws become (1 − t) Y_m + t e_p, with the smallest sufficient t.
    """
    sizes, label = counts.sum(axis=1), counts.argmax(axis=1)
    share = model.label_distributions_[np.arange(len(label)), label]
    unanimous = (counts.max(axis=1) == sizes) & (sizes >= UNANIMOUS_LABELS)
    items = np.flatnonzero(unanimous & (share < UNANIMOUS_SHARE))
    t = ((UNANIMOUS_SHARE + 1e-9 - share[items]) / (1 - share[items]))[:, None]
    unit = np.eye(counts.shape[1])[label[items]]
    model.label_distributions_[items] = (1 - t) * model.label_distributions_[items] + t * unit
    draws = model.share_draws_
    draws[:, items] = ((1 - t) * draws[:, items] + t * unit).astype(np.float32)


def shrink_single_labels(model: HPGM, counts: Ints) -> None:
    """Average answers with the counts shrunk to the overall shares; replace every second draw accordingly."""
    alpha = counts + PRIOR_LABELS * row_shares(counts.sum(axis=0, keepdims=True))
    model.label_distributions_ = (model.label_distributions_ + row_shares(alpha)) / 2
    rng = np.random.default_rng([model.seed, 1 << 23])
    for share in model.share_draws_[::2]:
        share[...] = draw_dirichlet(np.maximum(alpha, MIN_SHARE), rng)


def shares_items(item: Codes, annotator: Codes) -> bool:
    """Check whether any item has labels by two annotators; labels are sorted by item and annotator."""
    return bool(((np.diff(item) == 0) & (np.diff(annotator) != 0)).any())


# ---- aliases ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Aliases:
    """Annotations with one name for each group of aliases, and the mapping to the original names."""

    annotations: Annotations  # labels that count, under one name for each group of aliases
    rows: Ints  # their rows in the original
    code: Ints  # (original annotators,): code in ``annotations``
    named: Ints  # (annotators of ``annotations``,): code in the original

    @classmethod
    def of(cls, annotations: Annotations, find: bool = True) -> Self:
        """Find aliases; without ``find``, every name is a separate annotator, and every label counts.

        Where several names of one annotator label one item, the first one counts. If all labels count,
        ``annotations`` is the original.
        """
        rows, named = np.arange(annotations.n_labels), np.arange(annotations.n_annotators)
        if not find:
            return cls(annotations, rows, named, named)
        first, code = first_names(annotations), named
        item, annotator, label = annotations.columns
        if (first != named).any():
            named, code = np.unique(_representative_names(annotations, first), return_inverse=True)
            rows = _counted_rows(annotations, code)
            rows = rows[np.lexsort((label[rows], code[annotator[rows]], item[rows]))]
        if not shares_items(item[rows], annotator[rows]):  # repeated labels count once
            rows = rows[np.append(True, (np.diff(item[rows]) != 0) | (np.diff(label[rows]) != 0))]
        if len(rows) == annotations.n_labels:
            return cls(annotations, rows, code, named)
        names, table = annotations.annotator_vocabulary.take(named), annotations.annotator_table
        table = None if table is None else table.take(arrow_indices(named))
        codes = code[annotator[rows]].astype(np.int32)
        counted = replace(annotations, item=item[rows], annotator=codes, label=label[rows])
        counted = replace(counted, annotator_vocabulary=names, annotator_table=table)
        return cls(counted, rows, code, named)


# ---- finding aliases ----------------------------------------------------------------------------------


def first_names(annotations: Annotations) -> Ints:
    """Return (annotators,) the code of the first alias of each annotator."""
    codes = np.arange(annotations.n_annotators)
    pairs = np.zeros((0, 2), dtype=np.int64) if annotations.anonymous else similar_pairs(annotations)
    if not len(pairs):
        return codes
    # Aliases distort the majority: after the first pass they count once, and all pairs are compared again.
    first = _merge_aliases(annotations, pairs, codes)
    return first if (first == codes).all() else _merge_aliases(annotations, pairs, first)


def similar_pairs(annotations: Annotations) -> Ints:
    """Return (pairs, 2) annotators who give the same label to nearly all shared items."""
    from scipy import sparse

    N, M, P = annotations.n_annotators, annotations.n_items, annotations.n_classes
    enough = np.flatnonzero(annotations.annotator_load >= MIN_SHARED_ITEMS)
    first_of_pair = np.append(True, np.diff(annotations.pair) != 0)
    rows = np.flatnonzero(np.isin(annotations.annotator, enough) & first_of_pair)
    item, label = annotations.item[rows].astype(np.int64), annotations.label[rows].astype(np.int64)
    annotator = annotations.annotator[rows].astype(np.int64)
    if len(enough) < 3 or (np.bincount(item, minlength=M).astype(np.int64) ** 2).sum() > MAX_LABEL_PAIRS:
        return np.zeros((0, 2), dtype=np.int64)
    ones = np.ones(len(rows), dtype=np.int32)
    labelled = sparse.csr_array((ones, (annotator, item)), shape=(N, M))
    answered = sparse.csr_array((ones, (annotator, item * P + label)), shape=(N, M * P))
    shared = sparse.coo_array(labelled @ labelled.T)
    keep = (shared.row < shared.col) & (shared.data >= MIN_SHARED_ITEMS)
    pairs = np.column_stack([shared.row[keep], shared.col[keep]]).astype(np.int64)
    agreed = np.asarray(sparse.csr_array(answered @ answered.T)[pairs[:, 0], pairs[:, 1]]).ravel()
    return pairs[agreed >= MIN_AGREEMENT * shared.data[keep]]


def _merge_aliases(annotations: Annotations, pairs: Ints, first: Ints) -> Ints:
    """Return the first alias of each annotator; the others' labels count once per group of ``first``."""
    M, P = annotations.n_items, annotations.n_classes
    item, annotator, label = annotations.columns
    answers = {}  # by annotator, the class given to every item, −1 for none
    for n in np.unique(pairs).tolist():
        rows = np.flatnonzero(annotator == n)[::-1]  # the first of several labels is used
        answers[n] = np.full(M, -1, dtype=np.int32)
        answers[n][item[rows]] = label[rows]
    similar = {n: set(pairs[(pairs == n).any(axis=1)].ravel().tolist()) for n in answers}
    counted, merged = _counted_rows(annotations, first), np.arange(annotations.n_annotators)
    for a, b in pairs.tolist():
        rows = counted[~np.isin(annotator[counted], list(similar[a] | similar[b]))]
        others = np.bincount(item[rows].astype(np.int64) * P + label[rows], minlength=M * P).reshape(M, P)
        if _are_aliases(answers[a], answers[b], others):
            low, high = sorted((int(merged[a]), int(merged[b])))
            merged[merged == high] = low
    too_many = np.bincount(merged, minlength=len(merged)) > MAX_ALIAS_SHARE * len(merged)
    return np.where(too_many[merged], np.arange(len(merged)), merged)


def _are_aliases(first: Codes, second: Codes, others: Ints) -> bool:
    """Check conditions 2 and 3 above; ``others`` (items, classes) counts the other annotators' labels."""
    both = np.flatnonzero((first >= 0) & (second >= 0))
    same_items = len(both) >= MIN_ITEM_OVERLAP * ((first >= 0) | (second >= 0)).sum()
    first, second, others = first[both], second[both], others[both]
    for labels in (first, second):
        if len(labels) - np.bincount(labels).max() < MIN_VARIED_LABELS:
            return False
    n = others.sum(axis=1)
    most, decided = others.argmax(axis=1), 2 * others.max(axis=1) > n
    if _kappa(first[decided], most[decided]) < MIN_KAPPA:
        return False
    # Σ_m share of the others who differ from the first
    expected = float((1 - others[np.arange(len(both)), first] / np.maximum(n, 1))[n > 0].sum())
    if same_items and (first == second).all() and expected >= MIN_TELLING_ITEMS:
        return True
    telling = decided & ((first != most) | (second != most))
    same = telling & (first == second)
    return bool(telling.sum() >= MIN_TELLING_ITEMS and same.sum() >= MIN_TELLING_AGREEMENT * telling.sum())


def _kappa(first: Codes, second: Ints) -> float:
    """Return Cohen's κ of two sequences of classes; 0 where it is undefined."""
    if not len(first):
        return 0.0
    P = int(max(first.max(), second.max())) + 1
    shares = [np.bincount(row, minlength=P) / len(first) for row in (first, second)]
    chance = float(shares[0] @ shares[1])
    return (float((first == second).mean()) - chance) / (1 - chance) if chance < 1 else 0.0


def _counted_rows(annotations: Annotations, group: Ints) -> Ints:
    """Return the rows of labels, without repeats of a group's answer to an item under a later name."""
    n_groups = int(group.max()) + 1
    names = np.full(annotations.n_items * n_groups, annotations.n_annotators, dtype=np.int32)
    cell = annotations.item.astype(np.int64) * n_groups + group[annotations.annotator]
    np.minimum.at(names, cell, annotations.annotator)
    return np.flatnonzero(annotations.annotator == names[cell])


def _representative_names(annotations: Annotations, first: Ints) -> Ints:
    """Return for each annotator the name of its group that is most like the names outside the group.

    Digits are ignored: ``human08`` represents ``clone1`` to ``clone5`` among ``human01`` to ``human10``.
    """
    names = first.copy()
    for group in np.unique(first[first != np.arange(len(first))]):
        members = np.flatnonzero(first == group)
        stems = [re.sub(r"\d+", "", str(name)) for name in annotations.annotators]
        others = Counter(stem for n, stem in enumerate(stems) if first[n] != group)
        names[members] = max(members, key=lambda n: (others[stems[n]], -n))
    return names
