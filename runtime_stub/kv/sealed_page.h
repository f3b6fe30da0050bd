/* sealed_page.h - a page as it stands in a file: what it is, its seal, and its sealed bytes. */
#ifndef MLLM_KV_SEALED_PAGE_H
#define MLLM_KV_SEALED_PAGE_H

#include "../src/kv_cache.h"
#include "../src/seal.h"

#define MLLM_CODE_SEALED "MLC-X050" /* a file that was changed or cut, or another key */
#define MLLM_CODE_OTHER  "MLC-X051" /* a file of another model, or of another version */

typedef struct mllm_kv_page_head {
  uint32_t state;   /* mllm_kv_state */
  uint32_t rounded; /* 1: native again, with numbers that 4 bits made */
  mllm_seal seal;
} mllm_kv_page_head;

/* What a page's seal is bound to: pages cannot be swapped, nor taken from another file. */
typedef struct mllm_kv_page_place {
  uint8_t whole[32]; /* of the file, or of one spill */
  uint32_t block;
  uint32_t state;
  uint32_t rounded;
} mllm_kv_page_place;

/* Copies the page of a block and seals it. Of a native page it copies what the conversation has
 * written and zeros: what lies behind may be another's. bytes has room for a native page. */
bool mllm_kv_seal_block(const mllm_kv_cache *cache, uint32_t block, const uint8_t *key,
                        const uint8_t whole[32], mllm_kv_page_head *head, unsigned char *bytes);

/* Opens sealed bytes in place, if they are what was sealed for this block. */
mllm_unsealed mllm_kv_open_block(const mllm_kv_layout *layout, uint32_t block, const uint8_t *key,
                                 const uint8_t whole[32], const mllm_kv_page_head *head,
                                 unsigned char *bytes);

/* Whether a page can be as a head says, which nobody has vouched for yet. */
bool mllm_kv_head_is_possible(const mllm_kv_layout *layout, const mllm_kv_page_head *head);

#endif /* MLLM_KV_SEALED_PAGE_H */
