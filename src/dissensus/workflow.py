"""One whole job: choose a model, fit it, and write what it found into a directory.

::

    labels.csv          item, label, p_<class> for every class, entropy, n_labels
    annotators.csv      annotator, n_labels, agreement with the others, information (nats a label) and what
                        the model knows of them
    model.safetensors   the fitted model; dissensus.load reads it
    report.html         one self-contained page to look at, unless it is not wanted
    summary.json        settings, seed, versions, data, held-out scores, timings, the command

The directory appears whole or not at all, and replaces nothing but an earlier run's. A search leaves, beside
these, search.jsonl (every finished trial; the same command goes on from it after a kill) and cells.csv (one
row a cell, best first).
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.data.annotations import Annotations
from dissensus.errors import DataError, ParameterError, bad_parameter
from dissensus.execution.progress import Progress, ShowProgress, shown
from dissensus.execution.resources import current, using
from dissensus.io.results import SUMMARY, is_ours, output_directory, write_csv, write_pieces, write_summary
from dissensus.models import build_model, name_of, title_of
from dissensus.models.base import Model
from dissensus.params import PROCESS_BYTES, size_words
from dissensus.selection.compare import HeldOut, choose_model, compare

if TYPE_CHECKING:
    import pyarrow as pa

    from dissensus.selection.select import Selection

LABELS, ANNOTATORS, MODEL, REPORT = "labels.csv", "annotators.csv", "model.safetensors", "report.html"
CELLS = "cells.csv"
PIECE = 1 << 16  # items written at a time
PAGE_BYTES = 100  # a label, about, to make the page
WRITING = 0.95  # share of the work that is behind when files are written
YARDSTICK = "empirical"  # every model's held-out score stands beside the smoothed counts'


@dataclass(frozen=True)
class Run:
    """A fitted model with the evidence for it."""

    annotations: Annotations
    model: Model
    held_out: list[HeldOut]
    chosen: bool  # True: the model was chosen by held-out likelihood
    seed: int
    seconds: dict[str, float] = field(default_factory=dict)
    test_size: float = 0.2  # share of the pairs that was hidden


def refine(
    annotations: Annotations,
    model: str = "auto",
    settings: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
    n_jobs: int = -1,
    held_out: float = 0.2,
    progress: ShowProgress = None,
) -> Run:
    """Fit the named model to all labels, or the one that best foresees hidden ones (``"auto"``).

    ``held_out`` is the share of (item, annotator) pairs hidden for the comparison; 0 leaves it out for a
    named model.
    """
    if not 0 <= held_out < 1:
        raise bad_parameter("refine", "held_out", "a float >= 0 and < 1", held_out)
    seconds: dict[str, float] = {}
    with shown(progress) as tell:
        with _timed("compare", seconds):
            wanted, table = _decide(annotations, model, settings or {}, seed, n_jobs, held_out, tell)
        with _timed("fit", seconds), _told(f"fitting {title_of(wanted)} to all labels", bool(table), tell):
            fitted = wanted.fit(annotations)
    return Run(annotations, fitted, table, model == "auto", seed, seconds, held_out or 0.2)


def _decide(
    annotations: Annotations,
    name: str,
    settings: Mapping[str, Any],
    seed: int,
    n_jobs: int,
    held_out: float,
    tell: Progress,
) -> tuple[Model, list[HeldOut]]:
    def most(what: str, share: float) -> None:
        tell(what, 0.9 * share)

    if name == "auto":
        if settings:
            raise ParameterError(f"{', '.join(settings)}: name the model that should take this, with --model")
        return choose_model(annotations, seed, test_size=held_out or 0.2, n_jobs=n_jobs, progress=most)
    wanted = build_model(name, settings, seed=seed, n_jobs=n_jobs)
    if not held_out:
        return wanted, []
    rivals = [wanted] if name_of(wanted) == YARDSTICK else [wanted, build_model(YARDSTICK, {})]
    return wanted, compare(annotations, rivals, seed, test_size=held_out, progress=most)


@contextmanager
def _told(what: str, compared: bool, tell: Progress) -> Iterator[None]:
    """The fit's iterations are what is left of the work: all of it, or a tenth after a comparison."""
    used, first = current(), 0.9 if compared else 0.0
    tell(what, first)
    with shown(used.progress) as tell_iteration:

        def both(words: str, share: float) -> None:
            tell(what, first + (WRITING - first) * share)
            tell_iteration(words, share)

        with using(replace(used, progress=both)):
            yield


