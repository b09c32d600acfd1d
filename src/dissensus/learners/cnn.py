"""The network of the paper's PD baseline: words in, a label distribution out.

Word vectors, then three convolutions, each followed by max-pooling (the last over the whole text), dropout,
softmax. Positions beyond a text's end are held at zero after every convolution, so what a text gets does not
depend on the texts it is padded with.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

PAD, UNKNOWN = 0, 1


class CNN(nn.Module):
    """Three stacked convolution and max-pool layers over word vectors."""

    def __init__(
        self,
        n_words: int,
        dimension: int,
        n_classes: int,
        filters: int,
        width: int,
        pool: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(n_words, dimension, padding_idx=PAD)
        sizes = [(dimension, filters), (filters, filters), (filters, filters)]
        self.convolutions = nn.ModuleList(nn.Conv1d(a, b, width, padding="same") for a, b in sizes)
        self.pool = pool
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(filters, n_classes)

    def forward(self, words: Tensor) -> Tensor:
        """Logits (texts, classes) of word codes (texts, positions), padded with ``PAD``."""
        inside = (words != PAD).float().unsqueeze(1)  # texts, 1, positions
        signal = self.words(words).transpose(1, 2)
        for layer, convolution in enumerate(self.convolutions):
            # ReLU leaves nothing below zero, so the zeros outside a text never win a maximum.
            signal = torch.relu(convolution(signal)) * inside
            if layer < len(self.convolutions) - 1:
                signal, inside = self._pooled(signal), self._pooled(inside)
        logits: Tensor = self.head(self.dropout(signal.amax(dim=2)))
        return logits

    def _pooled(self, signal: Tensor) -> Tensor:
        return nn.functional.max_pool1d(signal, self.pool, ceil_mode=True)


def pad(rows: list[list[int]]) -> Tensor:
    """Word codes as one tensor, padded to the longest row."""
    longest = max(1, max(map(len, rows)))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
