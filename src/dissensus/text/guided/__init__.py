"""Guided classifiers, and ``dissensus.load``: one reader for every saved model, learner and classifier."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dissensus.errors import DataError, ModelFileError, ParameterError
from dissensus.models import model_class
from dissensus.models.base import Model
from dissensus.tables.arrays import Arrays, Header, explaining_damage, pack, read_with_draws, unpack
from dissensus.text.learners import LEARNER_MODULES

TABLE_SUFFIXES = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".parquet", ".gz", ".xlsx")


def load(path: str | Path) -> Any:
    """Load a saved model, learner or GuidedClassifier; no code in the file is run.

    Parameters
    ----------
    path
        A file written by ``save``, or the directory of a run.
    """
    path = Path(path) / "model.safetensors" if (Path(path) / "model.safetensors").is_file() else Path(path)
    if path.suffix in TABLE_SUFFIXES:
        raise ModelFileError(f"{path}: this is a table, not a saved model; read labels with read_annotations")
    header, arrays = read_with_draws(path)
    with explaining_damage(path):
        return unpack(estimator_class(header["class"]), header, arrays)


def load_model(path: str | Path) -> Model:
    """Load a saved model of labels; raise an error for any other estimator."""
    model = load(path)
    if not isinstance(model, Model):
        kind = type(model).__name__
        raise ModelFileError(f"{path}: this is a {kind}; pass a saved model of labels (FMM, PGM, …)")
    return model


def estimator_class(name: str) -> type[Any]:
    """Return the class of a saved estimator."""
    if name == "GuidedClassifier":
        from dissensus.text.guided.classifier import GuidedClassifier

        return GuidedClassifier
    if name not in LEARNER_MODULES:
        return model_class(name)
    module = importlib.import_module(f"dissensus.text.learners.{LEARNER_MODULES[name]}")
    learner: type[Any] = getattr(module, name)
    return learner


def pack_parts(parts: Mapping[str, tuple[Any, bool]]) -> tuple[Header, Arrays]:
    """Pack the estimators inside a GuidedClassifier: a header for each, and arrays named ``part/array``.

    A part is an estimator or None, and whether its fit is saved or only its settings.
    """
    headers, arrays = Header(), Arrays()
    for name, (part, fitted) in parts.items():
        kind = type(part)
        try:
            loadable = part is None or estimator_class(kind.__name__) is kind
        except ParameterError:
            loadable = False
        if not loadable:  # other estimators need pickle, which runs code on loading
            problem = f"a GuidedClassifier with {kind.__name__} cannot be saved without pickle"
            remedy = "use a learner of this library (SoftmaxRegression, FineTunedEncoder, LDLNM)"
            raise DataError(f"{problem}; {remedy}")
        headers[name], part_arrays = (None, {}) if part is None else pack(part, fitted=fitted)
        arrays |= {f"{name}/{array}": values for array, values in part_arrays.items()}
    return headers, arrays


def unpack_part(name: str, headers: Header, arrays: Arrays) -> Any:
    """Restore an estimator packed by :func:`pack_parts`."""
    header, prefix = headers[name], f"{name}/"
    if header is None:
        return None
    part = {key.removeprefix(prefix): values for key, values in arrays.items() if key.startswith(prefix)}
    return unpack(estimator_class(header["class"]), header, part)
