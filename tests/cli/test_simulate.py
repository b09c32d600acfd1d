"""``dissensus simulate``: the truth that is written, and its replay."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.cli.simulate import explain
from tests.helpers.cli import read_csv, run, tree


def test_population_follows_the_generative_process(crowd: Path) -> None:
    assert set(tree(crowd)) == {"annotations.csv", "annotators.csv", "population.csv", "summary.json"}
    truth = json.loads((crowd / "summary.json").read_text())["truth"]
    theta, omega = np.array(truth["theta"]), np.array(truth["omega"])
    for row in read_csv(crowd / "population.csv"):
        # Σ_l Ω_l Θ_{w_m,l}
        expected = omega @ theta[int(row["cluster"])]
        np.testing.assert_allclose([float(row[f"p_c{p}"]) for p in (1, 2, 3, 4)], expected, rtol=1e-4)


def test_pairs_of_a_file_and_a_list_of_parameters(crowd: Path) -> None:
    words = ["--n-classes", 3, "--alpha", "0.5,1,2", "-k", 2, "-l", 2, "-o", "redrawn"]
    run("simulate", "--pairs", crowd / "annotations.csv", *words)
    first, second = read_csv(crowd / "annotations.csv"), read_csv(Path("redrawn/annotations.csv"))
    pairs = [[(row["item"], row["annotator"]) for row in rows] for rows in (first, second)]
    assert pairs[0] == pairs[1]
    assert {row["label"] for row in second} <= {"c1", "c2", "c3"}
    settings = json.loads(Path("redrawn/summary.json").read_text())["settings"]
    assert (settings["alpha"], settings["pairs"]) == ([0.5, 1.0, 2.0], str(crowd / "annotations.csv"))


@pytest.mark.slow
def test_refined_labels_are_closer_to_the_truth_than_counts(crowd: Path) -> None:
    values = []
    for words in (["-m", "empirical", "-s", "smoothing=0"], ["-m", "fmm", "-k", 3]):
        run("fit", crowd / "annotations.csv", *words, "-o", "out", "--no-report")
        scores = json.loads(run("score", "out", crowd / "population.csv", "--json").stdout)
        values.append(scores["values"]["kl"]["value"])
    assert values[1] < values[0]


def test_the_demo_says_which_model_fit_uses() -> None:
    default: Any = SimpleNamespace(model=ds.Pool(), reason="")
    pool, fmm = ["pool", 0.04, "", ""], ["fmm", 0.05, "", ""]
    assert explain(default, [pool, fmm]) == ["`fit` uses pool, the default."]
    closest = "fmm is closer to the population here, but `fit` sees only the labels."
    assert explain(default, [fmm, pool]) == ["`fit` uses pool, the default.", closest]
    counts: Any = SimpleNamespace(model=ds.EmpiricalDistribution(), reason="the annotators are unknown")
    assert explain(counts, [["empirical", 0.04, "", ""], fmm]) == [
        "`fit` uses empirical, because the annotators are unknown."
    ]
