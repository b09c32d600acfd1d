"""Estimates of the truth: the choice of a model, gold, and the accuracy of annotators."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

import dissensus as ds
from dissensus.errors import DataError, ParameterError
from dissensus.evaluate.gold import cross_fitted, gold_accuracy, judged_items
from dissensus.evaluate.group_agreement import shared_errors
from dissensus.evaluate.truth import choose_truth, reason
from dissensus.labels.simulation import simulate
from dissensus.models import MODELS, model_class
from dissensus.models.confusion import gold_prior
from dissensus.params import with_settings
from dissensus.workflow.refine import fit
from dissensus.workflow.runs import annotator_table, share_right, summary

CROWD = simulate(60, 9, 3, labels_per_item=5, seed=4).annotations


def crowd(rows: list[tuple[int, int, int]], P: int) -> ds.Annotations:
    m, n, y = np.array(rows).T
    return ds.Annotations.from_arrays(m, n, y, classes=list(range(P)))


def crowd_of(answers: NDArray[Any], P: int) -> ds.Annotations:
    """Return the labels of a table of answers, (items, annotators)."""
    m, n = np.indices(answers.shape)
    return crowd(list(zip(m.ravel(), n.ravel(), answers.ravel(), strict=True)), P)


def errors_together(seed: int = 0, M: int = 300, N: int = 12) -> tuple[ds.Annotations, NDArray[Any]]:
    """Simulate two classes; eight of twelve annotators share errors on a third of class 0."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=M)
    trap = (truth == 0) & (rng.random(M) < 0.35)
    right = np.where(np.arange(N) < 8, 0.95, 0.9)
    answers = np.where(rng.random((M, N)) < right, truth[:, None], 1 - truth[:, None])
    fooled = trap[:, None] & (np.arange(N) < 8) & (rng.random((M, N)) < 0.9)
    return crowd_of(np.where(fooled, 1, answers), 2), truth


def errors_apart(M: int = 300, N: int = 12) -> ds.Annotations:
    """Simulate two classes and independent annotators with accuracy 0.8."""
    rng = np.random.default_rng(1)
    truth = rng.integers(2, size=M)
    return crowd_of(np.where(rng.random((M, N)) < 0.8, truth[:, None], 1 - truth[:, None]), 2)


# ---- the choice of a model ---------------------------------------------------------------------------


def test_choice_depends_on_shared_errors() -> None:
    together, apart = choose_truth(errors_together()[0]), choose_truth(errors_apart())
    assert type(together.model).__name__ == "EBCC"
    assert "make the same errors" in together.reason
    assert type(apart.model).__name__ == "LogLinear"
    assert "independent errors" in apart.reason
    assert [row.as_row()["model"] for row in apart.table] == ["ibcc", "ebcc", "log-linear"]


def hedging(
    seed: int, N: int, users: NDArray[Any], hard: float, right: float, trap: float
) -> tuple[ds.Annotations, NDArray[Any]]:
    """Simulate two classes and a label "maybe" (2), which some annotators use for difficult items.

    The first eight annotators share errors on a share ``trap`` of class 0.
    """
    rng, M = np.random.default_rng(seed), 400
    truth, difficult = rng.integers(2, size=M), rng.random(M) < hard
    trapped = (truth == 0) & (rng.random(M) < trap)
    chance = np.where(difficult & (trap == 0), 0.6, right)
    answers = np.where(rng.random((M, N)) < chance[:, None], truth[:, None], 1 - truth[:, None])
    answers[trapped[:, None] & (np.arange(N) < 8) & (rng.random((M, N)) < 0.9)] = 1
    answers[users & (rng.random((M, N)) < np.where(difficult, 0.8, 0.02)[:, None])] = 2
    rows = [(m, n, answers[m, n]) for m in range(M) for n in rng.permutation(N)[:12]]
    return crowd(rows, 3), truth


