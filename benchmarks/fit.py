"""Processor seconds of whole commands, from a file of labels to the page, and of the import.

    python -m benchmarks.fit [--data FOLDER] [--repeats 2]

Each command runs in fresh processes with one BLAS thread and compiled bytecode, as after an installation. The
best of the repeats counts, in seconds of a standard core (``timing.slowness``).
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.timing import processor_seconds, slowness
from experiments.runner import DATA_FOLDER, check_limit

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
MAX_SECONDS = {  # by command
    "fit jq1": 26.0,
    "fit --fast jq1": 14.0,
    "fit hs_brexit": 9.0,
    "fit gwsd": 18.0,
    "annotators RUN": 1.0,
    "import dissensus": 0.35,
}


def arguments_of(command: str, data: Path, folder: Path) -> list[str]:
    """Return the arguments of Python for a command; runs are written to the folder."""
    if command == "import dissensus":
        return ["-c", command]
    if command == "annotators RUN":
        return ["-m", "dissensus", "annotators", str(folder / "fit-jq1")]
    *words, name = command.split()
    output = folder / "-".join([*words, name])
    return ["-m", "dissensus", *words, str(data / name / "annotations.csv"), "-o", str(output)]


def standard_seconds(arguments: list[str], bytecode: Path) -> float:
    """Run Python in a new process and return its seconds of a standard core, children included."""
    environment = os.environ | ONE_THREAD | {"PYTHONPYCACHEPREFIX": str(bytecode)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    slow_before, before = slowness(), processor_seconds(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment)
    seconds = processor_seconds(resource.RUSAGE_CHILDREN) - before
    return seconds / ((slow_before + slowness()) / 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA_FOLDER, help="folder of the datasets")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each command")
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for command, limit in MAX_SECONDS.items():
            seconds = [
                standard_seconds(
                    arguments_of(command, options.data, folder / str(repeat)), folder / "bytecode"
                )
                for repeat in range(options.repeats)
            ]
            missed |= check_limit(f"{command}, seconds of a standard core", min(seconds), limit)
    return missed


if __name__ == "__main__":
    sys.exit(main())
