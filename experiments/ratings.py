"""Numeric ratings: is what was planted found, do intervals cover, and are hidden ratings foreseen?

* *Planted.* Crowds with biases, uses of the scale, noise and outliers: correlations of what is estimated with
  what was planted, and the share of the items whose 95 % interval covers their value.
* *Hidden.* A fifth of the (item, annotator) pairs is hidden, three times: root mean squared error of
  ``NumericRatings``, of the plain mean of an item's ratings, and of a mixed model (statsmodels' ``MixedLM``:
  annotators' means fixed, items random), with intervals of the differences, paired over items.
* *A million* simulated ratings: the time of a fit.

Run as ``python -m experiments.ratings [--data DIR] [-o FILE] [--finished FILE]``; needs the ``bench`` extra.
Scales of real sets are read as numbers; sets of judges are looked for beside the folder of the datasets.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as ds
from dissensus._version import __version__
from dissensus.evaluate.bootstrap import bootstrap_mean
from dissensus.labels.annotations import Annotations
from dissensus.numerics import Array
from experiments.common import Finished, Values, command_line, write_files
from reproduction.tables import line

COMMAND = "python -m experiments.ratings"
SEEDS, SPLITS, MOST_LABELS = 30, 3, 4_000
#: items, annotators, ratings per item, share of outliers, spread of the uses of the scale
CROWDS: dict[str, tuple[int, int, int, float, float]] = {
    "500 ratings": (100, 12, 5, 0.0, 0.0),
    "with outliers and uses of the scale": (200, 20, 6, 0.05, 0.25),
    "three ratings per item": (400, 30, 3, 0.03, 0.15),
}
REAL = ("judges/cebab_stars", "judges/summeval", "judges/lesion", "web_search", "anesthesia")


def planted(crowd: str, seed: int) -> tuple[Annotations, dict[str, Array]]:
    """Ratings from 0 to 100 or so with everything planted."""
    M, N, per_item, wild, wide = CROWDS[crowd]
    rng = np.random.default_rng([seed, sum(map(ord, crowd))])
    value, bias = rng.normal(50, 15, M), rng.normal(0, 6, N)
    scale, noise = 1 + wide * rng.standard_normal(N), 5 * np.exp(0.3 * rng.standard_normal(N))
    item = np.repeat(np.arange(M), per_item)
    who = np.concatenate([rng.choice(N, per_item, replace=False) for _ in range(M)])
    y = 50 + bias[who] + scale[who] * (value[item] - 50) + noise[who] * rng.standard_normal(len(item))
    out = rng.random(len(item)) < wild
    y[out] = rng.uniform(-50, 150, out.sum())
    truth = {"value": value, "bias": bias, "scale": scale}
    return Annotations.from_arrays(item, who, y, label_type="numeric"), truth


def recovered(crowd: str, seed: int) -> Values:
    """What a fit found of what was planted."""
    labels, truth = planted(crowd, seed)
    model = ds.NumericRatings(seed=seed).fit(labels)
    table, told = model.to_frame(), model.annotator_frame()
    value = truth["value"][np.asarray(table["item"], int)]
    counts = np.bincount(labels.item)
    means = np.bincount(labels.item, labels.values) / counts
    found = {
        "cover": float(((table["low"] <= value) & (value <= table["high"])).mean()),
        "value": float(np.corrcoef(table["estimate"], value)[0, 1]),
        "mean": float(np.corrcoef(means, value)[0, 1]),
        "bias": float(np.corrcoef(told["bias"], truth["bias"])[0, 1]),
    }
    if CROWDS[crowd][4]:
        found["scale"] = float(np.corrcoef(told["scale"], truth["scale"])[0, 1])
    return found


def read_ratings(data: Path, name: str) -> Annotations:
    """A planted crowd, or a real scale as numbers, at most ``MOST_LABELS`` of them."""
    if name in CROWDS:
        return planted(name, 0)[0]
    folder = data.parent / name if "/" in name else data / name
    labels: Annotations = ds.read_annotations(folder / "annotations.csv", label_type="numeric")
    order = np.random.default_rng(0).permutation(labels.n_items)
    within = np.cumsum(np.diff(labels.item_pointers)[order]) <= MOST_LABELS
    return labels.take_items(np.sort(order[within]))


def hidden_errors(labels: Annotations, seed: int) -> Values:
    """Squared errors of every hidden rating by each model, given the item alone and with the annotator."""
    kept, hidden = labels.split_labels(0.2, seed)
    model = ds.NumericRatings(seed=seed).fit(kept)
    foreseen = {
        "ours": [model.expected(hidden.item)[0], model.expected(hidden.item, hidden.annotator)[0]],
        "mean": [plain_means(kept)[hidden.item]] * 2,
        "mixed": mixed_model(kept, hidden),
    }
    squares = {
        name: [np.round((table - hidden.values) ** 2, 6).tolist() for table in tables]
        for name, tables in foreseen.items()
    }
    return {"item": hidden.item.tolist(), **squares}


def plain_means(kept: Annotations) -> Array:
    """(items,): the mean of an item's ratings; of all where it has none."""
    counts = np.bincount(kept.item, minlength=kept.n_items)
    sums = np.bincount(kept.item, kept.values, kept.n_items)
    return np.where(counts > 0, sums / np.maximum(counts, 1), kept.values.mean())


