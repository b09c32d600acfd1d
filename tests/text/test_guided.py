"""GuidedClassifier: by hand, against scikit-learn and SciPy, and with every guide and kind of learner."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import dissensus as ds
from dissensus.errors import DataError, NotFittedError, ParameterError
from dissensus.metrics import kl
from dissensus.models import model_class
from dissensus.models.base import Model
from dissensus.models.results import ClusterView
from dissensus.tables.arrays import read_arrays
from dissensus.text.guided.classifier import PRIOR_STRENGTHS, ItemClusters, Projection
from dissensus.text.learners.base import Learner, hold_out
from tests.helpers.registry import OF_CLASSES

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
    "hpgm": ds.HPGM(K, 2, n_chains=1, n_sweeps=20),
    "ldlnm": ds.LDLNM(4, 2, latent_size=4, n_networks=1, epochs=3),
}
LEARNERS: dict[str, Any] = {
    "softmax": ds.text.SoftmaxRegression(0.01),
    "scikit-learn": LogisticRegression(max_iter=500),
    "ldlnm": ds.LDLNM(4, 2, latent_size=4, n_networks=1, epochs=3),
}
# other registered models with their default settings
TYPES = {type(guide) for guide in GUIDES.values()}
GUIDES |= {name: model_class(name)() for name in OF_CLASSES if model_class(name) not in TYPES}


# every guide with one learner, and every learner with guides of each kind
PAIRS = [(guide, "softmax") for guide in GUIDES]
PAIRS += product(("empirical", "fmm", "pgm-bp", "dawid-skene"), ("scikit-learn", "ldlnm"))


def crowd(n: int = M, per_item: int = 4, seed: int = 0) -> tuple[Any, ds.Annotations]:
    """Features that depend on the item cluster, and simulated labels."""
    drawn = ds.simulate(
        n, N, P, n_item_clusters=K, n_annotator_clusters=2, labels_per_item=per_item, alpha=0.3, seed=seed
    )
    centres = np.random.default_rng(7).normal(size=(K, 4))
    noise = np.random.default_rng(seed).normal(size=(n, 4))
    return centres[drawn.item_cluster] + 0.2 * noise, drawn.annotations


def texts_of(X: Any) -> list[str]:
    """Texts with a word for every positive feature."""
    words = np.array(["red", "green", "blue", "grey"])
    return [" ".join(["some", *words[row > 0]]) for row in X]


def shares(y: ds.Annotations) -> Any:
    return y.counts / y.counts.sum(axis=1, keepdims=True)


def unlabelled(y: ds.Annotations, *items: int) -> ds.Annotations:
    """Remove the labels of some items."""
    return y.take_rows(~np.isin(y.item, items))


class EchoLearner(Learner):
    """A learner that predicts X itself and stores the arguments of ``fit``."""

    def _inputs(self, X: Any) -> Any:
        return np.asarray(X, dtype=np.float64)

    def _fit(self, X: Any, targets: Any, dev: Any) -> None:
        self.arguments_ = X, targets, dev

    def _predict(self, X: Any) -> Any:
        return X


class FixedGuide(Model):
    """A guide with fixed clusters: π, ψ and Θ of the case worked by hand below."""

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


# ---- contract ---------------------------------------------------------------------------------------------


@pytest.mark.no_cover
@pytest.mark.parametrize(("guide", "learner"), PAIRS)
def test_every_guide_with_every_kind_of_learner(guide: str, learner: str, tmp_path: Path) -> None:
    X, y = crowd()
    has_clusters = not {"theta_", "confusion_"}.isdisjoint(type(GUIDES[guide])._arrays)
    project = "soft" if has_clusters else "none"
    guided = ds.GuidedClassifier(GUIDES[guide], LEARNERS[learner], project=project)
    first = clone(guided).fit(X[:40], y[:40], dev=(X[40:50], y[40:50]))
    predicted = first.label_distributions(X[50:])
    assert predicted.shape == (10, P)
    assert predicted.min() >= 0
    np.testing.assert_allclose(predicted.sum(axis=1), 1.0, rtol=1e-12)
    assert predicted.tobytes() == first.predict_proba(X[50:]).tobytes()
    assert first.predict(X[50:]).tolist() == y.classes[predicted.argmax(axis=1)].tolist()
    assert first.refined_.shape == (40, P)
    np.testing.assert_allclose(first.refined_.sum(axis=1), 1.0, rtol=1e-9)
    assert not guided.guide.__sklearn_is_fitted__()
    assert not hasattr(guided.learner, "n_classes_")
    check_saving(first, X, tmp_path / "guided.safetensors")


def check_saving(fitted: ds.GuidedClassifier, X: Any, path: Path) -> None:
    """Check that a loaded classifier predicts the same."""
    if isinstance(fitted.learner_, LogisticRegression):
        with pytest.raises(DataError, match=r"with LogisticRegression cannot be saved without pickle; use a"):
            fitted.save(path)
        assert not path.exists()
        return
    fitted.save(path)
    loaded = ds.load(path)
    assert loaded.label_distributions(X).tobytes() == fitted.label_distributions(X).tobytes()
    assert repr(loaded) == repr(fitted)
    assert loaded.n_features_in_ == fitted.n_features_in_ == 4
    for name in ("refined_", "prior_strength_", "prior_strength_tried_", "path_kl_", "classes_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(fitted, name))


# ---- projection -------------------------------------------------------------------------------------------

# Two item clusters, two annotator clusters with π = (3/4, 1/4):
#   Y'_1 = 3/4 (0.9, 0.1) + 1/4 (0.5, 0.5) = (0.8, 0.2)
#   Y'_2 = 3/4 (0.2, 0.8) + 1/4 (0.4, 0.6) = (1/4, 3/4)
# A prediction h = (1/2, 1/2) worth S = 2 labels is one label of each class, exp(S Σ h log θ) = θ_1 θ_2:
#   inside   0.6 · 0.8 · 0.2 = 0.096                         0.4 · 1/4 · 3/4 = 0.075
#   outside  0.6 (3/4 · 0.09 + 1/4 · 0.25) = 0.078           0.4 (3/4 · 0.16 + 1/4 · 0.24) = 0.072
BY_HAND = {"inside": 0.096 / (0.096 + 0.075), "outside": 0.078 / (0.078 + 0.072)}
OF_CLUSTERS = np.array([[0.8, 0.2], [0.25, 0.75]])


@pytest.mark.parametrize("annotator_sum", ["inside", "outside"])
def test_projection_by_hand(annotator_sum: str) -> None:
    h = np.full((4, 2), 0.5)
    settings = {"annotator_sum": annotator_sum, "prior_strength": 2.0}
    soft = ds.GuidedClassifier(FixedGuide(), EchoLearner(), project="soft", **settings).fit(h, TWO_CLASSES)
    hard = ds.GuidedClassifier(FixedGuide(), EchoLearner(), project="hard", **settings).fit(h, TWO_CLASSES)
    first = BY_HAND[annotator_sum]
    expected = first * OF_CLUSTERS[0] + (1 - first) * OF_CLUSTERS[1]
    np.testing.assert_allclose(soft.label_distributions(h[:1]), [expected], rtol=1e-12)
    np.testing.assert_allclose(hard.label_distributions(h[:1]), OF_CLUSTERS[:1], rtol=1e-12)
    assert soft.prior_strength_ == 2.0


def test_projection_limits_and_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    guide = FixedGuide().fit(TWO_CLASSES)
    clusters = ItemClusters.of(guide, TWO_CLASSES.annotator_load)
    assert clusters is not None
    h = np.random.default_rng(0).dirichlet(np.ones(2), size=50)
    weak = Projection(clusters, "soft", "inside", 1e-9).posteriors(h)
    np.testing.assert_allclose(weak, np.tile(guide.psi_, (50, 1)), rtol=1e-6)
    # arg min_k KL(h ‖ Y'_k), whatever ψ is
    divergences = (h[:, None] * np.log(h[:, None] / OF_CLUSTERS)).sum(axis=2)
    nearest = OF_CLUSTERS[divergences.argmin(axis=1)]
    for mode in ("hard", "soft"):
        np.testing.assert_allclose(Projection(clusters, mode, "inside", 1e7)(h), nearest, rtol=1e-9)
    at_once = Projection(clusters, "soft", "outside", 3.0)(h)
    monkeypatch.setattr("dissensus.text.guided.classifier.PROJECTION_CELLS_PER_CHUNK", 8)
    np.testing.assert_allclose(Projection(clusters, "soft", "outside", 3.0)(h), at_once, rtol=1e-14)


def test_projection_with_zero_probabilities() -> None:
    one_sided = ItemClusters(np.ones((1, 2)), np.array([1.0, 0.0]), np.eye(2)[:, None], np.ones(1), np.eye(2))
    for annotator_sum in ("inside", "outside"):
        got = Projection(one_sided, "soft", annotator_sum, 256.0)(np.array([[0.5, 0.5], [0.0, 1.0]]))
        np.testing.assert_array_equal(got, [[1.0, 0.0], [1.0, 0.0]])  # the second cluster has no share


@pytest.mark.parametrize("weight_by", ["labels", "annotators"])
def test_annotators_of_confusion_models_are_clusters(weight_by: str) -> None:
    _, y = crowd()
    guide = ds.DawidSkene(weight_by=weight_by).fit(y)
    clusters = ItemClusters.of(guide, y.annotator_load)
    assert clusters is not None
    weights = y.annotator_load if weight_by == "labels" else np.ones(N)
    by_hand = np.zeros((1, P))
    h = np.array([[0.2, 0.5, 0.3]])
    for k, n in product(range(P), range(N)):
        chance = np.exp(4 * sum(h[0, p] * np.log(guide.confusion_[n, k, p]) for p in range(P)))
        by_hand[0, k] += guide.psi_[k] * weights[n] * chance
    posterior = Projection(clusters, "soft", "outside", 4.0).posteriors(h)
    np.testing.assert_allclose(posterior, by_hand / by_hand.sum(), rtol=1e-9)
    mixed = np.einsum("l,klp->kp", clusters.weights, clusters.theta)
    np.testing.assert_allclose(clusters.population, mixed, rtol=1e-9)


# ---- refinement -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignment", ["soft", "hard"])
def test_refined_distributions_by_hand(assignment: str) -> None:
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


def test_items_without_labels() -> None:
    X, y = crowd()
    gaps = unlabelled(y, 3, 10)
    raw = ds.GuidedClassifier(None, EchoLearner(), refine="none").fit(shares(y), gaps)
    others = np.setdiff1d(np.arange(M), [3, 10])
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(raw.refined_).all(axis=1)), [3, 10])
    np.testing.assert_array_equal(raw.learner_.arguments_[0], shares(y)[others])
    np.testing.assert_array_equal(raw.learner_.arguments_[1], shares(y)[others])
    known = ds.FMM(K).fit(gaps)
    guided = ds.GuidedClassifier(ds.FMM(K), ds.text.SoftmaxRegression(0.1)).fit(X, gaps)
    np.testing.assert_allclose(guided.refined_[[3, 10]], [known.psi_ @ known.theta_] * 2, rtol=1e-12)


# ---- learners ---------------------------------------------------------------------------------------------


def test_weighted_rows_reach_the_optimum() -> None:
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


def test_class_absent_from_training_has_probability_zero() -> None:
    X, y = crowd()
    middle_gone = y.take_rows(y.label != 1)
    labelled = np.flatnonzero(middle_gone.counts.any(axis=1))
    raw = ds.GuidedClassifier(None, LogisticRegression(), refine="none").fit(X, middle_gone)
    predicted = raw.predict_proba(X)
    np.testing.assert_array_equal(predicted[:, 1], 0.0)
    np.testing.assert_allclose(predicted.sum(axis=1), 1.0, rtol=1e-12)
    direct = LogisticRegression()
    targets = shares(middle_gone[labelled])
    item, label = np.nonzero(targets)
    direct.fit(X[labelled][item], label, sample_weight=targets[item, label])
    np.testing.assert_allclose(predicted[:, [0, 2]], direct.predict_proba(X), rtol=1e-12)
    assert np.isfinite(raw.score(X, y))


def test_ldlnm_learns_the_refined_distributions() -> None:
    X, y = crowd()
    guided = ds.GuidedClassifier(GUIDES["fmm"], LEARNERS["ldlnm"]).fit(X[:50], y[:50], dev=(X[50:], y[50:]))
    refined = clone(GUIDES["fmm"]).fit(y[:50]).label_distributions_
    dev = X[50:], shares(y[50:])
    direct = clone(LEARNERS["ldlnm"]).fit(y[:50], X[:50], dev=dev, item_distributions=refined)
    np.testing.assert_array_equal(guided.label_distributions(X), direct.label_distributions(X))
    raw = ds.GuidedClassifier(None, LEARNERS["ldlnm"], refine="none").fit(X[:50], y[:50])
    plain = clone(LEARNERS["ldlnm"]).fit(y[:50], X[:50])
    np.testing.assert_array_equal(raw.label_distributions(X), plain.label_distributions(X))


def test_dev_targets_are_raw_label_shares() -> None:
    _, y = crowd()
    d = shares(y)
    dev = d[40:], unlabelled(y, 45)[40:]
    guided = ds.GuidedClassifier(ds.FMM(K), EchoLearner()).fit(d[:40], y[:40], dev=dev)
    labelled = d[np.setdiff1d(np.arange(40, M), [45])]
    for array in guided.learner_.arguments_[2]:
        np.testing.assert_array_equal(array, labelled)


def test_texts_are_embedded_unless_a_pipeline_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    features, y = crowd()
    texts = texts_of(features)
    row_of = {text: row for row, text in enumerate(texts)}

    def embed(texts: Any, model: Any = None) -> Any:
        return features[[row_of[text] for text in texts]].astype(np.float32)

    monkeypatch.setattr("dissensus.text.embedding.embed", embed)
    vectors = embed(texts)
    for learner in (LogisticRegression(), ds.text.SoftmaxRegression(0.1)):
        from_texts = ds.GuidedClassifier(ds.FMM(K), learner).fit(texts, y).label_distributions(texts)
        from_vectors = ds.GuidedClassifier(ds.FMM(K), learner).fit(vectors, y).label_distributions(vectors)
        np.testing.assert_allclose(from_texts, from_vectors, rtol=1e-5)
    words = make_pipeline(TfidfVectorizer(), LogisticRegression())
    fitted = ds.GuidedClassifier(ds.FMM(K), words, project="soft").fit(texts, y)
    vocabulary = fitted.learner_.named_steps["tfidfvectorizer"].vocabulary_
    assert set(vocabulary) == {"some", "red", "green", "blue", "grey"}


def test_sparse_features() -> None:
    features, y = crowd()
    X = TfidfVectorizer().fit_transform(texts_of(features))
    assert sparse.issparse(X)
    guided = ds.GuidedClassifier(ds.FMM(K), LogisticRegression(tol=1e-8), project="soft")
    from_sparse = clone(guided).fit(X, unlabelled(y, 2)).label_distributions(X)
    from_dense = clone(guided).fit(X.toarray(), unlabelled(y, 2)).label_distributions(X.toarray())
    np.testing.assert_allclose(from_sparse, from_dense, rtol=1e-5)


# ---- prior strength -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("project", "annotator_sum"), [("soft", "outside"), ("hard", "inside")])
def test_prior_strength_is_the_best_on_dev(annotator_sum: str, project: str) -> None:
    X, y = crowd()
    dev = X[40:], y[40:]
    settings = {"project": project, "annotator_sum": annotator_sum}
    guide = FrozenEstimator(clone(GUIDES["pgm-bp"]).fit(y[:40]))
    guided = ds.GuidedClassifier(guide, ds.text.SoftmaxRegression(0.01), **settings)
    chosen = clone(guided).fit(X[:40], y[:40], dev=dev)
    cells = [clone(guided).set_params(prior_strength=S) for S in PRIOR_STRENGTHS.tolist()]
    reached = [-cell.fit(X[:40], y[:40]).score(*dev) for cell in cells]
    np.testing.assert_allclose(chosen.path_kl_, reached, rtol=1e-9)
    assert chosen.prior_strength_ == PRIOR_STRENGTHS[int(np.argmin(reached))]
    assert len(set(np.round(reached, 6))) > 1


def test_prior_strength_without_dev() -> None:
    X, y = crowd()
    y = unlabelled(y, 0)
    guided = ds.GuidedClassifier(ds.FMM(K), ds.text.SoftmaxRegression(0.01), project="soft", seed=4)
    chosen = clone(guided).fit(X, y)
    test = 1 + hold_out(M - 1, 4)[1]  # among the labelled items, 1 … M − 1
    train = np.setdiff1d(np.arange(M), test)
    rehearsal = clone(guided).fit(X[train], y[train], dev=(X[test], y[test]))
    assert chosen.prior_strength_ == rehearsal.prior_strength_
    np.testing.assert_array_equal(chosen.path_kl_, rehearsal.path_kl_)
    assert chosen.refined_.shape == (M, P)
    np.testing.assert_array_equal(chosen.learner_.coef_.shape, (4, P))


# ---- saving and frozen guides-----------------------------------------------------------------------------


def test_frozen_guide_is_not_fitted_again(tmp_path: Path) -> None:
    X, y = crowd()
    guide, settings = ds.PGM(K, 2).fit(y), {"project": "soft", "prior_strength": 4.0}
    frozen = ds.GuidedClassifier(FrozenEstimator(guide), ds.text.SoftmaxRegression(0.1), **settings)
    assert frozen.fit(X, y).guide_ is guide
    frozen.save(tmp_path / "guided")  # the guide is saved once
    assert not any(name.startswith("guide_/") for name in read_arrays(tmp_path / "guided")[1])
    anew = ds.GuidedClassifier(ds.PGM(K, 2), ds.text.SoftmaxRegression(0.1), **settings).fit(X, y)
    np.testing.assert_array_equal(frozen.label_distributions(X), anew.label_distributions(X))
    part = clone(frozen).fit(X[:30], y[:30])
    np.testing.assert_allclose(part.refined_, guide.label_distributions_[:30], rtol=1e-9)
    other = ds.Annotations.from_arrays(["a", "b"], ["n", "n"], ["no", "yes"])
    with pytest.raises(DataError, match=r"\Athe frozen guide and y have different classes"):
        clone(frozen).fit(X[:2], other)


# ---- scikit-learn's tools ---------------------------------------------------------------------------------


def test_cross_val_score_by_hand() -> None:
    X, y = crowd()
    settings = {"project": "soft", "prior_strength": 8.0}
    guided = ds.GuidedClassifier(ds.FMM(K), ds.text.SoftmaxRegression(0.01), **settings)
    workflow = make_pipeline(StandardScaler(), guided)
    by_hand = []
    for train, test in StratifiedKFold(3).split(X, y.classes[y.counts.argmax(axis=1)]):
        mean, sd = X[train].mean(axis=0), X[train].std(axis=0)
        guided = clone(workflow[-1]).fit((X[train] - mean) / sd, y[train])
        predicted = guided.label_distributions((X[test] - mean) / sd) + 1e-5
        gold = shares(y[test]) + 1e-5
        by_hand.append(-np.mean(np.sum(gold * np.log(gold / predicted), axis=1)))
    np.testing.assert_allclose(cross_val_score(workflow, X, y, cv=3), by_hand, rtol=1e-6)


def test_score_skips_items_without_labels() -> None:
    X, y = crowd()
    fitted = ds.GuidedClassifier(None, ds.text.SoftmaxRegression(0.1), refine="none").fit(X, y)
    gaps = unlabelled(y, 0, 5)
    others = np.setdiff1d(np.arange(M), [0, 5])
    assert fitted.score(X, gaps) == fitted.score(X[others], y[others])
    # classes in another order are matched by name
    turned = ds.Annotations.from_arrays(*y.to_frame().to_numpy().T, classes=y.classes[::-1].tolist())
    assert turned.items.tolist() == y.items.tolist()
    assert fitted.score(X, turned) == pytest.approx(fitted.score(X, y), rel=1e-12)


# ---- errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"refine": "medium"}, "'refine' parameter of .* must be one of 'none', 'hard', 'soft'"),
        ({"prior_strength": 0.0}, "'prior_strength' parameter of .* must be a float > 0 or None"),
        ({"guide": None, "project": "hard"}, "DirichletRegression has no item clusters to project on"),
        ({"guide": LogisticRegression()}, "'guide' parameter of GuidedClassifier must be a model"),
        ({"learner": KNeighborsClassifier()}, "'learner' .* whose fit takes sample_weight. Got KNeigh"),
        ({"learner": Perceptron()}, "'learner' .* with predict_proba .* Got Perceptron"),
        ({"learner": make_pipeline(StandardScaler(), KNeighborsClassifier())}, "'learner' parameter of Gui"),
        ({"learner": ds.text.SoftmaxRegression}, "'learner' parameter of GuidedClassifier must be a learner"),
    ],
)
def test_invalid_settings(settings: dict[str, Any], message: str) -> None:
    X, y = crowd(10)
    with pytest.raises(ParameterError, match=message):
        ds.GuidedClassifier(**({"guide": ds.FMM(2)} | settings)).fit(X, y)


def test_invalid_data() -> None:
    X, y = crowd(10)
    no_labels = unlabelled(y, *range(10))
    guided = ds.GuidedClassifier(ds.FMM(2), ds.text.SoftmaxRegression(0.1), project="soft")
    for arguments, message in (
        ((X[:9], y), "X has 9 rows and y 10 items; pass one row per item, in the order of"),
        ((X, y.counts), r"y is a ndarray of shape \(10, 3\); pass Annotations"),
        (("a text", y), "X must have one row of features, or one text, per item; got str"),
        ((X, y, X), r"dev must be a pair \(X, y\); got ndarray"),
        ((X[:9], y[:9], (X[9:], no_labels[9:])), "dev y has no labels to compare with"),
        ((X, unlabelled(y, *range(1, 10))), "one labelled item is not enough to choose prior_strength"),
    ):
        with pytest.raises(DataError, match=rf"\A{message}"):
            guided.fit(*arguments)
    unguided = ds.GuidedClassifier(None, refine="none")
    with pytest.raises(DataError, match="y has no labels to learn from"):
        unguided.fit(X, no_labels)
    with pytest.raises(NotFittedError, match="this GuidedClassifier is not fitted yet; call fit first"):
        guided.predict(X)
    guided.fit(X, y)
    with pytest.raises(DataError, match="y has no labels to compare with"):
        guided.score(X, no_labels)
    with pytest.raises(DataError, match="another class"):
        guided.score(X[:1], ds.Annotations.from_arrays(["i"], ["n"], ["another class"]))


@pytest.mark.parametrize("refine", ["soft", "hard"])
def test_guide_without_clusters_refines_by_its_estimates(refine: str) -> None:
    X, y = crowd()
    fitted = ds.GuidedClassifier(ds.EmpiricalDistribution(0.5), ds.text.SoftmaxRegression(0.1), refine=refine)
    np.testing.assert_allclose(fitted.fit(X, y).refined_, (y.counts + 0.5) / (4 + 0.5 * P), rtol=1e-12)


@pytest.mark.slow
def test_loaded_classifier_predicts_and_fits_the_same(tmp_path: Path) -> None:
    X, y = crowd()
    settings = {"project": "soft", "refine": "hard", "annotator_sum": "outside", "seed": 3}
    for guide in (ds.PGM(K, 2, seed=1), FrozenEstimator(ds.PGM(K, 2).fit(y))):
        fitted = ds.GuidedClassifier(guide, ds.text.SoftmaxRegression(0.1), **settings).fit(X[:40], y[:40])
        before = fitted.label_distributions(X)
        # a setting changed after fit has no effect on predictions
        fitted.set_params(annotator_sum="inside").save(tmp_path / "guided")
        loaded = ds.load(tmp_path / "guided")
        np.testing.assert_array_equal(loaded.label_distributions(X), before)
        assert loaded.annotator_sum == "inside"
        again = loaded.fit(X[20:], y[20:]).label_distributions(X)
        np.testing.assert_array_equal(again, fitted.fit(X[20:], y[20:]).label_distributions(X))


@pytest.mark.slow
def test_grid_search_over_guide_and_learner() -> None:
    X, y = crowd()
    guided = ds.GuidedClassifier(ds.FMM(), ds.text.SoftmaxRegression())
    grid = {"guide__n_item_clusters": [1, K], "learner__l2": [1e-2, 10.0], "refine": ["soft", "hard"]}
    search = GridSearchCV(guided, grid, cv=3).fit(X, y)
    by_hand = {}
    for n, l2, refine in product(*grid.values()):
        cell = ds.GuidedClassifier(ds.FMM(n), ds.text.SoftmaxRegression(l2), refine=refine)
        scores = [clone(cell).fit(X[a], y[a]).score(X[b], y[b]) for a, b in StratifiedKFold(3).split(X, y)]
        by_hand[n, l2, refine] = np.mean(scores)
    best = max(by_hand, key=lambda cell: by_hand[cell])
    assert search.best_params_ == dict(zip(grid, best, strict=True))
    assert search.best_score_ == pytest.approx(by_hand[best], rel=1e-9)
    assert best[:2] == (K, 1e-2)
    assert guided.guide.n_item_clusters == 10


def test_refined_labels_are_closer_to_the_population() -> None:
    drawn = ds.simulate(400, 40, P, n_item_clusters=K, labels_per_item=3, alpha=0.3, load="even", seed=2)
    X, y = np.zeros((400, 1)), drawn.annotations

    def distance(guide: Any, refine: str) -> float:
        fitted = ds.GuidedClassifier(guide, ds.text.SoftmaxRegression(1.0), refine=refine).fit(X, y)
        return kl(drawn.population, fitted.refined_)

    raw = distance(None, "none")
    assert distance(ds.FMM(K, n_restarts=3), "soft") < raw / 3
    assert distance(ds.PGM(K, 3, n_restarts=3), "soft") < raw / 3
    assert distance(ds.FMM(1), "soft") > distance(ds.FMM(K, n_restarts=3), "soft")
