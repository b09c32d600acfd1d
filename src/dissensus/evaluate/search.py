"""A search: cells of a grid, the trials that judge them, and a record of what is finished.

A trial fits one candidate under one repeat: every candidate on the first split, then the best of each group
on further splits. Repeat r hides the same labels from every candidate, so scores of one repeat can be
subtracted; its fit draws from a stream that depends on the search's seed and on the candidate's own settings,
so that neither the order of trials nor what runs them can matter.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dissensus.errors import DataError, bad_parameter, system_words
from dissensus.evaluate.criteria import Criterion, HeldOutLabels
from dissensus.evaluate.tasks import Workers, key_of, plain, settings_words, stream_seed, trial_copy, workers
from dissensus.labels.annotations import Annotations
from dissensus.progress import Clock, Progress
from dissensus.tables.atomic import atomic_path, take_lock

Settings = dict[str, Any]
Grid = Mapping[str, Any] | Sequence[Mapping[str, Any]]


# ---- cells of a grid ----------------------------------------------------------------------------------


def cells_of(grid: Grid) -> list[Settings]:
    """Every combination of a grid's values, each once, in the grid's order.

    A grid maps the name of a setting to the values to try (one value may stand alone); a list of such
    mappings is tried one after the other.
    """
    cells = []
    for part in [grid] if isinstance(grid, Mapping) else grid:
        tried = []
        for values in part.values():
            several = isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping)
            listed = values if several else [values]
            tried.append([value.item() if isinstance(value, np.generic) else value for value in listed])
        cells += [dict(zip(part, chosen, strict=True)) for chosen in itertools.product(*tried)]
    if not cells:
        raise bad_parameter("select", "grid", "a mapping of setting names to values to try", grid)
    return list({key_of(cell): cell for cell in cells}.values())


def size_of(settings: Mapping[str, Any]) -> int:
    """How big a cell is: the product of its whole numbers. Big ones are run first and lose ties."""
    wholes = [value for value in settings.values() if isinstance(value, int) and not isinstance(value, bool)]
    return math.prod(max(value, 1) for value in wholes)


# Numbers of clusters that fit the labels. A model with K clusters of items, L of annotators and P classes
# learns K L (P − 1) shares. It fits labels that have as many items as K, as many annotators as L, and a label
# for every share:
#
#     K ≤ items,   L ≤ annotators,   K L (P − 1) ≤ labels.
#
# Beyond that clusters stay empty or share what cannot be told apart, and the time they take is lost.


# ---- trials -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """Settings to try: a cell of the grid (group ""), or one of the models it is compared with."""

    group: str
    settings: Mapping[str, Any]
    estimator: Any  # has the settings; not fitted

    @cached_property
    def key(self) -> str:
        """The same text for the same candidate in every run."""
        return key_of([self.group, self.settings])

    def __str__(self) -> str:
        return f"{self.group} {settings_words(self.settings)}".strip()


@dataclass(frozen=True)
class Outcome:
    """What came of a trial."""

    seed: int  # of the fit
    score: float
    seconds: float


Outcomes = dict[str, dict[int, Outcome]]  # candidate's key -> repeat -> outcome


@dataclass
class SearchData:
    """Labels and criterion, which all trials of a search share; the last split is kept for the next trial."""

    annotations: Annotations
    criterion: Criterion
    _split: tuple[int, tuple[Annotations, Annotations]] | None = field(default=None, init=False)

    def scores(self, estimators: Sequence[Any], seed: int) -> Sequence[float]:
        """Fit and judge estimators, several only where the criterion judges them in one go."""
        judge_several: Callable[..., Sequence[float]] | None = getattr(self.criterion, "scores", None)
        if judge_several is not None:
            return judge_several(estimators, self.annotations, seed)
        if not isinstance(self.criterion, HeldOutLabels):
            return [self.criterion(estimators[0], self.annotations, seed)]
        last = self._split  # read once: threads of an executor may share this object
        if last is None or last[0] != seed:
            self._split = last = None  # so that two splits are never in memory
            self._split = last = seed, self.criterion.split(self.annotations, seed)
        return [self.criterion.judge(estimators[0], *last[1])]


@dataclass(frozen=True)
class Group:
    """Candidates that are judged in one go under one repeat."""

    candidates: Sequence[Candidate]
    repeat: int
    seed: int  # of the search


def run_group(data: SearchData, group: Group) -> list[Outcome]:
    """Fit and judge the candidates of a group."""
    seeds = [stream_seed(group.seed, one.key, group.repeat) for one in group.candidates]
    trials = zip(group.candidates, seeds, strict=True)
    estimators = [trial_copy(one.estimator, seed, one.settings) for one, seed in trials]
    started = time.perf_counter()
    scores = data.scores(estimators, group.seed + group.repeat)
    seconds = (time.perf_counter() - started) / len(seeds)
    return [Outcome(seed, float(score), seconds) for seed, score in zip(seeds, scores, strict=True)]


def rank(score: float, settings: Mapping[str, Any]) -> tuple[bool, float, int]:
    """What sorts the best first: higher scores, of equals the smaller cell, what is no number last."""
    return bool(np.isnan(score)), 0.0 if np.isnan(score) else -score, size_of(settings)


@dataclass
class Search:
    """Trials under way: what is planned, what is done, and who is told."""

    data: SearchData
    candidates: Sequence[Candidate]
    repeats: int
    finalists: int | None
    seed: int
    progress: Progress
    n_jobs: int = -1
    executor: Executor | None = None
    done: Outcomes = field(default_factory=lambda: defaultdict(dict))

    def run(self, journal: Journal | None = None) -> Outcomes:
        """Every candidate on the first split, then the best of each group on the others.

        What the journal has is not run again, and what is finished is written there.
        """
        for line in journal.lines if journal else ():
            key = key_of([line["group"], line["settings"]])
            self.done[key][line["repeat"]] = Outcome(line["seed"], line["score"], line["seconds"])
        groups: dict[str, list[Candidate]] = defaultdict(list)
        for candidate in self.candidates:
            groups[candidate.group].append(candidate)
        first = self._missing(self.candidates, range(1))
        # while it is not known who the finalists are, they are taken to be of average size
        n_final = min(len(self.candidates), len(groups) * (self.finalists or len(self.candidates)))
        expected = 2 * self._average_size * n_final * (self.repeats - 1)
        clock = Clock(self.progress, self._weight(first) + expected)
        n_tasks = len(self._groups(self.candidates))
        with workers(self.data, n_tasks, n_jobs=self.n_jobs, executor=self.executor) as pool:
            self._run(first, pool, clock, journal)
            finalists: list[Candidate] = []
            for group in groups.values():
                best = sorted(group, key=lambda one: rank(self.done[one.key][0].score, one.settings))
                finalists += best[: self.finalists]
            final = self._missing(finalists, range(1, self.repeats))
            clock.expect(self._weight(final))
            self._run(final, pool, clock, journal)
        return self.done

    def _run(self, groups: Sequence[Group], pool: Workers, clock: Clock, journal: Journal | None) -> None:
        # Big fits first: the last to finish is then a small one, and no core waits long for it.
        ordered = sorted(groups, key=lambda group: -self._weight([group]))
        for group, outcomes in pool.completed(run_group, ordered):
            for one, outcome in zip(group.candidates, outcomes, strict=True):
                known = self.done[one.key]
                if group.repeat in known:  # of a group that an earlier run finished in part
                    continue
                known[group.repeat] = outcome
                if journal is not None:
                    trial = {"group": one.group, "settings": plain(one.settings), "repeat": group.repeat}
                    journal.write({**trial, **vars(outcome), "seconds": round(outcome.seconds, 4)})
            words = f"split {group.repeat + 1} of {self.repeats}"
            if group.repeat == 0:
                n_done = sum(0 in repeats for repeats in self.done.values())
                words = f"{n_done:,} of {len(self.candidates):,} tried"
            clock.tick(self._weight([group]), f"{words}: {group.candidates[-1]}")

    def _missing(self, candidates: Sequence[Candidate], repeats: Iterable[int]) -> list[Group]:
        """Groups with a trial that is not done. A group is the same whatever was finished before a kill."""
        return [
            Group(group, repeat, self.seed)
            for group in self._groups(candidates)
            for repeat in repeats
            if not all(repeat in self.done[one.key] for one in group)
        ]

    def _groups(self, candidates: Sequence[Candidate]) -> list[list[Candidate]]:
        """One candidate each, unless the criterion judges several at a time."""
        grouped = getattr(self.data.criterion, "groups", None)
        if grouped is None:
            return [[candidate] for candidate in candidates]
        places = grouped([candidate.estimator for candidate in candidates])
        return [[candidates[place] for place in group] for group in places]

    def _weight(self, groups: Iterable[Group]) -> float:
        """Expected cost: half of an average fit's is the same for all sizes, the rest grows with the size."""
        every = [one for group in groups for one in group.candidates]
        return sum(self._average_size + size_of(one.settings) for one in every)

    @cached_property
    def _average_size(self) -> float:
        return float(np.mean([size_of(candidate.settings) for candidate in self.candidates]))


