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
    "DissensusWarning": "errors",
    "Annotations": "labels.annotations",
    "read_annotations": "importers.read",
    "write_labels": "tables.write",
    "write_store": "large.packing",
    "load": "text.guided.files",
    "describe": "labels.description",
    "simulate": "labels.simulation",
    "fit": "workflow.refine",
    "compare": "evaluate.compare",
    "select": "evaluate.select",
    "recover": "evaluate.recovery",
    "score": "workflow.scoring",
    "resources": "large.resources",
    "annotator_verdicts": "annotators.verdicts",
    "judge_report": "judges.report",
    "plan_labels": "annotators.plan",
    "label_queue": "annotators.findings",
    "write_report": "report.page",
    "GuidedClassifier": "text.guided.classifier",
}
# public submodule -> where it lies
_MODULES = {name: name for name in ("datasets", "metrics", "text")}
_MODULES |= {name: f"integrations.{name}" for name in ("training", "mlflow")}

# Functions that the core (docs/architecture.md) needs of rooms that it may not import.
sources.register(
    read_annotations="dissensus.importers.read:read_annotations",
    export_formats="dissensus.importers:export_formats",
    export_title="dissensus.importers:export_title",
    embed="dissensus.text.embedding:embed",
    load_labels="dissensus.workflow.run_labels:load_labels",
)

for _home in MODELS.values():
    _module, _class = _home.removeprefix("dissensus.").split(":")
    _HOMES[_class] = _module

__all__ = ["__version__", *_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"dissensus.{_HOMES[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"dissensus.{_MODULES[name]}")
    else:
        raise AttributeError(f"module 'dissensus' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
