"""Logs of evaluation tools compared with human labels in a second file."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError
from dissensus.judges.humans import join_humans
from tests.helpers.cli import failure, run
from tests.helpers.export_samples import SAMPLES, Sample
from tests.helpers.reading import rows_of, write_file

LOGS = [
    "inspect",
    "promptfoo",
    "deepeval",
    "lm_eval",
    "langsmith",
    "langfuse",
    "phoenix",
    "braintrust",
    "mlflow",
]
LOG_SAMPLES = [make for make in SAMPLES if make.__name__.startswith(tuple(LOGS))]


def labels(text: str, **more: Any) -> ds.Annotations:
    """Return labels written as "item annotator class", separated by commas."""
    item, annotator, label = zip(*(row.split() for row in text.split(", ")), strict=True)
    return ds.Annotations.from_arrays(item, annotator, label, **more)


LOG = "1 grader C, 2 grader I, 3 grader C, 4 grader P"
HUMANS = "1 ann C, 1 bob I, 2 ann I, 2 bob I"


def test_log_and_humans_are_joined_by_item() -> None:
    joined, judges, notes = join_humans(labels(LOG), labels(f"{HUMANS}, 9 ann C"))
    assert sorted(rows_of(joined)) == sorted(rows_of(labels(f"{LOG}, {HUMANS}")))
    assert (judges, list(joined.items)) == (["grader"], ["1", "2", "3", "4"])
    counts = "2 of 4 items of the log have human labels"
    assert notes == [f"{counts}; 1 item of the human labels is not in the log"]
    assert join_humans(labels(LOG), labels(HUMANS))[2] == [counts]


def test_report_equals_that_of_one_file() -> None:
    """The report on two files is that on one file with all labels, where the judges are named."""
    rng = np.random.default_rng(0)
    truth = rng.choice(["C", "I", "P"], 200)

    def answers(name: str, accuracy: float, n: int) -> list[str]:
        other = np.where(rng.random(200) < accuracy, truth, rng.choice(["C", "I", "P"], 200))
        return [f"q{i} {name} {label}" for i, label in enumerate(other[:n])]

    log = ", ".join(answers("model_graded_qa", 0.8, 200) + answers("match[v2]", 0.5, 200))
    humans = ", ".join(row for k in range(4) for row in answers(f"human{k}", 0.7, 120))
    one = ds.judge_report(labels(f"{log}, {humans}"), judges=["model_graded_qa", "match[v2]"])
    two = ds.judge_report(labels(log), humans=labels(humans))
    both = two.to_dict()
    assert both.pop("notes") == ["120 of 200 items of the log have human labels"]
    alone = one.to_dict()
    assert alone.pop("notes") == []
    assert (both.pop("found_by"), alone.pop("found_by")) == ("all annotators of the log", "as listed")
    assert json.dumps(both) == json.dumps(alone)
    # a named judge is the only one, and the log's other annotators are neither judges nor humans
    named = ds.judge_report(labels(log), judges="model*", humans=labels(humans))
    assert (named.judges, named.n_humans) == (["model_graded_qa"], 4)
    assert named.notes[1:] == ["other annotators of the log are left out: match[v2]"]
    kappas = [report.rows()[report.judges.index("model_graded_qa")]["kappa"] for report in (named, two)]
    assert kappas[0] == kappas[1]


def test_annotators_of_the_log_who_are_not_judges_leave_nothing_behind() -> None:
    log = labels("1 gpt yes, 2 gpt no, 3 alice maybe, 1 alice yes")
    joined, judges, notes = join_humans(log, labels("1 alice no, 2 bob yes, 3 bob no"), "gpt")
    assert (judges, list(joined.items), list(joined.classes)) == (["gpt"], ["1", "2"], ["no", "yes"])
    assert sorted(rows_of(joined)) == sorted(rows_of(labels("1 gpt yes, 2 gpt no, 1 alice no, 2 bob yes")))
    counts = "2 of 2 items of the log have human labels; 1 item of the human labels is not in the log"
    assert notes == [counts, "other annotators of the log are left out: alice"]


@pytest.mark.parametrize(
    ("of_log", "of_humans"),
    [("A7", "a7"), ("x", " x"), ("7", "007"), ("7", "7.0"), ("img7.png", "img7"), ("é b", "ÉB")],
)
def test_nearly_equal_ids_are_named_but_not_joined(of_log: str, of_humans: str) -> None:
    log = ds.Annotations.from_arrays([of_log, "same"], ["grader"] * 2, ["C", "I"])
    people = ds.Annotations.from_arrays([of_humans, "same"], ["ann"] * 2, ["C", "I"])
    names = f"such as '{of_humans}' and '{of_log}': write them alike"
    hint = f"1 differ only in case, spaces, leading zeros or a file extension, {names}"
    joined, _, (note,) = join_humans(log, people)
    counts = "1 of 2 items of the log have human labels; 1 item of the human labels is not in the log"
    assert (note, joined.n_labels) == (f"{counts}; {hint}", 3)
    both = ds.Annotations.from_arrays([of_humans, of_log], ["ann"] * 2, ["C", "I"])
    assert hint in join_humans(log, both)[2][0]  # another human writes it as the log does
    only = ds.Annotations.from_arrays([of_humans], ["ann"], ["C"])
    with pytest.raises(DataError, match=f"no item of the log .* is among the human labels .*; {hint}"):
        join_humans(log, only)


def test_no_common_item_shows_two_ids_of_each_side() -> None:
    with pytest.raises(
        DataError, match=r"\(such as '1' and '2'\) .* \(such as 'p' and 'q'\); check which col"
    ):
        join_humans(labels(LOG), labels("p ann C, q ann I, r ann C"))


def test_classes_of_both_files() -> None:
    joined, _, notes = join_humans(labels("1 g Yes, 2 g no"), labels("1 ann yes, 2 ann no"))
    assert list(joined.classes) == ["Yes", "no", "yes"]
    assert notes[1:] == ["'Yes' and 'yes' count as different classes; write them alike if they are not"]
    with pytest.raises(
        DataError, match=r"\(nominal: C, I, P\) .* \(nominal: no, yes\) do not match; write the"
    ):
        join_humans(labels(LOG), labels("1 ann yes, 2 ann no"))
    with pytest.raises(DataError, match=r"write the classes alike in one of the files$"):
        join_humans(labels("1 g 0, 2 g 1"), labels("1 ann yes, 2 ann no"))
    scale = labels("1 ann low, 2 ann high", classes=["low", "high"], label_type="ordinal")
    with pytest.raises(
        DataError, match=r"\(nominal: high, low\) .* \(ordinal: low, high\) .* the same label type$"
    ):
        join_humans(labels("1 g low, 2 g high"), scale)
    joined = join_humans(labels("1 g high", classes=["low", "high"], label_type="ordinal"), scale)[0]
    assert (list(joined.classes), joined.label_type) == (["low", "high"], "ordinal")


def test_numbers_are_the_same_class_however_written() -> None:
    log = labels("1 g 1.0, 2 g 0.0, 3 g 3.0")
    joined = join_humans(log, labels("1 ann 1, 2 ann 2, 3 ann 3", label_type="ordinal"))[0]
    assert (list(joined.classes), joined.label_type) == (["0.0", "1.0", "2", "3.0"], "ordinal")
    scores = join_humans(labels("1 g 0.25, 2 g 0.5"), labels("1 ann 1, 2 ann 0", label_type="numeric"))[0]
    assert (list(scores.classes), scores.label_type) == (["0", "0.25", "0.5", "1"], "numeric")
    frame = ds.Annotations.from_arrays([1, 2], ["g", "g"], [4, 5])  # ids and numbers of a data frame
    joined = join_humans(frame, labels("1 ann 4, 2 ann 4.0"))[0]
    assert (joined.items.tolist(), joined.classes.tolist()) == ([1, 2], [4, 5])
    assert joined.counts.tolist() == [[2, 0], [1, 1]]


def test_humans_have_names_of_their_own() -> None:
    with pytest.raises(DataError, match=r"are also in the log \(grader\); give each person"):
        join_humans(labels(LOG), labels("1 grader C, 2 ann I"))
    with pytest.raises(DataError, match="have no names; give each person"):
        join_humans(labels(LOG), ds.Annotations.from_counts([[1, 2]], items=["1"], classes=["C", "I"]))


@pytest.mark.filterwarnings("ignore::dissensus.errors.DissensusWarning")
@pytest.mark.parametrize("make", LOG_SAMPLES, ids=lambda make: make.__name__)
def test_every_log_is_compared_without_help(make: Callable[[Path], Sample], tmp_path: Path) -> None:
    """A human gives the first item the log's own label, and another item a label."""
    sample = make(tmp_path)
    item, _, label = sample.labels[0]
    rows = f"item,annotator,label\n{item},zoe,{label}\nother,zoe,{label}\n"
    people = write_file(tmp_path / "people.csv", rows)
    log, n_items = sample.path, len(sample.texts) or len({item for item, _, _ in sample.labels})
    if sample.asked:  # other commands ask for the question, and name the command that writes its labels
        assert f"dissensus import {log} --question" in failure("judges", log, "--humans", people)
        options = [f"--item-column={column}" for column in sample.columns.values()]
        run("import", log, "--question", sample.question, *options, "-o", log := tmp_path / "labels.csv")
        n_items = len({item for item, _, _ in sample.labels})
    report = json.loads(run("judges", log, "--humans", people, "--json").stdout)
    assert {row["judge"] for row in report["judges"]} == {judge for _, judge, _ in sample.labels}
    note = f"1 of {n_items} items of the log have human labels; 1 item of the human labels is not in the log"
    assert (report["n_humans"], report["notes"][0]) == (1, note)


