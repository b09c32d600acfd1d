"""The notebooks of docs/notebooks: run again, they print what they hold."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from website.notebooks import FOLDER, executed, printed

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SHORT = "3-judges-beside-humans"


def test_every_notebook_was_run_to_its_end() -> None:
    assert len(NOTEBOOKS) == 5
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
        assert sum(bool(text) for text in printed(notebook)) >= len(cells) - 1
        assert not [one for cell in cells for one in cell.outputs if one.output_type == "error"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the packages that run notebooks
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.stem == SHORT else [pytest.mark.verify]) for path in NOTEBOOKS],
    ids=lambda path: path.stem,
)
def test_a_notebook_prints_what_it_holds(path: Path) -> None:
    assert printed(executed(path)) == printed(nbformat.read(path, as_version=4))
