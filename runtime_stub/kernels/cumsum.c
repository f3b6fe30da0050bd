/* cumsum.c - cumsum: running sums along an axis, of floats and of integers, which wrap around. */
#include "operands.h"

enum { GRAIN = 1 << 12 };

typedef struct job {
  const void *x; /* [outer, n, inner] */
  void *y;
  size_t n;
  size_t inner;
  bool exclusive;
  bool reverse;
} job;

/* One item is one line along the axis. */
#define CUMSUM(name, type, total)                                                   \
  static void cumsum_##name(void *argument, size_t begin, size_t end, void *scratch) { \
    (void)scratch;                                                                  \
    const job *j = argument;                                                        \
    for (size_t item = begin; item < end; item++) {                                 \
      const size_t start = item / j->inner * j->n * j->inner + item % j->inner;     \
      total sum = 0;                                                                \
      for (size_t k = 0; k < j->n; k++) {                                           \
        const size_t at = start + (j->reverse ? j->n - 1 - k : k) * j->inner;       \
        const total value = (total)((const type *)j->x)[at];                        \
        const total before = sum;                                                   \
        sum += value;                                                               \
        ((type *)j->y)[at] = (type)(j->exclusive ? before : sum);                   \
      }                                                                             \
    }                                                                               \
  }

CUMSUM(f32, float, float)
CUMSUM(f64, double, double)
CUMSUM(i64, int64_t, uint64_t)
CUMSUM(i32, int32_t, uint32_t)

static mllm_task task_of(uint32_t dtype) {
  switch (dtype) {
    case MLLM_F32: return cumsum_f32;
    case MLLM_F64: return cumsum_f64;
    case MLLM_I64: return cumsum_i64;
    case MLLM_I32: return cumsum_i32;
    default: return NULL;
  }
}

mllm_status mllm_k_cumsum(const mllm_call *call) {
  const mllm_view *x = mllm_input(call, 0);
  if (call->n_in != 1 || call->n_out != 1 || call->n_params != 3) {
    return MLLM_REJECT(call, "cumsum takes x and 3 params");
  }
  const mllm_view *y = &call->out[0];
  const int64_t axis = call->params[0];
  const mllm_task task = task_of(x->dtype);
  if (task == NULL || y->dtype != x->dtype || !mllm_same_dims(x, y) || axis < 0 ||
      axis >= (int64_t)x->rank) {
    return MLLM_REJECT(call, "cumsum: x and y are f32, f64, i64 or i32 of the same shape");
  }
  const size_t count = mllm_elements(x);
  if (count == 0) return MLLM_OK;
  job j = {.x = x->data,
           .y = y->data,
           .n = mllm_extent(x, (uint32_t)axis),
           .inner = mllm_product(x, (uint32_t)axis + 1, x->rank),
           .exclusive = call->params[1] != 0,
           .reverse = call->params[2] != 0};
  mllm_parallel_for(call->context->threads, count / j.n, GRAIN / j.n + 1, task, &j);
  return MLLM_OK;
}
