"""Model comparison by the prediction of held-out labels.

A fifth of the (item, annotator) pairs is hidden. Every candidate is fitted to the rest and scored by the log
probability of the hidden labels, in nats: P(label | item) if ``estimate`` is ``"population"``, and
P(label | item, annotator) if it is ``"annotators"``.

Candidates that differ by less than two standard errors (paired over items) are tied. Among tied candidates,
those that contradict no unanimous item are preferred. Of these, the default (``DEFAULTS``, HPGM for
instance) is chosen if it is among them, otherwise the simplest (in the order of ``MODELS``,
models/__init__.py). For one true class, the choice is made by bounds on the evidence (:func:`choose_truth`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import current, threads, using
from dissensus.errors import DataError, setting
from dissensus.evaluate.group_agreement import shared_errors
from dissensus.labels import as_annotations
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import FEATURES_COLUMN, has_features
from dissensus.labels.rows import pairs_per_item, rows_with_values
from dissensus.models import build_model, name_of, simplicity, sizes_fit_labels, title_of
from dissensus.models.base import Model
from dissensus.models.confusion import ConfusionModel
from dissensus.models.hpgm.adjustments import UNANIMOUS_LABELS, UNANIMOUS_SHARE, contradicted
from dissensus.numerics import Array
from dissensus.params import Rule, check_rules, choice, n_cores, physical_memory, size_words, with_settings
from dissensus.progress import ShowProgress, shown

#: Models that ``fit`` chooses unless another is clearly better. They have sampled intervals, which the other
#: commands need.
DEFAULTS = ("ordinal", "hpgm", "ratings", "sets", "bradley-terry")
Candidates = Sequence[tuple[str, Mapping[str, Any]]]
#: Candidates: name and settings of each model.
CANDIDATES: Candidates = (
    ("hpgm", {}),
    ("hpgm", {"use_features": True}),
    ("empirical", {}),
    ("fmm", {"n_item_clusters": 8}),
    ("fmm", {"n_item_clusters": 16}),
    ("dawid-skene", {}),
    ("pgm", {"n_item_clusters": 12, "n_annotator_clusters": 8}),
)
#: Candidates fitted by EM: seconds instead of minutes, without intervals.
VB_SETTINGS = {"n_item_clusters": 20, "n_annotator_clusters": 20, "inference": "vb"}
FAST_CANDIDATES: Candidates = (*CANDIDATES[2:], ("pgm", VB_SETTINGS))
#: Candidates for ordered classes.
ORDINAL_CANDIDATES: Candidates = (("ordinal", {}), ("graded", {}), *CANDIDATES)
#: Candidates for numeric labels: with and without annotator bias, scale and outliers.
PLAIN_RATINGS = {"bias": False, "scale": False, "robust": False}
RATING_CANDIDATES: Candidates = (("ratings", {}), ("ratings", PLAIN_RATINGS))
#: Candidates for pairwise comparisons: the only model that gives scores.
PAIR_CANDIDATES: Candidates = (("bradley-terry", {}),)
#: Candidates for sets of classes: with and without dependence between classes.
SET_CANDIDATES: Candidates = (("sets", {}), ("sets", {"dependence": False}))
# Settings for the comparison: short chains suffice to rank models.
COMPARISON_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "hpgm": {"n_chains": 2, "n_sweeps": 90},
    "ordinal": {"n_chains": 2, "n_sweeps": 90},
    "ratings": {"n_sweeps": 60},
    "latent": {"n_chains": 1, "n_sweeps": 120},
}

ESTIMATES: dict[str, Rule] = {"estimate": choice("population", "annotators")}
FALLBACK_MODEL = "empirical"  # used without a comparison if the first candidate is not applicable
MIN_HIDDEN_PAIRS = 20  # fewest hidden pairs for a comparison
MAX_MATRIX_CLASSES = 100  # larger confusion matrices cannot be estimated from the labels and take minutes
MAX_COMPARED_LABELS = 50_000  # labels used in a comparison
TIE_STANDARD_ERRORS = 2.0  # differences up to this many standard errors are ties
SPLIT_BYTES_PER_LABEL = 32  # memory for splitting labels: pairs, their order, and copies of rows


class Gap(NamedTuple):
    """Difference between the best score and a candidate's score on the same hidden labels, in nats."""

    mean: float
    error: float  # standard error, paired over items

    @property
    def tied(self) -> bool:
        """True if the difference is within two standard errors."""
        return self.mean <= TIE_STANDARD_ERRORS * self.error

    def __str__(self) -> str:
        if not self.mean:
            return "best"
        return f"{self.mean:.4f} ± {self.error:.4f}{', tied' if self.tied else ''}"


