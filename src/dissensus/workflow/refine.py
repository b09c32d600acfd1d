"""Choose a model for the labels, unless one is named, and fit it."""

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
from dissensus.evaluate.compare import Choice, HeldOut, TruthCandidate
from dissensus.evaluate.gold import GoldAccuracy, gold_accuracy, judged_items
from dissensus.labels import as_annotations, provided
from dissensus.labels.annotations import Annotations
from dissensus.labels.description import remarks
from dissensus.labels.display import TableResult
from dissensus.labels.features import n_features
from dissensus.labels.rows import pairs_per_item
from dissensus.models import MODELS, build_model, model_class, name_of, title_of
from dissensus.models.base import Model
from dissensus.models.confusion import gold_prior, with_gold
from dissensus.models.sampled import MIN_CONVERGED_SHARE
from dissensus.params import PROCESS_BYTES, Rule, check_rules, choice, size_words
from dissensus.progress import Progress, ShowProgress, shown
from dissensus.tables.layouts import with_side_tables

FIT_RULES = {
    "test_size": Rule("a float >= 0 and < 1", lambda v: 0 <= v < 1),
    "estimate": choice("population", "annotators", "truth"),
}
NUMERIC_ESTIMATES = Rule("'population' or 'annotators' for numeric labels", lambda v: v != "truth")
TEST_SIZE = 0.2  # share of the (item, annotator) pairs held out to compare models
SHARE_COMPARED, SHARE_FITTED = 0.9, 0.95  # progress after the comparison and after the fit
REPRESENTING_MODEL = "hpgm"  # estimates the population of a subset of the annotators
REPRESENT_REASON = "it is the model that can estimate the population of some of the annotators"
BASELINE = "empirical"  # smoothed counts, with which every named model is compared
NUMERIC_BASELINE = comparison.RATING_CANDIDATES[-1]
ARRAYS_IN_MEMORY = 12  # (items, classes) arrays at once while writing a result and its report, as measured
# labels look like free text if there are at least 200 different ones, used fewer than 5 times on average
MIN_FREE_TEXT_CLASSES, MIN_LABELS_PER_CLASS = 200, 5


@dataclass(frozen=True)
class Refinement(TableResult):
    """A fitted model, its labels, and the comparison by which it was chosen."""

    annotations: Annotations
    model: Model
    held_out: list[HeldOut]
    reason: str  # why the model was chosen; empty if it was named
    seed: int
    seconds: dict[str, float] = field(default_factory=dict)
    test_size: float = TEST_SIZE
    estimate: str = "population"  # or "annotators" or "truth"
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
    seed: int = 0,
    n_jobs: int = -1,
    test_size: float = TEST_SIZE,
    output: str | Path | None = None,
    progress: ShowProgress = None,
    **reading: Any,
) -> Refinement:
    """Fit the named model, or the one that predicts held-out labels best (``"auto"``).

    This is what ``dissensus fit`` does.

    ``estimate`` is the question: how the ``"population"`` would label an item; how each of these
    ``"annotators"`` would; or which class is the ``"truth"``. Candidates are compared by their predictions of
    hidden labels, given the item (``"population"``) or the item and the annotator. For the truth, gold labels
    are training data, and ``"auto"`` is ``choose_truth`` (evaluate/compare.py).

    ``represent`` restricts the population to annotators with certain attributes, as in ``{"kind": "human"}``.
    Then ``"auto"`` is HPGM, the model that supports it, and only labels of these annotators are held out.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    model
        Name of a model, or ``"auto"``.
    settings
        Settings of a named model.
    items, annotators
        Tables of items and annotators, as frames or paths: ids, texts, attributes.
    gold
        The correct class of some items: a mapping or pandas Series from item to class, or a frame or path
        with one row for each item. Used for training with ``estimate="truth"``, otherwise for evaluation.
    estimate
        ``"population"``, ``"annotators"`` or ``"truth"``.
    represent
        Columns of the annotator table and their values.
    fast
        Skip sampled models: seconds instead of minutes, with approximate intervals.
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    n_jobs
        Number of threads; −1 uses all cores. The result does not depend on it.
    test_size
        Share of (item, annotator) pairs held out for the comparison; 0 skips it for a named model.
    output
        Directory to write tables, model and report into; None writes nothing.
    progress
        True, False, or a function of a message and the share done; None shows progress in a terminal or a
        notebook.
    reading
        Settings of :func:`dissensus.read_annotations`, such as ``label="answer"`` or ``ignore_case=True``,
        if ``labels`` is a frame or a path.
    """
    check_rules("fit", FIT_RULES, test_size=test_size, estimate=estimate)
    annotations = as_annotations(labels) if not reading else _read(labels, reading)
    annotations = with_side_tables(annotations, items, annotators, None, ("item", "annotator"), True)
    if gold is not None:
        annotations = with_gold(annotations, gold)
    check_labels(annotations, model, estimate)
    for remark in remarks(annotations):
        warn(remark)
    if model == "auto" and settings:
        raise ParameterError(f"{', '.join(settings)}: name the {setting('model')} that has this setting")
    reason = ""
    if represent:
        option, skip = setting("represent"), setting("fast")
        if estimate != "population":
            raise ParameterError(f"{option} restricts the population; leave out {setting('estimate')}")
        if fast and model == "auto":
            raise ParameterError(
                f"{option} needs a sampled model (hpgm), which {skip} skips; leave out {skip}"
            )
        if model == "auto":
            model, reason = REPRESENTING_MODEL, REPRESENT_REASON
        settings = {**(settings or {}), "represent": dict(represent)}
    if annotations.label_type == "numeric":
        check_rules("fit", {"estimate": NUMERIC_ESTIMATES}, estimate=estimate)
    if estimate == "truth":
        run = _refine_truth(annotations, model, settings or {}, seed, n_jobs, progress)
    else:
        candidates = comparison.FAST_CANDIDATES if fast else comparison.CANDIDATES
        question = {"estimate": estimate, "candidates": candidates}
        seconds: dict[str, float] = {}
        with shown(progress) as show:
            with timed("compare", seconds):
                chosen = _choose(annotations, model, settings or {}, question, seed, n_jobs, test_size, show)
            start = SHARE_COMPARED if chosen.table else 0.0
            with timed("fit", seconds), fit_shown(chosen.model, start, show):
                fitted = chosen.model.fit(annotations)
        converged = getattr(fitted, "converged_items_", 1.0)
        if converged < MIN_CONVERGED_SHARE:
            warn(
                f"the chains converged for {converged:.0%} of the items (split-R̂ ≤ 1.1); the intervals of "
                "the others combine chains that disagree; more sweeps, such as n_sweeps=1000, may help"
            )
        share, reason = test_size or TEST_SIZE, chosen.reason or reason
        run = Refinement(annotations, fitted, chosen.table, reason, seed, seconds, share, estimate)
    if output is not None:
        run.write(output)
    return run


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
            chosen = comparison.choose_truth(annotations, seed, prior=prior, n_jobs=n_jobs, progress=progress)
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
    return Refinement(annotations, chosen.model, [], chosen.reason, seed, seconds, **evidence)


