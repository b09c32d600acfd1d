"""docs/tutorial.md, executed: its commands and its Python, in order, in an empty directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs_help import DOCS, run_page


@pytest.mark.verify
@pytest.mark.no_cover
def test_the_tutorial_runs_and_shows_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(DOCS / "tutorial.md") > 10
