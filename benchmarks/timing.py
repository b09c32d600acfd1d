"""Timing, memory and fresh processes for the benchmarks."""

from __future__ import annotations

import json
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
    """Return the best time of each task; in every round the tasks take turns."""
    best = [float("inf")] * len(tasks)
    for _ in range(repeats):
        for number, task in enumerate(tasks):
            start = clock()
            task()
            best[number] = min(best[number], clock() - start)
    return best


def peak_bytes() -> int:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def processor_seconds(*processes: int) -> float:
    """Return the processor time of this process, its finished children, or both (``resource.RUSAGE_*``)."""
    usages = [resource.getrusage(process) for process in processes]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def in_fresh_process(module: str, *arguments: object) -> dict[str, Any]:
    """Run a benchmark module in a new process and return the JSON of its last line of output."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(finished.stdout.splitlines()[-1]))


STANDARD_SECONDS = 0.034  # time of the standard work on the machine where the limits were set


def slowness(repeats: int = 15) -> float:
    """Return how much slower than the standard core this core is now.

    Processor seconds divided by the slowness are seconds of the standard core, which depend little on the
    machine or on other processes.
    """
    seconds = []
    with threadpool_limits(limits=1):
        for _ in range(repeats):
            start = time.process_time()
            table = np.random.default_rng(0).random((2000, 50))
            for _ in range(4):
                np.log(table).sum(axis=0)
                table @ table.T[:, :500]
                np.argsort(table, axis=None)
            sum(n % 7 for n in range(200_000))
            seconds.append(time.process_time() - start)
    return float(np.median(seconds)) / STANDARD_SECONDS


class PrivateMemory:
    """Peak private memory (without mapped files), sampled in a thread; optionally including children."""

    def __init__(self, *, children: bool = False) -> None:
        self._children = children

    def __enter__(self) -> PrivateMemory:
        self.peak, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(0.1 if self._children else 0.005):  # listing children is slow
            self.peak = max(
                self.peak, sum(memory_status("RssAnon", process) for process in self._processes())
            )

    def _processes(self) -> list[str]:
        if not self._children:
            return ["self"]
        import psutil

        parent = psutil.Process()
        return [str(process.pid) for process in (parent, *parent.children(recursive=True))]


def memory_status(field: str, process: str = "self") -> int:
    """Return a field of /proc/<process>/status in bytes; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), 0)
