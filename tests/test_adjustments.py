"""Adjustments of HPGM's answers: aliases, single labels, unanimous items; and the raw posterior mean."""

from __future__ import annotations

import numpy as np
import pytest

import dissensus as ds
from cli_help import failure, run, write_votes
from dissensus.evaluate.bootstrap import bootstrap_mean
from dissensus.models.hpgm.adjustments import Aliases, first_names
from dissensus.models.hpgm.posterior import Expectations
from dissensus.models.hpgm.sampler import Data, start, sweep
from judge_help import seen, table

FAST = {"n_chains": 2, "n_sweeps": 20, "n_jobs": 1}


def crowd(seed=0, n_items=300, humans=6, accuracy=0.75, share=1.0):
    """Answers of independent humans by name, each about a share of the items."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=n_items)
    columns = {f"h{i}": seen(rng, truth, 3, accuracy) for i in range(humans)}
    return {name: np.where(rng.random(n_items) < share, column, -1) for name, column in columns.items()}


def copied(columns, name="h2", n=5, noise=0.0, seed=9):
    rng = np.random.default_rng(seed)
    own = columns[name]
    other = (own + 1) % 3
    return columns | {
        f"{name}-{i}": np.where((own >= 0) & (rng.random(len(own)) < noise), other, own) for i in range(n)
    }


def names_of_copies(labels):
    first = first_names(labels)
    return {
        str(name): str(labels.annotators[first[n]])
        for n, name in enumerate(labels.annotators)
        if first[n] != n
    }


@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_copies_are_found_exact_or_nearly(share, noise):
    labels = table(copied(crowd(share=share), noise=noise))
    assert names_of_copies(labels) == {f"h2-{i}": "h2" for i in range(5)}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("accuracy", [0.6, 0.9, 0.99])
def test_nobody_is_taken_for_a_copy_by_agreeing(seed, accuracy):
    assert names_of_copies(table(crowd(seed, accuracy=accuracy))) == {}


def test_two_experts_among_many_who_err_are_two():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=400)
    columns = {f"h{i}": seen(rng, truth, 3, 0.7) for i in range(8)}
    columns |= {
        f"expert{i}": np.where(rng.random(400) < 0.6, seen(rng, truth, 3, 0.97), -1) for i in range(2)
    }
    assert names_of_copies(table(columns)) == {}


def test_who_always_says_the_same_copies_nobody():
    columns = crowd() | {"s0": np.zeros(300, int), "s1": np.zeros(300, int)}
    assert names_of_copies(table(columns)) == {}


def test_a_large_family_does_not_make_copies_of_those_it_outvotes():
    # h0 and h1 are careful, and agree where h2 and its copies outvote them: against the family, not together.
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=300)
    columns = {f"h{i}": seen(rng, truth, 3, accuracy) for i, accuracy in enumerate((0.99, 0.99, 0.7, 0.7))}
    columns["h0"] = np.where(np.arange(300) < 200, columns["h0"], -1)
    columns["h1"] = np.where(np.arange(300) > 100, columns["h1"], -1)
    found = names_of_copies(table(copied(columns, n=3)))
    assert set(found) == {f"h2-{i}" for i in range(3)}


@pytest.mark.parametrize(("experts", "coins", "novices"), [(12, 1, 0), (12, 8, 0), (12, 0, 5), (3, 5, 0)])
def test_people_who_are_always_right_are_no_copies(experts, coins, novices):
    """They never differ, but coins tell nothing of that, and most of the annotators are the crowd itself."""
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=80)
    columns = {f"expert{i}": truth for i in range(experts)}
    columns |= {f"coin{i}": rng.integers(2, size=80) for i in range(coins)}
    columns |= {f"novice{i}": seen(rng, truth, 2, 0.7) for i in range(novices)}
    labels = table(columns)
    assert names_of_copies(labels) == {}
    model = ds.HPGM(**FAST).fit(labels)
    right = model.label_distributions_[np.arange(80), truth]
    assert right.min() > (0.6 if experts > 5 else 0.3)


def test_labels_that_count_of_aliases():
    # "b" copies "a" and answered one item more; the family's answer about it stands under the name of "a".
    columns = copied(crowd(), "h2", 1)
    columns["h2"] = np.where(np.arange(300) == 7, -1, columns["h2"])
    aliases = Aliases.of(table(columns))
    counted = aliases.annotations
    assert (counted.n_annotators, len(aliases.code)) == (6, 7)
    assert counted.annotators.tolist() == [f"h{i}" for i in range(6)]
    assert np.bincount(counted.annotator).tolist() == [300] * 6
    assert counted.label[(counted.item == 7) & (counted.annotator == 2)] == columns["h2-0"][7]
    order = np.lexsort((counted.label, counted.annotator, counted.item))
    np.testing.assert_array_equal(order, np.arange(counted.n_labels))


def test_copies_do_not_move_hpgm_and_move_the_vote():
    plain, crowded = table(crowd()), table(copied(crowd()))
    before, after = (ds.HPGM(**FAST).fit(labels) for labels in (plain, crowded))
    np.testing.assert_array_equal(before.label_distributions_, after.label_distributions_)
    np.testing.assert_array_equal(before.intervals().low, after.intervals().low)
    renamed = {name.replace("h2-", "clone"): column for name, column in copied(crowd()).items()}
    in_front = ds.HPGM(**FAST).fit(table(renamed)).label_distributions_
    np.testing.assert_array_equal(before.label_distributions_, in_front)
    vote = [ds.EmpiricalDistribution().fit(labels).label_distributions_ for labels in (plain, crowded)]
    assert np.abs(vote[0] - vote[1]).sum(axis=1).mean() / 2 > 0.05


def test_hpgm_says_the_same_of_every_alias(tmp_path):
    model = ds.HPGM(**FAST).fit(table(copied(crowd(), n=2)))
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
    for kept, state in zip(loaded.last_states_, model.last_states_, strict=True):
        assert state.own.shape == (8 * 300,)
        np.testing.assert_array_equal(kept.own, state.own)


def test_hpgm_goes_on_with_copies_when_labels_are_added():
    columns = copied(crowd(), n=2)
    early = {name: np.where(np.arange(300) < 250, column, -1) for name, column in columns.items()}
    late = {name: np.where(np.arange(300) < 250, -1, column) for name, column in columns.items()}
    model = ds.HPGM(**FAST).fit(table(early))
    first = model.label_distributions_.shape
    model.update(table(late))
    assert (first, model.label_distributions_.shape) == ((250, 3), (300, 3))
    np.testing.assert_allclose(model.label_distributions_.sum(axis=1), 1)
    assert model.training_labels().n_labels == 8 * 300


# ---- the raw posterior mean -----------------------------------------------------------------------------


def coins():
    """Labels that tell nothing, by tosses of five uneven coins; on some of the items the five agree."""
    labels = (np.random.default_rng(0).random((600, 5)) < 0.4).astype(int)
    return table({f"a{n}": labels[:, n] for n in range(5)})


def unanimous(labels):
    return np.flatnonzero(labels.counts.max(axis=1) == 5)


def posterior_mean(labels, n_sweeps=20, seed=0):
    """Mean of Y_m over every third of the last three fifths of one chain's sweeps, by the sampler itself."""
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


