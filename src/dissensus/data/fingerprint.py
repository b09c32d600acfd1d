"""A short text that is the same for the same labels and changes with any of them."""

from __future__ import annotations

import hashlib

import pyarrow as pa

from dissensus.data.annotations import Annotations


def fingerprint(annotations: Annotations) -> str:
    """SHA-256 of the label rows, the ids they stand for, and the side tables an estimator may read."""
    digest = hashlib.sha256()
    for codes in (annotations.item, annotations.annotator, annotations.label):
        digest.update(codes.astype("<i4").tobytes())
    names = {
        "item": annotations.item_vocabulary.arrow,
        "annotator": annotations.annotator_vocabulary.arrow,
        "class": annotations.class_vocabulary.arrow,
    }
    for name, ids in names.items():
        digest.update(_bytes_of(pa.table({name: ids})))
    for table in (annotations.item_table, annotations.annotator_table):
        digest.update(b"" if table is None else _bytes_of(table))
    return digest.hexdigest()


def _bytes_of(table: pa.Table) -> pa.Buffer:
    whole = table.replace_schema_metadata(None).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    return sink.getvalue()
