"""Verdicts on annotators from the posterior of HPGM: spam, minority views, systematic errors.

* *spam*: the labels do not depend on the item (``evidence.py``), with probability 0.9 or more.
* *too few labels*: the labels neither exclude spam nor show it. This depends on what the labels are, not only
  on their number.
* *minority view*: the labels follow the items, in a cluster of annotators whose most common answers differ
  from the crowd's on a tenth of the items or more. A view with at least 60 % of the weight of the largest
  is not a minority: there are then several views.
* *systematic error*: as a minority view, but of a single annotator, or of a few who contradict the crowd on
  most items; with gold labels, also annotators who follow the items but are right less than half as often as
  usual.
* *typical*: all other annotators.

Each draw of the posterior assigns annotators to views; probabilities are shares of the draws.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from dissensus.annotators import sentences
from dissensus.annotators.evidence import informative_clusters, spam_evidence, spam_probability
from dissensus.annotators.sentences import Sentence, view_sentence
from dissensus.errors import DataError
from dissensus.evaluate.group_agreement import Votes, annotator_agreement, annotator_bias, median
from dissensus.labels import as_annotations
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import TableResult
from dissensus.labels.kinds import class_values
from dissensus.models.base import Model
from dissensus.models.hpgm.model import HPGM
from dissensus.models.hpgm.posterior import Draws
from dissensus.numerics import Array, Indices, Mask
from dissensus.params import check_rules, integer, real
from dissensus.tables.results import is_result_directory, read_rows, read_summary

__all__ = ["AnnotatorVerdicts", "View", "annotator_verdicts"]

VERDICTS = ("typical", "minority view", "systematic error", "spam", "too few labels")
TYPICAL, MINORITY, ERROR, SPAM, FEW = VERDICTS
SPAM_PROBABILITY = 0.9  # needed for the verdict
MAX_CAREFUL_SPAM = 0.1  # probability of spam, at even prior odds, up to which labels exclude it
ERROR_PROBABILITY = 0.5  # needed for the verdict of a systematic error
MIN_DIFFERENT_ITEMS = 0.1  # share of the items on which two views differ
MIN_ANSWER_DISTANCE = 0.3  # total variation between two answer distributions that differ
LARGE_VIEW_RATIO = 0.6  # of the largest view's weight; views above it are not a minority
ERROR_ITEM_SHARE, MAX_ERROR_WEIGHT = 0.5, 0.1  # items contradicted and weight of a few who err systematically
GOLD_ERROR_RATIO = 0.5  # of the usual accuracy on gold labels
MIN_VERDICT_DRAWS, MAX_VERDICT_CELLS = 12, 1_000_000  # draws used, and entries of π in them
VERDICT_RULES = {"seed": integer(0), "n_jobs": integer(-1), "interval": real(0.0, 1.0, open_low=True)}
ANNOTATORS_FILE = "annotators.csv"


@dataclass(frozen=True)
class View:
    """Annotators who answer alike; the largest view is the crowd's."""

    members: Indices  # annotator codes
    words: str = ""  # how it differs in the raw labels; empty if they do not confirm it


