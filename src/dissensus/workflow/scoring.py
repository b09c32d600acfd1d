"""How good are estimates? Held against a known truth, against gold labels, or against labels never seen.

A file of estimates has an item column and a column ``p_<class>`` for every class (a run's ``labels.csv``, a
simulation's ``population.csv``), a label column (a gold file), or both. What a reference is, its columns say:
distributions, labels by annotators, or one gold label an item. Each calls for its own measures; others can be
named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError, ParameterError, did_you_mean
from dissensus.evaluate.bootstrap import Interval, bootstrap_interval, bootstrap_mean
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Vocabulary
from dissensus.metrics import METRICS, check_distributions, log_probability_rows
from dissensus.models.base import Model
from dissensus.numerics import Array, row_shares, winners
from dissensus.tables.columns import find_column, has_column, listed
from dissensus.tables.labels_file import LABEL, LABELS_FILE, N_LABELS, probability_columns
from dissensus.tables.results import is_ours
from dissensus.tables.source import open_source
from dissensus.tables.tables import Table, open_table

MODEL_SUFFIX = ".safetensors"
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


def read_estimates(path: Path, *, item: str | None = None, label: str | None = None) -> Estimates:
    """Estimates from a table: distributions, labels or both."""
    table = open_table(path)
    columns, name = table.columns, str(path)
    items = find_column(columns, "item", item, name)
    probabilities = probability_columns(columns)
    labels = _label_column(columns, label, name, items, needed=not probabilities)
    texts = [column.cast(pa.string()) for column in table.ids([items, *([labels] if labels else [])])]
    vocabulary = Vocabulary(texts[0], "item")
    _refuse_repeats(vocabulary, name)
    given = texts[1].to_pylist() if labels else None
    chances = _probabilities(table, list(probabilities.values()), name) if probabilities else None
    classes = list(probabilities)
    classes += [] if given is None else sorted(set(given) - set(classes))
    made_of = _n_labels(table) if N_LABELS in columns else None
    wide = _widened(chances, len(classes))
    return Estimates(name, vocabulary, classes, wide, given, made_of, set(ON_A_SCALE) <= set(columns))


def _label_column(
    columns: Sequence[str], label: str | None, name: str, items: str, *, needed: bool
) -> str | None:
    if label is None and not needed:
        return LABEL if LABEL in columns else None
    return find_column(columns, "gold", label, name, taken=[items])


def _refuse_repeats(items: Vocabulary, name: str) -> None:
    counts = items.arrow.value_counts()
    repeated = np.flatnonzero(counts.field("counts").to_numpy() > 1)
    if len(repeated):
        item, rows = counts[int(repeated[0])].as_py().values()
        raise DataError(f"{name}: item {item!r} has {rows} rows; keep one row per item")


def _probabilities(table: Table, columns: Sequence[str], name: str) -> Array:
    """(items, classes): the numbers of the probability columns, each row a distribution."""
    whole = table.everything()
    try:
        numbers = [whole.column(column).cast(pa.float64()).to_numpy() for column in columns]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(f"{name}: the columns {listed(columns)} must hold numbers in every row") from None
    return check_distributions(np.column_stack(numbers), name)


def _n_labels(table: Table) -> NDArray[Any] | None:
    """The column that a run writes; None where another column has that name."""
    try:
        numbers: NDArray[Any] = table.everything().column(N_LABELS).cast(pa.int64()).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return numbers


def _widened(chances: Array | None, n_classes: int) -> Array | None:
    """The same with a column of zeros for every class that only labels name."""
    if chances is None or chances.shape[1] == n_classes:
        return chances
    return np.pad(chances, ((0, 0), (0, n_classes - chances.shape[1])))


def of_model(model: Model, name: str) -> Estimates:
    """What a fitted model claims about its items."""
    labels = [str(label) for label in model.predict()]
    classes = list(map(str, model.classes_))
    items, n_labels, ordered = _texts(model.items_), model.n_labels_, model.label_type_ == "ordinal"
    return Estimates(name, items, classes, model.label_distributions_, labels, np.asarray(n_labels), ordered)


def of_labels(annotations: Annotations, name: str) -> Estimates:
    """The empirical distribution of every item that has labels."""
    counts = annotations.counts
    labelled = np.flatnonzero(counts.sum(axis=1))
    chances = row_shares(counts[labelled])
    items = _texts(annotations.items[labelled])
    return Estimates(name, items, list(map(str, annotations.classes)), chances, None)


def _texts(ids: NDArray[Any]) -> Vocabulary:
    return Vocabulary([str(one) for one in ids], "item")


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
        values = {name: interval._asdict() for name, interval in self.values.items()}
        return {
            "against": self.against,
            "n_items": self.n_items,
            "left_out": self.left_out,
            "perhaps_seen": self.perhaps_seen,
            "values": values,
        }


def score_files(
    estimates: Path,
    reference: Path,
    *,
    metrics: Sequence[str] = (),
    n_boot: int = 1000,
    item: str | None = None,
    label: str | None = None,
    kind: str | None = None,
    read_labels: Reader | None = None,
) -> Scores:
    """Score a file of estimates, or a saved model, against a reference.

    ``metrics`` names measures (those of :data:`dissensus.metrics.METRICS`; without any, the ones that suit
    the reference). ``kind`` says what the reference is, ``item`` and ``label`` name columns, where they do
    not say so themselves; ``read_labels`` reads labels by annotators.

    Parameters
    ----------
    estimates
        A file of estimates, a saved model, or the directory of a run, of which the labels are taken.
    reference
        The file to compare with.
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
    _check_metrics(metrics)
    estimates = estimates / LABELS_FILE if is_ours(estimates) else estimates
    model = _load(estimates)
    claims = of_model(model, str(estimates)) if model else read_estimates(estimates, item=item, label=label)
    kind = kind or kind_of(reference)
    if kind == LABELS:
        hidden = (read_labels or _read_labels)(reference)
        return _against_labels(model, claims, hidden, str(reference), metrics, n_boot)
    truth = read_estimates(reference, item=item, label=label)
    suited = SUITED[kind] if claims.chances is not None else LABEL_METRICS[:3]
    suited += SUITED_TO_SCALES if claims.ordered and claims.chances is not None else ()
    return compare_estimates(claims, truth, metrics or suited, n_boot=n_boot, against=kind)


