"""Does acceleration pay for the models that EM fits, and does it ever end lower?

Two ways to go faster than EM, from the same start to the same tolerance:

* SQUAREM leaps along two steps of EM (dissensus/execution/leaps.py): from the first step on, or only once a
  step changes the objective by at most ``NEAR`` a label;

* Anderson's mixing (Journal of the ACM 12, 1965; Walker and Ni, SIAM Journal on Numerical Analysis 49, 2011)
  keeps the last places x and what EM makes of them, g(x). With f = g(x) − x, and ΔF and ΔG the differences of
  successive f and g,

      x ← g − ΔG γ,   γ = argmin ‖f − ΔF γ‖

Either is taken back where the objective fell. What is counted is passes over the labels, those of what was
taken back with them.

Run as ``python -m experiments.acceleration [--data DIR] [-o FILE] [--finished FILE]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dissensus._version import __version__
from dissensus.execution.leaps import NEAR, leaped
from dissensus.execution.run import Ascent, Run
from dissensus.labels.annotations import Annotations
from dissensus.models import cbcc, fmm, ibcc, mace
from dissensus.models.confusion import Crowd, log_chances, shares, votes
from dissensus.models.dawid_skene import DawidSkene, OneCoin
from dissensus.models.pgm.model import PGM
from dissensus.models.pgm.parameters import MaximumPosterior, Parameters, Priors, log_prior
from dissensus.models.pgm.propagation import Graph, Potentials
from dissensus.numerics import Array, column_sums, normalised, safe_log
from experiments.common import Finished, Values, command_line, write_files
from reproduction.datasets import read_dataset
from reproduction.tables import line, table

COMMAND = "python -m experiments.acceleration"
MOST_LABELS = 30_000  # of a dataset that models with random starts are fitted to, ten times each
SEEDS, CLUSTERS, ANNOTATOR_CLUSTERS, PRIOR = 10, 8, 5, 2.0
TOL, MOST = 1e-6, 500
LEAST = 1e-10  # of a number after mixing
WINDOW = 5  # differences that Anderson's mixing looks at

Point = list[Array]


class Place(NamedTuple):
    """What EM works on, positive numbers, and what it carries along (messages of a graph)."""

    point: Point
    carried: Any = None


class Stepped(NamedTuple):
    """Where EM goes from a place, and the objective here (or, where only that has one, there)."""

    following: Place
    objective: float


Step = Callable[[Place], Stepped]


@dataclass(frozen=True)
class Start:
    """Where a fit begins, and how it goes on."""

    place: Place
    step: Step
    shares: bool = True  # the numbers are distributions along their last axis


class End(NamedTuple):
    """Where a fit ended, and after how many passes."""

    objective: float
    passes: int


def plain(start: Start, tol: float) -> End:
    """EM until the objective changes by at most ``tol``."""
    place, now = start.step(start.place)
    for passes in range(2, MOST + 1):
        before = now
        place, now = start.step(place)
        if abs(now - before) <= tol:
            return End(now, passes)
    return End(now, MOST)


# ---- SQUAREM ----------------------------------------------------------------------------------------------


def leaping(start: Start, tol: float) -> End:
    """EM with leaps, until a step of EM changes the objective by at most ``tol``."""
    first, (second, before) = start.place, start.step(start.place)
    passes, now = 1, before
    while passes + 2 <= MOST:
        third, now = start.step(second)
        passes += 1
        if abs(now - before) <= tol:
            break
        ahead = Place(leaped(first.point, second.point, third.point, start.shares), third.carried)
        beyond, reached = start.step(ahead)
        passes += 1
        if reached >= now:
            first, second, before, now = ahead, beyond, reached, reached
        else:
            first, second, before = second, third, now
    return End(now, passes)


def leaping_late(start: Start, tol: float) -> End:
    """Leaps near the end alone, by the loop that the models use."""

    def leap(x0: Place, x1: Place, x2: Place) -> Place:
        return Place(leaped(x0.point, x1.point, x2.point, start.shares), x2.carried)

    ascent = Ascent[Place](None, round(tol / TOL), None, np.random.default_rng(0), leap=leap)
    place, passes = start.place, 0
    for _ in ascent.iterations(MOST, TOL):
        following, objective = start.step(place)
        place = ascent.advance(place, objective, following)
        passes += 1
    return End(float(ascent.trace[-1]), passes)


# ---- Anderson ---------------------------------------------------------------------------------------------


def mixing(start: Start, tol: float) -> End:
    """Anderson's mixing, until the objective changes by at most ``tol``."""
    place = start.place
    following, now = start.step(place)
    passes, seen = 1, list[tuple[Array, Array]]()  # f and g of the last places
    while passes + 2 <= MOST:
        g = _flat(following.point)
        seen = [*seen, (g - _flat(place.point), g)][-WINDOW - 1 :]
        place, before = _mixed(following, seen, start.shares), now
        after = start.step(place)
        passes += 1
        if not after.objective >= before and len(seen) > 1:  # lower, or no number
            place, seen = following, []
            after = start.step(place)
            passes += 1
        following, now = after
        if abs(now - before) <= tol:
            break
    return End(now, passes)


