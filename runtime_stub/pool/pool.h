/* pool.h - a pool's inside: its tables, and what its files share. */
#ifndef MLLM_POOL_INSIDE_H
#define MLLM_POOL_INSIDE_H

#include <pthread.h>

#include "../src/status.h"
#include "mllm_pool.h"
#include "slab.h"

enum { MLLM_POOL_NAME = 32, MLLM_POOL_TICKETS = 64 };

/* Where the newest bytes of a buffer are. */
typedef enum mllm_newest { MLLM_NEWEST_BOTH, MLLM_NEWEST_CACHES, MLLM_NEWEST_MEMORY } mllm_newest;

typedef struct mllm_pool_record {
  uint64_t offset;
  uint64_t requested;
  uint64_t rounded;  /* 0: the record is free */
  uint64_t released; /* the inference that had begun last when the last reference went */
  uint32_t refs;
  uint32_t generation;
  uint32_t next; /* of free records, or of those that wait */
  mllm_pool_type type;
  mllm_newest newest;
  uint32_t readers[MLLM_MEMORY_DOMAINS];
  int32_t writer; /* domain; -1: none */
  char name[MLLM_POOL_NAME];
  char owner[MLLM_POOL_NAME];
} mllm_pool_record;

struct mllm_pool {
  pthread_mutex_t lock;
  mllm_pool_backend backend;
  mllm_pool_region region;
  mllm_units units;
  mllm_slabs slabs;
  mllm_pool_record *records; /* [n_records] */
  uint32_t n_records;
  uint32_t unused;  /* the first free record; UINT32_MAX: none */
  uint32_t waiting; /* the first that an inference holds up */
  uint64_t tickets[MLLM_POOL_TICKETS]; /* running inferences by number; 0: no ticket */
  uint64_t begun;
  uint64_t watermarks[MLLM_POOL_TYPES];
  mllm_pool_statistics statistics; /* but for what is computed when it is asked for */
  int forbidden;
};

/* The record of a buffer, under the lock; NULL and an error where it is gone. */
mllm_pool_record *mllm_pool_find(mllm_pool *pool, mllm_buffer buffer, mllm_error *error);

/* Has the caches hold nothing that is not in memory too, before a buffer's memory is given again. */
mllm_status mllm_pool_settle(mllm_pool *pool, mllm_pool_record *record, mllm_error *error);

/* Maps bytes of fd (-1: anonymous memory) at an address aligned to 1 MiB, as flags ask. */
mllm_status mllm_region_map(uint64_t bytes, uint32_t flags, int fd, mllm_pool_region *region,
                            mllm_error *error);
void mllm_region_unmap(void *context, mllm_pool_region *region);
/* Has the system provide the pages of a part. */
void mllm_region_warm(const mllm_pool_region *region, uint64_t offset, uint64_t bytes);

#endif /* MLLM_POOL_INSIDE_H */
