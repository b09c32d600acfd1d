"""GuidedClassifier: by hand, against scikit-learn and SciPy, and over every guide and four learners."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

import dissensus as ds
from dissensus.errors import DataError, ModelFileError, NotFittedError, ParameterError
from dissensus.metrics import kl
from dissensus.models import model_class
from dissensus.models.base import Model
from dissensus.models.results import ClusterView
from dissensus.tables.arrays import read_arrays
from dissensus.text.guided.adapters import weighted_rows
from dissensus.text.guided.classifier import PRIOR_WORTHS
from dissensus.text.guided.guides import ItemClusters, Projection
from dissensus.text.learners.base import Learner, hold_out
from registry import OF_CLASSES

pytestmark = pytest.mark.torch

M, N, P, K = 60, 12, 3, 3

GUIDES: dict[str, Model] = {
    "majority": ds.MajorityVote(),
    "empirical": ds.EmpiricalDistribution(),
    "fmm": ds.FMM(K, max_iter=40),
    "pgm-bp": ds.PGM(K, 2, max_iter=20),
    "pgm-annealing": ds.PGM(K, 2, inference="annealing", max_iter=20),
    "pgm-vb": ds.PGM(K, 2, inference="vb", max_iter=20),
    "cbcc": ds.CBCC(2, max_iter=15),
    "dawid-skene": ds.DawidSkene(max_iter=20),
    "one-coin": ds.OneCoin(max_iter=20),
    "hpgm": ds.HPGM(K, 2, n_chains=1, n_sweeps=20),
    "ldlnm": ds.LDLNM(4, 2, latent_size=4, n_networks=1, epochs=3),
}
LEARNERS: dict[str, Any] = {
    "softmax": ds.text.SoftmaxRegression(0.01),
    "scikit-learn": LogisticRegression(max_iter=500),
    "ldlnm": ds.LDLNM(4, 2, latent_size=4, n_networks=1, epochs=3),
}
# Models that are registered and not in the table join with their defaults.
REGISTERED = {name: model_class(name) for name in OF_CLASSES}
GUIDES |= {
    name: build()
    for name, build in REGISTERED.items()
    if build not in {type(guide) for guide in GUIDES.values()}
}


def has_clusters(guide: Model) -> bool:
    return not {"theta_", "confusion_"}.isdisjoint(type(guide)._arrays)


# Every guide with one learner, and every learner with guides of each kind.
PAIRS = [(guide, "softmax") for guide in GUIDES]
PAIRS += [
    pair for pair in product(("empirical", "fmm", "pgm-bp", "dawid-skene"), LEARNERS) if pair not in PAIRS
]


def crowd(n: int = M, per_item: int = 4, seed: int = 0) -> tuple[Any, ds.Annotations]:
    """Features that tell an item's cluster, and the labels of a simulated crowd."""
    drawn = ds.simulate(
        n, N, P, n_item_clusters=K, n_annotator_clusters=2, labels_per_item=per_item, alpha=0.3, seed=seed
    )
    centres = np.random.default_rng(7).normal(size=(K, 4))
    noise = np.random.default_rng(seed).normal(size=(n, 4))
    return centres[drawn.item_cluster] + 0.2 * noise, drawn.annotations


def texts_of(X: Any) -> list[str]:
    """A word for every positive feature, so that texts tell what features tell."""
    words = np.array(["red", "green", "blue", "grey"])
    return [" ".join(["some", *words[row > 0]]) for row in X]


def shares(y: ds.Annotations) -> Any:
    return y.counts / y.counts.sum(axis=1, keepdims=True)


def unlabelled(y: ds.Annotations, *items: int) -> ds.Annotations:
    """The same items, some of them without their labels."""
    return y.take_rows(~np.isin(y.item, items))


class Parrot(Learner):
    """Repeats, for every row of X, the distribution that the row itself is; remembers what it was told."""

    def _inputs(self, X: Any) -> Any:
        return np.asarray(X, dtype=np.float64)

    def _fit(self, X: Any, targets: Any, dev: Any) -> None:
        self.told_ = X, targets, dev

    def _predict(self, X: Any) -> Any:
        return X


class Given(Model):
    """A guide that knows its clusters beforehand: π, ψ and Θ of the case worked by hand below."""

    psi_ = np.array([0.6, 0.4])
    theta_ = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.2, 0.8], [0.4, 0.6]]])
    population_weights_ = np.array([0.75, 0.25])

    def _fit(self, annotations: ds.Annotations, pool: Any) -> None:
        self.item_clusters_ = np.tile(self.psi_, (annotations.n_items, 1))
        self.label_distributions_ = np.full((annotations.n_items, 2), 0.5)

    def cluster_view(self, annotator_load: Any = None) -> ClusterView:
        weights = self.population_weights_
        population = np.einsum("l,klp->kp", weights, self.theta_)
        return ClusterView(self.item_clusters_, None, self.theta_, self.psi_, weights, weights, population)


