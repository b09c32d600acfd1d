"""Choose a model for some labels, or take the one that is named, and fit it."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dissensus.engine import current, using
from dissensus.errors import (
    DataError,
    ParameterError,
    UnknownSettingError,
    bad_parameter,
    did_you_mean,
    setting,
    warn,
)
from dissensus.evaluate.compare import (
    CANDIDATES,
    FAST_CANDIDATES,
    MANY_CLASSES,
    RATING_CANDIDATES,
    THOROUGH_CANDIDATES,
    Choice,
    HeldOut,
    TruthCandidate,
    choose_truth,
    compare,
    held_out_scores,
)
from dissensus.evaluate.gold import GoldAccuracy, gold_accuracy, judged_items
from dissensus.labels.annotations import Annotations
from dissensus.labels.description import remarks
from dissensus.labels.display import Shown
from dissensus.labels.features import n_features
from dissensus.labels.rows import pairs_per_item
from dissensus.labels.sources import as_annotations, provided
from dissensus.models import MODELS, build_model, model_class, name_of, title_of
from dissensus.models.base import Model, with_gold
from dissensus.models.confusion import gold_prior
from dissensus.models.sampled import MOST_ITEMS
from dissensus.params import PROCESS_BYTES, check_rules, choice, size_words
from dissensus.progress import Progress, ShowProgress, shown
from dissensus.tables.layouts import with_side_tables

QUESTIONS = {"estimate": choice("population", "annotators", "truth")}
TEST_SIZE = 0.2  # share of the (item, annotator) pairs that is hidden to judge models by
COMPARED, FITTED = 0.9, 0.95  # shares of the work that are behind after the comparison and after the fit
YARDSTICK_OF_NUMBERS = RATING_CANDIDATES[-1]
BY_REPRESENT = "it is the model that can estimate the population of some of the annotators"
REPRESENTING = "hpgm"  # the model that can estimate the population of some of the annotators
YARDSTICK = "empirical"  # every model's held-out score stands beside the smoothed counts'
WIDE_TABLES = 12  # tables of (items, classes) at once while a result and its page are made, as measured
FREE_TEXT, MEANT_AS_CLASS = 200, 5  # different labels, and how often each should occur at least


@dataclass(frozen=True)
class Refinement(Shown):
    """A fitted model with the evidence for it."""

    annotations: Annotations
    model: Model
    held_out: list[HeldOut]
    reason: str  # why it is this model; empty where it was named
    seed: int
    seconds: dict[str, float] = field(default_factory=dict)
    test_size: float = TEST_SIZE
    estimate: str = "population"  # the question: the population's answer, known annotators', or the truth
    candidates: list[TruthCandidate] = field(default_factory=list)  # that the truth's model was chosen among
    gold: GoldAccuracy | None = None  # how right it is, where gold trained it

    def __repr__(self) -> str:
        """The model, the labels and why, on one line; the arrays are in ``model`` and ``annotations``."""
        why = f", reason={self.reason!r}" if self.reason else ""
        return f"Refinement(model={self.model!r}, annotations={self.annotations!r}{why})"

    def _head(self, n: int | None) -> Mapping[str, Any]:
        return self.model._head(n)

    def to_frame(self, interval: float | None = None) -> Any:
        """One row for each item, as the model's ``to_frame`` gives it.

        Parameters
        ----------
        interval
            Size of the credible intervals; None is the model's usual one.
        """
        return self.model.to_frame(interval)

    def write(
        self, directory: str | Path, *, title: str | None = None, force: bool = False
    ) -> dict[str, Any]:
        """Write tables, model and page into a directory, as ``dissensus fit`` does, and return the summary.

        Parameters
        ----------
        directory
            The directory to write; an earlier result there is replaced.
        title
            Title of the page; None takes the name of the directory.
        force
            Whether to write into a directory that dissensus did not make.
        """
        from dissensus.workflow.runs import write_run

        page = {"title": title or Path(directory).name}
        return write_run(self, Path(directory), force=force, page=page)


# ---- choosing and fitting -----------------------------------------------------------------------------


def fit(
    labels: Any,
    model: str = "auto",
    settings: Mapping[str, Any] | None = None,
    *,
    items: Any = None,
    annotators: Any = None,
    gold: Any = None,
    estimate: str = "population",
    represent: Mapping[str, Any] | None = None,
    fast: bool = False,
    thorough: bool = False,
    seed: int = 0,
    n_jobs: int = -1,
    test_size: float = TEST_SIZE,
    output: str | Path | None = None,
    progress: ShowProgress = None,
    **reading: Any,
) -> Refinement:
    """Fit the named model to all labels, or the one that best predicts hidden ones (``"auto"``).

    This is what ``dissensus fit`` does; with ``output`` it also writes what the command writes.

    ``estimate`` is the question: what the ``"population"`` would answer about an item, or known
    ``"annotators"``; models are compared by the answer asked for. Or which class is right, ``"truth"``: then
    gold labels train too, and ``"auto"`` is ``choose_truth`` (evaluate/compare.py). ``fast`` leaves sampled
    models out: seconds instead of minutes, with approximate intervals. ``represent`` says whose population
    it is, by a column of the annotator table: ``{"kind": "human"}``; ``"auto"`` then takes the model that can
    (hpgm), and hidden labels are those of the annotators represented. ``test_size`` is the share of
    (item, annotator) pairs hidden for the comparison; 0 leaves it out for a named model.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    model
        Name of a model, or ``"auto"``.
    settings
        Settings of a named model.
    items, annotators
        Tables of items and of annotators, as frames or paths: ids, texts, attributes.
    gold
        The right class of some items: a mapping or a pandas Series from item to class, or a frame or path
        with one row for each item. It trains with ``estimate="truth"``; otherwise it only judges.
    estimate
        The question: ``"population"``, ``"annotators"`` or ``"truth"``.
    represent
        Whose population is estimated, by columns of the annotator table.
    fast
        Whether sampled models are left out.
    thorough
        Whether latent positions, often the best predictor and by far the slowest, are tried too.
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    n_jobs
        Number of threads; −1 takes all cores. The result does not depend on it.
    test_size
        Share of the (item, annotator) pairs that is hidden for the comparison.
    output
        A directory to write tables, model and page into; None writes nothing.
    progress
        True or False, a function that is told (what, share done), or None: progress where a person sees it.
    reading
        Settings of :func:`dissensus.read_annotations`, such as ``label="answer"`` or ``ignore_case=True``,
        for labels that are still to be read.
    """
    if not 0 <= test_size < 1:
        raise bad_parameter("fit", "test_size", "a float >= 0 and < 1", test_size)
    check_rules("fit", QUESTIONS, estimate=estimate)
    annotations = as_annotations(labels) if not reading else _read(labels, reading)
    annotations = with_side_tables(annotations, items, annotators, None, ("item", "annotator"), True)
    if gold is not None:
        annotations = with_gold(annotations, gold)
    _refuse_unanswerable(annotations, model, estimate)
    for remark in remarks(annotations):
        warn(remark)
    if model == "auto" and settings:
        raise ParameterError(f"{', '.join(settings)}: name the {setting('model')} that should take this")
    why = ""
    if represent:
        if estimate != "population":
            raise ParameterError(
                f"{setting('represent')} says whose population is estimated; leave {setting('estimate')} out"
            )
        if fast and model == "auto":
            raise ParameterError(
                f"{setting('fast')} leaves sampled models out, and {setting('represent')} needs one of them "
                "(hpgm); leave it out"
            )
        why = BY_REPRESENT if model == "auto" else ""
        model = REPRESENTING if model == "auto" else model
        settings = {**(settings or {}), "represent": dict(represent)}
    if estimate == "truth" and annotations.label_type == "numeric":
        raise bad_parameter("fit", "estimate", "'population' or 'annotators' for numeric labels", estimate)
    if fast and thorough:
        raise ParameterError(f"{setting('fast')} and {setting('thorough')} exclude each other; leave one out")
    if estimate == "truth":
        run = _refine_truth(annotations, model, settings or {}, seed, n_jobs, progress)
    else:
        candidates = FAST_CANDIDATES if fast else THOROUGH_CANDIDATES if thorough else CANDIDATES
        seconds: dict[str, float] = {}
        with shown(progress) as tell:
            with timed("compare", seconds):
                question = {"estimate": estimate, "candidates": candidates}
                choice = _decide(annotations, model, settings or {}, question, seed, n_jobs, test_size, tell)
            with timed("fit", seconds), fit_told(choice.model, COMPARED if choice.table else 0.0, tell):
                fitted = choice.model.fit(annotations)
        settled = getattr(fitted, "settled_items_", 1.0)
        if settled < MOST_ITEMS:
            warn(
                f"the chains agree on the shares of {settled:.0%} of the items (split-R̂ up to 1.1), and the "
                "intervals of the others hold what the chains say in all; n_sweeps=1000 makes them longer"
            )
        hidden, because = test_size or TEST_SIZE, choice.reason or why
        run = Refinement(annotations, fitted, choice.table, because, seed, seconds, hidden, estimate)
    if output is not None:
        run.write(output)
    return run


def _read(labels: Any, reading: Mapping[str, Any]) -> Annotations:
    """Read labels with the settings given to ``fit``."""
    read = provided("read_annotations")
    for name in reading.keys() - inspect.signature(read).parameters.keys():
        hint = did_you_mean(name, [*inspect.signature(read).parameters, *inspect.signature(fit).parameters])
        raise UnknownSettingError(f"there is no setting {name!r} of fit; {hint}see help(dissensus.fit)")
    annotations: Annotations = read(labels, **reading)
    return annotations


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
    with timed("fit", seconds):
        if name == "auto":
            choice = choose_truth(annotations, seed, prior=given, n_jobs=n_jobs, progress=progress)
        else:
            model: Any = build_model(name, settings, seed=seed, n_jobs=n_jobs, estimate="truth")
            if not model.finds_truth:
                known = [other for other in MODELS if model_class(other).finds_truth]
                raise ParameterError(
                    f"{name_of(model)} knows no true class, only what a population answers; "
                    f"for {setting('estimate', 'truth')} take one of: {', '.join(known)}"
                )
            choice = Choice(model.fit(annotations, prior=given), [], "")
    with timed("gold", seconds):
        gold = gold_accuracy(annotations, choice.model, seed=seed) if judged else None
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


def _refuse_unanswerable(annotations: Annotations, model: str, estimate: str) -> None:
    """Refuse labels that tell nothing of disagreement, unless a model is named, and tables beyond memory."""
    several = model == "auto" and annotations.label_type != "pairwise" and annotations.n_labels > 1
    if several and not annotations.anonymous and annotations.n_annotators == 1:
        raise DataError(
            f"all labels are by one annotator ({annotations.annotators[0]!r}), and nobody can disagree here; "
            f"add labels by others, name another {setting('annotator')}, or name the {setting('model')} to "
            "fit all the same"
        )
    if several and estimate != "truth" and int(pairs_per_item(annotations).max()) < 2:
        raise DataError(
            "no item has labels by two annotators, and nobody can disagree here; add second labels, of some "
            f"items at least, or name the {setting('model')} to fit all the same"
        )
    M, P = annotations.n_items, annotations.n_classes
    free = model == "auto" and annotations.label_type == "nominal"
    if free and P >= FREE_TEXT and annotations.n_labels < P * MEANT_AS_CLASS:
        raise DataError(
            f"{P:,} different labels among {annotations.n_labels:,} look like free text, not classes; group "
            f"them first, name another {setting('label')}, or name the {setting('model')} to fit all the same"
        )
    allowed, least = current().memory, PROCESS_BYTES + WIDE_TABLES * 8 * M * P
    if P > MANY_CLASSES and annotations.label_type != "numeric" and allowed is not None and least > allowed:
        raise DataError(
            f"{M:,} items with {P:,} classes need {size_words(least)} of memory, and {size_words(allowed)} "
            f"are allowed; allow as much with {setting('memory')}, or group the classes first"
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
    shared: dict[str, Any] = {
        "test_size": test_size or TEST_SIZE,
        "n_jobs": n_jobs,
        "progress": lambda what, share: tell(what, COMPARED * share),
    }
    if name == "auto":
        return compare(annotations, seed, **question, **shared)
    wanted = build_model(name, settings, seed=seed, n_jobs=n_jobs)
    if n_features(annotations) and not wanted.uses_features:
        able = "dirichlet-regression, ldlnm, and hpgm with use_features"
        warn(f"{title_of(wanted)} does not use the features of the items; models that do: {able}")
    if not test_size:
        return Choice(wanted, [], "")
    yardstick = YARDSTICK_OF_NUMBERS if annotations.label_type == "numeric" else (YARDSTICK, {})
    rivals = [wanted] if name == YARDSTICK else [wanted, build_model(*yardstick)]
    # One after the other: the counts take no time, and the model has all threads.
    whose = {"represent": settings.get("represent"), "n_jobs": 1}
    return Choice(wanted, held_out_scores(annotations, rivals, seed, **shared | whose), "")


@contextmanager
def fit_told(model: Model, behind: float, tell: Progress) -> Iterator[None]:
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
def timed(what: str, seconds: dict[str, float]) -> Iterator[None]:
    """Keep how long the block takes, by name."""
    started = time.perf_counter()
    yield
    seconds[what] = round(time.perf_counter() - started, 3)
