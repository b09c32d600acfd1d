"""Who answers without looking, and who looks and sees something else.

Both disagree with the crowd, and only one of them should be sent away. *Spam* is a set of labels that tell
nothing about the items: the class shares explain them as well as anything does. A *minority view* tells as
much as the crowd's labels do, of something that the crowd does not see: its members' answers are foreseen by
what the other members say, and by how they usually differ. Who shares the crowd's view and errs a lot is
neither.

`views.py` weighs these accounts of an annotator's labels, every item being as the *other*
annotators labelled it; :mod:`dissensus.annotators.groups` looks for the groups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dissensus.annotators.groups import CROWD, INFORMATIVE, MEMBER, SPAM, Difference, Group, Views, find_views
from dissensus.annotators.informativeness import information_per_label, spam_score
from dissensus.data.annotations import Annotations
from dissensus.evaluation.agreement import agreement_with_others
from dissensus.execution.threads import executor
from dissensus.models.base import as_annotations, make_frame
from dissensus.numerics import Array
from dissensus.params import SEED, check_rules, integer

if TYPE_CHECKING:
    from dissensus.models.base import Model

__all__ = ["AnnotatorVerdicts", "Difference", "Group", "annotator_verdicts"]

VERDICTS = ("typical", "minority view", "spam", "too few labels")
SURE = 0.1  # spam score below which labels surely tell something
_RULES = {"min_labels": integer(1), "max_groups": integer(1), "seed": SEED}


@dataclass(frozen=True, repr=False)
class AnnotatorVerdicts:
    """One entry an annotator in every array, in the order of ``annotations.annotators``."""

    annotator: NDArray[Any]
    n_labels: NDArray[np.int64]
    agreement: Array  # chance that another's label on the same item equals theirs; NaN: none to compare
    information: Array  # nats per label
    spam_probability: Array
    minority_probability: Array
    group: NDArray[np.intp]  # 0 the crowd, 1, 2, … groups, −1 none
    cluster: NDArray[np.intp] | None  # of the model given, −1 where it does not know the annotator
    verdict: NDArray[Any]  # "typical", "minority view", "spam" or "too few labels"
    evidence: NDArray[Any]  # the reasons, in words
    groups: tuple[Group, ...]  # the groups found: number 1 first
    frame_kind: str = "pandas"

    def columns(self) -> dict[str, Any]:
        """The arrays by name; ``cluster`` only where a model gave it."""
        names = ["annotator", "n_labels", "agreement", "information", "spam_probability"]
        names += ["minority_probability", "group", "cluster", "verdict", "evidence"]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def to_frame(self) -> Any:
        """A data frame, of the kind the annotations came in."""
        return make_frame(self.columns(), self.frame_kind)

    def counts(self) -> dict[str, int]:
        """Number of annotators by verdict."""
        return {verdict: int((self.verdict == verdict).sum()) for verdict in VERDICTS}

    def __len__(self) -> int:
        return len(self.annotator)

    def __repr__(self) -> str:
        found = ", ".join(f"{n:,} {verdict}" for verdict, n in self.counts().items() if n)
        return f"AnnotatorVerdicts({found})"


def annotator_verdicts(
    annotations: Any,
    model: Model | None = None,
    *,
    min_labels: int = 10,
    max_groups: int = 3,
    seed: int = 0,
    n_jobs: int = -1,
) -> AnnotatorVerdicts:
    """Tell spam from minority views, annotator by annotator, with the evidence.

    An annotator is judged by labels on items that others labelled too; with fewer than ``min_labels`` of
    them the verdict is "too few labels". ``max_groups`` bounds the number of groups looked for. ``model``, a
    fitted one, lends its annotator clusters as a column; it has no say in the verdicts.
    """
    check_rules("annotator_verdicts", _RULES, min_labels=min_labels, max_groups=max_groups, seed=seed)
    known = as_annotations(annotations)
    agreement = agreement_with_others(known)
    shared = _on_shared_items(known)
    facts = _Facts(agreement, information_per_label(known), spam_score(known), shared.annotator_load)
    with executor(n_jobs) as pool:
        views = find_views(shared, max_groups, seed, pool)
    _hear_again(views, facts, known)
    return _judged(known, facts, views, facts.n_compared < min_labels, _clusters(model, known))


class _Facts(NamedTuple):
    """What is known of each annotator before any model."""

    agreement: Array
    information: Array
    score: Array  # spam_score
    n_compared: NDArray[np.int64]  # labels on items that others labelled too


def _on_shared_items(annotations: Annotations) -> Annotations:
    """The labels of items that two annotators or more labelled, of classes in use.

    What somebody says twice of an item counts once: the second time is no news.
    """
    new_pair = np.diff(annotations.pair, prepend=-1) > 0
    people = np.bincount(annotations.item[new_pair], minlength=annotations.n_items)
    new_label = np.diff(annotations.label, prepend=-1) != 0
    kept = annotations.take_rows((people[annotations.item] > 1) & (new_pair | new_label))
    used, label = np.unique(kept.label, return_inverse=True)
    vocabulary = kept.class_vocabulary.take(used)
    return replace(kept, label=label.astype(np.int32), class_vocabulary=vocabulary, gold=None)


def _hear_again(views: Views, facts: _Facts, annotations: Annotations) -> None:
    """Let off, in ``views``, those held for spammers whose labels plainly tell something.

    Somebody who leans to one class, or turns the classes round, fits no account of the model and still is
    informative: surely so by the spam score, and with a quarter of the crowd's information at least.
    """
    spam = views.accounts.argmax(axis=1) == SPAM
    enough = INFORMATIVE * _mean(facts.information[views.group == 0])
    let_off = spam & (facts.score < SURE) & (facts.information >= enough)
    turned = facts.agreement < _chance_agreement(annotations)
    views.accounts[let_off] = 0.0
    views.accounts[let_off, SPAM] = facts.score[let_off]
    views.accounts[let_off, np.where(turned, MEMBER, CROWD)[let_off]] = 1 - facts.score[let_off]
    views.group[let_off & ~turned] = 0


def _chance_agreement(annotations: Annotations) -> Array:
    """(annotators,): how often labels in these shares would agree with labels in the crowd's shares."""
    share = annotations.counts.sum(axis=0) / max(annotations.n_labels, 1)
    total = np.bincount(annotations.annotator, share[annotations.label], minlength=annotations.n_annotators)
    return np.asarray(total / np.maximum(annotations.annotator_load, 1))


