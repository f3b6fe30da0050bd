#include "json.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader {
  char *text;
  size_t size;
  size_t at;
  size_t capacity;
  uint32_t used;
  mllm_json *doc;
} reader;

static bool read_value(reader *r, int depth);

static bool fault(reader *r, const char *what) {
  r->doc->fault = what;
  r->doc->fault_at = r->at;
  return false;
}

static void skip_space(reader *r) {
  while (r->at < r->size) {
    const char c = r->text[r->at];
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return;
    r->at++;
  }
}

static bool accept(reader *r, char c) {
  if (r->at >= r->size || r->text[r->at] != c) return false;
  r->at++;
  return true;
}

static mllm_json_value *append(reader *r, mllm_json_kind kind) {
  if (r->used >= r->capacity) return NULL;
  mllm_json_value *value = &r->doc->values[r->used++];
  memset(value, 0, sizeof *value);
  value->kind = (uint8_t)kind;
  value->span = 1;
  return value;
}

static bool read_word(reader *r, const char *word, mllm_json_kind kind) {
  const size_t length = strlen(word);
  if (r->size - r->at < length || memcmp(r->text + r->at, word, length) != 0)
    return fault(r, "not a JSON value");
  r->at += length;
  return append(r, kind) != NULL || fault(r, "too many values");
}

/* Four hexadecimal digits at `at`, or -1. */
static int32_t hex4(const reader *r, size_t at) {
  if (r->size - at < 4) return -1;
  int32_t code = 0;
  for (size_t i = at; i < at + 4; i++) {
    const char c = r->text[i];
    if (c >= '0' && c <= '9')
      code = code * 16 + (c - '0');
    else if (c >= 'a' && c <= 'f')
      code = code * 16 + (c - 'a' + 10);
    else if (c >= 'A' && c <= 'F')
      code = code * 16 + (c - 'A' + 10);
    else
      return -1;
  }
  return code;
}

static size_t put_utf8(char *out, uint32_t code) {
  if (code < 0x80) {
    out[0] = (char)code;
    return 1;
  }
  if (code < 0x800) {
    out[0] = (char)(0xC0 | (code >> 6));
    out[1] = (char)(0x80 | (code & 63));
    return 2;
  }
  if (code < 0x10000) {
    out[0] = (char)(0xE0 | (code >> 12));
    out[1] = (char)(0x80 | ((code >> 6) & 63));
    out[2] = (char)(0x80 | (code & 63));
    return 3;
  }
  out[0] = (char)(0xF0 | (code >> 18));
  out[1] = (char)(0x80 | ((code >> 12) & 63));
  out[2] = (char)(0x80 | ((code >> 6) & 63));
  out[3] = (char)(0x80 | (code & 63));
  return 4;
}

/* The escape behind a backslash; what it stands for never takes more bytes than its spelling. */
static bool read_escape(reader *r, size_t *out) {
  if (r->at >= r->size) return fault(r, "the text ends inside a string");
  static const char names[] = "\"\\/bfnrt";
  static const char meanings[] = "\"\\/\b\f\n\r\t";
  const char c = r->text[r->at];
  const char *known = c == '\0' ? NULL : strchr(names, c);
  if (known != NULL) {
    r->text[(*out)++] = meanings[known - names];
    r->at++;
    return true;
  }
  if (c != 'u') return fault(r, "unknown escape in a string");
  int32_t code = hex4(r, r->at + 1);
  if (code <= 0 || (code >= 0xDC00 && code < 0xE000)) return fault(r, "bad \\u escape in a string");
  r->at += 5;
  if (code >= 0xD800 && code < 0xDC00) {
    if (r->size - r->at < 6 || r->text[r->at] != '\\' || r->text[r->at + 1] != 'u')
      return fault(r, "half a surrogate pair in a string");
    const int32_t low = hex4(r, r->at + 2);
    if (low < 0xDC00 || low >= 0xE000) return fault(r, "half a surrogate pair in a string");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    r->at += 6;
  }
  *out += put_utf8(r->text + *out, (uint32_t)code);
  return true;
}

/* Bytes of the well-formed UTF-8 sequence (Unicode, table 3-7) at `at`, 0 when it is ill-formed. */
static size_t utf8_length(const reader *r, size_t at) {
  const uint8_t *s = (const uint8_t *)r->text + at;
  const size_t left = r->size - at;
  if (s[0] < 0x80) return 1;
  const size_t need = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
  if (s[0] < 0xC2 || s[0] > 0xF4 || left < need) return 0;
  for (size_t i = 1; i < need; i++)
    if ((s[i] & 0xC0) != 0x80) return 0;
  if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F)) return 0;
  if ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F)) return 0;
  return need;
}

