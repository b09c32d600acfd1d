"""The graphical models on the paper's data and beyond: each measure against its bound.

* *Hidden labels.* A fifth of the (item, annotator) pairs hidden, five splits: −log P(label | item, annotator)
  of PGM against Dawid–Skene and FMM, each with its best setting in hindsight.
* *The paper's Table 2.* KL(empirical ‖ distribution of the most likely cluster) on the training items.
* *Recovering the population.* Few labels shown, the rest reserved: who comes closest?

Run as ``python -m experiments.graphical [--data DIR] [-o FILE]``; it writes the page of results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from dissensus._version import __version__
from dissensus.evaluate.recovery import Recovery, recover
from dissensus.labels.annotations import Annotations
from dissensus.models.base import Model
from dissensus.models.dawid_skene import DawidSkene
from dissensus.models.fmm import FMM
from dissensus.models.pgm.model import PGM
from experiments.common import write_page
from reproduction.datasets import read_dataset
from reproduction.measures import HIDDEN_SHARE, cluster_divergence
from reproduction.tables import line, table, yes

COMMAND = "python -m experiments.graphical"

SPLITS = range(5)
SEEDS = range(3)
STRENGTHS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
FMM_CLUSTERS = (10, 20, 30, 40)
SIZE = (20, 20)
DRAWS = 5


@dataclass(frozen=True)
class PaperSet:
    """One of the paper's datasets: margins asked for, the paper's K × L and what its Table 2 prints."""

    name: str
    over_dawid_skene: float
    over_fmm: float
    bp: tuple[int, int]
    bp_bound: float
    bp_printed: float
    annealing: tuple[int, int]
    annealing_bound: float
    annealing_printed: float


PAPER_SETS = (
    PaperSet("jq1", 0.03, 0.22, (10, 12), 0.24, 0.523, (4, 4), 0.265, 0.651),
    PaperSet("jq2", 0.04, 0.12, (8, 12), 0.195, 0.906, (6, 5), 0.220, 0.889),
    PaperSet("jq3", 0.05, 0.13, (12, 11), 0.43, 1.190, (14, 9), 0.425, 1.389),
)


@dataclass(frozen=True)
class Population:
    """A dataset with many labels per item, and by how much PGM should beat FMM and the counts at R = 4."""

    name: str
    below_fmm: float
    below_counts: float


POPULATIONS = (Population("nli_variation", 0.06, 0.20), Population("tweet_sensitivity", 0.01, 0.10))
WITHIN = 0.05  # how close vb 20 × 20 should come to the best K × L of any inference at R = 2
SIZES = ((6, 4), (12, 8), SIZE)


# ---- hidden labels ------------------------------------------------------------------------------------


def hidden_loss(make: Callable[[int], Model], annotations: Annotations) -> float:
    """Mean over the splits of −log P(hidden label | item, annotator)."""
    losses = []
    for split in SPLITS:
        train, hidden = annotations.split_labels(HIDDEN_SHARE, seed=split)
        losses.append(-make(split).fit(train).score(hidden))
    return float(np.mean(losses))


def best_setting(
    make: Callable[[float, int], Model], values: Sequence[float], annotations: Annotations
) -> tuple[float, float]:
    """The lowest loss among some values of a setting, and the value: chosen in hindsight."""
    return min((hidden_loss(partial(make, value), annotations), value) for value in values)


def hidden_row(one: PaperSet, annotations: Annotations) -> str:
    """One dataset's line: PGM, and the best settings of Dawid–Skene and FMM in hindsight."""
    pgm = hidden_loss(lambda split: PGM(*SIZE, seed=split), annotations)
    dawid_skene, strength = best_setting(lambda value, _: DawidSkene(smoothing=value), STRENGTHS, annotations)
    fmm, clusters = best_setting(lambda K, split: FMM(int(K), seed=split), FMM_CLUSTERS, annotations)
    margins = dawid_skene - pgm, fmm - pgm
    return line(
        *(one.name, f"**{pgm:.3f}**"),
        *(f"{dawid_skene:.3f} ({strength:g})", f"**{margins[0]:.3f}**", one.over_dawid_skene),
        *(f"{fmm:.3f} ({clusters:g})", f"**{margins[1]:.3f}**", one.over_fmm),
        yes(margins[0] >= one.over_dawid_skene and margins[1] >= one.over_fmm),
    )


# ---- the paper's Table 2 ------------------------------------------------------------------------------


def cluster_rows(one: PaperSet, annotations: Annotations) -> list[str]:
    """One dataset's two lines: belief propagation and annealing, with the paper's K × L."""
    train = annotations.split_items()["train"]
    rows = []
    for inference in ("bp", "annealing"):
        K, L = getattr(one, inference)
        sizes = {"n_item_clusters": K, "n_annotator_clusters": L}
        values = [cluster_divergence(train, inference, sizes, seed) for seed in SEEDS]
        mean, bound = float(np.mean(values)), getattr(one, f"{inference}_bound")
        each = ", ".join(f"{value:.3f}" for value in values)
        printed = f"{getattr(one, f'{inference}_printed'):.3f}"
        rows.append(
            line(
                one.name, inference, f"{K} × {L}", f"**{mean:.3f}**", each, bound, printed, yes(mean <= bound)
            )
        )
    return rows


# ---- recovering the population ------------------------------------------------------------------------