TWO_CLASSES = ds.Annotations.from_counts([[3, 1], [1, 3], [2, 2], [4, 0]])


# ---- the contract -----------------------------------------------------------------------------------------


@pytest.mark.no_cover
@pytest.mark.parametrize(("guide", "learner"), PAIRS)
def test_every_guide_with_every_kind_of_learner(guide: str, learner: str, tmp_path: Path) -> None:
    X, y = crowd()
    project = "soft" if has_clusters(GUIDES[guide]) else "none"
    built = ds.GuidedClassifier(GUIDES[guide], LEARNERS[learner], project=project)
    first = clone(built).fit(X[:40], y[:40], dev=(X[40:50], y[40:50]))
    predicted = first.label_distributions(X[50:])
    assert predicted.shape == (10, P)
    assert predicted.min() >= 0
    np.testing.assert_allclose(predicted.sum(axis=1), 1.0, rtol=1e-12)
    assert predicted.tobytes() == first.predict_proba(X[50:]).tobytes()
    assert first.predict(X[50:]).tolist() == y.classes[predicted.argmax(axis=1)].tolist()
    assert first.refined_.shape == (40, P)
    np.testing.assert_allclose(first.refined_.sum(axis=1), 1.0, rtol=1e-9)
    assert not built.guide.__sklearn_is_fitted__()
    assert not hasattr(built.learner, "n_classes_")
    assert not hasattr(built.learner, "classes_")
    check_saving(first, X, tmp_path / "guided.safetensors")


def check_saving(fitted: ds.GuidedClassifier, X: Any, path: Path) -> None:
    """What comes back says the same, fits to the same again, and is refused with one bit changed."""
    if isinstance(fitted.learner_, LogisticRegression):
        with pytest.raises(
            DataError, match=r"with LogisticRegression cannot be saved without pickle; take a"
        ):
            fitted.save(path)
        assert not path.exists()
        return
    fitted.save(path)
    loaded = ds.load(path)
    assert loaded.label_distributions(X).tobytes() == fitted.label_distributions(X).tobytes()
    assert repr(loaded) == repr(fitted)
    for name in ("refined_", "prior_worth_", "prior_worth_tried_", "path_kl_", "classes_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(fitted, name))
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelFileError, match="has been altered since it was saved"):
        ds.load(path)


def test_a_clone_of_a_fitted_one_is_unfitted_and_fits_to_the_same_bits() -> None:
    X, y = crowd()
    fitted = ds.GuidedClassifier(ds.FMM(K), project="hard").fit(X, y)
    check_is_fitted(fitted)
    copied = clone(fitted)
    with pytest.raises(NotFittedError):
        copied.predict(X)
    assert copied.fit(X, y).label_distributions(X).tobytes() == fitted.label_distributions(X).tobytes()


# ---- projecting -------------------------------------------------------------------------------------------

# Two item clusters, two annotator clusters with π = (3/4, 1/4):
#   Y'_1 = 3/4 (0.9, 0.1) + 1/4 (0.5, 0.5) = (0.8, 0.2)
#   Y'_2 = 3/4 (0.2, 0.8) + 1/4 (0.4, 0.6) = (1/4, 3/4)
# A prediction h = (1/2, 1/2) worth S = 2 labels is one label of each class, exp(S Σ h log θ) = θ_1 θ_2:
#   inside   0.6 · 0.8 · 0.2 = 0.096                         0.4 · 1/4 · 3/4 = 0.075
#   outside  0.6 (3/4 · 0.09 + 1/4 · 0.25) = 0.078           0.4 (3/4 · 0.16 + 1/4 · 0.24) = 0.072
BY_HAND = {"inside": 0.096 / (0.096 + 0.075), "outside": 0.078 / (0.078 + 0.072)}
OF_CLUSTERS = np.array([[0.8, 0.2], [0.25, 0.75]])


@pytest.mark.parametrize("annotator_sum", ["inside", "outside"])
def test_the_projection_worked_by_hand(annotator_sum: str) -> None:
    h = np.full((4, 2), 0.5)
    settings = {"annotator_sum": annotator_sum, "prior_worth": 2.0}
    soft = ds.GuidedClassifier(Given(), Parrot(), project="soft", **settings).fit(h, TWO_CLASSES)
    hard = ds.GuidedClassifier(Given(), Parrot(), project="hard", **settings).fit(h, TWO_CLASSES)
    first = BY_HAND[annotator_sum]
    np.testing.assert_allclose(soft.cluster_posteriors(h[:1]), [[first, 1 - first]], rtol=1e-12)
    expected = first * OF_CLUSTERS[0] + (1 - first) * OF_CLUSTERS[1]
    np.testing.assert_allclose(soft.label_distributions(h[:1]), [expected], rtol=1e-12)
    np.testing.assert_allclose(hard.label_distributions(h[:1]), OF_CLUSTERS[:1], rtol=1e-12)
    assert soft.prior_worth_ == 2.0


