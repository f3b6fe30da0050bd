/* sealed_page.c - pages to sealed bytes and back. */
#include "sealed_page.h"

#include <string.h>

static mllm_kv_page_place place_of(const uint8_t whole[32], uint32_t block,
                                   const mllm_kv_page_head *head) {
  mllm_kv_page_place place = {.block = block, .state = head->state, .rounded = head->rounded};
  memcpy(place.whole, whole, sizeof place.whole);
  return place;
}

bool mllm_kv_seal_block(const mllm_kv_cache *cache, uint32_t block, const uint8_t *key,
                        const uint8_t whole[32], mllm_kv_page_head *head, unsigned char *bytes) {
  const mllm_kv_layout *layout = &cache->layout;
  const mllm_kv_page page = mllm_kv_cache_page(cache, block);
  const uint32_t start = block * layout->page_tokens;
  const uint32_t written = cache->written > start ? cache->written - start : 0;
  const mllm_kv_entry *entry = mllm_kv_entry_of(cache->pool, cache->blocks[block]);
  *head = (mllm_kv_page_head){.state = page.state, .rounded = entry->is_rounded};
  if (page.state == MLLM_KV_NATIVE) {
    memset(bytes, 0, layout->bytes[MLLM_KV_NATIVE]);
    mllm_kv_copy_tokens(layout, page.bytes, bytes,
                        written < layout->page_tokens ? written : layout->page_tokens);
  } else {
    memcpy(bytes, page.bytes, layout->bytes[page.state]);
  }
  const mllm_kv_page_place place = place_of(whole, block, head);
  return mllm_seal_bytes(key, &place, sizeof place, bytes, layout->bytes[page.state], &head->seal);
}

mllm_unsealed mllm_kv_open_block(const mllm_kv_layout *layout, uint32_t block, const uint8_t *key,
                                 const uint8_t whole[32], const mllm_kv_page_head *head,
                                 unsigned char *bytes) {
  const mllm_kv_page_place place = place_of(whole, block, head);
  return mllm_unseal_bytes(key, &place, sizeof place, bytes, layout->bytes[head->state],
                           &head->seal);
}

bool mllm_kv_head_is_possible(const mllm_kv_layout *layout, const mllm_kv_page_head *head) {
  return head->state < MLLM_KV_STATES && layout->bytes[head->state] > 0 && head->rounded <= 1;
}
