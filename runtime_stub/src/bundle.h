/* The parts of an open bundle, and the steps of its verification. */
#ifndef MLLM_BUNDLE_H
#define MLLM_BUNDLE_H

#include "crypto.h"
#include "file.h"
#include "json.h"
#include "zip.h"

enum { MLLM_PIECE_BYTES = 1 << 20, MLLM_BUNDLE_FORMAT = 1 };

/* Of targets/NAME/: what the artifact for a device was made for. */
#define MLLM_DEVICE_MEMBER "device.json"

#define MLLM_CODE_UNSIGNED     "MLC-B005"
#define MLLM_CODE_UNTRUSTED    "MLC-B006"
#define MLLM_CODE_SIGNATURE    "MLC-B007"
#define MLLM_CODE_NEWER        "MLC-B008"
#define MLLM_CODE_INCOMPATIBLE "MLC-B009"
#define MLLM_CODE_NO_TARGET    "MLC-B010"
#define MLLM_CODE_TRUST_FILE   "MLC-B012"
#define MLLM_CODE_MANIFEST     "MLC-B013"
#define MLLM_CODE_NO_CRYPTO    "MLC-X020"

struct mllm_bundle {
  mllm_mapping file;
  mllm_json manifest;
  mllm_member *members;            /* in the order of the file */
  const mllm_json_value **records; /* what the manifest says of each; NULL for the first ones */
  size_t n_members;
  size_t n_first; /* manifest, and signature where there is one */
};

/* Finds manifest and signature, of which nothing is believed yet. first has room for two. */
mllm_status mllm_bundle_head(const mllm_mapping *file, mllm_member *first, size_t *n_first,
                             mllm_error *error);

/* Parses the manifest and lists all members, placed, as it wants them. bundle->members and
 * ->records are allocated here. */
mllm_status mllm_bundle_read_manifest(mllm_bundle *bundle, const mllm_member *first, size_t n_first,
                                      mllm_error *error);

/* Tells a missing or an extra member by name, where the central directory can be read. */
mllm_status mllm_bundle_check_names(const mllm_bundle *bundle, mllm_error *error);

/* Signature and trust. */
mllm_status mllm_bundle_check_signature(const mllm_bundle *bundle,
                                        const mllm_bundle_options *options, mllm_error *error);

/* Every piece of every member, in threads; names the first that was changed. */
mllm_status mllm_bundle_check_pieces(const mllm_bundle *bundle, uint32_t threads,
                                     mllm_error *error);

#endif
