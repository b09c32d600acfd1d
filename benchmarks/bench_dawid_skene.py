"""Dawid–Skene on six million labels, three classes, beside crowd-kit's: seconds an iteration, peak memory.

Each side runs in fresh processes, once for few and once for more iterations, so that what they do around
EM cancels; both sides take turns.

    python benchmarks/bench_dawid_skene.py [--labels 6000000]
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from timing import in_fresh_process, peak_bytes, verdict

PER_ITEM, P, LEAST_RATIO, ROUNDS = 6, 3, 20.0, 2
ITERATIONS = {"dissensus": (2, 22), "crowd-kit": (1, 4)}


def measure(side: str, n_labels: int, iterations: int) -> None:
    """One fit of so many iterations; its seconds and the process's peak memory."""
    import dissensus as ds

    annotations = ds.simulate(
        n_labels // PER_ITEM, n_labels // 500, P, labels_per_item=PER_ITEM, load="long-tail", alpha=1.0
    ).annotations
    if side == "dissensus":
        start = time.perf_counter()
        ds.DawidSkene(max_iter=iterations, tol=0.0, n_jobs=2).fit(annotations)
    else:
        import pandas as pd
        from crowdkit.aggregation import DawidSkene

        columns = {"task": annotations.item, "worker": annotations.annotator, "label": annotations.label}
        frame = pd.DataFrame(columns)
        start = time.perf_counter()
        DawidSkene(n_iter=iterations, tol=-float("inf")).fit(frame)
    print(json.dumps({"seconds": time.perf_counter() - start, "peak": peak_bytes()}))


def per_iteration(side: str, n_labels: int) -> tuple[float, float]:
    """Best seconds an iteration over some rounds, and the peak memory."""
    few, many = ITERATIONS[side]
    best, peak = float("inf"), 0.0
    for _ in range(ROUNDS):
        short, long = (
            in_fresh_process(__file__, "--side", side, "--labels", n_labels, "--iterations", n)
            for n in (few, many)
        )
        best = min(best, (long["seconds"] - short["seconds"]) / (many - few))
        peak = max(peak, long["peak"])
    return best, peak


def main(n_labels: int) -> int:
    ours, theirs = per_iteration("dissensus", n_labels), per_iteration("crowd-kit", n_labels)
    for name, (seconds, peak) in (("dissensus", ours), ("crowd-kit", theirs)):
        print(f"{name:<10} {seconds:7.3f} s an iteration, peak memory {peak / 1e9:.2f} GB")
    faster = verdict("times faster per iteration", theirs[0] / ours[0], LEAST_RATIO, at_least=True)
    return faster | verdict("memory, ours over theirs", ours[1] / theirs[1], 1.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=6_000_000)
    parser.add_argument("--side", choices=ITERATIONS)
    parser.add_argument("--iterations", type=int)
    given = parser.parse_args()
    sys.exit(measure(given.side, given.labels, given.iterations) if given.side else main(given.labels))
