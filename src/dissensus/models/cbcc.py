"""CBCC: communities of annotators (Venanzi et al. 2014), a relative of PGM that clusters annotators only.

Generative model: item m has a true class t_m ~ Cat(ψ); annotator n belongs to a community z_n ~ Cat(Ω) and
has a confusion matrix that varies around the community's, π_nk ~ Dir(a_{z_n, k}); the label is
y_mn ~ Cat(π_{n, t_m}). The mean of Dir(a_lk) is a row of the community's matrix, and the sum of a_lk is how
closely members follow it. As the sum grows, every member answers like its community: PGM with K = P.

Variational EM with q(t) q(z, π): annotators' matrices are integrated out given their community, and the
parameters a, ψ and Ω maximise the bound. With n_nkp = Σ_m P(t_m = k) [y_mn = p]:

    q(z_n = l) ∝ Ω_l Π_k B(a_lk + n_nk) / B(a_lk),        B(a) = Π_p Γ(a_p) / Γ(Σ_p a_p)               (1)
    E log π_nkp = Σ_l q(z_n = l) [Ψ(a_lkp + n_nkp) − Ψ(Σ_p a_lkp + n_nkp)]                             (2)
    bound = Σ_m [E log ψ_{t_m} + H(q(t_m))] + Σ_n log Σ_l Ω_l Π_k B(a_lk + n_nk) / B(a_lk) + log p(a)   (3)

The communities' matrices are learned by Minka's fixed point for the Dirichlet-multinomial. His proof that it
cannot lower (3) is for integer counts; docs/mathematics.md extends it to expected counts.
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
from dissensus.models.confusion import ConfusionModel, ExpectedCounts, log_with_zeros, majority_votes
from dissensus.models.ibcc import MAX_PSEUDO_COUNT, MIN_PSEUDO_COUNT, expected_log, log_beta, minka_step
from dissensus.models.results import ClusterView
from dissensus.numerics import Array, column_sums, normalised, safe_log, softmax_rows
from dissensus.params import N_RESTARTS, POSITIVE, SEED, fitted, integer, setting


@dataclass(frozen=True)
class CBCCState:
    """Expected counts, and the parameters learned from them."""

    expected: ExpectedCounts
    psi: Array  # (P,)
    omega: Array  # (L,)
    a: Array  # (L, P, P): Dirichlet parameters of the members' matrices
    logs: Array  # (N, P, P): the E log π behind ``expected``; empty at the start


def memberships(counts: Array, omega: Array, a: Array) -> tuple[Array, Array]:
    """Return q(z_n = l) (1), and each annotator's term of the bound (3)."""
    log_ratios = log_beta(a[None] + counts[:, None]) - log_beta(a)[None]  # (N, L, P)
    return softmax_rows(log_ratios.sum(axis=2) + safe_log(omega))


def mean_over_communities(function: Callable[[Array], Array], counts: Array, z: Array, a: Array) -> Array:
    """Return (N, P, P): Σ_l q(z_n = l) function(a_l + n_n), one community at a time."""
    total = np.zeros_like(counts)
    for member, a_l in zip(z.T, a, strict=True):
        total += member[:, None, None] * function(a_l + counts)
    return total


class CBCC(ConfusionModel):
    """Communities of annotators, whose confusion matrices vary around that of the community."""

    n_annotator_clusters: int = setting(3, integer(1), "Maximum number of communities.")
    _: KW_ONLY
    concentration: float = setting(
        10.0, POSITIVE, "Prior mean of each pseudo-count of a community; larger lets members be more alike."
    )
    n_restarts: int = setting(1, *N_RESTARTS)
    seed: int = setting(0, *SEED)

    _memory_tables = {"MP": 5, "NPP": 12}

    omega_: Array = fitted("(L,): shares of the communities")
    annotator_clusters_: Array = fitted("(N, L): P(z_n = l)")
    community_parameters_: Array = fitted("(L, P, P): Dirichlet parameters of each community's matrix")

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        steps, item_prior, log_item_prior = self._setup(annotations, engine, prior)
        restarts = Restarts(engine, self.n_restarts, self.seed, self.max_iter, self.tol)
        for monitor in restarts:
            state = monitor.resume(CBCCState)
            state = state or self._start(steps.initial_counts(majority_votes, item_prior), monitor.rng)
            for _ in monitor:
                expected, counts = state.expected, state.expected.counts
                # communities of the annotators, and the bound (3)
                z, annotator_terms = memberships(counts, state.omega, state.a)
                item_terms = expected.item_mass @ safe_log(state.psi) + expected.entropy
                penalty = state.a.sum() / self.concentration
                if monitor.report(float(annotator_terms.sum()) + float(item_terms - penalty), state):
                    break
                # M: shares, and the communities' matrices by one step of Minka's fixed point
                psi, omega = normalised(expected.item_mass), normalised(column_sums(z))
                a = minka_step(counts, z, state.a, self.concentration)
                # E: z stays fixed while π's posterior follows a, so that no update can lower the bound
                logs = mean_over_communities(expected_log, counts, z, a)  # E log π_nkp (2)
                expected = steps.e_step(logs, log_with_zeros(psi), log_item_prior)
                state = CBCCState(expected, psi, omega, a, logs)
        best, state = restarts.best, restarts.best.state
        if state.logs.size:
            self.posterior_ = steps.posterior(state.logs, log_with_zeros(state.psi), log_item_prior)
        else:
            self.posterior_ = steps.initial_posterior(majority_votes, item_prior)
        self.psi_, self.omega_, self.community_parameters_ = state.psi, state.omega, state.a
        z, _ = memberships(state.expected.counts, state.omega, state.a)
        self.annotator_clusters_ = z
        self.confusion_ = mean_over_communities(normalised, state.expected.counts, z, state.a)
        self._set_fitted(annotations, best)

    def _start(self, expected: ExpectedCounts, rng: Generator) -> CBCCState:
        """Return random communities of annotators, shrunk towards the crowd's matrix."""
        counts = expected.counts
        L, P = self.n_annotator_clusters, counts.shape[1]
        z = rng.dirichlet(np.ones(L), size=len(counts))
        matrices = normalised(np.tensordot(z.T, counts, axes=1) + counts.sum(axis=0) / len(counts) + 1.0 / P)
        psi, omega = normalised(expected.item_mass), np.full(L, 1.0 / L)
        # Minka's step with clipping maximises within the range only if it starts within the range.
        a = np.clip(self.concentration * matrices, MIN_PSEUDO_COUNT, MAX_PSEUDO_COUNT)
        return CBCCState(expected, psi, omega, a, np.zeros(0))

    def _new_matrices(self, counts: Array, fitted: Self) -> Array:
        a = fitted.community_parameters_
        return mean_over_communities(normalised, counts, memberships(counts, fitted.omega_, a)[0], a)

    def cluster_view(self, annotator_load: NDArray[Any] | None = None) -> ClusterView:
        """Return the true classes and the communities."""
        view, z = super().cluster_view(annotator_load), self.annotator_clusters_
        assert view.annotator_weights is not None
        # Θ_kl is the mean of the members' matrices, a_lk / Σ_p a_lkp
        theta = normalised(self.community_parameters_).transpose(1, 0, 2)
        weights = normalised(view.annotator_weights @ z)
        return replace(view, annotators=z, theta=theta, omega=self.omega_, weights=weights)

    def annotator_frame(self) -> dict[str, Any]:
        """Return columns about annotators: accuracy, community and its probability."""
        z = self.annotator_clusters_
        return super().annotator_frame() | {"cluster": z.argmax(axis=1), "cluster_probability": z.max(axis=1)}
