/* kv_cache.c - block tables, copying on write, and the contiguous view that callers see. */
#include "kv_cache.h"

#include <stdlib.h>
#include <string.h>

#include "../kv/spill.h"
#include "status.h"

static mllm_status too_many(const mllm_cache_info *info, uint32_t tokens, mllm_error *error) {
  return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_BOUND,
                   "cache '%s': max_tokens = %u exceeds the compiled bound %u", info->name, tokens,
                   info->max_tokens);
}

static uint32_t pages_of(uint32_t tokens, uint32_t page_tokens) {
  return tokens / page_tokens + (tokens % page_tokens != 0);
}

mllm_status mllm_kv_cache_create_in(mllm_kv_cache *cache, mllm_kv_pool *pool, uint32_t max_tokens,
                                    mllm_error *error) {
  memset(cache, 0, sizeof *cache);
  if (max_tokens > pool->info.max_tokens) return too_many(&pool->info, max_tokens, error);
  cache->info = pool->info;
  cache->layout = pool->layout;
  cache->capacity = max_tokens == 0 ? pool->info.max_tokens : max_tokens;
  cache->pages = pages_of(cache->capacity, pool->info.page_tokens);
  cache->blocks = calloc((size_t)cache->pages + 1, sizeof *cache->blocks);
  if (cache->blocks == NULL) {
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY,
                     "no memory for the %u pages of cache '%s'", cache->pages, cache->info.name);
  }
  for (uint32_t i = 0; i < cache->pages; i++) cache->blocks[i] = MLLM_KV_NO_PAGE;
  cache->pool = pool;
  cache->used = ++pool->clock;
  pool->caches++;
  return MLLM_OK;
}

uint64_t mllm_kv_cache_room(const mllm_cache_info *info, uint32_t max_tokens) {
  mllm_kv_layout layout;
  if (mllm_kv_layout_make(&layout, info, NULL) != MLLM_OK) return 0;
  const uint32_t tokens = max_tokens == 0 ? info->max_tokens : max_tokens;
  const uint64_t bytes = mllm_kv_pool_room(&layout, pages_of(tokens, info->page_tokens));
  mllm_kv_layout_free(&layout);
  return bytes;
}

mllm_status mllm_kv_cache_create(mllm_kv_cache *cache, const mllm_cache_info *info,
                                 uint32_t max_tokens, mllm_error *error) {
  memset(cache, 0, sizeof *cache);
  if (max_tokens > info->max_tokens) return too_many(info, max_tokens, error);
  mllm_kv_pool *own = calloc(1, sizeof *own);
  if (own == NULL) {
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for cache '%s'",
                     info->name);
  }
  mllm_status status = mllm_kv_pool_make(own, info, mllm_kv_cache_room(info, max_tokens), error);
  if (status == MLLM_OK) status = mllm_kv_cache_create_in(cache, own, max_tokens, error);
  if (status != MLLM_OK) {
    mllm_kv_pool_free(own);
    free(own);
    return status;
  }
  cache->own = own;
  return MLLM_OK;
}

/* Gives back the pages from a block on. */
static void give_back(mllm_kv_cache *cache, uint32_t first) {
  for (uint32_t i = first; i < cache->pages && cache->blocks[i] != MLLM_KV_NO_PAGE; i++) {
    mllm_kv_page_release(cache->pool, cache->blocks[i]);
    cache->blocks[i] = MLLM_KV_NO_PAGE;
  }
}

void mllm_kv_cache_free(mllm_kv_cache *cache) {
  if (cache->pool != NULL) {
    mllm_kv_cache_empty(cache);
    cache->pool->caches--;
  }
  free(cache->blocks);
  if (cache->own != NULL) mllm_kv_pool_free(cache->own);
  free(cache->own);
  memset(cache, 0, sizeof *cache);
}

uint64_t mllm_kv_cache_bytes(const mllm_kv_cache *cache) {
  const uint64_t pages = cache->own == NULL ? 0 : cache->own->granules * cache->own->granule_bytes;
  return pages + cache->pages * sizeof *cache->blocks;
}

