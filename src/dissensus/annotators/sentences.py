"""Sentences about the labels, each of them true of the raw labels.

A model may choose what a sentence is about (annotators, items, a class); the numbers in it are counted in the
raw labels, and a sentence is withheld (its function returns None) if the condition of its kind does not hold
there. The kinds and their conditions:

* ``agreement``: α, its interval and the agreement of two labels. Withheld if α is undefined.
* ``rivals``: the two classes with most of the disagreements. Withheld if they have less than half of them.
* ``groups``: two groups of annotators, with agreement and a habit counted on items that were not used to find
  them. Withheld without groups.
* ``contrast``: where their most frequent answers differ. Withheld if they differ on no item.
* ``group``: annotators with the same value of a column. Withheld unless they agree with one another more than
  with the others (95 % interval of the difference above 0); a class is named only if the group uses it
  significantly more, or less, than the others on the same items.
* ``standing``: agreement of one annotator with the others, and of two others on the same items. ``bias`` is
  withheld if its interval contains 0; ``blind`` (labels hardly depend on the item) if agreement above chance
  is more than half of the usual; ``constant`` needs the same answer to
  five items or more; ``rule`` (one class in place of another) below half of the items;
  ``undecided`` if agreement is significantly above chance and all probabilities are clear.
* ``overturned``: labels of an item, and reasons for the model's answer; only those that the labels confirm.
* ``cluster``: items and the labels they received.
* ``column``: a value of a column in a group. Withheld if chance explains it.
* ``attribute``: the share of the disagreement that a column explains. Withheld if no item has labels by two
  annotators with the same value and one with another.
* ``check``: annotators to look at first, with what is wrong. Withheld if there are none.
* ``finding``: a verdict of the model alone; it says that the raw labels give no reason.
* ``adjudicate``, ``more``, ``parts``, ``gold``: items to decide, items that need labels, unconnected parts of
  the data, and accuracy.

Names from the data are quoted; sentences must be displayed as plain text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dissensus.evaluate import group_agreement as by_labels
from dissensus.evaluate.group_agreement import AnnotatorAgreement, GroupComparison, Votes, Z, most_frequent
from dissensus.labels.agreement import reading
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import class_values
from dissensus.numerics import Array, Indices, Mask

if TYPE_CHECKING:
    from dissensus.annotators.groups import Groups

MAX_NAMES = 5  # annotators named in a sentence
MIN_DIFFERENCE = 0.03  # difference of two shares that is mentioned
MIN_ALPHA = 0.667  # Krippendorff's α below which one label per item is not enough
MAJORITY = 0.5
MIN_CRAMERS_V, MIN_RESIDUAL = 0.1, 2.0  # of a column associated with groups; standardised residual
MIN_LABELS_TO_ADJUDICATE, MAX_TIE_GAP = 4, 0.2  # of an item; gap between the shares of its two top answers
MIN_CONTRAST_ITEMS, MIN_CONSTANT_ITEMS = 4, 5
MIN_LEANING = 4  # annotators to look at, of whom most share a bias
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
    level = reading(alpha, low, high)
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
    text = f"The labels form {n_parts:,} unconnected parts: no annotator labelled items of two parts "
    text += f"(the largest has {largest:,} of {count(n_items, 'item')}). "
    text += "Have some annotators label items of several parts."
    return Sentence(text, "parts")


# ---- what to do next ----------------------------------------------------------------------------------


def check_sentence(
    annotators: Indices,
    names: Sequence[str],
    load: Any,
    agreement: AnnotatorAgreement,
    reasons: Sequence[str],
    leaning: tuple[str, bool, int] = ("", False, 0),
) -> Sentence | None:
    """Name the annotators to look at first, each with a reason; ``reasons`` has one for every annotator.

    ``leaning`` is a bias and how many share it; it is reported if these are most of four or more annotators.
    """
    if not len(annotators):
        return None
    n, listing = len(annotators), []
    for code in annotators[:MAX_NAMES]:
        facts = ", ".join(filter(None, (reasons[code], gap_words(int(code), agreement))))
        listing.append(f"{names[code]} ({facts})" if facts else str(names[code]))
    listing += [f"{n - MAX_NAMES:,} more"] * (n > MAX_NAMES)
    share = percent(float(load[annotators].sum() / max(load.sum(), 1)))
    order = "; most disagreements first" * (n > 1)
    name, more, alike = leaning
    common = ""
    if n >= MIN_LEANING and 2 * alike > n:
        often = f"{quoted(name)} {'more' if more else 'less'} often"
        direction = often if name else "higher" if more else "lower"
        common = f"{alike:,} of them answer {direction} than the others of the same items. "
    text = f"Talk to {count(n, 'annotator')} first ({share} of the labels{order}): {listed(listing)}. "
    text += f"{common}Read the evidence before you exclude anyone."
    return Sentence(text, "check", annotators=annotators)


def gap_words(n: int, agreement: AnnotatorAgreement) -> str:
    """Return ``agrees on 65 %, others on 81 % of the same items``; empty if no two others labelled them."""
    if not agreement.n_usual[n]:
        return ""
    value = float(agreement.usual[n] + agreement.gap[n])
    return f"agrees on {percent(value)}, others on {percent(float(agreement.usual[n]))} of the same items"


def labels_to_adjudicate(counts: NDArray[Any]) -> int:
    """Return the labels that an item needs to be adjudicated: four, or fewer if no item has as many."""
    return max(min(MIN_LABELS_TO_ADJUDICATE, int(counts.sum(axis=1).max(initial=0))), 2)


def close_items(counts: NDArray[Any]) -> Mask:
    """Return (items,): items with enough labels whose two most frequent answers are nearly tied."""
    total = counts.sum(axis=1)
    top = np.sort(counts, axis=1)[:, ::-1]
    second = top[:, 1] if counts.shape[1] > 1 else np.zeros(len(counts))
    return np.asarray((total >= labels_to_adjudicate(counts)) & (top[:, 0] - second <= MAX_TIE_GAP * total))


def adjudicate_sentence(counts: NDArray[Any], items: Indices, *, unsure: bool = False) -> Sentence | None:
    """Report nearly tied items, which need a decision; ``unsure``: the model is unsure of them too."""
    items = items[close_items(counts)[items]]
    if not len(items):
        return None
    text = (
        f"Adjudicate {count(len(items), 'item')}: {'each' if len(items) > 1 else 'it'} has "
        f"{labels_to_adjudicate(counts)} or more labels,"
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


def group_sentence(group: GroupComparison, names: Sequence[str], members: Indices) -> Sentence | None:
    """Describe whom a group agrees with, and which classes it uses more or less than the others."""
    if not group.gap.low > 0:
        return None
    change = group.answers - group.others_answers
    significant = (np.abs(change) >= MIN_DIFFERENCE) & (np.abs(change) > Z * group.error)
    order = [int(p) for p in np.argsort(-np.abs(change), kind="stable") if significant[p]]
    more = [p for p in order if change[p] > 0][:2]
    less = [p for p in order if change[p] < 0][: 0 if more and len(names) == 2 else 1]
    habits = []
    for p in more + less:
        shares = f"{percent(group.answers[p])} versus {percent(group.others_answers[p])}"
        habits.append(f"{quoted(names[p])} {'more' if change[p] > 0 else 'less'} often ({shares})")
    text = f"Its members agree with one another on {percent(group.within)} of shared items, "
    text += f"and with the others on {percent(group.between)}."
    if habits:
        they = f"On items that other annotators labelled too, this group chooses {listed(habits)}"
        text = f"{they} than they do. {text}"
    return Sentence(text, "group", members=members)


def habit(tables: Array, names: Sequence[str], values: Array | None) -> tuple[str, str]:
    """Return how the second group's answers differ from the first's, as a name and in numbers.

    ``tables`` (2, items, classes) are the answers of both groups. Items count equally. Both are empty unless
    a class, or the mean of the ``values`` of ordered classes, differs significantly.
    """
    both = (tables.sum(axis=2) > 0.5).all(axis=0)
    first, second = (table[both] / table[both].sum(axis=1, keepdims=True) for table in tables)
    n = int(both.sum())
    if n < MIN_CONTRAST_ITEMS:
        return "", ""
    if values is not None:
        gaps = (second - first) @ values
        value, error = float(gaps.mean()), float(gaps.std(ddof=1)) / math.sqrt(n)
        if abs(value) <= Z * error:
            return "", ""
        larger, smaller = (float((shares @ values).mean()) for shares in (first, second))
        name = "higher grades" if value > 0 else "lower grades"
        return name, f"the mean grade of the smaller group is {smaller:.2f}, that of the larger {larger:.2f}"
    gaps = second - first
    change, error = gaps.mean(axis=0), gaps.std(axis=0, ddof=1) / math.sqrt(n)
    significant = (np.abs(change) > Z * error) & (np.abs(change) >= MIN_DIFFERENCE)
    if not significant.any():
        return "", ""
    # with two classes, the rarer one is named
    p = int((np.abs(change) * significant - 1e-6 * first.mean(axis=0)).argmax())
    shares = percent(float(second[:, p].mean())), percent(float(first[:, p].mean()))
    often = "more" if change[p] > 0 else "less"
    words = f"the smaller group answers {quoted(names[p])} {often} often: {shares[0]} against {shares[1]}"
    return f"{often} often {quoted(names[p])}", words


def groups_sentence(groups: Groups | None, labels: Annotations) -> Sentence | None:
    """Report that there are two groups, how the smaller one answers, and their agreement."""
    if groups is None:
        return None
    values = class_values(labels) if labels.label_type == "ordinal" else None
    tables = groups.tables(Votes.of(labels))
    n = int((tables.sum(axis=2) > 0.5).all(axis=0).sum())
    words = habit(tables, [str(name) for name in labels.classes], values)[1]
    sizes = [int((groups.group == g).sum()) for g in range(2)]
    neither = labels.n_annotators - sum(sizes)
    rest = f", {neither:,} in neither" * (neither > 0)
    low, high = 100 * groups.gap.low, 100 * groups.gap.high
    text = (
        f"The annotators form two groups that answer differently ({sizes[0]:,} and {sizes[1]:,} annotators"
        f"{rest}). Counted on items not used to find them, two members "
        f"of the smaller group agree on {percent(groups.within[1])} of shared items, two of the larger on "
        f"{percent(groups.within[0])}, and members of different groups on {percent(groups.across)} (mean "
        f"difference {100 * groups.gap.value:.0f} points, 95\u00a0% interval {low:.0f} to {high:.0f})."
    )
    if not groups.is_related:
        text += " That is as often as by chance: the members of one group may copy random answers, "
        text += "or answer another question."
    if words:
        text += f" On {count(n, 'item')} that both groups labelled, {words}."
    text += " Analyse the groups separately, or state in the guidelines which answer is right."
    return Sentence(text, "groups", groups=groups)


def contrast_sentence(groups: Groups | None, labels: Annotations) -> Sentence | None:
    """Report on how many items the most frequent answers of the groups differ."""
    if groups is None:
        return None
    tables, names = groups.tables(Votes.of(labels)), [str(name) for name in labels.classes]
    majorities = by_labels.compare_majorities(tables[1], tables[0])
    if majorities is None or not majorities.n_different:
        return None
    a, b, n = majorities.largest
    often = "mostly" if n >= MAJORITY * majorities.n_different else "most often"
    items = f"{majorities.n_different:,} of {count(majorities.n_items, 'shared item')}"
    text = f"The most frequent answers of the groups differ on {items}, {often} {quoted(names[a])} in the "
    text += f"smaller group and {quoted(names[b])} in the larger ({count(n, 'item')})."
    return Sentence(text, "contrast", groups=groups)


def no_groups(n_parts: int) -> str:
    """Return that there are no groups, and what cannot be compared if the data have several parts."""
    text = "The labels show no groups of annotators who answer differently."
    return text + " Annotators in unconnected parts of the data cannot be compared." * (n_parts > 1)


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


def attribute_sentence(name: str, explained: float, low: float, high: float) -> Sentence | None:
    """Report the share of the disagreement that a column explains; None if it is not known."""
    if math.isnan(explained):
        return None
    share, *ends = (f"{100 * value:.0f}\u00a0%".replace("-", "−") for value in (explained, low, high))
    nothing = "" if low > 0 else ", which may be nothing"
    interval = f"(90\u00a0% interval {ends[0]} to {ends[1]})"
    text = f"{quoted(name)} explains {share} of the disagreement about an item {interval}{nothing}."
    return Sentence(text, "attribute", column=name)


# ---- one annotator ------------------------------------------------------------------------------------


def standing_sentence(n: int, agreement: AnnotatorAgreement) -> Sentence | None:
    """Report an annotator's agreement with the others, and that of two others on the same items."""
    if not agreement.n[n]:
        return None
    value, low, high = agreement.interval(n)
    text = f"agrees with another annotator on {percent(value)} of {count(int(agreement.n[n]), 'item')}"
    if agreement.n[n] > 1:
        text += f" (95\u00a0% interval {percent(low)} to {percent(high)})"
    if agreement.n_usual[n] > 1:
        gap, reach = 100 * float(agreement.gap[n]), 100 * Z * float(agreement.gap_error[n])
        same = "the same items"
        if agreement.n_usual[n] < agreement.n[n]:
            same = f"{int(agreement.n_usual[n]):,} of these items"
        text += (
            f"; on {same}, two others agree on {percent(float(agreement.usual[n]))} (difference "
            f"{round(gap):+d} points, 95\u00a0% interval {round(gap - reach):+d} to {round(gap + reach):+d})"
        )
    return Sentence(text, "standing", annotator=n)


