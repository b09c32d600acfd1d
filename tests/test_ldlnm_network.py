"""LDL-NM's network against hand-worked numbers, finite differences, and torch's own optimiser."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dissensus.text.ldlnm.inference import (  # noqa: E402
    Descent,
    descend,
    ensemble,
    infer_annotators,
    kl_of_items,
)
from dissensus.text.ldlnm.network import (  # noqa: E402
    Batch,
    Shape,
    Weights,
    annotator_half,
    bent,
    dropout_factors,
    forward,
    gradient,
    head_logits,
    item_half,
    log_heads,
    loss_terms,
    pair_distributions,
    softmax,
    softsign,
)
from dissensus.text.ldlnm.together import laid_side_by_side, places, train_each  # noqa: E402
from dissensus.text.ldlnm.training import (  # noqa: E402
    Adam,
    Schedule,
    TrainingSet,
    epoch_batches,
    train,
)
from dissensus.text.learners.torch_tools import threads  # noqa: E402

pytestmark = pytest.mark.torch

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread():
    """Networks this small only wait for each other on more threads."""
    with threads(1):
        yield


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("shift", [0.0, 59.0, -59.0, 300.0, -300.0])
def test_softmax_is_that_of_torch_for_small_and_large_logits(dim: int, shift: float) -> None:
    logits = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(1)) + shift
    np.testing.assert_allclose(softmax(logits, dim), logits.softmax(dim), rtol=2e-6)
    far_apart = 30 * logits  # up to 30 apart, where the base's own rounding tells most
    np.testing.assert_allclose(softmax(far_apart, dim), far_apart.softmax(dim), rtol=1e-5)


def test_a_network_that_has_lost_its_numbers_spoils_no_other() -> None:
    logits = torch.zeros(2, 3, 1)
    logits[0], logits[1, 0, 0] = math.nan, 100.0
    np.testing.assert_allclose(softmax(logits)[1], [[1.0], [0.0], [0.0]], atol=1e-40)


@pytest.mark.parametrize("dropped", [False, True])
def test_a_bent_value_and_its_slope_are_those_of_autograd(dropped: bool) -> None:
    noise = torch.Generator().manual_seed(2)
    v = torch.randn(2, 5, 3, generator=noise, dtype=torch.float64, requires_grad=True)
    factors = dropout_factors((2, 5, 3), 0.5, noise).double() if dropped else None
    expected = torch.nn.functional.softsign(v) * (1 if factors is None else factors)
    (slope,) = torch.autograd.grad(expected.sum(), v)
    for ours, theirs in zip(bent(v.detach().clone(), factors), (expected.detach(), slope), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_networks_as_rows_and_back() -> None:
    shape = SHAPES["direct path"]
    w = Weights(shape, torch.arange(2.0 * shape.size))
    rows = w.rows()
    for one in range(2):  # a row has the network's own blocks, one after the other
        own = [block[one].flatten() for block in w.blocks.values()]
        assert torch.equal(rows[one], torch.cat(own))
    assert torch.equal(Weights.of_rows(shape, rows).flat, w.flat)


def test_some_networks_taken_out_and_put_back() -> None:
    shape = replace(SHAPES["direct path"], networks=3)
    w = Weights(shape, torch.arange(3.0 * shape.size))
    rows = w.rows()
    assert torch.equal(w.some(np.array([False, True, True])).rows(), rows[1:])
    assert torch.equal(w.some(np.array([2, 0])).rows(), rows[[2, 0]])
    w.put(np.array([0, 2]), w.some(np.array([1, 1])))
    assert torch.equal(w.rows(), rows[[1, 1, 1]])


def hand_network(fusion: str = "concat") -> Weights:
    """One unit in every layer, two classes, weights that make every step a round number."""
    w = Weights.zeros(Shape(1, 1, 2, 1, 1, 1, fusion), CPU, torch.float64)
    w["W_I"][:] = 2.0
    w["W_A"][:] = -1.0
    w["W_P"][:] = 1.0
    w["W_PA"][:] = 1.0
    w["b_P"][:] = 1.0
    w["W_E"][:] = 1.0
    heads = [2 * math.log(3), 0, 2 * math.log(7), 0, 0, 0]
    w["W_y"][0, 0] = torch.tensor(heads, dtype=torch.float64)
    return w


def hand_batch() -> Batch:
    targets = torch.tensor([[1.0, 0.0, 0.5, 0.5, 1.0, 0.0]], dtype=torch.float64)
    return Batch(torch.tensor([[0.5]], dtype=torch.float64), None, torch.tensor([0]), targets.T)


def test_softsign_is_v_over_one_plus_absolute_v():
    values = softsign(torch.tensor([0.0, 1.0, -1.0, 3.0]))
    np.testing.assert_allclose(values, [0.0, 0.5, -0.5, 0.75], rtol=1e-7)


def test_forward_pass_by_hand():
    # z_I = 2 · ½ = 1, φ = ½; z_A = −1, φ = −½; z_P = φ(½ − ½ + 1) = ½; z_E = φ(½ + ½) = ½;
    # logits ½ · (2 log 3, 0), ½ · (2 log 7, 0), (0, 0)
    done = forward(hand_network(), hand_batch())
    assert done.item.item() == pytest.approx(0.5, rel=1e-12)
    assert done.annotator.item() == pytest.approx(-0.5, rel=1e-12)
    assert done.projected.item() == pytest.approx(0.5, rel=1e-12)
    assert done.encoded.item() == pytest.approx(0.5, rel=1e-12)
    expected = [3 / 4, 1 / 4, 7 / 8, 1 / 8, 1 / 2, 1 / 2]
    np.testing.assert_allclose(log_heads(done.logits, 2).exp().flatten(), expected, rtol=1e-12)


def test_forward_pass_with_summed_embeddings_by_hand():
    # φ(z_I + z_A) = φ(1 − 1) = 0; z_P = φ(0 + 1) = ½, and from there on as above
    done = forward(hand_network("sum"), hand_batch())
    assert done.annotator.item() == pytest.approx(0.0, abs=1e-12)
    assert done.encoded.item() == pytest.approx(0.5, rel=1e-12)


def test_each_loss_term_by_hand():
    terms = loss_terms(forward(hand_network(), hand_batch()).logits, hand_batch().targets, 2)
    # −log ¾;  ½ log(½ / ⅞) + ½ log(½ / ⅛) = ½ log(16/7);  1 · log(1 / ½)
    expected = [-math.log(3 / 4), 0.5 * math.log(16 / 7), math.log(2)]
    np.testing.assert_allclose(terms.flatten(), expected, rtol=1e-12)


def random_problem(shape: Shape, seed: int = 0) -> tuple[Weights, Batch]:
    """Weights of no special form, and labels of which some share an item."""
    noise = torch.Generator().manual_seed(seed)
    w = Weights.orthogonal(shape, noise)
    w = Weights(shape, (w.flat + 0.2 * torch.randn(w.flat.shape, generator=noise)).double())
    shares = torch.rand(7, 3, shape.classes, generator=noise, dtype=torch.float64)
    batch = Batch(
        torch.randn(4, shape.features, generator=noise, dtype=torch.float64),
        torch.tensor([0, 0, 1, 2, 2, 2, 3]),
        torch.tensor([0, 1, 1, 2, 0, 3, 2]),
        (shares / shares.sum(dim=-1, keepdim=True)).flatten(1).T.contiguous(),
    )
    return w, batch


SHAPES = {
    "concatenation": Shape(5, 4, 3, 3, 2, 4, "concat", False, 2),
    "sum": Shape(5, 4, 3, 3, 3, 4, "sum", False, 2),
    "direct path": Shape(5, 4, 3, 3, 2, 4, "concat", True, 2),
    "sum and direct path": Shape(5, 4, 3, 3, 3, 4, "sum", True, 1),
    "no annotators": Shape(5, 4, 3, 3, 0, 4, "concat", True, 1),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("own_rows", [False, True])
def test_gradient_equals_finite_differences(shape: Shape, dropped: bool, own_rows: bool):
    w, batch = random_problem(shape)
    if own_rows:  # every label brings its own row of features
        batch = batch._replace(x=batch.x[batch.place], place=None)
    noise = torch.Generator().manual_seed(1)
    size = (shape.networks, 7, shape.latent_size)
    masks = [dropout_factors(size, 0.5, noise).double() for _ in range(2)]
    masks = (masks[0], masks[1].mT) if dropped else (None, None)
    head_weights = torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64).view(3, 1, 1)

    def loss(rows: torch.Tensor) -> torch.Tensor:
        done = forward(Weights.of_rows(shape, rows), batch, masks)
        terms = loss_terms(done.logits, batch.targets, shape.classes)
        return (terms * head_weights.view(3, 1)).sum(dim=1).mean(dim=1)

    ours = Weights.zeros(shape, CPU, torch.float64)
    gradient(w, batch, forward(w, batch, masks), ours, head_weights)
    step = 1e-6
    for place in range(shape.size):  # networks do not touch each other: one number of each at a time
        up, down = w.rows(), w.rows()
        up[:, place] += step
        down[:, place] -= step
        numeric = (loss(up) - loss(down)) / (2 * step)
        np.testing.assert_allclose(ours.rows()[:, place], numeric, rtol=1e-5, atol=1e-9)


def test_adam_takes_the_steps_of_torchs_adam():
    shape = SHAPES["direct path"]
    start = torch.randn(2, shape.size, generator=torch.Generator().manual_seed(0))
    decays = shape.decayed, shape.size - shape.decayed  # W_A and the biases do not
    theirs = [torch.nn.Parameter(part) for part in start.clone().split(decays, dim=1)]
    peer = torch.optim.Adam([{"params": theirs[0], "weight_decay": 0.1}, {"params": theirs[1]}], lr=0.01)
    ours = Weights.of_rows(shape, start)
    adam = Adam(ours, 0.01, 0.1)
    for seed in range(5):
        slope = torch.randn(2, shape.size, generator=torch.Generator().manual_seed(seed))
        for part, its_slope in zip(theirs, slope.split(decays, dim=1), strict=True):
            part.grad = its_slope.clone()
        peer.step()
        adam.step(Weights.of_rows(shape, slope))
    np.testing.assert_allclose(ours.rows(), torch.cat([part.detach() for part in theirs], dim=1), rtol=1e-5)


def test_weight_decay_spares_annotators_and_biases():
    shape = SHAPES["direct path"]
    names = list(shape.blocks)
    sizes = [a * b for a, b in shape.blocks.values()]
    assert shape.decayed == sum(sizes[: names.index("W_A")])
    assert all(name[0] == "b" for name in names[names.index("W_A") + 1 :])


def test_orthogonal_start():
    w = Weights.orthogonal(Shape(6, 9, 2, 4, 3, 4, networks=2), torch.Generator().manual_seed(0))
    for network in range(2):
        np.testing.assert_allclose(w["W_I"][network] @ w["W_I"][network].T, np.eye(4), atol=1e-5)
        np.testing.assert_allclose(w["W_A"][network].T @ w["W_A"][network], np.eye(3), atol=1e-5)
        np.testing.assert_allclose(w["W_E"][network] @ w["W_E"][network].T, np.eye(4), atol=1e-5)
        fused = torch.cat([w["W_P"][network], w["W_PA"][network]])  # one matrix, of both embeddings
        np.testing.assert_allclose(fused.T @ fused, np.eye(4), atol=1e-5)
    assert not torch.equal(w["W_I"][0], w["W_I"][1])
    assert not w["b_P"].any()


@pytest.mark.parametrize("rate", [0.001, 0.2, 0.5])  # 0.001 is nearer to 0 than to 1/256
def test_dropout_keeps_the_mean_and_the_rate(rate: float):
    factors = dropout_factors((400, 1000), rate, torch.Generator().manual_seed(0))
    # 400,000 draws: four standard errors of the share are below 0.0035
    assert (factors == 0).double().mean().item() == pytest.approx(rate, abs=0.002 + 0.0035)
    assert factors.double().mean().item() == pytest.approx(1.0, abs=0.01)


def plain_logits(w: Weights, batch: Batch, masks: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Equations (1) to (4) of a concatenating network without a direct path, as printed."""
    z_I = batch.x @ w["W_I"].mT + w["b_I"]
    z = torch.cat([z_I[:, batch.place], w["W_A"][:, batch.annotator]], dim=-1)
    phi = torch.nn.functional.softsign
    z_P = masks[0] * phi(phi(z) @ torch.cat([w["W_P"], w["W_PA"]], dim=1) + w["b_P"])
    z_E = masks[1] * phi(z_P @ w["W_E"] + w["b_E"] + z_P)
    return z_E @ w["W_y"] + w["b_y"]


