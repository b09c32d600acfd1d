"""One true class: the default, calibration, what gold labels add, and whether cross-fitting is accurate.

python -m experiments.truth [--data DIR] [--finished FILE] [--only NAME,...]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dissensus as ds
from dissensus.evaluate.bootstrap import bootstrap_mean
from dissensus.evaluate.compare import TIE_STANDARD_ERRORS, held_out_scores
from dissensus.evaluate.gold import cross_fitted, judged_items, right_rows
from dissensus.evaluate.truth import choose_truth
from dissensus.metrics import accuracy_rows, brier, calibration_error, log_loss, log_loss_rows
from dissensus.models.calibration import LIMITS, MISLEADING_SHARE, calibrated
from dissensus.models.confusion import gold_prior
from dissensus.numerics import Array, normalised
from dissensus.params import with_settings
from experiments.runner import (
    Measurements,
    Values,
    dataset_names,
    line,
    page_parser,
    read_dataset,
    table,
    with_interval,
    write_page,
    yes,
)

UNSEEN = 0.3  # damping of the models marked as damped
# The models from which the default was chosen, the simplest first; among equal means the first one wins.
CANDIDATES: dict[str, Any] = {
    "majority": ds.MajorityVote(),
    "Dawid–Skene": ds.DawidSkene(),
    "CBCC": ds.CBCC(),
    "IBCC": ds.IBCC(),
    "IBCC, damped": ds.IBCC(unseen=UNSEEN),
    "EBCC": ds.EBCC(),
    "EBCC, damped": ds.EBCC(unseen=UNSEEN),
    "log-linear, not damped": ds.LogLinear(unseen=1.0),
    "log-linear": ds.LogLinear(),
}
CORRELATED_MODELS = ("EBCC", "EBCC, damped")  # models in which errors of annotators are correlated
DEFAULT = "the default"
SHARES = "vote shares"  # the reference for probabilities
ADDED_ONE = "vote shares, one added to each count"
FITTED = "the default, fitted to gold"  # the best that its calibration can reach
MISLEADING_SHARES = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1)  # values of λ that are compared
# Other calibrations, with two constants each: T_m = min(1, c n_m^−d), or a limit c √t and λ
RECIPES = ("min(1, c n^−d)", "limit c √t, t from halves of the annotators")
RECIPE = [(c, d) for c in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0) for d in (0.3, 0.4, 0.5, 0.6, 0.7)]
LIMIT_FACTORS, N_HALVES = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8), 6  # values of c, and divisions into halves
GOLD_SHARES, GOLD_DRAWS = (0.05, 0.1, 0.2), 5
EVEN = "even"  # the same number of gold items in each class
GoldDraws = dict[float | str, list[Values]]  # by share of gold
CROSS_FITTED_SHARE = 0.1  # share of gold at which cross-fitted and held-out accuracy are compared
TRAP_SHARES, TRAP_CROWDS = (0.0, 0.1, 0.2, 0.3, 0.4), 5
MAX_LOSS = 0.003  # accuracy that a leave-one-dataset-out choice may lose
LARGE_LABELS, LARGE_DRAWS = 50_000, 2  # datasets with more labels are cross-fitted on fewer draws


def accuracy(annotations: ds.Annotations, model: Any) -> float:
    """Return the share of correct answers among items with labels and gold."""
    return float(right_rows(annotations, model.label_distributions_, judged_items(annotations)).mean())


def probability_scores(annotations: ds.Annotations, probabilities: Array) -> list[float]:
    """Return log loss, Brier score and calibration error on items with labels and gold."""
    items = judged_items(annotations)
    gold = np.eye(annotations.n_classes)[np.asarray(annotations.gold)[items]]
    return [metric(gold, probabilities[items]) for metric in (log_loss, brier, calibration_error)]


def compared(annotations: ds.Annotations, probabilities: Array, reference: Array) -> list[float]:
    """Return log loss, calibration error, and the log loss above a reference with its standard error."""
    items = judged_items(annotations)
    gold = np.eye(annotations.n_classes)[np.asarray(annotations.gold)[items]]
    above = log_loss_rows(gold, probabilities[items]) - log_loss_rows(gold, reference[items])
    loss, _, ece = probability_scores(annotations, probabilities)
    return [loss, ece, float(above.mean()), float(above.std(ddof=1) / np.sqrt(len(above)))]


def fitted_to_gold(annotations: ds.Annotations, default: Any) -> Array:
    """Return the probabilities with the limit and λ that have the lowest log loss on the gold labels."""
    tables = (
        calibrated(default.posterior_, default.n_labels_, float(limit), misleading=share)
        for limit in LIMITS
        for share in MISLEADING_SHARES
    )
    return min(tables, key=lambda table: probability_scores(annotations, table)[0])


def by_recipe(default: Any, c: float, d: float) -> Array:
    """Return the posterior to the power of min(1, c n^−d), normalised; n is the number of labels."""
    exponent = np.minimum(1.0, c * np.maximum(default.n_labels_, 1.0) ** -d)[:, None]
    top = default.posterior_.max(axis=1, keepdims=True)
    return normalised((default.posterior_ / top) ** exponent)


def limit_of_halves(annotations: ds.Annotations) -> float:
    """Return the limit with which models of two halves of the annotators best explain that they agree.

    With the calibrated probabilities q and q′ of the halves, and ψ their mean over items, it maximises the
    mean of log Σ_k q_k q′_k / ψ_k over the items that both have labelled.
    """
    scores, model = np.zeros(len(LIMITS)), ds.LogLinear(estimate="population")
    for seed in range(N_HALVES):
        order = np.random.default_rng(seed).permutation(annotations.n_annotators)
        first = order[annotations.annotator] % 2 == 0
        halves = [with_settings(model, {}).fit(annotations.take_rows(rows)) for rows in (first, ~first)]
        both = np.all([half.n_labels_ > 0 for half in halves], axis=0)
        for i, limit in enumerate(LIMITS):
            q = [calibrated(half.posterior_[both], half.n_labels_[both], limit, 0.0) for half in halves]
            scores[i] += np.log((q[0] * q[1] / np.mean(q, axis=(0, 1))).sum(axis=1)).mean()
    return float(LIMITS[scores.argmax()])


def candidates(annotations: ds.Annotations) -> Values:
    """Measure the accuracy of every candidate and of the default, and the quality of their probabilities.

    Under "uncalibrated" are the scores of the default's posterior, and under "shares" the default compared
    with vote shares for various values of λ.
    """
    fitted = {name: with_settings(model, {}).fit(annotations) for name, model in CANDIDATES.items()}
    default: Any = choose_truth(annotations).model
    fitted[DEFAULT] = default
    values: Values = {name: accuracy(annotations, model) for name, model in fitted.items()}
    fitted[SHARES] = ds.EmpiricalDistribution().fit(annotations)
    fitted[ADDED_ONE] = ds.EmpiricalDistribution(smoothing=1.0).fit(annotations)
    tables = {name: model.label_distributions_ for name, model in fitted.items()}
    tables |= {"uncalibrated": default.posterior_, FITTED: fitted_to_gold(annotations, default)}
    values["scores"] = {name: probability_scores(annotations, table) for name, table in tables.items()}
    fit = default.posterior_, default.n_labels_, float(default.evidence_limit_)
    by_share = (calibrated(*fit, misleading=share) for share in MISLEADING_SHARES)
    values["shares"] = [compared(annotations, table, tables[SHARES]) for table in by_share]
    limit = limit_of_halves(annotations) ** 0.5
    by_halves = (calibrated(*fit[:2], c * limit, s) for c in LIMIT_FACTORS for s in MISLEADING_SHARES)
    for title, tried in zip(RECIPES, ((by_recipe(default, c, d) for c, d in RECIPE), by_halves), strict=True):
        values[title] = [probability_scores(annotations, table)[0] for table in tried]
    return values | {"limit": fit[2]}


def gate(annotations: ds.Annotations) -> Values:
    """Compare EBCC with its rivals by evidence bound, votes and held-out labels, without gold.

    Also measures the accuracy of the averaged answers of EBCC and log-linear Dawid–Skene.
    """
    choice = choose_truth(annotations)
    independent, correlated, default = choice.table
    rivals = [ds.LogLinear(), ds.EBCC()]
    first, second = held_out_scores(annotations, rivals, n_jobs=1)
    ahead, error = second.ahead_of(first, "annotators")
    answers = [with_settings(model, {}).fit(annotations).label_distributions_ for model in rivals]
    rows = right_rows(annotations, np.mean(answers, axis=0), judged_items(annotations))
    values: Values = {"bound": correlated.bound - independent.bound, "ahead": ahead, "error": error}
    values |= {"agreement": correlated.agreement - default.agreement, "averaged": float(rows.mean())}
    values["drifts"] = [row.drifts for row in (default, correlated)]
    return values | {"correlated": isinstance(choice.model, ds.EBCC)}


def gold_items(annotations: ds.Annotations, share: float, draw: int, even: bool) -> NDArray[np.intp]:
    """Draw a share of the judged items at random, or the same number from each class."""
    judged = judged_items(annotations)
    rng = np.random.default_rng([int(share * 1000), draw])
    order, n = rng.permutation(judged), round(share * len(judged))
    if not even:
        return order[:n]
    classes = np.asarray(annotations.gold)[order]
    per_class = max(1, n // len(np.unique(classes)))
    return np.concatenate([order[classes == code][:per_class] for code in np.unique(classes)])


def gold_draw(annotations: ds.Annotations, model: Any, share: float | str, draw: int) -> Values:
    """Measure accuracy on items without gold, with and without gold labels for the other items."""
    even = share == EVEN
    share = CROSS_FITTED_SHARE if isinstance(share, str) else share
    with_gold = gold_items(annotations, share, draw, even)
    rest = np.setdiff1d(judged_items(annotations), with_gold)
    prior = np.ones((annotations.n_items, annotations.n_classes))
    prior[with_gold] = gold_prior(annotations)[with_gold]
    trained = with_settings(model, {}).fit(annotations, prior=prior)
    before, after = (right_rows(annotations, fit.label_distributions_, rest) for fit in (model, trained))
    change = after - before
    values: Values = {
        "without": float(before.mean()),
        "with": float(after.mean()),
        "rest": len(rest),
        "known": len(with_gold),
        "changed": {str(rest[row]): float(change[row]) for row in np.flatnonzero(change)},
    }
    too_large = annotations.n_labels > LARGE_LABELS and draw >= LARGE_DRAWS
    if even or share != CROSS_FITTED_SHARE or too_large:
        return values
    gold = np.full(annotations.n_items, -1, np.int32)
    gold[with_gold] = np.asarray(annotations.gold)[with_gold]
    crossed = cross_fitted(model, replace(annotations, gold=gold), seed=draw)
    right = right_rows(annotations, crossed, with_gold)
    return values | {"crossed": float(right.mean()), "n": len(with_gold)}


def gold_draws(annotations: ds.Annotations, name: str, measurements: Measurements) -> GoldDraws:
    """Measure all gold draws of a dataset with the default model, which is chosen without gold."""
    models: list[Any] = []

    def measure(share: float | str, draw: int) -> Values:
        models[:] = models or [choose_truth(annotations).model]
        return gold_draw(annotations, models[0], share, draw)

    return {
        share: [
            measurements.get(f"gold {name} {share} {draw}", measure, share, draw)
            for draw in range(GOLD_DRAWS)
        ]
        for share in (*GOLD_SHARES, EVEN)
    }


def trap_crowd(seed: int, share: float) -> tuple[ds.Annotations, NDArray[np.intp]]:
    """Simulate 300 items of two classes and 12 annotators; return the labels and the truth.

    On a share of the items of class 0, eight of the twelve annotators mostly make the same error. All other
    errors are independent.
    """
    rng = np.random.default_rng([seed, round(100 * share)])
    truth = rng.integers(2, size=300)
    trap = (truth == 0) & (rng.random(300) < share)
    answers = np.where(rng.random((300, 12)) < 0.9, truth[:, None], 1 - truth[:, None])
    misled = trap[:, None] & (np.arange(12) < 8) & (rng.random((300, 12)) < 0.9)
    m, n = np.indices(answers.shape)
    label = np.where(misled, 1, answers)
    return ds.Annotations.from_arrays(m.ravel(), n.ravel(), label.ravel(), classes=[0, 1]), truth


def trap_accuracy(share: float) -> Values:
    """Measure log-linear Dawid–Skene and the default on simulated crowds, and how often EBCC is chosen."""
    values: dict[str, list[float]] = {"log-linear": [], DEFAULT: [], "EBCC": [], "before": [], "after": []}
    for seed in range(TRAP_CROWDS):
        labels, truth = trap_crowd(seed, share)
        chosen: Any = choose_truth(labels).model
        for name, model in (("log-linear", ds.LogLinear().fit(labels)), (DEFAULT, chosen)):
            values[name].append(float(accuracy_rows(truth, model.label_distributions_).mean()))
        values["EBCC"].append(float(isinstance(chosen, ds.EBCC)))
        values["before"].append(log_loss(np.eye(2)[truth], chosen.posterior_))
        values["after"].append(log_loss(np.eye(2)[truth], chosen.label_distributions_))
    return {name: float(np.mean(column)) for name, column in values.items()}


# ---- the page -------------------------------------------------------------------------------------------

RULES = {
    "simplest": "(a) best mean on the other datasets, the simplest among equals",
    "mean": "(b) best mean on the other datasets, averaged over equals",
    "bounds": "(c) kind of error by bound and votes, then the best model of that kind on the others",
}

PAGE = """# One true class

