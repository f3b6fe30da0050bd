/* gemm.c - the matrix product's inner loops, compiled once per instruction set.
 *
 * A tile keeps rows x panels of results in registers and runs over the depth: one row of b is
 * loaded, each of the rows' values is spread over a vector, and all products are added.
 */
#include "ops.h"
#include "simd.h"

#if defined(__AVX512F__)
enum { ROWS = 12, PANELS = 2 }; /* 24 of 32 registers accumulate */
#elif defined(__AVX2__)
enum { ROWS = 6, PANELS = 1 }; /* 12 of 16 */
#elif defined(__aarch64__)
enum { ROWS = 6, PANELS = 1 }; /* 24 of 32 */
#else
enum { ROWS = 2, PANELS = 1 }; /* 8 of 16 */
#endif
enum { COLUMNS = PANELS * PANEL, VECTORS = PANELS * PANEL_VECTORS };

/* rows, panels and the steps of a are constants where this is inlined. b and c are whole panels
 * wide. Value (r, k) of a stands at a[r * row_step + k * depth_step]. */
MLLM_INLINE void tile(const mllm_tile *t, const size_t rows, const size_t panels,
                      const size_t row_step, const size_t depth_step) {
  const size_t vectors = panels * PANEL_VECTORS;
  vf sum[ROWS][VECTORS];
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
    for (size_t v = 0; v < vectors; v++) {
      sum[r][v] = (vf){0};
      if (t->start == MLLM_START_BIAS) sum[r][v] = load(t->bias + v * LANES);
      if (t->start == MLLM_START_C) sum[r][v] = load(t->c + r * t->c_stride + v * LANES);
    }
  }
  const float *a = t->a;
  const float *b0 = t->b;
  const float *b1 = t->b + t->panel_stride;
  for (size_t k = 0; k < t->depth; k++) {
    vf row[VECTORS];
#pragma GCC unroll 8
    for (size_t v = 0; v < vectors; v++) {
      const float *b = v < PANEL_VECTORS ? b0 : b1;
      row[v] = load(b + (v % PANEL_VECTORS) * LANES);
    }
#pragma GCC unroll 16
    for (size_t r = 0; r < rows; r++) {
      const vf value = splat(a[r * row_step]);
#pragma GCC unroll 8
      for (size_t v = 0; v < vectors; v++) sum[r][v] += value * row[v];
    }
    a += depth_step;
    b0 += t->row_stride;
    b1 += t->row_stride;
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 8
    for (size_t v = 0; v < vectors; v++) store(t->c + r * t->c_stride + v * LANES, sum[r][v]);
  }
}

#define TILE_CASE(r) \
  case r: tile(t, r, panels, row_step, depth_step); return;

MLLM_INLINE void tile_rows(const mllm_tile *t, const size_t panels, const size_t row_step,
                           const size_t depth_step) {
  switch (t->rows) {
    TILE_CASE(1)
    TILE_CASE(2)
#if defined(__AVX2__) || defined(__aarch64__)
    TILE_CASE(3)
    TILE_CASE(4)
    TILE_CASE(5)
    TILE_CASE(6)
#endif
#if defined(__AVX512F__)
    TILE_CASE(7)
    TILE_CASE(8)
    TILE_CASE(9)
    TILE_CASE(10)
    TILE_CASE(11)
    TILE_CASE(12)
#endif
    default: return;
  }
}

static void packed_tile(const mllm_tile *t) {
#if defined(__AVX512F__)
  if (t->columns == 2 * PANEL) {
    tile_rows(t, 2, 1, ROWS);
    return;
  }
#endif
  tile_rows(t, 1, 1, ROWS);
}

static void row_major_tile(const mllm_tile *t) {
#if defined(__AVX512F__)
  if (t->columns == 2 * PANEL) {
    tile_rows(t, 2, MLLM_A_STRIDE, 1);
    return;
  }
#endif
  tile_rows(t, 1, MLLM_A_STRIDE, 1);
}

static void whole_tile(const mllm_tile *t) {
  if (t->a_is_rows) {
    row_major_tile(t);
    return;
  }
  packed_tile(t);
}

