"""Memory: what cannot be done in it is refused before work; arrays that do not fit are mapped from files."""

from __future__ import annotations

import gc
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import dissensus as ds
from dissensus.errors import DataError, ParameterError
from dissensus.large.engine import Budget, LargeEngine, n_bytes
from dissensus.large.file_arrays import place_in_file
from dissensus.models import base
from dissensus.params import PROCESS_BYTES, size_words
from dissensus.params import n_bytes as read_size

LABELS = ds.Annotations.from_arrays(["a", "a", "b", "b"], ["x", "y", "x", "y"], ["0", "1", "0", "0"])


# ---- refusals -----------------------------------------------------------------------------------------


def test_too_little_is_refused_with_what_would_do() -> None:
    line = (
        "FMM on 4 labels needs 250.01MB of memory at least, and 100MB are allowed; allow as much with "
        "memory=, or use fewer clusters, classes, features, jobs or workers"
    )
    with ds.resources(memory="100MB"), pytest.raises(DataError, match=f"^{re.escape(line)}$"):
        ds.FMM().fit(LABELS)
    with ds.resources(memory="250.01MB"):
        ds.FMM().fit(LABELS)


def test_a_transform_is_refused_too() -> None:
    fitted = ds.PGM(2, 2).fit(LABELS)
    with ds.resources(memory="100MB"), pytest.raises(DataError, match="of memory at least, and 100MB are"):
        fitted.apply(LABELS)


def test_beyond_the_machine_is_refused_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "physical_memory", lambda: 200_000_000)
    line = (
        "FMM on 4 labels needs 250.01MB of memory at least, and this machine has 200MB; use fewer clusters, "
        "classes or features, or a simpler model"
    )
    with pytest.raises(DataError, match=f"^{re.escape(line)}$"):
        ds.FMM().fit(LABELS)
    with ds.resources(memory="300MB"):  # somebody knows better
        ds.FMM().fit(LABELS)


def test_where_several_share_what_is_allowed_the_sum_is_told() -> None:
    line = (
        "FMM on 2 labels needs 250.01MB of memory at least, and 200MB are allowed for each of 2 at once; "
        "allow 500.01MB with memory=, or use fewer clusters, classes, features, jobs or workers"
    )
    grid: dict[str, Any] = {"n_item_clusters": [1, 2]}
    with (
        ds.resources(memory="400MB"),
        ThreadPoolExecutor(2) as threads,
        pytest.raises(DataError, match=f"^{re.escape(line)}$"),
    ):
        ds.select(LABELS, ds.FMM(), grid, test_size=0.5, references={}, executor=threads)


