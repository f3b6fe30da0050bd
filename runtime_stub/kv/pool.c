/* pool.c - granules, numbers of pages and who holds them. */
#include "pool.h"

#include <stdlib.h>
#include <string.h>

#include "../src/memory.h"
#include "../src/status.h"
#include "prefix.h"
#include "spill.h"

enum { GRANULES = 64 /* of a native page: what is lost at a page's end is less than this part */ };

static size_t granule_bytes_of(const mllm_kv_layout *layout) {
  const size_t part = layout->bytes[MLLM_KV_NATIVE] / GRANULES;
  return part < 64 ? 64 : (part + 63) / 64 * 64;
}

static uint64_t granules_for(const mllm_kv_layout *layout, mllm_kv_state state) {
  const size_t granule = granule_bytes_of(layout);
  return (layout->bytes[state] + granule - 1) / granule;
}

uint64_t mllm_kv_pool_room(const mllm_kv_layout *layout, uint32_t pages) {
  const uint64_t spare = layout->recent > 0 ? granules_for(layout, MLLM_KV_DEMOTED_SINKS) : 0;
  return (granules_for(layout, MLLM_KV_NATIVE) * pages + spare) * granule_bytes_of(layout);
}

static uint32_t smallest(const mllm_kv_pool *pool) {
  uint32_t least = pool->granules_of[MLLM_KV_NATIVE];
  for (uint32_t state = 0; state < MLLM_KV_STATES; state++) {
    const uint32_t count = pool->granules_of[state];
    if (count > 0 && count < least) least = count;
  }
  return least;
}

static bool take_tables(mllm_kv_pool *pool) {
  pool->numbers = pool->granules / smallest(pool);
  if (pool->numbers > MLLM_KV_PLACES) pool->numbers = MLLM_KV_PLACES;
  pool->region =
      mllm_memory_take((size_t)pool->granules * pool->granule_bytes, &pool->memory);
  pool->taken = calloc(pool->granules / 64 + 1, sizeof *pool->taken);
  pool->table = calloc((size_t)pool->numbers + 1, sizeof *pool->table);
  pool->owners = calloc((size_t)pool->granules + 1, sizeof *pool->owners);
  if (pool->region == NULL || pool->taken == NULL || pool->table == NULL || pool->owners == NULL) {
    return false;
  }
  for (uint32_t i = 0; i < pool->numbers; i++) pool->table[i].next = i + 1;
  pool->table[pool->numbers].next = MLLM_KV_NO_PAGE;
  return true;
}

mllm_status mllm_kv_pool_make(mllm_kv_pool *pool, const mllm_cache_info *info, uint64_t bytes,
                              mllm_error *error) {
  memset(pool, 0, sizeof *pool);
  pool->info = *info;
  const mllm_status status = mllm_kv_layout_make(&pool->layout, info, error);
  if (status != MLLM_OK) return status;
  pool->info.page_bytes = pool->layout.bytes[MLLM_KV_NATIVE];
  pool->granule_bytes = granule_bytes_of(&pool->layout);
  const uint64_t granules = bytes / pool->granule_bytes;
  for (uint32_t state = 0; state < MLLM_KV_STATES; state++) {
    pool->granules_of[state] = (uint32_t)granules_for(&pool->layout, (mllm_kv_state)state);
  }
  pool->granules = (uint32_t)granules;
  const bool fits = granules < UINT32_MAX / 2 && granules >= pool->granules_of[MLLM_KV_NATIVE];
  if (fits && take_tables(pool)) return MLLM_OK;
  mllm_kv_pool_free(pool);
  return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY,
                   "no memory for %llu bytes of pages of cache '%s', one has %llu",
                   (unsigned long long)bytes, info->name,
                   (unsigned long long)mllm_kv_page_bytes(info));
}

void mllm_kv_pool_free(mllm_kv_pool *pool) {
  mllm_kv_spill_free(pool->spill);
  free(pool->spare);
  free(pool->memory);
  free(pool->taken);
  free(pool->table);
  free(pool->owners);
  free(pool->known);
  free(pool->buckets);
  mllm_kv_layout_free(&pool->layout);
  memset(pool, 0, sizeof *pool);
}

void mllm_kv_mark(mllm_kv_pool *pool, uint32_t first, uint32_t count, bool taken) {
  for (uint32_t i = first; i < first + count; i++) {
    const uint64_t bit = (uint64_t)1 << i % 64;
    pool->taken[i / 64] = taken ? pool->taken[i / 64] | bit : pool->taken[i / 64] & ~bit;
  }
}