BEST = Gap(0.0, 0.0)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Scores of one candidate on the hidden labels."""

    model: Model  # settings of the candidate; not fitted
    score: float  # mean log P(label | item, annotator)
    score_items: float  # mean log P(label | item)
    n_hidden: int  # number of hidden labels
    seconds: float  # time of fit and scoring
    contradicted: int  # unanimous items whose answer has an estimated share below 0.6
    logs: Array  # (2, hidden): log P of each label given item and annotator, and given item
    item: NDArray[np.int32]  # (hidden,): items of the hidden labels
    behind: Gap = BEST  # distance to the best score
    behind_items: Gap = BEST  # distance to the best ``score_items``

    @property
    def error(self) -> float | None:
        """Standard error of the score, over items; None if a hidden label has probability 0."""
        return self._mean_over_items(self.logs[0]).error if np.isfinite(self.logs[0]).all() else None

    def _mean_over_items(self, rows: Array) -> Gap:
        """Return the mean over hidden labels with its standard error over items."""
        mean = float(rows.mean())
        sums = np.bincount(self.item, rows - mean)
        return Gap(mean, float(np.sqrt((sums**2).sum()) / len(rows)))

    def as_row(self) -> dict[str, Any]:
        """Return the scores as plain values, for tables and JSON."""
        gaps: dict[str, Any] = {}
        for name, gap in (("behind", self.behind), ("behind_items", self.behind_items)):
            gaps |= {name: gap.mean, f"{name}_error": gap.error, f"{name}_tied": gap.tied}
        row: dict[str, Any] = {"model": name_of(self.model), "settings": self.model.get_params(deep=False)}
        row |= {"score": self.score, "score_items": self.score_items, "score_error": self.error, **gaps}
        seconds = round(self.seconds, 3)
        return row | {"n_hidden": self.n_hidden, "seconds": seconds, "contradicted": self.contradicted}

    def measure(self, estimate: str) -> float:
        """Return the score for the given estimate."""
        return self.score_items if estimate == "population" else self.score

    def gap(self, estimate: str) -> Gap:
        """Return the distance to the best candidate by the score for the given estimate."""
        return self.behind_items if estimate == "population" else self.behind

    def ahead_of(self, other: HeldOut, estimate: str) -> Gap:
        """Return the score minus that of another candidate on the same hidden labels, with its error."""
        row = 1 if estimate == "population" else 0
        with np.errstate(invalid="ignore"):
            difference = self.logs[row] - other.logs[row]
            if not np.isfinite(difference).all():
                return Gap(float(np.subtract(self.measure(estimate), other.measure(estimate))), 0.0)
        return self._mean_over_items(difference)


@dataclass(frozen=True)
class Choice:
    """The chosen model (fitted only by :func:`choose_truth`), all candidates, and the reason."""

    model: Model
    table: list[Any]  # HeldOut or TruthCandidate of every candidate
    reason: str


def compare(
    labels: Any,
    seed: int = 0,
    *,
    estimate: str = "population",
    candidates: Candidates = CANDIDATES,
    test_size: float = 0.2,
    n_jobs: int = -1,
    progress: ShowProgress = None,
) -> Choice:
    """Choose the candidate that best predicts hidden labels; the chosen model is not fitted.

    Candidates that are not applicable are skipped: those with more clusters than the labels allow
    (``sizes_fit_labels``), those that need annotators if the data have none, those that need more memory than
    available, and those with a table of answers per annotator if there are more than ``MAX_MATRIX_CLASSES``
    classes. With too few labels for a comparison, the first candidate is chosen and the table is empty. With
    more than ``MAX_COMPARED_LABELS`` labels, the comparison uses a random subset of the items.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    seed
        Seed of the random numbers; the same seed gives identical results.
    estimate
        Models are compared by the probability of labels given the item (``"population"``) or given item and
        annotator (``"annotators"``).
    candidates
        Names and settings of the models to compare.
    test_size
        Share of the (item, annotator) pairs to hide.
    n_jobs
        Number of threads; −1 uses all cores. The result does not depend on it.
    progress
        True or False, a function called with (title, share done), or None for a bar on a terminal.
    """
    check_rules("compare", ESTIMATES, estimate=estimate)
    annotations = as_annotations(labels)
    candidates = _candidates(annotations, candidates)
    obstacle = ""
    if int(pairs_per_item(annotations).max(initial=0)) < 2:
        obstacle = "no item has labels by two annotators"
    elif round(test_size * annotations.n_pairs) < MIN_HIDDEN_PAIRS:
        obstacle = "too few labels to compare models"
    if obstacle:
        first, settings = candidates[0]
        model = build_model(first, settings, seed=seed, n_jobs=n_jobs)
        if not is_applicable(model, annotations):
            model = build_model(FALLBACK_MODEL, {}, seed=seed, n_jobs=n_jobs)
        return Choice(model, [], f"{obstacle}: {title_of(model)} without a comparison")
    models = [build_model(name, settings, seed=seed, n_jobs=n_jobs) for name, settings in candidates]
    applicable = [model for model in models if is_applicable(model, annotations)]
    if not applicable:  # too little memory: fitting the smallest model reports what it needs
        applicable = [min(models, key=lambda model: model.memory_needed(annotations))]
    sample = annotations
    if annotations.n_labels > MAX_COMPARED_LABELS:
        order = np.random.default_rng(seed).permutation(annotations.n_items)
        within = np.cumsum(np.diff(annotations.item_pointers)[order]) <= MAX_COMPARED_LABELS
        sample = annotations.take_items(np.sort(order[within]))
    table = held_out_scores(sample, applicable, seed, test_size=test_size, n_jobs=n_jobs, progress=progress)
    names = {name for name, _ in candidates}
    default = next((name for name in DEFAULTS if name in names), None)
    choice = _chosen(table, estimate, default)
    wide = dict.fromkeys(name_of(model) for model in models if _too_wide(model, annotations))
    note = f"; not applicable to {annotations.n_classes:,} classes: {', '.join(wide)}" if wide else ""
    return replace(choice, reason=choice.reason + note)


def _too_wide(model: Model, annotations: Annotations) -> bool:
    """Return True if a model has a table of answers per annotator and there are too many classes for it."""
    has_tables = model._sizes_are_bounds or isinstance(model, ConfusionModel)
    return has_tables and annotations.n_classes > MAX_MATRIX_CLASSES


def _candidates(annotations: Annotations, candidates: Candidates) -> Candidates:
    """Return the candidates for the type of the labels; ordinal models come first for ordered classes."""
    by_type = {"numeric": RATING_CANDIDATES, "pairwise": PAIR_CANDIDATES, "multi": SET_CANDIDATES}
    if annotations.label_type in by_type:
        return by_type[annotations.label_type]
    if annotations.label_type != "ordinal" or annotations.n_classes < 3:
        return candidates
    if candidates is CANDIDATES:
        return ORDINAL_CANDIDATES
    return (("graded", {}), *candidates) if candidates is FAST_CANDIDATES else candidates


def _chosen(table: list[HeldOut], estimate: str, default: str | None) -> Choice:
    """Return the default if it is tied with the best, otherwise the simplest tied model, and the reason."""
    tied = [row for row in table if row.gap(estimate).tied]
    consistent = [row for row in tied if not row.contradicted] or tied
    defaults = [row for row in consistent if name_of(row.model) == default]
    chosen = defaults[0] if defaults else min(consistent, key=lambda row: simplicity(row.model))
    name, others = title_of(chosen.model), [title_of(row.model) for row in tied if row is not chosen]
    behind, best = chosen.gap(estimate), min(tied, key=lambda row: row.gap(estimate).mean)
    if chosen is best:
        also = f"; tied with {', '.join(others)}" if others else ""
        return Choice(chosen.model, table, f"{name} predicts hidden labels best{also}")
    skipped = [title_of(row.model) for row in tied if row.contradicted and row is not chosen]
    gap = f"{behind.mean:.4f} ± {behind.error:.4f} nats"
    why = "is the default" if defaults else "is the simplest" + (" of the others" if skipped else "")
    if skipped:
        was, gives = ("was", "it gives") if len(skipped) == 1 else ("were", "they give")
        why += (
            f"; {', '.join(skipped)} {was} skipped: on some items with {UNANIMOUS_LABELS} or more "
            f"unanimous labels, {gives} that answer less than {UNANIMOUS_SHARE:.0%}"
        )
    reason = f"{name} is tied with {title_of(best.model)} ({gap} behind) and {why}"
    return Choice(chosen.model, table, reason)


def with_gaps(table: Sequence[HeldOut]) -> list[HeldOut]:
    """Return the rows with their distances to the best row."""
    gaps = []
    for estimate in ("annotators", "population") if table else ():
        best = max(table, key=lambda row: row.measure(estimate))
        gaps.append([BEST if row is best else best.ahead_of(row, estimate) for row in table])
    rows = zip(table, *gaps, strict=True)
    return [replace(row, behind=pair, behind_items=item) for row, pair, item in rows]


def score_rows(scores: Iterable[HeldOut | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return scores as plain values; those of a finished run are plain values already."""
    return [row.as_row() if isinstance(row, HeldOut) else dict(row) for row in scores]


