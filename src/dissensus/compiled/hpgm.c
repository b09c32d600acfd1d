/* Conditionals of HPGM's Gibbs sampler (models/hpgm/sampler.py): π and ρ are integrated out.

   Every function visits items, labels or annotators one after the other, and draws a value given all others,
   from counts without the labels of the visited one.  There is no allocation and no randomness: u holds
   uniforms in [0, 1).

   M items, N annotators, P classes, K item clusters, L annotator clusters, E labels.  Labels are sorted by item
   and annotator; labels ends[m-1] to ends[m] - 1 are those of item m.  Along the way

     table (N, P, K)    r Θ_{k z_n p} + n_nkp, with n_nkp the labels p of annotator n in cluster k with o = 0
     totals (N, K)      r + n_nk
     inverse (N, K)     1 / (r + n_nk)
     q_phi (K, P)       q Φ_kp
     from_item (E)      o_e, whether the label comes from the item's ρ_m                                       */

#include <stdint.h>

#define LABELS_PER_SCALING 8   /* factors are at least 1e-36, so that products of eight do not underflow */
#define MIN_COUNT 1e-30        /* what remains of a pseudo-count after rounding */

static int64_t first_of(const int64_t *ends, int64_t i) { return i ? ends[i - 1] : 0; }

/* Scale weights so that the largest is 1. */
static void scale(double *restrict weights, int64_t n) {
    double top = weights[0];
    for (int64_t i = 1; i < n; i++)
        if (weights[i] > top) top = weights[i];
    top = 1 / top;
    for (int64_t i = 0; i < n; i++) weights[i] *= top;
}

/* Draw i with probability weights[i] / their sum; the weights become their running sums. */
static int32_t draw(double *restrict weights, int64_t n, double u) {
    int32_t drawn = 0;
    for (int64_t i = 1; i < n; i++) weights[i] += weights[i - 1];
    u *= weights[n - 1];
    for (int64_t i = 0; i < n - 1; i++) drawn += weights[i] <= u;
    return drawn;
}

/* A count without n labels. */
static inline double less(double count, int64_t n) {
    count -= (double)n;
    return count < MIN_COUNT ? MIN_COUNT : count;
}

/* Count one label of class y by annotator n in cluster k, or remove it. */
static void count(double *table, double *totals, double *inverse, int64_t n, int64_t y, int64_t k,
                  double change, int64_t K, int64_t P) {
    double *cell = &table[(n * P + y) * K + k], *total = &totals[n * K + k];
    *cell += change;
    if (*cell < MIN_COUNT) *cell = MIN_COUNT;
    *total += change;
    if (*total < MIN_COUNT) *total = MIN_COUNT;
    inverse[n * K + k] = 1 / *total;
}

/* Fill the table and its sums: pseudo-counts prior (Q, P, K) of row[n], with sums sizes (Q, K), and the labels
   with o = 0.                                                                                               */
void hpgm_count(const int64_t *ends, const int32_t *annotator, const int32_t *label, const uint8_t *from_item,
                const int32_t *w, const double *prior, const double *sizes, const int32_t *row, double *table,
                double *totals, double *inverse, int64_t M, int64_t E, int64_t N, int64_t P, int64_t K, int64_t Q) {
    (void)E, (void)Q;
    for (int64_t n = 0; n < N; n++) {
        for (int64_t i = 0; i < P * K; i++) table[n * P * K + i] = prior[row[n] * P * K + i];
        for (int64_t k = 0; k < K; k++) totals[n * K + k] = sizes[row[n] * K + k];
    }
    for (int64_t m = 0; m < M; m++)
        for (int64_t e = first_of(ends, m); e < ends[m]; e++)
            if (!from_item[e]) {
                table[((int64_t)annotator[e] * P + label[e]) * K + w[m]] += 1;
                totals[(int64_t)annotator[e] * K + w[m]] += 1;
            }
    for (int64_t i = 0; i < N * K; i++) inverse[i] = 1 / totals[i];
}

