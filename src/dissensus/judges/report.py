"""Everything about judges beside humans in one report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dissensus.annotators.judge_detection import find_judges
from dissensus.judges import comparison
from dissensus.judges.answers import Answers
from dissensus.judges.comparison import MIN_ITEMS, Difference, Replacement, Z
from dissensus.judges.panel import Panel, panel_of, panel_vote
from dissensus.judges.rates import LEVELS, Rate, rates_of
from dissensus.labels.display import Shown, make_frame
from dissensus.labels.kinds import LabelType
from dissensus.labels.sources import as_annotations
from dissensus.models import build_model
from dissensus.models.base import Model
from dissensus.params import check_rules, integer, real

MODEL = "fmm"  # of humans alone: a mixture over items takes a second where a sampled model takes minutes
ROUGHLY = {"tol": 1e-4}  # a difference of the last digits decides nothing here
MOST_ITEMS = 20  # items shown where a judge is most surely wrong
_RULES = {"epsilon": real(0.0, 1.0), "n_items": integer(0), **LEVELS}


@dataclass(frozen=True, eq=False, repr=False)
class JudgeReport(Shown):
    """What one table of labels says about its judges.

    Attributes
    ----------
    answers
        The labels of humans and judges.
    found_by
        How judges were told from humans.
    epsilon
        The advantage in cost that a judge is granted.
    replacements
        For each judge, the test whether it may replace a human.
    differences
        For each judge, how it differs from humans.
    panel
        The judges taken together; None where there is one.
    rates
        Shares of classes, corrected by the humans' labels.
    model
        The model fitted to humans alone; None without humans, and for numbers.
    n_items
        Items that are listed for each judge.
    notes
        What the user should know.
    """

    answers: Answers
    found_by: str  # how judges were told from humans
    epsilon: float
    replacements: list[Replacement]
    differences: list[Difference]
    panel: Panel | None
    rates: list[Rate]
    model: Model | None  # fitted to humans alone; None without humans, and for numbers
    n_items: int = MOST_ITEMS
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        passed = sum(test.passed for test in self.replacements)
        humans = f"{self.n_humans:,} human{'s' * (self.n_humans != 1)}"
        return f"JudgeReport({len(self.judges)} judges beside {humans}, {passed} may replace a human)"

    @property
    def judges(self) -> list[str]:
        """Ids of the judges."""
        return [str(self.answers.annotations.annotators[judge]) for judge in self.answers.judges]

    @property
    def n_humans(self) -> int:
        """Humans who gave a label."""
        return len(np.unique(self.answers.annotator[self.answers.human_rows]))

    def rows(self) -> list[dict[str, Any]]:
        """One row for each judge."""
        agreement, panel, rows = judge_agreement(self.answers), self.panel, []
        for place, (test, apart) in enumerate(zip(self.replacements, self.differences, strict=True)):
            low, high = test.interval()
            group = [place in members for members in panel.groups].index(True) + 1 if panel else 0
            row = {
                "judge": self.judges[place],
                "n_labels": int((self.answers.annotator == test.judge).sum()),
                **{name: getattr(test, name) for name in ("winning_rate", "advantage", "passed")},
                "n_humans": len(test.humans),
                **{name: getattr(test, name) for name in ("n_humans_left_out", "labels_needed")},
                "pooled_difference": test.pooled_difference,
                "pooled_low": low,
                "pooled_high": high,
                **{name: getattr(test, name) for name in ("pooled_p", "pooled_passed")},
                **{name: getattr(apart, name) for name in ("disagreement", "human_disagreement", "excess")},
                "excess_low": apart.excess - Z * apart.excess_error,
                "excess_high": apart.excess + Z * apart.excess_error,
                **{name: getattr(apart, name) for name in ("bias_of", "bias", "bias_error")},
                "agreement_with_judges": agreement[place],
                "group": group,
                "vote_weight": float(panel.weights[place]) if panel else math.nan,
            }
            rows.append(row)
        return rows

    def to_frame(self) -> Any:
        """One row for each judge: ``judge``, ``winning_rate``, ``advantage``, and more."""
        return self._frame(self.rows())

    def confusion_frame(self) -> Any:
        """One row for every judge and two classes: what humans say, what the judge says, how often."""
        return self._frame(self._confusion())

    def _confusion(self) -> list[dict[str, Any]]:
        if self.model is None:
            return []
        return [row for apart in self.differences for row in comparison.confusion_rows(self.answers, apart)]

    def rates_frame(self) -> Any:
        """One row for every judge, group of items and class: its share among humans over all items."""
        return self._frame([rate.as_row() for rate in self.rates])

    def wrong_items(self) -> list[dict[str, Any]]:
        """Of every judge the items where it is most surely wrong, surest first."""
        if self.model is None:
            return []
        known = self.model.intervals()
        shares = self.model.label_distributions_, None if known is None else known.high
        lists = [comparison.wrong_items(self.answers, one, *shares, self.n_items) for one in self.differences]
        return [row for rows in lists for row in rows]

    def items_frame(self) -> Any:
        """The same as a table."""
        return self._frame(self.wrong_items())

    def panel_vote(self) -> Any:
        """(items, classes): the judges' vote in which judges that err together share their votes."""
        return None if self.panel is None else panel_vote(self.answers, self.panel)

    def _frame(self, rows: list[dict[str, Any]]) -> Any:
        columns = {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}
        return make_frame(columns, self.answers.annotations.frame_kind)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        panel = self.panel
        return {
            "found_by": self.found_by,
            "epsilon": self.epsilon,
            "label_type": self.answers.annotations.label_type,
            "n_humans": self.n_humans,
            "min_items": MIN_ITEMS,
            "notes": list(self.notes),
            "judges": self.rows(),
            "panel": None
            if panel is None
            else {
                "n_judges": len(panel.judges),
                **{name: getattr(panel, name) for name in ("n_items", "effective_votes", "low", "high")},
                "groups": [[self.judges[place] for place in group] for group in panel.groups],
                "correlation": panel.correlation.tolist(),
                "weights": panel.weights.tolist(),
            },
            "confusion": self._confusion(),
            "rates": [rate.as_row() for rate in self.rates],
            "wrong_items": self.wrong_items(),
        }