Written by `python -m experiments.truth{options}`. Accuracy is measured on items that have both labels and
gold; tied answers count in part.

## How the default was chosen

Mean accuracy over {n} datasets of the models compared:

{candidates}

To check for hindsight, each rule below chooses a model from the accuracies on all other datasets and is
scored on the dataset left out. The aim was a loss of at most {max_loss} against the default's {default:.4f}.

{rules}

**The default follows rule (c).** Errors of annotators are either independent (all models except EBCC) or
correlated (EBCC). The labels of each dataset decide which: EBCC is used if its bound on the log evidence is
above that of IBCC, or if a class drifts in log-linear Dawid–Skene but not in EBCC (in the population's
matrix, most answers to that class name another one). In both cases, its answers must agree with the majority
vote at least as often as those of log-linear. Gold labels play no part in this. Accuracy on other datasets
decides only which model represents each case. (The bounds were written down after rule (a) was known to miss
the aim, the agreement after EBCC was found to lose to the majority vote on other datasets, and the drift
after log-linear was found to lose to it on weather_sentiment_amt, which is therefore no test of the drift.)

EBCC is used on {correlated}. On all others the default and log-linear Dawid–Skene give the same answers. The
largest loss against the majority vote is {worst:.4f}.

Held-out labels are another criterion that needs no gold. A fifth of the labels is hidden and predicted by
EBCC and by log-linear Dawid–Skene (nats per label, ± standard error over items).

