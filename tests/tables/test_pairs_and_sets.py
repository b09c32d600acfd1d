"""Labels that are sets: lists, separators, and a column per tag."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dissensus as ds
from dissensus.errors import DataError
from tests.helpers.reading import as_csv, rows_of, with_warnings


def test_lists_of_labels_are_sets() -> None:
    frame = pd.DataFrame({"item": ["a", "a"], "annotator": ["x", "y"], "labels": [["p", "q"], ["q"]]})
    labels = ds.read_annotations(frame)
    assert (labels.label_type, labels.classes.tolist()) == ("multi", ['["p", "q"]', '["q"]'])


def test_separator_is_suggested() -> None:
    cells = ["joy; fear", "joy", "fear; anger", "anger", "joy; anger", "fear"]
    frame = pd.DataFrame({"item": [1, 1, 2, 2, 3, 3], "annotator": ["a", "b"] * 3, "label": cells})
    _, notes = with_warnings(lambda: ds.read_annotations(frame), __file__)
    assert any("may be sets; if so, use separator=';'" in note for note in notes)
    _, notes = with_warnings(
        lambda: ds.read_annotations(frame.assign(label=["yes, surely", "no"] * 3)), __file__
    )
    assert not any("separator" in note for note in notes)


@pytest.mark.parametrize("mark", ["|", ";", ","])
def test_declared_sets_are_split_if_one_separator_joins_them(mark: str, tmp_path: Path) -> None:
    cells = [
        cell.replace("|", mark) for cell in ["joy | fear", "joy", "fear|anger", "", "anger|joy|", "fear"]
    ]
    frame = pd.DataFrame({"item": [1, 1, 2, 2, 3, 3], "annotator": ["a", "b"] * 3, "label": cells})
    frame.to_csv(tmp_path / "votes.csv", index=False)
    for source in (frame, tmp_path / "votes.csv"):
        labels = ds.read_annotations(source, label_type="multi")
        assert f"answers are read as sets of classes, split at {mark!r}" in labels.notes
        assert rows_of(labels) == rows_of(ds.read_annotations(source, separator=mark))
        assert labels.n_labels == 5
    # the repeated labels of an annotator form one set, too
    twice = pd.concat([frame, pd.DataFrame({"item": [1], "annotator": ["b"], "label": ["anger"]})])
    labels = ds.read_annotations(twice, label_type="multi")
    assert '["anger", "joy"]' in labels.classes.tolist()


def test_declared_sets_are_not_split_without_evidence() -> None:
    frame = pd.DataFrame(
        {"item": [1, 1, 2, 2], "annotator": ["a", "b"] * 2, "label": ["p|q", "q", "r|s", "p"]}
    )
    labels = ds.read_annotations(frame, label_type="multi")
    assert '["p|q"]' in labels.classes.tolist()
    assert not any("split" in note for note in labels.notes)
    # two separators: which of them separates classes is for the user to say
    both = frame.assign(label=["p|q", "q|p", "p;q", "q;p"])
    labels = ds.read_annotations(both, label_type="multi")
    assert '["p|q"]' in labels.classes.tolist()
    assert [note[-13:] for note in labels.notes if "may be sets" in note] == [
        "separator='|'",
        "separator=';'",
    ]
    # another separator is the way out if the split is wrong
    words = frame.assign(label=["p|q", "q|p", "p", "q"])
    assert '["p|q"]' in ds.read_annotations(words, label_type="multi", separator=";").classes.tolist()


@pytest.mark.parametrize(
    "cells", [["['joy', 'fear']", "['joy']", "[]"], ['["joy", "fear"]', '["joy"]', "[]"]]
)
def test_cells_written_as_lists_are_sets(cells: list[str], tmp_path: Path) -> None:
    frame = pd.DataFrame({"item": [1, 1, 2], "annotator": ["a", "b", "a"], "label": cells})
    frame.to_csv(tmp_path / "votes.csv", index=False)
    for source in (frame, tmp_path / "votes.csv"):
        labels, notes = with_warnings(lambda source=source: ds.read_annotations(source), __file__)  # type: ignore[misc]
        assert (labels.label_type, labels.classes.tolist()) == ("multi", ['["fear", "joy"]', '["joy"]', "[]"])
        assert "answers are read as sets of classes" in notes
    mixed = ds.read_annotations(frame.assign(label=["[x]", "plain", "[x]"]))
    assert mixed.label_type == "nominal"


TAGS = pd.DataFrame({
    "item": [1, 1, 2, 2], "rater": ["a", "b", "a", "b"], "joy": [1, 0, 0, 1], "fear": [1, 0, 0, 0],
    "anger": [0, 1, 0, 0],
})  # fmt: skip


@pytest.mark.parametrize("kind", ["frame", "csv", "bool", "named"])
def test_tag_columns_are_sets(kind: str, tmp_path: Path) -> None:
    source: Any = TAGS
    if kind == "bool":
        source = TAGS.assign(**{tag: TAGS[tag].astype(bool) for tag in ("joy", "fear", "anger")})
    if kind == "csv":
        source = tmp_path / "tags.csv"
        TAGS.assign(
            text=TAGS["item"].map("A long text about item number {}".format), Notes=["", "x", "", ""]
        ).to_csv(source, index=False)
    named = ["joy", "fear", "anger"] if kind == "named" else None
    labels, notes = with_warnings(lambda: ds.read_annotations(source, label=named), __file__)
    assert labels.label_type == "multi"
    assert [(str(item), annotator) for item, annotator, _ in rows_of(labels)] == [*product("12", "ab")]
    assert [label for *_, label in rows_of(labels)] == ['["fear", "joy"]', '["anger"]', "[]", '["joy"]']
    assert any("sets of the 3 tags with a column of 0 and 1 (joy, fear, anger)" in note for note in notes)


def test_tags_are_0_or_1() -> None:
    with pytest.raises(DataError, match="row 2: 'joy' is '3'; a column per tag holds 0 or 1"):
        ds.read_annotations(TAGS.assign(joy=[1, 0, 3, 1]), label=["joy", "fear"])
    with pytest.raises(DataError, match="no label column found"):
        ds.read_annotations(TAGS.assign(joy=[1, 0, 3, 1]))


@pytest.mark.parametrize("cell", ['[{"k": 1, "k": 2}]', '["p\\ud800", "q"]', '[["p"], "q"]'])
def test_lists_of_objects_and_half_characters_are_refused(cell: str, write: Callable[..., Path]) -> None:
    path = write(as_csv([("a", "x", '["q"]'), ("a", "y", cell)]))
    with pytest.raises(DataError, match="is no list of texts or numbers; give a list of classes"):
        ds.read_annotations(path)
