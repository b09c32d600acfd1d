"""What a model that draws from its posterior can say of its answers: intervals, and whether chains agree."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dissensus.models.base import LEAST_SHARE, SETTLED, Intervals, Model, contradicted
from dissensus.numerics import Array
from dissensus.params import fitted

TINY = 1e-12
ANSWERS = "item shares"  # the name under which :meth:`Sampled.convergence` speaks of the answers
MOST = 0.9  # of the items: on so many the chains must agree


class Sampled(Model):
    """A model whose answers are means over draws; what is drawn, and how, is the affair of its subclass."""

    intervals_are = "sampled"
    quantities_: ClassVar[tuple[str, ...]]  # what the chains are compared by

    share_draws_: NDArray[np.float32] = fitted("(D, M, P): the population's answers, chain after chain")
    trace_draws_: Array = fitted("(chains, draws, quantities): each of ``quantities_`` in every draw")
    rhat_: Array = fitted("split-R̂ of each of ``quantities_``")
    share_rhat_: Array = fitted("(items sampled,): the largest split-R̂ of a class's share, of each item")
    effective_draws_: Array = fitted("how many independent draws of each there are")

    def intervals(self, interval: float = 0.9, items: slice = slice(None)) -> Intervals:
        """What the draws say of each item: the interval of each class's share, and how sure the label is."""
        self._check_fitted()
        drawn, mean = self.share_draws_[:, items], self.label_distributions_[items]
        low, high = np.quantile(drawn, ends(interval), axis=0)
        sure = (drawn.argmax(axis=2) == mean.argmax(axis=1)).mean(axis=0)
        # a Dirichlet worth n labels with this mean has Σ_p var = (1 − Σ_p mean²) / (n + 1)
        variance = drawn.var(axis=0, dtype=np.float64).sum(axis=1)
        worth = np.maximum((1 - (mean**2).sum(axis=1)) / np.maximum(variance, TINY) - 1, 0.0)
        return Intervals(np.minimum(low, mean), np.maximum(high, mean), sure, worth)

    def convergence(self) -> dict[str, float]:
        """Split-R̂, first of the answers: up to 1.1 the chains agree.

        ``"item shares"`` is what nine in ten items do not exceed with any class's share (``share_rhat_``).
        The others are those of ``quantities_``, about how the answers come about.
        """
        self._check_fitted()
        answers = {ANSWERS: round(most_items(self.share_rhat_), 3)}
        return answers | dict(zip(self.quantities_, np.round(self.rhat_, 3).tolist(), strict=True))

    @property
    def settled_items_(self) -> float:
        """Share of the sampled items on all of whose class shares the chains agree (split-R̂ up to 1.1)."""
        self._check_fitted()
        return float((self.share_rhat_ <= SETTLED).mean())

    def _judge_chains(self, traces: Array) -> None:
        """Keep (chains, draws, quantities), and whether the chains agree on these and on ``share_draws_``."""
        self.trace_draws_ = traces
        by_quantity = traces.transpose(2, 0, 1)
        self.rhat_ = np.array([split_rhat(values) for values in by_quantity])
        self.effective_draws_ = np.array([effective_size(values) for values in by_quantity])
        by_chain = self.share_draws_.reshape(len(traces), -1, *self.share_draws_.shape[1:])
        self.share_rhat_ = split_rhats(by_chain).max(axis=1)
        self.trace_ = by_quantity[0].ravel()
        agreed = most_items(self.share_rhat_) <= SETTLED
        self.stopped_ = "agreement of chains" if agreed else "number of sweeps"

    def _heed_unanimous(self, counts: NDArray[np.int64]) -> None:
        """What all of five or more annotators say of an item gets 0.6 at least.

        Where the model says less, it holds that their labels tell nothing. It may be wrong about that, so its
        answer Y_m and its draws are moved to (1 − t) Y_m + t e_p, with the least t that is enough.
        """
        ignored = contradicted(self.label_distributions_, counts)
        said = counts[ignored].argmax(axis=1)
        share = self.label_distributions_[ignored, said]
        t = ((LEAST_SHARE + 1e-9 - share) / np.maximum(1 - share, TINY))[:, None]
        common = np.eye(counts.shape[1])[said]
        self.label_distributions_[ignored] = (1 - t) * self.label_distributions_[ignored] + t * common
        self.share_draws_[:, ignored] = ((1 - t) * self.share_draws_[:, ignored] + t * common).astype(
            np.float32
        )


def ends(interval: float) -> list[float]:
    """The quantiles between which an interval of this size lies."""
    return [(1 - interval) / 2, (1 + interval) / 2]


# ---- do the chains agree? ------------------------------------------------------------------------------


def split_rhats(chains: NDArray[np.floating[Any]]) -> Array:
    """Split-R̂ of each quantity of (chains, draws, …): √(pooled variance / variance within half chains).

    1 where the chains agree. Fewer than four draws cannot show that they do: infinite.
    """
    half = chains.shape[1] // 2
    if half < 2:
        return np.full(chains.shape[2:], np.inf)
    parts = [chains[:, :half], chains[:, -half:]]
    within = np.mean([part.var(axis=1, ddof=1, dtype=np.float64).mean(axis=0) for part in parts], axis=0)
    means = np.concatenate([part.mean(axis=1, dtype=np.float64) for part in parts])
    ratio = means.var(axis=0, ddof=1) / np.where(within > 0, within, np.inf)
    return np.where(within > 0, np.sqrt((half - 1) / half + ratio), 1.0)


def split_rhat(chains: Array) -> float:
    """Split-R̂ of one quantity, (chains, draws)."""
    return float(split_rhats(chains[:, :, None])[0])


def most_items(rhats: Array) -> float:
    """What nine in ten items do not exceed."""
    return float(np.quantile(rhats, MOST, method="lower")) if len(rhats) else 1.0


def effective_size(chains: Array) -> float:
    """How many independent draws the (chains, draws) are worth: Geyer's initial monotone sequence."""
    C, S = chains.shape
    centred = chains - chains.mean(axis=1, keepdims=True)
    products = [(centred[:, : S - t] * centred[:, t:]).sum(axis=1).mean() / S for t in range(S)]
    within = products[0] * S / (S - 1)
    pooled = within * (S - 1) / S + (chains.mean(axis=1).var(ddof=1) if C > 1 else 0.0)
    if pooled <= 0:
        return float(C * S)
    rho = 1 - (within - np.array(products) * S / (S - 1)) / pooled
    pairs = rho[: S // 2 * 2].reshape(-1, 2).sum(axis=1)
    stop = int(np.argmax(pairs < 0)) if (pairs < 0).any() else len(pairs)
    total = np.minimum.accumulate(pairs[:stop]).sum() if stop else 0.5
    return float(min(C * S / max(2 * total - 1, 1e-12), C * S))
