"""doccano: members, merged files, and spans."""

import json
import zipfile
from pathlib import Path

import pytest

from dissensus.errors import DataError
from dissensus.importers import load_export, recognise
from tests.helpers.export_samples import written


def test_merged_files_are_refused(tmp_path: Path) -> None:
    line = json.dumps({"id": 7, "text": "got wet", "label": ["neg"]})
    single = written(tmp_path, line, "all.jsonl")
    folder = tmp_path / "folder"
    folder.mkdir()
    written(folder, line, "all.jsonl")
    for path in (single, folder):
        assert recognise(path) == "doccano"
        with pytest.raises(DataError, match="does not name the annotators"):
            load_export(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("names", "word"),
    [
        (["ann.jsonl", "ann.jsonl"], "both of the member 'ann'"),
        (["a/ann.jsonl", "b/ann.jsonl"], "'a/ann.jsonl' and 'b/ann.jsonl' are both of the member 'ann'"),
        (["ann.json", "ann.jsonl"], "are both of the member 'ann'"),
    ],
)
def test_two_files_of_one_member(names: list[str], word: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as archive:
        for name in names:
            archive.writestr(name, '{"id": 1, "text": "t", "label": ["x"]}')
    with pytest.raises(DataError, match=word):
        load_export(tmp_path / "d.zip", format="doccano")


def test_spans_are_not_labels(tmp_path: Path) -> None:
    members = tmp_path / "members"
    members.mkdir()
    written(members, '{"id": 1, "text": "Anna", "label": [[0, 4, "PER"]]}', "ann.jsonl")
    with pytest.raises(DataError, match=r"ann\.jsonl line 1.*only questions with class labels"):
        load_export(members)
    line = {"text": "Anna", "_input_hash": 1, "answer": "accept", "spans": [], "_session_id": "a"}
    with pytest.raises(DataError, match="marks spans, parts of a text; only classification tasks"):
        load_export(written(tmp_path, line))
