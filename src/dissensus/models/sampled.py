"""What draws of a posterior say of the answers: intervals, and whether chains agree."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dissensus.models.results import Intervals
from dissensus.numerics import Array
from dissensus.params import check_fitted, declare, fitted

MIN_VARIANCE = 1e-12
ANSWERS = "item shares"  # the name of the answers in :meth:`SampledMixin.convergence`
MAX_RHAT = 1.1  # split-R̂ up to which chains are said to agree
MOST_ITEMS = 0.9  # share of the items on which the chains must agree


@declare
class SampledMixin:
    """Methods of a model whose answers are means over draws of several chains."""

    intervals_are = "sampled"
    quantities_: ClassVar[tuple[str, ...]]  # quantities that the chains are compared by
    _check_fitted = check_fitted

    label_distributions_: Array = fitted("(M, P): the population's answers, in the mean", saved=False)
    trace_: Array = fitted("the first of ``quantities_`` in every draw, chain after chain", saved=False)
    stopped_: str = fitted("``agreement of chains`` or ``number of sweeps``", saved=False)
    share_draws_: NDArray[np.float32] = fitted("(D, M, P): the population's answers, chain after chain")
    trace_draws_: Array = fitted("(chains, draws, quantities): each of ``quantities_`` in every draw")
    rhat_: Array = fitted("split-R̂ of each of ``quantities_``")
    share_rhat_: Array = fitted("(items sampled,): the largest split-R̂ of a class's share, of each item")
    effective_draws_: Array = fitted("number of independent draws that each of ``quantities_`` is worth")

    def intervals(self, interval: float = 0.9, items: slice = slice(None)) -> Intervals:
        """Intervals of each class's share by the draws, and the probability of the label.

        Parameters
        ----------
        interval
            Size of the credible interval, 0.9 for 90 %.
        items
            Which items, as a slice.
        """
        self._check_fitted()
        drawn, mean = self.share_draws_[:, items], self.label_distributions_[items]
        low, high = np.quantile(drawn, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
        sure = (drawn.argmax(axis=2) == mean.argmax(axis=1)).mean(axis=0)
        # a Dirichlet worth n labels with this mean has Σ_p var = (1 − Σ_p mean²) / (n + 1)
        variance = drawn.var(axis=0, dtype=np.float64).sum(axis=1)
        worth = np.maximum((1 - (mean**2).sum(axis=1)) / np.maximum(variance, MIN_VARIANCE) - 1, 0.0)
        return Intervals(np.minimum(low, mean), np.maximum(high, mean), sure, worth)

    def convergence(self) -> dict[str, float]:
        """Split-R̂, first of the answers: up to 1.1 the chains agree.

        ``"item shares"`` is what nine in ten items do not exceed with any class's share (``share_rhat_``).
        The others are those of ``quantities_``, about how the answers come about.
        """
        self._check_fitted()
        answers = {ANSWERS: round(rhat_of_most(self.share_rhat_), 3)}
        return answers | dict(zip(self.quantities_, np.round(self.rhat_, 3).tolist(), strict=True))

    @property
    def settled_items_(self) -> float:
        """Share of the sampled items on all of whose class shares the chains agree (split-R̂ up to 1.1)."""
        self._check_fitted()
        return float((self.share_rhat_ <= MAX_RHAT).mean())

    def _judge_chains(self, traces: Array) -> None:
        """Keep (chains, draws, quantities), and whether the chains agree on these and on ``share_draws_``."""
        self.trace_draws_ = traces
        by_quantity = traces.transpose(2, 0, 1)
        self.rhat_ = np.array([split_rhats(values[:, :, None])[0] for values in by_quantity])
        self.effective_draws_ = np.array([effective_size(values) for values in by_quantity])
        by_chain = self.share_draws_.reshape(len(traces), -1, *self.share_draws_.shape[1:])
        self.share_rhat_ = split_rhats(by_chain).max(axis=1)
        self.trace_ = by_quantity[0].ravel()
        agreed = rhat_of_most(self.share_rhat_) <= MAX_RHAT
        self.stopped_ = "agreement of chains" if agreed else "number of sweeps"


def spaced(index: int, n: int, size: int) -> int | None:
    """Where element ``index`` of ``n`` goes when ``size`` of them, evenly spaced, are kept; None: nowhere."""
    place = index * size // n
    return place if index == -(-place * n // size) else None


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


def rhat_of_most(rhats: Array) -> float:
    """Split-R̂ that nine in ten items do not exceed."""
    return float(np.quantile(rhats, MOST_ITEMS, method="lower")) if len(rhats) else 1.0


def effective_size(chains: Array) -> float:
    """Number of independent draws that (chains, draws) are worth, by Geyer's initial monotone sequence."""
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
