"""The paper's search over 324 cells (K and L from 3 to 20) on the training split of jq3.

The whole of ``select`` is timed: every cell on one split, the ten best on four more, FMM and counts as
references, and the final fit. The limit is on processor seconds of a standard core (``timing.slowness``),
divided by two cores.

    python -m benchmarks.search [--inference bp vb annealing] [--largest 20]
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import dissensus as ds
from benchmarks.timing import processor_seconds, slowness
from experiments.runner import DATA_FOLDER, check_limit, read_dataset

N_CORES = 2
MAX_SECONDS = {"bp": 30.0, "vb": 90.0, "annealing": 180.0}  # the paper took 7 and 9 hours


def search(inference: str, annotations: ds.Annotations, largest: int) -> tuple[float, float]:
    """Run a search, print its result, and return wall-clock and processor seconds."""
    sizes = range(3, largest + 1)
    grid = {"n_item_clusters": sizes, "n_annotator_clusters": sizes}
    processes = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    start, before = time.perf_counter(), processor_seconds(*processes)
    selection = ds.select(annotations, ds.PGM(inference=inference), grid)
    wall, used = time.perf_counter() - start, processor_seconds(*processes) - before
    gains = ", ".join(f"{gain.mean:.3f} over {name}" for name, gain in selection.gains.items())
    print(f"{inference}: {selection}; {gains}")
    return wall, used


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA_FOLDER, help="folder of the datasets")
    parser.add_argument("--inference", nargs="+", choices=MAX_SECONDS, default=list(MAX_SECONDS))
    parser.add_argument("--largest", type=int, default=20, help="largest K and L")
    options = parser.parse_args()
    train = read_dataset(options.data / "jq3").split_items()["train"]
    missed = 0
    for inference in options.inference:
        slow_before = slowness()
        wall, used = search(inference, train, options.largest)
        print(f"{inference}: {used:.1f} processor seconds, {wall:.1f} wall-clock seconds")
        seconds = used / ((slow_before + slowness()) / 2) / N_CORES
        missed |= check_limit(f"{inference}, seconds on two standard cores", seconds, MAX_SECONDS[inference])
    return missed


if __name__ == "__main__":
    sys.exit(main())
