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

enum { AHEAD = 4096 /* bytes of a weight that one row streams through, asked for before they are read */ };

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
    if (rows == 1 && shift == 0) __builtin_prefetch(words + v * LANES * QUAD + AHEAD);
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

/* Half a vector's lanes in double precision. */
typedef double vd __attribute__((vector_size(LANES * 4)));
typedef double vd_any __attribute__((vector_size(LANES * 4), aligned(8), may_alias));
typedef uint32_t vu __attribute__((vector_size(LANES * 4)));
enum { HALF = LANES / 2 };

MLLM_INLINE vd doubles(vi v, const int half) {
#if defined(__AVX512F__)
  const __m512i all = (__m512i)v;
  return (vd)_mm512_cvtepi32_pd(half ? _mm512_extracti64x4_epi64(all, 1)
                                     : _mm512_castsi512_si256(all));
#elif defined(__AVX2__)
  const __m256i all = (__m256i)v;
  return (vd)_mm256_cvtepi32_pd(half ? _mm256_extracti128_si256(all, 1)
                                     : _mm256_castsi256_si128(all));
#else
  vd wide;
  for (int i = 0; i < HALF; i++) wide[i] = (double)v[half * HALF + i];
  return wide;
#endif
}

MLLM_INLINE vd doubles_at(const float *x) {
#if defined(__AVX512F__)
  return (vd)_mm512_cvtps_pd(_mm256_loadu_ps(x));
#elif defined(__AVX2__)
  return (vd)_mm256_cvtps_pd(_mm_loadu_ps(x));
#else
  vd wide;
  for (int i = 0; i < HALF; i++) wide[i] = (double)x[i];
  return wide;
#endif
}

/* Codes of a block that were multiplied. */
typedef struct span {
  size_t index; /* among those of the tile */
  size_t block;
  size_t codes;
  bool is_begun; /* the tile before had codes of the block */
  bool is_done;
} span;

/* What the bytes of the weight are more than codes less zero points, by columns. */
MLLM_INLINE void shifts_at(const mllm_code_tile *t, size_t block, vu *shift) {
  const mllm_codes *c = t->codes;
  const uint32_t offset = c->is_signed ? 1U << (c->bits - 1) : 0;
  int32_t zero[PANEL] = {0};
  if (c->zero != NULL) zeros_at(c, t->panel, block, zero);
  for (size_t v = 0; v < PANEL_VECTORS; v++)
    shift[v] = (vu)(*(vi_any *)(zero + v * LANES)) + offset;
}

/* The sums of bytes become those of codes less zero points, modulo 2^32: what is right fits. Then
 * y += sums scale x_scale of a block that is done; the sums of another one are held. */
MLLM_INLINE void end_span(const mllm_code_tile *t, const span *s, const int32_t *sums,
                          const bool corrects, const bool is_plain) {
  vu shift[PANEL_VECTORS] = {(vu){0}};
  float scale[PANEL] = {0};
  vd wide[2 * PANEL_VECTORS];
  const bool is_done = is_plain || s->is_done, adds = !is_plain && (s->is_begun || !s->is_done);
  const bool has_zeros = !is_plain && t->x_zeros != NULL;
  const bool is_scaled = !is_plain && t->x_scale != NULL;
  if (corrects) shifts_at(t, s->block, shift);
  if (is_done) scales_at(t->codes, t->panel, s->block, scale);
  for (size_t h = 0; h < 2 * PANEL_VECTORS; h++) wide[h] = doubles_at(scale + h * HALF);
  const int32_t *ones = sums + t->rows * PANEL;
  for (size_t r = 0; r < t->rows; r++, sums += PANEL) {
    const size_t at = r * t->x_spans + s->index;
    const uint32_t x_sum = (uint32_t)t->x_sums[at];
    const uint32_t x_zero = has_zeros ? (uint32_t)t->x_zeros[at] : 0;
    const size_t place = r * t->x_scale_row + s->block * t->x_scale_block;
    const double x_scale = is_scaled ? (double)t->x_scale[place] : 1.0;
    for (size_t h = 0; h < 2 * PANEL_VECTORS; h++) {
      const size_t v = h / 2;
      vu sum = (vu)(*(const vi_any *)(sums + v * LANES));
      if (corrects) sum -= shift[v] * x_sum;
      if (has_zeros)
        sum -= ((vu)(*(const vi_any *)(ones + v * LANES)) - (uint32_t)s->codes * shift[v]) * x_zero;
      vd part = doubles((vi)sum, (int)(h % 2));
      vd_any *held = (vd_any *)(t->sums + r * PANEL + h * HALF);
      if (adds) part += *held;
      if (adds) *held = is_done ? (vd){0} : part;
      if (!is_done) continue;
      part *= wide[h];
      if (is_scaled) part *= x_scale;
      *(vd_any *)(t->y + r * PANEL + h * HALF) += part;
    }
  }
}

/* Asks for what stands beside the codes of the next panel. */
MLLM_INLINE void prefetch_scales(const mllm_codes *c, size_t panel) {
  if (c->one_scale) return;
  const size_t bytes = c->blocks * PANEL * (c->scale_is_half ? sizeof(uint16_t) : sizeof(float));
  const char *from = (const char *)c->scale + (panel + 1) * bytes;
  for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
}

