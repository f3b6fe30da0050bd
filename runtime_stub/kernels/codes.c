/* codes.c - products with weights that are codes, compiled once per instruction set. Sums of
 * integers are exact; blocks of codes are scaled in double precision, in their order, and no
 * product is contracted with a sum, so that every instruction set computes the same bits.
 */
#include "half.h"
#include "ops.h"
#include "simd.h"

#if defined(__AVX512F__)
enum { ROWS = 12 }; /* 12 of 32 registers accumulate */
#elif defined(__AVX2__) || defined(__aarch64__)
enum { ROWS = 6 };
#else
enum { ROWS = 2 };
#endif

enum { SPAN = 256 /* codes that are unpacked at a time; 255 * 255 * SPAN fits 32 bits */ };

typedef int32_t vi_any __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

/* A loop, which becomes one instruction; a conversion of vectors is taken apart by GCC 12. */
MLLM_INLINE vi widen(const unsigned char *w, const bool is_signed) {
  vi wide;
  for (size_t i = 0; i < LANES; i++) wide[i] = is_signed ? (int8_t)w[i] : w[i];
  return wide;
}

/* rows and is_signed are constants where this is inlined. */
MLLM_INLINE void multiply(const mllm_code_product *p, const size_t rows, const bool is_signed) {
  vi sum[ROWS][PANEL_VECTORS];
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (size_t v = 0; v < PANEL_VECTORS; v++) sum[r][v] = (vi){0};
  }
  const unsigned char *w = p->w;
  for (size_t k = 0; k < p->depth; k++, w += p->w_stride) {
    vi weight[PANEL_VECTORS];
#pragma GCC unroll 4
    for (size_t v = 0; v < PANEL_VECTORS; v++) weight[v] = widen(w + v * LANES, is_signed);
#pragma GCC unroll 16
    for (size_t r = 0; r < rows; r++) {
      const vi value = p->x[r * p->x_stride + k] - (vi){0};
#pragma GCC unroll 4
      for (size_t v = 0; v < PANEL_VECTORS; v++) sum[r][v] += value * weight[v];
    }
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (size_t v = 0; v < PANEL_VECTORS; v++) {
      *(vi_any *)(p->sums + r * PANEL + v * LANES) = sum[r][v];
    }
  }
}

#define ROWS_CASE(r)         \
  case r:                    \
    if (p->w_is_signed) {    \
      multiply(p, r, true);  \
    } else {                 \
      multiply(p, r, false); \
    }                        \
    return;

