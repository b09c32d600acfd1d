"""docs/judges.md, executed."""

from __future__ import annotations

from docs_help import DOCS, run_page


def test_every_block_on_the_page_runs_and_prints_what_it_says() -> None:
    assert run_page(DOCS / "judges.md", console=False) == 5
