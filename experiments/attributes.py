"""Attributes of annotators: predictions of hidden annotators, and how much of the disagreement they explain.

python -m experiments.attributes [--crowds N] [--data DIR] [--finished FILE]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

import dissensus as ds
from dissensus._version import __version__
from dissensus.evaluate.attributes import annotator_attributes
from dissensus.importers.read import read_annotations
from dissensus.labels.annotations import Annotations
from dissensus.metrics import log_probability_rows
from dissensus.numerics import Array
from experiments.runner import Measurements, Values, line, page_parser, table, write_page, yes

PEOPLE = "multipico_devtest"
N_CROWDS, N_COVERAGE = 20, 200  # crowds with predictions, and crowds of each size for coverage
FOLDS = 10  # a tenth of the annotators is hidden at a time
EFFECT = 0.6  # in the planted crowds with predictions
EFFECTS = (0.0, 0.3, 0.6, 1.0)  # standard deviation of the log-odds of a value's answers
SIZES = ((60, 300, 6, 3), (200, 600, 5, 4), (40, 400, 8, 2))  # annotators, items, labels an item, values
EVENNESS = 30.0  # of the values, so that each has the ten annotators that it needs
N_KINDS, ITEM_SPREAD, OWN_SPREAD = 4, 1.2, 0.5  # kinds of items; log-odds of items, and of each annotator


Get = Callable[..., Values]
Part = tuple[str, list[tuple[str, str, str, bool]]]  # text, and figures: what, measured, target, met


# ---- crowds -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Crowd:
    """Simulated labels, and the share of the disagreement that the attribute ``region`` explains."""

    labels: Annotations
    explained: float


def planted(
    seed: Sequence[int],
    effect: float,
    annotators: int,
    items: int,
    each: int,
    values: int,
    *,
    evenness: float = 4.0,
    classes: int = 3,
) -> Crowd:
    """Simulate answers with log-odds item + value of ``region`` by kind of item + annotator by kind of item.

    A second attribute, ``hand``, has no effect. The shares of the regions are Dir(``evenness``, …).
    """
    rng = np.random.default_rng(seed)
    q = rng.dirichlet(np.full(values, evenness))
    region, kind = rng.choice(values, annotators, p=q), rng.integers(N_KINDS, size=items)
    base = ITEM_SPREAD * rng.normal(size=(items, classes))
    by_region = effect * rng.normal(size=(values, N_KINDS, classes))
    own = OWN_SPREAD * rng.normal(size=(annotators, N_KINDS, classes))
    item = np.repeat(np.arange(items), each)
    who = np.concatenate([rng.choice(annotators, each, replace=False) for _ in range(items)])
    odds = base[item] + by_region[region[who], kind[item]] + own[who, kind[item]]
    label = (odds + rng.gumbel(size=odds.shape)).argmax(axis=1)
    names = np.array([f"a{n:03d}" for n in range(annotators)])
    labels = ds.Annotations.from_arrays(item, names[who], label)
    people = {
        "annotator": names,
        "region": [f"r{v}" for v in region],
        "hand": rng.choice(["l", "r"], annotators),
    }
    answers = np.stack([mean_answers(base + row[kind], kind, rng) for row in by_region])
    mean = np.einsum("v,vmc->mc", q, answers)
    between = (np.einsum("v,vmc->mc", q, answers**2) - mean**2).sum(axis=1).mean()
    return Crowd(labels.with_tables(annotators=people), float(between / (1 - (mean**2).sum(axis=1).mean())))


def mean_answers(odds: Array, kind: Any, rng: Generator, n: int = 400) -> Array:
    """Return (items, classes) mean answers of many annotators with these log-odds and their own."""
    odds = odds + OWN_SPREAD * rng.normal(size=(n, N_KINDS, odds.shape[1]))[:, kind]
    shares = np.exp(odds - odds.max(axis=2, keepdims=True))
    return np.asarray((shares / shares.sum(axis=2, keepdims=True)).mean(axis=0))


def shuffled(labels: Annotations, seed: int) -> Annotations:
    """Give every annotator the attributes of another one."""
    people = labels.annotator_table
    assert people is not None
    order = np.random.default_rng([seed, 1]).permutation(labels.n_annotators)
    columns = {name: labels.annotator_column(name)[order] for name in people.column_names[1:]}
    return labels.with_tables(annotators={"annotator": labels.annotators, **columns})


# ---- measurements -------------------------------------------------------------------------------------


def coverage(effect: float, size: int, n: int) -> Values:
    """Count the intervals that contain the share of a planted attribute, and of one without effect."""
    hits = []
    for number in range(n):
        crowd = planted((size, int(10 * effect), number), effect, *SIZES[size], evenness=EVENNESS)
        found = annotator_attributes(crowd.labels)
        truth = np.array([crowd.explained, 0.0])
        hits.append([*((found.low <= truth) & (truth <= found.high)), found.low[0] > 0, crowd.explained])
    return {"hits": np.mean(hits, axis=0).tolist(), "n": n}


def gain(labels: Annotations, shuffles: int = 0, folds: int = FOLDS) -> Values:
    """Score all labels of hidden annotators, a tenth in each fold, with their attributes and without.

    Entry 0 of the result has the real attributes, the others shuffled ones.
    """
    hidden_by = np.random.default_rng(0).permutation(labels.n_annotators) % FOLDS
    tables = [labels, *(shuffled(labels, seed) for seed in range(shuffles))]
    scores: list[list[list[float]]] = [[] for _ in tables]  # of each annotator: labels, without, with
    for fold in range(folds):
        hidden = hidden_by == fold
        part = labels.take_rows(~hidden[labels.annotator])
        plain = ds.HPGM(seed=fold).fit(part)
        for rows, source in zip(scores, tables, strict=True):
            table_ = source.annotator_table
            assert table_ is not None
            names = table_.column_names[1:]
            columns = {name: source.annotator_column(name) for name in names}
            model = ds.HPGM(attributes=names, seed=fold).fit(with_people(part, source))
            for n in np.flatnonzero(hidden):
                own = labels.annotator == n
                items, label = labels.items[labels.item[own]], labels.label[own]
                attributes = {name: column[n] for name, column in columns.items()}
                answers = plain.predict_proba(items), model.predict_for(attributes, items)
                sums = [float(log_probability_rows(answer, label).sum()) for answer in answers]
                rows.append([int(own.sum()), *sums])
    return {"gains": [gain_interval(np.array(rows)) for rows in scores]}


def with_people(part: Annotations, source: Annotations) -> Annotations:
    """Attach the annotator table of ``source``."""
    table_, codes = source.annotator_table, source.annotator_vocabulary.codes(part.annotator_vocabulary)
    assert table_ is not None
    columns = {name: source.annotator_column(name)[codes] for name in table_.column_names[1:]}
    return part.with_tables(annotators={"annotator": part.annotators, **columns})


def gain_interval(rows: Array) -> list[float]:
    """Return log score without attributes, gain a label, and its standard error over annotators."""
    n, without, gained = rows[:, 0], rows[:, 1], rows[:, 2] - rows[:, 1]
    mean = gained.sum() / n.sum()
    return [without.sum() / n.sum(), mean, float(np.sqrt(((gained - mean * n) ** 2).sum()) / n.sum())]


# ---- the page -----------------------------------------------------------------------------------------


def coverage_part(get: Get, n: int) -> Part:
    """Return the section on intervals, and the figures with a target."""
    lines, covered = [], []
    for size, (annotators, items, each, values) in enumerate(SIZES):
        for effect in EFFECTS:
            hits = get(f"coverage {size} {effect}", coverage, effect, size, n)["hits"]
            covered.append(hits[:2])
            shares = [f"{100 * hit:.1f} %" for hit in hits]
            lines.append(line(f"{annotators} × {items} × {each}", values, effect, shares[3], *shares[:3]))
    means = np.mean(covered, axis=0)
    head = ["annotators × items × labels an item", "values", "effect", "explained", "covered", "no effect"]
    head.append("interval above 0")
    text = f"""## How much an attribute explains