def bias_words(class_name: str, bias: float, error: float) -> str:
    """Return ``‘hate’ 16 points more often`` or ``0.5 lower on the scale``; empty if 0 is in the interval."""
    if not abs(bias) > error:
        return ""
    if class_name:
        often = "more" if bias > 0 else "less"
        words = f"{quoted(class_name)} {100 * abs(bias):.0f} points {often} often"
        return words if round(100 * abs(bias)) else ""
    higher = "higher" if bias > 0 else "lower"
    return f"{abs(bias):.1f} {higher} on the scale" if round(abs(bias), 1) else ""


def bias_sentence(n: int, class_name: str, bias: float, error: float) -> Sentence | None:
    """Report a bias whose interval does not contain 0: towards a class, or in grades if there is none."""
    words = bias_words(class_name, bias, error)
    if not words:
        return None
    reach = f"{100 * error:.0f}" if class_name else f"{error:.1f}"
    return Sentence(f"answers {words} than the others of the same items (± {reach})", "bias", annotator=n)


def member_sentence(n: int, probability: float) -> Sentence:
    """Report that an annotator belongs to the smaller group."""
    text = f"belongs to the smaller group (probability {percent(probability)})"
    return Sentence(text, "member", annotator=n)


def constant_sentence(votes: Votes, n: int, names: Sequence[str]) -> Sentence | None:
    """Report that an annotator gives the same answer to every one of at least five items."""
    answers = votes.votes(np.arange(votes.sizes[1]) == n).sum(axis=0)
    if answers.sum() < MIN_CONSTANT_ITEMS - 0.5 or (answers > 0).sum() > 1:
        return None
    text = f"answers {quoted(names[int(answers.argmax())])} to all {count(round(answers.sum()), 'item')}"
    return Sentence(text, "constant", annotator=n)


