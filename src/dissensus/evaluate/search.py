"""A search: cells of a grid, the trials that judge them, and a record of what is finished.

A trial fits one candidate under one repeat: every candidate on the first split, then the best of each group
on further splits. On the first split, many cells are looked at before their end, and only those that may be
among the best are fitted to it (race.py). Repeat r hides the same labels from every candidate, so scores of
one repeat can be subtracted; its fit draws from a stream that depends on the search's seed and on the
candidate's own settings, so that neither the order of trials nor what runs them can matter.
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
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dissensus.errors import DataError, bad_parameter, system_words
from dissensus.evaluate.criteria import Criterion, GroupCriterion
from dissensus.evaluate.race import FEWEST, LOOKS, MANY, MOST, PART, n_going_on, races
from dissensus.evaluate.tasks import Workers, workers
from dissensus.execution.checkpoints import Checkpoint, with_blocks_in
from dissensus.execution.resources import current, using
from dissensus.execution.run import Pause
from dissensus.execution.scratch import scratch_below
from dissensus.labels.annotations import Annotations
from dissensus.params import key_of, plain, settings_words, stream_seed, trial_copy
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
    parts = [grid] if isinstance(grid, Mapping) else list(grid)
    cells = [dict(zip(part, chosen, strict=True)) for part in parts for chosen in _product(part)]
    if not cells:
        raise bad_parameter("select", "grid", "a mapping of setting names to values to try", grid)
    return list({key_of(cell): cell for cell in cells}.values())


def _product(part: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
    return itertools.product(*(_values(part[name]) for name in part))


def _values(given: Any) -> list[Any]:
    several = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    return [one.item() if isinstance(one, np.generic) else one for one in (given if several else [given])]


def size_of(settings: Mapping[str, Any]) -> int:
    """How big a cell is: the product of its whole numbers. Big ones are run first and lose ties."""
    wholes = [value for value in settings.values() if isinstance(value, int) and not isinstance(value, bool)]
    return math.prod(max(value, 1) for value in wholes)


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
class Trial:
    """One candidate under one repeat."""

    candidate: Candidate
    repeat: int
    split_seed: int
    fit_seed: int
    look: int | None = None  # after so many iterations it is looked at; None: it is fitted to the end
    held: Checkpoint[Any] | None = None  # where an earlier look left it
    spent: float = 0.0  # seconds, up to there
    folder: Path | None = None  # for its messages while it waits; None: they travel with the outcome


@dataclass(frozen=True)
class Outcome:
    """What came of a trial."""

    seed: int  # of the fit
    score: float
    seconds: float
    look: int | None = None  # None: of the end; otherwise, after so many iterations
    held: Checkpoint[Any] | None = None


Outcomes = dict[str, dict[int, Outcome]]  # candidate's key -> repeat -> outcome


@dataclass(frozen=True)
class SearchData:
    """What all trials of a search share."""

    annotations: Annotations
    criterion: Criterion


Group = tuple[
    Trial, ...
]  # trials of one repeat that are judged at a time: one, unless the criterion takes several


def run_group(data: SearchData, group: Group) -> list[Outcome]:
    """Fit and judge the candidates of a group."""
    estimators = [
        trial_copy(trial.candidate.estimator, trial.fit_seed, trial.candidate.settings) for trial in group
    ]
    split_seed, criterion = group[0].split_seed, data.criterion
    started = time.perf_counter()
    pause = Pause(group[0].look, group[0].held)
    if isinstance(criterion, GroupCriterion):
        scores = criterion.scores(estimators, data.annotations, split_seed)
    else:
        with using(replace(current(), pause=pause)):
            scores = [criterion(estimators[0], data.annotations, split_seed)]
    seconds = group[0].spent + (time.perf_counter() - started) / len(group)
    look = None if pause.held is None else group[0].look
    held = _waiting(pause.held, group[0].folder)
    return [
        Outcome(trial.fit_seed, float(score), seconds, look, held)
        for trial, score in zip(group, scores, strict=True)
    ]


def _waiting(held: Checkpoint[Any] | None, folder: Path | None) -> Checkpoint[Any] | None:
    """What a paused fit needs to go on; None where it cannot be held, and the fit begins again."""
    # Where memory is limited there may be no room, and messages may be in files that are gone with the fit.
    if held is None or current().memory is not None:
        return None
    if folder is not None:
        with suppress(DataError):  # a disk that is full: then they travel all the same
            return replace(held, state=with_blocks_in(folder, held.state))
    return held


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
    record: Callable[[Mapping[str, Any]], None]
    n_jobs: int = -1
    executor: Executor | None = None
    done: Outcomes = field(default_factory=lambda: defaultdict(dict))
    looks: dict[int, dict[str, Outcome]] = field(default_factory=lambda: defaultdict(dict))  # by iterations
    held: dict[str, Outcome] = field(default_factory=dict)  # the last look at each cell that may go on
    scratch: Path | None = None  # for the messages of cells that wait

    def resume(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Take over what an earlier run has finished."""
        for line in lines:
            key, look = key_of([line["group"], line["settings"]]), line.get("look")
            outcome = Outcome(line["seed"], line["score"], line["seconds"], look)
            if look is None:
                self.done[key][line["repeat"]] = outcome
            else:
                self.looks[look][key] = outcome

    def run(self) -> Outcomes:
        """Every candidate on the first split, then the finalists on the others."""
        racing = self._racing()
        others = [candidate for candidate in self.candidates if candidate.group or not racing]
        first = self._missing(others, range(1))
        looks = self._unfinished(racing, LOOKS[0])
        clock = Clock(self.progress, 2 * self._weight(looks) + self._weight(first) + self._weight_of_final())
        n_tasks = len(self._groups(self.candidates))
        with ExitStack() as stack:
            here = self.executor is None and current().client is None
            if racing and here and self.n_jobs != 1 and current().memory is None:
                # processes of this machine, between which files cost less than pipes
                with suppress(DataError):  # no such place: then messages travel
                    place = current().scratch or current().checkpoint
                    self.scratch = stack.enter_context(scratch_below(place))
            how: dict[str, Any] = {"n_jobs": self.n_jobs, "executor": self.executor}
            pool = stack.enter_context(workers(self.data, n_tasks, **how, takes_part=bool(racing)))
            best = self._race(racing, pool, clock)
            self._run([*first, *self._unfinished(best, None)], pool, clock)
            for cell in racing:  # of one that was stopped, the last look stands for the end
                self.done[cell.key].setdefault(0, self._standing(cell, LOOKS[-1]))
            final = self._missing(self._finalists(), range(1, self.repeats))
            clock.expect(self._weight(final))
            self._run(final, pool, clock)
        return self.done

    def _run(self, groups: Sequence[Group], pool: Workers, clock: Clock) -> None:
        # Big fits first: the last to finish is then a small one, and no core waits long for it.
        ordered = sorted(groups, key=lambda group: -self._weight([group]))
        for group, outcomes in pool.completed(run_group, ordered):
            for trial, outcome in zip(group, outcomes, strict=True):
                key = trial.candidate.key
                if outcome.look is not None:
                    self.looks[outcome.look][key] = replace(outcome, held=None)
                    self.held[key] = outcome
                elif not self._is_done(trial):
                    self.done[key][trial.repeat] = outcome
                    if key in self.held:
                        self._drop([key])
                else:
                    continue
                self.record(_line(trial, outcome))
            clock.tick(self._weight([group]), self._words(group[-1]))

    # ---- cells that are not fitted to the end ---------------------------------------------------------

    def _racing(self) -> list[Candidate]:
        """The cells, where there are many and looks say something about them."""
        cells = [candidate for candidate in self.candidates if not candidate.group]
        many = self.finalists is not None and len(cells) >= MANY * self.finalists
        if not many or not FEWEST <= self.data.annotations.n_labels <= MOST:
            return []
        return cells if all(races(cell.estimator, self.data.criterion) for cell in cells) else []

    def _race(self, cells: Sequence[Candidate], pool: Workers, clock: Clock) -> Sequence[Candidate]:
        """Those of the cells that are far behind at no look."""
        for look in LOOKS if cells else ():
            self._run(self._unfinished(cells, look), pool, clock)
            cells = sorted(cells, key=partial(self._rank_at, look))
            scores = [self._standing(cell, look).score for cell in cells]
            cells = cells[: n_going_on(scores, look, self.finalists or len(cells))]
            self._drop(set(self.held) - {cell.key for cell in cells})
        return cells

    def _drop(self, keys: Iterable[str]) -> None:
        """Nobody waits for these cells any more."""
        for key in keys:
            del self.held[key]
            if (folder := self._folder(key)) is not None:
                with suppress(OSError):  # what is left goes with the scratch folder
                    for file in folder.iterdir():
                        file.unlink()
                    folder.rmdir()

    def _folder(self, key: str) -> Path | None:
        return None if self.scratch is None else self.scratch / str(self._numbers[key])

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {candidate.key: number for number, candidate in enumerate(self.candidates)}

    def _unfinished(self, cells: Sequence[Candidate], look: int | None) -> list[Group]:
        """Trials on the first split of those cells that are not yet there; they go on from where they are."""
        trials = []
        for cell in cells:
            if 0 not in self.done[cell.key] and (look is None or cell.key not in self.looks[look]):
                folder, held = self._folder(cell.key), self.held.get(cell.key)
                trial = replace(self._trial(cell, 0), look=look, folder=folder)
                trials.append(trial if held is None else replace(trial, held=held.held, spent=held.seconds))
        return [(trial,) for trial in trials]

    def _standing(self, cell: Candidate, look: int) -> Outcome:
        """What was found of a cell by a look: then or, where it was over before, in the end."""
        before = [self.looks[one].get(cell.key) for one in LOOKS if one <= look]
        found = [outcome for outcome in before if outcome is not None]
        over = self.done[cell.key].get(0)
        return found[-1] if over is None or (found and found[-1].look == look) else over

    def _rank_at(self, look: int, cell: Candidate) -> tuple[bool, float, int]:
        return rank(self._standing(cell, look).score, cell.settings)

    # ---- trials ---------------------------------------------------------------------------------------

    def _missing(self, candidates: Sequence[Candidate], repeats: Iterable[int]) -> list[Group]:
        """Groups with a trial that is not done. A group is the same whatever was finished before a kill."""
        groups = [
            tuple(self._trial(candidate, repeat) for candidate in some)
            for some in self._groups(candidates)
            for repeat in repeats
        ]
        return [group for group in groups if not all(map(self._is_done, group))]

    def _groups(self, candidates: Sequence[Candidate]) -> list[list[Candidate]]:
        """One candidate each, unless the criterion judges several at a time."""
        if not isinstance(self.data.criterion, GroupCriterion):
            return [[candidate] for candidate in candidates]
        places = self.data.criterion.groups([candidate.estimator for candidate in candidates])
        return [[candidates[place] for place in some] for some in places]

    def _trial(self, candidate: Candidate, repeat: int) -> Trial:
        return Trial(candidate, repeat, self.seed + repeat, stream_seed(self.seed, candidate.key, repeat))

    def _is_done(self, trial: Trial) -> bool:
        return trial.repeat in self.done[trial.candidate.key]

    def _finalists(self) -> list[Candidate]:
        """The best of each group on the first split; of equals, the smaller."""
        groups: dict[str, list[Candidate]] = defaultdict(list)
        for candidate in self.candidates:
            groups[candidate.group].append(candidate)
        ranked = [sorted(group, key=self._first_rank)[: self.finalists] for group in groups.values()]
        return [candidate for group in ranked for candidate in group]

    def _first_rank(self, candidate: Candidate) -> tuple[bool, bool, float, int]:
        found = self.done[candidate.key][0]
        return found.look is not None, *rank(found.score, candidate.settings)

    # ---- telling how far it is ------------------------------------------------------------------------

    def _weight(self, groups: Iterable[Group]) -> float:
        """Expected cost: half of an average fit's is the same for all sizes, the rest grows with the size."""
        average = self._average_size
        return sum(
            (average + size_of(trial.candidate.settings)) * (PART if trial.look else 1.0)
            for group in groups
            for trial in group
        )

    def _weight_of_final(self) -> float:
        """Of the finalists' further trials, while it is not known who they will be."""
        n_groups = len({candidate.group for candidate in self.candidates})
        n_cells = min(len(self.candidates), n_groups * (self.finalists or len(self.candidates)))
        return 2 * self._average_size * n_cells * (self.repeats - 1)

    @cached_property
    def _average_size(self) -> float:
        return float(np.mean([size_of(candidate.settings) for candidate in self.candidates]))

    def _words(self, trial: Trial) -> str:
        if trial.repeat == 0:
            n_done = sum([0 in repeats for repeats in self.done.values()])
            what = "tried" if trial.look is None else f"tried, others for {trial.look} iterations"
            return f"{n_done:,} of {len(self.candidates):,} {what}: {trial.candidate}"
        return f"split {trial.repeat + 1} of {self.repeats}: {trial.candidate}"


