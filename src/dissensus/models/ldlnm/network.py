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

All tensors have a leading axis S: networks that train side by side on the same batches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dissensus.learners.torch_tools import to_numpy

if TYPE_CHECKING:
    from dissensus.models.ldlnm.model import LDLNM

HEADS = {"label": 0, "item": 1, "annotator": 2}
UNSHIFTED = 60.0  # the exponential of a logit no further from 0 neither overflows nor vanishes

# The paper prints softsign as 1/|1 + v|; it is v / (1 + |v|).


def softsign(v: Tensor) -> Tensor:
    """φ(v) = v / (1 + |v|)."""
    return v / v.abs().add_(1)


def shrinkage(v: Tensor) -> Tensor:
    """s = 1 / (1 + |v|), which gives both φ(v) = v s and φ'(v) = s²."""
    return v.abs().add_(1).reciprocal_()


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
        fused = self.item_size + (0 if self.sums else self.annotator_size)
        return {
            "W_I": (self.item_size, self.features),
            "W_P": (fused, J),
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
    """The weights of S networks: one flat row a network, and every block as a view of it."""

    def __init__(self, shape: Shape, flat: Tensor) -> None:
        self.shape, self.flat = shape, flat  # flat: networks, numbers
        self.blocks: dict[str, Tensor] = {}
        start = 0
        for name, (a, b) in shape.blocks.items():
            self.blocks[name] = flat[:, start : start + a * b].view(len(flat), a, b)
            start += a * b

    def __getitem__(self, name: str) -> Tensor:
        return self.blocks[name]

    @classmethod
    def zeros(cls, shape: Shape, device: torch.device, dtype: torch.dtype = torch.float32) -> Weights:
        """All weights zero."""
        return cls(shape, torch.zeros(shape.networks, shape.size, device=device, dtype=dtype))

    @classmethod
    def orthogonal(cls, shape: Shape, generator: torch.Generator) -> Weights:
        """Random orthogonal matrices, biases and direct paths zero (Saxe et al. 2013)."""
        weights = cls.zeros(shape, torch.device("cpu"))
        P = shape.classes
        for network in range(shape.networks):
            heads = torch.split(weights["W_y"][network], P, dim=1)
            others = [weights[name][network] for name in ("W_I", "W_P", "W_E", "W_A")]
            for matrix in (*others, *heads):
                if matrix.numel():
                    fresh = torch.empty(matrix.shape)
                    matrix.copy_(torch.nn.init.orthogonal_(fresh, generator=generator))
        return weights

    def rows(self, stay: NDArray[np.bool_]) -> Weights:
        """Some of the networks."""
        return self._of(self.flat[torch.from_numpy(stay)])

    def split(self, size: int) -> list[Weights]:
        """All networks, so many at a time."""
        return [self._of(some) for some in self.flat.split(size)]  # type: ignore[no-untyped-call]

    def _of(self, flat: Tensor) -> Weights:
        return Weights(replace(self.shape, networks=len(flat)), flat)

    def to(self, device: torch.device) -> Weights:
        """The same weights on a device."""
        return Weights(self.shape, self.flat.to(device))


class Batch(NamedTuple):
    """Some labels and what they are labels of."""

    x: Tensor  # (items of the batch, features)
    place: Tensor | None  # (labels,): which of these items; None where label i is of row i
    annotator: Tensor  # (labels,)
    targets: Tensor  # (labels, 3 P): y one-hot, y_I and y_A


class Pass(NamedTuple):
    """What the forward pass leaves for the gradient; s is the :func:`shrinkage` of a softsign's argument."""

    item: Tensor  # φ(z_I) where fusion concatenates, z_I where it sums; (S, items, item size)
    item_s: Tensor
    annotator: Tensor  # φ(z_A), or φ(z_I + z_A); (S, labels, annotator size)
    annotator_s: Tensor
    projected: Tensor  # z_P and z_E after dropout; (S, labels, latent size)
    projected_s: Tensor
    encoded: Tensor
    encoded_s: Tensor
    logits: Tensor  # (S, labels, 3 P)


Masks = tuple[Tensor, Tensor] | None  # dropout's factors for z_P and z_E: 0 or 1 / (1 − p)


def forward(w: Weights, batch: Batch, masks: Masks = None) -> Pass:
    """Equations (1) to (4), items projected once however many labels they have."""
    z_I = item_embedding(w, batch.x)
    z_A = w["W_A"].index_select(1, batch.annotator)
    if w.shape.sums:
        z_A += per_label(z_I, batch)
    item_s, annotator_s = shrinkage(z_I), shrinkage(z_A)
    item, annotator = (z_I if w.shape.sums else z_I * item_s), z_A * annotator_s
    into_P = _projection(w, batch, item, annotator)
    projected_s = shrinkage(into_P)
    z_P = into_P * projected_s
    z_P = z_P if masks is None else z_P.mul_(masks[0])
    into_E = torch.baddbmm(w["b_E"] + z_P, z_P, w["W_E"])
    encoded_s = shrinkage(into_E)
    z_E = into_E * encoded_s
    z_E = z_E if masks is None else z_E.mul_(masks[1])
    logits = torch.baddbmm(w["b_y"], z_E, w["W_y"])
    if w.shape.direct:
        logits[..., : 2 * w.shape.classes] += per_label(_for_all(batch.x, w["D"]), batch)
    return Pass(item, item_s, annotator, annotator_s, z_P, projected_s, z_E, encoded_s, logits)


def item_embedding(w: Weights, x: Tensor) -> Tensor:
    """z_I of equation (1), (S, items, item size)."""
    return _for_all(x, w["W_I"]) + w["b_I"]


def _for_all(x: Tensor, W: Tensor) -> Tensor:
    """x Wᵀ of every network, (S, items, rows of W), in one product: their W stand below each other."""
    return (x @ W.flatten(0, 1).T).view(len(x), len(W), W.shape[1]).transpose(0, 1)


def _for_all_back(out: Tensor, x: Tensor, into: Tensor) -> None:
    """outᵀ x of every network, (S, columns of out, features), in one product, written into ``into``."""
    into.copy_((out.transpose(0, 1).flatten(1).T @ x).view_as(into))


def _projection(w: Weights, batch: Batch, item: Tensor, annotator: Tensor) -> Tensor:
    """W_P φ([z_I, z_A]) + b_P, (S, labels, latent size)."""
    if w.shape.sums:
        return torch.baddbmm(w["b_P"], annotator, w["W_P"])
    # φ([z_I, z_A]) W_P = φ(z_I) W_P[item rows] + φ(z_A) W_P[annotator rows]
    J = w.shape.item_size
    from_items = per_label(torch.baddbmm(w["b_P"], item, w["W_P"][:, :J]), batch)
    return from_items.baddbmm_(annotator, w["W_P"][:, J:]) if w.shape.annotator_size else from_items


def per_label(per_item: Tensor, batch: Batch) -> Tensor:
    """(S, items, ·) repeated for each label of the items."""
    return per_item if batch.place is None else per_item.index_select(1, batch.place)


def per_item(per_label: Tensor, batch: Batch) -> Tensor:
    """(S, labels, ·) summed over the labels of each item."""
    if batch.place is None:
        return per_label
    sums = per_label.new_zeros(per_label.shape[0], len(batch.x), per_label.shape[2])
    return sums.index_add_(1, batch.place, per_label)


def softmax(logits: Tensor) -> Tensor:
    """σ over the last axis: torch's own is several times slower where that axis is short."""
    chances = (logits - logits.amax(dim=-1, keepdim=True)).exp_()
    return chances.div_(chances.sum(dim=-1, keepdim=True))


def training_softmax(logits: Tensor) -> Tensor:
    """The same in half the time where no logit is large; a row's last bits may hang on the other rows."""
    if logits.device.type != "cpu":  # a GPU would be waited for
        return softmax(logits)
    least, most = torch.aminmax(logits)
    if not max(float(most), -float(least)) <= UNSHIFTED:  # large, or no number
        return softmax(logits)
    chances = logits.exp()
    # a product with ones adds short rows faster than a sum does
    return chances.div_(chances @ chances.new_ones(logits.shape[-1], 1))


def by_head(columns: Tensor, classes: int) -> Tensor:
    """(…, 3 P) seen as (…, 3, P)."""
    return columns.view(*columns.shape[:-1], 3, classes)


def log_heads(logits: Tensor, classes: int) -> Tensor:
    """Log-probabilities of the three heads, (…, 3 P)."""
    return by_head(logits, classes).log_softmax(dim=-1).flatten(-2)


def loss_terms(logits: Tensor, targets: Tensor, classes: int) -> Tensor:
    """(S, labels, 3): the three terms of equation (5)."""
    # KL(t ‖ p) = Σ t log t − Σ t log p; of a one-hot t the first sum is 0, which leaves −log p_y
    each = torch.xlogy(targets, targets) - targets * log_heads(logits, classes)
    return by_head(each, classes).sum(dim=-1)


def gradient(
    w: Weights,
    batch: Batch,
    done: Pass,
    into: Weights,
    masks: Masks = None,
    head_weights: Tensor | None = None,
) -> None:
    """The gradient of the batch's mean loss, each network's own, written into ``into`` in place.

    ``head_weights`` (3, 1) weigh the terms of the loss.
    """
    P = w.shape.classes
    # ∂L/∂logits = σ(logits) − t for each head
    out = training_softmax(by_head(done.logits, P)).sub_(by_head(batch.targets, P)).div_(len(batch.targets))
    out = (out if head_weights is None else out.mul_(head_weights)).flatten(-2)
    torch.bmm(done.encoded.mT, out, out=into["W_y"])
    torch.sum(out, dim=1, keepdim=True, out=into["b_y"])
    # through (3): into the argument of z_E
    back = torch.bmm(out, w["W_y"].mT).mul_(done.encoded_s.square())
    back = back if masks is None else back.mul_(masks[1])
    torch.bmm(done.projected.mT, back, out=into["W_E"])
    torch.sum(back, dim=1, keepdim=True, out=into["b_E"])
    # through (2): along W_E and the residual, into the argument of z_P
    back = torch.baddbmm(back, back, w["W_E"].mT).mul_(done.projected_s.square())
    back = back if masks is None else back.mul_(masks[0])
    torch.sum(back, dim=1, keepdim=True, out=into["b_P"])
    _into_embeddings(w, batch, done, back, into)
    if w.shape.direct:
        direct = per_item(out[..., : 2 * P], batch)
        _for_all_back(direct, batch.x, into["D"])


def _into_embeddings(w: Weights, batch: Batch, done: Pass, back: Tensor, into: Weights) -> None:
    """From the argument of z_P through the fusion into W_P, W_A and W_I."""
    if w.shape.sums:
        torch.bmm(done.annotator.mT, back, out=into["W_P"])
        into_A = torch.bmm(back, w["W_P"].mT).mul_(done.annotator_s.square())
        into_I = per_item(into_A, batch)
    else:
        J, of_items = w.shape.item_size, per_item(back, batch)
        torch.bmm(done.item.mT, of_items, out=into["W_P"][:, :J])
        into_I = torch.bmm(of_items, w["W_P"][:, :J].mT).mul_(done.item_s.square())
        torch.bmm(done.annotator.mT, back, out=into["W_P"][:, J:])
        into_A = torch.bmm(back, w["W_P"][:, J:].mT).mul_(done.annotator_s.square())
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
    return draws.view(shape).le(kept - 1).float().mul_(256 / kept)


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
    z_E = _dropped(softsign(torch.baddbmm(w["b_E"] + z_P, z_P, w["W_E"])), dropout, noise)
    of_head = slice(place * P, (place + 1) * P)
    return torch.baddbmm(w["b_y"][..., of_head], z_E, w["W_y"][..., of_head])


def unprojected_logits(w: Weights, summed: Tensor, head: str) -> Tensor:
    """(S, pairs, P): one head's logits of z_I + z_A as the paper's ensemble equation has them, without W_P.

    z = φ(z_I + z_A),  z_e = φ(W_E z + z)
    """
    P, place = w.shape.classes, HEADS[head]
    z = softsign(summed)
    z_e = softsign(z @ w["W_E"] + w["b_E"] + z)
    return z_e @ w["W_y"][..., place * P : (place + 1) * P] + w["b_y"][..., place * P : (place + 1) * P]


def direct_logits(w: Weights, x: Tensor, head: str) -> Tensor:
    """(S, items, P): what the direct path adds to a head, nothing where there is none."""
    P, place = w.shape.classes, HEADS[head]
    if not w.shape.direct or head == "annotator":
        return x.new_zeros(1, 1, P).expand(1, len(x), P)
    return _for_all(x, w["D"][:, place * P : (place + 1) * P])


def _dropped(z: Tensor, rate: float, noise: torch.Generator | None) -> Tensor:
    return z if noise is None or not rate else z * dropout_factors(tuple(z.shape), rate, noise)


def pair_distributions(w: Weights, x: Tensor, z_A: Tensor, head: str) -> Tensor:
    """(pairs, P): the networks' mean distribution of each (item, annotator) pair; z_A is (S, pairs, ·)."""
    logits = head_logits(w, item_half(w, x) + annotator_half(w, z_A), head) + direct_logits(w, x, head)
    return softmax(logits).mean(dim=0)


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
