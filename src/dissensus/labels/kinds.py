"""Types of labels, inferred from the data or declared.

nominal
    one of several classes, without order
ordinal
    one of several ordered classes (in the order of the class vocabulary)
numeric
    a number; the classes are the numbers that occur
multi
    a set of classes; the vocabulary's entries are JSON lists, such as ``["a", "b"]``
pairwise
    which of two options is better: ``left``, ``tie`` or ``right``; the item table names the two

Numbers are recognised: many different ones are numeric, a few are ordinal if disagreements follow their order
(labels of one item lie nearer to each other than in most other orders of the classes). Words are taken to be
ordered only if declared so.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError, bad_choice, setting
from dissensus.labels.rows import canonical_rows
from dissensus.labels.vocabulary import Vocabulary, encode, is_string_type, quoted
from dissensus.numerics import Array

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations

LabelType = Literal["nominal", "ordinal", "numeric", "multi", "pairwise"]
LABEL_TYPES: tuple[LabelType, ...] = get_args(LabelType)
MAX_GRADES = 15  # distinct numbers up to which numbers are classes
WINNERS = ("left", "tie", "right")  # the classes of pairwise labels, in this order
SEPARATORS = ("|", ";", ",")  # between the classes of a set

MIN_ORDERED_CLASSES = 3
MAX_ORDER_ITEMS = 20_000  # items used to test whether numbers are ordered
RANDOM_ORDERS = 2_000  # orders compared, where there are more than 6 classes
MIN_ORDER_LABELS = 1_000
MAX_BETTER_ORDERS, MAX_BETTER_IF_FEW_LABELS = 0.07, 0.35  # share of orders that may fit better

NO_ANSWER_WORDS = frozenset({"na", "n/a", "null", "nan", "-", "?", "#n/a"})  # hardly ever a class
POSSIBLE_NO_ANSWER_WORDS = frozenset({"none", "missing", "unknown", "."})  # often a class
RARE_CLASS_SHARE = 0.05

# Ordered scales in English, each from one end to the other.
SCALES = (
    "strongly disagree|disagree|slightly disagree|neutral|slightly agree|agree|strongly agree",
    "strongly disagree|disagree|somewhat disagree|neutral|somewhat agree|agree|strongly agree",
    "strongly disagree|disagree|neither agree nor disagree|agree|strongly agree",
    "strongly disagree|somewhat disagree|neither agree nor disagree|somewhat agree|strongly agree",
    "strongly disagree|disagree|undecided|agree|strongly agree",
    "strongly oppose|oppose|neutral|support|strongly support",
    "extremely unlikely|very unlikely|unlikely|neutral|likely|very likely|extremely likely",
    "unlikely|possible|likely",
    "much worse|worse|about the same|better|much better",
    "much worse|worse|same|better|much better",
    "false|mostly false|half true|mostly true|true",
    "contradiction|neutral|entailment",
    "very negative|negative|neutral|positive|very positive",
    "very bad|bad|neutral|good|very good",
    "very poor|poor|fair|good|very good|excellent",
    "poor|fair|average|good|excellent",
    "very dissatisfied|dissatisfied|neutral|satisfied|very satisfied",
    "never|rarely|sometimes|often|always",
    "none|slight|mild|moderate|severe|very severe",
    "not at all|slightly|somewhat|moderately|very|extremely",
    "very low|low|medium|high|very high",
    "very low|low|moderate|high|very high",
    "low|mid|high",
    "minor|moderate|major|critical",
    "not important|slightly important|moderately important|important|very important",
    "terrible|bad|okay|good|great",
    "small|medium|large",
    "no|maybe|yes",
    "no|unsure|yes",
    "irrelevant|somewhat relevant|relevant|highly relevant",
)


def check_label_type(owner: str, label_type: str | None) -> None:
    """Raise an error unless the type is valid or None."""
    if label_type is not None and label_type not in LABEL_TYPES:
        raise bad_choice(owner, "label_type", LABEL_TYPES, str(label_type))


def check_labels(annotations: Annotations) -> None:
    """Raise an error if the labels do not fit their type."""
    kind, classes = annotations.label_type, annotations.class_vocabulary
    nominal, ordinal, multi = (setting("label_type", name) for name in ("nominal", "ordinal", "multi"))
    if kind == "numeric" and annotations.class_values is None:
        word = quoted(next(name for name in classes if not is_number(name)))
        remedy = f"correct it, or use {ordinal} or {nominal}"
        raise DataError(f"label {word} is not a number, so the labels are not numeric; {remedy}")
    if kind == "multi" and not all(str(name).startswith("[") for name in classes):
        remedy = f"read sets from lists, with {setting('separator')}, or with {multi}"
        raise DataError(f"label {quoted(classes[0])} is not a set of classes; {remedy}")
    if kind == "pairwise" and not set(map(str, classes)) <= set(WINNERS):
        problem = f"the labels of pairwise data are {', '.join(WINNERS)}; got {quoted(classes[0])}"
        raise DataError(f"{problem}; pass a table with two columns of options and one of winners")


def is_number(name: object) -> bool:
    """Check whether a name is a finite number."""
    try:
        return bool(np.isfinite(float(name)))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


# ---- inference from the data --------------------------------------------------------------------------


def infer_label_type(annotations: Annotations) -> tuple[LabelType, tuple[str, ...]]:
    """Infer the type of labels, and return it with notes for the user."""
    P = annotations.n_classes
    nominal, ordinal, numeric = (setting("label_type", kind) for kind in ("nominal", "ordinal", "numeric"))
    if annotations.class_values is None:
        return "nominal", _suggestions(annotations)
    if P > MAX_GRADES:
        remedy = f"use {ordinal} or {nominal} if they are classes"
        return "numeric", (f"{P:,} distinct numbers are read as numeric ratings; {remedy}",)
    if P < MIN_ORDERED_CLASSES:
        return "nominal", ()
    few, values = annotations.n_labels < MIN_ORDER_LABELS, f"labels take {P} values, all numbers, and"
    if follows_order(disagreements(annotations), MAX_BETTER_IF_FEW_LABELS if few else MAX_BETTER_ORDERS):
        remedy = f"use {nominal} if they are names, or {numeric} to estimate their mean"
        return "ordinal", (f"{values} are read as an ordered scale; {remedy}",)
    reason = "disagreements do not follow their order: read as names"
    return "nominal", (f"{values} {reason}; use {ordinal} if they are a scale",)


def disagreements(annotations: Annotations) -> Array:
    """Return (classes, classes) how often labels of one item are c and k, relative to chance."""
    counts = annotations.counts[:: max(1, annotations.n_items // MAX_ORDER_ITEMS)].astype(np.float64)
    paired = counts[counts.sum(axis=1) > 1]
    # o_ck / (n_c n_k), with o_ck = Σ_i n_ic n_ik / (n_i − 1) and n_c = Σ_i n_ic
    together = (paired / (paired.sum(axis=1, keepdims=True) - 1)).T @ paired
    totals = np.maximum(paired.sum(axis=0), 1)
    return np.asarray(together / np.outer(totals, totals))


def follows_order(together: Array, max_better: float = MAX_BETTER_ORDERS) -> bool:
    """Check whether the order fits disagreements better than most other orders of the classes."""
    P = len(together)
    if P <= 6:
        orders = np.array(list(itertools.permutations(range(P))))
    else:
        rng = np.random.default_rng(P)
        orders = np.stack([np.arange(P), *(rng.permutation(P) for _ in range(RANDOM_ORDERS))])
    # Σ_ck s_ck |rank of c − rank of k|: small if classes that are confused are near
    ranks = np.argsort(orders, axis=1)
    cost, *others = ((together * np.abs(np.subtract.outer(rank, rank))).sum() for rank in ranks)
    return float(np.mean(np.array(others) < cost * (1 - 1e-9))) <= max_better


def _suggestions(annotations: Annotations) -> tuple[str, ...]:
    """Return notes that suggest a known scale, words for missing labels, or sets written as texts."""
    names = [str(name) for name in annotations.classes]
    order, notes = scale_order(names), []
    # If all others are numbers, or it is rare, "none" may mean a missing label.
    maybe = NO_ANSWER_WORDS | POSSIBLE_NO_ANSWER_WORDS
    others = [name for name in names if name.casefold() not in maybe]
    numeric = bool(others) and all(map(is_number, others))
    rare = annotations.class_counts < RARE_CLASS_SHARE * annotations.n_labels
    missing_words = [maybe if numeric or few else NO_ANSWER_WORDS for few in rare]
    missing = [name for name, words in zip(names, missing_words, strict=True) if name.casefold() in words]
    if missing:
        shown = ", ".join(map(quoted, missing))
        notes.append(f"{shown} may mean a missing label; if so, use {setting('missing_words', missing)}")
    if order is not None:
        scale = setting("classes", "<".join(order))
        notes.append(f"the labels look like a scale; if they are ordered, use {scale}")
    return *notes, *dict(separator_notes(names)).values()


def separator_notes(names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the separators that may join the classes of sets, each with a note that suggests it."""
    for mark in SEPARATORS:
        several = [name for name in names if mark in name]
        parts = [part.strip() for name in several for part in name.split(mark) if part.strip()]
        n_labels, n_parts = len(set(parts) & set(names)), len(set(parts))
        # the parts are labels themselves, or occur repeatedly
        if len(several) > 1 and (2 * n_labels > n_parts or len(parts) >= 2 * n_parts):
            remedy = f"use {setting('separator', mark)}"
            yield mark, f"labels such as {quoted(several[0])} may be sets; if so, {remedy}"


