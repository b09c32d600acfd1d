"""What is in a set of labels, in numbers a person can check against what they think they have."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import setting
from dissensus.labels.agreement import agreement, intraclass_correlation, level_of, reading
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import Shown
from dissensus.labels.sources import as_annotations
from dissensus.labels.vocabulary import lookalikes, quoted
from dissensus.metrics import accuracy_rows, entropy_rows
from dissensus.numerics import row_shares

_MOST_CLASSES = 20  # classes listed in the text


@dataclass(frozen=True)
class Spread:
    """How a number varies: mean, smallest, middle, largest."""

    mean: float
    min: int
    median: float
    max: int

    @classmethod
    def of(cls, values: NDArray[Any]) -> Spread:
        """The spread of some whole numbers."""
        if not len(values):
            return cls(0.0, 0, 0.0, 0)
        return cls(float(values.mean()), int(values.min()), float(np.median(values)), int(values.max()))

    def __str__(self) -> str:
        if self.min == self.max:
            return f"{self.min:,} each"
        return f"median {self.median:g}, {self.min:,} to {self.max:,}, mean {self.mean:,.2f}"


@dataclass(frozen=True)
class Description(Shown):
    """The summary of one set of annotations; ``as_text`` for a person, ``to_dict`` for a machine."""

    n_items: int
    n_annotators: int | None  # None where the source names none
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
    reading: str  # of α, in words
    unanimous: float | None  # share of the items with two labels or more whose labels are all alike
    pairwise_agreement: float | None  # chance that two annotators' labels of one item are alike
    self_consistency: float | None  # chance that two labels of one annotator on one item are alike
    level: str  # nominal, ordinal or interval
    numbers: dict[str, float] | None  # of numeric labels: mean, sd, min, max and intra-class correlation
    n_repeated_pairs: int  # (item, annotator) pairs with more than one label
    n_differing_pairs: int  # those whose labels are not all the same
    n_parts: int | None  # groups of items and annotators that no label links
    largest_part_items: int | None
    n_unlabelled_items: int
    lookalikes: dict[str, list[list[str]]]  # ids that differ only by white space or case
    n_gold: int | None  # items with a gold label and at least one label
    majority_accuracy: float | None  # of the most frequent label against gold, ties counted in part
    columns: dict[str, str]  # by role, the column of the source that was taken
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self) | {"notes": list(self.notes)}

    def as_text(self) -> str:
        """One aligned line a fact."""
        facts = self._facts()
        width = max(map(len, facts)) + 2
        lines = [f"{name:<{width}}{value}" for name, value in facts.items()]
        return "\n".join([*lines, *self._balance_lines(), *(f"note: {note}" for note in self.notes)])

    _rows_shown = 30

    def _head(self, n: int | None) -> dict[str, Any]:
        facts = self._facts()
        return {"fact": list(facts), "value": list(facts.values())}

    def _caption(self) -> str:
        return f"{self.n_labels:,} labels of {self.n_items:,} items"

    def _facts(self) -> dict[str, str]:
        alpha, unanimous, consistency = self._agreement_texts()
        parts, gold, ratings, alike = "", "", "", []
        if self.n_parts == 1:
            parts = "none: every item is linked to every other"
        elif self.n_parts is not None:
            parts = (
                f"{self.n_parts:,} that no label links, the largest with {self.largest_part_items:,} items: "
                "annotators of different parts cannot be compared"
            )
        if self.n_gold is not None:
            gold = f"{self.n_gold:,} items"
        if self.majority_accuracy is not None:
            gold += f"; the most frequent label is right on {self.majority_accuracy:.1%}"
        if self.numbers is not None:
            ratings = "mean {mean:.4g}, standard deviation {sd:.4g}, {min:g} to {max:g}; ICC {icc:.3f}"
        for what, groups in self.lookalikes.items():
            more = len(groups) - 1
            others = f", and {more:,} more such group{'s' * (more != 1)}" if more > 0 else ""
            names = " and ".join(map(quoted, groups[0][:4])) if groups else ""
            alike.append(
                (f"{what} alike", f"{names} differ only by white space or case{others}" if names else "")
            )
        facts = [
            ("agreement", alpha),
            ("unanimous", unanimous),
            ("labels per item", str(self.labels_per_item)),
            ("self-consistency", consistency),
            ("disconnected parts", parts),
            ("gold labels", gold),
            ("items", f"{self.n_items:,}"),
            ("annotators", "not named" if self.n_annotators is None else f"{self.n_annotators:,}"),
            ("labels", f"{self.n_labels:,}"),
            ("different numbers" if self.numbers else "classes", f"{self.n_classes:,}"),
            ("label type", self.label_type),
            ("ratings", ratings.format(**(self.numbers or {}))),
            ("labels per annotator", str(self.labels_per_annotator or "")),
            ("mean entropy", "" if self.mean_entropy is None else f"{self.mean_entropy:.4f} nats"),
            ("unlabelled items", f"{self.n_unlabelled_items:,}" if self.n_unlabelled_items else ""),
            *alike,
        ]
        return {name: value for name, value in facts if value}

    def _agreement_texts(self) -> tuple[str, str, str]:
        """Of all annotators (α), of those of one item, and of one annotator's repeated labels."""
        alpha = f"Krippendorff's α {self.reading}"
        if math.isfinite(self.alpha):
            span = f"95 % interval {self.alpha_low:.3f} to {self.alpha_high:.3f}, "
            span = f"({span if math.isfinite(self.alpha_low) else ''}{self.level} level)"
            alpha = f"Krippendorff's α {self.alpha:.3f} {span}: {self.reading}"
        unanimous = "" if self.numbers else "no item has labels by two annotators"
        if self.unanimous is not None and self.pairwise_agreement is not None:
            alike = f"two annotators of an item agree in {self.pairwise_agreement:.1%} of the cases"
            unanimous = f"{self.unanimous:.1%} of the items with two labels or more; {alike}"
        consistency = "unknown: nobody labelled an item twice" if self.n_annotators is not None else ""
        if self.self_consistency is not None:
            again = f"{self.n_repeated_pairs:,} item–annotator pair{'s' * (self.n_repeated_pairs != 1)}"
            differ = f"{self.n_differing_pairs:,} with differing labels"
            consistency = f"{self.self_consistency:.1%} of repeated labels are alike ({again}, {differ})"
        return alpha, unanimous, consistency

    def _balance_lines(self) -> list[str]:
        if not self.class_counts:
            return []
        # In quotation marks where white space at the ends would not be seen.
        names = [name if name == name.strip() else repr(name) for name in self.class_counts]
        counts = list(zip(names, self.class_counts.values(), strict=True))
        if self.label_type != "ordinal":  # a scale is shown in its order
            counts.sort(key=lambda entry: -entry[1])
        width = max(len(name) for name, _ in counts[:_MOST_CLASSES])
        lines = [
            f"  {name:<{width}}  {count / max(self.n_labels, 1):6.1%}  {count:,}"
            for name, count in counts[:_MOST_CLASSES]
        ]
        more = [f"  … and {len(counts) - _MOST_CLASSES} more"] if len(counts) > _MOST_CLASSES else []
        return ["class shares", *lines, *more]


