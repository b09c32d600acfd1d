"""LDL-NM's network and its training.

For an item with features x and an annotator a, with φ(v) = v / (1 + |v|) (softsign, which the paper prints as
1/|1 + v|) and σ the softmax:

    z_I = W_I x + b_I          z_A = the annotator's column of W_A                                         (1)
    z_P = φ(W_P φ([z_I, z_A]) + b_P)                                                                      (2)
    z_E = φ(W_E z_P + b_E + z_P)                                                                          (3)
    ŷ = σ(W_y z_E + b_y + D_y x)   ŷ_I = σ(W_yI z_E + b_yI + D_I x)   ŷ_A = σ(W_yA z_E + b_yA)            (4)

[·,·] is concatenation or a sum. The paper has no direct paths D (``direct``); with them, softmax regression
is a special case. Dropout acts on z_P and z_E and, beyond the paper, on x. The loss of a label y is

    L = −log ŷ_y + KL(y_I ‖ ŷ_I) + KL(y_A ‖ ŷ_A)                                                          (5)

with y_I and y_A the label distributions of the item and of the annotator, minimised by Adam.

S networks are trained together on the same batches: every parameter has a leading axis S, and the losses are
summed, so the gradients of the networks are independent. Their sizes may differ: a small network is a large
one whose other weights are zero; since φ(0) = 0, their gradients are zero and Adam leaves them there.
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
from dissensus.labels import as_annotations
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import Features, as_features, features_of
from dissensus.models.scoring import recode_classes
from dissensus.numerics import Array, batches, row_shares
from dissensus.text.learners.base import check_dev, to_numpy, torch_device, torch_threads

if TYPE_CHECKING:
    from dissensus.text.ldlnm.model import LDLNM

HEADS = ("label", "item", "annotator")
NUMBERS_PER_BLOCK = 1 << 18  # size of the largest array per step over pairs, chosen to fit in the cache
DEV_ANNOTATORS = 16  # annotators whose predictions are averaged for a dev item after each epoch
DEV_SMOOTHING = 1e-5  # added to both arguments of the KL that chooses the epoch


class Batch(NamedTuple):
    """Labels with the features of their items and their targets."""

    x: Tensor  # (items of the batch, features)
    row: Tensor  # (labels,): row of the item in x
    annotator: Tensor  # (labels,)
    targets: Tensor  # (3, P, labels): y one-hot, y_I and y_A


Pairs = Sequence[Tensor]  # (pairs,): rows of items, and rows of annotators


class Network(nn.Module):
    """Equations (1) to (4) for all networks of models that differ only in sizes and seed.

    A random generator as ``noise`` switches dropout on. The networks of one model have independent dropout;
    several models, which are trained to be compared, share it.
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
        self.W_P = zeros(item, latent)  # applied to φ(z_I), or to φ(z_I + z_A)
        self.W_PA = zeros(0 if self.sums else annotator, latent)  # applied to φ(z_A)
        self.W_E = zeros(latent, latent)
        self.W_y = zeros(3, n_classes, latent)
        self.D = zeros(2 if first.direct else 0, n_classes, n_features)
        self.W_A = zeros(n_annotators, annotator)
        self.b_I, self.b_P, self.b_E = zeros(1, item), zeros(1, latent), zeros(1, latent)
        self.b_y = zeros(3, n_classes, 1)

    @classmethod
    def fitted(cls, model: LDLNM) -> Network:
        """Return the fitted networks of a model."""
        network = cls([model]).requires_grad_(False)
        vector_to_parameters(torch.tensor(model.weights_), network.parameters())
        return network.to(torch_device(model.device))

    @torch.no_grad()
    def start(self) -> Network:
        """Draw orthogonal matrices with each model's seed (Saxe et al. 2013); other weights stay zero."""
        F, N, n = self.W_I.shape[2], self.W_A.shape[1], self.models[0].n_networks
        for m, model in enumerate(self.models):
            noise, (i, a, j) = torch.Generator().manual_seed(model.seed), _sizes(model)
            for s in range(m * n, (m + 1) * n):
                self.W_I[s, :i] = _orthogonal(i, F, noise)
                fused = _orthogonal(i if self.sums else i + a, j, noise)  # one matrix for both embeddings
                self.W_P[s, :i, :j], self.W_PA[s, : len(fused) - i, :j] = fused[:i], fused[i:]
                self.W_E[s, :j, :j] = _orthogonal(j, j, noise)
                self.W_A[s, :, :a] = _orthogonal(N, a, noise)
                for head in self.W_y[s]:
                    head[:, :j] = _orthogonal(j, len(head), noise).T
        return self

    # ---- equations ------------------------------------------------------------------------------------

    def forward(self, batch: Batch, noise: torch.Generator | None = None) -> Tensor:
        """Return the logits of the three heads, (S, 3, P, labels)."""
        of_item = self.item_part(batch.x).index_select(1, batch.row)
        of_annotator = self.annotator_part(self.W_A.index_select(1, batch.annotator))
        z_E = self.encode(of_item + of_annotator, noise)
        logits = torch.baddbmm(self.b_y.flatten(1, 2), self.W_y.flatten(1, 2), z_E.mT)
        logits = logits.view(*self.W_y.shape[:3], -1)
        if self.D.shape[1]:
            direct = _for_all(self.D.flatten(1, 2), batch.x).view(*self.D.shape[:3], -1)
            logits[:, :2] += direct.index_select(3, batch.row)
        return logits

    def embed_items(self, x: Tensor) -> Tensor:
        """Return z_I of equation (1), (S, items, item size)."""
        return _for_all(self.W_I, x).mT + self.b_I

    # W_P φ([z_I, z_A]) = W_P φ(z_I) + W_PA φ(z_A): the terms of items and of annotators are computed once
    # each, not once per pair.

    def item_part(self, x: Tensor) -> Tensor:
        """Return W_P φ(z_I) + b_P if fusion concatenates, z_I if it sums; (S, items, ·)."""
        z_I = self.embed_items(x)
        return z_I if self.sums else torch.baddbmm(self.b_P, softsign(z_I), self.W_P)

    def annotator_part(self, z_A: Tensor) -> Tensor:
        """Return W_PA φ(z_A) if fusion concatenates, z_A if it sums; (S, annotators, ·)."""
        return z_A if self.sums else softsign(z_A) @ self.W_PA

    def encode(self, fused: Tensor, noise: torch.Generator | None = None) -> Tensor:
        """Return z_E (S, pairs, latent size) of summed item and annotator parts."""
        if self.sums:
            fused = torch.baddbmm(self.b_P, softsign(fused), self.W_P)
        z_P = self._dropped(softsign(fused), noise)
        return self._dropped(self.encode_projected(z_P), noise)

    def encode_projected(self, z_P: Tensor) -> Tensor:
        """Return z_E of equation (3)."""
        return softsign(torch.baddbmm(self.b_E, z_P, self.W_E) + z_P)

    # Classes come before pairs: a softmax over a short last axis is several times slower.

    def head(self, z_E: Tensor, head: str) -> Tensor:
        """Return the logits of a head without the direct path, (S, P, pairs)."""
        h = HEADS.index(head)
        return torch.baddbmm(self.b_y[:, h], self.W_y[:, h], z_E.mT)

    def direct(self, x: Tensor, head: str) -> Tensor:
        """Return the logits of the direct path of a head, or zeros; (S or 1, P, items)."""
        h, (n, P) = HEADS.index(head), self.D.shape[1:3]
        return _for_all(self.D[:, h], x) if h < n else x.new_zeros(1, P, len(x))

    def _dropped(self, z: Tensor, noise: torch.Generator | None) -> Tensor:
        if noise is None or not self.dropout:
            return z
        return z * dropout_factors((1 if len(self.models) > 1 else len(z), *z.shape[1:]), self.dropout, noise)

    def optimiser(self, rate: float, decay: float) -> torch.optim.Adam:
        """Create Adam (Kingma and Ba 2014), without weight decay for annotators and biases."""
        matrices = [self.W_I, self.W_P, self.W_PA, self.W_E, self.W_y, self.D]
        others = [self.W_A, self.b_I, self.b_P, self.b_E, self.b_y]
        groups: list[dict[str, Any]] = [{"params": matrices, "weight_decay": decay}, {"params": others}]
        return torch.optim.Adam(groups, lr=rate, fused=True)

    @torch.no_grad()
    def drop_networks(self, stay: Tensor, adam: torch.optim.Adam) -> None:
        """Keep only the marked networks in training."""
        for weights in self.parameters():
            weights.data, weights.grad = weights.data[stay], None
            state = adam.state[weights]
            state.update({name: moment[stay] for name, moment in state.items() if moment.dim()})

    @torch.no_grad()
    def copy_from(self, wider: Network, rows: slice) -> Network:
        """Copy networks out of a wider one, without the padding zeros."""
        for target, weights in zip(self.parameters(), wider.parameters(), strict=True):
            target.copy_(weights[(rows, *map(slice, target.shape[1:]))])
        return self


