/* operands.h - reading and checking a call's operands and params. */
#ifndef MLLM_OPERANDS_H
#define MLLM_OPERANDS_H

#include <stdbool.h>
#include <string.h>

#include "../src/context.h"
#include "../src/status.h"

/* A program whose operands do not fit the kernel. */
#define MLLM_REJECT(call, ...) \
  mllm_fail((call)->error, MLLM_INVALID_PROGRAM, MLLM_CODE_OPERAND, __VA_ARGS__)

static const mllm_view mllm_absent = {0};

/* Operand i; the absent view where the call has fewer. */
static inline const mllm_view *mllm_input(const mllm_call *call, uint32_t i) {
  return i < call->n_in ? &call->in[i] : &mllm_absent;
}

static inline bool mllm_is_present(const mllm_view *view) { return view->dtype != 0; }

static inline size_t mllm_extent(const mllm_view *view, uint32_t axis) {
  return (size_t)view->dims[axis];
}

/* The product of dims[begin..end). The executor has checked that the whole fits memory; with a zero
 * among the dims a part may still overflow, hence the stop. */
static inline size_t mllm_product(const mllm_view *view, uint32_t begin, uint32_t end) {
  size_t product = 1;
  for (uint32_t i = begin; i < end; i++) {
    if (__builtin_mul_overflow(product, (size_t)view->dims[i], &product)) return 0;
  }
  return product;
}

static inline size_t mllm_elements(const mllm_view *view) {
  for (uint32_t i = 0; i < view->rank; i++) {
    if (view->dims[i] == 0) return 0;
  }
  return mllm_product(view, 0, view->rank);
}

static inline bool mllm_is_f32(const mllm_view *view, uint32_t rank) {
  return view->dtype == MLLM_F32 && view->rank == rank;
}

/* Absent, or f32 [n]. */
static inline bool mllm_is_vector_or_absent(const mllm_view *view, size_t n) {
  return !mllm_is_present(view) || (mllm_is_f32(view, 1) && mllm_extent(view, 0) == n);
}

static inline bool mllm_same_dims(const mllm_view *a, const mllm_view *b) {
  if (a->rank != b->rank) return false;
  for (uint32_t i = 0; i < a->rank; i++) {
    if (a->dims[i] != b->dims[i]) return false;
  }
  return true;
}

/* Equal in the first count dims, which both have. */
static inline bool mllm_same_leading(const mllm_view *a, const mllm_view *b, uint32_t count) {
  if (a->rank < count || b->rank < count) return false;
  for (uint32_t i = 0; i < count; i++) {
    if (a->dims[i] != b->dims[i]) return false;
  }
  return true;
}

static inline double mllm_param_double(int64_t bits) {
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Towards zero; the nearest integer there is where the value has none, 0 for NaN. */
static inline int64_t mllm_truncate(double value) {
  if (value != value) return 0;
  if (value >= 9223372036854775808.0) return INT64_MAX;
  if (value < -9223372036854775808.0) return INT64_MIN;
  return (int64_t)value;
}

/* An array in the params: its length, then its values. */
typedef struct mllm_array {
  size_t count;
  const int64_t *values;
} mllm_array;

/* Reads the array at *position and moves past it; false where the params end before it does. */
static inline bool mllm_param_array(const mllm_call *call, uint32_t *position, mllm_array *array) {
  if (*position >= call->n_params) return false;
  const int64_t count = call->params[*position];
  if (count < 0 || count > (int64_t)(call->n_params - *position - 1)) return false;
  array->count = (size_t)count;
  array->values = call->params + *position + 1;
  *position += 1 + (uint32_t)count;
  return true;
}

#endif /* MLLM_OPERANDS_H */
