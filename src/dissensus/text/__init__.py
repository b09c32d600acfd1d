"""Items as texts: embeddings, learners, guided learning and LDL-NM; names are imported when first used."""

from __future__ import annotations

import importlib
from typing import Any

_MODULE_OF = {
    "embed": "text.embedding",
    "embed_items": "labels.features",
    "with_features": "labels.features",
    "read_features": "labels.features",
    "SoftmaxRegression": "text.learners.softmax",
    "FineTunedEncoder": "text.learners.finetuned",
}

__all__ = [*_MODULE_OF]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'dissensus.text' has no attribute {name!r}")
    return getattr(importlib.import_module(f"dissensus.{_MODULE_OF[name]}"), name)
