"""Krippendorff's α on a million labels, beside counting them, and beside the packages people use.

The yardstick is ``np.bincount(item * P + label)``, without which nobody gets a table of counts: α may cost
three times that. The packages run on growing samples until one takes longer than a few seconds.
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

from dissensus.labels import agreement
from dissensus.labels.annotations import Annotations
from timing import best_seconds

Columns = tuple[np.ndarray, np.ndarray, np.ndarray]
P, LABELS_PER_ITEM, LIMIT, PATIENCE = 5, 5, 3.0, 5.0
LEVELS = ("nominal", "ordinal")

seconds = partial(best_seconds, clock=time.process_time)  # others' load counts little


def crowd(n_labels: int, seed: int = 0) -> Columns:
    """Item, annotator and label codes, sorted by item; an annotator gives about 200 labels."""
    rng = np.random.default_rng(seed)
    item = np.repeat(np.arange(n_labels // LABELS_PER_ITEM), LABELS_PER_ITEM)
    n_annotators = max(10, n_labels // 200)
    annotator = np.concatenate([rng.permutation(n_annotators) for _ in range(n_labels // n_annotators)])
    own = rng.integers(P, size=n_labels // LABELS_PER_ITEM)
    label = np.where(rng.random(n_labels) < 0.6, own[item], rng.integers(P, size=n_labels))
    return item, annotator, label


def peak_megabytes(task: Callable[[], object]) -> float:
    tracemalloc.start()
    task()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def against_counting(n_labels: int) -> float:
    """The worst ratio of α to the bare count, over the forms in which codes come."""
    item, _, label = crowd(n_labels)
    shuffled = np.random.default_rng(1).permutation(n_labels)
    forms = {
        "int64, by item": (item, label),
        "int32, by item": (item.astype(np.int32), label.astype(np.int32)),
        "int64, shuffled": (item[shuffled], label[shuffled]),
    }
    worst = 0.0
    for name, (items, labels) in forms.items():
        counting, *alphas = seconds(
            lambda i=items, c=labels: np.bincount(i * P + c),
            *(partial(agreement.krippendorff_alpha, items, labels, level=level) for level in LEVELS),
            repeats=60,
        )
        for level, alpha in zip(LEVELS, alphas, strict=True):
            worst = max(worst, alpha / counting)
            print(
                f"  {name:16} {level:8} α {alpha * 1e3:6.2f} ms, bincount {counting * 1e3:6.2f} ms, "
                f"ratio {alpha / counting:.2f}"
            )
    return worst


def the_rest(n_labels: int) -> None:
    item, annotator, label = crowd(n_labels)
    labels = Annotations.from_arrays(item, annotator, label)
    tasks = {
        "fleiss_kappa": partial(agreement.fleiss_kappa, item, label),
        "agreement_with_others": partial(agreement.agreement_with_others, labels),
    }
    for name, time_taken in zip(tasks, seconds(*tasks.values(), repeats=3), strict=True):
        print(f"  {name:22} {time_taken:6.3f} s")


def package_from_counts(columns: Columns) -> float:
    item, _, label = columns
    counts = np.bincount(item * P + label, minlength=(item[-1] + 1) * P).reshape(-1, P)
    return float(krippendorff.alpha(value_counts=counts, level_of_measurement="nominal"))


def package_from_table(columns: Columns) -> float:
    item, annotator, label = columns
    table = np.full((annotator.max() + 1, item.max() + 1), np.nan)
    table[annotator, item] = label
    return float(krippendorff.alpha(table, level_of_measurement="nominal"))


def nltk_alpha(columns: Columns) -> float:
    rows = [(str(a), str(i), str(c)) for i, a, c in zip(*(x.tolist() for x in columns), strict=True)]
    return float(AnnotationTask(data=rows).alpha())


def beside(
    name: str, peer: Callable[[Columns], float], samples: tuple[int, ...], memory: bool = False
) -> None:
    """Times on growing samples, ours beside the peer's; stops where the peer has become too slow."""
    for n_labels in samples:
        columns = crowd(n_labels)
        (ours,) = seconds(partial(agreement.krippendorff_alpha, columns[0], columns[2]), repeats=5)
        (theirs,) = seconds(partial(peer, columns), repeats=1)
        difference = abs(peer(columns) - agreement.krippendorff_alpha(columns[0], columns[2]))
        assert difference < 1e-6, f"{name} and this library differ by {difference}"
        held = f", {peak_megabytes(partial(peer, columns)):,.0f} MB" if memory else ""
        print(f"  {name:34} {n_labels:>9,} labels {theirs:8.3f} s{held}, {theirs / ours:,.0f} × ours")
        if theirs > PATIENCE:
            print(f"  {name:34} stopped: more than {PATIENCE:.0f} s")
            return


def main() -> int:
    print("one million labels, 200,000 items, five classes")
    worst = against_counting(1_000_000)
    the_rest(1_000_000)
    print("the same α by other packages")
    beside("krippendorff, from value counts", package_from_counts, (10_000, 100_000, 1_000_000))
    beside(
        "krippendorff, annotators × items", package_from_table, (1_000, 10_000, 100_000, 300_000), memory=True
    )
    item, annotator, _ = crowd(1_000_000)
    cells = (int(item[-1]) + 1) * (int(annotator.max()) + 1)
    print(f"  {'the same':34} 1,000,000 labels: its table alone takes {cells * 8 / 1e9:.0f} GB; not run")
    beside("nltk.metrics.agreement", nltk_alpha, (1_000, 10_000, 100_000, 1_000_000))
    print(f"worst ratio to counting {worst:.2f}, limit {LIMIT}")
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
