"""What every training loop here shares: a fixed thread count, a device, the loss."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dissensus.errors import ParameterError


@contextmanager
def threads(n: int | None) -> Iterator[int]:
    """Torch held to ``n`` threads (None: as it is); yields the number in use, for the record.

    Sums are taken in another order with more threads, so a seed replays a fit only at one thread count.
    """
    before = torch.get_num_threads()
    if n is not None:
        torch.set_num_threads(n)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def pick_device(name: str | None) -> torch.device:
    """The device asked for; None takes a GPU where there is one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ParameterError(
            f"device {name!r} cannot be used ({reason}); use 'cpu' or leave it out"
        ) from None
    return device


def kl_loss(logits: torch.Tensor, targets: NDArray[np.float64]) -> Any:
    """KL(d ‖ p) = Σ d log d − Σ d log p of targets d and p = softmax(logits), the mean over the rows."""
    d = torch.as_tensor(targets, dtype=torch.float32, device=logits.device)
    return torch.nn.functional.kl_div(logits.log_softmax(dim=1), d, reduction="batchmean")


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """A NumPy array of the tensor's values."""
    values: NDArray[Any] = tensor.detach().cpu().numpy()
    return values
