"""docs/security.md names existing tests and the limits of the code."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_files_named_on_the_page_exist() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tests/|learners/)[\w/]+\.py|[\w-]+\.(?:lock|txt))`", page))
    assert {"tests/faults/kills.py", "tests/faults/mangled.py", "tests/faults/exports.py"} <= named
    folders = (ROOT, ROOT / "src" / "dissensus")
    assert [name for name in named if not any((folder / name).is_file() for folder in folders)] == []
    assert "docs/security.md" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_numbers_on_the_page_are_those_of_the_code() -> None:
    from dissensus.tables.json_lines import MAX_JSON_DEPTH
    from dissensus.tables.source import _UNZIPPED_PER_MEMORY
    from tests.faults.exports import EXPORTS
    from tests.large.test_store_faults import FORGERIES

    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert f"in {len(EXPORTS)} formats" in page
    assert f"{len(FORGERIES)} forgeries" in page
    assert f"JSON deeper than {MAX_JSON_DEPTH} is refused" in page
    assert {8: "eight"}[_UNZIPPED_PER_MEMORY] + " times the memory" in page
