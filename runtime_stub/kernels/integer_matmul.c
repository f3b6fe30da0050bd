/* integer_matmul.c - codes a[..., M, K] by codes b[..., K, N], both less their zero points, to i32.
 *
 * An item is a few rows of one matrix and a stretch of columns. Sums that leave 32 bits wrap. */
#include "code_operands.h"
#include "matrices.h"

enum { CHUNK = 1024, COLUMNS = 128 };

typedef struct job {
  const mllm_code_ops *ops;
  const mllm_view *a;
  const mllm_view *b;
  const mllm_view *a_zero; /* [..., M, 1], a scalar, or absent */
  const mllm_view *b_zero; /* [..., 1, N], a scalar, or absent */
  const mllm_view *y;
  size_t m, n, k;
  size_t tiles;
  size_t stretches;
} job;

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Zero point i of row or column `at` of a matrix. */
static int32_t zero_at(const mllm_view *zero, size_t at) {
  if (!mllm_is_present(zero)) return 0;
  return mllm_byte_at(zero, zero->rank == 0 ? 0 : at);
}

/* Sixteen columns of b, from row k on: where they lie, or copied where fewer are left. */
static const unsigned char *columns_of(const job *j, const unsigned char *b, size_t k, size_t depth,
                                       size_t column, unsigned char *buffer, size_t *stride) {
  const size_t width = smaller(MLLM_PANEL, j->n - column);
  *stride = width == MLLM_PANEL ? j->n : MLLM_PANEL;
  if (width == MLLM_PANEL) return b + k * j->n + column;
  for (size_t d = 0; d < depth; d++) {
    memcpy(buffer + d * MLLM_PANEL, b + (k + d) * j->n + column, width);
    memset(buffer + d * MLLM_PANEL + width, 0, MLLM_PANEL - width);
  }
  return buffer;
}

/* y += sums - b's zero points times the sums of a's rows, modulo 2^32 */
static void add_sums(const job *j, const mllm_code_product *p, size_t b_matrix, size_t column,
                     uint32_t *y) {
  const size_t width = smaller(MLLM_PANEL, j->n - column);
  for (size_t r = 0; r < p->rows; r++) {
    int32_t total = 0;
    for (size_t k = 0; k < p->depth; k++) total += p->x[r * p->x_stride + k];
    for (size_t c = 0; c < width; c++) {
      const int32_t zero = zero_at(j->b_zero, b_matrix * j->n + column + c);
      y[r * j->n + column + c] += (uint32_t)(p->sums[r * MLLM_PANEL + c] - zero * total);
    }
  }
}

static void run_item(const job *j, size_t item, void *scratch) {
  const size_t row = item % j->tiles * j->ops->product_rows;
  const size_t first = item / j->tiles % j->stretches * COLUMNS;
  const size_t matrix = item / j->tiles / j->stretches;
  const size_t rows = smaller(j->ops->product_rows, j->m - row);
  const size_t a_row = mllm_matrix_of(j->a, j->y, matrix) * j->m + row;
  const size_t b_matrix = mllm_matrix_of(j->b, j->y, matrix);
  const unsigned char *b = (const unsigned char *)j->b->data + b_matrix * j->k * j->n;
  uint32_t *y = (uint32_t *)j->y->data + (matrix * j->m + row) * j->n;
  const size_t end = smaller(first + COLUMNS, j->n);
  int32_t *wide = scratch;
  int32_t *sums = wide + rows * CHUNK;
  unsigned char *buffer = (unsigned char *)(sums + rows * MLLM_PANEL);
  for (size_t r = 0; r < rows; r++) memset(y + r * j->n + first, 0, (end - first) * sizeof *y);
  for (size_t k = 0; k < j->k; k += CHUNK) {
    mllm_code_product product = {.rows = rows,
                                 .depth = smaller(CHUNK, j->k - k),
                                 .x = wide,
                                 .x_stride = CHUNK,
                                 .w_is_signed = j->b->dtype == MLLM_I8,
                                 .sums = sums};
    for (size_t r = 0; r < rows; r++) {
      const int32_t zero = zero_at(j->a_zero, a_row + r);
      mllm_widen(wide + r * CHUNK, j->a, (a_row + r) * j->k + k, product.depth, zero);
    }
    for (size_t c = first; c < end; c += MLLM_PANEL) {
      product.w = columns_of(j, b, k, product.depth, c, buffer, &product.w_stride);
      j->ops->product(&product);
      add_sums(j, &product, b_matrix, c, y);
    }
  }
}

static void run_items(void *argument, size_t begin, size_t end, void *scratch) {
  for (size_t item = begin; item < end; item++) run_item(argument, item, scratch);
}

/* Absent, a scalar, or x's dims with 1 along `axis`; of x's type. */
static bool is_zero_of(const mllm_view *zero, const mllm_view *x, uint32_t axis) {
  if (!mllm_is_present(zero)) return true;
  if (zero->dtype != x->dtype || (zero->rank != 0 && zero->rank != x->rank)) return false;
  for (uint32_t i = 0; i < zero->rank; i++) {
    if (zero->dims[i] != (i == axis ? 1 : x->dims[i])) return false;
  }
  return true;
}

mllm_status mllm_k_integer_matmul(const mllm_call *call) {
  if (call->n_in < 2 || call->n_in > 4 || call->n_out != 1 || call->n_params != 0) {
    return MLLM_REJECT(call, "integer_matmul takes a, b and their zero points");
  }
  const mllm_view *a = &call->in[0];
  const mllm_view *b = &call->in[1];
  const mllm_view *y = &call->out[0];
  job j = {.ops = call->context->ops->codes,
           .a = a,
           .b = b,
           .a_zero = mllm_input(call, 2),
           .b_zero = mllm_input(call, 3),
           .y = y};
  if (!mllm_is_byte(a) || !mllm_is_byte(b) || y->dtype != MLLM_I32 || a->rank < 2 || b->rank < 2 ||
      y->rank < 2 || !mllm_matrices_broadcast(a, y) || !mllm_matrices_broadcast(b, y)) {
    return MLLM_REJECT(call, "integer_matmul: i8 or u8 matrices whose leading axes broadcast");
  }
  j.m = mllm_extent(a, a->rank - 2);
  j.k = mllm_extent(a, a->rank - 1);
  j.n = mllm_extent(b, b->rank - 1);
  if (mllm_extent(b, b->rank - 2) != j.k || mllm_extent(y, y->rank - 2) != j.m ||
      mllm_extent(y, y->rank - 1) != j.n || !is_zero_of(j.a_zero, a, a->rank - 1) ||
      !is_zero_of(j.b_zero, b, b->rank - 2)) {
    return MLLM_REJECT(call, "integer_matmul: extents of a, b, y and zero points disagree");
  }
  if (mllm_elements(y) == 0) return MLLM_OK;
  j.tiles = (j.m + j.ops->product_rows - 1) / j.ops->product_rows;
  j.stretches = (j.n + COLUMNS - 1) / COLUMNS;
  const size_t items = mllm_product(y, 0, y->rank - 2) * j.tiles * j.stretches;
  mllm_parallel_for(call->context->threads, items, 1, run_items, &j);
  return MLLM_OK;
}
