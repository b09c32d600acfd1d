"""The measurements of the default: what they keep, and what they ask of every dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dissensus as ds
from conftest import find_data
from experiments.default import UNANIMOUS, dataset_names, default_of, section_of
from reproduction.datasets import read_dataset
from sizes import usually

MOST_SAMPLED = 50_000  # labels that are sampled of a set; the other items get what the draws say of them


def datasets() -> list[str]:
    """Every real dataset, or none: they are for ``make verify``."""
    folder = find_data()
    return usually([], verify=dataset_names(folder) if folder else [])


@pytest.mark.verify
@pytest.mark.data
@pytest.mark.parametrize("name", datasets())
def test_no_answer_contradicts_what_everybody_says(name: str, data_dir: Path) -> None:
    labels = read_dataset(data_dir / name)
    model = ds.HPGM(n_chains=2, n_sweeps=40, max_sampled=MOST_SAMPLED).fit(labels)
    counts = labels.counts
    sizes = counts.sum(axis=1)
    unanimous = (counts.max(axis=1) == sizes) & (sizes >= UNANIMOUS)
    shares = model.label_distributions_[unanimous, counts[unanimous].argmax(axis=1)]
    assert shares.min(initial=1.0) >= 0.6
    frame = model.to_frame()
    chances = frame[[f"p_{name}" for name in model.classes_]].to_numpy()
    said = np.array([list(model.classes_).index(label) for label in frame["label"]])
    assert (chances[np.arange(len(said)), said] >= chances.max(axis=1) - 1e-6).all()


def test_a_part_that_is_not_measured_stays_as_it_was() -> None:
    page = "# Title\n\nwords\n\n## First\n\none\n\n## Second\n\ntwo\n"
    assert section_of(page, "First") == "\n## First\n\none\n"
    assert section_of(page, "Second") == "\n## Second\n\ntwo\n"
    assert section_of(page, "Third") == ""


@pytest.mark.slow
def test_one_label_an_item_is_measured_with_the_model_that_can_be_named() -> None:
    labels = ds.simulate(12, 6, 2, labels_per_item=1, seed=0).annotations
    with pytest.raises(ds.DissensusError, match="no item has labels by two annotators"):
        ds.fit(labels)
    assert isinstance(default_of(labels, 0), ds.HPGM)
