"""GuidedClassifier among scikit-learn's tools: what they ask of a classifier; rows keep to their items."""

from __future__ import annotations

import unittest
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import dissensus as ds
from dissensus.errors import DataError
from dissensus.labels.features import features_of
from dissensus.text.guided.adapters import matched

M, P, K = 60, 3, 3
GUIDED = ds.GuidedClassifier(ds.FMM(K, max_iter=30), ds.text.SoftmaxRegression(0.01))


def crowd(seed: int = 0) -> tuple[Any, ds.Annotations]:
    """Features that tell an item's cluster, and the labels of a simulated crowd."""
    drawn = ds.simulate(
        M, 12, P, n_item_clusters=K, n_annotator_clusters=2, labels_per_item=4, alpha=0.3, seed=seed
    )
    centres, noise = np.random.default_rng(7).normal(size=(K, 4)), np.random.default_rng(seed)
    return centres[drawn.item_cluster] + 0.2 * noise.normal(size=(M, 4)), drawn.annotations


X, Y = crowd()
MAJORITY = Y.classes[Y.counts.argmax(axis=1)]


def test_it_is_a_classifier() -> None:
    assert is_classifier(GUIDED)
    assert is_classifier(make_pipeline(TfidfVectorizer(), GUIDED))


def test_annotations_are_their_items_most_common_labels_to_what_takes_plain_labels() -> None:
    np.testing.assert_array_equal(np.asarray(Y), MAJORITY)
    np.testing.assert_array_equal(np.asarray(Y[[5, 3]]), MAJORITY[[5, 3]])
    tied = ds.Annotations.from_arrays(["i", "i"], ["a", "b"], ["y", "x"])
    assert np.asarray(tied).tolist() == ["x"]
    bare = ds.Annotations.from_arrays(["i"], ["a"], ["x"], items={"item": ["i", "j"]})
    with pytest.raises(DataError, match="item 'j' has no label; leave such items out"):
        np.asarray(bare)


def folds() -> list[tuple[Any, Any]]:
    return list(StratifiedKFold(3).split(X, MAJORITY))


def test_accuracy_and_log_loss_are_those_of_the_majority() -> None:
    fits = [(clone(GUIDED).fit(X[a], Y[a]), b) for a, b in folds()]
    right = [accuracy_score(MAJORITY[b], fitted.predict(X[b])) for fitted, b in fits]
    np.testing.assert_allclose(cross_val_score(GUIDED, X, Y, cv=3, scoring="accuracy"), right, rtol=1e-12)
    assert np.mean(right) > 0.5  # a third would be chance
    loss = [-log_loss(MAJORITY[b], fitted.predict_proba(X[b]), labels=Y.classes) for fitted, b in fits]
    np.testing.assert_allclose(cross_val_score(GUIDED, X, Y, cv=3, scoring="neg_log_loss"), loss, rtol=1e-12)


def test_cross_validated_distributions() -> None:
    """scikit-learn turns y into codes of plain labels here: each fold learns from the most common labels."""
    found = cross_val_predict(GUIDED, X, Y, cv=3, method="predict_proba")
    expected = np.zeros((M, P))
    for a, b in folds():
        expected[b] = clone(GUIDED).fit(X[a], MAJORITY[a]).predict_proba(X[b])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_cross_validated_predictions_learn_from_all_labels() -> None:
    expected = np.empty(M, dtype=object)
    for a, b in folds():
        expected[b] = clone(GUIDED).fit(X[a], Y[a]).predict(X[b])
    np.testing.assert_array_equal(cross_val_predict(GUIDED, X, Y, cv=3), expected)


@pytest.mark.slow
def test_sparse_features_go_through_guide_and_learner() -> None:
    texts = [" ".join(["some", *np.array(["red", "green", "blue", "grey"])[row > 0]]) for row in X]
    tfidf = TfidfVectorizer().fit_transform(texts)
    assert sparse.issparse(tfidf)
    pipeline = make_pipeline(TfidfVectorizer(), ds.GuidedClassifier()).fit(texts, Y)
    of_dense = ds.GuidedClassifier().fit(tfidf.toarray(), Y).predict_proba(tfidf.toarray())
    np.testing.assert_allclose(pipeline.predict_proba(texts), of_dense, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [True, False])
def test_a_saved_one_knows_its_columns(columns: bool, tmp_path: Path) -> None:
    texts = ["red" if row[0] > 0 else "blue" for row in X]
    fitted = ds.GuidedClassifier(ds.FMM(K), ds.text.SoftmaxRegression(0.01)).fit(X if columns else texts, Y)
    fitted.save(tmp_path / "guided.safetensors")
    again = ds.load(tmp_path / "guided.safetensors")
    assert (vars(again).get("n_features_in_"), is_classifier(again)) == (4 if columns else None, True)


# ---- labels of every kind ---------------------------------------------------------------------------------


