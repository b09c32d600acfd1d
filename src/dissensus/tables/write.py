"""Writers of refined labels: tables, Hugging Face datasets, Label Studio predictions, weighted rows.

Also of items to be labelled next, as tasks for Label Studio, Argilla and Prodigy.

Every writer starts from a table of one row per item: item, label, ``p_<class>`` for every class, entropy,
n_labels. Files are written atomically.
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
from dissensus.tables.results import ENTROPY, N_LABELS, json_safe, probability_columns, without_formulas

OUTPUT_TABLE_FORMATS = ("csv", "parquet", "jsonl")
OUTPUT_FORMATS = (*OUTPUT_TABLE_FORMATS, "huggingface", "label-studio", "weighted")
_OUTPUT_SUFFIXES = {
    ".csv": "csv", ".parquet": "parquet", ".pq": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl",
}  # fmt: skip
_ROWS_PER_JSON_BATCH = 10_000


def write_labels(
    labels: Any,
    path: str | Path,
    format: str | None = None,
    *,
    items: Any = None,
    question: str = "label",
    to_name: str = "text",
) -> Path:
    """Write refined labels to a file or a dataset for another tool.

    Parameters
    ----------
    labels
        A fitted model, or a frame as ``model.to_frame()`` gives it.
    path
        The file to write, or the folder of a Hugging Face dataset.
    format
        ``"csv"``, ``"parquet"``, ``"jsonl"``, ``"huggingface"``, ``"label-studio"`` or ``"weighted"`` (rows
        of item, label and weight, in the table format of the suffix); None: the format of the suffix.
    items
        A frame with further columns to write, such as the text of each item. Its ids are in the column
        ``item``, or in the first one.
    question, to_name
        Label Studio: names of the control and of the labelled object.
    """
    path = Path(path)
    kind = format or _table_format(path)
    if kind not in OUTPUT_FORMATS:
        raise bad_parameter("write_labels", "format", f"one of {', '.join(OUTPUT_FORMATS)}", kind)
    table = _label_table(labels)
    side = None
    if items is not None:  # its columns without the ids, in the order of the labels; null for missing items
        items = _arrow(items)
        key = "item" if "item" in items.column_names else items.column_names[0]
        ids = items[key].cast(pa.string()).combine_chunks()
        rows = pc.index_in(table["item"].cast(pa.string()).combine_chunks(), value_set=ids)
        side = items.drop_columns([key]).take(rows)
    if kind == "huggingface":
        _write_dataset(_with_columns(table, side), path)
    elif kind == "label-studio":
        model = type(labels).__name__ if hasattr(labels, "label_distributions_") else ""
        _write_predictions(table, side, path, question, to_name, f"dissensus {model}".strip())
    elif kind == "weighted":
        write_table(weighted_rows(table, side), path)
    else:
        write_table(_with_columns(table, side), path, kind)
    return path


def write_table(table: pa.Table, path: str | Path, format: str | None = None) -> Path:
    """Write an Arrow table as CSV, Parquet or JSON lines (CSV and JSON gzipped if the name ends in .gz)."""
    write_tables({Path(path): table}, format)
    return Path(path)


def write_tables(tables: Mapping[Path, pa.Table], format: str | None = None) -> None:
    """Write several Arrow tables, by path: all of them or none."""
    kinds = [format or _table_format(path) for path in tables]
    for kind in kinds:
        if kind not in OUTPUT_TABLE_FORMATS:
            raise bad_parameter("write_table", "format", f"one of {', '.join(OUTPUT_TABLE_FORMATS)}", kind)
    with atomic_paths(list(tables)) as temporary:
        for kind, table, file in zip(kinds, tables.values(), temporary, strict=True):
            if kind == "parquet":
                pq.write_table(table, file)
                continue
            with pa.output_stream(str(file), compression="gzip" if file.suffix == ".gz" else None) as sink:
                if kind == "csv":
                    options = pa_csv.WriteOptions(quoting_style="needed")
                    pa_csv.write_csv(without_formulas(_without_dictionaries(table)), sink, options)
                else:
                    for row in _rows(table):
                        sink.write(json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n")


def weighted_rows(labels: Any, items: pa.Table | None = None) -> pa.Table:
    """Return one row per item and class of positive probability, which is the row's weight.

    A learner that accepts only hard labels and sample weights can fit the distributions on these rows: the
    weighted log-loss of an item's rows is its cross-entropy with the distribution.
    """
    table = _label_table(labels)
    columns = probability_columns(table.column_names)
    probabilities = np.column_stack([table[name].to_numpy() for name in columns.values()])
    item, label = np.nonzero(probabilities > 0)
    labels_of_rows, weights = pa.array(list(columns)).take(pa.array(label)), probabilities[item, label]
    rows = pa.table({"item": table["item"].take(pa.array(item)), "label": labels_of_rows, "weight": weights})
    return _with_columns(rows, None if items is None else items.take(pa.array(item)))


# ---- the table of refined labels ----------------------------------------------------------------------


def _label_table(labels: Any) -> pa.Table:
    """Return the labels as an Arrow table, after checking that it has the necessary columns."""
    is_model = hasattr(labels, "label_distributions_")
    table = pa.concat_tables(map(arrow_table, labels.label_batches())) if is_model else _arrow(labels)
    probabilities = probability_columns(table.column_names).values()
    missing = [repr(name) for name in ("item", "label") if name not in table.column_names]
    missing += [] if probabilities else ["p_<class>"]
    if missing:
        raise DataError(f"the labels to write have no column {missing[0]}; give a model or its to_frame()")
    for name in probabilities:
        is_valid = pc.and_(pc.is_finite(table[name]), pc.greater_equal(table[name], 0))
        if table[name].null_count or not pc.all(is_valid).as_py():
            raise DataError(f"column {name!r} has values that are not probabilities; correct them")
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
    if not suffixes or suffixes[-1] not in _OUTPUT_SUFFIXES:
        endings = ", ".join(_OUTPUT_SUFFIXES)
        raise DataError(f"{path}: unknown suffix; use one of {endings}, or use {setting('format')}")
    return _OUTPUT_SUFFIXES[suffixes[-1]]


# ---- one writer per format -----------------------------------------------------------------------------


def _write_dataset(table: pa.Table, path: Path) -> None:
    """Write the files of ``datasets.Dataset.save_to_disk``: an Arrow stream and two JSON files."""
    table = _without_dictionaries(table)
    names = {pa.float64(): "float64", pa.float32(): "float32"}  # other names are the same in Arrow
    types = {field.name: names.get(field.type, str(field.type)) for field in table.schema}
    features = {name: {"dtype": dtype, "_type": "Value"} for name, dtype in types.items()}
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
    """Write Label Studio tasks with the refined label as a pre-annotation."""
    if side is None or not side.num_columns:
        raise DataError("Label Studio shows the text of each task; give the items with their text")
    columns = probability_columns(table.column_names)
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as sink:
        separator = "[\n"
        for row, data in zip(_rows(table), _rows(side), strict=True):
            label = str(row["label"])
            distribution = {name: row[column] for name, column in columns.items()}
            details = {name: value for name, value in row.items() if name in (ENTROPY, N_LABELS)}
            shown = {name: value for name, value in data.items() if value is not None}
            task = {
                "data": {"item": row["item"]} | shown,
                "meta": {"distribution": distribution} | details,
                "predictions": [_prediction(label, distribution.get(label), question, to_name, version)],
            }
            sink.write(separator + json.dumps(task, ensure_ascii=False, default=str))
            separator = ",\n"
        sink.write("\n]\n" if table.num_rows else "[]\n")


def _prediction(
    label: str | list[str], score: Any, question: str, to_name: str, version: str
) -> dict[str, Any]:
    """Return a label, or a set of classes, in the form of a Label Studio prediction."""
    choices = label if isinstance(label, list) else [label]
    result = {"from_name": question, "to_name": to_name, "type": "choices", "value": {"choices": choices}}
    return {"model_version": version, "score": score, "result": [result]}


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=_ROWS_PER_JSON_BATCH):
        yield from cast("list[dict[str, Any]]", batch.to_pylist())


def _without_dictionaries(table: pa.Table) -> pa.Table:
    """Replace categorical columns by their values."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(field.type.value_type))
    return table


