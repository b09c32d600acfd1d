"""A whole job as the library does it: decide, fit, write."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import dissensus
import dissensus as ds
from dissensus.errors import DataError, ParameterError
from dissensus.labels.annotations import Annotations
from dissensus.labels.simulation import simulate
from dissensus.workflow.refine import fit
from dissensus.workflow.runs import annotator_table, load_run, share_right, write_run
from test_auto import one_kind_of_item_each


def test_a_named_model_stands_beside_the_smoothed_counts() -> None:
    run = fit(simulate(60, 20, 3).annotations, "fmm", {"n_item_clusters": 3})
    assert [type(row.model).__name__ for row in run.held_out] == ["FMM", "EmpiricalDistribution"]
    assert run.reason == ""


def test_the_yardstick_is_not_measured_against_itself() -> None:
    run = fit(simulate(60, 20, 3).annotations, "empirical")
    assert len(run.held_out) == 1


def test_the_model_is_fitted_to_all_labels() -> None:
    labels = simulate(60, 20, 3).annotations
    run = fit(labels, "fmm", {"n_item_clusters": 3}, seed=2)
    alone = dissensus.FMM(n_item_clusters=3, seed=2).fit(labels)
    assert (run.model.label_distributions_ == alone.label_distributions_).all()


def test_without_held_out_labels_nothing_is_compared() -> None:
    assert fit(simulate(60, 20, 3).annotations, "majority", test_size=0).held_out == []


@pytest.mark.parametrize("name", ["auto", "fmm"])
def test_the_model_has_the_threads_that_were_given(name: str) -> None:
    run = fit(one_kind_of_item_each(), name, n_jobs=2, fast=True)
    assert run.model.get_params()["n_jobs"] == 2


def test_what_is_printed_of_a_refinement_is_one_line() -> None:
    labels = simulate(60, 20, 3, labels_per_item=4).annotations
    told = "annotations=Annotations(60 items, 20 annotators, 240 labels, 3 classes)"
    assert repr(fit(labels, "majority", test_size=0)) == f"Refinement(model=MajorityVote(), {told})"
    chosen = fit(labels, fast=True, n_jobs=1)
    assert repr(chosen) == f"Refinement(model={chosen.model!r}, {told}, reason={chosen.reason!r})"
    assert "\n" not in repr(chosen)


def test_a_frame_whose_columns_do_not_tell_is_read_by_the_call_in_the_message() -> None:
    frame = pd.DataFrame({"essay": ["a", "a", "b"], "page": 1, "grader": ["x", "y", "x"], "score": [3, 2, 3]})
    with pytest.raises(DataError) as caught:
        fit(frame, "majority", test_size=0)
    assert "say which it is with read_annotations(data, item=…)" in str(caught.value)
    known = ds.read_annotations(frame, item="essay")
    assert fit(known, "majority", test_size=0).annotations.n_items == 2


def test_settings_need_a_model() -> None:
    with pytest.raises(ParameterError, match="n_item_clusters: name the model="):
        fit(simulate(60, 20, 3).annotations, settings={"n_item_clusters": 3})


def test_a_share_of_one_cannot_be_hidden() -> None:
    with pytest.raises(ParameterError, match="'test_size' parameter of fit"):
        fit(simulate(60, 20, 3).annotations, "majority", test_size=1.0)


def test_what_the_model_knows_of_annotators_joins_their_table() -> None:
    labels = simulate(60, 20, 3, n_annotator_clusters=2, seed=3).annotations
    run = fit(labels, "pgm", {"n_item_clusters": 3, "n_annotator_clusters": 2}, test_size=0)
    table = annotator_table(run)
    assert table["annotator"].to_pylist() == list(labels.annotators)
    assert table["n_labels"].to_pylist() == list(labels.annotator_load)
    assert "cluster" in table.column_names


def test_items_without_gold_do_not_count_against_the_model() -> None:
    import pyarrow as pa

    labels = Annotations.from_arrays(["i", "j", "k"], ["a", "a", "a"], ["x", "y", "x"])
    gold = pa.table({"item": ["i", "j"], "label": ["x", "x"]})
    run = fit(labels.with_tables(gold=gold), "majority", test_size=0)
    assert share_right(run) == 0.5
    assert share_right(fit(labels, "majority", test_size=0)) is None


def test_the_summary_lists_the_files_it_was_written_with(tmp_path: Path) -> None:
    run = fit(simulate(60, 20, 3).annotations, "majority", test_size=0)
    summary = write_run(run, tmp_path / "out", command="by hand", source="nowhere")
    written = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert summary["files"] == written
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary
    assert (summary["command"], summary["source"]) == ("by hand", "nowhere")


def test_the_page_hides_as_many_labels_as_the_run_did(tmp_path: Path) -> None:
    crowd = simulate(150, 30, 3, seed=1).annotations
    run = fit(crowd, "fmm", {"n_item_clusters": 3}, test_size=0.3)
    write_run(run, tmp_path / "out", page={})
    assert load_run(tmp_path / "out").evidence()["test_size"] == 0.3
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    # Dawid–Skene was not part of the run: it is scored for the page, and on as many labels.
    hidden = run.held_out[0].n_hidden
    assert page.count(f'"n":{hidden}') + page.count(f'"n": {hidden}') >= 3


def test_iterations_of_the_fit_move_the_share_that_is_told() -> None:
    crowd = simulate(n_items=60, seed=1).annotations
    told: list[tuple[str, float]] = []
    iterations: list[str] = []
    with dissensus.resources(progress=lambda words, share: iterations.append(words)):
        run = fit(
            crowd,
            "fmm",
            {"n_item_clusters": 3, "max_iter": 4, "tol": 0.0, "n_restarts": 1},
            test_size=0,
            progress=lambda what, share: told.append((what, round(share, 6))),
        )
    assert len(run.model.trace_) == 4
    assert [words.partition(",")[0] for words in iterations] == [
        f"iteration {n} of at most 4" for n in range(1, 5)
    ]
    # From nothing to where files are written, at 95 %.
    assert [share for _, share in told] == [0.0, 0.2375, 0.475, 0.7125, 0.95]
    assert {what for what, _ in told} == {"fitting fmm 3 max_iter=4 tol=0.0 to all labels"}


def test_labels_that_cannot_answer_are_refused() -> None:
    alone = Annotations.from_arrays(["i", "j"], ["a", "a"], ["x", "y"])
    with pytest.raises(ds.DissensusError, match="nobody can disagree here"):
        fit(alone)
    assert fit(alone, "majority", test_size=0).model is not None
    once = Annotations.from_arrays(["i", "j", "k"], ["a", "b", "a"], ["x", "y", "x"])
    with pytest.raises(ds.DissensusError, match="no item has labels by two annotators"):
        fit(once)
    assert fit(once, "majority", test_size=0).model is not None
    assert fit(once, estimate="truth").estimate == "truth"
    n = 500
    half, side = [k // 2 for k in range(n)], [k % 2 for k in range(n)]
    texts = Annotations.from_arrays(half, side, [f"t{k}" for k in range(n)])
    with pytest.raises(ds.DissensusError, match="look like free text"):
        fit(texts)
