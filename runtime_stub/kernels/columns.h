/* columns.h - products with several outputs, whose columns stand one behind another. */
#ifndef MLLM_COLUMNS_H
#define MLLM_COLUMNS_H

#include "operands.h"

static inline size_t mllm_columns_of(const mllm_view *y) { return mllm_extent(y, y->rank - 1); }

static inline size_t mllm_panels_of(size_t columns) {
  return columns / MLLM_PANEL + (columns % MLLM_PANEL != 0);
}

/* Each output is x with another last dimension; all but the last are whole panels, together n. */
static inline bool mllm_are_columns(const mllm_call *call, const mllm_view *x, int64_t n) {
  int64_t columns = 0;
  for (uint32_t i = 0; i < call->n_out; i++) {
    const mllm_view *y = &call->out[i];
    if (!mllm_is_f32(y, x->rank) || !mllm_same_leading(x, y, x->rank - 1)) return false;
    if (i + 1 < call->n_out && y->dims[x->rank - 1] % MLLM_PANEL != 0) return false;
    if (y->dims[x->rank - 1] > n - columns) return false;
    columns += y->dims[x->rank - 1];
  }
  return call->n_out > 0 && columns == n;
}

/* A panel's columns in the output that has them. */
typedef struct mllm_panel_place {
  float *y;      /* of row 0 */
  size_t stride; /* from row to row */
  size_t width;  /* 1..16 */
} mllm_panel_place;

static inline mllm_panel_place mllm_place_of(const mllm_view *out, size_t panel) {
  for (; panel >= mllm_panels_of(mllm_columns_of(out)); out++) {
    panel -= mllm_panels_of(mllm_columns_of(out));
  }
  const size_t columns = mllm_columns_of(out);
  const size_t left = columns - panel * MLLM_PANEL;
  return (mllm_panel_place){.y = (float *)out->data + panel * MLLM_PANEL,
                            .stride = columns,
                            .width = left < MLLM_PANEL ? left : MLLM_PANEL};
}

#endif /* MLLM_COLUMNS_H */
