"""Posterior draws from several chains: intervals of the answers, and convergence diagnostics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dissensus.engine import Checkpoint, Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.base import VOCABULARIES, Model
from dissensus.models.results import Intervals
from dissensus.numerics import Array, row_shares
from dissensus.params import fitted
from dissensus.tables.arrays import Arrays, Header

MIN_VARIANCE = 1e-12
SHARES_KEY = "item shares"  # key of the answers in :meth:`SampledModel.convergence`
UPDATE_FRACTION, MIN_UPDATE_SWEEPS = 6, 20  # an update makes a sixth of a fit's sweeps, and at least 20
SWEEPS_PER_DRAW = 3  # thinning: one draw is stored every three sweeps
MAX_SHARE_NUMBERS = 8_000_000  # array elements of ``share_draws_``, over all chains
SHARE_DRAWS = 160  # draws of the answers that are stored, over the chains of a round
EXTENDED_LABELS = 200_000  # labels per batch of items that were not sampled
RHAT_QUANTILE = 0.9  # the split-R̂ reported is that of most items
#: Chains are added until another run would move an item's shares by at most this on average, in rounds of
#: ``n_chains`` chains. With a time limit, users want to have what the time allows.
MAX_RUN_DIFFERENCE, MAX_ROUNDS = 0.025, 3
MAX_TIMED_DIFFERENCE, MAX_TIMED_ROUNDS = 0.005, 10


class SampledModel(Model):
    """Base class of models whose answers are means over draws from several chains."""

    intervals_are = "sampled"
    _draw_arrays: ClassVar[tuple[str, ...]] = ("share_draws_", "trace_draws_", "learned_rows_")
    # Classes of a chain and of its state, and the name of its checkpoints.
    _chains_are: ClassVar[tuple[type[Any], type[Any], str]]
    quantities_: ClassVar[tuple[str, ...]]  # scalar quantities whose chains are compared
    # Labels from which chains run on threads: between the short steps of smaller fits, threads would wait.
    _threaded_labels: ClassVar[int] = 0

    label_distributions_: Array = fitted("(M, P): posterior mean of the population's answers", saved=False)
    trace_: Array = fitted("the first of ``quantities_`` in each draw, chain after chain", saved=False)
    stopped_: str = fitted("``tolerance``, ``number of chains`` or ``time limit``", saved=False)
    run_difference_: Array = fitted(
        "mean total variation between the answers of two runs with different seeds, as a 0-d array"
    )
    share_draws_: NDArray[np.float32] = fitted("(D, M, P): the population's answers, chain after chain")
    trace_draws_: Array = fitted("(chains, draws, quantities): ``quantities_`` in each draw")
    rhat_: Array = fitted("split-R̂ of each of ``quantities_``")
    share_rhat_: Array = fitted("(items sampled,): largest split-R̂ over the class shares of each item")
    item_difference_: NDArray[np.float32] = fitted(
        "(M,): total variation that two runs are expected to differ by, for each item; NaN if not sampled"
    )
    run_variance_: Array = fitted("(items sampled, P): variance of the difference of two runs", saved=False)
    sampled_: NDArray[np.int64] = fitted("the items that were sampled", saved=False)
    effective_draws_: Array = fitted("effective sample size of each of ``quantities_``")

    def intervals(self, interval: float = 0.9, items: slice = slice(None)) -> Intervals:
        """Return credible intervals of the class shares, and the probability of the label.

        Parameters
        ----------
        interval
            Probability content of the intervals, 0.9 for 90 %.
        items
            Slice of the items.
        """
        self._check_fitted()
        drawn, mean = self.share_draws_[:, items], self.label_distributions_[items]
        low, high = np.quantile(drawn, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
        p_top = (drawn.argmax(axis=2) == mean.argmax(axis=1)).mean(axis=0)
        # a Dirichlet of size n with this mean has Σ_p var = (1 − Σ_p mean²) / (n + 1)
        variance = drawn.var(axis=0, dtype=np.float64).sum(axis=1)
        n_effective = np.maximum((1 - (mean**2).sum(axis=1)) / np.maximum(variance, MIN_VARIANCE) - 1, 0.0)
        return Intervals(np.minimum(low, mean), np.maximum(high, mean), p_top, n_effective)

    def convergence(self) -> dict[str, float]:
        """Return split-R̂ by quantity; values up to 1.1 mean that the chains agree.

        ``"item shares"`` is the 0.9 quantile over items of ``share_rhat_``. The other entries are the model's
        ``quantities_``.
        """
        self._check_fitted()
        rhats = self.share_rhat_ if len(self.share_rhat_) else np.ones(1)
        answers = {SHARES_KEY: round(float(np.quantile(rhats, RHAT_QUANTILE, method="lower")), 3)}
        return answers | dict(zip(self.quantities_, np.round(self.rhat_, 3).tolist(), strict=True))

    def _sample_chains(
        self, data: Any, n_chains: int, n_sweeps: int, engine: Engine, last: Sequence[Any]
    ) -> list[Any]:
        """Sample chains by number, and as many again until another run would hardly differ.

        Short chains from different starts end in different modes, and the answer is their average. More
        chains make it more precise; longer ones hardly do. Chains that resume ``last`` states are not added
        to.
        """
        sample = partial(self._sample_chain, data, n_chains, n_sweeps, engine, last)
        chains: list[Any] = []
        size = len(last) or n_chains
        on_threads = vars(self)["n_jobs"] != -1 or engine.n_labels >= self._threaded_labels
        while True:
            numbers = range(len(chains), len(chains) + size)
            chains += engine.map(sample, numbers) if on_threads else map(sample, numbers)
            self.run_variance_ = run_variance([row_shares(chain.answers) for chain in chains])
            self.run_difference_ = np.asarray(item_differences(self.run_variance_).mean())
            n_rounds, is_timed = len(chains) // size, engine.seconds_left() < np.inf
            if self.run_difference_ <= (MAX_TIMED_DIFFERENCE if is_timed else MAX_RUN_DIFFERENCE):
                self.stopped_ = "tolerance"
            elif last or n_chains == 1 or n_rounds == (MAX_TIMED_ROUNDS if is_timed else MAX_ROUNDS):
                self.stopped_ = "number of chains"
            elif engine.seconds_left(1 / n_rounds) < 0:
                self.stopped_ = "time limit"
            else:
                continue
            return chains

    def _sample_chain(
        self, data: Any, n_chains: int, n_sweeps: int, engine: Engine, last: Sequence[Any], number: int
    ) -> Any:
        """Sample one chain from its start, or from its ``last`` state.

        Every sweep has its own random stream, so that a chain can be resumed.
        """
        n_sweeps = max(n_sweeps // UPDATE_FRACTION, MIN_UPDATE_SWEEPS) if last else n_sweeps
        n_burn = n_sweeps // 4 if last else 2 * n_sweeps // 5
        (kind, _, title), n_draws = self._chains_are, -(-(n_sweeps - n_burn) // SWEEPS_PER_DRAW)
        name, state = f"{title}-{number}", last[number] if last else None
        checkpoint = engine.checkpoints.latest(name, kind) if engine.checkpoints else None
        checkpoint = checkpoint or Checkpoint(self._start_chain(data, state, n_draws, number))
        chain = checkpoint.state
        for i in range(checkpoint.done, n_sweeps):
            rng = np.random.default_rng([vars(self)["seed"], number, i])
            self._sweep(chain, data, i, n_burn, rng)
            engine.step_done(i + 1, n_sweeps, number, n_chains)
            if engine.checkpoints:
                stopped = "number of sweeps" if i + 1 == n_sweeps else ""
                engine.checkpoints.write(name, Checkpoint(chain, i + 1, stopped=stopped))
        return chain

    def _start_chain(self, data: Any, state: Any, n_draws: int, number: int) -> Any:
        raise NotImplementedError

    def _sweep(self, chain: Any, data: Any, i: int, n_burn: int, rng: Generator) -> None:
        raise NotImplementedError

    def _store_chains(self, chains: Sequence[Any], n_items: int) -> None:
        """Store the draws and last states of the chains, with diagnostics of them and of the items."""
        self.share_draws_ = np.concatenate([chain.shares for chain in chains])
        self.last_states_ = tuple([chain.state for chain in chains])
        self.item_difference_ = differences_of_all(self.run_variance_, self.sampled_, n_items)
        self.trace_draws_ = np.stack([chain.trace for chain in chains])
        by_quantity = self.trace_draws_.transpose(2, 0, 1)
        self.rhat_ = np.array([split_rhats(values[:, :, None])[0] for values in by_quantity])
        self.effective_draws_ = np.array([effective_size(values) for values in by_quantity])
        by_chain = self.share_draws_.reshape(len(chains), -1, *self.share_draws_.shape[1:])
        self.share_rhat_ = split_rhats(by_chain).max(axis=1)
        self.trace_ = by_quantity[0].ravel()

    def _state(self) -> tuple[Header, Arrays]:
        facts, arrays = super()._state()
        for number, state in enumerate(self.last_states_):
            arrays |= state.to_arrays(f"last_states_.{number}")
        return facts | {"n_states": len(self.last_states_)}, arrays

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        super()._restore(facts, arrays)
        (_, kind, _), names = self._chains_are, map("last_states_.{}".format, range(facts["n_states"]))
        self.last_states_ = tuple([kind.from_arrays(arrays, name) for name in names])
        rows = vars(self)["learned_rows_"]
        if rows.ndim != 2 or len(rows) != 3:
            raise ValueError(f"learned_rows_ of shape {rows.shape}")
        for codes, name in zip(rows, VOCABULARIES, strict=True):
            check_codes("learned_rows_", codes, len(getattr(self, f"{name}_vocabulary_")))


def sampled_items(labels: Annotations, max_sampled: int, seed: int) -> NDArray[np.int64]:
    """Return a random subset of items with about ``max_sampled`` labels; all items if they have no more."""
    if labels.n_labels <= max_sampled:
        return np.arange(labels.n_items)
    order = np.random.default_rng([seed, 1 << 24]).permutation(labels.n_items)
    within = np.cumsum(np.diff(labels.item_pointers)[order]) <= max_sampled
    return np.sort(order[: max(int(within.sum()), 1)])


def item_batches(labels: Annotations, items: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Split items into batches of about ``EXTENDED_LABELS`` labels."""
    stops = np.cumsum(np.diff(labels.item_pointers)[items])
    last = stops[-1] if len(stops) else 0
    return np.split(items, np.searchsorted(stops, np.arange(EXTENDED_LABELS, last, EXTENDED_LABELS)))


