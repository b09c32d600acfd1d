"""Coefficients of agreement among annotators, with intervals over items: ``ds.agreement``.

Labels of an item are n_ic labels of class c, n_i in all. With weights w_ck of two labels, w_cc = 1,

    a_i = Σ_ck w_ck n_ic (n_ik − [c = k]) / n_i (n_i − 1)     agreement of item i, n_i ≥ 2
    coefficient = (observed − chance) / (1 − chance)

where observed is the mean of a_i over items, and chance is a function of the shares of the classes π_c, the
mean of n_ic / n_i over labelled items; Conger's κ and Cohen's have the shares p_nc of every annotator n.
Missing labels are treated as by Gwet (2014, Handbook of Inter-Rater Reliability, 4th ed., chapters 2 to 5).
Krippendorff's α (2011) weights items with two labels or more by n_i, and corrects for small samples.

Intraclass correlations are those of Shrout and Fleiss (1979).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dissensus.errors import DataError, bad_choice, bad_parameter, setting
from dissensus.labels import as_annotations
from dissensus.labels.agreement import (
    MAX_GROUP_CELLS,
    AgreementSums,
    agreement_weights,
    item_groups,
    jackknife_interval,
    jackknife_margin,
    pair_sums,
    rank_weights,
)
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import TableResult
from dissensus.labels.kinds import set_distances
from dissensus.labels.vocabulary import Vocabulary
from dissensus.numerics import Array, row_shares

WEIGHTS = ("identity", "linear", "quadratic", "ordinal", "jaccard", "masi")
MAX_PAIRS = 1_000  # of annotators in a table of pairs

Estimate = tuple[Array, Array, Array]  # (B,) each: value, observed, chance; the latter are NaN if not defined


# ---- chance agreement ---------------------------------------------------------------------------------


class Chance(NamedTuple):
    """Shares of labels, from which chance agreement follows, for each of B weightings of the items."""

    shares: Array  # (B, classes) π
    weights: Array | None  # (classes, classes) or (B, classes, classes); None for the identity
    marginals: Callable[[], tuple[Array, Array, Array]]  # see LabelGroups.marginals

    def expected(self) -> Array:
        """Return Σ_ck w_ck π_c π_k."""
        return mean_weight(self.shares, self.weights)

    def uniform(self) -> Array:
        """Return Σ_ck w_ck / P²."""
        P = self.shares.shape[1]
        return np.full(len(self.shares), 1 / P if self.weights is None else self.weights.mean())

    def gwet(self) -> Array:
        """Return Σ_ck w_ck Σ_c π_c (1 − π_c) / P (P − 1); 1 for one class."""
        P = self.shares.shape[1]
        if P == 1:
            return self.uniform()
        return np.asarray(self.uniform() * P / (P - 1) * (self.shares * (1 - self.shares)).sum(axis=1))

    def between_annotators(self) -> Array:
        """Return the mean of Σ_ck w_ck p_nc p_n′k over pairs of annotators n ≠ n′."""
        total, same, N = self.marginals()
        return (mean_weight(total, self.weights) - same) / np.maximum(N * (N - 1), 1)


# Chance of each coefficient (observed − chance) / (1 − chance)
CHANCES: dict[str, Callable[[Chance], Array]] = {
    "percent": lambda chance: np.zeros(len(chance.shares)),
    "brennan_prediger": Chance.uniform,
    "cohen": Chance.between_annotators,
    "scott": Chance.expected,
    "conger": Chance.between_annotators,
    "fleiss": Chance.expected,
    "ac1": Chance.gwet,
    "ac2": Chance.gwet,
    "alpha": Chance.expected,
}
OF_TWO, OF_NAMED = ("cohen", "scott"), ("cohen", "scott", "conger")  # of two annotators only, of named ones
# ICC(1), ICC(2,1) and ICC(3,1) of single labels, and ICC(1,k), ICC(2,k) and ICC(3,k) of means of k labels
INTRACLASS = ("icc1", "icc2", "icc3", "icc1k", "icc2k", "icc3k")
COEFFICIENTS = (*CHANCES, *INTRACLASS)


def mean_weight(shares: Array, weights: Array | None) -> Array:
    """Return Σ_ck w_ck p_c p_k for shares (…, classes)."""
    if weights is None:
        return np.asarray((shares**2).sum(axis=-1))
    return np.asarray(((shares[..., None, :] @ weights)[..., 0, :] * shares).sum(axis=-1))


# ---- sums of classes and of numbers -------------------------------------------------------------------


@dataclass(frozen=True)
class GroupedLabels:
    """Labels in groups of items, for the coefficients."""

    labels: Annotations
    kind: str  # of the weights
    weights: Array | None  # (classes, classes); None for the identity
    group: NDArray[np.uint8]  # (items,)
    omega: Array  # (B, groups) weights of the groups

    def estimate(self, name: str) -> Estimate:
        """Return a coefficient for each row of weights of the groups."""
        if name in INTRACLASS or self.labels.label_type == "numeric":
            return self._of_numbers(name)
        sums = self.sums(by_label=True) if name == "alpha" else self.by_item
        ranks = name == "alpha" and self.kind == "ordinal"
        weights = None if name == "ac1" else rank_weights(sums.shares) if ranks else self.weights
        agreed = sums.agreed
        if agreed.ndim > 1:
            agreed = (agreed * (np.eye(agreed.shape[1]) if weights is None else weights)).sum(axis=(1, 2))
        with np.errstate(divide="ignore", invalid="ignore"):
            observed = agreed / sums.pairs
            shares = sums.shares / sums.items[:, None]
            if name == "alpha":  # (1 − 1/n) observed + 1/n, n labels
                observed += (1 - observed) / sums.items
        chance = Chance(shares, weights, lambda: self.marginals)
        return _corrected(observed, CHANCES[name](chance))

    def sums(self, by_label: bool) -> AgreementSums:
        """Return the sums of pairs in which labels, or else items, count alike."""
        table, G = self.weights is not None, self.omega.shape[1]
        counts = self.labels.counts
        return pair_sums(counts, self.group, G, by_label=by_label, table=table).weighted(self.omega)

    @cached_property
    def by_item(self) -> AgreementSums:
        """Sums in which items count alike."""
        return self.sums(by_label=False)

    @cached_property
    def marginals(self) -> tuple[Array, Array, Array]:
        """Σ_n p_nc (B, classes), Σ_n Σ_ck w_ck p_nc p_nk (B,), and the number of annotators (B,)."""
        from scipy.sparse import csr_array

        labels, P = self.labels, self.labels.n_classes
        annotators, annotator = np.unique(labels.annotator, return_inverse=True)
        N = max(len(annotators), 1)
        cells = self.group[labels.item], annotator * np.int64(P) + labels.label
        by_group = csr_array((np.ones(labels.n_labels), cells), shape=(self.omega.shape[1], N * P))
        step, parts = max(1, MAX_GROUP_CELLS // (N * P)), []
        for start in range(0, len(self.omega), step):
            p = row_shares(np.asarray(self.omega[start : start + step] @ by_group).reshape(-1, N, P))
            parts.append((p.sum(axis=1), mean_weight(p, self.weights).sum(axis=1), p.any(axis=2).sum(axis=1)))
        total, same, n_annotators = map(np.concatenate, zip(*parts, strict=True))
        return total, same, n_annotators

    # ---- numbers

    @cached_property
    def number_sums(self) -> Array:
        """Sums (10, B) over items."""
        item, M = self.labels.item, self.labels.n_items
        x = self._centred
        n = np.bincount(item, minlength=M)
        total = np.bincount(item, x, M)
        mean = total / np.maximum(n, 1)
        within = np.bincount(item, (x - mean[item]) ** 2, M)
        all_items = (n > 0, n, n**2, total, n * mean**2, within)
        unbiased = within * n / np.maximum(n - 1, 1)
        paired = [(n > 1) * column for column in (n, total, n * mean**2 + within, unbiased)]
        G = self.omega.shape[1]
        return np.stack([self.omega @ np.bincount(self.group, c, G) for c in (*all_items, *paired)])

    def _of_numbers(self, name: str) -> Estimate:
        """Return an intraclass correlation, or α of numbers, for each row of weights of the groups."""
        M, E, squares, total, between, within, *paired = self.number_sums
        with np.errstate(divide="ignore", invalid="ignore"):
            if name == "alpha":
                return self._alpha(*paired)
            between = (between - total**2 / E) / (M - 1)
            error, of_annotators = within / (E - M), 0.0
            k = (E - squares / E) / (M - 1)  # labels per item; of unequal numbers, Shrout and Fleiss' n₀
            if not name.startswith("icc1"):
                columns = (self._by_annotator**2).sum(axis=1) / M - total**2 / E
                error = (within - columns) / ((M - 1) * (k - 1))
                if name.startswith("icc2"):
                    of_annotators = (columns / (k - 1) - error) / M
            # (BMS − EMS) / (BMS + (k − 1) EMS + k (JMS − EMS) / M), and of means of k labels
            # (BMS − EMS) / (BMS + (JMS − EMS) / M); ICC(1) has WMS for EMS; no JMS in ICC(1) and ICC(3)
            single = between + (k - 1) * error + k * of_annotators
            value = (between - error) / (between + of_annotators if name.endswith("k") else single)
        undefined = np.full(len(self.omega), np.nan)
        return np.where(np.isfinite(value), value, np.nan), undefined, undefined

    def _alpha(self, n: Array, total: Array, squares: Array, unbiased: Array) -> Estimate:
        """Return α with weights 1 − (x − y)² / span², from sums over items with two labels or more."""
        span = float(np.ptp(self._centred)) ** 2 if len(self._centred) else 0.0
        # mean of (x_a − x_b)² over pairs of an item: 2 Σ (x_a − x̄_i)² / (n_i − 1); of any two labels: 2 Var x
        observed = 1 - 2 * unbiased / n / span
        chance = 1 - 2 * (squares / n - (total / n) ** 2) / span
        return _corrected(observed + (1 - observed) / n, chance)

    @cached_property
    def _by_annotator(self) -> Array:
        """Sums (B, annotators) of the centred labels."""
        annotators, annotator = np.unique(self.labels.annotator, return_inverse=True)
        G, N = self.omega.shape[1], len(annotators)
        cell = self.group[self.labels.item] * np.int64(N) + annotator
        return np.asarray(self.omega @ np.bincount(cell, self._centred, G * N).reshape(G, N))

    @cached_property
    def _centred(self) -> Array:
        values = self.labels.values
        return np.asarray(values - values.sum() / max(len(values), 1))

    # ---- coefficients that are defined

    def all_coefficients(self) -> list[str]:
        """Return the names of the usual coefficients of such labels."""
        redundant = {"ac1" if self.weights is not None else "ac2"}
        two_named = n_labellers(self.labels) == 2 and not self.labels.anonymous
        redundant |= {"conger", "fleiss"} if two_named else set()
        redundant |= set(INTRACLASS) if self.labels.class_values is None else set()
        return [name for name in COEFFICIENTS if name not in redundant and not self.problem(name)]

    def problem(self, name: str) -> str:
        """Return the reason for which a coefficient is not defined for the labels; empty if it is."""
        labels, n = self.labels, n_labellers(self.labels)
        if name in INTRACLASS:
            if labels.label_type not in ("numeric", "ordinal"):
                return f"{name} is of numbers; read the labels with {setting('label_type', 'numeric')}"
            if name.startswith("icc1"):
                return ""
            if labels.anonymous:
                return f"the labels do not name annotators, which {name} needs; use icc1"
            if is_complete(labels):
                return ""
            return f"{name} needs one label by every annotator for every item; use icc1, or drop the others"
        if name != "alpha" and labels.label_type == "numeric":
            return f"{name} is of classes; read the labels with {setting('label_type', 'ordinal')}"
        if name in OF_NAMED and labels.anonymous:
            return f"the labels do not name annotators, which {name} needs; use fleiss"
        if name in OF_TWO and n != 2:
            return f"{name} is of two annotators, and there are {n:,}; use conger, also for pairs, or fleiss"
        return ""


def _corrected(observed: Array, chance: Array) -> Estimate:
    defined = (chance < 1 - 1e-12) & np.isfinite(observed)
    value = np.divide(observed - chance, 1 - chance, out=np.full(len(chance), np.nan), where=defined)
    return value, observed, chance


# ---- results ------------------------------------------------------------------------------------------


class Coefficient(NamedTuple):
    """Coefficient of agreement with its interval."""

    coefficient: str
    weights: str  # agreement of two labels: identity, linear, …; "given" for a matrix, "" without weights
    value: float
    low: float
    high: float
    observed: float  # NaN for intraclass correlations, as is ``chance``
    chance: float
    n_items: int  # with two labels or more
    n_annotators: int | None  # None if the source does not name them
    against: float | None = None  # value for the other labels, and the difference with its interval
    difference: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None


class Settings(NamedTuple):
    """Settings of :func:`agreement`."""

    coefficients: Sequence[str]
    weights: Any
    interval: float
    n_boot: int
    seed: int


@dataclass(frozen=True, repr=False)
class Agreement(TableResult):
    """Table of coefficients of agreement; ``result["alpha"].value`` is one of them.

    Attributes
    ----------
    coefficients
        Value, interval, observed and chance agreement of each coefficient.
    labels
        Labels of the coefficients.
    settings
        Settings of the call.
    keys
        Class or pair of annotators of each row, in tables of these.
    """

    coefficients: tuple[Coefficient, ...]
    labels: Annotations
    settings: Settings
    keys: tuple[Mapping[str, Any], ...] = ()

    @property
    def frame_kind(self) -> str:  # type: ignore[override]
        """Kind of data frame returned."""
        return self.labels.frame_kind

    def __repr__(self) -> str:
        values = ", ".join(f"{c.coefficient} {c.value:.2f}" for c in self.coefficients)
        return f"Agreement({f'{len(self)} rows' if self.keys else values})"

    def __getitem__(self, name: str) -> Coefficient:
        """Return the first coefficient of a name, such as ``"alpha"``."""
        names = {c.coefficient: c for c in reversed(self.coefficients)}
        if name not in names:
            raise bad_choice("Agreement", "coefficient", list(names), name)
        return names[name]

    def __len__(self) -> int:
        return len(self.coefficients)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row for each coefficient."""
        rows = [{k: v for k, v in c._asdict().items() if v is not None} for c in self.coefficients]
        return [{**key, **row} for key, row in zip(self.keys or [{}] * len(rows), rows, strict=True)]

    def by_class(self) -> Agreement:
        """Return the unweighted coefficients of each class against all others."""
        labels, others = self.labels, Vocabulary(["class", "other"], "label")
        if labels.label_type == "numeric":
            raise DataError(f"numbers have no classes; read them with {setting('label_type', 'ordinal')}")
        names = [name.replace("ac2", "ac1") for name in self.settings.coefficients if name not in INTRACLASS]
        settings = self.settings._replace(weights="identity", coefficients=list(dict.fromkeys(names)))
        parts = {}
        for p in np.flatnonzero(labels.class_counts):
            label = (labels.label != p).astype(labels.label.dtype)
            fields: dict[str, Any] = {"label": label, "class_vocabulary": others, "label_type": "nominal"}
            parts[labels.classes[p]] = measured(settings, replace(labels, gold=None, **fields))
        return self._table([({"class": name}, c) for name, part in parts.items() for c in part])

    def by_pair(self) -> Agreement:
        """Return the coefficients of each pair of annotators, on the items that both labelled.

        Of many pairs, these are the 1,000 with the most common items; pairs have two at least.
        """
        labels = self.labels
        if labels.anonymous:
            raise DataError("the labels do not name annotators, so there are no pairs of annotators")
        from scipy.sparse import csr_array, triu

        rows_of_pairs = np.ones(labels.n_labels), (labels.annotator, labels.item)
        cells: Any = (csr_array(rows_of_pairs) > 0).astype(np.int64)
        common = triu(cells @ cells.T, 1).tocoo()
        chosen = np.flatnonzero(common.data > 1)
        chosen = chosen[np.argsort(-common.data[chosen], kind="stable")[:MAX_PAIRS]]
        rows: list[tuple[dict[str, Any], Coefficient]] = []
        for a, b in sorted(zip(common.row[chosen].tolist(), common.col[chosen].tolist(), strict=True)):
            shared = labels.take_items(np.intersect1d(cells[[a]].indices, cells[[b]].indices))
            part = shared.take_rows(np.isin(shared.annotator, (a, b)))
            key = {"annotator": labels.annotators[a], "other": labels.annotators[b]}
            rows += [(key, c) for c in measured(self.settings, part)]
        return self._table(rows)

    def _table(self, rows: Sequence[tuple[dict[str, Any], Coefficient]]) -> Agreement:
        keys, coefficients = zip(*rows, strict=True) if rows else ((), ())
        return replace(self, keys=keys, coefficients=coefficients)


