/* cast.c - cast between any two dtypes, and iota. Floats go to integers towards zero and stop at
 * the integer's bounds; to bool by != 0; to half floats to the nearest, ties to even. */
#include "half.h"
#include "operands.h"

enum { GRAIN = 1 << 13 };

typedef struct job {
  const mllm_view *x;
  const mllm_view *y;
} job;

static double bfloat_to_double(uint16_t bfloat) {
  const uint32_t bits = (uint32_t)bfloat << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return (double)value;
}

/* The upper half of a float, to the nearest even. */
static uint16_t float_to_bfloat(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (value != value) return (uint16_t)((bits >> 16) | 0x40U);
  return (uint16_t)((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

static bool is_integer(uint32_t dtype) { return dtype >= MLLM_I64 && dtype <= MLLM_BOOL; }

static int64_t read_integer(const mllm_view *x, size_t i) {
  switch (x->dtype) {
    case MLLM_I64: return ((const int64_t *)x->data)[i];
    case MLLM_I32: return ((const int32_t *)x->data)[i];
    case MLLM_I16: return ((const int16_t *)x->data)[i];
    case MLLM_I8: return ((const int8_t *)x->data)[i];
    case MLLM_U64: return (int64_t)((const uint64_t *)x->data)[i];
    case MLLM_U32: return ((const uint32_t *)x->data)[i];
    case MLLM_U16: return ((const uint16_t *)x->data)[i];
    default: return ((const uint8_t *)x->data)[i];
  }
}

static double read_number(const mllm_view *x, size_t i) {
  switch (x->dtype) {
    case MLLM_F32: return (double)((const float *)x->data)[i];
    case MLLM_F64: return ((const double *)x->data)[i];
    case MLLM_F16: return (double)mllm_half_to_float(((const uint16_t *)x->data)[i]);
    case MLLM_BF16: return bfloat_to_double(((const uint16_t *)x->data)[i]);
    case MLLM_U64: return (double)((const uint64_t *)x->data)[i];
    default: return (double)read_integer(x, i);
  }
}

/* Two's complement, as integers narrow. */
static void write_integer(const mllm_view *y, size_t i, int64_t value) {
  switch (mllm_dtype_bytes(y->dtype)) {
    case 8: ((uint64_t *)y->data)[i] = (uint64_t)value; return;
    case 4: ((uint32_t *)y->data)[i] = (uint32_t)value; return;
    case 2: ((uint16_t *)y->data)[i] = (uint16_t)value; return;
    default: ((uint8_t *)y->data)[i] = (uint8_t)value; return;
  }
}

static void write_float(const mllm_view *y, size_t i, double value) {
  switch (y->dtype) {
    case MLLM_F32: ((float *)y->data)[i] = (float)value; return;
    case MLLM_F64: ((double *)y->data)[i] = value; return;
    case MLLM_F16: ((uint16_t *)y->data)[i] = mllm_float_to_half((float)value); return;
    default: ((uint16_t *)y->data)[i] = float_to_bfloat((float)value); return;
  }
}

static uint64_t truncate_unsigned(double value) {
  if (value < 9223372036854775808.0) return (uint64_t)mllm_truncate(value);
  if (value >= 18446744073709551616.0) return UINT64_MAX;
  return value != value ? 0 : (uint64_t)value;
}

static void cast_element(const mllm_view *x, const mllm_view *y, size_t i) {
  if (y->dtype == MLLM_BOOL) {
    ((uint8_t *)y->data)[i] = read_number(x, i) != 0.0;
  } else if (!is_integer(y->dtype)) {
    write_float(y, i, read_number(x, i));
  } else if (is_integer(x->dtype)) {
    write_integer(y, i, read_integer(x, i));
  } else if (y->dtype == MLLM_U64) {
    ((uint64_t *)y->data)[i] = truncate_unsigned(read_number(x, i));
  } else {
    write_integer(y, i, mllm_truncate(read_number(x, i)));
  }
}

static void cast_elements(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  const job *j = argument;
  for (size_t i = begin; i < end; i++) cast_element(j->x, j->y, i);
}

mllm_status mllm_k_cast(const mllm_call *call) {
  if (call->n_in != 1 || call->n_out != 1 || !mllm_is_present(&call->in[0]) ||
      !mllm_same_dims(&call->in[0], &call->out[0])) {
    return MLLM_REJECT(call, "cast: x and y have the same shape");
  }
  job j = {&call->in[0], &call->out[0]};
  mllm_parallel_for(call->context->threads, mllm_elements(j.y), GRAIN, cast_elements, &j);
  return MLLM_OK;
}

mllm_status mllm_k_iota(const mllm_call *call) {
  if (call->n_in != 0 || call->n_out != 1 || call->n_params != 2 ||
      call->out[0].dtype != MLLM_I64 || call->out[0].rank != 1) {
    return MLLM_REJECT(call, "iota takes start and step, and gives i64 [n]");
  }
  uint64_t value = (uint64_t)call->params[0];
  for (size_t i = 0; i < mllm_extent(&call->out[0], 0); i++) {
    ((int64_t *)call->out[0].data)[i] = (int64_t)value;
    value += (uint64_t)call->params[1];
  }
  return MLLM_OK;
}