def kind_of(reference: Path) -> str:
    """What a file says about items: distributions, gold labels, or labels by annotators."""
    try:
        columns = open_table(reference).columns
    except DataError:
        if not reference.is_file():
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
    values = {
        name: _measured(METRICS[name], gold, hard if name in LABEL_METRICS else soft, n_boot)
        for name in metrics
    }
    return Scores(against, len(shared), len(there) - len(shared), values)


def _measured(metric: Callable[..., float], gold: Any, predicted: Any, n_boot: int) -> Interval:
    if not n_boot:
        return Interval(metric(gold, predicted), float("nan"), float("nan"))
    return bootstrap_interval(metric, gold, predicted, n_boot=n_boot)


def _against_labels(
    model: Model | None,
    claims: Estimates,
    hidden: Annotations,
    name: str,
    metrics: Sequence[str],
    n_boot: int,
) -> Scores:
    """Log-probability of every label; named measures against the labels' own distribution."""
    empirical = of_labels(hidden, name)
    scores = compare_estimates(claims, empirical, metrics, n_boot=n_boot, against=LABELS)
    scores = replace(scores, perhaps_seen=_as_many(claims, hidden))
    if metrics:
        return scores
    if model is not None:
        found = {"score": model.score(hidden), "score_items": model.score_items(hidden)}
        values = {key: Interval(value, float("nan"), float("nan")) for key, value in found.items()}
    else:
        values = {"score_items": _log_probability(claims, hidden, n_boot)}
    return replace(scores, values=values)


def _as_many(claims: Estimates, labels: Annotations) -> bool:
    """Has every item as many labels as its claim was made of? It has where they are the same labels."""
    if claims.n_labels is None:
        return False
    places = claims.items.codes([str(one) for one in labels.items])
    known = places >= 0
    return bool(np.array_equal(claims.n_labels[places[known]], np.diff(labels.item_pointers)[known]))


def _log_probability(claims: Estimates, hidden: Annotations, n_boot: int) -> Interval:
    """Mean log P(label | item) over the labels of items that the estimates have."""
    classes = [*claims.classes, *(c for c in map(str, hidden.classes) if c not in claims.classes)]
    places = claims.items.codes([str(one) for one in hidden.items])[hidden.item]
    known = places >= 0
    codes = np.array([classes.index(str(one)) for one in hidden.classes])[hidden.label[known]]
    logs = log_probability_rows(claims.distributions(places[known], classes), codes)
    if not n_boot:
        return Interval(float(logs.mean()), float("nan"), float("nan"))
    return bootstrap_mean(logs, items=hidden.item[known], n_boot=n_boot)


def _load(path: Path) -> Model | None:
    """The model, where the file is one."""
    if not path.exists():
        open_source(path)  # says what is missing, and what is near
    if path.suffix != MODEL_SUFFIX:
        return None
    from dissensus.text.guided.files import load_model

    return load_model(path)


def _read_labels(path: Path) -> Annotations:
    from dissensus.importers.read import read_annotations

    annotations: Annotations = read_annotations(path)
    return annotations


def _check_metrics(names: Sequence[str]) -> None:
    for name in names:
        if name not in METRICS:
            hint = did_you_mean(name, METRICS)
            raise ParameterError(f"there is no metric {name!r}; {hint}known: {', '.join(METRICS)}")
