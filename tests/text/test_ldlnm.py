"""LDLNM as a model: its interface, recovery of planted annotators, and controls."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError, NotFittedError, ParameterError
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import features_of

pytestmark = pytest.mark.torch

pytest.importorskip("torch")

SMALL: dict[str, Any] = {"item_size": 8, "annotator_size": 4, "latent_size": 8, "n_networks": 2}
SMALL |= {"epochs": 6, "patience": None}
LONGER = SMALL | {"n_networks": 1, "epochs": 30, "batch_size": 32, "learning_rate": 1e-2}
M, N, P, J = 60, 12, 3, 5


def crowd(n_items: int = M, seed: int = 0, per_item: int = 5, biased: int = 0, n: int = N) -> Annotations:
    """Labels of items whose class depends on their features, with 10 % random answers.

    The first ``biased`` annotators shift their answers by one class.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_items, J)).astype(np.float32)
    truth = (x @ np.random.default_rng(99).normal(size=(J, P))).argmax(axis=1)
    item = np.repeat(np.arange(n_items), per_item)
    annotator = np.concatenate([rng.choice(n, per_item, replace=False) for _ in range(n_items)])
    answer = np.where(rng.random(len(item)) < 0.9, truth[item], rng.integers(P, size=len(item)))
    answer = np.where(annotator < biased, (answer + 1) % P, answer)
    labels = Annotations.from_arrays(item, annotator, answer, classes=range(P))
    return ds.text.with_features(labels, x)


@pytest.fixture(scope="module")
def fitted() -> tuple[ds.LDLNM, Annotations]:
    labels = crowd()
    return ds.LDLNM(**SMALL).fit(labels), labels


def test_distributions_of_fitted_and_new_items(fitted):
    model, labels = fitted
    new = np.random.default_rng(5).normal(size=(7, J))
    for settings in ({}, {"head": "label"}, {"reduce": "mode"}, {"weight_by": "labels"}):
        rows = model.label_distributions(new, **settings)
        assert rows.shape == (7, P)
        np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-12)
    assert set(model.predict()) <= set(labels.classes)
    assert model.item_embeddings_.shape == (M, 2 * 8)
    assert model.annotator_embeddings_.shape == (N, 2 * 4)
    with pytest.raises(DataError, match="4 features and LDLNM was fitted on 5"):
        model.label_distributions(np.zeros((2, 4)))
    for name, value in {"head": "lable", "reduce": "mean", "weight_by": "", "dropout_seed": -1}.items():
        message = f"The '{name}' parameter of LDLNM.label_distributions must be"
        with pytest.raises(ParameterError, match=message):
            model.label_distributions(new, **{name: value})


def test_predictions_for_unknown_items_and_annotators(fitted):
    model, labels = fitted
    pairs = model.predict_proba(labels.items[[0, 0]], labels.annotators[[0, 1]])
    assert np.abs(pairs[0] - pairs[1]).max() > 0
    new_annotator = model.predict_proba(labels.items[:1], [12345])
    crowd_says = model.label_distributions(model.features_[:1], head="label")
    np.testing.assert_allclose(new_annotator, crowd_says, rtol=1e-6)
    new_item = model.predict_proba([12345], labels.annotators[:1])
    np.testing.assert_allclose(new_item[0], model.prior_distribution_, rtol=1e-12)


def test_pairs_in_blocks(monkeypatch: pytest.MonkeyPatch):
    import torch

    from dissensus.text.ldlnm import network as networks

    labels = crowd(12)
    model = ds.LDLNM(**(SMALL | {"epochs": 1, "dev_size": 0.0})).fit(labels)
    with torch.inference_mode():  # all labels in one forward pass
        x = networks.inputs(model, model.features_)
        item, annotator = (torch.from_numpy(n.astype(np.int64)) for n in (labels.item, labels.annotator))
        logits = networks.Network.fitted(model)(networks.Batch(x, item, annotator, torch.empty(0)))
        expected = logits[:, 0].softmax(dim=1).mean(dim=0).T
    pairs = labels.items[labels.item], labels.annotators[labels.annotator]
    np.testing.assert_allclose(model.predict_proba(*pairs), expected, rtol=1e-5)
    encode, sizes = networks.Network.encode, []
    monkeypatch.setattr(networks, "NUMBERS_PER_BLOCK", 7 * 2 * 8)  # seven pairs of two networks, eight wide
    counted = lambda self, z: sizes.append(z.shape[1]) or encode(self, z)  # noqa: E731
    monkeypatch.setattr(networks.Network, "encode", counted)
    np.testing.assert_allclose(model.predict_proba(*pairs), expected, rtol=1e-5)
    assert sizes == [7] * 8 + [4]


