"""How right the verdicts on annotators are: simulated crowds, random seeds, and real crowds with gold labels.

python -m experiments.verdicts [--crowds N] [--data DIR] [--finished FILE]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dissensus as ds
from dissensus._version import __version__
from dissensus.annotators.groups import MIN_Z, Rows, _compare, find_groups
from dissensus.annotators.verdicts import VERDICTS, AnnotatorVerdicts, annotator_verdicts
from dissensus.evaluate.group_agreement import MIN_GAP, Votes, Z, annotator_agreement
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import LabelType
from experiments.runner import Measurements, Values, line, page_parser, read_dataset, table, write_page, yes

TYPICAL, SPAM, GROUP, ADVERSARY = "typical", "spam", "group", "adversary"
STRATEGIES = ("uniform", "frequencies", "constant", "copy-cats")
LABELS_EACH = (5, 10, 20, 50, 100, 200)
CONSTANT_SHARE = 0.95  # how often a constant spammer gives the favourite class

N_CROWDS = 200  # crowds without groups; a quarter or a tenth of every other kind
SHORT_FIT: dict[str, Any] = {"n_chains": 2, "n_sweeps": 100, "n_jobs": 1}
FIVE_GRADES, TWO_CLASSES = "harsh and lenient, five grades", "harsh and lenient, two classes"
POOR, SKILL, DIFFICULTY = "one poor rater", "differing skill", "items of differing difficulty"
SKEW, THREE, PROLIFIC = "95 % in one class", "three annotators", "one labels every item"
PLAIN_KINDS = ("exchangeable", POOR, FIVE_GRADES, TWO_CLASSES, DIFFICULTY, SKEW, THREE, PROLIFIC, SKILL)
N_SEEDS, SEED_LABELS = 10, (20, 50, 50, 100, 200)  # fits, and labels each in the planted crowds
REAL_SETS = ("jq1", "hs_brexit", "gwsd", "md_agreement")
SEED_SETS = (*REAL_SETS, "canteen", *range(len(SEED_LABELS)))  # numbers: planted crowds
GROUP_SHARES, CONTESTED = (0.15, 0.3, 0.5), 0.2  # annotators, and items that they see differently
GROUP_SIZES = ((40, 5), (100, 5), (200, 5), (40, 10), (100, 10))  # labels each, labels per item
OUTLIER_LABELS, OUTLIERS = (100, 200, 400), 2
USUAL_ACCURACY, OUTLIER_ACCURACY = 0.85, 0.648  # with 20 annotators and 4 classes, a gap of −0.150
PROBABILITY_BINS = (0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0)
MIN_GOLD_LABELS = 5  # labels on gold items that an annotator needs for an accuracy
GOLD_DATASETS = (
    "adult2", "barzan_ac2", "bluebirds", "face_sentiment", "labelme", "product", "rte", "snow_wsd",
    "trec_rf10", "weather_sentiment_amt", "weather_sentiment_cf", "web_search", "zencrowd",
)  # fmt: skip


# ---- planted crowds -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlantedCrowd:
    """Simulated labels with the planted kind of each annotator."""

    annotations: Annotations
    kind: NDArray[np.str_]  # (annotators,): "typical", "spam", "group" or "adversary"
    settings: dict[str, Any]


def assigned(rng: np.random.Generator, N: int, each: int, per_item: int) -> tuple[Any, Any, int]:
    """Assign items to annotators at random; return item and annotator of each label, and the items."""
    annotator = np.concatenate([rng.permutation(N) for _ in range(each)])
    item = np.arange(annotator.size) // per_item
    return item, annotator, int(item[-1]) + 1


def planted_crowd(
    seed: int,
    *,
    n_annotators: int = 60,
    labels_each: int = 50,
    labels_per_item: int = 5,
    n_classes: int = 4,
    skew: float = 0.0,
    spammers: float = 0.1,
    strategy: str = "uniform",
    adversaries: float = 0.0,
    group: float = 0.0,
    contested: float = 1 / 3,
    accuracy: float = 0.8,
    spread: float = 0.07,
) -> PlantedCrowd:
    """Simulate a crowd with spammers, adversaries and a group with a different view.

    Every item has a class. On a share ``contested`` of the items, the group sees the next class instead.
    Annotators give the class they see with their own accuracy, and another class otherwise; adversaries
    shift every answer by one class. Spammers ignore the item: they answer uniformly, by the class
    frequencies, with a constant class, or as copy-cats with the same answer to an item. ``skew`` is the
    additional frequency of the first class.
    """
    settings = {name: value for name, value in locals().items() if name != "seed"}
    rng = np.random.default_rng(seed)
    N, P = n_annotators, n_classes
    item, annotator, M = assigned(rng, N, labels_each, labels_per_item)
    sizes = [round(share * N) for share in (spammers, group, adversaries)]
    kind = rng.permutation(np.repeat([SPAM, GROUP, ADVERSARY, TYPICAL], [*sizes, N - sum(sizes)]))
    shares = (1 - skew) / P + skew * (np.arange(P) == 0)
    truth = rng.choice(P, size=M, p=shares)
    other = (truth + 1) % P
    seen = np.where((rng.random(M) < contested)[item] & (kind == GROUP)[annotator], other[item], truth[item])
    right = np.clip(rng.normal(accuracy, spread, size=N), 0.55, 0.98)[annotator]
    wrong = other_class(rng, seen, P)
    label = np.where(rng.random(item.size) < right, seen, wrong)
    label = np.where((kind == ADVERSARY)[annotator], (label + 1) % P, label)
    spam = rng.integers(P, size=item.size)
    if strategy == "frequencies":
        spam = rng.choice(P, size=item.size, p=shares)
    elif strategy == "constant":
        favourite = rng.choice(P, size=N, p=shares)[annotator]
        spam = np.where(rng.random(item.size) < CONSTANT_SHARE, favourite, spam)
    elif strategy == "copy-cats":
        spam = rng.choice(P, size=M, p=shares)[item]
    label = np.where((kind == SPAM)[annotator], spam, label)
    return PlantedCrowd(crowd_labels(item, annotator, label, P), kind, settings)


def random_crowd(seed: int) -> PlantedCrowd:
    """Simulate a crowd with random settings; the labels per annotator cycle through ``LABELS_EACH``."""
    rng = np.random.default_rng([7, seed])
    return planted_crowd(
        seed,
        labels_each=LABELS_EACH[seed % len(LABELS_EACH)],
        labels_per_item=int(rng.choice([3, 5, 8])),
        n_classes=int(rng.choice([2, 3, 4, 6])),
        skew=float(rng.choice([0.0, 0.5])),
        spammers=float(rng.choice([0.0, 0.0, 0.05, 0.1, 0.3])),
        strategy=str(rng.choice(STRATEGIES)),
        adversaries=float(rng.choice([0.0, 0.05])),
        group=float(rng.choice([0.0, 0.05, 0.15, 0.3, 0.5])),
        accuracy=float(rng.choice([0.7, 0.8, 0.9])),
    )


def plain_kind(seed: int) -> str:
    """Return the kind of a crowd without groups; they cycle through ``PLAIN_KINDS``."""
    turn, kind = divmod(seed, len(PLAIN_KINDS))
    is_scale = PLAIN_KINDS[kind] == FIVE_GRADES
    return f"{FIVE_GRADES}, {('ordered', 'unordered')[turn % 2]}" if is_scale else PLAIN_KINDS[kind]


def plain_crowd(seed: int) -> Annotations:
    """Simulate a crowd without groups, of random size.

    Annotators are right with a probability that their skill, or the item's, puts between chance and 1. Harsh
    and lenient ones place items on a scale with an offset of their own.
    """
    rng, kind = np.random.default_rng([11, seed]), plain_kind(seed)
    N = 3 if kind == THREE else int(rng.choice([8, 20, 60]))
    each, per_item, P = (int(rng.choice(sizes)) for sizes in ([40, 100, 200], [3, 5, 8], [2, 3, 4]))
    item, annotator, M = assigned(rng, N, each, min(per_item, N))
    if kind == PROLIFIC:
        item, annotator = np.append(item, np.arange(M)), np.append(annotator, np.zeros(M, int))
    item, annotator = np.divmod(np.unique(item * N + annotator), N)  # once per item
    if kind.startswith((FIVE_GRADES, TWO_CLASSES)):
        cuts = np.zeros(1) if kind == TWO_CLASSES else np.arange(-1.5, 2)
        value = rng.normal(0, 1, M)[item] + rng.normal(0, 0.6, N)[annotator] + rng.normal(0, 0.6, item.size)
        grade, is_scale = np.searchsorted(cuts, value), kind.endswith(", ordered")
        return crowd_labels(item, annotator, grade, len(cuts) + 1, is_scale)
    first = 0.95 if kind == SKEW else 1 / P
    truth = np.where(rng.random(M) < first, 0, rng.integers(1, P, M))[item]
    skill = np.clip(rng.normal(0.65, 0.2, N), 0.2, 0.97) if kind == SKILL else np.full(N, 0.7)
    if kind == POOR:
        skill[0] = 0.35
    above_chance = rng.beta(2, 1, M)[item] if kind == DIFFICULTY else skill[annotator]
    right = rng.random(item.size) < (1 + (P - 1) * above_chance) / P
    return crowd_labels(item, annotator, np.where(right, truth, other_class(rng, truth, P)), P)


def crowd_with_outliers(seed: int, each: int, N: int = 20, P: int = 4) -> Annotations:
    """Simulate a crowd in which the first annotators agree 15 points less with others than those do."""
    rng = np.random.default_rng([13, seed])
    item, annotator, M = assigned(rng, N, each, 5)
    truth = rng.integers(P, size=M)[item]
    right = rng.random(item.size) < np.where(annotator < OUTLIERS, OUTLIER_ACCURACY, USUAL_ACCURACY)
    return crowd_labels(item, annotator, np.where(right, truth, other_class(rng, truth, P)), P)


def other_class(rng: np.random.Generator, label: NDArray[Any], P: int) -> NDArray[Any]:
    """Draw a different class for each label."""
    return np.asarray((label + rng.integers(1, P, size=label.size)) % P)


def crowd_labels(item: Any, annotator: Any, label: Any, P: int, is_scale: bool = False) -> Annotations:
    """Return simulated labels of ``P`` classes, ordered if they form a scale."""
    kind: LabelType = "ordinal" if is_scale else "nominal"
    return Annotations.from_arrays(item, annotator, label, classes=range(P), label_type=kind)


# ---- measuring ----------------------------------------------------------------------------------------


def short_verdicts(labels: Annotations) -> AnnotatorVerdicts:
    """Return the verdicts of a short fit."""
    return annotator_verdicts(labels, ds.HPGM(**SHORT_FIT).fit(labels))


def planted_verdicts(seed: int) -> Values:
    """Measure the verdicts on a random planted crowd."""
    crowd = random_crowd(seed)
    verdicts = short_verdicts(crowd.annotations)
    return {
        "kind": crowd.kind.tolist(),
        "verdict": verdicts.verdict.tolist(),
        "check": verdicts.check.tolist(),
        "probability": verdicts.spam_probability.tolist(),
        **{name: crowd.settings[name] for name in ("labels_each", "strategy")},
    }


def plain_verdicts(seed: int) -> Values:
    """Count the verdicts on a crowd without groups, and say whether groups are claimed."""
    verdicts = short_verdicts(plain_crowd(seed))
    return verdicts.counts() | {"groups": verdicts.groups is not None}


def seed_verdicts(name: str | int, data: Path) -> Values:
    """Return the verdicts of default fits with several seeds, and how often groups are claimed."""
    if isinstance(name, int):
        crowd = planted_crowd(200 + name, labels_each=SEED_LABELS[name], group=0.2, adversaries=0.05)
        labels = crowd.annotations
    else:
        labels = ds.datasets.load(name) if name == "canteen" else read_dataset(data / name)
    found = [annotator_verdicts(labels, ds.HPGM(seed=s, n_jobs=1).fit(labels)) for s in range(N_SEEDS)]
    codes = [[VERDICTS.index(verdict) for verdict in verdicts.verdict] for verdicts in found]
    return {"verdicts": codes, "groups": sum(verdicts.groups is not None for verdicts in found)}


def group_values(seed: int, share: float, each: int, per_item: int) -> Values:
    """Look for a planted group; ``z`` is that of the test of residuals with the true memberships."""
    crowd = planted_crowd(
        seed, labels_each=each, labels_per_item=per_item, spammers=0, group=share, contested=CONTESTED,
        accuracy=USUAL_ACCURACY,
    )  # fmt: skip
    votes, member = Votes.of(crowd.annotations), crowd.kind == GROUP
    known = _compare([Rows.of(votes, True).pair_sums(member.astype(int), "residual")])
    assert known is not None
    values = {"z": Z * known[1].value / (known[1].high - known[1].value)}
    groups = find_groups(votes)
    if groups is None:
        return values | {"found": 0, "put": 0, "right": 0, "members": 0}
    sides = [groups.group == g for g in ((0, 1) if share == 0.5 else (1,))]
    put = max(sides, key=lambda side: float(member[side].mean()))
    counts = {"put": int(put.sum()), "right": int((put & member).sum()), "members": int(member.sum())}
    return values | {"found": 1} | counts


def outlier_values(seed: int, each: int) -> Values:
    """Count those named in a crowd with outliers, the outliers among them, and those with a large gap."""
    found = annotator_agreement(Votes.of(crowd_with_outliers(seed, each)))
    named, gap = found.differs, found.gap[:OUTLIERS]
    counts = {"named": named.sum(), "right": named[:OUTLIERS].sum(), "large": (gap <= -MIN_GAP).sum()}
    return {name: int(n) for name, n in counts.items()} | {"gap": float(gap.mean())}


def clean_verdicts(seed: int) -> Values:
    """Count the annotators called spam in a simulated crowd without spammers."""
    verdict = short_verdicts(ds.simulate(seed=seed).annotations).verdict
    return {"annotators": len(verdict), "spam": int((verdict == SPAM).sum())}


def shuffled_labels(labels: Annotations, rng: np.random.Generator) -> Annotations:
    """Shuffle the labels of every annotator among the items of that annotator."""
    order = np.lexsort((rng.random(labels.n_labels), labels.annotator))
    by_annotator = np.argsort(labels.annotator, kind="stable")
    label = labels.label.copy()
    label[by_annotator] = labels.label[order]
    return crowd_labels(labels.item, labels.annotator, label, labels.n_classes)


def shuffled_annotators(labels: Annotations, rng: np.random.Generator) -> Annotations:
    """Shuffle the annotators among all labels."""
    return crowd_labels(labels.item, rng.permutation(labels.annotator), labels.label, labels.n_classes)


Shuffle = Callable[[Annotations, np.random.Generator], Annotations]
CONTROLS: dict[str, Shuffle] = {
    "labels shuffled within annotators": shuffled_labels,
    "annotators shuffled": shuffled_annotators,
}


def control_verdicts(control: str, n_crowds: int) -> Values:
    """Count the verdicts on planted crowds whose labels or annotators were shuffled."""
    counts = dict.fromkeys(VERDICTS, 0)
    for seed in range(n_crowds):
        crowd = planted_crowd(100 + seed, labels_each=50, spammers=0.1, group=0.15)
        shuffled = CONTROLS[control](crowd.annotations, np.random.default_rng(seed))
        for verdict, n in short_verdicts(shuffled).counts().items():
            counts[verdict] += n
    return counts


def gold_verdicts(folder: Path) -> Values:
    """Return the verdicts on a real crowd and every annotator's accuracy on gold labels.

    The accuracy is None for annotators with too few labels on gold items.
    """
    labels = read_dataset(folder)
    assert labels.gold is not None
    gold = labels.gold[labels.item]
    judged = gold >= 0
    n = np.bincount(labels.annotator[judged], minlength=labels.n_annotators)
    right = np.bincount(labels.annotator[judged], (labels.label == gold)[judged], labels.n_annotators)
    # built again without gold: verdicts must come from the labels alone
    verdicts = short_verdicts(Annotations.from_arrays(labels.item, labels.annotator, labels.label))
    accuracy = [r / size if size >= MIN_GOLD_LABELS else None for r, size in zip(right, n, strict=True)]
    return {"verdict": verdicts.verdict.tolist(), "accuracy": accuracy}


# ---- the page -----------------------------------------------------------------------------------------

Get = Callable[..., Values]  # a stored measurement, or a new one
Part = tuple[str, list[str]]  # text, and lines of the table of targets


def goal(what: str, value: float, target: str) -> str:
    """Return the line of a figure and its target, such as "≤ 2 %"."""
    sign, limit, *percent = target.split()
    shown, scale = (f"{value:.1%}", 100) if percent else (f"{value:.3g}", 1)
    met = scale * value <= float(limit) if sign == "≤" else scale * value >= float(limit)
    return line(what, shown, target, yes(met))


def share(n: float, of: float) -> str:
    """Format a share."""
    return f"{n / of:.1%}" if of else "–"


def totals(crowds: Sequence[Values], *names: str) -> list[int]:
    """Return the sums of columns over crowds."""
    return [int(sum(crowd[name] for crowd in crowds)) for name in names]


def joined(crowds: Sequence[Values], name: str) -> NDArray[Any]:
    """Concatenate one column over crowds."""
    return np.concatenate([np.asarray(crowd[name]) for crowd in crowds])


def plain_part(n: int, get: Get) -> Part:
    """Measure crowds without groups."""
    crowds = [get(f"plain {seed}", plain_verdicts, seed) for seed in range(n)]
    kinds = [plain_kind(seed) for seed in range(n)]
    rows = {kind: [crowd for crowd, k in zip(crowds, kinds, strict=True) if k == kind] for kind in kinds}
    share_claimed = {kind: totals(some, "groups")[0] / len(some) for kind, some in rows.items()}
    worst = max(share_claimed, key=lambda kind: share_claimed[kind])
    rows = dict(sorted(rows.items())) | {"all": crowds}
    lines = [line(kind, len(some), *totals(some, "groups", *VERDICTS)) for kind, some in rows.items()]
    groups, minority, spam, error = totals(crowds, "groups", "minority view", SPAM, "systematic error")
    people = sum(totals(crowds, *VERDICTS))
    text = f"""## Crowds without groups

