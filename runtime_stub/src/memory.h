/* memory.h - large zeroed blocks whose pages the system gives when they are first touched. */
#ifndef MLLM_MEMORY_H
#define MLLM_MEMORY_H

#include <stdint.h>
#include <stdlib.h>

/* bytes of zeros, aligned to 64; *memory is what to free. NULL where there is no memory. */
static inline void *mllm_memory_take(size_t bytes, void **memory) {
  if (bytes > SIZE_MAX - 64) return NULL;
  *memory = calloc(bytes + 64, 1);
  if (*memory == NULL) return NULL;
  return (void *)(((uintptr_t)*memory + 63) & ~(uintptr_t)63);
}

#endif /* MLLM_MEMORY_H */
