"""Which model describes these labels best? The one that best predicts labels it has not seen.

A fifth of the (item, annotator) pairs is hidden; every candidate is fitted to the rest and asked for the
probability of each hidden label, in nats. What counts is the answer that was asked for (``estimate``): for
the ``"population"``, P(label | item); for known ``"annotators"``, P(label | item, annotator).

Candidates that differ by less than two standard errors (paired over items) are tied. Among the tied, those
whose answers contradict no unanimous item come first. Of these the simplest is taken (by the order of
``MODELS``, models/__init__.py); but ``fit`` has a default (``DEFAULTS``: HPGM, for one), which stays where it
is among them, as only evidence may say otherwise. Where one true class is asked for, bounds choose
(:func:`choose_truth`, at the end of this file).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import current, threads, using
from dissensus.errors import DataError, setting
from dissensus.evaluate.sides import shared_errors
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import COLUMN, carries_features
from dissensus.labels.rows import pairs_per_item, with_values
from dissensus.labels.sources import as_annotations
from dissensus.models import build_model, fits, name_of, simplicity, title_of
from dissensus.models.base import Model
from dissensus.models.confusion import ConfusionModel
from dissensus.models.hpgm.adjustments import UNANIMOUS_LABELS, UNANIMOUS_SHARE, contradicted
from dissensus.numerics import Array
from dissensus.params import Rule, check_rules, choice, n_cores, physical_memory, size_words, with_settings
from dissensus.progress import ShowProgress, shown

#: The models that ``fit`` takes unless another is clearly better, for labels of one kind or another. None of
#: them is the simplest: they are the ones with sampled intervals, and what the other commands build on.
DEFAULTS = ("ordinal", "hpgm", "ratings", "sets", "bradley-terry")
Candidates = Sequence[tuple[str, Mapping[str, Any]]]
#: What is tried: the name of a model and the settings to try it with.
CANDIDATES: Candidates = (
    ("hpgm", {}),
    ("hpgm", {"use_features": True}),
    ("empirical", {}),
    ("fmm", {"n_item_clusters": 8}),
    ("fmm", {"n_item_clusters": 16}),
    ("dawid-skene", {}),
    ("pgm", {"n_item_clusters": 12, "n_annotator_clusters": 8}),
)
#: Candidates that are fitted by EM: seconds instead of minutes, and no intervals.
FAST_CANDIDATES: Candidates = (
    *CANDIDATES[2:],
    ("pgm", {"n_item_clusters": 20, "n_annotator_clusters": 20, "inference": "vb"}),
)
#: Candidates with the best predictor among them, which takes several times as long as the others together.
THOROUGH_CANDIDATES: Candidates = (*CANDIDATES, ("latent", {}))
#: What is tried where classes have an order.
ORDINAL_CANDIDATES: Candidates = (("ordinal", {}), ("graded", {}), *CANDIDATES)
#: What is tried for labels that are numbers: annotators' ways and outliers minded, and not.
RATING_CANDIDATES: Candidates = (
    ("ratings", {}),
    ("ratings", {"bias": False, "scale": False, "robust": False}),
)
#: What is tried for comparisons: whatever else predicts answers, only scores rank.
PAIR_CANDIDATES: Candidates = (("bradley-terry", {}),)
#: What is tried for sets: classes that depend on each other, and each class apart.
SET_CANDIDATES: Candidates = (("sets", {}), ("sets", {"dependence": False}))
# Settings for the comparison alone: shorter chains tell as well which model is better.
FOR_COMPARISON: Mapping[str, Mapping[str, Any]] = {
    "hpgm": {"n_chains": 2, "n_sweeps": 90},
    "ordinal": {"n_chains": 2, "n_sweeps": 90},
    "ratings": {"n_sweeps": 60},
    "latent": {"n_chains": 1, "n_sweeps": 120},
}

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


BEST = Gap(0.0, 0.0)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """How well one candidate predicted the hidden labels."""

    model: Model  # its settings; not fitted
    score: float  # mean log P(label | item, annotator)
    score_items: float  # mean log P(label | item)
    n_hidden: int  # labels hidden
    seconds: float  # to fit and to score
    contradicted: int  # unanimous items whose common answer got less than 0.6
    logs: Array  # (2, hidden): log P of each label given item and annotator, and given item
    item: NDArray[np.int32]  # (hidden,): the hidden labels' items
    behind: Gap = BEST  # the best score less its own, of those that it was compared with
    behind_items: Gap = BEST  # the same of ``score_items``

    @property
    def error(self) -> float | None:
        """Standard error of the score, over items; None where it is not known."""
        return self._mean_over_items(self.logs[0]).error if np.isfinite(self.logs[0]).all() else None

    def _mean_over_items(self, rows: Array) -> Gap:
        """Mean over the hidden labels; those of one item move together, so the error is over items."""
        mean = float(rows.mean())
        sums = np.bincount(self.item, rows - mean)
        return Gap(mean, float(np.sqrt((sums**2).sum()) / len(rows)))

    def as_row(self) -> dict[str, Any]:
        """The same as plain values, for tables and JSON."""
        gaps: dict[str, Any] = {}
        for name, gap in (("behind", self.behind), ("behind_items", self.behind_items)):
            gaps |= {name: gap.mean, f"{name}_error": gap.error, f"{name}_tied": gap.tied}
        return {
            "model": name_of(self.model),
            "settings": self.model.get_params(deep=False),
            "score": self.score,
            "score_items": self.score_items,
            "score_error": self.error,
            **gaps,
            "n_hidden": self.n_hidden,
            "seconds": round(self.seconds, 3),
            "contradicted": self.contradicted,
        }

    def measure(self, estimate: str) -> float:
        """The score that answers the question."""
        return self.score_items if estimate == "population" else self.score

    def gap(self, estimate: str) -> Gap:
        """How far it is behind the best by the score that answers the question."""
        return self.behind_items if estimate == "population" else self.behind

    def ahead_of(self, other: HeldOut, estimate: str) -> Gap:
        """By how much it is better than another on the same hidden labels, and the standard error of that."""
        which = 1 if estimate == "population" else 0
        with np.errstate(invalid="ignore"):
            difference = self.logs[which] - other.logs[which]
            if not np.isfinite(difference).all():
                return Gap(float(np.subtract(self.measure(estimate), other.measure(estimate))), 0.0)
        return self._mean_over_items(difference)


@dataclass(frozen=True)
class Choice:
    """The model to fit to all labels (fitted already, where truth is sought), and why it is this one."""

    model: Model
    table: list[Any]  # how every candidate did: HeldOut, or TruthCandidate where truth is sought
    reason: str


def compare(
    labels: Any,
    seed: int = 0,
    *,
    estimate: str = "population",
    candidates: Candidates = CANDIDATES,
    simplest: bool = False,
    test_size: float = 0.2,
    n_jobs: int = -1,
    progress: ShowProgress = None,
) -> Choice:
    """The candidate that best predicts hidden labels (not fitted yet), how each did, and the reason.

    Candidates that cannot apply are left out: those with more clusters than fit the labels (``fits``,
    search.py), those that need annotators where the data have none, those that need more memory than there
    is, and, with more than ``MANY_CLASSES`` classes, those with a table of answers per annotator. Where
    labels cannot tell models apart, the first candidate is taken and the table is empty; where there are very
    many, a seeded part of the items (as many as have ``MOST_LABELS`` labels) stands for all.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
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
    check_rules("compare", ESTIMATES, estimate=estimate)
    annotations = as_annotations(labels)
    candidates = _candidates(annotations, candidates)
    why_not = ""
    if int(pairs_per_item(annotations).max(initial=0)) < 2:  # repeated labels of one annotator tell nothing
        why_not = "no item has two labels, so nothing tells how labels of an item go together"
    elif round(test_size * annotations.n_pairs) < FEWEST_HIDDEN:
        why_not = "too few labels to choose by"
    if why_not:
        first, settings = candidates[0]
        model = build_model(first, settings, seed=seed, n_jobs=n_jobs)
        if not applies(model, annotations):
            model = build_model(FALLBACK, {}, seed=seed, n_jobs=n_jobs)
        return Choice(model, [], f"{why_not}: {title_of(model)}, without a comparison")
    models = [build_model(name, settings, seed=seed, n_jobs=n_jobs) for name, settings in candidates]
    fitting = [model for model in models if applies(model, annotations)]
    if not fitting:  # for want of memory: the smallest is refused with what it needs
        fitting = [min(models, key=lambda model: model.memory_needed(annotations))]
    sample = annotations
    if annotations.n_labels > MOST_LABELS:
        order = np.random.default_rng(seed).permutation(annotations.n_items)
        within = np.cumsum(np.diff(annotations.item_pointers)[order]) <= MOST_LABELS
        sample = annotations.take_items(np.sort(order[within]))
    table = held_out_scores(sample, fitting, seed, test_size=test_size, n_jobs=n_jobs, progress=progress)
    names = {name for name, _ in candidates}
    default = next((name for name in DEFAULTS if name in names and not simplest), None)
    choice = _chosen(table, estimate, default)
    wide = dict.fromkeys(name_of(model) for model in models if _too_wide(model, annotations))
    not_tried = f"; not tried with {annotations.n_classes:,} classes: {', '.join(wide)}" if wide else ""
    return replace(choice, reason=choice.reason + not_tried)


