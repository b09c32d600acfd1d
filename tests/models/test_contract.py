"""Contract of every model in the registry; a new model joins by being registered.

``SMALL`` has settings that keep a fit quick; ``VARIANTS`` adds models with other settings. Behaviour of the
base class is tested on a few models (``base_behaviour``); ``make verify`` runs all of them.
"""

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
from numpy.testing import assert_allclose
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
from tests.helpers.registry import FROM_LABELS_ALONE
from tests.helpers.sizes import usually

pytestmark = pytest.mark.no_cover

SMALL: dict[str, dict[str, Any]] = {
    "fmm": {"n_item_clusters": 3, "max_iter": 40},
    "dawid-skene": {"max_iter": 20},
    "cbcc": {"n_annotator_clusters": 2, "max_iter": 15},
    "ibcc": {"max_iter": 15},
    "ebcc": {"n_subtypes": 2, "max_iter": 10},
    "log-linear": {"max_iter": 15},
    "pgm": {"n_item_clusters": 3, "n_annotator_clusters": 2, "max_iter": 20},
    "hpgm": {"n_item_clusters": 4, "n_annotator_clusters": 3, "n_chains": 2, "n_sweeps": 12},
    "latent": {"n_annotator_dimensions": 2, "n_sweeps": 12},
}
VARIANTS: dict[str, dict[str, Any]] = {  # registry name, colon, description
    "empirical: unsmoothed": {"smoothing": 0.0},
    "dawid-skene: population": {"estimate": "population", "max_iter": 20},
    "ebcc: population": {"n_subtypes": 2, "estimate": "population", "max_iter": 10},
    "fmm: maximum likelihood": {"n_item_clusters": 3, "alpha": 1.0, "gamma": 1.0},
    "pgm: annealing": {"n_item_clusters": 3, "inference": "annealing", "max_iter": 20},
    "pgm: vb": {"n_item_clusters": 3, "inference": "vb", "max_iter": 20},
}
CASES = [*FROM_LABELS_ALONE, *VARIANTS]

# With and without annotators; with messages, with draws, with an objective and without.
FEW = ["majority", "fmm", "dawid-skene", "pgm", "hpgm"]
base_behaviour = pytest.mark.parametrize("name", usually(FEW, verify=CASES), scope="module")

# Largest difference between `apply` to the training data and the fit: message sums in another order round
# differently.
APPLY_GAP = 1e-12
# Largest relative difference between an item without labels and an unknown item. Variational Bayes uses
# exp E log ψ for the former and E ψ for the latter; HPGM stores draws in single precision.
UNKNOWN_GAP: dict[str, float] = {"pgm: vb": 0.05, "hpgm": 1e-7}
NOT_SAVED = {"best_states_", "run_variance_", "sampled_"}

M, N, P = 41, 13, 4  # distinct, so that shapes identify axes
SHARES = [f"p_c{p}" for p in range(1, P + 1)]


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
    """Return simulated labels as shuffled (task, worker, label) rows; one pair has two labels."""
    labels = ds.simulate(n_items, n_annotators, P, labels_per_item=6, seed=seed).annotations
    rows = labels.to_frame().set_axis(["task", "worker", "label"], axis=1)
    second_answer = rows.iloc[[0]].assign(label=lambda row: np.where(row.label == "c1", "c2", "c1"))
    return pd.concat([rows, second_answer]).sample(frac=1, random_state=seed).reset_index(drop=True)


def annotated(rows: pd.DataFrame, **options: Any) -> ds.Annotations:
    return ds.Annotations.from_arrays(rows.task, rows.worker, rows.label, **options)


CROWD = annotated(crowd_rows())
OTHER = annotated(crowd_rows(17, 9, seed=1).assign(task=lambda rows: "new " + rows.task))
ANONYMOUS = ds.Annotations.from_counts(CROWD.counts, items=CROWD.items, classes=CROWD.classes)


def same_bits(first: Any, second: Any) -> bool:
    a, b = np.asarray(first), np.asarray(second)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def all_pairs(data: ds.Annotations) -> tuple[Any, Any]:
    return np.repeat(data.items, data.n_annotators), np.tile(data.annotators, data.n_items)


