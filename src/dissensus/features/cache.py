"""Embeddings kept on disk: one SQLite file a model, one row a text.

SQLite brings what a cache shared by several runs needs: a row is there whole or not at all, a killed run
leaves every batch it had committed, and two runs may read and append at the same time. A vector is stored as
the bytes of its float32 numbers under the SHA-256 of its text; nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError

Vectors = NDArray[np.float32]

LOCK_SECONDS = 60.0  # how long to wait for another run that is writing
QUERY_SIZE = 500  # texts looked up at a time; SQLite takes at least 999 values in one query
SCHEMA = "CREATE TABLE IF NOT EXISTS embedding (text BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID"


def default_folder() -> Path:
    """``$DISSENSUS_CACHE``, or the user's cache folder."""
    named = os.environ.get("DISSENSUS_CACHE")
    if named:
        return Path(named)
    system = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(system) if system else Path.home() / ".cache") / "dissensus"


def text_key(text: str) -> bytes:
    """What a text is filed under (a lone surrogate, which UTF-8 cannot hold, included)."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class EmbeddingCache:
    """The vectors of one model, by text."""

    def __init__(self, folder: Path, model_name: str, model_identity: str) -> None:
        digest = hashlib.sha256(model_identity.encode()).hexdigest()[:16]
        readable = "".join(c if c.isalnum() or c in "-_." else "-" for c in model_name)[-60:]
        self.path = folder / "embeddings" / f"{readable}-{digest}.sqlite"

    def read(self, texts: Sequence[str]) -> dict[str, Vectors]:
        """The vectors that are there; absent texts are absent from the result."""
        if not self.path.exists():
            return {}
        text_of = {text_key(text): text for text in texts}
        keys = list(text_of)
        found: dict[str, Vectors] = {}
        with self._connection() as connection:
            for start in range(0, len(keys), QUERY_SIZE):
                some = keys[start : start + QUERY_SIZE]
                marks = ",".join("?" * len(some))
                query = f"SELECT text, vector FROM embedding WHERE text IN ({marks})"
                found |= {
                    text_of[key]: np.frombuffer(content, np.float32)
                    for key, content in connection.execute(query, some)
                }
        return found

    def write(self, texts: Iterable[str], vectors: Vectors) -> None:
        """Add vectors in one transaction; a text that another run has filed meanwhile keeps its vector."""
        rows = [
            (text_key(text), vector.astype(np.float32).tobytes())
            for text, vector in zip(texts, vectors, strict=True)
        ]
        with self._connection() as connection, connection:
            connection.executemany("INSERT OR IGNORE INTO embedding VALUES (?, ?)", rows)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=LOCK_SECONDS)) as connection:
                connection.execute(SCHEMA)
                yield connection
        except (sqlite3.Error, OSError) as error:
            raise DataError(
                f"{self.path}: the embedding cache cannot be used ({error}); "
                "remove that file, or name another folder with cache_dir or DISSENSUS_CACHE"
            ) from None
