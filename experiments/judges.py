"""Judges beside humans, measured: docs/results/judges.md.

    python -m experiments.judges --finished judges.jsonl

Every measurement is kept in the file of finished ones; the page is made of those that are there after the
parts asked for (``--part``, all of them if left out) have been measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as ds
from dissensus.evaluate.bootstrap import Interval, bootstrap_mean
from dissensus.judges.report import JudgeReport
from dissensus.models.base import Model
from dissensus.models.hpgm.adjustments import Aliases
from dissensus.numerics import Array
from experiments.common import Finished, Values, command_line, write_files
from experiments.judge_rates import LABELLED, OTHERS, coverage, populations

COMMAND = "python -m experiments.judges"
# Name, kind of labels and epsilon of each set, and the published winning rates and advantage probabilities.
PUBLISHED: dict[tuple[str, str, float], dict[str, tuple[float, float]]] = {
    ("wax", "nominal", 0.1): {
        "gemini_flash": (0.38, 0.69), "gemini_pro": (0.50, 0.74), "gpt-4o": (0.50, 0.73),
        "llama-31": (0.00, 0.57), "gpt-4o-mini": (0.00, 0.59), "mistral-v03": (0.00, 0.50),
    },
    ("mtbench", "nominal", 0.2): {
        "gemini_flash": (0.00, 0.72), "gemini_pro": (0.00, 0.76), "gpt-4o": (0.00, 0.77),
        "llama-31": (0.00, 0.69), "gpt-4o-mini": (0.00, 0.74), "mistral-v03": (0.00, 0.68),
    },
    ("cebab_aspects", "nominal", 0.1): {
        "gemini_flash": (0.70, 0.91), "gemini_pro": (0.90, 0.94), "gpt-4o": (0.90, 0.93),
        "llama-31": (0.60, 0.89), "gpt-4o-mini": (0.50, 0.90), "mistral-v03": (0.10, 0.81),
    },
    ("summeval", "ordinal", 0.2): {
        "gemini_flash": (0.00, 0.46), "gemini_pro": (0.00, 0.44), "gpt-4o": (0.00, 0.48),
        "llama-31": (0.00, 0.58), "gpt-4o-mini": (0.00, 0.54), "mistral-v03": (0.00, 0.62),
    },
    ("cebab_stars", "ordinal", 0.1): {
        "gemini_flash": (0.60, 0.82), "gemini_pro": (0.80, 0.87), "gpt-4o": (0.90, 0.90),
        "llama-31": (0.60, 0.85), "gpt-4o-mini": (0.90, 0.89), "mistral-v03": (0.50, 0.83),
    },
    ("lesion", "ordinal", 0.15): {
        "gemini_flash": (0.17, 0.71), "gemini_pro": (1.00, 0.81), "gpt-4o": (0.00, 0.62),
        "gpt-4o-mini": (0.67, 0.73),
    },
}  # fmt: skip
HIDDEN_SETS = ("mtbench", "wax", "lesion", "cebab_stars", "cebab_aspects", "summeval")
SPLITS = 5
CHAINS = 2  # of HPGM, half of the usual number: the fits are many
COPIES = 5
INFORMED = "HPGM, judges inform"
GROUPS = {"Ann1": "a", "Ann2": "a", "Ann3": "a", "Ann4": "b", "Ann5": "b", "Ann6": "b"}


def read_set(data: Path, name: str) -> ds.Annotations:
    """One of the sets with judges."""
    folder = data.parent / "judges" / name
    labels = ds.read_annotations(folder / "annotations.csv", annotators=folder / "annotators.csv")
    known: ds.Annotations = labels
    return known


def humans_of(labels: ds.Annotations) -> ds.Annotations:
    """The labels of humans, and nobody else in the vocabulary."""
    part = labels.take_rows((labels.annotator_column("kind") == "human")[labels.annotator])
    return rebuilt(part, part.annotators[part.annotator])


def rebuilt(labels: ds.Annotations, names: Any) -> ds.Annotations:
    """The same labels under these annotators' names, one a row."""
    item, label = labels.items[labels.item], labels.classes[labels.label]
    return ds.Annotations.from_arrays(item, names, label, classes=list(labels.classes))


# ---- hidden labels of humans ----------------------------------------------------------------------------


