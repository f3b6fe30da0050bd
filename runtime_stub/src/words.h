/* Cutting text into the words that byte-level BPE merges. */
#ifndef MLLM_WORDS_H
#define MLLM_WORDS_H

#include "mllm_tokenizer.h"

/* The MLLM_CLASS_* of a code point. */
uint32_t mllm_code_point_class(const mllm_tokenizer *tokenizer, uint32_t code);

/* The end of the piece that starts at `at` < size: one digit, a run of digits, or what lies between
 * digits. */
size_t mllm_piece_end(const mllm_tokenizer *tokenizer, const char *text, size_t size, size_t at);

/* The end of the word that starts at `at` < size, by the regular expression of GPT-2:
 * 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t mllm_word_end(const mllm_tokenizer *tokenizer, const char *text, size_t size, size_t at);

#endif
