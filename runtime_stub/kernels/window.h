/* window.h - the geometry of a window that moves over the spatial axes of [B, C, *spatial]. */
#ifndef MLLM_WINDOW_H
#define MLLM_WINDOW_H

#include "operands.h"

enum { MLLM_SPATIAL = MLLM_MAX_RANK - 2 };

typedef struct mllm_window {
  uint32_t rank; /* spatial axes */
  int64_t in[MLLM_SPATIAL];
  int64_t out[MLLM_SPATIAL];
  int64_t kernel[MLLM_SPATIAL];
  int64_t stride[MLLM_SPATIAL];
  int64_t before[MLLM_SPATIAL]; /* padding */
  int64_t behind[MLLM_SPATIAL];
  int64_t dilation[MLLM_SPATIAL];
  size_t in_area; /* products */
  size_t out_area;
  size_t kernel_area;
} mllm_window;

/* Fills the window from x [B, C, *in] to y [B, O, *out]; dilations may be NULL. False where an
 * array has a wrong length or a value that would overflow. */
bool mllm_window_make(const mllm_view *x, const mllm_view *y, const mllm_array *kernel,
                      const mllm_array *strides, const mllm_array *pads,
                      const mllm_array *dilations, mllm_window *window);

/* Splits an index over extent[rank] into its coordinates. */
void mllm_window_place(size_t index, const int64_t *extent, uint32_t rank, int64_t *place);

/* The offset in one channel of x of output `place` (its last coordinate counts as 0) at kernel
 * `tap`, for all axes but the last; false where that row lies in the padding. */
bool mllm_window_row(const mllm_window *window, const int64_t *place, const int64_t *tap,
                     size_t *offset);

/* Along the last axis at kernel coordinate `tap`: outputs [*first, *end) within [begin, limit)
 * whose input lies inside; input = output * stride + *shift. */
void mllm_window_span(const mllm_window *window, int64_t tap, int64_t begin, int64_t limit,
                      int64_t *first, int64_t *end, int64_t *shift);

/* Steps over what one filter reads of one image: for each row of outputs and each tap a run of
 * outputs y.. whose inputs x, x + stride, .. lie inside; offsets count from the filter's outputs and
 * from its first channel. Begins as {.window, .taps}. */
typedef struct mllm_window_walk {
  const mllm_window *window;
  size_t taps;  /* the filter's channels times kernel_area */
  size_t pixel; /* where the row of outputs begins */
  size_t next;  /* tap */
  size_t tap, y, x, count;
} mllm_window_walk;

bool mllm_window_next(mllm_window_walk *walk);

#endif /* MLLM_WINDOW_H */
