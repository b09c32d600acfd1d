"""The session: which item comes next, what is said of it, and what a decision changes."""

import csv
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.decide.exports import label_table
from dissensus.decide.session import DecisionSession
from dissensus.errors import DataError
from tests.decide.conftest import crowd, decided, wait


def test_nearly_tied_items_come_first_and_the_least_certain_of_them(session: DecisionSession) -> None:
    items = session.opened()
    adjudicate = items.findings.adjudicate[items.order]
    assert adjudicate.any()
    assert not adjudicate.all()
    assert (
        np.diff(adjudicate.astype(int)) <= 0
    ).all()  # all that the report says to adjudicate, then the rest
    certainty = items.truth.label_distributions_.max(axis=1)[items.order]
    for part in (certainty[adjudicate], certainty[~adjudicate]):
        assert (np.diff(part) >= 0).all()


def test_an_item_shows_its_labels_and_who_gave_them(session: DecisionSession) -> None:
    item = session.opened().item("c7")
    assert item["text"] == "comment 7"
    labels = {(answer["label"], person["name"]) for answer in item["answers"] for person in answer["who"]}
    annotations = session.labels
    rows = annotations.item == annotations.items.tolist().index("c7")
    names = annotations.annotators[annotations.annotator[rows]]
    assert labels == set(zip(annotations.classes[annotations.label[rows]], names, strict=True))
    assert sum(answer["n"] for answer in item["answers"]) == 6
    assert sum(answer["share"] for answer in item["answers"]) == pytest.approx(1)
    assert sum(answer["right"] for answer in item["answers"]) == pytest.approx(1)
    assert all(answer["low"] <= answer["share"] <= answer["high"] for answer in item["answers"])


def test_a_decision_changes_the_item_its_annotators_and_the_order(session: DecisionSession) -> None:
    item = session.next([])["item"]
    before = session.opened()
    decided(session, item, "yes", "irony")
    after = session.opened()
    m = after.code(item)
    assert after.truth.label_distributions_[m].tolist() == [0.0, 1.0]
    assert item not in [after.ids[i] for i in after.order]
    assert after.item(item)["decision"] == {"label": "yes", "unsure": False, "note": "irony", "seq": 1}
    skills = [
        {p["name"]: p["skill"] for answer in items.item(item)["answers"] for p in answer["who"]}
        for items in (before, after)
    ]
    said_yes = {p["name"] for p in after.item(item)["answers"][1]["who"]}
    changes = {name: skills[1][name] - skills[0][name] for name in skills[0]}
    means = [np.mean([changes[n] for n in changes if (n in said_yes) is side]) for side in (True, False)]
    assert means[0] > means[1]  # those who were right have gained


def test_a_decision_against_the_majority_holds(session: DecisionSession) -> None:
    decided(session, "c7", "no")
    items = session.opened()
    assert items.truth.label_distributions_[items.code("c7")].tolist() == [1.0, 0.0]


def test_undo_gives_the_item_back(session: DecisionSession) -> None:
    item = session.next([])["item"]
    session.decide(item, "yes")
    assert session.next([])["item"] != item
    assert session.undo() == {"seq": 2, "item": item, "label": "yes", "note": ""}
    items = session.opened()  # a fit with the decision may have changed their order meanwhile
    assert item in [items.ids[m] for m in items.order]
    with pytest.raises(DataError, match="no decision to undo"):
        session.undo()


def test_unsure_is_no_gold_but_the_item_is_done(session: DecisionSession) -> None:
    item = session.next([])["item"]
    decided(session, item, None)
    assert session.next([])["item"] != item
    state = session.state()
    assert (state["decided"], state["unsure"]) == (0, 1)
    items = session.opened()
    assert items.truth.label_distributions_[items.code(item)].max() < 1


def test_skipped_items_to_adjudicate_come_again_before_the_others(session: DecisionSession) -> None:
    first = [session.next([])]
    skipped = [first[0]["item"]]
    while not (item := session.next(skipped))["beyond"]:
        first.append(item)
        skipped.append(item["item"])
    n = first[0]["of"]
    assert 1 < n < 30
    assert [item["item"] for item in first[n:]] == [item["item"] for item in first[:n]]
    assert len(first) == 2 * n
    for item in [session.opened().ids[m] for m in session.opened().order]:
        if session.next(skipped)["item"] == item:
            skipped.append(item)
    assert session.next(skipped)["item"] == first[0]["item"]  # all were skipped: the one skipped longest ago


def test_skipped_items_come_last(session: DecisionSession) -> None:
    first, n = session.next([])["item"], len(session.opened().order)
    assert session.next([first])["item"] != first
    assert not session.state()["report_is_old"]
    everything = [session.opened().ids[m] for m in session.opened().order]
    assert session.next(everything)["item"] == first
    assert n == 30
    for item in everything:
        session.decide(item, "no")
    assert session.next(everything) == {"item": None}
    assert session.state()["report_is_old"]