def test_the_projection_between_no_label_and_endless_labels() -> None:
    guide = Given()
    guide.fit(TWO_CLASSES)
    clusters = ItemClusters.of(guide, TWO_CLASSES.annotator_load)
    assert clusters is not None
    h = np.random.default_rng(0).dirichlet(np.ones(2), size=50)
    nothing = Projection(clusters, "soft", "inside", 1e-9).posteriors(h)
    np.testing.assert_allclose(nothing, np.tile(guide.psi_, (50, 1)), rtol=1e-6)
    # arg min_k KL(h ‖ Y'_k), whatever ψ says
    divergences = (h[:, None] * np.log(h[:, None] / OF_CLUSTERS)).sum(axis=2)
    nearest = OF_CLUSTERS[divergences.argmin(axis=1)]
    for mode in ("hard", "soft"):
        np.testing.assert_allclose(Projection(clusters, mode, "inside", 1e7)(h), nearest, rtol=1e-9)


def test_outside_asks_which_annotators_gave_all_of_the_labels() -> None:
    # 700 labels of either class: cluster 2's annotators of (0.4, 0.6) are nearer to that than the mixture
    # (0.8, 0.2), but those of (0.5, 0.5), a quarter of cluster 1, fit best: outside it must win, inside lose.
    guide = Given().fit(TWO_CLASSES)
    clusters = ItemClusters.of(guide, TWO_CLASSES.annotator_load)
    assert clusters is not None
    h = np.full((1, 2), 0.5)
    assert Projection(clusters, "soft", "outside", 1400.0).posteriors(h)[0, 0] > 0.999
    assert Projection(clusters, "soft", "inside", 1400.0).posteriors(h)[0, 0] < 0.001


def test_a_class_that_a_cluster_excludes_is_no_trouble() -> None:
    one_sided = ItemClusters(np.ones((1, 2)), np.array([1.0, 0.0]), np.eye(2)[:, None], np.ones(1), np.eye(2))
    for annotator_sum in ("inside", "outside"):
        got = Projection(one_sided, "soft", annotator_sum, 256.0)(np.array([[0.5, 0.5], [0.0, 1.0]]))
        np.testing.assert_array_equal(got, [[1.0, 0.0], [1.0, 0.0]])  # the second cluster has no share


@pytest.mark.parametrize("weight_by", ["labels", "annotators"])
@pytest.mark.parametrize("model", [ds.DawidSkene, ds.OneCoin, ds.CBCC])
def test_every_annotator_is_a_cluster_of_confusion_models(model: Any, weight_by: str) -> None:
    _, y = crowd()
    guide = model(weight_by=weight_by).fit(y)
    clusters = ItemClusters.of(guide, y.annotator_load)
    assert clusters is not None
    weights = y.annotator_load if weight_by == "labels" else np.ones(N)
    by_hand = np.zeros((1, P))
    h = np.array([[0.2, 0.5, 0.3]])
    for k, n in product(range(P), range(N)):
        chance = np.exp(4 * sum(h[0, p] * np.log(guide.confusion_[n, k, p]) for p in range(P)))
        by_hand[0, k] += guide.psi_[k] * weights[n] * chance
    got = Projection(clusters, "soft", "outside", 4.0).posteriors(h)
    np.testing.assert_allclose(got, by_hand / by_hand.sum(), rtol=1e-9)
    mixed = np.einsum("l,klp->kp", clusters.weights, clusters.theta)
    np.testing.assert_allclose(clusters.population, mixed, rtol=1e-9)


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    guide = Given().fit(TWO_CLASSES)
    clusters = ItemClusters.of(guide, TWO_CLASSES.annotator_load)
    assert clusters is not None
    h = np.random.default_rng(0).dirichlet(np.ones(2), size=7)
    whole = Projection(clusters, "soft", "outside", 3.0)(h)
    monkeypatch.setattr("dissensus.text.guided.guides.BLOCK", 8)
    np.testing.assert_allclose(Projection(clusters, "soft", "outside", 3.0)(h), whole, rtol=1e-14)


# ---- refining ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignment", ["soft", "hard"])
def test_refined_by_hand_from_the_posteriors(assignment: str) -> None:
    X, y = crowd()
    guide = ds.PGM(K, 2, assignment=assignment, seed=3)
    known = clone(guide).fit(y)
    load = y.annotator_load @ known.annotator_clusters_
    of_clusters = [sum(load[j] * known.theta_[k, j] for j in range(2)) / load.sum() for k in range(K)]
    soft = [sum(w[k] * of_clusters[k] for k in range(K)) for w in known.item_clusters_]
    hard = [of_clusters[int(np.argmax(w))] for w in known.item_clusters_]
    for refine, expected in (("soft", soft), ("hard", hard)):
        fitted = ds.GuidedClassifier(guide, ds.text.SoftmaxRegression(0.1), refine=refine).fit(X, y)
        np.testing.assert_allclose(fitted.refined_, expected, rtol=1e-12)


