/* conv.c - f32_conv over one to six spatial axes.
 *
 * Where groups is 1, an item is a stretch of output pixels of one image: its windows are gathered
 * into panels of 16 pixels, and the filters are the rows of the product, so that the result lies
 * channels first as it should. Grouped filters (mostly depthwise) are summed row by row. */
#include "gemm_driver.h"
#include "window.h"

enum { PIXELS = 128, DEPTH = 256 };

typedef struct job {
  const mllm_ops *ops;
  mllm_window window;
  const float *x; /* [batch, channels, *in] */
  const float *
      w; /* [ceil(filters / 16), channels * kernel, 16], or [filters, channels / groups, *kernel] */
  const float *bias; /* [filters] or NULL */
  float *y;          /* [batch, filters, *out] */
  size_t channels, filters, groups;
  size_t depth;     /* channels / groups * kernel_area */
  size_t stretches; /* of PIXELS pixels of an image */
  mllm_unary_fn activation; /* or NULL */
} job;

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* line[count]: what tap k of the window reads for output pixels pixel.. */
static void gather_line(const job *j, const float *image, size_t k, size_t pixel, size_t count,
                        float *line) {
  const mllm_window *w = &j->window;
  const uint32_t last = w->rank - 1;
  const float *channel = image + k / w->kernel_area * w->in_area;
  int64_t tap[MLLM_SPATIAL];
  int64_t place[MLLM_SPATIAL];
  mllm_window_place(k % w->kernel_area, w->kernel, w->rank, tap);
  memset(line, 0, count * sizeof(float));
  for (size_t done = 0; done < count;) {
    mllm_window_place(pixel + done, w->out, w->rank, place);
    const int64_t begin = place[last];
    const int64_t row_left = w->out[last] - begin;
    const int64_t run = row_left < (int64_t)(count - done) ? row_left : (int64_t)(count - done);
    size_t offset = 0;
    if (mllm_window_row(w, place, tap, &offset)) {
      int64_t first = 0;
      int64_t end = 0;
      int64_t shift = 0;
      mllm_window_span(w, tap[last], begin, begin + run, &first, &end, &shift);
      for (int64_t o = first; o < end; o++) {
        line[(int64_t)done + o - begin] = channel[(int64_t)offset + o * w->stride[last] + shift];
      }
    }
    done += (size_t)run;
  }
}

/* panels[ceil(count / 16), depth, 16] for taps k.. */
static void gather_panels(const job *j, const float *image, size_t k, size_t depth, size_t pixel,
                          size_t count, float *panels) {
  float line[PIXELS] = {0};
  for (size_t d = 0; d < depth; d++) {
    gather_line(j, image, k + d, pixel, count, line);
    for (size_t p = 0; p < count; p += MLLM_PANEL) {
      memcpy(panels + p * depth + d * MLLM_PANEL, line + p, MLLM_PANEL * sizeof(float));
    }
  }
}

/* packed[depth, tile_rows] from filters row.. of the packed weights */
static void pack_filters(const job *j, size_t row, size_t rows, size_t k, size_t depth,
                         float *packed) {
  const size_t tile_rows = j->ops->gemm->tile_rows;
  for (size_t r = 0; r < tile_rows; r++) {
    const size_t filter = row + r;
    const float *panel = j->w + filter / MLLM_PANEL * j->depth * MLLM_PANEL + filter % MLLM_PANEL;
    for (size_t d = 0; d < depth; d++) {
      packed[d * tile_rows + r] = r < rows ? panel[(k + d) * MLLM_PANEL] : 0.0F;
    }
  }
}

static void fill(float *y, float value, size_t n) {
  for (size_t i = 0; i < n; i++) y[i] = value;
}

static void convolve_stretch(const job *j, size_t item, float *scratch) {
  const mllm_gemm_ops *ops = j->ops->gemm;
  const size_t area = j->window.out_area;
  const size_t pixel = item % j->stretches * PIXELS;
  const size_t count = smaller(PIXELS, area - pixel);
  const float *image = j->x + item / j->stretches * j->channels * j->window.in_area;
  float *y = j->y + item / j->stretches * j->filters * area + pixel;
  float *panels = scratch;
  float *packed = panels + PIXELS * DEPTH;
  for (size_t f = 0; f < j->filters; f++) {
    fill(y + f * area, j->bias == NULL ? 0.0F : j->bias[f], count);
  }
  for (size_t k = 0; k < j->depth; k += DEPTH) {
    const size_t depth = smaller(DEPTH, j->depth - k);
    gather_panels(j, image, k, depth, pixel, count, panels);
    for (size_t f = 0; f < j->filters; f += ops->tile_rows) {
      mllm_tile tile = {.rows = smaller(ops->tile_rows, j->filters - f),
                        .depth = depth,
                        .a = packed,
                        .row_stride = MLLM_PANEL,
                        .panel_stride = depth * MLLM_PANEL,
                        .c_stride = area,
                        .start = MLLM_START_C};
      pack_filters(j, f, tile.rows, k, depth, packed);
      for (size_t p = 0; p < count; p += ops->tile_columns) {
        tile.columns = smaller(ops->tile_columns, count - p);
        tile.b = panels + p * depth;
        tile.c = y + f * area + p;
        ops->tile(&tile);
      }
    }
  }
  for (size_t f = 0; j->activation != NULL && f < j->filters; f++) {
    j->activation(y + f * area, y + f * area, count);
  }
}