def test_crowd_is_the_weighted_mean_of_annotators(fitted):
    model, labels = fitted
    each = np.stack([model.predict_proba(labels.items[:4], [name] * 4) for name in labels.annotators])
    load = model.annotator_load_ / model.annotator_load_.sum()
    weighted = model.label_distributions(model.features_[:4], head="label", weight_by="labels")
    np.testing.assert_allclose(weighted, np.einsum("n,nip->ip", load, each), rtol=1e-5)
    even = model.label_distributions(model.features_[:4], head="label")
    np.testing.assert_allclose(even, each.mean(axis=0), rtol=1e-5)


def test_seed_replays_in_any_order_of_rows(fitted):
    model, labels = fitted
    order = np.random.default_rng(1).permutation(labels.n_labels)
    columns = (labels.items[labels.item], labels.annotators[labels.annotator], labels.classes[labels.label])
    shuffled = Annotations.from_arrays(*(column[order] for column in columns), classes=range(P))
    again = ds.LDLNM(**SMALL).fit(shuffled, model.features_)
    np.testing.assert_array_equal(again.weights_, model.weights_)
    np.testing.assert_array_equal(again.label_distributions_, model.label_distributions_)
    assert not np.array_equal(ds.LDLNM(**SMALL, seed=1).fit(labels).weights_, model.weights_)


def test_save_and_load(fitted, tmp_path: Path):
    model, labels = fitted
    model.save(tmp_path / "m.safetensors")
    loaded = ds.load(tmp_path / "m.safetensors")
    new = np.random.default_rng(5).normal(size=(7, J))
    np.testing.assert_array_equal(loaded.label_distributions(new), model.label_distributions(new))
    pairs = labels.items[:5], labels.annotators[:5]
    np.testing.assert_array_equal(loaded.predict_proba(*pairs), model.predict_proba(*pairs))
    assert loaded.get_params() == model.get_params()


def test_invalid_settings_and_data():
    for settings, message in (
        ({"fusion": "product"}, "The 'fusion' parameter of LDLNM"),
        ({"item_size": 8, "annotator_size": 4, "fusion": "sum"}, "must be equal"),
        *(({"loss_weights": wrong}, "loss_weights") for wrong in ((0, 0, 1), "abc", (1.0, None, 1.0))),
    ):
        with pytest.raises(ParameterError, match=message):
            ds.LDLNM(**settings).fit(crowd())
    plain, counts = Annotations.from_arrays([0, 1], [0, 1], [0, 1]), Annotations.from_counts([[2, 1], [0, 3]])
    for labels, features, message in (
        (plain, None, "neither features nor a column 'text'"),
        (plain, np.zeros((3, 2)), r"is not \(2 items, features\)"),
        (counts, np.ones((2, 2)), "needs the annotator of each label"),
    ):
        with pytest.raises(DataError, match=message):
            ds.LDLNM(**SMALL).fit(labels, features)
    with pytest.raises(NotFittedError):
        ds.LDLNM().label_distributions(np.zeros((1, 2)))


def test_invalid_dev():
    labels = crowd(12)
    x, gold = features_of(labels)[:4], np.full((4, P), 1 / P)
    for dev, message in (
        ((x, gold, gold), r"must be a pair \(X, distributions\), got a tuple of 3"),
        ((x[:3], gold), "dev X has 3 rows and dev distributions 4"),
        ((x[:, :4], gold), "dev has 4 features per item and the training set 5"),
        ((x, gold / 2), "row 0 is not a distribution"),
    ):
        with pytest.raises(DataError, match=message):
            ds.LDLNM(**SMALL).fit(labels, dev=dev)


