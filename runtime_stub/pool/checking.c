/* checking.c - a processor and a device whose copies of memory agree only after cache operations. */
#include <stdlib.h>
#include <string.h>

#include "pool.h"

enum { LINE = 64 };

/* What is wrong with a line's two copies. */
enum { WRITTEN = 1 /* in the caches, not in memory */, STALE = 2 /* memory is newer */ };

/* The device's copy follows the processor's in the same mapping. */
typedef struct copies {
  unsigned char *device; /* [bytes] */
  unsigned char *lines;  /* [bytes / LINE] */
} copies;

static void give_back(void *context, mllm_pool_region *region) {
  copies *own = region->own;
  if (own != NULL) free(own->lines);
  free(own);
  mllm_region_unmap(context, region);
}

static mllm_status reserve(void *context, uint64_t bytes, uint32_t flags, mllm_pool_region *region,
                           mllm_error *error) {
  const mllm_status status = mllm_region_map(2 * bytes, flags, -1, region, error);
  if (status != MLLM_OK) return status;
  region->bytes = bytes;
  copies *own = calloc(1, sizeof *own);
  region->own = own;
  if (own != NULL) {
    own->device = region->base + bytes;
    own->lines = calloc(bytes / LINE, 1);
  }
  if (own != NULL && own->lines != NULL) return MLLM_OK;
  give_back(context, region);
  return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for checked lines");
}

static mllm_status maintain(void *context, mllm_pool_region *region, mllm_maintenance operation,
                            const mllm_pool_stretch *stretch, mllm_error *error) {
  (void)context;
  (void)error;
  copies *own = region->own;
  for (uint64_t at = stretch->offset; at < stretch->offset + stretch->bytes; at += LINE) {
    unsigned char *line = &own->lines[at / LINE];
    if ((operation & MLLM_MAINTAIN_CLEAN) != 0 && (*line & WRITTEN) != 0) {
      memcpy(own->device + at, region->base + at, LINE);
      *line = 0;
    }
    if ((operation & MLLM_MAINTAIN_INVALIDATE) == 0) continue;
    memcpy(region->base + at, own->device + at, LINE);
    *line = 0;
  }
  return MLLM_OK;
}

static bool sees_caches(mllm_memory domain) {
  return domain == MLLM_MEMORY_HOST || domain == MLLM_MEMORY_NPU_COHERENT;
}

static void *at(void *context, const mllm_pool_region *region, mllm_memory domain,
                uint64_t offset) {
  (void)context;
  const copies *own = region->own;
  return sees_caches(domain) ? region->base + offset : own->device + offset;
}

static mllm_status begin(void *context, mllm_pool_region *region, mllm_memory domain,
                         mllm_access access, const mllm_pool_stretch *stretch, mllm_error *error) {
  (void)context;
  copies *own = region->own;
  const unsigned char fault = sees_caches(domain) ? STALE : WRITTEN;
  const unsigned char mark = sees_caches(domain) ? WRITTEN : STALE;
  for (uint64_t i = stretch->offset / LINE; i < (stretch->offset + stretch->bytes) / LINE; i++) {
    if ((own->lines[i] & fault) != 0)
      return mllm_fail(error, MLLM_INTERNAL, MLLM_CODE_MAINTENANCE,
                       "'%s' is missing before an access of buffer '%s' of %s",
                       fault == STALE ? "invalidate"
                       : (access & MLLM_ACCESS_WRITE) != 0 ? "flush" : "clean",
                       stretch->name, stretch->owner);
    if ((access & MLLM_ACCESS_WRITE) != 0) own->lines[i] |= mark;
  }
  return MLLM_OK;
}

const mllm_pool_backend *mllm_pool_checking(void) {
  static const mllm_pool_backend backend = {.name = "checked memory",
                                            .domains = (1u << MLLM_MEMORY_DOMAINS) - 1,
                                            .reserve = reserve,
                                            .give_back = give_back,
                                            .maintain = maintain,
                                            .at = at,
                                            .begin = begin};
  return &backend;
}