@dataclass(frozen=True, repr=False)
class AnnotatorVerdicts(TableResult):
    """Verdicts; every array has one entry per annotator, in the model's order.

    Attributes
    ----------
    annotator
        Annotator ids.
    n_labels
        Labels of each annotator.
    verdict
        Verdict, one of ``VERDICTS``.
    probability
        Probability of the verdict; NaN for "too few labels".
    model_agreement
        Probability that a label equals one drawn from the population.
    bias_of
        Class whose share differs most from its share in the others' labels of the same items; empty if
        classes are ordered, and ``bias`` is the difference of mean grades.
    bias
        That difference: positive if the annotator gives the class more often, or higher grades.
    bias_error
        Half-width of its 95 % interval over items.
    information
        Information of a label about its item, in nats.
    information_low
        Lower end of its credible interval.
    information_high
        Upper end of its credible interval.
    spam_probability
        Probability that the labels do not depend on the items.
    minority_probability
        Probability of a view other than the largest.
    error_probability
        Probability of a systematic error.
    view
        0 for the largest view, 1, 2, … for others, −1 for none.
    evidence
        Reasons for the verdict, as text.
    views
        Views, largest first.
    n_equal
        Number of views of similar weight, the largest included.
    frame_kind
        Kind of data frame returned.
    """

    annotator: NDArray[Any]
    n_labels: NDArray[np.int64]
    verdict: NDArray[Any]
    probability: Array
    model_agreement: Array
    bias_of: NDArray[Any]
    bias: Array
    bias_error: Array
    information: Array
    information_low: Array
    information_high: Array
    spam_probability: Array
    minority_probability: Array
    error_probability: Array
    view: Indices
    evidence: NDArray[Any]
    views: tuple[View, ...]
    n_equal: int
    frame_kind: str = "pandas"

    def columns(self) -> dict[str, Any]:
        """Return the arrays by name."""
        return {name: getattr(self, name) for name in VERDICT_COLUMNS}

    def counts(self) -> dict[str, int]:
        """Return the number of annotators with each verdict."""
        return {verdict: int((self.verdict == verdict).sum()) for verdict in VERDICTS}

    def in_words(self) -> str:
        """Return the number of views and how they differ, as text."""
        if self.n_equal < 2:
            return "one view is by far the largest" if len(self.views) > 1 else "one view"
        number = {2: "two", 3: "three"}.get(self.n_equal, str(self.n_equal))
        sizes = sentences.listed([f"{len(view.members):,}" for view in self.views[: self.n_equal]])
        second = [view.words for view in self.views[1:2] if view.words]
        difference = f": annotators with the second view {second[0]}" if second else ""
        neither = "neither" if self.n_equal == 2 else "none"
        sizes = f"with similar shares of the labels ({sizes} annotators)"
        text = f"{number} views {sizes}, {neither} a minority{difference}"
        return Sentence(text, "views", parts=second)

    def __len__(self) -> int:
        return len(self.annotator)

    def __repr__(self) -> str:
        counts = ", ".join(f"{n:,} {verdict}" for verdict, n in self.counts().items() if n)
        return f"AnnotatorVerdicts({counts})"


VERDICT_COLUMNS = tuple(field.name for field in fields(AnnotatorVerdicts))[:-3]


def annotator_verdicts(
    labels: Any, model: Model | None = None, *, interval: float = 0.9, seed: int = 0, n_jobs: int = -1
) -> AnnotatorVerdicts:
    """Classify annotators as typical, minority view, systematic error or spam, with the evidence.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    model
        An :class:`~dissensus.HPGM` fitted to these labels; None fits one.
    interval
        Level of the credible intervals of ``information``.
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    n_jobs
        Number of threads; −1 takes all cores. The result does not depend on it.
    """
    check_rules("annotator_verdicts", VERDICT_RULES, seed=seed, n_jobs=n_jobs, interval=interval)
    annotations = as_annotations(labels)
    sampled = require_draws(model or HPGM(seed=seed, n_jobs=n_jobs).fit(annotations), "verdicts")
    sampled.check_labels(annotations)
    return compute_verdicts(sampled, annotations, interval)


def require_draws(model: Model, result: str) -> HPGM:
    """Return ``model``; raise an error unless it is a fitted HPGM. ``result`` names what needs the draws."""
    if not isinstance(model, HPGM):
        name = type(model).__name__
        raise DataError(f"{result} need the posterior draws of HPGM, and {name} has none; fit an HPGM")
    model._check_fitted()
    return model