def test_every_variant_fits():
    labels = crowd()
    for changes in ({"fusion": "sum", "annotator_size": 8}, {"direct": False, "batch_by": "labels"},
                    {"loss_weights": (1.0, 0.5, 0.0)}, {"dev_size": 0.0}):  # fmt: skip
        model = ds.LDLNM(**(SMALL | changes)).fit(labels)
        assert np.isfinite(model.score(labels))
    assert model.epoch_.tolist() == [-1, -1]


def test_without_annotators():
    labels = crowd()
    model = ds.LDLNM(**SMALL, annotators=False).fit(labels)
    pairs = model.predict_proba([labels.items[0]] * N, labels.annotators)
    np.testing.assert_allclose(pairs, pairs[:1].repeat(N, axis=0), rtol=1e-12)
    counts = Annotations.from_counts(labels.counts)
    by_counts = ds.LDLNM(**SMALL, annotators=False).fit(counts, model.features_)
    assert by_counts.label_distributions_.shape == (M, P)


def test_item_distributions_replace_label_shares():
    labels = crowd()
    uniform = np.full((M, P), 1 / P)
    model = ds.LDLNM(**LONGER, dev_size=0.0).fit(labels, item_distributions=uniform)
    default = ds.LDLNM(**LONGER, dev_size=0.0).fit(labels)
    assert np.abs(model.label_distributions_ - 1 / P).max() < 0.2
    assert np.abs(default.label_distributions_ - 1 / P).max() > 0.4
    with pytest.raises(DataError, match="item_distributions must have shape"):
        ds.LDLNM(**SMALL).fit(labels, item_distributions=uniform[:5])


def test_dropout_samples_vary_around_the_prediction(fitted):
    model, _ = fitted
    x = model.features_[:6]
    samples = np.stack([model.label_distributions(x, dropout_seed=s) for s in range(20)])
    assert samples.std(axis=0).max() > 1e-4
    np.testing.assert_array_equal(samples[3], model.label_distributions(x, dropout_seed=3))
    np.testing.assert_allclose(samples.mean(axis=0), model.label_distributions(x), atol=0.05)


def test_epoch_is_chosen_on_dev():
    labels = crowd()
    parts = labels.split_items({"train": 0.7, "dev": 0.3})
    gold = parts["dev"].counts / parts["dev"].counts.sum(axis=1, keepdims=True)
    by_items = ds.LDLNM(**SMALL).fit(parts["train"], dev=parts["dev"])
    by_pair = ds.LDLNM(**SMALL).fit(parts["train"], dev=(features_of(parts["dev"]), gold))
    np.testing.assert_array_equal(by_items.weights_, by_pair.weights_)
    train, dev = labels.split_labels(0.2, seed=0)
    by_labels = ds.LDLNM(**(SMALL | {"n_networks": 1})).fit(train, dev=dev)
    # the loss of the best epoch is the score of the fitted model on the dev labels
    assert by_labels.trace_.min() == pytest.approx(-by_labels.score(dev), rel=1e-5)
    strangers = Annotations.from_arrays(labels.items[:2], ["x", "y"], [0, 1], classes=range(P))
    with pytest.raises(DataError, match="no labels by training annotators"):
        ds.LDLNM(**SMALL).fit(labels, dev=strangers)


# ---- recovery ---------------------------------------------------------------------------------------------


def planted(shuffle: bool) -> tuple[float, float, ds.LDLNM]:
    """Return held-out log-probabilities with and without annotators, half of which are biased."""
    labels = crowd(150, biased=6, seed=2)
    if shuffle:
        annotator = np.random.default_rng(0).permutation(labels.annotator)
        shuffled = Annotations.from_arrays(labels.item, annotator, labels.label, classes=range(P))
        labels = ds.text.with_features(shuffled, features_of(labels))
    shown, hidden = labels.split_labels(0.2, seed=0)
    fit, dev = shown.split_labels(0.2, seed=1)
    with_them = ds.LDLNM(**LONGER).fit(fit, dev=dev)
    without = ds.LDLNM(**LONGER, annotators=False).fit(fit, dev=dev)
    return with_them.score(hidden), without.score(hidden), with_them