@pytest.mark.parametrize("labels", [coins(), table(copied(crowd(), n=2))], ids=["coins", "aliases"])
def test_without_adjustments_the_answer_is_the_posterior_mean(labels):
    settings = FAST | {"n_chains": 1, "item_kinds": "few"}
    raw = ds.HPGM(adjust=False, **settings).fit(labels)
    np.testing.assert_allclose(raw.label_distributions_, posterior_mean(labels), rtol=1e-12)
    adjusted = ds.HPGM(**settings).fit(labels)
    assert np.abs(adjusted.label_distributions_ - raw.label_distributions_).max() > 0.01


def test_draws_have_the_raw_mean_and_the_floor_moves_both():
    labels = coins()
    raw, adjusted = (ds.HPGM(adjust=adjust, n_sweeps=60, n_jobs=1).fit(labels) for adjust in (False, True))
    for model in (raw, adjusted):
        gap = model.share_draws_.mean(axis=0) - model.label_distributions_
        assert np.abs(gap).max() < 0.06
    agreed = unanimous(labels)
    said = labels.counts[agreed].argmax(axis=1)
    low = raw.label_distributions_[agreed, said] < 0.6
    assert low.any()
    np.testing.assert_allclose(adjusted.label_distributions_[agreed, said][low], 0.6)
    others = np.delete(np.arange(600), agreed[low])
    np.testing.assert_array_equal(raw.label_distributions_[others], adjusted.label_distributions_[others])
    np.testing.assert_array_equal(raw.share_draws_[:, others], adjusted.share_draws_[:, others])
    again = raw.apply(labels).label_distributions_
    np.testing.assert_array_equal(again, raw.label_distributions_)


