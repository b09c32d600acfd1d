"""What a trained LDL-NM is asked: distributions over all annotators, and the embedding of an unknown one.

The part of the network that depends on the item alone, and the part that depends on the annotator alone, are
computed once; only from their sum on does every (item, annotator) pair cost something of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dissensus.models.ldlnm.network import Weights, item_embedding, softsign
from dissensus.models.ldlnm.training import dropout_factors

HEADS = {"label": 0, "item": 1, "annotator": 2}
CELLS = 1 << 21  # numbers in the largest array of a step
HALVINGS = 40  # how often a step is shortened before a row counts as settled


# ---- the network in two halves ----------------------------------------------------------------------------


def item_half(w: Weights, x: Tensor) -> Tensor:
    """(S, items, ·): W_P φ(z_I) + b_P where fusion concatenates, z_I where it sums."""
    z_I = item_embedding(w, x)
    return z_I if w.shape.sums else softsign(z_I) @ w["W_P"][:, : w.shape.item_size] + w["b_P"]


def annotator_half(w: Weights, z_A: Tensor) -> Tensor:
    """(S, annotators, ·): W_P φ(z_A) where fusion concatenates, z_A where it sums."""
    return z_A if w.shape.sums else softsign(z_A) @ w["W_P"][:, w.shape.item_size :]


def head_logits(
    w: Weights, halves: Tensor, head: str, dropout: float = 0.0, noise: torch.Generator | None = None
) -> Tensor:
    """(S, pairs, P): one head's logits of the summed halves, the direct path apart."""
    P, place = w.shape.classes, HEADS[head]
    z_P = softsign(softsign(halves) @ w["W_P"] + w["b_P"] if w.shape.sums else halves)
    z_P = _dropped(z_P, dropout, noise)
    z_E = _dropped(softsign(z_P @ w["W_E"] + w["b_E"] + z_P), dropout, noise)
    return z_E @ w["W_y"][..., place * P : (place + 1) * P] + w["b_y"][..., place * P : (place + 1) * P]


def direct_logits(w: Weights, x: Tensor, head: str) -> Tensor:
    """(S, items, P): what the direct path adds to a head, nothing where there is none."""
    P, place = w.shape.classes, HEADS[head]
    if not w.shape.direct or head == "annotator":
        return x.new_zeros(1, 1, P).expand(1, len(x), P)
    return torch.matmul(x, w["D"][:, place * P : (place + 1) * P].mT)


def _dropped(z: Tensor, rate: float, noise: torch.Generator | None) -> Tensor:
    return z if noise is None or not rate else z * dropout_factors(tuple(z.shape), rate, noise)


def pair_distributions(w: Weights, x: Tensor, z_A: Tensor, head: str) -> Tensor:
    """(pairs, P): the networks' mean distribution of each (item, annotator) pair; z_A is (S, pairs, ·)."""
    logits = head_logits(w, item_half(w, x) + annotator_half(w, z_A), head) + direct_logits(w, x, head)
    return logits.softmax(dim=-1).mean(dim=0)


@torch.inference_mode()
def distributions_by_place(w: Weights, x: Tensor, z_A: Tensor, places: Tensor, head: str) -> Tensor:
    """(pairs, P): the same for pairs given as (2, pairs) places in x and in z_A, a block at a time.

    What depends on the item or the annotator alone is computed once, however many pairs it is part of.
    """
    ours, direct, theirs = item_half(w, x), direct_logits(w, x, head), annotator_half(w, z_A)
    widest = max(ours.shape[2], w.shape.latent_size, w.shape.classes)
    size = max(1, CELLS // (w.shape.networks * widest))
    parts = []
    for i, a in places.split(size, dim=1):  # type: ignore[no-untyped-call]
        logits = head_logits(w, ours[:, i] + theirs[:, a], head) + direct[:, i]
        parts.append(logits.softmax(dim=-1).mean(dim=0))
    return torch.cat(parts)


# ---- the ensemble over annotators ---------------------------------------------------------------------


@torch.inference_mode()
def ensemble(
    w: Weights,
    x: Tensor,
    z_A: Tensor,
    chances: Tensor,
    *,
    head: str = "item",
    reduce: str = "expectation",
    dropout: float = 0.0,
    noise: torch.Generator | None = None,
) -> Tensor:
    """(items, P): every annotator predicts, and the crowd's answer is the mean, or the votes, of all.

    ``chances`` (annotators,) weigh the annotators and sum to one. With ``reduce="mode"`` an entry is the
    share of annotators whose best guess it is, so the largest entry is the mode of their guesses.
    """
    S, N, P = z_A.shape[0], z_A.shape[1], w.shape.classes
    theirs = annotator_half(w, z_A)
    size = max(1, CELLS // (S * N * max(w.shape.latent_size, P)))
    parts = []
    for some in x.split(size):  # type: ignore[no-untyped-call]
        halves = (item_half(w, some)[:, :, None] + theirs[:, None]).flatten(1, 2)
        logits = head_logits(w, halves, head, dropout, noise).view(S, len(some), N, P)
        guesses = (logits + direct_logits(w, some, head)[:, :, None]).softmax(dim=-1).mean(dim=0)
        if reduce == "mode":
            guesses = torch.nn.functional.one_hot(guesses.argmax(dim=-1), P).to(guesses.dtype)
        parts.append(torch.einsum("inp,n->ip", guesses, chances))
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
        return entropy - (y_I * logits.log_softmax(dim=-1)).sum(dim=-1)

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
        log_p = (head_logits(w, ours + annotator_half(w, z_A), "label") + direct).log_softmax(dim=-1)
        given = log_p.gather(2, label.expand(len(u), -1).unsqueeze(-1)).squeeze(-1)
        return 0.5 * u.square().sum(dim=-1) - u.new_zeros(len(u), n).index_add(1, annotator, given)

    start = centre.new_zeros(centre.shape[0], n, centre.shape[2])
    u, _, _ = descend(value, start, how)
    return centre + scale * u


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
