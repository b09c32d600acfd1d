"""Which settings? Those whose fit best foresees what it was not shown.

:func:`select` tries every cell of a grid (K and L of the graphical model, sizes of a network, anything that
``set_params`` takes) on the same split of the labels, tries the best ones again on further splits with other
random starts, and fits the winner to all labels. It runs on all cores, and goes on where it was after a kill.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from dissensus._version import __version__
from dissensus.errors import ParameterError, bad_parameter
from dissensus.evaluate.criteria import (
    Criterion,
    DevItems,
    HeldOutLabels,
    InformationCriterion,
    criterion_of,
    criterion_record,
)
from dissensus.evaluate.race import RULE
from dissensus.evaluate.search import (
    Candidate,
    Grid,
    Outcomes,
    Search,
    SearchData,
    Settings,
    cells_of,
    open_journal,
)
from dissensus.evaluate.selection import CellScores, Selection, ranked
from dissensus.evaluate.sizes import fits, fitting_cells
from dissensus.execution.resources import current
from dissensus.labels.annotations import Annotations
from dissensus.labels.sources import as_annotations
from dissensus.params import described, plain, with_settings
from dissensus.progress import ShowProgress, shown

References = Mapping[str, Sequence[Any]]

FMM_SIZES = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 30, 40)
AMOUNTS = tuple(np.geomspace(0.01, 10.0, 13).round(4).tolist())  # pseudo-labels added to every class


def select(
    estimator: Any,
    annotations: Any,
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
    estimator
        Anything with ``get_params``, ``set_params``, ``fit`` and ``score``; its own settings hold wherever
        the grid says nothing. It is left as it is.
    grid
        Setting name → values to try (``{"n_item_clusters": range(3, 21)}``), or a list of such mappings.
        Cells with more clusters than fit the labels (``sizes.py``) are not tried.
    criterion
        ``"held-out"``: log P(label | item, annotator) of hidden pairs (``"held-out-items"``: given the item
        alone); ``"dev"``: the same of items kept out of the fit, half of their labels folded in
        (``"dev-items"``); ``"bic"``, ``"icl"``, ``"evidence"``: see `criteria.py`; or a function of
        (estimator, annotations, seed) that fits and gives a number, higher being better.
    dev
        Items for ``"dev"``; without them a share ``test_size`` of the items is kept out.
    test_size
        Share of the pairs that is hidden (of the items, for ``"dev"``). Repeat r hides those of
        ``annotations.split_labels(test_size, seed + r)``.
    repeats, finalists
        Every cell is tried on the first split; the best ``finalists`` (None: all) on ``repeats`` splits in
        all, each with a random start of its own. The highest mean wins; of equals, the smaller cell. Cells
        of a large grid that are far behind are not fitted to the end (`race.py`), unless all are finalists.
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
    annotations
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    refit
        Whether the winner is fitted to all labels (``Selection.model``).
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    """
    started = time.perf_counter()
    data = as_annotations(annotations)
    judge = criterion_of(criterion, dev=None if dev is None else as_annotations(dev), test_size=test_size)
    _check(estimator, repeats, finalists)
    asked = cells_of(grid)
    cells = [
        Candidate("", cell, with_settings(estimator, cell)) for cell in fitting_cells(estimator, asked, data)
    ]
    others = reference_candidates(estimator, data, judge, references)
    _check_settings([*cells, *others], judge)
    with shown(progress) as tell:
        shared, everyone = SearchData(data, judge), [*cells, *others]
        search = Search(shared, everyone, repeats, finalists, seed, tell, _forget, n_jobs, executor)
        header = _header(estimator, data, judge, search)
        with _kept(search, None if directory is None else Path(directory), header):
            outcomes = search.run()
        table = ranked(cells, outcomes)
        tell(f"fitting {table[0]} to all labels", 1.0)
        model = with_settings(estimator, table[0].settings).fit(data) if refit else None
    return Selection(
        estimator,
        criterion_record(judge),
        table,
        _best_of_each(others, outcomes),
        model,
        seed,
        time.perf_counter() - started,
        len(asked) - len(cells),
    )


def _check(estimator: Any, repeats: int, finalists: int | None) -> None:
    if not hasattr(estimator, "set_params") or isinstance(estimator, type):
        raise bad_parameter("select", "estimator", "an object with get_params and set_params", estimator)
    if repeats < 1:
        raise bad_parameter("select", "repeats", "an int >= 1", repeats)
    if finalists is not None and finalists < 1:
        raise bad_parameter("select", "finalists", "an int >= 1 or None", finalists)


def _check_settings(candidates: Sequence[Candidate], criterion: Criterion) -> None:
    """Refuse a setting outside its rule, and what cannot be judged, before any work is done."""
    for candidate in candidates:
        if hasattr(candidate.estimator, "check_params"):
            candidate.estimator.check_params()
        if isinstance(criterion, InformationCriterion):
            criterion.check(candidate.estimator)
    keys = [candidate.key for candidate in candidates]
    if len(set(keys)) != len(keys):
        raise ParameterError("select: a reference stands twice in its group; give each once")


def _header(estimator: Any, data: Annotations, criterion: Criterion, search: Search) -> dict[str, Any]:
    """Everything that has a say in the scores: a search goes on only where all of it is the same."""
    precision = current().precision
    return {
        "version": __version__,
        "data": data.fingerprint(),
        "estimator": described(estimator),
        "criterion": criterion_record(criterion),
        "grid": [plain(one.settings) for one in search.candidates if not one.group],
        "references": [[one.group, plain(one.settings)] for one in search.candidates if one.group],
        "repeats": search.repeats,
        "finalists": search.finalists,
        "stopping": plain(RULE),
        "seed": search.seed,
        **({} if precision == "double" else {"precision": precision}),
    }


@contextmanager
def _kept(search: Search, directory: Path | None, header: Mapping[str, Any]) -> Iterator[None]:
    """Where a directory is given, take up what is finished there and write down what will be."""
    if directory is None:
        yield
        return
    with open_journal(directory, header) as journal:
        search.resume(journal.lines)
        search.record = journal.write
        yield


def _forget(line: Mapping[str, Any]) -> None:
    """No directory: nothing is written down."""


def _best_of_each(others: Sequence[Candidate], outcomes: Outcomes) -> dict[str, CellScores]:
    groups = dict.fromkeys(candidate.group for candidate in others)
    return {
        name: ranked([candidate for candidate in others if candidate.group == name], outcomes)[0]
        for name in groups
    }


# ---- what a winner is held against --------------------------------------------------------------------


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
    wanted = _comparable(criterion)
    tables = {"FMM": _mixtures(annotations), "counts": _counts()}
    return [
        Candidate(name, settings, with_settings(model, settings))
        for name, (model, grid) in tables.items()
        if name in wanted and type(model) is not type(estimator)
        for settings in grid
    ]


def _comparable(criterion: Criterion) -> tuple[str, ...]:
    if isinstance(criterion, HeldOutLabels | DevItems):
        return ("FMM", "counts")
    if isinstance(criterion, InformationCriterion) and criterion.name != "evidence":
        return ("FMM",)
    return ()


def _mixtures(annotations: Annotations) -> tuple[Any, list[Settings]]:
    from dissensus.models.fmm import FMM

    sizes = [{"n_item_clusters": size} for size in FMM_SIZES]
    return FMM(), [one for one in sizes if fits(one, annotations)] or sizes[:1]


def _counts() -> tuple[Any, list[Settings]]:
    from dissensus.models.empirical import EmpiricalDistribution

    return EmpiricalDistribution(), [{"smoothing": amount} for amount in (None, *AMOUNTS)]
