"""The columns of refined labels (``labels.csv``, ``to_frame``), one row an item.

``item``, ``label``, ``p_<class>`` for every class, ``entropy`` (nats), ``n_labels``. Whoever writes or reads
such a table takes the names from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dissensus.metrics import entropy_rows
from dissensus.numerics import Array

ITEM, LABEL, ENTROPY, N_LABELS = "item", "label", "entropy", "n_labels"
PROBABILITY = "p_"  # and the name of the class


def label_columns(
    items: Any, labels: Any, classes: Iterable[Any], chances: Array, n_labels: Any
) -> dict[str, Any]:
    """The columns by name, in their order; ``chances`` (items, classes)."""
    columns = {ITEM: items, LABEL: labels}
    columns |= {f"{PROBABILITY}{name}": chances[:, p] for p, name in enumerate(classes)}
    return columns | {ENTROPY: entropy_rows(chances), N_LABELS: n_labels}


def probability_columns(columns: Sequence[str]) -> dict[str, str]:
    """The columns that hold probabilities, by the class of each."""
    found = [name for name in columns if name.startswith(PROBABILITY) and name != PROBABILITY]
    return {name.removeprefix(PROBABILITY): name for name in found}
