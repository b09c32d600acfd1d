"""SQUAREM: leaps along the path of EM (Varadhan and Roland, Scandinavian Journal of Statistics 35, 2008).

Near its end EM creeps: each step is nearly a fixed share of the one before, in the same direction. Two steps,
from x₀ to x₁ and x₂, tell where they lead. With r = x₁ − x₀ and v = (x₂ − x₁) − r,

    x = x₀ + 2 a r + a² v,    a = ‖r‖ / ‖v‖,  between 1 (which is x₂) and ``LONGEST``.               (6.5)

A leap that ends lower than the step before it is taken back (`Ascent.advance`, run.py), so that the objective
never falls because of one; it does not count as an iteration. There are no leaps before a step of EM changes
the objective by at most ``NEAR`` a label: earlier, one may pass from a hill to another that is not higher.
docs/results/acceleration.md has both measured.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np

from dissensus.numerics import Array, normalised

State = TypeVar("State")  # a dataclass of arrays

NEAR = 1e-3  # nats a label
SETTLED = 0.1  # of the tolerance: what leaps leave is slow, so that a small step says less of what is to come
LONGEST = 64.0
LEFT = 0.01  # of x₂, the least that a leap leaves of a number: what EM leaves at 0 stays there, and no other


def leap(x0: State, x1: State, x2: State, *, shares: bool = True) -> State:
    """Where two steps of EM lead (6.5); the numbers are positive, or distributions along their last axis."""
    return type(x2)(*leaped(_arrays(x0), _arrays(x1), _arrays(x2), shares))


def leaped(x0: list[Array], x1: list[Array], x2: list[Array], shares: bool) -> list[Array]:
    """The same for lists of arrays."""
    r = [b - a for a, b in zip(x0, x1, strict=True)]
    v = [(c - b) - d for b, c, d in zip(x1, x2, r, strict=True)]
    a = min(max(_length(r) / max(_length(v), 1e-300), 1.0), LONGEST)
    far = (x + 2 * a * d + a * a * e for x, d, e in zip(x0, r, v, strict=True))
    inside = (np.maximum(x, LEFT * last) for x, last in zip(far, x2, strict=True))
    return [normalised(x) if shares else x for x in inside]


def _arrays(state: Any) -> list[Array]:
    return [getattr(state, part.name) for part in dataclasses.fields(state)]


def _length(parts: list[Array]) -> float:
    return float(np.sqrt(sum(float(np.square(part).sum()) for part in parts)))
