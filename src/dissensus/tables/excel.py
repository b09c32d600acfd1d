"""Excel workbooks (.xlsx): one sheet is converted to CSV, which is read like any other table.

The limits are those of the format: 1,048,576 rows, 16,384 columns and 32,767 characters in a cell; and a
gigabyte for each decompressed part, as all texts of a workbook are held in memory.
"""

from __future__ import annotations

import csv
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from dissensus.errors import DataError, bad_choice, require, setting, warn
from dissensus.labels.vocabulary import quoted
from dissensus.tables.columns import listed
from dissensus.tables.source import Source

MAX_PART_BYTES = 1 << 30  # decompressed
MAX_ROWS, MAX_CELL = 1_048_576, 32_767  # rows of a sheet, characters of a cell
REMEDY = "save the sheet as CSV"


def read_workbook(path: str, raw: Any, sheet: str | None) -> Source:
    """Return a sheet as a CSV file: the one named, or the first that has cells, with a note on the others."""
    openpyxl = require("openpyxl", "excel")
    check_parts(path, raw)
    try:
        workbook = openpyxl.load_workbook(io.BytesIO(raw), read_only=True, data_only=True)
    except Exception as error:
        raise _damaged(path, error) from None
    with closing(workbook):
        names = [worksheet.title for worksheet in workbook.worksheets]  # without charts
        if sheet is not None and sheet not in names:
            raise bad_choice("read_annotations", "sheet", names, sheet)
        texts = ((name, _as_csv(path, name, workbook[name])) for name in names if sheet in (None, name))
        name, text = next(((name, text) for name, text in texts if text), ("", ""))
        if not text:
            raise DataError(f"{path}: is empty; give a table with a header and one row per label")
        others = [other for other in names if other != name]
        if sheet is None and others:
            remedy = f"another is read with {setting('sheet', others[0])}"
            warn(f"{path}: the sheet {quoted(name)} is read, and not {listed(others)}; {remedy}")
    return Source(path, ".csv", text.encode("utf-8", "replace"))


def check_parts(path: str, raw: Any) -> None:
    """Raise an error for a file that is no workbook, decompresses to too much, or has too many rows."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            large = [part.filename for part in archive.infolist() if part.file_size > MAX_PART_BYTES]
            sheets = [name for name in archive.namelist() if name.startswith("xl/worksheets/")]
            if not large and any(_count_rows(archive, name) > MAX_ROWS for name in sheets):
                raise DataError(f"{path}: a sheet has more than {MAX_ROWS:,} rows; {REMEDY}")
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:  # also encrypted
        raise _damaged(path, error) from None
    if large:
        raise DataError(f"{path}: {quoted(large[0])} in it decompresses to more than 1 GB; {REMEDY}")


def _count_rows(archive: zipfile.ZipFile, name: str) -> int:
    """Count the rows of a sheet without parsing it, which takes a hundred times as long."""
    n_rows, end = 0, b""
    with archive.open(name) as part:
        while chunk := part.read(1 << 20):
            n_rows += (end + chunk).count(b"<row") - end.count(b"<row")
            end = chunk[-3:]
    return n_rows


def _damaged(path: str, error: Exception) -> DataError:
    reason = " ".join(str(error).split()) or type(error).__name__
    return DataError(f"{path}: cannot be read as an Excel workbook ({reason}); {REMEDY}")


def _as_csv(path: str, name: str, sheet: Any) -> str:
    """Return the cells of a sheet as CSV; empty without cells."""
    sink = io.StringIO()
    writer, width = csv.writer(sink), 0
    try:
        for number, row in enumerate(_rows(sheet), 1):
            if number > MAX_ROWS:  # blank rows before a last one are not in the file
                raise DataError(f"{path}: the sheet {quoted(name)} has more than {MAX_ROWS:,} rows; {REMEDY}")
            cells = [_text(cell) for cell in row]
            if any(len(cell) > MAX_CELL for cell in cells):
                problem = f"a cell has more than {MAX_CELL:,} characters"
                raise DataError(f"{path} row {number} of {quoted(name)}: {problem}; {REMEDY}")
            if width and len(cells) > width:
                problem = f"it has {len(cells):,} cells, and the first row {width:,} names"
                remedy = "name or clear the columns"
                raise DataError(f"{path} row {number} of {quoted(name)}: {problem}; {remedy}")
            width = width or len(cells)
            writer.writerow(cells + [""] * (width - len(cells)))
    except DataError:
        raise
    except Exception as error:  # the parts are parsed as they are read
        raise _damaged(path, error) from None
    return sink.getvalue() if width else ""


def _rows(sheet: Any) -> Iterator[list[Any]]:
    """Yield the rows, each without the empty cells at its end; the first ones may be blank."""
    sheet.reset_dimensions()  # rows end with their last cell, and not with that of the whole sheet
    for row in sheet.iter_rows(values_only=True):
        cells = list(row)
        while cells and (cells[-1] is None or cells[-1] == ""):
            cells.pop()
        yield cells


def _text(cell: Any) -> str:
    """Return a cell as text; a whole number has no decimals."""
    if cell is None:
        return ""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
