/* reduce.c - f32_reduce: x to one value along the given axes, accumulated in double.
 *
 * The kept axes are the items; each item walks the reduced axes, the last of them innermost. */
#include <math.h>

#include "operands.h"

enum { GRAIN = 1 << 12 };

/* Axes that one loop walks: extents and strides, outermost first. */
typedef struct walk {
  uint32_t rank;
  size_t extent[MLLM_MAX_RANK];
  size_t stride[MLLM_MAX_RANK];
} walk;

typedef struct job {
  const mllm_ops *ops;
  const float *x;
  float *y;
  walk kept;
  walk reduced;
  size_t count; /* elements of a reduction */
  uint32_t kind;
} job;

static size_t offset_of(const walk *w, size_t index) {
  size_t offset = 0;
  for (uint32_t i = w->rank; i-- > 0;) {
    offset += index % w->extent[i] * w->stride[i];
    index /= w->extent[i];
  }
  return offset;
}

static double start_of(uint32_t kind) {
  switch (kind) {
    case MLLM_REDUCE_MAX: return -INFINITY;
    case MLLM_REDUCE_MIN: return INFINITY;
    case MLLM_REDUCE_PROD: return 1.0;
    default: return 0.0;
  }
}

/* Short float sums, added up in double. */
static double sum_row(const mllm_row_ops *ops, const float *x, size_t n) {
  enum { PART = 1024 };
  double value = 0.0;
  for (size_t i = 0; i < n; i += PART) {
    value += (double)ops->sum(x + i, n - i < PART ? n - i : PART);
  }
  return value;
}

/* Adds n elements, stride apart, to the running value; NaN wins in max and min. */
static double accumulate(const job *j, double value, const float *x, size_t stride, size_t n,
                         double shift) {
  switch (j->kind) {
    case MLLM_REDUCE_MAX:
      for (size_t i = 0; i < n; i++) {
        const double v = (double)x[i * stride];
        value = v > value || v != v ? v : value;
      }
      return value;
    case MLLM_REDUCE_MIN:
      for (size_t i = 0; i < n; i++) {
        const double v = (double)x[i * stride];
        value = v < value || v != v ? v : value;
      }
      return value;
    case MLLM_REDUCE_PROD:
      for (size_t i = 0; i < n; i++) value *= (double)x[i * stride];
      return value;
    case MLLM_REDUCE_L1:
      for (size_t i = 0; i < n; i++) value += fabs((double)x[i * stride]);
      return value;
    case MLLM_REDUCE_L2:
    case MLLM_REDUCE_SUM_SQUARE:
      for (size_t i = 0; i < n; i++) {
        const double v = (double)x[i * stride];
        value += v * v;
      }
      return value;
    case MLLM_REDUCE_LOG_SUM_EXP:
      for (size_t i = 0; i < n; i++) value += exp((double)x[i * stride] - shift);
      return value;
    default:
      if (stride == 1) return value + sum_row(j->ops->rows, x, n);
      for (size_t i = 0; i < n; i++) value += (double)x[i * stride];
      return value;
  }
}

static double finish(const job *j, double value, double shift) {
  switch (j->kind) {
    case MLLM_REDUCE_MEAN: return value / (double)j->count;
    case MLLM_REDUCE_L2: return sqrt(value);
    case MLLM_REDUCE_LOG_SUM: return log(value);
    case MLLM_REDUCE_LOG_SUM_EXP: return log(value) + shift;
    default: return value;
  }
}

/* One reduction over the walk: the innermost reduced axis is a plain loop. */
static double walk_all(const job *j, const float *x, double shift) {
  const walk *w = &j->reduced;
  double value = start_of(j->kind);
  if (w->rank == 0) return accumulate(j, value, x, 1, 1, shift);
  const size_t n = w->extent[w->rank - 1];
  const size_t stride = w->stride[w->rank - 1];
  for (size_t i = 0; i < j->count; i += n) {
    value = accumulate(j, value, x + offset_of(w, i), stride, n, shift);
  }
  return value;
}

static void reduce_items(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  const job *j = argument;
  for (size_t item = begin; item < end; item++) {
    const float *x = j->x + offset_of(&j->kept, item);
    double shift = 0.0;
    if (j->kind == MLLM_REDUCE_LOG_SUM_EXP) {
      job largest = *j;
      largest.kind = MLLM_REDUCE_MAX;
      const double found = walk_all(&largest, x, 0.0);
      shift = isfinite(found) ? found : 0.0;
    }
    j->y[item] = (float)finish(j, walk_all(j, x, shift), shift);
  }
}

/* Splits x's axes; neighbours that both are reduced or both kept, become one. */
static bool split_axes(const mllm_view *x, const mllm_array *axes, job *j) {
  bool reduced[MLLM_MAX_RANK] = {false};
  for (size_t i = 0; i < axes->count; i++) {
    if (axes->values[i] < 0 || axes->values[i] >= (int64_t)x->rank) return false;
    reduced[axes->values[i]] = true;
  }
  size_t stride = 1;
  size_t strides[MLLM_MAX_RANK];
  for (uint32_t i = x->rank; i-- > 0;) {
    strides[i] = stride;
    stride *= mllm_extent(x, i);
  }
  for (uint32_t i = 0; i < x->rank; i++) {
    walk *w = reduced[i] ? &j->reduced : &j->kept;
    if (i > 0 && reduced[i] == reduced[i - 1]) {
      w->extent[w->rank - 1] *= mllm_extent(x, i);
      w->stride[w->rank - 1] = strides[i];
      continue;
    }
    w->extent[w->rank] = mllm_extent(x, i);
    w->stride[w->rank++] = strides[i];
  }
  return true;
}

static size_t size_of(const walk *w) {
  size_t size = 1;
  for (uint32_t i = 0; i < w->rank; i++) size *= w->extent[i];
  return size;
}

mllm_status mllm_k_f32_reduce(const mllm_call *call) {
  const mllm_view *x = mllm_input(call, 0);
  mllm_array axes;
  uint32_t position = 1;
  if (call->n_in != 1 || call->n_out != 1 || !mllm_param_array(call, &position, &axes)) {
    return MLLM_REJECT(call, "f32_reduce takes x, kind and axes");
  }
  const mllm_view *y = &call->out[0];
  const int64_t kind = call->params[0];
  job j = {.ops = call->context->ops, .x = x->data, .y = y->data};
  if (x->dtype != MLLM_F32 || y->dtype != MLLM_F32 || kind < MLLM_REDUCE_SUM ||
      kind > MLLM_REDUCE_LOG_SUM_EXP || !split_axes(x, &axes, &j)) {
    return MLLM_REJECT(call, "f32_reduce: x and y are f32, kind is known, axes are x's");
  }
  j.kind = (uint32_t)kind;
  j.count = size_of(&j.reduced);
  const size_t items = mllm_elements(y);
  if (items != size_of(&j.kept)) {
    return MLLM_REJECT(call, "f32_reduce: y has not one element for each reduction");
  }
  if (j.count == 0) {
    for (size_t i = 0; i < items; i++) j.y[i] = (float)finish(&j, start_of(j.kind), 0.0);
    return MLLM_OK;
  }
  mllm_parallel_for(call->context->threads, items, GRAIN / j.count + 1, reduce_items, &j);
  return MLLM_OK;
}
