"""One whole job: choose a model, fit it, and write what it found into a directory.

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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dissensus.annotators.kept import ANNOTATORS
from dissensus.annotators.pseudonyms import pseudonymous
from dissensus.data.annotations import Annotations
from dissensus.data.rows import pairs_per_item
from dissensus.data.vocabulary import arrow_table
from dissensus.errors import DataError, ParameterError, bad_parameter
from dissensus.evaluation.gold import GoldAccuracy, gold_accuracy, judged_items, right_rows
from dissensus.execution.progress import Progress, ShowProgress, shown
from dissensus.execution.resources import current, using
from dissensus.io.read import with_side_tables
from dissensus.io.results import (
    check_output,
    is_ours,
    output_directory,
    read_summary,
    write_csv,
    write_pieces,
    write_summary,
)
from dissensus.models import MODELS, build_model, model_class, name_of, title_of
from dissensus.models.base import Model
from dissensus.models.confusion import ConfusionModel, gold_prior
from dissensus.models.hpgm.model import HPGM
from dissensus.params import PROCESS_BYTES, check_rules, choice, size_words
from dissensus.selection.compare import (
    CANDIDATES,
    FAST_CANDIDATES,
    MANY_CLASSES,
    RATING_CANDIDATES,
    THOROUGH_CANDIDATES,
    Choice,
    HeldOut,
    choose_model,
    compare,
)
from dissensus.selection.truth import Candidate, TruthChoice, choose_truth

if TYPE_CHECKING:
    import pyarrow as pa

    from dissensus.annotators.verdicts import AnnotatorVerdicts
    from dissensus.evaluation.recovery import Recovery
    from dissensus.selection.results import Selection

LABELS, MODEL, REPORT = "labels.csv", "model.safetensors", "report.html"
CELLS = "cells.csv"
QUESTIONS = {"estimate": choice("population", "annotators", "truth")}
TEST_SIZE = 0.2  # share of the (item, annotator) pairs that is hidden to judge models by
COMPARED, FITTED = 0.9, 0.95  # shares of the work that are behind after the comparison and after the fit
YARDSTICK_OF_NUMBERS = RATING_CANDIDATES[-1]
REPRESENTING = "hpgm"  # the model that can estimate the population of some of the annotators
YARDSTICK = "empirical"  # every model's held-out score stands beside the smoothed counts'
WIDE_TABLES = 12  # tables of (items, classes) at once while a result and its page are made, as measured
FREE_TEXT, MEANT_AS_CLASS = 200, 5  # different labels, and how often each should occur at least
PAGE_BYTES = 100  # a label, about, to make the page


@dataclass(frozen=True)
class Refinement:
    """A fitted model with the evidence for it."""

    annotations: Annotations
    model: Model
    held_out: list[HeldOut]
    reason: str  # why it is this model; empty where it was named
    seed: int
    seconds: dict[str, float] = field(default_factory=dict)
    test_size: float = TEST_SIZE
    estimate: str = "population"  # the question: the population's answer, known annotators', or the truth
    candidates: list[Candidate] = field(default_factory=list)  # that the truth's model was chosen among
    gold: GoldAccuracy | None = None  # how right it is, where gold trained it

    @property
    def chosen(self) -> bool:
        """Was the model chosen by hidden labels?"""
        return bool(self.reason)


# ---- choosing and fitting -----------------------------------------------------------------------------


def refine(
    annotations: Annotations,
    model: str = "auto",
    settings: Mapping[str, Any] | None = None,
    *,
    estimate: str = "population",
    represent: Mapping[str, Any] | None = None,
    fast: bool = False,
    thorough: bool = False,
    seed: int = 0,
    n_jobs: int = -1,
    test_size: float = TEST_SIZE,
    progress: ShowProgress = None,
) -> Refinement:
    """Fit the named model to all labels, or the one that best predicts hidden ones (``"auto"``).

    ``estimate`` is the question: what the ``"population"`` would answer about an item, or known
    ``"annotators"``; models are compared by the answer asked for. Or which class is right, ``"truth"``: then
    gold labels train too, and ``"auto"`` is :func:`dissensus.choose_truth`. ``fast`` leaves sampled models
    out: seconds instead of minutes, but no intervals. ``represent`` says whose population it is, by a column
    of the annotator table: ``{"kind": "human"}``; ``"auto"`` then takes the model that can (hpgm), and
    hidden labels are those of the annotators represented. ``test_size`` is the share of (item, annotator)
    pairs hidden for the comparison; 0 leaves it out for a named model.

    Parameters
    ----------
    annotations
        The labels.
    model
        Name of a model, or ``"auto"``.
    settings
        Settings of a named model.
    estimate
        The question: ``"population"``, ``"annotators"`` or ``"truth"``.
    represent
        Whose population it is, by columns of the annotator table.
    fast
        Whether sampled models are left out.
    thorough
        Whether latent positions, often the best predictor and by far the slowest, are tried too.
    seed
        Seed of all that is random. The same seed gives the same bits.
    n_jobs
        Threads; −1 takes all cores. The result does not depend on it.
    test_size
        Share of the (item, annotator) pairs that is hidden for the comparison.
    progress
        True or False, a function that is told (what, share done), or None: a bar on a terminal.
    """
    if not 0 <= test_size < 1:
        raise bad_parameter("refine", "test_size", "a float >= 0 and < 1", test_size)
    check_rules("refine", QUESTIONS, estimate=estimate)
    if model == "auto":
        _refuse_unanswerable(annotations, estimate)
    _refuse_wide(annotations)
    if model == "auto" and settings:
        raise ParameterError(f"{', '.join(settings)}: name the model= that should take this")
    if represent:
        if estimate != "population":
            raise ParameterError("represent= says whose population is estimated; leave estimate= out")
        model = REPRESENTING if model == "auto" else model
        settings = {**(settings or {}), "represent": dict(represent)}
    if estimate == "truth" and annotations.label_type == "numeric":
        raise bad_parameter("refine", "estimate", "'population' or 'annotators' for numeric labels", estimate)
    if estimate == "truth":
        return _refine_truth(annotations, model, settings or {}, seed, n_jobs, progress)
    seconds: dict[str, float] = {}
    with shown(progress) as tell:
        with _timed("compare", seconds):
            question = {"estimate": estimate, "candidates": _candidates(fast, thorough)}
            choice = _decide(annotations, model, settings or {}, question, seed, n_jobs, test_size, tell)
        with _timed("fit", seconds), _fit_told(choice.model, COMPARED if choice.table else 0.0, tell):
            fitted = choice.model.fit(annotations)
    hidden = test_size or TEST_SIZE
    return Refinement(annotations, fitted, choice.table, choice.reason, seed, seconds, hidden, estimate)


def _refine_truth(
    annotations: Annotations,
    name: str,
    settings: Mapping[str, Any],
    seed: int,
    n_jobs: int,
    progress: ShowProgress,
) -> Refinement:
    """One true class an item: the default or the named model, gold as evidence, cross-fitted accuracy."""
    judged, seconds = len(judged_items(annotations)), dict[str, float]()
    given = gold_prior(annotations) if judged else None
    with _timed("fit", seconds):
        if name == "auto":
            choice = choose_truth(annotations, seed, item_prior=given, n_jobs=n_jobs, progress=progress)
        else:
            model: Any = build_model(name, settings, seed=seed, n_jobs=n_jobs, estimate="truth")
            _check_finds_truth(model)
            choice = TruthChoice(model.fit(annotations, item_prior=given), [], "")
    with _timed("gold", seconds):
        gold = gold_accuracy(choice.model, annotations, seed=seed) if judged else None
    return Refinement(
        annotations,
        choice.model,
        [],
        choice.reason,
        seed,
        seconds,
        estimate="truth",
        candidates=choice.table,
        gold=gold,
    )


def _check_finds_truth(model: Model) -> None:
    if not model.finds_truth:
        known = [name for name in MODELS if model_class(name).finds_truth]
        raise ParameterError(
            f"{name_of(model)} knows no true class, only what a population answers; "
            f"for estimate='truth' take one of: {', '.join(known)}"
        )


def _refuse_unanswerable(annotations: Annotations, estimate: str) -> None:
    """Labels of which nobody can ask how people disagree."""
    several = annotations.label_type != "pairwise" and annotations.n_labels > 1
    if several and not annotations.anonymous and annotations.n_annotators == 1:
        raise DataError(
            f"all labels are by one annotator ({annotations.annotators[0]!r}), and nobody can disagree here; "
            "add labels by others, name another annotator=, or name the model= to fit all the same"
        )
    if several and estimate != "truth" and int(pairs_per_item(annotations).max()) < 2:
        raise DataError(
            "no item has labels by two annotators, and nobody can disagree here; add second labels, of some "
            "items at least, or name the model= to fit all the same"
        )
    P, free = annotations.n_classes, annotations.label_type == "nominal"
    if free and P >= FREE_TEXT and annotations.n_labels < P * MEANT_AS_CLASS:
        raise DataError(
            f"{P:,} different labels among {annotations.n_labels:,} look like free text, not classes; group "
            "them first, name another label=, or name the model= to fit all the same"
        )


def _candidates(fast: bool, thorough: bool) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """The candidates for ``"auto"``; those that suit other labels than classes are chosen later."""
    if fast and thorough:
        raise ParameterError("fast= and thorough= exclude each other; leave one out")
    if fast:
        return FAST_CANDIDATES
    return THOROUGH_CANDIDATES if thorough else CANDIDATES


def _refuse_wide(annotations: Annotations) -> None:
    """So many classes that the tables of a result alone take more memory than is allowed."""
    M, P = annotations.n_items, annotations.n_classes
    allowed, least = current().memory, PROCESS_BYTES + WIDE_TABLES * 8 * M * P
    if P > MANY_CLASSES and annotations.label_type != "numeric" and allowed is not None and least > allowed:
        raise DataError(
            f"{M:,} items with {P:,} classes need {size_words(least)} of memory, and {size_words(allowed)} "
            "are allowed; allow as much with memory=, or group the classes first"
        )


def _decide(
    annotations: Annotations,
    name: str,
    settings: Mapping[str, Any],
    question: Mapping[str, Any],
    seed: int,
    n_jobs: int,
    test_size: float,
    tell: Progress,
) -> Choice:
    """The model to fit to all labels, and how it and others predicted hidden ones."""

    def comparing(what: str, share: float) -> None:
        tell(what, COMPARED * share)

    shared: dict[str, Any] = {"test_size": test_size or TEST_SIZE, "n_jobs": n_jobs, "progress": comparing}
    if name == "auto":
        return choose_model(annotations, seed, **question, **shared)
    wanted = build_model(name, settings, seed=seed, n_jobs=n_jobs)
    if not test_size:
        return Choice(wanted, [], "")
    yardstick = YARDSTICK_OF_NUMBERS if annotations.label_type == "numeric" else (YARDSTICK, {})
    rivals = [wanted] if name == YARDSTICK else [wanted, build_model(*yardstick)]
    # One after the other: the counts take no time, and the model has all threads.
    whose = {"represent": settings.get("represent"), "n_jobs": 1}
    return Choice(wanted, compare(annotations, rivals, seed, **shared | whose), "")


@contextmanager
def _fit_told(model: Model, behind: float, tell: Progress) -> Iterator[None]:
    """Tell of a fit inside the block: its iterations are what is left of the work."""
    used, what = current(), f"fitting {title_of(model)} to all labels"
    tell(what, behind)
    with shown(used.progress) as tell_iteration:

        def both(words: str, share: float) -> None:
            tell(what, behind + (FITTED - behind) * share)
            tell_iteration(words, share)

        with using(replace(used, progress=both)):
            yield


@contextmanager
def _timed(what: str, seconds: dict[str, float]) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[what] = round(time.perf_counter() - started, 3)


# ---- writing ------------------------------------------------------------------------------------------


def write_run(
    run: Refinement,
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
    looks = None if page is None else {"held_out": run.held_out, "run": str(directory), **page}
    with output_directory(directory, force) as folder, shown(progress) as tell:
        return _write_fit(run, folder, {"command": command, "source": source}, looks, tell)


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
    """Write a search's table and its winner, fitted to all labels; otherwise as :func:`write_run`."""
    took = {"search": selection.seconds}
    run = Refinement(annotations, selection.model, [], "the best cell of the search", selection.seed, took)
    found = {key: value for key, value in selection.to_dict().items() if key != "cells"}
    looks = (
        None if page is None else {"held_out": None, "selection": selection, "run": str(directory), **page}
    )
    notice = {"command": command, "source": source, "search": found}
    with output_directory(directory) as folder, shown(progress) as tell:
        write_csv(selection.to_frame(), folder / CELLS)
        return _write_fit(run, folder, notice, looks, tell)


