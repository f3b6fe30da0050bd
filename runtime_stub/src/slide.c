/* slide.c - forgetting pages, and turning the keys behind them to their new positions. */
#include "slide.h"

#include <math.h>
#include <string.h>

#include "status.h"

/* Turning by a number of positions, for one layer. */
typedef struct rotation {
  const mllm_turn_of_keys *turn;
  float cosine[MLLM_TURN_MOST_CHANNELS / 2];
  float sine[MLLM_TURN_MOST_CHANNELS / 2];
} rotation;

static void prepare(rotation *r, const mllm_turn_of_keys *turn, double positions) {
  r->turn = turn;
  for (uint32_t i = 0; i < turn->half; i++) {
    const double angle = positions * (double)turn->inv_freq[i];
    r->cosine[i] = (float)cos(angle);
    r->sine[i] = (float)sin(angle);
  }
}

static void rotate(const rotation *r, float *row) {
  const uint32_t half = r->turn->half;
  const uint32_t next = r->turn->interleaved ? 1 : half, step = r->turn->interleaved ? 2 : 1;
  for (uint32_t i = 0; i < half; i++) {
    const float a = row[i * step], b = row[i * step + next];
    row[i * step] = a * r->cosine[i] - b * r->sine[i];
    row[i * step + next] = b * r->cosine[i] + a * r->sine[i];
  }
}

/* The first tokens of a native page. */
static void rotate_page(const mllm_kv_layout *layout, unsigned char *page, uint32_t tokens,
                        const mllm_turn_of_keys *turns, double positions) {
  rotation r;
  float row[MLLM_TURN_MOST_CHANNELS];
  for (uint32_t layer = 0; layer < layout->layers; layer++) {
    prepare(&r, &turns[layer], positions);
    for (uint32_t head = 0; head < layout->kv_heads; head++) {
      for (uint32_t token = 0; token < tokens; token++) {
        mllm_kv_read_rows(layout, page, MLLM_KV_NATIVE, layer, MLLM_KV_KEY, head, token, 1, row);
        rotate(&r, row);
        mllm_kv_write_rows(layout, page, layer, MLLM_KV_KEY, head, token, row, layout->head_dim, 1);
      }
    }
  }
}

static uint32_t pages_of(const mllm_kv_cache *cache) {
  const uint32_t page_tokens = cache->layout.page_tokens;
  return (cache->written + page_tokens - 1) / page_tokens;
}

/* Pages from a block on become this conversation's alone, in the states that they have; *falls: some are
 * demoted. */
static bool own_pages(mllm_kv_cache *cache, uint32_t first, bool *falls) {
  mllm_kv_pool *pool = cache->pool;
  for (uint32_t block = first; block < pages_of(cache); block++) {
    const uint32_t old = cache->blocks[block];
    const mllm_kv_state state = (mllm_kv_state)mllm_kv_entry_of(pool, old)->state;
    *falls = *falls || state != MLLM_KV_NATIVE;
    if (mllm_kv_entry_of(pool, old)->references == 1) continue;
    const uint32_t made = mllm_kv_page_take(pool, state);
    if (made == MLLM_KV_NO_PAGE) return false;
    memcpy(mllm_kv_page_bytes_of(pool, made), mllm_kv_page_bytes_of(pool, old),
           cache->layout.bytes[state]);
    mllm_kv_entry_of(pool, made)->is_rounded = mllm_kv_entry_of(pool, old)->is_rounded;
    pool->counted.copied_pages++;
    mllm_kv_page_release(pool, old);
    cache->blocks[block] = made;
  }
  return true;
}

/* Blocks move up over those that are forgotten. */
static void forget(mllm_kv_cache *cache, uint32_t pages) {
  const uint32_t held = pages_of(cache), tokens = pages * cache->layout.page_tokens;
  for (uint32_t i = 1; i <= pages; i++) mllm_kv_page_release(cache->pool, cache->blocks[i]);
  memmove(cache->blocks + 1, cache->blocks + 1 + pages,
          (held - 1 - pages) * sizeof *cache->blocks);
  for (uint32_t i = held - pages; i < held; i++) cache->blocks[i] = MLLM_KV_NO_PAGE;
  cache->written -= tokens;
  cache->length -= tokens;
}

/* Turns the keys behind the first page; spare is a native page, where others are demoted. */
static void turn_back(mllm_kv_cache *cache, const mllm_turn_of_keys *turns, double positions,
                      uint32_t spare) {
  const mllm_kv_layout *layout = &cache->layout;
  const uint32_t page_tokens = layout->page_tokens;
  for (uint32_t block = 1; block < pages_of(cache); block++) {
    const uint32_t page = cache->blocks[block], left = cache->written - block * page_tokens;
    const mllm_kv_state state = (mllm_kv_state)mllm_kv_entry_of(cache->pool, page)->state;
    unsigned char *bytes = mllm_kv_page_bytes_of(cache->pool, page);
    if (state == MLLM_KV_NATIVE) {
      rotate_page(layout, bytes, left < page_tokens ? left : page_tokens, turns, positions);
      continue;
    }
    unsigned char *native = mllm_kv_page_bytes_of(cache->pool, spare);
    mllm_kv_promote(layout, bytes, state, native);
    rotate_page(layout, native, page_tokens, turns, positions);
    mllm_kv_demote(layout, native, bytes, state);
  }
}

static mllm_status no_room(const mllm_kv_cache *cache, mllm_error *error) {
  return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_CACHE,
                   "cache '%s' has no page left to move its window", cache->info.name);
}

mllm_status mllm_kv_cache_slide(mllm_kv_cache *cache, uint32_t pages,
                                const mllm_turn_of_keys *turns, mllm_error *error) {
  if (pages == 0) return MLLM_OK;
  const mllm_status status = mllm_kv_cache_ready(cache, error);
  if (status != MLLM_OK) return status;
  if (cache->length != cache->written || pages_of(cache) < 2 ||
      pages >= cache->written / cache->layout.page_tokens)
    return mllm_fail(error, MLLM_OUT_OF_BOUNDS, MLLM_CODE_CACHE,
                     "cache '%s' has no %u whole pages behind the first to forget",
                     cache->info.name, pages);
  bool falls = false;
  if (!own_pages(cache, 1 + pages, &falls)) return no_room(cache, error);
  uint32_t spare = MLLM_KV_NO_PAGE;
  if (falls) spare = mllm_kv_page_take(cache->pool, MLLM_KV_NATIVE);
  if (falls && spare == MLLM_KV_NO_PAGE) return no_room(cache, error);
  forget(cache, pages);
  turn_back(cache, turns, -(double)pages * cache->layout.page_tokens, spare);
  if (spare != MLLM_KV_NO_PAGE) mllm_kv_page_release(cache->pool, spare);
  return MLLM_OK;
}
