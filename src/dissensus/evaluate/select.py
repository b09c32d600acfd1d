"""Which settings? Those whose fit best foresees what it was not shown.

:func:`select` tries every cell of a grid (K and L of the graphical model, sizes of a network, anything that
``set_params`` takes) on the same split of the labels, tries the best ones again on further splits with other
random starts, and fits the winner to all labels. It runs on all cores, and goes on where it was after a kill.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dissensus._version import __version__
from dissensus.engine import current
from dissensus.errors import ParameterError, bad_parameter
from dissensus.evaluate.criteria import Criterion, DevItems, HeldOutLabels, criterion_of, criterion_record
from dissensus.evaluate.search import (
    Candidate,
    Grid,
    Outcomes,
    Search,
    SearchData,
    Settings,
    cells_of,
    open_journal,
    rank,
)
from dissensus.evaluate.tasks import described, plain, settings_words
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import Shown
from dissensus.labels.sources import as_annotations
from dissensus.models import fits
from dissensus.params import NONE, check_rules, integer, with_settings
from dissensus.progress import ShowProgress, shown

References = Mapping[str, Sequence[Any]]

_RULES = {"repeats": integer(1), "finalists": integer(1) | NONE}
FMM_SIZES = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 30, 40)
AMOUNTS = tuple(np.geomspace(0.01, 10.0, 13).round(4).tolist())  # pseudo-labels added to every class


# ---- what a search found ------------------------------------------------------------------------------


@dataclass(frozen=True)
class CellScores:
    """Settings and how they scored, one score a repeat."""

    settings: Mapping[str, Any]
    scores: tuple[float, ...]
    seeds: tuple[int, ...]  # of the fits
    seconds: float  # of one fit and its score, on average

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
class Selection(Shown):
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
        finalists = [cell for cell in self.cells if cell.repeats == self.winner.repeats]
        table = np.array([cell.scores for cell in finalists])  # (finalists, repeats)
        table = np.where(np.isnan(table), -np.inf, table)
        firsts = [str(finalists[place]) for place in table.argmax(axis=0)]
        wins = {str(cell): firsts.count(str(cell)) for cell in finalists if str(cell) in firsts}
        gaps = [(cell, gain(self.winner, cell)) for cell in finalists[1:]]
        tied = [cell for cell, gap in gaps if gap.mean <= gap.error]
        return Stability(wins, _rank_correlation(table), (self.winner, *tied))

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
                "seeds": " ".join(map(str, cell.seeds)),
            }
            for cell in self.cells
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the fitted model, as plain values."""
        return {
            "estimator": described(self.estimator),
            "criterion": dict(self.criterion),
            "seed": self.seed,
            "winner": plain(self.params),
            "score": self.winner.score,
            "error": self.winner.error,
            "references": {
                name: {"settings": plain(cell.settings), "score": cell.score, "error": cell.error}
                for name, cell in self.references.items()
            },
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


def ranked(candidates: Iterable[Candidate], outcomes: Outcomes) -> tuple[CellScores, ...]:
    """Cells from best to worst: those tried on most repeats first; then by mean score, then the smaller."""
    cells = []
    for candidate in candidates:
        by_repeat = sorted(outcomes[candidate.key].items())
        scores, seeds = (tuple(getattr(one, name) for _, one in by_repeat) for name in ("score", "seed"))
        seconds = float(np.mean([outcome.seconds for _, outcome in by_repeat]))
        cells.append(CellScores(dict(candidate.settings), scores, seeds, seconds))
    return tuple(sorted(cells, key=lambda cell: (-cell.repeats, *rank(cell.score, cell.settings))))


def gain(better: CellScores, other: CellScores) -> Gain:
    """``better`` minus ``other`` on the repeats that both have."""
    shared = min(better.repeats, other.repeats)
    with np.errstate(invalid="ignore"):  # two scores of −∞ differ by nothing known
        differences = np.subtract(better.scores[:shared], other.scores[:shared])
    return Gain(float(differences.mean()), _standard_error(differences), shared)


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
    with np.errstate(invalid="ignore"):
        return float(numbers.std(ddof=1) / np.sqrt(len(numbers))) if len(numbers) > 1 else float("nan")


# ---- the search ---------------------------------------------------------------------------------------


def select(
    labels: Any,
    estimator: Any,
    grid: Grid,
    *,
    criterion: str | Criterion = "held-out",
    dev: Any = None,
    test_size: float = 0.2,
    repeats: int = 5,
    finalists: int | None = 10,
    references: References | None = None,
    refit: bool = True,
    directory: str | Path | None = None,
    n_jobs: int = -1,
    executor: Executor | None = None,
    progress: ShowProgress = None,
    seed: int = 0,
) -> Selection:
    """Try every cell of a grid and fit the best one to all labels.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    estimator
        Anything with ``get_params``, ``set_params``, ``fit`` and ``score``; its own settings hold wherever
        the grid says nothing. It is left as it is.
    grid
        Setting name → values to try (``{"n_item_clusters": range(3, 21)}``), or a list of such mappings.
        Cells with more clusters than fit the labels (``fits``, search.py) are not tried.
    criterion
        ``"held-out"``: log P(label | item, annotator) of hidden pairs; ``"dev"``: the same of items kept out
        of the fit, half of their labels folded in; or a function of (estimator, annotations, seed) that fits
        and gives a number, higher being better.
    dev
        Items for ``"dev"``; without them a share ``test_size`` of the items is kept out.
    test_size
        Share of the pairs that is hidden (of the items, for ``"dev"``). Repeat r hides those of
        ``labels.split_labels(test_size, seed + r)``.
    repeats, finalists
        Every cell is tried on the first split; the best ``finalists`` (None: all) on ``repeats`` splits in
        all, each with a random start of its own. The highest mean wins; of equals, the smaller cell.
    references
        Name → unfitted models, the best of which the winner is held against. Without any: FMM and smoothed
        counts, where the criterion can judge them.
    directory
        Where finished trials are kept. The same call finds them there and runs only what is missing.
    n_jobs, executor
        Number of processes (−1: one for each core), or an executor of your own; inside
        :func:`dissensus.resources` with a cluster, its workers. The result is the same for all of them.
    progress
        True or False, a function that is told (what, share done), or None: a bar on a terminal.
    refit
        Whether the winner is fitted to all labels (``Selection.model``).
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    """
    started = time.perf_counter()
    data = as_annotations(labels)
    judge = criterion_of(criterion, dev=None if dev is None else as_annotations(dev), test_size=test_size)
    if not hasattr(estimator, "set_params") or isinstance(estimator, type):
        raise bad_parameter("select", "estimator", "an object with get_params and set_params", estimator)
    check_rules("select", _RULES, repeats=repeats, finalists=finalists)
    asked = cells_of(grid)
    usual, bounds = estimator.get_params(), getattr(estimator, "_sizes_are_bounds", False)
    fitting = [cell for cell in asked if bounds or fits({**usual, **cell}, data)] or asked
    cells = [Candidate("", cell, with_settings(estimator, cell)) for cell in fitting]
    others = reference_candidates(estimator, data, judge, references)
    everyone = [*cells, *others]
    for candidate in everyone:
        if hasattr(candidate.estimator, "check_params"):
            candidate.estimator.check_params()
    if len({candidate.key for candidate in everyone}) < len(everyone):
        raise ParameterError("select: a reference stands twice in its group; give each once")
    with shown(progress) as tell:
        search = Search(SearchData(data, judge), everyone, repeats, finalists, seed, tell, n_jobs, executor)
        precision = current().precision
        # everything that has a say in the scores: a search goes on only where all of it is the same
        header = {
            "version": __version__,
            "data": data.fingerprint(),
            "estimator": described(estimator),
            "criterion": criterion_record(judge),
            "grid": [plain(one.settings) for one in cells],
            "references": [[one.group, plain(one.settings)] for one in others],
            "repeats": repeats,
            "finalists": finalists,
            "seed": seed,
        } | ({} if precision == "double" else {"precision": precision})
        with nullcontext() if directory is None else open_journal(Path(directory), header) as journal:
            outcomes = search.run(journal)
        table = ranked(cells, outcomes)
        tell(f"fitting {table[0]} to all labels", 1.0)
        model = with_settings(estimator, table[0].settings).fit(data) if refit else None
    groups = {one.group: [other for other in others if other.group == one.group] for one in others}
    best = {name: ranked(group, outcomes)[0] for name, group in groups.items()}
    seconds, record = time.perf_counter() - started, criterion_record(judge)
    return Selection(estimator, record, table, best, model, seed, seconds, len(asked) - len(cells))


def reference_candidates(
    estimator: Any, annotations: Annotations, criterion: Criterion, given: References | None
) -> list[Candidate]:
    """The references given, or those that the criterion can judge; none for a function of the user's own."""
    if given is not None:
        return [
            Candidate(name, {"model": repr(one)}, with_settings(one, {}))
            for name, several in given.items()
            for one in several
        ]
    from dissensus.models.counting import EmpiricalDistribution
    from dissensus.models.fmm import FMM

    if not isinstance(criterion, HeldOutLabels | DevItems):
        return []
    sizes: list[Settings] = [{"n_item_clusters": size} for size in FMM_SIZES]
    sizes = [one for one in sizes if fits(one, annotations)] or sizes[:1]
    amounts: list[Settings] = [{"smoothing": amount} for amount in (None, *AMOUNTS)]
    return [
        Candidate(name, settings, with_settings(model, settings))
        for name, model, grid in (("FMM", FMM(), sizes), ("counts", EmpiricalDistribution(), amounts))
        if type(model) is not type(estimator)
        for settings in grid
    ]