def blind_sentence(n: int, agreement: AnnotatorAgreement, usual_excess: float) -> Sentence | None:
    """Report that labels hardly depend on the item, if agreement is near chance."""
    excess = float(agreement.agreement[n] - agreement.chance[n])
    if not agreement.n[n] or not excess <= MAJORITY * usual_excess:
        return None
    chance = percent(float(agreement.chance[n]))
    text = f"agrees with the others hardly more often than by chance ({chance})"
    return Sentence(text, "blind", annotator=n)


def undecided_sentence(
    n: int, n_labels: int, agreement: AnnotatorAgreement, needed: int | None, spam: float, minority: float
) -> Sentence | None:
    """Report why there is no verdict, and how many labels are usually enough."""
    labels, reason = count(n_labels, "label"), ""
    if agreement.n[n] <= 2:
        reason = f"shares {count(int(agreement.n[n]), 'item')} with others"
    elif agreement.chance[n] > 1 - 1e-9:
        reason = "all labels are alike"
    elif not agreement.depends[n]:
        chance = percent(float(agreement.chance[n]))
        reason = f"agreement with the others is not significantly above the {chance} expected by chance"
    elif minority > MAJORITY:
        reason = f"the labels fit the smaller group with probability {percent(minority)}"
    else:
        reason = f"the labels are random with probability {percent(spam)}"
    text = f"{labels}: {reason}"
    if needed is not None and needed > n_labels:
        text += f"; about {needed:,} labels on items that others label too are usually enough here"
    return Sentence(text, "undecided", annotator=n)


