/* cache.c - caches apart from sessions, and which of them a session uses. */
#include <stdlib.h>

#include "../kv/prefix.h"
#include "../kv/spill.h"
#include "cache.h"
#include "session.h"
#include "status.h"

static mllm_status no_memory(mllm_error *error) {
  return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for a cache");
}

static mllm_status no_cache(uint32_t cache, mllm_error *error) {
  return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT, "the model has no cache %u",
                   cache);
}

mllm_status mllm_cache_hand_out(const mllm_model *model, uint32_t index, mllm_kv_cache *kv,
                                mllm_cache **made, mllm_error *error) {
  mllm_cache *found = calloc(1, sizeof *found);
  if (found == NULL) {
    mllm_kv_cache_free(kv);
    return no_memory(error);
  }
  *found = (mllm_cache){.model = model, .index = index, .kv = *kv};
  found->priority = MLLM_PRIORITY_NORMAL;
  found->next = kv->pool->handles;
  if (found->next != NULL) found->next->last = found;
  kv->pool->handles = found;
  *made = found;
  return MLLM_OK;
}

mllm_status mllm_cache_create(const mllm_model *model, uint32_t cache, uint32_t max_tokens,
                              mllm_cache **made, mllm_error *error) {
  mllm_clear(error);
  *made = NULL;
  if (cache >= mllm_model_caches(model)) return no_cache(cache, error);
  mllm_kv_cache kv;
  const mllm_cache_info info = mllm_model_cache_info(model, cache);
  const mllm_status status = mllm_kv_cache_create(&kv, &info, max_tokens, error);
  return status == MLLM_OK ? mllm_cache_hand_out(model, cache, &kv, made, error) : status;
}

mllm_status mllm_cache_create_in(mllm_kv_pool *pool, const mllm_model *model, uint32_t max_tokens,
                                 mllm_cache **made, mllm_error *error) {
  mllm_clear(error);
  *made = NULL;
  if (pool->model != model)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "the pool is of another model");
  mllm_kv_cache kv;
  const mllm_status status = mllm_kv_cache_create_in(&kv, pool, max_tokens, error);
  return status == MLLM_OK ? mllm_cache_hand_out(model, pool->index, &kv, made, error) : status;
}

mllm_status mllm_cache_fork(const mllm_cache *cache, mllm_cache **made, mllm_error *error) {
  mllm_clear(error);
  *made = NULL;
  mllm_kv_cache kv;
  const mllm_status status = mllm_kv_cache_fork(&cache->kv, &kv, error);
  if (status != MLLM_OK) return status;
  const mllm_status handed = mllm_cache_hand_out(cache->model, cache->index, &kv, made, error);
  if (handed == MLLM_OK) (*made)->priority = cache->priority;
  return handed;
}

mllm_status mllm_cache_swap(mllm_cache *a, mllm_cache *b, mllm_error *error) {
  mllm_clear(error);
  if (a->kv.pool != b->kv.pool)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "the conversations are not of one pool");
  const mllm_kv_cache kept = a->kv;
  a->kv = b->kv;
  b->kv = kept;
  return MLLM_OK;
}

mllm_status mllm_cache_set_length(mllm_cache *cache, uint32_t length, mllm_error *error) {
  mllm_clear(error);
  return mllm_kv_cache_set_length(&cache->kv, length, error);
}

uint32_t mllm_cache_length(const mllm_cache *cache) { return cache->kv.length; }

uint64_t mllm_cache_demote(mllm_cache *cache, uint32_t recent) {
  const uint32_t length = cache->kv.length;
  return length > recent ? mllm_kv_cache_demote(&cache->kv, length - recent) : 0;
}

mllm_cache_state mllm_cache_state_of(const mllm_cache *cache) {
  return (mllm_cache_state)cache->kv.state;
}

mllm_status mllm_cache_spill(mllm_cache *cache, mllm_error *error) {
  mllm_clear(error);
  return mllm_kv_cache_spill(&cache->kv, false, error);
}

