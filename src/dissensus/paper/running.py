"""Cells on processes: those that are finished are left alone, the others are measured and kept at once."""

from __future__ import annotations

import time
from dataclasses import dataclass

from dissensus.execution.progress import Clock, Progress
from dissensus.execution.tasks import workers
from dissensus.paper.cells import Cell, Store
from dissensus.paper.measures import MEASURES, Bench
from dissensus.paper.plan import STAGES, Plan
from dissensus.paper.questions import QUESTIONS

MANY = 1_000  # more processes than anybody has: their number is n_jobs


@dataclass(frozen=True)
class Work:
    """How much was there already, and how much was done."""

    found: int
    measured: int
    cpu_seconds: float  # of what was measured now


def measure(bench: Bench, cell: Cell) -> float:
    """Measure one cell and keep it; gives the processor seconds it took."""
    began = time.process_time()
    numbers, arrays = (MEASURES | QUESTIONS)[cell.kind](bench, cell)
    seconds = time.process_time() - began
    bench.store.write(cell, numbers, arrays, seconds)
    return seconds


def run_cells(plan: Plan, store: Store, *, n_jobs: int, progress: Progress) -> Work:
    """Measure every cell of the plan that is not finished, stage by stage, the long ones first."""
    total = plan.cells(store)
    clock = Clock(progress, sum(cell.weight for cell in total if store.read(cell) is None))
    found, measured, cpu_seconds = 0, 0, 0.0
    with workers(Bench(plan.datasets, store), MANY, n_jobs=n_jobs) as pool:
        for stage in STAGES:
            cells = plan.stage(stage, store)
            missing = [cell for cell in cells if store.read(cell) is None]
            found += len(cells) - len(missing)
            for cell, seconds in pool.completed(measure, sorted(missing, key=lambda one: -one.weight)):
                measured += 1
                cpu_seconds += seconds
                clock.tick(cell.weight, f"{found + measured} of {len(total)}: {cell}")
    return Work(found, measured, cpu_seconds)
