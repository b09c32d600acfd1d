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

SPLIT_COLUMNS = ("message_id", "worker_id", "label")


def is_lewidi(entry: Any) -> bool:
    """The value under an item's key."""
    return isinstance(entry, dict) and "annotations" in entry and "annotators" in entry


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
    labels, annotators = (
        [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        for value in (annotations, entry["annotators"])
    )
    if not (isinstance(labels, list) and isinstance(annotators, list) and len(labels) == len(annotators)):
        raise gather.error(
            place, "the annotations do not line up with the annotators; use the file as published"
        )
    yield from zip(annotators, labels, strict=True)


# ---- pandas "split" JSON ------------------------------------------------------------------------------


def read_split(path: Path, gather: Gatherer) -> None:
    """Labels of a table written by pandas with ``orient="split"``: message_id, worker_id, label, message."""
    source = open_source(path)
    columns = next((stream.value() for stream in _at_member(source, "columns")), None)
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise DataError(
            f"{source.name}: has no list of 'columns'; write it with pandas' to_json(orient='split')"
        )
    places = {name: place for place, name in enumerate(columns)}
    item_column = gather.options.item_column or "message_id"
    missing = [name for name in (item_column, "worker_id") if name not in places]
    if missing:
        raise DataError(f"{path}: has no column {missing[0]!r}; it has {listed(columns)}")
    gather.takes(item=item_column, annotator="worker_id")
    names = [str(name) for name in columns if name not in SPLIT_COLUMNS[:2]]
    question = places[gather.choose(names, [name for name in names if name == "label"])]
    text = gather.options.text_column or "message"
    if text in places:
        gather.takes(text=text)
    rows = (row for stream in _at_member(source, "data") for row in stream.elements())
    for number, row in enumerate(rows, start=1):
        place = f"record {number}"
        if not isinstance(row, list) or len(row) != len(columns):
            raise gather.error(place, f"is not a list of {len(columns)} values; export it again")
        shown = as_text(row[places[text]]) if text in places else None
        item = gather.item(place, row[places[item_column]], shown)
        gather.label(place, item, row[places["worker_id"]], gather.parsed(place, as_labels, row[question]))


def _at_member(source: Source, wanted: str) -> Iterator[JsonStream]:
    """The file's stream at the value of one key; the rest is skipped, long arrays piece by piece."""
    with source.text() as text:
        stream = JsonStream(text, source.name)
        for key in stream.members():
            if key == wanted:
                yield stream
            elif stream.peek() != "[":
                stream.value()
            else:
                for _ in stream.elements():
                    pass
