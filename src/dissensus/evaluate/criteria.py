"""What a trial is judged by: how well an estimator foresees what it was not shown. Higher is better.

A criterion is any function of (estimator, annotations, seed) that fits the estimator and gives a number. The
seed stands for the split: trials with the same seed hide the same labels, so that their scores can be
subtracted. A criterion that judges several estimators at less cost than one by one also has the methods
``groups(estimators)`` (lists of places, each judged in one go) and ``scores(estimators, annotations, seed)``.
Information criteria of mixtures hide nothing, and weigh a fit against its size instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.engine import Engine
from dissensus.errors import DataError, bad_parameter
from dissensus.evaluate.tasks import plain
from dissensus.labels.annotations import Annotations
from dissensus.labels.rows import pair_items, pairs_per_item, random_places, take_pairs

Criterion = Callable[[Any, Annotations, int], float]


@dataclass(frozen=True)
class HeldOutLabels:
    """Mean log P(label | item, annotator) of hidden labels, in nats.

    A share ``test_size`` of the (item, annotator) pairs is hidden with all their labels, as by
    ``annotations.split_labels(test_size, seed)``. ``given="item"`` asks for log P(label | item) instead.
    """

    test_size: float = 0.2
    given: str = "item and annotator"

    def __call__(self, estimator: Any, annotations: Annotations, seed: int) -> float:
        """Fit on what is left and score what is hidden."""
        return self.judge(estimator, *self.split(annotations, seed))

    def split(self, annotations: Annotations, seed: int) -> tuple[Annotations, Annotations]:
        """The labels to fit to, and the hidden ones; a search splits once for many estimators."""
        kept, hidden = annotations.split_labels(self.test_size, seed)
        if not (kept.n_labels and hidden.n_labels):
            raise DataError(f"{annotations.n_pairs} pairs are too few to hide {self.test_size:.0%} of them")
        return kept, hidden

    def judge(self, estimator: Any, kept: Annotations, hidden: Annotations) -> float:
        """Fit to the one part of a split and score the other."""
        return _score(estimator.fit(kept), hidden, self.given)


@dataclass(frozen=True)
class DevItems:
    """The same of items not seen in the fit: half of a dev item's pairs folded in, the other half scored.

    ``dev`` holds the items to judge by; without it, a seeded share ``test_size`` of all items is kept out of
    the fit. Of an odd number of pairs the odd one is folded in (``apply``).
    """

    dev: Annotations | None = None
    test_size: float = 0.2
    given: str = "item and annotator"

    def __call__(self, estimator: Any, annotations: Annotations, seed: int) -> float:
        """Fit on the training items, fold in half of each dev item, score the other half."""
        train, dev = annotations, self.dev
        if dev is None:
            shares = {"dev": self.test_size, "train": 1 - self.test_size}
            parts = annotations.split_items(shares, seed=seed)
            train, dev = parts["train"], parts["dev"]
        folded, hidden = halves(dev, seed)
        if not (train.n_labels and hidden.n_labels):
            raise DataError("the dev items have no two annotators each; give others, or hide labels instead")
        return _score(estimator.fit(train).apply(folded), hidden, self.given)


def halves(annotations: Annotations, seed: int) -> tuple[Annotations, Annotations]:
    """Half of every item's pairs drawn at random (the larger half of an odd number), and the others."""
    places = random_places(annotations, np.random.default_rng(seed))
    # place < n / 2, in whole numbers
    first = 2 * places < pairs_per_item(annotations)[pair_items(annotations)]
    return take_pairs(annotations, first), take_pairs(annotations, ~first)


def _score(fitted: Any, hidden: Annotations, given: str) -> float:
    return float(fitted.score(hidden) if given == "item and annotator" else fitted.score_items(hidden))


# ---- information criteria -----------------------------------------------------------------------------
#
# With M items, N annotators and n labels, K × L clusters and P classes, the free parameters cost
#
#     pen = (K−1)/2 · log M + (L−1)/2 · log N + K·L·(P−1)/2 · log n                                      (1)
#
# as Keribin, Brault, Celeux and Govaert (Statistics and Computing 25, 2015) count them for latent block
# models: shares of item clusters are learned from items, shares of annotator clusters from annotators, and Θ
# from labels. FMM is the case L = 1. Then
#
#     bic = (log P(labels | Θ, ψ, Ω) − pen) / n        clusters summed over, in Bethe's form (exact for L = 1)
#     icl = (log P(labels, ŵ, ẑ | Θ, ψ, Ω) − pen) / n  with every item and annotator in its likeliest cluster
#     evidence = log P(labels) / n                     parameters integrated out: what a "vb" fit climbs
#
# None of them hides a label, so repeats differ by the fit's random start alone.

ROUNDS = 100  # of messages, at most, until Bethe's form has settled


