"""Refined labels as PyTorch datasets and as weighted rows for scikit-learn."""

import numpy as np
import pandas as pd
import pytest

import dissensus as ds
from dissensus.errors import DataError, ParameterError

LABELS = ds.datasets.load("canteen")
MODEL = ds.FMM(4, seed=0).fit(LABELS)
TEXTS = [f"text of {item}" for item in LABELS.items]
SHUFFLED = pd.Series(TEXTS, index=LABELS.items).sample(frac=1, random_state=0)


@pytest.mark.torch
def test_loader_yields_features_distributions_and_weights() -> None:
    torch = pytest.importorskip("torch")
    X = np.arange(120.0).reshape(60, 2)
    data = ds.training.torch_dataset(MODEL, X, weight="labels")
    loader = torch.utils.data.DataLoader(data, batch_size=16, collate_fn=data.collate)
    x, shares, weights = (torch.cat(parts).numpy() for parts in zip(*loader, strict=True))
    np.testing.assert_array_equal(x, X)
    np.testing.assert_allclose(shares, MODEL.label_distributions_, atol=1e-6)
    np.testing.assert_allclose(weights, MODEL.n_labels_ / MODEL.n_labels_.mean(), rtol=1e-6)
    p_top = MODEL.intervals().p_top
    data = ds.training.torch_dataset(MODEL, X, weight="p_top")
    np.testing.assert_allclose(data.weights.numpy(), p_top / p_top.mean(), rtol=1e-6)
    texts = ds.training.torch_dataset(MODEL, SHUFFLED)
    assert texts.collate([texts[0], texts[3]])[0] == [TEXTS[0], TEXTS[3]]
    with pytest.raises(DataError, match="x has 3 rows and the model 60 items"):
        ds.training.torch_dataset(MODEL, X[:3])
    with pytest.raises(ParameterError, match="weight"):
        ds.training.torch_dataset(MODEL, X, weight="love")


@pytest.mark.torch
def test_rows_of_a_shuffled_frame_are_put_in_order() -> None:
    pytest.importorskip("torch")
    numbers = pd.DataFrame({"a": np.arange(60.0), "b": 1.0}, index=LABELS.items)
    data = ds.training.torch_dataset(MODEL, numbers.sample(frac=1, random_state=0))
    np.testing.assert_array_equal(data.x.numpy(), numbers.to_numpy())


@pytest.mark.torch
def test_soft_loss_is_the_weighted_cross_entropy() -> None:
    torch = pytest.importorskip("torch")
    logits = torch.tensor([[0.0, 0.0], [1.0, -1.0]])
    shares, weight = torch.tensor([[0.5, 0.5], [1.0, 0.0]]), torch.tensor([1.0, 3.0])
    by_hand = (1 * np.log(2) + 3 * -np.log(1 / (1 + np.exp(-2)))) / 4
    assert float(ds.training.soft_loss(logits, shares, weight)) == pytest.approx(by_hand, rel=1e-6)


def test_weighted_rows_have_the_gradient_of_the_distributions() -> None:
    from scipy.special import log_softmax
    from sklearn.linear_model import LogisticRegression

    X = np.random.default_rng(0).normal(size=(60, 3))
    rows, y, weight = ds.training.sample_weight_rows(MODEL, X)
    assert weight.sum() == pytest.approx(60)
    classifier = LogisticRegression(C=1e6, max_iter=5_000, tol=1e-10).fit(rows, y, sample_weight=weight)
    assert classifier.classes_.tolist() == MODEL.classes_.tolist()
    # at the optimum, the gradient of the cross-entropy with the distributions is zero
    residual = np.exp(log_softmax(classifier.decision_function(X), axis=1)) - MODEL.label_distributions_
    np.testing.assert_allclose(X.T @ residual, 0, atol=1e-2)
    assert ds.training.sample_weight_rows(MODEL, pd.DataFrame(X))[0].shape == rows.shape


def test_pandas_rows_are_matched_to_items_by_id() -> None:
    x, y, _ = ds.training.sample_weight_rows(MODEL, TEXTS)
    shuffled_x, shuffled_y, _ = ds.training.sample_weight_rows(MODEL, SHUFFLED)
    assert (list(shuffled_x), shuffled_y.tolist()) == (x, y.tolist())
    column = SHUFFLED.rename("text").rename_axis("item").reset_index()
    assert ds.training.sample_weight_rows(MODEL, column)[0]["text"].tolist() == x
    no_ids = SHUFFLED.reset_index(drop=True)  # taken in the order of the model's items
    assert ds.training.sample_weight_rows(MODEL, no_ids)[0].iloc[0] == no_ids[0]
    with pytest.raises(DataError, match="the index of x does not contain the model's items; index it by"):
        ds.training.sample_weight_rows(MODEL, pd.Series(TEXTS).sample(frac=1, random_state=0))
    with pytest.raises(DataError, match=r"its index has no row for item '\w+' \(1 missing\)"):
        ds.training.sample_weight_rows(MODEL, SHUFFLED[1:])
