"""The pool of models: equal parts, draws of each, intervals, saving, other items, more labels."""

import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError, ModelFileError
from dissensus.labels.features import with_features
from dissensus.models.sampled import item_differences
from dissensus.tables.arrays import read_arrays, write_arrays
from tests.helpers.judge import seen, table
from tests.helpers.scales import graded_scale

pytestmark = pytest.mark.slow

SHORT: dict[str, Any] = {"n_chains": 2, "n_sweeps": 20}
NOMINAL = ds.simulate(60, 12, 3, labels_per_item=4, seed=3).annotations


def with_names(labels: ds.Annotations) -> ds.Annotations:
    """Return the labels with texts as ids."""
    item, annotator, label = labels.columns
    names = [f"i{m:02d}" for m in item], [f"a{n:02d}" for n in annotator], labels.classes[label]
    return ds.Annotations.from_arrays(*names, label_type=labels.label_type)


ORDINAL = with_names(graded_scale(1, n_items=60, n_annotators=12, n_labels=4)[0])


@pytest.fixture(scope="module")
def nominal() -> ds.Pool:
    return ds.Pool(n_jobs=1, **SHORT).fit(NOMINAL)


@pytest.fixture(scope="module")
def ordinal() -> ds.Pool:
    return ds.Pool(n_jobs=1, **SHORT).fit(ORDINAL)


def assert_same(first: ds.Pool, second: ds.Pool) -> None:
    (facts, arrays), (other_facts, others) = first._state(), second._state()
    assert facts == other_facts
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)


def names_of(model: ds.Pool) -> list[str]:
    return [type(member).__name__ for member in model.members_]


def test_ordered_classes_have_three_members(nominal: ds.Pool, ordinal: ds.Pool) -> None:
    assert names_of(nominal) == ["LatentPositions"]
    assert names_of(ordinal) == ["LatentPositions", "GradedResponse"]
    two = NOMINAL.take_rows(NOMINAL.label < 2)
    two = ds.Annotations.from_arrays(
        two.items[two.item], two.annotators[two.annotator], two.label, label_type="ordinal"
    )
    assert names_of(ds.Pool(**SHORT).fit(two)) == ["LatentPositions"]  # two classes have no order


@pytest.mark.parametrize("labels", [NOMINAL, ORDINAL], ids=["nominal", "ordinal"])
@pytest.mark.parametrize("weight_by", ["labels", "annotators"])
def test_equal_parts_by_hand(labels: ds.Annotations, weight_by: str) -> None:
    """The answers, also of annotators and of unseen items, are means; so are the draws."""
    pool = ds.Pool(adjust=False, weight_by=weight_by, **SHORT).fit(labels)
    members: list[Any] = [
        ds.HPGM(adjust=False, weight_by=weight_by, **SHORT).fit(labels),
        ds.LatentPositions(adjust=False, weight_by=weight_by, **SHORT).fit(labels),
    ]
    if labels.label_type == "ordinal":
        members.append(ds.GradedResponse(weight_by=weight_by).fit(labels))
    for name in ("label_distributions_", "prior_distribution_"):
        expected = np.mean([getattr(model, name) for model in members], axis=0)
        np.testing.assert_allclose(getattr(pool, name), expected, rtol=1e-12)
    items, annotators = (
        [*labels.items[:5], "unseen"],
        [*labels.annotators[:3], "unseen", *labels.annotators[:2]],
    )
    answers = [model.predict_proba(items, annotators) for model in members]
    np.testing.assert_allclose(pool.predict_proba(items, annotators), np.mean(answers, axis=0), rtol=1e-9)
    # as many draws of each
    size, rest = divmod(len(pool.share_draws_), len(members))
    assert rest == 0
    for number, model in enumerate(members[:2]):
        rows = np.linspace(0, len(model.share_draws_) - 1, size).astype(int)
        part = pool.share_draws_[number * size : (number + 1) * size]
        np.testing.assert_array_equal(part, model.share_draws_[rows])
    if len(members) == 3:
        gap = pool.share_draws_[2 * size :].mean(axis=0) - members[2].label_distributions_
        assert np.abs(gap).mean() < 3 * 0.5 / np.sqrt(size)
    # the difference of two runs is that of the mean; graded response has no chains
    variance = (members[0].run_variance_ + members[1].run_variance_) / len(members) ** 2
    np.testing.assert_allclose(pool.item_difference_, item_differences(variance), rtol=1e-6)
    assert float(pool.run_difference_) == pytest.approx(item_differences(variance).mean(), rel=1e-9)


