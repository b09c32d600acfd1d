"""Logs of evaluation tools: what is recognised, several scorers, broken files, and MLflow's own objects."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from dissensus.errors import DataError
from dissensus.importers import load_export, recognise
from tests.helpers import export_samples as samples
from tests.helpers.export_samples import item_texts, triples, written


def test_one_scorer_of_several(tmp_path: Path) -> None:
    file = samples.inspect_log(tmp_path).path
    imported = load_export(file, question="grader_b")
    assert triples(imported) == [("1", "grader_b", "I"), ("2", "grader_b", "C"), ("2", "grader_b", "N")]
    with pytest.raises(DataError, match="has no question 'grader'; it has score"):
        load_export(file, question="grader")


def test_other_fields_identify_items(tmp_path: Path) -> None:
    header = samples.inspect_header()
    logged = [samples.inspect_sample(1, epoch, g="C") | {"uuid": f"u{epoch}"} for epoch in (1, 2)]
    logged = [sample | {"metadata": {"the topic": f"t{n}"}} for n, sample in enumerate(logged)]
    file = written(tmp_path, header | {"samples": logged})
    assert triples(load_export(file)) == [("1", "g", "C")] * 2
    assert triples(load_export(file, item_column="uuid")) == [("u1", "g", "C"), ("u2", "g", "C")]
    assert triples(load_export(file, item_column="the topic")) == [("t0", "g", "C"), ("t1", "g", "C")]
    assert item_texts(load_export(file, text_column="output.completion")) == {"1": "answer 1"}


def test_log_without_samples(tmp_path: Path) -> None:
    file = written(tmp_path, samples.inspect_header())
    assert recognise(file) == "inspect"
    with pytest.raises(DataError, match=r"line 1: has no id; export it again with its samples"):
        load_export(file)
    with pytest.raises(DataError, match=r"there are no labels; check the export"):
        load_export(written(tmp_path, samples.inspect_header() | {"samples": []}))
    with pytest.raises(DataError, match=r"record 1: has no id; export it again"):
        load_export(written(tmp_path, samples.inspect_header() | {"samples": [3]}))


@pytest.mark.parametrize("scores", ["C", ["C"], [["C"]], 1])
def test_scores_are_objects(scores: Any, tmp_path: Path) -> None:
    sample = samples.inspect_sample(1) | {"scores": scores}
    file = written(tmp_path, samples.inspect_header() | {"samples": [sample]})
    with pytest.raises(DataError, match="record 1: the answer is not an object or a list of objects"):
        load_export(file)


def test_two_logs_in_one_file(tmp_path: Path) -> None:
    file = samples.promptfoo_json(tmp_path).path
    file.write_text(file.read_text() * 2)
    with pytest.raises(DataError, match="text after the end of the object"):
        load_export(file, question="polite")


def test_doubled_keys_in_an_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "run.eval", "w") as archive:
        archive.writestr("header.json", "{}")
        archive.writestr("samples/1_epoch_1.json", '{"id": 1, "id": 2}')
    with pytest.raises(
        DataError, match=r"run\.eval/samples/1_epoch_1\.json line 1: the key 'id' occurs twice"
    ):
        load_export(tmp_path / "run.eval")


def test_damaged_archive(tmp_path: Path) -> None:
    file = samples.inspect_eval(tmp_path).path
    raw = file.read_bytes()
    start = raw.index(b"samples/1_epoch_1.json") + 40
    file.write_bytes(raw[:start] + b"x" * 40 + raw[start + 40 :])
    with pytest.raises(DataError, match="the zip file is damaged"):
        load_export(file, format="inspect", question="tone")


def test_long_log_is_recognised(tmp_path: Path) -> None:
    """The object of a log is longer than what is read to recognise it."""
    rows = samples.promptfoo_rows() * 3000
    file = written(tmp_path, {"evalId": "e", "results": {"version": 3, "results": rows}, "config": {}})
    assert file.stat().st_size > 5_000_000
    assert recognise(file) == "promptfoo"
    assert len(triples(load_export(file, question="contains"))) == 9000
    events = samples.braintrust_events() * 5000
    file = written(tmp_path, {"events": events, "cursor": None})
    assert file.stat().st_size > 5_000_000
    assert recognise(file) == "braintrust"


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("feedback.text,id,annotator,label\nx,1,ann,yes\n", None),
        ('[{"id": 1, "scores": {"a": 1}, "label": "x"}]', None),
        ('{"results": [{"item": 1}], "config": {}}', None),
        ('{"request_id": 1, "annotator": "ann", "label": "x", "data": {"text": "t"}}', None),
        ('{"columns": ["message_id", "worker_id", "label"], "data": []}', "pldl"),
    ],
)
def test_similar_files(text: str, format: str | None, tmp_path: Path) -> None:
    assert recognise(written(tmp_path, text)) == format


def test_objects_of_mlflow(tmp_path: Path) -> None:
    entities = pytest.importorskip("mlflow.entities")
    from mlflow.entities.trace_info import TraceInfo

    judge = entities.AssessmentSource("LLM_JUDGE", "openai:/gpt-4o")
    person = entities.AssessmentSource("HUMAN", "ann@x.org")
    assessments = [
        entities.Feedback(name="correct", value="yes", source=judge, trace_id="tr-1"),
        entities.Feedback(name="correct", value="no", source=person, trace_id="tr-1"),
        entities.Feedback(name="correct", error=ValueError("no JSON"), source=judge, trace_id="tr-1"),
        entities.Expectation(name="answer", value="4", source=person, trace_id="tr-1"),
    ]
    place = entities.TraceLocation.from_experiment_id("0")
    more = {"request_preview": "2+2?", "response_preview": "4", "assessments": assessments}
    info = TraceInfo("tr-1", trace_location=place, request_time=1, state=entities.TraceState.OK, **more)
    trace = entities.Trace(info=info, data=entities.TraceData(spans=[]))
    row = trace.to_pandas_dataframe_row() | {"state": "OK"}
    for text in (trace.to_json(), json.dumps([row]), f"{trace.to_json()}\n"):
        imported = load_export(written(tmp_path, text))
        assert imported.format == "mlflow"
        assert triples(imported) == [("tr-1", "correct (openai:/gpt-4o)", "yes"), ("tr-1", "ann@x.org", "no")]
        assert imported.skipped == {"empty answers": 1}


def test_two_judges_with_one_metric_or_with_a_metric_each(tmp_path: Path) -> None:
    rows = samples.promptfoo_rows()[:2]
    for row in rows:
        first = row["gradingResult"]["componentResults"][0]
        other = first | {"pass": False, "assertion": first["assertion"] | {"provider": "claude"}}
        row["gradingResult"]["componentResults"] = [first, other]
    file = written(tmp_path, {"evalId": "e", "results": {"results": rows}})
    judges = "polite (openai:gpt-4o)", "polite (claude)"
    both = [(item, judge) for item in ("0", "0 1") for judge in judges]
    assert sorted((item, judge) for item, judge, _ in triples(load_export(file))) == sorted(both)
    for row in rows:
        row["gradingResult"]["componentResults"][1]["assertion"]["metric"] = "polite_2"
    file = written(tmp_path, {"evalId": "e", "results": {"results": rows}})
    with pytest.raises(DataError, match=r"holds several questions \(polite, polite_2\)"):
        load_export(file)
    found = {judge for _, judge, _ in triples(load_export(file, question="polite*"))}
    assert found == {"polite (openai:gpt-4o)", "polite_2 (claude)"}
    with pytest.raises(DataError, match=r"has no question 'rude\*'"):
        load_export(file, question="rude*")


def test_unnamed_rubrics_are_metrics_of_their_own(tmp_path: Path) -> None:
    def part(value: str, provider: str) -> dict[str, Any]:
        return {"pass": True, "assertion": {"type": "llm-rubric", "value": value, "provider": provider}}

    row = samples.promptfoo_rows()[0]
    row["gradingResult"]["componentResults"] = [part("is polite", "a"), part("is polite", "b")]
    file = written(tmp_path, {"evalId": "e", "results": {"results": [row]}})
    assert {judge for _, judge, _ in triples(load_export(file))} == {"llm-rubric (a)", "llm-rubric (b)"}
    for second in (part("is correct", "b"), part("is polite", "a")):
        row["gradingResult"]["componentResults"] = [part("is polite", "a"), second]
        file = written(tmp_path, {"evalId": "e", "results": {"results": [row]}})
        with pytest.raises(DataError, match=r"several questions \(llm-rubric, llm-rubric 2\)"):
            load_export(file)


def test_brackets_in_the_name_of_a_metric(tmp_path: Path) -> None:
    rows = samples.promptfoo_rows()[:1]
    for n, part in enumerate(rows[0]["gradingResult"]["componentResults"]):
        part["assertion"]["metric"] = f"Correctness [GEval] {n}"
    file = written(tmp_path, {"evalId": "e", "results": {"results": rows}})
    assert len(triples(load_export(file, question="Correctness [GEval]*"))) == 2


def test_the_output_is_a_column_of_the_item_table(tmp_path: Path) -> None:
    file = written(tmp_path, {"evalId": "e", "results": {"results": samples.promptfoo_rows()[:2]}})
    items = load_export(file, question="polite").items
    assert items is not None
    assert items["output"].to_pylist() == ["reply 00", "reply 01"]
