"""Resources never change results: threads, stores, messages on disk, rebuilt layouts."""

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.engine import LOCAL, current, cut_blocks
from dissensus.errors import DataError, ParameterError
from dissensus.evaluate import compare as auto
from dissensus.large import file_arrays
from dissensus.large.engine import BudgetedBlocks, n_bytes
from dissensus.large.file_arrays import file_location
from tests.helpers.cluster import (
    ITERATIONS,
    MODELS,
    WITH_MESSAGES,
    Counting,
    StoppedError,
    alone,
    crowd,
    differing,
    least_memory,
    stored,
)

pytestmark = [pytest.mark.slow, pytest.mark.no_cover, pytest.mark.usefixtures("small_shards")]


@pytest.fixture
def rebuilt(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the blocks whose layouts are not cached."""
    blocks, real = [], BudgetedBlocks.layout

    def recorded(self: BudgetedBlocks, number: int) -> Any:
        fitted = real(self, number)
        if number not in self.layouts:
            blocks.append(number)
        return fitted

    monkeypatch.setattr(BudgetedBlocks, "layout", recorded)
    return blocks


@pytest.mark.parametrize("name", MODELS)
def test_threads_and_stores_give_identical_bits(name: str, tmp_path: Path) -> None:
    labels = crowd()
    assert differing(MODELS[name](n_jobs=2).fit(labels), alone(name)) == []
    assert differing(MODELS[name](n_jobs=2).fit(stored(labels, tmp_path)), alone(name)) == []


def layout_bytes(name: str) -> int:
    """Return the size of the layouts of all blocks."""
    from dissensus.models.confusion import CellLayout
    from dissensus.models.fmm import counts_of
    from dissensus.models.pgm.kernels import PairBlock

    lay_out = {"fmm": counts_of, "cbcc": CellLayout.of}.get(name, PairBlock.of)
    return sum(n_bytes(lay_out(block)) for block in cut_blocks(crowd()))


@pytest.mark.parametrize("name", ["fmm", "cbcc", "pgm-bp"])
def test_small_memory_gives_identical_bits(name: str, tmp_path: Path, rebuilt: list[int]) -> None:
    labels, model = crowd(), MODELS[name](n_jobs=1)
    least, layouts = least_memory(model, labels), layout_bytes(name)
    tables = 2 * labels.n_items * 4 * 8 if name in WITH_MESSAGES else 0
    # budget for all layouts and the beliefs of two rounds but no messages; for some layouts; for nothing
    for budget, all_stay in ((layouts + tables, True), (layouts // 3, False), (0, False)):
        rebuilt.clear()
        progress = Counting(scratch=tmp_path)
        with ds.resources(memory=least + budget, scratch=tmp_path, progress=progress):
            assert differing(MODELS[name](n_jobs=1).fit(labels), alone(name)) == []
        assert (rebuilt == []) is all_stay
        on_disk = name == "pgm-bp" or (name in WITH_MESSAGES and not all_stay)
        assert progress.messages == [on_disk] * ITERATIONS
        assert list(tmp_path.iterdir()) == []


def test_fitted_models_are_in_memory(tmp_path: Path) -> None:
    labels, model = crowd(), MODELS["pgm-bp"]()
    with ds.resources(memory=least_memory(model, labels), scratch=tmp_path / "a", checkpoint=tmp_path / "b"):
        model.fit(labels)
        again = MODELS["pgm-bp"]().fit(labels)  # from its last checkpoint
        moved = model.apply(labels)
    for fitted in (model, again, moved):
        assert not any(isinstance(getattr(fitted, name), np.memmap) for name in fitted._arrays)
        assert file_location(fitted.item_clusters_) is None


@pytest.mark.parametrize("name", WITH_MESSAGES)
def test_single_precision_is_close_to_double(name: str) -> None:
    double = alone(name)
    with ds.resources(precision="single"):
        single = MODELS[name]().fit(crowd())
    assert "trace_" in differing(single, double)
    # 2⁻²⁴ in every message, over seven iterations
    np.testing.assert_allclose(single.trace_, double.trace_, rtol=1e-6)
    np.testing.assert_allclose(single.label_distributions_, double.label_distributions_, rtol=0, atol=1e-4)


def test_fits_with_a_memory_limit_run_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    running, peak, real = [0], [0], ds.FMM.fit

    def recorded(self: ds.FMM, labels: Any) -> ds.FMM:
        running[0] += 1
        peak[0] = max(peak[0], running[0])
        time.sleep(0.1)
        try:
            return real(self, labels)
        finally:
            running[0] -= 1

    monkeypatch.setattr(ds.FMM, "fit", recorded)
    models = [ds.FMM(K, max_iter=2) for K in (2, 3, 4)]
    with ds.resources(memory="4GB"):
        limited = auto.held_out_scores(crowd(), models, n_jobs=2)
    assert peak == [1]
    unlimited = auto.held_out_scores(crowd(), models, n_jobs=2)
    assert peak == [2]
    assert [row.score for row in limited] == [row.score for row in unlimited]


def test_resources_are_restored_after_the_block() -> None:
    with ds.resources(precision="single"):
        with ds.resources(precision="double"):
            assert current().precision == "double"
        assert current().precision == "single"
    assert current() is LOCAL


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"precision": "half"}, "one of 'double', 'single'. Got 'half' instead."),
        ({"checkpoint_every": "5"}, "an int >= 1. Got '5' instead."),
        ({"memory": "much"}, "a size such as '2GB', or a number of bytes. Got 'much' instead."),
        ({"n_workers": 0}, "an int >= 1, or -1 for one per core. Got 0 instead."),
        ({"cluster": 7}, "an address, 'local' or a distributed.Client. Got 7 instead."),
        ({"progress": "me"}, ""),
    ],
)
def test_invalid_settings(settings: dict[str, Any], rule: str) -> None:
    line = f"The '{next(iter(settings))}' parameter of resources must be {rule}"
    with pytest.raises(ParameterError, match=f"^{re.escape(line)}"), ds.resources(**settings):
        pass


def test_file_instead_of_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for name in ("scratch", "checkpoint"):
        line = f"The '{name}' parameter of resources must be an existing or new directory."
        with pytest.raises(ParameterError, match=re.escape(line)), ds.resources(**{name: file}):
            pass
    line = r"below: messages cannot be written \(not a dir"
    resources = ds.resources(memory=least_memory(MODELS["pgm-bp"](), crowd()), scratch=file / "below")
    with resources, pytest.raises(DataError, match=line):
        MODELS["pgm-bp"]().fit(crowd())


# ---- scratch ------------------------------------------------------------------------------------------


def test_scratch_is_removed_after_a_failed_fit(tmp_path: Path) -> None:
    model = MODELS["pgm-bp"]()
    memory = least_memory(model, crowd()) + 10_000
    with pytest.raises(StoppedError), ds.resources(memory=memory, scratch=tmp_path, progress=Counting(3)):
        model.fit(crowd())
    assert list(tmp_path.iterdir()) == []


def test_scratch_of_killed_runs_is_removed(tmp_path: Path) -> None:
    abandoned = tmp_path / f"{file_arrays.SCRATCH_PREFIX}dead"
    abandoned.mkdir()
    (abandoned / "array-1").touch()
    (abandoned / file_arrays.LOCK_FILE).touch()
    foreign = tmp_path / f"{file_arrays.SCRATCH_PREFIX}foreign"
    foreign.mkdir()
    with file_arrays.scratch_folder(tmp_path) as first, file_arrays.scratch_folder(tmp_path) as second:
        assert not abandoned.exists()
        assert first.is_dir()
        assert second.is_dir()
    assert list(tmp_path.iterdir()) == [foreign]
