"""Crowds of many kinds in which it is known who spams, who errs by rule and who sees things otherwise.

Every item has a class. A share of the items is contested: a group of annotators sees the next class there.
Whoever looks gives the class they see as often as they are right, and any other class otherwise; adversaries
look too and turn what they see round by one class. Spammers do not look:

* ``uniform``: every class alike,
* ``frequencies``: by the class shares,
* ``constant``: one class, nineteen times of twenty,
* ``copy-cats``: they copy from one another, all the same answer to an item, which has nothing to do with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.labels.annotations import Annotations

TYPICAL, SPAM, GROUP, ADVERSARY = "typical", "spam", "group", "adversary"
STRATEGIES = ("uniform", "frequencies", "constant", "copy-cats")
LABELS_EACH = (5, 10, 20, 50, 100, 200)
CONSTANT = 0.95


@dataclass(frozen=True)
class Planted:
    """The labels, and what each annotator is."""

    annotations: Annotations
    kind: NDArray[np.str_]  # (annotators,): "typical", "spam", "group" or "adversary"
    settings: dict[str, Any]


def planted(
    seed: int,
    *,
    n_annotators: int = 60,
    labels_each: int = 50,
    labels_per_item: int = 5,
    n_classes: int = 4,
    skew: float = 0.0,
    spammers: float = 0.1,
    strategy: str = "uniform",
    adversaries: float = 0.0,
    group: float = 0.0,
    contested: float = 1 / 3,
    accuracy: float = 0.8,
    spread: float = 0.07,
) -> Planted:
    """One crowd; shares are of annotators (of items: ``contested``), ``skew`` the first class's excess."""
    settings = {name: value for name, value in locals().items() if name != "seed"}
    rng = np.random.default_rng(seed)
    N, P = n_annotators, n_classes
    annotator = np.concatenate([rng.permutation(N) for _ in range(labels_each)])
    item = np.arange(annotator.size) // labels_per_item
    M = int(item[-1]) + 1
    sizes = [round(share * N) for share in (spammers, group, adversaries)]
    kind = rng.permutation(np.repeat([SPAM, GROUP, ADVERSARY, TYPICAL], [*sizes, N - sum(sizes)]))
    shares = (1 - skew) / P + skew * (np.arange(P) == 0)
    truth = rng.choice(P, size=M, p=shares)
    other = (truth + 1) % P
    seen = np.where((rng.random(M) < contested)[item] & (kind == GROUP)[annotator], other[item], truth[item])
    right = np.clip(rng.normal(accuracy, spread, size=N), 0.55, 0.98)[annotator]
    wrong = (seen + rng.integers(1, P, size=item.size)) % P
    label = np.where(rng.random(item.size) < right, seen, wrong)
    label = np.where((kind == ADVERSARY)[annotator], (label + 1) % P, label)
    blind = _blind(strategy, item, annotator, M, N, shares, rng)
    label = np.where((kind == SPAM)[annotator], blind, label)
    annotations = Annotations.from_arrays(item, annotator, label, classes=list(range(P)))
    return Planted(annotations, kind, settings)


def _blind(
    strategy: str,
    item: NDArray[np.intp],
    annotator: NDArray[np.intp],
    M: int,
    N: int,
    shares: NDArray[np.float64],
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    """What spammers of a strategy would answer, label by label."""
    P = len(shares)
    anything = rng.integers(P, size=item.size)
    if strategy == "frequencies":
        return rng.choice(P, size=item.size, p=shares)
    if strategy == "constant":
        favourite = rng.choice(P, size=N, p=shares)[annotator]
        return np.where(rng.random(item.size) < CONSTANT, favourite, anything)
    return rng.choice(P, size=M, p=shares)[item] if strategy == "copy-cats" else anything


def many_kinds(n: int, first_seed: int = 0) -> Iterator[Planted]:
    """``n`` crowds whose settings are drawn: labels each in turn, the rest at random."""
    for seed in range(first_seed, first_seed + n):
        rng = np.random.default_rng([7, seed])
        yield planted(
            seed,
            labels_each=LABELS_EACH[seed % len(LABELS_EACH)],
            labels_per_item=int(rng.choice([3, 5, 8])),
            n_classes=int(rng.choice([2, 3, 4, 6])),
            skew=float(rng.choice([0.0, 0.5])),
            spammers=float(rng.choice([0.0, 0.0, 0.05, 0.1, 0.3])),
            strategy=str(rng.choice(STRATEGIES)),
            adversaries=float(rng.choice([0.0, 0.05])),
            group=float(rng.choice([0.0, 0.05, 0.15, 0.3, 0.5])),
            accuracy=float(rng.choice([0.7, 0.8, 0.9])),
        )
