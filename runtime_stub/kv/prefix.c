/* prefix.c - a table of known beginnings. */
#include "prefix.h"

#include <stdlib.h>
#include <string.h>

#include "../src/status.h"

static const uint8_t nobody[MLLM_KV_IDENTITY_BYTES];

/* FNV-1a: it only chooses a bucket. */
static uint64_t mix(uint64_t hash, const void *data, size_t bytes) {
  const unsigned char *at = data;
  for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001B3U;
  return hash;
}

static uint32_t *bucket_of(const mllm_kv_pool *pool, uint64_t before, const uint8_t *identity,
                           const uint32_t *ids) {
  uint64_t hash = mix(0xCBF29CE484222325U, &before, sizeof before);
  hash = mix(hash, identity, MLLM_KV_IDENTITY_BYTES);
  hash = mix(hash, ids, MLLM_KV_SUB_BLOCK * sizeof *ids);
  return &pool->buckets[hash % pool->n_known];
}

/* Which of a beginning's stretches has an identity. */
static const uint8_t *identity_at(uint64_t before, const uint8_t *identity) {
  return before == 0 && identity != NULL ? identity : nobody;
}

static mllm_kv_known *find(const mllm_kv_pool *pool, uint64_t before, const uint8_t *identity,
                           const uint32_t *ids) {
  if (pool->known == NULL) return NULL;
  for (uint32_t i = *bucket_of(pool, before, identity, ids); i != 0; i = pool->known[i - 1].next) {
    mllm_kv_known *known = &pool->known[i - 1];
    if (known->before == before && memcmp(known->ids, ids, sizeof known->ids) == 0 &&
        memcmp(known->identity, identity, sizeof known->identity) == 0) {
      return known;
    }
  }
  return NULL;
}

/* A page is held once, however many of its stretches are known. */
static void hold(mllm_kv_pool *pool, uint32_t page) {
  if (mllm_kv_entry_of(pool, page)->stretches++ > 0) return;
  mllm_kv_page_retain(pool, page);
  pool->counted.published_pages++;
}

static void forget(mllm_kv_pool *pool, mllm_kv_known *known) {
  const uint32_t number = (uint32_t)(known - pool->known) + 1;
  uint32_t *at = bucket_of(pool, known->before, known->identity, known->ids);
  while (*at != number) at = &pool->known[*at - 1].next;
  *at = known->next;
  known->serial = 0;
  known->next = pool->free_known;
  pool->free_known = number;
  if (--mllm_kv_entry_of(pool, known->page)->stretches > 0) return;
  mllm_kv_page_release(pool, known->page);
  pool->counted.published_pages--;
}

static bool take_table(mllm_kv_pool *pool) {
  if (pool->known != NULL) return true;
  pool->n_known = pool->numbers * (pool->info.page_tokens / MLLM_KV_SUB_BLOCK);
  pool->known = calloc(pool->n_known, sizeof *pool->known);
  pool->buckets = calloc(pool->n_known, sizeof *pool->buckets);
  if (pool->known == NULL || pool->buckets == NULL) {
    free(pool->known);
    free(pool->buckets);
    pool->known = NULL;
    pool->buckets = NULL;
    return false;
  }
  for (uint32_t i = 0; i + 1 < pool->n_known; i++) pool->known[i].next = i + 2;
  pool->free_known = 1;
  return true;
}

static mllm_kv_known *insert(mllm_kv_pool *pool, uint64_t before, const uint8_t *identity,
                             const uint32_t *ids, uint32_t page) {
  if (pool->free_known == 0) return NULL;
  mllm_kv_known *made = &pool->known[pool->free_known - 1];
  const uint32_t number = pool->free_known;
  pool->free_known = made->next;
  uint32_t *bucket = bucket_of(pool, before, identity, ids);
  *made = (mllm_kv_known){.serial = ++pool->serials, .before = before, .page = page};
  memcpy(made->ids, ids, sizeof made->ids);
  memcpy(made->identity, identity, sizeof made->identity);
  made->next = *bucket;
  *bucket = number;
  hold(pool, page);
  return made;
}

