"""Descriptive statistics of labels, for checking that they were read as intended."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import setting
from dissensus.labels import as_annotations
from dissensus.labels.agreement import reading
from dissensus.labels.annotations import Annotations
from dissensus.labels.coefficients import agreement
from dissensus.labels.display import TableResult
from dissensus.labels.vocabulary import quoted
from dissensus.metrics import accuracy_rows, entropy_rows
from dissensus.numerics import row_shares

MAX_LISTED_CLASSES = 20
# α's level of measurement, by the kind of its weights
LEVELS = {"identity": "nominal", "ordinal": "ordinal", "quadratic": "interval", "masi": "masi"}


@dataclass(frozen=True)
class Spread:
    """Mean, minimum, median and maximum of a number."""

    mean: float
    min: int
    median: float
    max: int

    @classmethod
    def of(cls, values: NDArray[Any]) -> Spread:
        """Summarise integers."""
        values = values if len(values) else np.zeros(1, int)
        return cls(float(values.mean()), int(values.min()), float(np.median(values)), int(values.max()))

    def __str__(self) -> str:
        if self.min == self.max:
            return f"{self.min:,} each"
        return f"median {self.median:g}, {self.min:,} to {self.max:,}, mean {self.mean:,.2f}"


@dataclass(frozen=True)
class Description(TableResult):
    """Summary of annotations; ``as_text`` for reading, ``to_dict`` for JSON."""

    n_items: int
    n_annotators: int | None  # None if the source does not name them
    n_labels: int
    n_classes: int
    label_type: str
    labels_per_item: Spread  # over items that have labels
    labels_per_annotator: Spread | None
    class_counts: dict[str, int]  # empty for numeric labels
    mean_entropy: float | None  # nats, of the label counts of items that have labels; None for numbers
    alpha: float  # Krippendorff's α at the level of the labels' type
    alpha_low: float  # its 95 % interval, over items
    alpha_high: float
    reading: str  # interpretation of α
    unanimous: float | None  # share of the items with two labels or more whose labels are equal
    pairwise_agreement: float | None  # probability that two annotators' labels of one item are equal
    self_consistency: float | None  # probability that two labels of one pair are equal
    level: str  # nominal, ordinal or interval
    numbers: dict[str, float] | None  # of numeric labels: mean, sd, min, max and intra-class correlation
    n_repeated_pairs: int  # (item, annotator) pairs with more than one label
    n_differing_pairs: int  # pairs whose labels differ
    n_parts: int | None  # connected components of items and annotators
    largest_part_items: int | None
    n_unlabelled_items: int
    n_gold: int | None  # items with a gold label and at least one label
    majority_accuracy: float | None  # of the most frequent label, with ties counted in part
    columns: dict[str, str]  # column of the source, by role
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self) | {"notes": list(self.notes)}

    def as_text(self) -> str:
        """Return the facts as text, one per line."""
        facts = self._facts()
        width = max(map(len, facts)) + 2
        lines = [f"{name:<{width}}{value}" for name, value in facts.items()]
        return "\n".join([*lines, *self._balance_lines(), *(f"note: {note}" for note in self.notes)])

    _n_html_rows = 30

    def _head(self, n: int | None) -> dict[str, Any]:
        facts = self._facts()
        return {"fact": list(facts), "value": list(facts.values())}

    def _caption(self) -> str:
        return f"{self.n_labels:,} labels of {self.n_items:,} items"

    def _facts(self) -> dict[str, str]:
        alpha, unanimous, consistency = self._agreement_texts()
        parts = gold = ratings = ""
        if self.n_parts == 1:
            parts = "none: all items are connected through annotators"
        elif self.n_parts is not None:
            remark = "annotators of different parts cannot be compared"
            parts = f"{self.n_parts:,}, the largest with {self.largest_part_items:,} items: {remark}"
        if self.n_gold is not None:
            gold = f"{self.n_gold:,} items"
        if self.majority_accuracy is not None:
            gold += f"; the most frequent label is right on {self.majority_accuracy:.1%}"
        if self.numbers is not None:
            ratings = "mean {mean:.4g}, standard deviation {sd:.4g}, {min:g} to {max:g}; ICC {icc:.3f}"
        facts = {
            "agreement": alpha,
            "unanimous": unanimous,
            "labels per item": str(self.labels_per_item),
            "self-consistency": consistency,
            "disconnected parts": parts,
            "gold labels": gold,
            "items": f"{self.n_items:,}",
            "annotators": "not named" if self.n_annotators is None else f"{self.n_annotators:,}",
            "labels": f"{self.n_labels:,}",
            "distinct numbers" if self.numbers else "classes": f"{self.n_classes:,}",
            "label type": self.label_type,
            "ratings": ratings.format(**(self.numbers or {})),
            "labels per annotator": str(self.labels_per_annotator or ""),
            "mean entropy": "" if self.mean_entropy is None else f"{self.mean_entropy:.4f} nats",
            "unlabelled items": f"{self.n_unlabelled_items:,}" if self.n_unlabelled_items else "",
        }
        return {name: value for name, value in facts.items() if value}

    def _agreement_texts(self) -> tuple[str, str, str]:
        """Return texts on α, on agreement about an item, and on repeated labels of one annotator."""
        alpha = f"Krippendorff's α {self.reading}"
        if math.isfinite(self.alpha):
            span = f"95 % interval {self.alpha_low:.3f} to {self.alpha_high:.3f}, "
            span = f"({span if math.isfinite(self.alpha_low) else ''}{self.level} level)"
            alpha = f"Krippendorff's α {self.alpha:.3f} {span}: {self.reading}"
        unanimous = "" if self.numbers else "no item has labels by two annotators"
        if self.unanimous is not None and self.pairwise_agreement is not None:
            alike = f"two annotators of an item agree with probability {self.pairwise_agreement:.1%}"
            unanimous = f"{self.unanimous:.1%} of the items with two labels or more; {alike}"
        consistency = "unknown: no annotator labelled an item twice" if self.n_annotators is not None else ""
        if self.self_consistency is not None:
            again = f"{self.n_repeated_pairs:,} item–annotator pair{'s' * (self.n_repeated_pairs != 1)}"
            differ = f"{self.n_differing_pairs:,} with differing labels"
            consistency = f"{self.self_consistency:.1%} of repeated labels are equal ({again}, {differ})"
        return alpha, unanimous, consistency

    def _balance_lines(self) -> list[str]:
        if not self.class_counts:
            return []
        # quote names with white space at the ends, which would be invisible
        counts = {name if name == name.strip() else repr(name): n for name, n in self.class_counts.items()}
        names = list(counts)
        if self.label_type != "ordinal":  # a scale keeps its order
            names.sort(key=lambda name: -counts[name])
        shown, more = names[:MAX_LISTED_CLASSES], len(names) - MAX_LISTED_CLASSES
        width, total = max(map(len, shown)), max(self.n_labels, 1)
        lines = [f"  {name:<{width}}  {counts[name] / total:6.1%}  {counts[name]:,}" for name in shown]
        return ["class shares", *lines, *([f"  … and {more} more"] if more > 0 else [])]


def describe(labels: Any) -> Description:
    """Describe labels: sizes, agreement, repeats, connectedness and gold.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    """
    annotations = as_annotations(labels)
    per_item = np.diff(annotations.item_pointers)
    named, numeric = not annotations.anonymous, annotations.label_type == "numeric"
    n_parts, largest = connected_parts(annotations) if named else (None, None)
    n_gold, accuracy = _compare_with_gold(annotations)
    coefficients = agreement(annotations, ["alpha", "icc1"] if numeric else "alpha")
    alpha = coefficients["alpha"]
    between, within, n_repeated, n_differing = pair_agreement(annotations)
    mean_entropy, unanimous = (None, None) if numeric else _entropy_and_unanimity(annotations)
    counts = dict(zip(map(str, annotations.classes), annotations.class_counts.tolist(), strict=True))
    return Description(
        n_items=annotations.n_items,
        n_annotators=annotations.n_annotators if named else None,
        n_labels=annotations.n_labels,
        n_classes=annotations.n_classes,
        label_type=annotations.label_type,
        labels_per_item=Spread.of(per_item[per_item > 0]),
        labels_per_annotator=Spread.of(annotations.annotator_load) if named else None,
        class_counts={} if numeric else counts,
        mean_entropy=mean_entropy,
        alpha=alpha.value,
        alpha_low=alpha.low,
        alpha_high=alpha.high,
        reading=reading(alpha.value, alpha.low, alpha.high),
        unanimous=unanimous,
        pairwise_agreement=None if numeric else between,
        self_consistency=within if named else None,
        level=LEVELS[alpha.weights],
        numbers=_numbers(annotations) | {"icc": coefficients["icc1"].value} if numeric else None,
        n_repeated_pairs=n_repeated,
        n_differing_pairs=n_differing,
        n_parts=n_parts,
        largest_part_items=largest,
        n_unlabelled_items=int((per_item == 0).sum()),
        n_gold=n_gold,
        majority_accuracy=accuracy,
        columns=dict(annotations.columns_read),
        notes=(*annotations.notes, *remarks(annotations)),
    )


def _numbers(annotations: Annotations) -> dict[str, float]:
    values = annotations.values
    spread = {"mean": values.mean(), "sd": values.std(), "min": values.min(), "max": values.max()}
    return {name: float(value) for name, value in spread.items()}


def _entropy_and_unanimity(annotations: Annotations) -> tuple[float, float | None]:
    """Return the mean entropy of the items' labels in nats, and the share of unanimous items.

    The latter is over items with two labels or more, and None if there are none.
    """
    counts = annotations.counts[annotations.counts.sum(axis=1) > 0]
    # H_m = −Σ_p (c_mp / c_m) log (c_mp / c_m)
    entropy = float(entropy_rows(row_shares(counts)).mean()) if len(counts) else 0.0
    several = counts[counts.sum(axis=1) > 1]
    alike = several.max(axis=1, initial=0) == several.sum(axis=1)
    return entropy, float(alike.mean()) if len(several) else None


def pair_agreement(annotations: Annotations) -> tuple[float | None, float | None, int, int]:
    """Return the probability that two labels of one item are equal: by two annotators, and by one.

    Over all pairs of labels: Σ_m Σ_c n_mc (n_mc − 1) / Σ_m n_m (n_m − 1), minus the pairs of one annotator.
    Also return the number of (item, annotator) pairs with several labels, and of those whose labels differ.
    """
    within = np.zeros(2)  # equal pairs of labels of one annotator on one item, and all of them
    n_repeated = n_differing = 0
    for rows in annotations.chunks():
        item, annotator, label = (column[rows].astype(np.int64) for column in annotations.columns)
        is_first = np.append(True, (np.diff(item) != 0) | (np.diff(annotator) != 0))
        pair = np.cumsum(is_first) - 1
        sizes, cells = np.bincount(pair), np.bincount(pair * annotations.n_classes + label)
        within += [float((n * (n - 1)).sum()) for n in (cells, sizes)]
        n_repeated += int((sizes > 1).sum())
        # rows of a pair are sorted by label: all are equal if the first and last are
        n_differing += int((label[np.cumsum(sizes) - 1] != label[is_first]).sum())
    counts = annotations.counts
    every = np.array([float((n * (n - 1)).sum()) for n in (counts, counts.sum(axis=1))])
    equal, pairs = every - within
    shares = equal / pairs if pairs else None, within[0] / within[1] if within[1] else None
    return *shares, n_repeated, n_differing


def remarks(annotations: Annotations) -> tuple[str, ...]:
    """Return notes on repeated rows, and on gold labels that no annotator gave."""
    notes, n_repeats = [], 0
    if not annotations.anonymous:
        for rows in annotations.chunks():  # rows are sorted by item, annotator and label
            same = [np.diff(column[rows]) == 0 for column in annotations.columns]
            n_repeats += int(np.all(same, axis=0).sum())
    if n_repeats:
        repeats = "1 row has" if n_repeats == 1 else f"{n_repeats:,} rows have"
        shared = annotations.n_pairs > np.count_nonzero(np.diff(annotations.item_pointers))
        count = "every row counts" if shared else "hpgm counts them once, as no item has two annotators"
        remedy = f"to drop accidental copies, use {setting('duplicates', 'first')}"
        notes.append(f"{repeats} the same item, annotator and label as another row; {count}; {remedy}")
    if annotations.gold is None or annotations.label_type == "numeric":
        return tuple(notes)
    labelled = np.flatnonzero((annotations.gold >= 0) & (np.diff(annotations.item_pointers) > 0))
    unsupported = labelled[annotations.counts[labelled, annotations.gold[labelled]] == 0]
    if len(unsupported):
        n, first = len(unsupported), unsupported[0]
        items = "1 item has" if n == 1 else f"{n:,} items have"
        item, label = annotations.items[first], annotations.classes[annotations.gold[first]]
        unlike = f"a gold label that no annotator gave it, such as {quoted(label)} for item {quoted(item)}"
        notes.append(f"{items} {unlike}; check these items, or the class names in the gold table")
    return tuple(notes)


def connected_parts(annotations: Annotations) -> tuple[int, int]:
    """Return the number of connected components of items and annotators, and the largest's items.

    Chunks of items are processed in turn, keeping the component of each annotator.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    N = annotations.n_annotators
    group: NDArray[Any] = np.arange(N)
    for rows in annotations.chunks():
        item, annotator = annotations.item[rows], annotations.annotator[rows]
        size = N + int(item[-1] - item[0]) + 1
        links = np.ones(len(item), np.int8), (N + item - item[0], group[annotator])
        _, component = connected_components(coo_array(links, shape=(size, size)), directed=False)
        group = component[:N][group]
    # an item is in the component of its first annotator
    starts = annotations.item_pointers[:-1][np.diff(annotations.item_pointers) > 0]
    sizes = np.bincount(group[annotations.annotator[starts]])
    return int((sizes > 0).sum()), int(sizes.max(initial=0))


def _compare_with_gold(annotations: Annotations) -> tuple[int | None, float | None]:
    """Return the number of labelled items with gold, and the accuracy of their most frequent label."""
    if annotations.gold is None:
        return None, None
    judged = (annotations.gold >= 0) & (np.diff(annotations.item_pointers) > 0)
    if annotations.label_type == "numeric" or not judged.any():
        return int(judged.sum()), None
    right = accuracy_rows(annotations.gold[judged], annotations.counts[judged])
    return int(judged.sum()), float(right.mean())
