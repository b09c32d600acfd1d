"""Runs the notebooks of docs/notebooks and keeps what they print: ``python -m website.notebooks``."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
MOST_SECONDS = 600


def executed(path: Path) -> Any:
    """The notebook with the outputs of a run in an empty directory; an error in a cell is raised."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    with tempfile.TemporaryDirectory() as place:
        client = NotebookClient(notebook, timeout=MOST_SECONDS, resources={"metadata": {"path": place}})
        client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when each cell ran
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return notebook


def printed(notebook: Any) -> list[str]:
    """What each code cell prints, as text; what goes to standard error (notes, progress) is left out."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            texts = [_text(output) for output in cell.get("outputs", [])]
            found.append("".join(texts).strip("\n"))
    return found


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text) if output.name == "stdout" else ""
    return str(output.get("data", {}).get("text/plain", ""))


def main(names: list[str]) -> None:
    """Run the notebooks of these names (all, if none is given) and keep their outputs."""
    import nbformat

    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            notebook = executed(path)
            for cell in notebook.cells:
                if cell.cell_type == "code":
                    cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
            nbformat.write(notebook, path)
            print(f"{path.name}: {len(notebook.cells)} cells")


if __name__ == "__main__":
    main(sys.argv[1:])
