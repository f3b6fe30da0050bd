#include "mllm_tokenizer.h"

#include <string.h>

#include "pair_table.h"
#include "words.h"

enum { HEADER_WORDS = 12, BYTES = 256 };

/* Where sections are cut off the file, one after the other. */
typedef struct cutter {
  const uint32_t *at;
  size_t left; /* in u32 */
  bool short_of;
} cutter;

static const uint32_t *cut(cutter *file, size_t count, size_t width) {
  if (file->short_of || count > file->left / width) {
    file->short_of = true;
    return NULL;
  }
  const uint32_t *section = file->at;
  file->at += count * width;
  file->left -= count * width;
  return section;
}

static bool ids_below(const uint32_t *ids, size_t count, size_t stride, uint32_t limit,
                      bool none_allowed) {
  for (size_t i = 0; i < count; i++)
    if (ids[i * stride] >= limit && !(none_allowed && ids[i * stride] == MLLM_NO_TOKEN))
      return false;
  return true;
}

static const char *check_tokens(const mllm_tokenizer *t) {
  if (t->offsets[0] != 0 || t->offsets[t->n_tokens] > t->n_pool)
    return "token offsets leave the pool";
  for (uint32_t i = 0; i < t->n_tokens; i++)
    if (t->offsets[i] > t->offsets[i + 1]) return "token offsets are not ascending";
  if (!ids_below(t->byte_ids, BYTES, 1, t->n_tokens, true)) return "a byte's token does not exist";
  if (!ids_below(t->words, t->n_words, 1, t->n_tokens, false))
    return "a word's token does not exist";
  if (!ids_below(t->before, t->n_before, 1, t->n_tokens, false))
    return "a leading token does not exist";
  if (!ids_below(t->after, t->n_after, 1, t->n_tokens, false))
    return "a trailing token does not exist";
  return NULL;
}

static const char *check_slots(const mllm_tokenizer *t) {
  if ((t->n_slots & (t->n_slots - 1)) != 0 && t->n_slots != 0)
    return "the number of merge slots is no power of two";
  for (uint32_t i = 0; i < t->n_slots; i++) {
    const uint32_t *slot = t->slots + 4 * (size_t)i;
    if (slot[0] == MLLM_NO_TOKEN) continue;
    if (slot[0] >= t->n_tokens || slot[1] >= t->n_tokens || slot[3] >= t->n_tokens)
      return "a merge's token does not exist";
  }
  return NULL;
}

static int compare_bytes(const uint8_t *a, size_t a_size, const char *b, size_t b_size) {
  const int order = memcmp(a, b, a_size < b_size ? a_size : b_size);
  if (order != 0) return order;
  return a_size < b_size ? -1 : a_size > b_size ? 1 : 0;
}

static const char *check_added(mllm_tokenizer *t) {
  for (uint32_t i = 0; i < t->n_added; i++) {
    const uint32_t *entry = t->added + 4 * (size_t)i;
    if (entry[0] >= t->n_tokens) return "an added token does not exist";
    if (entry[2] == 0 || entry[1] > t->n_pool || entry[2] > t->n_pool - entry[1])
      return "an added token leaves the pool";
    t->starts[t->pool[entry[1]]] = 1;
    if (i == 0) continue;
    const uint32_t *before = entry - 4;
    const char *text = (const char *)t->pool + entry[1];
    if (compare_bytes(t->pool + before[1], before[2], text, entry[2]) >= 0)
      return "added tokens are not ascending";
  }
  return NULL;
}

static const char *check_ranges(mllm_tokenizer *t) {
  for (uint32_t i = 0; i < t->n_ranges; i++) {
    const uint32_t *range = t->ranges + 3 * (size_t)i;
    if (range[0] > range[1] || range[1] > 0x10FFFF) return "a range of code points is malformed";
    if (i > 0 && range[0] <= range[-2]) return "ranges of code points are not ascending";
    for (uint32_t code = range[0]; code <= range[1] && code < 128; code++)
      t->ascii[code] = (uint8_t)(range[2] & 15);
  }
  return NULL;
}

