"""What ``describe`` counts: by hand, and for every real dataset against the table its folder documents."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dissensus as ds
from conftest import find_data
from dissensus.labels.agreement import agreement, item_groups, jackknife_interval, krippendorff_alpha, reading
from dissensus.labels.annotations import Annotations
from dissensus.labels.description import Spread

# q1: x x y, q2: x, q3: y y by another crowd; (q1, ann) has two differing labels, (q3, dan) two alike
ROWS = [
    ("q1", "ann", "x"),
    ("q1", "ann", "y"),
    ("q1", "bob", "x"),
    ("q2", "bob", "x"),
    ("q3", "dan", "y"),
    ("q3", "dan", "y"),
]


def build(**settings: Any) -> Annotations:
    return Annotations.from_arrays(*zip(*ROWS, strict=True), **settings)


def test_everything_by_hand() -> None:
    found = ds.describe(build())
    assert (found.n_items, found.n_annotators, found.n_labels, found.n_classes) == (3, 3, 6, 2)
    assert found.labels_per_item == Spread(mean=2.0, min=1, median=2.0, max=3)
    assert found.labels_per_annotator == Spread(mean=2.0, min=2, median=2.0, max=2)
    assert found.class_counts == {"x": 3, "y": 3}
    # H(q1) = −(2/3) ln (2/3) − (1/3) ln (1/3), H(q2) = H(q3) = 0
    entropy = -(2 / 3) * math.log(2 / 3) - (1 / 3) * math.log(1 / 3)
    np.testing.assert_allclose(found.mean_entropy, entropy / 3, rtol=1e-12)
    assert (found.n_repeated_pairs, found.n_differing_pairs) == (2, 1)
    assert (found.n_parts, found.largest_part_items) == (2, 2)
    assert (found.n_unlabelled_items, found.n_gold, found.majority_accuracy) == (0, None, None)


def test_gold_counts_ties_in_part_and_unlabelled_items_not_at_all() -> None:
    rows = [*ROWS, ("q2", "cat", "y")]
    labels = Annotations.from_arrays(*zip(*rows, strict=True))
    items = pa.table({"item": ["q1", "q2", "q3", "q4"]})
    gold = pa.table({"item": ["q1", "q2", "q3", "q4"], "label": ["y", "x", "y", "x"]})
    found = ds.describe(labels.with_tables(items=items, gold=gold))
    # q1: majority x against y, q2: x and y tie, q3: y; q4 has no label
    assert (found.n_unlabelled_items, found.n_gold) == (1, 3)
    np.testing.assert_allclose(found.majority_accuracy or 0, (0 + 0.5 + 1) / 3, rtol=1e-12)
    nobody = ds.describe(labels.with_tables(items=items, gold=gold.slice(3)))
    assert (nobody.n_gold, nobody.majority_accuracy) == (0, None)


def test_counts_name_no_annotators() -> None:
    found = ds.describe(Annotations.from_counts([[2, 1], [0, 0]], classes=["x", "y"]))
    assert (found.n_annotators, found.labels_per_annotator, found.n_parts) == (None, None, None)
    assert (found.n_repeated_pairs, found.n_unlabelled_items) == (0, 1)
    assert "annotators" in found.as_text()
    assert "not named" in found.as_text()


def test_no_labels_at_all() -> None:
    found = ds.describe(build().take_rows(np.zeros(6, dtype=bool)))
    assert (found.n_labels, found.mean_entropy, found.n_parts) == (0, 0.0, 0)
    assert found.n_unlabelled_items == 3
    assert found.as_text()


def test_ids_that_look_alike_are_listed() -> None:
    rows = [("a", "ann", "yes"), ("A ", "ann", "no"), ("b", "bob", "Yes")]
    found = ds.describe(Annotations.from_arrays(*zip(*rows, strict=True)))
    assert found.lookalikes == {"items": [["A ", "a"]], "labels": [["Yes", "yes"]], "annotators": []}
    assert "'A ' and 'a' differ only by white space or case" in found.as_text()
    spaced = Annotations.from_arrays(["a", "b"], ["x", "y"], ["no", " no "], classes=["no ", "yes"])
    assert spaced.classes.tolist() == ["no", "yes"]
    assert spaced.label.tolist() == [0, 0]


def test_the_text_is_aligned_and_the_dictionary_is_json() -> None:
    found = ds.describe(build(notes=["mind the gap"]))
    lines = found.as_text().splitlines()
    assert "items                 3" in lines
    assert "labels                6" in lines
    assert "  x   50.0%  3" in lines
    assert "note: mind the gap" in lines
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["labels_per_item"] == {"mean": 2.0, "min": 1, "median": 2.0, "max": 3}
    assert plain["class_counts"] == {"x": 3, "y": 3}
    assert plain["notes"][0] == "mind the gap"


def test_many_classes_are_cut_in_the_text() -> None:
    counts = np.arange(1, 31).reshape(1, 30)
    text = ds.describe(Annotations.from_counts(counts)).as_text()
    assert "  … and 10 more" in text


# ---- the real datasets --------------------------------------------------------------------------------


def documented() -> dict[str, list[str]]:
    """The first table of the data folder's README: dataset -> its cells."""
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
def test_a_dataset_is_as_its_folder_documents(name: str, data_dir: Path) -> None:
    folder = data_dir / name
    source = file_of(folder, "annotations")
    assert source is not None
    found = ds.describe(ds.read_annotations(source, gold=file_of(folder, "gold")))
    _, _, items, annotators, labels, classes, per_item, _, gold, repeats = DOCUMENTED[name]
    assert [found.n_items, found.n_annotators, found.n_labels] == [int(items), int(annotators), int(labels)]
    # A gold label that no annotator gave is a class too; the folder counts those that annotators gave.
    assert sum(count > 0 for count in found.class_counts.values()) == int(classes)
    mean, least, most = re.fullmatch(r"([\d.]+) \((\d+)-(\d+)\)", per_item).groups()  # type: ignore[union-attr]
    np.testing.assert_allclose(found.labels_per_item.mean, float(mean), rtol=0, atol=0.051)
    assert (found.labels_per_item.min, found.labels_per_item.max) == (int(least), int(most))
    assert found.n_gold == (None if gold == "-" else int(gold))
    n_repeated, n_differing = re.fullmatch(r"(\d+)(?: \((\d+)\))?", repeats).groups()  # type: ignore[union-attr]
    assert (found.n_repeated_pairs, found.n_differing_pairs) == (int(n_repeated), int(n_differing or 0))


