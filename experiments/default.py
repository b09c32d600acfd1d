"""The default model against every other model at its best setting in hindsight.

    python -m experiments.default [--data DIR] [--finished FILE]

Five parts, each on all datasets that allow it: estimates from few labels, coverage of the intervals,
log-probabilities of hidden labels, two runs with different seeds, and unanimous items.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

import dissensus as ds
from dissensus._version import __version__
from dissensus.evaluate.bootstrap import Interval, Resamples
from dissensus.evaluate.compare import is_applicable
from dissensus.evaluate.recovery import Design, additive, best_in_hindsight
from dissensus.labels.annotations import Annotations
from dissensus.labels.rows import pairs_per_item
from dissensus.metrics import kl_rows
from dissensus.models import title_of
from dissensus.models.base import Model
from dissensus.numerics import Array, row_shares
from experiments.runner import (
    Measurements,
    Values,
    compared,
    dataset_names,
    line,
    page_parser,
    read_dataset,
    table,
    write_page,
    yes,
)

POOL = 8  # labels of an item from which the shown ones are drawn
MIN_RESERVED = 4  # other labels that an item needs
MIN_ITEMS = 90  # items with enough labels that a dataset needs
LABELS_SHOWN = (1, 2, 4, 8)
N_DRAWS, N_SPLITS = 4, 5
CUTS = (150, 250, 400)  # items that datasets are cut to for the intervals
HIDDEN_DATASETS = ("jq1", "jq2", "jq3", "weather_sentiment_amt", "weather_sentiment_cf")
TWICE_DATASETS = ("jq1", "jq3", "gwsd", "weather_sentiment_amt", "hs_brexit", "rte")
N_CROWDS, CROWD_LABELS = 8, 20  # simulated crowds, and labels per item
UNANIMOUS_LABELS = 5  # equal labels from which an item counts as unanimous
POSSIBLE_ITEMS, DRAWN_ITEMS = 4_000, 2_000  # of the oracle


def rivals() -> list[Model]:
    """Return all other models, each at several settings."""
    mixtures = [ds.FMM(K) for K in (4, 8, 16)]
    sizes = [(6, 4), (12, 8), (20, 8)]
    graphical = [ds.PGM(K, L, inference=inference) for K, L in sizes for inference in ("bp", "vb")]
    return [*mixtures, *graphical, ds.DawidSkene(), ds.CBCC()]


# ---- measuring ----------------------------------------------------------------------------------------


def rival_estimates(annotations: Annotations, n_labels: int, draw: int) -> Values:
    """Measure the KL of every item in one draw, for smoothed counts and all rivals of the default."""
    design = Design.of(annotations, POOL, MIN_RESERVED, draw, 1e-5)
    labels = design.shown(n_labels, draw)
    estimates = {"counts": additive(labels.counts, best_in_hindsight(design, [labels.counts]))}
    for model in rivals():
        sizes = {"n_item_clusters": labels.n_items, "n_annotator_clusters": labels.n_annotators}
        if all(getattr(model, name, 0) <= size for name, size in sizes.items()):
            estimates[title_of(model)] = model.fit(labels).label_distributions_
    return {name: np.round(design.divergence(table), 5).tolist() for name, table in estimates.items()}


def default(labels: Annotations, seed: int) -> ds.Pool:
    """Return the model that ``fit`` fits, which uses the texts of the items if there are any."""
    with_texts = ds.Pool(use_features=True, seed=seed)
    return with_texts if is_applicable(with_texts, labels) else ds.Pool(seed=seed)


def default_estimate(annotations: Annotations, n_labels: int, draw: int) -> Values:
    """Measure the KL of every item and the coverage in one draw, for the default."""
    design = Design.of(annotations, POOL, MIN_RESERVED, draw, 1e-5)
    shown = design.shown(n_labels, draw)
    model = default(shown, draw).fit(shown)
    rows = np.round(design.divergence(model.label_distributions_), 5).tolist()
    return {"default": rows, "coverage": coverage(model, design)}


def coverage(model: ds.Pool, design: Design) -> float:
    """Return how often the central 90 % of the predicted reserved counts contain the observed counts.

    Given the share y of a class, the reserved count is Binomial(n, y). Averaged over posterior draws of y,
    u = P(count < c) + U P(count = c) is uniform if the intervals are right.
    """
    counts = design.reserved.counts
    sizes = counts.sum(axis=1, keepdims=True)
    below, equal = np.zeros(counts.shape), np.zeros(counts.shape)
    for draw in model.share_draws_:
        share = np.clip(draw, 1e-9, 1 - 1e-9)
        below += binom.cdf(counts - 1, sizes, share)
        equal += binom.pmf(counts, sizes, share)
    rank = (below + np.random.default_rng(0).random(counts.shape) * equal) / len(model.share_draws_)
    return float(((rank > 0.05) & (rank < 0.95)).mean())


def oracle(annotations: Annotations) -> Values:
    """Measure the mean KL at every R of an oracle that knows the distribution of items.

    Items y are drawn from the posterior of a fit to all labels, and for each R shown labels and S reserved
    ones. P(y | R labels) ∝ Π_p y_p^{c_p} over all possible items is exact; its mean is the estimate, compared
    by KL(S labels ‖ estimate). The oracle does not know who gave a label.
    """
    design = Design.of(annotations, POOL, MIN_RESERVED, 0, 1e-5)
    subset = annotations.take_items(np.flatnonzero(pairs_per_item(annotations) >= POOL + MIN_RESERVED))
    rng = np.random.default_rng(0)
    draws = ds.HPGM(seed=0).fit(subset).share_draws_
    possible = rng.permutation(draws.reshape(-1, draws.shape[2]))[:POSSIBLE_ITEMS]
    possible = np.maximum(possible, 1e-6).astype(float)
    possible /= possible.sum(axis=1, keepdims=True)
    truth = possible[rng.integers(len(possible), size=DRAWN_ITEMS)]
    sizes = rng.choice(design.reserved.counts.sum(axis=1), size=DRAWN_ITEMS)
    reserved = row_shares(rng.multinomial(sizes, truth))
    values = {}
    for n_labels in LABELS_SHOWN:
        logs = rng.multinomial(n_labels, truth) @ np.log(possible).T
        posterior = row_shares(np.exp(logs - logs.max(axis=1, keepdims=True)))
        values[str(n_labels)] = float(kl_rows(reserved, posterior @ possible, smoothing=1e-5).mean())
    return values


def cut(annotations: Annotations, n_items: int, draw: int) -> Annotations:
    """Return the labels of a random subset of the items with enough labels."""
    items = np.flatnonzero(pairs_per_item(annotations) >= POOL + MIN_RESERVED)
    return annotations.take_items(np.sort(np.random.default_rng(draw).choice(items, n_items, replace=False)))


def hidden_labels(annotations: Annotations, seed: int) -> Values:
    """Measure −log P of hidden labels given item and annotator, and given the item."""
    shown, hidden = annotations.split_labels(0.2, seed)
    model = ds.Pool(seed=seed).fit(shown)
    return {"pair": -model.score(hidden), "item": -model.score_items(hidden)}


def two_runs(annotations: Annotations) -> Values:
    """Measure how far two runs with different seeds differ, and what each says about it."""
    start = time.process_time()
    models = [ds.Pool(seed=seed).fit(annotations) for seed in (0, 1)]
    seconds = (time.process_time() - start) / 2
    first, second = (model.label_distributions_ for model in models)
    return {
        "tv": float(np.abs(first - second).sum(axis=1).mean() / 2),
        "flips": float((first.argmax(axis=1) != second.argmax(axis=1)).mean()),
        "said": float(np.mean([model.run_difference_ for model in models])),
        "seconds": seconds,
        "labels": annotations.n_labels,
    }


def unanimity(folder: Path) -> Values:
    """Measure the smallest share that the common answer of a unanimous item receives."""
    annotations = read_dataset(folder)
    counts = annotations.counts
    sizes = counts.sum(axis=1)
    unanimous = (counts.max(axis=1) == sizes) & (sizes >= UNANIMOUS_LABELS)
    model = ds.Pool().fit(annotations)
    shares = model.label_distributions_[unanimous, counts[unanimous].argmax(axis=1)]
    largest = model.classes_[model.label_distributions_.argmax(axis=1)]
    return {
        "n_labels": annotations.n_labels,
        "unanimous": int(unanimous.sum()),
        "least": float(shares.min()) if len(shares) else None,
        "below": int((shares < 0.6).sum()),
        "label_is_argmax": bool((model.to_frame()["label"].to_numpy() == largest).all()),
    }


# ---- the page -----------------------------------------------------------------------------------------

HEAD = """# The default model

