/* kv_cache.h - keys and values of one conversation, in pages.
 *
 * A page holds page_tokens tokens of every layer, as kv/layout.h lays them out. The block table
 * names pages by number: page n of the conversation is pool page blocks[n]. Moving, sharing and
 * spilling pages changes numbers only.
 */
#ifndef MLLM_KV_CACHE_H
#define MLLM_KV_CACHE_H

#include "../kv/layout.h"
#include "mllm_kernels.h"

typedef struct mllm_kv_cache {
  mllm_cache_info info;
  mllm_kv_layout layout;
  uint32_t capacity; /* tokens */
  uint32_t pages;
  uint32_t length;  /* tokens that earlier runs wrote */
  uint32_t pending; /* tokens that this run has appended */
  uint32_t written; /* tokens up to which the length may be set: written by a run or the caller */
  uint32_t *blocks; /* [pages] */
  unsigned char *pool; /* [pages][layout.bytes[MLLM_KV_NATIVE]] */
  void *memory;        /* to free */
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

/* Takes memory for max_tokens tokens (0: info->max_tokens). */
mllm_status mllm_kv_cache_create(mllm_kv_cache *cache, const mllm_cache_info *info,
                                 uint32_t max_tokens, mllm_error *error);
void mllm_kv_cache_free(mllm_kv_cache *cache);
uint64_t mllm_kv_cache_bytes(const mllm_kv_cache *cache);

mllm_status mllm_kv_cache_set_length(mllm_kv_cache *cache, uint32_t length, mllm_error *error);

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
