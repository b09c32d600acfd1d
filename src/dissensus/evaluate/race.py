"""Which cells of a search need not be fitted to the end.

All cells are looked at after some iterations. One that then foresees hidden labels far worse than the last
who would become a finalist is stopped; the others go on from where they are, to the next look. What a fit may
still gain shrinks as iterations go on, and so does what counts as far:

    behind by more than ``FAR`` / iterations nats a label.

A cell that goes on to its end has the very score that it would have had without looks. The first look is a
late one: a fit that stands still for its first ten iterations may yet become the best.
docs/results/early_stop.md holds choices made in this way against those of a search that stops nothing.

It is done where looks have been measured: for PGM by belief propagation, judged by hidden labels. With few
labels the best may still be far behind at any look, and fits are short. With many, what cells need to go on
from a look is too much to hold, and cells that begin again cost more than those that are stopped would have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dissensus.evaluate.criteria import Criterion, HeldOutLabels
from dissensus.models.pgm.model import PGM

LOOKS = (15, 25, 35, 50, 80)  # iterations
FAR = 0.3  # nats a label, divided by the iterations
MANY = 5  # cells for every finalist, at least: in a smaller grid nothing is stopped
PART = 0.2  # of a fit's time, about, that passes from one look to the next
FEWEST, MOST = 5_000, 30_000  # labels: of fewer, and of more, none is stopped
# What a search writes down of it: it goes on only under the same rule.
RULE = {"looks": LOOKS, "far": FAR, "labels": (FEWEST, MOST), "cells": MANY}


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
    return max(sum(score >= last - FAR / look for score in best_first), finalists)
