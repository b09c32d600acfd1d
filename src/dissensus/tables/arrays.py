"""Safetensors files of arrays and a JSON header with one checksum, and estimators saved in them.

A file consists of the length of a JSON index, the index (the position of each array's bytes), and the bytes
as they are in memory. Reading executes nothing, a file with one changed bit is refused, and writing does not
copy the arrays. Models, learners and guided classifiers are saved this way.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus._version import __version__
from dissensus.errors import DataError, DissensusError, MissingExtraError, ModelFileError
from dissensus.labels.vocabulary import MAX_STRING_BYTES, Vocabulary, is_string_type, string_buffers
from dissensus.tables.atomic import atomic_path

Arrays = dict[str, NDArray[Any]]
Header = dict[str, Any]

HEADER_KEY = "dissensus"
FORMAT_VERSION = "4"
DRAWS_FILE = "draws.safetensors"  # posterior draws, saved next to the model's file
INDEX_ALIGNMENT = 8  # bytes

# NumPy's type names and those of safetensors, widest first so that every array is aligned.
SAFETENSORS_TYPES = {
    "uint64": "U64", "int64": "I64", "float64": "F64", "float32": "F32", "uint32": "U32", "int32": "I32",
    "float16": "F16", "uint16": "U16", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


# ---- writing ----------------------------------------------------------------------------------------------


def write_arrays(path: str | Path, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write a JSON header and arrays of numbers or booleans to one file, atomically."""
    text = json.dumps(header, sort_keys=True, default=_json_default)
    by_name: Arrays = {}
    for name, values in arrays.items():  # C-ordered and little-endian, copied only if they are not
        array = np.asarray(values, order="C")
        if array.dtype.name not in SAFETENSORS_TYPES:
            raise DataError(f"{name}: an array of {array.dtype} cannot be saved; use numbers")
        by_name[name] = array.astype(array.dtype.newbyteorder("<"), copy=False)
    types = list(SAFETENSORS_TYPES)  # the safetensors package orders arrays by type, then name
    by_name = dict(sorted(by_name.items(), key=lambda entry: (types.index(entry[1].dtype.name), entry[0])))
    metadata = {HEADER_KEY: text, "format": FORMAT_VERSION, "version": __version__}
    index: dict[str, Any] = {"__metadata__": metadata | {"sha256": _digest(text, by_name)}}
    end = 0
    for name, array in by_name.items():
        start, end = end, end + array.nbytes
        dtype = SAFETENSORS_TYPES[array.dtype.name]
        index[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [start, end]}
    encoded = json.dumps(index, separators=(",", ":"), ensure_ascii=False).encode()
    encoded += b" " * (-len(encoded) % INDEX_ALIGNMENT)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for array in by_name.values():
            file.write(_bytes_of(array))


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """Return the array's memory, not copied."""
    return array.reshape(-1).view(np.uint8).data


def _digest(text: str, arrays: Arrays) -> str:
    """Return the SHA-256 of the header and of each array's name, type, shape and bytes."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        digest.update(_bytes_of(arrays[name]))
    return digest.hexdigest()


def _json_default(value: Any) -> Any:
    """Convert a NumPy number or a path for JSON; a function, such as a progress callback, becomes null."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if callable(value):
        return None
    remedy = "use numbers, text or None, or do not save"
    raise DataError(f"a setting of type {type(value).__name__} cannot be saved; {remedy}")


# ---- reading ----------------------------------------------------------------------------------------------


def read_arrays(path: str | Path) -> tuple[Header, Arrays]:
    """Return the header and the arrays of a file that :func:`write_arrays` wrote."""
    metadata, arrays = _read_safetensors(Path(path))
    if HEADER_KEY not in metadata:
        raise ModelFileError(f"{path}: a safetensors file that dissensus did not write; give one it saved")
    if metadata.get("format") != FORMAT_VERSION:
        problem = f"format {metadata.get('format')}, but this version reads {FORMAT_VERSION}"
        raise ModelFileError(f"{path}: {problem}; use dissensus {metadata.get('version')} or fit again")
    if metadata.get("sha256") != _digest(metadata[HEADER_KEY], arrays):
        raise ModelFileError(f"{path}: the file was altered after it was saved; save it again")
    try:
        header = json.loads(metadata[HEADER_KEY])
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise ModelFileError(f"{path}: its header is damaged; save it again")
    return header, arrays


def read_with_draws(path: str | Path) -> tuple[Header, Arrays]:
    """Return the header and the arrays of a model, with the draws saved in a separate file if any."""
    header, arrays = read_arrays(path)
    if "draws" not in header:
        return header, arrays
    draws_path = Path(path).with_name(DRAWS_FILE)
    draws_header, draws = read_arrays(draws_path)
    if draws_header.get("draws") != header["draws"]:
        remedy = "keep a run's files together"
        raise ModelFileError(f"{draws_path}: holds the draws of a different model than {path}; {remedy}")
    return header, arrays | draws


