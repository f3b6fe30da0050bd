/* softmax.c - f32_softmax along any axis. */
#include <math.h>

#include "operands.h"

enum { GRAIN = 1 << 12, COLUMNS = 64 };

typedef struct job {
  const mllm_ops *ops;
  const float *x; /* [outer, n, inner] */
  float *y;
  size_t n;
  size_t inner;
  size_t groups; /* of COLUMNS inner positions */
} job;

static void softmax_rows(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  const job *j = argument;
  const mllm_row_ops *ops = j->ops->rows;
  for (size_t row = begin; row < end; row++) {
    float *y = j->y + row * j->n;
    const float largest = ops->max(j->x + row * j->n, j->n);
    memmove(y, j->x + row * j->n, j->n * sizeof(float));
    ops->scale(y, 1.0F / ops->exp_sum(y, largest, j->n), j->n);
  }
}

/* Up to COLUMNS neighbouring columns at once: every step runs along the inner axis. */
static void softmax_columns(const job *j, size_t item) {
  const mllm_binary_fn *binary = j->ops->math->binary;
  const mllm_unary_fn exponential = j->ops->math->unary[MLLM_EW_EXP - MLLM_UNARY_FIRST];
  const size_t column = item % j->groups * COLUMNS;
  const size_t width = j->inner - column < COLUMNS ? j->inner - column : COLUMNS;
  const size_t start = item / j->groups * j->n * j->inner + column;
  float largest[COLUMNS];
  float total[COLUMNS] = {0};
  for (size_t i = 0; i < width; i++) largest[i] = -INFINITY;
  for (size_t k = 0; k < j->n; k++) {
    binary[MLLM_EW_MAX - MLLM_BINARY_FIRST](largest, largest, j->x + start + k * j->inner, width);
  }
  for (size_t k = 0; k < j->n; k++) {
    float *y = j->y + start + k * j->inner;
    binary[MLLM_EW_SUB - MLLM_BINARY_FIRST](y, j->x + start + k * j->inner, largest, width);
    exponential(y, y, width);
    binary[MLLM_EW_ADD - MLLM_BINARY_FIRST](total, total, y, width);
  }
  for (size_t k = 0; k < j->n; k++) {
    float *y = j->y + start + k * j->inner;
    binary[MLLM_EW_DIV - MLLM_BINARY_FIRST](y, y, total, width);
  }
}

static void softmax_groups(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  for (size_t item = begin; item < end; item++) softmax_columns(argument, item);
}

mllm_status mllm_k_f32_softmax(const mllm_call *call) {
  const mllm_view *x = mllm_input(call, 0);
  if (call->n_in != 1 || call->n_out != 1 || call->n_params != 1) {
    return MLLM_REJECT(call, "f32_softmax takes x and 1 param");
  }
  const mllm_view *y = &call->out[0];
  const int64_t axis = call->params[0];
  if (x->dtype != MLLM_F32 || y->dtype != MLLM_F32 || !mllm_same_dims(x, y) || axis < 0 ||
      axis >= (int64_t)x->rank) {
    return MLLM_REJECT(call, "f32_softmax: x and y are f32 of the same shape, axis is one of x");
  }
  const size_t count = mllm_elements(x);
  if (count == 0) return MLLM_OK;
  job j = {.ops = call->context->ops,
           .x = x->data,
           .y = y->data,
           .n = mllm_extent(x, (uint32_t)axis),
           .inner = mllm_product(x, (uint32_t)axis + 1, x->rank)};
  const size_t outer = count / (j.n * j.inner);
  if (j.inner == 1) {
    mllm_parallel_for(call->context->threads, outer, GRAIN / j.n + 1, softmax_rows, &j);
    return MLLM_OK;
  }
  j.groups = (j.inner + COLUMNS - 1) / COLUMNS;
  mllm_parallel_for(call->context->threads, outer * j.groups, GRAIN / (j.n * COLUMNS) + 1,
                    softmax_groups, &j);
  return MLLM_OK;
}
