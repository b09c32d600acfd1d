"""``dissensus import`` and ``export``."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from tests.helpers.cli import failure, random_votes, read_csv, run, write_votes
from tests.helpers.export_samples import choice

FMM = ["--model", "fmm", "-k", 3, "--no-report"]
MAJORITY = ["--model", "majority", "--no-report"]


def describe(file: str) -> Any:
    """Return the description that the command prints as JSON."""
    return json.loads(run("describe", file, "--json").stdout)


def write_export(questions: dict[str, list[str]], n_tasks: int = 1) -> None:
    """Write an export of Label Studio; each annotator answers every question."""
    results = [[choice(name, values[n]) for name, values in questions.items()] for n in range(2)]
    annotations = [{"id": n, "completed_by": n, "result": result} for n, result in enumerate(results)]
    tasks = [{"id": 7 + m, "data": {"text": "hello"}, "annotations": annotations} for m in range(n_tasks)]
    Path("export.json").write_text(json.dumps(tasks))


def test_exports_of_label_studio() -> None:
    write_export({"mood": ["good", "bad"]})
    run("import", "export.json", "-o", "labels.csv", "--items-to", "texts.csv")
    rows = read_csv(Path("labels.csv"))
    assert [(row["item"], row["label"]) for row in rows] == [("7", "good"), ("7", "bad")]
    assert read_csv(Path("texts.csv"))[0]["text"] == "hello"
    write_export({"mood": ["good", "good"], "tone": ["calm", "calm"]}, n_tasks=3)
    assert "dissensus import export.json --question mood -o labels.csv" in failure("fit", "export.json")
    run("import", "export.json", "--question", "mood", "-o", "labels.csv")
    assert "6 labels" in run("fit", "labels.csv", *MAJORITY).stdout


def test_sets_written_as_text_suggest_the_import() -> None:
    cells = ["joy; fear", "joy", "fear; anger", "anger", "joy; anger", "fear"]
    rows = "".join(f"i{m},a{n},{cells[(m + n) % 6]}\n" for m in range(9) for n in range(3))
    write_votes(Path("votes.csv"), rows)
    notes = " ".join(run("fit", "votes.csv", *MAJORITY).stderr.split())
    assert "dissensus import votes.csv --separator ';' -o labels.csv" in notes
    run("import", "votes.csv", "--separator", ";", "-o", "labels.csv")
    assert "3 classes in 6 different sets" in run("fit", "labels.csv", "--no-report").stdout


def test_classes_that_differ_in_case_suggest_the_import() -> None:
    write_votes(Path("votes.csv"), "i,a,OFFENSIVE\ni,b,offensive\nj,a,offensive\nj,b,fine\n")
    notes = " ".join(run("describe", "votes.csv").stderr.split())
    assert "dissensus import votes.csv --ignore-case -o labels.csv" in notes
    run("import", "votes.csv", "--ignore-case", "-o", "labels.csv")
    assert describe("labels.csv")["class_counts"] == {"fine": 1, "offensive": 3}


@pytest.mark.parametrize(
    ("name", "text", "n_labels"),
    [
        ("pairs.csv", "model_a,model_b,judge,winner\nm,n,a,model_a\nm,n,b,tie\nn,o,a,o\n", 3),
        ("counts.csv", "item,count_yes,count_no\ni,3,1\nj,0,4\n", 8),
        ("numbers.csv", "item,annotator,label\n" + "".join(f"i{m},a{m % 3},{m}.5\n" for m in range(40)), 40),
        ("tags.csv", "item,rater,joy,fear\ni,a,1,0\ni,b,1,1\nj,a,0,1\n", 3),
        ("wide.csv", "id,rater_1,rater_2,rater_3\n1,x,y,x\n2,y,y,\n3,x,x,x\n", 8),
    ],
)
def test_imported_tables_need_no_options(name: str, text: str, n_labels: int) -> None:
    Path(name).write_text(text)
    run("import", name, "-o", "labels.csv")
    before, after = describe(name), describe("labels.csv")
    assert before["n_labels"] == after["n_labels"] == n_labels
    assert all(before[key] == after[key] for key in ("label_type", "class_counts"))


def write_texts(n_differing: int = 0) -> Path:
    """Write labels with the text of each item; some items have it in two versions."""
    rows = [
        f"{m},a{n},{'xy'[(m + n) % 2]},Text of comment {m}{' ' * (n == 0 and m < n_differing)},\n"
        for m in range(30)
        for n in range(3)
    ]
    Path("votes.csv").write_text("item,annotator,Is it toxic?,Comment Text,Notes\n" + "".join(rows))
    return Path("votes.csv")


def test_texts_are_imported() -> None:
    run("import", write_texts(), "--label-column", "Is it toxic?", "-o", "labels.csv")
    assert ds.read_annotations("labels.csv").item_column("text")[0].startswith("Text of comment")
    words = ["--label-column", "Is it toxic?", "-o", "a.csv", "--items-to", "a.csv"]
    assert "--output is the same file" in failure("import", "votes.csv", *words)
    assert not Path("a.csv").exists()


def test_text_in_two_versions_is_noted() -> None:
    with pytest.warns(ds.DissensusWarning, match="'Comment Text' differs within 1 of 30 items"):
        labels = ds.read_annotations(write_texts(1), label="Is it toxic?")
    assert labels.item_column("text")[3].startswith("Text of comment")
    # a column that differs within most items describes labels, not items
    assert ds.read_annotations(write_texts(20), label="Is it toxic?").item_table is None


def test_suggested_import_repeats_the_reading_options() -> None:
    line = failure("fit", write_texts())
    assert "did you mean" not in line  # no column of remarks is suggested
    assert "Is it toxic?" in line
    Path("votes.csv").write_text(Path("votes.csv").read_text().replace(",x,", ",X,", 1))
    result = run("fit", "votes.csv", "--label-column", "Is it toxic?", *MAJORITY)
    expected = "dissensus import votes.csv --label-column 'Is it toxic?' --ignore-case -o labels.csv"
    assert expected in " ".join(result.stderr.split())


def test_run_notices_that_its_store_has_changed() -> None:
    random_votes()
    run("import", "votes.csv", "-o", "votes.store")
    run("fit", "votes.store", *MAJORITY, "-o", "refined")
    run("import", random_votes(seed=5), "-o", "votes.store")
    assert "has changed or is gone" in failure("describe", "refined")
    assert "24 items" in run("export", "refined", "-o", "labels.jsonl").stdout


def test_weights_of_exported_rows_sum_to_one(crowd: Path) -> None:
    run("fit", crowd / "annotations.csv", *FMM, "-o", "refined")
    run("export", "refined/model.safetensors", "-o", "rows.csv", "--format", "weighted")
    weights: dict[str, float] = {}
    for row in read_csv(Path("rows.csv")):
        weights[row["item"]] = weights.get(row["item"], 0.0) + float(row["weight"])
    assert len(weights) == 80
    np.testing.assert_allclose(list(weights.values()), 1.0, rtol=1e-9)
