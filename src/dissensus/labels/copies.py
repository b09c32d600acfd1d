"""Annotators who are one voice under several names: copies of a person, or of a model.

A copy adds no answer of its own, and a crowd that counts it is no larger. Agreement alone does not tell:
careful annotators agree where the answer is plain. What tells is agreement where two differ from everybody
else. Two annotators are one voice if

1. they share at least 30 items and give the same label to 97 % of them;
2. not always the same one: each gives at least 10 of these items another label than their most common (who
   always says the same copies nobody);
3. and either, on at least 15 of them, one of the two differs from most of the other annotators, and on 95 %
   of these the two say the same; or the two label the same items and never differ, where at least 15
   differences would be expected by how often the others differ from them.

The others are those who are not as like them as 1. says, each voice counted once. They must look at the items
too: where the two agree with most of them no more than by chance (Cohen's κ below 0.2), nothing is concluded.
Who is one voice with a second is one with all of the second's; but more than 60 % of the annotators are no
copies of each other, they are the crowd. Up to that size, annotators who are hardly ever wrong among many who
often are look the same from here, and count as one voice too.

Where no item has labels of two voices, a label that a voice repeats is heard once: that somebody agrees with
themselves tells nothing of how far others would.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes, places

LEAST_SHARED, LEAST_VARIED, LEAST_TELLING = 30, 10, 15
ALIKE, TELLING_ALIKE = 0.97, 0.95
LEAST_KAPPA = 0.2  # between two who are alike and most of the others
MOST_OF_CROWD = 0.6  # share of the annotators that one voice may have
SAME_ITEMS = 0.95  # share of the items of either that both labelled
MOST_PAIRS = 100_000_000  # pairs of labels of one item: beyond, nobody is compared

Ints = NDArray[np.int64]


def voices(annotations: Annotations) -> Ints:
    """(annotators,): the first annotator with the same voice; themselves for everybody who copies nobody."""
    nobody = np.arange(annotations.n_annotators)
    alike = np.zeros((0, 2), dtype=np.int64) if annotations.anonymous else alike_pairs(annotations)
    # A family of copies is a majority of its own making: found once, it is counted once, and all are looked
    # at again.
    first = _joined(annotations, alike, nobody)
    return first if (first == nobody).all() else _joined(annotations, alike, first)


def _joined(annotations: Annotations, alike: Ints, speaker: Ints) -> Ints:
    """Voices out of pairs that are alike, others counted as the ``speaker`` of each has it."""
    found = np.arange(annotations.n_annotators)
    if not len(alike):
        return found
    rows = _heard(annotations, speaker)
    M, P = annotations.n_items, annotations.n_classes
    given: dict[int, Codes] = {}  # of each who is like another, the class given to every item, −1 for none
    for n in np.unique(alike).tolist():
        own = np.flatnonzero(annotations.annotator == n)[::-1]  # the first of several labels stays
        given[n] = np.full(M, -1, dtype=np.int32)
        given[n][annotations.item[own]] = annotations.label[own]
    near = {n: set(alike[(alike == n).any(axis=1)].ravel().tolist()) for n in given}
    for one, other in alike.tolist():
        away = rows[~np.isin(annotations.annotator[rows], list(near[one] | near[other]))]
        cells = annotations.item[away].astype(np.int64) * P + annotations.label[away]
        others = np.bincount(cells, minlength=M * P).reshape(M, P)
        if _one_voice(given[one], given[other], others):
            low, high = sorted((int(found[one]), int(found[other])))
            found[found == high] = low
    too_many = np.bincount(found, minlength=len(found)) > MOST_OF_CROWD * len(found)
    return np.where(too_many[found], np.arange(len(found)), found)


@dataclass(frozen=True, eq=False)
class Voices:
    """Annotations in which every voice has one name, and the way back to all names."""

    annotations: Annotations  # the labels that are heard, under the first name of each voice
    rows: Ints  # which labels of the original they are
    voice: Ints  # (annotators of the original,): code of each one's voice
    speakers: Ints  # (voices,): code of the annotator whose name it has

    @classmethod
    def of(cls, annotations: Annotations) -> Voices:
        """Find the copies; the same annotations where all labels are heard.

        Of several names that label one item, the first is heard.
        """
        speakers, voice = np.unique(_usual_names(annotations, voices(annotations)), return_inverse=True)
        rows = np.arange(annotations.n_labels)
        if len(speakers) < annotations.n_annotators:
            rows = _heard(annotations, voice)
            item, annotator, label = (column[rows] for column in annotations.columns)
            rows = rows[np.lexsort((label, voice[annotator], item))]
        new_item, new_annotator, new_label = (np.diff(column[rows]) != 0 for column in annotations.columns)
        if not (new_annotator & ~new_item).any():  # no item has labels by two annotators: repeats go
            rows = rows[np.concatenate([[True], new_item | new_label])]
        if len(rows) == annotations.n_labels:
            return cls(annotations, rows, voice, speakers)
        table = annotations.annotator_table
        heard = replace(
            annotations,
            item=annotations.item[rows],
            annotator=voice[annotations.annotator[rows]].astype(np.int32),
            label=annotations.label[rows],
            annotator_vocabulary=annotations.annotator_vocabulary.take(speakers),
            annotator_table=None if table is None else table.take(places(speakers)),
        )
        return cls(heard, rows, voice, speakers)

    @property
    def n_copies(self) -> int:
        """Names that are no voice of their own."""
        return len(self.voice) - len(self.speakers)


def _usual_names(annotations: Annotations, speaker: Ints) -> Ints:
    """The same voices, each under that of its names which looks most like the names of the others.

    Digits aside, so that ``human08`` speaks for ``clone1`` to ``clone5`` among ``human01`` to ``human10``.
    """
    changed = speaker.copy()
    for family in np.unique(speaker[speaker != np.arange(len(speaker))]):
        members = np.flatnonzero(speaker == family)
        stems = [re.sub(r"\d+", "", str(name)) for name in annotations.annotators]
        others = Counter(stem for n, stem in enumerate(stems) if speaker[n] != family)
        changed[members] = max(members, key=lambda n: (others[stems[n]], -n))
    return changed


def _heard(annotations: Annotations, voice: Ints) -> Ints:
    """Rows of labels, without those of a voice that gave the item one already under an earlier name."""
    names = np.full(annotations.n_items * (int(voice.max()) + 1), annotations.n_annotators, dtype=np.int32)
    cell = annotations.item.astype(np.int64) * (int(voice.max()) + 1) + voice[annotations.annotator]
    np.minimum.at(names, cell, annotations.annotator)
    return np.flatnonzero(annotations.annotator == names[cell])


def alike_pairs(annotations: Annotations) -> Ints:
    """(pairs, 2): annotators who give nearly all items that they share the same label."""
    from scipy import sparse

    N, M, P = annotations.n_annotators, annotations.n_items, annotations.n_classes
    enough = np.flatnonzero(annotations.annotator_load >= LEAST_SHARED)
    first = np.diff(annotations.pair, prepend=-1) != 0  # of several labels of a pair
    rows = np.flatnonzero(np.isin(annotations.annotator, enough) & first)
    item, annotator, label = (column[rows].astype(np.int64) for column in annotations.columns)
    if len(enough) < 3 or (np.bincount(item, minlength=M).astype(np.int64) ** 2).sum() > MOST_PAIRS:
        return np.zeros((0, 2), dtype=np.int64)
    one = np.ones(len(rows), dtype=np.int32)
    labelled = sparse.csr_array((one, (annotator, item)), shape=(N, M))
    answered = sparse.csr_array((one, (annotator, item * P + label)), shape=(N, M * P))
    shared = sparse.coo_array(labelled @ labelled.T)
    keep = (shared.row < shared.col) & (shared.data >= LEAST_SHARED)
    pairs = np.column_stack([shared.row[keep], shared.col[keep]]).astype(np.int64)
    same = sparse.csr_array(answered @ answered.T)
    agreed = np.asarray(same[pairs[:, 0], pairs[:, 1]]).ravel()
    return pairs[agreed >= ALIKE * shared.data[keep]]


def _one_voice(first: Codes, second: Codes, others: Ints) -> bool:
    """Whether two say the same where that tells; ``others`` (items, classes) are the others' answers."""
    both = np.flatnonzero((first >= 0) & (second >= 0))
    same_items = len(both) >= SAME_ITEMS * ((first >= 0) | (second >= 0)).sum()
    first, second, others = first[both], second[both], others[both]
    if any(len(both) - int(np.bincount(labels).max()) < LEAST_VARIED for labels in (first, second)):
        return False  # one of them nearly always says the same
    n = others.sum(axis=1)
    most, decided = others.argmax(axis=1), 2 * others.max(axis=1) > n
    if _kappa(first[decided], most[decided]) < LEAST_KAPPA:
        return False
    # Σ_m share of the others who differ from the first
    expected = float((1 - others[np.arange(len(both)), first] / np.maximum(n, 1))[n > 0].sum())
    if same_items and (first == second).all() and expected >= LEAST_TELLING:
        return True
    telling = decided & ((first != most) | (second != most))
    same = telling & (first == second)
    return bool(telling.sum() >= LEAST_TELLING and same.sum() >= TELLING_ALIKE * telling.sum())


def _kappa(first: Codes, second: Ints) -> float:
    """Cohen's κ of two rows of classes; 0 where nothing could be said."""
    if not len(first):
        return 0.0
    P = int(max(first.max(), second.max())) + 1
    shares = [np.bincount(row, minlength=P) / len(first) for row in (first, second)]
    by_chance = float(shares[0] @ shares[1])
    return (float((first == second).mean()) - by_chance) / (1 - by_chance) if by_chance < 1 else 0.0
