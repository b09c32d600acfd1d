"""Types of labels: inferred, declared, saved, and agreement of each type."""

from pathlib import Path

import krippendorff
import numpy as np
import pandas as pd
import pytest

import dissensus as ds
from dissensus.labels.kinds import follows_order, scale_order
from tests.helpers.cli import run


def ratings(low: int, high: int, seed: int = 0, n_items: int = 60, n_raters: int = 6) -> pd.DataFrame:
    """Return integers around the value of each item, a third of them missing."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform(low, high, n_items)
    scores = np.clip(np.round(centre[:, None] + rng.normal(0, 2, (n_items, n_raters))), low, high).astype(int)
    item, rater = np.nonzero(rng.random(scores.shape) < 0.67)
    ids = {"item": [f"i{m}" for m in item], "annotator": [f"r{n}" for n in rater]}
    return pd.DataFrame(ids | {"label": scores[item, rater]})


@pytest.mark.parametrize("kind", ["csv", "frame", "parquet", "store"])
def test_numbers_are_ordered_by_value_in_every_format(tmp_path: Path, kind: str) -> None:
    frame = ratings(2, 12)
    frame.to_csv(tmp_path / "r.csv", index=False)
    frame.to_parquet(tmp_path / "r.parquet")
    ds.write_store(tmp_path / "r.csv", tmp_path / "r.store")
    labels = ds.read_annotations(frame if kind == "frame" else tmp_path / f"r.{kind}")
    assert [int(name) for name in labels.classes] == sorted(frame["label"].unique())
    assert labels.label_type == "ordinal"
    assert any("read as an ordered scale" in note for note in labels.notes)
    table = frame.pivot_table(index="annotator", columns="item", values="label").to_numpy()
    levels = {"identity": "nominal", "ordinal": "ordinal", "quadratic": "interval"}
    expected = {level: krippendorff.alpha(table, level_of_measurement=level) for level in levels.values()}
    for weights, level in levels.items():
        alpha = ds.agreement(labels, "alpha", weights=weights)["alpha"].value
        assert alpha == pytest.approx(expected[level], abs=1e-12)
    assert ds.describe(labels).alpha == pytest.approx(expected["ordinal"], abs=1e-12)
    as_numbers = labels.with_label_type("numeric")
    assert ds.describe(as_numbers).alpha == pytest.approx(expected["interval"], abs=1e-12)


def test_many_numbers_are_numeric() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"item": np.repeat(np.arange(50), 4), "annotator": np.tile(np.arange(4), 50)})
    frame["label"] = rng.normal(size=200)
    labels = ds.read_annotations(frame)
    assert labels.label_type == "numeric"
    with pytest.raises(ds.DissensusError, match="NumericRatings"):
        ds.DawidSkene().fit(labels)
    summary = ds.describe(labels)
    assert (summary.level, summary.mean_entropy, summary.class_counts) == ("interval", None, {})
    assert "ICC" in summary.as_text()


def test_numbers_as_names_are_nominal() -> None:
    # 0 is confused with 3 and 1 with 4, never with a neighbour
    pairs = np.array([(0, 3), (3, 0), (1, 4), (4, 1), (2, 2), (0, 0), (1, 1), (3, 3), (4, 4)] * 20)
    item, annotator = np.indices(pairs.shape)
    columns = {"item": item.ravel(), "annotator": annotator.ravel(), "label": pairs.ravel()}
    frame = pd.DataFrame(columns)
    labels = ds.read_annotations(frame)
    assert labels.label_type == "nominal"
    assert any("do not follow their order" in note for note in labels.notes)
    assert ds.read_annotations(frame, label_type="ordinal").label_type == "ordinal"
    near = np.array([[9, 3, 1, 0], [3, 9, 3, 1], [1, 3, 9, 3], [0, 1, 3, 9.0]])
    assert follows_order(near)
    assert not follows_order(near[np.ix_([0, 2, 1, 3], [0, 2, 1, 3])])


def test_known_scales_are_suggested() -> None:
    rows = [("a", "x", "Disagree"), ("a", "y", "neutral"), ("b", "x", "agree"), ("b", "y", "agree")]
    frame = pd.DataFrame(rows, columns=["item", "annotator", "label"])
    labels = ds.read_annotations(frame)
    assert labels.label_type == "nominal"
    assert "classes='Disagree<neutral<agree'" in " ".join(labels.notes)
    ordered = ds.read_annotations(frame, classes="Disagree<neutral<agree")
    assert ordered.label_type == "ordinal"
    assert list(ordered.classes) == ["Disagree", "neutral", "agree"]
    assert scale_order(["yes", "no"]) is None
    assert scale_order(["cat", "dog", "cow"]) is None
    category = pd.Categorical(frame["label"], ["agree", "neutral", "Disagree"], ordered=True)
    declared = ds.read_annotations(frame.assign(label=category))
    assert declared.label_type == "ordinal"
    assert list(declared.classes) == ["agree", "neutral", "Disagree"]


def test_invalid_types_are_rejected() -> None:
    frame = pd.DataFrame({"item": [1, 1], "annotator": [1, 2], "label": ["3", "many"]})
    for settings, message in (
        ({"label_type": "numeric"}, "'many' is not a number"),
        ({"label_type": "ordinary"}, "did you mean 'ordinal'"),
        ({"classes": "3<many", "label_type": "numeric"}, "'label_type' parameter"),
    ):
        with pytest.raises(ds.DissensusError, match=message):
            ds.read_annotations(frame, **settings)  # type: ignore[arg-type]


def test_interval_alpha_and_icc_by_hand() -> None:
    ratings = ds.Annotations.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], [1, 3, 5, 5], label_type="numeric")
    result = ds.agreement(ratings)
    # pairs: D_o = (2 · (1−3)²) / 4 = 2; all pairs of 1, 3, 5, 5: Σ over ordered pairs 88 / (4 · 3)
    assert result["alpha"].value == pytest.approx(1 - 2 / (88 / 12))
    # MSB = 2 · (1.5² + 1.5²) / 1 = 9, MSW = 2 / 2 = 1, n₀ = 2
    assert result["icc1"].value == pytest.approx((9 - 1) / (9 + 1))
    single = ds.Annotations.from_arrays([0, 1], [0, 1], [1, 2], label_type="numeric")
    assert np.isnan(ds.agreement(single)["alpha"].value)


def test_label_type_option(tmp_path: Path) -> None:
    ratings(1, 5).to_csv(tmp_path / "r.csv", index=False)
    cases = {(): "ordinal", ("--label-type", "nominal"): "nominal", ("--classes", "5<4<3<2<1"): "ordinal"}
    for options, label_type in cases.items():
        assert f"label type            {label_type}" in run("describe", tmp_path / "r.csv", *options).stdout


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "kind"),
    [("web_search", "ordinal"), ("anesthesia", "ordinal"), ("jq1", "nominal"), ("tweet_possent", "nominal")],
)
def test_types_of_real_data(data_dir: Path, name: str, kind: str) -> None:
    labels = ds.read_annotations(data_dir / name / "annotations.csv")
    assert labels.label_type == kind


def test_from_arrays_infers_no_type() -> None:
    assert ds.Annotations.from_arrays([0, 0], [0, 1], [1, 9]).label_type == "nominal"


def test_blank_labels_are_skipped_and_counted(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("item,annotator,label\na,x,1\na,y,\nb,x,NA\nb,y,2\n")
    labels = ds.read_annotations(tmp_path / "b.csv")
    assert labels.n_labels == 3
    assert any("1 row has no label and is skipped" in note for note in labels.notes)
    frame = pd.DataFrame({"item": [1, 1, 2], "annotator": [1, 2, 1], "label": [3.0, np.nan, 4.0]})
    assert ds.read_annotations(frame).classes.tolist() == [3, 4]
    run("import", tmp_path / "b.csv", "--missing-words", "NA,null", "-o", tmp_path / "l.csv")
    assert "labels                2" in run("describe", tmp_path / "l.csv").stdout


def test_sets_as_texts_are_suggested() -> None:
    votes = pd.DataFrame({"item": list("aabb"), "annotator": list("xyxy"), "label": ["p;q", "q", "q;p", "p"]})
    note = "labels such as 'p;q' may be sets; if so, use separator=';'"
    assert note in ds.read_annotations(votes).notes
    # a single such label may be a name, and so may those whose parts are not labels
    for labels in (["p;q", "q", "p", "p"], ["p;q", "q", "r;s", "p"]):
        notes = ds.read_annotations(votes.assign(label=labels)).notes
        assert not any("may be sets" in note for note in notes)


def test_missing_words_are_suggested_and_skipped(tmp_path: Path) -> None:
    stars = pd.DataFrame({"item": list("aabbcc"), "annotator": list("xyxyxy"), "label": [*"12345", "none"]})
    note = "'none' may mean a missing label; if so, use missing_words=['none']"
    assert note in ds.read_annotations(stars).notes
    skipped = ds.read_annotations(stars, missing_words="none,NA")
    assert skipped.n_labels == 5
    assert "1 row has no label (blank, or 'none', 'NA') and is skipped" in skipped.notes
    # among words, "none" is a class; NA hardly ever is
    words = stars.assign(label=["hate", "none", "none", "hate", "NA", "N/A"])
    assert [note for note in ds.read_annotations(words).notes if "may mean" in note] == [
        "'N/A', 'NA' may mean a missing label; if so, use missing_words=['N/A', 'NA']"
    ]
    wide = pd.DataFrame({"item": ["a", "b"], "ann": ["u", "NA"], "bob": ["v", "u"]})
    assert ds.read_annotations(wide, layout="wide", missing_words=["NA"]).n_labels == 3
    sets = pd.DataFrame({"item": ["a", "a", "b"], "annotator": list("xyx"), "label": ["p|q", "NA", ""]})
    assert ds.read_annotations(sets, separator="|", missing_words="NA").n_labels == 1
    pairs = pd.DataFrame({"model_a": list("ppp"), "model_b": list("qqq"), "winner": ["p", None, "tie"]})
    assert ds.read_annotations(pairs).n_labels == 2


def test_first_line_names_the_separator(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("sep=|\nitem|annotator|label\na,1|x|1;2\na,1|y|\n", encoding="utf-8")
    labels = ds.read_annotations(tmp_path / "s.csv")
    assert (labels.items.tolist(), labels.classes.tolist()) == (["a,1"], ["1;2"])


def test_store_skips_rows_without_a_label(tmp_path: Path) -> None:
    rows = "item,annotator,label\na,x,1\na,y,\nb,x,NA\n"
    (tmp_path / "v.csv").write_text(rows)
    result = run("import", tmp_path / "v.csv", "-o", tmp_path / "s.store", "--missing-words", "NA")
    assert "note: 2 rows have no label (blank, or 'NA') and are skipped" in result.stderr
    assert ds.read_annotations(tmp_path / "s.store").n_labels == 1
    # skipped rows do not shift the line number in errors
    (tmp_path / "w.csv").write_text(f"{rows},y,2\n")
    with pytest.raises(ds.DissensusError, match="line 5: the item is blank"):
        ds.write_store(tmp_path / "w.csv", tmp_path / "u", missing_words=["NA"])
