"""What the tests of executors, checkpoints and clusters share: a crowd, the models, and all bits of a fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import dissensus as ds
from dissensus import engine
from dissensus.engine import PLAIN, using
from dissensus.models import base
from dissensus.models.base import Model
from sizes import usually

SHARD = usually(400, verify=150)  # labels of a shard, so that a small crowd has many blocks
ITERATIONS = 7  # of every fit: no tolerance ends it before

MODELS: dict[str, Callable[..., Model]] = {
    "fmm": lambda **more: ds.FMM(4, max_iter=ITERATIONS, tol=0.0, **more),
    "dawid-skene": lambda **more: ds.DawidSkene(max_iter=ITERATIONS, tol=0.0, **more),
    "one-coin": lambda **more: ds.OneCoin(max_iter=ITERATIONS, tol=0.0, **more),
    "cbcc": lambda **more: ds.CBCC(3, max_iter=ITERATIONS, tol=0.0, **more),
    "ibcc": lambda **more: ds.IBCC(max_iter=ITERATIONS, tol=0.0, **more),
    "ebcc": lambda **more: ds.EBCC(2, max_iter=ITERATIONS, tol=0.0, **more),
    "log-linear": lambda **more: ds.LogLinear(max_iter=ITERATIONS, tol=0.0, **more),
    "mace": lambda **more: ds.MACE(max_iter=ITERATIONS, tol=0.0, **more),
    "pgm-bp": lambda **more: ds.PGM(4, 3, max_iter=ITERATIONS, tol=0.0, **more),
    "pgm-vb": lambda **more: ds.PGM(4, 3, inference="vb", max_iter=ITERATIONS, tol=0.0, **more),
    "pgm-pairwise": lambda **more: ds.PGM(
        4, 3, m_step="pairwise", bp_rounds=2, max_iter=ITERATIONS, tol=0.0, **more
    ),
}
WITH_MESSAGES = [name for name in MODELS if name.startswith("pgm")]


@cache
def crowd(seed: int = 0) -> ds.Annotations:
    """4,000 labels: 400 items, some with one label and one with very many; 60 annotators, nine classes.

    Sums over nine classes have more than one order, so a table that is laid out otherwise shows.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 18, size=400)
    sizes[7] = 300
    item = np.repeat(np.arange(400), sizes)
    annotator = (60 * rng.random(len(item)) ** 2).astype(int)
    truth = rng.integers(0, 9, size=400)[item]
    label = np.where(
        rng.random(len(item)) < 0.3 + 0.6 * (annotator < 30), truth, rng.integers(0, 9, len(item))
    )
    names = [
        np.array([f"{kind}{code:03d}" for code in codes])
        for kind, codes in zip("iac", (item, annotator, label), strict=True)
    ]
    return ds.Annotations.from_arrays(*names)


@cache
def alone(name: str) -> Model:
    """A model's fit to the crowd in this process and in memory, made once for all who compare with it.

    For tests with ``small_shards`` only: other shards add up in another order.
    """
    with using(PLAIN):
        return MODELS[name]().fit(crowd())


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten blocks of one shard each, some twenty-five under ``make verify``."""
    cut_small(monkeypatch.setattr)


def cut_small(put: Callable[..., None] = setattr, size: int = SHARD) -> None:
    """Cut labels into small shards from here on."""
    put(engine, "LABELS_PER_SHARD", size)
    put(base, "LABELS_PER_SHARD", size)


def bits(model: Model) -> dict[str, bytes]:
    """Every number of a fitted model."""
    names = ("trace_", "label_distributions_", "prior_distribution_", *model._arrays)
    found = {name: np.ascontiguousarray(getattr(model, name)).tobytes() for name in names}
    return found | {"stopped_": model.stopped_.encode()}


def differing(a: Model, b: Model) -> list[str]:
    """Which numbers of two fitted models are not the same to the last bit."""
    first, second = bits(a), bits(b)
    return [name for name in first | second if first.get(name) != second.get(name)]


def least_memory(model: Model, known: ds.Annotations) -> int:
    """What a fit on one thread is not refused: no messages in it, and no layouts that stay."""
    return model.memory_needed(known)


def stored(annotations: ds.Annotations, folder: Path) -> ds.Annotations:
    """The same labels, opened from a store."""
    table, store = folder / "votes.csv", folder / "votes.store"
    columns = zip(
        annotations.items[annotations.item],
        annotations.annotators[annotations.annotator],
        annotations.classes[annotations.label],
        strict=True,
    )
    table.write_text("\n".join(["item,annotator,label", *(",".join(map(str, row)) for row in columns)]))
    ds.write_store(table, store)
    return ds.read_annotations(store)


class Counting:
    """A watcher that counts iterations, and may stop the fit at one of them."""

    def __init__(self, stop_at: int | None = None, scratch: Path | None = None) -> None:
        self.words: list[str] = []
        self.shares: list[float] = []
        self.messages: list[bool] = []  # whether there were any in the scratch folder
        self._stop_at = stop_at
        self._scratch = scratch

    def __call__(self, words: str, share: float) -> None:
        self.words.append(words)
        self.shares.append(share)
        if self._scratch is not None:
            self.messages.append(any(self._scratch.glob("dissensus-messages-*/array-*")))
        if len(self.words) == self._stop_at:
            raise StoppedError


class StoppedError(Exception):
    """A fit was stopped from outside."""
