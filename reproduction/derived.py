"""Ensembles, intervals and comparisons of models, computed from the predictions of finished cells.

``write_records`` writes the numbers of all cells and these derived numbers to ``cells.jsonl``, which is all
that the page is made from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from dissensus._version import __version__
from dissensus.errors import DataError
from dissensus.evaluate.bootstrap import Interval, Resamples, bootstrap_mean
from dissensus.metrics import kl, kl_rows
from dissensus.numerics import Array
from dissensus.tables.atomic import atomic_path
from dissensus.tables.results import json_safe
from reproduction.cells import Numbers
from reproduction.columns import (
    ALL_GUIDES,
    BY_PAIR,
    COLUMNS,
    GUIDES,
    HIERARCHICAL,
    ITEM,
    OTHER,
    PAIR,
    PAPER_GUIDES,
    PLAIN,
    RAW,
    mode_key,
)
from reproduction.figures import scatter
from reproduction.measures import PREDICTED_PARTS, scores
from reproduction.plan import Plan

DERIVED = "derived"  # the record of derived numbers
MODEL_TITLES = {"counts": "smoothed counts", "dawid_skene": "Dawid–Skene", "majority": "majority vote"} | {
    key: ALL_GUIDES[key].title for key in (*GUIDES, HIERARCHICAL)
}
PRINTED_CELLS = "-printed-"  # in the names of cells of ``--as-printed`` and ``--paper-repeats``


def write_records(plan: Plan, folder: Path, command: str) -> None:
    """Write ``cells.jsonl`` and the t-SNE figures of a finished evaluation.

    Cells of an earlier run with ``--as-printed`` or ``--paper-repeats`` are kept in the file.
    """
    lines, path, cells = list[str](), folder / "cells.jsonl", plan.cells()
    if path.exists():
        measured = {cell.path for cell in cells}
        earlier = [(json.loads(line)["file"], line) for line in path.read_text(encoding="utf-8").splitlines()]
        lines = [f"{line}\n" for file, line in earlier if PRINTED_CELLS in file and file not in measured]
    for cell in cells:
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
    """Return the difference in KL of every test item between two columns, (runs, items).

    Runs of the same kind share their seeds: only the runs that both columns have are compared. Of two other
    columns with different numbers of runs, the longer one is averaged first.
    """
    rows, other_rows = (kl_of_runs(plan, name, key) for key in (first, second))
    if COLUMNS[first].kind == COLUMNS[second].kind:
        shared = min(len(rows), len(other_rows))
        rows, other_rows = rows[:shared], other_rows[:shared]
    elif 1 < len(other_rows) < len(rows):
        rows = rows.mean(axis=0, keepdims=True)
    elif 1 < len(rows) < len(other_rows):
        other_rows = other_rows.mean(axis=0, keepdims=True)
    return np.asarray(rows - other_rows)


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

Pairs = Sequence[tuple[str, str]]

CLUSTERING = ("annealing", "bp", "vb")  # PGM, by inference
# On the same features, without snapping and without dropout.
SOFT_PAIRS = tuple((f"{key}_soft", "fmm_soft") for key in CLUSTERING)
HIERARCHICAL_PAIRS = ((f"{HIERARCHICAL}_soft", "fmm_soft"),)
LDLNM_PAIRS = tuple((f"ldlnm_{PLAIN}", f"{key}_soft") for key in GUIDES)
NEURAL_PAIRS = (*LDLNM_PAIRS, (f"ldlnm_{PLAIN}", f"{HIERARCHICAL}_soft"), ("ldlnm_default", "guided"))
ANNOTATOR_PAIRS = ((f"ldlnm_{PLAIN}", f"ldlnm_alone_{PLAIN}"), ("ldlnm_default", "ldlnm_default_alone"))
# As compared in the paper: a network on sentence embeddings with a CNN trained from scratch whose answers are
# snapped; with dropout on, the mean over a mask for each annotator with the answer of a single mask.
GUIDED_PAIRS = (("annealing", "fmm"), ("bp", "fmm"))
PRINTED_NEURAL_PAIRS = tuple(("ldlnm", key) for key in PAPER_GUIDES)
PRINTED_ANNOTATOR_PAIRS = (("ldlnm", "ldlnm_alone"),)
HIDDEN_PAIRS = tuple((key, "fmm") for key in (*CLUSTERING, HIERARCHICAL))
CBCC_PAIRS = (("bp", "cbcc"), ("vb", "cbcc"))
SOFT_CBCC_PAIRS = tuple((f"{first}_soft", f"{second}_soft") for first, second in CBCC_PAIRS)
# Models with clusters against learners without.
PRINTED_PD_PAIRS = tuple((key, "pd") for key in (*PAPER_GUIDES, "ldlnm"))
UNGUIDED_PAIRS = tuple(
    (key, "softmax") for key in (*(f"{key}_soft" for key in GUIDES), f"{HIERARCHICAL}_soft", f"ldlnm_{PLAIN}")
)
SNAPPING_PAIRS = tuple((key, f"{key}_{RAW}") for key in PAPER_GUIDES)
RAW_PD_PAIRS = tuple((f"{key}_{RAW}", "pd") for key in PAPER_GUIDES)
PROJECTION_PAIRS = tuple(
    (mode_key(key, refine, "soft"), mode_key(key, refine, "hard"))
    for refine in ("hard", "soft")
    for key in PAPER_GUIDES
)
REFINEMENT_PAIRS = tuple(
    (mode_key(key, "soft", project), mode_key(key, "hard", project))
    for project in ("hard", "soft")
    for key in PAPER_GUIDES
)

TEST_KL, PRINTED_KL = "test KL", "test KL, compared as in the paper"
SNAPPING_KL = "test KL, the same CNN with and without snapping"
# Measures of the paper's comparisons.
PRINTED_MEASURES = (PRINTED_KL, f"{PRINTED_KL}, {BY_PAIR}")
HIDDEN_LABELS = {PAIR: "hidden labels, given item and annotator", ITEM: "hidden labels, given the item"}
HIDDEN_BY_PAIR = {f"{ITEM}{OTHER}": f"{HIDDEN_LABELS[ITEM]}, {BY_PAIR}"}


def contrasts(plan: Plan) -> Iterator[Numbers]:
    """Yield the difference between two models' losses on one dataset, with its interval, by question."""
    yield from _on_test(plan, "PD", PRINTED_KL, PRINTED_PD_PAIRS)
    yield from _on_test(plan, "PD", SNAPPING_KL, SNAPPING_PAIRS)
    yield from _on_test(plan, "PD", TEST_KL, (*RAW_PD_PAIRS, *UNGUIDED_PAIRS))
    yield from _on_test(plan, "RQ1", TEST_KL, (*SOFT_PAIRS, *HIERARCHICAL_PAIRS))
    yield from _on_test(plan, "RQ1", TEST_KL, SOFT_PAIRS, by_pair=True)
    yield from _on_test(plan, "RQ1", PRINTED_KL, GUIDED_PAIRS)
    yield from _on_test(plan, "RQ1", PRINTED_KL, GUIDED_PAIRS, by_pair=True)
    yield from _on_hidden_labels(plan, "RQ1", HIDDEN_PAIRS, HIDDEN_LABELS)
    yield from _on_hidden_labels(plan, "RQ1", HIDDEN_PAIRS[:-1], HIDDEN_BY_PAIR)
    for name in plan.datasets_with("recover"):
        content = plan.finished.read(plan.recovery(name))
        assert content is not None
        for row in content["numbers"]["contrasts"]:
            if row["second"] == "FMM":
                measure = f"KL to reserved labels, {row['labels_shown']} shown"
                interval = Interval(row["value"], row["low"], row["high"])
                yield _contrast("RQ1", measure, row["first"], row["second"], name, interval)
    yield from _on_test(plan, "RQ2", TEST_KL, NEURAL_PAIRS)
    yield from _on_test(plan, "RQ2", TEST_KL, LDLNM_PAIRS, by_pair=True)
    yield from _on_test(plan, "RQ2", PRINTED_KL, PRINTED_NEURAL_PAIRS)
    yield from _on_test(plan, "RQ2", PRINTED_KL, PRINTED_NEURAL_PAIRS, by_pair=True)
    yield from _on_test(plan, "RQ3", TEST_KL, ANNOTATOR_PAIRS)
    yield from _on_test(plan, "RQ3", PRINTED_KL, PRINTED_ANNOTATOR_PAIRS)
    yield from _on_test(plan, "CBCC", TEST_KL, SOFT_CBCC_PAIRS)
    yield from _on_hidden_labels(plan, "CBCC", CBCC_PAIRS, HIDDEN_LABELS)
    for first, second in CBCC_PAIRS:
        for name in plan.datasets_with("gold"):
            right = [plan.finished.arrays(plan.gold(name, key).path)["right"] for key in (first, second)]
            interval = _interval(plan, right[1] - right[0])
            titles = MODEL_TITLES[first], MODEL_TITLES[second]
            yield _contrast("CBCC", "error on gold labels", *titles, name, interval)
    yield from _on_test(plan, "Soft or hard", "test KL, projection soft or hard", PROJECTION_PAIRS)
    yield from _on_test(plan, "Soft or hard", "test KL, refinement soft or hard", REFINEMENT_PAIRS)


