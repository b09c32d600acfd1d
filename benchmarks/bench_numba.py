"""Would a compiled kernel pay? Dawid–Skene's E-step in SciPy's products, and fused into one loop by numba.

The same labels (five an item, one annotator per thousand labels), one thread, in double precision; each
the best of some rounds in turn. A kernel stays out unless a whole fit gains 1.5 times, and a fit is more
than its E-steps. numba is not a dependency: without it, nothing is measured.

    python benchmarks/bench_numba.py [--labels 1000000]
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time

import numpy as np

import dissensus as ds
from dissensus.data.annotations import Annotations
from dissensus.execution.run import Run
from dissensus.models.confusion import CellLayout, Crowd, _by_cell, _e_step
from timing import best_seconds

CLASSES, PER_ITEM, PER_ANNOTATOR, ITERATIONS = 3, 5, 1000, 10


def crowd(n_labels: int) -> Annotations:
    """Labels at random: what they say does not matter to the time."""
    rng = np.random.default_rng(0)
    item = np.repeat(np.arange(n_labels // PER_ITEM), PER_ITEM)
    annotator = rng.integers(0, n_labels // PER_ANNOTATOR, len(item))
    return Annotations.from_arrays(
        item, annotator, rng.integers(0, CLASSES, len(item)), classes=range(CLASSES)
    )


def fused(pointers, cells, logs, log_psi, counts):
    """Posterior, expected counts and evidence of item after item; ``counts`` is added to in place."""
    K, evidence = logs.shape[1], 0.0
    w = np.empty(K, logs.dtype)
    for i in range(len(pointers) - 1):
        for k in range(K):
            w[k] = log_psi[k]
        for e in range(pointers[i], pointers[i + 1]):
            for k in range(K):
                w[k] += logs[cells[e], k]
        most, mass = w.max(), 0.0
        for k in range(K):
            w[k] = np.exp(w[k] - most)
            mass += w[k]
        evidence += np.log(mass) + most
        for k in range(K):
            w[k] /= mass
        for e in range(pointers[i], pointers[i + 1]):
            for k in range(K):
                counts[cells[e], k] += w[k]
    return evidence


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--labels", type=int, default=10**6)
    options = parser.parse_args()
    if importlib.util.find_spec("numba") is None:
        print("numba is not installed; nothing is measured")
        return 0
    import numba

    known, compiled = crowd(options.labels), numba.njit(fused)
    work = Crowd.of(known, Run()).work
    layouts: list[CellLayout] = list(work.map(lambda layout: layout))
    matrices = np.random.default_rng(1).dirichlet(np.ones(CLASSES), (known.n_annotators, CLASSES))
    logs, log_psi, nothing = (
        _by_cell(np.log(matrices)),
        np.log(np.full(CLASSES, 1 / CLASSES)),
        np.zeros(CLASSES),
    )

    def ours() -> list[np.ndarray]:
        return [_e_step(layout, nothing, log_psi, logs).counts for layout in layouts]

    def theirs() -> list[np.ndarray]:
        found = []
        for layout in layouts:
            counts = np.zeros((layout.matrix.shape[1], CLASSES))
            compiled(layout.matrix.indptr, layout.matrix.indices, logs[layout.cells], log_psi, counts)
            found.append(counts)
        return found

    for one, other in zip(ours(), theirs(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    plain, loop = best_seconds(ours, theirs, clock=time.process_time)
    (whole,) = best_seconds(
        lambda: ds.DawidSkene(ITERATIONS, tol=0.0, n_jobs=1).fit(known), repeats=2, clock=time.process_time
    )
    gain = whole / (whole - ITERATIONS * (plain - loop))
    print(f"{known.n_labels:,} labels, an E-step: SciPy {1e3 * plain:.0f} ms, numba {1e3 * loop:.0f} ms")
    print(f"  {plain / loop:.2f} times faster; a fit of {ITERATIONS} iterations would gain {gain:.2f} times")
    return 0


if __name__ == "__main__":
    sys.exit(main())