def describe(labels: Any) -> Description:
    """Count what is in a set of labels.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    """
    annotations = as_annotations(labels)
    per_item = np.diff(annotations.item_pointers)
    known = not annotations.anonymous
    n_repeated, n_differing = repeated_pairs(annotations)
    n_parts, largest = parts(annotations) if known else (None, None)
    n_gold, accuracy = _against_gold(annotations)
    alpha, low, high = agreement(annotations)
    between, again = pair_agreement(annotations)
    mean_entropy, unanimous = _entropy_and_unanimity(annotations)
    numeric = annotations.label_type == "numeric"
    counts = dict(zip(map(str, annotations.classes), annotations.class_counts.tolist(), strict=True))
    vocabularies = {"items": annotations.item_vocabulary, "labels": annotations.class_vocabulary}
    if known:
        vocabularies["annotators"] = annotations.annotator_vocabulary
    return Description(
        n_items=annotations.n_items,
        n_annotators=annotations.n_annotators if known else None,
        n_labels=annotations.n_labels,
        n_classes=annotations.n_classes,
        label_type=annotations.label_type,
        labels_per_item=Spread.of(per_item[per_item > 0]),
        labels_per_annotator=Spread.of(annotations.annotator_load) if known else None,
        class_counts={} if numeric else counts,
        mean_entropy=mean_entropy,
        alpha=alpha,
        alpha_low=low,
        alpha_high=high,
        reading=reading(alpha),
        unanimous=unanimous,
        pairwise_agreement=None if numeric else between,
        self_consistency=again if known else None,
        level=level_of(annotations),
        numbers=_numbers(annotations) if numeric else None,
        n_repeated_pairs=n_repeated,
        n_differing_pairs=n_differing,
        n_parts=n_parts,
        largest_part_items=largest,
        n_unlabelled_items=int((per_item == 0).sum()),
        lookalikes={what: lookalikes(vocabulary) for what, vocabulary in vocabularies.items()},
        n_gold=n_gold,
        majority_accuracy=accuracy,
        columns=dict(annotations.columns_read),
        notes=(*annotations.notes, *remarks(annotations)),
    )


def _numbers(annotations: Annotations) -> dict[str, float]:
    values = annotations.values
    return {
        "mean": float(values.mean()),
        "sd": float(values.std()),
        "min": float(values.min()),
        "max": float(values.max()),
        "icc": intraclass_correlation(annotations.item, values, annotations.n_items),
    }


def _entropy_and_unanimity(annotations: Annotations) -> tuple[float | None, float | None]:
    """Mean entropy of the items' labels in nats, and share of those with several labels that are all alike.

    None for numbers, and where no item has two labels.
    """
    if annotations.label_type == "numeric":
        return None, None
    counts = annotations.counts[annotations.counts.sum(axis=1) > 0]
    # H_m = −Σ_p (c_mp / c_m) log (c_mp / c_m)
    entropy = float(entropy_rows(row_shares(counts)).mean()) if len(counts) else 0.0
    several = counts[counts.sum(axis=1) > 1]
    alike = several.max(axis=1, initial=0) == several.sum(axis=1)
    return entropy, float(alike.mean()) if len(several) else None