def test_y_may_be_a_file_a_frame_or_one_label_an_item(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"item": Y.items[Y.item], "annotator": Y.annotators[Y.annotator], "label": Y.classes[Y.label]}
    )
    frame.to_csv(tmp_path / "votes.csv", index=False)
    first, named = GUIDED.fit(X, Y).predict_proba(X), pd.DataFrame(X, index=Y.items).iloc[::-1]
    for y in (frame, tmp_path / "votes.csv", str(tmp_path / "votes.csv")):
        np.testing.assert_array_equal(GUIDED.fit(named, y).predict_proba(X), first)
        assert GUIDED.score(named, y) == GUIDED.score(X, Y)
    one_each = matched(X, MAJORITY)[1]
    np.testing.assert_array_equal(one_each.counts.sum(axis=1), 1)
    np.testing.assert_array_equal(np.asarray(one_each), MAJORITY)
    GUIDED.fit(X, MAJORITY)
    np.testing.assert_array_equal(GUIDED.classes_, np.unique(MAJORITY))
    with pytest.raises(DataError, match="PGM needs to know who gave each label"):
        ds.GuidedClassifier(ds.PGM(), ds.text.SoftmaxRegression(0.1)).fit(X, MAJORITY)


# ---- rows and items ---------------------------------------------------------------------------------------


def test_a_frame_that_names_its_items_is_put_in_their_order() -> None:
    order = np.random.default_rng(3).permutation(M)
    shuffled = pd.DataFrame(X, index=Y.items).iloc[order]
    right = clone(GUIDED).fit(X, Y)
    of_frame = clone(GUIDED).fit(shuffled, Y)
    np.testing.assert_array_equal(of_frame.predict_proba(X), right.predict_proba(X))
    assert right.score(shuffled, Y) == right.score(X, Y)
    dev = shuffled.loc[Y.items[40:]].iloc[::-1], Y[40:]
    held = ds.GuidedClassifier(ds.FMM(K)).fit(shuffled.loc[Y.items[:40]].iloc[::-1], Y[:40], dev=dev)
    plain = ds.GuidedClassifier(ds.FMM(K)).fit(X[:40], Y[:40], dev=(X[40:], Y[40:]))
    np.testing.assert_array_equal(held.predict_proba(X), plain.predict_proba(X))


def test_ids_are_told_as_text() -> None:
    """Numbers of a frame's index name the items that a file has as text, whose order is another."""
    y = ds.Annotations.from_arrays([str(m) for m in Y.item], Y.annotators[Y.annotator], Y.classes[Y.label])
    assert y.items.tolist() != [str(m) for m in range(M)]
    fitted = clone(GUIDED).fit(pd.DataFrame(X), y)
    place = y.items.astype(int)
    expected = clone(GUIDED).fit(X[place], y)
    np.testing.assert_array_equal(fitted.predict_proba(X), expected.predict_proba(X))


def test_an_index_that_only_counts_rows_says_nothing() -> None:
    fitted = clone(GUIDED).fit(X, Y)
    for index in (range(M), range(500, 500 + M)):
        assert fitted.score(pd.DataFrame(X, index=index), Y) == fitted.score(X, Y)
    scores = cross_val_score(GUIDED, pd.DataFrame(X), Y, cv=3)
    np.testing.assert_array_equal(scores, cross_val_score(GUIDED, X, Y, cv=3))


