"""How good the model is, and how the fit came about.

Hidden labels foreseen, and how far each model is behind the best, with standard errors; how right labels and
model are, where gold is known; what a refined label is worth in raw ones, where that was measured; the search
over K and L where one was run, and the trace.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dissensus.annotators import sentences
from dissensus.evaluate.compare import (
    HeldOut,
    applies,
    for_comparison,
    held_out_scores,
    score_rows,
    with_gaps,
)
from dissensus.evaluate.gold import cross_fitted, judged_items, right_rows, wilson
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import carries_features
from dissensus.models import build_model, name_of, title_of
from dissensus.models.base import Model
from dissensus.params import with_settings
from dissensus.tables.results import finite

Scores = Sequence[HeldOut | Mapping[str, Any]]

COUNTS_TITLE = "smoothed counts"
# what every model is held against: its name on the command line, its name on the page, its settings
RIVALS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("empirical", COUNTS_TITLE, {}),
    ("fmm", "item clusters only (FMM)", {"n_item_clusters": 16}),
    ("dawid-skene", "Dawid–Skene", {}),
)
FEWEST_HIDDEN = 20
K, L = "n_item_clusters", "n_annotator_clusters"
MOST_POINTS = 300  # of the trace


# ---- hidden labels ------------------------------------------------------------------------------------


def held_out_table(
    model: Model, annotations: Annotations, given: Scores | None, test_size: float, seed: int
) -> list[dict[str, Any]]:
    """The reported model beside counts, FMM, Dawid–Skene and whatever foresees best, best first.

    ``given`` are the scores that a run already has (the best settings of each rival count); whoever is
    missing is scored here on the same hidden labels. An empty ``given`` means that none were hidden.
    """
    if (given is not None and not given) or round(test_size * annotations.n_pairs) < FEWEST_HIDDEN:
        return []
    known = _scored(model, annotations, list(given or ()), test_size, seed)
    own = _own(known, model)
    chosen = [(own, title_of(model))]
    for name, title, _ in RIVALS:
        rows = [row for row in known if row["model"] == name and row["score"] is not None]
        chosen.append((max(rows, key=lambda row: row["score"]) if rows else None, title))
    # those that others are said to be behind: they foresee best, given the annotator and not
    scores = ("score", "score_items")
    whole = [row for row in known if row.get("whole", True) and None not in [row[score] for score in scores]]
    first = [max(whole, key=lambda row: row[score]) for score in scores if whole]
    chosen += [(row, title_of(build_model(row["model"], row["settings"]))) for row in first]
    shown = []
    for place, (row, title) in enumerate(chosen):
        if row is None or row in [earlier for earlier, _ in chosen[:place]]:
            continue
        shown.append({"title": title, "own": row is own, **{score: row[score] for score in scores}})
        shown[-1]["n"] = row["n_hidden"]
        for gap in ("behind", "behind_items"):
            shown[-1][gap] = [row.get(f"{gap}{part}") for part in ("", "_error", "_tied")]
    return sorted(shown, key=lambda row: -row["score"] if row["score"] is not None else math.inf)


def _scored(
    model: Model, annotations: Annotations, earlier: Scores, test_size: float, seed: int
) -> list[dict[str, Any]]:
    """Scores of the model, its rivals and all of ``earlier``; none where a rival lacks its features.

    Others on another number of hidden labels would compare unlike things, and are left out. How far one is
    behind the best is known where all have the probabilities of the same labels.
    """
    known = score_rows(earlier)
    own = _own(known, model)
    missing = [with_settings(model, for_comparison(model))] if own is None else []
    for name, _, settings in RIVALS:
        # no more clusters than there are items
        rival = build_model(name, {key: min(value, annotations.n_items) for key, value in settings.items()})
        scored = own if name == name_of(model) else any(row["model"] == name for row in known)
        missing += [rival] if not scored and applies(rival, annotations) else []
    if any(one.uses_features for one in missing) and not carries_features(annotations):
        return []
    if not missing:
        return known
    kept = [row for row in earlier if isinstance(row, HeldOut)]
    if len(kept) < len(earlier):
        # a finished run keeps scores and no probabilities, which pairs need: its few models are asked again
        missing, kept = [*(build_model(row["model"], row["settings"]) for row in known), *missing], []
    found = held_out_scores(annotations, missing, seed, test_size=test_size)
    every = [*kept, *(row for row in found if not kept or row.n_hidden == kept[0].n_hidden)]
    if len({row.item.tobytes() for row in every}) == 1:
        return score_rows(with_gaps(every))
    return [{k: v for k, v in row.items() if not k.startswith("behind")} for row in score_rows(every)]


def _own(known: Sequence[dict[str, Any]], model: Model) -> dict[str, Any] | None:
    """The reported model's own row: the same name, and the same settings as far as they shape the fit."""

    def shaping(settings: Mapping[str, Any]) -> Any:
        return finite(dict(settings) | {"n_jobs": None, "seed": None})

    name, wanted = name_of(model), shaping(model.get_params(deep=False))
    same = (row for row in known if row["model"] == name and shaping(row["settings"]) == wanted)
    return next(same, None)


