/* kv_cache.h - keys and values of one conversation, in pages of a pool.
 *
 * A page holds page_tokens tokens of every layer, as kv/layout.h lays them out. The block table
 * names pages by number: tokens n * page_tokens.. of the conversation are in page blocks[n]. A page
 * that others name too is copied before it is written.
 */
#ifndef MLLM_KV_CACHE_H
#define MLLM_KV_CACHE_H

#include "../kv/pool.h"
#include "mllm_kernels.h"

typedef struct mllm_kv_cache {
  mllm_cache_info info;
  mllm_kv_layout layout; /* the pool's own */
  mllm_kv_pool *pool;
  mllm_kv_pool *own;  /* pool, where it is this conversation's alone; else NULL */
  uint32_t capacity; /* tokens */
  uint32_t pages;    /* of capacity */
  uint32_t length;  /* tokens that earlier runs wrote */
  uint32_t pending; /* tokens that this run has appended */
  uint32_t written; /* tokens up to which the length may be set: written by a run or the caller */
  uint64_t used;    /* when it last appended or woke, by the pool's clock */
  uint32_t *blocks; /* [pages] of the pool; MLLM_KV_NO_PAGE: not taken yet */
  uint32_t state;   /* mllm_cache_state */
  uint32_t *slots;  /* [pages] of one that sleeps: places in the pool's file; see kv/spill.h */
  uint64_t spilled; /* what its pages there are bound to */
} mllm_kv_cache;

/* A page of a conversation, to read. */
typedef struct mllm_kv_page {
  const unsigned char *bytes;
  mllm_kv_state state;
} mllm_kv_page;

/* How an attention kernel reads keys or values of one layer: from a tensor of floats, or from the
 * pages of a cache. */
typedef struct mllm_kv_view {
  const mllm_kv_cache *cache; /* NULL: a tensor */
  const unsigned char *base;  /* of a tensor: token 0, head 0 */
  size_t token_stride;        /* elements between the rows that are read */
  size_t head_stride;         /* of a tensor: elements */
  uint32_t layer;
  uint32_t kind;
  uint32_t old; /* pages that end before this token are read as 4 bits, where the layer falls so */
} mllm_kv_view;

/* With a pool of its own, which holds max_tokens tokens (0: info->max_tokens); or in a pool, whose
 * pages it takes as it grows. */
mllm_status mllm_kv_cache_create(mllm_kv_cache *cache, const mllm_cache_info *info,
                                 uint32_t max_tokens, mllm_error *error);
mllm_status mllm_kv_cache_create_in(mllm_kv_cache *cache, mllm_kv_pool *pool, uint32_t max_tokens,
                                    mllm_error *error);
/* Bytes of the pool that create makes; 0 where there can be none. */
uint64_t mllm_kv_cache_room(const mllm_cache_info *info, uint32_t max_tokens);
void mllm_kv_cache_free(mllm_kv_cache *cache);

/* Makes the pages of tokens first..end ready to be written: taken, native, this conversation's
 * alone. What was written before stays. Fails where the pool has no room; then no page is taken
 * and nothing is lost. */
mllm_status mllm_kv_cache_reserve(mllm_kv_cache *cache, uint32_t first, uint32_t end,
                                  mllm_error *error);
/* After a run: pages that the layout calls old fall to 4 bits, where there is room to do it. */
void mllm_kv_cache_settle(mllm_kv_cache *cache);
/* Pages wholly before a token fall to 4 bits; gives the bytes that this gave back. */
uint64_t mllm_kv_cache_demote(mllm_kv_cache *cache, uint32_t before);
/* The same of one page, which is native or has fallen already. */
uint64_t mllm_kv_cache_demote_block(mllm_kv_cache *cache, uint32_t block);
/* A copy shares all pages. */
mllm_status mllm_kv_cache_fork(const mllm_kv_cache *from, mllm_kv_cache *made, mllm_error *error);
uint64_t mllm_kv_cache_bytes(const mllm_kv_cache *cache);

mllm_status mllm_kv_cache_set_length(mllm_kv_cache *cache, uint32_t length, mllm_error *error);

/* Refuses a conversation that sleeps or was dropped. */
mllm_status mllm_kv_cache_ready(const mllm_kv_cache *cache, mllm_error *error);

/* The page of a block of the table. */
mllm_kv_page mllm_kv_cache_page(const mllm_kv_cache *cache, uint32_t block);

/* Writes rows of a head at tokens of the cache; stride is floats from one row to the next. */
void mllm_kv_cache_write_rows(mllm_kv_cache *cache, uint32_t layer, uint32_t kind, uint32_t head,
                              uint32_t token, const float *rows, size_t stride, uint32_t count);

mllm_kv_view mllm_kv_cache_view(const mllm_kv_cache *cache, uint32_t layer, uint32_t kind);

/* data is [kv_heads, tokens, head_dim]. */
mllm_status mllm_kv_cache_write(mllm_kv_cache *cache, uint32_t layer, uint32_t kind,
                                const float *data, uint32_t tokens, mllm_error *error);
mllm_status mllm_kv_cache_read(const mllm_kv_cache *cache, uint32_t layer, uint32_t kind,
                               float *data, uint32_t tokens, mllm_error *error);

#endif /* MLLM_KV_CACHE_H */
