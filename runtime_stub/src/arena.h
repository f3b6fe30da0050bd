/* arena.h - where a session's tensors lie, and who reads and writes them at present. */
#ifndef MLLM_ARENA_H
#define MLLM_ARENA_H

#include "mllm_kernels.h"
#include "mllm_pool.h"

struct mllm_arena {
  unsigned char *bytes; /* [size] as the processor sees them */
  size_t size;
  void *memory;         /* to free; NULL: the pool's */
  mllm_pool *pool;      /* NULL: none */
  mllm_buffer buffer;   /* of the pool */
  mllm_memory holder;   /* the domain that has it */
  unsigned char *held;  /* [size] as the holder sees them; NULL: nobody has it */
};

/* Takes size bytes of zeros for the processor, from the pool or, where it is NULL, the system. */
mllm_status mllm_arena_take(mllm_arena *arena, mllm_pool *pool, size_t size, mllm_error *error);
void mllm_arena_give(mllm_arena *arena);

/* Hands the arena to a domain, with the cache operations that this needs; none where the domain has
 * it. On failure nobody has it, and the next call tries again. */
mllm_status mllm_arena_hand(mllm_arena *arena, mllm_memory domain, mllm_error *error);

/* Where the holder sees what the processor sees at data; NULL: not all bytes are in the arena. */
void *mllm_arena_at(const mllm_arena *arena, const void *data, size_t bytes);

#endif /* MLLM_ARENA_H */