def test_training_drops_parts_of_both_layers():
    """One step of training is the step down the gradient of the printed equations with both masks on."""
    shape, rate = SHAPES["concatenation"], 0.01
    data = training_data(shape)
    start = Weights.orthogonal(shape, torch.Generator().manual_seed(0))
    how = schedule(batch_by="items", batch_size=36, epochs=1, learning_rate=rate, dropout=0.4)
    trained = train(Weights(shape, start.flat.clone()), data, how, None, 5)
    (batch,) = epoch_batches(data, how, np.random.default_rng(5))
    sizes = (2, shape.networks, len(batch.annotator), shape.latent_size)
    masks = dropout_factors(sizes, 0.4, torch.Generator().manual_seed(5))
    flat = start.flat.clone().requires_grad_()
    logits = plain_logits(Weights(shape, flat), batch, (masks[0], masks[1])).view(*sizes[1:3], 3, -1)
    targets = batch.targets.T.reshape(len(batch.annotator), 3, -1)
    loss = torch.nn.functional.kl_div(logits.log_softmax(-1), targets.expand_as(logits), reduction="none")
    loss.sum(dim=(2, 3)).mean(dim=1).sum().backward()
    # Adam's first step: rate · g / (|g| + ε)
    expected = start.flat - rate * flat.grad / (flat.grad.abs() + 1e-8)
    moved = flat.grad.abs() > 1e-6  # below, ε and the rounding of g decide
    np.testing.assert_allclose(trained.weights.flat[moved], expected.detach()[moved], atol=1e-5)
    for mask in masks:
        assert 0.2 < (mask == 0).double().mean() < 0.6


