"""The default, chosen without hindsight, against every other model at its best setting in hindsight.

Five parts, each from all datasets that allow it:

* *Few labels.* R of an item's labels are shown (1, 2, 4, 8), at least four others are reserved: KL of what
  ``fit`` gives and of its rivals, and how often its intervals hold the reserved labels.
* *As recover has it.* The default's KL by the reservation of docs/recovery.md.
* *Intervals.* How often they hold the reserved labels, by the model alone, and whether its chains agree.
* *Hidden labels.* A fifth of the (item, annotator) pairs is hidden, five times: mean −log P of their labels.
* *Unanimity.* The least share that an answer gets which all of five or more annotators gave.

Run as ``python -m experiments.default [--data DIR] [-o FILE] [--finished FILE] [--part NAME]``. With
``--part`` the other parts of the page stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

import dissensus as ds
from dissensus._version import __version__
from dissensus.evaluate.bootstrap import Interval, Resamples
from dissensus.evaluate.recovery import Design, additive, best_in_hindsight
from dissensus.labels.annotations import Annotations
from dissensus.labels.rows import pairs_per_item
from dissensus.metrics import kl_rows
from dissensus.models import title_of
from dissensus.models.base import Model
from dissensus.models.hpgm.model import HPGM
from dissensus.numerics import Array, row_shares
from dissensus.workflow.refine import TEST_SIZE, fit
from experiments.common import Finished, Values, command_line, write_files
from reproduction.datasets import read_dataset
from reproduction.tables import line, table

COMMAND = "python -m experiments.default"
POOL, RESERVED, FEWEST_ITEMS = 8, 4, 90
RESERVED_BY_RECOVER = 6
SHOWN = (1, 2, 4, 8)
DRAWS, SPLITS = 2, 5
COVERED_SETS = ("nli_variation", "tweet_sensitivity")
CROWDS, CROWD_LABELS = 15, 20  # simulated crowds, and the labels of each of their items
INTERVAL_DRAWS = 3  # of R labels an item, in real datasets
HIDDEN_SETS = ("jq1", "jq2", "jq3", "weather_sentiment_amt", "weather_sentiment_cf")
UNANIMOUS = 5
POSSIBLE, DRAWN = 4_000, 2_000  # the oracle: items that there may be, and items drawn from them


def dataset_names(data: Path) -> list[str]:
    """The folders that hold labels."""
    return sorted(folder.name for folder in data.iterdir() if list(folder.glob("annotations.csv*")))


def rivals() -> list[Model]:
    """Every other model, at several settings each."""
    mixtures = [ds.FMM(K) for K in (4, 8, 16)]
    sizes = [(6, 4), (12, 8), (20, 8)]
    graphical = [ds.PGM(K, L, inference=how) for K, L in sizes for how in ("bp", "vb")]
    return [*mixtures, *graphical, ds.DawidSkene(), ds.CBCC()]


# ---- few labels -----------------------------------------------------------------------------------------


def few_labels(annotations: Annotations, n_labels: int, draw: int) -> Values:
    """KL of every item in one draw: the default's, that of each rival, and of smoothed counts."""
    design = Design.of(annotations, POOL, RESERVED, 0, 1e-5)
    labels = design.shown(n_labels, draw)
    default = default_of(labels, draw)
    found = {"default": default.label_distributions_}
    for model in rivals():
        sizes = {"n_item_clusters": labels.n_items, "n_annotator_clusters": labels.n_annotators}
        if all(getattr(model, name, 0) <= most for name, most in sizes.items()):
            found[title_of(model)] = model.fit(labels).label_distributions_
    found["counts"] = additive(labels.counts, best_in_hindsight(design, [labels.counts]))
    rows = {name: np.round(design.divergence(estimate), 5).tolist() for name, estimate in found.items()}
    return {"rows": rows, "chosen": title_of(default), "coverage": coverage(default, design)}


def default_of(labels: Annotations, seed: int) -> Model:
    """What ``fit`` gives; where it refuses because no item has two labels, what it gives for ``hpgm``."""
    alone = pairs_per_item(labels).max() < 2
    return fit(labels, "hpgm" if alone else "auto", seed=seed, test_size=0 if alone else TEST_SIZE).model


