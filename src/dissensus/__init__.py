"""From the disagreeing labels of many annotators to the distribution of labels a population would give.

Names are loaded when first used, so that ``import dissensus`` stays quick.
"""

from __future__ import annotations

import importlib
from typing import Any

from dissensus._version import __version__
from dissensus.models import MODELS

# public name -> the module it lives in; models are in their own registry (models/__init__.py)
_HOMES = {
    "DissensusError": "errors",
    "Annotations": "data.annotations",
    "read_annotations": "io.read",
    "write_labels": "io.write",
    "pack": "io.store.packing",
    "open_annotations": "io.store.opening",
    "describe": "data.description",
    "simulate": "data.simulation",
    "krippendorff_alpha": "evaluation.agreement",
    "fleiss_kappa": "evaluation.agreement",
    "load": "guided.files",
    "resources": "execution.resources",
    "select": "selection.select",
    "Selection": "selection.results",
    "recover": "evaluation.recovery",
    "Recovery": "evaluation.recovery",
    "choose_model": "selection.compare",
    "choose_truth": "selection.truth",
    "gold_prior": "models.confusion",
    "gold_accuracy": "evaluation.gold",
    "annotator_skills": "annotators.skill",
    "AnnotatorSkills": "annotators.skill",
    "annotator_verdicts": "annotators.verdicts",
    "AnnotatorVerdicts": "annotators.verdicts",
    "Design": "annotators.plan",
    "LabelPlan": "annotators.plan",
    "LabelQueue": "annotators.queue",
    "design_study": "annotators.plan",
    "label_queue": "annotators.queue",
    "plan_labels": "annotators.plan",
    "judge_report": "annotators.judges.report",
    "JudgeReport": "annotators.judges.report",
    "refine": "workflow.refine",
    "write_report": "report.page",
    "score_files": "evaluation.scoring",
    "embed": "features.embedding",
    "embed_items": "features.items",
    "with_features": "features.items",
    "read_features": "features.items",
    "SoftmaxRegression": "learners.softmax",
    "TextCNN": "learners.textcnn",
    "FineTunedEncoder": "learners.finetuned",
    "GuidedClassifier": "guided.classifier",
    "torch_dataset": "integrations.training",
    "soft_loss": "integrations.training",
    "sample_weight_rows": "integrations.training",
    "log_to_mlflow": "integrations.mlflow",
    "labels_from_mlflow": "integrations.mlflow",
    "project_2d": "report.projection",
    "plot_2d": "report.projection",
}


_MODEL_CLASSES = [home.split(":")[1] for home in MODELS.values()]
_MODULES = ("datasets", "metrics")

__all__ = ["__version__", *_HOMES, *_MODEL_CLASSES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"dissensus.{_HOMES[name]}"), name)
    elif name in _MODEL_CLASSES:
        from dissensus.models import model_class

        value = model_class(name)
    elif name in _MODULES:
        value = importlib.import_module(f"dissensus.{name}")
    else:
        raise AttributeError(f"module 'dissensus' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
