"""HPGM with attributes of annotators: predictions, saving, new annotators, and a prior by hand."""

from pathlib import Path

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError, DissensusWarning
from dissensus.metrics import log_probability_rows
from dissensus.models.hpgm.attributes import AttributeCells, annotator_prior

pytestmark = pytest.mark.slow
QUICK = {"n_chains": 2, "n_sweeps": 60, "n_jobs": 1}


def crowd(n_annotators: int = 40, seed: int = 0) -> ds.Annotations:
    """Two regions that answer opposite classes to every second item; ``hand`` has no effect."""
    rng = np.random.default_rng(seed)
    item = np.repeat(np.arange(60), 10)
    who = np.concatenate([rng.choice(n_annotators, 10, replace=False) for _ in range(60)])
    region = np.arange(n_annotators) % 2
    flipped = (item % 2 == 0) & (region[who] == 1)
    label = np.where(rng.random(600) < 0.1, rng.integers(2, size=600), flipped)
    names = np.array([f"a{n:02d}" for n in range(n_annotators)])
    hand = rng.choice(["l", "r"], n_annotators)
    people = {"annotator": names, "region": np.where(region, "south", "north"), "hand": hand}
    return ds.Annotations.from_arrays(item, names[who], label).with_tables(annotators=people)


@pytest.fixture(scope="module")
def labels() -> ds.Annotations:
    return crowd()


@pytest.fixture(scope="module")
def fitted(labels: ds.Annotations) -> ds.HPGM:
    return ds.HPGM(attributes=["region", "hand"], **QUICK).fit(labels)


def test_prior_by_hand() -> None:
    omega, eta = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.3, 0.1])
    values = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.2, 0.2, 0.6]])
    cell = np.array([[0, 2], [1, -1]])
    # 0.6 Ω + 0.3 B_0 + 0.1 B_2;  0.6 Ω + 0.3 B_1 + 0.1 Ω
    expected = [[0.62, 0.2, 0.18], [0.35, 0.21, 0.44]]
    np.testing.assert_allclose(annotator_prior(omega, eta, values, cell), expected)


def test_cells_number_the_values_of_all_attributes(labels: ds.Annotations, fitted: ds.HPGM) -> None:
    cells = AttributeCells.of(labels, fitted.attribute_values_)
    assert cells.n_values == 4
    assert set(cells.cell[:, 0]) == {0, 1}
    assert set(cells.cell[:, 1]) == {2, 3}


def test_answers_follow_the_attribute_with_an_effect(fitted: ds.HPGM) -> None:
    items = fitted.items_
    north, south = (fitted.predict_for({"region": region}, items) for region in ("north", "south"))
    even = np.arange(60) % 2 == 0
    order = np.argsort(items.astype(int))
    assert south[order][even, 1].mean() > 0.7 > 0.3 > north[order][even, 1].mean()
    assert max(south[order][~even, 1].mean(), north[order][~even, 1].mean()) < 0.2
    left, right = (fitted.predict_for({"hand": hand}) for hand in "lr")
    assert np.abs(left - right).mean() < 0.1
    np.testing.assert_array_equal(fitted.predict_for({"region": "north"}), north)
    np.testing.assert_allclose(north.sum(axis=1), 1)
    # unknown and rare values count as unknown; an unseen item has the answers of the average item
    with pytest.warns(DissensusWarning, match="not fitted on item -1"):
        unknown = fitted.predict_for({}, [*items[:2], -1])
    with pytest.warns(DissensusWarning, match="'east' is no value of region"):
        np.testing.assert_array_equal(unknown[:2], fitted.predict_for({"region": "east"}, items[:2]))
    assert 0.1 < unknown[2, 1] < 0.5


def test_hidden_annotators_are_predicted_better_with_attributes(labels: ds.Annotations) -> None:
    hidden = labels.annotator < 6
    part = labels.take_rows(~hidden)
    model = ds.HPGM(attributes=["region"], **QUICK).fit(part)
    plain = ds.HPGM(**QUICK).fit(part)
    items, label = labels.items[labels.item[hidden]], labels.label[hidden]
    regions = labels.annotator_column("region")[labels.annotator[hidden]]
    answers = np.stack(
        [model.predict_for({"region": v}, [m])[0] for v, m in zip(regions, items, strict=True)]
    )
    gain = log_probability_rows(answers, label) - log_probability_rows(plain.predict_proba(items), label)
    assert gain.mean() > 0.1


