"""Ten million labels, three classes: processor seconds an iteration of models beside Dawid–Skene.

Each model is fitted for few and for more iterations, so that what is around EM cancels; models take turns.

    python benchmarks/bench_truth.py [--labels 10000000]
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import dissensus as ds
from timing import verdict

PER_ITEM, P, FEW, MANY, ROUNDS = 6, 3, 2, 12, 3
MODELS: dict[str, Any] = {
    "Dawid–Skene": ds.DawidSkene(tol=0.0),
    "IBCC": ds.IBCC(tol=0.0),
    "EBCC": ds.EBCC(tol=0.0, n_restarts=1),
    "log-linear": ds.LogLinear(tol=0.0),
}
MOST_RATIO = 4.0
JUDGED = ("IBCC", "EBCC")


def seconds(model: Any, annotations: ds.Annotations, iterations: int) -> float:
    """Processor time of a fit of so many iterations, on one thread."""
    start = time.process_time()
    model.set_params(max_iter=iterations, n_jobs=1).fit(annotations)
    return time.process_time() - start


def main(n_labels: int) -> int:
    """Print seconds an iteration, and hold the ratios against their limit."""
    crowd = ds.simulate(n_labels // PER_ITEM, n_labels // 500, P, labels_per_item=PER_ITEM, load="long-tail")
    best = dict.fromkeys(MODELS, float("inf"))
    for _ in range(ROUNDS):
        for name, model in MODELS.items():
            short, long = (seconds(model, crowd.annotations, n) for n in (FEW, MANY))
            best[name] = min(best[name], (long - short) / (MANY - FEW))
    for name, each in best.items():
        print(f"{name:<12} {each:7.3f} s an iteration on {n_labels:,} labels")
    ratios = {name: best[name] / best["Dawid–Skene"] for name in JUDGED}
    return max(verdict(f"{name} over Dawid–Skene", ratio, MOST_RATIO) for name, ratio in ratios.items())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=10_000_000)
    sys.exit(main(parser.parse_args().labels))
