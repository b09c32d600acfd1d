"""Who answers without looking, and who looks and sees something else.

Both disagree with the crowd, and only one of them should be sent away. *Spam* is a set of labels that tell
nothing about the items: the class shares explain them as well as anything does. A *minority view* tells as
much as the crowd's labels do, of something that the crowd does not see: its members' answers are foreseen by
what the other members say, and by how they usually differ. Who shares the crowd's view and errs a lot is
neither.

The small model of ``group_model.py`` weighs these accounts of an annotator's labels, every item being as the
*other* annotators labelled it. It is fitted without a group and, from several guesses, with one. What a fit
is worth is its evidence less the entropy that is left about who is what, and half a nat for each type of
contested items; so a group is believed in where it explains the labels better *and* can be told from the
crowd. (The integrated classification likelihood of Biernacki, Celeux & Govaert, 2000.) Its members and the
spammers are then put aside and the rest is searched in the same way, as long as the crowd outweighs all
groups together.

A group is a view if it tells something of what the crowd sees, were it by turning everything round. People
who answer like one another and whose labels have nothing to do with anybody else's copy or follow a pattern:
they are spammers. In between, a group is put aside and its members are judged as if there were none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from dissensus.annotators.group_model import LEAST_CONTESTED, Fit, Fitting, guesses
from dissensus.annotators.informativeness import agreement_and_information, information_per_label, spam_score
from dissensus.data.annotations import Annotations
from dissensus.execution.threads import Executor, executor
from dissensus.models.base import as_annotations, make_frame
from dissensus.numerics import Array
from dissensus.params import SEED, check_rules, integer

if TYPE_CHECKING:
    from dissensus.models.base import Model

__all__ = ["AnnotatorVerdicts", "Difference", "Group", "annotator_verdicts"]

VERDICTS = ("typical", "minority view", "spam", "too few labels")
SURE = 0.1  # spam score below which labels surely tell something
_RULES = {"min_labels": integer(1), "max_groups": integer(1), "seed": SEED}

MARGIN = 5.0  # nats by which a fit with a group must be worth more
A_TYPE = 0.5  # nats that a type of contested items costs
ENOUGH = 200.0  # labels of one annotator that count in full; more say the same again
INFORMATIVE, NOTHING = 0.25, 0.1  # of the crowd's information per label: enough for a view, and none
LEARN_FROM = 100_000  # labels; of more, a random part of the items teaches the parameters
SCREENING, LEARNING, SETTLING = 8, 80, 4  # rounds

CROWD, MEMBER, SPAM = 0, 1, 2  # columns of the accounts


@dataclass(frozen=True)
class Difference:
    """Items that are one class to the crowd and another to a group."""

    crowd: Any
    group: Any
    share: float  # of all items


@dataclass(frozen=True)
class Group:
    """Annotators with a view of their own."""

    members: NDArray[np.intp]  # annotator codes
    share_of_labels: float
    share_of_items: float  # on which it differs from the crowd
    differences: tuple[Difference, ...]  # the largest first

    def in_words(self) -> str:
        """Where it differs; a second difference is named if it is worth a quarter of the first."""
        large = [d for d in self.differences[:2] if 4 * d.share >= self.differences[0].share]
        found = [f"{str(d.group)!r} where the crowd sees {str(d.crowd)!r}" for d in large]
        return f"see {self.share_of_items:.0%} of the items differently, mostly {' and '.join(found)}"


@dataclass
class Views:
    """What became of everybody."""

    accounts: Array  # (N, 3): probability of being of the crowd, of a group, a spammer
    group: NDArray[np.intp]  # (N,): 0 the crowd, 1, 2, … groups, −1 spammers
    groups: list[Group] = field(default_factory=list)

    def record(self, accounts: Array, among: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Take over the accounts of some annotators; returns everybody's likeliest, the crowd elsewhere."""
        self.accounts[among] = accounts[among]
        likeliest = np.where(among, accounts.argmax(axis=1), CROWD)
        self.group[likeliest == SPAM] = -1
        return likeliest


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
    shared = _on_shared_items(known)
    facts = _Facts(*agreement_and_information(known), spam_score(known), shared.annotator_load)
    with executor(n_jobs) as pool:
        views = find_views(shared, max_groups, seed, pool)
    _let_off(views, facts, known)
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


def _let_off(views: Views, facts: _Facts, annotations: Annotations) -> None:
    """Let off, in ``views``, those held for spammers whose labels plainly tell something.

    Somebody who leans to one class, or turns the classes round, fits no account of the model and still is
    informative: surely so by the spam score, and with a quarter of the crowd's information at least.
    """
    spam = views.accounts.argmax(axis=1) == SPAM
    enough = INFORMATIVE * _mean(facts.information[views.group == 0])
    cleared = spam & (facts.score < SURE) & (facts.information >= enough)
    turned = facts.agreement < _chance_agreement(annotations)
    views.accounts[cleared] = 0.0
    views.accounts[cleared, SPAM] = facts.score[cleared]
    views.accounts[cleared, np.where(turned, MEMBER, CROWD)[cleared]] = 1 - facts.score[cleared]
    views.group[cleared & ~turned] = 0


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


# ---- the search for groups ----------------------------------------------------------------------------


