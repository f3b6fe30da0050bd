/* pool.h - the pages of one cache of a model, shared by all conversations that have it.
 *
 * One region is cut into granules. A page is a run of granules, known by a number; the page table
 * says where it lies and in which state. Moving, sharing and demoting a page changes its entry
 * or its number, nothing else. A number is a place in the table, 24 bits, and above them the
 * generation of that place: who keeps a number of a page that was given back can neither retain nor
 * release the next one there, and a debug build ends where the number is looked up.
 * A pool and its conversations serve one thread at a time.
 */
#ifndef MLLM_KV_POOL_H
#define MLLM_KV_POOL_H

#include <assert.h>

#include "layout.h"
#include "mllm_kv.h"

#define MLLM_KV_NO_PAGE 0xFFFFFFFFu
#define MLLM_KV_PLACES  0xFFFFFFu /* at most, of the page table */

typedef struct mllm_kv_known mllm_kv_known;
struct mllm_kv_spill;

/* An entry of the page table. */
typedef struct mllm_kv_entry {
  uint32_t granule;    /* where it begins */
  uint32_t state;      /* mllm_kv_state */
  uint32_t references; /* block tables and prefixes that name it; 0: the number is free */
  uint32_t stretches;  /* of its tokens that are known as a beginning: see prefix.h */
  uint32_t next;       /* of a free number: the next free one */
  bool is_rounded;     /* native again, with numbers that 4 bits made */
  uint8_t generation;  /* counts the pages that were given back here */
} mllm_kv_entry;

struct mllm_kv_pool {
  const mllm_model *model; /* of a pool that a caller made, and which of its caches */
  uint32_t index;
  mllm_cache_info info;
  mllm_kv_layout layout;
  size_t granule_bytes;
  uint32_t granules;
  uint32_t granules_of[MLLM_KV_STATES]; /* of a page; 0: no page is so */
  uint32_t lowest;                      /* no granule before it is free */
  unsigned char *region;                /* [granules][granule_bytes] */
  void *memory;                         /* to free */
  uint64_t *taken;                      /* a bit for each granule */
  mllm_kv_entry *table;                 /* [numbers] */
  uint32_t numbers;
  uint32_t first_free; /* number */
  uint32_t *owners;    /* [granules] room for a plan of moves */
  uint32_t caches;     /* conversations that have pages here */
  mllm_cache *handles; /* of them, those that a caller has: a list */
  uint32_t allowed;    /* MLLM_KV_MAY_... */
  uint32_t recent;     /* tokens of a conversation that relief does not let fall */
  unsigned char *spare; /* room for a page that falls where it lies; NULL: pages do not */
  struct mllm_kv_known *known; /* [n_known] beginnings; NULL: none was published yet */
  uint32_t n_known;
  uint32_t free_known; /* the first free one, and 1 */
  uint32_t *buckets;   /* [n_known] the first of each, and 1; 0: none */
  uint64_t serials;    /* given to stretches so far */
  uint64_t clock;      /* publishing and adopting count it up */
  struct mllm_kv_spill *spill; /* where pages of conversations that sleep lie; or NULL */
  mllm_kv_statistics counted;
};

/* Takes the region: bytes of pages, whole pages of whatever state. */
mllm_status mllm_kv_pool_make(mllm_kv_pool *pool, const mllm_cache_info *info, uint64_t bytes,
                              mllm_error *error);
void mllm_kv_pool_free(mllm_kv_pool *pool);

/* Bytes that so many native pages take, granules whole, and room for one demoted beside them. */
uint64_t mllm_kv_pool_room(const mllm_kv_layout *layout, uint32_t pages);

/* A page with one reference; beginnings that nobody has are forgotten where it needs their room.
 * MLLM_KV_NO_PAGE: there is no room. */
uint32_t mllm_kv_page_take(mllm_kv_pool *pool, mllm_kv_state state);
/* Both refuse a number of a page that is not there any more. */
bool mllm_kv_page_retain(mllm_kv_pool *pool, uint32_t page);
bool mllm_kv_page_release(mllm_kv_pool *pool, uint32_t page);

/* The number of the page that is at a place of the table. */
static inline uint32_t mllm_kv_page_at(const mllm_kv_pool *pool, uint32_t place) {
  return place | (uint32_t)pool->table[place].generation << 24;
}

static inline bool mllm_kv_is_current(const mllm_kv_pool *pool, uint32_t page) {
  const uint32_t place = page & MLLM_KV_PLACES;
  return place < pool->numbers && pool->table[place].references > 0 &&
         pool->table[place].generation == page >> 24;
}

static inline mllm_kv_entry *mllm_kv_entry_of(const mllm_kv_pool *pool, uint32_t page) {
  assert(mllm_kv_is_current(pool, page));
  return &pool->table[page & MLLM_KV_PLACES];
}

/* A page becomes a smaller one where it lies, and of another state. */
void mllm_kv_page_shrink(mllm_kv_pool *pool, uint32_t page, mllm_kv_state state);

static inline unsigned char *mllm_kv_page_bytes_of(const mllm_kv_pool *pool, uint32_t page) {
  return pool->region + mllm_kv_entry_of(pool, page)->granule * pool->granule_bytes;
}

static inline bool mllm_kv_is_taken(const mllm_kv_pool *pool, uint32_t granule) {
  return (pool->taken[granule / 64] >> granule % 64 & 1) != 0;
}

/* Conversations that name a page. */
static inline uint32_t mllm_kv_page_holders(const mllm_kv_pool *pool, uint32_t page) {
  const mllm_kv_entry *entry = mllm_kv_entry_of(pool, page);
  return entry->references - (entry->stretches > 0);
}

/* Marks granules first.. as taken or free. */
void mllm_kv_mark(mllm_kv_pool *pool, uint32_t first, uint32_t count, bool taken);

#endif /* MLLM_KV_POOL_H */
