"""What a fit is said to take is at least what it takes: traced, beside the plan."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.labels import blocks
from dissensus.numerics import ones
from sizes import usually

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

ITEMS = usually(5_000, verify=12_000)
CROWDS = {
    "few annotators": ds.simulate(ITEMS, 60, 4, labels_per_item=5, load="long-tail", seed=1).annotations,
    "many annotators": ds.simulate(
        ITEMS, 3 * ITEMS // 4, 4, labels_per_item=5, load="long-tail", seed=2
    ).annotations,
}
TINY = ds.simulate(40, 20, 4, labels_per_item=5, seed=3).annotations
MODELS: dict[str, Callable[[], Any]] = {
    "fmm": lambda: ds.FMM(12, max_iter=3),
    "dawid-skene": lambda: ds.DawidSkene(max_iter=3),
    "one-coin": lambda: ds.OneCoin(max_iter=3),
    "cbcc": lambda: ds.CBCC(3, max_iter=3),
    "pgm": lambda: ds.PGM(4, 8, max_iter=3),
    "pgm-restarts": lambda: ds.PGM(4, 8, max_iter=3, n_restarts=4),
    "pgm-rounds": lambda: ds.PGM(4, 8, max_iter=3, bp_rounds=4, bp_tol=0.0),
    "pgm-pairwise": lambda: ds.PGM(4, 8, m_step="pairwise", max_iter=3),
    "pgm-mean-field": lambda: ds.PGM(4, 8, messages="mean-field", max_iter=3),
    "pgm-vb": lambda: ds.PGM(8, 4, inference="vb", max_iter=3),
    "pgm-annealing": lambda: ds.PGM(4, 4, inference="annealing", max_iter=5, n_restarts=2),
}
SLACK = 400_000  # what Python itself takes for a fit, however small


def traced(fit: Callable[[], object]) -> int:
    """The most bytes that were allocated at once while it ran."""
    tracemalloc.start()
    try:
        fit()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def planned_bytes(model: Any, annotations: ds.Annotations, **given: Any) -> int:
    """All that is counted, as if nothing went to disk."""
    needs = model._needs(annotations, 8, **given)
    layouts = needs.layout_bytes * annotations.n_labels
    return int(needs.held + needs.fixed + layouts + needs.message_bytes + needs.working)


def planned_peak(model: Any, annotations: ds.Annotations, **given: Any) -> int:
    """The most that the plan counts at once: two rounds' messages, or those of one beside the model."""
    needs = model._needs(annotations, 8, **given)
    always = needs.held + needs.layout_bytes * annotations.n_labels + needs.working
    return int(always + max(needs.message_bytes, needs.fixed + needs.message_bytes / 2))


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many blocks, as large data have; what all of them share is there already."""
    monkeypatch.setattr(blocks, "SHARD_LABELS", 2048)
    monkeypatch.setattr("dissensus.execution.memory.SHARD_LABELS", 2048)
    monkeypatch.setattr("dissensus.models.pgm.model.SHARD_LABELS", 2048)
    for power in range(18):
        ones(1 << power)


@pytest.mark.parametrize("crowd", CROWDS)
@pytest.mark.parametrize(
    "name", usually([name for name in MODELS if name != "pgm-restarts"], verify=[*MODELS])
)
def test_a_fit_takes_no_more_than_it_says(name: str, crowd: str) -> None:
    annotations = CROWDS[crowd]
    MODELS[name]().fit(TINY)  # imports are not the matter
    took = traced(lambda: MODELS[name]().fit(annotations))
    given = {"evidence": None} if name.startswith("pgm") else {}
    assert took <= planned_bytes(MODELS[name](), annotations, **given) + SLACK


@pytest.mark.parametrize("crowd", CROWDS)
def test_what_is_known_of_the_items_is_counted(crowd: str) -> None:
    annotations = CROWDS[crowd]
    prior = np.full((annotations.n_items, annotations.n_classes), 0.25)
    model = ds.PGM(16, 2, max_iter=3)
    took = traced(lambda: ds.PGM(16, 2, max_iter=3).fit(annotations, pseudo_labels=prior))
    assert took <= planned_bytes(model, annotations, pseudo_labels=prior) + SLACK
    skills = ds.DawidSkene(max_iter=3)
    took = traced(lambda: ds.DawidSkene(max_iter=3).fit(annotations, item_prior=prior))
    assert took <= planned_bytes(skills, annotations, item_prior=prior) + SLACK


@pytest.mark.parametrize("crowd", CROWDS)
def test_a_transform_takes_no_more_than_it_says(crowd: str) -> None:
    annotations = CROWDS[crowd]
    some = annotations.take_items(np.arange(annotations.n_items // 20))
    for fitted in (ds.PGM(16, 2, max_iter=3).fit(some), ds.DawidSkene(max_iter=3).fit(some)):
        took = traced(lambda fitted=fitted: fitted.transform(annotations))
        assert took <= planned_peak(fitted, annotations, transform=True) + SLACK


@pytest.mark.parametrize("crowd", CROWDS)
def test_more_restarts_take_no_more(crowd: str) -> None:
    annotations = CROWDS[crowd]
    two, six = (traced(lambda n=n: ds.PGM(4, 8, max_iter=3, n_restarts=n).fit(annotations)) for n in (2, 6))
    assert six <= 1.1 * two
