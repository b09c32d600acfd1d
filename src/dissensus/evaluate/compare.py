"""Which model describes these labels best? The one that best predicts labels it has not seen.

A fifth of the (item, annotator) pairs is hidden; every candidate is fitted to the rest and asked for the
probability of each hidden label, in nats. What counts is the answer that was asked for (``estimate``): for
the ``"population"``, P(label | item); for known ``"annotators"``, P(label | item, annotator).

Candidates that differ by less than two standard errors (paired over items) are tied. Among the tied, those
whose answers contradict no unanimous item come first. Of these the simplest is taken (by the order of
``MODELS``, models/__init__.py); but ``fit`` has a default (``DEFAULTS``: HPGM, for one), which stays where it
is among them, as only evidence may say otherwise.

A candidate of very many iterations gets a first look of a few: if it is then far behind the best, it is not
fitted to the end. docs/selection.md has the rule, and what it changes: nothing but the time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError
from dissensus.evaluate.sizes import fits
from dissensus.execution.resources import current, using
from dissensus.execution.threads import executor
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import COLUMN, carries_features
from dissensus.labels.rows import pairs_per_item, with_values
from dissensus.models import build_model, name_of, simplicity, title_of
from dissensus.models.base import LEAST_SHARE, UNANIMOUS, Model, contradicted
from dissensus.models.confusion import ConfusionModel
from dissensus.numerics import Array
from dissensus.params import Rule, check_rules, choice, n_cores, size_words, with_settings
from dissensus.progress import Progress, ShowProgress, shown

#: The models that ``fit`` takes unless another is clearly better, for labels of one kind or another. None of
#: them is the simplest: they are the ones with sampled intervals, and what the other commands build on.
DEFAULTS = ("ordinal", "hpgm", "ratings", "sets", "bradley-terry")
#: What is tried: the name of a model and the settings to try it with.
CANDIDATES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("hpgm", {}),
    ("hpgm", {"use_features": True}),
    ("empirical", {}),
    ("fmm", {"n_item_clusters": 8}),
    ("fmm", {"n_item_clusters": 16}),
    ("dawid-skene", {}),
    ("cbcc", {}),
    ("pgm", {"n_item_clusters": 12, "n_annotator_clusters": 8}),
)
#: Candidates that are fitted by EM: seconds instead of minutes, and no intervals.
FAST_CANDIDATES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    *CANDIDATES[2:],
    ("pgm", {"n_item_clusters": 20, "n_annotator_clusters": 20, "inference": "vb"}),
)
#: Candidates with the best predictor among them, which takes several times as long as the others together.
THOROUGH_CANDIDATES: tuple[tuple[str, Mapping[str, Any]], ...] = (*CANDIDATES, ("latent", {}))
#: What is tried where classes have an order.
ORDINAL_CANDIDATES: tuple[tuple[str, Mapping[str, Any]], ...] = (("ordinal", {}), ("graded", {}), *CANDIDATES)
#: What is tried for labels that are numbers: annotators' ways and outliers minded, and not.
RATING_CANDIDATES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("ratings", {}),
    ("ratings", {"bias": False, "scale": False, "robust": False}),
)
#: What is tried for comparisons: whatever else predicts answers, only scores rank.
PAIR_CANDIDATES: tuple[tuple[str, Mapping[str, Any]], ...] = (("bradley-terry", {}),)
#: What is tried for sets: classes that depend on each other, and each class apart.
SET_CANDIDATES: tuple[tuple[str, Mapping[str, Any]], ...] = (("sets", {}), ("sets", {"dependence": False}))
# Settings for the comparison alone: shorter chains tell as well which model is better.
FOR_COMPARISON: Mapping[str, Mapping[str, Any]] = {
    "hpgm": {"n_chains": 2, "n_sweeps": 90},
    "ordinal": {"n_chains": 2, "n_sweeps": 90},
    "ratings": {"n_sweeps": 60},
    "latent": {"n_chains": 1, "n_sweeps": 120},
}

# A first look at what takes by far the most iterations: hidden labels are foreseen nearly as in the end.
FIRST_LOOK: Mapping[str, Mapping[str, Any]] = {"cbcc": {"max_iter": 20}}
HOPELESS = 5.0  # standard errors behind the best, and
FAR_BEHIND = 0.02  # nats: after the first look, no further iteration makes up for it

ESTIMATES: dict[str, Rule] = {"estimate": choice("population", "annotators")}
FALLBACK = "empirical"  # where nothing can be compared and the first candidate does not apply
FEWEST_HIDDEN = 20  # hidden pairs that a choice needs
MANY_CLASSES = 100  # a matrix of 100 × 100 cells an annotator is more than labels can fill, and takes minutes
MOST_LABELS = 50_000  # labels that a choice is based on
TIED = 2.0  # standard errors up to which a difference is none
HIDING_BYTES = 32  # a label, to cut labels into two parts: their pairs, an order of those, and copies of rows


class Gap(NamedTuple):
    """How far a candidate is behind the best one on the same hidden labels, in nats."""

    mean: float
    error: float  # standard error, paired over items

    @property
    def tied(self) -> bool:
        """Is the difference none? Of the best one too."""
        return self.mean <= TIED * self.error

    def __str__(self) -> str:
        if not self.mean:
            return "best"
        return f"{self.mean:.4f} ± {self.error:.4f}{', tied' if self.tied else ''}"


@dataclass(frozen=True, eq=False)
class HeldOut:
    """How well one candidate predicted the hidden labels."""

    model: Model  # its settings; not fitted
    score: float  # mean log P(label | item, annotator)
    score_items: float  # mean log P(label | item)
    n_hidden: int  # labels hidden
    seconds: float  # to fit and to score
    contradicted: int = 0  # unanimous items whose common answer got less than 0.6
    logs: Array | None = None  # (2, hidden): log P of each label given item and annotator, and given item
    item: NDArray[np.int32] | None = None  # (hidden,): the hidden labels' items
    whole: bool = True  # False: it was far behind at the first look, and the scores are of then
    behind: Gap | None = None  # the best score less its own, of those that it was compared with
    behind_items: Gap | None = None  # the same of ``score_items``

    @property
    def error(self) -> float | None:
        """Standard error of the score, over items; None where it is not known."""
        if self.logs is None or self.item is None or not np.isfinite(self.logs[0]).all():
            return None
        sums = np.bincount(self.item, self.logs[0] - self.logs[0].mean())
        return float(np.sqrt((sums**2).sum()) / self.logs.shape[1])

    def as_row(self) -> dict[str, Any]:
        """The same as plain values, for tables and JSON."""
        return {
            "model": name_of(self.model),
            "settings": self.model.get_params(deep=False),
            "score": self.score,
            "score_items": self.score_items,
            "score_error": self.error,
            **_gap_row("behind", self.behind),
            **_gap_row("behind_items", self.behind_items),
            "n_hidden": self.n_hidden,
            "seconds": round(self.seconds, 3),
            "contradicted": self.contradicted,
            "whole": self.whole,
        }

    def measure(self, estimate: str) -> float:
        """The score that answers the question."""
        return self.score_items if estimate == "population" else self.score

    def gap(self, estimate: str) -> Gap | None:
        """How far it is behind the best by the score that answers the question; None where not compared."""
        return self.behind_items if estimate == "population" else self.behind

    def ahead_of(self, other: HeldOut, estimate: str) -> Gap:
        """By how much it is better than another on the same hidden labels, and the standard error of that.

        Labels of one item move together, so it is items that the error is taken over.
        """
        which = 1 if estimate == "population" else 0
        assert self.logs is not None
        assert other.logs is not None
        assert self.item is not None
        with np.errstate(invalid="ignore"):
            difference = self.logs[which] - other.logs[which]
        if not np.isfinite(difference).all():
            with np.errstate(invalid="ignore"):
                return Gap(float(np.subtract(self.measure(estimate), other.measure(estimate))), 0.0)
        mean = float(difference.mean())
        sums = np.bincount(self.item, difference - mean)
        return Gap(mean, float(np.sqrt((sums**2).sum()) / len(difference)))


def _gap_row(name: str, gap: Gap | None) -> dict[str, Any]:
    """A gap as plain values: the mean, its standard error, and whether it counts as none."""
    mean, error, tied = (None, None, None) if gap is None else (*gap, gap.tied)
    return {name: mean, f"{name}_error": error, f"{name}_tied": tied}


@dataclass(frozen=True)
class Choice:
    """The model to fit to all labels, how every candidate did, and why it is this one."""

    model: Model
    table: list[HeldOut]
    reason: str


def choose_model(
    annotations: Annotations,
    seed: int = 0,
    *,
    estimate: str = "population",
    candidates: Sequence[tuple[str, Mapping[str, Any]]] = CANDIDATES,
    simplest: bool = False,
    test_size: float = 0.2,
    n_jobs: int = -1,
    progress: ShowProgress = None,
) -> Choice:
    """The candidate that best predicts hidden labels (not fitted yet), how each did, and the reason.

    Candidates that cannot apply are left out: those with more clusters than fit the labels (``sizes.py``),
    those that need annotators where the data have none, those that need more memory than there is, and, with
    more than ``MANY_CLASSES`` classes, those with a table of answers per annotator. Where labels cannot tell
    models apart, the first candidate is taken and the table is empty; where there are very many, a seeded
    part of the items (as many as have ``MOST_LABELS`` labels) stands for all.

    Parameters
    ----------
    annotations
        The labels to choose for.
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    estimate
        What models are compared by: ``"population"``, labels given the item, or ``"annotators"``, labels
        given item and annotator.
    candidates
        Names and settings of the models to compare.
    simplest
        Whether the simplest of those that are tied wins in any case; otherwise the default does (HPGM; for
        an order OrdinalHPGM) where it is one of them.
    test_size
        Share of the (item, annotator) pairs that is hidden.
    n_jobs
        Number of threads; −1 takes all cores. The result does not depend on it.
    progress
        True or False, a function that is told (what, share done), or None: a bar on a terminal.
    """
    check_rules("choose_model", ESTIMATES, estimate=estimate)
    candidates = _candidates(annotations, candidates)
    why_not = _cannot_compare(annotations, test_size)
    if why_not:
        first, settings = candidates[0]
        model = build_model(first, settings, seed=seed, n_jobs=n_jobs)
        if not applies(model, annotations):
            model = build_model(FALLBACK, {}, seed=seed, n_jobs=n_jobs)
        return Choice(model, [], f"{why_not}: {title_of(model)}, without a comparison")
    models = [build_model(name, settings, seed=seed, n_jobs=n_jobs) for name, settings in candidates]
    fitting = [model for model in models if applies(model, annotations)]
    sample = _sample(annotations, seed)
    shared: dict[str, Any] = {"test_size": test_size, "n_jobs": n_jobs, "progress": progress}
    table = compare(sample, fitting, seed, stop_for=estimate, **shared)
    found = _chosen(table, estimate, None if simplest else _default(candidates))
    return replace(found, reason=found.reason + _not_tried(models, annotations))


def _not_tried(models: Sequence[Model], annotations: Annotations) -> str:
    """A word on candidates that so many classes rule out."""
    wide = dict.fromkeys(name_of(model) for model in models if _too_wide(model, annotations))
    return f"; not tried with {annotations.n_classes:,} classes: {', '.join(wide)}" if wide else ""


def _too_wide(model: Model, annotations: Annotations) -> bool:
    """Whether the classes are too many for tables of answers per annotator, or drawn anew in every sweep."""
    has_tables = model._sizes_are_bounds or isinstance(model, ConfusionModel)
    return has_tables and annotations.n_classes > MANY_CLASSES


def _candidates(
    annotations: Annotations, usual: Sequence[tuple[str, Mapping[str, Any]]]
) -> Sequence[tuple[str, Mapping[str, Any]]]:
    """The candidates that suit the labels' type: those of an order come first where there is one."""
    if annotations.label_type == "numeric":
        return RATING_CANDIDATES
    if annotations.label_type == "pairwise":
        return PAIR_CANDIDATES
    if annotations.label_type == "multi":
        return SET_CANDIDATES
    if annotations.label_type != "ordinal" or annotations.n_classes < 3:
        return usual
    if usual is CANDIDATES:
        return ORDINAL_CANDIDATES
    if usual is THOROUGH_CANDIDATES:
        return (*ORDINAL_CANDIDATES, ("latent", {}))
    return (("graded", {}), *usual) if usual is FAST_CANDIDATES else usual