def agreement(
    labels: Any,
    coefficients: str | Sequence[str] = "all",
    *,
    weights: str | ArrayLike | None = None,
    against: Any = None,
    interval: float = 0.95,
    n_boot: int = 0,
    seed: int = 0,
) -> Agreement:
    """Measure the agreement of annotators by coefficients, with intervals over items.

    Of classes: ``percent``, ``brennan_prediger``, ``cohen`` and ``scott`` (two annotators), ``conger``,
    ``fleiss``, ``ac1``, ``ac2``, ``alpha``. Of numbers: ``alpha`` and the intraclass correlations ``icc1``,
    ``icc2``, ``icc3`` of single labels and ``icc1k``, ``icc2k``, ``icc3k`` of means; ``icc2`` and ``icc3``
    need a label by every annotator for every item.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    coefficients
        Names of coefficients, or ``"all"`` that the labels allow.
    weights
        Agreement of two labels: ``"identity"``, ``"linear"``, ``"quadratic"`` or ``"ordinal"``; ``"jaccard"``
        or ``"masi"`` for sets; or a matrix (classes, classes) of 0 to 1, with ones on the diagonal. None
        follows the type of the labels: ordinal for ordered classes, quadratic for numbers, MASI for sets,
        otherwise identity. ``"ordinal"`` is Krippendorff's for α and Gwet's for the others; ``ac1`` has no
        weights.
    against
        Other labels of the same items, by other annotators or on another question: the result has the
        difference of each coefficient, on the items that both have labelled.
    interval
        Level of the intervals.
    n_boot
        Number of bootstrap samples for percentile intervals, 0 for the jackknife: of items or, if there are
        more than 200, of 200 random groups of items.
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    """
    if not 0 < interval < 1:
        raise bad_parameter("agreement", "interval", "a float > 0 and < 1", interval)
    if n_boot < 0:
        raise bad_parameter("agreement", "n_boot", "an integer ≥ 0", n_boot)
    annotations = as_annotations(labels)
    names = [coefficients] if isinstance(coefficients, str) else list(coefficients)
    settings = Settings(names, weights, interval, n_boot, seed)
    if against is None:
        return Agreement(tuple(measured(settings, annotations)), annotations, settings)
    other = as_annotations(against)
    codes = other.item_vocabulary.codes(annotations.item_vocabulary)
    common = (codes >= 0) & (np.diff(annotations.item_pointers) > 0)
    common[common] = np.diff(other.item_pointers)[codes[common]] > 0
    if not common.any():
        raise DataError("the two sets of labels have no labelled item in common; check the item ids")
    annotations, other = annotations[common], other.take_items(codes[common])
    return Agreement(tuple(measured(settings, annotations, other)), annotations, settings)


