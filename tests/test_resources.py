"""What a fit may use never reaches its result: threads, a store, messages on disk, layouts built anew."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from cluster_help import (
    ITERATIONS,
    MODELS,
    WITH_MESSAGES,
    Counting,
    StoppedError,
    alone,
    crowd,
    differing,
    least_memory,
    small_shards,
    stored,
)
from dissensus.engine import PLAIN, current, cut_blocks
from dissensus.errors import DataError, ParameterError
from dissensus.evaluate import compare as auto
from dissensus.large import scratch
from dissensus.large.engine import BudgetedBlocks, n_bytes
from dissensus.large.file_arrays import place_in_file
from sizes import usually

__all__ = ["small_shards"]
pytestmark = [pytest.mark.slow, pytest.mark.no_cover, pytest.mark.usefixtures("small_shards")]


@pytest.fixture
def built_anew(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Blocks that were laid out and not kept."""
    blocks, real = [], BudgetedBlocks.layout

    def noted(self: BudgetedBlocks, number: int) -> Any:
        found = real(self, number)
        if number not in self.layouts:
            blocks.append(number)
        return found

    monkeypatch.setattr(BudgetedBlocks, "layout", noted)
    return blocks


def test_the_crowd_has_many_blocks() -> None:
    assert len(cut_blocks(crowd())) > 8


@pytest.mark.parametrize("name", MODELS)
def test_threads_and_a_store_give_the_same_bits(name: str, tmp_path: Path) -> None:
    known = crowd()
    assert differing(MODELS[name](n_jobs=2).fit(known), alone(name)) == []
    assert differing(MODELS[name](n_jobs=2).fit(stored(known, tmp_path)), alone(name)) == []


def layout_bytes(name: str) -> int:
    """Of all blocks, as the steps of a model use them."""
    from dissensus.models.confusion import CellLayout
    from dissensus.models.fmm import counts_of
    from dissensus.models.pgm.kernels import PairBlock

    lay_out = {"fmm": counts_of, "cbcc": CellLayout.of}.get(name, PairBlock.of)
    return sum(n_bytes(lay_out(block)) for block in cut_blocks(crowd()))


