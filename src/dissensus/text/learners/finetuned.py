"""FineTunedEncoder: a sentence encoder and a softmax head, trained end to end on label distributions.

The head starts at the softmax regression on the encoder's own embeddings, so training sets out from that line
and not from noise (a fresh head's first gradients would spoil what the encoder knows); then encoder and head
move together under AdamW, the rate falling linearly to zero. The epoch with the lowest KL on dev is kept.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np

from dissensus.errors import require
from dissensus.metrics import kl
from dissensus.numerics import Array
from dissensus.params import ANY, DEVICE, N_THREADS, PATIENCE, POSITIVE, SEED, fitted, integer, real, setting
from dissensus.progress import PROGRESS, ShowProgress, counted
from dissensus.tables.arrays import Arrays, Header
from dissensus.text.embedding import embed, load_encoder
from dissensus.text.learners.base import Dev, Learner, as_texts, batches, check_head, own_dev
from dissensus.text.learners.softmax import SoftmaxRegression

PREDICT_BATCH = 64


class FineTunedEncoder(Learner):
    """A sentence encoder fine-tuned end to end on label distributions; the best epoch on dev is kept.

    Without a dev part, a seeded tenth of the items serves as one.
    """

    model: str | None = setting(None, ANY, "The encoder to begin with, as in :func:`dissensus.text.embed`.")
    _: KW_ONLY
    epochs: int = setting(3, integer(1), "Passes over the texts, at most.")
    patience: int | None = setting(2, *PATIENCE)
    batch_size: int = setting(16, integer(1), "Texts in a batch.")
    learning_rate: float = setting(1e-4, POSITIVE, "Step size for the encoder.")
    head_rate: float = setting(1e-3, POSITIVE, "Step size for the layer on top of it.")
    weight_decay: float = setting(0.01, real(0.0), "Weight decay of the optimiser.")
    max_tokens: int = setting(128, integer(2), "Tokens of a text that are read.")
    device: str | None = setting(None, *DEVICE)
    n_threads: int | None = setting(None, *N_THREADS)
    progress: ShowProgress = setting(
        None, PROGRESS, "True or False, a function told (what, share done), or None: a bar on a terminal."
    )
    seed: int = setting(0, *SEED)

    coef_: Array = fitted("(features, classes): the head")
    intercept_: Array = fitted("(classes,)")
    dev_kl_: Array = fitted("the KL on dev by epoch; the first is the regression's")
    epoch_: int = fitted("the epoch kept; 0 is the regression", saved=False)
    n_threads_: int = fitted("the thread count at which the seed replays this fit", saved=False)

    def _inputs(self, X: Any) -> list[str]:
        return as_texts(X)

    def _fit(self, X: list[str], targets: Array, dev: Dev | None) -> None:
        require("torch", "text")
        import torch

        from dissensus.text.learners.torch_tools import threads

        if dev is None:
            (X, targets), dev = own_dev(X, targets, self.seed)
        with threads(self.n_threads) as self.n_threads_, torch.random.fork_rng():
            torch.manual_seed(self.seed)  # networks of others draw from torch's global randomness
            self._train(X, targets, dev)

    def _train(self, X: list[str], targets: Array, dev: Dev) -> None:
        import torch

        from dissensus.text.learners.torch_tools import kl_loss, pick_device, to_numpy

        self.encoder_ = load_encoder(self.model, str(pick_device(self.device)))
        # the head starts as the softmax regression on the frozen embeddings
        vectors = [embed(texts, self.model, progress=self.progress) for texts in (X, dev[0])]
        line = SoftmaxRegression(seed=self.seed).fit(vectors[0], targets, dev=(vectors[1], dev[1]))
        head = self._head(line.coef_, line.intercept_)
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
                for rows in batches(lengths, self.batch_size, rng) if epoch else ():
                    loss = kl_loss(self._logits(head, [X[i] for i in rows]), targets[rows])
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
        tokens = self.encoder_.tokenizer(
            texts, padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt"
        )
        on_device = {name: values.to(self.encoder_.device) for name, values in tokens.items()}
        return head(self.encoder_(on_device)["sentence_embedding"])

    def _predict(self, X: list[str]) -> Array:
        from dissensus.text.learners.torch_tools import threads

        with threads(self.n_threads):
            return self._forward(self._head(self.coef_, self.intercept_), X)

    def _forward(self, head: Any, X: list[str]) -> Array:
        """Predictions, texts of like length together."""
        import torch

        self.encoder_.eval()
        order = np.argsort([len(text) for text in X], kind="stable")
        chances = np.empty((len(X), head.out_features))
        with torch.inference_mode():
            for start in range(0, len(X), PREDICT_BATCH):
                rows = order[start : start + PREDICT_BATCH]
                logits = self._logits(head, [X[i] for i in rows])
                chances[rows] = logits.double().softmax(dim=1).cpu().numpy()
        return chances

    # ---- keeping it -----------------------------------------------------------------------------------

    def _state(self) -> tuple[Header, Arrays]:
        from dissensus.text.learners.encoder import taken_apart

        facts, arrays = super()._state()
        encoder, weights = taken_apart(self.encoder_)
        facts |= {"epoch": self.epoch_, "n_threads": self.n_threads_, "encoder": encoder}
        return facts, arrays | weights

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        require("torch", "text")
        require("transformers", "text")
        from dissensus.text.learners.encoder import put_together
        from dissensus.text.learners.torch_tools import pick_device

        super()._restore(facts, arrays)
        check_head(self.coef_, self.intercept_, self.n_classes_)
        self.epoch_, self.n_threads_ = facts["epoch"], facts["n_threads"]
        self.encoder_ = put_together(facts["encoder"], arrays, pick_device(self.device))