def _cannot_compare(annotations: Annotations, test_size: float) -> str:
    """Why nothing can be chosen by hidden labels; empty where it can."""
    if int(pairs_per_item(annotations).max(initial=0)) < 2:  # repeated labels of one annotator tell nothing
        return "no item has two labels, so nothing tells how labels of an item go together"
    if round(test_size * annotations.n_pairs) < FEWEST_HIDDEN:
        return "too few labels to choose by"
    return ""


def _default(candidates: Sequence[tuple[str, Mapping[str, Any]]]) -> str | None:
    """The name of the candidate that is the default of ``fit``; None where there is none among them."""
    names = {name for name, _ in candidates}
    return next((name for name in DEFAULTS if name in names), None)


def _chosen(table: list[HeldOut], estimate: str, default: str | None) -> Choice:
    tied = [row for row in table if row.whole and _gap(row, estimate).tied]
    true = [row for row in tied if not row.contradicted] or tied
    usual = [row for row in true if name_of(row.model) == default]
    taken = usual[0] if usual else min(true, key=lambda row: simplicity(row.model))
    return Choice(taken.model, table, _reason(taken, tied, estimate, bool(usual)))


def with_gaps(table: Sequence[HeldOut]) -> list[HeldOut]:
    """The rows, each with how far it is behind the best of those that were fitted to the end."""
    if not any(row.whole for row in table):
        return list(table)
    gaps = zip(_gaps(table, "annotators"), _gaps(table, "population"), strict=True)
    return [
        replace(row, behind=pair, behind_items=item) for row, (pair, item) in zip(table, gaps, strict=True)
    ]


