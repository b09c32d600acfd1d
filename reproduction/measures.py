"""How a cell is measured, by its kind. Each measure gives numbers for the file, and arrays beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.evaluate.recovery import Recovery, recover
from dissensus.evaluate.select import Selection, select
from dissensus.evaluate.tasks import key_of, stream_seed
from dissensus.labels.annotations import Annotations
from dissensus.metrics import accuracy, accuracy_rows, entropy, kl, log_probability_rows, onehot_accuracy
from dissensus.models.base import Model
from dissensus.models.fmm import FMM
from dissensus.models.pgm.model import PGM
from dissensus.numerics import Array
from dissensus.text.guided.classifier import PRIOR_WORTHS, GuidedClassifier
from dissensus.text.guided.guides import ItemClusters, Projection
from reproduction.cells import Arrays, Cell, FinishedCells
from reproduction.columns import ENCODER, GLOVE, GUIDES, INSIDE, PLAIN, learner_of, shipped
from reproduction.datasets import Dataset, shares

Numbers = dict[str, Any]
Result = tuple[Numbers, Arrays]

ASKED = ("dev", "test")  # the parts whose items are predicted
SHOWN = 10  # settings of a search that its cell lists
HIDDEN_SHARE = 0.2  # of the (item, annotator) pairs, where hidden labels are asked for
# KL of the first minus KL of the second, in the recovery of the population
CONTRASTS = (("PGM bp", "FMM"), ("PGM vb", "FMM"), ("FMM", "counts"), ("PGM bp", "counts"))


@dataclass(frozen=True)
class Inputs:
    """What every cell is measured from."""

    datasets: Mapping[str, Dataset]
    finished: FinishedCells
    glove: str | None = None  # the file of word vectors of the CNN as printed

    def learner(self, name: str, settings: Mapping[str, Any], seed: int) -> Any:
        """A learner; a cell's settings know a file of word vectors by its content, not by its place."""
        place = {GLOVE: self.glove} if GLOVE in settings else {}
        return learner_of(name, {**settings, **place}, seed)

    def search_directory(self, cell: Cell) -> Path:
        """Where a search keeps its finished trials: a place for every choice of settings."""
        digest = stream_seed(0, key_of(cell.identity))
        return self.finished.directory / "searches" / f"{cell.dataset}-{cell.name}-{digest:08x}"


Measure = Callable[[Inputs, Cell], Result]


def scores(gold: Array, predicted: Array) -> dict[str, float]:
    """KL(gold ‖ predicted) with 1e-5 on both sides, and accuracy in both definitions.

    Where gold classes tie, the first in class order counts, as in the authors' code.
    """
    return {
        "kl": kl(gold, predicted),
        "accuracy": accuracy(gold, predicted, ties="first"),
        "onehot_accuracy": onehot_accuracy(gold, predicted, ties="first"),
    }


def _run(data: Dataset, seed: int, predictions: Mapping[str, Array]) -> Numbers:
    """One run's scores on every part that was predicted."""
    return {"seed": seed} | {part: scores(data.gold[part], p) for part, p in predictions.items()}


def _stacked(runs: Sequence[Mapping[str, Array]]) -> Arrays:
    """Part → (runs, items, classes), in half the room."""
    return {part: np.stack([run[part] for run in runs]).astype(np.float32) for part in ASKED}


# ---- Tables 1 and 2 -----------------------------------------------------------------------------------


def describe(inputs: Inputs, cell: Cell) -> Result:
    """A line of Table 1, and the constant that any prediction should beat."""
    data = inputs.datasets[cell.dataset]
    known = data.annotations
    mean = np.tile(data.gold["train"].mean(axis=0), (data.parts["test"].n_items, 1))
    numbers = {
        "items": known.n_items,
        "annotators": known.n_annotators,
        "labels": known.n_labels,
        "labels_per_item": known.n_labels / known.n_items,
        "classes": known.n_classes,
        "entropy": entropy(shares(known)),
        "train": data.parts["train"].n_items,
        "dev": data.parts["dev"].n_items,
        "test": data.parts["test"].n_items,
        "constant": scores(data.gold["test"], mean),
    }
    return numbers, {}