{n} simulated crowds of 3 to 60 annotators, with 40 to 200 labels each, 3 to 8 labels per item and 2 to 5
classes. Annotators differ in skill or habit, or items in difficulty, but no annotator belongs to a group.
Half of the scales of five grades are declared as ordered. The columns of verdicts count people.

{table(("crowds", "number", "groups claimed", *VERDICTS), lines)}

Groups are claimed most often in one kind, "{worst}": in {share_claimed[worst]:.0%} of these crowds.
"""
    return text, [
        goal("crowds without groups: groups claimed", groups / n, "≤ 2 %"),
        goal("crowds without groups: people called minority view", minority / people, "≤ 1 %"),
        goal("crowds without groups: people called spam or error", (spam + error) / people, "≤ 0.5 %"),
    ]


def seeds_part(data: Path, get: Get) -> Part:
    """Measure how far verdicts depend on the seed."""
    lines, rows = [], list[list[float]]()
    for name in (name for name in SEED_SETS if name not in REAL_SETS or (data / str(name)).is_dir()):
        values = get(f"seeds {name}", seed_verdicts, name, data)
        verdict = np.array(values["verdicts"])  # (seeds, people)
        counts = np.stack([(verdict == code).sum(axis=0) for code in range(len(VERDICTS))])
        contradict = (counts[np.array(VERDICTS) != "cannot tell"] > 0).sum(axis=0) > 1
        top = counts.max(axis=0)
        rows.append([len(top), contradict.sum(), top.sum() / N_SEEDS, (top == N_SEEDS).sum()])
        title = f"planted, {SEED_LABELS[name]} labels each" if isinstance(name, int) else name
        shares = [share(count, len(top)) for count in rows[-1][2:]]
        lines.append(line(title, len(top), f"{values['groups']} of {N_SEEDS}", contradict.sum(), *shares))
    people, contradict, usual, same = np.sum(rows, axis=0)
    head = (
        "labels",
        "people",
        "groups claimed",
        "contradictions",
        "most frequent verdict",
        "always the same",
    )
    text = f"""## Ten seeds

