"""Labelling replayed: does asking where it gains most reach with fewer labels what asking evenly does?

Of every item a part of its labels is reserved; the others come in, one after the other, in a random order.
Everything starts from two labels per item. *Even*: every item gets the same. *Plan*: half a label each at a
time, given out by ``plan_labels`` from a fit to what is there. *Oracle*: the same rule, told each item's
actual KL from the reserved labels. On simulated crowds the truth is known, and what the plan promises is
compared with it.

Run as ``python -m experiments.plan [--items N] [--splits N] [--data DIR] [-o FILE]``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dissensus as ds
from dissensus._version import __version__
from dissensus.annotators.plan import allocated, losses, plan_labels, worth_of_losses
from dissensus.labels.annotations import Annotations
from dissensus.models.hpgm.model import HPGM
from dissensus.numerics import Array
from experiments.common import command_line, write_files
from reproduction.tables import line, table, yes

COMMAND = "python -m experiments.plan"
FIT: dict[str, Any] = {"n_chains": 2, "n_sweeps": 100, "n_jobs": 1}
SETS = {"nli_variation": (25, 16), "tweet_sensitivity": (6, 8)}  # labels reserved, and in the pool
START, STEP, END, GOAL = 2, 0.5, 6, 0.65  # labels per item, and the share of them that should do
TARGETS = (0.3, 0.2)
POSSIBLE, DRAWN, MOST_ASKED = (
    1_500,
    2_000,
    30,
)  # of the study of what can be reached: items, and labels of each


@dataclass(frozen=True)
class Replay:
    """Labels in the order in which they come in, and what is reserved."""

    item: NDArray[np.intp]
    annotator: NDArray[np.intp]
    label: NDArray[np.intp]
    place: NDArray[np.intp]  # (labels,): number of the label among those of its item
    pool: NDArray[np.intp]  # (items,): labels there are
    truth: Array  # (items, classes)
    names: list[Any]

    def fit(self, taken: NDArray[np.intp], seed: int) -> HPGM:
        """A fit to the first labels of every item."""
        here = self.place < taken[self.item]
        some = Annotations.from_arrays(
            self.item[here], self.annotator[here], self.label[here], classes=range(self.truth.shape[1])
        )
        return HPGM(seed=seed, **FIT).fit(some)

    def kl(self, model: HPGM) -> Array:
        """(items,): KL(reserved ‖ estimate)."""
        estimate = np.maximum(model.label_distributions_, 1e-12)
        return np.asarray((self.truth * np.log(np.maximum(self.truth, 1e-12) / estimate)).sum(axis=1))


def replay_of(labels: Annotations, reserved: int, pool: int, seed: int, n_items: int) -> Replay:
    """Some items with enough labels; of each, so many reserved and so many in a pool."""
    rng = np.random.default_rng(seed)
    enough = np.flatnonzero(np.bincount(labels.item) >= reserved + pool)
    chosen = np.sort(rng.permutation(enough)[:n_items])
    new = np.full(labels.n_items, -1)
    new[chosen] = np.arange(len(chosen))
    rows = np.flatnonzero(new[labels.item] >= 0)
    rows = rows[np.lexsort((rng.random(len(rows)), new[labels.item[rows]]))]
    item = new[labels.item[rows]]
    place = np.arange(len(rows)) - np.searchsorted(item, item)
    last = place >= np.bincount(item)[item] - reserved
    cells = item[last] * labels.n_classes + labels.label[rows][last]
    counts = np.bincount(cells, minlength=len(chosen) * labels.n_classes).reshape(len(chosen), -1)
    here = ~last & (place < pool)
    return Replay(
        item[here], labels.annotator[rows][here], labels.label[rows][here], place[here],
        np.bincount(item[here]), counts / counts.sum(axis=1, keepdims=True), list(labels.classes),
    )  # fmt: skip


def even(replay: Replay, seed: int) -> dict[float, float]:
    """Mean KL by labels per item, every item having the same."""
    rounds = range(START, END + 1)
    return {R: float(replay.kl(replay.fit(np.full(len(replay.pool), R), seed)).mean()) for R in rounds}


def adaptive(replay: Replay, seed: int, *, oracle: bool = False) -> dict[float, float]:
    """Mean KL by labels per item, given out round after round."""
    M = len(replay.pool)
    taken, curve = np.full(M, START), dict[float, float]()
    while True:
        model = replay.fit(taken, seed)
        actual = replay.kl(model)
        curve[round(float(taken.mean()), 2)] = float(actual.mean())
        if taken.mean() >= END - STEP / 2:
            return curve
        now, after = losses(model.share_draws_)
        wanted = np.where(taken < replay.pool, actual if oracle else now, 0.0)
        more = allocated(wanted, worth_of_losses(now, after), round(STEP * M))
        taken = np.minimum(taken + more, replay.pool)


def reachable(labels: Annotations, n_items: int, seed: int) -> float:
    """The share of labels that the same rule needs where everything that can be known is known.

    Items are drawn from a fit's posterior and labelled by their own distributions. What is known of an item
    is its exact posterior, given that every one of the possible items is as likely as another.
    """
    rng = np.random.default_rng([seed, 1])
    some = labels.take_items(np.sort(rng.permutation(labels.n_items)[:n_items]))
    shares = HPGM(seed=seed, **FIT).fit(some).share_draws_
    possible = np.maximum(rng.permutation(shares.reshape(-1, shares.shape[2]))[:POSSIBLE], 1e-6).astype(float)
    possible /= possible.sum(axis=1, keepdims=True)
    truth = possible[rng.integers(len(possible), size=DRAWN)]
    uniform = rng.random((DRAWN, MOST_ASKED, 1))
    order = (uniform > truth.cumsum(axis=1)[:, None]).sum(axis=2).clip(max=truth.shape[1] - 1)

    def known(taken: NDArray[np.intp]) -> tuple[Array, float]:
        """(items, possible): P(it is this one | its labels), and the mean KL of the estimate."""
        rows = np.nonzero(np.arange(MOST_ASKED) < taken[:, None])
        counts = np.zeros(truth.shape)
        np.add.at(counts, (rows[0], order[rows]), 1)
        logs = counts @ np.log(possible).T
        chances = np.exp(logs - logs.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        return chances, float((truth * np.log(truth / (chances @ possible))).sum(axis=1).mean())

    taken, curve = np.full(DRAWN, START), dict[float, float]()
    while taken.mean() < END:
        chances, curve[round(float(taken.mean()), 2)] = known(taken)
        now, after = _exact_losses(chances, possible)
        taken = np.minimum(taken + allocated(now, worth_of_losses(now, after), DRAWN // 4), MOST_ASKED)
    curve[float(taken.mean())] = known(taken)[1]
    return needed(curve, known(np.full(DRAWN, END))[1]) / END


def _exact_losses(chances: Array, possible: Array) -> tuple[Array, Array]:
    """(items,) each: the expected loss, and after one more label, of exact posteriors (items, possible)."""
    entropy = -(possible * np.log(possible)).sum(axis=1)

    def loss(weight: Array) -> Array:
        mean = weight @ possible
        return np.asarray(-(mean * np.log(mean)).sum(axis=1) - weight @ entropy)

    now, after, mean = loss(chances), np.zeros(len(chances)), chances @ possible
    for p in range(possible.shape[1]):
        after += mean[:, p] * loss(chances * possible[:, p] / mean[:, p : p + 1])
    return now, np.clip(after, 0.0, now)


def needed(curve: dict[float, float], goal: float) -> float:
    """Labels an item at which the curve first reaches ``goal``, between two rounds by a straight line."""
    points = sorted(curve.items())
    for (r0, k0), (r1, k1) in itertools.pairwise(points):
        if k1 <= goal:
            return r0 if k0 <= goal else r0 + (r1 - r0) * (k0 - goal) / (k0 - k1)
    return float("inf")


def mean_curve(curves: Sequence[dict[float, float]]) -> dict[float, float]:
    """The mean of curves, round after round."""
    by_round = zip(*(sorted(curve.items()) for curve in curves), strict=False)
    rounds = [np.mean(points, axis=0) for points in by_round]
    return {round(float(r), 2): float(k) for r, k in rounds}


def section(name: str, data: Path, n_items: int, splits: int) -> str:
    """One dataset's curves."""
    labels = ds.read_annotations(next((data / name).glob("annotations.csv*")))
    replays = [replay_of(labels, *SETS[name], seed, n_items) for seed in range(splits)]
    same = mean_curve([even(one, s) for s, one in enumerate(replays)])
    plan = mean_curve([adaptive(one, s) for s, one in enumerate(replays)])
    oracle = mean_curve([adaptive(one, s, oracle=True) for s, one in enumerate(replays)])
    rows = sorted({*same, *plan, *oracle})
    curves = table(
        ("labels per item", "even", "plan", "oracle"),
        [line(r, *(f"{c[r]:.4f}" if r in c else "" for c in (same, plan, oracle))) for r in rows],
    )
    goal, share = same[END], needed(plan, same[END]) / END
    return SECTION.format(
        name=name, reserved=SETS[name][0], n_items=n_items, splits=splits, curves=curves, end=END, goal=goal,
        share=share, oracle=needed(oracle, goal) / END, asked=GOAL, held=yes(share <= GOAL),
        bound=reachable(labels, n_items, 0),
    )  # fmt: skip


