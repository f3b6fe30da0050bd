/* top_k.c - top_k: the k largest elements along an axis, or where they are.
 *
 * A line is one walk along the axis; its best indices so far stand in scratch, best first. */
#include "operands.h"

enum { GRAIN = 1 << 12, MOST = MLLM_SCRATCH_BYTES / sizeof(int64_t) };

typedef struct job {
  const void *x; /* f32 or i64 [outer, n, inner] */
  void *y;       /* [outer, k, inner] */
  size_t n, k, inner;
  bool real; /* x is f32 */
  bool smallest, by_index, indices;
} job;

/* Whether the element at a comes before the one at b; NaN comes last, equals stay in order. */
static bool before(const job *j, size_t a, size_t b) {
  if (!j->real) {
    const int64_t *x = j->x;
    return j->smallest ? x[a] < x[b] : x[a] > x[b];
  }
  const float *x = j->x;
  if (x[b] != x[b]) return x[a] == x[a];
  return j->smallest ? x[a] < x[b] : x[a] > x[b];
}

static size_t select_best(const job *j, size_t start, int64_t *best) {
  size_t count = 0;
  for (size_t i = 0; i < j->n; i++) {
    size_t place = count;
    while (place > 0 &&
           before(j, start + i * j->inner, start + (size_t)best[place - 1] * j->inner)) {
      place--;
    }
    if (place == j->k) continue;
    if (count < j->k) count++;
    memmove(best + place + 1, best + place, (count - 1 - place) * sizeof(int64_t));
    best[place] = (int64_t)i;
  }
  return count;
}

static void sort_ascending(int64_t *values, size_t count) {
  for (size_t i = 1; i < count; i++) {
    const int64_t value = values[i];
    size_t place = i;
    for (; place > 0 && values[place - 1] > value; place--) values[place] = values[place - 1];
    values[place] = value;
  }
}

static void select_lines(void *argument, size_t begin, size_t end, void *scratch) {
  const job *j = argument;
  int64_t *best = scratch;
  for (size_t line = begin; line < end; line++) {
    const size_t from = line / j->inner * j->n * j->inner + line % j->inner;
    const size_t to = line / j->inner * j->k * j->inner + line % j->inner;
    const size_t count = select_best(j, from, best);
    if (j->by_index) sort_ascending(best, count);
    for (size_t i = 0; i < count; i++) {
      const size_t source = from + (size_t)best[i] * j->inner;
      const size_t target = to + i * j->inner;
      if (j->indices) {
        ((int64_t *)j->y)[target] = best[i];
      } else if (j->real) {
        ((float *)j->y)[target] = ((const float *)j->x)[source];
      } else {
        ((int64_t *)j->y)[target] = ((const int64_t *)j->x)[source];
      }
    }
  }
}

mllm_status mllm_k_top_k(const mllm_call *call) {
  const mllm_view *x = mllm_input(call, 0);
  if (call->n_in != 1 || call->n_out != 1 || call->n_params != 4) {
    return MLLM_REJECT(call, "top_k takes x, an axis, two orders and a part");
  }
  const mllm_view *y = &call->out[0];
  const int64_t axis = call->params[0];
  const bool indices = call->params[3] == MLLM_TOP_K_INDICES;
  if ((x->dtype != MLLM_F32 && x->dtype != MLLM_I64) ||
      y->dtype != (indices ? MLLM_I64 : x->dtype) || axis < 0 || axis >= (int64_t)x->rank ||
      x->rank != y->rank) {
    return MLLM_REJECT(call, "top_k: x is f32 or i64, y has its rank, axis is one of x");
  }
  const uint32_t a = (uint32_t)axis;
  bool fits = mllm_same_leading(x, y, a) && y->dims[a] <= x->dims[a] &&
              y->dims[a] < (int64_t)MOST;
  for (uint32_t i = a + 1; i < x->rank; i++) fits = fits && x->dims[i] == y->dims[i];
  if (!fits) return MLLM_REJECT(call, "top_k: y is x but along axis, where k <= n is below 131072");
  if (mllm_elements(y) == 0) return MLLM_OK;
  job j = {.x = x->data,
           .y = y->data,
           .n = mllm_extent(x, a),
           .k = mllm_extent(y, a),
           .inner = mllm_product(x, a + 1, x->rank),
           .real = x->dtype == MLLM_F32,
           .smallest = call->params[1] != 0,
           .by_index = call->params[2] != 0,
           .indices = indices};
  mllm_parallel_for(call->context->threads, mllm_product(x, 0, a) * j.inner, GRAIN / j.n + 1,
                    select_lines, &j);
  return MLLM_OK;
}