{n} crowds of each kind. `region` shifts the log-odds of the answers by kind of item, with the standard
deviation "effect"; `hand` has no effect. The share of the disagreement that `region` explains is computed
from the log-odds; "covered" is how often the 90 % interval contains it, and "no effect" how often that of
`hand` contains 0.

{table(head, lines)}

Mean: {100 * means[0]:.1f} % for `region` and {100 * means[1]:.1f} % for `hand`.
"""
    names = "`region`", "`hand`, without effect"
    return text, [
        (f"coverage of 90 % intervals: {name}", f"{100 * share:.1f} %", "88 to 92 %", 0.88 <= share <= 0.92)
        for name, share in zip(names, means.tolist(), strict=True)
    ]


def gains_part(get: Get, n: int, data: Path) -> Part:
    """Return the section on hidden annotators, and the figures with a target."""
    lines, found, null, alone = [], 0, 0, 0
    for number in range(n):
        (real,) = get(f"gain {number}, more hidden", planted_gain, number, EFFECT, 20, 0, 6)["gains"]
        _, random = get(f"gain {number}", planted_gain, number, EFFECT, 20, 1)["gains"]
        (without,) = get(f"gain {number}, no effect", planted_gain, number, 0.0, 20, 0)["gains"]
        found, null, alone = found + gains(real), null + gains(without), alone + gains(random)
        lines.append(line(number + 1, shown(real), shown(random), shown(without)))
    weak = [
        get(f"gain {number}, few labels", planted_gain, number, EFFECT, 6, 0)["gains"][0]
        for number in range(n // 4)
    ]
    text = f"""## Hidden annotators