/* Columns that end within a panel: through a buffer that is whole panels wide. */
static void ragged_tile(const mllm_tile *t) {
  float c[ROWS][COLUMNS];
  float bias[COLUMNS] = {0};
  mllm_tile whole = *t;
  whole.columns = (t->columns + PANEL - 1) / PANEL * PANEL;
  whole.c = c[0];
  whole.c_stride = COLUMNS;
  whole.bias = bias;
  if (t->start == MLLM_START_BIAS) memcpy(bias, t->bias, t->columns * sizeof(float));
  if (t->start == MLLM_START_C) {
    memset(c, 0, sizeof c);
    for (size_t r = 0; r < t->rows; r++) {
      memcpy(c[r], t->c + r * t->c_stride, t->columns * sizeof(float));
    }
  }
  whole_tile(&whole);
  for (size_t r = 0; r < t->rows; r++) {
    memcpy(t->c + r * t->c_stride, c[r], t->columns * sizeof(float));
  }
}

static void gemm_tile(const mllm_tile *t) {
  if (t->columns % PANEL == 0) {
    whole_tile(t);
    return;
  }
  ragged_tile(t);
}

/* One panel of w for a constant number of rows; several sums per row hide the latency. */
MLLM_INLINE void gemv_panel(const mllm_gemv *g, const float *w, const size_t rows, float *out) {
  enum { UNROLL = 4 };
  const size_t steps = rows == 1 && LANES > 4 ? UNROLL : 1;
  vf sum[MLLM_GEMV_ROWS][UNROLL][PANEL_VECTORS];
#pragma GCC unroll 4
  for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (size_t s = 0; s < steps; s++) {
#pragma GCC unroll 4
      for (size_t v = 0; v < PANEL_VECTORS; v++) sum[r][s][v] = (vf){0};
    }
  }
  size_t k = 0;
  for (; k + steps <= g->depth; k += steps) {
#pragma GCC unroll 4
    for (size_t s = 0; s < steps; s++) {
#pragma GCC unroll 4
      for (size_t v = 0; v < PANEL_VECTORS; v++) {
        const vf weight = load(w + (k + s) * PANEL + v * LANES);
#pragma GCC unroll 4
        for (size_t r = 0; r < rows; r++) {
          sum[r][s][v] += splat(g->x[r * g->x_stride + k + s]) * weight;
        }
      }
    }
  }
  for (; k < g->depth; k++) {
#pragma GCC unroll 4
    for (size_t v = 0; v < PANEL_VECTORS; v++) {
      const vf weight = load(w + k * PANEL + v * LANES);
#pragma GCC unroll 4
      for (size_t r = 0; r < rows; r++) {
        sum[r][0][v] += splat(g->x[r * g->x_stride + k]) * weight;
      }
    }
  }
#pragma GCC unroll 4
  for (size_t r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (size_t v = 0; v < PANEL_VECTORS; v++) {
      vf total = sum[r][0][v];
#pragma GCC unroll 4
      for (size_t s = 1; s < steps; s++) total += sum[r][s][v];
      store(out + r * PANEL + v * LANES, total);
    }
  }
}

/* Up to MLLM_GEMV_ROWS rows of one panel, of which width columns are used. */
static void gemv_rows(const mllm_gemv *g, const float *w, size_t column, size_t width) {
  float out[MLLM_GEMV_ROWS * PANEL];
  switch (g->rows) {
    case 1: gemv_panel(g, w, 1, out); break;
    case 2: gemv_panel(g, w, 2, out); break;
    case 3: gemv_panel(g, w, 3, out); break;
    default: gemv_panel(g, w, 4, out); break;
  }
  for (size_t r = 0; r < g->rows; r++) {
    float *y = g->y + r * g->y_stride + column;
    for (size_t j = 0; j < width; j++) {
      y[j] = out[r * PANEL + j] + (g->bias == NULL ? 0.0F : g->bias[column + j]);
    }
  }
}

