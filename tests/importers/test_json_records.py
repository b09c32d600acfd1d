"""Ground Truth, LeWiDi, and exports of many labels."""

import json
from pathlib import Path
from typing import Any

import pytest

import tests.helpers.export_samples as samples
from dissensus.errors import DataError
from dissensus.importers import load_export, recognise
from tests.helpers.export_samples import item_texts, triples, written


def test_built_in_ground_truth_job(tmp_path: Path) -> None:
    metadata = {"class-name": "football", "confidence": 0.9}
    line = {"source-ref": "s3://b/1.png", "sport": 0, "sport-metadata": metadata}
    file = written(tmp_path, line, "output.manifest")
    assert recognise(file) == "ground-truth"
    with pytest.raises(DataError, match="holds only the consolidated label"):
        load_export(file)


def test_two_ground_truth_jobs(tmp_path: Path) -> None:
    def job(value: str) -> dict[str, Any]:
        content = json.dumps({"mood": {"label": value}})
        return {"annotationsFromAllWorkers": [{"workerId": "w", "annotationData": {"content": content}}]}

    line = {"source": "got wet", "ref": "r1", "first": job("neg"), "second": job("pos")}
    file = written(tmp_path, line)
    with pytest.raises(DataError, match=r"several questions \(first\.mood, second\.mood\)"):
        load_export(file)
    imported = load_export(file, question="second.mood", item_column="ref")
    assert triples(imported) == [("r1", "w", "pos")]
    assert item_texts(imported) == {"r1": "got wet"}


def test_ground_truth_annotation_is_an_object(tmp_path: Path) -> None:
    line = {"source-ref": "s3://x", "job": {"annotationsFromAllWorkers": ["w"]}}
    with pytest.raises(DataError, match="line 1: holds an annotation that is not an object"):
        load_export(written(tmp_path, line))


def test_lewidi_annotations_match_annotators(tmp_path: Path) -> None:
    entry = {"text": "x", "annotations": "0,1,0", "annotators": "Ann1,Ann2"}
    with pytest.raises(DataError, match="item '1': the annotations do not line up"):
        load_export(written(tmp_path, {"1": entry}))


def test_lewidi_columns_are_kept(tmp_path: Path) -> None:
    items = load_export(samples.lewidi_2025(tmp_path).path).items
    assert items is not None
    assert items["split"].to_pylist() == ["dev", "train", "test"]
    assert items["lang"].to_pylist() == ["en", "fr", "en"]
