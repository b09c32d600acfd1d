"""Stores are complete or absent, and damaged ones are rejected."""

import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import dissensus as ds
from dissensus.errors import DataError
from dissensus.large.store import MANIFEST, open_annotations
from tests.helpers.cli import tree
from tests.helpers.store import Change, forge, random_rows, write_rows
from tests.helpers.victim import KILLED, run_victim

pytestmark = pytest.mark.slow


def write_stopped(folder: Path, file: Path, *moments: str) -> list[str]:
    """Write a store in stopped processes; return how each ended and the number of labels in the store."""
    return run_victim("store", file, folder / "store", *moments, timeout=120)


@pytest.fixture
def two_files(tmp_path: Path) -> list[Path]:
    return [write_rows(tmp_path / f"{number}.csv", random_rows(number, 400)) for number in range(2)]


def leftovers(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if file.name.startswith("."))


def test_killed_writer_leaves_the_store_unchanged(two_files: list[Path], tmp_path: Path) -> None:
    first, second = two_files
    moments = ["progress=1", "progress=3", "progress=5", "sync=1", "sync=4"]
    lines = write_stopped(tmp_path, first, *moments)
    assert lines[1::2] == ["labels: None"] * len(moments)
    assert {line.split()[-1] for line in lines[::2]} == {KILLED}
    assert len(leftovers(tmp_path)) == 1  # each run removes the leftovers of the previous one
    ds.write_store(two_files, tmp_path / "store")
    before = tree(tmp_path / "store")
    assert leftovers(tmp_path) == []
    # killed while replacing: six files and two folders are synced before the new store is renamed
    lines = write_stopped(tmp_path, second, "progress=2", "progress=5", "sync=3", "sync=8")
    assert lines[1::2] == ["labels: 800"] * 4
    assert {line.split()[-1] for line in lines[::2]} == {KILLED}
    assert tree(tmp_path / "store") == before
    assert write_stopped(tmp_path, second, "sync=9") == [f"sync=9 {KILLED}", "labels: 400"]
    ds.write_store(two_files, tmp_path / "store")
    assert tree(tmp_path / "store") == before
    assert leftovers(tmp_path) == []


def test_full_disk(two_files: list[Path], tmp_path: Path) -> None:
    message = f"{tmp_path / 'store'}: cannot be written (file too large); choose another path to write to"
    lines = write_stopped(tmp_path, two_files[0], "bytes=0", "bytes=300", "bytes=1500")
    assert [line.partition(" ")[2] for line in lines] == [message, "2", "None"] * 3
    ds.write_store(two_files, tmp_path / "store")
    before = tree(tmp_path / "store")
    lines = write_stopped(tmp_path, two_files[1], "bytes=300", "bytes=1600")
    assert [line.partition(" ")[2] for line in lines] == [message, "2", "800"] * 2
    assert tree(tmp_path / "store") == before
    assert leftovers(tmp_path) == []


def test_store_moved_aside_is_restored(two_files: list[Path], tmp_path: Path) -> None:
    store, aside = tmp_path / "store", tmp_path / ".dissensus-0123abcd" / "old" / "store"
    ds.write_store(two_files, store)
    aside.parent.mkdir(parents=True)
    store.rename(aside)
    assert ds.read_annotations(store).n_labels == 800
    store.rename(aside)
    ds.write_store(two_files[0], store)
    assert ds.read_annotations(store).n_labels == 400
    assert leftovers(tmp_path) == []


