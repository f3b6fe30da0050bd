/* pool_pages_test.c - a region with more addresses than memory: its pages stay within the memory. */
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "expect.h"
#include "mllm_pool.h"

#define MIB ((uint64_t)1 << 20)

enum { UNITS = 24, MOST = 64 };

/* Memory of a backend of the library, with what this test wants to see or to fail. */
typedef struct watched {
  const mllm_pool_backend *real;
  mllm_pool_region region; /* as reserved */
  uint64_t most;           /* bytes that can be reserved */
  int holds;               /* pages are not given back */
} watched;

static mllm_status reserve(void *context, uint64_t bytes, uint32_t flags, mllm_pool_region *region,
                           mllm_error *error) {
  watched *self = context;
  if (bytes > self->most) return MLLM_OUT_OF_MEMORY;
  const mllm_status status = self->real->reserve(self->real->context, bytes, flags, region, error);
  self->region = *region;
  return status;
}

static mllm_status drop(void *context, mllm_pool_region *region, uint64_t offset, uint64_t bytes,
                        mllm_error *error) {
  const watched *self = context;
  if (self->holds) return MLLM_UNSUPPORTED;
  return self->real->drop(self->real->context, region, offset, bytes, error);
}

static mllm_pool *pool_on(watched *memory, mllm_pool_backend *backend, uint32_t flags) {
  mllm_pool *pool = NULL;
  *backend = *memory->real;
  backend->context = memory;
  backend->reserve = reserve;
  backend->drop = drop;
  const mllm_pool_options options = {.bytes = UNITS * MIB, .flags = flags, .backend = backend};
  EXPECT(mllm_pool_create(&options, &pool, NULL) == MLLM_OK);
  return pool;
}

static mllm_buffer take(mllm_pool *pool, uint64_t units) {
  const mllm_pool_request request = {.bytes = units * MIB, .name = "run", .owner = "test"};
  mllm_buffer buffer;
  (void)mllm_pool_take(pool, &request, &buffer, NULL);
  return buffer;
}

static unsigned char *data_of(mllm_pool *pool, mllm_buffer buffer) {
  void *data = NULL;
  EXPECT(mllm_pool_access(pool, buffer, MLLM_MEMORY_HOST, MLLM_ACCESS_WRITE, &data, NULL) == MLLM_OK);
  EXPECT(mllm_pool_access_end(pool, buffer, MLLM_MEMORY_HOST, MLLM_ACCESS_WRITE, NULL) == MLLM_OK);
  return data;
}

/* What the kernel says there is. */
static uint64_t resident(const watched *memory) {
  static unsigned char pages[4096 * 4];
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  uint64_t found = 0;
  EXPECT(mincore(memory->region.base, memory->region.bytes, pages) == 0);
  for (uint64_t i = 0; i < memory->region.bytes / page; i++) found += (pages[i] & 1) * page;
  return found;
}

static uint64_t dropped(mllm_pool *pool) {
  mllm_pool_statistics now;
  mllm_pool_statistics_of(pool, &now);
  return now.dropped / MIB;
}

/* Every second MiB is kept; what lies between is 12 MiB in pieces, and is had as one. */
static void a_long_run_among_short_buffers(const mllm_pool_backend *real, uint32_t flags) {
  watched memory = {.real = real, .most = UINT64_MAX};
  mllm_pool_backend backend;
  mllm_pool *pool = pool_on(&memory, &backend, flags);
  mllm_buffer short_ones[UNITS], long_ones[2];
  for (int i = 0; i < UNITS; i++) {
    short_ones[i] = take(pool, 1);
    memset(data_of(pool, short_ones[i]), i, MIB);
  }
  EXPECT(take(pool, 1) == MLLM_NO_BUFFER && resident(&memory) == UNITS * MIB);
  for (int i = 0; i < 4; i += 2) EXPECT(mllm_pool_release(pool, short_ones[i], NULL) == MLLM_OK);
  EXPECT(take(pool, 3) == MLLM_NO_BUFFER && dropped(pool) == 0); /* 2 MiB of memory are free */
  for (int i = 4; i < UNITS; i += 2) EXPECT(mllm_pool_release(pool, short_ones[i], NULL) == MLLM_OK);
  EXPECT(mllm_pool_external_waste(pool, 6 * MIB) == (flags == 0 ? 6 : 12) * MIB);
  long_ones[0] = take(pool, 6);
  if (flags != 0) {
    EXPECT(long_ones[0] == MLLM_NO_BUFFER && memory.region.bytes == UNITS * MIB);
    mllm_pool_destroy(pool);
    return;
  }
  EXPECT(long_ones[0] != MLLM_NO_BUFFER && dropped(pool) == 6);
  EXPECT(resident(&memory) <= UNITS * MIB);
  memset(data_of(pool, long_ones[0]), 99, 6 * MIB);
  EXPECT(resident(&memory) == UNITS * MIB && take(pool, 2) == MLLM_NO_BUFFER);
  for (int i = 1; i < UNITS; i += 2) {
    const unsigned char *data = data_of(pool, short_ones[i]);
    for (uint64_t at = 0; at < MIB; at++) EXPECT(data[at] == i);
  }
  EXPECT(mllm_pool_warm(pool, UNITS * MIB, NULL) == MLLM_OK);
  EXPECT(resident(&memory) == UNITS * MIB);
  mllm_pool_destroy(pool);
}