Written by `python -m experiments.default` (dissensus {version}). The default of `dissensus fit` is the pool
of HPGM and latent positions, with nothing selected; in the first two parts it uses the texts of the items
where a dataset has them. All other models are shown at the setting that turned out best, which is not known
in advance.
"""

FEW = """
## Few labels

R labels are shown of every item that has at least {min_labels}. Of its labels, {pool} may be shown, and the
others are reserved; each of {draws} draws divides the labels anew. The table shows the mean
KL(reserved ‖ estimate). "Best other" is the best of smoothed counts, FMM, PGM, Dawid–Skene and CBCC, each at
its best setting. The oracle knows the distribution of the items (drawn from a fit to all labels) and computes
exact posteriors. It does not know who gave a label, so a model that uses the annotators can have a lower KL.
Differences have 95 % intervals over paired resamples of items and draws.

{table}

The default is not worse in {not_worse} of {n} cells ({share:.1%}) and has the lower KL in {lower}.
{several}, and it has the lower KL in {several_lower}. With one label per item `fit` refuses to
answer, because disputed and clear items cannot be distinguished. `--model pool` still fits: {single}.
"""

INTERVALS = """
## Intervals

Coverage is the share of reserved counts inside the central 90 % of the predicted counts, for all items, for
{draws} random subsets of 150, 250 and 400 items, and for {crowds} simulated crowds of 300 items,
60 annotators and 4 classes (mean ± standard deviation over draws or crowds). Items of one crowd are covered
or missed together, so a single crowd says little.

