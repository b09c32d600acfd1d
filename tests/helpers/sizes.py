"""Sizes of tests: small in ``make test``, full in ``make verify``."""

import os
from typing import TypeVar

T = TypeVar("T")

VERIFY = os.environ.get("DISSENSUS_VERIFY") == "1"


def usually(value: T, *, verify: T) -> T:
    """Return ``value``, or under ``make verify`` the value ``verify``."""
    return verify if VERIFY else value
