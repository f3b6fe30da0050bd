/* threads.h - a small persistent pool; the caller's thread takes part in the work. */
#ifndef MLLM_THREADS_H
#define MLLM_THREADS_H

#include "mllm.h"

enum { MLLM_SCRATCH_BYTES = 1 << 20, MLLM_MAX_THREADS = 64 };

typedef struct mllm_threads mllm_threads;

/* Works on items begin..end; scratch is this thread's MLLM_SCRATCH_BYTES, aligned to 64. */
typedef void (*mllm_task)(void *argument, size_t begin, size_t end, void *scratch);

/* threads = 0: one per core. NULL when memory or threads run out. */
mllm_threads *mllm_threads_create(uint32_t threads);
void mllm_threads_destroy(mllm_threads *pool);
uint32_t mllm_threads_count(const mllm_threads *pool);

/* Calls task over 0..items in chunks of at least grain items (0 counts as 1), each item once, and
 * returns when all are done. Chunks are taken as threads become free; which thread works on an item
 * must not change its result. */
void mllm_parallel_for(mllm_threads *pool, size_t items, size_t grain, mllm_task task,
                       void *argument);

#endif /* MLLM_THREADS_H */
