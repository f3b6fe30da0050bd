/* attention.c - f32_attention and f32_paged_attention: operands, masks, and few-row queries.
 *
 * Many queries of one head go through attention_tiles.c; a decoding step has one, for which a dot
 * product per key reads keys and values once and packs nothing. */
#include "attention.h"

#include <math.h>

enum {
  FEW_ROWS = 8,
  KEYS = 256,
  GRAIN_KEYS = 256,
  SHARED = 16, /* heads that read rows which are decoded once */
  FLOATS = MLLM_SCRATCH_BYTES / sizeof(float)
};

bool mllm_kv_is_coded(const mllm_kv_view *view) {
  return view->cache != NULL && view->cache->layout.formats[view->layer] != MLLM_KV_F32;
}

const float *mllm_kv_rows(const mllm_kv_view *view, size_t head, size_t token, size_t limit,
                          float *room, size_t *count) {
  if (view->cache == NULL) {
    *count = limit;
    const float *rows = (const float *)(const void *)view->base;
    return rows + head * view->head_stride + token * view->token_stride;
  }
  const mllm_kv_layout *layout = &view->cache->layout;
  const size_t left = layout->page_tokens - token % layout->page_tokens;
  const uint32_t within = (uint32_t)(token % layout->page_tokens);
  const mllm_kv_page page =
      mllm_kv_cache_page(view->cache, (uint32_t)(token / layout->page_tokens));
  *count = left < limit ? left : limit;
  const float *rows = mllm_kv_row_in_place(layout, page.bytes, page.state, view->layer, view->kind,
                                           (uint32_t)head, within);
  if (rows != NULL) return rows;
  if (*count > MLLM_KV_ROOM) *count = MLLM_KV_ROOM;
  mllm_kv_read_rows(layout, page.bytes, page.state, view->layer, view->kind, (uint32_t)head, within,
                    (uint32_t)*count, room);
  if (page.state == MLLM_KV_NATIVE && token + left <= view->old) {
    const size_t sinks = token < MLLM_KV_SUB_BLOCK ? MLLM_KV_SUB_BLOCK - token : 0;
    if (sinks < *count) {
      mllm_kv_round_to_4(room + sinks * layout->head_dim, view->kind, (uint32_t)(*count - sinks),
                         layout->head_dim);
    }
  }
  return room;
}

size_t mllm_attention_start(const mllm_attention *a, size_t first) {
  return a->k.old > first ? first - first % MLLM_KV_SUB_BLOCK : first;
}

void mllm_attention_range(const mllm_attention *a, size_t t, size_t *first, size_t *limit) {
  *first = 0;
  *limit = a->keys;
  /* query t stands at key position t + keys - tokens, which may be before the first key */
  const size_t end = t + 1 + a->keys;
  const size_t seen = end > a->tokens ? end - a->tokens : 0;
  if (a->causal && seen < *limit) *limit = seen;
  if (a->window > 0 && seen > a->window) *first = seen - a->window;
  if (*first > *limit) *first = *limit;
}

/* The element of the mask, whose batch axis may be 1. */
static bool is_masked(const mllm_view *mask, size_t batch, size_t key) {
  const size_t row = mask->dims[0] == 1 ? 0 : batch;
  const size_t at = row * mllm_extent(mask, 1) + key;
  switch (mask->dtype) {
    case MLLM_I64: return ((const int64_t *)mask->data)[at] == 0;
    case MLLM_I32: return ((const int32_t *)mask->data)[at] == 0;
    case MLLM_F32: return ((const float *)mask->data)[at] == 0.0F;
    default: return ((const unsigned char *)mask->data)[at] == 0;
  }
}

/* bias of query t at key 0, and the step between keys (0 or 1) */
static const float *bias_row(const mllm_attention *a, size_t batch, size_t head, size_t t,
                             size_t *step) {
  const size_t at[4] = {batch, head, t, 0};
  size_t offset = 0;
  size_t stride = 1;
  for (uint32_t i = 0; i < a->bias->rank; i++) {
    const uint32_t axis = a->bias->rank - 1 - i;
    const size_t extent = mllm_extent(a->bias, axis);
    if (extent != 1) offset += at[3 - i] * stride;
    stride *= extent;
  }
  *step = a->bias->rank > 0 && mllm_extent(a->bias, a->bias->rank - 1) != 1;
  return (const float *)a->bias->data + offset;
}

bool mllm_attention_excluded(const mllm_attention *a, size_t batch, size_t first, size_t count,
                             bool *excluded) {
  bool any = false;
  if (!mllm_is_present(a->mask)) return false;
  for (size_t i = 0; i < count; i++) {
    excluded[i] = is_masked(a->mask, batch, first + i);
    any = any || excluded[i];
  }
  return any;
}

