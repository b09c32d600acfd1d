"""A crowd for the demo: simulated labels of comments whose population is known.

Readers of a platform call comments fine, rude or hateful. Some are strict and some are not. A quarter of them
belong to the group that coded language is aimed at and hear it; the others do not. A few click at random.
Five readers label each comment. What would all readers of the platform say?

A reader n of comment m hears rudeness x_mn and gives the class between whose cut points it falls:

    x_mn = r_m + s_n + 2 c_m g_n + ε,   ε ~ N(0, 0.5²)

with r the rudeness of the comment, s the strictness of the reader, c coded language and g membership of the
group. Every quantity but g is continuous, so no model that is compared here has this process as its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from dissensus.labels.annotations import Annotations
from dissensus.labels.simulation import assign, draw
from dissensus.numerics import Array

N_COMMENTS, N_READERS, READERS_PER_COMMENT = 400, 40, 5
N_POPULATION = 4000  # readers over whom the population's answers are averaged
ANSWERS = np.array(["fine", "hateful", "rude"])
RUDE_FROM, HATEFUL_FROM = 0.5, 1.7  # cut points of the rudeness that a reader hears
STRICTNESS_SD, HEARING_SD = 0.5, 0.5
GROUP_SHARE, CLICKER_SHARE, CODED_SHARE = 0.25, 0.06, 0.25


@dataclass(frozen=True)
class Readers:
    """Readers of the platform."""

    strictness: Array
    in_group: NDArray[np.bool_]  # hears coded language
    clicks: NDArray[np.bool_]  # answers at random

    @classmethod
    def draw(cls, n: int, rng: np.random.Generator) -> Readers:
        """Draw n readers."""
        strictness = rng.normal(0, STRICTNESS_SD, n)
        return cls(strictness, rng.random(n) < GROUP_SHARE, rng.random(n) < CLICKER_SHARE)

    def answers(self, rudeness: Array, coded: Array) -> Array:
        """Return (comments, readers, classes): the probability of each answer."""
        mean = rudeness[:, None] + self.strictness + 2 * coded[:, None] * self.in_group
        below_rude, below_hateful = (ndtr((cut - mean) / HEARING_SD) for cut in (RUDE_FROM, HATEFUL_FROM))
        shares = np.stack([below_rude, 1 - below_hateful, below_hateful - below_rude], axis=-1)
        shares[:, self.clicks] = 1 / len(ANSWERS)
        return shares


def draw_crowd(seed: int) -> tuple[Annotations, Array, Readers]:
    """Draw labels, what the population would answer to each comment, and the readers who labelled."""
    rng = np.random.default_rng(seed)
    rudeness = rng.normal(0, 1, N_COMMENTS)
    coded = (rng.random(N_COMMENTS) < CODED_SHARE) * rng.gamma(4, 0.25, N_COMMENTS)
    readers = Readers.draw(N_READERS, rng)
    comment = np.repeat(np.arange(N_COMMENTS), READERS_PER_COMMENT)
    reader = assign(N_COMMENTS, np.ones(N_READERS), READERS_PER_COMMENT, rng).ravel()
    shares = readers.answers(rudeness, coded)[comment, reader]
    label = draw(shares, np.arange(len(shares)), rng)
    population = Readers.draw(N_POPULATION, rng).answers(rudeness, coded).mean(axis=1)
    names = [f"comment{m + 1:03d}" for m in comment], [f"reader{n + 1:02d}" for n in reader]
    return Annotations.from_arrays(*names, ANSWERS[label]), population, readers
