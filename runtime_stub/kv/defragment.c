/* defragment.c - pages move to the lowest addresses: a plan, which is data, then its moves. */
#include "defragment.h"

#include <string.h>

uint32_t mllm_kv_plan_moves(const mllm_kv_pool *pool, mllm_kv_move *moves, uint32_t most,
                            uint64_t most_bytes) {
  uint32_t *owner = pool->owners;
  memset(owner, 0, pool->granules * sizeof *owner);
  for (uint32_t i = 0; i < pool->numbers; i++) {
    if (pool->table[i].references > 0) owner[pool->table[i].granule] = i + 1;
  }
  uint32_t count = 0;
  uint32_t target = 0;
  uint64_t bytes = 0;
  for (uint32_t at = 0; at < pool->granules && count < most; at++) {
    if (owner[at] == 0) continue;
    const uint32_t page = owner[at] - 1;
    const uint32_t granules = pool->granules_of[pool->table[page].state];
    if (target < at) {
      bytes += (uint64_t)granules * pool->granule_bytes;
      if (bytes > most_bytes) break;
      moves[count++] =
          (mllm_kv_move){.page = page, .from = at, .to = target, .granules = granules};
    }
    target += granules;
    at += granules - 1;
  }
  return count;
}

static void apply(mllm_kv_pool *pool, const mllm_kv_move *move) {
  memmove(pool->region + move->to * pool->granule_bytes,
          pool->region + move->from * pool->granule_bytes,
          (size_t)move->granules * pool->granule_bytes);
  mllm_kv_mark(pool, move->from, move->granules, false);
  mllm_kv_mark(pool, move->to, move->granules, true);
  pool->table[move->page].granule = move->to;
}

uint64_t mllm_kv_defragment_step(mllm_kv_pool *pool, uint64_t most_bytes) {
  mllm_kv_move moves[MLLM_KV_MOVES];
  uint64_t moved = 0;
  for (;;) {
    const uint32_t count = mllm_kv_plan_moves(pool, moves, MLLM_KV_MOVES, most_bytes - moved);
    for (uint32_t i = 0; i < count; i++) {
      apply(pool, &moves[i]);
      moved += (uint64_t)moves[i].granules * pool->granule_bytes;
    }
    if (count < MLLM_KV_MOVES) break;
  }
  if (moved > 0) pool->lowest = 0;
  pool->counted.moved_bytes += moved;
  return moved;
}
