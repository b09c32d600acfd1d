"""Directories of ours: recognised, replaced whole, and nobody else's touched."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.models import build_model
from dissensus.tables.results import (
    check_output,
    finite,
    output_directory,
    significant,
    write_csv,
    write_json,
    write_pieces,
    write_summary,
)


def write(directory: Path, *names: str, force: bool = False) -> None:
    with output_directory(directory, force) as folder:
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(name)
        write_summary(folder, {})


def write_half(directory: Path) -> None:
    with output_directory(directory) as folder:
        (folder / "b.csv").write_text("half")
        raise RuntimeError("halfway")


def files(directory: Path) -> set[str]:
    return {file.relative_to(directory).as_posix() for file in directory.rglob("*") if file.is_file()}


def test_an_earlier_result_is_replaced_and_what_it_had_more_is_removed(tmp_path: Path) -> None:
    place = tmp_path / "out"
    write(place, "old.csv", "both.csv", "below/old.csv")
    (place / "mine.txt").write_text("a note by the user")
    write(place, "both.csv", "new.csv")
    assert files(place) == {"both.csv", "new.csv", "summary.json", "mine.txt"}


def test_somebody_elses_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DataError, match="was not written by dissensus"):
        check_output(tmp_path)
    with pytest.raises(DataError, match="was not written by dissensus"):
        write(tmp_path, "labels.csv")
    assert files(tmp_path) == {"thesis.tex"}


@pytest.mark.parametrize("content", ["{}", "[1]", "not json", '{"made_by": "another"}'])
def test_a_summary_of_another_program_does_not_make_it_ours(tmp_path: Path, content: str) -> None:
    (tmp_path / "summary.json").write_text(content)
    with pytest.raises(DataError, match="was not written by dissensus"):
        check_output(tmp_path)


def test_force_writes_beside_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    write(tmp_path, "labels.csv", force=True)
    assert files(tmp_path) == {"thesis.tex", "labels.csv", "summary.json"}


def test_an_empty_directory_may_be_used(tmp_path: Path) -> None:
    check_output(tmp_path)


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.write_text("a file")
    with pytest.raises(DataError, match="is a file; name a directory"):
        check_output(place, force=True)


def test_a_summary_cannot_name_files_outside_its_directory(tmp_path: Path) -> None:
    outside, place = tmp_path / "precious.txt", tmp_path / "out"
    outside.write_text("keep me")
    write(place, "a.csv")
    summary = json.loads((place / "summary.json").read_text())
    (place / "summary.json").write_text(json.dumps(summary | {"files": ["../precious.txt", 3]}))
    write(place, "b.csv")
    assert outside.read_text() == "keep me"


def test_a_failure_inside_leaves_the_earlier_result(tmp_path: Path) -> None:
    place = tmp_path / "out"
    write(place, "a.csv")
    with pytest.raises(RuntimeError, match="halfway"):
        write_half(place)
    assert files(tmp_path) == {"out/a.csv", "out/summary.json"}


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_csv_survives_awkward_text_and_missing_numbers(tmp_path: Path, kind: type) -> None:
    awkward = ["plain", 'a "quote", a comma', "two\nlines", "carriage\rreturn", "ünïcødé 🎈"]
    numbers = [1 / 3, 0.0, 1e-12, float("nan"), 123456.7]
    write_csv(kind({"item": awkward, "p": numbers}), tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file))
    assert header == ["item", "p"]
    assert [row[0] for row in rows] == awkward
    assert rows[3][1] in ("", "nan")
    assert [float(rows[place][1]) for place in (0, 1, 2, 4)] == [0.333333, 0.0, 1e-12, 123457.0]


def test_significant_digits() -> None:
    values = np.array([1234567.0, -0.00012345678, 0.0, np.inf, 5e-324])
    expected = np.array([1234570.0, -0.000123457, 0.0, np.inf, 5e-324])
    np.testing.assert_allclose(significant(values), expected, rtol=1e-12)


def test_json_has_no_words_for_infinity(tmp_path: Path) -> None:
    write_json({"a": -np.inf, "b": [np.float64(1.5), np.int64(2)], "c": np.eye(2)}, tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": None, "b": [1.5, 2], "c": [[1, 0], [0, 1]]}
    assert finite((float("nan"),)) == [None]


@pytest.mark.parametrize("kind", ["majority", "dawid-skene"])
def test_labels_written_some_items_at_a_time_are_the_models_frame(kind: str, tmp_path: Path) -> None:
    items = ['a "b"', "c,d", "é", "x\ny", "1"] * 4
    labels = ["yes", "no", "1,5"] * 6 + ["no", "yes"]
    crowd = Annotations.from_arrays(items, [f"a{n % 7}" for n in range(20)], labels)
    model = build_model(kind, {}).fit(crowd)
    write_csv(model.to_frame(), tmp_path / "whole.csv")
    write_pieces(map(pa.table, model.label_pieces(size=2)), tmp_path / "pieces.csv")
    assert (tmp_path / "pieces.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
