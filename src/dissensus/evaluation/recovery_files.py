"""A measured recovery as files: ``recovery.csv``, a row for every model and R, and ``summary.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dissensus.evaluation.recovery import Recovery
from dissensus.io.results import output_directory, write_csv, write_summary


def write_recovery(
    recovery: Recovery, directory: Path, *, command: str = "", source: str = "", force: bool = False
) -> dict[str, Any]:
    """Write the table and everything behind it, all or none, and give back the summary."""
    with output_directory(directory, force) as folder:
        write_csv(recovery.to_frame(every=True), folder / "recovery.csv")
        content = {"command": command, "source": source, "recovery": recovery.to_dict()}
        return write_summary(folder, content)