# ---- measuring ----------------------------------------------------------------------------------------


def measured(settings: Settings, *both: Annotations) -> list[Coefficient]:
    """Return the coefficients of labels, and their differences from those of other labels of the items."""
    labels, n = both[0], np.diff(both[0].item_pointers)
    weights = [weights_of(part, settings.weights) for part in both]
    cells = [part.n_classes if w is None else w.size for part, (_, w) in zip(both, weights, strict=True)]
    group, G = item_groups(n, max(cells))
    replicates = 1 - np.eye(G)  # each row leaves out one group
    if settings.n_boot:
        rng = np.random.default_rng(settings.seed)
        replicates = rng.multinomial(G, np.full(G, 1 / G), settings.n_boot).astype(np.float64)
    omega = np.vstack([np.ones((1, G)), replicates])
    parts = [GroupedLabels(part, *w, group, omega) for part, w in zip(both, weights, strict=True)]
    n_annotators = None if labels.anonymous else n_labellers(labels)
    coefficients = []
    for name in common_coefficients(parts, settings.coefficients):
        (value, observed, chance), *others = (part.estimate(name) for part in parts)
        ends = interval_of(value, settings, float(chance[0]))
        agreements = float(observed[0]), float(chance[0])
        kind = "" if name in INTRACLASS else "identity" if name == "ac1" else parts[0].kind
        row = Coefficient(name, kind, float(value[0]), *ends, *agreements, int((n > 1).sum()), n_annotators)
        for reference, *_ in others:
            gap = value - reference
            row = row._replace(against=float(reference[0]), difference=float(gap[0]))
            low, high = interval_of(gap, settings)
            row = row._replace(difference_low=low, difference_high=high)
        coefficients.append(row)
    return coefficients


