"""Training LDL-NM: mini-batches, dropout, Adam, and the best epoch on dev, for several networks side by side.

All networks see the same batches (they differ in their initial weights and dropout). Batches are drawn label
by label, as in the paper, or item by item with all of an item's labels: then a batch of 256 labels projects
some 25 feature vectors and not 256.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim.adam import adam as adam_step

from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import as_features, features_of
from dissensus.labels.sources import as_annotations
from dissensus.metrics import check_distributions
from dissensus.numerics import Array, row_shares
from dissensus.text.ldlnm.network import (
    CELLS,
    Batch,
    Masks,
    Weights,
    annotator_half,
    direct_logits,
    dropout_factors,
    forward,
    gradient,
    head_logits,
    item_half,
    shape_of,
    side_by_side,
    softmax,
)
from dissensus.text.learners.base import as_pair, check_rows, hold_out
from dissensus.text.learners.torch_tools import pick_device, to_numpy

if TYPE_CHECKING:
    from dissensus.text.ldlnm.model import LDLNM

WATCHED = 16  # annotators asked for each dev item after every epoch
SMOOTHING = 1e-5  # added to both sides of the KL that chooses the epoch

DevLoss = Callable[[Weights], Tensor]


@dataclass(frozen=True)
class TrainingSet:
    """Labels, sorted by item, and what is known of their items."""

    x: Tensor  # (items, features)
    item: NDArray[np.int64]  # (labels,)
    annotator: Tensor  # (labels,)
    targets: Tensor  # (labels, 3 P)
    head_weights: Tensor | None = None  # (3, 1, 1): of the terms of the loss; None: all one


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
    """Adam (Kingma and Ba 2014); weight decay acts on the weights that have it."""

    def __init__(self, weights: Weights, rate: float, decay: float) -> None:
        self.weights, self.rate, self.decay = weights, rate, decay
        shape, like = weights.shape, weights.flat
        self.first, self.second = (Weights.zeros(shape, like.device, like.dtype) for _ in range(2))
        self.steps = torch.zeros((), device=like.device)

    def step(self, gradient: Weights) -> None:
        """One step down the gradient, in place."""
        if self.decay:
            decayed = self.weights.shape.networks * self.weights.shape.decayed
            gradient.flat[:decayed].add_(self.weights.flat[:decayed], alpha=self.decay)
        # θ ← θ − rate · m̂ / (√v̂ + ε), with m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ), in one pass
        adam_step(
            [self.weights.flat],
            [gradient.flat],
            [self.first.flat],
            [self.second.flat],
            [],
            [self.steps],
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )

    def some(self, chosen: NDArray[np.bool_], weights: Weights) -> Adam:
        """The optimiser of some of the networks, whose weights are ``weights``."""
        other = Adam(weights, self.rate, self.decay)
        other.first, other.second = self.first.some(chosen), self.second.some(chosen)
        other.steps = self.steps.clone()
        return other


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
    adam = Adam(weights, schedule.learning_rate, schedule.weight_decay)
    best = _Best(weights)
    for epoch in range(schedule.epochs):
        learn_epoch(weights, adam, data, schedule, rng, noise)
        if dev_loss is not None:
            best.see(epoch, dev_loss(weights))
            if schedule.patience is not None and epoch - best.epoch.max() >= schedule.patience:
                return best.trained("patience")
    return best.trained("max_iter")


def learn_epoch(
    weights: Weights,
    adam: Adam,
    data: TrainingSet,
    schedule: Schedule,
    rng: np.random.Generator,
    noise: torch.Generator,
    *,
    same_dropout: bool = False,
) -> None:
    """One pass over the labels, in place; each network has dropout of its own, or all have the same."""
    slope = Weights.zeros(weights.shape, data.x.device)
    networks = 1 if same_dropout else weights.shape.networks
    for batch in epoch_batches(data, schedule, rng):
        seen, masks = _dropped(batch, schedule, noise), _masks(networks, weights, batch, schedule, noise)
        gradient(weights, seen, forward(weights, seen, masks), slope, data.head_weights)
        adam.step(slope)


@dataclass
class _Best:
    """Each network's weights at its best epoch so far (the current ones until an epoch was judged)."""

    current: Weights
    weights: Weights | None = None
    epoch: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    losses: list[NDArray[np.float64]] = field(default_factory=list)

    def see(self, epoch: int, loss: Tensor) -> None:
        now = loss.double().cpu().numpy()
        if self.weights is None:
            self.weights = Weights(self.current.shape, self.current.flat.clone())
            self.epoch, better = np.zeros(len(now), np.int64), np.zeros(0, np.int64)
        else:
            lowest = np.asarray(self.losses)[self.epoch, np.arange(len(now))]
            better = np.flatnonzero(now < lowest)
        self.losses.append(now)
        if len(better):
            self.weights.put(better, self.current.some(better))
            self.epoch[better] = epoch

    def trained(self, stopped: str) -> Trained:
        S = self.current.shape.networks
        if self.weights is None:
            return Trained(self.current, np.full(S, -1), np.zeros((0, S)), stopped)
        return Trained(self.weights, self.epoch, np.asarray(self.losses), stopped)


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
        data.targets.index_select(0, rows).T.contiguous(),
    )