def write_recovery(
    recovery: Recovery, directory: Path, *, command: str = "", source: str = "", force: bool = False
) -> dict[str, Any]:
    """Write a recovery's table, a row for every model and R, and everything behind it, all or none."""
    with output_directory(directory, force) as folder:
        write_csv(recovery.to_frame(every=True), folder / "recovery.csv")
        content = {"command": command, "source": source, "recovery": recovery.to_dict()}
        return write_summary(folder, content)


def _write_fit(
    run: Refinement, folder: Path, notice: Mapping[str, Any], looks: Mapping[str, Any] | None, tell: Progress
) -> dict[str, Any]:
    """Labels, annotators (where there are any), the model, the page and the summary."""
    seconds, missing = dict(run.seconds), None
    tell("writing labels, annotators and the model", FITTED)
    with _timed("write", seconds):
        found = verdicts_of(run)
        write_pieces(map(arrow_table, run.model.label_pieces()), folder / LABELS)
        if not run.annotations.anonymous:
            write_pieces([annotator_table(run, found)], folder / ANNOTATORS)
        run.model.save_apart(folder / MODEL)
    if looks is not None:
        with _timed("report", seconds):
            shown = {"command": notice["command"], "progress": tell, **looks}
            missing = _too_large_for_a_page(run.annotations) or _try_page(run, folder / REPORT, shown)
    views = None if found is None else found.in_words()
    content = summary(run) | {**notice, "views": views, "seconds": seconds, "report_missing": missing}
    return write_summary(folder, content)


