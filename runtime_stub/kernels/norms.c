/* norms.c - f32_layer_norm and f32_rms_norm over the last axis. */
#include "operands.h"

enum { GRAIN = 1 << 13 /* elements worth a chunk */ };

typedef struct job {
  const mllm_row_ops *ops;
  const float *x;      /* [rows, n] */
  const float *weight; /* [n] or NULL */
  const float *bias;   /* [n] or NULL */
  float *y;            /* [rows, n] */
  size_t n;
  float epsilon;
} job;

static void layer_norm_rows(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  const job *j = argument;
  for (size_t row = begin; row < end; row++) {
    j->ops->layer_norm(j->y + row * j->n, j->x + row * j->n, j->weight, j->bias, j->epsilon, j->n);
  }
}

static void rms_norm_rows(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  const job *j = argument;
  for (size_t row = begin; row < end; row++) {
    j->ops->rms_norm(j->y + row * j->n, j->x + row * j->n, j->weight, j->epsilon, j->n);
  }
}

static mllm_status normalise(const mllm_call *call, uint32_t operands, mllm_task rows) {
  const mllm_view *x = mllm_input(call, 0);
  if (call->n_in == 0 || call->n_in > operands || call->n_out != 1 || call->n_params != 1) {
    return MLLM_REJECT(call, "a norm takes at most %u operands and epsilon", operands);
  }
  const mllm_view *y = &call->out[0];
  const mllm_view *weight = mllm_input(call, 1);
  const mllm_view *bias = mllm_input(call, 2);
  if (x->dtype != MLLM_F32 || x->rank == 0 || y->dtype != MLLM_F32 || !mllm_same_dims(x, y)) {
    return MLLM_REJECT(call, "a norm's x and y are f32 of the same shape");
  }
  const size_t n = mllm_extent(x, x->rank - 1);
  if (!mllm_is_vector_or_absent(weight, n) || !mllm_is_vector_or_absent(bias, n)) {
    return MLLM_REJECT(call, "a norm's weight and bias are f32 [D]");
  }
  const size_t count = mllm_elements(x);
  if (count == 0) return MLLM_OK;
  job j = {.ops = call->context->ops->rows,
           .x = x->data,
           .weight = weight->data,
           .bias = bias->data,
           .y = y->data,
           .n = n,
           .epsilon = (float)mllm_param_double(call->params[0])};
  mllm_parallel_for(call->context->threads, count / n, GRAIN / n + 1, rows, &j);
  return MLLM_OK;
}

mllm_status mllm_k_f32_layer_norm(const mllm_call *call) {
  return normalise(call, 3, layer_norm_rows);
}

mllm_status mllm_k_f32_rms_norm(const mllm_call *call) { return normalise(call, 2, rms_norm_rows); }
