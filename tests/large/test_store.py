"""Stores contain the annotations of their files, in any format, order and number."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import dissensus as ds
from dissensus.errors import DataError, ParameterError
from dissensus.labels import vocabulary
from dissensus.large.packing import list_files
from dissensus.params import PROCESS_BYTES
from tests.helpers.cli import failure, run, tree, write_votes
from tests.helpers.store import FORMATS, random_rows, same, write_rows

small = pytest.mark.usefixtures("few_rows")


def read_all(folder: Path, rows: list[Any], **rules: Any) -> ds.Annotations:
    """Read the annotations of one file with all rows."""
    return ds.read_annotations(write_rows(folder / "read_all.csv", rows), **rules)


# ---- contents -----------------------------------------------------------------------------------------


@small
@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_annotations(kind: str, tmp_path: Path) -> None:
    rows = random_rows(1)
    ds.write_store(write_rows(tmp_path / f"votes.{kind}", rows), tmp_path / "store")
    packed = ds.read_annotations(tmp_path / "store")
    same(packed, read_all(tmp_path, rows))
    assert packed.notes  # about unusual ids


@pytest.mark.slow
@small
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("duplicates", ["keep", "first", "last"])
def test_many_files_equal_one(seed: int, duplicates: str, tmp_path: Path) -> None:
    rng = random.Random(seed)
    files, all_rows = [], []
    for number in range(4):
        rows = random_rows(10 * seed + number, 25)
        files.append(write_rows(tmp_path / f"{number}.{rng.choice(FORMATS)}", rows))
        all_rows += rows
    rules: Any = {"duplicates": duplicates}
    ds.write_store(files, tmp_path / "many", **rules)
    expected = read_all(tmp_path, all_rows, **rules)
    ds.write_store(tmp_path / "read_all.csv", tmp_path / "one", **rules)
    assert tree(tmp_path / "many") == tree(tmp_path / "one")
    same(ds.read_annotations(tmp_path / "many"), expected)


def test_store_does_not_depend_on_order_and_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(3)
    ds.write_store(write_rows(tmp_path / "a.parquet", rows), tmp_path / "one")
    random.Random(0).shuffle(rows)
    file = write_rows(tmp_path / "b.csv", rows)
    monkeypatch.setattr("dissensus.tables.delimited._CSV_BLOCK_BYTES", 256)
    for number, limit in enumerate((1, 400, 10**6)):
        monkeypatch.setattr("dissensus.large.packing.NEW_ID_BYTES", limit)
        ds.write_store(file, tmp_path / f"other-{number}")
        assert tree(tmp_path / f"other-{number}") == tree(tmp_path / "one")


def test_store_is_replaced(tmp_path: Path) -> None:
    store = tmp_path / "store"
    first, second = (write_rows(tmp_path / f"{n}.csv", random_rows(n, 50)) for n in (1, 2))
    ds.write_store(first, store)
    before = tree(store)
    opened = ds.read_annotations(store)
    rows = [column.tolist() for column in opened.columns]
    ds.write_store(second, store)
    assert tree(store) != before
    same(ds.read_annotations(store), ds.read_annotations(second))
    # labels opened before are still those of the first store
    assert [column.tolist() for column in opened.columns] == rows
    ds.write_store(first, store)
    assert tree(store) == before
    (tmp_path / "empty").mkdir()
    ds.write_store(first, tmp_path / "empty")
    assert tree(tmp_path / "empty") == before


def test_numbers_in_parquet_become_text(tmp_path: Path) -> None:
    table = pa.table({"item": [10, 9, 10], "worker": [1.5, 2.0, 2.0], "answer": ["x", "y", "x"]})
    parquet.write_table(table, tmp_path / "votes.parquet")
    ds.write_store(tmp_path / "votes.parquet", tmp_path / "store")
    packed = ds.read_annotations(tmp_path / "store")
    # the columns of a store are not guessed
    same(packed, replace(ds.read_annotations(tmp_path / "votes.parquet"), notes=()))
    assert packed.items.tolist() == ["10", "9"]


@small
def test_declared_classes(tmp_path: Path) -> None:
    first = write_votes(tmp_path / "one.csv", "a,1,no\nb,1,yes\n")
    second = write_votes(tmp_path / "two.csv", "a,2,no\nb,2,mabye\n")
    classes = ["yes", "perhaps", "no"]
    ds.write_store(first, tmp_path / "store", classes=classes)
    same(ds.read_annotations(tmp_path / "store"), ds.read_annotations(first, classes=classes))
    with pytest.raises(DataError, match=r"two\.csv line 3: label 'mabye' is not in the label set"):
        ds.write_store([first, second], tmp_path / "store", classes=classes)
    with pytest.raises(DataError, match="has a repeated"):
        ds.write_store(first, tmp_path / "store", classes=["no", "no"])


def test_large_ids_have_wide_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(5)
    expected = read_all(tmp_path, rows)
    monkeypatch.setattr(vocabulary, "MAX_STRING_BYTES", 100)
    ds.write_store(tmp_path / "read_all.csv", tmp_path / "store")
    packed = ds.read_annotations(tmp_path / "store")
    assert packed.item_vocabulary.arrow.type == pa.large_string()
    assert packed.annotator_vocabulary.arrow.type == pa.string()
    assert packed.items.tolist() == expected.items.tolist()
    assert np.array_equal(packed.item, expected.item)
    order = vocabulary.sorted_order(packed.item_vocabulary.arrow, "item")
    assert order.tolist() == list(range(expected.n_items))
    assert packed.item_vocabulary.codes(expected.items[::-1]).tolist() == list(range(expected.n_items))[::-1]
    model = ds.FMM(3).fit(packed)
    model.save(tmp_path / "model.safetensors")
    assert ds.load(tmp_path / "model.safetensors").items_.tolist() == expected.items.tolist()


# ---- models and side tables ---------------------------------------------------------------------------


def test_side_tables(tmp_path: Path) -> None:
    votes = write_votes(tmp_path / "votes.csv", "b,1,no\na,1,yes\na,2,no\n")
    (tmp_path / "items.csv").write_text("item,text\na,A\nb,B\nc,C\n")
    (tmp_path / "gold.csv").write_text("item,label\na,perhaps\n")
    ds.write_store(votes, tmp_path / "store")
    tables: Any = {"items": tmp_path / "items.csv", "gold": tmp_path / "gold.csv"}
    packed, read = (ds.read_annotations(source, **tables) for source in (tmp_path / "store", votes))
    same(packed, read)
    assert packed.item_column("text").tolist() == ["A", "B", "C"]
    assert packed.gold is not None
    assert packed.gold.tolist() == [1, -1, -1]


def test_options_of_a_store_cannot_be_changed(tmp_path: Path) -> None:
    ds.write_store(write_votes(tmp_path / "votes.csv", "b,1,no\na,1,yes\n"), tmp_path / "store")
    for option in ({"classes": ["no", "yes"]}, {"item": "id"}, {"duplicates": "first"}, {"layout": "wide"}):
        with pytest.raises(DataError, match="were fixed when it was written"):
            ds.read_annotations(tmp_path / "store", **option)


# ---- errors -------------------------------------------------------------------------------------------


@small
def test_invalid_rows_are_named(tmp_path: Path) -> None:
    good = write_rows(tmp_path / "good.parquet", random_rows(6))
    bad = write_votes(tmp_path / "bad.csv", "a,1,yes\n" * 20 + "a,,yes\n")
    with pytest.raises(DataError, match=r"bad\.csv line 22: the annotator is blank"):
        ds.write_store([good, bad], tmp_path / "store")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bad.csv", "good.parquet"]


@small
def test_repeated_pairs_are_named(tmp_path: Path) -> None:
    first = write_votes(tmp_path / "one.csv", "".join(f"{i},w,yes\n" for i in range(40)))
    second = write_votes(tmp_path / "two.csv", "x,w,yes\n23,w,no\n")
    messages = r"two\.csv line 3: annotator 'w' labelled item '23' more than once"
    with pytest.raises(DataError, match=messages):
        ds.write_store([first, second], tmp_path / "store", duplicates="error")
    ds.write_store(first, tmp_path / "store", duplicates="error")
    with pytest.raises(ParameterError, match="'duplicates' parameter of write_store"):
        ds.write_store(first, tmp_path / "store", duplicates="newest")


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind != "json"])
@pytest.mark.parametrize(("duplicates", "n_bytes"), [("keep", 24), ("last", 60)])
def test_labels_beyond_memory_are_rejected_before_reading(
    kind: str, duplicates: Any, n_bytes: int, tmp_path: Path
) -> None:
    files = [write_rows(tmp_path / f"{i}.{kind}", random_rows(i, 20_000)) for i in range(3)]
    messages: list[str] = []

    def write(n_labels: int) -> None:
        limit = PROCESS_BYTES + n_bytes * n_labels
        settings = {"memory": limit, "progress": lambda message, share: messages.append(message)}
        ds.write_store(files, tmp_path / "store", duplicates=duplicates, **settings)

    # the number of labels is estimated from the beginnings of the files
    line = (
        r"^reading and sorting about [56]\d,\d{3} labels needs 25[1-4]\.?\d*MB of memory, and the limit is "
        ".*; raise memory=, or write several stores$"
    )
    with pytest.raises(DataError, match=line):
        write(50_000)
    assert messages == []
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(file.name for file in files)
    write(66_000)
    assert ds.read_annotations(tmp_path / "store").n_labels == (60_000 if duplicates == "keep" else 462)


@small
def test_ids_beyond_memory_are_rejected(tmp_path: Path) -> None:
    rows = [(f"{number:0100}", "w", "yes") for number in range(300)]
    file = write_rows(tmp_path / "votes.csv", rows)
    with pytest.raises(DataError, match=r"about 3\d\d labels needs 250\.0\d?MB of memory"):
        ds.write_store(file, tmp_path / "store", memory=PROCESS_BYTES + 50_000)
    assert not (tmp_path / "store").exists()


def test_invalid_files_and_targets(tmp_path: Path) -> None:
    votes = write_votes(tmp_path / "votes.csv", "a,1,yes\n")
    wide, store = tmp_path / "wide.csv", tmp_path / "s"
    wide.write_text("item,ann,bob,eve\n" + "".join(f"{i},yes,no,yes\n" for i in range(20)))
    (tmp_path / "empty").mkdir()
    for source, target, message in (
        (wide, store, r"wide\.csv: not a table with one row per label .*import"),
        (tmp_path / "missing.csv", store, "no such file"),
        (tmp_path / "empty", store, "the directory contains no files"),
        (votes, tmp_path, "exists and is not a store"),
        (votes, votes, "is a file"),
        (votes, votes / "x", "cannot be written"),
    ):
        with pytest.raises(DataError, match=message):
            ds.write_store(source, target)
    ds.write_store(votes, store)
    with pytest.raises(DataError, match="this is a store; pass the files"):
        ds.write_store(store, tmp_path / "other")
    with pytest.raises(ParameterError, match="one or more files"):
        list_files([])


# ---- command ------------------------------------------------------------------------------------------


def test_import_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_votes(tmp_path / "one.csv", "a,1,yes\nb,1,no\n")
    write_votes(tmp_path / "two.csv", "c,2,no\nC,1,no\n")
    lines = run("import", "one.csv", "-o", "votes.store").stdout.splitlines()
    assert lines == ["2 labels by 1 annotator on 2 items, 2 classes", "Wrote votes.store/: 0.0 MB"]
    assert "4 labels" in run("import", "one.csv", "two.csv", "-o", "votes.store").stdout
    assert "labels                4" in run("describe", "votes.store").stdout
    run("fit", "votes.store", "--model", "empirical", "--no-report")
    assert (tmp_path / "votes-refined" / "labels.csv").is_file()
    line = failure("import", "one.csv", "-o", "x.store", "--memory", "1MB")
    assert "of memory, and the limit is 1MB" in line
    assert not (tmp_path / "x.store").exists()
