"""The guided workflow, as in the paper and soft, and criteria by which its K and L are chosen on dev."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dissensus.evaluate.search import split_halves
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import features_of
from dissensus.metrics import kl, log_probability_rows
from dissensus.models.base import Model
from dissensus.numerics import row_shares
from dissensus.text.guided.classifier import GuidedClassifier
from reproduction.columns import CNN, ITEM, PAIR, SOFT, learner_of


def equal_annotators(guide: Model) -> Model:
    """Weight annotators equally, as in Eq. infer; FMM has no annotators."""
    has_annotators = "weight_by" in guide.get_params(deep=False)
    return guide.set_params(weight_by="annotators") if has_annotators else guide


def paper_workflow(guide: Model, learner: Any) -> GuidedClassifier:
    """Return the paper's workflow: annotator sum outside, S = 1, hard refinement and projection."""
    settings: dict[str, Any] = {"refine": "hard", "project": "hard", "annotator_sum": "outside"}
    return GuidedClassifier(equal_annotators(guide), learner, **settings, prior_strength=1.0)


def soft_workflow(guide: Model, seed: int, refine: str = "soft") -> GuidedClassifier:
    """Return the workflow around softmax regression on embeddings, with soft projection."""
    return GuidedClassifier(guide, learner_of("softmax", {}, seed), refine=refine, project="soft")


def inputs_of(part: Annotations, criterion: str) -> Any:
    """Return what a workflow learns from: texts as in the paper, embeddings otherwise."""
    return [str(text) for text in part.item_column("text")] if criterion == CNN else features_of(part)


@dataclass(frozen=True)
class DevPredictions:
    """−KL(empirical ‖ predicted) of dev items, predicted from text by a guided workflow.

    A criterion for :func:`dissensus.select`: the measure of a column of Table 3, on dev.
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

    A criterion for :func:`dissensus.select`, whose ``"dev"`` scores log P(label | item, annotator) of the
    same labels.
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
