/* dequantize.c - codes to reals, (x - zero) scale in single precision; and codes of less than a
 * byte to bytes. */
#include "code_operands.h"
#include "code_walk.h"

enum { GRAIN = 1 << 13 };

typedef struct job {
  mllm_code_walk walk;
  const mllm_view *x;
  const mllm_view *scale;
  const mllm_view *zero;
  float *y;
} job;

static void dequantize_bytes(const job *j, const mllm_code_run *run, int32_t zero, float scale) {
  float *y = j->y + run->begin;
  if (j->x->dtype == MLLM_I8) {
    const int8_t *x = (const int8_t *)j->x->data + run->begin;
    for (size_t i = 0; i < run->count; i++) y[i] = (float)(x[i] - zero) * scale;
    return;
  }
  const uint8_t *x = (const uint8_t *)j->x->data + run->begin;
  for (size_t i = 0; i < run->count; i++) y[i] = (float)(x[i] - zero) * scale;
}

static void dequantize_run(const void *argument, const mllm_code_run *run) {
  const job *j = argument;
  const float *scale = j->scale->data;
  if (mllm_is_byte(j->x) && run->scale_step == 0 && run->zero_step == 0) {
    const int32_t zero = (int32_t)mllm_integer_at(j->zero, run->zero);
    dequantize_bytes(j, run, zero, scale[run->scale]);
    return;
  }
  for (size_t i = 0; i < run->count; i++) {
    const int64_t zero = mllm_integer_at(j->zero, run->zero + i * run->zero_step);
    const int64_t code = mllm_integer_at(j->x, run->begin + i);
    j->y[run->begin + i] = (float)(code - zero) * scale[run->scale + i * run->scale_step];
  }
}

static void dequantize_items(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  const job *j = argument;
  for (size_t item = begin; item < end; item++) {
    mllm_code_walk_item(&j->walk, item, dequantize_run, j);
  }
}

static bool is_codes(const mllm_view *x) {
  return mllm_is_byte(x) || x->dtype == MLLM_I16 || x->dtype == MLLM_U16 || x->dtype == MLLM_I32;
}

mllm_status mllm_k_dequantize(const mllm_call *call) {
  if (call->n_in < 2 || call->n_in > 3 || call->n_out != 1 || call->n_params != 2) {
    return MLLM_REJECT(call, "dequantize takes x, scale, zero point, axis and block_size");
  }
  const mllm_view *y = &call->out[0];
  job j = {.x = mllm_input(call, 0),
           .scale = mllm_input(call, 1),
           .zero = mllm_input(call, 2),
           .y = y->data};
  if (!is_codes(j.x) || j.scale->dtype != MLLM_F32 || y->dtype != MLLM_F32 ||
      (mllm_is_present(j.zero) && j.zero->dtype != j.x->dtype) || !mllm_same_dims(j.x, y) ||
      !mllm_code_walk_make(j.x, j.scale, j.zero, call->params[0], call->params[1], &j.walk)) {
    return MLLM_REJECT(call, "dequantize: codes to f32; scale and zero point repeat to x");
  }
  if (mllm_elements(j.x) == 0) return MLLM_OK;
  mllm_parallel_for(call->context->threads, mllm_code_walk_items(&j.walk), 1, dequantize_items, &j);
  return MLLM_OK;
}

typedef struct unpack_job {
  const uint8_t *x;
  uint8_t *y;
  uint32_t bits;
  bool is_signed;
} unpack_job;

static void unpack_codes(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  const unpack_job *j = argument;
  const size_t each = 8 / j->bits;
  const uint32_t mask = (1U << j->bits) - 1;
  const uint32_t sign = j->is_signed ? 1U << (j->bits - 1) : 0;
  for (size_t i = begin; i < end; i++) {
    const uint32_t code = (uint32_t)j->x[i / each] >> (i % each * j->bits) & mask;
    j->y[i] = (uint8_t)((code ^ sign) - sign);
  }
}

mllm_status mllm_k_unpack(const mllm_call *call) {
  if (call->n_in != 1 || call->n_out != 1 || call->n_params != 1) {
    return MLLM_REJECT(call, "unpack takes bytes and a code");
  }
  const mllm_view *x = &call->in[0];
  const mllm_view *y = &call->out[0];
  unpack_job j = {.x = x->data, .y = y->data};
  const size_t count = mllm_elements(y);
  if (!mllm_code_format_of(call->params[0], &j.bits, &j.is_signed) || x->dtype != MLLM_U8 ||
      y->dtype != (j.is_signed ? MLLM_I8 : MLLM_U8) || x->rank != 1 ||
      mllm_extent(x, 0) != count / (8 / j.bits) + (count % (8 / j.bits) != 0)) {
    return MLLM_REJECT(call, "unpack: x is the bytes that y's codes fill");
  }
  mllm_parallel_for(call->context->threads, count, GRAIN, unpack_codes, &j);
  return MLLM_OK;
}