def _contrast(
    question: str, measure: str, first: str, second: str, dataset: str, interval: Interval
) -> Numbers:
    row = {"question": question, "measure": measure, "first": first, "second": second, "dataset": dataset}
    return row | interval._asdict()


def _on_test(
    plan: Plan, question: str, measure: str, pairs: Pairs, *, by_pair: bool = False
) -> Iterator[Numbers]:
    """Yield differences in KL on test; ``by_pair`` takes the columns with K × L chosen by hidden labels."""
    measure += f", {BY_PAIR}" if by_pair else ""
    for first, second in pairs:
        titles = COLUMNS[first].title, COLUMNS[second].title
        if by_pair:
            first, second = (key + OTHER if key + OTHER in COLUMNS else key for key in (first, second))
        for name in plan.datasets_with("table3"):
            # Items and repeats are resampled: a verdict should not depend on a seed.
            rows = difference(plan, name, first, second)
            interval = Resamples(len(rows), rows.shape[1], plan.scale.n_boot).interval(rows)
            yield _contrast(question, measure, *titles, name, interval)


def _on_hidden_labels(
    plan: Plan, question: str, pairs: Pairs, conditions: Mapping[str, str]
) -> Iterator[Numbers]:
    for condition, measure in conditions.items():
        for first, second in pairs:
            for name in plan.datasets_with("hidden"):
                arrays, other = (plan.finished.arrays(plan.hidden(name, key).path) for key in (first, second))
                # All labels of an item, from all splits, are resampled together.
                interval = _interval(plan, arrays[condition] - other[condition], arrays["items"])
                titles = MODEL_TITLES[first], MODEL_TITLES[second]
                yield _contrast(question, measure, *titles, name, interval)
