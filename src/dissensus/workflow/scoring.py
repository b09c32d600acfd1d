"""Scores of estimates against a known truth, gold labels, or held-out labels.

A file of estimates has an item column and a column ``p_<class>`` for every class (the ``labels.csv`` of a
run, the ``population.csv`` of a simulation), a label column (a gold file), or both. The columns of the
reference decide what it is: distributions, labels by annotators, or one gold label for each item. Each kind
of reference has default metrics; others can be named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError, ParameterError, did_you_mean
from dissensus.evaluate.bootstrap import Interval, bootstrap_interval, bootstrap_mean
from dissensus.labels import as_annotations
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Vocabulary
from dissensus.metrics import METRICS, check_distributions, log_probability_rows
from dissensus.models.base import Model
from dissensus.numerics import Array, row_shares, winners
from dissensus.tables.columns import find_column, has_column, listed
from dissensus.tables.results import LABEL, LABELS_FILE, N_LABELS, is_result_directory, probability_columns
from dissensus.tables.source import open_source
from dissensus.tables.tables import open_table
from dissensus.workflow.runs import MODEL_SUFFIX, Read

ANNOTATORS_LABELS = "labels by annotators"  # a kind of reference
LABEL_METRICS = ("accuracy", "macro_f1", "weighted_f1", "onehot_accuracy", "lewidi_f1")
DEFAULT_METRICS: dict[str, tuple[str, ...]] = {
    "distributions": ("kl", "jensen_shannon", "total_variation", "entropy_correlation", "accuracy"),
    "gold labels": ("accuracy", "macro_f1", "weighted_f1", "cross_entropy"),
}
SCALE_METRICS = ("wasserstein", "ranked_probability_score")
SCALE_COLUMNS = ("mean", "median", "lower_quartile", "upper_quartile")  # of an ordered scale


# ---- estimates ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimates:
    """Distributions or labels of items; ids and classes as text."""

    name: str
    items: Vocabulary
    classes: list[str]
    probabilities: Array | None  # (items, classes)
    labels: list[str] | None  # (items,)
    n_labels: NDArray[Any] | None = None  # (items,): number of labels behind each estimate
    ordered: bool = False  # the classes are an ordered scale

    def distributions(self, rows: NDArray[np.int32], classes: Sequence[str]) -> Array:
        """Return the (rows, classes) distributions of some items."""
        if self.probabilities is None:
            return self.one_hot(rows, classes)
        wide = np.zeros((len(rows), len(classes)))
        wide[:, [classes.index(name) for name in self.classes]] = self.probabilities[rows]
        return wide

    def one_hot(self, rows: NDArray[np.int32], classes: Sequence[str]) -> Array:
        """Return the (rows, classes) one-hot labels of some items, or distributions without labels."""
        if self.labels is None:
            return self.distributions(rows, classes)
        column = {name: index for index, name in enumerate(classes)}
        hot = np.zeros((len(rows), len(classes)))
        hot[np.arange(len(rows)), [column[self.labels[row]] for row in rows]] = 1.0
        return hot


def name_of_source(source: Any) -> str:
    """Return the name of a path or a frame for messages."""
    return str(source) if isinstance(source, str | Path) else "the data frame"


def read_estimates(source: Any, *, item: str | None = None, label: str | None = None) -> Estimates:
    """Read distributions, labels or both from a table."""
    table = open_table(source)
    columns, name = table.columns, name_of_source(source)
    items = find_column(columns, "item", item, name)
    shares_by_class = probability_columns(columns)
    label_column = LABEL if LABEL in columns else None
    if label is not None or not shares_by_class:
        label_column = find_column(columns, "gold", label, name, taken=[items])
    text_columns = [items, label_column] if label_column else [items]
    texts = [column.cast(pa.string()) for column in table.ids(text_columns)]
    vocabulary = Vocabulary(texts[0], "item")
    counts = vocabulary.arrow.value_counts()
    repeated = np.flatnonzero(counts.field("counts").to_numpy() > 1)
    if len(repeated):
        item_id, n_rows = counts[int(repeated[0])].as_py().values()
        raise DataError(f"{name}: item {item_id!r} has {n_rows} rows; keep one row per item")
    labels = texts[1].to_pylist() if label_column else None
    classes = [*shares_by_class, *sorted(set(labels or ()) - set(shares_by_class))]
    probabilities, n_labels = None, None
    if shares_by_class:
        names, typed = list(shares_by_class.values()), table.typed()
        try:
            shares = [typed.column(column).cast(pa.float64()).to_numpy() for column in names]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise DataError(f"{name}: the columns {listed(names)} must hold numbers in every row") from None
        checked = check_distributions(np.column_stack(shares), name)
        # classes that occur only as labels have probability 0
        probabilities = np.pad(checked, ((0, 0), (0, len(classes) - checked.shape[1])))
    if N_LABELS in columns:
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):  # a column of that name without numbers
            n_labels = table.typed().column(N_LABELS).cast(pa.int64()).to_numpy()
    ordered = set(SCALE_COLUMNS) <= set(columns)
    return Estimates(name, vocabulary, classes, probabilities, labels, n_labels, ordered)


def of_labels(annotations: Annotations, name: str) -> Estimates:
    """Return the empirical distribution of every labelled item."""
    counts = annotations.counts
    labelled = np.flatnonzero(counts.sum(axis=1))
    items = Vocabulary(list(map(str, annotations.items[labelled])), "item")
    return Estimates(name, items, list(map(str, annotations.classes)), row_shares(counts[labelled]), None)


# ---- scores ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """Metrics by name, each with its bootstrap interval over items (NaN without a bootstrap)."""

    against: str  # "distributions", "gold labels" or "labels by annotators"
    n_items: int  # items on both sides
    left_out: int  # items of the reference that the estimates do not have
    values: dict[str, Interval]
    perhaps_seen: bool = False  # reference and estimates have the same number of labels on every item

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as plain values."""
        return vars(self) | {"values": {name: value._asdict() for name, value in self.values.items()}}


