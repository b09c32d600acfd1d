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
from scipy.special import stdtr, stdtrit

from dissensus.annotators.judge_detection import model_family
from dissensus.annotators.sentences import quoted
from dissensus.judges.answers import JudgeAnswers
from dissensus.labels.features import texts_of
from dissensus.labels.kinds import WINNERS
from dissensus.numerics import Array, Mask, row_shares

MIN_BIAS_ITEMS = 30
MIN_CELL_ITEMS = 10  # items with a deviation in a class, or with one option of the family
LEVEL = 0.05


@dataclass(frozen=True)
class Bias:
    """One bias of one judge, with a 95 % interval; NaN if it is refused, with the reason."""

    judge: str
    by: str  # length, position or family
    of: str = ""  # class of nominal labels, or family
    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    n_items: int = 0
    refused: str = ""

    @property
    def shown(self) -> bool:
        """True if the interval does not contain 0."""
        return self.p < LEVEL

    def in_words(self) -> str:
        """Return the bias as text, such as ``favours the left side by 8 points (2 to 14)``."""
        if self.refused:
            return f"{self.by}: {self.refused}"
        in_points = self.by != "length" or bool(self.of)
        value, low, high = (100 * x if in_points else x for x in (self.value, self.low, self.high))
        form, unit = (".0f", " points") if in_points else (".2f", "")
        if not self.shown:
            return f"{self.by}: none shown ({value:+{form}}{unit}, {low:+{form}} to {high:+{form}})"
        if value < 0:
            low, high = -high, -low
        size = f"{abs(value):{form}}{unit} ({low:{form}} to {high:{form}})"
        if self.by != "length":
            side = "the left side" if self.by == "position" else f"options of the family {self.of}"
            return f"{'favours' if value > 0 else 'disfavours'} {side} by {size}"
        often = (
            ("more often" if value > 0 else "less often") if self.of else "higher" if value > 0 else "lower"
        )
        return f"{quoted(self.of) + ' ' if self.of else ''}{size} {often} per doubling of the text's length"


def judge_biases(answers: JudgeAnswers, judge: int) -> Iterator[Bias]:
    """Yield the biases of a judge that its labels can have, or why they cannot be estimated."""
    annotations, counts, answer = answers.annotations, answers.human_counts, answers.answers_of(judge)
    name, of = str(annotations.annotators[judge]), [""]
    if annotations.label_type == "pairwise":
        y = np.array([[1 - WINNERS.index(str(c)) / 2] for c in annotations.classes])
    elif answers.values is None:
        y, of = np.eye(annotations.n_classes), [str(c) for c in annotations.classes]
    else:
        y = answers.values[:, None]
    both = (answer >= 0) & (counts.sum(axis=1) > 0)
    d = np.where(both[:, None], y[answer] - row_shares(counts) @ y, 0.0)
    texts, columns = texts_of(annotations), getattr(annotations.item_table, "column_names", ())
    if annotations.label_type != "pairwise" and texts is not None:
        length = np.log2(np.maximum([len(text) for text in texts], 1))
        yield slope(name, "length", of, d, length, both & (length > 0))
    if annotations.label_type == "pairwise":
        yield slope(name, "position", of, d, None, both)
    if annotations.label_type == "pairwise" and {"left", "right"} <= set(columns) and model_family(name):
        family = model_family(name)
        left, right = (
            np.array([model_family(option) == family for option in annotations.item_column(side)], float)
            for side in ("left", "right")
        )
        yield slope(name, "family", [family], d, left - right, both)


def slope(judge: str, by: str, of: list[str], d: Array, z: Array | None, used: Mask) -> Bias:
    """Return the slope of deviations (items, k) on z, or their mean; of several, that with the largest t."""
    d, n = d[used], int(used.sum())
    X = np.ones((n, 1)) if z is None else np.column_stack([np.ones(n), z[used]])
    cells = (np.abs(d) > 1e-12).sum(axis=0)
    present = {"items with labels of the judge and of humans": (n, MIN_BIAS_ITEMS)}
    if by == "family":
        present[f"of these with one option of the family {of[0]}"] = int((X[:, 1] != 0).sum()), MIN_CELL_ITEMS
    present["of these where the judge differs from humans"] = int(cells.max(initial=0)), MIN_CELL_ITEMS
    for subject, (there, needed) in present.items():
        if there < needed:
            return Bias(judge, by, n_items=n, refused=f"needs {needed} {subject}; there are {there}")
    if z is not None and np.ptp(X[:, 1]) == 0:
        return Bias(judge, by, n_items=n, refused=f"the {by} is the same for all items")
    columns = np.flatnonzero(cells >= MIN_CELL_ITEMS)
    # β = (X'X)⁻¹ X'd, of which the last row is Σ_m w_m d_m; HC3: Σ_m (w_m e_m / (1 − h_m))²
    projection = np.linalg.solve(X.T @ X, X.T)
    residuals = d[:, columns] - X @ (projection @ d[:, columns])
    leverage = np.minimum((X.T * projection).sum(axis=0), 1 - 1e-9)
    values = projection[-1] @ d[:, columns]
    errors = np.sqrt((projection[-1] / (1 - leverage)) ** 2 @ residuals**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.nan_to_num(np.abs(values) / errors, nan=0.0)
    most, freedom = int(ratios.argmax()), n - X.shape[1]
    n_tests = len(columns) if d.shape[1] > 2 else 1  # the deviations of two classes are one
    p = min(1.0, n_tests * 2 * float(stdtr(freedom, -ratios[most])))
    value, half = float(values[most]), float(stdtrit(freedom, 1 - LEVEL / 2 / n_tests) * errors[most])
    return Bias(judge, by, of[int(columns[most])], value, value - half, value + half, p, n)
