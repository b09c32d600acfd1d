"""A fixture that writes a file to read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers.reading import write_file


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    return lambda content, name="votes.csv": write_file(tmp_path / name, content)