# ---- views --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DrawViews:
    """Views in one draw: their members, weights and differences."""

    view: Indices  # (N,): 0 the largest; −1 for members of an uninformative cluster
    weight: Array  # (V,)
    differ: Array  # (V,): share of the items on which a view differs from the largest

    @property
    def small(self) -> Mask:
        """(V,): views of clearly less weight than the largest."""
        return np.asarray(self.weight < LARGE_VIEW_RATIO * self.weight[0])

    def minority(self) -> Mask:
        """Return (N,): members of a small view that is not a systematic error."""
        return np.asarray(self.small[self.view] & ~self.error() & (self.view >= 0))

    def error(self) -> Mask:
        """Return (N,): annotators alone with a view, or of a small view that contradicts most answers."""
        size = np.bincount(self.view[self.view >= 0], minlength=len(self.weight))
        contradicts = (self.differ > ERROR_ITEM_SHARE) & (self.weight <= MAX_ERROR_WEIGHT)
        return np.asarray((self.small & ((size == 1) | contradicts))[self.view] & (self.view >= 0))


def views_in_draw(draws: Draws, t: int, weights: Array, n_labels: Indices) -> DrawViews:
    """Return the views of draw ``t``: clusters of annotators, similar ones merged, the largest first."""
    used = np.flatnonzero(draws.beliefs[t].sum(axis=0) >= 0.5)
    items = draws.beliefs[t][:, used].mean(axis=0).astype(np.float64)
    items /= items.sum()
    clusters, z = np.unique(draws.z[t], return_inverse=True)
    theta = draws.theta[t][np.ix_(used, clusters)].astype(np.float64).transpose(1, 0, 2)  # (L, K, P)
    members = np.bincount(z, weights).astype(np.float64)
    is_informative = informative_clusters(theta.transpose(1, 0, 2), items, members, np.bincount(z, n_labels))
    is_informative[members.argmax()] = True
    leaders: list[int] = []
    view = np.full(len(clusters), -1)
    for i in np.argsort(-members, kind="stable"):
        if not is_informative[i]:
            continue
        gaps = [float(items[_answers_differ(theta[i], theta[j])].sum()) for j in leaders]
        view[i] = int(np.argmin(gaps)) if gaps and min(gaps) < MIN_DIFFERENT_ITEMS else len(leaders)
        if view[i] == len(leaders):
            leaders.append(int(i))
    weight = np.bincount(view[view >= 0], members[view >= 0], minlength=len(leaders)).astype(np.float64)
    order = np.argsort(-weight, kind="stable")
    rank = np.append(np.argsort(order), -1)
    leading = theta[np.array(leaders)[order]]
    differ = np.stack([_answers_differ(answers, leading[0]) for answers in leading])
    return DrawViews(rank[view][z], weight[order], differ @ items)


def _answers_differ(first: Array, second: Array) -> Mask:
    """Return (K,): item clusters to which two annotator clusters, (K, P) each, give different answers."""
    distant = np.abs(first - second).sum(axis=1) / 2 >= MIN_ANSWER_DISTANCE
    return np.asarray(distant & (first.argmax(axis=1) != second.argmax(axis=1)))


# ---- verdicts -----------------------------------------------------------------------------------------


