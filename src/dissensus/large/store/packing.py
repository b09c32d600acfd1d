"""From files of labels to a store on disk, in bounded memory.

Files are read in chunks. Every chunk is coded on its own: its ids sorted, its rows as codes in order of
reading. When all are read, the sorted lists of ids are merged into the vocabularies, each chunk's rows are
coded anew and sorted, and the sorted runs are merged into canonical order. All of it happens in a folder
beside the store, which takes the store's name as its last step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dissensus.errors import DataError, bad_parameter
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import LabelType
from dissensus.labels.rows import DUPLICATE_POLICIES, Duplicates
from dissensus.labels.vocabulary import Vocabulary, ordered_vocabulary, quoted, texts
from dissensus.large.store.files import (
    CODES,
    COLUMNS,
    MANIFEST,
    OURS,
    IdFile,
    LabelFiles,
    Manifest,
    NumberFile,
    StoredFile,
    StoredShard,
    finish_ids,
    is_store,
    read_manifest,
    write_manifest,
)
from dissensus.large.store.inputs import Budget, Inputs, list_files
from dissensus.large.store.opening import open_store
from dissensus.large.store.sorting import CodedRows, Merger, by_value, lookalike_notes, merge_ids
from dissensus.progress import Progress, ShowProgress, shown
from dissensus.tables.atomic import cannot_be_written, gone_afterwards, publication, sync, take_lock
from dissensus.tables.layouts import Columns, Missing
from dissensus.tables.plain_tables import declared_classes
from dissensus.tables.plain_tables import lookalike_notes as class_notes
from dissensus.tables.source import within_memory


def pack(
    files: Any,
    store: str | os.PathLike[str],
    *,
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    classes: Sequence[Any] | None = None,
    duplicates: Duplicates | None = None,
    label_type: LabelType | None = None,
    format: str | None = None,
    missing: Literal["skip", "error"] = "skip",
    missing_words: Sequence[str] | str = (),
    memory: str | int = "2GB",
    again: bool = False,
    progress: ShowProgress = None,
) -> Manifest:
    """Pack files of labels into a store, or add them to the labels of a store that is there.

    A file that the store holds already (the same bytes) is skipped, so that a
    packing that was stopped can be run again; the manifest's notes say so.

    Parameters
    ----------
    files
        A path, or several: CSV, TSV, JSON lines or Parquet with one row per label, each also gzipped, or
        directories of such files.
    store
        The directory to write. It appears, or changes, whole or not at all.
    item, annotator, label
        Names of the three columns, found by their usual names where not given.
    classes, duplicates, label_type, format, missing, missing_words
        As for :func:`dissensus.read_annotations`. A store keeps the first three: labels added later obey
        them.
    memory
        How much memory the packing may take, mapped files apart: ``"2GB"``, or a number of bytes.
    again
        Add files that the store holds already once more.
    progress
        True or False, a function that is told (what, share done), or None: a bar on a terminal.
    """
    path, budget = Path(store), Budget.of(memory)
    with publication() as tell, workspace(path) as folder, within_memory(budget.memory):
        old = _opened(path)
        rules = _rules(path, old and old[0], classes, duplicates, label_type)
        blanks = Missing.of("pack", missing, missing_words)
        inputs = Inputs(list_files(files), Columns(item, annotator, label), format, folder, blanks)
        inputs, digests, notes = _fresh(inputs, old[0].inputs if old else (), again)
        notes += inputs.guesses({"item": item, "annotator": annotator, "label": label})
        if old is not None and not inputs.files:
            _remove_unlisted(path)
            return replace(old[0], notes=(*old[0].notes, *notes))
        with ExitStack() as open_files, shown(progress) as told:
            job = _Job(folder, inputs, budget, rules, digests, told, open_files)
            manifest = job.run(None if old is None else old[1], 0 if old is None else old[0].left_out)
        tell()
        publish(job.built, path)
    notes += blanks.notes(sum(inputs.skipped.values()))
    return replace(manifest, notes=(*manifest.notes, *notes))


def _fresh(inputs: Inputs, known: Sequence[str], again: bool) -> tuple[Inputs, tuple[str, ...], list[str]]:
    """The files to add, the digests of all that the store will hold, and a word on those that are skipped."""
    files, digests, notes = [], list(known), list[str]()
    for file in inputs.files:
        digest = inputs.digest(file)
        if digest in digests and not again:
            notes.append(f"{file.path} is in the store already and was skipped (again=True adds it anew)")
        else:
            files.append(file)
            digests.append(digest)
    return replace(inputs, files=files), tuple(sorted(digests)), notes


@dataclass(frozen=True)
class _Rules:
    """What a store keeps to."""

    classes: Vocabulary | None
    duplicates: Duplicates
    label_type: LabelType | None


def _opened(store: Path) -> tuple[Manifest, Annotations] | None:
    """What is in the store already, checked to the last byte."""
    if not is_store(store):
        return None
    manifest = read_manifest(store)
    return manifest, open_store(store, manifest)


def _rules(
    store: Path,
    old: Manifest | None,
    classes: Sequence[Any] | None,
    duplicates: Duplicates | None,
    label_type: LabelType | None,
) -> _Rules:
    classes, label_type = declared_classes("pack", classes, label_type)
    if duplicates is not None and duplicates not in DUPLICATE_POLICIES:
        raise bad_parameter("pack", "duplicates", f"one of {DUPLICATE_POLICIES}", duplicates)
    given = None if classes is None else tuple(map(str, classes))
    if old is None:
        order = None if given is None else ordered_vocabulary(Vocabulary(texts(given), "label"), "label")
        return _Rules(order, duplicates or "keep", label_type)
    if given is not None and given != (old.classes if old.declared else None):
        raise DataError(f"{store}: was packed with another label set; leave classes= out")
    if duplicates not in (None, old.duplicates):
        raise DataError(f"{store}: was packed with duplicates={old.duplicates!r}; leave duplicates= out")
    if label_type not in (None, old.label_type):
        raise DataError(f"{store}: was packed with label_type={old.label_type!r}; leave label_type= out")
    kept = Vocabulary(texts(old.classes), "label") if old.declared else None
    return _Rules(kept, old.duplicates, old.label_type)


@dataclass
class _Job:
    """One packing."""

    folder: Path
    inputs: Inputs
    budget: Budget
    rules: _Rules
    digests: tuple[str, ...]  # of all that went in, the files of this packing too
    progress: Progress
    files: ExitStack  # all that are open
    started: float = field(default_factory=time.monotonic)

    @property
    def built(self) -> Path:
        """Where the new store takes shape."""
        return self.folder / "store"

    def run(self, old: Annotations | None, left_out: int) -> Manifest:
        """Read, merge the ids, sort the rows, write."""
        self.built.mkdir()
        coded = self._coded(old)
        self._tell("sorting ids", 0.6, coded.n_rows)
        (items, annotators, labels), codes = self._merged(coded)
        merger = Merger(
            coded,
            codes,
            (len(items), len(annotators), len(labels)),
            self.rules.duplicates,
            lambda item, annotator: self._name_pair(items.key(item), annotators.key(annotator), old),
            left_out,
        )
        files, shards = self._rows(merger)
        classes = tuple(labels.read(range(len(labels))).to_pylist())
        manifest = Manifest(
            n_labels=sum(shard.n_rows for shard in shards),
            n_items=len(items),
            n_annotators=len(annotators),
            classes=classes,
            declared=self.rules.classes is not None,
            duplicates=self.rules.duplicates,
            left_out=merger.left_out,
            notes=self._notes(items, annotators, classes),
            inputs=self.digests,
            files=files | self._ids(items, "item") | self._ids(annotators, "annotator"),
            shards=shards,
            label_type=self.rules.label_type,
        )
        labels.remove()
        write_manifest(manifest, self.built)
        return manifest

    def _coded(self, old: Annotations | None) -> CodedRows:
        """All rows, chunk by chunk."""
        coded = CodedRows(self.folder, self.rules.classes, self.files)
        if old is not None:
            self.progress("reading the store", 0.0)
            coded.add_store(old, self.budget.rows)
        whole, done, before = max(1, self.inputs.n_bytes), 0, coded.n_rows
        for pieces in self.inputs.chunks(self.budget):
            coded.add_chunk(pieces, partial(self.inputs.place, pieces))
            done += sum(piece.n_bytes for piece in pieces)
            share = 0.6 * min(1.0, done / whole)
            self._tell(f"reading {pieces[-1].file.path.name}", share, coded.n_rows - before)
        return coded

    def _merged(self, coded: CodedRows) -> tuple[list[IdFile], list[NumberFile | None]]:
        """The vocabularies, and the code of every id read in its own (None: codes are final)."""
        vocabularies = [IdFile(self.built, role, self.files) for role in COLUMNS]
        codes: list[NumberFile | None] = []
        for i, (role, merged) in enumerate(zip(COLUMNS, vocabularies, strict=True)):
            if role == "label" and self.rules.classes is not None:
                merged.append(self.rules.classes.arrow)
                codes.append(None)
            else:
                lists = [run.lists[i] for run in coded.runs]
                found = NumberFile(self.folder / f"{role}.map", CODES, self.files)
                merge_ids(coded.ids[i], lists, merged, found, role, self.budget)
                if role == "label":
                    vocabularies[i] = by_value(merged, found, len(coded.ids[i]), self.built, self.files)
                codes.append(found)
            coded.ids[i].remove()
        return vocabularies, codes

    def _rows(self, merger: Merger) -> tuple[dict[str, StoredFile], tuple[StoredShard, ...]]:
        """The label rows, sorted and written."""
        coded, written = merger.rows, LabelFiles(self.built, self.files)
        runs = []
        for run in coded.runs:
            runs.append(merger.sort_run(run))
            self._tell("sorting labels", 0.65 + 0.15 * run.rows.stop / coded.n_rows, coded.n_rows)
        for rows in merger.blocks(runs, self.budget):
            written.append(rows)
            self._tell("writing labels", 0.8 + 0.1 * len(written.pointers) / merger.sizes[0], coded.n_rows)
        return written.finish()

    def _ids(self, ids: IdFile, what: str) -> dict[str, StoredFile]:
        return finish_ids(ids, what, self.files)

    def _notes(self, items: IdFile, annotators: IdFile, classes: Sequence[str]) -> tuple[str, ...]:
        self.progress("looking at ids", 0.95)
        return (
            *lookalike_notes(items, "item", self.budget),
            *lookalike_notes(annotators, "annotator", self.budget),
            *class_notes(Vocabulary(texts(classes), "label")),
        )

    def _name_pair(self, item: bytes, annotator: bytes, old: Annotations | None) -> str:
        """A pair that occurs more than once, by the place of its second row."""
        ids = item.decode(), annotator.decode()
        seen = int(old is not None and _has_pair(old, *ids))
        place = self.inputs.second_place(self.budget, *ids, seen)
        return f"{place}: item {quoted(ids[0])} and annotator {quoted(ids[1])}"

    def _tell(self, what: str, share: float, n_rows: int) -> None:
        seconds = max(time.monotonic() - self.started, 1e-3)
        self.progress(f"{what} ({n_rows:,} labels, {n_rows / seconds:,.0f} a second)", share)


def _has_pair(old: Annotations, item: str, annotator: str) -> bool:
    m, n = old.item_vocabulary.codes([item])[0], old.annotator_vocabulary.codes([annotator])[0]
    rows = slice(*old.item_pointers[m : m + 2]) if m >= 0 else slice(0)
    return bool(np.any(old.annotator[rows] == n))


# ---- the folder beside the store, and the one step that makes the result visible ----------------------


@contextmanager
def workspace(store: Path) -> Iterator[Path]:
    """An empty folder beside the store for as long as the block lasts, ours alone."""
    target = Path(os.path.realpath(store))
    _check_target(store, target)
    folder = target.with_name(f".{target.name}.packing")
    with _locked(folder, store), gone_afterwards(store, folder):
        for left in sorted(folder.rglob("*"), reverse=True):
            left.rmdir() if left.is_dir() else left.unlink()
        yield folder


def publish(built: Path, store: Path) -> None:
    """Give a finished store its name.

    Where a store stands already, its files stay until the new manifest has replaced the old one in a single
    step; files are named after their content, so the two never share a name with different bytes.
    """
    target = Path(os.path.realpath(store))
    for file in built.iterdir():
        sync(file)
    if is_store(target):
        for file in built.iterdir():
            if file.name != MANIFEST:
                file.replace(target / file.name)
        sync(target)
        (built / MANIFEST).replace(target / MANIFEST)
        sync(target)
        _remove_unlisted(target)
    else:
        built.rename(target)
    sync(target.parent)


def _remove_unlisted(store: Path) -> None:
    """Files of an earlier packing, finished or not, that the manifest no longer names."""
    listed = {file.name for file in read_manifest(store).files.values()}
    for file in store.iterdir():
        if OURS.fullmatch(file.name) and file.name not in listed:
            file.unlink()


def _check_target(store: Path, target: Path) -> None:
    if target.exists() and not target.is_dir():
        raise DataError(f"{store}: is a file; name a directory for the store")
    if target.is_dir() and not is_store(target) and any(target.iterdir()):
        raise DataError(f"{store}: exists and is no store; choose another place for the store")


@contextmanager
def _locked(folder: Path, store: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_be_written(store, error) from error
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows lets no folder be opened; two packings are then the user's to avoid
        yield
        return
    try:
        if not take_lock(handle):
            raise DataError(f"{store}: another packing is at work on it; wait for its end")
        yield
    finally:
        os.close(handle)
