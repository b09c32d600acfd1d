"""The page of promises names tests that are there, and SECURITY.md points to it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_every_file_that_the_page_names_is_there() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tests/|learners/)[\w/]+\.py|[\w-]+\.(?:lock|txt))`", page))
    assert {"tests/faults/kills.py", "tests/faults/mangled.py", "tests/faults/exports.py"} <= named
    missing = [
        name
        for name in named
        if not ((ROOT / name).is_file() or (ROOT / "src" / "dissensus" / name).is_file())
    ]
    assert missing == []
    assert "docs/security.md" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_the_page_counts_right() -> None:
    from dissensus.tables.json_lines import DEEPEST
    from dissensus.tables.source import _MOST_TIMES
    from faults.exports import FORMATS
    from test_store_faults import FORGERIES

    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert f"in {len(FORMATS)} formats" in page
    assert f"{len(FORGERIES)} forgeries" in page
    assert f"JSON deeper than {DEEPEST} is refused" in page
    assert {8: "eight"}[_MOST_TIMES] + " times the memory" in page