static bool read_string(reader *r) {
  mllm_json_value *value = append(r, MLLM_JSON_STRING);
  if (value == NULL) return fault(r, "too many values");
  const size_t start = ++r->at;
  size_t out = start;
  while (r->at < r->size && r->text[r->at] != '"') {
    if ((uint8_t)r->text[r->at] < 0x20) return fault(r, "control character in a string");
    if (r->text[r->at] == '\\') {
      r->at++;
      if (!read_escape(r, &out)) return false;
      continue;
    }
    const size_t length = utf8_length(r, r->at);
    if (length == 0) return fault(r, "a string is not UTF-8");
    memmove(r->text + out, r->text + r->at, length);
    out += length;
    r->at += length;
  }
  if (r->at >= r->size) return fault(r, "the text ends inside a string");
  if (out - start > UINT32_MAX) return fault(r, "a string is too long");
  r->at++;
  r->text[out] = '\0';
  value->text = r->text + start;
  value->count = (uint32_t)(out - start);
  return true;
}

static bool is_digit(const reader *r) {
  return r->at < r->size && r->text[r->at] >= '0' && r->text[r->at] <= '9';
}

static double power_of_ten(int64_t exponent) {
  double result = 1.0, base = 10.0;
  for (int64_t left = exponent; left > 0; left >>= 1, base *= base)
    if (left & 1) result *= base;
  return result;
}

/* One digit into the mantissa; digits beyond 18 only move the decimal point. */
static void take_digit(int64_t *mantissa, int *taken, int64_t *exponent, char c, bool fraction) {
  if (*taken < 18) {
    *mantissa = *mantissa * 10 + (c - '0');
    if (*mantissa != 0) (*taken)++;
    if (fraction) (*exponent)--;
    return;
  }
  if (!fraction) (*exponent)++;
}

/* Not strtod: that one reads the locale. Exact while mantissa < 2^53 and |exponent| <= 22. */
static bool read_number(reader *r) {
  mllm_json_value *value = append(r, MLLM_JSON_NUMBER);
  if (value == NULL) return fault(r, "too many values");
  const bool negative = accept(r, '-');
  if (!is_digit(r)) return fault(r, "not a JSON value");
  int64_t mantissa = 0, exponent = 0;
  int taken = 0;
  bool integer = true;
  if (r->text[r->at] == '0')
    r->at++;
  else
    while (is_digit(r)) take_digit(&mantissa, &taken, &exponent, r->text[r->at++], false);
  if (is_digit(r)) return fault(r, "a number starts with 0");
  if (accept(r, '.')) {
    integer = false;
    if (!is_digit(r)) return fault(r, "a number ends at its point");
    while (is_digit(r)) take_digit(&mantissa, &taken, &exponent, r->text[r->at++], true);
  }
  if (accept(r, 'e') || accept(r, 'E')) {
    integer = false;
    const bool down = accept(r, '-');
    if (!down) accept(r, '+');
    if (!is_digit(r)) return fault(r, "a number ends at its exponent");
    int64_t given = 0;
    while (is_digit(r)) {
      given = given * 10 + (r->text[r->at++] - '0');
      if (given > 400) return fault(r, "a number is out of range");
    }
    exponent += down ? -given : given;
  }
  if (exponent < -400 || exponent > 300) return fault(r, "a number is out of range");
  const double scale = power_of_ten(exponent < 0 ? -exponent : exponent);
  const double size = exponent < 0 ? (double)mantissa / scale : (double)mantissa * scale;
  value->number = negative ? -size : size;
  value->is_integer = integer && exponent == 0;
  value->integer = value->is_integer ? (negative ? -mantissa : mantissa) : 0;
  return true;
}

static bool has_key(const mllm_json_value *object, const char *key, uint32_t pairs) {
  const mllm_json_value *at = object + 1;
  for (uint32_t i = 0; i < pairs; i++, at = mllm_json_next(mllm_json_next(at)))
    if (strcmp(at->text, key) == 0) return true;
  return false;
}

static bool read_key(reader *r, uint32_t object, uint32_t pairs) {
  skip_space(r);
  if (r->at >= r->size || r->text[r->at] != '"') return fault(r, "an object's key is missing");
  const uint32_t key = r->used;
  if (!read_string(r)) return false;
  if (pairs >= MLLM_JSON_KEYS) return fault(r, "an object has too many keys");
  if (has_key(&r->doc->values[object], r->doc->values[key].text, pairs))
    return fault(r, "an object has a key twice");
  skip_space(r);
  return accept(r, ':') || fault(r, "':' is missing");
}