def test_planted_bias_is_recovered():
    with_them, without, model = planted(shuffle=False)
    assert with_them > without + 0.2
    # the biased annotators (0 to 5) are predicted to shift their answers by one class
    items = model.items_
    others = model.predict_proba(items, [11] * len(items)).argmax(axis=1)
    biased = model.predict_proba(items, [2] * len(items)).argmax(axis=1)
    assert np.mean(biased == (others + 1) % P) > 0.8


def test_shuffled_annotators_give_no_gain():
    with_them, without, _ = planted(shuffle=True)
    assert with_them < without + 0.05


def test_new_annotators_are_embedded_from_few_labels():
    labels = crowd(150, biased=6, seed=2)
    model = ds.LDLNM(**LONGER).fit(labels)
    before = model.weights_.copy()
    truth = model.predict_proba(labels.items, [11] * 150).argmax(axis=1)
    few, rest = labels.items[:12], labels.items[12:]
    # two new annotators label twelve items; "late" labels the others
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


def test_apply_keeps_fitted_embeddings(fitted):
    model, labels = fitted
    moved = model.apply(labels)
    np.testing.assert_array_equal(moved.annotator_embeddings_, model.annotator_embeddings_)
    np.testing.assert_array_equal(moved.label_distributions_, model.label_distributions_)
    strange = Annotations.from_arrays(["new"], [0], [0], classes=range(P))
    with pytest.raises(DataError, match="is new and has no features"):
        model.apply(strange)


# ---- iterative inference ----------------------------------------------------------------------------------


def test_iterative_inference(fitted):
    model, labels = fitted
    gold = labels.counts / labels.counts.sum(axis=1, keepdims=True)
    result = model.infer_annotators(model.features_[:9], gold[:9], n_starts=3, sigma=1.0, max_steps=60)
    assert result.embeddings.shape == (9, 2 * 4)
    assert (np.diff(result.trace, axis=0) <= 1e-15).all()
    for rows in (result.label_distributions, result.item_distributions, result.annotator_distributions):
        np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-9)
    start = model.infer_annotators(model.features_[:9], gold[:9], max_steps=1, decay=0.0, rate=1e-9)
    assert result.kl.mean() < start.kl.mean()
    expected = [np.sum(g[g > 0] * np.log(g[g > 0] / p[g > 0]))
                for g, p in zip(gold[:9], result.item_distributions, strict=True)]  # fmt: skip
    np.testing.assert_allclose(result.kl, expected, rtol=1e-9)


def test_iterative_inference_checks_its_arguments(fitted):
    model, labels = fitted
    x = model.features_[:1]
    with pytest.raises(ParameterError, match="no annotators to infer"):
        ds.LDLNM(**SMALL, annotators=False).fit(labels).infer_annotators(x, [[1, 0, 0]])
    with pytest.raises(DataError, match="distributions must have shape"):
        model.infer_annotators(x, [[0.5, 0.5]])
    for name, value in {"backtracking": "no", "rate": 0, "max_steps": 0}.items():
        with pytest.raises(ParameterError, match=f"The '{name}' parameter of LDLNM.infer_annotators must be"):
            model.infer_annotators(x, [[1, 0, 0]], **{name: value})


# ---- search -----------------------------------------------------------------------------------------------


def test_search_over_sizes(tmp_path: Path):
    from reproduction.network_search import DevDistributions

    parts = crowd(80).split_items({"train": 0.7, "dev": 0.3})
    tiny = SMALL | {"epochs": 2, "n_networks": 1}
    settings: dict[str, Any] = {"criterion": DevDistributions(parts["dev"]), "repeats": 1, "references": {}}
    settings |= {"refit": False, "n_jobs": 1, "directory": tmp_path}
    grid = {"item_size": [2, 4], "annotator_size": [2, 3]}
    first = ds.select(parts["train"], ds.LDLNM(**tiny), grid, **settings)
    record = tmp_path / "search.jsonl"
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(lines[:2]))  # killed after one of the four cells, which are trained together
    again = ds.select(parts["train"], ds.LDLNM(**tiny), grid, **settings)
    scores, scores_again = ([(cell.settings, cell.score) for cell in run.cells] for run in (first, again))
    assert scores_again == scores
    assert len(scores) == 4
    assert len(record.read_text().splitlines()) == len(lines)
    best = ds.LDLNM(**(tiny | first.params | {"seed": first.winner.seeds[0]}))
    score = DevDistributions(parts["dev"])(best, parts["train"], 0)
    assert score == pytest.approx(first.winner.score, rel=1e-6)


