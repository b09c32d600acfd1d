"""Would a compiled kernel pay? Dawid–Skene's E-step and a round of PGM's messages, ours and fused by numba.

The same labels (five an item, one annotator per thousand labels), one thread, in double precision; each
the best of some rounds in turn. The compiled loops know the number of clusters when they are compiled. A
kernel stays out unless a whole fit gains 1.5 times. A fit is more than its E-steps; what a process spends to
import numba and to compile stands beside it, and counts. numba is not a dependency: without it, nothing is
measured.

    python benchmarks/bench_numba.py [--labels 1000000]
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import dissensus as ds
from dissensus.engine import Engine, threads
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import CellLayout, ConfusionSteps, _by_cell, _e_step, _log_ratios
from dissensus.models.pgm.m_step import MaximumPosterior, Priors
from dissensus.models.pgm.messages import Graph
from dissensus.numerics import AT_ONCE
from timing import best_seconds, verdict

CLASSES, PER_ITEM, PER_ANNOTATOR, ITERATIONS, CLUSTERS = 3, 5, 1000, 20, 8
WORTH = 1.5  # times faster that a whole fit would have to be


def crowd(n_labels: int) -> Annotations:
    """Labels of a true class, right six times in ten."""
    rng = np.random.default_rng(0)
    item = np.repeat(np.arange(n_labels // PER_ITEM), PER_ITEM)
    annotator = rng.integers(0, max(n_labels // PER_ANNOTATOR, 20), len(item))
    true = np.repeat(rng.integers(0, CLASSES, n_labels // PER_ITEM), PER_ITEM)
    label = np.where(rng.random(len(item)) < 0.4, rng.integers(0, CLASSES, len(item)), true)
    return Annotations.from_arrays(item, annotator, label, classes=range(CLASSES))


# ---- Dawid–Skene --------------------------------------------------------------------------------------


def fused_sums(K: int) -> Callable[..., float]:
    """Posterior, expected counts and evidence item after item, by sums of logarithms."""

    def step(pointers, cells, logs, log_psi, counts):
        w, evidence = np.empty(K), 0.0
        for i in range(len(pointers) - 1):
            for k in range(K):
                w[k] = log_psi[k]
            for e in range(pointers[i], pointers[i + 1]):
                for k in range(K):
                    w[k] += logs[cells[e], k]
            most, mass = w.max(), 0.0
            for k in range(K):
                w[k] = np.exp(w[k] - most)
                mass += w[k]
            evidence += np.log(mass) + most
            for e in range(pointers[i], pointers[i + 1]):
                for k in range(K):
                    counts[cells[e], k] += w[k] / mass
        return evidence

    return step


def fused_products(K: int) -> Callable[..., float]:
    """The same by products of chances, scaled up where they become small."""

    def step(pointers, cells, chances, psi, counts):
        w, evidence = np.empty(K), 0.0
        for i in range(len(pointers) - 1):
            for k in range(K):
                w[k] = psi[k]
            for e in range(pointers[i], pointers[i + 1]):
                most = 0.0
                for k in range(K):
                    w[k] *= chances[cells[e], k]
                    most = max(most, w[k])
                if most < 1e-200:
                    evidence += np.log(most)
                    for k in range(K):
                        w[k] /= most
            mass = 0.0
            for k in range(K):
                mass += w[k]
            evidence += np.log(mass)
            for k in range(K):
                w[k] /= mass
            for e in range(pointers[i], pointers[i + 1]):
                for k in range(K):
                    counts[cells[e], k] += w[k]
        return evidence

    return step


def dawid_skene(known: Annotations, numba: Any) -> int:
    """Ours beside both loops, the second with its table in single precision too."""
    layouts: list[CellLayout] = list(ConfusionSteps(known, Engine()).blocks.map(lambda layout: layout))
    matrices = np.random.default_rng(1).dirichlet(np.ones(CLASSES), (known.n_annotators, CLASSES))
    logs, log_psi = _by_cell(np.log(matrices)), np.log(np.full(CLASSES, 1 / CLASSES))
    ratios = _log_ratios(logs)
    single = np.exp(logs).astype(np.float32)
    sums, products = (numba.njit(form(CLASSES)) for form in (fused_sums, fused_products))

    def ours() -> list[np.ndarray]:
        return [_e_step(layout, np.zeros(CLASSES), log_psi, ratios)[1].counts for layout in layouts]

    def compiled(step: Callable[..., float], table: np.ndarray, psi: np.ndarray) -> list[np.ndarray]:
        found = []
        for layout in layouts:
            counts = np.zeros((layout.matrix.shape[1], CLASSES))
            step(layout.matrix.indptr, layout.matrix.indices, table[layout.cells], psi, counts)
            found.append(counts)
        return found

    ways = {
        "SciPy": ours,
        "numba, sums of logarithms": lambda: compiled(sums, logs, log_psi),
        "numba, products": lambda: compiled(products, np.exp(logs), np.exp(log_psi)),
        "numba, products, table in single precision": lambda: compiled(products, single, np.exp(log_psi)),
    }
    began = time.process_time()
    ways["numba, products"]()
    compiling = time.process_time() - began
    for name, way in ways.items():
        for one, other in zip(ours(), way(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3 if "single" in name else 1e-9)
    model = ds.DawidSkene(ITERATIONS, tol=0.0, n_jobs=1)
    return judged("Dawid–Skene", known, ways, lambda: model.fit(known), compiling)


# ---- a round of PGM's messages ------------------------------------------------------------------------


def fused_round(K: int, L: int) -> Callable[..., None]:
    """All messages of a shard, item after item; a logarithm is taken of as many at once as by ours."""

    def step(pointers, annotator, answer, F, F_turned, z, nu, log_psi, w, new, product, held, logits):
        mu, incoming, acc, once = np.empty((2000, K)), np.empty(L), np.empty(K), np.empty(K)
        for m in range(len(pointers) - 1):
            begin, end = pointers[m], pointers[m + 1]
            for k in range(K):
                acc[k], once[k] = log_psi[k], 1.0
            for e in range(begin, end):
                n, a = annotator[e], answer[e]
                for j in range(L):
                    incoming[j] = z[n, j] / nu[e, j]
                told = mu[e - begin]
                for k in range(K):
                    told[k] = 0.0
                for j in range(L):  # by columns: sums that run side by side can be vectorised as they stand
                    for k in range(K):
                        told[k] += F_turned[a, j, k] * incoming[j]
                for k in range(K):
                    once[k] *= told[k]
                if (e - begin) % AT_ONCE == AT_ONCE - 1 or e == end - 1:
                    for k in range(K):
                        acc[k] += np.log(once[k])
                        once[k] = 1.0
            most, mass = acc.max(), 0.0
            for k in range(K):
                acc[k] = np.exp(acc[k] - most)
                mass += acc[k]
            for k in range(K):
                w[m, k] = acc[k] / mass
            for e in range(begin, end):
                n, a = annotator[e], answer[e]
                total = 0.0
                for k in range(K):
                    once[k] = w[m, k] / mu[e - begin, k]
                    total += once[k]
                for j in range(L):
                    incoming[j] = 0.0
                for k in range(K):
                    for j in range(L):
                        incoming[j] += F[a, k, j] * once[k]
                held[n] += 1
                for j in range(L):
                    new[e, j] = incoming[j] / total
                    product[n, j] *= new[e, j]
                if held[n] == AT_ONCE:
                    held[n] = 0
                    for j in range(L):
                        logits[n, j] += np.log(product[n, j])
                        product[n, j] = 1.0

    return step


def pgm(known: Annotations, numba: Any) -> int:
    """A round of ours beside the loop."""
    K = L = CLUSTERS
    rng, step = np.random.default_rng(2), numba.njit(fused_round(K, L))
    with threads(1, known.n_labels) as pool:
        graph = Graph(known, pool, keep_cavities=False)
        start = graph.start(*(rng.dirichlet(np.ones(8), n) for n in (known.n_items, known.n_annotators)))
        learned = MaximumPosterior(Priors()).learn(graph.statistics(start, None), None).potentials
        beliefs = graph.round(start, learned)
        inputs = []  # of every shard: its pairs in the order of the items
        layouts = graph.blocks.map(lambda layout: layout)
        for rows, block in zip([block.rows for block in graph.blocks.blocks], layouts, strict=True):
            nu = beliefs.nu[rows]
            for layout, pairs in zip(block.layouts, block.pairs, strict=True):
                order = np.argsort(layout.item, kind="stable")
                answer = np.repeat(np.arange(len(layout.answers)), np.diff(layout.bounds))
                n_items = int(layout.item.max()) + 1
                pointers = np.searchsorted(layout.item[order], np.arange(n_items + 1))
                F = layout.factors(learned.log_theta)[0]
                sorted_pairs = (layout.annotator[order], answer[order].astype(np.int32))
                turned = np.ascontiguousarray(F.transpose(0, 2, 1))
                inputs.append((pointers, *sorted_pairs, F, turned, beliefs.z, nu[pairs][order]))

        def ours() -> np.ndarray:
            return graph.round(beliefs, learned, measure=False).w

        def compiled() -> np.ndarray:
            parts, logits = [], np.zeros((known.n_annotators, L))
            product, held = np.ones((known.n_annotators, L)), np.zeros(known.n_annotators, np.int64)
            for pointers, annotator, answer, F, turned, z, nu in inputs:
                w, new = np.empty((len(pointers) - 1, K)), np.empty_like(nu)
                step(
                    *(pointers, annotator, answer, F, turned, z, nu),
                    *(learned.log_psi, w, new, product, held, logits),
                )
                parts.append(w)
            np.log(product).sum()
            return np.concatenate(parts)

        began = time.process_time()
        found = compiled()
        compiling = time.process_time() - began
        np.testing.assert_allclose(found, ours(), rtol=1e-7, atol=1e-12)
        model = ds.PGM(K, L, max_iter=ITERATIONS, tol=0.0, n_jobs=1)
        ways = {"NumPy": ours, "numba, fused": compiled}
        return judged("PGM 8 × 8", known, ways, lambda: model.fit(known), compiling)


# ---- both ---------------------------------------------------------------------------------------------


def judged(
    what: str,
    known: Annotations,
    ways: dict[str, Callable[[], object]],
    fit: Callable[[], object],
    compiling: float,
) -> int:
    """Print the time of each way, and what a whole fit would gain by the best of those compiled."""
    ours, *others = best_seconds(*ways.values(), repeats=4, clock=time.process_time)
    (whole,) = best_seconds(fit, repeats=2, clock=time.process_time)
    for name, seconds in zip(ways, [ours, *others], strict=True):
        print(f"{what}, {name}: {1e9 * seconds / known.n_labels:.1f} ns a label, {ours / seconds:.2f} times")
    after = whole - ITERATIONS * (ours - min(others))
    print(f"{what}: a fit of {ITERATIONS} iterations takes {whole:.2f} s; compiled {after:.2f} s and, to")
    print(f"  compile, {compiling:.2f} s: {whole / after:.2f} times faster once it is compiled")
    gain = whole / (after + compiling)
    return verdict(f"{what}, what a fit of {ITERATIONS} iterations would gain by numba", gain, WORTH)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--labels", type=int, default=10**6)
    options = parser.parse_args()
    if importlib.util.find_spec("numba") is None:
        print("numba is not installed; nothing is measured")
        return 0
    began = time.process_time()
    import numba

    print(f"numba is imported in {time.process_time() - began:.2f} s")
    known = crowd(options.labels)
    return dawid_skene(known, numba) | pgm(known, numba)


if __name__ == "__main__":
    sys.exit(main())
