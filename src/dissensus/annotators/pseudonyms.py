"""Pseudonyms: numbers in place of annotator ids.

The numbers follow a keyed digest of the ids, not their alphabetical order, so that the list of ids does not
reveal whose number is which. The key stays in the user's cache folder: the same command gives the same
numbers on the same machine, and an interrupted search can be resumed.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from contextlib import suppress
from dataclasses import replace
from tempfile import NamedTemporaryFile

import numpy as np
import pyarrow as pa

from dissensus.labels.annotations import Annotations
from dissensus.labels.rows import canonical_rows
from dissensus.labels.vocabulary import Vocabulary, arrow_indices, quoted

KEY_BYTES = 32
_PSEUDONYM = re.compile(r"annotator \d+")


def pseudonymise(annotations: Annotations, key: bytes | None = None) -> Annotations:
    """Replace ids by ``annotator 1``, ``annotator 2``, …; notes that contain an id are dropped."""
    if annotations.anonymous or is_pseudonymous(annotations):
        return annotations
    key = users_key() if key is None else key
    ids = [str(name) for name in annotations.annotators]
    order = np.array(sorted(range(len(ids)), key=lambda n: hmac.digest(key, ids[n].encode(), "sha256")))
    code = np.empty(len(order), np.int32)
    code[order] = np.arange(len(order), dtype=np.int32)
    sizes = annotations.n_items, annotations.n_annotators, annotations.n_classes
    item, label = annotations.item.copy(), annotations.label.copy()
    rows = canonical_rows(item, code[annotations.annotator], label, sizes)
    width = len(str(len(ids)))
    names = pa.array([f"annotator {n + 1:0{width}d}" for n in range(len(ids))])
    table = annotations.annotator_table
    if table is not None:
        table = table.take(arrow_indices(order)).set_column(0, table.column_names[0], names)
    notes = tuple(note for note in annotations.notes if not any(quoted(name) in note for name in ids))
    return replace(
        annotations, item=rows[0], annotator=rows[1], label=rows[2], annotator_table=table, notes=notes,
        annotator_vocabulary=Vocabulary(names, "annotator"),
    )  # fmt: skip


def is_pseudonymous(annotations: Annotations) -> bool:
    """Return True if the annotators have pseudonyms already."""
    return all(_PSEUDONYM.fullmatch(str(name)) for name in annotations.annotators)


def users_key() -> bytes:
    """Return the user's key, creating it on first use; a temporary one if it cannot be saved."""
    from dissensus.text.embedding import default_folder

    file = default_folder() / "pseudonyms.key"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            # atomic, and readable by the user only; if two runs create a key at once, the first one wins
            with NamedTemporaryFile(dir=file.parent, buffering=0) as temporary:
                temporary.write(secrets.token_bytes(KEY_BYTES))
                os.fsync(temporary.fileno())
                with suppress(FileExistsError):
                    os.link(temporary.name, file)
        return file.read_bytes()
    except OSError:
        return secrets.token_bytes(KEY_BYTES)
