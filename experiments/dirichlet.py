"""What do the Dirichlet parameters change? α, γ and τ of PGM in a search, as the paper wishes for.

The paper has α = γ = τ = 2 everywhere. Here each takes several values, at the paper's K × L, by
``dissensus.select``: fitted to the labels that are shown, judged by −log P(label | item, annotator) of hidden
labels. The winner is then asked for labels of splits that the search has not used, beside the paper's values.

Run as ``python -m experiments.dirichlet [--data DIR] [-o FILE]``; it writes the page of results.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dissensus._version import __version__
from dissensus.evaluate.bootstrap import Interval, bootstrap_mean
from dissensus.evaluate.select import CellScores, select
from dissensus.labels.annotations import Annotations
from dissensus.metrics import log_probability_rows
from dissensus.models.pgm.model import PGM
from dissensus.numerics import Array
from experiments.common import write_page
from reproduction.datasets import read_dataset
from reproduction.printed import PAPER_SETS, TABLE_2
from reproduction.tables import line, table

COMMAND = "python -m experiments.dirichlet"
PAPER = 2.0
GRID = {"alpha": (1.1, 1.5, 2.0, 3.0), "gamma": (1.1, 2.0, 5.0), "tau": (1.1, 2.0, 5.0)}
SEARCHED: dict[str, Any] = {"test_size": 0.2, "repeats": 3, "finalists": 4, "seed": 0}
FRESH = range(100, 105)  # seeds of the splits on which the winner is judged

PAGE = """# The Dirichlet parameters, searched

Written by `{command}` (dissensus {version}): every figure is computed by that command.

The paper takes α = γ = τ = 2 and wishes for a search. Here `dissensus.select` tries {cells} combinations
(α: {alpha}; γ: {gamma}; τ: {tau}) at the paper's K × L, belief propagation: every one on one split of the
labels, the best {finalists} on {repeats}. Then the winner and the paper's values are fitted to {fresh} fresh
splits, a fifth of the (item, annotator) pairs hidden: −log P(label | item, annotator) in nats per hidden
label, lower is better, the difference with its 95 % bootstrap interval over items. One setting moved alone
shows what it does on the split of the search.

{rows}

On the split of the search, the others left at 2:

{alone}
"""


def losses(labels: Annotations, sizes: tuple[int, int], settings: dict[str, Any]) -> tuple[Array, Array]:
    """−log P of every hidden label of the fresh splits, and its item."""
    rows, items = [], []
    for seed in FRESH:
        shown, hidden = labels.split_labels(SEARCHED["test_size"], seed=seed)
        model = PGM(*sizes, seed=seed, n_jobs=1, **settings).fit(shown)
        ids, people = hidden.items[hidden.item], hidden.annotators[hidden.annotator]
        rows.append(-log_probability_rows(model.predict_proba(ids, people), hidden.label))
        items.append(labels.item_vocabulary.codes(hidden.item_vocabulary)[hidden.item])
    return np.concatenate(rows), np.concatenate(items)


def compared(name: str, labels: Annotations) -> tuple[str, list[str]]:
    """A dataset's line, and what each setting does alone."""
    printed = TABLE_2["bp"][name]
    sizes = printed.item_clusters, printed.annotator_clusters or 1
    found = select(
        labels, PGM(*sizes, n_jobs=1), GRID, refit=False, references={}, n_jobs=1, progress=False, **SEARCHED
    )
    winner = dict(found.params)
    chosen, items = losses(labels, sizes, winner)
    paper, _ = losses(labels, sizes, dict.fromkeys(GRID, PAPER))
    difference: Interval = bootstrap_mean(chosen - paper, items=items)
    told = line(
        *(name, f"{sizes[0]} × {sizes[1]}", *(f"{winner[one]:g}" for one in GRID)),
        *(f"**{chosen.mean():.4f}**", f"{paper.mean():.4f}"),
        f"{difference.value:+.4f} ({difference.low:+.4f} to {difference.high:+.4f})",
    )
    return told, [line(name, one, *_moved(found.cells, one)) for one in GRID]


def _moved(cells: Sequence[CellScores], moved: str) -> list[str]:
    """−log P on the first split at the smallest value of a setting, at the paper's, and at the largest."""
    ends = min(GRID[moved]), PAPER, max(GRID[moved])
    wanted = [dict.fromkeys(GRID, PAPER) | {moved: value} for value in ends]
    scores = [next(one for one in cells if dict(one.settings) == settings) for settings in wanted]
    return [f"{value:g}: {-score.scores[0]:.4f}" for value, score in zip(ends, scores, strict=True)]


def page(data: Path) -> str:
    """The search on each of the paper's datasets."""
    found = [compared(name, read_dataset(data / name)) for name in PAPER_SETS]
    head = ("dataset", "K × L", "α", "γ", "τ", "−log P, chosen", "all 2", "difference")
    return PAGE.format(
        command=COMMAND,
        version=__version__,
        cells=int(np.prod([len(values) for values in GRID.values()])),
        finalists=SEARCHED["finalists"],
        repeats=SEARCHED["repeats"],
        fresh=len(FRESH),
        rows=table(head, [told for told, _ in found]),
        alone=table(
            ("dataset", "setting", "smallest", "2", "largest"), [row for _, some in found for row in some]
        ),
        **{name: ", ".join(f"{value:g}" for value in values) for name, values in GRID.items()},
    )


if __name__ == "__main__":
    write_page(COMMAND, "The Dirichlet parameters, searched.", page, "docs/results/dirichlet.md")
