"""Who answers without looking, and who looks and sees something else.

Both disagree with the crowd, and only one of them should be sent away. *Spam* is a set of labels that tell
nothing about the items: the class shares explain them as well as anything does. A *minority view* tells as
much as the crowd's labels do, of something that the crowd does not see: its members' answers are foreseen by
what the other members say, and by how they usually differ. Who shares the crowd's view and errs a lot is
neither.

:mod:`dissensus.views` weighs these accounts of an annotator's labels, every item being as the *other*
annotators labelled it; :mod:`dissensus.groups` looks for the groups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dissensus.agreement import agreement_with_others
from dissensus.annotations import Annotations
from dissensus.engine import executor
from dissensus.errors import bad_parameter
from dissensus.groups import MEMBER, SPAM, Difference, Group, Views, find_views
from dissensus.informativeness import information_per_label
from dissensus.kernels import Array
from dissensus.models.base import as_annotations, make_frame
from dissensus.params import SEED, integer

if TYPE_CHECKING:
    from dissensus.models.base import Model

__all__ = ["AnnotatorVerdicts", "Difference", "Group", "annotator_verdicts"]

VERDICTS = ("typical", "minority view", "spam", "too few labels")


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
    n_jobs: int = 1,
) -> AnnotatorVerdicts:
    """Tell spam from minority views, annotator by annotator, with the evidence.

    An annotator is judged by labels on items that others labelled too; with fewer than ``min_labels`` of
    them the verdict is "too few labels". ``max_groups`` bounds the number of groups looked for. ``model``, a
    fitted one, lends its annotator clusters as a column; it has no say in the verdicts.
    """
    for name, value, rule in (
        ("min_labels", min_labels, integer(1)),
        ("max_groups", max_groups, integer(1)),
        ("seed", seed, SEED),
    ):
        if not rule.holds(value):
            raise bad_parameter("annotator_verdicts", name, rule.words, value)
    known = as_annotations(annotations)
    agreement, information = agreement_with_others(known), information_per_label(known)
    shared = _on_shared_items(known)
    with executor(n_jobs) as pool:
        views = find_views(shared, max_groups, seed, pool)
    return _judged(
        known, shared.annotator_load, agreement, information, views, min_labels, _clusters(model, known)
    )


def _on_shared_items(annotations: Annotations) -> Annotations:
    """The labels of items that two annotators or more labelled, of classes in use."""
    first = np.unique(annotations.pair, return_index=True)[1]
    people = np.bincount(annotations.item[first], minlength=annotations.n_items)
    kept = annotations.take_rows(people[annotations.item] > 1)
    used, label = np.unique(kept.label, return_inverse=True)
    vocabulary = kept.class_vocabulary.take(used)
    return replace(kept, label=label.astype(np.int32), class_vocabulary=vocabulary, gold=None)


def _clusters(model: Model | None, annotations: Annotations) -> NDArray[np.intp] | None:
    """The model's most likely cluster of each annotator, where the model has clusters of annotators."""
    table = getattr(model, "annotator_clusters_", None)
    if model is None or table is None:
        return None
    code = model.annotator_vocabulary_.codes(annotations.annotator_vocabulary)
    cluster: NDArray[np.intp] = np.where(code >= 0, table.argmax(axis=1)[code], -1)
    return cluster


def _judged(
    annotations: Annotations,
    n_compared: NDArray[np.int64],
    agreement: Array,
    information: Array,
    views: Views,
    min_labels: int,
    cluster: NDArray[np.intp] | None,
) -> AnnotatorVerdicts:
    few = n_compared < min_labels
    verdict = np.select(
        [few, views.group < 0, views.group > 0], ["too few labels", "spam", "minority view"], "typical"
    ).astype(object)
    typical = verdict == "typical"
    usual = _Usual(
        float(np.nanmean(agreement[typical])) if typical.any() else float("nan"),
        float(np.nanmean(information[typical])) if typical.any() else float("nan"),
    )
    words = [
        _evidence(str(verdict[n]), int(n_compared[n]), agreement[n], information[n], views, n, usual)
        for n in range(annotations.n_annotators)
    ]
    return AnnotatorVerdicts(
        annotator=annotations.annotators,
        n_labels=annotations.annotator_load,
        agreement=agreement,
        information=information,
        spam_probability=views.accounts[:, SPAM],
        minority_probability=views.accounts[:, MEMBER],
        group=views.group,
        cluster=cluster,
        verdict=verdict,
        evidence=np.array(words, dtype=object),
        groups=views.groups,
        frame_kind=annotations.frame_kind,
    )


@dataclass(frozen=True)
class _Usual:
    """What typical annotators reach."""

    agreement: float
    information: float


def _evidence(
    verdict: str, n: int, agreement: float, information: float, views: Views, who: int, usual: _Usual
) -> str:
    if verdict == "too few labels":
        return f"{n} labels on items that others labelled too"
    reached = (
        f"agrees with the others on {agreement:.0%} (typical {usual.agreement:.0%}), "
        f"{information:.2f} nats a label (typical {usual.information:.2f})"
    )
    if verdict == "spam":
        return f"labels do not depend on the item: {reached}"
    if verdict == "minority view":
        group = views.groups[views.group[who] - 1]
        return f"one of {len(group.members)} who {group.in_words()}: {reached}"
    return reached
