"""What a search found out about its cells: scores, gains over others, and whether the winner would stay."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dissensus.params import settings_words
from dissensus.selection.trials import Candidate, Outcome, Outcomes, rank


@dataclass(frozen=True)
class Cell:
    """Settings and how they scored, one score a repeat."""

    settings: Mapping[str, Any]
    scores: tuple[float, ...]
    seeds: tuple[int, ...]  # of the fits
    seconds: float  # of one fit and its score, on average

    @classmethod
    def of(cls, candidate: Candidate, outcomes: Mapping[int, Outcome]) -> Cell:
        """A candidate's outcomes in the order of the repeats."""
        ordered = [outcomes[repeat] for repeat in sorted(outcomes)]
        return cls(
            dict(candidate.settings),
            tuple(outcome.score for outcome in ordered),
            tuple(outcome.seed for outcome in ordered),
            float(np.mean([outcome.seconds for outcome in ordered])),
        )

    @property
    def repeats(self) -> int:
        """On how many splits it was tried."""
        return len(self.scores)

    @property
    def score(self) -> float:
        """The mean score."""
        return float(np.mean(self.scores))

    @property
    def error(self) -> float:
        """Standard error of the mean over the repeats; NaN where there is one."""
        return _standard_error(self.scores)

    def __str__(self) -> str:
        return settings_words(self.settings)


class Gain(NamedTuple):
    """How much better one is than another: the mean difference over the same repeats, and its error."""

    mean: float
    error: float
    repeats: int


@dataclass(frozen=True)
class Stability:
    """Would the winner be another, had other labels been hidden and other starts been drawn?

    Judged among the cells that were tried on every repeat.
    """

    wins: dict[str, int]  # cell -> on how many of the repeats it came first
    rank_correlation: float  # mean Spearman correlation between two repeats' rankings; NaN for one repeat
    tied: tuple[Cell, ...]  # cells whose gap to the winner is within its standard error, the winner first


def ranked(candidates: Iterable[Candidate], outcomes: Outcomes) -> tuple[Cell, ...]:
    """Cells from best to worst: those tried on most repeats first, then by mean score, then the smaller."""
    cells = [Cell.of(candidate, outcomes[candidate.key]) for candidate in candidates]
    return tuple(sorted(cells, key=lambda cell: (-cell.repeats, *rank(cell.score, cell.settings))))


def gain(better: Cell, other: Cell) -> Gain:
    """``better`` minus ``other`` on the repeats that both have."""
    shared = min(better.repeats, other.repeats)
    with np.errstate(invalid="ignore"):  # two scores of −∞ differ by nothing known
        differences = np.subtract(better.scores[:shared], other.scores[:shared])
    return Gain(float(differences.mean()), _standard_error(differences), shared)


def stability(cells: Sequence[Cell]) -> Stability:
    """Of the ranking, best cell first."""
    finalists = [cell for cell in cells if cell.repeats == cells[0].repeats]
    scores = np.array([cell.scores for cell in finalists])
    table = np.where(np.isnan(scores), -np.inf, scores)  # (finalists, repeats)
    firsts = [str(finalists[place]) for place in table.argmax(axis=0)]
    wins = {str(cell): firsts.count(str(cell)) for cell in finalists if str(cell) in firsts}
    tied = [cell for cell in finalists[1:] if _close(gain(finalists[0], cell))]
    return Stability(wins, _rank_correlation(table), (finalists[0], *tied))


def _close(difference: Gain) -> bool:
    return bool(difference.mean <= difference.error)


def _rank_correlation(table: Any) -> float:
    """Mean over pairs of repeats of the correlation between their ranks."""
    n_cells, n_repeats = table.shape
    if n_repeats < 2 or n_cells < 2:
        return float("nan")
    from scipy.stats import rankdata

    ranks = rankdata(table, axis=0)
    ranks -= ranks.mean(axis=0)
    norms = np.sqrt((ranks**2).sum(axis=0))
    pairs = itertools.combinations(range(n_repeats), 2)
    with np.errstate(invalid="ignore"):  # a repeat in which all cells tie has no ranking
        return float(np.mean([ranks[:, a] @ ranks[:, b] / (norms[a] * norms[b]) for a, b in pairs]))


def _standard_error(values: Iterable[float]) -> float:
    numbers = np.array(list(values))
    if len(numbers) < 2:
        return float("nan")
    with np.errstate(invalid="ignore"):
        return float(numbers.std(ddof=1) / np.sqrt(len(numbers)))
