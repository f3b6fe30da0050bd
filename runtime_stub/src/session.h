/* session.h - a session's memory. */
#ifndef MLLM_SESSION_H
#define MLLM_SESSION_H

#include "arena.h"
#include "context.h"
#include "dims.h"
#include "model.h"
#include "padding.h"

/* A tensor with a default place in the arena, and the shape that was last written there. */
typedef struct mllm_slot {
  uint32_t tensor;
  uint32_t rank;
  uint64_t written; /* number of the run that wrote it; 0: never */
  int64_t dims[MLLM_MAX_RANK];
} mllm_slot;

struct mllm_session {
  const mllm_model *model;
  mllm_context *context;
  mllm_arena arena;
  mllm_dims dims;
  void **bound;     /* [tensors] memory of io tensors in the present run, else NULL */
  mllm_slot *slots; /* [n_slots] */
  uint32_t n_slots;
  uint64_t runs;
  mllm_view *views; /* [program.max_operands] */
  int64_t *params;  /* [program.max_params] */
  mllm_tensor *tensors; /* [program.max_operands] what a device is called with */
  mllm_counters counters;
  mllm_padding padding;
  uint64_t bytes;
};

#endif /* MLLM_SESSION_H */
