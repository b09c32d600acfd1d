"""Directories that dissensus writes: whole or not at all, and never over somebody else's.

Each holds a ``summary.json`` that says who made it, from what and how, with a digest of every file beside it;
a directory without one is not ours, and one whose files are not those of its summary is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dissensus._version import __version__
from dissensus.errors import DataError, setting
from dissensus.tables.atomic import atomic_directory, atomic_path, is_left_over, restore

if TYPE_CHECKING:
    import pyarrow as pa

    from dissensus.labels.annotations import Annotations

SUMMARY = "summary.json"
SIGNATURE = {"made_by": "dissensus"}
DIGESTS = "sha256"  # of the files beside the summary
_PLAIN = frozenset({int, str, bool, type(None)})  # types that JSON has as they are
DIGITS = 6  # of the numbers in CSV files
_FORMULA = r"^([=+\-@\t\r])"  # what a spreadsheet computes, where a cell's text begins with it
_FOR_SPREADSHEETS: ContextVar[bool] = ContextVar("for_spreadsheets", default=False)


def check_output(directory: Path, force: bool = False) -> None:
    """Refuse, before any work is done, a place that holds something else than an earlier result of ours."""
    restore(directory)
    if directory.exists() and not directory.is_dir():
        raise DataError(f"{directory}: is a file; name a directory to write into")
    if force or not directory.exists() or is_ours(directory):
        return
    if not all(is_left_over(file.name) for file in directory.iterdir()):
        raise DataError(
            f"{directory}: exists and was not written by dissensus; choose another place, or give "
            f"{setting('force', True)}"
        )


def is_ours(directory: Path) -> bool:
    """True if the directory holds a summary that dissensus wrote."""
    return bool(_summary(directory))


def _summary(directory: Path) -> dict[str, Any]:
    """Read the summary that dissensus wrote into a directory; empty where there is none."""
    restore(directory)
    try:
        content = json.loads((directory / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) and SIGNATURE.items() <= content.items() else {}


@contextmanager
def output_directory(directory: Path, force: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that takes the directory's name when the block ends well.

    Files of an earlier result that the new one does not have (its summary lists them) are removed.
    """
    check_output(directory, force)
    listed = _summary(directory).get("files", [])
    earlier = {name for name in _files(directory) if name in listed}
    with atomic_directory(directory, lambda folder: earlier.difference(_files(folder))) as folder:
        yield folder


def _files(directory: Path) -> list[str]:
    """Every file in the directory and below, by its path from there."""
    return sorted(file.relative_to(directory).as_posix() for file in directory.rglob("*") if file.is_file())


