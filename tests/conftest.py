"""Fixtures of all tests: the real datasets and a local cluster."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.helpers.data import find_data

# No deadline for examples: the machine may be busy.
settings.register_profile("patient", settings(), deadline=None)
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    """Ignore the library's notes, except in tests that expect them."""
    config.addinivalue_line("filterwarnings", "ignore::dissensus.errors.DissensusWarning")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files whose tests are all deselected by ``-m``: importing PyTorch takes seconds."""
    deselected = re.findall(r"not (\w+)", config.option.markexpr)
    if not deselected or collection_path.suffix != ".py":
        return None
    marks = re.search(r"^pytestmark = (.*(?:\n    .*)*)", collection_path.read_text(encoding="utf-8"), re.M)
    return True if marks and re.search(rf"mark\.({'|'.join(deselected)})\b", marks[1]) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Exclude tests of real datasets from coverage, which must not depend on files that a clone lacks."""
    for item in items:
        if item.get_closest_marker("data"):
            item.add_marker(pytest.mark.no_cover)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real datasets; tests that need it are skipped if it is missing."""
    folder = find_data()
    if folder is None:
        pytest.skip("the real datasets are absent: set DISSENSUS_DATA to their folder")
    return folder


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """A Dask cluster of two processes, for the tests of one file."""
    from dissensus.large.dask import connect

    trace = threading.gettrace()
    threading.settrace(None)  # type: ignore[arg-type]  # do not trace Dask's threads
    with connect("local", n_workers=2) as client:
        threading.settrace(trace)  # type: ignore[arg-type]
        yield client
