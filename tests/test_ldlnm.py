"""LDLNM behind the model interface: what it promises, what it recovers, and that chance does not fool it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import dissensus as ds
from dissensus.errors import DataError, MissingExtraError, NotFittedError, ParameterError, install_command
from dissensus.labels.annotations import Annotations

pytestmark = pytest.mark.torch

pytest.importorskip("torch")

SMALL: dict[str, Any] = {
    "item_size": 8,
    "annotator_size": 4,
    "latent_size": 8,
    "n_networks": 2,
    "epochs": 6,
    "patience": None,
}
LONGER = SMALL | {"n_networks": 1, "epochs": 30, "batch_size": 32, "learning_rate": 1e-2}
M, N, P, J = 60, 12, 3, 5


def crowd(n_items: int = M, seed: int = 0, per_item: int = 5, biased: int = 0, n: int = N) -> Annotations:
    """Items whose class follows from their features, given by annotators who err one time in ten.

    The first ``biased`` annotators answer one class further.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_items, J)).astype(np.float32)
    truth = (x @ np.random.default_rng(99).normal(size=(J, P))).argmax(axis=1)
    item = np.repeat(np.arange(n_items), per_item)
    annotator = np.concatenate([rng.choice(n, per_item, replace=False) for _ in range(n_items)])
    said = np.where(rng.random(len(item)) < 0.9, truth[item], rng.integers(P, size=len(item)))
    said = np.where(annotator < biased, (said + 1) % P, said)
    known = Annotations.from_arrays(item, annotator, said, classes=range(P))
    return ds.text.with_features(known, x)


@pytest.fixture(scope="module")
def fitted() -> tuple[ds.LDLNM, Annotations]:
    known = crowd()
    return ds.LDLNM(**SMALL).fit(known), known


def test_distributions_of_items_fitted_and_new(fitted):
    model, known = fitted
    assert model.label_distributions_.shape == (M, P)
    np.testing.assert_allclose(model.label_distributions_.sum(axis=1), 1.0, rtol=1e-12)
    new = np.random.default_rng(5).normal(size=(7, J))
    for settings in ({}, {"head": "label"}, {"reduce": "mode"}, {"weight_by": "labels"}):
        rows = model.label_distributions(new, **settings)
        assert rows.shape == (7, P)
        np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-12)
    assert set(model.predict()) <= set(known.classes)


def test_pairs_unknown_items_and_unknown_annotators(fitted):
    model, known = fitted
    pairs = model.predict_proba(known.items[[0, 0]], known.annotators[[0, 1]])
    assert np.abs(pairs[0] - pairs[1]).max() > 0
    stranger = model.predict_proba(known.items[:1], [12345])
    crowd_says = model.label_distributions(model.features_[:1], head="label")
    np.testing.assert_allclose(stranger, crowd_says, rtol=1e-6)
    nowhere = model.predict_proba([12345], known.annotators[:1])
    np.testing.assert_allclose(nowhere[0], model.prior_distribution_, rtol=1e-12)


@pytest.mark.parametrize("changes", [{}, {"direct": False}, {"fusion": "sum", "annotator_size": 8}], ids=str)
def test_pairs_come_out_the_same_in_blocks(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch):
    import torch

    from dissensus.text.ldlnm import network as networks

    known = crowd(12)
    model = ds.LDLNM(**(SMALL | {"epochs": 1, "dev_size": 0.0} | changes)).fit(known)
    with torch.inference_mode():  # all labels in one forward pass
        x = networks.inputs(model, model.features_)
        item, annotator = (
            torch.from_numpy(codes.astype(np.int64)) for codes in (known.item, known.annotator)
        )
        logits = networks.Network.fitted(model)(networks.Batch(x, item, annotator, torch.empty(0)))
        expected = logits[:, 0].softmax(dim=1).mean(dim=0).T
    pairs = known.items[known.item], known.annotators[known.annotator]
    np.testing.assert_allclose(model.predict_proba(*pairs), expected, rtol=1e-5)

    whole, sizes = networks.Network.encode, []
    monkeypatch.setattr(networks, "NUMBERS_PER_BLOCK", 7 * 2 * 8)  # seven pairs of two networks, eight wide
    monkeypatch.setattr(
        networks.Network, "encode", lambda self, z: sizes.append(z.shape[1]) or whole(self, z)
    )
    np.testing.assert_allclose(model.predict_proba(*pairs), expected, rtol=1e-5)
    assert sizes == [7] * 8 + [4]


