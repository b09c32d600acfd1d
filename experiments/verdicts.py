"""Are verdicts on annotators calibrated? Over planted crowds of many kinds, clean crowds, and real ones.

Run as ``python -m experiments.verdicts [--crowds N] [--data DIR] [-o FILE]``; without data real crowds are
left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dissensus as ds
from dissensus._version import __version__
from dissensus.annotators.verdicts import VERDICTS, AnnotatorVerdicts, annotator_verdicts
from dissensus.labels.annotations import Annotations
from dissensus.numerics import Array
from experiments.common import command_line, write_files
from experiments.planted_crowds import LABELS_EACH, SPAM, STRATEGIES, Planted, many_kinds, planted
from reproduction.tables import line, table, yes

COMMAND = "python -m experiments.verdicts"
N_CROWDS = 50  # planted ones, and clean ones
FIT: dict[str, Any] = {"n_chains": 2, "n_sweeps": 100, "n_jobs": 1}
BINS = (0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0)
GOLD_SETS = (
    "barzan_ac2",
    "bluebirds",
    "face_sentiment",
    "rte",
    "snow_wsd",
    "weather_sentiment_amt",
    "zencrowd",
)
FEWEST_GOLD = 5  # labels with gold, for an annotator's accuracy to count


def judged(labels: Annotations) -> AnnotatorVerdicts:
    """Verdicts by a short fit."""
    return annotator_verdicts(labels, ds.HPGM(**FIT).fit(labels))


# ---- planted crowds -----------------------------------------------------------------------------------


Found = list[tuple[Planted, AnnotatorVerdicts]]


def calibration(found: Found) -> str:
    """Stated probability of spam against the share that spams."""
    stated = np.concatenate([one.spam_probability for _, one in found])
    true = np.concatenate([crowd.kind == SPAM for crowd, _ in found])
    lines = []
    for low, high in itertools.pairwise(BINS):
        inside = (stated >= low) & ((stated < high) | (high == 1.0))
        if inside.any():
            share = f"{true[inside].mean():.3f}"
            lines.append(
                line(f"{low:g} to {high:g}", int(inside.sum()), f"{stated[inside].mean():.3f}", share)
            )
    return table(("stated probability of spam", "annotators", "mean of it", "share that spams"), lines)


def precision(found: Found) -> tuple[float, int]:
    """Of those called spam, the share that spams; and how many were called so."""
    called = np.concatenate([one.verdict == SPAM for _, one in found])
    true = np.concatenate([crowd.kind == SPAM for crowd, _ in found])
    return float(true[called].mean()), int(called.sum())


def recall(found: Found, name: str, values: Sequence[Any]) -> str:
    """Share of the spammers that is called so, and of the others, by a setting of the crowds."""
    lines = []
    for value in values:
        some = [(crowd, one) for crowd, one in found if crowd.settings[name] == value]
        spam = np.concatenate([crowd.kind == SPAM for crowd, _ in some])
        called = np.concatenate([one.verdict == SPAM for _, one in some])
        few = np.concatenate([one.verdict == "too few labels" for _, one in some])
        cells = [_share(called[spam]), _share(few[spam]), _share(called[~spam]), _share(few[~spam])]
        lines.append(line(value, int(spam.sum()), *cells))
    head = (name.replace("_", " "), "spammers", "called spam", "too few labels")
    return table((*head, "others called spam", "too few labels"), lines)


def _share(flags: NDArray[np.bool_]) -> str:
    return f"{flags.mean():.0%}" if flags.size else "–"


def by_kind(found: Found) -> str:
    """Verdicts on each kind of annotator, who has fifty labels or more."""
    some = [(crowd, one) for crowd, one in found if crowd.settings["labels_each"] >= 50]
    kind = np.concatenate([crowd.kind for crowd, _ in some])
    verdict = np.concatenate([one.verdict for _, one in some])
    lines = [
        line(name, *(int(((kind == name) & (verdict == said)).sum()) for said in VERDICTS))
        for name in np.unique(kind)
    ]
    return table(("planted as", *VERDICTS), lines)


# ---- clean crowds and controls ------------------------------------------------------------------------


def clean(n: int) -> tuple[int, int, int]:
    """Annotators of simulated crowds without spammers: all, called spam, and in the first five crowds."""
    called = [(one.verdict == SPAM) for one in (judged(ds.simulate(seed=s).annotations) for s in range(n))]
    return sum(map(len, called)), int(sum(one.sum() for one in called)), int(sum(c.sum() for c in called[:5]))


def shuffled(labels: Annotations, rng: np.random.Generator) -> Annotations:
    """Every annotator's labels dealt to their items anew."""
    order = np.lexsort((rng.random(labels.n_labels), labels.annotator))
    by_annotator = np.argsort(labels.annotator, kind="stable")
    label = labels.label.copy()
    label[by_annotator] = labels.label[order]
    return Annotations.from_arrays(labels.item, labels.annotator, label, classes=range(labels.n_classes))


def renamed(labels: Annotations, rng: np.random.Generator) -> Annotations:
    """Ids of annotators dealt to the labels anew."""
    return Annotations.from_arrays(
        labels.item, rng.permutation(labels.annotator), labels.label, classes=range(labels.n_classes)
    )


def controls(n: int) -> str:
    """Verdicts where labels have nothing to do with items, and where ids have nothing to do with people."""
    lines = []
    for what, change in (("labels shuffled within annotators", shuffled), ("ids shuffled", renamed)):
        counts = dict.fromkeys(VERDICTS, 0)
        for seed in range(n):
            crowd = planted(100 + seed, labels_each=50, spammers=0.1, group=0.15)
            for verdict, n in judged(change(crowd.annotations, np.random.default_rng(seed))).counts().items():
                counts[verdict] += n
        lines.append(line(what, *counts.values()))
    return table(("control", *VERDICTS), lines)