def search(inputs: Inputs, cell: Cell) -> Result:
    """Numbers of clusters by how well labels of dev items are foreseen, half of them folded in."""
    data, settings = inputs.datasets[cell.dataset], cell.settings
    guide = GUIDES[settings["guide"]]
    selection = select(
        data.parts["train"],
        guide.build({}),
        settings["grid"],
        criterion="dev",
        dev=data.parts["dev"],
        directory=inputs.search_directory(cell),
        **_trials(settings),
    )
    return _selected(selection), {}


def network_search(inputs: Inputs, cell: Cell) -> Result:
    """Sizes of LDL-NM's layers by KL on dev."""
    from dissensus.text.ldlnm.model import LDLNM
    from reproduction.network_search import DevDistributions

    data, settings = inputs.datasets[cell.dataset], cell.settings
    selection = select(
        data.parts["train"],
        LDLNM(**{**LDLNM.PAPER, **settings["network"]}),
        settings["grid"],
        criterion=DevDistributions(data.parts["dev"]),
        directory=inputs.search_directory(cell),
        **_trials(settings),
    )
    return _selected(selection), {}


def _trials(settings: Mapping[str, Any]) -> dict[str, Any]:
    names = ("repeats", "finalists", "seed")
    return {name: settings[name] for name in names} | {
        "references": {},
        "refit": False,
        "n_jobs": 1,
        "progress": False,
    }


def _selected(selection: Selection) -> Numbers:
    return {
        "chosen": selection.params,
        "score": selection.winner.score,
        "error": selection.winner.error,
        "tried": len(selection.cells),
        "tied": [str(one) for one in selection.stability.tied],
        "best": selection.rows()[:SHOWN],
    }


def clusters(inputs: Inputs, cell: Cell) -> Result:
    """KL(empirical ‖ distribution of the most likely cluster) of the training items, seed by seed."""
    train = inputs.datasets[cell.dataset].parts["train"]
    guide, sizes = cell.settings["guide"], cell.settings["sizes"]
    values = [cluster_divergence(train, guide, sizes, seed) for seed in cell.settings["seeds"]]
    return {"sizes": sizes, "kl": values}, {}


def cluster_divergence(train: Annotations, guide: str, sizes: Mapping[str, int], seed: int) -> float:
    """Mean KL(empirical ‖ distribution of the item's most likely cluster), 1e-5 added to both sides."""
    model = _equal_annotators(GUIDES[guide].build({**sizes, "assignment": "hard", "seed": seed}))
    return kl(shares(train), model.fit(train).label_distributions_)


def _equal_annotators(guide: Model) -> Model:
    """Eq. infer weighs annotators equally; FMM knows none."""
    known = "weight_by" in guide.get_params(deep=False)
    return guide.set_params(weight_by="annotators") if known else guide


# ---- Table 3 ------------------------------------------------------------------------------------------


def learner(inputs: Inputs, cell: Cell) -> Result:
    """A learner on raw label distributions."""
    data, seed = inputs.datasets[cell.dataset], cell.settings["seed"]
    model = inputs.learner(cell.name, cell.settings["learner"], seed)
    known = data.features if cell.name == "softmax" else data.texts  # of the items of a part
    model.fit(known("train"), data.gold["train"], dev=(known("dev"), data.gold["dev"]))
    predictions = {part: model.label_distributions(known(part)) for part in ASKED}
    numbers: Numbers = {"runs": [_run(data, seed, predictions)]}
    if hasattr(model, "epoch_"):
        numbers["epoch"] = model.epoch_
    return numbers, _stacked([predictions])


