"""Opening files: missing, piped, compressed, or slow to read."""

import gzip
import json
import os
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dissensus as ds
from dissensus.errors import DataError, DissensusError
from dissensus.importers import load_export
from dissensus.tables.source import within_memory
from tests.helpers.reading import HEADER, ROWS, as_csv, rows_of


def test_missing_files_and_folders(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(HEADER)
    with pytest.raises(DataError, match=r"vots\.csv: no such file; did you mean .*votes\.csv'\?$"):
        ds.read_annotations(tmp_path / "vots.csv")
    for name in ("xyz", "missing.csv"):  # a common suffix does not make names similar
        with pytest.raises(DataError, match=rf"{name}: no such file; check the name$"):
            ds.read_annotations(tmp_path / name)
    with pytest.raises(DataError, match=r"votes\.cvs: no such file; did you mean .*votes\.csv'\?$"):
        ds.read_annotations(tmp_path / "votes.cvs")
    with pytest.raises(DataError, match=r"there is no folder .* either"):
        ds.read_annotations(tmp_path / "no" / "votes.csv")
    with pytest.raises(DataError, match="is a directory; name the file in it"):
        ds.read_annotations(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        ds.read_annotations(tmp_path / "votes.csv" / "below")
    with pytest.raises(DataError, match="cannot be read"):
        ds.read_annotations("a\0b")


def test_a_pipe_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(as_csv(ROWS)))
    writer.start()
    assert rows_of(ds.read_annotations(pipe)) == sorted(ROWS)
    writer.join(timeout=10)


@pytest.mark.parametrize("name", ["pipe.csv", "pipe.jsonl", "pipe.arrow", "pipe.parquet"])
def test_a_pipe_in_a_folder_is_refused(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    os.mkfifo(folder / name)
    with pytest.raises(DataError, match=rf"{name}: is a pipe or a device; remove it from the folder"):
        ds.write_store(folder, tmp_path / "store")
    if name != "pipe.csv":
        with pytest.raises(DataError, match="is a pipe or a device"):
            load_export(folder, format="doccano" if "json" in name else "huggingface")


def test_decompressed_size_is_limited(tmp_path: Path) -> None:
    text = "item,annotator,label\n" + "1,a,x\n" * 400_000
    with gzip.open(tmp_path / "bomb.csv.gz", "wt") as file:
        file.write(text)
    line = json.dumps({"id": 1, "text": "t" * 2_400_000, "label": ["x"]})
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ann.jsonl", line)
    message = "decompresses to more than .*, 8 times the memory available; .* memory="
    with within_memory(250_000):
        with pytest.raises(DataError, match=message):
            ds.read_annotations(tmp_path / "bomb.csv.gz")
        with pytest.raises(DataError, match=message):
            load_export(tmp_path / "bomb.zip", format="doccano")
    assert ds.read_annotations(tmp_path / "bomb.csv.gz").n_labels == 400_000


def cpu_seconds(work: Any) -> float:
    started = time.process_time()
    with pytest.raises(DissensusError):
        work()
    return time.process_time() - started


@pytest.mark.slow
def test_wide_headers_take_linear_time(tmp_path: Path) -> None:
    n = 20_000
    wide = tmp_path / "wide.csv"
    wide.write_text(",".join(f"c{i}" for i in range(n)) + "\n" + ",".join("x" * n) + "\n")
    doubled = tmp_path / "doubled.csv"
    doubled.write_text(",".join(f"c{i}" for i in [*range(n), n - 1]) + "\n")
    keys = tmp_path / "keys.jsonl"
    keys.write_text("{" + ", ".join(f'"k{i}": 1' for i in [*range(n), n - 1]) + "}\n")
    for file in (wide, doubled, keys):
        assert cpu_seconds(lambda file=file: ds.read_annotations(file)) < 5
