"""Annotators: whom they agree with, how steady and how quick they are, what the model makes of them.

Where the annotator table says who is a judge, judges stand beside humans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dissensus.annotators import sentences
from dissensus.annotators.findings import Findings
from dissensus.annotators.judge_detection import KIND, has_judges
from dissensus.annotators.pseudonyms import pseudonymous
from dissensus.errors import DataError
from dissensus.evaluate.gold import wilson
from dissensus.evaluate.sides import Votes, self_consistency
from dissensus.labels.annotations import Annotations
from dissensus.numerics import Array
from dissensus.report.clusters import side_rows

if TYPE_CHECKING:
    from dissensus.annotators.verdicts import AnnotatorVerdicts

MOST_VALUES = 12  # values of a side column that get a row of their own
MOST_SHOWN, LEAST_SHARED = 60, 3  # annotators of the table of pairs, and items that a pair must share
FEWEST_NAMED = 5  # annotators behind a value, where ids are hidden
OTHER = "other"
MOST_ROWS = 400_000  # labels that a page carries one by one
PAUSE = 1800.0  # seconds: a longer gap between two labels is a pause, not work
TIME_BINS = 20  # of about the same number of labels, for the crowd over time
LABELS_PER_HALF = 10  # labels in each half of somebody's work, at least, to compare the halves
WRONG_SHOWN = 12  # items that judges are most surely wrong about
JUDGE_COLUMNS = (
    "n_labels", "winning_rate", "advantage", "passed", "n_humans", "n_humans_left_out", "labels_needed",
    "pooled_difference", "pooled_low", "pooled_high", "pooled_passed", "disagreement", "human_disagreement",
)  # fmt: skip


def page_order(annotations: Annotations, anonymise: bool) -> tuple[NDArray[np.intp], list[str]]:
    """The annotators' order on the page, and their names there by code.

    Numbers in place of ids are in an order that nobody can draw again from a seed.
    """
    n = annotations.n_annotators
    if not anonymise or pseudonymous(annotations):
        return np.arange(n), [str(name) for name in annotations.annotators]
    order = np.random.default_rng().permutation(n)
    return order, [f"annotator {place + 1}" for place in np.argsort(order)]


def people_content(
    found: Findings,
    group: NDArray[Any] | None,
    clusters: dict[str, Any] | None,
    order: NDArray[np.intp],
    names: list[str],
    anonymise: bool,
    times: Any,
) -> dict[str, Any]:
    """Annotators and single labels; where nobody is named, label counts."""
    annotations, place = found.annotations, np.argsort(order)
    rows: dict[str, Any] = {"counts": annotations.counts.ravel()}
    if not annotations.anonymous and annotations.n_labels <= MOST_ROWS:
        size = annotations.counts.sum(axis=1)
        rows = {"size": size, "who": place[annotations.annotator], "label": annotations.label}
    if found.votes is None:
        return {"annotators": None, "columns": [], "rows": rows, "views": [], "heat": None, "time": None}
    letters = [one["name"] for one in clusters["groups"]] if clusters else []
    time = None if times is None else time_content(found, times, order)
    return {
        "annotators": annotator_columns(found, group, order, names) | (time or {}).pop("people", {}),
        "views": [] if found.judged is None else views_said(found.judged),
        "columns": column_content(annotations, found.votes, group, letters, anonymise),
        "heat": heat_content(found, group, order),
        "time": time,
        "rows": rows,
    }


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
    found: Findings, group: NDArray[Any] | None, order: NDArray[np.intp], names: list[str]
) -> dict[str, Any]:
    """One list a column, one entry an annotator, in the order of the page."""
    annotations, standing = found.annotations, found.standing
    assert standing is not None
    again, alike = self_consistency(annotations)
    reach = np.minimum(1.96 * standing.error, 1.0)
    columns: dict[str, Any] = {
        "id": [names[n] for n in order],
        "n": annotations.annotator_load[order],
        "agreement": np.round(standing.agreement, 3)[order],
        "reach": np.round(reach, 3)[order],
        "check": found.check[order].astype(int),
    }
    if again.any():
        columns |= {"again": again[order], "alike": np.round(alike, 3)[order]}
    if annotations.gold is not None:
        gold, who, N = annotations.gold[annotations.item], annotations.annotator, annotations.n_annotators
        asked = np.bincount(who[gold >= 0], minlength=N)
        right = np.bincount(who[(gold >= 0) & (annotations.label == gold)], minlength=N)
        ends = np.array([wilson(hits, n)[1:] for hits, n in zip(right, asked, strict=True)])
        columns |= {"gold_n": asked[order], "gold_right": right[order]}
        columns |= {"gold_low": np.round(ends[order, 0], 3), "gold_high": np.round(ends[order, 1], 3)}
    if found.judged is not None:
        columns["verdict"] = found.judged.verdict[order]
        columns["probability"] = np.round(found.judged.probability[order], 3)
        columns["evidence"] = found.judged.evidence[order]
    else:
        columns["evidence"] = [sentences.standing_sentence(int(n), standing) or "" for n in order]
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
    agreement = np.zeros(N) if found.standing is None else np.nan_to_num(found.standing.agreement)
    first = np.zeros(N) if group is None else np.where(group < 0, N, group)
    busiest = busiest[np.lexsort((-agreement[busiest], first[busiest]))]
    place = np.full(N, -1)
    place[busiest] = np.arange(len(busiest))
    agreed, shared = pair_tables(votes, place, len(busiest))
    share = np.where(shared >= LEAST_SHARED, np.rint(100 * agreed / np.maximum(shared, 1)), -1)
    shares = {"share": share.astype(int).ravel(), "shared": np.rint(shared).astype(int).ravel()}
    return {"who": np.argsort(order)[busiest], **shares}


def pair_tables(votes: Votes, place: NDArray[Any], n: int) -> tuple[Array, Array]:
    """(n, n) each: Σ_m Σ_c s_amc s_bmc, agreement added up, and the items that two annotators share."""
    from scipy.sparse import csr_array

    def products(values: Array, pairs: NDArray[Any]) -> Array:
        at = place[votes.annotator[pairs]], votes.item[pairs]
        table = csr_array((values, at), shape=(n, votes.sizes[0]))
        return np.asarray((table @ table.T).toarray())

    entries, shown = votes.answer.tocoo(), place[votes.annotator] >= 0
    agreed = np.zeros((n, n))
    for c in range(votes.sizes[2]):
        mine = (entries.col == c) & shown[entries.row]
        agreed += products(entries.data[mine], entries.row[mine])
    return agreed, products(np.ones(int(shown.sum())), np.flatnonzero(shown))


def column_content(
    annotations: Annotations, votes: Votes, group: NDArray[Any] | None, groups: list[str], anonymise: bool
) -> list[dict[str, Any]]:
    """Columns of the annotator table: whom annotators of each value agree with, and their groups."""
    table = annotations.annotator_table
    if table is None:
        return []
    fewest = FEWEST_NAMED if anonymise else 1
    classes, columns = [str(one) for one in annotations.classes], []
    for name in table.column_names[1:]:
        column = annotations.annotator_column(name)
        values = ["" if value is None or value != value else str(value) for value in column]
        known, counts = np.unique(np.array(values, dtype=object).astype(str), return_counts=True)
        frequent = np.argsort(-counts, kind="stable")[:MOST_VALUES]
        kept = [str(known[i]) for i in frequent if counts[i] >= fewest]
        rows = [*kept, *([OTHER] if set(values) - set(kept) else [])]
        if len(rows) < 2 or len(set(values)) == len(values):
            continue  # it says the same of everybody, or something else of each
        place = {value: row for row, value in enumerate(kept)}
        code = np.array([place.get(value, len(rows) - 1) for value in values])
        shown = [value or "(blank)" for value in rows]
        sides = side_rows(annotations, votes, code, range(len(rows)), classes)
        words = None if group is None else sentences.column_sentence(name, shown, groups, code, group)
        columns.append({"name": name, "values": shown, "sides": sides, "words": words})
    return columns


# ---- when labels were given ---------------------------------------------------------------------------


def time_content(found: Findings, times: Any, order: NDArray[np.intp]) -> dict[str, Any] | None:
    """Pace and drift of every annotator (``people``), and labels and agreement over time."""
    annotations, when = found.annotations, np.asarray(times, dtype=np.float64)
    if len(when) != annotations.n_labels:
        raise DataError(f"{len(when)} times were given for {annotations.n_labels} labels; give one a label")
    known = np.flatnonzero(np.isfinite(when))
    if not len(known):
        return None
    votes, m, p = found.votes, annotations.item, annotations.label
    assert votes is not None
    # of each label, the share of the others' answers to the item that equal it; NaN: nobody else
    cell = annotations.pair * annotations.n_classes + p
    own = np.bincount(cell)[cell] / np.bincount(annotations.pair)[annotations.pair]
    others, same = votes.table.sum(axis=1)[m] - 1, votes.table[m, p] - own
    alike: Array = np.divide(same, others, out=np.full(len(m), np.nan), where=others > 0.5)
    pace, (change, error) = np.round(paces(annotations, when), 1), drifts(annotations, when, alike)
    people = {"pace": pace[order], "drift": np.round(change, 3)[order]}
    people["drift_reach"] = np.round(1.96 * error, 3)[order]
    by_time = known[np.argsort(when[known], kind="stable")]
    bins = [
        {
            "from": float(when[part[0]]),
            "to": float(when[part[-1]]),
            "n": len(part),
            "agreement": float(np.nanmean(alike[part])) if np.isfinite(alike[part]).any() else float("nan"),
        }
        for part in np.array_split(by_time, min(TIME_BINS, len(by_time)))
    ]
    return {"people": people, "bins": bins}


def paces(annotations: Any, when: Array) -> Array:
    """(annotators,): the median seconds from one label to the next, pauses left out; NaN: unknown."""
    rows = np.lexsort((when, annotations.annotator))
    who, gap = annotations.annotator[rows], np.diff(when[rows], prepend=np.nan)
    work = np.append(False, who[1:] == who[:-1]) & (gap <= PAUSE) & (gap >= 0)
    found = np.full(annotations.n_annotators, np.nan)
    for n in np.unique(who[work]):
        found[n] = np.median(gap[work & (who == n)])
    return found


def drifts(annotations: Any, when: Array, alike: Array) -> tuple[Array, Array]:
    """(annotators,) each: agreement in the later half of their labels less the earlier, and its error."""
    change, error = np.full((2, annotations.n_annotators), np.nan)
    usable = np.flatnonzero(np.isfinite(when) & np.isfinite(alike))
    rows = usable[np.lexsort((when[usable], annotations.annotator[usable]))]
    who = annotations.annotator[rows]
    starts = np.flatnonzero(np.append(True, who[1:] != who[:-1])) if len(who) else np.zeros(0, np.intp)
    for start, stop in zip(starts, np.append(starts[1:], len(who)), strict=True):
        half = (stop - start) // 2
        if half < LABELS_PER_HALF:
            continue
        early, late = alike[rows[start : start + half]], alike[rows[start + half : stop]]
        change[who[start]] = late.mean() - early.mean()
        error[who[start]] = np.sqrt(early.var(ddof=1) / len(early) + late.var(ddof=1) / len(late))
    return change, error


# ---- judges -------------------------------------------------------------------------------------------


def judge_content(annotations: Annotations, anonymise: bool) -> dict[str, Any] | None:
    """The test, the panel and what judges are most surely wrong about; None where no judge is named."""
    if annotations.anonymous or not has_judges(annotations):
        return None
    from dissensus.judges.report import judge_report

    found = judge_report(annotations, KIND, n_items=WRONG_SHOWN)
    if not found.n_humans:
        return None
    names = [f"judge {i}" for i in range(1, len(found.judges) + 1)] if anonymise else found.judges
    shown, panel, rows = dict(zip(found.judges, names, strict=True)), found.panel, found.rows()
    place = {item: code for code, item in enumerate(annotations.items.tolist())}
    # answers that fewest humans would give, each with the judges who give it
    wrong: dict[tuple[Any, str], dict[str, Any]] = {}
    for row in sorted(found.wrong_items(), key=lambda row: row["share_as_judge"]):
        same = ("answer", "human_answer", "share_as_judge", "n_human_labels")
        fresh = {"judges": [], "item": place[row["item"]], **{name: row[name] for name in same}}
        wrong.setdefault((row["item"], row["answer"]), fresh)["judges"].append(shown[row["judge"]])
    return {
        "names": names,
        "says": sentences.judges_words(names, rows, found.epsilon),
        "terms": sentences.test_words(found.epsilon, found.answers.values is None),
        "rows": [{name: row[name] for name in JUDGE_COLUMNS} for row in rows],
        "panel": panel and {"says": panel.in_words(names), "correlation": panel.correlation.round(3)},
        "wrong": list(wrong.values())[:WRONG_SHOWN],
    }
