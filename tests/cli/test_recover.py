"""``dissensus recover`` and ``score``: scores worked out by hand."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

import dissensus
from tests.helpers.cli import read_csv, run, write_simulation, write_votes


def scores(*words: Any) -> Any:
    """Return the scores that a command prints as JSON."""
    return json.loads(run("score", *words, "--bootstrap", 0, "--json").stdout)


def test_distributions_by_hand() -> None:
    Path("est.csv").write_text("item,p_x,p_y\ni,0.5,0.5\nj,0.9,0.1\nonly,1,0\n")
    Path("truth.csv").write_text("item,p_x,p_y\nj,0.5,0.5\ni,0.5,0.5\nmissing,1,0\n")
    result = scores("est.csv", "truth.csv", "--metric", "total_variation")
    assert result["values"]["total_variation"]["value"] == pytest.approx((0.0 + 0.4) / 2, rel=1e-12)
    assert (result["n_items"], result["left_out"]) == (2, 1)
    assert "left out: 1 item of truth.csv" in run("score", "est.csv", "truth.csv").stderr


def test_gold_labels_by_hand() -> None:
    Path("labels.csv").write_text("item,label\ni,x\nj,y\nk,y\n")
    Path("gold.csv").write_text("item,label\ni,x\nj,x\nk,z\n")
    values = scores("labels.csv", "gold.csv")["values"]
    assert values["accuracy"]["value"] == pytest.approx(1 / 3, rel=1e-12)
    # F1: x 2·1/(1+2), y 0, z 0
    assert values["macro_f1"]["value"] == pytest.approx(2 / 9, rel=1e-12)


def test_held_out_labels_by_hand() -> None:
    Path("est.csv").write_text("item,p_x,p_y\ni,0.25,0.75\nj,1,0\n")
    write_votes(Path("hidden.csv"), "i,a,x\ni,b,y\nj,a,x\nunknown,a,x\n")
    result = scores("est.csv", "hidden.csv")
    expected = (math.log(0.25) + math.log(0.75) + math.log(1.0)) / 3
    assert result["values"]["score_items"]["value"] == pytest.approx(expected, rel=1e-12)
    assert result["left_out"] == 1


def test_saved_model_and_a_run_as_estimates(crowd: Path) -> None:
    votes, words = crowd / "annotations.csv", ["-m", "pgm", "-k", 3, "-l", 2]
    run("fit", votes, *words, "--no-report", "-o", "refined")
    values = scores("refined/model.safetensors", votes)["values"]
    model, labels = dissensus.load("refined/model.safetensors"), dissensus.read_annotations(votes)
    assert values["score"]["value"] == model.score(labels)
    assert values["score_items"]["value"] == model.score_items(labels)
    truth = crowd / "population.csv"
    assert scores("refined", truth) == scores("refined/labels.csv", truth)


@pytest.mark.slow
def test_refined_labels_are_closer_to_the_truth_than_counts(crowd: Path) -> None:
    values = []
    for words in (["-m", "empirical", "-s", "smoothing=0"], ["-m", "fmm", "-k", 3]):
        run("fit", crowd / "annotations.csv", *words, "-o", "out", "--no-report")
        values.append(scores("out", crowd / "population.csv")["values"]["kl"]["value"])
    assert values[1] < values[0]


@pytest.mark.slow
def test_recover_compares_every_model_with_counts() -> None:
    write_simulation(Path("crowd"), 60, n_item_clusters=3, n_annotator_clusters=2, labels_per_item=16)
    words = ["-r", "2,4", "-k", 3, "-l", 2, "-m", "fmm", "-m", "pgm inference=vb", "--draws", 2, "-j", 1]
    result = run("recover", "crowd/annotations.csv", *words, "-o", "recovery")
    assert "60 items with 8.0 held-out labels each" in result.stdout
    rows = read_csv(Path("recovery/recovery.csv"))
    assert {(row["name"], row["labels_shown"]) for row in rows} == {
        (name, shown) for name in ("fmm", "pgm inference=vb") for shown in ("2", "4")
    }
    recovery = json.loads(run("recover", "crowd/annotations.csv", *words, "--json").stdout)
    assert [point["labels_shown"] for point in recovery["counts"]] == list(range(1, 9))
    assert float(rows[0]["kl"]) == pytest.approx(recovery["models"][0]["kl"], rel=1e-5)