def test_confusion_models_refine_by_the_true_class() -> None:
    X, y = crowd()
    known = ds.DawidSkene().fit(y)
    fitted = ds.GuidedClassifier(ds.DawidSkene(), ds.text.SoftmaxRegression(0.1), refine="hard").fit(X, y)
    expected = known.crowd_confusion_[known.posterior_.argmax(axis=1)]
    np.testing.assert_array_equal(fitted.refined_, expected)


@pytest.mark.parametrize("refine", ["soft", "hard"])
def test_a_guide_without_clusters_refines_by_its_own_distributions(refine: str) -> None:
    X, y = crowd()
    fitted = ds.GuidedClassifier(ds.EmpiricalDistribution(0.5), ds.text.SoftmaxRegression(0.1), refine=refine)
    np.testing.assert_allclose(fitted.fit(X, y).refined_, (y.counts + 0.5) / (4 + 0.5 * P), rtol=1e-12)


def test_items_without_labels_are_left_out_or_refined_by_the_prior() -> None:
    X, y = crowd()
    gaps = unlabelled(y, 3, 10)
    raw = ds.GuidedClassifier(None, Parrot(), refine="none").fit(shares(y), gaps)
    others = np.setdiff1d(np.arange(M), [3, 10])
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(raw.refined_).all(axis=1)), [3, 10])
    np.testing.assert_array_equal(raw.learner_.told_[0], shares(y)[others])
    np.testing.assert_array_equal(raw.learner_.told_[1], shares(y)[others])
    known = ds.FMM(K).fit(gaps)
    guided = ds.GuidedClassifier(ds.FMM(K), ds.text.SoftmaxRegression(0.1)).fit(X, gaps)
    np.testing.assert_allclose(
        guided.refined_[[3, 10]], np.tile(known.psi_ @ known.theta_, (2, 1)), rtol=1e-12
    )


def test_refined_labels_are_nearer_to_the_population_than_raw_ones() -> None:
    drawn = ds.simulate(400, 40, P, n_item_clusters=K, labels_per_item=3, alpha=0.3, load="even", seed=2)
    X, y = np.zeros((400, 1)), drawn.annotations

    def distance(guide: Any, refine: str) -> float:
        fitted = ds.GuidedClassifier(guide, ds.text.SoftmaxRegression(1.0), refine=refine).fit(X, y)
        return kl(drawn.population_by_load, fitted.refined_)

    raw = distance(None, "none")
    assert distance(ds.FMM(K, n_restarts=3), "soft") < raw / 3
    assert distance(ds.PGM(K, 3, n_restarts=3), "soft") < raw / 3
    assert distance(ds.FMM(1), "soft") > distance(ds.FMM(K, n_restarts=3), "soft")


# ---- learners ---------------------------------------------------------------------------------------------


def test_weighted_rows_by_hand() -> None:
    item, label, weight = weighted_rows(np.array([[0.25, 0.75], [0.0, 1.0]]))
    assert (item.tolist(), label.tolist(), weight.tolist()) == ([0, 0, 1], [0, 1, 1], [0.25, 0.75, 1.0])


def test_weighted_rows_reach_the_optimum_on_distributions() -> None:
    X, y = crowd()
    X = X.astype(np.float32).astype(float)
    d, C = shares(y), 3.0

    def loss(flat: Any) -> float:  # scikit-learn's objective, with the distributions in place of labels
        W, b = flat[: 4 * P].reshape(4, P), flat[4 * P :]
        return float(-(d * log_softmax(X @ W + b, axis=1)).sum() + (W**2).sum() / (2 * C))

    best = minimize(loss, np.zeros(5 * P), method="BFGS", options={"gtol": 1e-6}).x
    expected = np.exp(log_softmax(X @ best[: 4 * P].reshape(4, P) + best[4 * P :], axis=1))
    learner = LogisticRegression(C=C, tol=1e-9, max_iter=5000)
    raw = ds.GuidedClassifier(None, learner, refine="none").fit(X, y)
    np.testing.assert_allclose(raw.label_distributions(X), expected, rtol=1e-4)
    # the same optimum as SoftmaxRegression, whose penalty is prior_worth · spread = 1 / (C M)
    prior_worth = 1 / (C * M * X.var(axis=0).sum())
    ours = ds.GuidedClassifier(None, ds.text.SoftmaxRegression(prior_worth, tol=1e-9), refine="none").fit(
        X, y
    )
    np.testing.assert_allclose(ours.label_distributions(X), expected, rtol=1e-4)


