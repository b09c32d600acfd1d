"""From the disagreeing labels of many annotators to the distribution of labels a population would give.

Names are loaded when first used, so that ``import dissensus`` stays quick.
"""

from __future__ import annotations

import importlib
from typing import Any

from dissensus._version import __version__
from dissensus.labels import sources
from dissensus.models import MODELS

# public name -> the module it lives in; those of models come from their registry (models/__init__.py)
_HOMES = {
    "DissensusError": "errors",
    "Annotations": "labels.annotations",
    "read_annotations": "importers.read",
    "write_labels": "tables.write",
    "pack": "large.packing",
    "open_annotations": "large.store",
    "describe": "labels.description",
    "simulate": "labels.simulation",
    "krippendorff_alpha": "labels.agreement",
    "fleiss_kappa": "labels.agreement",
    "load": "text.guided.files",
    "resources": "large.resources",
    "select": "evaluate.select",
    "Selection": "evaluate.select",
    "recover": "evaluate.recovery",
    "Recovery": "evaluate.recovery",
    "choose_model": "evaluate.compare",
    "choose_truth": "evaluate.compare",
    "gold_prior": "models.confusion",
    "gold_accuracy": "evaluate.gold",
    "annotator_skills": "annotators.skill",
    "AnnotatorSkills": "annotators.skill",
    "annotator_verdicts": "annotators.verdicts",
    "AnnotatorVerdicts": "annotators.verdicts",
    "Design": "annotators.plan",
    "LabelPlan": "annotators.plan",
    "LabelQueue": "annotators.findings",
    "design_study": "annotators.plan",
    "label_queue": "annotators.findings",
    "plan_labels": "annotators.plan",
    "judge_report": "judges.report",
    "JudgeReport": "judges.report",
    "refine": "workflow.refine",
    "write_report": "report.page",
    "score_files": "workflow.scoring",
    "embed": "text.embedding",
    "embed_items": "labels.features",
    "with_features": "labels.features",
    "read_features": "labels.features",
    "SoftmaxRegression": "text.learners.softmax",
    "FineTunedEncoder": "text.learners.finetuned",
    "GuidedClassifier": "text.guided.classifier",
    "torch_dataset": "integrations.training",
    "soft_loss": "integrations.training",
    "sample_weight_rows": "integrations.training",
    "log_to_mlflow": "integrations.mlflow",
    "labels_from_mlflow": "integrations.mlflow",
    "project_2d": "report.projection",
    "plot_2d": "report.projection",
}

# Functions that the core (docs/architecture.md) needs of rooms that it may not import.
sources.register(
    read_annotations="dissensus.importers.read:read_annotations",
    export_formats="dissensus.importers:export_formats",
    export_title="dissensus.importers:export_title",
    embed="dissensus.text.embedding:embed",
)

for _home in MODELS.values():
    _module, _class = _home.removeprefix("dissensus.").split(":")
    _HOMES[_class] = _module
_MODULES = ("datasets", "metrics")

__all__ = ["__version__", *_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"dissensus.{_HOMES[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"dissensus.{name}")
    else:
        raise AttributeError(f"module 'dissensus' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
