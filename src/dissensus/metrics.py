"""Metrics of predicted label distributions against true ones: arrays in, a float out.

Every metric takes the reference first and the prediction second. Both are (items, classes) arrays whose
rows are distributions; where hard labels are compared, class codes or counts may stand in their place.
A metric that is a mean over items also has a function for the values of the items: ``kl`` is the mean of
``kl_rows``, and so on. :mod:`dissensus.evaluate.bootstrap` puts bootstrap intervals around any of them.

Logarithms are natural. The KL of Weerasooriya et al. is KL(gold ‖ predicted) with 1e-5 added to both sides.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, ParamSpec

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, rel_entr, xlog1py, xlogy

from dissensus.errors import DataError, bad_parameter
from dissensus.numerics import Array, row_shares

Ties = Literal["share", "first", "any"]
Settings = ParamSpec("Settings")

_SUM_TOLERANCE = 1e-3  # rows written to a file with four digits still count as distributions
_TIE_TOLERANCE = 1e-9  # 0.1 + 0.2 ties with 0.3
MAX_TEMPORARY_NUMBERS = 4_000_000  # size of a temporary array

_ROWS_OF: dict[Callable[..., float], Callable[..., Array]] = {}


def _mean_of(rows: Callable[Settings, Array]) -> Callable[Settings, float]:
    """Return the metric whose value is the mean of ``rows`` over items."""

    @functools.wraps(rows)
    def metric(*args: Settings.args, **kwargs: Settings.kwargs) -> float:
        return float(rows(*args, **kwargs).mean())

    metric.__name__ = metric.__qualname__ = rows.__name__.removesuffix("_rows")
    metric.__doc__ = f"Mean over items of ``{rows.__name__}``. {rows.__doc__}"
    _ROWS_OF[metric] = rows
    return metric


def rows_of(metric: Callable[..., float]) -> Callable[..., Array] | None:
    """Return the function of one number per item whose mean is ``metric``, or None."""
    return _ROWS_OF.get(metric)


def _numbers(values: ArrayLike, name: str) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{name}: numbers are needed, rows of equal length") from None


def check_distributions(values: ArrayLike, name: str) -> Array:
    """Return the values as an (items, classes) array; a DataError names the first bad row."""
    array = _numbers(values, name)
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(f"{name}: an (items, classes) array is needed, got shape {array.shape}")
    # A NaN makes the sum NaN, and no comparison with NaN holds.
    sums = array.sum(axis=1)
    good = (np.abs(sums - 1) <= _SUM_TOLERANCE) & (array.min(axis=1) >= 0)
    if not good.all():
        row = int(np.argmin(good))
        raise DataError(
            f"{name}: row {row} is not a distribution, {array[row]}; divide counts by their row sums"
        )
    return array


def _pair(gold: ArrayLike, predicted: ArrayLike) -> tuple[Array, Array]:
    """Check both sides and that their shapes are equal."""
    g, p = check_distributions(gold, "gold"), check_distributions(predicted, "predicted")
    if g.shape != p.shape:
        raise DataError(
            f"gold has shape {g.shape} and predicted {p.shape}; give both the same items and classes"
        )
    return g, p


def _smoothed(gold: ArrayLike, predicted: ArrayLike, smoothing: float) -> tuple[Array, Array]:
    if not smoothing >= 0:
        raise bad_parameter("a divergence", "smoothing", "a float >= 0", smoothing)
    g, p = _pair(gold, predicted)
    return g + smoothing, p + smoothing


def kl_rows(
    gold: ArrayLike, predicted: ArrayLike, *, smoothing: float = 1e-5, renormalise: bool = False
) -> Array:
    """KL(gold ‖ predicted) of each item, in nats, with ``smoothing`` added to every entry of both sides.

    As the paper's authors do, the smoothed rows are used as they are. Both then sum to 1 + P·smoothing, so
    the value is (1 + P·smoothing) times that of the renormalised rows (``renormalise=True``): one part in
    20,000 for five classes. Without smoothing a class that gold has and the prediction excludes costs inf.
    """
    g, p = _smoothed(gold, predicted, smoothing)
    # KL_m = Σ_c g_mc log(g_mc / p_mc)
    divergence: Array = rel_entr(g, p).sum(axis=1)
    return divergence / (1 + smoothing * g.shape[1]) if renormalise else divergence


def cross_entropy_rows(gold: ArrayLike, predicted: ArrayLike, *, smoothing: float = 1e-5) -> Array:
    """−Σ_c g_c log p_c of each item, smoothed as in :func:`kl_rows`: KL plus the entropy of gold."""
    g, p = _smoothed(gold, predicted, smoothing)
    return np.asarray(-xlogy(g, p).sum(axis=1))


def jensen_shannon_rows(gold: ArrayLike, predicted: ArrayLike, *, base: float | None = None) -> Array:
    """Jensen–Shannon divergence of each item, at most log 2 nats; ``base=2`` gives bits, at most one."""
    if base is not None and not base > 1:
        raise bad_parameter("jensen_shannon", "base", "None or a float > 1", base)
    g, p = _pair(gold, predicted)
    middle = (g + p) / 2
    # JS_m = ½ KL(g_m ‖ ½(g_m + p_m)) + ½ KL(p_m ‖ ½(g_m + p_m))
    divergence: Array = (rel_entr(g, middle) + rel_entr(p, middle)).sum(axis=1) / 2
    return divergence if base is None else divergence / np.log(base)


def manhattan_rows(gold: ArrayLike, predicted: ArrayLike) -> Array:
    """Σ_c |g_c − p_c| of each item, from 0 to 2."""
    g, p = _pair(gold, predicted)
    return np.asarray(np.abs(g - p).sum(axis=1))


def total_variation_rows(gold: ArrayLike, predicted: ArrayLike) -> Array:
    """Half the Manhattan distance of each item: the largest difference on any set of classes."""
    return manhattan_rows(gold, predicted) / 2


def wasserstein_rows(gold: ArrayLike, predicted: ArrayLike, *, positions: ArrayLike | None = None) -> Array:
    """Earth mover's distance of each item when the classes, in their order, lie on a line.

    They lie one apart, unless ``positions`` gives their (increasing) places.
    """
    g, p = _pair(gold, predicted)
    gaps = np.ones(g.shape[1] - 1) if positions is None else np.diff(np.asarray(positions, dtype=np.float64))
    if gaps.shape != (g.shape[1] - 1,) or not (gaps > 0).all():
        raise bad_parameter("wasserstein", "positions", f"{g.shape[1]} increasing numbers", positions)
    # W_m = Σ_c |G_mc − P_mc| (x_{c+1} − x_c), capitals the cumulative sums
    return np.asarray(np.abs((g - p).cumsum(axis=1)[:, :-1]) @ gaps)


def ranked_probability_score_rows(gold: ArrayLike, predicted: ArrayLike) -> Array:
    """Σ_{k<P} (G_k − F_k)², G and F the shares up to class k: for classes that have an order.

    Epstein (1969). Of a single label, whose share is 1, it is the score of a forecast.
    """
    p, q = _pair(gold, predicted)
    return np.asarray((np.cumsum(p - q, axis=1)[:, :-1] ** 2).sum(axis=1))


def entropy_rows(distributions: ArrayLike) -> Array:
    """Entropy of each row, in nats."""
    p = check_distributions(distributions, "distributions")
    return np.asarray(0.0 - xlogy(p, p).sum(axis=1))


def entropy_correlation(gold: ArrayLike, predicted: ArrayLike) -> float:
    """Pearson correlation over items of the two entropies: are the contested items known as such?

    NaN where one side has the same entropy on every item.
    """
    g, p = _pair(gold, predicted)
    both = np.stack([entropy_rows(g), entropy_rows(p)])
    centred = both - both.mean(axis=1, keepdims=True)
    lengths = np.sqrt((centred**2).sum(axis=1))
    if (lengths <= 1e-12 * g.shape[0]).any():
        return float("nan")
    return float(centred[0] @ centred[1] / lengths.prod())


def _check_codes(values: ArrayLike, name: str) -> NDArray[np.intp]:
    codes = np.asarray(values)
    if not np.issubdtype(codes.dtype, np.integer) or codes.ndim != 1 or codes.size == 0 or codes.min() < 0:
        raise DataError(f"{name}: class codes must be integers from 0, one per item")
    return codes.astype(np.intp)


def _scores(values: ArrayLike, name: str) -> tuple[NDArray[Any], int]:
    """Codes or an (items, classes) array of non-negative scores, checked, and how many classes it shows."""
    if np.ndim(values) == 1:
        codes = _check_codes(values, name)
        return codes, int(codes.max()) + 1
    array = _numbers(values, name)
    if array.ndim != 2 or 0 in array.shape or not ((array >= 0).all() and (array.max(axis=1) > 0).all()):
        raise DataError(
            f"{name}: class codes are needed, or rows of counts or probabilities with a positive sum"
        )
    return array, array.shape[1]


def _top_classes(scores: NDArray[Any], n_classes: int, ties: Ties) -> Array:
    """(items, classes) weights of the most likely classes of each item, by the rule for ties."""
    if scores.ndim == 1:
        tied = np.equal.outer(scores, np.arange(n_classes))
    else:
        tied = scores >= scores.max(axis=1, keepdims=True) * (1 - _TIE_TOLERANCE)
    if ties == "first":
        tied &= tied.cumsum(axis=1) == 1
    return tied.astype(np.float64) if ties == "any" else row_shares(tied)


def _hard_pair(
    gold: ArrayLike, predicted: ArrayLike, ties: Ties, n_classes: int | None = None
) -> tuple[Array, Array]:
    """The top classes of both sides as (items, classes) weights; a tied prediction is an even draw."""
    if ties not in ("share", "first", "any"):
        raise bad_parameter("a metric on labels", "ties", "'share', 'first' or 'any'", ties)
    (g, seen), (p, predicted) = _scores(gold, "gold"), _scores(predicted, "predicted")
    widths = {array.shape[1] for array in (g, p) if array.ndim == 2}
    width = n_classes or max(seen, predicted)
    if len(g) != len(p) or widths - {width} or max(seen, predicted) > width:
        raise DataError(f"gold {g.shape} and predicted {p.shape} do not have the same items and classes")
    return _top_classes(g, width, ties), _top_classes(p, width, "share" if ties == "any" else ties)


def accuracy_rows(gold: ArrayLike, predicted: ArrayLike, *, ties: Ties = "share") -> Array:
    """Agreement of the most likely predicted class with the most likely gold class, item by item.

    Either side may be distributions, counts or class codes. Where t gold classes tie for the top, a
    prediction that is one of them scores 1/t with ``ties="share"`` (the expected score of an even draw among
    them), 1 with ``"any"``, and with ``"first"`` 1 if it is the first of them in class order, else 0.
    A prediction that ties is an even draw among its classes; with ``"first"``, the first of them.
    """
    g, p = _hard_pair(gold, predicted, ties)
    return np.asarray((g * p).sum(axis=1))


def onehot_accuracy_rows(
    gold: ArrayLike, predicted: ArrayLike, *, ties: Ties = "first", n_classes: int | None = None
) -> Array:
    """Share of equal elements between the one-hot vectors of gold and prediction, item by item.

    The paper's FMM and LDL-NM columns: of P elements a wrong answer misses only two, so it still scores
    (P − 2)/P. ``n_classes`` gives P where both sides are class codes.
    """
    g, p = _hard_pair(gold, predicted, ties, n_classes)
    # a_onehot = 1 − (1 − a)·2/P
    return np.asarray(1 - (1 - (g * p).sum(axis=1)) * 2 / g.shape[1])


def _f1_by_class(gold: ArrayLike, predicted: ArrayLike, ties: Ties) -> tuple[Array, Array, Array]:
    """F1 of each class, its share of gold, and its mass on both sides together."""
    if ties == "any":
        raise bad_parameter("an F1 metric", "ties", "'share' or 'first'", ties)
    g, p = _hard_pair(gold, predicted, ties)
    mass = g.sum(axis=0) + p.sum(axis=0)
    # F1_c = 2 Σ_m g_mc p_mc / (Σ_m g_mc + Σ_m p_mc)
    scores = 2 * (g * p).sum(axis=0) / np.maximum(mass, np.finfo(float).tiny)
    return scores, g.mean(axis=0), mass


def macro_f1(gold: ArrayLike, predicted: ArrayLike, *, ties: Ties = "share") -> float:
    """Mean F1 over the classes that occur on either side; ties as in :func:`accuracy_rows`."""
    scores, _, mass = _f1_by_class(gold, predicted, ties)
    return float(scores[mass > 0].mean())


def weighted_f1(gold: ArrayLike, predicted: ArrayLike, *, ties: Ties = "share") -> float:
    """F1 of each class weighted by its share of gold; ties as in :func:`accuracy_rows`."""
    scores, share, _ = _f1_by_class(gold, predicted, ties)
    return float(scores @ share)


def log_probability_rows(probabilities: ArrayLike, labels: ArrayLike) -> Array:
    """Log-probability of each held-out label, given one row of class probabilities per label.

    A label that was given probability zero scores −inf.
    """
    p = check_distributions(probabilities, "probabilities")
    codes = _check_codes(labels, "labels")
    if codes.shape != (len(p),) or codes.max() >= p.shape[1]:
        raise DataError(f"labels: {len(p)} codes below {p.shape[1]} are needed, one per row of probabilities")
    with np.errstate(divide="ignore"):
        return np.log(p[np.arange(len(p)), codes])


def log_loss_rows(gold: ArrayLike, predicted: ArrayLike, *, floor: float = 1e-4) -> Array:
    """−Σ_c g_c log max(p_c, ``floor``) of each item; the floor keeps the cost of a certain error finite."""
    g, p = _pair(gold, predicted)
    return np.asarray(-xlogy(g, np.maximum(p, floor)).sum(axis=1))


def brier_rows(gold: ArrayLike, predicted: ArrayLike) -> Array:
    """Σ_c (g_c − p_c)² of each item, from 0 to 2 (Brier 1950)."""
    g, p = _pair(gold, predicted)
    return np.asarray(((g - p) ** 2).sum(axis=1))


def calibration_error(gold: ArrayLike, predicted: ArrayLike, *, n_bins: int = 10) -> float:
    """Expected calibration error: |accuracy − mean top probability|, averaged over items by bins.

    Items are binned by their largest probability, in ``n_bins`` intervals of equal width that include their
    upper ends (Guo et al. 2017).
    """
    g, p = _pair(gold, predicted)
    top = p.max(axis=1)
    # Σ_b |Σ_{m in b} (right_m − top_m)| / M
    bins = np.clip(np.ceil(top * n_bins).astype(np.intp) - 1, 0, n_bins - 1)
    return float(np.abs(np.bincount(bins, accuracy_rows(g, p) - top)).sum() / len(top))


def sampling_floor_rows(distributions: ArrayLike, n_labels: ArrayLike, *, smoothing: float = 1e-5) -> Array:
    """Expected KL of the true distribution of each item against ``n_labels`` labels drawn from it.

    No prediction has a lower KL on average. The smoothed KL is a sum over classes, and the count of one class
    is binomial, so the expectation over all samples is exact and no sample need be drawn. About (P − 1)/2n.
    """
    p = check_distributions(distributions, "distributions")
    n = np.broadcast_to(np.asarray(n_labels), p.shape[:1])
    if not np.issubdtype(n.dtype, np.integer) or n.min() < 1:
        raise bad_parameter("sampling_floor", "n_labels", "an integer >= 1, or one per item", n_labels)
    floor = np.empty(len(p))
    for size in np.unique(n):
        items = np.flatnonzero(n == size)
        for block in np.array_split(items, items.size * p.shape[1] * (size + 1) // MAX_TEMPORARY_NUMBERS + 1):
            # E KL(k/n ‖ p), smoothed, over k ~ Multinomial(n, p)
            k, q = np.arange(size + 1), p[block][:, :, None]  # items, classes, count of the class
            # log Binomial(k; n, q)
            log_mass = gammaln(size + 1) - gammaln(k + 1) - gammaln(size - k + 1)
            log_mass = log_mass + xlogy(k, q) + xlog1py(size - k, -q)
            terms = np.exp(log_mass) * rel_entr(k / size + smoothing, q + smoothing)
            floor[block] = terms.sum(axis=(1, 2))
    return floor


def lewidi_cross_entropy_rows(gold: ArrayLike, predicted: ArrayLike) -> Array:
    """LeWiDi 2023's cross-entropy: predictions clipped to [1e-12, 1 − 1e-12], then 1e-9 added in the log."""
    g, p = _pair(gold, predicted)
    return np.asarray(-(g * np.log(np.clip(p, 1e-12, 1 - 1e-12) + 1e-9)).sum(axis=1))