def test_with_one_annotator_the_crowd_is_that_annotator():
    known = crowd(per_item=1, n=1)
    model = ds.LDLNM(**SMALL).fit(known)
    alone = model.predict_proba(known.items, [known.annotators[0]] * M)
    crowd_says = model.label_distributions(model.features_, head="label")
    np.testing.assert_allclose(crowd_says, alone, rtol=1e-5)


def test_weighing_by_labels_is_a_weighted_mean_of_annotators(fitted):
    model, known = fitted
    each = np.stack([model.predict_proba(known.items[:4], [who] * 4) for who in known.annotators])
    load = model.annotator_load_ / model.annotator_load_.sum()
    weighted = model.label_distributions(model.features_[:4], head="label", weight_by="labels")
    np.testing.assert_allclose(weighted, np.einsum("n,nip->ip", load, each), rtol=1e-5)
    even = model.label_distributions(model.features_[:4], head="label")
    np.testing.assert_allclose(even, each.mean(axis=0), rtol=1e-5)


def test_same_seed_same_bits_whatever_the_order_of_rows(fitted):
    model, known = fitted
    order = np.random.default_rng(1).permutation(known.n_labels)
    shuffled = Annotations.from_arrays(
        known.items[known.item][order],
        known.annotators[known.annotator][order],
        known.classes[known.label][order],
        classes=range(P),
    )
    again = ds.LDLNM(**SMALL).fit(shuffled, model.features_)
    np.testing.assert_array_equal(again.weights_, model.weights_)
    np.testing.assert_array_equal(again.label_distributions_, model.label_distributions_)
    other = ds.LDLNM(**SMALL, seed=1).fit(known)
    assert not np.array_equal(other.weights_, model.weights_)
    assert int(model.n_threads_) == 1


def test_saved_and_loaded_it_says_the_same(fitted, tmp_path: Path):
    model, known = fitted
    model.save(tmp_path / "m.safetensors")
    loaded = ds.load(tmp_path / "m.safetensors")
    new = np.random.default_rng(5).normal(size=(7, J))
    np.testing.assert_array_equal(loaded.label_distributions(new), model.label_distributions(new))
    np.testing.assert_array_equal(
        loaded.predict_proba(known.items[:5], known.annotators[:5]),
        model.predict_proba(known.items[:5], known.annotators[:5]),
    )
    assert loaded.get_params() == model.get_params()


def test_settings_survive_clone_and_are_checked():
    model = ds.LDLNM(**SMALL)
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(ParameterError, match="The 'fusion' parameter of LDLNM"):
        ds.LDLNM(fusion="product").fit(crowd())
    with pytest.raises(ParameterError, match="of one size"):
        ds.LDLNM(8, 4, fusion="sum").fit(crowd())
    for wrong in ((0, 0, 1), 1.0, "abc", (1.0, None, 1.0), (1.0, 1.0)):
        with pytest.raises(ParameterError, match="loss_weights"):
            ds.LDLNM(loss_weights=wrong).fit(crowd())


def test_what_is_missing_is_said():
    plain = Annotations.from_arrays([0, 1], [0, 1], [0, 1])
    with pytest.raises(DataError, match="neither features nor a column 'text'"):
        ds.LDLNM(**SMALL).fit(plain)
    with pytest.raises(DataError, match="does not give one row to each of 2 items"):
        ds.LDLNM(**SMALL).fit(plain, np.zeros((3, 2)))
    with pytest.raises(NotFittedError):
        ds.LDLNM().label_distributions(np.zeros((1, 2)))
    counts = Annotations.from_counts([[2, 1], [0, 3]])
    with pytest.raises(DataError, match="who gave each label"):
        ds.LDLNM(**SMALL).fit(counts, np.ones((2, 2)))


def test_other_width_of_features_is_refused(fitted):
    with pytest.raises(DataError, match="4 features came and LDLNM was fitted on 5"):
        fitted[0].label_distributions(np.zeros((2, 4)))


