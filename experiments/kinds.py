"""Labels that are no plain classes: do models that know their kind foresee hidden ones better?

* *Scales.* A fifth of the (item, annotator) pairs is hidden, five times: −log P and ranked probability score
  of hidden labels by the default for scales (``OrdinalHPGM``), by graded response alone, and by the default
  for nominal classes (``HPGM``), with intervals paired over items.
* *Recovery.* Both defaults are shown two or four labels of every item: KL to the labels that were reserved.

Run as ``python -m experiments.kinds [--data DIR] [-o FILE] [--finished FILE]``. Sets of judges are looked for
beside the folder of the datasets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as ds
from dissensus._version import __version__
from dissensus.evaluate.bootstrap import Interval, bootstrap_mean
from dissensus.labels.annotations import Annotations
from dissensus.metrics import log_probability_rows, ranked_probability_score_rows
from dissensus.models.base import Model
from dissensus.numerics import Array
from experiments.common import Finished, Values, command_line, write_files
from reproduction.tables import line

COMMAND = "python -m experiments.kinds"
SPLITS = 5
MOST_LABELS = 10_000  # of a set that is larger, items drawn at random stand for all
SCALES: dict[str, str | None] = {
    "web_search": None,
    "adult2": "G<P<R<X",
    "imagenet_real": "no<maybe<yes",
    "gwsd": "disagrees<neutral<agrees",
    "nli_variation": "contradiction<neutral<entailment",
    "judges/cebab_stars": None,
    "judges/summeval": None,
    "judges/lesion": None,
    "anesthesia": None,
}
MEASURES = ("log_item", "rps_item", "log_pair", "rps_pair")
RESERVED = 4  # labels of an item that are reserved at least
#: How many a model is shown, of the sets whose items have enough.
SHOWN: dict[str, tuple[int, ...]] = {
    "web_search": (2,),
    **dict.fromkeys(("adult2", "gwsd", "nli_variation", *list(SCALES)[5:8]), (2, 4)),
}


def read_scale(data: Path, name: str) -> Annotations:
    """The labels as an ordered scale, at most ``MOST_LABELS`` of them."""
    folder = data.parent / name if "/" in name else data / name
    file = next(iter(sorted(folder.glob("annotations.csv*"))))
    labels: Annotations = ds.read_annotations(file, classes=SCALES[name], label_type="ordinal")
    if labels.n_labels <= MOST_LABELS:
        return labels
    order = np.random.default_rng(0).permutation(labels.n_items)
    within = np.cumsum(np.diff(labels.item_pointers)[order]) <= MOST_LABELS
    return labels.take_items(np.sort(order[within]))


def hidden_scores(labels: Annotations, seed: int) -> Values:
    """What each model makes of every hidden label: −log P and ranked probability score."""
    kept, hidden = labels.split_labels(0.2, seed)
    chains: dict[str, Any] = {"n_chains": 2, "n_sweeps": 150, "seed": seed}
    scale = {"ordinal": ds.OrdinalHPGM(**chains), "graded": ds.GradedResponse()}
    models: dict[str, Model] = {**scale, "nominal": ds.HPGM(**chains)}
    found = {name: _scored(model.fit(kept), hidden) for name, model in models.items()}
    return {"item": hidden.item.tolist(), **found}


def _scored(model: Model, hidden: Annotations) -> dict[str, list[float]]:
    tables = {
        "item": model._item_distributions(hidden.item),
        "pair": model._pair_distributions(hidden.item, hidden.annotator),
    }
    scores: dict[str, list[float]] = {}
    for name, chances in tables.items():
        logs = -log_probability_rows(chances, hidden.label)
        scores[f"log_{name}"] = np.round(logs, 5).tolist()
        ranked = ranked_probability_score_rows(np.eye(hidden.n_classes)[hidden.label], chances)
        scores[f"rps_{name}"] = np.round(ranked, 5).tolist()
    return scores


def gap(splits: Sequence[Values], measure: str, rival: str = "nominal", model: str = "ordinal") -> Interval:
    """The model's score minus the rival's over all splits; an item is drawn with all its hidden labels."""
    difference = np.concatenate([_of(one, model, measure) - _of(one, rival, measure) for one in splits])
    return bootstrap_mean(difference, items=np.concatenate([one["item"] for one in splits]))


def _of(split: Values, model: str, measure: str) -> Array:
    return np.array(split[model][measure])


def _mean(splits: Sequence[Values], model: str, measure: str) -> float:
    return float(np.concatenate([_of(one, model, measure) for one in splits]).mean())


def scale_lines(name: str, splits: Sequence[Values]) -> list[str]:
    """One line for each measure."""
    titles = {"log": "−log P", "rps": "RPS", "item": "item", "pair": "item, annotator"}
    rows = []
    for measure in MEASURES:
        kind, given = measure.split("_")
        means = [f"{_mean(splits, model, measure):.4f}" for model in ("ordinal", "graded", "nominal")]
        found = gap(splits, measure)
        verdict = "worse" if found.low > 0 else "better" if found.high < 0 else "tied"
        cells = f"{found.value:+.4f} [{found.low:+.4f}, {found.high:+.4f}]"
        rows.append(line(name.removeprefix("judges/"), titles[kind], titles[given], *means, cells, verdict))
    return rows


def recovered(labels: Annotations, shown: Sequence[int]) -> Values:
    """KL to reserved labels from few labels per item, and the paired difference."""
    chains: dict[str, Any] = {"n_chains": 2, "n_sweeps": 150}
    models = {"ordinal": ds.OrdinalHPGM(**chains), "nominal": ds.HPGM(**chains)}
    settings: dict[str, Any] = {"pool": max(shown), "min_reserved": RESERVED, "n_draws": 3, "n_jobs": 1}
    found = ds.recover(labels, models, shown, **settings, progress=False)
    values: Values = {"n_items": found.n_items}
    for n in shown:
        gap = found.difference("ordinal", "nominal", n)
        kl = [found.best(name, n).kl.value for name in models]
        values[str(n)] = [*kl, gap.value, gap.low, gap.high]
    return values


def recovery_lines(name: str, found: Values) -> list[str]:
    """One line for each number of labels shown."""
    rows = []
    for shown in map(str, SHOWN[name]):
        ordinal, nominal, value, low, high = found[shown]
        verdict = "worse" if low > 0 else "better" if high < 0 else "tied"
        gap = f"{value:+.4f} [{low:+.4f}, {high:+.4f}]"
        cells = (f"{found['n_items']:,}", shown, f"{ordinal:.4f}", f"{nominal:.4f}", gap, verdict)
        rows.append(line(name.removeprefix("judges/"), *cells))
    return rows


def page(data: Path, finished: Finished) -> str:
    """The whole page."""
    rows: list[str] = []
    few: list[str] = []
    for name in SCALES:
        labels = read_scale(data, name)
        splits = [_measured(finished, name, labels, seed) for seed in range(SPLITS)]
        rows += scale_lines(name, splits)
        if name in SHOWN:
            measure = partial(recovered, labels, SHOWN[name])
            few += recovery_lines(name, finished.measured(f"recovery {name}", measure))
    head = line("set", "score", "given", "ordinal", "graded", "nominal", "ordinal − nominal", "")
    return "\n".join(
        [
            "# Ordered scales: hidden labels",
            "",
            f"Written by `{COMMAND}` with dissensus {__version__}. A fifth of the (item, annotator) pairs is "
            f"hidden, {SPLITS} times; scores of hidden labels, lower is better. `ordinal` is the default for "
            "scales (`OrdinalHPGM`), `graded` graded response alone, `nominal` the default for classes "
            f"without an order (`HPGM`). Sets of more than {MOST_LABELS:,} labels are represented by "
            "items drawn at random; HPGM has two chains of 150 sweeps, alone and in the pool. Differences "
            "with 95 % intervals, resampled over items.",
            "",
            head,
            "|---" * 8 + "|",
            *rows,
            "",
            "## Few labels",
            "",
            f"A model is shown R labels of each item, three times; at least {RESERVED} others are reserved. "
            "Mean KL of the labels that were reserved to its answer; differences with 95 % intervals over "
            "items and draws.",
            "",
            line("set", "items", "R", "ordinal", "nominal", "ordinal − nominal", ""),
            "|---" * 7 + "|",
            *few,
            "",
        ]
    )


def _measured(finished: Finished, name: str, labels: Annotations, seed: int) -> Values:
    return finished.measured(f"{name} {seed}", lambda: hidden_scores(labels, seed))


def main(arguments: Any = None) -> None:
    """Measure what is not finished and write the page."""
    parser = command_line(COMMAND, "Ordered scales", "docs/results/scales.md", finished=True)
    parser.add_argument("--only", choices=list(SCALES), help="measure this set and write no page")
    options = parser.parse_args(arguments)
    finished = Finished(options.finished)
    if options.only is None:
        write_files(options.output, page(options.data, finished))
        return
    labels = read_scale(options.data, options.only)
    for seed in range(SPLITS):
        _measured(finished, options.only, labels, seed)


if __name__ == "__main__":
    main()
