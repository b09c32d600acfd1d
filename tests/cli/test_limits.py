"""Absurd sizes and very many classes: one line, and no endless work."""

import time
from pathlib import Path

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError
from dissensus.models import name_of
from tests.helpers.cli import failure, write_votes

ROWS = "".join(f"i{i},a{a},{'xyz'[(i + a) % 3]}\n" for i in range(8) for a in range(3))


@pytest.fixture
def votes(tmp_path: Path) -> Path:
    return write_votes(tmp_path / "votes.csv", ROWS)


def test_absurd_sizes(votes: Path, tmp_path: Path) -> None:
    huge, endless = ["-k", "10000000000"], ["-k", "4", "--set", "max_iter=1e400"]
    for options in (huge, endless, ["-k", "9" * 30], ["--memory", "9" * 40 + "TB", *huge]):
        failure("fit", votes, "--model", "fmm", *options, "-o", tmp_path / "out")
        assert not (tmp_path / "out").exists()


def many_classes(path: Path, n_classes: int, n_items: int, n_annotators: int) -> Path:
    chance = np.random.default_rng(0)
    rows = []
    for i in range(n_items):
        true = chance.integers(n_classes)
        for a in chance.choice(n_annotators, 5, replace=False):
            label = true if chance.random() < 0.7 else chance.integers(n_classes)
            rows.append(f"i{i},a{a},c{label}\n")
    return write_votes(path, "".join(rows))


def test_many_classes_skip_models_with_matrices(tmp_path: Path) -> None:
    labels = ds.read_annotations(many_classes(tmp_path / "votes.csv", 300, 400, 30))
    started = time.process_time()
    comparison = ds.compare(labels, n_jobs=1)
    assert time.process_time() - started < 30
    assert {name_of(row.model) for row in comparison.table} <= {"fmm", "empirical"}


def test_page_without_a_frequent_class(tmp_path: Path) -> None:
    labels = ds.read_annotations(many_classes(tmp_path / "votes.csv", 150, 60, 10))
    ds.write_report(labels, ds.FMM(1).fit(labels), tmp_path / "page.html", progress=False)
    assert (tmp_path / "page.html").stat().st_size > 0


def test_matrices_beyond_memory(tmp_path: Path) -> None:
    file = many_classes(tmp_path / "votes.csv", 5000, 2000, 200)
    words = ["fit", file, "--model", "dawid-skene", "-o", tmp_path / "out"]
    for options in (["--memory", "2GB"], []):
        assert "of memory" in failure(*words, *options)
    assert not (tmp_path / "out").exists()


def test_results_beyond_memory(tmp_path: Path) -> None:
    labels = ds.read_annotations(many_classes(tmp_path / "votes.csv", 5000, 5000, 200))
    for model in ("empirical", "fmm", "hpgm"):
        with ds.resources(memory="2GB"), pytest.raises(DataError, match=r"classes need .*; the limit is 2GB"):
            ds.fit(labels, model)
