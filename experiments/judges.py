"""Language models as judges beside humans.

    python -m experiments.judges [--data DIR] [--finished FILE] [--part NAME]

With ``--part`` only these parts are measured; the page is written when all parts are finished.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as ds
from dissensus.annotators.judge_detection import find_judges
from dissensus.errors import require
from dissensus.evaluate.bootstrap import bootstrap_mean
from dissensus.judges.answers import JudgeAnswers
from dissensus.judges.bias import judge_biases
from dissensus.judges.comparison import conditional_shares
from dissensus.judges.drift import MIN_NEW_ITEMS, SHARED_CHANGE, change_and_reach
from dissensus.judges.drift import scores as scores_of
from dissensus.judges.kappa import human_kappa, judge_kappa, scale_range
from dissensus.judges.rates import Estimate, Rate, prediction_powered, rate
from dissensus.judges.report import JudgeReport
from dissensus.models.base import Model
from dissensus.models.hpgm.adjustments import Aliases
from dissensus.numerics import Array, row_shares
from experiments.runner import (
    Measurements,
    Values,
    line,
    page_parser,
    read_dataset,
    table,
    with_interval,
    write_page,
)

PARTS = ("kappa", "bias", "drift", "rates", "copies", "represent", "hidden")
N_SUBSAMPLES = 1000
SETS = ("wax", "mtbench", "cebab_aspects", "cebab_stars", "summeval", "lesion")

# Dataset, kind of labels and epsilon -> published winning rate and advantage probability of each judge.
PUBLISHED: dict[tuple[str, str, float], dict[str, tuple[float, float]]] = {
    ("wax", "nominal", 0.1): {
        "gemini_flash": (0.38, 0.69), "gemini_pro": (0.50, 0.74), "gpt-4o": (0.50, 0.73),
        "llama-31": (0.00, 0.57), "gpt-4o-mini": (0.00, 0.59), "mistral-v03": (0.00, 0.50),
    },
    ("mtbench", "nominal", 0.2): {
        "gemini_flash": (0.00, 0.72), "gemini_pro": (0.00, 0.76), "gpt-4o": (0.00, 0.77),
        "llama-31": (0.00, 0.69), "gpt-4o-mini": (0.00, 0.74), "mistral-v03": (0.00, 0.68),
    },
    ("cebab_aspects", "nominal", 0.1): {
        "gemini_flash": (0.70, 0.91), "gemini_pro": (0.90, 0.94), "gpt-4o": (0.90, 0.93),
        "llama-31": (0.60, 0.89), "gpt-4o-mini": (0.50, 0.90), "mistral-v03": (0.10, 0.81),
    },
    ("summeval", "ordinal", 0.2): {
        "gemini_flash": (0.00, 0.46), "gemini_pro": (0.00, 0.44), "gpt-4o": (0.00, 0.48),
        "llama-31": (0.00, 0.58), "gpt-4o-mini": (0.00, 0.54), "mistral-v03": (0.00, 0.62),
    },
    ("cebab_stars", "ordinal", 0.1): {
        "gemini_flash": (0.60, 0.82), "gemini_pro": (0.80, 0.87), "gpt-4o": (0.90, 0.90),
        "llama-31": (0.60, 0.85), "gpt-4o-mini": (0.90, 0.89), "mistral-v03": (0.50, 0.83),
    },
    ("lesion", "ordinal", 0.15): {
        "gemini_flash": (0.17, 0.71), "gemini_pro": (1.00, 0.81), "gpt-4o": (0.00, 0.62),
        "gpt-4o-mini": (0.67, 0.73),
    },
}  # fmt: skip


def read_judged(data: Path, name: str) -> ds.Annotations:
    """Read a dataset with humans and judges, which lie beside the folder of the other datasets."""
    folder = data.parent / "judges" / name
    items = folder / "items.csv"
    labels: ds.Annotations = ds.read_annotations(
        folder / "annotations.csv",
        annotators=folder / "annotators.csv",
        items=items if items.exists() else None,
    )
    return labels


def read_answers(data: Path, name: str) -> JudgeAnswers:
    """Read the answers of a dataset with humans and judges."""
    labels = read_judged(data, name)
    return JudgeAnswers.of(labels, find_judges(labels)[0])


# ---- intervals of κ -------------------------------------------------------------------------------------

KAPPA_ITEMS = (100, 200)  # items of a subsample
SPLIT_ITEMS = 2000  # items of a crowd of three humans
# Share of items on which they split 2 to 1; None: each of them by chance, in 2 of 3 items with the others
SPLIT_SHARES = (None, 1 / 3, 1.0)
STRONG_JUDGE, FEW_SPLITS = 0.98, 0.05  # how often a strong judge sides with the two, and the share of splits


def split_crowd(n_classes: int, share: float | None, judge: float = 0.7) -> JudgeAnswers:
    """Return three humans who split 2 to 1, and a judge that often sides with the two."""
    rng, M = np.random.default_rng(n_classes), SPLIT_ITEMS
    majority = rng.choice(n_classes, size=M, p=[0.6, 0.4] if n_classes == 2 else None)
    other = (majority + rng.integers(1, n_classes, size=M)) % n_classes
    if share is None:
        alone = rng.random((3, M)) < 1 / 3
    else:
        alone = (rng.integers(3, size=M) == np.arange(3)[:, None]) & (rng.random(M) < share)
    with_two = rng.random(M) < judge
    humans = [np.where(row, other, majority) for row in alone]
    columns = [*humans, np.where(with_two, majority, other)]
    names = np.repeat(["h0", "h1", "h2", "gpt"], M)
    labels = ds.Annotations.from_arrays(np.tile(np.arange(M), 4), names, np.concatenate(columns))
    return JudgeAnswers.of(labels, labels.annotators == "gpt")


def kappa_coverage(answers: JudgeAnswers, n_items: int, n_samples: int = N_SUBSAMPLES) -> Values:
    """Measure how many intervals from subsamples, drawn with replacement, cover the value of all items.

    For two classes, also those of the true-positive and true-negative rates.
    """
    rng, counts, covered = np.random.default_rng(0), answers.human_counts, dict[str, list[bool]]()
    columns = dict(zip(answers.names, map(answers.answers_of, answers.judges.tolist()), strict=True))
    for name, answer in columns.items():
        items = np.flatnonzero((answer >= 0) & (counts.sum(axis=1) > 0))
        shares, x = row_shares(counts[items]), np.eye(counts.shape[1])[answer[items]]
        truth, rates = judge_kappa(answers, answer, counts).value, conditional_shares(shares, x)[0]
        for _ in range(n_samples):
            rows = rng.integers(len(items), size=n_items)
            kappa = judge_kappa(answers, answer[items[rows]], counts[items[rows]])
            covered.setdefault(name, []).append(kappa.low <= truth <= kappa.high)
            if counts.shape[1] == 2:
                low, high = conditional_shares(shares[rows], x[rows])[1]
                hits = (low <= rates) & (rates <= high)
                covered.setdefault(f"{name}, TPR", []).append(bool(hits[1, 1]))
                covered.setdefault(f"{name}, TNR", []).append(bool(hits[0, 0]))
    items, truth = np.flatnonzero(counts.sum(axis=1) >= 2), human_kappa(answers, counts).value
    for _ in range(n_samples):
        kappa = human_kappa(answers, counts[rng.choice(items, size=n_items)])
        covered.setdefault("a human", []).append(kappa.low <= truth <= kappa.high)
    return {name: float(np.mean(hits)) for name, hits in covered.items()}


# ---- false alarms of biases -----------------------------------------------------------------------------


def bias_alarms(labels: ds.Annotations, judge: str, n_samples: int = N_SUBSAMPLES) -> Values:
    """Measure how often a judge that gives the answer of a random human is said to have each bias.

    The answer is taken from that human, so that the judge and the humans who remain are exchangeable.
    """
    code = int(np.flatnonzero(labels.annotators == judge)[0])
    is_human = np.array([str(name).startswith("h") for name in labels.annotators])
    answers = JudgeAnswers.of(labels, ~is_human)
    rows, rng, alarms = answers.human_rows, np.random.default_rng(0), dict[str, list[bool]]()
    several = answers.human_counts.sum(axis=1) >= 2
    for _ in range(n_samples):
        order = rows[np.lexsort((rng.random(len(rows)), answers.item[rows]))]
        drawn = order[np.diff(answers.item[order], prepend=-1) > 0]
        drawn = drawn[several[answers.item[drawn]]]
        annotator = answers.annotator.copy()
        annotator[drawn] = code
        item, label = answers.item[rows], answers.label[rows]
        sample = JudgeAnswers(labels, answers.is_judge, item, annotator[rows], label, 0)
        for bias in judge_biases(sample, code):
            alarms.setdefault(bias.by, []).append(bias.shown)
    return {by: float(np.mean(shown)) for by, shown in alarms.items()}


NOISE_ITEMS = 600
# Accuracy of three humans and of the judge, by how much that of humans varies between items, and the share of
# the judge's answers that are replaced by the left side.
NOISE = {
    "like the humans, 80 %": (0.8, 0.8, 0.0, 0.0),
    "right in 80 %": (0.9, 0.8, 0.0, 0.0),
    "right in 95 %, humans in 80 %": (0.8, 0.95, 0.0, 0.0),
    "a coin": (0.9, 0.5, 0.0, 0.0),
    "items hard for humans only": (0.95, 0.8, 0.4, 0.0),
    "planted, 10 points": (0.9, 0.9, 0.0, 0.2),
}


def noisy_alarms(
    human: float, judge: float, spread: float, planted: float, n_samples: int = N_SUBSAMPLES
) -> Values:
    """Measure how often a judge with independent errors is said to have each bias, or a planted one.

    The left side is better in 70 % of the items and, in 80 % of these, of the judge's family; texts of this
    class are twice as long.
    """
    M, alarms, names = NOISE_ITEMS, dict[str, list[bool]](), ["h0", "h1", "h2", "gpt-4"]
    items = np.array([f"q{m:03}" for m in range(M)])
    for seed in range(n_samples):
        rng = np.random.default_rng(seed)
        left_better = rng.random(M) < 0.7
        own_left = rng.random(M) < np.where(left_better, 0.8, 0.2)
        size = 100 * np.where(left_better, 2, 1) * np.exp(rng.normal(size=M) / 2)
        accuracy = np.vstack([*[human - spread * rng.random(M)] * 3, np.full(M, judge)])
        says_left = (rng.random((4, M)) < accuracy) == left_better
        says_left[3] |= rng.random(M) < planted
        rows = np.tile(items, 4), np.repeat(names, M), np.where(says_left.ravel(), "left", "right")
        pairs = ds.Annotations.from_arrays(*rows, classes=["left", "tie", "right"], label_type="pairwise")
        left, right = (np.where(own_left == side, "gpt-3", "claude") for side in (True, False))
        pairs = pairs.with_tables(items={"item": items, "left": left, "right": right})
        texts = {"item": items, "text": ["x" * int(length) for length in size]}
        plain = ds.Annotations.from_arrays(*rows).with_tables(items=texts)
        for labels in (pairs, plain):
            answers = JudgeAnswers.of(labels, labels.annotators == "gpt-4")
            for bias in judge_biases(answers, int(answers.judges[0])):
                if labels is pairs or bias.by == "length":
                    alarms.setdefault(bias.by, []).append(bias.shown)
    return {by: float(np.mean(shown)) for by, shown in alarms.items()}


# ---- drift ----------------------------------------------------------------------------------------------

BASELINES, STREAM_ITEMS, DRIFT = (200, 500, 1000, 2000), 5000, 0.1
FOUND_WITHIN = 500  # items within which a drift is to be found
SHARES = (0.6, 0.7, 0.8, 0.9, 0.95)  # agreement of judges whose scores are 0 or 1
HARDER_ITEMS = 1_000  # new items of a stream of which more are hard
# Accuracy of humans and of the judge, and share of hard items before and after
HARDER = [
    (h, j, *hard)
    for h, j in ((0.9, 0.9), (0.9, 0.8), (0.85, 0.95))
    for hard in ((0.2, 0.3), (0.2, 0.4), (0.0, 0.5))
]


def drift_alarms(
    agreement: Array, human: Array, n_before: int, n_new: int, n_streams: int, seed: int, drift: float = 0.0
) -> float:
    """Return the share of streams that are called a drift at any look, after every item from the 30th on.

    Items are drawn from those with the judge's agreement and that of two humans. With a drift, the judge's
    agreement with random items becomes 0, so that its mean falls by ``drift``.
    """
    rng, alarms = np.random.default_rng(seed), 0
    for _ in range(n_streams):
        before = rng.integers(len(agreement), size=n_before)
        items = rng.integers(len(agreement), size=n_new)
        lost = rng.random(n_new) < drift / agreement.mean()
        new = np.where(lost, 0.0, agreement[items])
        alarms += ever_drifted(agreement[before], human[before], new, human[items])
    return alarms / n_streams


def ever_drifted(before: Array, human_before: Array, new: Array, human: Array) -> bool:
    """Return whether a stream of new items is called a drift at any look."""
    t = np.arange(1, len(new) + 1)
    moments = {"n_items": len(before), "mean": before.mean(), "variance": before.var()}
    change, reach = change_and_reach(moments, t, new.cumsum(), (new**2).cumsum())
    shared = (human.cumsum() / t - human_before.mean()) / np.where(change == 0, 1.0, change)
    return bool(((np.abs(change) > reach) & ~(shared > SHARED_CHANGE))[MIN_NEW_ITEMS - 1 :].any())


def drift_of(agreement: Array, human: Array, n_streams: int = N_SUBSAMPLES) -> Values:
    """Measure false alarms over whole streams, and how often a drift is found, for every size of baseline."""
    alarms, found = dict[str, float](), dict[str, float]()
    for n in BASELINES:
        alarms[str(n)] = drift_alarms(agreement, human, n, STREAM_ITEMS, n_streams, n)
        found[str(n)] = drift_alarms(agreement, human, n, FOUND_WITHIN, n_streams, n, DRIFT)
    shape = {"sd": float(agreement.std()), "agreement": float(agreement.mean())}
    return {**shape, "alarms": alarms, "found": found}


def agreements(rng: np.random.Generator, n: int, h: float, j: float, hard: float) -> tuple[Array, Array]:
    """Simulate agreement of a judge with three humans, and of two humans, on items of two classes.

    Humans are right with probability h, the judge with j, both with 0.3 less on a share of hard items.
    """
    harder = np.where(rng.random(n) < hard, 0.3, 0.0)
    right = (rng.random((n, 3)) < (h - harder)[:, None]).sum(axis=1)
    judge = rng.random(n) < j - harder
    of_two = (right * (right - 1) + (3 - right) * (2 - right)) / 6
    return np.where(judge, right, 3 - right) / 3, of_two


def harder_items(h: float, j: float, before: float, after: float, n_streams: int = N_SUBSAMPLES) -> Values:
    """Measure how often a stream is called a drift if the share of hard items changes."""
    drifted = dict[str, float]()
    for n in BASELINES:
        rng = np.random.default_rng(n)
        streams = (
            ever_drifted(*agreements(rng, n, h, j, before), *agreements(rng, HARDER_ITEMS, h, j, after))
            for _ in range(n_streams)
        )
        drifted[str(n)] = sum(streams) / n_streams
    return {"drifted": drifted}


# ---- intervals of corrected rates -----------------------------------------------------------------------

HUMAN_ITEMS, JUDGE_ITEMS = 200, 2000  # items of a subsample labelled by humans, and by the judge alone
REAL_JUDGES = ("gpt-4o", "mistral-v03")
# Probabilities that a simulated judge reports the class where gold has it, and where gold does not.
SIMULATED_JUDGES = {"good": (0.9, 0.15), "fair": (0.8, 0.25)}


@dataclass(frozen=True, eq=False)
class JudgedPopulation:
    """Items with the true share of a class, and the answers of a judge, real or simulated."""

    dataset: str
    judge: str
    class_name: str
    truth: Array  # (items,)
    answers: Array | tuple[float, float]  # real answers, or the probabilities of a simulated judge

    def sample(self, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draw truth and judge's answers of ``n`` items with replacement."""
        items = rng.integers(len(self.truth), size=n)
        truth = self.truth[items]
        if isinstance(self.answers, tuple):
            probability = np.where(truth > 0.5, *self.answers)
            return truth, (rng.random(n) < probability).astype(np.float64)
        return truth, self.answers[items]


