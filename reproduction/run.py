"""The whole evaluation: what is asked for, the cells on processes, the page.

Cells that are finished are left alone; the others are measured and kept at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dissensus.errors import DataError, DissensusError, bad_parameter, require
from dissensus.evaluate.tasks import workers
from dissensus.progress import Clock, Progress, ShowProgress, shown
from reproduction.cells import Cell, FinishedCells
from reproduction.datasets import Dataset, DatasetFiles, check_sets, find_sets, load
from reproduction.measures import MEASURES, Inputs
from reproduction.page import write_page
from reproduction.plan import DEFAULT, PARTS, USUAL, Plan, Scale, possible_parts
from reproduction.printed import ENCODER

MANY = 1_000  # more processes than anybody has: their number is n_jobs


# ---- what is asked for --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """What is asked for, checked before anything is computed."""

    files: dict[str, DatasetFiles]
    parts: dict[str, Sequence[str]] | None  # None: whatever each dataset allows
    only: tuple[str, ...]
    absent: tuple[str, ...]  # usual datasets that the folder does not have


def request(data: Path, sets: Sequence[str] = (), only: Sequence[str] = ()) -> Request:
    """The datasets and parts asked for; refuses what is unknown or cannot be done here."""
    for part in only:
        if part not in PARTS:
            raise bad_parameter("reproduce", "only", f"among {', '.join(PARTS)}", part)
    known = find_sets(data)
    check_sets(sets, known, data)
    wanted = list(dict.fromkeys(sets)) or [name for name in USUAL if name in known]
    if not wanted:
        raise DataError(
            f"{data}: has none of {', '.join(USUAL)}; name the datasets with --sets: {', '.join(known)}"
        )
    chosen = tuple(only) or tuple(PARTS)
    parts: dict[str, Sequence[str]] | None = None if sets else {name: USUAL[name] for name in wanted}
    if "table3" in chosen:
        require("torch", "text")
        require("sentence_transformers", "text")
    absent = () if sets else tuple(name for name in USUAL if name not in known)
    return Request({name: known[name] for name in wanted}, parts, chosen, absent)


def plan_of(asked: Request, scale: Scale, finished: FinishedCells, tell: Progress) -> Plan:
    """Read the datasets and decide what is asked of each."""
    datasets: dict[str, Dataset] = {}
    for place, (name, files) in enumerate(asked.files.items()):
        tell(f"reading {name}", place / len(asked.files))
        learned = "table3" in asked.only and (asked.parts is None or "table3" in asked.parts[name])
        one = load(name, files, max_items=scale.max_items, embedded=learned, embedding=scale.embedding)
        if learned and scale.printed_embedding and one.has_text:
            one = replace(one, as_printed=_with_encoder(name, files, scale))
        datasets[name] = one
    parts = asked.parts or {name: possible_parts(one) for name, one in datasets.items()}
    return Plan(scale, datasets, parts, asked.only, finished)


def paper_encoder() -> str | None:
    """The name of the paper's sentence encoder where it can be loaded, from disk or from its hub."""
    from dissensus.text.embedding import load_encoder

    try:
        load_encoder(ENCODER)
    except DissensusError:
        return None
    return ENCODER


def _with_encoder(name: str, files: DatasetFiles, scale: Scale) -> Dataset:
    """The dataset with the embeddings of the paper's encoder."""
    return load(name, files, max_items=scale.max_items, embedded=True, embedding=scale.printed_embedding)


# ---- the cells ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """How much was there already, and how much was done."""

    found: int
    measured: int
    cpu_seconds: float  # of what was measured now


def measure(inputs: Inputs, cell: Cell) -> float:
    """Measure one cell and keep it; gives the processor seconds it took."""
    began = time.process_time()
    numbers, arrays = MEASURES[cell.kind](inputs, cell)
    seconds = time.process_time() - began
    inputs.finished.write(cell, numbers, arrays, seconds)
    return seconds


def run_cells(plan: Plan, *, n_jobs: int, progress: Progress) -> Work:
    """Measure every cell of the plan that is not finished, stage by stage, the long ones first."""
    total = plan.cells()
    clock = Clock(progress, sum(cell.weight for cell in total if cell not in plan.finished))
    found, measured, cpu_seconds = 0, 0, 0.0
    inputs = Inputs(plan.datasets, plan.finished, plan.scale.glove)
    with workers(inputs, MANY, n_jobs=n_jobs) as pool:
        for cells in plan.stages():
            missing = [cell for cell in cells if cell not in plan.finished]
            found += len(cells) - len(missing)
            for cell, seconds in pool.completed(measure, sorted(missing, key=lambda one: -one.weight)):
                measured += 1
                cpu_seconds += seconds
                clock.tick(cell.weight, f"{found + measured} of {len(total)}: {cell}")
    return Work(found, measured, cpu_seconds)


# ---- the whole of it ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reproduction:
    """What a run gave."""

    plan: Plan
    work: Work
    files: list[str]
    absent: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Reproduction({', '.join(self.plan.datasets)}; {self.work})"


def reproduce(
    directory: Path,
    *,
    data: Path,
    sets: Sequence[str] = (),
    only: Sequence[str] = (),
    scale: Scale = DEFAULT,
    n_jobs: int = -1,
    progress: ShowProgress = None,
    command: str = "make reproduce",
    publish: Path | None = None,
) -> Reproduction:
    """Run the paper's evaluation and write its page, tables and figures into a directory.

    Finished cells are kept under ``directory/cells``: the same call goes on where an earlier one was stopped.
    ``publish`` is a second place for page, tables and figures, without the cells.
    """
    asked = request(data, sets, only)
    with shown(progress) as tell:
        plan = plan_of(asked, scale, FinishedCells(directory), tell)
        work = run_cells(plan, n_jobs=n_jobs, progress=tell)
        tell("writing the page", 1.0)
        files = write_page(plan, directory, command)
        if publish is not None:
            write_page(plan, publish, command)
    return Reproduction(plan, work, files, asked.absent)
