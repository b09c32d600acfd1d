"""How much is computed: repeats, the values searched, how long networks are trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Scale:
    """A size of the whole evaluation; every value goes into the settings of the cells it decides."""

    name: str = "default"
    repeats: int = 10  # the paper: 100
    own_repeats: int = 3  # of the slower columns that the paper does not have
    item_clusters: tuple[int, ...] = tuple(range(3, 21))
    annotator_clusters: tuple[int, ...] = tuple(range(3, 21))
    fmm_clusters: tuple[int, ...] = tuple(range(3, 41))
    communities: tuple[int, ...] = (3, 8, 20)  # of CBCC, which the paper does not search
    search_repeats: int = 5  # splits of dev on which the finalists of a search are tried
    finalists: int = 10
    sizes: tuple[int, ...] = tuple(range(3, 21))  # of LDL-NM's item and annotator layers
    seeds: int = 3  # fits behind a number of Table 2
    hidden_splits: int = 5
    draws: int = 5  # of the labels shown, in the recovery of the population
    labels_shown: tuple[int, ...] = (1, 2, 4, 8)
    recovery_fmm: tuple[int, ...] = (6, 12)
    recovery_pgm: tuple[tuple[int, int], ...] = ((6, 4), (12, 8), (20, 20))
    embedding: str | None = None  # the sentence encoder, as in dissensus.embed
    max_items: int | None = None  # of a set; more are sampled with a seed
    cnn: Mapping[str, Any] = field(default_factory=dict)  # settings that differ from the learners' own
    encoder: Mapping[str, Any] = field(default_factory=dict)
    ldlnm: Mapping[str, Any] = field(default_factory=dict)
    search_patience: int = 30  # epochs without a better one that end a fit in LDL-NM's search
    n_boot: int = 1000


DEFAULT = Scale()

QUICK = Scale(
    name="quick",
    repeats=2,
    own_repeats=1,
    item_clusters=(4, 8, 12),
    annotator_clusters=(4, 8, 12),
    fmm_clusters=(5, 10, 20, 40),
    communities=(3, 8),
    search_repeats=1,
    finalists=1,
    sizes=(8, 20),
    seeds=1,
    hidden_splits=2,
    draws=2,
    labels_shown=(2, 4),
    recovery_fmm=(6, 12),
    recovery_pgm=((6, 4), (12, 8)),
    max_items=2000,
    encoder={"epochs": 2},
)
