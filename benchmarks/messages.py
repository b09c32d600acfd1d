"""One iteration of PGM's belief propagation, relative to the bare message step.

A million labels, K = L = 12, P = 5. The bare step computes for every label the product Θ_y · cavity, its
logarithm, and the sum per item, on pairs sorted by class. The iteration adds the other direction and the
counts of the M-step.
"""

from __future__ import annotations

import sys

import numpy as np

import dissensus as ds
from benchmarks.timing import best_seconds
from dissensus.engine import cut_blocks, threads
from dissensus.models.pgm.kernels import PairLayout, messages
from dissensus.models.pgm.m_step import MaximumPosterior, Priors
from dissensus.models.pgm.messages import Graph
from experiments.runner import check_limit

K = L = 12
P, N_LABELS, LABELS_PER_ITEM = 5, 1_000_000, 10
MAX_RATIO = 8.0


def main() -> int:
    simulation = ds.simulate(
        N_LABELS // LABELS_PER_ITEM, 2000, P, labels_per_item=LABELS_PER_ITEM, load="long-tail"
    )
    annotations = simulation.annotations
    rng = np.random.default_rng(0)
    shards = [
        block.shard(n, n + 1) for block in cut_blocks(annotations) for n in range(len(block.item_bounds) - 1)
    ]
    theta = rng.dirichlet(np.ones(P), (K, L))
    factors = np.ascontiguousarray(theta.transpose(2, 0, 1))
    layouts = [PairLayout.of(shard) for shard in shards]
    cavities = {id(layout): rng.dirichlet(np.ones(L), len(layout.item)) for layout in layouts}

    def bare_step(layout: PairLayout) -> np.ndarray:
        return layout.by_item.of_logs(messages(layout, factors, cavities[id(layout)]), -np.log(factors.min()))

    missed = 0
    for n_jobs in (1, 2):
        with threads(n_jobs, annotations.n_labels) as pool:
            graph = Graph(annotations, pool, keep_cavities=False)
            w, z = (rng.dirichlet(np.ones(12), n) for n in (annotations.n_items, annotations.n_annotators))
            start = graph.start(w, z)
            learner = MaximumPosterior(Priors())
            beliefs = graph.round(start, learner.m_step(graph.statistics(start, None), None).potentials)

            def iteration(graph=graph, beliefs=beliefs, learner=learner) -> None:
                learned = learner.m_step(graph.statistics(beliefs, None), None)
                graph.round(beliefs, learned.potentials)

            bare, full = best_seconds(lambda pool=pool: pool.map(bare_step, layouts), iteration, repeats=7)
            missed |= check_limit(f"iteration over bare step, {n_jobs} thread(s)", full / bare, MAX_RATIO)
    return missed


if __name__ == "__main__":
    sys.exit(main())
