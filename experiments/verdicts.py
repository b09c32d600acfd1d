"""Calibration of verdicts on annotators: planted crowds, crowds without spammers, and real crowds.

python -m experiments.verdicts [--crowds N] [--data DIR] [--finished FILE]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dissensus as ds
from dissensus._version import __version__
from dissensus.annotators.verdicts import VERDICTS, AnnotatorVerdicts, annotator_verdicts
from dissensus.labels.annotations import Annotations
from experiments.runner import Measurements, Values, line, page_parser, read_dataset, table, write_page, yes

TYPICAL, SPAM, GROUP, ADVERSARY = "typical", "spam", "group", "adversary"
STRATEGIES = ("uniform", "frequencies", "constant", "copy-cats")
LABELS_EACH = (5, 10, 20, 50, 100, 200)
CONSTANT_SHARE = 0.95  # how often a constant spammer gives the favourite class

N_CROWDS = 50  # planted crowds, and also crowds without spammers
SHORT_FIT: dict[str, Any] = {"n_chains": 2, "n_sweeps": 100, "n_jobs": 1}
PROBABILITY_BINS = (0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0)
MIN_GOLD_LABELS = 5  # labels on gold items that an annotator needs for an accuracy
GOLD_DATASETS = (
    "barzan_ac2",
    "bluebirds",
    "face_sentiment",
    "rte",
    "snow_wsd",
    "weather_sentiment_amt",
    "zencrowd",
)


# ---- planted crowds -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlantedCrowd:
    """Simulated labels with the planted kind of each annotator."""

    annotations: Annotations
    kind: NDArray[np.str_]  # (annotators,): "typical", "spam", "group" or "adversary"
    settings: dict[str, Any]


def planted_crowd(
    seed: int,
    *,
    n_annotators: int = 60,
    labels_each: int = 50,
    labels_per_item: int = 5,
    n_classes: int = 4,
    skew: float = 0.0,
    spammers: float = 0.1,
    strategy: str = "uniform",
    adversaries: float = 0.0,
    group: float = 0.0,
    contested: float = 1 / 3,
    accuracy: float = 0.8,
    spread: float = 0.07,
) -> PlantedCrowd:
    """Simulate a crowd with spammers, adversaries and a group with a different view.

    Every item has a class. On a share ``contested`` of the items, the group sees the next class instead.
    Annotators give the class they see with their own accuracy, and another class otherwise; adversaries
    shift every answer by one class. Spammers ignore the item: they answer uniformly, by the class
    frequencies, with a constant class, or as copy-cats with the same answer to an item. ``skew`` is the
    additional frequency of the first class.
    """
    settings = {name: value for name, value in locals().items() if name != "seed"}
    rng = np.random.default_rng(seed)
    N, P = n_annotators, n_classes
    annotator = np.concatenate([rng.permutation(N) for _ in range(labels_each)])
    item = np.arange(annotator.size) // labels_per_item
    M = int(item[-1]) + 1
    sizes = [round(share * N) for share in (spammers, group, adversaries)]
    kind = rng.permutation(np.repeat([SPAM, GROUP, ADVERSARY, TYPICAL], [*sizes, N - sum(sizes)]))
    shares = (1 - skew) / P + skew * (np.arange(P) == 0)
    truth = rng.choice(P, size=M, p=shares)
    other = (truth + 1) % P
    seen = np.where((rng.random(M) < contested)[item] & (kind == GROUP)[annotator], other[item], truth[item])
    right = np.clip(rng.normal(accuracy, spread, size=N), 0.55, 0.98)[annotator]
    wrong = (seen + rng.integers(1, P, size=item.size)) % P
    label = np.where(rng.random(item.size) < right, seen, wrong)
    label = np.where((kind == ADVERSARY)[annotator], (label + 1) % P, label)
    spam = rng.integers(P, size=item.size)
    if strategy == "frequencies":
        spam = rng.choice(P, size=item.size, p=shares)
    elif strategy == "constant":
        favourite = rng.choice(P, size=N, p=shares)[annotator]
        spam = np.where(rng.random(item.size) < CONSTANT_SHARE, favourite, spam)
    elif strategy == "copy-cats":
        spam = rng.choice(P, size=M, p=shares)[item]
    label = np.where((kind == SPAM)[annotator], spam, label)
    annotations = Annotations.from_arrays(item, annotator, label, classes=list(range(P)))
    return PlantedCrowd(annotations, kind, settings)


def random_crowd(seed: int) -> PlantedCrowd:
    """Simulate a crowd with random settings; the labels per annotator cycle through ``LABELS_EACH``."""
    rng = np.random.default_rng([7, seed])
    return planted_crowd(
        seed,
        labels_each=LABELS_EACH[seed % len(LABELS_EACH)],
        labels_per_item=int(rng.choice([3, 5, 8])),
        n_classes=int(rng.choice([2, 3, 4, 6])),
        skew=float(rng.choice([0.0, 0.5])),
        spammers=float(rng.choice([0.0, 0.0, 0.05, 0.1, 0.3])),
        strategy=str(rng.choice(STRATEGIES)),
        adversaries=float(rng.choice([0.0, 0.05])),
        group=float(rng.choice([0.0, 0.05, 0.15, 0.3, 0.5])),
        accuracy=float(rng.choice([0.7, 0.8, 0.9])),
    )


# ---- measuring ----------------------------------------------------------------------------------------


def short_verdicts(labels: Annotations) -> AnnotatorVerdicts:
    """Return the verdicts of a short fit."""
    return annotator_verdicts(labels, ds.HPGM(**SHORT_FIT).fit(labels))


def planted_verdicts(seed: int) -> Values:
    """Measure the verdicts on a random planted crowd."""
    crowd = random_crowd(seed)
    verdicts = short_verdicts(crowd.annotations)
    return {
        "kind": crowd.kind.tolist(),
        "verdict": verdicts.verdict.tolist(),
        "probability": verdicts.spam_probability.tolist(),
        **{name: crowd.settings[name] for name in ("labels_each", "strategy")},
    }


def clean_verdicts(seed: int) -> Values:
    """Count the annotators called spam in a simulated crowd without spammers."""
    verdict = short_verdicts(ds.simulate(seed=seed).annotations).verdict
    return {"annotators": len(verdict), "spam": int((verdict == SPAM).sum())}


def shuffled_labels(labels: Annotations, rng: np.random.Generator) -> Annotations:
    """Shuffle the labels of every annotator among the items of that annotator."""
    order = np.lexsort((rng.random(labels.n_labels), labels.annotator))
    by_annotator = np.argsort(labels.annotator, kind="stable")
    label = labels.label.copy()
    label[by_annotator] = labels.label[order]
    return Annotations.from_arrays(labels.item, labels.annotator, label, classes=range(labels.n_classes))


def shuffled_annotators(labels: Annotations, rng: np.random.Generator) -> Annotations:
    """Shuffle the annotators among all labels."""
    annotator = rng.permutation(labels.annotator)
    return Annotations.from_arrays(labels.item, annotator, labels.label, classes=range(labels.n_classes))


Shuffle = Callable[[Annotations, np.random.Generator], Annotations]
CONTROLS: dict[str, Shuffle] = {
    "labels shuffled within annotators": shuffled_labels,
    "annotators shuffled": shuffled_annotators,
}


def control_verdicts(control: str, n_crowds: int) -> Values:
    """Count the verdicts on planted crowds whose labels or annotators were shuffled."""
    counts = dict.fromkeys(VERDICTS, 0)
    for seed in range(n_crowds):
        crowd = planted_crowd(100 + seed, labels_each=50, spammers=0.1, group=0.15)
        shuffled = CONTROLS[control](crowd.annotations, np.random.default_rng(seed))
        for verdict, n in short_verdicts(shuffled).counts().items():
            counts[verdict] += n
    return counts


def gold_verdicts(folder: Path) -> Values:
    """Return the verdicts on a real crowd and every annotator's accuracy on gold labels.

    The accuracy is None for annotators with too few labels on gold items.
    """
    labels = read_dataset(folder)
    assert labels.gold is not None
    gold = labels.gold[labels.item]
    judged = gold >= 0
    n = np.bincount(labels.annotator[judged], minlength=labels.n_annotators)
    right = np.bincount(labels.annotator[judged], (labels.label == gold)[judged], labels.n_annotators)
    # built again without gold: verdicts must come from the labels alone
    verdicts = short_verdicts(Annotations.from_arrays(labels.item, labels.annotator, labels.label))
    accuracy = [r / size if size >= MIN_GOLD_LABELS else None for r, size in zip(right, n, strict=True)]
    return {"verdict": verdicts.verdict.tolist(), "accuracy": accuracy}


# ---- the page -----------------------------------------------------------------------------------------

PAGE = """# Calibration of verdicts on annotators

