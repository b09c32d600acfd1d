"""Extremes, for every graphical model: no NaN, rows that sum to one, and answers that make sense."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import dissensus as ds
from dissensus.metrics import kl
from dissensus.models.base import Model
from sizes import usually
from small_graphs import crowd

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

Array = NDArray[np.float64]

BUILD: dict[str, Callable[[], Model]] = {
    "fmm": lambda: ds.FMM(4),
    "bp": lambda: ds.PGM(4, 3),
    "bp, pairwise": lambda: ds.PGM(4, 3, m_step="pairwise", bp_rounds=5),
    "bp, no priors": lambda: ds.PGM(4, 3, alpha=1.0, gamma=1.0, tau=1.0),
    "vb": lambda: ds.PGM(4, 3, inference="vb"),
    "annealing": lambda: ds.PGM(4, 3, inference="annealing", max_iter=150),
    "dawid-skene": lambda: ds.DawidSkene(estimate="population"),
    "dawid-skene, maximum likelihood": lambda: ds.DawidSkene(smoothing=0.0, estimate="population"),
    "one-coin": lambda: ds.OneCoin(estimate="population"),
    "one-coin, maximum likelihood": lambda: ds.OneCoin(smoothing=0.0, estimate="population"),
    "cbcc": lambda: ds.CBCC(3, max_iter=10, estimate="population"),
}
ITEM_SIDE = ("fmm", "bp", "bp, pairwise", "bp, no priors", "vb", "annealing")
TRUE_CLASS = tuple(name for name in BUILD if name not in ITEM_SIDE)


@pytest.fixture(params=BUILD)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def fitted(name: str, annotations: ds.Annotations) -> Model:
    """The model, fitted and looked over: every number finite, every row a distribution."""
    model = BUILD[name]().fit(annotations)
    for table in (model.label_distributions_, model.prior_distribution_[None]):
        assert np.isfinite(table).all()
        assert (table >= 0).all()
        np.testing.assert_allclose(table.sum(axis=1), 1, rtol=1e-9)
    for array in model._arrays:
        assert np.isfinite(getattr(model, array)).all(), array
    assert np.isfinite(model.trace_).all()
    some = slice(0, 50)
    chances = model.predict_proba(
        annotations.items[annotations.item[some]], annotations.annotators[annotations.annotator[some]]
    )
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-9)
    assert not math.isnan(model.score(annotations))
    return model


def shares(annotations: ds.Annotations) -> Array:
    return np.asarray(annotations.counts / np.maximum(annotations.counts.sum(axis=1, keepdims=True), 1))


def small_items(rng: np.random.Generator, n_items: int, n_annotators: int) -> list[tuple[int, int, int]]:
    """Items 1 … n_items with five labels each, mostly one of three classes."""
    return [
        (m, n, m % 3 if rng.random() < 0.8 else int(rng.integers(3)))
        for m in range(1, n_items + 1)
        for n in rng.choice(n_annotators, 5, replace=False).tolist()
    ]


# ---- very many labels on one item ----------------------------------------------------------------------


def crowded(n_annotators: int) -> ds.Annotations:
    """Item 0 has a label of everybody: 60 % class 0, 30 % class 1, 10 % class 2."""
    answers = np.arange(n_annotators) % 10
    label = np.where(answers < 6, 0, np.where(answers < 9, 1, 2))
    rows = small_items(np.random.default_rng(0), 30, n_annotators)
    return crowd([*((0, n, y) for n, y in enumerate(label.tolist())), *rows], 31, n_annotators, 3)


CROWDED = crowded(usually(10_000, verify=100_000))


def test_very_many_labels_on_one_item(name: str) -> None:
    model = fitted(name, CROWDED)
    assert model.predict()[0] == "c00"
    if name in ITEM_SIDE:
        np.testing.assert_allclose(model.label_distributions_[0], [0.6, 0.3, 0.1], atol=0.02)
        assert model.item_clusters_[0].max() > 0.999  # so many labels leave no doubt
    else:
        assert model.posterior_[0, 0] > 0.999


def test_a_thousand_labels_of_one_annotator_on_one_item(name: str) -> None:
    """Annotator 0 repeats itself on item 0; item 1 has many labels of the same annotator, differing."""
    rng = np.random.default_rng(1)
    rows = [(0, 0, 1)] * 1000 + [(1, 0, y % 2) for y in range(1000)] + [(0, 1, 1), (0, 2, 1), (1, 1, 0)]
    model = fitted(name, crowd([*rows, *small_items(rng, 30, 20)], 31, 20, 3))
    assert model.predict()[0] == "c01"
    if name in ITEM_SIDE:
        assert model.item_clusters_[0].max() > 0.999
        chances = model.predict_proba(["i00", "i01"], ["a00", "a00"])
        assert chances[0, 1] > 0.9
        np.testing.assert_allclose(chances[1], [0.5, 0.5, 0.0], atol=0.1)


# ---- very few labels -----------------------------------------------------------------------------------


def test_one_label_on_every_item(name: str) -> None:
    rng = np.random.default_rng(2)
    label = rng.choice(3, p=[0.7, 0.2, 0.1], size=500)
    annotations = crowd([(m, int(rng.integers(20)), int(y)) for m, y in enumerate(label)], 500, 20, 3)
    model = fitted(name, annotations)
    # All that can be known is how often each class was given.
    expected = np.bincount(label) / 500
    assert np.abs(model.label_distributions_.mean(axis=0) - expected).max() < 0.05
    assert np.abs(model.prior_distribution_ - expected).max() < 0.1


def test_one_label_in_all(name: str) -> None:
    model = fitted(name, crowd([(0, 0, 1)], 1, 1, 2))
    assert model.predict().tolist() == ["c01"]


def test_one_annotator(name: str) -> None:
    rows = [(m, 0, m % 3) for m in range(60)]
    model = fitted(name, crowd(rows, 60, 1, 3))
    assert (model.label_distributions_.mean(axis=0) > 0.2).all()


def test_one_item(name: str) -> None:
    rows = [(0, n, 0 if n % 4 else 1) for n in range(40)]
    model = fitted(name, crowd(rows, 1, 40, 2))
    assert model.predict().tolist() == ["c00"]
    if name in ITEM_SIDE:
        np.testing.assert_allclose(model.label_distributions_[0], [0.75, 0.25], atol=0.15)


def test_items_and_annotators_without_labels(name: str) -> None:
    rows = small_items(np.random.default_rng(3), 20, 10)
    model = fitted(name, crowd(rows, 40, 25, 3))
    # Variational Bayes believes in exp E log ψ, and expects of an item never seen the mean E ψ.
    gap = 0.02 if name == "vb" else 1e-6
    np.testing.assert_allclose(
        model.label_distributions_[21:], np.tile(model.prior_distribution_, (19, 1)), rtol=gap
    )


# ---- classes that never occur --------------------------------------------------------------------------


def test_classes_that_never_occur(name: str) -> None:
    rows = small_items(np.random.default_rng(4), 40, 15)  # item 0 has no label at all
    known, wider = (fitted(name, crowd(rows, 41, 15, P)) for P in (3, 6))
    never = wider.label_distributions_[1:, 3:]
    # Priors may leave them a little; they are nobody's answer.
    assert never.max() < 0.12
    assert set(wider.predict()[1:]) <= {"c00", "c01", "c02"}
    same = (known.predict()[1:] == wider.predict()[1:]).mean()
    assert same > 0.9


def test_only_one_of_several_classes_occurs(name: str) -> None:
    rows = [(m, n, 1) for m in range(20) for n in range(4)]
    model = fitted(name, crowd(rows, 20, 4, 3))
    assert set(model.predict()) == {"c01"}
    assert model.label_distributions_[:, 1].min() > 0.8


# ---- real graphs at their extremes ---------------------------------------------------------------------


@pytest.mark.data
def test_disconnected_blocks(name: str, data_dir: Path) -> None:
    """gwsd: fifty complete blocks of eight annotators, with nothing between them."""
    annotations = ds.read_annotations(data_dir / "gwsd" / "annotations.csv")
    model = fitted(name, annotations)
    empirical = shares(annotations)
    crowd_share = np.tile(annotations.counts.sum(axis=0) / annotations.n_labels, (annotations.n_items, 1))
    gap = kl(empirical, model.label_distributions_)
    assert gap < 0.6 * kl(empirical, crowd_share)
    assert (model.predict() == annotations.classes[empirical.argmax(axis=1)]).mean() > 0.6


@pytest.mark.data
def test_complete_matrices(name: str, data_dir: Path) -> None:
    """bluebirds: every annotator labels every item; knowing annotators beats the majority's 0.759."""
    folder = data_dir / "bluebirds"
    annotations = ds.read_annotations(folder / "annotations.csv", gold=folder / "gold.csv")
    model = fitted(name, annotations)
    assert annotations.n_labels == annotations.n_items * annotations.n_annotators
    assert kl(shares(annotations), model.label_distributions_) < 0.1
    if name.startswith(("dawid", "cbcc")):
        assert (model.posterior_.argmax(axis=1) == annotations.gold).mean() > 0.85
