/* share.c - passing buffers to other processes: a descriptor and a place, over a UNIX socket. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pool.h"

typedef struct place {
  uint64_t offset;
  uint64_t bytes;
} place;

typedef union control {
  struct cmsghdr header; /* for its alignment */
  char bytes[CMSG_SPACE(sizeof(int))];
} control;

static mllm_status failed(mllm_error *error, const char *what) {
  return mllm_fail(error, MLLM_IO, MLLM_CODE_SHARE, "a buffer cannot be %s: %s", what,
                   strerror(errno));
}

mllm_status mllm_pool_place(mllm_pool *pool, mllm_buffer buffer, uint64_t *offset, uint64_t *bytes,
                            mllm_error *error) {
  (void)pthread_mutex_lock(&pool->lock);
  const mllm_pool_record *record = mllm_pool_find(pool, buffer, error);
  if (record != NULL) {
    *offset = record->offset;
    *bytes = record->requested;
  }
  (void)pthread_mutex_unlock(&pool->lock);
  return record == NULL ? MLLM_INVALID_ARGUMENT : MLLM_OK;
}

mllm_status mllm_pool_send(mllm_pool *pool, mllm_buffer buffer, int socket, mllm_error *error) {
  place where = {0};
  const mllm_status status = mllm_pool_place(pool, buffer, &where.offset, &where.bytes, error);
  if (status != MLLM_OK) return status;
  if (pool->region.fd < 0)
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_SHARE,
                     "other processes cannot map %s", pool->backend.name);
  struct iovec part = {.iov_base = &where, .iov_len = sizeof where};
  control passed = {0};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = passed.bytes,
                           .msg_controllen = sizeof passed.bytes};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &pool->region.fd, sizeof(int));
  ssize_t sent = -1;
  do sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent == (ssize_t)sizeof where ? MLLM_OK : failed(error, "sent");
}

/* Maps the pages around a place, which has to lie within the file. */
static mllm_status map(int fd, const place *where, mllm_shared *shared, mllm_error *error) {
  struct stat file;
  if (fstat(fd, &file) != 0) return failed(error, "mapped");
  const uint64_t size = (uint64_t)file.st_size, page = (uint64_t)sysconf(_SC_PAGESIZE);
  if (where->bytes == 0 || where->offset > size || where->bytes > size - where->offset)
    return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_SHARE,
                     "%llu bytes at %llu do not lie in a file of %llu",
                     (unsigned long long)where->bytes, (unsigned long long)where->offset,
                     (unsigned long long)size);
  const uint64_t into = where->offset % page, mapped = where->bytes + into;
  void *mapping =
      mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(where->offset - into));
  if (mapping == MAP_FAILED) return failed(error, "mapped");
  *shared = (mllm_shared){.data = (char *)mapping + into, .bytes = where->bytes,
                          .mapping = mapping, .mapped = mapped};
  return MLLM_OK;
}

mllm_status mllm_shared_receive(int socket, mllm_shared *shared, mllm_error *error) {
  mllm_clear(error);
  *shared = (mllm_shared){0};
  place where = {0};
  struct iovec part = {.iov_base = &where, .iov_len = sizeof where};
  control passed = {0};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = passed.bytes,
                           .msg_controllen = sizeof passed.bytes};
  ssize_t got = -1;
  do got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got < 0) return failed(error, "received");
  const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (header == NULL || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int)))
    return mllm_fail(error, MLLM_IO, MLLM_CODE_SHARE, "the peer sent no buffer, or is gone");
  int fd = -1;
  memcpy(&fd, CMSG_DATA(header), sizeof fd);
  const mllm_status status =
      got == (ssize_t)sizeof where
          ? map(fd, &where, shared, error)
          : mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_SHARE, "the peer sent half a message");
  (void)close(fd);
  return status;
}

void mllm_shared_unmap(mllm_shared *shared) {
  if (shared->mapping != NULL) (void)munmap(shared->mapping, shared->mapped);
  *shared = (mllm_shared){0};
}
