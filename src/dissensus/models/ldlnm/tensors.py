"""A fitted LDLNM's arrays as tensors on its device, and tensors as arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dissensus.errors import DataError
from dissensus.features.features import as_features
from dissensus.learners.torch_tools import pick_device, to_numpy
from dissensus.models.ldlnm.network import Shape, Weights
from dissensus.numerics import row_shares

if TYPE_CHECKING:
    from dissensus.models.base import Array
    from dissensus.models.ldlnm.model import LDLNM


def shape_of(model: LDLNM) -> Shape:
    """Sizes and form of the model's networks."""
    return Shape(
        features=model.features_.shape[1],
        annotators=len(model.annotator_load_),
        classes=len(model.class_vocabulary_),
        item_size=model.item_size,
        annotator_size=model.annotator_size if model.annotators else 0,
        latent_size=model.latent_size,
        fusion=model.fusion,
        direct=model.direct,
        networks=model.n_networks,
    )


def weights_of(model: LDLNM) -> Weights:
    """The fitted weights."""
    return Weights(shape_of(model), torch.tensor(model.weights_, device=pick_device(model.device)))


def inputs(model: LDLNM, features: Any) -> Tensor:
    """Features (or texts) as the networks take them."""
    rows = as_features(features, model.embedding)
    if rows.shape[1] != model.features_.shape[1]:
        raise DataError(f"{rows.shape[1]} features came and LDLNM was fitted on {model.features_.shape[1]}")
    return torch.tensor(rows * np.float32(model.feature_scale_), device=pick_device(model.device))


def stored_embeddings(model: LDLNM, w: Weights) -> Tensor:
    """(S, stored annotators, ·): the embeddings of the annotators that trained the networks."""
    if not model.annotators:
        return w["W_A"][:, :1]
    stored = torch.from_numpy(np.flatnonzero(model.annotator_load_)).to(w.flat.device)
    return w["W_A"].index_select(1, stored)


def annotator_shares(model: LDLNM, weight_by: str) -> Tensor:
    """(stored annotators,): each one's say in the ensemble."""
    load = model.annotator_load_[model.annotator_load_ > 0] if model.annotators else np.ones(1)
    mass = load if weight_by == "labels" else np.ones(len(load))
    return torch.tensor(mass / mass.sum(), dtype=torch.float32, device=pick_device(model.device))


def embeddings_of(model: LDLNM, annotator: NDArray[Any]) -> Tensor:
    """(S, rows, annotator size): z_A of annotators by code."""
    rows = model.annotator_embeddings_[annotator].reshape(len(annotator), model.n_networks, -1)
    return torch.tensor(rows.swapaxes(0, 1), device=pick_device(model.device))


def side_by_side(z: Tensor) -> NDArray[Any]:
    """(S, rows, ·) as (rows, S · ·)."""
    return np.ascontiguousarray(np.concatenate(list(to_numpy(z)), axis=1))


def as_rows(chances: Tensor) -> Array:
    """float32 probabilities as float64 rows that sum to one."""
    return row_shares(to_numpy(chances).astype(np.float64))
