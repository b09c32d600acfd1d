"""Does gold help to foresee what a population answers? Writes docs/results/gold.md:

    python -m experiments.gold_voice [--data DIR] [--finished FILE]

Half of the judged items get their gold label as one more voice that is not of the population; HPGM with it
and HPGM without it foresee the labels of a fifth of the (item, annotator) pairs, which neither has seen.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import dissensus as ds
from dissensus.evaluation.gold import judged_items
from dissensus.numerics import Array
from dissensus.paper.datasets import read_dataset
from dissensus.paper.tables import line, table
from experiments.common import Finished, Values, command_line, write_files

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


def with_voice(labels: ds.Annotations, items: Array) -> ds.Annotations:
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


def one_split(labels: ds.Annotations, seed: int) -> Values:
    """What the voice changes in −log P of the hidden labels, for items with gold and for others."""
    kept, hidden = labels.split_labels(0.2, seed)
    judged = judged_items(labels)
    known = np.random.default_rng(seed).permutation(judged)[: len(judged) // 2]
    without = ds.HPGM(seed=seed).fit(kept)
    heard = ds.HPGM(seed=seed, represent={"kind": "person"}).fit(with_voice(kept, known))
    change = foreseen(heard, hidden) - foreseen(without, hidden)
    has_gold = np.isin(hidden.items[hidden.item], labels.items[known])
    return {"gold": change[has_gold].tolist(), "others": change[~has_gold].tolist()}


PAGE = """# Gold, and what a population answers

Written by `{command}`. Half of the items that have gold get their gold label as one more voice, which is not
of the population (`represent={{"kind": "person"}}`). −log P(label | item) of hidden labels with the voice,
less without it; {splits} splits, ± the standard error over labels. Below 0: the voice helps. More than two
standard errors from 0: {clear} of {cells} figures.

{table}
"""


def main() -> None:
    """Measure all, and write the page."""
    given = command_line(COMMAND, __doc__ or "", "docs/results/gold.md", finished=True).parse_args()
    finished, rows, means, clear = Finished(given.finished), [], [], 0
    for name in SETS:
        labels = read_dataset(Path(given.data) / name)
        found = [finished.measured(f"{name} {s}", partial(one_split, labels, s)) for s in range(SPLITS)]
        sides = [np.concatenate([one[side] for one in found]) for side in ("gold", "others")]
        means.append([side.mean() if len(side) else np.nan for side in sides])
        clear += sum(abs(side.mean()) > 2 * side.std() / len(side) ** 0.5 for side in sides)
        rows.append(line(name, *(f"{x.mean():+.4f} ± {x.std() / len(x) ** 0.5:.4f}" for x in sides)))
    rows.append(line("**mean**", *(f"{mean:+.4f}" for mean in np.nanmean(means, axis=0))))
    text = table(("dataset", "items with gold", "items without"), rows)
    page = PAGE.format(command=COMMAND, splits=SPLITS, clear=clear, cells=2 * len(SETS), table=text)
    write_files(given.output, page)


if __name__ == "__main__":
    main()
