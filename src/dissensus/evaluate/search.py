"""Grid search: criteria, cells of a grid, their trials, and a journal of finished trials.

A trial fits one candidate under one repeat: every candidate on the first split, then the best of each group
on further splits. Repeat r hides the same labels from every candidate, so the scores of a repeat are paired.
The seed of a fit depends only on the seed of the search and the candidate's settings, so the result does not
depend on the order of trials or on the machine that runs them.
"""

from __future__ import annotations

import dataclasses
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
from dissensus.evaluate.tasks import Workers, key_of, plain, settings_words, stream_seed, trial_copy, workers
from dissensus.labels.annotations import Annotations
from dissensus.labels.rows import pair_items, pairs_per_item, random_ranks, take_pairs
from dissensus.progress import Clock, Progress
from dissensus.tables.atomic import atomic_path, take_lock

Settings = dict[str, Any]
Grid = Mapping[str, Any] | Sequence[Mapping[str, Any]]
# A criterion fits an estimator and returns a number, higher being better. Its seed determines the split:
# trials with the same seed hide the same labels, so their scores can be subtracted. A criterion that judges
# several estimators at once also has the methods ``groups(estimators)`` (lists of indices to judge together)
# and ``scores(estimators, annotations, seed)``.
Criterion = Callable[[Any, Annotations, int], float]


@dataclass(frozen=True)
class HeldOutLabels:
    """Mean log P(label | item, annotator) of hidden labels, in nats.

    A share ``test_size`` of the (item, annotator) pairs is hidden with all their labels, as by
    ``annotations.split_labels(test_size, seed)``.
    """

    test_size: float = 0.2

    def __call__(self, estimator: Any, annotations: Annotations, seed: int) -> float:
        """Fit to the remaining labels and score the hidden ones."""
        return self.judge(estimator, *self.split(annotations, seed))

    def split(self, annotations: Annotations, seed: int) -> tuple[Annotations, Annotations]:
        """Split labels into training and hidden ones; a search splits once for many estimators."""
        train, hidden = annotations.split_labels(self.test_size, seed)
        if not (train.n_labels and hidden.n_labels):
            raise DataError(f"{annotations.n_pairs} pairs are too few to hide {self.test_size:.0%} of them")
        return train, hidden

    def judge(self, estimator: Any, train: Annotations, hidden: Annotations) -> float:
        """Fit to the training labels and score the hidden ones."""
        return float(estimator.fit(train).score(hidden))


@dataclass(frozen=True)
class DevItems:
    """Mean log P(label | item, annotator) of half the pairs of items absent from the fit, in nats.

    The other half of a dev item's pairs is passed to ``apply``; it is the larger half of an odd number.
    Without ``dev``, a random share ``test_size`` of all items is excluded from the fit.
    """

    dev: Annotations | None = None
    test_size: float = 0.2

    def __call__(self, estimator: Any, annotations: Annotations, seed: int) -> float:
        """Fit to the training items, apply to half of each dev item, and score the other half."""
        train, dev = annotations, self.dev
        if dev is None:
            parts = annotations.split_items({"dev": self.test_size, "train": 1 - self.test_size}, seed=seed)
            train, dev = parts["train"], parts["dev"]
        applied, hidden = split_halves(dev, seed)
        if not (train.n_labels and hidden.n_labels):
            raise DataError("no dev item has two annotators; pass other items, or use criterion='held-out'")
        return float(estimator.fit(train).apply(applied).score(hidden))


def split_halves(annotations: Annotations, seed: int) -> tuple[Annotations, Annotations]:
    """Split the pairs of every item at random into halves; the first gets the larger half."""
    ranks = random_ranks(annotations, np.random.default_rng(seed))
    # rank < n / 2, in integers
    first = 2 * ranks < pairs_per_item(annotations)[pair_items(annotations)]
    return take_pairs(annotations, first), take_pairs(annotations, ~first)


