"""LDL-NM's network: forward pass, loss and gradient, for several networks at a time.

For an item with features x and an annotator a, with φ(v) = v / (1 + |v|) and σ the softmax:

    z_I = W_I x + b_I          z_A = the annotator's column of W_A                                         (1)
    z_P = φ(W_P φ([z_I, z_A]) + b_P)                                                                      (2)
    z_E = φ(W_E z_P + b_E + z_P)                                                                          (3)
    ŷ = σ(W_y z_E + b_y + D_y x)   ŷ_I = σ(W_yI z_E + b_yI + D_I x)   ŷ_A = σ(W_yA z_E + b_yA)            (4)

[·,·] is concatenation or a sum. The direct paths D are ours (``direct``; the paper has none): with them,
softmax regression is a special case. Dropout acts on z_P and z_E (and on x, ours). The loss of a label y is

    L = −log ŷ_y + KL(y_I ‖ ŷ_I) + KL(y_A ‖ ŷ_A)                                                          (5)

with y_I the item's and y_A the annotator's own label distribution. The gradient is written out below,
equation by equation: at these sizes a recorded graph costs more than the arithmetic.

All tensors have a leading axis S: networks that train side by side on the same batches. Up to z_P a label is
a row, so that annotators' rows can be gathered and added to; from z_E on it is a column, so that a sum over
classes adds long rows. The product in between turns them at no cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dissensus.text.learners.torch_tools import to_numpy

if TYPE_CHECKING:
    from dissensus.text.ldlnm.model import LDLNM

HEADS = {"label": 0, "item": 1, "annotator": 2}
LOG2_E = math.log2(math.e)
CELLS = 1 << 18  # numbers in the largest array of a step over pairs: as many as a cache holds

# The paper prints softsign as 1/|1 + v|; it is v / (1 + |v|).


def softsign(v: Tensor) -> Tensor:
    """φ(v) = v / (1 + |v|)."""
    return v / v.abs().add_(1)


def bent(v: Tensor, factors: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """φ(v) and its slope φ'(v) = 1 / (1 + |v|)², both times dropout's factors; v is overwritten."""
    stretch = v.abs().add_(1)
    value, slope = v.div_(stretch), stretch.pow_(-2)
    return (value, slope) if factors is None else (value.mul_(factors), slope.mul_(factors))


@dataclass(frozen=True)
class Shape:
    """Sizes and form of the network."""

    features: int
    annotators: int
    classes: int
    item_size: int
    annotator_size: int  # 0: the annotator side is left out
    latent_size: int
    fusion: str = "concat"
    direct: bool = False
    networks: int = 1

    @property
    def sums(self) -> bool:
        """Whether item and annotator embeddings are added rather than concatenated."""
        return self.fusion == "sum" and self.annotator_size > 0

    @property
    def blocks(self) -> dict[str, tuple[int, int]]:
        """Every weight's shape: first those that decay, then the annotators, then the biases."""
        J, P = self.latent_size, self.classes
        return {
            "W_I": (self.item_size, self.features),
            "W_P": (self.item_size, J),  # from φ(z_I), or φ(z_I + z_A) …
            "W_PA": (0 if self.sums else self.annotator_size, J),  # … and from φ(z_A)
            "W_E": (J, J),
            "W_y": (J, 3 * P),  # the three heads side by side
            "D": (2 * P if self.direct else 0, self.features),
            "W_A": (self.annotators, self.annotator_size),
            "b_I": (1, self.item_size),
            "b_P": (1, J),
            "b_E": (1, J),
            "b_y": (1, 3 * P),
        }

    @property
    def decayed(self) -> int:
        """How many numbers at the front of a network's weights decay."""
        return sum(a * b for name, (a, b) in self.blocks.items() if name[0] in "WD" and name != "W_A")

    @property
    def size(self) -> int:
        """How many numbers a network has."""
        return sum(a * b for a, b in self.blocks.values())


