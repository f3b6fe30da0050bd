/* kv_cache.h - keys and values of one conversation, in pages.
 *
 * A page holds page_tokens tokens of every layer: [layers, 2 kinds, kv_heads, page_tokens,
 * head_dim]. The block table names pages by number: page n of the conversation is pool page
 * blocks[n]. Moving, sharing and spilling pages changes numbers only.
 */
#ifndef MLLM_KV_CACHE_H
#define MLLM_KV_CACHE_H

#include "mllm_kernels.h"

typedef struct mllm_kv_cache {
  mllm_cache_info info;
  uint32_t capacity; /* tokens */
  uint32_t pages;
  uint32_t length;  /* tokens that earlier runs wrote */
  uint32_t pending; /* tokens that this run has appended */
  uint32_t written; /* tokens up to which the length may be set: written by a run or the caller */
  uint32_t *blocks; /* [pages] */
  unsigned char *pool; /* [pages][info.page_bytes] */
  void *memory;        /* to free */
} mllm_kv_cache;

/* How an attention kernel reads keys or values of one layer: contiguous tensors are one page. */
typedef struct mllm_kv_view {
  const unsigned char *base; /* token 0, head 0 of page 0 */
  const uint32_t *blocks;    /* page numbers */
  size_t page_stride;        /* bytes from one page to the next */
  size_t token_stride;       /* elements */
  size_t head_stride;        /* elements */
  uint32_t page_tokens;
  uint32_t format; /* mllm_kv_format */
  uint32_t length; /* tokens */
} mllm_kv_view;

/* Takes memory for max_tokens tokens (0: info->max_tokens). */
mllm_status mllm_kv_cache_create(mllm_kv_cache *cache, const mllm_cache_info *info,
                                 uint32_t max_tokens, mllm_error *error);
void mllm_kv_cache_free(mllm_kv_cache *cache);
uint64_t mllm_kv_cache_bytes(const mllm_kv_cache *cache);

mllm_status mllm_kv_cache_set_length(mllm_kv_cache *cache, uint32_t length, mllm_error *error);

/* [head_dim] floats of a token, head, layer and kind (0 key, 1 value). */
float *mllm_kv_cache_row(const mllm_kv_cache *cache, uint32_t layer, uint32_t kind, uint32_t head,
                         uint32_t token);

/* The first tokens of a layer and kind. */
mllm_kv_view mllm_kv_cache_view(const mllm_kv_cache *cache, uint32_t layer, uint32_t kind,
                                uint32_t tokens);

/* data is [kv_heads, tokens, head_dim]. */
mllm_status mllm_kv_cache_write(mllm_kv_cache *cache, uint32_t layer, uint32_t kind,
                                const float *data, uint32_t tokens, mllm_error *error);
mllm_status mllm_kv_cache_read(const mllm_kv_cache *cache, uint32_t layer, uint32_t kind,
                               float *data, uint32_t tokens, mllm_error *error);

#endif /* MLLM_KV_CACHE_H */
