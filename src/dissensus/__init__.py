"""Estimate, from the labels of annotators who disagree, the distribution of labels of a whole population.

Names are imported when first used, so that ``import dissensus`` is fast.
"""

from __future__ import annotations

import importlib
from typing import Any

from dissensus._version import __version__
from dissensus.labels import register
from dissensus.models import MODELS

# public name -> its module; models are added from their registry (models/__init__.py)
_PUBLIC_NAMES = {
    "DissensusError": "errors",
    "DissensusWarning": "errors",
    "Annotations": "labels.annotations",
    "read_annotations": "importers.read",
    "write_labels": "tables.write",
    "write_store": "large.packing",
    "load": "text.guided",
    "describe": "labels.description",
    "agreement": "labels.coefficients",
    "simulate": "labels.simulation",
    "fit": "workflow.refine",
    "compare": "evaluate.compare",
    "select": "evaluate.select",
    "recover": "evaluate.recovery",
    "score": "workflow.scoring",
    "resources": "large.resources",
    "annotator_attributes": "evaluate.attributes",
    "annotator_verdicts": "annotators.verdicts",
    "judge_report": "judges.report",
    "plan_labels": "annotators.plan",
    "label_queue": "annotators.plan",
    "write_report": "report.page",
    "view": "decide.notebook",
    "GuidedClassifier": "text.guided.classifier",
}
# public submodule -> its path
_SUBMODULES = {name: name for name in ("datasets", "metrics", "text")}
_SUBMODULES |= {name: f"integrations.{name}" for name in ("training", "mlflow")}

# Functions and tables that the core (docs/architecture.md) needs of rooms that it may not import.
register(
    read_annotations="dissensus.importers.read:read_annotations",
    export_formats="dissensus.importers:FORMATS",
    recognise_export="dissensus.importers:recognise",
    embed="dissensus.text.embedding:embed",
    load_labels="dissensus.workflow.run_labels:load_labels",
)

for _path in MODELS.values():
    _module, _class = _path.removeprefix("dissensus.").split(":")
    _PUBLIC_NAMES[_class] = _module

__all__ = ["__version__", *_PUBLIC_NAMES, *_SUBMODULES]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC_NAMES:
        value = getattr(importlib.import_module(f"dissensus.{_PUBLIC_NAMES[name]}"), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"dissensus.{_SUBMODULES[name]}")
    else:
        raise AttributeError(f"module 'dissensus' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
