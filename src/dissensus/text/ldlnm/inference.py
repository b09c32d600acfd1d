"""What a trained LDL-NM is asked: distributions over all annotators, and the embedding of an unknown one.

The part of the network that depends on the item alone, and the part that depends on the annotator alone, are
computed once; only from their sum on does every (item, annotator) pair cost something of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import as_features
from dissensus.metrics import kl_rows
from dissensus.numerics import Array, row_shares
from dissensus.text.ldlnm.network import (
    CELLS,
    Weights,
    annotator_half,
    direct_logits,
    head_logits,
    item_embedding,
    item_half,
    pair_distributions,
    shape_of,
    side_by_side,
    softmax,
    unprojected_logits,
)
from dissensus.text.learners.torch_tools import pick_device, to_numpy

if TYPE_CHECKING:
    from dissensus.text.ldlnm.model import LDLNM

HALVINGS = 40  # how often a step is shortened before a row counts as settled


# ---- a fitted model's arrays as tensors ------------------------------------------------------------------


def weights_of(model: LDLNM) -> Weights:
    """The fitted weights."""
    rows = torch.tensor(model.weights_, device=pick_device(model.device))
    return Weights.of_rows(shape_of(model), rows)


def inputs(model: LDLNM, features: Any) -> Tensor:
    """Features (or texts) as the networks take them."""
    rows = as_features(features, model.embedding)
    if rows.shape[1] != model.features_.shape[1]:
        raise DataError(f"{rows.shape[1]} features came and LDLNM was fitted on {model.features_.shape[1]}")
    return torch.tensor(rows * np.float32(model.feature_scale_), device=pick_device(model.device))


def stored_embeddings(model: LDLNM, w: Weights) -> Tensor:
    """(S, stored annotators, ·): the embeddings of the annotators that trained the networks."""
    if not model.annotators:
        return w["W_A"][:, :1]
    stored = torch.from_numpy(np.flatnonzero(model.annotator_load_)).to(w.flat.device)
    return w["W_A"].index_select(1, stored)


def annotator_shares(model: LDLNM, weight_by: str) -> Tensor:
    """(stored annotators,): each one's say in the ensemble."""
    load = model.annotator_load_[model.annotator_load_ > 0] if model.annotators else np.ones(1)
    mass = load if weight_by == "labels" else np.ones(len(load))
    return torch.tensor(mass / mass.sum(), dtype=torch.float32, device=pick_device(model.device))


def embeddings_of(model: LDLNM, annotator: NDArray[Any]) -> Tensor:
    """(S, rows, annotator size): z_A of annotators by code."""
    rows = model.annotator_embeddings_[annotator].reshape(len(annotator), model.n_networks, -1)
    return torch.tensor(rows.swapaxes(0, 1), device=pick_device(model.device))


def as_rows(chances: Tensor) -> Array:
    """float32 probabilities as float64 rows that sum to one."""
    return row_shares(to_numpy(chances).astype(np.float64))


# ---- distributions ---------------------------------------------------------------------------------------


