"""Numbers into sentences. Names from the data are quoted; the page shows all of it as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXCERPT = 100  # letters of a text that a sentence quotes
NOTABLE = 0.03  # a difference of shares worth a word


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


def excerpt(text: str) -> str:
    """The beginning of a text, on one line, in quotation marks."""
    line = " ".join(text.split())
    return f"“{line if len(line) <= EXCERPT else line[: EXCERPT - 1].rstrip() + '…'}”"


def listed(parts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


# ---- the three sentences ------------------------------------------------------------------------------


def clarity_sentence(clear: float, split: float, rivals: tuple[str, str] | None) -> str:
    """How many items have a clear answer, how many have none, and between what people waver."""
    between = ""
    if rivals is not None:
        between = f"; where people disagree, it is mostly between {quoted(rivals[0])} and {quoted(rivals[1])}"
    if not split:
        undecided = "on every item some answer reaches half"
    else:
        undecided = f"on {percent(split)} no answer reaches half"
    return (
        f"On {percent(clear)} of the items the population has a clear answer (at least two in three would "
        f"give it) and {undecided}{between}."
    )


def groups_sentence(n_groups: int, n_idle: int, between: float, where: str, says: str, borrowed: bool) -> str:
    """Into how many groups annotators fall, on which items they differ most, and what they say there."""
    idle = f" ({n_idle} of them hardly {'looks' if n_idle == 1 else 'look'} at the items)" if n_idle else ""
    over = f", which differ most on {where}: {says}" if says else ""
    return (
        f"{_through(borrowed)} fall into {n_groups} groups{idle}{over}; {percent(between)} of the "
        "disagreement lies between groups, the rest within them."
    )


def one_group_sentence(borrowed: bool) -> str:
    """Where annotators were looked at and no group stands apart."""
    return f"{_through(borrowed)} answer as one group: no other way of answering stands out."


def _through(borrowed: bool) -> str:
    return "Seen through a small joint model, the annotators" if borrowed else "The annotators"


def clusters_sentence(shares: Sequence[float], top: Sequence[tuple[str, float]]) -> str:
    """Where annotators are not grouped: into what clusters the items fall."""
    parts = [
        f"{percent(share)} where {quoted(name)} gets {percent(chance)}"
        for share, (name, chance) in zip(shares, top, strict=True)
    ]
    return f"The items fall into clusters: {listed(parts)}."


NO_CLUSTERS = "This model puts neither items nor annotators into groups."


def gains_sentence(numbers: Mapping[str, Any]) -> str:
    """What the model does better than counting votes."""
    n, share = numbers["n_overturned"], numbers["overturned"]
    changes = (
        f"changes the most frequent label of {count(n, 'item')} ({percent(share)})"
        if n
        else "keeps every item's most frequent label"
    )
    ours, counts = numbers.get("ours"), numbers.get("counts")
    better = ""
    if ours is not None and counts is not None and ours > counts:
        better = (
            f"gives labels it has not seen a higher probability ({percent(ours)} on average instead of "
            f"{percent(counts)}) and "
        )
    return f"Compared with counting votes, the model {better}{changes}{_people(numbers.get('verdicts'))}."


def _people(verdicts: Mapping[str, int] | None) -> str:
    """Spam and minority views, where annotators were judged."""
    if not verdicts:
        return ""
    spam, minority = verdicts.get("spam", 0), verdicts.get("minority view", 0)
    if not spam and not minority:
        return "; no annotator looks like spam"
    parts = [f"{count(spam, 'annotator looks', 'annotators look')} like spam"] if spam else []
    if minority:
        who = f"{minority:,}" if spam else count(minority, "annotator")
        parts.append(f"{who} {'holds' if minority == 1 else 'hold'} a minority view")
    return f"; {listed(parts)}"


# ---- items --------------------------------------------------------------------------------------------


def why_overturned(
    given: str,
    most: str,
    votes: tuple[int, int, int],
    chance: float,
    true_class: bool,
    information: tuple[float, float] | None,
    cluster: tuple[int, float, float] | None,
) -> str:
    """Why the model gives ``given`` where most said ``most``: only reasons that point that way are named.

    ``votes`` are those for given, for most, and all; ``chance`` is the share of the population that would
    say ``given`` or, where a ``true_class`` is looked for, how sure the model is of it; ``information`` is
    the mean of those who said given and of those who said most; ``cluster`` is the item's cluster and what
    the population answers there.
    """
    for_given, for_most, total = votes
    said = f"{for_most} of {total} said {quoted(most)} and {for_given or 'nobody'} {quoted(given)}"
    reasons = []
    if information is not None and information[0] > information[1]:
        told = f"{information[0]:.2f} against {information[1]:.2f} nats a label"
        reasons.append(f"the labels of those who said {quoted(given)} tell more ({told})")
    if cluster is not None and cluster[1] > cluster[2]:
        shares = f"{percent(cluster[1])} {quoted(given)} and {percent(cluster[2])} {quoted(most)}"
        reasons.append(f"it is labelled like items of cluster {cluster[0] + 1}, which get {shares}")
    because = f", because {listed(reasons)}" if reasons else ", weighing each annotator by their own habits"
    if true_class:
        held = f"holds {quoted(given)} to be true ({percent(chance)} sure)"
    else:
        held = f"gives {quoted(given)} a share of {percent(chance)}"
    return f"{said}. The model {held}{because}."


# ---- groups -------------------------------------------------------------------------------------------


def contrast_words(group: str, other: str, answer: str, shares: tuple[float, float]) -> str:
    """What one group says, and another does not."""
    more, less = shares
    return (
        f"group {group} answers {quoted(answer)} {percent(more)} of the time, group {other} {percent(less)}"
    )


def where_words(text: str, share: float) -> str:
    """A cluster of items by an example."""
    return f"items such as {excerpt(text)} ({percent(share)} are in that cluster)"


def cluster_words(place: int, share: float, top: Sequence[tuple[str, float]], true_class: str | None) -> str:
    """A cluster of items in a few words."""
    answers = listed([f"{quoted(name)} {percent(chance)}" for name, chance in top])
    if true_class is not None:
        return f"items that are {quoted(true_class)} at heart ({percent(share)} of the items)"
    return f"cluster {place + 1} ({percent(share)} of the items; {answers})"


def group_habits(more: Sequence[tuple[str, float, float]], less: Sequence[tuple[str, float, float]]) -> str:
    """Which classes a group uses more and less than the others do on the same items."""

    def named(habits: Sequence[tuple[str, float, float]]) -> str:
        return listed(
            [f"{quoted(name)} ({percent(own)} against {percent(others)})" for name, own, others in habits]
        )

    parts = [f"says {named(more)} more often"] if more else []
    parts += [f"says {named(less)} less often"] if less else []
    if not parts:
        return "Uses the classes about as often as the others do."
    return f"On the same items it {listed(parts)} than the others."


def group_difference(cluster: str, answer: str, own: float, others: float) -> str:
    """The cluster of items on which a group stands apart most."""
    return (
        f"It stands apart most on {cluster}: {percent(own)} of its answers are {quoted(answer)}, against "
        f"{percent(others)} of the others'."
    )


def view_words(n: int, share: float, differences: Sequence[tuple[str, str]]) -> str:
    """What annotators with a view of their own see, and the crowd does not."""
    seen = [f"{quoted(own)} where the crowd sees {quoted(crowd)}" for own, crowd in differences]
    mostly = f", mostly {listed(seen)}" if seen else ""
    who = count(n, "annotator sees", "annotators see")
    return f"{who} {percent(share)} of the items differently{mostly}."


UNINFORMATIVE = "Its labels hardly depend on the item."
MOSTLY_SPAM = "Most of its labels come from annotators who look like spam."


def crosstab_sentence(name: str, values: Sequence[str], counts: NDArray[Any], association: float) -> str:
    """How a side column goes with the groups: the cell that is furthest above what chance would give."""
    if association < 0.1:
        return f"{name} has little to do with the groups (Cramér's V {association:.2f})."
    from dissensus.report.clusters import group_name

    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    spread = np.divide(counts - expected, np.sqrt(expected), out=np.zeros(counts.shape), where=expected > 0)
    row, group = divmod(int(spread.argmax()), counts.shape[1])
    own = counts[row, group] / counts[:, group].sum()
    overall = counts[row].sum() / counts.sum()
    return (
        f"{name} goes with the groups (Cramér's V {association:.2f}): {quoted(values[row])} are "
        f"{percent(own)} of group {group_name(group)} and {percent(overall)} of all annotators."
    )


# ---- quality ------------------------------------------------------------------------------------------


def agreement_words(alpha: float) -> str:
    """Krippendorff's own marks: 0.8 and 0.667."""
    if math.isnan(alpha):
        return "cannot be computed: no two labels to compare, or one class only"
    if alpha >= 0.8:
        return "annotators agree well"
    if alpha >= 0.667:
        return "enough agreement for tentative conclusions"
    return "they disagree often" if alpha >= 0.2 else "agreement is little above chance"