mllm_status mllm_kv_cache_set_length(mllm_kv_cache *cache, uint32_t length, mllm_error *error) {
  if (length == 0) {
    mllm_kv_cache_empty(cache);
    return MLLM_OK;
  }
  const mllm_status status = mllm_kv_cache_ready(cache, error);
  if (status != MLLM_OK) return status;
  if (length > cache->written) {
    return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_CACHE,
                     "cache '%s' holds %u tokens, its length cannot become %u", cache->info.name,
                     cache->written, length);
  }
  cache->length = length;
  cache->written = length;
  cache->pending = 0;
  give_back(cache, pages_of(length, cache->layout.page_tokens));
  return MLLM_OK;
}

mllm_status mllm_kv_cache_ready(const mllm_kv_cache *cache, mllm_error *error) {
  if (cache->state == MLLM_CACHE_AWAKE) return MLLM_OK;
  if (cache->state == MLLM_CACHE_SLEEPING)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ASLEEP,
                     "cache '%s' sleeps, with %u tokens", cache->info.name, cache->length);
  return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ASLEEP,
                   "the tokens of cache '%s' were dropped", cache->info.name);
}

mllm_kv_page mllm_kv_cache_page(const mllm_kv_cache *cache, uint32_t block) {
  const uint32_t page = cache->blocks[block];
  return (mllm_kv_page){.bytes = mllm_kv_page_bytes_of(cache->pool, page),
                        .state = (mllm_kv_state)mllm_kv_entry_of(cache->pool, page)->state};
}

/* A block's page becomes one that this conversation alone has, with its first `kept` tokens. */
static bool make_writable(mllm_kv_cache *cache, uint32_t block, uint32_t kept) {
  mllm_kv_pool *pool = cache->pool;
  const uint32_t old = cache->blocks[block];
  if (old != MLLM_KV_NO_PAGE && mllm_kv_entry_of(pool, old)->references == 1 &&
      mllm_kv_entry_of(pool, old)->state == MLLM_KV_NATIVE) {
    return true;
  }
  const uint32_t made = mllm_kv_page_take(pool, MLLM_KV_NATIVE);
  if (made == MLLM_KV_NO_PAGE) return false;
  if (old != MLLM_KV_NO_PAGE) {
    const mllm_kv_page from = mllm_kv_cache_page(cache, block);
    unsigned char *to = mllm_kv_page_bytes_of(pool, made);
    mllm_kv_entry_of(pool, made)->is_rounded =
        mllm_kv_entry_of(pool, old)->is_rounded || from.state != MLLM_KV_NATIVE;
    if (from.state == MLLM_KV_NATIVE) {
      mllm_kv_copy_tokens(&cache->layout, from.bytes, to, kept);
      pool->counted.copied_pages++;
    } else {
      mllm_kv_promote(&cache->layout, from.bytes, from.state, to);
    }
    mllm_kv_page_release(pool, old);
  }
  cache->blocks[block] = made;
  return true;
}

mllm_status mllm_kv_cache_reserve(mllm_kv_cache *cache, uint32_t first, uint32_t end,
                                  mllm_error *error) {
  const mllm_status status = mllm_kv_cache_ready(cache, error);
  if (status != MLLM_OK) return status;
  const uint32_t page_tokens = cache->layout.page_tokens;
  cache->used = ++cache->pool->clock;
  for (uint32_t block = first / page_tokens; block < pages_of(end, page_tokens); block++) {
    const uint32_t start = block * page_tokens;
    const uint32_t written = cache->written > start ? cache->written - start : 0;
    if (make_writable(cache, block, written < page_tokens ? written : page_tokens)) continue;
    give_back(cache, pages_of(cache->written, page_tokens));
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_CACHE,
                     "cache '%s' has no page left for tokens %u to %u: its pool has %llu bytes",
                     cache->info.name, first, end,
                     (unsigned long long)cache->pool->granules * cache->pool->granule_bytes);
  }
  return MLLM_OK;
}

/* A page that nobody else has falls where it lies. */
static uint64_t demote_in_place(mllm_kv_pool *pool, uint32_t page, mllm_kv_state to) {
  unsigned char *bytes = mllm_kv_page_bytes_of(pool, page);
  const uint64_t before = pool->counted.used_bytes;
  mllm_kv_demote(&pool->layout, bytes, pool->spare, to);
  memcpy(bytes, pool->spare, pool->layout.bytes[to]);
  mllm_kv_page_shrink(pool, page, to);
  pool->counted.demoted_pages++;
  return before - pool->counted.used_bytes;
}

