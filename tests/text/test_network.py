"""LDL-NM's network: cases by hand, finite differences, and the printed equations."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dissensus as ds  # noqa: E402
from dissensus.text.ldlnm.inference import Descent, ensemble, infer_annotators, kl_of_items  # noqa: E402
from dissensus.text.ldlnm.network import (  # noqa: E402
    HEADS,
    Batch,
    Network,
    TrainingSet,
    dropout_factors,
    loss_terms,
    train,
)
from dissensus.text.learners.base import torch_threads  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread: more are slower for networks of this size."""
    with torch_threads(1):
        yield


PHI = torch.nn.functional.softsign


def unfitted(n_features: int = 5, n_annotators: int = 4, n_classes: int = 3, **settings: Any) -> ds.LDLNM:
    """Return an unfitted model with the sizes of its data set."""
    model = ds.LDLNM(**(PLAIN | settings))
    model.features_ = np.zeros((1, n_features), np.float32)
    model.annotator_load_ = np.ones(n_annotators, np.int64)
    model.class_vocabulary_ = range(n_classes)
    return model


PLAIN: dict[str, Any] = {"item_size": 3, "annotator_size": 2, "latent_size": 4, "n_networks": 1}
PLAIN |= {"direct": False, "dropout": 0.0, "feature_dropout": 0.0, "epochs": 3, "patience": None}
PLAIN |= {"batch_size": 8, "learning_rate": 0.01, "weight_decay": 0.0}
FORMS: dict[str, dict[str, Any]] = {
    "concatenation": {"n_networks": 2},
    "sum": {"n_networks": 2, "annotator_size": 3, "fusion": "sum"},
    "direct path": {"n_networks": 2, "direct": True},
    "sum and direct path": {"annotator_size": 3, "fusion": "sum", "direct": True},
    "no annotators": {"annotators": False, "direct": True},
}


def blank(form: str, **settings: Any) -> Network:
    return Network([unfitted(**(FORMS[form] | settings))])


def rows_of(network: Network) -> torch.Tensor:
    """Return the weights of each network, (networks, weights)."""
    return torch.cat([weights.detach().flatten(1) for weights in network.parameters()], dim=1)


def with_rows(network: Network, rows: torch.Tensor) -> Network:
    """Set the weights from ``rows_of``, in double precision and without gradients."""
    network = network.double().requires_grad_(False)
    parts = rows.split([weights[0].numel() for weights in network.parameters()], dim=1)
    for weights, part in zip(network.parameters(), parts, strict=True):
        weights.copy_(part.view_as(weights))
    return network


def hand_network() -> Network:
    """Return a network with one unit per layer and weights that give round numbers."""
    sizes = {"item_size": 1, "annotator_size": 1, "latent_size": 1}
    network = Network([unfitted(1, 1, 2, **sizes)]).double().requires_grad_(False)
    network.W_I[:] = 2.0
    network.W_A[:] = -1.0
    for weights in (network.W_P, network.W_PA, network.b_P, network.W_E):
        weights[:] = 1.0
    network.W_y[0, 0, 0], network.W_y[0, 1, 0] = 2 * math.log(3), 2 * math.log(7)
    return network


def hand_batch() -> Batch:
    targets = torch.tensor([[[1.0], [0.0]], [[0.5], [0.5]], [[1.0], [0.0]]], dtype=torch.float64)
    return Batch(torch.tensor([[0.5]], dtype=torch.float64), torch.tensor([0]), torch.tensor([0]), targets)


def test_forward_pass_by_hand():
    # z_I = 2 · ½ = 1, φ = ½; z_A = −1, φ = −½; z_P = φ(½ − ½ + 1) = ½; z_E = φ(½ + ½) = ½;
    # logits ½ · (2 log 3, 0), ½ · (2 log 7, 0), (0, 0)
    network, batch = hand_network(), hand_batch()
    assert network.embed_items(batch.x).item() == pytest.approx(1.0, rel=1e-12)
    assert network.item_part(batch.x).item() == pytest.approx(0.5 + 1, rel=1e-12)
    assert network.annotator_part(network.W_A).item() == pytest.approx(-0.5, rel=1e-12)
    assert network.encode(torch.ones(1, 1, 1, dtype=torch.float64)).item() == pytest.approx(0.5, rel=1e-12)
    expected = [3 / 4, 1 / 4, 7 / 8, 1 / 8, 1 / 2, 1 / 2]
    np.testing.assert_allclose(network(batch).softmax(dim=2).flatten(), expected, rtol=1e-12)


