"""Research datasets: LeWiDi (2023 and 2025) and the pandas "split" JSON of the label-distribution papers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dissensus.errors import DataError
from dissensus.importers.answers import as_labels, as_text, split_labels
from dissensus.importers.gather import Gatherer
from dissensus.tables.columns import listed
from dissensus.tables.json_lines import JsonStream
from dissensus.tables.source import Source, open_source

_SPLIT_COLUMNS = ("message_id", "worker_id", "label")


def is_lewidi(entry: Any) -> bool:
    """The value under an item's key."""
    return isinstance(entry, dict) and "annotations" in entry and "annotators" in entry


def is_split(columns: Any) -> bool:
    """The column names of the papers' tables."""
    return isinstance(columns, list) and set(_SPLIT_COLUMNS) <= {
        name for name in columns if isinstance(name, str)
    }


# ---- LeWiDi -------------------------------------------------------------------------------------------


def read_lewidi(path: Path, gather: Gatherer) -> None:
    """Labels of a LeWiDi file: one object, keyed by item."""
    with open_source(path).text() as text:
        stream = JsonStream(text, str(path))
        for key in stream.members():
            entry = stream.value()
            place = f"item {key!r}"
            if not is_lewidi(entry):
                raise gather.error(place, "has no 'annotations' and 'annotators'; use the file as published")
            side = {name: entry[name] for name in ("split", "lang") if name in entry}
            gather.takes(item="key of the object", annotator="annotators")
            if not gather.options.text_column:
                gather.takes(text="text")
            shown = gather.text_of(entry) if gather.options.text_column else as_text(entry.get("text"))
            item = gather.item(place, key, shown, **side)
            if not entry["annotations"]:
                gather.leave_out("items without annotations")
            elif gather.wants("annotations"):
                for annotator, answer in _by_annotator(place, entry, gather):
                    labels = split_labels(answer, ",") if isinstance(answer, str) else None
                    gather.label(place, item, annotator, labels or gather.parsed(place, as_labels, answer))


def _by_annotator(place: str, entry: Mapping[str, Any], gather: Gatherer) -> Iterator[tuple[str, Any]]:
    """2025: an object by annotator. 2023: two strings with commas, side by side."""
    annotations = entry["annotations"]
    if isinstance(annotations, dict):
        yield from annotations.items()
        return
    labels, annotators = _listed(annotations), _listed(entry["annotators"])
    if labels is None or annotators is None or len(labels) != len(annotators):
        raise gather.error(
            place, "the annotations do not line up with the annotators; use the file as published"
        )
    yield from zip(annotators, labels, strict=True)


def _listed(value: Any) -> list[Any] | None:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    return value if isinstance(value, list) else None


# ---- pandas "split" JSON ------------------------------------------------------------------------------


def read_split(path: Path, gather: Gatherer) -> None:
    """Labels of a table written by pandas with ``orient="split"``: message_id, worker_id, label, message."""
    source = open_source(path)
    columns = _split_columns(source)
    places = {name: place for place, name in enumerate(columns)}
    item_column = gather.options.item_column or "message_id"
    missing = [name for name in (item_column, "worker_id") if name not in places]
    if missing:
        raise DataError(f"{path}: has no column {missing[0]!r}; it has {listed(columns)}")
    gather.takes(item=item_column, annotator="worker_id")
    names = [str(name) for name in columns if name not in _SPLIT_COLUMNS[:2]]
    question = places[gather.choose(names, [name for name in names if name == "label"])]
    text = gather.options.text_column or "message"
    if text in places:
        gather.takes(text=text)
    for place, row in _split_rows(source):
        if not isinstance(row, list) or len(row) != len(columns):
            raise gather.error(place, f"is not a list of {len(columns)} values; export it again")
        shown = as_text(row[places[text]]) if text in places else None
        item = gather.item(place, row[places[item_column]], shown)
        gather.label(place, item, row[places["worker_id"]], gather.parsed(place, as_labels, row[question]))


def _split_columns(source: Source) -> list[Any]:
    with source.text() as text:
        stream = JsonStream(text, source.name)
        for key in stream.members():
            if key == "columns":
                columns = stream.value()
                if isinstance(columns, list) and all(isinstance(name, str) for name in columns):
                    return columns
                break
            _skip(stream)
    raise DataError(f"{source.name}: has no list of 'columns'; write it with pandas' to_json(orient='split')")


def _split_rows(source: Source) -> Iterator[tuple[str, Any]]:
    with source.text() as text:
        stream = JsonStream(text, source.name)
        for key in stream.members():
            if key != "data":
                _skip(stream)
                continue
            for number, row in enumerate(stream.elements(), start=1):
                yield f"record {number}", row


def _skip(stream: JsonStream) -> None:
    """Step over a value; a long array piece by piece."""
    if stream.peek() != "[":
        stream.value()
        return
    for _ in stream.elements():
        pass
