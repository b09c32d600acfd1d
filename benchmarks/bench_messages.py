"""One full iteration of PGM's belief propagation, beside the bare message step it is built from.

A million labels, K = L = 12, P = 5. Bare step: for every label the product Θ_y · cavity, its logarithm, and
the sum per item, on pairs laid out by class. Full iteration: both message directions and the M-step's counts.
"""

from __future__ import annotations

import sys

import numpy as np

import dissensus as ds
from dissensus.engine import cut_blocks, threads
from dissensus.models.pgm.kernels import PairLayout, messages
from dissensus.models.pgm.m_step import MaximumPosterior, Priors
from dissensus.models.pgm.messages import Graph
from timing import best_seconds, verdict

K = L = 12
P, N_LABELS, PER_ITEM, LIMIT = 5, 1_000_000, 10, 8.0


def main() -> int:
    simulation = ds.simulate(N_LABELS // PER_ITEM, 2000, P, labels_per_item=PER_ITEM, load="long-tail")
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

    status = 0
    for n_jobs in (1, 2):
        with threads(n_jobs, annotations.n_labels) as pool:
            graph = Graph(annotations, pool, keep_cavities=False)
            w, z = (rng.dirichlet(np.ones(12), n) for n in (annotations.n_items, annotations.n_annotators))
            start = graph.start(w, z)
            learner = MaximumPosterior(Priors())
            beliefs = graph.round(start, learner.learn(graph.statistics(start, None), None).potentials)

            def iteration(graph=graph, beliefs=beliefs, learner=learner) -> None:
                learned = learner.learn(graph.statistics(beliefs, None), None)
                graph.round(beliefs, learned.potentials)

            bare, full = best_seconds(lambda pool=pool: pool.map(bare_step, layouts), iteration, repeats=7)
            print(f"{n_jobs} thread(s): bare {bare * 1e3:.0f} ms, full iteration {full * 1e3:.0f} ms")
            status |= verdict(f"  full / bare, {n_jobs} thread(s)", full / bare, LIMIT)
    return status


if __name__ == "__main__":
    sys.exit(main())
