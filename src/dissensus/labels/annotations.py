"""``Annotations``, the data structure of labels: which annotator gave which item which label.

A label row is a triple (item, annotator, label) of integer codes; three vocabularies map codes to the user's
ids and classes. Rows are in canonical order (by item, annotator, label), so that results do not depend on the
order of the input. All checks are made here, once; models and kernels rely on them.
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
from dissensus.labels import vocabulary as vocab
from dissensus.labels.display import TableResult
from dissensus.labels.kinds import LabelType, check_label_type, check_labels
from dissensus.labels.rows import (
    DUPLICATE_POLICIES,
    Duplicates,
    align_table,
    check_counts,
    check_ids,
    count_notes,
    gold_labels,
    repeats_note,
    resolve_duplicates,
    side_table,
    table_column,
    unused_class_notes,
)
from dissensus.numerics import pointers, tally

LABELS_PER_CHUNK = 1 << 18  # approximate; chunks end between items
PRIOR_STRENGTHS = np.geomspace(0.1, 300, 33)  # grid of prior weights, in labels
DEFAULT_PRIOR_STRENGTH = 1.5  # where no item has two labels to learn it from
MAX_PRIOR_ITEMS = 1_000  # items used to learn the prior strength


@dataclass(frozen=True, eq=False, repr=False)
class Annotations(TableResult):
    """Labels by annotators: immutable, integer-coded, columnar, sorted by item.

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
        Side table of items, one row each in the order of the codes; None if there is none.
    annotator_table
        Side table of annotators, likewise.
    gold
        (items,): code of the true class, −1 where unknown; None if there are no gold labels.
    anonymous
        True if the source did not name annotators (class counts).
    frame_kind
        Kind of data frame in which results are returned.
    notes
        Remarks for the user on how the labels were read.
    label_type
        Type of the labels: nominal, ordinal, numeric, multi or pairwise.
    columns_read
        Name of the column that was read, by role (item, annotator, label).
    """

    item: vocab.Codes
    annotator: vocab.Codes
    label: vocab.Codes
    item_vocabulary: vocab.Vocabulary
    annotator_vocabulary: vocab.Vocabulary
    class_vocabulary: vocab.Vocabulary
    item_table: pa.Table | None = None
    annotator_table: pa.Table | None = None
    gold: vocab.Codes | None = None
    anonymous: bool = False
    frame_kind: str = "pandas"
    notes: tuple[str, ...] = field(default=())
    label_type: LabelType = "nominal"
    columns_read: Mapping[str, str] = field(default_factory=dict)
    n_items: int = field(init=False)  # including items without labels
    n_annotators: int = field(init=False)
    n_classes: int = field(init=False)
    n_labels: int = field(init=False)  # number of label rows

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
        locate: vocab.Locate = "row {}".format,
        notes: Sequence[str] = (),
        label_type: LabelType = "nominal",
    ) -> Self:
        """Build annotations from three columns of equal length.

        ``items``, ``annotators`` and ``gold`` are side tables (Arrow, a data frame, or columns by name) whose
        first column holds the ids; items without labels are added to the vocabulary.

        Parameters
        ----------
        item
            Item id of each label.
        annotator
            Annotator id of each label.
        label
            Class of each label.
        classes
            Class set in its order; by default, the sorted classes that occur.
        items
            Side table of items; its first column holds the ids.
        annotators
            Side table of annotators.
        gold
            Side table of reference labels: item, label.
        duplicates
            Policy for repeated labels of a pair: ``"keep"`` all, the ``"first"``, the ``"last"``, or
            ``"error"``.
        frame_kind
            Kind of data frame for results: ``"pandas"``, ``"polars"`` or ``"pyarrow"``.
        locate
            Function that describes a row of the source in messages.
        notes
            Remarks to attach.
        label_type
            Type of the labels; it is not inferred here.
        """
        if duplicates not in DUPLICATE_POLICIES:
            raise bad_parameter("Annotations", "duplicates", f"one of {DUPLICATE_POLICIES}", duplicates)
        lengths = len(item), len(annotator), len(label)
        if len(set(lengths)) != 1:
            problem = f"item, annotator and label columns differ in length ({', '.join(map(str, lengths))})"
            raise DataError(f"{problem}; pass one value of each per label")
        if not lengths[0]:
            raise DataError("there are no labels in the data; pass at least one (item, annotator, label) row")
        with ThreadPoolExecutor(3) as threads:
            columns = ((item, "item", None), (annotator, "annotator", None), (label, "label", classes))
            jobs = [threads.submit(vocab.encode, *column, locate) for column in columns]
        coded_items, coded_annotators, coded_labels = (job.result() for job in jobs)
        rows, n_dropped = resolve_duplicates(coded_items, coded_annotators, coded_labels, duplicates, locate)
        vocabularies = coded_items[1], coded_annotators[1], coded_labels[1]
        notes = (*notes, *repeats_note(n_dropped, duplicates))
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
        locate: vocab.Locate = "row {}".format,
        notes: Sequence[str] = (),
    ) -> Self:
        """Build annotations without annotators from an (items, classes) table of counts.

        Every label is a separate (item, annotator) pair; models that need annotators refuse such data.
        Classes keep the order of the columns.

        Parameters
        ----------
        counts
            (items, classes): number of labels of each class by item.
        items
            Item ids; by default, numbers from 0.
        classes
            Class names; by default, numbers from 0.
        frame_kind
            Kind of data frame for results.
        locate
            Function that describes a row of the source in messages.
        notes
            Remarks to attach.
        """
        table = check_counts(counts, locate)
        M, P = table.shape
        ids = np.arange(M) if items is None else items
        names = vocab.ordered_vocabulary(np.arange(P) if classes is None else classes, "label")
        if (len(ids), len(names)) != (M, P):
            problem = f"{len(ids)} items and {len(names)} classes do not match a {M} × {P} table of counts"
            raise DataError(f"{problem}; pass one id per row and one name per column")
        table_of_ids = pa.table({"item": vocab.to_arrow(ids, "item")})
        codes, vocabulary = vocab.encode(check_ids(table_of_ids, "item", locate), "item")
        table = table[np.argsort(codes)]
        item = np.repeat(np.arange(M, dtype=np.int32), table.sum(axis=1))
        label = np.repeat(np.tile(np.arange(P, dtype=np.int32), M), table.ravel())
        index_in_item = (np.arange(len(item)) - pointers(item, M)[item]).astype(np.int32)
        annotators = vocab.Vocabulary([f"label {i + 1}" for i in range(index_in_item.max() + 1)], "annotator")
        notes = (*notes, "class counts do not name annotators: only models of items apply")
        rows = item, index_in_item, label, vocabulary, annotators, names
        return cls(*rows, anonymous=True, frame_kind=frame_kind, notes=notes)

    def with_tables(
        self,
        items: Any = None,
        annotators: Any = None,
        gold: Any = None,
        *,
        new_classes: bool = True,
        locators: Mapping[str, vocab.Locate] | None = None,
    ) -> Self:
        """Join side tables by id, the first column of each table.

        Parameters
        ----------
        items
            Side table of items; its first column holds the ids.
        annotators
            Side table of annotators.
        gold
            Side table of reference labels: item, label.
        new_classes
            Whether a gold label that no annotator gave is added to the classes, or is an error.
        locators
            Functions that describe a row in messages, by table ("items", "annotators", "gold").
        """
        roles = {"items": "item", "annotators": "annotator", "gold": "gold"}
        locate: dict[str, vocab.Locate] = {name: f"{roles[name]} table row {{}}".format for name in roles}
        locate |= locators or {}
        result = self
        if items is not None:
            result = result._with_items(side_table(items, "items"), locate["items"])
        if annotators is not None:
            result = result._with_annotators(side_table(annotators, "annotators"), locate["annotators"])
        if gold is not None:
            result = result._with_gold(side_table(gold, "gold", 2), locate["gold"], new_classes)
        return result

    def _with_items(self, table: pa.Table, locate: vocab.Locate) -> Self:
        """Join an item table; items without labels are added to the vocabulary."""
        ids = check_ids(table, "item", locate)
        codes, vocabulary = self.item_vocabulary.extended(ids)
        table, _, without_row = align_table(table, ids, vocabulary)
        notes = count_notes(
            (len(vocabulary) - self.n_items, "{} of the item table {have} no label", "item"),
            (without_row, "{} {have} no row in the item table", "item"),
        )
        fields: dict[str, Any] = {"item_vocabulary": vocabulary, "item_table": table}
        if self.gold is not None:
            fields["gold"] = np.full(len(vocabulary), -1, dtype=np.int32)
            fields["gold"][codes] = self.gold
        return replace(self, item=codes[self.item], notes=(*self.notes, *notes), **fields)

    def _with_annotators(self, table: pa.Table, locate: vocab.Locate) -> Self:
        if self.anonymous:
            problem = "the labels do not name annotators, so an annotator table cannot be joined"
            raise DataError(f"{problem}; leave it out")
        ids = check_ids(table, "annotator", locate)
        table, strangers, without_row = align_table(table, ids, self.annotator_vocabulary)
        notes = count_notes(
            (strangers, "{} of the annotator table gave no label and {are} dropped", "annotator"),
            (without_row, "{} {have} no row in the annotator table", "annotator"),
        )
        return replace(self, annotator_table=table, notes=(*self.notes, *notes))

    def _with_gold(self, table: pa.Table, locate: vocab.Locate, new_classes: bool) -> Self:
        item, label, rows = gold_labels(table, locate)
        items = self.item_vocabulary.codes(item)
        matched, strangers = np.flatnonzero(items >= 0), int((items < 0).sum())
        if strangers and not len(matched):
            raise DataError(
                f"{locate(int(rows[0]))}: no gold label is for an item of the labels, whose ids are like "
                f"{vocab.quoted(self.items[0])}; those of the gold labels are like "
                f"{vocab.quoted(item[0].as_py())}"
            )
        items, rows, label = items[matched], rows[matched], label.take(vocab.arrow_indices(matched))
        if not new_classes:
            vocab.encode(label, "label", self.class_vocabulary, lambda row: locate(int(rows[row])))
        codes, classes = self.class_vocabulary.extended(label)
        unseen: tuple[str, ...] = ()
        if self.label_type != "multi":  # an unseen set of known classes is no typo
            unseen = unused_class_notes(label, classes, codes, lambda row: locate(int(rows[row])))
        gold = np.full(self.n_items, -1, dtype=np.int32)
        gold[items] = classes.codes(label)
        unmatched = "{} {are} for items that are not in the data and {are} dropped"
        notes = (*self.notes, *unseen, *count_notes((strangers, unmatched, "gold label")))
        return replace(self, label=codes[self.label], class_vocabulary=classes, gold=gold, notes=notes)

    def with_label_type(self, label_type: LabelType) -> Self:
        """Return the labels with another type: nominal, ordinal, numeric, multi or pairwise.

        Parameters
        ----------
        label_type
            ``"nominal"``, ``"ordinal"``, ``"numeric"``, ``"multi"`` or ``"pairwise"``.
        """
        check_label_type("with_label_type", label_type)
        annotations = replace(self, label_type=label_type)
        check_labels(annotations)
        return annotations

    # ---- contents -------------------------------------------------------------------------------------

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
        """Classes (classes,) as numbers; None if any class is not a number."""
        values = vocab.numbers_of(self.class_vocabulary.arrow)
        return None if values is None else _frozen(values)

    @property
    def values(self) -> NDArray[np.float64]:
        """Labels (labels,) as numbers; ordered words count from 0."""
        numbers = np.arange(float(self.n_classes)) if self.class_values is None else self.class_values
        return numbers[self.label]

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Number of labels (items, classes) of each class by item."""
        M, P = self.n_items, self.n_classes
        counts = np.zeros((M, P), np.int64)
        for rows in self.chunks():
            item, label = self.item[rows], self.label[rows]
            first, stop = item[0], item[-1] + 1
            cells = (item - first) * np.int64(P) + label
            counts[first:stop] = np.bincount(cells, minlength=(stop - first) * P).reshape(-1, P)
        return _frozen(counts)

    @cached_property
    def item_pointers(self) -> NDArray[np.int64]:
        """Row offsets (items + 1,): item m has rows ``item_pointers[m]:item_pointers[m + 1]``."""
        return _frozen(pointers(self.item, self.n_items))

    @cached_property
    def annotator_load(self) -> NDArray[np.int64]:
        """Number of labels (annotators,) of each annotator."""
        return _frozen(tally(self.annotator, self.n_annotators))

    @cached_property
    def class_counts(self) -> NDArray[np.int64]:
        """Number of labels (classes,) of each class."""
        return _frozen(tally(self.label, self.n_classes))

    @cached_property
    def prior_strength(self) -> float:
        """Weight of the overall class shares as a prior of an item's distribution, in labels.

        With item distributions Dir(w p̄), counts have the likelihood Π_m Γ(w) / Γ(w + n_m) Π_p Γ(w p̄_p + c_mp)
        / Γ(w p̄_p); w is the best of a grid, and 1.5 if no item has two labels.
        """
        from scipy.special import gammaln

        sample = np.unique(np.linspace(0, self.n_items - 1, MAX_PRIOR_ITEMS).astype(np.int64))
        item, rows = self.rows_of_items(sample)
        M, P = len(sample), self.n_classes
        counts = np.bincount(item * np.int64(P) + self.label[rows], minlength=M * P).reshape(M, P)
        sizes = counts.sum(axis=1)
        if sizes.max(initial=0) < 2:
            return DEFAULT_PRIOR_STRENGTH
        shares = counts.sum(axis=0) / counts.sum()
        # items with the same number of labels, and cells with the same class and count, have equal terms
        n, n_items = np.unique(sizes, return_counts=True)
        cells, n_cells = np.unique((counts * P + np.arange(P))[counts > 0], return_counts=True)
        c, p = np.divmod(cells, P)
        log_likelihoods = []
        for w in PRIOR_STRENGTHS:
            alpha = w * shares[p]
            by_cell = n_cells @ (gammaln(alpha + c) - gammaln(alpha))
            log_likelihoods.append(by_cell - n_items @ (gammaln(w + n) - gammaln(w)))
        return float(PRIOR_STRENGTHS[np.argmax(log_likelihoods)])

    @cached_property
    def pair(self) -> NDArray[np.int64]:
        """Index (labels,) of the (item, annotator) pair of each row, in row order."""
        return _frozen(np.cumsum(np.append(0, self._new_pairs(slice(None))))[: self.n_labels])

    @cached_property
    def n_pairs(self) -> int:
        """Number of distinct (item, annotator) pairs."""
        return sum(1 + int(self._new_pairs(rows).sum()) for rows in self.chunks())

    def _new_pairs(self, rows: slice) -> NDArray[np.bool_]:
        """Return (rows − 1,) True where a row is of another pair than the previous one."""
        return np.asarray((np.diff(self.item[rows]) != 0) | (np.diff(self.annotator[rows]) != 0))

    @property
    def columns(self) -> tuple[vocab.Codes, vocab.Codes, vocab.Codes]:
        """Item, annotator and label of every row."""
        return self.item, self.annotator, self.label

    @property
    def vocabularies(self) -> tuple[vocab.Vocabulary, vocab.Vocabulary, vocab.Vocabulary]:
        """Vocabularies of items, annotators and classes."""
        return self.item_vocabulary, self.annotator_vocabulary, self.class_vocabulary

    def chunks(self) -> Iterator[slice]:
        """Yield slices of rows that cover whole items, to save memory."""
        starts = self.item_pointers
        marks = starts[np.searchsorted(starts, np.arange(LABELS_PER_CHUNK, self.n_labels, LABELS_PER_CHUNK))]
        cuts = np.unique(np.concatenate([[0], marks, [self.n_labels]])).tolist()
        for first, stop in itertools.pairwise(cuts):
            yield slice(first, stop)

    def item_column(self, name: str) -> NDArray[Any]:
        """Return a column of the item table, one value per item.

        Parameters
        ----------
        name
            A column of the item table.
        """
        return table_column(self.item_table, name, "item")

    def with_text_column(self, name: str) -> Self:
        """Return the labels with a column of the item table renamed to ``text``.

        Parameters
        ----------
        name
            A column of the item table.
        """
        self.item_column(name)  # raises an error if it is missing
        assert self.item_table is not None
        names = [column for column in self.item_table.column_names if column == name or column != "text"]
        renamed = ["text" if column == name else column for column in names]
        return replace(self, item_table=self.item_table.select(names).rename_columns(renamed))

    def annotator_column(self, name: str) -> NDArray[Any]:
        """Return a column of the annotator table, one value per annotator.

        Parameters
        ----------
        name
            A column of the annotator table.
        """
        return table_column(self.annotator_table, name, "annotator")

    def fingerprint(self) -> str:
        """Return a SHA-256 digest of labels, ids and the side tables that an estimator may read."""
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
        """Shape (items,), as scikit-learn expects of a target."""
        return (self.n_items,)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return (items,) the most frequent label of each item, the first class on ties.

        Functions for plain labels, such as scikit-learn's accuracy, use these.
        """
        unlabelled = np.flatnonzero(np.diff(self.item_pointers) == 0)
        if len(unlabelled):
            raise DataError(f"item {vocab.quoted(self.items[unlabelled[0]])} has no label; drop such items")
        best: NDArray[Any] = self.classes[self.counts.argmax(axis=1)]
        return best if dtype is None else best.astype(dtype)

    def __repr__(self) -> str:
        items, annotators = f"{self.n_items:,} items", f"{self.n_annotators:,} annotators"
        return f"Annotations({items}, {annotators}, {self.n_labels:,} labels, {self.n_classes} classes)"

    def _head(self, n: int | None) -> dict[str, Any]:
        """Return one row per label, with the annotator if named."""
        who = {} if self.anonymous else {"annotator": self.annotators[self.annotator[:n]]}
        return {"item": self.items[self.item[:n]], **who, "label": self.classes[self.label[:n]]}

    # ---- subsets --------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Self:
        """Return the labels of some items (a slice, mask, or item codes), in that order."""
        return self.take_items(np.atleast_1d(np.arange(self.n_items)[index]))

    def rows_of_items(self, codes: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return, for each label of the given items, the index of its item in ``codes``, and its row.

        Parameters
        ----------
        codes
            Codes of items.
        """
        starts, stops = self.item_pointers[codes], self.item_pointers[codes + 1]
        lengths = stops - starts
        index = np.repeat(np.arange(len(codes), dtype=np.int32), lengths)
        return index, np.arange(len(index)) - np.repeat(np.cumsum(lengths) - stops, lengths)

    def take_items(self, codes: NDArray[Any]) -> Self:
        """Return the labels of the given items, in that order; other vocabularies stay.

        Parameters
        ----------
        codes
            Codes of the items to keep, in the new order.
        """
        codes = np.asarray(codes, dtype=np.int64)
        item, rows = self.rows_of_items(codes)
        fields: dict[str, Any] = {"item_vocabulary": self.item_vocabulary.take(codes), "notes": ()}
        if self.item_table is not None:
            fields["item_table"] = self.item_table.take(vocab.arrow_indices(codes))
        if self.gold is not None:
            fields["gold"] = self.gold[codes]
        return replace(self, item=item, annotator=self.annotator[rows], label=self.label[rows], **fields)

    def take_rows(self, mask: NDArray[np.bool_]) -> Self:
        """Return a subset of the label rows; vocabularies and side tables stay.

        Parameters
        ----------
        mask
            (labels,): which label rows to keep.
        """
        item, annotator, label = (codes[mask] for codes in self.columns)
        return replace(self, item=item, annotator=annotator, label=label, notes=())

    def split_labels(self, test_size: float = 0.2, seed: int = 0) -> tuple[Self, Self]:
        """Split off a random share of the (item, annotator) pairs, with all their labels.

        Returns (visible, hidden), both with the same vocabularies.

        Parameters
        ----------
        test_size
            Share of the pairs to hide.
        seed
            Seed of the random numbers. The same seed gives the same result, to the last bit.
        """
        if not 0 < test_size < 1:
            raise bad_parameter("split_labels", "test_size", "a float > 0 and < 1", test_size)
        n_hidden = round(test_size * self.n_pairs)
        if n_hidden == self.n_pairs > 0:
            size = setting("test_size", test_size)
            raise DataError(f"a {size} hides all {n_hidden:,} pairs; choose a smaller share")
        hidden_pairs = np.zeros(self.n_pairs, dtype=bool)
        hidden_pairs[np.random.default_rng(seed).permutation(self.n_pairs)[:n_hidden]] = True
        hidden = hidden_pairs[self.pair]
        return self.take_rows(~hidden), self.take_rows(hidden)

    def split_items(
        self, shares: Mapping[str, float] | None = None, *, seed: int = 0, column: str = "split"
    ) -> dict[str, Self]:
        """Split by item: by a column of the item table, or at random into parts of the given shares.

        Items whose ``column`` is blank are in no part, nor is the rest if shares sum to less than 1.

        Parameters
        ----------
        shares
            Share of each part by name, such as ``{"train": 0.8, "test": 0.2}``; None uses the column.
        seed
            Seed of the random numbers. The same seed gives the same result, to the last bit.
        column
            Column of the item table with the names of the parts.
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
        parts = [order[start:stop] for start, stop in itertools.pairwise(edges)]
        return {name: self.take_items(np.sort(codes)) for name, codes in zip(shares, parts, strict=True)}


# ---- helpers ------------------------------------------------------------------------------------------


def _bytes_of(table: pa.Table) -> pa.Buffer:
    table = table.replace_schema_metadata(None).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