def _tensors(device: torch.device, *arrays: NDArray[np.int64]) -> list[Tensor]:
    return [torch.from_numpy(array).to(device) for array in arrays]


def _dropped(batch: Batch, schedule: Schedule, noise: torch.Generator) -> Batch:
    """The batch with some features of each item dropped."""
    if not schedule.feature_dropout:
        return batch
    return batch._replace(x=batch.x * dropout_factors(batch.x.shape, schedule.feature_dropout, noise))


def _masks(
    networks: int, weights: Weights, batch: Batch, schedule: Schedule, noise: torch.Generator
) -> Masks:
    if not schedule.dropout:
        return None, None
    shape = (2, networks, len(batch.annotator), weights.shape.latent_size)
    both = dropout_factors(shape, schedule.dropout, noise)
    return both[0], both[1].mT.contiguous()


# ---- a model's fit ---------------------------------------------------------------------------------------


def fit_network(
    model: LDLNM, annotations: Annotations, x: NDArray[np.float32], dev: Any, targets: Array | None
) -> None:
    """Train and put everything learned on the model."""
    train_on, progress = annotations, dev
    if dev is None and model.dev_size:
        train_on, progress = _without_some_items(annotations, x, model)
    device = pick_device(model.device)
    describe(model, train_on, x)
    loss = None if progress is None else dev_loss(model, progress, annotations, device)
    trained = train(
        Weights.orthogonal(shape_of(model), torch.Generator().manual_seed(model.seed)).to(device),
        training_set(model, train_on, x, targets, device),
        schedule_of(model),
        loss,
        model.seed,
    )
    remember(model, trained)


def describe(model: LDLNM, annotations: Annotations, x: NDArray[np.float32]) -> None:
    """What the model knows of its data before anything is learned."""
    model.features_, model.feature_scale_ = x, np.asarray(_scale(x) if model.rescale else 1.0)
    model.annotator_load_ = np.asarray(annotations.annotator_load)
    model.prior_distribution_ = annotations.counts.sum(axis=0) / annotations.n_labels


def remember(model: LDLNM, trained: Trained) -> None:
    """Everything learned, put on the model."""
    model.weights_, model.epoch_ = to_numpy(trained.weights.rows()), trained.epoch
    model.trace_, model.stopped_ = trained.trace.mean(axis=1), trained.stopped
    model.annotator_embeddings_ = side_by_side(trained.weights["W_A"])
    model.known_annotators_ = model.annotator_load_ > 0


def schedule_of(model: LDLNM) -> Schedule:
    """How the model is trained."""
    return Schedule(
        model.epochs,
        model.patience,
        model.batch_size,
        model.batch_by,
        model.learning_rate,
        model.weight_decay,
        model.dropout,
        model.feature_dropout,
    )


# ---- what is trained on -----------------------------------------------------------------------------------


def training_set(
    model: LDLNM, annotations: Annotations, x: NDArray[np.float32], y_I: Array | None, device: torch.device
) -> TrainingSet:
    """Labels with their targets: y one-hot, the item's distribution and the annotator's."""
    item, annotator, label = (
        codes.astype(np.int64) for codes in (annotations.item, annotations.annotator, annotations.label)
    )
    N, P = annotations.n_annotators, annotations.n_classes
    own = np.bincount(annotator * P + label, minlength=N * P).reshape(N, P)
    of_items = row_shares(annotations.counts) if y_I is None else y_I
    if of_items.shape != (annotations.n_items, P):
        raise DataError(
            f"item distributions of shape {of_items.shape} for {annotations.n_items} items, {P} classes"
        )
    targets = np.concatenate([np.eye(P)[label], of_items[item], row_shares(own)[annotator]], axis=1)
    weights = (*model.loss_weights[:2], model.loss_weights[2] if model.annotators else 0.0)
    return TrainingSet(
        torch.from_numpy(x * np.float32(model.feature_scale_)).to(device),
        item,
        torch.from_numpy(annotator).to(device),
        torch.tensor(targets, dtype=torch.float32, device=device),
        None if weights == (1.0, 1.0, 1.0) else torch.tensor(weights, device=device).view(3, 1, 1),
    )


def _scale(x: NDArray[np.float32]) -> float:
    """What brings the features' mean squared length to one, the length of a sentence embedding."""
    mean_square = float(np.square(x, dtype=np.float64).sum(axis=1).mean())
    return mean_square**-0.5 if mean_square else 1.0


# ---- what the epoch is chosen on --------------------------------------------------------------------------


