"""LDL-NM's network against hand-worked numbers, finite differences, and the printed equations."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import dissensus as ds  # noqa: E402
from dissensus.text.ldlnm.inference import (  # noqa: E402
    Descent,
    descend,
    ensemble,
    infer_annotators,
    kl_of_items,
    pair_distributions,
)
from dissensus.text.ldlnm.network import (  # noqa: E402
    HEADS,
    Batch,
    Network,
    TrainingSet,
    dropout_factors,
    loss_terms,
    train,
)
from dissensus.text.learners.torch_tools import threads  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def one_thread():
    """Networks this small only wait for each other on more threads."""
    with threads(1):
        yield


PHI = torch.nn.functional.softsign


def known(n_features: int = 5, n_annotators: int = 4, n_classes: int = 3, **settings: Any) -> ds.LDLNM:
    """A model that knows the size of its data and has learned nothing; one network unless told otherwise."""
    model = ds.LDLNM(**(PLAIN | settings))
    model.features_ = np.zeros((1, n_features), np.float32)
    model.annotator_load_ = np.ones(n_annotators, np.int64)
    model.class_vocabulary_ = range(n_classes)
    return model


PLAIN: dict[str, Any] = {
    "item_size": 3,
    "annotator_size": 2,
    "latent_size": 4,
    "n_networks": 1,
    "direct": False,
    "dropout": 0.0,
    "feature_dropout": 0.0,
    "epochs": 3,
    "patience": None,
    "batch_size": 8,
    "learning_rate": 0.01,
    "weight_decay": 0.0,
}
FORMS: dict[str, dict[str, Any]] = {
    "concatenation": {"n_networks": 2},
    "sum": {"n_networks": 2, "annotator_size": 3, "fusion": "sum"},
    "direct path": {"n_networks": 2, "direct": True},
    "sum and direct path": {"annotator_size": 3, "fusion": "sum", "direct": True},
    "no annotators": {"annotators": False, "direct": True},
}


def blank(form: str, **settings: Any) -> Network:
    return Network([known(**(FORMS[form] | settings))])


def rows_of(network: Network) -> torch.Tensor:
    """(networks, numbers): the weights of each network, block after block."""
    return torch.cat([weights.detach().flatten(1) for weights in network.parameters()], dim=1)


def with_rows(network: Network, rows: torch.Tensor) -> Network:
    """The network with weights as ``rows_of`` gives them, in double precision and without gradients."""
    network = network.double().requires_grad_(False)
    parts = rows.split([weights[0].numel() for weights in network.parameters()], dim=1)
    for weights, part in zip(network.parameters(), parts, strict=True):
        weights.copy_(part.view_as(weights))
    return network


def hand_network(fusion: str = "concat") -> Network:
    """One unit in every layer, two classes, weights that make every step a round number."""
    sizes = {"item_size": 1, "annotator_size": 1, "latent_size": 1}
    network = Network([known(1, 1, 2, **sizes, fusion=fusion)]).double().requires_grad_(False)
    network.W_I[:] = 2.0
    network.W_A[:] = -1.0
    network.W_P[:] = 1.0
    network.W_PA[:] = 1.0
    network.b_P[:] = 1.0
    network.W_E[:] = 1.0
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


def test_forward_pass_with_summed_embeddings_by_hand():
    # φ(z_I + z_A) = φ(1 − 1) = 0; z_P = φ(0 + 1) = ½, and from there on as above
    network, batch = hand_network("sum"), hand_batch()
    fused = network.item_part(batch.x) + network.annotator_part(network.W_A)
    assert fused.item() == pytest.approx(0.0, abs=1e-12)
    assert network.encode(fused).item() == pytest.approx(0.5, rel=1e-12)
    expected = [3 / 4, 1 / 4, 7 / 8, 1 / 8, 1 / 2, 1 / 2]
    np.testing.assert_allclose(network(batch).softmax(dim=2).flatten(), expected, rtol=1e-12)


def test_each_loss_term_by_hand():
    terms = loss_terms(hand_network()(hand_batch()), hand_batch().targets)
    # −log ¾;  ½ log(½ / ⅞) + ½ log(½ / ⅛) = ½ log(16/7);  1 · log(1 / ½)
    expected = [-math.log(3 / 4), 0.5 * math.log(16 / 7), math.log(2)]
    np.testing.assert_allclose(terms.flatten(), expected, rtol=1e-12)


def random_network(form: str, seed: int = 0, **settings: Any) -> Network:
    """Weights of no special form, in double precision."""
    network, noise = blank(form, **settings, seed=seed).start(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weights in network.parameters():
            weights += 0.2 * torch.randn(weights.shape, generator=noise)
    return network.double()


def random_batch(seed: int = 0) -> Batch:
    """Labels of which some share an item."""
    noise = torch.Generator().manual_seed(seed)
    shares = torch.rand(3, 3, 7, generator=noise, dtype=torch.float64)
    return Batch(
        torch.randn(4, 5, generator=noise, dtype=torch.float64),
        torch.tensor([0, 0, 1, 2, 2, 2, 3]),
        torch.tensor([0, 1, 1, 2, 0, 3, 2]),
        shares / shares.sum(dim=1, keepdim=True),
    )


def printed_logits(network: Network, batch: Batch, masks: Any = (1.0, 1.0)) -> torch.Tensor:
    """(S, 3, P, labels): equations (1) to (4) as printed, every product written out."""
    x = batch.x[batch.place]
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


def test_gradient_of_the_logits_is_probability_minus_target():
    batch = random_batch()
    logits = random_network("direct path")(batch).detach().requires_grad_()
    loss_terms(logits, batch.targets).sum().backward()
    np.testing.assert_allclose(logits.grad, (logits.softmax(dim=2) - batch.targets).detach(), atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dropped", [False, True])
def test_gradient_equals_finite_differences(form: str, dropped: bool):
    network, batch = random_network(form, dropout=0.5 if dropped else 0.0), random_batch()
    rows = rows_of(network)
    S = len(rows)
    noise = torch.Generator().manual_seed(1)
    masks = [dropout_factors((S, 7, 4), 0.5, noise).double() if dropped else 1.0 for _ in range(2)]
    head_weights = torch.tensor([[1.0], [0.5], [2.0]], dtype=torch.float64)

    def printed_loss(rows: torch.Tensor) -> torch.Tensor:
        """One number a network."""
        logits = printed_logits(with_rows(blank(form), rows), batch, masks)
        terms = batch.targets * (batch.targets.log() - logits.log_softmax(dim=2))
        return (terms.sum(dim=2) * head_weights).sum(dim=1).mean(dim=1)

    terms = loss_terms(network(batch, torch.Generator().manual_seed(1)), batch.targets)
    (head_weights * terms).sum(dim=1).mean(dim=1).sum().backward()
    ours = [torch.zeros_like(w) if w.grad is None else w.grad for w in network.parameters()]
    ours = torch.cat([slope.flatten(1) for slope in ours], dim=1)
    step = 1e-6
    for place in range(rows.shape[1]):  # networks do not touch each other: one number of each at a time
        up, down = rows.clone(), rows.clone()
        up[:, place] += step
        down[:, place] -= step
        numeric = (printed_loss(up) - printed_loss(down)) / (2 * step)
        np.testing.assert_allclose(ours[:, place], numeric, rtol=1e-5, atol=1e-9)


def test_weight_decay_spares_annotators_and_biases():
    network = blank("direct path").start()
    adam = network.optimiser(0.01, 0.1)
    decays = {
        id(weights): group["weight_decay"] for group in adam.param_groups for weights in group["params"]
    }
    by_name = {name: decays[id(weights)] for name, weights in network.named_parameters()}
    spared = {name for name, decay in by_name.items() if decay == 0.0}
    assert spared == {"W_A", "b_I", "b_P", "b_E", "b_y"}
    assert {decay for name, decay in by_name.items() if name not in spared} == {0.1}


def test_orthogonal_start():
    sizes = {"item_size": 4, "annotator_size": 3, "n_networks": 2}
    network = Network([known(6, 9, 2, **sizes)]).start().requires_grad_(False)
    for one in range(2):
        np.testing.assert_allclose(network.W_I[one] @ network.W_I[one].T, np.eye(4), atol=1e-5)
        np.testing.assert_allclose(network.W_A[one].T @ network.W_A[one], np.eye(3), atol=1e-5)
        np.testing.assert_allclose(network.W_E[one] @ network.W_E[one].T, np.eye(4), atol=1e-5)
        fused = torch.cat([network.W_P[one], network.W_PA[one]])  # one matrix, of both embeddings
        np.testing.assert_allclose(fused.T @ fused, np.eye(4), atol=1e-5)
        for head in network.W_y[one]:
            np.testing.assert_allclose(head @ head.T, np.eye(2), atol=1e-5)
    assert not torch.equal(network.W_I[0], network.W_I[1])
    assert not network.b_P.any()


@pytest.mark.parametrize("rate", [0.001, 0.2, 0.5])  # 0.001 is nearer to 0 than to 1/256
def test_dropout_keeps_the_mean_and_the_rate(rate: float):
    factors = dropout_factors((400, 1000), rate, torch.Generator().manual_seed(0))
    # 400,000 draws: four standard errors of the share are below 0.0035
    assert (factors == 0).double().mean().item() == pytest.approx(rate, abs=0.002 + 0.0035)
    assert factors.double().mean().item() == pytest.approx(1.0, abs=0.01)


def test_training_drops_parts_of_both_layers():
    """One step of training is the step down the gradient of the printed equations with both masks on."""
    rate, data = 0.01, training_data()
    expected = blank("concatenation").start()
    how = {"dropout": 0.4, "batch_size": 36, "epochs": 1, "learning_rate": rate}
    network = blank("concatenation", **how).start()
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


def test_dropout_at_evaluation_drops_parts_of_both_layers():
    network, batch = random_network("concatenation", dropout=0.5).requires_grad_(False), random_batch()
    noise = torch.Generator().manual_seed(3)
    masks = [dropout_factors((2, 7, 4), 0.5, noise).double() for _ in range(2)]
    whole = printed_logits(network, batch, masks)
    fused = network.item_part(batch.x)[:, batch.place]
    fused = fused + network.annotator_part(network.W_A[:, batch.annotator])
    z_E = network.encode(fused, torch.Generator().manual_seed(3))
    for place, head in enumerate(HEADS):
        np.testing.assert_allclose(network.head(z_E, head), whole[:, place], rtol=1e-10)


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
def test_an_epoch_shows_every_label_once_with_its_own_features(batch_by: str):
    data = training_data()
    batches = list(data.batches(8, batch_by, np.random.default_rng(0)))
    seen = torch.cat([batch.targets.permute(2, 0, 1).flatten(1) for batch in batches])
    order, targets = np.lexsort(np.asarray(seen).T), data.targets.flatten(1)
    np.testing.assert_array_equal(seen[order], targets[np.lexsort(np.asarray(targets).T)])
    x = torch.cat([batch.x[batch.place] for batch in batches])
    of_label = {tuple(target.tolist()): row for target, row in zip(targets, data.item, strict=True)}
    for target, features in zip(seen, x, strict=True):
        assert torch.equal(features, data.x[of_label[tuple(target.tolist())]])


def test_both_kinds_of_batch_take_the_same_step_on_the_same_labels():
    ends = []
    for batch_by in ("items", "labels"):  # one batch holds everything, so only the layout differs
        network = blank("concatenation", batch_by=batch_by, batch_size=36, epochs=1).start()
        train(network, training_data(), None, 0)
        ends.append(rows_of(network))
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-3, atol=1e-5)


def whole_batch(data: TrainingSet) -> Batch:
    targets = data.targets.permute(1, 2, 0).contiguous()
    return Batch(data.x, torch.from_numpy(data.item), data.annotator, targets)


def test_training_lowers_the_loss_and_keeps_each_networks_best_epoch():
    data = training_data()
    everything = whole_batch(data)

    def loss(network: Network) -> torch.Tensor:
        return loss_terms(network(everything), everything.targets).sum(dim=1).mean(dim=1).detach()

    network = blank("concatenation", epochs=60, learning_rate=0.03).start()
    before = loss(network)
    epoch, trace, stopped = train(network, data, loss, 0)
    assert (loss(network) < before).all()
    np.testing.assert_array_equal(epoch, trace.argmin(axis=0))
    np.testing.assert_allclose(loss(network), trace.min(axis=0), rtol=1e-6)
    assert stopped == "max_iter"


def test_a_network_that_has_lost_its_numbers_spoils_no_other():
    ends = []
    for first in (1.0, math.nan):
        network = blank("direct path", dropout=0.3).start()
        with torch.no_grad():
            network.W_I[0] *= first
        train(network, training_data(), None, 0)
        ends.append(rows_of(network))
    assert ends[1][0].isnan().any()
    np.testing.assert_allclose(ends[1][1], ends[0][1], atol=1e-6)


@pytest.mark.parametrize("form", [{}, {"direct": True}, {"fusion": "sum"}], ids=str)
def test_networks_of_many_sizes_train_in_one_program_as_each_would_alone(form: dict[str, Any]):
    sizes = [(2, 2), (4, 4), (3, 3)] if form.get("fusion") else [(2, 5), (4, 3), (3, 1)]
    how = {
        "epochs": 40,
        "patience": 3,
        "learning_rate": 0.03,
        "weight_decay": 1e-4,
        "dropout": 0.5,
        "seed": 7,
    }
    models = [known(item_size=item, annotator_size=annotator, **how, **form) for item, annotator in sizes]
    # Some of what is learned from these targets holds for others; learned by heart, they mislead.
    data = training_data()
    unlike = 0.6 * data.targets + 0.4 * torch.roll(data.targets, 5, dims=0)
    everything = whole_batch(replace(data, targets=unlike))

    def loss(network: Network) -> torch.Tensor:
        return loss_terms(network(everything), everything.targets).sum(dim=1).mean(dim=1)

    together = Network(models).start()
    epochs, _, stopped = train(together, data, loss, 2)
    assert stopped == "patience"
    if "direct" not in form:  # the direct path learns by heart at once
        assert len(set(epochs.tolist())) > 1  # one ended and left, and the others went on
    for row, model in enumerate(models):
        alone = Network([model]).start()
        epoch, _, _ = train(alone, data, loss, 2)
        assert epochs[row] == epoch[0]
        taken = rows_of(Network([model]).copy_from(together, slice(row, row + 1)))
        np.testing.assert_allclose(taken, rows_of(alone), atol=1e-4)
        # what a network does not have stays zero
        assert int((rows_of(together)[row] != 0).sum()) == int((taken != 0).sum())


def test_patience_ends_training():
    rising = iter(range(100))
    epoch, trace, stopped = train(
        blank("concatenation", epochs=50, patience=4).start(),
        training_data(),
        lambda _: torch.full((2,), float(next(rising))),
        0,
    )
    assert stopped == "patience"
    assert len(trace) == 5
    np.testing.assert_array_equal(epoch, [0, 0])


# ---- inference --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_the_parts_make_the_whole(form: str):
    network, batch = random_network(form).requires_grad_(False), random_batch()
    whole = printed_logits(network, batch)
    np.testing.assert_allclose(network(batch), whole, rtol=1e-10)
    fused = network.item_part(batch.x)[:, batch.place]
    z_E = network.encode(fused + network.annotator_part(network.W_A[:, batch.annotator]))
    for place, head in enumerate(HEADS):
        ours = network.head(z_E, head) + network.direct(batch.x, head)[..., batch.place]
        np.testing.assert_allclose(ours, whole[:, place], rtol=1e-10)


def of_annotator(network: Network, x: torch.Tensor, annotator: int, head: str) -> torch.Tensor:
    """(items, P): one annotator's answers, by the printed equations."""
    who = torch.full((len(x),), annotator)
    batch = Batch(x, torch.arange(len(x)), who, torch.empty(0))
    logits = printed_logits(network, batch)[:, HEADS.index(head)]
    return logits.softmax(dim=1).mean(dim=0).T


