"""The page of comparisons: scores, ranks, and how reliable annotators are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dissensus.evaluate.compare import HeldOut
from dissensus.labels.annotations import Annotations
from dissensus.models.bradley_terry import BradleyTerry
from dissensus.report.plain import heading, interval_chart, page, paragraph, table

UNRELIABLE, LEANS = 0.3, 1.0


def ranking_page(
    model: BradleyTerry,
    annotations: Annotations,
    title: str,
    held_out: Sequence[HeldOut | Mapping[str, Any]] | None,
    command: str,
    anonymise: bool,
) -> str:
    """The whole page as text."""
    blocks = [*_scores(model, annotations), *_annotators(model, annotations, anonymise)]
    return page(title, [*blocks, *_hidden(held_out)], command)


def _scores(model: BradleyTerry, annotations: Annotations) -> list[str]:
    found = model.ranking()
    names = [str(name) for name in found["item"].to_pylist()]
    ties = annotations.class_counts[[str(c) == "tie" for c in annotations.classes]].sum()
    numbers = [found[key].tolist() for key in ("score", "low", "high", "rank_low", "rank_high", "n_labels")]
    said = (
        f"{annotations.n_labels:,} answers by {annotations.n_annotators:,} annotators about {len(names):,} "
        f"things, {ties / annotations.n_labels:.0%} of them ties. A score is the log-odds of being preferred "
        "to a thing of score 0; intervals hold it with 95 %, and so do the ranks beside it."
    )
    return [
        paragraph(said),
        heading("Scores"),
        interval_chart(names, found["score"], found["low"], found["high"], "Scores and their intervals"),
        table(
            ["thing", "score", "low", "high", "best rank", "worst rank", "answers"],
            [list(row) for row in zip(names, *numbers, strict=True)],
        ),
    ]


def _annotators(model: BradleyTerry, annotations: Annotations, anonymise: bool) -> list[str]:
    told, load = model.annotator_frame(), annotations.annotator_load
    order = np.argsort(told["reliability"], kind="stable")
    names = [
        f"annotator {k + 1}" if anonymise else str(annotations.annotators[n]) for k, n in enumerate(order)
    ]
    rows = [
        [
            names[k],
            *(float(told[key][n]) for key in ("reliability", "leaning", "ties")),
            int(load[n]),
            _remark(told, n),
        ]
        for k, n in enumerate(order)
    ]
    said = (
        "Reliability: how closely answers follow the scores (1: as usual, 0: not at all, below 0: the other "
        "way round). Leaning: log-odds in favour of the left side. Ties: readiness to call one."
    )
    columns = ["annotator", "reliability", "leaning", "ties", "answers", "remark"]
    return [heading("Annotators, the least reliable first"), paragraph(said), table(columns, rows)]


def _remark(told: Mapping[str, Any], n: int) -> str:
    if told["reliability"][n] < 0:
        return "answers against the others"
    words = ["answers hardly follow the scores"] if told["reliability"][n] < UNRELIABLE else []
    if abs(told["leaning"][n]) > LEANS:
        words.append(f"leans to the {'left' if told['leaning'][n] > 0 else 'right'}")
    return ", ".join(words)


def _hidden(held_out: Sequence[HeldOut | Mapping[str, Any]] | None) -> list[str]:
    rows = [row.as_row() if isinstance(row, HeldOut) else dict(row) for row in held_out or ()]
    if not rows:
        return []
    cells = [[str(row["model"]), float(row["score"]), float(row["score_items"])] for row in rows]
    said = f"Mean log-probability of {rows[0]['n_hidden']:,} hidden answers; higher is better."
    columns = ["model", "given item and annotator", "given item"]
    return [heading("Hidden answers"), paragraph(said), table(columns, cells)]
