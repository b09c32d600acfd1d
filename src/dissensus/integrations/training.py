"""Refined labels as training data: a PyTorch dataset of distributions, and weighted rows for scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, require
from dissensus.labels.features import by_item
from dissensus.models.base import Model
from dissensus.numerics import Array
from dissensus.params import check_rules, choice

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["sample_weight_rows", "soft_loss", "torch_dataset"]

WEIGHTS = {"weight": choice("equal", "labels", "sure")}


def torch_dataset(model: Any, x: Any, *, weight: str = "equal") -> Any:
    """A ``torch.utils.data.Dataset`` of (x, distribution, weight), one for each item of a fitted model.

    ``collate`` of the dataset puts them together for a ``DataLoader``: features become one tensor, texts stay
    a list. :func:`soft_loss` is the loss that goes with it.

    Parameters
    ----------
    model
        A fitted model, or what ``ds.fit`` gave.
    x
        What the learner sees of each item: an array of features, or texts, in the order of ``model.items_``;
        of pandas, one row for each item that its index or its item column names, in any order.
    weight
        How much an item counts: all alike (``"equal"``), by its number of ``"labels"``, or by the probability
        that its label is the most common answer (``"sure"``). Weights are 1 on average.
    """
    require("torch", "text")
    from dissensus.integrations.torch_data import DistributionDataset

    check_rules("torch_dataset", WEIGHTS, weight=weight)
    model = getattr(model, "model", model)
    x = rows_of_items(model, x)
    x = np.array(x) if len(getattr(x, "shape", ())) == 2 and hasattr(x, "to_numpy") else x  # of a frame
    return DistributionDataset(x, model.label_distributions_, item_weights(model, weight))


def rows_of_items(model: Model, x: Any) -> Any:
    """Put the rows of x in the order of a model's items, by their ids where a frame has them."""
    model._check_fitted()
    names = list(getattr(x, "column_names", getattr(x, "columns", ())))
    key = next((name for name in (model.columns_.get("item"), "item") if name in names), None)
    if key is not None and hasattr(x, "set_index"):
        x = x.set_index(key)
    elif key is not None:
        raise DataError(f"x has a column {key!r}; give a pandas frame, whose rows find their items by it")
    placed = by_item(x, model.item_vocabulary_, "x")
    n, n_rows = len(model.items_), x.shape[0] if hasattr(x, "shape") else len(x)
    if placed is None and n_rows != n:
        raise DataError(f"{n_rows:,} rows of x and {n:,} items of the model; give one row for each")
    if placed is None and hasattr(x, "iloc") and not np.array_equal(x.index, np.arange(n)):
        raise DataError(
            "the index of x names no items of the model; index it by item id, or give "
            "x.reset_index(drop=True) where its rows are in the order of model.items_"
        )
    return x if placed is None else placed


def item_weights(model: Model, weight: str) -> Array:
    """(items,): how much each counts, 1 on average."""
    if weight == "equal":
        return np.ones(len(model.items_))
    intervals = None if weight == "labels" else model.intervals()
    if weight == "sure" and intervals is None:
        raise DataError(f"{type(model).__name__} makes no claim about how sure it is; take weight='equal'")
    known = model.n_labels_ if intervals is None else intervals.sure
    total = float(np.sum(known))
    if total <= 0:
        raise DataError("no item has a weight above 0; take weight='equal'")
    return np.asarray(known * (len(known) / total), np.float64)


def soft_loss(logits: Tensor, distribution: Tensor, weight: Tensor) -> Tensor:
    """Weighted cross-entropy of predicted and refined distributions: Σ_m w_m H(d_m, softmax(l_m)) / Σ_m w_m.

    Parameters
    ----------
    logits
        (items, classes): what the network gives.
    distribution
        (items, classes): the refined labels of the batch.
    weight
        (items,): how much each item counts.
    """
    # H(d, q) = −Σ_p d_p log q_p
    entropy = -(distribution * logits.log_softmax(dim=-1)).sum(dim=-1)
    return (weight * entropy).sum() / weight.sum()


def sample_weight_rows(model: Any, x: Any) -> tuple[Any, NDArray[Any], Array]:
    """X, y and ``sample_weight`` for a classifier that takes hard labels: one row for each item and class.

    The weighted log-loss of an item's rows is its cross-entropy with the distribution, so a classifier fitted
    to these rows learns the distributions.

    Parameters
    ----------
    model
        A fitted model, or what ``ds.fit`` gave.
    x
        What the classifier sees of each item, in the order of ``model.items_``; arrays, sparse matrices,
        frames and lists will do. Of pandas, one row for each item that its index or its item column names, in
        any order.
    """
    model = getattr(model, "model", model)
    x = rows_of_items(model, x)
    item, label = np.nonzero(model.label_distributions_)
    rows = x.iloc[item] if hasattr(x, "iloc") else x[item] if hasattr(x, "shape") else [x[m] for m in item]
    return rows, model.classes_[label], model.label_distributions_[item, label]
