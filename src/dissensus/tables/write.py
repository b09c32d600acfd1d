"""Refined labels on their way out: tables, a Hugging Face dataset, Label Studio predictions, weighted rows.

Also items to be labelled next, as tasks for Label Studio, Argilla and Prodigy.

Every writer starts from the same table, a row per item: item, label, ``p_<class>`` for every class, entropy,
n_labels. Files appear whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from dissensus.errors import DataError, bad_parameter, setting
from dissensus.labels.vocabulary import arrow_table
from dissensus.tables.atomic import atomic_directory, atomic_path, atomic_paths
from dissensus.tables.labels_file import ENTROPY, ITEM, LABEL, N_LABELS, PROBABILITY, probability_columns
from dissensus.tables.results import finite, without_formulas

TABLE_FORMATS = ("csv", "parquet", "jsonl")
OUTPUT_FORMATS = (*TABLE_FORMATS, "huggingface", "label-studio", "weighted")
_SUFFIXES = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_BATCH = 10_000  # rows turned into JSON at a time


def write_labels(
    labels: Any,
    path: str | Path,
    format: str | None = None,
    *,
    items: Any = None,
    question: str = "label",
    to_name: str = "text",
    model_version: str | None = None,
) -> Path:
    """Write refined labels into a file, or a dataset, for another tool.

    Parameters
    ----------
    labels
        A fitted model, or a frame as ``model.to_frame()`` gives it.
    path
        The file to write; of a Hugging Face dataset, the folder.
    format
        ``"csv"``, ``"parquet"``, ``"jsonl"``, ``"huggingface"``, ``"label-studio"`` or ``"weighted"`` (rows
        of item, label and weight, in the table format of the suffix); None takes what the suffix says.
    items
        A frame whose columns are written too, such as the text of each item. The ids are in its column
        ``item``, or in its first.
    question, to_name
        Label Studio: the names of the control, and of the object that is labelled.
    model_version
        Label Studio: who predicts; None takes the name of the model.
    """
    path = Path(path)
    kind = format or _table_format(path)
    if kind not in OUTPUT_FORMATS:
        raise bad_parameter("write_labels", "format", f"one of {', '.join(OUTPUT_FORMATS)}", kind)
    table = _label_table(labels)
    side = None
    if items is not None:  # its columns without the ids, in the order of the labels; null where it has no row
        given = _arrow(items)
        key = "item" if "item" in given.column_names else given.column_names[0]
        known = given[key].cast(pa.string()).combine_chunks()
        rows = pc.index_in(table["item"].cast(pa.string()).combine_chunks(), value_set=known)
        side = given.drop_columns([key]).take(rows)
    if kind == "huggingface":
        _write_dataset(_with_columns(table, side), path)
    elif kind == "label-studio":
        model = type(labels).__name__ if hasattr(labels, "label_distributions_") else ""
        version = model_version or f"dissensus {model}".strip()
        _write_predictions(table, side, path, question, to_name, version)
    elif kind == "weighted":
        write_table(weighted_rows(table, side), path)
    else:
        write_table(_with_columns(table, side), path, kind)
    return path


def write_table(table: pa.Table, path: str | Path, format: str | None = None) -> Path:
    """Write an Arrow table as CSV, Parquet or JSON lines (text gzipped where the name ends in .gz)."""
    write_tables({Path(path): table}, format)
    return Path(path)


def write_tables(tables: Mapping[Path, pa.Table], format: str | None = None) -> None:
    """The same of several tables by the files they go into: all of them, or none."""
    kinds = [format or _table_format(path) for path in tables]
    for kind in kinds:
        if kind not in TABLE_FORMATS:
            raise bad_parameter("write_table", "format", f"one of {', '.join(TABLE_FORMATS)}", kind)
    with atomic_paths(list(tables)) as temporary:
        for kind, table, file in zip(kinds, tables.values(), temporary, strict=True):
            if kind == "parquet":
                pq.write_table(table, file)
                continue
            zipped = file.suffix == ".gz"
            with (
                pa.CompressedOutputStream(str(file), "gzip") if zipped else pa.OSFile(str(file), "wb") as sink
            ):
                if kind == "csv":
                    options = pa_csv.WriteOptions(quoting_style="needed")
                    pa_csv.write_csv(without_formulas(_without_dictionaries(table)), sink, options)
                else:
                    for row in _rows(table):
                        sink.write(json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n")


def weighted_rows(labels: Any, items: pa.Table | None = None) -> pa.Table:
    """One row for every item and class that it may have, the probability as the row's weight.

    A learner that takes only hard labels and sample weights fits the distributions on these rows: the
    weighted log-loss of an item's rows is its cross-entropy with the distribution.
    """
    table = _label_table(labels)
    columns = probability_columns(table.column_names)
    chances = np.column_stack([table[name].to_numpy() for name in columns.values()])
    item, label = np.nonzero(chances > 0)
    items_of_rows, labels_of_rows = pa.array(item), pa.array(list(columns)).take(pa.array(label))
    rows = pa.table({"item": table["item"].take(items_of_rows), "label": labels_of_rows})
    rows = rows.append_column("weight", [chances[item, label]])
    return _with_columns(rows, None if items is None else items.take(items_of_rows))


# ---- the table all formats start from -----------------------------------------------------------------


def _label_table(labels: Any) -> pa.Table:
    """The labels as an Arrow table, once it is certain that it holds what every writer needs."""
    if hasattr(labels, "label_distributions_"):
        table = pa.concat_tables(map(arrow_table, labels.label_pieces()))
    else:
        table = _arrow(labels)
    missing = [name for name in (ITEM, LABEL) if name not in table.column_names]
    probabilities = probability_columns(table.column_names).values()
    if missing or not probabilities:
        what = f"{missing[0]!r}" if missing else f"{PROBABILITY}<class>"
        raise DataError(f"the labels to write have no column {what}; give a model or its to_frame()")
    for name in probabilities:
        sound = pc.and_(pc.is_finite(table[name]), pc.greater_equal(table[name], 0))
        if table[name].null_count or not pc.all(sound).as_py():
            raise DataError(f"column {name!r} holds what is no probability; correct it")
    return table


def _arrow(frame: Any) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame
    import narwhals as nw

    try:
        table: pa.Table = nw.from_native(frame, eager_only=True).to_arrow()
    except (TypeError, pa.ArrowException):
        raise DataError(f"a {type(frame).__name__} cannot be written; give a model or a data frame") from None
    return table.replace_schema_metadata(None)


def _with_columns(table: pa.Table, side: pa.Table | None) -> pa.Table:
    if side is None:
        return table
    for name in side.column_names:
        if name not in table.column_names:
            table = table.append_column(name, side[name])
    return table


def _table_format(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    if not suffixes or suffixes[-1] not in _SUFFIXES:
        endings = ", ".join(_SUFFIXES)
        raise DataError(
            f"{path}: the name does not tell the format; end it in {endings}, or give {setting('format')}"
        )
    return _SUFFIXES[suffixes[-1]]


# ---- one writer a format ------------------------------------------------------------------------------


def _write_dataset(table: pa.Table, path: Path) -> None:
    """The layout of ``datasets.Dataset.save_to_disk``: an Arrow stream and two JSON files about it."""
    table = _without_dictionaries(table)
    names = {pa.float64(): "float64", pa.float32(): "float32"}  # otherwise as Arrow calls them
    features = {
        field.name: {"dtype": names.get(field.type, str(field.type)), "_type": "Value"}
        for field in table.schema
    }
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    file = "data-00000-of-00001.arrow"
    with atomic_directory(path) as folder:
        with pa.ipc.new_stream(str(folder / file), table.schema) as writer:
            writer.write_table(table)
        with (folder / file).open("rb") as written:
            fingerprint = hashlib.file_digest(written, "sha256").hexdigest()[:16]
        info = {"citation": "", "description": "", "features": features, "homepage": "", "license": ""}
        state: dict[str, Any] = {"_data_files": [{"filename": file}], "_fingerprint": fingerprint}
        state |= {"_format_kwargs": {}, "_output_all_columns": False}
        state |= dict.fromkeys(("_format_columns", "_format_type", "_split"))
        (folder / "dataset_info.json").write_text(json.dumps(info, indent=2))
        (folder / "state.json").write_text(json.dumps(state, indent=2))


def _write_predictions(
    table: pa.Table, side: pa.Table | None, path: Path, question: str, to_name: str, version: str
) -> None:
    """Tasks that Label Studio imports with the refined label as a pre-annotation."""
    if side is None or not side.num_columns:
        raise DataError(
            "Label Studio shows a task's text beside its prediction; give the items with their text"
        )
    columns = probability_columns(table.column_names)
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as sink:
        separator = "[\n"
        for row, data in zip(_rows(table), _rows(side), strict=True):
            label = str(row["label"])
            distribution = {name: row[column] for name, column in columns.items()}
            known = {name: value for name, value in row.items() if name in (ENTROPY, N_LABELS)}
            shown = {name: value for name, value in data.items() if value is not None}
            task = {
                "data": {"item": row["item"]} | shown,
                "meta": {"distribution": distribution} | known,
                "predictions": [_prediction(label, distribution.get(label), question, to_name, version)],
            }
            sink.write(separator + json.dumps(task, ensure_ascii=False, default=str))
            separator = ",\n"
        sink.write("\n]\n" if table.num_rows else "[]\n")


def _prediction(label: str, score: Any, question: str, to_name: str, version: str) -> dict[str, Any]:
    """A label as Label Studio has predictions."""
    result = {"from_name": question, "to_name": to_name, "type": "choices", "value": {"choices": [label]}}
    return {"model_version": version, "score": score, "result": [result]}


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=_BATCH):
        yield from cast("list[dict[str, Any]]", batch.to_pylist())


def _without_dictionaries(table: pa.Table) -> pa.Table:
    """Categorical columns as the values they stand for."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(field.type.value_type))
    return table


