"""Which cells of a search need not be fitted to the end.

All cells are looked at after some iterations. One that then foresees hidden labels far worse than the last
who would become a finalist is stopped; the others go on from where they are, to the next look. What a fit may
still gain shrinks as iterations go on, and so does what counts as far:

    behind by more than ``FAR`` / max(iterations, ``EARLY``) nats a label.

A cell that goes on to its end has the very score that it would have had without looks.
docs/results/early_stop.md holds choices made in this way against those of a search that stops nothing.

It is done where looks have been measured: for PGM by belief propagation, judged by hidden labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dissensus.models.pgm.model import PGM
from dissensus.selection.criteria import Criterion, HeldOutLabels

LOOKS = (5, 20, 30, 40, 60)  # iterations
FAR = 0.4  # nats a label, divided by the iterations or by EARLY
EARLY = 10  # iterations: before them no more counts as far than at them
MANY = 5  # cells for every finalist, at least: in a smaller grid nothing is stopped
PART = 0.2  # of a fit's time, about, that passes from one look to the next
MOST_HELD = 30_000  # labels: of more, what a fit needs to go on is not held, and a cell begins again


def races(estimator: Any, criterion: Criterion) -> bool:
    """Whether looks say something about a fit of this estimator."""
    return (
        isinstance(criterion, HeldOutLabels)
        and isinstance(estimator, PGM)
        and estimator.inference == "bp"
        and estimator.n_restarts == 1
    )


def n_going_on(best_first: Sequence[float], look: int, finalists: int) -> int:
    """How many cells go on, by their scores at a look."""
    last = best_first[finalists - 1]
    far = FAR / max(look, EARLY)
    return max(sum(score >= last - far for score in best_first), finalists)