def comparison_settings(model: Model) -> dict[str, Any]:
    """Return the settings that replace a model's defaults in a comparison; other settings stay."""
    shorter, declared = COMPARISON_SETTINGS.get(name_of(model), {}), model._settings
    return {name: value for name, value in shorter.items() if getattr(model, name) == declared[name].default}


def held_out_scores(
    annotations: Annotations,
    models: Sequence[Model],
    seed: int = 0,
    *,
    test_size: float = 0.2,
    represent: Mapping[str, Any] | None = None,
    n_jobs: int = -1,
    progress: ShowProgress = None,
) -> list[HeldOut]:
    """Fit every model to one part of the labels and score it on the rest; empty if no label can be hidden.

    ``represent`` restricts the scored labels to some annotators (``{"kind": "human"}``). Every row has its
    distance to the best with its standard error, paired over items. With ``n_jobs`` above 1, models are
    fitted in parallel on one thread each.
    """
    with _reserve_memory(SPLIT_BYTES_PER_LABEL * annotations.n_labels):
        train, hidden = annotations.split_labels(test_size, seed)
        if represent:
            selected = rows_with_values(annotations.annotator_table, represent, "annotator")
            hidden = hidden.take_rows(selected[hidden.annotator])
        if not (train.n_labels and hidden.n_labels):
            return []
        # on a cluster, or with limited memory, one fit at a time uses all resources
        alone = current().n_cluster_threads > 0 or current().memory is not None
        n_at_once = 1 if alone else min(n_cores() if n_jobs == -1 else n_jobs, max(len(models), 1))
        done: list[Model] = []
        running: list[str] = []
        with shown(progress) as report, threads(n_at_once) as pool:

            def report_running() -> None:
                report(f"held-out labels: {', '.join(running)}", len(done) / len(models))

            def trial(model: Model) -> HeldOut:
                running.append(title_of(model))
                report_running()
                started = time.perf_counter()
                settings = comparison_settings(model)
                if n_at_once > 1 and hasattr(model, "n_jobs"):
                    settings["n_jobs"] = 1
                fitted = with_settings(model, settings).fit(train)  # a copy
                done.append(model)
                logs = np.stack([fitted.log_probabilities(hidden, annotators=pair) for pair in (True, False)])
                n_contradicted = 0
                if train.label_type != "numeric":
                    n_contradicted = len(contradicted(fitted.label_distributions_, train.counts))
                pair, item = (float(row.mean()) for row in logs)
                seconds = time.perf_counter() - started
                running.remove(title_of(model))
                if running:
                    report_running()
                return HeldOut(model, pair, item, hidden.n_labels, seconds, n_contradicted, logs, hidden.item)

            return with_gaps(pool.map(trial, models))


