"""Comparisons: derivatives by differences, planted scores, bad raters and leanings, intervals that cover."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dissensus as ds
from cli_help import failure, run
from dissensus.models import bradley_terry as code
from sizes import usually


def battles(
    seed: int, n_things: int = 8, n_annotators: int = 12, n_answers: int = 1500, lean: float = 0.0
) -> tuple[pd.DataFrame, np.ndarray]:
    """Answers of a crowd with planted scores; annotator 0 answers the other way round, 1 at random."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(0, 1, n_things)
    theta -= theta.mean()
    reliable = np.ones(n_annotators)
    reliable[:2] = -1.0, 0.0
    left = rng.integers(0, n_things, n_answers)
    right = (left + rng.integers(1, n_things, n_answers)) % n_things
    who = rng.integers(0, n_annotators, n_answers)
    eta = reliable[who] * (theta[left] - theta[right]) + lean
    chances = np.stack(code.chances(eta, np.full(n_answers, -1.0)), axis=1)
    won = (rng.random((n_answers, 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
    frame = pd.DataFrame(
        {
            "model_a": [f"m{i}" for i in left],
            "model_b": [f"m{i}" for i in right],
            "judge": [f"j{n:02d}" for n in who],
            "winner": np.array(["model_a", "tie", "model_b"])[won],
        }
    )
    return frame, theta


def small() -> tuple[code.Pairs, code.Ways]:
    rng = np.random.default_rng(0)
    E, K, M, N = 30, 4, 5, 3
    sides = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [0, 2]])
    item = rng.integers(0, M, E)
    won = rng.choice([0.5, 0.0, -0.5], E)
    pairs = code.Pairs(*sides[item].T, item, rng.integers(0, N, E), won, (won == 0) * 1.0, (K, M, N))
    own = np.column_stack([rng.normal(1, 0.3, N), rng.normal(0, 0.3, N), rng.normal(-1, 0.3, N)])
    spread = np.array([1.0, 0.5, 0.2, 0.3, 0.4])
    crowd = np.array([1.0, 0.1, -1.0])
    return pairs, code.Ways(rng.normal(size=K), rng.normal(0, 0.5, M), own, crowd, spread, np.ones(K))


def test_steps_solve_the_equations_of_the_log_posterior() -> None:
    """At a fixed point of each step the gradient of the log-posterior, by differences, is zero."""
    pairs, ways = small()
    fixed = ways.spread
    for _ in range(60):
        ways = replace(code.scores_given(pairs, ways), spread=fixed)
        ways = replace(code.pairs_given(pairs, ways), spread=fixed)
    for name in ("theta", "delta"):
        at = getattr(ways, name)
        for k in range(len(at)):
            bump = np.zeros(len(at))
            bump[k] = 1e-5
            up, down = (code.log_posterior(pairs, replace(ways, **{name: at + s * bump})) for s in (1, -1))
            assert abs(up - down) / 2e-5 < 1e-4, name


def test_the_gradient_of_annotators_by_differences() -> None:
    pairs, ways = small()
    gradient, _ = code.about_annotators(pairs, ways)
    for n in range(3):
        for j in range(3):
            own = ways.own.copy()
            own[n, j] += 1e-5
            up = code.log_posterior(pairs, replace(ways, own=own))
            own[n, j] -= 2e-5
            down = code.log_posterior(pairs, replace(ways, own=own))
            assert (up - down) / 2e-5 == pytest.approx(gradient[n, j], abs=1e-5)


def test_information_is_minus_the_expected_curvature() -> None:
    for eta, tie in ((0.3, -1.0), (-1.2, 0.4), (2.0, -2.0)):
        one, kappa = np.array([eta]), np.array([tie])

        def log(y: int, e: Any, k: Any) -> float:
            return float(np.log(code.chances(e, k)[y])[0])

        expected = 0.0
        for y, p in enumerate(code.chances(one, kappa)):
            second = (log(y, one + 1e-3, kappa) - 2 * log(y, one, kappa) + log(y, one - 1e-3, kappa)) / 1e-6
            expected -= float(p[0]) * second
        left, _, right = (float(p[0]) for p in code.chances(one, kappa))
        assert (left + right - (left - right) ** 2) / 4 == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_planted_scores_bad_raters_and_cover_of_scores_and_ranks() -> None:
    scores, ranks = [], []
    for seed in range(usually(6, verify=30)):
        frame, theta = battles(seed)
        model = ds.BradleyTerry().fit(frame)
        found = model.to_frame().set_index("item").loc[[f"m{i}" for i in range(8)]]
        assert np.corrcoef(found["score"], theta)[0, 1] > 0.95
        known = model.annotator_frame()
        told = known["reliability"]
        assert told[0] < 0 < 0.6 < told[2:].min()
        assert abs(told[1]) < 0.5
        assert known["reliability_high"][0] < 0 < known["reliability_low"][2:].min()
        assert known["reliability_low"][1] < 0.3 < 0.9 < known["reliability_high"][2:].min()
        # scores are in units of the usual reliability: the planted ones in the same units
        usual = np.average(np.concatenate([[-1, 0], np.ones(10)]))
        scores.append((found["low"] <= usual * theta) & (usual * theta <= found["high"]))
        rank = len(theta) - theta.argsort().argsort()
        ranks.append((found["rank_low"] <= rank) & (rank <= found["rank_high"]))
    assert np.mean(scores) > 0.85
    assert np.mean(ranks) > 0.9


def test_a_leaning_crowd_is_seen_and_does_not_move_the_scores() -> None:
    frame, theta = battles(3, lean=1.0)
    model = ds.BradleyTerry().fit(frame)
    assert model.crowd_[1] == pytest.approx(1.0, abs=0.3)
    found = model.to_frame().set_index("item")["score"].loc[[f"m{i}" for i in range(8)]]
    assert np.corrcoef(found, theta)[0, 1] > 0.95
    kept, hidden = ds.read_annotations(frame).split_labels(0.2, 0)
    blind = ds.BradleyTerry(position=False).fit(kept)
    assert ds.BradleyTerry().fit(kept).score(hidden) > blind.score(hidden) + 0.02


def test_shapes_of_tables() -> None:
    frame, _ = battles(0, n_answers=60)
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


def test_saving_and_new_pairs(tmp_path: Path) -> None:
    labels = ds.read_annotations(battles(1)[0])
    model = ds.BradleyTerry().fit(labels)
    model.save(tmp_path / "m.safetensors")
    loaded = ds.load(tmp_path / "m.safetensors")
    pd.testing.assert_frame_equal(loaded.to_frame(), model.to_frame())
    moved = loaded.apply(labels.take_items(np.arange(10)))
    np.testing.assert_allclose(moved.label_distributions_, model.label_distributions_[:10], atol=0.02)


def test_the_command_ranks_and_refuses(tmp_path: Path) -> None:
    frame, theta = battles(2)
    frame.to_csv(tmp_path / "battles.csv", index=False)
    said = run("fit", tmp_path / "battles.csv", "-o", tmp_path / "out")
    written = pd.read_csv(tmp_path / "out" / "labels.csv")
    assert list(written.columns) == ["item", "score", "low", "high", "rank_low", "rank_high", "n_labels"]
    assert written["item"][0] == f"m{int(theta.argmax())}"
    assert written["item"][0] in said.stdout
    page = (tmp_path / "out" / "report.html").read_text()
    assert "answers against the others" in page
    pd.DataFrame({"item": [1, 1], "annotator": [1, 2], "label": ["x", "y"]}).to_csv(tmp_path / "n.csv")
    words = ["fit", tmp_path / "n.csv", "--label-type", "pairwise", "-o", tmp_path / "no"]
    assert "no two columns of what is compared" in failure(*words)
    assert not (tmp_path / "no").exists()


def test_groups_of_raters_are_found_among_comparisons() -> None:
    """A third of the raters turn the order of half of the things round: they are a minority view."""
    rng = np.random.default_rng(3)
    common = rng.normal(0, 1.5, 8)
    theirs = np.where(np.arange(8) < 5, -common, common)
    rows = [
        (
            question,
            f"m{a}",
            f"m{b}",
            f"r{n:02d}",
            "a" if rng.random() < 1 / (1 + np.exp(s[b] - s[a])) else "b",
        )
        for a, b in itertools.combinations(range(8), 2)
        for question in range(2)
        for n, s in enumerate([common] * 12 + [theirs] * 6)
    ]
    frame = pd.DataFrame(rows, columns=["question", "model_a", "model_b", "judge", "winner"])
    labels = ds.read_annotations(frame)
    found = ds.annotator_verdicts(labels, ds.HPGM(n_chains=1, n_sweeps=90).fit(labels))
    assert set(found.verdict[:12]) == {"typical"}
    assert list(found.verdict[12:]) == ["minority view"] * 6


@pytest.mark.slow
@pytest.mark.parametrize("planted", [0.0, 1.0])
def test_how_special_pairs_are_is_learned(planted: float) -> None:
    """Five answers about each of many pairs, as crowds give them: ρ² is near what was planted, 0 included."""
    rng = np.random.default_rng(0)
    theta, n_pairs = rng.normal(0, 1.3, 40), 1500
    left = rng.integers(0, 40, n_pairs)
    right = (left + rng.integers(1, 40, n_pairs)) % 40
    ahead = theta[left] - theta[right] + np.sqrt(planted) * rng.standard_normal(n_pairs)
    item, who = np.repeat(np.arange(n_pairs), 5), rng.integers(0, 150, 5 * n_pairs)
    won = rng.random(5 * n_pairs) < 1 / (1 + np.exp(-ahead[item]))
    frame = pd.DataFrame({"question": item, "model_a": left[item], "model_b": right[item], "judge": who})
    model = ds.BradleyTerry().fit(frame.assign(winner=np.where(won, "left", "right")))
    assert model.spread_[1] < 0.15 if not planted else 0.4 < model.spread_[1] < 1.5
