"""Quality of the model on the page, and how it was fitted.

Held-out scores of several models, and their gaps to the best with standard errors; accuracy on gold labels;
the search over K and L, if there was one; and the trace of the fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dissensus.annotators import sentences
from dissensus.evaluate.compare import HeldOut, score_rows
from dissensus.evaluate.gold import cross_fitted, judged_items, right_rows, wilson
from dissensus.labels.annotations import Annotations
from dissensus.models import build_model, display_name, name_of
from dissensus.models.base import Model
from dissensus.models.log_linear import chosen_as_difficult
from dissensus.models.sampled import second_run
from dissensus.report import Content
from dissensus.tables.results import json_safe

Scores = Sequence[HeldOut | Mapping[str, Any]]

MAX_TRACE_POINTS = 300


# ---- held-out labels ----------------------------------------------------------------------------------


def held_out_table(model: Model, scores: Scores) -> list[Content]:
    """Return the scores of the models compared, best first; ``scores`` are those of a run."""
    reported, shown = _relevant(name_of(model), model.get_params(deep=False)), []
    for row in score_rows(scores):
        is_own = _relevant(row["model"], row["settings"]) == reported
        title = display_name(model if is_own else build_model(row["model"], row["settings"]))
        shown.append({"title": title, "own": is_own, "n": row["n_hidden"]})
        shown[-1] |= {kind: row[kind] for kind in ("score", "score_items")}
        for gap in ("behind", "behind_items"):
            shown[-1][gap] = [row.get(f"{gap}{part}") for part in ("", "_error", "_tied")]
    return sorted(shown, key=lambda row: -row["score_items"] if row["score_items"] is not None else math.inf)


def _relevant(name: str, settings: Mapping[str, Any]) -> Any:
    """Return a model's name and settings, apart from ``seed`` and ``n_jobs``."""
    return name, json_safe(dict(settings) | {"n_jobs": None, "seed": None})


# ---- gold ---------------------------------------------------------------------------------------------


def gold_decides(model: Model, annotations: Annotations) -> bool:
    """Return True if the model was fitted with gold labels, and so gives them probability 1."""
    items = judged_items(annotations)
    if annotations.gold is None or not len(items):
        return False
    sure = model.label_distributions_[items, annotations.gold[items]] == 1.0
    return model.finds_truth and bool(sure.all())


def gold_content(model: Model, annotations: Annotations, seed: int = 0) -> Content | None:
    """Return the accuracy of the most frequent label and of the model's label, by class; None without gold.

    If the model was fitted with gold labels, each item is evaluated by a fit without its own gold label.
    """
    items = judged_items(annotations)
    if not len(items) or annotations.gold is None:
        return None
    gold, P = annotations.gold[items], annotations.n_classes
    crossed = gold_decides(model, annotations)
    chances = cross_fitted(model, annotations, seed=seed) if crossed else model.label_distributions_
    tables = {"raw": annotations.counts.astype(np.float64), "model": chances}
    right = {name: right_rows(annotations, table, items) for name, table in tables.items()}
    accuracy = {name: list(wilson(rows.sum(), len(rows))) for name, rows in right.items()}
    confusion = np.bincount(gold * P + chances[items].argmax(axis=1), minlength=P * P)
    n = np.bincount(gold, minlength=P)
    size = np.where(n > 0, n, np.nan)
    class_right = {name: np.bincount(gold, rows, minlength=P) / size for name, rows in right.items()}
    words = sentences.gold_sentence(right["raw"], accuracy["raw"][1:])
    by_class = {"classes": n, "class_right": class_right, "confusion": confusion.reshape(P, P)}
    difficult = chosen_as_difficult(annotations.counts, annotations.gold >= 0)
    facts: Content = {"n": len(items), "crossed": crossed, "words": words, "difficult": difficult}
    return facts | accuracy | by_class


# ---- the fit ------------------------------------------------------------------------------------------


def trace_content(model: Model) -> Content | None:
    """Return the objective by iteration, thinned if there are very many."""
    trace = np.asarray(model.trace_, dtype=float)
    if len(trace) < 2:
        return None
    chosen = np.unique(np.linspace(0, len(trace) - 1, min(len(trace), MAX_TRACE_POINTS)).round().astype(int))
    objective = [float(f"{value:.9g}") for value in trace[chosen]]
    moved = getattr(model, "run_difference_", np.nan)
    words = None if np.isnan(moved) else second_run(float(moved))
    return {"iteration": chosen + 1, "objective": objective, "stopped": model.stopped_, "second_run": words}


def search_content(selection: Any) -> Content | None:
    """Return the best score at every (K, L) of a search, and the winning cell.

    ``selection`` is the result of ``dissensus.select``, or the rows of its ``cells.csv``. Cells may have been
    evaluated on different splits; they are compared by the winner's score minus their gap on common splits.
    """
    if selection is None:
        return None
    rows: Sequence[Mapping[str, Any]] = selection if isinstance(selection, Sequence) else selection.rows()
    best: dict[tuple[int, int], float] = {}
    top = _number(rows[0]["score"]) if rows else math.nan
    keys = "n_item_clusters", "n_annotator_clusters"
    cells = [(_whole(row.get(keys[0])), _whole(row.get(keys[1]))) for row in rows]
    for cell, row in zip(cells, rows, strict=True):
        score = top - _number(row["behind"])
        if math.isfinite(score):
            best[cell] = max(score, best.get(cell, -math.inf))
    if len(best) < 2:
        return None
    sizes, groups = sorted({size[0] for size in best}), sorted({size[1] for size in best})
    scores = [[best.get((size, group)) for group in groups] for size in sizes]
    return {"k": sizes, "l": groups, "scores": scores, "winner": cells[0], "n": len(rows)}


def _number(value: Any) -> float:
    """Return a number from a table, NaN if blank."""
    return math.nan if value in (None, "") else float(value)


def _whole(value: Any) -> int:
    """Return a number of clusters; 1 if the search did not vary it."""
    return 1 if value is None or value == "" or value != value else int(float(value))