/* Any buffers, all written: never more pages than memory, and no byte of another's. */
static void pages_stay_within_the_memory(const mllm_pool_backend *real) {
  watched memory = {.real = real, .most = UINT64_MAX};
  mllm_pool_backend backend;
  mllm_pool *pool = pool_on(&memory, &backend, 0);
  mllm_buffer live[MOST];
  uint64_t sizes[MOST], seed = 88172645463325252u;
  int n = 0;
  for (int step = 0; step < 1500; step++) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    if (n < MOST && seed % 100 < 60) {
      sizes[n] = seed / 128 % 4 == 0 ? 3 + seed / 512 % 5 : 1;
      live[n] = take(pool, sizes[n]);
      if (live[n] == MLLM_NO_BUFFER) continue;
      memset(data_of(pool, live[n]), (int)live[n] & 255, sizes[n] * MIB);
      EXPECT(resident(&memory) <= UNITS * MIB);
      n++;
    } else if (n > 0) {
      const int i = (int)(seed / 128 % (uint64_t)n);
      const unsigned char *data = data_of(pool, live[i]);
      for (uint64_t at = 0; at < sizes[i] * MIB; at += 64) EXPECT(data[at] == (live[i] & 255));
      EXPECT(mllm_pool_release(pool, live[i], NULL) == MLLM_OK);
      n--;
      live[i] = live[n];
      sizes[i] = sizes[n];
    }
  }
  EXPECT(dropped(pool) > 0);
  mllm_pool_destroy(pool);
}

/* Without pages there is no buffer, and the pool is as it was. */
static void pages_that_are_not_given_back(void) {
  watched memory = {.real = mllm_pool_anonymous(), .most = UINT64_MAX, .holds = 1};
  mllm_pool_backend backend;
  mllm_pool *pool = pool_on(&memory, &backend, 0);
  mllm_buffer short_ones[UNITS];
  mllm_pool_statistics now;
  for (int i = 0; i < UNITS; i++) short_ones[i] = take(pool, 1);
  for (int i = 0; i < UNITS; i += 2) EXPECT(mllm_pool_release(pool, short_ones[i], NULL) == MLLM_OK);
  EXPECT(take(pool, 4) == MLLM_NO_BUFFER);
  mllm_pool_statistics_of(pool, &now);
  EXPECT(now.used == UNITS / 2 * MIB && now.failed == 1 && now.dropped == 0);
  memory.holds = 0;
  EXPECT(take(pool, 4) != MLLM_NO_BUFFER && dropped(pool) == 4);
  mllm_pool_destroy(pool);
}

/* A system with too few addresses gives a pool whose addresses are its memory. */
static void addresses_to_spare_are_a_wish(void) {
  watched memory = {.real = mllm_pool_anonymous(), .most = UNITS * MIB};
  mllm_pool_backend backend;
  mllm_pool *pool = pool_on(&memory, &backend, 0);
  EXPECT(memory.region.bytes == UNITS * MIB && take(pool, UNITS) != MLLM_NO_BUFFER);
  mllm_pool_destroy(pool);
}

int main(void) {
  a_long_run_among_short_buffers(mllm_pool_anonymous(), 0);
  a_long_run_among_short_buffers(mllm_pool_anonymous(), MLLM_POOL_HUGE_PAGES);
  a_long_run_among_short_buffers(mllm_pool_memfd(), 0);
  pages_stay_within_the_memory(mllm_pool_anonymous());
  pages_stay_within_the_memory(mllm_pool_memfd());
  pages_that_are_not_given_back();
  addresses_to_spare_are_a_wish();
  return 0;
}