def _gaps(table: Sequence[HeldOut], estimate: str) -> list[Gap]:
    best = max((row for row in table if row.whole), key=lambda row: row.measure(estimate))
    return [Gap(0.0, 0.0) if row is best else best.ahead_of(row, estimate) for row in table]


def _gap(row: HeldOut, estimate: str) -> Gap:
    gap = row.gap(estimate)
    assert gap is not None
    return gap


def _reason(taken: HeldOut, tied: list[HeldOut], estimate: str, usual: bool) -> str:
    name, others = title_of(taken.model), [title_of(row.model) for row in tied if row is not taken]
    if not others:
        return f"{name} predicts hidden labels best"
    behind, best = _gap(taken, estimate), min(tied, key=lambda row: _gap(row, estimate).mean)
    if taken is best:
        return f"{name} predicts hidden labels best; tied with {', '.join(others)}"
    skipped = [title_of(row.model) for row in tied if row.contradicted and row is not taken]
    truth = f"; {passed_over(skipped)}" if skipped else ""
    gap = f"{behind.mean:.4f} ± {behind.error:.4f} nats"
    why = "is the default" if usual else "is the simplest" + (" of the others" if skipped else "")
    return f"{name} is tied with {title_of(best.model)} ({gap} behind) and {why}{truth}"


