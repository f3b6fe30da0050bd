/* pool.c - making a pool, and taking, counting and releasing its buffers. */
#include "pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_BUFFERS = 65536, SPARE_PART = 4 /* of the bytes, in addresses beyond them */ };
#define MOST_BYTES ((uint64_t)1 << 40)
#define NO_RECORD UINT32_MAX

static mllm_status make_tables(mllm_pool *pool, const mllm_pool_options *options,
                               mllm_error *error) {
  const uint32_t addresses = (uint32_t)(pool->region.bytes / MLLM_UNIT_BYTES);
  const uint32_t memory = (uint32_t)(pool->statistics.bytes / MLLM_UNIT_BYTES);
  pool->n_records = options->buffers == 0 ? DEFAULT_BUFFERS : options->buffers;
  pool->records = calloc(pool->n_records, sizeof *pool->records);
  if (pool->records == NULL || !mllm_slabs_make(&pool->slabs, addresses) ||
      !mllm_units_make(&pool->units, addresses, memory, &pool->region, &pool->backend))
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for a pool's tables");
  for (uint32_t i = 0; i < pool->n_records; i++)
    pool->records[i].next = i + 1 < pool->n_records ? i + 1 : NO_RECORD;
  pool->waiting = NO_RECORD;
  return MLLM_OK;
}

/* More addresses than bytes, where pages can move to them, let a long run be found among short buffers. */
static mllm_status reserve(mllm_pool *pool, uint64_t bytes, uint32_t flags, mllm_error *error) {
  const bool moves = pool->backend.drop != NULL &&
                     (flags & (MLLM_POOL_HUGE_PAGES | MLLM_POOL_LOCKED)) == 0;
  const uint64_t spare = moves ? bytes / MLLM_UNIT_BYTES / SPARE_PART * MLLM_UNIT_BYTES : 0;
  void *context = pool->backend.context;
  pool->region.fd = -1;
  mllm_status status = pool->backend.reserve(context, bytes + spare, flags, &pool->region, error);
  if (status != MLLM_OK && spare > 0)
    status = pool->backend.reserve(context, bytes, flags, &pool->region, error);
  if (status != MLLM_OK) return status;
  pool->statistics.bytes = bytes;
  pool->statistics.refused = pool->region.refused;
  if ((flags & MLLM_POOL_STRICT) == 0 || pool->region.refused == 0) return MLLM_OK;
  return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_REGION, "the system refuses %s",
                   (pool->region.refused & MLLM_POOL_LOCKED) != 0 ? "to lock memory"
                                                                  : "huge pages");
}

mllm_status mllm_pool_create(const mllm_pool_options *options, mllm_pool **pool,
                             mllm_error *error) {
  mllm_clear(error);
  if (options == NULL || pool == NULL)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT, "a pointer is NULL");
  *pool = NULL;
  if (options->bytes == 0 || options->bytes > MOST_BYTES || options->buffers == NO_RECORD)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "a pool of %llu bytes cannot be", (unsigned long long)options->bytes);
  mllm_pool *made = calloc(1, sizeof *made);
  if (made == NULL)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for a pool");
  (void)pthread_mutex_init(&made->lock, NULL);
  made->backend = options->backend == NULL ? *mllm_pool_anonymous() : *options->backend;
  memcpy(made->watermarks, options->watermarks, sizeof made->watermarks);
  const uint32_t units = (uint32_t)((options->bytes + MLLM_UNIT_BYTES - 1) / MLLM_UNIT_BYTES);
  mllm_status status = reserve(made, units * MLLM_UNIT_BYTES, options->flags, error);
  if (status == MLLM_OK) status = make_tables(made, options, error);
  if (status != MLLM_OK) {
    mllm_pool_destroy(made);
    return status;
  }
  *pool = made;
  return MLLM_OK;
}

void mllm_pool_destroy(mllm_pool *pool) {
  if (pool == NULL) return;
  if (pool->region.base != NULL) pool->backend.give_back(pool->backend.context, &pool->region);
  mllm_units_free(&pool->units);
  mllm_slabs_free(&pool->slabs);
  free(pool->records);
  (void)pthread_mutex_destroy(&pool->lock);
  free(pool);
}