def test_dropout_at_evaluation_drops_parts_of_both_layers():
    shape = SHAPES["concatenation"]
    w, batch = random_problem(shape)
    halves = item_half(w, batch.x)[:, batch.place] + annotator_half(w, w["W_A"][:, batch.annotator])
    noise = torch.Generator().manual_seed(3)
    masks = [dropout_factors((shape.networks, 7, shape.latent_size), 0.5, noise).double() for _ in range(2)]
    whole = plain_logits(w, batch, (masks[0], masks[1]))
    for place, head in enumerate(("label", "item", "annotator")):
        ours = head_logits(w, halves, head, 0.5, torch.Generator().manual_seed(3))
        P = shape.classes
        np.testing.assert_allclose(ours.mT, whole[..., place * P : (place + 1) * P], rtol=1e-10)


def training_data(shape: Shape, n_items: int = 12, per_item: int = 3) -> TrainingSet:
    rng = np.random.default_rng(0)
    item = np.repeat(np.arange(n_items), per_item)
    targets = rng.dirichlet(np.ones(shape.classes), size=(len(item), 3)).reshape(len(item), -1)
    return TrainingSet(
        torch.tensor(rng.normal(size=(n_items, shape.features)), dtype=torch.float32),
        item,
        torch.from_numpy(rng.integers(shape.annotators, size=len(item))),
        torch.tensor(targets, dtype=torch.float32),
    )


