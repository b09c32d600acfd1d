"""LDL-NM compared with a textbook training loop, and the paper's whole search over layer sizes.

* One training with the paper's settings (10,000 labels, 200 epochs) must be three times faster than a loop
  with a ``DataLoader`` that gathers the features of every label, a module that projects them for every label,
  and ``torch.optim.Adam``.
* The paper's search over 18 × 18 sizes on jq3 must take at most 15 processor minutes (the paper: an hour on a
  GPU). A cell ends after 30 epochs without improvement on dev, or after 200.

``python -m benchmarks.ldlnm [--data DIR] [--epochs N] [--search] [--directory DIR]``; the search runs only
with ``--search``, and resumes in the same directory.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import dissensus as ds
from benchmarks.timing import processor_seconds
from dissensus.labels.features import features_of
from experiments.runner import DATA_FOLDER, check_limit, read_dataset
from reproduction.network_search import DevDistributions

MIN_RATIO, MAX_MINUTES = 3.0, 15.0
LAYER_SIZES = range(3, 21)
ROUNDS, PAPER_EPOCHS = 3, 200


class LabelDataset(torch.utils.data.Dataset):
    """One label at a time, with the features of its item and its three targets."""

    def __init__(self, train: ds.Annotations) -> None:
        P, N = train.n_classes, train.n_annotators
        self.x = torch.tensor(features_of(train))
        self.item = torch.from_numpy(train.item.astype(np.int64))
        self.annotator = torch.from_numpy(train.annotator.astype(np.int64))
        self.label = torch.from_numpy(train.label.astype(np.int64))
        self.of_item = torch.tensor(train.counts / train.counts.sum(axis=1, keepdims=True)).float()
        counts = np.bincount(train.annotator * P + train.label, minlength=N * P).reshape(N, P)
        self.of_annotator = torch.tensor(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)).float()

    def __len__(self) -> int:
        return len(self.item)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, ...]:
        m, n = self.item[row], self.annotator[row]
        return self.x[m], n, self.label[row], self.of_item[m], self.of_annotator[n]


class TextbookNetwork(nn.Module):
    """Network of LDL-NM with the standard layers of torch."""

    def __init__(self, features: int, annotators: int, classes: int, size: int = 20) -> None:
        super().__init__()
        self.item, self.annotator = nn.Linear(features, size), nn.Embedding(annotators, size)
        self.projection, self.encoding = nn.Linear(2 * size, size), nn.Linear(size, size)
        self.heads = nn.ModuleList(nn.Linear(size, classes) for _ in range(3))
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor, annotator: torch.Tensor) -> list[torch.Tensor]:
        """Return the log-probabilities of the three heads."""
        phi = nn.functional.softsign
        fused = phi(torch.cat([self.item(x), self.annotator(annotator)], dim=1))
        z_p = self.dropout(phi(self.projection(fused)))
        z_e = self.dropout(phi(self.encoding(z_p) + z_p))
        return [head(z_e).log_softmax(dim=1) for head in self.heads]


def train_textbook(train: ds.Annotations, epochs: int) -> None:
    torch.manual_seed(0)
    data = LabelDataset(train)
    network = TextbookNetwork(data.x.shape[1], train.n_annotators, train.n_classes)
    adam = torch.optim.Adam(network.parameters(), lr=1e-3)
    kl = nn.functional.kl_div
    for _ in range(epochs):
        batches = torch.utils.data.DataLoader(data, 256, shuffle=True)
        for x, annotator, label, of_item, of_annotator in batches:
            y, y_i, y_a = network(x, annotator)
            loss = nn.functional.nll_loss(y, label)
            loss = loss + kl(y_i, of_item, reduction="batchmean")
            loss = loss + kl(y_a, of_annotator, reduction="batchmean")
            adam.zero_grad()
            loss.backward()
            adam.step()


def train_ours(train: ds.Annotations, epochs: int) -> None:
    ds.LDLNM(**(dict(ds.LDLNM.PAPER) | {"epochs": epochs}), dev_size=0.0).fit(train)


def speedup(train: ds.Annotations, epochs: int) -> float:
    """Return the ratio of the times of the textbook loop and of ours, the best of several rounds in turn."""
    torch.set_num_threads(1)

    def epoch_seconds(task: object) -> float:
        """Return the difference of two lengths, which leaves out the work done once."""
        times = []
        for n in (1, epochs + 1):
            start = time.process_time()
            task(train, n)  # type: ignore[operator]
            times.append(time.process_time() - start)
        return times[1] - times[0]

    rounds = [(epoch_seconds(train_ours), epoch_seconds(train_textbook)) for _ in range(ROUNDS)]
    ours, textbook = (min(column) * PAPER_EPOCHS / epochs for column in zip(*rounds, strict=True))
    print(f"{PAPER_EPOCHS} epochs of {train.n_labels:,} labels: textbook {textbook:.1f} s, ours {ours:.1f} s")
    return textbook / ours


def search_minutes(parts: dict[str, ds.Annotations], directory: Path | None) -> float:
    """Run the paper's 324 cells on two processes and return the processor minutes."""
    selection = ds.select(
        parts["train"],
        ds.LDLNM(**(dict(ds.LDLNM.PAPER) | {"patience": 30})),
        {"item_size": LAYER_SIZES, "annotator_size": LAYER_SIZES},
        criterion=DevDistributions(parts["dev"]),
        repeats=1,
        references={},
        refit=False,
        directory=directory,
        n_jobs=2,
    )
    print(f"{selection!r}")
    return processor_seconds(resource.RUSAGE_CHILDREN) / 60


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA_FOLDER, help="folder of the datasets")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    parts = ds.text.embed_items(read_dataset(options.data / "jq3")).split_items()
    ratio = speedup(parts["train"], options.epochs)
    missed = check_limit("times faster than a textbook loop", ratio, MIN_RATIO, at_least=True)
    if options.search:
        minutes = search_minutes(parts, options.directory)
        missed |= check_limit("processor minutes of the search", minutes, MAX_MINUTES)
    return missed


if __name__ == "__main__":
    sys.exit(main())
