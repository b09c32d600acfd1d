"""How good are estimates? Held against a known truth, against gold labels, or against labels never seen.

What the reference is, its columns say: distributions (``p_<class>``), labels by annotators, or one gold label
an item. Each calls for its own measures; others can be named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.data.annotations import Annotations
from dissensus.errors import DataError, ParameterError, did_you_mean
from dissensus.evaluation.estimates import Estimates, class_columns, of_labels, of_model, read_estimates
from dissensus.evaluation.intervals import Interval, bootstrap_interval, bootstrap_mean
from dissensus.io.columns import has_column
from dissensus.io.source import open_source
from dissensus.io.tables import open_table
from dissensus.metrics import METRICS, log_probability_rows
from dissensus.models.base import Model

MODEL_SUFFIX = ".safetensors"
LABEL_METRICS = ("accuracy", "macro_f1", "weighted_f1", "onehot_accuracy", "lewidi_f1")
SUITED: dict[str, tuple[str, ...]] = {
    "distributions": ("kl", "jensen_shannon", "total_variation", "entropy_correlation", "accuracy"),
    "gold labels": ("accuracy", "macro_f1", "weighted_f1", "cross_entropy"),
}

Reader = Callable[[Path], Annotations]


@dataclass(frozen=True)
class Scores:
    """Measures by name, each with its interval over items (NaN where none was asked for)."""

    against: str  # "distributions", "gold labels" or "hidden labels"
    n_items: int  # items on both sides
    left_out: int  # items of the reference that the estimates do not have
    values: dict[str, Interval]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        values = {name: interval._asdict() for name, interval in self.values.items()}
        return {
            "against": self.against,
            "n_items": self.n_items,
            "left_out": self.left_out,
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
    """
    _check_metrics(metrics)
    model = _load(estimates)
    claims = of_model(model, str(estimates)) if model else read_estimates(estimates, item=item, label=label)
    kind = kind or kind_of(reference)
    if kind == "hidden labels":
        hidden = (read_labels or _read_labels)(reference)
        return _against_labels(model, claims, hidden, str(reference), metrics, n_boot)
    truth = read_estimates(reference, item=item, label=label)
    suited = SUITED[kind] if claims.chances is not None else LABEL_METRICS[:3]
    return compare_estimates(claims, truth, metrics or suited, n_boot=n_boot, against=kind)


def kind_of(reference: Path) -> str:
    """What a file says about items: distributions, gold labels, or labels by annotators."""
    try:
        columns = open_table(reference).columns
    except DataError:
        if not reference.is_file():
            raise
        return "hidden labels"  # a tool's export is no table, but has labels by annotators
    if class_columns(columns):
        return "distributions"
    return "hidden labels" if has_column(columns, "annotator") else "gold labels"


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
    """Log-probability of every hidden label; named measures against the hidden labels' own distribution."""
    empirical = of_labels(hidden, name)
    scores = compare_estimates(claims, empirical, metrics, n_boot=n_boot, against="hidden labels")
    if metrics:
        return scores
    if model is not None:
        found = {"score": model.score(hidden), "score_items": model.score_items(hidden)}
        values = {key: Interval(value, float("nan"), float("nan")) for key, value in found.items()}
    else:
        values = {"score_items": _log_probability(claims, hidden, n_boot)}
    return Scores("hidden labels", scores.n_items, scores.left_out, values)


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
    from dissensus.guided.files import load_model

    return load_model(path)


def _read_labels(path: Path) -> Annotations:
    from dissensus.io import read_annotations

    annotations: Annotations = read_annotations(path)
    return annotations


def _check_metrics(names: Sequence[str]) -> None:
    for name in names:
        if name not in METRICS:
            hint = did_you_mean(name, METRICS)
            raise ParameterError(f"there is no metric {name!r}; {hint}known: {', '.join(METRICS)}")
