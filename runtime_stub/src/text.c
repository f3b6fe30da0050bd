/* The public face of the tokenizer. */
#include <stdlib.h>
#include <string.h>

#include "generator.h"
#include "status.h"

mllm_status mllm_tokenize(const mllm_generator *g, const char *text, size_t bytes, int special,
                          uint32_t *ids, size_t capacity, size_t *count, mllm_error *error) {
  mllm_clear(error);
  const size_t size = mllm_tokenizer_scratch(bytes);
  void *scratch = size == SIZE_MAX ? NULL : malloc(size);
  if (scratch == NULL)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for %zu bytes of text",
                     bytes);
  const mllm_plain_span all = {0, bytes};
  *count = mllm_tokenizer_encode(&g->tokenizer, text, bytes, &all, special != 0 ? 0 : 1,
                                 special != 0, scratch, ids, capacity);
  free(scratch);
  return MLLM_OK;
}

/* Appends what fits and counts all. */
static size_t append(char *text, size_t capacity, size_t at, const char *bytes, size_t size) {
  if (at < capacity) memcpy(text + at, bytes, size < capacity - at ? size : capacity - at);
  return at + size;
}

mllm_status mllm_detokenize(const mllm_generator *g, const uint32_t *ids, size_t count, int special,
                            char *text, size_t capacity, size_t *bytes, mllm_error *error) {
  mllm_clear(error);
  mllm_utf8_stream utf8 = {0};
  char whole[3 * (64 + sizeof utf8.held)];
  *bytes = 0;
  for (size_t i = 0; i < count; i++) {
    const char *token;
    size_t size;
    if (!mllm_tokenizer_bytes(&g->tokenizer, ids[i], &token, &size))
      return mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_ARGUMENT, "there is no token %u",
                       ids[i]);
    if (special == 0 && mllm_tokenizer_is_special(&g->tokenizer, ids[i])) continue;
    for (size_t at = 0; at < size; at += 64) {
      const size_t part = size - at < 64 ? size - at : 64;
      const size_t made = mllm_utf8_push(&utf8, token + at, part, false, whole);
      *bytes = append(text, capacity, *bytes, whole, made);
    }
  }
  const size_t made = mllm_utf8_push(&utf8, NULL, 0, true, whole);
  *bytes = append(text, capacity, *bytes, whole, made);
  return MLLM_OK;
}
