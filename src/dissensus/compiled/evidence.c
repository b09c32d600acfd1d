/* The bound on the evidence of an annotator's labels (annotators/evidence.py), for Dirichlet answers.

   N annotators, E labels sorted by annotator, P classes, K item clusters, S strengths of the prior.  Labels
   ends[n-1] to ends[n] - 1 are those of annotator n; q (E, K) are P(item cluster | all other labels).       */

#include <math.h>
#include <stdint.h>

#define MIN_MASS 1e-300

/* log Γ(x), x > 0: Stirling's series at x + 8, error below 1e-11, less the logarithm of x (x + 1) … (x + 7). */
static double log_gamma(double x) {
    double y = x + 8, product = x * (x + 1) * (x + 2) * (x + 3) * (x + 4) * (x + 5) * (x + 6) * (x + 7);
    double over = 1 / y, series = over * (1.0 / 12 - over * over * (1.0 / 360 - over * over / 1260));
    return (y - 0.5) * log(y) - y + 0.91893853320467274 + series - log(product);
}

/* Means m_yk of the answers, given their pseudo-counts: strength Θ + C. */
static void answer_means(const double *theta, const double *sizes, const double *counts, const double *totals,
                         double strength, double *means, int64_t P, int64_t K) {
    for (int64_t y = 0; y < P; y++)
        for (int64_t k = 0; k < K; k++)
            means[y * K + k] = (strength * theta[y * K + k] + counts[y * K + k]) / (strength * sizes[k] + totals[k]);
}

/* c_ek = q_ek m_yk / s_e, with s_e = Σ_k q_ek m_yk; C_yk = Σ_e c_ek.  After the last round
     Σ_e Σ_k c_ek log(q_ek / c_ek) = Σ_e log s_e − Σ_yk C_yk log m_yk                                        (1)
   and with α = c Θ_k for each strength c, bounds (S, N) are (1) plus
     Σ_k log B(α_k + C_k) / B(α_k) = Σ_k [Σ_y log Γ(α_yk + C_yk) / Γ(α_yk) + log Γ(Σ α_k) / Γ(Σ α_k + Σ C_k)].
   base (S, P, K) is log Γ(α), base_sizes (S, K) log Γ(Σ α).                                                  */
void evidence_bounds(const int64_t *ends, const int32_t *label, const double *q, const double *theta,
                     const double *sizes, const double *strengths, const double *base, const double *base_sizes,
                     double *means, double *counts, double *totals, double *bounds, double strength,
                     double rounds, int64_t N, int64_t E, int64_t P, int64_t K, int64_t S) {
    (void)E;
    for (int64_t n = 0; n < N; n++) {
        int64_t first = n ? ends[n - 1] : 0;
        double sum = 0, product = 1;
        for (int64_t i = 0; i < P * K; i++) counts[i] = 0;
        for (int64_t k = 0; k < K; k++) totals[k] = 0;
        for (int64_t round = 0; round < (int64_t)rounds; round++) {
            answer_means(theta, sizes, counts, totals, strength, means, P, K);
            for (int64_t i = 0; i < P * K; i++) counts[i] = 0;
            for (int64_t k = 0; k < K; k++) totals[k] = 0;
            sum = 0, product = 1;
            for (int64_t e = first; e < ends[n]; e++) {
                const double *restrict row = &q[e * K], *restrict mean = &means[label[e] * K];
                double *restrict count = &counts[label[e] * K], s = MIN_MASS;
                for (int64_t k = 0; k < K; k++) s += row[k] * mean[k];
                product *= s;
                if (product < 1e-200) sum += log(product), product = 1;
                s = 1 / s;
                for (int64_t k = 0; k < K; k++) count[k] += row[k] * mean[k] * s;
            }
            for (int64_t y = 0; y < P; y++)
                for (int64_t k = 0; k < K; k++) totals[k] += counts[y * K + k];
        }
        sum += log(product);
        for (int64_t i = 0; i < P * K; i++)
            if (counts[i] > 0) sum -= counts[i] * log(means[i]);
        for (int64_t s = 0; s < S; s++) {
            double bound = sum;
            for (int64_t i = 0; i < P * K; i++)
                if (counts[i] > 0) bound += log_gamma(strengths[s] * theta[i] + counts[i]) - base[s * P * K + i];
            for (int64_t k = 0; k < K; k++)
                bound += base_sizes[s * K + k] - log_gamma(strengths[s] * sizes[k] + totals[k]);
            bounds[s * N + n] = bound;
        }
    }
}