def populations(data: Path) -> Iterator[JudgedPopulation]:
    """Yield real judges with the humans' shares as truth, and simulated judges with gold as truth."""
    labels = read_judged(data, "cebab_aspects")
    answers = JudgeAnswers.of(labels, find_judges(labels)[0])
    shares = row_shares(answers.human_counts)
    for judge in REAL_JUDGES:
        codes = answers.answers_of(int(np.flatnonzero(labels.annotators == judge)[0]))
        for p, name in enumerate(labels.classes):
            is_class = (codes == p).astype(np.float64)
            yield JudgedPopulation("cebab_aspects", judge, str(name), shares[:, p], is_class)
    for dataset, class_name in (("rte", "entailed"), ("product", "same")):
        labels = read_dataset(data / dataset)
        gold = np.asarray(labels.gold)
        truth = (labels.classes[gold[gold >= 0]] == class_name).astype(np.float64)
        for judge, probabilities in SIMULATED_JUDGES.items():
            title = f"simulated, {judge} {probabilities}"
            yield JudgedPopulation(dataset, title, class_name, truth, probabilities)


def width(estimate: Estimate) -> float:
    """Return the width of an interval."""
    return estimate.high - estimate.low


def coverage(
    population: JudgedPopulation, n_samples: int = N_SUBSAMPLES, seed: int = 0, *, with_peer: bool = True
) -> Values:
    """Measure coverage and mean width of the intervals, and the width of those of ``ppi_py``."""
    rng = np.random.default_rng(seed)
    truth = float(population.truth.mean())
    rates: list[Rate] = []
    plain_widths, widths, peer_widths = [], [], []
    for _ in range(n_samples):
        Y, f = population.sample(HUMAN_ITEMS, rng)
        F = population.sample(JUDGE_ITEMS, rng)[1]
        rates.append(rate("", "", "", Y, f, F, 0.95, is_share=True))
        plain_widths.append(width(prediction_powered(Y, np.zeros(len(Y)), np.zeros(0), 0.95)[0]))
        widths.append(width(prediction_powered(Y, f, F, 0.95)[0]))
        if with_peer:
            low, high = require("ppi_py", "bench").ppi_mean_ci(Y, f, F, alpha=0.05)
            peer_widths.append(float(np.squeeze(high) - np.squeeze(low)))
    values: Values = {"truth": truth, "refused": sum(bool(r.ppi.refused) for r in rates)}
    for name in ("humans_alone", "rogan_gladen", "ppi"):
        estimates = [getattr(r, name) for r in rates if not math.isnan(getattr(r, name).value)]
        covered = [e.low <= truth <= e.high for e in estimates]
        values[name] = {
            "n": len(estimates),
            "coverage": float(np.mean(covered)) if estimates else math.nan,
            "width": float(np.mean([*map(width, estimates)])) if estimates else math.nan,
        }
    values["ppi_width"], values["plain_width"] = float(np.mean(widths)), float(np.mean(plain_widths))
    values["peer_width"] = float(np.mean(peer_widths)) if peer_widths else math.nan
    return values