const char *mllm_tokenizer_open(mllm_tokenizer *tokenizer, const void *bytes, size_t size) {
  mllm_tokenizer *t = tokenizer;
  memset(t, 0, sizeof *t);
  if (size < HEADER_WORDS * sizeof(uint32_t) || memcmp(bytes, MLLM_TOKENIZER_MAGIC, 8) != 0)
    return "not a tokenizer";
  const uint32_t *head = bytes;
  t->flags = head[2];
  t->n_tokens = head[3];
  t->n_added = head[4];
  t->n_slots = head[5];
  t->n_ranges = head[6];
  t->n_words = head[7];
  t->n_before = head[8];
  t->n_after = head[9];
  t->n_pool = head[10];
  if (head[11] != 0 || t->flags > 31) return "made for a newer runtime";
  cutter file = {head + HEADER_WORDS, size / sizeof(uint32_t) - HEADER_WORDS, false};
  t->byte_ids = cut(&file, BYTES, 1);
  t->offsets = cut(&file, (size_t)t->n_tokens + 1, 1);
  t->token_flags = cut(&file, t->n_tokens, 1);
  t->words = cut(&file, t->n_words, 1);
  t->added = cut(&file, t->n_added, 4);
  t->slots = cut(&file, t->n_slots, 4);
  t->ranges = cut(&file, t->n_ranges, 3);
  t->before = cut(&file, t->n_before, 1);
  t->after = cut(&file, t->n_after, 1);
  if (file.short_of) return "shorter than its sections";
  t->pool = (const uint8_t *)file.at;
  if ((size_t)(t->pool - (const uint8_t *)bytes) + t->n_pool != size)
    return "longer or shorter than its sections";
  const char *fault = check_tokens(t);
  if (fault == NULL) fault = check_slots(t);
  if (fault == NULL) fault = check_added(t);
  if (fault == NULL) fault = check_ranges(t);
  return fault;
}

bool mllm_tokenizer_bytes(const mllm_tokenizer *tokenizer, uint32_t id, const char **bytes,
                          size_t *size) {
  if (id >= tokenizer->n_tokens || (tokenizer->token_flags[id] & MLLM_TOKEN_EXISTS) == 0)
    return false;
  *bytes = (const char *)tokenizer->pool + tokenizer->offsets[id];
  *size = tokenizer->offsets[id + 1] - tokenizer->offsets[id];
  return true;
}

bool mllm_tokenizer_is_special(const mllm_tokenizer *tokenizer, uint32_t id) {
  return id < tokenizer->n_tokens && (tokenizer->token_flags[id] & MLLM_TOKEN_SPECIAL) != 0;
}

static uint32_t find_word(const mllm_tokenizer *t, const char *text, size_t size) {
  size_t low = 0, high = t->n_words;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const uint32_t id = t->words[middle], start = t->offsets[id];
    const int order = compare_bytes(t->pool + start, t->offsets[id + 1] - start, text, size);
    if (order == 0) return id;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return MLLM_NO_TOKEN;
}

uint32_t mllm_tokenizer_find(const mllm_tokenizer *tokenizer, const char *text, size_t size) {
  size_t low = 0, high = tokenizer->n_added;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const uint32_t *entry = tokenizer->added + 4 * middle;
    const int order = compare_bytes(tokenizer->pool + entry[1], entry[2], text, size);
    if (order == 0) return entry[0];
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return find_word(tokenizer, text, size);
}

size_t mllm_tokenizer_scratch(size_t size) {
  if (size >= (1u << 30)) return SIZE_MAX;
  /* the nodes and candidates of the longest word, and a copy of a piece behind its leading space */
  return (MLLM_MERGE_SCRATCH_PER_BYTE + 1) * (size + 2);
}

typedef struct encoding {
  const mllm_tokenizer *tokenizer;
  const mllm_plain_span *spans;
  size_t n_spans;
  const char *text;
  uint32_t *scratch;
  char *copy; /* a piece with a space before it */
  uint32_t *ids;
  size_t capacity;
  size_t count;
} encoding;

static void emit(encoding *e, uint32_t id) {
  if (e->count < e->capacity) e->ids[e->count] = id;
  e->count++;
}

static void encode_word(encoding *e, const char *word, size_t size) {
  if ((e->tokenizer->flags & MLLM_TOKENIZER_WHOLE_WORDS) != 0) {
    const uint32_t id = find_word(e->tokenizer, word, size);
    if (id != MLLM_NO_TOKEN) {
      emit(e, id);
      return;
    }
  }
  const size_t n = mllm_merge_word(e->tokenizer, (const uint8_t *)word, size, e->scratch);
  for (size_t i = 0; i < n; i++) emit(e, e->scratch[i]);
}