@contextmanager
def _timed(what: str, seconds: dict[str, float]) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[what] = round(time.perf_counter() - started, 3)


# ---- what a run knows ---------------------------------------------------------------------------------


def annotator_table(run: Run) -> Any:
    """One row an annotator: labels, agreement, information per label, and what the model knows of them."""
    import pandas as pd

    from dissensus.annotators.informativeness import agreement_and_information

    annotations = run.annotations
    agreement, information = agreement_and_information(annotations)
    columns = pd.DataFrame(
        {
            "annotator": annotations.annotators,
            "n_labels": annotations.annotator_load,
            "agreement": agreement,
            "information": information,
        }
    )
    known = getattr(run.model, "annotator_frame", None)
    return (
        columns
        if known is None
        else columns.join(pd.DataFrame(known()).drop(columns=["annotator", "n_labels"], errors="ignore"))
    )


def label_pieces(model: Model) -> Iterator[pa.Table]:
    """The rows of ``model.to_frame()``, some items at a time; ids stay in Arrow's hands."""
    import pyarrow as pa

    from dissensus.metrics import entropy_rows

    ids, names = model.item_vocabulary_.arrow, model.class_vocabulary_.arrow
    decision = model._decision()
    for first in range(0, max(len(ids), 1), PIECE):
        rows = slice(first, first + PIECE)
        chances = model.label_distributions_[rows]
        best = pa.array(decision[rows].argmax(axis=1))
        columns = {"item": ids[rows], "label": names.take(best)}
        columns |= {f"p_{name}": chances[:, p] for p, name in enumerate(model.classes_)}
        yield pa.table(columns | {"entropy": entropy_rows(chances), "n_labels": model.n_labels_[rows]})


def gold_accuracy(run: Run) -> float | None:
    """Share of the items with a gold label to which the model gives it; None without gold."""
    from dissensus.metrics import accuracy

    gold = run.annotations.gold
    if gold is None or not (gold >= 0).any():
        return None
    known = np.flatnonzero(gold >= 0)
    given = run.annotations.class_vocabulary.codes(run.model.class_vocabulary_)
    return accuracy(gold[known], given[run.model._decision()[known].argmax(axis=1)])


def summary(run: Run, *, command: str = "", source: str = "") -> dict[str, Any]:
    """Everything needed to know what was done, as plain values."""
    from dissensus.data.description import describe

    return {
        "command": command,
        "source": source,
        "model": name_of(run.model),
        "chosen_by": "held-out likelihood" if run.chosen else "name",
        "settings": run.model.get_params(deep=False),
        "seed": run.seed,
        "stopped": run.model.stopped_,
        "iterations": len(run.model.trace_),
        "objective": float(run.model.trace_[-1]) if len(run.model.trace_) else None,
        "held_out": [row.as_row() for row in run.held_out],
        "test_size": run.test_size,
        "gold_accuracy": gold_accuracy(run),
        "data": describe(run.annotations).to_dict(),
        "seconds": run.seconds,
    }


# ---- writing ------------------------------------------------------------------------------------------


