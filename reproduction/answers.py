"""What follows from the tables: figures worse than printed, and the paper's three questions answered.

Two models are compared on the same items: the mean difference over items and its 95 % bootstrap interval.
A difference whose interval holds zero is a tie. Every measure here is better when lower.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dissensus.evaluate.bootstrap import Interval, bootstrap_mean
from dissensus.numerics import Array
from reproduction import printed
from reproduction.columns import COLUMNS, GUIDES, INSIDE, PAPER_COLUMNS
from reproduction.findings import ColumnRuns, Findings
from reproduction.tables import MODEL_TITLES, as_good, line, paper_figure, table

NEAR = 0.01  # a printed figure this close to the constant prediction's is called equal to it


# ---- worse than printed -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Miss:
    """A figure of Table 3 that is worse than printed, and why, in numbers."""

    column: str
    dataset: str
    measure: str
    ours: float
    figure: printed.Figure
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        title = PAPER_COLUMNS[self.column].title
        words = {"kl": "KL", "accuracy": "accuracy", "onehot_accuracy": "one-hot accuracy"}[self.measure]
        compared = f"{self.ours:.3f}, printed {self.figure.value:.3f}"
        return f"**{title} on {self.dataset}, {words}**: {compared}. {' '.join(self.reasons)}"


def tally(findings: Findings) -> str:
    """How many cells are at least as good as printed, under the printed projection and under the other."""
    as_printed, otherwise, total = 0, 0, 0
    for key in PAPER_COLUMNS:
        for name in findings.plan.asked("table3"):
            for measure in ("kl", printed.accuracy_measure(key)):
                figure = paper_figure(measure, key, name)
                if figure is not None:
                    other = f"{key}_{INSIDE}" if f"{key}_{INSIDE}" in COLUMNS else key
                    ours, theirs = (findings.column(name, one).number(measure).mean for one in (key, other))
                    total += 1
                    as_printed += as_good(measure, ours, figure)
                    otherwise += as_good(measure, theirs, figure)
    return (
        f"{as_printed} of {total} cells (KL and accuracy) are at least as good as printed; "
        f"{otherwise} where FMM and PGM project with the annotator sum inside and S chosen on dev."
    )


def misses(findings: Findings) -> Iterator[Miss]:
    """Every figure of the paper's columns that is worse here than printed."""
    for key in PAPER_COLUMNS:
        for name in findings.plan.asked("table3"):
            column = findings.column(name, key)
            for measure in ("kl", printed.accuracy_measure(key)):
                figure, ours = paper_figure(measure, key, name), column.number(measure).mean
                if figure is not None and not as_good(measure, ours, figure):
                    reasons = tuple(_reasons(findings, name, column, measure, figure))
                    yield Miss(key, name, measure, ours, figure, reasons)


def _reasons(
    findings: Findings, name: str, column: ColumnRuns, measure: str, figure: printed.Figure
) -> Iterator[str]:
    if measure == "kl":
        found = bootstrap_mean(findings.test_kl(name, column.key), n_boot=findings.plan.scale.n_boot)
        inside = "inside" if found.low <= figure.value <= found.high else "outside"
        ends = f"{found.low:.3f} to {found.high:.3f}"
        yield f"The printed figure is {inside} the interval over test items ({ends})."
    raw = column.before_projection(measure)
    if raw is not None:
        yield (
            f"The CNN alone, before its predictions were snapped to clusters, is at {raw:.3f}: "
            f"snapping moves it by {column.number(measure).mean - raw:+.3f}."
        )
        yield _clusters_used(column)
        other = findings.column(name, f"{column.key}_{INSIDE}").number(measure).mean
        yield (
            f"With the annotator sum inside and S chosen on dev, the same networks reach {other:.3f}, "
            f"{'at least as good as' if as_good(measure, other, figure) else 'also worse than'} printed."
        )
    constant: Mapping[str, Any] = findings.measured(findings.plan.description(name)).numbers["constant"]
    equal = abs(constant[measure] - figure.value) <= NEAR
    yield (
        f"The mean training distribution, predicted for every item, scores {constant[measure]:.3f}"
        f"{': the printed figure is that of a constant' if equal else ''}."
    )


def _clusters_used(column: ColumnRuns) -> str:
    used = [cell.numbers["clusters_used"] for cell in column.cells]
    return f"The test items fall on {min(used)} to {max(used)} different distributions."


