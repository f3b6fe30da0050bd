/* selective_scan.c - f32_selective_scan: a selective state space over tokens (Gu & Dao 2023). */
#include "operands.h"

enum { GRAIN = 1 << 12 };

typedef struct job {
  mllm_unary_fn exponential;
  const float *x;     /* [batch, tokens, channels] */
  const float *step;  /* [batch, tokens, channels] */
  const float *a;     /* [channels, states] */
  const float *b;     /* [batch, tokens, states] */
  const float *c;     /* [batch, tokens, states] */
  const float *state; /* [batch, channels, states] */
  float *y;           /* [batch, tokens, channels] */
  float *last;        /* [batch, channels, states] */
  size_t tokens, channels, states;
} job;

/* One item is one channel of one batch row. */
static void scan_channels(void *argument, size_t begin, size_t end, void *scratch) {
  const job *j = argument;
  float *kept = scratch; /* [states] */
  for (size_t item = begin; item < end; item++) {
    const size_t row = item / j->channels * j->tokens;
    const size_t channel = item % j->channels;
    const float *a = j->a + channel * j->states;
    float *h = j->last + item * j->states;
    memmove(h, j->state + item * j->states, j->states * sizeof(float));
    for (size_t token = row; token < row + j->tokens; token++) {
      const float step = j->step[token * j->channels + channel];
      const float input = step * j->x[token * j->channels + channel];
      const float *b = j->b + token * j->states;
      const float *c = j->c + token * j->states;
      for (size_t n = 0; n < j->states; n++) kept[n] = step * a[n];
      j->exponential(kept, kept, j->states);
      float read = 0.0F;
      for (size_t n = 0; n < j->states; n++) {
        h[n] = kept[n] * h[n] + input * b[n];
        read += c[n] * h[n];
      }
      j->y[token * j->channels + channel] = read;
    }
  }
}

static bool is_shape(const mllm_view *view, size_t first, size_t second, size_t third) {
  return mllm_is_f32(view, 3) && mllm_extent(view, 0) == first && mllm_extent(view, 1) == second &&
         mllm_extent(view, 2) == third;
}

mllm_status mllm_k_f32_selective_scan(const mllm_call *call) {
  if (call->n_in != 6 || call->n_out != 2 || call->n_params != 0) {
    return MLLM_REJECT(call, "f32_selective_scan takes x, step, a, b, c and state");
  }
  const mllm_view *x = mllm_input(call, 0);
  const mllm_view *a = mllm_input(call, 2);
  if (!mllm_is_f32(x, 3) || !mllm_is_f32(a, 2)) {
    return MLLM_REJECT(call, "f32_selective_scan: x is f32 [B, T, D], a is f32 [D, N]");
  }
  const size_t batch = mllm_extent(x, 0);
  const size_t tokens = mllm_extent(x, 1);
  const size_t channels = mllm_extent(x, 2);
  const size_t states = mllm_extent(a, 1);
  if (mllm_extent(a, 0) != channels || !is_shape(mllm_input(call, 1), batch, tokens, channels) ||
      !is_shape(mllm_input(call, 3), batch, tokens, states) ||
      !is_shape(mllm_input(call, 4), batch, tokens, states) ||
      !is_shape(mllm_input(call, 5), batch, channels, states) ||
      !is_shape(&call->out[0], batch, tokens, channels) ||
      !is_shape(&call->out[1], batch, channels, states)) {
    return MLLM_REJECT(call, "f32_selective_scan: step is [B, T, D], b and c are [B, T, N], "
                             "state is [B, D, N]");
  }
  if (states > MLLM_SCRATCH_BYTES / sizeof(float)) {
    return MLLM_REJECT(call, "f32_selective_scan: more states than fit the scratch memory");
  }
  if (batch == 0 || channels == 0) return MLLM_OK;
  job j = {.exponential = call->context->ops->math->unary[MLLM_EW_EXP - MLLM_UNARY_FIRST],
           .x = x->data,
           .step = call->in[1].data,
           .a = a->data,
           .b = call->in[3].data,
           .c = call->in[4].data,
           .state = call->in[5].data,
           .y = call->out[0].data,
           .last = call->out[1].data,
           .tokens = tokens,
           .channels = channels,
           .states = states};
  const size_t grain = GRAIN / (tokens * states + 1) + 1;
  mllm_parallel_for(call->context->threads, batch * channels, grain, scan_channels, &j);
  return MLLM_OK;
}
