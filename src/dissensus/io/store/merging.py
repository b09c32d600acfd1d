"""Sorted lists merged in pieces that fit memory: ids into vocabularies, runs of rows into canonical order.

Every so-manieth element of every list is a sample; some of the sorted samples are cuts. What lies between two
cuts is found in each list by bisection, is read from all of them, and is small: sorting it is all the merging
there is.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from dissensus.data.rows import Duplicates, Rows, canonical_rows, one_row_a_pair
from dissensus.data.vocabulary import Codes, encode
from dissensus.errors import DataError
from dissensus.io.store.budget import ROW, Budget
from dissensus.io.store.raw import IdFile, NumberFile
from dissensus.io.store.spool import Run, Spool

_MOST_CODES = (1 << 31) - 1

NamePair = Callable[[int, int], str]  # the words for an item's and an annotator's code


def partitions(lists: Sequence[range], key: Callable[[int], Any], most: int) -> Iterator[list[range]]:
    """Parts of sorted lists, one of each list, with the same keys apart from all other parts.

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
    spooled: IdFile, lists: Sequence[range], merged: IdFile, codes: NumberFile, what: str, budget: Budget
) -> None:
    """All lists' ids, sorted, into ``merged``; the code there of every spooled id into ``codes``."""
    most = max(1, min(budget.rows, budget.text // spooled.mean_bytes))
    for parts in partitions(list(dict.fromkeys(lists)), spooled.key, most):
        found, vocabulary = encode(pa.concat_arrays([spooled.read(part) for part in parts]), what)
        found += np.int32(min(len(merged), _MOST_CODES))
        merged.append(vocabulary.arrow)
        ends = np.cumsum([len(part) for part in parts])
        for part, own in zip(parts, np.split(found, ends[:-1]), strict=True):
            codes.write(part.start, own)
    if len(merged) > _MOST_CODES:
        raise DataError(f"there are {len(merged):,} {what}s, more than 2 billion; split the files")


@dataclass
class Merger:
    """Runs of rows on their way to canonical order."""

    spool: Spool
    codes: Sequence[NumberFile | None]  # of items, annotators, labels: the code of every spooled id
    sizes: tuple[int, int, int]  # of the vocabularies
    duplicates: Duplicates
    name_pair: NamePair
    left_out: int = 0  # rows that the policy for duplicates has left out so far

    def sort_run(self, run: Run) -> range:
        """Code the run's rows for good, sort them, and write them back; the rows that are left."""
        rows = [self._recoded(i, column, run) for i, column in enumerate(self.spool.read(run.rows))]
        columns = self._canonical(rows[0], rows[1], rows[2])
        for file, column in zip(self.spool.codes, columns, strict=True):
            file.write(run.rows.start, column)
        return range(run.rows.start, run.rows.start + len(columns[0]))

    def _recoded(self, i: int, column: Codes, run: Run) -> Codes:
        codes = self.codes[i]
        recoded: Codes = column if codes is None else codes.read(run.lists[i])[column]
        return recoded

    def blocks(self, runs: Sequence[range], budget: Budget) -> Iterator[Rows]:
        """All rows in canonical order, in blocks of whole items."""
        items = self.spool.codes[0]
        for parts in partitions(runs, lambda row: int(items.read(range(row, row + 1))[0]), budget.rows):
            n_rows = sum(map(len, parts))
            if n_rows > 2 * budget.rows:
                self._refuse_block(parts, n_rows, budget)
            pieces = [self.spool.read(part) for part in parts if len(part)]
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