def test_intervals_contain_the_mean(nominal: ds.Pool, ordinal: ds.Pool) -> None:
    for model in (nominal, ordinal):
        mean, intervals = model.label_distributions_, model.intervals()
        np.testing.assert_allclose(mean.sum(axis=1), 1, rtol=1e-6)
        np.testing.assert_allclose(model.share_draws_.sum(axis=2), 1, rtol=1e-4)
        assert ((intervals.low <= mean) & (mean <= intervals.high)).all()
        np.testing.assert_allclose(model.share_draws_.mean(axis=0), mean, atol=0.15)


def test_predicts_ordered_classes_better_than_hpgm() -> None:
    labels, _ = graded_scale(1)
    visible, hidden = labels.split_labels(0.2, 0)
    alone, pooled = (kind(n_chains=2, n_sweeps=60).fit(visible) for kind in (ds.HPGM, ds.Pool))
    assert pooled.score(hidden) > alone.score(hidden) + 0.01
    assert pooled.score_items(hidden) > alone.score_items(hidden)


def test_threads_give_identical_bits(ordinal: ds.Pool) -> None:
    assert_same(ds.Pool(n_jobs=2, **SHORT).fit(ORDINAL), copy.copy(ordinal).set_params(n_jobs=2))


@pytest.mark.parametrize("apart", [False, True])
def test_saved_pools_have_the_same_bits(ordinal: ds.Pool, apart: bool, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    (ordinal.save_draws_apart if apart else ordinal.save)(path)
    loaded = ds.load(path)
    assert_same(loaded, ordinal)
    np.testing.assert_array_equal(loaded.log_probabilities(ORDINAL), ordinal.log_probabilities(ORDINAL))
    assert loaded.annotator_frame().keys() >= {"cluster", "leniency", "slope", "guesses"}
    new = ds.Annotations.from_arrays(["new"] * 2, ORDINAL.annotators[:2], ORDINAL.classes[:2])
    assert_same(loaded.apply(new), ordinal.apply(new))
    assert_same(loaded.update(new), copy.copy(ordinal).update(new))


@pytest.mark.parametrize("kind", ["nominal", "ordinal"])
def test_apply_keeps_items_without_new_labels(kind: str, request: Any) -> None:
    model: ds.Pool = request.getfixturevalue(kind)
    labels = NOMINAL if kind == "nominal" else ORDINAL
    same = model.apply(labels.take_items(np.arange(50)))
    np.testing.assert_array_equal(same.label_distributions_, model.label_distributions_[:50])
    # a new annotator labels item 3 and a new item
    top = labels.classes[-1]
    more = ds.Annotations.from_arrays([labels.items[3], "new"], ["newcomer"] * 2, [top] * 2)
    applied = model.apply(more)
    for name in ("label_distributions_", "share_draws_"):
        assert not np.array_equal(getattr(applied, name)[..., 0, :], getattr(model, name)[..., 3, :])
    both = ds.Annotations.from_arrays(
        [*labels.items[labels.item], *more.items[more.item]],
        [*labels.annotators[labels.annotator], "newcomer", "newcomer"],
        [*labels.classes[labels.label], top, top],
        label_type=labels.label_type,
    )
    applied = model.apply(both)
    kept = np.setdiff1d(model.items_, [labels.items[3]])
    np.testing.assert_array_equal(applied.predict_proba(kept), model.predict_proba(kept))
    assert applied.intervals().low.shape == (61, labels.n_classes)


@pytest.mark.parametrize("kind", ["nominal", "ordinal"])
def test_apply_to_strangers(kind: str, request: Any) -> None:
    """New items and annotators: draws sum to one, unanimous answers have 0.6, and apply can be repeated."""
    model: ds.Pool = request.getfixturevalue(kind)
    top = model.classes_[-1]
    new = ds.Annotations.from_arrays(["new"] * 6, [f"stranger {n}" for n in range(6)], [top] * 6)
    applied = model.apply(new)
    for part in (applied, applied.apply(new)):
        np.testing.assert_allclose(part.share_draws_.sum(axis=2), 1, rtol=1e-4)
        np.testing.assert_array_equal(part.members_[0].crowd_draws_, model.members_[0].a_draws_)
    other = ds.Annotations.from_arrays(["other"], ["a stranger"], [top])
    gap = applied.apply(other).label_distributions_ - model.apply(other).label_distributions_
    assert np.abs(gap).max() < 0.05  # the population is still that of the fit


def test_apply_raises_unanimous_answers_of_new_items() -> None:
    rng = np.random.default_rng(1)  # labels without structure, so that no share is large
    labels = ds.Annotations.from_arrays(
        np.repeat(np.arange(40), 4), rng.integers(12, size=160), rng.integers(5, size=160)
    )
    model = ds.Pool(**SHORT).fit(labels)
    unanimous = ds.Annotations.from_arrays([99] * 6, labels.annotators[:6], [0] * 6)
    applied = model.apply(unanimous)
    assert np.mean([member.label_distributions_[0, 0] for member in applied.members_]) < 0.6
    assert 0.6 <= applied.label_distributions_[0, 0] < 0.61


def test_apply_adds_to_what_the_fit_knows_of_an_item(ordinal: ds.Pool) -> None:
    item = int(ORDINAL.counts[:, 0].argmax())
    new = ds.Annotations.from_arrays([ORDINAL.items[item]], ["a stranger"], [ORDINAL.classes[-1]])
    for model in (ordinal, ordinal.members_[1]):
        before, after = model.label_distributions_[item], model.apply(new).label_distributions_[0]
        assert before[0] > after[0] > 0.5 * before[0]
        # labels of the fit are not counted again
        label = ORDINAL.take_rows(np.flatnonzero(ORDINAL.item == item)[:1])
        pair = ORDINAL.items[[item]], label.annotators[label.annotator]
        same = model.apply(label).predict_proba(*pair), model.predict_proba(*pair)
        np.testing.assert_allclose(*same, rtol=0.01)


def test_the_worst_reason_to_stop_counts(monkeypatch: Any) -> None:
    reasons = iter(["tolerance", "number of chains"])
    sample_chains = ds.HPGM._sample_chains

    def sample(self: Any, *arguments: Any) -> Any:
        chains = sample_chains(self, *arguments)
        self.stopped_ = next(reasons)
        return chains

    monkeypatch.setattr("dissensus.models.sampled.SampledModel._sample_chains", sample)
    assert ds.Pool(**SHORT).fit(NOMINAL).stopped_ == "number of chains"


def test_an_item_with_more_labels_than_are_sampled() -> None:
    labels = ds.simulate(1, 40, 3, labels_per_item=40, seed=0).annotations
    assert np.isfinite(ds.Pool(max_sampled=20, **SHORT).fit(labels).label_distributions_).all()


FORGED = "learned_rows_", "last_states_.0.w", "last_states_.0.z", "draws_.z", "members_.0.learned_rows_"


@pytest.mark.parametrize("name", FORGED)
def test_forged_codes_are_rejected(nominal: ds.Pool, name: str, tmp_path: Path) -> None:
    """Compiled loops use codes as indices, so that a wrong one would crash the process."""
    nominal.save(tmp_path / "model.safetensors")
    header, arrays = read_arrays(tmp_path / "model.safetensors")
    array = arrays[name].copy()
    array.flat[-1] = 10**8
    write_arrays(tmp_path / "forged.safetensors", header, arrays | {name: array})
    with pytest.raises(ModelFileError, match=r"damaged .*has other codes than 0 to"):
        ds.load(tmp_path / "forged.safetensors")


@pytest.mark.parametrize("name", ["last_states_.0.from_item", "draws_.phi", "members_.0.last_states_.0.x"])
def test_forged_shapes_are_rejected(nominal: ds.Pool, name: str, tmp_path: Path) -> None:
    nominal.save(tmp_path / "model.safetensors")
    header, arrays = read_arrays(tmp_path / "model.safetensors")
    write_arrays(tmp_path / "forged.safetensors", header, arrays | {name: arrays[name][:-1]})
    with pytest.raises(ModelFileError, match=r"damaged .* of shape"):
        ds.load(tmp_path / "forged.safetensors")


def test_all_draws_lie_beside_the_model(nominal: ds.Pool, tmp_path: Path) -> None:
    nominal.save_draws_apart(tmp_path / "model.safetensors")
    names = read_arrays(tmp_path / "draws.safetensors")[1]
    assert {"members_.0.x_draws_", "members_.0.learned_rows_", "draws_.beliefs"} <= names.keys()
    sizes = {file.stem: file.stat().st_size for file in tmp_path.iterdir()}
    assert sizes["model"] < 0.1 * sizes["draws"]


def test_update_resumes_and_adds_labels(ordinal: ds.Pool) -> None:
    before, later = ORDINAL.split_labels(0.1, seed=0)
    model = ds.Pool(n_chains=2, n_sweeps=60).fit(before)
    n_chains = len(model.last_states_)
    new = ds.Annotations.from_arrays(
        ["new"] * 2, ["newcomer", ORDINAL.annotators[1]], ORDINAL.classes[[0, 0]]
    )
    updated = copy.copy(model).update(later).update(new)
    assert updated.can_continue
    assert len(updated.last_states_) == n_chains
    assert len(updated.members_[0].last_states_) == len(model.members_[0].last_states_)
    assert updated.training_labels().n_labels == ORDINAL.n_labels + 2
    assert len(updated.items_) == 61
    assert "newcomer" in set(updated.annotators_)
    old, renewed = (run.predict_proba(ORDINAL.items) for run in (model, updated))
    whole = ordinal.predict_proba(ORDINAL.items)
    assert np.abs(renewed - whole).sum() < np.abs(old - whole).sum()
    for member in updated.members_:
        assert (len(member.items_), len(member.annotators_)) == (61, 13)
    # shorter chains than those of a fit
    assert len(updated.members_[0].trace_draws_[0]) < len(model.members_[0].trace_draws_[0])


def test_update_where_halves_disagree(monkeypatch: Any) -> None:
    model = ds.Pool(**SHORT).fit(NOMINAL)
    monkeypatch.setattr("dissensus.models.sampled.MAX_RUN_DIFFERENCE", 0.0)
    new = ds.Annotations.from_arrays(["new"] * 2, NOMINAL.annotators[:2], NOMINAL.classes[:2])
    assert len(model.update(new).items_) == 61


def test_copies_count_once_in_all_members() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=150)
    columns = {f"h{i}": seen(rng, truth, 3, 0.75) for i in range(6)}
    plain, crowded = table(columns), table(columns | {f"h2-{i}": columns["h2"] for i in range(3)})
    before, after = (ds.Pool(**SHORT).fit(labels) for labels in (plain, crowded))
    np.testing.assert_array_equal(before.label_distributions_, after.label_distributions_)
    np.testing.assert_array_equal(before.share_draws_, after.share_draws_)
    family = np.flatnonzero([str(name).startswith("h2") for name in after.annotators_])
    assert len(family) == 4
    latent = after.members_[0]
    for first, second in pairwise(family):
        np.testing.assert_array_equal(latent.a_draws_[:, first], latent.a_draws_[:, second])
    for member in after.members_:
        np.testing.assert_array_equal(member.annotator_weights_, after.annotator_weights_)
    assert after.annotator_weights_.sum() == pytest.approx(1)
    alone, copied = (model.predict_proba([1, 1], ["h2", "h3"]) for model in (before, after))
    np.testing.assert_allclose(alone, copied, rtol=1e-12)
    assert after.training_labels().n_labels == 9 * 150
    more = ds.Annotations.from_arrays([999, 999], ["h1", "h2-0"], [0, 0])
    assert after.update(more).training_labels().n_labels == 9 * 150 + 2