def _too_large_for_a_page(annotations: Annotations) -> str | None:
    """Why there is no page, where it would break the limit of memory."""
    allowed, needed = current().memory, PROCESS_BYTES + PAGE_BYTES * annotations.n_labels
    if allowed is None or needed <= allowed:
        return None
    return f"it takes some {size_words(needed)} of memory, and {size_words(allowed)} are allowed"


def _try_page(run: Refinement, path: Path, settings: Mapping[str, Any]) -> str | None:
    """The run as one page; why there is none, where it cannot be made: that must not cost the fit."""
    from dissensus.report.page import write_report

    try:
        write_report(
            run.model, run.annotations, path, **{"seed": run.seed, "test_size": run.test_size, **settings}
        )
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


# ---- what is written ----------------------------------------------------------------------------------


def verdicts_of(run: Refinement) -> AnnotatorVerdicts | None:
    """Verdicts on the annotators, of a model whose draws know them."""
    if run.annotations.anonymous or not isinstance(run.model, HPGM):
        return None
    from dissensus.annotators.verdicts import annotator_verdicts

    return annotator_verdicts(run.annotations, run.model)


def annotator_table(run: Refinement, found: AnnotatorVerdicts | None = None) -> pa.Table:
    """One row for each annotator: labels, agreement, what the model knows of them, verdicts."""
    from dissensus.evaluation.agreement import agreement_with_others

    annotations = run.annotations
    columns: dict[str, Any] = {
        "annotator": annotations.annotator_vocabulary.arrow,
        "n_labels": annotations.annotator_load,
    }
    if annotations.label_type != "numeric":
        columns["agreement"] = agreement_with_others(annotations)
    if run.estimate == "truth" and isinstance(run.model, ConfusionModel):
        columns |= _skill_columns(run)
    known: dict[str, Any] = dict(getattr(run.model, "annotator_frame", dict)())
    if found is not None:  # its information allows for spam, the model's own does not
        known = {name: values for name, values in known.items() if not name.startswith("model_information")}
        known |= {name: values for name, values in found.columns().items() if name not in columns}
    return arrow_table(known | columns).select(list(dict.fromkeys([*columns, *known])))


