"""Result directories and their CSV and JSON files; directories of others are not touched."""

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
from dissensus.tables import results


def write(directory: Path, *names: str, force: bool = False) -> None:
    with results.output_directory(directory, force) as folder:
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(name)
        results.write_summary(folder, {})


def files(directory: Path) -> set[str]:
    return {file.relative_to(directory).as_posix() for file in directory.rglob("*") if file.is_file()}


def test_files_of_the_earlier_result_are_removed(tmp_path: Path) -> None:
    directory = tmp_path / "out"
    write(directory, "old.csv", "both.csv", "below/old.csv")
    (directory / "mine.txt").write_text("a note by the user")
    write(directory, "both.csv", "new.csv")
    assert files(directory) == {"both.csv", "new.csv", "summary.json", "mine.txt"}


@pytest.mark.parametrize("name", ["summary.json", "thesis.tex"])
@pytest.mark.parametrize("content", ["{}", "[1]", "not json", '{"made_by": "another"}'])
def test_directories_of_other_programs_are_refused(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match="was not written by dissensus"):
        write(tmp_path, "labels.csv")
    assert files(tmp_path) == {name}


def test_force_keeps_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    write(tmp_path, "labels.csv", force=True)
    assert files(tmp_path) == {"thesis.tex", "labels.csv", "summary.json"}
    with pytest.raises(DataError, match="is a file; name a directory"):
        results.check_output(tmp_path / "thesis.tex", force=True)


def test_summary_that_names_outside_files(tmp_path: Path) -> None:
    outside, directory = tmp_path / "precious.txt", tmp_path / "out"
    outside.write_text("keep me")
    write(directory, "a.csv")
    summary = json.loads((directory / "summary.json").read_text())
    (directory / "summary.json").write_text(json.dumps(summary | {"files": ["../precious.txt", 3]}))
    write(directory, "b.csv")
    assert outside.read_text() == "keep me"


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_csv_with_awkward_text(tmp_path: Path, kind: type) -> None:
    awkward = ["plain", 'a "quote", a comma', "two\nlines", "carriage\rreturn", "ünïcødé 🎈"]
    numbers = [1 / 3, 0.0, 1e-12, float("nan"), 123456.7]
    results.write_csv(kind({"item": awkward, "p": numbers}), tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file))
    assert header == ["item", "p"]
    assert [row[0] for row in rows] == awkward
    assert rows[3][1] in ("", "nan")
    assert [float(rows[row][1]) for row in (0, 1, 2, 4)] == [0.333333, 0.0, 1e-12, 123457.0]


def test_json_of_infinity_is_null(tmp_path: Path) -> None:
    results.write_json(
        {"a": -np.inf, "b": [np.float64(1.5), np.int64(2)], "c": np.eye(2)}, tmp_path / "x.json"
    )
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": None, "b": [1.5, 2], "c": [[1, 0], [0, 1]]}
    assert results.json_safe((float("nan"),)) == [None]


@pytest.mark.parametrize("kind", ["majority", "dawid-skene"])
def test_chunks_equal_the_whole_frame(kind: str, tmp_path: Path) -> None:
    items = ['a "b"', "c,d", "é", "x\ny", "1"] * 4
    labels = ["yes", "no", "1,5"] * 6 + ["no", "yes"]
    crowd = Annotations.from_arrays(items, [f"a{n % 7}" for n in range(20)], labels)
    model = build_model(kind, {}).fit(crowd)
    results.write_csv(model.to_frame(), tmp_path / "frame.csv")
    results.write_csv_chunks(map(pa.table, model.label_batches(size=2)), tmp_path / "chunks.csv")
    assert (tmp_path / "chunks.csv").read_bytes() == (tmp_path / "frame.csv").read_bytes()
