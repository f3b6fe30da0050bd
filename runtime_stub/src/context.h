/* context.h - what a session lends to its kernels. */
#ifndef MLLM_CONTEXT_H
#define MLLM_CONTEXT_H

#include "../kernels/ops.h"
#include "kv_cache.h"
#include "mllm_kernels.h"
#include "threads.h"

struct mllm_context {
  mllm_threads *threads;
  const mllm_ops *ops; /* the inner loops of the chosen instruction set */
  mllm_kv_cache *caches;
  mllm_kv_cache **used; /* [n_caches] what runs append to: one of caches, or a conversation's own */
  uint32_t n_caches;
  bool rows_alone; /* kernels of many rows compute each as if it were the only one, bit for bit */
};

/* As mllm_context_create, with a bound on the tokens of every cache (0: as compiled) and the ops
 * already chosen. */
mllm_status mllm_context_create_with(const mllm_ops *ops, uint32_t threads, uint32_t max_tokens,
                                     const mllm_cache_info *caches, uint32_t n_caches,
                                     mllm_context **context, mllm_error *error);

/* The cache of an index, or NULL. */
mllm_kv_cache *mllm_context_cache(const mllm_context *context, int32_t cache);

#endif /* MLLM_CONTEXT_H */
