/* resize.c - f32_resize: read the lines of one axis at the points of another grid.
 *
 * A point between the grid is the sum of its neighbours, weighted by distance; borders repeat. */
#include <math.h>

#include "operands.h"

enum { GRAIN = 1 << 12, TAPS = 4 };

typedef struct job {
  const float *x; /* [outer, n, inner] */
  float *y;       /* [outer, m, inner] */
  size_t n, m, inner;
  int64_t mode, coordinates;
  double cubic_coeff, scale;
} job;

/* Where point i of the result lies on the axis of x. */
static double place_of(const job *j, size_t i) {
  const double at = (double)i;
  if (j->coordinates == MLLM_RESIZE_ASYMMETRIC) return at / j->scale;
  if (j->coordinates == MLLM_RESIZE_ALIGN_CORNERS) {
    return j->m > 1 ? at * (double)(j->n - 1) / (double)(j->m - 1) : 0.0;
  }
  if (j->coordinates == MLLM_RESIZE_PYTORCH_HALF_PIXEL && j->m == 1) return 0.0;
  return (at + 0.5) / j->scale - 0.5;
}

/* The kernel of Keys (1981). */
static double cubic(double distance, double a) {
  const double d = fabs(distance);
  if (d <= 1.0) return ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
  if (d >= 2.0) return 0.0;
  return ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
}

/* Neighbours of a point and their weights; how many there are. */
static size_t neighbours(const job *j, double at, size_t *index, float *weight) {
  const double last = (double)(j->n - 1);
  if (j->mode == MLLM_RESIZE_NEAREST) {
    index[0] = (size_t)fmin(fmax(ceil(at - 0.5), 0.0), last);
    weight[0] = 1.0F;
    return 1;
  }
  const bool wide = j->mode == MLLM_RESIZE_CUBIC;
  const double first = floor(at) - (wide ? 1.0 : 0.0);
  const size_t taps = wide ? 4 : 2;
  for (size_t t = 0; t < taps; t++) {
    const double place = first + (double)t;
    index[t] = (size_t)fmin(fmax(place, 0.0), last);
    weight[t] = (float)(wide ? cubic(at - place, j->cubic_coeff) : 1.0 - fabs(at - place));
  }
  return taps;
}

static void resize_rows(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  const job *j = argument;
  for (size_t row = begin; row < end; row++) {
    size_t index[TAPS];
    float weight[TAPS];
    const size_t taps = neighbours(j, place_of(j, row % j->m), index, weight);
    const float *x = j->x + row / j->m * j->n * j->inner;
    float *y = j->y + row * j->inner;
    for (size_t i = 0; i < j->inner; i++) {
      float sum = 0.0F;
      for (size_t t = 0; t < taps; t++) sum += weight[t] * x[index[t] * j->inner + i];
      y[i] = sum;
    }
  }
}

mllm_status mllm_k_f32_resize(const mllm_call *call) {
  const mllm_view *x = mllm_input(call, 0);
  if (call->n_in != 1 || call->n_out != 1 || call->n_params != 5) {
    return MLLM_REJECT(call, "f32_resize takes x, axis, mode, coordinates, coefficient and scale");
  }
  const mllm_view *y = &call->out[0];
  const int64_t axis = call->params[0];
  if (x->dtype != MLLM_F32 || y->dtype != MLLM_F32 || axis < 0 || axis >= (int64_t)x->rank ||
      x->rank != y->rank) {
    return MLLM_REJECT(call, "f32_resize: x and y are f32 of one rank, axis is one of x");
  }
  const uint32_t a = (uint32_t)axis;
  bool fits = mllm_same_leading(x, y, a);
  for (uint32_t i = a + 1; i < x->rank; i++) fits = fits && x->dims[i] == y->dims[i];
  job j = {.x = x->data,
           .y = y->data,
           .n = mllm_extent(x, a),
           .m = mllm_extent(y, a),
           .inner = mllm_product(x, a + 1, x->rank),
           .mode = call->params[1],
           .coordinates = call->params[2],
           .cubic_coeff = mllm_param_double(call->params[3]),
           .scale = mllm_param_double(call->params[4])};
  fits = fits && j.mode >= MLLM_RESIZE_NEAREST && j.mode <= MLLM_RESIZE_CUBIC &&
         j.coordinates >= MLLM_RESIZE_HALF_PIXEL &&
         j.coordinates <= MLLM_RESIZE_PYTORCH_HALF_PIXEL && isfinite(j.scale) && j.scale >= 0.0;
  if (!fits) return MLLM_REJECT(call, "f32_resize: y is x but along axis, params are known words");
  if (mllm_elements(y) == 0) return MLLM_OK;
  if (j.n == 0) return MLLM_REJECT(call, "f32_resize: x has no element along axis");
  if (j.scale == 0.0) j.scale = (double)j.m / (double)j.n;
  mllm_parallel_for(call->context->threads, mllm_product(x, 0, a) * j.m, GRAIN / j.inner + 1,
                    resize_rows, &j);
  return MLLM_OK;
}
