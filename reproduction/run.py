"""The whole evaluation: the request, the cells on several processes, and the page.

Finished cells are kept; all others are measured and written at once.
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
from reproduction.datasets import Dataset, DatasetFiles, check_names, find_datasets, load
from reproduction.derived import write_records
from reproduction.measures import MEASURES, Inputs
from reproduction.page import write_page
from reproduction.plan import DEFAULT, DEFAULT_DATASETS, PARTS, Plan, Scale, possible_parts
from reproduction.printed import ENCODER

MAX_TASKS = 1_000  # at least the number of cells, so that n_jobs alone limits the processes


@dataclass(frozen=True)
class Request:
    """The requested datasets and parts, checked before anything is computed."""

    files: dict[str, DatasetFiles]
    parts: dict[str, Sequence[str]] | None  # None: all parts that a dataset allows
    only: tuple[str, ...]
    absent: tuple[str, ...]  # default datasets that the folder does not have


def request(data: Path, names: Sequence[str] = (), only: Sequence[str] = ()) -> Request:
    """Check the requested datasets and parts."""
    for part in only:
        if part not in PARTS:
            raise bad_parameter("reproduce", "only", f"among {', '.join(PARTS)}", part)
    available = find_datasets(data)
    check_names(names, available, data)
    chosen = list(dict.fromkeys(names)) or [name for name in DEFAULT_DATASETS if name in available]
    if not chosen:
        raise DataError(
            f"{data}: has none of {', '.join(DEFAULT_DATASETS)}; name the datasets with --sets: "
            f"{', '.join(available)}"
        )
    parts_chosen = tuple(only) or tuple(PARTS)
    parts: dict[str, Sequence[str]] | None = None if names else {n: DEFAULT_DATASETS[n] for n in chosen}
    if "table3" in parts_chosen:
        require("torch", "text")
        require("sentence_transformers", "text")
    absent = () if names else tuple(name for name in DEFAULT_DATASETS if name not in available)
    return Request({name: available[name] for name in chosen}, parts, parts_chosen, absent)


def plan_of(requested: Request, scale: Scale, finished: FinishedCells, report: Progress) -> Plan:
    """Read the datasets and plan the cells of each."""
    datasets: dict[str, Dataset] = {}
    for number, (name, files) in enumerate(requested.files.items()):
        report(f"reading {name}", number / len(requested.files))
        embedded = "table3" in requested.only and (
            requested.parts is None or "table3" in requested.parts[name]
        )
        dataset = load(name, files, max_items=scale.max_items, embedded=embedded, embedding=scale.embedding)
        if embedded and scale.printed_embedding and dataset.has_text:
            as_printed = load(
                name, files, max_items=scale.max_items, embedded=True, embedding=scale.printed_embedding
            )
            dataset = replace(dataset, as_printed=as_printed)
        datasets[name] = dataset
    parts = requested.parts or {name: possible_parts(dataset) for name, dataset in datasets.items()}
    return Plan(scale, datasets, parts, requested.only, finished)


def paper_encoder() -> str | None:
    """Return the name of the paper's sentence encoder if it can be loaded, from disk or from its hub."""
    from dissensus.text.embedding import load_encoder

    try:
        load_encoder(ENCODER)
    except DissensusError:
        return None
    return ENCODER


def measure(inputs: Inputs, cell: Cell) -> float:
    """Measure and write one cell; return its processor seconds."""
    start = time.process_time()
    numbers, arrays = MEASURES[cell.kind](inputs, cell)
    seconds = time.process_time() - start
    inputs.finished.write(cell, numbers, arrays, seconds)
    return seconds


@dataclass(frozen=True)
class Reproduction:
    """A finished evaluation."""

    plan: Plan
    n_finished: int  # cells that were finished before
    n_measured: int
    cpu_seconds: float  # of the measured cells
    files: list[str]
    absent: tuple[str, ...]


def reproduce(
    directory: Path,
    *,
    data: Path,
    names: Sequence[str] = (),
    only: Sequence[str] = (),
    scale: Scale = DEFAULT,
    n_jobs: int = -1,
    progress: ShowProgress = None,
    command: str = "make reproduce",
    publish: Path | None = None,
) -> Reproduction:
    """Run the paper's evaluation and write its page and figures to a directory.

    Finished cells are kept in ``directory/cells``, from which the same call resumes. ``publish`` is a second
    directory for the page, without the cells.
    """
    requested = request(data, names, only)
    with shown(progress) as report:
        plan = plan_of(requested, scale, FinishedCells(directory), report)
        inputs = Inputs(plan.datasets, plan.finished, scale.glove)
        cells = plan.cells()
        clock = Clock(report, sum(cell.weight for cell in cells if cell not in plan.finished))
        n_finished, n_measured, cpu_seconds = 0, 0, 0.0
        with workers(inputs, MAX_TASKS, n_jobs=n_jobs) as pool:
            for stage in plan.stages():
                missing = [cell for cell in stage if cell not in plan.finished]
                n_finished += len(stage) - len(missing)
                for cell, seconds in pool.completed(measure, sorted(missing, key=lambda c: -c.weight)):
                    n_measured += 1
                    cpu_seconds += seconds
                    clock.tick(cell.weight, f"{n_finished + n_measured} of {len(cells)}: {cell}")
        report("writing the page", 1.0)
        for folder in (directory,) if publish is None else (directory, publish):
            write_records(plan, folder, command)
            files = write_page(folder)
    return Reproduction(plan, n_finished, n_measured, cpu_seconds, files, requested.absent)
