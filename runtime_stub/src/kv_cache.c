/* kv_cache.c - pages, block table, and the contiguous view that callers see. */
#include "kv_cache.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "program.h"
#include "status.h"

uint64_t mllm_cache_page_bytes(uint64_t layers, uint64_t kv_heads, uint64_t page_tokens,
                               uint64_t head_dim) {
  uint64_t bytes = 2 * sizeof(float);
  if (__builtin_mul_overflow(bytes, layers, &bytes) ||
      __builtin_mul_overflow(bytes, kv_heads, &bytes) ||
      __builtin_mul_overflow(bytes, page_tokens, &bytes) ||
      __builtin_mul_overflow(bytes, head_dim, &bytes) || bytes > SIZE_MAX / 2) {
    return 0;
  }
  return bytes;
}

mllm_status mllm_kv_cache_create(mllm_kv_cache *cache, const mllm_cache_info *info,
                                 uint32_t max_tokens, mllm_error *error) {
  memset(cache, 0, sizeof *cache);
  cache->info = *info;
  cache->info.page_bytes =
      mllm_cache_page_bytes(info->layers, info->kv_heads, info->page_tokens, info->head_dim);
  if (max_tokens > info->max_tokens) {
    return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_BOUND,
                     "cache '%s': max_tokens = %u exceeds the compiled bound %u", info->name,
                     max_tokens, info->max_tokens);
  }
  cache->capacity = max_tokens == 0 ? info->max_tokens : max_tokens;
  if (cache->info.page_bytes == 0 || cache->capacity == 0 || info->format != MLLM_KV_F32) {
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_CACHE,
                     "cache '%s' has no supported shape or format", info->name);
  }
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

/* Bytes from a page's start to its rows of a layer, kind and head. */
static size_t offset_in_page(const mllm_kv_cache *cache, uint32_t layer, uint32_t kind,
                             uint32_t head) {
  const size_t rows = ((size_t)layer * 2 + kind) * cache->info.kv_heads + head;
  return rows * cache->info.page_tokens * cache->info.head_dim * sizeof(float);
}

float *mllm_kv_cache_row(const mllm_kv_cache *cache, uint32_t layer, uint32_t kind, uint32_t head,
                         uint32_t token) {
  const size_t page = cache->blocks[token / cache->info.page_tokens];
  unsigned char *start = cache->pool + page * (size_t)cache->info.page_bytes;
  float *rows = (float *)(void *)(start + offset_in_page(cache, layer, kind, head));
  return rows + (size_t)(token % cache->info.page_tokens) * cache->info.head_dim;
}

mllm_kv_view mllm_kv_cache_view(const mllm_kv_cache *cache, uint32_t layer, uint32_t kind,
                                uint32_t tokens) {
  return (mllm_kv_view){
      .base = cache->pool + offset_in_page(cache, layer, kind, 0),
      .blocks = cache->blocks,
      .page_stride = (size_t)cache->info.page_bytes,
      .token_stride = cache->info.head_dim,
      .head_stride = (size_t)cache->info.page_tokens * cache->info.head_dim,
      .page_tokens = cache->info.page_tokens,
      .format = cache->info.format,
      .length = tokens,
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
    for (uint32_t token = 0; token < tokens; token++) {
      memcpy(mllm_kv_cache_row(cache, layer, kind, head, token),
             data + ((size_t)head * tokens + token) * width, width * sizeof(float));
    }
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
  const size_t width = cache->info.head_dim;
  for (uint32_t head = 0; head < cache->info.kv_heads; head++) {
    for (uint32_t token = 0; token < tokens; token++) {
      memcpy(data + ((size_t)head * tokens + token) * width,
             mllm_kv_cache_row(cache, layer, kind, head, token), width * sizeof(float));
    }
  }
  return MLLM_OK;
}