def criterion_of(criterion: str | Criterion, dev: Annotations | None, test_size: float) -> Criterion:
    """Return the criterion of that name, or the function itself."""
    if callable(criterion):
        return criterion
    if not 0 < test_size < 1:
        raise bad_parameter("select", "test_size", "a float > 0 and < 1", test_size)
    if criterion == "held-out":
        return HeldOutLabels(test_size)
    if criterion == "dev":
        return DevItems(dev, test_size)
    raise bad_parameter("select", "criterion", "a function, 'held-out' or 'dev'", criterion)


def criterion_record(criterion: Criterion) -> dict[str, Any]:
    """Describe a criterion for the journal: name and settings, with data as fingerprints."""
    if not dataclasses.is_dataclass(criterion) or isinstance(criterion, type):
        return {"name": getattr(criterion, "__qualname__", type(criterion).__qualname__)}
    record = {"name": type(criterion).__name__}
    for setting in dataclasses.fields(criterion):
        value = getattr(criterion, setting.name)
        record[setting.name] = value.fingerprint() if isinstance(value, Annotations) else plain(value)
    return record


# ---- cells of a grid ----------------------------------------------------------------------------------


def cells_of(grid: Grid) -> list[Settings]:
    """Return every combination of a grid's values once, in the order of the grid.

    A grid maps the name of a setting to a value or several values; a list of such mappings is concatenated.
    """
    cells = []
    for part in [grid] if isinstance(grid, Mapping) else grid:
        choices = []
        for values in part.values():
            several = isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping)
            listed = values if several else [values]
            choices.append([value.item() if isinstance(value, np.generic) else value for value in listed])
        cells += [dict(zip(part, values, strict=True)) for values in itertools.product(*choices)]
    if not cells:
        raise bad_parameter("select", "grid", "a mapping of setting names to values to try", grid)
    return list({key_of(cell): cell for cell in cells}.values())


def size_of(settings: Mapping[str, Any]) -> int:
    """Return the size of a cell, the product of its integers. Large cells run first and lose ties."""
    integers = [n for n in settings.values() if isinstance(n, int) and not isinstance(n, bool)]
    return math.prod(max(n, 1) for n in integers)


# ---- trials -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """Settings to try: a cell of the grid (group ""), or a reference model."""

    group: str
    settings: Mapping[str, Any]
    estimator: Any  # an unfitted estimator with these settings

    @cached_property
    def key(self) -> str:
        """Text that identifies the candidate in every run."""
        return key_of([self.group, self.settings])

    def __str__(self) -> str:
        return f"{self.group} {settings_words(self.settings)}".strip()


@dataclass(frozen=True)
class Outcome:
    """Result of a trial."""

    seed: int  # seed of the fit
    score: float
    seconds: float


Outcomes = dict[str, dict[int, Outcome]]  # key of a candidate -> repeat -> outcome


@dataclass
class SearchData:
    """Labels and criterion of a search; the last split is cached for the next trial."""

    annotations: Annotations
    criterion: Criterion
    _split: tuple[int, tuple[Annotations, Annotations]] | None = field(default=None, init=False)

    def scores(self, estimators: Sequence[Any], seed: int) -> Sequence[float]:
        """Fit and judge estimators; there are several only if the criterion judges them together."""
        judge_several: Callable[..., Sequence[float]] | None = getattr(self.criterion, "scores", None)
        if judge_several is not None:
            return judge_several(estimators, self.annotations, seed)
        if not isinstance(self.criterion, HeldOutLabels):
            return [self.criterion(estimators[0], self.annotations, seed)]
        last = self._split  # read once: threads may share this object
        if last is None or last[0] != seed:
            self._split = last = None  # never two splits in memory
            self._split = last = seed, self.criterion.split(self.annotations, seed)
        return [self.criterion.judge(estimators[0], *last[1])]


@dataclass(frozen=True)
class Group:
    """Candidates that are judged together under one repeat."""

    candidates: Sequence[Candidate]
    repeat: int
    seed: int  # seed of the search


