/* units.h - the units of a region: runs of addresses, and pages for no more of them than there is memory. */
#ifndef MLLM_UNITS_H
#define MLLM_UNITS_H

#include "mllm_pool.h"
#include "runs.h"

/* A region may have more addresses than the pool has memory. Then free units have pages or not, and a run
 * that lies where none are has free units elsewhere give theirs back to the system. */
typedef struct mllm_units {
  mllm_runs runs;
  uint64_t *pages;  /* a bit for each unit: it may have pages; every unit in use may */
  uint32_t memory;  /* units that may have pages at a time */
  uint32_t paged;   /* units that may have them now */
  uint64_t dropped; /* units so far that gave them back */
  mllm_pool_region *region;
  const mllm_pool_backend *backend;
} mllm_units;

/* Units of addresses, none in use. false: no memory. */
bool mllm_units_make(mllm_units *units, uint32_t addresses, uint32_t memory,
                     mllm_pool_region *region, const mllm_pool_backend *backend);
void mllm_units_free(mllm_units *units);

/* The first unit of a run of count; MLLM_NO_UNIT where there is no memory, no run or no page. */
uint32_t mllm_units_take(mllm_units *units, uint32_t count);
void mllm_units_give(mllm_units *units, uint32_t first, uint32_t count);

/* A unit, in use or not, may have pages from now on. false: that would be more than there is memory. */
bool mllm_units_warm(mllm_units *units, uint32_t unit);

/* Units of the longest run that can be taken, and those that are free but not for a run of count. */
uint32_t mllm_units_longest(const mllm_units *units);
uint32_t mllm_units_lost(const mllm_units *units, uint32_t count);

#endif /* MLLM_UNITS_H */
