"""Measuring a cell, by its kind: each measure returns numbers for its file, and arrays stored beside it."""

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
from dissensus.metrics import (
    Ties,
    accuracy,
    accuracy_rows,
    entropy,
    kl,
    log_probability_rows,
    onehot_accuracy,
)
from dissensus.models.base import Model
from dissensus.models.fmm import FMM
from dissensus.models.pgm.model import PGM
from dissensus.numerics import Array, row_shares
from dissensus.text.guided.classifier import PRIOR_STRENGTHS, GuidedClassifier, ItemClusters, Projection
from reproduction.cells import Arrays, Cell, FinishedCells, Numbers
from reproduction.columns import (
    ALL_GUIDES,
    ENCODER,
    GLOVE,
    GUIDES,
    INSIDE,
    ITEM,
    OTHER,
    PAIR,
    PLAIN,
    RAW,
    default_guided,
    learner_of,
)
from reproduction.datasets import Dataset

Result = tuple[Numbers, Arrays]

PREDICTED_PARTS = ("dev", "test")
MAX_LISTED = 10  # settings of a search that its cell lists
HIDDEN_SHARE = 0.2  # share of the (item, annotator) pairs that are hidden
# Given item and annotator; given the item, and the same with K × L chosen given item and annotator.
HIDDEN_CONDITIONS = PAIR, ITEM, f"{ITEM}{OTHER}"
CONSTANT, UNIFORM = "constant", "uniform"  # the mean training distribution, and equal shares
# pairs compared by KL in the recovery of the population
CONTRASTS = (("PGM bp", "FMM"), ("PGM vb", "FMM"), ("FMM", "counts"), ("PGM bp", "counts"))


@dataclass(frozen=True)
class Inputs:
    """The inputs of every measure."""

    datasets: Mapping[str, Dataset]
    finished: FinishedCells
    glove: str | None = None  # file of word vectors for the CNN as printed

    def learner(self, name: str, settings: Mapping[str, Any], seed: int) -> Any:
        """Return a learner; settings identify a file of word vectors by its content, not by its path."""
        path = {GLOVE: self.glove} if GLOVE in settings else {}
        return learner_of(name, {**settings, **path}, seed)

    def search_directory(self, cell: Cell) -> Path:
        """Return the folder of a search's finished trials; it depends on all settings."""
        digest = stream_seed(0, key_of(cell.identity))
        return self.finished.directory / "searches" / f"{cell.dataset}-{cell.name}-{digest:08x}"


Measure = Callable[[Inputs, Cell], Result]


def scores(gold: Array, predicted: Array, ties: Ties = "first") -> dict[str, float]:
    """Return KL(gold ‖ predicted) with 1e-5 added to both sides, and accuracy in both definitions.

    Among tied classes the first in class order counts, as in the authors' code, or an even draw ("share").
    """
    return {
        "kl": kl(gold, predicted),
        "accuracy": accuracy(gold, predicted, ties=ties),
        "onehot_accuracy": onehot_accuracy(gold, predicted, ties=ties),
    }


def _run(data: Dataset, seed: int, predictions: Mapping[str, Array]) -> Numbers:
    """Return the scores of one run on every predicted part."""
    return {"seed": seed} | {part: scores(data.gold[part], p) for part, p in predictions.items()}


def _stacked(runs: Sequence[Mapping[str, Array]]) -> Arrays:
    """Return the predictions of each part, (runs, items, classes), in single precision."""
    return {part: np.stack([run[part] for run in runs]).astype(np.float32) for part in PREDICTED_PARTS}


# ---- Tables 1 and 2 -----------------------------------------------------------------------------------


def describe(inputs: Inputs, cell: Cell) -> Result:
    """Describe a dataset, and score two predictions that do not depend on the item."""
    data = inputs.datasets[cell.dataset]
    annotations = data.annotations
    test = data.gold["test"]
    mean = np.tile(data.gold["train"].mean(axis=0), (len(test), 1))
    numbers = {
        "items": annotations.n_items,
        "annotators": annotations.n_annotators,
        "labels": annotations.n_labels,
        "labels_per_item": annotations.n_labels / annotations.n_items,
        "classes": annotations.n_classes,
        "entropy": entropy(row_shares(annotations.counts)),
        "train": data.parts["train"].n_items,
        "dev": data.parts["dev"].n_items,
        "test": data.parts["test"].n_items,
        CONSTANT: scores(test, mean),
        UNIFORM: scores(test, np.full(mean.shape, 1 / annotations.n_classes), ties="share"),
    }
    return numbers, {}