def test_a_class_without_weight_gets_zero_and_keeps_its_column() -> None:
    X, y = crowd()
    middle_gone = y.take_rows(y.label != 1)
    labelled = np.flatnonzero(middle_gone.counts.any(axis=1))
    raw = ds.GuidedClassifier(None, LogisticRegression(), refine="none").fit(X, middle_gone)
    predicted = raw.predict_proba(X)
    np.testing.assert_array_equal(predicted[:, 1], 0.0)
    np.testing.assert_allclose(predicted.sum(axis=1), 1.0, rtol=1e-12)
    direct = LogisticRegression()
    item, label, weight = weighted_rows(shares(middle_gone[labelled]))
    direct.fit(X[labelled][item], label, sample_weight=weight)
    np.testing.assert_allclose(predicted[:, [0, 2]], direct.predict_proba(X), rtol=1e-12)
    assert np.isfinite(raw.score(X, y))


def test_in_ldlnm_the_refined_distributions_replace_y_i() -> None:
    X, y = crowd()
    guided = ds.GuidedClassifier(GUIDES["fmm"], LEARNERS["ldlnm"]).fit(X[:50], y[:50], dev=(X[50:], y[50:]))
    refined = clone(GUIDES["fmm"]).fit(y[:50]).label_distributions_
    direct = clone(LEARNERS["ldlnm"]).fit(
        y[:50], X[:50], dev=(X[50:], shares(y[50:])), item_distributions=refined
    )
    np.testing.assert_array_equal(guided.label_distributions(X), direct.label_distributions(X))
    raw = ds.GuidedClassifier(None, LEARNERS["ldlnm"], refine="none").fit(X[:50], y[:50])
    plain = clone(LEARNERS["ldlnm"]).fit(y[:50], X[:50])
    np.testing.assert_array_equal(raw.label_distributions(X), plain.label_distributions(X))


def test_dev_is_what_people_said_where_they_said_something() -> None:
    _, y = crowd()
    d = shares(y)
    guided = ds.GuidedClassifier(ds.FMM(K), Parrot()).fit(
        d[:40], y[:40], dev=(d[40:], unlabelled(y, 45)[40:])
    )
    others = np.setdiff1d(np.arange(40, M), [45])
    told_X, told_targets = guided.learner_.told_[2]
    np.testing.assert_array_equal(told_X, d[others])
    np.testing.assert_array_equal(told_targets, d[others])


def test_texts_for_those_who_read_and_embeddings_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    features, y = crowd()
    texts = texts_of(features)
    place = {text: row for row, text in enumerate(texts)}
    monkeypatch.setattr(
        "dissensus.text.embedding.embed",
        lambda some, model=None: features[[place[text] for text in some]].astype(np.float32),
    )
    as_embedded = features[[place[text] for text in texts]].astype(np.float32)
    for learner in (LogisticRegression(), ds.text.SoftmaxRegression(0.1)):
        read = ds.GuidedClassifier(ds.FMM(K), learner).fit(texts, y).label_distributions(texts)
        seen = ds.GuidedClassifier(ds.FMM(K), learner).fit(as_embedded, y).label_distributions(as_embedded)
        np.testing.assert_allclose(read, seen, rtol=1e-5)
    words = make_pipeline(TfidfVectorizer(), LogisticRegression())
    fitted = ds.GuidedClassifier(ds.FMM(K), words, project="soft").fit(texts, y)
    vocabulary = fitted.learner_.named_steps["tfidfvectorizer"].vocabulary_
    assert set(vocabulary) == {"some", "red", "green", "blue", "grey"}


def test_sparse_features_are_rows_like_others() -> None:
    features, y = crowd()
    X = TfidfVectorizer().fit_transform(texts_of(features))
    assert sparse.issparse(X)
    guided = ds.GuidedClassifier(ds.FMM(K), LogisticRegression(tol=1e-8), project="soft")
    from_sparse = clone(guided).fit(X, unlabelled(y, 2)).label_distributions(X)
    from_dense = clone(guided).fit(X.toarray(), unlabelled(y, 2)).label_distributions(X.toarray())
    np.testing.assert_allclose(from_sparse, from_dense, rtol=1e-5)


# ---- the prior labels ------------------------------------------------------------------------------------


@pytest.mark.parametrize("project", ["soft", "hard"])
@pytest.mark.parametrize("annotator_sum", ["inside", "outside"])
def test_the_strength_is_the_best_on_dev(annotator_sum: str, project: str) -> None:
    X, y = crowd()
    dev = X[40:], y[40:]
    settings = {"project": project, "annotator_sum": annotator_sum}
    guide = FrozenEstimator(clone(GUIDES["pgm-bp"]).fit(y[:40]))
    guided = ds.GuidedClassifier(guide, ds.text.SoftmaxRegression(0.01), **settings)
    chosen = clone(guided).fit(X[:40], y[:40], dev=dev)
    reached = [
        -clone(guided).set_params(prior_worth=S).fit(X[:40], y[:40]).score(*dev)
        for S in PRIOR_WORTHS.tolist()
    ]
    np.testing.assert_allclose(chosen.path_kl_, reached, rtol=1e-9)
    assert chosen.prior_worth_ == PRIOR_WORTHS[int(np.argmin(reached))]
    assert len(set(np.round(reached, 6))) > 1


