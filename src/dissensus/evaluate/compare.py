"""Model comparison by the prediction of held-out labels.

A fifth of the (item, annotator) pairs is hidden. Every candidate is fitted to the rest and scored by the log
probability of the hidden labels, in nats: P(label | item) and P(label | item, annotator). Differences have a
standard error, paired over items.
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
from dissensus.labels import as_annotations
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import TableResult
from dissensus.labels.features import FEATURES_COLUMN, has_features
from dissensus.labels.rows import pairs_per_item
from dissensus.models import build_model, name_of, sizes_fit_labels, title_of
from dissensus.models.base import Model
from dissensus.models.confusion import ConfusionModel
from dissensus.models.latent import LatentPositions
from dissensus.numerics import Array
from dissensus.params import n_cores, physical_memory, size_words, with_settings
from dissensus.progress import ShowProgress, shown

Candidates = Sequence[tuple[str, Mapping[str, Any]]]
#: Candidates: name and settings of each model.
CANDIDATES: Candidates = (
    ("pool", {}),
    ("hpgm", {}),
    ("latent", {}),
    ("pgm", {"n_item_clusters": 12, "n_annotator_clusters": 8}),
    ("dawid-skene", {}),
    ("fmm", {"n_item_clusters": 16}),
    ("fmm", {"n_item_clusters": 8}),
    ("empirical", {}),
    ("pool", {"use_features": True}),  # where items have features
)
#: Candidates for labels of a type that has its own models.
CANDIDATES_BY_TYPE: Mapping[str, Candidates] = {
    # with and without annotator bias, scale and outliers
    "numeric": (("ratings", {}), ("ratings", {"bias": False, "scale": False, "robust": False})),
    "pairwise": (("bradley-terry", {}),),  # the only model that gives scores
    "multi": (("sets", {}), ("sets", {"dependence": False})),  # with and without dependence between classes
}

COMPARED_SHARE = 0.2  # share of the (item, annotator) pairs hidden for a comparison
GUARD_SHARE, GUARD_LABELS = 0.1, 6_000  # pairs hidden, and labels used at most, by the guard
GUARD_SETTINGS = {"n_chains": 2, "n_sweeps": 40}  # of HPGM in the guard
MIN_HIDDEN_PAIRS = 20  # for a comparison
MIN_HIDDEN_ITEMS = 10  # for the guard
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
        return row | {"n_hidden": self.n_hidden, "seconds": round(self.seconds, 3)}

    def measure(self, condition: str) -> float:
        """Return the score given the ``"item"``, or given item and ``"annotator"``."""
        return self.score_items if condition == "item" else self.score

    def ahead_of(self, other: HeldOut, condition: str) -> Gap:
        """Return the score minus that of another candidate on the same hidden labels, with its error."""
        row = 1 if condition == "item" else 0
        with np.errstate(invalid="ignore"):
            difference = self.logs[row] - other.logs[row]
            if not np.isfinite(difference).all():
                return Gap(float(np.subtract(self.measure(condition), other.measure(condition))), 0.0)
        return self._mean_over_items(difference)


@dataclass(frozen=True)
class Comparison(TableResult):
    """Scores of the candidates on hidden labels, best first."""

    table: list[HeldOut]

    def __repr__(self) -> str:
        best = f", best {title_of(self.table[0].model)}" if self.table else ""
        return f"Comparison({len(self.table)} models{best})"

    def rows(self) -> list[dict[str, Any]]:
        """Return name, scores and differences to the best of every candidate, best first."""
        return [
            {
                "model": title_of(row.model),
                "given_item": row.score_items,
                "difference": row.behind_items.mean,
                "error": row.behind_items.error,
                "given_item_and_annotator": row.score,
                "pair_difference": row.behind.mean,
                "pair_error": row.behind.error,
                "seconds": round(row.seconds, 2),
            }
            for row in self.table
        ]


def compare(
    labels: Any,
    seed: int = 0,
    *,
    candidates: Candidates | None = None,
    test_size: float = COMPARED_SHARE,
    n_jobs: int = -1,
    progress: ShowProgress = None,
) -> Comparison:
    """Compare models by the mean log-probability of hidden labels, given the item.

    Candidates that are not applicable are left out: those with more clusters than the labels allow
    (``sizes_fit_labels``), those that need annotators if the data have none, those that need more memory than
    available, and those with a table of answers per annotator if there are more than ``MAX_MATRIX_CLASSES``
    classes. With more than ``MAX_COMPARED_LABELS`` labels, the comparison uses a random subset of the items.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    seed
        Seed of the random numbers; the same seed gives identical results.
    candidates
        Names and settings of the models to compare; None uses those for the type of the labels.
    test_size
        Share of the (item, annotator) pairs to hide.
    n_jobs
        Number of threads; −1 uses all cores. The result does not depend on it.
    progress
        True or False, a function called with (title, share done), or None for a bar on a terminal.
    """
    annotations = as_annotations(labels)
    if int(pairs_per_item(annotations).max(initial=0)) < 2:
        raise DataError(
            "no item has labels by two annotators, so models cannot be compared; add second labels"
        )
    if round(test_size * annotations.n_pairs) < MIN_HIDDEN_PAIRS:
        raise DataError(
            f"{annotations.n_pairs:,} labels are too few to compare models; "
            f"at least {MIN_HIDDEN_PAIRS / test_size:,.0f} are needed"
        )
    pairs = _candidates(annotations) if candidates is None else candidates
    models = [build_model(name, settings, seed=seed, n_jobs=n_jobs) for name, settings in pairs]
    applicable = [model for model in models if is_applicable(model, annotations)]
    if not applicable:  # too little memory: fitting the smallest model reports what it needs
        applicable = [min(models, key=lambda model: model.memory_needed(annotations))]
    sample = subset(annotations, MAX_COMPARED_LABELS, seed)
    table = held_out_scores(sample, applicable, seed, test_size=test_size, n_jobs=n_jobs, progress=progress)
    return Comparison(sorted(table, key=lambda row: -row.score_items))


def subset(annotations: Annotations, n_labels: int, seed: int) -> Annotations:
    """Return the labels of a random subset of the items, with at most ``n_labels`` labels."""
    if annotations.n_labels <= n_labels:
        return annotations
    order = np.random.default_rng(seed).permutation(annotations.n_items)
    within = np.cumsum(np.diff(annotations.item_pointers)[order]) <= n_labels
    return annotations.take_items(np.sort(order[within]))


def counts_ahead(annotations: Annotations, seed: int = 0) -> Gap | None:
    """Return by how much smoothed counts predict a hidden tenth better than HPGM; None if not clearly.

    Clearly means by more than two standard errors. It happens with many classes and no structure. A few short
    chains on a subset of the labels suffice to see it.
    """
    sample = subset(annotations, GUARD_LABELS, seed)
    if round(GUARD_SHARE * sample.n_pairs) < MIN_HIDDEN_PAIRS:
        return None
    models = [build_model("empirical", {}), build_model("hpgm", GUARD_SETTINGS, seed=seed)]
    rows = held_out_scores(sample, models, seed, test_size=GUARD_SHARE, n_jobs=1, progress=False)
    if not rows or len(np.unique(rows[0].item)) < MIN_HIDDEN_ITEMS:  # the error is over items
        return None
    gap = rows[0].ahead_of(rows[1], "item")
    return gap if gap.mean > TIE_STANDARD_ERRORS * gap.error else None


def _candidates(annotations: Annotations) -> Candidates:
    """Return the candidates for the type of the labels."""
    if annotations.label_type == "ordinal" and annotations.n_classes > 2:
        return (*CANDIDATES, ("graded", {}))
    return CANDIDATES_BY_TYPE.get(annotations.label_type, CANDIDATES)


def with_gaps(table: Sequence[HeldOut]) -> list[HeldOut]:
    """Return the rows with their distances to the best row."""
    gaps = []
    for condition in ("annotator", "item") if table else ():
        best = max(table, key=lambda row: row.measure(condition))
        gaps.append([BEST if row is best else best.ahead_of(row, condition) for row in table])
    rows = zip(table, *gaps, strict=True)
    return [replace(row, behind=pair, behind_items=item) for row, pair, item in rows]


def score_rows(scores: Iterable[HeldOut | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return scores as plain values; those of a finished run are plain values already."""
    return [row.as_row() if isinstance(row, HeldOut) else dict(row) for row in scores]