uint64_t mllm_kv_cache_demote_block(mllm_kv_cache *cache, uint32_t block) {
  mllm_kv_pool *pool = cache->pool;
  const uint32_t old = cache->blocks[block];
  const mllm_kv_state to = block == 0 ? MLLM_KV_DEMOTED_SINKS : MLLM_KV_DEMOTED;
  const uint32_t smaller = pool->granules_of[to];
  if (mllm_kv_entry_of(pool, old)->state != MLLM_KV_NATIVE) return 0;
  if (pool->spare != NULL && mllm_kv_entry_of(pool, old)->references == 1 && smaller > 0 &&
      smaller <= pool->granules_of[MLLM_KV_NATIVE])
    return demote_in_place(pool, old, to);
  const uint32_t made = mllm_kv_page_take(pool, to);
  if (made == MLLM_KV_NO_PAGE) return 0;
  const unsigned char *from = mllm_kv_page_bytes_of(pool, old);
  mllm_kv_demote(&cache->layout, from, mllm_kv_page_bytes_of(pool, made), to);
  const bool was_last = mllm_kv_entry_of(pool, old)->references == 1;
  mllm_kv_page_release(pool, old);
  cache->blocks[block] = made;
  pool->counted.demoted_pages++;
  const uint32_t less = pool->granules_of[MLLM_KV_NATIVE] - pool->granules_of[to];
  return was_last ? (uint64_t)less * pool->granule_bytes : 0;
}

uint64_t mllm_kv_cache_demote(mllm_kv_cache *cache, uint32_t before) {
  uint64_t bytes = 0;
  if (cache->state != MLLM_CACHE_AWAKE) return 0;
  const uint32_t limit = before < cache->length ? before : cache->length;
  for (uint32_t block = 0; (block + 1) * cache->layout.page_tokens <= limit; block++) {
    bytes += mllm_kv_cache_demote_block(cache, block);
  }
  return bytes;
}

void mllm_kv_cache_settle(mllm_kv_cache *cache) {
  if (cache->layout.recent > 0) {
    (void)mllm_kv_cache_demote(cache, mllm_kv_old(&cache->layout, cache->length));
  }
}

mllm_status mllm_kv_cache_fork(const mllm_kv_cache *from, mllm_kv_cache *made, mllm_error *error) {
  if (from->own != NULL) {
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_CACHE,
                     "cache '%s' has a pool of its own: only those in one pool share pages",
                     from->info.name);
  }
  mllm_status status = mllm_kv_cache_ready(from, error);
  if (status == MLLM_OK) status = mllm_kv_cache_create_in(made, from->pool, from->capacity, error);
  if (status != MLLM_OK) return status;
  for (uint32_t i = 0; i < from->pages && from->blocks[i] != MLLM_KV_NO_PAGE; i++) {
    mllm_kv_page_retain(from->pool, from->blocks[i]);
    made->blocks[i] = from->blocks[i];
  }
  made->length = from->length;
  made->written = from->written;
  return MLLM_OK;
}

void mllm_kv_cache_write_rows(mllm_kv_cache *cache, uint32_t layer, uint32_t kind, uint32_t head,
                              uint32_t token, const float *rows, size_t stride, uint32_t count) {
  const uint32_t page_tokens = cache->layout.page_tokens;
  while (count > 0) {
    const uint32_t within = token % page_tokens;
    const uint32_t part = count < page_tokens - within ? count : page_tokens - within;
    unsigned char *page = mllm_kv_page_bytes_of(cache->pool, cache->blocks[token / page_tokens]);
    mllm_kv_write_rows(&cache->layout, page, layer, kind, head, within, rows, stride, part);
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
  mllm_status status = check_slice(cache, layer, kind, tokens, error);
  if (status == MLLM_OK) status = mllm_kv_cache_reserve(cache, 0, tokens, error);
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
  mllm_status status = mllm_kv_cache_ready(cache, error);
  if (status == MLLM_OK) status = check_slice(cache, layer, kind, tokens, error);
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
