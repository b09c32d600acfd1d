"""What does stopping early save, and would it change a choice?

Two places where a fit could be stopped before its end:

* ``fit`` gives CBCC, its candidate of the most iterations, a first look, and stops it where it is far behind
  (``selection/compare.py``). Here every choice is made with that rule and without it.
* ``select`` fits every cell of K × L to its end on the first split, and the ten best go on. Here each cell's
  score is taken after some iterations and in the end: how many cells would have to go on so that the ten best
  of the end are all among them, and how much would be saved?

Run as ``python -m experiments.early_stop [--data DIR] [-o FILE] [--finished FILE]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from dissensus.data.annotations import Annotations
from dissensus.execution.run import Ascent
from dissensus.models import title_of
from dissensus.models.pgm.model import PGM
from dissensus.paper.datasets import read_dataset
from dissensus.paper.tables import line, table
from dissensus.params import key_of, stream_seed
from dissensus.selection import compare
from dissensus.selection.sizes import fits
from experiments.common import Finished, Values, command_line, write_files

COMMAND = "python -m experiments.early_stop"
CHOICES = (
    "weather_sentiment_cf",
    "varierr_nli",
    "snow_wsd",
    "labelme",
    "armis",
    "bluebirds",
    "barzan_ac2",
    "face_sentiment",
    "weather_sentiment_amt",
    "hs_brexit",
    "rte",
    "jq1",
    "jq3",
)
SEEDS = (0, 1)
SEARCHES = {"jq3": range(3, 21), "jq1": range(4, 21, 4), "weather_sentiment_amt": range(4, 21, 4)}
LOOKS, FINALISTS = (10, 15, 20, 30), 10


# ---- CBCC among the candidates of fit -----------------------------------------------------------------


def choices(labels: Annotations, seed: int) -> Values:
    """What is chosen with the first look and without it, and whether that stopped CBCC."""
    shared: dict[str, Any] = {"candidates": compare.FAST_CANDIDATES, "n_jobs": 1, "progress": False}
    stopping = compare.choose_model(labels, seed, **shared)
    with patch.object(compare, "FIRST_LOOK", {}):
        whole = compare.choose_model(labels, seed, **shared)
    return {
        "stopped": [title_of(row.model) for row in stopping.table if not row.whole],
        "chosen": [title_of(stopping.model), title_of(whole.model)],
        "seconds": [sum(row.seconds for row in one.table) for one in (stopping, whole)],
    }


# ---- cells of a search --------------------------------------------------------------------------------


@contextmanager
def states_at(iterations: Sequence[int]) -> Iterator[dict[int, Any]]:
    """The states that a fit passes at some iterations."""
    passed: dict[int, Any] = {}
    advance = Ascent.advance

    def noting(ascent: Ascent[Any], state: Any, objective: float, following: Any) -> Any:
        n = len(ascent.trace) + 1
        if n in iterations:
            passed[n] = state
        return advance(ascent, state, objective, following)

    with patch.object(Ascent, "advance", noting):
        yield passed


def cell_scores(kept: Annotations, hidden: Annotations, K: int, L: int) -> dict[str, float]:
    """The score of one cell after some iterations and in the end, and how many iterations there were."""
    settings = {"n_item_clusters": K, "n_annotator_clusters": L}
    with states_at(LOOKS) as passed:
        model = PGM(K, L, seed=stream_seed(0, key_of(["", settings]), 0), n_jobs=1).fit(kept)
    found = {"iterations": float(len(model.trace_)), "end": float(model.score(hidden))}
    for n in LOOKS:
        if n in passed:
            state = passed[n]
            model._keep(state.learned.parameters, state.beliefs.w, state.beliefs.z)
            model.population_weights_ = model._weights(kept.annotator_load)
        found[str(n)] = float(model.score(hidden)) if n in passed else found["end"]
    return found


def cells(labels: Annotations, sizes: range) -> Values:
    """The scores of every cell of a search on its first split."""
    kept, hidden = labels.split_labels(0.2, 0)
    grid = [(K, L) for K in sizes for L in sizes]
    fitting = [(K, L) for K, L in grid if fits({"n_item_clusters": K, "n_annotator_clusters": L}, labels)]
    return {"cells": [cell_scores(kept, hidden, K, L) for K, L in fitting]}


def saved(found: Values, look: int) -> tuple[float, float]:
    """The share of cells that would have to go on after a look, and of the iterations that this leaves.

    All cells go on whose score at the look is no lower than that of any of the ten that are best in the end;
    they go on from where they are.
    """
    rows = found["cells"]
    end, early, n = (np.array([row[name] for row in rows]) for name in ("end", str(look), "iterations"))
    best = np.argsort(-end)[:FINALISTS]
    on = early >= early[best].min()
    spent = np.where(on, n, np.minimum(n, look)).sum()
    return float(on.mean()), float(spent / n.sum())


# ---- the page -----------------------------------------------------------------------------------------


def page(chosen: Sequence[tuple[str, int, Values]], searched: Sequence[tuple[str, Values]]) -> str:
    """The page of both."""
    same = [found["chosen"][0] == found["chosen"][1] for *_, found in chosen]
    stopped = [bool(found["stopped"]) for *_, found in chosen]
    spent = np.sum([found["seconds"] for *_, found in chosen], axis=0)
    choice_lines = [
        line(dataset, seed, "yes" if found["stopped"] else "no", *found["chosen"])
        for dataset, seed, found in chosen
    ]
    search_lines = [
        line(dataset, len(found["cells"]), look, *(f"{share:.0%}" for share in saved(found, look)))
        for dataset, found in searched
        for look in LOOKS
    ]
    return "\n".join(
        [
            "# Stopping early",
            "",
            f"Written by `{COMMAND}`: every figure is computed by that command.",
            "",
            "## CBCC among the candidates of `fit --fast`",
            "",
            f"The choice was the same in {sum(same)} of {len(same)} cases; CBCC was stopped early in",
            f"{sum(stopped)} of them. All candidates took {spent[0]:.0f} seconds with the rule and",
            f"{spent[1]:.0f} without it.",
            "",
            table(["dataset", "seed", "stopped", "chosen with the rule", "chosen without it"], choice_lines),
            "",
            "## Cells of a search over K × L",
            "",
            "PGM by belief propagation, every cell on the first split. After so many iterations: the share",
            "of cells that would have to go on so that none of the ten best of the end is lost (known only",
            "afterwards: a rule fixed beforehand would have to keep more), and the share of all iterations",
            "that would still be made, where cells go on from where they are. `select` stops no cell early.",
            "",
            table(["dataset", "cells", "iterations", "go on", "iterations made"], search_lines),
            "",
        ]
    )


def labels_of(folder: Path, dataset: str) -> Annotations:
    """The labels of a dataset; of the paper's, those of the training items."""
    labels = read_dataset(folder / dataset)
    return labels.split_items()["train"] if dataset.startswith("jq") else labels


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both and write the page."""
    parser = command_line(COMMAND, "stopping early", "docs/results/early_stop.md", finished=True)
    options = parser.parse_args(arguments)
    finished = Finished(options.finished)
    chosen = [
        (
            dataset,
            seed,
            finished.measured(
                f"choice {dataset} {seed}", partial(choices, labels_of(options.data, dataset), seed)
            ),
        )
        for dataset in CHOICES
        for seed in SEEDS
    ]
    searched = [
        (
            dataset,
            finished.measured(f"search {dataset}", partial(cells, labels_of(options.data, dataset), sizes)),
        )
        for dataset, sizes in SEARCHES.items()
    ]
    write_files(options.output, page(chosen, searched))


if __name__ == "__main__":
    main()
