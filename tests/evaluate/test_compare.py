"""Model comparison by held-out labels."""

import math

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError, DissensusWarning
from dissensus.evaluate.compare import Gap, HeldOut, compare, counts_ahead, held_out_scores, with_gaps
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import with_features
from dissensus.labels.simulation import simulate
from dissensus.models import build_model, name_of, title_of
from dissensus.models.counting import EmpiricalDistribution
from dissensus.workflow.refine import default_model
from tests.helpers.sizes import usually

pytestmark = pytest.mark.no_cover


def two_kinds_of_items() -> Annotations:
    """Return items labelled a or b with equal probability, and as many labelled c or d."""
    rng = np.random.default_rng(0)
    item = np.repeat(np.arange(200), 6)
    annotator = np.tile(np.arange(6), 200)
    label = np.array(["a", "b", "c", "d"], dtype=object)[2 * (item >= 100) + rng.integers(2, size=len(item))]
    return Annotations.from_arrays(item, annotator, label)


def test_scores_by_hand() -> None:
    labels = simulate(30, 10, 3, seed=1).annotations
    train, hidden = labels.split_labels(0.2, seed=5)
    expected = 0.0
    for m, y in zip(hidden.item, hidden.label, strict=True):
        labels_ = [int(c) for i, c in zip(train.item, train.label, strict=True) if i == m]
        expected += math.log((labels_.count(int(y)) + 1) / (len(labels_) + 3)) / hidden.n_labels
    (row,) = held_out_scores(labels, [EmpiricalDistribution(smoothing=1.0)], seed=5)
    assert row.score == pytest.approx(expected, rel=1e-12)
    assert row.score_items == pytest.approx(expected, rel=1e-12)
    assert row.n_hidden == hidden.n_labels


def test_mixture_wins_for_two_kinds_of_items() -> None:
    # Two kinds of items with two equally likely labels each: the entropy given the kind is log 2. Five labels
    # of an item are too few to estimate its distribution, so the mixture predicts hidden labels better.
    mixtures = [("empirical", {}), ("fmm", {"n_item_clusters": 8}), ("fmm", {"n_item_clusters": 2})]
    table = compare(two_kinds_of_items(), seed=0, candidates=mixtures).table
    assert name_of(table[0].model) == "fmm"
    assert table[0].score_items == pytest.approx(-math.log(2), rel=0.05)


def test_best_comes_first() -> None:
    """Rows are sorted by the score given the item; differences are to the best of each score."""
    comparison = compare(two_kinds_of_items(), candidates=[("empirical", {}), ("fmm", {}), ("majority", {})])
    scores = [row.score_items for row in comparison.table]
    assert scores == sorted(scores, reverse=True)
    rows = comparison.rows()
    assert [row["given_item"] for row in rows] == scores
    assert rows[0]["difference"] == rows[0]["error"] == 0
    for row in rows[1:]:
        assert row["difference"] == pytest.approx(scores[0] - row["given_item"])
    assert [row["model"] for row in rows] == [title_of(row.model) for row in comparison.table]
    assert list(comparison.to_frame().columns) == list(rows[0])
    assert repr(comparison) == f"Comparison(3 models, best {rows[0]['model']})"
    again = compare(two_kinds_of_items(), candidates=[("majority", {}), ("fmm", {}), ("empirical", {})])
    assert [{**row, "seconds": 0} for row in again.rows()] == [{**row, "seconds": 0} for row in rows]


def test_too_little_memory() -> None:
    labels = simulate(60, 12, 3, labels_per_item=4, seed=1).annotations
    line = r"^\w+ on \d+ labels needs at least 250\.\d+MB of memory, and the limit is (9\.\d+|10)MB; "
    with ds.resources(memory="10MB"), pytest.raises(DataError, match=line):
        compare(labels)


@pytest.mark.slow
def test_candidates_with_features() -> None:
    labels = simulate(40, 12, 3).annotations
    features = np.random.default_rng(0).normal(size=(40, 4))
    short = [("hpgm", {"n_sweeps": 10, "n_chains": 1}), ("hpgm", {"n_sweeps": 10, "use_features": True})]
    assert len(compare(labels, candidates=short).table) == 1
    assert len(compare(with_features(labels, features), candidates=short).table) == 2


def test_candidates_that_do_not_fit_the_labels_are_skipped() -> None:
    labels = simulate(12, 12, 3, labels_per_item=10).annotations
    mixtures = [("fmm", {"n_item_clusters": 16}), ("fmm", {"n_item_clusters": 8}), ("empirical", {})]
    table = compare(labels, candidates=mixtures).table
    assert {getattr(row.model, "n_item_clusters", 0) for row in table} == {0, 8}
    # the sizes of HPGM are upper bounds, so it is always applicable
    assert compare(labels, candidates=[("hpgm", {"n_sweeps": 10, "n_chains": 1})]).table
    table = compare(Annotations.from_counts([[3, 1], [2, 2], [0, 4]] * 10)).table
    assert table
    assert not any(row.model._needs_annotators for row in table)


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [False, True])
def test_candidates_by_type(ordered: bool) -> None:
    labels = simulate(30, 12, 3).annotations.with_label_type("ordinal" if ordered else "nominal")
    names = {name_of(row.model) for row in compare(labels, n_jobs=1).table}
    # 30 items have not enough labels for PGM's 12 × 8 clusters
    expected = {"pool", "hpgm", "latent", "dawid-skene", "fmm", "empirical"}
    assert names == expected | ({"graded"} if ordered else set())