# ---- hidden labels of humans ----------------------------------------------------------------------------

N_SPLITS = 5
SHORT_FIT: dict[str, Any] = {"n_chains": 2, "n_jobs": 1}  # half of the usual chains: there are many fits
INFORMED = "HPGM, judges inform"


def hidden_labels(labels: ds.Annotations, split: int) -> Values:
    """Return log-probabilities of a hidden fifth of the humans' labels by model, and their items."""
    is_human = (labels.annotator_column("kind") == "human")[labels.annotator]
    humans, hidden = labels.take_rows(is_human).split_labels(0.2, split)
    pairs = hidden.item.astype(np.int64) * labels.n_annotators + hidden.annotator
    pair_of_row = labels.item.astype(np.int64) * labels.n_annotators + labels.annotator
    all_shown = labels.take_rows(~np.isin(pair_of_row, pairs))
    models: dict[str, tuple[Model, ds.Annotations]] = {
        INFORMED: (ds.HPGM(represent={"kind": "human"}, **SHORT_FIT), all_shown),
        "HPGM, humans alone": (ds.HPGM(**SHORT_FIT), humans),
        "Dawid–Skene, all": (ds.DawidSkene(), all_shown),
        "vote, all": (ds.EmpiricalDistribution(), all_shown),
        "vote, humans": (ds.EmpiricalDistribution(), humans),
    }
    logs = {
        name: model.fit(shown).log_probabilities(hidden, annotators=False).round(5).tolist()
        for name, (model, shown) in models.items()
    }
    return {"item": hidden.item.tolist(), "logs": logs}


