"""The measurements of the default model."""

from pathlib import Path

import numpy as np
import pytest

import dissensus as ds
from experiments.default import POOL, UNANIMOUS_LABELS, cut, default_estimate
from experiments.runner import dataset_names, read_dataset
from tests.helpers.data import find_data
from tests.helpers.sizes import usually

MAX_SAMPLED_LABELS = 50_000  # per dataset; other items are inferred from the draws


def datasets() -> list[str]:
    """List all real datasets under ``make verify``, and none otherwise."""
    folder = find_data()
    return usually([], verify=dataset_names(folder) if folder else [])


@pytest.mark.verify
@pytest.mark.data
@pytest.mark.parametrize("name", datasets())
def test_unanimous_answers_keep_the_largest_share(name: str, data_dir: Path) -> None:
    labels = read_dataset(data_dir / name)
    model = ds.Pool(n_chains=2, n_sweeps=40, max_sampled=MAX_SAMPLED_LABELS).fit(labels)
    counts = labels.counts
    sizes = counts.sum(axis=1)
    unanimous = (counts.max(axis=1) == sizes) & (sizes >= UNANIMOUS_LABELS)
    shares = model.label_distributions_[unanimous, counts[unanimous].argmax(axis=1)]
    assert shares.min(initial=1.0) >= 0.6
    frame = model.to_frame()
    shares_of_items = frame[[f"p_{name}" for name in model.classes_]].to_numpy()
    codes = np.array([list(model.classes_).index(label) for label in frame["label"]])
    assert (shares_of_items[np.arange(len(codes)), codes] >= shares_of_items.max(axis=1) - 1e-6).all()


@pytest.mark.slow
def test_estimates_of_the_default_are_covered() -> None:
    labels = cut(ds.simulate(60, 20, 3, labels_per_item=16, seed=0).annotations, 40, 0)
    values = default_estimate(labels, POOL // 2, 0)
    assert len(values["default"]) == labels.n_items == 40
    assert 0.8 < values["coverage"] <= 1
