"""Dawid–Skene on six million labels, three classes, beside crowd-kit's: seconds an iteration, peak memory.

Each side runs in fresh processes, once for few and once for more iterations, so that what they do around
EM cancels; both sides take turns. Ours works on two threads, crowd-kit on one. What is judged is processor
seconds, ours halved: what the clock would say on two quiet cores; the clock stands beside it.

    python benchmarks/bench_dawid_skene.py [--labels 6000000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from timing import in_fresh_process, peak_bytes, verdict

PER_ITEM, P, LEAST_RATIO, THREADS = 6, 3, 40.0, 2
ITERATIONS = {"dissensus": (2, 42), "crowd-kit": (1, 6)}


def measure(side: str, n_labels: int, iterations: int) -> None:
    """One fit of so many iterations; its seconds and the process's peak memory."""
    import dissensus as ds

    annotations = ds.simulate(
        n_labels // PER_ITEM, n_labels // 500, P, labels_per_item=PER_ITEM, load="long-tail", alpha=1.0
    ).annotations
    if side == "dissensus":
        start = time.perf_counter(), time.process_time()
        ds.DawidSkene(iterations, tol=0.0, n_jobs=THREADS).fit(annotations)
    else:
        import pandas as pd
        from crowdkit.aggregation import DawidSkene

        columns = {"task": annotations.item, "worker": annotations.annotator, "label": annotations.label}
        frame = pd.DataFrame(columns)
        start = time.perf_counter(), time.process_time()
        DawidSkene(n_iter=iterations, tol=-float("inf")).fit(frame)
    clock, processor = time.perf_counter() - start[0], time.process_time() - start[1]
    print(json.dumps({"clock": clock, "processor": processor, "peak": peak_bytes()}))


def per_iteration(n_labels: int, rounds: int) -> dict[str, dict[str, float]]:
    """Of each side, seconds an iteration by the clock and of processors, and the peak memory.

    Of few and of many iterations the least over the rounds counts, and then their difference: the least
    difference would be that of a few in a slow moment and many in a fast one.
    """
    least = {
        (side, n): {"clock": float("inf"), "processor": float("inf")} for side in ITERATIONS for n in (0, 1)
    }
    peak = dict.fromkeys(ITERATIONS, 0.0)
    for _ in range(rounds):
        for side, number in least:
            arguments = ("--side", side, "--labels", n_labels, "--iterations", ITERATIONS[side][number])
            taken = in_fresh_process(__file__, *arguments)
            for name, best in least[side, number].items():
                least[side, number][name] = min(best, taken[name])
            peak[side] = max(peak[side], taken["peak"])
    found = {}
    for side, (few, many) in ITERATIONS.items():
        short, long = least[side, 0], least[side, 1]
        found[side] = {name: (long[name] - short[name]) / (many - few) for name in short}
        found[side]["peak"] = peak[side]
    return found


def main(n_labels: int, rounds: int) -> int:
    found = per_iteration(n_labels, rounds)
    for side, one in found.items():
        print(
            f"{side:<10} {one['clock']:7.3f} s an iteration by the clock, {one['processor']:7.3f} of "
            f"processors, peak memory {one['peak'] / 1e9:.2f} GB"
        )
    ours, theirs = found["dissensus"], found["crowd-kit"]
    ratio = theirs["processor"] / (ours["processor"] / THREADS)
    faster = verdict("times faster per iteration, on two cores", ratio, LEAST_RATIO, at_least=True)
    return faster | verdict("memory, ours over theirs", ours["peak"] / theirs["peak"], 1.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=6_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", choices=ITERATIONS)
    parser.add_argument("--iterations", type=int)
    given = parser.parse_args()
    if given.side:
        measure(given.side, given.labels, given.iterations)
    else:
        sys.exit(main(given.labels, given.rounds))
