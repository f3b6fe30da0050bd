/* broadcast_walk.h - walking operands of different shapes in the order of the result. */
#ifndef MLLM_BROADCAST_WALK_H
#define MLLM_BROADCAST_WALK_H

#include "operands.h"

/* Where an operand's elements lie for a result of `rank` axes; stride 0 repeats an axis. */
typedef struct mllm_walk {
  uint32_t rank;
  size_t extent[MLLM_MAX_RANK]; /* of the result */
  size_t stride[MLLM_MAX_RANK]; /* of the operand, elements */
} mllm_walk;

/* The operand's element for the result's element `index`; *run of them follow at stride[rank - 1].
 */
static inline size_t mllm_walk_at(const mllm_walk *walk, size_t index, size_t *run) {
  size_t offset = 0;
  *run = 1;
  for (uint32_t i = walk->rank; i-- > 0;) {
    const size_t at = index % walk->extent[i];
    index /= walk->extent[i];
    offset += at * walk->stride[i];
    if (i + 1 == walk->rank) *run = walk->extent[i] - at;
  }
  return offset;
}

static inline size_t mllm_walk_step(const mllm_walk *walk) {
  return walk->rank == 0 ? 0 : walk->stride[walk->rank - 1];
}

/* Lets `from` be read in the order of `to`, by NumPy's rule; axes that can be walked as one become
 * one. False where the shapes do not broadcast. */
static inline bool mllm_walk_make(const mllm_view *from, const mllm_view *to, mllm_walk *walk) {
  if (from->rank > to->rank) return false;
  size_t strides[MLLM_MAX_RANK];
  size_t stride = 1;
  for (uint32_t i = to->rank; i-- > 0;) {
    const uint32_t missing = to->rank - from->rank;
    const int64_t extent = i < missing ? 1 : from->dims[i - missing];
    if (extent != 1 && extent != to->dims[i]) return false;
    strides[i] = extent == 1 ? 0 : stride;
    stride *= (size_t)extent;
  }
  walk->rank = 0;
  for (uint32_t i = 0; i < to->rank; i++) {
    const size_t extent = (size_t)to->dims[i];
    if (extent == 1) continue;
    const uint32_t last = walk->rank - 1;
    if (walk->rank > 0 && walk->stride[last] == strides[i] * extent) {
      walk->extent[last] *= extent;
      walk->stride[last] = strides[i];
      continue;
    }
    walk->extent[walk->rank] = extent;
    walk->stride[walk->rank++] = strides[i];
  }
  return true;
}

/* The operand is read front to back, each element once. */
static inline bool mllm_walk_is_dense(const mllm_walk *walk) {
  return walk->rank == 0 || (walk->rank == 1 && walk->stride[0] == 1);
}

#endif /* MLLM_BROADCAST_WALK_H */
