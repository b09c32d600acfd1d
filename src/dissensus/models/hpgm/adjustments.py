"""What moves HPGM's answers away from the posterior mean; ``adjust=False`` leaves all of it out.

**A floor for unanimous items.** A class that all of five or more labels of an item give gets a share of 0.6
at least. Where the model says less, it holds that these labels tell nothing, and may be wrong about that.

**Shrinkage of single labels.** Where no item has labels by two annotators, nothing tells how far a label is
its item's and how far its annotator's. The model and Y_m ~ Dir(c_m + 1.5 p̄), with counts c_m and the crowd's
shares p̄, explain the labels equally well, so the answer is halfway between them.

**Aliases counted once.** A copy of a person, or of a model, under another name adds no answer of its own, and
a crowd that counts it is no larger. Agreement alone does not tell: careful annotators agree where the answer
is plain. What tells is agreement where two differ from everybody else. Two annotators are aliases if

1. they share at least 30 items and give the same label to 97 % of them;
2. not always the same one: each gives at least 10 of these items another label than their most common (who
   always says the same copies nobody);
3. and either, on at least 15 of them, one of the two differs from most of the other annotators, and on 95 %
   of these the two say the same; or the two label the same items and never differ, where at least 15
   differences would be expected by how often the others differ from them.

The others are those who are not as like them as 1. says, each group of aliases counted once. They must look
at the items too: where the two agree with most of them no more than by chance (Cohen's κ below 0.2), nothing
is concluded. An alias of an alias is one too; but more than 60 % of the annotators are no copies of each
other, they are the crowd. Up to that size, annotators who are hardly ever wrong among many who often are look
the same from here, and count once too.

Where no item has labels of two annotators (aliases aside), a label that one repeats is counted once: that
annotators agree with themselves tells nothing of how far others would.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes, places
from dissensus.models.hpgm.sampler import TINY, draw_dirichlet
from dissensus.models.sampled import SampledMixin
from dissensus.numerics import Array, row_shares

if TYPE_CHECKING:
    from dissensus.models.hpgm.model import HPGM

UNANIMOUS_LABELS, UNANIMOUS_SHARE = 5, 0.6  # labels of an item that agree, and the least share of their class
CROWD_LABELS = 1.5  # labels that the crowd's shares count as, where no item has labels by two annotators

MIN_SHARED_ITEMS, MIN_VARIED_LABELS, MIN_TELLING_ITEMS = 30, 10, 15
MIN_AGREEMENT, MIN_TELLING_AGREEMENT = 0.97, 0.95
MIN_KAPPA = 0.2  # between aliases and most of the others
MAX_CROWD_SHARE = 0.6  # share of the annotators that one group of aliases may have
SAME_ITEMS = 0.95  # share of the items of either that both labelled
MAX_COMPARED = 100_000_000  # pairs of labels of one item: beyond, no annotators are compared

Ints = NDArray[np.int64]


# ---- answers ------------------------------------------------------------------------------------------


def contradicted(chances: Array, counts: Ints) -> NDArray[np.intp]:
    """Items of five or more labels, all the same, whose class gets a share below 0.6."""
    sizes, said = counts.sum(axis=1), counts.argmax(axis=1)
    unanimous = (counts.max(axis=1) == sizes) & (sizes >= UNANIMOUS_LABELS)
    return np.flatnonzero(unanimous & (chances[np.arange(len(said)), said] < UNANIMOUS_SHARE))


def floor_unanimous(model: SampledMixin, counts: Ints) -> None:
    """Raise the share of a unanimous answer (five or more labels) to at least 0.6.

    The answer Y_m and its draws are moved to (1 − t) Y_m + t e_p, with the least t that is enough.
    """
    ignored = contradicted(model.label_distributions_, counts)
    said = counts[ignored].argmax(axis=1)
    share = model.label_distributions_[ignored, said]
    t = ((UNANIMOUS_SHARE + 1e-9 - share) / (1 - share))[:, None]
    common = np.eye(counts.shape[1])[said]
    model.label_distributions_[ignored] = (1 - t) * model.label_distributions_[ignored] + t * common
    draws = model.share_draws_
    draws[:, ignored] = ((1 - t) * draws[:, ignored] + t * common).astype(np.float32)


def shrink_single_labels(model: HPGM, counts: Ints) -> None:
    """Move answers halfway to the counts, shrunk to the crowd's shares; every second draw is one of these."""
    alpha = counts + CROWD_LABELS * row_shares(counts.sum(axis=0, keepdims=True))
    model.label_distributions_ = (model.label_distributions_ + row_shares(alpha)) / 2
    rng = np.random.default_rng([model.seed, 1 << 23])
    for share in model.share_draws_[::2]:
        share[...] = draw_dirichlet(np.maximum(alpha, TINY), rng)


