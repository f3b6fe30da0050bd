/* The trust file: one public key of 64 hexadecimal digits a line, `#` starts a comment. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bundle.h"
#include "status.h"

/* The user's own trust file; false when neither variable says where it is, or it is too long. */
static bool own_file(char *path, size_t size) {
  const char *base = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
  int written = -1;
  if (base != NULL && base[0] == '/')
    written = snprintf(path, size, "%s/mllm-compiler/trust", base);
  else if (home != NULL && home[0] == '/')
    written = snprintf(path, size, "%s/.config/mllm-compiler/trust", home);
  return written > 0 && (size_t)written < size;
}

static int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const int lower = tolower((unsigned char)c);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* Reads one line without its comment: 1 a key, 0 nothing, -1 neither. */
static int read_key(const char *line, size_t size, mllm_key *key) {
  const char *comment = memchr(line, '#', size);
  if (comment != NULL) size = (size_t)(comment - line);
  while (size > 0 && isspace((unsigned char)line[0])) line++, size--;
  while (size > 0 && isspace((unsigned char)line[size - 1])) size--;
  if (size == 0) return 0;
  if (size != 2 * sizeof key->bytes) return -1;
  for (size_t i = 0; i < sizeof key->bytes; i++) {
    const int high = digit_of(line[2 * i]), low = digit_of(line[2 * i + 1]);
    if (high < 0 || low < 0) return -1;
    key->bytes[i] = (uint8_t)(high << 4 | low);
  }
  return 1;
}

mllm_status mllm_trust_read(const char *path, mllm_key *keys, size_t capacity, size_t *count,
                            mllm_error *error) {
  char own[4096];
  *count = 0;
  mllm_clear(error);
  const bool named = path != NULL;
  if (!named && (!own_file(own, sizeof own) || access(own, F_OK) != 0)) return MLLM_OK;
  if (!named) path = own;
  mllm_mapping file;
  mllm_status status = mllm_map_file(path, &file, error);
  const char *text = (const char *)file.bytes;
  size_t number = 1;
  for (size_t at = 0; status == MLLM_OK && at < file.size; number++) {
    const char *end = memchr(text + at, '\n', file.size - at);
    const size_t size = end == NULL ? file.size - at : (size_t)(end - text) - at;
    mllm_key key;
    const int kind = read_key(text + at, size, &key);
    at += size + 1;
    if (kind < 0) {
      char where[MLLM_LOCATION_BYTES];
      (void)snprintf(where, sizeof where, "%.120s:%zu", path, number);
      mllm_locate(error, where, NULL);
      status = mllm_fail(error, MLLM_INVALID_ARGUMENT, MLLM_CODE_TRUST_FILE,
                         "not a public key of %zu hexadecimal digits", 2 * sizeof key.bytes);
    }
    if (kind <= 0) continue;
    if (*count < capacity) keys[*count] = key;
    (*count)++;
  }
  mllm_unmap(&file);
  return status;
}
