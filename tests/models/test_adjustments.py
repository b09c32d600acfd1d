"""Adjustments of HPGM: aliases, single labels, unanimous items; represented populations."""

import numpy as np
import pytest

import dissensus as ds
from dissensus.evaluate.bootstrap import bootstrap_mean
from dissensus.models.hpgm.adjustments import Aliases, first_names
from dissensus.models.hpgm.posterior import Expectations
from dissensus.models.hpgm.sampler import Data, start, sweep
from tests.helpers.cli import failure, run
from tests.helpers.judge import seen, table

FAST = {"n_chains": 2, "n_sweeps": 20, "n_jobs": 1}


def crowd(seed=0, n_items=300, humans=6, accuracy=0.75, share=1.0):
    """Return answers of independent annotators by name, each about a share of the items."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n_items)
    columns = {f"h{i}": seen(rng, truth, 3, accuracy) for i in range(humans)}
    return {name: np.where(rng.random(n_items) < share, column, -1) for name, column in columns.items()}


def with_copies(columns, name="h2", n=5, noise=0.0, seed=9):
    rng = np.random.default_rng(seed)
    answers = columns[name]
    noisy = [(answers >= 0) & (rng.random(len(answers)) < noise) for _ in range(n)]
    return columns | {f"{name}-{i}": np.where(noisy[i], (answers + 1) % 3, answers) for i in range(n)}


def aliases_of(labels):
    """Return the first name of each annotator that has one."""
    names, first = labels.annotators, first_names(labels)
    return {str(names[n]): str(names[first[n]]) for n in np.flatnonzero(first != np.arange(len(first)))}


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_exact_and_noisy_copies_are_found(share, noise):
    labels = table(with_copies(crowd(share=share), noise=noise))
    assert aliases_of(labels) == {f"h2-{i}": "h2" for i in range(5)}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("accuracy", [0.6, 0.9, 0.99])
def test_agreement_alone_makes_no_aliases(seed, accuracy):
    assert aliases_of(table(crowd(seed, accuracy=accuracy))) == {}


def test_aliases_do_not_distort_the_majority():
    # h0 and h1 are careful, and agree where h2 and its copies outvote them
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=300)
    columns = {f"h{i}": seen(rng, truth, 3, accuracy) for i, accuracy in enumerate((0.99, 0.99, 0.7, 0.7))}
    columns["h0"] = np.where(np.arange(300) < 200, columns["h0"], -1)
    columns["h1"] = np.where(np.arange(300) > 100, columns["h1"], -1)
    assert set(aliases_of(table(with_copies(columns, n=3)))) == {f"h2-{i}" for i in range(3)}


@pytest.mark.parametrize(("experts", "coins", "novices"), [(12, 1, 0), (12, 8, 0), (12, 0, 5), (3, 5, 0)])
def test_experts_who_never_differ_are_not_aliases(experts, coins, novices):
    """Random annotators give no evidence, and a majority is not taken for copies."""
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=80)
    columns = {f"expert{i}": truth for i in range(experts)}
    columns |= {f"coin{i}": rng.integers(2, size=80) for i in range(coins)}
    columns |= {f"novice{i}": seen(rng, truth, 2, 0.7) for i in range(novices)}
    labels = table(columns)
    assert aliases_of(labels) == {}
    model = ds.HPGM(**FAST).fit(labels)
    right = model.label_distributions_[np.arange(80), truth]
    assert right.min() > (0.6 if experts > 5 else 0.3)


def test_labels_of_aliases_under_one_name():
    # the copy of h2 also answered item 7
    columns = with_copies(crowd(), "h2", 1)
    columns["h2"] = np.where(np.arange(300) == 7, -1, columns["h2"])
    aliases = Aliases.of(table(columns))
    counted = aliases.annotations
    assert (counted.n_annotators, len(aliases.code)) == (6, 7)
    assert counted.annotators.tolist() == [f"h{i}" for i in range(6)]
    assert np.bincount(counted.annotator).tolist() == [300] * 6
    assert counted.label[(counted.item == 7) & (counted.annotator == 2)] == columns["h2-0"][7]
    order = np.lexsort((counted.label, counted.annotator, counted.item))
    np.testing.assert_array_equal(order, np.arange(counted.n_labels))


def test_copies_change_votes_but_not_hpgm():
    plain, crowded = table(crowd()), table(with_copies(crowd()))
    before, after = (ds.HPGM(**FAST).fit(labels) for labels in (plain, crowded))
    np.testing.assert_array_equal(before.label_distributions_, after.label_distributions_)
    np.testing.assert_array_equal(before.intervals().low, after.intervals().low)
    renamed = {name.replace("h2-", "clone"): column for name, column in with_copies(crowd()).items()}
    in_front = ds.HPGM(**FAST).fit(table(renamed)).label_distributions_
    np.testing.assert_array_equal(before.label_distributions_, in_front)
    vote = [ds.EmpiricalDistribution().fit(labels).label_distributions_ for labels in (plain, crowded)]
    assert np.abs(vote[0] - vote[1]).sum(axis=1).mean() / 2 > 0.05


def test_results_are_copied_to_aliases(tmp_path):
    model = ds.HPGM(**FAST).fit(table(with_copies(crowd(), n=2)))
    names = model.annotators_.tolist()
    family = [names.index(name) for name in ("h2", "h2-0", "h2-1")]
    of_family = model.draws_.matrices[:, family]
    np.testing.assert_array_equal(of_family, of_family[:, :1].repeat(3, axis=1))
    weights = model.annotator_weights_
    assert weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(weights[family], weights[names.index("h0")] / 3)
    assert model.training_labels().n_labels == 8 * 300
    model.save(tmp_path / "model.safetensors")
    loaded = ds.load(tmp_path / "model.safetensors")
    for saved, state in zip(loaded.last_states_, model.last_states_, strict=True):
        assert state.from_item.shape == (8 * 300,)
        np.testing.assert_array_equal(saved.from_item, state.from_item)


def coins():
    """Return uninformative labels: five biased coins per item."""
    labels = (np.random.default_rng(0).random((600, 5)) < 0.4).astype(int)
    return table({f"a{n}": labels[:, n] for n in range(5)})


def unanimous(labels):
    return np.flatnonzero(labels.counts.max(axis=1) == 5)


def posterior_mean(labels, n_sweeps=20, seed=0):
    """Average Y_m over every third sweep after the burn-in of one chain."""
    data = Data.of_labels(labels)
    weights = labels.annotator_load / labels.n_labels
    state = start(data, 20, min(20, data.N), np.random.default_rng([seed, 0]))
    answers = []
    for i in range(n_sweeps):
        state = sweep(state, data, np.random.default_rng([seed, 0, i]))
        if i >= 2 * n_sweeps // 5 and (i - 2 * n_sweeps // 5) % 3 == 0:
            expected = Expectations.of(data, state)
            answers.append(expected.items(expected.population(weights)))
    return np.mean(answers, axis=0)


@pytest.mark.parametrize("labels", [coins(), table(with_copies(crowd(), n=2))], ids=["coins", "aliases"])
def test_unadjusted_answers_are_posterior_means(labels):
    settings = FAST | {"n_chains": 1}
    raw = ds.HPGM(adjust=False, **settings).fit(labels)
    np.testing.assert_allclose(raw.label_distributions_, posterior_mean(labels), rtol=1e-12)
    adjusted = ds.HPGM(**settings).fit(labels)
    assert np.abs(adjusted.label_distributions_ - raw.label_distributions_).max() > 0.01


def test_floor_changes_answers_and_draws():
    labels = coins()
    raw, adjusted = (ds.HPGM(adjust=adjust, n_sweeps=60, n_jobs=1).fit(labels) for adjust in (False, True))
    for model in (raw, adjusted):
        gap = model.share_draws_.mean(axis=0) - model.label_distributions_
        assert np.abs(gap).max() < 0.06
    agreed = unanimous(labels)
    label = labels.counts[agreed].argmax(axis=1)
    low = raw.label_distributions_[agreed, label] < 0.6
    assert low.any()
    np.testing.assert_allclose(adjusted.label_distributions_[agreed, label][low], 0.6)
    others = np.delete(np.arange(600), agreed[low])
    np.testing.assert_array_equal(raw.label_distributions_[others], adjusted.label_distributions_[others])
    np.testing.assert_array_equal(raw.share_draws_[:, others], adjusted.share_draws_[:, others])
    again = raw.apply(labels).label_distributions_
    np.testing.assert_array_equal(again, raw.label_distributions_)


def test_single_labels_are_shrunk_halfway():
    labels = ds.simulate(60, 12, 3, labels_per_item=1, seed=2).annotations
    raw, adjusted = (ds.HPGM(adjust=adjust, **FAST).fit(labels) for adjust in (False, True))
    shrunk = (labels.counts + 1.5 * labels.counts.sum(axis=0) / 60) / 2.5
    np.testing.assert_allclose(adjusted.label_distributions_, (raw.label_distributions_ + shrunk) / 2)
    np.testing.assert_array_equal(raw.share_draws_[1::2], adjusted.share_draws_[1::2])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ds.Pool, ds.LatentPositions])
def test_other_models_can_be_adjusted(kind):
    labels = coins()
    settings = {"n_chains": 1, "n_sweeps": 20, "n_jobs": 1}
    raw, adjusted = (kind(adjust=adjust, **settings).fit(labels) for adjust in (False, True))
    agreed = unanimous(labels)
    label = labels.counts[agreed].argmax(axis=1)
    assert raw.label_distributions_[agreed, label].min() < 0.6
    assert adjusted.label_distributions_[agreed, label].min() == pytest.approx(0.6)


def two_groups(seed=0, n_items=200, each=5):
    """Return labels of two groups that disagree about half of the items."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=n_items)
    contested = rng.random(n_items) < 0.5
    columns = {f"a{i}": seen(rng, truth, 2, 0.85) for i in range(each)}
    columns |= {f"b{i}": seen(rng, np.where(contested, 1 - truth, truth), 2, 0.85) for i in range(each)}
    labels = table(columns)
    groups = [str(name)[0] for name in labels.annotators]
    return labels.with_tables(annotators={"annotator": labels.annotators, "group": groups})


