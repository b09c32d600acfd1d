"""Conditionals of HPGM's sampler in plain Python, written from the equations: twins of ``compiled/hpgm.c``.

Each function takes the arguments of the loop of the same name in ``models/hpgm/sampler.py``, computes in the
same order, and so has the same bits.
"""

import numpy as np

LABELS_PER_SCALING = 8
MIN_COUNT = 1e-30


def rows_of(ends, i):
    return range(ends[i - 1] if i else 0, ends[i])


def scaled(weights):
    top = 1 / max(weights)
    return [weight * top for weight in weights]


def draw(weights, u):
    heights = [weights[0]]
    for weight in weights[1:]:
        heights.append(weight + heights[-1])
    return sum(height <= u * heights[-1] for height in heights[:-1])


def move(table, totals, inverse, n, y, k, change):
    """Count one label of class y by annotator n in cluster k, or remove it."""
    table[n, y, k] = max(table[n, y, k] + change, MIN_COUNT)
    totals[n, k] = max(totals[n, k] + change, MIN_COUNT)
    inverse[n, k] = 1 / totals[n, k]


def count_labels(ends, annotator, label, from_item, w, prior, sizes, row, table, totals, inverse):
    table[:], totals[:] = prior[row], sizes[row]
    for m in range(len(ends)):
        for e in rows_of(ends, m):
            if not from_item[e]:
                table[annotator[e], label[e], w[m]] += 1
                totals[annotator[e], w[m]] += 1
    inverse[:] = 1 / totals


def item_weights(rows, annotator, label, from_item, psi, q_phi, table, totals, inverse, present):
    """ψ_k Π_{e: o_e = 1} (q Φ_ky + c_y) Π_{e: o_e = 0} (r Θ_{k z_n y} + n_nky) / (r + n_nk).

    The table holds the item's own labels in its present cluster; they are left out, the earlier ones counted.
    """
    weights = [float(share) for share in psi]
    for number, e in enumerate(rows, 1):
        n, y = annotator[e], label[e]
        mine = [i for i in rows if annotator[i] == n and not from_item[i]]
        before, rest = [i for i in mine if i < e], [i for i in mine if i >= e]
        if from_item[e]:
            same = sum(from_item[i] and label[i] == y for i in rows if i < e)
            factors = [q_phi[k, y] + same for k in range(len(psi))]
        elif before:
            same = sum(label[i] == y for i in before)
            factors = [(table[n, y, k] + same) / (totals[n, k] + len(before)) for k in range(len(psi))]
        else:
            factors = [table[n, y, k] * inverse[n, k] for k in range(len(psi))]
        if not from_item[e]:
            own = max(table[n, y, present] - sum(label[i] == y for i in rest), MIN_COUNT)
            factors[present] = own / max(totals[n, present] - len(rest), MIN_COUNT)
        weights = [weight * float(factor) for weight, factor in zip(weights, factors, strict=True)]
        if number % LABELS_PER_SCALING == 0:
            weights = scaled(weights)
    return weights


def item_clusters(
    ends, annotator, label, from_item, psi, q_phi, table, totals, inverse, u, w, weights
):  # fmt: skip
    for m in range(len(ends)):
        rows, prior = rows_of(ends, m), psi[0 if len(psi) == 1 else m]
        labels, counts = (rows, annotator, label, from_item), (table, totals, inverse)
        before = w[m]
        w[m] = draw(item_weights(*labels, prior, q_phi, *counts, before), u[m])
        for e in rows:
            if not from_item[e] and w[m] != before:
                move(*counts, annotator[e], label[e], before, -1)
                move(*counts, annotator[e], label[e], w[m], 1)


def item_beliefs(ends, annotator, label, from_item, psi, q_phi, table, totals, inverse, w, beliefs):
    for m in range(len(ends)):
        rows, prior = rows_of(ends, m), psi[0 if len(psi) == 1 else m]
        weights = item_weights(rows, annotator, label, from_item, prior, q_phi, table, totals, inverse, w[m])
        total = 0.0
        for weight in weights:
            total += weight
        beliefs[m] = [weight / total for weight in weights]