def schedule(**changes: object) -> Schedule:
    return Schedule(
        **({"epochs": 3, "patience": None, "batch_size": 8, "batch_by": "items", "learning_rate": 0.01,
            "weight_decay": 0.0, "dropout": 0.0, "feature_dropout": 0.0} | changes)
    )  # fmt: skip


@pytest.mark.parametrize("batch_by", ["items", "labels"])
def test_an_epoch_shows_every_label_once_with_its_own_features(batch_by: str):
    data = training_data(SHAPES["concatenation"])
    batches = list(epoch_batches(data, schedule(batch_by=batch_by), np.random.default_rng(0)))
    seen = torch.cat([batch.targets.T for batch in batches])
    order = np.lexsort(np.asarray(seen).T)
    np.testing.assert_array_equal(seen[order], data.targets[np.lexsort(np.asarray(data.targets).T)])
    x = torch.cat([batch.x if batch.place is None else batch.x[batch.place] for batch in batches])
    of_label = {tuple(target.tolist()): row for target, row in zip(data.targets, data.item, strict=True)}
    for target, features in zip(seen, x, strict=True):
        assert torch.equal(features, data.x[of_label[tuple(target.tolist())]])


def test_both_kinds_of_batch_take_the_same_step_on_the_same_labels():
    shape, data = SHAPES["concatenation"], training_data(SHAPES["concatenation"])
    ends = []
    for batch_by in ("items", "labels"):  # one batch holds everything, so only the layout differs
        w = Weights.orthogonal(shape, torch.Generator().manual_seed(0))
        train(w, data, schedule(batch_by=batch_by, batch_size=36, epochs=1), None, 0)
        ends.append(w.flat)
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-3, atol=1e-5)