void mllm_attention_mask(const mllm_attention *a, float *scores, const bool *excluded, size_t batch,
                         size_t head, size_t t, size_t first, size_t count) {
  if (mllm_is_present(a->bias)) {
    size_t step = 0;
    const float *row = bias_row(a, batch, head, t, &step);
    for (size_t i = 0; i < count; i++) scores[i] += row[(first + i) * step];
  }
  if (excluded != NULL) {
    for (size_t i = 0; i < count; i++) scores[i] = excluded[i] ? -INFINITY : scores[i];
  }
  size_t begin = 0;
  size_t end = 0;
  mllm_attention_range(a, t, &begin, &end);
  for (size_t i = 0; i < count && first + i < begin; i++) scores[i] = -INFINITY;
  for (size_t i = end > first ? end - first : 0; i < count; i++) scores[i] = -INFINITY;
}

void mllm_attention_mean(const mllm_attention *a, const mllm_kv_view *v, size_t kv_head,
                         float *room, float *y) {
  memset(y, 0, a->v_dim * sizeof(float));
  for (size_t key = 0; key < a->keys;) {
    size_t count = a->keys - key;
    const float *values = mllm_kv_rows(v, kv_head, key, count, room, &count);
    for (size_t i = 0; i < count; i++) {
      for (size_t c = 0; c < a->v_dim; c++) y[c] += values[i * v->token_stride + c];
    }
    key += count;
  }
  if (a->keys > 0) a->ops->rows->scale(y, 1.0F / (float)a->keys, a->v_dim);
}

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

static bool mask_fits(const mllm_attention *a) {
  const mllm_view *mask = a->mask;
  if (!mllm_is_present(mask)) return true;
  const bool dtype = mask->dtype == MLLM_I64 || mask->dtype == MLLM_I32 ||
                     mask->dtype == MLLM_F32 || mask->dtype == MLLM_U8 || mask->dtype == MLLM_BOOL;
  return dtype && mask->rank == 2 && (mask->dims[0] == 1 || mllm_extent(mask, 0) == a->batch) &&
         mllm_extent(mask, 1) == a->keys;
}

static bool bias_fits(const mllm_attention *a) {
  const mllm_view *bias = a->bias;
  const size_t full[4] = {a->batch, a->heads, a->tokens, a->keys};
  if (!mllm_is_present(bias)) return true;
  if (bias->dtype != MLLM_F32 || bias->rank > 4) return false;
  for (uint32_t i = 0; i < bias->rank; i++) {
    const size_t extent = mllm_extent(bias, bias->rank - 1 - i);
    if (extent != 1 && extent != full[3 - i]) return false;
  }
  return true;
}

/* Queries from the first on: those of its page where older pages fall to 4 bits, else all. */
static void choose_queries(mllm_attention *a) {
  a->count = a->tokens - a->first;
  if (a->k.cache == NULL || a->k.cache->layout.formats[a->k.layer] != MLLM_KV_4) return;
  const mllm_kv_layout *layout = &a->k.cache->layout;
  const size_t place = a->keys + a->first;
  const uint32_t position = place > a->tokens ? (uint32_t)(place - a->tokens) : 0;
  const size_t left = layout->page_tokens - position % layout->page_tokens;
  if (left < a->count) a->count = left;
  a->k.old = mllm_kv_old(layout, position);
  a->v.old = a->k.old;
}

static void attend(mllm_context *context, mllm_attention *a) {
  const bool many = a->count * (a->heads / a->kv_heads) > FEW_ROWS && !context->rows_alone;
  if (many && mllm_attention_fits_tiles(a)) {
    mllm_attention_tiles(context, a);
    return;
  }
  const size_t shared = shared_heads(a);
  const size_t parts = (a->heads / a->kv_heads + shared - 1) / shared;
  const size_t items = a->batch * a->count * a->kv_heads * parts;
  mllm_parallel_for(context->threads, items, GRAIN_KEYS / (a->keys + 1) + 1, attend_rows, a);
}

mllm_status mllm_attention_run(const mllm_call *call, mllm_attention *a) {
  if (!mask_fits(a) || !bias_fits(a)) {
    return MLLM_REJECT(call, "attention: key_mask is [B, %zu], bias broadcasts to [B, H, %zu, %zu]",
                       a->keys, a->tokens, a->keys);
  }
  a->ops = call->context->ops;
  if (mllm_kv_is_coded(&a->k) && MLLM_KV_ROOM * (a->dim + a->v_dim) > FLOATS) {
    return MLLM_REJECT(call, "attention to codes: heads of %zu channels are too wide", a->dim);
  }
  if (a->batch * a->heads == 0 || a->v_dim == 0) return MLLM_OK;
  for (a->first = 0; a->first < a->tokens; a->first += a->count) {
    choose_queries(a);
    attend(call->context, a);
  }
  return MLLM_OK;
}