/* The first run of free granules that is long enough, in the order of addresses. */
static uint32_t find_run(mllm_kv_pool *pool, uint32_t count) {
  while (pool->lowest < pool->granules && mllm_kv_is_taken(pool, pool->lowest)) pool->lowest++;
  uint32_t run = 0;
  for (uint32_t i = pool->lowest; i < pool->granules; i++) {
    if (i % 64 == 0 && pool->taken[i / 64] == UINT64_MAX) {
      run = 0;
      i += 63;
      continue;
    }
    run = mllm_kv_is_taken(pool, i) ? 0 : run + 1;
    if (run == count) return i + 1 - count;
  }
  return MLLM_KV_NO_PAGE;
}

uint32_t mllm_kv_page_take(mllm_kv_pool *pool, mllm_kv_state state) {
  const uint32_t count = pool->granules_of[state];
  if (count == 0) return MLLM_KV_NO_PAGE;
  uint32_t granule = find_run(pool, count);
  while (granule == MLLM_KV_NO_PAGE || pool->first_free >= pool->numbers) {
    if (!mllm_kv_forget_page(pool)) return MLLM_KV_NO_PAGE;
    granule = find_run(pool, count);
  }
  const uint32_t place = pool->first_free;
  mllm_kv_mark(pool, granule, count, true);
  mllm_kv_entry *entry = &pool->table[place];
  pool->first_free = entry->next;
  entry->granule = granule;
  entry->state = state;
  entry->references = 1;
  entry->is_rounded = false;
  mllm_kv_statistics *counted = &pool->counted;
  counted->pages[state]++;
  counted->used_bytes += (uint64_t)count * pool->granule_bytes;
  if (counted->used_bytes > counted->most_bytes) counted->most_bytes = counted->used_bytes;
  return mllm_kv_page_at(pool, place);
}

bool mllm_kv_page_retain(mllm_kv_pool *pool, uint32_t page) {
  if (!mllm_kv_is_current(pool, page)) return false;
  pool->table[page & MLLM_KV_PLACES].references++;
  return true;
}

bool mllm_kv_page_release(mllm_kv_pool *pool, uint32_t page) {
  if (!mllm_kv_is_current(pool, page)) return false;
  mllm_kv_entry *entry = &pool->table[page & MLLM_KV_PLACES];
  if (--entry->references > 0) return true;
  const uint32_t count = pool->granules_of[entry->state];
  mllm_kv_mark(pool, entry->granule, count, false);
  if (entry->granule < pool->lowest) pool->lowest = entry->granule;
  pool->counted.pages[entry->state]--;
  pool->counted.used_bytes -= (uint64_t)count * pool->granule_bytes;
  entry->generation++;
  entry->next = pool->first_free;
  pool->first_free = page & MLLM_KV_PLACES;
  return true;
}

void mllm_kv_page_shrink(mllm_kv_pool *pool, uint32_t page, mllm_kv_state state) {
  mllm_kv_entry *entry = mllm_kv_entry_of(pool, page);
  const uint32_t count = pool->granules_of[state];
  const uint32_t less = pool->granules_of[entry->state] - count;
  const uint32_t first = entry->granule + count;
  mllm_kv_mark(pool, first, less, false);
  if (less > 0 && first < pool->lowest) pool->lowest = first;
  pool->counted.pages[entry->state]--;
  pool->counted.pages[state]++;
  pool->counted.used_bytes -= (uint64_t)less * pool->granule_bytes;
  entry->state = state;
}

mllm_kv_statistics mllm_kv_pool_statistics(const mllm_kv_pool *pool) {
  mllm_kv_statistics found = pool->counted;
  uint32_t run = 0;
  uint32_t longest = 0;
  for (uint32_t i = 0; i < pool->granules; i++) {
    run = mllm_kv_is_taken(pool, i) ? 0 : run + 1;
    if (run > longest) longest = run;
  }
  for (uint32_t i = 0; i < pool->numbers; i++) {
    const uint32_t page = mllm_kv_page_at(pool, i);
    found.shared_pages += pool->table[i].references > 0 && mllm_kv_page_holders(pool, page) > 1;
  }
  found.room_bytes = (uint64_t)pool->granules * pool->granule_bytes;
  found.largest_free_bytes = (uint64_t)longest * pool->granule_bytes;
  found.caches = pool->caches;
  found.asleep_pages = pool->spill == NULL ? 0 : pool->spill->used;
  return found;
}
