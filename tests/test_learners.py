"""SoftmaxRegression, and the TextCNN of the reproduction: against scikit-learn, by hand, and file by file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import dissensus as ds
from dissensus.errors import DataError, ModelFileError, NotFittedError, ParameterError
from dissensus.models.softmax import objective
from dissensus.tables.arrays import read_arrays, write_arrays
from dissensus.text.learners.base import batches, hold_out
from reproduction.textcnn import TextCNN, lexicon_of, read_glove, words_of

pytestmark = pytest.mark.torch

M, J, P = 80, 4, 3


def problem(n: int = M, seed: int = 0) -> tuple[Any, Any]:
    """Features, and the label shares of ten labels drawn from a softmax of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, J))
    logits = X @ np.random.default_rng(7).normal(size=(J, P))
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return X, np.stack([rng.multinomial(10, p) / 10 for p in chances])


def test_objective_and_gradient():
    X, D = problem(20)
    weights = np.random.default_rng(1).normal(size=(J + 1, P))
    # by hand, item by item
    by_hand = 0.25 * (weights[:-1] ** 2).sum()
    for x, d in zip(X, D, strict=True):
        z = x @ weights[:-1] + weights[-1]
        by_hand -= np.sum(d * np.log(np.exp(z) / np.exp(z).sum())) / 20
    assert objective(weights, X, D, 0.5)[0] == pytest.approx(by_hand, rel=1e-12)
    error = check_grad(
        lambda w: objective(w.reshape(J + 1, P), X, D, 0.5)[0],
        lambda w: objective(w.reshape(J + 1, P), X, D, 0.5)[1].ravel(),
        weights.ravel(),
    )
    assert error < 1e-6


def test_it_is_scikit_learns_logistic_regression_on_weighted_rows():
    X, D = problem()
    ours = ds.text.SoftmaxRegression(0.01, tol=1e-9).fit(X, D)
    penalty = 0.01 * X.astype(np.float32).astype(float).var(axis=0).sum()
    # scikit-learn minimises Σ weights · loss + ‖W‖² / (2 C): ours times M, so C = 1 / (λ M)
    peer = LogisticRegression(C=1 / (penalty * M), tol=1e-10, max_iter=5000)
    peer.fit(np.repeat(X, P, axis=0), np.tile(np.arange(P), M), sample_weight=D.ravel())
    np.testing.assert_allclose(ours.label_distributions(X), peer.predict_proba(X), rtol=1e-4)


def test_the_strength_is_the_best_on_dev():
    X, D = problem()
    dev = problem(60, seed=1)
    model = ds.text.SoftmaxRegression().fit(X, D, dev=dev)
    others = [-ds.text.SoftmaxRegression(float(s)).fit(X, D).score(*dev) for s in model.l2_tried_]
    np.testing.assert_allclose(model.path_kl_, others, rtol=1e-4)
    assert float(model.l2_) == model.l2_tried_[np.argmin(others)]
    assert -model.score(*dev) == pytest.approx(min(others), rel=1e-4)


def test_without_dev_cross_validation_chooses_and_a_seed_replays_it():
    X, D = problem()
    model = ds.text.SoftmaxRegression(seed=3).fit(X, D)
    again = ds.text.SoftmaxRegression(seed=3).fit(X, D)
    assert np.isfinite(model.path_kl_).all()
    np.testing.assert_array_equal(model.label_distributions(X), again.label_distributions(X))
    with pytest.raises(DataError, match="cannot be cut into cv=5 folds"):
        ds.text.SoftmaxRegression().fit(X[:3], D[:3])


def test_features_of_another_scale_give_the_same_predictions():
    X, D = problem()
    dev = problem(60, seed=1)
    small = ds.text.SoftmaxRegression().fit(X, D, dev=dev)
    large = ds.text.SoftmaxRegression().fit(1000 * X, D, dev=(1000 * dev[0], dev[1]))
    np.testing.assert_allclose(small.label_distributions(X), large.label_distributions(1000 * X), rtol=1e-3)


def test_what_does_not_fit_is_refused():
    X, D = problem()
    with pytest.raises(DataError, match="X has 79 rows and distributions 80"):
        ds.text.SoftmaxRegression().fit(X[1:], D)
    with pytest.raises(DataError, match="dev has 2 classes and the training part 3"):
        ds.text.SoftmaxRegression().fit(
            X, D, dev=(X, D[:, :2] / D[:, :2].sum(axis=1, keepdims=True).clip(0.1))
        )
    with pytest.raises(ParameterError, match="'l2' parameter of SoftmaxRegression"):
        ds.text.SoftmaxRegression(-1).fit(X, D)
    with pytest.raises(NotFittedError):
        ds.text.SoftmaxRegression().label_distributions(X)
    fitted = ds.text.SoftmaxRegression(0.1).fit(X, D)
    with pytest.raises(DataError, match="X has 3 features and this was fitted on 4"):
        fitted.label_distributions(X[:, :3])


