"""Processor seconds from a file of labels to the page, command by command, and of the import.

    python benchmarks/bench_fit.py [--data FOLDER] [--repeats 2]

Each command runs in fresh processes, and the best of the repeats counts, in seconds of a standard core
(``timing.slowness``). BLAS has one thread. As after an installation, Python finds its bytecode compiled.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import data_option, slowness, verdict

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
LIMITS = {  # by command: processor seconds
    "fit jq1": 30.0,
    "fit --fast jq1": 5.0,
    "fit hs_brexit": 8.0,
    "annotators RUN": 1.0,
    "import dissensus": 0.35,
}


def words_of(what: str, data: Path, folder: Path) -> list[str]:
    """The command line of a measurement; runs are written into the folder."""
    if what == "import dissensus":
        return ["-c", what]
    run = folder / "fit-jq1"
    if what == "annotators RUN":
        return ["-m", "dissensus", "annotators", str(run)]
    *command, name = what.split()
    output = folder / "-".join([*command, name])
    return ["-m", "dissensus", *command, str(data / name / "annotations.csv"), "-o", str(output)]


def processor_seconds(words: list[str], bytecode: Path) -> float:
    """User and system time of one run of Python in a process of its own, with all that it starts."""
    environment = os.environ | ONE_THREAD | {"PYTHONPYCACHEPREFIX": str(bytecode)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    slow = slowness()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
    return seconds / ((slow + slowness()) / 2)


def main() -> int:
    """Measure every command; 1 where a limit is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    data_option(parser)
    parser.add_argument("--repeats", type=int, default=2, help="runs of each command")
    given = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as place:
        for what, limit in LIMITS.items():
            taken = []
            for repeat in range(given.repeats):
                words = words_of(what, given.data, Path(place) / str(repeat))
                taken.append(processor_seconds(words, Path(place) / "bytecode"))
            missed += verdict(f"{what}, seconds of a standard core", min(taken), limit)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
