"""Which model describes these labels best? The one that best foresees labels it has not seen.

A fifth of the (item, annotator) pairs is hidden; every candidate is fitted to the rest and asked for the
probability of each hidden label. What counts is the mean log-probability per label, in nats (``score``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dissensus.data.annotations import Annotations
from dissensus.errors import DataError
from dissensus.execution.progress import Progress, ShowProgress, shown
from dissensus.execution.resources import current, using
from dissensus.execution.threads import executor
from dissensus.models import CLUSTER_SETTINGS, build_model, name_of, title_of
from dissensus.models.base import Model
from dissensus.params import n_cores, size_words, with_settings

#: What is tried: the name of a model and the settings to try it with.
CANDIDATES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("majority", {}),
    ("empirical", {}),
    ("fmm", {"n_item_clusters": 4}),
    ("fmm", {"n_item_clusters": 8}),
    ("fmm", {"n_item_clusters": 16}),
    ("fmm", {"n_item_clusters": 32}),
    ("one-coin", {}),
    ("dawid-skene", {}),
    ("cbcc", {}),
    ("pgm", {"n_item_clusters": 6, "n_annotator_clusters": 4}),
    ("pgm", {"n_item_clusters": 12, "n_annotator_clusters": 8}),
    ("pgm", {"n_item_clusters": 20, "n_annotator_clusters": 20}),
    ("pgm", {"n_item_clusters": 20, "n_annotator_clusters": 20, "inference": "vb"}),
)
FALLBACK = "empirical"  # where there are too few labels to choose by
FEWEST_HIDDEN = 20  # hidden pairs that a choice needs
MOST_LABELS = 200_000  # labels that a choice is based on
HIDING_BYTES = 32  # a label, to cut labels into two parts: their pairs, an order of those, and copies of rows


@dataclass(frozen=True)
class HeldOut:
    """How well one candidate foresaw the hidden labels."""

    model: Model  # its settings; not fitted
    score: float  # mean log P(label | item, annotator)
    score_items: float  # mean log P(label | item)
    n_hidden: int  # labels hidden
    seconds: float  # to fit and to score

    def as_row(self) -> dict[str, Any]:
        """The same as plain values, for tables and JSON."""
        return {
            "model": name_of(self.model),
            "settings": self.model.get_params(deep=False),
            "score": self.score,
            "score_items": self.score_items,
            "n_hidden": self.n_hidden,
            "seconds": round(self.seconds, 3),
        }


def choose_model(
    annotations: Annotations,
    seed: int = 0,
    *,
    candidates: Sequence[tuple[str, Mapping[str, Any]]] = CANDIDATES,
    test_size: float = 0.2,
    n_jobs: int = -1,
    progress: ShowProgress = None,
) -> tuple[Model, list[HeldOut]]:
    """The candidate with the highest held-out ``score`` (not fitted yet), and how every one of them did.

    Candidates that cannot apply are left out: those with more clusters than there is anything to cluster,
    and those that need annotators where the data have none. With too few labels to choose by, the table is
    empty and the smoothed counts are chosen; with very many, a seeded part of the items (as many as have
    ``MOST_LABELS`` labels) stands for all.
    """
    if round(test_size * annotations.n_pairs) < FEWEST_HIDDEN:
        return build_model(FALLBACK, {}, seed=seed, n_jobs=n_jobs), []
    models = [build_model(name, settings, seed=seed, n_jobs=n_jobs) for name, settings in candidates]
    fitting = [model for model in models if _applies(model, annotations)]
    sample = _sample(annotations, seed)
    table = compare(sample, fitting, seed, test_size=test_size, n_jobs=n_jobs, progress=progress)
    return max(table, key=lambda row: row.score).model, table


def compare(
    annotations: Annotations,
    models: Sequence[Model],
    seed: int = 0,
    *,
    test_size: float = 0.2,
    n_jobs: int = -1,
    progress: ShowProgress = None,
) -> list[HeldOut]:
    """Fit every model to one part of the labels and score it on the rest; empty if none can be hidden.

    ``n_jobs`` models are fitted side by side, on one thread each; one at a time, on as many as they say.
    """
    with _beside(HIDING_BYTES * annotations.n_labels):
        kept, hidden = annotations.split_labels(test_size, seed)
        if not (kept.n_labels and hidden.n_labels):
            return []
        with shown(progress) as tell:
            return _compared(kept, hidden, models, n_jobs, tell)


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
    kept: Annotations, hidden: Annotations, models: Sequence[Model], n_jobs: int, tell: Progress
) -> list[HeldOut]:
    # On a cluster each fit has all of it to itself, and where memory is limited all of that.
    alone = current().client is not None or current().memory is not None
    n_at_once = 1 if alone else min(n_cores() if n_jobs == -1 else n_jobs, max(len(models), 1))
    done: list[str] = []

    def trial(model: Model) -> HeldOut:
        tell(f"held-out labels: {title_of(model)}", len(done) / len(models))
        started = time.perf_counter()
        # A copy, so that the candidate itself stays unfitted.
        own = {"n_jobs": 1} if n_at_once > 1 and hasattr(model, "n_jobs") else {}
        fitted = with_settings(model, own).fit(kept)
        score, score_items = fitted.score(hidden), fitted.score_items(hidden)
        done.append(repr(model))
        return HeldOut(model, score, score_items, hidden.n_labels, time.perf_counter() - started)

    with executor(n_at_once) as pool:
        return pool.map(trial, models)


def _sample(annotations: Annotations, seed: int) -> Annotations:
    """Items drawn at random until they have ``MOST_LABELS`` labels; all of them where there are no more."""
    if annotations.n_labels <= MOST_LABELS:
        return annotations
    order = np.random.default_rng(seed).permutation(annotations.n_items)
    within = np.cumsum(annotations.counts.sum(axis=1)[order]) <= MOST_LABELS
    return annotations.take_items(np.sort(order[within]))


def _applies(model: Model, annotations: Annotations) -> bool:
    if model._needs_annotators and annotations.anonymous:
        return False
    return all(
        getattr(model, setting, 1) <= getattr(annotations, size) for setting, size in CLUSTER_SETTINGS.items()
    )
