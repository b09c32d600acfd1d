"""What a search found: its cells' scores, gains over others, and whether the winner would stay."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dissensus.errors import require
from dissensus.evaluate.search import Candidate, Outcome, Outcomes, rank
from dissensus.params import described, plain, settings_words


@dataclass(frozen=True)
class CellScores:
    """Settings and how they scored, one score a repeat."""

    settings: Mapping[str, Any]
    scores: tuple[float, ...]
    seeds: tuple[int, ...]  # of the fits
    seconds: float  # of one fit and its score, on average
    look: int | None = None  # of a cell that was stopped: the iterations after which it was far behind

    @classmethod
    def of(cls, candidate: Candidate, outcomes: Mapping[int, Outcome]) -> CellScores:
        """A candidate's outcomes in the order of the repeats."""
        ordered = [outcomes[repeat] for repeat in sorted(outcomes)]
        return cls(
            dict(candidate.settings),
            tuple(outcome.score for outcome in ordered),
            tuple(outcome.seed for outcome in ordered),
            float(np.mean([outcome.seconds for outcome in ordered])),
            ordered[0].look,
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
    tied: tuple[CellScores, ...]  # whose gap to the winner is within its standard error, the winner first


@dataclass(frozen=True)
class Selection:
    """What a search found: every cell's scores, the winner, and the evidence for it.

    Attributes
    ----------
    estimator
        The estimator as it was given.
    criterion
        Name and settings of the criterion.
    cells
        Scores of every cell of the grid, best first.
    references
        The best of FMM, of smoothed counts, and so on.
    model
        The winner, fitted to all labels; None if it was not asked for.
    seed
        The seed of the search.
    seconds
        Seconds of this run; what an earlier one had finished is not in it.
    n_too_large
        Cells of the grid that were not tried, as they have more clusters than fit the labels.
    """

    estimator: Any  # as it was given
    criterion: Mapping[str, Any]  # its name and settings
    cells: tuple[CellScores, ...]  # best first
    references: Mapping[str, CellScores]  # the best of FMM, of smoothed counts, ...
    model: Any  # the winner, fitted to all labels (None if it was not asked for)
    seed: int
    seconds: float  # of this run; what an earlier one had finished is not in it
    n_too_large: int = 0  # cells with more clusters than fit the labels: not tried

    @property
    def winner(self) -> CellScores:
        """The cell with the highest mean score."""
        return self.cells[0]

    @property
    def params(self) -> dict[str, Any]:
        """The winner's settings."""
        return dict(self.winner.settings)

    @property
    def gains(self) -> dict[str, Gain]:
        """How much better the winner is than each reference, on the same splits."""
        return {name: gain(self.winner, cell) for name, cell in self.references.items()}

    @cached_property
    def stability(self) -> Stability:
        """Whether another cell would have won, had other labels been hidden."""
        return stability(self.cells)

    def rows(self) -> list[dict[str, Any]]:
        """One row per cell, best first; ``behind`` is its gap to the winner on the splits that both have."""
        return [
            {
                **plain(cell.settings),
                "score": cell.score,
                "error": cell.error,
                "behind": gain(self.winner, cell).mean,
                "repeats": cell.repeats,
                "seconds": cell.seconds,
                "whole": cell.look is None,
                "seeds": " ".join(map(str, cell.seeds)),
            }
            for cell in self.cells
        ]

    def to_frame(self) -> Any:
        """The table of cells as a pandas data frame."""
        return require("pandas", "pandas").DataFrame(self.rows())

    def to_dict(self) -> dict[str, Any]:
        """Everything but the fitted model, as plain values."""
        return {
            "estimator": described(self.estimator),
            "criterion": dict(self.criterion),
            "seed": self.seed,
            "winner": plain(self.params),
            "score": self.winner.score,
            "error": self.winner.error,
            "references": {name: _reference(cell) for name, cell in self.references.items()},
            "gains": {name: found._asdict() for name, found in self.gains.items()},
            "stability": {
                "wins": self.stability.wins,
                "rank_correlation": self.stability.rank_correlation,
                "tied": [plain(cell.settings) for cell in self.stability.tied],
            },
            "cells": self.rows(),
            "n_too_large": self.n_too_large,
            "seconds": round(self.seconds, 3),
        }

    def __repr__(self) -> str:
        found = f"winner: {settings_words(self.params)}, score {self.winner.score:.4f}"
        return f"Selection({len(self.cells)} cells, {found})"


def _reference(cell: CellScores) -> dict[str, Any]:
    return {"settings": plain(cell.settings), "score": cell.score, "error": cell.error}


def ranked(candidates: Iterable[Candidate], outcomes: Outcomes) -> tuple[CellScores, ...]:
    """Cells from best to worst: those tried on most repeats first, and those fitted to the end; then by mean
    score, then the smaller."""
    cells = [CellScores.of(candidate, outcomes[candidate.key]) for candidate in candidates]
    return tuple(
        sorted(
            cells,
            key=lambda cell: (-cell.repeats, cell.look is not None, *rank(cell.score, cell.settings)),
        )
    )


def gain(better: CellScores, other: CellScores) -> Gain:
    """``better`` minus ``other`` on the repeats that both have."""
    shared = min(better.repeats, other.repeats)
    with np.errstate(invalid="ignore"):  # two scores of −∞ differ by nothing known
        differences = np.subtract(better.scores[:shared], other.scores[:shared])
    return Gain(float(differences.mean()), _standard_error(differences), shared)


def stability(cells: Sequence[CellScores]) -> Stability:
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
