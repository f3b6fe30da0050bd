/* domains.c - accesses of buffers by processor and devices, and the cache operations between them. */
#include "pool.h"

/* Whether a domain reads and writes through the processor's caches. */
static const bool cached[MLLM_MEMORY_DOMAINS] = {
    [MLLM_MEMORY_HOST] = true,          [MLLM_MEMORY_UNCACHED] = false,
    [MLLM_MEMORY_NPU_COHERENT] = true,  [MLLM_MEMORY_NPU] = false,
    [MLLM_MEMORY_GPU] = false,
};

static const char *const names[MLLM_MEMORY_DOMAINS] = {
    [MLLM_MEMORY_HOST] = "the processor",
    [MLLM_MEMORY_UNCACHED] = "the processor past its caches",
    [MLLM_MEMORY_NPU_COHERENT] = "a coherent NPU",
    [MLLM_MEMORY_NPU] = "an NPU",
    [MLLM_MEMORY_GPU] = "a GPU",
};

typedef struct step {
  mllm_maintenance operation;
  mllm_newest newest; /* afterwards */
} step;

/* What an access needs: by where the newest bytes are, whether it goes through the caches, and whether it
 * writes. Lines that were written are flushed, not only cleaned, before a device writes: left in the
 * caches they could be evicted over what it wrote. */
static const step steps[3][2][2] = {
    [MLLM_NEWEST_BOTH] = {{{MLLM_MAINTAIN_NONE, MLLM_NEWEST_BOTH},
                           {MLLM_MAINTAIN_NONE, MLLM_NEWEST_MEMORY}},
                          {{MLLM_MAINTAIN_NONE, MLLM_NEWEST_BOTH},
                           {MLLM_MAINTAIN_NONE, MLLM_NEWEST_CACHES}}},
    [MLLM_NEWEST_CACHES] = {{{MLLM_MAINTAIN_CLEAN, MLLM_NEWEST_BOTH},
                             {MLLM_MAINTAIN_FLUSH, MLLM_NEWEST_MEMORY}},
                            {{MLLM_MAINTAIN_NONE, MLLM_NEWEST_CACHES},
                             {MLLM_MAINTAIN_NONE, MLLM_NEWEST_CACHES}}},
    [MLLM_NEWEST_MEMORY] = {{{MLLM_MAINTAIN_NONE, MLLM_NEWEST_MEMORY},
                             {MLLM_MAINTAIN_NONE, MLLM_NEWEST_MEMORY}},
                            {{MLLM_MAINTAIN_INVALIDATE, MLLM_NEWEST_BOTH},
                             {MLLM_MAINTAIN_INVALIDATE, MLLM_NEWEST_CACHES}}},
};

static mllm_pool_stretch stretch_of(const mllm_pool_record *record) {
  return (mllm_pool_stretch){.offset = record->offset,
                             .bytes = record->rounded,
                             .name = record->name,
                             .owner = record->owner};
}

static mllm_status maintain(mllm_pool *pool, mllm_maintenance operation,
                            const mllm_pool_record *record, mllm_error *error) {
  if (operation == MLLM_MAINTAIN_NONE || pool->backend.maintain == NULL) return MLLM_OK;
  const mllm_pool_stretch stretch = stretch_of(record);
  pool->statistics.maintained[operation]++;
  return pool->backend.maintain(pool->backend.context, &pool->region, operation, &stretch, error);
}

mllm_status mllm_pool_settle(mllm_pool *pool, mllm_pool_record *record, mllm_error *error) {
  static const mllm_maintenance operations[] = {
      [MLLM_NEWEST_BOTH] = MLLM_MAINTAIN_NONE,
      [MLLM_NEWEST_CACHES] = MLLM_MAINTAIN_FLUSH,
      [MLLM_NEWEST_MEMORY] = MLLM_MAINTAIN_INVALIDATE,
  };
  const mllm_status status = maintain(pool, operations[record->newest], record, error);
  record->newest = MLLM_NEWEST_BOTH;
  return status;
}

/* A domain that reads what is being written, or writes what others use: -1: nobody is in the way. */
static int32_t in_the_way(const mllm_pool_record *record, mllm_access access) {
  if (record->writer >= 0) return record->writer;
  if ((access & MLLM_ACCESS_WRITE) == 0) return -1;
  for (int32_t i = 0; i < MLLM_MEMORY_DOMAINS; i++)
    if (record->readers[i] > 0) return i;
  return -1;
}