# ---- copies of an annotator, and groups ------------------------------------------------------------------

N_COPIES = 5
GROUPS = {"Ann1": "a", "Ann2": "a", "Ann3": "a", "Ann4": "b", "Ann5": "b", "Ann6": "b"}


def humans_of(labels: ds.Annotations) -> ds.Annotations:
    """Return the labels of the humans, without judges in the vocabulary of annotators."""
    part = labels.take_rows((labels.annotator_column("kind") == "human")[labels.annotator])
    item, label = part.items[part.item], part.classes[part.label]
    names = part.annotators[part.annotator]
    return ds.Annotations.from_arrays(item, names, label, classes=list(part.classes))


def with_copies(labels: ds.Annotations, annotator: int, prefix: str = "") -> ds.Annotations:
    """Add copies of one annotator under other names."""
    rows = np.flatnonzero(labels.annotator == annotator)
    all_rows = np.concatenate([np.arange(labels.n_labels), *[rows] * N_COPIES])
    names = labels.annotators.astype(str)[labels.annotator]
    name = f"{prefix}{labels.annotators[annotator]}"
    copies = [np.full(len(rows), f"{name} copy {i}") for i in range(N_COPIES)]
    item, label = labels.items[labels.item[all_rows]], labels.classes[labels.label[all_rows]]
    annotators = np.concatenate([names, *copies])
    return ds.Annotations.from_arrays(item, annotators, label, classes=list(labels.classes))