def search(inputs: Inputs, cell: Cell) -> Result:
    """Search the numbers of clusters by a criterion on dev."""
    from reproduction.criteria import criterion_of

    data, settings = inputs.datasets[cell.dataset], cell.settings
    selection = select(
        data.parts["train"],
        GUIDES[settings["guide"]].build({}),
        settings["grid"],
        criterion=criterion_of(settings["criterion"], data.parts["dev"], settings.get("learner", {})),
        dev=data.parts["dev"],
        directory=inputs.search_directory(cell),
        **_trials(settings),
    )
    return _selected(selection), {}


def network_search(inputs: Inputs, cell: Cell) -> Result:
    """Search the sizes of LDL-NM's layers by KL on dev."""
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
        "tied": [str(cell) for cell in selection.stability.tied],
        "best": selection.rows()[:MAX_LISTED],
    }


def clusters(inputs: Inputs, cell: Cell) -> Result:
    """Measure how well clusters describe the labels of the training items, for each seed."""
    train = inputs.datasets[cell.dataset].parts["train"]
    guide, sizes = cell.settings["guide"], cell.settings["sizes"]
    values = [cluster_divergence(train, guide, sizes, seed) for seed in cell.settings["seeds"]]
    return {"sizes": sizes, "kl": values}, {}


def cluster_divergence(train: Annotations, guide: str, sizes: Mapping[str, int], seed: int) -> float:
    """Return the mean KL(empirical ‖ distribution of the item's most likely cluster), 1e-5 on both sides."""
    model = equal_annotators(ALL_GUIDES[guide].build({**sizes, "assignment": "hard", "seed": seed}))
    return kl(row_shares(train.counts), model.fit(train).label_distributions_)


def equal_annotators(guide: Model) -> Model:
    """Weight annotators equally, as in Eq. infer; FMM has no annotators."""
    has_annotators = "weight_by" in guide.get_params(deep=False)
    return guide.set_params(weight_by="annotators") if has_annotators else guide


# ---- Table 3 ------------------------------------------------------------------------------------------


def learner(inputs: Inputs, cell: Cell) -> Result:
    """Train a learner on raw label distributions."""
    data, seed = inputs.datasets[cell.dataset], cell.settings["seed"]
    model = inputs.learner(cell.name, cell.settings["learner"], seed)
    inputs_of = data.features if cell.name == "softmax" else data.texts
    model.fit(inputs_of("train"), data.gold["train"], dev=(inputs_of("dev"), data.gold["dev"]))
    predictions = {part: model.label_distributions(inputs_of(part)) for part in PREDICTED_PARTS}
    numbers: Numbers = {"runs": [_run(data, seed, predictions)]}
    if hasattr(model, "epoch_"):
        numbers["epoch"] = model.epoch_
    return numbers, _stacked([predictions])


def paper_workflow(guide: Model, learner: Any) -> GuidedClassifier:
    """Return the paper's workflow: hard refinement and projection, annotator sum outside, S = 1."""
    return GuidedClassifier(
        equal_annotators(guide),
        learner,
        refine="hard",
        project="hard",
        annotator_sum="outside",
        prior_strength=1.0,
    )


def soft_workflow(guide: Model, seed: int, refine: str = "soft") -> GuidedClassifier:
    """Return the workflow around softmax regression on embeddings, with soft projection."""
    return GuidedClassifier(guide, learner_of("softmax", {}, seed), refine=refine, project="soft")


def guided(inputs: Inputs, cell: Cell) -> Result:
    """Run the paper's workflow: snap labels to clusters, train a CNN, snap its predictions to clusters."""
    data, settings = inputs.datasets[cell.dataset], cell.settings
    guide = ALL_GUIDES[settings["guide"]].build({**settings["sizes"], "seed": settings["seed"]})
    model = paper_workflow(guide, inputs.learner("pd", settings["learner"], settings["seed"]))
    train, dev = (data.parts[name] for name in ("train", "dev"))
    model.fit(data.texts("train"), train, dev=(data.texts("dev"), dev))
    raw = {part: model.learner_.label_distributions(data.texts(part)) for part in PREDICTED_PARTS}
    clusters = ItemClusters.of(model.guide_, train.annotator_load)
    inside, strength = _projected(clusters, raw, data.gold["dev"], "hard")
    predictions = {part: model.label_distributions(data.texts(part)) for part in PREDICTED_PARTS}
    variants = {RAW: raw, INSIDE: inside}
    numbers = {
        "runs": [_run(data, settings["seed"], predictions)],
        **{name: [_run(data, settings["seed"], variant)] for name, variant in variants.items()},
        "strength": strength,
        "refined_kl": kl(data.gold["train"], model.refined_),
        "clusters_used": len(np.unique(predictions["test"].round(12), axis=0)),
    }
    return numbers, _stacked([predictions]) | _variant_arrays(variants)


