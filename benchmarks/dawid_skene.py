"""Dawid–Skene compared with crowd-kit's: seconds per iteration and peak memory.

Each side runs in fresh processes, in turns, with few and with many iterations; the difference leaves out the
work around EM. Ours uses two threads and crowd-kit one. The limit is on processor seconds, ours halved, which
is the wall-clock time on two idle cores.

    python -m benchmarks.dawid_skene [--labels 6000000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from benchmarks.timing import in_fresh_process, peak_bytes
from experiments.runner import check_limit

LABELS_PER_ITEM, P, N_THREADS = 6, 3, 2
MIN_RATIO = 40.0
ITERATIONS = {"dissensus": (2, 42), "crowd-kit": (1, 6)}


def measure(side: str, n_labels: int, iterations: int) -> None:
    """Fit once and print seconds and peak memory as JSON."""
    import dissensus as ds

    annotations = ds.simulate(
        n_labels // LABELS_PER_ITEM,
        n_labels // 500,
        P,
        labels_per_item=LABELS_PER_ITEM,
        load="long-tail",
        alpha=1.0,
    ).annotations
    if side == "dissensus":
        start = time.process_time()
        ds.DawidSkene(iterations, tol=0.0, n_jobs=N_THREADS).fit(annotations)
    else:
        import pandas as pd
        from crowdkit.aggregation import DawidSkene

        columns = {"task": annotations.item, "worker": annotations.annotator, "label": annotations.label}
        frame = pd.DataFrame(columns)
        start = time.process_time()
        DawidSkene(n_iter=iterations, tol=-float("inf")).fit(frame)
    print(json.dumps({"seconds": time.process_time() - start, "peak": peak_bytes()}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--labels", type=int, default=6_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", choices=ITERATIONS, help=argparse.SUPPRESS)
    parser.add_argument("--iterations", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        measure(options.side, options.labels, options.iterations)
        return 0
    runs = [(side, n) for side, pair in ITERATIONS.items() for n in pair]
    best, peak = dict.fromkeys(runs, float("inf")), dict.fromkeys(ITERATIONS, 0.0)
    for _ in range(options.rounds):
        for side, n in runs:
            arguments = ("--side", side, "--labels", options.labels, "--iterations", n)
            values = in_fresh_process("benchmarks.dawid_skene", *arguments)
            best[side, n] = min(best[side, n], values["seconds"])
            peak[side] = max(peak[side], values["peak"])
    seconds = {
        side: (best[side, many] - best[side, few]) / (many - few) for side, (few, many) in ITERATIONS.items()
    }
    for side in ITERATIONS:
        print(f"{side}: {seconds[side]:.3f} processor s per iteration, peak {peak[side] / 1e9:.2f} GB")
    ratio = seconds["crowd-kit"] / (seconds["dissensus"] / N_THREADS)
    missed = check_limit("times faster per iteration, on two cores", ratio, MIN_RATIO, at_least=True)
    return missed | check_limit("memory over crowd-kit's", peak["dissensus"] / peak["crowd-kit"], 1.0)


if __name__ == "__main__":
    sys.exit(main())