SHARES = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)


@pytest.mark.parametrize("head", ["label", "item"])
def test_the_ensemble_is_the_weighted_mean_of_forward_passes(head: str):
    network, x = random_network("direct path").requires_grad_(False), random_batch().x
    crowd = ensemble(network, x, network.W_A, SHARES, head=head)
    expected = sum(SHARES[a] * of_annotator(network, x, a, head) for a in range(4))
    np.testing.assert_allclose(crowd, expected, rtol=1e-10)


def test_the_mode_counts_the_annotators_best_guesses():
    network, x = random_network("concatenation").requires_grad_(False), random_batch().x
    even = torch.full((4,), 0.25, dtype=torch.float64)
    votes = ensemble(network, x, network.W_A, even, head="label", reduce="mode")
    expected = np.zeros((4, 3))
    for annotator in range(4):
        expected[np.arange(4), of_annotator(network, x, annotator, "label").argmax(dim=1)] += 0.25
    np.testing.assert_allclose(votes, expected, rtol=1e-12)


def test_pairs_are_those_of_their_rows():
    network, batch = random_network("direct path").requires_grad_(False), random_batch()
    pairs = pair_distributions(network, batch.x, network.W_A, batch.place, batch.annotator, "item")
    expected = printed_logits(network, batch)[:, 1].softmax(dim=1).mean(dim=0).T
    np.testing.assert_allclose(pairs, expected, rtol=1e-10)


