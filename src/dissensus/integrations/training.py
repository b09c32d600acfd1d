"""Refined labels as training data: a PyTorch dataset of distributions, and weighted rows for scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, require
from dissensus.labels.features import rows_by_item
from dissensus.models.base import Model
from dissensus.numerics import Array
from dissensus.params import check_rules, choice

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["sample_weight_rows", "soft_loss", "torch_dataset"]

ITEM_WEIGHTS = choice("equal", "labels", "p_top")


class DistributionDataset:
    """Map-style PyTorch dataset of (x, distribution, weight)."""

    def __init__(self, x: Any, distributions: Array, weights: Array) -> None:
        import torch

        is_numeric = isinstance(x, np.ndarray) and x.dtype != object
        self.x = torch.as_tensor(x).float() if is_numeric else list(x)
        self.distributions = torch.as_tensor(distributions).float()
        self.weights = torch.as_tensor(weights).float()

    def __len__(self) -> int:
        return len(self.distributions)

    def __getitem__(self, index: int) -> tuple[Any, Tensor, Tensor]:
        return self.x[index], self.distributions[index], self.weights[index]

    @staticmethod
    def collate(rows: list[tuple[Any, Tensor, Tensor]]) -> tuple[Any, Tensor, Tensor]:
        """Make a batch: features become one tensor, anything else stays a list."""
        import torch

        x, distributions, weights = zip(*rows, strict=True)
        inputs = torch.stack(x) if isinstance(x[0], torch.Tensor) else list(x)
        return inputs, torch.stack(distributions), torch.stack(weights)


def torch_dataset(model: Any, x: Any, *, weight: str = "equal") -> Any:
    """Make a PyTorch dataset of (x, distribution, weight), one row for each item of a fitted model.

    Pass its ``collate`` to a ``DataLoader``: features become one tensor, texts stay a list.
    :func:`soft_loss` is the matching loss.

    Parameters
    ----------
    model
        A fitted model, or the result of ``ds.fit``.
    x
        Inputs of the learner: an array of features, or texts, in the order of ``model.items_``. The rows of
        a pandas object may be in any order if its index or its item column names the items.
    weight
        Weight of an item: ``"equal"`` for all items, by its number of ``"labels"``, or ``"p_top"``, the
        probability that its label is the most common answer. Weights are 1 on average.
    """
    require("torch", "text")
    check_rules("torch_dataset", {"weight": ITEM_WEIGHTS}, weight=weight)
    model = getattr(model, "model", model)
    x = rows_of_items(model, x)
    x = np.array(x) if len(getattr(x, "shape", ())) == 2 and hasattr(x, "to_numpy") else x  # a data frame
    return DistributionDataset(x, model.label_distributions_, item_weights(model, weight))


def rows_of_items(model: Model, x: Any) -> Any:
    """Put the rows of x in the order of a model's items, by item id if x is a data frame with ids."""
    model._check_fitted()
    names = list(getattr(x, "column_names", getattr(x, "columns", ())))
    key = next((name for name in (model.columns_.get("item"), "item") if name in names), None)
    if key is not None and hasattr(x, "set_index"):
        x = x.set_index(key)
    elif key is not None:
        raise DataError(f"x has a column {key!r}; pass a pandas frame to match rows to items by it")
    in_order = rows_by_item(x, model.item_vocabulary_, "x")
    n, n_rows = len(model.items_), x.shape[0] if hasattr(x, "shape") else len(x)
    if in_order is None and n_rows != n:
        raise DataError(f"x has {n_rows:,} rows and the model {n:,} items; pass one row for each item")
    if in_order is None and hasattr(x, "iloc") and not np.array_equal(x.index, np.arange(n)):
        remedy = "or pass x.reset_index(drop=True) if its rows are in the order of model.items_"
        raise DataError(f"the index of x does not contain the model's items; index it by item id, {remedy}")
    return x if in_order is None else in_order


def item_weights(model: Model, weight: str) -> Array:
    """Return the weight of each item, 1 on average."""
    if weight == "equal":
        return np.ones(len(model.items_))
    intervals = None if weight == "labels" else model.intervals()
    if weight == "p_top" and intervals is None:
        raise DataError(f"{type(model).__name__} has no p_top; use weight='equal' or weight='labels'")
    weights = model.n_labels_ if intervals is None else intervals.p_top
    total = float(np.sum(weights))
    if total <= 0:
        raise DataError("no item has a weight above 0; use weight='equal'")
    return np.asarray(weights * (len(weights) / total), np.float64)


def soft_loss(logits: Tensor, distribution: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted cross-entropy of predictions, Σ_m w_m H(d_m, softmax(l_m)) / Σ_m w_m.

    Parameters
    ----------
    logits
        (items, classes): outputs of the network.
    distribution
        (items, classes): refined labels of the batch.
    weight
        (items,): weight of each item.
    """
    # H(d, q) = −Σ_p d_p log q_p
    entropy = -(distribution * logits.log_softmax(dim=-1)).sum(dim=-1)
    return (weight * entropy).sum() / weight.sum()


def sample_weight_rows(model: Any, x: Any) -> tuple[Any, NDArray[Any], Array]:
    """Return X, y and ``sample_weight`` for a classifier of hard labels: one row for each item and class.

    The weighted log-loss of an item's rows is its cross-entropy with the distribution, so a classifier fitted
    to these rows learns the distributions.

    Parameters
    ----------
    model
        A fitted model, or the result of ``ds.fit``.
    x
        Inputs of the classifier in the order of ``model.items_``: an array, sparse matrix, frame or list. The
        rows of a pandas object may be in any order if its index or its item column names the items.
    """
    model = getattr(model, "model", model)
    x = rows_of_items(model, x)
    item, label = np.nonzero(model.label_distributions_)
    rows = x.iloc[item] if hasattr(x, "iloc") else x[item] if hasattr(x, "shape") else [x[m] for m in item]
    return rows, model.classes_[label], model.label_distributions_[item, label]
