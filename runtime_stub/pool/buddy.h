/* buddy.h - runs of units of 1 MiB: blocks of powers of two that join again with their buddies. */
#ifndef MLLM_BUDDY_H
#define MLLM_BUDDY_H

#include <stdbool.h>
#include <stdint.h>

#define MLLM_UNIT_BYTES ((uint64_t)1 << 20)
#define MLLM_NO_UNIT    UINT32_MAX

enum { MLLM_BUDDY_ORDERS = 21 };

typedef struct mllm_buddy {
  uint32_t units;
  uint32_t free;                      /* units in free blocks */
  uint32_t counts[MLLM_BUDDY_ORDERS]; /* free blocks of each order */
  uint64_t *bits[MLLM_BUDDY_ORDERS];  /* a bit for each place of a block: it is free */
  uint64_t *words;                    /* all bits, to free */
} mllm_buddy;

/* All units are free. false: no memory. */
bool mllm_buddy_make(mllm_buddy *buddy, uint32_t units);
void mllm_buddy_free(mllm_buddy *buddy);

/* Units of the block that serves count: the next power of two. */
uint32_t mllm_buddy_round(uint32_t count);

/* The first unit of a block for count units; MLLM_NO_UNIT where none is free. Small blocks come from the
 * low end and large ones from the high end, so that few small ones keep large blocks from joining. For
 * the same reason no tail of a block is split off. */
uint32_t mllm_buddy_take(mllm_buddy *buddy, uint32_t count);
/* Gives back whole units, as rounded. */
void mllm_buddy_give(mllm_buddy *buddy, uint32_t first, uint32_t count);

/* Units of the largest free block, and all free units in blocks of less than count. */
uint32_t mllm_buddy_largest(const mllm_buddy *buddy);
uint32_t mllm_buddy_free_below(const mllm_buddy *buddy, uint32_t count);

#endif /* MLLM_BUDDY_H */
