"""Bundled datasets: complete, small, and reproduced by their script."""

from pathlib import Path

import numpy as np
import pytest

import dissensus as ds
from dissensus.datasets import comments
from dissensus.errors import ParameterError
from experiments import bundled_sets

SHAPES = {  # items, annotators, labels, type
    "canteen": (60, 12, 540, "nominal"),
    "birds": (120, 15, 480, "nominal"),
    "bread": (50, 14, 271, "ordinal"),
    "replies": (150, 9, 900, "nominal"),
    "posters": (131, 20, 500, "pairwise"),
}


@pytest.mark.parametrize("name", ds.datasets.DATASETS)
def test_every_set_loads(name: str) -> None:
    labels = ds.datasets.load(name)
    shape = labels.n_items, labels.n_annotators, labels.n_labels, labels.label_type
    assert shape == SHAPES[name]
    frame, gold = ds.datasets.load_dataset(name)
    assert {"worker", "label"} < set(frame.columns)
    assert len(gold) == (120 if name == "birds" else 0)


def test_side_tables_are_loaded() -> None:
    assert ds.datasets.load("canteen").item_column("text")[0].endswith(".")
    assert set(ds.datasets.load("replies").annotator_column("kind")) == {"human", "llm"}
    gold = ds.datasets.load("birds").gold
    assert gold is not None
    assert (gold >= 0).all()


@pytest.mark.parametrize("name", ds.datasets.DATASETS)
def test_files_match_the_script(name: str) -> None:
    made = bundled_sets.SETS[name]()
    files = {file.stem: file.read_text(encoding="utf-8") for file in ds.datasets.path(name).glob("*.csv")}
    assert files == {table: bundled_sets.text_of(rows) for table, rows in made.items()}


def test_sets_are_small() -> None:
    folder = Path(ds.datasets.__file__).parent
    assert sum(file.stat().st_size for file in folder.rglob("*.csv")) < 120_000


def test_unknown_name_suggests_another() -> None:
    with pytest.raises(ParameterError, match="did you mean 'canteen'"):
        ds.datasets.load("canten")


def test_the_population_of_the_demo_is_what_its_readers_answer_on_average() -> None:
    rng = np.random.default_rng(5)
    readers = comments.Readers.draw(60_000, rng)
    rudeness, coded = np.array([0.0, 1.0]), np.array([0.0, 1.2])
    seen = rudeness[:, None] + readers.strictness + 2 * coded[:, None] * readers.in_group
    seen = seen + rng.normal(0, comments.HEARING_SD, seen.shape)
    drawn = np.where(seen < 0.5, 0, np.where(seen < 1.7, 2, 1))
    drawn[:, readers.clicks] = rng.integers(3, size=(2, readers.clicks.sum()))
    counted = np.stack([np.bincount(row, minlength=3) / len(row) for row in drawn])
    assert readers.answers(rudeness, coded).mean(axis=1) == pytest.approx(counted, abs=0.01)


def test_the_demo_crowd_has_labels_near_its_population() -> None:
    labels, population, readers = comments.draw_crowd(3)
    assert labels.n_labels == 2000
    assert labels.n_annotators == len(readers.strictness) == 40
    assert labels.counts.sum(axis=0) / 2000 == pytest.approx(population.mean(axis=0), abs=0.06)
    assert (comments.draw_crowd(3)[0].label == labels.label).all()