static void convolve_stretches(void *argument, size_t begin, size_t end, void *scratch) {
  for (size_t item = begin; item < end; item++) convolve_stretch(argument, item, scratch);
}

/* One filter of one image, a row of outputs and a tap at a time. */
static void convolve_filter(const job *j, size_t item) {
  const mllm_window *w = &j->window;
  const size_t filter = item % j->filters;
  const size_t group_channels = j->channels / j->groups;
  const size_t first_channel = filter / (j->filters / j->groups) * group_channels;
  const float *image = j->x + (item / j->filters * j->channels + first_channel) * w->in_area;
  const float *weights = j->w + filter * j->depth;
  float *y = j->y + item * w->out_area;
  const size_t stride = (size_t)w->stride[w->rank - 1];
  fill(y, j->bias == NULL ? 0.0F : j->bias[filter], w->out_area);
  mllm_window_walk run = {.window = w, .taps = j->depth};
  while (mllm_window_next(&run)) {
    const float weight = weights[run.tap];
    if (stride == 1) {
      j->ops->rows->add_scaled(y + run.y, image + run.x, weight, run.count);
      continue;
    }
    for (size_t o = 0; o < run.count; o++) y[run.y + o] += weight * image[run.x + o * stride];
  }
  if (j->activation != NULL) j->activation(y, y, w->out_area);
}

static void convolve_filters(void *argument, size_t begin, size_t end, void *scratch) {
  (void)scratch;
  for (size_t item = begin; item < end; item++) convolve_filter(argument, item);
}

/* Kernel, strides, pads, dilations, groups, out_channels, activation; and whether the operands
 * agree. */
static bool read_conv(const mllm_call *call, job *j) {
  mllm_array kernel;
  mllm_array strides;
  mllm_array pads;
  mllm_array dilations;
  uint32_t at = 0;
  if (!mllm_param_array(call, &at, &kernel) || !mllm_param_array(call, &at, &strides) ||
      !mllm_param_array(call, &at, &pads) || !mllm_param_array(call, &at, &dilations) ||
      at + 3 != call->n_params || call->params[at + 2] < MLLM_ACTIVATION_NONE ||
      call->params[at + 2] > MLLM_ACTIVATION_SILU) {
    return false;
  }
  const mllm_view *x = &call->in[0];
  const mllm_view *y = &call->out[0];
  const int64_t groups = call->params[at];
  const int64_t filters = call->params[at + 1];
  if (x->dtype != MLLM_F32 || y->dtype != MLLM_F32 || call->in[1].dtype != MLLM_F32 ||
      !mllm_window_make(x, y, &kernel, &strides, &pads, &dilations, &j->window) || groups < 1 ||
      filters < 1 || x->dims[1] % groups != 0 || filters % groups != 0 ||
      x->dims[0] != y->dims[0] || y->dims[1] != filters ||
      !mllm_is_vector_or_absent(mllm_input(call, 2), (size_t)filters)) {
    return false;
  }
  j->channels = mllm_extent(x, 1);
  j->filters = (size_t)filters;
  j->groups = (size_t)groups;
  j->activation = mllm_activation_fn(call->context->ops, (uint32_t)call->params[at + 2]);
  return !__builtin_mul_overflow(j->channels / j->groups, j->window.kernel_area, &j->depth);
}

static bool weights_fit(const job *j, const mllm_view *w) {
  if (j->groups == 1) {
    return w->rank == 3 && w->dims[2] == MLLM_PANEL && mllm_extent(w, 1) == j->depth &&
           mllm_extent(w, 0) == (j->filters + MLLM_PANEL - 1) / MLLM_PANEL;
  }
  if (w->rank != j->window.rank + 2 || mllm_extent(w, 0) != j->filters ||
      mllm_extent(w, 1) != j->channels / j->groups) {
    return false;
  }
  for (uint32_t i = 0; i < j->window.rank; i++) {
    if (w->dims[2 + i] != j->window.kernel[i]) return false;
  }
  return true;
}

mllm_status mllm_k_f32_conv(const mllm_call *call) {
  job j = {0};
  if (call->n_in < 2 || call->n_in > 3 || call->n_out != 1 || !read_conv(call, &j) ||
      !weights_fit(&j, &call->in[1])) {
    return MLLM_REJECT(call, "f32_conv: operands or params disagree");
  }
  j.ops = call->context->ops;
  j.x = call->in[0].data;
  j.w = call->in[1].data;
  j.bias = mllm_input(call, 2)->data;
  j.y = call->out[0].data;
  if (mllm_elements(&call->out[0]) == 0) return MLLM_OK;
  const size_t batch = mllm_extent(&call->in[0], 0);
  if (j.groups > 1) {
    mllm_parallel_for(call->context->threads, batch * j.filters, 1, convolve_filters, &j);
    return MLLM_OK;
  }
  j.stretches = (j.window.out_area + PIXELS - 1) / PIXELS;
  mllm_parallel_for(call->context->threads, batch * j.stretches, 1, convolve_stretches, &j);
  return MLLM_OK;
}
