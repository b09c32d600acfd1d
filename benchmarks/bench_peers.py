"""Every dataset with gold labels: accuracy and seconds of our models beside crowd-kit's, in one run.

An item counts when it has both labels and gold. Seconds are processor time of the fit alone: reading and
making data frames are not in it. GLAD and MACE run where there are at most 30,000 labels. Run as

    python benchmarks/bench_peers.py [--data DIR] [-o docs/results/peers.md] [--most-labels N]
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from crowdkit.aggregation import GLAD, MACE, DawidSkene, MajorityVote, OneCoinDawidSkene

import dissensus as ds
from dissensus.io.atomic import atomic_path
from dissensus.paper.datasets import read_dataset
from dissensus.paper.tables import line, table
from timing import data_option

SLOW_PEERS_MOST_LABELS = 30_000
OURS: dict[str, Callable[[ds.Annotations], object]] = {
    "majority": lambda a: ds.MajorityVote(),
    "Dawid–Skene": lambda a: ds.DawidSkene(),
    "one-coin": lambda a: ds.OneCoin(),
    "CBCC": lambda a: ds.CBCC(),
    "PGM, K = P": lambda a: ds.PGM(a.n_classes, 5),
}
PEERS: dict[str, Callable[[], object]] = {
    "MajorityVote": MajorityVote,
    "DawidSkene": lambda: DawidSkene(n_iter=100),
    "OneCoinDawidSkene": lambda: OneCoinDawidSkene(n_iter=100),
    "GLAD": GLAD,
    "MACE": lambda: MACE(random_state=0),
}
SLOW_PEERS = ("GLAD", "MACE")


def accuracy(annotations: ds.Annotations, labels: np.ndarray) -> float:
    """Share of items with labels and gold whose predicted class is the gold one."""
    counted = (annotations.gold >= 0) & annotations.counts.any(axis=1)
    return float((annotations.class_vocabulary.codes(labels) == annotations.gold)[counted].mean())


def run_ours(annotations: ds.Annotations, make: Callable) -> tuple[float, float]:
    start = time.process_time()
    model = make(annotations).fit(annotations)
    return accuracy(annotations, model.predict()), time.process_time() - start


def run_peer(annotations: ds.Annotations, frame: pd.DataFrame, make: Callable) -> tuple[float, float]:
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = make().fit_predict(frame)
    seconds = time.process_time() - start
    return accuracy(annotations, labels.reindex(annotations.items).astype(str).to_numpy()), seconds


def measure(name: str, annotations: ds.Annotations) -> dict[str, tuple[float, float] | None]:
    """Accuracy and seconds of every method on one dataset."""
    columns = {
        "task": annotations.items[annotations.item],
        "worker": annotations.annotators[annotations.annotator],
        "label": annotations.classes[annotations.label],
    }
    frame = pd.DataFrame(columns)
    found: dict[str, tuple[float, float] | None] = {
        title: run_ours(annotations, make) for title, make in OURS.items()
    }
    for title, make in PEERS.items():
        slow = title in SLOW_PEERS and annotations.n_labels > SLOW_PEERS_MOST_LABELS
        found[f"crowd-kit {title}"] = None if slow else run_peer(annotations, frame, make)
    print(name, {title: one and round(one[0], 4) for title, one in found.items()}, flush=True)
    return found


PAGE = """# Beside the peers

Written by `python benchmarks/bench_peers.py` (dissensus {version}, crowd-kit {peer}): every figure is
measured in one run. Accuracy on the items that have labels and gold, at default settings (crowd-kit's EM: 100
iterations); below it the processor seconds of the fit. GLAD and MACE run where there are at most {most:,}
labels. Means are over all datasets a method ran on; the last line gives them over the datasets on which every
method ran.

## Accuracy

{accuracy}

## Seconds

{seconds}
"""


def page(results: dict[str, dict[str, tuple[float, float] | None]]) -> str:
    import crowdkit

    methods = list(next(iter(results.values())))

    def lines(place: int, form: str) -> list[str]:
        rows = [
            line(name, *(form.format(one[place]) if one else "–" for one in found.values()))
            for name, found in results.items()
        ]
        everywhere = [found for found in results.values() if all(found.values())]
        for title, part in (("**mean**", results.values()), ("mean, all methods", everywhere)):
            values = [[found[m][place] for found in part if found[m]] for m in methods]
            rows.append(line(title, *(form.format(np.mean(v)) if v else "–" for v in values)))
        return rows

    head = ("dataset", *methods)
    return PAGE.format(
        version=ds.__version__,
        peer=getattr(crowdkit, "__version__", "1.4"),
        most=SLOW_PEERS_MOST_LABELS,
        accuracy=table(head, lines(0, "{:.4f}")),
        seconds=table(head, lines(1, "{:.3f}")),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    data_option(parser)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/results/peers.md"))
    parser.add_argument("--most-labels", type=int, default=10**9)
    given = parser.parse_args()
    results = {}
    for folder in sorted(given.data.iterdir()):
        if any(folder.glob("gold.csv*")):
            annotations = read_dataset(folder)
            if annotations.n_labels <= given.most_labels:
                results[folder.name] = measure(folder.name, annotations)
    text = page(results)
    with atomic_path(given.output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
