"""TextCNN, the paper's PD: a convolutional network on words, trained on label distributions.

Word vectors, three convolutions, each followed by max-pooling (the last over the whole text), dropout and
softmax. Positions beyond the end of a text are set to zero after every convolution, so a prediction does not
depend on the padding.

The loss is KL(d ‖ p) of the target and predicted distributions; the epoch with the lowest KL on dev is kept.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, ParameterError, require, system_words
from dissensus.metrics import kl
from dissensus.numerics import Array
from dissensus.params import (
    ANY,
    DEVICE,
    EARLY_STOPPING,
    N_THREADS,
    NONE,
    SEED,
    fitted,
    integer,
    real,
    setting,
)
from dissensus.text.learners.base import Dev, Learner, as_texts, batches_by_length, split_off_dev

if TYPE_CHECKING:
    from torch import Tensor

PAD, UNKNOWN = 0, 1  # codes of padding and of words outside the lexicon
WORD = re.compile(r"[#@]?\w+(?:['’]\w+)*|[^\w\s]")
TEXTS_PER_PREDICTION = 256
DEFAULT_DIMENSION = 100  # length of word vectors learned from scratch


def words_of(text: str, limit: int) -> list[str]:
    """Return at most ``limit`` lower-case words and punctuation marks of a text."""
    return [match.group() for match, _ in zip(WORD.finditer(text.lower()), range(limit), strict=False)]


def lexicon_of(texts: list[list[str]], size: int) -> list[str]:
    """Return the most frequent words, ties in code-point order."""
    counts = Counter(word for words in texts for word in words)
    return [word for word, _ in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:size]]


def read_glove(path: Path, lexicon: list[str]) -> dict[str, NDArray[np.float32]]:
    """Read the vectors of the lexicon's words from a GloVe text file (a word and its numbers on each line).

    The first line decides how many numbers a word has. Some "words" of GloVe contain spaces (". . ."); their
    lines have more fields and are skipped.
    """
    words, vectors, size = set(lexicon), {}, 0
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                word, _, rest = line.rstrip().partition(" ")
                size = size or len(rest.split())
                if word in words and len(values := rest.split()) <= size:
                    vectors[word] = _numbers(values, size, path, number)
    except OSError as error:
        raise DataError(
            f"{path}: the word vectors cannot be read ({system_words(error)}); check glove="
        ) from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason}); give a GloVe text file") from None
    if not vectors:
        raise DataError(
            f"{path}: has no vector for any of the {len(words):,} words of the texts; give a GloVe file of "
            "their language, or leave glove out"
        )
    return vectors


def _numbers(values: list[str], size: int, path: Path, line: int) -> NDArray[np.float32]:
    try:
        vector = np.array(values, dtype=np.float32)
    except ValueError:
        raise DataError(f"{path} line {line}: not a word and its numbers; give a GloVe text file") from None
    if len(vector) < size:
        raise DataError(
            f"{path} line {line}: {len(vector)} numbers after the word, and {size} on the first line; give a "
            "whole GloVe file"
        )
    return vector


# ---- the network ------------------------------------------------------------------------------------------


def cnn(n_words: int, dimension: int, n_classes: int, filters: int, width: int, dropout: float) -> Any:
    """Build word vectors, three stacked convolutions and a linear head, with random weights."""
    from torch import nn

    sizes = [(dimension, filters), (filters, filters), (filters, filters)]
    return nn.ModuleDict(
        {
            "words": nn.Embedding(n_words, dimension, padding_idx=PAD),
            "convolutions": nn.ModuleList(nn.Conv1d(a, b, width, padding="same") for a, b in sizes),
            "dropout": nn.Dropout(dropout),
            "head": nn.Linear(filters, n_classes),
        }
    )


def logits_of(network: Any, codes: list[list[int]], pool: int) -> Tensor:
    """Return the logits of texts, (texts, classes); all but the last maximum are over ``pool`` positions."""
    import torch
    from torch.nn.functional import max_pool1d

    longest = max(1, max(map(len, codes)))
    words = torch.tensor([row + [PAD] * (longest - len(row)) for row in codes])
    words = words.to(network["head"].weight.device)
    inside = (words != PAD).float().unsqueeze(1)  # texts, 1, positions
    signal = network["words"](words).transpose(1, 2)
    for layer, convolution in enumerate(network["convolutions"]):
        # ReLU is never negative, so the zeros outside a text never exceed the maximum
        signal = torch.relu(convolution(signal)) * inside
        if layer < len(network["convolutions"]) - 1:
            signal, inside = (max_pool1d(part, pool, ceil_mode=True) for part in (signal, inside))
    logits: Tensor = network["head"](network["dropout"](signal.amax(dim=2)))
    return logits


class TextCNN(Learner):
    """Three convolution and max-pool layers on word vectors (the paper's PD).

    Without a dev part, a seeded tenth of the items is used.
    """

    _: KW_ONLY
    lexicon_size: int = setting(20_000, integer(1), "The most frequent words that are known.")
    dimension: int | None = setting(
        None, integer(1) | NONE, "Length of a word vector; None: that of the GloVe file, or 100 without one."
    )
    max_words: int = setting(1_000, integer(1), "Words of a text that are read.")
    filters: int = setting(128, integer(1), "Filters of each convolution.")
    width: int = setting(5, integer(1), "Words that a filter sees at once.")
    pool: int = setting(2, integer(1), "Positions that are pooled into one.")
    dropout: float = setting(
        0.5, real(0.0, 1.0), "Share of the last layer that is dropped at random in training."
    )
    epochs: int = setting(30, integer(1), "Passes over the texts, at most.")
    patience: int | None = setting(5, *EARLY_STOPPING)
    batch_size: int = setting(32, integer(1), "Texts in a batch.")
    learning_rate: float = setting(1e-3, real(0.0, open_low=True), "Step size of the optimiser.")
    glove: str | None = setting(
        None, ANY, "Path of a GloVe text file; without one, word vectors are learned from scratch."
    )
    device: str | None = setting(None, *DEVICE)
    n_threads: int | None = setting(1, *N_THREADS)
    seed: int = setting(0, *SEED)

    lexicon_: list[str] = fitted("the words that are known", saved=False)
    dev_kl_: Array = fitted("the KL on dev, by epoch", saved=False)
    epoch_: int = fitted("the epoch kept", saved=False)
    n_threads_: int = fitted("the thread count at which the seed replays this fit", saved=False)

    def _inputs(self, X: Any) -> list[list[str]]:
        return [words_of(text, self.max_words) for text in as_texts(X)]

    def _fit(self, X: list[list[str]], targets: Array, dev: Dev | None) -> None:
        require("torch", "text")
        import torch

        from dissensus.text.learners.base import torch_threads

        if dev is None:
            (X, targets), dev = split_off_dev(X, targets, self.seed)
        self.lexicon_ = lexicon_of(X, self.lexicon_size)
        with torch_threads(self.n_threads) as self.n_threads_, torch.random.fork_rng():
            torch.manual_seed(self.seed)  # torch initialises layers from its global generator
            self._train(X, targets, dev)

    def _train(self, X: list[list[str]], targets: Array, dev: Dev) -> None:
        import torch

        from dissensus.text.learners.base import kl_loss

        network = self._first_network(targets.shape[1])
        adam = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
        codes, best, losses = self._codes(X), dict[str, Any](), list[float]()
        rng = np.random.default_rng(self.seed)
        for epoch in range(self.epochs):
            network.train()
            for rows in batches_by_length([len(code) for code in codes], self.batch_size, rng):
                loss = kl_loss(logits_of(network, [codes[i] for i in rows], self.pool), targets[rows])
                adam.zero_grad()
                loss.backward()
                adam.step()
            losses.append(kl(dev[1], self._forward(network, dev[0])))
            if not epoch or losses[epoch] < losses[self.epoch_]:
                self.epoch_ = epoch
                best = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
            if epoch - self.epoch_ >= (self.patience or np.inf):
                break
        network.load_state_dict(best)
        self.network_, self.dev_kl_ = network, np.asarray(losses)

    def _predict(self, X: list[list[str]]) -> Array:
        from dissensus.text.learners.base import torch_threads

        with torch_threads(self.n_threads):
            return self._forward(self.network_, X)

    def _forward(self, network: Any, X: list[list[str]]) -> Array:
        import torch

        codes = self._codes(X)
        network.eval()
        with torch.inference_mode():
            parts = [
                logits_of(network, codes[start : start + TEXTS_PER_PREDICTION], self.pool)
                .double()
                .softmax(dim=1)
                for start in range(0, len(codes), TEXTS_PER_PREDICTION)
            ]
        return np.concatenate([part.cpu().numpy() for part in parts])

    # ---- words and network ----------------------------------------------------------------------------

    def _codes(self, X: list[list[str]]) -> list[list[int]]:
        code = {word: row for row, word in enumerate(self.lexicon_, start=UNKNOWN + 1)}
        return [[code.get(word, UNKNOWN) for word in words] for words in X]

    def _first_network(self, n_classes: int) -> Any:
        """Return the initial network, with GloVe vectors for the words in the file."""
        import torch

        if self.glove is None:
            return self._network(n_classes, self.dimension or DEFAULT_DIMENSION)
        vectors = read_glove(Path(self.glove), self.lexicon_)
        size = len(next(iter(vectors.values())))
        if self.dimension not in (None, size):
            raise ParameterError(
                f"{self.glove} has {size} numbers a word, and dimension is {self.dimension}; set "
                f"dimension={size} or leave it out"
            )
        network = self._network(n_classes, size)
        with torch.no_grad():
            for row, word in enumerate(self.lexicon_, start=UNKNOWN + 1):
                if word in vectors:
                    network["words"].weight[row] = torch.from_numpy(vectors[word])
        return network

    def _network(self, n_classes: int, dimension: int) -> Any:
        from dissensus.text.learners.base import torch_device

        sizes = (self.filters, self.width, self.dropout)
        network = cnn(len(self.lexicon_) + UNKNOWN + 1, dimension, n_classes, *sizes)
        return network.to(torch_device(self.device))