def effect_of_copies(labels: ds.Annotations) -> Values:
    """Measure the effect of copying each annotator on vote and Dawid–Skene, and of two on HPGM."""

    def distributions(name: str, shown: ds.Annotations) -> Array:
        model: Model = {
            "vote": ds.EmpiricalDistribution,
            "Dawid–Skene": ds.DawidSkene,
            "HPGM": lambda: ds.HPGM(n_jobs=1),
        }[name]()
        return model.fit(shown).label_distributions_

    before = {name: distributions(name, labels) for name in ("vote", "Dawid–Skene", "HPGM")}

    def change(name: str, shown: ds.Annotations) -> float:
        """Return the mean total variation between the fits with and without copies."""
        return float(np.abs(before[name] - distributions(name, shown)).sum(axis=1).mean() / 2)

    rows: list[Values] = []
    for annotator in range(labels.n_annotators):
        copied = with_copies(labels, annotator)
        aliases = Aliases.of(copied)
        row = {name: change(name, copied) for name in ("vote", "Dawid–Skene")}
        n_copies = len(aliases.code) - len(aliases.named)
        rows.append(row | {"annotator": str(labels.annotators[annotator]), "copies": n_copies})
    worst = max(range(len(rows)), key=lambda annotator: float(rows[annotator]["vote"]))
    for annotator in {0, worst}:
        rows[annotator]["HPGM"] = change("HPGM", with_copies(labels, annotator))
    return {"rows": rows, "in_front": change("HPGM", with_copies(labels, worst, "A "))}


def gain_of_groups(data: Path, split: int) -> Values:
    """Measure what ``represent`` gains over the whole population on hidden labels of each group."""
    labels = ds.read_annotations(data / "hs_brexit" / "annotations.csv")
    groups = [GROUPS[str(name)] for name in labels.annotators]
    labels = labels.with_tables(annotators={"annotator": labels.annotators, "group": groups})
    shown, hidden = labels.split_labels(0.2, split)
    population = ds.HPGM(**SHORT_FIT).fit(shown)
    values: Values = {}
    for group in sorted(set(groups)):
        reserved = hidden.take_rows((labels.annotator_column("group") == group)[hidden.annotator])
        model = ds.HPGM(represent={"group": group}, **SHORT_FIT).fit(shown)
        gain = model.log_probabilities(reserved, annotators=False)
        gain = gain - population.log_probabilities(reserved, annotators=False)
        values[group] = {"item": reserved.item.tolist(), "gain": gain.round(5).tolist()}
    return values


