"""LDL-NM: the paper's neural model, behind the same interface as the others.

How a label is born: the features of an item are projected, the annotator is embedded, both are fused into one
latent code, and three softmax heads read from it the label, the item's label distribution and the annotator's
(equations in `network.py`). Labels of all annotators train one network; an item nobody has
seen gets its distribution from every stored annotator's answer.

Beyond the paper: the best epoch on dev is kept, several networks are trained side by side and averaged,
features are dropped at random, and a direct path leads from the features to the heads.
``LDLNM(**LDLNM.PAPER)`` is the paper's network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import Engine
from dissensus.errors import DataError, ParameterError, bad_parameter, require
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import carries_features, features_of
from dissensus.labels.vocabulary import Codes
from dissensus.metrics import check_distributions
from dissensus.models.base import Model
from dissensus.numerics import Array, row_shares
from dissensus.params import (
    DEVICE,
    EMBEDDING,
    FLAG,
    N_THREADS,
    NONE,
    PATIENCE,
    POSITIVE,
    SEED,
    WEIGHT_BY,
    Rule,
    check_rules,
    choice,
    fitted,
    integer,
    real,
    setting,
)
from dissensus.text.learners.base import hold_out

if TYPE_CHECKING:
    from dissensus.text.ldlnm.inference import Inferred

LOSS_WEIGHTS = Rule(
    "three numbers >= 0, the first or the second above 0",
    lambda v: (
        isinstance(v, tuple | list) and len(v) == 3 and all(map(real(0.0).holds, v)) and v[0] + v[1] > 0
    ),
)
INFERENCE = {name: real(0.0) for name in ("decay", "sigma", "tol")} | {"rate": POSITIVE, "backtracking": FLAG}
INFERENCE |= {"max_steps": integer(1), "n_starts": integer(1), "seed": integer(0)}
FUSION, DROPPED = choice("concat", "sum"), real(0.0, 0.99)


class LDLNM(Model):
    """The paper's neural model of items, annotators and labels.

    ``LDLNM(**LDLNM.PAPER)`` is the paper's network; what is beyond it is said at the head of the file.
    """

    item_size: int = setting(128, integer(1), "Size of the projection of an item's features.")
    annotator_size: int = setting(16, integer(1), "Size of an annotator's embedding.")
    _: KW_ONLY
    latent_size: int = setting(64, integer(1), "Size of the code that item and annotator are fused into.")
    fusion: str = setting("concat", FUSION, '``"concat"``, or ``"sum"``, where both have one size.')
    annotators: bool = setting(True, FLAG, "False leaves the annotator side out.")
    direct: bool = setting(True, FLAG, "Whether a direct path leads from the features to the heads.")
    n_networks: int = setting(3, integer(1), "Networks that are trained side by side and averaged.")
    dropout: float = setting(0.2, DROPPED, "Share of the latent code that is dropped at random in training.")
    feature_dropout: float = setting(0.3, DROPPED, "Share of the features that is dropped likewise.")
    rescale: bool = setting(True, FLAG, "Whether features are brought to a mean squared length of one.")
    loss_weights: tuple[float, float, float] = setting(
        (1.0, 1.0, 1.0), LOSS_WEIGHTS, "Weights of the losses of label, item and annotator distribution."
    )
    epochs: int = setting(200, integer(1), "Passes over the labels, at most.")
    patience: int | None = setting(25, *PATIENCE)
    batch_size: int = setting(256, integer(1), "Labels in a batch.")
    batch_by: str = setting(
        "items",
        choice("items", "labels"),
        '``"items"`` keeps the labels of an item together; ``"labels"`` draws batches as the paper does.',
    )
    learning_rate: float = setting(5e-4, POSITIVE, "Step size of the optimiser.")
    weight_decay: float = setting(1e-4, real(0.0), "Weight decay of the optimiser.")
    dev_size: float = setting(
        0.1,
        real(0.0, 0.9),
        "Share of the items that serves as dev where none is given; 0: none, and the last epoch is kept.",
    )
    head: str = setting(
        "item",
        choice("item", "label"),
        'Where distributions come from: the ``"item"`` head (ŷ_I) or the ``"label"`` head (ŷ) of all stored '
        "annotators.",
    )
    reduce: str = setting(
        "expectation",
        choice("expectation", "mode"),
        '``"expectation"`` takes the mean over annotators, ``"mode"`` the votes of their best guesses.',
    )
    weight_by: str = setting("annotators", *WEIGHT_BY)
    embedding: str | None = setting(None, *EMBEDDING)
    device: str | None = setting(None, *DEVICE)
    n_threads: int | None = setting(1, *N_THREADS)
    seed: int = setting(0, *SEED)

    uses_features = True
    # The paper's settings; its sizes were searched in {3, …, 20}.
    PAPER: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"item_size": 20, "annotator_size": 20, "latent_size": 20, "direct": False, "n_networks": 1}
        | {"dropout": 0.5, "feature_dropout": 0.0, "patience": None, "batch_by": "labels"}
        | {"learning_rate": 1e-3, "weight_decay": 0.0}
    )

    weights_: NDArray[np.float32] = fitted("(numbers,): network by network in each block")
    features_: NDArray[np.float32] = fitted("(items, features)")
    feature_scale_: Array = fitted("what features are multiplied by, as a 0-d array")
    annotator_load_: NDArray[np.int64] = fitted("(stored annotators,): labels each gave in training")
    annotator_embeddings_: NDArray[np.float32] = fitted("(annotators, networks · annotator size): z_A")
    known_annotators_: NDArray[np.bool_] = fitted("(annotators,): whether z_A was learned from labels")
    epoch_: NDArray[np.int64] = fitted("(networks,): the epoch kept, from 0; −1 without a dev part")
    n_threads_: NDArray[np.int64] = fitted("the thread count at which the seed replays this fit, 0-d")

    # ---- fitting --------------------------------------------------------------------------------------

    def fit(
        self, labels: Any, features: Any = None, *, dev: Any = None, item_distributions: Any = None
    ) -> Self:
        """Learn from labels and the features of their items.

        ``features`` has one row for each item, in the order of ``labels.items``; without it, those that
        the labels carry are taken, or the embeddings of their ``text`` column. ``dev`` is Annotations
        with
        features (or a pair of features and distributions) on which the best epoch is chosen: by its labels
        where all its items are training items, by its distributions otherwise. ``item_distributions``
        (items, classes) replace the items' own label shares y_I as targets.
        """
        return self._run_fit(labels, features=features, dev=dev, item_distributions=item_distributions)

    def _fit(self, annotations: Annotations, engine: Engine, **given: Any) -> None:
        require("torch", "text")
        from dissensus.text.ldlnm.network import fit_networks

        x = features_of(annotations, self.embedding, given=given["features"])
        y_I, dev = given["item_distributions"], given["dev"]
        y_I = None if y_I is None else check_distributions(y_I, "targets")
        kept, labelled = annotations, np.flatnonzero(annotations.counts.sum(axis=1))
        if dev is None and self.dev_size and len(labelled) > 1:
            held = labelled[hold_out(len(labelled), self.seed, self.dev_size)[1]]
            kept = annotations.take_rows(~np.isin(annotations.item, held))
            dev = x[held], row_shares(annotations.counts[held])
        fit_networks([self], kept, x, y_I, dev, self.seed)
        self.label_distributions_ = self.label_distributions(self.features_)

    def check_params(self) -> None:
        """Hold every setting against its rule, and the sizes against each other."""
        super().check_params()
        if self.fusion == "sum" and self.annotators and self.item_size != self.annotator_size:
            raise ParameterError(
                "LDLNM with fusion='sum' adds item and annotator embeddings, which must be of one size; "
                f"got item_size={self.item_size} and annotator_size={self.annotator_size}"
            )

    @property
    def _needs_annotators(self) -> bool:  # type: ignore[override]
        """Whether class counts, which name no annotators, are refused."""
        return self.annotators

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        from dissensus.text.ldlnm.inference import embed_new_annotators
        from dissensus.text.learners.torch_tools import threads

        if carries_features(new):
            self.features_ = features_of(new, fitted.embedding)
        else:
            place = fitted.item_vocabulary_.codes(new.item_vocabulary)
            if (place < 0).any():
                stranger = new.items[int(np.flatnonzero(place < 0)[0])]
                raise DataError(
                    f"item {stranger!r} is new and has no features; attach them with text.with_features"
                )
            self.features_ = fitted.features_[place]
        with threads(self.n_threads):
            embed_new_annotators(self, new, fitted)
        self.label_distributions_ = self.label_distributions(self.features_)

    # ---- asking ---------------------------------------------------------------------------------------

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
        """(items, classes) from ``features`` (or texts) alone: the ensemble of all stored annotators.

        ``head``, ``reduce`` and ``weight_by`` default to the model's own; ``dropout_seed`` leaves dropout on
        as the paper did for its error bars. ``projected=False`` leaves W_P out, as the paper prints the
        ensemble's equation: z = φ(z_I + z_A), z_e = φ(W_E z + z). The network was not trained for it; item,
        annotator and latent size must be one.
        """
        self._check_weights()
        owner, sizes = "LDLNM.label_distributions", (self.item_size, self.annotator_size, self.latent_size)
        if not projected and (not self.annotators or len(set(sizes)) > 1):
            rule = "True unless item_size, annotator_size and latent_size are one"
            raise bad_parameter(owner, "projected", rule, projected)
        if not projected and dropout_seed is not None:
            rule = "None with projected=False, where no z_P is"
            raise bad_parameter(owner, "dropout_seed", rule, dropout_seed)
        replaced = {"head": head, "reduce": reduce, "weight_by": weight_by}
        used = {name: getattr(self, name) if value is None else value for name, value in replaced.items()}
        check_rules(owner, {name: self._settings[name].rule for name in used}, **used)
        check_rules(owner, {"dropout_seed": integer(0) | NONE}, dropout_seed=dropout_seed)
        import torch

        from dissensus.text.ldlnm.inference import ensemble
        from dissensus.text.ldlnm.network import Network, inputs
        from dissensus.text.learners.torch_tools import threads, to_numpy

        network, x = Network.fitted(self), inputs(self, features)
        stored = np.flatnonzero(self.annotator_load_) if self.annotators else np.zeros(1, np.int64)
        by_labels = self.annotators and used["weight_by"] == "labels"
        mass = self.annotator_load_[stored] if by_labels else np.ones(len(stored))
        shares = torch.tensor(mass / mass.sum(), dtype=torch.float32, device=x.device)
        z_A = network.W_A[:, torch.from_numpy(stored)]
        noise = None if dropout_seed is None else torch.Generator(x.device).manual_seed(dropout_seed)
        with threads(self.n_threads):
            rows = ensemble(network, x, z_A, shares, used["head"], used["reduce"], projected, noise)
        return row_shares(to_numpy(rows).astype(np.float64))

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """The label head for annotators it knows; for others, and for unknown items, the crowd's answer."""
        import torch

        from dissensus.text.ldlnm.inference import pair_distributions
        from dissensus.text.ldlnm.network import Network, inputs
        from dissensus.text.learners.torch_tools import threads, to_numpy

        known = (item >= 0) & (annotator >= 0) & self.known_annotators_[annotator] & self.annotators
        chances = np.empty((len(item), len(self.class_vocabulary_)))
        if known.any():
            items, i = np.unique(item[known], return_inverse=True)
            annotators, a = np.unique(annotator[known], return_inverse=True)
            x = inputs(self, self.features_[items])
            embeddings = self.annotator_embeddings_[annotators].reshape(len(annotators), self.n_networks, -1)
            arrays = embeddings.swapaxes(0, 1), i, a
            z_A, of_item, of_annotator = (torch.from_numpy(array).to(x.device) for array in arrays)
            with threads(self.n_threads):
                rows = pair_distributions(Network.fitted(self), x, z_A, of_item, of_annotator, "label")
            chances[known] = row_shares(to_numpy(rows).astype(np.float64))
        if not known.all():
            items, i = np.unique(item[~known], return_inverse=True)
            table = np.tile(self.prior_distribution_, (len(items), 1))
            if (items >= 0).any():
                table[items >= 0] = self.label_distributions(self.features_[items[items >= 0]], head="label")
            chances[~known] = table[i]
        return chances

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
        """Iterative inference (the paper's Algorithm 4): the annotator embedding behind (x, y_I), row by row.

        Gradient steps z_A ← z_A − rate ∂KL(y_I ‖ ŷ_I)/∂z_A − decay z_A from zero, or from N(0, sigma) where
        sigma > 0; of ``n_starts`` (the first from zero) each row keeps its best. Ends when no row's objective
        moves by more than ``tol``. With ``backtracking``, steps are halved until the objective
        KL + decay/(2 rate) ‖z_A‖² does not rise.

        Parameters
        ----------
        features
            (rows, features) of items.
        distributions
            (rows, classes): what is said of each.
        rate
            Step size.
        decay
            How strongly embeddings are drawn to zero.
        max_steps
            The most steps.
        sigma
            Spread of random starts; 0 starts at zero.
        n_starts
            Starts, of which each row keeps the best.
        backtracking
            Whether steps are halved until the objective does not rise.
        tol
            It ends when no row's objective moves by more than this.
        seed
            Seed of the random numbers. The same seed gives the same result, to the last bit.
        """
        self._check_weights()
        from dissensus.text.ldlnm.inference import Descent, infer
        from dissensus.text.ldlnm.network import inputs
        from dissensus.text.learners.torch_tools import threads

        if not self.annotators:
            raise ParameterError(
                "LDLNM(annotators=False) has no annotator to infer; fit with annotators=True"
            )
        targets = check_distributions(distributions, "distributions")
        settings = {
            "rate": rate,
            "decay": decay,
            "max_steps": max_steps,
            "sigma": sigma,
            "n_starts": n_starts,
        }
        settings |= {"backtracking": backtracking, "tol": tol, "seed": seed}
        check_rules("LDLNM.infer_annotators", INFERENCE, **settings)
        how = Descent(rate, max_steps, tol, backtracking)
        with threads(self.n_threads):
            return infer(self, inputs(self, features), targets, decay, sigma, n_starts, seed, how)

    @property
    def item_embeddings_(self) -> NDArray[np.float32]:
        """(items, networks · item size): z_I of the items at hand."""
        return self.embed_items(self.features_)

    def embed_items(self, features: Any) -> NDArray[np.float32]:
        """(items, networks · item size): z_I, the networks' side by side.

        Parameters
        ----------
        features
            (items, features).
        """
        self._check_weights()
        from dissensus.text.ldlnm.network import Network, inputs, side_by_side

        return side_by_side(Network.fitted(self).embed_items(inputs(self, features)))

    def _check_weights(self) -> None:
        if not hasattr(self, "weights_"):
            self._check_fitted()
        require("torch", "text")
