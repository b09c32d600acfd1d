"""Training LDL-NM: mini-batches, dropout, Adam, and the best epoch on dev, for several networks side by side.

All networks see the same batches (they differ in their initial weights and dropout). Batches are drawn label
by label, as in the paper, or item by item with all of an item's labels: then a batch of 256 labels projects
some 25 feature vectors and not 256.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dissensus.models.ldlnm.network import Batch, Masks, Weights, forward, gradient


@dataclass(frozen=True)
class TrainingSet:
    """Labels, sorted by item, and what is known of their items."""

    x: Tensor  # (items, features)
    item: NDArray[np.int64]  # (labels,)
    annotator: Tensor  # (labels,)
    targets: Tensor  # (labels, 3 P)
    head_weights: Tensor | None = None  # (3, 1): of the terms of the loss; None: all one


@dataclass(frozen=True)
class Schedule:
    """How to train."""

    epochs: int
    patience: int | None
    batch_size: int
    batch_by: str  # "labels" or "items"
    learning_rate: float
    weight_decay: float
    dropout: float
    feature_dropout: float


@dataclass
class Trained:
    """The best weights of each network and how training went."""

    weights: Weights
    epoch: NDArray[np.int64]  # (networks,): the epoch kept, from 0
    trace: NDArray[np.float64]  # (epochs, networks): the dev loss; empty without one
    stopped: str


class Adam:
    """Adam on one flat tensor (Kingma and Ba 2014); weight decay acts on the first ``decayed`` numbers."""

    def __init__(self, flat: Tensor, rate: float, decay: float, decayed: int) -> None:
        self.flat, self.rate, self.decay, self.decayed = flat, rate, decay, decayed
        self.first, self.second, self.steps = torch.zeros_like(flat), torch.zeros_like(flat), 0

    def step(self, gradient: Tensor, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8) -> None:
        """One step down the gradient, in place."""
        self.steps += 1
        if self.decay:
            gradient[:, : self.decayed].add_(self.flat[:, : self.decayed], alpha=self.decay)
        self.first.lerp_(gradient, 1 - beta1)
        self.second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        # θ ← θ − rate · m̂ / (√v̂ + ε), with m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ)
        root = self.second.sqrt().mul_((1 - beta2**self.steps) ** -0.5).add_(eps)
        self.flat.addcdiv_(self.first, root, value=-self.rate / (1 - beta1**self.steps))


@torch.inference_mode()
def train(
    weights: Weights,
    data: TrainingSet,
    schedule: Schedule,
    dev_loss: Callable[[Weights], Tensor] | None,
    seed: int,
) -> Trained:
    """Train in place; ``dev_loss`` gives one number a network, and each network's best epoch is kept."""
    rng = np.random.default_rng(seed)
    noise = torch.Generator(device=data.x.device).manual_seed(seed)
    adam = Adam(weights.flat, schedule.learning_rate, schedule.weight_decay, weights.shape.decayed)
    slope = Weights.zeros(weights.shape, data.x.device)
    best = _Best(weights)
    for epoch in range(schedule.epochs):
        for batch in epoch_batches(data, schedule, rng):
            seen, masks = _dropped(batch, schedule, noise), _masks(weights, batch, schedule, noise)
            gradient(weights, seen, forward(weights, seen, masks), slope, masks, data.head_weights)
            adam.step(slope.flat)
        if dev_loss is not None:
            best.see(epoch, dev_loss(weights))
            if schedule.patience is not None and epoch - best.epoch.max() >= schedule.patience:
                return best.trained("patience")
    return best.trained("max_iter")


