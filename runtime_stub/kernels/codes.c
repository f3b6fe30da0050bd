/* codes.c - products of integers, the reals that codes mean and the codes of reals, compiled once
 * per instruction set. Sums of integers are exact, so every instruction set computes the same bits.
 */
#include "code_reading.h"

#if defined(__AVX512F__)
enum { ROWS = 12 }; /* 12 of 32 registers accumulate */
#elif defined(__AVX2__) || defined(__aarch64__)
enum { ROWS = 6 };
#else
enum { ROWS = 2 };
#endif

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

MLLM_INLINE void span_of_reals(float *w, const mllm_codes *c, size_t panel, size_t k, size_t end,
                               const int32_t *zero, const float *scale, const uint32_t bits,
                               const bool is_signed) {
  const size_t each = 8 / bits;
  const vi mask = (int32_t)((1U << bits) - 1) - (vi){0};
  const vi sign = (int32_t)(is_signed ? 1U << (bits - 1) : 0U) - (vi){0};
  for (; k < end; k++, w += PANEL) {
    const int32_t shift = (int32_t)(k % QUAD * 8 + k / QUAD % each * bits);
    const unsigned char *words = quads_of(c, panel) + k / (QUAD * each) * PANEL * QUAD;
#pragma GCC unroll 4
    for (size_t v = 0; v < PANEL_VECTORS; v++) {
      const vi word = *(const vi_codes *)(const void *)(words + v * LANES * QUAD);
      const vi code = (((word >> shift) & mask) ^ sign) - sign;
      const vi value = code - *(const vi_any *)(zero + v * LANES);
      store(w + v * LANES, __builtin_convertvector(value, vf) * load(scale + v * LANES));
    }
  }
}

#define SPAN_CASE(bits)                                                       \
  case bits:                                                                  \
    if (c->is_signed) {                                                       \
      span_of_reals(w, c, panel, k, end, zero, scale, bits, true);            \
    } else {                                                                  \
      span_of_reals(w, c, panel, k, end, zero, scale, bits, false);           \
    }                                                                         \
    break;

static void code_reals(float *w, const mllm_codes *c, size_t panel, size_t k, size_t depth) {
  for (const size_t limit = k + depth; k < limit;) {
    float scale[PANEL];
    int32_t zero[PANEL] = {0};
    const size_t block = k / c->block;
    const size_t block_end = (block + 1) * c->block;
    const size_t end = block_end < limit ? block_end : limit;
    scales_at(c, panel, block, scale);
    if (c->zero != NULL) zeros_at(c, panel, block, zero);
    switch (c->bits) {
      SPAN_CASE(8)
      SPAN_CASE(4)
      SPAN_CASE(2)
      default: return;
    }
    w += (end - k) * PANEL;
    k = end;
  }
}

MLLM_INLINE vf choose(vi take, vf a, vf b) { return (vf)((take & (vi)a) | (~take & (vi)b)); }

MLLM_INLINE vi choose_whole(vi take, vi a, vi b) { return (take & a) | (~take & b); }

/* To the nearest, half to even, for |x| < 2^22: 1.5 * 2^23 is a float that counts in ones. */
MLLM_INLINE vf nearest(vf x) { return (x + splat(12582912.0F)) - splat(12582912.0F); }

/* As quantize.c's code_of, for one vector. */
MLLM_INLINE vi codes_of(vf x, mllm_code_rule rule) {
  const vf quotient = x / splat(rule.scale);
  const vi is_number = quotient == quotient;
  const vf least = splat((float)(rule.low - rule.zero - 1));
  const vf most = splat((float)(rule.high - rule.zero + 1));
  const vf raised = choose(quotient > least, quotient, least);
  const vf bounded = choose(raised < most, raised, most);
  const vi code = __builtin_convertvector(nearest(bounded), vi) + rule.zero;
  const vi low = rule.low - (vi){0};
  const vi high = rule.high - (vi){0};
  const vi above = choose_whole(code > low, code, low);
  return choose_whole(above < high, above, high) & is_number;
}

MLLM_INLINE void store_bytes(uint8_t *codes, vi code) {
#if defined(__AVX512F__)
  _mm_storeu_si128((__m128i *)(void *)codes, _mm512_cvtepi32_epi8((__m512i)code));
#else
  for (size_t i = 0; i < LANES; i++) codes[i] = (uint8_t)code[i];
#endif
}

static void code_bytes(uint8_t *codes, const float *x, size_t n, mllm_code_rule rule) {
  size_t i = 0;
  for (; i + LANES <= n; i += LANES) store_bytes(codes + i, codes_of(load(x + i), rule));
  if (i == n) return;
  uint8_t last[LANES];
  store_bytes(last, codes_of(load_part(x + i, n - i, 0.0F), rule));
  memcpy(codes + i, last, n - i);
}

/* NaN wins. */
MLLM_INLINE vf lesser(vf a, vf b) { return choose((a < b) | (a != a), a, b); }
MLLM_INLINE vf greater(vf a, vf b) { return choose((a > b) | (a != a), a, b); }

/* The lanes of v, those h apart in each other's place. */
#define FOUR(i, h) (i) ^ (h), ((i) + 1) ^ (h), ((i) + 2) ^ (h), ((i) + 3) ^ (h)
#if defined(__AVX512F__)
#define SWAPPED(v, h) \
  __builtin_shufflevector(v, v, FOUR(0, h), FOUR(4, h), FOUR(8, h), FOUR(12, h))
#elif defined(__AVX2__)
#define SWAPPED(v, h) __builtin_shufflevector(v, v, FOUR(0, h), FOUR(4, h))
#else
#define SWAPPED(v, h) __builtin_shufflevector(v, v, FOUR(0, h))
#endif
#define SPREAD(h)                     \
  low = lesser(SWAPPED(low, h), low); \
  high = greater(SWAPPED(high, h), high);

static void bounds(const float *x, size_t n, float *least, float *most) {
  vf low = {0};
  vf high = {0};
  size_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    low = lesser(load(x + i), low);
    high = greater(load(x + i), high);
  }
  if (i < n) {
    const vf last = load_part(x + i, n - i, 0.0F);
    low = lesser(last, low);
    high = greater(last, high);
  }
#if defined(__AVX512F__)
  SPREAD(8)
#endif
#if defined(__AVX2__)
  SPREAD(4)
#endif
  SPREAD(2)
  SPREAD(1)
  *least = low[0];
  *most = high[0];
}

const mllm_code_ops MLLM_VARIANT_NAME(code_ops) = {
    .product_rows = ROWS,
    .product = code_product,
    .reals = code_reals,
    .bytes = code_bytes,
    .bounds = bounds,
};
