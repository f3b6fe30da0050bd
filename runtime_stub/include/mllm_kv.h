/* mllm_kv.h - caches of conversations: one session, with its arena and threads, serves many. */
#ifndef MLLM_KV_H
#define MLLM_KV_H

#include "mllm.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* The keys and values of one conversation, and how many tokens they are of. */
typedef struct mllm_cache mllm_cache;

/* Takes memory for max_tokens tokens (0: as compiled) of one of a model's caches. The model outlives
 * it. On failure *made is NULL. */
mllm_status mllm_cache_create(const mllm_model *model, uint32_t cache, uint32_t max_tokens,
                              mllm_cache **made, mllm_error *error);
/* No session uses it any more. */
void mllm_cache_destroy(mllm_cache *cache);
/* What create takes for so many tokens. */
uint64_t mllm_cache_bytes(const mllm_model *model, uint32_t cache, uint32_t max_tokens);

/* From now on, runs of the session append to `used` and read from it, and so does
 * mllm_session_cache_*; NULL: the session's own cache again. */
mllm_status mllm_session_use_cache(mllm_session *session, uint32_t cache, mllm_cache *used,
                                   mllm_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* MLLM_KV_H */
