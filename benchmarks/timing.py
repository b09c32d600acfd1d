"""What the benchmarks share: fair timing, peak memory of a fresh process, and a verdict on a figure."""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits


def best_seconds(
    *tasks: Callable[[], object], repeats: int = 5, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Best time of each task over some rounds, the tasks taking turns; wall time unless told otherwise."""
    best = [float("inf")] * len(tasks)
    for _ in range(repeats):
        for number, task in enumerate(tasks):
            start = clock()
            task()
            best[number] = min(best[number], clock() - start)
    return best


def data_option(parser: argparse.ArgumentParser) -> None:
    """Let the command line say where the datasets are."""
    usual = Path(os.environ.get("DISSENSUS_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=usual, help="folder of the datasets")


def read_dataset(folder: Path) -> Any:
    """Read a dataset's folder: its labels, with texts and gold where it has them."""
    import dissensus as ds

    def first(stem: str) -> Path | None:
        files = (folder / f"{stem}{ending}" for ending in (".csv", ".csv.gz"))
        return next((file for file in files if file.exists()), None)

    labels = first("annotations") or folder / "annotations.csv"  # not there: said as of any file
    return ds.read_annotations(labels, items=first("items"), gold=first("gold"))


def peak_bytes() -> int:
    """Most memory this process has had at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_fresh_process(script: str, *arguments: object) -> dict[str, float]:
    """Run a benchmark script with arguments; it prints one line of JSON."""
    command = [sys.executable, script, *map(str, arguments)]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(finished.stdout.splitlines()[-1]))


def markdown(head: list[str], lines: list[list[str]]) -> str:
    """Write a table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *lines])


ROWS = "DISSENSUS_BENCHMARK_ROWS"  # names the file that run.py reads figures from


def verdict(what: str, value: float, limit: float, *, at_least: bool = False) -> int:
    """Print a figure beside its limit; the exit status says whether it was kept."""
    kept = value >= limit if at_least else value <= limit
    word = "at least" if at_least else "at most"
    print(f"{what}: {value:.2f} ({word} {limit:g}: {'kept' if kept else 'MISSED'})", flush=True)
    if ROWS in os.environ:
        row = {"what": what, "value": float(value), "limit": f"{word} {limit:g}", "kept": bool(kept)}
        with Path(os.environ[ROWS]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    return int(not kept)


STANDARD_SECONDS = 0.034  # of the standard work, on a quiet core of the machine where the limits were set


def slowness(repeats: int = 15) -> float:
    """How many times longer than there a core takes here and now, by some standard work.

    Processor seconds divided by it are seconds of that core: a ratio within one run, which neither another
    machine nor a neighbour on the same core can change much.
    """
    taken = []
    with threadpool_limits(limits=1):
        for _ in range(repeats):
            start = time.process_time()
            _standard_work()
            taken.append(time.process_time() - start)
    return float(np.median(taken)) / STANDARD_SECONDS


def _standard_work() -> int:
    """Logarithms, products, sorting and plain Python, some of each."""
    table = np.random.default_rng(0).random((2000, 50))
    for _ in range(4):
        np.log(table).sum(axis=0)
        table @ table.T[:, :500]
        np.argsort(table, axis=None)
    return sum(n % 7 for n in range(200_000))


class OwnMemory:
    """The most memory of the process's own that was seen, looked at again and again.

    Pages of mapped files are not its own. With ``children``, all processes that it started are counted too.
    """

    def __init__(self, *, children: bool = False) -> None:
        self._children = children

    def __enter__(self) -> OwnMemory:
        self.most, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.1 if self._children else 0.005):  # to look at many takes time
            self.most = max(self.most, sum(status("RssAnon", process) for process in self._processes()))

    def _processes(self) -> list[str]:
        if not self._children:
            return ["self"]
        import psutil

        me = psutil.Process()
        return [str(process.pid) for process in (me, *me.children(recursive=True))]


def status(what: str, process: str = "self") -> int:
    """Bytes that the system counts under a name for a process; 0 for one that is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(what)), 0)