def _sizes(model: LDLNM) -> tuple[int, int, int]:
    """Return the sizes of z_I, z_A and z_P."""
    return model.item_size, model.annotator_size if model.annotators else 0, model.latent_size


def _orthogonal(rows: int, columns: int, noise: torch.Generator) -> Tensor:
    return nn.init.orthogonal_(torch.empty(rows, columns), generator=noise)


def _for_all(W: Tensor, x: Tensor) -> Tensor:
    """Return W x of every network, (S, rows of W, items), as one product of the stacked matrices."""
    return (W.flatten(0, 1) @ x.T).view(*W.shape[:2], len(x))


def loss_terms(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the three terms of equation (5), (S, 3, labels)."""
    # For a one-hot t, KL(t ‖ p) = Σ t log t − Σ t log p is −log p_y.
    return kl_div(logits.log_softmax(dim=2), targets, reduction="none").sum(dim=2)


def dropout_factors(shape: tuple[int, ...], rate: float, noise: torch.Generator) -> Tensor:
    """Draw dropout factors: 0 with probability ``rate`` (to the nearest 1/256), otherwise 1 / (1 − rate)."""
    threshold = max(1, round(256 * (1 - rate)))
    n = math.prod(shape)
    # A factor is kept if a random byte is < threshold; written as ≤ threshold − 1, since 256 is not a byte.
    # Eight bytes are drawn at once: torch's dropout draws a number per factor, which would take longer than
    # the rest of the network.
    words = torch.empty(-(-n // 8), dtype=torch.int64, device=noise.device)
    draws = words.random_(-(2**63), None, generator=noise).view(torch.uint8)[:n]
    return draws.view(shape).float().le_(threshold - 1).mul_(256 / threshold)


def pair_logits(network: Network, x: Tensor, z_A: Tensor, pairs: Pairs, head: str) -> Iterator[Tensor]:
    """Yield the logits of pairs of rows of x and z_A in blocks, (S, P, pairs of the block)."""
    of_item, of_annotator, direct = network.item_part(x), network.annotator_part(z_A), network.direct(x, head)
    size = max(1, NUMBERS_PER_BLOCK // (len(of_item) * max(of_item.shape[2], *network.W_y.shape[2:])))
    for i, a in zip(*(rows.split(size) for rows in pairs), strict=True):  # type: ignore[no-untyped-call]
        z_E = network.encode(of_item[:, i] + of_annotator[:, a])
        yield network.head(z_E, head) + direct[..., i]


# ---- training ---------------------------------------------------------------------------------------------

DevLoss = Callable[[Network], Tensor]  # returns one number for each network


@dataclass(frozen=True)
class TrainingSet:
    """Labels sorted by item, with features and targets."""

    x: Tensor  # (items, features)
    item: NDArray[np.int64]  # (labels,)
    annotator: Tensor  # (labels,)
    targets: Tensor  # (labels, 3, P)

    def batches(self, size: int, by: str, rng: np.random.Generator) -> Iterator[Batch]:
        """Yield all labels once in random order; ``by="items"`` keeps the labels of an item together."""
        if by == "labels":
            order = rng.permutation(len(self.item))
            for rows in (order[part] for part in batches(len(order), size)):
                yield self._batch(self.item[rows], np.arange(len(rows)), rows)
            return
        labelled, first, n = np.unique(self.item, return_index=True, return_counts=True)
        labels_of = np.split(np.arange(len(self.item)), first[1:])
        # number of items that have ``size`` labels together
        per_batch = max(1, round(size * len(labelled) / len(self.item)))
        order = rng.permutation(len(labelled))
        for items in (order[part] for part in batches(len(order), per_batch)):
            row = np.repeat(np.arange(len(items)), n[items])
            yield self._batch(labelled[items], row, np.concatenate([labels_of[i] for i in items]))

    def _batch(self, *codes: NDArray[np.int64]) -> Batch:
        items, row, labels = (torch.from_numpy(array).to(self.x.device) for array in codes)
        targets = self.targets.index_select(0, labels).permute(1, 2, 0).contiguous()
        return Batch(self.x.index_select(0, items), row, self.annotator.index_select(0, labels), targets)


def train(
    network: Network, data: TrainingSet, dev_loss: DevLoss | None, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], str]:
    """Train in place and keep each network's best epoch on dev.

    Training stops when no network has improved for ``patience`` epochs. One of several models stops as soon
    as its own patience is exhausted, as if it were trained alone. Return the epoch kept of each network (from
    0; −1 without a dev set), the dev loss (epochs, networks), and the reason for stopping.
    """
    model, S = network.models[0], len(network.W_I)
    rng, noise = np.random.default_rng(seed), torch.Generator(data.x.device).manual_seed(seed)
    adam = network.optimiser(model.learning_rate, model.weight_decay)
    best = [weights.detach().clone() for weights in network.parameters()]
    lowest, best_epoch, trace, stopped = np.full(S, np.inf), np.full(S, -1), [], "max_iter"
    active = np.arange(S)  # networks still in training
    for epoch in range(model.epochs):
        for batch in data.batches(model.batch_size, model.batch_by, rng):
            train_step(network, adam, batch, noise)
        if dev_loss is None:
            continue
        with torch.no_grad():
            loss = dev_loss(network).double().cpu().numpy()
        better = (loss < lowest[active]) | (best_epoch[active] < 0)
        rows = active[better]
        lowest[rows], best_epoch[rows] = loss[better], epoch
        for best_weights, weights in zip(best, network.parameters(), strict=True):
            best_weights[torch.from_numpy(rows)] = weights.detach()[torch.from_numpy(better)]
        trace.append(lowest.copy())
        trace[epoch][active] = loss
        stay = epoch - best_epoch[active] < (model.patience or math.inf)
        if not stay.any():
            stopped = "patience"
            break
        if len(network.models) > 1 and not stay.all():
            active = active[stay]
            network.drop_networks(torch.from_numpy(stay), adam)
    if trace:
        for best_weights, weights in zip(best, network.parameters(), strict=True):
            weights.data = best_weights
    return best_epoch, np.asarray(trace).reshape(-1, S), stopped


def train_step(network: Network, adam: torch.optim.Adam, batch: Batch, noise: torch.Generator) -> None:
    """Take one gradient step on the mean loss of a batch, in place."""
    model = network.models[0]
    if model.feature_dropout:
        factors = dropout_factors(tuple(batch.x.shape), model.feature_dropout, noise)
        batch = batch._replace(x=batch.x * factors)
    terms = loss_terms(network(batch, noise), batch.targets).mean(dim=2)
    label, item, annotator = model.loss_weights
    loss_weights = terms.new_tensor([label, item, annotator if model.annotators else 0.0])
    adam.zero_grad()
    (terms @ loss_weights).sum().backward()  # type: ignore[no-untyped-call]
    adam.step()


# ---- fitting a model --------------------------------------------------------------------------------------


def fit_networks(
    models: Sequence[LDLNM], annotations: Annotations, x: Features, y_I: Array | None, dev: Any, seed: int
) -> None:
    """Fit models that differ only in sizes and seed together, without predicting their items.

    Initial weights depend on each model's seed; batches, dropout and the annotators drawn for dev depend on
    ``seed``.
    """
    mean_square = float(np.square(x, dtype=np.float64).sum(axis=1).mean())
    with torch_threads(models[0].n_threads) as n_threads:
        for model in models:
            # sentence embeddings have a mean squared length of one
            model.feature_scale_ = np.asarray(mean_square**-0.5 if model.rescale and mean_square else 1.0)
            model.features_, model.annotator_load_ = x, np.asarray(annotations.annotator_load)
            model.prior_distribution_ = annotations.counts.sum(axis=0) / annotations.n_labels
            model.n_threads_ = np.asarray(n_threads)
        first, network = models[0], Network(models).start().to(torch_device(models[0].device))
        loss = None if dev is None else dev_loss(first, dev, seed)
        epoch, trace, stopped = train(network, training_set(first, annotations, x, y_I), loss, seed)
    for m, model in enumerate(models):
        rows = slice(m * model.n_networks, (m + 1) * model.n_networks)
        networks = Network([model]).copy_from(network, rows)
        model.weights_ = to_numpy(parameters_to_vector(networks.parameters()))
        model.annotator_embeddings_ = join(networks.W_A)
        model.known_annotators_ = model.annotator_load_ > 0
        model.epoch_, model.trace_, model.stopped_ = epoch[rows], trace[:, rows].mean(axis=1), stopped


def join(z: Tensor) -> NDArray[Any]:
    """Concatenate the embeddings of all networks: (S, rows, size) becomes (rows, S · size)."""
    return np.ascontiguousarray(to_numpy(z.transpose(0, 1).flatten(1)))


def inputs(model: LDLNM, features: Any) -> Tensor:
    """Convert features or texts to the input of the model's networks."""
    x, n_fitted = as_features(features, model.embedding), model.features_.shape[1]
    if (n := x.shape[1]) != n_fitted:
        raise DataError(f"the items have {n} features and LDLNM was fitted on {n_fitted}; pass the same ones")
    return torch.tensor(x * np.float32(model.feature_scale_), device=torch_device(model.device))


def training_set(model: LDLNM, annotations: Annotations, x: Features, y_I: Array | None) -> TrainingSet:
    """Return labels with their targets: y one-hot, y_I and y_A."""
    item, annotator, label = (codes.astype(np.int64) for codes in annotations.columns)
    N, P = annotations.n_annotators, annotations.n_classes
    y_A = row_shares(np.bincount(annotator * P + label, minlength=N * P).reshape(N, P))
    y_I = row_shares(annotations.counts) if y_I is None else y_I
    if y_I.shape != (shape := (annotations.n_items, P)):
        raise DataError(f"item_distributions must have shape {shape} (items, classes); got {y_I.shape}")
    targets = np.stack([np.eye(P)[label], y_I[item], y_A[annotator]], axis=1)
    rows, target = inputs(model, x), torch.tensor(targets, dtype=torch.float32)
    return TrainingSet(rows, item, torch.from_numpy(annotator).to(rows.device), target.to(rows.device))


def dev_loss(model: LDLNM, dev: Any, seed: int) -> DevLoss:
    """Return the loss of each network on the dev set; ``seed`` draws the annotators of dev items."""
    P, J = len(model.class_vocabulary_), model.features_.shape[1]
    if isinstance(dev, tuple | list):
        x, gold = check_dev(dev, P, lambda X: as_features(X, model.embedding))
    else:
        labels = recode_classes(as_annotations(dev), model.class_vocabulary_)
        codes = model.item_vocabulary_.codes(labels.item_vocabulary)
        labelled = np.unique(labels.item)
        if (codes[labelled] >= 0).all():
            return _label_loss(model, labels, codes)
        x, gold = features_of(labels, model=model.embedding)[labelled], row_shares(labels.counts[labelled])
    if (n := x.shape[1]) != J:
        raise DataError(f"dev has {n} features per item and the training set {J}; pass the same ones")
    return _distribution_loss(model, x, gold, seed)


def _distribution_loss(model: LDLNM, x: Features, gold: Array, seed: int) -> DevLoss:
    """Return KL(gold ‖ prediction), averaged over a few training annotators, the same in every epoch."""
    rows = inputs(model, x)
    truth = torch.tensor((gold + DEV_SMOOTHING).T, dtype=torch.float32, device=rows.device)
    load, drawn = model.annotator_load_, np.zeros((len(x), 1), np.int64)
    if model.annotators:
        mass, size = load if model.weight_by == "labels" else (load > 0), (len(x), DEV_ANNOTATORS)
        drawn = np.random.default_rng(seed).choice(len(load), size=size, p=mass / mass.sum())
    annotator = torch.from_numpy(drawn.flatten()).to(rows.device)
    item = torch.arange(len(x), device=rows.device).repeat_interleave(drawn.shape[1])

    def loss(network: Network) -> Tensor:
        blocks = pair_logits(network, rows, network.W_A, (item, annotator), model.head)
        answers = torch.cat([logits.softmax(dim=1) for logits in blocks], dim=2)
        mean = answers.view(*answers.shape[:2], *drawn.shape).mean(dim=3)  # (S, P, items)
        return (truth * (truth.log() - (mean + DEV_SMOOTHING).log())).sum(dim=1).mean(dim=1)

    return loss


def _label_loss(model: LDLNM, dev: Annotations, codes: NDArray[Any]) -> DevLoss:
    """Return the mean of −log ŷ_y over the dev labels by training annotators of training items."""
    annotator = model.annotator_vocabulary_.codes(dev.annotator_vocabulary)[dev.annotator].astype(np.int64)
    usable = (annotator >= 0) & (model.annotator_load_[annotator] > 0) | (not model.annotators)
    if not usable.any():
        raise DataError("dev has no labels by training annotators; pass labels by them, or new items")
    items, row = np.unique(dev.item[usable], return_inverse=True)
    x = inputs(model, model.features_[codes[items]])
    rows = row, np.maximum(annotator[usable], 0), dev.label[usable].astype(np.int64)
    *pairs, label = (torch.from_numpy(column).to(x.device) for column in rows)

    def loss(network: Network) -> Tensor:
        blocks = pair_logits(network, x, network.W_A, pairs, "label")
        log_p = torch.cat([logits.log_softmax(dim=1) for logits in blocks], dim=2)
        return -log_p.gather(1, label.expand(len(log_p), 1, -1)).mean(dim=(1, 2))

    return loss