def test_cells_that_differ_in_sizes_are_grouped():
    from reproduction.network_search import NETWORKS_TOGETHER, DevDistributions

    pairs = product(range(3, 9), repeat=2)
    sizes = [{"item_size": item, "annotator_size": annotator} for item, annotator in pairs]
    rates, ensembles = [{"learning_rate": 0.1}, {"learning_rate": 0.1, "seed": 3}], [{"n_networks": 2}] * 2
    estimators = [ds.LDLNM(**({"n_networks": 1} | settings)) for settings in sizes + rates + ensembles]
    groups = DevDistributions(crowd(4)).groups(estimators)
    assert sorted(index for group in groups for index in group) == list(range(40))
    assert sorted(map(len, groups)) == [1, 1, 2, NETWORKS_TOGETHER, NETWORKS_TOGETHER]
    assert [36, 37] in [sorted(group) for group in groups]


def test_criterion_matches_classes_by_name(fitted):
    from reproduction.network_search import divergence

    model, _ = fitted
    dev = crowd(30, seed=3)
    columns = dev.items[dev.item], dev.annotators[dev.annotator], dev.classes[dev.label]
    turned = ds.text.with_features(Annotations.from_arrays(*columns, classes=[2, 0, 1]), features_of(dev))
    assert turned.classes.tolist() == [2, 0, 1]
    assert divergence(model, turned) == pytest.approx(divergence(model, dev), rel=1e-12)


# ---- targets and starts by hand -----------------------------------------------------------------------


def test_training_targets_by_hand():
    from dissensus.text.ldlnm.network import training_set

    # a gives x, x to items i, j; b gives y, x, y to i, j, k
    rows = [("i", "a", "x"), ("i", "b", "y"), ("j", "a", "x"), ("j", "b", "x"), ("k", "b", "y")]
    labels = Annotations.from_arrays(*zip(*rows, strict=True))
    model = ds.LDLNM()
    model.features_, model.feature_scale_ = np.zeros((3, 2), np.float32), np.asarray(1.0)
    data = training_set(model, labels, np.zeros((3, 2), np.float32), None)
    i, j, k, a, b = [1 / 2, 1 / 2], [1, 0], [0, 1], [1, 0], [1 / 3, 2 / 3]
    expected = [[1, 0, *i, *a], [0, 1, *i, *b], [1, 0, *j, *a], [1, 0, *j, *b], [0, 1, *k, *b]]
    np.testing.assert_allclose(data.targets.flatten(1), expected, rtol=1e-6)


def test_rescaling_of_features():
    labels, rows = crowd(), np.random.default_rng(0).normal(size=(crowd().n_items, 3)).astype(np.float32)

    def answers(x: np.ndarray, **settings: Any) -> np.ndarray:
        return ds.LDLNM(**{**SMALL, "epochs": 2, **settings}).fit(labels, x).label_distributions(x)

    np.testing.assert_allclose(answers(4 * rows), answers(rows), atol=1e-5)  # the unit does not matter
    assert np.abs(answers(4 * rows, rescale=False) - answers(rows, rescale=False)).max() > 1e-3
    length = np.sqrt(np.square(rows, dtype=np.float64).sum(axis=1).mean())
    np.testing.assert_allclose(answers(rows / length, rescale=False), answers(rows), atol=1e-5)


def test_starts_of_iterative_inference(fitted):
    """Check that without steps, the embeddings are 0 or draws from N(0, σ_a)."""
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


def test_unprojected_ensemble_needs_equal_sizes(fitted):
    model, labels = fitted
    message = r"'projected' parameter .* item_size, annotator_size and latent"
    with pytest.raises(ParameterError, match=message):
        model.label_distributions(model.features_, projected=False)
    even = ds.LDLNM(**(SMALL | {"item_size": 4, "annotator_size": 4, "latent_size": 4})).fit(labels)
    rows = even.label_distributions(even.features_, projected=False)
    assert np.abs(rows - even.label_distributions_).max() > 1e-4
    with pytest.raises(ParameterError, match="None with projected=False"):
        even.label_distributions(even.features_, projected=False, dropout_seed=1)