def _mixed(following: Place, seen: Sequence[tuple[Array, Array]], shares: bool) -> Place:
    """g − ΔG γ; EM's own step where there is nothing to look back at."""
    if len(seen) < 2:
        return following
    f, g = (np.stack(some, axis=1) for some in zip(*seen, strict=True))
    gamma = np.linalg.lstsq(np.diff(f), f[:, -1], rcond=1e-8)[0]
    mixed, parts = g[:, -1] - np.diff(g) @ gamma, following.point
    cuts = np.cumsum([part.size for part in parts])[:-1]
    shaped = [x.reshape(part.shape) for x, part in zip(np.split(mixed, cuts), parts, strict=True)]
    return Place(_inside(shaped, shares), following.carried)


def _inside(point: Point, shares: bool) -> Point:
    positive = (np.maximum(one, LEAST) for one in point)
    return [normalised(one) for one in positive] if shares else list(positive)


def _flat(point: Point) -> Array:
    return np.concatenate([part.ravel() for part in point])


# ---- the models -------------------------------------------------------------------------------------------


def mixture(known: Annotations, seed: int) -> Start:
    """FMM from the labels of random items."""
    counts = known.counts.astype(np.float64)

    def step(place: Place) -> Stepped:
        theta, psi = place.point
        label_mass, item_mass, likelihood = fmm.e_step(counts, theta, psi)
        following = fmm.m_step(label_mass, item_mass, PRIOR, PRIOR)
        return Stepped(Place(list(following)), likelihood + fmm.log_prior(theta, psi, PRIOR, PRIOR))

    theta = fmm.initial_theta(known, CLUSTERS, PRIOR, np.random.default_rng([seed, 0]))
    return Start(Place([theta, np.full(CLUSTERS, 1 / CLUSTERS)]), step)


def confusion(kind: type[DawidSkene], known: Annotations, seed: int) -> Start:
    """Dawid–Skene or one coin, from the shares of the labels; nothing is random."""
    del seed
    model, crowd, nothing_known = kind(), Crowd.of(known, Run()), np.zeros(known.n_classes)
    model._remember(known)
    anchor = model._anchor(crowd.guessed(votes).counts.sum(axis=0))

    def step(place: Place) -> Stepped:
        psi, annotators = place.point
        expected = crowd.expect(safe_log(model._matrices(annotators)), log_chances(psi), nothing_known)
        learned = model._learned(expected, anchor)
        objective = expected.evidence + model._log_prior(annotators, anchor)
        return Stepped(Place([learned.psi, learned.annotators]), objective)

    start = model._learned(crowd.guessed(shares), anchor)
    return Start(Place([start.psi, start.annotators]), step)


def spammers(known: Annotations, seed: int) -> Start:
    """MACE, from the shares of the labels; nothing is random."""
    del seed
    crowd, P = Crowd.of(known, Run()), known.n_classes
    flat, nothing_known = np.full(P, -np.log(P)), np.zeros(P)

    def step(place: Place) -> Stepped:
        own = mace.Spammers(*place.point)
        expected = crowd.expect(np.log(mace.matrices(*mace.parts(own))), flat, nothing_known)
        bound = expected.evidence - mace.divergence(own.knowing, mace.KNOWING)
        bound -= mace.divergence(own.strategy, mace.STRATEGY)
        learned = mace.learned(expected.counts, *mace.parts(own))
        return Stepped(Place([learned.knowing, learned.strategy]), bound)

    start = mace.MACE()._start(crowd.guessed(shares).counts)
    return Start(Place([start.knowing, start.strategy]), step, shares=False)