def infer_problem(rows: int = 6) -> tuple[Network, torch.Tensor, torch.Tensor]:
    """A network with two-dimensional annotators whose embedding matters, and distributions to explain."""
    noise = torch.Generator().manual_seed(3)
    network = Network([known()])
    size = rows_of(network).shape
    network = with_rows(network, torch.randn(size, generator=noise, dtype=torch.float64) * 1.5)
    x = torch.randn(rows, 5, generator=noise, dtype=torch.float64)
    y = torch.rand(rows, 3, generator=noise, dtype=torch.float64)
    return network, x, y / y.sum(dim=1, keepdim=True)


def test_with_backtracking_the_objective_of_infer_a_never_rises():
    network, x, y = infer_problem()
    starts = torch.randn(1, 1, 6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    # A decay at which plain steps overshoot (z − 2.5 z), so that backtracking has something to do.
    reckless = Descent(rate=1.0, steps=40, tol=0.0, backtracking=False)
    _, plain = infer_annotators(network, x, y, starts, 2.5, reckless)
    assert (plain.diff(dim=0) > 0).any()
    _, trace = infer_annotators(network, x, y, starts, 2.5, Descent(1.0, 40, 0.0))
    assert (trace.diff(dim=0) <= 0).all()
    assert (trace[-1] < trace[0]).all()


def test_one_plain_step_of_infer_a_is_the_papers():
    network, x, y = infer_problem()
    z = torch.randn(1, 6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    beta, gamma, h = 0.3, 0.05, 1e-6
    kl = kl_of_items(network, x, y)
    slope = torch.zeros_like(z)
    for j in range(2):
        up, down = z.clone(), z.clone()
        up[..., j] += h
        down[..., j] -= h
        slope[..., j] = (kl(up) - kl(down)) / (2 * h)
    how = Descent(beta, 1, 0.0, backtracking=False)
    ours, _ = infer_annotators(network, x, y, z.unsqueeze(0), gamma, how)
    np.testing.assert_allclose(ours, z - beta * slope - gamma * z, rtol=1e-6)


def test_the_best_of_several_starts_matches_a_grid_search():
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
    assert z.abs().max() < 3  # the minima lie inside the box that the grid covers
    # A grid of spacing 0.02 misses a minimum by at most half the curvature times 0.01² · 2
    np.testing.assert_allclose(trace[-1][0], best, atol=2e-4)
    assert (trace[-1][0] <= best + 1e-9).all()
    np.testing.assert_allclose(kl(z)[0] + decay / (2 * rate) * z[0].square().sum(1), trace[-1][0], rtol=1e-9)


def test_descent_finds_the_minimum_of_a_parabola():
    centre = torch.tensor([[[1.0, -2.0], [0.5, 3.0]]], dtype=torch.float64)
    z, trace = descend(
        lambda u: (u - centre).square().sum(dim=-1), torch.zeros_like(centre), Descent(0.3, 200, 1e-14)
    )
    np.testing.assert_allclose(z, centre, atol=1e-5)
    assert len(trace) - 1 < 200


@pytest.mark.parametrize("fusion", ["sum", "concat"])
def test_the_ensemble_as_printed_leaves_w_p_out(fusion: str):
    settings = {"item_size": 4, "annotator_size": 4, "fusion": fusion}
    network, x = random_network("concatenation", **settings).requires_grad_(False), random_batch().x
    for place, head in enumerate(HEADS):
        expected = torch.zeros(4, 3, dtype=torch.float64)
        for s, annotator in np.ndindex(2, 4):
            z = PHI(network.W_A[s, annotator] + x @ network.W_I[s].T + network.b_I[s])
            z_e = PHI(z @ network.W_E[s] + network.b_E[s] + z)
            logits = z_e @ network.W_y[s, place].T + network.b_y[s, place].T
            expected += SHARES[annotator] * logits.softmax(dim=-1) / 2
        ours = ensemble(network, x, network.W_A, SHARES, head=head, projected=False)
        np.testing.assert_allclose(ours, expected, rtol=1e-10)
        projected = ensemble(network, x, network.W_A, SHARES, head=head)
        assert not np.allclose(ours, projected, atol=1e-3)
