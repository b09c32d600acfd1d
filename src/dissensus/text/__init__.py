"""Items as texts: embeddings, learners, guided learning and LDL-NM.

Names are loaded when first used, so that importing the package stays quick.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "embed": "text.embedding",
    "embed_items": "labels.features",
    "with_features": "labels.features",
    "read_features": "labels.features",
    "SoftmaxRegression": "text.learners.softmax",
    "FineTunedEncoder": "text.learners.finetuned",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'dissensus.text' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dissensus.{_HOMES[name]}"), name)