def _read_safetensors(path: Path) -> tuple[dict[str, str], Arrays]:
    """Return the metadata and the arrays of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        problem = "is a directory" if path.is_dir() else "does not exist"
        raise ModelFileError(f"{path} {problem}; give the path of a saved file (*.safetensors)")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata: dict[str, str] = file.metadata() or {}
            for name in file.keys():  # noqa: SIM118
                dtype = file.get_slice(name).get_dtype()
                if dtype not in SAFETENSORS_TYPES.values():
                    raise ValueError(f"{name} holds numbers of type {dtype}")
            return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, MemoryError) as error:
        reason = one_line(error)
        raise ModelFileError(f"{path}: not a complete safetensors file ({reason}); save it again") from None


def one_line(error: Exception) -> str:
    """Return the message of an error on one line."""
    return " ".join(str(error).split())


# ---- ids as arrays: UTF-8 bytes with offsets, or numbers in their type -----------------------------------


def pack_ids(name: str, vocabulary: Vocabulary) -> Arrays:
    """Return ids as arrays whose names begin with ``name``."""
    ids = vocabulary.arrow
    if not is_string_type(ids.type):
        return {f"{name}.values": ids.to_numpy(zero_copy_only=False)}
    starts, text = string_buffers(ids)
    offsets = starts.astype(np.int64) - starts[0]
    return {f"{name}.bytes": text[starts[0] : starts[-1]], f"{name}.offsets": offsets}


def unpack_ids(name: str, arrays: Arrays) -> Vocabulary:
    """Return the ids that :func:`pack_ids` turned into arrays."""
    role = "label" if name == "class" else name
    if f"{name}.values" in arrays:
        return Vocabulary(arrays[f"{name}.values"], role)
    text, offsets = arrays[f"{name}.bytes"], arrays[f"{name}.offsets"]
    is_large = int(offsets[-1]) > MAX_STRING_BYTES
    starts = offsets.astype(np.int64 if is_large else np.int32)
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(np.ascontiguousarray(text))]
    ids = pa.Array.from_buffers(pa.large_string() if is_large else pa.string(), len(starts) - 1, buffers)
    ids.validate(full=True)
    return Vocabulary(ids, role)


# ---- estimators ------------------------------------------------------------------------------------------
# An estimator that can be saved has ``_state``, which returns its fitted attributes as JSON and arrays, and
# ``_restore``, which takes them. Functions whose first argument is ``self`` become its methods.


def save(self: Any, path: str | Path) -> None:
    """Save the fitted estimator to one safetensors file (no pickle).

    Parameters
    ----------
    path
        The file to write; ``dissensus.load`` reads it.
    """
    self._check_fitted()
    write_arrays(path, *pack(self))


def save_draws_apart(self: Any, path: Path) -> None:
    """Save the fitted estimator, with posterior draws (if any) in ``draws.safetensors`` next to it.

    Parameters
    ----------
    path
        The file to write.
    """
    self._check_fitted()
    header, arrays = pack(self)
    draws = {name: arrays.pop(name) for name in [*arrays] if name.split(".")[0] in self._draw_arrays}
    if draws:
        header["draws"] = _digest("", draws)
        write_arrays(path.with_name(DRAWS_FILE), {"draws": header["draws"]}, draws)
    write_arrays(path, header, arrays)


def pack(estimator: Any, *, fitted: bool = True) -> tuple[Header, Arrays]:
    """Return an estimator as a header and arrays; with ``fitted=False``, only its settings.

    Settings that are estimators themselves are saved by ``_state``.
    """
    kind = type(estimator)
    if not kind.__module__.startswith("dissensus."):
        problem = f"{kind.__name__} is not a class of dissensus, so its file could not be loaded again"
        raise DataError(f"{problem}; save its arrays yourself")
    settings = estimator.get_params(deep=False).items()
    settings = {name: value for name, value in settings if not hasattr(value, "get_params")}
    header: Header = {"class": kind.__name__, "settings": settings}
    if not fitted:
        return header, {}
    header["facts"], arrays = estimator._state()
    return header, arrays


def unpack(kind: type[Any], header: Header, arrays: Arrays) -> Any:
    """Return the estimator, of class ``kind``, that :func:`pack` took apart."""
    # JSON writes a tuple as a list, and no setting is a list.
    settings = header["settings"].items()
    estimator = kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in settings})
    estimator.check_params()
    if "facts" in header:
        estimator._restore(header["facts"], arrays)
    return estimator


@contextmanager
def explaining_damage(path: str | Path) -> Iterator[None]:
    """Report in one line a file whose parts do not fit together."""
    try:
        yield
    except MissingExtraError:
        raise
    except (
        ArithmeticError, AttributeError, DissensusError, LookupError, MemoryError, RuntimeError, TypeError,
        ValueError,
    ) as error:  # fmt: skip
        problem = f"the file is damaged or incomplete ({one_line(error)})"
        raise ModelFileError(f"{path}: {problem}; fit again and save again") from None
