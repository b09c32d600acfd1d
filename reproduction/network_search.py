"""How the paper chose LDL-NM's sizes: a criterion for :func:`dissensus.select`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dissensus.errors import require
from dissensus.evaluate.tasks import key_of
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import features_of
from dissensus.metrics import kl
from dissensus.models.scoring import in_classes
from dissensus.numerics import row_shares
from dissensus.params import with_settings
from dissensus.text.ldlnm.model import LDLNM

SIZES = ("item_size", "annotator_size", "latent_size")
NETWORKS_TOGETHER = 18  # more gain little, and outgrow the processor's cache


@dataclass(frozen=True)
class DevDistributions:
    """−KL(empirical ‖ predicted) of dev items, predicted from their features alone.

    A criterion for :func:`dissensus.select`: the network is fitted on the annotations given, its epoch and
    the cell are chosen on ``dev``, as the paper chose its sizes. Cells that differ in sizes alone are trained
    in one program, some at a time. All labels are used; the seed of a trial is of the batches
    and of dropout, which cells of one seed share, and the estimator's own seed of its initial weights.
    """

    dev: Annotations

    def __call__(self, estimator: Any, annotations: Annotations, seed: int) -> float:
        """Fit on the annotations and score the dev items."""
        return self.scores([estimator], annotations, seed)[0]

    def groups(self, estimators: Sequence[Any]) -> list[list[int]]:
        """Estimators that are trained in one program: alike in all but sizes and seed, and near in sizes."""
        alike: dict[str, list[int]] = defaultdict(list)
        for place, model in enumerate(estimators):
            # An ensemble's networks have dropout of their own: it is trained by itself.
            own = place if model.n_networks > 1 else None
            alike[key_of([own, {**model.get_params(), **dict.fromkeys((*SIZES, "seed"))}])].append(place)

        def tile(place: int) -> tuple[int, ...]:
            """Three item sizes by six annotator sizes to a group, so that little is padded."""
            model = estimators[place]
            return model.latent_size, model.item_size // 3, model.annotator_size, model.item_size

        return [
            sorted(places, key=tile)[start : start + NETWORKS_TOGETHER]
            for places in alike.values()
            for start in range(0, len(places), NETWORKS_TOGETHER)
        ]

    def scores(self, estimators: Sequence[Any], annotations: Annotations, seed: int) -> list[float]:
        """The score of each estimator of a group."""
        require("torch", "text")
        from dissensus.text.ldlnm.network import fit_networks

        models: list[LDLNM] = [with_settings(model, {}) for model in estimators]
        if models[0].n_networks > 1:
            models = [model.fit(annotations, dev=self.dev) for model in models]
        else:
            for model in models:
                model._remember(model._checked(annotations, {}))
            x = features_of(annotations, models[0].embedding)
            fit_networks(models, annotations, x, None, self.dev, seed)
        return [-divergence(model, self.dev) for model in models]


def divergence(model: Any, part: Annotations) -> float:
    """KL(empirical ‖ predicted), 1e-5 on both sides, over the labelled items of a part."""
    known = in_classes(part, model.class_vocabulary_)
    some = known[known.counts.sum(axis=1) > 0]
    gold = row_shares(some.counts)
    return kl(gold, model.label_distributions(features_of(some)))
