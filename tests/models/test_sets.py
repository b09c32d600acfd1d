"""Label sets: readers, distances against nltk, and the pooled model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import beta as beta_function

import dissensus as ds
from dissensus.labels.kinds import membership, set_distances
from dissensus.models.sets import PRIOR_SIZES, best_prior_size, best_weights
from tests.helpers.cli import run

ROWS = [("i1", "ann", ["a", "b"]), ("i1", "bob", ["b", "a"]), ("i1", "cid", ["a"])]
ROWS += [("i2", "ann", ["c"]), ("i2", "bob", []), ("i2", "cid", ["c", "a"])]
TEXTS = ['["a", "b"]', '["a", "b"]', '["a"]', '["c"]', "[]", '["a", "c"]']


def sets_in(labels: Any) -> list[str]:
    return [str(labels.classes[p]) for p in labels.label]


def test_sets_are_read_from_every_format(tmp_path: Path) -> None:
    frame = pd.DataFrame(ROWS, columns=["item", "annotator", "label"])
    lines = "\n".join(json.dumps(dict(zip(frame.columns, row, strict=True))) for row in ROWS)
    (tmp_path / "s.jsonl").write_text(lines)
    frame.to_parquet(tmp_path / "s.parquet")
    for source in (tmp_path / "s.jsonl", tmp_path / "s.parquet", frame):
        labels = ds.read_annotations(source)
        assert labels.label_type == "multi"
        assert sets_in(labels) == TEXTS
    joined = frame.assign(label=["|".join(row[2]) or "-" for row in ROWS])
    joined.to_csv(tmp_path / "s.csv", index=False)
    read = ds.read_annotations(tmp_path / "s.csv", separator="|")
    assert sets_in(read)[:4] == TEXTS[:4]
    assert ds.read_annotations(tmp_path / "s.csv").label_type == "nominal"


def test_repeated_pairs_are_sets_only_on_request() -> None:
    rows = [(item, who, name) for item, who, names in ROWS for name in names]
    frame = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    assert ds.read_annotations(frame).label_type == "nominal"
    assert ds.read_annotations(frame).n_labels == len(rows)
    as_sets = ds.read_annotations(frame, label_type="multi")
    assert sets_in(as_sets) == [text for text in TEXTS if text != "[]"]


def test_exports_with_multiple_choices_are_sets(tmp_path: Path) -> None:
    choices = [["a", "b"], ["b"]]
    results = [{"from_name": "q", "type": "choices", "value": {"choices": names}} for names in choices]
    by_annotator = [{"completed_by": n, "result": [result]} for n, result in enumerate(results)]
    task = {"id": 1, "data": {"text": "x"}, "annotations": by_annotator}
    (tmp_path / "ls.json").write_text(json.dumps([task]))
    answers = [{"value": names, "user_id": f"u{n}", "status": "submitted"} for n, names in enumerate(choices)]
    record = {"id": "1", "fields": {"text": "x"}, "responses": {"q": answers}}
    (tmp_path / "argilla.jsonl").write_text(json.dumps(record))
    values = [{"values": {"q": {"value": answer.pop("value")}}, **answer} for answer in answers]
    record = {"external_id": "1", "fields": {"text": "x"}, "responses": values}
    (tmp_path / "argilla1.jsonl").write_text(json.dumps(record))
    for name in ("ls.json", "argilla.jsonl", "argilla1.jsonl"):
        labels = ds.read_annotations(tmp_path / name, label_type="multi")
        assert sets_in(labels) == ['["a", "b"]', '["b"]']


def test_distances_and_alpha_match_nltk() -> None:
    metrics = pytest.importorskip("nltk.metrics")
    agreement = pytest.importorskip("nltk.metrics.agreement")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        [
            (f"i{m}", f"r{n}", sorted(rng.choice(list("abcd"), rng.integers(1, 4), replace=False)))
            for m in range(25)
            for n in range(3)
        ],
        columns=["item", "annotator", "label"],
    )
    labels = ds.read_annotations(frame)
    table, names = membership(labels.class_vocabulary)
    sets = [frozenset(np.array(names)[row]) for row in table]
    for level, distance in (("jaccard", metrics.jaccard_distance), ("masi", metrics.masi_distance)):
        expected = [[distance(a, b) for b in sets] for a in sets]
        distances = set_distances(labels.class_vocabulary, level)
        np.testing.assert_allclose(distances, expected, atol=0.01)  # nltk rounds thirds to 0.67 and 0.33
    data = [(row.annotator, row.item, frozenset(row.label)) for row in frame.itertuples()]
    jaccard = agreement.AnnotationTask(data, distance=metrics.jaccard_distance).alpha()
    assert ds.agreement(labels, "alpha", weights="jaccard")["alpha"].value == pytest.approx(jaccard, abs=1e-9)
    masi = agreement.AnnotationTask(data, distance=metrics.masi_distance).alpha()
    assert ds.agreement(labels, "alpha")["alpha"].value == pytest.approx(masi, abs=0.01)
    assert ds.describe(labels).level == "masi"


def test_best_prior_size_by_enumeration() -> None:
    inside, n, mean = np.array([3, 0, 5]), np.array([5, 4, 5]), 0.4
    a, b = PRIOR_SIZES * mean, PRIOR_SIZES * (1 - mean)
    ratios = [beta_function(a + k, b + m - k) / beta_function(a, b) for k, m in zip(inside, n, strict=True)]
    logs = np.log(ratios).sum(axis=0)
    assert best_prior_size(inside, n, mean) == pytest.approx(PRIOR_SIZES[int(np.argmax(logs))])


def test_independent_classes_by_hand() -> None:
    frame = pd.DataFrame(
        [(0, 0, ["a"]), (0, 1, ["a", "b"]), (1, 0, ["b"]), (1, 1, [])], columns=["item", "annotator", "label"]
    )
    labels = ds.read_annotations(frame)  # every subset of {a, b} occurs
    model = ds.LabelSets(dependence=False).fit(labels)
    np.testing.assert_allclose(model.label_distributions_.sum(axis=1), 1, rtol=1e-9)
    s = model.prior_sizes_
    np.testing.assert_allclose(model.class_shares_[0], (np.array([2, 1]) + s / 2) / (2 + s))


def exclusive(seed: int = 0) -> pd.DataFrame:
    """Return sets in which a and b never occur together, and c always with a."""
    rng = np.random.default_rng(seed)
    share = rng.beta(1, 1, 80)
    rows = [(m, n, ["a", "c"] if rng.random() < share[m] else ["b"]) for m in range(80) for n in range(5)]
    return pd.DataFrame(rows, columns=["item", "annotator", "label"])


def test_dependence_is_learned_where_present() -> None:
    visible, hidden = ds.read_annotations(exclusive()).split_labels(0.2, 0)
    pooled, independent = ds.LabelSets(4).fit(visible), ds.LabelSets(dependence=False).fit(visible)
    assert pooled.pool_[0] > 0.8
    assert pooled.score(hidden) > independent.score(hidden) + 0.1
    rng = np.random.default_rng(1)
    rows = [(m, n, [c for c in "ab" if rng.random() < 0.5]) for m in range(80) for n in range(5)]
    free = ds.read_annotations(pd.DataFrame(rows, columns=["item", "annotator", "label"]))
    visible, hidden = free.split_labels(0.2, 0)
    scores = [ds.LabelSets(4, dependence=d).fit(visible).score(hidden) for d in (True, False)]
    assert abs(scores[0] - scores[1]) < 0.05


def test_fit_command_and_report(tmp_path: Path) -> None:
    frame = exclusive()
    frame.assign(label=frame["label"].map("|".join)).to_csv(tmp_path / "s.csv", index=False)
    run("import", tmp_path / "s.csv", "--separator", "|", "-o", tmp_path / "sets.csv")
    run("fit", tmp_path / "sets.csv", "-o", tmp_path / "out")
    written = pd.read_csv(tmp_path / "out" / "labels.csv")
    assert set(written["label"]) == {'["a", "c"]', '["b"]'}
    np.testing.assert_allclose(written["p_a"], written["p_c"], atol=0.05)
    assert "complete sets" in (tmp_path / "out" / "report.html").read_text().casefold()
    model = ds.load(tmp_path / "out" / "model.safetensors")
    assert model.label_type_ == "multi"


def test_best_weights_maximise_over_a_grid() -> None:
    probabilities = np.random.default_rng(0).random((3, 200))
    steps = np.linspace(0.01, 0.98, 98)
    grid = [np.array([a, b, 1 - a - b]) for a in steps for b in steps if a + b < 0.995]
    for prior in (np.zeros(3), np.array([40.0, 0, 0])):
        scores = [np.log(w @ probabilities).sum() + prior @ np.log(w) for w in grid]
        best = grid[int(np.argmax(scores))]
        np.testing.assert_allclose(best_weights(probabilities, prior), best, rtol=0, atol=0.015)
