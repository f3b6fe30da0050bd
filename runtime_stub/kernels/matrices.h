/* matrices.h - matrices in the last two axes, whose leading axes broadcast. */
#ifndef MLLM_MATRICES_H
#define MLLM_MATRICES_H

#include "operands.h"

/* Where the matrix of x lies that goes with y's matrix `index`, counting over y's leading axes, in
 * matrices. */
static inline size_t mllm_matrix_of(const mllm_view *x, const mllm_view *y, size_t index) {
  size_t offset = 0;
  size_t stride = 1;
  for (uint32_t i = 0; i + 2 < y->rank; i++) {
    const uint32_t axis = y->rank - 3 - i;
    const size_t at = index % mllm_extent(y, axis);
    index /= mllm_extent(y, axis);
    if (i + 2 >= x->rank) continue;
    const size_t extent = mllm_extent(x, x->rank - 3 - i);
    if (extent != 1) offset += at * stride;
    stride *= extent;
  }
  return offset;
}

/* Leading dims of x broadcast to y's. */
static inline bool mllm_matrices_broadcast(const mllm_view *x, const mllm_view *y) {
  if (x->rank > y->rank) return false;
  for (uint32_t i = 3; i <= x->rank; i++) {
    const int64_t extent = x->dims[x->rank - i];
    if (extent != 1 && extent != y->dims[y->rank - i]) return false;
  }
  return true;
}

#endif /* MLLM_MATRICES_H */
