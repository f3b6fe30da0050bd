#include "words.h"

#include <string.h>

#include "utf8.h"

enum { WORD_CLASSES = MLLM_CLASS_LETTER | MLLM_CLASS_NUMBER | MLLM_CLASS_SPACE };

uint32_t mllm_code_point_class(const mllm_tokenizer *tokenizer, uint32_t code) {
  if (code < 128) return tokenizer->ascii[code];
  size_t low = 0, high = tokenizer->n_ranges;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const uint32_t *range = tokenizer->ranges + 3 * middle;
    if (code < range[0])
      high = middle;
    else if (code > range[1])
      low = middle + 1;
    else
      return range[2];
  }
  return 0;
}

static uint32_t class_at(const mllm_tokenizer *tokenizer, const char *text, size_t size, size_t at,
                         size_t *length) {
  return mllm_code_point_class(tokenizer, mllm_utf8_read(text + at, size - at, length));
}

/* The end of the run of characters whose class, under the mask, is `wanted`. */
static size_t run_end(const mllm_tokenizer *tokenizer, const char *text, size_t size, size_t at,
                      uint32_t mask, uint32_t wanted) {
  size_t length;
  while (at < size && (class_at(tokenizer, text, size, at, &length) & mask) == wanted) at += length;
  return at;
}

size_t mllm_piece_end(const mllm_tokenizer *tokenizer, const char *text, size_t size, size_t at) {
  if ((tokenizer->flags & MLLM_TOKENIZER_DIGITS) == 0) return size;
  size_t length;
  const uint32_t digit = class_at(tokenizer, text, size, at, &length) & MLLM_CLASS_DIGIT;
  if (digit != 0 && (tokenizer->flags & MLLM_TOKENIZER_SINGLE_DIGITS) != 0) return at + length;
  return run_end(tokenizer, text, size, at, MLLM_CLASS_DIGIT, digit);
}

static size_t contraction_length(const char *text, size_t size) {
  if (size < 2 || text[0] != '\'') return 0;
  if (strchr("stmd", text[1]) != NULL && text[1] != '\0') return 2;
  if (size < 3) return 0;
  const bool two = memcmp(text + 1, "re", 2) == 0 || memcmp(text + 1, "ve", 2) == 0 ||
                   memcmp(text + 1, "ll", 2) == 0;
  return two ? 3 : 0;
}

/* The spaces from `at`: all of them at the end of the text; else the last one is left to the next
 * word. */
static size_t space_end(const mllm_tokenizer *tokenizer, const char *text, size_t size, size_t at) {
  size_t last = at, end = at, length;
  while (end < size && (class_at(tokenizer, text, size, end, &length) & MLLM_CLASS_SPACE) != 0) {
    last = end;
    end += length;
  }
  return end == size || last == at ? end : last;
}

size_t mllm_word_end(const mllm_tokenizer *tokenizer, const char *text, size_t size, size_t at) {
  const size_t contraction = contraction_length(text + at, size - at);
  if (contraction > 0) return at + contraction;
  size_t start = at, length;
  uint32_t kind = class_at(tokenizer, text, size, at, &length) & WORD_CLASSES;
  if (text[at] == ' ' && at + 1 < size) {
    const uint32_t second = class_at(tokenizer, text, size, at + 1, &length) & WORD_CLASSES;
    if (second != MLLM_CLASS_SPACE) {
      start = at + 1;
      kind = second;
    }
  }
  if (kind == MLLM_CLASS_SPACE) return space_end(tokenizer, text, size, at);
  return run_end(tokenizer, text, size, start, WORD_CLASSES, kind);
}
