"""A store is whole or absent, and a damaged one is refused by name."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import dissensus as ds
from cli_help import tree
from dissensus.errors import DataError
from dissensus.large.store import MANIFEST, open_annotations
from store_help import random_rows, write_rows

pytestmark = pytest.mark.slow

VICTIM = Path(__file__).with_name("store_victim.py")
KILLED = "-9"


def stopped(folder: Path, file: Path, *plans: str) -> list[str]:
    """Write a store in processes that are stopped as planned; how each ended, and what was found then."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", VICTIM, file, folder / "store", *plans],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def two_files(tmp_path: Path) -> list[Path]:
    return [write_rows(tmp_path / f"{number}.csv", random_rows(number, 400)) for number in range(2)]


def left(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if file.name.startswith("."))


def test_a_killed_writing_leaves_the_store_as_it_was(two_files: list[Path], tmp_path: Path) -> None:
    first, second = two_files
    # Moments of the work, not of the clock: a quick machine has finished after a tenth of a second.
    moments = ["progress=1", "progress=3", "progress=5", "sync=1", "sync=4"]
    said = stopped(tmp_path, first, *moments)
    assert said[1::2] == ["found None"] * len(moments)
    assert {line.split()[-1] for line in said[::2]} == {KILLED}
    assert len(left(tmp_path)) == 1  # of the last: each removes what the one before left
    ds.write_store(two_files, tmp_path / "store")
    before = tree(tmp_path / "store")
    assert left(tmp_path) == []
    # Killed while replacing: six files and two folders are synced before the new store takes the name.
    said = stopped(tmp_path, second, "progress=2", "progress=5", "sync=3", "sync=8")
    assert said[1::2] == ["found 800"] * 4
    assert {line.split()[-1] for line in said[::2]} == {KILLED}
    assert tree(tmp_path / "store") == before
    assert stopped(tmp_path, second, "sync=9") == [f"sync=9 {KILLED}", "found 400"]
    ds.write_store(two_files, tmp_path / "store")
    assert tree(tmp_path / "store") == before
    assert left(tmp_path) == []


def test_a_full_disk_is_one_line_and_nothing_is_lost(two_files: list[Path], tmp_path: Path) -> None:
    told = f"{tmp_path / 'store'}: cannot be written (file too large); choose another place to write"
    said = stopped(tmp_path, two_files[0], "bytes=0", "bytes=300", "bytes=1500")
    assert [line.partition(" ")[2] for line in said] == [told, "2", "None"] * 3
    ds.write_store(two_files, tmp_path / "store")
    before = tree(tmp_path / "store")
    said = stopped(tmp_path, two_files[1], "bytes=300", "bytes=1600")
    assert [line.partition(" ")[2] for line in said] == [told, "2", "800"] * 2
    assert tree(tmp_path / "store") == before
    assert left(tmp_path) == []


def test_a_store_that_a_killed_writing_moved_aside_is_put_back(two_files: list[Path], tmp_path: Path) -> None:
    store, aside = tmp_path / "store", tmp_path / ".dissensus-0123abcd" / "old" / "store"
    ds.write_store(two_files, store)
    aside.parent.mkdir(parents=True)
    store.rename(aside)
    assert ds.read_annotations(store).n_labels == 800
    store.rename(aside)
    ds.write_store(two_files[0], store)
    assert ds.read_annotations(store).n_labels == 400
    assert left(tmp_path) == []


