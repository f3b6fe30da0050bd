/* The tokenizer of a bundle, `text/tokenizer.bin`, and the functions over it. Usable without the
 * rest of the runtime.
 *
 * Byte-level BPE: added tokens are split off first (leftmost, longest), the rest is cut into words
 * by the pre-tokenizer, and the bytes of a word are merged pair by pair, lowest rank first. The
 * tables are made at compile time by mllm_compiler/bundle/tokenizer_tables.py. Everything is little
 * endian and u32 unless said; sections follow each other without gaps in this order:
 *
 *   header         48 bytes: magic "MLLMTOK\x01", then flags, tokens, added, slots, ranges, words,
 * before, after, pool, 0 byte_ids       [256]          the token of a single byte, MLLM_NO_TOKEN
 * where the vocabulary has none offsets        [tokens + 1]   token t stands for pool[offsets[t] ..
 * offsets[t + 1]) token_flags    [tokens]       MLLM_TOKEN_* words          [words]        ids of
 * the model's own tokens, ascending by their bytes added          [added][4]     {id, pool offset,
 * length, MLLM_TOKEN_*} of added tokens, ascending by their text slots          [slots][4] {left,
 * right, rank, merged}: open addressing, slots is a power of two (or 0), linear probing from
 * mllm_pair_hash(left, right) & (slots - 1); left = MLLM_NO_TOKEN marks a free slot ranges
 * [ranges][3]    {first, last, MLLM_CLASS_*} of code points, ascending before, after  [before],
 * [after]   ids that surround a whole text when special tokens are asked for pool           [pool]
 * bytes
 */
#ifndef MLLM_TOKENIZER_H
#define MLLM_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MLLM_TOKENIZER_MAGIC "MLLMTOK\x01"
#ifndef MLLM_NO_TOKEN
#define MLLM_NO_TOKEN 0xFFFFFFFFu
#endif

enum {                                   /* header flags */
       MLLM_TOKENIZER_DIGITS = 1,        /* cut at digits; */
       MLLM_TOKENIZER_SINGLE_DIGITS = 2, /* each digit by itself */
       MLLM_TOKENIZER_GPT2_WORDS = 4,    /* cut by the regular expression of GPT-2 */
       MLLM_TOKENIZER_LEADING_SPACE = 8, /* a piece starts with a space */
       MLLM_TOKENIZER_WHOLE_WORDS = 16 /* a word that is a token is not merged ("ignore_merges") */
};
enum {
  MLLM_TOKEN_EXISTS = 1,
  MLLM_TOKEN_ADDED = 2,
  MLLM_TOKEN_SPECIAL = 4,
  MLLM_TOKEN_NORMALIZED = 8
};
enum { MLLM_CLASS_LETTER = 1, MLLM_CLASS_NUMBER = 2, MLLM_CLASS_SPACE = 4, MLLM_CLASS_DIGIT = 8 };

typedef struct mllm_tokenizer {
  uint32_t flags;
  uint32_t n_tokens, n_added, n_slots, n_ranges, n_words, n_before, n_after, n_pool;
  const uint32_t *byte_ids, *offsets, *token_flags, *words, *added, *slots, *ranges, *before,
      *after;
  const uint8_t *pool;
  uint8_t ascii[128];  /* classes of the first 128 code points */
  uint8_t starts[256]; /* 1 where an added token starts with this byte */
} mllm_tokenizer;

/* Bytes [start, end) of a text, in which no added token is recognised: a user's words cannot act as
 * control tokens. */
typedef struct mllm_plain_span {
  size_t start;
  size_t end;
} mllm_plain_span;

/* Checks `size` bytes at `bytes` (8-byte aligned, kept alive and unchanged by the caller) and
 * points the tokenizer into them. NULL when they are a tokenizer, else what is wrong with them. */
const char *mllm_tokenizer_open(mllm_tokenizer *tokenizer, const void *bytes, size_t size);

/* Bytes of working memory that encoding `size` bytes of text takes; SIZE_MAX when there is no such
 * number. */
size_t mllm_tokenizer_scratch(size_t size);

/* Encodes UTF-8 text (ill-formed bytes count as U+FFFD for cutting and keep their bytes) to ids.
 * `scratch` has mllm_tokenizer_scratch(size) bytes, 8-byte aligned. Returns the number of tokens,
 * also when it is larger than `capacity`: then only the first `capacity` are written. */
size_t mllm_tokenizer_encode(const mllm_tokenizer *tokenizer, const char *text, size_t size,
                             const mllm_plain_span *spans, size_t n_spans, bool add_special,
                             void *scratch, uint32_t *ids, size_t capacity);

/* The bytes that a token stands for (not always whole characters). False: no such token. */
bool mllm_tokenizer_bytes(const mllm_tokenizer *tokenizer, uint32_t id, const char **bytes,
                          size_t *size);
bool mllm_tokenizer_is_special(const mllm_tokenizer *tokenizer, uint32_t id);

/* The id of an added token's text or of a whole word, MLLM_NO_TOKEN when there is none. */
uint32_t mllm_tokenizer_find(const mllm_tokenizer *tokenizer, const char *text, size_t size);

/* Turns token bytes into whole characters: what is not yet complete is held back, what never will
 * be becomes U+FFFD. */
typedef struct mllm_utf8_stream {
  uint8_t held[4];
  uint32_t n_held;
} mllm_utf8_stream;

/* `out` has room for 3 * (size + 4) bytes; returns the number written. `last`: nothing follows,
 * give up what is held. */
size_t mllm_utf8_push(mllm_utf8_stream *stream, const char *bytes, size_t size, bool last,
                      char *out);

#ifdef __cplusplus
}
#endif

#endif
