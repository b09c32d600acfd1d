"""LDL-NM's network and its training.

For an item with features x and an annotator a, with φ(v) = v / (1 + |v|) (softsign, which the paper prints as
1/|1 + v|) and σ the softmax:

    z_I = W_I x + b_I          z_A = the annotator's column of W_A                                         (1)
    z_P = φ(W_P φ([z_I, z_A]) + b_P)                                                                      (2)
    z_E = φ(W_E z_P + b_E + z_P)                                                                          (3)
    ŷ = σ(W_y z_E + b_y + D_y x)   ŷ_I = σ(W_yI z_E + b_yI + D_I x)   ŷ_A = σ(W_yA z_E + b_yA)            (4)

[·,·] is concatenation or a sum. The direct paths D are ours (``direct``; the paper has none): with them,
softmax regression is a special case. Dropout acts on z_P and z_E (and on x, ours). The loss of a label y is

    L = −log ŷ_y + KL(y_I ‖ ŷ_I) + KL(y_A ‖ ŷ_A)                                                          (5)

with y_I the item's and y_A the annotator's own label distribution. Autograd differentiates it, Adam descends.

S networks train side by side on the same batches: every parameter has a leading axis S, and the losses are
added up, so no network's gradient depends on another. Their sizes may differ: a small network is a large one
whose further weights are zero. φ(0) = 0, so the gradient of those weights is zero and Adam leaves them there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import kl_div, softsign
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import Features, as_features, features_of
from dissensus.labels.sources import as_annotations
from dissensus.models.scoring import in_classes
from dissensus.numerics import Array, batches, row_shares
from dissensus.text.learners.base import checked_dev
from dissensus.text.learners.torch_tools import pick_device, threads, to_numpy

if TYPE_CHECKING:
    from dissensus.text.ldlnm.model import LDLNM

HEADS = ("label", "item", "annotator")
NUMBERS_PER_BLOCK = 1 << 18  # in the largest array of a step over pairs: as many as a cache holds
DEV_ANNOTATORS = 16  # asked for each dev item after every epoch
SMOOTHING = 1e-5  # added to both sides of the KL that chooses the epoch


class Batch(NamedTuple):
    """Labels, their items' features and their targets."""

    x: Tensor  # (items of the batch, features)
    place: Tensor  # (labels,): which of these items
    annotator: Tensor  # (labels,)
    targets: Tensor  # (3, P, labels): y one-hot, y_I and y_A


