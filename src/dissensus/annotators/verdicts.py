"""Who answers without looking, who sees something else, and who errs by rule: from the posterior of HPGM.

One mechanism: a fitted :class:`~dissensus.HPGM`, or one that is fitted here.

* *spam*: whatever the item, the labels are as well explained without it (``evidence.py``), with probability
  0.9 or more.
* *too few labels*: the labels do not exclude spam, and do not show it either. It depends on what the labels
  say, not on how many they are.
* *minority view*: the labels follow the items, in a cluster of annotators whose most common answers differ
  from the crowd's on a tenth of the items or more. Where another view has 60 % of the weight of the largest,
  or more, there are several views, and nobody in them is the minority.
* *systematic error*: the same of one person alone, or of a few who contradict the crowd on most items; with
  gold labels, also whoever follows the items and is right less than half as often as is usual.
* *typical*: everybody else.

Every draw of the posterior says who has which view; probabilities are shares of the draws.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from dissensus.annotators.evidence import informative, spam_probability, weigh
from dissensus.annotators.sentences import (
    Sentence,
    blind_sentence,
    few_sentence,
    rule_sentence,
    standing_sentence,
    view_sentence,
)
from dissensus.errors import DataError
from dissensus.evaluate.sides import Votes, leaning, median, standing
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import Shown
from dissensus.labels.kinds import class_values
from dissensus.labels.sources import as_annotations
from dissensus.models.base import Model
from dissensus.models.hpgm.model import HPGM
from dissensus.models.hpgm.posterior import Draws
from dissensus.numerics import Array
from dissensus.params import check_rules, integer, real
from dissensus.tables.results import is_ours, read_summary

__all__ = ["AnnotatorVerdicts", "View", "annotator_verdicts"]

VERDICTS = ("typical", "minority view", "systematic error", "spam", "too few labels")
TYPICAL, MINORITY, ERROR, SPAM, FEW = VERDICTS
SURE = 0.9  # probability of spam from which it is called so
EXCLUDED = 0.1  # probability of spam, at even odds, up to which labels are said to exclude it
LIKELY = 0.75  # probability from which an error is called so
DIFFERENT = 0.1  # share of the items on which another view differs
APART = 0.3  # total variation between two distributions of answers that differ
EQUAL = 0.6  # of the largest view's weight: views of this weight are no minority
MOST_ITEMS, FEW_PEOPLE = 0.5, 0.1  # who contradicts on so many items and is of so little weight errs by rule
MUCH_WORSE = 0.5  # of the usual accuracy on gold labels
INTERVAL = 0.9
FEWEST_DRAWS, MOST_NUMBERS = 12, 1_000_000  # draws that are asked, and numbers of π in them
RULES = {"seed": integer(0), "n_jobs": integer(-1), "interval": real(0.0, 1.0, open_low=True)}


@dataclass(frozen=True)
class View:
    """Annotators who see the items alike; the largest view is the crowd's."""

    members: NDArray[np.intp]  # annotator codes
    words: str = ""  # where it differs in the raw labels; empty where they do not bear it out


