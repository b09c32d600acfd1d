"""The data sets that come with the package: small, complete, and drawn by the script that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

import dissensus as ds
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
def test_each_set_loads_whole(name: str) -> None:
    found = ds.datasets.load(name)
    shape = found.n_items, found.n_annotators, found.n_labels, found.label_type
    assert shape == SHAPES[name]
    frame, gold = ds.datasets.load_dataset(name)
    assert {"worker", "label"} < set(frame.columns)
    assert len(gold) == (120 if name == "birds" else 0)


def test_what_is_known_besides_labels_comes_along() -> None:
    assert ds.datasets.load("canteen").item_column("text")[0].endswith(".")
    assert set(ds.datasets.load("replies").annotator_column("kind")) == {"human", "llm"}
    gold = ds.datasets.load("birds").gold
    assert gold is not None
    assert (gold >= 0).all()


@pytest.mark.parametrize("name", ds.datasets.DATASETS)
def test_the_files_are_what_the_script_draws(name: str) -> None:
    made = bundled_sets.SETS[name]()
    files = {file.stem: file.read_text(encoding="utf-8") for file in ds.datasets.path(name).glob("*.csv")}
    assert files == {table: bundled_sets.text_of(rows) for table, rows in made.items()}


def test_the_sets_are_small() -> None:
    folder = Path(ds.datasets.__file__).parent
    assert sum(file.stat().st_size for file in folder.rglob("*.csv")) < 120_000


def test_an_unknown_name_gets_the_near_one() -> None:
    with pytest.raises(ParameterError, match="did you mean 'canteen'"):
        ds.datasets.load("canten")
