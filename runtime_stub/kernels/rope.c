/* rope.c - f32_rope: rotary positions. Angles are computed in double: position * frequency may be
 * thousands of radians, of which a float keeps too little. */
#include <math.h>

#include "operands.h"

enum { GRAIN = 1 << 12 };

typedef struct job {
  const float *x;           /* [tokens, heads, dim] */
  const int64_t *positions; /* [tokens] */
  const float *inv_freq;    /* [half] */
  float *y;                 /* [tokens, heads, dim] */
  size_t heads, dim, half;
  bool interleaved;
} job;

/* The head's first 2 * half channels are rotated, the rest are copied. */
static void rotate_head(const job *j, const float *x, float *y, const float *cosine,
                        const float *sine) {
  const size_t next = j->interleaved ? 1 : j->half; /* from a pair's first channel to its second */
  const size_t step = j->interleaved ? 2 : 1;
  for (size_t i = 0; i < j->half; i++) {
    const float a = x[i * step];
    const float b = x[i * step + next];
    y[i * step] = a * cosine[i] - b * sine[i];
    y[i * step + next] = b * cosine[i] + a * sine[i];
  }
  memmove(y + 2 * j->half, x + 2 * j->half, (j->dim - 2 * j->half) * sizeof(float));
}

static void rotate_tokens(void *argument, size_t begin, size_t end, void *scratch) {
  const job *j = argument;
  float *cosine = scratch;
  float *sine = cosine + j->half;
  for (size_t token = begin; token < end; token++) {
    for (size_t i = 0; i < j->half; i++) {
      const double angle = (double)j->positions[token] * (double)j->inv_freq[i];
      cosine[i] = (float)cos(angle);
      sine[i] = (float)sin(angle);
    }
    for (size_t head = 0; head < j->heads; head++) {
      const size_t at = (token * j->heads + head) * j->dim;
      rotate_head(j, j->x + at, j->y + at, cosine, sine);
    }
  }
}

mllm_status mllm_k_f32_rope(const mllm_call *call) {
  const mllm_view *x = mllm_input(call, 0);
  const mllm_view *positions = mllm_input(call, 1);
  const mllm_view *inv_freq = mllm_input(call, 2);
  if (call->n_in != 3 || call->n_out != 1 || call->n_params != 2) {
    return MLLM_REJECT(call, "f32_rope takes x, positions, inv_freq and 2 params");
  }
  const int64_t heads = call->params[0];
  if (!mllm_is_f32(x, 3) || !mllm_is_f32(&call->out[0], 3) || !mllm_same_dims(x, &call->out[0]) ||
      heads < 1 || x->dims[2] % heads != 0) {
    return MLLM_REJECT(call, "f32_rope: x and y are f32 [B, T, heads * D]");
  }
  job j = {.x = x->data,
           .positions = positions->data,
           .inv_freq = inv_freq->data,
           .y = call->out[0].data,
           .heads = (size_t)heads,
           .dim = mllm_extent(x, 2) / (size_t)heads,
           .interleaved = call->params[1] != 0};
  if (positions->dtype != MLLM_I64 || positions->rank != 2 || !mllm_same_leading(x, positions, 2) ||
      !mllm_is_f32(inv_freq, 1)) {
    return MLLM_REJECT(call, "f32_rope: positions are i64 [B, T], inv_freq is f32 [R / 2]");
  }
  j.half = mllm_extent(inv_freq, 0);
  if (j.half > j.dim / 2 || 2 * j.half * sizeof(float) > MLLM_SCRATCH_BYTES) {
    return MLLM_REJECT(call, "f32_rope: more rotary channels than a head has");
  }
  const size_t tokens = mllm_product(x, 0, 2);
  if (mllm_elements(x) == 0) return MLLM_OK;
  mllm_parallel_for(call->context->threads, tokens, GRAIN / (j.heads * j.dim) + 1, rotate_tokens,
                    &j);
  return MLLM_OK;
}
