/* attention.c - f32_attention and f32_paged_attention: operands, and which queries go together.
 *
 * Many queries of one head go through attention_tiles.c, few through attention_rows.c. */
#include "attention.h"

enum { FEW_ROWS = 8, FLOATS = MLLM_SCRATCH_BYTES / sizeof(float) };

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

static void attend(mllm_context *context, const mllm_attention *a) {
  const bool many = a->count * (a->heads / a->kv_heads) > FEW_ROWS && !context->rows_alone;
  if (many && mllm_attention_fits_tiles(a)) {
    mllm_attention_tiles(context, a);
  } else {
    mllm_attention_rows(context, a);
  }
}

mllm_status mllm_attention_run(const mllm_call *call, mllm_attention *a) {
  if (!mask_fits(a) || !bias_fits(a)) {
    return MLLM_REJECT(call, "attention: key_mask is [B, %zu], bias broadcasts to [B, H, %zu, %zu]",
                       a->keys, a->tokens, a->keys);
  }
  a->ops = call->context->ops;
  if (mllm_kv_needs_room(&a->k) && MLLM_KV_ROOM * (a->dim + a->v_dim) > FLOATS) {
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
  const mllm_status status = mllm_kv_cache_ready(cache, call->error);
  if (status != MLLM_OK) return status;
  const uint32_t keys = cache->length + cache->pending;
  a.keys = keys;
  a.k = mllm_kv_cache_view(cache, (uint32_t)layer, MLLM_KV_KEY);
  a.v = mllm_kv_cache_view(cache, (uint32_t)layer, MLLM_KV_VALUE);
  return mllm_attention_run(call, &a);
}
