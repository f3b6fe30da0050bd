/* strided.h - copying elements of any size from a strided operand to a dense result. */
#ifndef MLLM_STRIDED_H
#define MLLM_STRIDED_H

#include "operands.h"

/* y[extent...] dense; the element at (i, j, ...) comes from x + i * stride[0] + j * stride[1] ...,
 * strides in elements, possibly 0 or negative. Axes of extent 1 need no stride. */
typedef struct mllm_strided {
  uint32_t rank;
  size_t extent[MLLM_MAX_RANK];
  ptrdiff_t stride[MLLM_MAX_RANK];
  const unsigned char *x;
  unsigned char *y;
  size_t element; /* bytes: 1, 2, 4 or 8 */
} mllm_strided;

void mllm_strided_copy(mllm_context *context, const mllm_strided *copy);

/* stride[rank] of a dense tensor, in elements. */
static inline void mllm_dense_strides(const mllm_view *view, ptrdiff_t *stride) {
  ptrdiff_t next = 1;
  for (uint32_t i = view->rank; i-- > 0;) {
    stride[i] = next;
    next *= (ptrdiff_t)view->dims[i];
  }
}

#endif /* MLLM_STRIDED_H */
