"""Inference with a trained LDL-NM: distributions over all annotators, and embeddings of new annotators."""

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
from dissensus.text.ldlnm.network import HEADS, NUMBERS_PER_BLOCK, Network, Pairs, inputs, join, pair_logits
from dissensus.text.learners.base import to_numpy

if TYPE_CHECKING:
    from dissensus.text.ldlnm.model import LDLNM

MAX_STEP_HALVINGS = 40  # a row whose step was halved this often has converged


# ---- distributions ---------------------------------------------------------------------------------------


@torch.inference_mode()
def pair_distributions(network: Network, x: Tensor, z_A: Tensor, pairs: Pairs, head: str) -> Tensor:
    """Return the mean prediction of the networks, (pairs, P), for pairs of rows of x and z_A."""
    blocks = pair_logits(network, x, z_A, pairs, head)
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
    """Return the mean prediction, or the votes, of all annotators for each item, (items, P).

    ``shares`` (annotators,) are weights that sum to one. With ``reduce="mode"`` an entry is the share of
    annotators whose most probable class it is. Without ``projected``, W_P is omitted, as in the paper's
    ensemble equation; ``noise`` switches dropout on.
    """
    (S, N, _), (P, J) = z_A.shape, network.W_y.shape[2:]
    of_annotator = network.annotator_part(z_A) if projected else z_A
    answers = []
    for block in x.split(max(1, NUMBERS_PER_BLOCK // (S * N * max(J, P)))):  # type: ignore[no-untyped-call]
        of_item = network.item_part(block) if projected else network.embed_items(block)
        fused = (of_item[:, :, None] + of_annotator[:, None]).flatten(1, 2)
        # as printed: z = φ(z_I + z_A), z_e = φ(W_E z + z)
        z_E = network.encode(fused, noise) if projected else network.encode_projected(softsign(fused))
        logits = network.head(z_E, head).view(S, P, len(block), N)
        predictions = (logits + network.direct(block, head)[..., None]).softmax(dim=1).mean(dim=0)
        if reduce == "mode":
            top = predictions.argmax(dim=0, keepdim=True)
            predictions = torch.zeros_like(predictions).scatter_(0, top, 1)
        answers.append((predictions @ shares).T)
    return torch.cat(answers) if answers else x.new_zeros(0, P)


# ---- gradient descent on embeddings -------------------------------------------------------------------


@dataclass(frozen=True)
class Descent:
    """Settings of gradient descent: at most ``steps`` steps, until no row improves by more than ``tol``.

    With ``backtracking``, the step of a row is halved until its objective does not increase.
    """

    rate: float
    steps: int
    tol: float
    backtracking: bool = True


def descend(value: Callable[[Tensor], Tensor], start: Tensor, settings: Descent) -> tuple[Tensor, Tensor]:
    """Minimise ``value``, which maps (S, rows, ·) to (S, rows), by gradient descent on independent rows.

    Return the minimiser and the objective after every step, (steps + 1, S, rows).
    """
    z = start.detach().clone().requires_grad_()
    step = torch.full(start.shape[:-1], settings.rate, dtype=start.dtype, device=start.device)
    objective = value(z)
    trace = [objective.detach()]
    for _ in range(settings.steps):
        (gradient,) = torch.autograd.grad(objective.sum(), z)
        with torch.no_grad():
            for _ in range(MAX_STEP_HALVINGS):
                candidate = z - step.unsqueeze(-1) * gradient
                increases = ~(value(candidate) <= objective) & settings.backtracking
                if not increases.any():
                    break
                step = torch.where(increases, step / 2, step)
            else:  # a row that cannot decrease keeps its value
                candidate = torch.where(increases.unsqueeze(-1), z, candidate)
        z, before = candidate.requires_grad_(), objective.detach()
        objective = value(z)
        trace.append(objective.detach())
        if float((before - trace[-1]).abs().max()) <= settings.tol:
            break
        step = (2 * step).clamp(max=settings.rate)
    return z.detach(), torch.stack(trace)


def kl_of_items(network: Network, x: Tensor, y_I: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the function from z_A (S, rows, ·) to KL(y_I ‖ ŷ_I) of each row, (S, rows)."""
    of_item, direct = network.item_part(x), network.direct(x, "item")

    def value(z_A: Tensor) -> Tensor:
        z_E = network.encode(of_item + network.annotator_part(z_A))
        log_p = (network.head(z_E, "item") + direct).log_softmax(dim=1)
        return kl_div(log_p, y_I.T, reduction="none").sum(dim=1)

    return value


def infer_annotators(
    network: Network, x: Tensor, y_I: Tensor, starts: Tensor, decay: float, settings: Descent
) -> tuple[Tensor, Tensor]:
    """Infer z_A from (x, y_I) by Algorithm 4 (InferA), for all rows at once and from several starts.

    ``starts`` is (starts, S, rows, ·). Return z_A (S, rows, ·) of the best start and its objective by step.
    """
    n = len(starts)
    kl = kl_of_items(network, x.repeat(n, 1), y_I.repeat(n, 1))

    # z_A ← z_A − β ∂KL/∂z_A − γ z_A is a gradient step of rate β on KL + (γ / 2β) ‖z_A‖²
    def value(z_A: Tensor) -> Tensor:
        return kl(z_A) + decay / (2 * settings.rate) * z_A.square().sum(dim=-1)

    z_A, trace = descend(value, starts.transpose(0, 1).flatten(1, 2), settings)
    z_A, trace = z_A.view(len(z_A), n, len(x), -1), trace.view(*trace.shape[:2], n, len(x))
    best = trace[-1].argmin(dim=1, keepdim=True)  # (S, 1, rows)
    z_A = z_A.take_along_dim(best.unsqueeze(-1), dim=1).squeeze(1)
    return z_A, trace.take_along_dim(best.unsqueeze(0), dim=2).squeeze(2)


# ---- inference for a fitted model ------------------------------------------------------------------------

NEW_ANNOTATOR_DESCENT = Descent(rate=1.0, steps=200, tol=1e-6)


@dataclass(frozen=True)
class Inferred:
    """Result of iterative inference for each (x, y_I)."""

    embeddings: NDArray[np.float64]  # (rows, networks · annotator size): z_A
    kl: NDArray[np.float64]  # (rows,): KL(y_I ‖ ŷ_I) at the end
    label_distributions: NDArray[np.float64]  # (rows, P): ŷ decoded from x and z_A
    item_distributions: NDArray[np.float64]  # (rows, P): ŷ_I
    annotator_distributions: NDArray[np.float64]  # (rows, P): ŷ_A
    trace: NDArray[np.float64]  # (steps + 1, rows): KL + (γ / 2β) ‖z_A‖², mean over networks
    n_steps: int
    stopped: str


def infer(
    model: LDLNM,
    x: Tensor,
    y_I: Array,
    settings: Descent,
    decay: float,
    sigma: float,
    n_starts: int,
    seed: int,
) -> Inferred:
    """Run Algorithm 4 on the fitted networks in double precision."""
    network, x = Network.fitted(model).double(), x.double()
    target, P = torch.tensor(y_I, device=x.device), network.W_y.shape[2]
    if target.shape != (len(x), P):
        raise DataError(f"distributions must have shape ({len(x)}, {P}): one row per item; got {y_I.shape}")
    shape = n_starts, model.n_networks, len(x), model.annotator_size
    starts = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    starts *= sigma or 1.0
    if not (sigma and n_starts == 1):
        starts[0] = 0.0  # z_A = 0 first, unless the only start is from N(0, sigma)
    z_A, trace = infer_annotators(network, x, target, starts.to(x.device), decay, settings)
    row = torch.arange(len(x), device=x.device)
    heads = (pair_distributions(network, x, z_A, (row, row), head) for head in HEADS)
    label, item, annotator = map(to_numpy, heads)
    stopped = "tolerance" if len(trace) <= settings.steps else "max_iter"
    kl, path = kl_rows(y_I, item, smoothing=0.0), to_numpy(trace.mean(dim=1))
    return Inferred(join(z_A), kl, label, item, annotator, path, len(trace) - 1, stopped)


def embed_new_annotators(model: LDLNM, new: Annotations, fitted: LDLNM) -> None:
    """Set the annotator embeddings: fitted ones, or for new annotators inferred from their labels."""
    code = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
    is_fitted = (code >= 0) & fitted.known_annotators_[code]
    labelled = np.asarray(new.annotator_load) > 0
    table = np.zeros((new.n_annotators, fitted.annotator_embeddings_.shape[1]), dtype=np.float32)
    table[is_fitted] = fitted.annotator_embeddings_[code[is_fitted]]
    unseen = np.flatnonzero(~is_fitted & labelled)
    if len(unseen) and model.annotators:
        rows = np.isin(new.annotator, unseen)
        x = inputs(fitted, model.features_[new.item[rows]])
        codes = np.stack([np.searchsorted(unseen, new.annotator[rows]), new.label[rows]]).astype(np.int64)
        annotator, label = torch.from_numpy(codes).to(x.device)
        table[unseen] = join(infer_from_labels(fitted, x, annotator, label))
    model.annotator_embeddings_, model.known_annotators_ = table, is_fitted | labelled


def infer_from_labels(fitted: LDLNM, x: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
    """Infer the embeddings (S, annotators, ·) of annotators absent from training from their labels.

    Minimises −Σ log ŷ_y over an annotator's labels + ½ ‖(z_A − μ) / s‖², where the prior has the mean μ and
    standard deviation s of the training annotators.
    """
    network = Network.fitted(fitted)
    stored = network.W_A[:, torch.from_numpy(fitted.annotator_load_ > 0)]
    mean, spread = stored.mean(dim=1, keepdim=True), stored.std(dim=1, keepdim=True, correction=0)
    of_item, direct = network.item_part(x), network.direct(x, "label")
    n = int(annotator.max()) + 1

    def value(u: Tensor) -> Tensor:
        of_annotator = network.annotator_part(mean + spread * u).index_select(1, annotator)
        log_p = (network.head(network.encode(of_item + of_annotator), "label") + direct).log_softmax(dim=1)
        log_likelihood = log_p.gather(1, label.expand(len(u), 1, -1)).squeeze(1)
        return 0.5 * u.square().sum(dim=-1) - u.new_zeros(len(u), n).index_add(1, annotator, log_likelihood)

    u, _ = descend(value, mean.new_zeros(len(mean), n, mean.shape[2]), NEW_ANNOTATOR_DESCENT)
    return mean + spread * u
