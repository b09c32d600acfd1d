"""HPGM: the paper's graphical model made fully Bayesian, with the uncertainty of every answer.

How a label is born, and how the posterior is sampled, is told in sampler.py. In short: items and annotators
have clusters, as in PGM; each annotator has distributions of their own around those of their cluster, each
item its own distribution around that of its cluster; how much of either, and how many clusters there are, is
learned. FMM, smoothed counts, Dawid–Skene's matrices, CBCC and PGM are limits of it.

The answer about an item is the mean of the population's answer over the draws of several chains, but for the
adjustments of adjustments.py; its interval is what the draws have between two quantiles. Numbers of clusters
are upper bounds: clusters that are not needed stay empty (with many kinds of items all are used), and nothing
has to be searched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import Checkpoint, Engine
from dissensus.errors import DataError, bad_parameter, require
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import features_of
from dissensus.labels.rows import joined, rows_of, several, with_values
from dissensus.labels.sources import as_annotations
from dissensus.labels.vocabulary import Codes
from dissensus.models.base import Model
from dissensus.models.hpgm import adjustments
from dissensus.models.hpgm.adjustments import Aliases
from dissensus.models.hpgm.posterior import QUANTITIES, AnnotatorDraw, Chain, Draws
from dissensus.models.hpgm.sampler import FEW_GROUPS, MANY_KINDS, PRIORS, Data, State, continued, start, sweep
from dissensus.models.results import ClusterView
from dissensus.models.sampled import SampledMixin, spaced
from dissensus.models.scoring import in_classes
from dissensus.models.softmax import predict
from dissensus.numerics import Array, row_shares
from dissensus.params import EMBEDDING, NONE, SEED, WEIGHT_BY, Rule, choice, fitted, flag, integer, setting
from dissensus.tables.arrays import Arrays, Header

SWEEPS, FEWER_SWEEPS, MANY_LABELS = 300, 150, 10_000  # sweeps of a chain; fewer from so many labels on
ITEMS_PER_CLUSTER = 25  # from which on items are taken to be of many kinds
LABELS_FOR_THREADS = 20_000  # from which on threads take less time than one
THIN = 3  # sweeps from one draw that is kept to the next
MAX_SHARE_NUMBERS = 8_000_000  # numbers of the population's answers that a fit keeps, over all draws
MAX_DRAW_NUMBERS = 12_000_000  # numbers that it keeps of whole draws, to predict labels by
MIN_DRAWS, USUAL_DRAWS = 8, 48  # whole draws that are kept
UPDATE, MIN_UPDATE_SWEEPS = 6, 20  # an update makes a sixth of a fit's sweeps, and at least 20
MAX_EXTENDED_NUMBERS = 100_000_000  # numbers that are kept of items that were not sampled
EXTENDED_LABELS = 200_000  # labels at a time of items that were not sampled
MAX_PAIRED = 5_000  # annotators or items whose co-clustering is one table
REPRESENT = Rule(
    "a mapping of annotator columns to values", lambda v: isinstance(v, Mapping) and bool(v) and all(v)
)


class HPGM(SampledMixin, Model):
    """The default: items and annotators in clusters, everyone with ways of their own, sampled by Gibbs.

    It says how sure it is: intervals are read off draws of the posterior. ``rhat_`` and ``effective_draws_``
    tell whether the chains agree; ``quantities_`` names what they are about. With ``use_features``, a
    regression of labels on features (DirichletRegression, every item's own labels left out) tells how many
    labels of each class above the usual the features are worth.

    With ``adjust``, the answer is the posterior mean but for what follows. Annotators who are found to be
    copies of one person or model under several names (aliases) count once, and what one repeats counts once
    where no item has labels by two annotators. In that case every answer also goes halfway to the item's
    counts, shrunk to the crowd's shares. A class that all of five or more labels of an item give gets a share
    of 0.6 at least, unless ``represent`` is given. Draws and intervals move along. With ``adjust=False``,
    every name is an annotator of their own, and ``label_distributions_`` is the posterior mean.
    """

    n_item_clusters: int = setting(
        20, integer(1), "The most clusters of items; those that are not needed stay empty."
    )
    n_annotator_clusters: int = setting(20, integer(1), "The most clusters of annotators.")
    _: KW_ONLY
    n_chains: int = setting(
        4, integer(1), "How many chains are sampled from different starts; ``rhat_`` says whether they agree."
    )
    n_sweeps: int | None = setting(
        None,
        integer(10) | NONE,
        "Sweeps of each chain; None is 300, or 150 from 10,000 labels on. The first two fifths are "
        "forgotten, and every third of the others is kept.",
    )
    weight_by: str = setting("labels", *WEIGHT_BY)
    represent: Mapping[str, Any] | None = setting(
        None,
        REPRESENT | NONE,
        'Whose population is estimated, by columns of the annotator table: ``{"country": "DE"}``. The '
        "labels of others still inform about the items.",
    )
    item_kinds: str | None = setting(
        None,
        choice("few", "many") | NONE,
        '``"few"``: items are of a few kinds, and clusters of items that are not needed stay empty: '
        'clusters to read. ``"many"``: items differ without steps; clusters are of about even weight '
        'beforehand, and intervals are wider. None is ``"many"`` from 25 items for each cluster on.',
    )
    max_sampled: int = setting(
        300_000,
        integer(1),
        "Of more labels than this, a random part of the items is sampled; the others get what its draws say "
        "of them.",
    )
    use_features: bool = setting(
        False,
        choice(False, True),
        "Whether the features or texts of the items are taken as hints at their clusters. How far they are "
        "trusted is learned.",
    )
    embedding: str | None = setting(None, *EMBEDDING)
    adjust: bool = flag(
        True,
        "Whether aliases count once, single labels are shrunk and unanimous answers have a floor; False "
        "gives the posterior mean.",
    )
    seed: int = setting(0, *SEED)
    n_jobs: int = setting(
        -1,
        integer(-1),
        "Number of threads; −1 takes all cores, or one thread where there are fewer than 20,000 labels: two "
        "take no less time there, or hardly any less. The result does not depend on it.",
    )

    _drawn = ("share_draws_", "trace_draws_", "learned_rows_", "draws_", "last_states_")
    _needs_annotators = True
    _sizes_are_bounds = True
    _memory_tables = {"MP": 20, "MK": 10, "NKP": 12, "E": 4, "MD": 4}
    quantities_ = QUANTITIES

    draws_: Draws = fitted("whole draws that were kept, chain after chain", saved=False)
    last_states_: tuple[State, ...] = fitted("of every chain; none where chains cannot go on", saved=False)
    annotator_weights_: Array = fitted("(N,): what each annotator counts in the population")
    learned_rows_: NDArray[np.int32] = fitted("(3, labels): codes of item, annotator, class")
    hint_weights_: Array = fitted("(features + 1, P): of the regression behind hints; empty without features")
    hint_usual_: Array = fitted("(P + 1,): what it says on average, and how many labels it is worth")

    @property
    def uses_features(self) -> bool:  # type: ignore[override]
        """Whether it also learns from features of the items."""
        return self.use_features

    def memory_needed(self, labels: Annotations, n_threads: int = 1, features: Any = None) -> int:
        """As for every model; draws of many chains, and about items that were not sampled, count too."""
        needed = super().memory_needed(labels, n_threads, features)
        numbers = labels.n_items * (self.n_item_clusters + 2 * labels.n_classes)  # of items, in a draw
        needed += 8 * max(self.n_chains - MIN_DRAWS, 0) * numbers  # a draw of each chain, twice when joined
        if labels.n_labels <= self.max_sampled:
            return needed
        n_draws = min(USUAL_DRAWS, max(MIN_DRAWS, MAX_EXTENDED_NUMBERS // numbers))
        copies = 1 + n_threads * min(1.0, EXTENDED_LABELS / labels.n_labels)  # of all items, and of parts
        return needed + int(4 * n_draws * numbers * copies)

    # ---- fitting --------------------------------------------------------------------------------------

    def fit(self, labels: Any, features: Any = None) -> Self:
        """Learn from labels, and with ``use_features`` from features of their items.

        ``features`` has one row per item, in the order of ``labels.items``; without it, those that the
        labels carry are taken, or the embeddings of their ``text`` column.
        """
        return self._run_fit(labels, features=features)

    def _fit(
        self, annotations: Annotations, engine: Engine, last: Sequence[State] = (), features: Any = None
    ) -> None:
        aliases = Aliases.of(annotations) if self.adjust else Aliases.none(annotations)
        labels = aliases.annotations
        self.hint_weights_, self.hint_usual_ = np.zeros((0, 0)), np.zeros(0)
        hints = self._learn_hints(labels, features) if self.use_features else None
        weights = self.annotator_weights_ = self._annotator_weights(labels)
        # sample the posterior: all items, or a part of very many
        if labels.n_labels <= self.max_sampled:
            sampled, data = None, Data.of_labels(labels, hints)
            last = [replace(state, z=state.z[aliases.named], own=state.own[aliases.rows]) for state in last]
        else:
            sampled, last = self._sampled_items(labels), ()
            data = Data.of_labels(labels.take_items(sampled), None if hints is None else hints[sampled])
        sample = partial(self._sample, data, weights, engine, last)
        # a sweep is many short steps, and threads wait for each other between them
        on_threads = self.n_jobs != -1 or labels.n_labels >= LABELS_FOR_THREADS
        numbers = range(self.n_chains)
        chains = engine.map(sample, numbers) if on_threads else [*map(sample, numbers)]
        # the posterior mean, and draws
        n_draws = self.n_chains * len(chains[0].trace)
        self.label_distributions_ = np.sum([chain.answers for chain in chains], axis=0) / n_draws
        self.prior_distribution_ = np.sum([chain.prior for chain in chains], axis=0) / n_draws
        self.share_draws_ = np.concatenate([chain.shares for chain in chains])
        self.draws_ = Draws.joined([chain.draws for chain in chains])
        self.last_states_ = tuple([chain.state for chain in chains])
        self.learned_rows_ = np.stack([data.item, data.annotator, data.label]).astype(np.int32)
        self._judge_chains(np.stack([chain.trace for chain in chains]))
        if sampled is not None:
            self._extend_to_unsampled(labels, sampled, hints, engine)
        # what moves the answers away from the posterior mean (adjustments.py)
        if self.adjust and not adjustments.shares_items(labels.item, labels.annotator):
            adjustments.shrink_single_labels(self, labels.counts)
        self._floor_unanimous(labels.counts)
        if len(aliases.rows) < annotations.n_labels:
            adjustments.copy_to_aliases(self, annotations, aliases)

    def _sample(
        self, data: Data, weights: Array, engine: Engine, last: Sequence[State], number: int
    ) -> Chain:
        """Sample one chain from its start, or from where it ended ``last``.

        Every sweep has a random stream of its own, so that a chain can be resumed.
        """
        n_sweeps = self.n_sweeps or (SWEEPS if len(data.item) < MANY_LABELS else FEWER_SWEEPS)
        n_sweeps = max(n_sweeps // UPDATE, MIN_UPDATE_SWEEPS) if last else n_sweeps
        n_burn = n_sweeps // 4 if last else 2 * n_sweeps // 5
        priors = MANY_KINDS if self._has_many_kinds(data.M) else PRIORS
        name, n_kept = f"chain-{number}", -(-(n_sweeps - n_burn) // THIN)
        reached = engine.checkpoints.latest(name, Chain) if engine.checkpoints else None
        state = last[number] if last else None
        reached = reached or Checkpoint(self._start_chain(data, state, n_kept, number))
        chain: Chain = reached.state
        for i in range(reached.done, n_sweeps):
            rng = np.random.default_rng([self.seed, number, i])
            chain.state = sweep(chain.state, data, rng, priors)
            kept, rest = divmod(i - n_burn, THIN)
            if kept >= 0 and not rest:
                chain.gather(kept, data, weights, rng)
            engine.step_done(i + 1, n_sweeps, number, self.n_chains)
            if engine.checkpoints:
                stopped = "number of sweeps" if i + 1 == n_sweeps else ""
                engine.checkpoints.write(name, Checkpoint(chain, i + 1, stopped=stopped))
        return chain

    def _start_chain(self, data: Data, state: State | None, n_kept: int, number: int) -> Chain:
        """A chain of ``n_kept`` draws, before its first sweep; ``state`` None draws where it begins."""
        M, N, P = data.M, data.N, data.P
        K, L = min(self.n_item_clusters, M), min(self.n_annotator_clusters, N)
        if state is None:
            # Chains start from few groups of items or from all K in turn, with annotators alike or spread:
            # agreement of chains that began so differently means something.
            rng = np.random.default_rng([self.seed, number])
            groups, spread = K if number % 2 else FEW_GROUPS, number // 2 % 2 == 1
            priors = MANY_KINDS if self._has_many_kinds(M) else PRIORS
            state = start(data, K, L, rng, priors, n_groups=groups, spread=spread)
        K, L, _ = state.theta.shape
        least, usual = -(-MIN_DRAWS // self.n_chains), -(-USUAL_DRAWS // self.n_chains)
        n_shares = min(n_kept, max(least, MAX_SHARE_NUMBERS // (M * P * self.n_chains)))
        numbers = M * (K + P) + N * (P * K + K + 1) + K * L * P + 3 * K * P  # of a whole draw
        n_whole = min(n_kept, max(least, min(usual, MAX_DRAW_NUMBERS // (numbers * self.n_chains))))
        sums, shares = (np.zeros((M, P)), np.zeros(P)), np.zeros((n_shares, M, P), np.float32)
        trace = np.zeros((n_kept, len(QUANTITIES)))
        return Chain(state, *sums, shares, trace, Draws.empty(n_whole, data, K, L))

    def _has_many_kinds(self, n_items: int) -> bool:
        if self.item_kinds is not None:
            return self.item_kinds == "many"
        return n_items >= ITEMS_PER_CLUSTER * self.n_item_clusters

    def _annotator_weights(self, labels: Annotations) -> Array:
        """(N,): how annotators count in the population, in sum 1: by their labels, or all the same."""
        load = labels.annotator_load
        if self.represent:
            load = load * with_values(labels.annotator_table, self.represent, "annotator")
            if not load.any():
                raise DataError("none of the annotators to represent gave a label")
        counts = load if self.weight_by == "labels" else (load > 0).astype(np.int64)
        return np.asarray(counts / max(counts.sum(), 1))

    def _sampled_items(self, labels: Annotations) -> NDArray[np.int64]:
        """The items that are sampled, drawn at random, where there are more than ``max_sampled`` labels."""
        order = np.random.default_rng([self.seed, 1 << 24]).permutation(labels.n_items)
        n_items = int((np.cumsum(np.diff(labels.item_pointers)[order]) <= self.max_sampled).sum())
        return np.sort(order[: max(n_items, 1)])

    def _learn_hints(self, labels: Annotations, features: Any) -> Array:
        """(items, classes): S (h_m − h̄), h_m what the features of item m say without its labels."""
        from dissensus.models.dirichlet_regression import DirichletRegression

        regression = DirichletRegression(embedding=self.embedding, seed=self.seed).fit(labels, features)
        usual, worth = regression.item_means_.mean(axis=0), float(regression.concentration_)
        self.hint_weights_ = np.vstack([regression.coef_, regression.intercept_])
        self.hint_usual_ = np.append(usual, worth)
        return np.asarray(worth * (regression.item_means_ - usual))

    def _extend_to_unsampled(
        self, labels: Annotations, sampled: NDArray[np.int64], hints: Array | None, engine: Engine
    ) -> None:
        """Answer about the items that were not sampled, some at a time, given the draws about the others."""
        M, N, P = labels.n_items, labels.n_annotators, labels.n_classes
        room = MAX_EXTENDED_NUMBERS // (M * (self.n_item_clusters + 2 * P))
        T = min(len(self.draws_), max(MIN_DRAWS, room))
        draws = self.draws_.take(np.linspace(0, len(self.draws_) - 1, T).astype(int))
        met = np.bincount(self.learned_rows_[1], minlength=N) > 0
        annotator = np.where(met, np.arange(N), -1)
        others = np.setdiff1d(np.arange(M), sampled)
        behind = np.cumsum(np.diff(labels.item_pointers)[others])
        cuts = np.searchsorted(behind, np.arange(EXTENDED_LABELS, behind[-1], EXTENDED_LABELS))
        parts = np.split(others, cuts)

        answers, shares = np.zeros((M, P)), np.zeros((T, M, P), np.float32)
        beliefs, own = np.zeros((T, M, draws.psi.shape[1]), np.float32), np.zeros((T, M, P), np.float32)
        answers[sampled] = self.label_distributions_
        shares[:, sampled] = self.share_draws_[np.linspace(0, len(self.share_draws_) - 1, T).astype(int)]
        beliefs[:, sampled], own[:, sampled] = draws.beliefs, draws.own

        def extend(number: int) -> None:
            items = parts[number]
            data = Data.of_labels(labels.take_items(items), None if hints is None else hints[items])
            unknown = np.full(len(items), -1)
            new, sums, shares[:, items] = draws.extended(data, unknown, annotator, self.seed, number)
            answers[items], beliefs[:, items], own[:, items] = row_shares(sums), new.beliefs, new.own

        engine.map(extend, range(len(parts)))
        self.label_distributions_, self.share_draws_ = answers, shares
        self.draws_ = replace(draws, beliefs=beliefs, own=own)
        self.learned_rows_ = np.stack(labels.columns).astype(np.int32)
        self.last_states_ = ()  # the chains ended over a part of the items

    def _floor_unanimous(self, counts: NDArray[np.int64]) -> None:
        if self.adjust and not self.represent:  # others than those represented may be the ones who agree
            adjustments.floor_unanimous(self, counts)

    # ---- labels that come later -------------------------------------------------------------------------

    @property
    def can_continue(self) -> bool:
        """Whether there are chains to go on with, over labels alone."""
        return bool(self.last_states_) and not self.use_features

    def update(self, new: Any) -> Self:
        """Learn from more labels: the chains go on from where they ended, for a sixth of the sweeps of a fit.

        ``new`` holds the labels to add, of old and new items and annotators; its classes must be known.
        """
        self._check_fitted()
        if not self.last_states_:
            raise DataError(
                "there are no chains to go on with: apply gave this model, or it was fitted to more than "
                "max_sampled labels; fit all labels anew"
            )
        if self.use_features:
            raise DataError("a run keeps no features of its items, so this model cannot be updated; fit anew")
        merged, last = self._with_labels(in_classes(as_annotations(new), self.class_vocabulary_))
        return self._run_fit(merged, last=last)

    def _with_labels(self, new: Annotations) -> tuple[Annotations, list[State]]:
        """The labels learned from and ``new`` together, and every chain's last state over them."""
        old = self.training_labels()
        merged = joined(old, new)
        item = merged.item_vocabulary.codes(self.item_vocabulary_)
        annotator = merged.annotator_vocabulary.codes(self.annotator_vocabulary_)
        if self.represent:
            merged = self._with_represented(merged, new, annotator)
        before = item[old.item], annotator[old.annotator], old.label
        rows = rows_of(before, merged.columns)
        shape = merged.n_items, merged.n_annotators, merged.n_labels
        streams = [np.random.default_rng([self.seed, n, 1 << 22]) for n in range(len(self.last_states_))]
        chains = zip(self.last_states_, streams, strict=True)
        return merged, [continued(state, item, annotator, rows, shape, rng) for state, rng in chains]

    def _with_represented(self, merged: Annotations, new: Annotations, annotator: Codes) -> Annotations:
        """With a table that says who is represented: those who were, and new ones by their own."""
        assert self.represent is not None
        is_in = np.zeros(merged.n_annotators, dtype=bool)
        is_in[annotator] = self.annotator_weights_ > 0
        if new.annotator_table is not None:
            codes = merged.annotator_vocabulary.codes(new.annotator_vocabulary)
            is_in[codes] = with_values(new.annotator_table, self.represent, "annotator")
        first = {name: several(value)[0] for name, value in self.represent.items()}
        columns = {name: [value if one else None for one in is_in] for name, value in first.items()}
        return merged.with_tables(annotators={"annotator": merged.annotators, **columns})

    def training_labels(self) -> Annotations:
        """The labels that it was fitted to."""
        self._check_fitted()
        item, annotator, label = self.learned_rows_.copy()
        ids = self.item_vocabulary_, self.annotator_vocabulary_, self.class_vocabulary_
        labels = Annotations(item, annotator, label, *ids)
        return replace(labels, frame_kind=self.frame_kind_, label_type=self.label_type_)

    # ---- new items and annotators ---------------------------------------------------------------------

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Items and annotators of the fit keep what is known of them; new ones are sampled given the draws.

        Labels between an item and an annotator of the fit are taken to be those of the fit.
        """
        item = fitted.item_vocabulary_.codes(new.item_vocabulary)
        annotator = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        hints = None
        if fitted.use_features:
            usual, worth = fitted.hint_usual_[:-1], fitted.hint_usual_[-1]
            X = features_of(new, fitted.embedding).astype(np.float64)
            hints = np.asarray(worth * (predict(X, fitted.hint_weights_) - usual))
        part = new.take_rows((item[new.item] < 0) | (annotator[new.annotator] < 0))
        data = Data.of_labels(part, hints)
        self.draws_, sums, shares = fitted.draws_.extended(data, item, annotator, fitted.seed)
        # an item of the fit of which nothing new is known keeps its answer to the last bit
        same = (item >= 0) & (np.bincount(part.item, minlength=new.n_items) == 0)
        rows = np.linspace(0, len(fitted.share_draws_) - 1, len(shares)).astype(int)
        before = fitted.share_draws_[rows][:, item]
        self.share_draws_ = np.where(same[None, :, None], before, shares).astype(np.float32)
        before = fitted.label_distributions_[item]
        self.label_distributions_ = np.where(same[:, None], before, row_shares(sums))
        self._floor_unanimous(new.counts)
        self.annotator_weights_ = np.append(fitted.annotator_weights_, 0.0)[annotator]
        self.learned_rows_ = np.stack(new.columns).astype(np.int32)
        self.last_states_ = ()  # the chains ended over other items and annotators

    # ---- what it knows --------------------------------------------------------------------------------

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        return self.draws_.pair_distributions(item, annotator)

    def cluster_view(self, annotator_load: NDArray[Any] | None = None) -> ClusterView:
        """The clusters of the draw that is most like all draws (Dahl 2006), those that are not empty."""
        self._check_fitted()
        return self.draws_.cluster_view(self.annotator_weights_)

    def annotator_draws(self) -> list[AnnotatorDraw]:
        """What each whole draw says of every annotator: information and agreement."""
        self._check_fitted()
        return list(self.draws_.annotator_draws(self.seed))

    def annotator_frame(self, interval: float = 0.9) -> dict[str, Any]:
        """Columns about annotators: cluster, information and agreement with their intervals.

        Parameters
        ----------
        interval
            Size of the credible intervals, such as 0.9.
        """
        view, draws = self.cluster_view(), self.annotator_draws()
        assert view.annotators is not None
        columns: dict[str, Any] = {"cluster": view.annotators.argmax(axis=1)}
        for name in ("information", "agreement"):
            drawn = np.stack([getattr(draw, name) for draw in draws])
            low, high = np.quantile(drawn, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
            columns[f"model_{name}"] = drawn.mean(axis=0)
            columns[f"model_{name}_low"], columns[f"model_{name}_high"] = low, high
        return columns

    def co_clustering(self, what: str = "annotators", ids: Any = None) -> Array:
        """P(two of them are in one cluster), over ``ids`` (None: all ``"annotators"`` or ``"items"``).

        It does not depend on how clusters are numbered, so it can be read where cluster numbers cannot.

        Parameters
        ----------
        what
            ``"annotators"`` or ``"items"``.
        ids
            Ids to compare; None: all.
        """
        self._check_fitted()
        if not (rule := choice("annotators", "items")).holds(what):
            raise bad_parameter("co_clustering", "what", rule.words, what)
        vocabulary = self.annotator_vocabulary_ if what == "annotators" else self.item_vocabulary_
        codes = np.arange(len(vocabulary)) if ids is None else vocabulary.codes(ids)
        if (codes < 0).any():
            stranger = list(ids)[int(np.argmax(codes < 0))]
            raise DataError(f"{what[:-1]} {stranger!r} is not among the fitted ones; name those of the fit")
        if len(codes) > MAX_PAIRED:
            raise DataError(f"{len(codes):,} {what} make too large a table; name at most {MAX_PAIRED:,} ids")
        return self.draws_.co_clustering(what, codes)

    def to_inference_data(self) -> Any:
        """The draws as ArviZ holds them: ``share`` (items, classes), concentrations and what was traced."""
        self._check_fitted()
        arviz = require("arviz", "arviz")
        C, n_kept = self.trace_draws_.shape[:2]
        shares = self.share_draws_.reshape(C, -1, *self.share_draws_.shape[1:])
        kept = [t for t in range(n_kept) if spaced(t, n_kept, shares.shape[1]) is not None]
        traces = self.trace_draws_[:, kept].transpose(2, 0, 1)
        usual = {"log-likelihood": "lp", "λ": "lambda"}  # ArviZ means another table by log_likelihood
        names = [usual.get(name, name.replace(" ", "_")) for name in QUANTITIES]
        posterior = {"share": shares, **dict(zip(names, traces, strict=True))}
        coordinates = {"item": self.items_, "label": self.classes_}
        axes = {"coords": coordinates, "dims": {"share": list(coordinates)}}
        if int(arviz.__version__.split(".")[0]) >= 1:
            return arviz.from_dict({"posterior": posterior}, **axes)
        return arviz.from_dict(posterior=posterior, **axes)

    # ---- keeping it -----------------------------------------------------------------------------------

    def _state(self) -> tuple[Header, Arrays]:
        facts, arrays = super()._state()
        arrays |= self.draws_.to_arrays("draws_")
        for number, state in enumerate(self.last_states_):
            arrays |= state.to_arrays(f"last_states_.{number}")
        return facts | {"n_states": len(self.last_states_)}, arrays

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        super()._restore(facts, arrays)
        self.draws_ = Draws.from_arrays(arrays, "draws_")
        names = map("last_states_.{}".format, range(facts["n_states"]))
        self.last_states_ = tuple([State.from_arrays(arrays, name) for name in names])
