"""Base class of learners, checks of their data, and helpers for training with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from dissensus import params
from dissensus.errors import DataError, ModelFileError, ParameterError
from dissensus.metrics import check_distributions, kl
from dissensus.numerics import Array
from dissensus.params import Estimator, declare, fitted
from dissensus.tables import arrays
from dissensus.tables.arrays import Arrays, Header

if TYPE_CHECKING:
    import torch

Dev = tuple[Any, Any]  # X and distributions of the dev set

DEV_SHARE = 0.1  # share of the items held out if no dev set is given


@dataclass_transform(eq_default=False, field_specifiers=(fitted,))
class Learner(Estimator):
    """Base class of learners.

    A learner declares its settings and the arrays it saves, and implements ``_inputs``, ``_fit`` and
    ``_predict``.
    """

    _fitted_by = "n_classes_"

    n_classes_: int

    _inputs: Callable[..., Any]  # converts and checks X
    _fit: Callable[..., None]  # takes X, targets and the dev set or None
    _predict: Callable[..., Array]  # returns (items, classes)

    def __init_subclass__(cls) -> None:
        declare(cls)

    save = arrays.save

    def fit(self, X: Any, distributions: Any, dev: Dev | None = None) -> Self:
        """Learn from one label distribution per item.

        Parameters
        ----------
        X
            Features or texts, one row for each item.
        distributions
            (items, classes): the distributions to learn.
        dev
            A pair (X, distributions) of other items on which choices are made.
        """
        self.check_params()
        targets = check_distributions(distributions, "distributions")
        inputs = self._inputs(X)
        check_rows(inputs, targets, "X", "distributions")
        dev = None if dev is None else check_dev(dev, targets.shape[1], self._inputs)
        with params.fitted_copy(self) as fitted:
            fitted.n_classes_ = targets.shape[1]
            fitted._fit(inputs, targets, dev)
        return self

    def label_distributions(self, X: Any) -> Array:
        """Predict the label distribution of each row of X, (items, classes).

        Parameters
        ----------
        X
            Features or texts, one row for each item.
        """
        self._check_fitted()
        return self._predict(self._inputs(X))

    def score(self, X: Any, distributions: Any) -> float:
        """Return −KL(distributions ‖ predictions), the mean over items: higher is better.

        Parameters
        ----------
        X
            Features or texts, one row for each item.
        distributions
            (items, classes): the distributions to compare with.
        """
        return -kl(distributions, self.label_distributions(X))

    def _state(self) -> tuple[Header, Arrays]:
        """Return JSON values and arrays for a file."""
        return {"n_classes": self.n_classes_}, {name: getattr(self, name) for name in self._arrays}

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        for name in self._arrays:
            setattr(self, name, arrays[name])
        self.n_classes_ = int(facts["n_classes"])


# ---- data ---------------------------------------------------------------------------------------------


def as_texts(X: Any) -> list[str]:
    """Return X as a list of strings."""
    if isinstance(X, str):
        raise DataError(f"X is a single text, {X!r}; put it in a list")
    if not (texts := list(X)):
        raise DataError("X has no texts; pass at least one")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"row {row} of X is {text!r}, not a text; pass one string per item")
    return texts


def check_rows(X: Any, targets: Array, X_name: str, targets_name: str) -> None:
    """Check that X has one row for each distribution."""
    if len(X) != len(targets):
        raise DataError(f"{X_name} has {len(X)} rows and {targets_name} {len(targets)}; pass one per item")


def check_dev(dev: Any, n_classes: int, inputs: Callable[[Any], Any]) -> Dev:
    """Return a dev set as (X, distributions), with X converted by ``inputs``."""
    if not isinstance(dev, tuple | list) or len(dev) != 2:
        size = f" of {len(dev)}" if isinstance(dev, tuple | list) else ""
        raise DataError(f"dev must be a pair (X, distributions), got a {type(dev).__name__}{size}")
    targets = check_distributions(dev[1], "dev distributions")
    if (n := targets.shape[1]) != n_classes:
        raise DataError(f"dev has {n} classes and the training set {n_classes}; pass a column for each")
    X = inputs(dev[0])
    check_rows(X, targets, "dev X", "dev distributions")
    return X, targets


def check_head(coef: Array, intercept: Array, n_classes: int) -> None:
    """Check that the shapes of a saved linear head match."""
    if coef.ndim != 2 or coef.shape[1:] != (n_classes,) or intercept.shape != (n_classes,):
        shapes = f"coef_ of shape {coef.shape} and intercept_ of {intercept.shape}"
        raise ModelFileError(f"{shapes} for {n_classes} classes")


def split_off_dev(X: list[Any], targets: Array, seed: int) -> tuple[Dev, Dev]:
    """Split items into a training set and a random tenth on which the epoch is chosen."""
    if len(X) < 2:
        raise DataError("one item is not enough to choose the epoch; pass more items, or dev")
    train, dev = hold_out(len(X), seed)
    return ([X[i] for i in train], targets[train]), ([X[i] for i in dev], targets[dev])


def hold_out(n: int, seed: int, share: float = DEV_SHARE) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split n rows at random into (training, held out); at least one of each if n > 1."""
    order = np.random.default_rng(seed).permutation(n)
    n_out = min(max(1, round(share * n)), n - 1)
    return np.sort(order[n_out:]), np.sort(order[:n_out])


def batches_by_length(lengths: list[int], size: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """Yield all rows once in random batches of rows of similar length.

    Sorting by length inside random groups of eight batches halves the padding of short texts and leaves
    the composition of batches random enough.
    """
    order, length = rng.permutation(len(lengths)), np.asarray(lengths)
    groups = (order[start : start + 8 * size] for start in range(0, len(order), 8 * size))
    rows = np.concatenate([group[np.argsort(length[group], kind="stable")] for group in groups])
    return (rows[start : start + size] for start in rng.permutation(np.arange(0, len(rows), size)))


# ---- PyTorch ------------------------------------------------------------------------------------------


@contextmanager
def torch_threads(n: int | None) -> Iterator[int]:
    """Limit torch to ``n`` threads (None: no change) and yield the number in use.

    The order of summation depends on the number of threads, so a seed replays a fit only at the same number.
    """
    import torch

    before = torch.get_num_threads()
    if n is not None:
        torch.set_num_threads(n)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def torch_device(name: str | None) -> torch.device:
    """Return the device of that name; None takes a GPU if there is one."""
    import torch

    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ParameterError(f"device {name!r} cannot be used ({reason}); use 'cpu' or omit it") from None
    return device


def kl_loss(logits: torch.Tensor, targets: Array) -> Any:
    """Return KL(d ‖ p) = Σ d log d − Σ d log p of targets d and p = softmax(logits), the mean over rows."""
    import torch

    d = torch.as_tensor(targets, dtype=torch.float32, device=logits.device)
    return torch.nn.functional.kl_div(logits.log_softmax(dim=1), d, reduction="batchmean")


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """Return the values of a tensor as a NumPy array."""
    return np.asarray(tensor.detach().cpu().numpy())
