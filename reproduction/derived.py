"""Ensembles, intervals and comparisons of models, computed from the predictions of finished cells.

``write_records`` writes the numbers of all cells and these derived numbers to ``cells.jsonl``, which is all
that the page is made from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dissensus._version import __version__
from dissensus.errors import DataError
from dissensus.evaluate.bootstrap import Interval, bootstrap_mean
from dissensus.metrics import kl, kl_rows
from dissensus.numerics import Array
from dissensus.tables.atomic import atomic_path
from dissensus.tables.results import json_safe
from reproduction.cells import Numbers
from reproduction.columns import COLUMNS, GUIDES
from reproduction.figures import scatter
from reproduction.measures import PREDICTED_PARTS, scores
from reproduction.plan import Plan

DERIVED = "derived"  # the record of derived numbers
MODEL_TITLES = {"counts": "smoothed counts", "dawid_skene": "Dawid–Skene", "majority": "majority vote"} | {
    key: guide.title for key, guide in GUIDES.items()
}


def write_records(plan: Plan, folder: Path, command: str) -> None:
    """Write ``cells.jsonl`` and the t-SNE figures of a finished evaluation.

    Cells of an earlier run with ``--as-printed`` are kept in the file.
    """
    lines, path = list[str](), folder / "cells.jsonl"
    if path.exists() and not plan.scale.as_printed:
        earlier = path.read_text(encoding="utf-8").splitlines(keepends=True)
        lines = [line for line in earlier if "-printed-" in json.loads(line)["file"]]
    for cell in plan.cells():
        content = plan.finished.read(cell)
        if content is None:
            raise DataError(f"{cell.path}: the cell is not finished; run the same command again")
        record = {"file": cell.path, **{name: content[name] for name in ("cell", "numbers", "cpu_seconds")}}
        lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    numbers = json_safe(derived_numbers(plan, command))
    lines.append(json.dumps({"file": DERIVED, "numbers": numbers}, ensure_ascii=False) + "\n")
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")
    for cell in plan.pictures():
        arrays, classes = plan.finished.arrays(cell.path), plan.datasets[cell.dataset].annotations.classes
        title = f"{cell.dataset}: LDL-NM's training items by t-SNE"
        picture = scatter(arrays["points"], arrays["classes"], list(map(str, classes)), title)
        (folder / f"tsne-{cell.dataset}.svg").write_text(picture, encoding="utf-8")


def derived_numbers(plan: Plan, command: str) -> Numbers:
    """Return everything on the page that is not the number of a single cell."""
    scale = {name: value for name, value in asdict(plan.scale).items() if name != "glove"}
    datasets = plan.datasets_with("table3")
    blends = {name: ensembles(plan, name) for name in datasets}
    return {
        "command": command,
        "version": __version__,
        "scale": scale | {"glove": plan.scale.glove is not None},
        "parts": {name: [p for p in plan.only if name in plan.datasets_with(p)] for name in plan.datasets},
        "seeded": [name for name, dataset in plan.datasets.items() if dataset.seeded],
        "intervals": {
            name: {
                **{key: _interval(plan, kl_of_runs(plan, name, key).mean(axis=0)) for key in COLUMNS},
                **{key: blend.pop("interval") for key, blend in blends[name].items()},
            }
            for name in datasets
        },
        "ensembles": blends,
        "answers": list(contrasts(plan)),
    }


def _interval(plan: Plan, rows: Array, items: Array | None = None) -> Interval:
    return bootstrap_mean(rows, items=items, n_boot=plan.scale.n_boot)


# ---- predictions --------------------------------------------------------------------------------------


def predictions(plan: Plan, name: str, key: str, part: str) -> Array:
    """Return the predictions of a column, (runs, items, classes)."""
    variant = COLUMNS[key].variant
    array = f"{variant}_{part}" if variant else part
    arrays = [plan.finished.arrays(cell.path)[array] for cell in plan.column(name, key)]
    return np.concatenate(arrays).astype(np.float64)


def kl_of_runs(plan: Plan, name: str, key: str) -> Array:
    """Return the KL of every test item in every run of a column, (runs, items)."""
    gold = plan.datasets[name].gold["test"]
    return np.stack([kl_rows(gold, run) for run in predictions(plan, name, key, "test")])


def difference(plan: Plan, name: str, first: str, second: str) -> Array:
    """Return the difference in KL of every test item between two columns.

    Runs of the same kind share their seeds: only the runs that both columns have are compared.
    """
    rows, other_rows = (kl_of_runs(plan, name, key) for key in (first, second))
    if COLUMNS[first].kind == COLUMNS[second].kind:
        shared = min(len(rows), len(other_rows))
        rows, other_rows = rows[:shared], other_rows[:shared]
    return np.asarray(rows.mean(axis=0) - other_rows.mean(axis=0))


# ---- averages of predictions --------------------------------------------------------------------------

BLEND_WEIGHTS = np.linspace(0.0, 1.0, 21)  # weights of the first of two blended columns
# Title, and the columns whose predictions are averaged.
ENSEMBLES = {
    "ldlnm_default_ensemble": ("LDL-NM, defaults, seeds averaged", ("ldlnm_default",)),
    "blend": ("FineTunedEncoder and LDL-NM, blended", ("encoder", "ldlnm_default")),
}


def blend_weight(gold: Array, first: Array, second: Array) -> float:
    """Return the weight of ``first`` with the lowest KL of the mixture; the smallest among equals."""
    values = [kl(gold, weight * first + (1 - weight) * second) for weight in BLEND_WEIGHTS]
    return float(BLEND_WEIGHTS[int(np.argmin(values))])


def ensembles(plan: Plan, name: str) -> dict[str, Numbers]:
    """Return the scores of every ensemble: the mean over a column's runs, or two such means blended."""
    gold, values = plan.datasets[name].gold, dict[str, Numbers]()
    for key, (_, columns) in ENSEMBLES.items():
        means = [
            {part: predictions(plan, name, column, part).mean(axis=0) for part in PREDICTED_PARTS}
            for column in columns
        ]
        mixture, weight = means[0], None
        if len(means) == 2:
            first, second = means
            weight = blend_weight(gold["dev"], first["dev"], second["dev"])
            mixture = {part: weight * first[part] + (1 - weight) * second[part] for part in PREDICTED_PARTS}
        values[key] = {part: scores(gold[part], mixture[part]) for part in PREDICTED_PARTS}
        values[key] |= {"weight": weight, "interval": _interval(plan, kl_rows(gold["test"], mixture["test"]))}
    return values