def recovered(annotations: Annotations) -> Recovery:
    """FMM and PGM of several sizes, shown two and four labels per item."""
    models = {
        "FMM": [FMM(K) for K in (6, 12)],
        "PGM bp": [PGM(K, L) for K, L in SIZES],
        "PGM vb": [PGM(K, L, inference="vb") for K, L in SIZES],
        "PGM vb 20×20": [PGM(*SIZE, inference="vb")],
    }
    return recover(annotations, models, labels_shown=(2, 4), n_draws=DRAWS)


def recovery_rows(population: Population, recovery: Recovery) -> list[str]:
    """R = 4: the best PGM against FMM's best and the best-smoothed counts."""
    names = ("PGM bp", "PGM vb")
    best = min((recovery.best(name, 4) for name in names), key=lambda one: one.kl.value)
    fmm, counts = recovery.best("FMM", 4).kl.value, recovery.counts[3].kl.value
    below_fmm, below_counts = 1 - best.kl.value / fmm, 1 - best.kl.value / counts
    kept = below_fmm >= population.below_fmm and below_counts >= population.below_counts
    return [
        line(
            *(population.name, best.model, f"**{best.kl.value:.4f}**", f"{recovery.floor:.4f}"),
            *(f"{fmm:.4f}", f"**{below_fmm:.1%}**", f"{population.below_fmm:.0%}"),
            *(f"{counts:.4f}", f"**{below_counts:.1%}**", f"{population.below_counts:.0%}"),
            *(f"{best.efficiency:.1f}", yes(kept)),
        )
    ]


def overfitting_row(population: Population, recovery: Recovery) -> str:
    """R = 2: vb 20 × 20 against the best size of any inference."""
    vb = recovery.best("PGM vb 20×20", 2).kl.value
    best = min((recovery.best(name, 2) for name in ("PGM bp", "PGM vb")), key=lambda one: one.kl.value)
    bp = next(one for one in recovery.results if one.model == repr(PGM(*SIZE)) and one.labels_shown == 2)
    excess = vb / best.kl.value - 1
    return line(
        *(population.name, f"**{vb:.4f}**", f"{best.kl.value:.4f}", best.model),
        *(f"**{excess:.1%}**", f"{WITHIN:.0%}", f"{bp.kl.value:.4f}", yes(excess <= WITHIN)),
    )


# ---- the page -----------------------------------------------------------------------------------------

PAGE = """# The graphical models, measured

Written by `{command}` (dissensus {version}): every measured figure is computed
by that command.

## Hidden labels

{share:.0%} of the (item, annotator) pairs hidden, {n_splits} splits: mean −log P(label | item, annotator) in
nats per hidden label (lower is better). PGM is {K} × {L}, belief propagation, default settings. Dawid–Skene
and FMM have the best of {n_strengths} prior strengths and of {n_sizes} numbers of clusters in hindsight (in
brackets).

{hidden}

## The paper's Table 2

KL(empirical ‖ distribution of the item's most likely cluster), every annotator counted the same
(`weight_by="annotators"`), training items, 1e-5 added to both sides, mean of {n_seeds} seeds, with the
paper's K × L. It measures how well a fit describes labels it has seen.

{clusters}

## Recovering the population

As in [recovery](../recovery.md): R labels of each item shown, the others reserved, {n_draws} draws. The best
of several sizes is taken in hindsight for every model, and so is the counts' smoothing. "Worth" is the number
of raw labels per item that the best-smoothed counts need for the same KL.

R = 4:

{recovery}

R = 2, where overfitting shows: variational Bayes at {K} × {L} against the best size of any inference, and
beside it EM's maximum-posterior estimate at {K} × {L}.

{overfitting}
"""

HIDDEN_HEAD = (
    *("dataset", "PGM", "Dawid–Skene (strength)", "margin", "asked"),
    *("FMM (K)", "margin", "asked", "kept"),
)
CLUSTER_HEAD = ("dataset", "inference", "K × L", "KL, mean", "each seed", "bound", "the paper's", "kept")
RECOVERY_HEAD = (
    *("dataset", "best PGM", "KL", "floor", "FMM", "below it by", "asked"),
    *("counts", "below them by", "asked", "worth", "kept"),
)
OVERFITTING_HEAD = (
    *("dataset", "vb 20 × 20", "best of any", "which", "above it by", "at most", "bp 20 × 20", "kept"),
)


def page(data: Path) -> str:
    """The whole page of results, from the datasets in ``data``."""
    sets = {one: read_dataset(data / one.name) for one in PAPER_SETS}
    recoveries = {one: recovered(read_dataset(data / one.name)) for one in POPULATIONS}
    clusters = [row for pair in sets.items() for row in cluster_rows(*pair)]
    return PAGE.format(
        command=COMMAND,
        version=__version__,
        share=HIDDEN_SHARE,
        n_splits=len(SPLITS),
        n_seeds=len(SEEDS),
        n_strengths=len(STRENGTHS),
        n_sizes=len(FMM_CLUSTERS),
        n_draws=DRAWS,
        K=SIZE[0],
        L=SIZE[1],
        hidden=table(HIDDEN_HEAD, [hidden_row(*pair) for pair in sets.items()]),
        clusters=table(CLUSTER_HEAD, clusters),
        recovery=table(RECOVERY_HEAD, [row for pair in recoveries.items() for row in recovery_rows(*pair)]),
        overfitting=table(OVERFITTING_HEAD, [overfitting_row(*pair) for pair in recoveries.items()]),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page, whole or not at all."""
    write_page(
        COMMAND, "The graphical models on the paper's data", page, "docs/results/graphical.md", arguments
    )


if __name__ == "__main__":
    main()
