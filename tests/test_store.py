"""A store holds what the files say: the same annotations, whatever the format, order and number of files."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import dissensus as ds
from cli_help import failure, run, tree, write_votes
from dissensus import engine
from dissensus.errors import DataError, ParameterError
from dissensus.labels import vocabulary
from dissensus.large.packing import list_files
from dissensus.params import PROCESS_BYTES, size_words
from dissensus.tables.results import label_table
from dissensus.tables.write import write_table
from store_help import FORMATS, few_rows, random_rows, same, write_rows

__all__ = ["few_rows"]
small = pytest.mark.usefixtures("few_rows")


def whole(folder: Path, rows: list[Any], **rules: Any) -> ds.Annotations:
    """What one file with all rows says."""
    return ds.read_annotations(write_rows(folder / "whole.csv", rows), **rules)


# ---- the same annotations -----------------------------------------------------------------------------


@small
@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_of_any_format_gives_the_same_annotations(kind: str, tmp_path: Path) -> None:
    rows = random_rows(1)
    ds.write_store(write_rows(tmp_path / f"votes.{kind}", rows), tmp_path / "store")
    packed = ds.read_annotations(tmp_path / "store")
    same(packed, whole(tmp_path, rows))
    assert packed.notes  # the odd ids are worth a word


@pytest.mark.slow
@small
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("duplicates", ["keep", "first", "last"])
def test_many_files_are_bit_for_bit_one(seed: int, duplicates: str, tmp_path: Path) -> None:
    chance = random.Random(seed)
    files, everything = [], []
    for number in range(4):
        rows = random_rows(10 * seed + number, 25)
        files.append(write_rows(tmp_path / f"{number}.{chance.choice(FORMATS)}", rows))
        everything += rows
    rules: Any = {"duplicates": duplicates}
    ds.write_store(files, tmp_path / "many", **rules)
    expected = whole(tmp_path, everything, **rules)
    ds.write_store(tmp_path / "whole.csv", tmp_path / "one", **rules)
    assert tree(tmp_path / "many") == tree(tmp_path / "one")
    same(ds.read_annotations(tmp_path / "many"), expected)


def test_neither_order_nor_pieces_reach_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(3)
    ds.write_store(write_rows(tmp_path / "a.parquet", rows), tmp_path / "one")
    random.Random(0).shuffle(rows)
    file = write_rows(tmp_path / "b.csv", rows)
    monkeypatch.setattr("dissensus.tables.delimited._BLOCK", 256)
    for number, limit in enumerate((1, 400, 10**6)):
        monkeypatch.setattr("dissensus.large.packing.NEW_IDS", limit)
        ds.write_store(file, tmp_path / f"other-{number}")
        assert tree(tmp_path / f"other-{number}") == tree(tmp_path / "one")


def test_a_store_is_replaced_whole(tmp_path: Path) -> None:
    store = tmp_path / "store"
    one, two = (write_rows(tmp_path / f"{n}.csv", random_rows(n, 50)) for n in (1, 2))
    ds.write_store(one, store)
    before = tree(store)
    opened = ds.read_annotations(store)
    rows = [column.tolist() for column in opened.columns]
    ds.write_store(two, store)
    assert tree(store) != before
    same(ds.read_annotations(store), ds.read_annotations(two))
    # Labels that were opened before are still those of the first store.
    assert [column.tolist() for column in opened.columns] == rows
    ds.write_store(one, store)
    assert tree(store) == before
    (tmp_path / "empty").mkdir()
    ds.write_store(one, tmp_path / "empty")
    assert tree(tmp_path / "empty") == before


@small
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(
    "odd",
    ["plain", '"quo""ted"', '"a\nb"', '"a\r\nb"', '"' + "long\n" * 300 + '"'],
    ids=["none", "quote", "lf", "crlf", "long"],
)
def test_text_in_quotes_is_the_same_in_pieces(odd: str, end: str, tmp_path: Path) -> None:
    rows = ["item,annotator,label", *(f"{odd},w{i},yes" for i in range(30)), "last,w1,no"]
    votes = tmp_path / "votes.csv"
    votes.write_bytes((end.join(rows) + end).encode())
    ds.write_store(votes, tmp_path / "store")
    same(ds.read_annotations(tmp_path / "store"), ds.read_annotations(votes))


def test_numbers_in_parquet_become_text_as_ever(tmp_path: Path) -> None:
    table = pa.table({"item": [10, 9, 10], "worker": [1.5, 2.0, 2.0], "answer": ["x", "y", "x"]})
    parquet.write_table(table, tmp_path / "votes.parquet")
    ds.write_store(tmp_path / "votes.parquet", tmp_path / "store")
    packed = ds.read_annotations(tmp_path / "store")
    # a store has columns of its own, so it has no guess to tell of
    same(packed, replace(ds.read_annotations(tmp_path / "votes.parquet"), notes=()))
    assert packed.items.tolist() == ["10", "9"]


@small
def test_declared_classes_keep_their_order_and_their_rule(tmp_path: Path) -> None:
    one = write_votes(tmp_path / "one.csv", "a,1,no\nb,1,yes\n")
    two = write_votes(tmp_path / "two.csv", "a,2,no\nb,2,mabye\n")
    ds.write_store(one, tmp_path / "store", classes=["yes", "perhaps", "no"])
    same(ds.read_annotations(tmp_path / "store"), ds.read_annotations(one, classes=["yes", "perhaps", "no"]))
    with pytest.raises(DataError, match=r"two\.csv line 3: label 'mabye' is not in the label set"):
        ds.write_store([one, two], tmp_path / "store", classes=["yes", "perhaps", "no"])
    with pytest.raises(DataError, match="repeats one"):
        ds.write_store(one, tmp_path / "store", classes=["no", "no"])


def test_ids_beyond_two_gigabytes_have_wide_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random_rows(5)
    expected = whole(tmp_path, rows)
    monkeypatch.setattr(vocabulary, "MOST_TEXT", 100)
    ds.write_store(tmp_path / "whole.csv", tmp_path / "store")
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


@pytest.mark.parametrize(
    "model", [ds.DawidSkene(max_iter=5), ds.PGM(3, 2, max_iter=3), ds.FMM(3)], ids=["ds", "pgm", "fmm"]
)
def test_a_model_learns_the_same_bits(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LABELS_PER_SHARD", 64)
    crowd = ds.simulate(n_items=120, n_annotators=20, seed=2).annotations
    write_table(label_table(crowd), tmp_path / "votes.parquet")
    ds.write_store(tmp_path / "votes.parquet", tmp_path / "store")
    in_memory = model.fit(tmp_path / "votes.parquet").label_distributions_
    on_store = model.fit(tmp_path / "store").label_distributions_
    assert in_memory.tobytes() == on_store.tobytes()


def test_side_tables_are_joined_at_opening(tmp_path: Path) -> None:
    votes = write_votes(tmp_path / "votes.csv", "b,1,no\na,1,yes\na,2,no\n")
    (tmp_path / "items.csv").write_text("item,text\na,A\nb,B\nc,C\n")
    (tmp_path / "gold.csv").write_text("item,label\na,perhaps\n")
    ds.write_store(votes, tmp_path / "store")
    sides: Any = {"items": tmp_path / "items.csv", "gold": tmp_path / "gold.csv"}
    packed, read = (ds.read_annotations(source, **sides) for source in (tmp_path / "store", votes))
    same(packed, read)
    assert packed.item_column("text").tolist() == ["A", "B", "C"]
    assert packed.gold is not None
    assert packed.gold.tolist() == [1, -1, -1]


def test_rules_of_a_store_cannot_be_changed_when_it_is_read(tmp_path: Path) -> None:
    ds.write_store(write_votes(tmp_path / "votes.csv", "b,1,no\na,1,yes\n"), tmp_path / "store")
    for option in ({"classes": ["no", "yes"]}, {"item": "id"}, {"duplicates": "first"}, {"layout": "wide"}):
        with pytest.raises(DataError, match="were settled when it was written"):
            ds.read_annotations(tmp_path / "store", **option)


# ---- what is refused ----------------------------------------------------------------------------------


@small
def test_a_bad_row_is_named_with_its_file_and_line(tmp_path: Path) -> None:
    good = write_rows(tmp_path / "good.parquet", random_rows(6))
    bad = write_votes(tmp_path / "bad.csv", "a,1,yes\n" * 20 + "a,,yes\n")
    with pytest.raises(DataError, match=r"bad\.csv line 22: the annotator is blank"):
        ds.write_store([good, bad], tmp_path / "store")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bad.csv", "good.parquet"]


@small
def test_a_repeat_is_named_where_it_stands(tmp_path: Path) -> None:
    one = write_votes(tmp_path / "one.csv", "".join(f"{i},w,yes\n" for i in range(40)))
    two = write_votes(tmp_path / "two.csv", "x,w,yes\n23,w,no\n")
    told = r"two\.csv line 3: item '23' and annotator 'w' occur together more than once"
    with pytest.raises(DataError, match=told):
        ds.write_store([one, two], tmp_path / "store", duplicates="error")
    ds.write_store(one, tmp_path / "store", duplicates="error")
    with pytest.raises(ParameterError, match="'duplicates' parameter of write_store"):
        ds.write_store(one, tmp_path / "store", duplicates="newest")


@pytest.mark.parametrize("memory", ["much", "-1GB"])
def test_memory_that_is_no_size_is_refused(memory: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="'memory' parameter of write_store"):
        ds.write_store(tmp_path, tmp_path / "store", memory=memory)


def test_the_limit_of_resources_holds_here_too(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "votes.csv", random_rows(1))
    told = r"about \d+ labels needs 250.* of memory, and 100MB are allowed"
    with ds.resources(memory="100MB"), pytest.raises(DataError, match=told):
        ds.write_store(file, tmp_path / "store")
    ds.write_store(file, tmp_path / "store", memory="0.3 gb")


def test_sizes_are_rounded_up() -> None:
    assert [size_words(n) for n in (330_000_000, 330_000_001, 1_999_999_999)] == ["330MB", "330.01MB", "2GB"]


def test_a_file_that_cannot_be_cut_counts_whole(tmp_path: Path) -> None:
    # Arrow cannot cut a file where quotes hide carriage returns.
    broken = write_votes(tmp_path / "votes.csv", 'a,b,"y\r\nes"\n')
    with pytest.raises(DataError, match=r"needs 25\d\.\d+MB of memory, and 250\.1MB are allowed"):
        ds.write_store(broken, tmp_path / "store", memory=PROCESS_BYTES + 100_000)


@pytest.mark.parametrize("kind", [kind for kind in FORMATS if kind != "json"])
@pytest.mark.parametrize(("duplicates", "n_bytes"), [("keep", 24), ("last", 60)])
def test_labels_that_do_not_fit_are_refused_before_they_are_read(
    kind: str, duplicates: Any, n_bytes: int, tmp_path: Path
) -> None:
    files = [write_rows(tmp_path / f"{i}.{kind}", random_rows(i, 20_000)) for i in range(3)]
    told: list[str] = []

    def write(n_labels: int) -> None:
        ds.write_store(
            files,
            tmp_path / "store",
            duplicates=duplicates,
            memory=PROCESS_BYTES + n_bytes * n_labels,
            progress=lambda what, share: told.append(what),
        )

    # The beginnings of the files tell the number of labels, to a few in a hundred.
    with pytest.raises(
        DataError,
        match=r"^reading and sorting about [56]\d,\d{3} labels needs 25[1-4]\.?\d*MB of memory, and .* are "
        "allowed; allow more with memory=, or write several stores$",
    ):
        write(50_000)
    assert told == []
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(file.name for file in files)
    write(66_000)
    assert ds.read_annotations(tmp_path / "store").n_labels == (60_000 if duplicates == "keep" else 462)


@small
def test_ids_that_do_not_fit_are_refused_while_they_are_read(tmp_path: Path) -> None:
    rows = [(f"{number:0100}", "w", "yes") for number in range(300)]
    file = write_rows(tmp_path / "votes.csv", rows)
    with pytest.raises(DataError, match=r"about 3\d\d labels needs 250\.0\d?MB of memory"):
        ds.write_store(file, tmp_path / "store", memory=PROCESS_BYTES + 50_000)
    assert not (tmp_path / "store").exists()


def test_files_that_are_no_rows_of_labels_are_refused(tmp_path: Path) -> None:
    wide = tmp_path / "wide.csv"
    wide.write_text("item,ann,bob,eve\n" + "".join(f"{i},yes,no,yes\n" for i in range(20)))
    with pytest.raises(DataError, match=r"wide\.csv: is not a table with one row per label .*import"):
        ds.write_store(wide, tmp_path / "store")
    with pytest.raises(DataError, match="no such file"):
        ds.write_store(tmp_path / "missing.csv", tmp_path / "store")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="there is no file in this directory"):
        ds.write_store(tmp_path / "empty", tmp_path / "store")
    with pytest.raises(ParameterError, match="one or more files"):
        list_files([])


def test_a_place_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    votes = write_votes(tmp_path / "votes.csv", "a,1,yes\n")
    places = (tmp_path, "exists and is no store"), (votes, "is a file"), (votes / "x", "cannot be written")
    for place, told in places:
        with pytest.raises(DataError, match=told):
            ds.write_store(votes, place)
    ds.write_store(votes, tmp_path / "store")
    with pytest.raises(DataError, match="is a store; give the files"):
        ds.write_store(tmp_path / "store", tmp_path / "other")


def test_progress_tells_labels(tmp_path: Path) -> None:
    told: list[tuple[str, float]] = []
    votes = write_rows(tmp_path / "votes.csv", random_rows(8))
    ds.write_store(votes, tmp_path / "store", progress=lambda what, share: told.append((what, share)))
    ds.write_store(votes, tmp_path / "other", progress=True)
    assert re.fullmatch(r"reading votes\.csv \(160 labels\)", told[0][0])
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] <= 1


# ---- the command --------------------------------------------------------------------------------------


def test_the_command_writes_a_store_that_others_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_votes(tmp_path / "one.csv", "a,1,yes\nb,1,no\n")
    write_votes(tmp_path / "two.csv", "c,2,no\nC,1,no\n")
    made = run("import", "one.csv", "-o", "votes.store")
    assert made.stdout.splitlines() == [
        "2 labels by 1 annotator on 2 items, 2 classes",
        "Wrote votes.store/: 0.0 MB",
    ]
    assert "4 labels" in run("import", "one.csv", "two.csv", "-o", "votes.store").stdout
    assert "labels                4" in run("describe", "votes.store").stdout
    run("fit", "votes.store", "--model", "empirical", "--no-report")
    assert (tmp_path / "votes-refined" / "labels.csv").is_file()
    assert "of memory, and 1MB are allowed" in failure(
        "import", "one.csv", "-o", "x.store", "--memory", "1MB"
    )
    assert not (tmp_path / "x.store").exists()
