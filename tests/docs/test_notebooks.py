"""The notebooks in docs/notebooks are complete, and running them again gives the same output."""

import re
from pathlib import Path

import nbformat
import pytest

import dissensus as ds
from website.notebooks import FOLDER, executed, printed

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_notebooks_are_complete_and_without_errors() -> None:
    assert len(NOTEBOOKS) == 5
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
        assert sum(bool(text) for text in printed(notebook)) >= len(cells) - 1
        assert not [out for cell in cells for out in cell.outputs if out.output_type == "error"]


def test_notebooks_use_existing_names() -> None:
    for path in NOTEBOOKS:
        cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        names = {name for source in cells for name in re.findall(r"\bds\.(\w+)", source)}
        assert names
        assert [name for name in names if not hasattr(ds, name)] == []


@pytest.mark.verify
@pytest.mark.filterwarnings("ignore")  # of Jupyter
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_output_is_up_to_date(path: Path) -> None:
    assert printed(executed(path)) == printed(nbformat.read(path, as_version=4))
