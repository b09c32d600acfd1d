"""Which cells of a search need not be fitted to the end.

All cells are looked at after some iterations, and those that then foresee hidden labels best go on from where
they are; a second look halves them again. A cell that goes on to its end has the very score that it would
have had without the looks. docs/results/early_stop.md holds choices made in this way against those of a
search that fits every cell to its end.

It is done where looks have been measured: for PGM by belief propagation, judged by hidden labels.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from dissensus.models.pgm.model import PGM
from dissensus.selection.criteria import Criterion, HeldOutLabels


class Look(NamedTuple):
    """After how many iterations cells are looked at, and the share of all cells that then goes on."""

    iterations: int
    share: float


LOOKS = (Look(15, 0.4), Look(30, 0.2))
PART = 0.3  # of a fit's iterations, about, that pass from one look to the next
FEWEST = 2  # times as many cells as finalists go on at least
MOST_HELD = 30_000  # labels: of more, what a fit needs to go on is not held, and a cell begins again


def races(estimator: Any, criterion: Criterion) -> bool:
    """Whether looks say something about a fit of this estimator."""
    return (
        isinstance(criterion, HeldOutLabels)
        and isinstance(estimator, PGM)
        and estimator.inference == "bp"
        and estimator.n_restarts == 1
        and (estimator.max_iter is None or estimator.max_iter > LOOKS[-1].iterations)
    )


def n_going_on(look: Look, n_cells: int, finalists: int) -> int:
    """How many of all cells go on after a look."""
    return max(math.ceil(look.share * n_cells), FEWEST * finalists)
