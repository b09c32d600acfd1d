"""Location of the real datasets."""

import os
from pathlib import Path


def find_data() -> Path | None:
    """Return the folder of real datasets, or None if it is missing."""
    repository = Path(__file__).resolve().parents[2]
    variable = os.environ.get("DISSENSUS_DATA")
    folder = Path(variable) if variable else repository.parent / "shared" / "data"
    return folder if folder.is_dir() else None