class Weights:
    """The weights of S networks: one flat row, block after block, and every block as a view of it.

    A block has the matrices of all networks one below the other: products and sums of all are written there
    without a copy.
    """

    def __init__(self, shape: Shape, flat: Tensor) -> None:
        self.shape, self.flat = shape, flat  # flat: (networks · numbers,)
        sizes = [(shape.networks, a, b) for a, b in shape.blocks.values()]
        parts = torch.split(flat, [math.prod(size) for size in sizes])
        self.blocks: dict[str, Tensor] = {
            name: part.view(size) for name, part, size in zip(shape.blocks, parts, sizes, strict=True)
        }

    @classmethod
    def of_rows(cls, shape: Shape, rows: Tensor) -> Weights:
        """From (networks, numbers): a network's blocks, one after the other, in its row."""
        parts = torch.split(rows, [a * b for a, b in shape.blocks.values()], dim=1)
        return cls(shape, torch.cat([part.flatten() for part in parts]))

    def rows(self) -> Tensor:
        """(networks, numbers): each network by itself."""
        return torch.cat([block.flatten(1) for block in self.blocks.values()], dim=1)

    def __getitem__(self, name: str) -> Tensor:
        return self.blocks[name]

    @classmethod
    def zeros(cls, shape: Shape, device: torch.device, dtype: torch.dtype = torch.float32) -> Weights:
        """All weights zero."""
        return cls(shape, torch.zeros(shape.networks * shape.size, device=device, dtype=dtype))

    @classmethod
    def orthogonal(cls, shape: Shape, generator: torch.Generator) -> Weights:
        """Random orthogonal matrices, biases and direct paths zero (Saxe et al. 2013)."""
        weights = cls.zeros(shape, torch.device("cpu"))
        for one in range(shape.networks):
            w = {name: block[one] for name, block in weights.blocks.items()}
            heads = [(head,) for head in torch.split(w["W_y"], shape.classes, dim=1)]
            for parts in ((w["W_I"],), (w["W_P"], w["W_PA"]), (w["W_E"],), (w["W_A"],), *heads):
                _fill_orthogonal(parts, generator)
        return weights

    def some(self, chosen: NDArray[Any]) -> Weights:
        """Some of the networks, by place or by a mark for each."""
        parts = [block[torch.from_numpy(chosen)] for block in self.blocks.values()]
        flat = torch.cat([part.flatten() for part in parts])
        return Weights(replace(self.shape, networks=len(parts[0])), flat)

    def put(self, places: NDArray[np.int64], networks: Weights) -> None:
        """Networks of the same shape put at some places, in place."""
        for name, block in self.blocks.items():
            block[torch.from_numpy(places)] = networks[name]

    def to(self, device: torch.device) -> Weights:
        """The same weights on a device."""
        return Weights(self.shape, self.flat.to(device))


def _fill_orthogonal(parts: Sequence[Tensor], generator: torch.Generator) -> None:
    """The parts of a matrix, one below the other, in place."""
    matrix = torch.cat(list(parts))
    if matrix.numel():
        torch.nn.init.orthogonal_(matrix, generator=generator)
        for part, fresh in zip(parts, torch.split(matrix, [len(part) for part in parts]), strict=True):
            part.copy_(fresh)


class Batch(NamedTuple):
    """Some labels and what they are labels of."""

    x: Tensor  # (items of the batch, features)
    place: Tensor | None  # (labels,): which of these items; None where label i is of row i
    annotator: Tensor  # (labels,)
    targets: Tensor  # (3 P, labels): y one-hot, y_I and y_A


class Pass(NamedTuple):
    """What the forward pass leaves for the gradient; slopes are those of :func:`bent`."""

    item: Tensor  # φ(z_I), (S, items, item size)
    item_slope: Tensor
    annotator: Tensor  # φ(z_A), or φ(z_I + z_A) where fusion sums; (S, labels, annotator size)
    annotator_slope: Tensor
    projected: Tensor  # z_P after dropout, (S, labels, latent size)
    projected_slope: Tensor
    encoded: Tensor  # z_E after dropout, (S, latent size, labels)
    encoded_slope: Tensor
    logits: Tensor  # (S, 3 P, labels)