def bayesian(known: Annotations, seed: int) -> Start:
    """IBCC, from the shares of the labels; nothing is random. The objective is that of the place gone to."""
    del seed
    model, crowd, nothing_known = ibcc.IBCC(), Crowd.of(known, Run()), np.zeros(known.n_classes)

    def step(place: Place) -> Stepped:
        counts, mass, a = place.point
        learned = model._learned_prior(counts, a)
        logs = ibcc.expected_log(learned + counts)
        expected = crowd.expect(logs, ibcc.expected_log(1.0 + mass), nothing_known)
        following = Place([expected.counts, expected.item_mass, learned])
        return Stepped(following, model._bound(expected, learned))

    start = crowd.guessed(shares)
    first = model._first_prior(start.counts.sum(axis=0))
    return Start(Place([start.counts, start.item_mass, first]), step, shares=False)


def communities(known: Annotations, seed: int) -> Start:
    """CBCC, from communities of random annotators. The objective is that of the place gone to."""
    model, crowd, nothing_known = cbcc.CBCC(), Crowd.of(known, Run()), np.zeros(known.n_classes)

    def step(place: Place) -> Stepped:
        counts, mass, psi, omega, a = place.point
        z, _ = cbcc.memberships(counts, cbcc.Communities(normalised(psi), normalised(omega), a))
        learned = cbcc.Communities(
            normalised(mass),
            normalised(column_sums(z)),
            cbcc.fixed_point(counts, z, a, model.concentration),
        )
        logs = cbcc.expected_logs(counts, z, learned)
        expected = crowd.expect(logs, log_chances(learned.psi), nothing_known)
        _, terms = cbcc.memberships(expected.counts, learned)
        bound = float(terms.sum()) + model._own_terms(expected, learned)
        following = [expected.counts, expected.item_mass, learned.psi, learned.omega, learned.a]
        return Stepped(Place(following), bound)

    start = crowd.guessed(votes)
    first = model._first_communities(start, np.random.default_rng([seed, 0]))
    return Start(Place([start.counts, start.item_mass, first.psi, first.omega, first.a]), step, shares=False)


def graphical(known: Annotations, seed: int) -> Start:
    """PGM by belief propagation, one round of messages an iteration; the messages are carried along."""
    model, priors = PGM(CLUSTERS, ANNOTATOR_CLUSTERS), Priors()
    graph, m_step = Graph.of(known, Run(), keep_cavities=False), MaximumPosterior(priors)

    def step(place: Place) -> Stepped:
        theta, psi, omega = place.point
        beliefs = graph.round(
            place.carried, Potentials(safe_log(theta), safe_log(psi), safe_log(omega)), measure=False
        )
        objective = graph.evidence(beliefs) + log_prior(Parameters(theta, psi, omega).logs, priors)
        found = m_step.learn(graph.statistics(beliefs, None), None).parameters
        return Stepped(Place([found.theta, found.psi, found.omega], beliefs), objective)

    beliefs = model._first_beliefs(graph, known, np.random.default_rng([seed, 0]))
    first = m_step.learn(graph.statistics(beliefs, None), None).parameters
    return Start(Place([first.theta, first.psi, first.omega], beliefs), step)


MODELS: dict[str, tuple[Callable[[Annotations, int], Start], int]] = {
    "FMM": (mixture, SEEDS),
    "PGM": (graphical, SEEDS),
    "CBCC": (communities, SEEDS),
    "Dawid–Skene": (partial(confusion, DawidSkene), 1),
    "one coin": (partial(confusion, OneCoin), 1),
    "MACE": (spammers, 1),
    "IBCC": (bayesian, 1),
}
WAYS: dict[str, Callable[[Start, float], End]] = {
    "SQUAREM": leaping,
    "SQUAREM, near the end": leaping_late,
    "Anderson": mixing,
}


