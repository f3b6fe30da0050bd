#include "utf8.h"

#include <stdbool.h>
#include <string.h>

#include "mllm_tokenizer.h"

/* Bytes of a sequence that starts with `first`, 0 when none does; the range of its second byte in
 * *low, *high. */
static size_t expected(uint8_t first, uint8_t *low, uint8_t *high) {
  *low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  *high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

/* Well-formed bytes from the start, at most one sequence; *need is its whole length. */
static size_t well_formed(const uint8_t *s, size_t size, size_t *need) {
  uint8_t low, high;
  *need = expected(s[0], &low, &high);
  if (*need == 0) return 0;
  size_t have = 1;
  while (have < *need && have < size && s[have] >= low && s[have] <= high) {
    low = 0x80;
    high = 0xBF;
    have++;
  }
  return have;
}

uint32_t mllm_utf8_read(const char *text, size_t size, size_t *length) {
  const uint8_t *s = (const uint8_t *)text;
  size_t need;
  const size_t have = well_formed(s, size, &need);
  *length = have > 0 ? have : 1;
  if (have == 0 || have < need) return MLLM_REPLACEMENT;
  if (need == 1) return s[0];
  uint32_t code = s[0] & (0x7Fu >> need);
  for (size_t i = 1; i < need; i++) code = code << 6 | (s[i] & 0x3Fu);
  return code;
}

size_t mllm_utf8_unfinished(const char *text, size_t size) {
  size_t need;
  const size_t have = size == 0 ? 0 : well_formed((const uint8_t *)text, size, &need);
  return have > 0 && have < need && have == size ? have : 0;
}

static size_t put(char *out, const char *bytes, size_t size) {
  memcpy(out, bytes, size);
  return size;
}

size_t mllm_utf8_push(mllm_utf8_stream *stream, const char *bytes, size_t size, bool last,
                      char *out) {
  size_t at = 0, written = 0;
  while (at < size || stream->n_held > 0) {
    char window[4];
    size_t filled = stream->n_held;
    memcpy(window, stream->held, filled);
    while (filled < sizeof window && at + filled - stream->n_held < size) {
      window[filled] = bytes[at + filled - stream->n_held];
      filled++;
    }
    const size_t unfinished = mllm_utf8_unfinished(window, filled);
    if (unfinished > 0 && !last) {
      memcpy(stream->held, window, filled);
      stream->n_held = (uint32_t)filled;
      return written;
    }
    size_t length;
    const uint32_t code = mllm_utf8_read(window, filled, &length);
    const bool good =
        code != MLLM_REPLACEMENT || (length == 3 && memcmp(window, "\xEF\xBF\xBD", 3) == 0);
    written += good ? put(out + written, window, length) : put(out + written, "\xEF\xBF\xBD", 3);
    const size_t from_held = length < stream->n_held ? length : stream->n_held;
    memmove(stream->held, stream->held + from_held, stream->n_held - from_held);
    stream->n_held -= (uint32_t)from_held;
    at += length - from_held;
  }
  return written;
}
