"""Skill of annotators: planted skills are recovered, and random labels have none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.stats import t

import dissensus as ds
from dissensus.annotators.skill import annotator_skills
from dissensus.errors import ParameterError
from tests.helpers.sizes import usually

pytestmark = pytest.mark.no_cover


def crowd(answers: NDArray[Any], P: int, seen: NDArray[Any] | None = None) -> ds.Annotations:
    m, n = np.nonzero(np.ones(answers.shape) if seen is None else seen)
    return ds.Annotations.from_arrays(m, n, answers[m, n], classes=list(range(P)))


def planted(seed: int = 0) -> tuple[ds.Annotations, NDArray[Any]]:
    """Eight good annotators, one who swaps classes 0 and 1, one who always says 2, one who guesses."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=240)
    wrong = (truth[:, None] + rng.integers(1, 3, size=(240, 11))) % 3
    answers = np.where(rng.random((240, 11)) < 0.8, truth[:, None], wrong)
    answers[:, 8] = np.array([1, 0, 2])[answers[:, 8]]
    answers[:, 9] = 2
    answers[:, 10] = rng.integers(3, size=240)
    return crowd(answers, 3), truth


@pytest.mark.parametrize("name", ["DawidSkene", "IBCC", "EBCC", "LogLinear"])
def test_planted_skills_are_recovered(name: str) -> None:
    annotations, truth = planted()
    skills = annotator_skills(annotations, getattr(ds, name)().fit(annotations))
    right = np.array([(annotations.label[annotations.annotator == n] == truth).mean() for n in range(11)])
    assert (skills.accuracy[:, 1] - 0.03 <= right).all()
    assert (right <= skills.accuracy[:, 2] + 0.03).all()
    assert skills.systematic.tolist() == [n == 8 for n in range(11)]
    assert skills.correction[8].tolist() == [1, 0, 2]
    assert skills.corrected[8, 0] > 0.7
    assert (skills.skill[:8, 1] > 0.4).all()
    for n in (9, 10):  # independent of the item
        assert skills.skill[n, 1] <= 0 <= skills.skill[n, 2]
    assert skills.bias[9, 2, 1] > 0.5
    assert (np.abs(skills.bias[:8, :, 0]) < 0.12).all()
    frame = skills.to_frame()
    assert frame["correction"].tolist()[7:10] == ["", "0 → 1, 1 → 0", ""]
    assert list(frame.columns[:5]) == ["annotator", "n_labels", "accuracy", "accuracy_low", "accuracy_high"]


def test_skill_uses_the_labels_of_others_only() -> None:
    """A copy of the labels counts as another annotator; the annotator's own labels do not count."""
    rng = np.random.default_rng(0)
    answers = rng.integers(2, size=(200, 5))
    alone = annotator_skills(crowd(answers, 2), ds.DawidSkene().fit(crowd(answers, 2)))
    assert alone.skill[0, 1] < 0 < alone.skill[0, 2]
    answers[:, 1] = answers[:, 0]
    copied = annotator_skills(crowd(answers, 2), ds.DawidSkene().fit(crowd(answers, 2)))
    assert copied.skill[0, 1] > 0.2


def test_skill_by_hand() -> None:
    """Gold labels for all items; three labels of four are right."""
    answers, gold = np.array([[0, 0], [0, 0], [1, 1], [0, 0]]), np.array([0, 0, 1, 1])
    annotations, prior = crowd(answers, 2), np.eye(2)[gold]
    skills = annotator_skills(annotations, ds.DawidSkene().fit(annotations, prior=prior), prior=prior)
    np.testing.assert_allclose(skills.accuracy[0, 0], 0.75, rtol=1e-9)
    np.testing.assert_allclose(skills.bias[0, :, 0], [0.25, -0.25], rtol=1e-9)
    # (w − ½) · (Y − Ȳ) summed over both classes; Σ_ek (w − ½)² = 2
    d = 2 * np.array([0.5, 0.5, -0.5, -0.5]) * (np.array([1, 1, 0, 1]) - 0.75)
    # S^w = ±1, S^Y = ±¾: Σ_kl = 4 · ¾; of the mean, over 3 · 4²
    error = np.sqrt(max(d.var() / 3, 4 * 0.75 / 3 / 16))
    half, slope = t.ppf(0.975, 3) * error / (2 / 4), d.sum() / 2
    expected = slope, max(slope - half, -1), min(slope + half, 1)  # skill lies between −1 and 1
    np.testing.assert_allclose(skills.skill[0], expected, rtol=1e-9)