def scale_order(names: list[str]) -> list[str] | None:
    """Return the names in the order of an English scale that contains them all, or None."""
    plain = {" ".join(name.replace("_", " ").replace("-", " ").casefold().split()): name for name in names}
    if len(plain) < max(MIN_ORDERED_CLASSES, len(names)):
        return None
    scales = (scale.split("|") for scale in SCALES)
    words = next((words for words in scales if set(plain) <= set(words)), None)
    return None if words is None else [plain[word] for word in words if word in plain]


def class_values(annotations: Annotations) -> Array:
    """Return (classes,) the classes as numbers, or the ranks of ordered words."""
    if annotations.class_values is not None:
        return annotations.class_values
    words = [name for name in annotations.classes if not is_number(name)]
    if len(words) < annotations.n_classes:
        problem = f"the classes are a scale of numbers, but {quoted(words[0])} is not a number"
        raise DataError(f"{problem}; remove its labels, or use {setting('label_type', 'nominal')}")
    return np.arange(annotations.n_classes, dtype=np.float64)


# ---- sets of classes ----------------------------------------------------------------------------------
# Each set is one entry of the class vocabulary, written as a JSON list.


def format_set(members: Iterable[str]) -> str:
    """Return a set as text: a sorted JSON list."""
    return json.dumps(sorted(set(members)), ensure_ascii=False)


