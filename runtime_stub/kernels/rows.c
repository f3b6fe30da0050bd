/* rows.c - sums, maxima, norms and exponentials of one row, compiled once per instruction set. */
#include "mathf.h"
#include "ops.h"
#include "simd.h"

enum { SUMS = 4 };

static float dot(const float *a, const float *b, size_t n) {
  vf sum[SUMS] = {(vf){0}};
  size_t i = 0;
  for (; i + SUMS * LANES <= n; i += SUMS * LANES) {
#pragma GCC unroll 4
    for (size_t s = 0; s < SUMS; s++) {
      sum[s] += load(a + i + s * LANES) * load(b + i + s * LANES);
    }
  }
  float rest = 0.0F;
  for (; i + LANES <= n; i += LANES) sum[0] += load(a + i) * load(b + i);
  for (; i < n; i++) rest += a[i] * b[i];
  return lanes_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) + rest;
}

static float sum(const float *x, size_t n) {
  vf sum[SUMS] = {(vf){0}};
  size_t i = 0;
  for (; i + SUMS * LANES <= n; i += SUMS * LANES) {
#pragma GCC unroll 4
    for (size_t s = 0; s < SUMS; s++) sum[s] += load(x + i + s * LANES);
  }
  float rest = 0.0F;
  for (; i + LANES <= n; i += LANES) sum[0] += load(x + i);
  for (; i < n; i++) rest += x[i];
  return lanes_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) + rest;
}

/* NaN wins, as in NumPy. */
static inline float greater(float a, float b) { return a > b || a != a ? a : b; }

MLLM_INLINE vf greater_lanes(vf a, vf b) {
  const vi take = (a > b) | (a != a);
  return (vf)((take & (vi)a) | (~take & (vi)b));
}

static float max(const float *x, size_t n) {
  vf largest[SUMS];
  float lanes[LANES];
  size_t i = 0;
  for (size_t s = 0; s < SUMS; s++) largest[s] = splat(-INFINITY);
  for (; i + SUMS * LANES <= n; i += SUMS * LANES) {
#pragma GCC unroll 4
    for (size_t s = 0; s < SUMS; s++) {
      largest[s] = greater_lanes(load(x + i + s * LANES), largest[s]);
    }
  }
  for (; i + LANES <= n; i += LANES) largest[0] = greater_lanes(load(x + i), largest[0]);
  for (size_t s = 1; s < SUMS; s++) largest[0] = greater_lanes(largest[s], largest[0]);
  store(lanes, largest[0]);
  float result = -INFINITY;
  for (; i < n; i++) result = greater(x[i], result);
  for (size_t j = 0; j < LANES; j++) result = greater(lanes[j], result);
  return result;
}

static float exp_sum(float *x, float shift, size_t n) {
#pragma GCC ivdep
  for (size_t i = 0; i < n; i++) x[i] = exp_f32(x[i] - shift);
  return sum(x, n);
}

static void scale(float *y, float factor, size_t n) {
#pragma GCC ivdep
  for (size_t i = 0; i < n; i++) y[i] *= factor;
}

static void add_scaled(float *y, const float *x, float factor, size_t n) {
#pragma GCC ivdep
  for (size_t i = 0; i < n; i++) y[i] += factor * x[i];
}

static void rms_norm(float *y, const float *x, const float *weight, float epsilon, size_t n) {
  const float square = dot(x, x, n) / (float)n;
  const float factor = 1.0F / sqrtf(square + epsilon);
  if (weight == NULL) {
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) y[i] = x[i] * factor;
    return;
  }
#pragma GCC ivdep
  for (size_t i = 0; i < n; i++) y[i] = x[i] * factor * weight[i];
}

/* Two passes over the row: the mean, then the squares of what is left. */
static void layer_norm(float *y, const float *x, const float *weight, const float *bias,
                       float epsilon, size_t n) {
  const float mean = sum(x, n) / (float)n;
#pragma GCC ivdep
  for (size_t i = 0; i < n; i++) y[i] = x[i] - mean;
  const float variance = dot(y, y, n) / (float)n;
  const float factor = 1.0F / sqrtf(variance + epsilon);
  scale(y, factor, n);
  if (weight != NULL) {
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) y[i] *= weight[i];
  }
  if (bias == NULL) return;
#pragma GCC ivdep
  for (size_t i = 0; i < n; i++) y[i] += bias[i];
}

const mllm_row_ops MLLM_VARIANT_NAME(row_ops) = {
    .dot = dot,
    .sum = sum,
    .max = max,
    .exp_sum = exp_sum,
    .scale = scale,
    .add_scaled = add_scaled,
    .rms_norm = rms_norm,
    .layer_norm = layer_norm,
};
