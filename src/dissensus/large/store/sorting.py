"""Labels larger than memory brought into canonical order.

Chunks are coded on their own: rows in order of reading, ids in sorted lists. When all are read, the sorted
lists are merged in pieces that fit memory: ids into vocabularies, runs of rows into canonical order.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.rows import Duplicates, Rows, canonical_rows, one_row_a_pair
from dissensus.labels.vocabulary import (
    Codes,
    Place,
    Vocabulary,
    encode,
    folded,
    may_look_alike,
    places,
    sorted_order,
)
from dissensus.large.store.files import CODES, COLUMNS, IdFile, NumberFile
from dissensus.large.store.inputs import ROW, Budget, Piece
from dissensus.tables.plain_tables import lookalike_words

# ---- chunks, coded on their own -----------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """Some rows, and where the ids that their codes count in stand among all ids read."""

    rows: range
    lists: tuple[range, range, range]  # of items, annotators, labels


class CodedRows:
    """Coded rows and their ids in files."""

    def __init__(self, folder: Path, classes: Vocabulary | None, files: ExitStack) -> None:
        self.codes = [NumberFile(folder / f"{role}.codes", CODES, files) for role in COLUMNS]
        self.ids = [IdFile(folder, role, files) for role in COLUMNS]
        self.runs: list[Run] = []
        self.classes = classes  # the declared ones
        self._declared = None if classes is None else self.ids[2].append(classes.arrow)

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return len(self.codes[0])

    def read(self, rows: range) -> list[Codes]:
        """The three columns of some rows."""
        return [column.read(rows) for column in self.codes]

    def add_chunk(self, pieces: Sequence[Piece], place: Place) -> None:
        """Code a chunk and keep it as a run."""
        columns = [
            pa.chunked_array([piece.columns[i] for piece in pieces], pa.string()) for i in range(len(COLUMNS))
        ]
        orders = None, None, self.classes
        with ThreadPoolExecutor(len(COLUMNS)) as threads:
            coded = list(
                threads.map(lambda c, r, o: encode(c, r, o, place, by_value=False), columns, COLUMNS, orders)
            )
        lists = [
            self._declared if i == 2 and self._declared is not None else self.ids[i].append(vocabulary.arrow)
            for i, (_, vocabulary) in enumerate(coded)
        ]
        self._add_run([codes for codes, _ in coded], lists)

    def add_store(self, old: Annotations, n_rows: int) -> None:
        """Keep what is in a store, so many rows at a time; a run's items are consecutive."""
        items = _append(self.ids[0], old.item_vocabulary, n_rows)
        annotators = _append(self.ids[1], old.annotator_vocabulary, n_rows)
        classes, code = old.class_vocabulary, np.arange(old.n_classes, dtype=np.int32)
        if self._declared is None:  # lists of ids are sorted by code point
            code, classes = encode(classes, "label", by_value=False)
        labels = self._declared or _append(self.ids[2], classes, n_rows)
        for start in range(0, old.n_labels, n_rows):
            rows = slice(start, start + n_rows)
            item = old.item[rows]
            own = range(items.start + int(item[0]), items.start + int(item[-1]) + 1)
            columns = [item - item[0], old.annotator[rows], code[old.label[rows]]]
            self._add_run(columns, [own, annotators, labels])

    def _add_run(self, codes: Sequence[Codes], lists: Sequence[range]) -> None:
        rows = range(self.n_rows, self.n_rows + len(codes[0]))
        for file, column in zip(self.codes, codes, strict=True):
            file.append(column)
        self.runs.append(Run(rows, (lists[0], lists[1], lists[2])))


def _append(file: IdFile, vocabulary: Vocabulary, n_ids: int) -> range:
    """Add a vocabulary's ids, so many at a time; their places."""
    first = len(file)
    for start in range(0, len(vocabulary), n_ids):
        file.append(vocabulary.arrow.slice(start, n_ids))
    return range(first, len(file))


# ---- merging in pieces that fit memory ----------------------------------------------------------------

_MOST_CODES = (1 << 31) - 1

NamePair = Callable[[int, int], str]  # the words for an item's and an annotator's code