def test_the_position_counts_what_is_done(session: DecisionSession) -> None:
    to_decide = session.state()["to_decide"]
    for number in range(1, to_decide + 1):
        item = session.next([])
        assert (item["position"], item["of"], item["beyond"]) == (number, to_decide, False)
        session.decide(item["item"], "no")
    assert session.next([])["beyond"]


@pytest.mark.parametrize(
    ("item", "label", "note", "says"),
    [
        ("c99", "yes", "", "'c99' is not an item"),
        (7, "yes", "", "7 is not an item"),
        ("c1", "perhaps", "", "'perhaps' is not an answer; the answers are no, yes"),
        ("c1", ["yes"], "", "is not an answer"),
        ("c1", "yes", "x" * 20_000, "at most 10,000 characters"),
        ("c1", "yes", 5, "a note is a text"),
    ],
)
def test_an_invalid_decision_is_refused_and_not_written(
    session: DecisionSession, item: object, label: object, note: object, says: str
) -> None:
    with pytest.raises(DataError, match=says):
        session.decide(item, label, note)
    assert session.decisions == {}


def test_a_half_character_in_a_note_is_replaced(session: DecisionSession) -> None:
    session.decide("c1", "yes", "a\ud800b")
    assert session.decisions["c1"].note == "a?b"


def test_a_second_start_continues(session: DecisionSession, tmp_path: Path) -> None:
    session.decide("c3", "yes")
    session.journal.close()
    again = DecisionSession(tmp_path / "decisions")
    again.show(session.labels, session.opened().findings.model)
    wait(lambda: again.stage == "ready")
    assert again.state()["decided"] == 1
    items = again.opened()
    assert items.truth.label_distributions_[items.code("c3")].tolist() == [0.0, 1.0]


def test_decisions_on_other_labels_are_refused(session: DecisionSession, tmp_path: Path) -> None:
    session.decide("c3", "yes")
    session.close()
    labels = session.labels.take_items(np.array([m for m in range(30) if session.labels.items[m] != "c3"]))
    with pytest.raises(DataError, match="has decisions on other items, such as 'c3'"):
        DecisionSession(tmp_path / "decisions").show(labels, ds.EmpiricalDistribution().fit(labels))


def test_decisions_are_beside_the_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        rows = [f"i{m},a{n},{'yn'[(m * n) % 2]}" for m in range(20) for n in range(4)]
        (tmp_path / folder / "votes.csv").write_text("item,annotator,label\n" + "\n".join(rows), "utf-8")
        session = DecisionSession()
        session.open(tmp_path / folder / "votes.csv")
        wait(lambda session=session: session.items is not None)
        assert session.state()["decided"] == 0
        session.decide("i1", "y")
        assert session.journal.path == tmp_path / folder / "votes-decisions" / "decisions.jsonl"
        wait(lambda session=session: session.stage == "ready")
        session.close()


