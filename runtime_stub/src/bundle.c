/* Opening a bundle: in the order of docs/bundle.md, nothing is used before it is believed. */
#include "bundle.h"

#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "status.h"

static mllm_status verify(mllm_bundle *bundle, const mllm_bundle_options *options,
                          mllm_error *error) {
  mllm_member first[2];
  size_t n_first = 0;
  mllm_status status = mllm_bundle_head(&bundle->file, first, &n_first, error);
  if (status != MLLM_OK) return status;
  const bool believed = (options->flags & MLLM_ALREADY_VERIFIED) != 0;
  if (!believed && !mllm_crypto_available())
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_NO_CRYPTO,
                     "this build of the runtime has no libcrypto to verify a bundle with");
  bundle->members = first; /* enough for the signature, which comes before the rest is read */
  bundle->n_first = bundle->n_members = n_first;
  mllm_zip_place(first, n_first);
  if (!believed) status = mllm_bundle_check_signature(bundle, options, error);
  bundle->members = NULL;
  if (status == MLLM_OK) status = mllm_bundle_read_manifest(bundle, first, n_first, error);
  if (status != MLLM_OK) return status;
  if (bundle->file.size != mllm_zip_total(bundle->members, bundle->n_members))
    status = mllm_bundle_check_names(bundle, error);
  if (status != MLLM_OK) return status;
  status = mllm_zip_check(bundle->file.bytes, bundle->file.size, bundle->members, bundle->n_members,
                          error);
  if (status == MLLM_OK && !believed)
    status = mllm_bundle_check_pieces(bundle, options->threads, error);
  return status;
}

mllm_status mllm_bundle_open(const char *path, const mllm_bundle_options *options,
                             mllm_bundle **bundle, mllm_error *error) {
  static const mllm_bundle_options none = {0};
  *bundle = NULL;
  mllm_clear(error);
  mllm_bundle *opened = calloc(1, sizeof *opened);
  if (opened == NULL)
    return mllm_fail(error, MLLM_OUT_OF_MEMORY, MLLM_CODE_MEMORY, "no memory for a bundle");
  mllm_status status = mllm_map_file(path, &opened->file, error);
  if (status == MLLM_OK) {
    mllm_locate(error, path, NULL);
    status = verify(opened, options == NULL ? &none : options, error);
  }
  if (status != MLLM_OK) {
    mllm_bundle_close(opened);
    return status;
  }
  mllm_clear(error);
  *bundle = opened;
  return MLLM_OK;
}

void mllm_bundle_close(mllm_bundle *bundle) {
  if (bundle == NULL) return;
  mllm_json_free(&bundle->manifest);
  free(bundle->members);
  free(bundle->records);
  mllm_unmap(&bundle->file);
  free(bundle);
}

const void *mllm_bundle_member(const mllm_bundle *bundle, const char *name, size_t *bytes) {
  for (size_t i = 0; i < bundle->n_members; i++) {
    if (!mllm_zip_is(&bundle->members[i], name)) continue;
    *bytes = (size_t)bundle->members[i].size;
    return bundle->file.bytes + bundle->members[i].data;
  }
  *bytes = 0;
  return NULL;
}

mllm_status mllm_bundle_model(const mllm_bundle *bundle, const mllm_model_options *options,
                              mllm_model **model, mllm_error *error) {
  return mllm_bundle_model_on(bundle, options, NULL, 0, model, error);
}

mllm_status mllm_bundle_model_on(const mllm_bundle *bundle, const mllm_model_options *options,
                                 const mllm_device *devices, size_t n_devices, mllm_model **model,
                                 mllm_error *error) {
  static const uint8_t no_weights[64];
  size_t program_bytes, weight_bytes;
  *model = NULL;
  mllm_clear(error);
  const void *program = mllm_bundle_member(bundle, "targets/c/program.bin", &program_bytes);
  if (program == NULL)
    return mllm_fail(error, MLLM_UNSUPPORTED, MLLM_CODE_NO_TARGET, "has no target 'c'");
  const void *weights = mllm_bundle_member(bundle, "weights/c.bin", &weight_bytes);
  return mllm_model_make(program, program_bytes, weights == NULL ? no_weights : weights,
                         weight_bytes, options, bundle, devices, n_devices, model, error);
}