static void gemv(const mllm_gemv *g) {
  const size_t most = g->alone ? 1 : MLLM_GEMV_ROWS;
  for (size_t column = 0; column < g->columns; column += PANEL) {
    const size_t left = g->columns - column;
    for (size_t row = 0; row < g->rows; row += most) {
      mllm_gemv part = *g;
      part.rows = g->rows - row < most ? g->rows - row : most;
      part.x += row * g->x_stride;
      part.y += row * g->y_stride;
      gemv_rows(&part, g->w + column * g->depth, column, left < PANEL ? left : PANEL);
    }
  }
}

typedef float quad __attribute__((vector_size(16)));
typedef float quad_any __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t quad_index __attribute__((vector_size(16)));

/* packed[d * width + r] = x[r * x_stride + d] * scale for r, d < 4 */
MLLM_INLINE void transpose_quad(float *packed, const size_t width, const float *x, size_t x_stride,
                                float scale) {
  const quad_index low = {0, 4, 1, 5};
  const quad_index high = {2, 6, 3, 7};
  const quad a = *(const quad_any *)x * scale;
  const quad b = *(const quad_any *)(x + x_stride) * scale;
  const quad c = *(const quad_any *)(x + 2 * x_stride) * scale;
  const quad d = *(const quad_any *)(x + 3 * x_stride) * scale;
  const quad ac = __builtin_shuffle(a, c, low); /* a0 c0 a1 c1 */
  const quad bd = __builtin_shuffle(b, d, low);
  const quad ac_high = __builtin_shuffle(a, c, high); /* a2 c2 a3 c3 */
  const quad bd_high = __builtin_shuffle(b, d, high);
  *(quad_any *)packed = __builtin_shuffle(ac, bd, low); /* a0 b0 c0 d0 */
  *(quad_any *)(packed + width) = __builtin_shuffle(ac, bd, high);
  *(quad_any *)(packed + 2 * width) = __builtin_shuffle(ac_high, bd_high, low);
  *(quad_any *)(packed + 3 * width) = __builtin_shuffle(ac_high, bd_high, high);
}

/* packed[d, width] from x[rows, depth], width <= 16: a few columns of all rows at a time, so that
 * reads and writes both stay within a few cache lines. */
MLLM_INLINE void transpose_rows(float *packed, const float *x, size_t x_stride, size_t rows,
                                size_t depth, const size_t width, float scale) {
  const size_t quads = rows / 4 * 4;
  size_t d = 0;
  for (; d + 4 <= depth; d += 4) {
    float *to = packed + d * width;
    for (size_t r = 0; r < quads; r += 4) {
      transpose_quad(to + r, width, x + r * x_stride + d, x_stride, scale);
    }
    for (size_t r = quads; r < rows; r++) {
      for (size_t i = 0; i < 4; i++) to[i * width + r] = x[r * x_stride + d + i] * scale;
    }
    for (size_t r = rows; r < width; r++) {
      for (size_t i = 0; i < 4; i++) to[i * width + r] = 0.0F;
    }
  }
  for (; d < depth; d++) {
    for (size_t r = 0; r < rows; r++) packed[d * width + r] = x[r * x_stride + d] * scale;
    for (size_t r = rows; r < width; r++) packed[d * width + r] = 0.0F;
  }
}

static void pack_rows(float *packed, const float *x, size_t x_stride, size_t rows, size_t depth,
                      float scale) {
  transpose_rows(packed, x, x_stride, rows, depth, ROWS, scale);
}

static void pack_panels(float *packed, const float *x, size_t x_stride, size_t rows, size_t depth) {
  for (size_t row = 0; row < rows; row += PANEL) {
    const size_t left = rows - row;
    transpose_rows(packed + row * depth, x + row * x_stride, x_stride, left < PANEL ? left : PANEL,
                   depth, PANEL, 1.0F);
  }
}

const mllm_gemm_ops MLLM_VARIANT_NAME(gemm_ops) = {
    .tile_rows = ROWS,
    .tile_columns = COLUMNS,
    .tile = gemm_tile,
    .gemv = gemv,
    .pack_rows = pack_rows,
    .pack_panels = pack_panels,
};
