/* cache.h - the handle of a conversation. */
#ifndef MLLM_CACHE_H
#define MLLM_CACHE_H

#include "kv_cache.h"
#include "mllm_kv.h"

struct mllm_cache {
  const mllm_model *model;
  uint32_t index;
  mllm_kv_cache kv;
  mllm_priority priority;
  mllm_cache *next; /* of the pool's list of handles, and the one before */
  mllm_cache *last;
};

/* Gives what was made its handle; frees it where there is no memory for one. */
mllm_status mllm_cache_hand_out(const mllm_model *model, uint32_t index, mllm_kv_cache *kv,
                                mllm_cache **made, mllm_error *error);

#endif /* MLLM_CACHE_H */