def _projected(
    clusters: ItemClusters | None, raw: Mapping[str, Array], gold: Array, mode: str
) -> tuple[dict[str, Array], float]:
    """Project predictions with the annotator sum inside, with the S that is best on dev."""
    assert clusters is not None  # every guide of the tables has item clusters
    projections = [Projection(clusters, mode, "inside", float(S)) for S in PRIOR_STRENGTHS]
    best = min(projections, key=lambda project: kl(gold, project(raw["dev"])))
    return {part: best(h) for part, h in raw.items()}, best.prior_strength


def _variant_arrays(variants: Mapping[str, Mapping[str, Array]]) -> Arrays:
    """Return the predictions of a column's variants, by variant and part."""
    return {
        f"{name}_{part}": array
        for name, predictions in variants.items()
        for part, array in _stacked([predictions]).items()
    }


def guided_soft(inputs: Inputs, cell: Cell) -> Result:
    """Refine and project with a guide's clusters, softly and hard, around softmax regression."""
    data, settings = inputs.datasets[cell.dataset], cell.settings
    variants, strengths = dict[str, Mapping[str, Array]](), dict[str, float]()
    train, dev = (data.parts[name] for name in ("train", "dev"))
    for refine in ("hard", "soft"):
        guide = ALL_GUIDES[settings["guide"]].build({**settings["sizes"], "seed": settings["seed"]})
        model = soft_workflow(guide, settings["seed"], refine)
        model.fit(data.features("train"), train, dev=(data.features("dev"), dev))
        raw = {part: model.learner_.label_distributions(data.features(part)) for part in PREDICTED_PARTS}
        clusters = ItemClusters.of(model.guide_, train.annotator_load)
        for project in ("hard", "soft"):
            predicted, strength = _projected(clusters, raw, data.gold["dev"], project)
            variants[f"{refine}_{project}"], strengths[f"{refine}_{project}"] = predicted, strength
    predictions = variants.pop("soft_soft")
    numbers = {
        "runs": [_run(data, settings["seed"], predictions)],
        **{name: [_run(data, settings["seed"], variant)] for name, variant in variants.items()},
        "strengths": strengths,
    }
    return numbers, _stacked([predictions]) | _variant_arrays(variants)


def guided_default(inputs: Inputs, cell: Cell) -> Result:
    """Train GuidedClassifier with its default settings."""
    data, seed = inputs.datasets[cell.dataset], cell.settings["seed"]
    model = default_guided(seed)
    train, dev = (data.parts[name] for name in ("train", "dev"))
    model.fit(data.features("train"), train, dev=(data.features("dev"), dev))
    predictions = {part: model.label_distributions(data.features(part)) for part in PREDICTED_PARTS}
    return {"runs": [_run(data, seed, predictions)]}, _stacked([predictions])


def ldlnm(inputs: Inputs, cell: Cell) -> Result:
    """Train LDL-NM once as in the paper, and evaluate it repeatedly with dropout left on."""
    from dissensus.text.ldlnm.model import LDLNM

    data, settings = inputs.datasets[cell.dataset], cell.settings
    if settings.get(ENCODER) and data.as_printed is not None:
        data = data.as_printed
    model = LDLNM(**{**LDLNM.PAPER, **settings["network"]}, seed=settings["seed"])
    model.fit(data.parts["train"], dev=data.parts["dev"] if model.dev_size else None)

    def predictions(dropout_seed: int | None) -> dict[str, Array]:
        return {
            part: model.label_distributions(data.features(part), dropout_seed=dropout_seed)
            for part in PREDICTED_PARTS
        }

    noisy, plain = [predictions(seed) for seed in range(settings["evaluations"])], predictions(None)
    numbers = {
        "runs": [_run(data, seed, run) for seed, run in enumerate(noisy)],
        PLAIN: [_run(data, settings["seed"], plain)],
        "epoch": int(model.epoch_[0]),
    }
    arrays = _stacked(noisy) | _variant_arrays({PLAIN: plain})
    return numbers, arrays | {"embeddings": model.embed_items(data.features("train"))}


def ldlnm_default(inputs: Inputs, cell: Cell) -> Result:
    """Train LDL-NM with its default settings."""
    from dissensus.text.ldlnm.model import LDLNM

    data, settings = inputs.datasets[cell.dataset], cell.settings
    model = LDLNM(**settings["network"], seed=settings["seed"])
    model.fit(data.parts["train"], dev=data.parts["dev"])
    predictions = {part: model.label_distributions(data.features(part)) for part in PREDICTED_PARTS}
    return {"runs": [_run(data, settings["seed"], predictions)]}, _stacked([predictions])


