"""Hugging Face datasets on disk: a folder of Arrow files (``save_to_disk``) or of Parquet files.

Rows hold one label each (columns for item, annotator and label), or one item each with parallel lists of
annotators and labels; datasets that Argilla wrote are read as such. Class numbers become the names that the
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

_LABELS = {"label", "annotation", "answer", "rating", "class"}
_SPLIT = "split:"
MARKERS = ("dataset_dict.json", "dataset_info.json", "state.json")


def read(path: Path, gather: Gatherer) -> None:
    """Labels of a dataset on disk, all splits together; the split becomes a column of the item table."""
    files = files_of(path)
    if not files:
        raise DataError(f"{path}: holds no .arrow or .parquet file; give the folder that save_to_disk wrote")
    number = 0
    for split, file in files:
        for batch in _batches(file):
            if argilla.is_record(dict.fromkeys(batch.schema.names)):
                read_row = argilla.read_record
            else:
                read_row = _row_reader(batch.schema, split, gather)
            for row in with_class_names(pa.Table.from_batches([batch]), str(file)).to_pylist():
                number += 1
                read_row(f"row {number}", row, gather)


def files_of(path: Path) -> list[tuple[str | None, Path]]:
    """(split, file) in order: the folder's own files, or those of the splits below it."""
    own = [(None, file) for file in sorted([*path.glob("*.arrow"), *path.glob("*.parquet")])]
    below = [(file.parent.name, file) for file in sorted(path.glob("*/*.arrow"))]
    shards = [(file.name.partition("-")[0], file) for file in sorted(path.glob("*/*.parquet"))]
    found = [(split, file) for split, file in [*own, *below, *shards] if not file.name.startswith("cache-")]
    for _, file in found:
        refuse_pipe(file)
    return found


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
                whole = pa.ipc.open_file(source)
                reader = map(whole.get_batch, range(whole.num_record_batches))
            yield from map(_valid, reader)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{file}: cannot be read ({reason}); save the dataset again") from None


def _valid(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, once its names, offsets and text are sound: a flipped bit must not lead out of the file."""
    batch.validate(full=True)
    if len(set(batch.schema.names)) != batch.num_columns:
        raise ValueError("two columns share a name")
    return batch


def _row_reader(schema: pa.Schema, split: str | None, gather: Gatherer) -> Any:
    """A function that reads one row, once the columns it needs are found."""
    names = schema.names
    where = str(gather.path)
    # ``split:id`` names items by split and id.
    wanted = gather.item_column
    by_split = wanted is not None and wanted.startswith(_SPLIT)
    item_column = find_column(names, "item", wanted and wanted.removeprefix(_SPLIT), where)
    annotator_column = find_column(names, "annotator", gather.annotator_column, where, taken=[item_column])
    others = [name for name in names if name not in (item_column, annotator_column)]
    questions = [name for name in others if {name.lower(), name.lower().removesuffix("s")} & _LABELS]
    label_column = gather.choose(others, questions)
    texts = [name for name in others if name not in (label_column, *questions) or name == gather.text_column]
    side = {"split": split} if split else {}
    gather.takes(item=f"split:{item_column}" if by_split else item_column, annotator=annotator_column)
    guessed = gather.item_column is None

    def read_row(place: str, row: Mapping[str, Any], gather: Gatherer) -> None:
        identifier = f"{split}:{row[item_column]}" if by_split else row[item_column]
        item = gather.item(place, identifier, {name: row[name] for name in texts}, **side)
        other = gather.side("split", item)
        if guessed and split and other != split:
            raise gather.error(
                place,
                f"item {identifier!r} is in split {other!r} and in {split!r}; where ids begin anew in each "
                f"split, name items by both with {setting('item', _SPLIT + item_column)}, where they do not, "
                f"say {setting('item', item_column)}",
            )
        annotators, labels = row[annotator_column], row[label_column]
        if not isinstance(annotators, list):
            annotators, labels = [annotators], [labels]
        elif not isinstance(labels, list) or len(labels) != len(annotators):
            raise gather.error(place, "the lists of annotators and labels differ in length; correct the row")
        for annotator, value in zip(annotators, labels, strict=True):
            gather.label(place, item, annotator, gather.parsed(place, as_labels, value))

    return read_row