@pytest.mark.parametrize(
    "settings", [{"head": "lable"}, {"reduce": "mean"}, {"weight_by": ""}, {"dropout_seed": -1}], ids=str
)
def test_what_replaces_a_setting_keeps_its_rule(fitted, settings: dict[str, Any]):
    name = next(iter(settings))
    with pytest.raises(ParameterError, match=f"The '{name}' parameter of LDLNM.label_distributions must be"):
        fitted[0].label_distributions(fitted[0].features_[:1], **settings)


def test_a_dev_pair_is_checked():
    known = crowd(12)
    x, gold = known_features(known)[:4], np.full((4, P), 1 / P)
    wrong = [
        ((x, gold, gold), r"a pair \(X, distributions\) is needed, got a tuple of 3"),
        ((x[:3], gold), "dev X has 3 rows and dev distributions 4"),
        ((x, np.full((4, 2), 0.5)), "dev has 2 classes and the training part 3"),
        ((x[:, :4], gold), "dev has 4 features an item and the training part 5"),
        ((x, gold / 2), "row 0 is not a distribution"),
    ]
    for dev, word in wrong:
        with pytest.raises(DataError, match=word):
            ds.LDLNM(**SMALL).fit(known, dev=dev)


def test_dev_items_of_another_width_are_refused():
    dev = crowd(4)
    new = Annotations.from_arrays(["new"], [0], [0], classes=range(P))
    with pytest.raises(DataError, match="dev has 2 features an item and the training part 5"):
        ds.LDLNM(**SMALL).fit(dev, dev=ds.text.with_features(new, [[1.0, 2.0]]))


@pytest.mark.parametrize(
    "changes",
    [
        {"fusion": "sum", "annotator_size": 8},
        {"annotators": False},
        {"direct": False, "batch_by": "labels"},
        {"loss_weights": (1.0, 0.5, 0.0)},
        {"dev_size": 0.0},
    ],
)
def test_every_form_fits(changes: dict[str, Any]):
    known = crowd()
    model = ds.LDLNM(**(SMALL | changes)).fit(known)
    assert np.isfinite(model.score(known))
    assert np.isfinite(model.label_distributions_).all()
    if "dev_size" in changes:
        assert model.epoch_.tolist() == [-1, -1]


def test_without_annotators_everyone_gives_the_same_answer():
    known = crowd()
    model = ds.LDLNM(**SMALL, annotators=False).fit(known)
    pairs = model.predict_proba([known.items[0]] * N, known.annotators)
    np.testing.assert_allclose(pairs, pairs[:1].repeat(N, axis=0), rtol=1e-12)
    counts = Annotations.from_counts(known.counts)
    assert ds.LDLNM(**SMALL, annotators=False).fit(counts, model.features_).label_distributions_.shape == (
        M,
        P,
    )


def test_given_targets_replace_the_items_own_shares():
    known = crowd()
    uniform = np.full((M, P), 1 / P)
    model = ds.LDLNM(**LONGER, dev_size=0.0).fit(known, item_distributions=uniform)
    own = ds.LDLNM(**LONGER, dev_size=0.0).fit(known)
    assert np.abs(model.label_distributions_ - 1 / P).max() < 0.2
    assert np.abs(own.label_distributions_ - 1 / P).max() > 0.4
    with pytest.raises(DataError, match="item distributions of shape"):
        ds.LDLNM(**SMALL).fit(known, item_distributions=uniform[:5])


def test_dropout_left_on_varies_around_the_prediction(fitted):
    model, _ = fitted
    x = model.features_[:6]
    samples = np.stack([model.label_distributions(x, dropout_seed=s) for s in range(20)])
    assert samples.std(axis=0).max() > 1e-4
    np.testing.assert_array_equal(samples[3], model.label_distributions(x, dropout_seed=3))
    np.testing.assert_allclose(samples.mean(axis=0), model.label_distributions(x), atol=0.05)


def test_embeddings_are_exposed(fitted):
    model, _ = fitted
    assert model.item_embeddings_.shape == (M, 2 * 8)
    assert model.annotator_embeddings_.shape == (N, 2 * 4)


