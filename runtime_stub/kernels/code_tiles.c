/* code_tiles.c - rows of codes by a weight of codes, four products of bytes at a time; compiled for
 * each instruction set. Sums of integers are exact, blocks are scaled in double precision, in their
 * order, and no product is contracted with a sum: every instruction set computes the same bits.
 *
 * A byte of the weight is taken without sign, u = code + offset, and one of x with sign; then
 * sum((x - zx)(code - zw)) = sum(x u) - (zw + offset) sum(x) - zx (sum(u) - n (zw + offset)).
 */
#include "code_reading.h"

#if defined(__AVX512VNNI__)
enum { ROWS = 12 }; /* of 32 registers */
#elif defined(__AVX512BW__)
enum { ROWS = 8 };
#elif defined(__AVXVNNI__)
enum { ROWS = 6 }; /* of two registers each, of 16 */
#else
enum { ROWS = 4 };
#endif

/* sum + u x of each lane's four bytes, u without sign (below 16 where it is narrow), x with. */
MLLM_INLINE vi add_products(vi sum, vi u, int32_t x, const bool is_narrow) {
#if defined(__AVX512VNNI__)
  (void)is_narrow;
  return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)u, _mm512_set1_epi32(x));
#elif defined(__AVX512BW__)
  const __m512i ones = _mm512_set1_epi16(1), wide = _mm512_set1_epi32(x);
  const __m512i low = is_narrow ? (__m512i)u : _mm512_and_si512((__m512i)u, _mm512_set1_epi8(15));
  sum += (vi)_mm512_madd_epi16(_mm512_maddubs_epi16(low, wide), ones);
  if (is_narrow) return sum;
  const __m512i high = (__m512i)(((vi)u >> 4) & (0x0F0F0F0F - (vi){0}));
  return sum + (vi)_mm512_madd_epi16(_mm512_maddubs_epi16(high, wide), _mm512_set1_epi16(16));
#elif defined(__AVXVNNI__)
  (void)is_narrow;
  return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)u, _mm256_set1_epi32(x));
#elif defined(__AVX2__)
  /* pairs of products of whole bytes may leave 16 bits; those of halves cannot */
  const __m256i ones = _mm256_set1_epi16(1), wide = _mm256_set1_epi32(x);
  const __m256i low = is_narrow ? (__m256i)u : _mm256_and_si256((__m256i)u, _mm256_set1_epi8(15));
  sum += (vi)_mm256_madd_epi16(_mm256_maddubs_epi16(low, wide), ones);
  if (is_narrow) return sum;
  const __m256i high = (__m256i)(((vi)u >> 4) & (0x0F0F0F0F - (vi){0}));
  return sum + (vi)_mm256_madd_epi16(_mm256_maddubs_epi16(high, wide), _mm256_set1_epi16(16));
#else
  (void)is_narrow;
  for (int byte = 0; byte < QUAD; byte++) {
    const int32_t code = (int8_t)((uint32_t)x >> 8 * byte);
    sum += ((u >> 8 * byte) & 255) * code;
  }
  return sum;
#endif
}

/* sum += one quad: the bits from `shift` on of a group's words, by the rows of x. */
MLLM_INLINE void add_quad(vi sum[][PANEL_VECTORS], const unsigned char *words, const int32_t shift,
                          const int8_t *x, size_t x_stride, const size_t rows, const uint32_t bits,
                          const bool is_signed) {
  const vi mask = (int32_t)(0x01010101U * ((1U << bits) - 1)) - (vi){0};
  const vi offset = (int32_t)(0x01010101U << (bits - 1)) - (vi){0};
  vi u[PANEL_VECTORS];
#pragma GCC unroll 4
  for (size_t v = 0; v < PANEL_VECTORS; v++) {
    u[v] = *(const vi_codes *)(const void *)(words + v * LANES * QUAD);
    if (bits < 8) u[v] = (u[v] >> shift) & mask;
    if (is_signed) u[v] ^= offset;
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; r++) {
    int32_t value;
    memcpy(&value, x + r * x_stride, sizeof value);
#pragma GCC unroll 4
    for (size_t v = 0; v < PANEL_VECTORS; v++) {
      sum[r][v] = add_products(sum[r][v], u[v], value, bits < 8);
    }
  }
}