def coverage(model: Model, design: Design) -> float | None:
    """How often the middle 90 % of what the model foresees for the reserved counts holds them.

    A share y of a class makes reserved counts Binomial(n, y); over draws of y, u = P(count < c) + U P(count =
    c) is uniform where the intervals are right. None for a model without draws.
    """
    if not isinstance(model, HPGM):
        return None
    counts = design.reserved.counts
    sizes = counts.sum(axis=1, keepdims=True)
    below, here = np.zeros(counts.shape), np.zeros(counts.shape)
    for share in model.share_draws_:
        chance = np.clip(share, 1e-9, 1 - 1e-9)
        below += binom.cdf(counts - 1, sizes, chance)
        here += binom.pmf(counts, sizes, chance)
    place = (below + np.random.default_rng(0).random(counts.shape) * here) / len(model.share_draws_)
    return float(((place > 0.05) & (place < 0.95)).mean())


def oracle(annotations: Annotations) -> Values:
    """Mean KL at every R by somebody who knows which items there are, and how many of each kind.

    Items y are drawn from the posterior of a fit to all labels, and R labels from each, and S more, as many
    as are reserved. P(y | the R labels) ∝ Π_p y_p^{c_p} over all possible items is exact, its mean is the
    estimate, and KL(the S labels ‖ estimate) is averaged. This oracle does not know who gave a label.
    """
    design = Design.of(annotations, POOL, RESERVED, 0, 1e-5)
    everything = annotations.take_items(np.flatnonzero(pairs_per_item(annotations) >= POOL + RESERVED))
    rng = np.random.default_rng(0)
    shares = HPGM(seed=0).fit(everything).share_draws_
    possible = np.maximum(rng.permutation(shares.reshape(-1, shares.shape[2]))[:POSSIBLE], 1e-6).astype(float)
    possible /= possible.sum(axis=1, keepdims=True)
    truth = possible[rng.integers(len(possible), size=DRAWN)]
    sizes = rng.choice(design.reserved.counts.sum(axis=1), size=DRAWN)
    reserved = row_shares(rng.multinomial(sizes, truth))
    found = {}
    for n_labels in SHOWN:
        logs = rng.multinomial(n_labels, truth) @ np.log(possible).T
        chances = row_shares(np.exp(logs - logs.max(axis=1, keepdims=True)))
        found[str(n_labels)] = float(kl_rows(reserved, chances @ possible, smoothing=1e-5).mean())
    return found


@dataclass(frozen=True)
class Cell:
    """One dataset with R labels shown."""

    dataset: str
    n_labels: int
    draws: Sequence[Values]
    oracle: float

    def rows(self, name: str) -> Array:
        """(draws, items): the KL of one estimate."""
        return np.array([draw["rows"][name] for draw in self.draws])

    @property
    def best(self) -> str:
        """The rival with the lowest mean KL."""
        names = [name for name in self.draws[0]["rows"] if name != "default"]
        return str(min(names, key=lambda name: float(self.rows(name).mean())))

    @property
    def gap(self) -> Interval:
        """The default's KL minus the best rival's, paired."""
        difference = self.rows("default") - self.rows(self.best)
        return Resamples(*difference.shape).interval(difference)

    def line(self) -> str:
        """As the table shows it."""
        gap, told = self.gap, [draw["coverage"] for draw in self.draws if draw["coverage"] is not None]
        verdict = "worse" if gap.low > 0 else "better" if gap.high < 0 else "tied"
        covered = f"{np.mean(told):.3f}" if told else "–"
        chosen = " / ".join(dict.fromkeys(draw["chosen"] for draw in self.draws))
        return line(
            self.dataset,
            str(self.n_labels),
            f"{self.rows('default').mean():.4f}",
            chosen,
            f"{self.rows(self.best).mean():.4f}",
            self.best,
            f"{self.rows('counts').mean():.4f}",
            f"{self.oracle:.4f}",
            f"{gap.value:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]",
            verdict,
            covered,
        )


def crowds() -> list[Annotations]:
    """Simulated crowds of a few kinds of items and annotators."""
    return [
        ds.simulate(300, 60, 4, labels_per_item=CROWD_LABELS, seed=seed).annotations for seed in range(CROWDS)
    ]