def parse_set(text: str) -> list[str]:
    """Return the classes of a set written by :func:`format_set`."""
    try:
        members = json.loads(text)
    except ValueError:
        members = None
    if not isinstance(members, list):
        raise DataError(f'{text!r} is not a set of classes; write it as a JSON list, such as ["a", "b"]')
    return [str(name) for name in members]


def membership(classes: Vocabulary) -> tuple[NDArray[np.bool_], list[str]]:
    """Return (sets, classes) whether each set contains each class, and the sorted classes."""
    sets = [parse_set(str(text)) for text in classes]
    names = sorted({name for members in sets for name in members})
    table = np.array([[name in members for name in names] for members in sets], dtype=bool)
    return table.reshape(len(sets), len(names)), names


def as_sets(annotations: Annotations) -> Annotations:
    """Combine all labels of an (item, annotator) pair into one set; labels that are sets stay the same.

    Labels that look like sets with one separator are split; if there are several, notes suggest each.
    """
    if annotations.n_classes and all(str(name).startswith("[") for name in annotations.classes):
        return annotations
    names = [str(name) for name in annotations.classes]
    parts, notes = [[name] for name in names], dict(separator_notes(names))
    if len(notes) == 1:
        (mark,) = notes
        parts = [[part.strip() for part in name.split(mark) if part.strip()] for name in names]
        notes[mark] = f"answers are read as sets of classes, split at {mark!r}"
    starts = np.flatnonzero(np.diff(annotations.pair, prepend=-1))
    groups = np.split(annotations.label, starts[1:])
    texts = [format_set(part for p in group for part in parts[p]) for group in groups]
    label, classes = encode(pa.array(texts, pa.string()), "label")
    item, annotator = annotations.item[starts], annotations.annotator[starts]
    both = *annotations.notes, *notes.values()
    changes: dict[str, Any] = {"class_vocabulary": classes, "gold": None, "notes": both}
    return replace(annotations, item=item, annotator=annotator, label=label, **changes)