# ---- gold ---------------------------------------------------------------------------------------------


def gold_decides(model: Model, annotations: Annotations) -> bool:
    """Whether gold has trained the model: then every gold item has its class for sure."""
    items = judged_items(annotations)
    if annotations.gold is None or not len(items):
        return False
    sure = model.label_distributions_[items, annotations.gold[items]] == 1.0
    return model.finds_truth and bool(sure.all())


def gold_content(model: Model, annotations: Annotations, seed: int = 0) -> dict[str, Any] | None:
    """How often the most frequent label and the model's are right, by class; None without gold.

    A model that gold has trained gives every gold item its class for sure. Then each item is judged by a fit
    that saw the gold of others alone; where it was sure without gold, that changes nothing.
    """
    items = judged_items(annotations)
    if not len(items) or annotations.gold is None:
        return None
    gold, P = annotations.gold[items], annotations.n_classes
    crossed = gold_decides(model, annotations)
    chances = cross_fitted(model, annotations, seed=seed) if crossed else model.label_distributions_
    tables = {"raw": annotations.counts.astype(np.float64), "model": chances}
    right = {name: right_rows(annotations, table, items) for name, table in tables.items()}
    found = {name: list(wilson(rows.sum(), len(rows))) for name, rows in right.items()}
    confusion = np.bincount(gold * P + chances[items].argmax(axis=1), minlength=P * P)
    n = np.bincount(gold, minlength=P)
    size = np.where(n > 0, n, np.nan)  # the share right of no item is none
    class_right = {name: np.bincount(gold, rows, minlength=P) / size for name, rows in right.items()}
    return {
        "n": len(items),
        "crossed": crossed,
        **found,
        "words": sentences.gold_sentence(right["raw"], "The most frequent label", found["raw"][1:]),
        "classes": n,
        "class_right": class_right,
        "confusion": confusion.reshape(P, P),
    }


# ---- the worth of a label -----------------------------------------------------------------------------


def worth(model: Model, recovery: Any) -> dict[str, Any]:
    """How many raw labels a refined one stands for, from :func:`dissensus.recover`."""
    ours = [one for one in recovery.results if one.model == repr(model)] or recovery.results
    # The most labels that leave the counts room to need twice as many.
    best = max(ours, key=lambda one: (one.labels_shown <= recovery.pool // 2, one.labels_shown))
    items, draws = sentences.count(recovery.n_items, "item"), sentences.count(recovery.n_draws, "draw")
    measured = {"shown": best.labels_shown, "efficiency": best.efficiency, "pool": recovery.pool}
    return measured | {"words": sentences.worth_words(**measured, how=f"{items}, {draws}")}


# ---- how the fit came about ---------------------------------------------------------------------------


def trace_content(model: Model) -> dict[str, Any] | None:
    """The objective by iteration, thinned where there are very many."""
    trace = np.asarray(model.trace_, dtype=float)
    if len(trace) < 2:
        return None
    places = np.unique(np.linspace(0, len(trace) - 1, min(len(trace), MOST_POINTS)).round().astype(int))
    objective = [float(f"{value:.9g}") for value in trace[places]]
    return {"iteration": places + 1, "objective": objective, "stopped": model.stopped_}


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
    sizes, groups = sorted({size[0] for size in best}), sorted({size[1] for size in best})
    scores = [[best.get((size, group)) for group in groups] for size in sizes]
    winner = _whole(rows[0].get(K)), _whole(rows[0].get(L))
    return {"k": sizes, "l": groups, "scores": scores, "winner": winner, "n": len(rows)}


def _number(value: Any) -> float:
    """A number, perhaps as a file has it; NaN where it is blank."""
    return math.nan if value in (None, "") else float(value)


def _whole(value: Any) -> int:
    """A number of clusters; 1 where the search did not vary it."""
    return 1 if value is None or value == "" or value != value else int(float(value))