def picture(inputs: Inputs, cell: Cell) -> Result:
    """Project LDL-NM's embeddings of the training items to two dimensions."""
    from reproduction.tsne import project_2d

    embeddings = inputs.finished.arrays(cell.settings["of"])["embeddings"]
    points = project_2d(embeddings, seed=cell.settings["seed"])
    classes = inputs.datasets[cell.dataset].gold["train"].argmax(axis=1)
    return {"items": len(points)}, {"points": points.astype(np.float32), "classes": classes}


# ---- hidden labels, gold labels, the population from few labels -----------------------------------


def model_of(name: str, sizes: Mapping[str, Any], seed: int, estimate: str = "population") -> Model:
    """Return a model by its name in the plan; ``estimate`` applies to models of one true class."""
    if name in ALL_GUIDES:
        target = {"estimate": estimate} if name == "cbcc" else {}
        return ALL_GUIDES[name].build({**sizes, **target, "seed": seed})
    if name == "majority":
        from dissensus.models.counting import MajorityVote

        return MajorityVote()
    if name == "dawid_skene":
        from dissensus.models.dawid_skene import DawidSkene

        return DawidSkene(estimate=estimate)
    from dissensus.models.counting import EmpiricalDistribution

    return EmpiricalDistribution()


def hidden(inputs: Inputs, cell: Cell) -> Result:
    """Measure −log P of hidden labels given item and annotator, and given the item."""
    annotations, settings = inputs.datasets[cell.dataset].annotations, cell.settings
    rows: dict[str, list[Any]] = {name: [] for name in ("items", *HIDDEN_CONDITIONS)}
    for split in settings["splits"]:
        shown, hidden_part = annotations.split_labels(HIDDEN_SHARE, seed=split)
        item_ids = hidden_part.items[hidden_part.item]
        annotator_ids = hidden_part.annotators[hidden_part.annotator]
        pair = model_of(settings["model"], settings["sizes"], split).fit(shown)
        item = pair
        if settings["item_sizes"] != settings["sizes"]:
            item = model_of(settings["model"], settings["item_sizes"], split).fit(shown)
        predicted = pair.predict_proba(item_ids, annotator_ids), item.predict_proba(item_ids)
        for name, p in zip(HIDDEN_CONDITIONS, (*predicted, pair.predict_proba(item_ids)), strict=True):
            rows[name].append(-log_probability_rows(p, hidden_part.label))
        rows["items"].append(annotations.item_vocabulary.codes(hidden_part.item_vocabulary)[hidden_part.item])
    numbers = {name: [float(losses.mean()) for losses in rows[name]] for name in HIDDEN_CONDITIONS}
    return numbers, {name: np.concatenate(parts) for name, parts in rows.items()}


def gold(inputs: Inputs, cell: Cell) -> Result:
    """Measure how often the most likely class is the gold label."""
    annotations, settings = inputs.datasets[cell.dataset].annotations, cell.settings
    model = model_of(settings["model"], settings["sizes"], settings["seed"], "truth").fit(annotations)
    gold_codes = np.asarray(annotations.gold)
    judged = np.flatnonzero(gold_codes >= 0)
    code_of = {label: code for code, label in enumerate(annotations.classes.tolist())}
    codes = np.array([code_of[label] for label in model.predict().tolist()])
    right = accuracy_rows(gold_codes[judged], codes[judged])
    return {"accuracy": float(right.mean()), "items": len(judged)}, {"right": right}


def population_recovery(inputs: Inputs, cell: Cell) -> Result:
    """Compare models with reserved labels, by the number of labels shown."""
    settings = cell.settings
    sizes = [tuple(size) for size in settings["pgm"]]
    models = {
        "FMM": [FMM(K) for K in settings["fmm"]],
        "PGM bp": [PGM(K, L) for K, L in sizes],
        "PGM vb": [PGM(K, L, inference="vb") for K, L in sizes],
    }
    recovery = recover(
        inputs.datasets[cell.dataset].annotations,
        models,
        settings["labels_shown"],
        n_draws=settings["draws"],
        n_jobs=1,
        progress=False,
        seed=settings["seed"],
    )
    contrasts = _contrasts(recovery, settings["labels_shown"])
    return recovery.to_dict() | {"contrasts": contrasts}, {}


def _contrasts(recovery: Recovery, labels_shown: Any) -> list[Numbers]:
    return [
        {"labels_shown": R, "first": first, "second": second}
        | recovery.difference(first, second, R)._asdict()
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
    "recovery": population_recovery,
}