def test_a_refit_keeps_decisions_made_meanwhile(
    session: DecisionSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose, started, go_on = session._choose_truth, Event(), Event()

    def slow() -> Any:
        truth = choose()
        started.set()
        go_on.wait(30)
        return truth

    monkeypatch.setattr(session, "_choose_truth", slow)
    session.refit()
    assert started.wait(30)
    session.decide("c20", "yes")  # the votes say no
    go_on.set()
    wait(lambda: session.stage == "ready")
    items = session.opened
    wait(lambda: items().truth.label_distributions_[items().code("c20")].tolist() == [0.0, 1.0])


def test_a_refit_writes_a_report_with_the_decisions(session: DecisionSession) -> None:
    assert b'id="gold"' not in session.report
    for item in ("c10", "c11", "c12"):
        session.decide(item, "no")
    version = session.report_version
    assert session.refit() == {"message": "fitting again, with the decisions"}
    with pytest.raises(DataError, match="a fit is running"):
        session.refit()
    wait(lambda: session.stage == "ready")
    assert not session.error
    assert session.report_version == version + 1
    assert b'"gold":{' in session.report


def test_gold_of_the_labels_is_not_asked_again(tmp_path: Path) -> None:
    labels = crowd().with_tables(gold={"item": ["c0"], "label": ["yes"]})
    session = DecisionSession(tmp_path)
    session.show(labels, ds.EmpiricalDistribution().fit(labels))
    wait(lambda: session.stage == "ready")
    items = session.opened()
    assert "c0" not in [items.ids[m] for m in items.order]
    assert items.truth.label_distributions_[items.code("c0")].tolist() == [0.0, 1.0]


def opened(path: Path, folder: Path, **reading: object) -> DecisionSession:
    session = DecisionSession(folder, lambda path: ds.read_annotations(path, **reading))
    session.open(path)
    wait(lambda: session.stage == "ready")
    assert not session.error
    return session


@pytest.mark.filterwarnings("ignore::dissensus.DissensusWarning")
def test_sets(tmp_path: Path) -> None:
    path = tmp_path / "sets.csv"
    answers = ["x", "y", "x|y", "z"]
    rows = [
        f"i{m},a{n},{part}" for m in range(12) for n in range(4) for part in answers[(m + n) % 4].split("|")
    ]
    path.write_text("item,annotator,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    session = opened(path, tmp_path / "d", label_type="multi")
    assert session.state()["classes"] == ["x", "y", "z"]
    item = session.next([])
    assert [answer["label"] for answer in item["answers"]] == ["x", "y", "z"]
    assert all(0 <= answer["right"] <= 1 + 1e-9 for answer in item["answers"])
    assert "‘x, y’" in session.opened().item("i2")["why"]
    decided(session, item["item"], ["z", "x"])  # a set that no annotator gave
    assert session.decisions[item["item"]].label == ["x", "z"]
    right = {answer["label"]: answer["right"] for answer in session.opened().item(item["item"])["answers"]}
    assert right["x"] == pytest.approx(1)
    assert right["y"] == pytest.approx(0)
    with pytest.raises(DataError, match="is not an answer"):
        session.decide(item["item"], "x")
    before = session.opened().item("i7")["answers"]
    decided(session, "i9", [])  # sorts first among the sets
    after = session.opened().item("i7")["answers"]
    for old, new in zip(before, after, strict=True):
        assert new["right"] == pytest.approx(old["right"], abs=0.2)


@pytest.mark.filterwarnings("ignore::dissensus.DissensusWarning")
def test_pairs(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    rows = [f"p{m},p{m + 1},a{n},{('left', 'right')[(m * n) % 2]}" for m in range(12) for n in range(4)]
    path.write_text("left,right,annotator,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    session = opened(path, tmp_path / "d", label_type="pairwise")
    item = session.next([])
    assert item["sides"] == item["item"].split(" | ")
    decided(session, item["item"], "left")
    # the other items have the class of the model of the options, and no second answer beside it
    assert {answer["right"] for answer in item["answers"]} == {None}
    rows = list(csv.DictReader(label_table(session).splitlines()))
    shares = session.opened().findings.model.label_distributions_
    expected = [
        "left" if row["item"] == item["item"] else session.state()["classes"][shares[m].argmax()]
        for m, row in enumerate(rows)
    ]
    assert [row["label"] for row in rows] == expected


def test_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "numbers.csv"
    path.write_text("item,annotator,label\n1,a,2.5\n1,b,3.5\n2,a,1.5\n2,b,1\n", encoding="utf-8")
    with pytest.raises(DataError, match="numbers are estimated, not decided"):
        DecisionSession(tmp_path, lambda path: ds.read_annotations(path, label_type="numeric")).open(path)
    assert not (tmp_path / "decisions.jsonl").exists()


def test_images_lie_in_the_folder_of_the_labels(tmp_path: Path) -> None:
    folder = tmp_path / "pilot"
    folder.mkdir()
    for path in (folder / "in.png", tmp_path / "out.png"):
        path.write_bytes(b"\x89PNG")
    (folder / "link.png").symlink_to(tmp_path / "out.png")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    names = [
        "in.png",
        "../out.png",
        str(tmp_path / "out.png"),
        "link.png",
        "none.png",
        "in.svg",
        "a\0.png",
        "loop.png",
        "y" * 240 + " x" * 10 + ".png",
        "x" * 5000 + ".png",
    ]
    ids = [f"c{m}" for m in range(30)]
    labels = crowd().with_tables(items={"item": ids, "picture": [names[m % len(names)] for m in range(30)]})
    session = DecisionSession(tmp_path / "d")
    session.show(labels, ds.EmpiricalDistribution().fit(labels))
    wait(lambda: session.stage == "ready")
    session.items = items = type(session.opened())(
        session.opened().findings, session.opened().truth, {}, folder
    )
    found = {names[m]: len(items.images(items.code(ids[m]))) for m in range(len(names))}
    assert found == dict.fromkeys(names, 0) | {"in.png": 1}


def test_decisions_for_other_classes_are_ignored(session: DecisionSession, tmp_path: Path) -> None:
    session.journal.decide("c3", "perhaps")
    session.journal.close()
    again = DecisionSession(tmp_path / "decisions")
    again.show(session.labels, session.opened().findings.model)
    wait(lambda: again.stage == "ready")
    assert not again.error
    assert again.opened().truth.label_distributions_.shape == (30, 2)