Masks = tuple[Tensor, Tensor] | tuple[None, None]  # dropout's factors for z_P and z_E: 0 or 1 / (1 − p)


def forward(w: Weights, batch: Batch, masks: Masks = (None, None)) -> Pass:
    """Equations (1) to (4), items projected once however many labels they have."""
    z_I = item_embedding(w, batch.x)
    z_A = w["W_A"].index_select(1, batch.annotator)
    if w.shape.sums:
        z_A += per_label(z_I, batch)
    item, item_slope = bent(z_I)
    annotator, annotator_slope = bent(z_A)
    z_P, projected_slope = bent(_projection(w, batch, item, annotator), masks[0])
    z_E, encoded_slope = bent(_encoding(w, z_P), masks[1])
    logits = torch.baddbmm(w["b_y"].mT, w["W_y"].mT, z_E)
    if w.shape.direct:
        logits[:, : 2 * w.shape.classes] += per_label(_for_all(batch.x, w["D"]), batch).mT
    return Pass(
        item, item_slope, annotator, annotator_slope, z_P, projected_slope, z_E, encoded_slope, logits
    )


def item_embedding(w: Weights, x: Tensor) -> Tensor:
    """z_I of equation (1), (S, items, item size)."""
    return _for_all(x, w["W_I"]) + w["b_I"]


def _for_all(x: Tensor, W: Tensor) -> Tensor:
    """x Wᵀ of every network, (S, items, rows of W), in one product: their W stand below each other."""
    return (W.flatten(0, 1) @ x.T).view(len(W), W.shape[1], len(x)).mT


def _for_all_back(out: Tensor, x: Tensor, into: Tensor) -> None:
    """outᵀ x of every network, (S, columns of out, features), in one product, written into ``into``."""
    torch.mm(out.mT.flatten(0, 1), x, out=into.view(-1, x.shape[1]))


def _projection(w: Weights, batch: Batch, item: Tensor, annotator: Tensor) -> Tensor:
    """W_P φ([z_I, z_A]) + b_P, (S, labels, latent size)."""
    if w.shape.sums:
        return torch.baddbmm(w["b_P"], annotator, w["W_P"])
    # φ([z_I, z_A]) of W_P = φ(z_I) of its item part + φ(z_A) of its annotator part
    from_items = per_label(torch.baddbmm(w["b_P"], item, w["W_P"]), batch)
    return from_items.baddbmm_(annotator, w["W_PA"]) if w.shape.annotator_size else from_items


def _encoding(w: Weights, z_P: Tensor) -> Tensor:
    """W_E z_P + b_E + z_P of equation (3), (S, latent size, labels)."""
    return torch.baddbmm(w["b_E"].mT, _with_residual(w).mT, z_P.mT)


def _with_residual(w: Weights) -> Tensor:
    """W_E + 1, which takes z_P along W_E and along the residual."""
    both = w["W_E"].clone()
    both.diagonal(dim1=1, dim2=2).add_(1)
    return both


def per_label(per_item: Tensor, batch: Batch) -> Tensor:
    """(S, items, ·) repeated for each label of the items."""
    return per_item if batch.place is None else per_item.index_select(1, batch.place)


def per_item(per_label: Tensor, batch: Batch) -> Tensor:
    """(S, labels, ·) summed over the labels of each item."""
    if batch.place is None:
        return per_label
    sums = per_label.new_zeros(per_label.shape[0], len(batch.x), per_label.shape[2])
    return sums.index_add_(1, batch.place, per_label)


def softmax(logits: Tensor, dim: int = 1) -> Tensor:
    """σ over the classes' axis: torch's own, and exponentials to the base e, are slower."""
    chances = (logits - logits.amax(dim, keepdim=True)).mul_(LOG2_E).exp2_()
    return chances.div_(chances.sum(dim, keepdim=True))


