"""The columns of refined labels (``labels.csv``, ``to_frame``), one row per item.

``item``, ``label``, ``p_<class>`` for every class, ``entropy`` (nats), ``n_labels``; where a model knows how
sure it is, before the entropy also ``low_<class>`` and ``high_<class>``, a credible interval of the class's
share, ``sure``, the probability that the label is the population's most common answer, and ``worth``: so many
labels drawn from the whole population would tell as much about the item. Scales have at the end ``mean`` (of
the classes' numbers, or of their places from 1), ``lower_quartile``, ``median`` and ``upper_quartile``, the
classes with so much of the population at or below them. Numeric ratings have ``item``,
``estimate``, ``low``, ``high`` and ``n_labels``. Whoever writes or reads such a table takes the names from
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dissensus.metrics import entropy_rows
from dissensus.numerics import Array

LABELS_FILE = "labels.csv"  # in the directory of a run
ITEM, LABEL, ENTROPY, N_LABELS = "item", "label", "entropy", "n_labels"
PROBABILITY = "p_"  # and the name of the class


def label_columns(
    items: Any, labels: Any, classes: Iterable[Any], chances: Array, n_labels: Any, known: Any = None
) -> dict[str, Any]:
    """The columns by name, in their order; ``chances`` (items, classes).

    ``known`` has the arrays ``low`` and ``high`` (items, classes), the ends of the shares' intervals, and
    ``sure`` and ``worth`` (items,).
    """
    columns = {ITEM: items, LABEL: labels}
    columns |= {f"{PROBABILITY}{name}": chances[:, p] for p, name in enumerate(classes)}
    if known is not None:
        columns |= {f"low_{name}": known.low[:, p] for p, name in enumerate(classes)}
        columns |= {f"high_{name}": known.high[:, p] for p, name in enumerate(classes)}
        columns |= {"sure": known.sure, "worth": known.worth}
    return columns | {ENTROPY: entropy_rows(chances), N_LABELS: n_labels}


def scale_columns(classes: Any, values: Array, chances: Array) -> dict[str, Any]:
    """What an ordered scale has more: mean (of the classes' numbers, or places), median, quartiles."""
    up_to = np.cumsum(chances, axis=1)

    def quantile(share: float) -> Any:
        # the first class up to which at least this share lies
        return classes[np.minimum((up_to < share - 1e-12).sum(axis=1), len(classes) - 1)]

    ends = {"lower_quartile": quantile(0.25), "median": quantile(0.5), "upper_quartile": quantile(0.75)}
    return {"mean": chances @ values, **ends}


def rating_columns(items: Any, estimates: Array, reach: Array, n_labels: Any) -> dict[str, Any]:
    """The columns of numeric ratings: what the population would rate each item, and an interval of that."""
    ends = {"low": estimates - reach, "high": estimates + reach}
    return {ITEM: items, "estimate": estimates, **ends, N_LABELS: n_labels}


def probability_columns(columns: Sequence[str]) -> dict[str, str]:
    """The columns that hold probabilities, by the class of each."""
    found = [name for name in columns if name.startswith(PROBABILITY) and name != PROBABILITY]
    return {name.removeprefix(PROBABILITY): name for name in found}