def test_the_epoch_is_chosen_on_what_dev_is():
    known = crowd()
    parts = known.split_items({"train": 0.7, "dev": 0.3})
    gold = parts["dev"].counts / parts["dev"].counts.sum(axis=1, keepdims=True)
    by_items = ds.LDLNM(**SMALL).fit(parts["train"], dev=parts["dev"])
    by_pair = ds.LDLNM(**SMALL).fit(parts["train"], dev=(known_features(parts["dev"]), gold))
    np.testing.assert_array_equal(by_items.weights_, by_pair.weights_)
    kept, held = known.split_labels(0.2, seed=0)
    by_labels = ds.LDLNM(**(SMALL | {"n_networks": 1})).fit(kept, dev=held)
    # The best epoch's loss is what the fitted model scores on those labels.
    assert by_labels.trace_.min() == pytest.approx(-by_labels.score(held), rel=1e-5)
    strangers = Annotations.from_arrays(known.items[:2], ["x", "y"], [0, 1], classes=range(P))
    with pytest.raises(DataError, match="no label by an annotator of the training part"):
        ds.LDLNM(**SMALL).fit(known, dev=strangers)


# ---- what it recovers -------------------------------------------------------------------------------------


def planted(shuffle: bool) -> tuple[float, float, ds.LDLNM]:
    """Held-out log-probability of labels with annotators and without, half the annotators biased."""
    known = crowd(150, biased=6, seed=2)
    if shuffle:
        rng = np.random.default_rng(0)
        known = ds.text.with_features(
            Annotations.from_arrays(
                known.item, rng.permutation(known.annotator), known.label, classes=range(P)
            ),
            known_features(known),
        )
    kept, hidden = known.split_labels(0.2, seed=0)
    fit, dev = kept.split_labels(0.2, seed=1)
    with_them = ds.LDLNM(**LONGER).fit(fit, dev=dev)
    without = ds.LDLNM(**LONGER, annotators=False).fit(fit, dev=dev)
    return with_them.score(hidden), without.score(hidden), with_them


def known_features(known: Annotations) -> Any:
    from dissensus.labels.features import features_of

    return features_of(known)


def test_a_planted_bias_is_recovered():
    with_them, without, model = planted(shuffle=False)
    assert with_them > without + 0.2
    # The biased annotators (0 to 5) are foreseen to answer one class further than the others.
    items = model.items_
    others = model.predict_proba(items, [11] * len(items)).argmax(axis=1)
    biased = model.predict_proba(items, [2] * len(items)).argmax(axis=1)
    assert np.mean(biased == (others + 1) % P) > 0.8


def test_shuffled_annotators_lose_the_gain_of_knowing_them():
    with_them, without, _ = planted(shuffle=True)
    assert with_them < without + 0.05


def test_a_new_annotator_is_embedded_from_a_few_labels():
    known = crowd(150, biased=6, seed=2)
    model = ds.LDLNM(**LONGER).fit(known)
    before = model.weights_.copy()
    truth = model.predict_proba(known.items, [11] * 150).argmax(axis=1)
    few, rest = known.items[:12], known.items[12:]
    # Two newcomers label twelve items; "late" brings the other items along.
    new = Annotations.from_arrays(
        np.concatenate([few, few, rest]),
        ["shifts"] * 12 + ["plain"] * 12 + ["late"] * 138,
        np.concatenate([(truth[:12] + 1) % P, truth[:12], truth[12:]]),
        classes=range(P),
    )
    moved = model.apply(new)
    shifts = moved.predict_proba(rest, ["shifts"] * 138).argmax(axis=1)
    plain = moved.predict_proba(rest, ["plain"] * 138).argmax(axis=1)
    assert np.mean(plain == truth[12:]) > 0.8
    assert np.mean(shifts == (truth[12:] + 1) % P) > 0.7
    np.testing.assert_array_equal(model.weights_, before)
    np.testing.assert_array_equal(moved.weights_, before)


def test_known_annotators_keep_their_embedding_in_transform(fitted):
    model, known = fitted
    moved = model.apply(known)
    np.testing.assert_array_equal(moved.annotator_embeddings_, model.annotator_embeddings_)
    np.testing.assert_array_equal(moved.label_distributions_, model.label_distributions_)
    strange = Annotations.from_arrays(["new"], [0], [0], classes=range(P))
    with pytest.raises(DataError, match="is new and has no features"):
        model.apply(strange)


# ---- iterative inference ----------------------------------------------------------------------------------


