"""Fixtures that make few labels many blocks and chunks."""

import pytest

from tests.helpers.cluster import cut_small


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide labels into ten blocks (25 under ``make verify``)."""
    cut_small(monkeypatch.setattr)


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read files in small chunks and merge ids often."""
    monkeypatch.setattr("dissensus.large.packing.NEW_ID_BYTES", 600)
    monkeypatch.setattr("dissensus.tables.tables._ROWS_PER_CHUNK", 5)
    monkeypatch.setattr("dissensus.tables.json_lines._RECORDS_PER_BATCH", 5)
    monkeypatch.setattr("dissensus.tables.delimited._CSV_BLOCK_BYTES", 256)
