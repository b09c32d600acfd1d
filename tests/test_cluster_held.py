"""Messages stay in the memory of the workers who computed them, and no longer than somebody needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from cluster_help import MODELS, Counting, alone, crowd, differing, least_memory, small_shards, stored
from dissensus.errors import MessagesLostError
from dissensus.execution.dask import held
from dissensus.execution.dask.cluster import memory_of_workers
from dissensus.execution.messages import MemoryState
from dissensus.models import base
from dissensus.params import PROCESS_BYTES, physical_memory

__all__ = ["small_shards"]
pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("small_shards")]


def rounds_held() -> int:
    """On a worker: of how many rounds it has messages, over all fits."""
    return sum(len({number for number, _ in kept}) for kept in held._held.values())


class Looking(Counting):
    """At every iteration, how many rounds each worker holds."""

    def __init__(self, client: Any, scratch: Path) -> None:
        super().__init__(scratch=scratch)
        self.rounds: list[int] = []
        self._client = client

    def __call__(self, words: str, share: float) -> None:
        super().__call__(words, share)
        self.rounds.append(max(self._client.run(rounds_held).values()))


def test_a_round_writes_no_messages_and_old_ones_are_dropped(client: Any, tmp_path: Path) -> None:
    progress = Looking(client, tmp_path)
    with ds.resources(cluster=client, scratch=tmp_path, progress=progress):
        MODELS["pgm-bp"]().fit(crowd())
    assert not any(progress.messages)
    # At the end of an iteration there are this round's messages and those of the one before.
    assert 1 <= max(progress.rounds) <= 2
    assert set(client.run(rounds_held).values()) == {0}


def test_what_does_not_fit_goes_to_disk(client: Any, tmp_path: Path) -> None:
    known, model = crowd(), MODELS["pgm-pairwise"]()
    needs = model._needs(known, 8)
    least = least_memory(model, known) + 2 * PROCESS_BYTES + needs.working
    half = least + 2 * needs.layout_bytes * known.n_labels + needs.message_bytes // 2
    progress = Looking(client, tmp_path)
    with ds.resources(cluster=client, scratch=tmp_path, memory=half, progress=progress):
        assert differing(MODELS["pgm-pairwise"]().fit(known), alone("pgm-pairwise")) == []
    assert all(progress.messages)
    assert all(progress.rounds)


def test_workers_without_a_limit_have_the_machine(client: Any) -> None:
    assert memory_of_workers(client) == physical_memory()


# ---- new labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fmm", "dawid-skene", "pgm-bp"])
def test_new_labels_are_worked_on_where_fits_are(name: str, client: Any, tmp_path: Path) -> None:
    fitted, new = MODELS[name](n_jobs=1).fit(crowd()), stored(renamed(crowd(seed=1)), tmp_path)
    alone = fitted.transform(new)
    with ds.resources(cluster=client, scratch=tmp_path / "scratch", progress=False):
        assert differing(fitted.transform(new), alone) == []
    assert differing(fitted.set_params(n_jobs=2).transform(new), alone) == []
    assert list((tmp_path / "scratch").iterdir()) == []


def renamed(labels: ds.Annotations) -> ds.Annotations:
    """The same labels of items that nobody has seen, by annotators of whom some are known."""
    names = [f"new {item}" for item in labels.items[labels.item]]
    people = labels.annotators[labels.annotator]
    return ds.Annotations.from_arrays(np.array(names), people, labels.classes[labels.label])


def test_chances_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "SCORE_ROWS", 500)
    known = crowd()
    fitted = MODELS["pgm-bp"](n_jobs=1).fit(known)
    pairs = known.items[known.item], known.annotators[known.annotator]
    alone = fitted.predict_proba(*pairs)
    np.testing.assert_array_equal(fitted.set_params(n_jobs=2).predict_proba(*pairs), alone)
    np.testing.assert_allclose(
        np.log(alone[np.arange(known.n_labels), known.label]).mean(), fitted.score(known)
    )


# ---- names --------------------------------------------------------------------------------------------


def state(value: float) -> MemoryState:
    return MemoryState(np.full((2, 3), value), np.full((4, 2), value), None)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, int], MemoryState]:
    """As on a worker that has kept three rounds of one block."""
    rounds = {(number, 0): state(number) for number in (1, 2, 3)}
    monkeypatch.setattr(held, "_held", held.OrderedDict(fit=rounds))
    return rounds


def test_only_rounds_that_the_driver_knew_of_are_dropped(kept: dict[tuple[int, int], MemoryState]) -> None:
    # A call of an earlier round may come late: it knows of the first two rounds, and holds the second.
    held.drop_others(held.Rounds("fit", newest=2, held=frozenset({2})))
    assert sorted(kept) == [(2, 0), (3, 0)]
    held.drop_others(held.Rounds("another", newest=3, held=frozenset()))
    assert sorted(kept) == [(2, 0), (3, 0)]


def test_a_name_is_its_arrays_and_what_is_gone_is_one_line(kept: dict[tuple[int, int], MemoryState]) -> None:
    found = held.HeldState("fit", 3, 0, "tcp://worker:1")
    assert found.w.tolist() == [[3.0] * 3] * 2
    assert found.nu is not None
    assert found.incoming is None
    kept.clear()
    with pytest.raises(MessagesLostError, match=r"^tcp://worker:1 no longer has its messages"):
        _ = found.w
