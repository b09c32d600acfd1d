"""Questions, skipped answers, texts and unusual values."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

import tests.helpers.export_samples as samples
from dissensus.errors import DataError
from dissensus.importers import load_export
from dissensus.importers.read import read_annotations
from tests.helpers.export_samples import item_texts, task, triples, written


def two_questions(folder: Path) -> Path:
    tasks = samples.label_studio_tasks()
    tasks[1]["annotations"][0]["result"].append(samples.choice("topic", "sport"))
    return written(folder, tasks, "two.json")


def test_several_questions(tmp_path: Path) -> None:
    file = two_questions(tmp_path)
    line = r"several questions \(mood, topic\); choose one, such as question='mood'"
    with pytest.raises(DataError, match=line):
        load_export(file)
    imported = load_export(file, question="topic")
    assert triples(imported) == [("8", "15", "sport")]
    assert list(imported.questions) == ["mood", "topic"]


def test_misspelled_question(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no question 'mod'; did you mean 'mood'\? it has mood, topic"):
        load_export(two_questions(tmp_path), question="mod")
    table = samples.toloka(tmp_path).path
    with pytest.raises(DataError, match=r"no question 'reslut'; did you mean 'result'\?"):
        load_export(table, question="reslut")


def test_export_without_labels(tmp_path: Path) -> None:
    line = r"there are no labels \(2 cancelled or skipped annotations left out\)"
    with pytest.raises(DataError, match=line):
        load_export(written(tmp_path, [task(was_cancelled=True), task(was_cancelled=True)]))


def test_notes_on_skipped_answers(tmp_path: Path) -> None:
    tasks = [task(was_cancelled=True), task(was_cancelled=True), task(result=[]), task()]
    notes = read_annotations(written(tmp_path, tasks)).notes
    assert {"2 cancelled or skipped annotations left out", "1 empty answer left out"} <= set(notes)


def test_rejected_assignments_can_be_kept(tmp_path: Path) -> None:
    for make in (samples.mturk, samples.toloka):
        sample = make(tmp_path)
        imported = load_export(sample.path, keep_rejected=True)
        assert len(triples(imported)) == len(sample.labels) + 1
        assert "rejected assignments" not in imported.skipped


def test_named_item_and_text_fields(tmp_path: Path) -> None:
    tasks = [task(), task()]
    tasks[0]["data"] = {"ref": "r-1", "title": "Rain", "body": ["It", {"deep": "rains"}]}
    tasks[1]["data"] = {"ref": "r-2", "title": "Snow", "body": []}
    imported = load_export(written(tmp_path, tasks), item_column="ref", text_column="body")
    assert item_texts(imported) == {"r-1": "It [SEP] rains", "r-2": None}


def test_unusual_values(tmp_path: Path) -> None:
    rows = [[1, 1, value, "t"] for value in (True, 2.0, 2.5, "none", " ", None, float("nan"), "null")]
    table = {"columns": ["message_id", "worker_id", "label", "message"], "data": rows}
    imported = load_export(written(tmp_path, table))
    assert [label for *_, label in triples(imported)] == ["true", "2", "2.5", "none", "null"]
    assert imported.skipped == {"empty answers": 3}


def test_lone_surrogates(tmp_path: Path) -> None:
    tasks = [{"id": 1, "data": {"text": "a\ud800b"}, "annotations": task()["annotations"]}]
    assert item_texts(load_export(written(tmp_path, tasks))) == {"1": "a?b"}
    tasks[0]["annotations"] = task(result=[samples.choice("mood", "\ud800")])["annotations"]
    with pytest.raises(DataError, match=r"record 1: .* is not valid text"):
        load_export(written(tmp_path, tasks))


DOUBLED = [
    (samples.mturk_form, '{""label"": ""pos""}', '{""label"": ""pos"", ""label"": ""neg""}', "label"),
    (samples.zooniverse, '""value"": ""Crow""', '""value"": ""Crow"", ""value"": ""Jackdaw""', "value"),
    (samples.ground_truth, r"{\"label\": \"pos\"}", r"{\"label\": \"pos\", \"label\": \"neg\"}", "label"),
    (samples.label_studio_csv, '[""neg"", ""pos""]', '[""neg""], ""choices"": [""pos""]', "choices"),
    (samples.toloka, '[""neg"",""pos""]', '[{""neg"": true, ""neg"": false}]', "neg"),
]


@pytest.mark.parametrize(("sample", "text", "doubled", "key"), DOUBLED)
def test_keys_twice_inside_a_cell_are_refused_by_name(
    sample: Callable[[Path], samples.Sample], text: str, doubled: str, key: str, tmp_path: Path
) -> None:
    """The last of two values would win in silence."""
    made = sample(tmp_path)
    content = made.path.read_text(encoding="utf-8")
    assert text in content
    made.path.write_text(content.replace(text, doubled), encoding="utf-8")
    with pytest.raises(DataError, match=f"the answer has the key '{key}' twice; rename or remove one"):
        load_export(made.path, question=made.question if made.asked else None)


@pytest.mark.filterwarnings("ignore::dissensus.errors.DissensusWarning")
@pytest.mark.parametrize("make", samples.SAMPLES, ids=lambda make: make.__name__)
def test_lone_surrogates_in_any_string(make: Callable[[Path], samples.Sample], tmp_path: Path) -> None:
    """Half of an emoji after any word of an export is refused or replaced, and a run can be written."""
    sample = make(tmp_path)
    files = (
        [sample.path]
        if sample.path.is_file()
        else [path for path in sample.path.rglob("*") if path.is_file()]
    )
    for file in files:
        if file.suffix in (".zip", ".eval", ".arrow", ".parquet"):
            continue
        content = file.read_text(encoding="utf-8")
        words = sorted(set(re.findall(r'"([^"\\{}\[\],:]{1,40})(?:\\?"|"")', content)))
        for word, half in product(words, (r"\ud83d", r"\\ud83d")):
            changed = re.sub(
                rf'(?<="){re.escape(word)}(?=\\?"|"")', lambda match, half=half: match[0] + half, content
            )
            file.write_text(changed, encoding="utf-8")
            for question in {None, sample.question, f"{sample.question}\ud83d"}:
                named = {} if question is None else {"question": question}
                with suppress(DataError):
                    named |= {name.removesuffix("_column"): column for name, column in sample.columns.items()}
                    labels = read_annotations(sample.path, **named)
                    json.dumps([labels.columns_read, labels.notes], ensure_ascii=False).encode()
        file.write_text(content, encoding="utf-8")