def hidden_labels(labels: ds.Annotations, split: int) -> Values:
    """Log-probabilities of a fifth of the humans' labels, by model, and the items they are of."""
    is_human = (labels.annotator_column("kind") == "human")[labels.annotator]
    kept, hidden = labels.take_rows(is_human).split_labels(0.2, split)
    pairs = hidden.item.astype(np.int64) * labels.n_annotators + hidden.annotator
    of_row = labels.item.astype(np.int64) * labels.n_annotators + labels.annotator
    everybody = labels.take_rows(~np.isin(of_row, pairs))
    settings: dict[str, Any] = {"n_chains": CHAINS, "n_jobs": 1}
    models: dict[str, tuple[Model, ds.Annotations]] = {
        INFORMED: (ds.HPGM(represent={"kind": "human"}, **settings), everybody),
        "HPGM, humans alone": (ds.HPGM(**settings), kept),
        "Dawid–Skene, everybody": (ds.DawidSkene(), everybody),
        "vote of everybody": (ds.EmpiricalDistribution(), everybody),
        "vote of humans": (ds.EmpiricalDistribution(), kept),
    }
    logs = {}
    for name, (model, seen) in models.items():
        logs[name] = model.fit(seen).log_chances(hidden, annotators=False).round(5).tolist()
    return {"item": hidden.item.tolist(), "logs": logs}


def hidden_rows(done: Finished) -> Iterator[str]:
    """A line a set: mean log-losses, and whether ours is lowest or tied."""
    for name in HIDDEN_SETS:
        splits = [done.done[key] for s in range(SPLITS) if (key := f"hidden {name} {s}") in done.done]
        if not splits:
            continue
        logs = {model: np.concatenate([one["logs"][model] for one in splits]) for model in splits[0]["logs"]}
        items = np.concatenate([one["item"] for one in splits])
        best = min((model for model in logs if model != INFORMED), key=lambda model: -logs[model].mean())
        gap = bootstrap_mean(logs[INFORMED] - logs[best], items=items)
        verdict = "lowest" if gap.low > 0 else "higher" if gap.high < 0 else "tied"
        cells = " | ".join(f"{-rows.mean():.4f}" for rows in logs.values())
        yield f"| {name} | {len(splits)} | {cells} | {ends(gap)} | {verdict} |"


def ends(found: Interval) -> str:
    """A difference with its interval."""
    return f"{found.value:+.4f} ({found.low:+.4f} to {found.high:+.4f})"


# ---- copies ---------------------------------------------------------------------------------------------


def with_copies(labels: ds.Annotations, who: int, prefix: str = "") -> ds.Annotations:
    """The labels with five copies of one annotator under other names."""
    rows = np.flatnonzero(labels.annotator == who)
    every = np.concatenate([np.arange(labels.n_labels), *[rows] * COPIES])
    names = labels.annotators.astype(str)[labels.annotator]
    copies = [np.full(len(rows), f"{prefix}{labels.annotators[who]} copy {i}") for i in range(COPIES)]
    item, label = labels.items[labels.item[every]], labels.classes[labels.label[every]]
    return ds.Annotations.from_arrays(
        item, np.concatenate([names, *copies]), label, classes=list(labels.classes)
    )


def moved(before: Array, after: Array) -> float:
    """Mean total variation."""
    return float(np.abs(before - after).sum(axis=1).mean() / 2)


def clones(labels: ds.Annotations) -> Values:
    """How far copies of each annotator move the vote and Dawid–Skene, and of some annotators HPGM."""

    def fitted(make: Callable[[], Model], seen: ds.Annotations) -> Array:
        return make().fit(seen).label_distributions_

    models: dict[str, Callable[[], Model]] = {"vote": ds.EmpiricalDistribution, "Dawid–Skene": ds.DawidSkene}
    before = {name: fitted(make, labels) for name, make in models.items()}
    found: list[dict[str, Any]] = []
    for who in range(labels.n_annotators):
        copied = with_copies(labels, who)
        row = {name: moved(before[name], fitted(make, copied)) for name, make in models.items()}
        aliases = Aliases.of(copied)
        n_copies = len(aliases.code) - len(aliases.named)
        found.append(row | {"annotator": str(labels.annotators[who]), "copies": n_copies})
    worst = max(range(len(found)), key=lambda who: float(found[who]["vote"]))
    ours = partial(ds.HPGM, n_jobs=1)
    plain = fitted(ours, labels)
    for who in {0, worst}:
        found[who]["HPGM"] = moved(plain, fitted(ours, with_copies(labels, who)))
    return {"rows": found, "in_front": moved(plain, fitted(ours, with_copies(labels, worst, "A ")))}


