"""Bradley–Terry: derivatives by differences, planted scores, bad raters, side bias, interval coverage."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dissensus as ds
from dissensus.models import bradley_terry as code
from tests.helpers.cli import failure, run
from tests.helpers.sizes import usually


def comparisons(seed: int, n_answers: int = 1500, bias: float = 0.0) -> tuple[pd.DataFrame, np.ndarray]:
    """Simulate 12 annotators and 8 options; annotator 0 is reversed, 1 answers at random."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(0, 1, 8)
    theta -= theta.mean()
    reliability = np.array([-1.0, 0.0] + [1.0] * 10)
    left = rng.integers(0, 8, n_answers)
    right = (left + rng.integers(1, 8, n_answers)) % 8
    who = rng.integers(0, 12, n_answers)
    eta = reliability[who] * (theta[left] - theta[right]) + bias
    shares = np.stack(code.outcome_probabilities(eta, np.full(n_answers, -1.0)), axis=1)
    won = (rng.random((n_answers, 1)) > np.cumsum(shares, axis=1)).sum(axis=1)
    columns = {"model_a": [f"m{i}" for i in left], "model_b": [f"m{i}" for i in right]}
    winner = np.array(["model_a", "tie", "model_b"])[won]
    return pd.DataFrame({**columns, "judge": [f"j{n:02d}" for n in who], "winner": winner}), theta


def small() -> tuple[code.Comparisons, code.Preferences]:
    rng = np.random.default_rng(0)
    E, K, M, N = 30, 4, 5, 3
    sides = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]])
    item = rng.integers(0, M, E)
    won = rng.choice([0.5, 0.0, -0.5], E)
    data = code.Comparisons(*sides[item].T, item, rng.integers(0, N, E), won, (won == 0) * 1.0, (K, M, N))
    annotators = np.column_stack([rng.normal(1, 0.3, N), rng.normal(0, 0.3, N), rng.normal(-1, 0.3, N)])
    mean, variances = np.array([1.0, 0.1, -1.0]), np.array([1.0, 0.5, 0.2, 0.3, 0.4])
    effects = rng.normal(size=K), rng.normal(0, 0.5, M)
    return data, code.Preferences(*effects, annotators, mean, variances)


def slope(data: code.Comparisons, params: code.Preferences, name: str, index: object) -> float:
    """Differentiate the log posterior numerically in one element of a parameter."""
    sides = []
    for step in (1e-5, -1e-5):
        values = getattr(params, name).copy()
        values[index] += step
        sides.append(code.log_posterior(data, replace(params, **{name: values})))
    return (sides[0] - sides[1]) / 2e-5


def test_updates_converge_to_a_stationary_point() -> None:
    data, params = small()
    variances = params.variances
    for _ in range(60):
        params = replace(code.update_scores(data, params), variances=variances)
        params = replace(code.update_pair_effects(data, params), variances=variances)
    for name in ("theta", "delta"):
        for k in range(len(getattr(params, name))):
            assert abs(slope(data, params, name, k)) < 1e-4, name


def test_annotator_gradient_by_differences() -> None:
    data, params = small()
    gradient, _ = code.annotator_derivatives(data, params)
    for n, j in itertools.product(range(3), range(3)):
        assert slope(data, params, "annotators", (n, j)) == pytest.approx(gradient[n, j], abs=1e-5)


@pytest.mark.slow
def test_planted_scores_and_bad_raters_and_coverage() -> None:
    scores, ranks = [], []
    for seed in range(usually(6, verify=30)):
        frame, theta = comparisons(seed)
        model = ds.BradleyTerry().fit(frame)
        ranking = model.to_frame().set_index("item").loc[[f"m{i}" for i in range(8)]]
        assert np.corrcoef(ranking["score"], theta)[0, 1] > 0.95
        annotators = model.annotator_frame()
        reliability = annotators["reliability"]
        assert reliability[0] < 0 < 0.6 < reliability[2:].min()
        assert abs(reliability[1]) < 0.5
        assert annotators["reliability_high"][0] < 0 < annotators["reliability_low"][2:].min()
        assert annotators["reliability_low"][1] < 0.3 < 0.9 < annotators["reliability_high"][2:].min()
        truth = theta * 9 / 12  # in units of the mean planted reliability
        scores.append((ranking["low"] <= truth) & (truth <= ranking["high"]))
        rank = len(theta) - theta.argsort().argsort()
        ranks.append((ranking["rank_low"] <= rank) & (rank <= ranking["rank_high"]))
    assert np.mean(scores) > 0.85
    assert np.mean(ranks) > 0.9


