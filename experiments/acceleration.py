"""Does SQUAREM pay for the models that EM fits, and does it ever end lower?

SQUAREM (Varadhan and Roland, Scandinavian Journal of Statistics 35, 2008) looks at two steps of EM, from x₀
to x₁ and x₂, and leaps along them: with r = x₁ − x₀, v = (x₂ − x₁) − r and a = ‖r‖ / ‖v‖,

    x = x₀ + 2 a r + a² v

The leap is taken back where the objective fell. Both ways begin at the same place and end by the same
tolerance; what is counted is passes over the labels, those of leaps taken back with them.

Run as ``python -m experiments.acceleration [--data DIR] [-o FILE] [--finished FILE]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dissensus._version import __version__
from dissensus.data.annotations import Annotations
from dissensus.execution.run import Run
from dissensus.models import fmm
from dissensus.models.confusion import Crowd, log_chances, shares, votes
from dissensus.models.dawid_skene import DawidSkene, OneCoin
from dissensus.numerics import Array, normalised, safe_log
from dissensus.paper.datasets import read_dataset
from dissensus.paper.tables import line, table
from experiments.common import Finished, Values, command_line, write_files

COMMAND = "python -m experiments.acceleration"
SETS = ("jq1", "jq3", "adult2", "bluebirds", "hs_brexit", "rte", "snow_wsd", "weather_sentiment_amt")
SEEDS, CLUSTERS, PRIOR = 5, 10, 2.0
TOL, MOST = 1e-6, 500
LEAST = 1e-10  # of a probability after a leap
LONGEST = 64.0  # leap

Point = list[Array]  # distributions along the last axis
Step = Callable[[Point], tuple[Point, float]]  # where EM goes from here, and the objective here


class End(NamedTuple):
    """Where a fit ended, and after how many passes."""

    objective: float
    passes: int


def plain(x: Point, step: Step, tol: float) -> End:
    """EM until the objective changes by at most ``tol``."""
    x, now = step(x)
    for passes in range(2, MOST + 1):
        before = now
        x, now = step(x)
        if abs(now - before) <= tol:
            return End(now, passes)
    return End(now, MOST)


def leaping(x: Point, step: Step, tol: float) -> End:
    """EM with leaps, until a step of EM changes the objective by at most ``tol``."""
    x0, (x1, before) = x, step(x)
    passes = 1
    while passes < MOST:
        x2, now = step(x1)
        passes += 1
        if abs(now - before) <= tol:
            break
        ahead = leap(x0, x1, x2)
        beyond, reached = step(ahead)
        passes += 1
        if reached >= now:
            x0, x1, before = ahead, beyond, reached
        else:
            x0, x1, before = x1, x2, now
    return End(now, passes)


def leap(x0: Point, x1: Point, x2: Point) -> Point:
    """x₀ + 2 a r + a² v, kept inside the simplex."""
    r = [b - a for a, b in zip(x0, x1, strict=True)]
    v = [(c - b) - d for b, c, d in zip(x1, x2, r, strict=True)]
    a = min(max(_length(r) / max(_length(v), 1e-300), 1.0), LONGEST)
    ahead = (x + 2 * a * d + a * a * e for x, d, e in zip(x0, r, v, strict=True))
    return [normalised(np.maximum(one, LEAST)) for one in ahead]


def _length(parts: Point) -> float:
    return float(np.sqrt(sum(float(np.square(part).sum()) for part in parts)))


# ---- the models -------------------------------------------------------------------------------------------


def mixture(known: Annotations, seed: int) -> tuple[Point, Step]:
    """FMM from the labels of random items."""
    counts = known.counts.astype(np.float64)

    def step(x: Point) -> tuple[Point, float]:
        label_mass, item_mass, likelihood = fmm.e_step(counts, *x)
        following = fmm.m_step(label_mass, item_mass, PRIOR, PRIOR)
        return list(following), likelihood + fmm.log_prior(x[0], x[1], PRIOR, PRIOR)

    theta = fmm.initial_theta(known, CLUSTERS, PRIOR, np.random.default_rng([seed, 0]))
    return [theta, np.full(CLUSTERS, 1 / CLUSTERS)], step


def confusion(kind: type[DawidSkene], known: Annotations, seed: int) -> tuple[Point, Step]:
    """Dawid–Skene or one coin, from the shares of the labels; nothing is random."""
    del seed
    model, crowd = kind(), Crowd.of(known, Run())
    model._remember(known)
    anchor = model._anchor(crowd.guessed(votes).counts.sum(axis=0))

    def step(x: Point) -> tuple[Point, float]:
        nothing_known = np.zeros(known.n_classes)
        expected = crowd.expect(safe_log(model._matrices(x[1])), log_chances(x[0]), nothing_known)
        learned = model._learned(expected, anchor)
        return [learned.psi, learned.annotators], expected.evidence + model._log_prior(x[1], anchor)

    start = model._learned(crowd.guessed(shares), anchor)
    return [start.psi, start.annotators], step


MODELS: dict[str, tuple[Callable[[Annotations, int], tuple[Point, Step]], int]] = {
    "FMM": (mixture, SEEDS),
    "Dawid–Skene": (partial(confusion, DawidSkene), 1),
    "one coin": (partial(confusion, OneCoin), 1),
}


def measured(known: Annotations, model: str) -> Values:
    """Passes of both ways, and by how much the second ends higher a label, seed by seed."""
    begin, seeds = MODELS[model]
    passes, leaps, gains = [], [], []
    for seed in range(seeds):
        start, step = begin(known, seed)
        usual, faster = (way(start, step, TOL * known.n_labels) for way in (plain, leaping))
        passes.append(usual.passes)
        leaps.append(faster.passes)
        gains.append((faster.objective - usual.objective) / known.n_labels)
    return {"plain": passes, "leaping": leaps, "gain": gains}


# ---- the page ---------------------------------------------------------------------------------------------

HEAD = ("dataset", "model", "passes of EM", "with leaps", "ends lower", "worst difference", "best")


def rows(found: Sequence[tuple[str, str, Values]]) -> list[str]:
    """A line for each dataset and model."""
    return [
        line(
            name,
            model,
            f"{np.mean(values['plain']):.1f}",
            f"{np.mean(values['leaping']):.1f}",
            f"{sum(gain < -TOL for gain in values['gain'])} of {len(values['gain'])}",
            f"{min(values['gain']):+.6f}",
            f"{max(values['gain']):+.6f}",
        )
        for name, model, values in found
    ]


def page(found: Sequence[tuple[str, str, Values]]) -> str:
    """What was found, in words and in a table."""
    lower = {model for _, model, values in found if min(values["gain"]) < -TOL}
    told = [f"{model}: {_ratio(found, model):.2f} times fewer passes" for model in MODELS]
    named = f"It ended lower at least once for {', '.join(sorted(lower))}."
    verdict = named if lower else "It never ended lower."
    return "\n".join(
        [
            "# Acceleration of EM",
            "",
            f"Written by `{COMMAND}` (dissensus {__version__}): every figure is computed by that command.",
            "",
            "EM, and EM with the leaps of SQUAREM, from the same start to the same tolerance",
            f"({TOL:g} nats a label). FMM has {CLUSTERS} clusters, and {SEEDS} seeds. Differences of the",
            "objective are in nats a label.",
            "",
            f"{'; '.join(told)}. {verdict}",
            "The models of this package do not leap: a fit is to end as high as EM, and the gain is to pay.",
            "",
            table(HEAD, rows(found)),
            "",
        ]
    )


def _ratio(found: Sequence[tuple[str, str, Values]], model: str) -> float:
    usual = sum(sum(values["plain"]) for _, one, values in found if one == model)
    return usual / sum(sum(values["leaping"]) for _, one, values in found if one == model)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    parser = command_line(COMMAND, "SQUAREM beside EM", "docs/results/acceleration.md", finished=True)
    options = parser.parse_args(arguments)
    finished = Finished(options.finished)
    found = []
    for name in SETS:
        known = read_dataset(Path(options.data) / name)
        found += [
            (name, model, finished.measured(f"{name} {model}", partial(measured, known, model)))
            for model in MODELS
        ]
    write_files(options.output, page(found))


if __name__ == "__main__":
    main()