def test_pool_takes_the_mean_with_its_other_members(labels: ds.Annotations) -> None:
    pool = ds.Pool(attributes=["region"], **QUICK).fit(labels)
    alone = ds.HPGM(attributes=["region"], **QUICK).fit(labels)
    other = pool.members_[0].predict_proba(labels.items)
    expected = (alone.predict_for({"region": "south"}) + other) / 2
    np.testing.assert_allclose(pool.predict_for({"region": "south"}), expected, rtol=1e-9)


def test_saved_models_predict_the_same(fitted: ds.HPGM, tmp_path: Path) -> None:
    fitted.save(tmp_path / "model.safetensors")
    loaded = ds.load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        loaded.predict_for({"region": "south", "hand": "l"}),
        fitted.predict_for({"region": "south", "hand": "l"}),
    )


def test_new_annotators_are_placed_by_their_attributes(fitted: ds.HPGM) -> None:
    """One label hardly says who they are; their region does."""
    names = ["new1", "new2"]
    rows = ds.Annotations.from_arrays([1, 1], names, [0, 0], classes=fitted.classes_)
    new = rows.with_tables(annotators={"annotator": names, "region": ["north", "south"], "hand": ["l", "l"]})
    applied = fitted.apply(new)
    together = applied.draws_.co_clustering(np.arange(2))[0, 1]
    assert together < 0.3


def test_without_attributes_or_with_unknown_ones_there_is_an_error(
    labels: ds.Annotations, fitted: ds.HPGM
) -> None:
    with pytest.raises(DataError, match="no attribute 'colour'; the attributes are: region, hand"):
        fitted.predict_for({"colour": "red"})
    with pytest.raises(DataError, match="has no attributes"):
        ds.HPGM(**QUICK).fit(labels[:10]).predict_for({"region": "north"})
    with pytest.raises(DataError, match="no column 'colour'"):
        ds.HPGM(attributes=["colour"], **QUICK).fit(labels)
    with pytest.raises(DataError, match="cannot be updated"):
        fitted.update(labels[:1])
    assert not fitted.can_continue


def test_predictions_do_not_depend_on_who_is_applied_or_represented(
    labels: ds.Annotations, fitted: ds.HPGM
) -> None:
    items = fitted.items_[:5]
    south = fitted.predict_for({"region": "south"}, items)
    for names in (["new1", "new2"], [str(name) for name in fitted.annotators_[1:4:2]]):
        new = ds.Annotations.from_arrays([*items[:2]], names, [0, 0], classes=fitted.classes_)
        applied = fitted.apply(new)
        np.testing.assert_allclose(applied.predict_for({"region": "south"}, items[:1]), south[:1], atol=0.1)
    settings = {"attributes": ["region"], "represent": {"region": "south"}}
    north = ds.HPGM(**settings, **QUICK).fit(labels).predict_for({"region": "north"})
    even = np.argsort(fitted.items_.astype(int))[::2]
    assert north[even, 1].mean() < 0.3


def test_unknown_values_are_warned_about_and_numbers_are_compared_as_numbers(
    labels: ds.Annotations, fitted: ds.HPGM
) -> None:
    with pytest.warns(DissensusWarning, match="'nort' is no value of region in the fit, .*: north, south"):
        fitted.predict_for({"region": "nort"})
    ages = np.where(np.arange(40) % 2, 30.0, 20.0)
    aged = labels.with_tables(annotators={"annotator": labels.annotators, "age": ages})
    model = ds.HPGM(attributes=["age"], **QUICK).fit(aged)
    np.testing.assert_array_equal(model.predict_for({"age": 30}), model.predict_for({"age": "30.0"}))


def test_attributes_without_frequent_values_change_nothing(labels: ds.Annotations) -> None:
    rare = labels.with_tables(
        annotators={"annotator": labels.annotators, "city": [f"c{n}" for n in range(40)]}
    )
    model = ds.HPGM(attributes=["city"], **QUICK).fit(rare)
    with pytest.warns(DissensusWarning, match="its values are: none"):
        np.testing.assert_allclose(model.predict_for({"city": "c1"}).sum(axis=1), 1)
