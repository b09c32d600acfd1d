"""``fit``: the choice of a model, its fit to all labels, progress, and labels that are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dissensus as ds
from dissensus.errors import DataError, DissensusWarning, ParameterError
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import with_features
from dissensus.models import name_of
from dissensus.workflow.refine import default_model, fit

LABELS = ds.simulate(60, 20, 3, labels_per_item=4).annotations


def test_nothing_is_compared_unless_asked() -> None:
    run = fit(LABELS, "fmm", {"n_item_clusters": 3})
    assert (run.held_out, run.reason) == ([], "")
    assert set(run.seconds) == {"fit"}


@pytest.mark.slow
def test_comparison_does_not_change_the_fit(tmp_path: Path) -> None:
    labels = ds.simulate(30, 12, 3, labels_per_item=5).annotations
    plain, compared = (fit(labels, fast=True, compare=compare, n_jobs=1) for compare in (False, True))
    np.testing.assert_array_equal(plain.model.label_distributions_, compared.model.label_distributions_)
    expected = ds.compare(labels, n_jobs=1).table
    assert [row.score_items for row in compared.held_out] == [row.score_items for row in expected]
    assert len(expected) > 5
    assert (compared.reason, set(compared.seconds)) == ("", {"fit", "compare"})
    assert plain.write(tmp_path / "plain")["held_out"] == []
    rows = compared.write(tmp_path / "compared")["held_out"]
    assert [row["model"] for row in rows] == [name_of(row.model) for row in expected]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nominal", "ordinal"])
def test_default_for_classes_is_the_pool(kind: Any) -> None:
    run = fit(LABELS.with_label_type(kind), fast=True)
    assert type(run.model) is ds.Pool
    assert run.reason == ""
    assert (run.model.n_chains, run.model.n_sweeps) == (2, 100)
    assert ds.Pool()._chains_and_sweeps(LABELS) == (8, 200)
    # the model's default chains are more, and settings replace those of a fast fit
    model, _ = default_model(LABELS, {"n_chains": 3}, 5, 1, fast=True)
    assert (model.n_chains, model.n_sweeps, model.seed) == (3, 100, 5)


def test_default_without_annotators_or_with_many_classes() -> None:
    counts = Annotations.from_counts([[3, 1], [2, 2], [0, 4]] * 10)
    model, reason = default_model(counts, {}, 0, 1)
    assert (type(model), reason) == (ds.FMM, "the annotators are unknown")
    model, reason = default_model(Annotations.from_counts([[3, 1], [2, 2]]), {}, 0, 1)
    assert (type(model), reason) == (ds.EmpiricalDistribution, "the annotators are unknown")
    rng = np.random.default_rng(0)
    many = Annotations.from_arrays(
        np.repeat(np.arange(300), 4), np.tile(np.arange(4), 300), rng.integers(120, size=1200)
    )
    model, reason = default_model(many, {}, 0, 1)
    assert isinstance(model, ds.EmpiricalDistribution)
    assert reason == "120 classes are too many for the default model"
    with ds.resources(memory="200MB"):
        model, reason = default_model(LABELS, {}, 0, 1)
    assert (type(model), reason) == (ds.EmpiricalDistribution, "memory is too small for the default model")


@pytest.mark.slow
def test_default_uses_features() -> None:
    labels = with_features(LABELS, np.random.default_rng(0).normal(size=(60, 2)))
    model, reason = default_model(labels, {}, 0, 1)
    assert (type(model), model.use_features, reason) == (ds.Pool, True, "")
    assert not default_model(labels, {"use_features": False}, 0, 1)[0].use_features


@pytest.mark.slow
def test_time_limit(tmp_path: Path) -> None:
    run = fit(LABELS, "pool", {"n_chains": 2, "n_sweeps": 10}, minutes=1e-9)
    assert run.model.stopped_ == "time limit"
    assert len(run.model.last_states_) == 2
    summary = run.write(tmp_path / "run")
    assert summary["stopped"] == "time limit"
    difference = float(run.model.run_difference_)
    assert summary["run_difference"] == pytest.approx(difference, abs=1e-5)
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f"would move an item's shares by {100 * difference:.1f} % on average" in page.replace(
        "\\u0027", "'"
    )
    # a limit reaches fits with limited memory, too
    with ds.resources(memory="4GB"):
        assert (
            fit(LABELS, "hpgm", {"n_chains": 2, "n_sweeps": 10}, minutes=1e-9).model.stopped_ == "time limit"
        )
    with ds.resources(memory="4GB", progress=lambda *_: None):
        assert fit(LABELS, "hpgm", {"n_chains": 2, "n_sweeps": 10}).model.stopped_ != "time limit"


def test_the_model_is_fitted_to_all_labels() -> None:
    run = fit(LABELS, "fmm", {"n_item_clusters": 3}, seed=2)
    alone = ds.FMM(n_item_clusters=3, seed=2).fit(LABELS)
    assert (run.model.label_distributions_ == alone.label_distributions_).all()


def test_columns_are_named_as_the_message_says() -> None:
    frame = pd.DataFrame({"essay": ["a", "a", "b"], "page": 1, "grader": ["x", "y", "x"], "score": [3, 2, 3]})
    with pytest.raises(DataError) as caught:
        fit(frame, "majority")
    assert "read_annotations(data, item=…)" in str(caught.value)
    for run in (
        fit(ds.read_annotations(frame, item="essay"), "majority"),
        fit(frame, "majority", item="essay"),
    ):
        assert run.annotations.n_items == 2


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ParameterError, match="pool has no setting 'n_clusters'"):
        fit(LABELS, settings={"n_clusters": 3})
    for minutes in (0.0, -1.0, "long"):
        with pytest.raises(ParameterError, match="'minutes' parameter of fit"):
            fit(LABELS, "majority", minutes=minutes)
    with pytest.raises(ParameterError, match="fit has no setting 'fsat'; did you mean 'fast'"):
        fit(LABELS, fsat=True)


def test_iterations_advance_the_progress() -> None:
    reports: list[tuple[str, float]] = []
    iterations: list[str] = []
    settings = {"n_item_clusters": 3, "max_iter": 4, "tol": 0.0, "n_restarts": 1}

    def report(message: str, share: float) -> None:
        reports.append((message, round(share, 6)))

    with ds.resources(progress=lambda message, share: iterations.append(message)):
        run = fit(ds.simulate(n_items=60, seed=1).annotations, "fmm", settings, progress=report)
    assert len(run.model.trace_) == 4
    expected = [f"iteration {n} of at most 4" for n in range(1, 5)]
    assert [message.partition(",")[0] for message in iterations] == expected
    # from 0 to 95 %, where files are written
    assert [share for _, share in reports] == [0.0, 0.2375, 0.475, 0.7125, 0.95]
    assert {message for message, _ in reports} == {"fitting fmm 3 max_iter=4 tol=0.0"}


def test_labels_without_disagreement_are_refused() -> None:
    alone = Annotations.from_arrays(["i", "j"], ["a", "a"], ["x", "y"])
    once = Annotations.from_arrays(["i", "j", "k"], ["a", "b", "a"], ["x", "y", "x"])
    n = 500
    half, side = [k // 2 for k in range(n)], [k % 2 for k in range(n)]
    texts = Annotations.from_arrays(half, side, [f"t{k}" for k in range(n)])
    no_pairs = "no item has labels by two annotators"
    cases = (alone, "all labels are by one annotator"), (once, no_pairs), (texts, "look like free text")
    for labels, message in cases:
        with pytest.raises(DataError, match=message):
            fit(labels)
        assert fit(labels, "majority").model is not None
    assert fit(once, estimate="truth").estimate == "truth"


def test_features_that_are_missing_are_an_error() -> None:
    labels = ds.simulate(30, 5, 3, labels_per_item=3, seed=0).annotations
    with pytest.raises(DataError, match="neither features nor a column 'text'"):
        fit(labels, settings={"use_features": True, "n_chains": 2, "n_sweeps": 10})


@pytest.mark.parametrize("settings", [{"estimate": "truth"}, {"model": "fmm"}])
def test_settings_without_effect_are_named(settings: dict[str, Any]) -> None:
    labels = ds.simulate(30, 5, 3, labels_per_item=3, seed=0).annotations
    with pytest.warns(DissensusWarning, match=r"no effect on .*: fast=, minutes="):
        fit(labels, fast=True, minutes=1.0, **settings)
