"""Selection of settings by the prediction of held-out labels.

:func:`select` tries every cell of a grid (K and L of the graphical model, sizes of a network, any setting) on
the same split of the labels, tries the best cells again on further splits with other random starts, and fits
the winner to all labels. It uses all cores and resumes after a kill.
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
from dissensus.evaluate import search
from dissensus.evaluate.search import Candidate, Criterion, Grid, Outcomes, Search, SearchData, Settings
from dissensus.evaluate.tasks import describe_estimator, plain, settings_words
from dissensus.labels import as_annotations
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import TableResult
from dissensus.models import sizes_fit_labels
from dissensus.params import NONE, check_rules, integer, with_settings
from dissensus.progress import ShowProgress, shown

References = Mapping[str, Sequence[Any]]

SELECT_RULES = {"repeats": integer(1), "finalists": integer(1) | NONE}
FMM_SIZES = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 30, 40)
SMOOTHING_AMOUNTS = tuple(np.geomspace(0.01, 10.0, 13).round(4).tolist())  # pseudo-labels per class


# ---- results ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CellScores:
    """Settings and their scores, one per repeat."""

    settings: Mapping[str, Any]
    scores: tuple[float, ...]
    seeds: tuple[int, ...]  # seeds of the fits
    seconds: float  # mean time of fit and scoring

    @property
    def repeats(self) -> int:
        """Number of splits."""
        return len(self.scores)

    @property
    def score(self) -> float:
        """Mean score."""
        return float(np.mean(self.scores))

    @property
    def error(self) -> float:
        """Standard error of the mean over repeats; NaN for one repeat."""
        return _standard_error(self.scores)

    def to_dict(self) -> dict[str, Any]:
        """Return settings, score and error as plain values."""
        return {"settings": plain(self.settings), "score": self.score, "error": self.error}

    def __str__(self) -> str:
        return settings_words(self.settings)


class Gain(NamedTuple):
    """Mean difference of two cells over the same repeats, with its standard error."""

    mean: float
    error: float
    repeats: int


@dataclass(frozen=True)
class Stability:
    """Stability of the winner under other splits and random starts, among the cells tried on every repeat."""

    wins: dict[str, int]  # cell -> number of repeats in which it came first
    rank_correlation: float  # mean Spearman correlation between two repeats' rankings; NaN for one repeat
    tied: tuple[CellScores, ...]  # cells within a standard error of the winner, the winner first


@dataclass(frozen=True)
class Selection(TableResult):
    """Result of :func:`select`: scores of every cell, the winner, and its stability.

    Attributes
    ----------
    estimator
        The estimator passed to :func:`select`.
    criterion
        Name and settings of the criterion.
    cells
        Scores of every cell of the grid, best first.
    references
        The best of each group of reference models.
    model
        The winner, fitted to all labels; None with ``refit=False``.
    seed
        The seed of the search.
    seconds
        Time of this run, without earlier runs.
    n_too_large
        Number of cells skipped because they have more clusters than fit the labels.
    """

    estimator: Any
    criterion: Mapping[str, Any]
    cells: tuple[CellScores, ...]
    references: Mapping[str, CellScores]
    model: Any
    seed: int
    seconds: float
    n_too_large: int = 0

    @property
    def winner(self) -> CellScores:
        """Cell with the highest mean score."""
        return self.cells[0]

    @property
    def params(self) -> dict[str, Any]:
        """Settings of the winner."""
        return dict(self.winner.settings)

    @property
    def gains(self) -> dict[str, Gain]:
        """Gain of the winner over each reference, on the same splits."""
        return {name: gain(self.winner, cell) for name, cell in self.references.items()}

    @cached_property
    def stability(self) -> Stability:
        """Stability of the winner under other splits."""
        finalists = [cell for cell in self.cells if cell.repeats == self.winner.repeats]
        table = np.array([cell.scores for cell in finalists])  # (finalists, repeats)
        table = np.where(np.isnan(table), -np.inf, table)
        firsts = [str(finalists[index]) for index in table.argmax(axis=0)]
        wins = {str(cell): firsts.count(str(cell)) for cell in finalists if str(cell) in firsts}
        gaps = [(cell, gain(self.winner, cell)) for cell in finalists[1:]]
        tied = [cell for cell, gap in gaps if gap.mean <= gap.error]
        return Stability(wins, _rank_correlation(table), (self.winner, *tied))

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per cell, best first; ``behind`` is its gap to the winner on their common splits."""
        rows = []
        for cell in self.cells:
            scores = {"score": cell.score, "error": cell.error, "behind": gain(self.winner, cell).mean}
            seeds = " ".join(map(str, cell.seeds))
            fits = {"repeats": cell.repeats, "seconds": cell.seconds, "seeds": seeds}
            rows.append(plain(cell.settings) | scores | fits)
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the fitted model as plain values."""
        return {
            "estimator": describe_estimator(self.estimator),
            "criterion": dict(self.criterion),
            "seed": self.seed,
            "winner": plain(self.params),
            "score": self.winner.score,
            "error": self.winner.error,
            "references": {name: cell.to_dict() for name, cell in self.references.items()},
            "gains": {name: difference._asdict() for name, difference in self.gains.items()},
            "stability": vars(self.stability)
            | {"tied": [plain(cell.settings) for cell in self.stability.tied]},
            "cells": self.rows(),
            "n_too_large": self.n_too_large,
            "seconds": round(self.seconds, 3),
        }

    def __repr__(self) -> str:
        winner = f"winner: {settings_words(self.params)}, score {self.winner.score:.4f}"
        return f"Selection({len(self.cells)} cells, {winner})"


def ranked(candidates: Iterable[Candidate], outcomes: Outcomes) -> tuple[CellScores, ...]:
    """Sort cells by number of repeats, then by mean score, then by size."""
    cells = []
    for candidate in candidates:
        by_repeat = sorted(outcomes[candidate.key].items())
        scores, seeds = (tuple(getattr(run, name) for _, run in by_repeat) for name in ("score", "seed"))
        seconds = float(np.mean([run.seconds for _, run in by_repeat]))
        cells.append(CellScores(dict(candidate.settings), scores, seeds, seconds))
    return tuple(sorted(cells, key=lambda cell: (-cell.repeats, *search.rank(cell.score, cell.settings))))


def gain(better: CellScores, other: CellScores) -> Gain:
    """Return ``better`` minus ``other`` on their common repeats."""
    shared = min(better.repeats, other.repeats)
    with np.errstate(invalid="ignore"):  # the difference of two scores of −∞ is NaN
        differences = np.subtract(better.scores[:shared], other.scores[:shared])
    return Gain(float(differences.mean()), _standard_error(differences), shared)


def _rank_correlation(table: Any) -> float:
    """Return the mean rank correlation over pairs of repeats."""
    n_cells, n_repeats = table.shape
    if n_repeats < 2 or n_cells < 2:
        return float("nan")
    from scipy.stats import rankdata

    ranks = rankdata(table, axis=0)
    ranks -= ranks.mean(axis=0)
    norms = np.sqrt((ranks**2).sum(axis=0))
    pairs = itertools.combinations(range(n_repeats), 2)
    with np.errstate(invalid="ignore"):  # NaN if all cells tie
        return float(np.mean([ranks[:, a] @ ranks[:, b] / (norms[a] * norms[b]) for a, b in pairs]))


def _standard_error(values: Iterable[float]) -> float:
    numbers = np.array(list(values))
    with np.errstate(invalid="ignore"):
        return float(numbers.std(ddof=1) / np.sqrt(len(numbers))) if len(numbers) > 1 else float("nan")


# ---- search -------------------------------------------------------------------------------------------


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
        An object with ``get_params``, ``set_params``, ``fit`` and ``score``. It is not changed; settings that
        are not in the grid keep their values.
    grid
        Setting name → values to try (``{"n_item_clusters": range(3, 21)}``), or a list of such mappings.
        Cells with more clusters than fit the labels (``sizes_fit_labels``) are skipped.
    criterion
        ``"held-out"``: log P(label | item, annotator) of hidden pairs; ``"dev"``: the same for half the
        labels of items absent from the fit, given the other half; or a function of (estimator, annotations,
        seed) that fits the estimator and returns a number, higher being better.
    dev
        Items for ``"dev"``; by default a share ``test_size`` of the items.
    test_size
        Share of the pairs to hide (of the items, for ``"dev"``). Repeat r hides the pairs of
        ``labels.split_labels(test_size, seed + r)``.
    repeats, finalists
        Every cell is tried on the first split and the best ``finalists`` (None: all) on ``repeats`` splits in
        total, each with another random start. The highest mean wins, and the smaller cell wins ties.
    references
        Name → unfitted models; the winner is compared with the best of each group. None: FMM and smoothed
        counts, if the criterion can judge them.
    directory
        Directory of finished trials. The same call resumes there and runs only the missing trials.
    n_jobs, executor
        Number of processes (−1: one for each core), or an executor; inside :func:`dissensus.resources` with a
        cluster, its workers. The result is the same for all of them.
    progress
        True or False, a function called with (title, share done), or None for a bar on a terminal.
    refit
        Whether to fit the winner to all labels (``Selection.model``).
    seed
        Seed of the random numbers; the same seed gives identical results.
    """
    started = time.perf_counter()
    data = as_annotations(labels)
    judge = search.criterion_of(criterion, None if dev is None else as_annotations(dev), test_size)
    if not hasattr(estimator, "set_params") or isinstance(estimator, type):
        raise bad_parameter("select", "estimator", "an object with get_params and set_params", estimator)
    check_rules("select", SELECT_RULES, repeats=repeats, finalists=finalists)
    grid_cells = search.cells_of(grid)
    defaults, bounds = estimator.get_params(), getattr(estimator, "_sizes_are_bounds", False)
    fitting = [cell for cell in grid_cells if bounds or sizes_fit_labels({**defaults, **cell}, data)]
    cells = [Candidate("", cell, with_settings(estimator, cell)) for cell in fitting or grid_cells]
    others = reference_candidates(estimator, data, judge, references)
    candidates = [*cells, *others]
    for candidate in candidates:
        if hasattr(candidate.estimator, "check_params"):
            candidate.estimator.check_params()
    if len({candidate.key for candidate in candidates}) < len(candidates):
        raise ParameterError("select: a group of references contains the same model twice; remove one")
    with shown(progress) as report:
        shared = SearchData(data, judge)
        trials = Search(shared, candidates, repeats, finalists, seed, report, n_jobs, executor)
        precision = current().precision
        # everything that affects the scores; a search resumes only if all of it is unchanged
        header: dict[str, Any] = {"version": __version__, "data": data.fingerprint()}
        header |= {"estimator": describe_estimator(estimator), "criterion": search.criterion_record(judge)}
        header["grid"] = [plain(cell.settings) for cell in cells]
        header["references"] = [[other.group, plain(other.settings)] for other in others]
        header |= {"repeats": repeats, "finalists": finalists, "seed": seed}
        header |= {} if precision == "double" else {"precision": precision}
        with nullcontext() if directory is None else search.open_journal(Path(directory), header) as journal:
            outcomes = trials.run(journal)
        table = ranked(cells, outcomes)
        report(f"fitting {table[0]} to all labels", 1.0)
        model = with_settings(estimator, table[0].settings).fit(data) if refit else None
    names = dict.fromkeys(other.group for other in others)
    best = {name: ranked([other for other in others if other.group == name], outcomes)[0] for name in names}
    seconds, record = time.perf_counter() - started, search.criterion_record(judge)
    return Selection(estimator, record, table, best, model, seed, seconds, len(grid_cells) - len(cells))


def reference_candidates(
    estimator: Any, annotations: Annotations, criterion: Criterion, references: References | None
) -> list[Candidate]:
    """Return the references, by default FMM and counts if the criterion can judge them."""
    if references is not None:
        pairs = [(name, model) for name, models in references.items() for model in models]
        return [Candidate(name, {"model": repr(model)}, with_settings(model, {})) for name, model in pairs]
    from dissensus.models.counting import EmpiricalDistribution
    from dissensus.models.fmm import FMM

    if not isinstance(criterion, search.HeldOutLabels | search.DevItems):
        return []
    sizes: list[Settings] = [{"n_item_clusters": size} for size in FMM_SIZES]
    sizes = [size for size in sizes if sizes_fit_labels(size, annotations)] or sizes[:1]
    amounts: list[Settings] = [{"smoothing": amount} for amount in (None, *SMOOTHING_AMOUNTS)]
    return [
        Candidate(name, settings, with_settings(model, settings))
        for name, model, grid in (("FMM", FMM(), sizes), ("counts", EmpiricalDistribution(), amounts))
        if type(model) is not type(estimator)
        for settings in grid
    ]
