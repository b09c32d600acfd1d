"""One true class: was the default chosen by hindsight, what gold for some items is worth, and whether the
cross-fitted accuracy can be believed. Writes docs/results/truth.md:

    python -m experiments.truth [--data DIR] [--finished FILE] [--only NAME,…]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dissensus as ds
from dissensus.evaluate.compare import TIED, UNSEEN, choose_truth, held_out_scores
from dissensus.evaluate.gold import cross_fitted, judged_items, right_rows
from dissensus.metrics import accuracy_rows
from dissensus.models.confusion import gold_prior
from dissensus.params import with_settings
from experiments.common import Finished, Values, command_line, write_files
from reproduction.datasets import read_dataset
from reproduction.tables import line, table

# What the default was chosen among, the simplest first; of several with the same mean the first is taken.
CANDIDATES: dict[str, Any] = {
    "majority": ds.MajorityVote(),
    "one-coin": ds.OneCoin(),
    "MACE": ds.MACE(),
    "Dawid–Skene": ds.DawidSkene(),
    "CBCC": ds.CBCC(),
    "IBCC": ds.IBCC(),
    "IBCC, damped": ds.IBCC(unseen=UNSEEN),
    "EBCC": ds.EBCC(),
    "EBCC, damped": ds.EBCC(unseen=UNSEEN),
    "log-linear, not damped": ds.LogLinear(unseen=1.0),
    "log-linear": ds.LogLinear(),
}
TOGETHER = ("EBCC", "EBCC, damped")  # in these annotators err together, in all others apart
DEFAULT = "the default"
SHARES, DRAWS = (0.05, 0.1, 0.2), 5
EVEN = "even"  # gold of as many items of each class
Draws = dict[float | str, list[Values]]  # by share of gold
CROSSED = 0.1  # share of gold at which the cross-fitted accuracy is held against the rest
TRAPS, CROWDS = (
    (0.0, 0.1, 0.2, 0.3, 0.4),
    5,
)  # shares of items on which annotators err together; crowds of each
MOST_LOST = 0.003  # by leaving each dataset out, as an aim
LARGE, LARGE_DRAWS = 50_000, 2  # labels from which fewer draws are cross-fitted


def accuracy(annotations: ds.Annotations, model: Any) -> float:
    """Share right of the items with labels and gold."""
    return float(right_rows(annotations, model.label_distributions_, judged_items(annotations)).mean())


def candidates(annotations: ds.Annotations) -> Values:
    """Accuracy of everything that the default was chosen among, and of the default."""
    fitted = {name: with_settings(model, {}).fit(annotations) for name, model in CANDIDATES.items()}
    found = {name: accuracy(annotations, model) for name, model in fitted.items()}
    return found | {DEFAULT: accuracy(annotations, choose_truth(annotations).model)}


def gate(annotations: ds.Annotations) -> Values:
    """What speaks for EBCC: its bound less IBCC's; how much better than log-linear it foresees hidden labels.

    The second with its standard error; and the accuracy of the two answers, averaged.
    """
    apart, together = choose_truth(annotations).table[:2]
    rivals = [ds.LogLinear(), ds.EBCC(unseen=UNSEEN)]
    first, second = held_out_scores(annotations, rivals, n_jobs=1)
    ahead, error = second.ahead_of(first, "annotators")
    answers = [with_settings(model, {}).fit(annotations).label_distributions_ for model in rivals]
    rows = right_rows(annotations, np.mean(answers, axis=0), judged_items(annotations))
    found = {"bound": together.bound - apart.bound, "ahead": ahead, "error": error}
    return found | {"averaged": float(rows.mean())}


def with_known_class(
    annotations: ds.Annotations, share: float, draw: int, even: bool = False
) -> NDArray[np.intp]:
    """A share of the judged items, drawn at random; or as many of each class (``even``)."""
    judged = judged_items(annotations)
    rng = np.random.default_rng([int(share * 1000), draw])
    order, n = rng.permutation(judged), round(share * len(judged))
    if not even:
        return order[:n]
    classes = np.asarray(annotations.gold)[order]
    each = max(1, n // len(np.unique(classes)))
    return np.concatenate([order[classes == one][:each] for one in np.unique(classes)])


def gold_draw(annotations: ds.Annotations, model: Any, share: float, draw: int, even: bool = False) -> Values:
    """Accuracy on the items without gold, when a share of the judged items has it, and when none has."""
    known = with_known_class(annotations, share, draw, even)
    rest = np.setdiff1d(judged_items(annotations), known)
    prior = np.ones((annotations.n_items, annotations.n_classes))
    prior[known] = gold_prior(annotations)[known]
    trained = with_settings(model, {}).fit(annotations, prior=prior)
    before, after = (right_rows(annotations, one.label_distributions_, rest) for one in (model, trained))
    values: Values = {"without": float(before.mean()), "with": float(after.mean()), "rest": len(rest)}
    values["known"] = len(known)
    change = after - before
    values["changed"] = {str(rest[place]): float(change[place]) for place in np.flatnonzero(change)}
    if even or share != CROSSED or (annotations.n_labels > LARGE and draw >= LARGE_DRAWS):
        return values
    some = np.full(annotations.n_items, -1, np.int32)
    some[known] = np.asarray(annotations.gold)[known]
    part = ds.Annotations(**{**vars_of(annotations), "gold": some})
    crossed = cross_fitted(model, part, seed=draw)
    return values | {"crossed": float(right_rows(annotations, crossed, known).mean()), "n": len(known)}


def traps(seed: int, share: float) -> tuple[ds.Annotations, NDArray[np.intp]]:
    """300 items of two classes, 12 annotators, and the truth.

    On a share of the items of class 0, eight of the twelve mostly err alike; else all err apart.
    """
    rng = np.random.default_rng([seed, round(100 * share)])
    truth = rng.integers(2, size=300)
    trap = (truth == 0) & (rng.random(300) < share)
    said = np.where(rng.random((300, 12)) < 0.9, truth[:, None], 1 - truth[:, None])
    fooled = trap[:, None] & (np.arange(12) < 8) & (rng.random((300, 12)) < 0.9)
    m, n = np.indices(said.shape)
    label = np.where(fooled, 1, said)
    return ds.Annotations.from_arrays(m.ravel(), n.ravel(), label.ravel(), classes=[0, 1]), truth


def trapped(share: float) -> Values:
    """Accuracy of log-linear Dawid–Skene and of the default in simulated crowds, and how often it is EBCC."""
    found: dict[str, list[float]] = {"log-linear": [], DEFAULT: [], "EBCC": []}
    for seed in range(CROWDS):
        labels, truth = traps(seed, share)
        chosen = choose_truth(labels).model
        for name, model in (("log-linear", ds.LogLinear().fit(labels)), (DEFAULT, chosen)):
            found[name].append(float(accuracy_rows(truth, model.label_distributions_).mean()))
        found["EBCC"].append(float(isinstance(chosen, ds.EBCC)))
    return {name: float(np.mean(values)) for name, values in found.items()}


def vars_of(annotations: ds.Annotations) -> dict[str, Any]:
    """The fields of the annotations, by name."""
    return {name: getattr(annotations, name) for name in annotations.__dataclass_fields__}


# ---- the page -------------------------------------------------------------------------------------------


def best_of(results: Mapping[str, Values], methods: Sequence[str], without: str) -> list[str]:
    """The methods with the highest mean accuracy on all datasets but one, in their order."""
    others = [found for name, found in results.items() if name != without]
    means = {m: round(float(np.mean([found[m] for found in others])), 12) for m in methods}
    return [m for m in methods if means[m] == max(means.values())]


def left_out(results: Mapping[str, Values], bounds: Mapping[str, float], rule: str) -> dict[str, list[str]]:
    """By dataset, the methods that a rule takes when the accuracies on that dataset are not known.

    ``bounds`` are EBCC's less IBCC's. Several methods: each would do as well as the others.
    """
    methods = [*CANDIDATES, DEFAULT]
    if rule == "simplest":
        return {name: best_of(results, methods, name)[:1] for name in results}
    if rule == "mean":
        return {name: best_of(results, methods, name) for name in results}
    apart = [method for method in CANDIDATES if method not in TOGETHER]
    return {name: best_of(results, TOGETHER if bounds[name] > 0 else apart, name)[:1] for name in results}


RULES = {
    "simplest": "the best mean on the others; of equal ones the simplest",
    "mean": "the best mean on the others; equal ones in equal parts",
    "bounds": "the picture with the higher bound; its best model on the others",
}


def rules_table(results: Mapping[str, Values], bounds: Mapping[str, float]) -> str:
    """What each rule scores on the datasets left out, and what it loses against the default."""
    rows, default = [], float(np.mean([found[DEFAULT] for found in results.values()]))
    for number, (rule, words) in enumerate(RULES.items()):
        chosen = left_out(results, bounds, rule)
        mean = float(np.mean([np.mean([results[name][m] for m in found]) for name, found in chosen.items()]))
        counted = Counter(" or ".join(found) for found in chosen.values())
        times = "; ".join(f"{methods} ({n})" for methods, n in counted.items())
        loss = default - mean
        reached = "yes" if loss <= MOST_LOST else "no"
        rows.append(line(f"({'abc'[number]}) {words}", f"{mean:.4f}", f"{loss:.5f}", reached, times))
    return table(("rule", "mean", "loss", f"at most {MOST_LOST}", "taken (times)"), rows)


def gates_table(results: Mapping[str, Values], gates: Mapping[str, Values]) -> str:
    """What speaks for EBCC, and the accuracy of it, of log-linear, and of their mean."""
    rows = [
        line(
            name,
            f"{found['bound']:+,.1f}",
            f"{found['ahead']:+.4f} ± {found['error']:.4f}",
            *(f"{value:.4f}" for value in (results[name]["log-linear"], results[name]["EBCC, damped"])),
            f"{found['averaged']:.4f}",
        )
        for name, found in gates.items()
    ]
    heads = (
        "bound of EBCC less IBCC's",
        "hidden labels: EBCC less log-linear",
        "log-linear",
        "EBCC",
        "mean of both",
    )
    return table(("dataset", *heads), rows)


def by_hidden_labels(results: Mapping[str, Values], gates: Mapping[str, Values]) -> tuple[float, list[str]]:
    """Mean accuracy if EBCC answers where hidden labels clearly say so, else log-linear; and where."""
    chosen = [name for name, found in gates.items() if found["ahead"] > TIED * found["error"]]
    answers = {name: "EBCC, damped" if name in chosen else "log-linear" for name in results}
    return float(np.mean([results[name][method] for name, method in answers.items()])), chosen


PAGE = """# One true class