def test_training_lowers_the_loss_and_keeps_each_networks_best_epoch():
    shape, data = SHAPES["concatenation"], training_data(SHAPES["concatenation"])
    w = Weights.orthogonal(shape, torch.Generator().manual_seed(0))
    everything = Batch(data.x, torch.from_numpy(data.item), data.annotator, data.targets.T.contiguous())

    def loss(weights: Weights) -> torch.Tensor:
        terms = loss_terms(forward(weights, everything).logits, everything.targets, shape.classes)
        return terms.sum(dim=1).mean(dim=1)

    before = loss(w)
    trained = train(w, data, schedule(epochs=60, learning_rate=0.03), loss, 0)
    assert (loss(trained.weights) < before).all()
    np.testing.assert_array_equal(trained.epoch, trained.trace.argmin(axis=0))
    np.testing.assert_allclose(loss(trained.weights), trained.trace.min(axis=0), rtol=1e-6)
    assert trained.stopped == "max_iter"


@pytest.mark.parametrize("form", [{}, {"direct": True}, {"fusion": "sum"}])
def test_networks_of_many_sizes_train_in_one_program_as_each_would_alone(form: dict[str, object]):
    sizes = [(2, 2, 4), (4, 4, 4), (3, 3, 4)] if form.get("fusion") else [(2, 5, 4), (4, 3, 4), (3, 1, 4)]
    shapes = [Shape(6, 5, 3, *size, **form) for size in sizes]  # type: ignore[arg-type]
    data = training_data(shapes[0])
    how = schedule(epochs=40, patience=3, learning_rate=0.03, weight_decay=1e-4, dropout=0.5)
    # Some of what is learned from these targets holds for others; learned by heart, they mislead.
    unlike = (0.6 * data.targets + 0.4 * torch.roll(data.targets, 5, dims=0)).T.contiguous()

    def loss(weights: Weights) -> torch.Tensor:
        everything = Batch(data.x, torch.from_numpy(data.item), data.annotator, unlike)
        return loss_terms(forward(weights, everything).logits, unlike, 3).sum(dim=1).mean(dim=1)

    def starts() -> list[Weights]:
        return [Weights.orthogonal(shape, torch.Generator().manual_seed(7)) for shape in shapes]

    together = train_each(laid_side_by_side(starts()), data, how, loss, 2)
    alone = [train(start, data, how, loss, 2) for start in starts()]
    assert together.stopped == "patience"
    if "direct" not in form:  # the direct path learns by heart at once
        assert len(set(together.epoch.tolist())) > 1  # one ended and left, and the others went on
    for row, (shape, one) in enumerate(zip(shapes, alone, strict=True)):
        assert together.epoch[row] == one.epoch[0]
        held = places(shape, together.weights.shape)
        mine = together.weights.rows()[row]
        np.testing.assert_allclose(mine[held], one.weights.flat, atol=1e-4)
        mine[held] = 0
        assert not mine.any()  # what a network does not have stays zero


