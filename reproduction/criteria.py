"""Criteria by which K and L of a guide are chosen on dev, for :func:`dissensus.select`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dissensus.evaluate.search import split_halves
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import features_of
from dissensus.metrics import kl, log_probability_rows
from dissensus.numerics import row_shares
from reproduction.columns import CNN, ITEM, PAIR, SOFT, learner_of
from reproduction.measures import paper_workflow, soft_workflow


def inputs_of(part: Annotations, criterion: str) -> Any:
    """Return what a workflow learns from: texts as in the paper, embeddings otherwise."""
    return [str(text) for text in part.item_column("text")] if criterion == CNN else features_of(part)


@dataclass(frozen=True)
class DevPredictions:
    """−KL(empirical ‖ predicted) of dev items, predicted from text by a guided workflow.

    This is the measure of a column of Table 3.
    """

    dev: Annotations
    workflow: str  # SOFT or CNN
    learner: Mapping[str, Any] = field(default_factory=dict)  # settings of the CNN

    def __call__(self, estimator: Any, annotations: Annotations, seed: int) -> float:
        """Fit the guide and the learner, and score the dev items."""
        model = soft_workflow(estimator, seed)
        if self.workflow == CNN:
            model = paper_workflow(estimator, learner_of("pd", self.learner, seed))
        x = inputs_of(self.dev, self.workflow)
        model.fit(inputs_of(annotations, self.workflow), annotations, dev=(x, self.dev))
        return -kl(row_shares(self.dev.counts), model.label_distributions(x))


@dataclass(frozen=True)
class DevItemLabels:
    """Mean log P(label | item) of half the labels of dev items, given the other half.

    The criterion ``"dev"`` of :func:`dissensus.select` scores log P(label | item, annotator) of these labels.
    """

    dev: Annotations

    def __call__(self, estimator: Any, annotations: Annotations, seed: int) -> float:
        """Fit to the training items, apply to half of each dev item, and score the other half."""
        applied, hidden = split_halves(self.dev, seed)
        model = estimator.fit(annotations).apply(applied)
        predicted = model.predict_proba(hidden.items[hidden.item])
        return float(np.mean(log_probability_rows(predicted, hidden.label)))


def criterion_of(name: str, dev: Annotations, learner: Mapping[str, Any]) -> Any:
    """Return the criterion of a search for K and L, as :func:`dissensus.select` takes it."""
    return {
        PAIR: "dev",
        ITEM: DevItemLabels(dev),
        SOFT: DevPredictions(dev, SOFT),
        CNN: DevPredictions(dev, CNN, learner),
    }[name]
