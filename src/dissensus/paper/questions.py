"""The measures that answer whether clustering annotators helps: labels and populations not seen, and gold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dissensus.evaluation.recovery import Recovery, recover
from dissensus.metrics import accuracy_rows, log_probability_rows
from dissensus.models.base import Model
from dissensus.models.fmm import FMM
from dissensus.models.pgm.model import PGM
from dissensus.paper.cells import Cell
from dissensus.paper.columns import GUIDES
from dissensus.paper.measures import HIDDEN_SHARE, Bench, Measure, Numbers, Result

# KL of the first minus KL of the second, in the recovery of the population
CONTRASTS = (("PGM bp", "FMM"), ("PGM vb", "FMM"), ("FMM", "counts"), ("PGM bp", "counts"))


def model_of(name: str, sizes: Mapping[str, Any], seed: int) -> Model:
    """A model by its name in the plan."""
    if name in GUIDES:
        return GUIDES[name].build({**sizes, "seed": seed})
    if name == "majority":
        from dissensus.models.majority import MajorityVote

        return MajorityVote()
    if name == "dawid_skene":
        from dissensus.models.dawid_skene import DawidSkene

        return DawidSkene()
    from dissensus.models.empirical import EmpiricalDistribution

    return EmpiricalDistribution()


def hidden(bench: Bench, cell: Cell) -> Result:
    """−log P of labels that were hidden with their pairs, given item and annotator, and given the item."""
    known, settings = bench.datasets[cell.dataset].annotations, cell.settings
    pair, item, items = [], [], []
    for split in settings["splits"]:
        shown, asked = known.split_labels(HIDDEN_SHARE, seed=split)
        model = model_of(settings["model"], settings["sizes"], split).fit(shown)
        ids, people = asked.items[asked.item], asked.annotators[asked.annotator]
        pair.append(-log_probability_rows(model.predict_proba(ids, people), asked.label))
        item.append(-log_probability_rows(model.predict_proba(ids), asked.label))
        items.append(known.item_vocabulary.codes(asked.item_vocabulary)[asked.item])
    numbers: Numbers = {"pair": [float(p.mean()) for p in pair], "item": [float(i.mean()) for i in item]}
    arrays = {name: np.concatenate(rows) for name, rows in (("pair", pair), ("item", item), ("items", items))}
    return numbers, arrays


def gold(bench: Bench, cell: Cell) -> Result:
    """The share of items whose most likely class is the reference label."""
    known, settings = bench.datasets[cell.dataset].annotations, cell.settings
    model = model_of(settings["model"], settings["sizes"], settings["seed"]).fit(known)
    reference = np.asarray(known.gold)
    judged = np.flatnonzero(reference >= 0)
    code_of = {label: code for code, label in enumerate(known.classes.tolist())}
    codes = np.array([code_of[label] for label in model.predict().tolist()])
    right = accuracy_rows(reference[judged], codes[judged])
    return {"accuracy": float(right.mean()), "items": len(judged)}, {"right": right}


def recovery(bench: Bench, cell: Cell) -> Result:
    """How close models come to the labels kept back, from how few."""
    settings = cell.settings
    sizes = [tuple(size) for size in settings["pgm"]]
    models = {
        "FMM": [FMM(K) for K in settings["fmm"]],
        "PGM bp": [PGM(K, L) for K, L in sizes],
        "PGM vb": [PGM(K, L, inference="vb") for K, L in sizes],
    }
    found = recover(
        models,
        bench.datasets[cell.dataset].annotations,
        settings["labels_shown"],
        n_draws=settings["draws"],
        n_jobs=1,
        progress=False,
        seed=settings["seed"],
    )
    return found.to_dict() | {"contrasts": _contrasts(found, settings["labels_shown"])}, {}


def _contrasts(found: Recovery, labels_shown: Any) -> list[Numbers]:
    return [
        {"labels_shown": R, "first": first, "second": second, **found.difference(first, second, R)._asdict()}
        for R in labels_shown
        for first, second in CONTRASTS
    ]


QUESTIONS: dict[str, Measure] = {"hidden": hidden, "gold": gold, "recovery": recovery}
