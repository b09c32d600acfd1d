"""PGM: the graphical model that clusters items and annotators at once (Weerasooriya et al. 2021).

How a label is born: item m belongs to one of K clusters, w_m ~ Cat(ψ); annotator n to one of L, z_n ~ Cat(Ω);
the label is drawn from the distribution of that pair of clusters, y_mn ~ Cat(Θ_{w_m, z_n}). Priors:
Θ_kl ~ Dir(α), ψ ~ Dir(γ), Ω ~ Dir(τ). What the population would answer about an item is

    Y'_m = Σ_l π_l Θ_{w_m, l}                                                                 (Eq. infer)

with π = Ω (every annotator counts the same) or in proportion to how much each cluster labels.

One model, three ways to learn it:

* ``"bp"``: EM, the clusters' posteriors by belief propagation (messages.py; Algorithm 3), the M-step in
  m_step.py;
* ``"annealing"``: simulated annealing on the complete state (annealing.py; Algorithm 2);
* ``"vb"``: Dirichlet posteriors over the parameters (m_step.py), the same messages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dissensus.engine import Engine, Restarts, current, using
from dissensus.errors import bad_parameter
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes
from dissensus.models.base import Model
from dissensus.models.confusion import checked_prior
from dissensus.models.fmm import assigned, initial_theta, random_clusters
from dissensus.models.pgm.m_step import Learned, MaximumPosterior, Parameters, Priors, VariationalBayes
from dissensus.models.pgm.messages import Beliefs, Graph, with_prior
from dissensus.models.results import ClusterView
from dissensus.models.scoring import fresh_rows
from dissensus.numerics import Array, concentration, normalised, row_shares, row_sums, softmax_rows
from dissensus.params import (
    N_JOBS,
    N_RESTARTS,
    NONE,
    SEED,
    TOL,
    WEIGHT_BY,
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

PAPER_PRIOR = 2.0
DEFAULT_ITERATIONS = {"bp": 200, "vb": 200, "annealing": 600}
OF_ANNEALING = ("n_best", "temperature", "cooling", "ascent")  # settings
BP_TOL = 1e-4  # change of the beliefs at which the rounds of an iteration end
AUTO_DAMPING = 0.5  # share of the old message that is kept once messages are found to swing
MANY_LABELS = 1_000_000  # from here on, a fit begins where a fit to a sample of the items ended
SAMPLED = 8  # one item of so many
SWINGS = 4  # changes of direction in a row that count as swinging


@dataclass(frozen=True)
class State:
    """Where a fit by messages is: beliefs, what was learned for them, and how it has gone so far."""

    beliefs: Beliefs
    learned: Learned
    objectives: tuple[float, ...] = ()  # the last few, oldest first
    damping: float = 0.0


def swings(objectives: Sequence[float]) -> bool:
    """Has the objective turned at every step of late, without the turns getting smaller?"""
    if len(objectives) <= SWINGS + 1:
        return False
    changes = np.diff(objectives)
    turned = (changes[1:] * changes[:-1] < 0).all()
    return bool(turned and abs(changes[-1]) > 0.5 * abs(changes[0]))


class PGM(Model):
    """Clusters of items and of annotators, learned together: the graphical model of the paper.

    Annealing ends with coordinate ascent; ``best_states_`` holds its best states. ``damping_`` says which
    damping was in force at the end.
    """

    n_item_clusters: int = setting(10, integer(1), "How many clusters of items there are (K).")
    n_annotator_clusters: int = setting(5, integer(1), "How many clusters of annotators there are (L).")
    _: KW_ONLY
    inference: str = setting(
        "bp",
        choice("bp", "annealing", "vb"),
        '``"bp"``: belief propagation in EM; ``"vb"``: variational Bayes; ``"annealing"``: simulated '
        "annealing.",
    )
    alpha: float | Sequence[float] | None = setting(
        None,
        dirichlet(0.0, open_low=True) | NONE,
        "Dirichlet parameter of the answers of a pair of clusters: a number, or a list with one for each "
        'class. None is 2, as in the paper, or learned by empirical Bayes with ``"vb"``.',
    )
    gamma: float | Sequence[float] | None = setting(
        None, dirichlet(0.0, open_low=True) | NONE, "The same for the sizes of the item clusters."
    )
    tau: float | Sequence[float] | None = setting(
        None, dirichlet(0.0, open_low=True) | NONE, "The same for the sizes of the annotator clusters."
    )
    m_step: str = setting(
        "product",
        choice("product", "pairwise"),
        '``"product"`` multiplies the beliefs of item and annotator (the paper\'s M-step); ``"pairwise"`` '
        "uses the belief of each pair (that of exact EM).",
    )
    bp_rounds: int = setting(1, integer(1), "Rounds of messages in each iteration, at most.")
    bp_tol: float | None = setting(
        None,
        real(0.0) | NONE,
        "Rounds end when the KL between successive beliefs, summed over all items and annotators, is at most "
        "this; None is 1e-4.",
    )
    damping: float | None = setting(
        None,
        real(0.0, 0.95) | NONE,
        "The share of the old message that is kept; None is 0, and more once the objective is found to "
        "swing.",
    )
    max_iter: int | None = setting(
        None, integer(1) | NONE, "The most iterations. None takes a number that suits the inference."
    )
    tol: float = setting(1e-5, *TOL)
    n_restarts: int = setting(1, *N_RESTARTS)
    n_best: int = setting(1, integer(1), "How many of the best states annealing keeps.")
    start: str = setting(
        "items",
        choice("items", "random"),
        '``"items"``: item clusters start at the labels of random items; ``"random"``: every item in a '
        "cluster drawn at random, as in the paper. Annotators start at random. From a million labels on, "
        '``"items"`` begins where a fit to one item in eight ended (annealing does not).',
    )
    temperature: float = setting(
        10.0,
        real(0.0, open_low=True),
        "Annealing: the temperature at step t is ``temperature`` / (t + 1) ^ ``cooling`` (both are 1 in the "
        "paper).",
    )
    cooling: float = setting(0.5, real(0.0), "See ``temperature``.")
    ascent: bool = flag(
        True, "Annealing: whether the best states end in coordinate ascent (not in the paper)."
    )
    assignment: str = setting(
        "soft",
        choice("soft", "hard"),
        '``"soft"`` averages over clusters by their posterior; ``"hard"`` takes the most likely cluster.',
    )
    weight_by: str = setting("labels", *WEIGHT_BY)
    seed: int = setting(0, *SEED)
    n_jobs: int = setting(-1, *N_JOBS)

    _needs_annotators = True
    _memory_tables = {"MP": 2, "MK": 3, "NL": 5}

    theta_: Array = fitted("(K, L, P): label distribution between item cluster and annotator cluster")
    psi_: Array = fitted("(K,): shares of the item clusters")
    omega_: Array = fitted("(L,): shares of the annotator clusters")
    item_clusters_: Array = fitted("(M, K): P(w_m = k)")
    annotator_clusters_: Array = fitted("(N, L): P(z_n = l)")
    population_weights_: Array = fitted("(L,): π of Eq. infer")
    alpha_: Array = fitted("the alpha in force, learned or given")
    gamma_: Array = fitted("the gamma in force")
    tau_: Array = fitted("the tau in force")
    damping_: Array = fitted("the damping in force at the end, as a 0-d array")
    best_states_: list[tuple[float, annealing.HardState]] = fitted("annealing: its best states", saved=False)

    def check_params(self) -> None:
        """The rules, that the closed forms' priors are at least 1, and that every setting has an effect."""
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
                rule = f"at least 1 with inference={self.inference!r}, whose closed forms need it"
                raise bad_parameter(self, name, rule, value)

    def memory_needed(self, labels: Annotations, n_threads: int = 1, features: Any = None) -> int:
        """As for every model; annealing works on columns of all labels."""
        annealed = n_threads * 64 * labels.n_labels if self.inference == "annealing" else 0
        return super().memory_needed(labels, n_threads) + annealed

    def _without_effect(self) -> dict[str, str]:
        """Settings that have no effect, and why."""
        if self.inference == "annealing":
            steering = ("m_step", "bp_rounds", "bp_tol", "damping")
            return dict.fromkeys(steering, "with inference='annealing', which passes no messages")
        idle = dict.fromkeys(OF_ANNEALING, f"with inference={self.inference!r}, which does not anneal")
        if self.bp_rounds == 1:
            idle["bp_tol"] = "with bp_rounds=1, since nothing follows the one round"
        return idle

    # ---- fitting --------------------------------------------------------------------------------------

    def fit(self, labels: Any, *, prior: Any = None, prior_worth: float = 1.0) -> Self:
        """Learn from labels, and from what is known of the items beforehand.

        Parameters
        ----------
        labels
            Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
        prior
            (items, classes): what a classifier, or gold, says of each item before any annotator does. A row
            of zeros says nothing.
        prior_worth
            How many labels of an average annotator a row of ``prior`` counts for.
        """
        if not (math.isfinite(prior_worth) and prior_worth >= 0):
            raise bad_parameter(self, "prior_worth", "a float >= 0", prior_worth)
        return self._run_fit(labels, prior=prior, prior_worth=prior_worth)

    def _fit(
        self, annotations: Annotations, engine: Engine, prior: Any = None, prior_worth: float = 1.0
    ) -> None:
        """EM with its E-step by messages (Algorithm 3): maximum posterior, or variational Bayes.

        A state holds beliefs and the parameters that they were computed with. An iteration counts labels by
        the state's beliefs, learns the next parameters (M), passes messages for the next beliefs (E), and
        reports the objective of the state that it began with, which needs the first of these messages. The
        fit stops with that state; what came after it is dropped.

        The objective is Bethe's log-evidence plus the priors' terms. It never falls with pairwise counts and
        settled messages on a tree, where it is exact. Elsewhere it may swing; when it keeps swinging,
        messages are damped.
        """
        if prior is not None:
            prior = prior_worth * row_shares(checked_prior(self, prior, annotations))
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
            state = monitor.resume(State)
            if state is None:
                beliefs = self._first_beliefs(graph, annotations, monitor.rng)
                learned = learner.learn(graph.statistics(beliefs, None), None)
                damping = float(self.damping or 0.0)
                potentials = with_prior(learned.potentials, prior, beliefs.z, load)
                settled = graph.settle(beliefs, potentials, rounds, bp_tol, damping)
                state = State(settled, learned, (), damping)
            for _ in monitor:
                beliefs, log_theta = state.beliefs, state.learned.potentials.log_theta
                # the counts that the beliefs of this state imply
                statistics = graph.statistics(beliefs, log_theta if pairwise else None)
                # M: the parameters of the next state, in closed form or as Dirichlet posteriors
                learned = learner.learn(statistics, state.learned)
                # E: the beliefs of the next state, by messages
                damping = state.damping
                if self.damping is None and not damping and swings(state.objectives):
                    damping = AUTO_DAMPING
                potentials = with_prior(learned.potentials, prior, beliefs.z, load)
                settled = graph.settle(beliefs, potentials, rounds, bp_tol, damping)
                # the objective of this state; its pair terms are a by-product of the first round above
                objective = graph.evidence(beliefs, settled.pair_terms_before) + state.learned.prior_term
                if monitor.report(objective, state):
                    break
                state = State(settled, learned, (*state.objectives, objective)[-(SWINGS + 2) :], damping)
        best = restarts.best
        beliefs, learned = best.state.beliefs, best.state.learned
        self._keep(learned.parameters, np.array(beliefs.w), beliefs.z, annotations.annotator_load)
        self.alpha_, self.gamma_, self.tau_ = learned.alpha, learned.gamma, learned.tau
        self.damping_ = np.asarray(best.state.damping)
        self.trace_, self.stopped_ = np.array(best.trace), best.stopped

    def _fit_annealing(self, annotations: Annotations, engine: Engine, prior: Array | None) -> None:
        """Simulated annealing on the complete state (Algorithm 2)."""
        priors = Priors(*self._concentrations(annotations.n_classes, PAPER_PRIOR))
        K, L = self.n_item_clusters, self.n_annotator_clusters
        settings: dict[str, Any] = {"max_iter": self.max_iter or DEFAULT_ITERATIONS["annealing"]}
        settings |= {name: getattr(self, name) for name in ("tol", *OF_ANNEALING)}

        from dissensus.models.pgm import annealing

        def annealed(rng: Generator) -> annealing.Annealed:
            if self.start == "random":
                w, z = self._random_clusters(annotations, rng)
            else:
                theta, psi, z = self._first_guess(annotations, rng)
                w = assigned(annotations.counts.astype(np.float64), theta, psi)
            start = annealing.start_at(annotations, w.argmax(1), z.argmax(1), K, L, priors)
            return annealing.anneal(annotations, start, priors, rng, prior=prior, **settings)

        streams = [np.random.default_rng([self.seed, restart]) for restart in range(self.n_restarts)]
        best = max(engine.map(annealed, streams), key=lambda found: found.best[0][0])
        _, state = best.best[0]
        items, annotators = annealing.conditionals(annotations, state, prior)
        w, z = softmax_rows(items)[0], softmax_rows(annotators)[0]
        self._keep(state.parameters, w, z, annotations.annotator_load)
        self.alpha_, self.gamma_, self.tau_ = map(np.atleast_1d, (priors.alpha, priors.gamma, priors.tau))
        self.damping_ = np.asarray(0.0)
        self.best_states_ = best.best
        self.trace_, self.stopped_ = np.array(best.trace), best.stopped

    def _first_beliefs(self, graph: Graph, annotations: Annotations, rng: Generator) -> Beliefs:
        if self.start == "random":
            return graph.start(*self._random_clusters(annotations, rng))
        if annotations.n_labels >= MANY_LABELS:
            return self._beliefs_by_a_sample(graph, annotations, rng)
        return graph.start_by_counts(*self._first_guess(annotations, rng))

    def _beliefs_by_a_sample(self, graph: Graph, annotations: Annotations, rng: Generator) -> Beliefs:
        """Beliefs by the parameters of a fit to some of the items: it costs little, and ends near the whole.

        That fit is made in this process, and of very many labels it begins with a sample of its own.
        """
        some = annotations.take_items(np.flatnonzero(rng.random(annotations.n_items) < 1 / SAMPLED))
        if some.n_labels < annotations.n_labels / (2 * SAMPLED):  # a few items have nearly all labels
            return graph.start_by_counts(*self._first_guess(annotations, rng))
        seed = int(rng.integers(2**32))
        with using(current().share(1)):
            found = with_settings(self, {"n_restarts": 1, "seed": seed}).fit(some)
        start = graph.start_by_counts(found._cluster_distributions(), found.psi_, found.annotator_clusters_)
        logs = Parameters(found.theta_, found.psi_, found.omega_).logs
        return graph.round(start, logs, measure=False)

    def _first_guess(self, annotations: Annotations, rng: Generator) -> tuple[Array, Array, Array]:
        """Θ (K, P) of random items' labels and uniform ψ, to compare items with; annotators at random."""
        K, L = self.n_item_clusters, self.n_annotator_clusters
        theta = initial_theta(annotations, K, PAPER_PRIOR, rng)
        return theta, np.full(K, 1.0 / K), random_clusters(annotations.n_annotators, L, rng)

    def _random_clusters(self, annotations: Annotations, rng: Generator) -> tuple[Array, Array]:
        w = random_clusters(annotations.n_items, self.n_item_clusters, rng)
        return w, random_clusters(annotations.n_annotators, self.n_annotator_clusters, rng)

    def _concentrations(self, n_classes: int, unset: float | None) -> list[Any]:
        """α, γ and τ as they are computed with; ``unset`` where none is given."""
        sizes = {"alpha": n_classes, "gamma": self.n_item_clusters, "tau": self.n_annotator_clusters}
        values = {name: getattr(self, name) for name in sizes}
        return [
            unset if v is None else concentration(self, name, v, sizes[name]) for name, v in values.items()
        ]

    def _keep(self, parameters: Parameters, w: Array, z: Array, load: NDArray[Any]) -> None:
        self.theta_, self.psi_, self.omega_ = parameters.theta, parameters.psi, parameters.omega
        self.item_clusters_, self.annotator_clusters_ = w, z
        # π_l ∝ Σ_n load_n z_nl, or every annotator alike: Ω
        self.population_weights_ = self.omega_ if self.weight_by == "annotators" else normalised(load @ z)
        self.prior_distribution_ = self.psi_ @ self._cluster_distributions()
        self._describe_items()

    # ---- what it knows --------------------------------------------------------------------------------

    def _cluster_distributions(self) -> Array:
        """(K, P): Σ_l π_l Θ_kl."""
        return np.asarray(np.einsum("l,klp->kp", self.population_weights_, self.theta_))

    def _describe_items(self) -> None:
        if isinstance(self.item_clusters_, np.memmap):  # its file goes with the fit
            self.item_clusters_ = np.array(self.item_clusters_)
        w = self.item_clusters_
        w = np.eye(w.shape[1])[w.argmax(axis=1)] if self.assignment == "hard" else w
        self.label_distributions_ = w @ self._cluster_distributions()

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Σ_kl w_mk z_nl Θ_klp; a code of −1 stands for somebody never seen."""
        w, z = self._tables_of_beliefs()
        w, z = w.take(item, axis=0), z.take(annotator, axis=0)
        K, L, P = self.theta_.shape
        by_annotator_cluster = (w @ self.theta_.reshape(K, L * P)).reshape(-1, L, P)
        return np.asarray(np.einsum("el,elp->ep", z, by_annotator_cluster))

    def _label_chances(self, item: Codes, annotator: Codes, label: NDArray[np.intp]) -> Array:
        """The same for the class given, one class after the other."""
        order, chances = np.argsort(label, kind="stable"), np.empty(len(label))
        ends = np.searchsorted(label[order], np.arange(1, self.theta_.shape[2]))
        w, z = self._tables_of_beliefs()
        for p, given in enumerate(np.split(order, ends)):
            by_annotator_cluster = w.take(item[given], axis=0) @ self.theta_[:, :, p]
            by_annotator_cluster *= z.take(annotator[given], axis=0)
            chances[given] = row_sums(by_annotator_cluster)
        return chances

    def _tables_of_beliefs(self) -> tuple[Array, Array]:
        """w and z, with a last row for somebody never seen."""
        w = np.vstack([self.item_clusters_, self.psi_])
        return w, np.vstack([self.annotator_clusters_, self.population_weights_])

    def cluster_view(self, annotator_load: NDArray[Any] | None = None) -> ClusterView:
        """Item clusters and annotator clusters."""
        self._check_fitted()
        w, z, population = self.item_clusters_, self.annotator_clusters_, self._cluster_distributions()
        return ClusterView(w, z, self.theta_, self.psi_, self.omega_, self.population_weights_, population)

    def annotator_frame(self) -> dict[str, Any]:
        """Columns about annotators: the most likely cluster and its probability."""
        z = self.annotator_clusters_
        return {"cluster": z.argmax(axis=1), "cluster_probability": z.max(axis=1)}

    # ---- new items and annotators ---------------------------------------------------------------------

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Beliefs about ``new``'s items and annotators, Θ, ψ and Ω kept.

        Items and annotators of the fit bring their beliefs along; labels between two of them are taken to
        be those of the fit, and are not counted a second time.
        """
        item = fitted.item_vocabulary_.codes(new.item_vocabulary)
        annotator = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        w = np.vstack([fitted.item_clusters_, fitted.psi_])[item]
        z = np.vstack([fitted.annotator_clusters_, fitted.omega_])[annotator]
        potentials = Parameters(fitted.theta_, w, z).logs
        graph = Graph(fresh_rows(new, item, annotator), engine, keep_cavities=False)
        start = graph.start(np.exp(potentials.log_psi), np.exp(potentials.log_omega))
        beliefs = graph.settle(start, potentials, rounds=50, tol=1e-9 * max(new.n_labels, 1))
        self.item_clusters_, self.annotator_clusters_ = np.array(beliefs.w), beliefs.z
        self._describe_items()