/* P(w_m = k | …) ∝ ψ_k Π_{e: o_e = 1} (q Φ_ky + c_y) Π_{e: o_e = 0} (r Θ_{k z_n y} + n_nky) / (r + n_nk),
   where c_y and n_nk count the labels before e in item m, and all labels of other items.  The labels of item m
   are in the table, at its present cluster w.                                                               */
static void item_weights(const int32_t *annotator, const int32_t *label, const uint8_t *from_item,
                         const double *psi, const double *q_phi, const double *table, const double *totals,
                         const double *inverse, double *restrict weights, int64_t first, int64_t end, int64_t w,
                         int64_t K, int64_t P) {
    int64_t since = 0;
    for (int64_t k = 0; k < K; k++) weights[k] = psi[k];
    for (int64_t e = first; e < end; e++) {
        int64_t n = annotator[e], y = label[e], same = 0, others = 0, own_same = 1, own = 1;
        if (from_item[e]) {
            for (int64_t i = first; i < e; i++) same += from_item[i] && label[i] == y;
            for (int64_t k = 0; k < K; k++) weights[k] *= q_phi[k * P + y] + (double)same;
        } else {
            const double *restrict row = &table[(n * P + y) * K], *restrict inv = &inverse[n * K];
            double present = weights[w];
            for (int64_t i = e - 1; i >= first && annotator[i] == n; i--)
                if (!from_item[i]) others++, same += label[i] == y;
            for (int64_t i = e + 1; i < end && annotator[i] == n; i++)
                if (!from_item[i]) own++, own_same += label[i] == y;
            if (!others)
                for (int64_t k = 0; k < K; k++) weights[k] *= row[k] * inv[k];
            else
                for (int64_t k = 0; k < K; k++)
                    weights[k] *= (row[k] + (double)same) / (totals[n * K + k] + (double)others);
            /* in the present cluster, without this label and the later ones of the item */
            present *= less(row[w], own_same) / less(totals[n * K + w], own);
            weights[w] = present;
        }
        if (++since == LABELS_PER_SCALING) {
            scale(weights, K);
            since = 0;
        }
    }
}

/* Draw w; psi has one row for all items, or one for each. */
void hpgm_item_clusters(const int64_t *ends, const int32_t *annotator, const int32_t *label,
                        const uint8_t *from_item, const double *psi, const double *q_phi, double *table,
                        double *totals, double *inverse, const double *u, int32_t *w, double *weights, int64_t M,
                        int64_t E, int64_t N, int64_t P, int64_t K, int64_t rows) {
    (void)E, (void)N;
    for (int64_t m = 0; m < M; m++) {
        int64_t first = first_of(ends, m), before = w[m];
        item_weights(annotator, label, from_item, psi + (rows == 1 ? 0 : m * K), q_phi, table, totals, inverse,
                     weights, first, ends[m], before, K, P);
        w[m] = draw(weights, K, u[m]);
        if (w[m] != before)
            for (int64_t e = first; e < ends[m]; e++)
                if (!from_item[e]) {
                    count(table, totals, inverse, annotator[e], label[e], before, -1, K, P);
                    count(table, totals, inverse, annotator[e], label[e], w[m], 1, K, P);
                }
    }
}

/* P(w_m = k | all other draws), normalised, into beliefs (M, K). */
void hpgm_item_beliefs(const int64_t *ends, const int32_t *annotator, const int32_t *label,
                       const uint8_t *from_item, const double *psi, const double *q_phi, const double *table,
                       const double *totals, const double *inverse, const int32_t *w, double *beliefs, int64_t M,
                       int64_t E, int64_t N, int64_t P, int64_t K, int64_t rows) {
    (void)E, (void)N;
    for (int64_t m = 0; m < M; m++) {
        double *weights = &beliefs[m * K], sum = 0;
        item_weights(annotator, label, from_item, psi + (rows == 1 ? 0 : m * K), q_phi, table, totals, inverse,
                     weights, first_of(ends, m), ends[m], w[m], K, P);
        for (int64_t k = 0; k < K; k++) sum += weights[k];
        for (int64_t k = 0; k < K; k++) weights[k] /= sum;
    }
}

