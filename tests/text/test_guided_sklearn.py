"""GuidedClassifier with scikit-learn's tools, and the matching of rows to items."""

import unittest
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import dissensus as ds
from dissensus.errors import DataError
from dissensus.text.guided.adapters import match_rows

M, P, K = 60, 3, 3
GUIDED = ds.GuidedClassifier(ds.FMM(K, max_iter=30), ds.text.SoftmaxRegression(0.01))

DRAWN = ds.simulate(M, 12, P, n_item_clusters=K, n_annotator_clusters=2, labels_per_item=4, alpha=0.3, seed=0)
CENTRES, NOISE = np.random.default_rng(7).normal(size=(K, 4)), np.random.default_rng(0).normal(size=(M, 4))
X, Y = CENTRES[DRAWN.item_cluster] + 0.2 * NOISE, DRAWN.annotations
MAJORITY = Y.classes[Y.counts.argmax(axis=1)]
FOLDS = list(StratifiedKFold(3).split(X, MAJORITY))


def test_annotations_convert_to_majority_labels() -> None:
    np.testing.assert_array_equal(np.asarray(Y), MAJORITY)
    np.testing.assert_array_equal(np.asarray(Y[[5, 3]]), MAJORITY[[5, 3]])
    tied = ds.Annotations.from_arrays(["i", "i"], ["a", "b"], ["y", "x"])
    assert np.asarray(tied).tolist() == ["x"]
    bare = ds.Annotations.from_arrays(["i"], ["a"], ["x"], items={"item": ["i", "j"]})
    with pytest.raises(DataError, match="item 'j' has no label; drop such items"):
        np.asarray(bare)


def test_cross_validated_distributions() -> None:
    """scikit-learn converts y to plain labels for ``predict_proba``: folds learn from majority labels."""
    distributions = cross_val_predict(GUIDED, X, Y, cv=3, method="predict_proba")
    expected = np.zeros((M, P))
    for a, b in FOLDS:
        expected[b] = clone(GUIDED).fit(X[a], MAJORITY[a]).predict_proba(X[b])
    np.testing.assert_allclose(distributions, expected, rtol=1e-9)
    predicted = np.empty(M, dtype=object)
    for a, b in FOLDS:  # but not for ``predict``, where each fold learns from all labels
        predicted[b] = clone(GUIDED).fit(X[a], Y[a]).predict(X[b])
    np.testing.assert_array_equal(cross_val_predict(GUIDED, X, Y, cv=3), predicted)


# ---- labels of every kind ---------------------------------------------------------------------------------


def test_y_as_file_frame_or_one_label_per_item(tmp_path: Path) -> None:
    frame = Y.to_frame()
    frame.to_csv(tmp_path / "votes.csv", index=False)
    first, named = GUIDED.fit(X, Y).predict_proba(X), pd.DataFrame(X, index=Y.items).iloc[::-1]
    for y in (frame, tmp_path / "votes.csv", str(tmp_path / "votes.csv")):
        np.testing.assert_array_equal(GUIDED.fit(named, y).predict_proba(X), first)
        assert GUIDED.score(named, y) == GUIDED.score(X, Y)
    single = match_rows(X, MAJORITY)[1]
    np.testing.assert_array_equal(single.counts.sum(axis=1), 1)
    np.testing.assert_array_equal(np.asarray(single), MAJORITY)
    with pytest.raises(DataError, match="PGM needs the annotator of each label"):
        ds.GuidedClassifier(ds.PGM(), ds.text.SoftmaxRegression(0.1)).fit(X, MAJORITY)


# ---- rows and items ---------------------------------------------------------------------------------------


def test_frame_rows_are_matched_by_item_id() -> None:
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


def test_numeric_index_matches_ids_as_text() -> None:
    """Ids from a file are text, which sorts in another order than the numbers of an index."""
    y = ds.Annotations.from_arrays([str(m) for m in Y.item], Y.annotators[Y.annotator], Y.classes[Y.label])
    assert y.items.tolist() != [str(m) for m in range(M)]
    fitted = clone(GUIDED).fit(pd.DataFrame(X), y)
    expected = clone(GUIDED).fit(X[y.items.astype(int)], y)
    np.testing.assert_array_equal(fitted.predict_proba(X), expected.predict_proba(X))