# ---- comparisons of models ----------------------------------------------------------------------------

# On the same features, without snapping and without dropout.
SOFT_PAIRS = tuple((f"{key}_soft", "fmm_soft") for key in ("annealing", "bp", "vb", "cbcc"))
NEURAL_PAIRS = (*(("ldlnm_plain", f"{key}_soft") for key in GUIDES), ("ldlnm_default", "guided"))
ANNOTATOR_PAIRS = (("ldlnm_plain", "ldlnm_alone_plain"), ("ldlnm_default", "ldlnm_default_alone"))
# As compared in the paper: a network on sentence embeddings with a CNN trained from scratch whose answers are
# snapped; with dropout on, the mean over a mask for each annotator with the answer of a single mask.
GUIDED_PAIRS = (("annealing", "fmm"), ("bp", "fmm"))
PRINTED_NEURAL_PAIRS = (("ldlnm", "fmm"), ("ldlnm", "annealing"), ("ldlnm", "bp"))
PRINTED_ANNOTATOR_PAIRS = (("ldlnm", "ldlnm_alone"),)
HIDDEN_PAIRS = (("annealing", "fmm"), ("bp", "fmm"), ("vb", "fmm"))
CBCC_PAIRS = (("bp", "cbcc"), ("vb", "cbcc"))
SOFT_CBCC_PAIRS = tuple((f"{first}_soft", f"{second}_soft") for first, second in CBCC_PAIRS)

TEST_KL, PRINTED_KL = "test KL", "test KL, compared as in the paper"
HIDDEN_LABELS = {"pair": "hidden labels, given item and annotator", "item": "hidden labels, given the item"}


def contrasts(plan: Plan) -> Iterator[Numbers]:
    """Yield the difference between two models' losses on one dataset, with its interval, by question."""
    yield from _on_test(plan, "RQ1", TEST_KL, SOFT_PAIRS)
    yield from _on_test(plan, "RQ1", PRINTED_KL, GUIDED_PAIRS)
    yield from _on_hidden_labels(plan, "RQ1", HIDDEN_PAIRS)
    for name in plan.datasets_with("recover"):
        content = plan.finished.read(plan.recovery(name))
        assert content is not None
        for row in content["numbers"]["contrasts"]:
            if row["second"] == "FMM":
                measure = f"KL to reserved labels, {row['labels_shown']} shown"
                interval = Interval(row["value"], row["low"], row["high"])
                yield _contrast("RQ1", measure, row["first"], row["second"], name, interval)
    yield from _on_test(plan, "RQ2", TEST_KL, NEURAL_PAIRS)
    yield from _on_test(plan, "RQ2", PRINTED_KL, PRINTED_NEURAL_PAIRS)
    yield from _on_test(plan, "RQ3", TEST_KL, ANNOTATOR_PAIRS)
    yield from _on_test(plan, "RQ3", PRINTED_KL, PRINTED_ANNOTATOR_PAIRS)
    yield from _on_test(plan, "CBCC", TEST_KL, SOFT_CBCC_PAIRS)
    yield from _on_hidden_labels(plan, "CBCC", CBCC_PAIRS)
    for first, second in CBCC_PAIRS:
        for name in plan.datasets_with("gold"):
            right = [plan.finished.arrays(plan.gold(name, key).path)["right"] for key in (first, second)]
            interval = _interval(plan, right[1] - right[0])
            titles = MODEL_TITLES[first], MODEL_TITLES[second]
            yield _contrast("CBCC", "error on gold labels", *titles, name, interval)


def _contrast(
    question: str, measure: str, first: str, second: str, dataset: str, interval: Interval
) -> Numbers:
    row = {"question": question, "measure": measure, "first": first, "second": second, "dataset": dataset}
    return row | interval._asdict()


def _on_test(
    plan: Plan, question: str, measure: str, pairs: Sequence[tuple[str, str]]
) -> Iterator[dict[str, Any]]:
    for first, second in pairs:
        for name in plan.datasets_with("table3"):
            interval = _interval(plan, difference(plan, name, first, second))
            titles = COLUMNS[first].title, COLUMNS[second].title
            yield _contrast(question, measure, *titles, name, interval)


def _on_hidden_labels(
    plan: Plan, question: str, pairs: Sequence[tuple[str, str]]
) -> Iterator[dict[str, Any]]:
    for condition, measure in HIDDEN_LABELS.items():
        for first, second in pairs:
            for name in plan.datasets_with("hidden"):
                arrays, other = (plan.finished.arrays(plan.hidden(name, key).path) for key in (first, second))
                # All labels of an item, from all splits, are resampled together.
                interval = _interval(plan, arrays[condition] - other[condition], arrays["items"])
                titles = MODEL_TITLES[first], MODEL_TITLES[second]
                yield _contrast(question, measure, *titles, name, interval)
