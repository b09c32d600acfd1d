"""What a fit found, written into a directory; a finished run read back, and continued with more labels.

::

    labels.csv          item, label, p_<class> for every class, entropy, n_labels
    annotators.csv      annotator, n_labels, agreement with the others, and what the model knows of them
    model.safetensors   the fitted model; dissensus.load reads it
    draws.safetensors   of a sampled model: draws, the chains' last states and the labels, to go on from
    report.html         one self-contained page to look at, unless it is not wanted
    summary.json        settings, seed, versions, data, held-out scores, timings, the command

A finished search has its table beside them (cells.csv, best first) and the record from which the same command
goes on after a kill (search.jsonl); a measured recovery has recovery.csv and summary.json. A directory
appears whole or not at all, and replaces nothing but an earlier result.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.annotators.pseudonyms import pseudonymous
from dissensus.annotators.verdicts import ANNOTATORS, read_verdicts
from dissensus.engine import current
from dissensus.errors import DataError
from dissensus.evaluate.gold import judged_items, right_rows
from dissensus.labels.annotations import Annotations
from dissensus.labels.description import Description, describe
from dissensus.labels.rows import joined
from dissensus.labels.sources import provided
from dissensus.labels.vocabulary import arrow_table
from dissensus.models import RUN_SETTINGS, build_model, name_of
from dissensus.models.base import Model
from dissensus.models.confusion import ConfusionModel, gold_prior
from dissensus.models.hpgm.model import HPGM
from dissensus.models.scoring import in_classes
from dissensus.params import PROCESS_BYTES, size_words
from dissensus.progress import shown
from dissensus.tables.atomic import restore
from dissensus.tables.labels_file import LABELS_FILE
from dissensus.tables.layouts import with_side_tables
from dissensus.tables.results import (
    check_output,
    is_ours,
    output_directory,
    read_summary,
    write_pieces,
    write_rows,
    write_summary,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from dissensus.annotators.verdicts import AnnotatorVerdicts
    from dissensus.evaluate.recovery import Recovery
    from dissensus.evaluate.select import Selection

from dissensus.workflow.refine import BY_REPRESENT, FITTED, TEST_SIZE, Refinement, fit, fit_told, timed
from dissensus.workflow.run_labels import ROWS, save_labels

LABELS, MODEL, REPORT = LABELS_FILE, "model.safetensors", "report.html"
CELLS, MODEL_SUFFIX = "cells.csv", ".safetensors"
PAGE_BYTES = 100  # a label, about, to make the page


# ---- writing ------------------------------------------------------------------------------------------


def write_run(
    run: Refinement,
    directory: Path,
    *,
    command: str = "",
    source: str = "",
    reading: Mapping[str, Any] | None = None,
    force: bool = False,
    page: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
    cells: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Write the run's files, all or none, and give back its summary.

    ``reading`` is how the labels were read, for those that join later. ``page`` are settings of
    :func:`dissensus.write_report` (an empty mapping does); None: no page. ``more`` joins the summary;
    ``cells`` are the table of a search.
    """
    seconds, found, missing, steps = dict(run.seconds), None, None, list[str]()
    with output_directory(directory, force) as folder, shown() as tell:
        if cells:
            write_rows(cells, folder / CELLS)
        tell("writing labels, annotators and the model", FITTED)
        with timed("write", seconds):
            described = describe(run.annotations)
            if isinstance(run.model, HPGM) and not run.annotations.anonymous:  # its draws know the annotators
                from dissensus.annotators.verdicts import annotator_verdicts

                tell("judging annotators", FITTED)
                found = annotator_verdicts(run.annotations, run.model)
                tell("writing labels, annotators and the model", FITTED)
            write_pieces(map(arrow_table, run.model.label_pieces()), folder / LABELS)
            if not run.annotations.anonymous:
                write_pieces([annotator_table(run, found)], folder / ANNOTATORS)
            run.model.save_apart(folder / MODEL)
            save_labels(run.annotations, folder)
        if page is not None:
            with timed("report", seconds):
                known = {"verdicts": found, "description": described, "held_out": run.held_out}
                settings = {"command": command, "progress": tell, "run": str(directory), **known, **page}
                steps, missing = _write_page(run, folder / REPORT, settings)
        notice = {"command": command, "source": source, "reading": dict(reading or {}), **(more or {})}
        views = None if found is None else found.in_words()
        later = {"views": views, "next_steps": steps, "seconds": seconds, "report_missing": missing}
        return write_summary(folder, summary(run, described) | notice | later)


