"""Every dataset with gold labels: accuracy and seconds of our models beside crowd-kit's, in one run.

An item counts when it has both labels and gold; where an answer ties, it counts in part. Seconds are
processor time of the fit alone: reading and making data frames are not in it. crowd-kit's slow models run
where there are at most 30,000 labels. Run as

    python benchmarks/bench_peers.py [--data DIR] [-o docs/results/peers.md] [--finished FILE]

With ``--finished``, datasets that are in the file are not measured again, and ``--only`` measures one.

It ends with an error where one of the figures that the project has set itself is missed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from crowdkit.aggregation import GLAD, KOS, MACE, MMSR, DawidSkene, MajorityVote, OneCoinDawidSkene

import dissensus as ds
from dissensus.evaluate.compare import choose_truth
from dissensus.metrics import accuracy_rows
from dissensus.tables.atomic import atomic_path
from timing import data_option, markdown, read_dataset, verdict

SLOW_PEERS_MOST_LABELS = 30_000
DEFAULT = "**default**"
OURS: dict[str, Callable[[ds.Annotations], Any]] = {
    DEFAULT: lambda a: choose_truth(a, n_jobs=1).model,
    "majority": lambda a: ds.MajorityVote().fit(a),
    "one-coin": lambda a: ds.OneCoin(n_jobs=1).fit(a),
    "MACE": lambda a: ds.MACE(n_jobs=1).fit(a),
    "Dawid–Skene": lambda a: ds.DawidSkene(n_jobs=1).fit(a),
    "CBCC": lambda a: ds.CBCC(n_jobs=1).fit(a),
    "IBCC": lambda a: ds.IBCC(n_jobs=1).fit(a),
    "EBCC": lambda a: ds.EBCC(n_jobs=1).fit(a),
    "log-linear": lambda a: ds.LogLinear(n_jobs=1).fit(a),
}
# crowd-kit's models, by the name of ours where there is one
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
TEN_TIMES_FASTER = ("one-coin", "MACE")
LEAST_ACCURACY, MOST_TIME = 0.842, 2.0  # of the default: its mean, and its time over crowd-kit Dawid–Skene's
TIMED = ("rte", "product")

Measured = dict[str, tuple[float, float] | None]  # accuracy and seconds by method


def accuracy(annotations: ds.Annotations, answers: np.ndarray) -> float:
    """Share of items with labels and gold whose answer is the gold class, ties in part."""
    counted = (annotations.gold >= 0) & annotations.counts.any(axis=1)
    return float(accuracy_rows(annotations.gold[counted], answers[counted]).mean())


def run_ours(annotations: ds.Annotations, fit: Callable) -> tuple[float, float]:
    start = time.process_time()
    model = fit(annotations)
    seconds = time.process_time() - start
    return accuracy(annotations, model.label_distributions_), seconds


def run_peer(annotations: ds.Annotations, frame: pd.DataFrame, make: Callable) -> tuple[float, float] | None:
    """None where it does not run."""
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels = make().fit_predict(frame)
    except Exception as error:
        print(f"crowd-kit {make}: {type(error).__name__}: {str(error)[:80]}", flush=True)
        return None
    seconds = time.process_time() - start
    codes = labels.reindex(range(annotations.n_items)).fillna(0).astype(int).to_numpy()
    return accuracy(annotations, np.eye(annotations.n_classes)[codes]), seconds


def measure(name: str, annotations: ds.Annotations, slow_most_labels: int) -> Measured:
    """Accuracy and seconds of every method on one dataset."""
    columns = {"task": annotations.item, "worker": annotations.annotator, "label": annotations.label}
    frame, found = pd.DataFrame(columns), Measured()
    for title, fit in OURS.items():
        found[title] = run_ours(annotations, fit)
    for title, make in PEERS.items():
        slow = title in SLOW_PEERS and annotations.n_labels > slow_most_labels
        found[f"crowd-kit {title}"] = None if slow else run_peer(annotations, frame, make)
    print(name, {title: one and round(one[0], 4) for title, one in found.items()}, flush=True)
    return found


PAGE = """# Beside the peers

