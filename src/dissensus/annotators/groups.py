"""Two groups of annotators who answer differently: found on one half of the items, tested on the other.

People differ in care and in habit: one is often wrong, another gives low grades. Neither makes a group. The
answer y_nm of annotator n to item m is therefore predicted from the others' answers to the item, o_m, and n's
own sharpness a_n and bias b_n (ridge estimates):

    P(y_nm = c) = p_nmc ∝ exp(a_n log õ_mc + b_nc),     õ: the others' answers and one pseudo-label.

Groups are a pattern in the residuals e_nm = y_nm − p_nm: two members of a group deviate from what is expected
of them on the same items, in the same direction.

**Search**, on one half of the items. The leading eigenvectors of Σ_m e_nm · e_n′m, n ≠ n′, order the
annotators; cut at several quantiles, they are starts of EM for two groups. With r_n = P(n in group g),

    P_g(y_nm = c) ∝ õ_gmc exp(b_nc),              õ_gm = õ_m + R_gm / (R_gm + s) (ȳ_gm − ȳ_m),
    r_n ∝ ω_g Π_m P_g(y_nm),                      ω_g: share of group g,                                (1)

where ȳ_gm is the mean answer of group g to item m, ȳ_m that of all, R_gm = Σ r the members who answered, all
without n. On items without members of one group, both groups are expected to answer alike.

**Test**, on the other half, of the annotators who clearly belong to one of the groups, and with the halves
exchanged. Both tests together must show that, over pairs of annotators of the same item,

* residuals agree within groups more than across: mean e_n · e_n′ within − across > 0, by ``MIN_Z`` standard
  errors over items;
* answers do so too, in each group, and in both with a 95 % interval above 0; members of one group agree above
  chance at least ``MIN_WITHIN`` times as much as those of the other;
* the two halves find the same groups: Cohen's κ of the memberships is at least ``MIN_GROUP_KAPPA``.

Otherwise, unless classes are ordered, the search is repeated without biases (b = 0), as groups may also
differ in how often they give a class. Annotators whose biases vary continuously can always be divided, so
the groups must be separated: with the bias of each annotator along the difference of the groups, means μ_g
and variances σ_g², counted on the other half, Ashman's D = √2 |μ_1 − μ_0| / √(σ_0² + σ_1²) is at least
``MIN_SEPARATION``, or ``MIN_RESIDUAL_SEPARATION`` if the residuals agree too (2.7 for a halved normal
distribution).

If both fail, there are no groups. A continuum of views can be divided too: the test says that the two parts
differ, not that there is nothing between them. If members of different groups agree only as often as by
chance, one of the groups may consist of copies of random answers (``is_related``). Nothing is random but the
division of the items, which has a fixed seed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from dissensus.evaluate.bootstrap import Interval
from dissensus.evaluate.group_agreement import Votes, Z
from dissensus.models.hpgm.sampler import softmax
from dissensus.numerics import Array, Indices, Mask, row_shares

MAX_EXAMINED_CELLS = 1_500_000  # answers × classes; with more, a sample of the items is examined
MIN_GROUPED, MIN_MEMBERS = 4, 2  # annotators examined, and members of each group
SHARPNESS_PRECISION, BIAS_PRECISION = 4.0, 1.0  # of the ridge estimates of a around 1 and of b around 0
NEWTON_ROUNDS = 8
MIN_PRODUCT = 1e-9  # of residuals; below it they are all 0
GROUP_PRIOR, MIN_SHARE = 2.0, 1e-3  # s in (1), and the smallest õ
START_QUANTILES = (0.15, 0.3, 0.5, 0.7, 0.85)
EM_ROUNDS, EM_TOLERANCE = 25, 0.01
FIRST_ROUNDS, CONTINUED_STARTS = 5, 3
CLEAR_PROBABILITY = 0.8  # of a group; others are set aside in the test
MEMBER_PROBABILITY = 0.9  # of members of a group in the result
MIN_Z = 3.0  # standard errors of the difference of residual products
MIN_GROUP_KAPPA = 0.4  # of the memberships found on the two halves
MIN_SEPARATION = 5.0  # of the biases of two groups that differ in nothing else
MIN_RESIDUAL_SEPARATION = 3.5  # of those whose residuals agree too
MIN_WITHIN = 0.5  # of the agreement above chance within the other group
MIN_RELATED = 0.2  # of the agreement above chance within groups; less across is by chance


@dataclass(frozen=True)
class Groups:
    """Two groups of annotators, the larger first.

    Numbers about an item use the memberships found without its half of the items, ``by_half[half[item]]``.
    """

    probability: Array  # (N,): probability of the smaller group; NaN for annotators set aside
    by_half: Indices  # (2, N): group found without the items of a half; −1: neither
    half: Indices  # (M,): half of each item
    within: tuple[float, float]  # probability that two members of a group agree on an item
    across: float  # probability that members of different groups agree on an item
    gap: Interval  # mean of ``within`` − ``across``
    is_related: bool  # False: members of different groups agree as often as by chance

    @property
    def group(self) -> Indices:
        """(N,): 0 or 1, or −1 for annotators who do not clearly belong to one group."""
        return _clear(self.probability, MEMBER_PROBABILITY)

    def tables(self, votes: Votes) -> Array:
        """Return (2, items, classes): answers of each group's members, as found by the other items."""
        by_half = [
            [np.where((self.half == h)[:, None], votes.votes(members == g), 0) for g in range(2)]
            for h, members in enumerate(self.by_half)
        ]
        return np.asarray(np.sum(by_half, axis=0))