def write_selection(
    selection: Selection,
    annotations: Annotations,
    directory: Path,
    *,
    command: str,
    source: str,
    reading: Mapping[str, Any],
    page: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Write a search's table and its winner, fitted to all labels; otherwise as :func:`write_run`."""
    took = {"search": selection.seconds}
    run = Refinement(annotations, selection.model, [], "the best cell of the search", selection.seed, took)
    found = {key: value for key, value in selection.to_dict().items() if key != "cells"}
    return write_run(
        run,
        directory,
        command=command,
        source=source,
        reading=reading,
        page=None if page is None else {"held_out": None, "selection": selection, **page},
        more={"search": found},
        cells=selection.rows(),
    )


def write_recovery(
    recovery: Recovery, directory: Path, *, command: str = "", source: str = "", force: bool = False
) -> dict[str, Any]:
    """Write a recovery's table, a row for every model and R, and everything behind it, all or none."""
    with output_directory(directory, force) as folder:
        write_rows(recovery.rows(every=True), folder / "recovery.csv")
        content = {"command": command, "source": source, "recovery": recovery.to_dict()}
        return write_summary(folder, content)


def _write_page(run: Refinement, path: Path, settings: Mapping[str, Any]) -> tuple[list[str], str | None]:
    """Write the page and return its first sentences; or why there is none, which must not cost the fit."""
    from dissensus.report.page import write_report

    allowed, needed = current().memory, PROCESS_BYTES + PAGE_BYTES * run.annotations.n_labels
    if allowed is not None and needed > allowed:
        return [], f"it takes some {size_words(needed)} of memory, and {size_words(allowed)} are allowed"
    settings = {"seed": run.seed, "test_size": run.test_size, **settings}
    try:
        return write_report(run.annotations, run.model, path, **settings), None
    except Exception as error:
        return [], f"{type(error).__name__}: {error}"


# ---- what is written ----------------------------------------------------------------------------------


def annotator_table(run: Refinement, found: AnnotatorVerdicts | None = None) -> pa.Table:
    """One row for each annotator: labels, agreement, what the model knows of them, verdicts."""
    from dissensus.annotators.verdicts import bias_columns
    from dissensus.labels.agreement import agreement_with_others

    annotations = run.annotations
    columns: dict[str, Any] = {
        "annotator": annotations.annotator_vocabulary.arrow,
        "n_labels": annotations.annotator_load,
    }
    if annotations.label_type != "numeric":
        columns["agreement"] = agreement_with_others(annotations)
        # which answer each gives more or less often than the others, or how much higher grades
        if found is not None:
            columns |= {name: getattr(found, name) for name in ("bias_of", "bias", "bias_error")}
        else:
            columns |= bias_columns(annotations)
    if run.estimate == "truth" and isinstance(run.model, ConfusionModel):
        from dissensus.annotators.skill import annotator_skills

        prior = gold_prior(annotations) if run.gold is not None else None
        columns |= annotator_skills(annotations, run.model, prior=prior, seed=run.seed).columns()
    known: dict[str, Any] = dict(getattr(run.model, "annotator_frame", dict)())
    if found is not None:  # its information allows for spam, the model's own does not
        known = {name: values for name, values in known.items() if not name.startswith("model_information")}
        known |= {name: values for name, values in found.columns().items() if name not in columns | known}
    return arrow_table(known | columns).select(list(dict.fromkeys([*columns, *known])))


def share_right(run: Refinement) -> float | None:
    """Share of the items with labels and gold that get their gold class; None where there are none.

    Where gold trained the model, each item is judged by a fit that did not see it.
    """
    if run.gold is not None:
        return run.gold.cross_fitted.value
    items = judged_items(run.annotations)
    if not len(items) or run.annotations.label_type == "numeric":
        return None
    return float(right_rows(run.annotations, run.model.label_distributions_, items).mean())


def summary(run: Refinement, described: Description) -> dict[str, Any]:
    """Everything needed to know what was done, as plain values."""
    found, chosen_by = run.model.convergence(), "represent" if run.reason else "name"
    if run.reason not in ("", BY_REPRESENT):
        chosen_by = "bounds" if run.estimate == "truth" else "held-out likelihood"
    return {
        "model": name_of(run.model),
        "estimate": run.estimate,
        "chosen_by": chosen_by,
        "reason": run.reason or None,
        "settings": run.model.get_params(deep=False),
        "seed": run.seed,
        "intervals": run.model.intervals_are,
        "stopped": run.model.stopped_,
        "convergence": {name: value if math.isfinite(value) else None for name, value in found.items()},
        "iterations": len(run.model.trace_),
        "objective": float(run.model.trace_[-1]) if len(run.model.trace_) else None,
        "held_out": [row.as_row() for row in run.held_out],
        "test_size": run.test_size,
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
    """A finished run read back: its model and, where they are known, labels, summary and search table."""

    model: Model
    summary: dict[str, Any]  # empty where there is only a model
    cells: list[dict[str, str]] | None  # of a search
    labels: Any = None  # Annotations, where they are known

    def evidence(self) -> dict[str, Any]:
        """What the page shows beside the model, by the names of :func:`dissensus.write_report`."""
        known = {"seed": 0, "command": "", "test_size": TEST_SIZE}
        same = {name: self.summary.get(name, usual) for name, usual in known.items()}
        return {"held_out": self.summary.get("held_out") or None, "selection": self.cells, **same}


Read = Callable[..., Annotations]  # reads a file, with settings by keyword


def is_run(place: Path) -> bool:
    """Whether it is a finished run's directory or a saved model, and no file of labels."""
    return place.suffix == MODEL_SUFFIX or is_ours(place)


def load_run(place: Path) -> SavedRun:
    """Read back a run's directory, or a model file alone."""
    from dissensus.text.guided.files import load_model

    restore(place)
    if not is_run(place):
        raise DataError(f"{place}: is no run and no saved model; fit the labels first: dissensus fit {place}")
    if not place.is_dir():
        return SavedRun(load_model(place), {}, None)
    known, cells = read_summary(place), None
    if not (place / MODEL).is_file():
        raise DataError(f"{place}: holds no fitted model; name the directory that fit or select wrote")
    if (place / CELLS).is_file():
        with (place / CELLS).open(newline="", encoding="utf-8") as file:
            cells = list(csv.DictReader(file))
    return SavedRun(load_model(place / MODEL), known, cells)


def open_labels(place: Path, read: Read, *, items: Any = None, annotators: Any = None) -> Annotations:
    """The labels of a file, or those that a finished run keeps, with these tables joined."""
    if is_run(place) and (place.is_file() or not (place / ROWS).is_file()):
        model = load_run(place).model
        if not isinstance(model, HPGM):
            raise DataError(f"{place}: does not keep its labels; name their file")
        labels = model.training_labels()
        return with_side_tables(labels, items, annotators, None, ("item", "annotator"), False)
    sides = {"items": items, "annotators": annotators}
    return read(place, **{name: table for name, table in sides.items() if table is not None})


def open_run(
    place: Path,
    read: Read,
    file: Path | None = None,
    *,
    items: Any = None,
    annotators: Any = None,
    draws: bool = False,
    seed: int = 0,
    n_jobs: int = -1,
) -> SavedRun:
    """A run and its labels, those of ``file`` or those it keeps; of a file of labels, a fit to them.

    With ``draws`` the model is one that plans and verdicts can be taken from: where the run's own keeps no
    draws, HPGM is fitted to its labels.
    """
    if file is None:
        labels = open_labels(place, read, items=items, annotators=annotators)
    else:
        sides = {"items": items, "annotators": annotators}
        given = {name: table for name, table in sides.items() if table is not None}
        labels = read(file, like=reading_of(place), **given)
    saved = load_run(place) if file is not None or is_run(place) else None
    model = None if saved is None else saved.model
    if model is None or (draws and not isinstance(model, HPGM) and labels.label_type != "numeric"):
        model = posterior_of(labels, seed, n_jobs)
    return SavedRun(model, saved.summary if saved else {}, saved.cells if saved else None, labels)


def posterior_of(labels: Annotations, seed: int = 0, n_jobs: int = -1) -> Model:
    """Fit the model whose draws verdicts and plans come from; another where labels do not allow it."""
    if labels.label_type == "numeric":
        return build_model("ratings", {}, seed=seed).fit(labels)
    if labels.anonymous:
        return fit(labels, fast=True, seed=seed, n_jobs=n_jobs).model
    return HPGM(seed=seed, n_jobs=n_jobs).fit(labels)


def reading_of(place: Path) -> dict[str, Any]:
    """The settings that the labels of a run were read with; empty where nothing was said of it."""
    kept = read_summary(place).get("reading") if is_ours(place) else None
    return kept if isinstance(kept, dict) else {}


def people_of(place: Path, read: Read, *, seed: int = 0, n_jobs: int = -1) -> tuple[dict[str, Any], str]:
    """Columns of what is known of each annotator, and the number of views in words.

    They are those that a finished run keeps, or come from its draws, or from a fit to the labels.
    """
    kept = read_verdicts(place)
    if kept is not None:
        return kept
    run = open_run(place, read, draws=True, seed=seed, n_jobs=n_jobs)
    if run.labels.anonymous:
        raise DataError(f"{place}: its labels are counts, which do not say who gave them; give labels")
    if run.labels.label_type == "numeric":
        table = annotator_table(Refinement(run.labels, run.model, [], "", seed))
        return {name: table[name].to_pylist() for name in table.column_names}, ""
    from dissensus.annotators.verdicts import annotator_verdicts

    found = annotator_verdicts(run.labels, run.model)
    return found.columns(), found.in_words()


# ---- labels over time ---------------------------------------------------------------------------------


def update_run(
    place: Path,
    new: Annotations,
    directory: Path | None = None,
    *,
    command: str = "",
    source: str = "",
    page: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Add labels to a finished run; the run is replaced, or ``directory`` written.

    The chains of HPGM go on from where they ended; any other model, and one with features of the items, is
    fitted to all labels again. What the old run was compared by belongs to fewer labels and is left out.
    """
    saved = load_run(place)
    directory = place if directory is None else directory
    if not place.is_dir() and directory == place:
        raise DataError(f"{place}: is a model without a run; name a directory to write")
    check_output(directory)
    old = open_labels(place, provided("read_annotations"))
    before, seconds = old.n_labels, dict[str, float]()
    known = {name: saved.summary[name] for name in ("seed", "estimate") if name in saved.summary}
    seed, estimate = known.get("seed", getattr(saved.model, "seed", 0)), known.get("estimate", "population")
    _refuse_update(place, old, new)
    if old.label_type == "numeric":  # ratings may be numbers that nobody gave before
        codes, numbers = old.class_vocabulary.extended(new.class_vocabulary)
        old = replace(old, label=codes[old.label], class_vocabulary=numbers)
    both = _with_both_tables(joined(old, in_classes(new, old.class_vocabulary)), old, new)
    if isinstance(saved.model, HPGM) and saved.model.can_continue:
        with timed("update", seconds), shown() as tell, fit_told(saved.model, 0.0, tell):
            model = saved.model.update(new)
        run = Refinement(both, model, [], "", seed, seconds, estimate=estimate)
    else:
        given = saved.model.get_params(deep=False)
        settings = {name: value for name, value in given.items() if name not in RUN_SETTINGS}
        run = fit(both, name_of(saved.model), settings, estimate=estimate, seed=seed, test_size=0)
    fresh = {
        "new_items": int((old.item_vocabulary.codes(new.item_vocabulary) < 0).sum()),
        "new_annotators": int((old.annotator_vocabulary.codes(new.annotator_vocabulary) < 0).sum()),
    }
    updated = {"from": saved.summary.get("source", str(place)), "n_labels": before, **fresh}
    return write_run(
        run,
        directory,
        command=command,
        source=source,
        reading=reading_of(place),
        page=page,
        more={"updated": updated},
    )


def _with_both_tables(both: Annotations, old: Annotations, new: Annotations) -> Annotations:
    """The labels with the side tables and gold of the old and the new ones, rows of the old first."""
    import pyarrow as pa

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
            parts = [part.rename_columns([key, *part.column_names[1:]]) for part in parts]
            merged = pa.concat_tables(parts, promote_options="permissive")
            _, first = np.unique(merged.column(0).to_numpy(zero_copy_only=False), return_index=True)
            tables[f"{key}s"] = merged.take(pa.array(np.sort(first)))
    return both.with_tables(**tables) if tables else both


def _refuse_update(place: Path, learned: Annotations, new: Annotations) -> None:
    """New labels that cannot be told apart from the run's own, or not be matched with its annotators."""
    if pseudonymous(learned) and not pseudonymous(new):
        raise DataError(
            f"{place}: its annotators have numbers for names, so that new labels of theirs would count as "
            "others'; fit the old and the new labels together"
        )
    # (new labels,): whether the run has one of the same item, annotator and class
    item = learned.item_vocabulary.codes(new.item_vocabulary)[new.item].astype(np.int64)
    annotator = learned.annotator_vocabulary.codes(new.annotator_vocabulary)[new.annotator]
    label = learned.class_vocabulary.codes(new.class_vocabulary)[new.label]
    N, P = learned.n_annotators, learned.n_classes
    known = (learned.item.astype(np.int64) * N + learned.annotator) * P + learned.label
    met = (item >= 0) & (annotator >= 0) & (label >= 0)
    again = met & np.isin((item * N + annotator) * P + label, known)
    if len(again) and again.all():
        raise DataError(f"{place}: has all {len(again):,} labels already; there is nothing to add")
