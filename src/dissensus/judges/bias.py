"""Bias of a judge by the length of the text, by position and for options of its own family.

Every bias is a slope of the judge's deviation from the humans of the same item,

    d_m = y(x_m) − Σ_p s_mp y(p) = z_m' β + noise

with x_m the judge's answer and s_mp the share of the item's humans who answer p. y is the value of an ordered
class or a number, the indicator of every nominal class or, for comparisons, the share of the win that goes to
the left side (1, ½ for a tie, 0). A human in the judge's place has E d_m = 0 on every item, whatever the
items are like; what is true of long texts, of left sides or of good options is also true of the humans and
cancels. z is

* for the length, 1 and log₂ of the number of characters of the text: the bias is that per doubling;
* for the position, 1: by how much the judge favours the left side more than the humans;
* for the family, 1 and [left option is of the judge's family] − [right option is].

Standard errors allow a different variance on every item (HC3; MacKinnon and White 1985). For nominal classes,
that with the largest t is reported, with an interval that holds for all of them (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from dissensus.annotators.judge_detection import model_family
from dissensus.annotators.sentences import quoted
from dissensus.judges.answers import JudgeAnswers
from dissensus.labels.features import texts_of
from dissensus.labels.kinds import WINNERS
from dissensus.numerics import Array, row_shares

MIN_BIAS_ITEMS = 30
MIN_CELL_ITEMS = 10  # items with a deviation in a class, or with one option of the family


@dataclass(frozen=True)
class Bias:
    """One bias of one judge, with a 95 % interval; NaN if it is refused, with the reason."""

    judge: str
    by: str  # length, position or family
    of: str = ""  # class of nominal labels, or family
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    refused: str = ""

    @property
    def shown(self) -> bool:
        """True if the interval does not contain 0."""
        return self.low > 0 or self.high < 0

    def in_words(self) -> str:
        """Return the bias as text, such as ``left side +8 points (+2 to +14)``."""
        if self.refused:
            return f"{self.by}: {self.refused}"
        scale, form, unit = (100, "+.0f", " points") if self.by != "length" or self.of else (1, "+.2f", "")
        value, low, high = (f"{scale * x:{form}}" for x in (self.value, self.low, self.high))
        size = f"{value}{unit} ({low} to {high})"
        size += " per doubling of the text’s length" * (self.by == "length")
        if not self.shown:
            return f"{self.by}: none shown, {size}"
        subjects = {"length": quoted(self.of) if self.of else "scale", "position": "left side"}
        return f"{subjects.get(self.by, f'{self.of} options')} {size}"


def judge_biases(answers: JudgeAnswers, judge: int) -> Iterator[Bias]:
    """Yield the biases of a judge that its labels can have, or why they cannot be estimated."""
    annotations, counts, answer = answers.annotations, answers.human_counts, answers.answers_of(judge)
    name, of, pairwise = str(annotations.annotators[judge]), [""], annotations.label_type == "pairwise"
    if pairwise:
        y = np.array([[1 - WINNERS.index(str(c)) / 2] for c in annotations.classes])
    elif answers.values is None:
        y, of = np.eye(annotations.n_classes), [str(c) for c in annotations.classes]
    else:
        y = answers.values[:, None]
    both = (answer >= 0) & (counts.sum(axis=1) > 0)
    d = np.where(both[:, None], y[answer] - row_shares(counts) @ y, 0.0)
    texts, family = texts_of(annotations), model_family(name)
    if pairwise:
        yield slope(name, "position", of, d[both], np.ones((both.sum(), 1)))
    elif texts is not None:
        length = np.array([len(text) for text in texts], dtype=np.float64)
        both &= length > 0
        yield slope(name, "length", of, d[both], np.vander(np.log2(length[both]), 2))
    if pairwise and family and {"left", "right"} <= set(getattr(annotations.item_table, "column_names", ())):
        sides = (annotations.item_column(side) for side in ("left", "right"))
        left, right = (np.array([float(model_family(x) == family) for x in options]) for options in sides)
        yield slope(name, "family", [family], d[both], np.vander((left - right)[both], 2))


def slope(judge: str, by: str, of: list[str], d: Array, X: Array) -> Bias:
    """Return the first coefficient of deviations (items, k) on X; of several, that with the largest t."""
    n, cells = len(d), (np.abs(d) > 1e-12).sum(axis=0)
    telling = min(cells.max(initial=0), (X[:, 0] != 0).sum())
    if n < MIN_BIAS_ITEMS or telling < MIN_CELL_ITEMS or np.linalg.matrix_rank(X) < X.shape[1]:
        needed = f"needs {MIN_BIAS_ITEMS} items with labels of humans, {MIN_CELL_ITEMS} with a difference"
        return Bias(judge, by, refused=f"{needed}; there are {n} and {telling}")
    columns = np.flatnonzero(cells >= MIN_CELL_ITEMS)
    # β = (X'X)⁻¹ X'd, of which the first row is Σ_m w_m d_m; HC3: Σ_m (w_m e_m / (1 − h_m))²
    projection = np.linalg.solve(X.T @ X, X.T)
    residuals = d[:, columns] - X @ (projection @ d[:, columns])
    leverage = np.minimum((X.T * projection).sum(axis=0), 1 - 1e-9)
    values = projection[0] @ d[:, columns]
    errors = np.sqrt((projection[0] / (1 - leverage)) ** 2 @ residuals**2)
    most = int((np.abs(values) / np.maximum(errors, 1e-12)).argmax())
    n_tests = len(columns) if d.shape[1] > 2 else 1  # the deviations of two classes are one
    value, half = float(values[most]), float(stdtrit(n - X.shape[1], 1 - 0.025 / n_tests) * errors[most])
    return Bias(judge, by, of[int(columns[most])], value, value - half, value + half)
