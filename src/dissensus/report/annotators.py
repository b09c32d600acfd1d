"""Annotators: whom they agree with, how steady they are, what the model makes of them, where they belong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dissensus.annotators import sentences
from dissensus.annotators.findings import Findings
from dissensus.annotators.pseudonyms import pseudonymous
from dissensus.evaluate.gold import wilson
from dissensus.evaluate.sides import Votes, self_consistency
from dissensus.labels.annotations import Annotations
from dissensus.numerics import Array
from dissensus.report.clusters import side_rows
from dissensus.report.gold import annotator_gold

if TYPE_CHECKING:
    from dissensus.annotators.verdicts import AnnotatorVerdicts

MOST_VALUES = 12  # values of a side column that get a row of their own
MOST_SHOWN, LEAST_SHARED = 60, 3  # annotators of the table of pairs, and items that a pair must share
FEWEST_NAMED = 5  # annotators behind a value, where ids are hidden
OTHER = "other"


def views_said(found: AnnotatorVerdicts) -> list[str]:
    """What each view sees differently; several large ones are no minority."""
    said: list[str] = []
    if found.n_equal > 1:
        words = found.in_words()
        said.append(sentences.Sentence(f"{words[0].upper()}{words[1:]}.", "views", parts=[words]))
    for view in found.views[max(found.n_equal, 1) :]:
        if view.words:
            who = f"{sentences.count(len(view.members), 'annotator')} {view.words}."
            said.append(sentences.Sentence(who, "member", parts=[view.words]))
    return said


def annotator_columns(
    found: Findings, group: NDArray[Any] | None, anonymise: bool, order: NDArray[np.intp]
) -> dict[str, Any]:
    """One list a column, one entry an annotator, in the order of the page."""
    annotations, standing = found.annotations, found.standing
    assert standing is not None
    again, alike = self_consistency(annotations)
    reach = np.minimum(1.96 * standing.error, 1.0)
    columns: dict[str, Any] = {
        "id": names(annotations, anonymise),
        "n": annotations.annotator_load[order],
        "agreement": np.round(standing.agreement, 3)[order],
        "reach": np.round(reach, 3)[order],
        "check": found.check[order].astype(int),
    }
    if again.any():
        columns |= {"again": again[order], "alike": np.round(alike, 3)[order]}
    gold = annotator_gold(annotations)
    if gold is not None:
        ends = np.array([wilson(right, n)[1:] for n, right in zip(*gold, strict=True)])
        columns |= {"gold_n": gold[0][order], "gold_right": gold[1][order]}
        columns |= {"gold_low": np.round(ends[order, 0], 3), "gold_high": np.round(ends[order, 1], 3)}
    judged = found.judged
    if judged is not None:
        columns["verdict"] = judged.verdict[order]
        columns["probability"] = np.round(judged.probability[order], 3)
        columns["evidence"] = judged.evidence[order]
    else:
        usual = (
            float(np.nanmedian(standing.agreement)) if np.isfinite(standing.agreement).any() else float("nan")
        )
        columns["evidence"] = [sentences.standing_sentence(int(n), standing, usual) or "" for n in order]
    if group is not None:
        columns["group"] = group[order]
    return columns


def heat_content(
    found: Findings, group: NDArray[Any] | None, order: NDArray[np.intp]
) -> dict[str, Any] | None:
    """How often every two annotators agree, of at most MOST_SHOWN with the most labels, group by group."""
    assert found.votes is not None
    votes, N = found.votes, found.annotations.n_annotators
    busiest = np.argsort(-found.annotations.annotator_load, kind="stable")[:MOST_SHOWN]
    if len(busiest) < 2:
        return None
    agreement = np.nan_to_num(found.standing.agreement if found.standing is not None else np.zeros(N))
    first = np.zeros(N) if group is None else np.where(group < 0, N, group)
    busiest = busiest[np.lexsort((-agreement[busiest], first[busiest]))]
    place = np.full(N, -1)
    place[busiest] = np.arange(len(busiest))
    agreed, shared = pair_tables(votes, place, len(busiest))
    share = np.where(shared >= LEAST_SHARED, np.rint(100 * agreed / np.maximum(shared, 1)), -1)
    on_page = np.empty(N, dtype=np.intp)
    on_page[order] = np.arange(N)
    return {
        "who": on_page[busiest],
        "share": share.astype(int).ravel(),
        "shared": np.rint(shared).astype(int).ravel(),
    }


def pair_tables(votes: Votes, place: NDArray[Any], n: int) -> tuple[Array, Array]:
    """(n, n) each: Σ_m Σ_c s_amc s_bmc, agreement added up, and the items that two annotators share."""
    from scipy.sparse import csr_array

    entries = votes.answer.tocoo()
    who, item = place[votes.annotator[entries.row]], votes.item[entries.row]
    agreed = np.zeros((n, n))
    for c in range(votes.sizes[2]):
        mine = (entries.col == c) & (who >= 0)
        of_class = csr_array((entries.data[mine], (who[mine], item[mine])), shape=(n, votes.sizes[0]))
        agreed += (of_class @ of_class.T).toarray()
    pairs = place[votes.annotator] >= 0
    seen = csr_array(
        (np.ones(int(pairs.sum())), (place[votes.annotator][pairs], votes.item[pairs])),
        shape=(n, votes.sizes[0]),
    )
    return agreed, (seen @ seen.T).toarray()


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


def column_content(
    annotations: Annotations, votes: Votes, group: NDArray[Any] | None, groups: list[str], anonymise: bool
) -> list[dict[str, Any]]:
    """Columns of the annotator table: whom annotators of each value agree with, and their groups."""
    table = annotations.annotator_table
    if table is None:
        return []
    fewest = FEWEST_NAMED if anonymise else 1
    found = [_column(name, annotations, votes, group, groups, fewest) for name in table.column_names[1:]]
    return [one for one in found if one is not None]


def _column(
    name: str,
    annotations: Annotations,
    votes: Votes,
    group: NDArray[Any] | None,
    groups: list[str],
    fewest: int,
) -> dict[str, Any] | None:
    """One column; None where it says the same of everybody, or something else of each."""
    column = annotations.annotator_column(name)
    values = ["" if value is None or value != value else str(value) for value in column]
    kept = _frequent(values, fewest)
    rows = [*kept, *([OTHER] if set(values) - set(kept) else [])]
    if len(rows) < 2 or len(set(values)) == len(values):
        return None
    place = {value: row for row, value in enumerate(kept)}
    code = np.array([place.get(value, len(rows) - 1) for value in values])
    classes, shown = [str(one) for one in annotations.classes], [value or "(blank)" for value in rows]
    sides = side_rows(annotations, votes, code, range(len(rows)), classes)
    words = None if group is None else sentences.column_sentence(name, shown, groups, code, group)
    return {"name": name, "values": shown, "sides": sides, "words": words}


def _frequent(values: list[str], fewest: int) -> list[str]:
    """The values with a row of their own, the most frequent first."""
    found, counts = np.unique(np.array(values, dtype=object).astype(str), return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_VALUES]
    return [str(found[i]) for i in order if counts[i] >= fewest]
