"""Array files: arrays and a JSON header behind one checksum, and the estimators that are kept in them.

A file is a safetensors file: the length of a JSON index, the index, which says where each array's bytes are,
and the bytes as they lie in memory. Nothing executes on reading, a file with one changed bit is refused, and
writing makes no second copy of the arrays. Models, learners and guided classifiers are such files.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dissensus._version import __version__
from dissensus.errors import DataError, DissensusError, MissingExtraError, ModelFileError
from dissensus.labels.vocabulary import MOST_TEXT, Vocabulary, is_text, text_of
from dissensus.tables.atomic import atomic_path

Arrays = dict[str, NDArray[Any]]
Header = dict[str, Any]

HEADER_KEY = "dissensus"
FORMAT = "2"
DRAWS = "draws.safetensors"  # the draws of a model whose file stands beside it
ALIGNED = 8  # the index is padded to a multiple of so many bytes

# NumPy's names and the file's, widest first, so that every array is aligned.
KINDS = {
    "uint64": "U64", "int64": "I64", "float64": "F64", "float32": "F32", "uint32": "U32", "int32": "I32",
    "float16": "F16", "uint16": "U16", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


# ---- writing ----------------------------------------------------------------------------------------------


def write_arrays(path: str | Path, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write a header (whatever is JSON) and arrays (of numbers or truth values), whole or not at all."""
    text = json.dumps(header, sort_keys=True, default=_plain)
    rows = {name: _in_c_order(name, array) for name, array in arrays.items()}
    kinds = list(KINDS)  # in the order in which the safetensors package places arrays
    rows = dict(sorted(rows.items(), key=lambda row: (kinds.index(row[1].dtype.name), row[0])))
    about = {HEADER_KEY: text, "format": FORMAT, "version": __version__, "sha256": _digest(text, rows)}
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        _write_index(file, rows, about)
        for array in rows.values():
            file.write(_bytes_of(array))


def _in_c_order(name: str, array: Any) -> NDArray[Any]:
    """The array itself where it already lies row after row, low byte first."""
    found = np.asarray(array, order="C")
    if found.dtype.name not in KINDS:
        raise DataError(f"{name}: an array of {found.dtype} cannot be saved; use numbers")
    return found.astype(found.dtype.newbyteorder("<"), copy=False)


def _write_index(file: BinaryIO, arrays: Arrays, about: dict[str, str]) -> None:
    entries: dict[str, Any] = {"__metadata__": about}
    at = 0
    for name, array in arrays.items():
        kind, offsets = KINDS[array.dtype.name], [at, at + array.nbytes]
        entries[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": offsets}
        at = offsets[1]
    index = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    index += b" " * (-len(index) % ALIGNED)
    file.write(len(index).to_bytes(8, "little"))
    file.write(index)


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """The array's memory, not copied."""
    return array.reshape(-1).view(np.uint8).data


def _digest(text: str, arrays: Arrays) -> str:
    """SHA-256 of all that the file says: the header, and each array's name, type, shape and bytes."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        digest.update(_bytes_of(arrays[name]))
    return digest.hexdigest()


def _plain(value: Any) -> Any:
    """A NumPy number as a plain one, a path as text, a function (who is told of progress) as nothing."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if callable(value):
        return None
    kind = type(value).__name__
    raise DataError(f"a setting of type {kind} cannot be saved; use numbers, text or None, or do not save")


# ---- reading ----------------------------------------------------------------------------------------------


def read_arrays(path: str | Path) -> tuple[Header, Arrays]:
    """The header and the arrays of a file that :func:`write_arrays` wrote."""
    about, arrays = _opened(Path(path))
    if HEADER_KEY not in about:
        raise ModelFileError(f"{path}: a safetensors file, but not one of dissensus; give one that it saved")
    if about.get("format") != FORMAT:
        raise ModelFileError(
            f"{path}: format {about.get('format')}, but this version reads {FORMAT}; "
            f"use dissensus {about.get('version')} or fit again"
        )
    if about.get("sha256") != _digest(about[HEADER_KEY], arrays):
        raise ModelFileError(f"{path}: the file has been altered since it was saved; save it anew")
    try:
        header = json.loads(about[HEADER_KEY])
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise ModelFileError(f"{path}: its header is damaged; save it anew")
    return header, arrays


def read_whole(path: str | Path) -> tuple[Header, Arrays]:
    """The same, with the draws that stand in a file beside it."""
    header, arrays = read_arrays(path)
    if "draws" not in header:
        return header, arrays
    beside = Path(path).with_name(DRAWS)
    told, drawn = read_arrays(beside)
    if told.get("draws") != header["draws"]:
        raise ModelFileError(f"{beside}: holds the draws of another model than {path}; keep both of one run")
    return header, arrays | drawn


def _opened(path: Path) -> tuple[dict[str, str], Arrays]:
    """The texts and the arrays of a safetensors file."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise ModelFileError(f"{path} {what}; give the path of a saved file (*.safetensors)")
    try:
        with safe_open(path, framework="numpy") as file:
            about: dict[str, str] = file.metadata() or {}
            for name in file.keys():  # noqa: SIM118
                kind = file.get_slice(name).get_dtype()
                if kind not in KINDS.values():
                    raise ValueError(f"{name} holds numbers of type {kind}")
            return about, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, MemoryError) as error:
        reason = one_line(error)
        raise ModelFileError(f"{path}: not a whole safetensors file ({reason}); save it anew") from None


def one_line(error: Exception) -> str:
    """An error's words on one line."""
    return " ".join(str(error).split())


# ---- ids as arrays: UTF-8 bytes with offsets, or numbers of their own type -------------------------------


def pack_ids(name: str, vocabulary: Vocabulary) -> Arrays:
    """Ids as arrays whose names begin with ``name``."""
    ids = vocabulary.arrow
    if not is_text(ids.type):
        return {f"{name}.values": ids.to_numpy(zero_copy_only=False)}
    starts, text = text_of(ids)
    offsets = starts.astype(np.int64) - starts[0]
    return {f"{name}.bytes": text[starts[0] : starts[-1]], f"{name}.offsets": offsets}


def unpack_ids(name: str, arrays: Arrays) -> Vocabulary:
    """The ids that :func:`pack_ids` made arrays of."""
    import pyarrow as pa

    what = "label" if name == "class" else name
    if f"{name}.values" in arrays:
        return Vocabulary(arrays[f"{name}.values"], what)
    text, offsets = arrays[f"{name}.bytes"], arrays[f"{name}.offsets"]
    wide = int(offsets[-1]) > MOST_TEXT
    starts = offsets.astype(np.int64 if wide else np.int32)
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(np.ascontiguousarray(text))]
    ids = pa.Array.from_buffers(pa.large_string() if wide else pa.string(), len(starts) - 1, buffers)
    ids.validate(full=True)
    return Vocabulary(ids, what)