@pytest.mark.parametrize(
    "learner",
    [ds.text.SoftmaxRegression(0.5), TextCNN(epochs=2), ds.text.FineTunedEncoder(epochs=1)],
    ids=repr,
)
def test_learners_clone(learner: Any):
    assert clone(learner).get_params() == learner.get_params()


def test_saved_and_loaded(tmp_path: Path):
    X, D = problem()
    model = ds.text.SoftmaxRegression(0.1).fit(X, D)
    model.save(tmp_path / "m.safetensors")
    loaded = ds.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.label_distributions(X), model.label_distributions(X))
    assert loaded.get_params() == model.get_params()


def change(path: Path, arrays: dict[str, Any] | None = None, **settings: Any) -> None:
    """Rewrite a saved learner with other arrays and settings."""
    header, own = read_arrays(path)
    header["settings"] |= settings
    write_arrays(path, header, own | (arrays or {}))


@pytest.mark.parametrize(
    ("arrays", "settings", "word"),
    [
        ({"coef_": np.zeros(3)}, {}, r"coef_ of shape \(3,\)"),
        ({"intercept_": np.zeros(2)}, {}, r"intercept_ of \(2,\) for 3 classes"),
        ({}, {"cv": 1}, "'cv' parameter"),
    ],
    ids=["coef", "intercept", "setting"],
)
def test_files_that_do_not_fit_together_are_refused(
    arrays: dict[str, Any], settings: dict[str, Any], word: str, tmp_path: Path
):
    ds.text.SoftmaxRegression(0.1).fit(*problem()).save(tmp_path / "m")
    change(tmp_path / "m", arrays, **settings)
    with pytest.raises(ModelFileError, match=f"damaged or incomplete .*{word}"):
        ds.load(tmp_path / "m")


def test_settings_that_are_numpy_numbers_come_back_as_numbers(tmp_path: Path):
    ds.text.SoftmaxRegression(0.1, seed=np.int64(3)).fit(*problem()).save(tmp_path / "m")
    assert ds.load(tmp_path / "m").seed == 3


def test_a_fit_that_fails_leaves_the_learner_as_it_was():
    X, D = problem()
    fresh, fitted = ds.text.SoftmaxRegression(), ds.text.SoftmaxRegression(0.1).fit(X, D)
    before = fitted.label_distributions(X)
    for learner in (fresh, fitted.set_params(l2=None)):
        with pytest.raises(DataError, match="cannot be cut into"):
            learner.fit(X[:3], D[:3, :2] / D[:3, :2].sum(axis=1, keepdims=True))
    with pytest.raises(NotFittedError):
        fresh.label_distributions(X)
    np.testing.assert_array_equal(fitted.label_distributions(X), before)


@pytest.mark.parametrize("dev", [(1,), (1, 2, 3), "ab"])
def test_dev_must_be_a_pair(dev: Any):
    with pytest.raises(DataError, match=r"dev: a pair \(X, distributions\) is needed, got a (tuple of|str)"):
        ds.text.SoftmaxRegression(0.1).fit(*problem(), dev=dev)


def test_batches_show_every_row_once_and_like_lengths_together():
    lengths = np.random.default_rng(0).integers(1, 100, size=250).tolist()
    made = list(batches(lengths, 16, np.random.default_rng(0)))
    assert sorted(np.concatenate(made).tolist()) == list(range(250))
    padded = sum(len(rows) * max(lengths[i] for i in rows) for rows in made)
    at_random = np.random.default_rng(1).permutation(250)
    unsorted = sum(
        len(rows) * max(lengths[i] for i in rows)
        for rows in (at_random[start : start + 16] for start in range(0, 250, 16))
    )
    assert padded < 0.75 * unsorted


def test_hold_out_is_a_partition():
    kept, held = hold_out(50, seed=0)
    assert len(held) == 5
    assert sorted([*kept, *held]) == list(range(50))


# ---- TextCNN ----------------------------------------------------------------------------------------------


def sentences(n: int = 60) -> tuple[list[str], Any]:
    """Texts in which one word decides the distribution."""
    rng = np.random.default_rng(0)
    words = ["work", "home", "rain"]
    which = rng.integers(3, size=n)
    texts = [" ".join(["the", "day", words[w], *["is"] * int(rng.integers(1, 6))]) for w in which]
    return texts, np.eye(3)[which] * 0.8 + 0.2 / 3