# ---- items to be labelled next, as the tools import them ----------------------------------------------
# Every record carries the item's own id (``item``), by which the answers are joined to the labels there are:
# reading the tool's export with that column as the item's does it.

TOOLS = ("label-studio", "argilla", "prodigy")


def write_tasks(
    rows: Sequence[Mapping[str, Any]],
    path: str | Path,
    tool: str,
    classes: Sequence[str],
    *,
    question: str = "label",
    version: str = "dissensus",
) -> Path:
    """Write items as tasks: ``rows`` have item, text, action, n_more, reason, label and share.

    ``question`` is the name of the tool's control; ``version`` names who predicts.
    """
    if tool not in TOOLS:
        raise bad_parameter("write_tasks", "tool", f"one of {', '.join(TOOLS)}", tool)
    if any(row.get("text") is None for row in rows):
        raise DataError(
            f"a labelling tool shows the items' text; name the {setting('items')} table that has it"
        )
    records = [finite(_task(row, tool, classes, question, version)) for row in rows]
    with atomic_path(path) as temporary:
        if tool == "prodigy":
            text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        else:
            text = json.dumps(records, ensure_ascii=False, indent=1) + "\n"
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def _task(
    row: Mapping[str, Any], tool: str, classes: Sequence[str], question: str, version: str
) -> dict[str, Any]:
    """An item as a tool imports it, the label so far as a prediction or suggestion."""
    if tool == "label-studio":
        return {
            "data": {name: row[name] for name in ("item", "text", "action", "n_more", "reason")},
            "predictions": [_prediction(row["label"], row["share"], question, "text", version)],
        }
    if tool == "argilla":  # as ``dataset.records.from_json`` reads it
        return {
            "id": row["item"],
            "fields": {"text": row["text"]},
            "metadata": {name: row[name] for name in ("action", "n_more", "reason")},
            "suggestions": {question: {"value": row["label"], "score": row["share"], "agent": version}},
            "responses": {},
            "vectors": {},
        }
    so_far = f"{row['label']} {row['share']:.0%}"  # Prodigy's choice interface: nothing is chosen beforehand
    return {
        "item": row["item"],
        "text": row["text"],
        "options": [{"id": name, "text": name} for name in classes],
        "meta": {"action": row["action"], "reason": row["reason"], "so far": so_far},
    }
