/* mathf.h - exp, tanh, erf and log of one float without branches, so that loops over them become
 * vector code. Each states its error against the exact value. */
#ifndef MLLM_MATHF_H
#define MLLM_MATHF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define MLLM_MATH static inline __attribute__((always_inline))

MLLM_MATH float bits_to_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

MLLM_MATH uint32_t float_to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* 2 ulp; 0 below -103.97, inf above 88.72, NaN stays.
 * x = n ln2 + r, |r| <= ln2 / 2; exp(r) by its series to the 7th power; 2^n in two steps, as n
 * reaches from -150 to 128. */
MLLM_MATH float exp_f32(float x) {
  const float low = x > -104.0F ? x : -104.0F; /* NaN too */
  const float bounded = low > 89.0F ? 89.0F : low;
  const float shifted = bounded * 1.44269504F + 12582912.0F; /* 1.5 * 2^23: rounds to integer */
  const float n = shifted - 12582912.0F;
  float r = bounded - n * 0.693359375F;
  r = r + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const int32_t whole = (int32_t)n;
  const int32_t half = whole >> 1;
  const float first = bits_to_float((uint32_t)(half + 127) << 23);
  const float second = bits_to_float((uint32_t)(whole - half + 127) << 23);
  const float result = p * first * second;
  return x != x ? x : result;
}

/* exp(x) - 1 within 3 ulp for |x| <= 0.35, by its series */
MLLM_MATH float expm1_small_f32(float x) {
  float p = 1.9841270e-4F;
  p = p * x + 1.3888889e-3F;
  p = p * x + 8.3333333e-3F;
  p = p * x + 4.1666667e-2F;
  p = p * x + 1.6666667e-1F;
  p = p * x + 0.5F;
  return p * x * x + x;
}

/* 3 ulp. Near 0 by an odd rational function, beyond by exp. */
MLLM_MATH float tanh_f32(float x) {
  const float a = fabsf(x);
  const float e = exp_f32(2.0F * a);
  const float far = 1.0F - 2.0F / (e + 1.0F);
  const float m = expm1_small_f32(2.0F * (a < 0.17F ? a : 0.17F));
  const float near = m / (m + 2.0F);
  const float t = a < 0.17F ? near : far;
  return x != x ? x : copysignf(t, x);
}

/* 2 ulp (N. Juffa's polynomials) */
MLLM_MATH float erf_f32(float x) {
  const float t = fabsf(x);
  const float s = x * x;
  float r = t * -1.72853470e-5F + 3.83197126e-4F;
  const float u = t * -3.88396438e-3F + 2.42546219e-2F;
  r = r * s + u;
  r = r * t - 1.06777877e-1F;
  r = r * t - 6.34846687e-1F;
  r = r * t - 1.28717512e-1F;
  r = r * t - t;
  const float far = copysignf(1.0F - exp_f32(t < 10.0F ? r : -100.0F), x);
  float q = -5.96761703e-4F;
  q = q * s + 4.99119423e-3F;
  q = q * s - 2.67681349e-2F;
  q = q * s + 1.12819925e-1F;
  q = q * s - 3.76125336e-1F;
  q = q * s + 1.28379166e-1F;
  const float near = q * x + x;
  const float result = t > 0.927734375F ? far : near;
  return x != x ? x : result;
}

/* 2 ulp for normal numbers; -inf at 0, NaN below. Denormals are scaled up first. */
MLLM_MATH float log_f32(float x) {
  const float tiny = x < 1.17549435e-38F ? 8388608.0F : 1.0F;
  const uint32_t bits = float_to_bits(x * tiny);
  /* mantissa in [sqrt(1/2), sqrt(2)) */
  const uint32_t offset = bits - 0x3f3504f3U;
  const float e = (float)((int32_t)offset >> 23) - (x < 1.17549435e-38F ? 23.0F : 0.0F);
  const float f = bits_to_float((offset & 0x007fffffU) + 0x3f3504f3U) - 1.0F;
  const float z = f * f;
  float p = 7.0376836292e-2F;
  p = p * f - 1.1514610310e-1F;
  p = p * f + 1.1676998740e-1F;
  p = p * f - 1.2420140846e-1F;
  p = p * f + 1.4249322787e-1F;
  p = p * f - 1.6668057665e-1F;
  p = p * f + 2.0000714765e-1F;
  p = p * f - 2.4999993993e-1F;
  p = p * f + 3.3333331174e-1F;
  float y = p * f * z;
  y = y + e * -2.12194440e-4F;
  y = y - 0.5F * z;
  float result = f + y + e * 0.693359375F;
  result = x == INFINITY ? x : result;
  result = x == 0.0F ? -INFINITY : result;
  return x < 0.0F || x != x ? NAN : result;
}

MLLM_MATH float hard_sigmoid_f32(float x) {
  const float y = x * (1.0F / 6.0F) + 0.5F;
  const float low = y < 0.0F ? 0.0F : y;
  return low > 1.0F ? 1.0F : low;
}

MLLM_MATH float sigmoid_f32(float x) { return 1.0F / (1.0F + exp_f32(-x)); }

MLLM_MATH float gelu_f32(float x) { return 0.5F * x * (1.0F + erf_f32(x * 0.70710678118654752F)); }

MLLM_MATH float gelu_tanh_f32(float x) {
  return 0.5F * x * (1.0F + tanh_f32(0.79788456080286536F * (x + 0.044715F * x * x * x)));
}

/* log(1 + exp(x)) */
MLLM_MATH float softplus_f32(float x) {
  const float e = exp_f32(-fabsf(x)); /* in (0, 1] */
  const float u = 1.0F + e;
  /* log(u) with what the rounding of 1 + e lost */
  const float l = log_f32(u) + (e - (u - 1.0F)) / u;
  return (x > 0.0F ? x : 0.0F) + l;
}

#endif /* MLLM_MATHF_H */
