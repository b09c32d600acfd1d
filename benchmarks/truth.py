"""Processor seconds per iteration of IBCC, EBCC and log-linear Dawid–Skene relative to Dawid–Skene.

Each model is fitted with few and with many iterations, in turns; the difference excludes the work around EM.

    python -m benchmarks.truth [--labels 10000000]
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import dissensus as ds
from experiments.runner import check_limit

LABELS_PER_ITEM, P = 6, 3
FEW_ITERATIONS, MANY_ITERATIONS, ROUNDS = 2, 12, 3
MODELS: dict[str, Any] = {
    "Dawid–Skene": ds.DawidSkene(tol=0.0),
    "IBCC": ds.IBCC(tol=0.0),
    "EBCC": ds.EBCC(tol=0.0, n_restarts=1),
    "log-linear": ds.LogLinear(tol=0.0),
}
MAX_RATIOS = {"IBCC": 4.0, "EBCC": 4.0}


def fit_seconds(model: Any, annotations: ds.Annotations, iterations: int) -> float:
    """Return the processor time of a fit on one thread."""
    start = time.process_time()
    model.set_params(max_iter=iterations, n_jobs=1).fit(annotations)
    return time.process_time() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--labels", type=int, default=10_000_000)
    n_labels = parser.parse_args().labels
    sizes = n_labels // LABELS_PER_ITEM, n_labels // 500, P
    labels = ds.simulate(*sizes, labels_per_item=LABELS_PER_ITEM, load="long-tail").annotations
    best = dict.fromkeys(MODELS, float("inf"))
    for _ in range(ROUNDS):
        for name, model in MODELS.items():
            few, many = (fit_seconds(model, labels, n) for n in (FEW_ITERATIONS, MANY_ITERATIONS))
            best[name] = min(best[name], (many - few) / (MANY_ITERATIONS - FEW_ITERATIONS))
    for name, seconds in best.items():
        print(f"{name:<12} {seconds:7.3f} s per iteration on {n_labels:,} labels")
    ratios = {name: best[name] / best["Dawid–Skene"] for name in MAX_RATIOS}
    return max(check_limit(f"{name} over Dawid–Skene", ratios[name], MAX_RATIOS[name]) for name in ratios)


if __name__ == "__main__":
    sys.exit(main())
