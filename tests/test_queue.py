"""The next batch by hand, as tools take it, and the whole round: queue, answers, fit again, what changed."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from cli_help import run
from dissensus.annotators.findings import findings
from dissensus.errors import DissensusError
from dissensus.report.annotators import drifts, paces
from dissensus.report.summary_cards import changes
from dissensus.tables.layouts import read_times, seconds
from dissensus.tables.write import write_tasks
from dissensus.workflow.refine import Refinement
from dissensus.workflow.runs import write_run

# i1: unanimous, i2: 2–2, i3: one label, i4: 3–2
GIVEN = {"i1": "xxxxx", "i2": "xxyy", "i3": "y", "i4": "xxxyy"}


def votes() -> ds.Annotations:
    rows = [(item, f"a{n}", label) for item, labels in GIVEN.items() for n, label in enumerate(labels)]
    return ds.Annotations.from_arrays(*zip(*rows, strict=True))


def test_draws_are_adjudicated_and_few_labels_are_asked_for() -> None:
    labels = votes()
    found = ds.label_queue(labels, ds.MajorityVote().fit(labels))
    rows = dict(zip(found.item, zip(found.action, found.n_more, found.reason, strict=True), strict=True))
    assert rows == {
        "i2": ("adjudicate", 1, "nearly a draw: 2 ‘x’ and 2 ‘y’ of 4 labels"),
        "i4": ("adjudicate", 1, "nearly a draw: 3 ‘x’ and 2 ‘y’ of 5 labels"),
        "i3": ("label", 1, "1 ‘y’ of 1 label"),
    }
    assert found.labelled_by[list(found.item).index("i3")] == "a0"


def test_items_without_a_label_are_asked_for() -> None:
    labels = votes().with_tables(items={"item": ["i1", "i2", "i3", "i4", "i5"]})
    found = ds.label_queue(labels, ds.MajorityVote().fit(labels))
    assert found.reason[list(found.item).index("i5")] == "no label yet"
    assert found.labelled_by[list(found.item).index("i5")] == ""


@pytest.mark.parametrize(("budget", "each"), [(1, None), (2, None), (3, 2), (9, 3)])
def test_a_budget_is_kept(budget: int, each: int | None) -> None:
    labels = votes()
    found = ds.label_queue(labels, ds.FMM(2).fit(labels), budget=budget, each=each)
    assert found.n_more.sum() <= budget
    assert (found.n_more > 0).all()


@pytest.mark.slow
def test_a_sampled_model_spends_the_whole_budget_where_it_gains() -> None:
    crowd = ds.simulate(60, 12, 3, labels_per_item=4, seed=2).annotations
    model = ds.HPGM(n_chains=2, n_sweeps=40, seed=0).fit(crowd)
    every = ds.label_queue(crowd, model)
    n_draws = int((every.action == "adjudicate").sum())
    found = ds.label_queue(crowd, model, budget=n_draws + 25)
    assert found.n_more.sum() == n_draws + 25
    asked = found.item[found.action == "label"]
    assert not set(asked) & set(every.item[every.action == "adjudicate"])


def test_nonsense_is_refused() -> None:
    labels = votes()
    with pytest.raises(DissensusError, match="budget"):
        ds.label_queue(labels, ds.MajorityVote().fit(labels), budget=0)
    with pytest.raises(DissensusError, match="tool"):
        write_tasks([], "tasks.json", "excel", ["x"])


def test_numbers_have_a_queue_and_a_page_without_times(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    item, annotator = np.repeat(np.arange(20), 4), np.tile(np.arange(4), 20)
    ratings = ds.Annotations.from_arrays(
        item, annotator, (item % 5 + rng.normal(size=80)).round(2), label_type="numeric"
    )
    model = ds.NumericRatings().fit(ratings)
    queue = ds.label_queue(ratings, model, budget=5)
    assert len(queue) == 5
    assert "the interval of the mean is" in queue.reason[0]
    with pytest.raises(DissensusError, match="no part for since="):
        ds.write_report(ratings, model, tmp_path / "p.html", since=tmp_path)


# ---- tools --------------------------------------------------------------------------------------------


def rows() -> list[dict[str, Any]]:
    row = {"item": "i2", "text": "Two minds", "action": "label", "n_more": 2, "reason": "2 ‘x’", "label": "x"}
    return [row | {"share": 0.5}]


def test_every_tool_gets_the_item_the_text_and_the_label_so_far(tmp_path: Path) -> None:
    (task,) = json.loads(write_tasks(rows(), tmp_path / "t.json", "label-studio", ["x", "y"]).read_text())
    assert task["data"]["item"] == "i2"
    assert task["predictions"][0]["result"][0]["value"] == {"choices": ["x"]}
    assert task["predictions"][0]["score"] == 0.5
    (record,) = json.loads(
        write_tasks(rows(), tmp_path / "a.json", "argilla", ["x", "y"], question="mood").read_text()
    )
    assert (record["id"], record["fields"]) == ("i2", {"text": "Two minds"})
    assert record["suggestions"]["mood"]["value"] == "x"
    line = json.loads(write_tasks(rows(), tmp_path / "p.jsonl", "prodigy", ["x", "y"]).read_text())
    assert [option["id"] for option in line["options"]] == ["x", "y"]
    assert line["item"] == "i2"


def test_a_tool_without_texts_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(DissensusError, match="text"):
        write_tasks([rows()[0] | {"text": None}], tmp_path / "t.json", "label-studio", ["x"])
    assert not list(tmp_path.iterdir())


# ---- the whole round ----------------------------------------------------------------------------------


def write_csv(path: Path, head: str, lines: list[tuple[Any, ...]]) -> Path:
    path.write_text("\n".join([head, *(",".join(map(str, line)) for line in lines)]) + "\n")
    return path


@pytest.mark.slow
def test_from_the_queue_through_label_studio_and_back(tmp_path: Path) -> None:
    crowd = ds.simulate(80, 15, 3, labels_per_item=4, seed=5)
    labels = crowd.annotations
    ids = [f"t{m}" for m in range(80)]
    lines = [(ids[m], f"a{n}", f"c{p}") for m, n, p in zip(*labels.columns, strict=True)]
    file = write_csv(tmp_path / "votes.csv", "item,annotator,label", lines)
    texts = write_csv(tmp_path / "texts.csv", "item,text", [(name, f"Text {name}") for name in ids])
    first, later = tmp_path / "first", tmp_path / "later"
    sizes = ["-s", "n_chains=2", "-s", "n_sweeps=40"]
    run("fit", file, "--model", "hpgm", *sizes, "-o", first, "--no-report")
    tasks = tmp_path / "tasks.json"
    run("plan", first, "--items", texts, "--each", 2, "--budget", 40, "--for", "label-studio", "-o", tasks)
    given = json.loads(tasks.read_text())
    assert given
    assert all(task["data"]["text"] == f"Text {task['data']['item']}" for task in given)
    # The answers as Label Studio exports them: ids of its own, ours among the data.
    rng = np.random.default_rng(0)

    def answer(k: int) -> dict[str, Any]:
        value = {"choices": [f"c{rng.integers(3)}"]}
        result = {"from_name": "label", "to_name": "text", "type": "choices", "value": value}
        return {"id": k, "completed_by": {"email": f"new{k}@example.org"}, "result": [result]}

    export = [
        {
            "id": 900 + t,
            "data": task["data"],
            "annotations": [answer(k) for k in range(task["data"]["n_more"])],
        }
        for t, task in enumerate(given)
    ]
    answers = tmp_path / "export.json"
    answers.write_text(json.dumps(export))
    n_new = sum(len(task["annotations"]) for task in export)
    people = {one["completed_by"]["email"] for task in export for one in task["annotations"]}
    run("update", first, answers, "--item-column", "item", "-o", later, "--no-report")
    run("report", later, "--items", texts, "--since", first, "-o", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    found = json.loads(re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)[0])
    described = json.loads(run("describe", later, "--json").stdout)
    assert described["n_labels"] == labels.n_labels + n_new
    since = found["since"]
    assert since["name"] == "first"
    # Everything that it says, counted from the two runs' files.
    before, after = (
        {row["item"]: row for row in csv.DictReader((place / "labels.csv").read_text().splitlines())}
        for place in (first, later)
    )
    flipped = {item for item in before if before[item]["label"] != after[item]["label"]}
    assert {row[0] for row in since["flipped"]} == flipped
    assert since["says"].startswith(f"{n_new} labels more, 0 new items and {len(people)} new annotators.")
    assert f"{len(flipped)} item" in since["says"]
    alphas = [json.loads((place / "summary.json").read_text())["data"]["alpha"] for place in (first, later)]
    assert f"α was {alphas[0]:.2f} and is {alphas[1]:.2f}" in since["says"]
    assert found["items"]["text"][0].startswith("Text t")


def test_changed_verdicts_are_named_as_the_page_names_people(tmp_path: Path) -> None:
    labels = ds.simulate(30, 6, 2, labels_per_item=6, seed=1).annotations
    model = ds.HPGM(n_chains=2, n_sweeps=20, seed=0).fit(labels)
    found, earlier = findings(model, labels), tmp_path / "earlier"
    write_run(Refinement(labels, model, [], "", 0), earlier)
    assert found.judged is not None
    before = str(found.judged.verdict[0])
    found.judged.verdict[0] = "spam" if before != "spam" else "typical"
    hidden = [f"annotator {n}" for n in range(6)]
    told = changes(earlier, found, ds.describe(labels), hidden)
    assert told["verdicts"] == [["annotator 0", before, found.judged.verdict[0]]]
    assert told["says"].startswith("0 labels more, 0 new items and 0 new annotators.")
    assert told["flipped"] == []


def test_since_something_that_is_no_run_is_refused(tmp_path: Path) -> None:
    labels = votes()
    with pytest.raises(DissensusError, match="is not the directory of a finished run"):
        ds.write_report(labels, ds.MajorityVote().fit(labels), tmp_path / "p.html", since=tmp_path)
    assert not (tmp_path / "p.html").exists()


# ---- times --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1700000000", 1.7e9),
        (1700000000000, 1.7e9),
        ("2023-11-14T22:13:20", 1.7e9),
        ("2023-11-14 23:13:20+01:00", 1.7e9),
    ],
)
def test_times_are_read_in_every_usual_form(value: Any, expected: float) -> None:
    assert seconds(value) == expected


def test_times_find_their_labels(tmp_path: Path) -> None:
    lines = [("q2", "b", "y", 30), ("q1", "a", "x", 10), ("q1", "b", "x", ""), ("q1", "a", "x", 20)]
    file = write_csv(tmp_path / "votes.csv", "item,annotator,label,at", lines)
    labels = ds.read_annotations(file)
    when = read_times(file, "at", labels)
    names = [
        (labels.items[m], labels.annotators[n]) for m, n in zip(labels.item, labels.annotator, strict=True)
    ]
    assert names == [("q1", "a"), ("q1", "a"), ("q1", "b"), ("q2", "b")]
    np.testing.assert_array_equal(when, [10, 20, np.nan, 30])
    with pytest.raises(DissensusError, match="no column 'when'"):
        read_times(file, "when", labels)
    bad = write_csv(
        tmp_path / "bad.csv", "item,annotator,label,at", [("q", "a", "x", "noon"), ("q", "b", "x", 1)]
    )
    with pytest.raises(DissensusError, match="'noon' is no time"):
        read_times(bad, "at", ds.read_annotations(bad))


def test_pace_and_drift_by_hand() -> None:
    # a: ten seconds a label with one pause; agreement 0 in the first ten labels, 1 in the last ten
    item = [f"i{m:02d}" for m in range(20)]
    labels = ds.Annotations.from_arrays(item, ["a"] * 20, ["x"] * 20)
    when = 10.0 * np.arange(20)
    when[10:] += 10_000
    np.testing.assert_allclose(paces(labels, when), [10.0])
    change, error = drifts(labels, when, np.repeat([0.0, 1.0], 10))
    np.testing.assert_allclose([change[0], error[0]], [1.0, 0.0])
    half = np.tile([0.0, 1.0], 10)
    change, error = drifts(labels, when, half)
    # variance 5/18 each, of ten
    np.testing.assert_allclose([change[0], error[0]], [0.0, np.sqrt(2 * (5 / 18) / 10)])


def test_a_page_says_how_quick_everybody_is(tmp_path: Path) -> None:
    crowd = ds.simulate(40, 6, 2, labels_per_item=6, seed=1).annotations
    when = np.arange(crowd.n_labels) * 3.0 + 1.7e9
    path = tmp_path / "page.html"
    ds.write_report(crowd, ds.FMM(2).fit(crowd), path, held_out=[], times=when)
    found = json.loads(re.findall(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)[0])
    assert len(found["annotators"]["pace"]) == 6
    assert sum(part["n"] for part in found["time"]["bins"]) == crowd.n_labels
    with pytest.raises(DissensusError, match="times were given"):
        ds.write_report(crowd, ds.FMM(2).fit(crowd), tmp_path / "no.html", held_out=[], times=[1.0])
