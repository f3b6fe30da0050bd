/* What has to be found in a bundle before any of it can be believed. */
#include <string.h>

#include "bundle.h"
#include "status.h"

static bool lists(const mllm_mapping *file, uint64_t at, size_t count, const char *name) {
  mllm_member claim;
  for (size_t i = 0; i < count && mllm_zip_next(file->bytes, file->size, &at, &claim); i++)
    if (mllm_zip_is(&claim, name)) return true;
  return false;
}

/* The manifest's bytes are those of a claim whose checksum is one of the claimed ones: a header
 * with one changed bit is then told as what it is. */
static mllm_status find_manifest(const mllm_mapping *file, const mllm_member *claims, size_t count,
                                 mllm_member *manifest, mllm_error *error) {
  uint64_t least = UINT64_MAX;
  for (size_t i = 0; i < count; i++) {
    const uint64_t size = claims[i].size;
    if (size < least) least = size;
    if (file->size < MLLM_ZIP_ALIGNMENT || size > file->size - MLLM_ZIP_ALIGNMENT) continue;
    const uint32_t crc32 = mllm_crc32(file->bytes + MLLM_ZIP_ALIGNMENT, (size_t)size);
    if (crc32 != claims[0].crc32 && crc32 != claims[count - 1].crc32) continue;
    *manifest = (mllm_member){
        .name = MLLM_MANIFEST, .name_size = strlen(MLLM_MANIFEST), .size = size, .crc32 = crc32};
    return MLLM_OK;
  }
  if (file->size < MLLM_ZIP_ALIGNMENT || least > file->size - MLLM_ZIP_ALIGNMENT)
    return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_LAYOUT,
                     "the file ends inside member '" MLLM_MANIFEST "'");
  return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_CHANGED,
                   MLLM_MANIFEST ": bytes 0-%llu were changed",
                   (unsigned long long)(least > 0 ? least - 1 : 0));
}

/* Whether either header of a second member calls it the signature. */
static bool has_signature(const mllm_mapping *file, uint64_t manifest_end, uint64_t directory,
                          size_t listed) {
  mllm_member claim;
  if (mllm_zip_local(file->bytes, file->size, manifest_end, &claim) &&
      mllm_zip_is(&claim, MLLM_SIGNATURE))
    return true;
  uint64_t at = directory;
  return listed >= 2 && mllm_zip_next(file->bytes, file->size, &at, &claim) &&
         mllm_zip_next(file->bytes, file->size, &at, &claim) && mllm_zip_is(&claim, MLLM_SIGNATURE);
}

mllm_status mllm_bundle_head(const mllm_mapping *file, mllm_member *first, size_t *n_first,
                             mllm_error *error) {
  mllm_member claims[2];
  size_t count = mllm_zip_local(file->bytes, file->size, 0, &claims[0]) ? 1 : 0;
  uint64_t directory = 0;
  const size_t listed = mllm_zip_listed(file->bytes, file->size, &directory);
  if (count == 0 && listed == 0)
    return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_LAYOUT, "not a bundle");
  const bool found = count > 0 && mllm_zip_is(&claims[0], MLLM_MANIFEST);
  if (!found && (listed == 0 || !lists(file, directory, listed, MLLM_MANIFEST)))
    return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_MISSING,
                     "member '" MLLM_MANIFEST "' is missing");
  uint64_t at = directory;
  if (listed > 0 && mllm_zip_next(file->bytes, file->size, &at, &claims[count])) count++;
  mllm_status status = find_manifest(file, claims, count, &first[0], error);
  if (status != MLLM_OK) return status;
  *n_first = 1;
  if (!has_signature(file, MLLM_ZIP_ALIGNMENT + first[0].size, directory, listed)) return MLLM_OK;
  *n_first = 2;
  first[1] = (mllm_member){.name = MLLM_SIGNATURE,
                           .name_size = strlen(MLLM_SIGNATURE),
                           .size = MLLM_KEY_BYTES + MLLM_SIGNATURE_BYTES};
  const uint64_t end = mllm_zip_place(first, 2);
  if (end > file->size)
    return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_LAYOUT,
                     "the file ends inside member '" MLLM_SIGNATURE "'");
  first[1].crc32 = mllm_crc32(file->bytes + first[1].data, (size_t)first[1].size);
  return MLLM_OK;
}

static bool same_name(const mllm_member *a, const mllm_member *b) {
  return a->name_size == b->name_size && memcmp(a->name, b->name, a->name_size) == 0;
}

static bool is_listed(const mllm_bundle *bundle, uint64_t at, size_t count, size_t member) {
  mllm_member claim;
  for (size_t i = 0; i < count; i++) {
    if (!mllm_zip_next(bundle->file.bytes, bundle->file.size, &at, &claim)) return false;
    if (same_name(&claim, &bundle->members[member])) return true;
  }
  return false;
}

static bool is_wanted(const mllm_bundle *bundle, const mllm_member *claim) {
  for (size_t i = 0; i < bundle->n_members; i++)
    if (same_name(claim, &bundle->members[i])) return true;
  return false;
}

mllm_status mllm_bundle_check_names(const mllm_bundle *bundle, mllm_error *error) {
  const mllm_mapping *file = &bundle->file;
  uint64_t at = 0;
  const size_t listed = mllm_zip_listed(file->bytes, file->size, &at);
  for (size_t i = 0; listed > 0 && i < bundle->n_members; i++)
    if (!is_listed(bundle, at, listed, i))
      return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_MISSING, "member '%.*s' is missing",
                       (int)bundle->members[i].name_size, bundle->members[i].name);
  mllm_member claim;
  for (size_t i = 0; i < listed && mllm_zip_next(file->bytes, file->size, &at, &claim); i++)
    if (i >= bundle->n_members || !is_wanted(bundle, &claim))
      return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_EXTRA, "member '%.*s' is not in the manifest",
                       (int)claim.name_size, claim.name);
  return MLLM_OK;
}
