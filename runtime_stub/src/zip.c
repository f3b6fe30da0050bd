#include "zip.h"

#include <string.h>

#include "status.h"

enum { LOCAL = 30, EXTRA = 4, CENTRAL = 46, END = 22 };
enum { LOCAL_MAGIC = 0x04034B50, CENTRAL_MAGIC = 0x02014B50, END_MAGIC = 0x06054B50 };
enum { EXTRA_ID = 0x4D4C, VERSION = 20, FLAGS = 0x0800, DOS_DATE = 0x0021 };

static uint32_t read16(const uint8_t *at) { return (uint32_t)at[0] | (uint32_t)at[1] << 8; }

static uint32_t read32(const uint8_t *at) { return read16(at) | read16(at + 2) << 16; }

static uint8_t *put16(uint8_t *at, uint64_t value) {
  at[0] = (uint8_t)value;
  at[1] = (uint8_t)(value >> 8);
  return at + 2;
}

static uint8_t *put32(uint8_t *at, uint64_t value) { return put16(put16(at, value), value >> 16); }

bool mllm_zip_is(const mllm_member *claim, const char *name) {
  return claim->name_size == strlen(name) && memcmp(claim->name, name, claim->name_size) == 0;
}

uint64_t mllm_zip_place(mllm_member *members, size_t count) {
  uint64_t at = 0;
  for (size_t i = 0; i < count; i++) {
    members[i].header = at;
    const uint64_t head = at + LOCAL + members[i].name_size + EXTRA;
    members[i].data = (head + MLLM_ZIP_ALIGNMENT - 1) / MLLM_ZIP_ALIGNMENT * MLLM_ZIP_ALIGNMENT;
    at = members[i].data + members[i].size;
  }
  return at;
}

uint64_t mllm_zip_total(const mllm_member *members, size_t count) {
  uint64_t total = members[count - 1].data + members[count - 1].size + END;
  for (size_t i = 0; i < count; i++) total += CENTRAL + members[i].name_size;
  return total;
}

bool mllm_zip_local(const uint8_t *bytes, size_t size, uint64_t at, mllm_member *claim) {
  if (at > size || size - at < LOCAL) return false;
  const uint8_t *head = bytes + at;
  const size_t left = size - (size_t)at - LOCAL, name_size = read16(head + 26);
  *claim = (mllm_member){.name = (const char *)head + LOCAL,
                         .name_size = name_size < left ? name_size : left,
                         .size = read32(head + 22),
                         .crc32 = read32(head + 14)};
  const bool known = mllm_zip_is(claim, MLLM_MANIFEST) || mllm_zip_is(claim, MLLM_SIGNATURE);
  return read32(head) == LOCAL_MAGIC || known;
}

size_t mllm_zip_listed(const uint8_t *bytes, size_t size, uint64_t *start) {
  if (size < END) return 0;
  const uint8_t *end = bytes + size - END;
  const uint64_t length = read32(end + 12), offset = read32(end + 16);
  if (read32(end) != END_MAGIC || offset + length != size - END) return 0;
  mllm_member claim;
  uint64_t at = offset;
  const size_t count = read16(end + 10);
  for (size_t i = 0; i < count; i++)
    if (!mllm_zip_next(bytes, size, &at, &claim)) return 0;
  *start = offset;
  return at == offset + length ? count : 0;
}

bool mllm_zip_next(const uint8_t *bytes, size_t size, uint64_t *at, mllm_member *claim) {
  const uint64_t limit = size - END;
  if (*at > limit || limit - *at < CENTRAL) return false;
  const uint8_t *entry = bytes + *at;
  const size_t name_size = read16(entry + 28);
  if (limit - *at - CENTRAL < name_size) return false;
  *claim = (mllm_member){.name = (const char *)entry + CENTRAL,
                         .name_size = name_size,
                         .size = read32(entry + 24),
                         .crc32 = read32(entry + 16)};
  *at += CENTRAL + name_size;
  return true;
}

/* Version needed to name length, which both headers of a member share. */
static uint8_t *put_facts(uint8_t *at, const mllm_member *member) {
  at = put16(put16(put16(put16(put16(at, VERSION), FLAGS), 0), 0), DOS_DATE);
  at = put32(put32(put32(at, member->crc32), member->size), member->size);
  return put16(at, member->name_size);
}