@contextmanager
def claimed(directory: Path, content: Mapping[str, Any], force: bool = False) -> Iterator[None]:
    """Make the directory ours before a long job that keeps its progress there.

    Where the job fails before it has kept anything, the directory is left as it was found.
    """
    check_output(directory, force)
    existed, fresh = directory.exists(), not is_ours(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if fresh:
        before = set(directory.iterdir())
        with atomic_path(directory / SUMMARY) as temporary:
            write_json(SIGNATURE | {"state": "unfinished", **content, "files": [SUMMARY]}, temporary)
    try:
        yield
    except BaseException:
        if fresh and set(directory.iterdir()) == before | {directory / SUMMARY}:
            (directory / SUMMARY).unlink()
            if not existed:
                directory.rmdir()
        raise


def write_summary(folder: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Write ``summary.json`` beside the files already in the folder, and give back what it says."""
    digests = {name: digest_of(folder / name) for name in _files(folder) if name != SUMMARY}
    known = {"files": sorted({*digests, SUMMARY}), DIGESTS: digests, "versions": versions()}
    whole: dict[str, Any] = finite(SIGNATURE | dict(content) | known)
    write_json(whole, folder / SUMMARY)
    return whole


def digest_of(file: Path) -> str:
    """SHA-256 of a file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def read_summary(directory: Path) -> dict[str, Any]:
    """Read a result's summary, once each file beside it is the one that the summary describes."""
    known = _summary(directory)
    if not known:
        raise DataError(
            f"{directory}: is no directory that dissensus wrote; name one, or a *.safetensors file"
        )
    digests = known.get(DIGESTS)
    if known.get("state") == "unfinished" or not isinstance(digests, dict):
        raise DataError(f"{directory}: holds no finished result; run the command that made it again")
    for name, digest in digests.items():
        file = directory / name
        if not (file.is_file() and digest_of(file) == digest):
            raise DataError(
                f"{directory}: {name} is {'not the file' if file.exists() else 'missing, a file'} that "
                f"{SUMMARY} was written with; run the command that made it again"
            )
    return known


@contextmanager
def changed_file(directory: Path, name: str) -> Iterator[Path]:
    """Yield where to write another version of a result's file; the summary that knows it changes with it."""
    known = read_summary(directory)
    with atomic_directory(directory) as folder:
        yield folder / name
        digests = known[DIGESTS] | {name: digest_of(folder / name)}
        write_json(known | {"files": sorted({*digests, SUMMARY}), DIGESTS: digests}, folder / SUMMARY)


def versions() -> dict[str, str]:
    """Versions of the libraries that numbers depend on."""
    import pyarrow as pa
    import scipy

    libraries = {module.__name__: module.__version__ for module in (np, scipy, pa)}
    return {"dissensus": __version__, "python": platform.python_version()} | libraries


def label_table(annotations: Annotations, with_items: bool = False) -> pa.Table:
    """The labels as ``dissensus import`` writes them: a row for each, or for each item with counts.

    ``with_items`` repeats what is known of an item in each of its rows, where reading finds it again.
    """
    import pyarrow as pa

    from dissensus.tables.layouts import COUNT

    rows = annotations.item
    if annotations.anonymous:
        counts = {f"{COUNT}{name}": annotations.counts[:, p] for p, name in enumerate(annotations.classes)}
        table = pa.table({"item": annotations.item_vocabulary.arrow} | counts)
        rows = np.arange(annotations.n_items, dtype=np.int32)
    else:
        names = ("item", "annotator", "label")
        roles = zip(names, annotations.vocabularies, annotations.columns, strict=True)
        table = pa.table({name: ids.arrow.take(pa.array(codes)) for name, ids, codes in roles})
    if annotations.label_type != "pairwise":
        known = annotations.item_table if with_items and annotations.item_table is not None else pa.table({})
        for name in known.column_names[1:]:
            if name not in table.column_names and not pa.types.is_nested(known[name].type):
                table = table.append_column(name, known[name].take(pa.array(rows)))
        return table
    left, right = (annotations.item_column(side)[annotations.item] for side in ("left", "right"))
    pairs = zip(table["item"].to_pylist(), left, right, strict=True)
    asked = [item.removesuffix(f"{a} | {b}").removesuffix(": ") or None for item, a, b in pairs]
    columns = {"question": pa.array(asked, pa.string())} if any(asked) else {}
    columns |= {"left": pa.array(left), "right": pa.array(right)}
    return pa.table(columns | {"annotator": table["annotator"], "winner": table["label"]})


def write_csv(frame: Any, path: Path) -> None:
    """A data frame of any kind as CSV, numbers with six significant digits, NaN as an empty cell."""
    import narwhals as nw

    write_pieces([nw.from_native(frame, eager_only=True).to_arrow()], path)


def write_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows by the names of their columns as CSV; a cell that a row lacks is empty."""
    from dissensus.labels.vocabulary import arrow_table

    names = dict.fromkeys(name for row in rows for name in row)
    write_pieces([arrow_table({name: [row.get(name) for row in rows] for name in names})], path)


def write_pieces(pieces: Iterable[pa.Table], path: Path) -> None:
    """Write Arrow tables with one schema as one CSV file, with one of them in memory at a time."""
    import pyarrow.csv as pa_csv

    with atomic_path(path) as temporary, ExitStack() as stack:
        writer, options = None, pa_csv.WriteOptions(quoting_style="needed")
        for piece in pieces:
            table = without_formulas(_rounded(piece))
            if writer is None:
                writer = stack.enter_context(
                    pa_csv.CSVWriter(str(temporary), table.schema, write_options=options)
                )
            writer.write_table(table)


@contextmanager
def for_spreadsheets(wanted: bool = True) -> Iterator[None]:
    """CSV files written inside the block hold no text that a spreadsheet takes for a formula."""
    token = _FOR_SPREADSHEETS.set(wanted)
    try:
        yield
    finally:
        _FOR_SPREADSHEETS.reset(token)


def without_formulas(table: pa.Table) -> pa.Table:
    """The table for a CSV file: texts and names that begin a formula get a quote, if that is asked for."""
    if not _FOR_SPREADSHEETS.get():
        return table
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            column = pc.replace_substring_regex(table.column(place), _FORMULA, r"'\1")
            table = table.set_column(place, field.name, column)
    return table.rename_columns([re.sub(_FORMULA, r"'\1", name) for name in table.column_names])


def _rounded(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    from dissensus.labels.vocabulary import column, numbers

    columns = list(table.columns)
    for place, values in enumerate(columns):
        if pa.types.is_floating(values.type):  # NaN for null, and null for NaN
            plain = values.to_numpy() if values.null_count else numbers(values.combine_chunks())
            rounded = significant(np.asarray(plain))
            columns[place] = column(rounded, ~np.isnan(rounded))
    # All at once: to exchange one column after the other is slow where there are thousands.
    return pa.Table.from_arrays(columns, schema=table.schema)


def significant(values: NDArray[np.float64], digits: int = DIGITS) -> NDArray[np.float64]:
    """The numbers to so many significant digits."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # 10^(digits − 1 − ⌊log₁₀|x|⌋) puts the last digit worth keeping before the point
        scale = 10.0 ** (digits - 1 - np.floor(np.log10(np.abs(values))))
        rounded = np.round(values * scale) / scale
    # Adding 0 turns −0 into 0.
    return np.where(np.isfinite(scale) & np.isfinite(values), rounded, values) + 0.0


def write_json(value: Any, path: Path) -> None:
    """Plain values as JSON; numbers that JSON has no word for become null."""
    text = json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def finite(value: Any) -> Any:
    """Return a value in JSON's terms: NumPy numbers as plain ones, infinities and NaN as None."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.generic | np.ndarray):
        return finite(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(inner) for key, inner in value.items()}
    return [finite(inner) for inner in value] if isinstance(value, list | tuple) else value