def _too_wide(model: Model, annotations: Annotations) -> bool:
    """Whether the classes are too many for tables of answers per annotator, or drawn anew in every sweep."""
    has_tables = model._sizes_are_bounds or isinstance(model, ConfusionModel)
    return has_tables and annotations.n_classes > MANY_CLASSES


def _candidates(annotations: Annotations, usual: Candidates) -> Candidates:
    """The candidates that suit the labels' type: those of an order come first where there is one."""
    own = {"numeric": RATING_CANDIDATES, "pairwise": PAIR_CANDIDATES, "multi": SET_CANDIDATES}
    if annotations.label_type in own:
        return own[annotations.label_type]
    if annotations.label_type != "ordinal" or annotations.n_classes < 3:
        return usual
    if usual is CANDIDATES:
        return ORDINAL_CANDIDATES
    if usual is THOROUGH_CANDIDATES:
        return (*ORDINAL_CANDIDATES, ("latent", {}))
    return (("graded", {}), *usual) if usual is FAST_CANDIDATES else usual


def _chosen(table: list[HeldOut], estimate: str, default: str | None) -> Choice:
    """The default among the tied, or the simplest of them, and why."""
    tied = [row for row in table if row.gap(estimate).tied]
    true = [row for row in tied if not row.contradicted] or tied
    usual = [row for row in true if name_of(row.model) == default]
    taken = usual[0] if usual else min(true, key=lambda row: simplicity(row.model))
    name, others = title_of(taken.model), [title_of(row.model) for row in tied if row is not taken]
    behind, best = taken.gap(estimate), min(tied, key=lambda row: row.gap(estimate).mean)
    if taken is best:
        also = f"; tied with {', '.join(others)}" if others else ""
        return Choice(taken.model, table, f"{name} predicts hidden labels best{also}")
    skipped = [title_of(row.model) for row in tied if row.contradicted and row is not taken]
    gap = f"{behind.mean:.4f} ± {behind.error:.4f} nats"
    why = "is the default" if usual else "is the simplest" + (" of the others" if skipped else "")
    if skipped:
        was, gives = ("was", "it gives") if len(skipped) == 1 else ("were", "they give")
        why += (
            f"; {', '.join(skipped)} {was} passed over: on some items with {UNANIMOUS_LABELS} labels or more "
            f"that all agree, {gives} the common answer less than {UNANIMOUS_SHARE:.0%}"
        )
    reason = f"{name} is tied with {title_of(best.model)} ({gap} behind) and {why}"
    return Choice(taken.model, table, reason)


