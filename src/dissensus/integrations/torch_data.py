"""The dataset itself; apart, because its class is PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, default_collate

from dissensus.numerics import Array

Row = tuple[Any, torch.Tensor, torch.Tensor]


class DistributionDataset(Dataset[Row]):
    """Rows of (x, distribution, weight)."""

    def __init__(self, x: Any, distributions: Array, weights: Array) -> None:
        features = isinstance(x, np.ndarray) and x.dtype != object
        self.x = torch.as_tensor(x).float() if features else list(x)
        self.distributions = torch.as_tensor(distributions).float()
        self.weights = torch.as_tensor(weights).float()

    def __len__(self) -> int:
        return len(self.distributions)

    def __getitem__(self, place: int) -> Row:
        return self.x[place], self.distributions[place], self.weights[place]

    @staticmethod
    def collate(rows: list[Row]) -> tuple[Any, torch.Tensor, torch.Tensor]:
        """A batch: features as one tensor, anything else as a list."""
        x, distributions, weights = zip(*rows, strict=True)
        stacked = default_collate(list(x)) if isinstance(x[0], torch.Tensor) else list(x)
        return stacked, torch.stack(distributions), torch.stack(weights)
