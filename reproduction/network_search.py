"""The paper's criterion for LDL-NM's layer sizes, for :func:`dissensus.select`."""

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
from dissensus.models.scoring import recode_classes
from dissensus.numerics import row_shares
from dissensus.params import with_settings
from dissensus.text.ldlnm.model import LDLNM

SIZES = ("item_size", "annotator_size", "latent_size")
NETWORKS_TOGETHER = 18  # networks trained together; more gain little and exceed the processor's cache


@dataclass(frozen=True)
class DevDistributions:
    """−KL(empirical ‖ predicted) of dev items, predicted from their features alone.

    A criterion for :func:`dissensus.select`: the network is fitted to the annotations, and its epoch and the
    cell are chosen on ``dev``, as in the paper. Cells that differ only in sizes are trained together, some at
    a time. All labels are used. The seed of a trial decides batches and dropout, which cells of one seed
    share; the estimator's seed decides its initial weights.
    """

    dev: Annotations

    def __call__(self, estimator: Any, annotations: Annotations, seed: int) -> float:
        """Fit on the annotations and score the dev items."""
        return self.scores([estimator], annotations, seed)[0]

    def groups(self, estimators: Sequence[Any]) -> list[list[int]]:
        """Group the estimators that are trained together: they differ only in sizes and seed."""
        alike: dict[str, list[int]] = defaultdict(list)
        for index, model in enumerate(estimators):
            # The networks of an ensemble differ in dropout, so an ensemble is trained alone.
            alone = index if model.n_networks > 1 else None
            alike[key_of([alone, {**model.get_params(), **dict.fromkeys((*SIZES, "seed"))}])].append(index)

        def tile(index: int) -> tuple[int, ...]:
            """Return a sort key that groups three item sizes by six annotator sizes, with little padding."""
            model = estimators[index]
            return model.latent_size, model.item_size // 3, model.annotator_size, model.item_size

        return [
            sorted(indices, key=tile)[start : start + NETWORKS_TOGETHER]
            for indices in alike.values()
            for start in range(0, len(indices), NETWORKS_TOGETHER)
        ]

    def scores(self, estimators: Sequence[Any], annotations: Annotations, seed: int) -> list[float]:
        """Return the score of each estimator of a group."""
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
    """Return KL(empirical ‖ predicted), 1e-5 on both sides, over the labelled items of a part."""
    recoded = recode_classes(part, model.class_vocabulary_)
    labelled = recoded[recoded.counts.sum(axis=1) > 0]
    gold = row_shares(labelled.counts)
    return kl(gold, model.label_distributions(features_of(labelled)))
