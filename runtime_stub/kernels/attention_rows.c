/* attention_rows.c - attention of few queries: a dot product per key reads keys and values once and
 * packs nothing. Heads that share keys read them together, a few at a time. */
#include <math.h>

#include "attention.h"

enum {
  KEYS = 256,
  GRAIN_KEYS = 256,
  TOGETHER = MLLM_ROW_VECTORS,
  SHARED = 16, /* heads of one pass over the keys */
  PARTS = 4    /* chunks for each thread */
};

/* The softmax of one head so far. */
typedef struct running {
  float largest;
  float total;
} running;

/* Turns the scores of a stretch of keys into weights; what was summed before shrinks by the growth
 * of the largest. False where no key counts. */
static bool soften(const mllm_attention *a, running *r, float *y, float *scores, size_t count) {
  const mllm_row_ops *ops = a->ops->rows;
  const float found = ops->max(scores, count);
  if (found == -INFINITY) return false;
  if (found > r->largest || found != found) {
    const float decay = expf(r->largest - found);
    ops->scale(y, decay, a->v_dim);
    r->total *= decay;
    r->largest = found;
  }
  r->total += ops->exp_sum(scores, r->largest, count);
  return true;
}

/* y[heads] += weights values, of the heads that have weights. */
static void add_values(const mllm_attention *a, float *y, const float *weights, const bool *live,
                       size_t heads, const mllm_kv_stored *values, size_t count) {
  mllm_row_product p = {.x = values,
                        .count = count,
                        .n = a->v_dim,
                        .a_stride = KEYS,
                        .out_stride = a->v_dim};
  for (size_t h = 0; h < heads; h += p.vectors) {
    p.vectors = 1;
    if (!live[h]) continue;
    while (h + p.vectors < heads && live[h + p.vectors]) p.vectors++;
    p.a = weights + h * KEYS;
    p.out = y + h * a->v_dim;
    a->ops->stored->add_rows(&p);
  }
}

/* Some heads of query t that share a kv head, from `head` on. */
typedef struct query {
  size_t batch, t, head, heads;
  const float *q; /* [heads, dim] */
  float *y;       /* [heads, v_dim] */
  running state[SHARED];
} query;

/* A stretch of keys from `first` on. */
static void attend_stretch(const mllm_attention *a, query *query, size_t first, size_t count,
                           const mllm_kv_stored *keys, const mllm_kv_stored *values) {
  bool excluded[KEYS];
  float scores[TOGETHER][KEYS];
  bool live[TOGETHER];
  const bool any = mllm_attention_excluded(a, query->batch, first, count, excluded);
  for (size_t h = 0; h < query->heads; h += TOGETHER) {
    const size_t heads = query->heads - h < TOGETHER ? query->heads - h : TOGETHER;
    a->ops->stored->dots(&(mllm_row_product){.x = keys,
                                             .count = count,
                                             .n = a->dim,
                                             .vectors = heads,
                                             .a = query->q + h * a->dim,
                                             .a_stride = a->dim,
                                             .out = scores[0],
                                             .out_stride = KEYS});
    for (size_t i = 0; i < heads; i++) {
      a->ops->rows->scale(scores[i], a->scale, count);
      mllm_attention_mask(a, scores[i], any ? excluded : NULL, query->batch, query->head + h + i,
                          query->t, first, count);
      live[i] = soften(a, &query->state[h + i], query->y + (h + i) * a->v_dim, scores[i], count);
    }
    add_values(a, query->y + h * a->v_dim, scores[0], live, heads, values, count);
  }
}

/* Some heads of a query against all of their keys, a stretch at a time. */
static void attend_row(const mllm_attention *a, query *query, float *room) {
  mllm_kv_view k = a->k;
  mllm_kv_view v = a->v;
  k.base += query->batch * a->k_batch;
  v.base += query->batch * a->v_batch;
  const size_t kv_head = query->head / (a->heads / a->kv_heads);
  float *v_room = room + MLLM_KV_ROOM * a->dim;
  size_t key = 0;
  size_t limit = 0;
  for (size_t h = 0; h < query->heads; h++) query->state[h] = (running){.largest = -INFINITY};
  memset(query->y, 0, query->heads * a->v_dim * sizeof(float));
  mllm_attention_range(a, query->t, &key, &limit);
  key = mllm_attention_start(a, key);
  while (key < limit) {
    size_t count = limit - key < KEYS ? limit - key : KEYS;
    const mllm_kv_stored keys = mllm_kv_stored_rows(&k, kv_head, key, count, room, &count);
    const mllm_kv_stored values = mllm_kv_stored_rows(&v, kv_head, key, count, v_room, &count);
    attend_stretch(a, query, key, count, &keys, &values);
    key += count;
  }
  for (size_t h = 0; h < query->heads; h++) {
    float *out = query->y + h * a->v_dim;
    if (query->state[h].total == 0.0F) {
      mllm_attention_mean(a, &v, kv_head, v_room, out);
    } else {
      a->ops->rows->scale(out, 1.0F / query->state[h].total, a->v_dim);
    }
  }
}

/* Items that stand one behind another and share a kv head go together. */
static void attend_rows(void *argument, size_t begin, size_t end, void *scratch) {
  const mllm_attention *a = argument;
  const size_t group = a->heads / a->kv_heads;
  for (size_t item = begin; item < end;) {
    query query = {.head = item % a->heads,
                   .t = a->first + item / a->heads % a->count,
                   .batch = item / a->heads / a->count};
    const size_t left = group - query.head % group;
    query.heads = left < end - item ? left : end - item;
    if (query.heads > SHARED) query.heads = SHARED;
    const size_t row = (query.batch * a->tokens + query.t) * a->heads + query.head;
    query.q = a->q + row * a->dim;
    query.y = a->y + row * a->v_dim;
    attend_row(a, &query, scratch);
    item += query.heads;
  }
}

/* Items of a chunk at least: the heads of whole kv heads, where the threads have as much to do then
 * as with a head each. */
static size_t grain_of(const mllm_context *context, const mllm_attention *a, size_t items) {
  const size_t threads = mllm_threads_count(context->threads);
  const size_t group = a->heads / a->kv_heads;
  const size_t least = GRAIN_KEYS / (a->keys + 1) + 1;
  if (items / group % threads != 0 && items / group < PARTS * threads) return least;
  const size_t share = (items + PARTS * threads - 1) / (PARTS * threads);
  return ((share > least ? share : least) + group - 1) / group * group;
}

void mllm_attention_rows(mllm_context *context, const mllm_attention *a) {
  const size_t items = a->batch * a->count * a->heads;
  mllm_parallel_for(context->threads, items, grain_of(context, a, items), attend_rows,
                    (void *)(uintptr_t)a);
}
