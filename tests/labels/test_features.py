"""Features: attached to annotations, read from files, and validated."""

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


def test_features_follow_every_selection():
    annotations = ds.text.with_features(labels(), X)
    np.testing.assert_array_equal(features_of(annotations), X)
    np.testing.assert_array_equal(features_of(annotations[[2, 0]]), X[[2, 0]])
    for part in annotations.split_items({"first": 0.5, "second": 0.5}).values():
        np.testing.assert_array_equal(features_of(part), X[["abcd".index(item) for item in part.items]])
    np.testing.assert_array_equal(features_of(ds.text.with_features(annotations, X + 1)), X + 1)


def test_texts_are_embedded(monkeypatch):
    embed = lambda texts, **_: np.array([[len(text), 1] for text in texts], np.float32)  # noqa: E731
    monkeypatch.setattr("dissensus.text.embedding.embed", embed)
    annotations = labels(["x", "xx", "xxx", "xxxx"])
    np.testing.assert_array_equal(features_of(annotations)[:, 0], [1, 2, 3, 4])
    np.testing.assert_array_equal(features_of(ds.text.embed_items(annotations))[:, 0], [1, 2, 3, 4])
    np.testing.assert_array_equal(as_features(["x", "xx"])[:, 0], [1, 2])


def test_missing_and_invalid_features():
    with pytest.raises(DataError, match="item 'b' has no value in the text column 'text'"):
        ds.text.embed_items(labels(["x", None, "y", "z"]))
    with pytest.raises(DataError, match="neither features nor a column 'text'"):
        features_of(labels())
    for features, message in (
        (X[:3], r"is not \(4 items, features\); pass one row per item"),
        (X[0], "is not"),
        (np.where(X == 5, np.nan, X), "row 1 has NaN"),
        ([["a"] * 3] * 4, "not an array of numbers"),
    ):
        with pytest.raises(DataError, match=message):
            ds.text.with_features(labels(), features)


def test_numpy_files(tmp_path: Path):
    np.save(tmp_path / "x.npy", X)
    np.testing.assert_array_equal(ds.text.read_features(tmp_path / "x.npy"), X)
    np.testing.assert_array_equal(ds.text.read_features(tmp_path / "x.npy", labels()), X)
    np.savez(tmp_path / "named.npz", items=np.array(["d", "c", "b", "a"]), features=X[::-1])
    np.testing.assert_array_equal(ds.text.read_features(tmp_path / "named.npz", labels()), X)
    np.savez(tmp_path / "one.npz", X)
    with pytest.warns(DissensusWarning, match=r"one\.npz: has no item ids, so rows are taken in the order"):
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


def test_ignored_features_are_warned_about() -> None:
    crowd = ds.simulate(30, 8, 3).annotations
    line = "fmm 10 does not use the features of the items; models that do: dirichlet-regression"
    with pytest.warns(DissensusWarning, match=line):
        ds.fit(ds.text.with_features(crowd, np.ones((30, 2))), "fmm", progress=False)
    with pytest.warns(DissensusWarning, match=r"HPGM\(.*\) does not use features; set use_features=True"):
        ds.HPGM(n_chains=1, n_sweeps=10).fit(crowd, np.ones((30, 2)))


def test_invalid_files_are_rejected(tmp_path: Path):
    (tmp_path / "x.csv").write_text("item,f\na,1\n")
    (tmp_path / "bad.parquet").write_bytes(b"x" * 100)
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object))  # loading it would unpickle
    pq.write_table(pa.table({"item": ["a"], "f": ["word"]}), tmp_path / "words.parquet")
    not_numpy = r": not a valid NumPy file of plain numbers; write it with numpy\.save"
    for name, message in {
        "absent.npy": "no such feature file",
        "x.csv": not_numpy,
        "objects.npy": not_numpy,
        "bad.parquet": "not a valid Parquet file",
        "words.parquet": "not numeric",
    }.items():
        with pytest.raises(DataError, match=message):
            ds.text.read_features(tmp_path / name)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        # eight numbers could be reshaped to four rows, which would be wrong
        (pa.array([[1.0, 2.0], [3.0, 4.0, 5.0], [6.0], [7.0, 8.0]]), "row 1 has 3 features and row 0 has 2"),
        (pa.array([{"a": 1.0}] * 4), "is a column of type struct<a: double>"),
        (pa.array([[1.0], None, [2.0], [3.0]]), "row 1 has no features"),
    ],
    ids=["lengths", "struct", "null"],
)
def test_invalid_feature_columns_are_rejected(column: Any, message: str, tmp_path: Path):
    items = pa.table({"item": list("abcd"), "features": column})
    with pytest.raises(DataError, match=f"features: .*{message}"):
        features_of(labels().with_tables(items=items))
    pq.write_table(items, tmp_path / "x.parquet")
    with pytest.raises(DataError, match=message):
        ds.text.read_features(tmp_path / "x.parquet")


def test_as_features():
    with pytest.raises(DataError, match="X is a single text, 'abc'; put it in a list"):
        as_features("abc")
    np.testing.assert_array_equal(as_features(csr_array(X)), X)
    with pytest.raises(DataError, match=r"sparse matrix of shape \(100000, 20000\) would take 8 GB"):
        as_features(csr_array((100_000, 20_000)))
    with pytest.raises(DataError, match=r"is not \(items, features\)"):
        as_features(5)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_damaged_npz_is_rejected(save: Any, tmp_path: Path):
    save(tmp_path / "x.npz", X)
    valid = (tmp_path / "x.npz").read_bytes()
    middle = len(valid) // 3
    damaged = valid[:middle] + bytes(255 - b for b in valid[middle : middle + 20]) + valid[middle + 20 :]
    for content in (valid[: len(valid) // 2], damaged):
        (tmp_path / "x.npz").write_bytes(content)
        with pytest.raises(DataError, match="not a valid NumPy file of plain numbers"):
            ds.text.read_features(tmp_path / "x.npz")