# ---- whose population -----------------------------------------------------------------------------------


def represented(data: Path, split: int) -> Values:
    """Gains of a group's own population over everybody's, on reserved labels of that group."""
    labels = ds.read_annotations(data / "hs_brexit" / "annotations.csv")
    groups = [GROUPS[str(name)] for name in labels.annotators]
    known = labels.with_tables(annotators={"annotator": labels.annotators, "group": groups})
    shown, hidden = known.split_labels(0.2, split)
    settings: dict[str, Any] = {"n_chains": CHAINS, "n_jobs": 1}
    everybody = ds.HPGM(**settings).fit(shown)
    values: Values = {}
    for group in sorted(set(groups)):
        reserved = hidden.take_rows((known.annotator_column("group") == group)[hidden.annotator])
        own = ds.HPGM(represent={"group": group}, **settings).fit(shown)
        gain = own.log_chances(reserved, annotators=False) - everybody.log_chances(reserved, annotators=False)
        values[group] = {"item": reserved.item.tolist(), "gain": gain.round(5).tolist()}
    return values


# ---- the page -------------------------------------------------------------------------------------------


def published_rows(data: Path) -> Iterator[str]:
    """A line a set: our figures, and whether all are the published ones."""
    for (name, label_type, epsilon), expected in PUBLISHED.items():
        report = ds.judge_report(read_set(data, name), epsilon=epsilon, label_type=label_type)
        found = figures(report)
        cells = "; ".join(f"{judge} {rate:.2f} {advantage:.2f}" for judge, (rate, advantage) in found.items())
        same = sum(found[judge] == pair for judge, pair in expected.items())
        panel = report.panel
        votes = "–" if panel is None else f"{panel.effective_votes:.1f} ({panel.low:.1f} to {panel.high:.1f})"
        yield f"| {name} | {epsilon} | {cells} | {same} of {len(expected)} | {votes} of {len(found)} |"


def figures(report: JudgeReport) -> dict[str, tuple[float, float]]:
    """Winning rate and advantage probability of each judge, to two digits."""
    return {
        row["judge"]: (round(row["winning_rate"], 2), round(row["advantage"], 2)) for row in report.rows()
    }


def measure(data: Path, done: Finished, parts: Sequence[str], n_samples: int = 1000) -> None:
    """Everything that takes time, split by split, so that what is finished counts."""
    if "rates" in parts:
        for one in populations(data):
            key = f"rates {one.name}, {one.judge}, {one.class_name}"
            done.measured(key, partial(coverage, one, n_samples))
    if "copies" in parts:
        brexit = ds.read_annotations(data / "hs_brexit" / "annotations.csv")
        done.measured("copies hs_brexit", partial(clones, brexit))
        done.measured("copies cebab_aspects", partial(clones, humans_of(read_set(data, "cebab_aspects"))))
    for split in range(SPLITS):
        if "represent" in parts:
            done.measured(f"represent {split}", partial(represented, data, split))
        for name in HIDDEN_SETS if "hidden" in parts else ():
            done.measured(f"hidden {name} {split}", partial(hidden_labels, read_set(data, name), split))


TEST = """# Judges beside humans, measured

`{command} --finished judges.jsonl`. The sets are six of Calderon, Reichart and Dror (ACL 2025), and others of
the shared folder. [judges.md](../judges.md) explains the numbers.

## The alternative annotator test

Winning rate and advantage probability of each judge, how many of these pairs equal the published ones to both
digits, and how many independent votes the judges are together (95 % interval).

| set | ε | judges | as published | votes |
|---|---|---|---|---|"""

RATES = """
## Intervals of corrected rates

1,000 subsamples with replacement: {labelled} items with labels of humans, {others:,} with the judge's alone.
How often the 95 % intervals hold the truth, and the mean width of PPI++ beside that of humans' labels alone
and beside `ppi_py`'s on the same subsamples. A subsample with fewer than ten of the class is refused; where
many are, the intervals of the others rest on those with more of it, and are a little off for that.

| population | truth | PPI++ | Rogan–Gladen | humans alone | width / humans' | width / `ppi_py`'s | refused |
|---|---|---|---|---|---|---|---|"""