def _line(trial: Trial, outcome: Outcome) -> dict[str, Any]:
    return {
        "group": trial.candidate.group,
        "settings": plain(trial.candidate.settings),
        "repeat": trial.repeat,
        "seed": outcome.seed,
        "score": outcome.score,
        "seconds": round(outcome.seconds, 4),
        **({} if outcome.look is None else {"look": outcome.look}),
    }


# ---- what is finished, on disk ------------------------------------------------------------------------
#
# One JSON line a trial, each on the disk before the next is begun. The first line says what the search is
# (data, estimator, grid, criterion, seeds). A search that was killed reads the lines back and runs only what
# is missing; a last line that was cut short is dropped. A search of other data or settings is refused, and so
# is a second search in the same place.

FILE = "search.jsonl"
FORMAT = "dissensus search 1"

Line = dict[str, Any]


class Journal:
    """The record of one search; built by :func:`open_journal`."""

    def __init__(self, path: Path, file: BinaryIO, lines: list[Line]) -> None:
        self.path = path
        self.lines = lines  # what was finished when the search began
        self._file = file

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line and put it on the disk."""
        try:
            self._file.write(_encoded(line))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            reason = system_words(error)
            raise DataError(
                f"{self.path}: cannot be written ({reason}); what is there is kept: make room and run again"
            ) from error


@contextmanager
def open_journal(directory: Path, header: Mapping[str, Any]) -> Iterator[Journal]:
    """Begin a search in a directory, or go on with the one that is there if it is the same."""
    path = directory / FILE
    header = {"format": FORMAT, **header}
    if not path.exists():
        with atomic_path(path) as temporary:
            temporary.write_bytes(_encoded(header))
    with path.open("r+b") as file:
        if not take_lock(file.fileno()):
            raise DataError(f"{path}: another search is writing here; wait for it, or choose another")
        first, *lines = _read(file, path)
        _check_same(first, header, path)
        yield Journal(path, file, lines)


def _encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _read(file: BinaryIO, path: Path) -> list[Line]:
    """Every whole line; a last one that was cut short is removed from the file."""
    content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    file.seek(len(whole))
    file.truncate()
    lines = [_parsed(text, number, path) for number, text in enumerate(whole.splitlines(), start=1)]
    if not lines or lines[0].get("format") != FORMAT:
        raise DataError(f"{path}: is not the record of a search; choose another directory, or remove it")
    return lines


def _parsed(text: bytes, number: int, path: Path) -> Line:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict):
        raise DataError(f"{path} line {number}: is damaged; remove that line, and its trial is run again")
    return line


# What is told of a difference in words of its own; of others, the names that lead there and both values.
OTHERS = {
    "data": "of other labels",
    "criterion dev": "judged by other items",
    "references": "compared with other models",
    "stopping": "under another rule of stopping",
}


def _check_same(found: Line, wanted: Mapping[str, Any], path: Path) -> None:
    """The same search, or the first thing in which the two differ."""
    expected = json.loads(_encoded(wanted))
    if found == expected:
        return
    what, was, now = _difference("", found, expected)
    told = (words for name, words in OTHERS.items() if f"{what} ".startswith(f"{name} "))
    how = next(told, f"{what} was {_shown(was)}, is now {_shown(now)}")
    raise DataError(
        f"{path}: belongs to another search ({how}); "
        "choose another directory, or remove this file to start anew"
    )


def _difference(name: str, was: Any, now: Any) -> tuple[str, Any, Any]:
    """Where two records differ: the names that lead there, and what stands there."""
    if isinstance(was, dict) and isinstance(now, dict):
        unlike = (key for key in now | was if key not in was or key not in now or was[key] != now[key])
        key = next(unlike)
        return _difference(f"{name} {key}".strip(), was.get(key, "not set"), now.get(key, "not set"))
    if isinstance(was, list) and isinstance(now, list):
        if len(was) != len(now):
            return f"{name} (how many)", len(was), len(now)
        number = next(number for number, pair in enumerate(zip(was, now, strict=True)) if pair[0] != pair[1])
        return _difference(f"{name} {number + 1}", was[number], now[number])
    return name, was, now


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}…"
