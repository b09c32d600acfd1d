"""HPGM as a user meets it: its answers, how sure it is of them, new items, and fits that were stopped."""

from __future__ import annotations

import copy
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from cluster_help import Counting, StoppedError
from dissensus.errors import DataError, DissensusError, ModelFileError
from dissensus.metrics import kl
from dissensus.models.hpgm.sampler import hinted, sweep
from dissensus.models.sampled import spaced, split_rhats
from dissensus.models.scoring import in_classes
from sizes import usually

pytestmark = pytest.mark.slow

CROWD = ds.simulate(160, 30, 3, labels_per_item=6, seed=4)
LABELS = CROWD.annotations
SHORT: dict[str, Any] = {"n_sweeps": 40, "n_chains": 2}


@pytest.fixture(scope="module")
def fitted() -> ds.HPGM:
    return ds.HPGM(n_sweeps=90).fit(LABELS)


@pytest.fixture(scope="module")
def brief() -> ds.HPGM:
    """Short chains, in turn."""
    return ds.HPGM(n_jobs=1, **SHORT).fit(LABELS)


def assert_same(first: ds.HPGM, second: ds.HPGM) -> None:
    (facts, arrays), (other_facts, others) = first._state(), second._state()
    assert facts == other_facts
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)


@pytest.mark.no_cover
def test_it_is_nearer_to_the_population_than_counts_and_mixtures(fitted: ds.HPGM) -> None:
    truth = CROWD.population_by_load
    assert kl(truth, fitted.label_distributions_) < kl(truth, ds.FMM(8).fit(LABELS).label_distributions_)
    counts = ds.EmpiricalDistribution().fit(LABELS)
    assert kl(truth, fitted.label_distributions_) < 0.6 * kl(truth, counts.label_distributions_)


def test_nine_in_ten_intervals_hold_the_truth(fitted: ds.HPGM) -> None:
    known = fitted.intervals(0.9)
    truth = CROWD.population  # that the annotators are a sample of
    covered = ((known.low <= truth) & (truth <= known.high)).mean()
    assert 0.80 < covered < 0.98
    narrow = fitted.intervals(0.5)
    assert ((known.high - known.low) >= (narrow.high - narrow.low)).all()


@pytest.mark.verify
def test_coverage_over_many_crowds() -> None:
    covered = []
    for seed in range(usually(3, verify=20)):
        crowd = ds.simulate(200, 40, 4, labels_per_item=6, seed=100 + seed)
        known = ds.HPGM().fit(crowd.annotations).intervals(0.9)
        truth = crowd.population
        covered.append(((known.low <= truth) & (truth <= known.high)).mean())
    assert 0.86 < np.mean(covered) < 0.94


def test_more_labels_make_it_surer() -> None:
    few, many = (ds.simulate(60, 20, 3, labels_per_item=n, seed=1).annotations for n in (3, 12))
    widths = []
    for labels in (few, many):
        known = ds.HPGM(**SHORT).fit(labels).intervals()
        widths.append((known.high - known.low).mean())
    assert widths[1] < widths[0]


def test_an_answer_that_everybody_gave_is_the_answer() -> None:
    rows = [(f"i{m}", f"a{n}", "yes" if m % 4 == 0 else "no") for m in range(60) for n in range(6)]
    rng = np.random.default_rng(0)
    for m in range(1, 60, 4):  # some items on which two of six differ
        for n in rng.choice(6, size=2, replace=False):
            rows[m * 6 + n] = (f"i{m}", f"a{n}", "yes")
    item, annotator, label = zip(*rows, strict=True)
    model = ds.HPGM(**SHORT).fit(ds.Annotations.from_arrays(item, annotator, label))
    frame = model.to_frame().set_index("item")
    unanimous = frame.loc[[f"i{m}" for m in range(0, 60, 4)]]
    assert (unanimous["p_yes"] > 0.6).all()
    assert (unanimous["label"] == "yes").all()


@pytest.mark.no_cover
def test_threads_give_the_same_bits(brief: ds.HPGM) -> None:
    assert_same(brief, ds.HPGM(n_jobs=2, **SHORT).fit(LABELS))
    other = ds.HPGM(seed=1, **SHORT).fit(LABELS)
    assert not np.array_equal(brief.label_distributions_, other.label_distributions_)


