/* prefix.h - which tokens stand in which pages, so that a conversation that begins with the same
 * takes the pages instead of computing them again.
 *
 * Known are stretches of 32 tokens, each behind the one before it. A stretch is found by what it
 * stands behind and by all of its ids, which are compared, so that no two beginnings can be taken
 * for each other; the first by its identity too.
 */
#ifndef MLLM_KV_PREFIX_H
#define MLLM_KV_PREFIX_H

#include "pool.h"

struct mllm_kv_known {
  uint64_t serial; /* of its own, never given twice; 0: free */
  uint64_t before; /* serial of the stretch before it; 0: it is the first */
  uint8_t identity[MLLM_KV_IDENTITY_BYTES]; /* of the first; else zeros */
  uint32_t ids[MLLM_KV_SUB_BLOCK];
  uint32_t page; /* has these tokens, and those before them that are of the same page */
  uint32_t next; /* in its bucket, and 1; 0: the last */
  uint64_t used; /* when */
};

/* Makes ids[count] known, which stand in pages blocks[]; whole stretches in native pages. Where
 * pages fall only when asked to, what stands in or behind one that fell is not what others would
 * compute, and does not become known. */
mllm_status mllm_kv_publish(mllm_kv_pool *pool, const uint32_t *blocks, const uint32_t *ids,
                            uint32_t count, const uint8_t *identity, mllm_error *error);

/* Fills blocks[] with the pages of as many of ids[count] as are known, each with one reference
 * more; gives the tokens. */
uint32_t mllm_kv_adopt(mllm_kv_pool *pool, uint32_t *blocks, const uint32_t *ids, uint32_t count,
                       const uint8_t *identity);

/* Forgets the page that was not used for longest of those that no conversation has; false: there is
 * none. */
bool mllm_kv_forget_page(mllm_kv_pool *pool);
void mllm_kv_forget_all(mllm_kv_pool *pool);

#endif /* MLLM_KV_PREFIX_H */
