/* spill.h - where pages of conversations that sleep lie: a file without a name, whose key only this
 * process has. */
#ifndef MLLM_KV_SPILL_H
#define MLLM_KV_SPILL_H

#include "sealed_page.h"

#define MLLM_CODE_ASLEEP "MLC-X053" /* a conversation that sleeps, or was dropped */
#define MLLM_KV_NO_SLOT  0xFFFFFFFFu

/* A place in the file for one page; its head is here, so that nothing in the file is believed. */
typedef struct mllm_kv_slot {
  mllm_kv_page_head head;
  uint32_t next; /* of a free slot: the next free one */
} mllm_kv_slot;

typedef struct mllm_kv_spill {
  int file;
  uint8_t key[MLLM_SEAL_KEY_BYTES];
  unsigned char *bytes; /* room to seal a page, which is why spilling one takes no memory */
  size_t slot_bytes;
  mllm_kv_slot *slots;
  uint32_t n_slots;
  uint32_t begun;      /* slots that were used so far */
  uint32_t first_free; /* of those; MLLM_KV_NO_SLOT: none is */
  uint32_t used;
  uint64_t serials; /* of spills so far: a page opens only as part of its own */
} mllm_kv_spill;

void mllm_kv_spill_free(mllm_kv_spill *spill);
/* Pages for which the file has room. */
uint32_t mllm_kv_spill_room(const mllm_kv_pool *pool);

/* Writes the pages that no other conversation names, or those too if `shared`, then gives them
 * back; all or none. Beginnings that are known stay, as those that nobody has. */
mllm_status mllm_kv_cache_spill(mllm_kv_cache *cache, bool shared, mllm_error *error);
/* Brings them back; all or none. Where the file has other bytes than were written, the conversation
 * is dropped. */
mllm_status mllm_kv_cache_wake(mllm_kv_cache *cache, mllm_error *error);
/* Forgets what it holds, in memory and in the file, and that it sleeps or was dropped. */
void mllm_kv_cache_empty(mllm_kv_cache *cache);
/* Forgets what it holds, and stays so until its length becomes 0. */
void mllm_kv_cache_drop(mllm_kv_cache *cache);

#endif /* MLLM_KV_SPILL_H */
