/* Kernels that compute each of many rows as if it were the only one: equal to the bit. Verifying
 * guessed tokens in one run needs it of the two kernels whose sums depend on the number of rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../runtime_stub/src/context.h"

enum { MOST = 17, HEADS = 6, KV_HEADS = 2, DIM = 24, KEYS = 300 };

static uint32_t state = 1;

static float *random_floats(size_t count) {
  float *made = malloc(count * sizeof *made);
  if (made == NULL) exit(2);
  for (size_t i = 0; i < count; i++) {
    state = state * 1664525u + 1013904223u;
    made[i] = (float)(state >> 8) / (float)(1 << 23) - 1.0F;
  }
  return made;
}

static void must(mllm_status status) {
  if (status == MLLM_OK) return;
  (void)fprintf(stderr, "a kernel failed: %s\n", mllm_status_name(status));
  exit(2);
}

static mllm_view view(float *data, uint32_t rank, int64_t a, int64_t b, int64_t c) {
  return (mllm_view){.data = data, .dtype = MLLM_F32, .rank = rank, .dims = {a, b, c}};
}

static void linear(mllm_context *context, float *x, float *w, float *y, int64_t rows, int64_t depth,
                   int64_t columns) {
  const mllm_view in[] = {view(x, 2, rows, depth, 0), view(w, 3, (columns + 15) / 16, depth, 16)};
  const mllm_view out = view(y, 2, rows, columns, 0);
  const int64_t params[] = {columns, MLLM_ACTIVATION_SILU};
  const mllm_call call = {.context = context, .in = in, .out = &out, .n_in = 2, .n_out = 1,
                          .params = params, .n_params = 2, .cache = -1};
  must(mllm_k_f32_linear(&call));
}

/* Query rows that end at key `keys`, causal. */
static void attention(mllm_context *context, float *q, float *k, float *v, float *y, int64_t rows,
                      int64_t keys) {
  const mllm_view in[] = {view(q, 3, 1, rows, HEADS * DIM), view(k, 3, 1, keys, KV_HEADS * DIM),
                          view(v, 3, 1, keys, KV_HEADS * DIM)};
  const mllm_view out = view(y, 3, 1, rows, HEADS * DIM);
  const double scale = 0.2;
  int64_t params[] = {HEADS, KV_HEADS, 0, 1, 0};
  memcpy(&params[2], &scale, sizeof scale);
  const mllm_call call = {.context = context, .in = in, .out = &out, .n_in = 3, .n_out = 1,
                          .params = params, .n_params = 5, .cache = -1};
  must(mllm_k_f32_attention(&call));
}

/* How many of the calls gave other bits than one call a row. */
static int differ_linear(mllm_context *context) {
  static const int64_t depths[] = {7, 64, 576}, widths[] = {16, 40, 200};
  int differ = 0;
  for (int i = 0; i < 9; i++) {
    const int64_t depth = depths[i / 3], columns = widths[i % 3];
    float *x = random_floats((size_t)(MOST * depth));
    float *w = random_floats((size_t)((columns + 15) / 16 * 16 * depth));
    float *all = random_floats((size_t)(MOST * columns));
    float *one = random_floats((size_t)(MOST * columns));
    for (int64_t rows = 2; rows <= MOST; rows++) {
      linear(context, x, w, all, rows, depth, columns);
      for (int64_t r = 0; r < rows; r++)
        linear(context, x + r * depth, w, one + r * columns, 1, depth, columns);
      differ += memcmp(all, one, (size_t)(rows * columns) * sizeof(float)) != 0;
    }
    free(x), free(w), free(all), free(one);
  }
  return differ;
}

static int differ_attention(mllm_context *context) {
  enum { Q = HEADS * DIM, K = KV_HEADS * DIM };
  float *q = random_floats((size_t)MOST * Q), *k = random_floats((size_t)KEYS * K);
  float *v = random_floats((size_t)KEYS * K);
  float *all = random_floats((size_t)MOST * Q), *one = random_floats((size_t)MOST * Q);
  int differ = 0;
  for (int64_t rows = 2; rows <= MOST; rows++) {
    attention(context, q, k, v, all, rows, KEYS);
    for (int64_t r = 0; r < rows; r++)
      attention(context, q + r * Q, k, v, one + r * Q, 1, KEYS - rows + r + 1);
    differ += memcmp(all, one, (size_t)(rows * Q) * sizeof(float)) != 0;
  }
  free(q), free(k), free(v), free(all), free(one);
  return differ;
}

int main(void) {
  mllm_context *context = NULL;
  const mllm_context_options options = {.threads = 2};
  must(mllm_context_create(&options, &context, NULL));
  if (differ_linear(context) + differ_attention(context) == 0) {
    (void)fprintf(stderr, "rows together give the bits of rows alone: nothing is tested\n");
    return 1;
  }
  context->rows_alone = true;
  const int linears = differ_linear(context), attentions = differ_attention(context);
  mllm_context_destroy(context);
  (void)printf("%d linears, %d attentions differ\n", linears, attentions);
  return linears != 0 || attentions != 0;
}