def recovered(annotations: Annotations, n_labels: int, draw: int) -> Values:
    """Mean KL of the default and of counts smoothed at their best, by the reservation of docs/recovery.md."""
    design = Design.of(annotations, POOL, RESERVED_BY_RECOVER, 0, 1e-5)
    labels = design.shown(n_labels, draw)
    default = default_of(labels, draw)
    counts = additive(labels.counts, best_in_hindsight(design, [labels.counts]))
    divergences = (design.divergence(one) for one in (default.label_distributions_, counts))
    values = dict(zip(("default", "counts"), (float(one.mean()) for one in divergences), strict=True))
    return {**values, "chosen": title_of(default), "items": labels.n_items}


def interval_row(annotations: Annotations, n_labels: int, draw: int) -> Values:
    """How often the intervals hold the reserved labels, the KL, and on how many items the chains agree."""
    design = Design.of(annotations, POOL, RESERVED, 0, 1e-5)
    model = ds.HPGM(seed=draw).fit(design.shown(n_labels, draw))
    return {
        "coverage": coverage(model, design),
        "kl": float(design.divergence(model.label_distributions_).mean()),
        "settled": model.settled_items_,
        "rhat": model.convergence(),
    }


# ---- hidden labels, and unanimity -----------------------------------------------------------------------


def hidden_labels(annotations: Annotations, seed: int) -> Values:
    """Mean −log P of hidden labels given item and annotator, and given the item; and what its chains say."""
    kept, hidden = annotations.split_labels(0.2, seed)
    model = ds.HPGM(seed=seed).fit(kept)
    told = {"settled": model.settled_items_, "rhat": model.convergence()}
    return {"pair": -model.score(hidden), "item": -model.score_items(hidden)} | told


def unanimity(folder: Path) -> Values:
    """The least share of an answer that all annotators of an item gave, five or more of them."""
    annotations = read_dataset(folder)
    counts = annotations.counts
    sizes = counts.sum(axis=1)
    unanimous = (counts.max(axis=1) == sizes) & (sizes >= UNANIMOUS)
    model = ds.HPGM().fit(annotations)
    frame = model.to_frame()
    shares = model.label_distributions_[unanimous, counts[unanimous].argmax(axis=1)]
    largest = model.classes_[model.label_distributions_.argmax(axis=1)]
    return {
        "n_labels": annotations.n_labels,
        "unanimous": int(unanimous.sum()),
        "least": float(shares.min()) if len(shares) else None,
        "below": int((shares < 0.6).sum()),
        "label_is_argmax": bool((frame["label"].to_numpy() == largest).all()),
        "rhat": float(model.rhat_.max()),
    }


# ---- the page -------------------------------------------------------------------------------------------

PAGE = """# The default, measured

Written by `{command}` (dissensus {version}). What `dissensus fit` gives by default is
chosen without looking at the labels it is judged by; the other models stand here with the setting that turned
out best, which nobody can know beforehand.
{parts}"""

FEW = """
## Few labels

R labels of every item with at least {fewest} are shown ({draws} draws), the others reserved:
mean KL(reserved ‖ estimate).
"best other" is the best of smoothed counts, FMM, PGM, Dawid–Skene and CBCC, each at its best setting in
hindsight. "oracle" knows which items there are and does not have to learn it: items drawn from a fit to all
labels, judged by their exact posterior. It does not know who gave a label, so a model that does can be below.
Differences: 95 % of paired resamples of items and draws. Coverage:
how often the middle 90 % of what the draws foresee for the reserved counts holds them.

{table}

Of all {all} cells the default is not worse in {not_worse} ({share:.1%}).
Its KL is the lower one in {all_lower}.
Of {n} cells with two labels or more the default is better in {better}, tied in {tied} and worse in {worse};
its KL is the lower one in {lower}. With one label an item `fit` refuses to answer, because nothing tells a
disputed item from a clear one; `--model hpgm` still fits, and is better in {alone_better}, tied in
{alone_tied} and worse in {alone_worse} of {alone} cells.
"""

