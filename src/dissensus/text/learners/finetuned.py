"""FineTunedEncoder: a sentence encoder and a softmax head, trained end to end on label distributions.

The head starts as the softmax regression on the frozen embeddings: the first gradients of a random head would
damage the pretrained encoder. Then encoder and head are trained together with AdamW, with a learning rate
that falls linearly to zero. The epoch with the lowest KL on dev is kept.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np

from dissensus import params
from dissensus.errors import require
from dissensus.metrics import kl
from dissensus.numerics import Array
from dissensus.params import ANY, POSITIVE, fitted, integer, real, setting
from dissensus.progress import PROGRESS, ShowProgress, counted
from dissensus.tables.arrays import Arrays, Header
from dissensus.text.embedding import embed, load_encoder
from dissensus.text.learners import base
from dissensus.text.learners.base import Dev, Learner, to_numpy, torch_device, torch_threads
from dissensus.text.learners.softmax import SoftmaxRegression

TEXTS_PER_PREDICTION = 64  # texts per forward pass


class FineTunedEncoder(Learner):
    """A sentence encoder fine-tuned end to end on label distributions; the best epoch on dev is kept.

    Without a dev set, a random tenth of the items is held out as one.
    """

    model: str | None = setting(None, ANY, "Pretrained encoder, as in :func:`dissensus.text.embed`.")
    _: KW_ONLY
    epochs: int = setting(3, integer(1), "Maximum number of passes over the texts.")
    patience: int | None = setting(2, *params.EARLY_STOPPING)
    batch_size: int = setting(16, integer(1), "Texts per batch.")
    learning_rate: float = setting(1e-4, POSITIVE, "Step size for the encoder.")
    head_rate: float = setting(1e-3, POSITIVE, "Step size for the linear head.")
    weight_decay: float = setting(0.01, real(0.0), "Weight decay of the optimiser.")
    max_tokens: int = setting(128, integer(2), "Maximum number of tokens read of a text.")
    device: str | None = setting(None, *params.DEVICE)
    n_threads: int | None = setting(None, *params.N_THREADS)
    progress: ShowProgress = setting(None, PROGRESS, "As in :func:`dissensus.text.embed`.")
    seed: int = setting(0, *params.SEED)

    coef_: Array = fitted("(features, classes): the head")
    intercept_: Array = fitted("(classes,)")
    dev_kl_: Array = fitted("KL on dev by epoch; epoch 0 is the softmax regression")
    epoch_: int = fitted("the epoch kept; 0 is the softmax regression", saved=False)
    n_threads_: int = fitted("number of threads at which the seed replays this fit", saved=False)

    def _inputs(self, X: Any) -> list[str]:
        return base.as_texts(X)

    def _fit(self, X: list[str], targets: Array, dev: Dev | None) -> None:
        require("torch", "text")
        import torch

        if dev is None:
            (X, targets), dev = base.split_off_dev(X, targets, self.seed)
        with torch_threads(self.n_threads) as self.n_threads_, torch.random.fork_rng():
            torch.manual_seed(self.seed)  # loaded encoders draw from the global generator
            self._train(X, targets, dev)

    def _train(self, X: list[str], targets: Array, dev: Dev) -> None:
        import torch

        self.encoder_ = load_encoder(self.model, str(torch_device(self.device)))
        # the head starts as the softmax regression on the frozen embeddings
        vectors = [embed(texts, self.model, progress=self.progress) for texts in (X, dev[0])]
        start = SoftmaxRegression(seed=self.seed).fit(vectors[0], targets, dev=(vectors[1], dev[1]))
        head = self._head(start.coef_, start.intercept_)
        network = torch.nn.ModuleDict({"encoder": self.encoder_, "head": head})
        n_steps = self.epochs * -(-len(X) // self.batch_size)
        rates = {self.encoder_: self.learning_rate, head: self.head_rate}
        groups = [{"params": part.parameters(), "lr": rate} for part, rate in rates.items()]
        adam = torch.optim.AdamW(groups, weight_decay=self.weight_decay, fused=True)
        # both rates fall linearly to zero
        schedule = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: max(0.0, 1.0 - step / n_steps))
        losses, best, rng = list[float](), dict[str, Any](), np.random.default_rng(self.seed)
        with counted("fine-tuning", n_steps, self.progress) as advance:
            for epoch in range(self.epochs + 1):  # epoch 0 is the regression
                network.train()
                lengths = [len(text) for text in X]
                for rows in base.batches_by_length(lengths, self.batch_size, rng) if epoch else ():
                    loss = base.kl_loss(self._logits(head, [X[i] for i in rows]), targets[rows])
                    adam.zero_grad()
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                    adam.step()
                    schedule.step()
                    advance(1)
                losses.append(kl(dev[1], self._forward(head, dev[0])))
                if not epoch or losses[epoch] < losses[self.epoch_]:
                    self.epoch_ = epoch
                    best = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
                if epoch - self.epoch_ >= (self.patience or np.inf):
                    break
        network.load_state_dict(best)
        self.dev_kl_ = np.asarray(losses)
        self.coef_ = to_numpy(head.weight).T.astype(np.float64)
        self.intercept_ = to_numpy(head.bias).astype(np.float64)

    def _head(self, coef: Array, intercept: Array) -> Any:
        import torch

        head = torch.nn.Linear(*coef.shape)
        with torch.no_grad():
            head.weight.copy_(torch.from_numpy(coef.T))
            head.bias.copy_(torch.from_numpy(intercept))
        return head.to(self.encoder_.device)

    def _logits(self, head: Any, texts: list[str]) -> Any:
        options = {"padding": True, "truncation": True, "max_length": self.max_tokens}
        tokens = self.encoder_.tokenizer(texts, **options, return_tensors="pt")
        on_device = {name: values.to(self.encoder_.device) for name, values in tokens.items()}
        return head(self.encoder_(on_device)["sentence_embedding"])

    def _predict(self, X: list[str]) -> Array:
        with torch_threads(self.n_threads):
            return self._forward(self._head(self.coef_, self.intercept_), X)

    def _forward(self, head: Any, X: list[str]) -> Array:
        """Predict in batches of texts of similar length."""
        import torch

        self.encoder_.eval()
        order = np.argsort([len(text) for text in X], kind="stable")
        probabilities = np.empty((len(X), head.out_features))
        with torch.inference_mode():
            for start in range(0, len(X), TEXTS_PER_PREDICTION):
                rows = order[start : start + TEXTS_PER_PREDICTION]
                logits = self._logits(head, [X[i] for i in rows])
                probabilities[rows] = logits.double().softmax(dim=1).cpu().numpy()
        return probabilities

    def _state(self) -> tuple[Header, Arrays]:
        from dissensus.text.learners.encoder import pack_encoder

        facts, arrays = super()._state()
        encoder, weights = pack_encoder(self.encoder_)
        facts |= {"epoch": self.epoch_, "n_threads": self.n_threads_, "encoder": encoder}
        return facts, arrays | weights

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        require("torch", "text")
        require("transformers", "text")
        from dissensus.text.learners.encoder import unpack_encoder

        super()._restore(facts, arrays)
        base.check_head(self.coef_, self.intercept_, self.n_classes_)
        self.epoch_, self.n_threads_ = facts["epoch"], facts["n_threads"]
        self.encoder_ = unpack_encoder(facts["encoder"], arrays, torch_device(self.device))