# ---- what is finished, on disk ------------------------------------------------------------------------
#
# One JSON line a trial, each on the disk before the next is begun. The first line says what the search is
# (data, estimator, grid, criterion, seeds). A search that was killed reads the lines back and runs only what
# is missing; a last line that was cut short is dropped. A search of other data or settings is refused, and so
# is a second search in the same place.

FILE = "search.jsonl"
FORMAT = "dissensus search 1"
# What is told of a difference in words of its own; of others, the names that lead there and both values.
OTHERS = {
    "data": "of other labels",
    "criterion dev": "judged by other items",
    "references": "compared with other models",
}

Line = dict[str, Any]


@dataclass
class Journal:
    """The record of one search; built by :func:`open_journal`."""

    path: Path
    file: BinaryIO
    lines: list[Line]  # what was finished when the search began

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line and put it on the disk."""
        try:
            self.file.write(_encoded(line))
            self.file.flush()
            os.fsync(self.file.fileno())
        except OSError as error:
            why = f"{self.path}: cannot be written ({system_words(error)})"
            raise DataError(f"{why}; what is there is kept: make room and run again") from error


@contextmanager
def open_journal(directory: Path, header: Mapping[str, Any]) -> Iterator[Journal]:
    """Begin a search in a directory, or go on with the one that is there if it is the same."""
    path = directory / FILE
    header = {"format": FORMAT, **header}
    if not path.exists():
        with atomic_path(path) as temporary:
            temporary.write_bytes(_encoded(header))
    with path.open("r+b") as file:
        if take_lock(file.fileno()) is False:
            raise DataError(f"{path}: another search is writing here; wait for it, or choose another")
        first, *lines = _read(file, path)
        _check_same(first, json.loads(_encoded(header)), path)
        yield Journal(path, file, lines)


def _encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _read(file: BinaryIO, path: Path) -> list[Line]:
    """Every whole line; a last one that was cut short is removed from the file."""
    content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    file.seek(len(whole))
    file.truncate()
    lines = []
    for number, text in enumerate(whole.splitlines(), start=1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict):
            raise DataError(f"{path} line {number}: is damaged; remove that line, and its trial is run again")
        lines.append(line)
    if not lines or lines[0].get("format") != FORMAT:
        raise DataError(f"{path}: is not the record of a search; choose another directory, or remove it")
    return lines


def _check_same(found: Line, expected: Line, path: Path) -> None:
    """The same search, or the first thing in which the two differ."""
    if found == expected:
        return
    what, *values = _difference("", found, expected)
    texts = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]
    was, now = (text if len(text) <= 60 else f"{text[:60]}…" for text in texts)
    told = (words for name, words in OTHERS.items() if f"{what} ".startswith(f"{name} "))
    how = next(told, f"{what} was {was}, is now {now}")
    advice = "choose another directory, or remove this file to start anew"
    raise DataError(f"{path}: belongs to another search ({how}); {advice}")


def _difference(name: str, was: Any, now: Any) -> tuple[str, Any, Any]:
    """Where two records differ: the names that lead there, and what stands there."""
    if isinstance(was, dict) and isinstance(now, dict):
        key = next(key for key in now | was if key not in was or key not in now or was[key] != now[key])
        return _difference(f"{name} {key}".strip(), was.get(key, "not set"), now.get(key, "not set"))
    if isinstance(was, list) and isinstance(now, list):
        if len(was) != len(now):
            return f"{name} (how many)", len(was), len(now)
        number = next(number for number, pair in enumerate(zip(was, now, strict=True)) if pair[0] != pair[1])
        return _difference(f"{name} {number + 1}", was[number], now[number])
    return name, was, now
