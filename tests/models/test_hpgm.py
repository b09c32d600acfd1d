"""HPGM: accuracy, intervals, reproducibility, resumed fits, updates, new items, features."""

import copy
import threading
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.engine import current, using
from dissensus.errors import DataError, DissensusError, DissensusWarning, ModelFileError
from dissensus.metrics import kl
from dissensus.models.hpgm.sampler import hinted_weights, sweep
from dissensus.models.sampled import (
    MAX_ROUNDS,
    MAX_TIMED_ROUNDS,
    item_differences,
    run_variance,
    split_rhats,
    stored_row,
)
from tests.helpers.cluster import Counting, StoppedError
from tests.helpers.sizes import usually

pytestmark = pytest.mark.slow

CROWD = ds.simulate(160, 30, 3, labels_per_item=6, seed=4)
LABELS = CROWD.annotations
SHORT: dict[str, Any] = {"n_sweeps": 40, "n_chains": 2}


@pytest.fixture(scope="module")
def fitted() -> ds.HPGM:
    return ds.HPGM(n_sweeps=90).fit(LABELS)


@pytest.fixture(scope="module")
def brief() -> ds.HPGM:
    return ds.HPGM(n_jobs=1, **SHORT).fit(LABELS)


def assert_same(first: ds.HPGM, second: ds.HPGM) -> None:
    (facts, arrays), (other_facts, others) = first._state(), second._state()
    assert facts == other_facts
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)


def population_by_load(crowd: Any) -> np.ndarray:
    """Return the answers of the population in which annotators count as often as they labelled."""
    load = np.bincount(crowd.annotator_cluster, crowd.annotations.annotator_load, len(crowd.omega))
    return np.einsum("l,klp->kp", load / load.sum(), crowd.theta)[crowd.item_cluster]


def covered(intervals: Any, truth: np.ndarray) -> np.ndarray:
    return (intervals.low <= truth) & (truth <= intervals.high)


@pytest.mark.no_cover
def test_closer_to_the_population_than_counts_and_mixtures(fitted: ds.HPGM) -> None:
    truth = population_by_load(CROWD)
    assert kl(truth, fitted.label_distributions_) < kl(truth, ds.FMM(8).fit(LABELS).label_distributions_)
    counts = ds.EmpiricalDistribution().fit(LABELS)
    assert kl(truth, fitted.label_distributions_) < 0.6 * kl(truth, counts.label_distributions_)


def test_intervals_cover_the_truth(fitted: ds.HPGM) -> None:
    wide, narrow = fitted.intervals(0.9), fitted.intervals(0.5)
    assert 0.80 < covered(wide, CROWD.population).mean() < 0.98
    assert ((wide.high - wide.low) >= (narrow.high - narrow.low)).all()


@pytest.mark.verify
def test_coverage_over_many_crowds() -> None:
    shares = []
    for seed in range(usually(3, verify=20)):
        crowd = ds.simulate(200, 40, 4, labels_per_item=6, seed=100 + seed)
        intervals = ds.HPGM().fit(crowd.annotations).intervals(0.9)
        shares.append(covered(intervals, crowd.population).mean())
    assert 0.86 < np.mean(shares) < 0.96  # crowds of few clusters, where about equal weights are too wide


@pytest.mark.no_cover
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_chains_run_on_threads(monkeypatch: Any, n_jobs: int) -> None:
    seen = set()

    def watched(*arguments: Any) -> Any:
        seen.add(threading.get_ident())
        time.sleep(0.001)  # so that both threads get work
        return sweep(*arguments)

    monkeypatch.setattr("dissensus.models.hpgm.sampler.sweep", watched)
    ds.HPGM(n_jobs=n_jobs, **SHORT).fit(LABELS)
    assert len(seen) == n_jobs


@pytest.mark.parametrize("stop", [3, 25])
def test_resumed_fit_gives_the_same_bits(stop: int, brief: ds.HPGM, tmp_path: Path) -> None:
    often = {"checkpoint": tmp_path, "checkpoint_every": 2, "progress": Counting(stop)}
    with pytest.raises(StoppedError), ds.resources(**often):
        ds.HPGM(n_jobs=1, **SHORT).fit(LABELS)
    with ds.resources(checkpoint=tmp_path, progress=False):
        assert_same(ds.HPGM(n_jobs=1, **SHORT).fit(LABELS), brief)