def test_iterative_inference_explains_a_distribution(fitted):
    model, known = fitted
    gold = known.counts / known.counts.sum(axis=1, keepdims=True)
    found = model.infer_annotators(model.features_[:9], gold[:9], n_starts=3, sigma=1.0, max_steps=60)
    assert found.embeddings.shape == (9, 2 * 4)
    assert (np.diff(found.trace, axis=0) <= 1e-15).all()
    for rows in (found.label_distributions, found.item_distributions, found.annotator_distributions):
        np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-9)
    start = model.infer_annotators(model.features_[:9], gold[:9], max_steps=1, decay=0.0, rate=1e-9)
    assert found.kl.mean() < start.kl.mean()
    expected = [np.sum(g[g > 0] * np.log(g[g > 0] / p[g > 0]))
                for g, p in zip(gold[:9], found.item_distributions, strict=True)]  # fmt: skip
    np.testing.assert_allclose(found.kl, expected, rtol=1e-9)


def test_iterative_inference_says_what_it_cannot_do(fitted):
    model, known = fitted
    with pytest.raises(ParameterError, match="no annotator to infer"):
        ds.LDLNM(**SMALL, annotators=False).fit(known).infer_annotators(model.features_[:1], [[1, 0, 0]])
    with pytest.raises(DataError, match="distributions of shape"):
        model.infer_annotators(model.features_[:1], [[0.5, 0.5]])
    wrong = {"rate": 0, "decay": -1.0, "max_steps": 0, "sigma": -1, "n_starts": 0, "tol": -1, "seed": -1}
    for name, value in ({"backtracking": "no"} | wrong).items():
        with pytest.raises(ParameterError, match=f"The '{name}' parameter of LDLNM.infer_annotators must be"):
            model.infer_annotators(model.features_[:1], [[1, 0, 0]], **{name: value})


# ---- the search -------------------------------------------------------------------------------------------


def test_sizes_are_searched_with_the_common_search(tmp_path: Path):
    from reproduction.network_search import DevDistributions

    parts = crowd(80).split_items({"train": 0.7, "dev": 0.3})
    estimator = ds.LDLNM(**(SMALL | {"epochs": 2, "n_networks": 1}))
    settings: dict[str, Any] = {
        "criterion": DevDistributions(parts["dev"]),
        "repeats": 1,
        "references": {},
        "refit": False,
        "n_jobs": 1,
        "directory": tmp_path,
    }
    grid = {"item_size": [2, 4], "annotator_size": [2, 3]}
    found = ds.select(parts["train"], estimator, grid, **settings)
    assert len(found.cells) == 4
    record = tmp_path / "search.jsonl"
    whole = record.read_text().splitlines(keepends=True)
    record.write_text("".join(whole[:2]))  # killed after one of the four, which were trained in one program
    again = ds.select(parts["train"], estimator, grid, **settings)
    assert [(cell.settings, cell.score) for cell in again.cells] == [
        (cell.settings, cell.score) for cell in found.cells
    ]
    assert len(record.read_text().splitlines()) == len(whole)
    started_at = {"seed": found.winner.seeds[0]}
    best = ds.LDLNM(**(SMALL | {"epochs": 2, "n_networks": 1} | found.params | started_at))
    score = DevDistributions(parts["dev"])(best, parts["train"], 0)
    assert score == pytest.approx(found.winner.score, rel=1e-6)


def test_cells_alike_in_all_but_sizes_are_searched_in_one_program():
    from reproduction.network_search import NETWORKS_TOGETHER, DevDistributions

    sizes = [{"item_size": item, "annotator_size": who} for item in range(3, 9) for who in range(3, 9)]
    rates, ensembles = [{"learning_rate": 0.1}, {"learning_rate": 0.1, "seed": 3}], [{"n_networks": 2}] * 2
    one = {"n_networks": 1}
    estimators = [ds.LDLNM(**(one | settings)) for settings in sizes + rates + ensembles]
    groups = DevDistributions(crowd(4)).groups(estimators)
    assert sorted(place for group in groups for place in group) == list(range(40))
    assert sorted(map(len, groups)) == [1, 1, 2, NETWORKS_TOGETHER, NETWORKS_TOGETHER]
    assert [36, 37] in [sorted(group) for group in groups]