@dataclass
class _Best:
    """Each network's weights at its best epoch so far (the current ones until an epoch was judged)."""

    current: Weights
    flat: Tensor | None = None
    epoch: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    losses: list[NDArray[np.float64]] = field(default_factory=list)

    def see(self, epoch: int, loss: Tensor) -> None:
        now = loss.double().cpu().numpy()
        if self.flat is None:
            self.flat, self.epoch, better = self.current.flat.clone(), np.zeros(len(now), np.int64), None
        else:
            lowest = np.asarray(self.losses)[self.epoch, np.arange(len(now))]
            better = np.flatnonzero(now < lowest)
        self.losses.append(now)
        if better is not None and len(better):
            self.flat[better] = self.current.flat[better]
            self.epoch[better] = epoch

    def trained(self, stopped: str) -> Trained:
        S = len(self.current.flat)
        if self.flat is None:
            return Trained(self.current, np.full(S, -1), np.zeros((0, S)), stopped)
        return Trained(Weights(self.current.shape, self.flat), self.epoch, np.asarray(self.losses), stopped)


# ---- batches and dropout --------------------------------------------------------------------------------


def epoch_batches(data: TrainingSet, schedule: Schedule, rng: np.random.Generator) -> Iterator[Batch]:
    """All labels once, in random order."""
    if schedule.batch_by == "labels":
        return _label_batches(data, schedule.batch_size, rng)
    return _item_batches(data, schedule.batch_size, rng)


def _label_batches(data: TrainingSet, size: int, rng: np.random.Generator) -> Iterator[Batch]:
    order = rng.permutation(len(data.item))
    rows, items = _tensors(data.x.device, order, data.item[order])
    for start in range(0, len(order), size):
        some, of = rows[start : start + size], items[start : start + size]
        yield _batch(data, of, None, some)


def _item_batches(data: TrainingSet, size: int, rng: np.random.Generator) -> Iterator[Batch]:
    """Whole items, as many as have ``size`` labels on average."""
    labelled, first, n = np.unique(data.item, return_index=True, return_counts=True)
    per_batch = max(1, round(size * len(labelled) / len(data.item)))
    order = rng.permutation(len(labelled))
    n = n[order]
    edges = np.concatenate([[0], np.cumsum(n)])
    rows = np.arange(edges[-1]) - np.repeat(edges[:-1] - first[order], n)
    place = np.repeat(np.arange(len(order)) % per_batch, n)
    rows_, place_, items = _tensors(data.x.device, rows, place, labelled[order])
    for start in range(0, len(order), per_batch):
        stop = min(start + per_batch, len(order))
        part = slice(edges[start], edges[stop])
        yield _batch(data, items[start:stop], place_[part], rows_[part])


def _batch(data: TrainingSet, items: Tensor, place: Tensor | None, rows: Tensor) -> Batch:
    return Batch(
        data.x.index_select(0, items),
        place,
        data.annotator.index_select(0, rows),
        data.targets.index_select(0, rows),
    )


def _tensors(device: torch.device, *arrays: NDArray[np.int64]) -> list[Tensor]:
    return [torch.from_numpy(array).to(device) for array in arrays]


def _dropped(batch: Batch, schedule: Schedule, noise: torch.Generator) -> Batch:
    """The batch with some features of each item dropped."""
    if not schedule.feature_dropout:
        return batch
    return batch._replace(x=batch.x * dropout_factors(batch.x.shape, schedule.feature_dropout, noise))


def _masks(weights: Weights, batch: Batch, schedule: Schedule, noise: torch.Generator) -> Masks:
    if not schedule.dropout:
        return None
    shape = (2, weights.shape.networks, len(batch.targets), weights.shape.latent_size)
    both = dropout_factors(shape, schedule.dropout, noise)
    return both[0], both[1]


def dropout_factors(shape: tuple[int, ...], rate: float, noise: torch.Generator) -> Tensor:
    """Dropout's factors: 0 at a chance of ``rate`` (to the nearest 1/256), else what keeps the mean."""
    kept = max(1, round(256 * (1 - rate)))
    n = math.prod(shape)
    # Eight random bytes at a time: drawing a float for each factor would cost more than the network itself.
    words = torch.empty(-(-n // 8), dtype=torch.int64, device=noise.device)
    draws = words.random_(-(2**63), None, generator=noise).view(torch.uint8)[:n]
    return draws.view(shape).lt(kept).float().mul_(256 / kept)
