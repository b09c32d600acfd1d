"""What every model promises, held against each model of the registry.

A new model joins by being registered; tests ``by_the_base`` take it in ``make verify`` alone.

``SMALL`` gives constructor arguments that keep a fit quick; a model that is not in it runs with its defaults.
``VARIANTS`` adds models a second time, with settings that make them another model. What the base class does
for all of them in the same lines is held against a few (``by_the_base``); ``make verify`` takes them all.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.stats import entropy
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.validation import check_is_fitted

import dissensus as ds
from dissensus import engine
from dissensus.errors import DataError, NotFittedError, ParameterError
from dissensus.models import model_class
from dissensus.models.base import Model
from dissensus.params import ANY
from registry import FROM_LABELS_ALONE
from sizes import usually

pytestmark = pytest.mark.no_cover

SMALL: dict[str, dict[str, Any]] = {
    "fmm": {"n_item_clusters": 3, "max_iter": 40},
    "dawid-skene": {"max_iter": 20},
    "one-coin": {"max_iter": 20},
    "cbcc": {"n_annotator_clusters": 2, "max_iter": 15},
    "ibcc": {"max_iter": 15},
    "ebcc": {"n_subtypes": 2, "max_iter": 10},
    "log-linear": {"max_iter": 15},
    "mace": {"max_iter": 15},
    "pgm": {"n_item_clusters": 3, "n_annotator_clusters": 2, "max_iter": 20},
    "hpgm": {"n_item_clusters": 4, "n_annotator_clusters": 3, "n_chains": 2, "n_sweeps": 12},
    "latent": {"n_annotator_dimensions": 2, "n_sweeps": 12},
}

# A name of the registry, a colon, and what is special.
VARIANTS: dict[str, dict[str, Any]] = {
    "empirical: unsmoothed": {"smoothing": 0.0},
    "dawid-skene: population": {"estimate": "population", "max_iter": 20},
    "ebcc: population": {"n_subtypes": 2, "estimate": "population", "max_iter": 10},
    "fmm: maximum likelihood": {"n_item_clusters": 3, "alpha": 1.0, "gamma": 1.0},
    "pgm: annealing": {"n_item_clusters": 3, "inference": "annealing", "max_iter": 20},
    "pgm: vb": {"n_item_clusters": 3, "inference": "vb", "max_iter": 20},
}
CASES = [*FROM_LABELS_ALONE, *VARIANTS]

# Of items alone and of annotators; with messages, with draws, with an objective and without.
FEW = ["majority", "fmm", "dawid-skene", "pgm", "hpgm"]
by_the_base = pytest.mark.parametrize("name", usually(FEW, verify=CASES), scope="module")

# How far `apply` of the training data may be from the fit: models of items alone give the same bits;
# models of annotators pass messages anew, and sums in another order round differently.
TRANSFORM_GAP = 1e-12

# How far an item without labels may be from one never seen, relatively. Variational Bayes weighs the clusters
# of an item it was given by exp E log ψ, and those of an item it has not met by E ψ.
# What HPGM keeps of its draws is in single precision.
UNSEEN_GAP: dict[str, float] = {"pgm: vb": 0.05, "hpgm": 1e-7}

# What a file leaves out by choice: the annealer's runners-up.
NOT_SAVED = {"best_states_"}

M, N, P = 41, 13, 4  # different from each other, so that an array's axes tell what it is about
CHANCES = [f"p_c{p}" for p in range(1, P + 1)]


def class_of(name: str) -> type[Model]:
    return model_class(name.partition(":")[0])


def settings_of(name: str) -> dict[str, Any]:
    return VARIANTS[name] if name in VARIANTS else SMALL.get(name, {})


def has_setting(name: str, setting: str) -> bool:
    return setting in class_of(name)().get_params(deep=False)


def needs_annotators(name: str) -> bool:
    return class_of(name)._needs_annotators


def build(name: str, **settings: Any) -> Model:
    return class_of(name)(**(settings_of(name) | settings))


def crowd_rows(n_items: int = M, n_annotators: int = N, seed: int = 0) -> pd.DataFrame:
    """A crowd's labels as shuffled (task, worker, label) rows; one annotator answered an item twice."""
    known = ds.simulate(n_items, n_annotators, P, labels_per_item=6, seed=seed).annotations
    rows = pd.DataFrame(
        {
            "task": known.items[known.item],
            "worker": known.annotators[known.annotator],
            "label": known.classes[known.label],
        }
    )
    second_answer = rows.iloc[[0]].assign(label=lambda row: np.where(row.label == "c1", "c2", "c1"))
    return pd.concat([rows, second_answer]).sample(frac=1, random_state=seed).reset_index(drop=True)


