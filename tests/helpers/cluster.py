"""Labels, models and comparisons for tests of resources, checkpoints and clusters."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

import dissensus as ds
from dissensus import engine
from dissensus.engine import LOCAL, using
from dissensus.models import base
from dissensus.models.base import Model
from tests.helpers.reading import rows_of
from tests.helpers.sizes import usually

SHARD = usually(400, verify=150)  # labels per shard, so that few labels make many blocks
ITERATIONS = 7  # iterations of every fit

MODELS: dict[str, Callable[..., Model]] = {
    "fmm": lambda **options: ds.FMM(4, max_iter=ITERATIONS, tol=0.0, **options),
    "dawid-skene": lambda **options: ds.DawidSkene(max_iter=ITERATIONS, tol=0.0, **options),
    "cbcc": lambda **options: ds.CBCC(3, max_iter=ITERATIONS, tol=0.0, **options),
    "ibcc": lambda **options: ds.IBCC(max_iter=ITERATIONS, tol=0.0, **options),
    "ebcc": lambda **options: ds.EBCC(2, max_iter=ITERATIONS, tol=0.0, **options),
    "log-linear": lambda **options: ds.LogLinear(max_iter=ITERATIONS, tol=0.0, **options),
    "pgm-bp": lambda **options: ds.PGM(4, 3, max_iter=ITERATIONS, tol=0.0, **options),
    "pgm-vb": lambda **options: ds.PGM(4, 3, inference="vb", max_iter=ITERATIONS, tol=0.0, **options),
    "pgm-pairwise": lambda **options: ds.PGM(
        4, 3, m_step="pairwise", bp_rounds=2, max_iter=ITERATIONS, tol=0.0, **options
    ),
}
WITH_MESSAGES = [name for name in MODELS if name.startswith("pgm")]


@cache
def crowd(seed: int = 0) -> ds.Annotations:
    """Simulate 4,000 labels of 400 items, one with very many, by 60 annotators with nine classes.

    Sums over nine classes depend on their order, which reveals a different memory layout.
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
    columns = {"i": item, "a": annotator, "c": label}
    names = (np.array([f"{kind}{code:03d}" for code in codes]) for kind, codes in columns.items())
    return ds.Annotations.from_arrays(*names)


@cache
def alone(name: str) -> Model:
    """Return a fit in this process and in memory, for tests with ``small_shards``."""
    with using(LOCAL):
        return MODELS[name]().fit(crowd())


def cut_small(put: Callable[..., None] = setattr, size: int = SHARD) -> None:
    """Set a small number of labels per shard."""
    put(engine, "LABELS_PER_SHARD", size)
    put(base, "LABELS_PER_SHARD", size)


def bits(model: Model) -> dict[str, bytes]:
    """Return all arrays of a fitted model as bytes."""
    names = ("trace_", "label_distributions_", "prior_distribution_", *model._arrays)
    arrays = {name: np.ascontiguousarray(getattr(model, name)).tobytes() for name in names}
    return arrays | {"stopped_": model.stopped_.encode()}


def differing(a: Model, b: Model) -> list[str]:
    """Return the names of arrays in which two fitted models differ."""
    first, second = bits(a), bits(b)
    return [name for name in first | second if first.get(name) != second.get(name)]


def least_memory(model: Model, labels: ds.Annotations) -> int:
    """Return the least memory of a fit on one thread."""
    return model.memory_needed(labels)


def stored(annotations: ds.Annotations, folder: Path) -> ds.Annotations:
    """Write labels to a store and open it."""
    table, store = folder / "votes.csv", folder / "votes.store"
    rows = [",".join(map(str, row)) for row in rows_of(annotations)]
    table.write_text("\n".join(["item,annotator,label", *rows]))
    ds.write_store(table, store)
    return ds.read_annotations(store)


class Counting:
    """A progress function that counts iterations and can stop the fit."""

    def __init__(self, stop_at: int | None = None, scratch: Path | None = None) -> None:
        self.words: list[str] = []
        self.shares: list[float] = []
        self.messages: list[bool] = []  # whether the scratch folder had messages
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
    """Raised to stop a fit."""
