/* cache.c - caches apart from sessions, and which of them a session uses. */
#include <stdlib.h>

#include "mllm_kv.h"
#include "session.h"
#include "status.h"

struct mllm_cache {
  const mllm_model *model;
  uint32_t index;
  mllm_kv_cache kv;
};

mllm_status mllm_cache_create(const mllm_model *model, uint32_t cache, uint32_t max_tokens,
                              mllm_cache **made, mllm_error *error) {
  mllm_clear(error);
  *made = NULL;
  if (cache >= mllm_model_caches(model))
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT, "the model has no cache %u",
                     cache);
  mllm_cache *found = calloc(1, sizeof *found);
  if (found == NULL)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for a cache");
  const mllm_cache_info info = mllm_model_cache_info(model, cache);
  const mllm_status status = mllm_kv_cache_create(&found->kv, &info, max_tokens, error);
  if (status != MLLM_OK) {
    free(found);
    return status;
  }
  found->model = model;
  found->index = cache;
  *made = found;
  return MLLM_OK;
}

void mllm_cache_destroy(mllm_cache *cache) {
  if (cache == NULL) return;
  mllm_kv_cache_free(&cache->kv);
  free(cache);
}

uint64_t mllm_cache_bytes(const mllm_model *model, uint32_t cache, uint32_t max_tokens) {
  if (cache >= mllm_model_caches(model)) return 0;
  const mllm_cache_info info = mllm_model_cache_info(model, cache);
  const uint64_t tokens = max_tokens == 0 ? info.max_tokens : max_tokens;
  return (tokens + info.page_tokens - 1) / info.page_tokens * info.page_bytes;
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