{gates}

EBCC predicts held-out labels better by more than two standard errors on {clear}.
Using it there and log-linear elsewhere gives a mean of {hidden:.4f}, less than the default, and needs a
second fit of each model. Averaging the answers of both models gives {averaged:.4f}. Weights computed from the
bounds would be close to 0 or 1, because the bounds differ by at least {smallest:.1f} nats.

Simulated crowds show little difference in accuracy (at most {gap:.3f}). Eight of 12 annotators make the same
errors on a share of the items of one class (300 items, {crowds} crowds each). The last columns are the log
loss of the default before and after calibration; in the first row, the assumptions of the model hold.

{traps}

## Probabilities

The posteriors of the models are overconfident, so probabilities are [calibrated](../truth.md#probabilities).
Log loss is the mean of −log P(gold class), with probabilities of at least 0.0001. The Brier score is the sum
of squared differences from the gold class. ECE is the expected calibration error: items are put into 10 bins
of equal width by their largest probability, and the differences between accuracy and mean largest probability
are averaged over items. "Vote shares" is the model `empirical`, whose smoothing is chosen for each dataset by
the likelihood of labels left out. "Fitted to gold" chooses limit and λ for the
lowest log loss on the gold labels of each dataset: calibration of this form cannot reach a lower one.

{scores}

The log loss of the default is below that of vote shares on {n_better} of {n} datasets. The limit is the
number of independent labels that an item's labels count as at most; it is learned without gold.

{calibration}

One constant of the calibration was chosen on these datasets: the share λ of misleading items. From 4 % to 8 %
the mean hardly changes; {chosen:.0%} is used. Chosen for each dataset by the mean log loss on the others:

{left_out}

{shares}

Other calibrations are not clearly better. The first is p^T with T = min(1, c n^−d) and n the labels of the
item. The second learns t from {halves} divisions of the annotators into halves: log-linear Dawid–Skene is
fitted to both, and t is the limit with which they best explain that they agree. Its other constant is λ.
Constants are chosen for each dataset on the others, or are the best for all; the interval (95 %) is over
datasets.

{recipes}

## What gold labels add

A share of the judged items receives gold labels, {draws} draws. The table shows the change in accuracy on the
*other* judged items in percentage points, ± standard error over draws. The last column is the standard error
over items at {crossed_share:.0%} gold. "Even" uses the same number of gold items in each class,
{crossed_share:.0%} in all.

{gold}

## Accuracy of cross-fitting

With gold for 10 % of the judged items: cross-fitted accuracy minus accuracy on the remaining judged items, in
percentage points, with the standard error expected for that number of items.

{crossed}
"""


def best_models(results: Mapping[str, Values], models: Sequence[str], left_out: str) -> list[str]:
    """Return the models with the highest mean accuracy on all datasets but one."""
    others = [values for name, values in results.items() if name != left_out]
    means = {m: round(float(np.mean([values[m] for values in others])), 12) for m in models}
    return [m for m in models if means[m] == max(means.values())]


def choose_without(
    results: Mapping[str, Values], correlated: Mapping[str, bool], rule: str
) -> dict[str, list[str]]:
    """Return the models that a rule chooses for each dataset without its accuracies.

    ``correlated`` says where the labels indicate correlated errors.
    """
    if rule != "bounds":
        chosen = {name: best_models(results, [*CANDIDATES, DEFAULT], name) for name in results}
        return chosen if rule == "mean" else {name: models[:1] for name, models in chosen.items()}
    independent = [model for model in CANDIDATES if model not in CORRELATED_MODELS]
    return {
        name: best_models(results, CORRELATED_MODELS if correlated[name] else independent, name)[:1]
        for name in results
    }


def rules_table(results: Mapping[str, Values], correlated: Mapping[str, bool]) -> str:
    """Tabulate the score of each rule on the datasets left out, and its loss against the default."""
    rows, default = [], float(np.mean([values[DEFAULT] for values in results.values()]))
    for rule, description in RULES.items():
        chosen = choose_without(results, correlated, rule)
        mean = float(
            np.mean([np.mean([results[name][m] for m in models]) for name, models in chosen.items()])
        )
        counts = Counter(" or ".join(models) for models in chosen.values())
        times = "; ".join(f"{models} ({n})" for models, n in counts.items())
        loss = default - mean
        rows.append(line(description, f"{mean:.4f}", f"{loss:.5f}", yes(loss <= MAX_LOSS), times))
    return table(("rule", "mean", "loss", f"at most {MAX_LOSS}", "chosen (times)"), rows)


def gates_table(results: Mapping[str, Values], gates: Mapping[str, Values]) -> str:
    """Tabulate the criteria for EBCC, and the accuracies of EBCC, log-linear and their average."""
    rows = []
    for name, values in gates.items():
        accuracies = results[name]["log-linear"], results[name]["EBCC"], values["averaged"]
        held_out = f"{values['ahead']:+.4f} ± {values['error']:.4f}"
        drifts = ", ".join(np.array(["log-linear", "EBCC"])[values["drifts"]]) or "–"
        votes = f"{values['agreement']:+.3f}", drifts
        rows.append(
            line(name, f"{values['bound']:+,.1f}", *votes, held_out, *(f"{a:.4f}" for a in accuracies))
        )
    criteria = ("bound: EBCC − IBCC", "agreement with the majority: EBCC − log-linear", "a class drifts in")
    held_out = "held-out labels: EBCC − log-linear"
    return table(("dataset", *criteria, held_out, "log-linear", "EBCC", "average of both"), rows)


def by_held_out(results: Mapping[str, Values], gates: Mapping[str, Values]) -> tuple[float, list[str]]:
    """Return the mean accuracy if held-out labels decided for EBCC, and the datasets where they do."""
    datasets = [
        name for name, values in gates.items() if values["ahead"] > TIE_STANDARD_ERRORS * values["error"]
    ]
    models = {name: "EBCC" if name in datasets else "log-linear" for name in results}
    return float(np.mean([results[name][model] for name, model in models.items()])), datasets


def item_error(draws: Sequence[Values]) -> float:
    """Return the standard error over items of the mean change, in percentage points."""
    n_judged = draws[0]["rest"] + draws[0]["known"]
    draws_per_item = len(draws) * draws[0]["rest"] / n_judged
    sums: Counter[str] = Counter()
    for draw in draws:
        sums.update(draw["changed"])
    change = np.zeros(n_judged)
    change[: len(sums)] = np.array(list(sums.values())) / draws_per_item
    return float(100 * change.std(ddof=1) / np.sqrt(n_judged))


def gold_table(draws: Mapping[str, GoldDraws]) -> str:
    """Tabulate what gold labels add, by dataset and share."""
    shares: list[float | str] = [*GOLD_SHARES, EVEN]
    rows, gains = [], np.zeros((len(draws), len(shares), 2))  # mean and standard error
    for row, (name, by_share) in enumerate(draws.items()):
        for column, share in enumerate(shares):
            gain = 100 * np.array([draw["with"] - draw["without"] for draw in by_share[share]])
            gains[row, column] = gain.mean(), gain.std(ddof=1) / np.sqrt(len(gain))
        cells = [f"{mean:+.2f} ± {error:.2f}" for mean, error in gains[row]]
        rows.append(line(name, *cells, f"{item_error(by_share[CROSS_FITTED_SHARE]):.2f}"))
    means, errors = gains[..., 0].mean(axis=0), np.sqrt((gains[..., 1] ** 2).sum(axis=0)) / len(draws)
    total = (f"{mean:+.2f} ± {error:.2f}" for mean, error in zip(means, errors, strict=True))
    rows.append(line("**mean**", *total, ""))
    return table(("dataset", *(f"{share:.0%} gold" for share in GOLD_SHARES), EVEN, "error over items"), rows)


def crossed_table(draws: Mapping[str, GoldDraws]) -> str:
    """Tabulate cross-fitted accuracy minus accuracy on the other items, by dataset."""
    rows, gaps = [], []
    for name, by_share in draws.items():
        crossed = [draw for draw in by_share[CROSS_FITTED_SHARE] if "crossed" in draw]
        gaps.append(100 * float(np.mean([draw["crossed"] - draw["with"] for draw in crossed])))
        variance = np.mean([d["with"] * (1 - d["with"]) / d["n"] for d in crossed]) / len(crossed)
        rows.append(line(name, f"{crossed[0]['n']}", f"{gaps[-1]:+.2f}", f"{100 * np.sqrt(variance):.2f}"))
    rows.append(line("**mean**", "", f"{np.mean(gaps):+.2f}", ""))
    return table(("dataset", "items with gold", "cross-fitted − held-out", "standard error"), rows)


def traps_table(traps: Mapping[float, Values]) -> str:
    """Tabulate the simulated crowds, by the share of items with common errors."""
    rows = [
        line(
            *(f"{share:.0%}", f"{row['log-linear']:.3f}", f"{row[DEFAULT]:.3f}", f"{row['EBCC']:.0%}"),
            *(f"{row['before']:.3f}", f"{row['after']:.3f}"),
        )
        for share, row in traps.items()
    ]
    head = ("items with common errors", "log-linear", DEFAULT, "EBCC chosen")
    return table((*head, "log loss before", "log loss after"), rows)


def scores_table(results: Mapping[str, Values]) -> str:
    """Tabulate the mean accuracy and the mean quality of the probabilities of all models."""
    rows = []
    for model in (SHARES, ADDED_ONE, *CANDIDATES, "uncalibrated", DEFAULT, FITTED):
        scores = np.mean([values["scores"][model] for values in results.values()], axis=0)
        title = "the default, not calibrated" if model == "uncalibrated" else model
        rows.append(line(title, *(f"{score:.3f}" for score in scores)))
    return table(("model", "log loss", "Brier score", "ECE"), rows)


def calibration_table(results: Mapping[str, Values]) -> str:
    """Tabulate accuracy, and log loss and calibration error of the default before and after calibration."""
    rows = []
    for name, values in results.items():
        before, after, shares = (values["scores"][model] for model in ("uncalibrated", DEFAULT, SHARES))
        columns = before[0], after[0], shares[0], before[2], after[2], shares[2]
        accuracies = f"{values[DEFAULT]:.4f}", f"{values['majority']:.4f}", f"{values['limit']:.1f}"
        rows.append(line(name, *accuracies, *(f"{column:.3f}" for column in columns)))
    head = ("dataset", "accuracy", "majority", "limit", "log loss before", "after", "vote shares")
    return table((*head, "ECE before", "after", "vote shares"), rows)


def chosen_on_others(losses: Array) -> NDArray[np.intp]:
    """Return the constants (columns) with the lowest mean log loss on the other datasets."""
    return np.asarray((losses.sum(axis=0) - losses).argmin(axis=1))


def left_out_losses(losses: Array) -> Array:
    """Return the log loss on each dataset with the constants (columns) chosen on the others."""
    return np.asarray(losses[np.arange(len(losses)), chosen_on_others(losses)])


def left_out_table(results: Mapping[str, Values]) -> str:
    """Tabulate the default with λ chosen on the other datasets, and where vote shares are better."""
    by_share = np.array([values["shares"] for values in results.values()])
    chosen = by_share[np.arange(len(by_share)), chosen_on_others(by_share[..., 0])]
    added_one = np.array([values["scores"][ADDED_ONE][0] for values in results.values()])
    worse = {
        name: f"{name} ({row[2]:+.3f} ± {row[3]:.3f})"
        for name, row in zip(results, chosen, strict=True)
        if row[2] >= 0
    }
    rows = [
        line("mean log loss", f"{chosen[:, 0].mean():.3f}"),
        line("mean ECE", f"{chosen[:, 1].mean():.3f}"),
        line("log loss below vote shares", f"{len(results) - len(worse)} of {len(results)} datasets"),
        line("not below, difference ± standard error over items", ", ".join(worse.values())),
        line(f"log loss below {ADDED_ONE}", f"{(chosen[:, 0] < added_one).sum()} of {len(results)} datasets"),
    ]
    return table(("λ chosen on the others", ""), rows)


def recipes_table(results: Mapping[str, Values]) -> str:
    """Tabulate the mean log losses of other calibrations, and how far they are above the default."""
    rows, default = [], np.array([values["scores"][DEFAULT][0] for values in results.values()])
    for title in RECIPES:
        losses = np.array([values[title] for values in results.values()])
        means = left_out_losses(losses).mean(), losses.mean(axis=0).min()
        difference = with_interval(bootstrap_mean(left_out_losses(losses) - default))
        rows.append(line(title, *(f"{mean:.3f}" for mean in means), difference))
    return table(("calibration", "chosen on the others", "best for all", "first − default"), rows)


def page(
    results: Mapping[str, Values],
    gates: Mapping[str, Values],
    draws: Mapping[str, GoldDraws],
    traps: Mapping[float, Values],
    without: str,
) -> str:
    """Return the page."""
    means = {m: float(np.mean([values[m] for values in results.values()])) for m in (*CANDIDATES, DEFAULT)}
    correlated = {name: values["correlated"] for name, values in gates.items()}
    losses = np.mean([values["shares"] for values in results.values()], axis=0)[:, 0]
    hidden, clear = by_held_out(results, gates)
    return PAGE.format(
        options=f" --without {without}" if without else "",
        n=len(results),
        candidates=table(("model", "mean"), [line(m, f"{mean:.4f}") for m, mean in means.items()]),
        default=means[DEFAULT],
        max_loss=MAX_LOSS,
        rules=rules_table(results, correlated),
        correlated=", ".join(name for name, is_correlated in correlated.items() if is_correlated),
        worst=max(0.0, *(values["majority"] - values[DEFAULT] for values in results.values())),
        gates=gates_table(results, gates),
        clear=", ".join(clear),
        hidden=hidden,
        averaged=float(np.mean([values["averaged"] for values in gates.values()])),
        smallest=min(abs(values["bound"]) for values in gates.values()),
        crowds=TRAP_CROWDS,
        gap=max(abs(row[DEFAULT] - row["log-linear"]) for row in traps.values()),
        traps=traps_table(traps),
        scores=scores_table(results),
        n_better=sum(
            values["scores"][DEFAULT][0] < values["scores"][SHARES][0] for values in results.values()
        ),
        calibration=calibration_table(results),
        left_out=left_out_table(results),
        halves=N_HALVES,
        recipes=recipes_table(results),
        chosen=MISLEADING_SHARE,
        shares=table(
            ("λ", "mean log loss"),
            [
                line(f"{share:.0%}", f"{loss:.3f}")
                for share, loss in zip(MISLEADING_SHARES, losses, strict=True)
            ],
        ),
        draws=GOLD_DRAWS,
        crossed_share=CROSS_FITTED_SHARE,
        gold=gold_table(draws),
        crossed=crossed_table(draws),
    )


def main() -> None:
    """Measure every dataset with gold labels, and write the page."""
    parser = page_parser("experiments.truth", "One true class")
    parser.add_argument("--only", help="datasets, separated by commas; no page is written")
    parser.add_argument("--without", default="", help="datasets to leave out, separated by commas")
    options = parser.parse_args()
    measurements = Measurements(options.finished)
    excluded = options.without.split(",")
    names = [name for name in dataset_names(options.data, "gold") if name not in excluded]
    results, gates, draws = {}, {}, {}
    for name in names if options.only is None else options.only.split(","):
        annotations = read_dataset(options.data / name)
        results[name] = measurements.get(f"candidates {name}", candidates, annotations)
        gates[name] = measurements.get(f"gate {name}", gate, annotations)
        draws[name] = gold_draws(annotations, name, measurements)
    if options.only is None:
        traps = {share: measurements.get(f"traps {share}", trap_accuracy, share) for share in TRAP_SHARES}
        write_page(options.output, page(results, gates, draws, traps, options.without))


if __name__ == "__main__":
    main()