def partitions(lists: Sequence[range], key: Callable[[int], Any], most: int) -> Iterator[list[range]]:
    """Parts of sorted lists, one of each list, with the same keys apart from all other parts.

    One of every so many elements of each list is a sample; some of the sorted samples are cuts. What lies
    between two cuts is found in each list by bisection, is read from all of them, and is small: sorting it is
    all the merging there is.

    A part holds ``most`` elements in all, or half as many again where keys are repeated. ``key`` gives the
    element at a place.
    """
    step = max(1, most // (2 * len(lists)))  # every list may give one step more than its samples say
    every = max(1, most // (2 * step))
    samples = sorted(key(place) for places in lists for place in places[step - 1 :: step])
    cuts = [cut for cut, _ in itertools.groupby(samples[every - 1 :: every])]
    edges = [
        [p.start, *(bisect.bisect_right(range(p.stop), cut, p.start, key=key) for cut in cuts), p.stop]
        for p in lists
    ]
    for part in range(len(cuts) + 1):
        parts = [range(edge[part], edge[part + 1]) for edge in edges]
        if any(parts):
            yield parts


def merge_ids(
    read_ids: IdFile, lists: Sequence[range], merged: IdFile, codes: NumberFile, what: str, budget: Budget
) -> None:
    """All lists' ids, sorted, into ``merged``; the code there of every id read into ``codes``."""
    most = max(1, min(budget.rows, budget.text // read_ids.mean_bytes))
    for parts in partitions(list(dict.fromkeys(lists)), read_ids.key, most):
        ids = pa.concat_arrays([read_ids.read(part) for part in parts])
        found, vocabulary = encode(ids, what, by_value=False)
        found += np.int32(min(len(merged), _MOST_CODES))
        merged.append(vocabulary.arrow)
        ends = np.cumsum([len(part) for part in parts])
        for part, own in zip(parts, np.split(found, ends[:-1]), strict=True):
            codes.write(part.start, own)
    if len(merged) > _MOST_CODES:
        raise DataError(f"there are {len(merged):,} {what}s, more than 2 billion; split the files")


def by_value(labels: IdFile, codes: NumberFile, n_read: int, folder: Path, files: ExitStack) -> IdFile:
    """Labels that are all numbers in the order of their values; ``codes`` of ids read follow (in place)."""
    ids = labels.read(range(len(labels)))
    order = sorted_order(ids, "label")
    if np.all(np.diff(order) > 0):
        return labels
    rank = np.argsort(order).astype(np.int32)
    codes.write(0, rank[codes.read(range(n_read))])
    ordered = IdFile(folder, "label-by-value", files)
    ordered.append(ids.take(places(order)))
    labels.remove()
    return ordered


@dataclass
class Merger:
    """Runs of rows on their way to canonical order."""

    rows: CodedRows
    codes: Sequence[NumberFile | None]  # of items, annotators, labels: the code of every id read
    sizes: tuple[int, int, int]  # of the vocabularies
    duplicates: Duplicates
    name_pair: NamePair
    left_out: int = 0  # rows that the policy for duplicates has left out so far

    def sort_run(self, run: Run) -> range:
        """Code the run's rows for good, sort them, and write them back; the rows that are left."""
        rows = [self._recoded(i, column, run) for i, column in enumerate(self.rows.read(run.rows))]
        columns = self._canonical(rows[0], rows[1], rows[2])
        for file, column in zip(self.rows.codes, columns, strict=True):
            file.write(run.rows.start, column)
        return range(run.rows.start, run.rows.start + len(columns[0]))

    def _recoded(self, i: int, column: Codes, run: Run) -> Codes:
        codes = self.codes[i]
        recoded: Codes = column if codes is None else codes.read(run.lists[i])[column]
        return recoded

    def blocks(self, runs: Sequence[range], budget: Budget) -> Iterator[Rows]:
        """All rows in canonical order, in blocks of whole items."""
        items = self.rows.codes[0]
        for parts in partitions(runs, lambda row: int(items.read(range(row, row + 1))[0]), budget.rows):
            n_rows = sum(map(len, parts))
            if n_rows > 2 * budget.rows:
                self._refuse_block(parts, n_rows, budget)
            pieces = [self.rows.read(part) for part in parts if len(part)]
            rows = [np.concatenate(column) for column in zip(*pieces, strict=True)]
            yield self._canonical(rows[0], rows[1], rows[2])

    def _canonical(self, item: Codes, annotator: Codes, label: Codes) -> Rows:
        """Sorted rows; the given ones stand in order of reading, which tells first from last."""
        if self.duplicates != "keep":
            kept = one_row_a_pair(
                item,
                annotator,
                self.sizes[1],
                self.duplicates,
                lambda row: self.name_pair(int(item[row]), int(annotator[row])),
            )
            self.left_out += len(item) - len(kept)
            item, annotator, label = item[kept], annotator[kept], label[kept]
        return canonical_rows(item, annotator, label, self.sizes)

    def _refuse_block(self, parts: Sequence[range], n_rows: int, budget: Budget) -> None:
        """An item is never cut, so one with very many labels sets what memory is needed."""
        budget.check(2 * ROW * n_rows, f"sorting the {n_rows:,} labels of one item", "remove some of them")


# ---- ids that differ by white space or case only ------------------------------------------------------

_PIECE = 1 << 18  # ids looked at together
_MEMORY = 40  # bytes for each id: its digest, and that sorted twice


def lookalike_notes(ids: IdFile, what: str, budget: Budget) -> list[str]:
    """What :func:`dissensus.read_annotations` notes of such ids, with one digest an id in memory."""
    pieces = [range(at, min(at + _PIECE, len(ids))) for at in range(0, len(ids), _PIECE)]
    if not any(may_look_alike(ids.read(piece)) for piece in pieces):
        return []
    budget.check(
        _MEMORY * len(ids), f"looking through {len(ids):,} {what}s", "give shorter ids in lower case"
    )
    digests = np.concatenate([_digests(ids, piece) for piece in pieces])
    return _note(ids, digests, what)


def _digests(ids: IdFile, piece: range) -> NDArray[np.uint64]:
    """A number for each id, the same for those that look alike (and, once in 2⁶⁴, for two that do not)."""
    texts = (folded(name).encode() for name in ids.read(piece).to_pylist())
    return np.frombuffer(b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in texts), np.uint64)


def _note(ids: IdFile, digests: NDArray[np.uint64], what: str) -> list[str]:
    distinct, counts = np.unique(digests, return_counts=True)
    shared = distinct[counts > 1]
    if not len(shared):
        return []
    first = int(np.flatnonzero(np.isin(digests, shared))[0])
    second = int(np.flatnonzero(digests == digests[first])[1])
    example = [ids.key(row).decode() for row in (first, second)]
    return [lookalike_words(int(counts[counts > 1].sum()), what, example)]
