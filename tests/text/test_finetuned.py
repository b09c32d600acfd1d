"""FineTunedEncoder on an encoder of a few thousand weights, made here."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import dissensus as ds
from dissensus.errors import ModelFileError
from tests.helpers.encoder import write_encoder

pytestmark = [pytest.mark.torch, pytest.mark.slow]
pytest.importorskip("torch")

WORDS = ["work", "home", "rain", "the", "day", "is"]


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence encoder of one small transformer layer, with random weights."""
    plain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.5}
    return write_encoder(tmp_path_factory.mktemp("tiny"), WORDS, hidden_size=4, **plain)


def sentences(n: int = 80) -> tuple[list[str], Any]:
    """Return texts whose class is the exclusive or of two words, which no linear model can learn."""
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
        settings = {"epochs": 15, "patience": None, "learning_rate": 3e-3, "n_threads": 1}
        learner = ds.text.FineTunedEncoder(str(tiny_model), **settings)
        return learner.fit(texts, D, dev=(texts, D))


def test_training_starts_at_the_regression_and_improves(fitted, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("DISSENSUS_CACHE", str(tmp_path))
    texts, D = sentences()
    vectors = ds.text.embed(texts, fitted.model, cache=False)
    linear = ds.text.SoftmaxRegression().fit(vectors, D, dev=(vectors, D))
    assert fitted.dev_kl_[0] == pytest.approx(-linear.score(vectors, D), rel=1e-3)
    assert fitted.dev_kl_.min() < fitted.dev_kl_[0]
    assert fitted.epoch_ == int(np.argmin(fitted.dev_kl_))
    assert -fitted.score(texts, D) == pytest.approx(fitted.dev_kl_.min(), rel=1e-4)
    again = clone(fitted).fit(texts, D, dev=(texts, D))
    np.testing.assert_array_equal(again.label_distributions(texts), fitted.label_distributions(texts))


SMUGGLED = {
    "family": ({"family": "os.system"}, "is unknown"),
    "pooling": ({"pooling": "lambda"}, "is unknown"),
    "foreign code": ({"network": {"auto_map": {"AutoModel": "evil--code.Model"}}}, "auto_map=.* is unknown"),
    "activation": ({"network": {"hidden_act": "os.system"}}, "hidden_act=.* is unknown"),
    "endless network": ({"network": {"num_hidden_layers": 10**6}}, "num_hidden_layers=1000000 is unknown"),
    "size that is a bool": ({"network": {"hidden_size": True}}, "hidden_size=true is unknown"),
    "other sizes": ({"network": {"hidden_size": 8}}, "do not match an encoder of these sizes"),
}


@pytest.mark.parametrize("case", SMUGGLED)
def test_malicious_files_are_rejected(fitted: ds.text.FineTunedEncoder, case: str):
    facts, arrays = fitted._state()
    change, message = SMUGGLED[case]
    for name, value in change.items():
        old = facts["encoder"][name]
        facts["encoder"][name] = {**old, **value} if isinstance(value, dict) else value
    with pytest.raises(ModelFileError, match=message):
        clone(fitted)._restore(facts, arrays)


def test_loading_uses_neither_network_nor_pretrained_model(fitted, tmp_path: Path, monkeypatch):
    texts, _ = sentences(9)
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    fitted.save(first)
    calls = list[Any]()
    for name in (
        "socket.socket.connect",
        "huggingface_hub.file_download.hf_hub_download",
        "sentence_transformers.SentenceTransformer.__init__",
    ):
        monkeypatch.setattr(name, lambda *arguments, **_: calls.append(arguments))
    loaded = ds.load(first)
    expected = fitted.label_distributions(texts)
    np.testing.assert_allclose(loaded.label_distributions(texts), expected, rtol=1e-6)
    loaded.save(second)
    assert second.read_bytes() == first.read_bytes()
    assert calls == []


@pytest.mark.parametrize("pooling", ["cls", "max", "mean_sqrt_len_tokens"])
def test_pooling_equals_sentence_transformers(pooling: str):
    import torch
    from sentence_transformers.sentence_transformer.modules import Pooling

    from dissensus.text.learners.encoder import SentenceEncoder

    hidden = torch.randn(3, 5, 4)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])
    theirs = Pooling(4, pooling_mode=pooling)({"token_embeddings": hidden, "attention_mask": mask})
    ours = SentenceEncoder(lambda **_: SimpleNamespace(last_hidden_state=hidden), None, pooling, False)
    vectors = ours({"attention_mask": mask})["sentence_embedding"]
    torch.testing.assert_close(vectors, theirs["sentence_embedding"])


def test_encoder_with_other_modules_cannot_be_saved(fitted: ds.text.FineTunedEncoder, tmp_path: Path):
    from sentence_transformers.sentence_transformer.modules import Dense

    other = clone(fitted)
    vars(other).update(vars(fitted))
    other.encoder_ = [*fitted.encoder_, Dense(4, 4)]
    with pytest.raises(ds.DissensusError, match="Transformer, Pooling, Dense, which cannot be saved"):
        other.save(tmp_path / "x.safetensors")
    assert list(tmp_path.iterdir()) == []
