"""The examples of the guides run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sizes import usually

DOCS = Path(__file__).resolve().parents[1] / "docs"


# Searches and recoveries are proved elsewhere: here fewer settings and draws, in this process.
SMALLER = {
    'range(2, 6), "n_annotator_clusters": [1, 2, 3]})': "[2, 3]}, repeats=2, n_jobs=1)",
    "criterion=on_busy_annotators)": "criterion=on_busy_annotators, repeats=2, n_jobs=1)",
    'directory="search", n_jobs=2)': 'directory="search", repeats=2, n_jobs=1)',
    "labels_shown=(2, 4))": "labels_shown=(2, 4), n_draws=2, n_jobs=1)",
}


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("page", ["selection.md", "recovery.md", "guided.md", "scarce.md"])
def test_the_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    for words, fewer in usually(SMALLER, verify={}).items():
        text = text.replace(words, fewer)
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert blocks
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