Written by `python -m experiments.truth{options}`. Accuracy on the items that have labels and gold, ties in
part.

## Was the default chosen by hindsight?

Everything it was chosen among, mean over {n} datasets:

{candidates}

Leaving each dataset out: a rule sees the accuracies on the other datasets, takes a method, and is scored on
the one left out. At most {most} below the default's {default:.4f} was aimed at.

{rules}

**Rule (c) is the one that the default follows.** There are two pictures of a crowd: annotators err apart (all
methods but EBCC), or together (EBCC). Which of them holds is asked of each dataset's own labels: EBCC's bound
on the log evidence, with all normalisers, is above IBCC's or it is not. No accuracy takes part in that, so
there is nothing in it to learn from other datasets. Accuracy on other datasets decides which model stands for
each picture, and that is what (c) decides anew without each of them. (It was put into these words when it was
known that (a) misses.)

Rules (a) and (b) ask more: is it worth having the second picture at all? To that few datasets answer, of the
{n} here: EBCC's bound is higher on {apart}. Where it is lower, log-linear and the default give the same
answers. So what (a) and (b) lose says how little these datasets can tell about the second picture: whether it
is worth having, datasets that were kept back must say.

Does anything else speak for EBCC? Hidden labels do, and they need no gold: a fifth of the labels is foreseen
by EBCC and by log-linear Dawid–Skene (nats a label, ± the standard error over items).