def test_convergence_diagnostics(fitted: ds.HPGM) -> None:
    assert fitted.rhat_.shape == fitted.effective_draws_.shape == (len(fitted.quantities_),)
    by_chain = fitted.share_draws_.reshape(len(fitted.trace_draws_), -1, 160, 3)
    each = [max(split_rhats(by_chain[:, :, m, p : p + 1])[0] for p in range(3)) for m in range(160)]
    np.testing.assert_allclose(fitted.share_rhat_, each, rtol=1e-6)
    most = sorted(each)[143]  # the 0.9 quantile of 160 items
    assert fitted.convergence()["item shares"] == pytest.approx(most, abs=1e-3)


@pytest.mark.parametrize(
    ("least", "n_chains", "stopped"), [(1.0, 2, "tolerance"), (0.0, 6, "number of chains")]
)
def test_chains_are_added_until_two_halves_agree(
    monkeypatch: Any, brief: ds.HPGM, least: float, n_chains: int, stopped: str
) -> None:
    monkeypatch.setattr("dissensus.models.sampled.MAX_RUN_DIFFERENCE", least)
    model = ds.HPGM(**SHORT).fit(LABELS)
    assert (len(model.last_states_), model.stopped_) == (n_chains, stopped)
    # chains are numbered: the first ones are the same
    n = len(model.trace_draws_[:2].ravel()) // len(model.quantities_)
    np.testing.assert_array_equal(model.trace_[:n], brief.trace_[:n])


def test_run_difference_by_hand() -> None:
    """Three chains and two items: the difference of two runs has a variance of 2/3 of that of chains."""
    answers = [np.array([[p, 1 - p], [0.5, 0.5]]) for p in (0.2, 0.4, 0.6)]
    variance = 2 / 3 * 0.2**2
    np.testing.assert_allclose(run_variance(answers), [[variance] * 2, [0, 0]], atol=1e-15)
    # the mean of |D| for D ~ N(0, variance), by simulation
    moved = np.abs(np.random.default_rng(0).normal(0, np.sqrt(variance), 1_000_000)).mean()
    np.testing.assert_allclose(item_differences(run_variance(answers)), [moved, 0], rtol=3e-3)
    assert np.isnan(item_differences(run_variance(answers[:1]))).all()
    one = ds.HPGM(n_chains=1, n_sweeps=10).fit(LABELS)
    assert np.isnan(one.run_difference_)
    assert (len(one.last_states_), one.stopped_) == (1, "number of chains")


