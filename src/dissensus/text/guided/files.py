"""``dissensus.load``: one reader for the files of every model, learner and guided classifier.

It stands here because a guided classifier is made of the others; each class says itself what of it is kept.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dissensus.errors import DataError, ModelFileError, ParameterError
from dissensus.models import model_class
from dissensus.models.base import Model
from dissensus.tables.arrays import Arrays, Header, pack, read_whole, refusing_damage, unpack
from dissensus.text.learners import LEARNERS

TABLES = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".parquet", ".gz", ".xlsx")


def load(path: str | Path) -> Any:
    """Read a model, a learner or a GuidedClassifier that its ``save`` wrote; nothing in the file is run.

    Parameters
    ----------
    path
        The file that ``save`` wrote, or the directory of a run.
    """
    path = Path(path) / "model.safetensors" if (Path(path) / "model.safetensors").is_file() else Path(path)
    if Path(path).suffix in TABLES:
        raise ModelFileError(f"{path}: is a table, not a saved model; read_annotations reads labels")
    header, arrays = read_whole(path)
    with refusing_damage(path):
        return unpack(estimator_class(header["class"]), header, arrays)


def load_model(path: str | Path) -> Model:
    """Read a model of labels; the file of anything else is refused."""
    found = load(path)
    if not isinstance(found, Model):
        kind = type(found).__name__
        raise ModelFileError(f"{path}: holds a {kind}, and a model of labels is needed; give FMM, PGM, …")
    return found


def estimator_class(name: str) -> type[Any]:
    """The class of that name that a file can hold."""
    if name == "GuidedClassifier":
        from dissensus.text.guided.classifier import GuidedClassifier

        return GuidedClassifier
    if name not in LEARNERS:
        return model_class(name)
    learner: type[Any] = getattr(importlib.import_module(f"dissensus.text.learners.{LEARNERS[name]}"), name)
    return learner


# ---- estimators inside another one's file -----------------------------------------------------------------


def pack_parts(parts: Mapping[str, tuple[Any, bool]]) -> tuple[Header, Arrays]:
    """A header for each estimator (None stays None), and all arrays, named ``part/array``.

    A part is an estimator, and whether its fit is kept or its settings alone.
    """
    headers, arrays = Header(), Arrays()
    for name, (part, fitted) in parts.items():
        kind = type(part)
        try:
            readable = part is None or estimator_class(kind.__name__) is kind
        except ParameterError:
            readable = False
        if not readable:  # estimators of others need pickle, which runs code on loading
            raise DataError(
                f"a GuidedClassifier with {kind.__name__} cannot be saved without pickle; take a learner of "
                "this library (SoftmaxRegression, FineTunedEncoder, LDLNM)"
            )
        headers[name], own = (None, {}) if part is None else pack(part, fitted=fitted)
        arrays |= {f"{name}/{array}": values for array, values in own.items()}
    return headers, arrays


def unpack_part(name: str, headers: Header, arrays: Arrays) -> Any:
    """One of the estimators that :func:`pack_parts` took apart."""
    header = headers[name]
    if header is None:
        return None
    start = f"{name}/"
    own = {key.removeprefix(start): values for key, values in arrays.items() if key.startswith(start)}
    return unpack(estimator_class(header["class"]), header, own)
