"""Runs: directories that hold a fitted model and its results.

::

    labels.csv          item, label, p_<class> for every class, entropy, n_labels
    annotators.csv      annotator, n_labels, agreement with the others, and the model's findings on each
    model.safetensors   the fitted model; dissensus.load reads it
    draws.safetensors   of a sampled model: draws, the chains' last states and the labels, to resume from
    report.html         a self-contained HTML report (optional)
    summary.json        settings, seed, versions, data, held-out scores, timings, the command

A finished search adds its table (cells.csv, best first) and the record from which the same command resumes
after an interruption (search.jsonl); a recovery has recovery.csv and summary.json. A directory is written
completely or not at all, and replaces only earlier results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dissensus.annotators.pseudonyms import is_pseudonymous, may_be_pseudonyms
from dissensus.annotators.verdicts import ANNOTATORS_FILE, annotator_verdicts, bias_columns, read_verdicts
from dissensus.engine import current
from dissensus.errors import DataError
from dissensus.evaluate.gold import judged_items, right_rows
from dissensus.labels import provided
from dissensus.labels.agreement import agreement_with_others
from dissensus.labels.annotations import Annotations
from dissensus.labels.description import Description, describe
from dissensus.labels.rows import join_labels, without_repeated
from dissensus.labels.vocabulary import arrow_table
from dissensus.models import RUN_SETTINGS, name_of
from dissensus.models.base import Model
from dissensus.models.graded import GradedResponse
from dissensus.models.hpgm.model import HPGM
from dissensus.models.scoring import recode_classes
from dissensus.params import PROCESS_BYTES, size_words
from dissensus.progress import shown
from dissensus.tables import results
from dissensus.tables.atomic import restore
from dissensus.tables.layouts import with_side_tables
from dissensus.workflow.refine import SHARE_FITTED, Refinement, default_model, fit, fit_shown, timed
from dissensus.workflow.run_labels import ROWS_FILE, save_labels

if TYPE_CHECKING:
    from dissensus.annotators.verdicts import AnnotatorVerdicts
    from dissensus.evaluate.recovery import Recovery
    from dissensus.evaluate.select import Selection

MODEL_FILE, REPORT, CELLS = "model.safetensors", "report.html", "cells.csv"
MODEL_SUFFIX = ".safetensors"
REPORT_BYTES_PER_LABEL = 100  # approximate memory for making the report

Page = Mapping[str, Any] | None  # settings of write_report (may be empty); None for no report


# ---- writing ------------------------------------------------------------------------------------------


def write_run(
    run: Refinement,
    directory: Path,
    *,
    force: bool = False,
    page: Page = None,
    cells: Any = (),
    **origin: Any,
) -> dict[str, Any]:
    """Write the files of a run, all or nothing, and return its summary.

    ``cells`` are the rows of a search. ``origin`` is added to the summary: the ``command``, the ``source`` of
    the labels, and in ``reading`` the settings that they were read with, for later updates.
    """
    origin = {"command": "", "source": "", "reading": {}} | origin
    seconds, verdicts, missing, steps = dict(run.seconds), None, None, list[str]()
    with results.output_directory(directory, force) as folder, shown() as progress:
        if cells:
            results.write_rows(cells, folder / CELLS)
        progress("writing labels, annotators and the model", SHARE_FITTED)
        with timed("write", seconds):
            described = describe(run.annotations)
            if isinstance(run.model, HPGM) and not run.annotations.anonymous:
                progress("judging annotators", SHARE_FITTED)
                verdicts = annotator_verdicts(run.annotations, run.model)
                progress("writing labels, annotators and the model", SHARE_FITTED)
            batches = map(arrow_table, run.model.label_batches())
            results.write_csv_chunks(batches, folder / results.LABELS_FILE)
            if not run.annotations.anonymous:
                results.write_csv_chunks([annotator_table(run, verdicts)], folder / ANNOTATORS_FILE)
            run.model.save_draws_apart(folder / MODEL_FILE)
            save_labels(run.annotations, folder)
        if page is not None:
            with timed("report", seconds):
                evidence = {"verdicts": verdicts, "description": described, "held_out": run.held_out}
                settings = {"command": origin["command"], "progress": progress, "run": str(directory)}
                steps, missing = _write_page(run, folder / REPORT, settings | evidence | dict(page))
        people = None if verdicts is None else verdicts.in_words()
        findings = {"people": people, "next_steps": steps, "seconds": seconds, "report_missing": missing}
        return results.write_summary(folder, summary(run, described) | origin | findings)


def write_selection(
    selection: Selection, annotations: Annotations, directory: Path, *, page: Page, **origin: Any
) -> dict[str, Any]:
    """Write the table of a search and its best model, fitted to all labels.

    ``page`` and ``origin`` are arguments of :func:`write_run`.
    """
    seconds = {"search": selection.seconds}
    run = Refinement(annotations, selection.model, "best score of the search", selection.seed, seconds)
    page = None if page is None else {"selection": selection, **page}
    search = {name: value for name, value in selection.to_dict().items() if name != "cells"}
    return write_run(run, directory, **origin, search=search, page=page, cells=selection.rows())


def write_recovery(recovery: Recovery, directory: Path, force: bool, **origin: Any) -> dict[str, Any]:
    """Write the table of a recovery, one row for each model and R, and its summary, all or nothing.

    ``origin`` is added to the summary: the ``command`` and the ``source`` of the labels.
    """
    with results.output_directory(directory, force) as folder:
        results.write_rows(recovery.rows(every=True), folder / "recovery.csv")
        return results.write_summary(folder, {**origin, "recovery": recovery.to_dict()})


def _write_page(run: Refinement, path: Path, settings: Mapping[str, Any]) -> tuple[list[str], str | None]:
    """Write the report and return its next steps, or the reason why it failed: a fit is never lost."""
    from dissensus.report.page import write_report

    limit, needed = current().memory, PROCESS_BYTES + REPORT_BYTES_PER_LABEL * run.annotations.n_labels
    if limit is not None and needed > limit:
        return [], f"it needs about {size_words(needed)} of memory; the limit is {size_words(limit)}"
    settings = {"seed": run.seed, **settings}
    try:
        return write_report(run.annotations, run.model, path, **settings), None
    except Exception as error:
        return [], f"{type(error).__name__}: {error}"


# ---- tables and summary -------------------------------------------------------------------------------


def annotator_table(run: Refinement, verdicts: AnnotatorVerdicts | None = None) -> pa.Table:
    """Return one row for each annotator: verdicts and evidence, or else labels, agreement and bias.

    The columns of the model follow; HPGM's clusters and information are those of the verdicts.
    """
    annotations = run.annotations
    columns: dict[str, Any] = {"annotator": annotations.annotator_vocabulary.arrow}
    columns["n_labels"] = annotations.annotator_load
    if annotations.label_type != "numeric":
        columns["agreement"] = agreement_with_others(annotations) if verdicts is None else verdicts.agreement
        biases = bias_columns(annotations) if verdicts is None else vars(verdicts)
        columns |= {name: biases[name] for name in ("bias_of", "bias", "bias_error")}
    model = run.model
    if verdicts is not None:
        more = {name: values for name, values in verdicts.columns().items() if name not in columns}
        scales = [member for member in getattr(model, "members_", ()) if isinstance(member, GradedResponse)]
        more |= {name: values for scale in scales for name, values in scale.annotator_frame().items()}
    else:
        more = dict(getattr(model, "annotator_frame", dict)())
    return arrow_table(more | columns).select(list(dict.fromkeys([*columns, *more])))


def share_right(run: Refinement) -> float | None:
    """Return the accuracy on labelled items with gold, or None if there are none.

    If gold labels trained the model, each item is predicted by a fit that did not see its gold label.
    """
    if run.gold is not None:
        return run.gold.cross_fitted.value
    items = judged_items(run.annotations)
    if not len(items) or run.annotations.label_type == "numeric":
        return None
    return float(right_rows(run.annotations, run.model.label_distributions_, items).mean())


def summary(run: Refinement, described: Description) -> dict[str, Any]:
    """Return the settings, scores and timings of a run as plain values."""
    convergence, moved = run.model.convergence(), getattr(run.model, "run_difference_", None)
    return {
        "model": name_of(run.model),
        "estimate": run.estimate,
        "reason": run.reason or None,
        "settings": run.model.get_params(deep=False),
        "seed": run.seed,
        "intervals": run.model.intervals_are,
        "stopped": run.model.stopped_,
        "run_difference": None if moved is None or math.isnan(moved) else round(float(moved), 5),
        "convergence": {name: value if math.isfinite(value) else None for name, value in convergence.items()},
        "iterations": len(run.model.trace_),
        "objective": float(run.model.trace_[-1]) if len(run.model.trace_) else None,
        "held_out": [row.as_row() for row in run.held_out],
        "candidates": [row.as_row() for row in run.candidates],
        "gold_accuracy": share_right(run),
        "gold": None if run.gold is None else run.gold.to_dict(),
        "columns": dict(run.annotations.columns_read),
        "data": described.to_dict(),
        "seconds": run.seconds,
    }


# ---- reading back -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SavedRun:
    """A finished run read from its directory."""

    model: Model
    summary: dict[str, Any]  # empty for a model file alone
    cells: list[dict[str, str]] | None  # table of a search
    labels: Any = None  # Annotations, if available

    def evidence(self) -> dict[str, Any]:
        """Return arguments of :func:`dissensus.write_report` beside the labels and the model."""
        defaults = {"seed": 0, "command": ""}
        settings = {name: self.summary.get(name, default) for name, default in defaults.items()}
        return {"held_out": self.summary.get("held_out") or (), "selection": self.cells, **settings}


Read = Callable[..., Annotations]  # reads a file, with settings as keywords


def is_run(path: Path) -> bool:
    """Return whether the path is the directory of a finished run or a saved model."""
    return path.suffix == MODEL_SUFFIX or results.is_result_directory(path)


def load_run(path: Path) -> SavedRun:
    """Load the directory of a run, or a saved model alone."""
    from dissensus.text.guided import load_model

    restore(path)
    if not is_run(path):
        raise DataError(f"{path}: not a run or a saved model; fit the labels first: dissensus fit {path}")
    if not path.is_dir():
        return SavedRun(load_model(path), {}, None)
    saved, table = results.read_summary(path), path / CELLS
    if not (path / MODEL_FILE).is_file():
        raise DataError(f"{path}: has no fitted model; name a directory written by fit or select")
    cells = results.read_rows(table) if table.is_file() else None
    return SavedRun(load_model(path / MODEL_FILE), saved, cells)


def open_labels(path: Path, read: Read, *, items: Any = None, annotators: Any = None) -> Annotations:
    """Return the labels of a file or a finished run, joined with the given tables."""
    if is_run(path) and (path.is_file() or not (path / ROWS_FILE).is_file()):
        model = load_run(path).model
        if not isinstance(model, HPGM):
            raise DataError(f"{path}: the run did not save its labels; name the file of labels")
        labels = model.training_labels()
        return with_side_tables(labels, items, annotators, None, ("item", "annotator"), False)
    tables = {"items": items, "annotators": annotators}
    return read(path, **{name: table for name, table in tables.items() if table is not None})


def open_run(
    path: Path,
    read: Read,
    file: Path | None = None,
    *,
    items: Any = None,
    annotators: Any = None,
    draws: bool = False,
    seed: int = 0,
    n_jobs: int = -1,
) -> SavedRun:
    """Load a run and its labels, which may be in ``file``; or fit a model to a file of labels.

    With ``draws``, the model is one that plans and verdicts can use: if the run's model has no posterior
    draws, HPGM is fitted to its labels.
    """
    read_file = read if file is None else partial(read, like=reading_of(path))
    labels = open_labels(file or path, read_file, items=items, annotators=annotators)
    if file is None and not is_run(path):
        return SavedRun(posterior_of(labels, seed, n_jobs), {}, None, labels)
    saved = load_run(path)
    if draws and not isinstance(saved.model, HPGM) and labels.label_type != "numeric":
        saved = replace(saved, model=posterior_of(labels, seed, n_jobs))
    return replace(saved, labels=labels)


def posterior_of(labels: Annotations, seed: int = 0, n_jobs: int = -1) -> Model:
    """Fit the default model, or HPGM where the default is another one without draws that plans can use."""
    model, _ = default_model(labels, {}, seed, n_jobs)
    usable = isinstance(model, HPGM) or labels.label_type == "numeric" or labels.anonymous
    return (model if usable else HPGM(seed=seed, n_jobs=n_jobs)).fit(labels)


def reading_of(path: Path) -> dict[str, Any]:
    """Return the settings that the labels of a run were read with, or an empty dict."""
    settings = results.read_summary(path).get("reading") if results.is_result_directory(path) else None
    return settings if isinstance(settings, dict) else {}


def annotators_of(path: Path, read: Read, *, seed: int = 0, n_jobs: int = -1) -> tuple[dict[str, Any], str]:
    """Return the table of annotators by column, and whom to talk to first and the groups in words.

    They are read from a finished run, computed from its draws, or from a fit to the labels.
    """
    saved = read_verdicts(path)
    if saved is not None:
        return saved
    run = open_run(path, read, draws=True, seed=seed, n_jobs=n_jobs)
    if run.labels.anonymous:
        raise DataError(f"{path}: has counts of labels, without annotators; use a file of single labels")
    if run.labels.label_type == "numeric":
        return annotator_table(Refinement(run.labels, run.model, "", seed)).to_pydict(), ""
    verdicts = annotator_verdicts(run.labels, run.model)
    return verdicts.columns(), verdicts.in_words()


# ---- updates ------------------------------------------------------------------------------------------


def update_run(
    path: Path, new: Annotations, directory: Path | None = None, *, page: Page = None, **origin: Any
) -> dict[str, Any]:
    """Add labels to a finished run; replace the run, or write ``directory``.

    The chains of HPGM continue from their last states; any other model, or one with item features, is fitted
    again to all labels. Held-out scores of the old run, which belong to fewer labels, are left out. ``page``
    and ``origin`` are arguments of :func:`write_run`.
    """
    saved = load_run(path)
    directory = path if directory is None else directory
    if not path.is_dir() and directory == path:
        raise DataError(f"{path}: is a saved model, not a run; name an output directory")
    results.check_output(directory)
    old = open_labels(path, provided("read_annotations"))
    seed = saved.summary.get("seed", getattr(saved.model, "seed", 0))
    estimate = saved.summary.get("estimate", "population")
    new = unseen_labels(path, old, new)
    if old.label_type == "numeric":  # new ratings may be new numbers
        codes, numbers = old.class_vocabulary.extended(new.class_vocabulary)
        old = replace(old, label=codes[old.label], class_vocabulary=numbers)
    both = _with_both_tables(join_labels(old, recode_classes(new, old.class_vocabulary)), old, new)
    if isinstance(saved.model, HPGM) and saved.model.can_continue:
        seconds: dict[str, float] = {}
        with timed("update", seconds), shown() as progress, fit_shown(saved.model, progress):
            model = saved.model.update(new)
        run = Refinement(both, model, "", seed, seconds, estimate)
    else:
        parameters = saved.model.get_params(deep=False)
        settings = {name: value for name, value in parameters.items() if name not in RUN_SETTINGS}
        run = fit(both, name_of(saved.model), settings, estimate=estimate, seed=seed)
    updated = {
        "from": saved.summary.get("source", str(path)),
        "n_labels": old.n_labels,
        "new_items": int((old.item_vocabulary.codes(new.item_vocabulary) < 0).sum()),
        "new_annotators": int((old.annotator_vocabulary.codes(new.annotator_vocabulary) < 0).sum()),
    }
    return write_run(run, directory, **origin, reading=reading_of(path), updated=updated, page=page)


def _with_both_tables(both: Annotations, old: Annotations, new: Annotations) -> Annotations:
    """Attach the tables and gold of the old and the new labels; where both have a row, the old one counts."""
    tables: dict[str, Any] = {}
    gold: dict[Any, Any] = {}
    for labels in (new, old):
        if labels.gold is not None:
            items = np.flatnonzero(labels.gold >= 0)
            gold |= dict(zip(labels.items[items], labels.classes[labels.gold[items]], strict=True))
    if gold:
        tables["gold"] = {"item": list(gold), "label": list(gold.values())}
    for key in ("item", "annotator"):
        parts = [table for labels in (old, new) if (table := getattr(labels, f"{key}_table")) is not None]
        if parts:
            named = [table.rename_columns([key, *table.column_names[1:]]) for table in parts]
            merged = pa.concat_tables(named, promote_options="permissive")
            _, first = np.unique(merged.column(0).to_numpy(zero_copy_only=False), return_index=True)
            tables[f"{key}s"] = merged.take(pa.array(np.sort(first)))
    return both.with_tables(**tables) if tables else both


def unseen_labels(path: Path, learned: Annotations, new: Annotations) -> Annotations:
    """Return the labels that the run does not have yet; reject them if the run is anonymous, or has all."""
    if is_pseudonymous(learned) and not may_be_pseudonyms(new):
        problem = "the run is anonymous, so new labels cannot be matched with its annotators"
        raise DataError(f"{path}: {problem}; fit the old and the new labels together")
    return without_repeated(learned, new, "the run")