def worth_words(shown: int, efficiency: float, pool: int, how: str) -> str:
    """How many raw labels so many refined ones stand for."""
    if math.isinf(efficiency):
        value = f"more than {pool}"
    elif efficiency < 1:
        value = "less than one"
    else:
        value = f"{efficiency:.1f}"
    labels = count(shown, "label")
    return f"{labels} per item, refined, come as close to reserved labels as {value} raw ones ({how})."


# ---- judges -------------------------------------------------------------------------------------------


def judges_words(names: Sequence[str], rows: Sequence[Mapping[str, Any]], epsilon: float) -> str:
    """Which judges may replace a human."""
    passed = [name for name, row in zip(names, rows, strict=True) if row["passed"]]
    of = count(len(names), "judge")
    if not passed:
        return f"None of {of} may replace a human by the alternative annotator test (epsilon {epsilon:g})."
    may = listed([quoted(name) for name in passed])
    return f"{len(passed)} of {of} may replace a human by the alternative annotator test: {may}."


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


def panel_words(n: int, votes: float, low: float, high: float, together: Sequence[Sequence[str]]) -> str:
    """How many votes a panel is, and who errs together."""
    groups = "; ".join(listed([quoted(name) for name in group]) for group in together)
    err = f" They err together: {groups}." if together else ""
    return (
        f"Together the {n} judges are worth {votes:.1f} independent votes (95\u00a0% interval {low:.1f} to "
        f"{high:.1f}): given what humans say of an item, they still agree with each other.{err}"
    )
