/* window.c - where a moving window meets its input. */
#include "window.h"

enum { LARGEST = 1 << 28 }; /* keeps every sum and product of the geometry inside an int64 */

static bool in_range(int64_t value, int64_t low) { return value >= low && value <= LARGEST; }

bool mllm_window_make(const mllm_view *x, const mllm_view *y, const mllm_array *kernel,
                      const mllm_array *strides, const mllm_array *pads,
                      const mllm_array *dilations, mllm_window *w) {
  if (x->rank < 3 || y->rank != x->rank) return false;
  w->rank = x->rank - 2;
  w->kernel_area = 1;
  if (kernel->count != w->rank || strides->count != w->rank || pads->count != 2 * w->rank) {
    return false;
  }
  if (dilations != NULL && dilations->count != w->rank) return false;
  for (uint32_t i = 0; i < w->rank; i++) {
    w->in[i] = x->dims[2 + i];
    w->out[i] = y->dims[2 + i];
    w->kernel[i] = kernel->values[i];
    w->stride[i] = strides->values[i];
    w->before[i] = pads->values[i];
    w->behind[i] = pads->values[w->rank + i];
    w->dilation[i] = dilations == NULL ? 1 : dilations->values[i];
    if (!in_range(w->in[i], 0) || !in_range(w->out[i], 0) || !in_range(w->kernel[i], 1) ||
        !in_range(w->stride[i], 1) || !in_range(w->before[i], -LARGEST) ||
        !in_range(w->behind[i], -LARGEST) || !in_range(w->dilation[i], 1) ||
        __builtin_mul_overflow(w->kernel_area, (size_t)w->kernel[i], &w->kernel_area)) {
      return false;
    }
  }
  w->in_area = mllm_product(x, 2, x->rank);
  w->out_area = mllm_product(y, 2, y->rank);
  return w->kernel_area <= LARGEST;
}

void mllm_window_place(size_t index, const int64_t *extent, uint32_t rank, int64_t *place) {
  for (uint32_t i = rank; i-- > 0;) {
    place[i] = (int64_t)(index % (size_t)extent[i]);
    index /= (size_t)extent[i];
  }
}

bool mllm_window_row(const mllm_window *w, const int64_t *place, const int64_t *tap,
                     size_t *offset) {
  size_t row = 0;
  for (uint32_t i = 0; i + 1 < w->rank; i++) {
    const int64_t at = place[i] * w->stride[i] + tap[i] * w->dilation[i] - w->before[i];
    if (at < 0 || at >= w->in[i]) return false;
    row = row * (size_t)w->in[i] + (size_t)at;
  }
  *offset = row * (size_t)w->in[w->rank - 1];
  return true;
}

void mllm_window_span(const mllm_window *w, int64_t tap, int64_t begin, int64_t limit,
                      int64_t *first, int64_t *end, int64_t *shift) {
  const uint32_t last = w->rank - 1;
  const int64_t stride = w->stride[last];
  *shift = tap * w->dilation[last] - w->before[last];
  /* 0 <= output * stride + shift < in */
  const int64_t low = *shift >= 0 ? 0 : (-*shift + stride - 1) / stride;
  const int64_t room = w->in[last] - *shift;
  const int64_t high = room <= 0 ? 0 : (room + stride - 1) / stride;
  *first = low > begin ? low : begin;
  *end = high < limit ? high : limit;
  if (*end < *first) *end = *first;
}

bool mllm_window_next(mllm_window_walk *walk) {
  const mllm_window *w = walk->window;
  const uint32_t last = w->rank - 1;
  for (; walk->pixel < w->out_area; walk->pixel += (size_t)w->out[last], walk->next = 0) {
    int64_t place[MLLM_SPATIAL];
    mllm_window_place(walk->pixel, w->out, w->rank, place);
    while (walk->next < walk->taps) {
      int64_t tap[MLLM_SPATIAL];
      size_t offset = 0;
      walk->tap = walk->next++;
      mllm_window_place(walk->tap % w->kernel_area, w->kernel, w->rank, tap);
      if (!mllm_window_row(w, place, tap, &offset)) continue;
      int64_t first = 0;
      int64_t end = 0;
      int64_t shift = 0;
      mllm_window_span(w, tap[last], 0, w->out[last], &first, &end, &shift);
      if (first == end) continue;
      walk->y = walk->pixel + (size_t)first;
      walk->x = walk->tap / w->kernel_area * w->in_area + offset +
                (size_t)(first * w->stride[last] + shift);
      walk->count = (size_t)(end - first);
      return true;
    }
  }
  return false;
}
