"""SoftmaxRegression, and the TextCNN of the reproduction: by hand and against scikit-learn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import dissensus as ds
from dissensus.errors import DataError, ModelFileError, NotFittedError, ParameterError
from dissensus.models.dirichlet_regression import softmax_objective
from dissensus.tables.arrays import read_arrays, write_arrays
from dissensus.text.learners.base import batches_by_length
from reproduction.textcnn import TextCNN, lexicon_of, read_glove, words_of

pytestmark = pytest.mark.torch

M, J, P = 80, 4, 3


def problem(n: int = M, seed: int = 0) -> tuple[Any, Any]:
    """Return features, and the shares of ten labels drawn from a softmax of them."""
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
    assert softmax_objective(weights, X, D, 0.5)[0] == pytest.approx(by_hand, rel=1e-12)
    error = check_grad(
        lambda w: softmax_objective(w.reshape(J + 1, P), X, D, 0.5)[0],
        lambda w: softmax_objective(w.reshape(J + 1, P), X, D, 0.5)[1].ravel(),
        weights.ravel(),
    )
    assert error < 1e-6


def test_equals_logistic_regression_on_weighted_rows():
    X, D = problem()
    ours = ds.text.SoftmaxRegression(0.01, tol=1e-9).fit(X, D)
    penalty = 0.01 * X.astype(np.float32).astype(float).var(axis=0).sum()
    # scikit-learn minimises Σ weights · loss + ‖W‖² / (2 C): ours times M, so C = 1 / (λ M)
    peer = LogisticRegression(C=1 / (penalty * M), tol=1e-10, max_iter=5000)
    peer.fit(np.repeat(X, P, axis=0), np.tile(np.arange(P), M), sample_weight=D.ravel())
    np.testing.assert_allclose(ours.label_distributions(X), peer.predict_proba(X), rtol=1e-4)


def test_l2_is_the_best_on_dev_at_any_scale():
    (X, D), dev = problem(), problem(60, seed=1)
    model = ds.text.SoftmaxRegression().fit(X, D, dev=dev)
    others = [-ds.text.SoftmaxRegression(float(s)).fit(X, D).score(*dev) for s in model.l2_tried_]
    np.testing.assert_allclose(model.path_kl_, others, rtol=1e-4)
    assert float(model.l2_) == model.l2_tried_[np.argmin(others)]
    assert -model.score(*dev) == pytest.approx(min(others), rel=1e-4)
    large = ds.text.SoftmaxRegression().fit(1000 * X, D, dev=(1000 * dev[0], dev[1]))
    np.testing.assert_allclose(large.label_distributions(1000 * X), model.label_distributions(X), rtol=1e-3)


def test_cross_validation_without_dev():
    X, D = problem()
    model, again = (ds.text.SoftmaxRegression(seed=3).fit(X, D) for _ in range(2))
    assert np.isfinite(model.path_kl_).all()
    np.testing.assert_array_equal(model.label_distributions(X), again.label_distributions(X))
    before = model.label_distributions(X)
    with pytest.raises(DataError, match="cannot be split into cv=5 folds"):
        model.fit(X[:3], D[:3])
    np.testing.assert_array_equal(model.label_distributions(X), before)  # the failed fit changed nothing


def test_invalid_data():
    X, D = problem()
    two = D[:, :2] / D[:, :2].sum(axis=1, keepdims=True).clip(0.1)
    for arguments, message in (
        ((X[1:], D), "X has 79 rows and distributions 80"),
        ((X, D, (X, two)), "dev has 2 classes and the training set 3"),
        ((X, D, (1, 2, 3)), r"dev must be a pair \(X, distributions\), got a tuple of 3"),
        ((X, D, "ab"), r"dev must be a pair \(X, distributions\), got a str"),
    ):
        with pytest.raises(DataError, match=message):
            ds.text.SoftmaxRegression().fit(*arguments)
    with pytest.raises(ParameterError, match="'l2' parameter of SoftmaxRegression"):
        ds.text.SoftmaxRegression(-1).fit(X, D)
    with pytest.raises(NotFittedError):
        ds.text.SoftmaxRegression().label_distributions(X)
    with pytest.raises(DataError, match="X has 3 features and the learner was fitted on 4"):
        ds.text.SoftmaxRegression(0.1).fit(X, D).label_distributions(X[:, :3])


def test_save_and_load(tmp_path: Path):
    X, D = problem()
    model, path = ds.text.SoftmaxRegression(0.1, seed=np.int64(3)).fit(X, D), tmp_path / "m.safetensors"
    model.save(path)
    loaded = ds.load(path)
    np.testing.assert_array_equal(loaded.label_distributions(X), model.label_distributions(X))
    assert loaded.get_params() == model.get_params()
    header, arrays = read_arrays(path)
    for name, shape in (("coef_", 3), ("intercept_", 2)):
        write_arrays(path, header, arrays | {name: np.zeros(shape)})
        with pytest.raises(ModelFileError, match=f"damaged or incomplete .*{name} of"):
            ds.load(path)


def test_batches_by_length():
    lengths = np.random.default_rng(0).integers(1, 100, size=250)
    batches = list(batches_by_length(lengths.tolist(), 16, np.random.default_rng(0)))
    assert sorted(np.concatenate(batches).tolist()) == list(range(250))
    order = np.random.default_rng(1).permutation(250)
    at_random = [order[start : start + 16] for start in range(0, 250, 16)]
    padded, padded_at_random = (sum(len(b) * lengths[b].max() for b in cut) for cut in (batches, at_random))
    assert padded < 0.75 * padded_at_random


# ---- TextCNN ----------------------------------------------------------------------------------------------


def sentences(n: int = 60) -> tuple[list[str], Any]:
    """Return texts in which one word determines the distribution."""
    rng = np.random.default_rng(0)
    words = ["work", "home", "rain"]
    word = rng.integers(3, size=n)
    texts = [" ".join(["the", "day", words[w], *["is"] * int(rng.integers(1, 6))]) for w in word]
    return texts, np.eye(3)[word] * 0.8 + 0.2 / 3


def test_words_and_lexicon():
    words = ["i'm", "off", "to", "@work", ",", "#tired", "!", "!"]
    assert words_of("I'm OFF to @Work, #tired!!", 10) == words
    assert words_of("a b c d", 2) == ["a", "b"]
    assert lexicon_of([["b", "a"], ["b", "c"]], 2) == ["b", "a"]


@pytest.fixture(scope="module")
def cnn() -> TextCNN:
    pytest.importorskip("torch")
    texts, D = sentences()
    return TextCNN(dimension=16, filters=16, epochs=12, batch_size=8).fit(texts, D, dev=(texts, D))


def test_cnn_learns_a_decisive_word(cnn: TextCNN):
    texts, D = sentences()
    assert -cnn.score(texts, D) < 0.2
    assert cnn.epoch_ == int(np.argmin(cnn.dev_kl_))
    assert -cnn.score(texts, D) == pytest.approx(cnn.dev_kl_.min(), rel=1e-6)
    again = clone(cnn).fit(texts, D, dev=(texts, D))
    np.testing.assert_array_equal(again.label_distributions(texts), cnn.label_distributions(texts))


def test_prediction_does_not_depend_on_the_batch(cnn: TextCNN):
    short, long = "rain", "the day " + "work is " * 30
    together = cnn.label_distributions([short, long, ""])
    for row, text in zip(together, [short, long, ""], strict=True):
        np.testing.assert_allclose(cnn.label_distributions([text])[0], row, rtol=1e-5)


def test_cnn_dropout_only_in_training():
    torch = pytest.importorskip("torch")
    from reproduction.textcnn import cnn as build
    from reproduction.textcnn import logits_of

    torch.manual_seed(0)
    network, codes = build(9, 4, 3, filters=5, width=3, dropout=1.0), [[2, 3, 4], [5, 6]]
    # with a dropout rate of 1, only the bias of the head remains
    bias = network["head"].bias.expand(2, 3)
    assert torch.equal(logits_of(network.train(), codes, 2), bias)
    assert not torch.isclose(logits_of(network.eval(), codes, 2), bias).any()


def test_glove_vectors_initialise_words(tmp_path: Path):
    torch = pytest.importorskip("torch")
    file = tmp_path / "glove.txt"
    # the last word contains spaces and is skipped
    file.write_text("work 1 2 3\nunused 4 5 6\n. 7 8 9\n. . . 4 5 6\n", encoding="utf-8")
    vectors = {word: list(vector) for word, vector in read_glove(file, [".", "work", "home"]).items()}
    assert vectors == {".": [7, 8, 9], "work": [1, 2, 3]}
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


def test_invalid_glove_files(tmp_path: Path):
    file = tmp_path / "glove.txt"
    for content, message in (
        ("work 1 2 x\n", r"glove\.txt line 1: not a word and its numbers"),
        ("work 1 2 3\nhome 1 2\n", r"line 2: 2 numbers after the word, and 3 on the first line"),
        ("travail 1 2 3\n", r"has no vector for any of the 2 words of the texts"),
        ("work 1 2 3\ncafé 4 5 6\n", r"glove\.txt: not UTF-8 text"),
    ):
        file.write_text(content, encoding="latin-1")
        with pytest.raises(DataError, match=message):
            read_glove(file, ["work", "home"])


def test_cnn_without_dev():
    pytest.importorskip("torch")
    texts, D = sentences(20)
    model = TextCNN(dimension=4, filters=4, epochs=2).fit(texts, D)
    assert len(model.dev_kl_) == 2
    with pytest.raises(DataError, match="row 0 of X is 3"):
        model.label_distributions([3])
    with pytest.raises(DataError, match="X is a single text, 'rain'; put it in a list"):
        model.label_distributions("rain")
    with pytest.raises(DataError, match="one item is not enough to choose the epoch"):
        TextCNN().fit(["rain"], [[0.5, 0.5]])
