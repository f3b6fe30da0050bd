/* gemm_driver.c - blocks of rows and depth are packed into this thread's scratch, where the second
 * level cache holds them, while the panels of b stream by. */
#include "gemm_driver.h"

#include <string.h>

enum {
  BLOCK_ROWS = 96, /* a multiple of every variant's tile_rows */
  BLOCK_DEPTH = 512,
  ITEMS_PER_THREAD = 4
};
enum { LARGEST_TILE = 2 /* panels */, UNPACKED = LARGEST_TILE * BLOCK_DEPTH * MLLM_PANEL };
_Static_assert((BLOCK_ROWS * BLOCK_DEPTH + UNPACKED) * sizeof(float) <= MLLM_SCRATCH_BYTES,
               "packed block and unpacked tile");

typedef struct job {
  const mllm_gemm *gemm;
  const mllm_ops *ops;
  size_t chunk;  /* columns of an item, a multiple of tile_columns */
  size_t chunks; /* per block of rows */
} job;

void mllm_pack_dense(const void *source, const mllm_gemm_ops *ops, float *packed, size_t row,
                     size_t count, size_t k, size_t depth) {
  const mllm_dense *dense = source;
  ops->pack_rows(packed, dense->x + row * dense->stride + k, dense->stride, count, depth, 1.0F);
}

mllm_unary_fn mllm_activation_fn(const mllm_ops *ops, uint32_t activation) {
  switch (activation) {
    case MLLM_ACTIVATION_RELU: return ops->math->unary[MLLM_EW_RELU - MLLM_UNARY_FIRST];
    case MLLM_ACTIVATION_GELU: return ops->math->unary[MLLM_EW_GELU - MLLM_UNARY_FIRST];
    case MLLM_ACTIVATION_GELU_TANH: return ops->math->unary[MLLM_EW_GELU_TANH - MLLM_UNARY_FIRST];
    case MLLM_ACTIVATION_SILU: return ops->math->unary[MLLM_EW_SILU - MLLM_UNARY_FIRST];
    default: return NULL;
  }
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* packed is [ceil(rows / tile_rows)] tiles of [depth, tile_rows]. */
static void pack_block(const job *j, float *packed, size_t row, size_t rows, size_t k,
                       size_t depth) {
  const mllm_gemm_ops *gemm = j->ops->gemm;
  for (size_t r = 0; r < rows; r += gemm->tile_rows) {
    j->gemm->pack(j->gemm->source, gemm, packed + r * depth, row + r,
                  smaller(gemm->tile_rows, rows - r), k, depth);
  }
}

/* Lets the tile read columns n.. of the right operand, codes as the reals that they mean. */
static void set_right(const job *j, mllm_tile *tile, size_t n, size_t k, float *unpacked) {
  const mllm_gemm *g = j->gemm;
  tile->b = g->codes == NULL ? g->b + n * g->depth + k * MLLM_PANEL : unpacked;
  if (g->codes == NULL) return;
  for (size_t c = 0; c < tile->columns; c += MLLM_PANEL) {
    const size_t panel = g->panel + (n + c) / MLLM_PANEL;
    j->ops->codes->reals(unpacked + c * tile->depth, g->codes, panel, k, tile->depth);
  }
}

static void multiply_block(const job *j, float *packed, size_t row, size_t rows, size_t column,
                           size_t columns, size_t k, size_t depth) {
  const mllm_gemm *g = j->gemm;
  const mllm_gemm_ops *ops = j->ops->gemm;
  mllm_tile tile = {.depth = depth,
                    .row_stride = MLLM_PANEL,
                    .panel_stride = (g->codes == NULL ? g->depth : depth) * MLLM_PANEL,
                    .c_stride = g->c_stride};
  tile.start = k > 0 ? MLLM_START_C : g->bias != NULL ? MLLM_START_BIAS : MLLM_START_ZERO;
  for (size_t n = column; n < column + columns; n += ops->tile_columns) {
    tile.columns = smaller(ops->tile_columns, column + columns - n);
    set_right(j, &tile, n, k, packed + BLOCK_ROWS * BLOCK_DEPTH);
    tile.bias = g->bias == NULL ? NULL : g->bias + n;
    for (size_t r = 0; r < rows; r += ops->tile_rows) {
      tile.rows = smaller(ops->tile_rows, rows - r);
      tile.a = packed + r * depth;
      tile.c = g->c + (row + r) * g->c_stride + n;
      ops->tile(&tile);
    }
  }
}

static void run_item(const job *j, size_t item, float *packed) {
  const mllm_gemm *g = j->gemm;
  const size_t row = item / j->chunks * BLOCK_ROWS;
  const size_t column = item % j->chunks * j->chunk;
  const size_t rows = smaller(BLOCK_ROWS, g->rows - row);
  const size_t columns = smaller(j->chunk, g->columns - column);
  size_t k = 0;
  do {
    const size_t depth = smaller(BLOCK_DEPTH, g->depth - k);
    pack_block(j, packed, row, rows, k, depth);
    multiply_block(j, packed, row, rows, column, columns, k, depth);
    k += BLOCK_DEPTH;
  } while (k < g->depth);
  const mllm_unary_fn activation = mllm_activation_fn(j->ops, g->activation);
  if (activation == NULL) return;
  for (size_t r = row; r < row + rows; r++) {
    float *c = g->c + r * g->c_stride + column;
    activation(c, c, columns);
  }
}

static void run_items(void *argument, size_t begin, size_t end, void *scratch) {
  for (size_t item = begin; item < end; item++) run_item(argument, item, scratch);
}

void mllm_gemm_run(mllm_context *context, const mllm_gemm *gemm) {
  if (gemm->rows == 0 || gemm->columns == 0) return;
  const size_t wide = context->ops->gemm->tile_columns;
  const size_t blocks = (gemm->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
  const size_t tiles = (gemm->columns + wide - 1) / wide;
  const size_t wanted = mllm_threads_count(context->threads) * (size_t)ITEMS_PER_THREAD;
  const size_t split = smaller((wanted + blocks - 1) / blocks, tiles);
  job j = {.gemm = gemm, .ops = context->ops};
  j.chunk = (tiles + split - 1) / split * wide;
  j.chunks = (gemm->columns + j.chunk - 1) / j.chunk;
  mllm_parallel_for(context->threads, blocks * j.chunks, 1, run_items, &j);
}
