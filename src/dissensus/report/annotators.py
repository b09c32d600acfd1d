"""Annotators: how much they labelled, how they agree, what their labels tell, and where they belong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dissensus.annotators.pseudonyms import pseudonymous
from dissensus.data.annotations import Annotations
from dissensus.evaluation.agreement import agreement_with_others
from dissensus.models.base import Model
from dissensus.report import sentences
from dissensus.report.clusters import Grouping

if TYPE_CHECKING:
    from dissensus.annotators.verdicts import AnnotatorVerdicts

MOST_VALUES = 12  # values of a side column that get a row of their own
FEWEST_NAMED = 5  # annotators behind a value, where ids are hidden
OTHER = "other"


def judged(annotations: Annotations, model: Model) -> AnnotatorVerdicts | None:
    """Verdicts on all annotators, by a model whose draws know them; None for any other."""
    from dissensus.models.hpgm.model import HPGM

    if not isinstance(model, HPGM):
        return None
    from dissensus.annotators.verdicts import annotator_verdicts

    return annotator_verdicts(annotations, model)


def minority_views(found: AnnotatorVerdicts) -> list[str]:
    """What each view sees differently from the largest; several large ones are no minority."""
    said = [found.in_words().capitalize() + "."] if found.n_equal > 1 else []
    return said + [
        sentences.view_words(
            len(view.members),
            view.share_of_items,
            [(str(one.view), str(one.crowd)) for one in view.differences[:2]],
        )
        for view in found.views[max(found.n_equal, 1) :]
    ]


def annotator_columns(
    annotations: Annotations,
    found: AnnotatorVerdicts | None,
    grouping: Grouping | None,
    anonymise: bool,
    order: NDArray[np.intp],
) -> dict[str, Any]:
    """One list a column, one entry an annotator, in the order of the page."""
    columns: dict[str, Any] = {
        "id": names(annotations, anonymise),
        "n": annotations.annotator_load[order],
        "agreement": np.round(agreement_with_others(annotations)[order], 3),
    }
    if found is not None:
        columns["information"] = np.round(found.information[order], 3)
        columns["verdict"] = found.verdict[order]
        columns["probability"] = np.round(found.probability[order], 3)
        columns["evidence"] = found.evidence[order]
    if grouping is not None and grouping.annotators is not None and grouping.divides:
        columns["group"] = grouping.annotators.argmax(axis=1)[order]
        columns["sure"] = np.round(grouping.annotators.max(axis=1), 2)[order]
    return columns


def page_order(annotations: Annotations, anonymise: bool) -> NDArray[np.intp]:
    """The annotators' order on the page: their own, or one that nobody can draw again from a seed."""
    n = annotations.n_annotators
    hidden = anonymise and not pseudonymous(annotations)
    return np.random.default_rng().permutation(n) if hidden else np.arange(n)


def names(annotations: Annotations, anonymise: bool) -> list[str]:
    """Ids, or numbers in their place."""
    if anonymise and not pseudonymous(annotations):
        return [f"annotator {n + 1}" for n in range(annotations.n_annotators)]
    return [str(name) for name in annotations.annotators]


def label_rows(annotations: Annotations, order: NDArray[np.intp]) -> dict[str, Any]:
    """Every label as (annotator's place on the page, class), item after item."""
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    return {
        "size": annotations.counts.sum(axis=1),
        "who": place[annotations.annotator],
        "label": annotations.label,
    }


def crosstabs(annotations: Annotations, grouping: Grouping | None, anonymise: bool) -> list[dict[str, Any]]:
    """What is known of the annotators (columns of their table) against the groups."""
    table = annotations.annotator_table
    if table is None or grouping is None or grouping.annotators is None or not grouping.divides:
        return []
    group = grouping.annotators.argmax(axis=1)
    fewest = FEWEST_NAMED if anonymise else 1
    tabs = [
        _crosstab(name, annotations.annotator_column(name), group, grouping.sizes[1], fewest)
        for name in table.column_names[1:]
    ]
    return [tab for tab in tabs if tab is not None]


def _crosstab(
    name: str, column: NDArray[Any], group: NDArray[np.intp], n_groups: int, fewest: int
) -> dict[str, Any] | None:
    """Annotators by value and group; None where the column says the same of everybody."""
    values = ["" if value is None or value != value else str(value) for value in column]
    kept = _frequent(values, fewest)
    rows = [*kept, *([OTHER] if set(values) - set(kept) else [])]
    if len(rows) < 2:
        return None
    place = {value: row for row, value in enumerate(kept)}
    counts = np.zeros((len(rows), n_groups), dtype=int)
    np.add.at(counts, (np.array([place.get(value, len(rows) - 1) for value in values]), group), 1)
    association = cramers_v(counts)
    shown = [value or "(blank)" for value in rows]
    sentence = sentences.crosstab_sentence(name, shown, counts, association)
    return {
        "name": name,
        "values": shown,
        "counts": counts,
        "association": round(association, 3),
        "words": sentence,
    }


def _frequent(values: list[str], fewest: int) -> list[str]:
    """The values with a row of their own, the most frequent first."""
    found, counts = np.unique(np.array(values, dtype=object).astype(str), return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_VALUES]
    return [str(found[i]) for i in order if counts[i] >= fewest]


def cramers_v(counts: NDArray[Any]) -> float:
    """Cramér's V: 0 where rows and columns are independent, 1 where one fixes the other."""
    table = counts[np.ix_(counts.sum(axis=1) > 0, counts.sum(axis=0) > 0)].astype(float)
    least = min(table.shape) - 1
    if least < 1:
        return 0.0
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    # V = √(χ² / (n · min(rows − 1, columns − 1)))
    return float(np.sqrt((((table - expected) ** 2) / expected).sum() / (table.sum() * least)))