def by_head(columns: Tensor, classes: int) -> Tensor:
    """(…, 3 P, labels) seen as (…, 3, P, labels)."""
    return columns.view(*columns.shape[:-2], 3, classes, columns.shape[-1])


def log_heads(logits: Tensor, classes: int) -> Tensor:
    """Log-probabilities of the three heads, (…, 3 P, labels)."""
    return by_head(logits, classes).log_softmax(dim=-2).flatten(-3, -2)


def loss_terms(logits: Tensor, targets: Tensor, classes: int) -> Tensor:
    """(S, 3, labels): the three terms of equation (5)."""
    # KL(t ‖ p) = Σ t log t − Σ t log p; of a one-hot t the first sum is 0, which leaves −log p_y
    each = torch.xlogy(targets, targets) - targets * log_heads(logits, classes)
    return by_head(each, classes).sum(dim=-2)


def gradient(w: Weights, batch: Batch, done: Pass, into: Weights, head_weights: Tensor | None = None) -> None:
    """The gradient of the batch's mean loss, each network's own, written into ``into`` in place.

    ``head_weights`` (3, 1, 1) weigh the terms of the loss.
    """
    P, n = w.shape.classes, len(batch.annotator)
    # ∂L/∂logits = σ(logits) − t for each head
    out = softmax(by_head(done.logits, P), dim=2).sub_(by_head(batch.targets, P)).div_(n)
    out = (out if head_weights is None else out.mul_(head_weights)).flatten(1, 2)
    torch.bmm(done.encoded, out.mT, out=into["W_y"])
    torch.sum(out, dim=2, keepdim=True, out=into["b_y"].mT)
    # through (3): into the argument of z_E
    back = torch.bmm(w["W_y"], out).mul_(done.encoded_slope)
    torch.bmm(done.projected.mT, back.mT, out=into["W_E"])
    torch.sum(back, dim=2, keepdim=True, out=into["b_E"].mT)
    # through (2): along W_E and the residual, into the argument of z_P
    back = torch.bmm(back.mT, _with_residual(w).mT).mul_(done.projected_slope)
    torch.sum(back, dim=1, keepdim=True, out=into["b_P"])
    _into_embeddings(w, batch, done, back, into)
    if w.shape.direct:
        direct = per_item(out[:, : 2 * P].mT, batch)
        _for_all_back(direct, batch.x, into["D"])


def _into_embeddings(w: Weights, batch: Batch, done: Pass, back: Tensor, into: Weights) -> None:
    """From the argument of z_P through the fusion into W_P, W_A and W_I."""
    if w.shape.sums:
        torch.bmm(done.annotator.mT, back, out=into["W_P"])
        into_A = torch.bmm(back, w["W_P"].mT).mul_(done.annotator_slope)
        into_I = per_item(into_A, batch)
    else:
        of_items = per_item(back, batch)
        torch.bmm(done.item.mT, of_items, out=into["W_P"])
        into_I = torch.bmm(w["W_P"], of_items.mT).mT.mul_(done.item_slope)
        torch.bmm(done.annotator.mT, back, out=into["W_PA"])
        into_A = torch.bmm(back, w["W_PA"].mT).mul_(done.annotator_slope)
    into["W_A"].zero_().index_add_(1, batch.annotator, into_A)
    _for_all_back(into_I, batch.x, into["W_I"])
    torch.sum(into_I, dim=1, keepdim=True, out=into["b_I"])


# ---- dropout ---------------------------------------------------------------------------------------------