@contextmanager
def _reserve_memory(n_bytes: int) -> Iterator[None]:
    """Reduce the memory limit of fits inside the block by ``n_bytes``, if there is a limit."""
    limit = current().memory
    if limit is not None and 2 * n_bytes > limit:
        sizes = f"{size_words(n_bytes)} of memory besides the fit, and the limit is {size_words(limit)}"
        remedy = f"hold out none ({setting('test_size', 0)}), or raise {setting('memory')}"
        raise DataError(f"holding out labels takes {sizes}; {remedy}")
    with using(replace(current(), memory=None if limit is None else limit - n_bytes)):
        yield


def is_applicable(model: Model, annotations: Annotations) -> bool:
    """Return True if the labels have what the model needs and memory suffices."""
    if model.uses_features:
        table = annotations.item_table
        if table is None or not has_features(annotations):
            return False
        # features, or texts and the packages that embed them
        if FEATURES_COLUMN not in table.column_names and find_spec("sentence_transformers") is None:
            return False
    if (model._needs_annotators and annotations.anonymous) or _too_wide(model, annotations):
        return False
    if model.memory_needed(annotations) > (current().memory or physical_memory()):
        return False
    return model._sizes_are_bounds or sizes_fit_labels(model.get_params(deep=False), annotations)


# ---- one true class -----------------------------------------------------------------------------------
#
# In IBCC, the errors of annotators are independent given the item's class; in EBCC, the items of a class have
# subtypes, so annotators make the same errors. Both variational bounds contain all normalisers, so the model
# with the higher bound fits better. If it is EBCC, its answer is used; otherwise that of log-linear
# Dawid–Skene, a better estimate under independent errors and the simpler model if bounds are equal
# (measurements in docs/truth.md). Neither gold nor hidden labels are used for the choice: gold trains the
# chosen model, and its accuracy on gold can be cross-fitted without repeating the choice.

