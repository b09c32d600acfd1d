"""Sentences about the labels, each of them true of the raw labels.

A model may choose what a sentence is about (annotators, items, a class); the numbers in it are counted in the
raw labels, and a sentence is withheld (its function returns None) if the condition of its kind does not hold
there. The kinds and their conditions:

* ``agreement``: α, its interval and the agreement of two labels. Withheld if α is undefined.
* ``rivals``: the two classes with most of the disagreements. Withheld if they have less than half of them.
* ``view``: annotators who answer differently. Withheld unless they agree with one another more than with the
  others (95 % interval of the difference above 0).
* ``group``: as ``view``, for annotators grouped by a model or a column; a class is named only if the group
  uses it significantly more, or less, than the others on the same items.
* ``contrast``: two groups on some items. Withheld unless the shares of the class differ significantly and by
  at least ``MIN_CONTRAST``.
* ``standing``: agreement of one annotator with the others. ``blind`` (labels hardly depend on the item) is
  withheld if agreement above chance is more than half of the usual; ``rule`` (one class in place of another)
  below half of the items; ``few`` if agreement is significantly above chance.
* ``overturned``: labels of an item, and reasons for the model's answer; only those that the labels confirm.
* ``cluster``: items and the labels they received.
* ``column``: a value of a column in a group. Withheld if chance explains it.
* ``check``: annotators to check. Withheld unless the others agree with them significantly less than with one
  another.
* ``finding``: a verdict of the model alone; it says that the raw labels give no reason.
* ``adjudicate``, ``more``, ``parts``, ``gold``: items to decide, items that need labels, unconnected parts of
  the data, and accuracy.

Names from the data are quoted; sentences must be displayed as plain text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.evaluate import group_agreement as by_labels
from dissensus.evaluate.group_agreement import AnnotatorAgreement, GroupComparison, Votes, most_frequent
from dissensus.labels.agreement import reading
from dissensus.numerics import Array, Indices, Mask

MAX_NAMES = 5  # annotators named in a sentence
MIN_DIFFERENCE = 0.03  # difference of two shares that is mentioned
MIN_CONTRAST = 0.1  # difference of two groups' shares of a class
Z_95 = 1.96  # standard errors on each side of a 95 % interval
MIN_ALPHA = 0.667  # Krippendorff's α below which one label per item is not enough
MAJORITY = 0.5
MIN_CRAMERS_V, MIN_RESIDUAL = 0.1, 2.0  # of a column associated with groups; standardised residual
MIN_LABELS_TO_ADJUDICATE, MAX_TIE_GAP = 4, 0.2  # of an item; gap between the shares of its two top answers
MIN_CONTRAST_ITEMS = 4
MAX_LABEL_RATIO = 0.9  # labels per item, over those of other items, that count as fewer


class Sentence(str):
    """A sentence that holds for the raw labels, with its kind and its subject (codes of the labels)."""

    kind: str
    about: Mapping[str, Any]

    def __new__(cls, text: str, kind: str, **about: Any) -> Sentence:
        """Return the text with its kind and subject."""
        sentence = super().__new__(cls, text)
        sentence.kind, sentence.about = kind, about
        return sentence


def percent(share: float) -> str:
    """Return ``58 %``; shares close to 0 or 1 are ``under 1 %`` and ``over 99 %``."""
    if 0 < share < 0.01:
        return "under 1\u00a0%"
    if 0.99 < share < 1:
        return "over 99\u00a0%"
    return f"{100 * share:.0f}\u00a0%"


def count(n: int, noun: str) -> str:
    """Return ``1 item``, ``2,000 items``."""
    return f"{n:,} {noun}{'s' * (n != 1)}"


def quoted(name: str) -> str:
    """Return the name of a class or a value in quotation marks."""
    return f"‘{name}’"


def listed(parts: Sequence[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


# ---- the whole crowd ----------------------------------------------------------------------------------


def agreement_sentence(alpha: float, low: float, high: float, pairs: float | None = None) -> Sentence | None:
    """Describe the agreement of the annotators; ``pairs``: probability that two labels of an item agree."""
    if math.isnan(alpha):
        return None
    level = reading(alpha)
    interval = "" if math.isnan(low) else f" (95\u00a0% interval {low:.2f} to {high:.2f})"
    text = f"{level[0].upper()}{level[1:]}: Krippendorff's α is {alpha:.2f}{interval}."
    if pairs is not None:
        text += f" Two annotators of an item agree with probability {percent(pairs)}."
    advice = " Keep the distribution of answers along with the label, or clarify the guidelines."
    return Sentence(text + advice * (alpha < MIN_ALPHA), "agreement")


def rivals_sentence(counts: NDArray[Any], names: Sequence[str]) -> Sentence | None:
    """Name the two classes with most disagreements: pairs of different labels of one item."""
    # Σ_m n_ma n_mb for every two classes
    pairs = np.triu(counts.astype(np.float64).T @ counts, k=1)
    total = float(pairs.sum())
    if len(names) < 3 or not total or float(pairs.max()) / total < MAJORITY:
        return None
    a, b = divmod(int(pairs.argmax()), len(names))
    share = percent(float(pairs.max()) / total)
    pair = f"{quoted(names[a])} and {quoted(names[b])}"
    text = f"When two labels of an item differ, they are {pair} in {share} of the cases."
    return Sentence(text, "rivals", classes=(a, b))


def parts_sentence(n_parts: int | None, largest: int | None, n_items: int) -> Sentence | None:
    """Report that the labels form unconnected parts."""
    if n_parts is None or n_parts < 2 or largest is None:
        return None
    text = (
        f"The labels form {n_parts:,} unconnected parts: no annotator labelled items of two parts (the "
        f"largest has {largest:,} of {count(n_items, 'item')}). Have some annotators label items of several "
        "parts."
    )
    return Sentence(text, "parts")


# ---- what to do next ----------------------------------------------------------------------------------


def check_sentence(
    votes: Votes,
    annotators: Indices,
    names: list[str],
    load: Any,
    groups: Mapping[str, Indices] | None = None,
) -> Sentence | None:
    """Name annotators to check, if the others agree with them less than with one another.

    ``groups``: members of each confirmed group; one with most of these annotators is mentioned.
    """
    if not len(annotators):
        return None
    gap = by_labels.agreement_gap(votes, is_member(votes, annotators))
    if not gap.low > 0:
        return None
    n = len(annotators)
    share = percent(float(load[annotators].sum() / max(load.sum(), 1)))
    listing = [names[code] for code in annotators[:MAX_NAMES]] + [f"{n - MAX_NAMES:,} more"] * (n > MAX_NAMES)
    text = (
        f"Check {count(n, 'annotator')} ({share} of the labels): {listed(listing)}. The others agree with "
        f"{'them' if n > 1 else 'this annotator'} {100 * gap.value:.0f} percentage points less often than "
        "with one another. Read the evidence before you exclude anyone."
    )
    members = None
    for letter, codes in (groups or {}).items():
        inside = int(np.isin(annotators, codes).sum())
        if inside > max(1, MAJORITY * n):
            members = codes
            those = "All" if inside == n else f"{inside:,}"
            text += f" {those} of them are in group {letter} (see Groups in the report), which may hold a "
            text += "minority view."
    return Sentence(text, "check", annotators=annotators, group=members)


def close_items(counts: NDArray[Any]) -> Mask:
    """Return (items,): items with enough labels whose two most frequent answers are nearly tied."""
    total = counts.sum(axis=1)
    top = np.sort(counts, axis=1)[:, ::-1]
    second = top[:, 1] if counts.shape[1] > 1 else np.zeros(len(counts))
    return np.asarray((total >= MIN_LABELS_TO_ADJUDICATE) & (top[:, 0] - second <= MAX_TIE_GAP * total))


def adjudicate_sentence(counts: NDArray[Any], items: Indices, *, unsure: bool = False) -> Sentence | None:
    """Report nearly tied items, which need a decision; ``unsure``: the model is unsure of them too."""
    items = items[close_items(counts)[items]]
    if not len(items):
        return None
    text = (
        f"Adjudicate {count(len(items), 'item')}: {'each' if len(items) > 1 else 'it'} has "
        f"{MIN_LABELS_TO_ADJUDICATE} or more labels,"
        f"{'' if unsure else ' and'} its two most frequent answers are at most {100 * MAX_TIE_GAP:.0f} "
        f"percentage points apart{', and the model is unsure which is more common' if unsure else ''}. Have "
        "an expert decide, or keep both answers."
    )
    return Sentence(text, "adjudicate", items=items)


def more_sentence(counts: NDArray[Any], items: Indices, *, by_all: bool = False) -> Sentence | None:
    """Report items that need labels, if they have fewer labels, or less agreement, than the other items.

    ``by_all``: every annotator has labelled all of them.
    """
    if not len(items):
        return None
    rest = np.setdiff1d(np.flatnonzero(counts.sum(axis=1) > 0), items)
    n, n_rest = counts[items].sum(axis=1), counts[rest].sum(axis=1)
    single, facts = len(items) == 1, ""
    if not len(rest) or n.mean() <= MAX_LABEL_RATIO * n_rest.mean():
        each = f"{count(int(n[0]), 'label')}{' each' * (not single)}"
        labels = each if n.min() == n.max() else f"{n.mean():.1f} labels on average"
        others = f" (other items: {n_rest.mean():.1f})" if len(rest) else ""
        facts += f" {'It has' if single else 'They have'} {labels}{others}."
    # share of the most frequent answer, over items with labels
    top, top_rest = (counts[m].max(axis=1)[k > 0] / k[k > 0] for m, k in ((items, n), (rest, n_rest)))
    if len(top) and len(rest) and round(top.mean(), 2) < round(top_rest.mean(), 2):
        share, others = percent(float(top.mean())), percent(float(top_rest.mean()))
        answers = f"{share} of its" if single else f"On average, {share} of an item’s"
        facts += f" {answers} labels are the most frequent answer (other items: {others})."
    all_of = "it" if single else "all of them"
    who = f" from new annotators: the present ones have labelled {all_of}" if by_all else ""
    text = f"Collect more labels for {count(len(items), 'item')}{who}.{facts}"
    return Sentence(text, "more", items=items) if facts else None


def gold_sentence(right: Array, interval: Sequence[float]) -> Sentence | None:
    """Report the accuracy of the most frequent label on items with a gold label."""
    if not len(right):
        return None
    ends = f"95\u00a0% interval {percent(interval[0])} to {percent(interval[1])}"
    share, items = percent(float(right.mean())), count(len(right), "item")
    text = f"The most frequent label is correct for {share} of {items} with a gold label ({ends})."
    return Sentence(text, "gold")


# ---- items --------------------------------------------------------------------------------------------


def overturned_sentence(
    item: int,
    counts: NDArray[Any],
    predicted: int,
    names: Sequence[str],
    agreements: tuple[float, float] | None,
    similar: tuple[Indices, float, float] | None,
    *,
    gold: bool = False,
) -> Sentence:
    """Explain why the model's label ``predicted`` is not the most frequent label of an item.

    ``agreements``: mean agreement with others, over all their labels, of the annotators who chose the model's
    class and of those who chose the most frequent one. ``similar``: the other items of its cluster, and the
    shares of both classes among their labels. Only reasons in favour of the model's label are given. If
    ``gold`` decided, it is the only reason.
    """
    most = int(most_frequent(counts[None])[0])
    a, b, n = quoted(names[most]), quoted(names[predicted]), int(counts[predicted])
    votes = f"{int(counts[most])} of {count(int(counts.sum()), 'label')} are {a}"
    votes += f" and {n or 'none'} {'is' if n < 2 else 'are'} {b}."
    about = {"item": item, "predicted": predicted}
    if gold:
        text = f"{votes} The gold label is {b}, and gold labels take precedence."
        return Sentence(text, "overturned", **about, similar=None)
    reasons = []
    if agreements is not None and agreements[0] - agreements[1] >= MIN_DIFFERENCE:
        shares = f"{percent(agreements[0])} versus {percent(agreements[1])}"
        reasons.append(f"the annotators who chose {b} agree with others more often ({shares})")
    if similar is not None and similar[1] > similar[2]:
        shares = f"{percent(similar[1])} {b} and {percent(similar[2])} {a}"
        reasons.append(f"{count(len(similar[0]), 'similarly labelled item')} received {shares}")
    why = f" because {listed(reasons)}" if reasons else "; the raw labels show no simple reason"
    codes = None if similar is None else similar[0]
    return Sentence(f"{votes} The model chooses {b}{why}.", "overturned", **about, similar=codes)


def cluster_sentence(counts: NDArray[Any], items: Indices, names: Sequence[str]) -> Sentence:
    """Describe a cluster of similarly labelled items by their labels."""
    total = counts[items].sum(axis=0)
    if not total.sum():
        return Sentence(f"{count(len(items), 'item')} without labels", "cluster", items=items)
    shares = total / int(total.sum())
    first, *others = [int(p) for p in np.argsort(-shares, kind="stable")[:2]]
    their = "their" if len(items) > 1 else "its"
    answers = f"{percent(float(shares[first]))} of {their} labels are {quoted(names[first])}"
    second = [f" and {percent(float(shares[p]))} {quoted(names[p])}" for p in others if shares[p] >= 0.1]
    return Sentence(f"{count(len(items), 'item')}; {answers}{''.join(second)}", "cluster", items=items)


# ---- groups of annotators -----------------------------------------------------------------------------


def view_sentence(votes: Votes, members: Indices, names: Sequence[str]) -> Sentence | None:
    """Describe how annotators with a view of their own differ from the others."""
    inside = is_member(votes, members)
    majorities = by_labels.compare_majorities(votes.votes(inside), votes.votes(~inside))
    if majorities is None or not majorities.n_different:
        return None
    if not by_labels.compare_group(votes, inside).gap.low > 0:
        return None
    a, b, n = majorities.largest
    often = "mostly" if n >= MAJORITY * majorities.n_different else "most often"
    text = (
        f"{'answer' if len(members) > 1 else 'answers'} differently from the others on "
        f"{majorities.n_different:,} of {count(majorities.n_items, 'shared item')}, {often} "
        f"{quoted(names[a])} instead of {quoted(names[b])} ({count(n, 'item')})"
    )
    return Sentence(text, "view", members=members)


def is_member(votes: Votes, members: Indices) -> Mask:
    """Return (annotators,): True for the codes in ``members``."""
    return np.isin(np.arange(votes.sizes[1]), members)


def group_sentence(group: GroupComparison, names: Sequence[str], members: Indices) -> Sentence | None:
    """Describe whom a group agrees with, and which classes it uses more or less than the others."""
    if not group.gap.low > 0:
        return None
    change = group.answers - group.others_answers
    significant = (np.abs(change) >= MIN_DIFFERENCE) & (np.abs(change) > Z_95 * group.error)
    order = [int(p) for p in np.argsort(-np.abs(change), kind="stable") if significant[p]]
    more = [p for p in order if change[p] > 0][:2]
    less = [p for p in order if change[p] < 0][: 0 if more and len(names) == 2 else 1]
    habits = []
    for p in more + less:
        shares = f"{percent(group.answers[p])} versus {percent(group.others_answers[p])}"
        habits.append(f"{quoted(names[p])} {'more' if change[p] > 0 else 'less'} often ({shares})")
    text = ""
    if habits:
        text = (
            f"On items that other annotators labelled too, this group chooses {listed(habits)} than they do. "
        )
    text += f"Its members agree with one another on {percent(group.within)} of shared items, "
    text += f"and with the others on {percent(group.between)}."
    return Sentence(text, "group", members=members)


def contrast_sentence(
    votes: Votes,
    groups: tuple[Indices, Indices],
    letters: Sequence[str],
    items: Indices,
    names: list[str],
    cluster: str,
) -> Sentence | None:
    """Report the class that one group chooses for items of a cluster more often than another group."""
    first, second = (votes.votes(is_member(votes, members))[items] for members in groups)
    both = (first.sum(axis=1) > 0) & (second.sum(axis=1) > 0)
    if not both.any():
        return None
    tables = first[both], second[both]
    shares = [table.sum(axis=0) / table.sum() for table in tables]
    gap = shares[0] - shares[1]
    p = int(gap.argmax())
    # linearised: the contribution of item m to the difference of two ratios of sums
    terms = [(t[:, p] - s[p] * t.sum(axis=1)) / t.sum() for t, s in zip(tables, shares, strict=True)]
    error = math.sqrt(float(((terms[0] - terms[1]) ** 2).sum()))
    if gap[p] < MIN_CONTRAST or gap[p] <= Z_95 * error or both.sum() < MIN_CONTRAST_ITEMS:
        return None
    text = (
        f"Groups {letters[0]} and {letters[1]} both labelled {count(int(both.sum()), 'similar item')} "
        f"({cluster}). On these, {quoted(names[p])} is {percent(float(shares[0][p]))} of the labels of "
        f"{letters[0]} and {percent(float(shares[1][p]))} of those of {letters[1]}."
    )
    return Sentence(text, "contrast", groups=groups, items=items, label=p)


def groups_sentence(n: int, contrast: Sentence | None) -> Sentence | None:
    """Report that groups of annotators answer differently, and their largest contrast."""
    if contrast is None or n < 2:
        return None
    text = f"The annotators form {n} groups that answer differently. {contrast} "
    text += "Analyse the groups separately, or state in the guidelines which answer is right."
    return Sentence(text, "groups", parts=[contrast])


def column_sentence(
    name: str, values: Sequence[str], letters: Sequence[str], value: Indices, group: Indices
) -> Sentence | None:
    """Report the value of a column and the group with the strongest positive association.

    ``value`` and ``group`` are codes of the annotators; −1: in no group.
    """
    counts = np.zeros((len(values), len(letters)))
    np.add.at(counts, (value[group >= 0], group[group >= 0]), 1)
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / max(counts.sum(), 1)
    residual = np.divide(counts - expected, np.sqrt(expected), out=np.zeros(counts.shape), where=expected > 0)
    v, g = divmod(int(residual.argmax()), counts.shape[1])
    share, overall = float((value[group == g] == v).mean()), float((value == v).mean())
    if by_labels.cramers_v(counts) < MIN_CRAMERS_V or residual[v, g] < MIN_RESIDUAL or share <= overall:
        return None
    text = f"{name} is {quoted(values[v])} for {percent(share)} of group {letters[g]} "
    text += f"and {percent(overall)} of all annotators."
    return Sentence(text, "column", column=name, value=values[v], members=np.flatnonzero(group == g))


# ---- one annotator ------------------------------------------------------------------------------------


def standing_sentence(n: int, agreement: AnnotatorAgreement) -> Sentence | None:
    """Report an annotator's agreement with the others."""
    if not agreement.n[n]:
        return None
    value, low, high = agreement.interval(n)
    text = (
        f"agreement with the others is {percent(value)} over {count(int(agreement.n[n]), 'item')} (95\u00a0% "
        f"interval {percent(low)} to {percent(high)}; median annotator: {percent(agreement.median)})"
    )
    return Sentence(text, "standing", annotator=n)


