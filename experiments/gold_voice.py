"""Does gold help to foresee what a population answers? Writes docs/results/gold.md:

    python -m experiments.gold_voice [--data DIR] [--finished FILE]

Half of the judged items get their gold label as one more voice that is not of the population; HPGM with it
and HPGM without it foresee the labels of a fifth of the (item, annotator) pairs, which neither has seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import dissensus as ds
from dissensus.evaluate.gold import judged_items
from dissensus.numerics import Array
from experiments.common import Finished, Values, command_line, write_files
from reproduction.datasets import read_dataset
from reproduction.tables import line, table

COMMAND = "python -m experiments.gold_voice"
SETS = (  # small ones: HPGM is sampled
    "snow_wsd",
    "weather_sentiment_cf",
    "bluebirds",
    "barzan_ac2",
    "face_sentiment",
    "weather_sentiment_amt",
    "rte",
    "tweet_possent",
)
SPLITS = 2
VOICE = "the gold labels"


def with_voice(labels: ds.Annotations, items: NDArray[np.intp]) -> ds.Annotations:
    """The labels, and the gold of some items as those of one more annotator, of another kind."""
    ids, classes = labels.items, labels.classes
    gold = np.asarray(labels.gold)[items]
    item = np.concatenate([ids[labels.item], ids[items]])
    annotator = np.concatenate([labels.annotators[labels.annotator], np.full(len(items), VOICE)])
    label = np.concatenate([classes[labels.label], classes[gold]])
    both = ds.Annotations.from_arrays(item, annotator, label)
    kinds = np.where(both.annotators == VOICE, "gold", "person")
    return both.with_tables(annotators=pa.table({"annotator": both.annotators, "kind": kinds}))


def foreseen(model: ds.HPGM, hidden: ds.Annotations) -> Array:
    """−log P(label | item) of every hidden label."""
    shares = model.to_frame().set_index("item")
    columns = np.array([f"p_{name}" for name in hidden.classes])
    rows = shares.loc[hidden.items[hidden.item], columns].to_numpy()
    return np.asarray(-np.log(rows[np.arange(len(rows)), hidden.label]))


@dataclass(frozen=True)
class Split:
    """Labels to fit to, labels to foresee, and half of the judged items, whose gold is heard."""

    kept: ds.Annotations
    hidden: ds.Annotations
    known: NDArray[np.intp]

    @classmethod
    def of(cls, labels: ds.Annotations, seed: int) -> Split:
        """By a seed."""
        judged = judged_items(labels)
        known = np.random.default_rng(seed).permutation(judged)[: len(judged) // 2]
        kept, hidden = labels.split_labels(0.2, seed)
        return cls(kept, hidden, known)

    @property
    def ids(self) -> NDArray[Any]:
        """The item of every hidden label."""
        return np.asarray(self.hidden.items[self.hidden.item])

    def has_gold(self, labels: ds.Annotations) -> NDArray[np.bool_]:
        """Whether the gold of every hidden label's item is heard."""
        return np.isin(self.ids, labels.items[self.known])


def one_split(labels: ds.Annotations, seed: int) -> Values:
    """What the voice changes in −log P of the hidden labels, for items with gold and for others."""
    split = Split.of(labels, seed)
    without = ds.HPGM(seed=seed).fit(split.kept)
    heard = ds.HPGM(seed=seed, represent={"kind": "person"}).fit(with_voice(split.kept, split.known))
    change = foreseen(heard, split.hidden) - foreseen(without, split.hidden)
    has_gold = split.has_gold(labels)
    return {"gold": change[has_gold].tolist(), "others": change[~has_gold].tolist()}


def mean_and_error(change: Array, item: NDArray[Any]) -> tuple[float, float]:
    """The mean change and its standard error over items: labels of one item go together."""
    sums = np.bincount(np.unique(item, return_inverse=True)[1], change - change.mean())
    return float(change.mean()), float(np.sqrt((sums**2).sum()) / len(change))


def side(found: list[Values], labels: ds.Annotations, name: str) -> tuple[float, float]:
    """The mean change over all splits, of items with gold or of others, and its standard error."""
    splits = [Split.of(labels, seed) for seed in range(len(found))]
    item = [s.ids[s.has_gold(labels) == (name == "gold")] for s in splits]
    return mean_and_error(np.concatenate([one[name] for one in found]), np.concatenate(item))


PAGE = """# Gold, and what a population answers

Written by `{command}`. Half of the items that have gold get their gold label as one more voice, which is not
of the population (`represent={{"kind": "person"}}`). −log P(label | item) of hidden labels with the voice,
less without it; {splits} splits, ± the standard error over items. Below 0: the voice helps. More than two
standard errors from 0: {clear} of {cells} figures.

{table}
"""


def main() -> None:
    """Measure all, and write the page."""
    given = command_line(COMMAND, __doc__ or "", "docs/results/gold.md", finished=True).parse_args()
    finished, rows, figures = Finished(given.finished), [], []
    for name in SETS:
        labels = read_dataset(Path(given.data) / name)
        found = [finished.measured(f"{name} {s}", partial(one_split, labels, s)) for s in range(SPLITS)]
        figures.append([side(found, labels, "gold"), side(found, labels, "others")])
        rows.append(line(name, *(f"{mean:+.4f} ± {error:.4f}" for mean, error in figures[-1])))
    values = np.array(figures)  # (sets, with gold and without, mean and error)
    errors = np.sqrt((values[..., 1] ** 2).sum(axis=0)) / len(SETS)
    in_all = zip(values[..., 0].mean(axis=0), errors, strict=True)
    rows.append(line("**mean**", *(f"{mean:+.4f} ± {error:.4f}" for mean, error in in_all)))
    clear = int((np.abs(values[..., 0]) > 2 * values[..., 1]).sum())
    text = table(("dataset", "items with gold", "items without"), rows)
    page = PAGE.format(command=COMMAND, splits=SPLITS, clear=clear, cells=2 * len(SETS), table=text)
    write_files(given.output, page)


if __name__ == "__main__":
    main()
