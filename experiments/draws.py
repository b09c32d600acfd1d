"""One draw of scarce labels, measured: who teaches the learner best, who knows the training items best.

R random (item, annotator) pairs of every training and every dev item are shown; the training items' other
pairs are hidden, and the test items keep all their labels as gold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.evaluate.recovery import additive
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import features_of
from dissensus.labels.rows import random_places, take_pairs
from dissensus.metrics import kl_rows
from dissensus.models.base import Model
from dissensus.models.counting import GRID
from dissensus.models.fmm import FMM
from dissensus.models.pgm.model import PGM
from dissensus.numerics import Array
from dissensus.text.guided.classifier import GuidedClassifier
from dissensus.text.learners.softmax import SoftmaxRegression
from experiments.common import Values
from reproduction.datasets import shares

# Guides that do not see the text: those that teach, and all sizes from which the best is taken in hindsight.
BLIND = {"FMM": FMM(12), "PGM": PGM(12, 8, inference="vb")}
SIZES: Mapping[str, tuple[Model, ...]] = {
    "FMM": (FMM(6), FMM(12), FMM(20)),
    "PGM": tuple(PGM(K, L, inference=inference) for K, L in ((6, 4), (12, 8)) for inference in ("bp", "vb")),
}
LOOSE = SoftmaxRegression(1e-5)  # a learner that is hardly regularised, and overfits


@dataclass(frozen=True, eq=False)
class Draw:
    """The labels that are shown, those that are not, and the test items."""

    train: Annotations
    hidden: Annotations
    dev: Annotations
    test: Annotations

    @classmethod
    def of(cls, parts: Mapping[str, Annotations], n_labels: int | None, draw: int) -> Draw:
        """``n_labels`` pairs of each item by the draw's own chance; None shows everything."""
        train, hidden = shown(parts["train"], n_labels, np.random.default_rng([draw, 0]))
        dev, _ = shown(parts["dev"], n_labels, np.random.default_rng([draw, 1]))
        return cls(train, hidden, dev, parts["test"])

    def taught(self, guided: GuidedClassifier) -> GuidedClassifier:
        """The workflow fitted on what is shown, its choices made on the dev labels that are shown."""
        dev = features_of(self.dev), self.dev
        return guided.fit(features_of(self.train), self.train, dev=dev)

    def learned(self, targets: Array, learner: SoftmaxRegression) -> Array:
        """What a learner taught these targets predicts for the test items."""
        dev = features_of(self.dev), shares(self.dev)
        return learner.fit(features_of(self.train), targets, dev=dev).label_distributions(self.test_features)

    @property
    def test_features(self) -> Any:
        """(test items, features)."""
        return features_of(self.test)


def shown(
    part: Annotations, n_labels: int | None, rng: np.random.Generator
) -> tuple[Annotations, Annotations]:
    """Some pairs of every item, and the others."""
    places = random_places(part, rng)
    visible = places < (places.max() + 1 if n_labels is None else n_labels)
    return take_pairs(part, visible), take_pairs(part, ~visible)


def measure(draw: Draw) -> Values:
    """KL of every test item and every training item, by who taught and who estimated, and the slopes."""
    guides = {name: draw.taught(GuidedClassifier(guide)) for name, guide in BLIND.items()}
    guides |= {"guided": draw.taught(GuidedClassifier())}
    targets = {"raw": shares(draw.train)} | {name: one.refined_ for name, one in guides.items()}
    predicted = {name: one.label_distributions(draw.test_features) for name, one in guides.items()}
    predicted["raw"] = draw.learned(targets["raw"], SoftmaxRegression())
    values: Values = {"concentration": float(guides["guided"].guide_.concentration_)}
    if draw.hidden.n_labels:
        values["slope"] = {name: slope(table, draw) for name, table in targets.items()}
        targets["pulled"] = drawn_to_mean(targets["raw"], values["slope"]["FMM"])
        predicted["pulled"] = draw.learned(targets["pulled"], SoftmaxRegression())
        values["items"] = {
            name: rows.round(6).tolist() for name, rows in estimates(draw, targets["guided"]).items()
        }
    for name in ("raw", "guided"):
        predicted[f"loose {name}"] = draw.learned(targets[name], LOOSE)
    gold = shares(draw.test)
    values["test"] = {name: kl_rows(gold, table).round(6).tolist() for name, table in predicted.items()}
    values["reach"] = {
        name: covariance(table, gold) / covariance(gold, gold) for name, table in predicted.items()
    }
    return values


def estimates(draw: Draw, guided: Array) -> dict[str, Array]:
    """KL(labels not shown ‖ estimate) of each training item, sizes and smoothing the best in hindsight."""
    reference = shares(draw.hidden)
    smoothed = [kl_rows(reference, additive(draw.train.counts, strength)) for strength in GRID]
    reached = {"counts": min(smoothed, key=np.mean)}
    for name, models in SIZES.items():
        rows = [kl_rows(reference, model.fit(draw.train).label_distributions_) for model in models]
        reached[name] = min(rows, key=np.mean)
    return reached | {"guided": kl_rows(reference, guided)}


def slope(targets: Array, draw: Draw) -> float:
    """The slope of the targets over the items' true distributions: 1 says what is there, 0 only the mean.

    Shown and hidden labels of an item are independent given its true distribution p, so the covariance of
    raw shares with the hidden labels is the variance of p, and that of any targets is their covariance with
    p: the ratio is the slope, and the labels' own noise is in neither.
    """
    hidden = shares(draw.hidden)
    return covariance(targets, hidden) / covariance(shares(draw.train), hidden)


def covariance(first: Array, second: Array) -> float:
    """Σ over classes of the covariance over items."""
    return float(((first - first.mean(axis=0)) * (second - second.mean(axis=0))).sum(axis=1).mean())


def drawn_to_mean(targets: Array, left: float) -> Array:
    """Every row moved towards the mean row, so that the share ``left`` of its distance is left."""
    left = min(left, 1.0)
    return np.asarray(left * targets + (1 - left) * targets.mean(axis=0))