def test_the_criterion_goes_by_the_names_of_classes(fitted):
    from reproduction.network_search import divergence

    model, _ = fitted
    dev = crowd(30, seed=3)
    said = dev.items[dev.item], dev.annotators[dev.annotator], dev.classes[dev.label]
    turned = ds.text.with_features(Annotations.from_arrays(*said, classes=[2, 0, 1]), known_features(dev))
    assert turned.classes.tolist() == [2, 0, 1]
    assert divergence(model, turned) == pytest.approx(divergence(model, dev), rel=1e-12)


# ---- imports ----------------------------------------------------------------------------------------------

HEAVY = ("torch", "sentence_transformers", "sklearn", "transformers")


def test_naming_it_imports_nothing_heavy():
    code = (
        "import sys, dissensus as ds;"
        "ds.LDLNM(); ds.text.SoftmaxRegression(); ds.text.FineTunedEncoder();"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_missing_extra_says_what_installs_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=re.escape(install_command("text"))):
        ds.LDLNM(**SMALL).fit(crowd())


# ---- targets and starts, worked by hand ---------------------------------------------------------------


def test_targets_are_the_label_its_items_and_its_annotators_shares():
    from dissensus.text.ldlnm.network import training_set

    # a gives x, x to items i, j; b gives y, x, y to i, j, k
    rows = [("i", "a", "x"), ("i", "b", "y"), ("j", "a", "x"), ("j", "b", "x"), ("k", "b", "y")]
    known = Annotations.from_arrays(*zip(*rows, strict=True))
    model = ds.LDLNM()
    model.features_, model.feature_scale_ = np.zeros((3, 2), np.float32), np.asarray(1.0)
    found = training_set(model, known, np.zeros((3, 2), np.float32), None)
    i, j, k, a, b = [1 / 2, 1 / 2], [1, 0], [0, 1], [1, 0], [1 / 3, 2 / 3]
    expected = [[1, 0, *i, *a], [0, 1, *i, *b], [1, 0, *j, *a], [1, 0, *j, *b], [0, 1, *k, *b]]
    np.testing.assert_allclose(found.targets.flatten(1), expected, rtol=1e-6)


def test_features_are_rescaled_unless_told_otherwise():
    known, rows = crowd(), np.random.default_rng(0).normal(size=(crowd().n_items, 3)).astype(np.float32)

    def answers(x: np.ndarray, **settings: Any) -> np.ndarray:
        return ds.LDLNM(**{**SMALL, "epochs": 2, **settings}).fit(known, x).label_distributions(x)

    np.testing.assert_allclose(answers(4 * rows), answers(rows), atol=1e-5)  # their unit does not matter
    assert np.abs(answers(4 * rows, rescale=False) - answers(rows, rescale=False)).max() > 1e-3
    length = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1).mean())
    np.testing.assert_allclose(answers(rows / length, rescale=False), answers(rows), atol=1e-5)


def test_inference_starts_where_it_is_told(fitted):
    """Without a step taken, the embeddings are the starts: 0, or draws from N(0, σ_a)."""
    model, _ = fitted
    x = np.tile(model.features_, (40, 1))
    y_I = np.tile(np.full(P, 1 / P), (len(x), 1))
    still = {"rate": 1e-12, "decay": 0.0, "max_steps": 1}
    assert np.abs(model.infer_annotators(x, y_I, sigma=0.0, n_starts=1, **still).embeddings).max() < 1e-9
    for sigma in (0.5, 2.0):
        drawn = model.infer_annotators(x, y_I, sigma=sigma, n_starts=1, **still).embeddings
        n = drawn.size  # 2,400 rows of two networks with four numbers
        assert abs(drawn.mean()) < 5 * sigma / n**0.5
        assert abs(drawn.std() - sigma) < 5 * sigma / (2 * n) ** 0.5


def test_the_ensemble_as_printed_asks_for_one_size(fitted):
    model, known = fitted
    with pytest.raises(
        ParameterError, match=r"'projected' parameter .* item_size, annotator_size and latent"
    ):
        model.label_distributions(model.features_, projected=False)
    even = ds.LDLNM(**(SMALL | {"item_size": 4, "annotator_size": 4, "latent_size": 4})).fit(known)
    rows = even.label_distributions(even.features_, projected=False)
    np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-12)
    assert np.abs(rows - even.label_distributions_).max() > 1e-4
    with pytest.raises(ParameterError, match="None with projected=False"):
        even.label_distributions(even.features_, projected=False, dropout_seed=1)