def run_group(data: SearchData, group: Group) -> list[Outcome]:
    """Fit and judge the candidates of a group."""
    seeds = [stream_seed(group.seed, candidate.key, group.repeat) for candidate in group.candidates]
    trials = zip(group.candidates, seeds, strict=True)
    estimators = [trial_copy(candidate.estimator, seed, candidate.settings) for candidate, seed in trials]
    started = time.perf_counter()
    scores = data.scores(estimators, group.seed + group.repeat)
    seconds = (time.perf_counter() - started) / len(seeds)
    return [Outcome(seed, float(score), seconds) for seed, score in zip(seeds, scores, strict=True)]


def rank(score: float, settings: Mapping[str, Any]) -> tuple[bool, float, int]:
    """Return a key that sorts the best cell first: by score, then by size, with NaN last."""
    return bool(np.isnan(score)), 0.0 if np.isnan(score) else -score, size_of(settings)


@dataclass
class Search:
    """A search in progress: candidates, settings, and outcomes so far."""

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
        """Run every candidate on the first split, then the best of each group on the others.

        Trials in the journal are not repeated, and finished trials are written to it.
        """
        for line in journal.lines if journal else ():
            key = key_of([line["group"], line["settings"]])
            self.done[key][line["repeat"]] = Outcome(line["seed"], line["score"], line["seconds"])
        groups: dict[str, list[Candidate]] = defaultdict(list)
        for candidate in self.candidates:
            groups[candidate.group].append(candidate)
        first = self._missing(self.candidates, range(1))
        # the finalists are unknown so far and assumed to be of average size
        n_final = min(len(self.candidates), len(groups) * (self.finalists or len(self.candidates)))
        expected = 2 * self._average_size * n_final * (self.repeats - 1)
        clock = Clock(self.progress, self._weight(first) + expected)
        n_tasks = len(self._groups(self.candidates))
        with workers(self.data, n_tasks, n_jobs=self.n_jobs, executor=self.executor) as pool:
            self._run(first, pool, clock, journal)
            finalists: list[Candidate] = []
            for group in groups.values():
                best = sorted(group, key=lambda cell: rank(self.done[cell.key][0].score, cell.settings))
                finalists += best[: self.finalists]
            final = self._missing(finalists, range(1, self.repeats))
            clock.expect(self._weight(final))
            self._run(final, pool, clock, journal)
        return self.done

    def _run(self, groups: Sequence[Group], pool: Workers, clock: Clock, journal: Journal | None) -> None:
        # large fits first, so that no core waits long for the last one
        ordered = sorted(groups, key=lambda group: -self._weight([group]))
        for group, outcomes in pool.completed(run_group, ordered):
            for candidate, outcome in zip(group.candidates, outcomes, strict=True):
                by_repeat = self.done[candidate.key]
                if group.repeat in by_repeat:  # an earlier run finished part of the group
                    continue
                by_repeat[group.repeat] = outcome
                if journal is not None:
                    trial = {"group": candidate.group, "settings": plain(candidate.settings), **vars(outcome)}
                    journal.write(trial | {"repeat": group.repeat, "seconds": round(outcome.seconds, 4)})
            words = f"split {group.repeat + 1} of {self.repeats}"
            if group.repeat == 0:
                n_done = sum(0 in repeats for repeats in self.done.values())
                words = f"{n_done:,} of {len(self.candidates):,} tried"
            clock.tick(self._weight([group]), f"{words}: {group.candidates[-1]}")

    def _missing(self, candidates: Sequence[Candidate], repeats: Iterable[int]) -> list[Group]:
        """Return the groups with an unfinished trial; groups do not depend on earlier runs."""
        return [
            Group(group, repeat, self.seed)
            for group in self._groups(candidates)
            for repeat in repeats
            if not all(repeat in self.done[candidate.key] for candidate in group)
        ]

    def _groups(self, candidates: Sequence[Candidate]) -> list[list[Candidate]]:
        """Return groups of one candidate each, unless the criterion judges several together."""
        grouped = getattr(self.data.criterion, "groups", None)
        if grouped is None:
            return [[candidate] for candidate in candidates]
        groups = grouped([candidate.estimator for candidate in candidates])
        return [[candidates[index] for index in group] for group in groups]

    def _weight(self, groups: Iterable[Group]) -> float:
        """Return the expected cost: a constant plus the size; for an average fit, both are equal."""
        candidates = [candidate for group in groups for candidate in group.candidates]
        return sum(self._average_size + size_of(candidate.settings) for candidate in candidates)

    @cached_property
    def _average_size(self) -> float:
        return float(np.mean([size_of(candidate.settings) for candidate in self.candidates]))


