"""``describe``: by hand, and for real data sets against the documentation of their folder."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dissensus as ds
from dissensus.errors import DissensusWarning
from dissensus.labels.agreement import reading
from dissensus.labels.annotations import Annotations
from dissensus.labels.description import Spread
from tests.helpers.data import find_data

# q1: x x y, q2: x, q3: y y, not connected; (q1, ann) has two different labels, (q3, dan) two equal ones
ROWS = [("q1", "ann", "x"), ("q1", "ann", "y"), ("q1", "bob", "x")]
ROWS += [("q2", "bob", "x"), ("q3", "dan", "y"), ("q3", "dan", "y")]


def build(**settings: Any) -> Annotations:
    return Annotations.from_arrays(*zip(*ROWS, strict=True), **settings)


def test_all_figures_by_hand() -> None:
    summary = ds.describe(build())
    assert (summary.n_items, summary.n_annotators, summary.n_labels, summary.n_classes) == (3, 3, 6, 2)
    assert summary.labels_per_item == Spread(mean=2.0, min=1, median=2.0, max=3)
    assert summary.labels_per_annotator == Spread(mean=2.0, min=2, median=2.0, max=2)
    assert summary.class_counts == {"x": 3, "y": 3}
    # H(q1) = −(2/3) ln (2/3) − (1/3) ln (1/3), H(q2) = H(q3) = 0
    entropy = -(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3)
    np.testing.assert_allclose(summary.mean_entropy, entropy / 3, rtol=1e-12)
    assert (summary.n_repeated_pairs, summary.n_differing_pairs) == (2, 1)
    assert (summary.n_parts, summary.largest_part_items) == (2, 2)
    assert (summary.n_unlabelled_items, summary.n_gold, summary.majority_accuracy) == (0, None, None)


def test_accuracy_counts_ties_in_part() -> None:
    rows = [*ROWS, ("q2", "cat", "y")]
    labels = Annotations.from_arrays(*zip(*rows, strict=True))
    items = pa.table({"item": ["q1", "q2", "q3", "q4"]})
    gold = pa.table({"item": ["q1", "q2", "q3", "q4"], "label": ["y", "x", "y", "x"]})
    summary = ds.describe(labels.with_tables(items=items, gold=gold))
    # q1: majority x against y, q2: x and y tie, q3: y; q4 has no label
    assert (summary.n_unlabelled_items, summary.n_gold) == (1, 3)
    np.testing.assert_allclose(summary.majority_accuracy or 0, (0 + 0.5 + 1) / 3, rtol=1e-12)
    unlabelled = ds.describe(labels.with_tables(items=items, gold=gold.slice(3)))
    assert (unlabelled.n_gold, unlabelled.majority_accuracy) == (0, None)


def test_counts_and_empty_annotations() -> None:
    summary = ds.describe(Annotations.from_counts([[2, 1], [0, 0]], classes=["x", "y"]))
    assert (summary.n_annotators, summary.labels_per_annotator, summary.n_parts) == (None, None, None)
    assert (summary.n_repeated_pairs, summary.n_unlabelled_items) == (0, 1)
    assert "not named" in summary.as_text()
    summary = ds.describe(build().take_rows(np.zeros(6, dtype=bool)))
    assert (summary.n_labels, summary.mean_entropy, summary.n_parts) == (0, 0.0, 0)
    assert summary.n_unlabelled_items == 3
    assert summary.as_text()


def test_lookalike_ids_are_noted() -> None:
    frame = pa.table({"item": ["a", "A", "b"], "annotator": ["ann", "ann", "bob"], "label": [*"yny"]})
    with pytest.warns(DissensusWarning, match="2 items differ from another only by white space or case"):
        labels = ds.read_annotations(frame)
    assert "(such as 'A' and 'a')" in ds.describe(labels).as_text()


def test_classes_are_stripped() -> None:
    spaced = Annotations.from_arrays(["a", "b"], ["x", "y"], ["no", " no "], classes=["no ", "yes"])
    assert spaced.classes.tolist() == ["no", "yes"]
    assert spaced.label.tolist() == [0, 0]


def test_text_and_json() -> None:
    summary = ds.describe(build(notes=["mind the gap"]))
    lines = summary.as_text().splitlines()
    names = ["agreement", "unanimous", "labels per item", "self-consistency", "disconnected parts"]
    assert [line.split("  ")[0] for line in lines[:5]] == names
    assert "median 2, 1 to 3, mean 2.00" in lines[2]
    assert {"items                 3", "  x   50.0%  3", "note: mind the gap"} <= set(lines)
    plain = json.loads(json.dumps(summary.to_dict()))
    assert plain["labels_per_item"] == {"mean": 2.0, "min": 1, "median": 2.0, "max": 3}
    assert plain["notes"][0] == "mind the gap"
    text = ds.describe(Annotations.from_counts(np.arange(1, 31).reshape(1, 30))).as_text()
    assert "  … and 10 more" in text


# ---- the real datasets --------------------------------------------------------------------------------


def documented() -> dict[str, list[str]]:
    """Return the cells of the first table of the data folder's README, by data set."""
    folder = find_data()
    if folder is None:
        return {}
    lines = (folder / "README.md").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("| name | what | items |"))
    rows = [line for line in lines[start + 2 :] if line.startswith("|")]
    end = next(i for i, row in enumerate(rows) if row.startswith("| name |"))
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows[:end]]
    return {row[0]: row for row in cells}


