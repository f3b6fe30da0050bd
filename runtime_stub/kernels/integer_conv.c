/* integer_conv.c - a convolution of codes less their zero points, to i32; padding adds nothing.
 *
 * An item is one filter of one image. Sums that leave 32 bits wrap around. */
#include "code_operands.h"
#include "window.h"

typedef struct job {
  mllm_window window;
  const mllm_view *x; /* [batch, channels, *in] */
  const mllm_view *w; /* [filters, channels / groups, *kernel] */
  const mllm_view *w_zero;
  int32_t x_zero;
  uint32_t *y; /* [batch, filters, *out] */
  size_t channels, filters, groups;
  size_t depth; /* channels / groups * kernel_area */
} job;

/* y[o] += weight (x[o stride] - zero) */
static void add_row(uint32_t *y, const mllm_view *x, size_t begin, size_t count, size_t stride,
                    int32_t weight, int32_t zero) {
  if (x->dtype == MLLM_I8) {
    const int8_t *codes = (const int8_t *)x->data + begin;
    for (size_t o = 0; o < count; o++) y[o] += (uint32_t)(weight * (codes[o * stride] - zero));
    return;
  }
  const uint8_t *codes = (const uint8_t *)x->data + begin;
  for (size_t o = 0; o < count; o++) y[o] += (uint32_t)(weight * (codes[o * stride] - zero));
}

static int32_t weight_at(const job *j, size_t filter, size_t k) {
  const int32_t code = mllm_byte_at(j->w, filter * j->depth + k);
  if (!mllm_is_present(j->w_zero)) return code;
  return code - mllm_byte_at(j->w_zero, j->w_zero->rank == 0 ? 0 : filter);
}

static void convolve_filter(const job *j, size_t item) {
  const mllm_window *w = &j->window;
  const size_t filter = item % j->filters;
  const size_t group_channels = j->channels / j->groups;
  const size_t first_channel = filter / (j->filters / j->groups) * group_channels;
  const size_t image = (item / j->filters * j->channels + first_channel) * w->in_area;
  uint32_t *y = j->y + item * w->out_area;
  memset(y, 0, w->out_area * sizeof *y);
  mllm_window_walk run = {.window = w, .taps = j->depth};
  while (mllm_window_next(&run)) {
    add_row(y + run.y, j->x, image + run.x, run.count, (size_t)w->stride[w->rank - 1],
            weight_at(j, filter, run.tap), j->x_zero);
  }
}

static void convolve_filters(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  for (size_t item = begin; item < end; item++) convolve_filter(argument, item);
}

/* Strides, pads, dilations and groups; the kernel's extents are the weight's. */
static bool read_window(const mllm_call *call, job *j) {
  mllm_array strides;
  mllm_array pads;
  mllm_array dilations;
  uint32_t at = 0;
  const mllm_view *x = &call->in[0];
  const mllm_view *y = &call->out[0];
  const mllm_view *w = &call->in[1];
  if (!mllm_param_array(call, &at, &strides) || !mllm_param_array(call, &at, &pads) ||
      !mllm_param_array(call, &at, &dilations) || at + 1 != call->n_params || x->rank < 3 ||
      w->rank != x->rank) {
    return false;
  }
  const mllm_array kernel = {x->rank - 2, w->dims + 2};
  const int64_t groups = call->params[at];
  if (!mllm_window_make(x, y, &kernel, &strides, &pads, &dilations, &j->window) || groups < 1 ||
      w->dims[0] < 1 || x->dims[1] % groups != 0 || w->dims[0] % groups != 0 ||
      w->dims[1] != x->dims[1] / groups || x->dims[0] != y->dims[0] || y->dims[1] != w->dims[0]) {
    return false;
  }
  j->channels = mllm_extent(x, 1);
  j->filters = mllm_extent(w, 0);
  j->groups = (size_t)groups;
  j->depth = mllm_product(w, 1, w->rank);
  return true;
}

/* x_zero is a scalar or absent, w_zero also one of each filter. */
static bool zeros_fit(const mllm_call *call, const job *j) {
  const mllm_view *x_zero = mllm_input(call, 2);
  const mllm_view *w_zero = j->w_zero;
  if (mllm_is_present(x_zero) && (x_zero->rank != 0 || x_zero->dtype != j->x->dtype)) return false;
  if (!mllm_is_present(w_zero)) return true;
  return w_zero->dtype == j->w->dtype &&
         (w_zero->rank == 0 || (w_zero->rank == 1 && mllm_extent(w_zero, 0) == j->filters));
}

mllm_status mllm_k_integer_conv(const mllm_call *call) {
  job j = {0};
  if (call->n_in < 2 || call->n_in > 4 || call->n_out != 1 || !mllm_is_byte(&call->in[0]) ||
      !mllm_is_byte(&call->in[1]) || call->out[0].dtype != MLLM_I32 || !read_window(call, &j)) {
    return MLLM_REJECT(call, "integer_conv: operands or params disagree");
  }
  j.x = &call->in[0];
  j.w = &call->in[1];
  j.w_zero = mllm_input(call, 3);
  if (!zeros_fit(call, &j)) {
    return MLLM_REJECT(call, "integer_conv: x_zero is a scalar, w_zero one or [filters]");
  }
  if (mllm_elements(&call->out[0]) == 0) return MLLM_OK;
  j.x_zero = mllm_is_present(mllm_input(call, 2)) ? mllm_byte_at(&call->in[2], 0) : 0;
  j.y = call->out[0].data;
  const size_t images = mllm_extent(&call->in[0], 0);
  mllm_parallel_for(call->context->threads, images * j.filters, 1, convolve_filters, &j);
  return MLLM_OK;
}
