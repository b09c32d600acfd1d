"""Hugging Face datasets on disk: a folder of Arrow files (``save_to_disk``) or of Parquet files.

A row holds one label (columns for item, annotator and label), or one item with parallel lists of annotators
and labels; datasets that Argilla wrote are read as Argilla records. Class numbers become the names that the
dataset declares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dissensus.errors import DataError, setting
from dissensus.importers import argilla
from dissensus.importers.gather import Gatherer, as_labels
from dissensus.tables.columns import find_column
from dissensus.tables.source import refuse_pipe
from dissensus.tables.tables import with_class_names

_QUESTION_NAMES = {"label", "annotation", "answer", "rating", "class"}
_SPLIT_PREFIX = "split:"  # of an item column whose ids are unique only within a split
MARKERS = ("dataset_dict.json", "dataset_info.json", "state.json")


def read(path: Path, gather: Gatherer) -> None:
    """Read the labels of all splits of a dataset on disk; the split becomes a column of the item table."""
    files = files_of(path)
    if not files:
        raise DataError(f"{path}: holds no .arrow or .parquet file; give the folder that save_to_disk wrote")
    number = 0
    for split, file in files:
        for batch in _batches(file):
            is_argilla = argilla.is_record(dict.fromkeys(batch.schema.names))
            read_row = argilla.read_record if is_argilla else _row_reader(batch.schema, split, gather)
            for row in with_class_names(pa.Table.from_batches([batch]), str(file)).to_pylist():
                number += 1
                read_row(f"row {number}", row, gather)


def files_of(path: Path) -> list[tuple[str | None, Path]]:
    """Return (split, file) in order: files in the folder itself, and those of splits in its subfolders."""
    files: list[tuple[str | None, Path]] = []
    files += [(None, file) for file in sorted([*path.glob("*.arrow"), *path.glob("*.parquet")])]
    files += [(file.parent.name, file) for file in sorted(path.glob("*/*.arrow"))]
    files += [(file.name.partition("-")[0], file) for file in sorted(path.glob("*/*.parquet"))]
    files = [(split, file) for split, file in files if not file.name.startswith("cache-")]
    for _, file in files:
        refuse_pipe(file)
    return files


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    try:
        if file.suffix == ".parquet":
            yield from map(_valid, pq.ParquetFile(file).iter_batches(batch_size=10_000))
            return
        with pa.memory_map(str(file)) as source:
            try:
                reader = pa.ipc.open_stream(source)
            except pa.ArrowInvalid:
                source.seek(0)
                file_reader = pa.ipc.open_file(source)
                reader = map(file_reader.get_batch, range(file_reader.num_record_batches))
            yield from map(_valid, reader)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{file}: cannot be read ({reason}); save the dataset again") from None


def _valid(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch after checking its names, offsets and text, so that damage cannot crash Arrow."""
    batch.validate(full=True)
    if len(set(batch.schema.names)) != batch.num_columns:
        raise ValueError("two columns share a name")
    return batch


def _row_reader(schema: pa.Schema, split: str | None, gather: Gatherer) -> Any:
    """Find the columns, and return a function that reads one row."""
    names, path = schema.names, str(gather.path)
    item_column = gather.item_column
    by_split = item_column is not None and item_column.startswith(_SPLIT_PREFIX)
    item_column = find_column(names, "item", item_column and item_column.removeprefix(_SPLIT_PREFIX), path)
    annotator_column = find_column(names, "annotator", gather.annotator_column, path, taken=[item_column])
    others = [name for name in names if name not in (item_column, annotator_column)]
    questions = [name for name in others if {name.lower(), name.lower().removesuffix("s")} & _QUESTION_NAMES]
    label_column = gather.choose(others, questions)
    texts = [name for name in others if name not in (label_column, *questions) or name == gather.text_column]
    columns = {"split": split} if split else {}
    gather.set_columns(item=f"split:{item_column}" if by_split else item_column, annotator=annotator_column)

    def read_row(location: str, row: Mapping[str, Any], gather: Gatherer) -> None:
        identifier = f"{split}:{row[item_column]}" if by_split else row[item_column]
        item = gather.item(location, identifier, {name: row[name] for name in texts}, **columns)
        other = gather.item_value("split", item)
        if gather.item_column is None and split and other != split:
            problem = f"item {identifier!r} is in split {other!r} and in {split!r}"
            anew, joined = setting("item", _SPLIT_PREFIX + item_column), setting("item", item_column)
            remedy = f"if each split counts its items anew, use {anew}, otherwise {joined}"
            raise gather.error(location, f"{problem}; {remedy}")
        annotators, labels = row[annotator_column], row[label_column]
        if not isinstance(annotators, list):
            annotators, labels = [annotators], [labels]
        elif not isinstance(labels, list) or len(labels) != len(annotators):
            remedy = "correct the row"
            raise gather.error(location, f"the lists of annotators and labels differ in length; {remedy}")
        for annotator, value in zip(annotators, labels, strict=True):
            gather.label(location, item, annotator, gather.parsed(location, as_labels, value))

    return read_row
