"""The one data structure: who gave which item which label.

A label row is a triple (item, annotator, label) of integer codes; three vocabularies turn codes back into
the ids and classes the user knows. Rows are kept in one canonical order (by item, annotator, label), so the
order of the input never reaches a model. Everything is checked here, once; models and kernels trust it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError, ParameterError, bad_parameter
from dissensus.vocabulary import Codes, Vocabulary, encode, to_arrow

Duplicates = Literal["keep", "first", "last", "error"]
DUPLICATE_POLICIES: tuple[Duplicates, ...] = ("keep", "first", "last", "error")


@dataclass(frozen=True, eq=False, repr=False)
class Annotations:
    """Labels by identified annotators: frozen, integer-coded, columnar, sorted by item.

    Build it with :func:`dissensus.read_annotations`, :meth:`from_arrays` or :meth:`from_counts`.
    """

    item: Codes  # (labels,) code of the item of each label row
    annotator: Codes  # (labels,)
    label: Codes  # (labels,)
    item_vocabulary: Vocabulary
    annotator_vocabulary: Vocabulary
    class_vocabulary: Vocabulary
    item_table: pa.Table | None = None  # one row an item, in the vocabulary's order
    annotator_table: pa.Table | None = None  # one row an annotator
    gold: Codes | None = None  # (items,) class code, −1 where there is no gold label
    anonymous: bool = False  # True: the source had no annotators (class counts)
    frame_kind: str = "pandas"  # the kind of data frame to give back
    notes: tuple[str, ...] = field(default=())  # what the reader found worth a word

    def __post_init__(self) -> None:
        for column in (self.item, self.annotator, self.label, self.gold):
            if column is not None:
                column.setflags(write=False)

    # ---- building -------------------------------------------------------------------------------------

    @classmethod
    def from_arrays(
        cls,
        item: Any,
        annotator: Any,
        label: Any,
        *,
        classes: Sequence[Any] | None = None,
        items: Any = None,
        annotators: Any = None,
        gold: Any = None,
        duplicates: Duplicates = "keep",
        frame_kind: str = "pandas",
        place: Callable[[int], str] = "row {}".format,
        notes: Sequence[str] = (),
    ) -> Self:
        """Annotations from three columns of equal length.

        ``classes`` declares the class set and its order. ``items``, ``annotators`` and ``gold`` are side
        tables (Arrow) whose first column holds the ids; items that nobody labelled join the vocabulary.
        """
        if duplicates not in DUPLICATE_POLICIES:
            raise bad_parameter("Annotations", "duplicates", f"one of {DUPLICATE_POLICIES}", duplicates)
        columns = (item, annotator, label)
        lengths = [len(column) for column in columns]
        if len(set(lengths)) != 1:
            raise DataError(
                "item, annotator and label columns differ in length "
                f"({', '.join(map(str, lengths))}); give one value of each per label"
            )
        if not lengths[0]:
            raise DataError("there is no label in the data; give at least one (item, annotator, label) row")
        item_codes, item_vocabulary = encode(item, "item", place=place)
        annotator_codes, annotator_vocabulary = encode(annotator, "annotator", place=place)
        label_codes, class_vocabulary = encode(label, "label", order=classes, place=place)
        rows = _canonical(
            item_codes,
            annotator_codes,
            label_codes,
            (len(item_vocabulary), len(annotator_vocabulary), len(class_vocabulary)),
            duplicates,
            lambda row: f"{place(row)}: item {item[row]} and annotator {annotator[row]}",
        )
        annotations = cls(
            *rows,
            item_vocabulary,
            annotator_vocabulary,
            class_vocabulary,
            frame_kind=frame_kind,
            notes=tuple(notes),
        )
        return annotations.with_tables(items=items, annotators=annotators, gold=gold)

    @classmethod
    def from_counts(
        cls,
        counts: Any,
        *,
        items: Any = None,
        classes: Any = None,
        frame_kind: str = "pandas",
        notes: Sequence[str] = (),
    ) -> Self:
        """Annotations without annotators from an (items, classes) table of counts.

        Every label is its own (item, annotator) pair; models that need annotators refuse such data.
        """
        table = _checked_counts(counts)
        M, P = table.shape
        ids = Vocabulary(np.arange(M) if items is None else items, "item")
        names = Vocabulary(np.arange(P) if classes is None else classes, "label")
        if (len(ids), len(names)) != (M, P):
            raise DataError(f"{len(ids)} items and {len(names)} classes name a {M} × {P} table of counts")
        order = np.asarray(np.argsort(ids.ids, kind="stable"))
        table, ids = table[order], ids.take(order)
        item = np.repeat(np.arange(M, dtype=np.int32), table.sum(axis=1))
        label = np.repeat(np.tile(np.arange(P, dtype=np.int32), M), table.ravel())
        place_in_item = np.arange(len(item)) - np.repeat(_pointers(item, M)[:-1], table.sum(axis=1))
        n_places = int(place_in_item.max()) + 1
        anonymous = Vocabulary([f"label {i + 1}" for i in range(n_places)], "annotator")
        return cls(
            item,
            place_in_item.astype(np.int32),
            label,
            ids,
            anonymous,
            names,
            anonymous=True,
            frame_kind=frame_kind,
            notes=(*notes, "class counts name no annotators: only item-side models apply"),
        )

    def with_tables(self, items: Any = None, annotators: Any = None, gold: Any = None) -> Self:
        """The same labels with side tables joined by id (the first column of each Arrow table)."""
        result = self
        if gold is not None:
            result = result._with_new_classes(gold.column(1))
        if items is not None:
            result = result._with_new_items(items.column(0))
            result = replace(result, item_table=_aligned(items, result.item_vocabulary, "item"))
        if annotators is not None:
            result = replace(
                result, annotator_table=_aligned(annotators, result.annotator_vocabulary, "annotator")
            )
        if gold is not None:
            result = replace(result, gold=result._gold_codes(gold))
        return result

    def _with_new_items(self, ids: Any) -> Self:
        """Item ids that carry no label join the vocabulary, in its order."""
        known = self.item_vocabulary
        fresh = to_arrow(ids, "item")
        if fresh.type != known.arrow.type:
            raise DataError(
                f"the item table's ids are of type {fresh.type} and those of the labels {known.arrow.type}; "
                "use one type in both"
            )
        unlabelled = fresh.filter(pa.array(known.codes(fresh) < 0)).unique()
        if not len(unlabelled):
            return self
        codes, vocabulary = encode(pa.concat_arrays([known.arrow, unlabelled]), "item")
        note = f"{len(unlabelled)} items of the item table have no label"
        return replace(
            self,
            item=codes[: len(known)][self.item],
            item_vocabulary=vocabulary,
            notes=(*self.notes, note),
        )

    def _with_new_classes(self, labels: Any) -> Self:
        """Gold labels that nobody gave join the classes, in code-point order."""
        known = self.class_vocabulary
        fresh = to_arrow(labels, "label")
        fresh = fresh.filter(fresh.is_valid())
        unseen = fresh.filter(pa.array(known.codes(fresh) < 0)).unique()
        if not len(unseen):
            return self
        unseen = unseen.cast(known.arrow.type) if unseen.type != known.arrow.type else unseen
        codes, vocabulary = encode(pa.concat_arrays([known.arrow, unseen]), "label")
        names = ", ".join(map(str, unseen.to_pylist()[:5]))
        return replace(
            self,
            label=codes[: len(known)][self.label],
            class_vocabulary=vocabulary,
            notes=(*self.notes, f"gold has classes that no annotator used: {names}"),
        )

    def _gold_codes(self, table: pa.Table) -> Codes:
        gold = np.full(self.n_items, -1, dtype=np.int32)
        item = self.item_vocabulary.codes(table.column(0))
        label = self.class_vocabulary.codes(table.column(1))
        gold[item[item >= 0]] = label[item >= 0]
        return gold

    # ---- what is in it --------------------------------------------------------------------------------

    @property
    def n_items(self) -> int:
        """Number of items, those without labels included."""
        return len(self.item_vocabulary)

    @property
    def n_annotators(self) -> int:
        """Number of annotators."""
        return len(self.annotator_vocabulary)

    @property
    def n_classes(self) -> int:
        """Number of label classes."""
        return len(self.class_vocabulary)

    @property
    def n_labels(self) -> int:
        """Number of label rows."""
        return len(self.item)

    @property
    def items(self) -> NDArray[Any]:
        """Item ids in order."""
        return self.item_vocabulary.ids

    @property
    def annotators(self) -> NDArray[Any]:
        """Annotator ids in order."""
        return self.annotator_vocabulary.ids

    @property
    def classes(self) -> NDArray[Any]:
        """Class names in order."""
        return self.class_vocabulary.ids

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(items, classes): how often each class was given to each item."""
        M, P = self.n_items, self.n_classes
        return _frozen(np.bincount(self.item * np.int64(P) + self.label, minlength=M * P).reshape(M, P))

    @cached_property
    def item_pointers(self) -> NDArray[np.int64]:
        """(items + 1,): the rows of item m are ``item_pointers[m]:item_pointers[m + 1]``."""
        return _frozen(_pointers(self.item, self.n_items))

    @cached_property
    def by_annotator(self) -> NDArray[np.int64]:
        """(labels,): the row numbers sorted by annotator, ties by item."""
        return _frozen(np.argsort(self.annotator, kind="stable"))

    @cached_property
    def annotator_pointers(self) -> NDArray[np.int64]:
        """(annotators + 1,): the rows of annotator n are ``by_annotator[pointers[n]:pointers[n + 1]]``."""
        return _frozen(np.concatenate([[0], np.cumsum(self.annotator_load)]))

    @cached_property
    def annotator_load(self) -> NDArray[np.int64]:
        """(annotators,): number of labels of each annotator."""
        return _frozen(np.bincount(self.annotator, minlength=self.n_annotators))

    @cached_property
    def pair(self) -> NDArray[np.int64]:
        """(labels,): number of the (item, annotator) pair each row belongs to, counted in row order."""
        new = (np.diff(self.item) != 0) | (np.diff(self.annotator) != 0)
        return _frozen(np.concatenate([[0], np.cumsum(new)]) if self.n_labels else np.zeros(0, np.int64))

    @property
    def n_pairs(self) -> int:
        """Number of distinct (item, annotator) pairs."""
        return int(self.pair[-1]) + 1 if self.n_labels else 0

    def item_column(self, name: str) -> NDArray[Any]:
        """A column of the item table, one value an item."""
        return _column(self.item_table, name, "item")

    def annotator_column(self, name: str) -> NDArray[Any]:
        """A column of the annotator table, one value an annotator."""
        return _column(self.annotator_table, name, "annotator")

    def __len__(self) -> int:
        return self.n_items

    @property
    def shape(self) -> tuple[int]:
        """(items,): what scikit-learn asks of a target that is indexed by item."""
        return (self.n_items,)

    def __repr__(self) -> str:
        return (
            f"Annotations({self.n_items:,} items, {self.n_annotators:,} annotators, "
            f"{self.n_labels:,} labels, {self.n_classes} classes)"
        )

    # ---- parts of it ----------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Self:
        """The labels of some items (a slice, mask, or item codes), the items in the order given."""
        codes = np.arange(self.n_items)[index]
        return self.take_items(np.atleast_1d(codes))

    def take_items(self, codes: NDArray[Any]) -> Self:
        """The labels of the given items; annotators and classes keep their vocabularies."""
        starts, stops = self.item_pointers[codes], self.item_pointers[np.asarray(codes) + 1]
        lengths = stops - starts
        item = np.repeat(np.arange(len(codes), dtype=np.int32), lengths)
        first = np.concatenate([[0], np.cumsum(lengths)])[:-1]
        rows = np.arange(len(item)) - np.repeat(first - starts, lengths)
        return replace(
            self,
            item=item,
            annotator=self.annotator[rows],
            label=self.label[rows],
            item_vocabulary=self.item_vocabulary.take(codes),
            item_table=None if self.item_table is None else self.item_table.take(pa.array(codes)),
            gold=None if self.gold is None else self.gold[codes],
            notes=(),
        )

    def take_rows(self, mask: NDArray[np.bool_]) -> Self:
        """Some of the label rows; every vocabulary and side table stays."""
        return replace(
            self, item=self.item[mask], annotator=self.annotator[mask], label=self.label[mask], notes=()
        )

    def split_labels(self, test_size: float = 0.2, seed: int = 0) -> tuple[Self, Self]:
        """Hide a share of the (item, annotator) pairs, with every label of a hidden pair.

        Returns (kept, hidden); both keep the vocabularies.
        """
        if not 0 < test_size < 1:
            raise bad_parameter("split_labels", "test_size", "a float > 0 and < 1", test_size)
        n_hidden = round(test_size * self.n_pairs)
        chosen = np.random.default_rng(seed).permutation(self.n_pairs)[:n_hidden]
        hidden = np.zeros(self.n_pairs, dtype=bool)
        hidden[chosen] = True
        row_hidden = hidden[self.pair] if self.n_labels else np.zeros(0, dtype=bool)
        return self.take_rows(~row_hidden), self.take_rows(row_hidden)

    def split_items(
        self, shares: Mapping[str, float] | None = None, *, seed: int = 0, column: str = "split"
    ) -> dict[str, Self]:
        """Parts by item: those of the item table's ``column``, or seeded parts of the given shares."""
        if shares is None:
            names = self.item_column(column)
            parts = [name for name in dict.fromkeys(names.tolist()) if name is not None]
            return {str(name): self.take_items(np.flatnonzero(names == name)) for name in parts}
        total = sum(shares.values())
        if not shares or min(shares.values()) <= 0 or total > 1 + 1e-9:
            raise bad_parameter("split_items", "shares", "positive and sum to at most 1", dict(shares))
        order = np.random.default_rng(seed).permutation(self.n_items)
        edges = np.round(np.cumsum([0.0, *shares.values()]) * self.n_items).astype(int)
        return {
            name: self.take_items(np.sort(order[edges[i] : edges[i + 1]])) for i, name in enumerate(shares)
        }