# ---- real crowds --------------------------------------------------------------------------------------


def gold_rows(data: Path) -> Iterator[tuple[str, AnnotatorVerdicts, Array]]:
    """Each set with gold labels: verdicts, and everybody's accuracy (NaN of too few labels)."""
    for name in GOLD_SETS:
        place = data / name
        file = next(place.glob("annotations.csv*"))
        labels = ds.read_annotations(file, gold=place / "gold.csv")
        assert labels.gold is not None
        gold = labels.gold[labels.item]
        asked = gold >= 0
        n = np.bincount(labels.annotator[asked], minlength=labels.n_annotators)
        right = np.bincount(labels.annotator[asked], (labels.label == gold)[asked], labels.n_annotators)
        accuracy = np.where(n >= FEWEST_GOLD, right / np.maximum(n, 1), np.nan)
        # gold must not help: verdicts come from the labels alone
        found = judged(Annotations.from_arrays(labels.item, labels.annotator, labels.label))
        yield name, found, accuracy


def gold_table(data: Path) -> tuple[str, float, int]:
    """The table, the ratio of mean accuracies over all sets, and how many were called spam."""
    lines, spam, typical = [], [], []
    for name, found, accuracy in gold_rows(data):
        sides = [accuracy[(found.verdict == said) & np.isfinite(accuracy)] for said in (SPAM, "typical")]
        lines.append(line(name, len(found), *(f"{len(x)}" for x in sides), *map(_mean, sides)))
        spam.append(sides[0])
        typical.append(sides[1])
    ratio = float(np.concatenate(spam).mean() / np.concatenate(typical).mean())
    head = ("set", "annotators", "called spam", "typical", "accuracy of spam", "of the typical")
    return table(head, lines), ratio, len(np.concatenate(spam))


def _mean(values: Array) -> str:
    return f"{values.mean():.2f}" if len(values) else "–"


# ---- the page -----------------------------------------------------------------------------------------


PAGE = """# Verdicts on annotators: are they calibrated?

Written by `{command}` (dissensus {version}); every figure is computed by that command. What the
verdicts are and what to do with them: [annotators](../annotators.md). Fits here are short: {chains} chains of
{sweeps} sweeps.

## Planted crowds of many kinds

{n_planted} crowds of 60 annotators whose settings are drawn at random: with and without spammers (up to
30 %); balanced and skewed classes (2 to 6); spammers that answer uniformly, by the class shares, with one
class or as copy-cats; adversaries; groups of 5 to 50 %; 5 to 200 labels each, 3 to 8 labels per item;
accuracies around 0.7, 0.8 or 0.9.

{calibration}

Of the {n_called} annotators called spam (probability 0.9 or more) {precision:.1%} are spammers; at least 85 %
asked: {held}.

{by_labels}

{by_strategy}

Verdicts on annotators with fifty labels or more:

{by_kind}

## Crowds without spammers

{n_clean} crowds of `ds.simulate(seed=0…{last})`, all defaults: {n_wrong} of {n_all} annotators called spam
({wrong:.2%}; at most 1 % asked: {clean_held}); in the first five crowds {n_first}.

## Controls

{controls}
"""
REAL = """
## Real crowds with gold labels

Verdicts from the labels alone; accuracy on gold labels of annotators with {fewest} such labels or more.

{gold}

Over all sets the {n_spam} called spam are right {ratio:.2f} times as often as the typical (at most 0.6 asked:
{gold_held}).

hs_brexit: {brexit}.
"""


def page(data: Path, n: int) -> str:
    """The whole page; ``data`` may be missing."""
    found = [(crowd, judged(crowd.annotations)) for crowd in many_kinds(n)]
    right, n_called = precision(found)
    n_all, n_wrong, n_first = clean(n)
    text = PAGE.format(
        command=f"{COMMAND} --crowds {n}",
        version=__version__,
        chains=FIT["n_chains"],
        sweeps=FIT["n_sweeps"],
        n_planted=n,
        calibration=calibration(found),
        n_called=n_called,
        precision=right,
        held=yes(right >= 0.85),
        by_labels=recall(found, "labels_each", LABELS_EACH),
        by_strategy=recall(found, "strategy", STRATEGIES),
        by_kind=by_kind(found),
        n_clean=n,
        last=n - 1,
        n_wrong=n_wrong,
        n_all=n_all,
        n_first=n_first,
        wrong=n_wrong / n_all,
        clean_held=yes(n_wrong <= 0.01 * n_all),
        controls=controls(max(1, n // 16)),
    )
    return text + (real(data) if (data / GOLD_SETS[0]).is_dir() else "")


def real(data: Path) -> str:
    """The part about real crowds."""
    gold, ratio, n_spam = gold_table(data)
    brexit = judged(ds.read_annotations(data / "hs_brexit" / "annotations.csv"))
    said = f"{brexit.in_words()}; {brexit!r}"
    return REAL.format(
        fewest=FEWEST_GOLD, gold=gold, ratio=ratio, n_spam=n_spam, gold_held=yes(ratio <= 0.6), brexit=said
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page, whole or not at all."""
    parser = command_line(COMMAND, "verdicts on annotators", "docs/results/verdicts.md")
    parser.add_argument("--crowds", type=int, default=N_CROWDS, help="planted crowds, and clean ones")
    options = parser.parse_args(arguments)
    write_files(options.output, page(options.data, options.crowds))


if __name__ == "__main__":
    main()
