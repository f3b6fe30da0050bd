/* code_walk.h - which scale and zero point belong to which element of a tensor.
 *
 * Both are repeated to the tensor by NumPy's rule; along `axis`, where there is one, each serves
 * block_size elements. */
#ifndef MLLM_CODE_WALK_H
#define MLLM_CODE_WALK_H

#include "operands.h"

typedef struct mllm_code_walk {
  uint32_t rank; /* one axis where one scale and one zero point serve all */
  uint32_t axis; /* in blocks; rank: none */
  size_t block;
  size_t extent[MLLM_MAX_RANK];
  size_t scale_stride[MLLM_MAX_RANK];
  size_t zero_stride[MLLM_MAX_RANK];
  size_t pieces; /* of a row, the last axis */
} mllm_code_walk;

/* Elements begin.. whose scales and zero points are a step, 0 or 1, apart. */
typedef struct mllm_code_run {
  size_t begin;
  size_t count;
  size_t scale;
  size_t scale_step;
  size_t zero;
  size_t zero_step;
} mllm_code_run;

/* axis -1: no blocks; zero may be absent. False where the shapes do not fit. */
bool mllm_code_walk_make(const mllm_view *x, const mllm_view *scale, const mllm_view *zero,
                         int64_t axis, int64_t block_size, mllm_code_walk *walk);

/* Items of a parallel loop, and the runs of one of them. */
size_t mllm_code_walk_items(const mllm_code_walk *walk);
void mllm_code_walk_item(const mllm_code_walk *walk, size_t item,
                         void (*run)(const void *job, const mllm_code_run *run), const void *job);

/* An integer of at most 32 bits. */
static inline int64_t mllm_integer_at(const mllm_view *x, size_t i) {
  switch (x->dtype) {
    case MLLM_I8: return ((const int8_t *)x->data)[i];
    case MLLM_U8: return ((const uint8_t *)x->data)[i];
    case MLLM_I16: return ((const int16_t *)x->data)[i];
    case MLLM_U16: return ((const uint16_t *)x->data)[i];
    case MLLM_I32: return ((const int32_t *)x->data)[i];
    default: return 0;
  }
}

#endif /* MLLM_CODE_WALK_H */