@pytest.mark.slow
@pytest.mark.parametrize("group", ["a", "b"])
def test_represented_group_is_predicted_better(group):
    labels = two_groups()
    shown, hidden = labels.split_labels(0.3, seed=1)
    reserved = hidden.take_rows((hidden.annotator_column("group") == group)[hidden.annotator])
    settings = FAST | {"n_sweeps": 60}
    models = [ds.HPGM(represent=who, **settings).fit(shown) for who in ({"group": group}, None)]
    scores = [model.log_probabilities(reserved, annotators=False) for model in models]
    gain = scores[0] - scores[1]
    assert bootstrap_mean(gain, items=reserved.item).low > 0
    np.testing.assert_array_equal(models[0].annotator_weights_ > 0, labels.annotator_column("group") == group)


@pytest.mark.parametrize(
    ("represent", "words"),
    [
        ({"country": "DE"}, "no column 'country'"),
        ({"group": "c"}, "no annotator has group 'c'; it is one of a, b"),
        ("group=a", "a mapping of annotator columns to values"),
    ],
)
def test_invalid_groups_are_refused(represent, words):
    with pytest.raises(ds.DissensusError, match=words):
        ds.HPGM(represent=represent, **FAST).fit(two_groups(n_items=20))


@pytest.mark.slow
def test_fit_represents_a_group():
    labels = two_groups(n_items=40)
    result = ds.fit(labels, represent={"group": "a"}, fast=True)
    assert type(result.model) is ds.Pool
    assert result.reason == ""
    np.testing.assert_array_equal(
        result.model.annotator_weights_ > 0, labels.annotator_column("group") == "a"
    )


