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
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from tempfile import NamedTemporaryFile

import numpy as np
import pyarrow as pa

from dissensus.errors import warn
from dissensus.labels.annotations import Annotations
from dissensus.labels.rows import canonical_rows
from dissensus.labels.vocabulary import Vocabulary, arrow_indices, quoted

KEY_BYTES = 32
_PSEUDONYM = re.compile(r"annotator \d+")
MIN_ID_LENGTH = 4  # of ids that are looked for within longer texts; shorter ones only as whole words
HIDDEN = "…"  # in place of a text that contains an id


def pseudonymise(annotations: Annotations, key: bytes | None = None) -> Annotations:
    """Replace ids by ``annotator 1``, ``annotator 2``, …, also in notes and names of columns."""
    if annotations.anonymous:
        return annotations
    if is_pseudonymous(annotations):
        names = f"annotator 1 to annotator {annotations.n_annotators}"
        warn(f"the annotators are called {names}; these names stay")
        return annotations
    key = users_key() if key is None else key
    ids = [str(name) for name in annotations.annotators]
    order = np.array(sorted(range(len(ids)), key=lambda n: hmac.digest(key, ids[n].encode(), "sha256")))
    code = np.argsort(order).astype(np.int32)
    sizes = annotations.n_items, annotations.n_annotators, annotations.n_classes
    item, label = annotations.item.copy(), annotations.label.copy()
    rows = canonical_rows(item, code[annotations.annotator], label, sizes)
    names = pa.array(pseudonyms(len(ids)))
    table = annotations.annotator_table
    if table is not None:
        table = table.take(arrow_indices(order)).set_column(0, table.column_names[0], names)
    columns, notes = without_ids(annotations.columns_read, annotations.notes, ids)
    return replace(
        annotations, item=rows[0], annotator=rows[1], label=rows[2], annotator_table=table, notes=notes,
        columns_read=columns, annotator_vocabulary=Vocabulary(names, "annotator"),
    )  # fmt: skip


def pseudonyms(n: int) -> list[str]:
    """Return ``annotator 1`` to ``annotator n``, with as many digits as the last."""
    return [f"annotator {number:0{len(str(n))}d}" for number in range(1, n + 1)]


def is_pseudonymous(annotations: Annotations) -> bool:
    """Return True if the annotators are called ``annotator 1`` to the number of annotators."""
    return set(map(str, annotations.annotators)) == set(pseudonyms(annotations.n_annotators))


def may_be_pseudonyms(annotations: Annotations) -> bool:
    """Return True if all ids have the form of a pseudonym: labels of some annotators of an anonymous run."""
    return all(_PSEUDONYM.fullmatch(str(name)) for name in annotations.annotators)


def contains_id(text: str, ids: Collection[str]) -> bool:
    """Check whether a text contains an id: a short one as a whole word, a longer one anywhere."""
    words = set(re.split(r"[\s,;='\"‘’()]+", text)) | set(re.split(r",\s*", text))
    return any(name in words or (len(name) >= MIN_ID_LENGTH and name in text) for name in ids)


def without_ids(
    columns: Mapping[str, str], notes: Sequence[str], ids: Collection[str]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the columns that were read, and the notes, without those that contain ids of annotators.

    In a wide table the annotators are columns, and a note on the columns lists them, perhaps shortened.
    """
    shown, others = dict(columns), [note for note in notes if not contains_id(note, ids)]
    if "annotator" in columns and ("label" not in columns or contains_id(columns["annotator"], ids)):
        column = quoted(shown.pop("annotator"))
        others = [note for note in others if column not in note]
    return shown, tuple(others)


def without_words(command: str, ids: Collection[str]) -> str:
    """Return a command in which words that contain ids are hidden, apart from short numbers."""
    names = [name for name in ids if len(name) >= MIN_ID_LENGTH or not name.isdecimal()]
    words = shlex.split(command)
    return " ".join(HIDDEN if contains_id(word, names) else shlex.quote(word) for word in words)


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