@torch.inference_mode()
def distributions_by_place(w: Weights, x: Tensor, z_A: Tensor, places: Tensor, head: str) -> Tensor:
    """(pairs, P): the networks' mean for pairs given as (2, pairs) places in x and z_A, a block at a time.

    What depends on the item or the annotator alone is computed once, however many pairs it is part of.
    """
    ours, direct, theirs = item_half(w, x), direct_logits(w, x, head), annotator_half(w, z_A)
    widest = max(ours.shape[2], w.shape.latent_size, w.shape.classes)
    size = max(1, CELLS // (w.shape.networks * widest))
    parts = []
    for i, a in places.split(size, dim=1):  # type: ignore[no-untyped-call]
        logits = head_logits(w, ours[:, i] + theirs[:, a], head) + direct[..., i]
        parts.append(softmax(logits).mean(dim=0).T)
    return torch.cat(parts)


@torch.inference_mode()
def ensemble(
    w: Weights,
    x: Tensor,
    z_A: Tensor,
    chances: Tensor,
    *,
    head: str = "item",
    reduce: str = "expectation",
    projected: bool = True,
    dropout: float = 0.0,
    noise: torch.Generator | None = None,
) -> Tensor:
    """(items, P): every annotator predicts, and the crowd's answer is the mean, or the votes, of all.

    ``chances`` (annotators,) weigh the annotators and sum to one. With ``reduce="mode"`` an entry is the
    share of annotators whose best guess it is, so the largest entry is the mode of their guesses. Without
    ``projected``, W_P is left out, as the paper's ensemble equation is printed.
    """
    S, N, P = z_A.shape[0], z_A.shape[1], w.shape.classes
    theirs = annotator_half(w, z_A) if projected else z_A
    size = max(1, CELLS // (S * N * max(w.shape.latent_size, P)))
    parts = []
    for some in x.split(size):  # type: ignore[no-untyped-call]
        ours = item_half(w, some) if projected else item_embedding(w, some)
        halves = (ours[:, :, None] + theirs[:, None]).flatten(1, 2)
        logits = (
            head_logits(w, halves, head, dropout, noise) if projected else unprojected_logits(w, halves, head)
        ).view(S, P, len(some), N)
        guesses = softmax(logits + direct_logits(w, some, head)[..., None]).mean(dim=0)
        if reduce == "mode":
            guesses = torch.zeros_like(guesses).scatter_(0, guesses.argmax(dim=0, keepdim=True), 1)
        parts.append((guesses @ chances).T)
    return torch.cat(parts) if parts else x.new_zeros(0, P)


# ---- embeddings by descent ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Descent:
    """How to walk downhill: ``rate``, ``steps`` at most, until no row gains ``tol``.

    With ``backtracking`` each row's step is halved until its objective does not rise.
    """

    rate: float
    steps: int
    tol: float
    backtracking: bool = True


def descend(value: Callable[[Tensor], Tensor], start: Tensor, how: Descent) -> tuple[Tensor, Tensor, int]:
    """Gradient descent on independent rows: ``value`` maps (S, rows, ·) to (S, rows).

    Returns where it ended, the objective after every step (steps + 1, S, rows), and the steps taken.
    """
    z = start.clone()
    length = torch.full(start.shape[:-1], how.rate, dtype=start.dtype, device=start.device)
    now, slope = _value_and_slope(value, z)
    trace = [now]
    for _ in range(how.steps):
        ahead = z - length.unsqueeze(-1) * slope
        if how.backtracking:
            ahead, length = _shortened(value, z, slope, now, length)
        z, before = ahead, now
        now, slope = _value_and_slope(value, z)
        trace.append(now)
        if float((before - now).abs().max()) <= how.tol:
            break
        length = (2 * length).clamp(max=how.rate)
    return z, torch.stack(trace), len(trace) - 1


def _value_and_slope(value: Callable[[Tensor], Tensor], z: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        values = value(z)
        (slope,) = torch.autograd.grad(values.sum(), z)
    return values.detach(), slope


def _shortened(
    value: Callable[[Tensor], Tensor], z: Tensor, slope: Tensor, now: Tensor, length: Tensor
) -> tuple[Tensor, Tensor]:
    """Steps halved, row by row, until no row rises; a row that cannot fall stays where it is."""
    for _ in range(HALVINGS):
        ahead = z - length.unsqueeze(-1) * slope
        with torch.no_grad():
            rises = ~(value(ahead) <= now)
        if not rises.any():
            return ahead, length
        length = torch.where(rises, length / 2, length)
    return torch.where(rises.unsqueeze(-1), z, ahead), length


def kl_of_items(w: Weights, x: Tensor, y_I: Tensor) -> Callable[[Tensor], Tensor]:
    """z_A (S, rows, ·) ↦ KL(y_I ‖ ŷ_I) of each row, (S, rows)."""
    ours, direct = item_half(w, x), direct_logits(w, x, "item")
    entropy = torch.xlogy(y_I, y_I).sum(dim=-1)

    def value(z_A: Tensor) -> Tensor:
        logits = head_logits(w, ours + annotator_half(w, z_A), "item") + direct
        return entropy - (y_I.T * logits.log_softmax(dim=1)).sum(dim=1)

    return value


def infer_annotators(
    w: Weights, x: Tensor, y_I: Tensor, starts: list[Tensor], decay: float, how: Descent
) -> tuple[Tensor, Tensor, int]:
    """Algorithm 4 (InferA) for every row at once: z_A from (x, y_I), the best of several starts.

    Returns z_A (S, rows, ·), the best start's objective by step, and the steps taken.
    """
    kl = kl_of_items(w, x, y_I)

    # z_A ← z_A − β ∂KL/∂z_A − γ z_A is a gradient step of rate β on KL + (γ / 2β) ‖z_A‖²
    def value(z_A: Tensor) -> Tensor:
        return kl(z_A) + decay / (2 * how.rate) * z_A.square().sum(dim=-1)

    best, trace, steps = descend(value, starts[0], how)
    for start in starts[1:]:
        other, other_trace, other_steps = descend(value, start, how)
        better = other_trace[-1] < trace[-1]
        best = torch.where(better.unsqueeze(-1), other, best)
        trace = torch.where(better, _padded(other_trace, len(trace)), _padded(trace, len(other_trace)))
        steps = max(steps, other_steps)
    return best, trace, steps


def _padded(trace: Tensor, length: int) -> Tensor:
    """A trace that stays at its last value, so that two of different length can be laid side by side."""
    missing = max(0, length - len(trace))
    return torch.cat([trace, trace[-1:].expand(missing, *trace.shape[1:])])


def fit_annotators(
    w: Weights,
    x: Tensor,
    annotator: Tensor,
    label: Tensor,
    centre: Tensor,
    scale: Tensor,
    how: Descent,
) -> Tensor:
    """(S, annotators, ·): the embeddings that explain the labels of annotators the network has not met.

    Minimises −Σ log ŷ_y over an annotator's labels + ½ ‖(z_A − centre) / scale‖²: the mean and spread of the
    annotators it knows, (S, 1, ·), are what is expected of one with few labels.
    """
    ours, direct = item_half(w, x), direct_logits(w, x, "label")
    n = int(annotator.max()) + 1

    def value(u: Tensor) -> Tensor:
        z_A = (centre + scale * u).index_select(1, annotator)
        log_p = (head_logits(w, ours + annotator_half(w, z_A), "label") + direct).log_softmax(dim=1)
        given = log_p.gather(1, label.expand(len(u), 1, -1)).squeeze(1)
        return 0.5 * u.square().sum(dim=-1) - u.new_zeros(len(u), n).index_add(1, annotator, given)

    start = centre.new_zeros(centre.shape[0], n, centre.shape[2])
    u, _, _ = descend(value, start, how)
    return centre + scale * u


# ---- a model's questions ---------------------------------------------------------------------------------

NEW_ANNOTATOR = Descent(rate=1.0, steps=200, tol=1e-6)


@dataclass(frozen=True)
class Inferred:
    """What iterative inference found for each (x, y_I)."""

    embeddings: NDArray[np.float64]  # (rows, networks · annotator size): z_A
    kl: NDArray[np.float64]  # (rows,): KL(y_I ‖ ŷ_I) at the end
    label_distributions: NDArray[np.float64]  # (rows, P): ŷ …
    item_distributions: NDArray[np.float64]  # … ŷ_I …
    annotator_distributions: NDArray[np.float64]  # … and ŷ_A decoded from x and z_A
    trace: NDArray[np.float64]  # (steps + 1, rows): KL + (γ / 2β) ‖z_A‖², mean over networks
    n_steps: int
    stopped: str


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
