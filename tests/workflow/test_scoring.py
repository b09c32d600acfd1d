"""Scores: matching of items and classes, kinds of reference, and invalid estimates."""

import math
from pathlib import Path

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError, ParameterError
from dissensus.labels.annotations import Annotations
from dissensus.workflow.scoring import kind_of, of_labels, read_estimates, score


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_items_are_matched_by_id_and_classes_by_name(tmp_path: Path) -> None:
    estimates = write(tmp_path / "e.csv", "item,p_b,p_a\ni,0.2,0.8\nj,0.5,0.5\n")
    truth = write(tmp_path / "t.csv", "item,p_a,p_b,p_c\nj,0.5,0.5,0\ni,0.6,0.2,0.2\n")
    scores = score(estimates, truth, metrics=["manhattan"], n_boot=0)
    # i: |0.8 − 0.6| + |0.2 − 0.2| + |0 − 0.2|, j: 0
    assert scores.values["manhattan"].value == pytest.approx(0.4 / 2, rel=1e-12)


def test_labels_decide_accuracy_and_shares_cross_entropy(tmp_path: Path) -> None:
    estimates = write(tmp_path / "e.csv", "item,label,p_a,p_b\ni,b,0.8,0.2\n")
    values = score(estimates, write(tmp_path / "g.csv", "item,label\ni,b\n"), n_boot=0).values
    assert values["accuracy"].value == 1.0
    assert values["cross_entropy"].value == pytest.approx(-math.log(0.2), rel=1e-3)


@pytest.mark.parametrize("classes", [("a", "b"), ("top", "bottom")])
def test_p_top_is_a_class_only_if_one_is_called_top(tmp_path: Path, classes: tuple[str, str]) -> None:
    votes = Annotations.from_counts([[3, 1], [0, 4]], classes=classes)
    model = ds.FMM(1, n_restarts=1).fit(votes)
    frame = model.to_frame()
    frame.to_csv(tmp_path / "labels.csv", index=False)
    shares = np.asarray(frame[[f"p_{name}" for name in classes]])
    np.testing.assert_array_equal(shares, model.label_distributions_)
    assert list(read_estimates(tmp_path / "labels.csv").classes) == list(classes)


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ("item,p_a,p_b\ni,1,0\n", "distributions"),
        ("item,label\ni,a\n", "gold labels"),
        ("task,worker,label\ni,w,a\n", "labels by annotators"),
    ],
)
def test_columns_determine_the_kind_of_reference(tmp_path: Path, columns: str, kind: str) -> None:
    assert kind_of(write(tmp_path / "r.csv", columns)) == kind


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item,p_a,p_b\ni,0.5,0.5\ni,0.5,0.5\n", "item 'i' has 2 rows"),
        ("item,p_a,p_b\ni,0.9,0.9\n", "row 0 is not a distribution"),
        ("item,p_a,p_b\ni,much,little\n", "must hold numbers"),
        ("item,p_a,p_b\nz,0.5,0.5\n", "no item in common"),
        ("item,weight\ni,3\n", "label"),
    ],
)
def test_invalid_estimates_are_refused(tmp_path: Path, text: str, message: str) -> None:
    truth = write(tmp_path / "t.csv", "item,p_a,p_b\ni,0.5,0.5\n")
    with pytest.raises(DataError, match=message):
        score(write(tmp_path / "e.csv", text), truth)
    with pytest.raises(ParameterError, match="did you mean 'jensen_shannon'"):
        score(tmp_path / "e.csv", truth, metrics=["jensen_shanon"])


def test_estimates_of_labels_and_of_extra_classes(tmp_path: Path) -> None:
    labels = Annotations.from_counts([[2, 2], [0, 0], [3, 1]], items=["i", "j", "k"], classes=["a", "b"])
    empirical = of_labels(labels, "labels")
    assert list(empirical.items) == ["i", "k"]  # j has no labels
    np.testing.assert_allclose(empirical.probabilities, [[0.5, 0.5], [0.75, 0.25]], rtol=1e-12)
    estimates = read_estimates(write(tmp_path / "e.csv", "item,label,p_a,p_b\ni,c,0.5,0.5\n"))
    assert estimates.classes == ["a", "b", "c"]
    np.testing.assert_allclose(estimates.probabilities, [[0.5, 0.5, 0.0]], rtol=1e-12)


def test_labels_of_the_fit_are_recognised(tmp_path: Path) -> None:
    labels = write(tmp_path / "labels.csv", "item,annotator,label\ni,a,x\ni,b,y\nj,a,x\n")
    fresh = write(tmp_path / "fresh.csv", "item,annotator,label\ni,c,x\nj,b,y\n")
    model = ds.MajorityVote().fit(Annotations.from_arrays(["i", "i", "j"], ["a", "b", "a"], ["x", "y", "x"]))
    model.save(tmp_path / "model.safetensors")
    model.to_frame().to_csv(tmp_path / "estimates.csv", index=False)
    for estimates in ("model.safetensors", "estimates.csv"):
        scores = score(tmp_path / estimates, labels, metrics=["kl"], n_boot=0)
        assert scores.perhaps_seen
        assert scores.against == "labels by annotators"
        assert not score(tmp_path / estimates, fresh, metrics=["kl"], n_boot=0).perhaps_seen


def test_ordered_scales_are_scored_by_distance_too(tmp_path: Path) -> None:
    cells = ["a", "a", "b", "b"], ["u", "v", "u", "v"], ["low", "mid", "high", "high"]
    labels = Annotations.from_arrays(*cells, classes=["low", "mid", "high"], label_type="ordinal")
    model = ds.EmpiricalDistribution().fit(labels)
    model.to_frame().to_csv(tmp_path / "labels.csv", index=False)
    model.save(tmp_path / "model.safetensors")
    truth = write(tmp_path / "truth.csv", "item,p_low,p_mid,p_high\na,1,0,0\nb,0,0,1\n")
    for estimates in ("labels.csv", "model.safetensors"):
        values = score(tmp_path / estimates, truth).values
        # Wasserstein: Σ_k |F_k − G_k|, with F_1 = q_low and F_2 = q_low + q_mid
        q = model.label_distributions_
        distance = np.mean([q[0, 1] + 2 * q[0, 2], 2 * q[1, 0] + q[1, 1]])
        assert values["wasserstein"].value == pytest.approx(distance, rel=1e-5)
        assert values["ranked_probability_score"].value > 0
