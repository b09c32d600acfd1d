"""Label Studio: controls, regions, and repeated answers."""

import json
from pathlib import Path
from typing import Any

import pytest

import tests.helpers.export_samples as samples
from dissensus.errors import DataError
from dissensus.importers import load_export
from tests.helpers.export_samples import task, triples, written


def region(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "from_name": "ner", "to_name": "text", "value": value}


def test_other_controls(tmp_path: Path) -> None:
    cases = {
        "rating": ({"rating": 4}, ["4"]),
        "number": ({"number": 2.5}, ["2.5"]),
        "pairwise": ({"selected": "left"}, ["left"]),
        "taxonomy": ({"taxonomy": [["Animal", "Cat"], ["Plant"]]}, ["Animal / Cat", "Plant"]),
    }
    for kind, (value, labels) in cases.items():
        imported = load_export(written(tmp_path, [task(result=[region(kind, value)])]))
        assert [label for *_, label in triples(imported)] == labels


def test_repeated_answer_is_one_label(tmp_path: Path) -> None:
    result = [samples.choice("mood", "neg"), samples.choice("mood", "neg", "pos")]
    labels = triples(load_export(written(tmp_path, [task(result=result)])))
    assert labels == [("7", "10", "neg"), ("7", "10", "pos")]


def test_answers_about_regions_are_skipped(tmp_path: Path) -> None:
    for where in ({"start": 0, "end": 3}, {"x": 1.0, "y": 2.0}, {"points": [[1, 2]]}, {"format": "rle"}):
        part = samples.choice("mood", "neg")
        part["value"] |= where
        tasks = [task(), task(result=[samples.choice("mood", "pos"), part])]
        imported = load_export(written(tmp_path, tasks))
        assert imported.skipped == {"answers about a part of an item": 1}
        assert [label for *_, label in triples(imported)] == ["neg", "pos"]


@pytest.mark.parametrize(
    ("kind", "word"), [("labels", "spans"), ("rectanglelabels", "boxes"), ("brushlabels", "boxes")]
)
def test_spans_and_boxes(kind: str, word: str, tmp_path: Path) -> None:
    marked = region(kind, {"start": 0, "end": 4, kind: ["PER"]})
    file = written(tmp_path, [task(result=[marked])])
    with pytest.raises(DataError, match=rf"ner marks {word}, parts of an item; only questions with class"):
        load_export(file)
    both = [task(result=[marked, samples.choice("mood", "x")]), task(result=[marked])]
    imported = load_export(written(tmp_path, both))
    assert imported.skipped == {f"{word} (ner)": 2}
    assert imported.labels.num_rows == 1


@pytest.mark.parametrize(
    "message",
    [{"role": "user", "content": "Hi"}, {"author": "Ana", "text": "Hi"}],
    ids=["chat", "paragraphs"],
)
@pytest.mark.parametrize("field", ["text", "dialogue"])
def test_a_conversation_keeps_its_turns(message: dict[str, str], field: str, tmp_path: Path) -> None:
    talk = [message, message | {next(iter(message)): "assistant"}]
    first = task(result=[region("choices", {"choices": ["neg"]})]) | {"data": {field: talk}}
    imported = load_export(written(tmp_path, [first]))
    assert imported.items is not None
    assert json.loads(imported.items["text"][0].as_py()) == talk


def test_other_lists_are_joined(tmp_path: Path) -> None:
    first = task(result=[region("choices", {"choices": ["neg"]})]) | {"data": {"text": ["one", "two"]}}
    imported = load_export(written(tmp_path, [first]))
    assert imported.items is not None
    assert imported.items["text"][0].as_py() == "one [SEP] two"
