/* A strict JSON reader (RFC 8259): one allocation per document, no number is rounded silently, no
 * duplicate key. */
#ifndef MLLM_JSON_H
#define MLLM_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum mllm_json_kind {
  MLLM_JSON_NULL,
  MLLM_JSON_FALSE,
  MLLM_JSON_TRUE,
  MLLM_JSON_NUMBER,
  MLLM_JSON_STRING,
  MLLM_JSON_ARRAY,
  MLLM_JSON_OBJECT
} mllm_json_kind;

/* A value stands directly before what it contains; `span` is the number of values in its subtree,
 * itself included. An object's children are key, value, key, value ... */
typedef struct mllm_json_value {
  const char *text; /* string: decoded, NUL-terminated UTF-8 without inner NUL; else NULL */
  double number;
  int64_t integer;
  uint32_t count; /* elements of an array, pairs of an object, bytes of a string */
  uint32_t span;
  uint8_t kind;
  bool is_integer; /* `integer` is exact */
} mllm_json_value;

typedef struct mllm_json {
  mllm_json_value *values; /* values[0] is the document */
  void *storage;
  const char *fault; /* what mllm_json_parse disliked */
  size_t fault_at;   /* and at which byte */
} mllm_json;

enum { MLLM_JSON_DEPTH = 32, MLLM_JSON_KEYS = 4096 };

/* Parses `size` bytes. False: doc->fault says what is wrong; nothing has to be freed. */
bool mllm_json_parse(mllm_json *doc, const char *bytes, size_t size);
void mllm_json_free(mllm_json *doc);

/* The value at `key`, or NULL: also when `object` is NULL or no object. */
const mllm_json_value *mllm_json_get(const mllm_json_value *object, const char *key);
/* The first child of an array or object (for an object: its first key), NULL when it is empty. */
const mllm_json_value *mllm_json_first(const mllm_json_value *container);
/* The value behind `value`; the caller counts. */
const mllm_json_value *mllm_json_next(const mllm_json_value *value);

/* Members with a fallback for an absent key or another kind. */
const char *mllm_json_text(const mllm_json_value *object, const char *key, const char *fallback);
int64_t mllm_json_int(const mllm_json_value *object, const char *key, int64_t fallback);
double mllm_json_number(const mllm_json_value *object, const char *key, double fallback);
bool mllm_json_bool(const mllm_json_value *object, const char *key, bool fallback);

#endif
