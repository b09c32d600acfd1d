"""A sentence encoder of one small transformer layer with random weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest


def write_encoder(
    folder: Path, words: Sequence[str], *, seed: int = 0, hidden_size: int = 8, **sizes: Any
) -> Path:
    """Write the encoder to a folder and return its path; other settings are those of ``BertConfig``."""
    torch = pytest.importorskip("torch")
    st = pytest.importorskip("sentence_transformers")
    from transformers import BertConfig, BertModel, BertTokenizerFast

    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    tokenizer = BertTokenizerFast(vocab=str(folder / "vocab.txt"))
    torch.manual_seed(seed)
    sizes |= {"hidden_size": hidden_size, "intermediate_size": 8, "max_position_embeddings": 64}
    config = BertConfig(vocab_size=len(tokenizer), num_hidden_layers=1, num_attention_heads=1, **sizes)
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model = st.SentenceTransformer(str(folder), device="cpu")  # with mean pooling
    model.save(str(folder / "st"), create_model_card=False)
    return folder / "st"