def test_without_dev_the_strength_is_chosen_on_a_seeded_tenth() -> None:
    X, y = crowd()
    y = unlabelled(y, 0)
    guided = ds.GuidedClassifier(ds.FMM(K), ds.text.SoftmaxRegression(0.01), project="soft", seed=4)
    chosen = clone(guided).fit(X, y)
    held = 1 + hold_out(M - 1, 4)[1]  # among the labelled items, 1 … M − 1
    kept = np.setdiff1d(np.arange(M), held)
    rehearsal = clone(guided).fit(X[kept], y[kept], dev=(X[held], y[held]))
    assert chosen.prior_worth_ == rehearsal.prior_worth_
    np.testing.assert_array_equal(chosen.path_kl_, rehearsal.path_kl_)
    assert chosen.refined_.shape == (M, P)
    np.testing.assert_array_equal(chosen.learner_.coef_.shape, (4, P))


def test_settings_changed_after_the_fit_wait_for_the_next() -> None:
    X, y = crowd()
    fitted = ds.GuidedClassifier(ds.FMM(K), ds.text.SoftmaxRegression(0.1)).fit(X, y)
    before = fitted.label_distributions(X)
    fitted.set_params(project="hard", prior_worth=3.0)
    np.testing.assert_array_equal(fitted.label_distributions(X), before)
    assert fitted.prior_worth_ is None
    with pytest.raises(ParameterError, match="was not fitted to project"):
        fitted.cluster_posteriors(X)
    assert np.unique(fitted.fit(X, y).label_distributions(X), axis=0).shape[0] <= K


# ---- guides that know more --------------------------------------------------------------------------------


class Reader(ds.FMM):
    """An FMM that is shown features."""

    uses_features = True
    embedding = None

    def _fit(self, annotations: ds.Annotations, pool: Any) -> None:
        super()._fit(annotations, pool)
        self.seen = annotations.item_column("features")


def test_a_guide_that_reads_features_gets_them() -> None:
    X, y = crowd()
    X = X.astype(np.float32)
    guided = ds.GuidedClassifier(Reader(2), ds.text.SoftmaxRegression(0.1)).fit(X, y)
    np.testing.assert_array_equal(np.stack(guided.guide_.seen), X)


@pytest.mark.slow
def test_a_loaded_one_goes_on_like_the_one_that_was_saved(tmp_path: Path) -> None:
    X, y = crowd()
    whole = ds.PGM(K, 2).fit(y)
    softmax, unlike = (
        ds.text.SoftmaxRegression(0.1),
        {"refine": "hard", "annotator_sum": "outside", "seed": 3},
    )
    for fitted in (
        ds.GuidedClassifier(refine="none"),
        ds.GuidedClassifier(ds.PGM(K, 2, seed=1), softmax, project="soft", **unlike),
        ds.GuidedClassifier(FrozenEstimator(whole), softmax, project="soft", **unlike),
    ):
        fitted.fit(X[:40], y[:40])
        before = fitted.label_distributions(X)
        fitted.set_params(annotator_sum="inside").save(tmp_path / "guided")
        loaded = ds.load(tmp_path / "guided")
        np.testing.assert_array_equal(loaded.label_distributions(X), before)
        assert loaded.annotator_sum == "inside"
        again = loaded.fit(X[20:], y[20:]).label_distributions(X)
        np.testing.assert_array_equal(again, fitted.fit(X[20:], y[20:]).label_distributions(X))


def test_a_frozen_guide_is_saved_once(tmp_path: Path) -> None:
    X, y = crowd()
    guide = ds.PGM(K, 2).fit(y)
    ds.GuidedClassifier(FrozenEstimator(guide), ds.text.SoftmaxRegression(0.1)).fit(X, y).save(
        tmp_path / "guided"
    )
    assert not any(name.startswith("guide_/") for name in read_arrays(tmp_path / "guided")[1])
    loaded = ds.load(tmp_path / "guided")
    assert loaded.guide_ is loaded.guide.estimator
    np.testing.assert_array_equal(loaded.guide_.theta_, guide.theta_)


def test_a_learner_of_ones_own_is_not_saved(tmp_path: Path) -> None:
    X, y = crowd()
    with pytest.raises(DataError, match="a GuidedClassifier with Parrot cannot be saved without pickle"):
        ds.GuidedClassifier(ds.FMM(K), Parrot()).fit(shares(y), y).save(tmp_path / "guided")
    with pytest.raises(DataError, match="a GuidedClassifier with Reader cannot be saved without pickle"):
        ds.GuidedClassifier(Reader(2), ds.text.SoftmaxRegression(0.1)).fit(X, y).save(tmp_path / "guided")
    with pytest.raises(NotFittedError):
        ds.GuidedClassifier().save(tmp_path / "guided")