# ---- the questions ------------------------------------------------------------------------------------

QUESTIONS = {
    "RQ1": "Do graphical models that cluster items and annotators outperform those that do not?",
    "RQ2": "Do neural models outperform graphical models?",
    "RQ3": "Do neural models that model items and annotators outperform those that do not?",
    "CBCC": "Item and annotator clusters (PGM) against annotator clusters alone (CBCC, Venanzi et al.)",
}
PAPER_SAID = {
    "RQ1": "The paper: no, both PGM columns are behind FMM; the authors suspect overfitting.",
    "RQ2": "The paper: yes, LDL-NM is ahead of every other column.",
    "RQ3": "The paper: yes, it says, without printing the column that leaves annotators out.",
    "CBCC": "The paper: not compared; named as the comparison still owed.",
}

# (first, second): is the first better?
GUIDED_PAIRS = (("annealing", "fmm"), ("bp", "fmm"))
# Like with like: the same features on both sides, nothing snapped, and no dropout left on.
SOFT_PAIRS = tuple((f"{key}_soft", "fmm_soft") for key in ("annealing", "bp", "vb", "cbcc"))
NEURAL_PAIRS = (*(("ldlnm_plain", f"{key}_soft") for key in GUIDES), ("ldlnm_default", "guided"))
ANNOTATOR_PAIRS = (("ldlnm_plain", "ldlnm_alone_plain"), ("ldlnm_default", "ldlnm_default_alone"))
# As the paper compares them: a network on sentence embeddings with a CNN from scratch whose answers are
# snapped; with dropout left on, the mean over a mask for each annotator with the answer of a single mask.
PRINTED_NEURAL_PAIRS = (("ldlnm", "fmm"), ("ldlnm", "annealing"), ("ldlnm", "bp"))
PRINTED_ANNOTATOR_PAIRS = (("ldlnm", "ldlnm_alone"),)
HIDDEN_PAIRS = (("annealing", "fmm"), ("bp", "fmm"), ("vb", "fmm"))
CBCC_PAIRS = (("bp", "cbcc"), ("vb", "cbcc"))
SOFT_CBCC_PAIRS = tuple((f"{first}_soft", f"{second}_soft") for first, second in CBCC_PAIRS)

TEST_KL = "test KL"
PRINTED_KL = "test KL, compared as in the paper"
HIDDEN = "hidden labels, given item and annotator"
HIDDEN_ITEM = "hidden labels, given the item"
RECOVERED = "KL to the labels kept back, {} shown"
GOLD = "error on gold labels"


@dataclass(frozen=True)
class Contrast:
    """The first model's loss minus the second's on one dataset."""

    question: str
    measure: str
    first: str
    second: str
    dataset: str
    difference: Interval

    @property
    def verdict(self) -> str:
        """What the interval says of the first."""
        if self.difference.low <= 0 <= self.difference.high:
            return "tie"
        return "better" if self.difference.value < 0 else "worse"


def contrasts(findings: Findings) -> list[Contrast]:
    """Every comparison that the cells allow."""
    return [
        *_on_test(findings, "RQ1", SOFT_PAIRS),
        *_on_test(findings, "RQ1", GUIDED_PAIRS, PRINTED_KL),
        *_on_hidden(findings, "RQ1", HIDDEN_PAIRS),
        *_on_populations(findings),
        *_on_test(findings, "RQ2", NEURAL_PAIRS),
        *_on_test(findings, "RQ2", PRINTED_NEURAL_PAIRS, PRINTED_KL),
        *_on_test(findings, "RQ3", ANNOTATOR_PAIRS),
        *_on_test(findings, "RQ3", PRINTED_ANNOTATOR_PAIRS, PRINTED_KL),
        *_on_test(findings, "CBCC", SOFT_CBCC_PAIRS),
        *_on_hidden(findings, "CBCC", CBCC_PAIRS),
        *_on_gold(findings),
    ]


def _on_test(
    findings: Findings, question: str, pairs: Sequence[tuple[str, str]], measure: str = TEST_KL
) -> Iterator[Contrast]:
    for first, second in pairs:
        for name in findings.plan.asked("table3"):
            found = _interval(findings, findings.difference(name, first, second))
            yield Contrast(question, measure, COLUMNS[first].title, COLUMNS[second].title, name, found)