@dataclass(frozen=True)
class InformationCriterion:
    """``bic``, ``icl`` or ``evidence`` of an FMM or a PGM."""

    name: str

    def __call__(self, estimator: Any, annotations: Annotations, seed: int) -> float:
        """Fit on all labels and weigh the fit against its size."""
        self.check(estimator)
        fitted = estimator.fit(annotations)
        if self.name == "evidence":
            return float(fitted.trace_[-1]) / annotations.n_labels
        explained = log_evidence if self.name == "bic" else log_complete
        return (explained(fitted, annotations) - penalty(fitted, annotations)) / annotations.n_labels

    def check(self, estimator: Any) -> None:
        """Refuse an estimator that it cannot judge."""
        kind = type(estimator).__name__
        if kind not in ("FMM", "PGM"):
            rule = f"'held-out' or 'dev' for {kind}; information criteria count the parameters of FMM and PGM"
            raise bad_parameter("select", "criterion", rule, self.name)
        if self.name == "evidence" and getattr(estimator, "inference", None) != "vb":
            rule = "'bic', 'icl' or one that hides labels, unless the model is PGM with inference='vb'"
            raise bad_parameter("select", "criterion", rule, self.name)


def penalty(fitted: Any, annotations: Annotations) -> float:
    """What the free parameters cost (1), items and annotators without labels not counted."""
    K, L, P = fitted.cluster_view().theta.shape
    M, N = np.count_nonzero(annotations.counts.any(axis=1)), np.count_nonzero(annotations.annotator_load)
    shares = (K - 1) * np.log(M) + (L - 1) * np.log(N)
    return float(shares + K * L * (P - 1) * np.log(annotations.n_labels)) / 2


def log_evidence(fitted: Any, annotations: Annotations) -> float:
    """log P(labels | Θ, ψ, Ω) by messages run until they settle, from the prior shares."""
    from dissensus.models.pgm.messages import Graph, Potentials
    from dissensus.numerics import safe_log

    known = fitted.cluster_view()
    potentials = Potentials(safe_log(known.theta), safe_log(known.psi), safe_log(known.omega))
    graph = Graph(annotations, Engine(), keep_cavities=False)
    M, N = annotations.n_items, annotations.n_annotators
    start = graph.start(np.tile(known.psi, (M, 1)), np.tile(known.omega, (N, 1)))
    settled = graph.settle(start, potentials, rounds=ROUNDS, tol=1e-8 * annotations.n_labels)
    return graph.evidence(settled)


def log_complete(fitted: Any, annotations: Annotations) -> float:
    """log P(labels, ŵ, ẑ | Θ, ψ, Ω)."""
    from dissensus.models.pgm.m_step import block_counts
    from dissensus.numerics import safe_log

    known = fitted.cluster_view()
    z = np.ones((annotations.n_annotators, 1)) if known.annotators is None else known.annotators
    w, z = known.items.argmax(axis=1), z.argmax(axis=1)
    counts = block_counts(annotations, w, z, *known.theta.shape[:2])
    labelled, labelling = annotations.counts.any(axis=1), annotations.annotator_load > 0
    # Σ_{labels} log Θ_{w_m, z_n, y} + Σ_m log ψ_{w_m} + Σ_n log Ω_{z_n}
    labels = (counts * safe_log(known.theta)).sum()
    shares = safe_log(known.psi)[w[labelled]].sum() + safe_log(known.omega)[z[labelling]].sum()
    return float(labels + shares)


# ---- by name ------------------------------------------------------------------------------------------

NAMES = ("held-out", "held-out-items", "dev", "dev-items", "bic", "icl", "evidence")


def criterion_of(
    wanted: str | Criterion, *, dev: Annotations | None = None, test_size: float = 0.2
) -> Criterion:
    """A criterion by name, or the function given."""
    if callable(wanted):
        return wanted
    if not 0 < test_size < 1:
        raise bad_parameter("select", "test_size", "a float > 0 and < 1", test_size)
    given = "item" if str(wanted).endswith("-items") else "item and annotator"
    if wanted in ("held-out", "held-out-items"):
        return HeldOutLabels(test_size, given)
    if wanted in ("dev", "dev-items"):
        return DevItems(dev, test_size, given)
    if wanted in NAMES:
        return InformationCriterion(wanted)
    raise bad_parameter("select", "criterion", f"a function or one of {', '.join(NAMES)}", wanted)


def criterion_record(criterion: Criterion) -> dict[str, Any]:
    """What a search writes down of its criterion: name and settings, data as their fingerprint.

    Of a function of the user's own only the name is known.
    """
    if not dataclasses.is_dataclass(criterion) or isinstance(criterion, type):
        return {"name": getattr(criterion, "__qualname__", type(criterion).__qualname__)}
    record = {"name": type(criterion).__name__}
    for field in dataclasses.fields(criterion):
        value = getattr(criterion, field.name)
        record[field.name] = value.fingerprint() if isinstance(value, Annotations) else plain(value)
    return record