def product(left, right, product):
    for r, p in np.ndindex(product.shape):
        product[r, p] = 0.0
        for k in range(len(right)):
            product[r, p] += left[r, k] * right[k, p]


def mean_population(table, inverse, v, population):
    population[:] = 0.0
    for n, p, k in np.ndindex(table.shape):
        population[k, p] += v[n] * table[n, p, k] * inverse[n, k]


def label_sources(
    ends, annotator, label, w, q_phi, table, totals, inverse, u, from_item, counts, q, lam
):  # fmt: skip
    """λ (q Φ_ky + c_my) / (q + c_m) against (1 − λ) (r Θ_{k z_n y} + n_nky) / (r + n_nk), with k = w_m."""
    for m in range(len(ends)):
        k, own = w[m], dict.fromkeys(range(q_phi.shape[1]), 0.0)
        for e in rows_of(ends, m):
            own[label[e]] += float(from_item[e])
        for e in rows_of(ends, m):
            n, y, was = annotator[e], label[e], bool(from_item[e])
            by_item = lam * (q_phi[k, y] + (own[y] - was)) / (q + (sum(own.values()) - was))
            mine = max(table[n, y, k] - (not was), MIN_COUNT)
            by_annotator = (1 - lam) * mine / max(totals[n, k] - (not was), MIN_COUNT)
            from_item[e] = u[e] * (by_item + by_annotator) < by_item
            if from_item[e] != was:
                own[y] += 1 - 2 * was
                move(table, totals, inverse, n, y, k, 2 * was - 1)


def annotator_clusters(
    ends, by_annotator, cluster, label, from_item, omega, r_theta, u, z, weights, counts
):  # fmt: skip
    """Ω_l Π_{e of n} (r Θ_kly + n_nky), where n_nky counts the labels before e."""
    for n in range(len(ends)):
        before = np.zeros(r_theta.shape[:2])
        drawn, number = [float(share) for share in omega[n if len(omega) > 1 else 0]], 0
        for e in by_annotator[rows_of(ends, n)]:
            if not from_item[e]:
                k, y = cluster[e], label[e]
                drawn = [drawn[i] * float(alpha + before[k, y]) for i, alpha in enumerate(r_theta[k, y])]
                before[k, y] += 1
                number += 1
                if number % LABELS_PER_SCALING == 0:
                    drawn = scaled(drawn)
        z[n] = draw(drawn, u[n])


def annotator_tables(
    ends, by_annotator, cluster, label, from_item, z, r_theta, u, tables, larger, counts, sizes
):  # fmt: skip
    """A label opens a table with probability α / (α + n_nky), α = r Θ_{k z_n y}."""
    for n in range(len(ends)):
        before, size = np.zeros(r_theta.shape[:2]), np.zeros(len(r_theta), dtype=int)
        for e in by_annotator[rows_of(ends, n)]:
            if not from_item[e]:
                k, y = cluster[e], label[e]
                alpha = r_theta[k, y, z[n]]
                tables[k, y, z[n]] += u[e] * (alpha + before[k, y]) < alpha
                larger[size[k]] += 1
                before[k, y] += 1
                size[k] += 1


def item_tables(ends, label, from_item, w, q_phi, u, tables, larger, counts):
    """A label opens a table with probability α / (α + c_my), α = q Φ_{w_m y}."""
    for m in range(len(ends)):
        before = np.zeros(q_phi.shape[1])
        for e in rows_of(ends, m):
            if from_item[e]:
                alpha = q_phi[w[m], label[e]]
                tables[w[m], label[e]] += u[e] * (alpha + before[label[e]]) < alpha
                larger[int(before.sum())] += 1
                before[label[e]] += 1


def tables_of(customers, alpha, u, tables, larger):
    """A customer who follows i others of the dish opens a table with probability α / (α + i)."""
    uniforms = iter(u)
    for r, dishes in enumerate(customers):
        for p, n in enumerate(dishes):
            tables[r, p] += sum(next(uniforms) * (alpha[r, p] + i) < alpha[r, p] for i in range(n))
        larger[: sum(dishes)] += 1