def test_patience_ends_training():
    shape, data = SHAPES["concatenation"], training_data(SHAPES["concatenation"])
    rising = iter(range(100))
    w = Weights.orthogonal(shape, torch.Generator().manual_seed(0))
    trained = train(
        w, data, schedule(epochs=50, patience=4), lambda _: torch.full((2,), float(next(rising))), 0
    )
    assert trained.stopped == "patience"
    assert len(trained.trace) == 5
    np.testing.assert_array_equal(trained.epoch, [0, 0])


# ---- inference --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_the_halves_make_the_whole(shape: Shape):
    w, batch = random_problem(shape)
    logits = forward(w, batch).logits
    halves = item_half(w, batch.x)[:, batch.place] + annotator_half(w, w["W_A"][:, batch.annotator])
    for place, head in enumerate(("label", "item", "annotator")):
        ours = head_logits(w, halves, head)
        if shape.direct and place < 2:
            P = shape.classes
            ours = ours + (batch.x @ w["D"][:, place * P : (place + 1) * P].mT)[:, batch.place].mT
        whole = logits[:, place * shape.classes : (place + 1) * shape.classes]
        np.testing.assert_allclose(ours, whole, rtol=1e-10)


@pytest.mark.parametrize("head", ["label", "item"])
def test_the_ensemble_is_the_weighted_mean_of_forward_passes(head: str):
    shape = SHAPES["direct path"]
    w, batch = random_problem(shape)
    chances = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    crowd = ensemble(w, batch.x, w["W_A"], chances, head=head)
    expected = torch.zeros(4, 3, dtype=torch.float64)
    for annotator in range(4):
        z_A = w["W_A"][:, annotator : annotator + 1].expand(-1, 4, -1)
        expected += chances[annotator] * pair_distributions(w, batch.x, z_A, head)
    np.testing.assert_allclose(crowd, expected, rtol=1e-10)


def test_the_mode_counts_the_annotators_best_guesses():
    shape = SHAPES["concatenation"]
    w, batch = random_problem(shape)
    even = torch.full((4,), 0.25, dtype=torch.float64)
    votes = ensemble(w, batch.x, w["W_A"], even, head="label", reduce="mode")
    expected = np.zeros((4, 3))
    for annotator in range(4):
        z_A = w["W_A"][:, annotator : annotator + 1].expand(-1, 4, -1)
        guess = pair_distributions(w, batch.x, z_A, "label").argmax(dim=1)
        expected[np.arange(4), guess] += 0.25
    np.testing.assert_allclose(votes, expected, rtol=1e-12)


def test_with_one_annotator_the_ensemble_is_that_annotators_forward_pass():
    w, batch = random_problem(Shape(5, 1, 3, 3, 2, 4, networks=1))
    one = batch._replace(annotator=torch.zeros(7, dtype=torch.int64))
    whole = log_heads(forward(w, one).logits, 3).exp()[0, 3:6].T
    crowd = ensemble(w, batch.x, w["W_A"], torch.ones(1, dtype=torch.float64))
    np.testing.assert_allclose(crowd[batch.place], whole, rtol=1e-10)


def infer_problem(rows: int = 6) -> tuple[Weights, torch.Tensor, torch.Tensor]:
    """A network with two-dimensional annotators whose embedding matters, and distributions to explain."""
    noise = torch.Generator().manual_seed(3)
    shape = Shape(5, 4, 3, 3, 2, 4)
    w = Weights(shape, torch.randn(shape.size, generator=noise, dtype=torch.float64) * 1.5)
    x = torch.randn(rows, 5, generator=noise, dtype=torch.float64)
    y = torch.rand(rows, 3, generator=noise, dtype=torch.float64)
    return w, x, y / y.sum(dim=1, keepdim=True)


