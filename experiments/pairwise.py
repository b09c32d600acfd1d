"""Comparisons: hidden preferences foreseen by BradleyTerry and by crowd-kit's two models of comparisons.

A fifth of the (pair, annotator) answers is hidden, three times. On answers without a tie: −log P(winner)
given that, for all models in one run; ties are scored apart, as −log P(left, tie or right) of every answer.

Planted crowds with one annotator who answers the other way round and one who tosses coins: are the two found,
and do the intervals of scores and ranks cover?

Run as ``python -m experiments.pairwise [--data DIR] [-o FILE] [--finished FILE]``; needs the ``bench`` extra.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dissensus as ds
from dissensus._version import __version__
from dissensus.evaluate.bootstrap import bootstrap_mean
from dissensus.labels.annotations import Annotations
from dissensus.numerics import Array
from experiments.common import Finished, Values, command_line, write_files
from reproduction.tables import line

COMMAND = "python -m experiments.pairwise"
SPLITS = 3
CROWDS = 40
BAD = {"j00": -1.0, "j01": 0.0}  # who answers the other way round, and who tosses coins


def convincing_arguments(data: Path) -> pd.DataFrame:
    """ukp_convarg: the two arguments are the parts of the text."""
    labels = pd.read_csv(data / "ukp_convarg" / "annotations.csv", dtype=str)
    items = pd.read_csv(data / "ukp_convarg" / "items.csv.gz", dtype=str)
    items[["left", "right"]] = items["text"].str.split(" [SEP] ", n=1, expand=True, regex=False)
    frame = labels.merge(items[["item", "left", "right"]], on="item")
    frame["winner"] = frame["label"].map({"a1": "left", "a2": "right", "equal": "tie"})
    return frame[frame["left"] != frame["right"]].drop(columns="label")


def conversations(data: Path) -> pd.DataFrame:
    """mtbench: the pair stands in the item's id."""
    frame = pd.read_csv(data.parent / "judges" / "mtbench" / "annotations.csv", dtype=str)
    frame[["left", "right"]] = frame["item"].str.split("__", expand=True)[[1, 2]]
    frame["winner"] = frame["label"].map({"model_a": "left", "model_b": "right", "tie": "tie"})
    return frame.drop(columns="label")


SETS = {"ukp_convarg": convincing_arguments, "mtbench": conversations}


def hidden_answers(frame: pd.DataFrame, seed: int) -> Values:
    """−log P of every hidden answer without a tie by each model, and of all answers by ours."""
    labels = ds.read_annotations(frame)
    kept, hidden = labels.split_labels(0.2, seed)
    model = ds.BradleyTerry().fit(kept)
    plain = ds.BradleyTerry(position=False, pair_effects=False).fit(kept)
    winner, untied = _classes(hidden)[hidden.label], _classes(hidden)[hidden.label] != "tie"
    won = (winner == "left")[untied]
    scores = {
        "ours": _untied(model._pair_distributions(hidden.item, hidden.annotator), hidden)[untied],
        "ours, item": _untied(model._item_distributions(hidden.item), hidden)[untied],
        "no pair effects": _untied(plain._pair_distributions(hidden.item, hidden.annotator), hidden)[untied],
    }
    scores |= {name: given[untied] for name, given in _crowd_kit(kept, hidden, seed).items()}
    losses = {name: -np.log(np.clip(np.where(won, p, 1 - p), 1e-9, 1)) for name, p in scores.items()}
    return {
        "item": hidden.item[untied].tolist(),
        "all": float(-model.log_chances(hidden).mean()),
        "all, counts": float(-ds.EmpiricalDistribution().fit(kept).log_chances(hidden).mean()),
        **{name: np.round(loss, 5).tolist() for name, loss in losses.items()},
    }