Written by `python -m experiments.verdicts --crowds {n}` (dissensus {version}). The verdicts are explained in
[annotators](../annotators.md). Fits are short here: {chains} chains of {sweeps} sweeps.

## Planted crowds

{n} crowds of 60 annotators with random settings: up to 30 % spammers; 2 to 6 classes, balanced or skewed;
spammers that answer uniformly, by the class frequencies, with a constant class or as copy-cats; adversaries;
groups of 5 to 50 % with a different view; 5 to 200 labels per annotator and 3 to 8 labels per item; mean
accuracies of 0.7, 0.8 or 0.9.

{calibration}

Of the {n_called} annotators called spam (probability at least 0.9), {precision:.1%} are spammers
(at least 85 % required: {precise}).

{by_labels}

{by_strategy}

Verdicts on annotators with at least fifty labels:

{by_kind}

## Crowds without spammers

{n} crowds of `ds.simulate(seed=0…{last})` with default settings: {n_wrong} of {n_all} annotators are called
spam ({wrong:.2%}; at most 1 % required: {clean}).

## Controls

{controls}
"""
REAL_CROWDS = """
## Real crowds with gold labels

The verdicts use the labels alone. The accuracy on gold labels is that of annotators with at least {min_gold}
labels on gold items.

{gold}

