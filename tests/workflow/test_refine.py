"""``fit``: the choice of a model, its fit to all labels, progress, and labels that are refused."""

import pandas as pd
import pytest

import dissensus as ds
from dissensus.errors import DataError, ParameterError
from dissensus.labels.annotations import Annotations
from dissensus.workflow.refine import fit

LABELS = ds.simulate(60, 20, 3, labels_per_item=4).annotations


def test_a_named_model_is_compared_with_the_baseline() -> None:
    run = fit(LABELS, "fmm", {"n_item_clusters": 3})
    assert [type(row.model).__name__ for row in run.held_out] == ["FMM", "EmpiricalDistribution"]
    assert run.reason == ""
    assert len(fit(LABELS, "empirical").held_out) == 1  # the baseline itself
    assert fit(LABELS, "majority", test_size=0).held_out == []


def test_the_model_is_fitted_to_all_labels() -> None:
    run = fit(LABELS, "fmm", {"n_item_clusters": 3}, seed=2)
    alone = ds.FMM(n_item_clusters=3, seed=2).fit(LABELS)
    assert (run.model.label_distributions_ == alone.label_distributions_).all()


def test_columns_are_named_as_the_message_says() -> None:
    frame = pd.DataFrame({"essay": ["a", "a", "b"], "page": 1, "grader": ["x", "y", "x"], "score": [3, 2, 3]})
    with pytest.raises(DataError) as caught:
        fit(frame, "majority", test_size=0)
    assert "read_annotations(data, item=…)" in str(caught.value)
    for run in (
        fit(ds.read_annotations(frame, item="essay"), "majority", test_size=0),
        fit(frame, "majority", test_size=0, item="essay"),
    ):
        assert run.annotations.n_items == 2


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ParameterError, match="n_item_clusters: name the model="):
        fit(LABELS, settings={"n_item_clusters": 3})
    with pytest.raises(ParameterError, match="'test_size' parameter of fit"):
        fit(LABELS, "majority", test_size=1.0)
    with pytest.raises(ParameterError, match="fit has no setting 'fsat'; did you mean 'fast'"):
        fit(LABELS, fsat=True)


def test_iterations_advance_the_progress() -> None:
    reports: list[tuple[str, float]] = []
    iterations: list[str] = []
    settings = {"n_item_clusters": 3, "max_iter": 4, "tol": 0.0, "n_restarts": 1}

    def report(message: str, share: float) -> None:
        reports.append((message, round(share, 6)))

    with ds.resources(progress=lambda message, share: iterations.append(message)):
        run = fit(ds.simulate(n_items=60, seed=1).annotations, "fmm", settings, test_size=0, progress=report)
    assert len(run.model.trace_) == 4
    expected = [f"iteration {n} of at most 4" for n in range(1, 5)]
    assert [message.partition(",")[0] for message in iterations] == expected
    # from 0 to 95 %, where files are written
    assert [share for _, share in reports] == [0.0, 0.2375, 0.475, 0.7125, 0.95]
    assert {message for message, _ in reports} == {"fitting fmm 3 max_iter=4 tol=0.0 to all labels"}


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
        assert fit(labels, "majority", test_size=0).model is not None
    assert fit(once, estimate="truth").estimate == "truth"
