"""Fixtures of the command line's tests: a simulated crowd, its refined labels, an empty directory."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.helpers.cli import run, write_simulation


@pytest.fixture(scope="session")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a simulated crowd of 80 items and 400 labels."""
    directory = tmp_path_factory.mktemp("data") / "crowd"
    return write_simulation(directory, 80, 20, n_item_clusters=3, n_annotator_clusters=2, seed=4)


@pytest.fixture(scope="session")
def refined(crowd: Path) -> tuple[Path, Any]:
    """The crowd refined by the default model: the directory, and the JSON that ``fit`` printed."""
    directory = crowd.parent / "refined"
    return directory, json.loads(run("fit", crowd / "annotations.csv", "-o", directory, "--json").stdout)


@pytest.fixture(autouse=True)
def _in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def without_pandas() -> Iterator[None]:
    """Make pandas, which is an extra, impossible to import: no command needs it."""
    pa.array(["Arrow looks for pandas once"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pandas", None)
        yield