def test_ctrl_c_leaves_nothing(two_files: list[Path], tmp_path: Path) -> None:
    def interrupt(what: str, share: float) -> None:
        if what.startswith("writing"):
            raise KeyboardInterrupt

    before = tree(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        ds.write_store(two_files, tmp_path / "store", progress=interrupt)
    assert tree(tmp_path) == before
    assert not (tmp_path / "store").exists()


def test_a_flipped_byte_is_refused_by_name(two_files: list[Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    ds.write_store(two_files[0], store)
    for file in sorted(store.iterdir()):
        content = file.read_bytes()
        for place in {0, len(content) // 3, len(content) // 2, len(content) - 1}:
            file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            told = f"{file.name} is damaged; write the store again"
            with pytest.raises(DataError, match=told):
                ds.read_annotations(store)
        file.write_bytes(content)
    assert ds.read_annotations(store).n_labels == 400


def test_checksums_can_be_left_aside(two_files: list[Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    ds.write_store(two_files, store)
    column = store / "annotator-codes.npy"
    content = bytearray(column.read_bytes())
    content[-4] = 0 if content[-4] else 1
    column.write_bytes(content)
    with pytest.raises(DataError, match=r"annotator-codes\.npy is damaged"):
        ds.read_annotations(store)
    assert open_annotations(store, verify=False).n_labels == 800


def test_every_byte_of_the_manifest_counts(two_files: list[Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    ds.write_store(two_files, store)
    content = (store / MANIFEST).read_bytes()
    for place in range(0, len(content), 7):
        (store / MANIFEST).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(DataError, match=f"{MANIFEST} is damaged"):
            ds.read_annotations(store)
    for end in (0, 1, len(content) // 2):
        (store / MANIFEST).write_bytes(content[:end])
        with pytest.raises(DataError, match=f"{MANIFEST} is damaged"):
            ds.read_annotations(store)


def test_a_missing_or_shortened_file_is_noticed_even_unverified(
    two_files: list[Path], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    for name in ds.write_store(two_files, store).files:
        content = (store / name).read_bytes()
        (store / name).write_bytes(content[:-1])
        with pytest.raises(DataError, match=f"{name} is damaged"):
            open_annotations(store, verify=False)
        (store / name).unlink()
        with pytest.raises(DataError, match=f"{name} is missing"):
            open_annotations(store, verify=False)
        (store / name).write_bytes(content)


# ---- a store that somebody forged: every checksum fits, and the content does not -----------------------


Change = Callable[[dict[str, Any], dict[str, bytearray]], None]


def forge(store: Path, change: Change) -> None:
    """Change a store's manifest and bytes, and compute every checksum anew."""
    manifest = json.loads((store / MANIFEST).read_bytes())
    manifest.pop("seal")
    content = {name: bytearray((store / name).read_bytes()) for name in manifest["files"]}
    change(manifest, content)
    for name, data in content.items():
        (store / name).write_bytes(data)
        manifest["files"][name] = {"bytes": len(data), "crc32": zlib.crc32(data)}
    text = json.dumps(manifest, sort_keys=True)
    (store / MANIFEST).write_text(json.dumps(manifest | {"seal": hashlib.sha256(text.encode()).hexdigest()}))


def put(what: str, row: int | slice, value: int) -> Change:
    """Another number at a place of a file."""

    def change(_: Any, content: dict[str, bytearray]) -> None:
        numbers = np.load(io.BytesIO(content[what]))
        numbers[row] = value
        write(what, numbers)(_, content)

    return change


def write(what: str, numbers: Any) -> Change:
    """Other numbers in a file."""

    def change(_: Any, content: dict[str, bytearray]) -> None:
        file = io.BytesIO()
        np.save(file, numbers)
        content[what] = bytearray(file.getvalue())

    return change


def put_in_ids(what: str, old: bytes, new: bytes) -> Change:
    """Other bytes in the text of ids, which are written anew without compression."""

    def change(_: Any, content: dict[str, bytearray]) -> None:
        sink = io.BytesIO()
        table = parquet.read_table(io.BytesIO(content[what]))
        parquet.write_table(table, sink, compression="none", use_dictionary=False, write_statistics=False)
        assert old in sink.getvalue()
        content[what] = bytearray(sink.getvalue().replace(old, new))

    return change


def write_ids(what: str, table: pa.Table) -> Change:
    """Another table of ids."""

    def change(_: Any, content: dict[str, bytearray]) -> None:
        sink = io.BytesIO()
        parquet.write_table(table, sink)
        content[what] = bytearray(sink.getvalue())

    return change


def resize(what: str, n: int) -> Change:
    def change(manifest: dict[str, Any], content: dict[str, bytearray]) -> None:
        content[what].extend(bytes(n)) if n > 0 else content[what].__delitem__(slice(n, None))

    return change


def say(name: str, value: Any) -> Change:
    return lambda manifest, _: manifest.update({name: value})


NO_IDS = pa.table({"annotator": pa.nulls(11, pa.string())})
FORGERIES = {
    "an annotator beyond the vocabulary": put("annotator-codes.npy", 3, 99),
    "a huge label": put("label-codes.npy", 0, 2**31 - 1),
    "a negative item": put("item-codes.npy", 5, -1),
    "an item that is not at its place": put("item-codes.npy", 0, 7),
    "the last item's row as another's": put("item-codes.npy", -1, 0),
    "items that begin with the second": put("item-codes.npy", slice(None, 30), 1),
    "items without the last": put("item-codes.npy", slice(-30, None), 10),
    "fewer annotators than ids": say("n_annotators", 10),
    "a column too short": resize("label-codes.npy", -4),
    "a column too long": write("annotator-codes.npy", np.zeros(500, np.int32)),
    "a column of wider numbers": write("annotator-codes.npy", np.zeros(400, np.int64)),
    "a column of columns": write("annotator-codes.npy", np.zeros((400, 1), np.int32)),
    "a column without a header": lambda _, content: content["label-codes.npy"].__setitem__(
        slice(0, 6), b"nopnpy"
    ),
    "a header that is no Python": lambda _, content: content["label-codes.npy"].__setitem__(
        slice(10, 20), b"((((((((("
    ),
    "ids that are no text": put_in_ids("item-ids.parquet", b"item-", b"\xffitem"),
    "ids that are numbers": write_ids("annotator-ids.parquet", pa.table({"annotator": range(11)})),
    "ids that are missing": write_ids(
        "annotator-ids.parquet", pa.table({"annotator": pa.nulls(11, pa.string())})
    ),
    "ids of another kind": write_ids("annotator-ids.parquet", pa.table({"item": list("abcdefghijk")})),
    "no file of ids": resize("item-ids.parquet", -8),
    "fewer items than rows": say("n_items", 3),
    "more annotators": say("n_annotators", 10**6),
    "more labels": say("n_labels", 10**12),
    "a class twice": say("classes", ["yes"] * 5),
    "fewer classes": say("classes", ["yes"]),
    "a number that is none": say("n_labels", 400.0),
}


@pytest.mark.parametrize("verify", [True, False])
def test_a_forged_store_is_refused(two_files: list[Path], tmp_path: Path, verify: bool) -> None:
    def open_it(name: str) -> None:
        open_annotations(tmp_path / "forged", verify=verify)
        pytest.fail(name)

    ds.write_store(two_files[0], tmp_path / "sound")
    for name, change in FORGERIES.items():
        shutil.copytree(tmp_path / "sound", tmp_path / "forged", dirs_exist_ok=True)
        forge(tmp_path / "forged", change)
        with pytest.raises(DataError, match=r"forged: .* is damaged; write the store again"):
            open_it(name)
    forge(tmp_path / "sound", lambda manifest, content: None)
    assert open_annotations(tmp_path / "sound", verify=verify).n_labels == 400
