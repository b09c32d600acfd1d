"""Accuracy, calibration and processor time beside crowd-kit on every dataset with gold labels.

    python -m experiments.peers [--data DIR] [--finished FILE] [--only NAME]

An item counts if it has both labels and gold; tied answers count in part. Times are those of the fit alone,
without reading or building data frames. The exit status is 1 if a limit is missed.
"""

from __future__ import annotations

import itertools
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from crowdkit.aggregation import GLAD, KOS, MACE, MMSR, DawidSkene, MajorityVote, OneCoinDawidSkene

import dissensus as ds
from dissensus.evaluate.gold import judged_items
from dissensus.evaluate.truth import choose_truth
from dissensus.metrics import accuracy, brier, calibration_error, log_loss
from dissensus.numerics import Array
from experiments.runner import (
    Measurements,
    Values,
    check_limit,
    dataset_names,
    line,
    page_parser,
    read_dataset,
    table,
    write_page,
)

DEFAULT = "**default**"
OURS: dict[str, Callable[[ds.Annotations], Any]] = {
    DEFAULT: lambda labels: choose_truth(labels, n_jobs=1).model,
    "vote shares": lambda labels: ds.EmpiricalDistribution().fit(labels),
    "majority": lambda labels: ds.MajorityVote().fit(labels),
    "Dawid–Skene": lambda labels: ds.DawidSkene(n_jobs=1).fit(labels),
    "CBCC": lambda labels: ds.CBCC(n_jobs=1).fit(labels),
    "IBCC": lambda labels: ds.IBCC(n_jobs=1).fit(labels),
    "EBCC": lambda labels: ds.EBCC(n_jobs=1).fit(labels),
    "log-linear": lambda labels: ds.LogLinear(n_jobs=1).fit(labels),
}
# crowd-kit's models, under the names of ours where both have the model
PEERS: dict[str, Callable[[], Any]] = {
    "majority": MajorityVote,
    "KOS": KOS,
    "M-MSR": MMSR,
    "one-coin": lambda: OneCoinDawidSkene(n_iter=100),
    "GLAD": GLAD,
    "MACE": lambda: MACE(random_state=0),
    "Dawid–Skene": lambda: DawidSkene(n_iter=100),
}
SLOW_PEERS = ("GLAD", "MACE", "M-MSR")
SLOW_PEER_LABELS = 30_000  # the slow models of crowd-kit are skipped on larger datasets
MIN_ACCURACY, MAX_LOG_LOSS, MAX_CALIBRATION_ERROR = 0.844, 0.48, 0.08  # means of the default
MAX_TIME_RATIO = 2.0  # time of the default over crowd-kit's Dawid–Skene
TIMED_DATASETS, TEN_TIMES_FASTER = ("rte", "product"), ("Dawid–Skene",)


def scores(annotations: ds.Annotations, probabilities: Array, answers: Array) -> tuple[float, ...]:
    """Return accuracy, log loss, Brier score and calibration error on items with labels and gold."""
    items = judged_items(annotations)
    gold = np.eye(annotations.n_classes)[np.asarray(annotations.gold)[items]]
    metrics = (metric(gold, probabilities[items]) for metric in (log_loss, brier, calibration_error))
    return accuracy(gold, answers[items]), *metrics


def run_peer(
    annotations: ds.Annotations, frame: pd.DataFrame, build: Callable[[], Any]
) -> tuple[float, ...] | None:
    """Return scores and seconds of a model of crowd-kit, or None if it fails."""
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = build()
            labels = model.fit_predict(frame)
    except Exception as error:
        print(f"crowd-kit {build}: {type(error).__name__}: {str(error)[:80]}", flush=True)
        return None
    seconds = time.process_time() - start
    tasks, classes = range(annotations.n_items), range(annotations.n_classes)
    answers = np.eye(len(classes))[labels.reindex(tasks).fillna(0).astype(int).to_numpy()]
    table = getattr(model, "probas_", None)
    if table is None:  # the model has no probabilities
        return *scores(annotations, answers, answers), seconds
    probabilities = table.reindex(index=tasks, columns=classes).fillna(0.0).to_numpy(np.float64)
    rows = probabilities.sum(axis=1, keepdims=True)
    probabilities = np.where(rows > 0, probabilities / np.maximum(rows, 1e-300), answers)
    return *scores(annotations, probabilities, answers), seconds


def measure(annotations: ds.Annotations) -> Values:
    """Return scores and seconds of every model on one dataset; None for a model that did not run."""
    columns = {"task": annotations.item, "worker": annotations.annotator, "label": annotations.label}
    frame, results = pd.DataFrame(columns), Values()
    for name, fit in OURS.items():
        start = time.process_time()
        model = fit(annotations)
        seconds = time.process_time() - start
        probabilities = model.label_distributions_
        results[name] = *scores(annotations, probabilities, probabilities), seconds
    for name, build in PEERS.items():
        too_slow = name in SLOW_PEERS and annotations.n_labels > SLOW_PEER_LABELS
        results[f"crowd-kit {name}"] = None if too_slow else run_peer(annotations, frame, build)
    return results