@pytest.mark.parametrize(
    "settings", [{"weight_by": "annotators"}, {"represent": {"group": "a"}}, {}], ids=["by", "who", "plain"]
)
def test_weights_reach_all_members(settings: dict[str, Any]) -> None:
    load = np.arange(12) % 4 == 0
    rows = ~load[ORDINAL.annotator] | (ORDINAL.item < 30)  # some label less
    labels = ORDINAL.take_rows(rows)
    groups = ["a" if n < 6 else "b" for n in range(12)]
    labels = labels.with_tables(annotators={"annotator": labels.annotators, "group": groups})
    model = ds.Pool(**settings, **SHORT).fit(labels)
    n = labels.annotator_load.astype(float)
    n = np.ones(12) if "weight_by" in settings else n * ([g == "a" for g in groups] if settings else 1)
    np.testing.assert_allclose(model.annotator_weights_, n / n.sum())
    assert len(model.members_) == 2
    for member in model.members_:
        np.testing.assert_allclose(member.annotator_weights_, n / n.sum())


def test_more_labels_than_are_sampled(tmp_path: Path) -> None:
    serial, threaded = (ds.Pool(max_sampled=120, n_jobs=n, **SHORT).fit(ORDINAL) for n in (1, 2))
    assert_same(serial.set_params(n_jobs=2), threaded)
    assert serial.label_distributions_.shape == (60, 5)
    assert serial.share_draws_.shape[1:] == (60, 5)
    whole = ds.Pool(**SHORT).fit(ORDINAL)
    gap = np.abs(serial.label_distributions_ - whole.label_distributions_).sum(axis=1) / 2
    assert gap.mean() < 0.15
    assert not serial.can_continue
    with pytest.raises(DataError, match="max_sampled"):
        serial.update(ORDINAL)
    serial.save(tmp_path / "model.safetensors")
    assert_same(ds.load(tmp_path / "model.safetensors"), serial)
    again = serial.apply(ORDINAL.take_items(np.arange(20)))
    np.testing.assert_array_equal(again.label_distributions_, serial.label_distributions_[:20])


def test_features_of_ordered_classes(tmp_path: Path) -> None:
    labels = with_features(ORDINAL, np.random.default_rng(0).normal(size=(60, 3)))
    model = ds.Pool(use_features=True, **SHORT).fit(labels)
    assert names_of(model) == ["LatentPositions", "GradedResponse"]
    alone = ds.HPGM(use_features=True, **SHORT).fit(labels)
    np.testing.assert_array_equal(model.hint_weights_, alone.hint_weights_)
    assert not model.can_continue
    model.save(tmp_path / "model.safetensors")
    loaded = ds.load(tmp_path / "model.safetensors")
    assert_same(loaded, model)
    part = labels.take_items(np.arange(20))
    np.testing.assert_array_equal(loaded.apply(part).label_distributions_, model.label_distributions_[:20])
    with pytest.raises(DataError, match="no features"):
        model.update(labels)


@pytest.mark.filterwarnings("error")
def test_a_single_chain_says_nothing_about_another_run() -> None:
    pool = ds.Pool(n_chains=1, n_sweeps=20).fit(NOMINAL)
    assert np.isnan(pool.run_difference_)
    assert np.isnan(pool.item_difference_).all()