RECOVERED = """
## As recover has it

The same by the reservation of [docs/recovery.md](../recovery.md): of items with at least {fewest} labels, 8
may be shown and the others are reserved. Mean KL(reserved ‖ estimate) over {draws} draws ± their standard
deviation.

{table}
"""

INTERVALS = """
## Intervals

`HPGM()` without any setting. Coverage as above: how often the middle 90 % of
what the draws foresee for the reserved counts holds them. Items settled: the share of items on whose class
shares the chains agree (split-R̂ up to 1.1). Of the real datasets {draws} draws of R labels an item; {crowds}
simulated crowds of 300 items, 60 annotators and 4 classes. ± the standard deviation between draws or crowds:
whether 300 items of one crowd are covered hangs together, and one crowd says little.

{table}

{means}
"""

HIDDEN = """
## Hidden labels

−log P of the labels of a fifth of the pairs, mean of {splits} splits ± their standard deviation, `HPGM()`
without any setting; and the share of items on whose class shares the chains agree (split-R̂ up to 1.1).

{table}
"""

UNANIMITY = """
## Answers that everybody gave

Items whose five or more labels agree: the least share of that answer in a fit of `HPGM()` to all labels.

{table}
"""


def few_part(data: Path, finished: Finished) -> str:
    """The table of few labels."""
    cells = []
    for name in dataset_names(data):
        annotations = read_dataset(data / name)
        if (pairs_per_item(annotations) >= POOL + RESERVED).sum() < FEWEST_ITEMS:
            continue
        known = finished.measured(f"oracle | {name}", partial(oracle, annotations))
        for n_labels in SHOWN:
            draws = [
                finished.measured(
                    f"few | {name} | {n_labels} | {draw}", partial(few_labels, annotations, n_labels, draw)
                )
                for draw in range(DRAWS)
            ]
            cells.append(Cell(name, n_labels, draws, known[str(n_labels)]))
    head = [
        "dataset",
        "R",
        "default",
        "chosen",
        "best other",
        "which",
        "counts",
        "oracle",
        "difference",
        "",
        "coverage",
    ]
    better, tied, worse, lower = verdicts([cell for cell in cells if cell.n_labels > 1])
    alone = verdicts([cell for cell in cells if cell.n_labels == 1])
    return FEW.format(
        fewest=POOL + RESERVED,
        draws=DRAWS,
        table=table(head, [cell.line() for cell in cells]),
        all=len(cells),
        all_lower=lower + alone[3],
        not_worse=len(cells) - worse - alone[2],
        share=1 - (worse + alone[2]) / len(cells),
        n=better + tied + worse,
        better=better,
        tied=tied,
        worse=worse,
        lower=lower,
        alone=sum(alone[:3]),
        alone_better=alone[0],
        alone_tied=alone[1],
        alone_worse=alone[2],
    )


def verdicts(cells: Sequence[Cell]) -> tuple[int, int, int, int]:
    """How many cells are better, tied and worse, and in how many the default's KL is the lower."""
    gaps = [cell.gap for cell in cells]
    better, worse = sum(gap.high < 0 for gap in gaps), sum(gap.low > 0 for gap in gaps)
    return better, len(cells) - better - worse, worse, sum(gap.value < 0 for gap in gaps)


def recovered_part(data: Path, finished: Finished) -> str:
    """The table by the reservation of docs/recovery.md."""
    rows = []
    for name in COVERED_SETS:
        annotations = read_dataset(data / name)
        for n_labels in SHOWN:
            found = [
                finished.measured(
                    f"recovered | {name} | {n_labels} | {draw}",
                    partial(recovered, annotations, n_labels, draw),
                )
                for draw in range(INTERVAL_DRAWS)
            ]
            told = [_mean_and_spread([one[key] for one in found], 4) for key in ("default", "counts")]
            chosen = " / ".join(dict.fromkeys(one["chosen"] for one in found))
            rows.append(line(name, f"{found[0]['items']:,}", str(n_labels), told[0], chosen, told[1]))
    return RECOVERED.format(
        fewest=POOL + RESERVED_BY_RECOVER,
        draws=INTERVAL_DRAWS,
        table=table(["dataset", "items", "R", "default", "chosen", "counts"], rows),
    )