def measure(data: Path, measurements: Measurements, parts: Sequence[str]) -> None:
    """Measure the parts, one stored measurement at a time."""
    for n in KAPPA_ITEMS if "kappa" in parts else ():
        for name in SETS:
            measurements.get(f"kappa {name} {n}", kappa_coverage, read_answers(data, name), n)
        for n_classes, share in itertools.product((2, 3), SPLIT_SHARES):
            words = "each human 2 to 1" if share is None else f"{share:.0%} of items split 2 to 1"
            key = f"kappa {n_classes} classes, {words} {n}"
            measurements.get(key, kappa_coverage, split_crowd(n_classes, share), n)
        strong = split_crowd(2, FEW_SPLITS, STRONG_JUDGE)
        key = f"kappa 2 classes, {FEW_SPLITS:.0%} of items split 2 to 1, strong judge {n}"
        measurements.get(key, kappa_coverage, strong, n)
    if "bias" in parts:
        for name in ("wax", "cebab_aspects"):
            measurements.get(f"bias {name}", bias_alarms, read_judged(data, name), "gpt-4o")
        for name, setting in NOISE.items():
            measurements.get(f"bias judge {name}", noisy_alarms, *setting)
    if "drift" in parts:
        for share in SHARES:
            scores = (np.arange(1000) < 1000 * share).astype(np.float64)
            human = np.full(1000, np.nan)
            measurements.get(f"drift scores of 0 and 1, {share:.2f}", drift_of, scores, human)
        for name in SETS:
            answers = read_answers(data, name)
            for judge, code in zip(answers.names, answers.judges.tolist(), strict=True):
                _, agreement, human = scores_of(answers, code, scale_range(answers))
                two = np.isfinite(human)
                measurements.get(f"drift {name}, {judge}", drift_of, agreement[two], human[two])
        for setting in HARDER:
            measurements.get(f"harder {setting}", harder_items, *setting)
    for population in populations(data) if "rates" in parts else ():
        key = f"rates {population.dataset}, {population.judge}, {population.class_name}"
        measurements.get(key, coverage, population)
    if "copies" in parts:
        brexit = ds.read_annotations(data / "hs_brexit" / "annotations.csv")
        measurements.get("copies hs_brexit", effect_of_copies, brexit)
        humans = humans_of(read_judged(data, "cebab_aspects"))
        measurements.get("copies cebab_aspects", effect_of_copies, humans)
    for split in range(N_SPLITS):
        if "represent" in parts:
            measurements.get(f"represent {split}", gain_of_groups, data, split)
        for name in SETS if "hidden" in parts else ():
            measurements.get(f"hidden {name} {split}", hidden_labels, read_judged(data, name), split)


# ---- the page -------------------------------------------------------------------------------------------

TEST = """# Judges beside humans

Written by `python -m experiments.judges`. Six datasets are those of Calderon, Reichart and Dror (ACL 2025).
The quantities are explained in [judges](../judges.md).

## The alternative annotator test

Winning rate and advantage probability of each judge; how many of these pairs equal the published ones to two
digits; and how many independent votes the judges are worth together (95 % interval).

{table}
"""

KAPPA = """
## Intervals of κ

1,000 subsamples of each set, drawn with replacement: share of the 95 % intervals (jackknife over items) that
contain κ of the whole set, for the judges (lowest and highest) and for a human with the others. The last
crowds have {split:,} items and three humans who split 2 to 1: each by chance, or exactly two to one on a
third or on all of the items (with a judge that sides with the two in 70 %), or on {few:.0%} (with a strong
judge that does so in {strong:.0%}); for two classes, true-positive and true-negative rates (Wilson) are also
measured. If humans split two to one on every item, their observed agreement is the same on all: κ of a human
depends on the class shares alone, near their extremum, and has no normal distribution.

{table}
"""

BIAS = """
## False alarms of biases

1,000 judges that give the answer of a random human of each item, compared with the humans who remain: how
often a bias is said to be shown (nominal level 0.05; of several classes, intervals are Bonferroni's).

The rows that begin with *judge* are 1,000 simulations of {noise} items with three humans (right in 90 %, if
not stated). The left side is better in 70 % of the items and then of the judge's family in 80 %; for the
length, texts of one class are twice as long. The judge errs independently of all that, so that each alarm is
a false one, except for the position in the last rows, where a fifth of the judge's answers are replaced by
the left side. *Items hard for humans only* are those on which the accuracy of humans varies from 55 to 95 %,
and that of the judge (80 %) does not: the answers of humans do not show this, and a judge is then said to be
biased far too often.

{table}
"""

DRIFT_PART = """
## Drift

Share of 1,000 streams that are called a drift at any of the looks, which are after every item from the 30th
on, for baselines of 200, 500, 1,000 and 2,000 items. Without drift: streams of {stream:,} items. With drift:
agreement falls by {points:.0f} percentage points at the first new item, and is found within {within} items.
Items are drawn with replacement from the set. For a set, the worst of its judges is shown. Scores of 0 and 1
have one human per item.

{table}

On the datasets, a drift of ten points is found within {within} items in at least 80 % of the streams
{where}.

If items become harder for the humans and the judge alike, that is no drift. Two classes, three humans; humans
are right with probability h, the judge with j, both with 0.3 less on hard items, whose share grows. Share of
1,000 streams of {harder:,} new items that are called a drift at any look, for the same baselines:

{hard}
"""

