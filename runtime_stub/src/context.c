/* context.c - making and ending a context; the cache's part in a run. */
#include "context.h"

#include <stdlib.h>

#include "status.h"

mllm_status mllm_context_create_with(const mllm_ops *ops, uint32_t threads, uint32_t max_tokens,
                                     const mllm_cache_info *caches, uint32_t n_caches,
                                     mllm_context **context, mllm_error *error) {
  *context = NULL;
  mllm_context *made = calloc(1, sizeof *made);
  if (made == NULL) {
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for a context");
  }
  made->ops = ops;
  made->threads = mllm_threads_create(threads);
  made->caches = calloc((size_t)n_caches + 1, sizeof *made->caches);
  made->used = calloc((size_t)n_caches + 1, sizeof *made->used);
  if (made->threads == NULL || made->caches == NULL || made->used == NULL) {
    mllm_context_destroy(made);
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for %u threads",
                     threads);
  }
  for (uint32_t i = 0; i < n_caches; i++) {
    const mllm_status status =
        mllm_kv_cache_create(&made->caches[i], &caches[i], max_tokens, error);
    if (status != MLLM_OK) {
      mllm_context_destroy(made);
      return status;
    }
    made->used[i] = &made->caches[i];
    made->n_caches++;
  }
  *context = made;
  return MLLM_OK;
}

mllm_status mllm_context_create(const mllm_context_options *options, mllm_context **context,
                                mllm_error *error) {
  static const mllm_context_options defaults = {0};
  mllm_clear(error);
  if (options == NULL) options = &defaults;
  *context = NULL;
  const mllm_ops *ops = NULL;
  const mllm_status status = mllm_choose_ops(options->cpu, &ops, error);
  if (status != MLLM_OK) return status;
  return mllm_context_create_with(ops, options->threads, 0, options->caches, options->n_caches,
                                  context, error);
}

void mllm_context_destroy(mllm_context *context) {
  if (context == NULL) return;
  mllm_threads_destroy(context->threads);
  for (uint32_t i = 0; i < context->n_caches; i++) mllm_kv_cache_free(&context->caches[i]);
  free(context->caches);
  free(context->used);
  free(context);
}

mllm_kv_cache *mllm_context_cache(const mllm_context *context, int32_t cache) {
  if (cache < 0 || (uint32_t)cache >= context->n_caches) return NULL;
  return context->used[cache];
}

uint32_t mllm_context_cache_length(const mllm_context *context, int32_t cache) {
  const mllm_kv_cache *kv = mllm_context_cache(context, cache);
  return kv == NULL ? 0 : kv->length;
}

void mllm_context_begin_run(mllm_context *context, int32_t cache) {
  mllm_kv_cache *kv = mllm_context_cache(context, cache);
  if (kv != NULL) kv->pending = 0;
}

void mllm_context_end_run(mllm_context *context, int32_t cache) {
  mllm_kv_cache *kv = mllm_context_cache(context, cache);
  if (kv == NULL) return;
  kv->length += kv->pending;
  if (kv->pending > 0) kv->written = kv->length;
  kv->pending = 0;
  mllm_kv_cache_settle(kv);
}

mllm_status mllm_context_cache_set_length(mllm_context *context, int32_t cache, uint32_t length,
                                          mllm_error *error) {
  mllm_clear(error);
  mllm_kv_cache *kv = mllm_context_cache(context, cache);
  if (kv == NULL) {
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT, "no cache %d", cache);
  }
  return mllm_kv_cache_set_length(kv, length, error);
}
