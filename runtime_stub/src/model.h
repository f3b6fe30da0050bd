/* model.h - a checked program with its weights. */
#ifndef MLLM_MODEL_H
#define MLLM_MODEL_H

#include "../kernels/ops.h"
#include "program.h"

struct mllm_model {
  mllm_program program;
  const unsigned char *weights; /* [program.weight_bytes] the caller's */
  const mllm_ops *ops;
};

/* The cache record as public info. */
mllm_cache_info mllm_model_cache_info(const mllm_model *model, uint32_t cache);

#endif /* MLLM_MODEL_H */
