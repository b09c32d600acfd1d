"""How good the model is, and how the fit came about.

Hidden labels foreseen, and how far each model is behind the best, with standard errors; what a refined label
is worth in raw ones, where that was measured; the search over K and L where one was run, and the trace.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dissensus.annotators import sentences
from dissensus.evaluate.compare import FOR_COMPARISON, HeldOut, applies, compare, with_gaps
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import carries_features
from dissensus.models import build_model, name_of, title_of
from dissensus.models.base import Model
from dissensus.params import with_settings
from dissensus.progress import Progress

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


def quality_content(
    model: Model,
    annotations: Annotations,
    *,
    held_out: Sequence[HeldOut | Mapping[str, Any]] | None,
    recovery: Any,
    test_size: float,
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    """The comparison on hidden labels, and what a refined label is worth where that was measured."""
    progress("comparing on hidden labels", 0.5)
    return {
        "held_out": held_out_table(model, annotations, held_out, test_size, seed),
        "worth": None if recovery is None else worth(model, recovery),
    }


# ---- hidden labels ------------------------------------------------------------------------------------


def held_out_table(
    model: Model,
    annotations: Annotations,
    given: Sequence[HeldOut | Mapping[str, Any]] | None,
    test_size: float,
    seed: int,
) -> list[dict[str, Any]]:
    """The reported model beside counts, FMM, Dawid–Skene and whatever foresees best, best first.

    ``given`` are the scores that a run already has (the best settings of each rival count); whoever is
    missing is scored here on the same hidden labels. An empty ``given`` means that none were hidden.
    """
    if given is not None and not given:
        return []
    if round(test_size * annotations.n_pairs) < FEWEST_HIDDEN:
        return []
    earlier = list(given or ())
    known = [row.as_row() if isinstance(row, HeldOut) else dict(row) for row in earlier]
    missing = [rival for rival in _contenders(model, annotations) if not _scored(rival, known, model)]
    if any(model.uses_features for model in missing) and not carries_features(annotations):
        return []
    if missing and not all(isinstance(row, HeldOut) for row in earlier):
        # a finished run keeps scores and no probabilities, which pairs need: its few models are asked again
        missing = [*(build_model(row["model"], row["settings"]) for row in known), *missing]
        earlier = []
    if missing:
        known = _together(earlier, compare(annotations, missing, seed, test_size=test_size))
    own = _own(known, model)
    rivals = [(_best(known, name), title) for name, title, _ in RIVALS]
    others = [(row, title_of(build_model(row["model"], row["settings"]))) for row in _first(known)]
    shown = [
        {
            "title": title,
            "own": row is own,
            "score": row["score"],
            "score_items": row["score_items"],
            "n": row["n_hidden"],
            "behind": [row.get(f"behind{part}") for part in ("", "_error", "_tied")],
            "behind_items": [row.get(f"behind_items{part}") for part in ("", "_error", "_tied")],
        }
        for row, title in _distinct([(own, title_of(model)), *rivals, *others])
    ]
    return sorted(shown, key=lambda row: -row["score"] if row["score"] is not None else math.inf)


def _contenders(model: Model, annotations: Annotations) -> list[Model]:
    rivals = [build_model(name, _fitting(settings, annotations)) for name, _, settings in RIVALS]
    fresh = with_settings(model, dict(FOR_COMPARISON.get(name_of(model), {})))
    return [fresh, *(rival for rival in rivals if applies(rival, annotations))]


def _fitting(settings: Mapping[str, Any], annotations: Annotations) -> dict[str, Any]:
    """No more clusters than there are items."""
    return {name: min(value, annotations.n_items) for name, value in settings.items()}


def _scored(rival: Model, known: Sequence[dict[str, Any]], model: Model) -> bool:
    name = name_of(rival)
    if name == name_of(model):
        return _own(known, model) is not None
    return any(row["model"] == name for row in known)


def _own(known: Sequence[dict[str, Any]], model: Model) -> dict[str, Any] | None:
    """The reported model's own row: the same name, and the same settings as far as they shape the fit."""
    from dissensus.tables.results import finite

    def shaping(settings: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in finite(dict(settings)).items() if key not in ("n_jobs", "seed")}

    wanted = shaping(model.get_params(deep=False))
    same = [row for row in known if row["model"] == name_of(model) and shaping(row["settings"]) == wanted]
    return same[0] if same else None


def _best(known: Sequence[dict[str, Any]], name: str) -> dict[str, Any] | None:
    rows = [row for row in known if row["model"] == name and row["score"] is not None]
    return max(rows, key=lambda row: row["score"]) if rows else None


def _first(known: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that foresee best, given the annotator and not: those that others are said to be behind."""
    scores = ("score", "score_items")
    whole = [row for row in known if None not in [row[score] for score in scores]]
    return [max(whole, key=lambda row: row[score]) for score in scores if whole]


def _together(
    earlier: Sequence[HeldOut | Mapping[str, Any]], found: Sequence[HeldOut]
) -> list[dict[str, Any]]:
    """Rows of two comparisons on as many hidden labels; others would compare unlike things.

    How far one is behind the best is known where both have the probabilities of the same labels.
    """
    alike = [row for row in found if not earlier or row.n_hidden == _n_hidden(earlier[0])]
    both = [row for row in (*earlier, *alike) if isinstance(row, HeldOut)]
    if len(both) == len(earlier) + len(alike) and len({_hidden_items(row) for row in both}) == 1:
        return [row.as_row() for row in with_gaps(both)]
    rows = [row.as_row() if isinstance(row, HeldOut) else dict(row) for row in (*earlier, *alike)]
    return [{key: value for key, value in row.items() if not key.startswith("behind")} for row in rows]


def _hidden_items(row: HeldOut) -> bytes:
    return b"" if row.item is None else row.item.tobytes()


def _n_hidden(row: HeldOut | Mapping[str, Any]) -> int:
    return row.n_hidden if isinstance(row, HeldOut) else int(row["n_hidden"])


def _distinct(rows: Sequence[tuple[dict[str, Any] | None, str]]) -> list[tuple[dict[str, Any], str]]:
    """Rows with their titles, without gaps, each once."""
    found: list[tuple[dict[str, Any], str]] = []
    for row, title in rows:
        if row is not None and all(row is not one and row != one for one, _ in found):
            found.append((row, title))
    return found


# ---- the worth of a label -----------------------------------------------------------------------------


def worth(model: Model, recovery: Any) -> dict[str, Any]:
    """How many raw labels a refined one stands for, from :func:`dissensus.recover`."""
    ours = [one for one in recovery.results if one.model == repr(model)] or recovery.results
    # The most labels that leave the counts room to need twice as many.
    best = max(ours, key=lambda one: (one.labels_shown <= recovery.pool // 2, one.labels_shown))
    items, draws = sentences.count(recovery.n_items, "item"), sentences.count(recovery.n_draws, "draw")
    return _worth(best.labels_shown, best.efficiency, recovery.pool, f"{items}, {draws}")


def _worth(shown: int, efficiency: float, pool: int, how: str) -> dict[str, Any]:
    return {
        "shown": shown,
        "efficiency": efficiency,
        "pool": pool,
        "words": sentences.worth_words(shown, efficiency, pool, how),
    }


# ---- how the fit came about ---------------------------------------------------------------------------


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
