"""Exports that are tables: Mechanical Turk, Appen, Toloka, Label Studio CSV."""

import csv
import json
from pathlib import Path

import pandas as pd
import pytest

import tests.helpers.export_samples as samples
from dissensus.errors import DataError
from dissensus.importers import load_export
from dissensus.importers.flat import LATER_QUESTIONS
from tests.helpers.export_samples import item_texts, triples, written
from tests.helpers.reading import write_file


@pytest.mark.parametrize("name", ["mood", "mood.label", "Answer.mood.label"])
def test_a_question_may_be_named_as_its_column(name: str, tmp_path: Path) -> None:
    assert len(triples(load_export(samples.mturk(tmp_path).path, question=name))) == 3


def test_varying_columns_are_questions(tmp_path: Path) -> None:
    file = tmp_path / "two.csv"
    file.write_text(
        "annotation_id,annotator,id,lead_time,mood,topic,source,text\n"
        "1,10,7,1.0,neg,sport,web,rain\n2,11,7,1.0,pos,news,web,rain\n3,10,8,1.0,pos,news,print,snow\n"
    )
    with pytest.raises(DataError, match=r"several questions \(mood, topic\)"):
        load_export(file)
    assert [label for *_, label in triples(load_export(file, question="source"))] == ["web", "web", "print"]


def test_column_with_few_values_is_the_question(tmp_path: Path) -> None:
    file = tmp_path / "agreed.csv"
    rows = "".join(f"{n},10,{n},1.0,{'neg' if n % 2 else 'pos'},text number {n}\n" for n in range(8))
    file.write_text("annotation_id,annotator,id,lead_time,mood,text\n" + rows)
    assert load_export(file).question == "mood"


def test_remarks_and_times_are_not_labels(tmp_path: Path) -> None:
    remarks = ["I am not sure about this", "quite clear to me", "hard to tell from here", "no idea at all"]
    records = [
        {"annotation_id": 1, "lead_time": 3.5, "created_at": "2026-01-01T00:00:00Z", "id": i // 2,
         "annotator": i % 2, "text": f"t{i // 2}", "mood": "same", "why": remarks[i],
         "seen_on": f"2026-01-0{i + 1} 10:00"}
        for i in range(4)
    ]  # fmt: skip
    # Within an item only the remark and the time vary, so the answer is the constant column.
    assert load_export(written(tmp_path, records)).question == "mood"
    for record in records:
        del record["mood"]
    with pytest.raises(DataError, match="cannot find the column of answers; name it with question="):
        load_export(written(tmp_path, records))
    rows = [f"{i // 2},{i % 2},yes,{remarks[i]},1/{i + 1}/2026 10:00:00\n" for i in range(4)]
    content = "_unit_id,_worker_id,relevant,comments,orig_started\n" + "".join(rows)
    assert load_export(write_file(tmp_path / "f.csv", content), format="appen").question == "relevant"


def test_empty_columns_are_not_questions(tmp_path: Path) -> None:
    mturk = "HITId,WorkerId,Answer.mood,Answer.more\nh,a,x,\nh,b,y,\n"
    assert load_export(write_file(tmp_path / "m.csv", mturk)).question == "mood"
    header = "INPUT:text\tOUTPUT:mood\tOUTPUT:more\tASSIGNMENT:task_id\tASSIGNMENT:worker_id\n"
    toloka = write_file(tmp_path / "t.tsv", header + "t\tx\t\t1\ta\nt\ty\t\t1\tb\n")
    assert load_export(toloka).question == "mood"


def test_appen_without_test_questions(tmp_path: Path) -> None:
    file = tmp_path / "report.csv"
    file.write_text(
        "_unit_id,_golden,_worker_id,mood,text\n7,false,1,neg,wet\n7,false,2,pos,wet\n8,false,1,neg,dry\n"
    )
    assert load_export(file).question == "mood"


def test_aggregated_appen_report(tmp_path: Path) -> None:
    file = written(tmp_path, "_unit_id,_golden,_trusted_judgments,mood\n7,false,3,neg\n", "agg.csv")
    with pytest.raises(DataError, match="download the full report"):
        load_export(file)


def test_long_documents_fit_in_a_cell(tmp_path: Path) -> None:
    long = "word " * 100_000
    file = written(tmp_path, f"HITId,WorkerId,Input.text,Answer.a\nH,A,{long},x\n", "long.csv")
    before = csv.field_size_limit()
    assert item_texts(load_export(file)) == {"H": long}
    assert csv.field_size_limit() == before


def test_later_questions_are_not_called_empty_answers(tmp_path: Path) -> None:
    """Questions are found in the first thousand records; answers to others after them are counted as such."""
    header = "HITId,WorkerId,AssignmentStatus,Answer.mood,Answer.topic\n"
    rows = [f"H{n},A{n % 7},Approved,{'neg' if n % 2 else 'pos'},\n" for n in range(1000)]
    file = tmp_path / "batch.csv"
    file.write_text(header + "".join(rows) + "H1,B1,Approved,,sport\nH2,B1,Approved,,\n")
    imported = load_export(file)
    assert imported.skipped == {LATER_QUESTIONS: 1, "empty answers": 1}
    forms = [json.dumps([{"mood": {"label": "neg"}}])] * 1000 + ['[{"topic": {"label": "sport"}}]', "[{}]"]
    table = pd.DataFrame({"HITId": range(1002), "WorkerId": "A", "AssignmentStatus": "Approved"})
    table.assign(**{"Answer.taskAnswers": forms}).to_csv(file, index=False)
    assert load_export(file).skipped == {LATER_QUESTIONS: 1, "empty answers": 1}
