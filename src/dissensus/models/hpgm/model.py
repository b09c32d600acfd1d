"""HPGM: the paper's graphical model made fully Bayesian, with the uncertainty of every answer.

The generative model and the sampler are described in sampler.py: items and annotators have clusters,
as in PGM; each annotator has distributions that vary around those of their cluster, and each item a
distribution that varies around that of its cluster; the amount of variation and the number of clusters are
learned. FMM, smoothed counts, Dawid–Skene's matrices, CBCC and PGM are limits of it.

The answer for an item is the mean of the population's answer over the draws of several chains, apart from the
adjustments of adjustments.py; its interval is given by two quantiles of the draws. Numbers of clusters are
upper bounds, so that nothing has to be searched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, replace
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dissensus.engine import Engine
from dissensus.errors import DataError, require, warn
from dissensus.labels import as_annotations
from dissensus.labels.annotations import Annotations
from dissensus.labels.attributes import Attribute, as_text, attributes_of
from dissensus.labels.features import features_of
from dissensus.labels.rows import as_texts, find_rows, join_labels, rows_with_values, without_repeated
from dissensus.labels.vocabulary import Codes
from dissensus.models import sampled
from dissensus.models.hpgm import adjustments, sampler
from dissensus.models.hpgm.adjustments import Aliases
from dissensus.models.hpgm.attributes import AttributeCells
from dissensus.models.hpgm.posterior import QUANTITIES, Chain, Draws
from dissensus.models.hpgm.sampler import Data, GibbsState
from dissensus.models.results import ClusterView
from dissensus.models.sampled import SampledModel
from dissensus.models.scoring import fitted_codes, recode_classes, unfitted_rows
from dissensus.numerics import Array, row_shares
from dissensus.params import EMBEDDING, N_JOBS, NONE, SEED, WEIGHT_BY, Rule, fitted, flag, integer, setting
from dissensus.tables.arrays import Arrays, Header

# Number and sweeps of chains: more and shorter ones from 10,000 labels on.
CHAINS, MORE_CHAINS, SWEEPS, FEWER_SWEEPS, MANY_LABELS = 8, 16, 200, 100, 10_000
MAX_DRAW_NUMBERS = 12_000_000  # array elements of ``draws_``, over all chains
MIN_DRAWS, MAX_DRAWS = 8, 48  # whole draws stored
MAX_EXTENDED_NUMBERS = 100_000_000  # array elements stored about items that were not sampled
MAX_CO_CLUSTERED = 5_000  # annotators in one table of co-clustering probabilities
ATTRIBUTES = Rule(
    "a list of columns",
    lambda v: isinstance(v, list | tuple) and all(isinstance(x, str) for x in v) and bool(v),
)
STATE_NUMBERS = ("r", "s", "q", "a", "gamma", "tau", "lam", "trust", "kappa")
LastStates = dict[str, Any]  # last states of chains to resume, by model
REPRESENT = Rule(
    "a mapping of annotator columns to values", lambda v: isinstance(v, Mapping) and bool(v) and all(v)
)


def draw_numbers(M: int, N: int, P: int, K: int, L: int) -> int:
    """Return the number of array elements of a whole draw."""
    return M * (K + P) + N * (P * K + K + 1) + K * L * P + 3 * K * P


class HPGM(SampledModel):
    """Clusters of items and annotators with individual variation, sampled by Gibbs; part of the default.

    Intervals are quantiles of posterior draws. ``run_difference_`` says how far another run would move the
    answers, and ``rhat_`` how far single chains agree about ``quantities_``. With ``use_features``, a
    regression of labels on features (DirichletRegression, without the labels of the item itself) counts as
    extra labels of each item.

    With ``adjust``, answers deviate from the posterior mean in three ways. Annotators who are found to be
    copies of one person or model under several names (aliases) count once, and a repeated label counts once
    where no item has labels by two annotators. In that case every answer is also averaged with the item's
    counts, shrunk to the overall shares. The share of a unanimous answer (five or more labels) is raised to
    at least 0.6, unless ``represent`` is given. Draws and intervals are adjusted too. With ``adjust=False``,
    every name is a separate annotator, and ``label_distributions_`` is the posterior mean.
    """

    n_item_clusters: int = setting(20, integer(1), "Maximum number of item clusters; some may stay empty.")
    n_annotator_clusters: int = setting(20, integer(1), "Maximum number of annotator clusters.")
    _: KW_ONLY
    n_chains: int | None = setting(
        None,
        integer(1) | NONE,
        "Number of chains in a round; None is 8, or 16 from 10,000 labels on. Rounds are added until "
        "another run would hardly differ.",
    )
    n_sweeps: int | None = setting(
        None,
        integer(10) | NONE,
        "Sweeps of each chain; None is 200, or 100 from 10,000 labels on. The first two fifths are "
        "burn-in; every third of the others is stored.",
    )
    weight_by: str = setting("labels", *WEIGHT_BY)
    represent: Mapping[str, Any] | None = setting(
        None,
        REPRESENT | NONE,
        'Population to estimate, by columns of the annotator table: ``{"country": "DE"}``. Labels of the '
        "other annotators still inform about the items.",
    )
    max_sampled: int = setting(
        100_000, integer(1), "With more labels, a random subset of items is sampled; others follow from it."
    )
    attributes: Sequence[str] | None = setting(
        None,
        ATTRIBUTES | NONE,
        "Columns of the annotator table on which the clusters of annotators may depend, for "
        ":meth:`predict_for`; how much they do is learned.",
    )
    use_features: bool = flag(
        False, "Whether features or texts of the items inform their clusters; their weight is learned."
    )
    embedding: str | None = setting(None, *EMBEDDING)
    adjust: bool = flag(
        True,
        "Whether to count aliases once, shrink single labels and raise unanimous shares; False: none of it.",
    )
    seed: int = setting(0, *SEED)
    n_jobs: int = setting(
        -1,
        N_JOBS[0],
        "Number of threads; −1 takes all cores, or one for chains about fewer than 10,000 labels. The result "
        "does not depend on it.",
    )

    _chains_are = Chain, GibbsState, "chain"
    _threaded_labels = MANY_LABELS
    _draw_arrays = (*SampledModel._draw_arrays, "draws_", "last_states_")
    _needs_annotators = True
    _sizes_are_bounds = True
    _memory_tables = {"MP": 20, "MK": 10, "NKP": 12, "E": 4, "MD": 4}
    quantities_ = QUANTITIES

    draws_: Draws = fitted("stored draws, chain after chain", saved=False)
    last_states_: tuple[GibbsState, ...] = fitted("last state of each chain, if resumable", saved=False)
    attribute_values_: list[Attribute] = fitted("the values of ``attributes``", saved=False)
    annotator_weights_: Array = fitted("(N,): weight of each annotator in the population")
    learned_rows_: NDArray[np.int32] = fitted("(3, labels): codes of item, annotator, class")
    hint_weights_: Array = fitted("(features + 1, P): weights of the regression on features; empty without")
    hint_mean_: Array = fitted("(P + 1,): its mean prediction, and its weight in labels")

    @property
    def uses_features(self) -> bool:  # type: ignore[override]
        """True if the model also learns from features of the items."""
        return self.use_features

    def memory_needed(self, labels: Annotations, n_threads: int = 1, features: Any = None) -> int:
        """Estimate the memory of a fit in bytes, with the draws of all chains and of items not sampled."""
        needed = super().memory_needed(labels, n_threads, features)
        M, N, P = labels.n_items, labels.n_annotators, labels.n_classes
        K, L = min(self.n_item_clusters, M), min(self.n_annotator_clusters, N)
        n_chains, n_sweeps = self._chains_and_sweeps(labels)
        n_items = max(round(M * min(1.0, self.max_sampled / max(labels.n_labels, 1))), 1)
        n_draws = n_sweeps * 3 // 5 // sampled.SWEEPS_PER_DRAW
        n_shares, n_stored = self._n_stored((n_items, N, P, K, L), n_chains, n_draws)
        # draws of all chains, twice when they are concatenated
        stored = n_shares * n_items * P + n_stored * draw_numbers(n_items, N, P, K, L)
        needed += 2 * 4 * sampled.MAX_ROUNDS * n_chains * stored
        if labels.n_labels <= self.max_sampled:
            return needed
        numbers = M * (self.n_item_clusters + 2 * P)  # per draw, about items
        n_draws = min(MAX_DRAWS, max(MIN_DRAWS, MAX_EXTENDED_NUMBERS // numbers))
        batch_share = min(1.0, sampled.EXTENDED_LABELS / labels.n_labels)
        # copies of all items, and of the batches of the threads
        return needed + int(4 * n_draws * numbers * (1 + n_threads * batch_share))

    # ---- fitting --------------------------------------------------------------------------------------

    def fit(self, labels: Any, features: Any = None) -> Self:
        """Fit to labels, and with ``use_features`` to features of their items.

        ``features`` has one row per item, in the order of ``labels.items``; by default, the features attached
        to the labels are used, or embeddings of their ``text`` column.
        """
        return self._run_fit(labels, features=features)

    def _fit(
        self, annotations: Annotations, engine: Engine, last: LastStates | None = None, features: Any = None
    ) -> None:
        aliases = Aliases.of(annotations, self.adjust)
        labels = aliases.annotations
        self.hint_weights_, self.hint_mean_ = np.zeros((0, 0)), np.zeros(0)
        hints = self._learn_hints(labels, features) if self.use_features else None
        self.attribute_values_ = attributes_of(annotations, self.attributes) if self.attributes else []
        self.annotator_weights_ = self._annotator_weights(labels)
        counted = {
            key: [state.take(aliases.named, aliases.rows) for state in states]
            for key, states in (last or {}).items()
        }
        self._sample_posterior(labels, engine, counted, hints)
        # adjustments relative to the posterior mean (adjustments.py)
        if self.adjust and not adjustments.shares_items(labels.item, labels.annotator):
            adjustments.shrink_single_labels(self, labels.counts)
        self._floor_unanimous(labels.counts)
        if len(aliases.rows) < annotations.n_labels:
            self._copy_to_aliases(annotations, aliases)

    def _sample_posterior(
        self, labels: Annotations, engine: Engine, last: LastStates, hints: Array | None
    ) -> None:
        """Sample chains about all items, or about a subset of very many; set the answers and their draws."""
        self.sampled_ = sampled.sampled_items(labels, self.max_sampled, self.seed)
        is_part, part = len(self.sampled_) < labels.n_items, labels
        states: Sequence[GibbsState] = last.get("clusters", ())
        if is_part:
            states, part = (), labels.take_items(self.sampled_)
        part_hints = None if hints is None else hints[self.sampled_]
        data = Data.of_labels(part, part_hints, self._attribute_cells(labels))
        chains = self._sample_chains(data, *self._chains_and_sweeps(part), engine, states)
        # the posterior mean, and draws
        n_draws = len(chains) * chains[0].n_draws
        self.label_distributions_ = np.sum([chain.answers for chain in chains], axis=0) / n_draws
        self.prior_distribution_ = np.sum([chain.prior for chain in chains], axis=0) / n_draws
        self.draws_ = Draws.joined([chain.draws for chain in chains])
        self.learned_rows_ = np.stack([data.item, data.annotator, data.label])
        self._store_chains(chains, labels.n_items)
        if is_part:
            self._extend_to_unsampled(labels, hints, engine)

    def _copy_to_aliases(self, annotations: Annotations, aliases: Aliases) -> None:
        """Copy the results of an annotator to all aliases, which share its weight in the population."""
        draws, code = self.draws_, aliases.code
        fields = {name: getattr(draws, name).take(code, axis=1) for name in ("matrices", "sizes", "z")}
        self.draws_ = replace(draws, **fields)
        states = []
        for state in self.last_states_:
            from_item = np.zeros(annotations.n_labels, dtype=bool)
            from_item[aliases.rows] = state.from_item
            states.append(replace(state, z=state.z[code], from_item=from_item))
        self.last_states_ = tuple(states)
        self.learned_rows_ = np.stack(annotations.columns).astype(np.int32)
        self.annotator_weights_ = (self.annotator_weights_ / np.bincount(code))[code]

    def _sweep(self, chain: Chain, data: Data, i: int, n_burn: int, rng: Generator) -> None:
        chain.state = sampler.sweep(chain.state, data, rng)
        draw, rest = divmod(i - n_burn, sampled.SWEEPS_PER_DRAW)
        if draw >= 0 and not rest:
            chain.record(draw, data, self.annotator_weights_, rng)

    def _chains_and_sweeps(self, labels: Annotations | Data) -> tuple[int, int]:
        """Return the number of chains of a round, and of sweeps of each."""
        few = labels.n_labels < MANY_LABELS
        defaults = (CHAINS, SWEEPS) if few else (MORE_CHAINS, FEWER_SWEEPS)
        return self.n_chains or defaults[0], self.n_sweeps or defaults[1]

    def _start_chain(self, data: Data, state: GibbsState | None, n_draws: int, number: int) -> Chain:
        """Return a chain with room for ``n_draws`` draws; ``state`` None draws a start."""
        M, N, P = data.M, data.N, data.P
        K, L = min(self.n_item_clusters, M), min(self.n_annotator_clusters, N)
        if state is None:
            rng = np.random.default_rng([self.seed, number])
            state = sampler.start(data, K, L, rng, number)
        K, L, _ = state.theta.shape
        n_chains, _ = self._chains_and_sweeps(data)
        n_shares, n_stored = self._n_stored((M, N, P, K, L), n_chains, n_draws)
        sums, shares = (np.zeros((M, P)), np.zeros(P)), np.zeros((n_shares, M, P), np.float32)
        trace = np.zeros((n_shares, len(QUANTITIES)))
        return Chain(state, n_draws, *sums, shares, trace, Draws.empty(n_stored, data, K, L))

    def _n_stored(self, sizes: tuple[int, ...], n_chains: int, n_draws: int) -> tuple[int, int]:
        """Return how many draws of the answers, and how many whole draws, a chain stores."""
        least, most = -(-MIN_DRAWS // n_chains), -(-MAX_DRAWS // n_chains)
        M, _, P, _, _ = sizes
        fitting = sampled.MAX_SHARE_NUMBERS // (M * P * n_chains)
        n_shares = max(least, min(sampled.SHARE_DRAWS // n_chains, fitting))
        n_whole = max(least, min(most, MAX_DRAW_NUMBERS // (draw_numbers(*sizes) * n_chains)))
        return min(n_draws, n_shares), min(n_draws, n_shares, n_whole)

    def _annotator_weights(self, labels: Annotations) -> Array:
        """Return (N,) weights of the annotators in the population: by labels, or equal."""
        load = labels.annotator_load
        if self.represent:
            load = load * rows_with_values(labels.annotator_table, self.represent, "annotator")
            if not load.any():
                raise DataError("none of the annotators in represent gave a label; choose another group")
        counts = load if self.weight_by == "labels" else (load > 0).astype(np.int64)
        return np.asarray(counts / max(counts.sum(), 1))

    def _attribute_cells(self, labels: Annotations) -> AttributeCells | None:
        """Return the values of the attributes of annotators; None without ``attributes``."""
        return AttributeCells.of(labels, self.attribute_values_) if self.attributes else None

    def _learn_hints(self, labels: Annotations, features: Any) -> Array:
        """Return (items, classes) S (h_m − h̄), with h_m the prediction for item m without its labels."""
        from dissensus.models.dirichlet_regression import DirichletRegression

        regression = DirichletRegression(embedding=self.embedding, seed=self.seed).fit(labels, features)
        mean, size = regression.item_means_.mean(axis=0), float(regression.concentration_)
        self.hint_weights_ = np.vstack([regression.coef_, regression.intercept_])
        self.hint_mean_ = np.append(mean, size)
        return np.asarray(size * (regression.item_means_ - mean))

    def _extend_to_unsampled(self, labels: Annotations, hints: Array | None, engine: Engine) -> None:
        """Answer the items that were not sampled, in batches, given the draws about the others."""
        M, N, P = labels.n_items, labels.n_annotators, labels.n_classes
        T = max(MIN_DRAWS, MAX_EXTENDED_NUMBERS // (M * (self.n_item_clusters + 2 * P)))
        T = min(len(self.draws_), T)
        draws = self.draws_.take(sampled.evenly_spaced(T, len(self.draws_)))
        annotator = np.where(np.bincount(self.learned_rows_[1], minlength=N) > 0, np.arange(N), -1)
        parts = sampled.item_batches(labels, np.setdiff1d(np.arange(M), self.sampled_))

        answers, shares = np.zeros((M, P)), np.zeros((T, M, P), np.float32)
        beliefs, rho = np.zeros((T, M, draws.psi.shape[1]), np.float32), np.zeros((T, M, P), np.float32)
        answers[self.sampled_] = self.label_distributions_
        shares[:, self.sampled_] = self.share_draws_[sampled.evenly_spaced(T, len(self.share_draws_))]
        beliefs[:, self.sampled_], rho[:, self.sampled_] = draws.beliefs, draws.rho

        def extend(number: int) -> None:
            items = parts[number]
            part_hints = None if hints is None else hints[items]
            data = Data.of_labels(labels.take_items(items), part_hints, self._attribute_cells(labels))
            unknown = np.full(len(items), -1)
            new, sums, shares[:, items] = draws.extended(data, unknown, annotator, self.seed, number)
            answers[items], beliefs[:, items], rho[:, items] = row_shares(sums), new.beliefs, new.rho

        engine.map(extend, range(len(parts)))
        self.label_distributions_, self.share_draws_ = answers, shares
        self.draws_ = replace(draws, beliefs=beliefs, rho=rho)
        self.learned_rows_ = np.stack(labels.columns).astype(np.int32)
        self.last_states_ = ()  # the chains cover only a subset of the items

    def _floor_unanimous(self, counts: NDArray[np.int64]) -> None:
        if self.adjust and not self.represent:  # the unanimous annotators may not be those represented
            adjustments.floor_unanimous(self, counts)

    # ---- more labels ------------------------------------------------------------------------------------

    @property
    def can_continue(self) -> bool:
        """True if there are chains that :meth:`update` can resume."""
        return bool(self.last_states_) and not self.use_features and not self.attributes

    def update(self, new: Any) -> Self:
        """Add labels to this model: resume the chains, for a sixth of the sweeps of a fit.

        ``new`` holds labels of old or new items and annotators; its classes must be those of the fit. Labels
        that the fit already has are skipped.
        """
        self._check_fitted()
        if not self.last_states_:
            raise DataError(
                "there are no chains to resume: this model comes from apply, or was fitted to more than "
                "max_sampled labels; fit all labels again"
            )
        if self.use_features:
            raise DataError("runs store no features of items, so this model cannot be updated; fit again")
        if self.attributes:
            raise DataError("models with attributes of annotators cannot be updated; fit all labels again")
        labels = recode_classes(as_annotations(new), self.class_vocabulary_)
        merged, last = self._with_labels(without_repeated(self.training_labels(), labels, "the fit"))
        return self._run_fit(merged, last=last)

    def _with_labels(self, new: Annotations) -> tuple[Annotations, LastStates]:
        """Return the labels of the fit with ``new``, and the last states extended to them."""
        old = self.training_labels()
        merged = join_labels(old, new)
        item = merged.item_vocabulary.codes(self.item_vocabulary_)
        annotator = merged.annotator_vocabulary.codes(self.annotator_vocabulary_)
        if self.represent:
            merged = self._with_represented(merged, new, annotator)
        rows = find_rows((item[old.item], annotator[old.annotator], old.label), merged.columns)
        shape = merged.n_items, merged.n_annotators, merged.n_labels
        streams = [np.random.default_rng([self.seed, n, 1 << 22]) for n in range(len(self.last_states_))]
        chains = zip(self.last_states_, streams, strict=True)
        states = [sampler.extend_state(state, item, annotator, rows, shape, rng) for state, rng in chains]
        return merged, {"clusters": states}

    def _with_represented(self, merged: Annotations, new: Annotations, annotator: Codes) -> Annotations:
        """Add an annotator table of who is represented: as in the fit, and new ones by their table."""
        assert self.represent is not None
        represented = np.zeros(merged.n_annotators, dtype=bool)
        represented[annotator] = self.annotator_weights_ > 0
        if new.annotator_table is not None:
            codes = merged.annotator_vocabulary.codes(new.annotator_vocabulary)
            represented[codes] = rows_with_values(new.annotator_table, self.represent, "annotator")
        first = {name: as_texts(value)[0] for name, value in self.represent.items()}
        columns = {name: [value if yes else None for yes in represented] for name, value in first.items()}
        return merged.with_tables(annotators={"annotator": merged.annotators, **columns})

    def training_labels(self) -> Annotations:
        """Return the labels of the fit."""
        self._check_fitted()
        item, annotator, label = self.learned_rows_.copy()
        ids = self.item_vocabulary_, self.annotator_vocabulary_, self.class_vocabulary_
        labels = Annotations(item, annotator, label, *ids)
        return replace(labels, frame_kind=self.frame_kind_, label_type=self.label_type_)

    # ---- new items and annotators ---------------------------------------------------------------------

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Sample new items and annotators given the draws of the fit; others keep their results.

        Labels between an item and an annotator of the fit are assumed to be those of the fit.
        """
        part, item, annotator = unfitted_rows(new, fitted)
        hints = None
        if fitted.use_features:
            from dissensus.models.dirichlet_regression import predict_softmax

            mean, size = fitted.hint_mean_[:-1], fitted.hint_mean_[-1]
            X = features_of(new, fitted.embedding).astype(np.float64)
            hints = np.asarray(size * (predict_softmax(X, fitted.hint_weights_) - mean))
        self.attribute_values_ = fitted.attribute_values_
        data = Data.of_labels(part, hints, self._attribute_cells(new))
        self.draws_, sums, shares = fitted.draws_.extended(data, item, annotator, fitted.seed)
        # items of the fit without new labels keep their answers, bit for bit
        same = (item >= 0) & (np.bincount(part.item, minlength=new.n_items) == 0)
        before = fitted.share_draws_[sampled.evenly_spaced(len(shares), len(fitted.share_draws_))][:, item]
        self.share_draws_ = np.where(same[None, :, None], before, shares).astype(np.float32)
        self.item_difference_ = np.append(fitted.item_difference_, np.float32(np.nan))[item]
        answers = fitted.label_distributions_[item]
        self.label_distributions_ = np.where(same[:, None], answers, row_shares(sums))
        self._floor_unanimous(np.where((item < 0)[:, None], new.counts, 0))
        self.annotator_weights_ = np.append(fitted.annotator_weights_, 0.0)[annotator]
        self.learned_rows_ = np.stack(new.columns).astype(np.int32)
        self.last_states_ = ()  # the chains cover other items and annotators

    def predict_for(self, attributes: Mapping[str, Any], items: Any = None) -> Array:
        """Predict the answers of annotators with given attributes, who need not be in the fit.

        Parameters
        ----------
        attributes
            Value of each of the ``attributes`` of the model; one that is left out counts as unknown.
        items
            Item ids; an id that is not in the fit is an unseen item. None: the items of the fit.

        Returns
        -------
        proba
            (items, classes): distribution of their answers to each item.
        """
        self._check_fitted()
        if not self.attributes:
            raise DataError("this model has no attributes; fit it with attributes=[…]")
        stranger = next((name for name in attributes if name not in self.attributes), None)
        if stranger is not None:
            raise DataError(f"no attribute {stranger!r}; the attributes are: {', '.join(self.attributes)}")
        codes = [each.code(attributes.get(each.column)) for each in self.attribute_values_]
        for each, code in zip(self.attribute_values_, codes, strict=True):
            if code < 0 and as_text(attributes.get(each.column)):
                value = attributes[each.column]
                warn(f"{value!r} is no value of {each.column} in the fit, and counts as unknown; "
                     f"its values are: {', '.join(each.values) or 'none'}")  # fmt: skip
        first = np.cumsum([0, *(len(each.values) for each in self.attribute_values_)])[:-1]
        cell = np.where(np.array(codes) >= 0, codes + first, -1)
        item: Codes = np.arange(len(self.item_vocabulary_), dtype=np.int32)
        if items is not None:
            item = fitted_codes(items, self.item_vocabulary_, "item")
        return self._attribute_distributions(item, cell)

    def _attribute_distributions(self, item: Codes, cell: NDArray[np.intp]) -> Array:
        return self.draws_.attribute_distributions(item, cell)

    # ---- clusters and annotators ----------------------------------------------------------------------

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        return self.draws_.pair_distributions(item, annotator)

    def cluster_view(self, annotator_load: NDArray[Any] | None = None) -> ClusterView:
        """Return the non-empty clusters of the most typical draw (Dahl 2006)."""
        self._check_fitted()
        return self.draws_.cluster_view(self.annotator_weights_)

    def annotator_frame(self, interval: float = 0.9) -> dict[str, Any]:
        """Return columns about annotators: cluster, and information and agreement with intervals.

        Parameters
        ----------
        interval
            Probability content of the credible intervals, such as 0.9.
        """
        view = self.cluster_view()
        assert view.annotators is not None
        columns: dict[str, Any] = {"cluster": view.annotators.argmax(axis=1)}
        drawn_values = self.draws_.annotator_draws(self.seed)
        for name, drawn in zip(("information", "agreement"), drawn_values, strict=True):
            low, high = np.quantile(drawn, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
            columns[f"model_{name}"] = drawn.mean(axis=0)
            columns[f"model_{name}_low"], columns[f"model_{name}_high"] = low, high
        return columns

    def co_clustering(self, ids: Any = None) -> Array:
        """Return (n, n) the posterior probability that two annotators are in one cluster.

        It does not depend on how clusters are numbered.

        Parameters
        ----------
        ids
            Annotators to compare; None for all.
        """
        self._check_fitted()
        vocabulary = self.annotator_vocabulary_
        codes = np.arange(len(vocabulary)) if ids is None else vocabulary.codes(ids)
        if (codes < 0).any():
            stranger = list(ids)[int(np.argmax(codes < 0))]
            raise DataError(f"annotator {stranger!r} is not in the fit; give annotators of the fit")
        if len(codes) > MAX_CO_CLUSTERED:
            raise DataError(f"{len(codes):,} annotators are too many; give at most {MAX_CO_CLUSTERED:,} ids")
        return self.draws_.co_clustering(codes)

    def to_inference_data(self) -> Any:
        """Return the draws for ArviZ: ``share`` (items, classes) and the traced ``quantities_``."""
        self._check_fitted()
        arviz = require("arviz", "arviz")
        C, n_draws = self.trace_draws_.shape[:2]
        shares = self.share_draws_.reshape(C, -1, *self.share_draws_.shape[1:])
        stored = [t for t in range(n_draws) if sampled.stored_row(t, n_draws, shares.shape[1]) is not None]
        traces = self.trace_draws_[:, stored].transpose(2, 0, 1)
        arviz_names = {"log-likelihood": "lp", "λ": "lambda"}  # log_likelihood is another group in ArviZ
        names = [arviz_names.get(name, name.replace(" ", "_")) for name in QUANTITIES]
        posterior = {"share": shares, **dict(zip(names, traces, strict=True))}
        coordinates = {"item": self.items_, "label": self.classes_}
        axes = {"coords": coordinates, "dims": {"share": list(coordinates)}}
        if int(arviz.__version__.split(".")[0]) >= 1:
            return arviz.from_dict({"posterior": posterior}, **axes)
        return arviz.from_dict(posterior=posterior, **axes)

    # ---- saving and loading ---------------------------------------------------------------------------

    def _state(self) -> tuple[Header, Arrays]:
        facts, arrays = super()._state()
        values = [asdict(attribute) for attribute in self.attribute_values_]
        return facts | {"attributes": values}, arrays | self.draws_.to_arrays("draws_")

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        super()._restore(facts, arrays)
        self.draws_ = Draws.from_arrays(arrays, "draws_")
        self.attribute_values_ = [Attribute(**values) for values in facts["attributes"]]
        (T, M, K), E = self.draws_.beliefs.shape, self.learned_rows_.shape[1]
        L, N, P = self.draws_.omega.shape[1], len(self.annotator_vocabulary_), len(self.class_vocabulary_)
        draws = {"rho": (T, M, P), "matrices": (T, N, P, K), "sizes": (T, N, K), "population": (T, K, P)}
        draws |= {"drawn_population": (T, K, P), "theta": (T, K, L, P), "phi": (T, K, P), "psi": (T, K)}
        J, V = len(self.attribute_values_), sum(len(each.values) for each in self.attribute_values_)
        draws |= {"omega": (T, L), "eta": (T, 1 + J), "values": (T, V, L), "z": (T, N), "numbers": (T, 4)}
        draws["members"] = T, L if J else 0, P, K
        sampled.check_shapes(self.draws_, draws | {"beliefs": (T, len(self.item_vocabulary_), K)})
        sampled.check_shapes(self, {"annotator_weights_": (N,)})
        sampled.check_finite(self.draws_, "beliefs", *draws)
        sampled.check_finite(self, "share_draws_", "annotator_weights_")
        sampled.check_codes("draws_.z", self.draws_.z, L)
        for state in self.last_states_:
            K, L, _ = state.theta.shape
            shapes = {"w": (M,), "z": (N,), "from_item": (E,), "theta": (K, L, P), "phi": (K, P)}
            shapes |= {"phi0": (P,), "psi": (K,), "omega": (L,), "eta": (1 + J,)}
            sampled.check_shapes(state, shapes | dict.fromkeys(STATE_NUMBERS, ()))
            sampled.check_codes("w", state.w, K)
            sampled.check_codes("z", state.z, L)