@dataclass(frozen=True, repr=False)
class AnnotatorVerdicts(Shown):
    """One entry for each annotator in every array, in the order of the model's annotators.

    Attributes
    ----------
    annotator
        Annotator ids.
    n_labels
        Labels of each annotator.
    verdict
        The verdict in one word.
    probability
        Probability of the verdict; NaN where none is given.
    model_agreement
        Chance that a label of theirs equals one of the population.
    bias_of
        The class whose share in their answers differs most from that in the others' answers to the same
        items; empty where classes are ordered, and ``bias`` is the difference of mean grades.
    bias
        That difference: above 0, they give the class more often, or give higher grades, than the others.
    bias_error
        Half of its 95 % interval, over items.
    information
        Nats that a label of theirs tells about the item.
    information_low
        Lower end of its interval.
    information_high
        Upper end of its interval.
    spam_probability
        Probability that their labels say nothing about the items.
    minority_probability
        Probability that they hold another view than the largest.
    error_probability
        Probability that they err systematically.
    view
        0 for the largest view, 1, 2 and so on for others, −1 for none.
    evidence
        The reasons, in words.
    views
        The views, the largest first.
    n_equal
        How many views are of about the same weight, the largest included.
    frame_kind
        The kind of data frame that results come in.
    """

    annotator: NDArray[Any]
    n_labels: NDArray[np.int64]
    verdict: NDArray[Any]
    probability: Array  # of the verdict; NaN where none is given
    model_agreement: Array  # chance that a label of theirs equals one of the population
    bias_of: NDArray[Any]  # the class that they give more or less often than the others; empty: grades
    bias: Array  # how much more often, or higher
    bias_error: Array  # half of its 95 % interval
    information: Array  # nats that a label of theirs tells about the item, and its interval
    information_low: Array
    information_high: Array
    spam_probability: Array
    minority_probability: Array
    error_probability: Array
    view: NDArray[np.intp]  # 0 the largest, 1, 2, … others, −1 none
    evidence: NDArray[Any]  # the reasons, in words
    views: tuple[View, ...]  # the largest first
    n_equal: int  # views of about the same weight, the largest included
    frame_kind: str = "pandas"

    def columns(self) -> dict[str, Any]:
        """The arrays by name."""
        return {name: getattr(self, name) for name in COLUMNS}

    def counts(self) -> dict[str, int]:
        """Number of annotators by verdict."""
        return {verdict: int((self.verdict == verdict).sum()) for verdict in VERDICTS}

    def in_words(self) -> str:
        """How many views there are, and where they differ."""
        if self.n_equal < 2:
            return "one view is the largest by far" if len(self.views) > 1 else "one view"
        number = {2: "two", 3: "three"}.get(self.n_equal, str(self.n_equal))
        sizes = " and ".join(f"{len(view.members)}" for view in self.views[: self.n_equal])
        second = [view.words for view in self.views[1:2] if view.words]
        others = f": the second {second[0]}" if second else ""
        text = f"{number} views of about the same weight ({sizes} annotators), nobody the minority{others}"
        return Sentence(text, "views", parts=second)

    def __len__(self) -> int:
        return len(self.annotator)

    def __repr__(self) -> str:
        found = ", ".join(f"{n:,} {verdict}" for verdict, n in self.counts().items() if n)
        return f"AnnotatorVerdicts({found})"


def annotator_verdicts(
    labels: Any, model: Model | None = None, *, interval: float = INTERVAL, seed: int = 0, n_jobs: int = -1
) -> AnnotatorVerdicts:
    """Tell spam, minority views and systematic errors from typical annotators, with the evidence.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    model
        An :class:`~dissensus.HPGM` fitted to these labels; None fits one.
    interval
        Size of the intervals of information.
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    n_jobs
        Number of threads; −1 takes all cores. The result does not depend on it.
    """
    check_rules("annotator_verdicts", RULES, seed=seed, n_jobs=n_jobs, interval=interval)
    known = as_annotations(labels)
    model = HPGM(seed=seed, n_jobs=n_jobs).fit(known) if model is None else posterior(model, "verdicts")
    model.check_labels(known)
    return judged(model, known, interval)


def posterior(model: Model, what: str) -> HPGM:
    """Refuse a model without draws, or one that is not fitted."""
    if not isinstance(model, HPGM):
        name = type(model).__name__
        raise DataError(f"{what} come from the draws of HPGM, and {name} has none; fit an HPGM")
    model._check_fitted()
    return model


# ---- views --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sides:
    """Who has which view in one draw, and how views differ."""

    view: NDArray[np.intp]  # (N,): 0 the largest; −1: of a cluster that tells nothing of the items
    weight: Array  # (V,)
    differ: Array  # (V,): share of the items on which a view differs from the largest

    @property
    def small(self) -> NDArray[np.bool_]:
        """(V,): views of clearly less weight than the largest."""
        return np.asarray(self.weight < EQUAL * self.weight[0])

    def minority(self) -> NDArray[np.bool_]:
        """(N,): of a smaller view that has two members or more and does not err by rule."""
        return np.asarray(self.small[self.view] & ~self.error() & (self.view >= 0))

    def error(self) -> NDArray[np.bool_]:
        """(N,): alone with a view, or of a few who contradict the crowd on most items."""
        size = np.bincount(self.view[self.view >= 0], minlength=len(self.weight))
        rule = (size == 1) | ((self.differ > MOST_ITEMS) & (self.weight <= FEW_PEOPLE))
        return np.asarray((self.small & rule)[self.view] & (self.view >= 0))


