"""Label distributions from text: LDL-NM and the text baselines on the paper's data.

Two questions, each asked of the job-related tweets (jq1, jq2, jq3):

* *New items.* Trained on the training items and chosen on the dev items, how far is the distribution
  predicted for a test item, from its text alone, from the labels it got?
* *Hidden labels.* A fifth of the (item, annotator) pairs is hidden. How probable are the hidden labels of
  known annotators on known items, with annotators modelled and without?

Run as ``python -m experiments.text_models [--data DIR] [-o FILE] [--finished FILE]``. With such
a file, a finished measurement is written down at once, and a run that was stopped goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dissensus._version import __version__
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import embed_items, features_of
from dissensus.metrics import accuracy, kl
from dissensus.models.dawid_skene import DawidSkene
from dissensus.models.pgm.model import PGM
from dissensus.text.ldlnm.model import LDLNM
from dissensus.text.learners.finetuned import FineTunedEncoder
from dissensus.text.learners.softmax import SoftmaxRegression
from experiments.common import Finished, Values, command_line, write_files
from reproduction.datasets import read_dataset, shares
from reproduction.measures import HIDDEN_SHARE
from reproduction.tables import line, table, yes
from reproduction.textcnn import TextCNN

COMMAND = "python -m experiments.text_models"
SETS = ("jq1", "jq2", "jq3")
SEEDS = (0, 1, 2)
SPLITS = (0, 1, 2)
DEV_SHARE = 0.1  # of the labels left, to choose the epoch on

Parts = dict[str, Annotations]
Build = Callable[[int], Any]  # seed -> unfitted model


@dataclass(frozen=True)
class Row:
    """A line of the first table: a model, whether chance enters, and the KL we ask of ourselves."""

    name: str
    build: Build
    chance: bool = True
    bounds: tuple[float, float, float] | None = None


ROWS = (
    Row(
        "SoftmaxRegression, offline MiniLM",
        lambda seed: SoftmaxRegression(seed=seed),
        chance=False,
        bounds=(0.290, 0.300, 0.567),
    ),
    Row("TextCNN (the paper's PD), word vectors learned", lambda seed: TextCNN(seed=seed)),
    Row(
        "LDL-NM, the paper's settings, sizes 20/20/20",
        lambda seed: LDLNM(**LDLNM.PAPER, seed=seed),
        bounds=(0.310, 0.340, 0.650),
    ),
    Row("the same without annotators", lambda seed: LDLNM(**LDLNM.PAPER, annotators=False, seed=seed)),
    Row("LDL-NM, defaults", lambda seed: LDLNM(seed=seed), bounds=(0.297, 0.315, 0.585)),
    Row("the same without annotators (defaults)", lambda seed: LDLNM(annotators=False, seed=seed)),
    Row(
        "FineTunedEncoder",
        lambda seed: FineTunedEncoder(n_threads=1, seed=seed),
        bounds=(0.280, 0.295, 0.535),
    ),
)
PRINTED = (0.408, 0.501, 0.864)  # the paper's LDL-NM

HIDDEN_ROWS: dict[str, Build] = {
    "LDL-NM, defaults": lambda seed: LDLNM(seed=seed),
    "LDL-NM, defaults, without annotators": lambda seed: LDLNM(annotators=False, seed=seed),
    "LDL-NM, the paper's settings": lambda seed: LDLNM(**LDLNM.PAPER, seed=seed),
    "PGM, belief propagation, 20 × 20": lambda seed: PGM(20, 20, inference="bp", seed=seed),
    "Dawid–Skene": lambda seed: DawidSkene(),
}


# ---- measuring --------------------------------------------------------------------------------------------


def key_of(question: str, model: Any, name: str, seed: int) -> str:
    """What a measurement is filed under: everything that decides it."""
    settings = f"{type(model).__name__} {model.get_params(deep=False)}"
    return f"{question} | {settings} | {name} | {seed} | {__version__}"


def on_new_items(model: Any, parts: Parts) -> Values:
    """Test KL and accuracy of a model trained on train and chosen on dev."""
    train, dev, test = (parts[name] for name in ("train", "dev", "test"))
    if isinstance(model, LDLNM):
        model.fit(train, dev=dev)
        predicted = model.label_distributions(features_of(test))
    else:
        column = "text" if isinstance(model, TextCNN | FineTunedEncoder) else None
        model.fit(_inputs(train, column), shares(train), dev=(_inputs(dev, column), shares(dev)))
        predicted = model.label_distributions(_inputs(test, column))
    gold = shares(test)
    return {"kl": kl(gold, predicted), "accuracy": accuracy(gold, predicted)}


def on_hidden_labels(model: Any, annotations: Annotations, split: int) -> Values:
    """−log P of hidden labels given item and annotator, and given the item alone, nats per label."""
    kept, hidden = annotations.split_labels(HIDDEN_SHARE, seed=split)
    if isinstance(model, LDLNM):
        shown, dev = kept.split_labels(DEV_SHARE, seed=split)
        model.fit(shown, dev=dev)
    else:
        model.fit(kept)
    return {"pair": -model.score(hidden), "item": -model.score_items(hidden)}


def _inputs(part: Annotations, column: str | None) -> Any:
    return features_of(part) if column is None else part.item_column(column)


# ---- the page ---------------------------------------------------------------------------------------------


def new_items_line(row: Row, parts: dict[str, Parts], finished: Finished) -> str:
    """One model's line of the first table."""
    cells, within = [], []
    for place, (name, some) in enumerate(parts.items()):
        runs = []
        for seed in SEEDS if row.chance else SEEDS[:1]:
            model = row.build(seed)
            key = key_of("new items", model, name, seed)
            runs.append(finished.measured(key, partial(on_new_items, model, some)))
        divergences, hits = [run["kl"] for run in runs], [run["accuracy"] for run in runs]
        cells.append(f"**{_mean_sd(divergences)}**, {np.mean(hits):.3f}")
        within.append(row.bounds is None or np.mean(divergences) <= row.bounds[place])
    if row.bounds is None:
        return line(row.name, *cells, "–", "–")
    return line(row.name, *cells, " / ".join(f"{bound:.3f}" for bound in row.bounds), yes(all(within)))


