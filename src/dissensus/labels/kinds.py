"""What kind of answer a label is, told from the labels or as declared.

nominal
    one of some classes, all alike
ordinal
    one of some classes that have an order (the order of the class vocabulary)
numeric
    a number; the classes are the numbers that occur
multi
    a set of classes; the vocabulary's entries are JSON lists, such as ``["a", "b"]``
pairwise
    which of two things is better: ``left``, ``tie`` or ``right``; the item table names the two

Numbers are recognised: many different ones are numeric, a few are ordinal where the disagreements bear it out
(labels of one item lie nearer to each other than in most other orders of the classes). Words are never taken
to be ordered unless somebody says so.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError, bad_choice, setting
from dissensus.labels.rows import canonical_rows, with_rows
from dissensus.labels.vocabulary import Vocabulary, encode, is_text, quoted
from dissensus.numerics import Array

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations

LabelType = Literal["nominal", "ordinal", "numeric", "multi", "pairwise"]
LABEL_TYPES: tuple[LabelType, ...] = get_args(LabelType)
MOST_GRADES = 15  # different numbers that are still taken for classes
WINNERS = ("left", "tie", "right")  # the classes of pairwise labels, in this order
SEPARATORS = ("|", ";", ",")  # that people put between the classes of a set

_FEWEST = 3  # classes that can have an order worth speaking of
_LOOKED_AT = 20_000  # items that tell whether numbers are grades
_ORDERS = 2_000  # orders that the numbers' own is compared with, where there are more
_FEW_LABELS = 1_000
_IN_FRONT = 0.07  # share of the orders that may fit the disagreements better
_IN_FRONT_OF_FEW = 0.35  # the same where there are few labels to tell by

_NO_ANSWER = frozenset({"na", "n/a", "null", "nan", "-", "?", "#n/a"})  # words that hardly are a class
_MAYBE_NONE = frozenset({"none", "missing", "unknown", "."})  # words that are a class in many sets
_RARE = 0.05  # of all labels

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
    """One of the five words, or None."""
    if label_type is not None and label_type not in LABEL_TYPES:
        raise bad_choice(owner, "label_type", LABEL_TYPES, str(label_type))


def refuse_wrong_kind(annotations: Annotations) -> None:
    """Labels that cannot be of the type they are said to be."""
    kind, classes = annotations.label_type, annotations.class_vocabulary
    if kind == "numeric" and annotations.class_values is None:
        stranger = next(name for name in classes if not is_number(name))
        raise DataError(
            f"label {quoted(stranger)} is not a number, so the labels are not numeric; "
            f"correct it, or say {setting('label_type', 'ordinal')} or {setting('label_type', 'nominal')}"
        )
    if kind == "multi" and not all(str(name).startswith("[") for name in classes):
        raise DataError(
            f"label {quoted(classes[0])} is no set of classes; read sets from lists, "
            f"with {setting('separator')}, or with {setting('label_type', 'multi')}"
        )
    if kind == "pairwise" and not set(map(str, classes)) <= set(WINNERS):
        raise DataError(
            f"the labels of pairwise data are {', '.join(WINNERS)}; got {quoted(classes[0])}; "
            "give a table with two columns for what is compared and one for the winner"
        )


def is_number(name: object) -> bool:
    """Whether a name is a finite number."""
    try:
        return bool(np.isfinite(float(name)))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False


# ---- telling from the data ----------------------------------------------------------------------------


def recognised(annotations: Annotations) -> tuple[LabelType, tuple[str, ...]]:
    """The type of labels that nobody named, and what is worth a word about that."""
    P = annotations.n_classes
    nominal, ordinal, numeric = (setting("label_type", kind) for kind in ("nominal", "ordinal", "numeric"))
    if annotations.class_values is None:
        return "nominal", _offers(annotations)
    if P > MOST_GRADES:
        return "numeric", (
            f"{P:,} different numbers are read as numeric ratings; say {ordinal} or {nominal} if they are "
            "classes",
        )
    if P < _FEWEST:
        return "nominal", ()
    few = annotations.n_labels < _FEW_LABELS
    if bears_out(disagreements(annotations), _IN_FRONT_OF_FEW if few else _IN_FRONT):
        return "ordinal", (
            f"labels are {P} numbers, read as an ordered scale; say {nominal} if they are only names, "
            f"{numeric} if their mean is wanted",
        )
    return "nominal", (
        f"labels are {P} numbers, and disagreements do not follow their order: read as names; say {ordinal} "
        "if they are a scale",
    )


def disagreements(annotations: Annotations) -> Array:
    """(classes, classes): how often labels of one item were c and k, beside what chance would give."""
    step = max(1, annotations.n_items // _LOOKED_AT)
    part = annotations if step == 1 else annotations.take_items(np.arange(0, annotations.n_items, step))
    counts = part.counts.astype(np.float64)
    paired = counts[counts.sum(axis=1) > 1]
    # o_ck / (n_c n_k), with o_ck = Σ_i n_ic n_ik / (n_i − 1) and n_c = Σ_i n_ic
    together = (paired / (paired.sum(axis=1, keepdims=True) - 1)).T @ paired
    totals = np.maximum(paired.sum(axis=0), 1)
    return np.asarray(together / np.outer(totals, totals))


def bears_out(together: Array, in_front: float = _IN_FRONT) -> bool:
    """Whether neighbours are confused more than classes far apart: few other orders of them fit better."""
    P = len(together)
    orders = np.array(list(itertools.permutations(range(P)))) if P <= 6 else None
    if orders is None:
        rng = np.random.default_rng(P)
        orders = np.stack([np.arange(P), *(rng.permutation(P) for _ in range(_ORDERS))])
    # Σ_ck s_ck |place of c − place of k|: small where classes that go together are near
    places = np.argsort(orders, axis=1)
    own, *others = ((together * np.abs(np.subtract.outer(place, place))).sum() for place in places)
    return float(np.mean(np.array(others) < own * (1 - 1e-9))) <= in_front


def _offers(annotations: Annotations) -> tuple[str, ...]:
    """The order of a known scale, words for no answer, and sets written as texts: offered, not assumed."""
    names = [str(name) for name in annotations.classes]
    order, notes = known_order(names), []
    # Where all others are numbers, or where it is rare, "none" may mean that there is no label.
    maybe = _NO_ANSWER | _MAYBE_NONE
    others = [name for name in names if name.casefold() not in maybe]
    numeric = bool(others) and all(map(is_number, others))
    rare = annotations.class_counts < _RARE * annotations.n_labels
    words_for_none = [maybe if numeric or few else _NO_ANSWER for few in rare]
    nothing = [name for name, none in zip(names, words_for_none, strict=True) if name.casefold() in none]
    if nothing:
        words = ", ".join(map(quoted, nothing))
        notes.append(
            f"{words} may mean that there is no label; if so, say {setting('missing_words', nothing)}"
        )
    if order is not None:
        scale = setting("classes", "<".join(order))
        notes.append(f"the labels look like a scale; if they are ordered, say {scale}")
    for mark in SEPARATORS:
        several = [name for name in names if mark in name]
        parts = [part.strip() for name in several for part in name.split(mark) if part.strip()]
        n_known, n_parts = len(set(parts) & set(names)), len(set(parts))
        # the mark cuts labels into other labels, or into parts that come again and again
        if len(several) > 1 and (2 * n_known > n_parts or len(parts) >= 2 * n_parts):
            notes.append(
                f"labels such as {quoted(several[0])} may be sets; if so, say {setting('separator', mark)}"
            )
    return tuple(notes)


def known_order(names: list[str]) -> list[str] | None:
    """The names in the order of an English scale that has them all; None where there is none."""
    plain = {" ".join(name.replace("_", " ").replace("-", " ").casefold().split()): name for name in names}
    if len(plain) < max(_FEWEST, len(names)):
        return None
    for scale in SCALES:
        words = scale.split("|")
        if set(plain) <= set(words):
            return [plain[word] for word in words if word in plain]
    return None


def class_values(annotations: Annotations) -> Array:
    """(classes,): what the names say as numbers, or the places of ordinal classes in their order."""
    values = annotations.class_values
    if values is not None:
        return values
    numbers = [name for name in annotations.classes if is_number(name)]
    if numbers:
        stranger = next(name for name in annotations.classes if not is_number(name))
        raise DataError(
            f"the classes are a scale of numbers, and {quoted(stranger)} is none; "
            f"remove its labels, or say {setting('label_type', 'nominal')}"
        )
    return np.arange(annotations.n_classes, dtype=np.float64)


# ---- sets of classes ----------------------------------------------------------------------------------
# Written as JSON lists, one entry of the class vocabulary for each set.


def written(members: Iterable[str]) -> str:
    """A set as text: a JSON list, sorted, each class once."""
    return json.dumps(sorted(set(members)), ensure_ascii=False)


def members_of(text: str) -> list[str]:
    """The classes of a set written by :func:`written`."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise DataError(f'{text!r} is no set of classes; write one as a JSON list, such as ["a", "b"]')
    return [str(name) for name in found]


