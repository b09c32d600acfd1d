"""From annotations to tensors and back: how LDLNM's fit, transform and inference call the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dissensus.data.annotations import Annotations
from dissensus.errors import DataError
from dissensus.features.features import as_features, features_of
from dissensus.learners.base import as_pair, check_rows, hold_out
from dissensus.learners.torch_tools import pick_device, to_numpy
from dissensus.metrics import check_distributions, kl_rows
from dissensus.models.base import Array, as_annotations
from dissensus.models.ldlnm.inference import (
    Descent,
    Inferred,
    annotator_half,
    direct_logits,
    fit_annotators,
    head_logits,
    infer_annotators,
    item_half,
    pair_distributions,
)
from dissensus.models.ldlnm.network import Weights
from dissensus.models.ldlnm.tensors import inputs, shape_of, side_by_side, stored_embeddings, weights_of
from dissensus.models.ldlnm.training import Schedule, TrainingSet, train
from dissensus.numerics import row_shares

if TYPE_CHECKING:
    from dissensus.models.ldlnm.model import LDLNM

WATCHED = 16  # annotators asked for each dev item after every epoch
SMOOTHING = 1e-5  # added to both sides of the KL that chooses the epoch
NEW_ANNOTATOR = Descent(rate=1.0, steps=200, tol=1e-6)

DevLoss = Callable[[Weights], Tensor]


def fit_network(
    model: LDLNM, annotations: Annotations, x: NDArray[np.float32], dev: Any, targets: Array | None
) -> None:
    """Train and put everything learned on the model."""
    train_on, progress = annotations, dev
    if dev is None and model.dev_size:
        train_on, progress = _without_some_items(annotations, x, model)
    device = pick_device(model.device)
    model.features_, model.feature_scale_ = x, np.asarray(_scale(x))
    model.annotator_load_ = np.asarray(train_on.annotator_load)
    model.prior_distribution_ = train_on.counts.sum(axis=0) / train_on.n_labels
    loss = None if progress is None else dev_loss(model, progress, annotations, device)
    trained = train(
        Weights.orthogonal(shape_of(model), torch.Generator().manual_seed(model.seed)).to(device),
        training_set(model, train_on, x, targets, device),
        _schedule(model),
        loss,
        model.seed,
    )
    model.weights_, model.epoch_ = to_numpy(trained.weights.flat), trained.epoch
    model.trace_, model.stopped_ = trained.trace.mean(axis=1), trained.stopped
    model.annotator_embeddings_ = side_by_side(trained.weights["W_A"])
    model.known_annotators_ = model.annotator_load_ > 0


def _schedule(model: LDLNM) -> Schedule:
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
        None if weights == (1.0, 1.0, 1.0) else torch.tensor(weights, device=device).view(3, 1),
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
    truth = torch.tensor(gold + SMOOTHING, dtype=torch.float32, device=device)
    drawn = _watched_annotators(model, len(x)).to(device)

    def loss(w: Weights) -> Tensor:
        theirs = annotator_half(w, w["W_A"].index_select(1, drawn.flatten()))
        halves = (item_half(w, rows)[:, :, None] + theirs.view(len(theirs), *drawn.shape, -1)).flatten(1, 2)
        logits = head_logits(w, halves, model.head).view(len(theirs), *drawn.shape, -1)
        guess = (logits + direct_logits(w, rows, model.head)[:, :, None]).softmax(dim=-1).mean(dim=2)
        return (truth * (truth.log() - (guess + SMOOTHING).log())).sum(dim=-1).mean(dim=-1)

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
        log_p = (head_logits(w, halves, "label") + direct_logits(w, x, "label")).log_softmax(dim=-1)
        return -log_p.gather(2, label.expand(len(log_p), -1).unsqueeze(-1)).squeeze(-1).mean(dim=-1)

    return loss


# ---- embeddings found without training --------------------------------------------------------------------


def embed_new_annotators(model: LDLNM, new: Annotations, fitted: LDLNM) -> None:
    """Embeddings for new's annotators: the fitted ones where known, else those that explain their labels."""
    place = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
    known = (place >= 0) & fitted.known_annotators_[place]
    labelled = np.asarray(new.annotator_load) > 0
    width = fitted.annotator_embeddings_.shape[1]
    table = np.zeros((new.n_annotators, width), dtype=np.float32)
    table[known] = fitted.annotator_embeddings_[place[known]]
    fresh = np.flatnonzero(~known & labelled)
    if len(fresh) and model.annotators:
        table[fresh] = _explained(model, new, fresh, fitted)
    model.annotator_embeddings_, model.known_annotators_ = table, known | labelled


def _explained(
    model: LDLNM, new: Annotations, fresh: NDArray[np.int64], fitted: LDLNM
) -> NDArray[np.float32]:
    """(fresh annotators, ·): the embeddings that explain the labels each of them gave."""
    w = weights_of(fitted)
    stored = stored_embeddings(fitted, w)
    rows = np.isin(new.annotator, fresh)
    annotator = np.searchsorted(fresh, new.annotator[rows])
    z_A = fit_annotators(
        w,
        inputs(fitted, model.features_[new.item[rows]]),
        torch.from_numpy(annotator).to(w.flat.device),
        torch.from_numpy(new.label[rows].astype(np.int64)).to(w.flat.device),
        stored.mean(dim=1, keepdim=True),
        stored.std(dim=1, keepdim=True, correction=0),
        NEW_ANNOTATOR,
    )
    return side_by_side(z_A)


def infer(
    model: LDLNM,
    x: Tensor,
    y_I: Array,
    rate: float,
    decay: float,
    max_steps: int,
    sigma: float,
    n_starts: int,
    backtracking: bool,
    tol: float,
    seed: int,
) -> Inferred:
    """Algorithm 4 on the fitted networks, in double precision."""
    w = weights_of(model)
    w = Weights(w.shape, w.flat.double())
    x, target = x.double(), torch.tensor(y_I, device=x.device)
    if target.shape != (len(x), w.shape.classes):
        raise DataError(f"{len(x)} items of {w.shape.classes} classes and distributions of shape {y_I.shape}")
    starts = _starts((w.shape.networks, len(x), w.shape.annotator_size), sigma, n_starts, seed)
    how = Descent(rate, max_steps, tol, backtracking)
    z_A, trace, n_steps = infer_annotators(w, x, target, [s.to(x.device) for s in starts], decay, how)
    label, item, annotator = (
        to_numpy(pair_distributions(w, x, z_A, head)) for head in ("label", "item", "annotator")
    )
    return Inferred(
        side_by_side(z_A),
        kl_rows(y_I, item, smoothing=0.0),
        label,
        item,
        annotator,
        to_numpy(trace.mean(dim=1)),
        n_steps,
        "tolerance" if n_steps < max_steps else "max_iter",
    )


def _starts(shape: tuple[int, int, int], sigma: float, n: int, seed: int) -> list[Tensor]:
    """z_A = 0 unless only N(0, sigma) is asked for; further starts are drawn from N(0, sigma or 1)."""
    noise = torch.Generator().manual_seed(seed)
    drawn = [
        torch.randn(shape, generator=noise, dtype=torch.float64) * (sigma or 1.0)
        for _ in range(n if sigma and n == 1 else n - 1)
    ]
    return drawn if sigma and n == 1 else [torch.zeros(shape, dtype=torch.float64), *drawn]
