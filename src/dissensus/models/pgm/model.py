"""PGM: the graphical model that clusters items and annotators jointly (Weerasooriya et al. 2021).

Generative model: item m belongs to one of K clusters, w_m ~ Cat(ψ); annotator n to one of L, z_n ~ Cat(Ω);
the label is drawn from the distribution of the pair of clusters, y_mn ~ Cat(Θ_{w_m, z_n}). Priors:
Θ_kl ~ Dir(α), ψ ~ Dir(γ), Ω ~ Dir(τ). The population's distribution of answers for an item is

    Y'_m = Σ_l π_l Θ_{w_m, l}                                                                 (Eq. infer)

with π = Ω (all annotators have equal weight) or in proportion to the labels of each cluster.

The model can be fitted in three ways:

* ``"bp"``: EM, with the clusters' posteriors by belief propagation (messages.py; Algorithm 3) and the M-step
  of m_step.py;
* ``"annealing"``: simulated annealing on the complete state (annealing.py; Algorithm 2);
* ``"vb"``: Dirichlet posteriors over the parameters (m_step.py), with the same messages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dissensus import params
from dissensus.engine import Engine, Restarts, current, using
from dissensus.errors import bad_parameter
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes
from dissensus.models.base import Model
from dissensus.models.confusion import checked_prior
from dissensus.models.fmm import ASSIGNMENT, cluster_posterior, initial_theta, random_clusters
from dissensus.models.pgm.m_step import MaximumPosterior, MStepResult, Parameters, Priors, VariationalBayes
from dissensus.models.pgm.messages import Beliefs, Graph, with_prior
from dissensus.models.results import ClusterView
from dissensus.models.scoring import unfitted_rows
from dissensus.numerics import Array, concentration, normalised, row_shares, row_sums, softmax_rows
from dissensus.params import (
    NONE,
    POSITIVE,
    choice,
    dirichlet,
    fitted,
    flag,
    integer,
    real,
    setting,
    with_settings,
)

if TYPE_CHECKING:
    from dissensus.models.pgm import annealing

PriorParameter = float | Sequence[float] | None
PRIOR_RULE = dirichlet(0.0, open_low=True) | NONE
PAPER_PRIOR = 2.0
DEFAULT_ITERATIONS = {"bp": 200, "vb": 200, "annealing": 600}
ANNEALING_SETTINGS = ("n_best", "temperature", "cooling", "ascent")
BP_TOL = 1e-4  # default of ``bp_tol``
AUTO_DAMPING = 0.5  # weight of the old message once the objective oscillates
MIN_LABELS_FOR_SAMPLE = 1_000_000  # from here on, a fit starts from the result of a fit to a sample
ITEMS_PER_SAMPLED = 8  # one item in eight is sampled
MAX_TURNS = 4  # consecutive turns of the objective that count as oscillation


@dataclass(frozen=True)
class PGMState:
    """State of a fit by messages: beliefs, the parameters behind them, and the latest objectives."""

    beliefs: Beliefs
    learned: MStepResult
    objectives: tuple[float, ...] = ()  # the last few, oldest first
    damping: float = 0.0


def oscillates(objectives: Sequence[float]) -> bool:
    """Return True if the objective turned at each of the last steps, without the turns getting smaller."""
    if len(objectives) <= MAX_TURNS + 1:
        return False
    changes = np.diff(objectives)
    return bool((changes[1:] * changes[:-1] < 0).all() and abs(changes[-1]) > 0.5 * abs(changes[0]))


class PGM(Model):
    """Clusters of items and annotators, learned jointly: the graphical model of the paper."""

    n_item_clusters: int = setting(10, integer(1), "Number of item clusters (K).")
    n_annotator_clusters: int = setting(5, integer(1), "Number of annotator clusters (L).")
    _: KW_ONLY
    inference: str = setting(
        "bp",
        choice("bp", "annealing", "vb"),
        '``"bp"``: belief propagation in EM; ``"vb"``: variational Bayes; or simulated annealing.',
    )
    alpha: PriorParameter = setting(
        None,
        PRIOR_RULE,
        "Dirichlet parameter of the labels of a pair of clusters: a number, or a list with a number per "
        'class. None is 2, as in the paper, or learned by empirical Bayes with ``"vb"``.',
    )
    gamma: PriorParameter = setting(None, PRIOR_RULE, "Dirichlet parameter of the item clusters' shares.")
    tau: PriorParameter = setting(None, PRIOR_RULE, "Dirichlet parameter of the annotator clusters' shares.")
    m_step: str = setting(
        "product",
        choice("product", "pairwise"),
        '``"product"`` multiplies the beliefs about item and annotator (the paper\'s M-step); '
        '``"pairwise"`` uses the joint belief about each pair (exact EM).',
    )
    bp_rounds: int = setting(1, integer(1), "Maximum number of message rounds per iteration.")
    bp_tol: float | None = setting(
        None, real(0.0) | NONE, "Summed KL between successive beliefs at which rounds stop; None is 1e-4."
    )
    damping: float | None = setting(
        None, real(0.0, 0.95) | NONE, "Weight of the old message; None is 0, or 0.5 once the fit oscillates."
    )
    max_iter: int | None = setting(
        None, integer(1) | NONE, "Maximum number of iterations. None is 200, or 600 for annealing."
    )
    tol: float = setting(1e-5, *params.TOL)
    n_restarts: int = setting(1, *params.N_RESTARTS)
    n_best: int = setting(1, integer(1), "Annealing: number of best states to return.")
    start: str = setting(
        "items",
        choice("items", "random"),
        '``"items"``: item clusters start at the labels of random items; ``"random"``: items start in random '
        "clusters, as in the paper. Annotators start in random clusters. From a million labels on, "
        '``"items"`` starts from a fit to one item in eight (except with annealing).',
    )
    temperature: float = setting(
        10.0, POSITIVE, "Annealing: the temperature of sweep t is ``temperature`` / (t + 1) ^ ``cooling``."
    )
    cooling: float = setting(0.5, real(0.0), "Annealing: see ``temperature``; both are 1 in the paper.")
    ascent: bool = flag(True, "Annealing: improve the best states by coordinate ascent (not in the paper).")
    assignment: str = setting("soft", *ASSIGNMENT)
    weight_by: str = setting("labels", *params.WEIGHT_BY)
    seed: int = setting(0, *params.SEED)
    n_jobs: int = setting(-1, *params.N_JOBS)

    _needs_annotators = True
    _memory_tables = {"MP": 2, "MK": 3, "NL": 5}

    theta_: Array = fitted("(K, L, P): label distribution between item cluster and annotator cluster")
    psi_: Array = fitted("(K,): shares of the item clusters")
    omega_: Array = fitted("(L,): shares of the annotator clusters")
    item_clusters_: Array = fitted("(M, K): P(w_m = k)")
    annotator_clusters_: Array = fitted("(N, L): P(z_n = l)")
    population_weights_: Array = fitted("(L,): π of Eq. infer")
    alpha_: Array = fitted("the alpha in use, set or learned")
    gamma_: Array = fitted("the gamma in use")
    tau_: Array = fitted("the tau in use")
    damping_: Array = fitted("the damping at the end, as a 0-d array")
    best_states_: list[tuple[float, annealing.HardState]] = fitted("annealing: its best states", saved=False)

    def check_params(self) -> None:
        """Check each setting, that every setting has an effect, and that priors of MAP are at least 1."""
        super().check_params()
        for name, reason in self._without_effect().items():
            default = self._settings[name].default
            if getattr(self, name) != default:
                raise bad_parameter(self, name, f"{default!r} {reason}", getattr(self, name))
        if self.inference == "vb":
            return
        for name in ("alpha", "gamma", "tau"):
            value = getattr(self, name)
            if value is not None and np.min(value) < 1:
                rule = f"at least 1 with inference={self.inference!r}, which maximises the posterior"
                raise bad_parameter(self, name, rule, value)

    def memory_needed(self, labels: Annotations, n_threads: int = 1, features: Any = None) -> int:
        """Estimate the bytes that a fit needs; annealing also needs columns of all labels."""
        annealed = n_threads * 64 * labels.n_labels if self.inference == "annealing" else 0
        return super().memory_needed(labels, n_threads) + annealed

    def _without_effect(self) -> dict[str, str]:
        """Return the settings that have no effect, with the reason."""
        if self.inference == "annealing":
            message_settings = ("m_step", "bp_rounds", "bp_tol", "damping")
            return dict.fromkeys(message_settings, "with inference='annealing', which passes no messages")
        reason = f"with inference={self.inference!r}, which does not anneal"
        without_effect = dict.fromkeys(ANNEALING_SETTINGS, reason)
        if self.bp_rounds == 1:
            without_effect["bp_tol"] = "with bp_rounds=1, because there is only one round"
        return without_effect

    # ---- fitting --------------------------------------------------------------------------------------

    def fit(self, labels: Any, *, prior: Any = None, prior_strength: float = 1.0) -> Self:
        """Fit the model to labels, and optionally to a prior for the items.

        Parameters
        ----------
        labels
            Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
        prior
            (items, classes): predictions of a classifier, or gold. A row of zeros carries no information.
        prior_strength
            Number of labels of an average annotator that a row of ``prior`` is worth.
        """
        if not (math.isfinite(prior_strength) and prior_strength >= 0):
            raise bad_parameter(self, "prior_strength", "a float >= 0", prior_strength)
        return self._run_fit(labels, prior=prior, prior_strength=prior_strength)

    def _fit(
        self, annotations: Annotations, engine: Engine, prior: Any = None, prior_strength: float = 1.0
    ) -> None:
        """Run EM with an E-step by messages (Algorithm 3): maximum posterior, or variational Bayes.

        A state has beliefs and the parameters from which they were computed. An iteration computes expected
        counts from the state's beliefs, the next parameters (M) and the next beliefs (E), and reports the
        objective of the state that it started from, which needs the first of the new messages. The fit
        returns that state when it stops.

        The objective is the Bethe log-evidence plus the terms of the priors. It never falls with pairwise
        counts and converged messages on a tree, where it is exact. Otherwise it may oscillate, and is then
        damped.
        """
        if prior is not None:
            prior = prior_strength * row_shares(checked_prior(self, prior, annotations))
        if self.inference == "annealing":
            self._fit_annealing(annotations, engine, prior)
            return
        pairwise = self.m_step == "pairwise"
        graph = Graph(annotations, engine, keep_cavities=pairwise)
        vb = self.inference == "vb"
        priors = self._concentrations(annotations.n_classes, None if vb else PAPER_PRIOR)
        learner = VariationalBayes(*priors) if vb else MaximumPosterior(Priors(*priors))
        load = annotations.annotator_load.astype(np.float64)
        rounds, bp_tol = self.bp_rounds, BP_TOL if self.bp_tol is None else self.bp_tol
        max_iter = self.max_iter or DEFAULT_ITERATIONS[self.inference]
        restarts = Restarts(engine, self.n_restarts, self.seed, max_iter, self.tol)
        for monitor in restarts:
            state = monitor.resume(PGMState)
            if state is None:
                beliefs = self._initial_beliefs(graph, annotations, monitor.rng)
                learned = learner.m_step(graph.statistics(beliefs, None), None)
                damping = float(self.damping or 0.0)
                potentials = with_prior(learned.potentials, prior, beliefs.z, load)
                beliefs = graph.propagate(beliefs, potentials, rounds, bp_tol, damping)
                state = PGMState(beliefs, learned, (), damping)
            for _ in monitor:
                beliefs, log_theta = state.beliefs, state.learned.potentials.log_theta
                # expected counts under the beliefs of this state
                statistics = graph.statistics(beliefs, log_theta if pairwise else None)
                # M: the parameters of the next state, in closed form or as Dirichlet posteriors
                learned = learner.m_step(statistics, state.learned)
                # E: the beliefs of the next state, by messages
                damping = state.damping
                if self.damping is None and not damping and oscillates(state.objectives):
                    damping = AUTO_DAMPING
                potentials = with_prior(learned.potentials, prior, beliefs.z, load)
                updated = graph.propagate(beliefs, potentials, rounds, bp_tol, damping)
                # the objective of this state; the pair terms of log Z are a by-product of the round above
                evidence = beliefs.node_terms - updated.pair_terms_before
                objective = evidence + state.learned.prior_term
                if monitor.report(objective, state):
                    break
                latest = (*state.objectives, objective)[-(MAX_TURNS + 2) :]
                state = PGMState(updated, learned, latest, damping)
        best = restarts.best
        beliefs, learned = best.state.beliefs, best.state.learned
        self._set_fitted(learned.parameters, np.array(beliefs.w), beliefs.z, annotations.annotator_load)
        self.alpha_, self.gamma_, self.tau_ = learned.alpha, learned.gamma, learned.tau
        self.damping_ = np.asarray(best.state.damping)
        self.trace_, self.stopped_ = np.array(best.trace), best.stopped

    def _fit_annealing(self, annotations: Annotations, engine: Engine, prior: Array | None) -> None:
        """Run simulated annealing on the complete state (Algorithm 2)."""
        priors = Priors(*self._concentrations(annotations.n_classes, PAPER_PRIOR))
        K, L = self.n_item_clusters, self.n_annotator_clusters
        settings: dict[str, Any] = {"max_iter": self.max_iter or DEFAULT_ITERATIONS["annealing"]}
        settings |= {name: getattr(self, name) for name in ("tol", *ANNEALING_SETTINGS)}

        from dissensus.models.pgm import annealing

        def annealed(rng: Generator) -> annealing.Annealed:
            if self.start == "random":
                w, z = self._random_clusters(annotations, rng)
            else:
                theta, psi, z = self._initial_parameters(annotations, rng)
                w = cluster_posterior(annotations.counts.astype(np.float64), theta, psi)
            start = annealing.start_at(annotations, w.argmax(1), z.argmax(1), K, L, priors)
            return annealing.anneal(annotations, start, priors, rng, prior=prior, **settings)

        streams = [np.random.default_rng([self.seed, restart]) for restart in range(self.n_restarts)]
        best = max(engine.map(annealed, streams), key=lambda run: run.best[0][0])
        _, state = best.best[0]
        items, annotators = annealing.conditionals(annotations, state, prior)
        w, z = softmax_rows(items)[0], softmax_rows(annotators)[0]
        self._set_fitted(state.parameters, w, z, annotations.annotator_load)
        self.alpha_, self.gamma_, self.tau_ = map(np.atleast_1d, (priors.alpha, priors.gamma, priors.tau))
        self.damping_, self.best_states_ = np.asarray(0.0), best.best
        self.trace_, self.stopped_ = np.array(best.trace), best.stopped

    def _initial_beliefs(self, graph: Graph, annotations: Annotations, rng: Generator) -> Beliefs:
        """Return beliefs from random clusters, from random items, or from a fit to a sample of the items.

        The fit to a sample runs in this process, and starts from a smaller sample if it is still large.
        """
        if self.start == "random":
            return graph.start(*self._random_clusters(annotations, rng))
        if annotations.n_labels < MIN_LABELS_FOR_SAMPLE:
            return graph.start_by_counts(*self._initial_parameters(annotations, rng))
        in_sample = rng.random(annotations.n_items) < 1 / ITEMS_PER_SAMPLED
        sample = annotations.take_items(np.flatnonzero(in_sample))
        if sample.n_labels < annotations.n_labels / (2 * ITEMS_PER_SAMPLED):  # a few items have most labels
            return graph.start_by_counts(*self._initial_parameters(annotations, rng))
        seed = int(rng.integers(2**32))
        with using(current().share(1)):
            pilot = with_settings(self, {"n_restarts": 1, "seed": seed}).fit(sample)
        start = graph.start_by_counts(pilot._cluster_distributions(), pilot.psi_, pilot.annotator_clusters_)
        return graph.round(start, Parameters(pilot.theta_, pilot.psi_, pilot.omega_).logs, measure=False)

    def _initial_parameters(self, annotations: Annotations, rng: Generator) -> tuple[Array, Array, Array]:
        """Return Θ (K, P) from random items' labels, uniform ψ, and random clusters of annotators."""
        K, L = self.n_item_clusters, self.n_annotator_clusters
        theta = initial_theta(annotations, K, PAPER_PRIOR, rng)
        return theta, np.full(K, 1.0 / K), random_clusters(annotations.n_annotators, L, rng)

    def _random_clusters(self, annotations: Annotations, rng: Generator) -> tuple[Array, Array]:
        w = random_clusters(annotations.n_items, self.n_item_clusters, rng)
        return w, random_clusters(annotations.n_annotators, self.n_annotator_clusters, rng)

    def _concentrations(self, n_classes: int, default: float | None) -> list[Any]:
        """Return α, γ and τ as numbers or arrays; ``default`` for those that are None."""
        sizes = {"alpha": n_classes, "gamma": self.n_item_clusters, "tau": self.n_annotator_clusters}
        values = [(name, getattr(self, name), n) for name, n in sizes.items()]
        return [default if v is None else concentration(self, name, v, n) for name, v, n in values]

    def _set_fitted(self, parameters: Parameters, w: Array, z: Array, load: NDArray[Any]) -> None:
        self.theta_, self.psi_, self.omega_ = parameters.theta, parameters.psi, parameters.omega
        self.item_clusters_, self.annotator_clusters_ = w, z
        # π_l ∝ Σ_n load_n z_nl, or Ω if all annotators have equal weight
        self.population_weights_ = self.omega_ if self.weight_by == "annotators" else normalised(load @ z)
        self.prior_distribution_ = self.psi_ @ self._cluster_distributions()
        self._set_distributions()

    # ---- results -------------------------------------------------------------------------------------

    def _cluster_distributions(self) -> Array:
        """Return (K, P): Σ_l π_l Θ_kl."""
        return np.asarray(np.einsum("l,klp->kp", self.population_weights_, self.theta_))

    def _set_distributions(self) -> None:
        """Set the label distributions of the items."""
        if isinstance(self.item_clusters_, np.memmap):  # its file is deleted after the fit
            self.item_clusters_ = np.array(self.item_clusters_)
        w = self.item_clusters_
        w = np.eye(w.shape[1])[w.argmax(axis=1)] if self.assignment == "hard" else w
        self.label_distributions_ = w @ self._cluster_distributions()

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Return Σ_kl w_mk z_nl Θ_klp; a code of −1 is an unknown item or annotator."""
        w, z = self._clusters_with_unknown()
        w, z = w.take(item, axis=0), z.take(annotator, axis=0)
        K, L, P = self.theta_.shape
        by_annotator_cluster = (w @ self.theta_.reshape(K, L * P)).reshape(-1, L, P)
        return np.asarray(np.einsum("el,elp->ep", z, by_annotator_cluster))

    def _label_probabilities(self, item: Codes, annotator: Codes, label: NDArray[np.intp]) -> Array:
        """Return Σ_kl w_mk z_nl Θ_kly of the given labels, one class at a time."""
        order, probabilities = np.argsort(label, kind="stable"), np.empty(len(label))
        ends = np.searchsorted(label[order], np.arange(1, self.theta_.shape[2]))
        w, z = self._clusters_with_unknown()
        for p, rows in enumerate(np.split(order, ends)):
            by_annotator_cluster = w.take(item[rows], axis=0) @ self.theta_[:, :, p]
            by_annotator_cluster *= z.take(annotator[rows], axis=0)
            probabilities[rows] = row_sums(by_annotator_cluster)
        return probabilities

    def _clusters_with_unknown(self) -> tuple[Array, Array]:
        """Return w and z, with a last row for an unknown item or annotator."""
        w = np.vstack([self.item_clusters_, self.psi_])
        return w, np.vstack([self.annotator_clusters_, self.population_weights_])

    def cluster_view(self, annotator_load: NDArray[Any] | None = None) -> ClusterView:
        """Return the item clusters and annotator clusters."""
        self._check_fitted()
        w, z, population = self.item_clusters_, self.annotator_clusters_, self._cluster_distributions()
        return ClusterView(w, z, self.theta_, self.psi_, self.omega_, self.population_weights_, population)

    def annotator_frame(self) -> dict[str, Any]:
        """Return columns about annotators: the most probable cluster and its probability."""
        z = self.annotator_clusters_
        return {"cluster": z.argmax(axis=1), "cluster_probability": z.max(axis=1)}

    # ---- new items and annotators ---------------------------------------------------------------------

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Compute beliefs about new items and annotators, with Θ, ψ and Ω of the fit.

        Fitted items and annotators start from their beliefs; labels between two of them are assumed to be
        those of the fit, and are not counted again.
        """
        rows, item, annotator = unfitted_rows(new, fitted)
        w = np.vstack([fitted.item_clusters_, fitted.psi_])[item]
        z = np.vstack([fitted.annotator_clusters_, fitted.omega_])[annotator]
        potentials = Parameters(fitted.theta_, w, z).logs
        graph = Graph(rows, engine, keep_cavities=False)
        start = graph.start(np.exp(potentials.log_psi), np.exp(potentials.log_omega))
        beliefs = graph.propagate(start, potentials, rounds=50, tol=1e-9 * max(new.n_labels, 1))
        self.item_clusters_, self.annotator_clusters_ = np.array(beliefs.w), beliefs.z
        self._set_distributions()