def evenly_spaced(size: int, n: int) -> NDArray[np.intp]:
    """Return ``size`` of the numbers from 0 to n − 1, evenly spaced."""
    return np.linspace(0, n - 1, size).astype(int)


def stored_row(index: int, n: int, size: int) -> int | None:
    """Return the row of element ``index`` of ``n`` when ``size`` evenly spaced ones are stored, or None."""
    row = index * size // n
    return row if index == -(-row * n // size) else None


# ---- what is read from files: compiled loops use it as indices -------------------------------------------


def check_shapes(record: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise ValueError unless the arrays of a record have these shapes."""
    for name, shape in shapes.items():
        if np.shape(getattr(record, name)) != shape:
            raise ValueError(f"{name} of shape {np.shape(getattr(record, name))}, not {shape}")


def check_finite(record: Any, *names: str) -> None:
    """Raise ValueError if an array of a record has a number that is infinite or NaN."""
    for name in names:
        if not np.isfinite(getattr(record, name)).all():
            raise ValueError(f"{name} has numbers that are not finite")


def check_codes(name: str, codes: NDArray[Any], n: int) -> None:
    """Raise ValueError unless all codes are integers from 0 to n − 1."""
    if codes.dtype.kind != "i" or (codes.size and not 0 <= codes.min() <= codes.max() < n):
        raise ValueError(f"{name} has other codes than 0 to {n - 1}")


# ---- convergence diagnostics ---------------------------------------------------------------------------


def run_variance(answers: Sequence[Array]) -> Array:
    """Return (M, P) variance of the difference of two runs, from the answers of the chains of one.

    A mean over C chains has variance σ²/C, and the difference of two such means 2 σ²/C. NaN for one chain.
    """
    C = len(answers)
    if C == 1:
        return np.full_like(answers[0], np.nan)
    mean = np.mean(answers, axis=0)
    squares = sum((answer - mean) ** 2 for answer in answers)
    return np.asarray(2 * squares / (C * (C - 1)))


def item_differences(variance: Array) -> Array:
    """Return (M,) expected total variation ½ Σ_p E|D_p| of two runs: E|D| = √(2/π) v for D ~ N(0, v²)."""
    return np.asarray(np.sqrt(2 / np.pi * variance).sum(axis=1) / 2)


def differences_of_all(variance: Array, sampled: NDArray[np.int64], n_items: int) -> NDArray[np.float32]:
    """Return (n_items,) expected differences of two runs; NaN for items that were not sampled."""
    differences = np.full(n_items, np.nan, np.float32)
    differences[sampled] = item_differences(variance)
    return differences


def second_run(difference: float) -> str:
    """Say how far the answers of another run would be from those of this one."""
    size = "less than 0.1" if difference < 1e-3 else f"{100 * difference:.1f}"
    return f"A second run, with another seed, would move an item's shares by {size} % on average."


def split_rhats(chains: NDArray[np.floating[Any]]) -> Array:
    """Return split-R̂ of (chains, draws, …): √(pooled variance / variance within half chains).

    It is near 1 where the chains agree, and infinite for fewer than four draws.
    """
    half = chains.shape[1] // 2
    if half < 2:
        return np.full(chains.shape[2:], np.inf)
    parts = [chains[:, :half], chains[:, -half:]]
    within = np.mean([part.var(axis=1, ddof=1, dtype=np.float64).mean(axis=0) for part in parts], axis=0)
    means = np.concatenate([part.mean(axis=1, dtype=np.float64) for part in parts])
    ratio = means.var(axis=0, ddof=1) / np.where(within > 0, within, np.inf)
    return np.where(within > 0, np.sqrt((half - 1) / half + ratio), 1.0)


def effective_size(chains: Array) -> float:
    """Return the effective sample size of (chains, draws), by Geyer's initial monotone sequence."""
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