def find_views(annotations: Annotations, max_groups: int, seed: int, pool: Executor) -> Views:
    """Tell crowd, groups and spammers apart."""
    rng, load = np.random.default_rng(seed), annotations.annotator_load
    N = annotations.n_annotators
    views = Views(np.tile([1.0, 0.0, 0.0], (N, 1)), np.zeros(N, np.intp))
    left = load > 0
    for attempt in range(max_groups if annotations.n_classes > 1 else 0):
        fitting = Fitting(annotations.take_rows(left[annotations.annotator]), pool)
        base, best = _explained(_part_of(fitting, rng))
        if attempt == 0:
            views.record(_settled(fitting, base).accounts(load, ENOUGH), left)
        if best is None:
            break
        best = _settled(fitting, best)
        accounts, swapped = _crowd_first(best.accounts(load, ENOUGH), load * left)
        likeliest = accounts.argmax(axis=1)
        stays, member = left & (likeliest == CROWD), left & (likeliest == MEMBER)
        if load[stays].sum() < load[member | (views.group > 0)].sum():
            break
        told = _information_shared(annotations, member, stays)
        if told >= INFORMATIVE:
            views.record(accounts, left)
            views.groups.append(_described(annotations, best, member, swapped))
            views.group[member] = len(views.groups)
        elif told < NOTHING and _independent(best):
            views.record(accounts[:, [CROWD, SPAM, MEMBER]], member)
        left = stays
    return views


def _explained(fitting: Fitting) -> tuple[Fit, Fit | None]:
    """The fit without a group, and the one with a group where that is worth it."""
    base = fitting.without_group(LEARNING)
    screened = [fitting.with_group(base, member, SCREENING) for member in guesses(fitting, base)]
    best = fitting.improved(max(screened, key=_worth), LEARNING)
    return base, best if _worth(best) > _worth(base) + MARGIN and _differs(best) else None


def _settled(fitting: Fitting, fit: Fit) -> Fit:
    """What a fit to a part of the items, or to all of them, has to say of them all."""
    if len(fit.beliefs.w) == fitting.annotations.n_items:
        return fit
    fit = fitting.started(fit.types, fit.people, fit.ways, fit.beliefs.z)
    for _ in range(SETTLING):
        fit = fitting.propagated(fit)
    return fit


def _part_of(fitting: Fitting, rng: np.random.Generator) -> Fitting:
    """The fitting itself or, of very many labels, a random part of its items."""
    whole = fitting.annotations
    if whole.n_labels <= LEARN_FROM:
        return fitting
    items = rng.permutation(whole.n_items)
    few = np.searchsorted(np.cumsum(np.diff(whole.item_pointers)[items]), LEARN_FROM)
    return Fitting(whole.take_items(np.sort(items[:few])), fitting.pool)


def _worth(fit: Fit) -> float:
    """The evidence less what is not known of the annotators, and less what the contested types cost."""
    unsettled = entr(fit.accounts(np.zeros(len(fit.beliefs.z)), ENOUGH)).sum()
    return float(fit.evidence - unsettled - A_TYPE * fit.types.contested.sum())


def _differs(fit: Fit) -> bool:
    """Whether the labels bear out the share of contested items that a view must have."""
    contested = fit.beliefs.w[:, fit.types.contested].sum()
    return bool(contested >= LEAST_CONTESTED * len(fit.beliefs.w))


def _independent(fit: Fit) -> bool:
    """Whether the group sees the items about as otherwise as if it saw other items."""
    chance = 1 - np.sum((fit.ways.psi @ fit.types.crowd) ** 2)
    return bool(2 * fit.ways.psi[fit.types.contested].sum() >= chance)


def _crowd_first(accounts: Array, load: NDArray[Any]) -> tuple[Array, bool]:
    """The accounts with the side that gave more labels as the crowd, and whether it was the other one."""
    swapped = bool(load @ (accounts[:, MEMBER] - accounts[:, CROWD]) > 0)
    return accounts[:, [MEMBER, CROWD, SPAM]] if swapped else accounts, swapped


def _described(annotations: Annotations, fit: Fit, member: NDArray[np.bool_], swapped: bool) -> Group:
    """The group in the user's own classes."""
    contested = fit.types.contested
    shares = fit.ways.psi[contested]
    sides = [made_of[contested].argmax(axis=1) for made_of in (fit.types.crowd, fit.types.group)]
    crowd, group = (annotations.classes[side] for side in (reversed(sides) if swapped else sides))
    order = np.argsort(-shares, kind="stable")
    differences = tuple(Difference(crowd[k], group[k], float(shares[k])) for k in order)
    load = annotations.annotator_load
    return Group(
        np.flatnonzero(member), float(load[member].sum() / load.sum()), float(shares.sum()), differences
    )


def _information_shared(
    annotations: Annotations, member: NDArray[np.bool_], crowd: NDArray[np.bool_]
) -> float:
    """Information of the members' labels, taken together, about the others': as a share of the crowd's."""
    N = annotations.n_annotators
    as_one = np.where(member, N, np.arange(N))[annotations.annotator]
    information = np.nan_to_num(information_per_label(annotations.item, as_one, annotations.label))
    usual = np.average(information[:N], weights=annotations.annotator_load * crowd)
    return float(information[N] / max(usual, np.finfo(float).tiny))
