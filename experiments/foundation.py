"""How well clustering items describes labels: FMM on the paper's data, against bounds and against counts.

Two questions, each asked of the job-related tweets (jq1, jq2, jq3):

* *Description.* How far is an item's empirical distribution from that of its most likely cluster? Training
  items only, with the paper's number of clusters: what its Table 2 reports.
* *Prediction.* A fifth of the (item, annotator) pairs is hidden. How probable are the hidden labels? FMM
  stands against the items' own counts, smoothed by the strength that in hindsight predicts the hidden labels
  best: an opponent that has seen the answers.

Run as ``python -m experiments.foundation [--data DIR] [-o FILE]``; it writes the page of results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dissensus._version import __version__
from dissensus.labels.annotations import Annotations
from dissensus.models.counting import GRID, EmpiricalDistribution
from dissensus.models.fmm import FMM
from experiments.common import write_page
from reproduction.datasets import read_dataset
from reproduction.measures import HIDDEN_SHARE, cluster_divergence
from reproduction.tables import line, table, yes

COMMAND = "python -m experiments.foundation"


@dataclass(frozen=True)
class PaperSet:
    """One of the paper's datasets, its number of clusters there, and what its Table 2 prints."""

    name: str
    n_item_clusters: int
    bound: float  # the KL we ask of ourselves
    printed: float  # the KL in the paper's Table 2


PAPER_SETS = (
    PaperSet("jq1", 14, bound=0.18, printed=0.193),
    PaperSet("jq2", 7, bound=0.165, printed=0.170),
    PaperSet("jq3", 35, bound=0.32, printed=0.269),
)
SEEDS = range(3)
SPLITS = range(5)
HELD_OUT_CLUSTERS = 30
LEAST_MARGIN = 0.04  # nats per label by which FMM should beat the counts


@dataclass(frozen=True)
class HeldOut:
    """−log P(hidden label | item), nats per label, on one split."""

    fmm: float
    hindsight: float  # counts with the strength that predicts the hidden labels best
    foresight: float  # counts with the strength that leave-one-out chose on the training part

    @property
    def margin(self) -> float:
        """By how much FMM beats the counts that had hindsight."""
        return self.hindsight - self.fmm


def held_out(annotations: Annotations, split: int) -> HeldOut:
    """Hide a fifth of the pairs, fit on the rest, and score what was hidden."""
    train, hidden = annotations.split_labels(HIDDEN_SHARE, seed=split)

    def counts(strength: float | None) -> float:
        return -EmpiricalDistribution(strength).fit(train).score_items(hidden)

    fmm = FMM(HELD_OUT_CLUSTERS, seed=split).fit(train)
    return HeldOut(-fmm.score_items(hidden), min(counts(s) for s in GRID), counts(None))


def description_row(one: PaperSet, annotations: Annotations) -> str:
    """One dataset's line of the first table."""
    train = annotations.split_items()["train"]
    sizes = {"n_item_clusters": one.n_item_clusters}
    values = [cluster_divergence(train, "fmm", sizes, seed) for seed in SEEDS]
    mean = float(np.mean(values))
    each = ", ".join(f"{value:.3f}" for value in values)
    return line(
        *(one.name, one.n_item_clusters, f"**{mean:.3f}**", each, f"{one.bound:.3f}", f"{one.printed:.3f}"),
        yes(mean <= one.bound),
    )


def prediction_row(one: PaperSet, annotations: Annotations) -> str:
    """One dataset's line of the second table."""
    splits = [held_out(annotations, split) for split in SPLITS]
    fmm, hindsight, foresight, margin = (
        float(np.mean([getattr(split, name) for split in splits]))
        for name in ("fmm", "hindsight", "foresight", "margin")
    )
    least = min(split.margin for split in splits)
    return line(
        *(one.name, f"**{fmm:.3f}**", f"{hindsight:.3f}", f"{foresight:.3f}"),
        *(f"**{margin:.3f}**", f"{least:.3f}", yes(margin >= LEAST_MARGIN)),
    )


PAGE = """# The foundation, measured

Written by `{command}` (dissensus {version}): every measured figure is
computed by that command. Equations: [the mathematics](../mathematics.md), sections 5, 6, A and B.

## Describing the labels that were seen

FMM on the training items, with the paper's number of clusters K: KL(empirical ‖ distribution of the item's
most likely cluster), 1e-5 added to both sides, mean of {n_seeds} seeds. It tends to fall as K grows: it says
how well the fit climbs, not how well it generalises.

{description}

## Predicting labels that were hidden

{share:.0%} of the (item, annotator) pairs hidden with all their labels; −log P(label | item) in nats per
hidden label (lower is better), mean of {n_splits} splits. FMM has K = {clusters}. The counts are smoothed
additively: once with the best of {n_strengths} strengths *in hindsight*, chosen on the hidden labels
themselves, split by split; once with the strength that leave-one-out likelihood chose on the training part,
as `EmpiricalDistribution` does unasked. The margin is FMM's lead over the first; at least {least_margin} is
asked for.

{prediction}
"""

DESCRIPTION_HEAD = (
    "dataset",
    "K",
    "KL, mean",
    "each seed",
    "bound",
    "the paper's Table 2",
    "within the bound",
)
PREDICTION_HEAD = (
    *("dataset", "FMM", "counts, in hindsight", "counts, leave-one-out"),
    *("margin, mean", "margin, least", "margin large enough"),
)


def page(data: Path) -> str:
    """The whole page of results, from the datasets in ``data``."""
    sets = {one: read_dataset(data / one.name) for one in PAPER_SETS}
    return PAGE.format(
        command=COMMAND,
        version=__version__,
        n_seeds=len(SEEDS),
        n_splits=len(SPLITS),
        share=HIDDEN_SHARE,
        clusters=HELD_OUT_CLUSTERS,
        n_strengths=len(GRID),
        least_margin=LEAST_MARGIN,
        description=table(DESCRIPTION_HEAD, [description_row(*pair) for pair in sets.items()]),
        prediction=table(PREDICTION_HEAD, [prediction_row(*pair) for pair in sets.items()]),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page, whole or not at all."""
    write_page(COMMAND, "FMM on the paper's data", page, "docs/results/foundation.md", arguments)


if __name__ == "__main__":
    main()
