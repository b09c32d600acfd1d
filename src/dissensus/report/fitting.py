"""How the fit came about: the search over K and L where one was run, and the trace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dissensus.models.base import Model

K, L = "n_item_clusters", "n_annotator_clusters"
MOST_POINTS = 300  # of the trace


def trace_content(model: Model) -> dict[str, Any] | None:
    """The objective by iteration, thinned where there are very many."""
    trace = np.asarray(model.trace_, dtype=float)
    if len(trace) < 2:
        return None
    places = np.unique(np.linspace(0, len(trace) - 1, min(len(trace), MOST_POINTS)).round().astype(int))
    return {
        "iteration": places + 1,
        "objective": [float(f"{value:.9g}") for value in trace[places]],
        "stopped": model.stopped_,
    }


def search_content(selection: Any) -> dict[str, Any] | None:
    """The best score at every (K, L) that a search tried, and the cell that won.

    ``selection`` is what ``dissensus.select`` gave back, or the rows of its ``cells.csv``. Cells were tried
    on one split or on several; what compares them is the winner's score less how far they are behind it on
    the splits that both have.
    """
    if selection is None:
        return None
    rows: Sequence[Mapping[str, Any]] = selection if isinstance(selection, Sequence) else selection.rows()
    best: dict[tuple[int, int], float] = {}
    top = _number(rows[0]["score"]) if rows else math.nan
    for row in rows:
        size, score = (_whole(row.get(K)), _whole(row.get(L))), top - _number(row["behind"])
        if math.isfinite(score):
            best[size] = max(score, best.get(size, -math.inf))
    if len(best) < 2:
        return None
    kinds, groups = sorted({size[0] for size in best}), sorted({size[1] for size in best})
    scores = [[best.get((kind, group)) for group in groups] for kind in kinds]
    winner = _whole(rows[0].get(K)), _whole(rows[0].get(L))
    return {"k": kinds, "l": groups, "scores": scores, "winner": winner, "n": len(rows)}


def _number(value: Any) -> float:
    """A number, perhaps as a file has it; NaN where it is blank."""
    return math.nan if value in (None, "") else float(value)


def _whole(value: Any) -> int:
    """A number of clusters; 1 where the search did not vary it."""
    return 1 if value is None or value == "" or value != value else int(float(value))
