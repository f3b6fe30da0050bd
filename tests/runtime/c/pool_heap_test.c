/* pool_heap_test.c - the backend of the kernel's heaps, where there is none and over a stand-in.
 *
 * The stand-in (the linker's --wrap) opens /dev/null for the heap and gives a memory file for its buffer;
 * that drivers and caches obey is not tested here: it takes a machine that has a heap.
 */
#include <errno.h>
#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "expect.h"
#include "mllm_pool.h"

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_ioctl(int fd, unsigned long request, void *argument);

static mllm_pool_region file; /* of the stand-in */
static uint64_t syncs[8];
static size_t n_syncs;
static int fails;

int __wrap_open(const char *path, int flags, ...) {
  if (strcmp(path, "stand-in") == 0) return __real_open("/dev/null", flags);
  return __real_open(path, flags);
}

int __wrap_ioctl(int fd, unsigned long request, void *argument) {
  if (request == DMA_HEAP_IOCTL_ALLOC) {
    struct dma_heap_allocation_data *asked = argument;
    EXPECT(mllm_pool_memfd()->reserve(NULL, asked->len, 0, &file, NULL) == MLLM_OK);
    asked->fd = (uint32_t)file.fd;
    return 0;
  }
  EXPECT(request == DMA_BUF_IOCTL_SYNC && fd == file.fd && n_syncs < 8);
  syncs[n_syncs++] = ((const struct dma_buf_sync *)argument)->flags;
  errno = EIO;
  return fails ? -1 : 0;
}

static mllm_status visit(mllm_pool *pool, mllm_buffer buffer, mllm_memory domain,
                         mllm_access access, mllm_error *error) {
  void *data = NULL;
  const mllm_status status = mllm_pool_access(pool, buffer, domain, access, &data, error);
  if (status != MLLM_OK) return status;
  if (access == MLLM_ACCESS_WRITE) *(unsigned char *)data = 1;
  return mllm_pool_access_end(pool, buffer, domain, access, error);
}

int main(void) {
  mllm_pool *pool = NULL;
  mllm_error error;
  mllm_buffer buffer;
  mllm_pool_backend backend = mllm_pool_dma_heap("/nowhere/dma_heap/system");
  mllm_pool_options options = {.bytes = 1 << 20, .backend = &backend};
  EXPECT(mllm_pool_create(&options, &pool, &error) == MLLM_UNSUPPORTED && pool == NULL);
  EXPECT(strcmp(error.code, "MLC-X061") == 0);
  EXPECT(strstr(error.message, "/nowhere/dma_heap/system gives no 1048576 bytes: No such") != NULL);
  backend = mllm_pool_dma_heap("stand-in");
  EXPECT(mllm_pool_create(&options, &pool, &error) == MLLM_OK);
  const mllm_pool_request request = {.bytes = 100, .name = "frame", .owner = "camera"};
  EXPECT(mllm_pool_take(pool, &request, &buffer, &error) == MLLM_OK);
  EXPECT(visit(pool, buffer, MLLM_MEMORY_HOST, MLLM_ACCESS_WRITE, &error) == MLLM_OK);
  EXPECT(visit(pool, buffer, MLLM_MEMORY_NPU, MLLM_ACCESS_READ, &error) == MLLM_OK);
  EXPECT(visit(pool, buffer, MLLM_MEMORY_NPU, MLLM_ACCESS_WRITE, &error) == MLLM_OK);
  EXPECT(visit(pool, buffer, MLLM_MEMORY_HOST, MLLM_ACCESS_READ, &error) == MLLM_OK);
  EXPECT(n_syncs == 2 && syncs[0] == (DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE));
  EXPECT(syncs[1] == (DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ));
  EXPECT(visit(pool, buffer, MLLM_MEMORY_HOST, MLLM_ACCESS_WRITE, &error) == MLLM_OK);
  fails = 1;
  EXPECT(visit(pool, buffer, MLLM_MEMORY_GPU, MLLM_ACCESS_WRITE, &error) == MLLM_IO);
  EXPECT(syncs[2] == (DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW));
  EXPECT(strstr(error.message, "'frame' of camera cannot be synchronised") != NULL);
  fails = 0;
  EXPECT(mllm_pool_release(pool, buffer, &error) == MLLM_OK && n_syncs == 4);
  mllm_pool_destroy(pool);
  file.fd = -1; /* the pool has closed it */
  mllm_pool_memfd()->give_back(NULL, &file);
  return 0;
}
