"""A simulated crowd with spammers and a minority in it, to see how many labels it takes to tell them apart.

Every item has a class, drawn from ``shares``. Some items are contested: the minority sees another class
there, the next one in class order or a random one for each item. Whoever looks gives the class they see with
probability ``accuracy`` and any other class alike otherwise; accuracies can differ between annotators.
Spammers draw from ``shares``, whatever the item.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dissensus.data.annotations import Annotations

TYPICAL, SPAMMER, MINORITY = "typical", "spam", "minority view"


@dataclass(frozen=True)
class MixedCrowd:
    """The labels, and what each annotator is."""

    annotations: Annotations
    kind: NDArray[np.str_]  # (annotators,): "typical", "spam" or "minority view"
    contested: NDArray[np.bool_]  # (items,)
    truth: NDArray[np.intp]  # (items,): class code, as the crowd sees it


def mixed_crowd(
    n_annotators: int = 300,
    labels_each: int = 40,
    *,
    labels_per_item: int = 5,
    shares: tuple[float, ...] = (0.3, 0.25, 0.2, 0.15, 0.1),
    accuracy: float = 0.8,
    accuracy_spread: float = 0.0,
    spammers: float = 0.1,
    minority: float = 0.15,
    contested: float = 1 / 3,
    sees: Literal["next", "any"] = "next",
    seed: int = 0,
) -> MixedCrowd:
    """Labels of a crowd in which it is known who spams and who sees things otherwise.

    ``spammers`` and ``minority`` are shares of the annotators, ``contested`` a share of the items, and
    ``accuracy_spread`` a standard deviation. Everybody gives ``labels_each`` labels, to random items.
    """
    rng = np.random.default_rng(seed)
    N, P = n_annotators, len(shares)
    annotator = np.concatenate([rng.permutation(N) for _ in range(labels_each)])
    item = np.arange(annotator.size) // labels_per_item
    M = int(item[-1]) + 1
    n_spammers, n_minority = round(spammers * N), round(minority * N)
    kinds = np.repeat([SPAMMER, MINORITY, TYPICAL], [n_spammers, n_minority, N - n_spammers - n_minority])
    kind = rng.permutation(kinds)
    truth = rng.choice(P, size=M, p=shares)
    is_contested = rng.random(M) < contested
    other = (truth + (rng.integers(1, P, size=M) if sees == "any" else 1)) % P
    seen = np.where(is_contested[item] & (kind == MINORITY)[annotator], other[item], truth[item])
    right = np.clip(rng.normal(accuracy, accuracy_spread, size=N), 1 / P, 1)[annotator]
    wrong = (seen + rng.integers(1, P, size=item.size)) % P
    label = np.where(rng.random(item.size) < right, seen, wrong)
    label = np.where((kind == SPAMMER)[annotator], rng.choice(P, size=item.size, p=shares), label)
    annotations = Annotations.from_arrays(item, annotator, label, classes=list(range(P)))
    return MixedCrowd(annotations, kind, is_contested, truth)