def common_coefficients(parts: Sequence[GroupedLabels], names: Sequence[str]) -> list[str]:
    """Return the names that all labels allow for "all", and otherwise the names, after a check of each."""
    if list(names) == ["all"]:
        every = [part.all_coefficients() for part in parts]
        return [name for name in every[0] if all(name in others for others in every)]
    for name in names:
        if name not in COEFFICIENTS:
            raise bad_choice("agreement", "coefficients", ("all", *COEFFICIENTS), name)
        for problem in filter(None, (part.problem(name) for part in parts)):
            raise DataError(problem)
    return list(dict.fromkeys(names))


def weights_of(labels: Annotations, weights: Any) -> tuple[str, Array | None]:
    """Return the kind and the table (classes, classes) of weights; None for the identity and for numbers."""
    P, kind = labels.n_classes, labels.label_type
    if weights is None:
        weights = {"ordinal": "ordinal", "numeric": "quadratic", "multi": "masi"}.get(kind, "identity")
    if not isinstance(weights, str) and kind != "numeric":
        table = np.asarray(weights, np.float64)
        is_valid = table.shape == (P, P) and ((table >= 0) & (table <= 1) & (table == table.T)).all()
        if not is_valid or (np.diag(table) != 1).any():
            rule = f"a kind, or a symmetric {P} × {P} matrix with 1 on the diagonal and 0 to 1 elsewhere"
            raise bad_parameter("agreement", "weights", rule, weights)
        return "given", table
    if str(weights) not in WEIGHTS:
        raise bad_choice("agreement", "weights", WEIGHTS, str(weights))
    if (weights in ("jaccard", "masi")) != (kind == "multi") and weights != "identity":
        raise DataError(f"{weights} weights are for {'sets' if kind != 'multi' else 'classes or numbers'}")
    if kind == "numeric" and weights != "quadratic":
        raise DataError(f"numbers have quadratic weights; read them with {setting('label_type', 'ordinal')}")
    if weights == "identity" or kind == "numeric":
        return weights, None
    if kind == "multi":
        return weights, 1 - set_distances(labels.class_vocabulary, weights)
    if kind != "ordinal" and labels.class_values is None:
        remedy = setting("classes", "low<mid<high")
        raise DataError(f"{weights} weights need ordered classes; give their order, such as {remedy}")
    return weights, agreement_weights(P if labels.class_values is None else labels.class_values, weights)


def n_labellers(labels: Annotations) -> int:
    """Return the number of annotators with labels."""
    return int((labels.annotator_load > 0).sum())


def is_complete(labels: Annotations) -> bool:
    """Check whether every annotator has labelled every item, once."""
    n, N = np.diff(labels.item_pointers), n_labellers(labels)
    return N > 1 and labels.n_pairs == labels.n_labels and bool(np.isin(n, (0, N)).all())


def interval_of(values: Array, settings: Settings, chance: float | None = None) -> tuple[float, float]:
    """Return the interval of the first value from the others; of a difference, if ``chance`` is None."""
    value, replicates = float(values[0]), values[1:]
    if settings.n_boot:
        defined = replicates[np.isfinite(replicates)]
        tails = (1 - settings.interval) / 2, (1 + settings.interval) / 2
        low, high = np.quantile(defined, tails) if len(defined) else (math.nan, math.nan)
        return min(float(low), value), max(float(high), value)
    if chance is not None:
        return jackknife_interval(value, replicates, settings.interval, chance)
    margin, _ = jackknife_margin(replicates, settings.interval)
    return value - margin, value + margin
