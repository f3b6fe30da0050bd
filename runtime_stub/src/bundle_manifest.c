/* `manifest.json`: the members that it lists, and whether this runtime may believe it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices.h"
#include "status.h"

static mllm_status misread(mllm_error *error, const char *what, const char *name) {
  return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_MANIFEST, MLLM_MANIFEST ": '%s%s' %s",
                   name == NULL ? "" : "members.", name == NULL ? what : name,
                   name == NULL ? "is missing" : what);
}

static bool is_hex(const mllm_json_value *value, size_t digits) {
  if (value == NULL || value->kind != MLLM_JSON_STRING || value->count != digits) return false;
  return strspn(value->text, "0123456789abcdef") == digits;
}

static bool is_inner_name(const char *name) {
  if (strcmp(name, MLLM_MANIFEST) == 0 || strcmp(name, MLLM_SIGNATURE) == 0) return false;
  if (strchr(name, '\\') != NULL || strlen(name) > UINT16_MAX) return false;
  for (const char *part = name; part != NULL;) {
    const char *slash = strchr(part, '/');
    const size_t size = slash == NULL ? strlen(part) : (size_t)(slash - part);
    if (size == 0 || (size == 1 && part[0] == '.') || (size == 2 && memcmp(part, "..", 2) == 0))
      return false;
    part = slash == NULL ? NULL : slash + 1;
  }
  return true;
}

static bool is_sound(const mllm_json_value *record) {
  const int64_t size = mllm_json_int(record, "size", -1);
  const mllm_json_value *pieces = mllm_json_get(record, "pieces");
  if (size < 0 || size > UINT32_MAX || pieces == NULL || pieces->kind != MLLM_JSON_ARRAY)
    return false;
  if (pieces->count != ((uint64_t)size + MLLM_PIECE_BYTES - 1) / MLLM_PIECE_BYTES) return false;
  if (!is_hex(mllm_json_get(record, "crc32"), 8) || !is_hex(mllm_json_get(record, "sha256"), 64))
    return false;
  if (pieces->span != pieces->count + 1) return false; /* strings only */
  for (uint32_t i = 0; i < pieces->count; i++)
    if (!is_hex(pieces + 1 + i, 64)) return false;
  return true;
}

static mllm_status check_format(const mllm_json_value *manifest, mllm_error *error) {
  const int64_t format = mllm_json_int(manifest, "format", 0);
  if (format < 1) return misread(error, "format", NULL);
  if (format <= MLLM_BUNDLE_FORMAT) return MLLM_OK;
  return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_NEWER,
                   "made by a newer version: format %lld, this version reads up to %d",
                   (long long)format, MLLM_BUNDLE_FORMAT);
}

/* "1.2.3" as one number; -1: it is none. */
static int64_t version_of(const char *text) {
  unsigned int major = 0, minor = 0, patch = 0;
  if (sscanf(text, "%4u.%4u.%4u", &major, &minor, &patch) < 1) return -1;
  return ((int64_t)major * 10000 + minor) * 10000 + patch;
}

static mllm_status check_compatibility(const mllm_json_value *block, mllm_error *error) {
  const int64_t abi = mllm_json_int(block, "abi", 0);
  if (abi < 1) return misread(error, "compatibility", NULL);
  if (abi > MLLM_ABI_VERSION)
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_INCOMPATIBLE,
                     "needs runtime interface %lld, this runtime has %d", (long long)abi,
                     MLLM_ABI_VERSION);
  const char *wanted = mllm_json_text(block, "min_runtime", "");
  const int64_t need = version_of(wanted);
  if (need < 0) return misread(error, "compatibility.min_runtime", NULL);
  if (need <= version_of(mllm_version())) return MLLM_OK;
  return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_INCOMPATIBLE,
                   "needs runtime %.40s or newer, this is %s", wanted, mllm_version());
}

static mllm_status check_sdk(const mllm_json_value *block, const mllm_device *device,
                             mllm_error *error) {
  const mllm_json_value *sdk = mllm_json_get(block, "sdk");
  const char *wanted = mllm_json_text(sdk, "version", "");
  const char *found = device->sdk_version == NULL ? "unknown" : device->sdk_version;
  if (version_of(wanted) <= version_of(found)) return MLLM_OK;
  return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_INCOMPATIBLE,
                   "needs %.40s %.40s or newer, the device '%s' has %s",
                   mllm_json_text(sdk, "name", ""), wanted, device->name, found);
}

