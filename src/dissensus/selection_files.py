"""A finished search as files, beside the record that it kept while running.

::

    search.jsonl        every finished trial; the same command goes on from it after a kill
    cells.csv           one row a cell, best first
    labels.csv, annotators.csv, model.safetensors
                        the winner, fitted to all labels
    summary.json        the winner, its gains and its stability, and how it was found
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dissensus.annotations import Annotations
from dissensus.outputs import output_directory, write_csv, write_summary
from dissensus.run import Run, summary, write_fitted
from dissensus.selection import Selection


def write_selection(
    selection: Selection, annotations: Annotations, directory: Path, *, command: str = "", source: str = ""
) -> dict[str, Any]:
    """Write the table and the winner, all or none, and give back the summary."""
    run = Run(annotations, selection.model, [], True, selection.seed, {"search": selection.seconds})
    found = {key: value for key, value in selection.to_dict().items() if key != "cells"}
    with output_directory(directory) as folder:
        write_csv(selection.to_frame(), folder / "cells.csv")
        write_fitted(run, folder)
        return write_summary(folder, summary(run, command=command, source=source) | {"search": found})
