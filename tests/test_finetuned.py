"""FineTunedEncoder on an encoder of a few thousand weights, made here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import dissensus as ds
from dissensus.errors import ModelFileError
from dissensus.learners.finetuned import _unpack

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")

WORDS = ["work", "home", "rain", "the", "day", "is"]


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence encoder of one small transformer layer, with random weights."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizerFast

    st = pytest.importorskip("sentence_transformers")
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]))
    tokenizer = BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    torch.manual_seed(0)
    size = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    size |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.5}
    BertModel(BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, **size)).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    # A plain transformer gets mean pooling.
    model = st.SentenceTransformer(str(folder), device="cpu")
    model.save(str(folder / "st"), create_model_card=False)
    return folder / "st"


def sentences(n: int = 80) -> tuple[list[str], Any]:
    """Texts whose class is whether exactly one of two words is there: no line can tell."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(2, size=(2, n))
    texts = [
        " ".join([["work", "home"][a], ["rain", "day"][b], *["is"] * int(rng.integers(1, 6))])
        for a, b in zip(first, second, strict=True)
    ]
    return texts, np.eye(2)[first ^ second] * 0.8 + 0.1


@pytest.fixture(scope="module")
def fitted(tiny_model: Path, tmp_path_factory) -> ds.FineTunedEncoder:
    texts, D = sentences()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISSENSUS_CACHE", str(tmp_path_factory.mktemp("cache")))
        learner = ds.FineTunedEncoder(
            str(tiny_model), epochs=15, patience=None, learning_rate=3e-3, n_threads=1
        )
        return learner.fit(texts, D, dev=(texts, D))


def test_training_starts_at_the_regression_and_goes_below_it(fitted: ds.FineTunedEncoder):
    texts, D = sentences()
    line = ds.SoftmaxRegression().fit(
        vectors := ds.embed(texts, fitted.model, cache=False), D, dev=(vectors, D)
    )
    assert fitted.dev_kl_[0] == pytest.approx(-line.score(vectors, D), rel=1e-3)
    assert fitted.dev_kl_.min() < fitted.dev_kl_[0]
    assert fitted.epoch_ == int(np.argmin(fitted.dev_kl_))
    assert -fitted.score(texts, D) == pytest.approx(fitted.dev_kl_.min(), rel=1e-4)
    assert fitted.n_threads_ == 1


def test_a_seed_replays_it(fitted: ds.FineTunedEncoder, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("DISSENSUS_CACHE", str(tmp_path))
    texts, D = sentences()
    again = clone(fitted).fit(texts, D, dev=(texts, D))
    np.testing.assert_array_equal(again.label_distributions(texts), fitted.label_distributions(texts))


def test_one_file_holds_all_of_it(fitted: ds.FineTunedEncoder, tmp_path: Path):
    texts, _ = sentences(9)
    fitted.save(tmp_path / "e.safetensors")
    loaded = ds.load(tmp_path / "e.safetensors")
    np.testing.assert_allclose(
        loaded.label_distributions(texts), fitted.label_distributions(texts), rtol=1e-6
    )
    assert loaded.epoch_ == fitted.epoch_
    content = bytearray((tmp_path / "e.safetensors").read_bytes())
    content[-9] ^= 1
    (tmp_path / "e.safetensors").write_bytes(content)
    with pytest.raises(ModelFileError, match="has been altered since it was saved"):
        ds.load(tmp_path / "e.safetensors")


def test_it_is_kept_inside_a_guided_classifier(tiny_model: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("DISSENSUS_CACHE", str(tmp_path))
    texts, _ = sentences(20)
    y = ds.Annotations.from_arrays(np.arange(20), ["a"] * 20, np.arange(20) % 2)
    guided = ds.GuidedClassifier(ds.FMM(2), ds.FineTunedEncoder(str(tiny_model), epochs=1), project="soft")
    guided.set_params(prior_labels=2.0).fit(texts, y)
    guided.save(tmp_path / "guided")
    loaded = ds.load(tmp_path / "guided")
    np.testing.assert_allclose(
        loaded.label_distributions(texts), guided.label_distributions(texts), rtol=1e-6
    )
    assert repr(loaded) == repr(guided)


@pytest.mark.parametrize("name", ["../outside.json", "weights.bin", "code.py"])
def test_a_file_that_smuggles_is_refused(fitted: ds.FineTunedEncoder, tmp_path: Path, name: str):
    facts, arrays = fitted._state()
    arrays["file:" + name] = np.zeros(3, np.uint8)
    with pytest.raises(ModelFileError, match="which no saved encoder has"):
        clone(fitted)._restore(facts, arrays)


@pytest.mark.parametrize(
    ("modules", "word"),
    [
        ([{"idx": 0, "name": "0", "path": "", "type": "os.system"}], "has a part 'os.system'"),
        ({"type": "sentence_transformers.models.Transformer"}, "not a list of modules"),
        ([{"idx": 0}], "not a list of modules"),
    ],
    ids=["foreign", "no list", "no type"],
)
def test_code_of_others_is_refused_before_anything_is_loaded(modules: Any, word: str, tmp_path: Path):
    content = np.frombuffer(json.dumps(modules).encode(), np.uint8)
    for name in ("modules.json", "Modules.JSON", "1_Part/../modules.json"):
        with pytest.raises(ModelFileError, match=word):
            _unpack(tmp_path, name, content)
    assert not list(tmp_path.iterdir())