def pair_agreement(annotations: Annotations) -> tuple[float | None, float | None]:
    """Chance that two labels of one item are alike: two annotators' labels, and two of one annotator.

    Over all pairs of labels: Σ_m Σ_c n_mc (n_mc − 1) / Σ_m n_m (n_m − 1), less the pairs of one annotator.
    """
    own = np.zeros(2)  # pairs of labels of one annotator on one item that are alike, and all of them
    for rows in annotations.pieces():
        item, annotator, label = (column[rows].astype(np.int64) for column in annotations.columns)
        pair = np.cumsum(np.append(0, (np.diff(item) != 0) | (np.diff(annotator) != 0)))
        sizes = [np.bincount(pair * annotations.n_classes + label), np.bincount(pair)]
        own += [float((n * (n - 1)).sum()) for n in sizes]
    counts = annotations.counts
    every = np.array([float((n * (n - 1)).sum()) for n in (counts, counts.sum(axis=1))])
    alike, pairs = every - own
    return alike / pairs if pairs else None, own[0] / own[1] if own[1] else None


def repeated_pairs(annotations: Annotations) -> tuple[int, int]:
    """Number of (item, annotator) pairs with several labels, and of those whose labels differ."""
    repeated = differing = 0
    for rows in annotations.pieces():
        item, annotator, label = (column[rows] for column in annotations.columns)
        first = np.flatnonzero(np.append(True, (np.diff(item) != 0) | (np.diff(annotator) != 0)))
        last = np.append(first[1:], len(item)) - 1
        repeated += int((last > first).sum())
        # Rows are sorted by label within a pair, so all are alike where the first and the last are.
        differing += int((label[last] != label[first]).sum())
    return repeated, differing


def remarks(annotations: Annotations) -> tuple[str, ...]:
    """What a person should know before these labels count: rows given twice, gold that nobody gave."""
    said, again = [], 0
    if not annotations.anonymous:
        for piece in annotations.pieces():  # rows are sorted by item, annotator and label
            same = [np.diff(column[piece]) == 0 for column in annotations.columns]
            again += int(np.all(same, axis=0).sum())
    if again:
        rows = "1 row repeats" if again == 1 else f"{again:,} rows repeat"
        shared = annotations.n_pairs > np.count_nonzero(np.diff(annotations.item_pointers))
        count = "all count" if shared else "hpgm counts them once, as no item has labels by two annotators"
        said.append(
            f"{rows} the item, annotator and label of another, and {count}; should they be copies, leave "
            f"them out with {setting('duplicates', 'first')}"
        )
    if annotations.gold is None or annotations.label_type == "numeric":
        return tuple(said)
    labelled = np.flatnonzero((annotations.gold >= 0) & (np.diff(annotations.item_pointers) > 0))
    alone = labelled[annotations.counts[labelled, annotations.gold[labelled]] == 0]
    if len(alone):
        items = "1 item has" if len(alone) == 1 else f"{len(alone):,} items have"
        item, label = annotations.items[alone[0]], annotations.classes[annotations.gold[alone[0]]]
        said.append(
            f"{items} a gold label that no annotator gave it, such as {quoted(label)} for item "
            f"{quoted(item)}; check those items, or the names of the classes in the table of gold"
        )
    return tuple(said)


def parts(annotations: Annotations) -> tuple[int, int]:
    """Number of groups of items and annotators that no label links, and the items in the largest.

    Some items at a time link the annotators that they share; what is kept is the group of each annotator.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    N = annotations.n_annotators
    group: NDArray[Any] = np.arange(N)
    for rows in annotations.pieces():
        item, annotator = annotations.item[rows], annotations.annotator[rows]
        size = N + int(item[-1] - item[0]) + 1
        links = np.ones(len(item), np.int8), (N + item - item[0], group[annotator])
        _, found = connected_components(coo_array(links, shape=(size, size)), directed=False)
        group = found[:N][group]
    # An item is where its first annotator is.
    starts = annotations.item_pointers[:-1][np.diff(annotations.item_pointers) > 0]
    sizes = np.bincount(group[annotations.annotator[starts]])
    return int((sizes > 0).sum()), int(sizes.max(initial=0))


def _against_gold(annotations: Annotations) -> tuple[int | None, float | None]:
    """Number of labelled items with a gold label, and the share that their most frequent label gets right."""
    if annotations.gold is None:
        return None, None
    judged = (annotations.gold >= 0) & (np.diff(annotations.item_pointers) > 0)
    if annotations.label_type == "numeric" or not judged.any():
        return int(judged.sum()), None
    right = accuracy_rows(annotations.gold[judged], annotations.counts[judged])
    return int(judged.sum()), float(right.mean())
