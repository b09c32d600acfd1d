"""Shared fixtures: where the real datasets are, and small simulated crowds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# An example may take its time: the machine may be busy with something else.
settings.register_profile("patient", settings(), deadline=None)
settings.load_profile("patient")


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