@pytest.mark.no_cover
@pytest.mark.parametrize(("more", "n_jobs", "threads"), [(1, -1, 1), (0, -1, 2), (1, 2, 2)])
def test_of_few_labels_chains_run_one_after_the_other_unless_threads_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, more: int, n_jobs: int, threads: int
) -> None:
    seen = set()

    def watched(*given: Any) -> Any:
        seen.add(threading.get_ident())
        time.sleep(0.001)  # so that no thread does the work of two
        return sweep(*given)

    monkeypatch.setattr("dissensus.models.hpgm.model.sweep", watched)
    monkeypatch.setattr("dissensus.engine.n_cores", lambda: 2)
    monkeypatch.setattr("dissensus.models.hpgm.model.LABELS_FOR_THREADS", LABELS.n_labels + more)
    ds.HPGM(n_jobs=n_jobs, **SHORT).fit(LABELS)
    assert len(seen) == threads


@pytest.mark.parametrize("stop", [3, 25])
def test_a_fit_that_was_stopped_goes_on_with_the_same_bits(stop: int, brief: ds.HPGM, tmp_path: Path) -> None:
    with (
        pytest.raises(StoppedError),
        ds.resources(checkpoint=tmp_path, checkpoint_every=2, progress=Counting(stop)),
    ):
        ds.HPGM(n_jobs=1, **SHORT).fit(LABELS)
    with ds.resources(checkpoint=tmp_path, progress=False):
        assert_same(ds.HPGM(n_jobs=1, **SHORT).fit(LABELS), brief)


