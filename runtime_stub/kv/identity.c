/* identity.c - a digest of what keys and values depend on. */
#include "identity.h"

#include <stdlib.h>
#include <string.h>

#include "../src/crypto.h"

enum { PARTS = 256, PART = 4096 };

/* The weights, or parts of them. */
static bool digest_weights(const mllm_model *model, uint8_t digest[MLLM_SHA256_BYTES]) {
  const size_t size = (size_t)model->program.weight_bytes;
  if (size <= (size_t)PARTS * PART) return mllm_sha256(model->weights, size, digest);
  unsigned char *parts = malloc((size_t)PARTS * PART);
  if (parts == NULL) return false;
  for (size_t i = 0; i < PARTS; i++) {
    memcpy(parts + i * PART, model->weights + (size - PART) / (PARTS - 1) * i, PART);
  }
  const bool good = mllm_sha256(parts, (size_t)PARTS * PART, digest);
  free(parts);
  return good;
}

bool mllm_kv_identity(const mllm_model *model, const mllm_kv_layout *layout, uint8_t identity[32]) {
  struct {
    uint32_t numbers[6];
    uint64_t weight_bytes;
    uint8_t digests[3][MLLM_SHA256_BYTES];
  } all = {.numbers = {layout->layers, layout->kv_heads, layout->head_dim, layout->page_tokens,
                       layout->recent, layout->key_scales != NULL},
           .weight_bytes = model->program.weight_bytes};
  const size_t scales = (size_t)layout->layers * layout->kv_heads * layout->head_dim;
  return mllm_sha256(layout->formats, layout->layers * sizeof *layout->formats, all.digests[0]) &&
         (layout->key_scales == NULL ||
          mllm_sha256(layout->key_scales, scales * sizeof *layout->key_scales, all.digests[1])) &&
         digest_weights(model, all.digests[2]) && mllm_sha256(&all, sizeof all, identity);
}