/* Quads q..end of a panel and of x; sums[rows, 16]. Rows and what follows are constants where this
 * is inlined. Few rows have two sums each, so that one need not wait for the other. */
MLLM_INLINE void multiply(const unsigned char *quads, const int8_t *x, size_t x_stride, size_t q,
                          const size_t end, int32_t *sums, const size_t rows, const uint32_t bits,
                          const bool is_signed) {
  enum { GROUP = PANEL * QUAD };
  const size_t each = 8 / bits;
  const size_t apart = rows <= 3 ? 2 : 1;
  const size_t step = each > apart ? each : apart;
  vi sum[2][ROWS][PANEL_VECTORS];
#pragma GCC unroll 2
  for (size_t a = 0; a < apart; a++) {
#pragma GCC unroll 16
    for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 4
      for (size_t v = 0; v < PANEL_VECTORS; v++) sum[a][r][v] = (vi){0};
    }
  }
  for (; q < end && q % each != 0; q++, x += QUAD) {
    add_quad(sum[0], quads + q / each * GROUP, (int32_t)(q % each * bits), x, x_stride, rows, bits,
             is_signed);
  }
  const unsigned char *words = quads + q / each * GROUP;
  for (; q + step <= end; q += step, x += step * QUAD, words += step / each * GROUP) {
#pragma GCC unroll 4
    for (size_t s = 0; s < step; s++) {
      add_quad(sum[s % apart], words + s / each * GROUP, (int32_t)(s % each * bits), x + s * QUAD,
               x_stride, rows, bits, is_signed);
    }
  }
  for (; q < end; q++, x += QUAD) {
    add_quad(sum[0], quads + q / each * GROUP, (int32_t)(q % each * bits), x, x_stride, rows, bits,
             is_signed);
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (size_t v = 0; v < PANEL_VECTORS; v++) {
      if (apart == 2) sum[0][r][v] += sum[1][r][v];
      *(vi_any *)(sums + r * PANEL + v * LANES) = sum[0][r][v];
    }
  }
}

typedef void (*multiply_fn)(const unsigned char *quads, const int8_t *x, size_t x_stride, size_t q,
                            size_t end, int32_t *sums);

#define MULTIPLY(rows, bits, is_signed)                                                     \
  static void multiply_##rows##_##bits##_##is_signed(const unsigned char *quads,            \
                                                     const int8_t *x, size_t x_stride,      \
                                                     size_t q, size_t end, int32_t *sums) { \
    multiply(quads, x, x_stride, q, end, sums, rows, bits, is_signed);                      \
  }
#define MULTIPLY_ALL(rows)                                      \
  MULTIPLY(rows, 8, 0)                                          \
  MULTIPLY(rows, 8, 1)                                          \
  MULTIPLY(rows, 4, 0)                                          \
  MULTIPLY(rows, 4, 1)                                          \
  MULTIPLY(rows, 2, 0)                                          \
  MULTIPLY(rows, 2, 1)                                          \
  static const multiply_fn multiply_##rows[] = {                \
      multiply_##rows##_8_1, multiply_##rows##_8_0, multiply_##rows##_4_1, \
      multiply_##rows##_4_0, multiply_##rows##_2_1, multiply_##rows##_2_0};
MULTIPLY_ALL(1)
MULTIPLY_ALL(2)
MULTIPLY_ALL(3)
MULTIPLY_ALL(4)
#if defined(__AVXVNNI__)
MULTIPLY_ALL(6)
#endif
#if defined(__AVX512BW__)
MULTIPLY_ALL(8)
#endif
#if defined(__AVX512VNNI__)
MULTIPLY_ALL(12)
#endif

/* Rows that go together, most first, and what multiplies them by i8, u8, i4, u4, i2, u2. */
static const struct {
  size_t rows;
  const multiply_fn *by;
} groups[] = {
#if defined(__AVX512VNNI__)
    {12, multiply_12},
#endif
#if defined(__AVX512BW__)
    {8, multiply_8},
#endif
#if defined(__AVXVNNI__)
    {6, multiply_6},
#endif
    {4, multiply_4},
    {3, multiply_3},
    {2, multiply_2},
    {1, multiply_1},
};

