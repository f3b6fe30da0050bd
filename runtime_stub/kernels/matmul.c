/* matmul.c - f32_matmul: a[..., M, K] by b[..., K, N] (or [..., N, K]), leading axes broadcast.
 *
 * An item is one block of rows and columns of one matrix; it packs its part of b into scratch, then
 * runs tiles over the packed rows of a. */
#include "matrices.h"

enum { BLOCK_ROWS = 96, BLOCK_COLUMNS = 128, BLOCK_DEPTH = 256 };

typedef struct job {
  const mllm_ops *ops;
  const mllm_view *a;
  const mllm_view *b;
  const mllm_view *y;
  size_t m, n, k;
  bool transpose_b;
  size_t row_blocks;
  size_t column_blocks;
} job;

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* packed[panels, depth, 16] from columns column.. and rows k.. of b[K, N] */
static void pack_columns(float *packed, const float *b, size_t n, size_t column, size_t columns,
                         size_t k, size_t depth) {
  for (size_t c = 0; c < columns; c += MLLM_PANEL) {
    const size_t width = smaller(MLLM_PANEL, columns - c);
    for (size_t d = 0; d < depth; d++) {
      float *row = packed + c * depth + d * MLLM_PANEL;
      memcpy(row, b + (k + d) * n + column + c, width * sizeof(float));
      memset(row + width, 0, (MLLM_PANEL - width) * sizeof(float));
    }
  }
}

static void run_item(const job *j, size_t item, float *scratch) {
  const mllm_gemm_ops *ops = j->ops->gemm;
  const size_t column = item % j->column_blocks * BLOCK_COLUMNS;
  item /= j->column_blocks;
  const size_t row = item % j->row_blocks * BLOCK_ROWS;
  const size_t matrix = item / j->row_blocks;
  const size_t rows = smaller(BLOCK_ROWS, j->m - row);
  const size_t columns = smaller(BLOCK_COLUMNS, j->n - column);
  const float *a = (const float *)j->a->data;
  const float *b = (const float *)j->b->data;
  a += mllm_matrix_of(j->a, j->y, matrix) * j->m * j->k;
  b += mllm_matrix_of(j->b, j->y, matrix) * j->k * j->n;
  float *y = (float *)j->y->data + matrix * j->m * j->n;
  float *packed_b = scratch;
  float *packed_a = scratch + BLOCK_COLUMNS * BLOCK_DEPTH;
  size_t k = 0;
  do {
    const size_t depth = smaller(BLOCK_DEPTH, j->k - k);
    if (j->transpose_b) {
      ops->pack_panels(packed_b, b + column * j->k + k, j->k, columns, depth);
    } else {
      pack_columns(packed_b, b, j->n, column, columns, k, depth);
    }
    for (size_t r = 0; r < rows; r += ops->tile_rows) {
      mllm_tile tile = {.rows = smaller(ops->tile_rows, rows - r),
                        .depth = depth,
                        .a = packed_a,
                        .row_stride = MLLM_PANEL,
                        .panel_stride = depth * MLLM_PANEL,
                        .c_stride = j->n,
                        .start = k > 0 ? MLLM_START_C : MLLM_START_ZERO};
      ops->pack_rows(packed_a, a + (row + r) * j->k + k, j->k, tile.rows, depth, 1.0F);
      for (size_t c = 0; c < columns; c += ops->tile_columns) {
        tile.columns = smaller(ops->tile_columns, columns - c);
        tile.b = packed_b + c * depth;
        tile.c = y + (row + r) * j->n + column + c;
        ops->tile(&tile);
      }
    }
    k += BLOCK_DEPTH;
  } while (k < j->k);
}

static void run_items(void *argument, size_t begin, size_t end, void *scratch) {
  for (size_t item = begin; item < end; item++) run_item(argument, item, scratch);
}

mllm_status mllm_k_f32_matmul(const mllm_call *call) {
  const mllm_view *a = mllm_input(call, 0);
  const mllm_view *b = mllm_input(call, 1);
  if (call->n_in != 2 || call->n_out != 1 || call->n_params != 1) {
    return MLLM_REJECT(call, "f32_matmul takes a, b and 1 param");
  }
  const mllm_view *y = &call->out[0];
  if (a->dtype != MLLM_F32 || b->dtype != MLLM_F32 || y->dtype != MLLM_F32 || a->rank < 2 ||
      b->rank < 2 || y->rank < 2 || !mllm_matrices_broadcast(a, y) ||
      !mllm_matrices_broadcast(b, y)) {
    return MLLM_REJECT(call, "f32_matmul: operands are f32 matrices whose leading axes broadcast");
  }
  const bool transposed = call->params[0] != 0;
  job j = {.ops = call->context->ops, .a = a, .b = b, .y = y, .transpose_b = transposed};
  j.m = mllm_extent(a, a->rank - 2);
  j.k = mllm_extent(a, a->rank - 1);
  j.n = mllm_extent(b, b->rank - (transposed ? 2 : 1));
  if (mllm_extent(b, b->rank - (transposed ? 1 : 2)) != j.k || mllm_extent(y, y->rank - 2) != j.m ||
      mllm_extent(y, y->rank - 1) != j.n) {
    return MLLM_REJECT(call, "f32_matmul: extents of a, b and y disagree");
  }
  if (mllm_elements(y) == 0) return MLLM_OK;
  j.row_blocks = (j.m + BLOCK_ROWS - 1) / BLOCK_ROWS;
  j.column_blocks = (j.n + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
  const size_t matrices = mllm_product(y, 0, y->rank - 2);
  mllm_parallel_for(call->context->threads, matrices * j.row_blocks * j.column_blocks, 1, run_items,
                    &j);
  return MLLM_OK;
}