def find_groups(votes: Votes, set_aside: Mask | None = None, *, is_scale: bool = False) -> Groups | None:
    """Return two groups of annotators that hold on items not used to find them; None if there are none.

    ``set_aside`` (N,) marks annotators who are not considered, such as spammers; ``is_scale``: the classes
    are ordered.
    """
    N = votes.sizes[1]
    half, votes = _halves(votes), _sample(votes)
    people = np.ones(N, dtype=bool) if set_aside is None else ~set_aside
    people &= np.bincount(votes.annotator, minlength=N) > 0
    if people.sum() < MIN_GROUPED:
        return None
    chosen = np.flatnonzero(people[votes.annotator])
    votes = Votes(votes.item[chosen], votes.annotator[chosen], votes.answer[chosen], votes.sizes)
    tested = [Rows.of(votes.on(half == h), biases=True) for h in range(2)]
    for biases in (True,) if is_scale else (True, False):
        parts = tested if biases else [Rows.of(votes.on(half == h), biases) for h in range(2)]
        by_half = _search_halves(parts)
        result = None if by_half is None else _test(tested, by_half, biases)
        if by_half is None or result is None:
            continue
        # memberships by all items, from those of the halves
        start = np.mean([np.where(members < 0, 0.5, members) for members in by_half], axis=0)
        rows = Rows.of(votes, biases)
        probability, _ = rows.members(start)
        agreement, gap, is_related = result
        n_answers = rows.by_annotator(np.ones(len(rows.item)))
        if np.average(probability, weights=n_answers) > 0.5:  # the larger group first
            probability, agreement = 1 - probability, agreement[[1, 0, 2]]
            by_half = np.where(by_half < 0, -1, 1 - by_half)
        within = float(agreement[0]), float(agreement[1])
        probability = np.where(people, probability, np.nan)
        groups = Groups(probability, by_half, half, within, float(agreement[2]), gap, is_related)
        same = min(_kappa(groups.group, members) for members in by_half) >= MIN_GROUP_KAPPA
        if same and min(np.sum(groups.group == g) for g in range(2)) >= MIN_MEMBERS:
            return groups
    return None


def _search_halves(parts: list[Rows]) -> Indices | None:
    """Return (2, N): groups found without each half; None if the halves do not find the same ones."""
    searched = [_search(part) for part in reversed(parts)]  # without each half
    if searched[0] is None or searched[1] is None:
        return None
    by_half = np.stack([_clear(probability) for probability in searched if probability is not None])
    by_half[1] = _aligned(by_half[0], by_half[1])
    return by_half if _kappa(*by_half) >= MIN_GROUP_KAPPA else None


def _test(parts: list[Rows], by_half: Indices, biases: bool) -> tuple[Array, Interval, bool] | None:
    """Return the agreement within each group and across, its gap, and whether that across is above chance.

    None if the groups do not hold.
    """
    pairs = list(zip(parts, by_half, strict=True))
    residuals = _compare([part.pair_sums(members, "residual") for part, members in pairs])
    answers = _compare([part.pair_sums(members, "answer") for part, members in pairs])
    if residuals is None or answers is None:
        return None
    (_, residual_gap), (agreement, gap) = residuals, answers
    holds = residual_gap.value * Z >= MIN_Z * (residual_gap.high - residual_gap.value)
    if not biases:
        separation = _separation(parts, by_half)
        holds = separation >= MIN_SEPARATION or (holds and separation >= MIN_RESIDUAL_SEPARATION)
    if not (holds and gap.low > 0 and min(agreement[:2]) > agreement[2]):
        return None
    # agreement by chance, from the answers of each group
    totals = np.sum([part.answer_totals(members) for part, members in pairs], axis=0)
    chance = float(np.prod(row_shares(totals), axis=0).sum())
    within = agreement[:2] - chance
    if within.min() < MIN_WITHIN * within.max():
        return None
    return agreement, gap, abs(agreement[2] - chance) >= MIN_RELATED * within.max()


