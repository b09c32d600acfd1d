"""Annotators: how far they differ from the others, which groups they form, and a verdict on each.

This is the only account of annotators: the terminal, the report, the files and Python take it from here.

The claims are counted in the raw labels, with intervals over items (``evaluate/group_agreement.py``): how
often an annotator agrees with the others, and how often two others agree on the same items; the annotator's
bias; and groups of annotators (``groups.py``), found on one half of the items and tested on the other. The
posterior draws of HPGM add one probability, that the labels do not depend on the items (``evidence.py``).

* *spam*: the labels do not depend on the items, with probability 0.9 or more, and the annotator agrees less
  with the others than two others do, or gives one answer only.
* *systematic error*: the labels exchange classes, as with swapped keys, or, by gold labels, are right less
  than half as often as usual, with probability 0.9 or more.
* *cannot tell*: the probability of spam is between 0.1 and 0.9, or that of a smaller group between 0.5 and
  0.9, or agreement with the others is not significantly different from chance.
* *minority view*: a member of the smaller of two groups, with probability 0.9 or more.
* *differs*: agrees clearly less with the others than two others do on the same items, and nothing above
  explains it.
* *typical*: all other annotators.

If gold labels say that there is one right answer, no annotator has a minority view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from dissensus.annotators import sentences
from dissensus.annotators.evidence import spam_evidence, spam_probability
from dissensus.annotators.groups import Groups, find_groups
from dissensus.annotators.sentences import Sentence
from dissensus.errors import DataError
from dissensus.evaluate.group_agreement import (
    Z_ONE_SIDED,
    AnnotatorAgreement,
    Votes,
    annotator_agreement,
    annotator_bias,
    median,
    most_frequent,
)
from dissensus.labels import as_annotations
from dissensus.labels.annotations import Annotations
from dissensus.labels.description import connected_parts
from dissensus.labels.display import TableResult
from dissensus.labels.kinds import class_values
from dissensus.models.base import Model
from dissensus.models.hpgm.model import HPGM
from dissensus.numerics import Array, Indices, Mask, batches
from dissensus.params import check_rules, integer, real
from dissensus.tables.results import is_result_directory, read_rows, read_summary

VERDICTS = ("typical", "minority view", "systematic error", "spam", "differs", "cannot tell")
TYPICAL, MINORITY, ERROR, SPAM, DIFFERS, UNDECIDED = VERDICTS
SURE_PROBABILITY = 0.9  # needed for spam, systematic errors and minority views
MAX_TYPICAL_SPAM = 0.1  # probability of spam up to which labels depend on the items
SMALLER_GROUP_RATIO = 0.6  # of the larger group's labels; a group above it is not a minority
ERROR_SHARE = 0.02  # prior share of annotators with a rule of their own
MIN_RULE_GRADES = 2  # distance of the classes of a rule if they are ordered; less is a bias
GOLD_ERROR_RATIO = 0.5  # of the usual accuracy on gold labels
MIN_VERDICT_DRAWS, MAX_VERDICT_CELLS = 12, 1_000_000  # draws used, and entries of π in them
VERDICT_RULES = {"seed": integer(0), "n_jobs": integer(-1), "interval": real(0.0, 1.0, open_low=True)}
MIN_ASIDE, MIN_ASIDE_SHARE = 3, 0.05  # number and share of annotators set aside who may be a group
ANSWERS_PER_CHUNK = 1 << 18  # answers examined at a time
ANNOTATORS_FILE = "annotators.csv"


@dataclass(frozen=True, repr=False)
class AnnotatorVerdicts(TableResult):
    """Verdicts and the numbers behind them; every array has one entry per annotator, in the model's order.

    Attributes
    ----------
    annotator
        Annotator ids.
    n_labels
        Labels of each annotator.
    verdict
        Verdict, one of ``VERDICTS``.
    probability
        Probability of the verdict; NaN for "cannot tell" and "differs".
    agreement
        Probability that another annotator gives the same answer to an item.
    usual
        Probability that two others agree on the same items; NaN if no two others labelled them.
    gap
        ``agreement`` − ``usual`` on these items.
    gap_error
        Half-width of its 95 % interval over items.
    differs
        Whether the annotator agrees clearly less with the others than they do.
    bias_of
        Class whose share differs most from its share in the others' labels of the same items; empty if
        classes are ordered, and ``bias`` is the difference of mean grades.
    bias
        That difference: positive if the annotator gives the class more often, or higher grades.
    bias_error
        Half-width of its 95 % interval over items.
    model_agreement
        Probability that a label equals one drawn from the population.
    information
        Information of a label about its item, in nats.
    information_low
        Lower end of its credible interval.
    information_high
        Upper end of its credible interval.
    spam_probability
        Probability that the labels do not depend on the items.
    minority_probability
        Probability of the smaller group, if it is a minority.
    error_probability
        Probability of a systematic error.
    group
        0 for the larger group, 1 for the smaller, −1 for neither, or if there are no groups.
    evidence
        Reasons for the verdict, as text.
    groups
        The groups; None if there are none.
    standing
        Agreement of every annotator with the others, as counted.
    labels
        The labels that the numbers were counted in.
    frame_kind
        Kind of data frame returned.
    """

    annotator: NDArray[Any]
    n_labels: NDArray[np.int64]
    verdict: NDArray[Any]
    probability: Array
    agreement: Array
    usual: Array
    gap: Array
    gap_error: Array
    differs: Mask
    bias_of: NDArray[Any]
    bias: Array
    bias_error: Array
    model_agreement: Array
    information: Array
    information_low: Array
    information_high: Array
    spam_probability: Array
    minority_probability: Array
    error_probability: Array
    group: Indices
    evidence: NDArray[Any]
    groups: Groups | None
    standing: AnnotatorAgreement
    labels: Annotations
    frame_kind: str = "pandas"

    @property
    def check(self) -> Mask:
        """(annotators,): those to look at first: spam, systematic errors, and all who differ."""
        return np.asarray(self.differs | np.isin(self.verdict.astype(str), (SPAM, ERROR)))

    def columns(self) -> dict[str, Any]:
        """Return the arrays by name."""
        return {name: getattr(self, name) for name in VERDICT_COLUMNS}

    def counts(self) -> dict[str, int]:
        """Return the number of annotators with each verdict."""
        return {verdict: int((self.verdict == verdict).sum()) for verdict in VERDICTS}

    def check_sentence(self, names: Sequence[str] | None = None) -> Sentence | None:
        """Return whom to talk to first, and why; None if there is no reason. ``names`` replace the ids."""
        codes = self.standing.most_disagreements(np.flatnonzero(self.check), self.n_labels)
        reasons, biases = [], zip(self.bias_of, self.bias, self.bias_error, strict=True)
        for verdict, bias in zip(self.verdict, biases, strict=True):
            named = verdict if verdict in (SPAM, ERROR, MINORITY) else ""
            reasons.append(", ".join(filter(None, (named, sentences.bias_words(*bias)))))
        ids, leaning = names or [str(name) for name in self.annotator], self.leaning(codes)
        return sentences.check_sentence(codes, ids, self.n_labels, self.standing, reasons, leaning)

    def leaning(self, annotators: Indices) -> tuple[str, bool, int]:
        """Return the bias that most of these annotators share: class, whether positive, and how many."""
        sure = annotators[np.abs(self.bias[annotators]) > self.bias_error[annotators]]
        biases = Counter((str(self.bias_of[n]), bool(self.bias[n] > 0)) for n in sure)
        (name, more), n = biases.most_common(1)[0] if biases else (("", False), 0)
        return name, more, n

    def groups_sentence(self) -> Sentence | None:
        """Return how two groups of annotators differ; None if there are none."""
        return sentences.groups_sentence(self.groups, self.labels)

    def in_words(self) -> str:
        """Return whom to talk to first, and whether there are groups, as text."""
        first = self.check_sentence() or "No annotator agrees clearly less with the others than usual."
        return f"{first} {self.groups_sentence() or sentences.no_groups(connected_parts(self.labels)[0])}"

    def __len__(self) -> int:
        return len(self.annotator)

    def __repr__(self) -> str:
        counts = ", ".join(f"{n:,} {verdict}" for verdict, n in self.counts().items() if n)
        return f"AnnotatorVerdicts({counts})"


FIELDS = [field.name for field in fields(AnnotatorVerdicts)]
VERDICT_COLUMNS = tuple(FIELDS[: FIELDS.index("evidence") + 1])


def annotator_verdicts(
    labels: Any, model: Model | None = None, *, interval: float = 0.9, seed: int = 0, n_jobs: int = -1
) -> AnnotatorVerdicts:
    """Measure how annotators differ, look for groups, and give each a verdict with the evidence.

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


