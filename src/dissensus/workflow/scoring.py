"""How good are estimates? Held against a known truth, against gold labels, or against labels never seen.

A file of estimates has an item column and a column ``p_<class>`` for every class (a run's ``labels.csv``, a
simulation's ``population.csv``), a label column (a gold file), or both. What a reference is, its columns say:
distributions, labels by annotators, or one gold label an item. Each calls for its own measures; others can be
named.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError, ParameterError, did_you_mean
from dissensus.evaluate.bootstrap import Interval, bootstrap_interval, bootstrap_mean
from dissensus.labels.annotations import Annotations
from dissensus.labels.sources import as_annotations
from dissensus.labels.vocabulary import Vocabulary
from dissensus.metrics import METRICS, check_distributions, log_probability_rows
from dissensus.models.base import Model
from dissensus.numerics import Array, row_shares, winners
from dissensus.tables.columns import find_column, has_column, listed
from dissensus.tables.labels_file import LABEL, LABELS_FILE, N_LABELS, probability_columns
from dissensus.tables.results import is_ours
from dissensus.tables.source import open_source
from dissensus.tables.tables import open_table
from dissensus.workflow.runs import MODEL_SUFFIX

LABELS = "labels by annotators"  # the kind of a reference
LABEL_METRICS = ("accuracy", "macro_f1", "weighted_f1", "onehot_accuracy", "lewidi_f1")
SUITED: dict[str, tuple[str, ...]] = {
    "distributions": ("kl", "jensen_shannon", "total_variation", "entropy_correlation", "accuracy"),
    "gold labels": ("accuracy", "macro_f1", "weighted_f1", "cross_entropy"),
}

SUITED_TO_SCALES = ("wasserstein", "ranked_probability_score")
ON_A_SCALE = ("mean", "median", "lower_quartile", "upper_quartile")  # columns that labels of a scale have

Reader = Callable[[Path], Annotations]


# ---- estimates ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimates:
    """Items and what is claimed about each; ids and classes as text."""

    name: str
    items: Vocabulary
    classes: list[str]
    chances: Array | None  # (items, classes): distributions, where they are claimed
    labels: list[str] | None  # (items,): single labels, where they are claimed
    n_labels: NDArray[Any] | None = None  # (items,): labels each claim was made of, where that is said
    ordered: bool = False  # whether the classes are a scale, in its order

    def distributions(self, places: NDArray[np.int32], classes: Sequence[str]) -> Array:
        """(places, classes): the distributions at these places, over these classes."""
        if self.chances is None:
            return self.one_hot(places, classes)
        wide = np.zeros((len(places), len(classes)))
        wide[:, [classes.index(name) for name in self.classes]] = self.chances[places]
        return wide

    def one_hot(self, places: NDArray[np.int32], classes: Sequence[str]) -> Array:
        """(places, classes): all weight on the single label (or where there is none, the distribution)."""
        if self.labels is None:
            return self.distributions(places, classes)
        column = {name: place for place, name in enumerate(classes)}
        hot = np.zeros((len(places), len(classes)))
        hot[np.arange(len(places)), [column[self.labels[place]] for place in places]] = 1.0
        return hot


def name_of_source(source: Any) -> str:
    """What messages call a path or a frame."""
    return str(source) if isinstance(source, str | Path) else "the data frame"


def read_estimates(source: Any, *, item: str | None = None, label: str | None = None) -> Estimates:
    """Estimates from a table: distributions, labels or both."""
    table = open_table(source)
    columns, name = table.columns, name_of_source(source)
    items = find_column(columns, "item", item, name)
    probabilities = probability_columns(columns)
    labels = LABEL if LABEL in columns else None
    if label is not None or not probabilities:
        labels = find_column(columns, "gold", label, name, taken=[items])
    texts = [column.cast(pa.string()) for column in table.ids([items, *([labels] if labels else [])])]
    vocabulary = Vocabulary(texts[0], "item")
    counts = vocabulary.arrow.value_counts()
    repeated = np.flatnonzero(counts.field("counts").to_numpy() > 1)
    if len(repeated):
        which, rows = counts[int(repeated[0])].as_py().values()
        raise DataError(f"{name}: item {which!r} has {rows} rows; keep one row per item")
    given = texts[1].to_pylist() if labels else None
    classes = [*probabilities, *sorted(set(given or ()) - set(probabilities))]
    chances, n_labels = None, None
    if probabilities:  # classes that only labels name have probability 0
        given_by, whole = list(probabilities.values()), table.typed()
        try:
            shares = [whole.column(column).cast(pa.float64()).to_numpy() for column in given_by]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise DataError(
                f"{name}: the columns {listed(given_by)} must hold numbers in every row"
            ) from None
        claimed = check_distributions(np.column_stack(shares), name)
        chances = np.pad(claimed, ((0, 0), (0, len(classes) - claimed.shape[1])))
    if N_LABELS in columns:
        with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):  # another column of that name
            n_labels = table.typed().column(N_LABELS).cast(pa.int64()).to_numpy()
    ordered = set(ON_A_SCALE) <= set(columns)
    return Estimates(name, vocabulary, classes, chances, given, n_labels, ordered)


def of_labels(annotations: Annotations, name: str) -> Estimates:
    """The empirical distribution of every item that has labels."""
    counts = annotations.counts
    labelled = np.flatnonzero(counts.sum(axis=1))
    chances = row_shares(counts[labelled])
    items = Vocabulary([str(one) for one in annotations.items[labelled]], "item")
    return Estimates(name, items, list(map(str, annotations.classes)), chances, None)


# ---- scores ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scores:
    """Measures by name, each with its interval over items (NaN where none was asked for)."""

    against: str  # "distributions", "gold labels" or "labels by annotators"
    n_items: int  # items on both sides
    left_out: int  # items of the reference that the estimates do not have
    values: dict[str, Interval]
    perhaps_seen: bool = False  # every item has as many labels in the reference as the estimates were made of

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return vars(self) | {"values": {name: found._asdict() for name, found in self.values.items()}}


def score(
    estimates: Any,
    reference: Any,
    *,
    metrics: Sequence[str] = (),
    n_boot: int = 1000,
    item: str | None = None,
    label: str | None = None,
    kind: str | None = None,
    read_labels: Reader | None = None,
) -> Scores:
    """Score estimates, or a model, against a reference.

    ``metrics`` names measures (those of :data:`dissensus.metrics.METRICS`; without any, the ones that suit
    the reference). ``kind`` says what the reference is, ``item`` and ``label`` name columns, where they do
    not say so themselves; ``read_labels`` reads labels by annotators.

    Parameters
    ----------
    estimates
        A frame or a file of estimates, a fitted or a saved model, or the directory of a run, of which the
        labels are taken.
    reference
        What to compare with: a frame or a path of distributions, gold or labels, or Annotations.
    metrics
        Names of measures; without any, those that suit the reference.
    n_boot
        Resamples behind the intervals.
    item
        Name of the item column, where it does not say so itself.
    label
        Name of the label column.
    kind
        What the reference is: see above.
    read_labels
        A function that reads labels by annotators.
    """
    from dissensus.text.guided.files import load_model

    for name in metrics:
        if name not in METRICS:
            hint = did_you_mean(name, METRICS)
            raise ParameterError(f"there is no metric {name!r}; {hint}known: {', '.join(METRICS)}")
    model = estimates if isinstance(estimates, Model) else None
    if isinstance(estimates, str | Path):
        path = Path(estimates)
        estimates = path / LABELS_FILE if is_ours(path) else path
        if not estimates.exists():
            open_source(estimates)  # says what is missing, and what is near
        model = load_model(estimates) if estimates.suffix == MODEL_SUFFIX else None
    if model is None:
        claims = read_estimates(estimates, item=item, label=label)
    else:
        items, labels = Vocabulary(list(map(str, model.items_)), "item"), list(map(str, model.predict()))
        classes, n_labels = list(map(str, model.classes_)), np.asarray(model.n_labels_)
        shares, ordered = model.label_distributions_, model.label_type_ == "ordinal"
        claims = Estimates(name_of_source(estimates), items, classes, shares, labels, n_labels, ordered)
    kind = kind or kind_of(reference)
    if kind == LABELS:
        hidden = (read_labels or as_annotations)(reference)
        return _against_labels(model, claims, hidden, name_of_source(reference), metrics, n_boot)
    truth = read_estimates(reference, item=item, label=label)
    suited = SUITED[kind] if claims.chances is not None else LABEL_METRICS[:3]
    suited += SUITED_TO_SCALES if claims.ordered and claims.chances is not None else ()
    return compare_estimates(claims, truth, metrics or suited, n_boot=n_boot, against=kind)


def kind_of(reference: Any) -> str:
    """What a source says about items: distributions, gold labels, or labels by annotators."""
    if isinstance(reference, Annotations):
        return LABELS
    try:
        columns = open_table(reference).columns
    except DataError:
        if not (isinstance(reference, str | Path) and Path(reference).is_file()):
            raise
        return LABELS  # a tool's export is no table, but has labels by annotators
    if probability_columns(columns):
        return "distributions"
    return LABELS if has_column(columns, "annotator") else "gold labels"


def compare_estimates(
    claims: Estimates, truth: Estimates, metrics: Sequence[str], *, n_boot: int = 1000, against: str
) -> Scores:
    """Measures over the items that both sides have; a class that one side lacks has probability 0 there."""
    there = claims.items.codes(truth.items)
    shared = np.flatnonzero(there >= 0).astype(np.int32)
    if not len(shared):
        raise DataError(f"{claims.name} and {truth.name} have no item in common; compare their item columns")
    classes = [*claims.classes, *(name for name in truth.classes if name not in claims.classes)]
    gold = truth.distributions(shared, classes)
    soft, hard = claims.distributions(there[shared], classes), claims.one_hot(there[shared], classes)
    # A label that is one of several with the largest share is a tie, and counts in part, as everywhere.
    tied = winners(soft)
    hard = np.where((tied * hard).any(axis=1, keepdims=True), tied, hard)
    values = {}
    for name in metrics:
        metric, predicted = METRICS[name], hard if name in LABEL_METRICS else soft
        plain = Interval(metric(gold, predicted), math.nan, math.nan)
        values[name] = bootstrap_interval(metric, gold, predicted, n_boot=n_boot) if n_boot else plain
    return Scores(against, len(shared), len(there) - len(shared), values)


def _against_labels(
    model: Model | None,
    claims: Estimates,
    hidden: Annotations,
    name: str,
    metrics: Sequence[str],
    n_boot: int,
) -> Scores:
    """Log-probability of every label; named measures against the labels' own distribution."""
    scores = compare_estimates(claims, of_labels(hidden, name), metrics, n_boot=n_boot, against=LABELS)
    places = claims.items.codes([str(one) for one in hidden.items])
    known = places >= 0
    if claims.n_labels is not None:  # as many labels as each claim was made of: they may be the same labels
        made_of, there_are = claims.n_labels[places[known]], np.diff(hidden.item_pointers)[known]
        scores = replace(scores, perhaps_seen=bool(np.array_equal(made_of, there_are)))
    if metrics:
        return scores
    if model is not None:
        found = {"score": model.score(hidden), "score_items": model.score_items(hidden)}
        return replace(scores, values={key: Interval(one, math.nan, math.nan) for key, one in found.items()})
    # mean log P(label | item) over the labels of items that the estimates have
    classes = [*claims.classes, *(c for c in map(str, hidden.classes) if c not in claims.classes)]
    rows = known[hidden.item]
    codes = np.array([classes.index(str(one)) for one in hidden.classes])[hidden.label[rows]]
    logs = log_probability_rows(claims.distributions(places[hidden.item[rows]], classes), codes)
    value = Interval(float(logs.mean()), math.nan, math.nan)
    if n_boot:
        value = bootstrap_mean(logs, items=hidden.item[rows], n_boot=n_boot)
    return replace(scores, values={"score_items": value})
