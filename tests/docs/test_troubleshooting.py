"""Every message on docs/troubleshooting.md is produced here."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

import dissensus as ds
from dissensus.compiled import library
from dissensus.errors import require
from dissensus.evaluate.compare import Gap
from dissensus.models.sampled import second_run
from tests.helpers.cli import run
from tests.helpers.docs import DOCS

PAGE = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
VOTES = pd.DataFrame({"item": [1, 1, 2, 2], "annotator": list("abab"), "label": ["x", "y", "x", "x"]})


def notes(frame: pd.DataFrame) -> str:
    return "\n".join(ds.read_annotations(frame).notes)


def numbers() -> pd.DataFrame:
    return pd.DataFrame({"item": range(40), "annotator": "a", "label": np.linspace(0, 1, 40)})


def fit_one_annotator() -> str:
    VOTES.assign(annotator="a").to_csv("one.csv", index=False)
    return run("fit", "one.csv", code=2).stderr


def fit_into_a_full_folder() -> str:
    VOTES.to_csv("votes.csv", index=False)
    Path("full").mkdir()
    Path("full/mine.txt").write_text("keep me")
    return run("fit", "votes.csv", "-o", "full", code=2).stderr


def load_another_file() -> Any:
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(2)}, "other.safetensors")
    return ds.load("other.safetensors")


def load_a_cut_file() -> Any:
    ds.MajorityVote().fit(VOTES).save("model.safetensors")
    Path("cut.safetensors").write_bytes(Path("model.safetensors").read_bytes()[:200])
    return ds.load("cut.safetensors")


def score_a_new_class() -> float:
    return ds.EmpiricalDistribution().fit(VOTES).score(VOTES.assign(label="z"))


def fit_labels_without_structure() -> Any:
    with patch("dissensus.evaluate.compare.counts_ahead", return_value=Gap(0.1, 0.01)):
        return ds.fit(VOTES)


def load_loops(name: str, value: Any) -> Any:
    with patch(f"dissensus.compiled.{name}", value):
        return library.__wrapped__()


def rows(**columns: Any) -> pd.DataFrame:
    """Forty items by three annotators who disagree on some; ``columns`` replace or add columns."""
    m, n = (part.ravel() for part in np.indices((40, 3)))
    frame = {"item": m, "annotator": [f"a{k}" for k in n], "label": np.where((m * n) % 3, "x", "y")}
    return pd.DataFrame(frame | {name: make(m, n) for name, make in columns.items()})


COUNTS = ds.Annotations.from_counts([[2, 1], [0, 3]])
MESSAGES: dict[str, Callable[[], Any]] = {
    "no item column found": lambda: ds.read_annotations(VOTES.rename(columns={"item": "q1"}).assign(q2=1)),
    "no annotator and no label column found": lambda: ds.read_annotations(
        VOTES.rename(columns={"annotator": "x1", "label": "x2"})
    ),
    "could each be the item column; choose one with item=": lambda: ds.read_annotations(
        VOTES.rename(columns={"item": "task"}).assign(unit=[1, 2, 3, 4])
    ),
    "choose one with read_annotations(data, label=…)": lambda: ds.HPGM().fit_predict(
        VOTES.rename(columns={"label": "answer"}).assign(rating=[1, 2, 3, 4])
    ),
    "is different in every row and": lambda: ds.read_annotations(
        rows(item=lambda m, n: 3 * m + n, text=lambda m, n: [f"text {k}" for k in m])
    ),
    "is the same in all rows of an item, and": lambda: ds.read_annotations(
        rows(label=lambda m, n: np.where(m % 2, "x", "y"), mood=lambda m, n: (m * n + n) % 3)
    ),
    "annotators have several rows of one": lambda: notes(
        pd.concat(
            [rows(aspect=lambda m, n: ["taste"] * len(m)), rows(aspect=lambda m, n: ["price"] * len(m))]
        )
    ),
    "is not in the label set": lambda: ds.read_annotations(VOTES, classes=["x"]),
    "all labels are by one annotator": fit_one_annotator,
    "if that is wrong, name the column": lambda: notes(VOTES.rename(columns={"annotator": "rater"})),
    "rows have no label and are skipped": lambda: notes(VOTES.assign(label=["x", None, None, "y"])),
    "does not estimate a true class, so it cannot learn from gold": lambda: ds.HPGM().fit_predict(
        VOTES, {1: "x"}
    ),
    "needs the annotator of each label, which class counts do not have": lambda: ds.DawidSkene().fit(COUNTS),
    "different numbers; use NumericRatings": lambda: ds.FMM(1).fit(numbers()),
    "is not fitted yet; call fit first": lambda: ds.HPGM().labels_,
    "the model was not fitted on class": score_a_new_class,
    "must be a float >= 0. Got -1 instead.": lambda: ds.DawidSkene(tol=-1).fit(VOTES),
    "A second run, with another seed, would move an item's shares by": lambda: second_run(0.02),
    "smoothed counts predict hidden labels better": fit_labels_without_structure,
    "loops.so cannot be loaded": lambda: load_loops("LIBRARY", Path("loops.so")),
    "was compiled from other sources": lambda: load_loops("source_checksum", lambda: 0),
    "which is not installed; install it with:": lambda: require("no_such_package", "text"),
    "has no setting 'n_clusters'; did you mean 'n_item_clusters'?": lambda: ds.FMM(n_clusters=3),  # type: ignore[call-arg]
    "a class that no annotator used; if it means": lambda: ds.read_annotations(
        VOTES.assign(label="cat"), gold=pd.DataFrame({"item": [1, 2, 3], "gold": "kat"})
    ),
    "X does not say which row is which item of y": lambda: ds.GuidedClassifier().fit([[1.0], [2.0]], VOTES),
    "gold must map items to their true class, but none of its keys": lambda: ds.DawidSkene().fit_predict(
        VOTES, {"Ana": 0.5}
    ),
    "exists and was not written by dissensus": fit_into_a_full_folder,
    "a safetensors file that dissensus did not write": load_another_file,
    "not a complete safetensors file": load_a_cut_file,
}


@pytest.mark.parametrize("words", MESSAGES)
def test_message_is_produced(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        message = str(MESSAGES[words]())
    except Exception as error:
        message = str(error)
    assert words in " ".join(message.split())


def test_page_has_exactly_these_messages() -> None:
    headings = re.findall(r"^\*\*(.+)\*\*$", PAGE, re.M)
    assert {quoted for heading in headings for quoted in re.findall(r"`([^`]+)`", heading)} == set(MESSAGES)