def test_each_loss_term_by_hand():
    terms = loss_terms(hand_network()(hand_batch()), hand_batch().targets)
    # −log ¾;  ½ log(½ / ⅞) + ½ log(½ / ⅛) = ½ log(16/7);  1 · log(1 / ½)
    expected = [-math.log(3 / 4), 0.5 * math.log(16 / 7), math.log(2)]
    np.testing.assert_allclose(terms.flatten(), expected, rtol=1e-12)


def random_network(form: str, seed: int = 0, **settings: Any) -> Network:
    """Return a network with random weights in double precision."""
    network, noise = blank(form, **settings, seed=seed).start(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in network.parameters():
            weights += 0.2 * torch.randn(weights.shape, generator=noise)
    return network.double()


def random_batch(seed: int = 0) -> Batch:
    """Return labels, some of the same item."""
    noise = torch.Generator().manual_seed(seed)
    shares = torch.rand(3, 3, 7, generator=noise, dtype=torch.float64)
    return Batch(
        torch.randn(4, 5, generator=noise, dtype=torch.float64),
        torch.tensor([0, 0, 1, 2, 2, 2, 3]),
        torch.tensor([0, 1, 1, 2, 0, 3, 2]),
        shares / shares.sum(dim=1, keepdim=True),
    )


def printed_logits(network: Network, batch: Batch, masks: Any = (1.0, 1.0)) -> torch.Tensor:
    """Compute equations (1) to (4) as printed, (S, 3, P, labels)."""
    x = batch.x[batch.row]
    z_I = torch.einsum("sif,nf->sni", network.W_I, x) + network.b_I
    z_A = network.W_A[:, batch.annotator]
    if network.sums:
        z, W_P = z_I + z_A, network.W_P
    else:
        z, W_P = torch.cat([z_I, z_A], dim=-1), torch.cat([network.W_P, network.W_PA], dim=1)
    z_P = masks[0] * PHI(torch.einsum("snf,sfj->snj", PHI(z), W_P) + network.b_P)
    z_E = masks[1] * PHI(torch.einsum("snj,sjk->snk", z_P, network.W_E) + network.b_E + z_P)
    logits = torch.einsum("shpj,snj->shpn", network.W_y, z_E) + network.b_y
    direct = torch.einsum("shpf,nf->shpn", network.D, x)
    if not len(direct[0]):
        return logits
    return torch.cat([logits[:, :2] + direct, logits[:, 2:]], dim=1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dropped", [False, True])
def test_gradient_by_finite_differences(form: str, dropped: bool):
    network, batch = random_network(form, dropout=0.5 if dropped else 0.0), random_batch()
    rows = rows_of(network)
    S = len(rows)
    noise = torch.Generator().manual_seed(1)
    masks = [dropout_factors((S, 7, 4), 0.5, noise).double() if dropped else 1.0 for _ in range(2)]
    head_weights = torch.tensor([[1.0], [0.5], [2.0]], dtype=torch.float64)

    def printed_loss(rows: torch.Tensor) -> torch.Tensor:
        logits = printed_logits(with_rows(blank(form), rows), batch, masks)
        terms = batch.targets * (batch.targets.log() - logits.log_softmax(dim=2))
        return (terms.sum(dim=2) * head_weights).sum(dim=1).mean(dim=1)

    terms = loss_terms(network(batch, torch.Generator().manual_seed(1)), batch.targets)
    (head_weights * terms).sum(dim=1).mean(dim=1).sum().backward()
    ours = [torch.zeros_like(w) if w.grad is None else w.grad for w in network.parameters()]
    ours = torch.cat([gradient.flatten(1) for gradient in ours], dim=1)
    step = 1e-6
    for i in range(rows.shape[1]):  # networks are independent: one weight of each at a time
        up, down = rows.clone(), rows.clone()
        up[:, i] += step
        down[:, i] -= step
        numeric = (printed_loss(up) - printed_loss(down)) / (2 * step)
        np.testing.assert_allclose(ours[:, i], numeric, rtol=1e-5, atol=1e-9)


def test_weight_decay_excludes_annotators_and_biases():
    network = blank("direct path").start()
    groups = network.optimiser(0.01, 0.1).param_groups
    decays = {id(weights): group["weight_decay"] for group in groups for weights in group["params"]}
    by_name = {name: decays[id(weights)] for name, weights in network.named_parameters()}
    undecayed = {"W_A", "b_I", "b_P", "b_E", "b_y"}
    assert by_name == {name: 0.0 if name in undecayed else 0.1 for name in by_name}


def test_orthogonal_start():
    sizes = {"item_size": 4, "annotator_size": 3, "n_networks": 2}
    network = Network([unfitted(6, 9, 2, **sizes)]).start().requires_grad_(False)
    for s in range(2):
        np.testing.assert_allclose(network.W_I[s] @ network.W_I[s].T, np.eye(4), atol=1e-5)
        np.testing.assert_allclose(network.W_A[s].T @ network.W_A[s], np.eye(3), atol=1e-5)
        np.testing.assert_allclose(network.W_E[s] @ network.W_E[s].T, np.eye(4), atol=1e-5)
        fused = torch.cat([network.W_P[s], network.W_PA[s]])  # one matrix for both embeddings
        np.testing.assert_allclose(fused.T @ fused, np.eye(4), atol=1e-5)
        for head in network.W_y[s]:
            np.testing.assert_allclose(head @ head.T, np.eye(2), atol=1e-5)
    assert not torch.equal(network.W_I[0], network.W_I[1])
    assert not network.b_P.any()


@pytest.mark.parametrize("rate", [0.001, 0.2, 0.5])  # 0.001 is nearer to 0 than to 1/256
def test_dropout_keeps_the_mean_and_the_rate(rate: float):
    factors = dropout_factors((400, 1000), rate, torch.Generator().manual_seed(0))
    # 400,000 draws: four standard errors of the share are below 0.0035
    assert (factors == 0).double().mean().item() == pytest.approx(rate, abs=0.002 + 0.0035)
    assert factors.double().mean().item() == pytest.approx(1.0, abs=0.01)


def training_data(n_items: int = 12, per_item: int = 3) -> TrainingSet:
    rng = np.random.default_rng(0)
    item = np.repeat(np.arange(n_items), per_item)
    return TrainingSet(
        torch.tensor(rng.normal(size=(n_items, 5)), dtype=torch.float32),
        item,
        torch.from_numpy(rng.integers(4, size=len(item))),
        torch.tensor(rng.dirichlet(np.ones(3), size=(len(item), 3)), dtype=torch.float32),
    )


@pytest.mark.parametrize("batch_by", ["items", "labels"])
def test_batches_contain_every_label_once(batch_by: str):
    data = training_data()
    batches = list(data.batches(8, batch_by, np.random.default_rng(0)))
    seen = torch.cat([batch.targets.permute(2, 0, 1).flatten(1) for batch in batches])
    order, targets = np.lexsort(np.asarray(seen).T), data.targets.flatten(1)
    np.testing.assert_array_equal(seen[order], targets[np.lexsort(np.asarray(targets).T)])
    x = torch.cat([batch.x[batch.row] for batch in batches])
    of_label = {tuple(target.tolist()): row for target, row in zip(targets, data.item, strict=True)}
    for target, features in zip(seen, x, strict=True):
        assert torch.equal(features, data.x[of_label[tuple(target.tolist())]])


def full_batch(data: TrainingSet) -> Batch:
    targets = data.targets.permute(1, 2, 0).contiguous()
    return Batch(data.x, torch.from_numpy(data.item), data.annotator, targets)


def test_training_keeps_the_best_epoch_of_each_network():
    data = training_data()
    everything = full_batch(data)

    def loss(network: Network) -> torch.Tensor:
        return loss_terms(network(everything), everything.targets).sum(dim=1).mean(dim=1).detach()

    network = blank("concatenation", epochs=60, learning_rate=0.03).start()
    before = loss(network)
    epoch, trace, stopped = train(network, data, loss, 0)
    assert (loss(network) < before).all()
    np.testing.assert_array_equal(epoch, trace.argmin(axis=0))
    np.testing.assert_allclose(loss(network), trace.min(axis=0), rtol=1e-6)
    assert stopped == "max_iter"


@pytest.mark.parametrize("form", [{}, {"direct": True}, {"fusion": "sum"}], ids=str)
def test_networks_trained_together_equal_single_training(form: dict[str, Any]):
    sizes = [(2, 2), (4, 4), (3, 3)] if form.get("fusion") else [(2, 5), (4, 3), (3, 1)]
    form |= {"epochs": 40, "patience": 3, "learning_rate": 0.03, "weight_decay": 1e-4}
    form |= {"dropout": 0.5, "seed": 7}
    models = [unfitted(item_size=item, annotator_size=annotator, **form) for item, annotator in sizes]
    # dev targets that partly agree with the training targets, so that overfitting hurts
    data = training_data()
    unlike = 0.6 * data.targets + 0.4 * torch.roll(data.targets, 5, dims=0)
    everything = full_batch(replace(data, targets=unlike))

    def loss(network: Network) -> torch.Tensor:
        return loss_terms(network(everything), everything.targets).sum(dim=1).mean(dim=1)

    together = Network(models).start()
    epochs, _, stopped = train(together, data, loss, 2)
    assert stopped == "patience"
    if "direct" not in form:  # the direct path overfits at once
        assert len(set(epochs.tolist())) > 1  # one stopped early and the others continued
    for row, model in enumerate(models):
        alone = Network([model]).start()
        epoch, _, _ = train(alone, data, loss, 2)
        assert epochs[row] == epoch[0]
        copied = rows_of(Network([model]).copy_from(together, slice(row, row + 1)))
        np.testing.assert_allclose(copied, rows_of(alone), atol=1e-4)
        # padding weights stay zero
        assert int((rows_of(together)[row] != 0).sum()) == int((copied != 0).sum())


def test_patience_ends_training():
    rising = iter(range(100))
    network = blank("concatenation", epochs=50, patience=4).start()
    loss = lambda _: torch.full((2,), float(next(rising)))  # noqa: E731
    epoch, trace, stopped = train(network, training_data(), loss, 0)
    assert stopped == "patience"
    assert len(trace) == 5
    np.testing.assert_array_equal(epoch, [0, 0])


# ---- inference --------------------------------------------------------------------------------------------


def of_annotator(network: Network, x: torch.Tensor, annotator: int, head: str) -> torch.Tensor:
    """Return the answers of one annotator by the printed equations, (items, P)."""
    annotators = torch.full((len(x),), annotator)
    batch = Batch(x, torch.arange(len(x)), annotators, torch.empty(0))
    logits = printed_logits(network, batch)[:, HEADS.index(head)]
    return logits.softmax(dim=1).mean(dim=0).T


SHARES = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)


@pytest.mark.parametrize("form", ["direct path", "sum"])
def test_ensemble_is_a_weighted_mean(form: str):
    network, x = random_network(form).requires_grad_(False), random_batch().x
    for head in ("label", "item"):
        crowd = ensemble(network, x, network.W_A, SHARES, head=head)
        expected = sum(SHARES[a] * of_annotator(network, x, a, head) for a in range(4))
        np.testing.assert_allclose(crowd, expected, rtol=1e-10)


def test_mode_counts_the_most_probable_classes():
    network, x = random_network("concatenation").requires_grad_(False), random_batch().x
    even = torch.full((4,), 0.25, dtype=torch.float64)
    votes = ensemble(network, x, network.W_A, even, head="label", reduce="mode")
    expected = np.zeros((4, 3))
    for annotator in range(4):
        expected[np.arange(4), of_annotator(network, x, annotator, "label").argmax(dim=1)] += 0.25
    np.testing.assert_allclose(votes, expected, rtol=1e-12)


def infer_problem(rows: int = 6) -> tuple[Network, torch.Tensor, torch.Tensor]:
    """Return a network with two-dimensional annotator embeddings, and items with distributions."""
    noise = torch.Generator().manual_seed(3)
    network = Network([unfitted()])
    size = rows_of(network).shape
    network = with_rows(network, torch.randn(size, generator=noise, dtype=torch.float64) * 1.5)
    x = torch.randn(rows, 5, generator=noise, dtype=torch.float64)
    y = torch.rand(rows, 3, generator=noise, dtype=torch.float64)
    return network, x, y / y.sum(dim=1, keepdim=True)


def test_backtracking_never_increases_the_objective():
    network, x, y = infer_problem()
    starts = torch.randn(1, 1, 6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    # a decay at which plain steps overshoot (z − 2.5 z)
    plain_steps = Descent(rate=1.0, steps=40, tol=0.0, backtracking=False)
    _, plain = infer_annotators(network, x, y, starts, 2.5, plain_steps)
    assert (plain.diff(dim=0) > 0).any()
    _, trace = infer_annotators(network, x, y, starts, 2.5, Descent(1.0, 40, 0.0))
    assert (trace.diff(dim=0) <= 0).all()
    assert (trace[-1] < trace[0]).all()


def test_plain_step_is_the_papers():
    network, x, y = infer_problem()
    z = torch.randn(1, 6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    beta, gamma, h = 0.3, 0.05, 1e-6
    kl = kl_of_items(network, x, y)
    gradient = torch.zeros_like(z)
    for j in range(2):
        up, down = z.clone(), z.clone()
        up[..., j] += h
        down[..., j] -= h
        gradient[..., j] = (kl(up) - kl(down)) / (2 * h)
    settings_ = Descent(beta, 1, 0.0, backtracking=False)
    ours, _ = infer_annotators(network, x, y, z.unsqueeze(0), gamma, settings_)
    np.testing.assert_allclose(ours, z - beta * gradient - gamma * z, rtol=1e-6)


def test_best_start_matches_a_grid_search():
    network, x, y = infer_problem()
    rate, decay = 0.5, 0.05
    noise = torch.Generator().manual_seed(1)
    starts = 4 * torch.rand(5, 1, 6, 2, generator=noise, dtype=torch.float64) - 2
    starts[0] = 0.0
    z, trace = infer_annotators(network, x, y, starts, decay, Descent(rate, 500, 1e-9))
    kl = kl_of_items(network, x, y)
    axis = torch.linspace(-3, 3, 301, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    best = []
    for row in range(6):
        of_grid = kl_of_items(network, x[row].expand(len(grid), -1), y[row].expand(len(grid), -1))
        best.append((of_grid(grid.unsqueeze(0))[0] + decay / (2 * rate) * grid.square().sum(dim=1)).min())
    best = torch.stack(best)
    assert z.abs().max() < 3  # the grid covers the minima
    # the error of a grid of spacing 0.02 is at most half the curvature times 0.01² · 2
    np.testing.assert_allclose(trace[-1][0], best, atol=2e-4)
    assert (trace[-1][0] <= best + 1e-9).all()
    np.testing.assert_allclose(kl(z)[0] + decay / (2 * rate) * z[0].square().sum(1), trace[-1][0], rtol=1e-9)


@pytest.mark.parametrize("fusion", ["sum", "concat"])
def test_unprojected_ensemble_by_hand(fusion: str):
    settings = {"item_size": 4, "annotator_size": 4, "fusion": fusion}
    network, x = random_network("concatenation", **settings).requires_grad_(False), random_batch().x
    for h, head in enumerate(HEADS):
        expected = torch.zeros(4, 3, dtype=torch.float64)
        for s, annotator in np.ndindex(2, 4):
            z = PHI(network.W_A[s, annotator] + x @ network.W_I[s].T + network.b_I[s])
            z_e = PHI(z @ network.W_E[s] + network.b_E[s] + z)
            logits = z_e @ network.W_y[s, h].T + network.b_y[s, h].T
            expected += SHARES[annotator] * logits.softmax(dim=-1) / 2
        ours = ensemble(network, x, network.W_A, SHARES, head=head, projected=False)
        np.testing.assert_allclose(ours, expected, rtol=1e-10)
        projected = ensemble(network, x, network.W_A, SHARES, head=head)
        assert not np.allclose(ours, projected, atol=1e-3)


def test_training_step_with_dropout():
    """Compare a training step with the gradient of the printed equations with both masks."""
    rate, data = 0.01, training_data()
    expected = blank("concatenation").start()
    settings_ = {"dropout": 0.4, "batch_size": 36, "epochs": 1, "learning_rate": rate}
    network = blank("concatenation", **settings_).start()
    train(network, data, None, 5)
    (batch,) = data.batches(36, "items", np.random.default_rng(5))
    noise = torch.Generator().manual_seed(5)
    masks = [dropout_factors((2, len(batch.annotator), 4), 0.4, noise) for _ in range(2)]
    logits = printed_logits(expected, batch, masks)
    loss = torch.nn.functional.kl_div(
        logits.log_softmax(2), batch.targets.expand_as(logits), reduction="none"
    )
    loss.sum(dim=(1, 2)).mean(dim=1).sum().backward()
    for before, after in zip(expected.parameters(), network.parameters(), strict=True):
        if before.grad is not None:  # Adam's first step: rate · g / (|g| + ε)
            moved = before.grad.abs() > 1e-6  # below, ε and the rounding of g decide
            step = before - rate * before.grad / (before.grad.abs() + 1e-8)
            np.testing.assert_allclose(after.detach()[moved], step.detach()[moved], atol=1e-5)
    for mask in masks:
        assert 0.2 < (mask == 0).double().mean() < 0.6
