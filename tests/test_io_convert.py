"""An export becomes plain tables that read the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dissensus.errors import DataError
from dissensus.io import read_annotations
from dissensus.io.convert import convert_export, items_beside
from export_samples import SAMPLES, Sample, label_studio_json


@pytest.mark.parametrize("name", ["labels.csv", "labels.csv.gz", "labels.jsonl", "labels.parquet"])
@pytest.mark.parametrize("make", SAMPLES, ids=lambda make: make.__name__)
def test_the_converted_tables_read_as_the_export_does(
    make: Callable[[Path], Sample], name: str, tmp_path: Path
) -> None:
    sample = make(tmp_path)
    converted = convert_export(sample.path, tmp_path / "out" / name, **sample.options)
    read = read_annotations(converted.labels, items=converted.items)
    rows = zip(read.items[read.item], read.annotators[read.annotator], read.classes[read.label], strict=True)
    assert sorted(rows) == sorted(sample.labels)
    if any(sample.texts.values()):
        texts = dict(zip(read.items, read.item_column("text"), strict=True))
        assert {item: text or None for item, text in texts.items()} == sample.texts


def test_items_stand_beside_the_labels_or_where_they_are_wanted(tmp_path: Path) -> None:
    assert items_beside(Path("a/labels.csv")) == Path("a/labels.items.csv")
    assert items_beside(Path("v1.2.jsonl.gz")) == Path("v1.2.items.jsonl.gz")
    source = label_studio_json(tmp_path).path
    converted = convert_export(source, tmp_path / "labels.csv", tmp_path / "texts.parquet")
    assert converted.items == tmp_path / "texts.parquet"
    assert converted.items.is_file()
    assert converted.imported.left_out["empty answers"] == 1


def test_nothing_is_written_from_a_bad_export_or_under_a_bad_name(tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("[{]")
    out = tmp_path / "out"
    with pytest.raises(DataError):
        convert_export(bad, out / "labels.csv", format="prodigy")
    with pytest.raises(DataError, match="does not tell the format"):
        convert_export(label_studio_json(tmp_path).path, out / "labels.xlsx")
    assert not out.exists()