def test_single_labels_stay_the_models_without_adjustments():
    labels = ds.simulate(60, 12, 3, labels_per_item=1, seed=2).annotations
    raw, adjusted = (ds.HPGM(adjust=adjust, **FAST).fit(labels) for adjust in (False, True))
    shrunk = (labels.counts + 1.5 * labels.counts.sum(axis=0) / 60) / 2.5
    np.testing.assert_allclose(adjusted.label_distributions_, (raw.label_distributions_ + shrunk) / 2)
    np.testing.assert_array_equal(raw.share_draws_[1::2], adjusted.share_draws_[1::2])


def test_every_name_counts_without_adjustments():
    model = ds.HPGM(adjust=False, **FAST).fit(table(copied(crowd(), n=2)))
    np.testing.assert_allclose(model.annotator_weights_, 1 / 8)
    model.update(ds.Annotations.from_arrays([300], ["h2-0"], [model.classes_[0]]))
    assert len(model.items_) == 301


def test_nothing_to_adjust_leaves_the_posterior_mean():
    labels = ds.simulate(60, 12, 3, labels_per_item=4, seed=3).annotations
    raw, adjusted = (ds.HPGM(adjust=adjust, **FAST).fit(labels) for adjust in (False, True))
    np.testing.assert_array_equal(raw.label_distributions_, adjusted.label_distributions_)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [ds.OrdinalHPGM, ds.LatentPositions])
def test_other_models_have_the_switch_too(kind):
    labels = coins().with_label_type("ordinal" if kind is ds.OrdinalHPGM else "nominal")
    settings = {"n_chains": 1, "n_sweeps": 20, "n_jobs": 1}
    raw, adjusted = (kind(adjust=adjust, **settings).fit(labels) for adjust in (False, True))
    agreed = unanimous(labels)
    said = labels.counts[agreed].argmax(axis=1)
    assert raw.label_distributions_[agreed, said].min() < 0.6
    assert adjusted.label_distributions_[agreed, said].min() == pytest.approx(0.6)


# ---- whose population ---------------------------------------------------------------------------------


def two_groups(seed=0, n_items=200, each=5):
    """Two groups that see half of the items differently, with the group in the annotator table."""
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
def test_the_answer_of_a_group_is_nearer_to_that_group(group):
    labels = two_groups()
    shown, hidden = labels.split_labels(0.3, seed=1)
    reserved = hidden.take_rows((hidden.annotator_column("group") == group)[hidden.annotator])
    settings = FAST | {"n_sweeps": 60}
    own = ds.HPGM(represent={"group": group}, **settings).fit(shown)
    everybody = ds.HPGM(**settings).fit(shown)
    gain = own.log_chances(reserved, annotators=False) - everybody.log_chances(reserved, annotators=False)
    assert bootstrap_mean(gain, items=reserved.item).low > 0
    np.testing.assert_array_equal(own.annotator_weights_ > 0, labels.annotator_column("group") == group)


