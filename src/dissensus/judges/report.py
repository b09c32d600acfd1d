"""Report on judges: replacement test, differences from humans, panel and corrected rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dissensus.annotators import sentences
from dissensus.annotators.judge_detection import find_judges
from dissensus.annotators.sentences import count
from dissensus.judges import comparison
from dissensus.judges.answers import MIN_ITEMS, JudgeAnswers
from dissensus.judges.bias import Bias, judge_biases
from dissensus.judges.comparison import Difference, Replacement
from dissensus.judges.drift import Drift, baseline, drifts, read_baseline
from dissensus.judges.humans import join_humans
from dissensus.judges.kappa import Kappa, human_kappa, judge_kappa, outliers
from dissensus.judges.panel import Panel, judge_panel
from dissensus.judges.rates import LEVEL_RULES, Rate, class_rates
from dissensus.labels import as_annotations
from dissensus.labels.agreement import agreement_with_others
from dissensus.labels.display import TableResult, make_frame
from dissensus.labels.kinds import LabelType
from dissensus.models import build_model
from dissensus.models.base import Model
from dissensus.params import check_rules, integer, real

HUMAN_MODEL = "fmm"  # fitted to the humans: a mixture takes a second, a sampled model longer
HUMAN_MODEL_SETTINGS = {"tol": 1e-4}  # last digits do not matter here
MAX_WRONG_ITEMS = 20  # items listed per judge
JUDGE_RULES = {"epsilon": real(0.0, 1.0), "n_items": integer(0), **LEVEL_RULES}


@dataclass(frozen=True, eq=False, repr=False)
class JudgeReport(TableResult):
    """Comparison of the judges among the annotators with the humans.

    Attributes
    ----------
    answers
        Labels of humans and judges.
    found_by
        How the judges were identified.
    epsilon
        Bonus of a judge for its lower cost.
    replacements
        Test whether the judge may replace a human, for each judge.
    differences
        Difference from the humans, for each judge.
    panel
        Dependence of the judges; None for a single judge.
    rates
        Shares of the classes, corrected by the human labels.
    kappas, human_kappas
        κ of each judge with the humans, and of a human with the others, on the items of the judge that two
        humans labelled.
    biases
        Biases of the judges by the length of the text, by position and for options of their own family.
    drifts
        Changes since an earlier report.
    model
        Model fitted to the humans; None without humans, and for numbers.
    n_items
        Maximum number of items listed for each judge.
    notes
        Remarks for the user.
    """

    answers: JudgeAnswers
    found_by: str
    epsilon: float
    replacements: list[Replacement]
    differences: list[Difference]
    panel: Panel | None
    rates: list[Rate]
    kappas: list[Kappa]
    human_kappas: list[Kappa]
    biases: list[Bias]
    drifts: list[Drift]
    model: Model | None
    n_items: int = MAX_WRONG_ITEMS
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        passed = sum(test.verdict == "replaces" for test in self.replacements)
        judges, humans = count(len(self.judges), "judge"), count(self.n_humans, "human")
        return f"JudgeReport({judges}, {humans}; {passed} may replace a human)"

    @property
    def judges(self) -> list[str]:
        """Ids of the judges."""
        return self.answers.names

    @property
    def n_humans(self) -> int:
        """Number of humans with labels."""
        return len(np.unique(self.answers.annotator[self.answers.human_rows]))

    @property
    def positive(self) -> str:
        """Positive class of true-positive rates: the second of two; empty for other numbers of classes."""
        classes = self.answers.annotations.classes
        return str(classes[1]) if len(classes) == 2 and self.model is not None else ""

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per judge."""
        panel, rows, labels = self.panel, [], self.answers.annotations
        agreement = agreement_with_others(labels.take_rows(self.answers.is_judge[labels.annotator]))
        for i, (test, difference) in enumerate(zip(self.replacements, self.differences, strict=True)):
            row = {"judge": self.judges[i], "n_labels": int((self.answers.annotator == test.judge).sum())}
            row |= fields_of(test, "verdict", "within_epsilon_of", "settled_by", "passed", "pooled_passed")
            for name, kappa in (("kappa", self.kappas[i]), ("human_kappa", self.human_kappas[i])):
                row |= {name: kappa.value, f"{name}_low": kappa.low, f"{name}_high": kappa.high}
            for p, name in enumerate(("tnr", "tpr") if self.positive else ()):
                pair = comparison.confusion_rows(self.answers, difference)[3 * p]  # of a class with itself
                row |= {name: pair["chance"], f"{name}_low": pair["low"], f"{name}_high": pair["high"]}
                row[f"human_{name}"] = pair["among_humans"]
            biases = [bias.in_words() for bias in self.biases if bias.judge == row["judge"] and bias.shown]
            words = sentences.bias_words(difference.bias_of, difference.bias, difference.bias_error)
            row |= {"biases": "; ".join(filter(None, [words, *biases])), "n_humans": len(test.humans)}
            refused = [bias.by for bias in self.biases if bias.judge == row["judge"] and bias.refused]
            row["biases_not_tested"] = ", ".join(refused)
            for name, value in (vars(test) | vars(difference)).items():
                if name != "judge" and isinstance(value, int | float | str):
                    row[name] = value
            row |= dict(zip(("pooled_low", "pooled_high"), test.interval(), strict=True))
            row["agreement_with_judges"] = float(agreement[test.judge])
            row |= {"group": 0, "vote_weight": math.nan}
            if panel is not None:
                row["group"] = [i in members for members in panel.groups].index(True) + 1
                row["vote_weight"] = float(panel.weights[i])
            rows.append(row)
        return rows

    def to_frame(self) -> Any:
        """Return one row per judge: ``judge``, ``winning_rate``, ``advantage``, and more."""
        return self._frame(self.rows())

    def confusion_rows(self) -> list[dict[str, Any]]:
        """Return one row per judge, human answer and judge's answer, with shares and intervals."""
        if self.model is None:
            return []
        return [row for part in self.differences for row in comparison.confusion_rows(self.answers, part)]

    def confusion_frame(self) -> Any:
        """Return ``confusion_rows`` as a data frame."""
        return self._frame(self.confusion_rows())

    def rates_frame(self) -> Any:
        """Return one row per judge, group of items and class: its share among humans over all items."""
        return self._frame([rate.as_row() for rate in self.rates])

    def wrong_items(self) -> list[dict[str, Any]]:
        """Return the items with the fewest humans expected to agree with the judge, for every judge."""
        if self.model is None:
            return []
        intervals = self.model.intervals()
        shares = self.model.label_distributions_, None if intervals is None else intervals.high
        rows = list[dict[str, Any]]()
        for part in self.differences:
            rows += comparison.wrong_items(self.answers, part, *shares, self.n_items)
        return rows

    def items_frame(self) -> Any:
        """Return ``wrong_items`` as a data frame."""
        return self._frame(self.wrong_items())

    def _frame(self, rows: list[dict[str, Any]]) -> Any:
        columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
        return make_frame(columns, self.answers.annotations.frame_kind)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        panel: dict[str, Any] | None = None
        if self.panel is not None:
            panel = {"n_judges": len(self.panel.judges), "says": self.panel.in_words(self.judges)}
            panel |= fields_of(self.panel, "n_items", "effective_votes", "low", "high")
            panel["groups"] = [[self.judges[i] for i in group] for group in self.panel.groups]
            panel["correlation"] = self.panel.correlation.tolist()
            panel["weights"] = self.panel.weights.tolist()
        summary = fields_of(self, "found_by", "epsilon", "n_humans", "positive") | {"min_items": MIN_ITEMS}
        summary |= {"label_type": self.answers.annotations.label_type, "notes": list(self.notes)}
        rates, wrong = [rate.as_row() for rate in self.rates], self.wrong_items()
        tables = {"confusion": self.confusion_rows(), "rates": rates, "wrong_items": wrong}
        tables["biases"] = [vars(bias) | {"words": bias.in_words()} for bias in self.biases]
        tables["drifts"] = [
            vars(drift) | {"verdict": drift.verdict, "words": drift.in_words()} for drift in self.drifts
        ]
        summary |= {"judges": self.rows(), "panel": panel}
        return summary | tables | {"baseline": baseline(self.answers)}