# ---- verdicts -----------------------------------------------------------------------------------------


def compute_verdicts(model: HPGM, gold: Annotations | None, interval: float = 0.9) -> AnnotatorVerdicts:
    """Return the verdicts of a fitted model; ``gold`` are its labels with gold labels, None without."""
    labels, N = model.training_labels(), len(model.annotators_)
    votes = Votes.of(labels)
    agreement, is_scale = annotator_agreement(votes), labels.label_type == "ordinal"
    even = spam_evidence(model.draws_, model.learned_rows_, model.annotator_weights_, model.seed)
    spam = spam_probability(even)
    error = np.maximum(rule_probability(votes, is_scale), gold_error_probability(gold, N))
    groups = searched_groups(votes, agreement, np.maximum(spam, error) > 0.5, is_scale)
    has_gold = gold is not None and gold.gold is not None
    minority = np.zeros(N) if has_gold else minority_probability(groups, labels.annotator_load)
    error = (1 - spam) * error
    P = labels.n_classes
    n_answers = np.bincount(np.unique(labels.annotator.astype(np.int64) * P + labels.label) // P, minlength=N)
    verdict, probability = decide_verdicts(spam, minority, error, agreement, n_answers)
    if groups is not None and not groups.is_related:
        copies = (groups.group == 1) & ~np.isin(verdict.astype(str), (SPAM, ERROR))
        verdict[copies], probability[copies] = UNDECIDED, np.nan
    # from all draws, or a subset if the crowd is large
    n_draws = max(MIN_VERDICT_DRAWS, MAX_VERDICT_CELLS // model.draws_.matrices[0].size)
    n_draws = min(n_draws, len(model.draws_))
    draws = model.draws_.take(np.unique(np.linspace(0, len(model.draws_) - 1, n_draws).astype(int)))
    information, model_agreement = draws.annotator_draws(model.seed)
    low, high = (zero_inflated_quantile(information, spam, (1 + end * interval) / 2) for end in (-1, 1))
    verdicts = AnnotatorVerdicts(
        annotator=model.annotators_, n_labels=np.bincount(model.learned_rows_[1], minlength=N),
        verdict=verdict, probability=probability, agreement=agreement.agreement, usual=agreement.usual,
        gap=agreement.gap, gap_error=1.96 * agreement.gap_error, differs=agreement.differs,
        **bias_columns(labels), model_agreement=model_agreement.mean(axis=0),
        information=(1 - spam) * information.mean(axis=0), information_low=low, information_high=high,
        spam_probability=spam, minority_probability=minority, error_probability=error,
        group=np.full(N, -1) if groups is None else groups.group,
        evidence=np.full(N, "", dtype=object), groups=groups, standing=agreement, labels=labels,
        frame_kind=model.frame_kind_,
    )  # fmt: skip
    add_evidence(verdicts, votes, [str(name) for name in model.classes_])
    return verdicts


def searched_groups(
    votes: Votes, agreement: AnnotatorAgreement, aside: Mask, is_scale: bool
) -> Groups | None:
    """Look for groups without outliers and those set ``aside``, then among all annotators.

    Opposed groups agree with each other as little as random answers do; if most annotators seem to be
    outliers, they are searched too.
    """
    outliers = aside | agreement.outliers
    first = outliers if outliers.mean() < 0.5 else aside
    groups = find_groups(votes, first, is_scale=is_scale)
    if groups is None and first.sum() >= max(MIN_ASIDE, MIN_ASIDE_SHARE * len(first)):
        return find_groups(votes, is_scale=is_scale)
    return groups


def minority_probability(groups: Groups | None, load: NDArray[np.int64]) -> Array:
    """Return (N,): probability of the smaller group; 0 if the groups have similar shares of the labels."""
    if groups is None or not groups.is_related:
        return np.zeros(len(load))
    larger, smaller = (load[groups.group == g].sum() for g in range(2))
    is_minority = smaller < SMALLER_GROUP_RATIO * larger
    return np.asarray(np.nan_to_num(groups.probability) * is_minority)


def rule_probability(votes: Votes, is_scale: bool) -> Array:
    """Return (N,): probability that an annotator follows a rule of their own on most items.

    A rule exchanges classes: in place of the others' class b the annotator most often answers a, and another
    class in place of a. (To answer a for both is a bias.) Rules are read from one half of the items and
    counted on the other, both ways. If k of t answers follow the rule, its share is above ½ with probability
    A = P(Beta(1 + k, 1 + t − k) > ½) at even odds. Classes of a scale must be ``MIN_RULE_GRADES`` apart.
    """
    _, N, P = votes.sizes
    followed, n = np.zeros(N), np.zeros(N)
    tables = confusion_halves(votes)
    grades = np.abs(np.arange(P)[:, None] - np.arange(P))
    for learned, counted in zip(tables, tables[::-1], strict=True):
        rule = learned.argmax(axis=2)  # (N, P): answer in place of each class
        distance = grades[np.arange(P), rule]
        applies = (learned.max(axis=2) > 0) & (distance >= (MIN_RULE_GRADES if is_scale else 1))
        applies &= np.take_along_axis(applies, rule, axis=1)
        chosen = np.take_along_axis(counted, rule[:, :, None], axis=2)[:, :, 0]
        followed += (chosen * applies).sum(axis=1)
        n += (counted.sum(axis=2) * applies).sum(axis=1)
    return prior_of_errors(1 - betainc(1 + followed, 1 + n - followed, 0.5), n)


def confusion_halves(votes: Votes) -> Array:
    """Return (2, N, P, P): answers by half of the items, annotator, and the others' majority."""
    M, N, P = votes.sizes
    half, tables = np.random.default_rng(0).permutation(M) % 2, np.zeros((2, N, P, P))
    for rows in batches(len(votes.item), ANSWERS_PER_CHUNK):
        item, annotator, answer = votes.item[rows], votes.annotator[rows], votes.answer[rows].toarray()
        theirs, mine = most_frequent(votes.table[item] - answer), most_frequent(answer)
        clear = (theirs >= 0) & (mine >= 0)
        np.add.at(tables, (half[item[clear]], annotator[clear], theirs[clear], mine[clear]), 1)
    return tables


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
    return prior_of_errors(betainc(1 + right, 1 + n - right, GOLD_ERROR_RATIO * usual), n)


def prior_of_errors(even: NDArray[Any], n: NDArray[Any]) -> Array:
    """Return (N,): probabilities at even odds, with the prior that few annotators err systematically."""
    chance = ERROR_SHARE * even / (ERROR_SHARE * even + (1 - ERROR_SHARE) * (1 - even))
    return np.where(n > 0, chance, 0.0).astype(np.float64)


def bias_columns(annotations: Annotations) -> dict[str, Any]:
    """Return the columns ``bias_of``, ``bias`` and ``bias_error`` of every annotator."""
    is_ordinal = annotations.label_type == "ordinal"
    biases = annotator_bias(annotations, class_values(annotations) if is_ordinal else None)
    of = np.array([str(annotations.classes[c]) if c >= 0 else "" for c in biases.class_code], dtype=object)
    return {"bias_of": of, "bias": biases.value, "bias_error": biases.error}


def decide_verdicts(
    spam: Array, minority: Array, error: Array, agreement: AnnotatorAgreement, n_answers: NDArray[np.intp]
) -> tuple[NDArray[Any], Array]:
    """Return every annotator's verdict and its probability; ``n_answers`` (N,): different answers given."""
    verdict = np.full(len(spam), TYPICAL, dtype=object)
    probability = np.clip(1 - spam - minority - error, 0, 1)
    unclear_spam = (spam > MAX_TYPICAL_SPAM) | ~(agreement.depends | agreement.opposes)
    agrees_as_usual = (np.nan_to_num(agreement.gap, nan=-1.0) >= 0) & (n_answers > 1)
    unclear_view = (minority > 0.5) & (minority < SURE_PROBABILITY)
    choices = (
        (DIFFERS, agreement.differs, np.full(len(spam), np.nan)),
        (MINORITY, minority >= SURE_PROBABILITY, minority),
        (UNDECIDED, unclear_spam | unclear_view, np.full(len(spam), np.nan)),
        (ERROR, error >= SURE_PROBABILITY, error),
        (SPAM, (spam >= SURE_PROBABILITY) & ~agrees_as_usual, spam),
    )
    for name, applies, chance in choices:  # the later one wins
        verdict[applies], probability[applies] = name, chance[applies]
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
    """Fill ``evidence`` with the facts about each annotator that the raw labels show."""
    agreement = verdicts.standing
    usual_excess = median(agreement.agreement - agreement.chance)
    needed = labels_needed(agreement)
    for n, verdict in enumerate(verdicts.verdict):
        reason: Sentence | None = None
        constant = None if agreement.depends[n] else sentences.constant_sentence(votes, n, names)
        if verdict == SPAM:
            reason = constant or sentences.blind_sentence(n, agreement, usual_excess)
        elif verdict == ERROR:
            reason = sentences.rule_sentence(votes, n, names)
        elif verdict == MINORITY:
            reason = sentences.member_sentence(n, float(verdicts.minority_probability[n]))
        elif verdict == UNDECIDED:
            reason = sentences.undecided_sentence(
                n, int(verdicts.n_labels[n]), agreement, needed,
                float(verdicts.spam_probability[n]), float(verdicts.minority_probability[n]),
            )  # fmt: skip
        if reason is None and verdict in (SPAM, ERROR):
            by_model = "the verdict comes from the model, and no single pattern in the raw labels shows it"
            reason = Sentence(by_model, "finding")
        bias = sentences.bias_sentence(n, verdicts.bias_of[n], verdicts.bias[n], verdicts.bias_error[n])
        constant = None if reason is constant else constant
        parts = [part for part in (constant, reason, sentences.standing_sentence(n, agreement), bias) if part]
        verdicts.evidence[n] = Sentence("; ".join(parts), "evidence", parts=parts)


def labels_needed(agreement: AnnotatorAgreement) -> int | None:
    """Return the labels after which agreement as usual here would be significant; None if it never is."""
    excess = agreement.agreement - agreement.chance
    shared = excess[agreement.n > 2]
    if len(shared) < 2 or shared.mean() * np.sqrt(len(shared)) <= Z_ONE_SIDED * shared.std(ddof=1):
        return None
    positive = (agreement.n > 2) & (excess > 0) & (agreement.excess_error > 0)
    if not positive.any():
        return None
    # the error falls as 1 / √n
    needed = agreement.n[positive] * (Z_ONE_SIDED * agreement.excess_error[positive] / excess[positive]) ** 2
    return int(np.ceil(np.median(needed)))


def read_verdicts(run: Path) -> tuple[dict[str, list[Any]], str] | None:
    """Return the saved verdicts of a finished run as columns and in words; None if it has none."""
    table = run / ANNOTATORS_FILE
    if not is_result_directory(run) or not table.is_file():
        return None
    words = read_summary(run).get("people")
    if not isinstance(words, str):
        return None
    parse: dict[str, Any] = dict.fromkeys(VERDICT_COLUMNS, lambda text: float(text or "nan"))
    parse |= dict.fromkeys(("annotator", "verdict", "bias_of", "evidence"), str)
    parse |= {"n_labels": int, "group": int, "differs": lambda text: text in ("True", "true")}
    rows = read_rows(table)
    return {name: [parse[name](row[name]) for row in rows] for name in VERDICT_COLUMNS}, words