The same labels, fitted with {N_SEEDS} seeds and the default settings of `HPGM`. Two different verdicts on a
person contradict each other unless one is "cannot tell". The last columns are the share of verdicts that are
the person's most frequent one, and the share of people with the same verdict for all seeds.

{table(head, lines)}
"""
    return text, [
        goal("ten seeds: people with contradictory verdicts", contradict, "≤ 0"),
        goal("ten seeds: verdicts that are the person's most frequent one", usual / people, "≥ 99 %"),
        goal("ten seeds: people with the same verdict for all seeds", same / people, "≥ 99 %"),
    ]


def groups_part(n: int, get: Get) -> Part:
    """Measure how often planted groups are found."""
    lines, every, short = [], list[Values](), list[str]()
    for (each, per_item), of in itertools.product(GROUP_SIZES, GROUP_SHARES):
        keys = (of, each, per_item)
        crowds = [get(f"group {keys} {seed}", group_values, seed, *keys) for seed in range(n)]
        every += crowds
        found, put, right, members = totals(crowds, "found", "put", "right", "members")
        limit = share(sum(crowd["z"] >= MIN_Z for crowd in crowds), n)
        shares = share(found, n), share(right, put), share(right, members), limit
        lines.append(line(each, per_item, f"{of:.0%}", *shares))
        short += [f"{each} labels, {per_item} per item, {of:.0%}"] if found < 0.8 * n else []
    head = ("labels each", "labels per item", "group", "found", "right", "members found", "known members")
    found, put, right = totals(every, "found", "put", "right")
    text = f"""## Planted groups

