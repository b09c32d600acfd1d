"""Networks of many sizes trained in one program: what a search over LDL-NM's sizes runs on.

A network of small sizes is one of larger sizes whose further weights are zero: φ(0) = 0, so what passes
through them forward and back is zero, and Adam leaves them at zero. So the networks of a grid's
cells are laid side by side in one shape that holds them all. They see the same batches and the same dropout,
and differ in their sizes and initial weights; each ends, and leaves the program, by its own patience.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dissensus.labels.annotations import Annotations
from dissensus.labels.features import features_of
from dissensus.params import key_of, with_settings
from dissensus.text.ldlnm.network import Shape, Weights, shape_of
from dissensus.text.ldlnm.training import (
    Adam,
    DevLoss,
    Schedule,
    Trained,
    TrainingSet,
    describe,
    dev_loss,
    learn_epoch,
    remember,
    schedule_of,
    training_set,
)
from dissensus.text.learners.torch_tools import pick_device, seeded, threads

if TYPE_CHECKING:
    from dissensus.text.ldlnm.model import LDLNM

SIZES = ("item_size", "annotator_size", "latent_size")


def fit_all(models: Sequence[LDLNM], annotations: Annotations, dev: Any, seed: int) -> list[LDLNM]:
    """Every model, fitted afresh: those that differ only in sizes and seed in one program.

    ``seed`` is of the batches, the dropout and the annotators watched on dev, which such models share; each
    model's own seed is of its initial weights. They answer questions about features, not about items.
    """
    alike: dict[str, list[int]] = defaultdict(list)
    for place, model in enumerate(models):
        # An ensemble's networks have dropout of their own: it is trained by itself.
        own = place if model.n_networks > 1 else None
        alike[key_of([own, {**model.get_params(), **dict.fromkeys((*SIZES, "seed"))}])].append(place)
    fitted = list(models)
    for places in alike.values():
        some = [models[place] for place in places]
        if some[0].n_networks > 1:
            some = [with_settings(model, {}).fit(annotations, dev=dev) for model in some]
        else:
            some = _fit_alike([with_settings(model, {}) for model in some], annotations, dev, seed)
        for place, model in zip(places, some, strict=True):
            fitted[place] = model
    return fitted


def _fit_alike(models: list[LDLNM], annotations: Annotations, dev: Any, seed: int) -> list[LDLNM]:
    first, watcher = models[0], with_settings(models[0], {"seed": seed})
    device, x = pick_device(first.device), features_of(annotations, first.embedding)
    with threads(first.n_threads) as n_threads:
        for model in (*models, watcher):
            model._begin(annotations)
            model.n_threads_ = np.asarray(n_threads)
            describe(model, annotations, x)
        shapes = [shape_of(model) for model in models]
        starts = [
            Weights.orthogonal(shape, torch.Generator().manual_seed(model.seed))
            for shape, model in zip(shapes, models, strict=True)
        ]
        trained = train_each(
            laid_side_by_side(starts).to(device),
            training_set(first, annotations, x, None, device),
            schedule_of(first),
            dev_loss(watcher, dev, annotations, device),
            seed,
        )
    for model, one in zip(models, _apart(trained, shapes), strict=True):
        remember(model, one)
    return models


# ---- one shape that holds them all ------------------------------------------------------------------------


def laid_side_by_side(networks: Sequence[Weights]) -> Weights:
    """One network each, of any sizes, as rows of one shape; what a network does not have is zero."""
    shapes = [network.shape for network in networks]
    largest = {size: max(getattr(shape, size) for shape in shapes) for size in SIZES}
    whole = replace(shapes[0], **largest, networks=len(networks))
    rows = networks[0].flat.new_zeros(len(networks), whole.size)
    for row, network in zip(rows, networks, strict=True):
        row[places(network.shape, whole)] = network.flat
    return Weights.of_rows(whole, rows)


def places(small: Shape, large: Shape) -> Tensor:
    """(numbers of a small network,): where each stands in a large one's row."""
    parts, start = [], 0
    for (rows, columns), (large_rows, large_columns) in zip(
        small.blocks.values(), large.blocks.values(), strict=True
    ):
        row = torch.arange(rows)
        parts.append((start + row[:, None] * large_columns + torch.arange(columns)).flatten())
        start += large_rows * large_columns
    return torch.cat(parts)


def _apart(trained: Trained, shapes: Sequence[Shape]) -> list[Trained]:
    """Each network by itself, in its own shape."""
    whole, rows = trained.weights.shape, trained.weights.rows()
    return [
        Trained(
            Weights(shape, rows[row, places(shape, whole).to(rows.device)]),
            trained.epoch[row : row + 1],
            trained.trace[:, row : row + 1],
            trained.stopped,
        )
        for row, shape in enumerate(shapes)
    ]


# ---- training ---------------------------------------------------------------------------------------------


@torch.inference_mode()
def train_each(
    weights: Weights, data: TrainingSet, schedule: Schedule, dev_loss: DevLoss, seed: int
) -> Trained:
    """Train in place; each network keeps its best epoch on dev, and leaves once its patience is over."""
    rng, noise = np.random.default_rng(seed), seeded(seed, data.x.device)
    adam = Adam(weights, schedule.learning_rate, schedule.weight_decay)
    best = Weights(weights.shape, weights.flat.clone())
    S = weights.shape.networks
    lowest, kept, trace = np.full(S, np.inf), np.zeros(S, np.int64), []
    going = np.arange(S)  # the networks that are still in training
    for epoch in range(schedule.epochs):
        learn_epoch(weights, adam, data, schedule, rng, noise, same_dropout=True)
        trace.append(lowest.copy())
        trace[epoch][going] = loss = dev_loss(weights).double().cpu().numpy()
        better = loss < lowest[going]
        rows = going[better]
        lowest[rows], kept[rows] = loss[better], epoch
        best.put(rows, weights.some(better))
        if schedule.patience is not None and (epoch - kept[going] >= schedule.patience).any():
            stay = epoch - kept[going] < schedule.patience
            going, weights = going[stay], weights.some(stay)
            adam = adam.some(stay, weights)
            if not len(going):
                break
    return Trained(best, kept, np.asarray(trace), "max_iter" if len(going) else "patience")
