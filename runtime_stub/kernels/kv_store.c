/* kv_store.c - f32_kv_store: appends this run's keys and values of one layer to the cache, whose
 * layout has the scales of keys already. */
#include "operands.h"

mllm_status mllm_k_f32_kv_store(const mllm_call *call) {
  const mllm_view *k = mllm_input(call, 0);
  const mllm_view *v = mllm_input(call, 1);
  mllm_kv_cache *cache = mllm_context_cache(call->context, call->cache);
  if (call->n_in < 2 || call->n_in > 3 || call->n_out != 0 || call->n_params != 2 || cache == NULL) {
    return MLLM_REJECT(call, "f32_kv_store takes k, v, k_scale, 2 params, and an entry with a cache");
  }
  const int64_t layer = call->params[0];
  const int64_t heads = cache->info.kv_heads;
  const int64_t width = heads * cache->info.head_dim;
  if (!mllm_is_f32(k, 3) || !mllm_is_f32(v, 3) || !mllm_same_dims(k, v) || k->dims[0] != 1 ||
      k->dims[2] != width || call->params[1] != heads || layer < 0 ||
      layer >= (int64_t)cache->info.layers) {
    return MLLM_REJECT(call, "f32_kv_store: k and v are f32 [1, T, %lld], layer is below %u",
                       (long long)width, cache->info.layers);
  }
  if (k->dims[1] > (int64_t)cache->capacity - cache->length) {
    return mllm_fail(call->error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_CACHE,
                     "cache '%s' holds %u of %u tokens, %lld more do not fit", cache->info.name,
                     cache->length, cache->capacity, (long long)k->dims[1]);
  }
  const uint32_t tokens = (uint32_t)k->dims[1];
  const mllm_status status =
      mllm_kv_cache_reserve(cache, cache->length, cache->length + tokens, call->error);
  if (status != MLLM_OK) return status;
  const size_t dim = cache->info.head_dim;
  for (uint32_t head = 0; head < cache->info.kv_heads; head++) {
    mllm_kv_cache_write_rows(cache, (uint32_t)layer, MLLM_KV_KEY, head, cache->length,
                             (const float *)k->data + head * dim, (size_t)width, tokens);
    mllm_kv_cache_write_rows(cache, (uint32_t)layer, MLLM_KV_VALUE, head, cache->length,
                             (const float *)v->data + head * dim, (size_t)width, tokens);
  }
  cache->pending = tokens;
  return MLLM_OK;
}
