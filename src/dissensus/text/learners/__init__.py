"""Learners: from an item's features or text to its label distribution, all with one signature.

``fit(X, distributions, dev=None)`` learns from one distribution an item, ``dev=(X, distributions)`` being
the part that strengths and epochs are chosen on; ``label_distributions(X)`` predicts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dissensus.text.learners.base import Learner

# class -> module
LEARNERS = {"SoftmaxRegression": "softmax", "TextCNN": "textcnn", "FineTunedEncoder": "finetuned"}


def learner_class(name: str) -> type[Learner]:
    """A learner's class by its name."""
    found: type[Learner] = getattr(importlib.import_module(f"dissensus.text.learners.{LEARNERS[name]}"), name)
    return found
