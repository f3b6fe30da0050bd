/* simd.h - the vector type of the instruction set that this file is compiled for, and the names of
 * its functions: MLLM_VARIANT_NAME(f32_gemm_tile) is mllm_f32_gemm_tile_avx512. */
#ifndef MLLM_SIMD_H
#define MLLM_SIMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef MLLM_VARIANT
#error "compile with -DMLLM_VARIANT=scalar, avx2, avxvnni, avx512 or avx512vnni"
#endif
#define MLLM_JOIN_(a, b)        mllm_##a##_##b
#define MLLM_JOIN(a, b)         MLLM_JOIN_(a, b)
#define MLLM_VARIANT_NAME(name) MLLM_JOIN(name, MLLM_VARIANT)
#define MLLM_TEXT_(a)           #a
#define MLLM_TEXT(a)            MLLM_TEXT_(a)

#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

enum { PANEL = 16, PANEL_VECTORS = PANEL / LANES };

typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));
/* the same, anywhere in an array of floats */
typedef float vf_any __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

#define MLLM_INLINE static inline __attribute__((always_inline))

MLLM_INLINE vf load(const float *x) { return *(const vf_any *)x; }
MLLM_INLINE void store(float *x, vf v) { *(vf_any *)x = v; }
MLLM_INLINE vf splat(float x) { return x - (vf){0}; }

/* The first n < LANES elements, the rest fill. */
MLLM_INLINE vf load_part(const float *x, size_t n, float fill) {
  float lanes[LANES];
  for (size_t i = 0; i < LANES; i++) lanes[i] = fill;
  memcpy(lanes, x, n * sizeof(float));
  return load(lanes);
}

MLLM_INLINE void store_part(float *x, vf v, size_t n) {
  float lanes[LANES];
  store(lanes, v);
  memcpy(x, lanes, n * sizeof(float));
}

MLLM_INLINE float lanes_sum(vf v) {
  float lanes[LANES];
  store(lanes, v);
  for (size_t half = LANES / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; i++) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

#endif /* MLLM_SIMD_H */
