"""A store is whole or absent, and a damaged one is refused by name."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from cli_help import tree
from dissensus.errors import DataError
from dissensus.large.store.files import COLUMNS, MANIFEST
from dissensus.large.store.packing import workspace
from store_help import few_rows, random_rows, write_rows

pytestmark = pytest.mark.slow

__all__ = ["few_rows"]
VICTIM = Path(__file__).with_name("store_victim.py")
KILLED = "-9"


def stopped(folder: Path, file: Path, *plans: str) -> list[str]:
    """Pack in processes that are stopped as planned; for each, how it ended and what was found after it."""
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


@pytest.fixture
def expected(two_files: list[Path], tmp_path: Path) -> dict[str, bytes]:
    """What one packing of both files writes."""
    ds.pack(two_files, tmp_path / "expected")
    return tree(tmp_path / "expected")


def left(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir() if file.name.startswith("."))


def test_a_killed_packing_leaves_the_store_as_it_was(
    two_files: list[Path], expected: dict[str, bytes], tmp_path: Path
) -> None:
    first, second = two_files
    # Moments of the work, not of the clock: a quick machine has finished after a tenth of a second.
    moments = ["progress=1", "progress=3", "progress=9", "sync=1", "sync=4"]
    said = stopped(tmp_path, first, *moments)
    assert said[1::2] == ["found None"] * len(moments)
    assert {line.split()[-1] for line in said[:-4:2]} == {KILLED}
    assert left(tmp_path) == [".store.packing"]
    ds.pack(first, tmp_path / "store")
    assert left(tmp_path) == []
    # Killed while adding: before the new manifest is there (9 files and the folder are synced first), or
    # after.
    said = stopped(tmp_path, second, "progress=2", "progress=30", "sync=3", "sync=10")
    assert said[1::2] == ["found 400"] * 4
    assert {line.split()[-1] for line in said[::2]} == {KILLED}
    said = stopped(tmp_path, second, "sync=11")
    assert said == [f"sync=11 {KILLED}", "found 800"]
    # The old files are still there, though nobody names them; the next packing tidies up.
    assert set(expected) < set(tree(tmp_path / "store"))
    ds.pack(first, tmp_path / "store")
    assert len(tree(tmp_path / "store")) == len(expected)
    assert left(tmp_path) == []


def test_a_full_disk_is_one_line_and_nothing_is_lost(
    two_files: list[Path], expected: dict[str, bytes], tmp_path: Path
) -> None:
    first, second = two_files
    told = f"{tmp_path / 'store'}: cannot be written (file too large); choose another place to write"
    said = stopped(tmp_path, first, "bytes=0", "bytes=300", "bytes=1500")
    assert [line.partition(" ")[2] for line in said] == [told, "2", "None"] * 3
    ds.pack(first, tmp_path / "store")
    before = tree(tmp_path / "store")
    said = stopped(tmp_path, second, "bytes=300", "bytes=3000")
    assert [line.partition(" ")[2] for line in said] == [told, "2", "400"] * 2
    assert tree(tmp_path / "store") == before
    assert left(tmp_path) == []
    ds.pack(second, tmp_path / "store")
    assert tree(tmp_path / "store") == expected


def test_ctrl_c_leaves_nothing(two_files: list[Path], tmp_path: Path) -> None:
    def interrupt(what: str, share: float) -> None:
        if what.startswith("writing"):
            raise KeyboardInterrupt

    before = tree(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        ds.pack(two_files, tmp_path / "store", progress=interrupt)
    assert tree(tmp_path) == before
    assert not (tmp_path / "store").exists()


def test_two_packings_at_once_are_refused(two_files: list[Path], tmp_path: Path) -> None:
    with workspace(tmp_path / "store"), pytest.raises(DataError, match="another packing is at work"):
        ds.pack(two_files, tmp_path / "store")
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a lock elsewhere is no matter
    ds.pack(two_files, tmp_path / "store")
    os.close(handle)


@pytest.mark.usefixtures("few_rows")
def test_a_flipped_byte_is_refused_by_name(two_files: list[Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    manifest = ds.pack(two_files, store)
    assert len(manifest.shards) > 10
    for file in sorted(store.iterdir()):
        content = file.read_bytes()
        for place in {0, len(content) // 3, len(content) // 2, len(content) - 1}:
            file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with pytest.raises(DataError, match=f"{file.name} is damaged; pack the files again"):
                ds.open_annotations(store)
        file.write_bytes(content)
    assert ds.open_annotations(store).n_labels == 800


@pytest.mark.usefixtures("few_rows")
def test_the_damaged_shard_is_named_and_nothing_is_added_to_it(two_files: list[Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    manifest = ds.pack(two_files[0], store)
    column = store / manifest.files["annotator-codes"].name
    content = bytearray(column.read_bytes())
    content[4 * manifest.shards[2].first_row] ^= 1
    column.write_bytes(content)
    told = rf"shard 3 of {len(manifest.shards)} in annotator-codes-\w+\.int32 is damaged"
    with pytest.raises(DataError, match=told):
        ds.open_annotations(store)
    with pytest.raises(DataError, match=told):
        ds.pack(two_files[1], store)
    assert ds.open_annotations(store, verify=False).n_labels == 400


def test_every_byte_of_the_manifest_counts(two_files: list[Path], tmp_path: Path) -> None:
    store = tmp_path / "store"
    ds.pack(two_files, store)
    content = (store / MANIFEST).read_bytes()
    for place in range(0, len(content), 7):
        (store / MANIFEST).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(DataError, match=f"{MANIFEST} is damaged"):
            ds.open_annotations(store)
    for end in (0, 1, len(content) // 2):
        (store / MANIFEST).write_bytes(content[:end])
        with pytest.raises(DataError, match=f"{MANIFEST} is damaged"):
            ds.open_annotations(store)


def test_a_missing_or_shortened_file_is_noticed_even_unverified(
    two_files: list[Path], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    manifest = ds.pack(two_files, store)
    for file in manifest.files.values():
        content = (store / file.name).read_bytes()
        (store / file.name).write_bytes(content[:-1])
        with pytest.raises(DataError, match=f"{file.name} has .* bytes instead of"):
            ds.open_annotations(store, verify=False)
        (store / file.name).unlink()
        with pytest.raises(DataError, match=f"{file.name} is missing"):
            ds.open_annotations(store, verify=False)
        (store / file.name).write_bytes(content)


def test_a_code_beyond_its_vocabulary_is_refused(
    two_files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dissensus.large.store.files import LabelFiles

    real = LabelFiles.append
    monkeypatch.setattr(LabelFiles, "append", lambda self, rows: real(self, (rows[0], rows[1] - 1, rows[2])))
    ds.pack(two_files, tmp_path / "store")
    with pytest.raises(DataError, match="shard 1 of 1 in annotator-codes"):
        ds.open_annotations(tmp_path / "store")


# ---- a store that somebody forged: every checksum fits, and the content does not -----------------------


def forge(store: Path, change: Callable[[dict[str, Any], dict[str, bytearray]], None]) -> None:
    """Change a store's manifest and bytes, and compute every checksum anew."""
    manifest = json.loads((store / MANIFEST).read_bytes())
    manifest.pop("seal")
    names = {what: file["name"] for what, file in manifest["files"].items()}
    content = {what: bytearray((store / name).read_bytes()) for what, name in names.items()}
    change(manifest, content)
    for what, data in content.items():
        name = names[what]
        (store / name).write_bytes(data)
        manifest["files"][what] |= {"bytes": len(data), "crc32": zlib.crc32(data)}
    for shard in manifest["shards"]:
        part = slice(4 * shard["first_row"], 4 * (shard["first_row"] + shard["n_rows"]))
        shard["crc32"] = [zlib.crc32(content[f"{what}-codes"][part]) for what in COLUMNS]
    text = json.dumps(manifest, sort_keys=True)
    (store / MANIFEST).write_text(json.dumps(manifest | {"seal": hashlib.sha256(text.encode()).hexdigest()}))


