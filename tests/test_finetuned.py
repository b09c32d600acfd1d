"""FineTunedEncoder on an encoder of a few thousand weights, made here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import dissensus as ds
from dissensus.errors import ModelFileError

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
def fitted(tiny_model: Path, tmp_path_factory) -> ds.text.FineTunedEncoder:
    texts, D = sentences()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISSENSUS_CACHE", str(tmp_path_factory.mktemp("cache")))
        learner = ds.text.FineTunedEncoder(
            str(tiny_model), epochs=15, patience=None, learning_rate=3e-3, n_threads=1
        )
        return learner.fit(texts, D, dev=(texts, D))


def test_training_starts_at_the_regression_and_goes_below_it(fitted: ds.text.FineTunedEncoder):
    texts, D = sentences()
    line = ds.text.SoftmaxRegression().fit(
        vectors := ds.text.embed(texts, fitted.model, cache=False), D, dev=(vectors, D)
    )
    assert fitted.dev_kl_[0] == pytest.approx(-line.score(vectors, D), rel=1e-3)
    assert fitted.dev_kl_.min() < fitted.dev_kl_[0]
    assert fitted.epoch_ == int(np.argmin(fitted.dev_kl_))
    assert -fitted.score(texts, D) == pytest.approx(fitted.dev_kl_.min(), rel=1e-4)
    assert fitted.n_threads_ == 1


def test_a_seed_replays_it(fitted: ds.text.FineTunedEncoder, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("DISSENSUS_CACHE", str(tmp_path))
    texts, D = sentences()
    again = clone(fitted).fit(texts, D, dev=(texts, D))
    np.testing.assert_array_equal(again.label_distributions(texts), fitted.label_distributions(texts))


def test_one_file_holds_all_of_it(fitted: ds.text.FineTunedEncoder, tmp_path: Path):
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
    guided = ds.GuidedClassifier(
        ds.FMM(2), ds.text.FineTunedEncoder(str(tiny_model), epochs=1), project="soft"
    )
    guided.set_params(prior_worth=2.0).fit(texts, y)
    guided.save(tmp_path / "guided")
    loaded = ds.load(tmp_path / "guided")
    np.testing.assert_allclose(
        loaded.label_distributions(texts), guided.label_distributions(texts), rtol=1e-6
    )
    assert repr(loaded) == repr(guided)


SMUGGLED = {
    "a class of its own": ({"family": "os.system"}, "is unknown"),
    "another pooling": ({"pooling": "lambda"}, "is unknown"),
    "foreign code": ({"network": {"auto_map": {"AutoModel": "evil--code.Model"}}}, "auto_map=.* is unknown"),
    "model_args": ({"network": {"model_kwargs": {"trust_remote_code": True}}}, "model_kwargs=.* is unknown"),
    "a kernel": ({"network": {"_attn_implementation": "kernels-community/x"}}, "_attn_implementation="),
    "an activation": ({"network": {"hidden_act": "os.system"}}, "hidden_act=.* is unknown"),
    "an endless network": ({"network": {"num_hidden_layers": 10**6}}, "num_hidden_layers=1000000 is unknown"),
    "a size that is none": ({"network": {"hidden_size": True}}, "hidden_size=true is unknown"),
    "a huge vocabulary": ({"network": {"vocab_size": 10**7}}, "not those of an encoder of these sizes"),
    "other sizes": ({"network": {"hidden_size": 8}}, "not those of an encoder of these sizes"),
}


@pytest.mark.parametrize("what", SMUGGLED)
def test_a_file_that_smuggles_is_refused(fitted: ds.text.FineTunedEncoder, what: str):
    facts, arrays = fitted._state()
    change, word = SMUGGLED[what]
    for name, value in change.items():
        old = facts["encoder"][name]
        facts["encoder"][name] = {**old, **value} if isinstance(value, dict) else value
    with pytest.raises(ModelFileError, match=word):
        clone(fitted)._restore(facts, arrays)


def test_loading_touches_no_network_and_no_file_of_the_model(
    fitted: ds.text.FineTunedEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    texts, _ = sentences(9)
    fitted.save(tmp_path / "e.safetensors")
    asked = list[Any]()
    for name in (
        "socket.socket.connect",
        "huggingface_hub.file_download.hf_hub_download",
        "sentence_transformers.SentenceTransformer.__init__",
    ):
        monkeypatch.setattr(name, lambda *given, **_: asked.append(given))
    loaded = ds.load(tmp_path / "e.safetensors")
    np.testing.assert_allclose(
        loaded.label_distributions(texts), fitted.label_distributions(texts), rtol=1e-6
    )
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "e.safetensors").read_bytes()
    assert asked == []
    _, arrays = fitted._state()
    assert not any("bin" in name or "json" in name or "/" in name for name in arrays)


@pytest.mark.parametrize("how", ["cls", "max", "mean_sqrt_len_tokens"])
def test_every_pooling_is_that_of_the_library(fitted: ds.text.FineTunedEncoder, how: str):
    import torch
    from sentence_transformers.sentence_transformer.modules import Pooling

    from dissensus.text.learners.encoder import SentenceEncoder

    hidden = torch.randn(3, 5, 4)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])
    theirs = Pooling(4, pooling_mode=how)({"token_embeddings": hidden, "attention_mask": mask})
    ours = SentenceEncoder(lambda **_: SimpleNamespace(last_hidden_state=hidden), None, how, False)
    found = ours({"attention_mask": mask})["sentence_embedding"]
    torch.testing.assert_close(found, theirs["sentence_embedding"])


def test_an_encoder_with_other_parts_is_refused_when_it_is_saved(
    fitted: ds.text.FineTunedEncoder, tmp_path: Path
):
    from sentence_transformers.sentence_transformer.modules import Dense

    other = clone(fitted)
    vars(other).update(vars(fitted))
    other.encoder_ = [*fitted.encoder_, Dense(4, 4)]
    with pytest.raises(ds.DissensusError, match="Transformer, Pooling, Dense, which no file"):
        other.save(tmp_path / "x.safetensors")
    assert list(tmp_path.iterdir()) == []