{table}

Mean over R = 2, 4, 8: {means}. Lowest of the cells: {lowest:.3f}.
"""

HIDDEN = """
## Hidden labels

−log P of the labels of a hidden fifth of the (item, annotator) pairs, mean of {splits} splits ± standard
deviation.

{table}
"""

TWICE = """
## Two runs

Two fits with different seeds: mean total variation between the shares of an item, items whose largest share
changes, the total variation that the fits themselves state ("a second run would move …"), and processor
seconds of a fit.

{table}
"""

UNANIMITY = """
## Unanimous items

Items with at least {labels} labels, all equal: the smallest share of that answer in a fit to all labels.

{table}
"""


@dataclass(frozen=True)
class FewLabelsCell:
    """One dataset with R labels shown."""

    dataset: str
    n_labels: int
    draws: Sequence[Values]
    oracle: float

    def rows(self, name: str) -> Array:
        """Return the KL of an estimate, (draws, items)."""
        return np.array([draw[name] for draw in self.draws])

    @property
    def best_rival(self) -> str:
        """Name of the rival with the lowest mean KL."""
        names = [name for name in self.draws[0] if name not in ("default", "coverage", "cpu_seconds")]
        return str(min(names, key=lambda name: float(self.rows(name).mean())))

    @property
    def difference(self) -> Interval:
        """KL of the default minus that of the best rival, paired."""
        rows = self.rows("default") - self.rows(self.best_rival)
        return Resamples(*rows.shape).interval(rows)

    def line(self) -> str:
        """Return the line of the table."""
        difference = self.difference
        return line(
            *(self.dataset, self.n_labels, f"{self.rows('default').mean():.4f}"),
            *(f"{self.rows(self.best_rival).mean():.4f}", self.best_rival),
            *(f"{self.rows('counts').mean():.4f}", f"{self.oracle:.4f}"),
            f"{difference.value:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}]",
            compared(difference),
        )


def mean_and_deviation(draws: Sequence[Values], name: str, digits: int, ddof: int = 1) -> str:
    """Format the mean and standard deviation of a value over draws."""
    values = [draw[name] for draw in draws]
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=ddof):.{digits}f}"


def summary(cells: Sequence[FewLabelsCell], subject: str) -> str:
    """Count the cells in which the default is better, tied and worse."""
    verdicts = [compared(cell.difference) for cell in cells]
    better, tied, worse = (verdicts.count(name) for name in ("better", "tied", "worse"))
    return f"{subject} is better in {better}, tied in {tied} and worse in {worse} of {len(cells)} cells"


def few_part(data: Path, measurements: Measurements) -> str:
    """Measure and tabulate the estimates from few labels."""
    cells = []
    for name in dataset_names(data):
        annotations = read_dataset(data / name)
        if (pairs_per_item(annotations) >= POOL + MIN_RESERVED).sum() < MIN_ITEMS:
            continue
        oracles = measurements.get(f"oracle | {name}", oracle, annotations)
        for n_labels in LABELS_SHOWN:
            draws = []
            for draw in range(N_DRAWS):
                arguments, key = (annotations, n_labels, draw), f"{name} | {n_labels} | {draw}"
                rows = measurements.get(f"rivals | {key}", rival_estimates, *arguments)
                draws.append(rows | measurements.get(f"default | {key}", default_estimate, *arguments))
            cells.append(FewLabelsCell(name, n_labels, draws, oracles[str(n_labels)]))
    several = [cell for cell in cells if cell.n_labels > 1]
    single = [cell for cell in cells if cell.n_labels == 1]
    not_worse = sum(compared(cell.difference) != "worse" for cell in cells)
    head = ("dataset", "R", "default", "best other", "which", "counts", "oracle", "difference", "")
    return FEW.format(
        min_labels=POOL + MIN_RESERVED,
        pool=POOL,
        draws=N_DRAWS,
        table=table(head, [cell.line() for cell in cells]),
        n=len(cells),
        not_worse=not_worse,
        share=not_worse / len(cells),
        lower=sum(cell.difference.value < 0 for cell in cells),
        several=summary(several, "With two or more labels the default"),
        several_lower=sum(cell.difference.value < 0 for cell in several),
        single=summary(single, "it"),
    )


def interval_part(data: Path, measurements: Measurements) -> str:
    """Measure and tabulate coverage, for all items and for subsets."""
    crowd: dict[str, Any] = {"labels_per_item": CROWD_LABELS}
    crowds = [(ds.simulate(300, 60, 4, **crowd, seed=seed).annotations, 0) for seed in range(N_CROWDS)]
    members: dict[str, list[tuple[Annotations, int]]] = {}
    for name in dataset_names(data):
        annotations = read_dataset(data / name)
        n_items = int((pairs_per_item(annotations) >= POOL + MIN_RESERVED).sum())
        if n_items >= MIN_ITEMS:
            members[name] = [(annotations, draw) for draw in range(N_DRAWS)]
            for size in CUTS:
                if size < n_items:
                    cuts = [(cut(annotations, size, draw), draw) for draw in range(N_DRAWS)]
                    members[f"{name}, {size} items"] = cuts
    members["simulated"] = crowds
    lines, means = [], dict[int, list[float]]()
    for name, cases in members.items():
        cells = []
        for n_labels in LABELS_SHOWN[1:]:
            rows = []
            for number, (annotations, draw) in enumerate(cases):
                key = f"default | {name} | {n_labels} | {number}"
                rows.append(measurements.get(key, default_estimate, annotations, n_labels, draw))
            cells.append(mean_and_deviation(rows, "coverage", 3))
            means.setdefault(n_labels, []).append(float(np.mean([row["coverage"] for row in rows])))
        lines.append(line(name, *cells))
    return INTERVALS.format(
        draws=N_DRAWS,
        crowds=N_CROWDS,
        table=table(("dataset", *(f"R = {n}" for n in LABELS_SHOWN[1:])), lines),
        means=", ".join(f"{np.mean(values):.3f}" for values in means.values()),
        lowest=min(min(values) for values in means.values()),
    )


def twice_part(data: Path, measurements: Measurements) -> str:
    """Measure and tabulate how far two runs differ."""
    lines = []
    for name in TWICE_DATASETS:
        row = measurements.get(f"twice | {name}", two_runs, read_dataset(data / name))
        shares = (f"{row['tv']:.4f}", f"{row['flips']:.1%}", f"{row['said']:.4f}")
        lines.append(line(name, f"{row['labels']:,}", *shares, f"{row['seconds']:.1f}"))
    head = ("dataset", "labels", "total variation", "items that change", "stated", "processor seconds")
    return TWICE.format(table=table(head, lines))


def hidden_part(data: Path, measurements: Measurements) -> str:
    """Measure and tabulate hidden labels."""
    lines = []
    for name in HIDDEN_DATASETS:
        annotations = read_dataset(data / name)
        splits = [
            measurements.get(f"hidden | {name} | {seed}", hidden_labels, annotations, seed)
            for seed in range(N_SPLITS)
        ]
        losses = (mean_and_deviation(splits, column, 4, ddof=0) for column in ("pair", "item"))
        lines.append(line(name, *losses))
    head = ("dataset", "given item and annotator", "given the item")
    return HIDDEN.format(splits=N_SPLITS, table=table(head, lines))


def unanimous_part(data: Path, measurements: Measurements) -> str:
    """Measure and tabulate unanimous items."""
    lines = []
    for name in dataset_names(data):
        values = measurements.get(f"unanimous | {name}", unanimity, data / name)
        least = "–" if values["least"] is None else f"{values['least']:.3f}"
        sizes = (f"{values[column]:,}" for column in ("n_labels", "unanimous"))
        lines.append(line(name, *sizes, least, values["below"], yes(values["label_is_argmax"])))
    head = ("dataset", "labels", "unanimous items", "smallest share", "below 0.6", "label = largest share")
    return UNANIMITY.format(labels=UNANIMOUS_LABELS, table=table(head, lines))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure everything that is not finished, and write the page."""
    options = page_parser("experiments.default", "The default against all other models").parse_args(arguments)
    measurements = Measurements(options.finished)
    parts = (few_part, interval_part, hidden_part, twice_part, unanimous_part)
    text = "".join(part(options.data, measurements) for part in parts)
    write_page(options.output, HEAD.format(version=__version__) + text)


if __name__ == "__main__":
    main()
