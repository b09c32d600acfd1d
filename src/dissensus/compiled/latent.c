/* Loops of the latent positions' sampler (models/latent.py): slices of the positions, the gradient of W, answers.

   Positions and logits are single precision, as they are stored: twice as many fit in a vector register, and
   rounding changes a log likelihood by some 1e-7 per label.  Sums over labels are double.  There is no
   allocation and no randomness: u holds uniforms in [0, 1).

   "Owners" have the positions that are drawn; the others are fixed. Along the way

     positions (N, d)     x of the owners; x̃ = (1, x)
     weights (O, I, P)    A_nic = Σ_j W_cij ã_nj of the others, with I = 1 + d
     ends (N)             labels ends[n-1] to ends[n] - 1 are those of owner n
     other, label (E)     the other of each label, and its class                                              */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define MAX_LOGIT 80.0f   /* a label's class has probability exp(−80) at least: sums of exponentials are finite */
#define MIN_LOGIT (-40.0f)  /* exp(−40) vanishes beside the label's own 1; no product of it is subnormal */
#define MAX_PRODUCT 1e100   /* products of probabilities, before a logarithm is taken */
#define LANES 8             /* numbers computed together; arrays of logits end with a full group */

/* Versions for the vectors of the machine: without contraction (hatch_build.py) all give the same bits. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define FOR_EACH_VECTOR_SIZE __attribute__((target_clones("avx2", "default")))
#else
#define FOR_EACH_VECTOR_SIZE
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi" /* no vector is passed from one compiled file to another */
#endif

/* LANES numbers that are computed together (gcc and clang; arrays of them need no alignment). */
typedef float Lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t Words __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef uint32_t Bits __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define SELECT(condition, yes, no) (((yes) & (condition)) | ((no) & ~(condition)))

static inline int64_t first_of(const int64_t *ends, int64_t i) { return i ? ends[i - 1] : 0; }