mllm_status mllm_cache_wake(mllm_cache *cache, mllm_error *error) {
  mllm_clear(error);
  return mllm_kv_cache_wake(&cache->kv, error);
}

mllm_status mllm_cache_publish(mllm_cache *cache, const uint32_t *ids, uint32_t count,
                               const uint8_t *identity, mllm_error *error) {
  mllm_clear(error);
  const mllm_status status = mllm_kv_cache_ready(&cache->kv, error);
  if (status != MLLM_OK) return status;
  if (count > cache->kv.length)
    return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_CACHE,
                     "cache '%s' holds %u tokens, %u cannot become known", cache->kv.info.name,
                     cache->kv.length, count);
  return mllm_kv_publish(cache->kv.pool, cache->kv.blocks, ids, count, identity, error);
}

mllm_status mllm_cache_adopt(mllm_cache *cache, const uint32_t *ids, uint32_t count,
                             const uint8_t *identity, uint32_t *tokens, mllm_error *error) {
  mllm_clear(error);
  *tokens = 0;
  mllm_kv_cache *kv = &cache->kv;
  const mllm_status status = mllm_kv_cache_ready(kv, error);
  if (status != MLLM_OK) return status;
  if (kv->written > 0) /* pages that a caller wrote count too: the table would lose them */
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_CACHE,
                     "cache '%s' holds %u tokens: only an empty one can begin with others'",
                     kv->info.name, kv->written);
  *tokens = mllm_kv_adopt(kv->pool, kv->blocks, ids, count < kv->capacity ? count : kv->capacity,
                          identity);
  kv->length = *tokens;
  kv->written = *tokens;
  return MLLM_OK;
}

mllm_status mllm_kv_pool_create(const mllm_model *model, uint32_t cache, uint64_t bytes,
                                mllm_kv_pool **pool, mllm_error *error) {
  mllm_clear(error);
  *pool = NULL;
  if (cache >= mllm_model_caches(model)) return no_cache(cache, error);
  mllm_kv_pool *made = calloc(1, sizeof *made);
  if (made == NULL) return no_memory(error);
  const mllm_cache_info info = mllm_model_cache_info(model, cache);
  const mllm_status status = mllm_kv_pool_make(made, &info, bytes, error);
  if (status != MLLM_OK) {
    free(made);
    return status;
  }
  made->model = model;
  made->index = cache;
  *pool = made;
  return MLLM_OK;
}

mllm_status mllm_kv_pool_destroy(mllm_kv_pool *pool, mllm_error *error) {
  mllm_clear(error);
  if (pool == NULL) return MLLM_OK;
  if (pool->caches > 0)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "%u conversations still have pages in the pool", pool->caches);
  mllm_kv_forget_all(pool);
  mllm_kv_pool_free(pool);
  free(pool);
  return MLLM_OK;
}

void mllm_cache_destroy(mllm_cache *cache) {
  if (cache == NULL) return;
  if (cache->next != NULL) cache->next->last = cache->last;
  if (cache->last != NULL)
    cache->last->next = cache->next;
  else
    cache->kv.pool->handles = cache->next;
  mllm_kv_cache_free(&cache->kv);
  free(cache);
}

uint64_t mllm_cache_bytes(const mllm_model *model, uint32_t cache, uint32_t max_tokens) {
  if (cache >= mllm_model_caches(model)) return 0;
  const mllm_cache_info info = mllm_model_cache_info(model, cache);
  return mllm_kv_cache_room(&info, max_tokens);
}

mllm_status mllm_session_use_cache(mllm_session *session, uint32_t cache, mllm_cache *used,
                                   mllm_error *error) {
  mllm_clear(error);
  const bool fits = used == NULL || (used->model == session->model && used->index == cache);
  if (cache >= session->context->n_caches || !fits)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "this is no cache %u of the session's model", cache);
  session->context->used[cache] = used == NULL ? &session->context->caches[cache] : &used->kv;
  return MLLM_OK;
}