def shares_items(item: Codes, annotator: Codes) -> bool:
    """Whether some item has labels by two annotators; the labels are sorted by item and annotator."""
    return bool(((np.diff(item) == 0) & (np.diff(annotator) != 0)).any())


# ---- aliases ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Aliases:
    """Annotations in which aliases of one annotator have one name, and the way back to all names."""

    annotations: Annotations  # the labels that count, under one name for each group of aliases
    rows: Ints  # which labels of the original they are
    code: Ints  # (annotators of the original,): code of each one in ``annotations``
    named: Ints  # (annotators of ``annotations``,): code in the original of the name that they have

    @classmethod
    def none(cls, annotations: Annotations) -> Self:
        """Every name an annotator of their own, and every label counted."""
        everyone = np.arange(annotations.n_annotators)
        return cls(annotations, np.arange(annotations.n_labels), everyone, everyone)

    @classmethod
    def of(cls, annotations: Annotations) -> Self:
        """Find the aliases; the same annotations where all labels count.

        Where several names of one annotator label one item, the first counts.
        """
        first, rows = first_names(annotations), np.arange(annotations.n_labels)
        named = code = np.arange(annotations.n_annotators)
        item, annotator, label = annotations.columns
        if (first != named).any():
            named, code = np.unique(_usual_names(annotations, first), return_inverse=True)
            rows = _counted_rows(annotations, code)
            rows = rows[np.lexsort((label[rows], code[annotator[rows]], item[rows]))]
        if not shares_items(item[rows], annotator[rows]):  # a label that is repeated counts once
            new = (np.diff(item[rows]) != 0) | (np.diff(label[rows]) != 0)
            rows = rows[np.append(True, new)]
        if len(rows) == annotations.n_labels:
            return cls(annotations, rows, code, named)
        names, table = annotations.annotator_vocabulary.take(named), annotations.annotator_table
        table = None if table is None else table.take(places(named))
        who = code[annotator[rows]].astype(np.int32)
        counted = replace(annotations, item=item[rows], annotator=who, label=label[rows])
        counted = replace(counted, annotator_vocabulary=names, annotator_table=table)
        return cls(counted, rows, code, named)


def copy_to_aliases(model: HPGM, annotations: Annotations, aliases: Aliases) -> None:
    """Say of every alias what is known of their annotator; they share its weight in the population."""
    draws, code = model.draws_, aliases.code
    of_names = {name: getattr(draws, name).take(code, axis=1) for name in ("matrices", "sizes", "z")}
    model.draws_ = replace(draws, **of_names)
    states = []
    for state in model.last_states_:
        own = np.zeros(annotations.n_labels, dtype=bool)
        own[aliases.rows] = state.own
        states.append(replace(state, z=state.z[code], own=own))
    model.last_states_ = tuple(states)
    model.learned_rows_ = np.stack(annotations.columns).astype(np.int32)
    model.annotator_weights_ = (model.annotator_weights_ / np.bincount(code))[code]


# ---- finding aliases ----------------------------------------------------------------------------------


def first_names(annotations: Annotations) -> Ints:
    """(annotators,): the first of each one's aliases; themselves for annotators without aliases."""
    everyone = np.arange(annotations.n_annotators)
    alike = np.zeros((0, 2), dtype=np.int64) if annotations.anonymous else alike_pairs(annotations)
    if not len(alike):
        return everyone
    # Aliases are a majority of their own making: found once, they are counted once, and all are compared
    # again.
    first = _joined(annotations, alike, everyone)
    return first if (first == everyone).all() else _joined(annotations, alike, first)


