"""Shared fixtures: where the real datasets are, and a local cluster."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# An example may take its time: the machine may be busy with something else.
settings.register_profile("patient", settings(), deadline=None)
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    """Notes are warnings; tests of them ask for them, and everywhere else they are no failure."""
    config.addinivalue_line("filterwarnings", "ignore::dissensus.errors.DissensusWarning")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file whose every test ``-m`` leaves out is not imported either: PyTorch alone takes seconds."""
    left_out = re.findall(r"not (\w+)", config.option.markexpr)
    if not left_out or collection_path.suffix != ".py":
        return None
    marks = re.search(r"^pytestmark = (.*(?:\n    .*)*)", collection_path.read_text(encoding="utf-8"), re.M)
    return True if marks and re.search(rf"mark\.({'|'.join(left_out)})\b", marks[1]) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Coverage must not hang on datasets that a clone may not have, so it does not follow tests of them."""
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(pytest.mark.no_cover)


def find_data() -> Path | None:
    """The folder of real datasets, or None where they are absent."""
    repository = Path(__file__).resolve().parents[1]
    named = os.environ.get("DISSENSUS_DATA")
    folder = Path(named) if named else repository.parent / "shared" / "data"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The real datasets; a test that needs them is skipped where they are absent."""
    folder = find_data()
    if folder is None:
        pytest.skip("the real datasets are absent: set DISSENSUS_DATA to their folder")
    return folder


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A Dask cluster of two processes, for one file: kept for all, it costs more than it saves."""
    from dissensus.large.dask import connected

    followed = threading.gettrace()
    threading.settrace(None)  # type: ignore[arg-type]  # Dask's own thread is busy, and not ours to cover
    with connected("local", n_workers=2) as client:
        threading.settrace(followed)  # type: ignore[arg-type]
        yield client