def put(what: str, row: int, value: int, kind: str = "<i4") -> Callable[[Any, dict[str, bytearray]], None]:
    """Another number at a place of a file."""

    def change(_: Any, content: dict[str, bytearray]) -> None:
        np.frombuffer(content[what], kind)[row] = value

    return change


def shards(*rows: tuple[int, int, int]) -> Callable[[dict[str, Any], Any], None]:
    """Another list of shards."""

    def change(manifest: dict[str, Any], _: Any) -> None:
        names = ("first_item", "first_row", "n_rows")
        manifest["shards"] = [dict(zip(names, row, strict=True)) for row in rows]

    return change


def resize(what: str, n: int) -> Callable[[dict[str, Any], dict[str, bytearray]], None]:
    def change(manifest: dict[str, Any], content: dict[str, bytearray]) -> None:
        content[what].extend(bytes(n)) if n > 0 else content[what].__delitem__(slice(n, None))

    return change


def say(name: str, value: Any) -> Callable[[dict[str, Any], Any], None]:
    return lambda manifest, _: manifest.update({name: value})


FORGERIES = {
    "an annotator beyond the vocabulary": put("annotator-codes", 3, 99),
    "a huge label": put("label-codes", 0, 2**31 - 1),
    "a negative item": put("item-codes", 5, -1),
    "an item that is not at its place": put("item-codes", 0, 7),
    "a shard that leaves rows out": shards((0, 0, 100), (20, 200, 200)),
    "shards that overlap": shards((0, 0, 300), (20, 100, 100)),
    "a shard beyond the end": shards((0, 0, 4000)),
    "no shard": shards(),
    "a negative shard": shards((0, 0, 500), (3, 500, -100)),
    "a shard of an item that is not there": shards((0, 0, 200), (4000, 200, 200)),
    "rows that go backwards": put("item-rows", 2, 300, "<i8"),
    "rows that begin later": put("item-rows", 0, 1, "<i8"),
    "rows that end later": put("item-rows", -1, 10**9, "<i8"),
    "a column too short": resize("label-codes", -4),
    "a column too long": resize("annotator-codes", 40),
    "ids that lead out of their text": put("item-starts", -1, 10**6),
    "ids that go backwards": put("annotator-starts", 2, 0),
    "ids that are no text": put("item-text", 0, 0xFF, "u1"),
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
        ds.open_annotations(tmp_path / "forged", verify=verify)
        pytest.fail(name)

    ds.pack(two_files[0], tmp_path / "sound")
    for name, change in FORGERIES.items():
        shutil.copytree(tmp_path / "sound", tmp_path / "forged", dirs_exist_ok=True)
        forge(tmp_path / "forged", change)
        with pytest.raises(DataError, match=r"forged: .* is damaged; pack the files again"):
            open_it(name)
    forge(tmp_path / "sound", lambda manifest, content: None)
    assert ds.open_annotations(tmp_path / "sound", verify=verify).n_labels == 400
