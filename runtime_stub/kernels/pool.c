/* pool.c - f32_pool: the largest or the mean element under a moving window. */
#include <math.h>

#include "window.h"

enum { GRAIN = 1 << 10 };

typedef struct job {
  mllm_window window;
  const float *x; /* [batch * channels, *in] */
  float *y;       /* [batch * channels, *out] */
  bool average;
  bool count_pads;
} job;

/* Input coordinates [low, high) under the window along an axis, and how many of its taps lie within
 * the padded input. */
static int64_t clip(const mllm_window *w, uint32_t axis, int64_t place, int64_t *low,
                    int64_t *high) {
  const int64_t start = place * w->stride[axis] - w->before[axis];
  const int64_t end = start + w->kernel[axis];
  const int64_t edge = w->in[axis] + w->behind[axis];
  *low = start > 0 ? start : 0;
  *high = end < w->in[axis] ? end : w->in[axis];
  if (*high < *low) *high = *low;
  const int64_t padded = (end < edge ? end : edge) - start;
  return padded > 0 ? padded : 0;
}

static float pool_one(const job *j, const float *channel, size_t pixel) {
  const mllm_window *w = &j->window;
  int64_t place[MLLM_SPATIAL];
  int64_t low[MLLM_SPATIAL];
  int64_t span[MLLM_SPATIAL];
  int64_t padded = 1;
  size_t taps = 1;
  mllm_window_place(pixel, w->out, w->rank, place);
  for (uint32_t i = 0; i < w->rank; i++) {
    int64_t high = 0;
    padded *= clip(w, i, place[i], &low[i], &high);
    span[i] = high - low[i];
    taps *= (size_t)span[i];
  }
  float largest = -INFINITY;
  double total = 0.0;
  for (size_t tap = 0; tap < taps; tap++) {
    int64_t at[MLLM_SPATIAL];
    size_t offset = 0;
    mllm_window_place(tap, span, w->rank, at);
    for (uint32_t i = 0; i < w->rank; i++) {
      offset = offset * (size_t)w->in[i] + (size_t)(low[i] + at[i]);
    }
    const float value = channel[offset];
    total += (double)value;
    largest = value > largest || value != value ? value : largest;
  }
  if (!j->average) return largest;
  return (float)(total / (double)(j->count_pads ? padded : (int64_t)taps));
}

static void pool_pixels(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  const job *j = argument;
  for (size_t item = begin; item < end; item++) {
    const float *channel = j->x + item / j->window.out_area * j->window.in_area;
    j->y[item] = pool_one(j, channel, item % j->window.out_area);
  }
}

mllm_status mllm_k_f32_pool(const mllm_call *call) {
  mllm_array kernel;
  mllm_array strides;
  mllm_array pads;
  uint32_t at = 1;
  if (call->n_in != 1 || call->n_out != 1 || !mllm_param_array(call, &at, &kernel) ||
      !mllm_param_array(call, &at, &strides) || !mllm_param_array(call, &at, &pads) ||
      at + 1 != call->n_params) {
    return MLLM_REJECT(call, "f32_pool takes x, kind, kernel, strides, pads, count_include_pad");
  }
  const mllm_view *x = &call->in[0];
  const mllm_view *y = &call->out[0];
  const int64_t kind = call->params[0];
  job j = {.x = x->data,
           .y = y->data,
           .average = kind == MLLM_POOL_AVERAGE,
           .count_pads = call->params[at] != 0};
  if (x->dtype != MLLM_F32 || y->dtype != MLLM_F32 || kind < MLLM_POOL_MAX ||
      kind > MLLM_POOL_AVERAGE || !mllm_same_leading(x, y, 2) ||
      !mllm_window_make(x, y, &kernel, &strides, &pads, NULL, &j.window)) {
    return MLLM_REJECT(call, "f32_pool: operands or params disagree");
  }
  mllm_parallel_for(call->context->threads, mllm_elements(y), GRAIN, pool_pixels, &j);
  return MLLM_OK;
}