def annotated(rows: pd.DataFrame, **options: Any) -> ds.Annotations:
    return ds.Annotations.from_arrays(rows.task, rows.worker, rows.label, **options)


CROWD = annotated(crowd_rows())
OTHER = annotated(crowd_rows(17, 9, seed=1).assign(task=lambda rows: "new " + rows.task))


def same_bits(first: Any, second: Any) -> bool:
    a, b = np.asarray(first), np.asarray(second)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def all_pairs(data: ds.Annotations) -> tuple[Any, Any]:
    return np.repeat(data.items, data.n_annotators), np.tile(data.annotators, data.n_items)


def what_it_knows(model: Model, data: ds.Annotations) -> dict[str, Any]:
    """Every number a fitted model can give about some data, ids left aside."""
    return {
        "distributions": model.label_distributions_,
        "prior": model.prior_distribution_,
        "pairs": model.predict_proba(*all_pairs(data)),
        "n_labels": model.n_labels_,
        "trace": model.trace_,
        "stopped": model.stopped_,
        "score": model.score(data),
        "score_items": model.score_items(data),
    } | {name: getattr(model, name) for name in model._arrays}


def assert_same_knowledge(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first.keys() == second.keys()
    assert [key for key in first if not same_bits(first[key], second[key])] == []


def assert_sound(model: Model, data: ds.Annotations) -> None:
    """Shapes, rows that sum to one, and not a NaN anywhere."""
    assert model.label_distributions_.shape == (data.n_items, data.n_classes)
    assert model.n_labels_.tolist() == np.bincount(data.item, minlength=data.n_items).tolist()
    pairs = model.predict_proba(*all_pairs(data)) if data.n_items * data.n_annotators < 10**5 else None
    for chances in (model.label_distributions_, model.prior_distribution_[None], pairs):
        if chances is not None:
            assert np.isfinite(chances).all()
            assert (chances >= 0).all()
            np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-12)
    assert not np.isnan(model.trace_).any()
    assert not math.isnan(model.score(data))
    assert set(model.predict()) <= set(data.classes)