def _clusters(model: Model | None, annotations: Annotations) -> NDArray[np.intp] | None:
    """The model's most likely cluster of each annotator, where the model has clusters of annotators."""
    view = None if model is None else model.cluster_view()
    if model is None or view is None or view.annotators is None:
        return None
    code = model.annotator_vocabulary_.codes(annotations.annotator_vocabulary)
    cluster: NDArray[np.intp] = np.where(code >= 0, view.annotators.argmax(axis=1)[code], -1)
    return cluster


def _judged(
    annotations: Annotations,
    facts: _Facts,
    views: Views,
    few: NDArray[np.bool_],
    cluster: NDArray[np.intp] | None,
) -> AnnotatorVerdicts:
    verdict = np.array(["typical", "minority view", "spam"], dtype=object)[views.accounts.argmax(axis=1)]
    verdict[few] = "too few labels"
    judged = [replace(group, members=group.members[~few[group.members]]) for group in views.groups]
    return AnnotatorVerdicts(
        annotator=annotations.annotators,
        n_labels=annotations.annotator_load,
        agreement=facts.agreement,
        information=facts.information,
        spam_probability=views.accounts[:, SPAM],
        minority_probability=views.accounts[:, MEMBER],
        group=np.where(few, -1, views.group),
        cluster=cluster,
        verdict=verdict,
        evidence=_evidence(verdict, facts, replace(views, groups=judged)),
        groups=tuple(judged),
        frame_kind=annotations.frame_kind,
    )


# ---- in words -----------------------------------------------------------------------------------------


def _evidence(verdict: NDArray[Any], facts: _Facts, views: Views) -> NDArray[Any]:
    """The reasons for each annotator's verdict."""
    typical = verdict == "typical"
    agreement, information = _mean(facts.agreement[typical]), _mean(facts.information[typical])
    words = []
    for n, said in enumerate(verdict):
        if said == "too few labels":
            words.append(f"{facts.n_compared[n]} labels on items that others labelled too")
            continue
        reached = (
            f"agrees with the others on {facts.agreement[n]:.0%} (typical: {agreement:.0%}), "
            f"{facts.information[n]:.2f} nats of information a label (typical: {information:.2f})"
        )
        words.append("; ".join(filter(None, [_reason(said, n, views), reached])))
    return np.array(words, dtype=object)


def _reason(verdict: str, n: int, views: Views) -> str:
    if verdict == "spam":
        return "answers do not depend on the item"
    if verdict == "minority view" and views.group[n] > 0:
        group = views.groups[views.group[n] - 1]
        return f"one of {len(group.members)} who {group.in_words()}"
    return "follows the items, but turns the classes round" if verdict == "minority view" else ""


def _mean(values: Array) -> float:
    """The mean of the known values; NaN where there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
