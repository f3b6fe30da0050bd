/* mllm_kv.h - caches of conversations: one session, with its arena and threads, serves many, and a
 * pool holds the pages of them all. A pool, its caches and the sessions that use them serve one
 * thread at a time. */
#ifndef MLLM_KV_H
#define MLLM_KV_H

#include "mllm.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* The keys and values of one conversation, and how many tokens they are of. */
typedef struct mllm_cache mllm_cache;

/* Takes memory for max_tokens tokens (0: as compiled) of one of a model's caches. The model
 * outlives it. On failure *made is NULL. */
mllm_status mllm_cache_create(const mllm_model *model, uint32_t cache, uint32_t max_tokens,
                              mllm_cache **made, mllm_error *error);
/* No session uses it any more. */
void mllm_cache_destroy(mllm_cache *cache);
/* What create takes for so many tokens. */
uint64_t mllm_cache_bytes(const mllm_model *model, uint32_t cache, uint32_t max_tokens);

/* ---- Files: a conversation that outlives the process ---------------------------------------- */

enum { MLLM_CACHE_KEY_BYTES = 32 };

/* Writes a conversation to a file that only the owner of the key can read, and that nobody can
 * change unseen: AES-256-GCM. A file at the path is replaced as a whole; until it is, and after a
 * fault or a kill too, its old bytes are there. Refused where the build has no libcrypto. */
mllm_status mllm_cache_save(const mllm_cache *cache, const char *path,
                            const uint8_t key[MLLM_CACHE_KEY_BYTES], mllm_error *error);

/* ---- Pool: pages that many caches take as they grow, and share ------------------------------ */

typedef struct mllm_kv_pool mllm_kv_pool;

/* Reserves so many bytes for pages of one of a model's caches; the system gives memory when a page
 * is first written. The model outlives it. On failure *pool is NULL. */
mllm_status mllm_kv_pool_create(const mllm_model *model, uint32_t cache, uint64_t bytes,
                                mllm_kv_pool **pool, mllm_error *error);
/* Refused, and nothing done, while a cache has pages in it. NULL is no pool and no fault. */
mllm_status mllm_kv_pool_destroy(mllm_kv_pool *pool, mllm_error *error);

/* Like mllm_cache_create, in a pool: no memory is taken before a token is written. */
mllm_status mllm_cache_create_in(mllm_kv_pool *pool, const mllm_model *model, uint32_t max_tokens,
                                 mllm_cache **made, mllm_error *error);
/* A conversation as a file has it, to the bit, in pages of the pool. A file that was changed or
 * cut, another key, another model, a full pool: refused; then nothing is taken, *made is NULL. */
mllm_status mllm_cache_restore(mllm_kv_pool *pool, const char *path,
                               const uint8_t key[MLLM_CACHE_KEY_BYTES], mllm_cache **made,
                               mllm_error *error);
/* A second conversation with the same tokens, which shares their pages until one of both writes. */
mllm_status mllm_cache_fork(const mllm_cache *cache, mllm_cache **made, mllm_error *error);
/* Each gets the other's conversation: one that was prepared apart is there in one step. Both are of
 * one pool. */
mllm_status mllm_cache_swap(mllm_cache *a, mllm_cache *b, mllm_error *error);
/* Rewinds; pages behind the length are given back. */
mllm_status mllm_cache_set_length(mllm_cache *cache, uint32_t length, mllm_error *error);
uint32_t mllm_cache_length(const mllm_cache *cache);
/* Pages that end before the last `recent` tokens fall to 4 bits, but for the first 32 tokens, and
 * are read so from now on. Gives the bytes that came free. */
uint64_t mllm_cache_demote(mllm_cache *cache, uint32_t recent);

/* ---- Sleep: pages in a file of the pool, until they are needed again ------------------------- */

/* A conversation that sleeps or was dropped is refused by all that reads or appends, until it is
 * woken, or its length is set to 0: then it is an empty one. */
typedef enum mllm_cache_state {
  MLLM_CACHE_AWAKE = 0,
  MLLM_CACHE_SLEEPING = 1,
  MLLM_CACHE_DROPPED = 2 /* its tokens are lost */
} mllm_cache_state;

mllm_cache_state mllm_cache_state_of(const mllm_cache *cache);

/* Gives the pool a file of at most so many bytes, in a folder. It has no name and its key is never
 * stored, so that it ends with the process. folder NULL: none any more. Refused while conversations
 * sleep, and where the build has no libcrypto. */
mllm_status mllm_kv_pool_set_spill(mllm_kv_pool *pool, const char *folder, uint64_t most_bytes,
                                   mllm_error *error);
/* Writes the pages that no other conversation has to the pool's file, and gives their memory back
 * to the pool. Where the disk is full it stays awake, and nothing is lost. */
