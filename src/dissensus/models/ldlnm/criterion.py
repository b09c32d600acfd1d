"""What a search over network sizes is judged by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dissensus.data.annotations import Annotations
from dissensus.features.features import features_of
from dissensus.metrics import kl
from dissensus.models.base import in_classes
from dissensus.numerics import row_shares


@dataclass(frozen=True)
class DevDistributions:
    """−KL(empirical ‖ predicted) of dev items, predicted from their features alone.

    A criterion for :func:`dissensus.select`: the network is fitted on the annotations given, its epoch and
    the cell are chosen on ``dev``, as the paper chose its sizes.
    """

    dev: Annotations

    def __call__(self, estimator: Any, annotations: Annotations, seed: int) -> float:
        """Fit on the annotations and score the dev items; all labels are used, so the seed splits nothing."""
        del seed
        return -divergence(estimator.fit(annotations, dev=self.dev), self.dev)


def divergence(model: Any, part: Annotations) -> float:
    """KL(empirical ‖ predicted), 1e-5 on both sides, over the labelled items of a part."""
    known = in_classes(part, model.class_vocabulary_)
    some = known[known.counts.sum(axis=1) > 0]
    gold = row_shares(some.counts)
    return kl(gold, model.label_distributions(features_of(some)))
