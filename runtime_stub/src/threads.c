/* threads.c - the pool.
 *
 * A region is opened by the caller's thread, which then takes chunks like everybody else. A worker
 * that arrives while the region is open counts itself in `active`, works and counts itself out; the
 * caller closes the region and waits only for those who came in. So a worker that the system has
 * put aside delays nobody. Idle workers spin a few microseconds, then sleep.
 */
#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

enum { SPINS = 4000, CHUNKS_PER_THREAD = 4 };

struct mllm_threads {
  uint32_t count; /* the caller's thread included */
  uint32_t started;
  unsigned char *scratch; /* [count][MLLM_SCRATCH_BYTES] */
  pthread_t handles[MLLM_MAX_THREADS];
  struct mllm_worker {
    mllm_threads *pool;
    uint32_t index;
  } workers[MLLM_MAX_THREADS];
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  atomic_uint generation; /* counts regions */
  atomic_uint sleepers;
  atomic_uint active; /* workers inside the open region */
  atomic_bool open;
  atomic_bool stop;
  atomic_size_t next; /* first item not yet taken */
  /* the region's work: written while no worker is active */
  size_t items;
  size_t chunk;
  mllm_task task;
  void *argument;
};

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void *scratch_of(const mllm_threads *pool, uint32_t thread) {
  return pool->scratch + (size_t)thread * MLLM_SCRATCH_BYTES;
}

static void take_chunks(mllm_threads *pool, uint32_t thread) {
  for (;;) {
    const size_t begin = atomic_fetch_add(&pool->next, pool->chunk);
    if (begin >= pool->items) return;
    const size_t left = pool->items - begin;
    const size_t end = begin + (left < pool->chunk ? left : pool->chunk);
    pool->task(pool->argument, begin, end, scratch_of(pool, thread));
  }
}

/* Waits until a region after `seen` was opened; returns its number. */
static unsigned wait_for_region(mllm_threads *pool, unsigned seen) {
  for (int spin = 0; spin < SPINS; spin++) {
    const unsigned now = atomic_load(&pool->generation);
    if (now != seen) return now;
    relax();
  }
  pthread_mutex_lock(&pool->mutex);
  atomic_fetch_add(&pool->sleepers, 1);
  while (atomic_load(&pool->generation) == seen) pthread_cond_wait(&pool->wake, &pool->mutex);
  atomic_fetch_sub(&pool->sleepers, 1);
  pthread_mutex_unlock(&pool->mutex);
  return atomic_load(&pool->generation);
}

static void *work(void *argument) {
  struct mllm_worker *self = argument;
  mllm_threads *pool = self->pool;
  unsigned seen = 0;
  for (;;) {
    seen = wait_for_region(pool, seen);
    if (atomic_load(&pool->stop)) return NULL;
    atomic_fetch_add(&pool->active, 1);
    if (atomic_load(&pool->open)) take_chunks(pool, self->index);
    atomic_fetch_sub(&pool->active, 1);
  }
}

static void announce(mllm_threads *pool) {
  atomic_fetch_add(&pool->generation, 1);
  if (atomic_load(&pool->sleepers) == 0) return;
  pthread_mutex_lock(&pool->mutex);
  pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->mutex);
}

static uint32_t core_count(void) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (cores < 1) return 1;
  return cores > MLLM_MAX_THREADS ? MLLM_MAX_THREADS : (uint32_t)cores;
}

mllm_threads *mllm_threads_create(uint32_t threads) {
  if (threads == 0) threads = core_count();
  if (threads > MLLM_MAX_THREADS) threads = MLLM_MAX_THREADS;
  mllm_threads *pool = calloc(1, sizeof *pool);
  if (pool == NULL) return NULL;
  pool->count = threads;
  pool->scratch = aligned_alloc(64, (size_t)threads * MLLM_SCRATCH_BYTES);
  if (pool->scratch == NULL) {
    free(pool);
    return NULL;
  }
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_cond_init(&pool->wake, NULL);
  for (uint32_t i = 1; i < threads; i++) {
    pool->workers[i].pool = pool;
    pool->workers[i].index = i;
    if (pthread_create(&pool->handles[i], NULL, work, &pool->workers[i]) != 0) {
      mllm_threads_destroy(pool);
      return NULL;
    }
    pool->started++;
  }
  return pool;
}

void mllm_threads_destroy(mllm_threads *pool) {
  if (pool == NULL) return;
  atomic_store(&pool->stop, true);
  announce(pool);
  for (uint32_t i = 1; i <= pool->started; i++) pthread_join(pool->handles[i], NULL);
  pthread_cond_destroy(&pool->wake);
  pthread_mutex_destroy(&pool->mutex);
  free(pool->scratch);
  free(pool);
}

uint32_t mllm_threads_count(const mllm_threads *pool) { return pool->count; }

void mllm_parallel_for(mllm_threads *pool, size_t items, size_t grain, mllm_task task,
                       void *argument) {
  if (items == 0) return;
  if (grain == 0) grain = 1;
  if (pool->count == 1 || items <= grain) {
    task(argument, 0, items, scratch_of(pool, 0));
    return;
  }
  const size_t parts = (size_t)pool->count * CHUNKS_PER_THREAD;
  const size_t share = items / parts + (items % parts != 0);
  pool->items = items;
  pool->chunk = share > grain ? share : grain;
  pool->task = task;
  pool->argument = argument;
  atomic_store(&pool->next, 0);
  atomic_store(&pool->open, true);
  announce(pool);
  take_chunks(pool, 0);
  atomic_store(&pool->open, false);
  for (unsigned spin = 0; atomic_load(&pool->active) != 0; spin++) {
    if (spin < SPINS) {
      relax();
    } else {
      (void)sched_yield();
    }
  }
}
