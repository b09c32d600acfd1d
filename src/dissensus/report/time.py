"""When labels were given: how quickly each annotator works, whether they change, and the crowd over time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.annotators.findings import Findings
from dissensus.errors import DataError
from dissensus.numerics import Array

PAUSE = 1800.0  # seconds: a longer gap between two labels is a pause, not work
BINS = 20  # of about the same number of labels, for the crowd over time
FEWEST = 10  # labels in each half of somebody's work, to compare the halves


def time_content(found: Findings, times: Any, order: NDArray[np.intp]) -> dict[str, Any] | None:
    """Pace and drift of every annotator (``people``), and labels and agreement over time."""
    annotations, when = found.annotations, np.asarray(times, dtype=np.float64)
    if len(when) != annotations.n_labels:
        raise DataError(f"{len(when)} times were given for {annotations.n_labels} labels; give one a label")
    known = np.isfinite(when)
    if not known.any():
        return None
    alike = label_agreement(found)
    pace, change, error = paces(annotations, when), *drifts(annotations, when, alike)
    people = {
        "pace": np.round(pace, 1)[order],
        "drift": np.round(change, 3)[order],
        "drift_reach": np.round(1.96 * error, 3)[order],
    }
    return {"people": people, "bins": _bins(when[known], alike[known])}


def label_agreement(found: Findings) -> Array:
    """(labels,): the share of the others' answers to the item that equal the label; NaN: nobody else."""
    annotations, votes = found.annotations, found.votes
    assert votes is not None
    m, p = annotations.item, annotations.label
    cell = annotations.pair * annotations.n_classes + p
    own = np.bincount(cell)[cell] / np.bincount(annotations.pair)[annotations.pair]
    others = votes.table.sum(axis=1)[m] - 1
    same = votes.table[m, p] - own
    share: Array = np.divide(same, others, out=np.full(len(m), np.nan), where=others > 0.5)
    return share


def paces(annotations: Any, when: Array) -> Array:
    """(annotators,): the median seconds from one label to the next, pauses left out; NaN: unknown."""
    rows = np.lexsort((when, annotations.annotator))
    who, gap = annotations.annotator[rows], np.diff(when[rows], prepend=np.nan)
    work = np.append(False, who[1:] == who[:-1]) & (gap <= PAUSE) & (gap >= 0)
    found = np.full(annotations.n_annotators, np.nan)
    for n in np.unique(who[work]):
        found[n] = np.median(gap[work & (who == n)])
    return found


def drifts(annotations: Any, when: Array, alike: Array) -> tuple[Array, Array]:
    """(annotators,) each: agreement in the later half of their labels less the earlier, and its error."""
    change = np.full(annotations.n_annotators, np.nan)
    error = np.full(annotations.n_annotators, np.nan)
    usable = np.flatnonzero(np.isfinite(when) & np.isfinite(alike))
    rows = usable[np.lexsort((when[usable], annotations.annotator[usable]))]
    who = annotations.annotator[rows]
    starts = np.flatnonzero(np.append(True, who[1:] != who[:-1])) if len(who) else np.zeros(0, np.intp)
    for start, stop in zip(starts, np.append(starts[1:], len(who)), strict=True):
        half = (stop - start) // 2
        if half < FEWEST:
            continue
        early, late = alike[rows[start : start + half]], alike[rows[start + half : stop]]
        change[who[start]] = late.mean() - early.mean()
        error[who[start]] = np.sqrt(early.var(ddof=1) / len(early) + late.var(ddof=1) / len(late))
    return change, error


def _bins(when: Array, alike: Array) -> list[dict[str, float]]:
    """Labels in order of time, in bins of one size: when they begin, how many, and how far they agree."""
    order = np.argsort(when, kind="stable")
    parts = [part for part in np.array_split(order, min(BINS, len(order))) if len(part)]
    return [
        {
            "from": float(when[part[0]]),
            "to": float(when[part[-1]]),
            "n": len(part),
            "agreement": float(np.nanmean(alike[part])) if np.isfinite(alike[part]).any() else float("nan"),
        }
        for part in parts
    ]
