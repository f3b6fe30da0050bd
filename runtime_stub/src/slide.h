/* slide.h - a conversation that goes on when its cache is full: what lies behind its first page is
 * forgotten, and the rest moves up. */
#ifndef MLLM_SLIDE_H
#define MLLM_SLIDE_H

#include "kv_cache.h"
#include "turns.h"

/* Forgets so many whole pages behind the first, whose tokens every query looks at (attention sinks: Xiao
 * et al. 2023). The tokens behind them get positions that are as much lower: turns[layers] says how
 * keys are turned back. What their values learnt of the forgotten tokens stays. Where the pool has no room for
 * pages of this conversation's own, nothing has changed. */
mllm_status mllm_kv_cache_slide(mllm_kv_cache *cache, uint32_t pages,
                                const mllm_turn_of_keys *turns, mllm_error *error);

#endif /* MLLM_SLIDE_H */
