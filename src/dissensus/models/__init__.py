"""Models of labels: one file per model, all with the interface of :class:`~dissensus.models.base.Model`.

``MODELS`` is the only list of models; the command line, saved files and the contract tests read it.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from dissensus.errors import ParameterError, did_you_mean

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations
    from dissensus.models.base import Model

# Name on the command line -> module:class; the class is also ``dissensus.<class>``. Ordered from simple to
# complex by the parameters learned.
MODELS = {
    # no parameters, or one
    "majority": "dissensus.models.counting:MajorityVote",
    "empirical": "dissensus.models.counting:EmpiricalDistribution",
    # clusters of items, or weights of features
    "fmm": "dissensus.models.fmm:FMM",
    "dirichlet-regression": "dissensus.models.dirichlet_regression:DirichletRegression",
    # a confusion matrix per annotator, then matrices that share parameters
    "dawid-skene": "dissensus.models.dawid_skene:DawidSkene",
    "ibcc": "dissensus.models.ibcc:IBCC",
    "log-linear": "dissensus.models.log_linear:LogLinear",
    "cbcc": "dissensus.models.cbcc:CBCC",
    "ebcc": "dissensus.models.ebcc:EBCC",
    # clusters of items and annotators, and networks
    "pgm": "dissensus.models.pgm.model:PGM",
    "ldlnm": "dissensus.text.ldlnm.model:LDLNM",
    # for one type of labels
    "ratings": "dissensus.models.ratings:NumericRatings",
    "sets": "dissensus.models.sets:LabelSets",
    "bradley-terry": "dissensus.models.bradley_terry:BradleyTerry",
    "graded": "dissensus.models.graded:GradedResponse",
    # sampled, then ensembles
    "hpgm": "dissensus.models.hpgm.model:HPGM",
    "latent": "dissensus.models.latent:LatentPositions",
    "pool": "dissensus.models.pool:Pool",
}

FULL_NAMES = {  # of models whose class name would not be understood
    "majority": "majority vote",
    "empirical": "smoothed counts (empirical)",
    "dawid-skene": "Dawid–Skene",
}
RUN_SETTINGS = ("seed", "n_jobs", "estimate")  # settings of a run rather than of a model
CLUSTER_SETTINGS = {"n_item_clusters": "n_items", "n_annotator_clusters": "n_annotators"}


def model_class(name: str) -> type[Model]:
    """Return the class of a model, by its name on the command line or its class name."""
    for short_name, location in MODELS.items():
        module, class_name = location.split(":")
        if name in (short_name, class_name):
            return cast("type[Model]", getattr(importlib.import_module(module), class_name))
    hint = did_you_mean(name.lower(), MODELS)
    raise ParameterError(f"there is no model {name!r}; {hint}known: {', '.join(MODELS)}")


def build_model(
    name: str,
    settings: Mapping[str, Any],
    *,
    seed: int | None = None,
    n_jobs: int | None = None,
    estimate: str = "population",
) -> Model:
    """Build a model by name and check its settings; it may lack ``seed``, ``n_jobs`` and ``estimate``."""
    model_type = model_class(name)
    check_setting_names(name, settings, model_type._settings)
    run_settings = dict(zip(RUN_SETTINGS, (seed, n_jobs, estimate), strict=True))
    accepted = {k: v for k, v in run_settings.items() if v is not None and k in model_type._settings}
    model = model_type(**(accepted | dict(settings)))
    model.check_params()
    return model


def name_of(model: Model) -> str:
    """Return the model's name on the command line."""
    title = type(model).__name__
    return next((name for name, location in MODELS.items() if location.endswith(f":{title}")), title)


def title_of(model: Model) -> str:
    """Return a short title: the model's name, its numbers of clusters, and settings other than the default.

    >>> from dissensus.models.fmm import FMM
    >>> title_of(FMM(n_item_clusters=16, assignment="hard"))
    'fmm 16 assignment=hard'
    """
    settings = model.get_params(deep=False)
    sizes = [str(settings[name]) for name in CLUSTER_SETTINGS if name in settings]
    names = [name for name in settings if name not in {*CLUSTER_SETTINGS, *RUN_SETTINGS}]
    others = [f"{name}={settings[name]}" for name in names if settings[name] != model._settings[name].default]
    return " ".join([name_of(model), *(["×".join(sizes)] if sizes else []), *others])


def display_name(model: Model) -> str:
    """Return the model's name in full, with its numbers of clusters in words, as on the report page.

    >>> from dissensus.models.pgm.model import PGM
    >>> display_name(PGM(6, 3))
    'PGM (6 item and 3 annotator clusters)'
    """
    name, _, details = title_of(model).partition(" ")
    settings = model.get_params(deep=False)
    sizes = [f"{settings[key]} {key.split('_')[1]}" for key in CLUSTER_SETTINGS if key in settings]
    if sizes:
        clusters = f"{'up to ' * model._sizes_are_bounds}{' and '.join(sizes)} clusters"
        details = ", ".join([clusters, *details.split(" ", maxsplit=1)[1:]])
    name = FULL_NAMES.get(name, type(model).__name__)
    return f"{name} ({details})" if details else name


def check_setting_names(model: str, settings: Iterable[str], allowed: Collection[str]) -> None:
    """Raise an error that suggests the nearest setting if one of ``settings`` is not ``allowed``."""
    for setting in settings:
        if setting not in allowed:
            hint, names = did_you_mean(setting, allowed), ", ".join(allowed) or "none"
            raise ParameterError(f"the model {model} has no setting {setting!r}; {hint}it has: {names}")


def sizes_fit_labels(settings: Mapping[str, Any], annotations: Annotations) -> bool:
    """Return True unless a model with these settings has more clusters than the labels support."""
    sizes = [settings.get(setting) for setting in CLUSTER_SETTINGS]
    K, L = (n if isinstance(n, int) and not isinstance(n, bool) else 1 for n in sizes)
    max_K, max_L = (max(getattr(annotations, size), 1) for size in CLUSTER_SETTINGS.values())
    if max_K < K or max_L < L:
        return False
    # K L (P − 1) ≤ number of labels; a single cluster is always possible
    return K * L == 1 or K * L * (annotations.n_classes - 1) <= annotations.n_labels
