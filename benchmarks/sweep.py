"""Milliseconds of a sweep of HPGM's sampler on one thread.

    python -m benchmarks.sweep [--data FOLDER] [--sweeps 100] [--rounds 3]

The datasets take turns, and the best round counts, in milliseconds of a standard core (``timing.slowness``).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.timing import best_seconds, slowness
from dissensus.models.hpgm import sampler
from experiments.runner import DATA_FOLDER, check_limit, read_dataset

MAX_MILLISECONDS = {"hs_brexit": 1.5, "jq1": 4.5, "jq3": 6.0}  # by dataset
K = L = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA_FOLDER, help="folder of the datasets")
    parser.add_argument("--sweeps", type=int, default=100, help="sweeps in a round, after as many others")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    chains = {}
    for name in MAX_MILLISECONDS:
        data = sampler.Data.of_labels(read_dataset(options.data / name))
        state = sampler.start(data, K, L, np.random.default_rng(0))
        for sweep in range(options.sweeps):
            state = sampler.sweep(state, data, np.random.default_rng([0, sweep]))
        chains[name] = data, state

    def sample(name: str) -> None:
        data, state = chains[name]
        for sweep in range(options.sweeps):
            state = sampler.sweep(state, data, np.random.default_rng([1, sweep]))

    with threadpool_limits(limits=1):
        before = slowness()
        seconds = best_seconds(*(lambda name=name: sample(name) for name in chains), repeats=options.rounds)
        speed = (before + slowness()) / 2
    missed = 0
    for (name, limit), time in zip(MAX_MILLISECONDS.items(), seconds, strict=True):
        milliseconds = 1000 * time / options.sweeps / speed
        missed |= check_limit(f"sweep of HPGM, {name}, ms of a standard core", milliseconds, limit)
    return missed


if __name__ == "__main__":
    sys.exit(main())
