/* slab.h - buffers of up to 512 KiB: units of 1 MiB that are cut into pieces of one size. */
#ifndef MLLM_SLAB_H
#define MLLM_SLAB_H

#include "units.h"

#define MLLM_SLAB_MOST   ((uint64_t)512 << 10)
#define MLLM_LARGE_BYTES ((uint64_t)256 << 10) /* alignment from here on */

enum { MLLM_SLAB_CLASSES = 42, MLLM_SLAB_WORDS = 256 /* of bits: 1 MiB in pieces of 64 bytes */ };

/* A unit that is cut. */
typedef struct mllm_slab {
  uint32_t used; /* pieces */
  uint32_t hint; /* words of bits before it have no free piece */
  uint32_t next; /* slab of its class that has free pieces */
  uint32_t previous;
} mllm_slab;

typedef struct mllm_slabs {
  uint32_t sizes[MLLM_SLAB_CLASSES]; /* ascending: four to each doubling, up to 128 KiB */
  uint32_t heads[MLLM_SLAB_CLASSES]; /* slabs with free pieces */
  mllm_slab *slabs;                  /* [units] */
  uint64_t *bits;                    /* [units, MLLM_SLAB_WORDS] pieces in use */
  uint64_t held;                     /* bytes of units that are cut */
} mllm_slabs;

bool mllm_slabs_make(mllm_slabs *slabs, uint32_t units);
void mllm_slabs_free(mllm_slabs *slabs);

/* The class of a size of at most MLLM_SLAB_MOST. */
uint32_t mllm_slab_class(const mllm_slabs *slabs, uint64_t bytes);

/* The offset of a piece in the region; UINT64_MAX where there is no memory. */
uint64_t mllm_slab_take(mllm_slabs *slabs, mllm_units *units, uint32_t class);
/* A unit without used pieces is given back. */
void mllm_slab_give(mllm_slabs *slabs, mllm_units *units, uint32_t class, uint64_t offset);

#endif /* MLLM_SLAB_H */