def interval_part(data: Path, finished: Finished) -> str:
    """The table of intervals."""
    draws = list(range(INTERVAL_DRAWS))
    sets = {name: [(read_dataset(data / name), draw) for draw in draws] for name in COVERED_SETS}
    sets |= {"simulated": [(crowd, 0) for crowd in crowds()]}
    rows, in_all = [], {}
    for name, members in sets.items():
        covered = []
        for n_labels in SHOWN[1:]:
            found = [
                finished.measured(
                    f"interval | {name} | {n_labels} | {number}",
                    partial(interval_row, annotations, n_labels, draw),
                )
                for number, (annotations, draw) in enumerate(members)
            ]
            kl, coverage_, settled = ([one[key] for one in found] for key in ("kl", "coverage", "settled"))
            covered.append(float(np.mean(coverage_)))
            told = _mean_and_spread(kl, 4), _mean_and_spread(coverage_, 3), f"{np.mean(settled):.2f}"
            rows.append(line(name, str(n_labels), *told))
        in_all[name] = float(np.mean(covered))
    means = "; ".join(f"{name} {mean:.3f}" for name, mean in in_all.items())
    return INTERVALS.format(
        draws=INTERVAL_DRAWS,
        crowds=CROWDS,
        table=table(["dataset", "R", "KL", "coverage", "items settled"], rows),
        means=f"Mean coverage over R: {means}.",
    )


def _mean_and_spread(values: Sequence[float], digits: int) -> str:
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


def hidden_part(data: Path, finished: Finished) -> str:
    """The table of hidden labels."""
    rows = []
    for name in HIDDEN_SETS:
        annotations = read_dataset(data / name)
        found = [
            finished.measured(f"hidden | {name} | {seed}", partial(hidden_labels, annotations, seed))
            for seed in range(SPLITS)
        ]
        told = [f"{np.mean([one[key] for one in found]):.4f} ± {np.std([one[key] for one in found]):.4f}"
                for key in ("pair", "item")]  # fmt: skip
        rows.append(line(name, *told, f"{np.mean([one['settled'] for one in found]):.2f}"))
    head = ["dataset", "given item and annotator", "given the item", "items settled"]
    return HIDDEN.format(splits=SPLITS, table=table(head, rows))


def unanimous_part(data: Path, finished: Finished) -> str:
    """The table of unanimous items."""
    rows = []
    for name in dataset_names(data):
        found = finished.measured(f"unanimous | {name}", partial(unanimity, data / name))
        least = "–" if found["least"] is None else f"{found['least']:.3f}"
        sizes = [f"{found[key]:,}" for key in ("n_labels", "unanimous")]
        is_argmax = "yes" if found["label_is_argmax"] else "no"
        rows.append(line(name, *sizes, least, str(found["below"]), is_argmax))
    head = ["dataset", "labels", "unanimous items", "least share", "below 0.6", "label = largest share"]
    return UNANIMITY.format(table=table(head, rows))


PARTS: dict[str, tuple[str, Callable[[Path, Finished], str]]] = {
    "few": ("Few labels", few_part),
    "recovered": ("As recover has it", recovered_part),
    "intervals": ("Intervals", interval_part),
    "hidden": ("Hidden labels", hidden_part),
    "unanimous": ("Answers that everybody gave", unanimous_part),
}


def section_of(page: str, title: str) -> str:
    """The section of a page under this title, up to the next; empty where it has none."""
    _, found, rest = page.partition(f"\n## {title}\n")
    return f"{found}{rest.split(chr(10) + '## ')[0]}" if found else ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the parts asked for, and write the page; its other parts stay as they are."""
    parser = command_line(COMMAND, "The default against the others", "docs/results/default.md", finished=True)
    parser.add_argument("--part", choices=list(PARTS), action="append", help="only this; repeatable")
    options: Any = parser.parse_args(arguments)
    finished = Finished(options.finished)
    before = options.output.read_text(encoding="utf-8") if options.part and options.output.exists() else ""
    texts = "".join(
        measure(options.data, finished) if name in (options.part or PARTS) else section_of(before, title)
        for name, (title, measure) in PARTS.items()
    )
    write_files(options.output, PAGE.format(command=COMMAND, version=__version__, parts=texts))


if __name__ == "__main__":
    main()
