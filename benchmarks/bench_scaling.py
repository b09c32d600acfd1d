"""How PGM's cost grows with the number of labels: seconds per iteration and bytes per label.

From 10⁵ to 10⁷ labels of a long-tailed crowd, each size in a fresh process; the exponent is the slope of
log seconds against log labels.

    python benchmarks/bench_scaling.py [--most 10000000]
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np

from timing import in_fresh_process, peak_bytes, verdict

PER_ITEM, P, K, L, ITERATIONS = 10, 5, 12, 12, 5
SIZES = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)


def measure(n_labels: int) -> None:
    """One fit of a few iterations; what it cost per iteration, and at most in memory beyond the data."""
    import dissensus as ds
    from dissensus.engine import threads
    from dissensus.models.pgm.kernels import PairBlock

    annotations = ds.simulate(
        n_labels // PER_ITEM, max(500, n_labels // 500), P, labels_per_item=PER_ITEM, load="long-tail"
    ).annotations
    with threads(2) as pool:
        list(pool.blocks(annotations, PairBlock.of).map(lambda block: block.n_pairs))
    before = peak_bytes()
    times = []
    for iterations in (1, 1 + ITERATIONS):
        start = time.perf_counter()
        ds.PGM(K, L, max_iter=iterations, tol=0.0, n_jobs=2).fit(annotations)
        times.append(time.perf_counter() - start)
    per_label = (peak_bytes() - before) / n_labels
    print(json.dumps({"seconds": (times[1] - times[0]) / ITERATIONS, "bytes": per_label}))


def main(most: int) -> int:
    sizes = [size for size in SIZES if size <= most]
    found = [in_fresh_process(__file__, "--size", size) for size in sizes]
    for size, one in zip(sizes, found, strict=True):
        print(f"{size:>11,} labels: {one['seconds']:8.3f} s an iteration, {one['bytes']:5.0f} bytes a label")
    exponent = np.polyfit(np.log(sizes), np.log([one["seconds"] for one in found]), 1)[0]
    return verdict("exponent of the cost", float(exponent), 1.1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=SIZES[-1])
    parser.add_argument("--size", type=int)
    given = parser.parse_args()
    sys.exit(measure(given.size) if given.size else main(given.most))
