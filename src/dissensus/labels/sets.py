"""Answers that are sets of classes: written as JSON lists, one entry of the class vocabulary for each set."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError
from dissensus.labels.alpha import alpha, coincidences
from dissensus.labels.vocabulary import Vocabulary, encode
from dissensus.numerics import Array

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations


def written(members: Iterable[str]) -> str:
    """A set as text: a JSON list, sorted, each class once."""
    return json.dumps(sorted(set(members)), ensure_ascii=False)


def members_of(text: str) -> list[str]:
    """The classes of a set written by :func:`written`."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise DataError(f'{text!r} is no set of classes; write one as a JSON list, such as ["a", "b"]')
    return [str(name) for name in found]


def membership(classes: Vocabulary) -> tuple[NDArray[np.bool_], list[str]]:
    """(sets, members): which classes each set of the vocabulary has, and the classes in order."""
    sets = [members_of(str(text)) for text in classes]
    names = sorted({name for members in sets for name in members})
    place = {name: k for k, name in enumerate(names)}
    table = np.zeros((len(sets), len(names)), dtype=bool)
    for row, members in enumerate(sets):
        table[row, [place[name] for name in members]] = True
    return table, names


def as_sets(annotations: Annotations) -> Annotations:
    """All labels of one (item, annotator) pair as one answer, a set; answers that are sets stay so."""
    if annotations.n_classes and all(str(name).startswith("[") for name in annotations.classes):
        return annotations
    names = [str(name) for name in annotations.classes]
    starts = np.flatnonzero(np.diff(annotations.pair, prepend=-1))
    stops = np.append(starts[1:], annotations.n_labels)
    texts = [written(names[p] for p in annotations.label[a:b]) for a, b in zip(starts, stops, strict=True)]
    label, classes = encode(pa.array(texts, pa.string()), "label")
    return replace(
        annotations,
        item=annotations.item[starts],
        annotator=annotations.annotator[starts],
        label=label,
        class_vocabulary=classes,
        gold=None,
    )


def jaccard_distances(table: NDArray[np.bool_]) -> Array:
    """(sets, sets): 1 − |A ∩ B| / |A ∪ B|; two empty sets are alike."""
    both = (table.astype(np.float64)) @ table.T
    sizes = table.sum(axis=1)
    either = sizes[:, None] + sizes - both
    return np.asarray(1 - np.where(either > 0, both / np.maximum(either, 1), 1.0))


def masi_distances(table: NDArray[np.bool_]) -> Array:
    """(sets, sets): 1 − Jaccard × monotonicity (Passonneau 2006).

    Monotonicity is 1 for equal sets, 2/3 where one contains the other, 1/3 where they overlap, 0 otherwise.
    """
    both = (table.astype(np.float64)) @ table.T
    sizes = table.sum(axis=1)
    same = (both == sizes[:, None]) & (both == sizes)
    inside = (both == sizes[:, None]) | (both == sizes)
    monotone = np.where(same, 1.0, np.where(both == 0, 0.0, np.where(inside, 2 / 3, 1 / 3)))
    return np.asarray(1 - (1 - jaccard_distances(table)) * monotone)


def set_alpha(by_class: NDArray[np.int64], classes: Vocabulary, level: str) -> float:
    """Krippendorff's α of sets with Jaccard's or MASI's distance, from a (sets, items) table of counts."""
    return alpha(coincidences(by_class), set_distances(classes, level))


def set_distances(classes: Vocabulary, level: str) -> Array:
    """(sets, sets): Jaccard's or MASI's distance of every two."""
    table, _ = membership(classes)
    return masi_distances(table) if level == "masi" else jaccard_distances(table)
