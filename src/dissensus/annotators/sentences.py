"""Numbers into sentences, every one true of the raw labels.

A model may choose whom and what to speak of (these annotators, those items, that class); what is said of them
is counted in the labels as they were given, and a sentence whose own condition does not hold there is not
written: its function gives None. The kinds, and when each is withheld:

* ``agreement``: α and its interval. Withheld where α cannot be computed.
* ``rivals``: between which two classes most disagreements lie. Withheld below half of them.
* ``view``: annotators whose answers differ. Withheld unless they agree with one another more than with the
  others (the 95 % interval of the difference is above 0).
* ``group``: the same, of annotators that a model or a column puts together; a class is named only where the
  group surely uses it more, or less, than the others do on the same items.
* ``contrast``: two groups on some items. Withheld unless the shares of the class are surely apart,
  and by ``LEAST_GAP``.
* ``standing``: one annotator beside the others. ``blind`` (answers hardly depend on the item) is withheld
  where they agree with the others by more than half of what is usual above chance; ``rule`` (one answer in
  place of another) below half of the items; ``few`` where agreement is surely above chance.
* ``overturned``: votes, and reasons that the labels bear out: only those that point that way are named.
* ``cluster``: some items and what they got.
* ``column``: a value of a column against a group. Withheld where chance would do.
* ``check``: annotators to look at. Withheld unless the others surely agree with them less than with one
  another.
* ``adjudicate``, ``more``, ``parts``, ``gold``: items to decide on, items that need a label, parts that no
  label links, and what is right.

Names from the data are quoted; whoever shows a sentence shows it as text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.evaluate import sides as by_labels
from dissensus.evaluate.sides import Side, Standing, Votes, most_frequent
from dissensus.labels.agreement import reading
from dissensus.numerics import Array

NAMED = 5  # annotators named in a sentence
NOTABLE = 0.03  # a difference of shares worth a word
LEAST_GAP = 0.1  # between two groups' shares of a class, to be called a contrast
SURE = 1.96  # standard errors
TENTATIVE = 0.667  # Krippendorff's α below which one label per item is not enough
HALF = 0.5
ASSOCIATED, UNUSUAL = 0.1, 2.0  # Cramér's V and standardised residual of a column that goes with groups
FEWEST, CLOSE = 4, 0.2  # labels of an item to adjudicate, or items of a contrast; how near two answers are


class Sentence(str):
    """A sentence that was found to be true: its kind, and what it speaks of (codes of the labels)."""

    kind: str
    about: Mapping[str, Any]

    def __new__(cls, text: str, kind: str, **about: Any) -> Sentence:
        """The text with what it is about."""
        found = super().__new__(cls, text)
        found.kind, found.about = kind, about
        return found


def percent(share: float) -> str:
    """``58 %``; what is there but below one in a hundred is ``under 1 %``."""
    if 0 < share < 0.01:
        return "under 1\u00a0%"
    if 0.99 < share < 1:
        return "over 99\u00a0%"
    return f"{100 * share:.0f}\u00a0%"


def count(n: int, one: str, many: str = "") -> str:
    """``1 item``, ``2,000 items``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def quoted(name: str) -> str:
    """A class or a value."""
    return f"‘{name}’"


