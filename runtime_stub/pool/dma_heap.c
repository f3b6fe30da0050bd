/* dma_heap.c - memory of a heap of the kernel, that its drivers can use (Linux). */
#define _GNU_SOURCE
#include "pool.h"

#include <errno.h>
#include <string.h>

#ifdef __linux__
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <sys/ioctl.h>
#include <unistd.h>

static mllm_status reserve(void *context, uint64_t bytes, uint32_t flags, mllm_pool_region *region,
                           mllm_error *error) {
  const char *path = context;
  const int heap = open(path, O_RDWR | O_CLOEXEC);
  struct dma_heap_allocation_data asked = {.len = bytes, .fd_flags = O_RDWR | O_CLOEXEC};
  const int done = heap < 0 ? -1 : ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &asked);
  const int fault = errno;
  if (heap >= 0) (void)close(heap);
  if (done != 0)
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_REGION, "the heap %.200s gives no %llu bytes: %s",
                     path, (unsigned long long)bytes, strerror(fault));
  const mllm_status status = mllm_region_map(bytes, flags, (int)asked.fd, region, error);
  if (status != MLLM_OK) (void)close((int)asked.fd);
  return status;
}

/* The kernel's operations are of the whole buffer, and named by who begins and ends an access. */
static mllm_status maintain(void *context, mllm_pool_region *region, mllm_maintenance operation,
                            const mllm_pool_stretch *stretch, mllm_error *error) {
  (void)context;
  static const uint64_t flags[] = {
      [MLLM_MAINTAIN_CLEAN] = DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE,
      [MLLM_MAINTAIN_INVALIDATE] = DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ,
      [MLLM_MAINTAIN_FLUSH] = DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW,
  };
  const struct dma_buf_sync sync = {.flags = flags[operation]};
  if (ioctl(region->fd, DMA_BUF_IOCTL_SYNC, &sync) == 0) return MLLM_OK;
  return mllm_fail(error, MLLM_IO, MLLM_CODE_REGION, "buffer '%s' of %s cannot be synchronised: %s",
                   stretch->name, stretch->owner, strerror(errno));
}
#else
static mllm_status reserve(void *context, uint64_t bytes, uint32_t flags, mllm_pool_region *region,
                           mllm_error *error) {
  (void)bytes;
  (void)flags;
  (void)region;
  return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_REGION, "this system has no heap %.200s",
                   (const char *)context);
}
#define maintain NULL
#endif

mllm_pool_backend mllm_pool_dma_heap(const char *path) {
  return (mllm_pool_backend){
      .name = "a heap of the kernel",
      .context = (void *)(uintptr_t)path,
      .domains = 1u << MLLM_MEMORY_HOST | 1u << MLLM_MEMORY_NPU | 1u << MLLM_MEMORY_GPU,
      .reserve = reserve,
      .give_back = mllm_region_unmap,
      .maintain = maintain};
}
