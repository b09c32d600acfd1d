"""One file a model, all behind one small interface.

``MODELS`` names every model once: the command line, saved files and the contract tests all read it here.
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING

from dissensus.errors import ParameterError

if TYPE_CHECKING:
    from dissensus.models.base import Model

# name on the command line -> (module, class)
MODELS = {
    "majority": ("majority", "MajorityVote"),
    "empirical": ("empirical", "EmpiricalDistribution"),
    "fmm": ("fmm", "FMM"),
    "dawid-skene": ("dawid_skene", "DawidSkene"),
    "one-coin": ("dawid_skene", "OneCoin"),
    "cbcc": ("cbcc", "CBCC"),
    "pgm": ("pgm.model", "PGM"),
}

# Models that also need features of the items (or their text); the module with its package.
FEATURE_MODELS = {
    "dirichlet-regression": ("models.dirichlet_regression", "DirichletRegression"),
    "ldlnm": ("models.ldlnm.model", "LDLNM"),
}


def model_class(name: str) -> type[Model]:
    """The class of a model, by its name on the command line or its class name."""
    homes = {short: (f"models.{module}", title) for short, (module, title) in MODELS.items()} | FEATURE_MODELS
    for short, (module, title) in homes.items():
        if name in (short, title):
            found: type[Model] = getattr(importlib.import_module(f"dissensus.{module}"), title)
            return found
    known = (*MODELS, *FEATURE_MODELS)
    near = difflib.get_close_matches(name.lower(), known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise ParameterError(f"there is no model {name!r}; {hint}known: {', '.join(known)}")