@pytest.mark.parametrize("name", ["fmm", "cbcc", "pgm-bp"])
def test_little_memory_gives_the_same_bits(name: str, tmp_path: Path, built_anew: list[int]) -> None:
    known, model = crowd(), MODELS[name](n_jobs=1)
    least, layouts = least_memory(model, known), layout_bytes(name)
    tables = 2 * known.n_items * 4 * 8 if name in WITH_MESSAGES else 0
    # Room for all layouts and the beliefs of two rounds, but for no messages; for some layouts; for nothing.
    for room, all_stay in ((layouts + tables, True), (layouts // 3, False), (0, False)):
        built_anew.clear()
        progress = Counting(scratch=tmp_path)
        with ds.resources(memory=least + room, scratch=tmp_path, progress=progress):
            assert differing(MODELS[name](n_jobs=1).fit(known), alone(name)) == []
        assert (built_anew == []) is all_stay
        on_disk = name == "pgm-bp" or (name in WITH_MESSAGES and not all_stay)
        assert progress.messages == [on_disk] * ITERATIONS
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", usually(["dawid-skene", "pgm-pairwise"], verify=[*MODELS]))
def test_the_least_memory_gives_the_same_bits_on_two_threads(name: str, tmp_path: Path) -> None:
    with ds.resources(memory=least_memory(MODELS[name](), crowd()), scratch=tmp_path):
        assert differing(MODELS[name](n_jobs=2).fit(crowd()), alone(name)) == []


def test_a_model_is_in_memory_and_not_in_a_file_that_is_gone(tmp_path: Path) -> None:
    known, model = crowd(), MODELS["pgm-bp"]()
    with ds.resources(memory=least_memory(model, known), scratch=tmp_path / "a", checkpoint=tmp_path / "b"):
        model.fit(known)
        again = MODELS["pgm-bp"]().fit(known)  # from its last checkpoint
        moved = model.apply(known)
    for found in (model, again, moved):
        assert not any(isinstance(getattr(found, name), np.memmap) for name in found._arrays)
        assert place_in_file(found.item_clusters_) is None


def test_what_is_known_beforehand_takes_memory_too() -> None:
    known = crowd()
    prior = np.full((known.n_items, known.n_classes), 1.0)
    least = least_memory(MODELS["dawid-skene"](), known)
    with ds.resources(memory=least):
        MODELS["dawid-skene"]().fit(known)
        with pytest.raises(DataError, match="of memory at least"):
            MODELS["dawid-skene"]().fit(known, prior=prior)


@pytest.mark.parametrize("name", WITH_MESSAGES)
def test_single_precision_is_near_and_not_the_same(name: str) -> None:
    double = alone(name)
    with ds.resources(precision="single"):
        single = MODELS[name]().fit(crowd())
    assert "trace_" in differing(single, double)
    # 2⁻²⁴ in every message, over seven iterations
    np.testing.assert_allclose(single.trace_, double.trace_, rtol=1e-6)
    np.testing.assert_allclose(single.label_distributions_, double.label_distributions_, rtol=0, atol=1e-4)


def test_fits_in_threads_see_the_resources(tmp_path: Path) -> None:
    known, progress = crowd(), Counting()
    with ds.resources(checkpoint=tmp_path / "run", checkpoint_every=1, progress=progress):
        auto.compare(known, n_jobs=2, candidates=[("fmm", {"n_item_clusters": K}) for K in (2, 3, 4)])
    assert len(list((tmp_path / "run").iterdir())) == 3
    assert progress.words


def test_fits_that_may_take_all_the_memory_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, most, real = [0], [0], ds.FMM.fit

    def noted(self: ds.FMM, known: Any) -> ds.FMM:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        time.sleep(0.1)
        try:
            return real(self, known)
        finally:
            at_once[0] -= 1

    monkeypatch.setattr(ds.FMM, "fit", noted)
    models = [ds.FMM(K, max_iter=2) for K in (2, 3, 4)]
    with ds.resources(memory="4GB"):
        limited = auto.held_out_scores(crowd(), models, n_jobs=2)
    assert most == [1]
    unlimited = auto.held_out_scores(crowd(), models, n_jobs=2)
    assert most == [2]
    assert [row.score for row in limited] == [row.score for row in unlimited]


def test_resources_end_with_their_block() -> None:
    with ds.resources(precision="single"):
        with ds.resources(precision="double"):
            assert current().precision == "double"
        assert current().precision == "single"
    assert current() is PLAIN


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"precision": "half"},
            "The 'precision' parameter of resources must be one of 'double', 'single'. Got 'half' instead.",
        ),
        (
            {"checkpoint_every": 0},
            "The 'checkpoint_every' parameter of resources must be an int >= 1. Got 0 instead.",
        ),
        (
            {"checkpoint_every": "5"},
            "The 'checkpoint_every' parameter of resources must be an int >= 1. Got '5' instead.",
        ),
        (
            {"memory": "much"},
            "The 'memory' parameter of resources must be a size such as '2GB', or a number of bytes. "
            "Got 'much' instead.",
        ),
        (
            {"n_workers": 0},
            "The 'n_workers' parameter of resources must be an int >= 1, or -1 for one a core. "
            "Got 0 instead.",
        ),
        (
            {"cluster": 7},
            "The 'cluster' parameter of resources must be an address, 'local' or a distributed.Client. "
            "Got 7 instead.",
        ),
        (
            {"progress": "me"},
            "The 'progress' parameter of resources must be a function of words and a share, True, "
            "False or None. Got 'me' instead.",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_settings_are_one_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(ParameterError, match=f"^{re.escape(line)}$"), ds.resources(**settings):
        pass


def test_a_file_where_a_directory_should_be(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for name in ("scratch", "checkpoint"):
        line = f"The '{name}' parameter of resources must be a directory, there already or to be made."
        with pytest.raises(ParameterError, match=re.escape(line)), ds.resources(**{name: file}):
            pass
    with (
        ds.resources(memory=least_memory(MODELS["pgm-bp"](), crowd()), scratch=file / "below"),
        pytest.raises(DataError, match=r"below: messages cannot be written \(not a dir"),
    ):
        MODELS["pgm-bp"]().fit(crowd())


# ---- scratch ------------------------------------------------------------------------------------------


def test_scratch_is_gone_after_a_fit_that_fails(tmp_path: Path) -> None:
    model = MODELS["pgm-bp"]()
    memory = least_memory(model, crowd()) + 10_000
    with pytest.raises(StoppedError), ds.resources(memory=memory, scratch=tmp_path, progress=Counting(3)):
        model.fit(crowd())
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_goes_with_the_next(tmp_path: Path) -> None:
    abandoned = tmp_path / f"{scratch.PREFIX}dead"
    abandoned.mkdir()
    (abandoned / "array-1").touch()
    (abandoned / scratch.LOCK).touch()
    foreign = tmp_path / f"{scratch.PREFIX}foreign"
    foreign.mkdir()
    with scratch.scratch_below(tmp_path) as first, scratch.scratch_below(tmp_path) as second:
        assert not abandoned.exists()
        assert first.is_dir()
        assert second.is_dir()
    assert list(tmp_path.iterdir()) == [foreign]