def test_words_and_lexicon():
    assert words_of("I'm OFF to @Work, #tired!!", 10) == [
        "i'm",
        "off",
        "to",
        "@work",
        ",",
        "#tired",
        "!",
        "!",
    ]
    assert words_of("a b c d", 2) == ["a", "b"]
    assert lexicon_of([["b", "a"], ["b", "c"]], 2) == ["b", "a"]


@pytest.fixture(scope="module")
def cnn() -> TextCNN:
    pytest.importorskip("torch")
    texts, D = sentences()
    return TextCNN(dimension=16, filters=16, epochs=12, batch_size=8).fit(texts, D, dev=(texts, D))


def test_cnn_learns_what_one_word_decides(cnn: TextCNN):
    texts, D = sentences()
    assert -cnn.score(texts, D) < 0.2
    assert cnn.epoch_ == int(np.argmin(cnn.dev_kl_))
    assert -cnn.score(texts, D) == pytest.approx(cnn.dev_kl_.min(), rel=1e-6)


def test_a_texts_prediction_does_not_depend_on_its_neighbours(cnn: TextCNN):
    short, long = "rain", "the day " + "work is " * 30
    together = cnn.label_distributions([short, long, ""])
    for place, text in enumerate([short, long, ""]):
        np.testing.assert_allclose(cnn.label_distributions([text])[0], together[place], rtol=1e-5)


def test_cnn_drops_before_the_head_in_training_alone():
    torch = pytest.importorskip("torch")
    from reproduction.textcnn import cnn as build
    from reproduction.textcnn import logits_of

    torch.manual_seed(0)
    network, codes = build(9, 4, 3, filters=5, width=3, dropout=1.0), [[2, 3, 4], [5, 6]]
    # Where everything is dropped, only the head's bias is left.
    bias = network["head"].bias.expand(2, 3)
    assert torch.equal(logits_of(network.train(), codes, 2), bias)
    assert not torch.isclose(logits_of(network.eval(), codes, 2), bias).any()


def test_a_seed_replays_the_cnn(cnn: TextCNN):
    texts, D = sentences()
    again = clone(cnn).fit(texts, D, dev=(texts, D))
    np.testing.assert_array_equal(again.label_distributions(texts), cnn.label_distributions(texts))


def test_glove_vectors_start_the_words(tmp_path: Path):
    torch = pytest.importorskip("torch")
    file = tmp_path / "glove.txt"
    file.write_text("work 1 2 3\nunused 4 5 6\n. 7 8 9\n", encoding="utf-8")
    assert list(read_glove(file, ["work", "home"])) == ["work"]
    model = TextCNN(glove=str(file))
    model.lexicon_ = ["home", "work"]
    network = model._first_network(3)
    assert network["words"].weight.shape == (4, 3)
    assert torch.equal(network["words"].weight[3], torch.tensor([1.0, 2.0, 3.0]))
    model.dimension = 100
    with pytest.raises(ParameterError, match=r"has 3 numbers a word, and dimension is 100; set dimension=3"):
        model._first_network(3)
    with pytest.raises(DataError, match="cannot be read"):
        read_glove(tmp_path / "absent", ["work"])


def test_a_word_of_glove_with_spaces_in_it_is_passed_over(tmp_path: Path):
    file = tmp_path / "glove.txt"
    file.write_text(". 7 8 9\nwork 1 2 3\n. . . 4 5 6\n", encoding="utf-8")
    assert {word: list(vector) for word, vector in read_glove(file, [".", "work"]).items()} == {
        ".": [7, 8, 9],
        "work": [1, 2, 3],
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("work 1 2 x\n", r"glove\.txt line 1: not a word and its numbers"),
        ("work 1 2 3\nhome 1 2\n", r"line 2: 2 numbers after the word, and 3 on the first line"),
        ("travail 1 2 3\n", r"has no vector for any of the 2 words of the texts"),
        ("work 1 2 3\ncafé 4 5 6\n".encode("latin-1"), r"glove\.txt: not UTF-8 text"),
    ],
)
def test_glove_files_that_cannot_serve(tmp_path: Path, content: str | bytes, message: str):
    file = tmp_path / "glove.txt"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=message):
        read_glove(file, ["work", "home"])


def test_cnn_without_dev_holds_some_items_out():
    pytest.importorskip("torch")
    texts, D = sentences(20)
    model = TextCNN(dimension=4, filters=4, epochs=2).fit(texts, D)
    assert len(model.dev_kl_) == 2
    with pytest.raises(DataError, match="row 0 of X is 3"):
        model.label_distributions([3])
    with pytest.raises(DataError, match="X is one text, 'rain'; put it in a list"):
        model.label_distributions("rain")
    with pytest.raises(DataError, match="one item leaves none to choose the epoch on"):
        TextCNN().fit(["rain"], [[0.5, 0.5]])