def held_out_scores(
    annotations: Annotations,
    models: Sequence[Model],
    seed: int = 0,
    *,
    test_size: float = 0.2,
    n_jobs: int = -1,
    progress: ShowProgress = None,
) -> list[HeldOut]:
    """Fit every model to one part of the labels and score it on the rest; empty if no label can be hidden.

    Every row has its distance to the best with its standard error, paired over items. With ``n_jobs`` above
    1, models are fitted in parallel on one thread each.
    """
    with _reserve_memory(SPLIT_BYTES_PER_LABEL * annotations.n_labels):
        train, hidden = annotations.split_labels(test_size, seed)
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
                settings = {"n_jobs": 1} if n_at_once > 1 and hasattr(model, "n_jobs") else {}
                fitted = with_settings(model, settings).fit(train)  # a copy
                done.append(model)
                logs = np.stack([fitted.log_probabilities(hidden, annotators=pair) for pair in (True, False)])
                pair, item = (float(row.mean()) for row in logs)
                seconds = time.perf_counter() - started
                running.remove(title_of(model))
                if running:
                    report_running()
                return HeldOut(model, pair, item, hidden.n_labels, seconds, logs, hidden.item)

            return with_gaps(pool.map(trial, models))


@contextmanager
def _reserve_memory(n_bytes: int) -> Iterator[None]:
    """Reduce the memory limit of fits inside the block by ``n_bytes``, if there is a limit."""
    limit = current().memory
    if limit is not None and 2 * n_bytes > limit:
        sizes = f"{size_words(n_bytes)} of memory besides the fit, and the limit is {size_words(limit)}"
        raise DataError(f"holding out labels takes {sizes}; raise {setting('memory')}")
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
    if model._needs_annotators and annotations.anonymous:
        return False
    has_matrices = model._sizes_are_bounds or isinstance(model, ConfusionModel | LatentPositions)
    if has_matrices and annotations.n_classes > MAX_MATRIX_CLASSES:
        return False
    if model.memory_needed(annotations) > (current().memory or physical_memory()):
        return False
    return model._sizes_are_bounds or sizes_fit_labels(model.get_params(deep=False), annotations)