def _skill_columns(run: Refinement) -> dict[str, Any]:
    """How right each annotator is, with intervals; systematic errors, and what they stand for."""
    from dissensus.annotators.skill import annotator_skills

    prior = gold_prior(run.annotations) if run.gold is not None else None
    return annotator_skills(run.model, run.annotations, item_prior=prior, seed=run.seed).columns()


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


def summary(run: Refinement) -> dict[str, Any]:
    """Everything needed to know what was done, as plain values."""
    from dissensus.data.description import describe

    found = run.model.convergence()
    return {
        "model": name_of(run.model),
        "estimate": run.estimate,
        "chosen_by": _chosen_by(run),
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
        "data": describe(run.annotations).to_dict(),
        "seconds": run.seconds,
    }


def _chosen_by(run: Refinement) -> str:
    if not run.chosen:
        return "name"
    return "bounds" if run.estimate == "truth" else "held-out likelihood"


# ---- reading back -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SavedRun:
    """What a directory of ours, or a model file alone, still knows of a run."""

    model: Model
    summary: dict[str, Any]  # empty where there is only a model
    cells: list[dict[str, str]] | None  # of a search

    def evidence(self) -> dict[str, Any]:
        """What the page shows beside the model, by the names of :func:`dissensus.write_report`."""
        known = {"seed": 0, "command": "", "test_size": TEST_SIZE}
        same = {name: self.summary.get(name, usual) for name, usual in known.items()}
        return {"held_out": self.summary.get("held_out") or None, "selection": self.cells, **same}


