"""Fit the default model for the type of the labels, or the named one."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dissensus.engine import current, using
from dissensus.errors import DataError, ParameterError, UnknownSettingError, did_you_mean, setting, warn
from dissensus.evaluate import compare as comparison
from dissensus.evaluate.compare import HeldOut
from dissensus.evaluate.gold import GoldAccuracy, gold_accuracy, judged_items
from dissensus.evaluate.truth import Choice, TruthCandidate, choose_truth
from dissensus.labels import as_annotations, provided
from dissensus.labels.annotations import Annotations
from dissensus.labels.description import remarks
from dissensus.labels.display import TableResult
from dissensus.labels.features import n_features
from dissensus.labels.rows import pairs_per_item
from dissensus.models import MODELS, build_model, model_class, name_of, title_of
from dissensus.models.base import Model
from dissensus.models.confusion import gold_prior, with_gold
from dissensus.models.sampled import SampledModel
from dissensus.params import NONE, PROCESS_BYTES, Rule, check_rules, choice, real, size_words
from dissensus.progress import Progress, ShowProgress, shown
from dissensus.tables.layouts import with_side_tables

FIT_RULES = {"estimate": choice("population", "truth"), "minutes": real(0.0, open_low=True) | NONE}
NUMERIC_ESTIMATES = Rule("'population' for numeric labels", lambda v: v != "truth")
SHARE_FITTED = 0.95  # progress after the fit
#: The default model by type of labels.
DEFAULTS = {
    "nominal": "pool",
    "ordinal": "pool",
    "numeric": "ratings",
    "multi": "sets",
    "pairwise": "bradley-terry",
}
FAST_SETTINGS = {"n_chains": 2, "n_sweeps": 100}
COUNTS, COUNTS_MIXTURE = "empirical", ("fmm", {"n_item_clusters": 16})  # where the annotators are unknown
ARRAYS_IN_MEMORY = 12  # (items, classes) arrays at once while writing a result and its report, as measured
# labels look like free text if there are at least 200 different ones, used fewer than 5 times on average
MIN_FREE_TEXT_CLASSES, MIN_LABELS_PER_CLASS = 200, 5


@dataclass(frozen=True)
class Refinement(TableResult):
    """A fitted model and its labels."""

    annotations: Annotations
    model: Model
    reason: str  # why the model is not the default; empty if it is, or was named
    seed: int
    seconds: dict[str, float] = field(default_factory=dict)
    estimate: str = "population"  # or "truth"
    held_out: list[HeldOut] = field(default_factory=list)  # scores of the models compared, if asked for
    candidates: list[TruthCandidate] = field(default_factory=list)  # models compared for the truth
    gold: GoldAccuracy | None = None  # accuracy, if gold labels trained the model

    def __repr__(self) -> str:
        """Return the model, the labels and the reason on one line."""
        reason = f", reason={self.reason!r}" if self.reason else ""
        return f"Refinement(model={self.model!r}, annotations={self.annotations!r}{reason})"

    def _head(self, n: int | None) -> Mapping[str, Any]:
        return self.model._head(n)

    def to_frame(self, interval: float | None = None) -> Any:
        """Return one row for each item; see ``Model.to_frame``.

        Parameters
        ----------
        interval
            Size of the credible intervals; None is 0.9.
        """
        return self.model.to_frame(interval)

    def write(
        self, directory: str | Path, *, title: str | None = None, force: bool = False
    ) -> dict[str, Any]:
        """Write tables, model and report into a directory, as ``dissensus fit`` does; return the summary.

        Parameters
        ----------
        directory
            Output directory; an earlier result there is replaced.
        title
            Title of the report; None uses the name of the directory.
        force
            Write even if the directory holds files of other programs.
        """
        from dissensus.workflow.runs import write_run

        path = Path(directory)
        return write_run(self, path, force=force, page={"title": title or path.name})


# ---- fitting ------------------------------------------------------------------------------------------


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
    minutes: float | None = None,
    compare: bool = False,
    seed: int = 0,
    n_jobs: int = -1,
    output: str | Path | None = None,
    progress: ShowProgress = None,
    **reading: Any,
) -> Refinement:
    """Fit the default model for the type of the labels, or the named model.

    This is what ``dissensus fit`` does. The default for classes is :class:`dissensus.Pool`. Only where
    smoothed counts clearly predict hidden labels better are they used instead, with a warning.

    ``estimate`` is the question: how the ``"population"`` would label an item, or which class is the
    ``"truth"``. For the truth, gold labels are training data, and ``"auto"`` is ``choose_truth``.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    model
        Name of a model, or ``"auto"`` for the default.
    settings
        Settings of the model.
    items, annotators
        Tables of items and annotators, as frames or paths: ids, texts, attributes.
    gold
        The correct class of some items: a mapping or pandas Series from item to class, or a frame or path
        with one row for each item. Used for training with ``estimate="truth"``, otherwise for evaluation.
    estimate
        ``"population"`` or ``"truth"``.
    represent
        Columns of the annotator table and their values, as in ``{"kind": "human"}``: the population consists
        of the annotators who have them. Labels of others still inform about the items.
    fast
        Fewer chains: a quarter of the time, and two runs differ more.
    minutes
        Time to make the result more precise: chains are added until another run would move an item's shares
        by at most 0.5 % on average, or this time has passed, or after ten rounds. The result then depends on
        the speed of the machine. None stops at 2.5 %, or after three rounds, and the result depends on the
        seed alone.
    compare
        Also compare the models for this type of labels on hidden labels (:func:`dissensus.compare`).
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    n_jobs
        Number of threads; −1 uses all cores. The result does not depend on it.
    output
        Directory to write tables, model and report into; None writes nothing.
    progress
        True, False, or a function of a message and the share done; None shows progress in a terminal or a
        notebook.
    reading
        Settings of :func:`dissensus.read_annotations`, such as ``label="answer"`` or ``ignore_case=True``,
        if ``labels`` is a frame or a path.
    """
    check_rules("fit", FIT_RULES, estimate=estimate, minutes=minutes)
    annotations = as_annotations(labels) if not reading else _read(labels, reading)
    annotations = with_side_tables(annotations, items, annotators, None, ("item", "annotator"), True)
    if gold is not None:
        annotations = with_gold(annotations, gold)
    check_labels(annotations, model, estimate)
    for remark in remarks(annotations):
        warn(remark)
    if annotations.label_type == "numeric":
        check_rules("fit", {"estimate": NUMERIC_ESTIMATES}, estimate=estimate)
    settings = dict(settings or {})
    if represent and estimate != "population":
        remedy = f"leave out {setting('estimate')}"
        raise ParameterError(f"{setting('represent')} restricts the population; {remedy}")
    if estimate == "truth":
        run = _refine_truth(annotations, model, settings, seed, n_jobs, progress)
    else:
        settings |= {"represent": dict(represent)} if represent else {}
        seconds: dict[str, float] = {}
        with timed("fit", seconds):
            if model == "auto":
                chosen, reason = default_model(annotations, settings, seed, n_jobs, fast)
                if reason and settings:
                    named = ", ".join(setting(name) for name in settings)
                    warn(f"{title_of(chosen)} is fitted instead of the default, without {named}")
            else:
                chosen, reason = build_model(model, settings, seed=seed, n_jobs=n_jobs), ""
            _note_unused_features(chosen, annotations)
            limited = current() if minutes is None else replace(current(), minutes=minutes)
            with using(limited), shown(progress) as show, fit_shown(chosen, show):
                fitted = chosen.fit(annotations)
        run = Refinement(annotations, fitted, reason, seed, seconds, estimate)
    is_sampled = isinstance(run.model, SampledModel)
    unused = [setting("fast")] if fast and not (model == "auto" and is_sampled) else []
    unused += [setting("minutes")] if minutes is not None and not is_sampled else []
    if unused:
        warn(f"no effect on {title_of(run.model)}: {', '.join(unused)}")
    if compare:
        with timed("compare", run.seconds):
            table = comparison.compare(annotations, seed, n_jobs=n_jobs, progress=progress).table
        run = replace(run, held_out=table)
    if output is not None:
        run.write(output)
    return run


def default_model(
    annotations: Annotations, settings: Mapping[str, Any], seed: int, n_jobs: int, fast: bool = False
) -> tuple[Model, str]:
    """Return the default model for these labels, and the reason if it is an exception, or ``""``."""
    name = DEFAULTS[annotations.label_type]
    if name != "pool":
        return build_model(name, settings, seed=seed, n_jobs=n_jobs), ""
    settings = {**(FAST_SETTINGS if fast else {}), **settings}
    # whether a setting asks for features that the labels do not have is checked by the fit
    plain = build_model(name, {**settings, "use_features": False}, seed=seed, n_jobs=n_jobs)
    if annotations.anonymous:
        mixture = build_model(*COUNTS_MIXTURE, seed=seed)
        if comparison.is_applicable(mixture, annotations):
            return mixture, "the annotators are unknown"
        return build_model(COUNTS, {}), "the annotators are unknown"
    if not comparison.is_applicable(plain, annotations):
        many = annotations.n_classes > comparison.MAX_MATRIX_CLASSES
        why = f"{annotations.n_classes:,} classes are too many" if many else "memory is too small"
        return build_model(COUNTS, {}), f"{why} for the default model"
    ahead = None if "represent" in settings else comparison.counts_ahead(annotations, seed)
    if ahead is not None:
        reason = f"smoothed counts predict hidden labels better ({ahead.mean:.3f} ± {ahead.error:.3f} nats)"
        warn(f"{reason}, so they are the answer; the labels show no structure that the default could use")
        return build_model(COUNTS, {}), reason
    with_features = build_model(name, {"use_features": True, **settings}, seed=seed, n_jobs=n_jobs)
    usable = "use_features" in settings or comparison.is_applicable(with_features, annotations)
    return (with_features if usable else plain), ""


def _note_unused_features(model: Model, annotations: Annotations) -> None:
    if n_features(annotations) and not model.uses_features:
        others = "dirichlet-regression, ldlnm, and pool and hpgm with the setting use_features"
        warn(f"{title_of(model)} does not use the features of the items; models that do: {others}")


def _read(labels: Any, reading: Mapping[str, Any]) -> Annotations:
    """Read labels with the settings given to ``fit``."""
    read: Callable[..., Annotations] = provided("read_annotations")
    names = inspect.signature(read).parameters
    for name in reading.keys() - names.keys():
        hint = did_you_mean(name, [*names, *inspect.signature(fit).parameters])
        raise UnknownSettingError(f"fit has no setting {name!r}; {hint}see help(dissensus.fit)")
    return read(labels, **reading)


def _refine_truth(
    annotations: Annotations, name: str, settings: Any, seed: int, n_jobs: int, progress: ShowProgress
) -> Refinement:
    """Estimate the true class of each item, with gold labels as evidence, and the cross-fitted accuracy."""
    n_gold, seconds = len(judged_items(annotations)), dict[str, float]()
    prior = gold_prior(annotations) if n_gold else None
    with timed("fit", seconds):
        if name == "auto":
            chosen = choose_truth(annotations, seed, prior=prior, n_jobs=n_jobs, progress=progress)
        else:
            model: Any = build_model(name, settings, seed=seed, n_jobs=n_jobs, estimate="truth")
            if not model.finds_truth:
                names = [other for other in MODELS if model_class(other).finds_truth]
                raise ParameterError(
                    f"{name_of(model)} estimates the answers of a population, not the true class; "
                    f"for {setting('estimate', 'truth')} use one of: {', '.join(names)}"
                )
            chosen = Choice(model.fit(annotations, prior=prior), [], "")
    with timed("gold", seconds):
        gold = gold_accuracy(annotations, chosen.model, seed=seed) if n_gold else None
    evidence: dict[str, Any] = {"estimate": "truth", "candidates": chosen.table, "gold": gold}
    return Refinement(annotations, chosen.model, chosen.reason, seed, seconds, **evidence)


def check_labels(annotations: Annotations, model: str, estimate: str) -> None:
    """Reject labels without disagreement or of free text, unless a model is named, or beyond the memory."""
    name_model = f"name a {setting('model')} to fit anyway"
    several = model == "auto" and annotations.label_type != "pairwise" and annotations.n_labels > 1
    if several and not annotations.anonymous and annotations.n_annotators == 1:
        problem = f"all labels are by one annotator ({annotations.annotators[0]!r})"
        remedy = f"add labels by others, name another {setting('annotator')}, or {name_model}"
        raise DataError(f"{problem}, so there is no disagreement to model; {remedy}")
    if several and estimate != "truth" and int(pairs_per_item(annotations).max()) < 2:
        problem = "no item has labels by two annotators, so there is no disagreement to model"
        raise DataError(f"{problem}; add second labels of some items, or {name_model}")
    M, P = annotations.n_items, annotations.n_classes
    free = model == "auto" and annotations.label_type == "nominal"
    if free and P >= MIN_FREE_TEXT_CLASSES and annotations.n_labels < P * MIN_LABELS_PER_CLASS:
        problem = f"{P:,} different labels among {annotations.n_labels:,} look like free text, not classes"
        raise DataError(f"{problem}; group them first, name another {setting('label')}, or {name_model}")
    limit, needed = current().memory, PROCESS_BYTES + ARRAYS_IN_MEMORY * 8 * M * P
    many_classes = P > comparison.MAX_MATRIX_CLASSES and annotations.label_type != "numeric"
    if many_classes and limit is not None and needed > limit:
        problem = f"{M:,} items with {P:,} classes need {size_words(needed)} of memory"
        remedy = f"raise it with {setting('memory')}, or group the classes first"
        raise DataError(f"{problem}; the limit is {size_words(limit)}; {remedy}")


@contextmanager
def fit_shown(model: Model, progress: Progress) -> Iterator[None]:
    """Report the progress of a fit inside the block, up to ``SHARE_FITTED`` of the work."""
    resources, message = current(), f"fitting {title_of(model)}"
    progress(message, 0.0)
    with shown(resources.progress) as show_iteration:

        def show_both(words: str, share: float) -> None:
            progress(message, SHARE_FITTED * share)
            show_iteration(words, share)

        with using(replace(resources, progress=show_both)):
            yield


@contextmanager
def timed(name: str, seconds: dict[str, float]) -> Iterator[None]:
    """Store the duration of the block in ``seconds[name]``."""
    started = time.perf_counter()
    yield
    seconds[name] = round(time.perf_counter() - started, 3)