@pytest.mark.data
def test_every_dataset_of_the_folder_is_documented(data_dir: Path) -> None:
    folders = {path.name for path in data_dir.iterdir() if path.is_dir()}
    assert folders == set(DOCUMENTED)
    assert len(folders) == 34


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "labels", "classes", "low", "high"),
    [("jq1", 20125, 5, 0.746, 0.747), ("jq2", 20125, 5, 0.586, 0.587), ("jq3", 21092, 12, 0.9925, 0.9935)],
)
def test_the_papers_entropies(
    name: str, labels: int, classes: int, low: float, high: float, data_dir: Path
) -> None:
    found = ds.describe(ds.read_annotations(data_dir / name / "annotations.csv"))
    assert (found.n_items, found.n_annotators) == (2000, 1185)
    assert (found.n_labels, found.n_classes) == (labels, classes)
    assert low <= found.mean_entropy <= high


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "accuracy"),
    [
        ("bluebirds", 0.759),
        ("labelme", 0.766),
        ("face_sentiment", 0.637),
        ("snow_wsd", 0.994),
        ("rte", 0.897),
    ],
)
def test_majority_vote_as_published(name: str, accuracy: float, data_dir: Path) -> None:
    folder = data_dir / name
    labels = ds.read_annotations(folder / "annotations.csv", gold=folder / "gold.csv")
    np.testing.assert_allclose(ds.describe(labels).majority_accuracy or 0, accuracy, rtol=0, atol=0.0006)