def open_run(place: Path) -> SavedRun:
    """A run's directory, or a model file, read back."""
    from dissensus.guided.files import load_model

    if not place.is_dir():
        return SavedRun(load_model(place), {}, None)
    known = read_summary(place)
    return SavedRun(load_model(place / MODEL), known, _rows(place / CELLS))


def is_run(place: Path) -> bool:
    """Is it a finished run's directory or a saved model, and no file of labels?"""
    return place.suffix == ".safetensors" or (place.is_dir() and is_ours(place))


def posterior_of(
    place: Path, read: Callable[[Path], Annotations], *, seed: int = 0, n_jobs: int = -1
) -> tuple[HPGM, Annotations]:
    """The draws that verdicts and plans come from: a finished run's, or those of a fit to a file's labels."""
    if not is_run(place):
        annotations = read(place)
        return HPGM(seed=seed, n_jobs=n_jobs).fit(annotations), annotations
    model = open_run(place).model
    if not isinstance(model, HPGM):
        raise DataError(
            f"{place}: its model is {title_of(model)}, which keeps no draws; name the file of labels, or a "
            "run of the model hpgm"
        )
    return model, model.training_labels()


def labels_of(
    place: Path, read: Callable[[Path], Annotations], items: Path | None, annotators: Path | None
) -> Annotations:
    """The labels of a file, or those that a finished run keeps, with these tables joined."""
    if not is_run(place):
        return read(place)
    saved = open_run(place)
    if not isinstance(saved.model, HPGM):
        raise DataError(f"{place}: {title_of(saved.model)} does not keep its labels; name their file")
    names = "item", "annotator"
    return with_side_tables(saved.model.training_labels(), items, annotators, None, names, False)