# ---- estimators in such files -----------------------------------------------------------------------------


# A class that is kept gives ``_state``, what it has learned as JSON and arrays, and ``_restore``, which takes
# it back; it has the functions whose first argument is ``self`` as methods.


def save(self: Any, path: str | Path) -> None:
    """Write what is fitted to one safetensors file, which ``dissensus.load`` reads (no pickle).

    Parameters
    ----------
    path
        The file to write; ``dissensus.load`` reads it.
    """
    self._check_fitted()
    write_arrays(path, *pack(self))


def save_apart(self: Any, path: Path) -> None:
    """The same with draws, where there are any, in ``draws.safetensors`` beside it.

    Parameters
    ----------
    path
        The file to write.
    """
    self._check_fitted()
    header, arrays = pack(self)
    drawn = {name: arrays.pop(name) for name in [*arrays] if name.split(".")[0] in self._drawn}
    if drawn:
        header["draws"] = _digest("", drawn)
        write_arrays(path.with_name(DRAWS), {"draws": header["draws"]}, drawn)
    write_arrays(path, header, arrays)


def pack(estimator: Any, *, fitted: bool = True) -> tuple[Header, Arrays]:
    """An estimator as a header and arrays: with what it has learned, or its settings alone.

    Settings that are estimators themselves are kept by ``_state``.
    """
    if not type(estimator).__module__.startswith("dissensus."):
        raise DataError(
            f"{type(estimator).__name__} is no class of dissensus, and its file could not be loaded again; "
            "save its arrays yourself"
        )
    settings = estimator.get_params(deep=False)
    settings = {name: value for name, value in settings.items() if not hasattr(value, "get_params")}
    header: Header = {"class": type(estimator).__name__, "settings": settings}
    if not fitted:
        return header, {}
    header["facts"], arrays = estimator._state()
    return header, arrays


def unpack(kind: type[Any], header: Header, arrays: Arrays) -> Any:
    """The estimator of a class that :func:`pack` took apart."""
    # JSON writes a tuple as a list, and no setting is a list.
    saved: Header = header["settings"]
    estimator = kind(**{k: tuple(value) if isinstance(value, list) else value for k, value in saved.items()})
    estimator.check_params()
    if "facts" in header:
        estimator._restore(header["facts"], arrays)
    return estimator


# What parts that do not fit together raise, one way or another.
_MISFITS = (
    ArithmeticError, AttributeError, DissensusError, LookupError, MemoryError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip


@contextmanager
def refusing_damage(path: str | Path) -> Iterator[None]:
    """One line for a file whose parts do not fit together, as another version might have written it."""
    try:
        yield
    except MissingExtraError:
        raise
    except _MISFITS as error:
        raise ModelFileError(
            f"{path}: the file is damaged or incomplete ({one_line(error)}); fit again and save anew"
        ) from None
