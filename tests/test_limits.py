"""Absurd sizes, depths and files: one line, and no endless work."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from cli_help import failure, write_votes
from dissensus.errors import DataError, DissensusError, ModelFileError
from dissensus.importers import load_export
from dissensus.tables.arrays import read_arrays, write_arrays
from dissensus.tables.source import within_memory

ROWS = "".join(f"i{i},a{a},{'xyz'[(i + a) % 3]}\n" for i in range(8) for a in range(3))


@pytest.fixture
def votes(tmp_path: Path) -> Path:
    return write_votes(tmp_path / "votes.csv", ROWS)


# ---- depth --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [101, 950, 5000, 200_000])
@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_json_nested_deeply_is_one_line(depth: int, pair: str, tmp_path: Path) -> None:
    opening, closing = ("[", "]") if pair == "[]" else ('{"a":', "}")
    deep = opening * depth + "1" + closing * depth
    contents = {
        "table.jsonl": f'{{"item": 1, "annotator": 2, "label": "x", "more": {deep}}}\n',
        "studio.json": f'[{{"id": 1, "data": {{"text": {deep}}}, "annotations": []}}]',
        "truth.jsonl": json.dumps(
            {"source": "t", "job": {"annotationsFromAllWorkers": [
                {"workerId": "a", "annotationData": {"content": deep}}]}}
        ),
    }  # fmt: skip
    for name, content in contents.items():
        file = tmp_path / name
        file.write_text(content)
        with pytest.raises(DataError, match=r"nested|not valid JSON"):
            ds.read_annotations(file)
    assert "Traceback" not in failure("describe", tmp_path / "studio.json")


def test_brackets_in_texts_are_not_depth(tmp_path: Path) -> None:
    text = "[{" * 5000
    rows = [
        {"item": i, "annotator": a, "label": "xy"[i % 2], "text": text} for i in range(2) for a in range(2)
    ]
    (tmp_path / "votes.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert ds.read_annotations(tmp_path / "votes.jsonl").n_labels == 4


# ---- files of arrays ----------------------------------------------------------------------------------


def tensors(path: Path, entries: dict[str, Any], data: bytes, about: dict[str, str] | None = None) -> Path:
    index = json.dumps({"__metadata__": about or {"dissensus": "{}", "format": "2"}, **entries}).encode()
    path.write_bytes(len(index).to_bytes(8, "little") + index + data)
    return path


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "F8_E5M2"])
def test_numbers_that_numpy_lacks_are_one_line(kind: str, tmp_path: Path) -> None:
    size = 2 if kind == "BF16" else 1
    entry = {"dtype": kind, "shape": [4], "data_offsets": [0, 4 * size]}
    file = tensors(tmp_path / "m.safetensors", {"a": entry}, bytes(4 * size))
    with pytest.raises(ModelFileError, match=f"a holds numbers of type {kind}"):
        ds.load(file)
    assert kind in failure("export", file, "-o", tmp_path / "x.csv")


@pytest.mark.parametrize("shape", [[2**62], [2**31, 2**31], [-1], [3], [0, 10**18]])
def test_forged_shapes_are_one_line(shape: list[int], tmp_path: Path) -> None:
    entry = {"dtype": "F64", "shape": shape, "data_offsets": [0, 16]}
    with pytest.raises(ModelFileError):
        ds.load(tensors(tmp_path / "m.safetensors", {"a": entry}, bytes(16)))


@pytest.mark.parametrize("model", ["majority", "fmm", "dawid-skene", "pgm"])
def test_a_model_of_other_sizes_with_a_checksum_that_fits_is_refused(
    model: str, votes: Path, tmp_path: Path
) -> None:
    from dissensus.models import build_model

    build_model(model, {}, seed=0).fit(ds.read_annotations(votes)).save(tmp_path / "m.safetensors")
    header, arrays = read_arrays(tmp_path / "m.safetensors")
    for name in ("label_distributions_", "n_labels_", "item.offsets", "item.bytes", "class.offsets"):
        # Text that no id uses is no harm.
        longer = [] if name == "item.bytes" else [np.tile(arrays[name], 2)]
        for forged in (arrays[name][:-1], arrays[name][:0], *longer):
            write_arrays(tmp_path / "f.safetensors", header, {**arrays, name: forged})
            with pytest.raises(ModelFileError, match="damaged or incomplete"):
                ds.load(tmp_path / "f.safetensors")


def test_a_header_that_is_none_is_one_line(tmp_path: Path) -> None:
    for text in ("[1]", "[" * 100_000, "{", "null"):
        about = {"dissensus": text, "format": "2", "sha256": hashlib.sha256(text.encode()).hexdigest()}
        with pytest.raises(ModelFileError, match="header is damaged"):
            ds.load(tensors(tmp_path / "m.safetensors", {}, b"", about))


# ---- sizes --------------------------------------------------------------------------------------------


def test_a_share_that_hides_everything_is_one_line(votes: Path, tmp_path: Path) -> None:
    told = failure("fit", votes, "--test-size", "0.999999", "-o", tmp_path / "out")
    assert told == "a --test-size 0.999999 hides all 24 labels; hide a smaller share"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--model", "fmm", "-k", "10000000000"],
        ["--model", "pgm", "-k", "100000", "-l", "100000000"],
        ["--model", "fmm", "-k", "4", "--set", "max_iter=1e400"],
        ["--model", "fmm", "-k", "9" * 30],
        ["--memory", "9" * 40 + "TB", "--model", "fmm", "-k", "10000000000"],
    ],
)
def test_absurd_sizes_are_one_line(words: list[str], votes: Path, tmp_path: Path) -> None:
    failure("fit", votes, *words, "--test-size", "0", "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---- no endless work ----------------------------------------------------------------------------------


def seconds(work: Any) -> float:
    started = time.process_time()
    with pytest.raises(DissensusError):
        work()
    return time.process_time() - started


@pytest.mark.slow
def test_wide_headers_and_doubled_keys_take_time_in_proportion(tmp_path: Path) -> None:
    n = 20_000
    wide = tmp_path / "wide.csv"
    wide.write_text(",".join(f"c{i}" for i in range(n)) + "\n" + ",".join("x" * n) + "\n")
    doubled = tmp_path / "doubled.csv"
    doubled.write_text(",".join(f"c{i}" for i in [*range(n), n - 1]) + "\n")
    keys = tmp_path / "keys.jsonl"
    keys.write_text("{" + ", ".join(f'"k{i}": 1' for i in [*range(n), n - 1]) + "}\n")
    for file in (wide, doubled, keys):
        assert seconds(lambda file=file: ds.read_annotations(file)) < 5


@pytest.mark.parametrize("name", ["pipe.csv", "pipe.jsonl", "pipe.arrow", "pipe.parquet"])
def test_a_pipe_in_a_folder_is_refused(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    os.mkfifo(folder / name)
    with pytest.raises(DataError, match=rf"{name}: is a pipe or a device; take it out of the folder"):
        ds.write_store(folder, tmp_path / "store")
    if name not in ("pipe.csv",):
        with pytest.raises(DataError, match="is a pipe or a device"):
            load_export(folder, format="doccano" if "json" in name else "huggingface")


def test_what_unzips_to_more_than_memory_allows_is_refused(tmp_path: Path) -> None:
    text = "item,annotator,label\n" + "1,a,x\n" * 400_000
    with gzip.open(tmp_path / "bomb.csv.gz", "wt") as file:
        file.write(text)
    line = json.dumps({"id": 1, "text": "t" * 2_400_000, "label": ["x"]})
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ann.jsonl", line)
    told = "unzips to more than .*, 8 times the memory there is for it; .* memory="
    with within_memory(250_000):
        with pytest.raises(DataError, match=told):
            ds.read_annotations(tmp_path / "bomb.csv.gz")
        with pytest.raises(DataError, match=told):
            load_export(tmp_path / "bomb.zip", format="doccano")
    assert ds.read_annotations(tmp_path / "bomb.csv.gz").n_labels == 400_000


# ---- many classes -------------------------------------------------------------------------------------


def many_classes(path: Path, n_classes: int, n_items: int, n_annotators: int) -> Path:
    chance = np.random.default_rng(0)
    rows = []
    for i in range(n_items):
        true = chance.integers(n_classes)
        for a in chance.choice(n_annotators, 5, replace=False):
            given = true if chance.random() < 0.7 else chance.integers(n_classes)
            rows.append(f"i{i},a{a},c{given}\n")
    return write_votes(path, "".join(rows))


def test_with_very_many_classes_models_with_matrices_are_not_tried(tmp_path: Path) -> None:
    known = ds.read_annotations(many_classes(tmp_path / "votes.csv", 300, 400, 30))
    started = time.process_time()
    choice = ds.compare(known, n_jobs=1)
    assert time.process_time() - started < 30
    assert f"; not tried with {known.n_classes} classes: hpgm, dawid-skene" in choice.reason
    assert not {type(row.model).__name__ for row in choice.table} & {"DawidSkene", "CBCC", "HPGM"}


def test_a_page_needs_no_class_that_is_frequent(tmp_path: Path) -> None:
    known = ds.read_annotations(many_classes(tmp_path / "votes.csv", 150, 60, 10))
    ds.write_report(known, ds.FMM(1).fit(known), tmp_path / "page.html", progress=False)
    assert (tmp_path / "page.html").stat().st_size > 0


def test_a_matrix_an_annotator_that_no_memory_holds_is_refused_before_work(tmp_path: Path) -> None:
    file = many_classes(tmp_path / "votes.csv", 5000, 2000, 200)
    for words in (["--memory", "2GB"], []):
        told = failure(
            "fit", file, "--model", "dawid-skene", *words, "--test-size", "0", "-o", tmp_path / "out"
        )
        assert "of memory at least, and" in told
    assert not (tmp_path / "out").exists()


def test_tables_of_a_result_that_the_memory_allowed_does_not_hold_are_refused_before_work(
    tmp_path: Path,
) -> None:
    known = ds.read_annotations(many_classes(tmp_path / "votes.csv", 5000, 5000, 200))
    for model in ("empirical", "fmm", "hpgm"):
        with ds.resources(memory="2GB"), pytest.raises(DataError, match=r"classes need .* are allowed"):
            ds.fit(known, model)
