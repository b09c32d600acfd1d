"""Result directories, their CSV and JSON files, and the columns of refined labels.

Each directory has a ``summary.json`` with what was run, on which data, and a digest of every other file. A
directory without one is not overwritten, and one whose files do not match their digests is not read. Files
and directories are written atomically.

Refined labels (``labels.csv``, ``to_frame``) have one row per item with the columns ``item``, ``label``,
``p_<class>`` for every class, ``entropy`` (nats) and ``n_labels``. A model with intervals adds, before the
entropy, ``low_<class>`` and ``high_<class>``, a credible interval of the class's share; ``p_top``, the
probability that the label is the population's most common answer (left out if a class is called "top"); and
``effective_labels``, the number of labels drawn from the whole population that would tell as much about the
item. Ordered scales add, at the end, ``mean`` (of the classes' numbers, or of their positions from 1),
``lower_quartile``, ``median`` and ``upper_quartile``. Numeric ratings have ``item``, ``estimate``, ``low``,
``high`` and ``n_labels``.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy
from numpy.typing import NDArray

from dissensus._version import __version__
from dissensus.errors import DataError, setting, setting_variable
from dissensus.labels.vocabulary import arrow_numbers, arrow_table, numpy_values, valid_text
from dissensus.metrics import entropy_rows
from dissensus.numerics import Array
from dissensus.tables.atomic import atomic_directory, atomic_path, is_temporary_name, unchanged

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations

LABELS_FILE = "labels.csv"  # in the directory of a run
ITEM, LABEL, ENTROPY, N_LABELS = "item", "label", "entropy", "n_labels"
PROBABILITY = "p_"  # prefix of the class name
P_TOP, EFFECTIVE_LABELS = "p_top", "effective_labels"

SUMMARY = "summary.json"
SIGNATURE = {"made_by": "dissensus"}
DIGESTS = "sha256"  # key of the summary: digest by file name
CHECKSUM = "checksum"  # key of the summary: digest of its other entries
_JSON_TYPES = frozenset({int, str, bool, type(None)})  # need no conversion
SIGNIFICANT_DIGITS = 6  # of numbers in CSV files
_FORMULA_START = r"^([=+\-@\t\r])"  # a spreadsheet computes text that begins like this
_FOR_SPREADSHEETS: ContextVar[bool] = ContextVar("for_spreadsheets", default=False)


def check_output(directory: Path, force: bool = False) -> None:
    """Refuse, before any work is done, a directory that holds something other than an earlier result."""
    with unchanged(directory):
        if directory.exists() and not directory.is_dir():
            raise DataError(f"{directory}: is a file; name a directory to write into")
        if force or not directory.exists() or _summary(directory):
            return
        if not all(is_temporary_name(file.name) for file in directory.iterdir()):
            remedy = f"choose another directory, or use {setting('force', True)}"
            raise DataError(f"{directory}: exists and was not written by dissensus; {remedy}")


def is_result_directory(directory: Path) -> bool:
    """Return True if the directory has a summary that dissensus wrote."""
    with unchanged(directory):
        return bool(_summary(directory))


def _summary(directory: Path) -> dict[str, Any]:
    """Read the summary of a result directory; empty if there is none."""
    try:
        content = json.loads((directory / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) and SIGNATURE.items() <= content.items() else {}


@contextmanager
def output_directory(directory: Path, force: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``directory`` when the block succeeds.

    Files of an earlier result that the new one does not have are removed.
    """
    check_output(directory, force)
    with unchanged(directory):
        earlier = set(_files(directory)).intersection(_summary(directory).get("files", []))
    with atomic_directory(directory, lambda folder: earlier.difference(_files(folder))) as folder:
        yield folder


def _files(directory: Path) -> list[str]:
    """Return the relative paths of all files in a directory and below."""
    return sorted(file.relative_to(directory).as_posix() for file in directory.rglob("*") if file.is_file())


