"""Kinds of labels: how they are told from the data, declared, carried, and what agreement means for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import krippendorff
import numpy as np
import pandas as pd
import pytest

import dissensus as ds
from cli_help import run
from dissensus.labels.agreement import interval_alpha, intraclass_correlation, krippendorff_alpha
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import bears_out, known_order
from docs_help import DOCS, run_page


def ratings(low: int, high: int, seed: int = 0, n_items: int = 60, n_raters: int = 6) -> pd.DataFrame:
    """Whole numbers around each item's own, a third of them missing."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform(low, high, n_items)
    given = np.clip(np.round(centre[:, None] + rng.normal(0, 2, (n_items, n_raters))), low, high).astype(int)
    item, rater = np.nonzero(rng.random(given.shape) < 0.67)
    return pd.DataFrame(
        {"item": [f"i{m}" for m in item], "annotator": [f"r{n}" for n in rater], "label": given[item, rater]}
    )


def reference_alpha(frame: pd.DataFrame, level: str) -> float:
    """The krippendorff package's α of the same ratings."""
    table = frame.pivot_table(index="annotator", columns="item", values="label", aggfunc="first")
    return float(krippendorff.alpha(table.to_numpy(float), level_of_measurement=level))


@pytest.mark.parametrize("way", ["csv", "frame", "parquet", "store"])
@pytest.mark.parametrize("bounds", [(-5, 5), (2, 12)])
def test_numbers_sort_as_numbers_whatever_they_come_from(
    tmp_path: Path, way: str, bounds: tuple[int, int]
) -> None:
    frame = ratings(*bounds)
    frame.to_csv(tmp_path / "r.csv", index=False)
    frame.to_parquet(tmp_path / "r.parquet")
    ds.write_store(tmp_path / "r.csv", tmp_path / "r.store")
    source: Any = frame if way == "frame" else tmp_path / f"r.{way}"
    labels = ds.read_annotations(source)
    assert [int(name) for name in labels.classes] == sorted(frame["label"].unique())
    assert labels.label_type == "ordinal"
    assert any("read as an ordered scale" in note for note in labels.notes)
    for level in ("nominal", "ordinal", "interval"):
        expected = reference_alpha(frame, level)
        assert krippendorff_alpha(labels, level=level) == pytest.approx(expected, abs=1e-12)
    assert ds.describe(labels).alpha == pytest.approx(reference_alpha(frame, "ordinal"), abs=1e-12)
    as_numbers = labels.with_label_type("numeric")
    assert krippendorff_alpha(as_numbers) == pytest.approx(reference_alpha(frame, "interval"), abs=1e-12)


def test_many_numbers_are_ratings_and_classes_refuse_them() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"item": np.repeat(np.arange(50), 4), "annotator": np.tile(np.arange(4), 50)})
    frame["label"] = rng.normal(size=200)
    labels = ds.read_annotations(frame)
    assert labels.label_type == "numeric"
    with pytest.raises(ds.DissensusError, match="NumericRatings"):
        ds.DawidSkene().fit(labels)
    found = ds.describe(labels)
    assert found.level == "interval"
    assert found.mean_entropy is None
    assert not found.class_counts
    assert "ICC" in found.as_text()


def test_numbers_that_name_classes_are_not_taken_for_a_scale() -> None:
    # 0 is mistaken for 3 and 1 for 4, never for a neighbour
    pairs = [(0, 3), (3, 0), (1, 4), (4, 1), (2, 2), (0, 0), (1, 1), (3, 3), (4, 4)] * 20
    frame = pd.DataFrame(
        [(m, n, label) for m, pair in enumerate(pairs) for n, label in enumerate(pair)],
        columns=["item", "annotator", "label"],
    )
    labels = ds.read_annotations(frame)
    assert labels.label_type == "nominal"
    assert any("do not follow their order" in note for note in labels.notes)
    assert ds.read_annotations(frame, label_type="ordinal").label_type == "ordinal"


def test_the_order_of_classes_by_hand() -> None:
    near = np.array([[9, 3, 1, 0], [3, 9, 3, 1], [1, 3, 9, 3], [0, 1, 3, 9.0]])
    assert bears_out(near)
    swapped = near[np.ix_([0, 2, 1, 3], [0, 2, 1, 3])]
    assert not bears_out(swapped)


def test_a_scale_in_words_is_offered_never_assumed() -> None:
    rows = [("a", "x", "Disagree"), ("a", "y", "neutral"), ("b", "x", "agree"), ("b", "y", "agree")]
    frame = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    labels = ds.read_annotations(frame)
    assert labels.label_type == "nominal"
    assert "classes='Disagree<neutral<agree'" in " ".join(labels.notes)
    ordered = ds.read_annotations(frame, classes="Disagree<neutral<agree")
    assert ordered.label_type == "ordinal"
    assert list(ordered.classes) == ["Disagree", "neutral", "agree"]
    assert known_order(["yes", "no"]) is None
    assert known_order(["cat", "dog", "cow"]) is None
    kept = pd.Categorical(frame["label"], ["agree", "neutral", "Disagree"], ordered=True)
    declared = ds.read_annotations(frame.assign(label=kept))
    assert declared.label_type == "ordinal"
    assert list(declared.classes) == ["agree", "neutral", "Disagree"]


