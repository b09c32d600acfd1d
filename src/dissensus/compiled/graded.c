/* Loops of graded response (models/graded.py) over labels, and over annotators and grid points.

   M items, E labels, N annotators, P classes, Q grid points, D ≤ 2 coordinates of x, T = P − 1 thresholds,
   W = T + D components of θ.  Labels ends[m-1] to ends[m] - 1 are those of item m.                         */

#include <stdint.h>

#define MAX_D 2

/* log ψ_q + Σ_e log P(y_e | q, n_e), with logs (N, P, Q), into log_posterior (M, Q), which holds log ψ. */
void graded_add_logs(const int64_t *ends, const int32_t *annotator, const int32_t *label, const double *logs,
                     double *log_posterior, int64_t M, int64_t E, int64_t N, int64_t P, int64_t Q) {
    (void)E, (void)N;
    for (int64_t m = 0; m < M; m++) {
        double *restrict sums = &log_posterior[m * Q];
        for (int64_t e = m ? ends[m - 1] : 0; e < ends[m]; e++) {
            const double *restrict row = &logs[(annotator[e] * P + label[e]) * Q];
            for (int64_t q = 0; q < Q; q++) sums[q] += row[q];
        }
    }
}

/* n_nyq = Σ_{e: n_e = n, y_e = y} P(q | labels of m_e) into counts (N, P, Q), which holds zeros. */
void graded_add_counts(const int64_t *ends, const int32_t *annotator, const int32_t *label,
                       const double *posterior, double *counts, int64_t M, int64_t E, int64_t N, int64_t P,
                       int64_t Q) {
    (void)E, (void)N;
    for (int64_t m = 0; m < M; m++) {
        const double *restrict row = &posterior[m * Q];
        for (int64_t e = m ? ends[m - 1] : 0; e < ends[m]; e++) {
            double *restrict sums = &counts[(annotator[e] * P + label[e]) * Q];
            for (int64_t q = 0; q < Q; q++) sums[q] += row[q];
        }
    }
}

/* P(y) = F_y − F_y−1 at grid point q, for one annotator without guesses: below (T, Q) is F. */
static double probability(const double *below, int64_t y, int64_t q, double min_probability, int64_t T,
                          int64_t Q) {
    double p = (y < T ? below[y * Q + q] : 1) - (y > 0 ? below[(y - 1) * Q + q] : 0);
    return p > min_probability ? p : min_probability;
}

/* What the M-step needs of each annotator; all three results hold zeros.  With F_y = σ(d (c_y − a · x)),

     r_yq = n_nyq (1 − ε) P(y) / ((1 − ε) P(y) + ε p̄_y)      labels y that are not guesses
     f_y = d F_y (1 − F_y),   v = ∂P(y) / ∂θ:  f_y at c_y,  −f_y−1 at c_y−1,  (f_y−1 − f_y) x at a

     guesses = Σ_qy n_nyq − r_yq        gradient = Σ_qy r_yq v / P(y)
     information = Σ_q (Σ_y r_yq) Σ_y v vᵀ / P(y)                                                          */
void graded_add_derivatives(const double *counts, const double *below, const double *guess_rates,
                            const double *shares, const double *x, const double *d, double *guesses,
                            double *gradient, double *information, double min_probability, int64_t N,
                            int64_t P, int64_t Q, int64_t D, int64_t T, int64_t W) {
    for (int64_t n = 0; n < N; n++, counts += P * Q, below += T * Q, gradient += W, information += W * W) {
        double guess = guess_rates[n], v[2 + MAX_D], total, f, f_before;
        int64_t at[2 + MAX_D], size;  /* component at[i] of ∂P(y) / ∂θ is v[i], others are 0 */
        for (int64_t q = 0; q < Q; q++) {
            total = f = 0;  /* Σ_y r_yq */
            for (int64_t y = 0; y < P; y++) {
                double p = (1 - guess) * probability(below, y, q, min_probability, T, Q);
                double r = counts[y * Q + q] * p / (p + guess * shares[y]);
                guesses[n] += counts[y * Q + q] - r, total += r;
            }
            for (int64_t y = 0; y < P; y++) {
                double p = probability(below, y, q, min_probability, T, Q), F = y < T ? below[y * Q + q] : 1;
                double r_by_p = counts[y * Q + q] * (1 - guess) / ((1 - guess) * p + guess * shares[y]);
                f_before = f, f = d[q] * F * (1 - F), size = 0;
                if (y > 0) at[size] = y - 1, v[size++] = -f_before;
                if (y < T) at[size] = y, v[size++] = f;
                for (int64_t i = 0; i < D; i++) at[size] = T + i, v[size++] = (f_before - f) * x[q * D + i];
                for (int64_t i = 0; i < size; i++) {
                    double *row = &information[at[i] * W];
                    gradient[at[i]] += r_by_p * v[i];
                    for (int64_t j = 0; j <= i; j++) row[at[j]] += total / p * v[i] * v[j];
                }
            }
        }
        for (int64_t i = 0; i < W; i++)
            for (int64_t j = 0; j < i; j++) information[j * W + i] = information[i * W + j];
    }
}
