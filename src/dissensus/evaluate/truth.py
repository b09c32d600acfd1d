"""Choice of a model of one true class, without gold or hidden labels.

In IBCC, the errors of annotators are independent given the item's class; in EBCC, the items of a class have
subtypes, so annotators make the same errors. Both variational bounds contain all normalisers, so the model
with the higher bound fits better. Log-linear Dawid–Skene makes the assumption of IBCC, with better estimates
(docs/results/truth.md).

A better fit can also mean that classes drift: "maybe", which only some annotators use, becomes the class of
all difficult items. Two guards tie the classes to the votes, in which c_m are the most frequent labels of
item m. C_kp is the population's matrix.

    agreement = mean over items of [answer ∈ c_m] / |c_m|                                              (1)
    drift: for some class k that has labels, arg max_p C_kp ≠ k                                        (2)

EBCC is used if its bound is higher, or only log-linear Dawid–Skene has a class that drifts, provided that its
agreement is not lower; otherwise log-linear Dawid–Skene is used.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.evaluate.group_agreement import shared_errors
from dissensus.labels import as_annotations
from dissensus.labels.annotations import Annotations
from dissensus.models import build_model, name_of
from dissensus.models.base import Model
from dissensus.numerics import winners
from dissensus.progress import ShowProgress, shown

ModelSettings = tuple[str, dict[str, Any]]
INDEPENDENT_ERRORS: ModelSettings = ("ibcc", {"max_iter": 100, "tol": 1e-5})
SHARED_ERRORS: ModelSettings = ("ebcc", {"tol": 1e-5})
TRUTH_DEFAULT: ModelSettings = ("log-linear", {})


@dataclass(frozen=True)
class TruthCandidate:
    """A model fitted for the choice by :func:`choose_truth`."""

    model: Model
    bound: float
    seconds: float
    agreement: float  # (1)
    drifts: bool  # (2)

    def as_row(self) -> dict[str, Any]:
        """Return name, bound, time, agreement with the majority vote and drift as plain values."""
        values = {"bound": self.bound, "seconds": round(self.seconds, 3), "agreement": self.agreement}
        return {"model": name_of(self.model), **values, "drifts": self.drifts}


@dataclass(frozen=True)
class Choice:
    """The chosen model, fitted, all candidates, and the reason."""

    model: Model
    table: list[TruthCandidate]
    reason: str


def choose_truth(
    labels: Any, seed: int = 0, *, prior: Any = None, n_jobs: int = -1, progress: ShowProgress = None
) -> Choice:
    """Choose and fit a model of one true class: log-linear Dawid–Skene, or EBCC if it fits better.

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
    counts = annotations.counts
    labelled, used, votes = np.flatnonzero(counts.any(axis=1)), counts.any(axis=0), winners(counts)
    with shown(progress) as report:

        def fit(candidate: ModelSettings, done: float, prior: Any = None) -> TruthCandidate:
            name, settings = candidate
            report(f"fitting {name} to all labels", done)
            started = time.perf_counter()
            model: Any = build_model(name, settings, seed=seed, n_jobs=n_jobs, estimate="truth")
            model.fit(annotations, prior=prior)
            seconds = time.perf_counter() - started
            answers, matrix = model.posterior_.argmax(axis=1), model.crowd_confusion_
            agreement = float(votes[labelled, answers[labelled]].mean())
            drifts = bool((matrix.argmax(axis=1) != np.arange(len(matrix)))[used].any())
            return TruthCandidate(model, float(model.trace_[-1]), seconds, agreement, drifts)

        table = [fit(INDEPENDENT_ERRORS, 0.0), fit(SHARED_ERRORS, 0.1), fit(TRUTH_DEFAULT, 0.4)]
        independent, shared, default = table
        difference, only_default_drifts = shared.bound - independent.bound, default.drifts > shared.drifts
        preferred = difference > 0 or only_default_drifts
        chosen = shared if preferred and shared.agreement >= default.agreement else default
        model = chosen.model
        if prior is not None:
            model = fit(SHARED_ERRORS if chosen is shared else TRUTH_DEFAULT, 0.7, prior).model
    words = reason(annotations, difference)
    if chosen is shared and difference <= 0:
        words += "; but in log-linear, most answers to some class name another class, which is not so in ebcc"
    elif preferred and chosen is default:
        words += (
            f"; but the answers of ebcc agree with the majority vote less often than those of log-linear "
            f"({shared.agreement:.1%} and {default.agreement:.1%})"
        )
    return Choice(model, table, words)


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
