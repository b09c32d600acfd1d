"""Answers that are sets: are hidden sets foreseen better where classes may depend on each other?

jq3 allows several answers: the labels that one annotator gave to one item together are a set. A fifth of the
(item, annotator) pairs is hidden, five times: −log P of hidden sets by ``LabelSets``, by each class apart
(``LabelSets(dependence=False)``), and by a ``HPGM`` for each class, its answers taken as independent: given
the item, as the others are, and given item and annotator.

Run as ``python -m experiments.sets [--data DIR] [-o FILE] [--finished FILE]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dissensus as ds
from dissensus._version import __version__
from dissensus.evaluate.bootstrap import bootstrap_mean
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import membership
from dissensus.numerics import Array
from experiments.common import Finished, Values, command_line, write_files
from reproduction.tables import line

COMMAND = "python -m experiments.sets"
SPLITS = 5
TITLES = {
    "sets": "`LabelSets`",
    "apart": "each class apart (`dependence=False`)",
    "hpgm": "a `HPGM` for each class",
    "hpgm_pair": "a `HPGM` for each class, given the annotator too",
}


def hidden_sets(labels: Annotations, seed: int) -> Values:
    """−log P of every hidden set by each model."""
    kept, hidden = labels.split_labels(0.2, seed)
    sets = ds.LabelSets(seed=seed).fit(kept)
    apart = ds.LabelSets(dependence=False).fit(kept)
    by_class = class_by_class(kept, hidden, seed)
    logs = {
        "sets": -sets.log_chances(hidden, annotators=False),
        "apart": -apart.log_chances(hidden, annotators=False),
        "hpgm": by_class[0],
        "hpgm_pair": by_class[1],
    }
    rounded = {name: np.round(values, 5).tolist() for name, values in logs.items()}
    return {"item": hidden.item.tolist(), "weight": float(sets.pool_[0]), **rounded}


def class_by_class(kept: Annotations, hidden: Annotations, seed: int) -> tuple[Array, Array]:
    """−Σ_c log P(c in or out), by a HPGM for each class: given the item, and given item and annotator."""
    table, _ = membership(kept.class_vocabulary)
    losses = np.zeros((2, hidden.n_labels))
    for has in table.T:
        losses += _of_class(kept, hidden, has, seed)
    return losses[0], losses[1]


def _of_class(kept: Annotations, hidden: Annotations, has: NDArray[np.bool_], seed: int) -> Array:
    """(2, hidden): −log P of one class being in or out."""
    who = kept.items[kept.item], kept.annotators[kept.annotator]
    known = Annotations.from_arrays(*who, has[kept.label].astype(int))
    if known.n_classes < 2:
        return np.zeros((2, hidden.n_labels))
    model = ds.HPGM(n_chains=2, n_sweeps=90, seed=seed).fit(known)
    item, annotator = hidden.items[hidden.item], hidden.annotators[hidden.annotator]
    rows, label = np.arange(hidden.n_labels), has[hidden.label].astype(int)
    tables = model.predict_proba(item), model.predict_proba(item, annotator)
    return -np.log([chances[rows, label] for chances in tables])


def lines(splits: Sequence[Values]) -> list[str]:
    """One line per model."""
    item, rows = np.concatenate([one["item"] for one in splits]), []
    own = np.concatenate([one["sets"] for one in splits])
    for name, title in TITLES.items():
        losses = np.concatenate([one[name] for one in splits])
        gap = bootstrap_mean(own - losses, items=item)
        words = "" if name == "sets" else f"{gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
        rows.append(line(title, f"{losses.mean():.3f}", words))
    return rows


def page(data: Path, finished: Finished) -> str:
    """The whole page."""
    labels = ds.read_annotations(data / "jq3" / "annotations.csv", label_type="multi")
    splits = [finished.measured(f"jq3 {seed}", partial(hidden_sets, labels, seed)) for seed in range(SPLITS)]
    weight = np.mean([one["weight"] for one in splits])
    return "\n".join(
        [
            "# Sets: hidden answers",
            "",
            f"Written by `{COMMAND}` with dissensus {__version__}. jq3 with the labels that one annotator "
            f"gave to one item as a set: {labels.n_labels:,} sets, {labels.n_classes} different ones. A "
            f"fifth of them is hidden, {SPLITS} times; mean −log P of hidden sets, differences with 95 % "
            f"intervals resampled over items. Whole sets have weight {weight:.3f} in `LabelSets`.",
            "",
            line("model", "−log P", "`LabelSets` − it"),
            "|---" * 3 + "|",
            *lines(splits),
            "",
        ]
    )


def main(arguments: Any = None) -> None:
    """Measure what is not finished and write the page."""
    parser = command_line(COMMAND, "Sets", "docs/results/sets.md", finished=True)
    options = parser.parse_args(arguments)
    write_files(options.output, page(options.data, Finished(options.finished)))


if __name__ == "__main__":
    main()
