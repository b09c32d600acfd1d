"""PGM 8 × 8 to convergence, started from the labels of random items or from a fit to a sample.

Labels are simulated as for ``scale``. Both fits have the same seed and tolerance; the second includes the
time of its sample. It must take 2.5 times less processor time at 10⁷ labels, and its objective must not be
lower by more than the tolerance. (Different starts reach different maxima: at 10⁶ labels one seed ended lower
by 0.00005 nats per label.)

    python -m benchmarks.converge [--labels 10000000] [--seeds 3] [--folder DIR]
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
from benchmarks.crowds import SimulatedCrowd
from experiments.runner import check_limit

MIN_RATIO = 2.5
# labels from which a fit starts with a sample
SAMPLE_THRESHOLD = "dissensus.models.pgm.model.MIN_LABELS_FOR_SAMPLE"


class TimedFit(NamedTuple):
    """Cost and result of a fit."""

    seconds: float
    iterations: int
    objective: float  # per label


def fit(annotations: ds.Annotations, seed: int) -> TimedFit:
    """Fit to convergence on all cores."""
    start = time.process_time()
    model = ds.PGM(8, 8, seed=seed).fit(annotations)
    seconds = time.process_time() - start
    return TimedFit(seconds, len(model.trace_), model.trace_[-1] / annotations.n_labels)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--labels", type=int, default=10**7)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        folder = Path(temporary) / "labels"
        SimulatedCrowd(options.labels, n_classes=5).write(folder)
        files = sorted(folder.iterdir())
        annotations = ds.read_annotations(files[0] if len(files) == 1 else folder)
        ratios, plain_objectives, objectives = [], [], []
        for seed in range(options.seeds):
            with patch(SAMPLE_THRESHOLD, 10 * options.labels):
                plain = fit(annotations, seed)
            with patch(SAMPLE_THRESHOLD, min(10**6, options.labels)):
                sampled = fit(annotations, seed)
            ratios.append(plain.seconds / sampled.seconds)
            plain_objectives.append(plain.objective)
            objectives.append(sampled.objective)
            print(f"seed {seed}: from random items {plain}, from a sample {sampled}", flush=True)
    missed = check_limit(
        "processor time, random start over sample", float(np.median(ratios)), MIN_RATIO, at_least=True
    )
    gains, tol = np.subtract(objectives, plain_objectives), ds.PGM().tol
    spread = float(np.std(plain_objectives))
    print(f"mean gain {gains.mean():+.6f} nats per label; random starts differ by {spread:.6f}")
    return missed | check_limit("smallest gain, in tolerances", float(gains.min()) / tol, -1.0, at_least=True)


if __name__ == "__main__":
    sys.exit(main())