Crowds of 60 annotators and four classes, with accuracies of about {USUAL_ACCURACY} ± 0.07, {n} in each
line: the share of groups found has a standard error of up to {0.5 / np.sqrt(n):.0%}. A group sees another
class on {CONTESTED:.0%} of the items. The columns are the share of groups found (by `find_groups`); of those
put into the planted group, the share who are members; and, where a group was found, the share of members put
into it. If the group is half of the crowd, either half may be the group.

The last column shows what the test of residuals allows: the share of crowds in which they agree within the
true groups more than across by {MIN_Z} standard errors, as if the members did not have to be found. Where it
is high and few groups are found, the difficulty is to find the members.

{table(head, lines)}

Less than 80 % of the groups are found in {len(short)} of {len(lines)} lines: {"; ".join(short) or "none"}.
"""
    return text, [
        goal("planted groups: found", found / len(every), "≥ 80 %"),
        goal("planted groups: people put into them who are members", right / max(put, 1), "≥ 85 %"),
    ]


def outliers_part(n: int, get: Get) -> Part:
    """Measure how often planted outliers are named."""
    lines, every = [], list[Values]()
    for each in OUTLIER_LABELS:
        crowds = [get(f"outlier {each} {seed}", outlier_values, seed, each) for seed in range(n)]
        every += crowds
        named, right, large = totals(crowds, "named", "right", "large")
        gap = np.mean([crowd["gap"] for crowd in crowds])
        shares = share(large, OUTLIERS * n), share(right, OUTLIERS * n), share(right, named)
        lines.append(line(each, f"{gap:.3f}", *shares))
    named, right = totals(every, "named", "right")
    text = f"""## Planted outliers

