"""Bias of a judge by the length of the text, by position and for options of its own family.

Every bias is the coefficient β of z when the judge's answer is regressed on that of the humans,

    y(x_m) = z_m' β + λ s_m + noise,   s_m = Σ_p s_mp y(p)

with x_m the judge's answer and s_mp the share of the item's humans who answer p. y is the value of an ordered
class or a number (less their mean), the indicator of every nominal class or, for comparisons, ½, 0 (a tie)
and −½ for a win of the left side. A human in the judge's place has β = 0 and λ = 1, whatever the items are
like. A judge that is only less reliable (the truth, or a human's answer, replaced at random in a share of the
items) has β = 0 and λ < 1: what is true of long texts, of left sides or of good options, λ s explains. z is

* for the length, log₂ of the number of characters of the text (of its column ``output``, as logs of
  evaluations have it) and 1: the bias is that per doubling;
* for the position, 1: by how much the judge favours the left side where humans favour neither;
* for the family, [left option is of the judge's family] − [right option is] and 1.

s_m is the mean of few humans, and its error would draw λ to 0 and leave a part of s to z. The normal
equations therefore have, in the place of s_m², the mean of y y' over the pairs of different humans of the
item, whose errors are independent; with two humans, this is to use each as the instrument of the other. Items
with one human are left out. Where humans hardly differ between items (by less than 3.2 standard errors, the
usual F ≥ 10), λ is not known and the bias refused. Intervals are those of a jackknife over items. For nominal
classes, the bias with the largest t is reported, with an interval that holds for all of them (Bonferroni).

What the answers of humans do not show stays confounded: if some items are hard for humans and not for the
judge, λ is not the same on all items, and z may stand for the difference.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from dissensus.annotators.judge_detection import model_family
from dissensus.annotators.sentences import quoted
from dissensus.errors import setting
from dissensus.judges.answers import JudgeAnswers
from dissensus.labels.features import texts_of
from dissensus.labels.kinds import WINNERS
from dissensus.numerics import Array, row_shares

WORD = re.compile(r"[^\W\d_]{2}")  # two letters
MIN_BIAS_ITEMS = 30
MIN_CELL_ITEMS = 10  # items with a deviation in a class, or without the most frequent z
MIN_SIGNAL = 3.2  # standard errors by which humans differ between items: λ must be known


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
        y = np.array([[0.5 - WINNERS.index(str(c)) / 2] for c in annotations.classes])
    elif answers.values is None:
        # of two classes, the second one says it all
        first = int(annotations.n_classes == 2)
        y, of = np.eye(annotations.n_classes)[:, first:], [str(c) for c in annotations.classes[first:]]
    else:
        y = answers.values[:, None] - answers.values.mean()
    n = counts.sum(axis=1)
    both = (answer >= 0) & (n >= 2)
    # mean of y y' over pairs of different humans: ((Σ y)² − Σ y²) / n (n − 1)
    pairs = ((counts @ y) ** 2 - counts @ y**2) / np.maximum(n * (n - 1), 1)[:, None]
    columns = np.stack([y[answer], row_shares(counts) @ y, pairs])
    names, family = set(getattr(annotations.item_table, "column_names", ())), model_family(name)
    texts = texts_of(annotations, "output")
    if not any(map(WORD.search, texts or [])):  # a column of that name may have numbers
        texts = texts_of(annotations)
    if pairwise:
        yield slope(name, "position", of, columns[:, both], np.ones((both.sum(), 1)))
    elif texts is None:
        yield Bias(name, "length", refused="needs items with texts")
    else:
        length = np.array([len(text) for text in texts], dtype=np.float64)
        both &= length > 0
        yield slope(name, "length", of, columns[:, both], np.vander(np.log2(length[both]), 2))
    if not pairwise and {"left", "right"} <= set(map(str, annotations.classes)):
        yield Bias(name, "position", refused=f"needs {setting('label_type', 'pairwise')}")
    elif pairwise and family and not {"left", "right"} <= names:
        yield Bias(name, "family", refused="needs columns left and right with the models compared")
    elif pairwise and family:
        sides = (annotations.item_column(side) for side in ("left", "right"))
        left, right = (np.array([float(model_family(x) == family) for x in options]) for options in sides)
        yield slope(name, "family", [family], columns[:, both], np.vander((left - right)[both], 2))


def slope(judge: str, by: str, of: list[str], columns: Array, Z: Array) -> Bias:
    """Return the coefficient of the first column of Z; of several answers, that with the largest t.

    ``columns`` (3, items, k) are the judge's answers y, means over humans s, and means over pairs of humans.
    """
    (y, s, pairs), n = columns, len(Z)
    cells = (np.abs(y - s) > 1e-12).sum(axis=0)
    varying = n - np.unique(Z[:, 0], return_counts=True)[1].max(initial=0) if Z.shape[1] > 1 else n
    telling = min(cells.max(initial=0), varying)
    if n < MIN_BIAS_ITEMS or telling < MIN_CELL_ITEMS:
        needed = f"needs {MIN_BIAS_ITEMS} items with labels of two humans, {MIN_CELL_ITEMS} with a difference"
        return Bias(judge, by, refused=f"{needed}; there are {n} and {telling}")
    # variance of humans between items, given z: mean of r² + (y y' − s²), with r = s − Z (Z'Z)⁻¹ Z's
    signal = (s - Z @ np.linalg.lstsq(Z, s, rcond=None)[0]) ** 2 + pairs - s**2
    agreed = signal.mean(axis=0) > MIN_SIGNAL * signal.std(axis=0) / math.sqrt(n)
    tested = np.flatnonzero((cells >= MIN_CELL_ITEMS) & agreed).tolist()
    if not tested:
        return Bias(judge, by, refused="humans agree too little to tell a bias from noise")
    fits = [(*first_coefficient(Z, *columns[:, :, c]), c) for c in tested]
    value, error, most = max(fits, key=lambda fit: abs(fit[0]) / max(fit[1], 1e-12))
    half = float(stdtrit(n - Z.shape[1] - 1, 1 - 0.025 / len(tested))) * error
    return Bias(judge, by, of[most], value, value - half, value + half)


def first_coefficient(Z: Array, y: Array, s: Array, pairs: Array) -> tuple[float, float]:
    """Return the first coefficient of the regression of y on Z and s, and its jackknife error."""
    # (Σ_m A_m)⁻¹ Σ_m b_m with A_m = x_m x_m', where x = (z, s) and y y' stands for s², and b_m = x_m y_m
    X = np.column_stack([Z, s])
    A, b = X[:, :, None] * X[:, None, :], X * y[:, None]
    A[:, -1, -1] = pairs
    without = np.linalg.solve(A.sum(axis=0) - A, (b.sum(axis=0) - b)[:, :, None])[:, 0, 0]
    value = float(np.linalg.solve(A.sum(axis=0), b.sum(axis=0))[0])
    return value, math.sqrt((len(y) - 1) * without.var())