def blind_sentence(n: int, agreement: AnnotatorAgreement, usual_excess: float) -> Sentence | None:
    """Report that labels hardly depend on the item, if agreement is near chance."""
    excess = float(agreement.agreement[n] - agreement.chance[n])
    if not agreement.n[n] or not excess <= MAJORITY * usual_excess:
        return None
    chance = percent(float(agreement.chance[n]))
    text = f"labels hardly depend on the item (agreement expected by chance: {chance})"
    return Sentence(text, "blind", annotator=n)


def few_sentence(n: int, n_labels: int, agreement: AnnotatorAgreement) -> Sentence | None:
    """Report that there are one or two labels, or that agreement is not significantly above chance."""
    reason = "too few for a verdict"
    if agreement.n[n] > 2:
        if float(agreement.agreement[n] - agreement.chance[n]) > Z_95 * float(agreement.excess_error[n]):
            return None
        chance = percent(float(agreement.chance[n]))
        reason = f"not significantly more agreement with the others than the {chance} expected by chance"
    return Sentence(f"{count(n_labels, 'label')}: {reason}", "few", annotator=n)


def rule_sentence(votes: Votes, n: int, names: Sequence[str]) -> Sentence | None:
    """Report the class that an annotator chooses for most items which the others label with another class."""
    answers, P = votes.votes(is_member(votes, np.array([n]))), len(names)
    first, second = most_frequent(answers), most_frequent(votes.table - answers)
    both = (first >= 0) & (second >= 0)
    table = np.bincount(second[both] * P + first[both], minlength=P * P).reshape(P, P)
    total = table.sum(axis=1)
    different = np.where(np.eye(P, dtype=bool), 0, table)
    b, a = divmod(int(different.argmax()), P)
    if different[b, a] < 2 or different[b, a] < MAJORITY * total[b]:
        return None
    items = f"{int(different[b, a]):,} of {count(int(total[b]), 'item')}"
    text = f"chooses {quoted(names[a])} on {items} that the others label {quoted(names[b])}"
    return Sentence(text, "rule", annotator=n)


# ---- judges -------------------------------------------------------------------------------------------


def judges_sentence(names: Sequence[str], rows: Sequence[Mapping[str, Any]], epsilon: float) -> str:
    """Name the judges that may replace a human."""
    passed = [quoted(name) for name, row in zip(names, rows, strict=True) if row["passed"]]
    judges = f"{len(passed) or 'none'} of {count(len(names), 'judge')}"
    text = f"By the alternative annotator test (ε = {epsilon:g}), {judges} may replace a human annotator"
    return f"{text}: {listed(passed)}." if passed else f"{text}."


def describe_test(epsilon: float, nominal: bool) -> str:
    """Explain the alternative annotator test and the columns of its table."""
    score = "agreement with" if nominal else "root mean squared difference from"
    return (
        f"Each human is left out in turn and compared with the judge by {score} the remaining humans. The "
        f"winning rate is the share of humans whom the judge matches or beats, with a bonus ε = {epsilon:g} "
        "for its lower cost; a judge passes at 0.5. The advantage is the probability that the judge is at "
        "least as close to the remaining humans as the human left out. The pooled difference (human minus "
        "judge) uses all labels at once: if it is significantly below ε, the judge may replace the average "
        "human."
    )