def _halves(votes: Votes) -> Indices:
    """Return (M,): a random half for each item, with equally many items of each answer in both halves.

    Items are alike if they have the same most frequent answer, and are unanimous or not.
    """
    top, n = votes.table.max(axis=1), votes.table.sum(axis=1)
    kind = 2 * votes.table.argmax(axis=1) + (top >= n)
    order = np.lexsort((np.random.default_rng(0).random(len(n)), kind))
    half = np.empty(len(n), dtype=np.intp)
    half[order] = np.arange(len(n)) % 2
    return half


def _sample(votes: Votes) -> Votes:
    """Return the votes on evenly spaced items if there are very many."""
    M, n = votes.sizes[0], len(votes.item) * votes.sizes[2]
    if n <= MAX_EXAMINED_CELLS:
        return votes
    chosen = np.zeros(M, dtype=bool)
    chosen[np.linspace(0, M - 1, max(1, M * MAX_EXAMINED_CELLS // n)).astype(np.intp)] = True
    return votes.on(chosen)


@dataclass(frozen=True)
class Rows:
    """Answers, one row for each item and annotator, and what is expected of them by these answers."""

    item: Indices  # (rows,): codes of the items that have rows
    annotator: Indices
    answer: Array  # (rows, classes): y
    others: Array  # (rows, classes): õ, shares of the others' answers
    sharpness: Array  # (N,): a
    bias: Array  # (N, classes): b
    sizes: tuple[int, int, int]  # items, annotators, classes

    @classmethod
    def of(cls, votes: Votes, biases: bool) -> Self:
        """Estimate the sharpness of every annotator, and the bias, or leave it at 0."""
        n, (_, N, P), answer = votes.annotator, votes.sizes, votes.answer.toarray()
        others = votes.table[votes.item] - answer
        overall = row_shares(votes.table.sum(axis=0)[None] + 1)
        others = row_shares(others + overall)
        labelled, item = np.unique(votes.item, return_inverse=True)
        rows = cls(item, n, answer, others, np.ones(N), np.zeros((N, P)), (len(labelled), N, P))
        logs = rows.log_shares(others)
        for _ in range(NEWTON_ROUNDS):
            # Newton steps in a, and half of a diagonal one in b: the logits of classes act against each other
            p = rows.predicted(others)
            mean = (p * logs).sum(axis=1, keepdims=True)
            gradient = rows.by_annotator(((answer - p) * logs).sum(axis=1))
            gradient -= SHARPNESS_PRECISION * (rows.sharpness - 1)
            hessian = rows.by_annotator((p * (logs - mean) ** 2).sum(axis=1)) + SHARPNESS_PRECISION
            rows = replace(rows, sharpness=rows.sharpness + np.clip(gradient / hessian, -1, 1))
            if not biases:
                continue
            p = rows.predicted(others)
            slope = np.stack([rows.by_annotator(column) for column in (answer - p).T], axis=1)
            curvature = np.stack([rows.by_annotator(column) for column in (p * (1 - p)).T], axis=1)
            step = (slope - BIAS_PRECISION * rows.bias) / (curvature + BIAS_PRECISION)
            bias = rows.bias + np.clip(0.5 * step, -1, 1)
            rows = replace(rows, bias=bias - bias.mean(axis=1, keepdims=True))
        return rows

    @staticmethod
    def log_shares(shares: Array) -> Array:
        """Return log shares, centred in each row."""
        logs = np.log(shares)
        return np.asarray(logs - logs.mean(axis=1, keepdims=True))

    def predicted(self, shares: Array) -> Array:
        """Return (rows, classes): P(answer) ∝ exp(a log shares + b)."""
        a, b = self.sharpness[self.annotator, None], self.bias[self.annotator]
        return softmax(a * self.log_shares(shares) + b)

    @property
    def residual(self) -> Array:
        """(rows, classes): e."""
        return self.answer - self.predicted(self.others)

    def by_annotator(self, values: Array) -> Array:
        """Return (N,): sums of the values of each annotator's rows."""
        return np.bincount(self.annotator, values, minlength=self.sizes[1]).astype(np.float64)

    @cached_property
    def items_of_rows(self) -> csr_array:
        """(items, rows): 1 where a row is of an item."""
        rows = np.arange(len(self.item))
        return csr_array((np.ones(len(rows)), (self.item, rows)), shape=(self.sizes[0], len(rows)))

    def by_item(self, weight: Array, values: Array) -> Array:
        """Return (items, …): weighted sums of rows of values."""
        return np.asarray(self.items_of_rows @ (weight[:, None] * values))

    def orders(self) -> list[Array]:
        """Return (N,) each: leading eigenvectors of the products of residuals of different annotators."""
        M, N, P = self.sizes
        columns = (self.item[:, None] * P + np.arange(P)).ravel()
        residual = self.residual
        table = csr_array((residual.ravel(), (np.repeat(self.annotator, P), columns)), shape=(N, M * P))
        alone = self.by_annotator((residual**2).sum(axis=1))
        if not alone.any():
            return []
        scale = 1 / np.sqrt(alone + np.median(alone[alone > 0]))

        def product(vector: Array) -> Array:
            scaled = scale * vector.ravel()
            return np.asarray(scale * (table @ (table.T @ scaled) - alone * scaled))

        operator = LinearOperator((N, N), matvec=product, dtype=np.float64)
        start = np.cos(np.arange(N))  # any vector that no group is orthogonal to
        if np.abs(product(start)).max() < MIN_PRODUCT:
            return []
        try:
            values, vectors = eigsh(operator, k=min(2, N - 1), which="LA", v0=start, tol=1e-6)
        except ArpackNoConvergence as error:
            values, vectors = np.real(error.eigenvalues), np.real(error.eigenvectors)
        return [np.round(vectors[:, i] * scale, 9) for i in np.argsort(-values)]

    @cached_property
    def means(self) -> tuple[Array, Array]:
        """Logarithms of biases by row, and the others' mean answer ȳ."""
        total = self.by_item(np.ones(len(self.item)), self.answer)[self.item] - self.answer
        return self.bias[self.annotator], row_shares(total)

    def members(self, start: Array, n_rounds: int = EM_ROUNDS) -> tuple[Array, float]:
        """Return (N,): P(group 1) by EM from ``start``, and the log-probability of the answers."""
        N, probability, score = self.sizes[1], start, -math.inf
        present = np.bincount(self.annotator, minlength=N) > 0
        bias, mean = self.means
        for _ in range(n_rounds):
            logs = []
            for side in (1 - probability, probability):
                # (1), without the row's own answer
                weight = side[self.annotator]
                group = self.by_item(weight, self.answer)[self.item] - weight[:, None] * self.answer
                size = np.maximum(np.einsum("rp->r", group), 1e-9)[:, None]
                shares = self.others + size / (size + GROUP_PRIOR) * (group / size - mean)
                logits = np.log(np.maximum(shares, MIN_SHARE)) + bias
                chance = np.einsum("rp,rp->r", self.answer, logits)
                chance -= np.log(np.einsum("rp->r", np.exp(logits)))
                logs.append(self.by_annotator(chance))
            share = float((probability[present].sum() + 1) / (present.sum() + 2))
            log_0, log_1 = logs[0] + math.log(1 - share), logs[1] + math.log(share)
            updated = np.where(present, 1 / (1 + np.exp(np.clip(log_0 - log_1, -30, 30))), 0.5)
            change = np.abs(updated - probability).max()
            probability, score = updated, float(np.logaddexp(log_0, log_1)[present].sum())
            if change < EM_TOLERANCE:
                break
        return probability, score

    def answer_totals(self, members: Indices) -> Array:
        """Return (2, classes): answers of each group."""
        rows = members[self.annotator]
        return np.stack([self.answer[rows == g].sum(axis=0) for g in range(2)])

    def pair_sums(self, members: Indices, name: str) -> tuple[Array, Array]:
        """Return (items, 3) each: products of rows of two annotators, and numbers of pairs.

        The pairs are of group 0, of group 1, and of both. Rows are answers or residuals.
        """
        rows = getattr(self, name)
        sums, alone, n = [], [], []
        for g in range(2):
            weight = (members[self.annotator] == g).astype(np.float64)
            sums.append(self.by_item(weight, rows))
            alone.append(self.by_item(weight, (rows**2).sum(axis=1, keepdims=True))[:, 0])
            n.append(np.bincount(self.item, weight, minlength=self.sizes[0]))
        within = [(sums[g] ** 2).sum(axis=1) - alone[g] for g in range(2)]
        products = np.stack([*within, 2 * (sums[0] * sums[1]).sum(axis=1)], axis=1)
        return products, np.stack([n[0] * (n[0] - 1), n[1] * (n[1] - 1), 2 * n[0] * n[1]], axis=1)


def _search(part: Rows) -> Array | None:
    """Return (N,): P(group 1) of the most probable division found; None if all go to one group."""
    present = np.bincount(part.annotator, minlength=part.sizes[1]) > 0
    if present.sum() < MIN_GROUPED:
        return None
    starts = [
        np.where(present, np.where(order > np.quantile(order[present], level), 0.9, 0.1), 0.5)
        for order in part.orders()
        for level in START_QUANTILES
    ]
    # a few rounds from every start, the others from the best ones
    candidates = [part.members(start, FIRST_ROUNDS) for start in starts]
    candidates = [candidate for candidate in candidates if _has_two(candidate[0])]
    candidates = sorted(candidates, key=lambda candidate: -round(candidate[1], 6))[:CONTINUED_STARTS]
    candidates = [part.members(probability) for probability, _ in candidates]
    candidates = [candidate for candidate in candidates if _has_two(candidate[0])]
    return max(candidates, key=lambda candidate: round(candidate[1], 6))[0] if candidates else None


def _has_two(probability: Array) -> bool:
    """Return whether enough annotators clearly belong to each group."""
    return all(np.sum(_clear(probability) == g) >= MIN_MEMBERS for g in range(2))


def _clear(probability: Array, least: float = CLEAR_PROBABILITY) -> Indices:
    """Return (N,): the group of those who belong to one with probability ``least``, −1 for others."""
    return np.where(probability >= least, 1, np.where(probability <= 1 - least, 0, -1))


def _aligned(first: Indices, second: Indices) -> Indices:
    """Return the second memberships with groups numbered as in the first."""
    exchanged = np.where(second < 0, -1, 1 - second)
    return second if _kappa(first, second) >= _kappa(first, exchanged) else exchanged


def _kappa(first: Indices, second: Indices) -> float:
    """Return Cohen's κ of two memberships, over annotators who have both; 0 if it is undefined."""
    both = (first >= 0) & (second >= 0)
    if not both.any():
        return 0.0
    shares = [float(members[both].mean()) for members in (first, second)]
    agreed = float((first == second)[both].mean())
    chance = shares[0] * shares[1] + (1 - shares[0]) * (1 - shares[1])
    return (agreed - chance) / (1 - chance) if chance < 1 else 0.0


def _separation(parts: list[Rows], by_half: Indices) -> float:
    """Return Ashman's D of the annotators' biases, counted on the half not used to find the groups."""
    biases = []
    for part in parts:
        n = np.maximum(part.by_annotator(np.ones(len(part.item))), 1)[:, None]
        residual = replace(part, bias=np.zeros_like(part.bias)).residual
        biases.append(np.stack([part.by_annotator(column) for column in residual.T], axis=1) / n)
    values = []
    for counted, other, members in zip(biases, biases[::-1], by_half, strict=True):
        direction = other[members == 1].mean(axis=0) - other[members == 0].mean(axis=0)
        scores = [(counted @ direction)[members == g] for g in range(2)]
        spread = math.sqrt(sum(float(score.var(ddof=1)) for score in scores))
        values.append(math.sqrt(2) * float(scores[1].mean() - scores[0].mean()) / max(spread, 1e-12))
    return float(np.mean(values))


def _compare(parts: list[tuple[Array, Array]]) -> tuple[Array, Interval] | None:
    """Return the mean products (3,) within the groups and across, and the mean of within − across.

    None if there are no pairs of one kind. The items are a sample: with X = Σ x / Σ n for each kind of pair,
    item m moves X by (x_m − X n_m) / Σ n.
    """
    products, pairs = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    totals = pairs.sum(axis=0)
    if (totals < 0.5).any():
        return None
    means = products.sum(axis=0) / totals
    contrast = np.array([0.5, 0.5, -1.0])
    moves = ((products - means * pairs) / totals) @ contrast
    value, half_width = float(means @ contrast), Z * math.sqrt(float((moves**2).sum()))
    return means, Interval(value, value - half_width, value + half_width)
