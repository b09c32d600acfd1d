"""Krippendorff's α with its interval on a million labels, compared with counting and with other packages.

The reference is ``np.bincount(item * P + label)``, the least work for a table of counts; α and its interval
may take twenty times as long. The other packages run on growing samples until one takes more than a few
seconds.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import krippendorff
import numpy as np
from nltk.metrics.agreement import AnnotationTask

from benchmarks.timing import best_seconds
from dissensus.labels.agreement import agreement_with_others
from dissensus.labels.annotations import Annotations
from dissensus.labels.coefficients import agreement
from dissensus.labels.kinds import LabelType
from experiments.runner import check_limit

Columns = tuple[np.ndarray, np.ndarray, np.ndarray]
P, LABELS_PER_ITEM = 5, 5
MAX_RATIO, MAX_PEER_SECONDS = 20.0, 5.0
LABEL_TYPES = ("nominal", "ordinal", "numeric")

seconds = partial(best_seconds, clock=time.process_time)


def crowd(n_labels: int, seed: int = 0) -> Columns:
    """Return item, annotator and label codes, sorted by item; about 200 labels per annotator."""
    rng = np.random.default_rng(seed)
    item = np.repeat(np.arange(n_labels // LABELS_PER_ITEM), LABELS_PER_ITEM)
    n_annotators = max(10, n_labels // 200)
    annotator = np.concatenate([rng.permutation(n_annotators) for _ in range(n_labels // n_annotators)])
    truth = rng.integers(P, size=n_labels // LABELS_PER_ITEM)
    label = np.where(rng.random(n_labels) < 0.6, truth[item], rng.integers(P, size=n_labels))
    return item, annotator, label


def annotations_of(columns: Columns, label_type: LabelType = "nominal") -> Annotations:
    """Return annotations, without the tables that are computed when needed."""
    item, annotator, label = columns
    classes = range(P) if label_type != "numeric" else None
    return Annotations.from_arrays(item, annotator, label, classes=classes, label_type=label_type)


def alpha(labels: Annotations) -> float:
    """Return α, computed with its interval, from labels that have not been counted yet."""
    labels.__dict__.pop("counts", None)
    return agreement(labels, "alpha")["alpha"].value


def against_counting(n_labels: int) -> float:
    """Return the worst ratio of the times of α and of counting, over several types of labels."""
    columns = crowd(n_labels)
    item, _, label = columns
    crowds = [annotations_of(columns, label_type) for label_type in LABEL_TYPES]
    counting, *alphas = seconds(
        lambda: np.bincount(item * P + label), *(partial(alpha, labels) for labels in crowds), repeats=60
    )
    for label_type, taken in zip(LABEL_TYPES, alphas, strict=True):
        print(f"  {label_type:8} α {taken * 1e3:6.2f} ms, ratio {taken / counting:.2f}")
    return max(alphas) / counting


def alpha_from_counts(columns: Columns) -> float:
    item, _, label = columns
    counts = np.bincount(item * P + label, minlength=(item[-1] + 1) * P).reshape(-1, P)
    return float(krippendorff.alpha(value_counts=counts, level_of_measurement="nominal"))


def alpha_from_table(columns: Columns) -> float:
    item, annotator, label = columns
    table = np.full((annotator.max() + 1, item.max() + 1), np.nan)
    table[annotator, item] = label
    return float(krippendorff.alpha(table, level_of_measurement="nominal"))


def alpha_of_nltk(columns: Columns) -> float:
    rows = [(str(a), str(i), str(c)) for i, a, c in zip(*(x.tolist() for x in columns), strict=True)]
    return float(AnnotationTask(data=rows).alpha())


def against_package(name: str, peer: Callable[[Columns], float], samples: tuple[int, ...]) -> None:
    """Print times and memory of a package on growing samples, until it is too slow."""
    for n_labels in samples:
        columns = crowd(n_labels)
        ours = partial(alpha, annotations_of(columns))
        (our_seconds,) = seconds(ours, repeats=5)
        (peer_seconds,) = seconds(partial(peer, columns), repeats=1)
        tracemalloc.start()
        difference = abs(peer(columns) - ours())
        megabytes = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        assert difference < 1e-6, f"{name} and this library differ by {difference}"
        ratio = f"{peer_seconds / our_seconds:,.0f} × ours"
        print(f"  {name:34} {n_labels:>9,} labels {peer_seconds:8.3f} s, {megabytes:,.0f} MB, {ratio}")
        if peer_seconds > MAX_PEER_SECONDS:
            return


def main() -> int:
    n_labels = 1_000_000
    worst = against_counting(n_labels)
    labels = annotations_of(crowd(n_labels))
    tasks = {
        "all coefficients": partial(agreement, labels),
        "agreement_with_others": partial(agreement_with_others, labels),
    }
    for name, taken in zip(tasks, seconds(*tasks.values(), repeats=3), strict=True):
        print(f"  {name:22} {taken:6.3f} s")
    against_package("krippendorff, from value counts", alpha_from_counts, (10_000, 100_000, 1_000_000))
    samples = (1_000, 10_000, 100_000, 300_000)
    against_package("krippendorff, annotators × items", alpha_from_table, samples)
    against_package("nltk.metrics.agreement", alpha_of_nltk, (1_000, 10_000, 100_000, 1_000_000))
    return check_limit("α with its interval over counting, worst ratio", worst, MAX_RATIO)


if __name__ == "__main__":
    sys.exit(main())