def alike_pairs(annotations: Annotations) -> Ints:
    """(pairs, 2): annotators who give nearly all items that they share the same label."""
    from scipy import sparse

    N, M, P = annotations.n_annotators, annotations.n_items, annotations.n_classes
    enough = np.flatnonzero(annotations.annotator_load >= MIN_SHARED_ITEMS)
    first_of_pair = np.append(True, np.diff(annotations.pair) != 0)
    rows = np.flatnonzero(np.isin(annotations.annotator, enough) & first_of_pair)
    item, label = annotations.item[rows].astype(np.int64), annotations.label[rows].astype(np.int64)
    annotator = annotations.annotator[rows].astype(np.int64)
    if len(enough) < 3 or (np.bincount(item, minlength=M).astype(np.int64) ** 2).sum() > MAX_COMPARED:
        return np.zeros((0, 2), dtype=np.int64)
    ones = np.ones(len(rows), dtype=np.int32)
    labelled = sparse.csr_array((ones, (annotator, item)), shape=(N, M))
    answered = sparse.csr_array((ones, (annotator, item * P + label)), shape=(N, M * P))
    shared = sparse.coo_array(labelled @ labelled.T)
    keep = (shared.row < shared.col) & (shared.data >= MIN_SHARED_ITEMS)
    pairs = np.column_stack([shared.row[keep], shared.col[keep]]).astype(np.int64)
    same = sparse.csr_array(answered @ answered.T)
    agreed = np.asarray(same[pairs[:, 0], pairs[:, 1]]).ravel()
    return pairs[agreed >= MIN_AGREEMENT * shared.data[keep]]


def _joined(annotations: Annotations, alike: Ints, first: Ints) -> Ints:
    """First names by pairs that are alike; the others are counted once for each of the names ``first``."""
    M, P = annotations.n_items, annotations.n_classes
    item, annotator, label = annotations.columns
    answers = {}  # of each annotator the class given to every item, −1 for none
    for n in np.unique(alike).tolist():
        rows = np.flatnonzero(annotator == n)[::-1]  # the first of several labels stays
        answers[n] = np.full(M, -1, dtype=np.int32)
        answers[n][item[rows]] = label[rows]
    near = {n: set(alike[(alike == n).any(axis=1)].ravel().tolist()) for n in answers}
    counted, joined = _counted_rows(annotations, first), np.arange(annotations.n_annotators)
    for one, other in alike.tolist():
        rows = counted[~np.isin(annotator[counted], list(near[one] | near[other]))]
        cells = item[rows].astype(np.int64) * P + label[rows]
        others = np.bincount(cells, minlength=M * P).reshape(M, P)
        if _are_aliases(answers[one], answers[other], others):
            low, high = sorted((int(joined[one]), int(joined[other])))
            joined[joined == high] = low
    too_many = np.bincount(joined, minlength=len(joined)) > MAX_CROWD_SHARE * len(joined)
    return np.where(too_many[joined], np.arange(len(joined)), joined)


def _are_aliases(first: Codes, second: Codes, others: Ints) -> bool:
    """Whether two say the same where that tells; ``others`` (items, classes) are the others' answers."""
    both = np.flatnonzero((first >= 0) & (second >= 0))
    same_items = len(both) >= SAME_ITEMS * ((first >= 0) | (second >= 0)).sum()
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
    """Cohen's κ of two rows of classes; 0 where nothing could be said."""
    if not len(first):
        return 0.0
    P = int(max(first.max(), second.max())) + 1
    shares = [np.bincount(row, minlength=P) / len(first) for row in (first, second)]
    by_chance = float(shares[0] @ shares[1])
    return (float((first == second).mean()) - by_chance) / (1 - by_chance) if by_chance < 1 else 0.0


def _counted_rows(annotations: Annotations, group: Ints) -> Ints:
    """Rows of labels, without those of a group of aliases that labelled the item under an earlier name."""
    n_groups = int(group.max()) + 1
    names = np.full(annotations.n_items * n_groups, annotations.n_annotators, dtype=np.int32)
    cell = annotations.item.astype(np.int64) * n_groups + group[annotations.annotator]
    np.minimum.at(names, cell, annotations.annotator)
    return np.flatnonzero(annotations.annotator == names[cell])


def _usual_names(annotations: Annotations, first: Ints) -> Ints:
    """The same groups, each under that of its names which looks most like the names of the others.

    Digits aside, so that ``human08`` stands for ``clone1`` to ``clone5`` among ``human01`` to ``human10``.
    """
    names = first.copy()
    for group in np.unique(first[first != np.arange(len(first))]):
        members = np.flatnonzero(first == group)
        stems = [re.sub(r"\d+", "", str(name)) for name in annotations.annotators]
        others = Counter(stem for n, stem in enumerate(stems) if first[n] != group)
        names[members] = max(members, key=lambda n: (others[stems[n]], -n))
    return names
