"""What is claimed about items: one label each, or a distribution over the classes, from a file or a model.

A file of estimates has an item column and a column ``p_<class>`` for every class (a run's ``labels.csv``, a
simulation's ``population.csv``), a label column (a gold file), or both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.data.annotations import Annotations
from dissensus.data.vocabulary import Vocabulary
from dissensus.errors import DataError
from dissensus.io.columns import find_column, shown
from dissensus.io.tables import Table, open_table
from dissensus.metrics import check_distributions
from dissensus.models.base import Model
from dissensus.numerics import Array, row_shares

PREFIX = "p_"  # of a column that holds a class's probability


@dataclass(frozen=True)
class Estimates:
    """Items and what is claimed about each; ids and classes as text."""

    name: str
    items: Vocabulary
    classes: list[str]
    chances: Array | None  # (items, classes): distributions, where they are claimed
    labels: list[str] | None  # (items,): single labels, where they are claimed

    def distributions(self, places: NDArray[np.int32], classes: Sequence[str]) -> Array:
        """(places, classes): the distributions at these places, over these classes."""
        if self.chances is None:
            return self.one_hot(places, classes)
        wide = np.zeros((len(places), len(classes)))
        wide[:, [classes.index(name) for name in self.classes]] = self.chances[places]
        return wide

    def one_hot(self, places: NDArray[np.int32], classes: Sequence[str]) -> Array:
        """(places, classes): all weight on the single label (or where there is none, the distribution)."""
        if self.labels is None:
            return self.distributions(places, classes)
        column = {name: place for place, name in enumerate(classes)}
        hot = np.zeros((len(places), len(classes)))
        hot[np.arange(len(places)), [column[self.labels[place]] for place in places]] = 1.0
        return hot


def class_columns(columns: Sequence[str]) -> list[str]:
    """The columns that hold probabilities."""
    return [name for name in columns if name.startswith(PREFIX) and name != PREFIX]


def read_estimates(path: Path, *, item: str | None = None, label: str | None = None) -> Estimates:
    """Estimates from a table: distributions, labels or both."""
    table = open_table(path)
    columns, name = table.columns, str(path)
    items = find_column(columns, "item", item, name)
    probabilities = class_columns(columns)
    labels = _label_column(columns, label, name, items, needed=not probabilities)
    texts = [column.cast(pa.string()) for column in table.ids([items, *([labels] if labels else [])])]
    vocabulary = Vocabulary(texts[0], "item")
    _refuse_repeats(vocabulary, name)
    given = texts[1].to_pylist() if labels else None
    chances = _probabilities(table, probabilities, name) if probabilities else None
    classes = [column.removeprefix(PREFIX) for column in probabilities]
    classes += [] if given is None else sorted(set(given) - set(classes))
    return Estimates(name, vocabulary, classes, _widened(chances, len(classes)), given)


def _label_column(
    columns: Sequence[str], label: str | None, name: str, items: str, *, needed: bool
) -> str | None:
    if label is None and not needed:
        return "label" if "label" in columns else None
    return find_column(columns, "gold", label, name, taken=[items])


def _refuse_repeats(items: Vocabulary, name: str) -> None:
    counts = items.arrow.value_counts()
    repeated = np.flatnonzero(counts.field("counts").to_numpy() > 1)
    if len(repeated):
        item, rows = counts[int(repeated[0])].as_py().values()
        raise DataError(f"{name}: item {item!r} has {rows} rows; keep one row an item")


def _probabilities(table: Table, columns: Sequence[str], name: str) -> Array:
    """(items, classes): the numbers of the probability columns, each row a distribution."""
    whole = table.everything()
    try:
        numbers = [whole.column(column).cast(pa.float64()).to_numpy() for column in columns]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(f"{name}: the columns {shown(columns)} must hold numbers in every row") from None
    return check_distributions(np.column_stack(numbers), name)


def _widened(chances: Array | None, n_classes: int) -> Array | None:
    """The same with a column of zeros for every class that only labels name."""
    if chances is None or chances.shape[1] == n_classes:
        return chances
    return np.pad(chances, ((0, 0), (0, n_classes - chances.shape[1])))


def of_model(model: Model, name: str) -> Estimates:
    """What a fitted model claims about its items."""
    labels = [str(label) for label in model.predict()]
    return Estimates(
        name, _texts(model.items_), list(map(str, model.classes_)), model.label_distributions_, labels
    )


def of_labels(annotations: Annotations, name: str) -> Estimates:
    """The empirical distribution of every item that has labels."""
    counts = annotations.counts
    labelled = np.flatnonzero(counts.sum(axis=1))
    chances = row_shares(counts[labelled])
    items = _texts(annotations.items[labelled])
    return Estimates(name, items, list(map(str, annotations.classes)), chances, None)


def _texts(ids: NDArray[Any]) -> Vocabulary:
    return Vocabulary([str(one) for one in ids], "item")