def hidden_line(name: str, build: Build, sets: dict[str, Annotations], finished: Finished) -> str:
    """One model's line of the second table."""
    cells = []
    for dataset, labels in sets.items():
        runs = []
        for split in SPLITS:
            model = build(split)
            key = key_of("hidden labels", model, dataset, split)
            runs.append(finished.measured(key, partial(on_hidden_labels, model, labels, split)))
        cells += [_mean_sd([run["pair"] for run in runs]), _mean_sd([run["item"] for run in runs])]
    return line(name, *cells)


def _mean_sd(values: Sequence[float]) -> str:
    mean = float(np.mean(values))
    return f"{mean:.3f}" if len(values) == 1 else f"{mean:.3f} ± {float(np.std(values, ddof=1)):.3f}"


PAGE = """# Label distributions from text, measured

Written by `{command}` (dissensus {version}): every figure of ours is
computed by that command. How the models work: [text](../text.md).

## New items, from their text alone

Trained on the training items, chosen on the dev items (strength, epoch), reported on the test items:
KL(gold ‖ prediction) with 1e-5 added to both sides, mean ± standard deviation of {n_seeds} seeds where there
is chance in it, and ordinary accuracy (a tied gold class counts its share). Features are the embeddings of
the offline MiniLM; networks ran on one thread.

{new_items}

The last line is the paper's own figure for LDL-NM, with the sizes it chose on dev.

## Hidden labels of known annotators on known items

{share:.0%} of all (item, annotator) pairs hidden with all their labels; −log P(label) in nats per hidden
label (lower is better), given item and annotator, and given the item alone; mean ± standard deviation of
{n_splits} splits. LDL-NM sees the text and chooses its epoch on {dev:.0%} of the labels left; the others see
no text and learn from all labels left.

{hidden}
"""


def page(data: Path, finished: Finished) -> str:
    """The whole page of results, from the datasets in ``data``."""
    sets = {name: embed_items(read_dataset(data / name)) for name in SETS}
    parts = {name: annotations.split_items() for name, annotations in sets.items()}
    lines = [new_items_line(row, parts, finished) for row in ROWS]
    lines.append(line("the paper's LDL-NM", *(f"{value:.3f}" for value in PRINTED), "–", "–"))
    hidden = [hidden_line(name, build, sets, finished) for name, build in HIDDEN_ROWS.items()]
    head = [f"{name}, given {what}" for name in SETS for what in ("item and annotator", "item")]
    return PAGE.format(
        command=COMMAND,
        version=__version__,
        n_seeds=len(SEEDS),
        n_splits=len(SPLITS),
        share=HIDDEN_SHARE,
        dev=DEV_SHARE,
        new_items=table(
            ("model", *(f"{name}: KL, accuracy" for name in SETS), "bound on KL", "within"), lines
        ),
        hidden=table(("model", *head), hidden),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page, whole or not at all."""
    title = "LDL-NM and text baselines on the paper's data"
    options = command_line(COMMAND, title, "docs/results/text.md", finished=True).parse_args(arguments)
    write_files(options.output, page(options.data, Finished(options.finished)))


if __name__ == "__main__":
    main()