def test_side_bias_is_estimated_and_scores_stay() -> None:
    frame, theta = comparisons(3, bias=1.0)
    model = ds.BradleyTerry().fit(frame)
    assert model.annotator_mean_[1] == pytest.approx(1.0, abs=0.3)
    ranking = model.to_frame().set_index("item")["score"].loc[[f"m{i}" for i in range(8)]]
    assert np.corrcoef(ranking, theta)[0, 1] > 0.95
    visible, hidden = ds.read_annotations(frame).split_labels(0.2, 0)
    blind = ds.BradleyTerry(position=False).fit(visible)
    assert ds.BradleyTerry().fit(visible).score(hidden) > blind.score(hidden) + 0.02


def test_layouts_of_comparison_tables() -> None:
    frame, _ = comparisons(0, n_answers=60)
    by_side = ds.read_annotations(frame)
    assert by_side.label_type == "pairwise"
    assert list(by_side.classes) == ["left", "tie", "right"]
    names = np.where(frame["winner"] == "tie", "tie (bothbad)", "")
    names = np.where(frame["winner"] == "model_a", frame["model_a"], names)
    names = np.where(frame["winner"] == "model_b", frame["model_b"], names)
    by_name = ds.read_annotations(frame.assign(winner=names))
    np.testing.assert_array_equal(by_name.label, by_side.label)
    chosen = pd.DataFrame({"chosen": ["b", "a"], "rejected": ["a", "c"], "annotator": ["x", "y"]})
    read = ds.read_annotations(chosen)
    assert list(read.item_column("left")) == ["a", "a"]
    assert [str(read.classes[p]) for p in read.label] == ["right", "left"]
    with pytest.raises(ds.DissensusError, match="winner is 'nobody'"):
        ds.read_annotations(frame.assign(winner="nobody"))
    with pytest.raises(ds.DissensusError, match="compared with itself"):
        ds.read_annotations(frame.assign(model_b=frame["model_a"]))
    with pytest.raises(ds.DissensusError, match="no two columns"):
        ds.read_annotations(frame.drop(columns="model_a"), label_type="pairwise")


def test_saved_model_answers_new_pairs(tmp_path: Path) -> None:
    labels = ds.read_annotations(comparisons(1)[0])
    model = ds.BradleyTerry().fit(labels)
    model.save(tmp_path / "m.safetensors")
    loaded = ds.load(tmp_path / "m.safetensors")
    pd.testing.assert_frame_equal(loaded.to_frame(), model.to_frame())
    applied = loaded.apply(labels.take_items(np.arange(10)))
    np.testing.assert_allclose(applied.label_distributions_, model.label_distributions_[:10], atol=0.02)


def test_fit_command_ranks_options(tmp_path: Path) -> None:
    frame, theta = comparisons(2)
    frame.to_csv(tmp_path / "battles.csv", index=False)
    result = run("fit", tmp_path / "battles.csv", "-o", tmp_path / "out")
    written = pd.read_csv(tmp_path / "out" / "labels.csv")
    assert list(written.columns) == ["item", "score", "low", "high", "rank_low", "rank_high", "n_labels"]
    assert written["item"][0] == f"m{int(theta.argmax())}"
    assert written["item"][0] in result.stdout
    page = (tmp_path / "out" / "report.html").read_text()
    assert "reversed answers" in page
    pd.DataFrame({"item": [1, 1], "annotator": [1, 2], "label": ["x", "y"]}).to_csv(tmp_path / "n.csv")
    command = ["fit", tmp_path / "n.csv", "--label-type", "pairwise", "-o", tmp_path / "no"]
    assert "no two columns of compared options" in failure(*command)
    assert not (tmp_path / "no").exists()


@pytest.mark.slow
@pytest.mark.parametrize("planted", [0.0, 1.0])
def test_variance_of_pair_effects_is_learned(planted: float) -> None:
    """Five answers about each of many pairs."""
    rng = np.random.default_rng(0)
    theta, n_pairs = rng.normal(0, 1.3, 40), 1500
    left = rng.integers(0, 40, n_pairs)
    right = (left + rng.integers(1, 40, n_pairs)) % 40
    ahead = theta[left] - theta[right] + np.sqrt(planted) * rng.standard_normal(n_pairs)
    item, who = np.repeat(np.arange(n_pairs), 5), rng.integers(0, 150, 5 * n_pairs)
    won = rng.random(5 * n_pairs) < 1 / (1 + np.exp(-ahead[item]))
    frame = pd.DataFrame({"question": item, "model_a": left[item], "model_b": right[item], "judge": who})
    model = ds.BradleyTerry().fit(frame.assign(winner=np.where(won, "left", "right")))
    assert model.variances_[1] < 0.15 if not planted else 0.4 < model.variances_[1] < 1.5
