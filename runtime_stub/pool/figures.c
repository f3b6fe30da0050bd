/* figures.c - what a pool tells of itself: statistics, waste, and buffers that are left. */
#include <string.h>

#include "pool.h"

static uint64_t holes(const mllm_pool *pool) {
  return pool->units.runs.used * MLLM_UNIT_BYTES - pool->statistics.used;
}

void mllm_pool_statistics_of(mllm_pool *pool, mllm_pool_statistics *statistics) {
  (void)pthread_mutex_lock(&pool->lock);
  *statistics = pool->statistics;
  statistics->holes = holes(pool);
  statistics->largest = mllm_units_longest(&pool->units) * MLLM_UNIT_BYTES;
  statistics->dropped = pool->units.dropped * MLLM_UNIT_BYTES;
  (void)pthread_mutex_unlock(&pool->lock);
}

uint64_t mllm_pool_external_waste(mllm_pool *pool, uint64_t bytes) {
  const uint64_t units = (bytes + MLLM_UNIT_BYTES - 1) / MLLM_UNIT_BYTES;
  const uint32_t count = units > UINT32_MAX ? UINT32_MAX : (uint32_t)units;
  (void)pthread_mutex_lock(&pool->lock);
  const uint64_t found = holes(pool) + mllm_units_lost(&pool->units, count) * MLLM_UNIT_BYTES;
  (void)pthread_mutex_unlock(&pool->lock);
  return found;
}

uint64_t mllm_pool_report(mllm_pool *pool, const char *owner,
                          void (*report)(void *context, const mllm_pool_left *left),
                          void *context) {
  uint64_t count = 0;
  (void)pthread_mutex_lock(&pool->lock);
  for (uint32_t i = 0; i < pool->n_records; i++) {
    const mllm_pool_record *record = &pool->records[i];
    if (record->refs == 0) continue;
    if (owner != NULL && strncmp(record->owner, owner, sizeof record->owner - 1) != 0) continue;
    count++;
    if (report == NULL) continue;
    const mllm_pool_left left = {.name = record->name,
                                 .owner = record->owner,
                                 .bytes = record->requested,
                                 .references = record->refs};
    report(context, &left);
  }
  (void)pthread_mutex_unlock(&pool->lock);
  return count;
}
