/* stored_rows.c - products of a few vectors with many rows that stand as floats, half floats or
 * codes of 8 bits, compiled once per instruction set: what attention does to keys and values.
 *
 * Rows are turned into floats in registers, once for all vectors. A vector's results have the same
 * bits whatever other vectors come along, and however its rows are stored. */
#include "half.h"
#include "ops.h"
#include "simd.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { BLOCK = 8 }; /* rows at a time: 24 of 32 registers accumulate for 3 vectors */
#else
enum { BLOCK = 4 };
#endif
enum {
  FEW = 4,
  SUMS = 4,
  MOST = MLLM_ROW_VECTORS,
  AHEAD = 24,          /* rows that memory has time to bring */
  SCALED_8 = MLLM_KV_4 /* codes with channels */
};

/* ---- One vector of numbers of a row ---------------------------------------------------------- */

MLLM_INLINE vf halves(const uint16_t *x) {
#if defined(__AVX512F__)
  return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)x));
#elif defined(__F16C__)
  return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)x));
#else
  vi wide;
  for (size_t i = 0; i < LANES; i++) wide[i] = x[i];
  const vi magnitude = (wide & 0x7FFF) << 13;
  const vi special = (magnitude >= 0x0F800000) & 0x7F800000;
  const vf number = (vf)magnitude * 0x1p112F;
  return (vf)((vi)number | special | (wide & 0x8000) << 16);
#endif
}

MLLM_INLINE vf bytes(const int8_t *x) {
  vi wide;
  for (size_t i = 0; i < LANES; i++) wide[i] = x[i];
  return __builtin_convertvector(wide, vf);
}

/* What a row's codes are multiplied by. kind is a constant where these are inlined. */
MLLM_INLINE float scale_of(const mllm_kv_stored *x, size_t row, const uint32_t kind) {
  return kind >= MLLM_KV_8 ? mllm_half_to_float(x->scales[row]) : 1.0F;
}

MLLM_INLINE vf numbers(const mllm_kv_stored *x, size_t row, size_t i, float scale,
                       const uint32_t kind) {
  const size_t at = row * x->stride + i;
  if (kind == MLLM_KV_F32) return load((const float *)x->data + at);
  if (kind == MLLM_KV_F16) return halves((const uint16_t *)x->data + at);
  const vf number = bytes((const int8_t *)x->data + at) * splat(scale);
  return kind == SCALED_8 ? number * load(x->channels + i) : number;
}

MLLM_INLINE float number(const mllm_kv_stored *x, size_t row, size_t i, float scale,
                         const uint32_t kind) {
  const size_t at = row * x->stride + i;
  if (kind == MLLM_KV_F32) return ((const float *)x->data)[at];
  if (kind == MLLM_KV_F16) return mllm_half_to_float(((const uint16_t *)x->data)[at]);
  const float scaled = (float)((const int8_t *)x->data)[at] * scale;
  return kind == SCALED_8 ? scaled * x->channels[i] : scaled;
}

/* Asks for what is read some rows later, within the rows or behind them. */
MLLM_INLINE void fetch_ahead(const mllm_kv_stored *x, size_t row, size_t i, const uint32_t kind) {
  const size_t each = kind == MLLM_KV_F32 ? sizeof(float) : kind == MLLM_KV_F16 ? 2 : 1;
  const uintptr_t at = (uintptr_t)x->data + ((row + AHEAD) * x->stride + i) * each;
  __builtin_prefetch((const void *)at);
}

/* ---- Sums of the lanes of several vectors ---------------------------------------------------- */

/* Lane l of what folding a and b by h gives: lane i + h is added to lane i in each 2h lanes, a's
 * before b's; within 16 bytes where h is less, so that each step is two shuffles of one
 * instruction. */
#define WITHIN(h)      ((h) < 4 ? 4 : LANES)
#define OF_A(h)        (WITHIN(h) / (2 * (h)))
#define GROUP(l, h)    ((l) % WITHIN(h) / (h))
#define FOLDED(l, h)                                                                            \
  ((l) / WITHIN(h) * WITHIN(h) + GROUP(l, h) % OF_A(h) * 2 * (h) + (l) % (h) +                  \
   (GROUP(l, h) >= OF_A(h) ? LANES : 0))
#define FOUR(l, h, add) \
  FOLDED(l, h) + (add), FOLDED((l) + 1, h) + (add), FOLDED((l) + 2, h) + (add), \
      FOLDED((l) + 3, h) + (add)
#if defined(__AVX512F__)
#define ALL(h, add) FOUR(0, h, add), FOUR(4, h, add), FOUR(8, h, add), FOUR(12, h, add)
#elif defined(__AVX2__)
#define ALL(h, add) FOUR(0, h, add), FOUR(4, h, add)
#else
#define ALL(h, add) FOUR(0, h, add)
#endif
#define FOLD(a, b, h) \
  (__builtin_shufflevector(a, b, ALL(h, 0)) + __builtin_shufflevector(a, b, ALL(h, h)))

