"""The file of decisions: what is confirmed is in it, and only the last decision on an item counts."""

import errno
import json
import os
from pathlib import Path

import pytest

import dissensus as ds
from dissensus.errors import DataError
from dissensus.tables.decisions import DecisionLog, is_decisions, read_decisions


def labels_of(path: Path) -> dict[str, str | None]:
    journal = DecisionLog(path)
    journal.close()
    return {item: decision.class_name for item, decision in journal.decisions.items()}


def test_decisions_are_kept_and_the_last_one_on_an_item_counts(tmp_path: Path) -> None:
    path = tmp_path / "new" / "decisions.jsonl"
    journal = DecisionLog(path, "votes.csv")
    assert [journal.decide("a", "yes"), journal.decide("b", None), journal.decide("a", "no", "irony")] == [
        1,
        2,
        3,
    ]
    journal.close()
    header, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert header == {"dissensus": "decisions", "version": 1, "source": "votes.csv"}
    assert [line["seq"] for line in lines] == [1, 2, 3]
    assert lines[1]["unsure"] is True
    assert labels_of(path) == {"b": None, "a": "no"}


def test_an_undone_decision_gives_way_to_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    journal = DecisionLog(path)
    journal.decide("a", "yes")
    journal.decide("a", "no")
    seq, undone = journal.undo() or (0, {})
    assert (seq, undone["item"], undone["label"]) == (3, "a", "no")
    assert journal.decisions["a"].label == "yes"
    assert journal.last == {"seq": 3, "item": "a"}
    assert (journal.undo() or (0, {}))[0] == 4
    assert journal.undo() is None
    journal.close()
    assert labels_of(path) == {}


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_line_without_its_end_is_cut_off(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "decisions.jsonl"
    journal = DecisionLog(path)
    journal.decide("a", "yes")
    journal.decide("b", "no")
    journal.close()
    path.write_bytes(path.read_bytes()[:-cut])
    assert labels_of(path) == {"a": "yes"}
    journal = DecisionLog(path)
    assert journal.decide("c", "no") == 2
    journal.close()
    assert labels_of(path) == {"a": "yes", "c": "no"}


def test_a_second_program_is_refused(tmp_path: Path) -> None:
    journal = DecisionLog(tmp_path / "decisions.jsonl")
    with pytest.raises(DataError, match="open in another dissensus"):
        DecisionLog(tmp_path / "decisions.jsonl")
    journal.close()
    DecisionLog(tmp_path / "decisions.jsonl").close()


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "decisions.jsonl"
    journal = DecisionLog(path)
    journal.decide("a", "yes")
    before, write = path.read_bytes(), os.write

    def half(handle: int, data: bytes) -> int:
        write(handle, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space"):
        journal.decide("b", "no")
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert "b" not in journal.decisions
    assert journal.decide("b", "no") == 2
    journal.close()
    assert labels_of(path) == {"a": "yes", "b": "no"}


HEADER = '{"dissensus": "decisions", "version": 1}\n'
LINE = '{"seq": 1, "time": "t", "item": "a", "label": "yes"}\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("item,label\na,yes\n", "line 1: is not a file of decisions"),
        ('{"dissensus": "decisions", "version": 2}\n', "line 1: is not a file of decisions"),
        (HEADER + "nonsense\n", "line 2: is damaged"),
        (HEADER + LINE + LINE, "line 3: is damaged"),  # the number stands twice
        (HEADER + '{"seq": 1, "time": "t", "undo": 1}\n', "line 2: is damaged"),
        (HEADER + '{"seq": 1, "time": "t", "item": "a", "label": 3}\n', "line 2: is damaged"),
        (HEADER + '{"seq": 1, "time": "t", "item": "a", "label": "x", "label": "y"}\n', "line 2: is damaged"),
    ],
)
def test_a_damaged_file_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=says):
        DecisionLog(path)
    assert path.read_text(encoding="utf-8") == text


VOTES = "item,annotator,label\n1,Ana,yes\n1,Ben,no\n2,Ana,no\n2,Ben,no\n3,Ana,yes\n3,Ben,yes\n"


def test_decisions_are_gold(tmp_path: Path) -> None:
    votes, path = tmp_path / "votes.csv", tmp_path / "decisions.jsonl"
    votes.write_text(VOTES, encoding="utf-8")
    journal = DecisionLog(path, "votes.csv")
    journal.decide("1", "yes")
    journal.decide("2", None)
    journal.decide("3", "no")
    journal.undo()
    journal.close()
    assert is_decisions(path)
    assert not is_decisions(votes)
    assert read_decisions(path) == {"item": ["1"], "label": ["yes"]}
    labels = ds.read_annotations(votes, gold=path)
    assert labels.gold is not None
    assert [labels.classes[p] if p >= 0 else None for p in labels.gold] == ["yes", None, None]


def test_sets_are_gold(tmp_path: Path) -> None:
    votes, path = tmp_path / "votes.csv", tmp_path / "decisions.jsonl"
    votes.write_text("item,annotator,label\na,Ana,x\na,Ana,y\na,Ben,y\nb,Ana,x\nb,Ben,x\n", encoding="utf-8")
    journal = DecisionLog(path)
    journal.decide("a", ["x", "y"])
    journal.close()
    labels = ds.read_annotations(votes, gold=path, label_type="multi")
    assert labels.gold is not None
    assert labels.classes[labels.gold[0]] == '["x", "y"]'


def test_no_decision_yet_is_said(tmp_path: Path) -> None:
    votes, path = tmp_path / "votes.csv", tmp_path / "decisions.jsonl"
    votes.write_text(VOTES, encoding="utf-8")
    journal = DecisionLog(path)
    with pytest.raises(DataError, match="has no decisions yet"):
        ds.read_annotations(votes, gold=path)
    journal.close()
    assert not path.exists()  # a file without decisions is not left behind


def test_a_file_that_was_removed_confirms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    journal = DecisionLog(path)
    journal.decide("a", "yes")
    path.unlink()
    with pytest.raises(DataError, match="was removed or replaced"):
        journal.decide("b", "no")
    path.write_text("another file", encoding="utf-8")
    with pytest.raises(DataError, match="was removed or replaced"):
        journal.decide("b", "no")
    assert path.read_text(encoding="utf-8") == "another file"