def write_run(
    run: Run,
    directory: Path,
    *,
    command: str = "",
    source: str = "",
    force: bool = False,
    page: Mapping[str, Any] | None = None,
    progress: ShowProgress = None,
) -> dict[str, Any]:
    """Write the run's files, all or none, and give back its summary.

    ``page`` are settings of :func:`dissensus.write_report` (an empty mapping does); None: no page.
    """
    with output_directory(directory, force) as folder, shown(progress) as tell:
        seconds = dict(run.seconds)
        tell("writing labels, annotators and the model", WRITING)
        with _timed("write", seconds):
            write_fitted(run, folder)
        missing = None if page is None else _too_large_for_a_page(run.annotations)
        if page is not None and missing is None:
            with _timed("report", seconds):
                missing = try_page(run, folder / REPORT, command=command, progress=tell, **page)
        content = summary(run, command=command, source=source)
        return write_summary(folder, content | {"seconds": seconds, "report_missing": missing})


def write_selection(
    selection: Selection,
    annotations: Annotations,
    directory: Path,
    *,
    command: str = "",
    source: str = "",
    page: Mapping[str, Any] | None = None,
    progress: ShowProgress = None,
) -> dict[str, Any]:
    """Write the table and the winner, all or none, and give back the summary.

    ``page`` are settings of :func:`dissensus.write_report`; None: no page.
    """
    run = Run(annotations, selection.model, [], True, selection.seed, {"search": selection.seconds})
    found = {key: value for key, value in selection.to_dict().items() if key != "cells"}
    with output_directory(directory) as folder:
        write_csv(selection.to_frame(), folder / CELLS)
        write_fitted(run, folder)
        missing = None
        if page is not None:
            known = {"held_out": None, "selection": selection, "command": command, "progress": progress}
            missing = try_page(run, folder / REPORT, **known, **page)
        content = summary(run, command=command, source=source)
        return write_summary(folder, content | {"search": found, "report_missing": missing})


def _too_large_for_a_page(annotations: Annotations) -> str | None:
    """Why there is no page, where it would break the limit of memory."""
    allowed, needed = current().memory, PROCESS_BYTES + PAGE_BYTES * annotations.n_labels
    if allowed is None or needed <= allowed:
        return None
    return f"it takes some {size_words(needed)} of memory, and {size_words(allowed)} are allowed"


def write_fitted(run: Run, folder: Path) -> None:
    """Labels, annotators (where there are any) and the model."""
    write_pieces(label_pieces(run.model), folder / LABELS)
    if not run.annotations.anonymous:
        write_csv(annotator_table(run), folder / ANNOTATORS)
    run.model.save(folder / MODEL)


def try_page(run: Run, path: Path, **settings: Any) -> str | None:
    """The run as one page; why there is none, where it cannot be made: that must not cost the fit."""
    from dissensus.report.page import write_report

    known: dict[str, Any] = {"held_out": run.held_out, "seed": run.seed, "test_size": run.test_size}
    try:
        write_report(run.model, run.annotations, path, **(known | settings))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


# ---- reading back -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SavedRun:
    """What a directory of ours, or a model file alone, still knows of a run."""

    model: Model
    summary: dict[str, Any]  # empty where there is only a model
    cells: list[dict[str, str]] | None  # of a search

    def evidence(self) -> dict[str, Any]:
        """What the page shows beside the model, by the names of :func:`dissensus.write_report`."""
        known = {"seed": 0, "command": "", "test_size": 0.2}
        same = {name: self.summary.get(name, usual) for name, usual in known.items()}
        return {"held_out": self.summary.get("held_out") or None, "selection": self.cells, **same}


def open_run(place: Path) -> SavedRun:
    """A run's directory, or a model file, read back."""
    from dissensus.models.files import load

    if not place.is_dir():
        return SavedRun(load(place), {}, None)
    if not is_ours(place):
        raise DataError(f"{place}: is no directory that dissensus wrote; name one, or a *.safetensors file")
    cells = place / CELLS
    rows = None
    if cells.is_file():
        with cells.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    return SavedRun(load(place / MODEL), json.loads((place / SUMMARY).read_text(encoding="utf-8")), rows)