static void encode_piece(encoding *e, const char *piece, size_t size) {
  if ((e->tokenizer->flags & MLLM_TOKENIZER_LEADING_SPACE) != 0 && piece[0] != ' ') {
    e->copy[0] = ' ';
    memcpy(e->copy + 1, piece, size);
    piece = e->copy;
    size++;
  }
  for (size_t at = 0; at < size;) {
    const bool cuts = (e->tokenizer->flags & MLLM_TOKENIZER_GPT2_WORDS) != 0;
    const size_t end = cuts ? mllm_word_end(e->tokenizer, piece, size, at) : size;
    encode_word(e, piece + at, end - at);
    at = end;
  }
}

static bool is_plain(const encoding *e, size_t start, size_t end) {
  for (size_t i = 0; i < e->n_spans; i++)
    if (start < e->spans[i].end && end > e->spans[i].start) return true;
  return false;
}

/* First added token from `low` on whose byte at `depth` is not below `byte`; those before share
 * `depth` bytes. */
static size_t narrow(const mllm_tokenizer *t, size_t low, size_t high, size_t depth,
                     uint32_t byte) {
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const uint32_t *entry = t->added + 4 * middle;
    if (entry[2] <= depth || t->pool[entry[1] + depth] < byte)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The longest added token at text[at], of those that are `normalized` or not; NULL: none starts
 * here. */
static const uint32_t *added_at(const encoding *e, size_t at, size_t end, bool normalized) {
  const mllm_tokenizer *t = e->tokenizer;
  if (t->starts[(uint8_t)e->text[at]] == 0) return NULL;
  const uint32_t *best = NULL;
  size_t low = 0, high = t->n_added;
  for (size_t depth = 0; at + depth < end && low < high; depth++) {
    const uint32_t byte = (uint8_t)e->text[at + depth];
    low = narrow(t, low, high, depth, byte);
    high = narrow(t, low, high, depth, byte + 1);
    if (low == high) break;
    const uint32_t *entry = t->added + 4 * low; /* the shortest one stands first */
    const bool fits =
        entry[2] == depth + 1 && ((entry[3] & MLLM_TOKEN_NORMALIZED) != 0) == normalized;
    if (fits && !is_plain(e, at, at + depth + 1)) best = entry;
  }
  return best;
}

static void encode_pieces(encoding *e, size_t start, size_t end) {
  for (size_t at = start; at < end;) {
    const size_t stop = at + mllm_piece_end(e->tokenizer, e->text + at, end - at, 0);
    encode_piece(e, e->text + at, stop - at);
    at = stop;
  }
}

/* Splits added tokens off: first those that no normaliser may touch, then the others in what is
 * left. */
static void encode_range(encoding *e, size_t start, size_t end, bool normalized) {
  size_t from = start;
  for (size_t at = start; at <= end;) {
    const uint32_t *entry = at < end ? added_at(e, at, end, normalized) : NULL;
    if (entry == NULL && at < end) {
      at++;
      continue;
    }
    if (at > from && normalized) encode_pieces(e, from, at);
    if (at > from && !normalized) encode_range(e, from, at, true);
    if (entry == NULL) break;
    emit(e, entry[0]);
    at += entry[2];
    from = at;
  }
}

size_t mllm_tokenizer_encode(const mllm_tokenizer *tokenizer, const char *text, size_t size,
                             const mllm_plain_span *spans, size_t n_spans, bool add_special,
                             void *scratch, uint32_t *ids, size_t capacity) {
  encoding e = {.tokenizer = tokenizer,
                .spans = spans,
                .n_spans = n_spans,
                .text = text,
                .scratch = scratch,
                .ids = ids,
                .capacity = capacity};
  e.copy = (char *)scratch + MLLM_MERGE_SCRATCH_PER_BYTE * (size + 1);
  for (uint32_t i = 0; add_special && i < tokenizer->n_before; i++) emit(&e, tokenizer->before[i]);
  encode_range(&e, 0, size, false);
  for (uint32_t i = 0; add_special && i < tokenizer->n_after; i++) emit(&e, tokenizer->after[i]);
  return e.count;
}
