"""A sentence encoder as a file keeps it: weights, and settings out of a closed list.

What the file says is only numbers, the words of the tokeniser, and names that stand in the tables below.
Nothing in it names a class, a module, a file or an address, so reading it imports and fetches nothing that
it chose. Of sentence-transformers' encoders these are a transformer of a known family, pooling, and
normalisation; an encoder with other parts can be trained and used, and is refused when it should be saved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch

from dissensus.errors import DataError, ModelFileError
from dissensus.tables.arrays import Arrays, Header
from dissensus.text.learners.torch_tools import to_numpy

# Families by transformers' names, with the classes of their configuration and network.
FAMILIES = {
    "bert": ("BertConfig", "BertModel"),
    "roberta": ("RobertaConfig", "RobertaModel"),
    "xlm-roberta": ("XLMRobertaConfig", "XLMRobertaModel"),
    "distilbert": ("DistilBertConfig", "DistilBertModel"),
    "mpnet": ("MPNetConfig", "MPNetModel"),
    "electra": ("ElectraConfig", "ElectraModel"),
}
# Settings of these families that decide what a network computes.
SIZES = (
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
    "max_position_embeddings", "type_vocab_size", "embedding_size", "relative_attention_num_buckets",
    "dim", "hidden_dim", "n_heads", "n_layers", "pad_token_id", "bos_token_id", "eos_token_id",
)  # fmt: skip
SHARES = (
    "hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout", "layer_norm_eps",
    "initializer_range",
)  # fmt: skip
CHOICES = {
    "hidden_act": ("gelu", "relu", "silu", "gelu_new"),
    "activation": ("gelu", "relu"),
    "position_embedding_type": ("absolute",),
    "sinusoidal_pos_embds": (False, True),
}
# Settings that have no say in the numbers of an encoder.
IDLE = {
    "transformers_version", "architectures", "dtype", "torch_dtype", "use_cache", "_name_or_path", "id2label",
    "label2id", "gradient_checkpointing", "classifier_dropout", "model_type", "problem_type", "output_past",
    "qa_dropout", "seq_classif_dropout", "summary_type", "summary_use_proj", "summary_activation",
    "summary_last_dropout", "tie_word_embeddings", "tie_weights_", "return_dict", "output_attentions",
    "output_hidden_states", "model_max_length", "tokenizer_class", "mask_token_id", "sep_token_id",
    "cls_token_id", "unk_token_id",
}  # fmt: skip
POOLINGS = ("mean", "cls", "max", "mean_sqrt_len_tokens")
SPECIAL = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token", "bos_token", "eos_token")
INPUTS = ("input_ids", "token_type_ids", "attention_mask")
LARGEST = {"num_hidden_layers": 200, "n_layers": 200}  # a forged file must not ask for an endless network
LARGEST_SIZE = 10**7
WEIGHT, TOKENS = "encoder:", "tokenizer"


class SentenceEncoder(torch.nn.Module):
    """A transformer, pooled over the tokens of a text, and normalised if so asked."""

    def __init__(self, transformer: Any, tokenizer: Any, pooling: str, normalised: bool) -> None:
        super().__init__()
        self.transformer, self.tokenizer = transformer, tokenizer
        self.pooling, self.normalised = pooling, normalised

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def forward(self, tokens: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The embedding of each text, as sentence-transformers' encoders give it."""
        hidden = self.transformer(**tokens).last_hidden_state
        # (texts, tokens, 1): 0 where a text has no token
        mask = tokens["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        if self.pooling == "cls":
            pooled = hidden[:, 0]
        elif self.pooling == "max":
            pooled = hidden.masked_fill(mask == 0, -1e9).amax(dim=1)
        else:
            count = mask.sum(dim=1).clamp(min=1e-9)
            pooled = (hidden * mask).sum(dim=1) / (count if self.pooling == "mean" else count.sqrt())
        return {"sentence_embedding": torch.nn.functional.normalize(pooled) if self.normalised else pooled}


# ---- from an encoder to a file --------------------------------------------------------------------------


def taken_apart(encoder: Any) -> tuple[Header, Arrays]:
    """An encoder as settings and arrays; one that has more to it is refused."""
    own = encoder if isinstance(encoder, SentenceEncoder) else _own(encoder)
    config, tokenizer = own.transformer.config, own.tokenizer
    special = {name: str(text) for name, text in tokenizer.special_tokens_map.items() if name in SPECIAL}
    inputs = [name for name in tokenizer.model_input_names if name in INPUTS]
    settings = {
        "family": config.model_type,
        "network": _network_settings(config),
        "tokens": {"special": special, "inputs": inputs, "padding_side": tokenizer.padding_side},
        "pooling": own.pooling,
        "normalised": own.normalised,
    }
    tensors = own.transformer.state_dict().items()
    weights = {WEIGHT + name: to_numpy(tensor.float()) for name, tensor in tensors}
    return settings, weights | {
        TOKENS: np.frombuffer(tokenizer.backend_tokenizer.to_str().encode(), np.uint8)
    }


def _own(encoder: Any) -> SentenceEncoder:
    """The parts of a sentence-transformers model."""
    parts = list(encoder)
    kinds = [type(part).__name__ for part in parts]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise _cannot(f"has the parts {', '.join(kinds)}")
    how, network = parts[1].get_config_dict()["pooling_mode"], parts[0].auto_model
    if how not in POOLINGS:
        raise _cannot(f"pools by {how!r}")
    if network.config.model_type not in FAMILIES:
        raise _cannot(f"is of the family {network.config.model_type!r}")
    return SentenceEncoder(network, encoder.tokenizer, how, len(kinds) == 3)


def _cannot(what: str) -> DataError:
    known = ", ".join(FAMILIES)
    return DataError(f"the encoder {what}, which no file keeps; train one of {known}, pooled and normalised")


def _network_settings(config: Any) -> Header:
    """The settings that the file keeps; one that matters and is not kept is an error."""
    import transformers

    usual = getattr(transformers, FAMILIES[config.model_type][0])().to_dict()
    given = config.to_dict()
    known = {*SIZES, *SHARES, *CHOICES}
    for name in given.keys() - known - IDLE:
        if given[name] != usual.get(name, given[name]) or (name not in usual and given[name]):
            raise _cannot(f"has the setting {name}={given[name]!r}")
    return {name: given[name] for name in sorted(known & given.keys())}


# ---- and back -------------------------------------------------------------------------------------------


def put_together(settings: Header, arrays: Arrays, device: Any) -> SentenceEncoder:
    """The encoder of a file's settings and arrays, each of them checked against the lists above."""
    import transformers
    from tokenizers import Tokenizer

    if settings["family"] not in FAMILIES or settings["pooling"] not in POOLINGS:
        raise ModelFileError(
            f"an encoder {settings['family']!r}, pooled by {settings['pooling']!r}, is unknown"
        )
    for name, value in settings["network"].items():
        largest = LARGEST.get(name, LARGEST_SIZE)
        if name in SIZES:
            sound = value is None or (type(value) is int and 0 <= value <= largest)
        elif name in SHARES:
            sound = type(value) in (int, float) and 0 <= value <= 1
        else:
            sound = name in CHOICES and value in CHOICES[name]
        if not sound:
            raise ModelFileError(f"an encoder with {name}={json.dumps(value)} is unknown")
    network = _network(settings["family"], settings["network"], arrays)
    tokens, fast_tokenizer = settings["tokens"], cast(Any, transformers.PreTrainedTokenizerFast)
    tokenizer = fast_tokenizer(
        tokenizer_object=Tokenizer.from_str(arrays[TOKENS].tobytes().decode()),
        model_input_names=[name for name in tokens["inputs"] if name in INPUTS],
        padding_side="left" if tokens["padding_side"] == "left" else "right",
        **{name: str(text) for name, text in tokens["special"].items() if name in SPECIAL},
    )
    return SentenceEncoder(network, tokenizer, settings["pooling"], bool(settings["normalised"])).to(device)


def _network(family: str, settings: Header, arrays: Arrays) -> Any:
    """The family's network with the file's weights, which it must need to the last one."""
    import transformers

    configuration, kind = (getattr(transformers, name) for name in FAMILIES[family])
    weights = {name.removeprefix(WEIGHT): array for name, array in arrays.items() if name.startswith(WEIGHT)}
    with torch.device("meta"):  # sizes alone, before there is memory for them
        expected = kind(configuration(**settings)).state_dict()
    if {name: tuple(part.shape) for name, part in expected.items()} != {
        n: a.shape for n, a in weights.items()
    }:
        raise ModelFileError("its weights are not those of an encoder of these sizes")
    network = kind(configuration(**settings))
    network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
    return network.eval()
