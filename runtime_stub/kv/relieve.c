/* relieve.c - making room: what goes first, and whether there would be enough. */
#include <stdlib.h>

#include "../src/cache.h"
#include "../src/status.h"
#include "prefix.h"
#include "spill.h"

mllm_status mllm_cache_set_priority(mllm_cache *cache, mllm_priority priority, mllm_error *error) {
  mllm_clear(error);
  if ((uint32_t)priority > MLLM_PRIORITY_LOW)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT, "there is no priority %u",
                     (unsigned)priority);
  cache->priority = priority;
  return MLLM_OK;
}

mllm_status mllm_kv_pool_allow(mllm_kv_pool *pool, uint32_t what, uint32_t recent,
                               mllm_error *error) {
  mllm_clear(error);
  const bool falls = (what & MLLM_KV_MAY_DEMOTE) != 0;
  if (falls && pool->spare == NULL) {
    pool->spare = malloc(pool->layout.bytes[MLLM_KV_NATIVE]);
    if (pool->spare == NULL)
      return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY,
                       "no memory for a page that falls");
  }
  pool->allowed = what;
  pool->recent = recent;
  return MLLM_OK;
}

/* The next conversation of a priority, from those used longest ago on; *after goes with it. */
static mllm_cache *next_of(const mllm_kv_pool *pool, mllm_priority priority, uint64_t *after) {
  mllm_cache *found = NULL;
  for (mllm_cache *each = pool->handles; each != NULL; each = each->next) {
    if (each->priority != priority || each->kv.used <= *after) continue;
    if (found == NULL || each->kv.used < found->kv.used) found = each;
  }
  if (found != NULL) *after = found->kv.used;
  return found;
}

/* What falling of a page would give; 0: it may not, or others need it as it is. */
static uint64_t gain(const mllm_kv_cache *kv, uint32_t block) {
  const mllm_kv_pool *pool = kv->pool;
  const uint32_t page = kv->blocks[block];
  const uint32_t page_tokens = kv->layout.page_tokens;
  const uint32_t old = kv->length > pool->recent ? kv->length - pool->recent : 0;
  if (kv->state != MLLM_CACHE_AWAKE || page == MLLM_KV_NO_PAGE || old / page_tokens <= block)
    return 0;
  const mllm_kv_entry *entry = mllm_kv_entry_of(pool, page);
  if (entry->state != MLLM_KV_NATIVE || entry->references > 1) return 0;
  const uint32_t to = pool->granules_of[block == 0 ? MLLM_KV_DEMOTED_SINKS : MLLM_KV_DEMOTED];
  const uint32_t from = pool->granules_of[MLLM_KV_NATIVE];
  return to == 0 || to >= from ? 0 : (uint64_t)(from - to) * pool->granule_bytes;
}

/* A relief that goes on: bytes that were used when it began, and what it is for. */
typedef struct relief {
  mllm_kv_pool *pool;
  uint64_t before;
  uint64_t bytes;
  mllm_priority below;
  mllm_error *error; /* what a file refused last */
} relief;

static uint64_t freed_by(const relief *r) { return r->before - r->pool->counted.used_bytes; }

/* Forgets beginnings that nobody has as long as it is needed; true: it is enough. */
static bool is_enough(const relief *r) {
  while (freed_by(r) < r->bytes && mllm_kv_forget_page(r->pool)) continue;
  return freed_by(r) >= r->bytes;
}

static void let_fall(const relief *r, mllm_cache *cache) {
  mllm_kv_cache *kv = &cache->kv;
  for (uint32_t block = 0; block < kv->pages && freed_by(r) < r->bytes; block++) {
    if (gain(kv, block) > 0) (void)mllm_kv_cache_demote_block(kv, block);
  }
}

static uint64_t bytes_of_page(const mllm_kv_pool *pool, uint32_t page) {
  return (uint64_t)pool->granules_of[mllm_kv_entry_of(pool, page)->state] * pool->granule_bytes;
}

/* Bytes of the pages that no other conversation has. */
static uint64_t alone(const mllm_kv_cache *kv, uint32_t *pages) {
  uint64_t bytes = 0;
  *pages = 0;
  for (uint32_t i = 0; i < kv->pages; i++) {
    const uint32_t page = kv->blocks[i];
    if (page == MLLM_KV_NO_PAGE || mllm_kv_page_holders(kv->pool, page) > 1) continue;
    bytes += bytes_of_page(kv->pool, page);
    ++*pages;
  }
  return bytes;
}