def score(
    estimates: Any,
    reference: Any,
    *,
    metrics: Sequence[str] = (),
    n_boot: int = 1000,
    item: str | None = None,
    label: str | None = None,
    kind: str | None = None,
    read_labels: Read | None = None,
) -> Scores:
    """Score estimates, or a model, against a reference.

    Parameters
    ----------
    estimates
        A frame or file of estimates, a fitted or saved model, or the directory of a run.
    reference
        A frame or path with distributions, gold labels or labels by annotators; or Annotations.
    metrics
        Names in :data:`dissensus.metrics.METRICS`; if empty, those that suit the reference.
    n_boot
        Number of bootstrap samples behind the intervals; 0 for no intervals.
    item
        Name of the item column, if it is not recognised.
    label
        Name of the label column, if it is not recognised.
    kind
        What the reference is, if its columns do not say so: ``"distributions"``, ``"gold labels"`` or
        ``"labels by annotators"``.
    read_labels
        A function that reads labels by annotators.
    """
    from dissensus.text.guided import load_model

    for name in metrics:
        if name not in METRICS:
            hint = did_you_mean(name, METRICS)
            raise ParameterError(f"there is no metric {name!r}; {hint}metrics: {', '.join(METRICS)}")
    model = estimates if isinstance(estimates, Model) else None
    if isinstance(estimates, str | Path):
        path = Path(estimates)
        estimates = path / LABELS_FILE if is_result_directory(path) else path
        if not estimates.exists():
            open_source(estimates)  # raises an error that suggests similar file names
        model = load_model(estimates) if estimates.suffix == MODEL_SUFFIX else None
    if model is None:
        claims = read_estimates(estimates, item=item, label=label)
    else:
        items, labels = Vocabulary(list(map(str, model.items_)), "item"), list(map(str, model.predict()))
        classes, n_labels = list(map(str, model.classes_)), np.asarray(model.n_labels_)
        shares, ordered = model.label_distributions_, model.label_type_ == "ordinal"
        claims = Estimates(name_of_source(estimates), items, classes, shares, labels, n_labels, ordered)
    kind = kind or kind_of(reference)
    if kind == ANNOTATORS_LABELS:
        held_out = (read_labels or as_annotations)(reference)
        truth = of_labels(held_out, name_of_source(reference))
        scores = compare_estimates(claims, truth, metrics, n_boot=n_boot, against=kind)
        return _against_labels(scores, model, claims, held_out, n_boot)
    truth = read_estimates(reference, item=item, label=label)
    suited = DEFAULT_METRICS[kind] if claims.probabilities is not None else LABEL_METRICS[:3]
    suited += SCALE_METRICS if claims.ordered and claims.probabilities is not None else ()
    return compare_estimates(claims, truth, metrics or suited, n_boot=n_boot, against=kind)