{gates}

EBCC foresees hidden labels better by more than two standard errors on {clear}.
Taken there and log-linear elsewhere, the mean would be {hidden:.4f}: no better, and it takes a second fit of
each model, so the bound stays. The mean of both answers scores {averaged:.4f} in all. Weights
by the bounds, e^(difference), would be 0 or 1 but on datasets where the bounds differ by a few nats, and the
smallest difference here is {smallest:.1f} nats: they are the gate.

Simulated crowds do not decide it either: of 12 annotators, eight mostly err alike on a share of the items of
one class (300 items, {crowds} crowds each). EBCC's bound tells that they do; mean accuracy changes by at most
{gap:.3f}.

{traps}

## What gold is worth

Gold for a share of the judged items, drawn {draws} times; accuracy on the *other* judged items with it, less
without it, in points, ± the standard error over the draws. Draws share their items, and other items would
give other figures: the last column is the standard error over items of the change at {crossed_share:.0%}
gold, each item's change averaged over the draws that judge it. "Even": as many gold items of each class,
whatever its share, {crossed_share:.0%} in all.

{gold}

## Can the cross-fitted accuracy be believed?

Gold for 10 % of the judged items: its cross-fitted accuracy, less the accuracy on the items that were kept
back, in points, and what chance alone would allow (the standard error of so few items).