def test_a_type_that_cannot_be_is_refused() -> None:
    frame = pd.DataFrame({"item": [1, 1], "annotator": [1, 2], "label": ["3", "many"]})
    with pytest.raises(ds.DissensusError, match="'many' is not a number"):
        ds.read_annotations(frame, label_type="numeric")
    with pytest.raises(ds.DissensusError, match="did you mean 'ordinal'"):
        ds.read_annotations(frame, label_type="ordinary")  # type: ignore[arg-type]
    with pytest.raises(ds.DissensusError, match="'label_type' parameter"):
        ds.read_annotations(frame, classes="3<many", label_type="numeric")


def test_a_saved_model_knows_the_type(tmp_path: Path) -> None:
    labels = ds.read_annotations(ratings(1, 5))
    ds.DawidSkene().fit(labels).save(tmp_path / "m.safetensors")
    assert ds.load(tmp_path / "m.safetensors").label_type_ == "ordinal"


def test_interval_alpha_and_icc_by_hand() -> None:
    item, value = np.array([0, 0, 1, 1]), np.array([1.0, 3.0, 5.0, 5.0])
    # pairs: D_o = (2 · (1−3)²) / 4 = 2; all pairs of 1, 3, 5, 5: Σ over ordered pairs 88 / (4 · 3)
    assert interval_alpha(item, value, 2) == pytest.approx(1 - 2 / (88 / 12))
    # MSB = 2 · (1.5² + 1.5²) / 1 = 9, MSW = 2 / 2 = 1, n₀ = 2
    assert intraclass_correlation(item, value, 2) == pytest.approx((9 - 1) / (9 + 1))
    assert np.isnan(interval_alpha(np.array([0, 1]), np.array([1.0, 2.0]), 2))


def test_the_command_line_takes_and_tells_the_type(tmp_path: Path) -> None:
    ratings(1, 5).to_csv(tmp_path / "r.csv", index=False)
    said = run("describe", tmp_path / "r.csv")
    assert "label type            ordinal" in said.stdout
    assert "α" in said.stdout
    named = run("describe", tmp_path / "r.csv", "--label-type", "nominal")
    assert "label type            nominal" in named.stdout
    order = run("describe", tmp_path / "r.csv", "--classes", "5<4<3<2<1")
    assert "label type            ordinal" in order.stdout


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "kind"),
    [("web_search", "ordinal"), ("anesthesia", "ordinal"), ("jq1", "nominal"), ("tweet_possent", "nominal")],
)
def test_real_labels_are_what_they_are(data_dir: Path, name: str, kind: str) -> None:
    labels = ds.read_annotations(data_dir / name / "annotations.csv")
    assert labels.label_type == kind


def test_annotations_built_from_arrays_guess_nothing() -> None:
    assert Annotations.from_arrays([0, 0], [0, 1], [1, 9]).label_type == "nominal"


def test_the_page_on_kinds_prints_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_page(DOCS / "kinds.md") == 6


def test_blank_labels_are_skipped_and_counted(tmp_path: Path) -> None:
    rows = "item,annotator,label\na,x,1\na,y,\nb,x,NA\nb,y,2\n"
    (tmp_path / "b.csv").write_text(rows)
    labels = ds.read_annotations(tmp_path / "b.csv")
    assert labels.n_labels == 3
    assert any("1 row has no label and is skipped" in note for note in labels.notes)
    fewer = ds.read_annotations(tmp_path / "b.csv", missing_words=["NA"])
    assert fewer.n_labels == 2
    assert any("'NA'" in note for note in fewer.notes)
    frame = pd.DataFrame({"item": [1, 1, 2], "annotator": [1, 2, 1], "label": [3.0, np.nan, 4.0]})
    assert ds.read_annotations(frame).classes.tolist() == [3, 4]
    run("import", tmp_path / "b.csv", "--missing-words", "NA,null", "-o", tmp_path / "l.csv")
    assert "labels                2" in run("describe", tmp_path / "l.csv").stdout