mllm_status mllm_cache_spill(mllm_cache *cache, mllm_error *error);
/* Brings them back, to the bit. Where the pool is full, or the file cannot be read, it sleeps on;
 * where the file was changed, this conversation is dropped. */
mllm_status mllm_cache_wake(mllm_cache *cache, mllm_error *error);

/* ---- Room: what goes first when there is none ----------------------------------------------- */

/* A conversation is of priority MLLM_PRIORITY_NORMAL until it is told otherwise; a fork is of its
 * origin's. Refuses a number that is no priority. */
mllm_status mllm_cache_set_priority(mllm_cache *cache, mllm_priority priority, mllm_error *error);

enum {
  MLLM_KV_MAY_DEMOTE = 1, /* old pages may fall to 4 bits: answers change by what that rounds */
  MLLM_KV_MAY_DROP = 2    /* conversations of MLLM_PRIORITY_LOW may be lost */
};

/* What relief may do besides forgetting beginnings and spilling. Pages that end before the last
 * `recent` tokens of a conversation are old. Takes room for a page where pages may fall. */
mllm_status mllm_kv_pool_allow(mllm_kv_pool *pool, uint32_t what, uint32_t recent,
                               mllm_error *error);
/* Makes room for so many bytes more, in this order: beginnings that nobody has; old pages fall,
 * where they may, of conversations of low priority, then of normal; conversations sleep, where
 * the pool has a file, of low priority, then of normal; those of low priority are dropped, where
 * they may be. Pages that two conversations have stay for both.
 * Of equals the one that was used longest ago goes first. Touched are only those less urgent than
 * `below`. *freed is what came free, which is of use where pages of one size fit it: see
 * mllm_kv_defragment_step. MLLM_OUT_OF_MEMORY where that is less than was asked for; what a disk
 * refused is told then. */
mllm_status mllm_kv_pool_relieve(mllm_kv_pool *pool, uint64_t bytes, mllm_priority below,
                                 uint64_t *freed, mllm_error *error);
/* 1: so many tokens of a new conversation find room, if need be after relief for its priority and
 * moves to close gaps. Changes nothing. 0 is an answer before anything was computed. */
int mllm_kv_pool_admits(const mllm_kv_pool *pool, uint32_t tokens, mllm_priority priority);

enum { MLLM_KV_IDENTITY_BYTES = 32 };

/* Makes the first tokens of a conversation known to the pool: ids[count] are theirs, identity is
 * what keys and values depend on besides, as the digest of image and adapter (NULL: nothing). Whole
 * stretches of 32 tokens are kept. Pages that no conversation has are forgotten when room is
 * needed, those that were not used for longest first. */
mllm_status mllm_cache_publish(mllm_cache *cache, const uint32_t *ids, uint32_t count,
                               const uint8_t *identity, mllm_error *error);
/* An empty conversation begins with as many of ids[count] as are known under the same identity: it
 * shares their pages. *tokens says how many; the rest, which is to be computed, is never empty if
 * count leaves the last token out. */
mllm_status mllm_cache_adopt(mllm_cache *cache, const uint32_t *ids, uint32_t count,
                             const uint8_t *identity, uint32_t *tokens, mllm_error *error);

/* Moves pages to close gaps, at most so many bytes; gives the bytes that were moved. 0: there are
 * no gaps, or the first page to move is larger. */
uint64_t mllm_kv_defragment_step(mllm_kv_pool *pool, uint64_t most_bytes);

typedef struct mllm_kv_statistics {
  uint64_t room_bytes; /* of the pool */
  uint64_t used_bytes; /* pages, to whole granules */
  uint64_t most_bytes; /* that were used at a time */
  uint64_t largest_free_bytes;
  uint64_t moved_bytes;
  uint64_t copied_pages;  /* before a write, because others had them too */
  uint64_t demoted_pages; /* so far */
  uint64_t adopted_tokens;  /* so far, that need not be computed */
  uint64_t forgotten_pages; /* so far, of beginnings */
  uint64_t spilled_pages; /* so far, to the pool's file */
  uint64_t spilled_bytes;
  uint64_t woken_pages;   /* so far, of those */
  uint64_t woken_bytes;
  uint64_t dropped_pages; /* so far, of conversations that were dropped */
  uint64_t dropped_bytes;
  uint32_t asleep_pages;  /* now, in the file */
  uint32_t published_pages; /* now */
  uint32_t pages[3];      /* now: native, demoted, demoted but for the first tokens */
  uint32_t shared_pages;  /* that several conversations have */
  uint32_t caches;
} mllm_kv_statistics;

mllm_kv_statistics mllm_kv_pool_statistics(const mllm_kv_pool *pool);

/* From now on, runs of the session append to `used` and read from it, and so does
 * mllm_session_cache_*; NULL: the session's own cache again. */
mllm_status mllm_session_use_cache(mllm_session *session, uint32_t cache, mllm_cache *used,
                                   mllm_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* MLLM_KV_H */
