"""Comparisons: hidden preferences foreseen by BradleyTerry and by crowd-kit's two models of comparisons.

A fifth of the (pair, annotator) answers is hidden, three times. On answers without a tie: −log P(winner)
given that, for all models in one run; ties are scored apart, as −log P(left, tie or right) of every answer.

Run as ``python -m experiments.pairwise [--data DIR] [-o FILE] [--finished FILE]``; needs the ``bench`` extra.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import dissensus as ds
from dissensus._version import __version__
from dissensus.data.annotations import Annotations
from dissensus.evaluation.bootstrap import bootstrap_mean
from dissensus.numerics import Array
from dissensus.paper.tables import line
from experiments.common import Finished, Values, command_line, write_files

COMMAND = "python -m experiments.pairwise"
SPLITS = 3


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
    return "\n".join(["# Comparisons: hidden preferences", "", text, "", head, "|---" * 4 + "|", *rows, ""])


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
