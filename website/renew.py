"""Writes what a page's Python blocks print into its text blocks: ``python -m website.renew docs/alpha.md``.

For pages whose numbers changed because a model did. Read the difference before you keep it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r"^```(python|console|text)\n(.*?)^```", re.M | re.S)


def renewed(page: Path) -> str:
    """The page with what its blocks print now; run in an empty directory."""
    text, pieces, place, printed = page.read_text(encoding="utf-8"), [], 0, ""
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in _BLOCK.finditer(text):
        language, content = block.groups()
        if language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(content, str(page), "exec"), names)
            printed = out.getvalue()
        elif language == "text":
            lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
            pieces += [text[place : block.start(2)], "\n".join(lines), "\n"]
            place = block.end(2)
        else:
            _run_console(content)
    return "".join([*pieces, text[place:]])


def _run_console(content: str) -> None:
    import shlex
    import subprocess

    for line in content.splitlines():
        if line.startswith("$ dissensus "):
            subprocess.run([sys.executable, "-m", *shlex.split(line)[1:]], check=True, capture_output=True)


def main(pages: list[str]) -> None:
    """Renew the pages named."""
    for page in [Path(name).resolve() for name in pages]:
        with tempfile.TemporaryDirectory() as place:
            os.chdir(place)
            text = renewed(page)
        page.write_text(text, encoding="utf-8")
        print(f"renewed {page.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