/* Lane r < rows is lanes_sum(v[r]), added in the same order. */
MLLM_INLINE vf lanes_sums(vf *v, const size_t rows) {
  size_t left = rows;
#if defined(__AVX512F__)
  left /= 2;
#pragma GCC unroll 4
  for (size_t i = 0; i < left; i++) v[i] = FOLD(v[i], v[i + left], 8);
#endif
#if defined(__AVX2__)
  left /= 2;
#pragma GCC unroll 4
  for (size_t i = 0; i < left; i++) v[i] = FOLD(v[i], v[i + left], 4);
#endif
  if (left == 4) {
    v[0] = FOLD(v[0], v[1], 2);
    v[1] = FOLD(v[2], v[3], 2);
    return FOLD(v[0], v[1], 1);
  }
  v[0] = left == 2 ? FOLD(v[0], v[1], 2) : FOLD(v[0], v[0], 2);
  v[0] = FOLD(v[0], v[0], 1);
#if defined(__AVX512F__)
  if (rows == BLOCK) {
    return __builtin_shufflevector(v[0], v[0], 0, 1, 8, 9, 4, 5, 12, 13, 0, 1, 8, 9, 4, 5, 12, 13);
  }
  return __builtin_shufflevector(v[0], v[0], 0, 8, 4, 12, 0, 8, 4, 12, 0, 8, 4, 12, 0, 8, 4, 12);
#elif defined(__AVX2__)
  return __builtin_shufflevector(v[0], v[0], 0, 1, 4, 5, 0, 1, 4, 5);
#else
  return v[0];
#endif
}

/* ---- Dot products ---------------------------------------------------------------------------- */

/* The part of a dot product that fills no vector. */
static __attribute__((noinline)) float dot_rest(const mllm_row_product *p, size_t row,
                                                size_t vector, size_t i, uint32_t kind) {
  const float *a = p->a + vector * p->a_stride;
  const float scale = scale_of(p->x, row, kind);
  float rest = 0.0F;
  for (; i < p->n; i++) rest += a[i] * number(p->x, row, i, scale, kind);
  return rest;
}

/* Dots of vectors vectors with rows rows; both and kind are constants where this is inlined. */
MLLM_INLINE void dots_block(const mllm_row_product *p, size_t row, const size_t rows, size_t first,
                            const size_t vectors, const uint32_t kind) {
  vf sums[MOST][BLOCK];
  float rest[MOST][BLOCK] = {{0}};
  float scale[BLOCK];
  const float *a = p->a + first * p->a_stride;
#pragma GCC unroll 8
  for (size_t r = 0; r < rows; r++) scale[r] = scale_of(p->x, row + r, kind);
#pragma GCC unroll 4
  for (size_t q = 0; q < vectors; q++) {
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) sums[q][r] = (vf){0};
  }
  size_t i = 0;
  for (; i + LANES <= p->n; i += LANES) {
    vf value[MOST];
#pragma GCC unroll 4
    for (size_t q = 0; q < vectors; q++) value[q] = load(a + q * p->a_stride + i);
#pragma GCC unroll 8
    for (size_t r = 0; r < rows; r++) {
      const vf key = numbers(p->x, row + r, i, scale[r], kind);
      fetch_ahead(p->x, row + r, i, kind);
#pragma GCC unroll 4
      for (size_t q = 0; q < vectors; q++) sums[q][r] += value[q] * key;
    }
  }
  for (size_t r = 0; i < p->n && r < rows; r++) {
    for (size_t q = 0; q < vectors; q++) rest[q][r] = dot_rest(p, row + r, first + q, i, kind);
  }
#pragma GCC unroll 4
  for (size_t q = 0; q < vectors; q++) {
    float found[LANES];
    float *out = p->out + (first + q) * p->out_stride + row;
    store(found, lanes_sums(sums[q], rows));
    for (size_t r = 0; r < rows; r++) out[r] = found[r] + rest[q][r];
  }
}

/* A dot product that stands alone has several sums at a time. */
static __attribute__((noinline)) float dot_row(const mllm_row_product *p, size_t row,
                                               size_t vector, uint32_t kind) {
  const float *a = p->a + vector * p->a_stride;
  const float scale = scale_of(p->x, row, kind);
  vf sum[SUMS] = {(vf){0}};
  size_t i = 0;
  for (; i + SUMS * LANES <= p->n; i += SUMS * LANES) {
#pragma GCC unroll 4
    for (size_t s = 0; s < SUMS; s++) {
      sum[s] += load(a + i + s * LANES) * numbers(p->x, row, i + s * LANES, scale, kind);
    }
  }
  for (; i + LANES <= p->n; i += LANES) sum[0] += load(a + i) * numbers(p->x, row, i, scale, kind);
  const float rest = i < p->n ? dot_rest(p, row, vector, i, kind) : 0.0F;
  return lanes_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) + rest;
}