static void code_product(const mllm_code_product *p) {
  switch (p->rows) {
    ROWS_CASE(1)
    ROWS_CASE(2)
#if defined(__AVX2__) || defined(__aarch64__)
    ROWS_CASE(3)
    ROWS_CASE(4)
    ROWS_CASE(5)
    ROWS_CASE(6)
#endif
#if defined(__AVX512F__)
    ROWS_CASE(7)
    ROWS_CASE(8)
    ROWS_CASE(9)
    ROWS_CASE(10)
    ROWS_CASE(11)
    ROWS_CASE(12)
#endif
    default: return;
  }
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

typedef uint8_t row_bytes __attribute__((vector_size(PANEL)));

/* bytes[count, 16]: the codes k.. of a panel, several of which share a byte. */
MLLM_INLINE void unpack(unsigned char *bytes, const unsigned char *panel, size_t k, size_t count,
                        const uint32_t bits, const bool is_signed) {
  const size_t each = 8 / bits;
  const uint8_t mask = (uint8_t)((1U << bits) - 1);
  const uint8_t sign = (uint8_t)(is_signed ? 1U << (bits - 1) : 0U);
  for (size_t i = 0; i < count; i++) {
    row_bytes codes;
    memcpy(&codes, panel + (k + i) / each * PANEL, sizeof codes);
    codes = ((codes >> (uint8_t)((k + i) % each * bits) & mask) ^ sign) - sign;
    memcpy(bytes + i * PANEL, &codes, sizeof codes);
  }
}

/* [count, 16] bytes: where they lie, or unpacked to `buffer`. */
static const unsigned char *codes_at(const unsigned char *data, uint32_t bits, bool is_signed,
                                     size_t depth, size_t panel, size_t k, size_t count,
                                     unsigned char *buffer) {
  const size_t each = 8 / bits;
  const unsigned char *from = data + panel * ((depth + each - 1) / each) * PANEL;
  if (bits == 8) return from + k * PANEL;
  if (bits == 4 && is_signed) unpack(buffer, from, k, count, 4, true);
  if (bits == 4 && !is_signed) unpack(buffer, from, k, count, 4, false);
  if (bits == 2) unpack(buffer, from, k, count, 2, is_signed);
  return buffer;
}

static void scales_at(const mllm_codes *c, size_t panel, size_t block, float *scale) {
  const size_t at = c->one_scale ? 0 : (panel * c->blocks + block) * PANEL;
  const size_t step = c->one_scale ? 0 : 1;
  if (!c->scale_is_half) {
    for (size_t j = 0; j < PANEL; j++) scale[j] = ((const float *)c->scale)[at + j * step];
    return;
  }
  const uint16_t *half = (const uint16_t *)c->scale + at;
  for (size_t j = 0; j < PANEL; j++) scale[j] = mllm_half_to_float(half[j * step]);
}

static void zeros_at(const mllm_codes *c, size_t panel, size_t block, int32_t *zero) {
  unsigned char buffer[PANEL];
  const unsigned char *codes = c->zero;
  if (!c->one_zero) {
    codes = codes_at(codes, c->zero_bits, c->zero_is_signed, c->blocks, panel, block, 1, buffer);
  }
  for (size_t j = 0; j < PANEL; j++) {
    const unsigned char code = codes[c->one_zero ? 0 : j];
    zero[j] = c->zero_is_signed ? (int8_t)code : code;
  }
}

/* sums -= zero * (the sum of each row of x) */
static void subtract_zeros(const mllm_code_product *p, const int32_t *zero) {
  for (size_t r = 0; r < p->rows; r++) {
    int32_t total = 0;
    for (size_t k = 0; k < p->depth; k++) total += p->x[r * p->x_stride + k];
    for (size_t j = 0; j < PANEL; j++) p->sums[r * PANEL + j] -= zero[j] * total;
  }
}

static void close_block(const mllm_code_tile *t, size_t block) {
  float scale[PANEL];
  scales_at(t->codes, t->panel, block, scale);
  for (size_t r = 0; r < t->rows; r++) {
    double *sums = t->sums + r * PANEL;
    double *y = t->y + r * PANEL;
    if (t->x_scale == NULL) {
      for (size_t j = 0; j < PANEL; j++) y[j] += sums[j] * (double)scale[j];
    } else {
      const double x_scale = (double)t->x_scale[r * t->x_scale_row + block * t->x_scale_block];
      for (size_t j = 0; j < PANEL; j++) y[j] += sums[j] * (double)scale[j] * x_scale;
    }
    memset(sums, 0, PANEL * sizeof *sums);
  }
}

static void code_tile(const mllm_code_tile *t) {
  const mllm_codes *c = t->codes;
  unsigned char buffer[SPAN * PANEL];
  int32_t sums[ROWS * PANEL];
  int32_t zero[PANEL];
  for (size_t k = t->k; k < t->k + t->depth;) {
    const size_t block = k / c->block;
    const size_t block_end = smaller((block + 1) * c->block, c->depth);
    const size_t end = smaller(smaller(block_end, t->k + t->depth), k + SPAN);
    const mllm_code_product product = {
        .rows = t->rows,
        .depth = end - k,
        .x = t->x + (k - t->k),
        .x_stride = t->x_stride,
        .w = codes_at(c->data, c->bits, c->is_signed, c->depth, t->panel, k, end - k, buffer),
        .w_stride = PANEL,
        .w_is_signed = c->is_signed,
        .sums = sums};
    code_product(&product);
    if (c->zero != NULL) {
      zeros_at(c, t->panel, block, zero);
      subtract_zeros(&product, zero);
    }
    for (size_t i = 0; i < t->rows * PANEL; i++) t->sums[i] += (double)sums[i];
    if (end == block_end) close_block(t, block);
    k = end;
  }
}

MLLM_INLINE void scale_up(float *w, const unsigned char *codes, const int32_t *zero,
                          const float *scale, size_t count, const bool is_signed) {
  vi zeros[PANEL_VECTORS];
  vf scales[PANEL_VECTORS];
#pragma GCC unroll 4
  for (size_t v = 0; v < PANEL_VECTORS; v++) {
    zeros[v] = *(const vi_any *)(zero + v * LANES);
    scales[v] = load(scale + v * LANES);
  }
  for (size_t k = 0; k < count; k++) {
#pragma GCC unroll 4
    for (size_t v = 0; v < PANEL_VECTORS; v++) {
      const vi value = widen(codes + k * PANEL + v * LANES, is_signed) - zeros[v];
      store(w + k * PANEL + v * LANES, __builtin_convertvector(value, vf) * scales[v]);
    }
  }
}

static void code_reals(float *w, const mllm_codes *c, size_t panel, size_t k, size_t depth) {
  unsigned char buffer[SPAN * PANEL];
  for (const size_t limit = k + depth; k < limit;) {
    float scale[PANEL];
    int32_t zero[PANEL] = {0};
    const size_t block = k / c->block;
    const size_t count = smaller(smaller((block + 1) * c->block, limit) - k, SPAN);
    const unsigned char *codes =
        codes_at(c->data, c->bits, c->is_signed, c->depth, panel, k, count, buffer);
    scales_at(c, panel, block, scale);
    if (c->zero != NULL) zeros_at(c, panel, block, zero);
    if (c->is_signed) {
      scale_up(w, codes, zero, scale, count, true);
    } else {
      scale_up(w, codes, zero, scale, count, false);
    }
    w += count * PANEL;
    k += count;
  }
}

const mllm_code_ops MLLM_VARIANT_NAME(code_ops) = {
    .tile_rows = ROWS,
    .product = code_product,
    .tile = code_tile,
    .reals = code_reals,
};