PAGE = """# Comparison with crowd-kit

Written by `python -m experiments.peers` (dissensus {version}, crowd-kit {peer}) on {n} datasets. Accuracy on
items with labels and gold, default settings (crowd-kit's EM: 100 iterations), ties counted in part; then the
quality of the probabilities, and the processor seconds of the fit on one thread. The default is
`fit --estimate truth`. A dash means that a model did not run: crowd-kit's {slow} are skipped on datasets with
more than {labels:,} labels, KOS handles two classes only, and all other dashes are errors raised by
crowd-kit. Means are over the datasets on which a model ran.

Accuracy of the default minus that of other models, mean over datasets with a 95 % interval (paired bootstrap
over datasets):

{contrasts}

## Accuracy

{accuracy}

## Log loss

The mean of −log P(gold class), with probabilities of at least 0.0001. The reference is "vote shares", the
model `empirical`: shares of an item's labels with the additive smoothing that predicts labels best. The
probabilities of our models with confusion matrices are calibrated ([how](../truth.md#probabilities)); for
models without probabilities (KOS, M-MSR), the answer has probability 1. The default has a lower log loss than
vote shares on {n_better} of {n} datasets.

{log_loss}

## Brier score

The sum over classes of squared differences between the probabilities and the gold class (0 to 2).

{brier}

## Expected calibration error

Items are put into 10 bins of equal width by their largest probability. The error is the difference between
the accuracy and the mean largest probability of a bin, averaged over items.

{calibration_error}

## Seconds

{seconds}
"""


def contrast(results: dict[str, Values], rival: str) -> tuple[float, float, float]:
    """Return the mean difference in accuracy between the default and a rival, and its interval."""
    rows = np.array([values[DEFAULT][0] - values[rival][0] for values in results.values() if values[rival]])
    drawn = np.random.default_rng(0).integers(len(rows), size=(10_000, len(rows)))
    low, high = np.quantile(rows[drawn].mean(axis=1), [0.025, 0.975])
    return float(rows.mean()), float(low), float(high)


def result_table(results: dict[str, Values], index: int, form: str) -> str:
    """Tabulate one of the scores, or the seconds (index −1), of all models on all datasets."""
    names = [*OURS, *(f"crowd-kit {name}" for name in PEERS)]
    lines = [
        line(dataset, *(form.format(values[name][index]) if values[name] else "–" for name in names))
        for dataset, values in results.items()
    ]
    columns = [[values[name][index] for values in results.values() if values[name]] for name in names]
    means = (form.format(np.mean(column)) if column else "–" for column in columns)
    return table(("dataset", *names), [*lines, line("**mean**", *means)])


def page(results: dict[str, Values]) -> str:
    """Return the page."""
    import crowdkit

    contrasts = []
    for rival in ("crowd-kit Dawid–Skene", "Dawid–Skene", "crowd-kit majority"):
        mean, low, high = contrast(results, rival)
        contrasts.append(line(rival, f"{mean:+.4f}", f"{low:+.4f} to {high:+.4f}"))
    return PAGE.format(
        version=ds.__version__,
        peer=getattr(crowdkit, "__version__", "1.4"),
        n=len(results),
        slow=", ".join(SLOW_PEERS),
        labels=SLOW_PEER_LABELS,
        contrasts=table(("default minus", "mean", "interval"), contrasts),
        n_better=sum(values[DEFAULT][1] < values["vote shares"][1] for values in results.values()),
        accuracy=result_table(results, 0, "{:.4f}"),
        log_loss=result_table(results, 1, "{:.3f}"),
        brier=result_table(results, 2, "{:.3f}"),
        calibration_error=result_table(results, 3, "{:.3f}"),
        seconds=result_table(results, -1, "{:.3f}"),
    )


def check(results: dict[str, Values]) -> int:
    """Compare the results with the limits; 1 if a limit is missed."""
    seconds = {
        name: sum(values[name][-1] for values in results.values() if values[name])
        for name in (DEFAULT, "crowd-kit Dawid–Skene")
    }
    right, loss, _, error, _ = np.mean([values[DEFAULT] for values in results.values()], axis=0)
    missed = check_limit("mean accuracy of the default", right, MIN_ACCURACY, at_least=True)
    missed |= check_limit("mean log loss of the default", loss, MAX_LOG_LOSS)
    missed |= check_limit("mean calibration error of the default", error, MAX_CALIBRATION_ERROR)
    ratio = seconds[DEFAULT] / seconds["crowd-kit Dawid–Skene"]
    missed |= check_limit("time of the default over crowd-kit Dawid–Skene", ratio, MAX_TIME_RATIO)
    shared = [name for name in PEERS if name in OURS]
    for dataset, name in itertools.product(sorted(set(TIMED_DATASETS) & set(results)), shared):
        ours, theirs = results[dataset][name], results[dataset][f"crowd-kit {name}"]
        if ours and theirs:
            limit = 0.1 if name in TEN_TIMES_FASTER else 1.0
            missed |= check_limit(f"{dataset}, {name}: our time over crowd-kit", ours[-1] / theirs[-1], limit)
    return missed


def main() -> int:
    """Measure every dataset with gold labels, and write the page."""
    parser = page_parser("experiments.peers", "Comparison with crowd-kit")
    parser.add_argument("--only", help="measure this dataset alone, and write no page")
    options = parser.parse_args()
    measurements, results = Measurements(options.finished), {}
    for name in dataset_names(options.data, "gold") if options.only is None else [options.only]:
        results[name] = measurements.get(name, lambda name=name: measure(read_dataset(options.data / name)))
    if options.only is not None:
        return 0
    write_page(options.output, page(results))
    return check(results)


if __name__ == "__main__":
    sys.exit(main())
