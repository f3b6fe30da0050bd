/* movement.c - transpose, slice, concat, broadcast, copy, pad: elements move, by their size. */
#include "strided.h"

static mllm_strided copy_to(const mllm_view *x, const mllm_view *y) {
  mllm_strided copy = {
      .rank = y->rank, .x = x->data, .y = y->data, .element = mllm_dtype_bytes(y->dtype)};
  for (uint32_t i = 0; i < y->rank; i++) copy.extent[i] = mllm_extent(y, i);
  return copy;
}

/* One operand and one result of the same element type. */
static bool is_movement(const mllm_call *call) {
  return call->n_in == 1 && call->n_out == 1 && call->in[0].dtype == call->out[0].dtype &&
         mllm_is_present(&call->in[0]);
}

mllm_status mllm_k_transpose(const mllm_call *call) {
  mllm_array perm;
  uint32_t position = 0;
  if (!is_movement(call) || !mllm_param_array(call, &position, &perm) ||
      perm.count != call->in[0].rank || perm.count != call->out[0].rank) {
    return MLLM_REJECT(call, "transpose takes x and a permutation of its axes");
  }
  const mllm_view *x = &call->in[0];
  const mllm_view *y = &call->out[0];
  mllm_strided copy = copy_to(x, y);
  ptrdiff_t strides[MLLM_MAX_RANK];
  bool seen[MLLM_MAX_RANK] = {false};
  mllm_dense_strides(x, strides);
  for (uint32_t i = 0; i < y->rank; i++) {
    const int64_t axis = perm.values[i];
    if (axis < 0 || axis >= (int64_t)x->rank || seen[axis] || y->dims[i] != x->dims[axis]) {
      return MLLM_REJECT(call, "transpose: y's shape is not x's, permuted");
    }
    seen[axis] = true;
    copy.stride[i] = strides[axis];
  }
  mllm_strided_copy(call->context, &copy);
  return MLLM_OK;
}

mllm_status mllm_k_slice(const mllm_call *call) {
  mllm_array starts;
  mllm_array steps;
  uint32_t position = 0;
  if (!is_movement(call) || !mllm_param_array(call, &position, &starts) ||
      !mllm_param_array(call, &position, &steps) || starts.count != call->in[0].rank ||
      steps.count != starts.count || call->out[0].rank != call->in[0].rank) {
    return MLLM_REJECT(call, "slice takes x, a start and a step for each of its axes");
  }
  const mllm_view *x = &call->in[0];
  const mllm_view *y = &call->out[0];
  mllm_strided copy = copy_to(x, y);
  if (mllm_elements(y) == 0) return MLLM_OK;
  ptrdiff_t strides[MLLM_MAX_RANK];
  ptrdiff_t offset = 0;
  mllm_dense_strides(x, strides);
  for (uint32_t i = 0; i < x->rank; i++) {
    int64_t last = 0; /* start + (extent - 1) * step */
    if (__builtin_mul_overflow(y->dims[i] - 1, steps.values[i], &last) ||
        __builtin_add_overflow(last, starts.values[i], &last) || starts.values[i] < 0 ||
        starts.values[i] >= x->dims[i] || last < 0 || last >= x->dims[i]) {
      return MLLM_REJECT(call, "slice: axis %u is left by start %lld, step %lld, %lld elements", i,
                         (long long)starts.values[i], (long long)steps.values[i],
                         (long long)y->dims[i]);
    }
    copy.stride[i] = y->dims[i] == 1 ? 0 : strides[i] * (ptrdiff_t)steps.values[i];
    offset += strides[i] * (ptrdiff_t)starts.values[i];
  }
  copy.x += offset * (ptrdiff_t)copy.element;
  mllm_strided_copy(call->context, &copy);
  return MLLM_OK;
}

mllm_status mllm_k_broadcast(const mllm_call *call) {
  if (!is_movement(call) || call->in[0].rank > call->out[0].rank) {
    return MLLM_REJECT(call, "broadcast takes x of no more axes than y");
  }
  const mllm_view *x = &call->in[0];
  const mllm_view *y = &call->out[0];
  mllm_strided copy = copy_to(x, y);
  ptrdiff_t strides[MLLM_MAX_RANK];
  mllm_dense_strides(x, strides);
  for (uint32_t i = 0; i < x->rank; i++) {
    const uint32_t axis = y->rank - x->rank + i;
    if (x->dims[i] != 1 && x->dims[i] != y->dims[axis]) {
      return MLLM_REJECT(call, "broadcast: x's axis %u does not repeat to y's", i);
    }
    copy.stride[axis] = x->dims[i] == 1 ? 0 : strides[i];
  }
  mllm_strided_copy(call->context, &copy);
  return MLLM_OK;
}

mllm_status mllm_k_copy(const mllm_call *call) {
  if (!is_movement(call) || mllm_elements(&call->in[0]) != mllm_elements(&call->out[0])) {
    return MLLM_REJECT(call, "copy: x and y have the same type and number of elements");
  }
  const size_t bytes = mllm_elements(&call->out[0]) * mllm_dtype_bytes(call->out[0].dtype);
  if (bytes > 0) memmove(call->out[0].data, call->in[0].data, bytes);
  return MLLM_OK;
}

