"""Within a command nothing is done twice: no fit with the same settings to the same labels, no verdict."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus
import dissensus.models.hpgm.model
from cli_help import run
from dissensus.annotators import verdicts
from dissensus.models.base import Model

pytestmark = pytest.mark.no_cover

COMMANDS: dict[str, list[Any]] = {
    "the default": ["fit"],
    "fast": ["fit", "--fast"],
    "a named model": ["fit", "--model", "pgm", "-k", 4, "-l", 2],
    "the yardstick itself": ["fit", "--model", "empirical"],
    "one true class": ["fit", "--estimate", "truth"],
    "a search": ["select", "-k", "2,3", "-l", "1,2", "--repeats", 2, "--jobs", 1],
    "recovery": [
        "recover",
        "-r",
        2,
        "--draws",
        2,
        "-m",
        "fmm",
        "-m",
        "pgm",
        "-k",
        "2,3",
        "-l",
        "1,2",
        "--jobs",
        1,
    ],
}


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small simulated crowd on disk, with gold labels."""
    place = tmp_path_factory.mktemp("data") / "crowd"
    run("simulate", "--n-items", 40, "--n-annotators", 20, "-k", 3, "-l", 2, "--seed", 4, "-o", place)
    return place


@pytest.fixture(autouse=True)
def _few_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dissensus.models.hpgm.model, "SWEEPS", 20)


def given_words(given: Any) -> str:
    """What a fit is given beside the labels; arrays by their bytes."""
    if isinstance(given, np.ndarray):
        return hashlib.sha256(given.tobytes()).hexdigest()
    return str({name: given_words(one) for name, one in given.items()} if isinstance(given, dict) else given)


@pytest.fixture
def fits(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, ...]]:
    """How often each model was fitted, by its settings (threads apart), its labels and what else it got."""
    counted = Counter[tuple[str, ...]]()
    run_fit = Model._run_fit

    def counting(model: Model, annotations: Any, **given: Any) -> Model:
        settings = {name: one for name, one in model.get_params(deep=False).items() if name != "n_jobs"}
        labels = annotations.fingerprint()
        counted[type(model).__name__, str(settings), labels, given_words(given)] += 1
        return run_fit(model, annotations, **given)

    monkeypatch.setattr(Model, "_run_fit", counting)
    return counted


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_nothing_is_fitted_twice(
    crowd: Path, tmp_path: Path, fits: Counter[tuple[str, ...]], command: list[Any]
) -> None:
    name, *options = command
    run(name, crowd / "annotations.csv", *options, "-o", tmp_path / "out")
    assert fits
    assert {key[:2]: n for key, n in fits.items() if n > 1} == {}


def test_the_count_sees_a_second_fit(fits: Counter[tuple[str, ...]]) -> None:
    labels = dissensus.simulate(20, 5, 3).annotations
    for n_jobs in (1, 2):
        dissensus.FMM(2, n_jobs=n_jobs).fit(labels)
    assert list(fits.values()) == [2]


@pytest.mark.slow
def test_annotators_are_judged_once_for_table_and_page(
    crowd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged, verdicts_of = [], verdicts.judged

    def counting(model: Any, *others: Any) -> Any:
        judged.append(model)
        return verdicts_of(model, *others)

    monkeypatch.setattr(verdicts, "judged", counting)
    run("fit", crowd / "annotations.csv", "--model", "hpgm", "--test-size", 0, "-o", tmp_path / "out")
    assert len(judged) == 1
    run("annotators", tmp_path / "out")  # read off the run
    assert len(judged) == 1
