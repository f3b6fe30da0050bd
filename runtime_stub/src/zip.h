/* The one layout that an archive may have (docs/bundle.md): computed, then compared byte by byte.
 */
#ifndef MLLM_ZIP_H
#define MLLM_ZIP_H

#include <stdbool.h>

#include "mllm.h"

enum { MLLM_ZIP_ALIGNMENT = 4096 };

#define MLLM_CODE_LAYOUT  "MLC-B001"
#define MLLM_CODE_MISSING "MLC-B002"
#define MLLM_CODE_EXTRA   "MLC-B003"
#define MLLM_CODE_CHANGED "MLC-B004"
#define MLLM_MANIFEST     "manifest.json"
#define MLLM_SIGNATURE    "signature"

/* A member: name, size and checksum say where everything lies. */
typedef struct mllm_member {
  const char *name; /* not NUL-terminated where it was read from a header */
  size_t name_size;
  uint64_t size;
  uint32_t crc32;
  uint64_t header; /* filled in by mllm_zip_place */
  uint64_t data;
} mllm_member;

/* Fills in where each member lies; the answer is the first byte behind the last one. */
uint64_t mllm_zip_place(mllm_member *members, size_t count);

/* The size of the whole archive; members are placed, there is at least one. */
uint64_t mllm_zip_total(const mllm_member *members, size_t count);

/* What the local header at `at` claims; false where there is none. */
bool mllm_zip_local(const uint8_t *bytes, size_t size, uint64_t at, mllm_member *claim);

/* The number of members that the central directory claims and its first byte; 0: unreadable. */
size_t mllm_zip_listed(const uint8_t *bytes, size_t size, uint64_t *start);
/* The claim at *at, which moves to the next one; false behind the last one. */
bool mllm_zip_next(const uint8_t *bytes, size_t size, uint64_t *at, mllm_member *claim);

/* Compares every byte outside of the members with the layout; names the first region that
 * differs. Members are placed. */
mllm_status mllm_zip_check(const uint8_t *bytes, size_t size, const mllm_member *members,
                           size_t count, mllm_error *error);

/* Whether a claim's name is `name`. */
bool mllm_zip_is(const mllm_member *claim, const char *name);

#endif