# ---- helpers ------------------------------------------------------------------------------------------


def _canonical(
    item: Codes,
    annotator: Codes,
    label: Codes,
    sizes: tuple[int, int, int],
    duplicates: Duplicates,
    place: Callable[[int], str],
) -> tuple[Codes, Codes, Codes]:
    """Rows by item, annotator, label, repeated pairs resolved by the named policy."""
    if duplicates != "keep":
        rows = _one_row_a_pair(item, annotator, sizes[1], duplicates, place)
        item, annotator, label = item[rows], annotator[rows], label[rows]
    M, N, P = sizes
    if M * N * P < 2**63:
        # One integer a row sorts several times faster than three columns, and divides back into them.
        key = (item.astype(np.int64) * N + annotator) * P + label
        if np.any(key[1:] < key[:-1]):
            key.sort()
            pair, label = np.divmod(key, P)
            item, annotator = np.divmod(pair, N)
        return _int32(item), _int32(annotator), _int32(label)
    order = np.lexsort((label, annotator, item))
    return item[order], annotator[order], label[order]


def _one_row_a_pair(
    item: Codes, annotator: Codes, N: int, duplicates: Duplicates, place: Callable[[int], str]
) -> NDArray[np.int64]:
    key = item.astype(np.int64) * N + annotator
    order = np.argsort(key, kind="stable")
    same_as_next = np.append(key[order][1:] == key[order][:-1], False)
    if duplicates == "error" and same_as_next.any():
        second = int(order[np.flatnonzero(same_as_next)[0] + 1])
        raise DataError(
            f"{place(second)} occur together more than once; remove the repeats or choose --duplicates "
            "keep, first or last"
        )
    keep = ~same_as_next if duplicates == "last" else ~np.roll(same_as_next, 1)
    return np.sort(order[keep])


