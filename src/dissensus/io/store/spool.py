"""Chunks coded on their own: rows in order of reading, ids in sorted lists.

A run is the rows of one chunk. Its codes count within the run's own sorted list of ids; what they are among
all ids is known when everything has been read.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from dissensus.data.annotations import Annotations
from dissensus.data.vocabulary import Codes, Place, Vocabulary, encode
from dissensus.io.store.inputs import Piece
from dissensus.io.store.raw import CODES, IdFile, NumberFile

ROLES = ("item", "annotator", "label")


@dataclass(frozen=True)
class Run:
    """Some rows, and where the ids that their codes count in stand among all spooled ids."""

    rows: range
    lists: tuple[range, range, range]  # of items, annotators, labels


class Spool:
    """Coded rows and their ids in files."""

    def __init__(self, folder: Path, classes: Vocabulary | None, files: ExitStack) -> None:
        self.codes = [NumberFile(folder / f"{role}.codes", CODES, files) for role in ROLES]
        self.ids = [IdFile(folder, role, files) for role in ROLES]
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
            pa.chunked_array([piece.columns[i] for piece in pieces], pa.string()) for i in range(len(ROLES))
        ]
        orders = None, None, self.classes
        with ThreadPoolExecutor(len(ROLES)) as threads:
            coded = list(threads.map(lambda c, r, o: encode(c, r, o, place), columns, ROLES, orders))
        lists = [
            self._declared if i == 2 and self._declared is not None else self.ids[i].append(vocabulary.arrow)
            for i, (_, vocabulary) in enumerate(coded)
        ]
        self._add_run([codes for codes, _ in coded], lists)

    def add_store(self, old: Annotations, n_rows: int) -> None:
        """Keep what is in a store, so many rows at a time; a run's items are consecutive."""
        items = _append(self.ids[0], old.item_vocabulary, n_rows)
        annotators = _append(self.ids[1], old.annotator_vocabulary, n_rows)
        labels = self._declared or _append(self.ids[2], old.class_vocabulary, n_rows)
        for start in range(0, old.n_labels, n_rows):
            rows = slice(start, start + n_rows)
            item = old.item[rows]
            own = range(items.start + int(item[0]), items.start + int(item[-1]) + 1)
            self._add_run([item - item[0], old.annotator[rows], old.label[rows]], [own, annotators, labels])

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
