"""Small bundled datasets, so that every example runs without a download.

All texts were written for this package and all labels were drawn by ``experiments/bundled_sets.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dissensus.errors import bad_choice, require
from dissensus.importers.read import read_annotations
from dissensus.labels.annotations import Annotations

#: Descriptions of the datasets, by name.
DATASETS: Mapping[str, str] = {
    "canteen": "comments on a canteen: praise, complaint or neutral; three annotators notice irony",
    "birds": "photographs of birds, with the right species for every photograph",
    "bread": "loaves of bread with grades from 1 to 5; some answers are blank",
    "replies": "replies of a help desk, judged by six people and by three language models",
    "posters": "posters compared in pairs: which of the two is better?",
}
_LABEL_TYPES: dict[str, Any] = {"bread": "ordinal", "posters": "pairwise"}
_SIDE_TABLES = ("items", "annotators", "gold")


def path(name: str) -> Path:
    """Return the folder of a dataset, with ``labels.csv`` and any side tables.

    Parameters
    ----------
    name
        One of :data:`DATASETS`.
    """
    if name not in DATASETS:
        raise bad_choice("datasets", "name", list(DATASETS), name)
    return Path(__file__).parent / name


def load(name: str) -> Annotations:
    """Load a dataset as annotations, with its side tables.

    Parameters
    ----------
    name
        One of :data:`DATASETS`.
    """
    folder = path(name)
    paths = {table: folder / f"{table}.csv" for table in _SIDE_TABLES}
    settings: dict[str, Any] = {table: path for table, path in paths.items() if path.exists()}
    return read_annotations(folder / "labels.csv", label_type=_LABEL_TYPES.get(name), **settings)


def load_dataset(name: str) -> tuple[Any, Any]:
    """Load a dataset as pandas: a frame with columns task, worker and label, and the true labels by task.

    The latter are empty if there are none. Comparisons have columns left and right instead of task.

    Parameters
    ----------
    name
        One of :data:`DATASETS`.
    """
    pd = require("pandas", "pandas")
    folder = path(name)
    frame = pd.read_csv(folder / "labels.csv")
    path_of_gold = folder / "gold.csv"
    gold = pd.read_csv(path_of_gold) if path_of_gold.exists() else pd.DataFrame({"task": [], "label": []})
    return frame, gold.set_index("task")["label"].rename("true_label")
