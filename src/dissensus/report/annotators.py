"""Annotators on the page: agreement, consistency and verdicts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.annotators import sentences
from dissensus.annotators.plan import Findings
from dissensus.annotators.pseudonyms import is_pseudonymous
from dissensus.evaluate.attributes import annotator_attributes
from dissensus.evaluate.gold import wilson
from dissensus.evaluate.group_agreement import Votes, self_consistency
from dissensus.labels.annotations import Annotations
from dissensus.numerics import Array, Indices
from dissensus.report import Content
from dissensus.report.clusters import group_rows

MAX_COLUMN_VALUES = 12  # rows in the table of an annotator column
MAX_PAIR_ANNOTATORS, MIN_PAIR_ITEMS = 60, 3  # annotators in the agreement matrix; shared items of a pair
MIN_VALUE_ANNOTATORS = 5  # annotators with a value, if ids are hidden
OTHER = "other"
MAX_PAGE_LABELS = 400_000  # single labels stored in a page


def page_order(annotations: Annotations, anonymise: bool) -> tuple[Indices, list[str]]:
    """Return the annotators' order on the page, and their names on it by code.

    Numbers in place of ids are in a random order that does not depend on a seed.
    """
    n = annotations.n_annotators
    if not anonymise or is_pseudonymous(annotations):
        return np.arange(n), [str(name) for name in annotations.annotators]
    order = np.random.default_rng().permutation(n)
    return order, [f"annotator {rank + 1}" for rank in np.argsort(order)]


def people_content(findings: Findings, order: Indices, names: list[str], anonymise: bool) -> Content:
    """Return the annotators and single labels; label counts if there are no annotators."""
    annotations, rank = findings.annotations, np.argsort(order)
    rows: Content = {"counts": annotations.counts.ravel()}
    if not annotations.anonymous and annotations.n_labels <= MAX_PAGE_LABELS:
        size = annotations.counts.sum(axis=1)
        rows = {"size": size, "who": rank[annotations.annotator], "label": annotations.label}
    if findings.votes is None:
        return {"annotators": None, "columns": [], "rows": rows, "heat": None}
    group = None if findings.groups is None else findings.groups.group
    titles = [] if findings.groups is None else ["larger", "smaller"]
    return {
        "annotators": annotator_columns(findings, group, order, names),
        "columns": column_content(annotations, findings.votes, group, titles, anonymise),
        "heat": heat_content(findings, group, order),
        "rows": rows,
    }


def annotator_columns(
    findings: Findings, group: NDArray[Any] | None, order: Indices, names: list[str]
) -> Content:
    """Return one array per column, with one entry per annotator in the order of the page."""
    annotations, agreement = findings.annotations, findings.agreement
    assert agreement is not None
    again, alike = self_consistency(annotations)
    reach = np.minimum(1.96 * agreement.error, 1.0)
    columns: Content = {"id": np.array(names, dtype=object), "n": annotations.annotator_load}
    columns |= {"agreement": np.round(agreement.agreement, 6), "reach": np.round(reach, 6)}
    columns |= {"usual": np.round(agreement.usual, 6), "gap": np.round(agreement.gap, 6)}
    columns["check"] = findings.check.astype(int)
    if again.any():
        columns |= {"again": again, "alike": np.round(alike, 3)}
    if annotations.gold is not None:
        gold, codes, N = annotations.gold[annotations.item], annotations.annotator, annotations.n_annotators
        n_gold = np.bincount(codes[gold >= 0], minlength=N)
        right = np.bincount(codes[(gold >= 0) & (annotations.label == gold)], minlength=N)
        ends = np.array([wilson(hits, n)[1:] for hits, n in zip(right, n_gold, strict=True)])
        columns |= {"gold_n": n_gold, "gold_right": right}
        columns |= {"gold_low": np.round(ends[:, 0], 3), "gold_high": np.round(ends[:, 1], 3)}
    evidence = [sentences.standing_sentence(n, agreement) or "" for n in range(len(names))]
    columns["evidence"] = np.array(evidence, dtype=object)
    if findings.verdicts is not None:
        columns |= {"verdict": findings.verdicts.verdict, "evidence": findings.verdicts.evidence}
        columns["probability"] = np.round(findings.verdicts.probability, 3)
    if group is not None:
        columns["group"] = group
    return {name: values[order] for name, values in columns.items()}


def heat_content(findings: Findings, group: NDArray[Any] | None, order: Indices) -> Content | None:
    """Return the pairwise agreement of the annotators with the most labels, ordered by group."""
    assert findings.votes is not None
    votes, N = findings.votes, findings.annotations.n_annotators
    busiest = np.argsort(-findings.annotations.annotator_load, kind="stable")[:MAX_PAIR_ANNOTATORS]
    if len(busiest) < 2:
        return None
    agreement = np.zeros(N) if findings.agreement is None else np.nan_to_num(findings.agreement.agreement)
    first = np.zeros(N) if group is None else np.where(group < 0, N, group)
    busiest = busiest[np.lexsort((-agreement[busiest], first[busiest]))]
    row = np.full(N, -1)
    row[busiest] = np.arange(len(busiest))
    agreed, shared = pair_tables(votes, row, len(busiest))
    share = np.where(shared >= MIN_PAIR_ITEMS, np.rint(100 * agreed / np.maximum(shared, 1)), -1)
    shares = {"share": share.astype(int).ravel(), "shared": np.rint(shared).astype(int).ravel()}
    return {"who": np.argsort(order)[busiest], **shares}


def pair_tables(votes: Votes, row: NDArray[Any], n: int) -> tuple[Array, Array]:
    """Return (n, n) each: summed agreement Σ_m Σ_c s_amc s_bmc, and the number of shared items.

    ``row`` (annotators,) is the row of each annotator, −1 for none.
    """
    from scipy.sparse import csr_array

    def products(values: Array, pairs: NDArray[Any]) -> Array:
        at = row[votes.annotator[pairs]], votes.item[pairs]
        table = csr_array((values, at), shape=(n, votes.sizes[0]))
        return np.asarray((table @ table.T).toarray())

    entries, shown = votes.answer.tocoo(), row[votes.annotator] >= 0
    agreed = np.zeros((n, n))
    for c in range(votes.sizes[2]):
        subset = (entries.col == c) & shown[entries.row]
        agreed += products(entries.data[subset], entries.row[subset])
    return agreed, products(np.ones(int(shown.sum())), np.flatnonzero(shown))


def column_content(
    annotations: Annotations, votes: Votes, group: NDArray[Any] | None, groups: list[str], anonymise: bool
) -> list[Content]:
    """Return, for each column of the annotator table, the agreement and answers of annotators by value."""
    table = annotations.annotator_table
    if table is None or len(table.column_names) < 2:
        return []
    min_annotators = MIN_VALUE_ANNOTATORS if anonymise else 1
    columns, effects = [], annotator_attributes(annotations)
    shares = zip(effects.column, effects.explained, effects.low, effects.high, strict=True)
    explained = {name: sentences.attribute_sentence(name, *share) for name, *share in shares}
    for name in table.column_names[1:]:
        column = annotations.annotator_column(name)
        values = ["" if value is None or value != value else str(value) for value in column]
        counts = sorted(Counter(values).items(), key=lambda item: (-item[1], item[0]))
        shown = [value for value, n in counts[:MAX_COLUMN_VALUES] if n >= min_annotators]
        rows = [*shown, *([OTHER] if set(values) - set(shown) else [])]
        if len(rows) < 2 or len(set(values)) == len(values):
            continue  # one value for all annotators, or a different one for each
        index = {value: i for i, value in enumerate(shown)}
        code = np.array([index.get(value, len(rows) - 1) for value in values])
        names = [value or "(blank)" for value in rows]
        sides = group_rows(annotations, votes, code, range(len(rows)))
        words = None if group is None else sentences.column_sentence(name, names, groups, code, group)
        content = {"name": name, "values": names, "sides": sides, "words": words}
        columns.append(content | {"explained": explained[name]})
    return columns
