/* attention_keys.c - which keys a query sees, and their rows: of a tensor, or of the pages of a cache,
 * where those that are codes are decoded a stretch at a time. */
#include <math.h>

#include "attention.h"

static bool is_coded(const mllm_kv_view *view) {
  return view->cache != NULL && view->cache->layout.formats[view->layer] != MLLM_KV_F32;
}

bool mllm_kv_needs_room(const mllm_kv_view *view) {
  return is_coded(view) ||
         (view->cache != NULL && view->cache->layout.bytes[MLLM_KV_DEMOTED] > 0);
}

/* Rows of native codes that a query reads as if their page had fallen to 4 bits. */
static bool are_rounded(const mllm_kv_view *view, mllm_kv_page page, size_t page_end) {
  return page.state == MLLM_KV_NATIVE && page_end <= view->old;
}

static size_t page_end_of(const mllm_kv_view *view, size_t token) {
  const size_t page_tokens = view->cache->layout.page_tokens;
  return (token / page_tokens + 1) * page_tokens;
}

/* Decodes count rows within a page. */
static void decode_rows(const mllm_kv_view *view, mllm_kv_page page, size_t head, size_t token,
                        size_t count, float *room) {
  const mllm_kv_layout *layout = &view->cache->layout;
  const uint32_t within = (uint32_t)(token % layout->page_tokens);
  mllm_kv_read_rows(layout, page.bytes, page.state, view->layer, view->kind, (uint32_t)head, within,
                    (uint32_t)count, room);
  if (!are_rounded(view, page, page_end_of(view, token))) return;
  const size_t sinks = token < MLLM_KV_SUB_BLOCK ? MLLM_KV_SUB_BLOCK - token : 0;
  if (sinks >= count) return;
  mllm_kv_round_to_4(room + sinks * layout->head_dim, view->kind, (uint32_t)(count - sinks),
                     layout->head_dim);
}

mllm_kv_stored mllm_kv_stored_rows(const mllm_kv_view *view, size_t head, size_t token,
                                   size_t limit, float *room, size_t *count) {
  mllm_kv_stored rows = {.format = MLLM_KV_F32, .data = room, .stride = view->token_stride};
  *count = limit;
  if (view->cache == NULL) {
    rows.data = (const float *)(const void *)view->base + head * view->head_stride +
                token * view->token_stride;
    return rows;
  }
  const mllm_kv_layout *layout = &view->cache->layout;
  const size_t end = page_end_of(view, token);
  const uint32_t within = (uint32_t)(token % layout->page_tokens);
  const mllm_kv_page page =
      mllm_kv_cache_page(view->cache, (uint32_t)(token / layout->page_tokens));
  if (end - token < limit) *count = end - token;
  mllm_kv_stored found;
  const bool as_stored =
      mllm_kv_rows_in_place(layout, page.bytes, page.state, view->layer, view->kind, (uint32_t)head,
                            within, &found) &&
      !are_rounded(view, page, end);
  if (as_stored && found.format == MLLM_KV_F32) return found;
  if (*count > MLLM_KV_ROOM) *count = MLLM_KV_ROOM;
  if (as_stored) return found;
  decode_rows(view, page, head, token, *count, room);
  return rows;
}

const float *mllm_kv_rows(const mllm_kv_view *view, size_t head, size_t token, size_t limit,
                          float *room, size_t *count) {
  const mllm_kv_stored rows = mllm_kv_stored_rows(view, head, token, limit, room, count);
  if (rows.format == MLLM_KV_F32) return rows.data;
  const mllm_kv_page page =
      mllm_kv_cache_page(view->cache, (uint32_t)(token / view->cache->layout.page_tokens));
  decode_rows(view, page, head, token, *count, room);
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