def test_ctrl_c_leaves_nothing(two_files: list[Path], tmp_path: Path) -> None:
    def interrupt(name: str, share: float) -> None:
        if name.startswith("writing"):
            raise KeyboardInterrupt

    before = tree(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        ds.write_store(two_files, tmp_path / "store", progress=interrupt)
    assert tree(tmp_path) == before
    assert not (tmp_path / "store").exists()


def test_damaged_files_are_detected(two_files: list[Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    ds.write_store(two_files[0], store)
    for file in sorted(store.iterdir()):
        content = file.read_bytes()
        positions = range(0, len(content), 7 if file.name == MANIFEST else len(content) // 3)
        flipped = (content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :] for i in positions)
        for damaged in (*flipped, b"", content[: len(content) // 2]):
            file.write_bytes(damaged)
            with pytest.raises(DataError, match=f"{file.name} is damaged; write the store again"):
                ds.read_annotations(store)
        if file.name != MANIFEST:  # found without checksums
            with pytest.raises(DataError, match=f"{file.name} is damaged"):
                open_annotations(store, verify=False)
            file.unlink()
            with pytest.raises(DataError, match=f"{file.name} is missing"):
                open_annotations(store, verify=False)
        file.write_bytes(content)
    assert ds.read_annotations(store).n_labels == 400


# ---- forged stores: valid checksums, invalid content ----------------------------------------------------


def set_code(name: str, row: int | slice, value: int) -> Change:
    """Change a number in a file."""

    def change(_: Any, content: dict[str, bytearray]) -> None:
        numbers = np.load(io.BytesIO(content[name]))
        numbers[row] = value
        write(name, numbers)(_, content)

    return change


def write(name: str, numbers: Any) -> Change:
    """Replace the numbers in a file."""

    def change(_: Any, content: dict[str, bytearray]) -> None:
        file = io.BytesIO()
        np.save(file, numbers)
        content[name] = bytearray(file.getvalue())

    return change


def put_in_ids(name: str, old: bytes, new: bytes) -> Change:
    """Replace bytes in the text of ids, written without compression."""

    def change(_: Any, content: dict[str, bytearray]) -> None:
        sink = io.BytesIO()
        table = parquet.read_table(io.BytesIO(content[name]))
        parquet.write_table(table, sink, compression="none", use_dictionary=False, write_statistics=False)
        assert old in sink.getvalue()
        content[name] = bytearray(sink.getvalue().replace(old, new))

    return change


def write_ids(name: str, table: pa.Table) -> Change:
    """Replace the table of ids."""

    def change(_: Any, content: dict[str, bytearray]) -> None:
        sink = io.BytesIO()
        parquet.write_table(table, sink)
        content[name] = bytearray(sink.getvalue())

    return change


def resize(name: str, n: int) -> Change:
    def change(manifest: dict[str, Any], content: dict[str, bytearray]) -> None:
        content[name].extend(bytes(n)) if n > 0 else content[name].__delitem__(slice(n, None))

    return change


def set_entry(name: str, value: Any) -> Change:
    return lambda manifest, _: manifest.update({name: value})


NO_IDS = pa.table({"annotator": pa.nulls(11, pa.string())})
FORGERIES = {
    "an annotator beyond the vocabulary": set_code("annotator-codes.npy", 3, 99),
    "a negative item": set_code("item-codes.npy", 5, -1),
    "items that are not sorted": set_code("item-codes.npy", 0, 7),
    "items that begin with the second": set_code("item-codes.npy", slice(None, 30), 1),
    "items without the last": set_code("item-codes.npy", slice(-30, None), 10),
    "a short column": resize("label-codes.npy", -4),
    "a long column": write("annotator-codes.npy", np.zeros(500, np.int32)),
    "a column of wider numbers": write("annotator-codes.npy", np.zeros(400, np.int64)),
    "a column of columns": write("annotator-codes.npy", np.zeros((400, 1), np.int32)),
    "a column without a header": lambda _, content: content["label-codes.npy"].__setitem__(
        slice(0, 6), b"nopnpy"
    ),
    "a header that is not Python": lambda _, content: content["label-codes.npy"].__setitem__(
        slice(10, 20), b"((((((((("
    ),
    "ids that are not text": put_in_ids("item-ids.parquet", b"item-", b"\xffitem"),
    "ids that are numbers": write_ids("annotator-ids.parquet", pa.table({"annotator": range(11)})),
    "ids that are null": write_ids("annotator-ids.parquet", NO_IDS),
    "ids in another column": write_ids("annotator-ids.parquet", pa.table({"item": list("abcdefghijk")})),
    "a short file of ids": resize("item-ids.parquet", -8),
    "fewer annotators than ids": set_entry("n_annotators", 10),
    "fewer items than rows": set_entry("n_items", 3),
    "more labels": set_entry("n_labels", 10**12),
    "a repeated class": set_entry("classes", ["yes"] * 5),
    "fewer classes": set_entry("classes", ["yes"]),
    "a number that is not an int": set_entry("n_labels", 400.0),
}


@pytest.mark.parametrize("verify", [True, False])
def test_forged_stores_are_rejected(two_files: list[Path], tmp_path: Path, verify: bool) -> None:
    def open_forged(name: str) -> None:
        open_annotations(tmp_path / "forged", verify=verify)
        pytest.fail(name)

    ds.write_store(two_files[0], tmp_path / "sound")
    for name, change in FORGERIES.items():
        shutil.copytree(tmp_path / "sound", tmp_path / "forged", dirs_exist_ok=True)
        forge(tmp_path / "forged", change)
        with pytest.raises(DataError, match=r"forged: .* is damaged; write the store again"):
            open_forged(name)
    forge(tmp_path / "sound", lambda manifest, content: None)
    assert open_annotations(tmp_path / "sound", verify=verify).n_labels == 400
