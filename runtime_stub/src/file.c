#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "status.h"

static mllm_status refused(const char *path, int cause, mllm_error *error) {
  mllm_clear(error);
  mllm_locate(error, path, NULL);
  return mllm_fail(error, MLLM_IO, MLLM_CODE_FILE, "%s", strerror(cause));
}

mllm_status mllm_map_file(const char *path, mllm_mapping *mapping, mllm_error *error) {
  *mapping = (mllm_mapping){0};
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return refused(path, errno, error);
  struct stat facts;
  int cause = fstat(file, &facts) != 0 ? errno : 0;
  if (cause == 0 && S_ISDIR(facts.st_mode)) cause = EISDIR;
  if (cause == 0 && !S_ISREG(facts.st_mode)) cause = EINVAL;
  if (cause == 0 && facts.st_size > 0) {
    void *bytes = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (bytes == MAP_FAILED)
      cause = errno;
    else
      *mapping = (mllm_mapping){bytes, (size_t)facts.st_size};
  }
  (void)close(file);
  return cause == 0 ? MLLM_OK : refused(path, cause, error);
}

void mllm_unmap(mllm_mapping *mapping) {
  /* munmap takes no pointer to const; the pages were never writable */
  if (mapping->bytes != NULL) (void)munmap((void *)(uintptr_t)mapping->bytes, mapping->size);
  *mapping = (mllm_mapping){0};
}