def listed(parts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


# ---- the whole crowd ----------------------------------------------------------------------------------


def agreement_sentence(alpha: float, low: float, high: float) -> Sentence | None:
    """How well annotators agree."""
    if math.isnan(alpha):
        return None
    said = reading(alpha)
    interval = "" if math.isnan(low) else f" (95\u00a0% interval {low:.2f} to {high:.2f})"
    text = f"{said[0].upper()}{said[1:]}: Krippendorff's α is {alpha:.2f}{interval}."
    advice = " Keep the shares of the answers beside the label, or make the guideline clearer."
    return Sentence(text + advice * (alpha < TENTATIVE), "agreement")


def rivals_sentence(counts: NDArray[Any], names: Sequence[str]) -> Sentence | None:
    """The two classes between which most disagreements lie: pairs of labels of one item that differ."""
    # Σ_m n_ma n_mb for every two classes
    pairs = np.triu(counts.astype(np.float64).T @ counts, k=1)
    total = float(pairs.sum())
    if len(names) < 3 or not total or float(pairs.max()) / total < HALF:
        return None
    a, b = divmod(int(pairs.argmax()), len(names))
    share = percent(float(pairs.max()) / total)
    text = f"{share} of all disagreements are between {quoted(names[a])} and {quoted(names[b])}."
    return Sentence(text, "rivals", classes=(a, b))


def parts_sentence(n_parts: int | None, largest: int | None, n_items: int) -> Sentence | None:
    """Parts that no label links."""
    if n_parts is None or n_parts < 2 or largest is None:
        return None
    text = (
        f"The labels fall into {n_parts:,} parts that nobody links (the largest has {largest:,} of "
        f"{count(n_items, 'item')}): let some annotators label items of several parts."
    )
    return Sentence(text, "parts")


# ---- what to do next ----------------------------------------------------------------------------------


def check_sentence(
    votes: Votes, who: NDArray[np.intp], names: Sequence[str], load: NDArray[Any]
) -> Sentence | None:
    """Annotators to look at, if the others do agree with them less than with one another."""
    if not len(who):
        return None
    gap = by_labels.agreement_gap(votes, _among(votes, who))
    if not gap.low > 0:
        return None
    share = percent(float(load[who].sum() / max(load.sum(), 1)))
    named = [names[n] for n in who[:NAMED]] + [f"{len(who) - NAMED:,} more"] * (len(who) > NAMED)
    text = (
        f"Check {count(len(who), 'annotator')} ({share} of the labels): {listed(named)}. "
        f"The others agree with {'them' if len(who) > 1 else 'this one'} {100 * gap.value:.0f} points less "
        "often than with one another."
    )
    return Sentence(text, "check", annotators=who)


def close_items(counts: NDArray[Any]) -> NDArray[np.bool_]:
    """(items,): with some labels, and the two first answers so near that it is nearly a draw."""
    total = counts.sum(axis=1)
    top = np.sort(counts, axis=1)[:, ::-1]
    second = top[:, 1] if counts.shape[1] > 1 else np.zeros(len(counts))
    return np.asarray((total >= FEWEST) & (top[:, 0] - second <= CLOSE * total))


def adjudicate_sentence(
    counts: NDArray[Any], items: NDArray[np.intp], *, unsure: bool = False
) -> Sentence | None:
    """Items on which somebody must decide; ``unsure``: those of which a model is not sure either."""
    items = items[close_items(counts)[items]]
    if not len(items):
        return None
    text = (
        f"Adjudicate {count(len(items), 'item')}: with {FEWEST} labels or more, the two most frequent "
        f"answers are at most a fifth of the labels apart{', and the model is not sure' if unsure else ''}. "
        "Let somebody decide, or keep both answers."
    )
    return Sentence(text, "adjudicate", items=items)


def more_sentence(counts: NDArray[Any], items: NDArray[np.intp]) -> Sentence | None:
    """Items that need a label more, if theirs do agree less, or are fewer, than those of the rest."""
    if not len(items):
        return None
    rest = np.setdiff1d(np.flatnonzero(counts.sum(axis=1) > 0), items)
    own, others = counts[items].sum(axis=1), counts[rest].sum(axis=1)
    top, usual = ((counts[m].max(axis=1) / np.maximum(n, 1)) for m, n in ((items, own), (rest, others)))
    if len(rest) and not (top.mean() < usual.mean() or own.mean() < others.mean()):
        return None
    have = f"they have {own.mean():.1f} on average, and their"
    have = have if len(items) > 1 else f"it has {count(int(own[0]), 'label')}, and its"
    text = (
        f"Ask for more labels on {count(len(items), 'item')}: {have} "
        f"most frequent answer has {percent(float(top.mean()))} of them"
        + (f" ({percent(float(usual.mean()))} elsewhere)." if len(rest) else ".")
    )
    return Sentence(text, "more", items=items)


def gold_sentence(right: Array, who: str, interval: Sequence[float]) -> Sentence | None:
    """How often the labels are right where that is known."""
    if not len(right):
        return None
    ends = f"95\u00a0% interval {percent(interval[0])} to {percent(interval[1])}"
    share, items = percent(float(right.mean())), count(len(right), "item")
    return Sentence(f"{who} is right on {share} of {items} with gold ({ends}).", "gold")


# ---- items --------------------------------------------------------------------------------------------


def overturned_sentence(
    item: int,
    counts: NDArray[Any],
    given: int,
    names: Sequence[str],
    sides: tuple[float, float] | None,
    alike: tuple[NDArray[np.intp], float, float] | None,
    *,
    gold: bool = False,
) -> Sentence:
    """Votes on an item whose most frequent label is not the model's, and what speaks for the model's.

    ``sides``: how often those who said the model's class, and those who said the most frequent one, agree
    with others over all their labels; ``alike``: the other items of its cluster, and the shares of both
    classes among their labels. Only reasons that point that way are named. Where ``gold`` decided, that is
    the reason, and no other.
    """
    most = int(most_frequent(counts[None])[0])
    votes = f"{int(counts[most])} of {int(counts.sum())} said {quoted(names[most])}"
    said = f"{votes} and {int(counts[given]) or 'nobody'} {quoted(names[given])}"
    if gold:
        text = f"{said}. The gold label is {quoted(names[given])}, and gold decides."
        return Sentence(text, "overturned", item=item, given=given, alike=None)
    reasons = []
    if sides is not None and sides[0] - sides[1] >= NOTABLE:
        told = f"{percent(sides[0])} against {percent(sides[1])}"
        reasons.append(f"those who said {quoted(names[given])} agree with others more often ({told})")
    if alike is not None and alike[1] > alike[2]:
        shares = f"{percent(alike[1])} {quoted(names[given])} and {percent(alike[2])} {quoted(names[most])}"
        reasons.append(f"{count(len(alike[0]), 'item')} labelled like it got {shares}")
    because = f", because {listed(reasons)}" if reasons else ", weighing each annotator by their habits"
    text = f"{said}. The model gives {quoted(names[given])}{because}."
    return Sentence(text, "overturned", item=item, given=given, alike=None if alike is None else alike[0])


def cluster_sentence(counts: NDArray[Any], items: NDArray[np.intp], names: Sequence[str]) -> Sentence:
    """Some items that are labelled alike, and what they got."""
    got = counts[items].sum(axis=0)
    shares = got / max(int(got.sum()), 1)
    first, *others = [int(p) for p in np.argsort(-shares, kind="stable")[:2]]
    top = [first, *(p for p in others if shares[p] >= 0.1)]
    answers = listed([f"{percent(float(shares[p]))} {quoted(names[p])}" for p in top])
    return Sentence(f"{count(len(items), 'item')} that got {answers}", "cluster", items=items)


# ---- some annotators beside the others ----------------------------------------------------------------


def view_sentence(votes: Votes, members: NDArray[np.intp], names: Sequence[str]) -> Sentence | None:
    """What annotators with a view of their own say, and the others do not."""
    ours = _among(votes, members)
    found = by_labels.clash(votes.votes(ours), votes.votes(~ours))
    if found is None or not found.n_different or not by_labels.side_of(votes, ours).gap.low > 0:
        return None
    a, b, n = found.largest
    mostly = "mostly " if n >= HALF * found.n_different else "most often "
    text = (
        f"{'give' if len(members) > 1 else 'gives'} another answer than the others on "
        f"{found.n_different:,} of {count(found.n_items, 'item')} that both labelled, {mostly}"
        f"{quoted(names[a])} where the others say {quoted(names[b])} ({n:,})"
    )
    return Sentence(text, "view", members=members)


def _among(votes: Votes, members: NDArray[np.intp]) -> NDArray[np.bool_]:
    return np.isin(np.arange(votes.sizes[1]), members)


def group_sentence(side: Side, names: Sequence[str], members: NDArray[np.intp]) -> Sentence | None:
    """Whom a group agrees with, and which classes it uses more or less than the others on the same items."""
    if not side.gap.low > 0:
        return None
    change = side.own - side.usual
    sure = (np.abs(change) >= NOTABLE) & (np.abs(change) > SURE * side.error)
    order = [int(p) for p in np.argsort(-np.abs(change), kind="stable") if sure[p]]
    more = [p for p in order if change[p] > 0][:2]
    less = [p for p in order if change[p] < 0][: 0 if more and len(names) == 2 else 1]
    own, usual = (list(map(percent, map(float, shares))) for shares in (side.own, side.usual))
    parts = [
        f"{word} often: {listed([f'{quoted(names[p])} ({own[p]} against {usual[p]})' for p in some])}"
        for word, some in (("more", more), ("less", less))
        if some
    ]
    habits = f"On the same items as the others it says {'; '.join(parts)}. " if parts else ""
    text = (
        f"{habits}Its members agree with one another on {percent(side.within)}, with the others on "
        f"{percent(side.between)}."
    )
    return Sentence(text, "group", members=members)


def contrast_sentence(
    votes: Votes,
    sides: tuple[NDArray[np.intp], NDArray[np.intp]],
    letters: tuple[str, str],
    items: NDArray[np.intp],
    names: Sequence[str],
) -> Sentence | None:
    """What one group says of some items, and another does not."""
    first, second = (votes.votes(_among(votes, side))[items] for side in sides)
    both = (first.sum(axis=1) > 0) & (second.sum(axis=1) > 0)
    if not both.any():
        return None
    tables = first[both], second[both]
    shares = [table.sum(axis=0) / table.sum() for table in tables]
    gap = shares[0] - shares[1]
    p = int(gap.argmax())
    # linearised, as in sides.py: what item m adds to the difference of two ratios of sums
    one, other = (
        (table[:, p] - share[p] * table.sum(axis=1)) / table.sum()
        for table, share in zip(tables, shares, strict=True)
    )
    error = math.sqrt(float(((one - other) ** 2).sum()))
    if gap[p] < LEAST_GAP or gap[p] <= SURE * error or both.sum() < FEWEST:
        return None
    text = (
        f"On {count(int(both.sum()), 'item')} group {letters[0]} says {quoted(names[p])} "
        f"{percent(float(shares[0][p]))} of the time, group {letters[1]} {percent(float(shares[1][p]))}."
    )
    return Sentence(text, "contrast", sides=sides, items=items, label=p)


def groups_sentence(n: int, contrast: Sentence | None) -> Sentence | None:
    """That annotators answer in several ways, and where it shows most."""
    if contrast is None or n < 2:
        return None
    text = f"Annotators answer in {n} different ways. {contrast} "
    text += "Keep them apart, or say in the guideline who is right."
    return Sentence(text, "groups", parts=[contrast])


def column_sentence(
    name: str, values: Sequence[str], letters: Sequence[str], value: NDArray[np.intp], group: NDArray[np.intp]
) -> Sentence | None:
    """How a column goes with the groups: the cell that is furthest above what chance would give.

    ``value`` and ``group`` are codes of the annotators; −1: in no group.
    """
    counts = np.zeros((len(values), len(letters)))
    np.add.at(counts, (value[group >= 0], group[group >= 0]), 1)
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / max(counts.sum(), 1)
    spread = np.divide(counts - expected, np.sqrt(expected), out=np.zeros(counts.shape), where=expected > 0)
    v, g = divmod(int(spread.argmax()), counts.shape[1])
    own, overall = float((value[group == g] == v).mean()), float((value == v).mean())
    if by_labels.cramers_v(counts) < ASSOCIATED or spread[v, g] < UNUSUAL or own <= overall:
        return None
    text = (
        f"{quoted(values[v])} ({name}) are {percent(own)} of group {letters[g]} and {percent(overall)} of "
        "all annotators."
    )
    return Sentence(text, "column", column=name, value=values[v], members=np.flatnonzero(group == g))


# ---- one annotator ------------------------------------------------------------------------------------


def standing_sentence(n: int, found: Standing) -> Sentence | None:
    """How often somebody agrees with the others."""
    if not found.n[n]:
        return None
    value, low, high = found.interval(n)
    text = (
        f"agrees with the others on {percent(value)} of {count(int(found.n[n]), 'item')} (95\u00a0% interval "
        f"{percent(low)} to {percent(high)}; usual: {percent(found.usual)})"
    )
    return Sentence(text, "standing", annotator=n)


def blind_sentence(n: int, found: Standing, usual_excess: float) -> Sentence | None:
    """That answers hardly depend on the item, where agreement is near what it would be without looking."""
    excess = float(found.agreement[n] - found.chance[n])
    if not found.n[n] or not excess <= HALF * usual_excess:
        return None
    chance = percent(float(found.chance[n]))
    text = f"answers hardly depend on the item: given without looking they would agree on {chance}"
    return Sentence(text, "blind", annotator=n)


def few_sentence(n: int, n_labels: int, found: Standing) -> Sentence | None:
    """That labels do not tell, where they are one or two, or agreement is not surely above chance."""
    words = ": too few to tell"
    if found.n[n] > 2:
        if float(found.agreement[n] - found.chance[n]) > SURE * float(found.excess_error[n]):
            return None
        words = " that agree with the others not surely more than chance would"
    return Sentence(f"{count(n_labels, 'label')}{words}", "few", annotator=n)


def rule_sentence(votes: Votes, n: int, names: Sequence[str]) -> Sentence | None:
    """That somebody says one class where the others say another, on most items of that class."""
    mine, P = votes.votes(_among(votes, np.array([n]))), len(names)
    first, second = most_frequent(mine), most_frequent(votes.table - mine)
    both = (first >= 0) & (second >= 0)
    table = np.bincount(second[both] * P + first[both], minlength=P * P).reshape(P, P)
    total = table.sum(axis=1)
    wrong = np.where(np.eye(P, dtype=bool), 0, table)
    b, a = divmod(int(wrong.argmax()), P)
    if wrong[b, a] < 2 or wrong[b, a] < HALF * total[b]:
        return None
    items = f"{int(wrong[b, a]):,} of {count(int(total[b]), 'item')}"
    text = f"says {quoted(names[a])} on {items} that the others call {quoted(names[b])}"
    return Sentence(text, "rule", annotator=n)


# ---- judges -------------------------------------------------------------------------------------------


def judges_words(names: Sequence[str], rows: Sequence[Mapping[str, Any]], epsilon: float) -> str:
    """Which judges may replace a human."""
    passed = [name for name, row in zip(names, rows, strict=True) if row["passed"]]
    may = f": {listed([quoted(name) for name in passed])}" if passed else f" (epsilon {epsilon:g})"
    of = f"{len(passed) or 'None'} of {count(len(names), 'judge')}"
    return f"{of} may replace a human by the alternative annotator test{may}."


def test_words(epsilon: float, nominal: bool) -> str:
    """How the test was made."""
    score = "the share of humans who agree" if nominal else "the root mean squared difference from humans"
    return (
        f"Each human is left out in turn and compared with the judge by {score}. The winning rate is "
        f"the share of humans whom it equals or beats, granted {epsilon:g} for its lower cost; 0.5 passes. "
        "The advantage is the chance that the judge is at least as near to the other humans. The pooled "
        "difference is human less judge over all labels at once: below the grant, the judge may replace the "
        "average human."
    )


# ---- the worth of a label -----------------------------------------------------------------------------


def worth_words(shown: int, efficiency: float, pool: int, how: str) -> str:
    """How many raw labels so many refined ones stand for."""
    value = "less than one" if efficiency < 1 else f"{efficiency:.1f}"
    value = f"more than {pool}" if math.isinf(efficiency) else value
    labels = count(shown, "label")
    return f"{labels} per item, refined, come as close to reserved labels as {value} raw ones ({how})."
