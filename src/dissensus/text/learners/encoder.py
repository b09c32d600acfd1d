"""Saving and loading a sentence encoder as weights and settings from a closed list.

A file contains numbers, the vocabulary of the tokenizer, and names from the tables below. It never names a
class, a module, a file or an address, so loading it cannot import or fetch anything of the file's choice.
Supported encoders consist of a transformer of a known family, pooling, and optionally normalisation. An
encoder with other parts can be trained and used, but not saved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch

from dissensus.errors import DataError, ModelFileError
from dissensus.tables.arrays import Arrays, Header
from dissensus.text.learners.base import to_numpy

# Model families of transformers, and how the names of their classes begin.
ENCODER_FAMILIES = {
    "bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "distilbert": "DistilBert",
    "mpnet": "MPNet", "electra": "Electra",
}  # fmt: skip
# Settings that determine what a network computes.
SIZES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "type_vocab_size", "embedding_size", "relative_attention_num_buckets",
    "dim", "hidden_dim", "n_heads", "n_layers", "pad_token_id", "bos_token_id", "eos_token_id",
)  # fmt: skip
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout")
FRACTIONS = (*DROPOUTS, "layer_norm_eps", "initializer_range")
OPTIONS = {
    "hidden_act": ("gelu", "relu", "silu", "gelu_new"),
    "activation": ("gelu", "relu"),
    "position_embedding_type": ("absolute",),
    "sinusoidal_pos_embds": (False, True),
}
# Settings that do not affect the embeddings.
IGNORED_SETTINGS = {
    "transformers_version", "architectures", "dtype", "torch_dtype", "use_cache", "_name_or_path", "id2label",
    "label2id", "gradient_checkpointing", "classifier_dropout", "model_type", "problem_type", "output_past",
    "qa_dropout", "seq_classif_dropout", "summary_type", "summary_use_proj", "summary_activation",
    "summary_last_dropout", "tie_word_embeddings", "tie_weights_", "return_dict", "output_attentions",
    "output_hidden_states", "model_max_length", "tokenizer_class", "mask_token_id", "sep_token_id",
    "cls_token_id", "unk_token_id",
}  # fmt: skip
POOLINGS = ("mean", "cls", "max", "mean_sqrt_len_tokens")
SPECIAL_TOKENS = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token", "bos_token", "eos_token")
TOKENIZER_INPUTS = ("input_ids", "token_type_ids", "attention_mask")
MAX_LAYERS = {"num_hidden_layers": 200, "n_layers": 200}  # protects against forged files
MAX_SIZE = 10**7
WEIGHT_PREFIX, TOKENIZER_KEY = "encoder:", "tokenizer"


class SentenceEncoder(torch.nn.Module):
    """A transformer with pooling over the tokens of a text and optional normalisation."""

    def __init__(self, transformer: Any, tokenizer: Any, pooling: str, normalised: bool) -> None:
        super().__init__()
        self.transformer, self.tokenizer = transformer, tokenizer
        self.pooling, self.normalised = pooling, normalised

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device

    def forward(self, tokens: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Embed texts in the format of sentence-transformers."""
        hidden = self.transformer(**tokens).last_hidden_state
        # (texts, tokens, 1): 0 for padding
        mask = tokens["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        if self.pooling == "cls":
            pooled = hidden[:, 0]
        elif self.pooling == "max":
            pooled = hidden.masked_fill(mask == 0, -1e9).amax(dim=1)
        else:
            count = mask.sum(dim=1).clamp(min=1e-9)
            pooled = (hidden * mask).sum(dim=1) / (count if self.pooling == "mean" else count.sqrt())
        return {"sentence_embedding": torch.nn.functional.normalize(pooled) if self.normalised else pooled}


def pack_encoder(encoder: Any) -> tuple[Header, Arrays]:
    """Return the settings and arrays of an encoder, or raise an error if it has unsupported parts."""
    supported = encoder if isinstance(encoder, SentenceEncoder) else _convert(encoder)
    config, tokenizer = supported.transformer.config, supported.tokenizer
    tokens = tokenizer.special_tokens_map.items()
    special = {name: str(text) for name, text in tokens if name in SPECIAL_TOKENS}
    inputs = [name for name in tokenizer.model_input_names if name in TOKENIZER_INPUTS]
    settings = {"family": config.model_type, "network": _network_settings(config)}
    settings["tokens"] = {"special": special, "inputs": inputs, "padding_side": tokenizer.padding_side}
    settings |= {"pooling": supported.pooling, "normalised": supported.normalised}
    tensors = supported.transformer.state_dict().items()
    arrays = {WEIGHT_PREFIX + name: to_numpy(tensor.float()) for name, tensor in tensors}
    arrays[TOKENIZER_KEY] = np.frombuffer(tokenizer.backend_tokenizer.to_str().encode(), np.uint8)
    return settings, arrays


def _convert(encoder: Any) -> SentenceEncoder:
    """Convert a sentence-transformers model."""
    parts = list(encoder)
    kinds = [type(part).__name__ for part in parts]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise _unsupported(f"has the parts {', '.join(kinds)}")
    pooling, network = parts[1].get_config_dict()["pooling_mode"], parts[0].auto_model
    if pooling not in POOLINGS:
        raise _unsupported(f"uses {pooling!r} pooling")
    if network.config.model_type not in ENCODER_FAMILIES:
        raise _unsupported(f"belongs to the family {network.config.model_type!r}")
    return SentenceEncoder(network, encoder.tokenizer, pooling, len(kinds) == 3)


def _unsupported(reason: str) -> DataError:
    remedy = f"use one of {', '.join(ENCODER_FAMILIES)}, pooled and normalised"
    return DataError(f"the encoder {reason}, which cannot be saved; {remedy}")


def _network_settings(config: Any) -> Header:
    """Return the settings to save, or raise an error if another setting affects the embeddings."""
    import transformers

    defaults = getattr(transformers, f"{ENCODER_FAMILIES[config.model_type]}Config")().to_dict()
    settings = config.to_dict()
    saved = {*SIZES, *FRACTIONS, *OPTIONS}
    for name in settings.keys() - saved - IGNORED_SETTINGS:
        if settings[name] != defaults.get(name, settings[name]) or (name not in defaults and settings[name]):
            raise _unsupported(f"has the setting {name}={settings[name]!r}")
    return {name: settings[name] for name in sorted(saved & settings.keys())}


def unpack_encoder(settings: Header, arrays: Arrays, device: Any) -> SentenceEncoder:
    """Build an encoder from the settings and arrays of a file, which are checked first."""
    import transformers
    from tokenizers import Tokenizer

    family, pooling = settings["family"], settings["pooling"]
    if family not in ENCODER_FAMILIES or pooling not in POOLINGS:
        raise ModelFileError(f"an encoder {family!r} with {pooling!r} pooling is unknown")
    for name, value in settings["network"].items():
        if name in SIZES:
            valid = value is None or (type(value) is int and 0 <= value <= MAX_LAYERS.get(name, MAX_SIZE))
        elif name in FRACTIONS:
            valid = type(value) in (int, float) and 0 <= value <= 1
        else:
            valid = name in OPTIONS and value in OPTIONS[name]
        if not valid:
            raise ModelFileError(f"an encoder with {name}={json.dumps(value)} is unknown")
    network = _network(family, settings["network"], arrays)
    tokens, fast_tokenizer = settings["tokens"], cast(Any, transformers.PreTrainedTokenizerFast)
    tokenizer = fast_tokenizer(
        tokenizer_object=Tokenizer.from_str(arrays[TOKENIZER_KEY].tobytes().decode()),
        model_input_names=[name for name in tokens["inputs"] if name in TOKENIZER_INPUTS],
        padding_side="left" if tokens["padding_side"] == "left" else "right",
        **{name: str(text) for name, text in tokens["special"].items() if name in SPECIAL_TOKENS},
    )
    return SentenceEncoder(network, tokenizer, pooling, bool(settings["normalised"])).to(device)


def _network(family: str, settings: Header, arrays: Arrays) -> Any:
    """Build a network with the weights of a file, whose names and shapes must match exactly."""
    import transformers

    parts = ("Config", "Model")
    configuration, kind = (getattr(transformers, f"{ENCODER_FAMILIES[family]}{part}") for part in parts)
    start = len(WEIGHT_PREFIX)
    weights = {name[start:]: array for name, array in arrays.items() if name.startswith(WEIGHT_PREFIX)}
    with torch.device("meta"):  # shapes only, before memory is allocated
        expected = kind(configuration(**settings)).state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in expected.items()}
    if shapes != {name: array.shape for name, array in weights.items()}:
        raise ModelFileError("its weights do not match an encoder of these sizes")
    network = kind(configuration(**settings))
    network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
    return network.eval()