def planted(seed: int, n_things: int = 10, n_annotators: int = 12, n_answers: int = 1200) -> Values:
    """What is found of planted scores and bad annotators."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(0, 1, n_things)
    theta -= theta.mean()
    judges = [f"j{n:02d}" for n in range(n_annotators)]
    reliable = np.array([BAD.get(judge, 1.0) for judge in judges])
    left = rng.integers(0, n_things, n_answers)
    right = (left + rng.integers(1, n_things, n_answers)) % n_things
    who = rng.integers(0, n_annotators, n_answers)
    eta = reliable[who] * (theta[left] - theta[right])
    # P(left) ∝ e^{η/2}, P(tie) ∝ e^{−1}, P(right) ∝ e^{−η/2}
    weights = np.exp(np.stack([eta / 2, np.full(n_answers, -1.0), -eta / 2], axis=1))
    up_to = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
    won = (rng.random((n_answers, 1)) > up_to).sum(axis=1)
    sides = {"model_a": [f"m{i}" for i in left], "model_b": [f"m{i}" for i in right]}
    answers = {"judge": np.array(judges)[who], "winner": np.array(["model_a", "tie", "model_b"])[won]}
    return _found(ds.BradleyTerry(seed=seed).fit(pd.DataFrame(sides | answers)), theta, reliable)


def _found(model: ds.BradleyTerry, theta: Array, reliable: Array) -> Values:
    table = model.to_frame().set_index("item").loc[[f"m{i}" for i in range(len(theta))]]
    rank = len(theta) - theta.argsort().argsort()
    told = model.annotator_frame()
    # scores are in units of the usual reliability: the planted ones in the same units
    scores = reliable.mean() * theta
    good = np.flatnonzero(reliable == 1)
    return {
        "scores": float(((table["low"] <= scores) & (scores <= table["high"])).mean()),
        "ranks": float(((table["rank_low"] <= rank) & (rank <= table["rank_high"])).mean()),
        "width": float((table["rank_high"] - table["rank_low"] + 1).mean()),
        "against": bool(told["reliability"][0] < 0),
        "lowest": bool(told["reliability"][:2].max() < told["reliability"][good].min()),
    }


def planted_lines(finished: Finished) -> list[str]:
    """What was found over all crowds."""
    runs = [finished.measured(f"planted {seed}", partial(planted, seed)) for seed in range(CROWDS)]
    means = {
        key: bootstrap_mean(np.array([float(run[key]) for run in runs]))
        for key in runs[0]
        if key != "cpu_seconds"
    }
    shares = {key: f"{one.value:.1%} [{one.low:.1%}, {one.high:.1%}]" for key, one in means.items()}
    return [
        line("95 % intervals of scores that cover", shares["scores"]),
        line("95 % intervals of ranks that cover", shares["ranks"]),
        line("ranks in such an interval, of 10", f"{means['width'].value:.1f}"),
        line("crowds where who answers the other way round has a reliability below 0", shares["against"]),
        line("crowds where the two bad annotators have the lowest reliabilities", shares["lowest"]),
    ]


def _classes(labels: Annotations) -> Any:
    return labels.classes.astype(str)


def _untied(chances: Array, labels: Annotations) -> Array:
    """P(left | not a tie) from P(left, tie, right)."""
    names = list(_classes(labels))
    left, right = chances[:, names.index("left")], chances[:, names.index("right")]
    return np.asarray(left / (left + right))


def _crowd_kit(kept: Annotations, hidden: Annotations, seed: int) -> dict[str, Array]:
    """P(left wins) by crowd-kit's models, fitted to the kept answers without a tie."""
    from crowdkit.aggregation import BradleyTerry, NoisyBradleyTerry

    left, right = kept.item_column("left"), kept.item_column("right")
    names = _classes(kept)[kept.label]
    rows = names != "tie"
    item = kept.item[rows]
    given = pd.DataFrame(
        {"worker": kept.annotators[kept.annotator[rows]], "left": left[item], "right": right[item]}
    )
    given["label"] = np.where(names[rows] == "left", given["left"], given["right"])
    hidden_left, hidden_right = left[hidden.item], right[hidden.item]
    simple = BradleyTerry(n_iter=100).fit_predict(given)
    a, b = (_looked_up(simple, side) for side in (hidden_left, hidden_right))
    noisy = NoisyBradleyTerry(n_iter=100, random_state=seed)
    logits = np.log(noisy.fit_predict(given).clip(1e-9, 1 - 1e-9))
    logits = logits - np.log1p(-np.exp(logits))
    ahead = _looked_up(logits, hidden_left) - _looked_up(logits, hidden_right)
    who = hidden.annotators[hidden.annotator]
    skill, bias = _looked_up(noisy.skills_, who), _looked_up(noisy.biases_, who)
    return {
        # odds of the scores; and as its likelihood has it, skill σ(s_i − s_j) + (1 − skill) bias
        "crowd-kit BradleyTerry": (a + 1e-12) / (a + b + 2e-12),
        "crowd-kit NoisyBradleyTerry": skill / (1 + np.exp(-ahead)) + (1 - skill) * bias,
    }


def _looked_up(values: pd.Series, ids: Any) -> Array:
    """The value of each id; the mean of all for one that is not there."""
    return np.asarray(values.reindex(ids).fillna(float(values.mean())).to_numpy(float))


def page(data: Path, finished: Finished) -> str:
    """The whole page."""
    rows = []
    for name, read in SETS.items():
        frame = read(data)
        splits = [_measured(finished, name, frame, seed) for seed in range(SPLITS)]
        rivals = [key for key in splits[0] if key not in ("item", "all", "all, counts", "cpu_seconds")]
        rows += [_line(name, rival, splits) for rival in rivals]
        for key in ("all", "all, counts"):
            mean = np.mean([one[key] for one in splits])
            title = "ours, ties counted" if key == "all" else "smoothed counts, ties counted"
            rows.append(line(name, title, f"{mean:.4f}", ""))
    head = line("set", "model", "−log P", "ours − it")
    text = (
        f"Written by `{COMMAND}` with dissensus {__version__}. A fifth of the answers is hidden, {SPLITS} "
        "times. Mean −log P(winner) of hidden answers that are no ties, given that; 95 % intervals of paired "
        "differences, resampled over items. Lines with ties counted score left, tie and right of every "
        "hidden answer."
    )
    words = (
        f"{CROWDS} planted crowds: 1,200 answers by 12 annotators about 10 things, among them one who "
        "answers the other way round and one who tosses coins. Intervals over crowds."
    )
    found = [line("found", ""), "|---" * 2 + "|", *planted_lines(finished), ""]
    table = ["# Comparisons: hidden preferences", "", text, "", head, "|---" * 4 + "|", *rows, ""]
    return "\n".join([*table, "## Planted crowds", "", words, "", *found])


def _line(name: str, rival: str, splits: list[Values]) -> str:
    losses = np.concatenate([one[rival] for one in splits])
    own = np.concatenate([one["ours"] for one in splits])
    gap = bootstrap_mean(own - losses, items=np.concatenate([one["item"] for one in splits]))
    words = "" if rival == "ours" else f"{gap.value:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"
    return line(name, rival, f"{losses.mean():.4f}", words)


def _measured(finished: Finished, name: str, frame: pd.DataFrame, seed: int) -> Values:
    return finished.measured(f"{name} {seed}", lambda: hidden_answers(frame, seed))


def main(arguments: Any = None) -> None:
    """Measure what is not finished and write the page."""
    parser = command_line(COMMAND, "Comparisons", "docs/results/comparisons.md", finished=True)
    options = parser.parse_args(arguments)
    write_files(options.output, page(options.data, Finished(options.finished)))


if __name__ == "__main__":
    main()
