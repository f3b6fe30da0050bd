/* linear.c - f32_linear: x[..., K] by packed weights, bias and activation. */
#include "columns.h"
#include "gemm_driver.h"

enum { GEMV_GRAIN = 1 << 15 /* floats of weights that are worth a chunk */ };

typedef struct gemv_job {
  const mllm_ops *ops;
  mllm_gemv gemv;        /* of all columns, without y */
  const mllm_view *out;  /* outputs, whose columns stand one behind another */
  uint32_t n_out;
  mllm_unary_fn activation;
} gemv_job;

/* Panels begin..end of one output, whose first panel is the weights' panel `first`. */
static void gemv_output(const gemv_job *job, const mllm_view *out, size_t first, size_t begin,
                        size_t end) {
  mllm_gemv part = job->gemv;
  const size_t columns = mllm_columns_of(out);
  const size_t column = (begin - first) * MLLM_PANEL;
  const size_t limit = (end - first) * MLLM_PANEL;
  part.columns = (limit < columns ? limit : columns) - column;
  part.w += begin * MLLM_PANEL * part.depth;
  part.y = (float *)out->data + column;
  part.y_stride = columns;
  if (part.bias != NULL) part.bias += begin * MLLM_PANEL;
  job->ops->gemm->gemv(&part);
  if (job->activation == NULL) return;
  for (size_t r = 0; r < part.rows; r++) {
    float *y = part.y + r * part.y_stride;
    job->activation(y, y, part.columns);
  }
}

/* Panels begin..end of the weights, for all rows. */
static void gemv_panels(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  const gemv_job *job = argument;
  size_t first = 0;
  for (uint32_t i = 0; i < job->n_out && first < end; i++) {
    const size_t last = first + mllm_panels_of(mllm_columns_of(&job->out[i]));
    const size_t from = begin > first ? begin : first;
    const size_t to = end < last ? end : last;
    if (from < to) gemv_output(job, &job->out[i], first, from, to);
    first = last;
  }
}

static mllm_status check(const mllm_call *call) {
  const mllm_view *x = mllm_input(call, 0);
  const mllm_view *w = mllm_input(call, 1);
  if (call->n_in < 2 || call->n_params != 2) {
    return MLLM_REJECT(call, "f32_linear takes x, w, bias and 2 params");
  }
  const int64_t n = call->params[0];
  if (x->dtype != MLLM_F32 || x->rank == 0 || !mllm_is_f32(w, 3) || n < 0 ||
      w->dims[0] != n / MLLM_PANEL + (n % MLLM_PANEL != 0) || w->dims[1] != x->dims[x->rank - 1] ||
      w->dims[2] != MLLM_PANEL || !mllm_is_vector_or_absent(mllm_input(call, 2), (size_t)n)) {
    return MLLM_REJECT(call, "f32_linear: w is not [ceil(n / 16), K, 16], or bias not [n]");
  }
  if (!mllm_are_columns(call, x, n)) {
    return MLLM_REJECT(call, "f32_linear: y is not x with the last dimension n, cut at panels");
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
  const bool alone = call->context->rows_alone;
  if (rows <= MLLM_GEMV_ROWS || alone) {
    gemv_job job = {.ops = call->context->ops,
                    .gemv = {.rows = rows,
                             .alone = alone,
                             .depth = depth,
                             .columns = columns,
                             .x = x->data,
                             .x_stride = depth,
                             .w = call->in[1].data,
                             .bias = bias},
                    .out = call->out,
                    .n_out = call->n_out,
                    .activation = mllm_activation_fn(call->context->ops, activation)};
    mllm_parallel_for(call->context->threads, mllm_panels_of(columns), GEMV_GRAIN / (depth * MLLM_PANEL + 1) + 1,
                      gemv_panels, &job);
    return MLLM_OK;
  }
  const mllm_dense dense = {x->data, depth};
  size_t column = 0;
  for (uint32_t i = 0; i < call->n_out; i++) {
    const size_t width = mllm_columns_of(&call->out[i]);
    const mllm_gemm part = {.rows = rows,
                            .depth = depth,
                            .columns = width,
                            .pack = mllm_pack_dense,
                            .source = &dense,
                            .b = (const float *)call->in[1].data + column * depth,
                            .bias = bias == NULL ? NULL : bias + column,
                            .activation = activation,
                            .c = call->out[i].data,
                            .c_stride = width};
    if (width != 0) mllm_gemm_run(call->context, &part);
    column += width;
  }
  return MLLM_OK;
}