def merge_case(annotations: Annotations, classes: Sequence[Any] | None = None) -> Annotations:
    """Merge classes that differ only by case or surrounding white space, under the most frequent spelling.

    ``classes`` gives the spelling and order instead; a label that is not among them is an error.
    """
    if not is_string_type(annotations.class_vocabulary.arrow.type):
        return annotations
    sets = annotations.label_type == "multi"
    parts = [parse_set(name) if sets else [name] for name in annotations.classes]
    n_uses: Counter[str] = Counter()
    for members, n in zip(parts, annotations.class_counts, strict=True):
        n_uses.update(dict.fromkeys(members, int(n)))
    by_frequency = sorted(n_uses, key=lambda name: (n_uses[name], name))
    spelled = {_caseless(name): name for name in by_frequency}  # the last one, the most frequent, remains
    spelled |= {_caseless(str(name)): str(name) for name in classes or ()}
    merged = [[spelled[_caseless(name)] for name in members] for members in parts]
    names = [format_set(members) if sets else members[0] for members in merged]
    distinct, vocabulary = encode(pa.array(names, pa.string()), "label", order=None if sets else classes)
    sizes = annotations.n_items, annotations.n_annotators, len(vocabulary)
    rows = annotations.item.copy(), annotations.annotator.copy(), distinct[annotations.label]
    item, annotator, label = canonical_rows(*rows, sizes)
    return replace(annotations, item=item, annotator=annotator, label=label, class_vocabulary=vocabulary)


def _caseless(name: str) -> str:
    return name.strip().casefold()


def set_distances(classes: Vocabulary, level: str) -> Array:
    """Return (sets, sets) Jaccard or MASI distances of the sets of a vocabulary.

    Jaccard: 1 − |A ∩ B| / |A ∪ B|; two empty sets are equal. MASI: 1 − Jaccard × monotonicity (Passonneau
    2006), which is 1 for equal sets, 2/3 where one contains the other, 1/3 where they overlap, 0 otherwise.
    """
    table, _ = membership(classes)
    both = (table.astype(np.float64)) @ table.T
    sizes = table.sum(axis=1)
    either = sizes[:, None] + sizes - both
    jaccard = np.asarray(1 - np.where(either > 0, both / np.maximum(either, 1), 1.0))
    if level == "jaccard":
        return jaccard
    inside, around = both == sizes[:, None], both == sizes
    monotone = np.select([inside & around, both == 0, inside | around], [1.0, 0.0, 2 / 3], 1 / 3)
    return np.asarray(1 - (1 - jaccard) * monotone)
