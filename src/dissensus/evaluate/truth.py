"""The default for one true class: which of two pictures of the crowd the labels speak for.

In the first, annotators err independently of each other once the item's class is known; in the second, items
of a class come in subtypes, and annotators err together. IBCC and EBCC are these two pictures, and their
bounds have all normalisers, so the higher bound says which fits. Where it is the second, EBCC answers; else
log-linear Dawid–Skene, the better estimate of the first and, where bounds are equal, the simpler model
(docs/truth.md has the measurements). No gold label and no hidden label takes part in the choice: gold trains
the model that was chosen, and its accuracy on gold can be cross-fitted without choosing anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dissensus.evaluate.sides import shared_errors
from dissensus.labels.annotations import Annotations
from dissensus.models import build_model, name_of
from dissensus.models.base import Model
from dissensus.progress import Progress, ShowProgress, shown

UNSEEN = 0.3
#: The models of the choice, and the settings with which they are fitted.
APART: tuple[str, dict[str, Any]] = ("ibcc", {"unseen": UNSEEN, "max_iter": 100, "tol": 1e-5})
TOGETHER: tuple[str, dict[str, Any]] = ("ebcc", {"unseen": UNSEEN, "tol": 1e-5})
ANSWER: tuple[str, dict[str, Any]] = ("log-linear", {"unseen": UNSEEN})
FALLBACK = "majority"  # where nobody knows who gave which label


@dataclass(frozen=True)
class Candidate:
    """A model that was fitted for the choice."""

    model: Model
    bound: float
    seconds: float

    def as_row(self) -> dict[str, Any]:
        """The same as plain values."""
        return {"model": name_of(self.model), "bound": self.bound, "seconds": round(self.seconds, 3)}


@dataclass(frozen=True)
class TruthChoice:
    """A fitted model, those it was chosen among, and the reason."""

    model: Model
    table: list[Candidate]
    reason: str


def choose_truth(
    annotations: Annotations,
    seed: int = 0,
    *,
    item_prior: Any = None,
    n_jobs: int = -1,
    progress: ShowProgress = None,
) -> TruthChoice:
    """The default for one true class, fitted: log-linear Dawid–Skene, or EBCC where its bound says so.

    Parameters
    ----------
    annotations
        The labels to fit.
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    item_prior
        (items, classes): what is known beforehand, as by :func:`dissensus.gold_prior`. It trains the model
        that is chosen, and takes no part in the choice.
    n_jobs
        Number of threads; −1 takes all cores. The result does not depend on it.
    progress
        True or False, a function that is told (what, share done), or None: a bar on a terminal.
    """
    if annotations.anonymous:
        model = build_model(FALLBACK, {}).fit(annotations)
        return TruthChoice(model, [], "nobody knows who gave which label, so all count alike")
    with shown(progress) as tell:
        fit = _fitting(annotations, seed, n_jobs, tell)
        apart, together = fit(*APART, 0.0), fit(*TOGETHER, 0.1)
        ahead = together.bound - apart.bound
        why = reason(annotations, ahead)
        if ahead > 0:
            trained = together if item_prior is None else fit(*TOGETHER, 0.5, item_prior)
            return TruthChoice(trained.model, [apart, together], why)
        answer = fit(*ANSWER, 0.5, item_prior)
        return TruthChoice(answer.model, [apart, together, answer], why)


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


def _fitting(annotations: Annotations, seed: int, n_jobs: int, tell: Progress) -> Callable[..., Candidate]:
    def fit(name: str, settings: Any, behind: float, item_prior: Any = None) -> Candidate:
        tell(f"fitting {name} to all labels", behind)
        started = time.perf_counter()
        model: Any = build_model(name, settings, seed=seed, n_jobs=n_jobs, estimate="truth")
        model.fit(annotations, item_prior=item_prior)
        return Candidate(model, float(model.trace_[-1]), time.perf_counter() - started)

    return fit