def guided(inputs: Inputs, cell: Cell) -> Result:
    """The paper's workflow: labels snapped to clusters, a CNN taught, predictions snapped to clusters."""
    data, settings = inputs.datasets[cell.dataset], cell.settings
    model = GuidedClassifier(
        _equal_annotators(GUIDES[settings["guide"]].build(settings["sizes"])),
        inputs.learner("pd", settings["learner"], settings["seed"]),
        refine="hard",
        project="hard",
        annotator_sum="outside",
        prior_worth=1.0,
    )
    train, dev = (data.parts[name] for name in ("train", "dev"))
    model.fit(data.texts("train"), train, dev=(data.texts("dev"), dev))
    raw = {part: model.learner_.label_distributions(data.texts(part)) for part in ASKED}
    inside, strength = _inside(ItemClusters.of(model.guide_, train.annotator_load), raw, data.gold["dev"])
    predictions = {part: model.label_distributions(data.texts(part)) for part in ASKED}
    numbers = {
        "runs": [_run(data, settings["seed"], predictions)],
        "unprojected": [_run(data, settings["seed"], raw)],
        INSIDE: [_run(data, settings["seed"], inside)],
        "strength": strength,
        "refined_kl": kl(data.gold["train"], model.refined_),
        "clusters_used": len(np.unique(predictions["test"].round(12), axis=0)),
    }
    others = {f"{INSIDE}_{part}": array for part, array in _stacked([inside]).items()}
    return numbers, _stacked([predictions]) | others


def _inside(
    clusters: ItemClusters | None, raw: Mapping[str, Array], gold: Array
) -> tuple[dict[str, Array], float]:
    """The same predictions snapped with the annotator sum inside, and the S that is best on dev."""
    assert clusters is not None  # every guide of the tables has item clusters
    projections = [Projection(clusters, "hard", "inside", float(S)) for S in PRIOR_WORTHS]
    best = min(projections, key=lambda project: kl(gold, project(raw["dev"])))
    return {part: best(h) for part, h in raw.items()}, best.prior_worth


def guided_soft(inputs: Inputs, cell: Cell) -> Result:
    """A guide's clusters, refined and projected softly, around softmax regression on the embeddings."""
    data, settings = inputs.datasets[cell.dataset], cell.settings
    guide = GUIDES[settings["guide"]].build({**settings["sizes"], "seed": settings["seed"]})
    learner = learner_of("softmax", {}, settings["seed"])
    model = GuidedClassifier(guide, learner, refine="soft", project="soft")
    train, dev = (data.parts[name] for name in ("train", "dev"))
    model.fit(data.features("train"), train, dev=(data.features("dev"), dev))
    predictions = {part: model.label_distributions(data.features(part)) for part in ASKED}
    numbers = {"runs": [_run(data, settings["seed"], predictions)], "strength": model.prior_worth_}
    return numbers, _stacked([predictions])


def guided_default(inputs: Inputs, cell: Cell) -> Result:
    """GuidedClassifier as it comes."""
    data, seed = inputs.datasets[cell.dataset], cell.settings["seed"]
    model = shipped(seed)
    train, dev = (data.parts[name] for name in ("train", "dev"))
    model.fit(data.features("train"), train, dev=(data.features("dev"), dev))
    predictions = {part: model.label_distributions(data.features(part)) for part in ASKED}
    return {"runs": [_run(data, seed, predictions)]}, _stacked([predictions])


def ldlnm(inputs: Inputs, cell: Cell) -> Result:
    """LDL-NM as in the paper: trained once, then evaluated again and again with dropout left on."""
    from dissensus.text.ldlnm.model import LDLNM

    data, settings = inputs.datasets[cell.dataset], cell.settings
    if settings.get(ENCODER) and data.as_printed is not None:
        data = data.as_printed
    model = LDLNM(**{**LDLNM.PAPER, **settings["network"]}, seed=settings["seed"])
    model.fit(data.parts["train"], dev=data.parts["dev"] if model.dev_size else None)

    def predictions(dropout_seed: int | None) -> dict[str, Array]:
        return {
            part: model.label_distributions(data.features(part), dropout_seed=dropout_seed) for part in ASKED
        }

    noisy, plain = [predictions(seed) for seed in range(settings["evaluations"])], predictions(None)
    numbers = {
        "runs": [_run(data, seed, run) for seed, run in enumerate(noisy)],
        PLAIN: [_run(data, settings["seed"], plain)],
        "epoch": int(model.epoch_[0]),
    }
    arrays = _stacked(noisy) | {f"{PLAIN}_{part}": array for part, array in _stacked([plain]).items()}
    return numbers, arrays | {"embeddings": model.embed_items(data.features("train"))}