def passed_over(names: Sequence[str]) -> str:
    """Why models that are tied with the best are not taken."""
    one = len(names) == 1
    gives = "it gives" if one else "they give"
    return (
        f"{', '.join(names)} {'was' if one else 'were'} passed over: on some items with {UNANIMOUS} labels "
        f"or more that all agree, {gives} the common answer less than {LEAST_SHARE:.0%}"
    )


def compare(
    annotations: Annotations,
    models: Sequence[Model],
    seed: int = 0,
    *,
    test_size: float = 0.2,
    represent: Mapping[str, Any] | None = None,
    stop_for: str | None = None,
    n_jobs: int = -1,
    progress: ShowProgress = None,
) -> list[HeldOut]:
    """Fit every model to one part of the labels and score it on the rest; empty if none can be hidden.

    ``represent`` scores the rest's labels of those annotators alone (``{"kind": "human"}``). ``stop_for`` is
    a question, ``"population"`` or ``"annotators"``: models that a first look finds far behind the best by
    its measure are not fitted to the end, and their rows say so.
    Every row says how far it is behind the best one, with the standard error of the difference (paired over
    items).
    ``n_jobs`` models are fitted side by side, on one thread each; one at a time, on as many as they say.
    """
    with _beside(HIDING_BYTES * annotations.n_labels):
        kept, hidden = annotations.split_labels(test_size, seed)
        if represent:
            asked = with_values(annotations.annotator_table, represent, "annotator")
            hidden = hidden.take_rows(asked[hidden.annotator])
        if not (kept.n_labels and hidden.n_labels):
            return []
        with shown(progress) as tell:
            return with_gaps(_compared(kept, hidden, models, stop_for, n_jobs, tell))


@contextmanager
def _beside(taken: int) -> Iterator[None]:
    """Where memory is limited, fits inside the block have so much less of it."""
    used = current()
    if used.memory is None:
        yield
        return
    if 2 * taken > used.memory:
        raise DataError(
            f"hiding labels to judge a model by takes {size_words(taken)} of memory beside the fit, and "
            f"{size_words(used.memory)} are allowed in all; hide none (test_size=0), or allow more memory="
        )
    with using(replace(used, memory=used.memory - taken)):
        yield