# ---- items to be labelled next ------------------------------------------------------------------------
# Every record has the item's id in ``item``. Reading the tool's export with that column as the item joins the
# new labels to the old ones.

TOOLS = ("label-studio", "argilla", "prodigy")


def write_tasks(
    rows: Sequence[Mapping[str, Any]],
    path: str | Path,
    tool: str,
    classes: Sequence[str],
    *,
    question: str = "label",
) -> Path:
    """Write items as tasks of a tool; ``rows`` have item, text, action, n_more, reason, label and share.

    ``question`` is the name of the tool's control.
    """
    if tool not in TOOLS:
        raise bad_parameter("write_tasks", "tool", f"one of {', '.join(TOOLS)}", tool)
    if any(row.get("text") is None for row in rows):
        remedy = f"name the {setting('items')} table that has it"
        raise DataError(f"a labelling tool shows the text of the items; {remedy}")
    records = [json_safe(_task(row, tool, classes, question)) for row in rows]
    if tool == "prodigy":
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    else:
        text = json.dumps(records, ensure_ascii=False, indent=1) + "\n"
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def _task(row: Mapping[str, Any], tool: str, classes: Sequence[str], question: str) -> dict[str, Any]:
    """Return an item as a task, with its current label as a prediction or suggestion."""
    if tool == "label-studio":
        return {
            "data": {name: row[name] for name in ("item", "text", "action", "n_more", "reason")},
            "predictions": [_prediction(row["label"], row["share"], question, "text", "dissensus")],
        }
    if tool == "argilla":  # the format of ``dataset.records.from_json``
        return {
            "id": row["item"],
            "fields": {"text": row["text"]},
            "metadata": {name: row[name] for name in ("action", "n_more", "reason")},
            "suggestions": {question: {"value": row["label"], "score": row["share"], "agent": "dissensus"}},
            "responses": {},
            "vectors": {},
        }
    so_far = f"{row['label']} {row['share']:.0%}"  # Prodigy's choice interface cannot preselect
    meta = {"action": row["action"], "reason": row["reason"], "so far": so_far}
    options = [{"id": name, "text": name} for name in classes]
    return {"item": row["item"], "text": row["text"], "options": options, "meta": meta}