def kind_of(reference: Any) -> str:
    """Return the kind of a reference: distributions, gold labels, or labels by annotators."""
    if isinstance(reference, Annotations):
        return ANNOTATORS_LABELS
    try:
        columns = open_table(reference).columns
    except DataError:
        if not (isinstance(reference, str | Path) and Path(reference).is_file()):
            raise
        return ANNOTATORS_LABELS  # an export of a tool, which is not a table
    if probability_columns(columns):
        return "distributions"
    return ANNOTATORS_LABELS if has_column(columns, "annotator") else "gold labels"


def compare_estimates(
    claims: Estimates, truth: Estimates, metrics: Sequence[str], *, n_boot: int = 1000, against: str
) -> Scores:
    """Score the items that both sides have; a class that one side lacks has probability 0 there."""
    rows = claims.items.codes(truth.items)
    shared = np.flatnonzero(rows >= 0).astype(np.int32)
    if not len(shared):
        raise DataError(f"{claims.name} and {truth.name} have no item in common; compare their item columns")
    classes = [*claims.classes, *(name for name in truth.classes if name not in claims.classes)]
    gold = truth.distributions(shared, classes)
    soft, hard = claims.distributions(rows[shared], classes), claims.one_hot(rows[shared], classes)
    # a label that ties for the largest share counts in part, as in dissensus.metrics
    tied = winners(soft)
    hard = np.where((tied * hard).any(axis=1, keepdims=True), tied, hard)
    values = {}
    for name in metrics:
        metric, predicted = METRICS[name], hard if name in LABEL_METRICS else soft
        if n_boot:
            values[name] = bootstrap_interval(metric, gold, predicted, n_boot=n_boot)
        else:
            values[name] = Interval(metric(gold, predicted), math.nan, math.nan)
    return Scores(against, len(shared), len(rows) - len(shared), values)


def _against_labels(
    scores: Scores, model: Model | None, claims: Estimates, held_out: Annotations, n_boot: int
) -> Scores:
    """Complete the scores against labels by annotators: without metrics, add the mean log-probability."""
    rows = claims.items.codes(list(map(str, held_out.items)))
    estimated = rows >= 0
    if claims.n_labels is not None:  # with the same number of labels, they may be the same labels
        n_fitted, n_held_out = claims.n_labels[rows[estimated]], np.diff(held_out.item_pointers)[estimated]
        scores = replace(scores, perhaps_seen=bool(np.array_equal(n_fitted, n_held_out)))
    if scores.values:
        return scores
    if model is not None:
        values = {"score": model.score(held_out), "score_items": model.score_items(held_out)}
        intervals = {key: Interval(value, math.nan, math.nan) for key, value in values.items()}
        return replace(scores, values=intervals)
    # mean log P(label | item) over the labels of items that have an estimate
    classes = [*claims.classes, *(c for c in map(str, held_out.classes) if c not in claims.classes)]
    labels = estimated[held_out.item]
    codes = np.array([classes.index(c) for c in map(str, held_out.classes)])[held_out.label[labels]]
    logs = log_probability_rows(claims.distributions(rows[held_out.item[labels]], classes), codes)
    value = Interval(float(logs.mean()), math.nan, math.nan)
    if n_boot:
        value = bootstrap_mean(logs, items=held_out.item[labels], n_boot=n_boot)
    return replace(scores, values={"score_items": value})