def _compared(
    kept: Annotations,
    hidden: Annotations,
    models: Sequence[Model],
    stop_for: str | None,
    n_jobs: int,
    tell: Progress,
) -> list[HeldOut]:
    # On a cluster each fit has all of it to itself, and where memory is limited all of that.
    alone = current().client is not None or current().memory is not None
    n_at_once = 1 if alone else min(n_cores() if n_jobs == -1 else n_jobs, max(len(models), 1))
    done: list[str] = []

    def trial(model: Model, look: Mapping[str, Any]) -> HeldOut:
        tell(f"held-out labels: {title_of(model)}", min(len(done) / len(models), 1.0))
        started = time.perf_counter()
        # A copy, so that the candidate itself stays unfitted.
        own = {**FOR_COMPARISON.get(name_of(model), {}), **look}
        if n_at_once > 1 and hasattr(model, "n_jobs"):
            own["n_jobs"] = 1
        fitted = with_settings(model, own).fit(kept)
        whole = not look or fitted.stopped_ != "max_iter"
        if whole:
            done.append(repr(model))
        found = _scored(model, fitted, kept, hidden)
        return replace(found, seconds=time.perf_counter() - started, whole=whole)

    looks = [_first_look(model) if stop_for else {} for model in models]
    with executor(n_at_once) as pool:
        table = pool.map(lambda number: trial(models[number], looks[number]), range(len(models)))
        again = [] if stop_for is None else _hopeful(table, stop_for)
        for number, row in zip(again, pool.map(lambda number: trial(models[number], {}), again), strict=True):
            table[number] = replace(row, seconds=row.seconds + table[number].seconds)
    return table


def _first_look(model: Model) -> Mapping[str, Any]:
    """The settings of a first look; none for a model that stops no later by itself."""
    look = FIRST_LOOK.get(name_of(model), {})
    return look if all((getattr(model, name) or math.inf) > value for name, value in look.items()) else {}


def _hopeful(table: Sequence[HeldOut], estimate: str) -> list[int]:
    """Which of the rows of a first look are not far behind the best row."""
    best = max(table, key=lambda row: row.measure(estimate))
    hopeful = []
    for number, row in enumerate(table):
        behind, error = best.ahead_of(row, estimate)
        if not row.whole and behind <= max(HOPELESS * error, FAR_BEHIND):
            hopeful.append(number)
    return hopeful


def _scored(model: Model, fitted: Model, kept: Annotations, hidden: Annotations) -> HeldOut:
    """What a fit to the kept labels makes of the hidden ones."""
    logs = np.stack([fitted.log_chances(hidden), fitted.log_chances(hidden, annotators=False)])
    known = kept.label_type != "numeric"
    ignored = len(contradicted(fitted.label_distributions_, kept.counts)) if known else 0
    means = [float(row.mean()) for row in logs]
    return HeldOut(model, means[0], means[1], hidden.n_labels, 0.0, ignored, logs, hidden.item)


def _sample(annotations: Annotations, seed: int) -> Annotations:
    """Items drawn at random until they have ``MOST_LABELS`` labels; all of them where there are no more."""
    if annotations.n_labels <= MOST_LABELS:
        return annotations
    order = np.random.default_rng(seed).permutation(annotations.n_items)
    within = np.cumsum(np.diff(annotations.item_pointers)[order]) <= MOST_LABELS
    return annotations.take_items(np.sort(order[within]))


def applies(model: Model, annotations: Annotations) -> bool:
    """Whether these labels have what the model needs, and it does not need more than there is."""
    if model.uses_features and not _has_features(annotations):
        return False
    if model._needs_annotators and annotations.anonymous:
        return False
    if _too_wide(model, annotations):
        return False
    used = current()
    if not used.has_room(model._needs(annotations, used.itemsize)):
        return False
    return model._sizes_are_bounds or fits(model.get_params(deep=False), annotations)


def _has_features(annotations: Annotations) -> bool:
    """Whether items come with features, or with a text and the packages to make features of it."""
    table = annotations.item_table
    if table is None or not carries_features(annotations):
        return False
    return COLUMN in table.column_names or find_spec("sentence_transformers") is not None
