/* Signature, trust and digests of a bundle. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "bundle.h"
#include "status.h"
#include "threads.h"

static bool is_trusted(const uint8_t *key, const mllm_bundle_options *options) {
  for (size_t i = 0; i < options->n_trusted; i++)
    if (memcmp(options->trusted[i].bytes, key, MLLM_KEY_BYTES) == 0) return true;
  return false;
}

static mllm_status untrusted(const uint8_t *key, mllm_error *error) {
  static const char digits[] = "0123456789abcdef";
  char text[2 * MLLM_KEY_BYTES + 1] = {0};
  for (size_t i = 0; i < MLLM_KEY_BYTES; i++) {
    text[2 * i] = digits[key[i] >> 4];
    text[2 * i + 1] = digits[key[i] & 15];
  }
  return mllm_fail(error, MLLM_UNTRUSTED, MLLM_CODE_UNTRUSTED, "the key %s is not trusted", text);
}

mllm_status mllm_bundle_check_signature(const mllm_bundle *bundle,
                                        const mllm_bundle_options *options, mllm_error *error) {
  const bool any = (options->flags & MLLM_ALLOW_UNSIGNED) != 0;
  if (bundle->n_first < 2 && any) return MLLM_OK;
  if (bundle->n_first < 2)
    return mllm_fail(error, MLLM_UNTRUSTED, MLLM_CODE_UNSIGNED, "the bundle is not signed");
  const uint8_t *key = bundle->file.bytes + bundle->members[1].data;
  const uint8_t *manifest = bundle->file.bytes + bundle->members[0].data;
  if (!mllm_ed25519_signs(key, key + MLLM_KEY_BYTES, manifest, (size_t)bundle->members[0].size))
    return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_SIGNATURE,
                     "member '" MLLM_SIGNATURE "' does not match '" MLLM_MANIFEST "'");
  return any || is_trusted(key, options) ? MLLM_OK : untrusted(key, error);
}

static uint8_t hex_value(char digit) {
  return (uint8_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

/* Compares a digest with 64 lower-case digits. */
static bool is_digest(const uint8_t *digest, const char *hex) {
  for (size_t i = 0; i < MLLM_SHA256_BYTES; i++)
    if (digest[i] != (hex_value(hex[2 * i]) << 4 | hex_value(hex[2 * i + 1]))) return false;
  return true;
}

/* All pieces of all members in one row; members without pieces take no place in it. */
typedef struct row {
  const mllm_bundle *bundle;
  atomic_size_t bad; /* the first piece that was changed; SIZE_MAX: none */
} row;

static size_t pieces_of(const mllm_member *member) {
  return (size_t)((member->size + MLLM_PIECE_BYTES - 1) / MLLM_PIECE_BYTES);
}

/* The member of a piece; *piece becomes its number within the member. */
static size_t member_of(const mllm_bundle *bundle, size_t *piece) {
  size_t member = bundle->n_first;
  while (*piece >= pieces_of(&bundle->members[member]))
    *piece -= pieces_of(&bundle->members[member++]);
  return member;
}

static bool is_same(const mllm_bundle *bundle, size_t piece) {
  const size_t member = member_of(bundle, &piece);
  const mllm_json_value *digests = mllm_json_get(bundle->records[member], "pieces");
  const size_t start = piece * MLLM_PIECE_BYTES,
               left = (size_t)bundle->members[member].size - start;
  uint8_t digest[MLLM_SHA256_BYTES];
  return mllm_sha256(bundle->file.bytes + bundle->members[member].data + start,
                     left < MLLM_PIECE_BYTES ? left : MLLM_PIECE_BYTES, digest) &&
         is_digest(digest, digests[1 + piece].text);
}

static void check_some(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  row *pieces = argument;
  for (size_t piece = begin; piece < end; piece++) {
    size_t bad = atomic_load(&pieces->bad);
    if (piece > bad || is_same(pieces->bundle, piece)) continue;
    while (piece < bad && !atomic_compare_exchange_weak(&pieces->bad, &bad, piece)) continue;
  }
}

static mllm_status changed(const mllm_member *member, uint64_t start, uint64_t end,
                           mllm_error *error) {
  return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_CHANGED, "%s: bytes %llu-%llu were changed",
                   member->name, (unsigned long long)start, (unsigned long long)(end - 1));
}

/* The digest of a member is that of its pieces' digests. */
static mllm_status check_root(const mllm_bundle *bundle, size_t member, uint8_t *raw,
                              mllm_error *error) {
  const mllm_json_value *digests = mllm_json_get(bundle->records[member], "pieces");
  for (uint32_t i = 0; i < digests->count; i++)
    for (size_t k = 0; k < MLLM_SHA256_BYTES; k++) {
      const char *hex = digests[1 + i].text + 2 * k;
      raw[i * MLLM_SHA256_BYTES + k] = (uint8_t)(hex_value(hex[0]) << 4 | hex_value(hex[1]));
    }
  uint8_t digest[MLLM_SHA256_BYTES];
  const char *wanted = mllm_json_text(bundle->records[member], "sha256", "");
  if (mllm_sha256(raw, digests->count * (size_t)MLLM_SHA256_BYTES, digest) &&
      is_digest(digest, wanted))
    return MLLM_OK;
  const mllm_member *facts = &bundle->members[member];
  return changed(facts, 0, facts->size > 0 ? facts->size : 1, error);
}

mllm_status mllm_bundle_check_pieces(const mllm_bundle *bundle, uint32_t threads,
                                     mllm_error *error) {
  size_t total = 0, most = 1;
  for (size_t i = bundle->n_first; i < bundle->n_members; i++) {
    const size_t count = pieces_of(&bundle->members[i]);
    total += count;
    if (count > most) most = count;
  }
  uint8_t *raw = malloc(most * MLLM_SHA256_BYTES);
  mllm_threads *pool = mllm_threads_create(threads);
  row pieces = {.bundle = bundle};
  atomic_init(&pieces.bad, SIZE_MAX);
  mllm_status status = MLLM_OK;
  if (raw == NULL || pool == NULL)
    status = mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory to verify");
  for (size_t i = bundle->n_first; status == MLLM_OK && i < bundle->n_members; i++)
    status = check_root(bundle, i, raw, error);
  if (status == MLLM_OK) mllm_parallel_for(pool, total, 1, check_some, &pieces);
  size_t bad = atomic_load(&pieces.bad);
  if (bad != SIZE_MAX) {
    const mllm_member *member = &bundle->members[member_of(bundle, &bad)];
    const uint64_t start = (uint64_t)bad * MLLM_PIECE_BYTES, end = start + MLLM_PIECE_BYTES;
    status = changed(member, start, end < member->size ? end : member->size, error);
  }
  if (pool != NULL) mllm_threads_destroy(pool);
  free(raw);
  return status;
}
