/* linear.c - f32_linear: x[..., K] by packed weights, bias and activation. */
#include "gemm_driver.h"
#include "operands.h"

enum { GEMV_GRAIN = 1 << 15 /* floats of weights that are worth a chunk */ };

typedef struct gemv_job {
  const mllm_ops *ops;
  mllm_gemv gemv; /* of all columns */
  mllm_unary_fn activation;
} gemv_job;

/* Panels begin..end of the weights, for all rows. */
static void gemv_panels(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  const gemv_job *job = argument;
  mllm_gemv part = job->gemv;
  const size_t column = begin * MLLM_PANEL;
  const size_t limit = end * MLLM_PANEL;
  part.columns = (limit < job->gemv.columns ? limit : job->gemv.columns) - column;
  part.w += column * part.depth;
  part.y += column;
  if (part.bias != NULL) part.bias += column;
  job->ops->gemm->gemv(&part);
  if (job->activation == NULL) return;
  for (size_t r = 0; r < part.rows; r++) {
    float *y = part.y + r * part.y_stride;
    job->activation(y, y, part.columns);
  }
}

static mllm_status check(const mllm_call *call) {
  const mllm_view *x = mllm_input(call, 0);
  const mllm_view *w = mllm_input(call, 1);
  if (call->n_in < 2 || call->n_out != 1 || call->n_params != 2) {
    return MLLM_REJECT(call, "f32_linear takes x, w, bias and 2 params");
  }
  const int64_t n = call->params[0];
  if (x->dtype != MLLM_F32 || x->rank == 0 || !mllm_is_f32(w, 3) || n < 0 ||
      w->dims[0] != n / MLLM_PANEL + (n % MLLM_PANEL != 0) || w->dims[1] != x->dims[x->rank - 1] ||
      w->dims[2] != MLLM_PANEL || !mllm_is_vector_or_absent(mllm_input(call, 2), (size_t)n)) {
    return MLLM_REJECT(call, "f32_linear: w is not [ceil(n / 16), K, 16], or bias not [n]");
  }
  const mllm_view *y = &call->out[0];
  if (!mllm_is_f32(y, x->rank) || !mllm_same_leading(x, y, x->rank - 1) ||
      y->dims[x->rank - 1] != n) {
    return MLLM_REJECT(call, "f32_linear: y is not x with the last dimension n");
  }
  if (call->params[1] < MLLM_ACTIVATION_NONE || call->params[1] > MLLM_ACTIVATION_SILU) {
    return MLLM_REJECT(call, "f32_linear: unknown activation");
  }
  return MLLM_OK;
}

mllm_status mllm_k_f32_linear(const mllm_call *call) {
  const mllm_status status = check(call);
  if (status != MLLM_OK) return status;
  const mllm_view *x = &call->in[0];
  const size_t rows = mllm_product(x, 0, x->rank - 1);
  const size_t depth = mllm_extent(x, x->rank - 1);
  const size_t columns = (size_t)call->params[0];
  if (rows == 0 || columns == 0) return MLLM_OK;
  const float *bias = mllm_input(call, 2)->data;
  const uint32_t activation = (uint32_t)call->params[1];
  if (rows <= MLLM_GEMV_ROWS) {
    gemv_job job = {.ops = call->context->ops,
                    .gemv = {.rows = rows,
                             .depth = depth,
                             .columns = columns,
                             .x = x->data,
                             .x_stride = depth,
                             .w = call->in[1].data,
                             .bias = bias,
                             .y = call->out[0].data,
                             .y_stride = columns},
                    .activation = mllm_activation_fn(call->context->ops, activation)};
    const size_t panels = (columns + MLLM_PANEL - 1) / MLLM_PANEL;
    mllm_parallel_for(call->context->threads, panels, GEMV_GRAIN / (depth * MLLM_PANEL + 1) + 1,
                      gemv_panels, &job);
    return MLLM_OK;
  }
  const mllm_dense dense = {x->data, depth};
  mllm_gemm_run(call->context, &(mllm_gemm){.rows = rows,
                                            .depth = depth,
                                            .columns = columns,
                                            .pack = mllm_pack_dense,
                                            .source = &dense,
                                            .b = call->in[1].data,
                                            .bias = bias,
                                            .activation = activation,
                                            .c = call->out[0].data,
                                            .c_stride = columns});
  return MLLM_OK;
}
