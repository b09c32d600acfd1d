"""Loops of graded response in plain Python, written from the equations: twins of ``compiled/graded.c``.

Each function takes the arguments of the loop of the same name in ``models/graded.py``, computes in the same
order, and so has the same bits.
"""

import numpy as np


def labels_of(ends, annotator, label):
    """Return item, annotator and class of every label."""
    item = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
    return zip(item, annotator, label, strict=True)


def add_logs(ends, annotator, label, logs, log_posterior):
    for m, n, y in labels_of(ends, annotator, label):
        log_posterior[m] += logs[n, y]


def add_counts(ends, annotator, label, posterior, counts):
    for m, n, y in labels_of(ends, annotator, label):
        counts[n, y] += posterior[m]


def add_derivatives(
    counts, below, guess_rates, shares, x, d, guesses, gradient, information, min_probability
):
    (N, P, Q), (_, D), T = counts.shape, x.shape, below.shape[1]
    for n in range(N):
        for q in range(Q):
            guess = [float(guess_rates[n] * share) for share in shares]
            F = [0.0, *below[n, :, q].tolist(), 1.0]
            p = [max(F[y + 1] - F[y], min_probability) for y in range(P)]
            meant = [(1 - guess_rates[n]) * p_y for p_y in p]
            r = [counts[n, y, q] * meant[y] / (meant[y] + guess[y]) for y in range(P)]
            total = 0.0
            for y in range(P):
                guesses[n] += counts[n, y, q] - r[y]
                total += r[y]
            f = [d[q] * F_y * (1 - F_y) for F_y in F]
            for y in range(P):
                v = {y - 1: -f[y], y: f[y + 1]}  # the edges have no parameter
                v = {k: value for k, value in v.items() if 0 <= k < T}
                v |= {T + i: (f[y] - f[y + 1]) * x[q, i] for i in range(D)}
                r_by_p = counts[n, y, q] * (1 - guess_rates[n]) / (meant[y] + guess[y])
                for i in v:
                    gradient[n, i] += r_by_p * v[i]
                    for j in v:
                        product = v[max(i, j)], v[min(i, j)]
                        information[n, i, j] += total / p[y] * product[0] * product[1]
