/* gather.c - rows by index: gather along an axis, and embedding rows out of a packed table. */
#include "operands.h"

enum { GRAIN_BYTES = 1 << 14 };

typedef struct gather_job {
  const unsigned char *x; /* [outer, extent, inner bytes] */
  const int64_t *indices; /* [count] */
  unsigned char *y;       /* [outer, count, inner bytes] */
  size_t extent, count, inner;
} gather_job;

static void gather_items(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  const gather_job *j = argument;
  for (size_t item = begin; item < end; item++) {
    const int64_t index = j->indices[item % j->count];
    const size_t row = index < 0 ? j->extent - (size_t)-index : (size_t)index;
    memcpy(j->y + item * j->inner, j->x + (item / j->count * j->extent + row) * j->inner, j->inner);
  }
}

/* Every index is in [-extent, extent); the first that is not, in *bad. */
static bool indices_fit(const int64_t *indices, size_t count, int64_t low, int64_t extent,
                        int64_t *bad) {
  for (size_t i = 0; i < count; i++) {
    if (indices[i] >= low && indices[i] < extent) continue;
    *bad = indices[i];
    return false;
  }
  return true;
}

mllm_status mllm_k_gather(const mllm_call *call) {
  const mllm_view *x = mllm_input(call, 0);
  const mllm_view *indices = mllm_input(call, 1);
  if (call->n_in != 2 || call->n_out != 1 || call->n_params != 1) {
    return MLLM_REJECT(call, "gather takes x, indices and an axis");
  }
  const mllm_view *y = &call->out[0];
  const int64_t axis = call->params[0];
  if (indices->dtype != MLLM_I64 || !mllm_is_present(x) || x->dtype != y->dtype || axis < 0 ||
      axis >= (int64_t)x->rank || y->rank + 1 != x->rank + indices->rank) {
    return MLLM_REJECT(call, "gather: indices are i64, y has the axes of both but one");
  }
  const uint32_t a = (uint32_t)axis;
  bool fits = mllm_same_leading(x, y, a);
  for (uint32_t i = 0; i < indices->rank; i++) fits = fits && y->dims[a + i] == indices->dims[i];
  for (uint32_t i = a + 1; i < x->rank; i++) {
    fits = fits && y->dims[i + indices->rank - 1] == x->dims[i];
  }
  if (!fits) return MLLM_REJECT(call, "gather: y has not the shape that x and indices give");
  if (mllm_elements(y) == 0) return MLLM_OK;
  gather_job j = {.x = x->data,
                  .indices = indices->data,
                  .y = y->data,
                  .extent = mllm_extent(x, a),
                  .count = mllm_elements(indices),
                  .inner = mllm_product(x, a + 1, x->rank) * mllm_dtype_bytes(x->dtype)};
  int64_t bad = 0;
  if (!indices_fit(j.indices, j.count, -x->dims[a], x->dims[a], &bad)) {
    return mllm_fail(call->error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "index %lld is outside of an axis of %lld", (long long)bad,
                     (long long)x->dims[a]);
  }
  mllm_parallel_for(call->context->threads, mllm_product(x, 0, a) * j.count,
                    GRAIN_BYTES / j.inner + 1, gather_items, &j);
  return MLLM_OK;
}

mllm_status mllm_k_f32_embedding(const mllm_call *call) {
  const mllm_view *ids = mllm_input(call, 0);
  const mllm_view *table = mllm_input(call, 1);
  if (call->n_in != 2 || call->n_out != 1) {
    return MLLM_REJECT(call, "f32_embedding takes ids and table");
  }
  const mllm_view *y = &call->out[0];
  if (ids->dtype != MLLM_I64 || !mllm_is_f32(table, 3) || table->dims[2] != MLLM_PANEL ||
      !mllm_is_f32(y, ids->rank + 1) || !mllm_same_leading(ids, y, ids->rank) ||
      y->dims[ids->rank] != table->dims[1]) {
    return MLLM_REJECT(call, "f32_embedding: ids are i64, table is [ceil(V / 16), D, 16]");
  }
  const size_t count = mllm_elements(ids);
  const size_t width = mllm_extent(table, 1);
  int64_t bad = 0;
  if (mllm_elements(y) == 0) return MLLM_OK;
  if (!indices_fit(ids->data, count, 0, table->dims[0] * MLLM_PANEL, &bad)) {
    return mllm_fail(call->error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "token id %lld is outside of a vocabulary of %lld", (long long)bad,
                     (long long)(table->dims[0] * MLLM_PANEL));
  }
  for (size_t i = 0; i < count; i++) {
    const size_t id = (size_t)((const int64_t *)ids->data)[i];
    const float *panel = (const float *)table->data + id / MLLM_PANEL * width * MLLM_PANEL;
    float *row = (float *)y->data + i * width;
    for (size_t k = 0; k < width; k++) row[k] = panel[k * MLLM_PANEL + id % MLLM_PANEL];
  }
  return MLLM_OK;
}