static bool read_container(reader *r, int depth, mllm_json_kind kind) {
  if (depth >= MLLM_JSON_DEPTH) return fault(r, "nested too deeply");
  const char close = kind == MLLM_JSON_OBJECT ? '}' : ']';
  const uint32_t index = r->used;
  if (append(r, kind) == NULL) return fault(r, "too many values");
  r->at++;
  skip_space(r);
  uint32_t count = 0;
  bool open = !accept(r, close);
  while (open) {
    if (kind == MLLM_JSON_OBJECT && !read_key(r, index, count)) return false;
    if (!read_value(r, depth + 1)) return false;
    count++;
    skip_space(r);
    if (accept(r, close))
      open = false;
    else if (!accept(r, ','))
      return fault(r, "',' or the end of a list is missing");
  }
  r->doc->values[index].count = count;
  r->doc->values[index].span = r->used - index;
  return true;
}

static bool read_value(reader *r, int depth) {
  skip_space(r);
  if (r->at >= r->size) return fault(r, "the text ends too early");
  switch (r->text[r->at]) {
    case '{': return read_container(r, depth, MLLM_JSON_OBJECT);
    case '[': return read_container(r, depth, MLLM_JSON_ARRAY);
    case '"': return read_string(r);
    case 't': return read_word(r, "true", MLLM_JSON_TRUE);
    case 'f': return read_word(r, "false", MLLM_JSON_FALSE);
    case 'n': return read_word(r, "null", MLLM_JSON_NULL);
    default: return read_number(r);
  }
}

bool mllm_json_parse(mllm_json *doc, const char *bytes, size_t size) {
  memset(doc, 0, sizeof *doc);
  size_t capacity = 1; /* every further value stands behind one of these */
  for (size_t i = 0; i < size; i++)
    if (bytes[i] == ',' || bytes[i] == ':' || bytes[i] == '[' || bytes[i] == '{') capacity++;
  if (size > UINT32_MAX / 2) {
    doc->fault = "longer than 2 GiB";
    return false;
  }
  const size_t head =
      capacity * sizeof(mllm_json_value); /* capacity <= 2^31, no overflow in 64 bits */
  if (head / sizeof(mllm_json_value) != capacity || head > SIZE_MAX - size - 1) {
    doc->fault = "too long";
    return false;
  }
  doc->storage = malloc(head + size + 1);
  if (doc->storage == NULL) {
    doc->fault = "out of memory";
    return false;
  }
  doc->values = doc->storage;
  reader r = {.text = (char *)doc->storage + head, .size = size, .capacity = capacity, .doc = doc};
  memcpy(r.text, bytes, size);
  bool good = read_value(&r, 0);
  if (good) skip_space(&r);
  if (good && r.at != size) good = fault(&r, "text behind the document");
  if (!good) mllm_json_free(doc);
  return good;
}

void mllm_json_free(mllm_json *doc) {
  free(doc->storage);
  doc->storage = NULL;
  doc->values = NULL;
}

const mllm_json_value *mllm_json_next(const mllm_json_value *value) { return value + value->span; }

const mllm_json_value *mllm_json_first(const mllm_json_value *container) {
  if (container == NULL || container->count == 0) return NULL;
  return container->kind == MLLM_JSON_ARRAY || container->kind == MLLM_JSON_OBJECT ? container + 1
                                                                                   : NULL;
}

const mllm_json_value *mllm_json_get(const mllm_json_value *object, const char *key) {
  if (object == NULL || object->kind != MLLM_JSON_OBJECT) return NULL;
  const mllm_json_value *at = object + 1;
  for (uint32_t i = 0; i < object->count; i++) {
    const mllm_json_value *value = mllm_json_next(at);
    if (strcmp(at->text, key) == 0) return value;
    at = mllm_json_next(value);
  }
  return NULL;
}

const char *mllm_json_text(const mllm_json_value *object, const char *key, const char *fallback) {
  const mllm_json_value *value = mllm_json_get(object, key);
  return value != NULL && value->kind == MLLM_JSON_STRING ? value->text : fallback;
}

int64_t mllm_json_int(const mllm_json_value *object, const char *key, int64_t fallback) {
  const mllm_json_value *value = mllm_json_get(object, key);
  return value != NULL && value->is_integer ? value->integer : fallback;
}

double mllm_json_number(const mllm_json_value *object, const char *key, double fallback) {
  const mllm_json_value *value = mllm_json_get(object, key);
  return value != NULL && value->kind == MLLM_JSON_NUMBER ? value->number : fallback;
}

bool mllm_json_bool(const mllm_json_value *object, const char *key, bool fallback) {
  const mllm_json_value *value = mllm_json_get(object, key);
  if (value == NULL || (value->kind != MLLM_JSON_TRUE && value->kind != MLLM_JSON_FALSE))
    return fallback;
  return value->kind == MLLM_JSON_TRUE;
}