@pytest.mark.data
def test_items_bring_texts_and_splits(data_dir: Path) -> None:
    folder = data_dir / "jq1"
    labels = ds.read_annotations(folder / "annotations.csv", items=folder / "items.csv")
    parts = labels.split_items()
    assert {name: part.n_items for name, part in parts.items()} == {"train": 1000, "dev": 500, "test": 500}
    assert all(isinstance(text, str) for text in labels.item_column("text"))


@pytest.mark.data
def test_gold_without_labels_is_not_lost_in_silence(data_dir: Path) -> None:
    folder = data_dir / "labelme"
    gold = folder / "gold.csv"
    bare = ds.read_annotations(folder / "annotations.csv", gold=gold)
    assert bare.notes == ("1,688 gold labels are for items that are not in the data and are left out",)
    full = ds.read_annotations(folder / "annotations.csv", gold=gold, items=folder / "items.csv.gz")
    assert full.notes == ("1,688 items of the item table have no label",)
    assert full.gold is not None
    assert (full.gold >= 0).sum() == 2688


@pytest.mark.data
def test_disconnected_blocks_are_found(data_dir: Path) -> None:
    """The folder documents 50 blocks that nothing links."""
    assert ds.describe(ds.read_annotations(data_dir / "gwsd" / "annotations.csv")).n_parts == 50


def test_counts_do_not_depend_on_how_many_labels_are_counted_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(3)
    item, annotator, label = (rng.integers(n, size=120) for n in (60, 50, 3))
    whole = ds.describe(Annotations.from_arrays(item, annotator, label))
    monkeypatch.setattr("dissensus.labels.annotations.PIECE", 4)
    annotations = Annotations.from_arrays(item, annotator, label)
    assert len(list(annotations.pieces())) > 10
    assert ds.describe(annotations) == whole
    assert annotations.n_pairs == len(set(zip(item.tolist(), annotator.tolist(), strict=True)))
    by_hand = np.zeros((len(annotations.items), 3), int)
    np.add.at(by_hand, (np.searchsorted(annotations.items, item), label), 1)
    np.testing.assert_array_equal(annotations.counts, by_hand)


# ---- agreement ----------------------------------------------------------------------------------------


def test_pairs_of_labels_by_hand() -> None:
    found = ds.describe(build())
    # q1: ann x, ann y, bob x. Two annotators: (x, x), (y, x); one annotator twice: (x, y), and dan's (y, y)
    assert found.pairwise_agreement == pytest.approx(1 / 2)
    assert found.self_consistency == pytest.approx(1 / 2)
    assert found.unanimous == pytest.approx(1 / 2)  # q3 of q1 and q3; q2 has one label
    assert (
        "50.0% of repeated labels are alike (2 item–annotator pairs, 1 with differing labels)"
        in found.as_text()
    )


def test_labels_of_one_annotator_are_not_two_annotators_agreeing() -> None:
    # Two annotators disagree; each says the same three times.
    rows = [("q", who, label) for who, label in (("ann", "x"), ("bob", "y")) for _ in range(3)]
    found = ds.describe(Annotations.from_arrays(*zip(*rows, strict=True)))
    assert (found.pairwise_agreement, found.self_consistency) == (0.0, 1.0)


def test_nothing_to_compare_is_said() -> None:
    found = ds.describe(Annotations.from_arrays(["a", "b"], ["x", "y"], ["yes", "no"]))
    assert (found.unanimous, found.pairwise_agreement, found.self_consistency) == (None, None, None)
    assert math.isnan(found.alpha)
    assert "cannot be computed" in found.as_text()
    assert "no item has labels by two annotators" in found.as_text()


