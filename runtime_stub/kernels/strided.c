/* strided.c - the copy behind transpose, slice, broadcast and concat.
 *
 * Axes that lie together become one. Rows that are dense in x are moved whole; where another axis
 * is dense in x, as in a transpose, 16 x 16 blocks keep both sides within a few cache lines. */
#include "strided.h"

enum { BLOCK = 16, GRAIN_BYTES = 1 << 14 };

typedef struct job {
  mllm_strided copy;
  uint32_t dense; /* axis with stride 1 in x, or rank */
  size_t y_stride[MLLM_MAX_RANK];
  size_t outer[MLLM_MAX_RANK]; /* extents of the axes that items count; 1 for the others */
} job;

/* Copies n elements, x_step and y_step apart. */
static void copy_elements(unsigned char *y, ptrdiff_t y_step, const unsigned char *x,
                          ptrdiff_t x_step, size_t n, size_t element) {
#define BY(type)                                                                   \
  for (ptrdiff_t i = 0; i < (ptrdiff_t)n; i++)                                     \
    ((type *)(void *)y)[i * y_step] = ((const type *)(const void *)x)[i * x_step]; \
  return
  switch (element) {
    case 1: BY(uint8_t);
    case 2: BY(uint16_t);
    case 4: BY(uint32_t);
    default: BY(uint64_t);
  }
#undef BY
}

static void copy_row(const job *j, unsigned char *y, const unsigned char *x) {
  const uint32_t last = j->copy.rank - 1;
  if (j->copy.stride[last] == 1) {
    memmove(y, x, j->copy.extent[last] * j->copy.element);
    return;
  }
  copy_elements(y, 1, x, j->copy.stride[last], j->copy.extent[last], j->copy.element);
}

/* All of the last axis and of the axis that is dense in x. */
static void copy_blocks(const job *j, unsigned char *y, const unsigned char *x) {
  const uint32_t last = j->copy.rank - 1;
  const size_t size = j->copy.element;
  const size_t columns = j->copy.extent[last];
  const size_t rows = j->copy.extent[j->dense];
  const ptrdiff_t y_row = (ptrdiff_t)j->y_stride[j->dense];
  for (size_t r = 0; r < rows; r += BLOCK) {
    const size_t height = rows - r < BLOCK ? rows - r : BLOCK;
    for (size_t c = 0; c < columns; c += BLOCK) {
      const size_t width = columns - c < BLOCK ? columns - c : BLOCK;
      for (size_t i = 0; i < width; i++) {
        const ptrdiff_t from = (ptrdiff_t)(c + i) * j->copy.stride[last] + (ptrdiff_t)r;
        copy_elements(y + (r * (size_t)y_row + c + i) * size, y_row, x + from * (ptrdiff_t)size, 1,
                      height, size);
      }
    }
  }
}

static void copy_items(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  const job *j = argument;
  for (size_t item = begin; item < end; item++) {
    ptrdiff_t from = 0;
    size_t to = 0;
    size_t rest = item;
    for (uint32_t i = j->copy.rank; i-- > 0;) {
      const size_t at = rest % j->outer[i];
      rest /= j->outer[i];
      from += (ptrdiff_t)at * j->copy.stride[i];
      to += at * j->y_stride[i];
    }
    unsigned char *y = j->copy.y + to * j->copy.element;
    const unsigned char *x = j->copy.x + from * (ptrdiff_t)j->copy.element;
    if (j->dense < j->copy.rank) {
      copy_blocks(j, y, x);
    } else {
      copy_row(j, y, x);
    }
  }
}

/* Leaves out axes of extent 1 and joins those that lie together; at least one axis stays. */
static void simplify(mllm_strided *copy) {
  uint32_t rank = 0;
  for (uint32_t i = 0; i < copy->rank; i++) {
    const size_t extent = copy->extent[i];
    const ptrdiff_t stride = copy->stride[i];
    if (extent == 1) continue;
    if (rank > 0 && copy->stride[rank - 1] == stride * (ptrdiff_t)extent) {
      copy->extent[rank - 1] *= extent;
      copy->stride[rank - 1] = stride;
      continue;
    }
    copy->extent[rank] = extent;
    copy->stride[rank++] = stride;
  }
  if (rank == 0) {
    copy->extent[0] = 1;
    copy->stride[0] = 1;
    rank = 1;
  }
  copy->rank = rank;
}

void mllm_strided_copy(mllm_context *context, const mllm_strided *copy) {
  for (uint32_t i = 0; i < copy->rank; i++) {
    if (copy->extent[i] == 0) return;
  }
  job j = {.copy = *copy};
  simplify(&j.copy);
  const uint32_t last = j.copy.rank - 1;
  size_t stride = 1;
  size_t items = 1;
  j.dense = j.copy.rank;
  for (uint32_t i = j.copy.rank; i-- > 0;) {
    j.y_stride[i] = stride;
    stride *= j.copy.extent[i];
    if (j.copy.stride[last] != 1 && i != last && j.copy.stride[i] == 1) j.dense = i;
  }
  for (uint32_t i = 0; i < j.copy.rank; i++) {
    j.outer[i] = i == last || i == j.dense ? 1 : j.copy.extent[i];
    items *= j.outer[i];
  }
  const size_t bytes = stride / items * j.copy.element;
  mllm_parallel_for(context->threads, items, GRAIN_BYTES / bytes + 1, copy_items, &j);
}