def _without_some_items(
    annotations: Annotations, x: NDArray[np.float32], model: LDLNM
) -> tuple[Annotations, tuple[NDArray[np.float32], Array] | None]:
    """The labels of most items, and the features and distributions of a seeded share of them."""
    labelled = np.flatnonzero(annotations.counts.sum(axis=1))
    if len(labelled) < 2:
        return annotations, None
    _, held = hold_out(len(labelled), model.seed, model.dev_size)
    held = labelled[held]
    kept = annotations.take_rows(~np.isin(annotations.item, held))
    return kept, (x[held], row_shares(annotations.counts[held]))


def dev_loss(model: LDLNM, dev: Any, annotations: Annotations, device: torch.device) -> DevLoss:
    """One number a network: how far its predictions on the dev part are off."""
    if isinstance(dev, tuple | list):
        return distribution_loss(model, *_checked_pair(model, dev), device)
    held = model._in_own_classes(as_annotations(dev))
    codes = annotations.item_vocabulary.codes(held.item_vocabulary)
    labelled = np.unique(held.item)
    if (codes[labelled] >= 0).all():
        return label_loss(model, held, codes, device)
    x = features_of(held, model=model.embedding)
    return distribution_loss(model, x[labelled], row_shares(held.counts[labelled]), device)


def _checked_pair(model: LDLNM, dev: Any) -> tuple[NDArray[np.float32], Array]:
    """Features and distributions of a dev part, one of each an item, in the model's classes."""
    x, gold = as_pair(dev)
    x, gold = as_features(x, model.embedding), check_distributions(gold, "dev distributions")
    check_rows(x, gold, "dev X", "dev distributions")
    P = len(model.class_vocabulary_)
    if gold.shape[1] != P:
        raise DataError(f"dev has {gold.shape[1]} classes and the training part {P}; give a column to each")
    return x, gold


def distribution_loss(model: LDLNM, x: NDArray[np.float32], gold: Array, device: torch.device) -> DevLoss:
    """KL(gold ‖ prediction), a few stored annotators drawn for each item speaking for all of them."""
    J = model.features_.shape[1]
    if x.shape[1] != J:
        raise DataError(f"dev has {x.shape[1]} features an item and the training part {J}; give the same")
    rows = torch.from_numpy(x * np.float32(model.feature_scale_)).to(device)
    truth = torch.tensor((gold + SMOOTHING).T, dtype=torch.float32, device=device)
    drawn = _watched_annotators(model, len(x)).to(device)

    def guesses(w: Weights) -> Iterator[Tensor]:
        """(S, P, some items): the mean of the annotators drawn for them."""
        ours, theirs = item_half(w, rows), annotator_half(w, w["W_A"])
        size = max(1, CELLS // (len(ours) * drawn.shape[1] * ours.shape[2]))
        direct = direct_logits(w, rows, model.head)
        parts = torch.split(ours, size, dim=1), torch.split(direct, size, dim=2), torch.split(drawn, size)
        for some, straight, who in zip(*parts, strict=True):
            of_pairs = theirs.index_select(1, who.flatten()).view(len(theirs), *who.shape, -1)
            logits = head_logits(w, of_pairs.add_(some[:, :, None]).flatten(1, 2), model.head)
            yield softmax(logits.view(*logits.shape[:2], *who.shape) + straight[..., None]).mean(dim=3)

    def loss(w: Weights) -> Tensor:
        guess = torch.cat(list(guesses(w)), dim=2)
        return (truth * (truth.log() - (guess + SMOOTHING).log())).sum(dim=1).mean(dim=1)

    return loss


def _watched_annotators(model: LDLNM, n_items: int) -> Tensor:
    """(items, drawn): stored annotators, drawn once so that epochs are compared on the same ones."""
    load = model.annotator_load_
    if not model.annotators:
        return torch.zeros(n_items, 1, dtype=torch.int64)
    mass = load if model.weight_by == "labels" else (load > 0)
    rng = np.random.default_rng(model.seed)
    return torch.from_numpy(rng.choice(len(load), size=(n_items, WATCHED), p=mass / mass.sum()))


def label_loss(model: LDLNM, held: Annotations, codes: NDArray[Any], device: torch.device) -> DevLoss:
    """−log ŷ_y, the mean over the dev labels that training annotators gave to training items."""
    annotator = model.annotator_vocabulary_.codes(held.annotator_vocabulary)[held.annotator].astype(np.int64)
    known = (annotator >= 0) & (model.annotator_load_[annotator] > 0)
    known |= not model.annotators
    if not known.any():
        raise DataError("dev has no label by an annotator of the training part; give others, or new items")
    rows = model.features_[codes[held.item[known]]] * np.float32(model.feature_scale_)
    x = torch.from_numpy(rows).to(device)
    who = torch.from_numpy(np.maximum(annotator[known], 0)).to(device)
    label = torch.from_numpy(held.label[known].astype(np.int64)).to(device)

    def loss(w: Weights) -> Tensor:
        halves = item_half(w, x) + annotator_half(w, w["W_A"].index_select(1, who))
        log_p = (head_logits(w, halves, "label") + direct_logits(w, x, "label")).log_softmax(dim=1)
        return -log_p.gather(1, label.expand(len(log_p), 1, -1)).mean(dim=(1, 2))

    return loss
