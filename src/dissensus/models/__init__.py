"""One file per model, all behind one small interface.

``MODELS`` names every model once: the command line, saved files and the contract tests all read it here.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dissensus.errors import ParameterError, did_you_mean

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations
    from dissensus.models.base import Model

# Name on the command line -> module:class; the class is also ``dissensus.<class>``. From the simplest to the
# least simple, by what is learned beside an item's own labels: of models that foresee hidden labels equally
# well, the first is taken. Which labels a model is for and whether it needs features of the items, its class
# says (``_label_types``, ``uses_features``).
MODELS = {
    # nothing, or one number in all
    "majority": "dissensus.models.counting:MajorityVote",
    "empirical": "dissensus.models.counting:EmpiricalDistribution",
    # a number or a few for every annotator
    "one-coin": "dissensus.models.dawid_skene:OneCoin",
    "mace": "dissensus.models.mace:MACE",
    # clusters of items, or weights of features
    "fmm": "dissensus.models.fmm:FMM",
    "dirichlet-regression": "dissensus.models.dirichlet_regression:DirichletRegression",
    # a matrix for every annotator, then one that leans on others'
    "dawid-skene": "dissensus.models.dawid_skene:DawidSkene",
    "ibcc": "dissensus.models.ibcc:IBCC",
    "log-linear": "dissensus.models.log_linear:LogLinear",
    "cbcc": "dissensus.models.cbcc:CBCC",
    "ebcc": "dissensus.models.ebcc:EBCC",
    # clusters of both, and networks
    "pgm": "dissensus.models.pgm.model:PGM",
    "ldlnm": "dissensus.text.ldlnm.model:LDLNM",
    # for one kind of labels
    "ratings": "dissensus.models.ratings:NumericRatings",
    "sets": "dissensus.models.sets:LabelSets",
    "bradley-terry": "dissensus.models.bradley_terry:BradleyTerry",
    "graded": "dissensus.models.graded:GradedResponse",
    # everything sampled, then several models in one
    "hpgm": "dissensus.models.hpgm.model:HPGM",
    "ordinal": "dissensus.models.ordinal:OrdinalHPGM",
    "latent": "dissensus.models.latent:LatentPositions",
}

RUN_SETTINGS = ("seed", "n_jobs", "estimate")  # settings of a run rather than of a model
CLUSTER_SETTINGS = {"n_item_clusters": "n_items", "n_annotator_clusters": "n_annotators"}


def model_class(name: str) -> type[Model]:
    """The class of a model, by its name on the command line or its class name."""
    for short, home in MODELS.items():
        module, title = home.split(":")
        if name in (short, title):
            found: type[Model] = getattr(importlib.import_module(module), title)
            return found
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
    """A model by name, its settings checked; settings of a run go to those that have such a setting."""
    kind = model_class(name)
    known = kind._settings
    check_known(name, settings, known)
    shared = dict(zip(RUN_SETTINGS, (seed, n_jobs, estimate), strict=True))
    wanted = {key: value for key, value in shared.items() if value is not None and key in known}
    model = kind(**(wanted | dict(settings)))
    model.check_params()
    return model


def name_of(model: Model) -> str:
    """The model's name on the command line."""
    title = type(model).__name__
    return next((short for short, home in MODELS.items() if home.endswith(f":{title}")), title)


def title_of(model: Model) -> str:
    """The model in a few words: its name, its numbers of clusters, and settings that are not the default.

    >>> from dissensus.models.fmm import FMM
    >>> title_of(FMM(n_item_clusters=16, assignment="hard"))
    'fmm 16 assignment=hard'
    """
    given, usual = model.get_params(deep=False), model._settings
    sizes = [str(given[name]) for name in CLUSTER_SETTINGS if name in given]
    others = [
        f"{name}={value}"
        for name, value in given.items()
        if name not in {*CLUSTER_SETTINGS, *RUN_SETTINGS} and value != usual[name].default
    ]
    return " ".join([name_of(model), *(["×".join(sizes)] if sizes else []), *others])


def simplicity(model: Model) -> tuple[int, int, int]:
    """Smaller for a simpler model: its place in ``MODELS``, its clusters, its settings switched on.

    >>> from dissensus.models.fmm import FMM
    >>> simplicity(FMM(n_item_clusters=8)) < simplicity(FMM(n_item_clusters=16))
    True
    """
    name, given = name_of(model), model.get_params(deep=False)
    place = list(MODELS).index(name) if name in MODELS else len(MODELS)
    sizes = math.prod(given[size] for size in CLUSTER_SETTINGS if size in given)
    return place, sizes, sum(value is True for value in given.values())


def check_known(model: str, settings: Iterable[str], known: Collection[str]) -> None:
    """Refuse a setting that the model does not have, with the near one that it has."""
    for setting in settings:
        if setting not in known:
            hint = did_you_mean(setting, known)
            has = ", ".join(known) or "none"
            raise ParameterError(f"the model {model} has no setting {setting!r}; {hint}it has: {has}")


def fits(settings: Mapping[str, Any], annotations: Annotations) -> bool:
    """Whether a model with these settings is not too large for the labels; without clusters, it has one."""
    given = [settings.get(setting) for setting in CLUSTER_SETTINGS]
    K, L = (n if isinstance(n, int) and not isinstance(n, bool) else 1 for n in given)
    max_K, max_L = (max(getattr(annotations, size), 1) for size in CLUSTER_SETTINGS.values())
    if max_K < K or max_L < L:
        return False
    # K L (P − 1) ≤ labels; a single cluster is what any labels bear
    return K * L == 1 or K * L * (annotations.n_classes - 1) <= annotations.n_labels