DOCUMENTED = documented()


def file_of(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / f"{name}.csv", folder / f"{name}.csv.gz") if path.exists()), None)


@pytest.mark.data
@pytest.mark.parametrize("name", sorted(DOCUMENTED) or ["(no data)"])
def test_data_sets_match_their_documentation(name: str, data_dir: Path) -> None:
    folder = data_dir / name
    source = file_of(folder, "annotations")
    assert source is not None
    summary = ds.describe(ds.read_annotations(source, gold=file_of(folder, "gold")))
    _, _, items, annotators, labels, classes, per_item, _, gold, repeats = DOCUMENTED[name]
    sizes = [summary.n_items, summary.n_annotators, summary.n_labels]
    assert sizes == [int(items), int(annotators), int(labels)]
    # the folder does not count classes that occur only in gold
    assert sum(count > 0 for count in summary.class_counts.values()) == int(classes)
    mean, least, most = re.fullmatch(r"([\d.]+) \((\d+)-(\d+)\)", per_item).groups()  # type: ignore[union-attr]
    np.testing.assert_allclose(summary.labels_per_item.mean, float(mean), rtol=0, atol=0.051)
    assert (summary.labels_per_item.min, summary.labels_per_item.max) == (int(least), int(most))
    assert summary.n_gold == (None if gold == "-" else int(gold))
    n_repeated, n_differing = re.fullmatch(r"(\d+)(?: \((\d+)\))?", repeats).groups()  # type: ignore[union-attr]
    assert (summary.n_repeated_pairs, summary.n_differing_pairs) == (int(n_repeated), int(n_differing or 0))


@pytest.mark.data
@pytest.mark.parametrize(("name", "accuracy"), [("bluebirds", 0.759), ("labelme", 0.766), ("rte", 0.897)])
def test_published_majority_vote_accuracy(name: str, accuracy: float, data_dir: Path) -> None:
    folder = data_dir / name
    labels = ds.read_annotations(folder / "annotations.csv", gold=folder / "gold.csv")
    np.testing.assert_allclose(ds.describe(labels).majority_accuracy or 0, accuracy, rtol=0, atol=0.0006)


def test_chunk_size_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    item, annotator, label = (rng.integers(n, size=120) for n in (60, 50, 3))
    whole = ds.describe(Annotations.from_arrays(item, annotator, label))
    monkeypatch.setattr("dissensus.labels.annotations.LABELS_PER_CHUNK", 4)
    annotations = Annotations.from_arrays(item, annotator, label)
    assert len(list(annotations.chunks())) > 10
    assert ds.describe(annotations) == whole
    assert annotations.n_pairs == len(set(zip(item.tolist(), annotator.tolist(), strict=True)))
    by_hand = np.zeros((len(annotations.items), 3), int)
    np.add.at(by_hand, (np.searchsorted(annotations.items, item), label), 1)
    np.testing.assert_array_equal(annotations.counts, by_hand)


# ---- agreement ----------------------------------------------------------------------------------------


def test_pair_agreement_by_hand() -> None:
    summary = ds.describe(build())
    # q1: ann x, ann y, bob x. Two annotators: (x, x), (y, x); one annotator twice: (x, y), and dan's (y, y)
    assert summary.pairwise_agreement == pytest.approx(1 / 2)
    assert summary.self_consistency == pytest.approx(1 / 2)
    assert summary.unanimous == pytest.approx(1 / 2)  # q3 of q1 and q3; q2 has one label
    text = "50.0% of repeated labels are equal (2 item–annotator pairs, 1 with differing labels)"
    assert text in summary.as_text()
    # two annotators disagree; each repeats their label three times
    rows = [("q", name, label) for name, label in (("ann", "x"), ("bob", "y")) for _ in range(3)]
    summary = ds.describe(Annotations.from_arrays(*zip(*rows, strict=True)))
    assert (summary.pairwise_agreement, summary.self_consistency) == (0.0, 1.0)