def check_labels(annotations: Annotations, model: str, estimate: str) -> None:
    """Reject labels without disagreement or of free text, unless a model is named, or beyond the memory."""
    several = model == "auto" and annotations.label_type != "pairwise" and annotations.n_labels > 1
    if several and not annotations.anonymous and annotations.n_annotators == 1:
        raise DataError(
            f"all labels are by one annotator ({annotations.annotators[0]!r}), so there is no disagreement "
            f"to model; add labels by others, name another {setting('annotator')}, or name a "
            f"{setting('model')} to fit anyway"
        )
    if several and estimate != "truth" and int(pairs_per_item(annotations).max()) < 2:
        raise DataError(
            "no item has labels by two annotators, so there is no disagreement to model; add second labels "
            f"of some items, or name a {setting('model')} to fit anyway"
        )
    M, P = annotations.n_items, annotations.n_classes
    free = model == "auto" and annotations.label_type == "nominal"
    if free and P >= MIN_FREE_TEXT_CLASSES and annotations.n_labels < P * MIN_LABELS_PER_CLASS:
        raise DataError(
            f"{P:,} different labels among {annotations.n_labels:,} look like free text, not classes; group "
            f"them first, name another {setting('label')}, or name a {setting('model')} to fit anyway"
        )
    limit, needed = current().memory, PROCESS_BYTES + ARRAYS_IN_MEMORY * 8 * M * P
    many_classes = P > comparison.MAX_MATRIX_CLASSES and annotations.label_type != "numeric"
    if many_classes and limit is not None and needed > limit:
        raise DataError(
            f"{M:,} items with {P:,} classes need {size_words(needed)} of memory; the limit is "
            f"{size_words(limit)}; raise it with {setting('memory')}, or group the classes first"
        )


def _choose(
    annotations: Annotations,
    name: str,
    settings: Mapping[str, Any],
    question: Mapping[str, Any],
    seed: int,
    n_jobs: int,
    test_size: float,
    progress: Progress,
) -> Choice:
    """Return the model to fit to all labels, and the held-out scores of the models compared."""

    def show(message: str, share: float) -> None:
        progress(message, SHARE_COMPARED * share)

    shared: dict[str, Any] = {"test_size": test_size or TEST_SIZE, "progress": show}
    if name == "auto":
        return comparison.compare(annotations, seed, **question, n_jobs=n_jobs, **shared)
    model = build_model(name, settings, seed=seed, n_jobs=n_jobs)
    if n_features(annotations) and not model.uses_features:
        others = "dirichlet-regression, ldlnm, and hpgm with the setting use_features"
        warn(f"{title_of(model)} does not use the features of the items; models that do: {others}")
    if not test_size:
        return Choice(model, [], "")
    baseline = NUMERIC_BASELINE if annotations.label_type == "numeric" else (BASELINE, {})
    models = [model] if name == BASELINE else [model, build_model(*baseline)]
    # one at a time: the baseline takes no time, and the model uses all threads
    shared |= {"represent": settings.get("represent"), "n_jobs": 1}
    return Choice(model, comparison.held_out_scores(annotations, models, seed, **shared), "")


@contextmanager
def fit_shown(model: Model, start: float, progress: Progress) -> Iterator[None]:
    """Report the progress of a fit inside the block, from ``start`` to ``SHARE_FITTED`` of the work."""
    resources, message = current(), f"fitting {title_of(model)} to all labels"
    progress(message, start)
    with shown(resources.progress) as show_iteration:

        def show_both(words: str, share: float) -> None:
            progress(message, start + (SHARE_FITTED - start) * share)
            show_iteration(words, share)

        with using(replace(resources, progress=show_both)):
            yield


@contextmanager
def timed(name: str, seconds: dict[str, float]) -> Iterator[None]:
    """Store the duration of the block in ``seconds[name]``."""
    started = time.perf_counter()
    yield
    seconds[name] = round(time.perf_counter() - started, 3)
