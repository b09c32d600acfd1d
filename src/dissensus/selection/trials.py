"""Which trials a search runs: every candidate once, then the best of each group on further splits.

A trial fits one candidate under one repeat. Repeat r hides the same labels from every candidate, so scores of
one repeat can be subtracted; its fit draws from a stream that depends on the search's seed and on the
candidate's own settings, so that neither the order of trials nor what runs them can matter.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dissensus.data.annotations import Annotations
from dissensus.execution.progress import Clock, Progress
from dissensus.execution.tasks import Workers, workers
from dissensus.params import key_of, plain, settings_words, stream_seed, trial_copy
from dissensus.selection.criteria import Criterion
from dissensus.selection.grid import size_of


@dataclass(frozen=True)
class Candidate:
    """Settings to try: a cell of the grid (group ""), or one of the models it is compared with."""

    group: str
    settings: Mapping[str, Any]
    estimator: Any  # has the settings; not fitted

    @property
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


@dataclass(frozen=True)
class Outcome:
    """What came of a trial."""

    seed: int  # of the fit
    score: float
    seconds: float


Outcomes = dict[str, dict[int, Outcome]]  # candidate's key -> repeat -> outcome


@dataclass(frozen=True)
class Material:
    """What all trials of a search share."""

    annotations: Annotations
    criterion: Criterion


def attempt(material: Material, trial: Trial) -> Outcome:
    """Fit and judge one candidate."""
    candidate = trial.candidate
    estimator = trial_copy(candidate.estimator, trial.fit_seed, candidate.settings)
    started = time.perf_counter()
    score = float(material.criterion(estimator, material.annotations, trial.split_seed))
    return Outcome(trial.fit_seed, score, time.perf_counter() - started)


def rank(score: float, settings: Mapping[str, Any]) -> tuple[bool, float, int]:
    """What sorts the best first: higher scores, of equals the smaller cell, what is no number last."""
    return bool(np.isnan(score)), 0.0 if np.isnan(score) else -score, size_of(settings)


@dataclass
class Search:
    """Trials under way: what is planned, what is done, and who is told."""

    material: Material
    candidates: Sequence[Candidate]
    repeats: int
    finalists: int | None
    seed: int
    progress: Progress
    record: Callable[[Mapping[str, Any]], None]
    n_jobs: int = -1
    executor: Executor | None = None
    done: Outcomes = field(default_factory=lambda: defaultdict(dict))

    def resume(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Take over what an earlier run has finished."""
        for line in lines:
            key = key_of([line["group"], line["settings"]])
            self.done[key][line["repeat"]] = Outcome(line["seed"], line["score"], line["seconds"])

    def run(self) -> Outcomes:
        """Every candidate on the first split, then the finalists on the others."""
        first = self._missing(self.candidates, range(1))
        clock = Clock(self.progress, self._weight(first) + self._weight_of_final())
        n_tasks = len(self.candidates)
        with workers(self.material, n_tasks, n_jobs=self.n_jobs, executor=self.executor) as pool:
            self._run(first, pool, clock)
            final = self._missing(self._finalists(), range(1, self.repeats))
            clock.expect(self._weight(final))
            self._run(final, pool, clock)
        return self.done

    def _run(self, trials: Sequence[Trial], pool: Workers, clock: Clock) -> None:
        # Big fits first: the last to finish is then a small one, and no core waits long for it.
        ordered = sorted(trials, key=lambda trial: -size_of(trial.candidate.settings))
        for trial, outcome in pool.completed(attempt, ordered):
            self.done[trial.candidate.key][trial.repeat] = outcome
            self.record(_line(trial, outcome))
            clock.tick(self._weight([trial]), self._words(trial))

    def _missing(self, candidates: Iterable[Candidate], repeats: Iterable[int]) -> list[Trial]:
        wanted = [(candidate, repeat) for candidate in candidates for repeat in repeats]
        return [
            Trial(candidate, repeat, self.seed + repeat, stream_seed(self.seed, candidate.key, repeat))
            for candidate, repeat in wanted
            if repeat not in self.done[candidate.key]
        ]

    def _finalists(self) -> list[Candidate]:
        """The best of each group on the first split; of equals, the smaller."""
        groups: dict[str, list[Candidate]] = defaultdict(list)
        for candidate in self.candidates:
            groups[candidate.group].append(candidate)
        ranked = [sorted(group, key=self._first_rank)[: self.finalists] for group in groups.values()]
        return [candidate for group in ranked for candidate in group]

    def _first_rank(self, candidate: Candidate) -> tuple[bool, float, int]:
        return rank(self.done[candidate.key][0].score, candidate.settings)

    # ---- telling how far it is ------------------------------------------------------------------------

    def _weight(self, trials: Iterable[Trial]) -> float:
        """Expected cost: half of an average fit's is the same for all sizes, the rest grows with the size."""
        average = self._average_size
        return sum(average + size_of(trial.candidate.settings) for trial in trials)

    def _weight_of_final(self) -> float:
        """Of the finalists' further trials, while it is not known who they will be."""
        n_groups = len({candidate.group for candidate in self.candidates})
        n_cells = min(len(self.candidates), n_groups * (self.finalists or len(self.candidates)))
        return 2 * self._average_size * n_cells * (self.repeats - 1)

    @property
    def _average_size(self) -> float:
        return float(np.mean([size_of(candidate.settings) for candidate in self.candidates]))

    def _words(self, trial: Trial) -> str:
        n_done = sum(0 in repeats for repeats in self.done.values())
        if trial.repeat == 0:
            return f"{n_done:,} of {len(self.candidates):,} tried: {trial.candidate}"
        return f"split {trial.repeat + 1} of {self.repeats}: {trial.candidate}"


def _line(trial: Trial, outcome: Outcome) -> dict[str, Any]:
    return {
        "group": trial.candidate.group,
        "settings": plain(trial.candidate.settings),
        "repeat": trial.repeat,
        "seed": outcome.seed,
        "score": outcome.score,
        "seconds": round(outcome.seconds, 4),
    }