def dropout_factors(shape: tuple[int, ...], rate: float, noise: torch.Generator) -> Tensor:
    """Dropout's factors: 0 at a chance of ``rate`` (to the nearest 1/256), else what keeps the mean."""
    kept = max(1, round(256 * (1 - rate)))
    n = math.prod(shape)
    # Kept where a random byte is < kept, asked as ≤ kept − 1: 256 itself is no byte, and would count as 0.
    # Eight random bytes at a time: drawing a float for each factor would cost more than the network itself.
    words = torch.empty(-(-n // 8), dtype=torch.int64, device=noise.device)
    draws = words.random_(-(2**63), None, generator=noise).view(torch.uint8)[:n]
    return draws.view(shape).float().le_(kept - 1).mul_(256 / kept)


# ---- the network in two halves ----------------------------------------------------------------------------


def item_half(w: Weights, x: Tensor) -> Tensor:
    """(S, items, ·): W_P φ(z_I) + b_P where fusion concatenates, z_I where it sums."""
    z_I = item_embedding(w, x)
    return z_I if w.shape.sums else softsign(z_I) @ w["W_P"] + w["b_P"]


def annotator_half(w: Weights, z_A: Tensor) -> Tensor:
    """(S, annotators, ·): W_P φ(z_A) where fusion concatenates, z_A where it sums."""
    return z_A if w.shape.sums else softsign(z_A) @ w["W_PA"]


def head_logits(
    w: Weights, halves: Tensor, head: str, dropout: float = 0.0, noise: torch.Generator | None = None
) -> Tensor:
    """(S, P, pairs): one head's logits of the summed halves (S, pairs, ·), the direct path apart."""
    z_P = softsign(softsign(halves) @ w["W_P"] + w["b_P"] if w.shape.sums else halves)
    z_P = _dropped(z_P, dropout, noise)
    z_E = _dropped(softsign(_encoding(w, z_P)).mT, dropout, noise).mT
    return _of_head(w, z_E, head)


def unprojected_logits(w: Weights, summed: Tensor, head: str) -> Tensor:
    """(S, P, pairs): one head's logits of z_I + z_A as the paper's ensemble equation has them, without W_P.

    z = φ(z_I + z_A),  z_e = φ(W_E z + z)
    """
    return _of_head(w, softsign(_encoding(w, softsign(summed))), head)


def _of_head(w: Weights, z_E: Tensor, head: str) -> Tensor:
    """W_y z_E + b_y of one head, (S, P, pairs)."""
    P, place = w.shape.classes, HEADS[head]
    of_head = slice(place * P, (place + 1) * P)
    return torch.baddbmm(w["b_y"][..., of_head].mT, w["W_y"][..., of_head].mT, z_E)


def direct_logits(w: Weights, x: Tensor, head: str) -> Tensor:
    """(S, P, items): what the direct path adds to a head, nothing where there is none."""
    P, place = w.shape.classes, HEADS[head]
    if not w.shape.direct or head == "annotator":
        return x.new_zeros(1, P, 1).expand(1, P, len(x))
    return _for_all(x, w["D"][:, place * P : (place + 1) * P]).mT


def _dropped(z: Tensor, rate: float, noise: torch.Generator | None) -> Tensor:
    return z if noise is None or not rate else z * dropout_factors(tuple(z.shape), rate, noise)


def pair_distributions(w: Weights, x: Tensor, z_A: Tensor, head: str) -> Tensor:
    """(pairs, P): the networks' mean distribution of each (item, annotator) pair; z_A is (S, pairs, ·)."""
    logits = head_logits(w, item_half(w, x) + annotator_half(w, z_A), head) + direct_logits(w, x, head)
    return softmax(logits).mean(dim=0).T


# ---- a model's networks ----------------------------------------------------------------------------------


def shape_of(model: LDLNM) -> Shape:
    """Sizes and form of the model's networks."""
    return Shape(
        features=model.features_.shape[1],
        annotators=len(model.annotator_load_),
        classes=len(model.class_vocabulary_),
        item_size=model.item_size,
        annotator_size=model.annotator_size if model.annotators else 0,
        latent_size=model.latent_size,
        fusion=model.fusion,
        direct=model.direct,
        networks=model.n_networks,
    )


def side_by_side(z: Tensor) -> NDArray[Any]:
    """(S, rows, ·) as (rows, S · ·)."""
    return np.ascontiguousarray(np.concatenate(list(to_numpy(z)), axis=1))
