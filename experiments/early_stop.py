"""What does stopping early save, and would it change a choice?

Two places where a fit could be stopped before its end:

* ``fit`` gives CBCC, its candidate of the most iterations, a first look, and stops it where it is far behind
  (``selection/compare.py``). Here every choice is made with that rule and without it.
* ``select`` looks at the cells of a large grid after some iterations and lets the best of them go on
  (``selection/race.py``). Here every search is made with looks, and then without: what is chosen, and how
  many of the ten finalists are the same?

Run as ``python -m experiments.early_stop [--data DIR] [-o FILE] [--finished FILE]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

from dissensus.evaluate import compare, search
from dissensus.evaluate.race import FAR, FEWEST, LOOKS
from dissensus.evaluate.select import select
from dissensus.evaluate.selection import CellScores
from dissensus.labels.annotations import Annotations
from dissensus.models import title_of
from dissensus.models.pgm.model import PGM
from experiments.common import Finished, Values, command_line, write_files
from reproduction.datasets import read_dataset
from reproduction.tables import line, table

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
FINALISTS = 10
Found = tuple[str, int, Values]  # dataset, seed, and what came of it
WHOLE, HALF = range(3, 21), range(3, 21, 2)
# When to look, and what counts as far, were set by first splits of these with seeds 0 to 3; how few labels
# are too few, by the small ones, with any seed.
HAD_A_SAY = (
    "jq1",
    "jq2",
    "jq3",
    "face_sentiment",
    "rte",
    "gwsd",
    "barzan_ac2",
    "product",
    "weather_sentiment_amt",
    "web_search",
    "zencrowd",
)
SEARCHES = (
    ("jq1", HALF, (0, 1, 5)),
    ("jq2", HALF, (0, 1, 5)),
    ("jq3", WHOLE, (0, 1, 5)),
    ("face_sentiment", HALF, (0, 1, 5)),
    ("rte", HALF, (0, 5)),
    ("gwsd", HALF, (0, 2, 5)),
    ("barzan_ac2", HALF, (5,)),
    ("product", HALF, (5,)),
    ("weather_sentiment_amt", HALF, (5,)),
    ("web_search", HALF, (5,)),
    ("zencrowd", HALF, (5,)),
    ("nli_variation", HALF, (0, 1)),
    ("offensive_spans", HALF, (0, 1)),
    ("tweet_possent", HALF, (0, 1)),
)
# Of fewer labels than FEWEST: here cells are stopped, to see what that would lose.
SMALL = (
    ("snow_wsd", HALF, (0, 1, 5)),
    ("weather_sentiment_cf", HALF, (0, 1)),
    ("labelme", HALF, (0, 5)),
    ("xhate_stability", HALF, (0, 5)),
    ("bluebirds", HALF, (0, 1)),
)


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


def searched(labels: Annotations, sizes: range, seed: int) -> Values:
    """What a search finds with looks, and what it finds where every cell is fitted to its end.

    The second goes on in the first one's directory: what that has fitted to the end need not be fitted again.
    Cells are stopped here however few labels there are.
    """
    grid = {"n_item_clusters": sizes, "n_annotator_clusters": sizes}
    shared: dict[str, Any] = {"seed": seed, "references": {}, "refit": False, "n_jobs": 1, "progress": False}
    with TemporaryDirectory() as place:
        with patch.object(search, "FEWEST", 0):
            looked = select(PGM(), labels, grid, directory=place, **shared)
        with patch.object(search, "races", lambda *_: False):
            whole = select(PGM(), labels, grid, directory=place, **shared)
    # Finalists without looks are the ten best on the first split, whoever else was tried on further ones.
    by_first = sorted(whole.cells, key=lambda cell: -cell.scores[0])[:FINALISTS]
    own = [cell for cell in looked.cells if cell.repeats > 1]
    winners = [max(cells, key=lambda cell: cell.score) for cells in (own, by_first)]
    return {
        "cells": len(whole.cells),
        "stopped": sum(cell.look is not None for cell in looked.cells),
        "chosen": [sizes_of(cell) for cell in winners],
        "scores": [cell.score for cell in winners],
        "finalists": [len({str(cell) for cell in own} & {str(cell) for cell in by_first}), len(by_first)],
    }


def sizes_of(cell: CellScores) -> str:
    """K × L."""
    return "{n_item_clusters} × {n_annotator_clusters}".format(**cell.settings)


# ---- the page -----------------------------------------------------------------------------------------


def page(chosen: Sequence[Found], looked: Sequence[Found], small: Sequence[Found]) -> str:
    """The page of both."""
    same = [found["chosen"][0] == found["chosen"][1] for *_, found in chosen]
    stopped = [bool(found["stopped"]) for *_, found in chosen]
    spent = np.sum([found["seconds"] for *_, found in chosen], axis=0)
    choice_lines = [
        line(dataset, seed, "yes" if found["stopped"] else "no", *found["chosen"])
        for dataset, seed, found in chosen
    ]
    unseen = [one for one in looked if say(*one[:2]) == "none"]
    other_seeds = [one for one in looked if say(*one[:2]) == "other seeds"]
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
            "PGM by belief propagation. Cells are looked at after",
            f"{', '.join(map(str, LOOKS))} iterations; one that is then behind the tenth best by more than",
            f"{FAR} / iterations nats a label is stopped. Below is what is chosen in this way, and what is",
            f"chosen where no cell is stopped: {alike(looked)}.",
            "",
            "When to look and what counts as far were set by first splits with seeds 0 to 3 of some of the",
            f"data. On data that had no say in it, what is chosen is {alike(unseen)}; with other",
            f"seeds, {alike(other_seeds)}.",
            "",
            "A finalist is one of the ten cells that are tried on further splits. Scores are means over five",
            "splits, in nats a label.",
            "",
            searches_table(looked),
            "",
            f"### Where there are fewer than {FEWEST:,} labels",
            "",
            "`select` stops no cell here, by what is seen below. If it did, what is chosen would be",
            f"{alike(small)}.",
            "",
            searches_table(small),
            "",
        ]
    )


def alike(looked: Sequence[Found]) -> str:
    """In how many searches the choice was the same, what is lost at worst, and how many finalists."""
    same = [found["chosen"][0] == found["chosen"][1] for *_, found in looked]
    lost = sum(FINALISTS - found["finalists"][0] for *_, found in looked)
    worst = max(found["scores"][1] - found["scores"][0] for *_, found in looked)
    lines = [
        "the same",
        f"in {sum(same)} of {len(same)} searches (at worst {max(worst, 0.0):.4f} nats lost; {lost} of",
        f"{FINALISTS * len(same)} finalists stopped)",
    ]
    return "\n".join(lines)


def searches_table(looked: Sequence[Found]) -> str:
    """A line for every search."""
    head = ["dataset", "seed", "its say", "cells", "stopped", "same finalists"]
    lines = [
        line(
            dataset,
            seed,
            say(dataset, seed),
            found["cells"],
            found["stopped"],
            f"{found['finalists'][0]} of {found['finalists'][1]}",
            *(f"{size} ({score:.4f})" for size, score in zip(found["chosen"], found["scores"], strict=True)),
        )
        for dataset, seed, found in looked
    ]
    return table([*head, "chosen with looks", "chosen without"], lines)


def say(dataset: str, seed: int) -> str:
    """What a search had to say when the rule was set: its first split, other seeds of the data, or none."""
    if dataset in {name for name, *_ in SMALL}:
        return "how few are too few"
    return "none" if dataset not in HAD_A_SAY else "other seeds" if seed > 3 else "first split"


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
    looked, small = (
        [
            (
                dataset,
                seed,
                finished.measured(
                    f"looks {LOOKS} {FAR} {dataset} {seed}",
                    partial(searched, labels_of(options.data, dataset), sizes, seed),
                ),
            )
            for dataset, sizes, seeds in searches
            for seed in seeds
        ]
        for searches in (SEARCHES, SMALL)
    )
    write_files(options.output, page(chosen, looked, small))


if __name__ == "__main__":
    main()
