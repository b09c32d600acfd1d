"""What the benchmarks share: fair timing, peak memory of a fresh process, and a verdict on a ratio."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable


def best_seconds(*tasks: Callable[[], object], repeats: int = 5) -> list[float]:
    """Best wall time of each task over some rounds, the tasks taking turns."""
    best = [float("inf")] * len(tasks)
    for _ in range(repeats):
        for number, task in enumerate(tasks):
            start = time.perf_counter()
            task()
            best[number] = min(best[number], time.perf_counter() - start)
    return best


def peak_bytes() -> int:
    """Most memory this process has had at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_fresh_process(script: str, *arguments: object) -> dict[str, float]:
    """Run a benchmark script with arguments; it prints one line of JSON."""
    command = [sys.executable, script, *map(str, arguments)]
    finished = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(finished.stdout.splitlines()[-1]))


def verdict(what: str, value: float, limit: float, *, at_least: bool = False) -> int:
    """Print a figure beside its limit; the exit status says whether it was kept."""
    kept = value >= limit if at_least else value <= limit
    word = "at least" if at_least else "at most"
    print(f"{what}: {value:.2f} ({word} {limit:g}: {'kept' if kept else 'MISSED'})")
    return int(not kept)
