"""Fitted models as arrays and facts, for the files of tables/arrays.py.

The functions whose first argument is ``self`` are methods of :class:`~dissensus.models.base.Model`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dissensus.tables.arrays import Arrays, Header, pack_ids, unpack_ids

if TYPE_CHECKING:
    from dissensus.models.base import Model

VOCABULARIES = ("item", "annotator", "class")


def state(self: Model) -> tuple[Header, Arrays]:
    """What a file keeps: the fitted arrays and the ids, and how the fit ended."""
    arrays = {name: getattr(self, name) for name in (*self._common_arrays, *self._arrays)}
    for what in VOCABULARIES:
        arrays |= pack_ids(what, getattr(self, f"{what}_vocabulary_"))
    facts = {"stopped": self.stopped_, "frame_kind": self.frame_kind_, "label_type": self.label_type_}
    return facts | {"columns": self.columns_}, arrays


def restore(self: Model, facts: Header, arrays: Arrays) -> None:
    """Take back what a file kept; the distributions must be of these items and classes."""
    for what in VOCABULARIES:
        setattr(self, f"{what}_vocabulary_", unpack_ids(what, arrays))
    for name in (*self._common_arrays, *self._arrays):
        setattr(self, name, arrays[name])
    self.stopped_, self.frame_kind_ = facts["stopped"], facts["frame_kind"]
    self.label_type_, self.columns_ = facts["label_type"], dict(facts["columns"])
    if "label_distributions_" in self._common_arrays:
        M, P = len(self.item_vocabulary_), len(self.class_vocabulary_)
        table = self.label_distributions_
        if table.shape != (M, P) or self.n_labels_.shape != (M,) or not np.isfinite(table).all():
            raise ValueError(f"label_distributions_ of shape {table.shape} for {M} items and {P} classes")
        if np.ndim(self.prior_worth_):
            raise ValueError("prior_worth_ is not one number")