{crossed}
"""


def item_error(draws: Sequence[Values]) -> float:
    """Standard error over items of the mean change, in points; an item's is its mean over the draws."""
    judged = draws[0]["rest"] + draws[0]["known"]
    times = len(draws) * draws[0]["rest"] / judged  # that an item is judged, on average
    sums: Counter[str] = Counter()
    for one in draws:
        sums.update(one["changed"])
    change = np.zeros(judged)
    change[: len(sums)] = np.array(list(sums.values())) / times
    return float(100 * change.std(ddof=1) / np.sqrt(judged))


def gold_table(draws: Mapping[str, Draws]) -> str:
    """What gold adds, by dataset and share."""
    rows, found = [], np.zeros((len(draws), len(SHARES) + 1, 2))
    for place, (name, by_share) in enumerate(draws.items()):
        gains = [
            100 * np.array([one["with"] - one["without"] for one in by_share[s]]) for s in (*SHARES, EVEN)
        ]
        found[place] = [(gain.mean(), gain.std(ddof=1) / np.sqrt(len(gain))) for gain in gains]
        cells = [f"{mean:+.2f} ± {error:.2f}" for mean, error in found[place]]
        rows.append(line(name, *cells, f"{item_error(by_share[CROSSED]):.2f}"))
    means, errors = found[..., 0].mean(axis=0), np.sqrt((found[..., 1] ** 2).sum(axis=0)) / len(draws)
    in_all = (f"{mean:+.2f} ± {error:.2f}" for mean, error in zip(means, errors, strict=True))
    rows.append(line("**mean**", *in_all, ""))
    heads = (*(f"{share:.0%} gold" for share in SHARES), "even", "error over items")
    return table(("dataset", *heads), rows)


def crossed_table(draws: Mapping[str, Draws]) -> str:
    """Cross-fitted accuracy less that on the items kept back, by dataset."""
    rows, gaps = [], []
    for name, by_share in draws.items():
        found = [one for one in by_share[CROSSED] if "crossed" in one]
        gaps.append(100 * float(np.mean([one["crossed"] - one["with"] for one in found])))
        variance = np.mean([one["with"] * (1 - one["with"]) / one["n"] for one in found]) / len(found)
        rows.append(line(name, f"{found[0]['n']}", f"{gaps[-1]:+.2f}", f"{100 * np.sqrt(variance):.2f}"))
    rows.append(line("**mean**", "", f"{np.mean(gaps):+.2f}", ""))
    return table(("dataset", "items with gold", "cross-fitted less kept back", "standard error"), rows)