mllm_status mllm_pool_warm(mllm_pool *pool, uint64_t bytes, mllm_error *error) {
  mllm_clear(error);
  if (bytes > pool->statistics.bytes)
    return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_ARGUMENT,
                     "the pool has %llu bytes, not %llu",
                     (unsigned long long)pool->statistics.bytes, (unsigned long long)bytes);
  for (uint64_t at = 0; at < bytes; at += MLLM_UNIT_BYTES) {
    /* under the lock, so that no unit gives back what it is getting */
    (void)pthread_mutex_lock(&pool->lock);
    if (mllm_units_warm(&pool->units, (uint32_t)(at / MLLM_UNIT_BYTES)))
      mllm_region_warm(&pool->region, at,
                       bytes - at < MLLM_UNIT_BYTES ? bytes - at : MLLM_UNIT_BYTES);
    (void)pthread_mutex_unlock(&pool->lock);
  }
  return MLLM_OK;
}

void mllm_pool_forbid(mllm_pool *pool, int on) {
  (void)pthread_mutex_lock(&pool->lock);
  pool->forbidden = on;
  (void)pthread_mutex_unlock(&pool->lock);
}

static void count(mllm_pool *pool, const mllm_pool_record *record) {
  mllm_pool_statistics *all = &pool->statistics;
  mllm_pool_type_statistics *own = &all->types[record->type];
  all->taken++;
  all->used += record->rounded;
  all->requested += record->requested;
  if (all->used > all->peak) all->peak = all->used;
  own->buffers++;
  own->used += record->rounded;
  own->requested += record->requested;
  if (own->used > own->peak) own->peak = own->used;
  const uint64_t watermark = pool->watermarks[record->type];
  own->over += watermark > 0 && own->used > watermark;
}

/* Memory for a request: its offset, and its size as rounded. UINT64_MAX: none. */
static uint64_t place(mllm_pool *pool, uint64_t bytes, uint64_t *rounded) {
  if (bytes <= MLLM_SLAB_MOST) {
    const uint32_t class = mllm_slab_class(&pool->slabs, bytes);
    *rounded = pool->slabs.sizes[class];
    return mllm_slab_take(&pool->slabs, &pool->units, class);
  }
  const uint32_t units = (uint32_t)((bytes + MLLM_UNIT_BYTES - 1) / MLLM_UNIT_BYTES);
  *rounded = units * MLLM_UNIT_BYTES;
  const uint32_t first = mllm_units_take(&pool->units, units);
  return first == MLLM_NO_UNIT ? UINT64_MAX : first * MLLM_UNIT_BYTES;
}

static mllm_status take(mllm_pool *pool, const mllm_pool_request *request, mllm_buffer *buffer,
                        mllm_error *error) {
  const char *name = request->name == NULL ? "" : request->name;
  const char *owner = request->owner == NULL ? "" : request->owner;
  if (pool->forbidden) {
    pool->statistics.forbidden++;
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_FORBIDDEN,
                     "'%.31s' of %.31s asks for %llu bytes after warm-up", name, owner,
                     (unsigned long long)request->bytes);
  }
  const uint32_t index = pool->unused;
  uint64_t rounded = 0, offset = UINT64_MAX;
  if (index != NO_RECORD && request->bytes <= pool->statistics.bytes)
    offset = place(pool, request->bytes, &rounded);
  if (offset == UINT64_MAX) {
    pool->statistics.failed++;
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_POOL_FULL,
                     "no room for %llu bytes of '%.31s' of %.31s: %llu of %llu are used",
                     (unsigned long long)request->bytes, name, owner,
                     (unsigned long long)pool->statistics.used,
                     (unsigned long long)pool->statistics.bytes);
  }
  mllm_pool_record *record = &pool->records[index];
  pool->unused = record->next;
  const uint32_t generation = record->generation + 1;
  *record = (mllm_pool_record){.offset = offset, .requested = request->bytes, .rounded = rounded,
                               .refs = 1, .generation = generation, .type = request->type,
                               .writer = -1};
  (void)snprintf(record->name, sizeof record->name, "%s", name);
  (void)snprintf(record->owner, sizeof record->owner, "%s", owner);
  count(pool, record);
  *buffer = (uint64_t)generation << 32 | (index + 1);
  return MLLM_OK;
}

mllm_status mllm_pool_take(mllm_pool *pool, const mllm_pool_request *request, mllm_buffer *buffer,
                           mllm_error *error) {
  mllm_clear(error);
  *buffer = MLLM_NO_BUFFER;
  if (request->bytes == 0 || request->type >= MLLM_POOL_TYPES)
    return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT,
                     "a buffer of %llu bytes and type %u cannot be",
                     (unsigned long long)request->bytes, (unsigned int)request->type);
  (void)pthread_mutex_lock(&pool->lock);
  const mllm_status status = take(pool, request, buffer, error);
  (void)pthread_mutex_unlock(&pool->lock);
  return status;
}