UNSEEN_PSEUDOCOUNT = 0.3
ModelSettings = tuple[str, dict[str, Any]]
INDEPENDENT_ERRORS: ModelSettings = ("ibcc", {"unseen": UNSEEN_PSEUDOCOUNT, "max_iter": 100, "tol": 1e-5})
SHARED_ERRORS: ModelSettings = ("ebcc", {"unseen": UNSEEN_PSEUDOCOUNT, "tol": 1e-5})
TRUTH_DEFAULT: ModelSettings = ("log-linear", {"unseen": UNSEEN_PSEUDOCOUNT})


@dataclass(frozen=True)
class TruthCandidate:
    """A model fitted for the choice by :func:`choose_truth`."""

    model: Model
    bound: float
    seconds: float

    def as_row(self) -> dict[str, Any]:
        """Return name, bound and time as plain values."""
        return {"model": name_of(self.model), "bound": self.bound, "seconds": round(self.seconds, 3)}


def choose_truth(
    labels: Any, seed: int = 0, *, prior: Any = None, n_jobs: int = -1, progress: ShowProgress = None
) -> Choice:
    """Choose and fit a model of one true class: log-linear Dawid–Skene, or EBCC if its bound is higher.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    seed
        Seed of the random numbers; the same seed gives identical results.
    prior
        (items, classes): prior of each item's class, as from ``gold_prior`` (models/confusion.py). It is used
        in the fit of the chosen model, but not for the choice.
    n_jobs
        Number of threads; −1 uses all cores. The result does not depend on it.
    progress
        True or False, a function called with (title, share done), or None for a bar on a terminal.
    """
    annotations = as_annotations(labels)
    if annotations.anonymous:
        model = build_model("majority", {}).fit(annotations)
        return Choice(model, [], "the annotators are unknown, so all labels count equally")
    with shown(progress) as report:

        def fit(name: str, settings: Any, done: float, prior: Any = None) -> TruthCandidate:
            report(f"fitting {name} to all labels", done)
            started = time.perf_counter()
            model: Any = build_model(name, settings, seed=seed, n_jobs=n_jobs, estimate="truth")
            model.fit(annotations, prior=prior)
            return TruthCandidate(model, float(model.trace_[-1]), time.perf_counter() - started)

        independent, shared = fit(*INDEPENDENT_ERRORS, 0.0), fit(*SHARED_ERRORS, 0.1)
        difference = shared.bound - independent.bound
        table, chosen = [independent, shared], shared
        if difference <= 0:
            chosen = fit(*TRUTH_DEFAULT, 0.5, prior)
            table.append(chosen)
        elif prior is not None:
            chosen = fit(*SHARED_ERRORS, 0.5, prior)
        return Choice(chosen.model, table, reason(annotations, difference))


def reason(annotations: Annotations, difference: float) -> str:
    """Explain the choice by the bounds, and mention shared errors if the raw labels confirm them."""
    shared = shared_errors(annotations)
    side = "above" if difference > 0 else "below"
    bounds = f"the lower bound of ebcc is {abs(difference):,.1f} nats {side} that of ibcc"
    if difference > 0 and shared.low > 0:
        return f"annotators make the same errors: {bounds}"
    if difference <= 0 and not shared.low > 0:
        return f"annotators make independent errors: {bounds}"
    finding = "does not confirm" if difference > 0 else "indicates"
    return f"{bounds}; a direct test of the raw labels {finding} shared errors"
