"""Estimates against a reference: what is matched, what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError, ParameterError
from dissensus.labels.annotations import Annotations
from dissensus.models.counting import MajorityVote
from dissensus.workflow.scoring import kind_of, of_labels, read_estimates, score


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_items_are_matched_by_id_and_classes_by_name(tmp_path: Path) -> None:
    estimates = write(tmp_path / "e.csv", "item,p_b,p_a\ni,0.2,0.8\nj,0.5,0.5\n")
    truth = write(tmp_path / "t.csv", "item,p_a,p_b,p_c\nj,0.5,0.5,0\ni,0.6,0.2,0.2\n")
    found = score(estimates, truth, metrics=["manhattan"], n_boot=0)
    # i: |0.8 − 0.6| + |0.2 − 0.2| + |0 − 0.2|, j: 0
    assert found.values["manhattan"].value == pytest.approx(0.4 / 2, rel=1e-12)


def test_the_label_column_decides_accuracy_where_it_differs_from_the_largest_probability(
    tmp_path: Path,
) -> None:
    estimates = write(tmp_path / "e.csv", "item,label,p_a,p_b\ni,b,0.8,0.2\n")
    gold = write(tmp_path / "g.csv", "item,label\ni,b\n")
    found = score(estimates, gold, n_boot=0)
    assert found.values["accuracy"].value == 1.0
    assert found.values["cross_entropy"].value == pytest.approx(-math.log(0.2), rel=1e-3)


def test_intervals_surround_the_value(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = "".join(f"i{m},{p:.3f},{1 - p:.3f}\n" for m, p in enumerate(rng.random(50)))
    estimates = write(tmp_path / "e.csv", "item,p_a,p_b\n" + rows)
    truth = write(tmp_path / "t.csv", "item,p_a,p_b\n" + "".join(f"i{m},0.5,0.5\n" for m in range(50)))
    found = score(estimates, truth, metrics=["total_variation"])
    value, low, high = found.values["total_variation"]
    assert low < value < high


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ("item,p_a,p_b\ni,1,0\n", "distributions"),
        ("item,label\ni,a\n", "gold labels"),
        ("task,worker,label\ni,w,a\n", "labels by annotators"),
    ],
)
def test_the_columns_say_what_a_reference_is(tmp_path: Path, columns: str, kind: str) -> None:
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
def test_bad_estimates_are_named(tmp_path: Path, text: str, message: str) -> None:
    truth = write(tmp_path / "t.csv", "item,p_a,p_b\ni,0.5,0.5\n")
    with pytest.raises(DataError, match=message):
        score(write(tmp_path / "e.csv", text), truth)


def test_an_unknown_metric_names_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="did you mean 'jensen_shannon'"):
        score(tmp_path / "e.csv", tmp_path / "t.csv", metrics=["jensen_shanon"])


def test_named_measures_against_hidden_labels_use_their_own_distribution(tmp_path: Path) -> None:
    estimates = write(tmp_path / "e.csv", "item,p_a,p_b\ni,1,0\n")
    hidden = write(tmp_path / "h.csv", "item,annotator,label\ni,x,a\ni,y,b\ni,z,b\ni,v,b\n")
    found = score(estimates, hidden, metrics=["total_variation"], n_boot=0)
    assert found.values["total_variation"].value == pytest.approx(0.75, rel=1e-12)


def test_a_saved_model_is_scored_by_what_it_claims(tmp_path: Path) -> None:
    labels = Annotations.from_arrays(["i", "i", "j"], ["x", "y", "x"], ["a", "a", "b"])
    MajorityVote().fit(labels).save(tmp_path / "m.safetensors")
    gold = write(tmp_path / "g.csv", "item,label\ni,a\nj,a\n")
    found = score(tmp_path / "m.safetensors", gold, n_boot=0)
    assert found.values["accuracy"].value == 0.5


def test_items_without_labels_have_no_empirical_distribution() -> None:
    labels = Annotations.from_counts([[2, 2], [0, 0], [3, 1]], items=["i", "j", "k"], classes=["a", "b"])
    found = of_labels(labels, "labels")
    assert list(found.items) == ["i", "k"]
    np.testing.assert_allclose(found.chances, [[0.5, 0.5], [0.75, 0.25]], rtol=1e-12)


def test_a_label_that_has_no_probability_column_joins_the_classes(tmp_path: Path) -> None:
    found = read_estimates(write(tmp_path / "e.csv", "item,label,p_a,p_b\ni,c,0.5,0.5\n"))
    assert found.classes == ["a", "b", "c"]
    np.testing.assert_allclose(found.chances, [[0.5, 0.5, 0.0]], rtol=1e-12)


def test_labels_of_the_fit_are_not_called_hidden(tmp_path: Path) -> None:
    text = "item,annotator,label\ni,a,x\ni,b,y\nj,a,x\n"
    labels = write(tmp_path / "labels.csv", text)
    fresh = write(tmp_path / "fresh.csv", "item,annotator,label\ni,c,x\nj,b,y\n")
    model = MajorityVote().fit(Annotations.from_arrays(["i", "i", "j"], ["a", "b", "a"], ["x", "y", "x"]))
    model.save(tmp_path / "model.safetensors")
    model.to_frame().to_csv(tmp_path / "estimates.csv", index=False)
    for estimates in ("model.safetensors", "estimates.csv"):
        seen = score(tmp_path / estimates, labels, metrics=["kl"], n_boot=0)
        assert seen.perhaps_seen
        assert seen.against == "labels by annotators"
        assert not score(tmp_path / estimates, fresh, metrics=["kl"], n_boot=0).perhaps_seen


def test_a_scale_is_also_scored_by_distance(tmp_path: Path) -> None:
    labels = ["low", "mid", "high", "high"]
    known = ds.Annotations.from_arrays(
        ["a", "a", "b", "b"],
        ["u", "v", "u", "v"],
        labels,
        classes=["low", "mid", "high"],
        label_type="ordinal",
    )
    model = ds.EmpiricalDistribution().fit(known)
    model.to_frame().to_csv(tmp_path / "labels.csv", index=False)
    model.save(tmp_path / "model.safetensors")
    (tmp_path / "truth.csv").write_text("item,p_low,p_mid,p_high\na,1,0,0\nb,0,0,1\n")
    for estimates in ("labels.csv", "model.safetensors"):
        found = score(tmp_path / estimates, tmp_path / "truth.csv").values
        # Wasserstein: Σ_k |F_k − G_k|, and the first places of F are q_low and q_low + q_mid
        q = model.label_distributions_
        far = np.mean([q[0, 1] + 2 * q[0, 2], 2 * q[1, 0] + q[1, 1]])
        assert found["wasserstein"].value == pytest.approx(far, rel=1e-5)
        assert found["ranked_probability_score"].value > 0
