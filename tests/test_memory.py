"""Memory is planned before a fit: all stays, messages go to disk, layouts are built anew, or a refusal."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

import dissensus as ds
from dissensus.errors import DataError, ParameterError
from dissensus.execution.memory import Needs, Plan, block_labels, planned
from dissensus.params import PROCESS_BYTES, n_bytes, size_words

LABELS = ds.Annotations.from_arrays(["a", "a", "b", "b"], ["x", "y", "x", "y"], ["0", "1", "0", "0"])


def needs(itemsize: int = 8) -> Needs:
    """Needs that are easy to add up: 1,000 bytes in any case, 100 a label laid out, 5,000 of messages."""
    return Needs(fixed=1000, layout_bytes=100, message_bytes=5000 * itemsize // 8, working=10)


class Model(ds.FMM):
    """A model with these needs."""

    def _needs(self, annotations: ds.Annotations, itemsize: int, **given: Any) -> Needs:
        return needs(itemsize)


def plan(memory: int, itemsize: int = 8, **crew: int) -> Plan:
    return planned("Model", needs(itemsize), LABELS.n_labels, memory, **{"n_threads": 1} | crew)


@pytest.mark.parametrize(
    ("beyond", "expected"),
    [
        (4400, Plan()),
        (4350, Plan(0.99)),
        (1400, Plan(0.4)),  # 2,000 bytes for two rounds' messages while there is no model yet
        (900, Plan(0.2)),  # 500 bytes for one round's beside the model
        (400, Plan(0.0)),
        (399, Plan(0.0, labels_laid_out=3)),
        (0, Plan(0.0, labels_laid_out=0)),
    ],
)
def test_what_stays_in_memory(beyond: int, expected: Plan) -> None:
    assert plan(PROCESS_BYTES + 1010 + beyond) == expected


def test_what_is_held_throughout_is_there_beside_every_round() -> None:
    memory = PROCESS_BYTES + 1010 + 1400
    more = replace(needs(), held=500)
    assert planned("Model", more, LABELS.n_labels, memory + 500, n_threads=1) == plan(memory)
    with pytest.raises(DataError):
        planned("Model", more, LABELS.n_labels, PROCESS_BYTES + 1010 + 499, n_threads=1)


def test_single_precision_takes_half_the_room_for_messages() -> None:
    memory = PROCESS_BYTES + 1010 + 1900
    assert plan(memory, itemsize=4) == Plan()
    assert plan(memory) == Plan(0.5)


def test_threads_and_workers_count() -> None:
    plan(PROCESS_BYTES + 1020, n_threads=2)
    with pytest.raises(DataError):
        plan(PROCESS_BYTES + 1019, n_threads=2)
    least = 3 * PROCESS_BYTES + 1020
    # On a cluster messages are on disk, and any worker may have to lay out any block.
    assert plan(least + 800, n_threads=2, n_workers=2) == Plan(0.0)
    assert plan(least + 799, n_threads=2, n_workers=2) == Plan(0.0, labels_laid_out=3)
    with pytest.raises(DataError):
        plan(least - 1, n_threads=2, n_workers=2)


def test_too_little_is_refused_with_what_would_do() -> None:
    line = (
        "Model on 4 labels needs 250.1MB of memory at least, and 100MB are allowed; allow as much with "
        "memory=, or use fewer clusters, threads or workers"
    )
    with ds.resources(memory="100MB"), pytest.raises(DataError, match=f"^{re.escape(line)}$"):
        Model().fit(LABELS)
    with ds.resources(memory="250.1MB"):
        Model().fit(LABELS)


def test_where_several_share_what_is_allowed_the_sum_is_told() -> None:
    line = (
        "Model on 2 labels needs 250.1MB of memory at least, and 200MB are allowed for each of 2 at once; "
        "allow 500.1MB with memory=, or use fewer clusters, jobs or workers"
    )
    grid: dict[str, Any] = {"n_item_clusters": [1, 2]}
    with (
        ds.resources(memory="400MB"),
        ThreadPoolExecutor(2) as threads,
        pytest.raises(DataError, match=f"^{re.escape(line)}$"),
    ):
        ds.select(Model(), LABELS, grid, test_size=0.5, references={}, executor=threads)


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
    assert n_bytes(given, "resources") == expected


@pytest.mark.parametrize("given", ["", "much", "-1GB", "GB", "1XB", "1 2GB", True])
def test_what_is_no_size(given: Any) -> None:
    with pytest.raises(ParameterError, match="must be a size such as '2GB', or a number of bytes"):
        n_bytes(given, "resources")


def test_words_can_be_given_back_and_never_say_too_little() -> None:
    for size in (1, 999, 10**6, 1_500_000_001, 8 * 10**9, 3 * 10**12 + 1):
        assert size <= n_bytes(size_words(size), "resources") <= 1.1 * size + 100


def test_labels_of_a_block() -> None:
    assert block_labels(LABELS) == 4
