"""Saved models: arrays in a safetensors file, everything else as JSON in its header.

Nothing executes on loading. Ids are stored as UTF-8 bytes with offsets, or as numbers of their own type.
The header carries a seal, SHA-256 over itself and the arrays: a file with one flipped bit is refused.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus._version import __version__
from dissensus.data.arrow import is_text
from dissensus.data.vocabulary import MOST_TEXT, Vocabulary, text_of
from dissensus.errors import DataError, DissensusError, ModelFileError
from dissensus.io.arrays import write_tensors
from dissensus.io.atomic import atomic_path
from dissensus.models.base import Model

HEADER_KEY = "dissensus"
FORMAT_VERSION = 1
VOCABULARIES = ("item", "annotator", "class")
COMMON_ARRAYS = ("label_distributions_", "prior_distribution_", "n_labels_", "trace_")


def save_model(model: Model, path: Path) -> None:
    """Write a fitted model, whole or not at all."""
    tensors = {name: getattr(model, name) for name in (*COMMON_ARRAYS, *model._arrays)}
    for kind in VOCABULARIES:
        tensors |= _pack_ids(kind, getattr(model, f"{kind}_vocabulary_"))
    header = {
        "format": FORMAT_VERSION,
        "version": __version__,
        "model": type(model).__name__,
        "settings": model.get_params(deep=False),
        "stopped": model.stopped_,
        "frame_kind": model.frame_kind_,
    }
    arrays = {name: np.asarray(value, order="C") for name, value in tensors.items()}
    header["seal"] = _seal(header, arrays)
    with atomic_path(path) as temporary:
        write_tensors(temporary, arrays, {HEADER_KEY: _json(header)})


def load(path: str | Path) -> Model:
    """Read a model that :meth:`Model.save` wrote."""
    from dissensus.models import model_class

    header, tensors = _read(Path(path))
    try:
        # JSON writes a tuple as a list, and no setting is a list.
        settings = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in header["settings"].items()
        }
        model: Model = model_class(header["model"])(**settings)
        for kind in VOCABULARIES:
            setattr(model, f"{kind}_vocabulary_", _unpack_ids(kind, tensors))
        for name in (*COMMON_ARRAYS, *model._arrays):
            setattr(model, name, tensors[name])
        model.stopped_, model.frame_kind_ = header["stopped"], header["frame_kind"]
    except (KeyError, TypeError, ValueError, AttributeError, DissensusError) as error:
        raise ModelFileError(
            f"{path}: the model file is damaged or incomplete ({error}); fit again and save anew"
        ) from None
    return model


def _json(header: dict[str, Any]) -> str:
    """The header as text, the same for the same content."""
    return json.dumps(header, sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    """A NumPy number as a plain one; other things have no place in a header."""
    if isinstance(value, np.generic):
        return value.item()
    kind = type(value).__name__
    raise DataError(f"a setting of type {kind} cannot be saved; use numbers, text or None, or do not save")


def _seal(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> str:
    """A digest of everything the file says: the header, and each array's name, type, shape and bytes."""
    seal = hashlib.sha256(_json(header).encode())
    for name in sorted(arrays):
        seal.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        seal.update(arrays[name].ravel().view(np.uint8).data)
    return seal.hexdigest()


def _read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise ModelFileError(f"{path} {what}; give the path of a saved model (*.safetensors)")
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get(HEADER_KEY, "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ModelFileError(
            f"{path}: not a whole safetensors file ({reason}); save the model anew"
        ) from None
    if not isinstance(header, dict):
        raise ModelFileError(f"{path}: a safetensors file, but not one of dissensus; give a model it saved")
    if header.get("format") != FORMAT_VERSION:
        raise ModelFileError(
            f"{path}: model format {header.get('format')}, but this version reads {FORMAT_VERSION}; "
            f"use dissensus {header.get('version')} or fit again"
        )
    if header.pop("seal", None) != _seal(header, tensors):
        raise ModelFileError(
            f"{path}: the model file has been altered since it was saved; save the model anew"
        )
    return header, tensors


def _pack_ids(kind: str, vocabulary: Vocabulary) -> dict[str, NDArray[Any]]:
    ids = vocabulary.arrow
    if not is_text(ids.type):
        return {f"{kind}.values": ids.to_numpy(zero_copy_only=False)}
    starts, text = text_of(ids)
    offsets = starts.astype(np.int64) - starts[0]
    return {f"{kind}.bytes": text[starts[0] : starts[-1]], f"{kind}.offsets": offsets}


def _unpack_ids(kind: str, tensors: dict[str, NDArray[Any]]) -> Vocabulary:
    if f"{kind}.values" in tensors:
        return Vocabulary(tensors[f"{kind}.values"], _word(kind))
    text, offsets = tensors[f"{kind}.bytes"], tensors[f"{kind}.offsets"]
    wide = int(offsets[-1]) > MOST_TEXT
    starts = offsets.astype(np.int64 if wide else np.int32)
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(np.ascontiguousarray(text))]
    ids = pa.Array.from_buffers(pa.large_string() if wide else pa.string(), len(starts) - 1, buffers)
    ids.validate(full=True)
    return Vocabulary(ids, _word(kind))


def _word(kind: str) -> str:
    return "label" if kind == "class" else kind
