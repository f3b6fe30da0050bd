/* code_reading.h - what stands beside the codes of a panel: their scales and zero points. */
#ifndef MLLM_CODE_READING_H
#define MLLM_CODE_READING_H

#include "half.h"
#include "ops.h"
#include "simd.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { QUAD = MLLM_QUAD };

typedef int32_t vi_any __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
/* the same, of codes, which may begin at any byte */
typedef int32_t vi_codes __attribute__((vector_size(LANES * 4), aligned(1), may_alias));

/* A loop, which becomes one instruction; a conversion of vectors is taken apart by GCC 12. */
MLLM_INLINE vi widen(const unsigned char *w, const bool is_signed) {
  vi wide;
  for (size_t i = 0; i < LANES; i++) wide[i] = is_signed ? (int8_t)w[i] : w[i];
  return wide;
}

/* Of numbers of 8, 4 or 2 bits a byte has 1 << this many. */
MLLM_INLINE uint32_t shift_of(uint32_t bits) { return bits == 8 ? 0 : bits == 4 ? 1 : 2; }

/* [groups, 16, 4] bytes of a panel */
MLLM_INLINE const unsigned char *quads_of(const mllm_codes *c, size_t panel) {
  const uint32_t shift = 2 + shift_of(c->bits);
  return c->data + panel * ((c->depth + (1U << shift) - 1) >> shift) * PANEL * QUAD;
}

/* Half floats of a panel as floats. */
MLLM_INLINE void floats_of(float *scale, const uint16_t *half) {
#if defined(__AVX512F__)
  store(scale, (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)half)));
#elif defined(__F16C__)
  for (size_t v = 0; v < PANEL_VECTORS; v++) {
    const __m128i from = _mm_loadu_si128((const __m128i *)(const void *)(half + v * LANES));
    store(scale + v * LANES, (vf)_mm256_cvtph_ps(from));
  }
#else
  for (size_t j = 0; j < PANEL; j++) scale[j] = mllm_half_to_float(half[j]);
#endif
}

MLLM_INLINE void scales_at(const mllm_codes *c, size_t panel, size_t block, float *scale) {
  const size_t at = (panel * c->blocks + block) * PANEL;
  if (c->one_scale) {
    const float one = c->scale_is_half ? mllm_half_to_float(*(const uint16_t *)c->scale)
                                       : *(const float *)c->scale;
    for (size_t v = 0; v < PANEL_VECTORS; v++) store(scale + v * LANES, splat(one));
  } else if (c->scale_is_half) {
    floats_of(scale, (const uint16_t *)c->scale + at);
  } else {
    memcpy(scale, (const float *)c->scale + at, PANEL * sizeof *scale);
  }
}

/* A byte of panels [blocks of bits, 16] has the zero points of several blocks, low bits first. */
MLLM_INLINE void zeros_at(const mllm_codes *c, size_t panel, size_t block, int32_t *zero) {
  const int32_t sign = c->zero_is_signed ? 1 << (c->zero_bits - 1) : 0;
  if (c->one_zero) {
    const int32_t one = (*c->zero ^ sign) - sign;
    for (size_t v = 0; v < PANEL_VECTORS; v++) *(vi_any *)(zero + v * LANES) = one - (vi){0};
    return;
  }
  const uint32_t each = shift_of(c->zero_bits), last = (1U << each) - 1;
  const size_t bytes = (c->blocks + last) >> each;
  const unsigned char *from = c->zero + (panel * bytes + (block >> each)) * PANEL;
  const int32_t shift = (int32_t)((block & last) * c->zero_bits);
  const int32_t mask = (int32_t)((1U << c->zero_bits) - 1);
  for (size_t v = 0; v < PANEL_VECTORS; v++) {
    const vi code = (widen(from + v * LANES, false) >> shift) & (mask - (vi){0});
    *(vi_any *)(zero + v * LANES) = (code ^ (sign - (vi){0})) - (sign - (vi){0});
  }
}

#endif /* MLLM_CODE_READING_H */