# ---- journal ------------------------------------------------------------------------------------------
#
# One JSON line per trial, written to disk before the next trial begins. The first line describes the search
# (data, estimator, grid, criterion, seeds). A killed search reads the lines back and runs only the missing
# trials; an incomplete last line is dropped. A search with other data or settings, or a second search in the
# same directory, is refused.

JOURNAL_FILE = "search.jsonl"
JOURNAL_FORMAT = "dissensus search 1"
# messages for some differences; for others, the path of the entry and both values
DIFFERENCE_MESSAGES = {"data": "other labels", "criterion dev": "other dev items"}
DIFFERENCE_MESSAGES["references"] = "other reference models"

Line = dict[str, Any]


@dataclass
class Journal:
    """File of finished trials of one search; created by :func:`open_journal`."""

    path: Path
    file: BinaryIO
    lines: list[Line]  # trials finished by earlier runs

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line and flush it to disk."""
        try:
            self.file.write(_encoded(line))
            self.file.flush()
            os.fsync(self.file.fileno())
        except OSError as error:
            problem = f"{self.path}: cannot be written ({system_words(error)})"
            raise DataError(f"{problem}; finished trials are kept: free some space and run again") from error


@contextmanager
def open_journal(directory: Path, header: Mapping[str, Any]) -> Iterator[Journal]:
    """Start a search in a directory, or resume an identical one."""
    path = directory / JOURNAL_FILE
    header = {"format": JOURNAL_FORMAT, **header}
    if not path.exists():
        with atomic_path(path) as temporary:
            temporary.write_bytes(_encoded(header))
    with path.open("r+b") as file:
        if take_lock(file.fileno()) is False:
            problem = f"{path}: another search is writing here"
            raise DataError(f"{problem}; wait for it, or choose another directory")
        first, *lines = _read(file, path)
        _check_same(first, json.loads(_encoded(header)), path)
        yield Journal(path, file, lines)


def _encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _read(file: BinaryIO, path: Path) -> list[Line]:
    """Return all complete lines; an incomplete last line is removed from the file."""
    content = file.read()
    complete = content[: content.rfind(b"\n") + 1]
    file.seek(len(complete))
    file.truncate()
    lines = []
    for number, text in enumerate(complete.splitlines(), start=1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict):
            raise DataError(f"{path} line {number}: damaged; remove the line to run its trial again")
        lines.append(line)
    if not lines or lines[0].get("format") != JOURNAL_FORMAT:
        raise DataError(f"{path}: not the journal of a search; choose another directory, or remove the file")
    return lines


def _check_same(header: Line, expected: Line, path: Path) -> None:
    """Raise an error with the first difference if the journal belongs to another search."""
    if header == expected:
        return
    entry, *values = _difference("", header, expected)
    texts = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]
    was, now = (text if len(text) <= 60 else f"{text[:60]}…" for text in texts)
    messages = (words for name, words in DIFFERENCE_MESSAGES.items() if f"{entry} ".startswith(f"{name} "))
    difference = next(messages, f"{entry} was {was}, is now {now}")
    advice = "choose another directory, or remove this file to start again"
    raise DataError(f"{path}: belongs to another search ({difference}); {advice}")


def _difference(name: str, was: Any, now: Any) -> tuple[str, Any, Any]:
    """Return the path of the first entry in which two records differ, and both values."""
    if isinstance(was, list) and isinstance(now, list):
        if len(was) != len(now):
            return f"{name} (length)", len(was), len(now)
        was, now = (dict(enumerate(values, start=1)) for values in (was, now))
    if isinstance(was, dict) and isinstance(now, dict):
        key = next(key for key in now | was if key not in was or key not in now or was[key] != now[key])
        return _difference(f"{name} {key}".strip(), was.get(key, "not set"), now.get(key, "not set"))
    return name, was, now