Over all datasets, the accuracy of the {n_spam} annotators called spam is {ratio:.2f} times that of typical
annotators (at most 0.6 required: {gold_met}).

hs_brexit: {brexit}
"""


def joined(crowds: Sequence[Values], name: str) -> NDArray[Any]:
    """Concatenate one column over crowds."""
    return np.concatenate([np.asarray(crowd[name]) for crowd in crowds])


def calibration_table(crowds: Sequence[Values]) -> str:
    """Tabulate the stated probability of spam and the observed share of spammers."""
    probability, is_spam = joined(crowds, "probability"), joined(crowds, "kind") == SPAM
    lines = []
    for low, high in itertools.pairwise(PROBABILITY_BINS):
        inside = (probability >= low) & ((probability < high) | (high == 1.0))
        if inside.any():
            shares = f"{probability[inside].mean():.3f}", f"{is_spam[inside].mean():.3f}"
            lines.append(line(f"{low:g} to {high:g}", int(inside.sum()), *shares))
    return table(("probability of spam", "annotators", "mean probability", "share of spammers"), lines)


def recall_table(crowds: Sequence[Values], setting: str, values: Sequence[Any]) -> str:
    """Tabulate how often spammers and other annotators are called spam, by a setting of the crowd."""

    def share(mask: NDArray[np.bool_]) -> str:
        return f"{mask.mean():.0%}" if mask.size else "–"

    lines = []
    for value in values:
        subset = [crowd for crowd in crowds if crowd[setting] == value]
        is_spam, verdict = joined(subset, "kind") == SPAM, joined(subset, "verdict")
        cells = [
            share(verdict[side] == name) for side in (is_spam, ~is_spam) for name in (SPAM, "too few labels")
        ]
        lines.append(line(value, int(is_spam.sum()), *cells))
    head = (setting.replace("_", " "), "spammers", "called spam", "too few labels")
    return table((*head, "others called spam", "too few labels"), lines)


def kind_table(crowds: Sequence[Values]) -> str:
    """Tabulate verdicts by planted kind, for annotators with at least fifty labels."""
    subset = [crowd for crowd in crowds if crowd["labels_each"] >= 50]
    kind, verdict = joined(subset, "kind"), joined(subset, "verdict")
    lines = [
        line(name, *(int(((kind == name) & (verdict == column)).sum()) for column in VERDICTS))
        for name in np.unique(kind)
    ]
    return table(("planted as", *VERDICTS), lines)


def real_crowds(data: Path, measurements: Measurements) -> str:
    """Return the part of the page on real crowds."""
    lines, spam, typical = [], list[float](), list[float]()
    for name in GOLD_DATASETS:
        values = measurements.get(f"gold {name}", gold_verdicts, data / name)
        pairs = list(zip(values["verdict"], values["accuracy"], strict=True))
        sides = [
            [accuracy for verdict, accuracy in pairs if verdict == side and accuracy is not None]
            for side in (SPAM, TYPICAL)
        ]
        means = [f"{np.mean(side):.2f}" if side else "–" for side in sides]
        lines.append(line(name, len(pairs), *map(len, sides), *means))
        spam += sides[0]
        typical += sides[1]
    ratio = float(np.mean(spam) / np.mean(typical))
    head = ("dataset", "annotators", "called spam", "typical", "accuracy of spam", "accuracy of typical")
    brexit = short_verdicts(read_dataset(data / "hs_brexit"))
    return REAL_CROWDS.format(
        min_gold=MIN_GOLD_LABELS,
        gold=table(head, lines),
        n_spam=len(spam),
        ratio=ratio,
        gold_met=yes(ratio <= 0.6),
        brexit=f"{brexit.in_words()}; {brexit!r}.",
    )


def page(data: Path, n: int, measurements: Measurements) -> str:
    """Return the page; without data, the part on real crowds is left out."""
    crowds = [measurements.get(f"planted {seed}", planted_verdicts, seed) for seed in range(n)]
    clean = [measurements.get(f"clean {seed}", clean_verdicts, seed) for seed in range(n)]
    controls = {
        name: measurements.get(f"control {name} {n}", control_verdicts, name, max(1, n // 16))
        for name in CONTROLS
    }
    called, is_spam = joined(crowds, "verdict") == SPAM, joined(crowds, "kind") == SPAM
    n_all, n_wrong = (sum(crowd[name] for crowd in clean) for name in ("annotators", "spam"))
    text = PAGE.format(
        n=n,
        last=n - 1,
        version=__version__,
        chains=SHORT_FIT["n_chains"],
        sweeps=SHORT_FIT["n_sweeps"],
        calibration=calibration_table(crowds),
        n_called=int(called.sum()),
        precision=is_spam[called].mean(),
        precise=yes(is_spam[called].mean() >= 0.85),
        by_labels=recall_table(crowds, "labels_each", LABELS_EACH),
        by_strategy=recall_table(crowds, "strategy", STRATEGIES),
        by_kind=kind_table(crowds),
        n_all=n_all,
        n_wrong=n_wrong,
        wrong=n_wrong / n_all,
        clean=yes(n_wrong <= 0.01 * n_all),
        controls=table(
            ("control", *VERDICTS),
            [line(name, *(counts[v] for v in VERDICTS)) for name, counts in controls.items()],
        ),
    )
    return text + (real_crowds(data, measurements) if (data / GOLD_DATASETS[0]).is_dir() else "")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the page."""
    parser = page_parser("experiments.verdicts", "Calibration of verdicts on annotators")
    parser.add_argument("--crowds", type=int, default=N_CROWDS, help="crowds, planted and without spammers")
    options = parser.parse_args(arguments)
    write_page(options.output, page(options.data, options.crowds, Measurements(options.finished)))


if __name__ == "__main__":
    main()