@contextmanager
def claimed_directory(directory: Path, content: Mapping[str, Any], force: bool = False) -> Iterator[None]:
    """Write an unfinished summary into the directory of a long job that saves its progress there.

    If the job fails before it has saved anything, the directory is left as it was.
    """
    check_output(directory, force)
    existed, is_new = directory.exists(), not is_result_directory(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if is_new:
        before = set(directory.iterdir())
        with atomic_path(directory / SUMMARY) as temporary:
            write_json(SIGNATURE | {"state": "unfinished", **content, "files": [SUMMARY]}, temporary)
    try:
        yield
    except BaseException:
        if is_new and set(directory.iterdir()) == before | {directory / SUMMARY}:
            (directory / SUMMARY).unlink()
            if not existed:
                directory.rmdir()
        raise


def write_summary(folder: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Write ``summary.json`` about the files in the folder, and return its content."""
    digests = {name: file_digest(folder / name) for name in _files(folder) if name != SUMMARY}
    facts = {"files": sorted({*digests, SUMMARY}), DIGESTS: digests, "versions": versions()}
    return write_sealed(SIGNATURE | dict(content) | facts, folder / SUMMARY)


def write_sealed(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Write JSON with its own checksum, and return it."""
    safe: dict[str, Any] = json_safe(dict(content))
    safe[CHECKSUM] = content_checksum(safe)
    write_json(safe, path)
    return safe


def content_checksum(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a summary without its checksum."""
    rest = {name: value for name, value in content.items() if name != CHECKSUM}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def read_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file that dissensus wrote."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_summary(directory: Path) -> dict[str, Any]:
    """Read the summary of a result, after checking that every file has the digest recorded in it."""
    with unchanged(directory):
        summary = _summary(directory)
        if not summary:
            remedy = "name one, or a *.safetensors file"
            raise DataError(f"{directory}: is not a directory that dissensus wrote; {remedy}")
        if summary.get("state") != "unfinished" and summary.get(CHECKSUM) != content_checksum(summary):
            remedy = "run the command that made it again"
            raise DataError(f"{directory}: {SUMMARY} was changed after it was written; {remedy}")
        digests = summary.get(DIGESTS)
        if summary.get("state") == "unfinished" or not isinstance(digests, dict):
            raise DataError(f"{directory}: holds no finished result; run the command that made it again")
        for name, digest in digests.items():
            file = directory / name
            if not (file.is_file() and file_digest(file) == digest):
                problem = f"{name} {'was changed' if file.exists() else 'is missing'}"
                remedy = "run the command that made it again"
                raise DataError(f"{directory}: {problem} since {SUMMARY} was written; {remedy}")
    return summary


@contextmanager
def replacing_file(directory: Path, name: str) -> Iterator[Path]:
    """Yield the path for a new version of a result's file; the summary is updated with it."""
    summary = read_summary(directory)
    with atomic_directory(directory) as folder:
        yield folder / name
        digests = summary[DIGESTS] | {name: file_digest(folder / name)}
        write_sealed(summary | {"files": sorted({*digests, SUMMARY}), DIGESTS: digests}, folder / SUMMARY)


def versions() -> dict[str, str]:
    """Return the versions of the packages that affect numerical results."""
    packages = {module.__name__: module.__version__ for module in (np, scipy, pa)}
    return {"dissensus": __version__, "python": platform.python_version()} | packages


def label_table(annotations: Annotations, with_items: bool = False) -> pa.Table:
    """Return the labels as ``dissensus import`` writes them: one row per label, or per item with counts.

    ``with_items`` repeats the columns of the item table in each row, from where they can be read again.
    """
    from dissensus.tables.layouts import COUNT_PREFIX

    rows = annotations.item
    if annotations.anonymous:
        names = [f"{COUNT_PREFIX}{name}" for name in annotations.classes]
        counts = dict(zip(names, annotations.counts.T, strict=True))
        table = pa.table({"item": annotations.item_vocabulary.arrow} | counts)
        rows = np.arange(annotations.n_items, dtype=np.int32)
    else:
        names = ["item", "annotator", "label"]
        roles = zip(names, annotations.vocabularies, annotations.columns, strict=True)
        table = pa.table({name: ids.arrow.take(pa.array(codes)) for name, ids, codes in roles})
    if annotations.label_type != "pairwise":
        items = annotations.item_table if with_items and annotations.item_table is not None else pa.table({})
        for name in items.column_names[1:]:
            if name not in table.column_names and not pa.types.is_nested(items[name].type):
                table = table.append_column(name, items[name].take(pa.array(rows)))
        return table
    left, right = (annotations.item_column(side)[annotations.item] for side in ("left", "right"))
    pairs = zip(table["item"].to_pylist(), left, right, strict=True)
    questions = [item.removesuffix(f"{a} | {b}").removesuffix(": ") or None for item, a, b in pairs]
    columns = {"question": pa.array(questions, pa.string())} if any(questions) else {}
    columns |= {"left": pa.array(left), "right": pa.array(right)}
    return pa.table(columns | {"annotator": table["annotator"], "winner": table["label"]})


# ---- columns of refined labels ------------------------------------------------------------------------


def label_columns(
    items: Any, labels: Any, classes: Iterable[Any], shares: Array, n_labels: Any, intervals: Any = None
) -> dict[str, Any]:
    """Return the columns by name, in their order; ``shares`` (items, classes).

    ``intervals`` has the arrays ``low`` and ``high`` (items, classes), the bounds of the shares, and
    ``p_top`` and ``effective_labels`` (items,).
    """
    columns = {ITEM: items, LABEL: labels}
    columns |= {f"{PROBABILITY}{name}": shares[:, p] for p, name in enumerate(classes)}
    if intervals is not None:
        columns |= {f"low_{name}": intervals.low[:, p] for p, name in enumerate(classes)}
        columns |= {f"high_{name}": intervals.high[:, p] for p, name in enumerate(classes)}
        columns.setdefault(P_TOP, intervals.p_top)  # a class called "top" has this column already
        columns[EFFECTIVE_LABELS] = intervals.effective_labels
    return columns | {ENTROPY: entropy_rows(shares), N_LABELS: n_labels}


def scale_columns(classes: Any, values: Array, shares: Array) -> dict[str, Any]:
    """Return the columns of an ordered scale: mean (of ``values``), quartiles and median."""
    cumulative = np.cumsum(shares, axis=1)

    def quantile(level: float) -> Any:
        # the first class whose cumulative share reaches the level
        return classes[np.minimum((cumulative < level - 1e-12).sum(axis=1), len(classes) - 1)]

    quartiles = {"lower_quartile": quantile(0.25), "median": quantile(0.5), "upper_quartile": quantile(0.75)}
    return {"mean": shares @ values, **quartiles}


def rating_columns(items: Any, estimates: Array, half_widths: Array, n_labels: Any) -> dict[str, Any]:
    """Return the columns of numeric ratings: the population's mean rating of each item, with an interval."""
    bounds = {"low": estimates - half_widths, "high": estimates + half_widths}
    return {ITEM: items, "estimate": estimates, **bounds, N_LABELS: n_labels}


def probability_columns(columns: Sequence[str]) -> dict[str, str]:
    """Return the columns of probabilities by class."""
    # With effective_labels, p_top is the probability of the label, unless a class is called "top".
    has_p_top = EFFECTIVE_LABELS in columns and "low_top" not in columns
    skipped = {PROBABILITY, P_TOP} if has_p_top else {PROBABILITY}
    names = [name for name in columns if name.startswith(PROBABILITY) and name not in skipped]
    return {name.removeprefix(PROBABILITY): name for name in names}


# ---- CSV and JSON files -------------------------------------------------------------------------------


def write_csv(frame: Any, path: Path) -> None:
    """Write a data frame of any kind as CSV, numbers with six significant digits, NaN as an empty cell."""
    import narwhals as nw

    write_csv_chunks([nw.from_native(frame, eager_only=True).to_arrow()], path)


def write_rows(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows, as dictionaries by column, as CSV; a missing key is an empty cell."""
    names = dict.fromkeys(name for row in rows for name in row)
    write_csv_chunks([arrow_table({name: [row.get(name) for row in rows] for name in names})], path)


def write_csv_chunks(chunks: Iterable[pa.Table], path: Path) -> None:
    """Write Arrow tables of one schema to one CSV file, with one of them in memory at a time."""
    import pyarrow.csv as pa_csv

    with atomic_path(path) as temporary, ExitStack() as stack:
        writer, options = None, pa_csv.WriteOptions(quoting_style="needed")
        for chunk in chunks:
            table = without_formulas(_rounded(chunk))
            if writer is None:
                writer = pa_csv.CSVWriter(str(temporary), table.schema, write_options=options)
                stack.enter_context(writer)
            writer.write_table(table)


def for_spreadsheets(enabled: bool = True) -> AbstractContextManager[Any]:
    """Escape, in CSV files written in the block, text that a spreadsheet would compute as a formula."""
    return setting_variable(_FOR_SPREADSHEETS, enabled)


def without_formulas(table: pa.Table) -> pa.Table:
    """Put a quote before texts and column names that begin a formula, inside :func:`for_spreadsheets`."""
    if not _FOR_SPREADSHEETS.get():
        return table
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            column = pc.replace_substring_regex(table.column(index), _FORMULA_START, r"'\1")
            table = table.set_column(index, field.name, column)
    return table.rename_columns([re.sub(_FORMULA_START, r"'\1", name) for name in table.column_names])


def _rounded(table: pa.Table) -> pa.Table:
    columns = list(table.columns)
    for index, values in enumerate(columns):
        if pa.types.is_floating(values.type):  # NaN for null, and null for NaN
            rounded = round_significant(numpy_values(values.combine_chunks()))
            columns[index] = arrow_numbers(rounded, ~np.isnan(rounded))
    # All at once: replacing thousands of columns one by one is slow.
    return pa.Table.from_arrays(columns, schema=table.schema)


def round_significant(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round to six significant digits."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # x · 10^(6 − 1 − ⌊log₁₀|x|⌋) has its last significant digit before the decimal point
        scale = 10.0 ** (SIGNIFICANT_DIGITS - 1 - np.floor(np.log10(np.abs(values))))
        rounded = np.round(values * scale) / scale
    # Adding 0 turns −0 into 0.
    return np.where(np.isfinite(scale) & np.isfinite(values), rounded, values) + 0.0


def write_json(value: Any, path: Path) -> None:
    """Write a value as JSON; infinities and NaN become null."""
    text = json.dumps(json_safe(value), indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def json_safe(value: Any) -> Any:
    """Return plain values that JSON can represent: infinities and NaN as None, half characters as "?"."""
    if isinstance(value, str):
        return valid_text(value)
    if type(value) in _JSON_TYPES:
        return value
    if isinstance(value, np.generic | np.ndarray):
        return json_safe(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {json_safe(str(key)): json_safe(inner) for key, inner in value.items()}
    return [json_safe(inner) for inner in value] if isinstance(value, list | tuple) else value
