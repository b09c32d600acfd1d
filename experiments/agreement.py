"""Coverage of the intervals of agreement coefficients.

    python -m experiments.agreement [--data DIR] [--finished FILE] [--samples N]

A population is all items of a dataset, or of a simulated crowd. Samples of 50, 100 or 200 of its items are
drawn with replacement; an interval covers if it contains the coefficient of the population.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain, product
from pathlib import Path

import numpy as np

import dissensus as ds
from dissensus.labels.vocabulary import Vocabulary
from experiments.judges import read_judged
from experiments.runner import Measurements, Values, line, page_parser, table, write_page

SIZES, LEVEL, N_SAMPLES, N_SIMULATED = (50, 100, 200), 0.95, 1_000, 20_000
LOWEST, HIGHEST = 0.93, 0.97
COEFFICIENTS = ("percent", "brennan_prediger", "conger", "fleiss", "ac2", "alpha")

# Population -> kinds of weights
DATASETS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("wax", "mtbench", "cebab_aspects"), ("identity",)),
    **dict.fromkeys(("cebab_stars", "summeval", "lesion"), ("ordinal", "quadratic")),
}
# Datasets with enough humans per item for two groups of them
COMPARED = ("wax", "cebab_aspects", "lesion", "each human 2 to 1, six humans")
COMPARED_COEFFICIENTS = ("percent", "conger", "fleiss", "ac2", "alpha")


def humans_of(data: Path, name: str) -> ds.Annotations:
    """Return the labels of the humans of a dataset with judges."""
    labels = read_judged(data, name)
    human = labels.annotator_column("kind") == "human"
    return labels.take_rows(human[labels.annotator])


def from_table(answers: np.ndarray) -> ds.Annotations:
    """Return annotations from (items, annotators) classes."""
    item, annotator = np.indices(answers.shape)
    return ds.Annotations.from_arrays(item.ravel(), annotator.ravel(), answers.ravel())


def independent(shares: tuple[float, ...], agreement: float = 2 / 3, n_humans: int = 3) -> ds.Annotations:
    """Simulate humans who each give the class of the item with probability ``agreement``."""
    rng, P = np.random.default_rng(0), len(shares)
    truth = rng.choice(P, size=(N_SIMULATED, 1), p=shares)
    other = (truth + rng.integers(1, P, size=(N_SIMULATED, n_humans))) % P
    return from_table(np.where(rng.random((N_SIMULATED, n_humans)) < agreement, truth, other))


def split(shares: tuple[float, ...], share_split: float) -> ds.Annotations:
    """Simulate three humans who split 2 to 1 on a share of the items, and agree on the others."""
    rng, P = np.random.default_rng(0), len(shares)
    answers = np.repeat(rng.choice(P, size=(N_SIMULATED, 1), p=shares), 3, axis=1)
    rows = np.flatnonzero(rng.random(N_SIMULATED) < share_split)
    answers[rows, rng.integers(3, size=len(rows))] = (answers[rows, 0] + 1) % P
    return from_table(answers)


SIMULATED: dict[str, Callable[[], ds.Annotations]] = {
    "each human 2 to 1, classes 50:50": lambda: independent((0.5, 0.5)),
    "each human 2 to 1, classes 80:20": lambda: independent((0.8, 0.2)),
    "each human 2 to 1, classes 50:30:20": lambda: independent((0.5, 0.3, 0.2)),
    "each human 2 to 1, six humans": lambda: independent((0.6, 0.4), n_humans=6),
    "a third of the items 2 to 1, classes 70:30": lambda: split((0.7, 0.3), 1 / 3),
    "a tenth of the items 2 to 1, classes 50:30:20": lambda: split((0.5, 0.3, 0.2), 0.1),
    "every item 2 to 1, classes 70:30": lambda: split((0.7, 0.3), 1.0),
}
DEGENERATE = ("every item 2 to 1, classes 70:30",)


def draw(labels: ds.Annotations, rng: np.random.Generator, size: int) -> ds.Annotations:
    """Draw items with replacement; one that is drawn twice becomes two items."""
    index, rows = labels.rows_of_items(rng.integers(labels.n_items, size=size))
    sample = labels.take_rows(np.zeros(labels.n_labels, dtype=bool)).take_items(np.arange(0))
    fields = {"item": index, "annotator": labels.annotator[rows], "label": labels.label[rows]}
    return replace(sample, **fields, item_vocabulary=Vocabulary(np.arange(size), "item"))


def coverage(labels: ds.Annotations, weights: str, size: int, n_samples: int) -> Values:
    """Return the share of the samples whose interval contains the value of all items, by coefficient."""
    names = list(COEFFICIENTS)

    def rows(labels: ds.Annotations) -> list[Values]:
        return list(ds.agreement(labels, names, weights=weights, interval=LEVEL).rows())

    return _covered(rows, labels, size, n_samples, "value", "")


def compared(labels: ds.Annotations, weights: str, size: int, n_samples: int) -> Values:
    """Return the coverage of the difference of every second annotator from the others, by coefficient."""
    names = list(COMPARED_COEFFICIENTS)

    def rows(labels: ds.Annotations) -> list[Values]:
        odd = labels.annotator % 2 == 1
        first, second = labels.take_rows(odd), labels.take_rows(~odd)
        result = ds.agreement(first, names, weights=weights, interval=LEVEL, against=second)
        return list(result.rows())

    return _covered(rows, labels, size, n_samples, "difference", "difference_")


def _covered(
    rows: Callable[[ds.Annotations], list[Values]],
    labels: ds.Annotations,
    size: int,
    n_samples: int,
    value: str,
    prefix: str,
) -> Values:
    truth = {row["coefficient"]: row[value] for row in rows(labels)}
    rng, hits = np.random.default_rng(size), dict.fromkeys(truth, 0)
    for _ in range(n_samples):
        for row in rows(draw(labels, rng, size)):
            name, low, high = row["coefficient"], row[f"{prefix}low"], row[f"{prefix}high"]
            hits[name] += low - 1e-12 <= truth[name] <= high + 1e-12
    return {name: n / n_samples for name, n in hits.items()}


def main() -> None:
    """Measure what is not finished, and write the page."""
    parser = page_parser("experiments.agreement", "Coverage of the intervals of agreement.")
    parser.add_argument("--samples", type=int, default=N_SAMPLES, help="samples of each population and size")
    options = parser.parse_args()
    done = Measurements(options.finished)
    populations: dict[str, Callable[[], ds.Annotations]]
    populations = {name: partial(humans_of, options.data, name) for name in DATASETS}
    populations |= SIMULATED
    measured: dict[str, dict[tuple[str, str, int], Values]] = {"single": {}, "difference": {}}
    for name, read in populations.items():
        labels = read()
        for kind, size in product(DATASETS.get(name, ("identity",)), SIZES):
            arguments = labels, kind, size, options.samples
            key = f"{name} {kind} {size} {options.samples}"
            measured["single"][name, kind, size] = done.get(f"single {key}", coverage, *arguments)
            if name in COMPARED:
                values = done.get(f"difference {key}", compared, *arguments)
                measured["difference"][name, kind, size] = values
    write_page(options.output, page(measured["single"], measured["difference"], options.samples))


def page(
    single: dict[tuple[str, str, int], Values], difference: dict[tuple[str, str, int], Values], n: int
) -> str:
    """Return the page of results."""
    regular = {key: values for key, values in single.items() if key[0] not in DEGENERATE}
    datasets = {key: values for key, values in regular.items() if key[0] in DATASETS}
    crowds = {key: values for key, values in regular.items() if key[0] in SIMULATED}
    return f"""# Measured: intervals of agreement coefficients