def test_an_index_of_other_items_is_refused() -> None:
    strangers = pd.DataFrame(X, index=[f"other {m}" for m in range(M)])
    with pytest.raises(
        DataError, match=r"\AX: its index has no row for item 'i01' \(60 missing\); index it by"
    ):
        GUIDED.fit(strangers, Y)
    with pytest.raises(DataError, match=r"\AX: its index has no row .* write X = X\.loc\[y\.items\]"):
        GUIDED.fit(
            pd.DataFrame(X, index=Y.items).iloc[::-1][: M // 2], Y[: M // 2]
        )  # as a fold of places does
    with pytest.raises(DataError, match=r"\AX: its index has no row for item 'i60' \(1 missing\)"):
        GUIDED.fit(pd.DataFrame(X, index=[*Y.items[:-1], "i61"]), Y)
    with pytest.raises(DataError, match=r"\Adev X: its index has no row"):
        GUIDED.fit(X, Y, dev=(strangers, Y))


TEXTS = pd.Series({"b10": "rain", "b9": "sun", "a1": "rain", "c2": "sun"}, name="text")
VOTES = pd.DataFrame(
    {"item": list(TEXTS.index) * 2, "annotator": ["u"] * 4 + ["v"] * 4, "label": ["wet", "dry"] * 4}
)


def test_rows_without_a_name_beside_labels_without_an_order_are_refused(tmp_path: Path) -> None:
    """The items of a frame are sorted, so the rows of a list would silently be others' rows."""
    VOTES.to_csv(tmp_path / "votes.csv", index=False)
    said = r"\AX does not say which row is which item of y; index it by item id \(a pandas"
    X_too = (
        TEXTS.to_numpy(),
        TEXTS.tolist(),
        TEXTS.reset_index(drop=True),
        np.eye(4),
        sparse.csr_array(np.eye(4)),
    )
    fitted = words_to_votes().fit(TEXTS, VOTES)
    for unnamed in X_too:
        for y in (VOTES, tmp_path / "votes.csv"):
            with pytest.raises(DataError, match=said):
                words_to_votes().fit(unnamed, y)
            with pytest.raises(DataError, match=said):
                fitted.score(unnamed, y)
            with pytest.raises(DataError, match=r"\Adev X does not say which row is which item of dev y"):
                words_to_votes().fit(TEXTS, VOTES, dev=(unnamed, y))
    assert fitted.predict(["rain", "sun"]).tolist() == ["wet", "dry"]
    assert fitted.predict(TEXTS).tolist() == ["wet", "dry", "wet", "dry"]


def words_to_votes() -> ds.GuidedClassifier:
    words = make_pipeline(TfidfVectorizer(), LogisticRegression(C=100.0))
    return ds.GuidedClassifier(ds.EmpiricalDistribution(), words)


def test_one_column_of_texts_is_texts() -> None:
    fitted = words_to_votes().fit(TEXTS.to_frame(), VOTES)
    np.testing.assert_array_equal(
        fitted.predict_proba(TEXTS.to_frame()), words_to_votes().fit(TEXTS, VOTES).predict_proba(TEXTS)
    )
    assert fitted.predict(np.array([["rain"], ["sun"]])).tolist() == ["wet", "dry"]
    by_column = make_pipeline(
        ColumnTransformer([("words", TfidfVectorizer(), "text")]), LogisticRegression(C=100.0)
    )
    chosen = ds.GuidedClassifier(ds.EmpiricalDistribution(), by_column).fit(TEXTS.to_frame(), VOTES)
    assert chosen.predict(TEXTS.to_frame()).tolist() == ["wet", "dry", "wet", "dry"]


def test_features_by_row_are_refused_beside_labels_without_an_order() -> None:
    with pytest.raises(DataError, match="prior has one row for each item, and a file or a frame"):
        ds.DawidSkene().fit(VOTES, prior=np.ones((4, 2)))
    with pytest.raises(DataError, match="features has one row for each item, and a file or a frame"):
        ds.DirichletRegression().fit(VOTES, features=np.eye(4))


def test_features_that_name_their_items_are_put_in_order() -> None:
    labels = ds.read_annotations(VOTES)
    named = pd.DataFrame({"x": [10.0, 9.0, 1.0, 2.0]}, index=TEXTS.index)
    carried = features_of(ds.text.with_features(labels, named))
    assert labels.items.tolist() == ["a1", "b10", "b9", "c2"]
    assert carried.tolist() == [[1.0], [10.0], [9.0], [2.0]]
    assert features_of(ds.text.with_features(labels, named)).tolist() == carried.tolist()


# ---- scikit-learn's own checks ----------------------------------------------------------------------------

# Learners of this library take distributions and models take annotations, which scikit-learn's checks cannot
# make; GuidedClassifier takes plain labels too. What it does otherwise, and why:
WORDS = "it raises DataError, which is an error of the data and no ValueError"
OTHERWISE = {
    "check_estimators_unfitted": "it raises its own NotFittedError: scikit-learn is not imported for it",
    "check_n_features_in_after_fitting": WORDS,
    "check_complex_data": WORDS,
    "check_estimators_empty_data_messages": WORDS,
    "check_estimators_nan_inf": WORDS,
    "check_classifiers_train": WORDS,
    "check_supervised_y_no_nan": WORDS,
    "check_fit1d": WORDS,
    "check_fit2d_predict1d": WORDS,
    "check_requires_y_none": WORDS,
    "check_supervised_y_2d": "a column of labels is refused: a table would be labels by annotators",
    "check_classifiers_regression_target": "numbers such as 0.5 may be classes: grades often are",
    "check_classifier_data_not_an_array": "X needs a shape, or to be a sequence of texts",
}


with (
    warnings.catch_warnings()
):  # that it does not inherit from BaseEstimator, which would import scikit-learn
    warnings.simplefilter("ignore")
    CHECKS = parametrize_with_checks(
        [ds.GuidedClassifier(ds.FMM(2, max_iter=5), ds.text.SoftmaxRegression(0.01))],
        expected_failed_checks=lambda _: OTHERWISE,
    )


@pytest.mark.slow
@CHECKS
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    try:
        check(estimator)
    except unittest.SkipTest:  # other kinds of arrays are checked where SCIPY_ARRAY_API is set, nowhere else
        assert "array_api" in str(check)