def test_a_frozen_guide_is_not_fitted_again() -> None:
    X, y = crowd()
    guide = ds.PGM(K, 2).fit(y)
    frozen = ds.GuidedClassifier(
        FrozenEstimator(guide), ds.text.SoftmaxRegression(0.1), project="soft", prior_worth=4.0
    )
    assert frozen.fit(X, y).guide_ is guide
    anew = ds.GuidedClassifier(
        ds.PGM(K, 2), ds.text.SoftmaxRegression(0.1), project="soft", prior_worth=4.0
    ).fit(X, y)
    np.testing.assert_array_equal(frozen.label_distributions(X), anew.label_distributions(X))
    part = clone(frozen).fit(X[:30], y[:30])
    np.testing.assert_allclose(part.refined_, guide.label_distributions_[:30], rtol=1e-9)
    other = ds.Annotations.from_arrays(["a", "b"], ["n", "n"], ["no", "yes"])
    with pytest.raises(DataError, match=r"\Athe frozen guide and y have different classes"):
        clone(frozen).fit(X[:2], other)


def test_rows_of_a_data_frame() -> None:
    X, y = crowd()
    frame = pd.DataFrame(X, columns=list("abcd"), index=range(100, 100 + M))
    guided = ds.GuidedClassifier(ds.FMM(K), LogisticRegression(), project="hard")
    of_frame = clone(guided).fit(frame, unlabelled(y, 7)).label_distributions(frame)
    np.testing.assert_array_equal(of_frame, clone(guided).fit(X, unlabelled(y, 7)).label_distributions(X))


# ---- among scikit-learn's tools ---------------------------------------------------------------------------


def test_cross_val_score_is_the_hand_loop() -> None:
    X, y = crowd()
    workflow = make_pipeline(
        StandardScaler(),
        ds.GuidedClassifier(ds.FMM(K), ds.text.SoftmaxRegression(0.01), project="soft", prior_worth=8.0),
    )
    by_hand = []
    for train, test in StratifiedKFold(3).split(X, y.classes[y.counts.argmax(axis=1)]):
        mean, sd = X[train].mean(axis=0), X[train].std(axis=0)
        guided = clone(workflow[-1]).fit((X[train] - mean) / sd, y[train])
        predicted = guided.label_distributions((X[test] - mean) / sd) + 1e-5
        gold = shares(y[test]) + 1e-5
        by_hand.append(-np.mean(np.sum(gold * np.log(gold / predicted), axis=1)))
    np.testing.assert_allclose(cross_val_score(workflow, X, y, cv=3), by_hand, rtol=1e-6)


@pytest.mark.slow
def test_grid_search_picks_by_kl_and_reaches_into_guide_and_learner() -> None:
    X, y = crowd()
    guided = ds.GuidedClassifier(ds.FMM(), ds.text.SoftmaxRegression())
    grid = {"guide__n_item_clusters": [1, K], "learner__l2": [1e-2, 10.0], "refine": ["soft", "hard"]}
    search = GridSearchCV(guided, grid, cv=3).fit(X, y)
    by_hand = {}
    for n, prior_worth, refine in product(*grid.values()):
        cell = ds.GuidedClassifier(ds.FMM(n), ds.text.SoftmaxRegression(prior_worth), refine=refine)
        scores = [clone(cell).fit(X[a], y[a]).score(X[b], y[b]) for a, b in StratifiedKFold(3).split(X, y)]
        by_hand[n, prior_worth, refine] = np.mean(scores)
    best = max(by_hand, key=lambda cell: by_hand[cell])
    assert search.best_params_ == dict(zip(grid, best, strict=True))
    assert search.best_score_ == pytest.approx(by_hand[best], rel=1e-9)
    assert best[:2] == (K, 1e-2)
    assert search.best_estimator_.guide_.theta_.shape == (K, P)
    assert set(search.predict(X)) <= set(y.classes)
    assert guided.guide.n_item_clusters == 10


def test_the_score_leaves_items_without_labels_out() -> None:
    X, y = crowd()
    fitted = ds.GuidedClassifier(None, ds.text.SoftmaxRegression(0.1), refine="none").fit(X, y)
    gaps = unlabelled(y, 0, 5)
    others = np.setdiff1d(np.arange(M), [0, 5])
    assert fitted.score(X, gaps) == fitted.score(X[others], y[others])
    # classes in another order are told apart by name
    turned = ds.Annotations.from_arrays(
        y.items[y.item], y.annotators[y.annotator], y.classes[y.label], classes=y.classes[::-1].tolist()
    )
    assert turned.items.tolist() == y.items.tolist()
    assert fitted.score(X, turned) == pytest.approx(fitted.score(X, y), rel=1e-12)