@pytest.mark.slow
def test_represent_option(tmp_path):
    labels = two_groups(n_items=40)
    votes, people = tmp_path / "votes.csv", tmp_path / "people.csv"
    labels.to_frame().to_csv(votes, index=False)
    people.write_text("annotator,group\n" + "".join(f"{name},{name[0]}\n" for name in labels.annotators))
    fit = ["fit", votes, "--annotators", people]
    quick = ["--model", "hpgm", "--set", "n_sweeps=10", "--set", "n_chains=1", "--no-report"]
    run(*fit, "--represent", "group=a", *quick, "-o", tmp_path / "run")
    model = ds.load(tmp_path / "run" / "model.safetensors")
    assert model.represent == {"group": ["a"]}
    expected = [name[0] == "a" for name in model.annotators_]
    np.testing.assert_array_equal(model.annotator_weights_ > 0, expected)
    assert "column=value" in failure(*fit, "--represent", "a")
    assert "no setting" in failure(*fit, "--represent", "group=a", "-m", "fmm")


def test_repeats_count_once_without_shared_items():
    items, annotators = ["i", "i", "i", "j", "k", "k"], ["a", "a", "a", "b", "a", "a"]
    alone = ds.Annotations.from_arrays(items, annotators, ["x", "x", "y", "y", "y", "y"])
    counted = Aliases.of(alone).annotations
    # i: x and y, j: y, k: y
    assert list(zip(counted.item, counted.label, strict=True)) == [(0, 0), (0, 1), (1, 1), (2, 1)]
    assert counted.n_annotators == 2
    model = ds.HPGM(**FAST).fit(alone)
    assert model.training_labels().n_labels == 6
    once = ds.HPGM(**FAST).fit(counted)
    np.testing.assert_array_equal(model.label_distributions_, once.label_distributions_)
    # with one shared item, or without annotators, all labels count
    both = ds.Annotations.from_arrays([*items, "i"], [*annotators, "b"], ["x", "x", "y", "y", "y", "y", "x"])
    assert Aliases.of(both).annotations is both
    counts = ds.Annotations.from_counts([[3, 0], [0, 3], [2, 1]])
    assert Aliases.of(counts).annotations is counts