class Network(nn.Module):
    """Equations (1) to (4) for all networks of models that differ in sizes and seed alone.

    A random generator as ``noise`` switches dropout on. The networks of one model have dropout of their own;
    several models are trained to be compared, and share it.
    """

    def __init__(self, models: Sequence[LDLNM]) -> None:
        super().__init__()
        self.models, self.dropout, first = list(models), models[0].dropout, models[0]
        n_features, n_annotators = first.features_.shape[1], len(first.annotator_load_)
        S, n_classes = len(models) * first.n_networks, len(first.class_vocabulary_)
        item, annotator, latent = (max(column) for column in zip(*map(_sizes, models), strict=True))
        self.sums = first.fusion == "sum" and annotator > 0

        def zeros(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(S, *shape))

        self.W_I = zeros(item, n_features)
        self.W_P = zeros(item, latent)  # from φ(z_I), or φ(z_I + z_A) …
        self.W_PA = zeros(0 if self.sums else annotator, latent)  # … and from φ(z_A)
        self.W_E = zeros(latent, latent)
        self.W_y = zeros(3, n_classes, latent)
        self.D = zeros(2 if first.direct else 0, n_classes, n_features)
        self.W_A = zeros(n_annotators, annotator)
        self.b_I, self.b_P, self.b_E = zeros(1, item), zeros(1, latent), zeros(1, latent)
        self.b_y = zeros(3, n_classes, 1)

    @classmethod
    def fitted(cls, model: LDLNM) -> Network:
        """The fitted networks of a model."""
        network = cls([model]).requires_grad_(False)
        vector_to_parameters(torch.tensor(model.weights_), network.parameters())
        return network.to(pick_device(model.device))

    @torch.no_grad()
    def start(self) -> Network:
        """Draw orthogonal matrices by each model's seed (Saxe et al. 2013); the rest stays zero."""
        F, N, n = self.W_I.shape[2], self.W_A.shape[1], self.models[0].n_networks
        for place, model in enumerate(self.models):
            noise, (i, a, j) = torch.Generator().manual_seed(model.seed), _sizes(model)
            for s in range(place * n, (place + 1) * n):
                self.W_I[s, :i] = _orthogonal(i, F, noise)
                fused = _orthogonal(i if self.sums else i + a, j, noise)  # one matrix, of both embeddings
                self.W_P[s, :i, :j], self.W_PA[s, : len(fused) - i, :j] = fused[:i], fused[i:]
                self.W_E[s, :j, :j] = _orthogonal(j, j, noise)
                self.W_A[s, :, :a] = _orthogonal(N, a, noise)
                for head in self.W_y[s]:
                    head[:, :j] = _orthogonal(j, len(head), noise).T
        return self

    # ---- equations ------------------------------------------------------------------------------------

    def forward(self, batch: Batch, noise: torch.Generator | None = None) -> Tensor:
        """(S, 3, P, labels): logits of the three heads; items are projected once, whatever their labels."""
        of_item = self.item_part(batch.x).index_select(1, batch.place)
        of_annotator = self.annotator_part(self.W_A.index_select(1, batch.annotator))
        z_E = self.encode(of_item + of_annotator, noise)
        logits = torch.baddbmm(self.b_y.flatten(1, 2), self.W_y.flatten(1, 2), z_E.mT)
        logits = logits.view(*self.W_y.shape[:3], -1)
        if self.D.shape[1]:
            direct = _for_all(self.D.flatten(1, 2), batch.x).view(*self.D.shape[:3], -1)
            logits[:, :2] += direct.index_select(3, batch.place)
        return logits

    def embed_items(self, x: Tensor) -> Tensor:
        """z_I of equation (1), (S, items, item size)."""
        return _for_all(self.W_I, x).mT + self.b_I

    # W_P φ([z_I, z_A]) = W_P φ(z_I) + W_PA φ(z_A): what depends on the item alone, and on the annotator
    # alone, is computed once, however many pairs it is part of.

    def item_part(self, x: Tensor) -> Tensor:
        """(S, items, ·): W_P φ(z_I) + b_P where fusion concatenates, z_I where it sums."""
        z_I = self.embed_items(x)
        return z_I if self.sums else torch.baddbmm(self.b_P, softsign(z_I), self.W_P)

    def annotator_part(self, z_A: Tensor) -> Tensor:
        """(S, annotators, ·): W_PA φ(z_A) where fusion concatenates, z_A where it sums."""
        return z_A if self.sums else softsign(z_A) @ self.W_PA

    def encode(self, fused: Tensor, noise: torch.Generator | None = None) -> Tensor:
        """z_E (S, pairs, latent size) of the summed parts of items and annotators."""
        if self.sums:
            fused = torch.baddbmm(self.b_P, softsign(fused), self.W_P)
        z_P = self._dropped(softsign(fused), noise)
        return self._dropped(self.encode_projected(z_P), noise)

    def encode_projected(self, z_P: Tensor) -> Tensor:
        """z_E of equation (3)."""
        return softsign(torch.baddbmm(self.b_E, z_P, self.W_E) + z_P)

    # Classes stand before pairs: a softmax over a short last axis takes several times as long.

    def head(self, z_E: Tensor, head: str) -> Tensor:
        """(S, P, pairs): one head's logits, the direct path apart."""
        h = HEADS.index(head)
        return torch.baddbmm(self.b_y[:, h], self.W_y[:, h], z_E.mT)

    def direct(self, x: Tensor, head: str) -> Tensor:
        """(S or 1, P, items): logits of a head's direct path; zero where it has none."""
        h, (n, P) = HEADS.index(head), self.D.shape[1:3]
        return _for_all(self.D[:, h], x) if h < n else x.new_zeros(1, P, len(x))

    def _dropped(self, z: Tensor, noise: torch.Generator | None) -> Tensor:
        if noise is None or not self.dropout:
            return z
        return z * dropout_factors((1 if len(self.models) > 1 else len(z), *z.shape[1:]), self.dropout, noise)

    # ---- weights --------------------------------------------------------------------------------------

    def optimiser(self, rate: float, decay: float) -> torch.optim.Adam:
        """Adam (Kingma and Ba 2014); annotators and biases do not decay."""
        matrices = [self.W_I, self.W_P, self.W_PA, self.W_E, self.W_y, self.D]
        others = [self.W_A, self.b_I, self.b_P, self.b_E, self.b_y]
        groups: list[dict[str, Any]] = [{"params": matrices, "weight_decay": decay}, {"params": others}]
        return torch.optim.Adam(groups, lr=rate, fused=True)

    @torch.no_grad()
    def drop_networks(self, stay: Tensor, adam: torch.optim.Adam) -> None:
        """Go on with the marked networks alone."""
        for weights in self.parameters():
            weights.data, weights.grad = weights.data[stay], None
            state = adam.state[weights]
            state.update({name: moment[stay] for name, moment in state.items() if moment.dim()})

    @torch.no_grad()
    def copy_from(self, wider: Network, rows: slice) -> Network:
        """Take over some networks of a wider program, without the zeros around them."""
        for own, weights in zip(self.parameters(), wider.parameters(), strict=True):
            own.copy_(weights[(rows, *map(slice, own.shape[1:]))])
        return self


