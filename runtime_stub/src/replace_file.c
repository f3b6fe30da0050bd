/* replace_file.c - writing beside a file, then renaming. */
#define _DEFAULT_SOURCE
#include "replace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "status.h"

static const char suffix[] = ".part";

static mllm_status refused(const char *path, int cause, mllm_error *error) {
  mllm_locate(error, path, NULL);
  return mllm_fail(error, MLLM_IO, MLLM_CODE_STORAGE, "the conversation cannot be stored: %s",
                   strerror(cause));
}

/* Whether the file that is open is still the one of that name: another process may have renamed it
 * before it was locked. */
static int is_at(int file, const char *path) {
  struct stat open_one, named;
  return fstat(file, &open_one) == 0 && stat(path, &named) == 0 &&
         open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

mllm_status mllm_replace_begin(const char *path, mllm_replacing *r, mllm_error *error) {
  const size_t bytes = strlen(path) + sizeof suffix;
  *r = (mllm_replacing){.path = path, .part = malloc(bytes), .file = -1};
  if (r->part == NULL) return refused(path, ENOMEM, error);
  (void)snprintf(r->part, bytes, "%s%s", path, suffix);
  int cause = 0;
  r->file = open(r->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  if (r->file < 0 || flock(r->file, LOCK_EX | LOCK_NB) != 0) cause = errno;
  if (cause == 0 && !is_at(r->file, r->part)) cause = EBUSY;
  if (cause == 0 && ftruncate(r->file, 0) != 0) cause = errno;
  if (cause == 0) return MLLM_OK;
  if (r->file >= 0) (void)close(r->file);
  free(r->part);
  return refused(path, cause, error);
}

mllm_status mllm_replace_write(mllm_replacing *r, const void *bytes, size_t size,
                               mllm_error *error) {
  const unsigned char *at = bytes;
  while (size > 0) {
    const ssize_t done = write(r->file, at, size);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return refused(r->path, done == 0 ? ENOSPC : errno, error);
    at += done;
    size -= (size_t)done;
  }
  return MLLM_OK;
}

/* The name of a file is in its folder, which is stored by itself. A file system without that keeps
 * names by its own means. */
static void store_folder(const char *path) {
  char folder[4096] = ".";
  const char *slash = strrchr(path, '/');
  const size_t bytes = slash == NULL ? 0 : (size_t)(slash - path) + 1;
  if (bytes >= sizeof folder) return;
  if (bytes > 0) {
    memcpy(folder, path, bytes);
    folder[bytes] = 0;
  }
  const int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  (void)fsync(file);
  (void)close(file);
}

mllm_status mllm_replace_end(mllm_replacing *r, mllm_status status, mllm_error *error) {
  if (status == MLLM_OK && (fsync(r->file) != 0 || rename(r->part, r->path) != 0)) {
    status = refused(r->path, errno, error);
  }
  if (status == MLLM_OK) {
    store_folder(r->path);
  } else {
    (void)unlink(r->part);
  }
  (void)close(r->file);
  free(r->part);
  return status;
}

int mllm_read_all(int file, void *bytes, size_t size) {
  unsigned char *at = bytes;
  while (size > 0) {
    const ssize_t done = read(file, at, size);
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = 0;
    if (done <= 0) return 0;
    at += done;
    size -= (size_t)done;
  }
  return 1;
}