def lewidi_f1(
    gold: ArrayLike, predicted: ArrayLike, *, average: Literal["weighted", "micro"] = "weighted"
) -> float:
    """LeWiDi 2023's F1, tied gold classes given to the first.

    The published scores are weighted F1: only it yields the majority baseline's. The starting kit's function
    says the same in its heading and computes micro F1, that is accuracy: ``average="micro"``.
    """
    if average not in ("weighted", "micro"):
        raise bad_parameter("lewidi_f1", "average", "'weighted' or 'micro'", average)
    return (weighted_f1 if average == "weighted" else accuracy)(gold, predicted, ties="first")


def lewidi_manhattan(gold: ArrayLike, predicted: ArrayLike) -> float:
    """LeWiDi 2025's average Manhattan distance: each item's rounded to five digits, and their mean again."""
    return round(float(np.round(manhattan_rows(gold, predicted), 5).mean()), 5)


def lewidi_wasserstein(gold: ArrayLike, predicted: ArrayLike) -> float:
    """LeWiDi 2025's average Wasserstein distance for ordered classes one apart, rounded to five digits."""
    return round(wasserstein(gold, predicted), 5)


entropy = _mean_of(entropy_rows)
kl = _mean_of(kl_rows)
cross_entropy = _mean_of(cross_entropy_rows)
jensen_shannon = _mean_of(jensen_shannon_rows)
manhattan = _mean_of(manhattan_rows)
total_variation = _mean_of(total_variation_rows)
wasserstein = _mean_of(wasserstein_rows)
ranked_probability_score = _mean_of(ranked_probability_score_rows)
accuracy = _mean_of(accuracy_rows)
onehot_accuracy = _mean_of(onehot_accuracy_rows)
sampling_floor = _mean_of(sampling_floor_rows)
log_probability = _mean_of(log_probability_rows)
log_loss = _mean_of(log_loss_rows)
brier = _mean_of(brier_rows)
lewidi_cross_entropy = _mean_of(lewidi_cross_entropy_rows)

#: Name -> metric, for the command line: all of these take (gold, predicted).
METRICS: dict[str, Callable[..., float]] = {
    metric.__name__: metric
    for metric in (
        *(kl, cross_entropy, jensen_shannon, manhattan),
        *(total_variation, wasserstein, ranked_probability_score, entropy_correlation),
        *(accuracy, onehot_accuracy, macro_f1, weighted_f1),
        *(lewidi_cross_entropy, lewidi_f1, lewidi_manhattan, lewidi_wasserstein),
    )
}