Crowds of 20 annotators and four classes, 5 labels per item, {n} in each line. Two annotators agree with the
others 15 points less than two others do on the same items (expected value). Named on the first line are
those whose gap is significant and at least {MIN_GAP:.0%}; the third column shows how many gaps are so large.

{table(("labels each", "mean gap", "large gap", "outliers named", "named who are outliers"), lines)}
"""
    return text, [
        goal("planted outliers: named", right / (OUTLIERS * len(every)), "≥ 95 %"),
        goal("people named who are planted outliers", right / max(named, 1), "≥ 97 %"),
    ]


def calibration_table(crowds: Sequence[Values]) -> str:
    """Tabulate the stated probability of spam and the observed share of spammers."""
    probability, is_spam = joined(crowds, "probability"), joined(crowds, "kind") == SPAM
    lines = []
    for low, high in itertools.pairwise(PROBABILITY_BINS):
        inside = (probability >= low) & ((probability < high) | (high == 1.0))
        if inside.any():
            shares = f"{probability[inside].mean():.3f}", f"{is_spam[inside].mean():.3f}"
            lines.append(line(f"{low:g} to {high:g}", int(inside.sum()), *shares))
    return table(("probability of spam", "annotators", "mean probability", "share of spammers"), lines)


def verdict_table(head: str, people: Sequence[tuple[Any, str, bool]]) -> str:
    """Count verdicts, and those named first, by the first entry of each person."""
    lines = []
    for key in sorted({key for key, _, _ in people}):
        verdicts, named = zip(*((verdict, check) for k, verdict, check in people if k == key), strict=True)
        lines.append(line(key, len(named), *map(verdicts.count, VERDICTS), sum(named)))
    return table((head, "people", *VERDICTS, "named"), lines)


def spam_part(n: int, get: Get) -> Part:
    """Measure planted spammers, crowds without spammers, and controls."""
    crowds = [get(f"planted {seed}", planted_verdicts, seed) for seed in range(n)]
    clean = [get(f"clean {seed}", clean_verdicts, seed) for seed in range(n)]
    rows = [
        (kind, verdict, check, crowd["labels_each"], crowd["strategy"])
        for crowd in crowds
        for kind, verdict, check in zip(crowd["kind"], crowd["verdict"], crowd["check"], strict=True)
    ]
    by_kind = [(f"{kind}, {'≥' if each >= 50 else '<'} 50 labels", v, c) for kind, v, c, each, _ in rows]
    by_each = [(each, v, c) for kind, v, c, each, _ in rows if kind == SPAM]
    by_strategy = [(strategy, v, c) for kind, v, c, _, strategy in rows if kind == SPAM]
    right = np.mean([kind == SPAM for kind, verdict, *_ in rows if verdict == SPAM])
    wrong, people = totals(clean, SPAM, "annotators")
    k = max(1, n // 5)
    controls = {name: get(f"control {name} {k}", control_verdicts, name, k) for name in CONTROLS}
    control_lines = [line(name, *(counts[v] for v in VERDICTS)) for name, counts in controls.items()]
    text = f"""## Planted spammers