def test_every_tool_has_a_log() -> None:
    assert {make.__name__.partition("_")[0] for make in LOG_SAMPLES} == {
        name.partition("_")[0] for name in LOGS
    }


def test_humans_on_the_command_line(tmp_path: Path) -> None:
    log = write_file(tmp_path / "log.csv", "item,annotator,label\n1,g,C\n2,g,I\n3,g,C\n")
    people = write_file(tmp_path / "people.csv", "task,worker,verdict\n1,ann,C\n1,bob,C\n2,ann,C\n2,bob,I\n")
    result = run("judges", log, "--humans", people)
    assert result.stdout.startswith("1 judge (all annotators of the log), 2 humans\n")
    assert "2 of 3 items of the log have human labels" in result.stderr
    people.write_text("task,worker,verdict\np,ann,C\nq,ann,C\n")
    message = failure("judges", log, "--humans", people)
    assert message.endswith("among the human labels (such as 'p' and 'q'); check which columns have the ids")
    assert "no such file" in failure("judges", log, "--humans", tmp_path / "absent.csv")
    # label types and classes hold for both files, columns for the log only
    people.write_text("task,worker,verdict\n1,ann,I\n1,bob,C\n2,ann,P\n2,bob,I\n")
    options = ["--item-column", "item", "--classes", "I<P<C", "--json"]
    assert json.loads(run("judges", log, "--humans", people, *options).stdout)["label_type"] == "ordinal"


def test_ten_thousand_judgements_take_about_a_second(tmp_path: Path) -> None:
    sample = {"epoch": 1, "input": "question " * 20, "target": "x", "output": {"completion": "answer " * 50}}
    scores = {name: {"value": "C", "explanation": "because " * 30} for name in ("a", "b")}
    samples = [sample | {"id": n, "scores": scores, "messages": [{"role": "user"}] * 10} for n in range(5000)]
    log = {"version": 2, "status": "success", "eval": {"task": "t"}, "plan": {}, "samples": samples}
    file = write_file(tmp_path / "log.json", json.dumps(log))
    start = time.process_time()
    read = ds.read_annotations(file)
    assert (read.n_labels, read.n_items) == (10_000, 5000)
    assert time.process_time() - start < 3  # about 0.5 seconds on an idle machine
