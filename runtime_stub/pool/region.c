/* region.c - mapping a region of addresses, and the backends of plain memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool.h"

/* Huge pages and locking are wishes: what the system refuses is told in the region. */
static uint32_t refused(void *base, uint64_t bytes, uint32_t flags) {
  uint32_t found = 0;
  if ((flags & MLLM_POOL_HUGE_PAGES) != 0) {
#ifdef MADV_HUGEPAGE
    if (madvise(base, bytes, MADV_HUGEPAGE) != 0) found |= MLLM_POOL_HUGE_PAGES;
#else
    found |= MLLM_POOL_HUGE_PAGES;
#endif
  }
  if ((flags & MLLM_POOL_LOCKED) != 0) {
#ifdef MLOCK_ONFAULT
    if (mlock2(base, bytes, MLOCK_ONFAULT) != 0) found |= MLLM_POOL_LOCKED;
#else
    if (mlock(base, bytes) != 0) found |= MLLM_POOL_LOCKED;
#endif
  }
  return found;
}

mllm_status mllm_region_map(uint64_t bytes, uint32_t flags, int fd, mllm_pool_region *region,
                            mllm_error *error) {
  /* addresses first, one unit more than needed, then memory at the aligned part of them */
  const uint64_t mapped = bytes + MLLM_UNIT_BYTES;
  void *mapping =
      mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_REGION, "no %llu bytes of addresses: %s",
                     (unsigned long long)bytes, strerror(errno));
  const uint64_t into = (uint64_t)(uintptr_t)mapping % MLLM_UNIT_BYTES;
  unsigned char *base =
      (unsigned char *)mapping + (into == 0 ? 0 : MLLM_UNIT_BYTES - into);
  const int kind = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  if (mmap(base, bytes, PROT_READ | PROT_WRITE, kind | MAP_FIXED, fd, 0) == MAP_FAILED) {
    (void)mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_REGION, "%llu bytes cannot be mapped: %s",
                    (unsigned long long)bytes, strerror(errno));
    (void)munmap(mapping, mapped);
    return MLLM_OUT_OF_MEMORY;
  }
  *region = (mllm_pool_region){.base = base, .bytes = bytes, .fd = fd, .mapping = mapping,
                               .mapped = mapped, .refused = refused(base, bytes, flags)};
  return MLLM_OK;
}

void mllm_region_unmap(void *context, mllm_pool_region *region) {
  (void)context;
  if (region->mapping != NULL) (void)munmap(region->mapping, region->mapped);
  if (region->fd >= 0) (void)close(region->fd);
  *region = (mllm_pool_region){.fd = -1};
}

void mllm_region_warm(const mllm_pool_region *region, uint64_t offset, uint64_t bytes) {
  unsigned char *base = region->base + offset;
#ifdef MADV_POPULATE_WRITE
  if (madvise(base, bytes, MADV_POPULATE_WRITE) == 0) return;
#endif
  /* adding nothing has the page provided, and changes no byte that a thread writes meanwhile */
  for (uint64_t i = 0; i < bytes; i += 4096)
    (void)__atomic_fetch_or(base + i, 0, __ATOMIC_RELAXED);
}

static mllm_status reserve_anonymous(void *context, uint64_t bytes, uint32_t flags,
                                     mllm_pool_region *region, mllm_error *error) {
  (void)context;
  return mllm_region_map(bytes, flags, -1, region, error);
}

static mllm_status drop_anonymous(void *context, mllm_pool_region *region, uint64_t offset,
                                  uint64_t bytes, mllm_error *error) {
  (void)context;
  if (madvise(region->base + offset, bytes, MADV_DONTNEED) == 0) return MLLM_OK;
  return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_REGION, "pages cannot be given back: %s",
                   strerror(errno));
}

#define SEEN_BY_CACHES (1u << MLLM_MEMORY_HOST | 1u << MLLM_MEMORY_NPU_COHERENT)

const mllm_pool_backend *mllm_pool_anonymous(void) {
  static const mllm_pool_backend backend = {.name = "anonymous memory",
                                            .domains = SEEN_BY_CACHES,
                                            .reserve = reserve_anonymous,
                                            .give_back = mllm_region_unmap,
                                            .drop = drop_anonymous};
  return &backend;
}

static mllm_status reserve_memfd(void *context, uint64_t bytes, uint32_t flags,
                                 mllm_pool_region *region, mllm_error *error) {
  (void)context;
#ifdef MFD_ALLOW_SEALING
  const int fd = memfd_create("mllm-pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
#else
  const int fd = -1;
  errno = ENOSYS;
#endif
  if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) {
    (void)mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_REGION, "no memory file of %llu bytes: %s",
                    (unsigned long long)bytes, strerror(errno));
    if (fd >= 0) (void)close(fd);
    return MLLM_UNSUPPORTED;
  }
#ifdef MFD_ALLOW_SEALING
  /* a peer that made the file shorter would have every other process fault */
  (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
#endif
  const mllm_status status = mllm_region_map(bytes, flags, fd, region, error);
  if (status != MLLM_OK) (void)close(fd);
  return status;
}

static mllm_status drop_memfd(void *context, mllm_pool_region *region, uint64_t offset,
                              uint64_t bytes, mllm_error *error) {
  (void)context;
#ifdef FALLOC_FL_PUNCH_HOLE
  if (fallocate(region->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                (off_t)bytes) == 0)
    return MLLM_OK;
#else
  (void)region;
  (void)offset;
  (void)bytes;
  errno = ENOSYS;
#endif
  return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_REGION, "pages cannot be given back: %s",
                   strerror(errno));
}

const mllm_pool_backend *mllm_pool_memfd(void) {
  static const mllm_pool_backend backend = {.name = "a memory file",
                                            .domains = SEEN_BY_CACHES,
                                            .reserve = reserve_memfd,
                                            .give_back = mllm_region_unmap,
                                            .drop = drop_memfd};
  return &backend;
}