def judge_report(
    labels: Any,
    judges: str | Sequence[Any] | None = None,
    epsilon: float = 0.15,
    label_type: LabelType | None = None,
    *,
    humans: Any = None,
    by: str | None = None,
    model: Model | str | None = None,
    level: float = 0.95,
    n_items: int = MAX_WRONG_ITEMS,
    since: Any = None,
) -> JudgeReport:
    """Compare judges with humans: may one replace a human, how do they differ, how many votes are they worth?

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    judges
        Judges: a column of the annotator table, ``"column=value"``, a pattern of ids, or ids; all others are
        humans. None: the column ``kind`` (human or llm), or else names of models.
    epsilon
        Bonus of a judge for its lower cost: 0.2 if the humans are experts, 0.15 for skilled annotators, 0.1
        for a crowd.
    label_type
        ``"nominal"``, ``"ordinal"`` or ``"numeric"``; None takes that of the labels.
    humans
        Labels of humans, joined with ``labels`` by item id. The judges are then all annotators of
        ``labels``; or those that ``judges`` names, and the others are left out. None: ``labels`` has humans
        and judges.
    by
        A column of the item table; rates are also estimated for each of its values.
    model
        Model fitted to the humans, or its name; None: a mixture over items. ``"hpgm"`` takes longer and has
        intervals.
    level
        Level of the rates' intervals.
    n_items
        Maximum number of items listed for each judge.
    since
        An earlier report to compare with: its file (.json) or its ``to_dict()``.
    """
    check_rules("judge_report", JUDGE_RULES, epsilon=epsilon, level=level, n_items=n_items)
    earlier = None if since is None else read_baseline(since)
    annotations = as_annotations(labels)
    notes, all_of_log = list[str](), humans is not None and judges is None
    if humans is not None:
        annotations, judges, notes = join_humans(annotations, as_annotations(humans), judges)
    is_judge, found_by = find_judges(annotations, judges)
    answers = JudgeAnswers.of(annotations, is_judge, label_type)
    # no model without humans, and for numbers, which have no classes
    fitted: Model | None = None
    if answers.humans.n_labels and answers.annotations.label_type != "numeric":
        settings = HUMAN_MODEL_SETTINGS if model in (None, HUMAN_MODEL) else {}
        chosen = model if isinstance(model, Model) else build_model(model or HUMAN_MODEL, settings)
        fitted = chosen.fit(answers.humans)
    if not answers.humans.n_labels:
        notes.append("there are no human labels: only the agreement among judges is reported")
    elif (answers.human_counts.sum(axis=1) < 2).all():
        notes.append("no item has labels of two humans, which the test and the panel need")
    if answers.n_repeats:
        notes.append(f"{answers.n_repeats:,} repeated labels: an annotator's most frequent one counts")
    codes, counts = [int(judge) for judge in answers.judges], answers.human_counts
    for judge in codes:
        notes += comparison.cautions(answers, judge)
    compared = [(answers.answers_of(judge), answers.compared_with_humans(judge)) for judge in codes]
    answered = [int(((answer >= 0) & counts.any(axis=1)).sum()) for answer, _ in compared]
    sizes = zip(answers.names, [int(rows.sum()) for _, rows in compared], answered, strict=True)
    if fewer := ", ".join(f"{name} {n:,} of {of:,}" for name, n, of in sizes if n < of):
        notes.append(f"κ and rates are of the items with labels of two humans: {fewer}")
    tests = [comparison.replacement_test(answers, judge, epsilon) for judge in codes]
    reliable, outlier_notes = without_outliers(answers, tests, epsilon)
    panel = judge_panel(reliable)
    notes += outlier_notes
    if outlier_notes and panel is not None:
        notes.append("the number of independent votes is estimated without these humans")
    return JudgeReport(
        answers, "all annotators of the log" if all_of_log else found_by, epsilon, tests,
        [comparison.judge_difference(answers, judge) for judge in codes],
        panel,
        [rate for judge in codes for rate in class_rates(answers, judge, by, level)],
        [judge_kappa(answers, answer, np.where(rows[:, None], counts, 0)) for answer, rows in compared],
        [human_kappa(answers, counts[rows]) for _, rows in compared],
        [bias for judge in codes for bias in judge_biases(answers, judge)],
        [] if earlier is None else list(drifts(answers, earlier)),
        fitted, n_items, notes,
    )  # fmt: skip


