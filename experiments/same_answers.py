"""Are the answers of a faster checkout as good as those of the one before it?

    python -m experiments.same_answers OLD NEW [--data ../shared/data] [--finished FILE]

OLD and NEW are source trees (say, a worktree of an earlier commit, and this one). Each fits the same models
with the same seeds, in processes of its own: to all labels, for the objective, and to four fifths of them,
for the mean log-probability of the rest. A fit may end at another maximum once its last digits differ; what
is asked for is that no mean over the seeds is worse by more than ``MOST_WORSE`` nats a label.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from experiments.common import Finished, Values, command_line, write_files
from reproduction.tables import line, table

COMMAND = "python -m experiments.same_answers"
SETS = ("jq1", "jq3", "hs_brexit", "weather_sentiment_amt", "bluebirds", "armis", "rte")
SEEDS = 10
MOST_WORSE = 0.0005
MODELS = {
    "PGM 8 × 6": "ds.PGM(8, 6, seed=seed)",
    "PGM 16 × 12": "ds.PGM(16, 12, seed=seed)",
    "PGM 12 × 12, vb": "ds.PGM(12, 12, inference='vb', seed=seed)",
    "FMM 8": "ds.FMM(8, seed=seed)",
    "Dawid–Skene": "ds.DawidSkene()",
    "one coin": "ds.OneCoin()",
    "MACE": "ds.MACE()",
}

# Run by each checkout: the model by its constructor, the file of labels, the number of seeds.
FIT = """
import json, sys
import dissensus as ds
labels = ds.read_annotations(sys.argv[2])
found = {"objective": [], "held_out": []}
for seed in range(int(sys.argv[3])):
    kept, hidden = labels.split_labels(0.2, seed)
    found["objective"].append(float(eval(sys.argv[1]).fit(labels).trace_[-1]) / labels.n_labels)
    found["held_out"].append(float(eval(sys.argv[1]).fit(kept).score(hidden)))
print(json.dumps(found))
"""


def fitted(checkout: Path, model: str, labels: Path) -> dict[str, list[float]]:
    """Objectives a label and held-out scores of one checkout, seed by seed."""
    command = [sys.executable, "-c", FIT, model, str(labels.absolute()), str(SEEDS)]
    environment = os.environ | {"PYTHONPATH": str(checkout.absolute() / "src")}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def both(old: Path, new: Path, model: str, labels: Path) -> Values:
    """The same of two checkouts."""
    return {"old": fitted(old, model, labels), "new": fitted(new, model, labels)}


def gains(found: Values) -> tuple[float, float]:
    """By how much the new checkout is better, on average over the seeds: objective, held-out score."""
    objective, held_out = (
        float(np.mean(np.subtract(found["new"][name], found["old"][name])))
        for name in ("objective", "held_out")
    )
    return objective, held_out


def page(rows: Sequence[tuple[str, str, Values]]) -> str:
    """The page of all comparisons."""
    every = np.array([gains(found) for *_, found in rows])
    worse = [np.count_nonzero(column < -MOST_WORSE) for column in every.T]
    lines = [
        line(dataset, model, *(f"{value:+.6f}" for value in gains(found))) for dataset, model, found in rows
    ]
    return "\n".join(
        [
            "# Answers before and after",
            "",
            f"Written by `{COMMAND} OLD NEW`: every figure is computed by that command.",
            "",
            "The same models with the same seeds, fitted by the checkout before a change for speed and by",
            f"the one after it, {SEEDS} seeds each. What is shown is after − before, in nats a label, on",
            "average over the seeds: of the objective of a fit to all labels, and of the log-probability of",
            "a hidden fifth.",
            "",
            f"Worse by more than {MOST_WORSE} nats: the objective in {worse[0]} of {len(rows)} rows",
            f"(on average {every[:, 0].mean():+.6f}), the held-out score in {worse[1]}",
            f"(on average {every[:, 1].mean():+.6f}).",
            "",
            table(["dataset", "model", "objective", "held-out score"], lines),
            "",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Compare two checkouts and write the page."""
    parser: argparse.ArgumentParser = command_line(
        COMMAND, "answers before and after a change", "docs/results/same_answers.md", finished=True
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    options = parser.parse_args(arguments)
    finished = Finished(options.finished)
    rows = []
    for dataset in SETS:
        for name, model in MODELS.items():
            labels = options.data / dataset / "annotations.csv"
            measure = partial(both, options.old, options.new, model, labels)
            rows.append((dataset, name, finished.measured(f"{dataset} {name}", measure)))
    write_files(options.output, page(rows))


if __name__ == "__main__":
    main()