def test_index_with_other_items_is_rejected() -> None:
    strangers = pd.DataFrame(X, index=[f"other {m}" for m in range(M)])
    with pytest.raises(DataError, match=r"\AX: its index has no row for item 'i01' \(60 missing\); index it"):
        GUIDED.fit(strangers, Y)
    with pytest.raises(DataError, match=r"\AX: its index has no row .* use X = X\.loc\[y\.items\]"):
        GUIDED.fit(pd.DataFrame(X, index=Y.items).iloc[::-1][: M // 2], Y[: M // 2])
    with pytest.raises(DataError, match=r"\Adev X: its index has no row"):
        GUIDED.fit(X, Y, dev=(strangers, Y))


TEXTS = pd.Series({"b10": "rain", "b9": "sun", "a1": "rain", "c2": "sun"}, name="text")
VOTES = pd.DataFrame(
    {"item": list(TEXTS.index) * 2, "annotator": ["u"] * 4 + ["v"] * 4, "label": ["wet", "dry"] * 4}
)


def test_rows_without_ids_are_rejected_for_files_and_frames(tmp_path: Path) -> None:
    """The items of a frame are sorted, so rows of a list would be matched to the wrong items."""
    VOTES.to_csv(tmp_path / "votes.csv", index=False)
    message = r"\AX does not say which row is which item of y; index it by item id \(a pandas"
    fitted = words_to_votes().fit(TEXTS, VOTES)
    for rows in (TEXTS.tolist(), TEXTS.reset_index(drop=True), sparse.csr_array(np.eye(4))):
        for y in (VOTES, tmp_path / "votes.csv"):
            with pytest.raises(DataError, match=message):
                words_to_votes().fit(rows, y)
            with pytest.raises(DataError, match=message):
                fitted.score(rows, y)
    with pytest.raises(DataError, match=r"\Adev X does not say which row is which item of dev y"):
        words_to_votes().fit(TEXTS, VOTES, dev=(TEXTS.tolist(), VOTES))
    assert fitted.predict(["rain", "sun"]).tolist() == ["wet", "dry"]
    assert fitted.predict(TEXTS).tolist() == ["wet", "dry", "wet", "dry"]


def words_to_votes() -> ds.GuidedClassifier:
    words = make_pipeline(TfidfVectorizer(), LogisticRegression(C=100.0))
    return ds.GuidedClassifier(ds.EmpiricalDistribution(), words)


def test_one_column_of_texts() -> None:
    column = TEXTS.to_frame()
    fitted = words_to_votes().fit(column, VOTES)
    expected = words_to_votes().fit(TEXTS, VOTES).predict_proba(TEXTS)
    np.testing.assert_array_equal(fitted.predict_proba(column), expected)
    words = ColumnTransformer([("words", TfidfVectorizer(), "text")])
    by_column = make_pipeline(words, LogisticRegression(C=100.0))
    chosen = ds.GuidedClassifier(ds.EmpiricalDistribution(), by_column).fit(column, VOTES)
    assert chosen.predict(column).tolist() == ["wet", "dry", "wet", "dry"]


# ---- scikit-learn's checks --------------------------------------------------------------------------------

# Learners take distributions and models take annotations, which scikit-learn's checks cannot construct;
# GuidedClassifier also takes plain labels. Checks that it fails, and why:
DATA_ERROR = "it raises DataError, which is not a ValueError"
EXPECTED_FAILURES = {
    "check_estimators_unfitted": "it raises its own NotFittedError, without importing scikit-learn",
    "check_n_features_in_after_fitting": DATA_ERROR,
    "check_complex_data": DATA_ERROR,
    "check_estimators_empty_data_messages": DATA_ERROR,
    "check_estimators_nan_inf": DATA_ERROR,
    "check_classifiers_train": DATA_ERROR,
    "check_supervised_y_no_nan": DATA_ERROR,
    "check_fit1d": DATA_ERROR,
    "check_fit2d_predict1d": DATA_ERROR,
    "check_requires_y_none": DATA_ERROR,
    "check_supervised_y_2d": "a column of labels is rejected, since tables are labels by annotators",
    "check_classifiers_regression_target": "numbers such as 0.5 can be classes, such as grades",
    "check_classifier_data_not_an_array": "X needs a shape, or to be a sequence of texts",
}


with warnings.catch_warnings():  # GuidedClassifier does not inherit from BaseEstimator
    warnings.simplefilter("ignore")
    CHECKS = parametrize_with_checks(
        [ds.GuidedClassifier(ds.FMM(2, max_iter=5), ds.text.SoftmaxRegression(0.01))],
        expected_failed_checks=lambda _: EXPECTED_FAILURES,
    )


@pytest.mark.slow
@CHECKS
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    try:
        check(estimator)
    except unittest.SkipTest:  # array API checks need SCIPY_ARRAY_API
        assert "array_api" in str(check)