def _on_hidden(findings: Findings, question: str, pairs: Sequence[tuple[str, str]]) -> Iterator[Contrast]:
    measures = {"pair": HIDDEN, "item": HIDDEN_ITEM}
    for given, measure in measures.items():
        for first, second in pairs:
            for name in findings.plan.asked("hidden"):
                cells = [findings.plan.hidden(name, key) for key in (first, second)]
                one, other = (findings.arrays(cell) for cell in cells)
                # All labels of an item, in whichever split they were hidden, are drawn together.
                found = _interval(findings, one[given] - other[given], one["items"])
                yield Contrast(question, measure, MODEL_TITLES[first], MODEL_TITLES[second], name, found)


def _on_populations(findings: Findings) -> Iterator[Contrast]:
    for name in findings.plan.asked("recover"):
        for one in findings.measured(findings.plan.recovery(name)).numbers["contrasts"]:
            if one["second"] == "FMM":
                measure = RECOVERED.format(one["labels_shown"])
                found = Interval(one["value"], one["low"], one["high"])
                yield Contrast("RQ1", measure, one["first"], one["second"], name, found)


def _on_gold(findings: Findings) -> Iterator[Contrast]:
    for first, second in CBCC_PAIRS:
        for name in findings.plan.asked("gold"):
            cells = [findings.plan.gold(name, key) for key in (first, second)]
            right = [findings.arrays(cell)["right"] for cell in cells]
            found = _interval(findings, right[1] - right[0])
            yield Contrast("CBCC", GOLD, MODEL_TITLES[first], MODEL_TITLES[second], name, found)


def _interval(findings: Findings, rows: Array, items: Array | None = None) -> Interval:
    return bootstrap_mean(rows, items=items, n_boot=findings.plan.scale.n_boot)


# ---- in words -----------------------------------------------------------------------------------------


def sentence(some: Sequence[Contrast]) -> str:
    """What all datasets say of one pair under one measure."""
    first = some[0]
    places = {
        verdict: [one.dataset for one in some if one.verdict == verdict]
        for verdict in ("better", "tie", "worse")
    }
    said = {"better": "better on {}", "tie": "a tie on {}", "worse": "worse on {}"}
    parts = [said[verdict].format(", ".join(names)) for verdict, names in places.items() if names]
    return f"{first.measure}: {first.first} against {first.second} is {'; '.join(parts)}."


def summary(some: Sequence[Contrast]) -> str:
    """All comparisons of a question in one line; those made as in the paper are not counted."""
    found = [one.verdict for one in some if one.measure != PRINTED_KL]
    tally = {verdict: found.count(verdict) for verdict in ("better", "tie", "worse")}
    return (
        f"of {len(found)} comparisons the first model is better in {tally['better']}, "
        f"tied in {tally['tie']} and worse in {tally['worse']}."
    )


def answers_text(found: Sequence[Contrast]) -> str:
    """The page's section: for every question a summary, a sentence a pair, and the numbers."""
    parts = []
    for question, words in QUESTIONS.items():
        some = [one for one in found if one.question == question]
        if some:
            sentences = "\n".join(f"- {sentence(pair)}" for pair in _by_pair(some))
            head = f"### {question}. {words}\n\n{PAPER_SAID[question]} Here: {summary(some)}"
            parts.append(f"{head}\n\n{sentences}\n\n{numbers_table(some)}")
    return "\n\n".join(parts)


def _by_pair(some: Sequence[Contrast]) -> list[list[Contrast]]:
    """The comparisons of one pair under one measure together, in the order of first appearance."""
    pairs: dict[tuple[str, str, str], list[Contrast]] = {}
    for one in some:
        pairs.setdefault((one.measure, one.first, one.second), []).append(one)
    return list(pairs.values())


def numbers_table(some: Sequence[Contrast]) -> str:
    """Difference and interval of every comparison."""
    lines = [
        line(
            *(one.measure, one.first, one.second, one.dataset),
            f"{one.difference.value:+.4f}",
            f"{one.difference.low:+.4f} to {one.difference.high:+.4f}",
            one.verdict,
        )
        for one in some
    ]
    head = ("measure", "first", "second", "dataset", "first − second", "95 % interval", "the first is")
    return table(head, lines)
