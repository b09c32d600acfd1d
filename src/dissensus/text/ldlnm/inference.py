"""What a trained LDL-NM is asked: distributions over all annotators, and the embedding of an unknown one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import kl_div, softsign

from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.metrics import kl_rows
from dissensus.numerics import Array
from dissensus.text.ldlnm.network import HEADS, NUMBERS_PER_BLOCK, Network, inputs, pair_logits, side_by_side
from dissensus.text.learners.torch_tools import to_numpy

if TYPE_CHECKING:
    from dissensus.text.ldlnm.model import LDLNM

HALVINGS = 40  # of a step before a row counts as settled


# ---- distributions ---------------------------------------------------------------------------------------


@torch.inference_mode()
def pair_distributions(
    network: Network, x: Tensor, z_A: Tensor, item: Tensor, annotator: Tensor, head: str
) -> Tensor:
    """(pairs, P): the networks' mean for pairs given by their rows in x and z_A."""
    blocks = pair_logits(network, x, z_A, item, annotator, head)
    return torch.cat([logits.softmax(dim=1).mean(dim=0).T for logits in blocks])


@torch.inference_mode()
def ensemble(
    network: Network,
    x: Tensor,
    z_A: Tensor,
    shares: Tensor,
    head: str = "item",
    reduce: str = "expectation",
    projected: bool = True,
    noise: torch.Generator | None = None,
) -> Tensor:
    """(items, P): every annotator predicts, and the crowd's answer is the mean, or the votes, of all.

    ``shares`` (annotators,) weigh the annotators and sum to one. With ``reduce="mode"`` an entry is the
    share of annotators whose best guess it is, so the largest entry is the mode of their guesses. Without
    ``projected``, W_P is left out, as the paper's ensemble equation is printed; ``noise`` leaves dropout on.
    """
    (S, N, _), (P, J) = z_A.shape, network.W_y.shape[2:]
    of_annotator = network.annotator_part(z_A) if projected else z_A
    answers = []
    for some in x.split(max(1, NUMBERS_PER_BLOCK // (S * N * max(J, P)))):  # type: ignore[no-untyped-call]
        of_item = network.item_part(some) if projected else network.embed_items(some)
        fused = (of_item[:, :, None] + of_annotator[:, None]).flatten(1, 2)
        # as printed: z = φ(z_I + z_A), z_e = φ(W_E z + z)
        z_E = network.encode(fused, noise) if projected else network.encode_projected(softsign(fused))
        logits = network.head(z_E, head).view(S, P, len(some), N)
        guesses = (logits + network.direct(some, head)[..., None]).softmax(dim=1).mean(dim=0)
        if reduce == "mode":
            guesses = torch.zeros_like(guesses).scatter_(0, guesses.argmax(dim=0, keepdim=True), 1)
        answers.append((guesses @ shares).T)
    return torch.cat(answers) if answers else x.new_zeros(0, P)


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


def descend(value: Callable[[Tensor], Tensor], start: Tensor, how: Descent) -> tuple[Tensor, Tensor]:
    """Gradient descent on independent rows: ``value`` maps (S, rows, ·) to (S, rows).

    Returns where it ended and the objective after every step, (steps + 1, S, rows).
    """
    z = start.detach().clone().requires_grad_()
    length = torch.full(start.shape[:-1], how.rate, dtype=start.dtype, device=start.device)
    now = value(z)
    trace = [now.detach()]
    for _ in range(how.steps):
        (slope,) = torch.autograd.grad(now.sum(), z)
        with torch.no_grad():
            for _ in range(HALVINGS):
                ahead = z - length.unsqueeze(-1) * slope
                rises = ~(value(ahead) <= now) & how.backtracking
                if not rises.any():
                    break
                length = torch.where(rises, length / 2, length)
            else:  # a row that cannot fall stays where it is
                ahead = torch.where(rises.unsqueeze(-1), z, ahead)
        z, before = ahead.requires_grad_(), now.detach()
        now = value(z)
        trace.append(now.detach())
        if float((before - trace[-1]).abs().max()) <= how.tol:
            break
        length = (2 * length).clamp(max=how.rate)
    return z.detach(), torch.stack(trace)


def kl_of_items(network: Network, x: Tensor, y_I: Tensor) -> Callable[[Tensor], Tensor]:
    """z_A (S, rows, ·) ↦ KL(y_I ‖ ŷ_I) of each row, (S, rows)."""
    of_item, direct = network.item_part(x), network.direct(x, "item")

    def value(z_A: Tensor) -> Tensor:
        z_E = network.encode(of_item + network.annotator_part(z_A))
        log_p = (network.head(z_E, "item") + direct).log_softmax(dim=1)
        return kl_div(log_p, y_I.T, reduction="none").sum(dim=1)

    return value


def infer_annotators(
    network: Network, x: Tensor, y_I: Tensor, starts: Tensor, decay: float, how: Descent
) -> tuple[Tensor, Tensor]:
    """Algorithm 4 (InferA) for every row at once: z_A from (x, y_I), the best of several starts.

    ``starts`` is (starts, S, rows, ·). Returns z_A (S, rows, ·) and the best start's objective by step.
    """
    n = len(starts)
    kl = kl_of_items(network, x.repeat(n, 1), y_I.repeat(n, 1))

    # z_A ← z_A − β ∂KL/∂z_A − γ z_A is a gradient step of rate β on KL + (γ / 2β) ‖z_A‖²
    def value(z_A: Tensor) -> Tensor:
        return kl(z_A) + decay / (2 * how.rate) * z_A.square().sum(dim=-1)

    z_A, trace = descend(value, starts.transpose(0, 1).flatten(1, 2), how)
    z_A, trace = z_A.view(len(z_A), n, len(x), -1), trace.view(*trace.shape[:2], n, len(x))
    best = trace[-1].argmin(dim=1, keepdim=True)  # (S, 1, rows)
    z_A = z_A.take_along_dim(best.unsqueeze(-1), dim=1).squeeze(1)
    return z_A, trace.take_along_dim(best.unsqueeze(0), dim=2).squeeze(2)


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


def infer(
    model: LDLNM, x: Tensor, y_I: Array, decay: float, sigma: float, n_starts: int, seed: int, how: Descent
) -> Inferred:
    """Algorithm 4 on the fitted networks, in double precision."""
    network, x = Network.fitted(model).double(), x.double()
    target, P = torch.tensor(y_I, device=x.device), network.W_y.shape[2]
    if target.shape != (len(x), P):
        raise DataError(f"{len(x)} items of {P} classes and distributions of shape {y_I.shape}")
    shape = n_starts, model.n_networks, len(x), model.annotator_size
    starts = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    starts *= sigma or 1.0
    if not (sigma and n_starts == 1):
        starts[0] = 0.0  # z_A = 0 comes first, unless only N(0, sigma) is asked for
    z_A, trace = infer_annotators(network, x, target, starts.to(x.device), decay, how)
    row = torch.arange(len(x), device=x.device)
    label, item, annotator = (to_numpy(pair_distributions(network, x, z_A, row, row, head)) for head in HEADS)
    stopped = "tolerance" if len(trace) <= how.steps else "max_iter"
    kl, path = kl_rows(y_I, item, smoothing=0.0), to_numpy(trace.mean(dim=1))
    return Inferred(side_by_side(z_A), kl, label, item, annotator, path, len(trace) - 1, stopped)


def embed_new_annotators(model: LDLNM, new: Annotations, fitted: LDLNM) -> None:
    """Embeddings for new's annotators: the fitted ones where known, else those that explain their labels."""
    place = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
    known = (place >= 0) & fitted.known_annotators_[place]
    labelled = np.asarray(new.annotator_load) > 0
    table = np.zeros((new.n_annotators, fitted.annotator_embeddings_.shape[1]), dtype=np.float32)
    table[known] = fitted.annotator_embeddings_[place[known]]
    fresh = np.flatnonzero(~known & labelled)
    if len(fresh) and model.annotators:
        rows = np.isin(new.annotator, fresh)
        x = inputs(fitted, model.features_[new.item[rows]])
        annotator, label = (
            torch.from_numpy(codes.astype(np.int64)).to(x.device)
            for codes in (np.searchsorted(fresh, new.annotator[rows]), new.label[rows])
        )
        table[fresh] = side_by_side(explain(Network.fitted(fitted), fitted, x, annotator, label))
    model.annotator_embeddings_, model.known_annotators_ = table, known | labelled


def explain(network: Network, fitted: LDLNM, x: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
    """(S, annotators, ·): the embeddings that explain the labels of annotators the network has not met.

    Minimises −Σ log ŷ_y over an annotator's labels + ½ ‖(z_A − μ) / s‖²: the mean μ and spread s of the
    annotators it knows are what is expected of one with few labels.
    """
    stored = network.W_A[:, torch.from_numpy(fitted.annotator_load_ > 0)]
    mean, spread = stored.mean(dim=1, keepdim=True), stored.std(dim=1, keepdim=True, correction=0)
    of_item, direct = network.item_part(x), network.direct(x, "label")
    n = int(annotator.max()) + 1

    def value(u: Tensor) -> Tensor:
        of_annotator = network.annotator_part(mean + spread * u).index_select(1, annotator)
        log_p = (network.head(network.encode(of_item + of_annotator), "label") + direct).log_softmax(dim=1)
        given = log_p.gather(1, label.expand(len(u), 1, -1)).squeeze(1)
        return 0.5 * u.square().sum(dim=-1) - u.new_zeros(len(u), n).index_add(1, annotator, given)

    u, _ = descend(value, mean.new_zeros(len(mean), n, mean.shape[2]), NEW_ANNOTATOR)
    return mean + spread * u
