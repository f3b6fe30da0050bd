/* defragment.h - the moves that close the gaps between pages. */
#ifndef MLLM_KV_DEFRAGMENT_H
#define MLLM_KV_DEFRAGMENT_H

#include "pool.h"

enum { MLLM_KV_MOVES = 64 /* of a plan */ };

/* A page goes to a lower address; what lies there is free, or its own beginning. */
typedef struct mllm_kv_move {
  uint32_t page; /* its place in the table */
  uint32_t from; /* granule */
  uint32_t to;
  uint32_t granules;
} mllm_kv_move;

/* The first moves, in the order in which they must be made, of those that bring all pages together
 * at the lowest addresses; together at most most_bytes. Changes nothing. Gives their count. */
uint32_t mllm_kv_plan_moves(const mllm_kv_pool *pool, mllm_kv_move *moves, uint32_t most,
                            uint64_t most_bytes);

#endif /* MLLM_KV_DEFRAGMENT_H */
