"""The one data structure: who gave which item which label.

A label row is a triple (item, annotator, label) of integer codes; three vocabularies turn codes back into
the ids and classes the user knows. Rows are kept in one canonical order (by item, annotator, label), so the
order of the input never reaches a model. Everything is checked here, once; models and kernels trust it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError, bad_parameter, setting
from dissensus.labels.display import Shown
from dissensus.labels.kinds import LabelType, check_label_type, refuse_wrong_kind
from dissensus.labels.rows import (
    DUPLICATE_POLICIES,
    Duplicates,
    aligned,
    checked_counts,
    checked_ids,
    column_of,
    counted,
    gold_labels,
    repeats_note,
    resolved_rows,
    side_table,
    unused_notes,
    with_rows,
)
from dissensus.labels.vocabulary import (
    Codes,
    Place,
    Vocabulary,
    encode,
    numbers_of,
    ordered_vocabulary,
    places,
    quoted,
)
from dissensus.numerics import pointers, tally

PIECE = 1 << 18  # labels, about, that are counted at a time
PRIOR_STRENGTHS = np.geomspace(0.1, 300, 33)  # labels that the crowd's shares may be worth
UNKNOWN_PRIOR_STRENGTH = 1.5  # labels, where no item has two of them, so that nothing tells
ITEMS_LOOKED_AT = 1_000  # for the strength of the prior


@dataclass(frozen=True, eq=False, repr=False)
class Annotations(Shown):
    """Labels by identified annotators: frozen, integer-coded, columnar, sorted by item.

    Build it with :func:`dissensus.read_annotations`, :meth:`from_arrays` or :meth:`from_counts`.

    Attributes
    ----------
    item
        (labels,): code of the item of each label.
    annotator
        (labels,): code of the annotator of each label.
    label
        (labels,): code of the class of each label.
    item_vocabulary
        Item ids by code.
    annotator_vocabulary
        Annotator ids by code.
    class_vocabulary
        Class names by code.
    item_table
        What is known about items, one row each in the order of the codes; None if there is no table.
    annotator_table
        The same for annotators.
    gold
        (items,): code of the right class, −1 where it is not known; None if there are no gold labels.
    anonymous
        Whether the source named no annotators (class counts).
    frame_kind
        The kind of data frame that results come in.
    notes
        What the user should know about how the labels were read.
    label_type
        What kind of answer a label is: nominal, ordinal, numeric, multi or pairwise.
    columns_read
        By role (item, annotator, label), the name of the column that was read.
    """

    item: Codes  # (labels,) code of the item of each label row
    annotator: Codes  # (labels,)
    label: Codes  # (labels,)
    item_vocabulary: Vocabulary
    annotator_vocabulary: Vocabulary
    class_vocabulary: Vocabulary
    item_table: pa.Table | None = None  # one row for each item, in the vocabulary's order
    annotator_table: pa.Table | None = None  # one row for each annotator
    gold: Codes | None = None  # (items,) class code, −1 where there is no gold label
    anonymous: bool = False  # True: the source had no annotators (class counts)
    frame_kind: str = "pandas"  # the kind of data frame to give back
    notes: tuple[str, ...] = field(default=())  # what the reader found worth a word
    label_type: LabelType = "nominal"  # what kind of answer a label is: see labels/kinds.py
    columns_read: Mapping[str, str] = field(default_factory=dict)  # by role, the source's column (item: "id")
    n_items: int = field(init=False)  # those without labels included
    n_annotators: int = field(init=False)
    n_classes: int = field(init=False)
    n_labels: int = field(init=False)  # label rows

    def __post_init__(self) -> None:
        sizes = ("n_items", "n_annotators", "n_classes", "n_labels")
        for size, n in zip(sizes, (*map(len, self.vocabularies), len(self.item)), strict=True):
            object.__setattr__(self, size, n)
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
        place: Place = "row {}".format,
        notes: Sequence[str] = (),
        label_type: LabelType = "nominal",
    ) -> Self:
        """Annotations from three columns of equal length.

        ``classes`` declares the class set and its order, ``label_type`` what kind of answer a label is (here
        nothing is guessed). ``items``, ``annotators`` and ``gold`` are side
        tables (Arrow, a data frame, or columns by name) whose first column holds the ids; items that nobody
        labelled join the vocabulary.
        ``place`` says where a row stands in the source, for the error that names it.

        Parameters
        ----------
        item
            Item id of each label.
        annotator
            Annotator id of each label.
        label
            Class of each label.
        classes
            The class set in its order; without it, the classes that occur, sorted.
        items
            Side table of items; its first column holds the ids.
        annotators
            Side table of annotators.
        gold
            Side table of reference labels: item, label.
        duplicates
            When an annotator labels an item more than once: ``"keep"`` all, the ``"first"``, the
            ``"last"``, or ``"error"``.
        frame_kind
            The kind of data frame that results come in: ``"pandas"``, ``"polars"`` or ``"pyarrow"``.
        place
            A function that says where a row stands in its source, for messages.
        notes
            Remarks to carry along.
        label_type
            What kind of answer a label is.
        """
        if duplicates not in DUPLICATE_POLICIES:
            raise bad_parameter("Annotations", "duplicates", f"one of {DUPLICATE_POLICIES}", duplicates)
        lengths = len(item), len(annotator), len(label)
        if len(set(lengths)) != 1:
            raise DataError(
                f"item, annotator and label columns differ in length ({', '.join(map(str, lengths))}); "
                "give one value of each per label"
            )
        if not lengths[0]:
            raise DataError("there is no label in the data; give at least one (item, annotator, label) row")
        with ThreadPoolExecutor(3) as threads:
            columns = ((item, "item", None), (annotator, "annotator", None), (label, "label", classes))
            jobs = [threads.submit(encode, *column, place) for column in columns]
        coded_items, coded_annotators, coded_labels = (job.result() for job in jobs)
        rows, left_out = resolved_rows(coded_items, coded_annotators, coded_labels, duplicates, place)
        vocabularies = coded_items[1], coded_annotators[1], coded_labels[1]
        notes = (*notes, *repeats_note(left_out, duplicates))
        annotations = cls(*rows, *vocabularies, frame_kind=frame_kind, notes=notes)
        annotations = annotations.with_label_type(label_type)
        return annotations.with_tables(items, annotators, gold, new_classes=classes is None)

    @classmethod
    def from_counts(
        cls,
        counts: Any,
        *,
        items: Any = None,
        classes: Any = None,
        frame_kind: str = "pandas",
        place: Place = "row {}".format,
        notes: Sequence[str] = (),
    ) -> Self:
        """Annotations without annotators from an (items, classes) table of counts.

        Every label is its own (item, annotator) pair; models that need annotators refuse such data. Classes
        keep the order of the columns.

        Parameters
        ----------
        counts
            (items, classes): how often each class was given to each item.
        items
            Item ids; without them, numbers from 0.
        classes
            Class names; without them, numbers from 0.
        frame_kind
            The kind of data frame that results come in.
        place
            A function that says where a row stands in its source, for messages.
        notes
            Remarks to carry along.
        """
        table = checked_counts(counts, place)
        M, P = table.shape
        ids = np.arange(M) if items is None else items
        names = ordered_vocabulary(np.arange(P) if classes is None else classes, "label")
        if (len(ids), len(names)) != (M, P):
            raise DataError(f"{len(ids)} items and {len(names)} classes name a {M} × {P} table of counts")
        vocabulary = Vocabulary(checked_ids(pa.table({"item": Vocabulary(ids, "item").arrow}), "item", place))
        codes, vocabulary = encode(vocabulary, "item")
        table = table[np.argsort(codes)]
        item = np.repeat(np.arange(M, dtype=np.int32), table.sum(axis=1))
        place_in_item = np.arange(len(item)) - np.repeat(pointers(item, M)[:-1], table.sum(axis=1))
        nobody = [f"label {i + 1}" for i in range(int(place_in_item.max()) + 1)]
        return cls(
            item,
            place_in_item.astype(np.int32),
            np.repeat(np.tile(np.arange(P, dtype=np.int32), M), table.ravel()),
            vocabulary,
            Vocabulary(nobody, "annotator"),
            names,
            anonymous=True,
            frame_kind=frame_kind,
            notes=(*notes, "class counts name no annotators: only item-side models apply"),
        )

    def with_tables(
        self,
        items: Any = None,
        annotators: Any = None,
        gold: Any = None,
        *,
        new_classes: bool = True,
        places: Mapping[str, Place] | None = None,
    ) -> Self:
        """The same labels with side tables joined by id (the first column of each table).

        ``new_classes``: whether a gold label that no annotator gave joins the classes or is an error.
        ``places`` (by "items", "annotators", "gold") say where a row stands in its source.

        Parameters
        ----------
        items
            Side table of items; its first column holds the ids.
        annotators
            Side table of annotators.
        gold
            Side table of reference labels: item, label.
        new_classes
            Whether a gold label that no annotator gave joins the classes, or is an error.
        places
            By table, a function that says where a row stands in its source.
        """
        names = {"items": "item", "annotators": "annotator", "gold": "gold"}
        place: dict[str, Place] = {name: f"{what} table row {{}}".format for name, what in names.items()}
        place |= places or {}
        result = self
        if items is not None:
            result = result._with_items(side_table(items, "items"), place["items"])
        if annotators is not None:
            result = result._with_annotators(side_table(annotators, "annotators"), place["annotators"])
        if gold is not None:
            result = result._with_gold(side_table(gold, "gold", 2), place["gold"], new_classes)
        return result

    def _with_items(self, table: pa.Table, place: Place) -> Self:
        """Item ids that carry no label join the vocabulary, in its order."""
        ids = checked_ids(table, "item", place)
        codes, vocabulary = self.item_vocabulary.extended(ids)
        table, _, without_row = aligned(table, ids, vocabulary)
        notes = counted(
            (len(vocabulary) - self.n_items, "{} of the item table {have} no label", "item"),
            (without_row, "{} {have} no row in the item table", "item"),
        )
        gold = None
        if self.gold is not None:
            gold = np.full(len(vocabulary), -1, dtype=np.int32)
            gold[codes] = self.gold
        known = {"item_vocabulary": vocabulary, "item_table": table, "gold": gold}
        rows = codes[self.item], self.annotator, self.label
        return with_rows(self, *rows, **known, notes=(*self.notes, *notes))

    def _with_annotators(self, table: pa.Table, place: Place) -> Self:
        if self.anonymous:
            raise DataError(
                "the labels name no annotators, so an annotator table cannot be joined; leave it out"
            )
        ids = checked_ids(table, "annotator", place)
        table, strangers, without_row = aligned(table, ids, self.annotator_vocabulary)
        notes = counted(
            (strangers, "{} of the annotator table gave no label and {are} left out", "annotator"),
            (without_row, "{} {have} no row in the annotator table", "annotator"),
        )
        return replace(self, annotator_table=table, notes=(*self.notes, *notes))

    def _with_gold(self, table: pa.Table, place: Place, new_classes: bool) -> Self:
        item, label, rows = gold_labels(table, place)
        if not new_classes:
            encode(label, "label", order=self.class_vocabulary, place=lambda row: place(int(rows[row])))
        codes, classes = self.class_vocabulary.extended(label)
        unseen = unused_notes(label, classes, codes, lambda row: place(int(rows[row])))
        items = self.item_vocabulary.codes(item)
        known = items >= 0
        gold = np.full(self.n_items, -1, dtype=np.int32)
        gold[items[known]] = classes.codes(label)[known]
        strangers = int((~known).sum())
        notes = counted(
            (strangers, "{} {are} for items that are not in the data and {are} left out", "gold label")
        )
        notes = (*self.notes, *unseen, *notes)
        return replace(self, label=codes[self.label], class_vocabulary=classes, gold=gold, notes=notes)

    def with_label_type(self, label_type: LabelType) -> Self:
        """The same labels as another kind of answer: nominal, ordinal, numeric, multi or pairwise.

        Parameters
        ----------
        label_type
            ``"nominal"``, ``"ordinal"``, ``"numeric"``, ``"multi"`` or ``"pairwise"``.
        """
        check_label_type("with_label_type", label_type)
        same = replace(self, label_type=label_type)
        refuse_wrong_kind(same)
        return same

    # ---- what is in it --------------------------------------------------------------------------------

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
    def class_values(self) -> NDArray[np.float64] | None:
        """(classes,): the number that each class is; None where some class is no number."""
        values = numbers_of(self.class_vocabulary.arrow)
        return None if values is None else _frozen(values)

    @property
    def values(self) -> NDArray[np.float64]:
        """(labels,): each label as a number; of ordered words, their places from 0."""
        numbers = np.arange(float(self.n_classes)) if self.class_values is None else self.class_values
        return numbers[self.label]

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """(items, classes): how often each class was given to each item."""
        M, P = self.n_items, self.n_classes
        counts = np.zeros((M, P), np.int64)
        for rows in self.pieces():
            item, label = self.item[rows], self.label[rows]
            own = slice(item[0], item[-1] + 1)
            cells = (item - item[0]) * np.int64(P) + label
            counts[own] = np.bincount(cells, minlength=(own.stop - own.start) * P).reshape(-1, P)
        return _frozen(counts)

    @cached_property
    def item_pointers(self) -> NDArray[np.int64]:
        """(items + 1,): the rows of item m are ``item_pointers[m]:item_pointers[m + 1]``."""
        return _frozen(pointers(self.item, self.n_items))

    @cached_property
    def annotator_load(self) -> NDArray[np.int64]:
        """(annotators,): number of labels of each annotator."""
        return _frozen(tally(self.annotator, self.n_annotators))

    @cached_property
    def class_counts(self) -> NDArray[np.int64]:
        """(classes,): number of labels of each class."""
        return _frozen(tally(self.label, self.n_classes))

    @cached_property
    def prior_strength(self) -> float:
        """Number of labels of an item that tell as much about it as the crowd's shares do.

        Where items' distributions are Dir(w p̄), counts have the likelihood Π_m Γ(w) / Γ(w + n_m) Π_p Γ(w p̄_p
        + c_mp) / Γ(w p̄_p); w is the best of a grid. Where no item has two labels, it is 1.5.
        """
        from scipy.special import gammaln

        some = np.unique(np.linspace(0, self.n_items - 1, ITEMS_LOOKED_AT).astype(np.int64))
        item, rows = self.rows_of_items(some)
        M, P = len(some), self.n_classes
        counts = np.bincount(item * np.int64(P) + self.label[rows], minlength=M * P).reshape(M, P)
        sizes = counts.sum(axis=1)
        if sizes.max(initial=0) < 2:
            return UNKNOWN_PRIOR_STRENGTH
        shares = counts.sum(axis=0) / counts.sum()
        # Items with equally many labels, and cells of one class with equally many, have the same term.
        n, n_items = np.unique(sizes, return_counts=True)
        cells, n_cells = np.unique((counts * P + np.arange(P))[counts > 0], return_counts=True)
        c, p = np.divmod(cells, P)
        fits = np.empty(len(PRIOR_STRENGTHS))
        for place, w in enumerate(PRIOR_STRENGTHS):
            alpha = w * shares[p]
            told = n_cells @ (gammaln(alpha + c) - gammaln(alpha))
            fits[place] = told - n_items @ (gammaln(w + n) - gammaln(w))
        return float(PRIOR_STRENGTHS[fits.argmax()])

    @cached_property
    def pair(self) -> NDArray[np.int64]:
        """(labels,): number of the (item, annotator) pair each row belongs to, counted in row order."""
        new = self._new_pairs(slice(None))
        return _frozen(np.concatenate([[0], np.cumsum(new)]) if self.n_labels else np.zeros(0, np.int64))

    @cached_property
    def n_pairs(self) -> int:
        """Number of distinct (item, annotator) pairs."""
        return sum(1 + int(self._new_pairs(rows).sum()) for rows in self.pieces())

    def _new_pairs(self, rows: slice) -> NDArray[np.bool_]:
        """(rows − 1,): True where a row is of another pair than the one before it."""
        new: NDArray[np.bool_] = (np.diff(self.item[rows]) != 0) | (np.diff(self.annotator[rows]) != 0)
        return new

    @property
    def columns(self) -> tuple[Codes, Codes, Codes]:
        """Item, annotator and label of every row."""
        return self.item, self.annotator, self.label

    @property
    def vocabularies(self) -> tuple[Vocabulary, Vocabulary, Vocabulary]:
        """What the codes of items, annotators and labels stand for."""
        return self.item_vocabulary, self.annotator_vocabulary, self.class_vocabulary

    def pieces(self) -> Iterator[slice]:
        """All rows, some whole items at a time: what is computed by them takes no memory for every label."""
        starts = self.item_pointers
        marks = starts[np.searchsorted(starts, np.arange(PIECE, self.n_labels, PIECE))]
        cuts = np.unique(np.concatenate([[0], marks, [self.n_labels]])).tolist()
        for first, stop in itertools.pairwise(cuts):
            yield slice(first, stop)

    def item_column(self, name: str) -> NDArray[Any]:
        """A column of the item table, one value for each item.

        Parameters
        ----------
        name
            A column of the item table.
        """
        return column_of(self.item_table, name, "item")

    def with_text_column(self, name: str) -> Self:
        """The same labels, this column of the item table called ``text``.

        Parameters
        ----------
        name
            A column of the item table.
        """
        self.item_column(name)  # which says what is missing
        assert self.item_table is not None
        names = [one for one in self.item_table.column_names if one == name or one != "text"]
        renamed = ["text" if one == name else one for one in names]
        return replace(self, item_table=self.item_table.select(names).rename_columns(renamed))

    def annotator_column(self, name: str) -> NDArray[Any]:
        """A column of the annotator table, one value for each annotator.

        Parameters
        ----------
        name
            A column of the annotator table.
        """
        return column_of(self.annotator_table, name, "annotator")

    def fingerprint(self) -> str:
        """A text that changes with any label, any id, and the side tables an estimator may read (SHA-256)."""
        digest = hashlib.sha256(self.label_type.encode())
        for codes in self.columns:
            digest.update(codes.astype("<i4").tobytes())
        for name, vocabulary in zip(("item", "annotator", "class"), self.vocabularies, strict=True):
            digest.update(_bytes_of(pa.table({name: vocabulary.arrow})))
        for table in (self.item_table, self.annotator_table):
            digest.update(b"" if table is None else _bytes_of(table))
        return digest.hexdigest()

    def __len__(self) -> int:
        return self.n_items

    @property
    def shape(self) -> tuple[int]:
        """(items,): what scikit-learn asks of a target that is indexed by item."""
        return (self.n_items,)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """(items,): each item's most common label (the first in class order of several).

        What is made for plain labels (scikit-learn's accuracy, say, or a stratified split) sees these.
        """
        bare = np.flatnonzero(np.diff(self.item_pointers) == 0)
        if len(bare):
            raise DataError(f"item {quoted(self.items[bare[0]])} has no label; leave such items out")
        best: NDArray[Any] = self.classes[self.counts.argmax(axis=1)]
        return best if dtype is None else best.astype(dtype)

    def __repr__(self) -> str:
        return (
            f"Annotations({self.n_items:,} items, {self.n_annotators:,} annotators, "
            f"{self.n_labels:,} labels, {self.n_classes} classes)"
        )

    def _head(self, n: int | None) -> dict[str, Any]:
        """One row for each label; who gave it, where that is known."""
        who = {} if self.anonymous else {"annotator": self.annotators[self.annotator[:n]]}
        return {"item": self.items[self.item[:n]], **who, "label": self.classes[self.label[:n]]}

    # ---- parts of it ----------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Self:
        """The labels of some items (a slice, mask, or item codes), the items in the order given."""
        codes = np.arange(self.n_items)[index]
        return self.take_items(np.atleast_1d(codes))

    def rows_of_items(self, codes: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """For each label of the given items, in the order given: its item's place in ``codes``, and its row.

        Parameters
        ----------
        codes
            Codes of items.
        """
        starts, stops = self.item_pointers[codes], self.item_pointers[codes + 1]
        lengths = stops - starts
        place = np.repeat(np.arange(len(codes), dtype=np.int32), lengths)
        first = np.concatenate([[0], np.cumsum(lengths)])[:-1]
        return place, np.arange(len(place)) - np.repeat(first - starts, lengths)

    def take_items(self, codes: NDArray[Any]) -> Self:
        """The labels of the given items, in the order given; other vocabularies stay.

        Parameters
        ----------
        codes
            Codes of the items to keep, in the new order.
        """
        codes = np.asarray(codes, dtype=np.int64)
        item, rows = self.rows_of_items(codes)
        return with_rows(
            self,
            item,
            self.annotator[rows],
            self.label[rows],
            item_vocabulary=self.item_vocabulary.take(codes),
            item_table=None if self.item_table is None else self.item_table.take(places(codes)),
            gold=None if self.gold is None else self.gold[codes],
            notes=(),
        )

    def take_rows(self, mask: NDArray[np.bool_]) -> Self:
        """Some of the label rows; every vocabulary and side table stays.

        Parameters
        ----------
        mask
            (labels,): which label rows to keep.
        """
        return with_rows(self, self.item[mask], self.annotator[mask], self.label[mask], notes=())

    def split_labels(self, test_size: float = 0.2, seed: int = 0) -> tuple[Self, Self]:
        """Hide a share of the (item, annotator) pairs, with every label of a hidden pair.

        Returns (kept, hidden); both keep the vocabularies.

        Parameters
        ----------
        test_size
            Share of the (item, annotator) pairs that is hidden.
        seed
            Seed of the random numbers. The same seed gives the same result, to the last bit.
        """
        if not 0 < test_size < 1:
            raise bad_parameter("split_labels", "test_size", "a float > 0 and < 1", test_size)
        n_hidden = round(test_size * self.n_pairs)
        if n_hidden == self.n_pairs > 0:
            raise DataError(
                f"a {setting('test_size', test_size)} hides all {n_hidden:,} labels; hide a smaller share"
            )
        chosen = np.random.default_rng(seed).permutation(self.n_pairs)[:n_hidden]
        hidden = np.zeros(self.n_pairs, dtype=bool)
        hidden[chosen] = True
        row_hidden = hidden[self.pair] if self.n_labels else np.zeros(0, dtype=bool)
        return self.take_rows(~row_hidden), self.take_rows(row_hidden)

    def split_items(
        self, shares: Mapping[str, float] | None = None, *, seed: int = 0, column: str = "split"
    ) -> dict[str, Self]:
        """Parts by item: those of the item table's ``column``, or seeded parts of the given shares.

        Items whose ``column`` is blank belong to no part, nor do those left over by shares below 1 in sum.

        Parameters
        ----------
        shares
            Name and share of each part, such as ``{"train": 0.8, "test": 0.2}``; None takes the column.
        seed
            Seed of the random numbers. The same seed gives the same result, to the last bit.
        column
            The column of the item table that names the parts.
        """
        if shares is None:
            names = self.item_column(column)
            parts = [name for name in dict.fromkeys(names.tolist()) if name not in (None, "")]
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


def _bytes_of(table: pa.Table) -> pa.Buffer:
    whole = table.replace_schema_metadata(None).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    return sink.getvalue()


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
