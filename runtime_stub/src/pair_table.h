/* The merge table of a tokenizer and the merging of one word. */
#ifndef MLLM_PAIR_TABLE_H
#define MLLM_PAIR_TABLE_H

#include "mllm_tokenizer.h"

/* Where the probing for a pair starts, before the mask. */
static inline uint32_t mllm_pair_hash(uint32_t left, uint32_t right) {
  const uint32_t mixed = left * 0x9E3779B1u ^ right * 0x85EBCA77u;
  return mixed ^ mixed >> 15;
}

/* The slot {left, right, rank, merged} of a pair, NULL when it never merges. */
const uint32_t *mllm_pair_find(const mllm_tokenizer *tokenizer, uint32_t left, uint32_t right);

/* Bytes of working memory for a word of `size` bytes. */
#define MLLM_MERGE_SCRATCH_PER_BYTE 48u

/* Merges the bytes of a word; the tokens stand in the first returned number of u32 of `scratch`
 * (MLLM_MERGE_SCRATCH_PER_BYTE * size bytes, 4-byte aligned). size < 2^31. */
size_t mllm_merge_word(const mllm_tokenizer *tokenizer, const uint8_t *word, size_t size,
                       uint32_t *scratch);

#endif
