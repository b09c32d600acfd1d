"""Which items and annotators something must be done about, by a fitted model and the labels beside it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dissensus.annotators import sentences
from dissensus.annotators.verdicts import AnnotatorVerdicts, annotator_verdicts
from dissensus.evaluate.sides import Standing, Votes, most_frequent, standing
from dissensus.labels.annotations import Annotations
from dissensus.models.base import Model
from dissensus.models.results import Intervals
from dissensus.models.hpgm.model import HPGM
from dissensus.numerics import Array, row_shares

CLEAR = 2 / 3  # share of the answers that makes one clear
UNSURE = 0.9  # probability of the label below which another label helps
FAR, FEWEST = 0.1, 20  # below the usual agreement, and shared items, for somebody whom no model judged
PROBLEMS, UNJUDGED = ("spam", "systematic error"), "too few labels"
# flags of an item, added up; assets/items.js has the same
CLEAR_RAW, CLEAR_MODEL, ADJUDICATE, MORE, OVERTURNED, WRONG = 1, 2, 4, 8, 16, 32


@dataclass(frozen=True)
class Findings:
    """Which items and annotators something must be done about."""

    model: Model
    annotations: Annotations
    known: Intervals | None
    judged: AnnotatorVerdicts | None
    votes: Votes | None
    standing: Standing | None

    @cached_property
    def raw(self) -> Array:
        """(items, classes): shares of the labels given."""
        return row_shares(self.annotations.counts)

    @cached_property
    def clear(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(items,) each: at least two in three gave one answer, or would, as the model has it."""
        modelled = self.model.label_distributions_.max(axis=1)
        return self.raw.max(axis=1) >= CLEAR - 1e-9, modelled >= CLEAR - 1e-9

    @cached_property
    def adjudicate(self) -> NDArray[np.bool_]:
        """(items,): nearly a draw, and not settled by the model."""
        close = sentences.close_items(self.annotations.counts)
        return close if self.known is None else close & (self.known.sure < UNSURE)

    @cached_property
    def more(self) -> NDArray[np.bool_]:
        """(items,): a further label would help; without intervals, items with far fewer than usual."""
        n = self.annotations.counts.sum(axis=1)
        if self.known is None:
            return np.asarray(n < max(2.0, float(np.median(n)) / 2))
        return np.asarray((self.known.sure < UNSURE) & ~self.adjudicate)

    @cached_property
    def overturned(self) -> NDArray[np.bool_]:
        """(items,): the single most frequent label is not the model's."""
        most = most_frequent(self.annotations.counts)
        return np.asarray((most >= 0) & (most != self.model.label_distributions_.argmax(axis=1)))

    @cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """(items,): the model's label is not the gold one."""
        gold = self.annotations.gold
        if gold is None:
            return np.zeros(self.annotations.n_items, dtype=bool)
        given = self.model.label_distributions_.argmax(axis=1)
        return np.asarray((gold >= 0) & (gold != given) & (self.annotations.counts.sum(axis=1) > 0))

    @cached_property
    def flags(self) -> NDArray[np.int64]:
        """(items,): all of it, added up."""
        sets = (*self.clear, self.adjudicate, self.more, self.overturned, self.wrong)
        names = (CLEAR_RAW, CLEAR_MODEL, ADJUDICATE, MORE, OVERTURNED, WRONG)
        parts = [flag * some.astype(np.int64) for flag, some in zip(names, sets, strict=True)]
        return np.asarray(np.sum(parts, axis=0))

    @cached_property
    def check(self) -> NDArray[np.bool_]:
        """(annotators,): judged as spam or in error; or not judged, and surely far below usual agreement."""
        if self.standing is None:
            return np.zeros(self.annotations.n_annotators, dtype=bool)
        if self.judged is None:
            return self._far_below
        verdict = self.judged.verdict.astype(str)
        return np.asarray(np.isin(verdict, PROBLEMS) | (self._far_below & (verdict == UNJUDGED)))

    @cached_property
    def _far_below(self) -> NDArray[np.bool_]:
        assert self.standing is not None
        found = self.standing
        usual = np.nanmedian(found.agreement) if np.isfinite(found.agreement).any() else np.nan
        low = found.agreement + 1.96 * found.error < usual - FAR
        return np.asarray(low & (found.n >= FEWEST))

    def narrowing(self) -> tuple[Array, Array] | None:
        """(items,) each: width of the interval of the label's share now, and after one more label."""
        if self.known is None:
            return None
        label = self.model.label_distributions_.argmax(axis=1)[:, None]
        width = np.take_along_axis(self.known.high - self.known.low, label, axis=1)[:, 0]
        # the variance of a Dirichlet worth v labels is as 1 / (v + 1)
        return width, width * np.sqrt((self.known.worth + 1) / (self.known.worth + 2))


def findings(model: Model, annotations: Annotations, judged: AnnotatorVerdicts | None = None) -> Findings:
    """What must be done; verdicts on annotators where the model has draws that know them.

    ``judged`` are the verdicts where they are known already.
    """
    known = model.intervals()
    if annotations.anonymous:
        return Findings(model, annotations, known, None, None, None)
    if judged is None and isinstance(model, HPGM):
        judged = annotator_verdicts(annotations, model)
    votes = Votes.of(annotations)
    return Findings(model, annotations, known, judged, votes, standing(votes))