def _checked_counts(counts: Any) -> NDArray[np.int64]:
    table = np.asarray(counts)
    if table.ndim != 2 or not table.size:
        raise DataError(f"class counts must be an (items, classes) table; got shape {table.shape}")
    whole = np.asarray(table, dtype=np.float64)
    if not np.isfinite(whole).all() or (whole < 0).any() or (whole != np.round(whole)).any():
        row = int(np.flatnonzero(~(np.isfinite(whole) & (whole >= 0) & (whole == np.round(whole))).all(1))[0])
        raise DataError(f"row {row}: class counts must be whole numbers of at least 0; correct the row")
    if not whole.any():
        raise DataError("there is no label in the class counts; give at least one count above 0")
    return whole.astype(np.int64)


def _aligned(table: pa.Table, vocabulary: Vocabulary, what: str) -> pa.Table:
    """A side table with one row an id, in the vocabulary's order; null where it has no row."""
    codes = vocabulary.codes(table.column(0))
    if len(np.unique(codes[codes >= 0])) != (codes >= 0).sum():
        repeated = int(np.flatnonzero(np.bincount(codes[codes >= 0], minlength=len(vocabulary)) > 1)[0])
        raise DataError(f"the {what} table has {what} {vocabulary[repeated]!r} twice; keep one row of it")
    rows: NDArray[np.int64] = np.full(len(vocabulary), -1)
    rows[codes[codes >= 0]] = np.flatnonzero(codes >= 0)
    place = pa.array(rows, mask=rows < 0)
    return table.take(place).set_column(0, table.column_names[0], vocabulary.arrow)


def _column(table: pa.Table | None, name: str, what: str) -> NDArray[Any]:
    if table is None:
        raise ParameterError(f"no {what} table was given, so there is no column {name!r}; pass {what}s=")
    if name not in table.column_names:
        known = ", ".join(table.column_names)
        raise ParameterError(f"the {what} table has no column {name!r}; it has {known}")
    values: NDArray[Any] = table.column(name).combine_chunks().to_numpy(zero_copy_only=False)
    return values


def _pointers(sorted_codes: NDArray[Any], n: int) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.bincount(sorted_codes, minlength=n))]).astype(np.int64)


def _int32(codes: NDArray[Any]) -> Codes:
    return codes.astype(np.int32, copy=False)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