static void let_sleep(const relief *r, mllm_cache *cache) {
  uint32_t pages = 0;
  if (alone(&cache->kv, &pages) > 0) (void)mllm_kv_cache_spill(&cache->kv, false, r->error);
}

static void let_go(const relief *r, mllm_cache *cache) {
  (void)r;
  uint32_t pages = 0;
  if (alone(&cache->kv, &pages) > 0) mllm_kv_cache_drop(&cache->kv);
}

/* Does one thing to conversations of priorities from..to, the least urgent first. */
static bool each_of(const relief *r, mllm_priority last,
                    void (*act)(const relief *, mllm_cache *)) {
  for (uint32_t p = MLLM_PRIORITY_LOW; p > (uint32_t)r->below && p >= (uint32_t)last; p--) {
    uint64_t after = 0;
    mllm_cache *cache = next_of(r->pool, (mllm_priority)p, &after);
    for (; cache != NULL; cache = next_of(r->pool, (mllm_priority)p, &after)) {
      act(r, cache);
      if (is_enough(r)) return true;
    }
  }
  return false;
}

mllm_status mllm_kv_pool_relieve(mllm_kv_pool *pool, uint64_t bytes, mllm_priority below,
                                 uint64_t *freed, mllm_error *error) {
  mllm_clear(error);
  const relief r = {pool, pool->counted.used_bytes, bytes, below, error};
  const bool done =
      is_enough(&r) ||
      ((pool->allowed & MLLM_KV_MAY_DEMOTE) != 0 && each_of(&r, MLLM_PRIORITY_NORMAL, let_fall)) ||
      (pool->spill != NULL && each_of(&r, MLLM_PRIORITY_NORMAL, let_sleep)) ||
      ((pool->allowed & MLLM_KV_MAY_DROP) != 0 && each_of(&r, MLLM_PRIORITY_LOW, let_go));
  *freed = freed_by(&r);
  if (done) {
    mllm_clear(error);
    return MLLM_OK;
  }
  if (error != NULL && error->status != MLLM_OK) return error->status;
  return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_CACHE,
                   "%llu bytes of the pool of cache '%s' came free, not %llu",
                   (unsigned long long)*freed, pool->info.name, (unsigned long long)bytes);
}

/* Bytes that a conversation's relief would free; *slots of the file are left for it. */
static uint64_t relief_of(const mllm_cache *cache, uint32_t *slots) {
  const mllm_kv_cache *kv = &cache->kv;
  const mllm_kv_pool *pool = kv->pool;
  uint64_t falls = 0;
  uint32_t pages = 0;
  const uint64_t all = alone(kv, &pages);
  for (uint32_t i = 0; i < kv->pages; i++) falls += gain(kv, i);
  const bool drops =
      (pool->allowed & MLLM_KV_MAY_DROP) != 0 && cache->priority == MLLM_PRIORITY_LOW;
  if (pool->spill != NULL && pages <= *slots) {
    *slots -= pages;
    return all;
  }
  if (drops) return all;
  return (pool->allowed & MLLM_KV_MAY_DEMOTE) != 0 ? falls : 0;
}

int mllm_kv_pool_admits(const mllm_kv_pool *pool, uint32_t tokens, mllm_priority priority) {
  const uint64_t pages = (uint64_t)tokens / pool->info.page_tokens +
                         (tokens % pool->info.page_tokens != 0);
  const uint64_t all = (uint64_t)pool->granules * pool->granule_bytes;
  const uint64_t needed = pages * pool->granules_of[MLLM_KV_NATIVE] * pool->granule_bytes;
  if (tokens > pool->info.max_tokens || needed > all) return 0;
  uint64_t room = all - pool->counted.used_bytes;
  for (uint32_t i = 0; i < pool->numbers; i++) {
    const uint32_t page = mllm_kv_page_at(pool, i);
    if (pool->table[i].references == 0 || mllm_kv_page_holders(pool, page) > 0) continue;
    room += bytes_of_page(pool, page);
  }
  uint32_t slots = mllm_kv_spill_room(pool);
  for (uint32_t p = MLLM_PRIORITY_LOW; p > (uint32_t)priority; p--) {
    uint64_t after = 0;
    const mllm_cache *cache = next_of(pool, (mllm_priority)p, &after);
    for (; room < needed && cache != NULL; cache = next_of(pool, (mllm_priority)p, &after)) {
      room += relief_of(cache, &slots);
    }
  }
  return room >= needed;
}
