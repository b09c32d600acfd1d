"""Small data sets that come with the package, so that every example runs without a download.

All texts were written for this package and all labels were drawn by ``experiments/bundled_sets.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dissensus.errors import bad_choice, require
from dissensus.importers.read import read_annotations
from dissensus.labels.annotations import Annotations

#: What each data set is about, by name.
DATASETS: Mapping[str, str] = MappingProxyType(
    {
        "canteen": "comments on a canteen: praise, complaint or neutral; three people hear irony",
        "birds": "photographs of birds, with the right species for every photograph",
        "bread": "loaves of bread with grades from 1 to 5; some answers are blank",
        "replies": "replies of a help desk, judged by six people and by three language models",
        "posters": "posters compared in pairs: which of the two is better?",
    }
)
_TYPES = {"bread": "ordinal", "posters": "pairwise"}
_SIDE_TABLES = ("items", "annotators", "gold")


def path(name: str) -> Path:
    """The folder of a data set: ``labels.csv``, and ``items.csv``, ``annotators.csv``, ``gold.csv`` if any.

    Parameters
    ----------
    name
        One of :data:`DATASETS`.
    """
    if name not in DATASETS:
        raise bad_choice("datasets", "name", list(DATASETS), name)
    return Path(__file__).parent / name


def load(name: str) -> Annotations:
    """A data set as annotations, with all that is known about its items and annotators.

    Parameters
    ----------
    name
        One of :data:`DATASETS`.
    """
    folder = path(name)
    tables = {one: folder / f"{one}.csv" for one in _SIDE_TABLES if (folder / f"{one}.csv").exists()}
    given: dict[str, Any] = {"label_type": _TYPES.get(name), **tables}
    return read_annotations(folder / "labels.csv", **given)


def load_dataset(name: str) -> tuple[Any, Any]:
    """A data set as pandas: a frame with the columns task, worker and label, and the true labels by task.

    Where a data set has no true labels the second is empty. Comparisons have the columns left and right
    instead of task.

    Parameters
    ----------
    name
        One of :data:`DATASETS`.
    """
    pd = require("pandas", "pandas")
    folder = path(name)
    frame = pd.read_csv(folder / "labels.csv")
    gold = folder / "gold.csv"
    known = pd.read_csv(gold) if gold.exists() else pd.DataFrame({"task": [], "label": []})
    return frame, known.set_index("task")["label"].rename("true_label")