Written by `python -m experiments.agreement --samples {n}` (dissensus {ds.__version__}). Coefficients and
their intervals are explained in [agreement](../agreement.md).

A population is all items of a dataset with several humans per item (judges are left out), or
{N_SIMULATED:,} items of a simulated crowd. From each, {n:,} samples of
{SIZES[0]}, {SIZES[1]} and {SIZES[2]} items are drawn with replacement. The tables show how often the
{LEVEL:.0%} interval of a sample contains the coefficient of the population. The standard error of a coverage
of 95 % is {100 * (0.95 * 0.05 / n) ** 0.5:.1f} points. The aim is {LOWEST:.0%} to {HIGHEST:.0%}.

{summary("Datasets", datasets)}
{summary("Simulated crowds, except the last one", crowds)}
{summary("Differences", difference)}

## One coefficient

{coverage_table(single)}

Coverages above the aim are those of few items on which nearly all humans agree: a sample has so few
disagreements that the interval must be wide. In the last crowd, every item has the same split. The observed
agreement is constant, and only the shares of the classes vary, so that α's correction for small samples is
larger than its sampling error.

## The difference of two groups of annotators

Every second human is compared with the others.

{coverage_table(difference)}
"""


def summary(title: str, results: dict[tuple[str, str, int], Values]) -> str:
    """Return a sentence on how many coverages are within the aim."""
    shares = [v for values in results.values() for name, v in values.items() if name != "cpu_seconds"]
    within = sum(LOWEST <= share <= HIGHEST for share in shares)
    ends = f"{min(shares):.1%} to {max(shares):.1%}, mean {np.mean(shares):.1%}"
    return f"* {title}: {within} of {len(shares)} coverages are within the aim ({ends})."


def coverage_table(results: dict[tuple[str, str, int], Values]) -> str:
    """Return a table with a column for each coefficient; coverages outside the aim are bold."""
    names = [name for name in dict.fromkeys(chain(*results.values())) if name != "cpu_seconds"]
    rows = []
    for key, values in results.items():
        rows.append(line(*key, *(_cell(values[name]) for name in names)))
    return table(["population", "weights", "items", *names], rows)


def _cell(share: float) -> str:
    text = f"{share:.1%}"
    return text if LOWEST <= share <= HIGHEST else f"**{text}**"


if __name__ == "__main__":
    main()
