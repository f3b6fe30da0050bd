/* stretch.h - where the rows of a head lie in a page, for the files that read and write them. */
#ifndef MLLM_KV_STRETCH_H
#define MLLM_KV_STRETCH_H

#include "layout.h"

/* Tokens of a head that are stored alike. */
typedef struct mllm_kv_stretch {
  uint32_t first;
  uint32_t tokens;
  uint32_t format; /* of storage: MLLM_KV_4 is codes of 4 bits */
  size_t offset;   /* bytes from the head's start */
} mllm_kv_stretch;

enum { MLLM_KV_PARTS = 2 /* stretches of a head */ };

/* How a native page stores a layer: tokens that may fall to 4 bits have 8 first. */
uint32_t mllm_kv_native_format(const mllm_kv_layout *layout, uint32_t layer);

/* Whether a layer falls to 4 bits when its page is demoted. */
bool mllm_kv_falls(const mllm_kv_layout *layout, uint32_t layer);

/* The stretches of a head in order; the answer is their number. */
size_t mllm_kv_stretches(const mllm_kv_layout *layout, mllm_kv_state state, uint32_t layer,
                         uint32_t kind, mllm_kv_stretch parts[MLLM_KV_PARTS]);

/* Bytes from a page's start to a head, and of the head. */
size_t mllm_kv_head_start(const mllm_kv_layout *layout, mllm_kv_state state, uint32_t layer,
                          uint32_t kind, uint32_t head);
size_t mllm_kv_head_bytes(const mllm_kv_layout *layout, mllm_kv_state state, uint32_t layer,
                          uint32_t kind);

/* Bytes of scales and ranges that stand before the codes of a stretch, and of a row of codes. */
size_t mllm_kv_side_bytes(const mllm_kv_layout *layout, uint32_t format, uint32_t kind,
                          size_t tokens);
size_t mllm_kv_code_bytes(uint32_t format, size_t dim);

#endif /* MLLM_KV_STRETCH_H */