/* sums[rows, 16] of quads q..end, rows a group at a time */
static void multiply_rows(const unsigned char *quads, const int8_t *x, size_t x_stride, size_t q,
                          size_t end, int32_t *sums, size_t rows, size_t kind) {
  for (size_t g = 0; rows > 0; g++) {
    for (; rows >= groups[g].rows; rows -= groups[g].rows) {
      groups[g].by[kind](quads, x, x_stride, q, end, sums);
      x += groups[g].rows * x_stride;
      sums += groups[g].rows * PANEL;
    }
  }
}

/* The sums of bytes become those of codes less zero points, modulo 2^32: what is right fits. */
static void correct(const mllm_code_tile *t, size_t span, size_t count, const int32_t *zero,
                    int32_t *sums) {
  const int32_t offset = t->codes->is_signed ? 1 << (t->codes->bits - 1) : 0;
  uint32_t shift[PANEL];
  for (size_t j = 0; j < PANEL; j++) shift[j] = (uint32_t)(zero[j] + offset);
  const uint32_t *all = (const uint32_t *)sums + t->rows * PANEL;
  for (size_t r = 0; r < t->rows; r++) {
    uint32_t *row = (uint32_t *)sums + r * PANEL;
    const uint32_t x_sum = (uint32_t)t->x_sums[r * t->x_spans + span];
    for (size_t j = 0; j < PANEL; j++) row[j] -= shift[j] * x_sum;
    if (t->x_zeros == NULL) continue;
    const uint32_t x_zero = (uint32_t)t->x_zeros[r * t->x_spans + span];
    for (size_t j = 0; j < PANEL; j++) row[j] -= x_zero * (all[j] - (uint32_t)count * shift[j]);
  }
}

/* y += sums scale x_scale, of the block that is done; held are its sums so far, or NULL. */
static void close_block(const mllm_code_tile *t, size_t block, const int32_t *sums, bool is_held) {
  float scale[PANEL];
  double wide[PANEL];
  scales_at(t->codes, t->panel, block, scale);
  for (size_t j = 0; j < PANEL; j++) wide[j] = (double)scale[j];
  for (size_t r = 0; r < t->rows; r++) {
    double *held = t->sums + r * PANEL;
    double *y = t->y + r * PANEL;
    double part[PANEL];
    for (size_t j = 0; j < PANEL; j++) part[j] = (double)sums[r * PANEL + j];
    if (is_held) {
      for (size_t j = 0; j < PANEL; j++) part[j] += held[j];
      memset(held, 0, PANEL * sizeof *held);
    }
    if (t->x_scale == NULL) {
      for (size_t j = 0; j < PANEL; j++) y[j] += part[j] * wide[j];
      continue;
    }
    const double x_scale = (double)t->x_scale[r * t->x_scale_row + block * t->x_scale_block];
    for (size_t j = 0; j < PANEL; j++) y[j] += part[j] * wide[j] * x_scale;
  }
}

static void code_tile(const mllm_code_tile *t) {
  const mllm_codes *c = t->codes;
  const unsigned char *quads = quads_of(c, t->panel);
  const int8_t *x = t->x;
  const size_t rows = t->rows + (t->x_zeros != NULL);
  const size_t kind = (c->bits == 8 ? 0U : c->bits == 4 ? 2U : 4U) + (c->is_signed ? 0U : 1U);
  int32_t sums[ROWS * PANEL];
  int32_t zero[PANEL] = {0};
  size_t span = 0;
  for (size_t k = t->k; k < t->k + t->depth; span++) {
    const size_t end = mllm_code_span(c, k, t->k + t->depth);
    const size_t first = k / QUAD, last = (end + QUAD - 1) / QUAD;
    multiply_rows(quads, x, t->x_stride, first, last, sums, rows, kind);
    if (c->zero != NULL) zeros_at(c, t->panel, k / c->block, zero);
    if (c->zero != NULL || c->is_signed || t->x_zeros != NULL) {
      correct(t, span, end - k, zero, sums);
    }
    const bool is_begun = k > 0 && k % c->block != 0;
    if (end % c->block == 0 || end == c->depth) {
      close_block(t, k / c->block, sums, is_begun);
    } else {
      for (size_t i = 0; i < t->rows * PANEL; i++) t->sums[i] += (double)sums[i];
    }
    x += (last - first) * QUAD;
    k = end;
  }
}

const mllm_tile_ops MLLM_VARIANT_NAME(tile_ops) = {.rows = ROWS, .tile = code_tile};