def with_gaps(table: Sequence[HeldOut]) -> list[HeldOut]:
    """The rows, each with how far it is behind the best."""
    gaps = []
    for estimate in ("annotators", "population") if table else ():
        best = max(table, key=lambda row: row.measure(estimate))
        gaps.append([BEST if row is best else best.ahead_of(row, estimate) for row in table])
    rows = zip(table, *gaps, strict=True)
    return [replace(row, behind=pair, behind_items=item) for row, pair, item in rows]


def score_rows(scores: Iterable[HeldOut | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Scores as plain values, those of a finished run among them."""
    return [row.as_row() if isinstance(row, HeldOut) else dict(row) for row in scores]


def for_comparison(model: Model) -> dict[str, Any]:
    """Settings that a model is compared with instead of its defaults; settings that are given stay."""
    shorter, usual = FOR_COMPARISON.get(name_of(model), {}), model._settings
    return {name: value for name, value in shorter.items() if getattr(model, name) == usual[name].default}


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
    """Fit every model to one part of the labels and score it on the rest; empty if none can be hidden.

    ``represent`` scores the rest's labels of those annotators alone (``{"kind": "human"}``). Every row says
    how far it is behind the best one, with the standard error of the difference (paired over items).
    ``n_jobs`` models are fitted side by side, on one thread each; one at a time, on as many as they say.
    """
    with _beside(HIDING_BYTES * annotations.n_labels):
        kept, hidden = annotations.split_labels(test_size, seed)
        if represent:
            asked = with_values(annotations.annotator_table, represent, "annotator")
            hidden = hidden.take_rows(asked[hidden.annotator])
        if not (kept.n_labels and hidden.n_labels):
            return []
        # On a cluster each fit has all of it to itself, and where memory is limited all of that.
        alone = current().n_cluster_threads > 0 or current().memory is not None
        n_at_once = 1 if alone else min(n_cores() if n_jobs == -1 else n_jobs, max(len(models), 1))
        done: list[Model] = []
        running: list[str] = []
        with shown(progress) as tell, threads(n_at_once) as pool:

            def tell_running() -> None:
                tell(f"held-out labels: {', '.join(running)}", len(done) / len(models))

            def trial(model: Model) -> HeldOut:
                running.append(title_of(model))
                tell_running()
                started = time.perf_counter()
                settings = for_comparison(model)
                if n_at_once > 1 and hasattr(model, "n_jobs"):
                    settings["n_jobs"] = 1
                fitted = with_settings(model, settings).fit(kept)  # a copy: the candidate stays unfitted
                done.append(model)
                logs = np.stack([fitted.log_chances(hidden), fitted.log_chances(hidden, annotators=False)])
                classes = kept.label_type != "numeric"
                ignored = len(contradicted(fitted.label_distributions_, kept.counts)) if classes else 0
                pair, item = (float(row.mean()) for row in logs)
                seconds = time.perf_counter() - started
                running.remove(title_of(model))
                if running:
                    tell_running()
                return HeldOut(model, pair, item, hidden.n_labels, seconds, ignored, logs, hidden.item)

            return with_gaps(pool.map(trial, models))


@contextmanager
def _beside(taken: int) -> Iterator[None]:
    """Where memory is limited, fits inside the block have so much less of it."""
    used = current()
    if used.memory is not None and 2 * taken > used.memory:
        raise DataError(
            f"hiding labels to judge a model by takes {size_words(taken)} of memory beside the fit, and "
            f"{size_words(used.memory)} are allowed in all; hide none ({setting('test_size', 0)}), or allow "
            f"more {setting('memory')}"
        )
    with nullcontext() if used.memory is None else using(replace(used, memory=used.memory - taken)):
        yield


def applies(model: Model, annotations: Annotations) -> bool:
    """Whether these labels have what the model needs, and it does not need more than there is."""
    if model.uses_features:
        table = annotations.item_table
        if table is None or not carries_features(annotations):
            return False
        # features, or a text and the packages to make features of it
        if COLUMN not in table.column_names and find_spec("sentence_transformers") is None:
            return False
    if (model._needs_annotators and annotations.anonymous) or _too_wide(model, annotations):
        return False
    if model.memory_needed(annotations) > (current().memory or physical_memory()):
        return False
    return model._sizes_are_bounds or fits(model.get_params(deep=False), annotations)


# ---- one true class -----------------------------------------------------------------------------------
#
# Which of two pictures of the crowd do the labels speak for? In the first, annotators err independently of
# each other once the item's class is known; in the second, items of a class come in subtypes, and annotators
# err together. IBCC and EBCC are these two pictures, and their bounds have all normalisers, so the higher
# bound says which fits. Where it is the second, EBCC answers; else log-linear Dawid–Skene, the better
# estimate of the first and, where bounds are equal, the simpler model (docs/truth.md has the measurements).
# No gold label and no hidden label takes part in the choice: gold trains the model that was chosen, and its
# accuracy on gold can be cross-fitted without choosing anew.

UNSEEN = 0.3
#: The models of the choice, and the settings with which they are fitted.
APART: tuple[str, dict[str, Any]] = ("ibcc", {"unseen": UNSEEN, "max_iter": 100, "tol": 1e-5})
TOGETHER: tuple[str, dict[str, Any]] = ("ebcc", {"unseen": UNSEEN, "tol": 1e-5})
ANSWER: tuple[str, dict[str, Any]] = ("log-linear", {"unseen": UNSEEN})


@dataclass(frozen=True)
class TruthCandidate:
    """A model that was fitted for the choice."""

    model: Model
    bound: float
    seconds: float

    def as_row(self) -> dict[str, Any]:
        """The same as plain values."""
        return {"model": name_of(self.model), "bound": self.bound, "seconds": round(self.seconds, 3)}


def choose_truth(
    labels: Any, seed: int = 0, *, prior: Any = None, n_jobs: int = -1, progress: ShowProgress = None
) -> Choice:
    """The default for one true class, fitted: log-linear Dawid–Skene, or EBCC where its bound says so.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    prior
        (items, classes): what is known beforehand, as by ``gold_prior`` (models/confusion.py). It trains the
        model that is chosen, and takes no part in the choice.
    n_jobs
        Number of threads; −1 takes all cores. The result does not depend on it.
    progress
        True or False, a function that is told (what, share done), or None: a bar on a terminal.
    """
    annotations = as_annotations(labels)
    if annotations.anonymous:
        model = build_model("majority", {}).fit(annotations)
        return Choice(model, [], "nobody knows who gave which label, so all count alike")
    with shown(progress) as tell:

        def fit(name: str, settings: Any, behind: float, prior: Any = None) -> TruthCandidate:
            tell(f"fitting {name} to all labels", behind)
            started = time.perf_counter()
            model: Any = build_model(name, settings, seed=seed, n_jobs=n_jobs, estimate="truth")
            model.fit(annotations, prior=prior)
            return TruthCandidate(model, float(model.trace_[-1]), time.perf_counter() - started)

        apart, together = fit(*APART, 0.0), fit(*TOGETHER, 0.1)
        ahead = together.bound - apart.bound
        table, answer = [apart, together], together
        if ahead <= 0:
            answer = fit(*ANSWER, 0.5, prior)
            table.append(answer)
        elif prior is not None:
            answer = fit(*TOGETHER, 0.5, prior)
        return Choice(answer.model, table, reason(annotations, ahead))


def reason(annotations: Annotations, ahead: float) -> str:
    """Why EBCC answers, or not, with what it says of the annotators where the raw labels bear it out."""
    shared = shared_errors(annotations)
    bounds = f"the bound of ebcc is {abs(ahead):,.1f} nats {'above' if ahead > 0 else 'below'} that of ibcc"
    if ahead > 0 and shared.low > 0:
        return f"annotators err together: {bounds}"
    if ahead <= 0 and not shared.low > 0:
        return f"annotators err independently: {bounds}"
    other = "do not show" if ahead > 0 else "show"
    return f"{bounds}, though the labels by themselves {other} that annotators err together"