/* product (R, P) = left (R, K) · right (K, P), summed in the order of k. */
void hpgm_product(const double *left, const double *right, double *product, int64_t R, int64_t K, int64_t P) {
    for (int64_t r = 0; r < R; r++)
        for (int64_t p = 0; p < P; p++) {
            double sum = 0;
            for (int64_t k = 0; k < K; k++) sum += left[r * K + k] * right[k * P + p];
            product[r * P + p] = sum;
        }
}

/* Σ_n v_n E π_nk into population (K, P), with E π_nkp = table / totals. */
void hpgm_population(const double *table, const double *inverse, const double *v, double *population, int64_t N,
                     int64_t P, int64_t K) {
    for (int64_t i = 0; i < K * P; i++) population[i] = 0;
    for (int64_t n = 0; n < N; n++)
        for (int64_t p = 0; p < P; p++)
            for (int64_t k = 0; k < K; k++)
                population[k * P + p] += v[n] * table[(n * P + p) * K + k] * inverse[n * K + k];
}

/* Draw o: λ (q Φ_ky + c_my) / (q + c_m) against (1 − λ) (r Θ_{k z_n y} + n_nky) / (r + n_nk), with k = w_m and
   counts without the label itself.                                                                          */
void hpgm_label_sources(const int64_t *ends, const int32_t *annotator, const int32_t *label, const int32_t *w,
                        const double *q_phi, double *table, double *totals, double *inverse, const double *u,
                        uint8_t *from_item, double *counts, double q, double lam, int64_t M, int64_t E,
                        int64_t N, int64_t P, int64_t K) {
    (void)E, (void)N;
    for (int64_t p = 0; p < P; p++) counts[p] = 0;
    for (int64_t m = 0; m < M; m++) {
        int64_t first = first_of(ends, m), end = ends[m], k = w[m];
        double sum = 0;  /* c_m */
        for (int64_t e = first; e < end; e++)
            if (from_item[e]) counts[label[e]] += 1, sum += 1;
        for (int64_t e = first; e < end; e++) {
            int64_t n = annotator[e], y = label[e], own = !from_item[e];
            double prior = q_phi[k * P + y], same = counts[y] - (double)!own, all = sum - (double)!own;
            double by_item = lam * (prior + same) / (q + all);
            double by_annotator = (1 - lam) * less(table[(n * P + y) * K + k], own) / less(totals[n * K + k], own);
            from_item[e] = u[e] * (by_item + by_annotator) < by_item;
            if (from_item[e] && own) {
                counts[y] += 1, sum += 1;
                count(table, totals, inverse, n, y, k, -1, K, P);
            } else if (!from_item[e] && !own) {
                counts[y] -= 1, sum -= 1;
                count(table, totals, inverse, n, y, k, 1, K, P);
            }
        }
        for (int64_t e = first; e < end; e++) counts[label[e]] = 0;
    }
}

/* Draw z: P(z_n = l | …) ∝ Ω_l Π_{e of n} (r Θ_kly + n_nky), where n_nky counts the labels before e.
   by_annotator lists the labels by annotator, those of n up to ends[n] - 1; r_theta is (K, P, L); omega has one
   row for all annotators, or one for each.                                                                  */
