"""One view of what a fitted model knows about clusters, for everyone who reads clusters off a model.

An item belongs to item cluster k with probability w_mk, an annotator to annotator cluster l with probability
z_nl, and Θ_kl is how cluster l answers about cluster k. A mixture over items has one annotator cluster; where
a model looks for true classes, they are the item clusters. ``Model.cluster_view`` gives it; each model says
there, in a few lines, what it has.
"""

from __future__ import annotations

from dataclasses import dataclass

from dissensus.numerics import Array


@dataclass(frozen=True)
class ClusterView:
    """The clusters of a fitted model."""

    items: Array  # (M, K): w
    annotators: Array | None  # (N, L): z; None: annotators are not put into clusters
    theta: Array  # (K, L, P): Θ
    psi: Array  # (K,): shares of the item clusters
    omega: Array  # (L,): shares of the annotator clusters
    weights: Array  # (L,): π, what each annotator cluster counts in the population
    population: Array  # (K, P): Y', what the population answers about each item cluster
    true_classes: bool = False  # the item clusters are the model's true classes, in class order
    matrices: Array | None = None  # (N, K, P): how each annotator answers, where the model knows each
    annotator_weights: Array | None = None  # (N,): what each annotator counts in the population
