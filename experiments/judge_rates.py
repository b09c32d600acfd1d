"""Do intervals of corrected rates hold the truth as often as they say? Subsamples with replacement.

Populations: the items of cebab_aspects, the share of each answer among an item's humans as its truth, and a
judge's real answers; rte and product, their gold labels as truth, with judges simulated by a stated chance
to see the class where it is and where it is not. Every subsample has items that humans labelled and others
that the judge alone labelled, all drawn with replacement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as ds
from dissensus.annotators.judge_detection import find_judges
from dissensus.errors import require
from dissensus.judges.answers import Answers
from dissensus.judges.rates import Rate, prediction_powered, rate
from dissensus.numerics import Array, row_shares
from experiments.common import Values

LABELLED, OTHERS = 200, 2000  # items of a subsample that humans labelled, and that the judge alone did
# Chance of a simulated judge to say the class where gold has it, and where it has not.
SIMULATED = {"good": (0.9, 0.15), "fair": (0.8, 0.25)}
REAL = ("gpt-4o", "mistral-v03")


@dataclass(frozen=True, eq=False)
class Population:
    """Items with the truth about a class, and what a judge says: known, or by chance."""

    name: str
    judge: str
    class_name: str
    truth: Array  # (items,)
    said: Array | tuple[float, float]

    def drawn(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Truth and judge's answers of ``n`` items."""
        items = rng.integers(len(self.truth), size=n)
        truth = self.truth[items]
        if isinstance(self.said, tuple):
            chance = np.where(truth > 0.5, *self.said)
            return truth, (rng.random(n) < chance).astype(np.float64)
        return truth, self.said[items]


def populations(data: Path) -> Iterator[Population]:
    """Those of the page, from the folder of the datasets."""
    folder = data.parent / "judges" / "cebab_aspects"
    labels = ds.read_annotations(folder / "annotations.csv", annotators=folder / "annotators.csv")
    answers = Answers.of(labels, find_judges(labels)[0])
    shares = row_shares(answers.human_counts)
    for judge in REAL:
        given = answers.answers_of(int(np.flatnonzero(labels.annotators == judge)[0]))
        for p, name in enumerate(labels.classes):
            yield Population("cebab_aspects", judge, str(name), shares[:, p], (given == p).astype(np.float64))
    for name, which in (("rte", "entailed"), ("product", "same")):
        known = ds.read_annotations(data / name / "annotations.csv", gold=data / name / "gold.csv")
        gold = known.gold
        assert gold is not None
        truth = (known.classes[gold[gold >= 0]] == which).astype(np.float64)
        for judge, chances in SIMULATED.items():
            yield Population(name, f"simulated, {judge} {chances}", which, truth, chances)


def coverage(population: Population, n_samples: int, seed: int = 0, *, against_peer: bool = True) -> Values:
    """How often the intervals hold the truth, their mean widths, and what the peer's are."""
    rng = np.random.default_rng(seed)
    truth = float(population.truth.mean())
    found: list[Rate] = []
    plain, widths, peers = [], [], []
    for _ in range(n_samples):
        Y, f = population.drawn(LABELLED, rng)
        F = population.drawn(OTHERS, rng)[1]
        found.append(rate("", "", "", Y, f, F, 0.95, is_share=True))
        plain.append(prediction_powered(Y, np.zeros(len(Y)), np.zeros(0), 0.95)[0].width)
        widths.append(prediction_powered(Y, f, F, 0.95)[0].width)
        if against_peer:
            low, high = require("ppi_py", "bench").ppi_mean_ci(Y, f, F, alpha=0.05)
            peers.append(float(np.squeeze(high) - np.squeeze(low)))
    values: Values = {"truth": truth, "refused": sum(bool(one.ppi.refused) for one in found)}
    for name in ("humans_alone", "rogan_gladen", "ppi"):
        values[name] = _held([getattr(one, name) for one in found], truth)
    values["ppi_width"], values["plain_width"] = float(np.mean(widths)), float(np.mean(plain))
    values["peer_width"] = float(np.mean(peers)) if peers else math.nan
    return values


def _held(estimates: list[Any], truth: float) -> dict[str, float]:
    """Share of the intervals that hold the truth, their number, and their mean width."""
    given = [one for one in estimates if not math.isnan(one.value)]
    if not given:
        return {"n": 0, "coverage": math.nan, "width": math.nan}
    held = np.mean([one.low <= truth <= one.high for one in given])
    return {"n": len(given), "coverage": float(held), "width": float(np.mean([one.width for one in given]))}
