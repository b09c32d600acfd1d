"""PGM 8 × 8 to convergence, begun at the labels of random items and begun where a fit to a sample ended.

Labels are simulated (crowds.py), as for bench_scale. Both fits have the same seed and end by the same
tolerance; the seconds of the second hold those of its sample. At least 2.5 times fewer processor seconds are
asked for at 10⁷ labels, and that no seed ends lower by more than the tolerance. (Another start ends at
another maximum: at 10⁶ labels a seed was seen to end lower by 0.00005 nats a label.)

    python benchmarks/bench_converge.py [--labels 10000000] [--seeds 3] [--folder DIR]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np

import dissensus as ds
from crowds import Crowd
from timing import verdict

LEAST_RATIO = 2.5
AT_ONCE = "dissensus.models.pgm.model.MANY_LABELS"


class Fit(NamedTuple):
    """What a fit cost and found."""

    seconds: float
    iterations: int
    objective: float  # a label


def fit(annotations: ds.Annotations, seed: int) -> Fit:
    """One fit to convergence, on all cores."""
    began = time.process_time()
    model = ds.PGM(8, 8, seed=seed).fit(annotations)
    seconds = time.process_time() - began
    return Fit(seconds, len(model.trace_), model.trace_[-1] / annotations.n_labels)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--labels", type=int, default=10**7)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        Crowd(options.labels, n_classes=5).write(Path(folder) / "labels")
        files = sorted((Path(folder) / "labels").iterdir())
        annotations = ds.read_annotations(files[0] if len(files) == 1 else Path(folder) / "labels")
        ratios, before, after = [], [], []
        for seed in range(options.seeds):
            with patch(AT_ONCE, 10 * options.labels):
                plain = fit(annotations, seed)
            with patch(AT_ONCE, min(10**6, options.labels)):
                ours = fit(annotations, seed)
            ratios.append(plain.seconds / ours.seconds)
            before.append(plain.objective)
            after.append(ours.objective)
            print(f"seed {seed}, {annotations.n_labels:,} labels")
            for name, one in (("at random items", plain), ("by a sample", ours)):
                print(
                    f"  begun {name:16} {one.iterations:4} iterations {one.seconds:8.1f} processor s "
                    f"{one.objective:11.6f} nats a label",
                    flush=True,
                )
    missed = verdict("times fewer processor seconds", float(np.median(ratios)), LEAST_RATIO, at_least=True)
    gains, tol = np.subtract(after, before), ds.PGM().tol
    print(f"{gains.mean():+.6f} nats a label on average; random starts differ by {np.std(before):.6f}")
    return missed | verdict("least gain, in tolerances", float(gains.min()) / tol, -1.0, at_least=True)


if __name__ == "__main__":
    sys.exit(main())