def accuracies(labels: ds.Annotations, truth: NDArray[Any]) -> dict[str, float]:
    models = {"EBCC": ds.EBCC(), "LogLinear": ds.LogLinear()}
    answers = {name: model.fit(labels).posterior_.argmax(axis=1) for name, model in models.items()}
    return {name: float((codes == truth).mean()) for name, codes in answers.items()}


@pytest.mark.parametrize("seed", [3, 8])
def test_ebcc_is_not_used_if_its_answers_leave_the_votes(seed: int) -> None:
    """The bound of EBCC is higher, but "maybe" became a class of its own."""
    labels, truth = hedging(seed, 12, np.arange(12) % 2 == 0, hard=0.3, right=0.93, trap=0.35)
    choice = choose_truth(labels)
    independent, shared, default = choice.table
    assert shared.bound > independent.bound
    assert shared.agreement < default.agreement
    assert isinstance(choice.model, ds.LogLinear)
    assert "the answers of ebcc agree with the majority vote less often than those of" in choice.reason
    right = accuracies(labels, truth)
    assert right["LogLinear"] > right["EBCC"]


def test_ebcc_is_used_if_only_log_linear_drifts() -> None:
    """The bound of EBCC is lower, but most answers to the class "maybe" of log-linear are others."""
    labels, truth = hedging(0, 20, np.arange(20) < 6, hard=0.35, right=0.85, trap=0.0)
    choice = choose_truth(labels)
    independent, shared, default = choice.table
    assert shared.bound < independent.bound
    assert (default.drifts, shared.drifts) == (True, False)
    assert isinstance(choice.model, ds.EBCC)
    assert choice.reason.endswith("most answers to some class name another class, which is not so in ebcc")
    right = accuracies(labels, truth)
    assert right["EBCC"] > right["LogLinear"] + 0.05


def test_a_class_without_labels_does_not_drift() -> None:
    rng = np.random.default_rng(0)
    item, annotator = np.indices((100, 12))
    label = np.where(rng.random(item.shape) < 0.75, item % 3, rng.integers(3, size=item.shape))
    columns = item.ravel(), annotator.ravel(), np.array(["a", "b", "c"])[label.ravel()]
    for classes in (["a", "b", "c"], ["a", "b", "c", "unused"]):
        choice = choose_truth(ds.Annotations.from_arrays(*columns, classes=classes))
        assert not any(row.drifts for row in choice.table)
        assert isinstance(choice.model, ds.LogLinear)


def test_agreement_and_drift_by_hand() -> None:
    rows = [(0, 0, 0), (0, 1, 0), (0, 2, 1), (1, 0, 0), (1, 1, 1), (2, 0, 1), (2, 1, 1), (2, 2, 1)]
    row = choose_truth(crowd(rows, 2)).table[2]
    answers = row.model.predict().tolist()
    expected = [answers[0] == 0, 0.5, answers[2] == 1]
    assert row.agreement == pytest.approx(np.mean(expected))
    matrix = row.model.crowd_confusion_
    assert row.drifts == bool(matrix[0, 1] > matrix[0, 0] or matrix[1, 0] > matrix[1, 1])


def test_reason_mentions_shared_errors_only_with_evidence() -> None:
    together, _ = errors_together()
    assert shared_errors(together).low > 0
    for seed in range(5):  # negative control: independent errors of various annotators
        rng = np.random.default_rng(seed)
        M, N, P = 200, int(rng.integers(4, 12)), int(rng.integers(2, 5))
        truth, skill = rng.integers(P, size=M), rng.uniform(0.5, 0.95, N)
        other = (truth[:, None] + rng.integers(1, P, (M, N))) % P
        apart = crowd_of(np.where(rng.random((M, N)) < skill, truth[:, None], other), P)
        assert not shared_errors(apart).low > 0
        independent = "annotators make independent errors: the lower bound of ebcc is 2.0 nats"
        assert reason(apart, -2.0).startswith(independent)
        assert reason(apart, 0.5).endswith("a direct test of the raw labels does not confirm shared errors")
    assert reason(together, -2.0).endswith("a direct test of the raw labels indicates shared errors")


