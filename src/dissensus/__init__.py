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
    "Annotations": "annotations",
    "read_annotations": "io.read",
    "pack": "store.packing",
    "open_annotations": "store.opening",
    "describe": "description",
    "simulate": "simulation",
    "MajorityVote": "models.majority",
    "EmpiricalDistribution": "models.empirical",
    "FMM": "models.fmm",
    "PGM": "models.pgm",
    "DawidSkene": "models.dawid_skene",
    "OneCoin": "models.dawid_skene",
    "CBCC": "models.cbcc",
    "DirichletRegression": "models.dirichlet_regression",
    "load": "models.files",
    "resources": "resourcing",
    "select": "selection",
    "Selection": "selection",
    "recover": "recovery",
    "Recovery": "recovery",
    "choose_model": "auto",
    "annotator_verdicts": "verdicts",
    "AnnotatorVerdicts": "verdicts",
    "refine": "run",
    "write_report": "report.page",
    "score_files": "scoring",
    "embed": "text.embedding",
    "embed_items": "text.features",
    "with_features": "text.features",
    "read_features": "text.features",
    "SoftmaxRegression": "learners.softmax",
    "TextCNN": "learners.textcnn",
    "FineTunedEncoder": "learners.finetuned",
    "load_learner": "learners.files",
    "LDLNM": "neural.ldlnm",
    "GuidedClassifier": "guided",
    "project_2d": "projection",
    "plot_2d": "projection",
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
