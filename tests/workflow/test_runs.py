"""Runs: tables, summaries and reports; no command fits or judges the same thing twice."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dissensus as ds
import dissensus.models.hpgm.model
from dissensus.annotators import verdicts
from dissensus.errors import DissensusWarning
from dissensus.labels.annotations import Annotations
from dissensus.models.base import Model
from dissensus.workflow.refine import fit
from dissensus.workflow.runs import annotator_table, share_right, unseen_labels, write_run
from tests.helpers.cli import run, write_simulation

COMMANDS: dict[str, list[Any]] = {
    "default": ["fit"],
    "fast": ["fit", "--fast"],
    "named model": ["fit", "--model", "pgm", "-k", 4, "-l", 2],
    "baseline": ["fit", "--model", "empirical"],
    "true class": ["fit", "--estimate", "truth"],
    "search": ["select", "-k", "2,3", "-l", "1,2", "--repeats", 2, "--jobs", 1],
    "recovery": [
        *["recover", "-r", 2, "--draws", 2, "-m", "fmm", "-m", "pgm", "-k", "2,3", "-l", "1,2"],
        *["--jobs", 1],
    ],
}


# ---- files --------------------------------------------------------------------------------------------


def test_the_annotator_table_has_the_columns_of_the_model() -> None:
    labels = ds.simulate(60, 20, 3, n_annotator_clusters=2, seed=3).annotations
    refined = fit(labels, "pgm", {"n_item_clusters": 3, "n_annotator_clusters": 2})
    table = annotator_table(refined)
    assert table["annotator"].to_pylist() == list(labels.annotators)
    assert table["n_labels"].to_pylist() == list(labels.annotator_load)
    assert "cluster" in table.column_names


def test_accuracy_counts_items_with_gold_only() -> None:
    labels = Annotations.from_arrays(["i", "j", "k"], ["a", "a", "a"], ["x", "y", "x"])
    gold = pa.table({"item": ["i", "j"], "label": ["x", "x"]})
    assert share_right(fit(labels.with_tables(gold=gold), "majority")) == 0.5
    assert share_right(fit(labels, "majority")) is None


def test_the_summary_lists_the_files(tmp_path: Path) -> None:
    refined = fit(ds.simulate(60, 20, 3).annotations, "majority")
    summary = write_run(refined, tmp_path / "out", command="by hand", source="nowhere")
    assert summary["files"] == sorted(file.name for file in (tmp_path / "out").iterdir())
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary
    assert (summary["command"], summary["source"]) == ("by hand", "nowhere")


# ---- no work is done twice ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def votes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of simulated labels."""
    directory = tmp_path_factory.mktemp("data") / "crowd"
    write_simulation(directory, 40, 20, n_item_clusters=3, n_annotator_clusters=2, seed=4)
    return directory / "annotations.csv"


@pytest.fixture(autouse=True)
def _few_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dissensus.models.hpgm.model, "SWEEPS", 20)


def digest(value: Any) -> str:
    """Return a text that identifies arguments of a fit."""
    if isinstance(value, np.ndarray):
        return hashlib.sha256(value.tobytes()).hexdigest()
    return str({name: digest(part) for name, part in value.items()} if isinstance(value, dict) else value)


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, ...]]:
    """Count fits by model, settings (without threads), labels and other arguments."""
    counts = Counter[tuple[str, ...]]()
    run_fit = Model._run_fit

    def counting(model: Model, annotations: Any, **arguments: Any) -> Model:
        settings = {name: value for name, value in model.get_params(deep=False).items() if name != "n_jobs"}
        key = type(model).__name__, str(settings), annotations.fingerprint(), digest(arguments)
        counts[key] += 1
        return run_fit(model, annotations, **arguments)

    monkeypatch.setattr(Model, "_run_fit", counting)
    return counts


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_nothing_is_fitted_twice(
    votes: Path, tmp_path: Path, fits: Counter[tuple[str, ...]], command: list[Any]
) -> None:
    name, *options = command
    run(name, votes, *options, "-o", tmp_path / "out")
    assert fits
    assert {key[:2]: n for key, n in fits.items() if n > 1} == {}


def test_a_second_fit_is_counted(fits: Counter[tuple[str, ...]]) -> None:
    labels = ds.simulate(20, 5, 3).annotations
    for n_jobs in (1, 2):
        ds.FMM(2, n_jobs=n_jobs).fit(labels)
    assert list(fits.values()) == [2]


@pytest.mark.slow
@pytest.mark.no_cover
def test_annotators_are_judged_once(votes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models, judge = [], verdicts.compute_verdicts

    def counting(model: Any, *others: Any) -> Any:
        models.append(model)
        return judge(model, *others)

    monkeypatch.setattr(verdicts, "compute_verdicts", counting)
    run("fit", votes, "--model", "hpgm", "-o", tmp_path / "out")
    assert len(models) == 1
    run("annotators", tmp_path / "out")  # read from the run
    assert len(models) == 1


def test_new_labels_are_those_that_the_run_does_not_have() -> None:
    old = Annotations.from_arrays(["i", "i", "j"], ["a", "b", "a"], ["x", "y", "x"])
    new = Annotations.from_arrays(["i", "i", "k"], ["a", "b", "a"], ["x", "x", "x"])  # the second differs
    with pytest.warns(DissensusWarning, match="skipped 1 of 3 labels, which the run already has"):
        unseen = unseen_labels(Path("run"), old, new)
    assert [(unseen.items[m], unseen.annotators[n]) for m, n, _ in zip(*unseen.columns, strict=True)] == [
        ("i", "b"), ("k", "a")
    ]  # fmt: skip
    # counts do not name annotators: further counts of an item are other labels
    old, more = (Annotations.from_counts(counts, classes=["x", "y"]) for counts in ([[3, 1]], [[2, 4]]))
    assert unseen_labels(Path("run"), old, more) is more