def ldlnm_default(inputs: Inputs, cell: Cell) -> Result:
    """LDL-NM as it comes, trained anew for every repeat."""
    from dissensus.text.ldlnm.model import LDLNM

    data, settings = inputs.datasets[cell.dataset], cell.settings
    model = LDLNM(**settings["network"], seed=settings["seed"])
    model.fit(data.parts["train"], dev=data.parts["dev"])
    predictions = {part: model.label_distributions(data.features(part)) for part in ASKED}
    return {"runs": [_run(data, settings["seed"], predictions)]}, _stacked([predictions])


def picture(inputs: Inputs, cell: Cell) -> Result:
    """A place in the plane for every training item, near ones alike to LDL-NM."""
    from reproduction.tsne import project_2d

    embeddings = inputs.finished.arrays(cell.settings["of"])["embeddings"]
    points = project_2d(embeddings, seed=cell.settings["seed"])
    classes = inputs.datasets[cell.dataset].gold["train"].argmax(axis=1)
    return {"items": len(points)}, {"points": points.astype(np.float32), "classes": classes}


# ---- hidden labels, reference labels, the population from few labels ----------------------------------


def model_of(name: str, sizes: Mapping[str, Any], seed: int, estimate: str = "population") -> Model:
    """A model by its name in the plan; those of one true class answer the question asked."""
    if name in GUIDES:
        asked = {"estimate": estimate} if name == "cbcc" else {}
        return GUIDES[name].build({**sizes, **asked, "seed": seed})
    if name == "majority":
        from dissensus.models.counting import MajorityVote

        return MajorityVote()
    if name == "dawid_skene":
        from dissensus.models.dawid_skene import DawidSkene

        return DawidSkene(estimate=estimate)
    from dissensus.models.counting import EmpiricalDistribution

    return EmpiricalDistribution()


def hidden(inputs: Inputs, cell: Cell) -> Result:
    """−log P of labels that were hidden with their pairs, given item and annotator, and given the item."""
    known, settings = inputs.datasets[cell.dataset].annotations, cell.settings
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


def gold(inputs: Inputs, cell: Cell) -> Result:
    """The share of items whose most likely class is the reference label."""
    known, settings = inputs.datasets[cell.dataset].annotations, cell.settings
    model = model_of(settings["model"], settings["sizes"], settings["seed"], "truth").fit(known)
    reference = np.asarray(known.gold)
    judged = np.flatnonzero(reference >= 0)
    code_of = {label: code for code, label in enumerate(known.classes.tolist())}
    codes = np.array([code_of[label] for label in model.predict().tolist()])
    right = accuracy_rows(reference[judged], codes[judged])
    return {"accuracy": float(right.mean()), "items": len(judged)}, {"right": right}


def recovery(inputs: Inputs, cell: Cell) -> Result:
    """How close models come to the labels kept back, from how few."""
    settings = cell.settings
    sizes = [tuple(size) for size in settings["pgm"]]
    models = {
        "FMM": [FMM(K) for K in settings["fmm"]],
        "PGM bp": [PGM(K, L) for K, L in sizes],
        "PGM vb": [PGM(K, L, inference="vb") for K, L in sizes],
    }
    found = recover(
        inputs.datasets[cell.dataset].annotations,
        models,
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


MEASURES: dict[str, Measure] = {
    "describe": describe,
    "search": search,
    "network_search": network_search,
    "clusters": clusters,
    "learner": learner,
    "guided": guided,
    "guided_soft": guided_soft,
    "guided_default": guided_default,
    "ldlnm": ldlnm,
    "ldlnm_default": ldlnm_default,
    "picture": picture,
    "hidden": hidden,
    "gold": gold,
    "recovery": recovery,
}