def test_shared_errors_by_hand() -> None:
    # Five annotators, three items of x, one of y; on the first item d and e both answer y.
    answers = ["xxxyy", "xxxxx", "xxxxx", "yyyyy"]
    rows = [(m, n, "xy".index(c)) for m, line in enumerate(answers) for n, c in enumerate(line)]
    # d, e: r = ⅔ on the first item, −⅓ on the next two; two of the 20 ordered pairs of an item
    expected = 2 * ((2 / 3) ** 2 + 2 * (1 / 3) ** 2) / (4 * 20)
    assert shared_errors(crowd(rows, 2)).value == pytest.approx(expected)


def test_truth_without_annotators_and_with_a_population_model() -> None:
    counts = ds.Annotations.from_counts([[3, 1], [0, 2]], items=["i", "j"], classes=["x", "y"])
    run = fit(counts, estimate="truth")
    assert run.model.predict().tolist() == ["x", "y"]
    assert "annotators are unknown" in run.reason
    message = r"fmm estimates the answers of a population, .* use one of: majority, dawid-skene"
    with pytest.raises(ParameterError, match=message):
        fit(CROWD, "fmm", estimate="truth")


def test_summary_of_a_run_for_the_truth() -> None:
    run = fit(CROWD, estimate="truth", seed=3)
    facts = summary(run, ds.describe(run.annotations))
    assert (facts["estimate"], facts["run_difference"], facts["gold"]) == ("truth", None, None)
    assert facts["candidates"][0].keys() == {"model", "bound", "seconds", "agreement", "drifts"}
    named = fit(CROWD, "dawid-skene", {"smoothing": 1.0}, estimate="truth")
    assert named.model.get_params()["estimate"] == "truth"
    population = fit(CROWD, "dawid-skene", {"smoothing": 1.0})
    assert population.model.get_params()["estimate"] == "population"
    table = annotator_table(fit(errors_apart(), estimate="truth"))
    np.testing.assert_allclose(table["accuracy"].to_numpy(), 0.8, atol=0.08)


# ---- gold --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False])
def test_gold_does_not_affect_the_choice(together: bool) -> None:
    """Compare choice and bounds with those without gold; the fit uses gold."""
    annotations = errors_together(M=100)[0] if together else errors_apart(M=100)
    prior = np.ones((100, 2))
    prior[:50] = np.eye(2)[np.random.default_rng(0).integers(2, size=50)]
    alone, choice = choose_truth(annotations), choose_truth(annotations, prior=prior)
    assert isinstance(choice.model, ds.EBCC if together else ds.LogLinear)
    assert choice.reason == alone.reason
    assert [row.bound for row in choice.table[:2]] == [row.bound for row in alone.table[:2]]
    expected = with_settings(alone.model, {}).fit(annotations, prior=prior).label_distributions_
    np.testing.assert_array_equal(choice.model.label_distributions_, expected)
    assert (expected[:50].argmax(axis=1) == prior[:50].argmax(axis=1)).all()


def with_gold(annotations: ds.Annotations, gold: NDArray[Any]) -> ds.Annotations:
    return annotations.with_tables(gold=pa.table({"item": annotations.items, "label": gold}))


def test_wilson_interval_by_hand() -> None:
    """Wilson's interval of 12 of 12: 1 / (1 + z²/12) = 0.757."""
    rows = [(m, n, m % 2) for m in range(12) for n in range(4)]
    annotations = replace(crowd(rows, 2), gold=np.arange(12, dtype=np.int32) % 2)
    accuracy = gold_accuracy(annotations, ds.DawidSkene())
    assert accuracy.plain == accuracy.cross_fitted
    assert accuracy.plain == pytest.approx((1.0, 12 / (12 + 1.96**2), 1.0))


def test_random_gold_cannot_be_predicted() -> None:
    """Check that cross-fitting hides gold; a model that has seen it is always correct."""
    rng = np.random.default_rng(7)
    annotations = crowd([(m, int(rng.integers(20)), int(rng.integers(2))) for m in range(200)], 2)
    chance = with_gold(annotations, rng.integers(2, size=200))
    accuracy = gold_accuracy(chance, ds.DawidSkene())
    assert accuracy.n_items == 200
    assert abs(accuracy.cross_fitted.value - 0.5) < 0.13
    seen = ds.DawidSkene().fit(chance, prior=gold_prior(chance))
    assert (seen.posterior_.argmax(axis=1) == chance.gold).all()


