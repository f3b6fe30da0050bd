/* attention_rows.c - attention of few queries: a dot product per key reads keys and values once and
 * packs nothing. Heads that share keys which have to be decoded are one item. */
#include <math.h>

#include "attention.h"

enum {
  KEYS = 256,
  GRAIN_KEYS = 256,
  SHARED = 16 /* heads that read rows which are decoded once */
};

/* The softmax of one head so far. */
typedef struct running {
  float largest;
  float total;
} running;

/* Weighs a stretch of values by the scores of one head; what was summed before shrinks by the growth
 * of the largest. */
static void weigh(const mllm_attention *a, running *r, float *y, float *scores, const float *values,
                  size_t stride, size_t count) {
  const mllm_row_ops *ops = a->ops->rows;
  const float found = ops->max(scores, count);
  if (found == -INFINITY) return;
  if (found > r->largest || found != found) {
    const float decay = expf(r->largest - found);
    ops->scale(y, decay, a->v_dim);
    r->total *= decay;
    r->largest = found;
  }
  r->total += ops->exp_sum(scores, r->largest, count);
  ops->add_rows(y, scores, values, stride, count, a->v_dim);
}

/* One query of some heads that share a kv head against all of its keys, a stretch at a time. */
static void attend_row(const mllm_attention *a, size_t batch, size_t t, size_t head, size_t heads,
                       float *room) {
  const mllm_row_ops *ops = a->ops->rows;
  mllm_kv_view k = a->k;
  mllm_kv_view v = a->v;
  k.base += batch * a->k_batch;
  v.base += batch * a->v_batch;
  const size_t kv_head = head / (a->heads / a->kv_heads);
  const size_t row = (batch * a->tokens + t) * a->heads + head;
  const float *q = a->q + row * a->dim;
  float *y = a->y + row * a->v_dim;
  float *v_room = room + MLLM_KV_ROOM * a->dim;
  float scores[KEYS];
  bool excluded[KEYS];
  running state[SHARED];
  for (size_t h = 0; h < heads; h++) state[h] = (running){.largest = -INFINITY};
  size_t key = 0;
  size_t limit = 0;
  memset(y, 0, heads * a->v_dim * sizeof(float));
  mllm_attention_range(a, t, &key, &limit);
  key = mllm_attention_start(a, key);
  while (key < limit) {
    size_t count = limit - key < KEYS ? limit - key : KEYS;
    const float *keys = mllm_kv_rows(&k, kv_head, key, count, room, &count);
    const float *values = mllm_kv_rows(&v, kv_head, key, count, v_room, &count);
    const bool any = mllm_attention_excluded(a, batch, key, count, excluded);
    for (size_t h = 0; h < heads; h++) {
      ops->dots(scores, q + h * a->dim, keys, k.token_stride, count, a->dim);
      ops->scale(scores, a->scale, count);
      mllm_attention_mask(a, scores, any ? excluded : NULL, batch, head + h, t, key, count);
      weigh(a, &state[h], y + h * a->v_dim, scores, values, v.token_stride, count);
    }
    key += count;
  }
  for (size_t h = 0; h < heads; h++) {
    float *out = y + h * a->v_dim;
    if (state[h].total == 0.0F) {
      mllm_attention_mean(a, &v, kv_head, v_room, out);
    } else {
      ops->scale(out, 1.0F / state[h].total, a->v_dim);
    }
  }
}

/* Heads of an item: each alone, but those that share rows that are decoded. */
static size_t shared_heads(const mllm_attention *a) {
  const size_t group = a->heads / a->kv_heads;
  if (!mllm_kv_is_coded(&a->k)) return 1;
  return group < SHARED ? group : SHARED;
}

static void attend_rows(void *argument, size_t begin, size_t end, void *scratch) {
  const mllm_attention *a = argument;
  const size_t group = a->heads / a->kv_heads;
  const size_t shared = shared_heads(a);
  const size_t parts = (group + shared - 1) / shared;
  for (size_t item = begin; item < end; item++) {
    const size_t first = item % parts * shared;
    const size_t heads = group - first < shared ? group - first : shared;
    const size_t row = item / parts;
    const size_t t = a->first + row / a->kv_heads % a->count;
    attend_row(a, row / a->kv_heads / a->count, t, row % a->kv_heads * group + first, heads,
               scratch);
  }
}

void mllm_attention_rows(mllm_context *context, const mllm_attention *a) {
  const size_t shared = shared_heads(a);
  const size_t parts = (a->heads / a->kv_heads + shared - 1) / shared;
  const size_t items = a->batch * a->count * a->kv_heads * parts;
  mllm_parallel_for(context->threads, items, GRAIN_KEYS / (a->keys + 1) + 1, attend_rows,
                    (void *)(uintptr_t)a);
}
