"""Memory limits: fits that need more are rejected; arrays that do not fit are mapped from files."""

import gc
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError, ParameterError
from dissensus.large.engine import Budget, LargeEngine
from dissensus.large.file_arrays import file_location
from dissensus.models import base
from dissensus.params import n_bytes as read_size
from dissensus.params import size_words

LABELS = ds.Annotations.from_arrays(["a", "a", "b", "b"], ["x", "y", "x", "y"], ["0", "1", "0", "0"])


# ---- errors -------------------------------------------------------------------------------------------


def test_fit_and_apply_beyond_the_limit_are_rejected() -> None:
    line = (
        "FMM on 4 labels needs at least 250.01MB of memory, and the limit is 100MB; raise "
        "memory=, or use fewer clusters, classes, features, jobs or workers"
    )
    with ds.resources(memory="250.01MB"):
        fitted = ds.FMM().fit(LABELS)
    with ds.resources(memory="100MB"):
        with pytest.raises(DataError, match=f"^{re.escape(line)}$"):
            ds.FMM().fit(LABELS)
        with pytest.raises(DataError, match="of memory, and the limit is 100MB"):
            fitted.apply(LABELS)


def test_fit_beyond_the_machine_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "physical_memory", lambda: 200_000_000)
    line = (
        "FMM on 4 labels needs at least 250.01MB of memory, but this machine has 200MB; use fewer clusters, "
        "classes or features, or a simpler model"
    )
    with pytest.raises(DataError, match=f"^{re.escape(line)}$"):
        ds.FMM().fit(LABELS)
    with ds.resources(memory="300MB"):  # an explicit limit overrides it
        ds.FMM().fit(LABELS)


def test_parallel_tasks_share_the_limit() -> None:
    line = (
        "FMM on 2 labels needs at least 250.01MB of memory, and the limit is 200MB for each of 2 parallel "
        "tasks; raise memory= to 500.01MB, or use fewer clusters, classes, features, jobs or workers"
    )
    grid, refused = {"n_item_clusters": [1, 2]}, pytest.raises(DataError, match=f"^{re.escape(line)}$")
    with ds.resources(memory="400MB"), ThreadPoolExecutor(2) as threads, refused:
        ds.select(LABELS, ds.FMM(), grid, test_size=0.5, references={}, executor=threads)


def test_features_beyond_the_limit_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    features = np.zeros((2, 100_000), np.float32)
    line = r"DirichletRegression on 4 labels needs at least 256\.\d+MB of memory, and the limit is 25\dMB; "
    for labels, settings in ((LABELS, {"features": features}), (ds.text.with_features(LABELS, features), {})):
        with ds.resources(memory="252MB"), pytest.raises(DataError, match=line):
            ds.DirichletRegression().fit(labels, **settings)
    monkeypatch.setattr(base, "physical_memory", lambda: 252_000_000)
    with pytest.raises(DataError, match="use fewer clusters, classes or features"):
        ds.DirichletRegression().fit(LABELS, features=features)


def test_number_of_threads_respects_the_limit() -> None:
    labels = ds.simulate(3_000, 400, 4, labels_per_item=5).annotations
    seen, model = [], ds.FMM(3, max_iter=2, n_jobs=8)
    per_thread = model.memory_needed(labels, n_threads=2) - model.memory_needed(labels)

    class RecordingFMM(ds.FMM):
        def _fit(self, annotations: ds.Annotations, engine: Any) -> None:
            seen.append(engine.n_threads)
            super()._fit(annotations, engine)

    for budget in (0, 2 * per_thread, 100 * per_thread):
        with ds.resources(memory=model.memory_needed(labels) + budget):
            RecordingFMM(3, max_iter=2, n_jobs=8).fit(labels)
    assert seen == [1, 2, 8]


# ---- budget -------------------------------------------------------------------------------------------


def engine(budget: int | None, folder: Path) -> LargeEngine:
    return LargeEngine(
        1, None, 1, budget=Budget(budget), scratch=lambda: folder, checkpoints=None, dtype=np.float64
    )


def test_arrays_that_do_not_fit_are_in_files(tmp_path: Path) -> None:
    limited = engine(1000, tmp_path)
    first, second = limited.empty((100,)), limited.empty((50,))
    assert file_location(first) is None
    assert file_location(second) is not None
    second[:] = 7.0
    del first
    gc.collect()
    assert file_location(limited.empty((100,))) is None  # memory was released
    assert limited.empty((0, 3)).shape == (0, 3)


def test_sizes() -> None:
    sizes = {"8GB": 8 * 10**9, "512mb": 512 * 10**6, "1.5 G": 1_500_000_000, "7": 7, 123: 123}
    assert {text: read_size(text, "resources") for text in sizes} == sizes
    for wrong in ("", "much", "-1GB", "GB", "1XB", "1 2GB", True):
        with pytest.raises(ParameterError, match="must be a size such as '2GB', or a number of bytes"):
            read_size(wrong, "resources")
    for size in (1, 999, 10**6, 1_500_000_001, 8 * 10**9, 3 * 10**12 + 1):  # rounded up
        assert size <= read_size(size_words(size), "resources") <= 1.1 * size + 100
    for tiny in (5, "5", 2.5):
        line = "'memory' parameter of resources must be a size such as '2GB'"
        with pytest.raises(ParameterError, match=line), ds.resources(memory=tiny):
            pass
