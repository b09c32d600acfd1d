"""How much a test does: usually what proves its point, under ``make verify`` all of it."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

VERIFY = os.environ.get("DISSENSUS_VERIFY") == "1"


def usually(some: T, *, verify: T) -> T:
    """Seeds, sizes or cases: ``some`` in ``make test``, those of ``verify`` in ``make verify``."""
    return verify if VERIFY else some
