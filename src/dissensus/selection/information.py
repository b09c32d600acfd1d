"""Information criteria for mixtures of items, and of items and annotators, per label; higher is better.

With M items, N annotators and n labels, K × L clusters and P classes, the free parameters cost

    pen = (K−1)/2 · log M + (L−1)/2 · log N + K·L·(P−1)/2 · log n                                      (1)

as Keribin, Brault, Celeux and Govaert (Statistics and Computing 25, 2015) count them for latent block models:
shares of item clusters are learned from items, shares of annotator clusters from annotators, and Θ from
labels. FMM is the case L = 1. Then

    bic = (log P(labels | Θ, ψ, Ω) − pen) / n          clusters summed over, in Bethe's form (exact for L = 1)
    icl = (log P(labels, ŵ, ẑ | Θ, ψ, Ω) − pen) / n    with every item and annotator in its likeliest cluster
    evidence = log P(labels) / n                       parameters integrated out: what a ``"vb"`` fit climbs

None of them hides a label, so repeats differ by the fit's random start alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.data.annotations import Annotations
from dissensus.errors import bad_parameter

ROUNDS = 100  # of messages, at most, until Bethe's form has settled


@dataclass(frozen=True)
class InformationCriterion:
    """``bic``, ``icl`` or ``evidence`` of an FMM or a PGM."""

    name: str

    def __call__(self, estimator: Any, annotations: Annotations, seed: int) -> float:
        """Fit on all labels and weigh the fit against its size."""
        del seed
        self._check(estimator)
        fitted = estimator.fit(annotations)
        if self.name == "evidence":
            return float(fitted.trace_[-1]) / annotations.n_labels
        explained = log_evidence if self.name == "bic" else log_complete
        return (explained(fitted, annotations) - penalty(fitted, annotations)) / annotations.n_labels

    def _check(self, estimator: Any) -> None:
        kind = type(estimator).__name__
        if self.name == "evidence" and getattr(estimator, "inference", None) != "vb":
            raise bad_parameter("select", "criterion", "other than 'evidence' unless inference is 'vb'", kind)
        if kind not in ("FMM", "PGM"):
            rule = f"'held-out' or 'dev' for {kind}; information criteria count the parameters of FMM and PGM"
            raise bad_parameter("select", "criterion", rule, self.name)


def penalty(fitted: Any, annotations: Annotations) -> float:
    """What the free parameters cost (1), items and annotators without labels not counted."""
    K, L, P = fitted.cluster_view().theta.shape
    M, N = map(np.count_nonzero, _present(annotations))
    shares = (K - 1) * np.log(M) + (L - 1) * np.log(N)
    return float(shares + K * L * (P - 1) * np.log(annotations.n_labels)) / 2


def log_evidence(fitted: Any, annotations: Annotations) -> float:
    """log P(labels | Θ, ψ, Ω) by messages run until they settle, from the prior shares."""
    from dissensus.execution.run import Run
    from dissensus.models.pgm.propagation import Graph, Potentials
    from dissensus.numerics import safe_log

    known = fitted.cluster_view()
    potentials = Potentials(safe_log(known.theta), safe_log(known.psi), safe_log(known.omega))
    graph = Graph.of(annotations, Run(), keep_cavities=False)
    M, N = annotations.n_items, annotations.n_annotators
    start = graph.start(np.tile(known.psi, (M, 1)), np.tile(known.omega, (N, 1)))
    settled = graph.settle(start, potentials, rounds=ROUNDS, tol=1e-8 * annotations.n_labels)
    return graph.evidence(settled)


def log_complete(fitted: Any, annotations: Annotations) -> float:
    """log P(labels, ŵ, ẑ | Θ, ψ, Ω)."""
    from dissensus.models.pgm.parameters import block_counts
    from dissensus.numerics import safe_log

    known = fitted.cluster_view()
    z = np.ones((annotations.n_annotators, 1)) if known.annotators is None else known.annotators
    w, z = known.items.argmax(axis=1), z.argmax(axis=1)
    counts = block_counts(annotations, w, z, *known.theta.shape[:2])
    labelled, labelling = _present(annotations)
    # Σ_{labels} log Θ_{w_m, z_n, y} + Σ_m log ψ_{w_m} + Σ_n log Ω_{z_n}
    labels = (counts * safe_log(known.theta)).sum()
    shares = safe_log(known.psi)[w[labelled]].sum() + safe_log(known.omega)[z[labelling]].sum()
    return float(labels + shares)


def _present(annotations: Annotations) -> tuple[Any, Any]:
    """Which items and which annotators have labels: masks."""
    return annotations.counts.any(axis=1), annotations.annotator_load > 0