def mixed_model(kept: Annotations, hidden: Annotations) -> list[Array]:
    """y = annotator's mean + item's random effect + noise, by REML; given the item, and by whom."""
    from statsmodels.regression.mixed_linear_model import MixedLM

    people, who = np.unique(kept.annotator, return_inverse=True)
    design = np.eye(len(people))[who]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = MixedLM(kept.values, design, groups=kept.item).fit(reml=True)
    effects = np.zeros(kept.n_items)
    for item, effect in fitted.random_effects.items():
        effects[item] = float(np.asarray(effect).ravel()[0])
    usual = float(np.bincount(who) @ fitted.fe_params / len(who))
    means = np.full(kept.n_annotators, usual)
    means[people] = fitted.fe_params
    return [usual + effects[hidden.item], means[hidden.annotator] + effects[hidden.item]]


def a_million() -> Values:
    """Seconds to fit 10⁶ ratings."""
    rng = np.random.default_rng(0)
    item, who = np.repeat(np.arange(100_000), 10), rng.integers(0, 1_000, 1_000_000)
    y = rng.normal(50, 15, 100_000)[item] + rng.normal(0, 6, 1_000)[who] + rng.normal(0, 5, 1_000_000)
    labels = Annotations.from_arrays(item, who, np.round(y, 1), label_type="numeric")
    began = time.process_time()
    ds.NumericRatings().fit(labels)
    return {"seconds": round(time.process_time() - began, 1)}


def planted_lines(finished: Finished) -> list[str]:
    """One line per crowd."""
    rows = []
    for crowd in CROWDS:
        runs = [
            finished.measured(f"{crowd} {seed}", partial(recovered, crowd, seed)) for seed in range(SEEDS)
        ]
        inside = bootstrap_mean(np.array([run["cover"] for run in runs]))
        found = {key: [run[key] for run in runs if key in run] for key in ("value", "mean", "bias", "scale")}
        cells = [f"{np.mean(values):.3f}" if values else "–" for values in found.values()]
        rows.append(line(crowd, *cells, f"{inside.value:.1%} [{inside.low:.1%}, {inside.high:.1%}]"))
    return rows


def hidden_lines(name: str, splits: Sequence[Values]) -> list[str]:
    """Two lines a set: given the item, and given item and annotator."""
    rows, item = [], np.concatenate([one["item"] for one in splits])
    for which, given in enumerate(("item", "item, annotator")):
        errors = {
            key: np.concatenate([one[key][which] for one in splits]) for key in ("ours", "mean", "mixed")
        }
        cells = [f"{np.sqrt(errors[key].mean()):.3f}" for key in errors]
        for rival in ("mean", "mixed"):
            gap = bootstrap_mean(errors["ours"] - errors[rival], items=item)
            scale = errors[rival].mean()
            cells.append(f"{gap.value / scale:+.1%} [{gap.low / scale:+.1%}, {gap.high / scale:+.1%}]")
        rows.append(line(name.removeprefix("judges/"), given, *cells))
    return rows


def page(data: Path, finished: Finished) -> str:
    """The whole page."""
    rows: list[str] = []
    for name in (*list(CROWDS)[1:], *REAL):
        labels = read_ratings(data, name)
        splits = [
            finished.measured(f"hidden {name} {seed}", partial(hidden_errors, labels, seed))
            for seed in range(SPLITS)
        ]
        rows += hidden_lines(name, splits)
    took = finished.measured("a million", a_million)["seconds"]
    return "\n".join(
        [
            "# Numeric ratings",
            "",
            f"Written by `{COMMAND}` with dissensus {__version__}.",
            "",
            f"**Planted**: {SEEDS} crowds of each kind. Correlations with what was planted of the estimates, "
            "of plain means, of biases and of uses of the scale; and the share of 95 % intervals that cover "
            "the item's value, with an interval over crowds.",
            "",
            line("crowd", "estimates", "plain means", "bias", "scale", "covered"),
            "|---" * 6 + "|",
            *planted_lines(finished),
            "",
            f"**Hidden**: a fifth of the ratings, {SPLITS} times, of at most {MOST_LABELS:,}. Root mean "
            "squared errors and, with 95 % intervals resampled over items, by how much the mean squared "
            "error of `NumericRatings` differs. `mixed` is statsmodels' `MixedLM`: annotators' means fixed, "
            "items random.",
            "",
            line("ratings", "given", "ours", "mean", "mixed", "ours against mean", "ours against mixed"),
            "|---" * 7 + "|",
            *rows,
            "",
            f"**A million** ratings by 1,000 annotators: {took:.1f} processor-seconds to fit, on one thread.",
            "",
        ]
    )


def main(arguments: Any = None) -> None:
    """Measure what is not finished and write the page."""
    parser = command_line(COMMAND, "Numeric ratings", "docs/results/ratings.md", finished=True)
    options = parser.parse_args(arguments)
    write_files(options.output, page(options.data, Finished(options.finished)))


if __name__ == "__main__":
    main()