/* The params from heads on: heads, kv_heads, scale, causal, window. */
static bool read_params(const mllm_call *call, uint32_t first, mllm_attention *a) {
  const int64_t *p = call->params + first;
  const mllm_view *q = &call->in[0];
  if (p[0] < 1 || p[1] < 1 || p[0] % p[1] != 0 || p[4] < 0) return false;
  if (!mllm_is_f32(q, 3) || q->dims[2] % p[0] != 0) return false;
  a->q = q->data;
  a->batch = mllm_extent(q, 0);
  a->tokens = mllm_extent(q, 1);
  a->heads = (size_t)p[0];
  a->kv_heads = (size_t)p[1];
  a->dim = mllm_extent(q, 2) / a->heads;
  a->scale = (float)mllm_param_double(p[2]);
  a->causal = p[3] != 0;
  a->window = (size_t)p[4];
  return true;
}

static bool output_fits(const mllm_call *call, mllm_attention *a) {
  const mllm_view *y = &call->out[0];
  a->y = y->data;
  return mllm_is_f32(y, 3) && mllm_same_leading(&call->in[0], y, 2) &&
         mllm_extent(y, 2) == a->heads * a->v_dim;
}

/* k or v: [B, S, kv_heads * D], or [B, kv_heads, S, D]; its rows, keys and channels. */
static bool view_tensor(const mllm_attention *a, const mllm_view *x, mllm_kv_view *view,
                        size_t *batch_bytes, size_t *keys, size_t *dim) {
  if (x->dtype != MLLM_F32 || x->rank < 3 || x->rank > 4 || mllm_extent(x, 0) != a->batch) {
    return false;
  }
  memset(view, 0, sizeof *view);
  if (x->rank == 3) {
    if (mllm_extent(x, 2) % a->kv_heads != 0) return false;
    *keys = mllm_extent(x, 1);
    *dim = mllm_extent(x, 2) / a->kv_heads;
    view->token_stride = mllm_extent(x, 2);
    view->head_stride = *dim;
  } else {
    if (mllm_extent(x, 1) != a->kv_heads) return false;
    *keys = mllm_extent(x, 2);
    *dim = mllm_extent(x, 3);
    view->token_stride = *dim;
    view->head_stride = *keys * *dim;
  }
  if (*keys >= UINT32_MAX) return false;
  view->base = x->data;
  *batch_bytes = *keys * *dim * a->kv_heads * sizeof(float);
  return true;
}

mllm_status mllm_k_f32_attention(const mllm_call *call) {
  mllm_attention a = {.mask = mllm_input(call, 3), .bias = mllm_input(call, 4)};
  if (call->n_in < 3 || call->n_out != 1 || call->n_params != 5 || !read_params(call, 0, &a)) {
    return MLLM_REJECT(call, "f32_attention takes f32 q [B, T, heads * D], k, v and 5 params");
  }
  size_t v_keys = 0;
  size_t k_dim = 0;
  if (!view_tensor(&a, &call->in[1], &a.k, &a.k_batch, &a.keys, &k_dim) ||
      !view_tensor(&a, &call->in[2], &a.v, &a.v_batch, &v_keys, &a.v_dim) || k_dim != a.dim ||
      v_keys != a.keys || !output_fits(call, &a)) {
    return MLLM_REJECT(call, "f32_attention: the shapes of q, k, v and y disagree");
  }
  return mllm_attention_run(call, &a);
}

mllm_status mllm_k_f32_paged_attention(const mllm_call *call) {
  mllm_attention a = {.mask = mllm_input(call, 1), .bias = mllm_input(call, 2)};
  const mllm_kv_cache *cache = mllm_context_cache(call->context, call->cache);
  if (call->n_in < 1 || call->n_out != 1 || call->n_params != 6 || cache == NULL ||
      !read_params(call, 1, &a)) {
    return MLLM_REJECT(call,
                       "f32_paged_attention takes f32 q, 6 params, and an entry with a cache");
  }
  const int64_t layer = call->params[0];
  a.v_dim = cache->info.head_dim;
  if (a.batch != 1 || a.dim != cache->info.head_dim || a.kv_heads != cache->info.kv_heads ||
      layer < 0 || layer >= (int64_t)cache->info.layers || !output_fits(call, &a)) {
    return MLLM_REJECT(call, "f32_paged_attention: q, y or layer disagree with cache '%s'",
                       cache->info.name);
  }
  const uint32_t keys = cache->length + cache->pending;
  a.keys = keys;
  a.k = mllm_kv_cache_view(cache, (uint32_t)layer, MLLM_KV_KEY);
  a.v = mllm_kv_cache_view(cache, (uint32_t)layer, MLLM_KV_VALUE);
  return mllm_attention_run(call, &a);
}
