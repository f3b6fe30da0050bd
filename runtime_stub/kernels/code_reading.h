/* code_reading.h - what stands beside the codes of a panel: their scales and zero points. */
#ifndef MLLM_CODE_READING_H
#define MLLM_CODE_READING_H

#include "half.h"
#include "ops.h"
#include "simd.h"

enum { QUAD = MLLM_QUAD };

typedef int32_t vi_any __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

/* [groups, 16, 4] bytes of a panel */
MLLM_INLINE const unsigned char *quads_of(const mllm_codes *c, size_t panel) {
  const size_t together = (size_t)QUAD * 8 / c->bits;
  return c->data + panel * ((c->depth + together - 1) / together) * PANEL * QUAD;
}

MLLM_INLINE void scales_at(const mllm_codes *c, size_t panel, size_t block, float *scale) {
  const size_t at = c->one_scale ? 0 : (panel * c->blocks + block) * PANEL;
  const size_t step = c->one_scale ? 0 : 1;
  if (!c->scale_is_half) {
    for (size_t j = 0; j < PANEL; j++) scale[j] = ((const float *)c->scale)[at + j * step];
    return;
  }
  const uint16_t *half = (const uint16_t *)c->scale + at;
  for (size_t j = 0; j < PANEL; j++) scale[j] = mllm_half_to_float(half[j * step]);
}

/* A byte of panels [blocks of bits, 16] has the zero points of several blocks, low bits first. */
MLLM_INLINE void zeros_at(const mllm_codes *c, size_t panel, size_t block, int32_t *zero) {
  const size_t each = 8 / c->zero_bits;
  const size_t bytes = (c->blocks + each - 1) / each;
  const unsigned char *from = c->zero;
  if (!c->one_zero) from += (panel * bytes + block / each) * PANEL;
  const uint32_t shift = (uint32_t)(c->one_zero ? 0 : block % each * c->zero_bits);
  const int32_t mask = (int32_t)((1U << c->zero_bits) - 1);
  const int32_t sign = c->zero_is_signed ? 1 << (c->zero_bits - 1) : 0;
  for (size_t j = 0; j < PANEL; j++) {
    const int32_t code = from[c->one_zero ? 0 : j] >> shift & mask;
    zero[j] = (code ^ sign) - sign;
  }
}

#endif /* MLLM_CODE_READING_H */