mllm_status mllm_k_concat(const mllm_call *call) {
  if (call->n_in == 0 || call->n_out != 1 || call->n_params != 1) {
    return MLLM_REJECT(call, "concat takes tensors and an axis");
  }
  const mllm_view *y = &call->out[0];
  const int64_t axis = call->params[0];
  if (axis < 0 || axis >= (int64_t)y->rank) return MLLM_REJECT(call, "concat: no such axis");
  const uint32_t a = (uint32_t)axis;
  int64_t total = 0;
  for (uint32_t i = 0; i < call->n_in; i++) {
    const mllm_view *x = &call->in[i];
    bool fits = x->dtype == y->dtype && x->rank == y->rank;
    for (uint32_t k = 0; fits && k < y->rank; k++) fits = k == a || x->dims[k] == y->dims[k];
    if (!fits || __builtin_add_overflow(total, x->dims[a], &total)) {
      return MLLM_REJECT(call, "concat: operand %u differs from y beyond axis %u", i, a);
    }
  }
  if (total != y->dims[a]) return MLLM_REJECT(call, "concat: the extents do not add up to y's");
  if (mllm_elements(y) == 0) return MLLM_OK;
  const size_t outer = mllm_product(y, 0, a);
  const size_t inner = mllm_product(y, a + 1, y->rank) * mllm_dtype_bytes(y->dtype);
  const size_t row = mllm_extent(y, a) * inner;
  unsigned char *to = y->data;
  for (uint32_t i = 0; i < call->n_in; i++) {
    const size_t part = mllm_extent(&call->in[i], a) * inner;
    const unsigned char *from = call->in[i].data;
    if (part == 0) continue;
    for (size_t o = 0; o < outer; o++) memmove(to + o * row, from + o * part, part);
    to += part;
  }
  return MLLM_OK;
}

/* The element that fills: bits, or a double that becomes y's type. */
static uint64_t fill_bits(const mllm_call *call, uint32_t param) {
  const int64_t value = call->params[param];
  const uint32_t dtype = call->out[0].dtype;
  if (call->kinds == NULL || call->kinds[param] != MLLM_PARAM_FLOAT) return (uint64_t)value;
  if (dtype == MLLM_F64) return (uint64_t)value;
  const double number = mllm_param_double(value);
  if (dtype != MLLM_F32) return (uint64_t)mllm_truncate(number);
  const float single = (float)number;
  uint32_t bits;
  memcpy(&bits, &single, sizeof bits);
  return bits;
}

static void fill_elements(const mllm_view *y, uint64_t bits) {
  const size_t count = mllm_elements(y);
  switch (mllm_dtype_bytes(y->dtype)) {
    case 1: memset(y->data, (int)(bits & 0xFF), count); return;
    case 2:
      for (size_t i = 0; i < count; i++) ((uint16_t *)y->data)[i] = (uint16_t)bits;
      return;
    case 4:
      for (size_t i = 0; i < count; i++) ((uint32_t *)y->data)[i] = (uint32_t)bits;
      return;
    default:
      for (size_t i = 0; i < count; i++) ((uint64_t *)y->data)[i] = bits;
      return;
  }
}

/* Along an axis: element i of y is x's i - before. [*first, *end) are y's that come from x. */
static void overlap(int64_t before, int64_t x, int64_t y, int64_t *first, int64_t *end) {
  *first = before > 0 ? before : 0;
  *end = x + before < y ? x + before : y;
  if (*first > *end) *end = *first;
}

mllm_status mllm_k_pad(const mllm_call *call) {
  mllm_array before;
  uint32_t position = 0;
  if (!is_movement(call) || !mllm_param_array(call, &position, &before) ||
      position + 1 != call->n_params || before.count != call->in[0].rank ||
      call->in[0].rank != call->out[0].rank) {
    return MLLM_REJECT(call, "pad takes x, the elements before each of its axes, and a value");
  }
  const mllm_view *x = &call->in[0];
  const mllm_view *y = &call->out[0];
  if (mllm_elements(y) == 0) return MLLM_OK;
  fill_elements(y, fill_bits(call, position));
  if (x->rank == 0) {
    memcpy(y->data, x->data, mllm_dtype_bytes(y->dtype));
    return MLLM_OK;
  }
  const size_t element = mllm_dtype_bytes(y->dtype);
  const uint32_t last = x->rank - 1;
  size_t rows = 1;
  int64_t first[MLLM_MAX_RANK];
  int64_t end[MLLM_MAX_RANK];
  for (uint32_t i = 0; i < x->rank; i++) {
    const int64_t limit = INT64_MAX / 4;
    if (before.values[i] > limit || before.values[i] < -limit || x->dims[i] > limit) {
      return MLLM_REJECT(call, "pad: axis %u grows by %lld", i, (long long)before.values[i]);
    }
    overlap(before.values[i], x->dims[i], y->dims[i], &first[i], &end[i]);
    if (first[i] == end[i]) return MLLM_OK;
    if (i < last) rows *= (size_t)(end[i] - first[i]);
  }
  const size_t bytes = (size_t)(end[last] - first[last]) * element;
  for (size_t row = 0; row < rows; row++) {
    size_t rest = row;
    size_t to = (size_t)first[last];
    size_t from = (size_t)(first[last] - before.values[last]);
    size_t x_stride = mllm_extent(x, last);
    size_t y_stride = mllm_extent(y, last);
    for (uint32_t i = last; i-- > 0;) {
      const size_t span = (size_t)(end[i] - first[i]);
      const size_t at = rest % span + (size_t)first[i];
      rest /= span;
      to += at * y_stride;
      from += (size_t)((int64_t)at - before.values[i]) * x_stride;
      x_stride *= mllm_extent(x, i);
      y_stride *= mllm_extent(y, i);
    }
    memcpy((unsigned char *)y->data + to * element, (const unsigned char *)x->data + from * element,
           bytes);
  }
  return MLLM_OK;
}
