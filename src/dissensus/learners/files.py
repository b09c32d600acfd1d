"""Saved learners: arrays in a safetensors file, settings and facts as JSON in its header."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from dissensus._version import __version__
from dissensus.errors import DissensusError, MissingExtraError, ModelFileError
from dissensus.io.atomic import atomic_path
from dissensus.learners import learner_class
from dissensus.learners.base import Learner

HEADER_KEY = "dissensus-learner"
FORMAT_VERSION = 1


def save_learner(learner: Learner, path: Path) -> None:
    """Write a fitted learner, whole or not at all."""
    from safetensors.numpy import save

    arrays, facts = learner._state()
    header = {
        "format": FORMAT_VERSION,
        "version": __version__,
        "learner": type(learner).__name__,
        "settings": learner.get_params(deep=False),
        "facts": facts,
    }
    content = save(
        {name: np.ascontiguousarray(values) for name, values in arrays.items()},
        metadata={HEADER_KEY: json.dumps(header, default=_plain)},
    )
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def load_learner(path: str | Path) -> Learner:
    """Read a learner that :meth:`Learner.save` wrote."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise ModelFileError(f"{path}: there is no such file; give the path of a saved learner")
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get(HEADER_KEY, "null"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelFileError(f"{path}: not a whole safetensors file ({error}); save it anew") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT_VERSION:
        raise ModelFileError(f"{path}: not a learner of this version of dissensus; fit again and save anew")
    try:
        learner = learner_class(header["learner"])(**header["settings"])
        learner.check_params()
        learner._restore(arrays, header["facts"])
    except MissingExtraError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError, DissensusError) as error:
        reason = " ".join(str(error).split())  # torch says on several lines which shapes differ
        raise ModelFileError(f"{path}: the file is damaged or incomplete ({reason}); save it anew") from None
    return learner


def _plain(value: Any) -> Any:
    """A NumPy number as a plain one, a path as text; nobody is told of progress after a load."""
    if callable(value):
        return None
    return value.item() if isinstance(value, np.generic) else str(value)