RATES = """
## Intervals of corrected rates

1,000 subsamples drawn with replacement: {humans} items labelled by humans and {judge:,} labelled by the judge
alone. Coverage of the 95 % intervals, and mean width of PPI++ relative to the humans' labels alone and to
`ppi_py` on the same subsamples. Subsamples with fewer than ten items of the class are refused. Where many are
refused, the remaining subsamples are not representative, which shifts the coverage slightly.

{table}
"""

COPIES = """
## Five copies of one human

Change in the items' distributions (mean total variation) when one human is copied five times under other
names, and how many of the copies are detected. HPGM is fitted for the first annotator and for the one whose
copies change the vote most. It counts detected copies once, so the labels it samples stay the same.
"""

GROUPS_PART = """
## Population of a group

hs_brexit with Ann1–3 as group a and Ann4–6 as group b, {n} splits: gain of `represent` over the whole
population, in log-probability (nats per label) of hidden labels of the group.

{table}
"""

HIDDEN = """
## Hidden labels of humans

A fifth of the humans' labels is hidden, {n} splits: −log P(label | item) in nats, HPGM with {chains} chains.
The last columns show the gain of HPGM with judges as informants (`represent={{"kind": "human"}}`) over the
best other model, paired over items.

{table}
"""


def figures(report: JudgeReport) -> dict[str, tuple[float, float]]:
    """Return winning rate and advantage probability of each judge, to two digits."""
    return {
        row["judge"]: (round(row["winning_rate"], 2), round(row["advantage"], 2)) for row in report.rows()
    }


def published_part(data: Path) -> str:
    """Compare our figures with the published ones."""
    lines = []
    for (name, label_type, epsilon), published in PUBLISHED.items():
        report = ds.judge_report(read_judged(data, name), epsilon=epsilon, label_type=label_type)
        ours, panel = figures(report), report.panel
        cells = "; ".join(f"{judge} {rate:.2f} {advantage:.2f}" for judge, (rate, advantage) in ours.items())
        equal = sum(ours[judge] == pair for judge, pair in published.items())
        votes = "–" if panel is None else f"{panel.effective_votes:.1f} ({panel.low:.1f} to {panel.high:.1f})"
        lines.append(line(name, epsilon, cells, f"{equal} of {len(published)}", f"{votes} of {len(ours)}"))
    return TEST.format(table=table(("dataset", "ε", "judges", "as published", "votes"), lines))


def kappa_part(values: dict[str, Values]) -> str:
    """Tabulate the coverage of the intervals of κ."""
    lines = []
    for key, row in values.items():
        if key.startswith("kappa "):
            name, _, n = key.removeprefix("kappa ").rpartition(" ")
            rates = {judge: share for judge, share in row.items() if judge.endswith(("TPR", "TNR"))}
            judges = [row[judge] for judge in row if judge not in (*rates, "a human", "cpu_seconds")]
            cells = f"{min(judges):.3f} – {max(judges):.3f}", f"{row['a human']:.3f}"
            lines.append(line(name, n, *cells, ", ".join(f"{share:.3f}" for share in rates.values())))
    head = ("set", "items", "judges", "a human", "TPR, TNR")
    return KAPPA.format(split=SPLIT_ITEMS, few=FEW_SPLITS, strong=STRONG_JUDGE, table=table(head, lines))


def bias_part(values: dict[str, Values]) -> str:
    """Tabulate the false alarms of biases."""
    rows = {key.removeprefix("bias "): row for key, row in values.items() if key.startswith("bias ")}
    alarms = [(name, by, row[by]) for name, row in rows.items() for by in row if by != "cpu_seconds"]
    lines = [line(name, by, f"{share:.3f}") for name, by, share in alarms]
    return BIAS.format(noise=NOISE_ITEMS, table=table(("set", "bias", "alarms"), lines))


def drift_part(values: dict[str, Values]) -> str:
    """Tabulate false alarms, and how often a drift is found; for a set, the worst of its judges."""
    groups = dict[str, list[Values]]()
    for key, row in values.items():
        if key.startswith("drift "):
            name = key.removeprefix("drift ")
            name = name if name.startswith("scores") else name.partition(",")[0]
            groups.setdefault(name, []).append(row)
    lines = []
    for name, rows in groups.items():
        sd = f"{min(row['sd'] for row in rows):.2f} – {max(row['sd'] for row in rows):.2f}"
        worst = ", ".join(f"{max(row['alarms'][str(n)] for row in rows):.3f}" for n in BASELINES)
        found = ", ".join(f"{min(row['found'][str(n)] for row in rows):.2f}" for n in BASELINES)
        lines.append(line(name, sd, worst, found))
    bounds = []
    for n in (500, 1000):
        sets = [name for name in groups if not name.startswith("scores")]
        reliable = sum(min(row["found"][str(n)] for row in groups[name]) >= 0.8 for name in sets)
        bounds.append(f"of {reliable} of {len(sets)} datasets with a baseline of {n:,} items")
    head = ("scores", "standard deviation", "false alarms (most)", "found (fewest)")
    hard = [
        line(*setting, ", ".join(f"{values[f'harder {setting}']['drifted'][str(n)]:.3f}" for n in BASELINES))
        for setting in HARDER
    ]
    texts: Values = {
        "stream": STREAM_ITEMS,
        "points": 100 * DRIFT,
        "within": FOUND_WITHIN,
        "harder": HARDER_ITEMS,
    }
    texts["hard"] = table(("h", "j", "hard before", "hard after", "called a drift"), hard)
    return DRIFT_PART.format(**texts, where=" and ".join(bounds), table=table(head, lines))


