"""Human labels in a second file: joined by item id with the judgements of a log."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dissensus.annotators.judge_detection import find_judges
from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import LabelType
from dissensus.labels.rows import join_labels
from dissensus.labels.vocabulary import fold, lookalikes, quoted
from dissensus.numerics import Mask
from dissensus.tables.columns import listed

_NUMBER_TYPES: tuple[LabelType, ...] = ("nominal", "ordinal", "numeric")  # of two, the later one counts


def join_humans(
    log: Annotations, humans: Annotations, judges: Any = None
) -> tuple[Annotations, list[str], list[str]]:
    """Return the labels of both, the ids of the judges, and notes.

    The judges are all annotators of the log; or those that ``judges`` names, and the others are left out.
    """
    left_out: list[str] = []
    if judges is not None:
        is_judge = find_judges(log, judges)[0]
        left_out = log.annotators[~is_judge].tolist()
        log = _labels_of(log, is_judge, humans)
    repeated = humans.annotators[log.annotator_vocabulary.codes(humans.annotator_vocabulary) >= 0]
    if humans.anonymous or len(repeated):
        problem = f"are also in the log ({listed(repeated)})" if len(repeated) else "have no names"
        raise DataError(f"annotators of the human labels {problem}; give each person a name of their own")
    item = log.item_vocabulary.codes(humans.item_vocabulary)[humans.item]
    notes = [_matching_note(log, humans, np.unique(item[item >= 0]), np.unique(humans.item[item < 0]))]
    if left_out:
        notes.append(f"other annotators of the log are left out: {listed(left_out)}")
    names = log.annotators.tolist()
    log, humans = _with_common_classes(log, humans)
    rows = replace(humans, item=item, item_vocabulary=log.item_vocabulary).take_rows(item >= 0)
    joined = replace(join_labels(log, rows), item_table=log.item_table)
    alike = [f"{quoted(a)} and {quoted(b)}" for a, b, *_ in lookalikes(joined.class_vocabulary)]
    if alike:
        notes.append(f"{', '.join(alike)} count as different classes; write them alike if they are not")
    return joined, names, notes


def _labels_of(log: Annotations, chosen: Mask, humans: Annotations) -> Annotations:
    """Return the labels of some annotators, with only their items, their ids, and classes that are used."""
    log = log.take_rows(chosen[log.annotator])
    log = log.take_items(np.unique(log.item))
    annotators, annotator = np.unique(log.annotator, return_inverse=True)
    fields: dict[str, Any] = {"annotator_vocabulary": log.annotator_vocabulary.take(annotators)}
    fields |= {"annotator": annotator.astype(np.int32), "annotator_table": None, "gold": None}
    if log.label_type == "nominal":  # a scale stays whole
        used = (log.class_counts > 0) | (humans.class_vocabulary.codes(log.class_vocabulary) >= 0)
        code = np.cumsum(used) - 1
        fields["class_vocabulary"] = log.class_vocabulary.take(np.flatnonzero(used))
        fields["label"] = code[log.label].astype(log.label.dtype)
    return replace(log, **fields)


def _matching_note(log: Annotations, humans: Annotations, matched: Any, strangers: Any) -> str:
    """Say how many items have the same id in both; raise an error if none has."""
    others, rest = humans.items[strangers], np.delete(log.items, matched)
    near = {_plain(name): name for name in log.items}
    pairs = [(name, near[_plain(name)]) for name in others if _plain(name) in near]
    hint = ""
    if pairs:
        hint = f"; {len(pairs):,} differ only in case, spaces, leading zeros or a file extension, such as "
        hint += f"{quoted(pairs[0][0])} and {quoted(pairs[0][1])}: write them alike"
    if not len(matched):
        ours, theirs = (" and ".join(map(quoted, ids[:2])) for ids in (rest, others))
        problem = f"no item of the log (such as {ours}) is among the human labels (such as {theirs})"
        raise DataError(problem + (hint or "; check which columns have the ids"))
    note = f"{len(matched):,} of {log.n_items:,} items of the log have human labels"
    verb = "item of the human labels is" if len(others) == 1 else "items of the human labels are"
    return note + (f"; {len(others):,} {verb} not in the log{hint}" if len(others) else "")


def _plain(name: Any) -> str:
    """Return an id without case, spaces, a file extension, leading zeros and the decimals of 7.0."""
    return re.sub(r"^0+(?=\d)|\.([a-z]\w{1,4}|0+)$", "", fold(str(name)))


def _with_common_classes(log: Annotations, humans: Annotations) -> tuple[Annotations, Annotations]:
    """Give both the classes of either; raise an error if they do not answer the same question."""
    kind, names = log.label_type, [f"{part.label_type}: {listed(part.classes)}" for part in (log, humans)]
    code = log.class_vocabulary.codes(humans.class_vocabulary)  # (classes of the humans,), −1 if new
    same_type = kind == humans.label_type
    if log.class_values is not None and humans.class_values is not None:
        kind, same_type = max(kind, humans.label_type, key=_NUMBER_TYPES.index), True
        code_of = {value: p for p, value in enumerate(log.class_values.tolist())}  # "1.0" is "1"
        code = np.array([code_of.get(value, -1) for value in humans.class_values.tolist()], np.int32)
    if (kind != "numeric" and (code < 0).all()) or not same_type:
        problem = f"the labels of the log ({names[0]}) and of the humans ({names[1]}) do not match"
        remedy = "" if same_type else ", and give both the same label type"
        raise DataError(f"{problem}; write the classes alike in one of the files{remedy}")
    moved, classes = log.class_vocabulary.extended(humans.class_vocabulary.arrow.filter(pa.array(code < 0)))
    code = np.where(code >= 0, moved[code], classes.codes(humans.class_vocabulary))
    fields: dict[str, Any] = {"class_vocabulary": classes, "label_type": kind}
    return replace(log, label=moved[log.label], **fields), replace(humans, label=code[humans.label], **fields)
