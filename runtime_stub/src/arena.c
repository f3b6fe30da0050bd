/* arena.c - a session's arena: from the system or a pool, handed from one domain to another. */
#include "arena.h"

#include <string.h>

#include "memory.h"
#include "status.h"

mllm_status mllm_arena_take(mllm_arena *arena, mllm_pool *pool, size_t size, mllm_error *error) {
  *arena = (mllm_arena){.size = size, .pool = pool, .holder = MLLM_MEMORY_HOST};
  if (pool == NULL) {
    arena->held = arena->bytes = mllm_memory_take(size, &arena->memory);
    if (arena->bytes != NULL) return MLLM_OK;
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY,
                     "no memory for an arena of %zu bytes", size);
  }
  const mllm_pool_request request = {.bytes = size + (size == 0),
                                     .type = MLLM_POOL_ARENA,
                                     .name = "arena",
                                     .owner = "a session"};
  mllm_status status = mllm_pool_take(pool, &request, &arena->buffer, error);
  if (status == MLLM_OK) status = mllm_arena_hand(arena, MLLM_MEMORY_HOST, error);
  if (status != MLLM_OK) return status;
  arena->bytes = arena->held;
  memset(arena->bytes, 0, size); /* another session's bytes may lie there */
  return MLLM_OK;
}

static mllm_status end_access(mllm_arena *arena, mllm_error *error) {
  arena->held = NULL;
  return mllm_pool_access_end(arena->pool, arena->buffer, arena->holder, MLLM_ACCESS_WRITE, error);
}

void mllm_arena_give(mllm_arena *arena) {
  free(arena->memory);
  if (arena->buffer == MLLM_NO_BUFFER) return;
  if (arena->held != NULL) (void)end_access(arena, NULL);
  (void)mllm_pool_release(arena->pool, arena->buffer, NULL);
}

mllm_status mllm_arena_hand(mllm_arena *arena, mllm_memory domain, mllm_error *error) {
  if (arena->held != NULL && arena->holder == domain) return MLLM_OK;
  if (arena->pool == NULL)
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_ACCESS, "the session has no pool");
  mllm_status status = arena->held == NULL ? MLLM_OK : end_access(arena, error);
  if (status != MLLM_OK) return status;
  void *data = NULL;
  status = mllm_pool_access(arena->pool, arena->buffer, domain, MLLM_ACCESS_WRITE, &data, error);
  if (status != MLLM_OK) return status;
  arena->holder = domain;
  arena->held = data;
  return MLLM_OK;
}

void *mllm_arena_at(const mllm_arena *arena, const void *data, size_t bytes) {
  const uintptr_t first = (uintptr_t)arena->bytes, at = (uintptr_t)data;
  if (at < first || at - first > arena->size || bytes > arena->size - (at - first)) return NULL;
  return arena->held + (at - first);
}