@pytest.fixture(scope="module", params=CASES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(name: str) -> Model:
    """Fitted once for all tests that only look."""
    return build(name).fit(CROWD)


# ---- shapes and values ---------------------------------------------------------------------------------


def test_shapes_and_sums(model: Model) -> None:
    assert_sound(model, CROWD)
    assert model.label_distributions_.dtype == np.float64
    assert model.items_.tolist() == CROWD.items.tolist()
    assert model.annotators_.tolist() == CROWD.annotators.tolist()
    assert model.classes_.tolist() == CROWD.classes.tolist()
    assert model.trace_.ndim == 1
    assert isinstance(model.stopped_, str)
    assert model.stopped_


@by_the_base
def test_fit_returns_the_model_itself(name: str) -> None:
    unfitted = build(name)
    assert unfitted.fit(CROWD) is unfitted


@by_the_base
def test_fitting_again_forgets_the_first_fit(name: str) -> None:
    again = build(name).fit(OTHER)
    again.left_over_ = "from an earlier fit"  # type: ignore[attr-defined]
    again.fit(CROWD)
    assert not hasattr(again, "left_over_")
    assert_same_knowledge(what_it_knows(again, CROWD), what_it_knows(build(name).fit(CROWD), CROWD))


@by_the_base
def test_an_interrupted_fit_leaves_the_model_as_it_was(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = build(name).fit(CROWD)
    before = what_it_knows(fitted, CROWD)

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(fitted), "_fit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(OTHER)
    assert fitted.items_.tolist() == CROWD.items.tolist()
    assert_same_knowledge(what_it_knows(fitted, CROWD), before)


def test_predict_names_the_largest_entry(model: Model) -> None:
    largest = model.classes_[model.label_distributions_.argmax(axis=1)]
    assert model.predict().tolist() == largest.tolist()


def test_the_frame_says_what_the_arrays_say(model: Model) -> None:
    frame = model.to_frame()
    columns = ["item", "label", *CHANCES]
    if model.intervals() is not None:
        columns += [f"{end}_c{p}" for end in ("low", "high") for p in range(1, P + 1)]
        columns += ["sure", "worth"]
        for p in range(1, P + 1):
            assert (frame[f"low_c{p}"] <= frame[f"p_c{p}"]).all()
            assert (frame[f"p_c{p}"] <= frame[f"high_c{p}"]).all()
        assert frame["sure"].between(0, 1).all()
        assert (frame["worth"] >= 0).all()
    assert list(frame.columns) == [*columns, "entropy", "n_labels"]
    assert frame["item"].tolist() == CROWD.items.tolist()
    # never two answers in one row: the label is the class of the largest share
    assert frame["label"].tolist() == model.classes_[model.label_distributions_.argmax(axis=1)].tolist()
    assert same_bits(frame[CHANCES].to_numpy().copy("C"), model.label_distributions_)
    np.testing.assert_allclose(
        frame["entropy"], entropy(model.label_distributions_, axis=1), rtol=1e-12, atol=1e-15
    )
    assert frame["n_labels"].sum() == CROWD.n_labels


# ---- nothing but the labels and the settings decides ---------------------------------------------------


def test_permuted_rows_give_the_same_bits(name: str, model: Model) -> None:
    for seed in usually([1], verify=[1, 2, 3]):
        other = build(name).fit(annotated(crowd_rows().sample(frac=1, random_state=seed)))
        assert_same_knowledge(what_it_knows(model, CROWD), what_it_knows(other, CROWD))


def test_renaming_that_keeps_the_order_gives_the_same_bits(name: str, model: Model) -> None:
    renamed = annotated(
        crowd_rows().assign(
            task=lambda rows: "task " + rows.task,
            worker=lambda rows: rows.worker.str[1:].astype(int) * 7 - 1000,
            label=lambda rows: rows.label.map({"c1": "a", "c2": "b", "c3": "ba", "c4": "é"}),
        )
    )
    assert_same_knowledge(what_it_knows(model, CROWD), what_it_knows(build(name).fit(renamed), renamed))


def test_the_same_seed_gives_the_same_bits(model: Model) -> None:
    assert_same_knowledge(what_it_knows(model, CROWD), what_it_knows(clone(model).fit(CROWD), CROWD))


@pytest.mark.parametrize("name", [name for name in CASES if has_setting(name, "n_jobs")])
def test_the_number_of_jobs_does_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LABELS_PER_SHARD", 32)
    assert len(engine.cut_blocks(CROWD)) > 5
    one, two = (build(name, n_jobs=n_jobs).fit(CROWD) for n_jobs in (1, 2))
    assert_same_knowledge(what_it_knows(one, CROWD), what_it_knows(two, CROWD))
    assert_same_knowledge(what_it_knows(one.apply(OTHER), OTHER), what_it_knows(two.apply(OTHER), OTHER))


# ---- saved and loaded ----------------------------------------------------------------------------------


def test_a_loaded_model_is_the_saved_one(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m.safetensors")
    loaded = ds.load(tmp_path / "m.safetensors")
    assert type(loaded) is type(model)
    assert loaded.get_params() == model.get_params()
    assert_same_knowledge(what_it_knows(loaded, CROWD), what_it_knows(model, CROWD))
    for ids in ("items_", "annotators_", "classes_"):
        assert getattr(loaded, ids).tolist() == getattr(model, ids).tolist()
    assert loaded.to_frame().equals(model.to_frame())
    assert_same_knowledge(what_it_knows(loaded.apply(OTHER), OTHER), what_it_knows(model.apply(OTHER), OTHER))


def test_a_loaded_model_has_every_fitted_attribute(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m.safetensors")
    loaded = ds.load(tmp_path / "m.safetensors")
    public = [attribute for attribute in vars(model) if attribute.endswith("_")]
    assert set(public) - set(vars(loaded)) <= NOT_SAVED


@by_the_base
def test_saving_twice_writes_the_same_bytes(model: Model, tmp_path: Path) -> None:
    for file in ("first", "second"):
        model.save(tmp_path / file)
    ds.load(tmp_path / "first").save(tmp_path / "third")
    contents = {(tmp_path / file).read_bytes() for file in ("first", "second", "third")}
    assert len(contents) == 1


@by_the_base
def test_numbers_as_ids_stay_numbers_in_the_file(name: str, tmp_path: Path) -> None:
    rows = crowd_rows()
    numbered = ds.Annotations.from_arrays(
        rows.task.str[1:].astype(int), rows.worker.str[1:].astype(float), rows.label == "c1"
    )
    fitted = build(name).fit(numbered)
    fitted.save(tmp_path / "m")
    loaded = ds.load(tmp_path / "m")
    for ids in ("items_", "annotators_", "classes_"):
        assert same_bits(getattr(loaded, ids), getattr(fitted, ids))
    assert [getattr(loaded, ids).dtype.kind for ids in ("items_", "annotators_", "classes_")] == [
        "i",
        "f",
        "b",
    ]


# ---- ids never seen ------------------------------------------------------------------------------------


def test_unseen_ids_get_the_populations_expectation(model: Model) -> None:
    known_item, known_annotator = CROWD.items[:1], CROWD.annotators[:1]
    assert same_bits(model.predict_proba(["nobody's"])[0], model.prior_distribution_)
    for items, annotators in (
        (["nobody's"], known_annotator),
        (known_item, ["nobody"]),
        (["nobody's"], ["nobody"]),
    ):
        chances = model.predict_proba(items, annotators)
        assert chances.shape == (1, P)
        assert (chances >= 0).all()
        np.testing.assert_allclose(chances.sum(), 1, rtol=1e-12)


def test_an_item_without_labels_is_an_item_never_seen(name: str) -> None:
    with_gap = CROWD.take_rows(CROWD.item != 5)
    fitted = build(name).fit(with_gap)
    assert_sound(fitted, with_gap)
    gap = UNSEEN_GAP.get(name, 1e-9)
    seen, unseen = fitted.predict_proba([CROWD.items[5], "nobody's"])
    np.testing.assert_allclose(seen, unseen, rtol=gap)
    pairs = fitted.predict_proba([CROWD.items[5], "nobody's"], [CROWD.annotators[0]] * 2)
    np.testing.assert_allclose(pairs[0], pairs[1], rtol=gap)


@by_the_base
def test_rows_follow_the_ids_asked_for(model: Model) -> None:
    items, annotators = all_pairs(CROWD)
    whole = model.predict_proba(items, annotators)
    some = np.random.default_rng(0).integers(len(items), size=50)
    assert same_bits(model.predict_proba(items[some].tolist(), list(annotators[some])), whole[some])
    by_item = model.predict_proba(CROWD.items)
    assert same_bits(by_item, model.label_distributions_)


@by_the_base
def test_ids_must_pair_up_and_be_lists(model: Model) -> None:
    with pytest.raises(DataError, match="2 items and 1 annotators do not pair up"):
        model.predict_proba(CROWD.items[:2], CROWD.annotators[:1])
    with pytest.raises(DataError, match=r"items: a list of ids is needed, got 'i01'; write \['i01'\]"):
        model.predict_proba("i01")
    with pytest.raises(DataError, match="annotators: a list of ids is needed, got 3"):
        model.predict_proba(["i01"], 3)


@by_the_base
def test_no_pairs_asked_for_no_rows_given(model: Model) -> None:
    assert model.predict_proba([]).shape == (0, P)
    assert model.predict_proba([], []).shape == (0, P)


# ---- scores --------------------------------------------------------------------------------------------


def mean_log(model: Model, hidden: ds.Annotations, by_annotator: bool) -> float:
    """The mean log-probability worked out label by label."""
    logs = []
    for item, annotator, label in zip(hidden.item, hidden.annotator, hidden.label, strict=True):
        who = [hidden.annotators[annotator]] if by_annotator else None
        chances = model.predict_proba([hidden.items[item]], who)[0]
        chance = chances[model.classes_.tolist().index(hidden.classes[label])]
        logs.append(math.log(chance) if chance > 0 else -math.inf)
    return sum(logs) / len(logs)


def test_score_is_the_mean_log_of_predict_proba(name: str) -> None:
    train, rest = CROWD.split_labels(test_size=0.2, seed=0)
    # of a true class, what is asked of an item alone is no label: the population's answers are
    asked = {"estimate": "population"} if has_setting(name, "estimate") else {}
    fitted = build(name, **asked).fit(train)
    for labels in (rest, OTHER):  # of the same crowd, and of a new one
        some = labels.take_rows(np.arange(labels.n_labels) < usually(6, verify=60))
        for score, by_annotator in ((fitted.score, True), (fitted.score_items, False)):
            np.testing.assert_allclose(score(some), mean_log(fitted, some, by_annotator), rtol=1e-12)


@by_the_base
def test_score_in_batches_is_score(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = model.score(CROWD), model.score_items(CROWD)
    monkeypatch.setattr("dissensus.models.scoring.ROWS_AT_A_TIME", 7)
    np.testing.assert_allclose((model.score(CROWD), model.score_items(CROWD)), whole, rtol=1e-12)


def test_score_equals_score_items_where_annotators_do_not_matter(model: Model) -> None:
    if type(model)._pair_distributions is Model._pair_distributions:
        assert model.score(CROWD) == model.score_items(CROWD)
    else:
        assert model.score(CROWD) != model.score_items(CROWD)


def test_a_class_unseen_at_fit_time_is_refused(model: Model) -> None:
    rows = crowd_rows()
    stranger = annotated(rows.assign(label=rows.label.replace("c2", "maybe")))
    for use in (model.score, model.score_items, model.apply):
        with pytest.raises(DataError, match=r"class 'maybe' was not there when the model was fitted; .*drop"):
            use(stranger)


def test_classes_declared_but_unused_or_in_another_order_are_no_matter(model: Model) -> None:
    shuffled = annotated(crowd_rows(), classes=["c3", "never used", "c1", "c4", "c2"])
    np.testing.assert_allclose(model.score(shuffled), model.score(CROWD), rtol=1e-12)
    moved = model.apply(shuffled)
    assert moved.classes_.tolist() == CROWD.classes.tolist()
    np.testing.assert_allclose(moved.label_distributions_, model.apply(CROWD).label_distributions_, rtol=1e-9)


@by_the_base
def test_no_labels_to_learn_from_or_to_score(name: str, model: Model) -> None:
    nothing = CROWD.take_rows(np.zeros(CROWD.n_labels, dtype=bool))
    with pytest.raises(DataError, match="no label to learn from"):
        build(name).fit(nothing)
    with pytest.raises(DataError, match="no label to score"):
        model.score(nothing)


# ---- apply ---------------------------------------------------------------------------------------------


def test_transform_speaks_of_the_new_items_and_keeps_the_parameters(model: Model) -> None:
    before = dict(vars(model))
    numbers = {name: value.copy() for name, value in before.items() if isinstance(value, np.ndarray)}
    moved = model.apply(OTHER)
    assert type(moved) is type(model)
    assert moved is not model
    assert_sound(moved, OTHER)
    assert moved.items_.tolist() == OTHER.items.tolist()
    assert moved.annotators_.tolist() == OTHER.annotators.tolist()
    assert moved.get_params() == model.get_params()
    assert same_bits(moved.prior_distribution_, model.prior_distribution_)
    assert same_bits(moved.trace_, model.trace_)
    for array in model._arrays:
        # What is neither of items, annotators or labels nor where chains ended is a parameter.
        about = {M, N, CROWD.n_labels} & set(np.shape(getattr(model, array))[:2])
        if not about and not array.startswith("last_"):
            assert same_bits(getattr(moved, array), getattr(model, array)), array
    assert all(value is before[name] for name, value in vars(model).items())
    assert all(same_bits(before[name], value) for name, value in numbers.items())


def test_transform_of_the_training_data_gives_the_fit_back(name: str, model: Model) -> None:
    moved = model.apply(CROWD)
    gap = np.abs(moved.label_distributions_ - model.label_distributions_).max()
    assert gap <= (TRANSFORM_GAP if needs_annotators(name) else 0.0)


def test_each_new_item_stands_alone_where_annotators_do_not_matter(name: str, model: Model) -> None:
    if not needs_annotators(name):
        together = model.apply(OTHER).label_distributions_
        alone = [model.apply(OTHER[m]).label_distributions_[0] for m in range(OTHER.n_items)]
        np.testing.assert_allclose(together, alone, rtol=1e-12)


def test_transform_of_items_without_labels_expects_the_population(name: str, model: Model) -> None:
    moved = model.apply(OTHER.take_rows(OTHER.item > 3))
    expected = np.tile(model.prior_distribution_, (4, 1))
    np.testing.assert_allclose(moved.label_distributions_[:4], expected, rtol=UNSEEN_GAP.get(name, 1e-9))


# ---- frames in, frames out -----------------------------------------------------------------------------


@by_the_base
def test_a_pandas_frame_gives_a_series_keyed_by_item(name: str, model: Model) -> None:
    labels = build(name).fit_predict(crowd_rows())
    assert isinstance(labels, pd.Series)
    assert labels.name == "label"
    assert labels.index.tolist() == CROWD.items.tolist()
    assert labels.tolist() == model.predict().tolist()
    assert isinstance(build(name).fit(crowd_rows()).to_frame(), pd.DataFrame)


@by_the_base
def test_a_polars_frame_gives_a_polars_frame(name: str, model: Model) -> None:
    frame = pl.from_pandas(crowd_rows())
    labels = build(name).fit_predict(frame)
    assert isinstance(labels, pl.DataFrame)
    assert labels.schema == {"task": pl.String, "label": pl.String}
    assert labels["task"].to_list() == CROWD.items.tolist()
    assert labels["label"].to_list() == model.predict().tolist()
    table = build(name).fit(frame).to_frame()
    assert isinstance(table, pl.DataFrame)
    assert table["p_c1"].to_list() == model.label_distributions_[:, 0].tolist()


@by_the_base
def test_an_arrow_table_gives_an_arrow_table(name: str, model: Model) -> None:
    frame = pa.Table.from_pandas(crowd_rows())
    labels = build(name).fit_predict(frame)
    assert isinstance(labels, pa.Table)
    assert labels.column_names == ["task", "label"]
    assert labels["label"].to_pylist() == model.predict().tolist()
    table = build(name).fit(frame).to_frame()
    assert isinstance(table, pa.Table)
    assert table["p_c1"].to_pylist() == model.label_distributions_[:, 0].tolist()


@by_the_base
def test_numbers_in_a_frame_stay_numbers(name: str) -> None:
    rows = crowd_rows()
    numbered = rows.assign(task=rows.task.str[1:].astype(int), label=rows.label.str[1:].astype(int))
    labels = build(name).fit_predict(numbered)
    assert labels.index.dtype == labels.dtype == np.int64
    assert labels.index.tolist() == list(range(1, M + 1))


# ---- the class -------------------------------------------------------------------------------------------


def levels(kind: type) -> int:
    """Classes on the longest way up to ``object``."""
    return 0 if kind is object else 1 + max(map(levels, kind.__bases__))


def test_at_most_two_levels_of_inheritance_stand_above_a_model(name: str) -> None:
    assert levels(class_of(name)) <= 3


# ---- settings ------------------------------------------------------------------------------------------


def test_settings_go_in_and_out(name: str) -> None:
    built = build(name)
    settings = built.get_params()
    assert settings_of(name).items() <= settings.items()
    assert type(built)().set_params(**settings).get_params() == settings
    assert clone(built).get_params() == settings
    assert clone(built) is not built


def test_the_repr_rebuilds_the_model(name: str) -> None:
    built = build(name)
    rebuilt = eval(repr(built), {type(built).__name__: type(built)})
    assert rebuilt.get_params() == built.get_params()


def test_every_setting_has_a_rule_a_meaning_and_its_place_in_the_signature(name: str) -> None:
    settings = class_of(name)._settings
    assert list(settings) == list(build(name).get_params(deep=False))
    assert list(settings) == list(inspect.signature(class_of(name)).parameters)
    assert all(known.rule.holds(known.default) and known.meaning for known in settings.values())


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        (name, setting)
        for name in FROM_LABELS_ALONE
        for setting, known in class_of(name)._settings.items()
        if known.rule is not ANY
    ],
)
def test_a_bad_setting_is_refused_in_the_one_form(name: str, setting: str) -> None:
    bad: Any = ["not", "a setting"]
    title = class_of(name).__name__
    line = rf"The '{setting}' parameter of {title} must be [^\n]+\. Got {re.escape(repr(bad))} instead\."
    with pytest.raises(ParameterError, match=rf"\A{line}\Z"):
        build(name).set_params(**{setting: bad}).fit(CROWD)


def test_a_setting_that_is_none_of_its_own_is_refused(name: str) -> None:
    with pytest.raises(ParameterError, match=f"{class_of(name).__name__} has no setting 'nonsense'; it has"):
        build(name).set_params(nonsense=1)


@by_the_base
def test_settings_do_not_change_by_fitting(name: str) -> None:
    built = build(name)
    before = built.get_params()
    assert built.fit(CROWD).get_params() == before


USES: list[Callable[[Model], object]] = [
    *(lambda m: m.predict(), lambda m: m.predict_proba(["i"]), lambda m: m.score(CROWD)),
    *(lambda m: m.score_items(CROWD), lambda m: m.apply(CROWD), lambda m: m.to_frame()),
    *(lambda m: m.save("nowhere"), lambda m: m.label_distributions_, lambda m: m.items_),
    *(lambda m: m.trace_, lambda m: m.stopped_),
]


def test_an_unfitted_model_says_so(name: str) -> None:
    for use in USES:
        with pytest.raises(
            NotFittedError, match=rf"\Athis {class_of(name).__name__} is not fitted yet; call fit"
        ):
            use(build(name))


def test_scikit_learn_can_tell_whether_it_is_fitted(name: str, model: Model) -> None:
    check_is_fitted(model)
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(build(name))


@by_the_base
def test_a_misspelt_attribute_is_not_taken_for_an_unfitted_one(model: Model) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'label_distribution_'") as caught:
        model.label_distribution_  # type: ignore[attr-defined]  # noqa: B018
    assert not isinstance(caught.value, NotFittedError)


# ---- odd data ------------------------------------------------------------------------------------------

ROWS = crowd_rows()
MANY = usually(800, verify=2_000)  # four to the power of so many is no number any more
ODD: dict[str, ds.Annotations] = {
    "one class only": annotated(ROWS.assign(label="yes")),
    "one class of three declared": annotated(ROWS.assign(label="b"), classes=["a", "b", "c"]),
    "one annotator only": annotated(ROWS.assign(worker="w")),
    "one item only": annotated(ROWS.assign(task="t")),
    "one label only": annotated(ROWS.iloc[:1]),
    "one label on every item": annotated(ROWS.drop_duplicates("task")),
    "one label of every annotator": annotated(ROWS.assign(worker=[f"w{i}" for i in range(len(ROWS))])),
    "items without labels": CROWD.take_rows(CROWD.item % 2 == 0),
    "annotators without labels": CROWD.take_rows(CROWD.annotator % 2 == 0),
    "two crowds that never meet": annotated(
        pd.concat([ROWS, ROWS.assign(task="x" + ROWS.task, worker="x" + ROWS.worker)])
    ),
    "very many labels on one item": ds.Annotations.from_arrays(
        ["t"] * MANY + ["u"],
        [f"w{i}" for i in range(MANY)] + ["w0"],
        ["a", "a", "b", "c"] * (MANY // 4) + ["c"],
    ),
}


@pytest.mark.slow
def test_odd_data_give_sound_results(name: str) -> None:
    for oddity, data in ODD.items():
        fitted = build(name).fit(data)
        for result in (fitted, fitted.apply(data)):
            try:
                assert_sound(result, data)
            except AssertionError as error:
                error.add_note(oddity)
                raise


def test_one_class_only_is_certain(name: str) -> None:
    fitted = build(name).fit(ODD["one class only"])
    np.testing.assert_allclose(fitted.label_distributions_, np.ones((M, 1)), rtol=1e-12)
    assert set(fitted.predict()) == {"yes"}


@pytest.mark.parametrize("name", [name for name in CASES if not needs_annotators(name)], scope="module")
def test_class_counts_do_for_models_of_items(name: str, model: Model) -> None:
    anonymous = ds.Annotations.from_counts(CROWD.counts, items=CROWD.items, classes=CROWD.classes)
    from_counts = build(name).fit(anonymous)
    assert same_bits(from_counts.label_distributions_, model.label_distributions_)
    assert from_counts.score(CROWD) == model.score(CROWD)
    assert_sound(model.apply(anonymous), anonymous)


@pytest.mark.parametrize("name", [name for name in CASES if needs_annotators(name)], scope="module")
def test_class_counts_are_refused_by_models_of_annotators(name: str, model: Model) -> None:
    anonymous = ds.Annotations.from_counts(CROWD.counts, items=CROWD.items, classes=CROWD.classes)
    line = (
        r"\A\w+ needs to know who gave each label, and class counts do not say; use an item-side model .*\Z"
    )
    with pytest.raises(DataError, match=line):
        build(name).fit(anonymous)
    with pytest.raises(DataError, match=line):
        model.apply(anonymous)


@pytest.mark.parametrize("name", FROM_LABELS_ALONE)
def test_an_unknown_model_is_answered_with_the_nearest(name: str) -> None:
    with pytest.raises(
        ParameterError, match=rf"there is no model '{name}x'; did you mean '{name}'\? known: "
    ):
        model_class(name + "x")


@by_the_base
def test_it_can_be_searched_by_scikit_learn(name: str) -> None:
    # The search sets a private attribute on the estimator before each fit and deletes it afterwards.
    search = GridSearchCV(build(name), {}, cv=2, scoring=lambda model, X, y=None: model.n_labels_.sum())
    best = search.fit(CROWD).best_estimator_
    assert same_bits(best.label_distributions_, build(name).fit(CROWD).label_distributions_)
    assert not [attribute for attribute in vars(best) if attribute.startswith("_")]