def judge_report(
    labels: Any,
    judges: str | Sequence[Any] | None = None,
    epsilon: float = 0.15,
    label_type: LabelType | None = None,
    *,
    by: str | None = None,
    model: Model | str | None = None,
    level: float = 0.95,
    n_items: int = MOST_ITEMS,
) -> JudgeReport:
    """Judges beside humans: may one replace a human, how does it differ, how many votes is the panel worth?

    ``judges`` says who is one: a column of the annotator table, ``"column=value"``, a pattern of ids, or
    ids; the rest are humans. Without it the column ``kind`` does (human or llm), or the annotators' names.
    ``epsilon`` is the advantage in cost that a judge is granted: 0.2 beside experts, 0.15 beside skilled
    annotators, 0.1 beside a crowd. ``label_type`` is nominal, ordinal or numeric. ``by`` is a column of the
    item table: rates are given for each of its values too. ``model`` is fitted to the humans alone (a
    mixture over items if not given; ``"hpgm"`` takes longer and knows how sure it is). ``level`` is that of
    rates' intervals.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    judges
        Who is a judge: see above.
    epsilon
        The advantage in cost that a judge is granted.
    label_type
        ``"nominal"``, ``"ordinal"`` or ``"numeric"``; None takes that of the labels.
    by
        A column of the item table, for rates by its values.
    model
        What is fitted to the humans alone: a model, its name, or None.
    level
        Level of the rates' intervals.
    n_items
        Items that the report lists for each judge, at most.
    """
    check_rules("judge_report", _RULES, epsilon=epsilon, level=level, n_items=n_items)
    known = as_annotations(labels)
    is_judge, found_by = find_judges(known, judges)
    answers = Answers.of(known, is_judge, label_type)
    # a model of the humans; none without humans, and for numbers, which have no classes to confuse
    fitted: Model | None = None
    if answers.humans.n_labels and answers.annotations.label_type != "numeric":
        settings = ROUGHLY if model in (None, MODEL) else {}
        chosen = model if isinstance(model, Model) else build_model(model or MODEL, settings)
        fitted = chosen.fit(answers.humans)
    notes = []
    if not answers.humans.n_labels:
        notes.append("no human gave a label: only how far judges agree with each other can be said")
    elif (answers.human_counts.sum(axis=1) < 2).all():
        notes.append("no item has labels of two humans, which the test and the panel's votes need")
    if answers.n_repeats:
        notes.append(f"{answers.n_repeats:,} repeated labels: an annotator's most frequent one counts")
    each = [int(judge) for judge in answers.judges]
    return JudgeReport(
        answers, found_by, epsilon,
        [comparison.may_replace(answers, judge, epsilon) for judge in each],
        [comparison.difference_of(answers, judge) for judge in each],
        panel_of(answers),
        [rate for judge in each for rate in rates_of(answers, judge, by, level)],
        fitted, n_items, notes,
    )  # fmt: skip


def judge_agreement(answers: Answers) -> list[float]:
    """Of each judge, how often another judge of the item answers alike; not a number for a single judge."""
    given = np.column_stack([answers.answers_of(int(judge)) for judge in answers.judges])
    k, result = given.shape[1], []
    for i in range(k):
        others = [j for j in range(k) if j != i]
        both = (given[:, [i]] >= 0) & (given[:, others] >= 0)
        same = both & (given[:, [i]] == given[:, others])
        result.append(float(same.sum() / both.sum()) if both.sum() else math.nan)
    return result
