"""Annotators under numbers: nobody who is given a result can tell who they are.

The numbers follow a keyed digest of the ids, not their alphabet: who knows every id still cannot tell whose
is which. The key is the user's own and stays in the cache folder, so that a search that was stopped goes on,
and the same command gives the same numbers on the same machine.
"""

from __future__ import annotations

import hmac
import os
import re
import secrets
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa

from dissensus.labels.annotations import Annotations
from dissensus.labels.rows import canonical_rows
from dissensus.labels.vocabulary import Vocabulary, places, quoted

KEY_BYTES = 32
_PSEUDONYM = re.compile(r"annotator \d+")


def pseudonymised(annotations: Annotations, key: bytes | None = None) -> Annotations:
    """The labels with ``annotator 1``, ``annotator 2``, … for ids; notes that name one are left out."""
    if annotations.anonymous or pseudonymous(annotations):
        return annotations
    key = key if key is not None else users_key()
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
        table = table.take(places(order)).set_column(0, table.column_names[0], names)
    return replace(
        annotations,
        item=rows[0],
        annotator=rows[1],
        label=rows[2],
        annotator_vocabulary=Vocabulary(names, "annotator"),
        annotator_table=table,
        notes=tuple(note for note in annotations.notes if not any(quoted(name) in note for name in ids)),
    )


def pseudonymous(annotations: Annotations) -> bool:
    """Whether annotators have numbers for names already."""
    return all(_PSEUDONYM.fullmatch(str(name)) for name in annotations.annotators)


def users_key() -> bytes:
    """The user's key, made when it is first asked for; one for this run alone where it cannot be kept."""
    from dissensus.text.embedding import default_folder

    file = default_folder() / "pseudonyms.key"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            # whole or not at all, and the first of two runs wins
            made = file.with_name(f".{secrets.token_hex(8)}")
            handle = os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            try:
                os.write(handle, secrets.token_bytes(KEY_BYTES))
                os.fsync(handle)
                with suppress(FileExistsError):
                    os.link(made, file)
            finally:
                os.close(handle)
                made.unlink()
        return file.read_bytes()
    except OSError:
        return secrets.token_bytes(KEY_BYTES)
