"""Run the notebooks of docs/notebooks and save their outputs: ``python -m website.notebooks [NAME]``."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
MAX_SECONDS_PER_CELL = 600


def executed(path: Path) -> Any:
    """Run a notebook in an empty directory, and return it with its outputs."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    with tempfile.TemporaryDirectory() as directory:
        resources = {"metadata": {"path": directory}}
        NotebookClient(notebook, timeout=MAX_SECONDS_PER_CELL, resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return notebook


def printed(notebook: Any) -> list[str]:
    """Return the text printed by each code cell, without standard error (notes, progress)."""
    return [
        "".join(_text(output) for output in cell.get("outputs", [])).strip("\n")
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def _text(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text) if output.name == "stdout" else ""
    return str(output.get("data", {}).get("text/plain", ""))


def _is_progress(output: Any) -> bool:
    """Return True for standard error, and for a progress display, which is empty in the end."""
    return output.get("name") == "stderr" or not any(output.get("data", {"": True}).values())


def main(names: list[str]) -> None:
    """Run the notebooks with these names (by default all) and save their outputs."""
    import nbformat

    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            notebook = executed(path)
            for cell in notebook.cells:
                if cell.cell_type == "code":
                    cell.outputs = [output for output in cell.outputs if not _is_progress(output)]
            nbformat.write(notebook, path)
            print(f"{path.name}: {len(notebook.cells)} cells")


if __name__ == "__main__":
    main(sys.argv[1:])