def _sizes(model: LDLNM) -> tuple[int, int, int]:
    """Sizes of z_I, z_A and z_P."""
    return model.item_size, model.annotator_size if model.annotators else 0, model.latent_size


def _orthogonal(rows: int, columns: int, noise: torch.Generator) -> Tensor:
    return nn.init.orthogonal_(torch.empty(rows, columns), generator=noise)


def _for_all(W: Tensor, x: Tensor) -> Tensor:
    """W x of every network, (S, rows of W, items), in one product: their W stand below each other."""
    return (W.flatten(0, 1) @ x.T).view(*W.shape[:2], len(x))


def loss_terms(logits: Tensor, targets: Tensor) -> Tensor:
    """(S, 3, labels): the three terms of equation (5)."""
    # Of a one-hot t, KL(t ‖ p) = Σ t log t − Σ t log p is −log p_y.
    return kl_div(logits.log_softmax(dim=2), targets, reduction="none").sum(dim=2)


def dropout_factors(shape: tuple[int, ...], rate: float, noise: torch.Generator) -> Tensor:
    """Dropout's factors: 0 at a chance of ``rate`` (to the nearest 1/256), else what keeps the mean."""
    kept = max(1, round(256 * (1 - rate)))
    n = math.prod(shape)
    # Kept where a random byte is < kept, asked as ≤ kept − 1: 256 itself is no byte, and would count as 0.
    # Eight random bytes at a time: torch's own dropout draws a number for each factor, which takes longer
    # than the rest of the network.
    words = torch.empty(-(-n // 8), dtype=torch.int64, device=noise.device)
    draws = words.random_(-(2**63), None, generator=noise).view(torch.uint8)[:n]
    return draws.view(shape).float().le_(kept - 1).mul_(256 / kept)


def pair_logits(
    network: Network, x: Tensor, z_A: Tensor, item: Tensor, annotator: Tensor, head: str
) -> Iterator[Tensor]:
    """Yield (S, P, some pairs): logits of pairs, given by their rows in x and z_A, a block at a time."""
    of_item, of_annotator, direct = network.item_part(x), network.annotator_part(z_A), network.direct(x, head)
    widest = max(of_item.shape[2], *network.W_y.shape[2:])
    size = max(1, NUMBERS_PER_BLOCK // (len(of_item) * widest))
    for i, a in zip(item.split(size), annotator.split(size), strict=True):  # type: ignore[no-untyped-call]
        z_E = network.encode(of_item[:, i] + of_annotator[:, a])
        yield network.head(z_E, head) + direct[..., i]


# ---- training ---------------------------------------------------------------------------------------------

DevLoss = Callable[[Network], Tensor]  # gives one number for each network


@dataclass(frozen=True)
class TrainingSet:
    """Labels, sorted by item, and what is known of their items."""

    x: Tensor  # (items, features)
    item: NDArray[np.int64]  # (labels,)
    annotator: Tensor  # (labels,)
    targets: Tensor  # (labels, 3, P)

    def batches(self, size: int, by: str, rng: np.random.Generator) -> Iterator[Batch]:
        """All labels once, in random order; ``by="items"`` keeps the labels of an item together."""
        if by == "labels":
            order = rng.permutation(len(self.item))
            for rows in (order[part] for part in batches(len(order), size)):
                yield self._batch(self.item[rows], np.arange(len(rows)), rows)
            return
        labelled, first, n = np.unique(self.item, return_index=True, return_counts=True)
        labels_of = np.split(np.arange(len(self.item)), first[1:])
        per_batch = max(1, round(size * len(labelled) / len(self.item)))  # items with ``size`` labels in all
        order = rng.permutation(len(labelled))
        for some in (order[part] for part in batches(len(order), per_batch)):
            place = np.repeat(np.arange(len(some)), n[some])
            yield self._batch(labelled[some], place, np.concatenate([labels_of[i] for i in some]))

    def _batch(self, *codes: NDArray[np.int64]) -> Batch:
        items, place, rows = (torch.from_numpy(array).to(self.x.device) for array in codes)
        targets = self.targets.index_select(0, rows).permute(1, 2, 0).contiguous()
        return Batch(self.x.index_select(0, items), place, self.annotator.index_select(0, rows), targets)


def train(
    network: Network, data: TrainingSet, dev_loss: DevLoss | None, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], str]:
    """Train in place; each network's best epoch on dev is kept.

    Training ends when every network has waited ``patience`` epochs for a better one. Of several models, one
    that has waited so long leaves at once, as if it were trained alone. Returns the epoch kept of each
    network (from 0; −1 without a dev part), the dev loss (epochs, networks), and why training stopped.
    """
    how, S = network.models[0], len(network.W_I)
    rng, noise = np.random.default_rng(seed), torch.Generator(data.x.device).manual_seed(seed)
    adam = network.optimiser(how.learning_rate, how.weight_decay)
    best = [weights.detach().clone() for weights in network.parameters()]
    lowest, kept, trace, stopped = np.full(S, np.inf), np.full(S, -1), [], "max_iter"
    going = np.arange(S)  # the networks that are still in training
    for epoch in range(how.epochs):
        for batch in data.batches(how.batch_size, how.batch_by, rng):
            learn(network, adam, batch, noise)
        if dev_loss is None:
            continue
        with torch.no_grad():
            loss = dev_loss(network).double().cpu().numpy()
        better = (loss < lowest[going]) | (kept[going] < 0)
        rows = going[better]
        lowest[rows], kept[rows] = loss[better], epoch
        for best_weights, weights in zip(best, network.parameters(), strict=True):
            best_weights[torch.from_numpy(rows)] = weights.detach()[torch.from_numpy(better)]
        trace.append(lowest.copy())
        trace[epoch][going] = loss
        stay = epoch - kept[going] < (how.patience or math.inf)
        if not stay.any():
            stopped = "patience"
            break
        if len(network.models) > 1 and not stay.all():
            going = going[stay]
            network.drop_networks(torch.from_numpy(stay), adam)
    if trace:
        for best_weights, weights in zip(best, network.parameters(), strict=True):
            weights.data = best_weights
    return kept, np.asarray(trace).reshape(-1, S), stopped


def learn(network: Network, adam: torch.optim.Adam, batch: Batch, noise: torch.Generator) -> None:
    """One step down the gradient of a batch's mean loss, in place."""
    how = network.models[0]
    if how.feature_dropout:
        batch = batch._replace(x=batch.x * dropout_factors(tuple(batch.x.shape), how.feature_dropout, noise))
    terms = loss_terms(network(batch, noise), batch.targets).mean(dim=2)
    label, item, annotator = how.loss_weights
    loss_weights = terms.new_tensor([label, item, annotator if how.annotators else 0.0])
    adam.zero_grad()
    (terms @ loss_weights).sum().backward()  # type: ignore[no-untyped-call]
    adam.step()


# ---- a model's fit ----------------------------------------------------------------------------------------


def fit_networks(
    models: Sequence[LDLNM], annotations: Annotations, x: Features, y_I: Array | None, dev: Any, seed: int
) -> None:
    """Fit models that differ in sizes and seed alone in one program; their items are not predicted yet.

    Their initial weights go by their own seeds; batches, dropout and the annotators asked on dev by ``seed``.
    """
    mean_square = float(np.square(x, dtype=np.float64).sum(axis=1).mean())
    with threads(models[0].n_threads) as n_threads:
        for model in models:
            # A mean squared length of one is that of sentence embeddings.
            model.feature_scale_ = np.asarray(mean_square**-0.5 if model.rescale and mean_square else 1.0)
            model.features_, model.annotator_load_ = x, np.asarray(annotations.annotator_load)
            model.prior_distribution_ = annotations.counts.sum(axis=0) / annotations.n_labels
            model.n_threads_ = np.asarray(n_threads)
        first, network = models[0], Network(models).start().to(pick_device(models[0].device))
        loss = None if dev is None else dev_loss(first, dev, seed)
        epoch, trace, stopped = train(network, training_set(first, annotations, x, y_I), loss, seed)
    for place, model in enumerate(models):
        rows = slice(place * model.n_networks, (place + 1) * model.n_networks)
        own = Network([model]).copy_from(network, rows)
        model.weights_ = to_numpy(parameters_to_vector(own.parameters()))
        model.annotator_embeddings_ = side_by_side(own.W_A)
        model.known_annotators_ = model.annotator_load_ > 0
        model.epoch_, model.trace_, model.stopped_ = epoch[rows], trace[:, rows].mean(axis=1), stopped


def side_by_side(z: Tensor) -> NDArray[Any]:
    """(S, rows, ·) as (rows, S · ·)."""
    return np.ascontiguousarray(to_numpy(z.transpose(0, 1).flatten(1)))


def inputs(model: LDLNM, features: Any) -> Tensor:
    """Features (or texts) as the model's networks take them."""
    x, J = as_features(features, model.embedding), model.features_.shape[1]
    if x.shape[1] != J:
        raise DataError(f"{x.shape[1]} features came and LDLNM was fitted on {J}")
    return torch.tensor(x * np.float32(model.feature_scale_), device=pick_device(model.device))


def training_set(model: LDLNM, annotations: Annotations, x: Features, y_I: Array | None) -> TrainingSet:
    """Labels with their targets: y one-hot, the item's distribution and the annotator's."""
    item, annotator, label = (codes.astype(np.int64) for codes in annotations.columns)
    N, P = annotations.n_annotators, annotations.n_classes
    own = np.bincount(annotator * P + label, minlength=N * P).reshape(N, P)
    of_items = row_shares(annotations.counts) if y_I is None else y_I
    if of_items.shape != (annotations.n_items, P):
        raise DataError(
            f"item distributions of shape {of_items.shape} for {annotations.n_items} items, {P} classes"
        )
    targets = np.stack([np.eye(P)[label], of_items[item], row_shares(own)[annotator]], axis=1)
    rows, target = inputs(model, x), torch.tensor(targets, dtype=torch.float32)
    return TrainingSet(rows, item, torch.from_numpy(annotator).to(rows.device), target.to(rows.device))


def dev_loss(model: LDLNM, dev: Any, seed: int) -> DevLoss:
    """How far each network's predictions on the dev part are off; ``seed`` draws the annotators asked."""
    P, J = len(model.class_vocabulary_), model.features_.shape[1]
    if isinstance(dev, tuple | list):
        x, gold = checked_dev(dev, P, lambda X: as_features(X, model.embedding))
    else:
        held = in_classes(as_annotations(dev), model.class_vocabulary_)
        codes = model.item_vocabulary_.codes(held.item_vocabulary)
        labelled = np.unique(held.item)
        if (codes[labelled] >= 0).all():
            return _label_loss(model, held, codes)
        x, gold = features_of(held, model=model.embedding)[labelled], row_shares(held.counts[labelled])
    if x.shape[1] != J:
        raise DataError(f"dev has {x.shape[1]} features an item and the training part {J}; give the same")
    return _distribution_loss(model, x, gold, seed)


def _distribution_loss(model: LDLNM, x: Features, gold: Array, seed: int) -> DevLoss:
    """KL(gold ‖ prediction); a few stored annotators, the same in every epoch, answer for each item."""
    rows = inputs(model, x)
    truth = torch.tensor((gold + SMOOTHING).T, dtype=torch.float32, device=rows.device)
    load, drawn = model.annotator_load_, np.zeros((len(x), 1), np.int64)
    if model.annotators:
        mass, size = load if model.weight_by == "labels" else (load > 0), (len(x), DEV_ANNOTATORS)
        drawn = np.random.default_rng(seed).choice(len(load), size=size, p=mass / mass.sum())
    annotator = torch.from_numpy(drawn.flatten()).to(rows.device)
    item = torch.arange(len(x), device=rows.device).repeat_interleave(drawn.shape[1])

    def loss(network: Network) -> Tensor:
        blocks = pair_logits(network, rows, network.W_A, item, annotator, model.head)
        answers = torch.cat([logits.softmax(dim=1) for logits in blocks], dim=2)
        mean = answers.view(*answers.shape[:2], *drawn.shape).mean(dim=3)  # (S, P, items)
        return (truth * (truth.log() - (mean + SMOOTHING).log())).sum(dim=1).mean(dim=1)

    return loss


def _label_loss(model: LDLNM, held: Annotations, codes: NDArray[Any]) -> DevLoss:
    """−log ŷ_y, the mean over the dev labels that training annotators gave to training items."""
    annotator = model.annotator_vocabulary_.codes(held.annotator_vocabulary)[held.annotator].astype(np.int64)
    known = (annotator >= 0) & (model.annotator_load_[annotator] > 0) | (not model.annotators)
    if not known.any():
        raise DataError("dev has no label by an annotator of the training part; give others, or new items")
    items, place = np.unique(held.item[known], return_inverse=True)
    x = inputs(model, model.features_[codes[items]])
    rows = place, np.maximum(annotator[known], 0), held.label[known].astype(np.int64)
    item, who, label = (torch.from_numpy(column).to(x.device) for column in rows)

    def loss(network: Network) -> Tensor:
        blocks = pair_logits(network, x, network.W_A, item, who, "label")
        log_p = torch.cat([logits.log_softmax(dim=1) for logits in blocks], dim=2)
        return -log_p.gather(1, label.expand(len(log_p), 1, -1)).mean(dim=(1, 2))

    return loss
