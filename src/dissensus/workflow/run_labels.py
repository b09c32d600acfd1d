"""The labels of a run, kept in its directory so that every command works on the run alone.

::

    annotations.parquet      item, annotator, label, one row for each label
    item_table.parquet       what is known of the items, and their gold classes
    annotator_table.parquet  what is known of the annotators

The last two are there where something is known. Labels in a store stay there, and the run keeps its path.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dissensus.annotators.pseudonyms import pseudonymous
from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import numbers

ROWS, ITEMS, PEOPLE = "annotations.parquet", "item_table.parquet", "annotator_table.parquet"
GOLD = "dissensus:gold"  # column of class codes in the item table
ABOUT = b"dissensus"  # key of the file's metadata


def save_labels(labels: Annotations, folder: Path) -> None:
    """Write the labels into a folder."""
    from pyarrow import parquet

    origin = getattr(labels, "origin", None)
    about: dict[str, Any] = {
        "classes": labels.class_vocabulary.arrow.to_pylist(),
        "label_type": labels.label_type,
        "anonymous": labels.anonymous,
        "frame_kind": labels.frame_kind,
        "columns_read": dict(labels.columns_read),
        "store": None if origin is None else [str(origin.path), origin.seal],
    }
    names = ("item", "annotator", "label")
    rows: dict[str, Any] = {name: pa.array([], pa.string()) for name in names}
    if origin is None:
        coded = zip(names, labels.columns, labels.vocabularies, strict=True)
        rows = {
            name: pa.DictionaryArray.from_arrays(pa.array(codes), vocabulary.arrow)
            for name, codes, vocabulary in coded
        }
    table = pa.table(rows).replace_schema_metadata({ABOUT: json.dumps(about).encode()})
    parquet.write_table(table, folder / ROWS)
    items = labels.item_table
    if labels.gold is not None:
        items = pa.table({"item": labels.item_vocabulary.arrow}) if items is None else items
        items = items.append_column(GOLD, pa.array(labels.gold))
    people = None if pseudonymous(labels) else labels.annotator_table  # attributes may name who they are
    for side, name in ((items, ITEMS), (people, PEOPLE)):
        if side is not None:
            parquet.write_table(side, folder / name)


def load_labels(folder: Path) -> Annotations | None:
    """The labels that a folder keeps; None where it keeps none."""
    from pyarrow import parquet

    if not (folder / ROWS).is_file():
        return None
    try:
        rows = parquet.read_table(folder / ROWS)
        sides = [
            parquet.read_table(folder / name) if (folder / name).is_file() else None
            for name in (ITEMS, PEOPLE)
        ]
        about = json.loads(rows.schema.metadata[ABOUT])
        for table in (rows, *sides):
            if table is not None:
                table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
        raise DataError(f"{folder}: the labels that it keeps are damaged; fit them again") from None
    items, people = sides
    gold = None
    if items is not None and GOLD in items.column_names:
        gold = numbers(items.column(GOLD).combine_chunks()).astype(np.int32)
        items = items.drop_columns([GOLD])
    if about["store"] is not None:
        from dissensus.large.store import is_store, open_annotations, read_manifest

        store, seal = Path(about["store"][0]), about["store"][1]
        if not is_store(store) or read_manifest(store).seal != seal:
            raise DataError(f"{folder}: the store of its labels, {store}, is gone or another one; fit again")
        labels = open_annotations(store, items=items, annotators=people, label_type=about["label_type"])
        return replace(labels, gold=gold) if gold is not None else labels
    labels = Annotations.from_arrays(
        *(rows.column(name) for name in ("item", "annotator", "label")),
        classes=about["classes"],
        items=items,
        annotators=people,
        frame_kind=about["frame_kind"],
        label_type=about["label_type"],
    )
    more = {"anonymous": about["anonymous"], "columns_read": about["columns_read"], "notes": ()}
    return replace(labels, gold=gold, **more)