# ---- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"refine": "medium"},
            r"'refine' parameter of GuidedClassifier must be one of 'none', 'hard', 'soft'",
        ),
        ({"project": True}, r"'project' parameter of GuidedClassifier must be one of 'none', 'hard', 'soft'"),
        ({"annotator_sum": "both"}, r"'annotator_sum' .* must be one of 'inside', 'outside'"),
        ({"prior_worth": 0.0}, r"'prior_worth' parameter of GuidedClassifier must be a float > 0 or None"),
        ({"seed": -1}, r"'seed' parameter"),
        ({"guide": None, "project": "hard"}, r"DirichletRegression has no item clusters to project on"),
        (
            {"guide": ds.FMM},
            r"'guide' parameter of GuidedClassifier must be a model of this library, or None",
        ),
        ({"guide": LogisticRegression()}, r"'guide' parameter of GuidedClassifier must be a model"),
        ({"guide": BaggingClassifier()}, r"'guide' parameter of GuidedClassifier must be a model"),
        ({"guide": ds.MajorityVote(), "project": "hard"}, r"MajorityVote has no item clusters to project on"),
        ({"learner": KNeighborsClassifier()}, r"'learner' .* whose fit takes sample_weight. Got KNeigh"),
        ({"learner": Perceptron()}, r"'learner' .* with predict_proba .* Got Perceptron"),
        ({"learner": make_pipeline(StandardScaler(), KNeighborsClassifier())}, r"'learner' parameter of Gui"),
        (
            {"learner": ds.text.SoftmaxRegression},
            r"'learner' parameter of GuidedClassifier must be a learner on",
        ),
        ({"learner": "softmax"}, r"'learner' parameter of GuidedClassifier must be a learner on"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], words: str) -> None:
    X, y = crowd(10)
    with pytest.raises(ParameterError, match=words) as caught:
        ds.GuidedClassifier(**({"guide": ds.FMM(2)} | settings)).fit(X, y)
    assert "\n" not in str(caught.value).partition(" Got ")[0]


def test_data_that_cannot_be() -> None:
    X, y = crowd(10)
    guided = ds.GuidedClassifier(ds.FMM(2), ds.text.SoftmaxRegression(0.1), project="soft")
    with pytest.raises(
        DataError, match=r"\AX has 9 rows and y 10 items; give one row per item, in the order of"
    ):
        guided.fit(X[:9], y)
    with pytest.raises(DataError, match=r"\Ay is a ndarray of shape \(10, 3\); give Annotations"):
        guided.fit(X, y.counts)
    with pytest.raises(DataError, match=r"\AX: one row per item is needed, features or texts; got str\Z"):
        guided.fit("a text", y)
    with pytest.raises(DataError, match=r"\AX: one row per item is needed, features or texts; got float\Z"):
        guided.fit(3.0, y)
    with pytest.raises(DataError, match=r"\Adev must be a pair \(X, y\); got ndarray\Z"):
        guided.fit(X, y, dev=X)
    with pytest.raises(DataError, match=r"\Adev X has 2 rows and dev y 3 items"):
        guided.fit(X[:7], y[:7], dev=(X[7:9], y[7:]))
    with pytest.raises(DataError, match=r"\Adev y has no label to compare with"):
        guided.fit(X[:9], y[:9], dev=(X[9:], unlabelled(y, 9)[9:]))
    with pytest.raises(DataError, match=r"\Ay has no label to learn from"):
        ds.GuidedClassifier(None, refine="none").fit(X, unlabelled(y, *range(10)))
    with pytest.raises(DataError, match=r"\Aone labelled item leaves none to choose on; give prior_worth="):
        guided.fit(X, unlabelled(y, *range(1, 10)))
    guided.fit(X, y)
    with pytest.raises(DataError, match=r"\Ay has no label to compare with"):
        guided.score(X, unlabelled(y, *range(10)))
    with pytest.raises(DataError, match="X has 3 features and this was fitted on 4"):
        guided.predict(X[:, :3])
    stranger = ds.Annotations.from_arrays(["i"], ["n"], ["another class"])
    with pytest.raises(DataError, match="class 'another class' was not there"):
        guided.score(X[:1], stranger)


def test_a_fit_that_fails_leaves_the_last_one() -> None:
    X, y = crowd(20)
    guided = ds.GuidedClassifier(ds.FMM(2), ds.text.SoftmaxRegression(0.1)).fit(X, y)
    before = guided.label_distributions(X)
    broken = X.copy()
    broken[4, 2] = np.nan
    with pytest.raises(DataError, match="row 4 has NaN"):
        guided.fit(broken, y)
    np.testing.assert_array_equal(guided.label_distributions(X), before)


def test_nothing_is_known_before_the_fit() -> None:
    guided = ds.GuidedClassifier(ds.FMM(2))
    for ask in (guided.predict, guided.predict_proba, guided.label_distributions, guided.cluster_posteriors):
        with pytest.raises(
            NotFittedError, match=r"\Athis GuidedClassifier is not fitted yet; call fit first\Z"
        ):
            ask(np.zeros((1, 2)))
    assert not hasattr(guided, "classes_")


def test_scikit_learn_is_loaded_by_the_fit_alone() -> None:
    code = (
        "import dissensus.text.guided.classifier, sys; sys.exit(len({'sklearn', 'torch'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
