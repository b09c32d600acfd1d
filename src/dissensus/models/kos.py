"""KOS: messages between items and annotators, no model of either (Karger, Oh & Shah, NIPS 2011).

For two classes, a label is A_mn = ±1, and every label carries a reliability y_{n→m}, at first from N(1, 1):

    x_{m→n} = Σ_{n' ≠ n} A_mn' y_{n'→m},        y_{n→m} = Σ_{m' ≠ m} A_m'n x_{m'→n}                    (1)

and at last item m is sign(Σ_n A_mn y_{n→m}). Messages are scaled to mean square one in every round, which (1)
does not see and floating point is glad of. With more classes, each stands against the rest. ``posterior_`` is
no probability here: it is the share of the weighted votes for a class,

    (1 + Σ_n A_mn y_{n→m} / Σ_n |y_{n→m}|) / 2.                                                         (2)

An item with gold sends messages of the size of the others' and of the sign of its gold.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np

from dissensus.engine import Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import WEIGHTS, ConfusionModel, ConfusionSteps, gold_signs, times_prior
from dissensus.models.weighted import keep_votes
from dissensus.numerics import Array, normalised
from dissensus.params import SEED, fitted, integer, setting


def scaled(messages: Array) -> Array:
    """Mean square one; messages that are all 0 stay."""
    size = float(np.sqrt(np.mean(messages**2)))
    return messages / size if size > 0 else messages


def reliabilities(annotations: Annotations, sign: Array, start: Array, gold: Array, rounds: int) -> Array:
    """(labels,): y_{n→m} after so many rounds (1); ``gold`` (items,) is ±1, or 0 where it is not known."""
    item, annotator = annotations.item, annotations.annotator
    M, N, y = annotations.n_items, annotations.n_annotators, start
    for _ in range(rounds):
        said = sign * y
        x = scaled(np.bincount(item, said, minlength=M)[item] - said)
        x = np.where(gold[item] != 0, gold[item], x)
        said = sign * x
        y = scaled(np.bincount(annotator, said, minlength=N)[annotator] - said)
    return y


class KOS(ConfusionModel):
    """Iterative message passing between items and annotators, with a random start."""

    max_iter: int = setting(100, integer(1), "How many rounds of messages there are.")
    _: KW_ONLY
    seed: int = setting(0, *SEED)

    _memory_tables = {"MP": 7, "NPP": 5, "E": 8}

    weights_: Array = fitted(WEIGHTS)

    def _fit(self, annotations: Annotations, engine: Engine, item_prior: Any = None) -> None:
        steps, P = ConfusionSteps(annotations, engine), annotations.n_classes
        given = self._known_before(item_prior, annotations)
        gold = gold_signs(given, annotations)
        start = np.random.default_rng(self.seed).normal(1.0, 1.0, annotations.n_labels)
        M, N, load = annotations.n_items, annotations.n_annotators, annotations.annotator_load
        shares, skills = np.empty((M, P)), np.zeros(N)
        for k in range(P):
            if P == 2 and k == 1:  # the other side of the same votes
                shares[:, 1] = 1.0 - shares[:, 0]
                break
            sign = np.where(annotations.label == k, 1.0, -1.0)
            y = reliabilities(annotations, sign, start, gold[:, k], self.max_iter)
            # the share (2) of the votes for class k against the rest
            votes = np.bincount(annotations.item, sign * y, minlength=M)
            size = np.bincount(annotations.item, np.abs(y), minlength=M)
            shares[:, k] = 0.5 + 0.5 * np.divide(votes, size, out=np.zeros(M), where=size > 0)
            means = np.bincount(annotations.annotator, y, minlength=N) / np.maximum(load, 1)
            skills += means / P
        posterior = times_prior(normalised(shares), given)
        keep_votes(self, steps, annotations, posterior, skills, "max_iter")
