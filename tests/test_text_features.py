"""Features: carried by annotations, read from files, and refused with a word on what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_array

import dissensus as ds
from dissensus.errors import DataError, DissensusWarning
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import as_features, features_of

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def labels(text: list[str | None] | None = None) -> Annotations:
    table = None if text is None else pa.table({"item": ["a", "b", "c", "d"], "text": text})
    return Annotations.from_arrays(["d", "c", "b", "a"], ["x"] * 4, ["yes", "no", "no", "yes"], items=table)


def test_every_part_takes_its_features_along():
    known = ds.text.with_features(labels(), X)
    np.testing.assert_array_equal(features_of(known), X)
    np.testing.assert_array_equal(features_of(known[[2, 0]]), X[[2, 0]])
    parts = known.split_items({"one": 0.5, "other": 0.5})
    joined = {
        item: row for part in parts.values() for item, row in zip(part.items, features_of(part), strict=True)
    }
    np.testing.assert_array_equal(np.stack([joined[item] for item in known.items]), X)
    again = ds.text.with_features(known, X + 1)
    np.testing.assert_array_equal(features_of(again), X + 1)


def test_text_becomes_features(monkeypatch):
    monkeypatch.setattr(
        "dissensus.text.embedding.embed",
        lambda texts, **_: np.array([[len(t), 1] for t in texts], np.float32),
    )
    known = labels(["x", "xx", "xxx", "xxxx"])
    np.testing.assert_array_equal(features_of(known)[:, 0], [1, 2, 3, 4])
    np.testing.assert_array_equal(features_of(ds.text.embed_items(known))[:, 0], [1, 2, 3, 4])
    np.testing.assert_array_equal(as_features(["x", "xx"])[:, 0], [1, 2])


def test_an_item_without_text_is_named():
    with pytest.raises(DataError, match="item 'b' has no value in the text column 'text'"):
        ds.text.embed_items(labels(["x", None, "y", "z"]))


def test_neither_features_nor_text():
    with pytest.raises(DataError, match="neither features nor a column 'text'"):
        features_of(labels())


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (X[:3], r"does not give one row to each of 4 items; give \(items, features\)"),
        (X[0], "does not give one row"),
        (np.where(X == 5, np.nan, X), "row 1 has NaN"),
        ([["a"] * 3] * 4, "not numbers"),
    ],
)
def test_bad_features_are_refused(bad: Any, word: str):
    with pytest.raises(DataError, match=word):
        ds.text.with_features(labels(), bad)


def test_numpy_files(tmp_path: Path):
    np.save(tmp_path / "x.npy", X)
    np.testing.assert_array_equal(ds.text.read_features(tmp_path / "x.npy"), X)
    np.testing.assert_array_equal(ds.text.read_features(tmp_path / "x.npy", labels()), X)
    np.savez(tmp_path / "named.npz", item=np.array(["d", "c", "b", "a"]), features=X[::-1])
    np.testing.assert_array_equal(ds.text.read_features(tmp_path / "named.npz", labels()), X)
    np.savez(tmp_path / "plural.npz", items=np.array(["d", "c", "b", "a"]), features=X[::-1])
    np.testing.assert_array_equal(ds.text.read_features(tmp_path / "plural.npz", labels()), X)
    np.savez(tmp_path / "one.npz", X)
    with pytest.warns(DissensusWarning, match=r"one\.npz: names no items, so rows are taken in the order"):
        np.testing.assert_array_equal(ds.text.read_features(tmp_path / "one.npz"), X)
    np.savez(tmp_path / "two.npz", first=X, second=X)
    with pytest.raises(DataError, match="name its arrays 'item' and 'features'"):
        ds.text.read_features(tmp_path / "two.npz")


def test_parquet_files(tmp_path: Path):
    ids = ["d", "c", "b", "a"]
    wide = pa.table({"item": ids} | {f"f{j}": X[::-1, j] for j in range(3)})
    pq.write_table(wide, tmp_path / "wide.parquet")
    np.testing.assert_array_equal(ds.text.read_features(tmp_path / "wide.parquet", labels()), X)
    nested = pa.table({"item": ids, "vector": [row.tolist() for row in X[::-1]]})
    pq.write_table(nested, tmp_path / "nested.parquet")
    np.testing.assert_array_equal(ds.text.read_features(tmp_path / "nested.parquet", labels()), X)
    np.testing.assert_array_equal(ds.text.read_features(tmp_path / "nested.parquet", ["c"]), X[2:3])
    pq.write_table(wide.slice(1), tmp_path / "short.parquet")
    with pytest.raises(DataError, match="no row for item 'd'"):
        ds.text.read_features(tmp_path / "short.parquet", labels())


def test_features_that_a_model_ignores_are_told() -> None:
    crowd = ds.simulate(30, 8, 3).annotations
    known = ds.text.with_features(crowd, np.ones((30, 2)))
    line = "fmm 10 does not use the features of the items; models that do: dirichlet-regression"
    with pytest.warns(DissensusWarning, match=line):
        ds.fit(known, "fmm", test_size=0, progress=False)
    with pytest.warns(DissensusWarning, match=r"HPGM\(.*\) does not use features; set use_features=True"):
        ds.HPGM(n_chains=1, n_sweeps=10).fit(crowd, np.ones((30, 2)))


def test_a_table_in_place_of_features_is_told_without_a_word_of_pickle(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("item,f\na,1\n")
    with pytest.raises(DataError, match=r"x\.csv: not a whole NumPy file of plain numbers; write it") as told:
        ds.text.read_features(tmp_path / "x.csv")
    assert "pickle" not in str(told.value)


def test_files_that_are_none(tmp_path: Path):
    with pytest.raises(DataError, match="no such feature file"):
        ds.text.read_features(tmp_path / "absent.npy")
    (tmp_path / "bad.npy").write_bytes(b"x" * 100)
    with pytest.raises(DataError, match="not a whole NumPy file of plain numbers"):
        ds.text.read_features(tmp_path / "bad.npy")
    (tmp_path / "bad.parquet").write_bytes(b"x" * 100)
    with pytest.raises(DataError, match="not a whole Parquet file"):
        ds.text.read_features(tmp_path / "bad.parquet")
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object))
    # reading it would run what is pickled in it
    with pytest.raises(DataError, match="not a whole NumPy file of plain numbers"):
        ds.text.read_features(tmp_path / "objects.npy")
    pq.write_table(pa.table({"item": ["a"], "f": ["word"]}), tmp_path / "words.parquet")
    with pytest.raises(DataError, match="not numeric"):
        ds.text.read_features(tmp_path / "words.parquet")


@pytest.mark.parametrize(
    ("column", "word"),
    [
        # Six numbers cannot be shared out among four rows; eight could be, and would then change rows.
        (pa.array([[1.0, 2.0], [3.0], [4.0, 5.0], [6.0]]), "row 1 has 1 features and row 0 has 2"),
        (pa.array([[1.0, 2.0], [3.0, 4.0, 5.0], [6.0], [7.0, 8.0]]), "row 1 has 3 features and row 0 has 2"),
        (pa.array([{"a": 1.0}] * 4), "a column of type struct<a: double>"),
        (pa.array([[1.0], None, [2.0], [3.0]]), "row 1 has no features"),
        (pa.array([0.5] * 4), "a column of type double"),
    ],
    ids=["odd", "even", "struct", "null", "plain"],
)
def test_a_column_that_is_no_table_of_numbers_is_refused(column: Any, word: str, tmp_path: Path):
    ids = ["a", "b", "c", "d"]
    known = Annotations.from_arrays(
        ids, ["x"] * 4, ["yes", "no"] * 2, items=pa.table({"item": ids, "features": column})
    )
    with pytest.raises(DataError, match=f"features: .*{word}"):
        features_of(known)
    if pa.types.is_nested(column.type):
        pq.write_table(pa.table({"item": ids, "vector": column}), tmp_path / "x.parquet")
        with pytest.raises(DataError, match=word):
            ds.text.read_features(tmp_path / "x.parquet")


def test_one_string_a_huge_sparse_matrix_and_a_number_are_no_features():
    with pytest.raises(DataError, match="X is one text, 'abc'; put it in a list"):
        as_features("abc")
    np.testing.assert_array_equal(as_features(csr_array(X)), X)
    with pytest.raises(DataError, match=r"sparse matrix of shape \(100000, 20000\) would take 8 GB"):
        as_features(csr_array((100_000, 20_000)))
    with pytest.raises(DataError, match="does not give one row to each item"):
        as_features(5)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_cut_or_damaged_npz_is_refused(save: Any, tmp_path: Path):
    save(tmp_path / "x.npz", X)
    whole = (tmp_path / "x.npz").read_bytes()
    middle = len(whole) // 3
    damaged = whole[:middle] + bytes(255 - b for b in whole[middle : middle + 20]) + whole[middle + 20 :]
    for content in (whole[:-30], whole[: len(whole) // 2], damaged):
        (tmp_path / "x.npz").write_bytes(content)
        with pytest.raises(DataError, match="not a whole NumPy file of plain numbers"):
            ds.text.read_features(tmp_path / "x.npz")