{n} crowds of 60 annotators with random settings: up to 30 % spammers; 2 to 6 classes, balanced or skewed;
spammers that answer uniformly, by the class frequencies, with a constant class or as copy-cats; adversaries;
groups of 5 to 50 % with a different view; 5 to 200 labels per annotator and 3 to 8 labels per item; mean
accuracies of 0.7, 0.8 or 0.9.

{calibration_table(crowds)}

The last column counts those named on the first line.

{verdict_table("planted as", by_kind)}

{verdict_table("spammers by labels each", by_each)}

{verdict_table("spammers by strategy", by_strategy)}

Crowds without spammers are {n} of `ds.simulate` with default settings.

## Controls

Verdicts on people in {k} planted crowds each.

{table(("control", *VERDICTS), control_lines)}
"""
    return text, [
        goal("people called spam who are planted spammers", float(right), "≥ 85 %"),
        goal("crowds without spammers: people called spam", wrong / people, "≤ 1 %"),
    ]


def gold_part(data: Path, get: Get) -> Part:
    """Measure the accuracy of real annotators on gold labels, by verdict."""
    lines, ratios = [], list[float]()
    every: dict[str, list[float]] = {SPAM: [], "differs": [], TYPICAL: []}
    for name in GOLD_DATASETS:
        values = get(f"gold {name}", gold_verdicts, data / name)
        pairs = list(zip(values["verdict"], values["accuracy"], strict=True))
        sides = {v: [right for verdict, right in pairs if verdict == v and right is not None] for v in every}
        means = [f"{np.mean(side):.2f}" if side else "–" for side in sides.values()]
        lines.append(line(name, len(pairs), *map(len, sides.values()), *means))
        for verdict, side in sides.items():
            every[verdict] += side
        ratios += [right / float(np.mean(sides[TYPICAL])) for right in sides[SPAM]]
    for_all = (f"{np.mean(side):.2f}" if side else "–" for side in every.values())
    lines.append(line("all", "", *map(len, every.values()), *for_all))
    head = ("dataset", "annotators", *every, *(f"accuracy of {verdict}" for verdict in every))
    text = f"""## Real crowds with gold labels