mllm_pool_record *mllm_pool_find(mllm_pool *pool, mllm_buffer buffer, mllm_error *error) {
  const uint32_t index = (uint32_t)buffer - 1, generation = (uint32_t)(buffer >> 32);
  if (index < pool->n_records) {
    mllm_pool_record *record = &pool->records[index];
    if (record->refs > 0 && record->generation == generation) return record;
  }
  (void)mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_BUFFER,
                  "the pool has no buffer %llu, or it was released", (unsigned long long)buffer);
  return NULL;
}

static void give(mllm_pool *pool, uint32_t index) {
  mllm_pool_record *record = &pool->records[index];
  mllm_pool_type_statistics *own = &pool->statistics.types[record->type];
  (void)mllm_pool_settle(pool, record, NULL);
  pool->statistics.used -= record->rounded;
  pool->statistics.requested -= record->requested;
  own->used -= record->rounded;
  own->requested -= record->requested;
  own->buffers--;
  if (record->rounded <= MLLM_SLAB_MOST)
    mllm_slab_give(&pool->slabs, &pool->units, mllm_slab_class(&pool->slabs, record->rounded),
                   record->offset);
  else
    mllm_units_give(&pool->units, (uint32_t)(record->offset / MLLM_UNIT_BYTES),
                    (uint32_t)(record->rounded / MLLM_UNIT_BYTES));
  record->rounded = 0;
  record->next = pool->unused;
  pool->unused = index;
}

/* The number of the inference that has run longest; UINT64_MAX: none runs. */
static uint64_t oldest(const mllm_pool *pool) {
  uint64_t found = UINT64_MAX;
  for (uint32_t i = 0; i < MLLM_POOL_TICKETS; i++)
    if (pool->tickets[i] != 0 && pool->tickets[i] < found) found = pool->tickets[i];
  return found;
}

static void give_waiting(mllm_pool *pool) {
  const uint64_t running = oldest(pool);
  uint32_t *link = &pool->waiting;
  while (*link != NO_RECORD) {
    const uint32_t index = *link;
    mllm_pool_record *record = &pool->records[index];
    if (record->released >= running) {
      link = &record->next;
      continue;
    }
    *link = record->next;
    pool->statistics.waiting--;
    give(pool, index);
  }
}

mllm_status mllm_pool_retain(mllm_pool *pool, mllm_buffer buffer, mllm_error *error) {
  (void)pthread_mutex_lock(&pool->lock);
  mllm_pool_record *record = mllm_pool_find(pool, buffer, error);
  if (record != NULL) record->refs++;
  (void)pthread_mutex_unlock(&pool->lock);
  return record == NULL ? MLLM_INVALID_ARGUMENT : MLLM_OK;
}

mllm_status mllm_pool_release(mllm_pool *pool, mllm_buffer buffer, mllm_error *error) {
  (void)pthread_mutex_lock(&pool->lock);
  mllm_pool_record *record = mllm_pool_find(pool, buffer, error);
  if (record != NULL && --record->refs == 0) {
    const uint32_t index = (uint32_t)buffer - 1;
    if (oldest(pool) == UINT64_MAX) {
      give(pool, index);
    } else {
      record->released = pool->begun;
      record->next = pool->waiting;
      pool->waiting = index;
      pool->statistics.waiting++;
    }
  }
  (void)pthread_mutex_unlock(&pool->lock);
  return record == NULL ? MLLM_INVALID_ARGUMENT : MLLM_OK;
}

uint32_t mllm_pool_references(mllm_pool *pool, mllm_buffer buffer) {
  (void)pthread_mutex_lock(&pool->lock);
  const mllm_pool_record *record = mllm_pool_find(pool, buffer, NULL);
  const uint32_t refs = record == NULL ? 0 : record->refs;
  (void)pthread_mutex_unlock(&pool->lock);
  return refs;
}

mllm_status mllm_pool_begin(mllm_pool *pool, uint32_t *ticket, mllm_error *error) {
  (void)pthread_mutex_lock(&pool->lock);
  uint32_t i = 0;
  while (i < MLLM_POOL_TICKETS && pool->tickets[i] != 0) i++;
  if (i < MLLM_POOL_TICKETS) pool->tickets[i] = ++pool->begun;
  (void)pthread_mutex_unlock(&pool->lock);
  *ticket = i;
  if (i < MLLM_POOL_TICKETS) return MLLM_OK;
  return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_POOL_FULL,
                   "more than %d inferences at a time", (int)MLLM_POOL_TICKETS);
}

void mllm_pool_end(mllm_pool *pool, uint32_t ticket) {
  if (ticket >= MLLM_POOL_TICKETS) return;
  (void)pthread_mutex_lock(&pool->lock);
  pool->tickets[ticket] = 0;
  give_waiting(pool);
  (void)pthread_mutex_unlock(&pool->lock);
}