def promises(n: int) -> str:
    """Simulated crowds labelled until the rule says stop: what it promised, and what is true."""
    lines = []
    for target in TARGETS:
        promised, actual, inside, asked = [], [], [], []
        for seed in range(n):
            crowd = ds.simulate(150, 60, 3, labels_per_item=20, seed=seed)
            replay = replay_of(crowd.annotations, 1, 19, seed, crowd.annotations.n_items)
            truth = crowd.population_by_load[: len(replay.pool)]
            taken = np.full(len(replay.pool), START)
            for _ in range(12):
                model = replay.fit(taken, seed)
                budget, labels = round(2 * STEP * len(taken)), model.training_labels()
                plan = plan_labels(labels, model, budget=budget, target_interval=target)
                if plan.stop or (taken >= replay.pool).all():
                    break
                taken = np.minimum(taken + plan.n_more, replay.pool)
            known = model.intervals()
            best = model.label_distributions_.argmax(axis=1)[:, None]
            low, high, true = (np.take_along_axis(x, best, axis=1) for x in (known.low, known.high, truth))
            inside.append(((low <= true) & (true <= high)).mean())
            estimate = np.maximum(model.label_distributions_, 1e-12)
            kl = (truth * np.log(np.maximum(truth, 1e-12) / estimate)).sum(axis=1).mean()
            promised.append(plan.loss.mean())
            actual.append(kl)
            asked.append(taken.mean())
        cells = (f"{np.mean(x):.{d}f}" for x, d in ((asked, 1), (promised, 4), (actual, 4)))
        lines.append(line(target, *cells, f"{np.mean(inside):.0%}"))
    head = (
        "target width",
        "labels per item at the stop",
        "promised KL",
        "actual KL",
        "truth inside 90 % intervals",
    )
    return table(head, lines)