def opened(
    place: Path, file: Path | None, read: Callable[[Path], Annotations], tables: tuple[Any, Any, Any]
) -> tuple[SavedRun, Annotations]:
    """A run and its labels, from a file or as it keeps them; of labels alone, a fit to them.

    ``tables`` of items, annotators and gold join labels that a run keeps; a file's are read with it.
    """
    if file is None and not is_run(place):
        model, labels = posterior_of(place, read)
        return SavedRun(model, {}, None), labels
    saved = open_run(place)
    if file is not None:
        return saved, read(file)
    if not isinstance(saved.model, HPGM):
        raise DataError(f"{place}: {title_of(saved.model)} does not keep its labels; name their file too")
    return saved, with_side_tables(saved.model.training_labels(), *tables, ("item", "annotator"), False)


# ---- labels over time ---------------------------------------------------------------------------------


def update_run(
    place: Path,
    new: Annotations,
    directory: Path | None = None,
    *,
    command: str = "",
    source: str = "",
    page: Mapping[str, Any] | None = None,
    progress: ShowProgress = None,
) -> dict[str, Any]:
    """Add labels to a finished run and let its chains go on; the run is replaced, or ``directory`` written.

    Gives back the new summary. What the old run was compared by belongs to fewer labels and is left out.
    """
    saved = open_run(place)
    if not isinstance(saved.model, HPGM):
        raise DataError(
            f"{place}: its model is {title_of(saved.model)}, which cannot go on from where it ended; fit the "
            "old and the new labels together (a run of the model hpgm can be updated)"
        )
    directory = place if directory is None else directory
    if not place.is_dir() and directory == place:
        raise DataError(f"{place}: is a model without a run; name a directory to write")
    check_output(directory)
    learned = saved.model.training_labels()
    _refuse_update(place, learned, new)
    before, seconds = learned.n_labels, dict[str, float]()
    with _timed("update", seconds), shown(progress) as tell, _fit_told(saved.model, 0.0, tell):
        model = saved.model.update(new)
    known = {name: saved.summary[name] for name in ("seed", "estimate") if name in saved.summary}
    labels, estimate = model.training_labels(), known.get("estimate", "population")
    run = Refinement(labels, model, [], "", known.get("seed", model.seed), seconds, estimate=estimate)
    notice = {
        "command": command,
        "source": source,
        "updated": {"from": saved.summary.get("source", str(place)), "n_labels": before},
    }
    looks = None if page is None else {"held_out": [], "run": str(directory), **page}
    with output_directory(directory) as folder, shown(progress) as tell:
        return _write_fit(run, folder, notice, looks, tell)


def _refuse_update(place: Path, learned: Annotations, new: Annotations) -> None:
    """New labels that cannot be told apart from the run's own, or not be matched with its annotators."""
    if pseudonymous(learned) and not pseudonymous(new):
        raise DataError(
            f"{place}: its annotators have numbers for names, so that new labels of theirs would count as "
            "others'; fit the old and the new labels together"
        )
    known = set(zip(*(names.tolist() for names in _named(learned)), strict=True))
    again = [row in known for row in zip(*(names.tolist() for names in _named(new)), strict=True)]
    if again and all(again):
        raise DataError(f"{place}: has all {len(again):,} labels already; there is nothing to add")


def _named(labels: Annotations) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Item, annotator and class of every label, as text."""
    item, annotator, label = labels.columns
    return (
        labels.items.astype(str)[item],
        labels.annotators.astype(str)[annotator],
        labels.classes.astype(str)[label],
    )


def _rows(table: Path) -> list[dict[str, str]] | None:
    """A CSV file's rows; None where it is not there."""
    if not table.is_file():
        return None
    with table.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
