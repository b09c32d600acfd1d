"""A finished search as files, beside the record that it kept while running.

::

    search.jsonl        every finished trial; the same command goes on from it after a kill
    cells.csv           one row a cell, best first
    labels.csv, annotators.csv, model.safetensors
                        the winner, fitted to all labels
    report.html         the winner as a page to look at, with the surface over K and L
    summary.json        the winner, its gains and its stability, and how it was found
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dissensus.data.annotations import Annotations
from dissensus.execution.progress import ShowProgress
from dissensus.io.results import output_directory, write_csv, write_summary
from dissensus.selection.select import Selection
from dissensus.workflow import REPORT, Run, summary, try_page, write_fitted


def write_selection(
    selection: Selection,
    annotations: Annotations,
    directory: Path,
    *,
    command: str = "",
    source: str = "",
    page: Mapping[str, Any] | None = None,
    progress: ShowProgress = None,
) -> dict[str, Any]:
    """Write the table and the winner, all or none, and give back the summary.

    ``page`` are settings of :func:`dissensus.write_report`; None: no page.
    """
    run = Run(annotations, selection.model, [], True, selection.seed, {"search": selection.seconds})
    found = {key: value for key, value in selection.to_dict().items() if key != "cells"}
    with output_directory(directory) as folder:
        write_csv(selection.to_frame(), folder / "cells.csv")
        write_fitted(run, folder)
        missing = None
        if page is not None:
            known = {"held_out": None, "selection": selection, "command": command, "progress": progress}
            missing = try_page(run, folder / REPORT, **known, **page)
        content = summary(run, command=command, source=source)
        return write_summary(folder, content | {"search": found, "report_missing": missing})
