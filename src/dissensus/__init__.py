"""From the disagreeing labels of many annotators to the distribution of labels a population would give.

Names are loaded when first used, so that ``import dissensus`` stays quick.
"""

from __future__ import annotations

import importlib
from typing import Any

from dissensus._version import __version__

# public name -> the module it lives in
_HOMES = {
    "DissensusError": "errors",
    "Annotations": "data.annotations",
    "read_annotations": "io.read",
    "pack": "io.store.packing",
    "open_annotations": "io.store.opening",
    "describe": "data.description",
    "simulate": "data.simulation",
    "MajorityVote": "models.majority",
    "EmpiricalDistribution": "models.empirical",
    "FMM": "models.fmm",
    "PGM": "models.pgm.model",
    "DawidSkene": "models.dawid_skene",
    "OneCoin": "models.dawid_skene",
    "CBCC": "models.cbcc",
    "DirichletRegression": "models.dirichlet_regression",
    "load": "guided.files",
    "resources": "execution.resources",
    "select": "selection.select",
    "Selection": "selection.select",
    "recover": "evaluation.recovery",
    "Recovery": "evaluation.recovery",
    "choose_model": "selection.compare",
    "annotator_verdicts": "annotators.verdicts",
    "AnnotatorVerdicts": "annotators.verdicts",
    "refine": "workflow",
    "write_report": "report.page",
    "score_files": "evaluation.scoring",
    "embed": "features.embedding",
    "embed_items": "features.features",
    "with_features": "features.features",
    "read_features": "features.features",
    "SoftmaxRegression": "learners.softmax",
    "TextCNN": "learners.textcnn",
    "FineTunedEncoder": "learners.finetuned",
    "LDLNM": "models.ldlnm.model",
    "GuidedClassifier": "guided.classifier",
    "project_2d": "report.projection",
    "plot_2d": "report.projection",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"dissensus.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'dissensus' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
