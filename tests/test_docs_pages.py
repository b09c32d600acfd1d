"""Pages of docs/ whose code prints what the page says that it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs_help import DOCS, run_page

PAGES = ["from-crowd-kit.md"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs_and_prints_what_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(DOCS / page)