def results(model: Model, data: ds.Annotations) -> dict[str, Any]:
    """Return all numbers of a fitted model about some data."""
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


def assert_same_results(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first.keys() == second.keys()
    assert [key for key in first if not same_bits(first[key], second[key])] == []


def assert_valid(model: Model, data: ds.Annotations) -> None:
    """Check shapes, that rows sum to one, and that nothing is NaN."""
    assert model.label_distributions_.shape == (data.n_items, data.n_classes)
    assert model.n_labels_.tolist() == np.bincount(data.item, minlength=data.n_items).tolist()
    pairs = model.predict_proba(*all_pairs(data)) if data.n_items * data.n_annotators < 10**5 else None
    for table in (model.label_distributions_, model.prior_distribution_[None], pairs):
        if table is not None:
            assert np.isfinite(table).all()
            assert (table >= 0).all()
            assert_allclose(table.sum(axis=1), 1, rtol=1e-12)
    assert not np.isnan(model.trace_).any()
    assert not math.isnan(model.score(data))
    assert set(model.predict()) <= set(data.classes)


@pytest.fixture(scope="module", params=CASES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def model(name: str) -> Model:
    """Model fitted once for all tests that do not change it."""
    return build(name).fit(CROWD)


# ---- fitting -------------------------------------------------------------------------------------------


def test_shapes_and_sums(model: Model) -> None:
    assert_valid(model, CROWD)
    assert model.label_distributions_.dtype == np.float64
    for ids in ("items", "annotators", "classes"):
        assert getattr(model, f"{ids}_").tolist() == getattr(CROWD, ids).tolist()
    assert model.trace_.ndim == 1
    assert model.stopped_


@base_behaviour
def test_refitting_discards_the_first_fit(name: str) -> None:
    again = build(name).fit(OTHER)
    again.leftover_ = "from the first fit"  # type: ignore[attr-defined]
    settings = again.get_params()
    assert again.fit(CROWD) is again
    assert again.get_params() == settings
    assert not hasattr(again, "leftover_")
    assert_same_results(results(again, CROWD), results(build(name).fit(CROWD), CROWD))


@base_behaviour
def test_an_interrupted_fit_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = build(name).fit(CROWD)
    before = results(fitted, CROWD)

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(fitted), "_fit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(OTHER)
    assert fitted.items_.tolist() == CROWD.items.tolist()
    assert_same_results(results(fitted, CROWD), before)


def test_the_data_frame_agrees_with_the_arrays(model: Model) -> None:
    frame = model.to_frame()
    columns = ["item", "label", *SHARES]
    if model.intervals() is not None:
        columns += [f"{end}_c{p}" for end in ("low", "high") for p in range(1, P + 1)]
        columns += ["p_top", "effective_labels"]
        for p in range(1, P + 1):
            assert (frame[f"low_c{p}"] <= frame[f"p_c{p}"]).all()
            assert (frame[f"p_c{p}"] <= frame[f"high_c{p}"]).all()
        assert frame["p_top"].between(0, 1).all()
        assert (frame["effective_labels"] >= 0).all()
    assert list(frame.columns) == [*columns, "entropy", "n_labels"]
    assert frame["item"].tolist() == CROWD.items.tolist()
    largest = model.classes_[model.label_distributions_.argmax(axis=1)].tolist()
    assert frame["label"].tolist() == model.predict().tolist() == largest
    assert same_bits(frame[SHARES].to_numpy().copy("C"), model.label_distributions_)
    expected = entropy(model.label_distributions_, axis=1)
    assert_allclose(frame["entropy"], expected, rtol=1e-12, atol=1e-15)
    assert frame["n_labels"].sum() == CROWD.n_labels


# ---- reproducibility -----------------------------------------------------------------------------------


def test_shuffled_rows_and_new_ids_give_the_same_bits(name: str, model: Model) -> None:
    rows = crowd_rows().sample(frac=1, random_state=1)
    number = rows.worker.str[1:].astype(int) * 7 - 1000
    label = rows.label.map({"c1": "a", "c2": "b", "c3": "ba", "c4": "é"})
    renamed = annotated(rows.assign(task="task " + rows.task, worker=number, label=label))
    assert_same_results(results(model, CROWD), results(build(name).fit(renamed), renamed))


@pytest.mark.parametrize("name", [name for name in CASES if has_setting(name, "n_jobs")])
def test_shards_and_jobs_do_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = build(name).fit(CROWD)
    expected_score = expected.score(CROWD)
    monkeypatch.setattr(engine, "LABELS_PER_SHARD", 32)
    monkeypatch.setattr("dissensus.models.scoring.PAIRS_PER_BATCH", 100)
    assert len(engine.cut_blocks(CROWD)) > 5
    serial, parallel = (build(name, n_jobs=n_jobs).fit(CROWD) for n_jobs in (1, 2))
    assert_allclose(serial.label_distributions_, expected.label_distributions_, rtol=1e-6, atol=1e-12)
    assert_allclose(serial.score(CROWD), expected_score, rtol=1e-6)
    assert_same_results(results(serial, CROWD), results(parallel, CROWD))
    assert_same_results(results(serial.apply(OTHER), OTHER), results(parallel.apply(OTHER), OTHER))


# ---- saving --------------------------------------------------------------------------------------------


def test_a_loaded_model_equals_the_saved_one(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m.safetensors")
    loaded = ds.load(tmp_path / "m.safetensors")
    loaded.save(tmp_path / "again")
    assert (tmp_path / "m.safetensors").read_bytes() == (tmp_path / "again").read_bytes()
    assert type(loaded) is type(model)
    assert loaded.get_params() == model.get_params()
    assert_same_results(results(loaded, CROWD), results(model, CROWD))
    for ids in ("items_", "annotators_", "classes_"):
        assert getattr(loaded, ids).tolist() == getattr(model, ids).tolist()
    assert loaded.to_frame().equals(model.to_frame())
    assert_same_results(results(loaded.apply(OTHER), OTHER), results(model.apply(OTHER), OTHER))
    assert {name for name in vars(model) if name.endswith("_")} - set(vars(loaded)) <= NOT_SAVED


@base_behaviour
def test_ids_keep_their_type_in_a_file(name: str, tmp_path: Path) -> None:
    rows = crowd_rows()
    task, worker = rows.task.str[1:].astype(int), rows.worker.str[1:].astype(float)
    fitted = build(name).fit(ds.Annotations.from_arrays(task, worker, rows.label == "c1"))
    fitted.save(tmp_path / "m")
    loaded = ds.load(tmp_path / "m")
    for ids, kind in (("items_", "i"), ("annotators_", "f"), ("classes_", "b")):
        assert same_bits(getattr(loaded, ids), getattr(fitted, ids))
        assert getattr(loaded, ids).dtype.kind == kind


# ---- predictions ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the model was not fitted on")
def test_unknown_ids_get_the_population(model: Model) -> None:
    item, annotator = CROWD.items[:1], CROWD.annotators[:1]
    assert same_bits(model.predict_proba(["unknown"])[0], model.prior_distribution_)
    for pair in ((["unknown"], annotator), (item, ["unknown"]), (["unknown"], ["unknown"])):
        distribution = model.predict_proba(*pair)
        assert distribution.shape == (1, P)
        assert (distribution >= 0).all()
        assert_allclose(distribution.sum(), 1, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:the model was not fitted on")
def test_an_item_without_labels_is_like_an_unknown_one(name: str) -> None:
    with_gap = CROWD.take_rows(CROWD.item != 5)
    fitted = build(name).fit(with_gap)
    assert_valid(fitted, with_gap)
    gap = UNKNOWN_GAP.get(name, 1e-9)
    unlabelled, unknown = fitted.predict_proba([CROWD.items[5], "unknown"])
    assert_allclose(unlabelled, unknown, rtol=gap)
    pairs = fitted.predict_proba([CROWD.items[5], "unknown"], [CROWD.annotators[0]] * 2)
    assert_allclose(pairs[0], pairs[1], rtol=gap)


@base_behaviour
def test_rows_follow_the_requested_ids(model: Model) -> None:
    items, annotators = all_pairs(CROWD)
    table = model.predict_proba(items, annotators)
    rows = np.random.default_rng(0).integers(len(items), size=50)
    assert same_bits(model.predict_proba(items[rows].tolist(), list(annotators[rows])), table[rows])
    assert same_bits(model.predict_proba(CROWD.items), model.label_distributions_)
    assert model.predict_proba([]).shape == model.predict_proba([], []).shape == (0, P)


@base_behaviour
def test_ids_must_be_lists_of_equal_length(model: Model) -> None:
    with pytest.raises(DataError, match="2 items and 1 annotators do not pair up"):
        model.predict_proba(CROWD.items[:2], CROWD.annotators[:1])
    with pytest.raises(DataError, match=r"items: a list of ids is needed, got 'i01'; write \['i01'\]"):
        model.predict_proba("i01")
    with pytest.raises(DataError, match="annotators: a list of ids is needed, got 3"):
        model.predict_proba(["i01"], 3)


# ---- scores --------------------------------------------------------------------------------------------


def mean_log(model: Model, hidden: ds.Annotations, by_annotator: bool) -> float:
    """Compute the mean log-probability label by label."""
    logs = []
    for item, annotator, label in zip(hidden.item, hidden.annotator, hidden.label, strict=True):
        annotators = [hidden.annotators[annotator]] if by_annotator else None
        distribution = model.predict_proba([hidden.items[item]], annotators)[0]
        probability = distribution[model.classes_.tolist().index(hidden.classes[label])]
        logs.append(math.log(probability) if probability > 0 else -math.inf)
    return sum(logs) / len(logs)


@pytest.mark.filterwarnings("ignore:the model was not fitted on")
def test_score_is_the_mean_log_of_predict_proba(name: str) -> None:
    train, rest = CROWD.split_labels(test_size=0.2, seed=0)
    settings = {"estimate": "population"} if has_setting(name, "estimate") else {}
    fitted = build(name, **settings).fit(train)
    for labels in (rest, OTHER):  # of the same crowd, and of another one
        subset = labels.take_rows(np.arange(labels.n_labels) < usually(6, verify=60))
        for score, by_annotator in ((fitted.score, True), (fitted.score_items, False)):
            assert_allclose(score(subset), mean_log(fitted, subset, by_annotator), rtol=1e-12)


def test_a_class_that_was_not_fitted_is_rejected(model: Model) -> None:
    rows = crowd_rows()
    renamed = annotated(rows.assign(label=rows.label.replace("c2", "maybe")))
    for use in (model.score, model.score_items, model.apply):
        with pytest.raises(DataError, match=r"the model was not fitted on class 'maybe'; .*drop"):
            use(renamed)


def test_unused_classes_and_class_order_do_not_matter(model: Model) -> None:
    shuffled = annotated(crowd_rows(), classes=["c3", "never used", "c1", "c4", "c2"])
    assert_allclose(model.score(shuffled), model.score(CROWD), rtol=1e-12)
    applied = model.apply(shuffled)
    assert applied.classes_.tolist() == CROWD.classes.tolist()
    expected = model.apply(CROWD).label_distributions_
    assert_allclose(applied.label_distributions_, expected, rtol=1e-9)


@base_behaviour
def test_no_labels_are_rejected(name: str, model: Model) -> None:
    nothing = CROWD.take_rows(np.zeros(CROWD.n_labels, dtype=bool))
    with pytest.raises(DataError, match="there are no labels to fit"):
        build(name).fit(nothing)
    with pytest.raises(DataError, match="no labels to score"):
        model.score(nothing)


# ---- apply ---------------------------------------------------------------------------------------------


def test_apply_keeps_parameters_and_the_model(model: Model) -> None:
    before = dict(vars(model))
    arrays = {name: value.copy() for name, value in before.items() if isinstance(value, np.ndarray)}
    applied = model.apply(OTHER)
    assert type(applied) is type(model)
    assert applied is not model
    assert_valid(applied, OTHER)
    assert applied.items_.tolist() == OTHER.items.tolist()
    assert applied.annotators_.tolist() == OTHER.annotators.tolist()
    assert applied.get_params() == model.get_params()
    assert same_bits(applied.prior_distribution_, model.prior_distribution_)
    assert same_bits(applied.trace_, model.trace_)
    for array in model._arrays:
        # an array is a parameter unless it has an axis of items, annotators or labels, or ends a chain
        axes = {M, N, CROWD.n_labels} & set(np.shape(getattr(model, array))[:2])
        if not axes and not array.startswith(("last_", "crowd_")):
            assert same_bits(getattr(applied, array), getattr(model, array)), array
    assert all(value is before[name] for name, value in vars(model).items())
    assert all(same_bits(before[name], value) for name, value in arrays.items())


def test_apply_to_the_training_data_returns_the_fit(name: str, model: Model) -> None:
    gap = np.abs(model.apply(CROWD).label_distributions_ - model.label_distributions_).max()
    assert gap <= (APPLY_GAP if needs_annotators(name) else 0.0)


# ---- data frames ---------------------------------------------------------------------------------------


@base_behaviour
@pytest.mark.parametrize("convert", [pl.from_pandas, pa.Table.from_pandas], ids=["polars", "arrow"])
def test_other_data_frames_come_back_as_they_are(
    name: str, model: Model, convert: Callable[[pd.DataFrame], Any]
) -> None:
    frame = convert(crowd_rows())
    fitted = build(name).fit(frame)
    labels, table = fitted.labels_, fitted.to_frame()
    assert type(labels) is type(table) is type(frame)
    columns = labels.columns if isinstance(labels, pl.DataFrame) else labels.column_names
    assert columns == ["task", "label"]
    assert np.asarray(labels["label"]).tolist() == model.predict().tolist()
    assert np.asarray(table["p_c1"]).tolist() == model.label_distributions_[:, 0].tolist()


# ---- settings ------------------------------------------------------------------------------------------


def test_settings_survive_set_params_clone_and_repr(name: str) -> None:
    built = build(name)
    settings = built.get_params()
    assert settings_of(name).items() <= settings.items()
    assert type(built)().set_params(**settings).get_params() == settings
    assert clone(built).get_params() == settings
    assert clone(built) is not built
    assert eval(repr(built), {type(built).__name__: type(built)}).get_params() == settings


def test_every_setting_is_declared(name: str) -> None:
    settings = class_of(name)._settings
    assert list(settings) == list(build(name).get_params(deep=False))
    assert list(settings) == list(inspect.signature(class_of(name)).parameters)
    assert all(setting.rule.holds(setting.default) and setting.meaning for setting in settings.values())


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        (name, setting)
        for name in FROM_LABELS_ALONE
        for setting, declared in class_of(name)._settings.items()
        if declared.rule is not ANY
    ],
)
def test_an_invalid_setting_is_rejected(name: str, setting: str) -> None:
    bad: Any = {"not": "a setting"} if setting == "attributes" else ["not", "a setting"]
    title = class_of(name).__name__
    line = rf"The '{setting}' parameter of {title} must be [^\n]+\. Got {re.escape(repr(bad))} instead\."
    with pytest.raises(ParameterError, match=rf"\A{line}\Z"):
        build(name).set_params(**{setting: bad}).fit(CROWD)


def test_an_unknown_setting_or_model_is_rejected(name: str) -> None:
    with pytest.raises(ParameterError, match=f"{class_of(name).__name__} has no setting 'nonsense'; it has"):
        build(name).set_params(nonsense=1)
    name = name.partition(":")[0]
    line = rf"there is no model '{name}x'; did you mean '{name}'\? known: "
    with pytest.raises(ParameterError, match=line):
        model_class(name + "x")


USES: list[Callable[[Model], object]] = [
    *(lambda m: m.predict(), lambda m: m.predict_proba(["i"]), lambda m: m.score(CROWD)),
    *(lambda m: m.score_items(CROWD), lambda m: m.apply(CROWD), lambda m: m.to_frame()),
    *(lambda m: m.save("nowhere"), lambda m: m.label_distributions_, lambda m: m.items_),
    *(lambda m: m.trace_, lambda m: m.stopped_),
]


def test_an_unfitted_model_raises_not_fitted(name: str, model: Model) -> None:
    line = rf"\Athis {class_of(name).__name__} is not fitted yet; call fit"
    for use in USES:
        with pytest.raises(NotFittedError, match=line):
            use(build(name))
    check_is_fitted(model)
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(build(name))
    with pytest.raises(AttributeError, match="has no attribute 'label_distribution_'") as caught:
        model.label_distribution_  # type: ignore[attr-defined]  # noqa: B018
    assert not isinstance(caught.value, NotFittedError)


@base_behaviour
def test_grid_search_of_scikit_learn_works(name: str) -> None:
    # it sets a private attribute before each fit and deletes it afterwards
    search = GridSearchCV(build(name), {}, cv=2, scoring=lambda model, X, y=None: model.n_labels_.sum())
    best = search.fit(CROWD).best_estimator_
    assert same_bits(best.label_distributions_, build(name).fit(CROWD).label_distributions_)
    assert not [attribute for attribute in vars(best) if attribute.startswith("_")]


# ---- unusual data --------------------------------------------------------------------------------------

ROWS = crowd_rows()
MANY = usually(800, verify=2_000)  # 4^MANY overflows
UNUSUAL: dict[str, ds.Annotations] = {
    "one class": annotated(ROWS.assign(label="yes")),
    "one class of three declared": annotated(ROWS.assign(label="b"), classes=["a", "b", "c"]),
    "one annotator": annotated(ROWS.assign(worker="w")),
    "one item": annotated(ROWS.assign(task="t")),
    "one label": annotated(ROWS.iloc[:1]),
    "one label per item": annotated(ROWS.drop_duplicates("task")),
    "one label per annotator": annotated(ROWS.assign(worker=[f"w{i}" for i in range(len(ROWS))])),
    "items without labels": CROWD.take_rows(CROWD.item % 2 == 0),
    "annotators without labels": CROWD.take_rows(CROWD.annotator % 2 == 0),
    "two disconnected crowds": annotated(
        pd.concat([ROWS, ROWS.assign(task="x" + ROWS.task, worker="x" + ROWS.worker)])
    ),
    "a thousand labels of one pair": annotated(pd.concat([ROWS] + [ROWS.iloc[:2]] * 500)),
    "very many labels of one item": ds.Annotations.from_arrays(
        ["t"] * MANY + ["u"],
        [f"w{i}" for i in range(MANY)] + ["w0"],
        ["a", "a", "b", "c"] * (MANY // 4) + ["c"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", UNUSUAL)
def test_unusual_data_give_valid_results(name: str, case: str) -> None:
    fitted = build(name).fit(UNUSUAL[case])
    for result in (fitted, fitted.apply(UNUSUAL[case])):
        assert_valid(result, UNUSUAL[case])
    if case == "one class":
        assert_allclose(fitted.label_distributions_, np.ones((M, 1)), rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in CASES if not needs_annotators(name)], scope="module")
def test_class_counts_suffice_without_annotators(name: str, model: Model) -> None:
    from_counts = build(name).fit(ANONYMOUS)
    assert same_bits(from_counts.label_distributions_, model.label_distributions_)
    assert from_counts.score(CROWD) == model.score(CROWD)
    assert_valid(model.apply(ANONYMOUS), ANONYMOUS)


@pytest.mark.parametrize("name", [name for name in CASES if needs_annotators(name)], scope="module")
def test_class_counts_are_rejected_with_annotators(name: str, model: Model) -> None:
    line = r"\A\w+ needs the annotator of each label, which class counts do not have; use a model without "
    for use in (build(name).fit, model.apply):
        with pytest.raises(DataError, match=line):
            use(ANONYMOUS)