def test_representing_everybody_changes_nothing():
    labels = two_groups(n_items=60)
    both = ds.HPGM(represent={"group": ["a", "b"]}, **FAST).fit(labels)
    np.testing.assert_array_equal(both.label_distributions_, ds.HPGM(**FAST).fit(labels).label_distributions_)


def test_who_is_represented_stays_so_when_labels_are_added():
    labels = two_groups(n_items=80)
    model = ds.HPGM(represent={"group": "a"}, **FAST).fit(labels[:60]).update(labels[60:])
    expected = labels.annotator_column("group") == "a"
    np.testing.assert_array_equal(model.annotator_weights_ > 0, expected)


@pytest.mark.parametrize(
    ("represent", "words"),
    [
        ({"country": "DE"}, "no column 'country'"),
        ({"group": "c"}, "no annotator has group 'c'; it is one of a, b"),
        ("group=a", "a mapping of annotator columns to values"),
    ],
)
def test_nobody_to_represent_is_an_error_with_a_remedy(represent, words):
    with pytest.raises(ds.DissensusError, match=words):
        ds.HPGM(represent=represent, **FAST).fit(two_groups(n_items=20))


@pytest.mark.slow
def test_the_model_that_can_represent_is_taken_with_its_reason():
    found = ds.fit(two_groups(n_items=8), represent={"group": "a"}, test_size=0)
    assert isinstance(found.model, ds.HPGM)
    assert found.reason == "it is the model that can estimate the population of some of the annotators"
    assert "population of some of the annotators" in found.reason


@pytest.mark.slow
def test_the_command_line_represents_a_group(tmp_path):
    labels = two_groups(n_items=40)
    names, given = labels.annotators[labels.annotator], labels.classes[labels.label]
    rows = [f"{m},{name},{label}" for m, name, label in zip(labels.item, names, given, strict=True)]
    votes = write_votes(tmp_path / "votes.csv", "\n".join(rows) + "\n")
    people = tmp_path / "people.csv"
    people.write_text("annotator,group\n" + "".join(f"{name},{name[0]}\n" for name in labels.annotators))
    fit = ["fit", votes, "--annotators", people]
    quick = ["--model", "hpgm", "--set", "n_sweeps=10", "--set", "n_chains=1", "--no-report"]
    run(*fit, "--represent", "group=a", *quick, "-o", tmp_path / "run")
    assert "leave it out" in failure(*fit, "--represent", "group=a", "--fast")
    model = ds.load(tmp_path / "run" / "model.safetensors")
    assert model.represent == {"group": ["a"]}
    expected = [name[0] == "a" for name in model.annotators_]
    np.testing.assert_array_equal(model.annotator_weights_ > 0, expected)
    assert "column=value" in failure(*fit, "--represent", "a")
    assert "no setting" in failure(*fit, "--represent", "group=a", "-m", "fmm")


def test_a_repeated_label_counts_once_where_no_item_has_two_annotators():
    items, annotators = ["i", "i", "i", "j", "k", "k"], ["a", "a", "a", "b", "a", "a"]
    alone = ds.Annotations.from_arrays(items, annotators, ["x", "x", "y", "y", "y", "y"])
    counted = Aliases.of(alone).annotations
    # i: x and y, j: y, k: y
    assert [tuple(row) for row in zip(counted.item, counted.label, strict=True)] == [
        (0, 0),
        (0, 1),
        (1, 1),
        (2, 1),
    ]
    assert counted.n_annotators == 2
    model = ds.HPGM(**FAST).fit(alone)
    assert model.training_labels().n_labels == 6
    once = ds.HPGM(**FAST).fit(counted)
    np.testing.assert_array_equal(model.label_distributions_, once.label_distributions_)
    # one answer by somebody else, and all labels count
    both = ds.Annotations.from_arrays([*items, "i"], [*annotators, "b"], ["x", "x", "y", "y", "y", "y", "x"])
    assert Aliases.of(both).annotations is both


def test_class_counts_have_no_repeats():
    counts = ds.Annotations.from_counts([[3, 0], [0, 3], [2, 1]])
    assert Aliases.of(counts).annotations is counts