def test_each_gold_item_is_predicted_by_a_fit_on_the_others() -> None:
    annotations, truth = errors_together(M=40)
    labels = with_gold(annotations, truth)
    posterior = cross_fitted(ds.DawidSkene(), labels, folds=4, seed=2)
    fold = np.random.default_rng(2).permutation(40) % 4
    for number in range(4):
        prior = np.eye(2)[truth]
        prior[fold == number] = 1.0
        expected = ds.DawidSkene().fit(labels, prior=prior).label_distributions_
        np.testing.assert_array_equal(posterior[fold == number], expected[fold == number])


def test_accuracy_with_and_without_gold() -> None:
    annotations, truth = errors_together()
    run = fit(with_gold(annotations, truth), "dawid-skene", estimate="truth")
    assert run.gold is not None
    assert run.gold.n_items == 300
    assert run.gold.cross_fitted.low <= run.gold.cross_fitted.value <= run.gold.cross_fitted.high
    assert share_right(run) == run.gold.cross_fitted.value
    assert (run.model.label_distributions_.argmax(axis=1) == truth).all()
    assert summary(run, ds.describe(run.annotations))["gold"]["plain"]["value"] == run.gold.plain.value


def test_items_without_labels_or_gold_are_not_judged() -> None:
    annotations = crowd([(0, 0, 1), (1, 0, 0)], 2)
    items, gold = pa.table({"item": [0, 1, 2]}), pa.table({"item": [0, 2], "label": [1, 1]})
    assert judged_items(annotations.with_tables(items=items, gold=gold)).tolist() == [0]
    assert not len(judged_items(annotations))


def test_tied_votes_count_equally_in_every_accuracy(tmp_path: Any) -> None:
    """Two items of four are tied, gold on the later class of one and the earlier of the other."""
    rows = [(0, 0, 0), (0, 1, 1), (1, 0, 0), (1, 1, 1), (2, 0, 1), (2, 1, 1), (3, 0, 0), (3, 1, 0)]
    labels = with_gold(crowd(rows, 2), np.array([1, 0, 1, 1]))
    expected = (0.5 + 0.5 + 1 + 0) / 4
    assert ds.describe(labels).majority_accuracy == expected
    assert share_right(fit(labels, "majority")) == expected
    ds.MajorityVote().fit(labels).to_frame().to_csv(tmp_path / "labels.csv", index=False)
    (tmp_path / "gold.csv").write_text("item,label\n0,1\n1,0\n2,1\n3,1\n")
    scores = ds.score(tmp_path / "labels.csv", tmp_path / "gold.csv", metrics=["accuracy"], n_boot=0)
    assert scores.values["accuracy"].value == expected


def test_gold_of_a_frame() -> None:
    frame, gold = ds.datasets.load_dataset("birds")
    by_table = gold.rename_axis("task").reset_index()
    labels = ds.read_annotations(frame, gold=by_table)
    expected = gold_accuracy(labels, ds.DawidSkene(), folds=2)
    assert gold_accuracy(frame, ds.DawidSkene(), gold=gold, folds=2) == expected
    with pytest.raises(DataError, match="no item has labels and a gold class; pass gold="):
        gold_accuracy(frame, ds.DawidSkene())
    runs = [ds.fit(frame, "dawid-skene", estimate="truth", gold=table) for table in (gold, by_table)]
    assert runs[0].gold == runs[1].gold == gold_accuracy(labels, ds.DawidSkene())


def test_page_lists_every_model_of_the_truth() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "truth.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `([\w-]+)` \| `(\w+)` \|", page, re.M)
    assert {name for name, _ in table} == {name for name in MODELS if model_class(name).finds_truth}
    assert all(model_class(name).__name__ == title for name, title in table)
