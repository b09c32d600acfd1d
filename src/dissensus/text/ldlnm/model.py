"""LDL-NM: the paper's neural model.

How a label arises: the item's features are projected, the annotator is embedded, both are fused into one
latent code, and three softmax heads predict the label, the item's label distribution and the annotator's
label distribution (equations in `network.py`). One network is trained on the labels of all annotators; for a
new item, the predictions for all training annotators are averaged.

Beyond the paper: the best epoch on dev is kept, several networks are trained together and averaged, features
have dropout, and a direct path leads from the features to the heads. ``LDLNM(**LDLNM.PAPER)`` is the paper's
network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dissensus import params
from dissensus.engine import Engine
from dissensus.errors import DataError, ParameterError, bad_parameter, require
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import features_of, has_features
from dissensus.labels.vocabulary import Codes
from dissensus.metrics import check_distributions
from dissensus.models.base import Model
from dissensus.numerics import Array, row_shares
from dissensus.params import FLAG, NONE, POSITIVE, Rule, check_rules, choice, fitted, integer, real, setting
from dissensus.text.learners.base import hold_out, to_numpy, torch_threads

if TYPE_CHECKING:
    from dissensus.text.ldlnm.inference import Inferred


def _is_loss_weights(value: Any) -> bool:
    three = isinstance(value, tuple | list) and len(value) == 3
    return three and all(map(real(0.0).holds, value)) and value[0] + value[1] > 0


LOSS_WEIGHTS = Rule("three numbers >= 0, the first or the second above 0", _is_loss_weights)
INFERENCE_RULES = {"rate": POSITIVE} | dict.fromkeys(("decay", "sigma", "tol"), real(0.0))
INFERENCE_RULES |= {"max_steps": integer(1), "n_starts": integer(1), "seed": integer(0), "backtracking": FLAG}
FUSION, DROPOUT = choice("concat", "sum"), real(0.0, 0.99)
BATCHES, REDUCTIONS = choice("items", "labels"), choice("expectation", "mode")


class LDLNM(Model):
    """The paper's neural model of items, annotators and labels; ``LDLNM(**LDLNM.PAPER)`` is its network."""

    item_size: int = setting(128, integer(1), "Size of the projection of an item's features.")
    annotator_size: int = setting(16, integer(1), "Size of an annotator's embedding.")
    _: KW_ONLY
    latent_size: int = setting(64, integer(1), "Size of the latent code that fuses item and annotator.")
    fusion: str = setting("concat", FUSION, '``"concat"``, or ``"sum"`` if both sizes are equal.')
    annotators: bool = setting(True, FLAG, "Whether the network has annotator embeddings.")
    direct: bool = setting(True, FLAG, "Whether a direct path leads from the features to the heads.")
    n_networks: int = setting(3, integer(1), "Number of networks that are trained together and averaged.")
    dropout: float = setting(0.2, DROPOUT, "Dropout rate of the latent code.")
    feature_dropout: float = setting(0.3, DROPOUT, "Dropout rate of the features.")
    rescale: bool = setting(True, FLAG, "Whether features are scaled to a mean squared length of one.")
    loss_weights: tuple[float, float, float] = setting(
        (1.0, 1.0, 1.0), LOSS_WEIGHTS, "Weights of the losses: label, item and annotator distribution."
    )
    epochs: int = setting(200, integer(1), "Maximum number of passes over the labels.")
    patience: int | None = setting(25, *params.EARLY_STOPPING)
    batch_size: int = setting(256, integer(1), "Labels per batch.")
    batch_by: str = setting(
        "items", BATCHES, '``"items"`` keeps the labels of an item together; the paper draws ``"labels"``.'
    )
    learning_rate: float = setting(5e-4, POSITIVE, "Step size of the optimiser.")
    weight_decay: float = setting(1e-4, real(0.0), "Weight decay of the optimiser.")
    dev_size: float = setting(
        0.1, real(0.0, 0.9), "Share of items held out if there is no dev; with 0, the last epoch is kept."
    )
    head: str = setting(
        "item", choice("item", "label"), 'Head that gives distributions: ``"item"`` (ŷ_I) or ``"label"`` (ŷ).'
    )
    reduce: str = setting(
        "expectation", REDUCTIONS, "Mean over annotators, or votes of their most probable classes (mode)."
    )
    weight_by: str = setting("annotators", *params.WEIGHT_BY)
    embedding: str | None = setting(None, *params.EMBEDDING)
    device: str | None = setting(None, *params.DEVICE)
    n_threads: int | None = setting(1, *params.N_THREADS)
    seed: int = setting(0, *params.SEED)

    uses_features = True
    # The paper's settings; its sizes were searched in {3, …, 20}.
    PAPER: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"item_size": 20, "annotator_size": 20, "latent_size": 20, "direct": False, "n_networks": 1}
        | {"dropout": 0.5, "feature_dropout": 0.0, "patience": None, "batch_by": "labels"}
        | {"learning_rate": 1e-3, "weight_decay": 0.0}
    )

    weights_: NDArray[np.float32] = fitted("(weights,): all parameters, network by network")
    features_: NDArray[np.float32] = fitted("(items, features)")
    feature_scale_: Array = fitted("factor of the features, as a 0-d array")
    annotator_load_: NDArray[np.int64] = fitted("(training annotators,): number of labels of each")
    annotator_embeddings_: NDArray[np.float32] = fitted("(annotators, networks · annotator size): z_A")
    known_annotators_: NDArray[np.bool_] = fitted("(annotators,): whether z_A was learned from labels")
    epoch_: NDArray[np.int64] = fitted("(networks,): the epoch kept, from 0; −1 without a dev set")
    n_threads_: NDArray[np.int64] = fitted("number of threads at which the seed replays this fit, 0-d")

    # ---- fitting --------------------------------------------------------------------------------------

    def fit(
        self, labels: Any, features: Any = None, *, dev: Any = None, item_distributions: Any = None
    ) -> Self:
        """Fit the model to labels and the features of their items.

        Parameters
        ----------
        labels
            Labels by annotators.
        features
            One row for each item, in the order of ``labels.items``; by default the features attached to the
            labels, or the embeddings of their ``text`` column.
        dev
            Annotations with features, or a pair of features and distributions, on which the best epoch is
            chosen: by labels if all its items are training items, otherwise by distributions.
        item_distributions
            (items, classes): targets y_I in place of the items' label shares.
        """
        return self._run_fit(labels, features=features, dev=dev, item_distributions=item_distributions)

    def _fit(self, annotations: Annotations, engine: Engine, **data: Any) -> None:
        require("torch", "text")
        from dissensus.text.ldlnm.network import fit_networks

        x = features_of(annotations, self.embedding, features=data["features"])
        y_I, dev = data["item_distributions"], data["dev"]
        y_I = None if y_I is None else check_distributions(y_I, "targets")
        train, labelled = annotations, np.flatnonzero(annotations.counts.sum(axis=1))
        if dev is None and self.dev_size and len(labelled) > 1:
            items = labelled[hold_out(len(labelled), self.seed, self.dev_size)[1]]
            train = annotations.take_rows(~np.isin(annotations.item, items))
            dev = x[items], row_shares(annotations.counts[items])
        fit_networks([self], train, x, y_I, dev, self.seed)
        self.label_distributions_ = self.label_distributions(self.features_)

    def check_params(self) -> None:
        """Check every setting, and that the sizes match."""
        super().check_params()
        if self.fusion == "sum" and self.annotators and self.item_size != self.annotator_size:
            sizes = f"item_size={self.item_size} and annotator_size={self.annotator_size}"
            rule = "adds item and annotator embeddings, whose sizes must be equal"
            raise ParameterError(f"LDLNM with fusion='sum' {rule}; got {sizes}")

    @property
    def _needs_annotators(self) -> bool:  # type: ignore[override]
        """True if class counts, which name no annotators, are not accepted."""
        return self.annotators

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        from dissensus.text.ldlnm.inference import embed_new_annotators

        if has_features(new):
            self.features_ = features_of(new, fitted.embedding)
        else:
            code = fitted.item_vocabulary_.codes(new.item_vocabulary)
            if (code < 0).any():
                problem = f"item {new.items[int(code.argmin())]!r} is new and has no features"
                raise DataError(f"{problem}; attach them with text.with_features")
            self.features_ = fitted.features_[code]
        with torch_threads(self.n_threads):
            embed_new_annotators(self, new, fitted)
        self.label_distributions_ = self.label_distributions(self.features_)

    # ---- prediction -----------------------------------------------------------------------------------

    def label_distributions(
        self,
        features: Any,
        *,
        head: str | None = None,
        reduce: str | None = None,
        weight_by: str | None = None,
        projected: bool = True,
        dropout_seed: int | None = None,
    ) -> Array:
        """Predict distributions (items, classes) from ``features`` or texts, over all training annotators.

        ``head``, ``reduce`` and ``weight_by`` default to the settings of the model. ``dropout_seed`` switches
        dropout on, as the paper did for its error bars. ``projected=False`` omits W_P, as in the paper's
        ensemble equation z = φ(z_I + z_A), z_e = φ(W_E z + z). The network was not trained for it; item,
        annotator and latent size must be equal.
        """
        self._check_weights()
        owner, sizes = "LDLNM.label_distributions", (self.item_size, self.annotator_size, self.latent_size)
        if not projected and (not self.annotators or len(set(sizes)) > 1):
            rule = "True unless item_size, annotator_size and latent_size are equal"
            raise bad_parameter(owner, "projected", rule, projected)
        if not projected and dropout_seed is not None:
            rule = "None with projected=False, which has no z_P"
            raise bad_parameter(owner, "dropout_seed", rule, dropout_seed)
        options = {"head": head, "reduce": reduce, "weight_by": weight_by}
        used = {name: getattr(self, name) if value is None else value for name, value in options.items()}
        check_rules(owner, {name: self._settings[name].rule for name in used}, **used)
        check_rules(owner, {"dropout_seed": integer(0) | NONE}, dropout_seed=dropout_seed)
        import torch

        from dissensus.text.ldlnm.inference import ensemble
        from dissensus.text.ldlnm.network import Network, inputs

        network, x = Network.fitted(self), inputs(self, features)
        stored = np.flatnonzero(self.annotator_load_) if self.annotators else np.zeros(1, np.int64)
        by_labels = self.annotators and used["weight_by"] == "labels"
        mass = self.annotator_load_[stored] if by_labels else np.ones(len(stored))
        shares = torch.tensor(mass / mass.sum(), dtype=torch.float32, device=x.device)
        z_A = network.W_A[:, torch.from_numpy(stored)]
        noise = None if dropout_seed is None else torch.Generator(x.device).manual_seed(dropout_seed)
        with torch_threads(self.n_threads):
            rows = ensemble(network, x, z_A, shares, used["head"], used["reduce"], projected, noise)
        return row_shares(to_numpy(rows).astype(np.float64))

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Use the label head for fitted annotators and items; for others, the mean over all annotators."""
        import torch

        from dissensus.text.ldlnm.inference import pair_distributions
        from dissensus.text.ldlnm.network import Network, inputs

        fitted = (item >= 0) & (annotator >= 0) & self.known_annotators_[annotator] & self.annotators
        probabilities = np.empty((len(item), len(self.class_vocabulary_)))
        if fitted.any():
            items, i = np.unique(item[fitted], return_inverse=True)
            annotators, a = np.unique(annotator[fitted], return_inverse=True)
            x = inputs(self, self.features_[items])
            embeddings = self.annotator_embeddings_[annotators].reshape(len(annotators), self.n_networks, -1)
            arrays = embeddings.swapaxes(0, 1), i, a
            z_A, *pairs = (torch.from_numpy(array).to(x.device) for array in arrays)
            with torch_threads(self.n_threads):
                rows = pair_distributions(Network.fitted(self), x, z_A, pairs, "label")
            probabilities[fitted] = row_shares(to_numpy(rows).astype(np.float64))
        if not fitted.all():
            items, i = np.unique(item[~fitted], return_inverse=True)
            table = np.tile(self.prior_distribution_, (len(items), 1))
            if (items >= 0).any():
                table[items >= 0] = self.label_distributions(self.features_[items[items >= 0]], head="label")
            probabilities[~fitted] = table[i]
        return probabilities

    def infer_annotators(
        self,
        features: Any,
        distributions: Any,
        *,
        rate: float = 0.1,
        decay: float = 1e-3,
        max_steps: int = 200,
        sigma: float = 0.0,
        n_starts: int = 1,
        backtracking: bool = True,
        tol: float = 1e-6,
        seed: int = 0,
    ) -> Inferred:
        """Infer the annotator embedding behind (x, y_I), row by row (iterative inference, Algorithm 4).

        Gradient steps z_A ← z_A − rate ∂KL(y_I ‖ ŷ_I)/∂z_A − decay z_A from zero, or from N(0, sigma) where
        sigma > 0; each row keeps the best of ``n_starts`` (the first from zero). With ``backtracking``, steps
        are halved until the objective KL + decay/(2 rate) ‖z_A‖² does not increase.

        Parameters
        ----------
        features
            (rows, features) of items.
        distributions
            (rows, classes): label distribution of each.
        rate
            Step size.
        decay
            Strength of the pull of embeddings towards zero.
        max_steps
            Maximum number of steps.
        sigma
            Standard deviation of random starts; 0 starts at zero.
        n_starts
            Number of starts.
        backtracking
            Whether steps are halved until the objective does not increase.
        tol
            Stop when no row's objective changes by more than this.
        seed
            Seed of the random starts.
        """
        self._check_weights()
        from dissensus.text.ldlnm.inference import Descent, infer
        from dissensus.text.ldlnm.network import inputs

        if not self.annotators:
            raise ParameterError("LDLNM(annotators=False) has no annotators to infer; set annotators=True")
        targets = check_distributions(distributions, "distributions")
        descent: Any = {"rate": rate, "max_steps": max_steps, "tol": tol, "backtracking": backtracking}
        starts: Any = {"decay": decay, "sigma": sigma, "n_starts": n_starts, "seed": seed}
        check_rules("LDLNM.infer_annotators", INFERENCE_RULES, **descent, **starts)
        with torch_threads(self.n_threads):
            return infer(self, inputs(self, features), targets, Descent(*descent.values()), **starts)

    @property
    def item_embeddings_(self) -> NDArray[np.float32]:
        """z_I of the fitted items, (items, networks · item size)."""
        return self.embed_items(self.features_)

    def embed_items(self, features: Any) -> NDArray[np.float32]:
        """Return z_I of all networks, concatenated: (items, networks · item size).

        Parameters
        ----------
        features
            (items, features).
        """
        self._check_weights()
        from dissensus.text.ldlnm.network import Network, inputs, join

        return join(Network.fitted(self).embed_items(inputs(self, features)))

    def _check_weights(self) -> None:
        if not hasattr(self, "weights_"):
            self._check_fitted()
        require("torch", "text")