SECTION = """## {name}

{n_items} items, {reserved} labels of each reserved, mean of {splits} splits. KL(reserved ‖ estimate) in nats.

{curves}

The plan reaches the KL of {end} even labels per item ({goal:.4f}) with {share:.0%} of the labels (at most
{asked:.0%} asked: {held}); the oracle, which knows each item's error, with {oracle:.0%}. What can be had
without knowing errors: on items drawn from a fit's posterior, where the exact posterior of every item is
known, the same rule needs {bound:.0%}.
"""
PAGE = """# Labelling where it gains most, replayed

Written by `{command}` (dissensus {version}); every figure is computed by that command. The rule:
[plan](../plan.md).

{sections}
## Does the stopping rule keep its promise?

Simulated crowds (`ds.simulate(150, 60, 3, labels_per_item=20)`, {n} seeds), labelled by the plan until nine
items of ten have intervals as narrow as asked for, or labels run out.

{promises}
"""


def page(data: Path, n_items: int, splits: int) -> str:
    """The whole page."""
    sections = "\n".join(section(name, data, n_items, splits) for name in SETS)
    return PAGE.format(
        command=f"{COMMAND} --items {n_items} --splits {splits}",
        version=__version__,
        sections=sections,
        n=splits,
        promises=promises(splits),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page, whole or not at all."""
    parser = command_line(COMMAND, "labelling replayed", "docs/results/plan.md")
    parser.add_argument("--items", type=int, default=250, help="items of a replay")
    parser.add_argument("--splits", type=int, default=3, help="random splits, and simulated crowds")
    options = parser.parse_args(arguments)
    write_files(options.output, page(options.data, options.items, options.splits))


if __name__ == "__main__":
    main()