void hpgm_annotator_clusters(const int64_t *ends, const int32_t *by_annotator, const int32_t *cluster,
                             const int32_t *label, const uint8_t *from_item, const double *omega,
                             const double *r_theta, const double *u, int32_t *z, double *weights, double *counts,
                             int64_t N, int64_t E, int64_t K, int64_t P, int64_t L, int64_t rows) {
    (void)E;
    for (int64_t i = 0; i < K * P; i++) counts[i] = 0;
    for (int64_t n = 0; n < N; n++) {
        int64_t since = 0;
        for (int64_t l = 0; l < L; l++) weights[l] = omega[(rows == 1 ? 0 : n * L) + l];
        for (int64_t i = first_of(ends, n); i < ends[n]; i++) {
            int64_t e = by_annotator[i], cell = (int64_t)cluster[e] * P + label[e];
            if (from_item[e]) continue;
            const double *restrict alpha = &r_theta[cell * L];
            double before = counts[cell];
            for (int64_t l = 0; l < L; l++) weights[l] *= alpha[l] + before;
            counts[cell] += 1;
            if (++since == LABELS_PER_SCALING) {
                scale(weights, L);
                since = 0;
            }
        }
        z[n] = draw(weights, L, u[n]);
        for (int64_t i = first_of(ends, n); i < ends[n]; i++) {
            int64_t e = by_annotator[i];
            counts[(int64_t)cluster[e] * P + label[e]] = 0;
        }
    }
}

/* Draw the tables of every π_nk: a label after n_nky others of its class opens one with probability
   α / (α + n_nky), α = r Θ_{k z_n y}.  larger[i] counts the labels that follow i others in their π_nk.      */
void hpgm_annotator_tables(const int64_t *ends, const int32_t *by_annotator, const int32_t *cluster,
                           const int32_t *label, const uint8_t *from_item, const int32_t *z,
                           const double *r_theta, const double *u, int64_t *tables, int64_t *larger,
                           double *counts, double *sizes, int64_t N, int64_t E, int64_t K, int64_t P, int64_t L) {
    (void)E;
    for (int64_t i = 0; i < K * P; i++) counts[i] = 0;
    for (int64_t k = 0; k < K; k++) sizes[k] = 0;
    for (int64_t n = 0; n < N; n++) {
        for (int64_t i = first_of(ends, n); i < ends[n]; i++) {
            int64_t e = by_annotator[i], k = cluster[e], cell = k * P + label[e], at = cell * L + z[n];
            if (from_item[e]) continue;
            tables[at] += u[e] * (r_theta[at] + counts[cell]) < r_theta[at];
            larger[(int64_t)sizes[k]] += 1;
            counts[cell] += 1, sizes[k] += 1;
        }
        for (int64_t i = first_of(ends, n); i < ends[n]; i++) {
            int64_t e = by_annotator[i];
            counts[(int64_t)cluster[e] * P + label[e]] = 0, sizes[cluster[e]] = 0;
        }
    }
}

/* Draw the tables of every ρ_m likewise, with α = q Φ_{w_m y}. */
void hpgm_item_tables(const int64_t *ends, const int32_t *label, const uint8_t *from_item, const int32_t *w,
                      const double *q_phi, const double *u, int64_t *tables, int64_t *larger, double *counts,
                      int64_t M, int64_t E, int64_t K, int64_t P) {
    (void)E, (void)K;
    for (int64_t p = 0; p < P; p++) counts[p] = 0;
    for (int64_t m = 0; m < M; m++) {
        int64_t first = first_of(ends, m), size = 0;
        for (int64_t e = first; e < ends[m]; e++) {
            int64_t y = label[e], at = w[m] * P + y;
            if (!from_item[e]) continue;
            tables[at] += u[e] * (q_phi[at] + counts[y]) < q_phi[at];
            larger[size++] += 1;
            counts[y] += 1;
        }
        for (int64_t e = first; e < ends[m]; e++) counts[label[e]] = 0;
    }
}

/* Draw the tables of R restaurants: a customer who follows i others of the same dish p opens one with
   probability α / (α + i), α = alpha[r, p].                                                                 */
void hpgm_tables(const int64_t *customers, const double *alpha, const double *u, int64_t *tables,
                 int64_t *larger, int64_t R, int64_t P, int64_t U, int64_t S) {
    (void)U, (void)S;
    for (int64_t r = 0; r < R; r++) {
        int64_t size = 0;
        for (int64_t cell = r * P; cell < (r + 1) * P; cell++)
            for (int64_t i = 0; i < customers[cell]; i++) {
                tables[cell] += *u++ * (alpha[cell] + (double)i) < alpha[cell];
                larger[size++] += 1;
            }
    }
}