/* Pages that fall by length are read alike by all, fallen or not. */
static bool is_inexact(const mllm_kv_pool *pool, uint32_t page) {
  const mllm_kv_entry *entry = mllm_kv_entry_of(pool, page);
  return pool->layout.recent == 0 && (entry->is_rounded || entry->state != MLLM_KV_NATIVE);
}

mllm_status mllm_kv_publish(mllm_kv_pool *pool, const uint32_t *blocks, const uint32_t *ids,
                            uint32_t count, const uint8_t *identity, mllm_error *error) {
  const uint32_t page_tokens = pool->info.page_tokens;
  if (page_tokens % MLLM_KV_SUB_BLOCK != 0 || !take_table(pool)) {
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY,
                     "cache '%s' keeps no beginnings: its pages are not of whole stretches of %d "
                     "tokens, or there is no memory",
                     pool->info.name, MLLM_KV_SUB_BLOCK);
  }
  uint64_t before = 0;
  pool->clock++;
  for (uint32_t at = 0; at + MLLM_KV_SUB_BLOCK <= count; at += MLLM_KV_SUB_BLOCK) {
    const uint32_t page = blocks[at / page_tokens];
    const uint8_t *who = identity_at(before, identity);
    if (is_inexact(pool, page)) break;
    mllm_kv_known *known = find(pool, before, who, ids + at);
    if (known == NULL && mllm_kv_entry_of(pool, page)->state == MLLM_KV_NATIVE) {
      known = insert(pool, before, who, ids + at, page);
    }
    if (known == NULL) break;
    known->used = pool->clock;
    before = known->serial;
  }
  return MLLM_OK;
}

uint32_t mllm_kv_adopt(mllm_kv_pool *pool, uint32_t *blocks, const uint32_t *ids, uint32_t count,
                       const uint8_t *identity) {
  const uint32_t page_tokens = pool->info.page_tokens;
  uint64_t before = 0;
  uint32_t tokens = 0;
  pool->clock++;
  while (tokens + MLLM_KV_SUB_BLOCK <= count) {
    mllm_kv_known *known = find(pool, before, identity_at(before, identity), ids + tokens);
    if (known == NULL) break;
    known->used = pool->clock;
    before = known->serial;
    blocks[tokens / page_tokens] = known->page;
    tokens += MLLM_KV_SUB_BLOCK;
  }
  for (uint32_t i = 0; i * page_tokens < tokens; i++) mllm_kv_page_retain(pool, blocks[i]);
  pool->counted.adopted_tokens += tokens;
  return tokens;
}

/* Of equally old stretches, those that stand behind others go first. */
static bool is_older(const mllm_kv_known *a, const mllm_kv_known *b) {
  return a->used < b->used || (a->used == b->used && a->serial > b->serial);
}

bool mllm_kv_forget_page(mllm_kv_pool *pool) {
  const mllm_kv_known *oldest = NULL;
  for (uint32_t i = 0; pool->known != NULL && i < pool->n_known; i++) {
    const mllm_kv_known *known = &pool->known[i];
    if (known->serial == 0 || mllm_kv_entry_of(pool, known->page)->references > 1) continue;
    if (oldest == NULL || is_older(known, oldest)) oldest = known;
  }
  if (oldest == NULL) return false;
  const uint32_t page = oldest->page;
  for (uint32_t i = 0; i < pool->n_known; i++) {
    if (pool->known[i].serial != 0 && pool->known[i].page == page) forget(pool, &pool->known[i]);
  }
  pool->counted.forgotten_pages++;
  return true;
}

void mllm_kv_forget_all(mllm_kv_pool *pool) {
  for (uint32_t i = 0; pool->known != NULL && i < pool->n_known; i++) {
    if (pool->known[i].serial != 0) forget(pool, &pool->known[i]);
  }
}