@pytest.mark.no_cover
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interrupt_ends_all_chains_between_two_sweeps(
    n_jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_begun, main = 0, threading.get_ident()

    def interrupted(*given: Any) -> Any:
        nonlocal n_begun
        n_begun += 1
        if n_begun == 6:
            signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.01)
        return sweep(*given)

    monkeypatch.setattr("dissensus.models.hpgm.model.sweep", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            ds.HPGM(n_jobs=n_jobs, n_chains=2, n_sweeps=300).fit(LABELS)
    finally:
        signal.signal(signal.SIGINT, before)
    assert n_begun < 100


def test_chains_that_do_not_agree_say_so(fitted: ds.HPGM) -> None:
    assert fitted.rhat_.shape == fitted.effective_draws_.shape == (len(fitted.quantities_),)
    by_chain = fitted.share_draws_.reshape(4, -1, 160, 3)
    each = [max(split_rhats(by_chain[:, :, m, p : p + 1])[0] for p in range(3)) for m in range(160)]
    np.testing.assert_allclose(fitted.share_rhat_, each, rtol=1e-6)
    assert fitted.settled_items_ == np.mean(np.array(each) <= 1.1)
    most = sorted(each)[143]  # 144 of 160 items, nine in ten, have no more
    assert fitted.convergence()["item shares"] == pytest.approx(most, abs=1e-3)
    assert fitted.stopped_ == ("agreement of chains" if most <= 1.1 else "number of sweeps")


@pytest.mark.no_cover
def test_new_items_get_nearly_the_answers_they_would_have_had(fitted: ds.HPGM) -> None:
    known, new = LABELS.take_items(np.arange(110)), LABELS.take_items(np.arange(110, 160))
    part = ds.HPGM(n_sweeps=90).fit(known)
    moved = part.apply(new)
    whole = fitted.predict_proba(new.items)
    gap = np.abs(moved.label_distributions_ - whole).sum(axis=1).mean() / 2
    assert gap < 0.08
    prior = np.abs(part.prior_distribution_ - whole).sum(axis=1).mean() / 2
    assert gap < 0.5 * prior
    assert (moved.intervals().low <= moved.label_distributions_).all()


def test_a_new_annotator_is_learned_from_their_labels(fitted: ds.HPGM) -> None:
    # somebody who answers c1 whatever the item
    rows = [(item, "newcomer", "c1") for item in LABELS.items[:60]]
    moved = fitted.apply(ds.Annotations.from_arrays(*zip(*rows, strict=True)))
    theirs = moved.predict_proba(LABELS.items[:60], ["newcomer"] * 60)[:, 0]
    others = fitted.predict_proba(LABELS.items[:60], ["nobody"] * 60)[:, 0]
    assert theirs.mean() > others.mean() + 0.1


def test_the_clusters_it_shows_are_those_of_a_draw(fitted: ds.HPGM) -> None:
    view = fitted.cluster_view()
    assert view.annotators is not None
    K, L, P = view.theta.shape
    assert view.items.shape == (160, K)
    assert view.annotators.shape == (30, L)
    for table in (view.items, view.annotators, view.theta, view.population):
        np.testing.assert_allclose(table.sum(axis=-1), 1.0, rtol=1e-5)
    assert P == 3


@pytest.mark.parametrize(("n", "size"), [(30, 12), (30, 30), (5, 2), (7, 1)])
def test_draws_that_are_kept_are_evenly_spaced(n: int, size: int) -> None:
    places = [spaced(index, n, size) for index in range(n)]
    kept = [place for place in places if place is not None]
    assert kept == list(range(size))
    gaps = np.diff([index for index, place in enumerate(places) if place is not None])
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1


@pytest.mark.parametrize("interval", [0.0, 1.5, "half"])
def test_an_interval_is_a_share(fitted: ds.HPGM, interval: Any) -> None:
    with pytest.raises(DissensusError, match="'interval' parameter of to_frame must be a float"):
        fitted.to_frame(interval=interval)


@pytest.mark.parametrize(
    ("item_kinds", "n_items", "expected"),
    [(None, 99, False), (None, 100, True), ("few", 100, False), ("many", 1, True)],
)
def test_kinds_of_items_are_many_from_25_a_cluster_on(
    item_kinds: str | None, n_items: int, expected: bool
) -> None:
    assert ds.HPGM(4, item_kinds=item_kinds)._has_many_kinds(n_items) == expected


def test_many_kinds_use_more_clusters_and_are_less_sure() -> None:
    few, many = (ds.HPGM(item_kinds=kinds, **SHORT).fit(LABELS) for kinds in ("few", "many"))
    used = few.quantities_.index("item clusters")
    assert many.trace_draws_[:, :, used].mean() > few.trace_draws_[:, :, used].mean() + 3
    widths = [(known.high - known.low).mean() for known in (few.intervals(), many.intervals())]
    assert widths[0] < widths[1]


# ---- labels that come later ---------------------------------------------------------------------------


@pytest.mark.no_cover
def test_an_update_is_like_a_fit_from_scratch() -> None:
    before, later = LABELS.split_labels(0.1, seed=0)
    n_sweeps = usually(45, verify=90)
    old = ds.HPGM(n_sweeps=n_sweeps).fit(before)
    updated = copy.copy(old).update(later)
    scratch, again = (ds.HPGM(n_sweeps=n_sweeps, seed=seed).fit(LABELS) for seed in (1, 2))
    assert_same_labels(updated.training_labels(), LABELS)

    def gap(first: ds.HPGM, second: ds.HPGM) -> float:
        return float(np.abs(first.label_distributions_ - second.label_distributions_).sum(axis=1).mean() / 2)

    # as near to a fit from scratch as two of these are to each other, and nearer than the fit of before
    assert gap(updated, scratch) < 2 * gap(again, scratch)
    assert gap(updated, scratch) < gap(old, scratch)


def test_an_update_meets_new_items_and_annotators() -> None:
    some = LABELS.take_items(np.arange(0, 120))
    rest = LABELS.take_items(np.arange(120, 160))
    model = ds.HPGM(**SHORT).fit(some)
    newcomer = ds.Annotations.from_arrays(["fresh", "fresh"], ["somebody", "a01"], ["c1", "c1"])
    model.update(rest).update(newcomer)
    assert len(model.items_) == 161
    assert "somebody" in set(model.annotators_)
    assert model.training_labels().n_labels == LABELS.n_labels + 2
    assert model.n_labels_[list(model.items_).index("fresh")] == 2


def test_an_update_keeps_own_labels_where_they_belong(brief: ds.HPGM) -> None:
    model = brief
    extra = ds.Annotations.from_arrays(["i000a"], ["a01"], ["c1"])
    merged, last = model._with_labels(in_classes(extra, model.class_vocabulary_))
    at = (merged.item_vocabulary.ids[merged.item] != "i000a").nonzero()[0]
    for number, state in enumerate(last):
        np.testing.assert_array_equal(state.own[at], model.last_states_[number].own)
        np.testing.assert_array_equal(state.z, model.last_states_[number].z)


def test_an_update_refuses_what_it_cannot_learn(fitted: ds.HPGM) -> None:
    stranger = ds.Annotations.from_arrays(["i1"], ["a01"], ["c9"])
    with pytest.raises(DataError, match="c9"):
        fitted.update(stranger)
    known = fitted.classes_[1]
    slip = ds.Annotations.from_arrays(["i1", "i2"], ["a01", "a02"], [known, known.upper()])
    told = f"item 'i2' by annotator 'a02': class '{known.upper()}' was not there .* did you mean '{known}'"
    with pytest.raises(DataError, match=told):
        fitted.update(slip)
    with pytest.raises(DataError, match="no chains to go on with"):
        fitted.apply(LABELS).update(LABELS)


def assert_same_labels(first: ds.Annotations, second: ds.Annotations) -> None:
    for name in ("item", "annotator", "label"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


# ---- what the draws say -------------------------------------------------------------------------------


def test_two_camps_are_together_among_themselves() -> None:
    rng = np.random.default_rng(3)
    rows = [
        (f"i{m}", f"{camp}{n}", str((m + (camp == "b" and rng.random() < 0.9) + (m // 2 == n)) % 2))
        for m in range(60)
        for camp in "ab"
        for n in range(4)
    ]
    item, annotator, label = zip(*rows, strict=True)
    model = ds.HPGM(**SHORT).fit(ds.Annotations.from_arrays(item, annotator, label))
    together = model.co_clustering(ids=["a0", "a1", "b0", "b1"])
    assert together[0, 1] > 0.9
    assert together[2, 3] > 0.9
    assert together[0, 2] < 0.1
    np.testing.assert_array_equal(together, together.T)
    items = model.co_clustering("items", ids=["i0", "i2", "i1"])
    assert items[0, 1] > 0.7
    assert items[0, 2] < 0.1
    with pytest.raises(DataError, match="'nobody'"):
        model.co_clustering(ids=["nobody"])


def test_a_run_keeps_its_draws_in_a_file_of_their_own(
    fitted: ds.HPGM, brief: ds.HPGM, tmp_path: Path
) -> None:
    fitted.save_apart(tmp_path / "model.safetensors")
    assert_same(ds.load(tmp_path / "model.safetensors"), fitted)
    other = tmp_path / "other"
    other.mkdir()
    brief.save_apart(other / "model.safetensors")
    (other / "draws.safetensors").replace(tmp_path / "draws.safetensors")
    with pytest.raises(ModelFileError, match="another model"):
        ds.load(tmp_path / "model.safetensors")


def test_arviz_gets_every_draw(fitted: ds.HPGM) -> None:
    arviz = pytest.importorskip("arviz")
    found = fitted.to_inference_data()
    shares = found.posterior["share"]
    assert shares.dims == ("chain", "draw", "item", "label")
    np.testing.assert_array_equal(np.concatenate(shares.values), fitted.share_draws_)
    assert list(shares.coords["label"].values) == list(fitted.classes_)
    summary = arviz.summary(found, var_names=["entropy", "lambda"])
    # ArviZ's rank-normalised R̂ is another formula of the same thing
    assert abs(summary.loc["entropy", "r_hat"] - fitted.rhat_[fitted.quantities_.index("entropy")]) < 0.1


# ---- one label per item, and very many labels ----------------------------------------------------------


def test_one_label_an_item_is_halfway_to_the_shrunk_counts() -> None:
    labels = ds.simulate(60, 12, 3, labels_per_item=1, seed=2).annotations
    model = ds.HPGM(**SHORT).fit(labels)
    shares = labels.counts.sum(axis=0) / 60
    shrunk = (labels.counts + 1.5 * shares) / 2.5
    own = 2 * model.label_distributions_ - shrunk  # what the sampler itself says
    np.testing.assert_allclose(own.sum(axis=1), 1.0)
    assert own.min() >= 0
    assert (model.intervals().low <= model.label_distributions_).all()


def test_a_part_of_very_many_labels_stands_for_all() -> None:
    """Of the items that are not sampled, answers are as good, and within the intervals of the whole fit."""
    crowd = ds.simulate(400, 30, 3, labels_per_item=6, seed=8)
    labels, truth = crowd.annotations, crowd.population_by_load
    n_sweeps = usually(50, verify=90)
    whole = ds.HPGM(n_sweeps=n_sweeps).fit(labels)
    part = ds.HPGM(n_sweeps=n_sweeps, max_sampled=1_000).fit(labels)
    others = np.setdiff1d(np.arange(400), part._sampled_items(labels))
    assert len(others) > 200
    known = whole.intervals(0.9)
    within = (known.low <= part.label_distributions_) & (part.label_distributions_ <= known.high)
    assert within[others].mean() > 0.9
    assert kl(truth[others], part.label_distributions_[others]) < 1.3 * kl(
        truth[others], whole.label_distributions_[others]
    )
    told = part.intervals(0.9)
    covered = (told.low <= truth) & (truth <= told.high)
    assert 0.8 < covered[others].mean() < 0.98
    one, two = (ds.HPGM(n_jobs=n, max_sampled=300, n_sweeps=20, n_chains=2).fit(LABELS) for n in (1, 2))
    assert_same(one, two)


# ---- what features say --------------------------------------------------------------------------------


def test_features_that_tell_something_help_and_others_do_not_harm() -> None:
    crowd = ds.simulate(160, 30, 3, labels_per_item=3, seed=4)
    labels, truth = crowd.annotations, crowd.population_by_load
    rng = np.random.default_rng(0)
    telling = np.log(truth + 1e-3) @ rng.normal(size=(3, 8)) + 0.5 * rng.normal(size=(160, 8))
    short: dict[str, Any] = {"n_sweeps": 90, "n_chains": 2}
    plain = kl(truth, ds.HPGM(**short).fit(labels).label_distributions_)
    told = ds.HPGM(use_features=True, **short).fit(labels, telling)
    assert kl(truth, told.label_distributions_) < 0.85 * plain
    noise = ds.HPGM(use_features=True, **short).fit(labels, rng.normal(size=(160, 8)))
    assert kl(truth, noise.label_distributions_) < 1.15 * plain
    with pytest.raises(DataError, match="no features"):
        told.update(labels)


def test_features_speak_for_new_items_too() -> None:
    crowd = ds.simulate(160, 30, 3, labels_per_item=2, seed=5)
    truth = crowd.population_by_load
    rng = np.random.default_rng(1)
    features = np.log(truth + 1e-3) @ rng.normal(size=(3, 8)) + 0.2 * rng.normal(size=(160, 8))
    labels = ds.text.with_features(crowd.annotations, features)
    short: dict[str, Any] = {"n_sweeps": 60, "n_chains": 2}
    fits = [ds.HPGM(use_features=use, **short).fit(labels[:120]) for use in (True, False)]
    told, plain = (kl(truth[120:], model.apply(labels[120:]).label_distributions_) for model in fits)
    assert told < 0.85 * plain


def test_hints_multiply_the_weights_of_clusters() -> None:
    """By hand: ψ = (½, ½), Φ = ((¾, ¼), (¼, ¾)), one label's hint at the first class, trusted twice."""
    phi = np.array([[0.75, 0.25], [0.25, 0.75]])
    found = hinted(np.array([0.5, 0.5]), np.array([[0.5, -0.5]]), 2.0, phi)
    odds = (0.75 / 0.25) ** 1.0 / (0.25 / 0.75) ** 1.0  # Φ_11^{2·½} Φ_12^{−2·½} against Φ_21 and Φ_22
    np.testing.assert_allclose(found[0, 0] / found[0, 1], odds)


def test_what_five_of_five_say_is_not_contradicted() -> None:
    """Of 120 items one is called "rare" by all five, and nobody ever says so elsewhere."""
    rng = np.random.default_rng(0)
    rows = [(f"i{m:03d}", f"a{n}", "yn"[int(rng.random() < 0.3)]) for m in range(120) for n in range(5)]
    rows += [("odd", f"a{n}", "rare") for n in range(5)]
    model = ds.HPGM(**SHORT).fit(ds.Annotations.from_arrays(*zip(*rows, strict=True)))
    frame = model.to_frame().set_index("item")
    assert frame.loc["odd", "p_rare"] >= 0.6
    assert frame.loc["odd", "low_rare"] <= frame.loc["odd", "p_rare"] <= frame.loc["odd", "high_rare"]
    # by hand: an answer of 0.2 moves halfway, as ½ · 0.2 + ½ · 1 = 0.6; four who agree are not enough
    model.label_distributions_ = np.array([[0.2, 0.8], [0.2, 0.8]])
    model.share_draws_ = np.array([[[0.2, 0.8], [0.2, 0.8]]], np.float32)
    model._floor_unanimous(np.array([[5, 0], [4, 0]]))
    np.testing.assert_allclose(model.label_distributions_, [[0.6, 0.4], [0.2, 0.8]], rtol=1e-6)
    np.testing.assert_allclose(model.share_draws_[0], [[0.6, 0.4], [0.2, 0.8]], rtol=1e-6)