def sides_of(draws: Draws, t: int, weights: Array, load: NDArray[np.intp]) -> Sides:
    """The views of draw ``t``: clusters of annotators, the largest first, those that differ little as one."""
    used = np.flatnonzero(draws.beliefs[t].sum(axis=0) >= 0.5)
    items = draws.beliefs[t][:, used].mean(axis=0).astype(np.float64)
    items /= items.sum()
    clusters, z = np.unique(draws.z[t], return_inverse=True)
    theta = draws.theta[t][np.ix_(used, clusters)].astype(np.float64).transpose(1, 0, 2)  # (L, K, P)
    members = np.bincount(z, weights).astype(np.float64)
    looks = informative(theta.transpose(1, 0, 2), items, members, np.bincount(z, load))
    looks[members.argmax()] = True
    leaders: list[int] = []
    place = np.full(len(clusters), -1)
    for i in np.argsort(-members, kind="stable"):
        if not looks[i]:
            continue
        near = [float(items[_apart(theta[i], theta[j])].sum()) for j in leaders]
        place[i] = int(np.argmin(near)) if near and min(near) < DIFFERENT else len(leaders)
        if place[i] == len(leaders):
            leaders.append(int(i))
    seen = place >= 0
    weight = np.bincount(place[seen], members[seen], minlength=len(leaders)).astype(np.float64)
    order = np.argsort(-weight, kind="stable")
    rank = np.append(np.argsort(order), -1)
    leading = theta[np.array(leaders)[order]]
    apart = np.stack([_apart(one, leading[0]) for one in leading])
    return Sides(rank[place][z], weight[order], apart @ items)


def _apart(one: Array, other: Array) -> NDArray[np.bool_]:
    """(K,): item clusters to which two clusters of annotators, (K, P) each, give different answers."""
    far = np.abs(one - other).sum(axis=1) / 2 >= APART
    return np.asarray(far & (one.argmax(axis=1) != other.argmax(axis=1)))


# ---- judging ------------------------------------------------------------------------------------------