def rates_part(values: dict[str, Values]) -> str:
    """Tabulate coverage and widths."""
    lines = []
    for key, row in values.items():
        if key.startswith("rates "):
            covered = [f"{row[name]['coverage']:.3f}" for name in ("ppi", "rogan_gladen", "humans_alone")]
            ratios = [f"{row['ppi_width'] / row['plain_width']:.3f}"]
            ratios.append(f"{row['ppi_width'] / row['peer_width']:.4f}")
            truth = f"{row['truth']:.3f}"
            lines.append(line(key.removeprefix("rates "), truth, *covered, *ratios, row["refused"]))
    head = ("population", "truth", "PPI++", "Rogan–Gladen", "humans alone")
    widths = ("width / humans'", "width / `ppi_py`'s", "refused")
    return RATES.format(humans=HUMAN_ITEMS, judge=JUDGE_ITEMS, table=table((*head, *widths), lines))


def copies_part(values: dict[str, Values]) -> str:
    """Tabulate the effect of copies in each dataset."""
    parts = [COPIES]
    for name in ("hs_brexit", "cebab_aspects"):
        lines = []
        for row in values[f"copies {name}"]["rows"]:
            changes = (
                f"{row[model]:.4f}" if model in row else "–" for model in ("vote", "Dawid–Skene", "HPGM")
            )
            lines.append(line(row["annotator"], *changes, row["copies"]))
        parts.append(table((name, "vote", "Dawid–Skene", "HPGM", "copies detected"), lines) + "\n")
    in_front = [f"{values[f'copies {name}']['in_front']:.4f}" for name in ("hs_brexit", "cebab_aspects")]
    parts.append(f"Under names that sort before all others, HPGM changes by {' and '.join(in_front)}.\n")
    return "\n".join(parts)


def groups_part(values: dict[str, Values]) -> str:
    """Tabulate the gain of each group's own population."""
    splits = [row for key, row in values.items() if key.startswith("represent ")]
    lines = []
    for group in sorted(set(GROUPS.values())):
        gain = np.concatenate([split[group]["gain"] for split in splits])
        mean = bootstrap_mean(gain, items=np.concatenate([split[group]["item"] for split in splits]))
        lines.append(line(group, f"{len(gain):,}", with_interval(mean)))
    return GROUPS_PART.format(n=len(splits), table=table(("group", "labels", "gain"), lines))


def hidden_part(values: dict[str, Values]) -> str:
    """Tabulate the log-loss of each model, and whether ours is the lowest."""
    lines, head = [], list[str]()
    for name in SETS:
        splits = [values[f"hidden {name} {split}"] for split in range(N_SPLITS)]
        logs = {m: np.concatenate([split["logs"][m] for split in splits]) for m in splits[0]["logs"]}
        items = np.concatenate([split["item"] for split in splits])
        best = min((model for model in logs if model != INFORMED), key=lambda model: -logs[model].mean())
        gain = bootstrap_mean(logs[INFORMED] - logs[best], items=items)
        verdict = "lowest" if gain.low > 0 else "higher" if gain.high < 0 else "tied"
        losses = (f"{-rows.mean():.4f}" for rows in logs.values())
        lines.append(line(name, *losses, with_interval(gain), verdict))
        head = ["dataset", *logs, "gain", "ours is"]
    return HIDDEN.format(n=N_SPLITS, chains=SHORT_FIT["n_chains"], table=table(head, lines))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the requested parts, and write the page if all parts are finished."""
    parser = page_parser("experiments.judges", "Judges beside humans")
    parser.add_argument("--part", action="append", choices=PARTS, help="measure this part only; repeatable")
    options = parser.parse_args(arguments)
    measurements = Measurements(options.finished)
    measure(options.data, measurements, options.part or PARTS)
    values = measurements.values
    missing = [part for part in PARTS if not any(key.startswith(f"{part} ") for key in values)]
    if missing:
        print(f"no page written; still to measure: {', '.join(missing)}")
        return
    tables = kappa_part, bias_part, drift_part, rates_part, copies_part, groups_part, hidden_part
    parts = [part(values) for part in tables]
    write_page(options.output, "".join([published_part(options.data), *parts]))


if __name__ == "__main__":
    main()
