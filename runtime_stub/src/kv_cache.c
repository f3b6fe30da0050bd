/* kv_cache.c - pages, block table, and the contiguous view that callers see. */
#include "kv_cache.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "status.h"

mllm_status mllm_kv_cache_create(mllm_kv_cache *cache, const mllm_cache_info *info,
                                 uint32_t max_tokens, mllm_error *error) {
  memset(cache, 0, sizeof *cache);
  cache->info = *info;
  if (max_tokens > info->max_tokens) {
    return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_BOUND,
                     "cache '%s': max_tokens = %u exceeds the compiled bound %u", info->name,
                     max_tokens, info->max_tokens);
  }
  cache->capacity = max_tokens == 0 ? info->max_tokens : max_tokens;
  const mllm_status status = mllm_kv_layout_make(&cache->layout, info, error);
  if (status != MLLM_OK) return status;
  cache->info.page_bytes = cache->layout.bytes[MLLM_KV_NATIVE];
  cache->pages =
      (uint32_t)(((uint64_t)cache->capacity + info->page_tokens - 1) / info->page_tokens);
  uint64_t bytes = 0;
  if (!__builtin_mul_overflow((uint64_t)cache->pages, cache->info.page_bytes, &bytes) &&
      bytes <= SIZE_MAX / 2) {
    cache->pool = mllm_memory_take((size_t)bytes, &cache->memory);
    cache->blocks = calloc(cache->pages, sizeof *cache->blocks);
  }
  if (cache->pool == NULL || cache->blocks == NULL) {
    mllm_kv_cache_free(cache);
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY,
                     "no memory for the %u tokens of cache '%s'", max_tokens, info->name);
  }
  for (uint32_t i = 0; i < cache->pages; i++) cache->blocks[i] = i;
  return MLLM_OK;
}

void mllm_kv_cache_free(mllm_kv_cache *cache) {
  free(cache->memory);
  free(cache->blocks);
  mllm_kv_layout_free(&cache->layout);
  memset(cache, 0, sizeof *cache);
}

uint64_t mllm_kv_cache_bytes(const mllm_kv_cache *cache) {
  return cache->pages * (cache->info.page_bytes + sizeof *cache->blocks);
}

mllm_status mllm_kv_cache_set_length(mllm_kv_cache *cache, uint32_t length, mllm_error *error) {
  if (length > cache->written) {
    return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_CACHE,
                     "cache '%s' holds %u tokens, its length cannot become %u", cache->info.name,
                     cache->written, length);
  }
  cache->length = length;
  cache->written = length;
  cache->pending = 0;
  return MLLM_OK;
}

static unsigned char *page_of(const mllm_kv_cache *cache, uint32_t block) {
  return cache->pool + cache->blocks[block] * cache->layout.bytes[MLLM_KV_NATIVE];
}

mllm_kv_page mllm_kv_cache_page(const mllm_kv_cache *cache, uint32_t block) {
  return (mllm_kv_page){.bytes = page_of(cache, block), .state = MLLM_KV_NATIVE};
}

void mllm_kv_cache_write_rows(mllm_kv_cache *cache, uint32_t layer, uint32_t kind, uint32_t head,
                              uint32_t token, const float *rows, size_t stride, uint32_t count) {
  const uint32_t page_tokens = cache->layout.page_tokens;
  while (count > 0) {
    const uint32_t within = token % page_tokens;
    const uint32_t part = count < page_tokens - within ? count : page_tokens - within;
    mllm_kv_write_rows(&cache->layout, page_of(cache, token / page_tokens), layer, kind, head,
                       within, rows, stride, part);
    token += part;
    rows += part * stride;
    count -= part;
  }
}

mllm_kv_view mllm_kv_cache_view(const mllm_kv_cache *cache, uint32_t layer, uint32_t kind) {
  return (mllm_kv_view){
      .cache = cache,
      .token_stride = cache->layout.head_dim,
      .layer = layer,
      .kind = kind,
  };
}

static mllm_status check_slice(const mllm_kv_cache *cache, uint32_t layer, uint32_t kind,
                               uint32_t tokens, mllm_error *error) {
  if (layer >= cache->info.layers || kind > MLLM_KV_VALUE) {
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "cache '%s' has no layer %u, kind %u", cache->info.name, layer, kind);
  }
  if (tokens > cache->capacity) {
    return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_CACHE,
                     "cache '%s' has room for %u tokens, not %u", cache->info.name, cache->capacity,
                     tokens);
  }
  return MLLM_OK;
}

mllm_status mllm_kv_cache_write(mllm_kv_cache *cache, uint32_t layer, uint32_t kind,
                                const float *data, uint32_t tokens, mllm_error *error) {
  const mllm_status status = check_slice(cache, layer, kind, tokens, error);
  if (status != MLLM_OK) return status;
  const size_t width = cache->info.head_dim;
  for (uint32_t head = 0; head < cache->info.kv_heads; head++) {
    mllm_kv_cache_write_rows(cache, layer, kind, head, 0, data + (size_t)head * tokens * width,
                             width, tokens);
  }
  if (tokens > cache->written) cache->written = tokens;
  return MLLM_OK;
}

mllm_status mllm_kv_cache_read(const mllm_kv_cache *cache, uint32_t layer, uint32_t kind,
                               float *data, uint32_t tokens, mllm_error *error) {
  mllm_status status = check_slice(cache, layer, kind, tokens, error);
  if (status != MLLM_OK) return status;
  if (tokens > cache->written) {
    return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_CACHE,
                     "cache '%s' holds %u tokens, not %u", cache->info.name, cache->written,
                     tokens);
  }
  const uint32_t page_tokens = cache->layout.page_tokens;
  for (uint32_t head = 0; head < cache->info.kv_heads; head++) {
    for (uint32_t token = 0; token < tokens; token += page_tokens) {
      const mllm_kv_page page = mllm_kv_cache_page(cache, token / page_tokens);
      const uint32_t count = tokens - token < page_tokens ? tokens - token : page_tokens;
      mllm_kv_read_rows(&cache->layout, page.bytes, page.state, layer, kind, head, 0, count,
                        data + ((size_t)head * tokens + token) * cache->layout.head_dim);
    }
  }
  return MLLM_OK;
}