def test_other_encodings_and_the_line_that_excel_writes(tmp_path: Path) -> None:
    text = "item;annotator;label\na;é;x\nb;é;y\n"
    (tmp_path / "l.csv").write_bytes(text.encode("latin-1"))
    assert ds.read_annotations(tmp_path / "l.csv", encoding="latin-1").annotators.tolist() == ["é"]
    with pytest.raises(ds.DissensusError, match="'encoding' parameter"):
        ds.read_annotations(tmp_path / "l.csv", encoding="klingon")
    with pytest.raises(ds.DissensusError, match="line 2: is not ascii"):
        ds.read_annotations(tmp_path / "l.csv", encoding="ascii")
    (tmp_path / "s.csv").write_text("sep=|\nitem|annotator|label\na,1|x|1;2\na,1|y|\n", encoding="utf-8")
    labels = ds.read_annotations(tmp_path / "s.csv")
    assert (labels.items.tolist(), labels.classes.tolist()) == (["a,1"], ["1;2"])


def test_spreadsheets_and_several_missing_columns(tmp_path: Path) -> None:
    frame = pd.DataFrame({"item": ["a", "a"], "annotator": ["x", "y"], "labels": ["1", "2"]})
    try:
        import openpyxl  # noqa: F401
    except ImportError:
        with pytest.raises(ds.DissensusError, match=r"dissensus\[excel\]"):
            ds.read_annotations(tmp_path / "t.xlsx")
    else:
        frame.to_excel(tmp_path / "t.xlsx", index=False)
        assert ds.read_annotations(tmp_path / "t.xlsx").n_labels == 2
    odd = frame.rename(columns={"item": "p", "annotator": "q"})
    with pytest.raises(ds.DissensusError, match="no item and no annotator column found"):
        ds.read_annotations(odd)


def test_sets_written_as_texts_are_offered() -> None:
    votes = pd.DataFrame({"item": list("aabb"), "annotator": list("xyxy"), "label": ["p;q", "q", "q;p", "p"]})
    note = "labels such as 'p;q' may be sets; if so, say separator=';'"
    assert note in ds.read_annotations(votes).notes
    # one such label may be a name, and so may those whose parts are no labels
    for labels in (["p;q", "q", "p", "p"], ["p;q", "q", "r;s", "p"]):
        assert not any("may be sets" in one for one in ds.read_annotations(votes.assign(label=labels)).notes)


def test_words_for_no_answer_are_offered_and_taken(tmp_path: Path) -> None:
    stars = pd.DataFrame(
        {"item": list("aabbcc"), "annotator": list("xyxyxy"), "label": ["1", "2", "3", "4", "5", "none"]}
    )
    note = "'none' may mean that there is no label; if so, say missing_words=['none']"
    assert note in ds.read_annotations(stars).notes
    taken = ds.read_annotations(stars, missing_words="none,NA")
    assert taken.n_labels == 5
    assert "1 row has no label (blank, or 'none', 'NA') and is skipped" in taken.notes
    # among words "none" is a class like any other; NA hardly ever is
    words = stars.assign(label=["hate", "none", "none", "hate", "NA", "N/A"])
    assert [note for note in ds.read_annotations(words).notes if "may mean" in note] == [
        "'N/A', 'NA' may mean that there is no label; if so, say missing_words=['N/A', 'NA']"
    ]
    wide = pd.DataFrame({"item": ["a", "b"], "ann": ["u", "NA"], "bob": ["v", "u"]})
    assert ds.read_annotations(wide, layout="wide", missing_words=["NA"]).n_labels == 3
    sets = pd.DataFrame({"item": ["a", "a", "b"], "annotator": list("xyx"), "label": ["p|q", "NA", ""]})
    assert ds.read_annotations(sets, separator="|", missing_words="NA").n_labels == 1
    pairs = pd.DataFrame({"model_a": list("ppp"), "model_b": list("qqq"), "winner": ["p", None, "tie"]})
    assert ds.read_annotations(pairs).n_labels == 2


def test_a_store_skips_rows_without_a_label(tmp_path: Path) -> None:
    rows = ["item,annotator,label", "a,x,1", "a,y,", "b,x,NA", ",y,2"]
    (tmp_path / "v.csv").write_text("\n".join(rows[:4]) + "\n")
    said = run("import", tmp_path / "v.csv", "-o", tmp_path / "s.store", "--missing-words", "NA")
    assert "note: 2 rows have no label (blank, or 'NA') and are skipped" in said.stderr
    assert ds.read_annotations(tmp_path / "s.store").n_labels == 1
    (tmp_path / "n.csv").write_text("item,annotator,label\na,x,\n")
    with pytest.raises(ds.DissensusError, match=r"n\.csv: every label is blank"):
        ds.write_store(tmp_path / "n.csv", tmp_path / "t")
    # rows that are skipped do not move the place that an error names
    (tmp_path / "w.csv").write_text("\n".join(rows) + "\n")
    with pytest.raises(ds.DissensusError, match="line 5: the item is blank"):
        ds.write_store(tmp_path / "w.csv", tmp_path / "u", missing_words=["NA"])
