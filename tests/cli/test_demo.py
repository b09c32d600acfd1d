"""``dissensus demo``: the files of a crowd, and the sentences on the model that ``fit`` uses."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import dissensus as ds
from dissensus.cli.demo import explain
from tests.helpers.cli import read_csv, tree, write_simulation
from tests.helpers.store import same


def test_files_of_a_crowd() -> None:
    drawn = ds.simulate(30, 12, 3, seed=4)
    crowd = write_simulation(Path("crowd"), 30, 12, 3, seed=4)
    assert set(tree(crowd)) == {"annotations.csv", "annotators.csv", "population.csv", "summary.json"}
    same(ds.read_annotations(crowd / "annotations.csv"), drawn.annotations)
    rows, people = read_csv(crowd / "population.csv"), read_csv(crowd / "annotators.csv")
    assert [row["item"] for row in rows] == list(drawn.annotations.items)
    for row, theta in zip(rows, drawn.theta[drawn.item_cluster], strict=True):
        expected = drawn.omega @ theta  # Σ_l Ω_l Θ_{w_m,l}
        np.testing.assert_allclose([float(row[f"p_c{p}"]) for p in (1, 2, 3)], expected, rtol=1e-4)
        assert row["label"] == f"c{expected.argmax() + 1}"
    assert [row["annotator"] for row in people] == list(drawn.annotations.annotators)
    assert [int(row["n_labels"]) for row in people] == drawn.annotations.annotator_load.tolist()
    assert [int(row["cluster"]) for row in people] == drawn.annotator_cluster.tolist()


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