def test_with_backtracking_the_objective_of_infer_a_never_rises():
    w, x, y = infer_problem()
    start = torch.randn(1, 6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    # A decay at which plain steps overshoot (z − 2.5 z), so that backtracking has something to do.
    reckless = Descent(rate=1.0, steps=40, tol=0.0, backtracking=False)
    _, plain, _ = infer_annotators(w, x, y, [start], 2.5, reckless)
    assert (plain.diff(dim=0) > 0).any()
    _, trace, _ = infer_annotators(w, x, y, [start], 2.5, Descent(1.0, 40, 0.0))
    assert (trace.diff(dim=0) <= 0).all()
    assert (trace[-1] < trace[0]).all()


def test_one_plain_step_of_infer_a_is_the_papers():
    w, x, y = infer_problem()
    z = torch.randn(1, 6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    beta, gamma, h = 0.3, 0.05, 1e-6
    kl = kl_of_items(w, x, y)
    slope = torch.zeros_like(z)
    for j in range(2):
        up, down = z.clone(), z.clone()
        up[..., j] += h
        down[..., j] -= h
        slope[..., j] = (kl(up) - kl(down)) / (2 * h)
    ours, _, _ = infer_annotators(w, x, y, [z], gamma, Descent(beta, 1, 0.0, backtracking=False))
    np.testing.assert_allclose(ours, z - beta * slope - gamma * z, rtol=1e-6)


def test_the_best_of_several_starts_matches_a_grid_search():
    w, x, y = infer_problem()
    rate, decay = 0.5, 0.05
    noise = torch.Generator().manual_seed(1)
    starts = [torch.zeros(1, 6, 2, dtype=torch.float64)]
    starts += [4 * torch.rand(1, 6, 2, generator=noise, dtype=torch.float64) - 2 for _ in range(4)]
    z, trace, _ = infer_annotators(w, x, y, starts, decay, Descent(rate, 500, 1e-9))
    kl = kl_of_items(w, x, y)
    axis = torch.linspace(-3, 3, 301, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    best = []
    for row in range(6):
        values = kl_of_items(w, x[row].expand(len(grid), -1), y[row].expand(len(grid), -1))(grid.unsqueeze(0))
        best.append((values[0] + decay / (2 * rate) * grid.square().sum(dim=1)).min())
    best = torch.stack(best)
    assert z.abs().max() < 3  # the minima lie inside the box that the grid covers
    # A grid of spacing 0.02 misses a minimum by at most half the curvature times 0.01² · 2
    np.testing.assert_allclose(trace[-1][0], best, atol=2e-4)
    assert (trace[-1][0] <= best + 1e-9).all()
    np.testing.assert_allclose(kl(z)[0] + decay / (2 * rate) * z[0].square().sum(1), trace[-1][0], rtol=1e-9)


def test_descent_finds_the_minimum_of_a_parabola():
    centre = torch.tensor([[[1.0, -2.0], [0.5, 3.0]]], dtype=torch.float64)
    z, _, steps = descend(
        lambda u: (u - centre).square().sum(dim=-1), torch.zeros_like(centre), Descent(0.3, 200, 1e-14)
    )
    np.testing.assert_allclose(z, centre, atol=1e-5)
    assert steps < 200


@pytest.mark.parametrize("fusion", ["sum", "concat"])
def test_the_ensemble_as_printed_leaves_w_p_out(fusion: str):
    shape = Shape(5, 4, 3, 4, 4, 4, fusion, False, 2)
    w, batch = random_problem(shape)
    chances = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    phi = torch.nn.functional.softsign
    for place, head in enumerate(("label", "item", "annotator")):
        expected = torch.zeros(4, 3, dtype=torch.float64)
        for network, annotator in np.ndindex(2, 4):
            z = phi(w["W_A"][network, annotator] + batch.x @ w["W_I"][network].T + w["b_I"][network])
            z_e = phi(z @ w["W_E"][network] + w["b_E"][network] + z)
            logits = (z_e @ w["W_y"][network] + w["b_y"][network])[:, 3 * place : 3 * place + 3]
            expected += chances[annotator] * logits.softmax(dim=-1) / 2
        ours = ensemble(w, batch.x, w["W_A"], chances, head=head, projected=False)
        np.testing.assert_allclose(ours, expected, rtol=1e-10)
        assert not np.allclose(ours, ensemble(w, batch.x, w["W_A"], chances, head=head), atol=1e-3)