def compute_verdicts(model: HPGM, gold: Annotations | None, interval: float = 0.9) -> AnnotatorVerdicts:
    """Return the verdicts of a fitted model; ``gold`` are its labels with gold labels, None without."""
    n_labels = np.bincount(model.learned_rows_[1], minlength=len(model.annotators_))
    even = spam_evidence(model.draws_, model.learned_rows_, model.annotator_weights_, model.seed)
    # all draws, or a subset if the crowd is large
    n_draws = max(MIN_VERDICT_DRAWS, MAX_VERDICT_CELLS // model.draws_.matrices[0].size)
    n_draws = min(n_draws, len(model.draws_))
    draws = model.draws_.take(np.unique(np.linspace(0, len(model.draws_) - 1, n_draws).astype(int)))
    assignments = [views_in_draw(draws, t, model.annotator_weights_, n_labels) for t in range(len(draws))]
    annotator_draws = list(draws.annotator_draws(model.seed))
    information = np.stack([draw.information for draw in annotator_draws])
    spam = spam_probability(even)
    low, high = (zero_inflated_quantile(information, spam, (1 + end * interval) / 2) for end in (-1, 1))
    minority = (1 - spam) * np.mean([draw.minority() for draw in assignments], axis=0)
    error = np.mean([draw.error() for draw in assignments], axis=0)
    error = (1 - spam) * np.maximum(error, gold_error_probability(gold, len(n_labels)))
    verdict, probability = decide_verdicts(spam, even, minority, error)
    typical, labels = most_typical_draw(assignments), model.training_labels()
    votes = Votes.of(labels)
    names = [str(name) for name in model.classes_]
    # the largest view, and others with at least two members
    largest, *others = (np.flatnonzero(typical.view == v) for v in range(len(typical.weight)))
    others = [codes for codes in others if len(codes) > 1]
    views = (View(largest), *(View(codes, view_sentence(votes, codes, names) or "") for codes in others))
    verdicts = AnnotatorVerdicts(
        annotator=model.annotators_, n_labels=n_labels, verdict=verdict, probability=probability,
        model_agreement=np.mean([draw.agreement for draw in annotator_draws], axis=0), **bias_columns(labels),
        information=(1 - spam) * information.mean(axis=0), information_low=low, information_high=high,
        spam_probability=spam, minority_probability=minority, error_probability=error,
        view=np.where((verdict == SPAM) | (verdict == FEW), -1, typical.view),
        evidence=np.full(len(verdict), "", dtype=object),
        views=views, n_equal=min(int((~typical.small).sum()), len(views)), frame_kind=model.frame_kind_,
    )  # fmt: skip
    add_evidence(verdicts, votes, names)
    return verdicts


def most_typical_draw(assignments: list[DrawViews]) -> DrawViews:
    """Return the draw whose co-membership matrix is nearest to the mean (of up to 300 annotators)."""
    N = len(assignments[0].view)
    chosen = np.linspace(0, N - 1, min(300, N)).astype(int)
    view = np.stack([draw.view[chosen] for draw in assignments])
    same_view = (view[:, :, None] == view[:, None, :]).astype(np.float64)
    distance = ((same_view - same_view.mean(axis=0)) ** 2).sum(axis=(1, 2))
    return assignments[int(distance.argmin())]


def gold_error_probability(annotations: Annotations | None, N: int) -> Array:
    """Return (N,): P(accuracy below half of the usual), by gold labels; 0 without gold labels."""
    if annotations is None or annotations.gold is None:
        return np.zeros(N)
    gold = annotations.gold[annotations.item]
    has_gold = gold >= 0
    right = np.bincount(annotations.annotator[has_gold], (annotations.label == gold)[has_gold], minlength=N)
    n = np.bincount(annotations.annotator[has_gold], minlength=N)
    usual = right.sum() / max(n.sum(), 1)
    # P(accuracy < usual / 2), accuracy ~ Beta(1 + right, 1 + wrong)
    return np.asarray(np.where(n > 0, betainc(1 + right, 1 + n - right, GOLD_ERROR_RATIO * usual), 0.0))


def bias_columns(annotations: Annotations) -> dict[str, Any]:
    """Return the columns ``bias_of``, ``bias`` and ``bias_error`` of every annotator."""
    is_ordinal = annotations.label_type == "ordinal"
    biases = annotator_bias(annotations, class_values(annotations) if is_ordinal else None)
    of = np.array([str(annotations.classes[c]) if c >= 0 else "" for c in biases.class_code], dtype=object)
    return {"bias_of": of, "bias": biases.value, "bias_error": biases.error}


def decide_verdicts(spam: Array, even: Array, minority: Array, error: Array) -> tuple[NDArray[Any], Array]:
    """Return every annotator's verdict and its probability, from the probabilities of all explanations."""
    verdict = np.full(len(spam), TYPICAL, dtype=object)
    probability = np.clip(1 - spam - minority - error, 0, 1)
    # between typical and minority view the likelier wins; an error must be likely by itself
    choices = (MINORITY, minority, minority > probability), (ERROR, error, error >= ERROR_PROBABILITY)
    for name, chance, likely in choices:
        verdict[likely], probability[likely] = name, chance[likely]
    # a sure systematic error follows the items, so its labels are enough
    sure_error = (error >= SPAM_PROBABILITY) & (spam <= MAX_CAREFUL_SPAM)
    few = (even > MAX_CAREFUL_SPAM) & ~sure_error
    verdict[few], probability[few] = FEW, np.nan
    sure_spam = spam >= SPAM_PROBABILITY
    verdict[sure_spam], probability[sure_spam] = SPAM, spam[sure_spam]
    return verdict, probability


def zero_inflated_quantile(values: Array, zero: Array, level: float) -> Array:
    """Return (N,): quantile of a mixture of 0, with probability ``zero`` (N,), and ``values`` (T, N)."""
    # P(x ≤ v) = zero + (1 − zero) P(value ≤ v)
    rest = np.clip((level - zero) / np.maximum(1 - zero, 1e-12), 0, 1)
    position = rest * (len(values) - 1)
    ordered, below = np.sort(values, axis=0), np.floor(position).astype(int)
    columns, above = np.arange(values.shape[1]), np.minimum(below + 1, len(values) - 1)
    low, high = ordered[below, columns], ordered[above, columns]
    return np.asarray(np.where(level <= zero, 0.0, low + (position - below) * (high - low)))


def add_evidence(verdicts: AnnotatorVerdicts, votes: Votes, names: list[str]) -> None:
    """Fill ``evidence`` with the reasons for each verdict, as far as the raw labels confirm them."""
    agreement = annotator_agreement(votes)
    usual_excess = median(agreement.agreement - agreement.chance)
    for n, (verdict, v) in enumerate(zip(verdicts.verdict, verdicts.view, strict=True)):
        reason: Sentence | None = None
        if verdict == SPAM:
            reason = sentences.blind_sentence(n, agreement, usual_excess)
        elif verdict == FEW:
            reason = sentences.few_sentence(n, int(verdicts.n_labels[n]), agreement)
        elif verdict == ERROR:
            reason = sentences.rule_sentence(votes, n, names)
        elif verdict == MINORITY and 0 < v < len(verdicts.views) and verdicts.views[v].words:
            view = verdicts.views[v]
            text = f"one of {len(view.members)} annotators who {view.words}"
            reason = Sentence(text, "member", parts=[view.words])
        if reason is None and verdict != TYPICAL:
            by_model = "the verdict comes from the model, and no single pattern in the raw labels shows it"
            reason = Sentence("not enough evidence for a verdict" if verdict == FEW else by_model, "finding")
        parts = [part for part in (reason, sentences.standing_sentence(n, agreement)) if part]
        verdicts.evidence[n] = Sentence("; ".join(parts), "evidence", parts=parts)


def read_verdicts(run: Path) -> tuple[dict[str, list[Any]], str] | None:
    """Return the saved verdicts of a finished run as columns, and its views as text; None if it has none."""
    table = run / ANNOTATORS_FILE
    if not is_result_directory(run) or not table.is_file():
        return None
    views = read_summary(run).get("views")
    if not isinstance(views, str):
        return None
    rows = read_rows(table)
    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in VERDICT_COLUMNS}
    for name in set(VERDICT_COLUMNS) - {"annotator", "verdict", "bias_of", "evidence"}:
        integers = name in ("n_labels", "view")
        columns[name] = [int(text) if integers else float(text or "nan") for text in columns[name]]
    return columns, views
