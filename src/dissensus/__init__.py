"""Estimate, from the labels of annotators who disagree, the distribution of labels of a whole population.

Names are imported when first used. This file itself imports next to nothing: it runs before the first line of
the command line, which until then cannot answer Ctrl-C (__main__.py).
"""

from dissensus._version import __version__ as __version__

TYPE_CHECKING = False  # as in the module typing, which would be imported for this alone
if TYPE_CHECKING:
    from typing import Any

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

# Functions and tables that the core (docs/architecture.md) needs of rooms that it may not import
PROVIDED = {
    "read_annotations": "dissensus.importers.read:read_annotations",
    "export_formats": "dissensus.importers:FORMATS",
    "recognise_export": "dissensus.importers:recognise",
    "embed": "dissensus.text.embedding:embed",
    "load_labels": "dissensus.workflow.run_labels:load_labels",
}


def __getattr__(name: str) -> "Any":
    import importlib

    from dissensus.models import MODELS

    models = (location.removeprefix("dissensus.").split(":") for location in MODELS.values())
    public_names = _PUBLIC_NAMES | {class_name: module for module, class_name in models}
    value: Any
    if name == "__all__":
        value = ["__version__", *public_names, *_SUBMODULES]
    elif name in public_names:
        value = getattr(importlib.import_module(f"dissensus.{public_names[name]}"), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"dissensus.{_SUBMODULES[name]}")
    else:
        raise AttributeError(f"module 'dissensus' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__getattr__("__all__"))
