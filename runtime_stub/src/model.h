/* model.h - a checked program with its weights. */
#ifndef MLLM_MODEL_H
#define MLLM_MODEL_H

#include "../kernels/ops.h"
#include "devices.h"
#include "turns.h"

struct mllm_model {
  mllm_program program;
  const unsigned char *weights; /* [program.weight_bytes] the caller's */
  const mllm_ops *ops;
  mllm_devices devices;
  mllm_cache_info *caches; /* [caches] */
  mllm_turn_of_keys **turns; /* [caches] NULL: its keys have no turns that are known */
};

/* Creates a model; bundle may be NULL, and is what its devices open. */
mllm_status mllm_model_make(const void *program, size_t program_bytes, const void *weights,
                            size_t weight_bytes, const mllm_model_options *options,
                            const mllm_bundle *bundle, const mllm_device *devices, size_t n_devices,
                            mllm_model **model, mllm_error *error);

/* What the program says of a cache. */
mllm_cache_info mllm_model_cache_info(const mllm_model *model, uint32_t cache);

#endif /* MLLM_MODEL_H */