@pytest.mark.parametrize(
    ("kind", "n_labels"), [(ds.HPGM, 3), (ds.HPGM, 8), (ds.Pool, 3), (ds.LatentPositions, 5)]
)
def test_run_difference_is_that_of_two_runs(kind: Any, n_labels: int) -> None:
    labels = ds.simulate(60, 15, 3, labels_per_item=n_labels, seed=n_labels).annotations
    runs = [kind(n_sweeps=50, seed=seed).fit(labels) for seed in range(usually(3, verify=8))]
    pairs = [(a, b) for n, a in enumerate(runs) for b in runs[:n]]
    moved = [np.abs(a.label_distributions_ - b.label_distributions_).sum(axis=1).mean() / 2 for a, b in pairs]
    assert 0.5 < np.mean([run.run_difference_ for run in runs]) / np.mean(moved) < 2
    # the items that are said to move most move about as far
    said = np.mean([run.item_difference_ for run in runs], axis=0)
    by_item = np.mean(
        [np.abs(a.label_distributions_ - b.label_distributions_).sum(axis=1) / 2 for a, b in pairs], axis=0
    )
    top = np.argsort(-said)[: len(said) // 3]
    assert 0.4 < said[top].mean() / by_item[top].mean() < 2.5


@pytest.mark.parametrize("kind", [ds.HPGM, ds.LatentPositions, ds.Pool])
def test_time_limit_leaves_one_round(monkeypatch: Any, kind: Any) -> None:
    monkeypatch.setattr("dissensus.models.sampled.MAX_RUN_DIFFERENCE", 0.0)
    with using(replace(current(), minutes=1e-9)):
        model = kind(n_chains=2, n_sweeps=20).fit(LABELS)
    assert (len(model.last_states_), model.stopped_) == (2, "time limit")
    assert np.isfinite(model.run_difference_)


@pytest.mark.parametrize("kind", [ds.HPGM, ds.Pool])
def test_chains_are_added_until_the_time_limit(monkeypatch: Any, kind: Any) -> None:
    monkeypatch.setattr("dissensus.models.sampled.MAX_TIMED_DIFFERENCE", 0.0)
    monkeypatch.setattr("dissensus.models.sampled.MAX_TIMED_ROUNDS", 10_000)
    started = time.monotonic()
    with using(replace(current(), minutes=2 / 60)):
        model = kind(n_chains=2, n_sweeps=20).fit(LABELS)
    assert time.monotonic() - started < 4
    for member in [model, *getattr(model, "members_", [])]:  # each has its part of the time
        assert len(member.last_states_) > 2 * MAX_ROUNDS
        assert member.stopped_ == "time limit"


def test_more_time_makes_two_runs_more_alike() -> None:
    plain = ds.Pool(n_chains=2, n_sweeps=20).fit(LABELS)
    with using(replace(current(), minutes=5.0)):
        longer = ds.Pool(n_chains=2, n_sweeps=20).fit(LABELS)
    for run, before in zip((longer, *longer.members_), (plain, *plain.members_), strict=True):
        assert run.stopped_ in ("tolerance", "number of chains")
        assert len(run.last_states_) == 2 * MAX_TIMED_ROUNDS > len(before.last_states_)
    assert longer.run_difference_ < plain.run_difference_


@pytest.mark.no_cover
def test_apply_is_close_to_fitting_the_items(fitted: ds.HPGM) -> None:
    part, new = ds.HPGM(n_sweeps=90).fit(LABELS[:110]), LABELS[110:]
    applied = part.apply(new)
    expected = fitted.predict_proba(new.items)
    gap = np.abs(applied.label_distributions_ - expected).sum(axis=1).mean() / 2
    assert gap < 0.08
    prior = np.abs(part.prior_distribution_ - expected).sum(axis=1).mean() / 2
    assert gap < 0.5 * prior
    assert (applied.intervals().low <= applied.label_distributions_).all()


def test_apply_learns_new_annotators(fitted: ds.HPGM) -> None:
    # always answers c1
    rows = [(item, "newcomer", "c1") for item in LABELS.items[:60]]
    applied = fitted.apply(ds.Annotations.from_arrays(*zip(*rows, strict=True)))
    new = applied.predict_proba(LABELS.items[:60], ["newcomer"] * 60)[:, 0]
    others = fitted.predict_proba(LABELS.items[:60], ["unseen"] * 60)[:, 0]
    assert new.mean() > others.mean() + 0.1


@pytest.mark.parametrize(("n", "size"), [(30, 12), (30, 30), (5, 2), (7, 1)])
def test_stored_draws_are_evenly_spaced(n: int, size: int) -> None:
    rows = [stored_row(index, n, size) for index in range(n)]
    assert [row for row in rows if row is not None] == list(range(size))
    gaps = np.diff([index for index, row in enumerate(rows) if row is not None])
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1


@pytest.mark.parametrize("interval", [0.0, 1.5, "half"])
def test_invalid_interval_is_refused(fitted: ds.HPGM, interval: Any) -> None:
    with pytest.raises(DissensusError, match="'interval' parameter of to_frame must be a float"):
        fitted.to_frame(interval=interval)


@pytest.mark.no_cover
def test_update_is_close_to_a_fit_from_scratch() -> None:
    before, later = LABELS.split_labels(0.1, seed=0)
    n_sweeps = usually(45, verify=90)
    old = ds.HPGM(n_sweeps=n_sweeps).fit(before)
    updated = copy.copy(old).update(later)
    scratch, again = (ds.HPGM(n_sweeps=n_sweeps, seed=seed).fit(LABELS) for seed in (1, 2))
    assert updated.training_labels().fingerprint() == LABELS.fingerprint()

    def gap(first: ds.HPGM, second: ds.HPGM) -> float:
        return float(np.abs(first.label_distributions_ - second.label_distributions_).sum(axis=1).mean() / 2)

    # about as near as two fits from scratch are to each other, and nearer than the old fit
    assert gap(updated, scratch) < 2 * gap(again, scratch)
    assert gap(updated, scratch) < gap(old, scratch)


def test_update_adds_items_and_annotators() -> None:
    model = ds.HPGM(**SHORT).fit(LABELS[:120])
    new = ds.Annotations.from_arrays(["new item"] * 2, ["new annotator", "a01"], ["c1", "c1"])
    model.update(LABELS[120:]).update(new)
    assert len(model.items_) == 161
    assert "new annotator" in set(model.annotators_)
    assert model.training_labels().n_labels == LABELS.n_labels + 2
    assert model.n_labels_[list(model.items_).index("new item")] == 2


@pytest.mark.parametrize("kind", [ds.HPGM, ds.Pool])
def test_update_skips_labels_of_the_fit(kind: Any) -> None:
    model = kind(n_chains=2, n_sweeps=20).fit(LABELS[:30])
    before = model.training_labels().n_labels
    with pytest.raises(DataError, match="the fit: already has all 20 labels"):
        model.update(LABELS.take_rows(np.arange(20)))
    with pytest.warns(DissensusWarning, match=r"skipped [\d,]+ of [\d,]+ labels, which the fit already has"):
        model.update(LABELS[:31])
    assert model.training_labels().n_labels == before + LABELS[30:31].n_labels


def test_update_refuses_unknown_classes(fitted: ds.HPGM) -> None:
    stranger = ds.Annotations.from_arrays(["i1"], ["a01"], ["c9"])
    with pytest.raises(DataError, match="c9"):
        fitted.update(stranger)
    name = fitted.classes_[1]
    slip = ds.Annotations.from_arrays(["i1", "i2"], ["a01", "a02"], [name, name.upper()])
    message = f"item 'i2' by annotator 'a02': .* class '{name.upper()}'; did you mean '{name}'"
    with pytest.raises(DataError, match=message):
        fitted.update(slip)
    with pytest.raises(DataError, match="no chains to resume"):
        fitted.apply(LABELS).update(LABELS)


def test_co_clustering_separates_two_camps() -> None:
    rng = np.random.default_rng(3)
    rows = []
    for m, camp, n in product(range(60), "ab", range(4)):
        label = (m + (camp == "b" and rng.random() < 0.9) + (m // 2 == n)) % 2
        rows.append((f"i{m}", f"{camp}{n}", str(label)))
    model = ds.HPGM(n_chains=4, n_sweeps=40).fit(ds.Annotations.from_arrays(*zip(*rows, strict=True)))
    together = model.co_clustering(ids=[f"{camp}{n}" for camp in "ab" for n in range(4)])
    assert together[:4, 4:].max() < 0.1
    # chains of 400 sweeps divide a camp, too, in 5 to 45 of 100 draws
    for camp in (together[:4, :4], together[4:, 4:]):
        np.testing.assert_array_equal(np.diag(camp), 1)
        assert camp[~np.eye(4, dtype=bool)].mean() > 0.7
    np.testing.assert_array_equal(together, together.T)
    with pytest.raises(DataError, match="'unseen'"):
        model.co_clustering(ids=["unseen"])


def test_draws_saved_in_a_separate_file(fitted: ds.HPGM, brief: ds.HPGM, tmp_path: Path) -> None:
    fitted.save_draws_apart(tmp_path / "model.safetensors")
    assert_same(ds.load(tmp_path / "model.safetensors"), fitted)
    other = tmp_path / "other"
    other.mkdir()
    brief.save_draws_apart(other / "model.safetensors")
    (other / "draws.safetensors").replace(tmp_path / "draws.safetensors")
    with pytest.raises(ModelFileError, match="a different model"):
        ds.load(tmp_path / "model.safetensors")


def test_to_inference_data(fitted: ds.HPGM) -> None:
    arviz = pytest.importorskip("arviz")
    data = fitted.to_inference_data()
    shares = data.posterior["share"]
    assert shares.dims == ("chain", "draw", "item", "label")
    np.testing.assert_array_equal(np.concatenate(shares.values), fitted.share_draws_)
    assert list(shares.coords["label"].values) == list(fitted.classes_)
    summary = arviz.summary(data, var_names=["entropy", "lambda"])
    # ArviZ's R̂ is rank-normalised
    assert abs(summary.loc["entropy", "r_hat"] - fitted.rhat_[fitted.quantities_.index("entropy")]) < 0.1


def test_sampled_subset_answers_all_items() -> None:
    """Answers for items that were not sampled are as good, and within the intervals of a full fit."""
    crowd = ds.simulate(400, 30, 3, labels_per_item=6, seed=8)
    labels, truth = crowd.annotations, population_by_load(crowd)
    n_sweeps = usually(50, verify=90)
    whole = ds.HPGM(n_sweeps=n_sweeps).fit(labels)
    part = ds.HPGM(n_sweeps=n_sweeps, max_sampled=1_000).fit(labels)
    others = np.random.default_rng([0, 1 << 24]).permutation(400)[166:]  # not sampled: 166 × 6 labels are
    full, subset = (model.label_distributions_[others] for model in (whole, part))
    assert kl(truth[others], subset) < 1.3 * kl(truth[others], full)
    assert covered(whole.intervals(0.9), part.label_distributions_)[others].mean() > 0.9
    shares = [covered(part.intervals(0.9), truth)[others].mean()]
    for seed in (9, 10):
        crowd = ds.simulate(400, 30, 3, labels_per_item=6, seed=seed)
        part = ds.HPGM(n_sweeps=n_sweeps, max_sampled=1_000).fit(crowd.annotations)
        shares.append(covered(part.intervals(0.9), population_by_load(crowd))[others].mean())
    assert 0.8 < np.mean(shares) < 0.98
    fewer = SHORT | {"max_sampled": 300, "n_sweeps": 20}
    serial, threaded = (ds.HPGM(n_jobs=n, **fewer).fit(LABELS) for n in (1, 2))
    assert_same(serial, threaded)


def test_informative_features_help_and_noise_does_not_hurt() -> None:
    crowd = ds.simulate(160, 30, 3, labels_per_item=3, seed=4)
    labels, truth = crowd.annotations, population_by_load(crowd)
    rng = np.random.default_rng(0)
    informative = np.log(truth + 1e-3) @ rng.normal(size=(3, 8)) + 0.5 * rng.normal(size=(160, 8))
    short: dict[str, Any] = {"n_sweeps": 90, "n_chains": 2}
    plain = kl(truth, ds.HPGM(**short).fit(labels).label_distributions_)
    model = ds.HPGM(use_features=True, **short).fit(labels, informative)
    assert kl(truth, model.label_distributions_) < 0.85 * plain
    noise = ds.HPGM(use_features=True, **short).fit(labels, rng.normal(size=(160, 8)))
    assert kl(truth, noise.label_distributions_) < 1.15 * plain
    with pytest.raises(DataError, match="no features"):
        model.update(labels)


def test_hinted_weights_by_hand() -> None:
    """ψ = (½, ½), Φ = ((¾, ¼), (¼, ¾)), a hint of one label at the first class, with trust 2."""
    phi = np.array([[0.75, 0.25], [0.25, 0.75]])
    weights = hinted_weights(np.array([0.5, 0.5]), np.array([[0.5, -0.5]]), 2.0, phi)
    odds = (0.75 / 0.25) ** 1.0 / (0.25 / 0.75) ** 1.0  # Φ_11^{2·½} Φ_12^{−2·½} against Φ_21 and Φ_22
    np.testing.assert_allclose(weights[0, 0] / weights[0, 1], odds)