MLLM_INLINE void dots_of(const mllm_row_product *p, size_t first, const size_t vectors,
                         const uint32_t kind) {
  size_t row = 0;
  for (; row + BLOCK <= p->count; row += BLOCK) dots_block(p, row, BLOCK, first, vectors, kind);
  for (; row + FEW <= p->count; row += FEW) dots_block(p, row, FEW, first, vectors, kind);
  for (; row < p->count; row++) {
    for (size_t q = first; q < first + vectors; q++) {
      p->out[q * p->out_stride + row] = dot_row(p, row, q, kind);
    }
  }
}

/* ---- Weighted sums --------------------------------------------------------------------------- */

/* Channels i.. of out, wide vectors of them, stay in registers while all rows pass. */
MLLM_INLINE void add_block(const mllm_row_product *p, size_t i, const size_t wide, size_t first,
                           const size_t vectors, const uint32_t kind) {
  vf sums[MOST][SUMS];
  float *out = p->out + first * p->out_stride + i;
  const float *weights = p->a + first * p->a_stride;
#pragma GCC unroll 4
  for (size_t q = 0; q < vectors; q++) {
#pragma GCC unroll 4
    for (size_t s = 0; s < wide; s++) sums[q][s] = load(out + q * p->out_stride + s * LANES);
  }
  for (size_t row = 0; row < p->count; row++) {
    const float scale = scale_of(p->x, row, kind);
    vf weight[MOST];
#pragma GCC unroll 4
    for (size_t q = 0; q < vectors; q++) weight[q] = splat(weights[q * p->a_stride + row]);
#pragma GCC unroll 4
    for (size_t s = 0; s < wide; s++) {
      fetch_ahead(p->x, row, i + s * LANES, kind);
      const vf value = numbers(p->x, row, i + s * LANES, scale, kind);
#pragma GCC unroll 4
      for (size_t q = 0; q < vectors; q++) sums[q][s] += weight[q] * value;
    }
  }
#pragma GCC unroll 4
  for (size_t q = 0; q < vectors; q++) {
#pragma GCC unroll 4
    for (size_t s = 0; s < wide; s++) store(out + q * p->out_stride + s * LANES, sums[q][s]);
  }
}

/* The channels that fill no vector. */
static __attribute__((noinline)) void add_rest(const mllm_row_product *p, size_t i, size_t vector,
                                               uint32_t kind) {
  float *out = p->out + vector * p->out_stride;
  for (size_t row = 0; row < p->count; row++) {
    const float scale = scale_of(p->x, row, kind);
    const float weight = p->a[vector * p->a_stride + row];
    for (size_t k = i; k < p->n; k++) out[k] += weight * number(p->x, row, k, scale, kind);
  }
}

MLLM_INLINE void add_of(const mllm_row_product *p, size_t first, const size_t vectors,
                        const uint32_t kind) {
  size_t i = 0;
  for (; i + SUMS * LANES <= p->n; i += SUMS * LANES) add_block(p, i, SUMS, first, vectors, kind);
  for (; i + LANES <= p->n; i += LANES) add_block(p, i, 1, first, vectors, kind);
  for (size_t q = first; i < p->n && q < first + vectors; q++) add_rest(p, i, q, kind);
}

/* ---- The choice among them ------------------------------------------------------------------- */

#define EACH(function, kind)                                                             \
  for (size_t q = 0; q < p->vectors; q += MOST) {                                        \
    switch (p->vectors - q) {                                                            \
      case 1: function(p, q, 1, kind); break;                                            \
      case 2: function(p, q, 2, kind); break;                                            \
      default: function(p, q, 3, kind); break;                                           \
    }                                                                                    \
  }
#define OF_KIND(name, kind) \
  static void name##_##kind(const mllm_row_product *p) { EACH(name##_of, kind) }

_Static_assert(MOST == 3, "EACH has a case for each number of vectors");

OF_KIND(dots, MLLM_KV_F32)
OF_KIND(dots, MLLM_KV_F16)
OF_KIND(dots, MLLM_KV_8)
OF_KIND(dots, SCALED_8)
OF_KIND(add, MLLM_KV_F32)
OF_KIND(add, MLLM_KV_F16)
OF_KIND(add, MLLM_KV_8)
OF_KIND(add, SCALED_8)

static void dots(const mllm_row_product *p) {
  switch (p->x->format) {
    case MLLM_KV_F32: dots_MLLM_KV_F32(p); return;
    case MLLM_KV_F16: dots_MLLM_KV_F16(p); return;
    default: p->x->channels == NULL ? dots_MLLM_KV_8(p) : dots_SCALED_8(p); return;
  }
}

static void add_rows(const mllm_row_product *p) {
  switch (p->x->format) {
    case MLLM_KV_F32: add_MLLM_KV_F32(p); return;
    case MLLM_KV_F16: add_MLLM_KV_F16(p); return;
    default: p->x->channels == NULL ? add_MLLM_KV_8(p) : add_SCALED_8(p); return;
  }
}

const mllm_stored_ops MLLM_VARIANT_NAME(stored_ops) = {.dots = dots, .add_rows = add_rows};