def test_what_people_ask_first_stands_first() -> None:
    lines = ds.describe(build()).as_text().splitlines()
    names = ("agreement", "unanimous", "labels per item", "self-consistency", "disconnected parts")
    assert [line.split("  ")[0] for line in lines[:5]] == list(names)
    assert "median 2, 1 to 3, mean 2.00" in lines[2]


def test_the_jackknife_of_a_mean_is_the_classical_error() -> None:
    values = np.random.default_rng(0).normal(size=30)
    without = (values.sum() - values) / 29
    low, high = jackknife_interval(float(values.mean()), without, 0.95)
    error = values.std(ddof=1) / math.sqrt(30)
    assert (high - low) / 2 == pytest.approx(2.045 * error, rel=1e-3)  # Student's t, 29 degrees of freedom


@pytest.mark.parametrize("kind", ["nominal", "ordinal", "numeric"])
def test_intervals_of_alpha_are_those_of_items_drawn_again(kind: Any) -> None:
    crowd = ds.simulate(300, 30, 4, labels_per_item=5, seed=2).annotations
    labels = Annotations.from_arrays(
        crowd.items[crowd.item], crowd.annotators[crowd.annotator], crowd.label.astype(str), label_type=kind
    )
    value, low, high = agreement(labels)
    rng = np.random.default_rng(1)
    rows = [np.flatnonzero(labels.item == m) for m in range(300)]
    drawn = []
    for _ in range(150):
        chosen = rng.integers(300, size=300)
        item = np.repeat(np.arange(300), [len(rows[m]) for m in chosen])
        label = labels.label[np.concatenate([rows[m] for m in chosen])]
        level = {"numeric": "interval"}.get(kind, kind)
        drawn.append(krippendorff_alpha(item, label, n_classes=4, level=level))
    assert low < value < high
    assert (high - low) / 2 == pytest.approx(1.96 * np.std(drawn), rel=0.25)


def test_groups_are_of_one_size_and_always_the_same() -> None:
    sizes = np.bincount(item_groups(1003, 200))
    assert set(sizes) == {5, 6}
    assert (item_groups(1003, 200) == item_groups(1003, 200)).all()
    assert krippendorff_alpha(np.array([[2, 0], [0, 2]])) == 1.0


def test_copies_of_rows_and_gold_that_nobody_gave_are_told() -> None:
    item, who = ["i1", "i1", "i1", "i2", "i2", "i2"], ["a", "a", "b", "a", "a", "a"]
    labels = ds.Annotations.from_arrays(item, who, ["x", "x", "x", "y", "y", "x"])
    copies, *others = ds.describe(labels).notes
    assert copies.startswith("2 rows repeat the item, annotator and label of another, and all count;")
    assert "duplicates='first'" in copies
    assert not others
    alone = ds.Annotations.from_arrays(["i1", "i1", "i2"], ["a", "a", "b"], ["x", "x", "y"])
    (said,) = ds.describe(alone).notes
    assert "and hpgm counts them once, as no item has labels by two annotators" in said
    once = ds.Annotations.from_arrays(item[1:4], who[1:4], ["x", "x", "y"])
    assert ds.describe(once).notes == ()
    known = once.with_tables(gold={"item": ["i1", "i2"], "gold": ["y", "y"]})
    (said,) = ds.describe(known).notes
    assert said.startswith(
        "1 item has a gold label that no annotator gave it, such as 'y' for item 'i1'; check"
    )


@pytest.mark.parametrize(
    ("alpha", "said"),
    [
        (0.85, "agree well"),
        (0.7, "tentative"),
        (0.3, "often"),
        (0.1, "little above chance"),
        (0.0, "little above chance"),
        (-0.01, "less than by chance"),
        (-0.3, "less than by chance"),
        (math.nan, "cannot"),
    ],
)
def test_alpha_in_words(alpha: float, said: str) -> None:
    assert said in reading(alpha)