def membership(classes: Vocabulary) -> tuple[NDArray[np.bool_], list[str]]:
    """(sets, members): which classes each set of the vocabulary has, and the classes in order."""
    sets = [members_of(str(text)) for text in classes]
    names = sorted({name for members in sets for name in members})
    place = {name: k for k, name in enumerate(names)}
    table = np.zeros((len(sets), len(names)), dtype=bool)
    for row, members in enumerate(sets):
        table[row, [place[name] for name in members]] = True
    return table, names


def as_sets(annotations: Annotations) -> Annotations:
    """All labels of one (item, annotator) pair as one answer, a set; answers that are sets stay so."""
    if annotations.n_classes and all(str(name).startswith("[") for name in annotations.classes):
        return annotations
    names = [str(name) for name in annotations.classes]
    starts = np.flatnonzero(np.diff(annotations.pair, prepend=-1))
    stops = np.append(starts[1:], annotations.n_labels)
    texts = [written(names[p] for p in annotations.label[a:b]) for a, b in zip(starts, stops, strict=True)]
    label, classes = encode(pa.array(texts, pa.string()), "label")
    rows = annotations.item[starts], annotations.annotator[starts], label
    return with_rows(annotations, *rows, class_vocabulary=classes, gold=None)


def without_case(annotations: Annotations, classes: Sequence[Any] | None = None) -> Annotations:
    """Merge classes that differ only by case or white space around them, into the most frequent spelling.

    With ``classes`` the spelling is theirs, and so is the order; a label that is none of them is an error.
    """
    if not is_text(annotations.class_vocabulary.arrow.type):
        return annotations
    sets = annotations.label_type == "multi"
    parts = [members_of(name) if sets else [name] for name in annotations.classes]
    often: dict[str, Counter[str]] = {}
    for members, n in zip(parts, annotations.class_counts, strict=True):
        for name in members:
            often.setdefault(_caseless(name), Counter())[name] += int(n)
    spelled = {key: max(names, key=lambda name: (names[name], name)) for key, names in often.items()}
    if classes is not None:
        spelled |= {_caseless(str(name)): str(name) for name in classes}
    merged = [[spelled[_caseless(name)] for name in members] for members in parts]
    names = [written(members) if sets else members[0] for members in merged]
    distinct, vocabulary = encode(pa.array(names, pa.string()), "label", order=None if sets else classes)
    sizes = annotations.n_items, annotations.n_annotators, len(vocabulary)
    item, annotator = annotations.item.copy(), annotations.annotator.copy()
    rows = canonical_rows(item, annotator, distinct[annotations.label], sizes)
    return with_rows(annotations, *rows, class_vocabulary=vocabulary)


def _caseless(name: str) -> str:
    return name.strip().casefold()


def set_distances(classes: Vocabulary, level: str) -> Array:
    """(sets, sets): Jaccard's or MASI's distance of every two sets of a vocabulary.

    Jaccard: 1 − |A ∩ B| / |A ∪ B|; two empty sets are alike. MASI: 1 − Jaccard × monotonicity (Passonneau
    2006), which is 1 for equal sets, 2/3 where one contains the other, 1/3 where they overlap, 0 otherwise.
    """
    table, _ = membership(classes)
    both = (table.astype(np.float64)) @ table.T
    sizes = table.sum(axis=1)
    either = sizes[:, None] + sizes - both
    jaccard = np.asarray(1 - np.where(either > 0, both / np.maximum(either, 1), 1.0))
    if level == "jaccard":
        return jaccard
    same = (both == sizes[:, None]) & (both == sizes)
    inside = (both == sizes[:, None]) | (both == sizes)
    monotone = np.where(same, 1.0, np.where(both == 0, 0.0, np.where(inside, 2 / 3, 1 / 3)))
    return np.asarray(1 - (1 - jaccard) * monotone)