def measured(known: Annotations, model: str) -> Values:
    """Passes of EM and of each way, and by how much that ends higher a label, seed by seed."""
    begin, seeds = MODELS[model]
    tol = TOL * known.n_labels
    found: Values = {"plain": [], **{way: {"passes": [], "gain": []} for way in WAYS}}
    for seed in range(seeds):
        start = begin(known, seed)
        usual = plain(start, tol)
        found["plain"].append(usual.passes)
        for name, way in WAYS.items():
            faster = way(start, tol)
            found[name]["passes"].append(faster.passes)
            found[name]["gain"].append((faster.objective - usual.objective) / known.n_labels)
    return found


# ---- the page ---------------------------------------------------------------------------------------------

Found = Sequence[tuple[str, str, Values]]  # dataset, model, what was measured


def summary(found: Found) -> list[str]:
    """A line for each model and way: all datasets and seeds together."""
    lines = []
    for model in MODELS:
        own = [values for _, one, values in found if one == model]
        usual = sum(sum(values["plain"]) for values in own)
        for way in WAYS if own else ():
            gains = [gain for values in own for gain in values[way]["gain"]]
            fewer = usual / sum(sum(values[way]["passes"]) for values in own)
            lines.append(
                line(
                    model,
                    way,
                    len(gains),
                    f"{fewer:.2f}",
                    sum(gain < -TOL for gain in gains),
                    sum(gain > TOL for gain in gains),
                    f"{min(gains):+.6f}",
                    f"{max(gains):+.6f}",
                )
            )
    return lines


def rows(found: Found) -> list[str]:
    """A line for each dataset and model."""
    return [
        line(
            name,
            model,
            f"{np.mean(values['plain']):.1f}",
            *(f"{np.mean(values[way]['passes']):.1f}" for way in WAYS),
            *(f"{sum(gain < -TOL for gain in values[way]['gain'])}" for way in WAYS),
        )
        for name, model, values in found
    ]


def page(found: Found) -> str:
    """What was found, in words and in tables."""
    n_sets = len({name for name, *_ in found})
    return "\n".join(
        [
            "# Acceleration of EM",
            "",
            f"Written by `{COMMAND}` (dissensus {__version__}): every figure is computed by that command.",
            "",
            "EM, EM with the leaps of SQUAREM (all the way, or once a step of EM changes the objective by at",
            f"most {NEAR:g} a label), and EM with Anderson's mixing, from one start to the same tolerance",
            f"({TOL:g} nats a label), on {n_sets} datasets. What was not a step up is taken back; its passes",
            "over the labels count.",
            "",
            f"FMM has {CLUSTERS} clusters, PGM {CLUSTERS} × {ANNOTATOR_CLUSTERS}, CBCC 3 communities. Each",
            f"of these begins at {SEEDS} random starts, on the datasets of at most {MOST_LABELS:,} labels;",
            "in the others nothing is random, and they are fitted to all datasets. Differences of the",
            f"objective are in nats a label; lower and higher are those of more than {TOL:g}. PGM's",
            "objective is Bethe's, which EM itself may lower.",
            "",
            table(
                ["model", "way", "fits", "times fewer passes", "end lower", "higher", "worst", "best"],
                summary(found),
            ),
            "",
            "A model leaps near the end by itself (`accelerate`) where no fit ended lower: Dawid–Skene, one",
            "coin and MACE. FMM does so where it is asked to. PGM, CBCC and IBCC take EM's own steps.",
            "",
            "## By dataset",
            "",
            "Mean passes, and how many of the fits ended lower than EM's.",
            "",
            table(
                ["dataset", "model", "EM", *WAYS, *(f"{way}: lower" for way in WAYS)],
                rows(found),
            ),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and write."""
    parser = command_line(
        COMMAND, "SQUAREM and Anderson's mixing beside EM", "docs/results/acceleration.md", finished=True
    )
    options = parser.parse_args(arguments)
    finished, found = Finished(options.finished), []
    for folder in sorted(path for path in Path(options.data).iterdir() if path.is_dir()):
        known = read_dataset(folder)
        found += [
            (folder.name, model, finished.measured(f"{folder.name} {model}", partial(measured, known, model)))
            for model, (_, seeds) in MODELS.items()
            if seeds == 1 or known.n_labels <= MOST_LABELS
        ]
    write_files(options.output, page(found))


if __name__ == "__main__":
    main()