def test_no_labels_to_compare() -> None:
    summary = ds.describe(Annotations.from_arrays(["a", "b"], ["x", "y"], ["yes", "no"]))
    assert (summary.unanimous, summary.pairwise_agreement, summary.self_consistency) == (None, None, None)
    assert math.isnan(summary.alpha)
    assert "cannot be computed" in summary.as_text()
    assert "no item has labels by two annotators" in summary.as_text()


@pytest.mark.parametrize("kind", ["nominal", "ordinal", "numeric"])
def test_alpha_interval_matches_the_bootstrap(kind: Any) -> None:
    crowd = ds.simulate(300, 30, 4, labels_per_item=5, seed=2).annotations
    ids = crowd.items[crowd.item], crowd.annotators[crowd.annotator], crowd.label.astype(str)
    labels = Annotations.from_arrays(*ids, label_type=kind)
    alpha = ds.agreement(labels, "alpha")["alpha"]
    rng = np.random.default_rng(1)
    rows = [np.flatnonzero(labels.item == m) for m in range(300)]
    weights = {"nominal": "identity", "ordinal": "ordinal", "numeric": "quadratic"}[kind]
    drawn = []
    for _ in range(150):
        chosen = rng.integers(300, size=300)
        item = np.repeat(np.arange(300), [len(rows[m]) for m in chosen])
        label = labels.label[np.concatenate([rows[m] for m in chosen])]
        annotator = np.arange(len(item))
        sample = Annotations.from_arrays(item, annotator, label, classes=range(4), label_type="ordinal")
        drawn.append(ds.agreement(sample, "alpha", weights=weights)["alpha"].value)
    assert alpha.low < alpha.value < alpha.high
    assert (alpha.high - alpha.low) / 2 == pytest.approx(1.96 * np.std(drawn), rel=0.25)


def test_notes_on_repeated_rows_and_gold() -> None:
    item, who = ["i1", "i1", "i1", "i2", "i2", "i2"], ["a", "a", "b", "a", "a", "a"]
    labels = ds.Annotations.from_arrays(item, who, ["x", "x", "x", "y", "y", "x"])
    copies, *others = ds.describe(labels).notes
    assert copies.startswith(
        "2 rows have the same item, annotator and label as another row; every row counts;"
    )
    assert "duplicates='first'" in copies
    assert not others
    alone = ds.Annotations.from_arrays(["i1", "i1", "i2"], ["a", "a", "b"], ["x", "x", "y"])
    (note,) = ds.describe(alone).notes
    assert "hpgm counts them once, as no item has two annotators" in note
    once = ds.Annotations.from_arrays(item[1:4], who[1:4], ["x", "x", "y"])
    assert ds.describe(once).notes == ()
    with_gold = once.with_tables(gold={"item": ["i1", "i2"], "gold": ["y", "y"]})
    (note,) = ds.describe(with_gold).notes
    assert note.startswith("1 item has a gold label that no annotator gave it, such as 'y' for item 'i1';")


def test_reading_of_alpha() -> None:
    words = {0.85: "is high", 0.7: "tentative", 0.3: "is low", 0.1: "is slight", 0.0: "not clearly above"}
    for alpha, text in (words | {-0.01: "below chance", math.nan: "cannot"}).items():
        assert text in reading(alpha)
    # the words follow the interval
    assert reading(0.05, -0.02, 0.12) == "agreement is not clearly above chance"
    assert reading(-0.05, -0.09, -0.01) == "agreement is below chance"
    assert reading(0.65, 0.6, 0.7) == (
        "agreement beyond chance is between low and enough for tentative conclusions"
    )
    assert reading(0.85, 0.81, 0.9) == "agreement beyond chance is high"


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "labels", "classes", "low", "high"),
    [("jq1", 20125, 5, 0.746, 0.747), ("jq2", 20125, 5, 0.586, 0.587), ("jq3", 21092, 12, 0.9925, 0.9935)],
)
def test_entropies_of_the_paper(
    name: str, labels: int, classes: int, low: float, high: float, data_dir: Path
) -> None:
    summary = ds.describe(ds.read_annotations(data_dir / name / "annotations.csv"))
    sizes = summary.n_items, summary.n_annotators, summary.n_labels, summary.n_classes
    assert sizes == (2000, 1185, labels, classes)
    assert low <= summary.mean_entropy <= high
