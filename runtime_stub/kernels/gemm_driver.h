/* gemm_driver.h - a whole matrix product out of tiles, split over threads. */
#ifndef MLLM_GEMM_DRIVER_H
#define MLLM_GEMM_DRIVER_H

#include "../src/context.h"
#include "ops.h"

/* Writes packed[depth, tile_rows] for rows row.. (count of them, at most tile_rows; zeros for the
 * rest) and k.. of the left operand. Convolutions gather their windows here. */
typedef void (*mllm_pack_fn)(const void *source, const mllm_gemm_ops *ops, float *packed,
                             size_t row, size_t count, size_t k, size_t depth);

/* c[rows, columns] = activation(a b + bias) */
typedef struct mllm_gemm {
  size_t rows;
  size_t depth;
  size_t columns;
  mllm_pack_fn pack;
  const void *source;  /* the left operand, for pack */
  const float *b;      /* [ceil(columns / 16), depth, 16] */
  const mllm_codes *codes; /* what b is instead, unpacked a tile at a time; or NULL */
  size_t panel;            /* of codes, the first of b */
  const float *bias;   /* [columns] or NULL */
  uint32_t activation; /* mllm_activation */
  float *c;
  size_t c_stride;
} mllm_gemm;

void mllm_gemm_run(mllm_context *context, const mllm_gemm *gemm);

/* A dense left operand [rows, depth] and its pack function. */
typedef struct mllm_dense {
  const float *x;
  size_t stride;
} mllm_dense;
void mllm_pack_dense(const void *source, const mllm_gemm_ops *ops, float *packed, size_t row,
                     size_t count, size_t k, size_t depth);

/* NULL for MLLM_ACTIVATION_NONE. */
mllm_unary_fn mllm_activation_fn(const mllm_ops *ops, uint32_t activation);

#endif /* MLLM_GEMM_DRIVER_H */