static mllm_status check(const mllm_pool *pool, const mllm_pool_record *record, mllm_memory domain,
                         mllm_access access, mllm_error *error) {
  if ((pool->backend.domains & 1u << domain) == 0)
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_ACCESS,
                     "memory of '%s' is not visible to %s: buffer '%s' of %s", pool->backend.name,
                     names[domain], record->name, record->owner);
  const int32_t other = in_the_way(record, access);
  if (other < 0) return MLLM_OK;
  return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ACCESS,
                   "%s cannot %s buffer '%s' of %s while %s %s it", names[domain],
                   (access & MLLM_ACCESS_WRITE) != 0 ? "write" : "read", record->name,
                   record->owner, names[other], record->writer >= 0 ? "writes" : "reads");
}

static mllm_status start(mllm_pool *pool, mllm_pool_record *record, mllm_memory domain,
                         mllm_access access, mllm_error *error) {
  mllm_status status = check(pool, record, domain, access, error);
  if (status != MLLM_OK) return status;
  const bool writes = (access & MLLM_ACCESS_WRITE) != 0;
  const step next = steps[record->newest][cached[domain]][writes];
  status = maintain(pool, next.operation, record, error);
  if (status != MLLM_OK) return status;
  const mllm_pool_stretch stretch = stretch_of(record);
  if (pool->backend.begin != NULL)
    status = pool->backend.begin(pool->backend.context, &pool->region, domain, access, &stretch,
                                 error);
  if (status != MLLM_OK) return status;
  record->newest = next.newest;
  if (writes)
    record->writer = (int32_t)domain;
  else
    record->readers[domain]++;
  return MLLM_OK;
}

static bool is_known(mllm_memory domain, mllm_access access) {
  return (uint32_t)domain < MLLM_MEMORY_DOMAINS && (uint32_t)access >= 1 && (uint32_t)access <= 3;
}

mllm_status mllm_pool_access(mllm_pool *pool, mllm_buffer buffer, mllm_memory domain,
                             mllm_access access, void **data, mllm_error *error) {
  *data = NULL;
  if (!is_known(domain, access))
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "there is no domain %u or access %u", (unsigned int)domain,
                     (unsigned int)access);
  (void)pthread_mutex_lock(&pool->lock);
  mllm_pool_record *record = mllm_pool_find(pool, buffer, error);
  mllm_status status = MLLM_INVALID_ARGUMENT;
  if (record != NULL) status = start(pool, record, domain, access, error);
  if (status == MLLM_OK)
    *data = pool->backend.at == NULL
                ? pool->region.base + record->offset
                : pool->backend.at(pool->backend.context, &pool->region, domain, record->offset);
  (void)pthread_mutex_unlock(&pool->lock);
  return status;
}

/* Whether the access was there to end. */
static bool finish(mllm_pool_record *record, mllm_memory domain, mllm_access access) {
  if ((access & MLLM_ACCESS_WRITE) != 0) {
    if (record->writer != (int32_t)domain) return false;
    record->writer = -1;
    return true;
  }
  if (record->readers[domain] == 0) return false;
  record->readers[domain]--;
  return true;
}

mllm_status mllm_pool_access_end(mllm_pool *pool, mllm_buffer buffer, mllm_memory domain,
                                 mllm_access access, mllm_error *error) {
  if (!is_known(domain, access))
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "there is no domain %u or access %u", (unsigned int)domain,
                     (unsigned int)access);
  (void)pthread_mutex_lock(&pool->lock);
  mllm_pool_record *record = mllm_pool_find(pool, buffer, error);
  mllm_status status = record == NULL ? MLLM_INVALID_ARGUMENT : MLLM_OK;
  if (record != NULL && !finish(record, domain, access))
    status = mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ACCESS,
                       "%s does not %s buffer '%s' of %s", names[domain],
                       (access & MLLM_ACCESS_WRITE) != 0 ? "write" : "read", record->name,
                       record->owner);
  (void)pthread_mutex_unlock(&pool->lock);
  return status;
}