def traps_table(found: Mapping[float, Values]) -> str:
    """Simulated crowds, by the share of items on which annotators err together."""
    rows = [
        line(f"{share:.0%}", f"{one['log-linear']:.3f}", f"{one[DEFAULT]:.3f}", f"{one['EBCC']:.0%}")
        for share, one in found.items()
    ]
    return table(("items on which they err alike", "log-linear", DEFAULT, "EBCC chosen"), rows)


def page(
    results: Mapping[str, Values],
    gates: Mapping[str, Values],
    draws: Mapping[str, Draws],
    simulated: Mapping[float, Values],
    without: str,
) -> str:
    """The whole page."""
    order = list(CANDIDATES)
    means = {m: float(np.mean([found[m] for found in results.values()])) for m in (*order, DEFAULT)}
    bounds = {name: found["bound"] for name, found in gates.items()}
    hidden, clear = by_hidden_labels(results, gates)
    return PAGE.format(
        options=f" --without {without}" if without else "",
        n=len(results),
        candidates=table(("method", "mean"), [line(m, f"{mean:.4f}") for m, mean in means.items()]),
        default=means[DEFAULT],
        most=MOST_LOST,
        rules=rules_table(results, bounds),
        apart=", ".join(name for name, bound in bounds.items() if bound > 0),
        gates=gates_table(results, gates),
        clear=", ".join(clear),
        hidden=hidden,
        averaged=float(np.mean([found["averaged"] for found in gates.values()])),
        smallest=min(abs(bound) for bound in bounds.values()),
        crowds=CROWDS,
        gap=max(abs(one[DEFAULT] - one["log-linear"]) for one in simulated.values()),
        traps=traps_table(simulated),
        draws=DRAWS,
        crossed_share=CROSSED,
        gold=gold_table(draws),
        crossed=crossed_table(draws),
    )


def drawn(annotations: ds.Annotations, name: str, finished: Finished) -> Draws:
    """Every draw of gold labels of one dataset; the model is chosen once, without gold."""
    model: list[Any] = []

    def measure(share: float | str, draw: int) -> Values:
        model[:] = model or [choose_truth(annotations).model]
        if isinstance(share, str):
            return gold_draw(annotations, model[0], CROSSED, draw, even=True)
        return gold_draw(annotations, model[0], share, draw)

    return {
        share: [
            finished.measured(f"gold {name} {share} {draw}", partial(measure, share, draw))
            for draw in range(DRAWS)
        ]
        for share in (*SHARES, EVEN)
    }


def main() -> None:
    """The command line."""
    parser = command_line(
        "python -m experiments.truth", __doc__ or "", "docs/results/truth.md", finished=True
    )
    parser.add_argument("--only", help="datasets, joined by commas; then no page is written")
    parser.add_argument("--without", default="", help="datasets to leave out, joined by commas")
    given = parser.parse_args()
    finished = Finished(given.finished)
    folders = [folder for folder in sorted(given.data.iterdir()) if any(folder.glob("gold.csv*"))]
    names = [folder.name for folder in folders if folder.name not in given.without.split(",")]
    results, gates, draws = {}, {}, {}
    for name in names if given.only is None else given.only.split(","):
        annotations = read_dataset(Path(given.data) / name)
        results[name] = finished.measured(f"candidates {name}", partial(candidates, annotations))
        gates[name] = finished.measured(f"gate {name}", partial(gate, annotations))
        draws[name] = drawn(annotations, name, finished)
        print(name, results[name][DEFAULT], flush=True)
    if given.only is None:
        simulated = {share: finished.measured(f"traps {share}", partial(trapped, share)) for share in TRAPS}
        write_files(given.output, page(results, gates, draws, simulated, given.without))


if __name__ == "__main__":
    main()