@pytest.mark.parametrize("carried", [True, False], ids=["carried", "given"])
def test_features_that_do_not_fit_are_refused(carried: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    features = np.zeros((2, 100_000), np.float32)
    given = {} if carried else {"features": features}
    labels = ds.text.with_features(LABELS, features) if carried else LABELS
    line = r"DirichletRegression on 4 labels needs 256\.\d+MB of memory at least, and 25\dMB are allowed; "
    with ds.resources(memory="252MB"), pytest.raises(DataError, match=line):
        ds.DirichletRegression().fit(labels, **given)
    monkeypatch.setattr(base, "physical_memory", lambda: 252_000_000)
    with pytest.raises(DataError, match="use fewer clusters, classes or features"):
        ds.DirichletRegression().fit(labels, **given)


@pytest.mark.parametrize(
    ("features", "line"),
    [
        ([[1.0], [1.0, 2.0]], "not numbers of one shape"),
        ([1.0, 2.0], "does not give one row to each of 2 items"),
        (np.zeros(2), "does not give one row to each of 2 items"),
        (sparse.csr_array((2, 10**10)), "keep fewer features, or reduce them"),
    ],
    ids=["ragged", "a list of numbers", "one dimension", "sparse and wide"],
)
def test_features_that_are_none_are_refused_as_such(
    features: Any, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "physical_memory", lambda: 10**15)
    with pytest.raises(DataError, match=line):
        ds.DirichletRegression().fit(LABELS, features=features)


def test_a_column_of_features_that_are_none_is_refused_as_such() -> None:
    for values in (["a text", "another"], [1.0, 2.0], [None, [1.0]]):
        labels = LABELS.with_tables(items={"item": ["a", "b"], "features": values})
        with pytest.raises(DataError, match="features"):
            ds.DirichletRegression().fit(labels)


def test_clusters_classes_and_threads_count() -> None:
    known = ds.simulate(3_000, 400, 4, labels_per_item=5).annotations
    small, large = ds.PGM(2, 2), ds.PGM(50, 40)
    assert PROCESS_BYTES < small.memory_needed(known) < large.memory_needed(known)
    assert large.memory_needed(known) < large.memory_needed(known, n_threads=2)
    # three tables of items and clusters, one of which is the model's, and five of annotators and clusters
    tables = 8 * (3 * 3_000 * (50 - 2) + 5 * 400 * (40 - 2))
    assert large.memory_needed(known) - small.memory_needed(known) >= tables


def test_more_threads_than_memory_has_room_for_are_not_started() -> None:
    known = ds.simulate(3_000, 400, 4, labels_per_item=5).annotations
    seen, model = [], ds.FMM(3, max_iter=2, n_jobs=8)
    each = model.memory_needed(known, n_threads=2) - model.memory_needed(known)

    class Looking(ds.FMM):
        def _fit(self, annotations: ds.Annotations, engine: Any) -> None:
            seen.append(engine.n_threads)
            super()._fit(annotations, engine)

    for room in (0, 2 * each, 100 * each):
        with ds.resources(memory=model.memory_needed(known) + room):
            Looking(3, max_iter=2, n_jobs=8).fit(known)
    assert seen == [1, 2, 8]


# ---- the budget ---------------------------------------------------------------------------------------


def engine(budget: int | None, folder: Path) -> LargeEngine:
    return LargeEngine(
        1, None, 1, budget=Budget(budget), scratch=lambda: folder, checkpoints=None, dtype=np.float64
    )


def test_arrays_are_in_memory_as_long_as_they_fit(tmp_path: Path) -> None:
    limited = engine(1000, tmp_path)
    first, second = limited.empty((100,)), limited.empty((50,))
    assert place_in_file(first) is None
    assert place_in_file(second) is not None
    second[:] = 7.0
    del first
    gc.collect()
    assert place_in_file(limited.empty((100,))) is None  # the room is there again
    assert limited.empty((0, 3)).shape == (0, 3)


def test_without_a_limit_everything_is_in_memory(tmp_path: Path) -> None:
    assert place_in_file(engine(None, tmp_path).empty((10**6,))) is None


def test_bytes_of_layouts() -> None:
    from dissensus.engine import cut_blocks
    from dissensus.models.confusion import CellLayout
    from dissensus.models.pgm.kernels import PairBlock

    known = ds.simulate(300, 40, 4, labels_per_item=5).annotations
    (block,) = cut_blocks(known)
    assert n_bytes(np.zeros((3, 4))) == 96
    assert n_bytes((np.zeros(2), None, 3, (np.zeros(1),))) == 24
    # a code and a number for each label, a pointer for each item; twice, as it is transposed
    assert n_bytes(CellLayout.of(block)) == 2 * (12 * known.n_labels + 4 * (known.n_items + 1))
    assert n_bytes(PairBlock.of(block)) > 12 * known.n_labels


# ---- sizes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("8GB", 8 * 10**9),
        ("512mb", 512 * 10**6),
        ("1.5 G", 1_500_000_000),
        ("7", 7),
        (123, 123),
        ("2TB", 2 * 10**12),
    ],
)
def test_sizes(given: str | int, expected: int) -> None:
    assert read_size(given, "resources") == expected


@pytest.mark.parametrize("given", ["", "much", "-1GB", "GB", "1XB", "1 2GB", True])
def test_what_is_no_size(given: Any) -> None:
    with pytest.raises(ParameterError, match="must be a size such as '2GB', or a number of bytes"):
        read_size(given, "resources")


@pytest.mark.parametrize("memory", [5, "5", 2.5])
def test_a_memory_of_some_bytes_is_refused(memory: Any) -> None:
    line = "'memory' parameter of resources must be a size such as '2GB'"
    with pytest.raises(ParameterError, match=line), ds.resources(memory=memory):
        pass


def test_words_can_be_given_back_and_never_say_too_little() -> None:
    for size in (1, 999, 10**6, 1_500_000_001, 8 * 10**9, 3 * 10**12 + 1):
        assert size <= read_size(size_words(size), "resources") <= 1.1 * size + 100