def judged(model: HPGM, known: Annotations | None, interval: float = INTERVAL) -> AnnotatorVerdicts:
    """The verdicts of a fitted model; ``known`` are its labels where they are given (they may have gold)."""
    load = np.bincount(model.learned_rows_[1], minlength=len(model.annotators_))
    even = weigh(model.draws_, model.learned_rows_, model.annotator_weights_, model.seed)
    # the model's whole draws; of a large crowd, some of them
    n_draws = min(max(FEWEST_DRAWS, MOST_NUMBERS // model.draws_.matrices[0].size), len(model.draws_))
    draws = model.draws_.take(np.unique(np.linspace(0, len(model.draws_) - 1, n_draws).astype(int)))
    sides = [sides_of(draws, t, model.annotator_weights_, load) for t in range(len(draws))]
    drawn = list(draws.annotator_draws(model.seed))
    information = np.stack([draw.information for draw in drawn])
    spam = spam_probability(even)
    low, high = (spiked_quantile(information, spam, (1 + end * interval) / 2) for end in (-1, 1))
    minority = (1 - spam) * np.mean([side.minority() for side in sides], axis=0)
    error = np.maximum(np.mean([side.error() for side in sides], axis=0), wrong_by_gold(known, len(load)))
    error = (1 - spam) * error
    verdict, probability = decided(spam, even, minority, error)
    typical, labels = typical_draw(sides), model.training_labels()
    votes = Votes.of(labels)
    names = [str(name) for name in model.classes_]
    # a view of one person alone is none
    members = [np.flatnonzero(typical.view == v) for v in range(len(typical.weight))]
    views = tuple(
        View(who, (view_sentence(votes, who, names) or "") if v else "")
        for v, who in enumerate(members)
        if not v or len(who) > 1
    )
    found = AnnotatorVerdicts(
        annotator=model.annotators_,
        n_labels=load,
        model_agreement=np.mean([draw.agreement for draw in drawn], axis=0),
        **bias_columns(labels),
        information=(1 - spam) * information.mean(axis=0),
        information_low=low,
        information_high=high,
        spam_probability=spam,
        minority_probability=minority,
        error_probability=error,
        view=np.where((verdict == SPAM) | (verdict == FEW), -1, typical.view),
        verdict=verdict,
        probability=probability,
        evidence=np.full(len(verdict), "", dtype=object),
        views=views,
        n_equal=min(int((~typical.small).sum()), len(views)),
        frame_kind=model.frame_kind_,
    )
    add_evidence(found, votes, names)
    return found


def typical_draw(sides: list[Sides]) -> Sides:
    """The draw in which views are shared most as they are on average, judged by some hundred people."""
    N = len(sides[0].view)
    chosen = np.linspace(0, N - 1, min(300, N)).astype(int)
    view = np.stack([side.view[chosen] for side in sides])
    together = (view[:, :, None] == view[:, None, :]).astype(np.float64)
    far = ((together - together.mean(axis=0)) ** 2).sum(axis=(1, 2))
    return sides[int(far.argmin())]


def wrong_by_gold(known: Annotations | None, N: int) -> Array:
    """(N,): P(right less than half as often as is usual), by gold labels; 0 without."""
    if known is None or known.gold is None:
        return np.zeros(N)
    gold = known.gold[known.item]
    asked = gold >= 0
    right = np.bincount(known.annotator[asked], (known.label == gold)[asked], minlength=N)
    n = np.bincount(known.annotator[asked], minlength=N)
    usual = right.sum() / max(n.sum(), 1)
    # P(accuracy < usual / 2), accuracy ~ Beta(1 + right, 1 + wrong)
    return np.asarray(np.where(n > 0, betainc(1 + right, 1 + n - right, MUCH_WORSE * usual), 0.0))


def bias_columns(annotations: Annotations) -> dict[str, Any]:
    """What every annotator gives more often, or how much higher grades, than the others; by columns."""
    found = leaning(annotations, class_values(annotations) if annotations.label_type == "ordinal" else None)
    of = np.array([str(annotations.classes[c]) if c >= 0 else "" for c in found.of], dtype=object)
    return {"bias_of": of, "bias": found.value, "bias_error": found.error}


def decided(spam: Array, even: Array, minority: Array, error: Array) -> tuple[NDArray[Any], Array]:
    """The verdict of every annotator and its probability, from those of all accounts."""
    verdict = np.full(len(spam), TYPICAL, dtype=object)
    probability = np.clip(1 - spam - minority - error, 0, 1)
    # of two words that accuse nobody the likelier one; of an error one must be sure
    likely_ones = (MINORITY, minority, minority > probability), (ERROR, error, error >= LIKELY)
    for name, chance, likely in likely_ones:
        verdict[likely], probability[likely] = name, chance[likely]
    # whoever surely errs by rule follows the items, so that their labels are enough
    few = (even > EXCLUDED) & ~((error >= SURE) & (spam <= EXCLUDED))
    verdict[few], probability[few] = FEW, np.nan
    sure = spam >= SURE
    verdict[sure], probability[sure] = SPAM, spam[sure]
    return verdict, probability


def spiked_quantile(drawn: Array, zero: Array, end: float) -> Array:
    """(N,): quantile of what is 0 with probability ``zero`` (N,) and one of ``drawn`` (T, N) otherwise."""
    # P(x ≤ v) = zero + (1 − zero) P(drawn ≤ v)
    rest = np.clip((end - zero) / np.maximum(1 - zero, 1e-12), 0, 1)
    place = rest * (len(drawn) - 1)
    ordered, below = np.sort(drawn, axis=0), np.floor(place).astype(int)
    each, above = np.arange(drawn.shape[1]), np.minimum(below + 1, len(drawn) - 1)
    value = ordered[below, each] + (place - below) * (ordered[above, each] - ordered[below, each])
    return np.asarray(np.where(end <= zero, 0.0, value))


# ---- in words -----------------------------------------------------------------------------------------


def add_evidence(found: AnnotatorVerdicts, votes: Votes, names: list[str]) -> None:
    """Write the reasons for each verdict into ``evidence``, as far as the raw labels bear them out."""
    known = standing(votes)
    excess = median(known.agreement - known.chance)
    for n, (verdict, v) in enumerate(zip(found.verdict, found.view, strict=True)):
        reason: Sentence | None = None
        if verdict == SPAM:
            reason = blind_sentence(n, known, excess)
        elif verdict == FEW:
            reason = few_sentence(n, int(found.n_labels[n]), known)
        elif verdict == ERROR:
            reason = rule_sentence(votes, n, names)
        elif verdict == MINORITY and 0 < v < len(found.views) and found.views[v].words:
            view = found.views[v]
            reason = Sentence(f"one of {len(view.members)} who {view.words}", "member", parts=[view.words])
        parts = [part for part in (reason, standing_sentence(n, known)) if part]
        found.evidence[n] = Sentence("; ".join(parts), "evidence", parts=parts)


# ---- as a finished run keeps them -----------------------------------------------------------------------

ANNOTATORS = "annotators.csv"
COLUMNS = tuple(field.name for field in fields(AnnotatorVerdicts))[:-3]
WORDS = ("annotator", "verdict", "bias_of", "evidence")
WHOLE = ("n_labels", "view")  # the other columns are numbers


def read_verdicts(place: Path) -> tuple[dict[str, list[Any]], str] | None:
    """The columns of a run's verdicts, and how many views there are, in words; None where it has none."""
    table = place / ANNOTATORS
    if not is_ours(place) or not table.is_file():
        return None
    words = read_summary(place).get("views")
    if not isinstance(words, str):
        return None
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in COLUMNS}
    for name in set(COLUMNS) - set(WORDS):
        columns[name] = [int(text) if name in WHOLE else float(text or "nan") for text in columns[name]]
    return columns, words