/* One row over whole blocks, whose sums stay in registers: what decoding a token does. */
MLLM_INLINE void code_row(const mllm_code_tile *t, const uint32_t bits, const bool is_signed) {
  enum { TOGETHER = 2, GROUP = PANEL * QUAD };
  const mllm_codes *c = t->codes;
  const size_t each = 8 / bits, step = each > TOGETHER ? each : TOGETHER;
  const bool corrects = is_signed || c->zero != NULL;
  const unsigned char *words = quads_of(c, t->panel) + t->k / QUAD / each * GROUP;
  const int8_t *x = t->x;
  size_t block = t->k / c->block;
  vd y[2 * PANEL_VECTORS];
  for (size_t h = 0; h < 2 * PANEL_VECTORS; h++) y[h] = *(const vd_any *)(t->y + h * HALF);
  prefetch_scales(c, t->panel);
  for (size_t span = 0, left = t->depth; left > 0; span++, block++) {
    const size_t codes = left < c->block ? left : c->block;
    vi sum[TOGETHER][1][PANEL_VECTORS] = {{{(vi){0}}}};
    for (size_t q = 0; q < codes; q += step * QUAD, words += step / each * GROUP) {
#pragma GCC unroll 4
      for (size_t s = 0; s < step; s++)
        add_quad(sum[s % TOGETHER], words + s / each * GROUP, (int32_t)(s % each * bits),
                 x + q + s * QUAD, 0, 1, bits, is_signed);
    }
    vu shift[PANEL_VECTORS] = {(vu){0}};
    float scale[PANEL];
    if (corrects) shifts_at(t, block, shift);
    scales_at(c, t->panel, block, scale);
    const double x_scale = t->x_scale == NULL ? 1.0 : (double)t->x_scale[block * t->x_scale_block];
    for (size_t v = 0; v < PANEL_VECTORS; v++) {
      const vu all = (vu)(sum[0][0][v] + sum[1][0][v]) - shift[v] * (uint32_t)t->x_sums[span];
      for (int half = 0; half < 2; half++) {
        const vd part = doubles((vi)all, half) * doubles_at(scale + v * LANES + half * HALF);
        y[2 * v + (size_t)half] += part * x_scale;
      }
    }
    x += codes;
    left -= codes;
  }
  for (size_t h = 0; h < 2 * PANEL_VECTORS; h++) *(vd_any *)(t->y + h * HALF) = y[h];
}

/* Whether code_row can do a tile: blocks begin and end with what it reads at a time. */
static bool is_row(const mllm_code_tile *t) {
  const mllm_codes *c = t->codes;
  const size_t together = QUAD * (c->bits < 8 ? 8 / c->bits : 2);
  return t->rows == 1 && t->x_zeros == NULL && c->bits > 2 && c->block % together == 0 &&
         t->k % c->block == 0 && t->depth % together == 0 &&
         (t->depth % c->block == 0 || t->k + t->depth == c->depth);
}

static void code_tile(const mllm_code_tile *t) {
  const mllm_codes *c = t->codes;
  if (is_row(t)) {
    if (c->bits == 8)
      c->is_signed ? code_row(t, 8, true) : code_row(t, 8, false);
    else
      c->is_signed ? code_row(t, 4, true) : code_row(t, 4, false);
    return;
  }
  const unsigned char *quads = quads_of(c, t->panel);
  const int8_t *x = t->x;
  const size_t rows = t->rows + (t->x_zeros != NULL), limit = t->k + t->depth;
  const size_t kind = (c->bits == 8 ? 0U : c->bits == 4 ? 2U : 4U) + (c->is_signed ? 0U : 1U);
  const bool corrects = c->zero != NULL || c->is_signed || t->x_zeros != NULL;
  int32_t sums[ROWS * PANEL];
  span s = {.block = t->k / c->block};
  s.is_begun = t->k > s.block * c->block;
  for (size_t k = t->k; k < limit; s.index++, s.block++) {
    const size_t block_end = (s.block + 1) * c->block;
    const size_t end = block_end < limit ? block_end : limit;
    const size_t first = k / QUAD, last = (end + QUAD - 1) / QUAD;
    multiply_rows(quads, x, t->x_stride, first, last, sums, rows, kind);
    s.codes = end - k;
    s.is_done = end == block_end || end == c->depth;
    if (s.is_done && !s.is_begun && t->x_zeros == NULL && t->x_scale == NULL)
      corrects ? end_span(t, &s, sums, true, true) : end_span(t, &s, sums, false, true);
    else
      end_span(t, &s, sums, true, false);
    s.is_begun = false;
    x += (last - first) * QUAD;
    k = end;
  }
}

static int32_t sum(const int8_t *x, size_t n) {
  int32_t all = 0;
  for (size_t i = 0; i < n; i++) all += x[i];
  return all;
}

const mllm_tile_ops MLLM_VARIANT_NAME(tile_ops) = {.rows = ROWS, .sum = sum, .tile = code_tile};
