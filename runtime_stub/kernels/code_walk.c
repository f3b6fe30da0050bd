/* code_walk.c - walking the elements of a tensor with their scales and zero points. */
#include "code_walk.h"

enum { PIECE = 4096 /* elements of a row that one item works on */ };

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static bool serves_all(const mllm_view *parameter) {
  for (uint32_t i = 0; i < parameter->rank; i++) {
    if (parameter->dims[i] != 1) return false;
  }
  return true;
}

/* The parameter's strides in the order of x; false where it does not repeat to x or its blocks. */
static bool read_strides(const mllm_view *x, const mllm_view *parameter, const mllm_code_walk *walk,
                         size_t *strides) {
  if (parameter->rank > x->rank) return false;
  size_t stride = 1;
  for (uint32_t i = x->rank; i-- > 0;) {
    const uint32_t missing = x->rank - parameter->rank;
    const size_t extent = i < missing ? 1 : mllm_extent(parameter, i - missing);
    const size_t own = mllm_extent(x, i);
    const size_t blocks = own / walk->block + (own % walk->block != 0);
    if (extent != 1 && extent != (i == walk->axis ? blocks : own)) return false;
    strides[i] = extent == 1 ? 0 : stride;
    stride *= extent;
  }
  return true;
}

bool mllm_code_walk_make(const mllm_view *x, const mllm_view *scale, const mllm_view *zero,
                         int64_t axis, int64_t block_size, mllm_code_walk *walk) {
  memset(walk, 0, sizeof *walk);
  if (axis < -1 || axis >= (int64_t)x->rank || (axis >= 0 && block_size < 1)) return false;
  walk->rank = x->rank;
  walk->axis = axis < 0 ? x->rank : (uint32_t)axis;
  walk->block = axis < 0 ? 1 : (size_t)block_size;
  if (serves_all(scale) && serves_all(zero)) {
    if (scale->rank > x->rank || zero->rank > x->rank) return false;
    walk->rank = walk->axis = 1;
    walk->extent[0] = mllm_elements(x);
  } else {
    for (uint32_t i = 0; i < x->rank; i++) walk->extent[i] = mllm_extent(x, i);
    if (!read_strides(x, scale, walk, walk->scale_stride)) return false;
    if (!read_strides(x, zero, walk, walk->zero_stride)) return false;
  }
  const size_t row = walk->extent[walk->rank - 1];
  walk->pieces = row / PIECE + (row % PIECE != 0);
  return true;
}

size_t mllm_code_walk_items(const mllm_code_walk *walk) {
  size_t rows = 1;
  for (uint32_t i = 0; i + 1 < walk->rank; i++) rows *= walk->extent[i];
  return rows * walk->pieces;
}

void mllm_code_walk_item(const mllm_code_walk *walk, size_t item,
                         void (*run)(const void *job, const mllm_code_run *run), const void *job) {
  const uint32_t last = walk->rank - 1;
  const bool in_blocks = walk->axis == last;
  const size_t row = item / walk->pieces;
  size_t at = item % walk->pieces * PIECE;
  const size_t end = smaller(at + PIECE, walk->extent[last]);
  size_t scale = 0;
  size_t zero = 0;
  size_t rest = row;
  for (uint32_t i = last; i-- > 0;) {
    const size_t place = rest % walk->extent[i] / (i == walk->axis ? walk->block : 1);
    rest /= walk->extent[i];
    scale += place * walk->scale_stride[i];
    zero += place * walk->zero_stride[i];
  }
  while (at < end) {
    const size_t place = in_blocks ? at / walk->block : at;
    const size_t stop = in_blocks ? smaller(end, (place + 1) * walk->block) : end;
    const mllm_code_run found = {.begin = row * walk->extent[last] + at,
                                 .count = stop - at,
                                 .scale = scale + place * walk->scale_stride[last],
                                 .scale_step = in_blocks ? 0 : walk->scale_stride[last],
                                 .zero = zero + place * walk->zero_stride[last],
                                 .zero_step = in_blocks ? 0 : walk->zero_stride[last]};
    run(job, &found);
    at = stop;
  }
}
