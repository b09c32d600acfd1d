"""Does annealing end at least as high as greedy search? The same joint log-likelihood ℓ, the same labels.

Greedy search is coordinate ascent (w, z and the parameters in turn at their best given the others) from
clusters drawn at random, many times, the best kept. Annealing is ``PGM(K, L, inference="annealing")`` as it
comes, and once as the paper prints it: random clusters, T = 1/(t + 1), no ascent at the end.

Run as ``python -m experiments.annealing [--data DIR] [-o FILE]``; it writes the page of results.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from dissensus._version import __version__
from dissensus.labels.annotations import Annotations
from dissensus.models.pgm.annealing import ascend, start_at
from dissensus.models.pgm.m_step import Priors
from dissensus.models.pgm.model import PGM
from experiments.common import write_page
from reproduction.columns import DEPARTURES
from reproduction.datasets import read_dataset
from reproduction.tables import line, table, yes

COMMAND = "python -m experiments.annealing"
DATASET = "jq1"
SIZES = ((4, 4), (10, 12))  # the paper's K × L for annealing and for belief propagation
SEEDS = range(5)
STARTS = 20  # of greedy search, a seed
PRINTED = {name: value for one in DEPARTURES["annealing"].values() for name, value in one.settings.items()}

PAGE = """# Annealing against greedy search

Written by `{command}` (dissensus {version}): every figure is computed by that command.

The joint log-likelihood ℓ that is reached on the training items of {dataset} ({labels:,} labels), higher is
better, and processor seconds. *Annealing* is `PGM(K, L, inference="annealing")` as it comes. *Greedy search*
is coordinate ascent from clusters drawn at random: the best and the mean of {starts} starts. *As printed* is
the paper's annealing: clusters drawn at random, T = 1/(t + 1), no ascent at the end.

{rows}

Annealing is at or above the best of {starts} greedy searches in {kept} of {total} rows. Of all {tried} greedy
searches, {higher} end above the annealing of their row.
"""


def annealed(labels: Annotations, K: int, L: int, seed: int, **settings: Any) -> tuple[float, float]:
    """The best ℓ that annealing meets, and its processor seconds."""
    began = time.process_time()
    model = PGM(K, L, inference="annealing", seed=seed, n_jobs=1, **settings).fit(labels)
    return model.best_states_[0][0], time.process_time() - began


def greedy(labels: Annotations, K: int, L: int, seed: int) -> tuple[list[float], float]:
    """ℓ where coordinate ascent ends from each random start, and the processor seconds of all."""
    began, rng, priors, ends = time.process_time(), np.random.default_rng(seed), Priors(2.0, 2.0, 2.0), []
    for _ in range(STARTS):
        w, z = rng.integers(K, size=labels.n_items), rng.integers(L, size=labels.n_annotators)
        values, _ = ascend(labels, start_at(labels, w, z, K, L, priors), priors)
        ends.append(values[-1])
    return ends, time.process_time() - began


def page(data: Path) -> str:
    """The comparison on every size and seed."""
    labels = read_dataset(data / DATASET).split_items()["train"]
    lines, kept, higher = list[str](), 0, 0
    for K, L in SIZES:
        for seed in SEEDS:
            reached, seconds = annealed(labels, K, L, seed)
            ends, greedy_seconds = greedy(labels, K, L, seed)
            printed, _ = annealed(labels, K, L, seed, **PRINTED)
            above = reached >= max(ends)
            kept += above
            higher += sum(end > reached for end in ends)
            lines.append(
                line(
                    *(f"{K} × {L}", seed, f"**{reached:,.1f}**", f"{seconds:.1f} s"),
                    *(f"{max(ends):,.1f}", f"{np.mean(ends):,.1f}", f"{greedy_seconds:.1f} s"),
                    *(f"{printed:,.1f}", yes(above)),
                )
            )
    head = ("K × L", "seed", "annealing", "time", "best greedy", "mean greedy", "time", "as printed", "kept")
    return PAGE.format(
        command=COMMAND,
        version=__version__,
        dataset=DATASET,
        labels=labels.n_labels,
        starts=STARTS,
        rows=table(head, lines),
        kept=kept,
        total=len(lines),
        tried=STARTS * len(lines),
        higher=higher,
    )


if __name__ == "__main__":
    write_page(COMMAND, "Annealing against greedy search.", page, "docs/results/annealing.md")
