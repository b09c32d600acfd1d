"""Attributes of annotators: columns of the annotator table, with their frequent values or ranges as codes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.numerics import Array

MIN_VALUE_ANNOTATORS, MAX_VALUES = 10, 20  # annotators with a value, and values; others count as missing
QUARTERS = 0.25, 0.5, 0.75


@dataclass(frozen=True)
class Attribute:
    """A column of the annotator table: its frequent values, or four ranges of a number."""

    column: str
    values: list[str]
    ends: list[float]  # largest number of each range but the last; empty if values are not ranges

    @classmethod
    def of(cls, column: str, cells: Iterable[Any]) -> Self:
        """Take the frequent values of a column; a number with more than ``MAX_VALUES`` values has ranges."""
        counts = Counter(text for text in map(as_text, cells) if text)
        numbers = as_numbers(counts)
        if numbers is None or len(counts) <= MAX_VALUES:
            frequent = [text for text, n in counts.most_common(MAX_VALUES) if n >= MIN_VALUE_ANNOTATORS]
            return cls(column, sorted(frequent), [])
        each = np.repeat(numbers, list(counts.values()))
        ends = np.unique(np.quantile(each, QUARTERS, method="lower"))
        ends = ends[ends < each.max()]
        parts = [each[np.searchsorted(ends, each) == part] for part in range(len(ends) + 1)]
        ranges = [sorted({part.min(), part.max()}) for part in parts]
        return cls(column, [" to ".join(f"{end:g}" for end in ends_of) for ends_of in ranges], ends.tolist())

    def code(self, cell: Any) -> int:
        """Return the code of a value; −1 if it is missing or rare."""
        text = as_text(cell)
        if not self.ends or not text:
            return self.values.index(text) if text in self.values else -1
        number = as_numbers([text])
        return -1 if number is None else int(np.searchsorted(self.ends, number[0]))


def as_text(cell: Any) -> str:
    """Return a cell of the annotator table as text, empty if it is missing; 30.0 is 30, as ``"30.0"`` is."""
    if cell is None or cell != cell:
        return ""
    text = str(cell).strip()
    return text[:-2] if text.endswith(".0") and text[:-2].lstrip("-").isdecimal() else text


def as_numbers(texts: Iterable[str]) -> Array | None:
    """Return texts as numbers; None if one of them is not a finite number."""
    try:
        numbers = np.array([float(text) for text in texts])
    except ValueError:
        return None
    return numbers if np.isfinite(numbers).all() else None


def attributes_of(annotations: Annotations, columns: Sequence[str] | None) -> list[Attribute]:
    """Return the attributes in the given columns of the annotator table; None: in all of them."""
    table = annotations.annotator_table
    present = [] if table is None else table.column_names[1:]
    if not present:
        raise DataError("there is no table of annotators; give one: annotators=…")
    absent = [name for name in columns or () if name not in present]
    if absent:
        raise DataError(f"no column {absent[0]!r} in the table of annotators; it has: {', '.join(present)}")
    chosen = present if columns is None else columns
    return [Attribute.of(name, annotations.annotator_column(name)) for name in chosen]


def attribute_codes(annotations: Annotations, attributes: Sequence[Attribute]) -> NDArray[np.intp]:
    """Return (annotators, attributes) codes of the values, −1 where missing or rare, or without a table."""
    codes = np.full((annotations.n_annotators, len(attributes)), -1)
    table = annotations.annotator_table
    for j, attribute in enumerate(attributes):
        if table is not None and attribute.column in table.column_names:
            codes[:, j] = [attribute.code(cell) for cell in annotations.annotator_column(attribute.column)]
    return codes
