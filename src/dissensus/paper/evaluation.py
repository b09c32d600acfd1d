"""The whole evaluation: data, cells, page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dissensus.errors import DataError, bad_parameter, require
from dissensus.execution.progress import Progress, ShowProgress, shown
from dissensus.paper.cells import Store
from dissensus.paper.datasets import Dataset, Source, check_sets, find_sets, load
from dissensus.paper.page import write_page
from dissensus.paper.plan import PARTS, USUAL, Plan, possible_parts
from dissensus.paper.running import Work, run_cells
from dissensus.paper.scale import DEFAULT, Scale


@dataclass(frozen=True)
class Request:
    """What is asked for, checked before anything is computed."""

    sources: dict[str, Source]
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
    command: str = "dissensus reproduce",
    publish: Path | None = None,
) -> Reproduction:
    """Run the paper's evaluation and write its page, tables and figures into a directory.

    Finished cells are kept under ``directory/cells``: the same call goes on where an earlier one was stopped.
    ``publish`` is a second place for page, tables and figures, without the cells.
    """
    asked = request(data, sets, only)
    with shown(progress) as tell:
        plan = plan_of(asked, scale, tell)
        store = Store(directory)
        work = run_cells(plan, store, n_jobs=n_jobs, progress=tell)
        tell("writing the page", 1.0)
        files = write_page(plan, store, directory, command)
        if publish is not None:
            write_page(plan, store, publish, command)
    return Reproduction(plan, work, files, asked.absent)


def plan_of(asked: Request, scale: Scale, tell: Progress) -> Plan:
    """Read the datasets and decide what is asked of each."""
    datasets: dict[str, Dataset] = {}
    for place, (name, source) in enumerate(asked.sources.items()):
        tell(f"reading {name}", place / len(asked.sources))
        learned = "table3" in asked.only and (asked.parts is None or "table3" in asked.parts[name])
        datasets[name] = load(name, source, scale, embedded=learned)
    parts = asked.parts or {name: possible_parts(one) for name, one in datasets.items()}
    return Plan(scale, datasets, parts, asked.only)