The verdicts use the labels alone. Counted are annotators with at least {MIN_GOLD_LABELS} labels on gold
items.

{table(head, lines)}
"""
    what = f"accuracy of {len(ratios)} real people called spam, over that of typical ones of the same dataset"
    return text, [goal(what, float(np.mean(ratios)), "≤ 0.5")]


def page(data: Path, n: int, measurements: Measurements) -> str:
    """Return the page; without data, the parts on real crowds are left out."""
    get, tenth = measurements.get, max(1, n // 10)
    parts = [plain_part(n, get), seeds_part(data, get), groups_part(tenth, get), outliers_part(tenth, get)]
    parts.append(spam_part(max(1, n // 4), get))
    if (data / GOLD_DATASETS[0]).is_dir():
        parts.append(gold_part(data, get))
    goals = [each for _, goals in parts for each in goals]
    text = f"""# Measured: verdicts on annotators

Written by `python -m experiments.verdicts --crowds {n}` (dissensus {__version__}). The verdicts are explained
in [annotators](../annotators.md). Except for the ten seeds, fits are short: {SHORT_FIT["n_chains"]} chains
of {SHORT_FIT["n_sweeps"]} sweeps.

{table(("figure", "measured", "target", "met"), goals)}

"""
    return text + "\n".join(part for part, _ in parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the page."""
    parser = page_parser("experiments.verdicts", "Verdicts on annotators")
    parser.add_argument("--crowds", type=int, default=N_CROWDS, help="crowds without groups; scales the rest")
    options = parser.parse_args(arguments)
    write_page(options.output, page(options.data, options.crowds, Measurements(options.finished)))


if __name__ == "__main__":
    main()