def without_outliers(
    answers: JudgeAnswers, tests: Sequence[Replacement], epsilon: float
) -> tuple[JudgeAnswers, list[str]]:
    """Return the answers without humans who hardly agree with the others, and what changes without them."""
    (low, lowest), labels = outliers(answers), answers.annotations
    if not low:
        return answers, []
    rest = JudgeAnswers.of(labels.take_rows(~np.isin(labels.annotator, [*low])), answers.is_judge)
    names, changes = labels.annotators, list[str]()
    for test in tests:
        verdict = comparison.replacement_test(rest, test.judge, epsilon).verdict
        changes += [f"{names[test.judge]} {verdict or 'no verdict'}"] * (verdict != test.verdict)
    who = sentences.listed([f"{kappa:.2f} for {names[human]}" for human, kappa in low.items()])
    text = f"κ with the other humans is {who}, and at least {lowest:.2f} for all others; without "
    text += sentences.listed([str(names[human]) for human in low])
    text += f", it is {human_kappa(rest, rest.human_counts).value:.2f}"
    verdicts = f"the verdicts on these change: {', '.join(changes)}" if changes else "no verdict changes"
    return rest, [f"{text} on average, and {verdicts}"]


def fields_of(source: Any, *names: str) -> dict[str, Any]:
    """Return attributes by name."""
    return {name: getattr(source, name) for name in names}