Written by `python benchmarks/bench_peers.py` (dissensus {version}, crowd-kit {peer}): every figure of
a dataset is measured in one run. Accuracy on the items that have labels and gold, at default settings
(crowd-kit's EM: 100 iterations), ties counted in part; below it the processor seconds of the fit on one
thread. The default is `fit --estimate truth`. {n} datasets. A dash: crowd-kit's {slow} are left out where
they take long (here, on datasets of more than {most:,} labels at least), KOS where there are more than two
classes; any other dash is an error that it raised. Means are over the datasets a method ran on.

The default less Dawid–Skene, mean over the datasets with a 95 % interval (bootstrap over datasets, paired):

{contrasts}

## Accuracy

{accuracy}

## Seconds

{seconds}
"""


def contrast(results: dict[str, Measured], other: str) -> tuple[float, float, float]:
    """The default's accuracy less another's: mean over the datasets, and its interval over them."""
    rows = np.array([found[DEFAULT][0] - found[other][0] for found in results.values() if found[other]])
    drawn = np.random.default_rng(0).integers(len(rows), size=(10_000, len(rows)))
    low, high = np.quantile(rows[drawn].mean(axis=1), [0.025, 0.975])
    return float(rows.mean()), float(low), float(high)


def page(results: dict[str, Measured], slow_most_labels: int) -> str:
    import crowdkit

    methods = list(next(iter(results.values())))

    def lines(place: int, form: str) -> list[list[str]]:
        def cell(one: tuple[float, float] | None) -> str:
            return form.format(one[place]) if one else "–"

        rows = [[name, *map(cell, found.values())] for name, found in results.items()]
        values = [[found[m][place] for found in results.values() if found[m]] for m in methods]
        return [*rows, ["**mean**", *(form.format(np.mean(v)) if v else "–" for v in values)]]

    rivals = ("crowd-kit Dawid–Skene", "Dawid–Skene", "crowd-kit majority")
    contrasts = [
        [name, f"{mean:+.4f}", f"{low:+.4f} to {high:+.4f}"]
        for name, (mean, low, high) in ((name, contrast(results, name)) for name in rivals)
    ]
    return PAGE.format(
        version=ds.__version__,
        peer=getattr(crowdkit, "__version__", "1.4"),
        n=len(results),
        most=slow_most_labels,
        slow=", ".join(SLOW_PEERS),
        contrasts=markdown(["less", "mean", "interval"], contrasts),
        accuracy=markdown(["dataset", *methods], lines(0, "{:.4f}")),
        seconds=markdown(["dataset", *methods], lines(1, "{:.3f}")),
    )


def check(results: dict[str, Measured]) -> int:
    """The figures that the project has set itself; 1 where one is missed."""
    methods = next(iter(results.values()))
    seconds = {m: sum(found[m][1] for found in results.values() if found[m]) for m in methods}
    mean = float(np.mean([found[DEFAULT][0] for found in results.values()]))
    missed = verdict("mean accuracy of the default", mean, LEAST_ACCURACY, at_least=True)
    ratio = seconds[DEFAULT] / seconds["crowd-kit Dawid–Skene"]
    missed |= verdict("its time over crowd-kit Dawid–Skene's", ratio, MOST_TIME)
    shared = [title for title in PEERS if title in OURS]
    for name, title in itertools.product(sorted(set(TIMED) & set(results)), shared):
        ours, theirs = results[name][title], results[name][f"crowd-kit {title}"]
        if ours and theirs:
            most = 0.1 if title in TEN_TIMES_FASTER else 1.0
            missed |= verdict(f"{name}, {title}: our time over theirs", ours[1] / theirs[1], most)
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    data_option(parser)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/results/peers.md"))
    parser.add_argument("--most-labels", type=int, default=10**9)
    parser.add_argument("--finished", type=Path, help="file of finished datasets, to go on where a run was")
    parser.add_argument("--slow-most-labels", type=int, default=SLOW_PEERS_MOST_LABELS)
    parser.add_argument("--only", help="measure this dataset alone, and write no page")
    given = parser.parse_args()
    results: dict[str, Measured] = {}
    if given.finished is not None and given.finished.exists():
        results = dict(map(json.loads, given.finished.read_text().splitlines()))
    for folder in sorted(given.data.iterdir()):
        wanted = given.only in (None, folder.name) and folder.name not in results
        if wanted and any(folder.glob("gold.csv*")):
            annotations = read_dataset(folder)
            if annotations.n_labels <= given.most_labels:
                results[folder.name] = measure(folder.name, annotations, given.slow_most_labels)
                if given.finished is not None:
                    with given.finished.open("a") as file:
                        file.write(json.dumps([folder.name, results[folder.name]]) + "\n")
    if given.only is not None:
        return 0
    results = dict(sorted(results.items()))
    text = page(results, given.slow_most_labels)
    with atomic_path(given.output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(text)
    return check(results)


if __name__ == "__main__":
    sys.exit(main())
