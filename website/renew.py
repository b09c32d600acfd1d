"""Update the text blocks of a page with the output of its Python blocks.

    python -m website.renew docs/agreement.md

Commands run in an empty directory. One that fails, for lack of an input file for instance, is reported and
skipped. Review the changes before you commit them.
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
    """Run the blocks of a page in the current directory, and return its text with their output."""
    text, pieces, position, printed = page.read_text(encoding="utf-8"), [], 0, ""
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
            pieces += [text[position : block.start(2)], "\n".join(lines), "\n"]
            position = block.end(2)
        else:
            _run_console(content)
    return "".join([*pieces, text[position:]])


def _run_console(content: str) -> None:
    import shlex
    import subprocess

    for line in content.splitlines():
        if line.startswith("$ dissensus "):
            words = shlex.split(line, comments=True)[1:]
            if subprocess.run([sys.executable, "-m", *words], capture_output=True).returncode:
                print(f"skipped, because it fails in an empty directory: {line}", file=sys.stderr)


def main(pages: list[str]) -> None:
    """Update these pages, each in an empty directory."""
    for page in [Path(name).resolve() for name in pages]:
        with tempfile.TemporaryDirectory() as directory:
            os.chdir(directory)
            text = renewed(page)
        page.write_text(text, encoding="utf-8")
        print(f"renewed {page.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