COPIED = """
## Five copies of one human

How far the items' distributions move (mean total variation) when one human is copied five times under other
names, and how many of the five are found. HPGM is fitted for the first annotator and for the one whose copies
move the vote most; copies that are found leave the labels it samples as they were."""

WHOSE = """
## Whose population

hs_brexit, Ann1–3 as group a and Ann4–6 as group b, {n} splits: what `represent` gains over everybody's
population in log-probability (nats a label) of reserved labels of the group.

| group | labels | gain |
|---|---|---|"""

HIDDEN = """
## Hidden labels of humans

A fifth of the humans' labels hidden; −log P(label | item) in nats, HPGM with {chains} chains. The gap is
what HPGM with judges as informants (`represent={{"kind": "human"}}`) gains over the best of the others,
paired over items."""


def page(data: Path, done: Finished) -> str:
    """The page, of what is finished."""
    parts = [rate_lines, copy_lines, represent_lines, hidden_lines]
    lines = [
        TEST.format(command=COMMAND),
        *published_rows(data),
        *(line for part in parts for line in part(done)),
    ]
    return "\n".join(lines) + "\n"


def rate_lines(done: Finished) -> list[str]:
    """Coverage and widths."""
    rows = []
    for key, value in done.done.items():
        if key.startswith("rates "):
            held = [f"{value[name]['coverage']:.3f}" for name in ("ppi", "rogan_gladen", "humans_alone")]
            width = value["ppi_width"]
            ratios = [f"{width / value['plain_width']:.3f}", f"{width / value['peer_width']:.4f}"]
            cells = [
                key.removeprefix("rates "),
                f"{value['truth']:.3f}",
                *held,
                *ratios,
                str(value["refused"]),
            ]
            rows.append(f"| {' | '.join(cells)} |")
    return [RATES.format(labelled=LABELLED, others=OTHERS), *rows] if rows else []


def copy_lines(done: Finished) -> list[str]:
    """A table for each set that was copied in."""
    lines = []
    for name in ("hs_brexit", "cebab_aspects"):
        value = done.done.get(f"copies {name}")
        if value is None:
            continue
        lines += ["", f"| {name} | vote | Dawid–Skene | HPGM | copies found |", "|---|---|---|---|---|"]
        for row in value["rows"]:
            ours = f"{row['HPGM']:.4f}" if "HPGM" in row else "–"
            theirs = f"{row['vote']:.4f} | {row['Dawid–Skene']:.4f}"
            lines.append(f"| {row['annotator']} | {theirs} | {ours} | {row['copies']} |")
        other = f"{value['in_front']:.4f}"
        lines += ["", f"Under names that come first in the alphabet, HPGM moves by {other}."]
    return [COPIED, *lines] if lines else []


def represent_lines(done: Finished) -> list[str]:
    """What a group's own population gains."""
    splits = [value for key, value in done.done.items() if key.startswith("represent ")]
    rows = []
    for group in sorted(set(GROUPS.values())) if splits else ():
        gain = np.concatenate([one[group]["gain"] for one in splits])
        found = bootstrap_mean(gain, items=np.concatenate([one[group]["item"] for one in splits]))
        rows.append(f"| {group} | {len(gain):,} | {ends(found)} |")
    return [WHOSE.format(n=len(splits)), *rows] if rows else []


def hidden_lines(done: Finished) -> list[str]:
    """A line a set."""
    first = next((value for key, value in done.done.items() if key.startswith("hidden ")), None)
    if first is None:
        return []
    names = ["set", "splits", *first["logs"], "gap", "ours"]
    heads = ["", f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    return [HIDDEN.format(chains=CHAINS), *heads, *hidden_rows(done)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is asked for, and write the page."""
    parser = command_line(COMMAND, "Judges beside humans, measured", "docs/results/judges.md", finished=True)
    parts = ("rates", "copies", "represent", "hidden")
    parser.add_argument(
        "--part", action="append", choices=(*parts, "none"), help="measure this part; repeatable"
    )
    options = parser.parse_args(arguments)
    done = Finished(options.finished)
    measure(options.data, done, options.part or parts)
    write_files(options.output, page(options.data, done))


if __name__ == "__main__":
    main()
