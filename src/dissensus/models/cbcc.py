"""CBCC: annotators in communities (Venanzi et al. 2014), the annotators-only relative of PGM.

How a label is born: item m has a true class t_m ~ Cat(ψ); annotator n belongs to a community z_n ~ Cat(Ω)
and has a confusion matrix of its own scattered around the community's, π_nk ~ Dir(a_{z_n, k}); the label is
y_mn ~ Cat(π_{n, t_m}). The mean of a_lk is the community's matrix, its sum how tightly members keep to it. As
that sum grows every member answers exactly like its community: PGM with K = P.

Learned by variational EM with q(t) q(z, π): annotators' matrices are integrated out given their community,
and the community parameters a, ψ and Ω maximise the bound. With n_nkp = Σ_m P(t_m = k) [y_mn = p]:

    q(z_n = l) ∝ Ω_l Π_k B(a_lk + n_nk) / B(a_lk),        B(a) = Π_p Γ(a_p) / Γ(Σ_p a_p)               (1)
    E log π_nkp = Σ_l q(z_n = l) [Ψ(a_lkp + n_nkp) − Ψ(Σ_p a_lkp + n_nkp)]                             (2)
    bound = Σ_m [E log ψ_{t_m} + H(q(t_m))] + Σ_n log Σ_l Ω_l Π_k B(a_lk + n_nk) / B(a_lk) + log p(a)   (3)

Communities' matrices are learned by Minka's fixed point for the Dirichlet-multinomial. His proof that it
cannot lower (3) is for whole counts; docs/mathematics.md has one for the fractions that expected counts are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dissensus.engine import Engine, Restarts
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import ConfusionModel, Expected, log_chances, votes
from dissensus.models.ibcc import LEAST, MOST, expected_log, fixed_point, log_beta
from dissensus.models.results import ClusterView
from dissensus.numerics import Array, column_sums, normalised, safe_log, softmax_rows
from dissensus.params import MAX_ITER, N_RESTARTS, SEED, TOL, fitted, integer, real, setting


@dataclass(frozen=True)
class State:
    """What is expected of the items' true classes, and what was learned of the crowd from it."""

    expected: Expected
    psi: Array  # (P,)
    omega: Array  # (L,)
    a: Array  # (L, P, P): Dirichlet parameters of the members' matrices
    logs: Array  # (N, P, P): the E log π behind ``expected``; empty where that is the majority vote's


def memberships(counts: Array, omega: Array, a: Array) -> tuple[Array, Array]:
    """q(z_n = l) and each annotator's term of the bound (1)."""
    fit = log_beta(a[None] + counts[:, None]) - log_beta(a)[None]  # of (N, L, P, P)
    return softmax_rows(fit.sum(axis=2) + safe_log(omega))


def by_community(of: Callable[[Array], Array], counts: Array, z: Array, a: Array) -> Array:
    """(N, P, P): Σ_l q(z_n = l) of(a_l + n_n), one community at a time."""
    total = np.zeros_like(counts)
    for share, own in zip(z.T, a, strict=True):
        total += share[:, None, None] * of(own + counts)
    return total


class CBCC(ConfusionModel):
    """Communities of annotators; each annotator's confusion matrix scatters around that of its community."""

    n_annotator_clusters: int = setting(3, integer(1), "How many communities there are at most.")
    _: KW_ONLY
    concentration: float = setting(
        10.0,
        real(0.0, open_low=True),
        "Mean of the exponential prior on each pseudo-count of a community's matrix; larger lets members be "
        "more alike.",
    )
    max_iter: int = setting(200, *MAX_ITER)
    tol: float = setting(1e-6, *TOL)
    n_restarts: int = setting(1, *N_RESTARTS)
    seed: int = setting(0, *SEED)

    _memory_tables = {"MP": 5, "NPP": 12}

    omega_: Array = fitted("(L,): shares of the communities")
    annotator_clusters_: Array = fitted("(N, L): P(z_n = l)")
    community_parameters_: Array = fitted("(L, P, P): Dirichlet parameters of each community's matrix")

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        steps, given, log_given = self._begin(annotations, engine, prior)
        restarts = Restarts(engine, self.n_restarts, self.seed, self.max_iter, self.tol)
        for monitor in restarts:
            state = monitor.resume(State) or self._start(steps.initial_counts(votes, given), monitor.rng)
            for _ in monitor:
                expected, counts = state.expected, state.expected.counts
                # annotators: each one's community, and what that adds to the bound (3)
                z, annotator_terms = memberships(counts, state.omega, state.a)
                items = expected.item_mass @ safe_log(state.psi) + expected.entropy
                prior = state.a.sum() / self.concentration
                if monitor.report(float(annotator_terms.sum()) + float(items - prior), state):
                    break
                # M: shares, and the communities' matrices by one step of Minka's fixed point
                psi, omega = normalised(expected.item_mass), normalised(column_sums(z))
                a = fixed_point(counts, z, state.a, self.concentration)
                # E: z is kept while π's posterior moves with a: each update can only raise the bound
                logs = by_community(expected_log, counts, z, a)  # E log π_nkp (2)
                state = State(steps.e_step(logs, log_chances(psi), log_given), psi, omega, a, logs)
        best, state = restarts.best, restarts.best.state
        if state.logs.size:
            self.posterior_ = steps.posterior(state.logs, log_chances(state.psi), log_given)
        else:
            self.posterior_ = steps.initial_posterior(votes, given)
        self.psi_, self.omega_, self.community_parameters_ = state.psi, state.omega, state.a
        self.annotator_clusters_, _ = memberships(state.expected.counts, state.omega, state.a)
        self.confusion_ = by_community(normalised, state.expected.counts, self.annotator_clusters_, state.a)
        self._finish(annotations.annotator_load, best)

    def _start(self, expected: Expected, rng: Generator) -> State:
        """Communities of random annotators around the crowd's matrix."""
        counts = expected.counts
        L, P = self.n_annotator_clusters, counts.shape[1]
        z = rng.dirichlet(np.ones(L), size=len(counts))
        matrices = normalised(np.tensordot(z.T, counts, axes=1) + counts.sum(axis=0) / len(counts) + 1.0 / P)
        psi, omega = normalised(expected.item_mass), np.full(L, 1.0 / L)
        # Minka's step, cut to the bounds, is the best point within them only for one that began there.
        a = np.clip(self.concentration * matrices, LEAST, MOST)
        return State(expected, psi, omega, a, np.zeros(0))

    def _matrices_of_new(self, counts: Array, fitted: Self) -> Array:
        a = fitted.community_parameters_
        return by_community(normalised, counts, memberships(counts, fitted.omega_, a)[0], a)

    def cluster_view(self, annotator_load: NDArray[Any] | None = None) -> ClusterView:
        """True classes and communities."""
        view, z = super().cluster_view(annotator_load), self.annotator_clusters_
        assert view.annotator_weights is not None
        # Θ_kl is the mean of the members' matrices, a_lk / Σ_p a_lkp
        theta = normalised(self.community_parameters_).transpose(1, 0, 2)
        weights = normalised(view.annotator_weights @ z)
        return replace(view, annotators=z, theta=theta, omega=self.omega_, weights=weights)

    def annotator_frame(self) -> dict[str, Any]:
        """Columns about annotators: accuracy, community and its probability."""
        z = self.annotator_clusters_
        clusters = {"cluster": z.argmax(axis=1), "cluster_probability": z.max(axis=1)}
        return super().annotator_frame() | clusters
