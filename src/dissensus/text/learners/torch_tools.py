"""What every training loop here shares: a fixed thread count, a device, seeds, the best epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


def seeded(seed: int, device: torch.device) -> torch.Generator:
    """A torch generator for one fit."""
    return torch.Generator(device=device).manual_seed(seed)


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Torch's global randomness seeded for a block (networks of others draw from it), then put back."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def kl_loss(logits: torch.Tensor, targets: NDArray[np.float64]) -> Any:
    """KL(d ‖ p) = Σ d log d − Σ d log p of targets d and p = softmax(logits), the mean over the rows."""
    d = torch.as_tensor(targets, dtype=torch.float32, device=logits.device)
    return torch.nn.functional.kl_div(logits.log_softmax(dim=1), d, reduction="batchmean")


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """A NumPy array of the tensor's values."""
    values: NDArray[Any] = tensor.detach().cpu().numpy()
    return values


class BestEpoch:
    """Remembers the state of the epoch with the lowest dev loss, and when to give up waiting for a better."""

    def __init__(self, patience: int | None = None) -> None:
        self.patience, self.losses, self.epoch = patience, list[float](), -1
        self.state: dict[str, torch.Tensor] = {}

    def see(self, loss: float, state: Mapping[str, torch.Tensor]) -> bool:
        """Take note of an epoch; True if training should go on."""
        self.losses.append(loss)
        if self.epoch < 0 or loss < self.losses[self.epoch]:
            self.epoch = len(self.losses) - 1
            self.state = {name: tensor.detach().clone() for name, tensor in state.items()}
        return self.patience is None or len(self.losses) - 1 - self.epoch < self.patience