static bool same(const uint8_t *bytes, size_t size, uint64_t at, const void *expected, size_t n) {
  return at <= size && size - at >= n && memcmp(bytes + at, expected, n) == 0;
}

static bool zeros(const uint8_t *bytes, size_t size, uint64_t at, uint64_t end) {
  if (end > size) return false;
  while (at < end)
    if (bytes[at++] != 0) return false;
  return true;
}

static bool same_local(const uint8_t *bytes, size_t size, const mllm_member *member) {
  uint8_t head[LOCAL], extra[EXTRA];
  const uint64_t name = member->header + LOCAL, body = name + member->name_size + EXTRA;
  const uint64_t padding = member->data - body;
  put16(put_facts(put32(head, LOCAL_MAGIC), member), padding + EXTRA);
  put16(put16(extra, EXTRA_ID), padding);
  return same(bytes, size, member->header, head, LOCAL) &&
         same(bytes, size, name, member->name, member->name_size) &&
         same(bytes, size, body - EXTRA, extra, EXTRA);
}

static bool same_central(const uint8_t *bytes, size_t size, uint64_t at,
                         const mllm_member *member) {
  uint8_t entry[CENTRAL] = {0};
  put_facts(put16(put32(entry, CENTRAL_MAGIC), VERSION), member);
  put32(entry + CENTRAL - 4, member->header);
  return same(bytes, size, at, entry, CENTRAL) &&
         same(bytes, size, at + CENTRAL, member->name, member->name_size);
}

/* A region that differs: `kind` names it, with the member's name where it belongs to one. */
static mllm_status broken(mllm_error *error, const char *kind, const mllm_member *member,
                          size_t size, uint64_t end, uint64_t total) {
  const int name_size = member == NULL ? 0 : (int)member->name_size;
  const char *name = member == NULL ? "" : member->name, *quote = member == NULL ? "" : "'";
  if (size >= end)
    return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_LAYOUT, "%s%s%.*s%s was changed", kind, quote,
                     name_size, name, quote);
  return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_LAYOUT,
                   "the file ends inside %s%s%.*s%s: %zu bytes of %llu", kind, quote, name_size,
                   name, quote, size, (unsigned long long)total);
}

static mllm_status check_member(const uint8_t *bytes, size_t size, const mllm_member *member,
                                uint64_t total, mllm_error *error) {
  const uint64_t head_end = member->header + LOCAL + member->name_size + EXTRA;
  const uint64_t end = member->data + member->size;
  if (!same_local(bytes, size, member))
    return broken(error, "local header of member ", member, size, head_end, total);
  if (!zeros(bytes, size, head_end, member->data))
    return broken(error, "padding before member ", member, size, member->data, total);
  return size >= end ? MLLM_OK : broken(error, "member ", member, size, end, total);
}

mllm_status mllm_zip_check(const uint8_t *bytes, size_t size, const mllm_member *members,
                           size_t count, mllm_error *error) {
  const uint64_t total = mllm_zip_total(members, count);
  for (size_t i = 0; i < count; i++) {
    const mllm_status status = check_member(bytes, size, &members[i], total, error);
    if (status != MLLM_OK) return status;
  }
  const uint64_t start = members[count - 1].data + members[count - 1].size;
  uint64_t at = start;
  for (size_t i = 0; i < count; i++) {
    if (!same_central(bytes, size, at, &members[i]))
      return broken(error, "central directory", NULL, size, total - END, total);
    at += CENTRAL + members[i].name_size;
  }
  uint8_t end[END] = {0};
  put16(put16(put32(end, END_MAGIC) + 4, count), count);
  put32(put32(end + 12, at - start), start);
  if (!same(bytes, size, at, end, END))
    return broken(error, "end record", NULL, size, total, total);
  if (size == total) return MLLM_OK;
  return mllm_fail(error, MLLM_CORRUPT, MLLM_CODE_LAYOUT, "%llu bytes follow the end record",
                   (unsigned long long)(size - total));
}
