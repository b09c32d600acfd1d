"""Labels saved in the directory of a run, so that every command works on the run alone.

::

    annotations.parquet      item, annotator, label, one row for each label
    item_table.parquet       columns of the items, and their gold classes (if any)
    annotator_table.parquet  columns of the annotators (if any)

Labels in a store stay there; the run saves its path.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dissensus.annotators.pseudonyms import is_pseudonymous
from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import arrow_numbers, arrow_strings, numpy_numbers

ROWS_FILE, ITEMS_FILE = "annotations.parquet", "item_table.parquet"
ANNOTATOR_TABLE_FILE = "annotator_table.parquet"
GOLD_COLUMN = "dissensus:gold"  # class codes, in the item table
METADATA_KEY = b"dissensus"


def save_labels(labels: Annotations, folder: Path) -> None:
    """Write the labels into a folder."""
    from pyarrow import parquet

    origin = getattr(labels, "origin", None)
    metadata: dict[str, Any] = {
        "classes": labels.class_vocabulary.arrow.to_pylist(),
        "label_type": labels.label_type,
        "anonymous": labels.anonymous,
        "frame_kind": labels.frame_kind,
        "columns_read": dict(labels.columns_read),
        "store": None if origin is None else [str(origin.path), origin.seal],
    }
    names = ("item", "annotator", "label")
    rows: dict[str, Any] = dict.fromkeys(names, arrow_strings([]))
    if origin is None:
        for name, codes, vocabulary in zip(names, labels.columns, labels.vocabularies, strict=True):
            rows[name] = pa.DictionaryArray.from_arrays(arrow_numbers(codes), vocabulary.arrow)
    table = pa.table(rows).replace_schema_metadata({METADATA_KEY: json.dumps(metadata).encode()})
    parquet.write_table(table, folder / ROWS_FILE)
    items = labels.item_table
    if labels.gold is not None:
        items = pa.table({"item": labels.item_vocabulary.arrow}) if items is None else items
        items = items.append_column(GOLD_COLUMN, arrow_numbers(labels.gold))
    annotators = None if is_pseudonymous(labels) else labels.annotator_table  # attributes may identify people
    for table, name in ((items, ITEMS_FILE), (annotators, ANNOTATOR_TABLE_FILE)):
        if table is not None:
            parquet.write_table(table, folder / name)


def load_labels(folder: Path) -> Annotations | None:
    """Load the labels saved in a folder; return None if there are none."""
    from pyarrow import parquet

    if not (folder / ROWS_FILE).is_file():
        return None
    tables: dict[str, Any] = dict.fromkeys((ROWS_FILE, ITEMS_FILE, ANNOTATOR_TABLE_FILE))
    try:
        for name in tables:
            if (folder / name).is_file():
                tables[name] = parquet.read_table(folder / name)
                tables[name].validate(full=True)
        metadata = json.loads(tables[ROWS_FILE].schema.metadata[METADATA_KEY])
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
        raise DataError(f"{folder}: the saved labels are damaged; fit the labels again") from None
    rows, items, annotators = tables.values()
    gold = None
    if items is not None and GOLD_COLUMN in items.column_names:
        gold = numpy_numbers(items.column(GOLD_COLUMN).combine_chunks()).astype(np.int32)
        items = items.drop_columns([GOLD_COLUMN])
    settings = {"items": items, "annotators": annotators, "label_type": metadata["label_type"]}
    if metadata["store"] is not None:
        from dissensus.large.store import is_store, open_annotations, read_manifest

        store, seal = Path(metadata["store"][0]), metadata["store"][1]
        if not is_store(store) or read_manifest(store).seal != seal:
            raise DataError(f"{folder}: the store of its labels ({store}) has changed or is gone; fit again")
        labels = open_annotations(store, **settings)
        return replace(labels, gold=gold) if gold is not None else labels
    settings |= {name: metadata[name] for name in ("classes", "frame_kind")}
    columns = [rows.column(name) for name in ("item", "annotator", "label")]
    labels = Annotations.from_arrays(*columns, **settings)
    more = {name: metadata[name] for name in ("anonymous", "columns_read")}
    return replace(labels, gold=gold, notes=(), **more)