static inline float sum_lanes(Lanes x) {
    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

/* exp(x) = 2^n exp(r), |r| ≤ ½ log 2, relative error 1e-7 (polynomial of Cephes); the same bits everywhere. */
static inline Lanes exponential(Lanes x) {
    x = (Lanes)SELECT(x > MIN_LOGIT, (Words)x, (Words)(MIN_LOGIT + (Lanes){0}));
    x = (Lanes)SELECT(x < MAX_LOGIT, (Words)x, (Words)(MAX_LOGIT + (Lanes){0}));
    Lanes shifted = x * 1.44269504f + 12582912.0f;  /* 1.5 · 2^23: the last bits are n, rounded */
    Lanes n = shifted - 12582912.0f, r = x - n * 0.693359375f + n * 2.12194440e-4f;
    Lanes p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = (((p * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r + 1.6666665459e-1f) * r + 5.0000001201e-1f;
    return (p * r * r + r + 1.0f) * (Lanes)(((Bits)shifted + 127) << 23);
}

/* Call f with P as a constant where there are few classes, so that its loops over classes are unrolled. */
#define FOR_CLASSES(f, ...)                   \
    switch (P) {                              \
        case 2: f(__VA_ARGS__, 2); break;     \
        case 3: f(__VA_ARGS__, 3); break;     \
        case 4: f(__VA_ARGS__, 4); break;     \
        case 5: f(__VA_ARGS__, 5); break;     \
        default: f(__VA_ARGS__, P);           \
    }

/* out_c = Σ_i A_ic x_i over the last d rows of A. */
static inline void project(const float *restrict A, const float *restrict x, float *restrict out, int64_t d,
                           int64_t P) {
    for (int64_t c = 0; c < P; c++) out[c] = A[P + c] * x[0];
    for (int64_t i = 1; i < d; i++)
        for (int64_t c = 0; c < P; c++) out[c] += A[(i + 1) * P + c] * x[i];
}

/* Subtract the logit of class y from the others, and leave it out: P − 1 differences. */
static inline void subtract(const float *restrict logits, float *restrict out, int64_t y, int64_t P) {
    for (int64_t c = 0; c < P - 1; c++) out[c] = logits[c] - logits[y];
    if (y < P - 1) out[y] = logits[P - 1] - logits[y];
}

/* A_c0, A_c x and A_c ν of a label, less those of its class. */
static inline void on_ellipse(const float *A, const float *x, const float *direction, int64_t y, float *base,
                              float *along, float *across, float *logits, int64_t d, int64_t P) {
    subtract(A, base, y, P);
    project(A, x, logits, d, P);
    subtract(logits, along, y, P);
    project(A, direction, logits, d, P);
    subtract(logits, across, y, P);
}

/* A_nq = W_0q + Σ_j W_jq a_nj, with q = (i, c). */
FOR_EACH_VECTOR_SIZE
void latent_weights(const float *W, const float *positions, float *weights, int64_t N, int64_t b, int64_t J,
                    int64_t Q) {
    (void)J;
    for (int64_t n = 0; n < N; n++) {
        float *restrict row = &weights[n * Q];
        memcpy(row, W, (size_t)Q * sizeof *row);
        for (int64_t j = 0; j < b; j++)
            for (int64_t q = 0; q < Q; q++) row[q] += W[(j + 1) * Q + q] * positions[n * b + j];
    }
}

/* −log Π_e P(y_e) at the angle on the ellipse: l_c − l_y = A_c0 + (A_c x) cos θ + (A_c ν) sin θ. */
static inline double surprise(const float *restrict base, const float *restrict along, const float *restrict across,
                       float *restrict e, double angle, int64_t n_labels, int64_t Q) {
    float cosine = (float)cos(angle), sine = (float)sin(angle);
    double product = 1, sum = 0;
    for (int64_t i = 0; i < n_labels * Q; i += LANES)
        *(Lanes *)&e[i] = exponential(*(const Lanes *)&base[i] + *(const Lanes *)&along[i] * cosine +
                                      *(const Lanes *)&across[i] * sine);
    for (int64_t label = 0; label < n_labels; label++) {
        float total = 1;
        for (int64_t c = 0; c < Q; c++) total += e[label * Q + c];
        product *= (double)total;
        if (product > MAX_PRODUCT) sum += log(product), product = 1;
    }
    return sum + log(product);
}

/* Draw every position by an elliptical slice: x cos θ + ν sin θ, with ν ~ N(0, I), is accepted if its likelihood
   exceeds that of x times a uniform; else θ is drawn again from a bracket that shrinks towards 0 = x.  After
   the last uniform the position stays.  A path of T rejections from x to x' has the density of the path of T
   rejections from x' to x, so paths up to any T together are reversible, as is staying: the conditional is
   invariant.  The scratch has room for the most labels of an owner.                                          */
FOR_EACH_VECTOR_SIZE
void latent_positions(const int64_t *ends, const int32_t *other, const int32_t *label, const float *weights,
                      const float *directions, const double *u, float *positions, float *base, float *along,
                      float *across, float *e, int64_t N, int64_t E, int64_t d, int64_t I, int64_t P, int64_t T,
                      int64_t S) {
    (void)E, (void)S;
    const double turn = 6.283185307179586;
    for (int64_t n = 0; n < N; n++) {
        float *x = &positions[n * d];
        const float *direction = &directions[n * d];
        const double *uniform = &u[n * T];
        int64_t first = first_of(ends, n), n_labels = ends[n] - first, Q = P - 1;
        for (int64_t k = 0; k < n_labels; k++) {
            const float *A = &weights[other[first + k] * I * P];
            FOR_CLASSES(on_ellipse, A, x, direction, label[first + k], &base[k * Q], &along[k * Q],
                        &across[k * Q], e, d)
        }
        double level = surprise(base, along, across, e, 0, n_labels, Q) - log(1 - uniform[0]);
        double angle = uniform[1] * turn, low = angle - turn, high = angle;
        for (int64_t t = 2; t <= T; t++) {
            if (surprise(base, along, across, e, angle, n_labels, Q) < level) {
                float cosine = (float)cos(angle), sine = (float)sin(angle);
                for (int64_t i = 0; i < d; i++) x[i] = x[i] * cosine + direction[i] * sine;
                break;
            }
            if (t == T) break;
            if (angle < 0) low = angle;
            else high = angle;
            angle = low + uniform[t] * (high - low);
        }
    }
}

/* Σ_e log P(y_e) into value, and its gradient Σ_e ([y_e = c] − P(c)) x̃_i ã_j, (j, i, c).  Owners are annotators,
   with their own weights; x are the positions of the others.  Each lane holds a label of a group: x̃ in xs,
   exp(l_c − l_y) and then residuals in e, and sums of residuals times x̃_i over the owner's labels.           */
FOR_EACH_VECTOR_SIZE
void latent_gradient(const int64_t *ends, const int32_t *other, const int32_t *label, const float *weights,
                     const float *x, const float *a, float *e, float *xs, float *owner, double *sums,
                     double *gradient, double *value, int64_t N, int64_t E, int64_t M, int64_t d, int64_t b, int64_t I, int64_t J,
                     int64_t P, int64_t lanes, int64_t one) {
    (void)E, (void)M, (void)lanes, (void)one;
    double product = 1, sum = 0;
    for (int64_t i = 0; i < J * I * P; i++) gradient[i] = 0;
    for (int64_t l = 0; l < LANES; l++) xs[l] = 1;
    Lanes *X = (Lanes *)xs, *residual = (Lanes *)e, *by_owner = (Lanes *)owner;
    for (int64_t n = 0; n < N; n++) {
        const float *A = &weights[n * I * P];
        if (first_of(ends, n) == ends[n]) continue;
        memset(by_owner, 0, (size_t)(I * P) * sizeof *by_owner);
        for (int64_t first = first_of(ends, n); first < ends[n]; first += LANES) {
            int64_t size = ends[n] - first < LANES ? ends[n] - first : LANES;
            float at_label[LANES];
            Lanes total = {0};
            for (int64_t l = 0; l < LANES; l++)  /* an empty lane repeats the first label; its residuals are 0 */
                for (int64_t i = 0; i < d; i++)
                    xs[(i + 1) * LANES + l] = x[other[first + (l < size ? l : 0)] * d + i];
            for (int64_t c = 0; c < P; c++) {
                Lanes logits = X[0] * A[c];
                for (int64_t i = 1; i < I; i++) logits += X[i] * A[i * P + c];
                residual[c] = logits;
            }
            for (int64_t l = 0; l < LANES; l++)
                at_label[l] = e[label[first + (l < size ? l : 0)] * LANES + l];
            for (int64_t c = 0; c < P; c++) {
                residual[c] = exponential(residual[c] - *(Lanes *)at_label);
                total += residual[c];
            }
            for (int64_t l = 0; l < size; l++) product *= (double)total[l];
            if (product > MAX_PRODUCT) sum += log(product), product = 1;
            total = -1 / total;
            for (int64_t l = size; l < LANES; l++) total[l] = 0;
            for (int64_t c = 0; c < P; c++) residual[c] *= total;
            for (int64_t l = 0; l < size; l++) e[label[first + l] * LANES + l] += 1;
            for (int64_t i = 0; i < I; i++)
                for (int64_t c = 0; c < P; c++) by_owner[i * P + c] += residual[c] * X[i];
        }
        for (int64_t i = 0; i < I * P; i++) gradient[i] += sums[i] = (double)sum_lanes(by_owner[i]);
        for (int64_t j = 0; j < b; j++) {
            double loading = (double)a[n * b + j], *restrict row = &gradient[(j + 1) * I * P];
            for (int64_t i = 0; i < I * P; i++) row[i] += sums[i] * loading;
        }
    }
    *value = -(sum + log(product));
}

/* answers_rmc = Σ_n v_rn P(c | x_m, a_n).  weights (G, I, P, lanes) and v (R, G, lanes) hold groups of annotators. */
FOR_EACH_VECTOR_SIZE
void latent_answers(const float *x, const float *weights, const float *v, float *e, float *answers, int64_t M,
                    int64_t d, int64_t G, int64_t I, int64_t P, int64_t R, int64_t lanes) {
    (void)lanes;
    for (int64_t m = 0; m < M; m++) {
        Lanes *probability = (Lanes *)e, *sums = probability + P;  /* (P), (R, P) */
        memset(sums, 0, (size_t)(R * P) * sizeof *sums);
        for (int64_t g = 0; g < G; g++) {
            Lanes top = {0}, total = {0};
            for (int64_t c = 0; c < P; c++) {
                const Lanes *A = (const Lanes *)weights + g * I * P + c;
                Lanes logits = A[0];
                for (int64_t i = 0; i < d; i++) logits += A[(i + 1) * P] * x[m * d + i];
                probability[c] = logits;
                top = c ? (Lanes)SELECT(top > logits, (Words)top, (Words)logits) : logits;
            }
            for (int64_t c = 0; c < P; c++) {
                probability[c] = exponential(probability[c] - top);
                total += probability[c];
            }
            for (int64_t r = 0; r < R; r++) {
                Lanes share = ((const Lanes *)v)[r * G + g] / total;
                for (int64_t c = 0; c < P; c++) sums[r * P + c] += probability[c] * share;
            }
        }
        for (int64_t i = 0; i < R * P; i++) answers[(i / P * M + m) * P + i % P] = sum_lanes(sums[i]);
    }
}
