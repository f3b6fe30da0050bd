/* dequantized_linear.c - reals by a weight that stays codes: f32_dequantized_linear, and rows of
 * such a table: f32_dequantized_embedding. */
#include "code_operands.h"
#include "columns.h"
#include "gemm_driver.h"

/* x, w, w_scale, w_zero, bias; n, code, zero_code, block_size, activation. */
static mllm_status read_linear(const mllm_call *call, mllm_codes *codes) {
  if (call->n_in < 3 || call->n_in > 5 || call->n_params != 5) {
    return MLLM_REJECT(call, "f32_dequantized_linear takes 3 to 5 operands and 5 params");
  }
  const mllm_view *x = mllm_input(call, 0);
  const int64_t n = call->params[0];
  const mllm_code_params params = {call->params[1], call->params[2], call->params[3]};
  if (x->dtype != MLLM_F32 || x->rank == 0 || n < 0 ||
      !mllm_codes_make(call, 1, (size_t)n, mllm_extent(x, x->rank - 1), &params, codes)) {
    return MLLM_REJECT(call, "f32_dequantized_linear: codes, scale or zero point are not [n, K]");
  }
  if (!mllm_is_vector_or_absent(mllm_input(call, 4), (size_t)n) ||
      !mllm_are_columns(call, x, n)) {
    return MLLM_REJECT(call, "f32_dequantized_linear: bias is not [n], or y not x cut at panels");
  }
  if (call->params[4] < MLLM_ACTIVATION_NONE || call->params[4] > MLLM_ACTIVATION_SILU) {
    return MLLM_REJECT(call, "f32_dequantized_linear: unknown activation");
  }
  return MLLM_OK;
}

enum {
  GEMV_DEPTH = MLLM_SCRATCH_BYTES / (MLLM_PANEL * sizeof(float)),
  GEMV_GRAIN = 1 << 15 /* codes that are worth a chunk */
};

typedef struct gemv_job {
  const mllm_ops *ops;
  const mllm_codes *codes;
  mllm_gemv gemv;       /* of all columns, without y */
  const mllm_view *out; /* outputs, whose columns stand one behind another */
  mllm_unary_fn activation;
} gemv_job;

/* Panels begin..end for all of a few rows; each is unpacked once, and stays in the cache. */
static void gemv_panels(void *argument, size_t begin, size_t end, void *scratch) {
  const gemv_job *j = argument;
  for (size_t panel = begin; panel < end; panel++) {
    const mllm_panel_place place = mllm_place_of(j->out, panel);
    mllm_gemv part = j->gemv;
    part.columns = place.width;
    part.w = scratch;
    part.y = place.y;
    part.y_stride = place.stride;
    if (part.bias != NULL) part.bias += panel * MLLM_PANEL;
    j->ops->codes->reals(scratch, j->codes, panel, 0, part.depth);
    j->ops->gemm->gemv(&part);
    if (j->activation == NULL) continue;
    for (size_t r = 0; r < part.rows; r++) {
      float *y = part.y + r * part.y_stride;
      j->activation(y, y, part.columns);
    }
  }
}

static void run_gemv(const mllm_call *call, const mllm_codes *codes, size_t rows) {
  const mllm_ops *ops = call->context->ops;
  gemv_job j = {.ops = ops,
                .codes = codes,
                .gemv = {.rows = rows,
                         .alone = call->context->rows_alone,
                         .depth = codes->depth,
                         .x = call->in[0].data,
                         .x_stride = codes->depth,
                         .bias = mllm_input(call, 4)->data},
                .out = call->out,
                .activation = mllm_activation_fn(ops, (uint32_t)call->params[4])};
  mllm_parallel_for(call->context->threads, mllm_panels_of((size_t)call->params[0]),
                    GEMV_GRAIN / (codes->depth * MLLM_PANEL + 1) + 1, gemv_panels, &j);
}

mllm_status mllm_k_f32_dequantized_linear(const mllm_call *call) {
  mllm_codes codes;
  const mllm_status status = read_linear(call, &codes);
  if (status != MLLM_OK) return status;
  const mllm_view *x = &call->in[0];
  const size_t rows = mllm_product(x, 0, x->rank - 1);
  if (rows == 0 || call->params[0] == 0) return MLLM_OK;
  const bool few = rows <= MLLM_GEMV_ROWS || call->context->rows_alone;
  if (few && codes.depth <= GEMV_DEPTH) {
    run_gemv(call, &codes, rows);
    return MLLM_OK;
  }
  const mllm_dense dense = {x->data, codes.depth};
  const float *bias = mllm_input(call, 4)->data;
  size_t column = 0;
  for (uint32_t i = 0; i < call->n_out; i++) {
    const size_t width = mllm_columns_of(&call->out[i]);
    const mllm_gemm part = {.rows = rows,
                            .depth = codes.depth,
                            .columns = width,
                            .pack = mllm_pack_dense,
                            .source = &dense,
                            .codes = &codes,
                            .panel = column / MLLM_PANEL,
                            .bias = bias == NULL ? NULL : bias + column,
                            .activation = (uint32_t)call->params[4],
                            .c = call->out[i].data,
                            .c_stride = width};
    mllm_gemm_run(call->context, &part);
    column += width;
  }
  return MLLM_OK;
}

/* y[depth]: what the codes of one row mean, out of its panel. */
static void read_row(const mllm_context *context, const mllm_codes *codes, size_t row, float *y) {
  enum { COUNT = 64 };
  float reals[COUNT * MLLM_PANEL];
  for (size_t k = 0; k < codes->depth; k += COUNT) {
    const size_t left = codes->depth - k;
    const size_t count = left < COUNT ? left : COUNT;
    context->ops->codes->reals(reals, codes, row / MLLM_PANEL, k, count);
    for (size_t i = 0; i < count; i++) y[k + i] = reals[i * MLLM_PANEL + row % MLLM_PANEL];
  }
}

/* ids, w, w_scale, w_zero; n, code, zero_code, block_size. */
mllm_status mllm_k_f32_dequantized_embedding(const mllm_call *call) {
  if (call->n_in < 3 || call->n_in > 4 || call->n_out != 1 || call->n_params != 4) {
    return MLLM_REJECT(call, "f32_dequantized_embedding takes 3 or 4 operands and 4 params");
  }
  mllm_codes codes;
  const mllm_view *ids = mllm_input(call, 0);
  const mllm_view *y = &call->out[0];
  const int64_t n = call->params[0];
  const mllm_code_params params = {call->params[1], call->params[2], call->params[3]};
  if (ids->dtype != MLLM_I64 || !mllm_is_f32(y, ids->rank + 1) ||
      !mllm_same_leading(ids, y, ids->rank) || n < 0 ||
      !mllm_codes_make(call, 1, (size_t)n, mllm_extent(y, ids->rank), &params, &codes)) {
    return MLLM_REJECT(call, "f32_dequantized_embedding: ids are i64, the table is [n, D]");
  }
  if (mllm_elements(y) == 0) return MLLM_OK;
  const int64_t *id = ids->data;
  for (size_t i = 0; i < mllm_elements(ids); i++) {
    if (id[i] >= -n && id[i] < n) continue;
    return mllm_fail(call->error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "token id %lld is outside of a vocabulary of %lld", (long long)id[i],
                     (long long)n);
  }
  for (size_t i = 0; i < mllm_elements(ids); i++) {
    const size_t row = (size_t)(id[i] < 0 ? id[i] + n : id[i]);
    read_row(call->context, &codes, row, (float *)y->data + i * codes.depth);
  }
  return MLLM_OK;
}