def test_skill_is_rescaled_accuracy() -> None:
    rng = np.random.default_rng(3)
    truth, chance = rng.integers(3, size=3000), np.array([0.9, 0.7, 0.5, 0.8, 0.6, 0.85, 0.75])
    wrong = (truth[:, None] + rng.integers(1, 3, size=(3000, 7))) % 3
    annotations = crowd(np.where(rng.random((3000, 7)) < chance, truth[:, None], wrong), 3)
    skills = annotator_skills(annotations, ds.OneCoin().fit(annotations), folds=7)
    np.testing.assert_allclose(skills.skill[:, 0], (3 * chance - 1) / 2, atol=0.05)
    np.testing.assert_allclose(skills.accuracy[:, 0], chance, atol=0.03)


def shuffled_crowd(seed: int) -> ds.Annotations:
    """Return labels shuffled over the items of each annotator."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=150)
    answers = np.where(rng.random((150, 25)) < 0.7, truth[:, None], rng.integers(3, size=(150, 25)))
    seen = rng.random((150, 25)) < 0.5
    for n in range(25):
        items = np.flatnonzero(seen[:, n])
        answers[items, n] = rng.permutation(answers[items, n])
    return crowd(answers, 3, seen)


CHANCES = ("OneCoin", "DawidSkene", "CBCC", "IBCC", "EBCC", "LogLinear", "MACE")


@pytest.mark.slow
@pytest.mark.parametrize("name", usually(("LogLinear", "DawidSkene"), verify=CHANCES))
def test_shuffled_labels_have_no_skill(name: str) -> None:
    """Negative control: 95 % intervals miss 0 for at most 5 % of the annotators.

    Errors within a crowd are dependent, so that the error of the share is taken over crowds.
    """
    crowds = usually(range(5), verify=range(100, 140))
    missed = np.zeros((len(crowds), 25))
    for row, seed in zip(missed, crowds, strict=True):
        annotations = shuffled_crowd(seed)
        skill = annotator_skills(annotations, getattr(ds, name)().fit(annotations)).skill
        row[:] = (skill[:, 1] > 0) | (skill[:, 2] < 0)
    error = max(missed.mean(axis=1).std(ddof=1), np.sqrt(0.05 * 0.95 / 25)) / np.sqrt(len(crowds))
    print(f"{name}: {missed.mean():.3f} of the intervals leave out 0 (± {error:.3f})")
    assert missed.mean() <= 0.05 + 2 * error
    assert missed.any()  # the intervals are not too wide either


@pytest.mark.slow
@pytest.mark.parametrize("name", usually(("LogLinear",), verify=CHANCES))
def test_intervals_cover_true_skills(name: str) -> None:
    """Annotators of various accuracies, twelve labels per item."""
    rng, covered = np.random.default_rng(1), []
    for _ in usually(range(3), verify=range(8)):
        chance, truth = rng.beta(4, 2, 25), rng.integers(3, size=300)
        wrong = (truth[:, None] + rng.integers(1, 3, size=(300, 25))) % 3
        seen = rng.random((300, 25)).argsort(axis=1) < 12
        annotations = crowd(np.where(rng.random((300, 25)) < chance, truth[:, None], wrong), 3, seen)
        skill = annotator_skills(annotations, getattr(ds, name)().fit(annotations)).skill
        true = (3 * chance - 1) / 2
        covered.append((skill[:, 1] <= true) & (true <= skill[:, 2]))
    print(f"{name}: {np.mean(covered):.3f} of the intervals cover")
    assert np.mean(covered) > 0.9


def test_arguments_of_annotator_skills() -> None:
    annotations, _ = planted()
    with pytest.raises(ParameterError, match="FMM has no confusion matrices"):
        annotator_skills(annotations, ds.FMM(3).fit(annotations))
    with pytest.raises(ParameterError, match="'interval' parameter of annotator_skills"):
        annotator_skills(annotations, ds.OneCoin().fit(annotations), interval=0.0)
    frame = pd.DataFrame({"item": list("aabbcc"), "annotator": list("xyxyxy"), "label": list("ppqqpq")})
    run = ds.fit(frame, "dawid-skene", estimate="truth", test_size=0, progress=False)
    assert annotator_skills(frame, run.model).annotators.tolist() == ["x", "y"]