static mllm_status check_soc(const mllm_json_value *block, const mllm_device *device,
                             mllm_error *error) {
  const mllm_json_value *chips = mllm_json_get(block, "soc");
  const char *found = device->soc == NULL ? "unknown" : device->soc;
  if (chips == NULL || chips->kind != MLLM_JSON_ARRAY || chips->count == 0) return MLLM_OK;
  const mllm_json_value *chip = mllm_json_first(chips);
  for (uint32_t i = 0; i < chips->count; i++, chip = mllm_json_next(chip))
    if (chip->kind == MLLM_JSON_STRING && strcmp(chip->text, found) == 0) return MLLM_OK;
  chip = mllm_json_first(chips);
  return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_INCOMPATIBLE,
                   "is for the chip %.40s, the device '%s' is %s",
                   chip->kind == MLLM_JSON_STRING ? chip->text : "", device->name, found);
}

static mllm_status check_device(const mllm_json_value *block, const mllm_device *device,
                                mllm_error *error) {
  mllm_status status = check_compatibility(block, error);
  if (status == MLLM_OK) status = check_sdk(block, device, error);
  if (status == MLLM_OK) status = check_soc(block, device, error);
  return status;
}

mllm_status mllm_bundle_check_device(const mllm_bundle *bundle, const mllm_device *device,
                                     mllm_error *error) {
  char name[96];
  size_t size = 0;
  (void)snprintf(name, sizeof name, "targets/%.64s/" MLLM_DEVICE_MEMBER, device->name);
  mllm_locate(error, name, NULL);
  const char *text = mllm_bundle_member(bundle, name, &size);
  if (text == NULL)
    return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_MANIFEST, "the bundle lacks it");
  mllm_json block;
  if (!mllm_json_parse(&block, text, size))
    return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_MANIFEST, "not JSON: %s at byte %zu",
                     block.fault, block.fault_at);
  const mllm_status status = check_device(block.values, device, error);
  mllm_json_free(&block);
  if (status == MLLM_OK) mllm_clear(error);
  return status;
}

/* The members in ascending order of their names, which canonical JSON need not be (UTF-16). */
static int by_name(const void *a, const void *b) {
  const mllm_member *left = a, *right = b;
  return strcmp(left->name, right->name);
}

static mllm_status list_members(mllm_bundle *bundle, const mllm_json_value *members,
                                mllm_error *error) {
  const mllm_json_value *key = mllm_json_first(members);
  for (uint32_t i = 0; i < members->count; i++) {
    const mllm_json_value *record = mllm_json_next(key);
    if (!is_inner_name(key->text) || !is_sound(record))
      return misread(error, "contradicts itself", key->text);
    const char *crc32 = mllm_json_text(record, "crc32", "");
    bundle->members[bundle->n_members++] =
        (mllm_member){.name = key->text,
                      .name_size = key->count,
                      .size = (uint64_t)mllm_json_int(record, "size", 0),
                      .crc32 = (uint32_t)strtoul(crc32, NULL, 16)};
    key = mllm_json_next(record);
  }
  qsort(bundle->members + bundle->n_first, members->count, sizeof(mllm_member), by_name);
  for (size_t i = bundle->n_first; i < bundle->n_members; i++)
    bundle->records[i] = mllm_json_get(members, bundle->members[i].name);
  mllm_zip_place(bundle->members, bundle->n_members);
  return MLLM_OK;
}

mllm_status mllm_bundle_read_manifest(mllm_bundle *bundle, const mllm_member *first, size_t n_first,
                                      mllm_error *error) {
  const char *text = (const char *)bundle->file.bytes + MLLM_ZIP_ALIGNMENT;
  if (!mllm_json_parse(&bundle->manifest, text, (size_t)first[0].size))
    return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_MANIFEST,
                     MLLM_MANIFEST ": not JSON: %s at byte %zu", bundle->manifest.fault,
                     bundle->manifest.fault_at);
  const mllm_json_value *manifest = bundle->manifest.values;
  mllm_status status = check_format(manifest, error);
  const mllm_json_value *block = mllm_json_get(manifest, "compatibility");
  if (status == MLLM_OK) status = check_compatibility(block, error);
  if (status != MLLM_OK) return status;
  const mllm_json_value *members = mllm_json_get(manifest, "members");
  if (members == NULL || members->kind != MLLM_JSON_OBJECT) return misread(error, "members", NULL);
  bundle->members = calloc(n_first + members->count, sizeof *bundle->members);
  bundle->records = calloc(n_first + members->count, sizeof *bundle->records);
  if (bundle->members == NULL || bundle->records == NULL)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for the manifest");
  memcpy(bundle->members, first, n_first * sizeof *first);
  bundle->n_first = bundle->n_members = n_first;
  return list_members(bundle, members, error);
}
