"""Draw the plots of docs/gallery.md by running its code, in docs/images/gallery."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = DOCS / "gallery.md"


def main(folder: Path = DOCS / "images" / "gallery") -> list[str]:
    """Run every Python block of the page in the folder, and return the names of the plots."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "dissensus", "svg.fonttype": "none"}  # reproducible files
    folder.mkdir(parents=True, exist_ok=True)
    text, previous_directory = PAGE.read_text(encoding="utf-8"), Path.cwd()
    os.chdir(folder)
    try:
        names: dict[str, Any] = {}
        for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S):
            exec(compile(block, str(PAGE), "exec"), names)
    finally:
        os.chdir(previous_directory)
    return re.findall(r"\]\(images/gallery/([\w-]+\.svg)\)", text)


if __name__ == "__main__":
    print(f"{len(main())} plots")