def rule_sentence(votes: Votes, n: int, names: Sequence[str]) -> Sentence | None:
    """Report the class that an annotator chooses for most items which the others label with another class."""
    answers, P = votes.votes(np.arange(votes.sizes[1]) == n), len(names)
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
    """Name the judges that can replace a human, and explain the verdicts."""
    replacing = [quoted(name) for name, row in zip(names, rows, strict=True) if row["verdict"] == "replaces"]
    text = f"{len(replacing) or 'None'} of {count(len(names), 'judge')} can replace a human"
    text = f"{text}: {listed(replacing)}." if replacing else f"{text}."
    return f"{text} {verdict_sentence(epsilon)}"


def verdict_sentence(epsilon: float) -> str:
    """Explain the three verdicts on judges."""
    return (
        f"‘replaces’: at least as good as half of the humans, with a tolerance of ε = {epsilon:g} "
        "(alternative annotator test), or as the average human if most labels are by humans with fewer than "
        "30 items; ‘no’: shown to be behind the humans; ‘nearly’: the labels show neither."
    )


def describe_test(epsilon: float, nominal: bool) -> str:
    """Explain the alternative annotator test and the columns of its table."""
    score = "agreement with" if nominal else "root mean squared difference from"
    return (
        f"Each human is left out in turn and compared with the judge by {score} the remaining humans. "
        f"Winning rate: share of humans whom it matches or beats, with ε = {epsilon:g} for its lower cost. "
        "Advantage: chance of being as close to the others. Pooled difference: human minus judge."
    )
