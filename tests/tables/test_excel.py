"""Excel workbooks are read like CSV: the same labels, the same refusals, and limits against bombs."""

import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import dissensus as ds
from dissensus.errors import DataError, DissensusWarning, ParameterError
from dissensus.tables import excel
from tests.helpers.export_samples import label_studio_json

openpyxl = pytest.importorskip("openpyxl")
ROWS = [
    ["item", "annotator", "label"],
    ["a", "x", 1],
    ["a", "y", 2.0],
    ["b", "x", True],
    ["b", "y", None],
    ["c", "x", 1],
]


def written(path: Path, **sheets: list[list[Any]]) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def labels_of(path: Path, **settings: Any) -> list[tuple[str, str, str]]:
    frame = ds.read_annotations(path, **settings).to_frame()
    return [tuple(map(str, row)) for row in frame.itertuples(index=False)]


@pytest.mark.filterwarnings("ignore::dissensus.errors.DissensusWarning")
def test_a_sheet_has_the_labels_of_its_csv(tmp_path: Path) -> None:
    path = written(tmp_path / "votes.xlsx", Sheet1=ROWS)
    expected = [("a", "x", "1"), ("a", "y", "2"), ("b", "x", "True"), ("c", "x", "1")]
    assert sorted(labels_of(path)) == expected


def test_the_sheet_that_is_read_is_named(tmp_path: Path) -> None:
    other = [ROWS[0], ["z", "w", "no"]]
    path = written(tmp_path / "two.xlsx", Empty=[], Votes=ROWS, Pilot=other)
    with pytest.warns(
        DissensusWarning, match="the sheet 'Votes' is read, and not Empty, Pilot; .*sheet='Empty'"
    ):
        assert len(labels_of(path)) == 4
    assert labels_of(path, sheet="Pilot") == [("z", "w", "no")]
    with pytest.raises(ParameterError, match="Pilots"):
        ds.read_annotations(path, sheet="Pilots")
    csv = tmp_path / "votes.csv"
    csv.write_text("item,annotator,label\na,b,c\n")
    with pytest.raises(DataError, match="has no sheets"):
        ds.read_annotations(csv, sheet="Votes")


REFUSED = [
    ([["item", "annotator", "label", "label"], ["a", "x", "p", "q"]], "the column 'label' occurs twice"),
    ([*ROWS, ["a", "x", "p", None, "more"]], "row 7 of 'S': it has 5 cells, and the first row 3 names"),
    ([ROWS[0], ["a", "x", "p" * 32_768]], "row 2 of 'S': a cell has more than 32,767 characters"),
    ([], "is empty"),
]


@pytest.mark.parametrize(("rows", "message"), REFUSED, ids=["doubled", "wide", "long", "empty"])
def test_refusals(
    rows: list[list[Any]], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openpyxl.cell.cell.Cell.check_string", lambda _, value: value)
    path = written(tmp_path / "votes.xlsx", S=rows)
    with pytest.raises(DataError, match=message):
        ds.read_annotations(path)


def test_a_cell_in_the_last_column_is_refused_at_once(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in ROWS:
        book.active.append(row)
    book.active.cell(row=4, column=16_384).value = "far"
    book.active.cell(row=200_000, column=1).value = "low"
    book.save(tmp_path / "far.xlsx")
    with pytest.raises(DataError, match="row 4 of 'Sheet': it has 16,384 cells"):
        ds.read_annotations(tmp_path / "far.xlsx")


def test_limits_of_rows_and_of_decompressed_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "votes.xlsx", S=ROWS)
    monkeypatch.setattr(excel, "MAX_ROWS", 5)
    with pytest.raises(DataError, match="a sheet has more than 5 rows; save the sheet as CSV"):
        ds.read_annotations(path)
    monkeypatch.setattr(excel, "MAX_ROWS", 100)
    monkeypatch.setattr(excel, "MAX_PART_BYTES", 40)
    with pytest.raises(DataError, match="decompresses to more than"):
        ds.read_annotations(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"item,annotator,label\na,b,c\n"])
def test_other_files_are_no_workbooks(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "votes.xlsx").write_bytes(content)
    with pytest.raises(DataError, match="cannot be read as an Excel workbook"):
        ds.read_annotations(tmp_path / "votes.xlsx")
    with zipfile.ZipFile(tmp_path / "other.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "<x/>")
    with pytest.raises(DataError, match="cannot be read as an Excel workbook"):
        ds.read_annotations(tmp_path / "other.xlsx")


def test_damaged_workbooks_are_one_line(tmp_path: Path) -> None:
    path = written(tmp_path / "votes.xlsx", S=ROWS * 50)
    whole = path.read_bytes()
    for place in range(60, len(whole), 97):
        path.write_bytes(
            whole[:place] + bytes(byte ^ 255 for byte in whole[place : place + 20]) + whole[place + 20 :]
        )
        with suppress(DataError):
            ds.read_annotations(path)


def test_a_row_far_below_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excel, "MAX_ROWS", 1000)
    book = openpyxl.Workbook()
    for row in ROWS:
        book.active.append(row)
    book.active.cell(row=5000, column=1).value = "low"
    book.save(tmp_path / "low.xlsx")
    with pytest.raises(DataError, match="has more than 1,000 rows"):
        ds.read_annotations(tmp_path / "low.xlsx")


def test_exports_have_no_sheets(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no sheets"):
        ds.read_annotations(label_studio_json(tmp_path).path, sheet="Votes")
