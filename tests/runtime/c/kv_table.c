/* kv_table.c - a page table for tests that look at it: pages of three sizes, without a cache. */
#include <stdlib.h>
#include <string.h>

#include "../../../runtime_stub/kv/defragment.h"

enum { TOKENS = 64, CHANNELS = 32 };

/* One layer with a head of 32 floats: a page has 64 granules, 10 with 4 bits. NULL: no memory. */
mllm_kv_pool *table_new(uint32_t granules) {
  const mllm_cache_info info = {.name = "kv",
                                .layers = 1,
                                .kv_heads = 1,
                                .head_dim = CHANNELS,
                                .page_tokens = TOKENS,
                                .max_tokens = UINT32_MAX};
  mllm_kv_pool *pool = calloc(1, sizeof *pool);
  const uint64_t granule = mllm_kv_page_bytes(&info) / TOKENS;
  if (pool == NULL || mllm_kv_pool_make(pool, &info, granules * granule, NULL) != MLLM_OK)
    return NULL;
  return pool;
}

void table_free(mllm_kv_pool *pool) {
  mllm_kv_pool_free(pool);
  free(pool);
}

uint32_t table_granule_bytes(const mllm_kv_pool *pool) { return (uint32_t)pool->granule_bytes; }

uint32_t table_granules(const mllm_kv_pool *pool, uint32_t state) {
  return pool->granules_of[state];
}

uint32_t table_take(mllm_kv_pool *pool, uint32_t state, int mark) {
  const uint32_t page = mllm_kv_page_take(pool, (mllm_kv_state)state);
  if (page != MLLM_KV_NO_PAGE)
    memset(mllm_kv_page_bytes_of(pool, page), mark, pool->layout.bytes[state]);
  return page;
}

/* Whether every byte of a page is the mark. */
int table_holds(const mllm_kv_pool *pool, uint32_t page, int mark) {
  const unsigned char *bytes = mllm_kv_page_bytes_of(pool, page);
  const size_t size = pool->layout.bytes[mllm_kv_entry_of(pool, page)->state];
  for (size_t i = 0; i < size; i++)
    if (bytes[i] != (unsigned char)mark) return 0;
  return 1;
}

uint32_t table_granule(const mllm_kv_pool *pool, uint32_t page) {
  return mllm_kv_entry_of(pool, page)->granule;
}

int table_retain(mllm_kv_pool *pool, uint32_t page) { return mllm_kv_page_retain(pool, page); }

int table_release(mllm_kv_pool *pool, uint32_t page) { return mllm_kv_page_release(pool, page); }

uint32_t table_plan(const mllm_kv_pool *pool, mllm_kv_move *moves, uint32_t most, uint64_t bytes) {
  return mllm_kv_plan_moves(pool, moves, most, bytes);
}

uint64_t table_step(mllm_kv_pool *pool, uint64_t bytes) {
  return mllm_kv_defragment_step(pool, bytes);
}
