/* allocations.c - a malloc in front of the C library's, in the runtime too. */
#include "allocations.h"

#include <errno.h>
#include <features.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)

int mllm_allocations_are_seen(void) { return 0; }

size_t mllm_allocations_count(void) { return 0; }

void mllm_allocations_forbid(int on) { (void)on; }

#else

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static atomic_int forbidden;
static atomic_size_t calls;

/* Nothing here may allocate. */
static void note(void) {
  static const char line[] =
      "mllm-run: error: memory was taken behind the prompt [MLC-X067] (report it, or leave "
      "--forbid-allocations out)\n";
  (void)atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
  if (!atomic_load_explicit(&forbidden, memory_order_relaxed)) return;
  (void)!write(STDERR_FILENO, line, sizeof line - 1);
  _exit(70);
}

int mllm_allocations_are_seen(void) { return 1; }

size_t mllm_allocations_count(void) { return atomic_load(&calls); }

void mllm_allocations_forbid(int on) { atomic_store(&forbidden, on); }

void *malloc(size_t bytes) {
  note();
  return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
  note();
  return __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes) {
  note();
  return __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  note();
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes) {
  note();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == NULL ? ENOMEM : 0;
}

#endif