All labels of a tenth of the annotators are hidden at a time, and predicted by `HPGM`, fitted to the labels
of the others, with `attributes` and without. Gain: in the mean log-probability of a label, in nats, ± two
standard errors over the hidden annotators.

{{}}Planted crowds have 150 annotators, 500 items, 20 labels an item, and two attributes: `region`, whose
effect has a standard deviation of {EFFECT}, and `hand`. Six tenths of the annotators are hidden, a tenth at a
time; in the last two columns, three tenths. With 6 labels an item, the attributes gain in
{sum(map(gains, weak))} of {len(weak)} crowds.

"""
    text += table(("planted crowd", "gain", "attributes shuffled", "crowd without effect"), lines) + "\n"
    goals = [
        ("planted crowds in which attributes gain", f"{found} of {n}", f"{n} of {n}", found == n),
        (
            "planted crowds in which shuffled attributes gain",
            f"{alone} of {n}",
            f"at most {n // 20}",
            alone <= n // 20,
        ),
        (
            "crowds without effect in which attributes gain",
            f"{null} of {n}",
            f"at most {n // 20}",
            null <= n // 20,
        ),
    ]
    multipico = ""
    if (data.parent / "people" / PEOPLE).is_dir():
        (real,) = get(f"gain {PEOPLE}", real_gain, data, 0, FOLDS)["gains"]
        shuffles = get(f"gain {PEOPLE}, shuffled", real_gain, data, N_CROWDS, 3)["gains"][1:]
        low, high = (choose(mean for _, mean, _ in shuffles) for choose in (min, max))
        none = len(shuffles) - sum(map(gains, shuffles))
        multipico = f"""MultiPICo (506 annotators, eight attributes): {real[0]:.4f} without attributes, gain
{shown(real)}. With the attributes of other annotators, in {len(shuffles)} random orders, the gain is between
{low:+.5f} and {high:+.5f}.

"""
        goals.append(("shuffles of MultiPICo's attributes that gain nothing", f"{none} of {len(shuffles)}",
                      f"{len(shuffles)} of {len(shuffles)}", none == len(shuffles)))  # fmt: skip
    return text.replace("{}", multipico), goals


def gains(row: Sequence[float]) -> bool:
    """Check whether a gain is above 0 by two standard errors."""
    return row[1] > 2 * row[2]


def planted_gain(number: int, effect: float, each: int, shuffles: int, folds: int = 3) -> Values:
    """Score a planted crowd."""
    return gain(planted((7, number), effect, 150, 500, each, 3).labels, shuffles, folds)


def real_gain(data: Path, shuffles: int, folds: int) -> Values:
    """Score MultiPICo."""
    labels = next((data / PEOPLE).glob("annotations.csv*"))
    people = data.parent / "people" / PEOPLE / "annotators.csv"
    return gain(read_annotations(labels, annotators=people), shuffles, folds)


def shown(row: Sequence[float]) -> str:
    """Format a gain."""
    return f"{row[1]:+.5f} ± {2 * row[2]:.5f}"


def page(data: Path, crowds: int, measurements: Measurements) -> str:
    """Return the page; without the data of annotators, the part on MultiPICo is left out."""
    get = measurements.get
    predictions, goals = gains_part(get, crowds, data)
    intervals, others = coverage_part(get, crowds * N_COVERAGE // N_CROWDS)
    goals += others
    summary = table(
        ("figure", "measured", "target", "met"), [line(*goal[:3], yes(goal[3])) for goal in goals]
    )
    return f"""# Measured: attributes of annotators

Written by `python -m experiments.attributes --crowds {crowds}` (dissensus {__version__}). The method is
explained in [annotators](../annotators.md).

{summary}

{predictions}
{intervals}"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the page."""
    parser = page_parser("experiments.attributes", "Attributes of annotators")
    parser.add_argument(
        "--crowds", type=int, default=N_CROWDS, help="crowds with predictions; scales the rest"
    )
    options = parser.parse_args(arguments)
    write_page(options.output, page(options.data, options.crowds, Measurements(options.finished)))


if __name__ == "__main__":
    main()