def test_too_few_labels_to_compare() -> None:
    # 97 pairs hide 19, one less than a comparison needs
    with pytest.raises(DataError, match="97 labels are too few to compare models; at least 100 are needed"):
        compare(Annotations.from_counts([[97, 0]]))
    assert compare(Annotations.from_counts([[98, 0]])).table != []
    assert counts_ahead(Annotations.from_counts([[97, 97]])) is None


def test_one_annotator_per_item() -> None:
    labels = simulate(200, 20, 3, labels_per_item=1).annotations
    # repeated labels of one annotator do not help
    again = Annotations.from_arrays(*(np.tile(codes, 2) for codes in labels.columns))
    for cannot in (labels, again):
        with pytest.raises(DataError, match="no item has labels by two annotators, so models cannot be"):
            compare(cannot)


# ---- the guard ----------------------------------------------------------------------------------------


def without_structure(seed: int) -> Annotations:
    """Return labels of 95 classes: each item has shares of its own, and who answers does not matter."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(95, 0.1), size=1000).cumsum(axis=1)
    item = np.repeat(np.arange(1000), 10)
    annotator = (np.arange(10) * 50 + rng.integers(50, size=(1000, 10))).ravel()
    label = (shares[item] < rng.random((len(item), 1))).sum(axis=1)
    return Annotations.from_arrays(item, annotator, np.minimum(label, 94))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(usually(2, verify=10)))
def test_counts_are_ahead_without_structure(seed: int) -> None:
    labels = without_structure(seed)
    ahead = counts_ahead(labels, seed)
    assert ahead is not None
    assert ahead.mean > 2 * ahead.error > 0


@pytest.mark.slow
def test_fit_uses_counts_that_are_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dissensus.evaluate.compare.counts_ahead", lambda *_: Gap(0.123, 0.01))
    labels = simulate(30, 12, 3).annotations
    with pytest.warns(DissensusWarning, match="smoothed counts predict hidden labels better"):
        run = ds.fit(labels)
    assert isinstance(run.model, EmpiricalDistribution)
    assert run.reason == "smoothed counts predict hidden labels better (0.123 ± 0.010 nats)"
    with pytest.warns(DissensusWarning, match="fitted instead of the default, without n_item_clusters="):
        ds.fit(labels, settings={"n_item_clusters": 4})
    # not where a population is asked for, which counts do not know
    model, reason = default_model(labels, {"represent": {"group": "a"}}, 0, 1)
    assert (name_of(model), reason) == ("pool", "")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_counts_are_not_ahead_of_structure(seed: int) -> None:
    assert counts_ahead(simulate(150, 30, 4, labels_per_item=5, seed=seed).annotations, seed) is None


def test_gaps_by_hand() -> None:
    """Compute the differences of two items with two hidden labels each by hand."""
    items = np.array([0, 0, 1, 1], np.int32)
    logs = np.array([[-1.0, -1.0, -1.0, -1.0], [-1.1, -1.2, -1.3, -1.4], [-1.0, -1.2, -0.9, -1.1]])
    rows = [
        HeldOut(build_model(name, {}), log_p.mean(), log_p.mean(), 4, 0.0, np.stack([log_p, log_p]), items)
        for name, log_p in zip(("hpgm", "fmm", "pgm"), logs, strict=True)
    ]
    best, second, tied = with_gaps(rows)
    assert best.behind_items == (0.0, 0.0)
    # behind by .1 .2 .3 .4, mean .25; by item −.2 and +.2 from it: √(.04 + .04) / 4
    assert second.behind_items == pytest.approx((0.25, math.sqrt(0.08) / 4))
    # by 0, .2, −.1, .1, mean .05; by item +.1 and −.1: √(.01 + .01) / 4, and .05 is less than two of these
    assert tied.behind_items == pytest.approx((0.05, math.sqrt(0.02) / 4))
    assert [row.as_row()["behind_items_tied"] for row in (best, second, tied)] == [True, False, True]
    assert [str(row.behind_items) for row in (best, tied)] == ["best", "0.0500 ± 0.0354, tied"]


def test_many_labels_are_subsampled_by_item(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dissensus.evaluate.compare.MAX_COMPARED_LABELS", 250)
    labels = simulate(100, 20, 3, labels_per_item=5).annotations
    table = compare(labels, candidates=[("empirical", {})]).table
    # 50 items have 250 labels, of which a fifth is hidden
    assert table[0].n_hidden == 50


def test_title_of_a_model() -> None:
    sizes = {"n_item_clusters": 6, "n_annotator_clusters": 4}
    assert title_of(build_model("empirical", {"smoothing": 0.5})) == "empirical smoothing=0.5"
    assert title_of(build_model("fmm", {})) == "fmm 10"
    assert title_of(build_model("pgm", {**sizes, "seed": 3})) == "pgm 6×4"
    assert title_of(build_model("pgm", {**sizes, "inference": "vb"})) == "pgm 6×4 inference=vb"
